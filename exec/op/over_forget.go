package op

import (
	"slices"

	"github.com/streamdb/streamdb/types"
)

// settledBound returns the key in a partition that rows before the watermark of the last barrier are below of.
func (o *overOp) settledBound(p *overPart, mark int64) []byte {
	k := o.node.Over.Order[0]
	d := types.Datum{Type: o.ctx.InputTypes[0][k.Column], Int: mark}
	return types.AppendKeyDatum(slices.Clone(p.prefix), d, k.Desc, k.NullsFirst)
}

// lastSettled returns the last row of a partition that no change reaches any more, nil: there is none.
func (o *overOp) lastSettled(p *overPart) (*sortedRow, error) {
	var last *sortedRow
	err := o.rows.scanFrom(p.kg, p.prefix, o.settledBound(p, o.settled.mark), true, func(r *sortedRow) (bool, error) {
		last = &sortedRow{key: slices.Clone(r.key), count: r.count, ends: r.ends}
		return false, nil
	})
	return last, err
}

// forget drops the rows of a partition which no row that comes later reads: those that are not in reach of one at the watermark, but for the one before, from
// which running values go on. What is shown of them stays.
func (o *overOp) forget(p *overPart) error {
	if !o.settled.on || !o.settled.due && !o.settled.marked {
		return nil
	}
	mark := o.settled.mark
	if o.settled.due {
		mark = o.settled.next
	}
	t := &o.margin
	started, extra := false, false
	var drop [][]byte
	err := o.rows.scanFrom(p.kg, p.prefix, o.settledBound(p, mark), true, func(r *sortedRow) (bool, error) {
		in := false
		var err error
		if !extra {
			if !started {
				started = true
				err = t.startAt(r, &o.back, mark)
			}
			if err == nil {
				in, err = t.step(r)
			}
		}
		switch {
		case err != nil:
			return false, err
		case in:
		case !extra:
			extra = true
		default:
			drop = append(drop, slices.Clone(r.key))
		}
		return true, nil
	})
	if err != nil {
		return err
	}
	for _, k := range drop {
		if err := o.rows.table.remove(p.kg, k); err != nil {
			return err
		}
	}
	return nil
}

// startAt is start for a row that is to come: the first one that is not settled, which reads those before. Any row serves as r.
func (t *overTracker) startAt(r *sortedRow, reach *overReach, mark int64) error {
	if err := t.start(r, reach, true); err != nil || len(reach.ranges) == 0 {
		t.order = append(t.order[:0], 0xff)
		return err
	}
	t.order = append(t.order[:0], 0xff) // in no peer group that is there
	v := &types.Vector{Type: t.o.ctx.InputTypes[0][t.o.node.Over.Order[0].Column], Int: []int64{mark}}
	t.null, t.anchor = false, rangeValue(v, 0)
	t.limits, t.unlimited = t.limits[:0], t.unlimited[:0]
	for _, x := range reach.ranges {
		d, err := x.c.limit(t.o, t.anchor, x.b)
		t.limits, t.unlimited = append(t.limits, d), append(t.unlimited, err != nil)
	}
	return nil
}
