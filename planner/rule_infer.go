package planner

import (
	"slices"

	"github.com/streamdb/streamdb/planner/plan"
	"github.com/streamdb/streamdb/sql/expr"
	"github.com/streamdb/streamdb/types"
)

// fact is a comparison of a column with values that no row changes: constants or parameters.
type fact struct {
	col    int
	op     string // =, <, <=, >, >= or in
	values []*expr.Expr
}

// facts are what holds for all rows of a plan: comparisons, and pairs of columns that are equal.
type facts struct {
	o     *optimizer
	known []fact
	equal [][2]int
}

// column returns the column whose values e has, those of a narrower type maybe.
func (f *facts) column(e *expr.Expr) (int, bool) {
	e = widened(f.o.b.reg, e)
	return e.Col, e.Kind == expr.Column
}

func fixedValue(e *expr.Expr) bool {
	return e.Kind == expr.Const && !e.Const.Null || e.Kind == expr.Param
}

// compared takes a comparison with fixed values apart; x is what is compared.
func (o *optimizer) compared(c *expr.Expr) (x *expr.Expr, op string, values []*expr.Expr) {
	if c.Kind == expr.InList {
		if slices.ContainsFunc(c.Args[1:], func(e *expr.Expr) bool { return !fixedValue(e) }) {
			return nil, "", nil
		}
		return c.Args[0], "in", c.Args[1:]
	}
	switch op := o.comparison(c); {
	case op == "":
	case fixedValue(c.Args[1]):
		return c.Args[0], op, c.Args[1:]
	case fixedValue(c.Args[0]):
		return c.Args[1], turnedComparison[op], c.Args[:1]
	}
	return nil, "", nil
}

// learn adds what conditions say.
func (f *facts) learn(conds ...*expr.Expr) {
	for _, c := range conds {
		if x, op, values := f.o.compared(c); x != nil {
			if col, ok := f.column(x); ok {
				f.add(fact{col, op, values})
			}
			continue
		}
		if !f.o.equality(c) {
			continue
		}
		l, ok := f.column(c.Args[0])
		r, ok2 := f.column(c.Args[1])
		if ok && ok2 && l != r && ordersAlike(f.o.md.typ(l), f.o.md.typ(r)) {
			f.equal = append(f.equal, [2]int{l, r})
		}
	}
}

func (f *facts) add(x fact) bool {
	if slices.ContainsFunc(f.known, func(k fact) bool {
		return k.col == x.col && k.op == x.op && slices.EqualFunc(k.values, x.values, sameValue)
	}) {
		return false
	}
	f.known = append(f.known, x)
	return true
}

// sameValue compares integers whatever their width.
func sameValue(a, c *expr.Expr) bool {
	if a.Kind == expr.Const && c.Kind == expr.Const && integral(a.Type.OID) && integral(c.Type.OID) {
		return a.Const.Int == c.Const.Int
	}
	return sameExpr(a, c)
}

func integral(t types.OID) bool {
	return t == types.OIDInt2 || t == types.OIDInt4 || t == types.OIDInt8
}

// learnRows adds what holds for all rows of a plan by what is in it. Columns that are made once have the same values wherever they are seen.
func (f *facts) learnRows(n *node) {
	switch n.op {
	case opFilter:
		f.learn(conjuncts(n.cond)...)
	case opProject:
		for i, e := range n.exprs {
			if e.Kind == expr.Column && e.Col != n.cols[i] && ordersAlike(e.Type, e.Type) {
				f.equal = append(f.equal, [2]int{n.cols[i], e.Col})
			}
		}
	case opJoin:
		switch n.jtype {
		case plan.Inner, plan.Semi:
			f.learn(conjuncts(n.cond)...)
			f.learnRows(n.in[0])
			f.learnRows(n.in[1])
		case plan.Left, plan.Anti:
			f.learnRows(n.in[0])
		case plan.Right:
			f.learnRows(n.in[1])
		}
		return
	case opAgg, opTopN, opOver, opWindow, opWatermark, opUnnest:
	default:
		return
	}
	f.learnRows(n.in[0])
}

// infer follows facts along equal columns and returns those that are new, of the wanted columns.
func (f *facts) infer(want map[int]bool) []*expr.Expr {
	var out []*expr.Expr
	for i := 0; i < len(f.known); i++ { // it grows, by as many as there are columns at most
		k := f.known[i]
		for _, pair := range f.equal {
			for side, col := range pair {
				if other := pair[1-side]; col == k.col {
					x := fact{other, k.op, k.values}
					e := f.condition(x)
					if e != nil && f.add(x) && want[other] {
						out = append(out, e)
					}
				}
			}
		}
	}
	return out
}

// condition is nil where the values are of types that compare otherwise.
func (f *facts) condition(x fact) *expr.Expr {
	c := f.o.md.ref(x.col)
	for _, v := range x.values {
		if !ordersAlike(c.Type, v.Type) {
			return nil
		}
	}
	b := f.o.b
	if x.op != "in" {
		e, err := b.operatorOn(x.op, []*expr.Expr{c, x.values[0]}, x.values[0].Pos)
		if err != nil {
			return nil
		}
		return b.fold(e)
	}
	for _, v := range x.values {
		if v.Type.OID != c.Type.OID {
			return nil
		}
	}
	return &expr.Expr{Kind: expr.InList, Type: types.Bool, Args: append([]*expr.Expr{c}, x.values...), Pos: x.values[0].Pos}
}

// inferred returns conditions that hold for the rows of a join's sides that take part in its result, by what is known of the columns that they are equal to. preds
// are conditions on the result.
func (o *optimizer) inferred(n *node, preds, on []*expr.Expr, l, r map[int]bool) (left, right []*expr.Expr) {
	if o.off(ruleInfer) {
		return nil, nil
	}
	f := &facts{o: o}
	var want map[int]bool
	switch n.jtype {
	case plan.Inner, plan.Semi:
		f.learn(preds...)
		want = union(l, n.in[1].out())
	case plan.Left, plan.Anti: // rows of the right side that match none of the left one do not count
		f.learn(of(preds, l)...)
		want = r
	case plan.Right:
		f.learn(of(preds, r)...)
		want = l
	case plan.Full:
		return o.inferredMerged(preds, on, l, r)
	}
	f.learn(on...)
	f.learnRows(n.in[0])
	f.learnRows(n.in[1])
	for _, e := range f.infer(want) {
		if onSide(e, l) {
			left = append(left, e)
		} else {
			right = append(right, e)
		}
		o.fire(ruleInfer)
	}
	return left, right
}

// inferredMerged is of conditions on the merged column of a full join, coalesce(l.k, r.k), where l.k = r.k joins: either side may be narrowed where both are.
func (o *optimizer) inferredMerged(preds, on []*expr.Expr, l, r map[int]bool) (left, right []*expr.Expr) {
	f := &facts{o: o}
	f.learn(on...)
	for _, p := range preds {
		x, op, values := o.compared(p)
		if x == nil {
			continue
		}
		merged := widened(o.b.reg, x)
		if merged.Kind != expr.Coalesce || len(merged.Args) != 2 {
			continue
		}
		args := merged.Args
		a, ok := f.column(args[0])
		c, ok2 := f.column(args[1])
		if !ok || !ok2 || !slices.Contains(f.equal, [2]int{a, c}) && !slices.Contains(f.equal, [2]int{c, a}) {
			continue
		}
		if l[c] {
			a, c = c, a
		}
		el, er := f.condition(fact{a, op, values}), f.condition(fact{c, op, values})
		if !l[a] || !r[c] || el == nil || er == nil {
			continue
		}
		left, right = append(left, el), append(right, er)
		o.fire(ruleInfer)
	}
	return left, right
}

// of are the conditions on columns of a set alone.
func of(conds []*expr.Expr, set map[int]bool) (out []*expr.Expr) {
	for _, c := range conds {
		if onSide(c, set) {
			out = append(out, c)
		}
	}
	return out
}
