package planner

import (
	"slices"

	"github.com/streamdb/streamdb/planner/plan"
)

// sinkRoot adds the operator that writes to a connector. Rows of one primary key go through one subtask, in their order; without one those of one stream key do, and
// rows that are only added stay where they are.
func (ph *physical) sinkRoot(p *phys, cols []outCol) *phys {
	sink := ph.b.o.Sink
	key := p.key
	if len(sink.PrimaryKey) > 0 {
		var ids, at []int
		for i, c := range cols {
			if slices.Contains(sink.PrimaryKey, c.name) {
				ids, at = append(ids, p.ids[i]), append(at, i)
			}
		}
		if len(at) == len(sink.PrimaryKey) { // otherwise it is refused
			key = ids
		}
	}
	switch {
	case p.app && len(sink.PrimaryKey) == 0:
	case len(key) == 0:
		p = ph.require(p, distSingle, nil, nil)
	default:
		p = ph.require(p, distHash, key, nil)
	}
	out := ph.like(plan.KindSink, p)
	ph.seal(out)
	out.n.Sink = &plan.Sink{Name: sink.Name, Visible: len(cols)}
	if !p.app {
		out.n.Sink.Key = []int{}
		for _, id := range key {
			out.n.Sink.Key = append(out.n.Sink.Key, slices.Index(out.ids, id))
		}
	}
	ph.nameColumns(out, cols)
	return out
}
