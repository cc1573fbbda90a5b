package exec

import (
	"fmt"
	"sort"
	"time"

	"github.com/streamdb/streamdb/exec/op"
	"github.com/streamdb/streamdb/planner/plan"
	"github.com/streamdb/streamdb/state"
)

// OperatorStats is what one operator of a running job does: in one subtask, or in all of them.
type OperatorStats struct {
	ID              uint32
	Name            string
	Fragment        int
	Subtask         int // of SubtaskStats
	Subtasks        int
	RowsIn, RowsOut int64
	StateRows       int64
	// StateBytes is what the rows take in memory, and a share by their number of what the job has on disk.
	StateBytes         int64
	Busy, Backpressure float64       // 0 … 1; of the subtask, of several the greatest
	BusyTime, Lifetime time.Duration // of the subtask: Busy is their ratio
}

// Operators lists the job's operators in plan order.
func (j *Job) Operators() []OperatorStats {
	var out []OperatorStats
	index := map[uint32]int{}
	for _, s := range j.SubtaskStats() {
		i, ok := index[s.ID]
		if !ok {
			index[s.ID] = len(out)
			s.Subtasks = 1
			out = append(out, s)
			continue
		}
		o := &out[i]
		o.Subtasks++
		o.RowsIn += s.RowsIn
		o.RowsOut += s.RowsOut
		o.StateRows += s.StateRows
		o.StateBytes += s.StateBytes
		o.Busy, o.Backpressure = max(o.Busy, s.Busy), max(o.Backpressure, s.Backpressure)
	}
	return out
}

// SubtaskStats lists the job's operators, subtask by subtask.
func (j *Job) SubtaskStats() []OperatorStats {
	j.mu.Lock()
	r := j.run
	j.mu.Unlock()
	if r == nil {
		return nil
	}
	type place struct {
		operator uint32
		subtask  int
	}
	kinds := map[uint32]plan.Kind{}
	for _, f := range j.Spec.Plan.Fragments {
		f.Root.Walk(func(n *plan.Node) { kinds[n.ID] = n.Kind })
	}
	stored := map[place]state.TableMetrics{}
	var rows, bytes int64
	if r.store != nil {
		for _, t := range r.store.Tables() {
			p := place{op.NodeOf(t.Table), t.Subtask}
			if t.Table >= materializeTable {
				p.operator = r.rootID()
			} else if !op.HoldsRows(kinds[p.operator], t.Table) {
				t.Entries = 0
			}
			s := stored[p]
			s.Entries, s.Bytes = s.Entries+t.Entries, s.Bytes+t.Bytes
			stored[p] = s
			rows, bytes = rows+t.Entries, bytes+t.Bytes
		}
	}
	rest := max(0, StateBytes(j.Metrics())-bytes)
	var out []OperatorStats
	for _, t := range r.subtasks {
		back := 0.0
		for _, e := range t.edges {
			for i := range e.targets {
				if box := e.targets[i].box; box != nil {
					back = max(back, box.fill())
				}
			}
		}
		busy, life := t.busyTime()
		for _, n := range t.nodes {
			s := stored[place{n.plan.ID, t.number}]
			o := OperatorStats{
				ID: n.plan.ID, Name: string(n.plan.Kind), Fragment: t.frag.ID, Subtask: t.index, RowsIn: n.out.rowsIn.Load(), RowsOut: n.out.rowsOut.Load(),
				StateRows: s.Entries, StateBytes: s.Bytes, Backpressure: back, BusyTime: busy, Lifetime: life,
			}
			if rows > 0 {
				o.StateBytes += int64(float64(rest) * float64(s.Entries) / float64(rows))
			}
			if life > 0 {
				o.Busy = float64(busy) / float64(life)
			}
			out = append(out, o)
		}
	}
	return out
}

func (r *run) rootID() uint32 {
	fs := r.job.Spec.Plan.Fragments
	return fs[len(fs)-1].Root.ID
}

// HotKey is a key of a join of a running job.
type HotKey struct {
	Operator uint32
	op.HotKey
}

// HotKeys lists the keys with the most matches of each join, as of its last barrier.
func (j *Job) HotKeys() []HotKey {
	j.mu.Lock()
	r := j.run
	j.mu.Unlock()
	if r == nil {
		return nil
	}
	var out []HotKey
	for _, t := range r.subtasks {
		for _, n := range t.nodes {
			if o, ok := n.op.(op.HotKeyed); ok {
				for _, k := range o.HotKeys() {
					out = append(out, HotKey{Operator: n.plan.ID, HotKey: k})
				}
			}
		}
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
