package op

import (
	"encoding/binary"
	"slices"

	"github.com/tidwall/btree"

	"github.com/streamdb/streamdb/types"
)

// accumulator makes a running value of rows of a partition from the first one on.
type accumulator interface {
	// load takes up a value that save wrote; empty: no rows.
	load(b []byte) error
	// feed adds row k of the span.
	feed(o *overOp, k int) error
	save(dst []byte) []byte
	// final appends the result to dst; NULL when it fails.
	final(dst *types.Vector) (failed, fatal error)
}

// aggAcc is an aggregate.
type aggAcc struct{ c *overCall }

func (a *aggAcc) load(b []byte) error {
	a.c.begin()
	if len(b) == 0 {
		return nil
	}
	return a.c.agg.loadOnly(b)
}

func (a *aggAcc) feed(o *overOp, k int) error { return a.c.feed(o, k, 1) }

func (a *aggAcc) save(dst []byte) []byte { return a.c.agg.appendOnly(dst) }

func (a *aggAcc) final(dst *types.Vector) (failed, fatal error) { return a.c.final(dst) }

// clearOnly empties the one group of an aggregation without group columns.
func (o *aggOp) clearOnly() {
	row := o.groups.row(0)
	clear(row[aggWords:o.groups.tail])
	if o.hasVar {
		clear(o.vars[0])
	}
	for _, s := range o.distinct {
		s.reset()
	}
	if o.side.mem != nil && o.side.mem.Len() > 0 {
		o.side.mem = btree.NewMap[string, []byte](0)
	}
}

// appendOnly appends the state of the one group.
func (o *aggOp) appendOnly(dst []byte) []byte {
	for _, w := range o.groups.row(0)[aggWords:o.groups.tail] {
		dst = binary.AppendVarint(dst, int64(w))
	}
	for j, call := range o.calls {
		if call.variable() {
			dst = o.vars[0][j].encode(dst)
		}
	}
	return dst
}

// loadOnly sets the state of the one group, of a single call.
func (o *aggOp) loadOnly(b []byte) error {
	r := byteReader{b: b}
	row := o.groups.row(0)
	for i := range row[aggWords:o.groups.tail] {
		row[aggWords+i] = uint64(r.varint())
	}
	if r.bad || len(r.b) > 0 && (!o.hasVar || !o.vars[0][0].decode(r.b)) {
		return errCorruptState(o.node)
	}
	return nil
}

// valueAcc is the first or the last value, with IGNORE NULLS of those that are not NULL. Its saved form is empty without rows, then an encoded row.
type valueAcc struct {
	arg         int
	ignoreNulls bool
	last        bool
	row         []byte
	vec         [1]*types.Vector
}

func (a *valueAcc) load(b []byte) error {
	a.row = append(a.row[:0], b...)
	return nil
}

func (a *valueAcc) feed(o *overOp, k int) error {
	v := o.span.part.Cols[a.arg]
	if len(a.row) > 0 && !a.last || a.ignoreNulls && v.IsNull(k) {
		return nil
	}
	a.vec[0] = v
	a.row = types.AppendRow(a.row[:0], a.vec[:], k)
	return nil
}

func (a *valueAcc) save(dst []byte) []byte { return append(dst, a.row...) }

func (a *valueAcc) final(dst *types.Vector) (failed, fatal error) {
	if len(a.row) == 0 {
		dst.AppendNull()
		return nil, nil
	}
	a.vec[0] = dst
	_, err := types.DecodeRow(slices.Clone(a.row), a.vec[:])
	return nil, err
}

// nthAcc is the nth value, with IGNORE NULLS of those that are not NULL. Its saved form is the number of values up to n, then the encoded row of the nth.
type nthAcc struct {
	valueAcc
	n, seen int64
}

func (a *nthAcc) load(b []byte) error {
	r := byteReader{b: b}
	if a.seen = 0; len(b) > 0 {
		a.seen = r.varint()
	}
	return a.valueAcc.load(r.b)
}

func (a *nthAcc) feed(o *overOp, k int) error {
	if a.seen >= a.n || a.ignoreNulls && o.span.part.Cols[a.arg].IsNull(k) {
		return nil
	}
	if a.seen++; a.seen < a.n {
		return nil
	}
	return a.valueAcc.feed(o, k)
}

func (a *nthAcc) save(dst []byte) []byte { return a.valueAcc.save(binary.AppendVarint(dst, a.seen)) }

// distanceAcc is how far lag or lead reads back and ahead at most. Nothing shows it.
type distanceAcc struct {
	arg         int
	lag         bool
	back, ahead int64
}

func (a *distanceAcc) load(b []byte) error {
	r := byteReader{b: b}
	if a.back, a.ahead = 0, 0; len(b) > 0 {
		a.back, a.ahead = r.varint(), r.varint()
	}
	return nil
}

func (a *distanceAcc) feed(o *overOp, k int) error {
	v := o.span.part.Cols[a.arg]
	if v.IsNull(k) {
		return nil
	}
	if d := v.Int[k]; d < 0 == a.lag {
		a.ahead = max(a.ahead, d, -d)
	} else {
		a.back = max(a.back, d, -d)
	}
	return nil
}

func (a *distanceAcc) save(dst []byte) []byte {
	return binary.AppendVarint(binary.AppendVarint(dst, a.back), a.ahead)
}

func (*distanceAcc) final(*types.Vector) (failed, fatal error) { return nil, nil }
