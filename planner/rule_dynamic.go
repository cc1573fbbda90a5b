package planner

import (
	"github.com/streamdb/streamdb/planner/plan"
	"github.com/streamdb/streamdb/sql/expr"
	"github.com/streamdb/streamdb/sql/functions"
	"github.com/streamdb/streamdb/types"
)

// dynamicFilter plans a join of a job with a side of at most one row, by a comparison with it, as a filter that keeps the rows of the other side in order: nil
// when it is none. A wanted column of the one row would change all rows of the result with it.
func (ph *physical) dynamicFilter(n *node, l, r *phys, conds []*expr.Expr, want, need map[int]bool) *phys {
	if !ph.b.stream || ph.sub != nil || ph.o.off(ruleDynamicFilter) || n.jtype != plan.Inner || len(conds) != 1 {
		return nil
	}
	if len(r.key) > 0 {
		l, r = r, l
	}
	if len(r.key) > 0 || len(l.key) == 0 {
		return nil
	}
	for _, id := range r.ids {
		if want[id] {
			return nil
		}
	}
	x, y, op := ph.ordering(conds[0], toSet(l.ids), toSet(r.ids))
	if op == "" {
		return nil
	}
	ph.o.fire(ruleDynamicFilter)
	xs, ys := &preparer{b: ph.b}, &preparer{b: ph.b}
	column, scalar := xs.col(x), ys.col(y)
	l, r = ph.compute(l, xs.ids, xs.exprs), ph.compute(r, ys.ids, ys.exprs)
	need = union(need, []int{column, scalar})
	l = ph.expireByKey(l, need)
	r = ph.require(r, distSingle, nil, need)
	spread := l.key
	switch {
	case l.dist == distHash:
		spread = l.cols
	case l.dist != distSingle:
		l = ph.require(l, distHash, spread, need)
	}
	if ph.cut && l.dist != distSingle {
		r = ph.exchange(ph.slim(r, need), plan.DistBroadcast, nil)
	}
	p := ph.like(plan.KindDynamicFilter, l)
	p.n.Inputs = append(p.n.Inputs, r.n)
	p.n.DynamicFilter = &plan.DynamicFilter{Column: l.at(column), Op: op, Scalar: r.at(scalar), Spread: l.positions(spread)}
	p.wm, p.app = map[int]bool{}, false // rows leave and come back
	return ph.seal(p)
}

// ordering splits a condition into expressions of either side, of one type, and the operator between them, "" when it is none that orders.
func (ph *physical) ordering(c *expr.Expr, l, r map[int]bool) (x, y *expr.Expr, op string) {
	if x, y, op = ph.o.compares(c, l, r); op == "" || op == "=" || ph.b.volatileExpr(c) {
		return nil, nil, ""
	}
	t, ok := hashType(x.Type.OID, y.Type.OID)
	if !ok {
		return nil, nil, ""
	}
	if t != types.OIDText {
		return x, y, op // keys of numbers compare whatever their width
	}
	for _, e := range []**expr.Expr{&x, &y} {
		var err error
		if *e, err = ph.b.reg.Cast(*e, types.T(t), functions.Implicit); err != nil {
			return nil, nil, ""
		}
	}
	return x, y, op
}
