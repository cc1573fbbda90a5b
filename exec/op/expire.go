package op

import (
	"encoding/binary"
	"math"
	"slices"
	"sync/atomic"

	"github.com/streamdb/streamdb/checkpoint"
	"github.com/streamdb/streamdb/types"
)

// expireOp passes rows on and takes them back when they have not been changed for a time, each on its own or those of a group together (see plan.Expire). The count of a
// row that it knows is never below zero: retractions of rows that it has dropped are dropped too. Within an epoch a retraction may come before its insertion; what
// is still owed at the barrier was dropped before.
//
// State: table 0, encoded row → due (8 bytes), varint count; of groups: key of the group, encoded row → varint count. Table 1 (see dueQueue), the rows or groups by the
// moment at which they are due. Table 2, key of the group → due (8 bytes), varint number of its rows.
type expireOp struct {
	base
	rows, units table
	queue       dueQueue
	now         int64 // µs since 2000-01-01 UTC
	at          atomic.Int64
	owed        []owedRow
	added       bool // rows are only added
	hash        []uint64
	sel         []uint16
	weights     []int64
	group       []*types.Vector
	key, val    []byte
	shown       types.Chunk
	outBuf      *outBuf
}

type owedRow struct {
	kg  uint16
	key []byte
}

var (
	_ Operator = (*expireOp)(nil)
	_ Timed    = (*expireOp)(nil)
)

// NextDue implements Timed.
func (o *expireOp) NextDue() int64 { return o.at.Load() }

func (o *expireOp) Open(ctx *Context) error {
	o.ctx, o.now = ctx, ctx.Now
	o.at.Store(math.MaxInt64)
	o.outBuf = newOutBuf(o.node.Schema.Types())
	o.added = o.node.Inputs[0].AppendOnly && o.node.Inputs[0].Key != nil
	var err error
	if o.rows, err = openTable(ctx, o.node, 0, orderedMode); err != nil {
		return err
	}
	if err = o.queue.open(ctx, o.node, 1); err != nil {
		return err
	}
	if o.node.Expire.Groups {
		if o.units, err = openTable(ctx, o.node, 2, orderedMode); err != nil {
			return err
		}
	}
	o.at.Store(o.queue.next())
	return nil
}

func (o *expireOp) Watermark(_ int, w Watermark, out Emitter) error { return out.EmitWatermark(w) }

func (o *expireOp) Process(_ int, c *types.Chunk, out Emitter) error {
	n := c.Rows()
	if n == 0 {
		return nil
	}
	o.hash, o.sel = hashesOf(o.hash, c, o.node.Expire.Spread), o.sel[:0]
	if len(o.weights) < c.N {
		o.weights = make([]int64, max(c.N, types.MaxChunkRows))
	}
	o.group = pick(o.group, c, o.node.Expire.GroupBy)
	due := after(o.ctx.time(o.now), o.node.Expire.TTL)
	same := true
	for i := range n {
		r := c.Row(i)
		shown, err := o.take(c, r, keyGroup(o.ctx, o.hash[r]), due)
		if err != nil {
			return err
		}
		if same = same && shown == c.Weight(r); shown != 0 {
			o.sel = append(o.sel, uint16(r))
			o.weights[r] = shown
		}
	}
	if same {
		return out.Emit(c)
	}
	if len(o.sel) == 0 {
		return nil
	}
	o.shown = types.Chunk{Cols: c.Cols, N: c.N, Sel: o.sel, Weights: o.weights[:c.N]}
	return out.Emit(&o.shown)
}

// take notes a change of row r and returns what of it is passed on.
func (o *expireOp) take(c *types.Chunk, r int, kg uint16, due int64) (shown int64, err error) {
	o.key = o.key[:0]
	if o.node.Expire.Groups {
		o.key = types.AppendKeyRow(o.key, o.group, r)
	}
	unit := len(o.key)
	o.key = types.AppendRow(o.key, c.Cols, r)
	var old dueCount
	if !o.added {
		if old, err = o.get(&o.rows, kg, o.key, !o.node.Expire.Groups); err != nil {
			return 0, err
		}
	}
	is := dueCount{due: due, n: old.n + c.Weight(r)}
	shown = max(is.n, 0) - max(old.n, 0)
	if is.n < 0 && old.n >= 0 {
		o.owed = append(o.owed, owedRow{kg, slices.Clone(o.key)})
	}
	if is.n == 0 {
		err = o.rows.del(kg, o.key)
	} else {
		o.val = is.encode(o.val[:0], !o.node.Expire.Groups)
		err = o.rows.append(kg, o.key, o.val, o.added)
	}
	if err != nil || shown == 0 {
		return shown, err
	}
	if !o.node.Expire.Groups {
		return shown, o.move(kg, o.key, old, is)
	}
	return shown, o.changed(kg, o.key[:unit], due, shown)
}

// changed notes that rows of a group came or went.
func (o *expireOp) changed(kg uint16, group []byte, due, rows int64) error {
	old, err := o.get(&o.units, kg, group, true)
	if err != nil {
		return err
	}
	is := dueCount{due: due, n: old.n + rows}
	if is.n == 0 {
		err = o.units.del(kg, group)
	} else {
		o.val = is.encode(o.val[:0], true)
		err = o.units.put(kg, group, o.val)
	}
	if err != nil {
		return err
	}
	return o.move(kg, group, old, is)
}

// move brings the entry of a row or group in the queue to its place.
func (o *expireOp) move(kg uint16, name []byte, old, is dueCount) error {
	was, will := old.n > 0, is.n > 0
	if was && will && old.due == is.due {
		return nil
	}
	if was {
		if err := o.queue.del(kg, old.due, name); err != nil {
			return err
		}
	}
	if will {
		return o.queue.put(kg, is.due, name, nil)
	}
	return nil
}

// get returns the value of a row or group, zero when it is not there.
func (o *expireOp) get(t *table, kg uint16, key []byte, timed bool) (d dueCount, err error) {
	v, ok, err := t.get(kg, key)
	if err == nil && ok && !d.decode(v, timed) {
		err = errCorruptState(o.node)
	}
	return d, err
}

// dueCount is the value of a row or group: how often it is there, and until when.
type dueCount struct {
	due, n int64
}

func (d dueCount) encode(dst []byte, timed bool) []byte {
	if timed {
		dst = binary.BigEndian.AppendUint64(dst, uint64(d.due))
	}
	return binary.AppendVarint(dst, d.n)
}

func (d *dueCount) decode(b []byte, timed bool) bool {
	if timed {
		if len(b) < 8 {
			return false
		}
		d.due, b = int64(binary.BigEndian.Uint64(b)), b[8:]
	}
	n, k := binary.Varint(b)
	d.n = n
	return k > 0
}

func (o *expireOp) Barrier(b checkpoint.Barrier, out Emitter) error {
	o.now = max(o.now, b.Now)
	for _, w := range o.owed {
		n, err := o.count(w.kg, w.key)
		if err == nil && n < 0 {
			err = o.rows.del(w.kg, w.key)
		}
		if err != nil {
			return err
		}
	}
	clear(o.owed)
	o.owed = o.owed[:0]
	err := o.queue.take(o.now, func(kg uint16, _ int64, name, _ []byte) error {
		if o.node.Expire.Groups {
			return o.dropGroup(kg, name, out)
		}
		return o.drop(kg, name, 0, out)
	})
	if err != nil {
		return err
	}
	o.at.Store(o.queue.next())
	return o.outBuf.flush(out)
}

func (o *expireOp) count(kg uint16, key []byte) (int64, error) {
	d, err := o.get(&o.rows, kg, key, !o.node.Expire.Groups)
	return d.n, err
}

// drop takes back a row, whose key in state begins with that of its group, of some length.
func (o *expireOp) drop(kg uint16, key []byte, group int, out Emitter) error {
	n, err := o.count(kg, key)
	if err != nil || n <= 0 {
		return err
	}
	if err := o.rows.del(kg, key); err != nil {
		return err
	}
	if _, err := types.DecodeRows(string(key[group:]), 1, o.outBuf.c.Cols); err != nil {
		return err
	}
	if err := o.outBuf.push(-n, out); err != nil {
		return err
	}
	return o.cancelled()
}

// dropGroup takes back the rows of a group.
func (o *expireOp) dropGroup(kg uint16, group []byte, out Emitter) error {
	var keys [][]byte
	err := o.rows.scan(kg, group, false, func(k, _ []byte) (bool, error) {
		keys = append(keys, slices.Clone(k))
		return true, nil
	})
	if err != nil {
		return err
	}
	for _, k := range keys {
		if err := o.drop(kg, k, len(group), out); err != nil {
			return err
		}
	}
	return o.units.del(kg, group)
}
