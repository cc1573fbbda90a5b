package op

import (
	"encoding/binary"
	"math"
	"sync/atomic"

	"github.com/streamdb/streamdb/checkpoint"
	"github.com/streamdb/streamdb/sql/expr"
	"github.com/streamdb/streamdb/types"
)

// temporalOp lets rows in and out as the clock moves (see plan.Temporal). Rows that come are judged by the clock as of the last barrier; a barrier moves it,
// and the rows whose time has come enter or leave. State has the rows with a change to come only.
//
// State: table 0, encoded row → varint count; table 1 (see dueQueue), the row by each moment that changes it, with from and until, 8 bytes each; table 2,
// the clock (see markTable).
type temporalOp struct {
	base
	bound  *expr.Program
	errs   rowFailures
	rows   table
	queue  dueQueue
	clock  markTable
	now    int64 // µs since 2000-01-01 UTC
	due    atomic.Int64
	hash   []uint64
	tie    []int
	sel    []uint16
	key    []byte
	val    []byte
	shown  types.Chunk
	outBuf *outBuf
}

var (
	_ Operator = (*temporalOp)(nil)
	_ Timed    = (*temporalOp)(nil)
)

// Timed is an operator that has something to do when the clock reaches a moment, though no row comes.
type Timed interface {
	// NextDue returns that moment, in µs since 2000-01-01 UTC, math.MaxInt64 when there is none. Any goroutine may ask.
	NextDue() int64
}

func (o *temporalOp) NextDue() int64 { return o.due.Load() }

func (o *temporalOp) Open(ctx *Context) error {
	o.ctx, o.now = ctx, ctx.Now
	o.due.Store(math.MaxInt64)
	o.tie = inputKey(o.node, 0, len(ctx.InputTypes[0]))
	o.outBuf = newOutBuf(o.node.Schema.Types())
	var err error
	if o.bound, err = expr.Compile(o.node.Temporal.Bound, ctx.Lib); err != nil {
		return err
	}
	if o.rows, err = openTable(ctx, o.node, 0, orderedMode); err != nil {
		return err
	}
	if err = o.queue.open(ctx, o.node, 1); err != nil {
		return err
	}
	if err = o.clock.open(ctx, o.node, 2, func(m int64) { o.now = max(o.now, m) }); err != nil {
		return err
	}
	o.due.Store(o.queue.next())
	return nil
}

// span returns when row r is shown: from is inclusive, until is not. The bound is not NULL.
func (o *temporalOp) span(v *types.Vector, r int) (from, until int64) {
	x := v.Int[r]
	if o.node.Temporal.After && x < math.MaxInt64 && x > math.MinInt64 {
		x++
	}
	if o.node.Temporal.Leaves {
		return math.MinInt64, x
	}
	return x, math.MaxInt64
}

func (o *temporalOp) Process(_ int, c *types.Chunk, out Emitter) error {
	if c.Rows() == 0 {
		return nil
	}
	o.errs.errs.Reset()
	v, err := o.bound.Eval(c, o.ctx.Env, &o.errs.errs)
	if err != nil {
		return err
	}
	good, err := o.errs.divert(&o.base, c)
	if err != nil {
		return err
	}
	in := *c
	if good != nil {
		in.Sel = good
	}
	o.hash = hashesOf(o.hash, c, o.tie)
	if o.sel == nil {
		o.sel = make([]uint16, 0, types.MaxChunkRows)
	}
	o.sel = o.sel[:0]
	for i := range in.Rows() {
		r := in.Row(i)
		if v.IsNull(r) {
			continue
		}
		from, until := o.span(v, r)
		if from <= o.now && o.now < until {
			o.sel = append(o.sel, uint16(r))
		}
		if o.now < from && from != math.MaxInt64 || o.now < until && until != math.MaxInt64 {
			if err := o.keep(c, r, from, until); err != nil {
				return err
			}
		}
	}
	if len(o.sel) == 0 {
		return nil
	}
	o.shown = types.Chunk{Cols: c.Cols, N: c.N, Sel: o.sel, Weights: c.Weights}
	return out.Emit(&o.shown)
}

// keep adds a row that will change to state, or takes it out.
func (o *temporalOp) keep(c *types.Chunk, r int, from, until int64) error {
	kg := keyGroup(o.ctx, o.hash[r])
	o.key = types.AppendRow(o.key[:0], c.Cols, r)
	if err := addCount(&o.rows, o.node, kg, o.key, c.Weight(r)); err != nil {
		return err
	}
	_, there, err := o.rows.get(kg, o.key)
	if err != nil {
		return err
	}
	o.val = binary.BigEndian.AppendUint64(binary.BigEndian.AppendUint64(o.val[:0], uint64(from)), uint64(until))
	for _, at := range [2]int64{from, until} {
		switch {
		case at <= o.now || at == math.MaxInt64:
		case there:
			err = o.queue.put(kg, at, o.key, o.val)
		default:
			err = o.queue.del(kg, at, o.key)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

func (o *temporalOp) Barrier(b checkpoint.Barrier, out Emitter) error {
	if b.Now > o.now {
		was := o.now
		o.now, o.clock.changed = b.Now, true
		err := o.queue.take(o.now, func(kg uint16, due int64, row, span []byte) error { return o.turn(kg, due, was, row, span, out) })
		if err != nil {
			return err
		}
		if err := o.outBuf.flush(out); err != nil {
			return err
		}
	}
	o.due.Store(o.queue.next())
	if b.Checkpoint == 0 {
		return nil
	}
	return o.clock.save(o.now)
}

// turn lets a row in or out whose time has come since the clock showed was.
func (o *temporalOp) turn(kg uint16, due, was int64, row, span []byte, out Emitter) error {
	v, ok, err := o.rows.get(kg, row)
	if err != nil || !ok {
		return err
	}
	n, k := binary.Varint(v)
	if k <= 0 || len(span) != 16 {
		return errCorruptState(o.node)
	}
	from, until := int64(binary.BigEndian.Uint64(span)), int64(binary.BigEndian.Uint64(span[8:]))
	emit := func(weight int64) error {
		if _, err := types.DecodeRows(string(row), 1, o.outBuf.c.Cols); err != nil {
			return err
		}
		return o.outBuf.push(weight, out)
	}
	last := due == until || until == math.MaxInt64
	if last {
		if err := o.rows.del(kg, row); err != nil {
			return err
		}
	}
	switch {
	case due == until && from <= was:
		return emit(-n)
	case due == from && until > o.now:
		return emit(n)
	}
	return o.cancelled()
}
