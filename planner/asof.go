package planner

import (
	"github.com/streamdb/streamdb/internal/pgerr"
	"github.com/streamdb/streamdb/planner/plan"
	"github.com/streamdb/streamdb/sql/expr"
	"github.com/streamdb/streamdb/sql/functions"
	"github.com/streamdb/streamdb/sql/pgext"
	"github.com/streamdb/streamdb/types"
)

// asofHint shows a condition that an ASOF join takes.
const asofHint = "Write for example ON l.key = r.key AND l.time >= r.time."

// asof binds the condition of an ASOF join, whose sides are n's inputs.
func (x *exprCtx) asof(n *node, j *pgext.Join, pos int) (*node, error) {
	b := x.b
	if len(correlated(n.in[1], toSet(n.in[0].out()))) > 0 {
		return nil, pgerr.Newf(pgerr.FeatureNotSupported, "the right side of ASOF JOIN cannot refer to the left side").At(pos)
	}
	cond, err := x.condition(j.On)
	if err != nil {
		return nil, err
	}
	if len(x.applies) > 0 {
		return nil, pgerr.Newf(pgerr.FeatureNotSupported, "cannot use subquery in the condition of ASOF JOIN").At(pos)
	}
	ph := &physical{b: b, o: newOptimizer(b), md: b.md}
	l, r := toSet(n.in[0].out()), toSet(n.in[1].out())
	n.op = opAsof
	var keys []*expr.Expr
	for _, c := range conjuncts(cond) {
		if b.volatileExpr(c) {
			return nil, pgerr.Newf(pgerr.FeatureNotSupported, "volatile functions are not supported in the condition of ASOF JOIN").At(c.Pos)
		}
		if _, ok := ph.joinKey(c, l, r); ok {
			keys = append(keys, c)
			continue
		}
		if ph.o.comparison(c) == "" {
			return nil, pgerr.Newf(pgerr.FeatureNotSupported, "the condition of ASOF JOIN must be equalities and one comparison with <, <=, > or >=, joined by AND").
				WithHint(asofHint).At(c.Pos)
		}
		lhs, rhs, op := ph.o.compares(c, l, r)
		if op == "" {
			return nil, pgerr.Newf(pgerr.FeatureNotSupported, "each comparison of ASOF JOIN must be of an expression of the left side with one of the right side").
				WithHint("Conditions on one side belong into WHERE or into a subquery.").At(c.Pos)
		}
		if op == "=" || !ordersAlike(lhs.Type, rhs.Type) {
			return nil, pgerr.Newf(pgerr.DatatypeMismatch, "ASOF JOIN cannot compare %s with %s", b.reg.TypeName(lhs.Type.OID), b.reg.TypeName(rhs.Type.OID)).
				WithHint("Cast one side to the type of the other.").At(c.Pos)
		}
		if n.exprs != nil {
			return nil, pgerr.Newf(pgerr.FeatureNotSupported, "ASOF JOIN takes one comparison with <, <=, > or >=, and there is another one").
				WithHint("Conditions that choose among the matches belong into WHERE.").At(c.Pos)
		}
		n.exprs, n.name = []*expr.Expr{lhs, rhs}, op
	}
	if n.exprs == nil {
		return nil, pgerr.Newf(pgerr.FeatureNotSupported, "ASOF JOIN needs one comparison with <, <=, > or >=").WithHint(asofHint).At(pos)
	}
	n.cond = and(keys...)
	return n, nil
}

// asofJoin builds an ASOF join. Every left row comes out at most once, so its key identifies it.
func (ph *physical) asofJoin(n *node, want, need map[int]bool) *phys {
	var keys []joinKey
	lset, rset := toSet(n.in[0].out()), toSet(n.in[1].out())
	for _, c := range conjuncts(n.cond) {
		k, ok := ph.joinKey(c, lset, rset)
		if !ok {
			ph.b.fail(pgerr.Newf(pgerr.InternalError, "condition of ASOF JOIN is no equality any more"))
		}
		keys = append(keys, k)
	}
	t, _ := hashType(n.exprs[0].Type.OID, n.exprs[1].Type.OID)
	at := joinKey{}
	for i, e := range []**expr.Expr{&at.l, &at.r} {
		var err error
		if *e, err = ph.b.reg.Cast(n.exprs[i], types.T(t), functions.Implicit); err != nil {
			ph.b.fail(err)
		}
	}
	of := [2]func(joinKey) *expr.Expr{func(k joinKey) *expr.Expr { return k.l }, func(k joinKey) *expr.Expr { return k.r }}
	var sides [2]*phys
	var cols [2][]int // the keys, then what is compared
	for i := range sides {
		sides[i] = ph.build(n.in[i], need)
		sides[i], cols[i] = ph.keyColumns(sides[i], append(append([]joinKey(nil), keys...), at), of[i])
	}
	l, r := sides[0], sides[1]
	last := len(keys)
	lk, rk := cols[0][:last:last], cols[1][:last:last]
	if !arrange(l, lk, rk, keys) {
		arrange(r, rk, lk, keys)
	}
	l, r = ph.coPartition(l, r, lk, rk, union(need, cols[0], cols[1]))
	l, r = ph.expire(l, nil, lk), ph.expire(r, nil, rk)
	out, pos := joinOutput(appendAll(l.ids, r.ids), want, toSet(l.key))
	p := ph.node(plan.KindAsofJoin, out, l.key, l, r)
	p.n.AsofJoin = &plan.AsofJoin{
		Type: n.jtype, LeftKeys: l.positions(lk), RightKeys: r.positions(rk), NullSafe: nullSafe(keys), Left: l.at(cols[0][last]), Right: r.at(cols[1][last]), Op: n.name, Output: pos,
		KeepNulls: ph.b.stream && n.jtype == plan.Left,
	}
	for _, id := range out {
		p.nn[id] = l.nn[id] || r.nn[id] && n.jtype == plan.Inner
	}
	p.app = !ph.b.stream && l.app && r.app
	p.spreadAs(l)
	return ph.seal(p)
}
