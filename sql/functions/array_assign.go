package functions

import (
	"slices"
	"strconv"
	"strings"

	"github.com/streamdb/streamdb/internal/pgerr"
	"github.com/streamdb/streamdb/types"
)

// arrayAssignFunctions lists what assignments to parts of a column compute: the column's new value.
func arrayAssignFunctions() []entry {
	own := func(id, sig, doc string, fn func(c *call) error) entry {
		return entry{id: id, sig: sig, doc: doc, impl: impl{kernel: each(fn)}}
	}
	return []entry{
		own("$set_element(anyarray,anyelement,int4)", "anyarray f f i v", "array with one element replaced: SET a[i] = v, a[i][j] = v", setElement),
		own("$set_slice(anyarray,anyarray,int4)", "anyarray f f i v", "array with a part replaced: which bounds are given, lower and upper bound per dimension", setSlice),
		own("$set_member(jsonb,jsonb,bool,text)", "jsonb f f i v", "jsonb with what stands at a path replaced: SET j['k'][0] = v; whether the path begins with a number", setMemberAt),
	}
}

func errNullSubscript() error {
	return pgerr.Newf(pgerr.NullValueNotAllowed, "array subscript in assignment must not be null")
}

func errArraySize() error {
	return pgerr.Newf(pgerr.ProgramLimitExceeded, "array size exceeds the maximum allowed (134217727)")
}

// base returns the array that an assignment changes, in storage of its own; NULL counts as empty.
func (c *call) base() (types.Array, error) {
	if c.null(0) {
		t, _ := c.out.Type.Elem()
		return types.Array{Elem: t.OID}, nil
	}
	a, err := c.array(0)
	a.Dims = slices.Clone(a.Dims)
	return a, err
}

// grow extends the one-dimensional array a with NULLs until it has the subscripts lo to hi.
func grow(a *types.Array, lo, hi int64) error {
	d := &a.Dims[0]
	first, end := int64(d.Lower), int64(d.Lower)+int64(d.Len)
	before, after := max(0, first-lo), max(0, hi+1-end)
	n := before + int64(d.Len) + after
	if n > maxResultBytes/16 {
		return errArraySize()
	}
	null := types.Datum{Type: types.T(a.Elem), Null: true}
	elems := make([]types.Datum, 0, n)
	elems = append(elems, slices.Repeat([]types.Datum{null}, int(before))...)
	elems = append(elems, a.Elems...)
	a.Elems = append(elems, slices.Repeat([]types.Datum{null}, int(after))...)
	d.Len, d.Lower = int32(n), int32(first-before)
	return nil
}

func setElement(c *call) error {
	var subs []int64
	for i := 2; i < len(c.args); i++ {
		if c.null(i) {
			return errNullSubscript()
		}
		subs = append(subs, c.int(i))
	}
	a, err := c.base()
	if err != nil {
		return err
	}
	v := c.datum(1)
	v.Type = types.T(a.Elem)
	if len(a.Dims) == 0 {
		for _, s := range subs {
			a.Dims = append(a.Dims, types.Dim{Len: 1, Lower: int32(s)})
		}
		a.Elems = []types.Datum{v}
		return c.setStr(types.EncodeArray(a))
	}
	if len(a.Dims) != len(subs) {
		return pgerr.Newf(pgerr.ArraySubscriptError, "wrong number of array subscripts")
	}
	if len(subs) == 1 {
		if err := grow(&a, subs[0], subs[0]); err != nil {
			return err
		}
	}
	at := int64(0)
	for i, d := range a.Dims {
		k := subs[i] - int64(d.Lower)
		if k < 0 || k >= int64(d.Len) {
			return pgerr.Newf(pgerr.ArraySubscriptError, "array subscript out of range")
		}
		at = at*int64(d.Len) + k
	}
	a.Elems[at] = v
	return c.setStr(types.EncodeArray(a))
}

// bounds are the subscripts of one dimension that an assignment to a slice names.
type bounds struct {
	lo, hi             int64
	hasLower, hasUpper bool
}

func (c *call) sliceBounds() ([]bounds, error) {
	var out []bounds
	for i := 2; i+2 < len(c.args); i += 3 {
		b := bounds{hasLower: c.int(i)&SliceLower != 0, hasUpper: c.int(i)&SliceUpper != 0}
		if b.hasLower && c.null(i+1) || b.hasUpper && c.null(i+2) {
			return nil, errNullSubscript()
		}
		if b.hasLower {
			b.lo = c.int(i + 1)
		}
		if b.hasUpper {
			b.hi = c.int(i + 2)
		}
		out = append(out, b)
	}
	return out, nil
}

func setSlice(c *call) error {
	given, err := c.sliceBounds()
	if err != nil {
		return err
	}
	a, err := c.base()
	if err != nil {
		return err
	}
	if c.null(1) {
		return c.setStr(types.EncodeArray(a)) // no value: nothing changes
	}
	src, err := c.array(1)
	if err != nil {
		return err
	}
	if len(a.Dims) == 0 {
		return c.setNewSlice(a.Elem, given, src.Elems)
	}
	if len(a.Dims) < len(given) {
		return pgerr.Newf(pgerr.ArraySubscriptError, "wrong number of array subscripts")
	}
	part := make([]bounds, len(a.Dims))
	n := int64(1)
	for i, d := range a.Dims {
		p := &part[i]
		if i < len(given) {
			*p = given[i]
		}
		if !p.hasLower {
			p.lo = int64(d.Lower)
		}
		if !p.hasUpper {
			p.hi = int64(d.Lower) + int64(d.Len) - 1
		}
		if p.lo > p.hi {
			return pgerr.Newf(pgerr.ArraySubscriptError, "upper bound cannot be less than lower bound")
		}
		if len(part) > 1 && (p.lo < int64(d.Lower) || p.hi >= int64(d.Lower)+int64(d.Len)) {
			return pgerr.Newf(pgerr.ArraySubscriptError, "array subscript out of range")
		}
		n *= p.hi - p.lo + 1
	}
	if len(part) == 1 {
		if err := grow(&a, part[0].lo, part[0].hi); err != nil {
			return err
		}
	}
	if int64(len(src.Elems)) < n {
		return pgerr.Newf(pgerr.ArraySubscriptError, "source array too small")
	}
	from := src.Elems
	var fill func(dim, at int)
	fill = func(dim, at int) {
		d := a.Dims[dim]
		at = at*int(d.Len) + int(part[dim].lo) - int(d.Lower)
		width := int(part[dim].hi - part[dim].lo + 1)
		if dim == len(part)-1 {
			from = from[copy(a.Elems[at:at+width], from):]
			return
		}
		for k := range width {
			fill(dim+1, at+k)
		}
	}
	fill(0, 0)
	return c.setStr(types.EncodeArray(a))
}

// setNewSlice makes the array of an assignment to a slice of an empty one.
func (c *call) setNewSlice(elem types.OID, given []bounds, src []types.Datum) error {
	out, n := types.Array{Elem: elem}, int64(1)
	for _, b := range given {
		if !b.hasLower || !b.hasUpper {
			return pgerr.Newf(pgerr.ArraySubscriptError, "array slice subscript must provide both boundaries").
				WithDetail("When assigning to a slice of an empty array value, slice boundaries must be fully specified.")
		}
		size := b.hi - b.lo + 1
		if size < 0 || size > maxResultBytes || n*size > maxResultBytes/16 {
			return errArraySize()
		}
		n *= size
		out.Dims = append(out.Dims, types.Dim{Len: int32(size), Lower: int32(b.lo)})
	}
	if int64(len(src)) < n {
		return pgerr.Newf(pgerr.ArraySubscriptError, "source array too small")
	}
	if n == 0 {
		out.Dims = nil
	}
	out.Elems = src[:n]
	return c.setStr(types.EncodeArray(out))
}

// setMemberAt is an assignment to a part of a jsonb value: what the path names is created where it is missing.
func setMemberAt(c *call) error {
	var path []string
	for i := 3; i < len(c.args); i++ {
		if c.null(i) {
			return pgerr.Newf(pgerr.NullValueNotAllowed, "jsonb subscript in assignment must not be null")
		}
		path = append(path, c.str(i))
	}
	v := types.JSONTree{Kind: types.JSONNull}
	if !c.null(1) {
		var err error
		if v, err = types.ParseJSON(c.str(1)); err != nil {
			return err
		}
	}
	j := types.JSONTree{Kind: types.JSONObject}
	if !c.null(0) {
		var err error
		if j, err = types.ParseJSON(c.str(0)); err != nil {
			return err
		}
	} else if c.bool(2) {
		j.Kind = types.JSONArray
	}
	if err := assignPath(&j, path, 0, v); err != nil {
		return err
	}
	return c.setStr(j.String())
}

// assignPath puts v at path[at:] of j.
func assignPath(j *types.JSONTree, path []string, at int, v types.JSONTree) error {
	if at == len(path) {
		*j = v
		return nil
	}
	switch j.Kind {
	case types.JSONObject:
		if m, ok := j.Get(path[at]); ok {
			return assignPath(m, path, at+1, v)
		}
		m, err := newAtPath(path[at+1:], v)
		if err != nil {
			return err
		}
		*j = types.NewJSONObject(append(slices.Clone(j.Keys), path[at]), append(slices.Clone(j.Elems), m))
		return nil
	case types.JSONArray:
		i, ok := pathInteger(path[at])
		if !ok {
			return pgerr.Newf(pgerr.InvalidTextRepresentation, "path element at position %d is not an integer: \"%s\"", at+1, path[at])
		}
		n := int64(len(j.Elems))
		if i < 0 {
			if -i > n {
				return pgerr.Newf(pgerr.InvalidParameterValue, "path element at position %d is out of range: %d", at+1, i)
			}
			i += n
		}
		if i < n {
			return assignPath(&j.Elems[i], path, at+1, v)
		}
		m, err := newAtPath(path[at+1:], v)
		if err != nil {
			return err
		}
		return padArray(j, i, m)
	}
	return pgerr.Newf(pgerr.InvalidParameterValue, "cannot replace existing key").
		WithDetail("The path assumes key is a composite object, but it is a scalar value.")
}

// newAtPath is what an assignment creates for a missing member: arrays for numbers, objects for other names, v innermost.
func newAtPath(path []string, v types.JSONTree) (types.JSONTree, error) {
	for _, p := range slices.Backward(path) {
		i, ok := pathInteger(p)
		if !ok {
			v = types.NewJSONObject([]string{p}, []types.JSONTree{v})
			continue
		}
		a := types.JSONTree{Kind: types.JSONArray}
		if err := padArray(&a, max(0, i), v); err != nil {
			return v, err
		}
		v = a
	}
	return v, nil
}

// padArray fills the array j with null up to subscript i and puts v there.
func padArray(j *types.JSONTree, i int64, v types.JSONTree) error {
	if i > maxResultBytes/16 {
		return pgerr.Newf(pgerr.ProgramLimitExceeded, "number of jsonb array elements exceeds the maximum allowed (%d)", maxResultBytes/16)
	}
	null := types.JSONTree{Kind: types.JSONNull}
	j.Elems = append(slices.Clone(j.Elems), slices.Repeat([]types.JSONTree{null}, int(i)-len(j.Elems))...)
	j.Elems = append(j.Elems, v)
	return nil
}

func pathInteger(s string) (int64, bool) {
	i, err := strconv.ParseInt(strings.TrimLeft(s, " \t\n\v\f\r"), 10, 32)
	return i, err == nil
}
