package planner

import (
	"encoding/json"
	"slices"

	"github.com/streamdb/streamdb/planner/plan"
	"github.com/streamdb/streamdb/sql/expr"
)

// require makes sure that rows are where an operator needs them: all in one subtask, or equal values of cols together.
// need are the columns the operator uses, nil for all: others do not travel.
func (ph *physical) require(p *phys, kind distKind, cols []int, need map[int]bool) *phys {
	if !ph.cut || p.dist == distSingle {
		return p
	}
	if kind == distSingle {
		return ph.exchange(ph.slim(p, need), plan.DistSingle, nil)
	}
	// Equal columns in equal order only: state is addressed by the key group of the operator's own key, and key groups are what moves when
	// the parallelism changes, so rows must be spread by exactly that key.
	if p.dist == distHash && slices.Equal(p.cols, cols) {
		return p
	}
	return ph.exchange(ph.slim(p, need), plan.DistHash, cols)
}

// close ends the fragment under p and returns its number. A fragment that computes the same as an earlier one is not made again:
// both readers get the earlier one's rows.
func (ph *physical) close(p *phys) int {
	f := &plan.Fragment{Root: p.n}
	if p.dist == distSingle {
		f.Parallelism = 1
	}
	if ph.cut && !ph.o.off(ruleShareFragments) {
		form, err := json.Marshal(f)
		if err != nil {
			ph.b.fail(err)
		}
		if id, ok := ph.forms[string(form)]; ok {
			ph.o.fire(ruleShareFragments)
			return id
		}
		if ph.forms == nil {
			ph.forms = map[string]int{}
		}
		ph.forms[string(form)] = len(ph.frags)
	}
	f.ID = len(ph.frags)
	ph.frags = append(ph.frags, f)
	return f.ID
}

// exchange cuts the plan: p becomes a fragment of its own, read through an exchange.
func (ph *physical) exchange(p *phys, dist plan.Distribution, cols []int) *phys {
	if dist == plan.DistHash && len(cols) == 0 {
		dist = plan.DistSingle
	}
	q := ph.node(plan.KindExchange, p.ids, p.key)
	q.nn, q.wm, q.app, q.ttl, q.sums = copySet(p.nn), copySet(p.wm), p.app, p.ttl, p.sums
	q.n.Exchange = &plan.Exchange{From: ph.close(p), Dist: dist}
	q.dist = distSingle
	if dist == plan.DistForward || dist == plan.DistBroadcast {
		q.dist = distAny
	}
	if dist == plan.DistHash {
		q.dist, q.cols = distHash, append([]int(nil), cols...)
		q.n.Exchange.Columns = p.positions(cols)
	}
	return ph.seal(q)
}

// number gives every operator its id, in one fixed order.
func number(frags []*plan.Fragment) uint32 {
	next := uint32(1)
	for _, f := range frags {
		f.Root.Walk(func(n *plan.Node) {
			n.ID = next
			next++
		})
	}
	return next
}

// slim drops the columns that nobody behind an exchange needs.
func (ph *physical) slim(p *phys, need map[int]bool) *phys {
	if need == nil {
		return p
	}
	var ids []int
	var exprs []*expr.Expr
	key := toSet(p.key)
	for _, c := range p.ids {
		if need[c] || key[c] {
			ids, exprs = append(ids, c), append(exprs, ph.md.ref(c))
		}
	}
	if len(ids) == len(p.ids) {
		return p
	}
	return ph.project(p, ids, exprs)
}
