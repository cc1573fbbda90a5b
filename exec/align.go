package exec

import (
	"math"
	"strconv"
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
	groups := map[string]*alignGroup{}
	for _, t := range r.subtasks {
		for _, l := range t.sources {
			l.align.mark.Store(math.MinInt64)
			l.watch()
			if l.join(groups); l.group != nil {
				continue
			}
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
	l.marks, l.marksNode = m, w
	l.patience = l.span(connector.OptionIdleTimeout, connector.DefaultIdleTimeout)
}

// span returns the value of an option of the source.
func (l *sourceLeaf) span(option string, usual time.Duration) time.Duration {
	if v, ok := l.node.plan.Source.Options[option]; ok {
		if d, err := connector.ParseSpan(v); err == nil { // checked when the source was made
			return d
		}
	}
	return usual
}

// alignGroup keeps splits together in event time where the user asks for it, those of one source or of several: the ones that are ahead rest.
type alignGroup struct {
	interval time.Duration
	leaves   []*sourceLeaf
	low      atomic.Int64 // the slowest watermark when it was last looked for, math.MaxInt64: there is none
	next     atomic.Int64 // when to look again, ns of wall time
}

// join makes the source's splits part of a group, which is known by its name or the source's operator.
func (l *sourceLeaf) join(groups map[string]*alignGroup) {
	options := l.node.plan.Source.Options
	if options[connector.OptionMaxDrift] == "" || l.marks == nil || !inMicros(l.marksNode.plan) {
		return
	}
	name := "source " + strconv.FormatUint(uint64(l.node.plan.ID), 10)
	if g := options[connector.OptionAlignGroup]; g != "" {
		name = "group " + g
	}
	interval := l.span(connector.OptionAlignInterval, connector.DefaultAlignInterval)
	g := groups[name]
	if g == nil {
		g = &alignGroup{interval: interval}
		g.low.Store(math.MaxInt64)
		groups[name] = g
	}
	g.interval = min(g.interval, interval)
	g.leaves = append(g.leaves, l)
	l.group, l.drift = g, l.span(connector.OptionMaxDrift, 0).Microseconds()
	l.low.Store(math.MaxInt64)
}

// lowest returns the slowest watermark of the group, at most interval old. Any subtask looks.
func (g *alignGroup) lowest() int64 {
	now := time.Now().UnixNano()
	if next := g.next.Load(); now < next || !g.next.CompareAndSwap(next, now+int64(g.interval)) {
		return g.low.Load()
	}
	low := int64(math.MaxInt64)
	for _, l := range g.leaves {
		low = min(low, l.low.Load())
	}
	g.low.Store(low)
	return low
}

// noteLow tells the group the slowest watermark of l's splits. Those that have none yet, are idle, or have ended hold nobody back.
func (l *sourceLeaf) noteLow() {
	if l.group == nil {
		return
	}
	low := int64(math.MaxInt64)
	for _, s := range l.readers {
		if mark, ok := l.marks.SplitMark(s.mark); ok && !s.silent {
			low = min(low, mark)
		}
	}
	l.low.Store(low)
}

// rests reports whether a split is too far ahead of its group to be read.
func (l *sourceLeaf) rests(s *splitReader) bool {
	if l.group == nil {
		return false
	}
	mark, ok := l.marks.SplitMark(s.mark)
	if low := l.group.lowest(); ok && low < math.MaxInt64-l.drift && mark > low+l.drift {
		s.rested = true
		return true
	}
	if s.rested {
		s.rested, s.rowAt = false, time.Now() // while it rested it was not idle
	}
	return false
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
