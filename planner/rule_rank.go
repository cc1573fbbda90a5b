package planner

import (
	"strings"

	"github.com/streamdb/streamdb/planner/plan"
	"github.com/streamdb/streamdb/sql/expr"
	"github.com/streamdb/streamdb/types"
)

// maxRankLimit is the largest limit for which a condition on a rank becomes a Top-N: of a changed group that one reads all rows it shows.
const maxRankLimit = 10_000

// rankName returns the rank that a window function makes, "" when it makes none.
func rankName(fn string) string {
	switch name, _, _ := strings.Cut(fn, "("); name {
	case plan.RankNumber, plan.RankRank, plan.RankDense:
		return name
	}
	return ""
}

// rankFilters turns conditions like row_number() OVER (…) <= 3 into a Top-N: of each partition only the first rows are left, and their ranks do not
// depend on the others.
func (o *optimizer) rankFilters(n *node) *node {
	for i, in := range n.in {
		n.in[i] = o.rankFilters(in)
	}
	if n.op != opFilter || n.in[0].op != opOver {
		return n
	}
	over := n.in[0]
	kinds := map[int]string{}
	for _, c := range over.over {
		if kinds[c.id] = rankName(c.fn); kinds[c.id] == "" {
			return n
		}
	}
	conds := conjuncts(n.cond)
	by, limit := "", int64(0)
	for _, c := range conds {
		id, upper, ok := o.upperBound(c)
		kind := kinds[id]
		if !ok || kind == "" || upper < 1 || upper > maxRankLimit {
			continue
		}
		if by == "" || kind == plan.RankNumber && by != plan.RankNumber || kind == by && upper < limit {
			by, limit = kind, upper
		}
	}
	if by == "" {
		return n
	}
	o.fire(o.cur)
	top := &node{
		op: opTopN, in: over.in, group: over.partition, order: over.order, over: over.over, limit: intConst(types.Int8, limit),
		withTies: by == plan.RankRank, dense: by == plan.RankDense,
	}
	var rest []*expr.Expr
	for _, c := range conds {
		if id, upper, ok := o.upperBound(c); ok && kinds[id] == by && upper >= limit && (limit == 1 || !o.equality(c)) {
			continue // the Top-N leaves no others
		}
		rest = append(rest, c)
	}
	if limit > 1 {
		return filterNode(top, and(rest...))
	}
	// The first rows have rank 1, and a single row has all ranks 1.
	p := &node{op: opProject, in: []*node{top}}
	ones := map[int]*expr.Expr{}
	top.over = nil
	for _, c := range over.over {
		if by == plan.RankNumber || kinds[c.id] != plan.RankNumber {
			ones[c.id] = intConst(types.Int8, 1)
		} else {
			top.over = append(top.over, c)
		}
	}
	for _, c := range over.out() {
		e := ones[c]
		if e == nil {
			e = o.md.ref(c)
		}
		p.cols, p.exprs = append(p.cols, c), append(p.exprs, e)
	}
	return filterNode(p, and(rest...))
}

// upperBound reports whether e is true only for values of a column up to a constant integer, and which.
func (o *optimizer) upperBound(e *expr.Expr) (col int, most int64, ok bool) {
	op := o.comparison(e)
	if op == "" {
		return 0, 0, false
	}
	c, k := e.Args[0], e.Args[1]
	if c.Kind == expr.Const {
		c, k, op = k, c, turnedComparison[op]
	}
	if c.Kind != expr.Column || k.Kind != expr.Const || k.Const.Null || k.Type.Kind() != types.KindInt {
		return 0, 0, false
	}
	switch most = k.Const.Int; op {
	case "<":
		return c.Col, most - 1, true
	case "<=", "=":
		return c.Col, most, true
	}
	return 0, 0, false
}
