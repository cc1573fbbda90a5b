package planner

import (
	"github.com/pingcap/tidb/pkg/parser/ast"

	"github.com/streamdb/streamdb/internal/pgerr"
	"github.com/streamdb/streamdb/planner/plan"
	"github.com/streamdb/streamdb/sql/expr"
	"github.com/streamdb/streamdb/sql/pgext"
	"github.com/streamdb/streamdb/types"
)

// on binds the condition of a join and returns the join with it. Subqueries of an outer join's condition are evaluated below the join: those of
// a left join over the right side, as its lateral rows; those of a full join over the side whose columns they use.
func (x *exprCtx) on(n *node, e ast.ExprNode, pos int) (*node, error) {
	if n.jtype == plan.Full {
		return x.onFull(n, e, pos)
	}
	cond, err := x.condition(e)
	if err != nil {
		return nil, err
	}
	switch {
	case len(x.applies) == 0:
		n.cond = cond
		return n, nil
	case n.jtype == plan.Inner:
		return filterNode(x.b.attach(n, x.applies), cond), nil
	case n.jtype == plan.Right:
		n.jtype, n.in[0], n.in[1] = plan.Left, n.in[1], n.in[0]
	}
	n.in[1] = filterNode(x.b.attach(n.in[1], x.applies), cond)
	return n, nil
}

// onFull binds the condition with its subqueries as values, none of which changes the number of rows of its side.
func (x *exprCtx) onFull(n *node, e ast.ExprNode, pos int) (*node, error) {
	cond, err := x.bool(e)
	if err != nil {
		return nil, err
	}
	for _, a := range x.applies {
		used := freeCols(a.right)
		if a.cond != nil {
			a.cond.Columns(used)
		}
		side := 0
		for c := range toSet(n.in[1].out()) {
			if used[c] {
				side = 1
			}
		}
		for _, c := range n.in[0].out() {
			if used[c] && side == 1 {
				return nil, pgerr.Newf(pgerr.FeatureNotSupported, "FULL JOIN is only supported with subqueries that depend on one of its sides").At(pos)
			}
		}
		n.in[side] = x.b.attach(n.in[side], []apply{a})
	}
	n.cond = cond
	return n, nil
}

// rowOf binds a subquery as a row of width values.
func (x *exprCtx) rowOf(q *pgext.Subquery, width int) ([]*expr.Expr, error) {
	b := x.b
	r, err := x.sub(q.Query, false)
	if err != nil {
		return nil, err
	}
	if len(r.cols) != width {
		return nil, pgerr.Newf(pgerr.SyntaxError, "number of columns does not match number of values").At(b.pos(q.Pos))
	}
	out := make([]*expr.Expr, width)
	n := r.n
	if !b.atMostOne(n) {
		agg := &node{op: opAgg, in: []*node{n}, global: true}
		for i, c := range r.cols {
			t := b.md.typ(c.id)
			res, err := b.reg.ResolveFunction("$scalar", []types.Type{t})
			if err != nil {
				return nil, err
			}
			id := b.md.add(c.name, t)
			agg.aggs = append(agg.aggs, aggCall{id: id, fn: res.Func.ID, args: []int{c.id}, typ: t})
			r.cols[i].id = id
		}
		n = agg
	}
	x.applies = append(x.applies, apply{right: b.md.narrow(n, dedup(colIDs(r.cols))), jtype: plan.Left})
	for i, c := range r.cols {
		out[i] = b.md.ref(c.id)
	}
	return out, nil
}
