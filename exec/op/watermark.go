package op

import (
	"encoding/binary"
	"math"

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

	// Of expressions that never fall as their one column rises: one evaluates them over the greatest value of a chunk, high is the greatest so far.
	rising *expr.Program
	column int
	one    *types.Chunk
	high   int64
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
	if col, e := risingExpr(o.node.Watermark.Expr); e != nil {
		if o.rising, err = expr.Compile(e, ctx.Lib); err != nil {
			return err
		}
		o.column, o.high = col, math.MinInt64
		o.one = types.NewChunk([]types.Type{ctx.InputTypes[0][col]})
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
	risen, done, err := o.raise(c)
	if err == nil && !done {
		risen, err = o.raiseByRow(c)
	}
	if err != nil {
		return err
	}
	if err := out.Emit(c); err != nil || !risen {
		return err
	}
	o.again, o.table.changed = false, true
	return o.emit(out)
}

// emit emits the watermark, less the lateness that is allowed.
func (o *watermarkOp) emit(out Emitter) error {
	w := o.node.Watermark
	by := w.Lateness
	if o.node.Schema[w.Column].Type.OID == types.OIDDate {
		by /= microsPerDay
	}
	return out.EmitWatermark(Watermark{Column: w.Column, Value: o.mark - by})
}

// risingExpr returns the column that e depends on, and e over column 0 instead, when e never falls as the column rises: the column itself, and
// timestamps with a constant added or taken away. Months are of different lengths, days too where clocks are changed.
func risingExpr(e *expr.Expr) (int, *expr.Expr) {
	switch e.Kind {
	case expr.Column:
		return e.Col, expr.Col(0, e.Type)
	case expr.Call:
		if len(e.Args) != 2 || e.Args[0].Kind != expr.Column || e.Args[1].Kind != expr.Const || e.Args[1].Const.Null {
			return 0, nil
		}
		col, by := e.Args[0], e.Args[1].Const
		switch e.Func {
		case "timestamp_pl_interval(timestamp,interval)", "timestamp_mi_interval(timestamp,interval)":
		case "timestamptz_pl_interval(timestamptz,interval)", "timestamptz_mi_interval(timestamptz,interval)":
			if by.Ivl.Days != 0 {
				return 0, nil
			}
		default:
			return 0, nil
		}
		if by.Ivl.Months != 0 {
			return 0, nil
		}
		f := *e
		f.Args = []*expr.Expr{expr.Col(0, col.Type), e.Args[1]}
		return col.Col, &f
	}
	return 0, nil
}

// raise moves the watermark by the greatest value of the chunk alone. It is not done when that value has no watermark, though smaller ones may.
func (o *watermarkOp) raise(c *types.Chunk) (risen, done bool, err error) {
	if o.rising == nil {
		return false, false, nil
	}
	v := c.Cols[o.column]
	high := o.high
	if v.Valid == nil && c.Sel == nil && c.Weights == nil {
		for _, x := range v.Int[:c.N] {
			high = max(high, x)
		}
	} else {
		for i := range c.Rows() {
			if r := c.Row(i); c.Weight(r) > 0 && !v.IsNull(r) {
				high = max(high, v.Int[r])
			}
		}
	}
	if high == o.high {
		return false, true, nil
	}
	o.one.Reset()
	o.one.Cols[0].Int = append(o.one.Cols[0].Int, high)
	o.one.N = 1
	o.errs.Reset()
	m, err := o.rising.Eval(o.one, o.ctx.Env, &o.errs)
	if err != nil || len(o.errs.Rows) > 0 || m.IsNull(0) || m.Int[0] > maxTimestamp {
		return false, false, err
	}
	o.high = high
	if x := m.Int[0]; x >= minTimestamp && (!o.seen || x > o.mark) {
		o.mark, o.seen, risen = x, true, true
	}
	return risen, true, nil
}

func (o *watermarkOp) raiseByRow(c *types.Chunk) (risen bool, err error) {
	// A row whose watermark expression fails moves no watermark; the row itself goes on.
	o.errs.Reset()
	v, err := o.prog.Eval(c, o.ctx.Env, &o.errs)
	if err != nil {
		return false, err
	}
	for i := range c.Rows() {
		r := c.Row(i)
		if c.Weight(r) <= 0 || v.IsNull(r) {
			continue
		}
		if x := v.Int[r]; x >= minTimestamp && x <= maxTimestamp && (!o.seen || x > o.mark) {
			o.mark, o.seen, risen = x, true, true
		}
	}
	return risen, nil
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
		if err := o.emit(out); err != nil {
			return err
		}
	}
	if b.Checkpoint == 0 {
		return nil
	}
	return o.table.save(o.mark)
}
