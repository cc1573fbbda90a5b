package op

import (
	"math"

	"github.com/streamdb/streamdb/checkpoint"
	"github.com/streamdb/streamdb/types"
)

// procTimeOp appends the clock as of the last barrier to its rows, which are only added: all rows of an epoch have the same time, and after a restore it goes on
// from where it was. Each barrier's clock is the watermark of the column.
//
// State: table 0, the clock (see markTable).
type procTimeOp struct {
	base
	clock markTable
	now   int64 // µs since 2000-01-01 UTC
	ended bool  // no row follows
	col   *types.Vector
	out   types.Chunk
}

var (
	_ Operator = (*procTimeOp)(nil)
	_ Timed    = (*procTimeOp)(nil)
	_ Ender    = (*procTimeOp)(nil)
)

// Ender is an operator over a source that is told that the source has ended.
type Ender interface {
	// End says that no row follows.
	End(out Emitter) error
}

// EndOfTime is the watermark after the last row.
const EndOfTime = math.MaxInt64 - 1

// NextDue implements Timed: the operator follows the clock, but has nothing to do without rows that its source did not wake it for.
func (o *procTimeOp) NextDue() int64 { return math.MaxInt64 }

func (o *procTimeOp) Open(ctx *Context) error {
	o.ctx, o.now = ctx, ctx.Now
	o.col = types.NewVector(types.Timestamptz, 0)
	return o.clock.open(ctx, o.node, 0, func(m int64) { o.now = max(o.now, m) })
}

func (o *procTimeOp) Process(_ int, c *types.Chunk, out Emitter) error {
	o.col.Resize(c.N)
	for i := range o.col.Int {
		o.col.Int[i] = o.now
	}
	o.out = types.Chunk{Cols: append(append(o.out.Cols[:0], c.Cols...), o.col), N: c.N, Sel: c.Sel, Weights: c.Weights}
	return out.Emit(&o.out)
}

func (o *procTimeOp) Barrier(b checkpoint.Barrier, out Emitter) error {
	if b.Now > o.now {
		o.now, o.clock.changed = b.Now, true
	}
	if !o.ended {
		if err := out.EmitWatermark(Watermark{Column: len(o.node.Schema) - 1, Value: o.now}); err != nil {
			return err
		}
	}
	if b.Checkpoint == 0 {
		return nil
	}
	return o.clock.save(o.now)
}

func (o *procTimeOp) Watermark(_ int, w Watermark, out Emitter) error { return out.EmitWatermark(w) }

func (o *procTimeOp) End(out Emitter) error {
	o.ended = true
	return out.EmitWatermark(Watermark{Column: len(o.node.Schema) - 1, Value: EndOfTime})
}
