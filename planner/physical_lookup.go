package planner

import (
	"github.com/streamdb/streamdb/planner/plan"
	"github.com/streamdb/streamdb/sql/expr"
	"github.com/streamdb/streamdb/types"
)

// lookups finds the sides of a join that can be read by the keys of the other side. Which one is, if any, is decided when the rows are there.
func (ph *physical) lookups(n *node, j *plan.Join, keys []joinKey, sides [2]*phys) {
	if ph.b.stream || len(keys) == 0 || ph.o.off(ruleIndexJoins) || ph.o.off(ruleIndexScans) {
		return
	}
	for side := range 2 {
		var narrow bool // rows of the side that match nothing do not count
		switch n.jtype {
		case plan.Inner, plan.Semi:
			narrow = true
		case plan.Left, plan.Anti:
			narrow = side == 1
		case plan.Right:
			narrow = side == 0
		}
		if !narrow {
			continue
		}
		mine := make([]*expr.Expr, len(keys))
		for i, k := range keys {
			if !k.nullSafe {
				mine[i] = [2]*expr.Expr{k.l, k.r}[side]
			}
		}
		if l := ph.lookup(n.in[side], sides[side].n, mine); l != nil {
			l.Side = side
			j.Lookups = append(j.Lookups, *l)
			ph.o.fire(ruleIndexJoins)
		}
	}
}

// lookup follows the keys of a join down one side to a scan, and chooses an index of it that begins with some of them. keys are expressions over
// the columns of n; nil ones are of no use.
func (ph *physical) lookup(n *node, p *plan.Node, keys []*expr.Expr) *plan.Lookup {
	var conds []*expr.Expr // of filters, over the columns of n
	for n.op != opScan {
		switch n.op {
		case opFilter:
			conds = append(conds, conjuncts(n.cond)...)
		case opProject:
			m := map[int]*expr.Expr{}
			for i, c := range n.cols {
				m[c] = n.exprs[i]
			}
			for i, k := range keys {
				if k != nil {
					keys[i] = substitute(k, m)
				}
			}
			for i, c := range conds {
				conds[i] = substitute(c, m)
			}
		case opAgg, opTopN, opOver:
			// Groups are whole or not there.
			group := toSet(n.group)
			if n.op == opOver {
				group = toSet(n.partition)
			}
			for i, k := range keys {
				if k == nil {
					continue
				}
				if some, all := refs(k, group); !some || !all {
					keys[i] = nil
				}
			}
			conds = nil
		default:
			return nil
		}
		n = n.in[0]
	}
	for len(p.Inputs) == 1 {
		p = p.Inputs[0]
	}
	rel := n.rel
	if p.Kind != plan.KindScan || p.Scan.Relation != rel.ID || p.Scan.Point != nil || p.Scan.Index != nil && len(p.Scan.Index.Equal) > 0 ||
		!(rel.Kind == Table && rel.Ordered || rel.Kind == MaterializedView) {
		return nil
	}
	ids := ph.storedIDs(n)
	var best *plan.IndexScan
	var of []int
	for _, x := range ph.indexesOf(rel) {
		on, err := ph.b.indexKeys(x, rel, ids)
		if err != nil {
			ph.b.fail(err)
			return nil
		}
		if ok, err := ph.b.implied(x, rel, ids, conds); err != nil || !ok {
			continue
		}
		var at []int
		for _, k := range on {
			i := ph.keyGiven(k, keys)
			if i < 0 {
				break
			}
			at = append(at, i)
		}
		if len(at) > len(of) || len(at) > 0 && len(at) == len(of) && x.Unique && len(at) == len(on) && !best.Unique {
			best, of = ph.pathOn(x, on, ids), at
		}
	}
	if best == nil {
		return nil
	}
	if rel.Kind == MaterializedView {
		ph.useIndexOfView(best)
	}
	p.Scan.Probe = best
	return &plan.Lookup{Keys: of}
}

// keyGiven returns which of the keys of a join gives values of an index's key, -1 for none.
func (ph *physical) keyGiven(key *expr.Expr, keys []*expr.Expr) int {
	for i, k := range keys {
		if k == nil || k.Type.OID != key.Type.OID && !(k.Type.Kind() == types.KindInt && key.Type.Kind() == types.KindInt) && !(textual(k.Type.OID) && textual(key.Type.OID)) {
			continue
		}
		if sameExpr(ph.widened(key), ph.widened(k)) {
			return i
		}
	}
	return -1
}
