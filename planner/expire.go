package planner

import (
	"slices"

	"github.com/streamdb/streamdb/planner/plan"
)

// expires reports whether operators drop what was not changed for a time. Those that emit closed windows forget them anyway, and need rows that are only added.
func (ph *physical) expires() bool {
	return ph.b.o.StateTTL > 0 && !ph.b.o.EmitOnClose && ph.sub == nil
}

// expire lets the rows that an operator keeps go when their time is over, unless they come from operators whose rows do. group is nil for rows on their own, spread
// are the columns by which the operator has its rows.
func (ph *physical) expire(in *phys, group, spread []int) *phys {
	if in.ttl || !ph.expires() {
		return in
	}
	return ph.expiring(in, group, spread)
}

// expireByKey is expire for rows that need not be anywhere.
func (ph *physical) expireByKey(in *phys, need map[int]bool) *phys {
	switch {
	case in.ttl || !ph.expires():
		return in
	case len(in.key) == 0:
		in = ph.require(in, distSingle, nil, need)
	case in.dist != distHash:
		in = ph.require(in, distHash, in.key, need)
	}
	return ph.expiring(in, nil, in.key)
}

func (ph *physical) expiring(in *phys, group, spread []int) *phys {
	switch {
	case in.dist == distHash:
		spread = in.cols
	case len(spread) == 0:
		spread = in.key // all rows are in one subtask
	}
	p := ph.like(plan.KindExpire, in)
	p.n.Expire = &plan.Expire{TTL: ph.b.o.StateTTL, Groups: group != nil, GroupBy: in.positions(group), Spread: in.positions(slices.Clone(spread))}
	p.app, p.ttl = false, true
	return ph.seal(p)
}
