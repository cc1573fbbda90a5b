package op

import (
	"encoding/binary"

	"github.com/streamdb/streamdb/checkpoint"
	"github.com/streamdb/streamdb/sql/expr"
	"github.com/streamdb/streamdb/types"
)

// watermarkOp derives the watermark max(Expr) over the rows seen. It is part of the checkpoint (which rows are late must not
// depend on restarts): state key "w" in the subtask's first key group → 8 bytes, little-endian. After a restore the
// smallest watermark of the key groups taken over holds, and is emitted again at the first barrier.
type watermarkOp struct {
	base
	prog    *expr.Program
	table   table
	mark    int64
	seen    bool
	again   bool // restored, not yet emitted
	changed bool // since the last checkpoint
	errs    expr.RowErrors
}

var _ Operator = (*watermarkOp)(nil)

func (o *watermarkOp) Open(ctx *Context) error {
	o.ctx = ctx
	var err error
	if o.prog, err = expr.Compile(o.node.Watermark.Expr, ctx.Lib); err != nil {
		return err
	}
	if o.table, err = openTable(ctx, o.node, 0, orderedMode); err != nil {
		return err
	}
	return o.table.scanAll(func(_ uint16, _, v []byte) error {
		if len(v) != 8 {
			return errCorruptState(o.node)
		}
		m := int64(binary.LittleEndian.Uint64(v))
		if !o.seen || m < o.mark {
			o.mark = m
		}
		o.seen, o.again = true, true
		return nil
	})
}

func (o *watermarkOp) Process(_ int, c *types.Chunk, out Emitter) error {
	if c.Rows() == 0 {
		return nil
	}
	// A row whose watermark expression fails moves no watermark; the row itself goes on.
	o.errs.Reset()
	v, err := o.prog.Eval(c, o.ctx.Env, &o.errs)
	if err != nil {
		return err
	}
	risen := false
	for i := range c.Rows() {
		r := c.Row(i)
		if c.Weight(r) <= 0 || v.IsNull(r) {
			continue
		}
		if x := v.Int[r]; x >= minTimestamp && x <= maxTimestamp && (!o.seen || x > o.mark) {
			o.mark, o.seen, risen = x, true, true
		}
	}
	if err := out.Emit(c); err != nil || !risen {
		return err
	}
	o.again, o.changed = false, true
	return out.EmitWatermark(Watermark{Column: o.node.Watermark.Column, Value: o.mark})
}

func (o *watermarkOp) Watermark(_ int, w Watermark, out Emitter) error {
	if w.Column == o.node.Watermark.Column {
		return nil
	}
	return out.EmitWatermark(w)
}

func (o *watermarkOp) Barrier(b checkpoint.Barrier, out Emitter) error {
	if o.again {
		o.again = false
		if err := out.EmitWatermark(Watermark{Column: o.node.Watermark.Column, Value: o.mark}); err != nil {
			return err
		}
	}
	if b.Checkpoint == 0 || !o.changed {
		return nil
	}
	o.changed = false
	// Entries of merged subtasks are superseded by this one's.
	for kg := o.ctx.Groups.From + 1; kg < o.ctx.Groups.To; kg++ {
		_, ok, err := o.table.get(kg, []byte("w"))
		if err != nil {
			return err
		}
		if ok {
			if err := o.table.del(kg, []byte("w")); err != nil {
				return err
			}
		}
	}
	return o.table.put(o.ctx.Groups.From, []byte("w"), binary.LittleEndian.AppendUint64(nil, uint64(o.mark)))
}
