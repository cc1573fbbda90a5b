package op

import (
	"github.com/streamdb/streamdb/checkpoint"
	"github.com/streamdb/streamdb/types"
)

// waitingRows are rows of an input that wait for the barrier, when it is known with which epoch of a relation they are joined. While the job is filled from
// relations it is known before: then no more than maxFillRows wait.
type waitingRows struct {
	types   []types.Type
	filling bool
	early   bool // no row comes but from relations while the job is filled
	rows    int  // with those that the operator has elsewhere
	chunks  []*types.Chunk
	free    []*types.Chunk
}

// maxFillRows is how many rows wait for a barrier while the job is filled from relations.
const maxFillRows = 1 << 16

func (w *waitingRows) open(ctx *Context, port int) {
	w.types, w.filling, w.early = ctx.InputTypes[port], ctx.Filling, !ctx.Live
}

// add copies row r of c.
func (w *waitingRows) add(c *types.Chunk, r int) {
	n := len(w.chunks)
	if n == 0 || w.chunks[n-1].N == types.MaxChunkRows {
		w.chunks = append(w.chunks, w.chunk())
		n++
	}
	w.chunks[n-1].AppendRow(c, r, c.Weight(r))
	w.rows++
}

// enough reports whether the rows are to be joined before the barrier.
func (w *waitingRows) enough() bool { return w.filling && w.early && w.rows >= maxFillRows }

// epoch returns the one that the rows are joined with at a barrier (see Probe.Seek).
func (w *waitingRows) epoch(b checkpoint.Barrier) uint64 {
	if !w.filling {
		return b.Epoch
	}
	w.filling = b.Filling != checkpoint.FillComplete
	return 0
}

// take calls f for the rows, in chunks that it must not keep.
func (w *waitingRows) take(f func(c *types.Chunk) error) error {
	for _, c := range w.chunks {
		if err := f(c); err != nil {
			return err
		}
		w.release(c)
	}
	w.chunks, w.rows = w.chunks[:0], 0
	return nil
}

// chunk returns an empty chunk for rows of the input, which release takes back.
func (w *waitingRows) chunk() *types.Chunk {
	n := len(w.free)
	if n == 0 {
		return types.NewChunk(w.types)
	}
	c := w.free[n-1]
	w.free = w.free[:n-1]
	return c
}

func (w *waitingRows) release(c *types.Chunk) {
	if c.Reset(); len(w.free) < maxFillRows/types.MaxChunkRows {
		w.free = append(w.free, c)
	}
}
