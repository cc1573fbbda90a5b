package planner

import (
	"slices"
	"strings"

	"github.com/streamdb/streamdb/planner/plan"
	"github.com/streamdb/streamdb/sql/expr"
)

// failing are the functions, by name, that fail for values which rows commonly have. Overflow is not among them.
var failing = map[string]bool{
	"$in": true, "$single": true, "sqrt": true, "dsqrt": true, "numeric_sqrt": true, "ln": true, "dlog1": true, "numeric_ln": true, "log": true, "log10": true,
	"dlog10": true, "numeric_log": true, "power": true, "pow": true, "dpow": true, "numeric_power": true, "to_date": true, "to_timestamp": true, "to_number": true,
	"make_date": true, "make_time": true, "make_timestamp": true, "make_timestamptz": true, "decode": true, "convert_from": true,
}

// mayFail reports whether e has a division or another call that fails for values which rows commonly have.
func mayFail(e *expr.Expr) bool {
	found := false
	e.Walk(func(x *expr.Expr) bool {
		if x.Kind != expr.Call || found {
			return !found
		}
		name, _, _ := strings.Cut(x.Func, "(")
		switch {
		case strings.HasSuffix(name, "div") || strings.HasSuffix(name, "mod"):
			found = len(x.Args) != 2 || !divisor(x.Args[1])
		case failing[name]:
			found = !constantArgs(x)
		}
		return !found
	})
	return found
}

// divisor reports whether nothing can fail to be divided by e.
func divisor(e *expr.Expr) bool {
	if e.Kind != expr.Const {
		return false
	}
	return e.Const.Null || strings.ContainsAny(e.Const.String(), "123456789")
}

// treeMayFail reports whether an expression in the tree may fail.
func treeMayFail(n *node) bool {
	found := false
	n.walk(func(x *node) {
		x.eachExpr(func(e *expr.Expr) *expr.Expr { found = found || mayFail(e); return e })
	})
	return found
}

// lateProjections computes what may fail above joins: for the rows that a join gives.
func (o *optimizer) lateProjections(n *node) *node {
	for i, in := range n.in {
		n.in[i] = o.lateProjections(in)
	}
	if n.op != opJoin {
		return n
	}
	out := n.out()
	late := map[int]*expr.Expr{}
	for side, p := range n.in {
		if p.op != opProject || side == 1 && (n.jtype == plan.Semi || n.jtype == plan.Anti) {
			continue
		}
		padded := n.jtype == plan.Full || n.jtype == plan.Left && side == 1 || n.jtype == plan.Right && side == 0
		n.in[side] = o.without(p, n.cond, padded, late)
	}
	if len(late) == 0 {
		return n
	}
	o.fire("late_projections")
	up := &node{op: opProject, in: []*node{n}, cols: out}
	for _, c := range out {
		e := late[c]
		if e == nil {
			e = o.md.ref(c)
		}
		up.exprs = append(up.exprs, e)
	}
	return up
}

// without returns projection p without the columns that may fail and that cond does not use, and puts these into late. Their arguments go up instead.
// Of a side that the join pads with NULLs they must be NULL then, too.
func (o *optimizer) without(p *node, cond *expr.Expr, padded bool, late map[int]*expr.Expr) *node {
	used := map[int]bool{}
	if cond != nil {
		cond.Columns(used)
	}
	in := toSet(p.in[0].out())
	for i, e := range p.exprs {
		if padded && !o.b.nullIn(e, in) {
			continue
		}
		if !used[p.cols[i]] && mayFail(e) && !o.b.volatileExpr(e) {
			late[p.cols[i]] = e
		}
	}
	q := &node{op: opProject, in: p.in}
	need := map[int]bool{}
	for i, c := range p.cols {
		if e := late[c]; e != nil {
			e.Columns(need)
			continue
		}
		q.cols, q.exprs = append(q.cols, c), append(q.exprs, p.exprs[i])
	}
	for _, c := range p.in[0].out() {
		if need[c] && !slices.Contains(q.cols, c) {
			q.cols, q.exprs = append(q.cols, c), append(q.exprs, o.md.ref(c))
		}
	}
	return q
}
