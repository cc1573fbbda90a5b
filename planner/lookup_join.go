package planner

import (
	"slices"

	"github.com/streamdb/streamdb/planner/plan"
	"github.com/streamdb/streamdb/sql/expr"
)

// lookupJoin builds an inner join of a job that reads one side, a relation of many rows, by its key or an index instead of keeping its rows; nil where it cannot
// or should not. Conditions on that side alone are tested with the join's.
func (ph *physical) lookupJoin(n *node, keys []joinKey, rest []*expr.Expr, want, need map[int]bool) *phys {
	if !ph.b.stream || n.jtype != plan.Inner || ph.b.o.EmitOnClose || ph.b.o.StateTTL > 0 || ph.sub != nil || ph.b.o.LookupJoinRows == 0 || ph.o.off(ruleLookupJoins) {
		return nil
	}
	side, rows := -1, int64(0)
	var at []int
	var by *plan.LookupIndex
	for i, in := range n.in {
		s := scanUnder(in)
		if s == nil || s.rel.Rows+1 < ph.b.o.LookupJoinRows {
			continue
		}
		conds := rest
		if s != in {
			conds = slices.Concat(rest, conjuncts(in.cond))
		}
		// What has one row at most goes first.
		if p, x := ph.lookupOf(s, turned(keys, i), conds); p != nil && (side < 0 || by != nil && x == nil || (by == nil) == (x == nil) && s.rel.Rows > rows) {
			side, rows, at, by = i, s.rel.Rows, p, x
		}
	}
	if side < 0 {
		return nil
	}
	scan := scanUnder(n.in[side])
	of, point, others := pointKeys(turned(keys, side), at)
	for _, i := range others {
		if keys[i].nullSafe {
			return nil
		}
		rest = append(rest, ph.b.mustOp("=", keys[i].l, keys[i].r))
	}
	ph.o.fire(ruleLookupJoins)
	if scan != n.in[side] {
		rest = append(rest, conjuncts(n.in[side].cond)...)
	}
	need = copySet(need)
	for _, c := range rest {
		c.Columns(need)
	}
	var sides [2]*phys
	for i, in := range n.in {
		if i == side {
			in = scan
		}
		sides[i] = ph.build(in, need)
	}
	below := n.placed.built(sides[0], sides[1])
	own := ph.innerKey(sides[0].key, sides[1].key, nil, nil, keys)
	l, r := sides[1-side], sides[side]
	stored := map[int]int{}
	for i, id := range r.ids {
		stored[id] = r.n.Scan.Columns[i]
	}
	r.n.Scan.ChangesOnly, r.n.Scan.Lookup = true, by
	var lk, rk []int
	l, lk = ph.keyColumns(l, of, func(k joinKey) *expr.Expr { return k.l })
	for _, k := range of {
		rk = append(rk, ph.widened(k.r).Col) // what joinKey converted has the same key
	}
	j := &plan.LookupJoin{Relation: scan.rel.ID, Lookup: by}
	for i, k := range point {
		point[i] = lk[k]
	}
	if !arrange(l, lk, rk, of) {
		arrange(r, rk, lk, of)
	}
	l, r = ph.coPartition(l, r, lk, rk, union(need, lk, rk, below))
	all := appendAll(l.ids, r.ids)
	key, keep := ph.placedKey(n, own)
	out, pos := joinOutput(all, want, keep)
	p := ph.node(plan.KindLookupJoin, out, key, l, r)
	j.Output, j.LeftKeys, j.RightKeys, j.Point = pos, l.positions(lk), r.positions(rk), l.positions(point)
	for _, id := range r.ids {
		j.Columns = append(j.Columns, stored[id])
	}
	if cond := and(rest...); cond != nil {
		j.Residual = ph.exprOver(cheapFirst(cond), all)
	}
	p.n.LookupJoin = j
	for _, id := range out {
		p.nn[id] = l.nn[id] || r.nn[id]
	}
	for i := range lk {
		if l.wm[lk[i]] && r.wm[rk[i]] {
			p.wm[lk[i]], p.wm[rk[i]] = true, true
		}
	}
	p.app = l.app && r.app
	if l.dist != distSingle || r.dist == distSingle || !ph.cut {
		p.spreadAs(l)
	}
	return ph.seal(p)
}

// lookupOf returns what pointOf does, or what it would of the longest beginning of an index or of the primary key of a table, and that index.
func (ph *physical) lookupOf(n *node, keys []joinKey, conds []*expr.Expr) ([]int, *plan.LookupIndex) {
	if point := ph.pointOf(n, keys); point != nil {
		return point, nil
	}
	if n.op != opScan || n.rel.Kind != Table || !n.rel.Ordered {
		return nil, nil
	}
	ids := ph.storedIDs(n)
	var best []int
	var by *plan.LookupIndex
	for _, x := range ph.indexesOf(n.rel) {
		if ok, err := ph.b.implied(x, n.rel, ids, conds); err != nil || !ok {
			continue
		}
		l := &plan.LookupIndex{Index: x.ID, Name: x.Name}
		var at []int
		for _, k := range x.Keys {
			i := -1
			if k.Column >= 0 {
				i = ph.given(n, k.Column, keys)
			}
			if i < 0 {
				break
			}
			at, l.Columns, l.Order = append(at, i), append(l.Columns, k.Column), append(l.Order, plan.KeyOrder{Desc: k.Desc, NullsFirst: k.NullsFirst})
		}
		if len(at) > len(best) {
			best, by = at, l
		}
	}
	return best, by
}

// scanUnder returns the scan that n is, perhaps under a filter that does not depend on the clock; nil when it is another operator.
func scanUnder(n *node) *node {
	if n.op == opFilter {
		if timed, _ := splitTimed(n.cond); len(timed) > 0 {
			return nil
		}
		n = n.in[0]
	}
	if n.op != opScan {
		return nil
	}
	return n
}

// turned are the keys of a join as if side were the right one.
func turned(keys []joinKey, side int) []joinKey {
	if side == 1 {
		return keys
	}
	out := make([]joinKey, len(keys))
	for i, k := range keys {
		out[i] = joinKey{l: k.r, r: k.l, nullSafe: k.nullSafe}
	}
	return out
}
