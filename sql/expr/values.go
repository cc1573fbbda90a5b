package expr

import "github.com/streamdb/streamdb/types"

// Set stores d, which is not NULL, at position i of v.
func Set(v *types.Vector, i int, d types.Datum) {
	switch v.Type.Kind() {
	case types.KindBool:
		v.Bool[i] = d.Bool
	case types.KindInt:
		v.Int[i] = d.Int
	case types.KindFloat:
		v.Float[i] = d.Float
	case types.KindString:
		v.Str[i] = d.Str
	case types.KindNumeric:
		v.Num[i] = d.Num
	case types.KindInterval:
		v.Ivl[i] = d.Ivl
	}
}

// copyRows copies rows of a to the same rows of dst, whose validity is valid (all set before).
func copyRows(dst *types.Vector, a Arg, rows []uint16) {
	if a.Valid == nil {
		copyValues(dst, a, rows)
		return
	}
	for _, r := range rows {
		i := int(r)
		if a.Null(i) {
			dst.SetNull(i)
			continue
		}
		dst.SetValue(i, a.Vector, a.At(i))
	}
}

func copyValues(dst *types.Vector, a Arg, rows []uint16) {
	switch dst.Type.Kind() {
	case types.KindBool:
		copySlice(dst.Bool, a.Bool, a.mask, rows)
	case types.KindInt:
		copySlice(dst.Int, a.Int, a.mask, rows)
	case types.KindFloat:
		copySlice(dst.Float, a.Float, a.mask, rows)
	case types.KindString:
		copySlice(dst.Str, a.Str, a.mask, rows)
	case types.KindNumeric:
		copySlice(dst.Num, a.Num, a.mask, rows)
	case types.KindInterval:
		copySlice(dst.Ivl, a.Ivl, a.mask, rows)
	}
}

func copySlice[E any](dst, src []E, mask int, rows []uint16) {
	for _, r := range rows {
		dst[r] = src[int(r)&mask]
	}
}

// result is a vector a node computes into.
type result struct {
	v     types.Vector
	valid types.Bitmap
}

// begin returns the vector with n rows, none NULL.
func (o *result) begin(t types.Type, n int) *types.Vector {
	if o.v.Valid != nil && len(o.v.Valid) > len(o.valid) {
		o.valid = o.v.Valid
	}
	o.v.Type, o.v.Valid = t, nil
	o.v.Resize(n)
	return &o.v
}

// bitmap gives the vector a validity bitmap with all bits set.
func (o *result) bitmap(n int) types.Bitmap {
	words := (n + 63) / 64
	if cap(o.valid) < words {
		o.valid = make(types.Bitmap, words)
	}
	o.valid = o.valid[:words]
	for i := range o.valid {
		o.valid[i] = ^uint64(0)
	}
	o.v.Valid = o.valid
	return o.valid
}

func constVector(d types.Datum) *types.Vector {
	v := &types.Vector{Type: d.Type}
	v.AppendDatum(d)
	return v
}
