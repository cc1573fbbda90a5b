package exec

import (
	"math"
	"sync/atomic"
	"time"

	"github.com/streamdb/streamdb/connector"
	"github.com/streamdb/streamdb/exec/op"
	"github.com/streamdb/streamdb/planner/plan"
	"github.com/streamdb/streamdb/types"
)

const (
	// alignDrift is how far in event time, in µs, a subtask's share of a source may be ahead of the slowest one.
	alignDrift = 20 * 1000 * 1000
	// alignPause is how long it then rests before it looks again.
	alignPause = time.Millisecond
	// alignPatience is how long it waits at most for the others before it reads another chunk: their event time may have come to a halt.
	alignPatience = 100 * time.Millisecond
)

// alignment keeps the subtasks of one source together in event time, in jobs that emit windows when they close: such windows wait for the
// slowest subtask anyway, and what the others have read ahead would only be kept open, in memory and in checkpoints.
type alignment struct {
	on      bool
	mark    atomic.Int64 // watermark of the subtask's rows
	running atomic.Bool  // a split may have rows now
	since   time.Time    // when the wait began
}

// alignSources turns alignment on where the run has aggregations that close windows.
func (r *run) alignSources() {
	closing := false
	for _, t := range r.subtasks {
		for _, e := range t.edges {
			closing = closing || e.early
		}
	}
	for _, t := range r.subtasks {
		for _, l := range t.sources {
			l.align.mark.Store(math.MinInt64)
			l.watch()
			if w := watermarkAbove(l.node); w != nil && closing && len(l.source.subs) > 1 && inMicros(w.plan) {
				l.align.on, w.leaf = true, l
			}
		}
	}
}

// watch finds the operator that derives the watermark of the source's rows.
func (l *sourceLeaf) watch() {
	w := watermarkAbove(l.node)
	if w == nil {
		return
	}
	m, ok := w.op.(op.SplitWatermarker)
	if !ok {
		return
	}
	l.marks, l.marksNode, l.patience = m, w, connector.DefaultIdleTimeout
	if v, ok := l.node.plan.Source.Options[connector.OptionIdleTimeout]; ok {
		if d, err := connector.ParseIdleTimeout(v); err == nil { // checked when the source was made
			l.patience = d
		}
	}
}

// watermarkAbove returns the operator that derives the watermark of a source's rows.
func watermarkAbove(n *node) *node {
	for n = n.parent; n != nil && len(n.plan.Inputs) == 1; n = n.parent {
		if n.plan.Kind == plan.KindWatermark {
			return n
		}
	}
	return nil
}

func inMicros(n *plan.Node) bool {
	oid := n.Schema[n.Watermark.Column].Type.OID
	return oid == types.OIDTimestamp || oid == types.OIDTimestamptz
}

// ahead reports whether l should wait for other subtasks of its source.
func (l *sourceLeaf) ahead() bool {
	a := &l.align
	mine := a.mark.Load()
	if !a.on || mine < math.MinInt64+alignDrift {
		return false
	}
	for _, o := range l.source.subs {
		if m := o.align.mark.Load(); o == l || m >= mine-alignDrift || m == math.MinInt64 || !o.align.running.Load() {
			continue
		}
		now := time.Now()
		if a.since.IsZero() {
			a.since = now
		}
		if now.Sub(a.since) < alignPatience {
			return true
		}
		break
	}
	a.since = time.Time{}
	return false
}

// noteRunning tells the other subtasks whether l may have rows now.
func (l *sourceLeaf) noteRunning() {
	if !l.align.on {
		return
	}
	running := false
	for _, s := range l.readers {
		running = running || s.wakeAt.IsZero()
	}
	if running != l.align.running.Load() {
		l.align.running.Store(running)
	}
}
