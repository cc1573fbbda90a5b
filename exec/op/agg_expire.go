package op

import (
	"math"
	"sync/atomic"

	"github.com/streamdb/streamdb/checkpoint"
	"github.com/streamdb/streamdb/types"
)

// expiringAggOp is an aggregation of rows that are only added, which drops groups that were not changed for a time, and retracts what it showed of them. A row that comes
// for such a group later begins it anew.
//
// State besides that of aggOp: a word per group, the time of its last change; table 3 (see dueQueue), the groups by a time before which they need not be looked at, with
// the encoded values of their keys.
type expiringAggOp struct {
	aggOp
	queue dueQueue
	last  int // word of a group's last change
	now   int64
	at    atomic.Int64
	one   *types.Chunk
}

var (
	_ Operator = (*expiringAggOp)(nil)
	_ Timed    = (*expiringAggOp)(nil)
)

// NextDue implements Timed.
func (o *expiringAggOp) NextDue() int64 { return o.at.Load() }

func (o *expiringAggOp) Open(ctx *Context) error {
	o.extra, o.now = 1, ctx.Now
	o.at.Store(math.MaxInt64)
	if err := o.aggOp.Open(ctx); err != nil {
		return err
	}
	o.last = o.groups.tail - 1
	o.one = types.NewChunk(o.keyTypes)
	if err := o.queue.open(ctx, o.node, 3); err != nil {
		return err
	}
	o.at.Store(o.queue.next())
	return nil
}

func (o *expiringAggOp) Barrier(b checkpoint.Barrier, out Emitter) error {
	o.now = max(o.now, b.Now)
	changed := o.ctx.time(o.now)
	for _, g := range o.dirty {
		row := o.groups.row(g)
		row[o.last] = uint64(changed)
		if row[aggFlags]&(flagQueued|flagStored) != 0 {
			continue
		}
		row[aggFlags] |= flagQueued
		if err := o.enqueue(row, after(changed, o.node.Agg.TTL)); err != nil {
			return err
		}
	}
	if err := o.queue.take(o.now, o.expire); err != nil {
		return err
	}
	if err := o.aggOp.Barrier(b, out); err != nil {
		return err
	}
	o.at.Store(o.queue.next())
	return nil
}

func (o *expiringAggOp) enqueue(row []uint64, due int64) error {
	for _, v := range o.one.Cols {
		v.Reset()
	}
	if err := o.groups.appendValues(row, o.one.Cols); err != nil {
		return err
	}
	o.key = o.groups.appendKey(o.key[:0], row)
	o.val = types.AppendRow(o.val[:0], o.one.Cols, 0)
	return o.queue.put(keyGroup(o.ctx, row[rowHash]), due, o.key, o.val)
}

// expire empties a group whose time is over: the aggregation then drops it as one that has lost its last row. Groups that changed since they were put into the queue
// are put back.
func (o *expiringAggOp) expire(kg uint16, _ int64, name, values []byte) error {
	for _, v := range o.one.Cols {
		v.Reset()
	}
	if _, err := types.DecodeRow(values, o.one.Cols); err != nil {
		return err
	}
	o.one.N = 1
	var at [1]uint32
	cols := identity(len(o.keyTypes))
	if err := o.groups.lookup(o.one, cols, at[:], o.added); err != nil {
		return err
	}
	g := at[0]
	row := o.groups.row(g)
	if due := after(int64(row[o.last]), o.node.Agg.TTL); due > o.now {
		return o.queue.put(kg, due, name, values)
	}
	if uint32(row[aggFlags]) != o.epoch {
		if err := o.touch(g, row); err != nil {
			return err
		}
	}
	if err := o.dropSide(g, row); err != nil {
		return err
	}
	row[aggCount] = 0
	return o.cancelled()
}

// after returns the moment span µs after now.
func after(now, span int64) int64 {
	if now > math.MaxInt64-1-span {
		return math.MaxInt64 - 1
	}
	return now + span
}
