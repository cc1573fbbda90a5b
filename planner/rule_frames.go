package planner

import (
	"strings"

	"github.com/streamdb/streamdb/planner/plan"
)

// reverseFrames computes window functions whose frames end with the partition over the opposite order: there the frames begin with it, and what
// changes goes on from the row before the change. One-shot queries compute all rows anyway.
func (o *optimizer) reverseFrames(n *node) *node {
	for i, in := range n.in {
		n.in[i] = o.reverseFrames(in)
	}
	if n.op != opOver || !o.b.stream {
		return n
	}
	var here []overCall
	back := &node{op: opOver, in: n.in, partition: n.partition, backward: true}
	for _, c := range n.over {
		if !reversible(&c, len(n.order) > 0) {
			here = append(here, c)
			continue
		}
		c.fn = reversedFunc(c.fn)
		c.frame.Start, c.frame.End = reversedBound(c.frame.End), reversedBound(c.frame.Start)
		back.over = append(back.over, c)
	}
	if len(back.over) == 0 {
		return n
	}
	o.fire(o.cur)
	for _, k := range n.order {
		k.desc, k.nullsFirst = !k.desc, !k.nullsFirst
		back.order = append(back.order, k)
	}
	if len(here) == 0 {
		return back
	}
	n.in, n.over = []*node{back}, here
	return n
}

// reversible reports whether a function's frame ends with the partition and may be read from there.
func reversible(c *overCall, ordered bool) bool {
	f := &c.frame
	if f.End.Kind != plan.UnboundedFollowing || f.Start.Kind == plan.UnboundedPreceding || !ordered && f.Mode != plan.FrameRows {
		return false
	}
	near := f.Exclude == "" && !c.ignoreNulls && f.Start.Kind != plan.Following
	switch name, _, _ := strings.Cut(c.fn, "("); name {
	case "first_value", "last_value":
		return !near // the first row of such a frame is close, the last one that of the partition
	case "row_number", "rank", "dense_rank", "percent_rank", "cume_dist", "ntile", "lag", "lead", "nth_value":
		return false
	case "string_agg", "array_agg", "json_agg", "jsonb_agg", "json_object_agg", "jsonb_object_agg":
		return false // the order of their rows shows
	}
	return true
}

func reversedFunc(fn string) string {
	switch name, args, _ := strings.Cut(fn, "("); name {
	case "first_value":
		return "last_value(" + args
	case "last_value":
		return "first_value(" + args
	}
	return fn
}

func reversedBound(b plan.Bound) plan.Bound {
	switch b.Kind {
	case plan.UnboundedFollowing:
		b.Kind = plan.UnboundedPreceding
	case plan.Preceding:
		b.Kind = plan.Following
	case plan.Following:
		b.Kind = plan.Preceding
	}
	return b
}
