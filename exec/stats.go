package exec

import (
	"fmt"
	"sort"

	"github.com/streamdb/streamdb/state"
)

// OperatorStats is one operator of a running job, over all its subtasks.
type OperatorStats struct {
	ID                 uint32
	Name               string
	Fragment           int
	Subtasks           int
	RowsIn, RowsOut    int64
	StateRows          int64
	StateBytes         int64
	Busy, Backpressure float64 // 0 … 1
}

// Operators lists the job's operators in plan order.
func (j *Job) Operators() []OperatorStats {
	j.mu.Lock()
	r := j.run
	j.mu.Unlock()
	if r == nil {
		return nil
	}
	m := j.Metrics()
	var out []OperatorStats
	index := map[uint32]int{}
	for _, t := range r.subtasks {
		back := 0.0
		for _, e := range t.edges {
			for i := range e.targets {
				if box := e.targets[i].box; box != nil {
					back = max(back, box.fill())
				}
			}
		}
		for _, n := range t.nodes {
			i, ok := index[n.plan.ID]
			if !ok {
				i = len(out)
				index[n.plan.ID] = i
				out = append(out, OperatorStats{ID: n.plan.ID, Name: string(n.plan.Kind), Fragment: t.frag.ID})
			}
			o := &out[i]
			o.Subtasks++
			o.RowsIn += n.out.rowsIn.Load()
			o.RowsOut += n.out.rowsOut.Load()
			o.Busy = max(o.Busy, t.busyRatio())
			o.Backpressure = max(o.Backpressure, back)
		}
	}
	if len(out) > 0 {
		// State is counted per job; it is shown at the root.
		out[len(out)-1].StateRows, out[len(out)-1].StateBytes = m.LiveEntries, StateBytes(m)
	}
	return out
}

// SplitStats is one split of a source as a job reads it.
type SplitStats struct {
	Source, Split, Position string
	Lag                     int64
	Idle                    bool
}

// Splits lists the splits that the job reads, as of the last barrier.
func (j *Job) Splits() []SplitStats {
	j.mu.Lock()
	r := j.run
	j.mu.Unlock()
	if r == nil {
		return nil
	}
	var out []SplitStats
	for _, s := range r.sources {
		s.mu.Lock()
		for id, st := range s.status {
			st.Source, st.Split = s.node.Source.Name, id
			out = append(out, st)
		}
		s.mu.Unlock()
	}
	sort.Slice(out, func(i, k int) bool { return out[i].Source+out[i].Split < out[k].Source+out[k].Split })
	return out
}

// publishSplits records where the subtask's splits stand, for streamdb.sources.
func (t *subtask) publishSplits() {
	for _, l := range t.sources {
		l.source.mu.Lock()
		if l.source.status == nil {
			l.source.status = map[string]SplitStats{}
		}
		for _, s := range l.readers {
			l.source.status[s.id] = SplitStats{Position: printable(s.reader.Position()), Lag: s.reader.Lag(), Idle: !s.wakeAt.IsZero()}
		}
		for id, p := range l.ended {
			l.source.status[id] = SplitStats{Position: printable(p), Idle: true}
		}
		l.source.mu.Unlock()
	}
}

func printable(p []byte) string {
	for _, c := range p {
		if c < 0x20 || c > 0x7e {
			return fmt.Sprintf("%x", p)
		}
	}
	return string(p)
}

// Epoch returns the newest epoch that the job has published.
func (j *Job) Epoch() uint64 { return j.closed() }

// Restarts returns how often the job has failed since the server started.
func (j *Job) Restarts() int { return j.restartCount() }

// SourceRows returns the number of rows read from sources since the server started.
func (j *Job) SourceRows() int64 { return j.sourceRows.Load() }

// Discarded returns the number of rows that reached a discarding root.
func (j *Job) Discarded() int64 { return j.discarded.Load() }

// SourcesEnded reports that all splits of all sources have been read to their end and their rows are visible.
func (j *Job) SourcesEnded() bool { return j.quietSrc.Load() }

// StateBytes is the size of a job's state: what is stored, or what the overlay holds while nothing is.
func StateBytes(m state.Metrics) int64 {
	return max(m.OverlayBytes, m.BaseBytes+m.DeltaBytes, m.PebbleBytes)
}
