package planner

import (
	"github.com/streamdb/streamdb/internal/pgerr"
	"github.com/streamdb/streamdb/planner/plan"
	"github.com/streamdb/streamdb/sql/expr"
	"github.com/streamdb/streamdb/types"
)

// subPlan is a recomputed sub-plan under construction: what does not depend on the working tables becomes an input, which the job keeps up to
// date like anything else.
type subPlan struct {
	ph     *physical
	cut    bool
	works  map[int]bool
	linear bool
	row    int // number of a row of the working table
	inputs []*phys
}

// input makes n an input of the sub-plan and returns the leaf that stands for it.
func (s *subPlan) input(n *node, want map[int]bool) *phys {
	ph := s.ph
	was, cut := ph.sub, ph.cut
	ph.sub, ph.cut = nil, s.cut
	p := ph.expire(ph.require(ph.build(n, want), distSingle, nil, want), nil, nil)
	ph.sub, ph.cut = was, cut
	leaf := ph.node(plan.KindInput, p.ids, p.key)
	leaf.nn, leaf.dist, leaf.app = copySet(p.nn), distSingle, true
	leaf.n.Input = len(s.inputs)
	s.inputs = append(s.inputs, p)
	return ph.seal(leaf)
}

func (s *subPlan) dependent(n *node) bool {
	found := false
	n.walk(func(x *node) { found = found || x.op == opWork && s.works[x.work] })
	return found
}

// linearIn reports whether what n yields for two sets of rows of the working table is what it yields for each.
func (s *subPlan) linearIn(n *node) bool {
	switch n.op {
	case opWork:
		return true
	case opFilter, opProject, opUnnest:
		return s.linearIn(n.in[0])
	case opUnion:
		for _, in := range n.in {
			if !s.dependent(in) || !s.linearIn(in) {
				return false
			}
		}
		return true
	case opJoin:
		l, r := s.dependent(n.in[0]), s.dependent(n.in[1])
		switch n.jtype {
		case plan.Inner:
			return l != r && (l && s.linearIn(n.in[0]) || r && s.linearIn(n.in[1]))
		case plan.Left, plan.Semi, plan.Anti:
			return l && !r && s.linearIn(n.in[0])
		case plan.Right:
			return r && !l && s.linearIn(n.in[1])
		}
	}
	return false
}

// recurse plans a recursive query: a recompute operator, whose sub-plan iterates.
func (ph *physical) recurse(n *node) *phys {
	if ph.sub != nil {
		ph.b.fail(pgerr.Newf(pgerr.FeatureNotSupported, "recursive query \"%s\" inside the recursive term of another one cannot refer to that", n.name))
	}
	s := &subPlan{ph: ph, cut: ph.cut, works: map[int]bool{n.work: true}}
	s.linear = s.linearIn(n.in[1])
	live := ph.b.stream && s.linear && !ph.o.off(ruleLiveRecursion)
	for _, in := range n.in {
		in.walk(func(x *node) {
			x.eachExpr(func(e *expr.Expr) *expr.Expr {
				live = live && !ph.b.volatileExpr(e)
				return e
			})
		})
	}
	if !s.linear {
		n.in[1].walk(func(x *node) {
			x.eachExpr(func(e *expr.Expr) *expr.Expr {
				if ph.b.volatileExpr(e) {
					ph.b.fail(pgerr.Newf(pgerr.FeatureNotSupported, "volatile functions are not supported in a recursive term with DISTINCT, window functions or more than one use of the query").At(e.Pos))
				}
				return e
			})
		})
	}
	base := ph.inOrder(s.input(n.in[0], toSet(n.branches[0])), n.branches[0])
	ph.sub, ph.cut = s, false
	step := ph.inOrder(ph.build(n.in[1], toSet(n.branches[1])), n.branches[1])
	ph.sub, ph.cut = nil, s.cut
	ids := append([]int(nil), n.cols...)
	if n.all {
		ids = append(ids, ph.md.add("?row?", types.Int8))
	}
	sub := ph.seal(ph.node(plan.KindRecurse, ids, ids))
	sub.n.Recurse = &plan.Recurse{
		Name: n.name, Base: base.n, Step: step.n, Width: len(n.cols), All: n.all, Keep: ph.b.stream, Linear: s.linear,
		MaxIterations: ph.b.o.MaxRecursionIterations, MaxBytes: ph.b.o.MaxRecursionBytes,
	}
	live = live && identicalEquals(sub.n.Schema) // of rows that are equal and look different an evaluation knows which are there, and numbers them
	if live && !n.all {
		at := step.at(s.row)
		sub.n.Recurse.Source, live = &at, at >= 0
	}
	if sub.n.Recurse.Live = live; live {
		ph.o.fire(ruleLiveRecursion)
	} else {
		sub.n.Recurse.Source = nil
	}
	if sub.n.Recurse.MaxIterations == 0 {
		sub.n.Recurse.MaxIterations = DefaultMaxRecursionIterations
	}
	if sub.n.Recurse.MaxBytes == 0 {
		sub.n.Recurse.MaxBytes = DefaultMaxRecursionBytes
	}
	p := ph.node(plan.KindRecompute, ids, ids, s.inputs...)
	p.n.Recompute = &plan.Recompute{Sub: sub.n, Reason: "WITH RECURSIVE", Numbered: n.all}
	p.dist, p.app = distSingle, !ph.b.stream
	return ph.seal(p)
}

// identicalEquals reports whether equal values of the columns look the same.
func identicalEquals(s types.Schema) bool {
	for _, c := range s {
		t := c.Type
		if e, ok := t.Elem(); ok {
			t = e
		}
		switch t.Kind() {
		case types.KindInt, types.KindBool:
		case types.KindString:
			if t.OID == types.OIDBpchar || t.OID == types.OIDJSONB {
				return false
			}
		default:
			return false
		}
	}
	return true
}

// inOrder makes the columns ids the first ones of p, in that order.
func (ph *physical) inOrder(p *phys, ids []int) *phys {
	fresh := make([]int, len(ids))
	exprs := make([]*expr.Expr, len(ids))
	for i, id := range ids {
		fresh[i], exprs[i] = ph.md.copy(id), ph.md.ref(id)
	}
	return ph.project(p, fresh, exprs)
}

// working is the leaf that emits the rows of the last iteration.
func (ph *physical) working(n *node) *phys {
	row := ph.md.add("?row?", types.Int8)
	if ph.sub.row == 0 {
		ph.sub.row = row
	} else {
		ph.sub.row = -1 // there are two
	}
	p := ph.node(plan.KindWork, append(append([]int(nil), n.cols...), row), []int{row})
	p.nn[row] = true
	p.dist, p.app = distSingle, ph.sub.linear
	return ph.seal(p)
}

// firstRows reports whether a limit may take its rows from n as they come: those of a recursive query may have no end.
func firstRows(n *node) bool {
	for {
		switch n.op {
		case opRecurse:
			return true
		case opFilter, opProject, opUnnest:
			n = n.in[0]
		default:
			return false
		}
	}
}
