package op

import (
	"bytes"
	"slices"

	"github.com/streamdb/streamdb/checkpoint"
	"github.com/streamdb/streamdb/planner/plan"
	"github.com/streamdb/streamdb/types"
)

// dynamicFilterOp keeps the rows of port 0 whose column compares with the value in the one row of port 1, which all subtasks get. Rows pass by the
// value of the last barrier at once. When a barrier finds another one, the rows between the two enter or leave.
//
// State: table 0 has the rows whose column is not NULL by that column (see sortedRows); table 1, once per key group so that it moves with them, "s" → key
// form of the value that rows pass by, not there while it is NULL or there is no row.
type dynamicFilterOp struct {
	base
	rows   sortedRows
	scalar table
	above  bool // rows above the bound pass, otherwise those below
	after  bool // the bound is behind the value: equal rows are below

	value   []byte           // key form; nil: none
	values  map[string]int64 // of the epoch, by key form
	changed bool             // since the last checkpoint

	sel   []uint16
	shown types.Chunk
	out   *outBuf
	key   []byte
}

var _ Operator = (*dynamicFilterOp)(nil)

var scalarKey = []byte("s")

func (o *dynamicFilterOp) Open(ctx *Context) error {
	o.ctx = ctx
	f := o.node.DynamicFilter
	o.above = f.Op == ">" || f.Op == ">="
	o.after = f.Op == ">" || f.Op == "<="
	o.values = map[string]int64{}
	o.out = newOutBuf(o.node.Schema.Types())
	o.rows.order, o.rows.spread = []plan.SortKey{{Column: f.Column}}, f.Spread
	if err := o.rows.open(ctx, o.node, 0); err != nil {
		return err
	}
	var err error
	if o.scalar, err = openTable(ctx, o.node, 1, orderedMode); err != nil {
		return err
	}
	err = o.scalar.scanAll(func(_ uint16, _, v []byte) error {
		o.value = slices.Clone(v)
		return nil
	})
	if o.value != nil {
		o.values[string(o.value)] = 1
	}
	return err
}

// bound returns the least key of a row above the value, with nil the end of all keys.
func (o *dynamicFilterOp) bound(value []byte) []byte {
	switch {
	case value == nil && o.above:
		return nil
	case value == nil:
		return []byte{}
	case o.after:
		return types.KeySuccessor(value)
	}
	return value
}

func (o *dynamicFilterOp) Process(port int, c *types.Chunk, out Emitter) error {
	f := o.node.DynamicFilter
	if port == 1 {
		v := c.Cols[f.Scalar]
		for i := range c.Rows() {
			r := c.Row(i)
			if v.IsNull(r) {
				continue
			}
			o.key = types.AppendKey(o.key[:0], v, r, false, false)
			if n := o.values[string(o.key)] + c.Weight(r); n == 0 {
				delete(o.values, string(o.key))
			} else {
				o.values[string(o.key)] = n
			}
		}
		return nil
	}
	o.rows.begin(c)
	bound := o.bound(o.value)
	if o.sel == nil {
		o.sel = make([]uint16, 0, types.MaxChunkRows)
	}
	o.sel = o.sel[:0]
	v := c.Cols[f.Column]
	for i := range c.Rows() {
		r := c.Row(i)
		if v.IsNull(r) {
			continue
		}
		kg, _ := o.rows.locate(c, r)
		if isAbove := bound != nil && bytes.Compare(o.rows.key, bound) >= 0; isAbove == o.above {
			o.sel = append(o.sel, uint16(r))
		}
		if err := o.rows.add(kg, c.Weight(r)); err != nil {
			return err
		}
	}
	if len(o.sel) == 0 {
		return nil
	}
	o.shown = types.Chunk{Cols: c.Cols, N: c.N, Sel: o.sel, Weights: c.Weights}
	return out.Emit(&o.shown)
}

func (o *dynamicFilterOp) Barrier(b checkpoint.Barrier, out Emitter) error {
	var now []byte
	for k, n := range o.values {
		if n > 0 {
			now = []byte(k)
		}
	}
	if !bytes.Equal(now, o.value) || (now == nil) != (o.value == nil) {
		if err := o.move(now, out); err != nil {
			return err
		}
	}
	if b.Checkpoint == 0 || !o.changed || o.scalar.part == nil {
		return nil
	}
	o.changed = false
	for kg := o.ctx.Groups.From; kg < o.ctx.Groups.To; kg++ {
		var err error
		if o.value == nil {
			err = o.scalar.del(kg, scalarKey)
		} else {
			err = o.scalar.put(kg, scalarKey, o.value)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// move makes rows pass by another value.
func (o *dynamicFilterOp) move(value []byte, out Emitter) error {
	from, to := o.bound(o.value), o.bound(value)
	o.value, o.changed = value, true
	rises := from != nil && (to == nil || bytes.Compare(from, to) < 0)
	weight := int64(1)
	if rises == o.above {
		weight = -1
	}
	if !rises {
		from, to = to, from
	}
	if from == nil {
		return nil
	}
	first, last := uint16(0), uint16(1)
	if o.rows.table.part != nil {
		first, last = o.ctx.Groups.From, o.ctx.Groups.To
	}
	for kg := first; kg < last; kg++ {
		n := 0
		err := o.rows.scanFrom(kg, nil, from, false, func(r *sortedRow) (bool, error) {
			if to != nil && bytes.Compare(r.key, to) >= 0 {
				return false, nil
			}
			if _, err := types.DecodeRow(r.row(), o.out.c.Cols); err != nil {
				return false, err
			}
			if n++; n%cancelPollRows == 0 {
				if err := o.cancelled(); err != nil {
					return false, err
				}
			}
			return true, o.out.push(weight*r.count, out)
		})
		if err != nil {
			return err
		}
	}
	return o.out.flush(out)
}
