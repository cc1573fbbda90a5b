package planner

import (
	"reflect"
	"slices"

	"github.com/streamdb/streamdb/planner/plan"
	"github.com/streamdb/streamdb/sql/expr"
	"github.com/streamdb/streamdb/types"
)

// extremeJoins turns joins of rows with the greatest or least value of their group into a Top-N:
//
//	rows JOIN (SELECT g, max(x) AS m FROM rows GROUP BY g) ON g = g AND x = m
//
// leaves of each group the rows that come first in descending order of x, and those equal to them. A Top-N over rows that are only added keeps no others, where the join
// would keep all.
func (o *optimizer) extremeJoins(n *node) *node {
	for i, in := range n.in {
		n.in[i] = o.extremeJoins(in)
	}
	if n.op != opJoin || n.jtype != plan.Inner || !o.b.stream {
		return n
	}
	for side := range 2 {
		if p := o.extremeJoin(n, n.in[side], n.in[1-side]); p != nil {
			o.fire(o.cur)
			return p
		}
	}
	return n
}

// passed strips projections off n. It returns what is below, and for each output column of n that is one of a column below which one that is.
func passed(n *node) (*node, map[int]int) {
	cols := map[int]int{}
	for _, c := range n.out() {
		cols[c] = c
	}
	for n.op == opProject {
		below := map[int]int{}
		for i, e := range n.exprs {
			if e.Kind == expr.Column {
				below[n.cols[i]] = e.Col
			}
		}
		for c, at := range cols {
			if to, ok := below[at]; ok {
				cols[c] = to
			} else {
				delete(cols, c)
			}
		}
		n = n.in[0]
	}
	return n, cols
}

// extremeJoin returns what takes the place of n, a join of rows with best, or nil.
func (o *optimizer) extremeJoin(n, rows, best *node) *node {
	agg, isOf := passed(best)
	if agg.op != opAgg || len(agg.group) == 0 || len(agg.aggs) != 1 || len(isOf) < len(best.out()) {
		return nil
	}
	call := agg.aggs[0]
	greatest, ok := o.md.extreme(call)
	if !ok {
		return nil
	}
	beyond := "<="
	if greatest {
		beyond = ">="
	}
	base, rowCol := passed(rows)
	sub, subCol := passed(agg.in[0])
	same := map[int]int{}
	if !o.sameRows(base, sub, same) {
		return nil
	}
	// in returns the column of rows that a column of the aggregation's input is, 0 when rows has none.
	in := func(c int) int {
		if at, ok := same[subCol[c]]; ok {
			for _, id := range rows.out() {
				if to, ok := rowCol[id]; ok && to == at {
					return id
				}
			}
		}
		return 0
	}
	value := in(call.args[0])
	stands := map[int]int{call.id: value} // columns of the aggregation → of rows
	for _, g := range agg.group {
		stands[g] = in(g)
	}
	extreme, joined := false, map[int]bool{}
	var rest []*expr.Expr
	for _, c := range conjuncts(n.cond) {
		op := o.comparison(c)
		if op != "" && c.Args[0].Kind == expr.Column && c.Args[1].Kind == expr.Column {
			l, r := c.Args[0].Col, c.Args[1].Col
			if _, ok := isOf[l]; ok {
				l, r, op = r, l, turnedComparison[op]
			}
			if b, ok := isOf[r]; ok && l == stands[b] {
				switch {
				case b != call.id && op == "=":
					joined[b] = true
					continue
				case b == call.id && (op == "=" || op == beyond):
					extreme = true
					continue
				}
			}
		}
		rest = append(rest, c)
	}
	if !extreme {
		return nil
	}
	top := &node{op: opTopN, limit: intConst(types.Int8, 1), withTies: true, order: []sortKey{{col: value, desc: greatest}}}
	for _, g := range agg.group {
		if !joined[g] && !o.sameWindow(g, agg, joined, sub, subCol) {
			return nil
		}
		if stands[g] != 0 {
			top.group = append(top.group, stands[g])
		}
	}
	top.in = []*node{filterNode(rows, o.md.hasValues(append(slices.Clone(top.group), value)))}
	p := &node{op: opProject, in: []*node{top}}
	for _, c := range n.out() {
		from := c
		if b, ok := isOf[c]; ok {
			from = stands[b]
		}
		if from == 0 || o.md.typ(from).OID != o.md.typ(c).OID {
			return nil
		}
		p.cols, p.exprs = append(p.cols, c), append(p.exprs, o.md.ref(from))
	}
	return filterNode(p, and(rest...))
}

// sameWindow reports whether a group column tells of the same window as one that is joined: of windows of one size either end of it tells the other.
func (o *optimizer) sameWindow(g int, agg *node, joined map[int]bool, sub *node, subCol map[int]int) bool {
	window := o.md.cols[subCol[g]].window
	if window == 0 {
		return false
	}
	for _, other := range agg.group {
		if !joined[other] || o.md.cols[subCol[other]].window != window {
			continue
		}
		fixed := false
		sub.walk(func(n *node) {
			if n.op == opWindow && n.winEnd == window {
				fixed = n.win.Step == 0 && (n.win.Calendar == nil || !n.win.Calendar.Cumulate)
			}
		})
		return fixed
	}
	return false
}

// sameRows reports whether y makes the same rows as x, and adds to same which column of x each column of y is. Columns that y makes and x does not are left out.
func (o *optimizer) sameRows(x, y *node, same map[int]int) bool {
	if x.op != y.op || len(x.in) != len(y.in) {
		return false
	}
	for i := range x.in {
		if !o.sameRows(x.in[i], y.in[i], same) {
			return false
		}
	}
	// is says whether an expression of y, which may be nil, is one of x.
	is := func(a, b *expr.Expr) bool {
		if a == nil || b == nil {
			return a == b
		}
		known := true
		b = mapCols(b, func(c int) int {
			to, ok := same[c]
			known = known && ok
			return to
		})
		return known && sameExpr(a, b) && !o.b.volatileExpr(a)
	}
	are := func(a, b []int) bool {
		return len(a) == len(b) && !slices.ContainsFunc(b, func(c int) bool { return !slices.Contains(a, same[c]) })
	}
	switch x.op {
	case opScan, opSource:
		if x.rel.ID != y.rel.ID || x.rel.ID == 0 {
			return false
		}
		for i, s := range y.stored {
			if at := slices.Index(x.stored, s); at >= 0 {
				same[y.cols[i]] = x.cols[at]
			}
		}
		return true
	case opFilter:
		return is(x.cond, y.cond)
	case opProject:
		for i, e := range y.exprs {
			for j, f := range x.exprs {
				if is(f, e) {
					same[y.cols[i]] = x.cols[j]
					break
				}
			}
		}
		return true
	case opWatermark:
		return same[y.column] == x.column && is(x.wmExpr, y.wmExpr)
	case opWindow:
		if same[y.column] != x.column || !reflect.DeepEqual(x.win, y.win) {
			return false
		}
		same[y.winStart], same[y.winEnd] = x.winStart, x.winEnd
		return true
	case opAgg:
		if x.global != y.global || !are(x.group, y.group) {
			return false
		}
		for _, b := range y.aggs {
			for _, a := range x.aggs {
				if a.fn == b.fn && a.distinct == b.distinct && a.filter == same[b.filter] && len(a.order)+len(b.order)+len(a.direct)+len(b.direct) == 0 &&
					slices.EqualFunc(a.args, b.args, func(a, b int) bool { return same[b] == a }) {
					same[b.id] = a.id
					break
				}
			}
		}
		return true
	}
	return false
}
