package functions

import (
	"strconv"
	"strings"

	"github.com/streamdb/streamdb/internal/pgerr"
	"github.com/streamdb/streamdb/sql/expr"
	"github.com/streamdb/streamdb/types"
)

// arrayFunctions lists operators and functions on arrays.
func arrayFunctions() []entry {
	own := func(id, sig, doc string, k expr.Kernel) entry {
		return entry{id: id, sig: sig, doc: doc, impl: impl{kernel: k}}
	}
	return []entry{
		own("$subscript(anyarray,int4)", "anyelement f t i v", "element of an array: a[i], a[i][j]", each(subscript)),
		own("$subscript(name,int4)", "char f t i v", "byte of a name, which is an array of one dimension that counts from 0", each(subscriptName)),
		own("$slices(anyarray,int4)", "anyarray f f i v", "part of an array in several dimensions: which bounds are given, lower and upper bound per dimension", each(sliceDims)),
		own("$slice(anyarray,int4,int4)", "anyarray f f i", "part of an array: a[lo:hi], NULL for an omitted bound", each(slice)),
		fn("array_length(anyarray,int4)", "array_length(array[[1,2,3],[4,5,6]],2)", each(func(c *call) error { return c.dim(func(d types.Dim) int32 { return d.Len }) })),
		fn("array_lower(anyarray,int4)", "array_lower('[2:4]={1,2,3}'::int[],1)", each(func(c *call) error { return c.dim(func(d types.Dim) int32 { return d.Lower }) })),
		fn("array_upper(anyarray,int4)", "array_upper('[2:4]={1,2,3}'::int[],1)", each(func(c *call) error { return c.dim(func(d types.Dim) int32 { return d.Lower + d.Len - 1 }) })),
		fn("array_ndims(anyarray)", "array_ndims(array[[1],[2]])", each(func(c *call) error {
			a, err := c.array(0)
			if err != nil {
				return err
			}
			if len(a.Dims) == 0 {
				c.setNull()
			}
			return c.setInt(int64(len(a.Dims)))
		})),
		fn("array_dims(anyarray)", "array_dims(array[[1,2],[3,4]])", each(func(c *call) error {
			a, err := c.array(0)
			if err != nil {
				return err
			}
			if len(a.Dims) == 0 {
				c.setNull()
			}
			var b strings.Builder
			for _, d := range a.Dims {
				b.WriteString("[" + strconv.Itoa(int(d.Lower)) + ":" + strconv.Itoa(int(d.Lower+d.Len-1)) + "]")
			}
			return c.setStr(b.String())
		})),
		fn("cardinality(anyarray)", "cardinality(array[[1,2],[3,4]])", each(func(c *call) error {
			a, err := c.array(0)
			if err != nil {
				return err
			}
			return c.setInt(int64(len(a.Elems)))
		})),
		fn("array_append(anycompatiblearray,anycompatible)", "array_append(array[1,2],3)", each(func(c *call) error { return c.push(0, 1, true) })),
		fn("array_prepend(anycompatible,anycompatiblearray)", "array_prepend(1,array[2,3])", each(func(c *call) error { return c.push(1, 0, false) })),
		fn("array_cat(anycompatiblearray,anycompatiblearray)", "array[1,2]||array[3]", each(arrayCat)),
		fn("array_position(anycompatiblearray,anycompatible)", "array_position(array['a','b','c'],'b')", each(arrayPosition)),
		fn("array_position(anycompatiblearray,anycompatible,int4)", "array_position(array[1,2,1],1,2)", each(arrayPosition)),
		fn("array_positions(anycompatiblearray,anycompatible)", "array_positions(array[1,2,1],1)", each(arrayPositions)),
		fn("array_remove(anycompatiblearray,anycompatible)", "array_remove(array[1,2,1],1)", each(func(c *call) error { return c.substitute(false) })),
		fn("array_replace(anycompatiblearray,anycompatible,anycompatible)", "array_replace(array[1,2,1],1,9)", each(func(c *call) error { return c.substitute(true) })),
		fn("array_to_string(anyarray,text)", "array_to_string(array[1,NULL,3],',')", each(arrayToString)),
		fn("array_to_string(anyarray,text,text)", "array_to_string(array[1,NULL,3],',','*')", each(arrayToString)),
		fn("string_to_array(text,text)", "string_to_array('a,b,,c',',')", each(stringToArray)),
		fn("string_to_array(text,text,text)", "string_to_array('a,b,,c',',','')", each(stringToArray)),
		fn("arraycontains(anyarray,anyarray)", "array[1,2,3]@>array[3,1]", each(func(c *call) error { return c.arrays(func(a, b types.Array) bool { return holdsAll(a, b) }) })),
		fn("arraycontained(anyarray,anyarray)", "array[1]<@array[3,1]", each(func(c *call) error { return c.arrays(func(a, b types.Array) bool { return holdsAll(b, a) }) })),
		fn("arrayoverlap(anyarray,anyarray)", "array[1,2]&&array[2,3]", each(func(c *call) error { return c.arrays(overlapArrays) })),
		fn("array_fill(anyelement,_int4)", "array_fill(7,array[2,2])", each(arrayFill)),
		fn("array_fill(anyelement,_int4,_int4)", "", each(arrayFill)),
		fn("trim_array(anyarray,int4)", "trim_array(array[1,2,3],1)", each(func(c *call) error {
			a, err := c.array(0)
			if err != nil {
				return err
			}
			n := c.int(1)
			rows, width := int64(0), int64(0)
			if len(a.Dims) > 0 {
				rows = int64(a.Dims[0].Len)
				width = int64(len(a.Elems)) / rows
			}
			if n < 0 || n > rows {
				return pgerr.Newf(pgerr.ArraySubscriptError, "number of elements to trim must be between 0 and %d", rows)
			}
			if a.Elems = a.Elems[:(rows-n)*width]; len(a.Elems) == 0 {
				return c.setStr(types.EncodeArray(types.Array{Elem: a.Elem}))
			}
			a.Dims[0].Len = int32(rows - n)
			for i := range a.Dims {
				a.Dims[i].Lower = 1
			}
			return c.setStr(types.EncodeArray(a))
		})),
		fn("num_nulls(any)", "num_nulls(1,NULL,2)", each(func(c *call) error { return c.countNulls(true) })),
		fn("num_nonnulls(any)", "num_nonnulls(1,NULL,2)", each(func(c *call) error { return c.countNulls(false) })),
	}
}

func (c *call) countNulls(want bool) error {
	n := int64(0)
	for i := range c.args {
		if c.null(i) == want {
			n++
		}
	}
	return c.setInt(n)
}

func (c *call) array(i int) (types.Array, error) {
	if t := c.args[i].Type.OID; t == types.OIDInt2Vector || t == types.OIDOidVector {
		return types.DecodeArray(c.str(i))
	}
	return types.DecodeArray(c.str(i))
}

func (c *call) arrays(f func(a, b types.Array) bool) error {
	a, err := c.array(0)
	if err != nil {
		return err
	}
	b, err := c.array(1)
	if err != nil {
		return err
	}
	return c.setBool(f(a, b))
}

func (c *call) dim(f func(types.Dim) int32) error {
	a, err := c.array(0)
	if err != nil {
		return err
	}
	n := c.int(1)
	if n < 1 || n > int64(len(a.Dims)) {
		c.setNull()
		return nil
	}
	return c.setInt(int64(f(a.Dims[n-1])))
}

func subscript(c *call) error {
	a, err := c.array(0)
	if err != nil {
		return err
	}
	if len(a.Dims) != len(c.args)-1 {
		c.setNull()
		return nil
	}
	at := int64(0)
	for i, d := range a.Dims {
		k := c.int(i+1) - int64(d.Lower)
		if k < 0 || k >= int64(d.Len) {
			c.setNull()
			return nil
		}
		at = at*int64(d.Len) + k
	}
	return c.setDatum(a.Elems[at])
}

// subscriptName gives the empty "char" for the bytes between a name's end and its fixed length.
func subscriptName(c *call) error {
	s, at := c.str(0), c.int(1)
	switch {
	case len(c.args) != 2 || at < 0 || at > maxNameBytes:
		c.setNull()
		return nil
	case at >= int64(len(s)):
		return c.setStr("")
	}
	return c.setStr(s[at : at+1])
}

// slice is a[lo:hi] of the first dimension; the result counts from 1.
func slice(c *call) error {
	if c.null(0) {
		c.setNull()
		return nil
	}
	a, err := c.array(0)
	if err != nil {
		return err
	}
	out := types.Array{Elem: a.Elem}
	if len(a.Dims) > 0 {
		d := a.Dims[0]
		lo, hi := int64(d.Lower), int64(d.Lower+d.Len-1)
		if !c.null(1) {
			lo = max(lo, c.int(1))
		}
		if !c.null(2) {
			hi = min(hi, c.int(2))
		}
		if lo <= hi {
			width := int64(len(a.Elems)) / int64(d.Len)
			out.Elems = a.Elems[(lo-int64(d.Lower))*width : (hi-int64(d.Lower)+1)*width]
			out.Dims = append([]types.Dim{{Len: int32(hi - lo + 1), Lower: 1}}, a.Dims[1:]...)
			for i := range out.Dims {
				out.Dims[i].Lower = 1
			}
		}
	}
	return c.setStr(types.EncodeArray(out))
}

// Which bounds of a dimension the arguments of $slices give.
const (
	SliceLower = 1
	SliceUpper = 2
)

// sliceDims is a[lo:hi][lo:hi]…: three arguments per dimension. Its result counts from 1 in every dimension.
func sliceDims(c *call) error {
	if c.null(0) {
		c.setNull()
		return nil
	}
	for i := 1; i < len(c.args); i += 3 {
		if c.int(i)&SliceLower != 0 && c.null(i+1) || c.int(i)&SliceUpper != 0 && c.null(i+2) {
			c.setNull()
			return nil
		}
	}
	a, err := c.array(0)
	if err != nil {
		return err
	}
	out := types.Array{Elem: a.Elem}
	given := (len(c.args) - 1) / 3
	if given > len(a.Dims) {
		return c.setStr(types.EncodeArray(out))
	}
	from := make([]int, len(a.Dims))
	for i, d := range a.Dims {
		lo, hi := int64(d.Lower), int64(d.Lower)+int64(d.Len)-1
		if i < given {
			if k := 1 + 3*i; c.int(k)&SliceLower != 0 {
				lo = max(lo, c.int(k+1))
			}
			if k := 1 + 3*i; c.int(k)&SliceUpper != 0 {
				hi = min(hi, c.int(k+2))
			}
		}
		if lo > hi {
			return c.setStr(types.EncodeArray(types.Array{Elem: a.Elem}))
		}
		from[i] = int(lo - int64(d.Lower))
		out.Dims = append(out.Dims, types.Dim{Len: int32(hi - lo + 1), Lower: 1})
	}
	var copyDim func(dim, at int)
	copyDim = func(dim, at int) {
		n := int(out.Dims[dim].Len)
		at = at*int(a.Dims[dim].Len) + from[dim]
		if dim == len(a.Dims)-1 {
			out.Elems = append(out.Elems, a.Elems[at:at+n]...)
			return
		}
		for k := range n {
			copyDim(dim+1, at+k)
		}
	}
	if len(a.Dims) > 0 {
		copyDim(0, 0)
	}
	return c.setStr(types.EncodeArray(out))
}

func (c *call) push(arr, elem int, back bool) error {
	t, _ := c.out.Type.Elem()
	a := types.Array{Elem: t.OID}
	if !c.null(arr) {
		var err error
		if a, err = c.array(arr); err != nil {
			return err
		}
	}
	if len(a.Dims) > 1 {
		return pgerr.Newf("22000", "argument must be empty or one-dimensional array")
	}
	lower := int32(1)
	if len(a.Dims) == 1 {
		lower = a.Dims[0].Lower
	}
	d := c.datum(elem)
	d.Type = types.T(t.OID)
	if back {
		a.Elems = append(a.Elems[:len(a.Elems):len(a.Elems)], d)
	} else {
		a.Elems = append([]types.Datum{d}, a.Elems...)
	}
	a.Dims = []types.Dim{{Len: int32(len(a.Elems)), Lower: lower}}
	return c.setStr(types.EncodeArray(a))
}

func arrayCat(c *call) error {
	switch {
	case c.null(0) && c.null(1):
		c.setNull()
		return nil
	case c.null(0):
		return c.setStr(c.str(1))
	case c.null(1):
		return c.setStr(c.str(0))
	}
	a, err := c.array(0)
	if err != nil {
		return err
	}
	b, err := c.array(1)
	if err != nil {
		return err
	}
	switch {
	case len(b.Dims) == 0:
		return c.setStr(c.str(0))
	case len(a.Dims) == 0:
		return c.setStr(c.str(1))
	}
	incompatible := pgerr.Newf(pgerr.ArraySubscriptError, "cannot concatenate incompatible arrays")
	out := types.Array{Elem: a.Elem, Elems: append(append([]types.Datum(nil), a.Elems...), b.Elems...)}
	inner := func(x, y []types.Dim) bool {
		if len(x) != len(y) {
			return false
		}
		for i := range x {
			if x[i].Len != y[i].Len {
				return false
			}
		}
		return true
	}
	switch {
	case len(a.Dims) == len(b.Dims) && inner(a.Dims[1:], b.Dims[1:]):
		out.Dims = append([]types.Dim(nil), a.Dims...)
		out.Dims[0].Len += b.Dims[0].Len
	case len(a.Dims) == len(b.Dims)+1 && inner(a.Dims[1:], b.Dims):
		out.Dims = append([]types.Dim(nil), a.Dims...)
		out.Dims[0].Len++
	case len(b.Dims) == len(a.Dims)+1 && inner(b.Dims[1:], a.Dims):
		out.Dims = append([]types.Dim(nil), b.Dims...)
		out.Dims[0].Len++
	default:
		return incompatible
	}
	return c.setStr(types.EncodeArray(out))
}

func sameElem(a, b types.Datum) bool {
	if a.Null || b.Null {
		return a.Null && b.Null
	}
	return types.CompareDatum(a, b) == 0
}

func errSearchDims() error {
	return pgerr.Newf(pgerr.FeatureNotSupported, "searching for elements in multidimensional arrays is not supported")
}

func arrayPosition(c *call) error {
	if c.null(0) {
		c.setNull()
		return nil
	}
	a, err := c.array(0)
	if err != nil {
		return err
	}
	if len(a.Dims) > 1 {
		return errSearchDims()
	}
	if c.has(2) && c.null(2) {
		return pgerr.Newf(pgerr.NullValueNotAllowed, "initial position must not be null")
	}
	d := c.datum(1)
	for i, e := range a.Elems {
		pos := int64(a.Dims[0].Lower) + int64(i)
		if c.has(2) && pos < c.int(2) {
			continue
		}
		if sameElem(e, d) {
			return c.setInt(pos)
		}
	}
	c.setNull()
	return nil
}

func arrayPositions(c *call) error {
	if c.null(0) {
		c.setNull()
		return nil
	}
	a, err := c.array(0)
	if err != nil {
		return err
	}
	if len(a.Dims) > 1 {
		return errSearchDims()
	}
	var out []types.Datum
	d := c.datum(1)
	for i, e := range a.Elems {
		if sameElem(e, d) {
			out = append(out, types.Datum{Type: types.Int4, Int: int64(a.Dims[0].Lower) + int64(i)})
		}
	}
	return c.setStr(types.EncodeArray(types.NewArray(types.OIDInt4, out)))
}

// substitute is array_replace, or array_remove without a replacement.
func (c *call) substitute(replace bool) error {
	if c.null(0) {
		c.setNull()
		return nil
	}
	a, err := c.array(0)
	if err != nil {
		return err
	}
	if len(a.Dims) > 1 && !replace {
		return pgerr.Newf(pgerr.FeatureNotSupported, "removing elements from multidimensional arrays is not supported")
	}
	d := c.datum(1)
	out := a
	out.Elems = nil
	for i, e := range a.Elems {
		if err := c.f.Interruptible(i); err != nil {
			return err
		}
		if sameElem(e, d) {
			if !replace {
				continue
			}
			e = c.datum(2)
			e.Type = d.Type
		}
		out.Elems = append(out.Elems, e)
	}
	if !replace {
		if len(out.Elems) == 0 {
			out.Dims = nil
		} else {
			out.Dims = []types.Dim{{Len: int32(len(out.Elems)), Lower: a.Dims[0].Lower}}
		}
	}
	return c.setStr(types.EncodeArray(out))
}

func arrayToString(c *call) error {
	if c.null(0) || c.null(1) {
		c.setNull()
		return nil
	}
	a, err := c.array(0)
	if err != nil {
		return err
	}
	var parts []string
	for _, d := range a.Elems {
		switch {
		case !d.Null && isReg(d.Type.OID):
			parts = append(parts, regText(c.f.Env, d.Type.OID, uint32(d.Int)))
		case !d.Null:
			parts = append(parts, textOf(d, c.f.Format()))
		case c.has(2) && !c.null(2):
			parts = append(parts, c.str(2))
		}
	}
	return c.setStr(strings.Join(parts, c.str(1)))
}

// splitFields is string_to_array: a NULL separator splits into characters, an empty one not at all.
func splitFields(c *call) (out []types.Datum, null bool, err error) {
	if c.null(0) {
		return nil, true, nil
	}
	s := c.str(0)
	if s == "" {
		return nil, false, nil
	}
	var parts []string
	switch {
	case c.null(1):
		parts = strings.Split(s, "")
	case c.str(1) == "":
		parts = []string{s}
	default:
		parts = strings.Split(s, c.str(1))
	}
	for i, p := range parts {
		if err := c.f.Interruptible(i); err != nil {
			return nil, false, err
		}
		d := textDatum(p)
		if c.has(2) && !c.null(2) && p == c.str(2) {
			d = types.NullDatum(types.Text)
		}
		out = append(out, d)
	}
	return out, false, nil
}

func stringToArray(c *call) error {
	parts, null, err := splitFields(c)
	if err != nil {
		return err
	}
	if null {
		c.setNull()
		return nil
	}
	return c.setStr(textArray(parts))
}

// holdsAll reports whether every element of b is in a; NULLs are in nothing.
func holdsAll(a, b types.Array) bool {
	for _, x := range b.Elems {
		if x.Null || !holds(a, x) {
			return false
		}
	}
	return true
}

func holds(a types.Array, x types.Datum) bool {
	for _, e := range a.Elems {
		if !e.Null && types.CompareDatum(e, x) == 0 {
			return true
		}
	}
	return false
}

func overlapArrays(a, b types.Array) bool {
	for _, x := range b.Elems {
		if !x.Null && holds(a, x) {
			return true
		}
	}
	return false
}

func arrayFill(c *call) error {
	if c.null(1) {
		return pgerr.Newf(pgerr.NullValueNotAllowed, "dimension array or low bound array cannot be null")
	}
	dims, err := c.array(1)
	if err != nil {
		return err
	}
	elem, _ := c.out.Type.Elem()
	out := types.Array{Elem: elem.OID}
	n := int64(1)
	for _, d := range dims.Elems {
		if d.Null {
			return pgerr.Newf(pgerr.NullValueNotAllowed, "dimension values cannot be null")
		}
		if d.Int < 0 || n*d.Int > maxResultBytes/16 {
			return pgerr.Newf(pgerr.ProgramLimitExceeded, "array size exceeds the maximum allowed (134217727)")
		}
		n *= d.Int
		out.Dims = append(out.Dims, types.Dim{Len: int32(d.Int), Lower: 1})
	}
	if c.has(2) {
		if c.null(2) {
			return pgerr.Newf(pgerr.NullValueNotAllowed, "dimension array or low bound array cannot be null")
		}
		lows, err := c.array(2)
		if err != nil {
			return err
		}
		if len(lows.Elems) != len(dims.Elems) {
			return pgerr.Newf(pgerr.ArraySubscriptError, "wrong number of array subscripts").WithDetail("Low bound array has different size than dimensions array.")
		}
		for i, d := range lows.Elems {
			if d.Null {
				return pgerr.Newf(pgerr.NullValueNotAllowed, "dimension values cannot be null")
			}
			out.Dims[i].Lower = int32(d.Int)
		}
	}
	if len(dims.Elems) == 0 || n == 0 {
		return c.setStr(types.EncodeArray(types.Array{Elem: elem.OID}))
	}
	v := c.datum(0)
	for range n {
		out.Elems = append(out.Elems, v)
	}
	return c.setStr(types.EncodeArray(out))
}
