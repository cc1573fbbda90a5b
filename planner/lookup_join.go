package planner

import (
	"slices"

	"github.com/streamdb/streamdb/planner/plan"
	"github.com/streamdb/streamdb/sql/expr"
)

// lookupJoin builds a join of a job that reads one side, a relation of many rows, by its key or an index instead of keeping its rows; nil where it cannot
// or should not. Of joins that are not inner it is the side whose rows are not kept without a partner. Conditions on that side alone are tested with the join's.
func (ph *physical) lookupJoin(n *node, keys []joinKey, rest []*expr.Expr, want, need map[int]bool) *phys {
	if !ph.b.stream || n.jtype == plan.Full || ph.b.o.EmitOnClose || ph.b.o.StateTTL > 0 || ph.sub != nil || ph.b.o.LookupJoinRows == 0 || ph.o.off(ruleLookupJoins) {
		return nil
	}
	side, rows := -1, int64(0)
	var at []int
	var by *plan.LookupIndex
	used := copySet(need)
	for _, c := range conjuncts(n.cond) {
		c.Columns(used)
	}
	var ins [2]*node
	for i := range n.in {
		in := bare(n.in[i], used)
		ins[i] = in
		s := scanUnder(in)
		if only := lookedUp[n.jtype]; only >= 0 && i != only || s == nil || s.rel.Rows+1 < ph.b.o.LookupJoinRows {
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
	scan := scanUnder(ins[side])
	of, point, others := pointKeys(turned(keys, side), at)
	for _, i := range others {
		if keys[i].nullSafe {
			return nil
		}
		rest = append(rest, ph.b.mustOp("=", keys[i].l, keys[i].r))
	}
	ph.o.fire(ruleLookupJoins)
	if scan != ins[side] {
		rest = append(rest, conjuncts(ins[side].cond)...)
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
	own := ph.joinedKey(n.jtype, sides[0], sides[1], nil, nil, keys)
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
	visible := all
	if n.jtype == plan.Semi || n.jtype == plan.Anti {
		visible = l.ids
	}
	key, keep := ph.placedKey(n, own)
	out, pos := joinOutput(visible, want, keep)
	p := ph.node(plan.KindLookupJoin, out, key, l, r)
	if j.Type = n.jtype; j.Type == plan.Right {
		j.Type = plan.Left
	}
	j.Output, j.LeftKeys, j.RightKeys, j.Point = pos, l.positions(lk), r.positions(rk), l.positions(point)
	for _, id := range r.ids {
		j.Columns = append(j.Columns, stored[id])
	}
	if cond := and(rest...); cond != nil {
		j.Residual = ph.exprOver(cheapFirst(cond), all)
	}
	p.n.LookupJoin = j
	for _, id := range out {
		p.nn[id] = l.nn[id] || r.nn[id] && j.Type == plan.Inner
	}
	for i := range lk {
		if l.wm[lk[i]] && r.wm[rk[i]] && j.Type == plan.Inner {
			p.wm[lk[i]], p.wm[rk[i]] = true, true
		}
	}
	p.app = l.app && r.app && (j.Type == plan.Inner || j.Type == plan.Semi)
	if l.dist != distSingle || r.dist == distSingle || !ph.cut {
		p.spreadAs(l)
	}
	return ph.seal(p)
}

// lookedUp is the side of a join that can be looked up, -1: either.
var lookedUp = map[plan.JoinType]int{plan.Inner: -1, plan.Left: 1, plan.Right: 0, plan.Semi: 1, plan.Anti: 1}

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

// bare returns what is under projections that compute none of the columns that are used.
func bare(n *node, used map[int]bool) *node {
	for n.op == opProject {
		for i, e := range n.exprs {
			if id := n.cols[i]; used[id] && (e.Kind != expr.Column || e.Col != id) {
				return n
			}
		}
		n = n.in[0]
	}
	return n
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
