package planner

import (
	"github.com/streamdb/streamdb/planner/plan"
	"github.com/streamdb/streamdb/sql/expr"
)

// emptyInputs puts an empty list of rows in the place of what cannot have any: conditions that are never true, and what gives nothing for nothing.
func (o *optimizer) emptyInputs(n *node) *node {
	if o.b.o.EmitOnClose { // whose windows are looked for in the plan
		return n
	}
	for i, in := range n.in {
		n.in[i] = o.emptyInputs(in)
	}
	if !neverHasRows(n) {
		return n
	}
	o.fire(o.cur)
	return &node{op: opValues, cols: n.out()}
}

func neverHasRows(n *node) bool {
	empty := func(i int) bool { return n.in[i].op == opValues && len(n.in[i].rows) == 0 }
	switch n.op {
	case opFilter:
		return empty(0) || n.cond != nil && n.cond.Kind == expr.Const && (n.cond.Const.Null || !n.cond.Const.Bool)
	case opProject, opUnnest, opTopN, opOver:
		return empty(0)
	case opAgg:
		return !n.global && empty(0)
	case opJoin:
		switch n.jtype {
		case plan.Inner, plan.Semi:
			return empty(0) || empty(1)
		case plan.Left, plan.Anti:
			return empty(0)
		case plan.Right:
			return empty(1)
		}
	}
	return false
}
