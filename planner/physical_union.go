package planner

import (
	"github.com/streamdb/streamdb/planner/plan"
	"github.com/streamdb/streamdb/sql/expr"
	"github.com/streamdb/streamdb/types"
)

// union brings all branches to one layout: output columns, key columns (one place per branch's key column, shared where types
// agree, NULL where a branch has none) and the number of the branch.
func (ph *physical) union(n *node) *phys {
	var ins []*phys
	var slots []types.Type
	single, par := true, false
	for k, in := range n.in {
		p := ph.build(in, toSet(n.branches[k]))
		ins = append(ins, p)
		single = single && p.dist == distSingle
		par = par || p.dist != distSingle
	}
	places := make([][]int, len(ins))
	for k, p := range ins {
		taken := make([]bool, len(slots))
		for _, id := range p.key {
			t := types.T(ph.md.typ(id).OID)
			place := -1
			for i := range taken {
				if !taken[i] && slots[i] == t {
					place = i
					break
				}
			}
			if place < 0 {
				slots, taken = append(slots, t), append(taken, false)
				place = len(slots) - 1
			}
			taken[place] = true
			places[k] = append(places[k], place)
		}
	}
	ids := append([]int(nil), n.cols...)
	var key []int
	for _, t := range slots {
		key = append(key, ph.md.add("?key?", t))
	}
	branch := ph.md.add("?branch?", types.Int4)
	key = append(key, branch)
	ids = append(ids, key...)
	for k, p := range ins {
		if ph.cut && par && p.dist == distSingle {
			p = ph.exchange(p, plan.DistHash, p.key)
		}
		ins[k] = ph.branch(p, n, k, slots, places[k], ids)
	}
	u := ph.node(plan.KindUnion, ids, key, ins...)
	u.app = true
	for _, in := range ins {
		u.app = u.app && in.app
	}
	for i, id := range ids {
		nn, wm := true, true
		for _, in := range ins {
			nn = nn && in.nn[in.ids[i]]
			wm = wm && in.wm[in.ids[i]]
		}
		u.nn[id], u.wm[id] = nn, wm
	}
	if single {
		u.dist = distSingle
	}
	return ph.seal(u)
}

// branch projects a union's input to the common layout.
func (ph *physical) branch(p *phys, n *node, k int, slots []types.Type, places, ids []int) *phys {
	var exprs []*expr.Expr
	made := make([]int, len(ids))
	for i := range ids {
		made[i] = ph.md.copy(ids[i])
	}
	for i := range n.cols {
		exprs = append(exprs, ph.md.ref(n.branches[k][i]))
	}
	slot := make([]*expr.Expr, len(slots))
	for i, t := range slots {
		slot[i] = nullConst(t)
	}
	var key []int
	for i, id := range p.key {
		slot[places[i]] = ph.md.ref(id)
		key = append(key, made[len(n.cols)+places[i]])
	}
	exprs = append(append(exprs, slot...), intConst(types.Int4, int64(k)))
	q := ph.node(plan.KindProject, made, append(key, made[len(made)-1]), p)
	pr := &plan.Project{}
	for i, e := range exprs {
		pr.Exprs = append(pr.Exprs, ph.expr(e, p))
		switch e.Kind {
		case expr.Column:
			q.nn[made[i]], q.wm[made[i]] = p.nn[e.Col], p.wm[e.Col]
		case expr.Const:
			q.nn[made[i]] = !e.Const.Null
		}
	}
	if p.n.Kind == plan.KindProject && cheap(p.n.Project.Exprs) {
		for i, e := range pr.Exprs {
			if e.Kind == expr.Column {
				pr.Exprs[i] = p.n.Project.Exprs[e.Col]
			}
		}
		q.n.Inputs = p.n.Inputs
	}
	q.n.Project = pr
	q.app, q.dist = p.app, distAny
	if p.dist == distSingle {
		q.dist = distSingle
	}
	return ph.seal(q)
}

// cheap reports whether evaluating the expressions more than once costs next to nothing.
func cheap(es []*expr.Expr) bool {
	for _, e := range es {
		for e.Kind == expr.Call && len(e.Args) == 1 && e.Func == expr.Retype {
			e = e.Args[0]
		}
		if e.Kind != expr.Column && e.Kind != expr.Const {
			return false
		}
	}
	return true
}
