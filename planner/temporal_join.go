package planner

import (
	"slices"
	"strings"

	"github.com/streamdb/streamdb/internal/pgerr"
	"github.com/streamdb/streamdb/planner/plan"
	"github.com/streamdb/streamdb/sql/expr"
	"github.com/streamdb/streamdb/sql/pgext"
	"github.com/streamdb/streamdb/types"
)

// temporal returns the right side of a join that is one as of the time of processing, nil of others.
func (b *binder) temporal(j *pgext.Join, ev *env) (*pgext.Relation, error) {
	r, ok := j.Right.(*pgext.Relation)
	if !ok || r.SystemTime == nil {
		return nil, nil
	}
	pos := b.pos(r.SystemTime.OriginTextPosition())
	if c, ok := pgext.ExprOf(r.SystemTime).(*pgext.Call); !ok || !strings.EqualFold(c.Name, "proctime") || len(c.Args) > 0 {
		return nil, pgerr.Newf(pgerr.FeatureNotSupported, "FOR SYSTEM_TIME AS OF takes PROCTIME() only").
			WithHint("A join reads a relation as it is when rows are processed; other versions are not kept.").At(pos)
	}
	if j.Asof || j.Kind == pgext.RightJoin || j.Kind == pgext.FullJoin || j.Kind == pgext.CrossJoin {
		return nil, pgerr.Newf(pgerr.FeatureNotSupported, "FOR SYSTEM_TIME AS OF PROCTIME() is supported in JOIN and LEFT JOIN only").
			WithHint("The rows of the other side decide when the relation is read.").At(pos)
	}
	plain := *r
	plain.SystemTime = nil
	if r.Sample == nil && (r.Schema != "" || ev.lookup(r.Name) == nil) {
		rel, ok := b.lookup(r.Schema, r.Name)
		if !ok || rel.Kind == Table || rel.Kind == MaterializedView || rel.Kind == Index {
			return &plain, nil // what else is wrong is told where it is read
		}
	}
	return nil, pgerr.Newf(pgerr.WrongObjectType, "FOR SYSTEM_TIME AS OF PROCTIME() needs a table or a materialized view, and \"%s\" is none", r.Name).
		WithHint("Make a materialized view of it, which has versions that can be read.").At(b.pos(r.Pos))
}

// temporalJoin checks the condition of a temporal join. A query sees one instant of both sides: there it is a join as others.
func (b *binder) temporalJoin(n *node, at *pgext.Relation) error {
	pos := b.pos(at.SystemTime.OriginTextPosition())
	for n.op == opProject { // of USING
		n = n.in[0]
	}
	var scan *node
	if n.op == opApply {
		for scan = n.in[1]; scan.op == opProject; { // with what tells that a row is there
			scan = scan.in[0]
		}
	}
	if scan == nil || scan.op != opScan {
		return pgerr.Newf(pgerr.FeatureNotSupported, "cannot use subquery in the condition of a join with FOR SYSTEM_TIME AS OF PROCTIME()").At(pos)
	}
	ph := &physical{b: b, o: newOptimizer(b), md: b.md}
	l, r := toSet(n.in[0].out()), toSet(n.in[1].out())
	equal := false
	for _, c := range conjuncts(n.cond) {
		_, ok := ph.joinKey(c, l, r)
		equal = equal || ok
	}
	if !equal {
		return pgerr.Newf(pgerr.FeatureNotSupported, "a join with FOR SYSTEM_TIME AS OF PROCTIME() needs an equality between its sides").
			WithHint("Write for example ON s.key = d.key; with the primary key of the relation nothing of it is kept.").At(pos)
	}
	if b.volatileExpr(n.cond) {
		return pgerr.Newf(pgerr.FeatureNotSupported, "volatile functions are not supported in the condition of a join with FOR SYSTEM_TIME AS OF PROCTIME()").At(pos)
	}
	if b.stream {
		n.op, n.pos = opTemporal, pos
	}
	return nil
}

// temporalJoin builds a join with what a relation holds in the epoch of the left row: looked up by its key or an index, where that is joined on, or kept.
func (ph *physical) temporalJoin(n *node, want, need map[int]bool) *phys {
	if ph.sub != nil { // rows of the working table are computed again and again, and have no epoch in which they came
		ph.b.fail(pgerr.Newf(pgerr.FeatureNotSupported, "a recursive query in a materialized view cannot join its own rows with FOR SYSTEM_TIME AS OF PROCTIME()").At(n.pos))
	}
	lset, rset := toSet(n.in[0].out()), toSet(n.in[1].out())
	var keys []joinKey
	var equal, rest []*expr.Expr
	for _, c := range conjuncts(n.cond) {
		if k, ok := ph.joinKey(c, lset, rset); ok {
			keys, equal = append(keys, k), append(equal, c)
		} else {
			rest = append(rest, c)
		}
	}
	l, r := ph.build(n.in[0], need), ph.build(n.in[1], need)
	j := &plan.TemporalJoin{Type: n.jtype}
	point, by := ph.lookupOf(n.in[1], keys, rest)
	if point != nil {
		var others []int
		keys, point, others = pointKeys(keys, point)
		for _, i := range others {
			rest = append(rest, equal[i])
		}
	}
	var lk, rk []int
	l, lk = ph.keyColumns(l, keys, func(k joinKey) *expr.Expr { return k.l })
	if point != nil {
		switch {
		case l.app || !ph.cut || l.dist != distAny:
		case len(l.key) == 0:
			l = ph.require(l, distSingle, nil, union(need, lk))
		default:
			l = ph.hashExactly(l, l.key, union(need, lk))
		}
		if !l.app {
			l = ph.expire(l, nil, l.key)
		}
		for _, k := range point {
			j.Point = append(j.Point, l.at(lk[k]))
		}
		j.Spread = l.positions(l.cols)
		r.n.Scan.Probed, r.n.Scan.Lookup = true, by
		for _, k := range keys {
			rk = append(rk, ph.widened(k.r).Col) // what joinKey converted has the same key
		}
	} else {
		r, rk = ph.keyColumns(r, keys, func(k joinKey) *expr.Expr { return k.r })
		scan := r.n
		for len(scan.Inputs) == 1 {
			scan = scan.Inputs[0]
		}
		scan.Scan.Leading = true
		if !arrange(l, lk, rk, keys) {
			arrange(r, rk, lk, keys)
		}
		l, r = ph.coPartition(l, r, lk, rk, union(need, lk, rk))
		if !l.app {
			l = ph.expire(l, nil, lk)
		}
		j.Spread = l.positions(lk)
	}
	all := appendAll(l.ids, r.ids)
	// A right row may have met several left rows, one after the other, even where it gives the whole key of the left side: what it was stays with them.
	key := l.key
	if !ph.fixes(r.key, rk, keys, func(k joinKey) *expr.Expr { return k.r }) {
		key = appendAll(l.key, r.key)
	}
	out, pos := joinOutput(all, want, toSet(key))
	p := ph.node(plan.KindTemporalJoin, out, key, l, r)
	j.LeftKeys, j.RightKeys, j.NullSafe, j.Output = l.positions(lk), r.positions(rk), nullSafe(keys), pos
	if cond := and(rest...); cond != nil {
		j.Residual = ph.exprOver(cheapFirst(cond), all)
	}
	p.n.TemporalJoin = j
	for _, id := range out {
		p.nn[id] = l.nn[id] || r.nn[id] && n.jtype == plan.Inner
		p.wm[id] = l.wm[id]
	}
	p.app, p.ttl = l.app, l.ttl
	p.spreadAs(l)
	return ph.seal(p)
}

// pointOf returns, for each column of the key of the relation that n scans, the right side of a join, which of the equalities gives its value; nil when not all
// have one, or n is not just a relation.
func (ph *physical) pointOf(n *node, keys []joinKey) []int {
	if n.op != opScan || len(n.rel.Key) == 0 || n.rel.Kind != Table && n.rel.Kind != MaterializedView {
		return nil
	}
	var point []int
	for _, c := range n.rel.Key {
		at := ph.given(n, c, keys)
		if at < 0 {
			return nil
		}
		point = append(point, at)
	}
	return point
}

// given returns which of the equalities gives the value of a stored column of the relation that n scans, -1 for none.
func (ph *physical) given(n *node, c int, keys []joinKey) int {
	i := slices.Index(n.stored, c)
	return slices.IndexFunc(keys, func(k joinKey) bool {
		e := ph.widened(k.r)
		same := e.Type.OID == k.l.Type.OID || e.Type.Kind() == types.KindInt && k.l.Type.Kind() == types.KindInt || textual(e.Type.OID) && textual(k.l.Type.OID)
		return !k.nullSafe && same && i >= 0 && e.Kind == expr.Column && e.Col == n.cols[i]
	})
}

// pointKeys returns the equalities that give a point, the point in terms of these, and the other equalities by their numbers.
func pointKeys(keys []joinKey, point []int) (of []joinKey, at, others []int) {
	number := map[int]int{}
	for i, k := range keys {
		if slices.Contains(point, i) {
			number[i] = len(of)
			of = append(of, k)
		} else {
			others = append(others, i)
		}
	}
	for _, k := range point {
		at = append(at, number[k])
	}
	return of, at, others
}
