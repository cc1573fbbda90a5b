package op

import (
	"time"

	"github.com/streamdb/streamdb/planner/plan"
	"github.com/streamdb/streamdb/types"
)

// Profile counts what the operators of a one-shot query do, for EXPLAIN ANALYZE. Rows are pushed from operator to operator, so a call of
// Process contains the work of everything above: the profile keeps one clock and charges each stretch of time to the operator that worked.
// It belongs to the goroutine of its query.
type Profile struct {
	Timing bool // measure time, not rows only

	nodes   map[*plan.Node]*NodeProfile
	current *NodeProfile
	since   time.Time
}

// NodeProfile is what one operator did.
type NodeProfile struct {
	Rows    int64         // emitted, by their weights
	Batches int64         // chunks emitted
	Loops   int64         // how often it ran: once, or once for each iteration of a recursive query
	First   time.Duration // time of the operator and its inputs when the first row came out
	self    time.Duration
	node    *plan.Node
}

// Reset forgets what was counted, before a statement is run again.
func (p *Profile) Reset() { p.nodes, p.current = nil, nil }

// Node returns the counters of n, nil without a profile.
func (p *Profile) Node(n *plan.Node) *NodeProfile {
	if p == nil {
		return nil
	}
	np := p.nodes[n]
	if np == nil {
		if p.nodes == nil {
			p.nodes = map[*plan.Node]*NodeProfile{}
		}
		np = &NodeProfile{node: n}
		p.nodes[n] = np
	}
	return np
}

// Of returns the counters of n and the time that it took together with its inputs; nil when it did not run.
func (p *Profile) Of(n *plan.Node) (*NodeProfile, time.Duration) {
	np := p.nodes[n]
	if np == nil || np.Loops == 0 {
		return nil, 0
	}
	return np, p.total(n)
}

func (p *Profile) total(n *plan.Node) time.Duration {
	var d time.Duration
	if np := p.nodes[n]; np != nil {
		d = np.self
	}
	for _, in := range n.Inputs {
		d += p.total(in)
	}
	if n.Recompute != nil {
		d += p.total(n.Recompute.Sub)
	}
	if n.Recurse != nil {
		d += p.total(n.Recurse.Base) + p.total(n.Recurse.Step)
	}
	return d
}

// Enter charges the time from now on to np and returns whom it was charged to before, for Leave.
func (p *Profile) Enter(np *NodeProfile) *NodeProfile {
	if p == nil {
		return nil
	}
	before := p.current
	p.charge()
	p.current = np
	return before
}

// Run charges the call of f to np and counts it.
func (p *Profile) Run(np *NodeProfile, f func() error) error {
	if p == nil {
		return f()
	}
	np.Loops++
	before := p.Enter(np)
	err := f()
	p.Leave(before)
	return err
}

// Leave goes back to what Enter returned.
func (p *Profile) Leave(before *NodeProfile) {
	if p == nil {
		return
	}
	p.charge()
	p.current = before
}

func (p *Profile) charge() {
	if !p.Timing {
		return
	}
	now := time.Now()
	if p.current != nil {
		p.current.self += now.Sub(p.since)
	}
	p.since = now
}

// Emitted counts a chunk that the operator of np has emitted.
func (p *Profile) Emitted(np *NodeProfile, c *types.Chunk) {
	if p == nil {
		return
	}
	if np.Batches == 0 && p.Timing {
		p.charge()
		np.First = p.total(np.node)
	}
	np.Batches++
	if c.Weights == nil {
		np.Rows += int64(c.Rows())
		return
	}
	for i := range c.Rows() {
		np.Rows += c.Weight(c.Row(i))
	}
}

// profiled counts what passes from an operator of a nested tree to its parent.
type profiled struct {
	p     *Profile
	np    *NodeProfile
	above *NodeProfile
	out   Emitter
}

// emitter returns out, counted as the output of np when there is a profile. above is who works on it.
func (p *Profile) emitter(np, above *NodeProfile, out Emitter) Emitter {
	if p == nil {
		return out
	}
	return &profiled{p: p, np: np, above: above, out: out}
}

// Emit implements Emitter.
func (e *profiled) Emit(c *types.Chunk) error {
	if c.Rows() == 0 {
		return nil
	}
	e.p.Emitted(e.np, c)
	before := e.p.Enter(e.above)
	err := e.out.Emit(c)
	e.p.Leave(before)
	return err
}

// EmitWatermark implements Emitter.
func (e *profiled) EmitWatermark(w Watermark) error { return e.out.EmitWatermark(w) }
