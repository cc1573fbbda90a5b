package exec

import (
	"github.com/streamdb/streamdb/exec/op"
	"github.com/streamdb/streamdb/planner/plan"
	"github.com/streamdb/streamdb/state"
	"github.com/streamdb/streamdb/types"
)

// flushRows is how many rows an exchange gathers per receiver before it sends them on: fragments smaller than this cost more in
// messages than in rows.
const flushRows = 1024

// edge is one exchange between two fragments: its receivers' inboxes and the channel numbers that the sending subtask has there.
type edge struct {
	exchange uint32 // id of the plan node
	dist     plan.Distribution
	columns  []int
	types    []types.Type
	targets  []target // one per receiving subtask
	maxPar   int
	// subtask is the sender's number within its fragment.
	subtask int
	// early: the receivers close windows, and want watermarks before the next barrier.
	early bool
	// overdraft is how many messages beyond a full channel may be sent without waiting.
	overdraft int

	hash []uint64
}

type target struct {
	task    *subtask
	box     *inbox // of task
	channel int
	pending *types.Chunk
	// free holds chunks that the receiver has finished with.
	free chan *types.Chunk
	sel  []uint16
}

// freeChunks bounds the chunks that circulate on one channel beyond those queued.
const freeChunks = channelCapMessages + 2

var errStopped = stoppedError{}

// stoppedError unwinds a subtask whose job is being stopped; it is never reported.
type stoppedError struct{}

func (stoppedError) Error() string { return "subtask stopped" }

func (e *edge) take(t *target) *types.Chunk {
	select {
	case c := <-t.free:
		return c
	default:
		return types.NewChunk(e.types)
	}
}

// Emit partitions the lent chunk and copies each receiver's rows into a chunk that is sent when it is large enough.
func (e *edge) Emit(c *types.Chunk) error {
	switch e.dist {
	case plan.DistBroadcast:
		for i := range e.targets {
			if err := e.add(&e.targets[i], c, nil, true); err != nil {
				return err
			}
		}
		return nil
	case plan.DistForward:
		return e.add(&e.targets[e.subtask], c, nil, true)
	case plan.DistHash:
		if len(e.targets) > 1 {
			return e.partition(c)
		}
	}
	return e.add(&e.targets[0], c, nil, true)
}

func (e *edge) partition(c *types.Chunk) error {
	if cap(e.hash) < c.N {
		e.hash = make([]uint64, types.MaxChunkRows)
	}
	h := e.hash[:c.N]
	types.HashRows(c, e.columns, h)
	n := len(e.targets)
	for i := range e.targets {
		e.targets[i].sel = e.targets[i].sel[:0]
	}
	for i := range c.Rows() {
		r := c.Row(i)
		t := &e.targets[state.SubtaskOf(e.maxPar, n, types.KeyGroup(h[r], e.maxPar))]
		t.sel = append(t.sel, uint16(r))
	}
	for i := range e.targets {
		if t := &e.targets[i]; len(t.sel) > 0 {
			if err := e.add(t, c, t.sel, false); err != nil {
				return err
			}
		}
	}
	return nil
}

func (e *edge) add(t *target, c *types.Chunk, sel []uint16, all bool) error {
	part := *c
	if !all {
		part.Sel = sel
	}
	if t.pending != nil && t.pending.N+part.Rows() > types.MaxChunkRows {
		if err := e.flush(t); err != nil {
			return err
		}
	}
	if t.pending == nil {
		t.pending = e.take(t)
	}
	t.pending.AppendChunk(&part)
	if t.pending.N >= flushRows {
		return e.flush(t)
	}
	return nil
}

func (e *edge) flush(t *target) error {
	if t.pending == nil || t.pending.N == 0 {
		return nil
	}
	c := t.pending
	t.pending = nil
	if !t.box.sendOver(t.channel, message{kind: msgChunk, chunk: c}, e.overdraft) {
		return errStopped
	}
	return nil
}

func (e *edge) broadcast(m message) error {
	for i := range e.targets {
		t := &e.targets[i]
		if e.dist == plan.DistForward && i != e.subtask {
			continue
		}
		if err := e.flush(t); err != nil {
			return err
		}
		if !t.box.sendOver(t.channel, m, e.overdraft) {
			return errStopped
		}
	}
	return nil
}

// EmitWatermark sends w to every receiver, after the rows that came before it.
func (e *edge) EmitWatermark(w op.Watermark) error {
	return e.broadcast(message{kind: msgWatermark, watermark: w})
}

func (e *edge) idle() error {
	return e.broadcast(message{kind: msgWatermark, idle: true})
}

func (e *edge) barrier(m message) error { return e.broadcast(m) }
