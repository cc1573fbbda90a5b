package op

import (
	"encoding/binary"

	"github.com/streamdb/streamdb/checkpoint"
	"github.com/streamdb/streamdb/planner/plan"
	"github.com/streamdb/streamdb/sql/expr"
	"github.com/streamdb/streamdb/types"
)

// watermarkOp derives the watermark max(Expr) over the rows seen. It is part of the checkpoint (which rows are late must not
// depend on restarts). After a restore the smallest watermark of the key groups taken over holds; it is emitted again at the first barrier.
type watermarkOp struct {
	base
	prog  *expr.Program
	table markTable
	mark  int64
	seen  bool
	again bool // restored, not yet emitted
	errs  expr.RowErrors
}

var _ Operator = (*watermarkOp)(nil)

// markTable keeps a watermark in state, once per key group so that it moves with them: key "w" → 8 bytes, little-endian.
type markTable struct {
	table   table
	ctx     *Context
	changed bool // since the last checkpoint
}

func (m *markTable) open(ctx *Context, node *plan.Node, number uint32, found func(mark int64)) error {
	m.ctx = ctx
	var err error
	if m.table, err = openTable(ctx, node, number, orderedMode); err != nil {
		return err
	}
	return m.table.scanAll(func(_ uint16, _, v []byte) error {
		if len(v) != 8 {
			return errCorruptState(node)
		}
		found(int64(binary.LittleEndian.Uint64(v)))
		return nil
	})
}

func (m *markTable) save(mark int64) error {
	if !m.changed || m.table.part == nil {
		return nil
	}
	m.changed = false
	v := binary.LittleEndian.AppendUint64(nil, uint64(mark))
	for kg := m.ctx.Groups.From; kg < m.ctx.Groups.To; kg++ {
		if err := m.table.put(kg, []byte("w"), v); err != nil {
			return err
		}
	}
	return nil
}

func (o *watermarkOp) Open(ctx *Context) error {
	o.ctx = ctx
	var err error
	if o.prog, err = expr.Compile(o.node.Watermark.Expr, ctx.Lib); err != nil {
		return err
	}
	return o.table.open(ctx, o.node, 0, func(m int64) {
		if !o.seen || m < o.mark {
			o.mark = m
		}
		o.seen, o.again = true, true
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
	o.again, o.table.changed = false, true
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
	if b.Checkpoint == 0 {
		return nil
	}
	return o.table.save(o.mark)
}
