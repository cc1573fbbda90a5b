package op

import (
	"encoding/binary"
	"math"

	"github.com/streamdb/streamdb/checkpoint"
	"github.com/streamdb/streamdb/planner/plan"
	"github.com/streamdb/streamdb/sql/expr"
	"github.com/streamdb/streamdb/types"
)

// watermarkOp derives the watermark max(Expr) over the rows seen, of each split of a source on its own: the least of those that are not idle counts, the greatest when all are. It is
// part of the checkpoint (which rows are late must not depend on restarts). After a restore the smallest watermark of the key groups taken over holds; it
// is emitted again at the first barrier.
type watermarkOp struct {
	base
	prog  *expr.Program
	table markTable
	mark  int64
	seen  bool
	again bool // restored or resumed, not yet emitted
	errs  expr.RowErrors

	splits []*splitMark
	cur    *splitMark // the split of the rows in work

	// Of expressions that never fall as their one column rises: one evaluates them over the greatest value of a chunk.
	rising *expr.Program
	column int
	one    *types.Chunk
}

// splitMark is the watermark of a split.
type splitMark struct {
	mark int64
	seen bool
	idle bool
	high int64 // greatest value of the column of a rising expression
}

var (
	_ Operator         = (*watermarkOp)(nil)
	_ SplitWatermarker = (*watermarkOp)(nil)
)

// SplitWatermarker is the operator that derives the watermark of a source's rows. The source tells it of its splits.
type SplitWatermarker interface {
	// AddSplit returns the number of a split that will have rows, mark is its watermark as of the checkpoint when known. Until it has one, or is idle, the
	// watermark stands still.
	AddSplit(mark int64, known bool) int
	// SplitMark returns the watermark of a split, false when it has none yet.
	SplitMark(split int) (int64, bool)
	// SetSplit tells of which split the rows are that follow; it is not idle any more.
	SetSplit(split int)
	// IdleSplit says that a split must not hold the watermark back until it has rows again.
	IdleSplit(split int, out Emitter) error
}

func (o *watermarkOp) AddSplit(mark int64, known bool) int {
	o.splits = append(o.splits, &splitMark{mark: mark, seen: known, high: math.MinInt64})
	return len(o.splits) - 1
}

func (o *watermarkOp) SplitMark(split int) (int64, bool) {
	return o.splits[split].mark, o.splits[split].seen
}

func (o *watermarkOp) SetSplit(split int) {
	o.cur = o.splits[split]
	if o.cur.idle {
		// Those who found the whole subtask idle hear that it is not.
		o.cur.idle, o.again = false, o.seen
	}
}

func (o *watermarkOp) IdleSplit(split int, out Emitter) error {
	o.splits[split].idle = true
	if !o.combine() {
		return nil
	}
	o.table.changed = true
	return o.emit(out)
}

// combine raises the watermark to the least of the splits that count, when all are idle to the greatest, and reports whether it rose.
func (o *watermarkOp) combine() bool {
	low, high, active, seen := int64(math.MaxInt64), int64(math.MinInt64), false, false
	for _, s := range o.splits {
		if s.seen {
			high, seen = max(high, s.mark), true
		}
		if s.idle {
			continue
		}
		if !s.seen {
			return false
		}
		low, active = min(low, s.mark), true
	}
	if !active {
		low = high
	}
	if !seen || o.seen && low <= o.mark {
		return false
	}
	o.mark, o.seen = low, true
	return true
}

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
		o.column = col
		o.one = types.NewChunk([]types.Type{ctx.InputTypes[0][col]})
	}
	o.cur = &splitMark{high: math.MinInt64}
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
	if len(o.splits) == 0 {
		o.splits = append(o.splits, o.cur) // its input is no source with splits
	}
	risen, done, err := o.raise(c)
	if err == nil && !done {
		risen, err = o.raiseByRow(c)
	}
	if err != nil {
		return err
	}
	if risen = risen && o.combine(); risen {
		o.again = true
	}
	if err := out.Emit(c); err != nil || !o.again {
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

// raise moves the watermark of the split by the greatest value of the chunk alone. It is not done when that value has no watermark, though smaller ones may.
func (o *watermarkOp) raise(c *types.Chunk) (risen, done bool, err error) {
	if o.rising == nil {
		return false, false, nil
	}
	v := c.Cols[o.column]
	high := o.cur.high
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
	if high == o.cur.high {
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
	o.cur.high = high
	if x := m.Int[0]; x >= minTimestamp && (!o.cur.seen || x > o.cur.mark) {
		o.cur.mark, o.cur.seen, risen = x, true, true
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
		if x := v.Int[r]; x >= minTimestamp && x <= maxTimestamp && (!o.cur.seen || x > o.cur.mark) {
			o.cur.mark, o.cur.seen, risen = x, true, true
		}
	}
	return risen, nil
}

func (o *watermarkOp) Watermark(_ int, w Watermark, out Emitter) error {
	if w.Column == o.node.Watermark.Column {
		if w.Value != EndOfTime {
			return nil
		}
		o.again = false
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
