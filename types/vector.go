package types

// Bitmap holds one bit per row.
type Bitmap []uint64

// NewBitmap returns a bitmap of n bits, all set to v.
func NewBitmap(n int, v bool) Bitmap {
	b := make(Bitmap, (n+63)/64)
	if v {
		for i := range b {
			b[i] = ^uint64(0)
		}
	}
	return b
}

// Get reports bit i.
func (b Bitmap) Get(i int) bool { return b[i>>6]>>(uint(i)&63)&1 != 0 }

// Set sets bit i.
func (b Bitmap) Set(i int) { b[i>>6] |= 1 << (uint(i) & 63) }

// Clear clears bit i.
func (b Bitmap) Clear(i int) { b[i>>6] &^= 1 << (uint(i) & 63) }

// Interval is PostgreSQL's interval: three fields that never mix.
type Interval struct {
	Months, Days int32
	Micros       int64
}

// Vector is one column of a chunk: values of one type in the slice that Type.Kind names, the others are nil.
// Strings are 16-byte views into shared buffers owned by the garbage collector: copying a vector's rows copies views, never
// bytes, and such buffers are never reused. Values at NULL positions are unspecified.
type Vector struct {
	Type  Type
	Valid Bitmap // nil: no NULLs. Bit set: not NULL. May be longer than the rows in use.

	Bool  []bool
	Int   []int64
	Float []float64
	Str   []string
	Num   []Numeric
	Ivl   []Interval
}

// NewVector returns a vector of n rows of type t, not NULL, with zero values.
func NewVector(t Type, n int) *Vector {
	v := &Vector{Type: t}
	v.Resize(n)
	return v
}

// IsNull reports whether row i is NULL.
func (v *Vector) IsNull(i int) bool { return v.Valid != nil && !v.Valid.Get(i) }

// Len returns the number of rows.
func (v *Vector) Len() int {
	switch v.Type.Kind() {
	case KindBool:
		return len(v.Bool)
	case KindInt:
		return len(v.Int)
	case KindFloat:
		return len(v.Float)
	case KindString:
		return len(v.Str)
	case KindNumeric:
		return len(v.Num)
	case KindInterval:
		return len(v.Ivl)
	}
	return 0
}

func resize[E any](s []E, n int) []E {
	if cap(s) >= n {
		return s[:n]
	}
	c := make([]E, n, max(n, 2*cap(s)))
	copy(c, s)
	return c
}

// Resize sets the number of rows to n, keeping the storage where it suffices. New rows have unspecified values; validity is
// kept for old rows and set for new ones.
func (v *Vector) Resize(n int) {
	old := v.Len()
	switch v.Type.Kind() {
	case KindBool:
		v.Bool = resize(v.Bool, n)
	case KindInt:
		v.Int = resize(v.Int, n)
	case KindFloat:
		v.Float = resize(v.Float, n)
	case KindString:
		v.Str = resize(v.Str, n)
	case KindNumeric:
		v.Num = resize(v.Num, n)
	case KindInterval:
		v.Ivl = resize(v.Ivl, n)
	}
	if v.Valid != nil {
		v.growValid(old, n)
	}
}

func (v *Vector) growValid(old, n int) {
	words := (n + 63) / 64
	for len(v.Valid) < words {
		v.Valid = append(v.Valid, ^uint64(0))
	}
	for i := old; i < n; i++ {
		v.Valid.Set(i)
	}
}

// Reset empties the vector and keeps its storage. String views are cleared so that their buffers can be collected.
func (v *Vector) Reset() {
	clear(v.Str)
	v.Valid = nil
	v.Bool, v.Int, v.Float, v.Str, v.Num, v.Ivl = v.Bool[:0], v.Int[:0], v.Float[:0], v.Str[:0], v.Num[:0], v.Ivl[:0]
}

// SetValue copies the value, not the validity, of row j of src, which is of the same kind, to row i.
func (v *Vector) SetValue(i int, src *Vector, j int) {
	switch v.Type.Kind() {
	case KindBool:
		v.Bool[i] = src.Bool[j]
	case KindInt:
		v.Int[i] = src.Int[j]
	case KindFloat:
		v.Float[i] = src.Float[j]
	case KindString:
		v.Str[i] = src.Str[j]
	case KindNumeric:
		v.Num[i] = src.Num[j]
	case KindInterval:
		v.Ivl[i] = src.Ivl[j]
	}
}

// SetNull marks row i as NULL.
func (v *Vector) SetNull(i int) {
	if v.Valid == nil {
		v.Valid = NewBitmap(max(v.Len(), i+1), true)
	}
	v.Valid.Clear(i)
}

// AppendNull appends one NULL row.
func (v *Vector) AppendNull() {
	n := v.Len()
	v.Resize(n + 1)
	switch v.Type.Kind() {
	case KindString:
		v.Str[n] = ""
	case KindNumeric:
		v.Num[n] = Numeric{}
	}
	v.SetNull(n)
}

// Append appends row i of src, which must have the same kind.
func (v *Vector) Append(src *Vector, i int) {
	if src.IsNull(i) {
		v.AppendNull()
		return
	}
	n := v.Len()
	switch v.Type.Kind() {
	case KindBool:
		v.Bool = append(v.Bool, src.Bool[i])
	case KindInt:
		v.Int = append(v.Int, src.Int[i])
	case KindFloat:
		v.Float = append(v.Float, src.Float[i])
	case KindString:
		v.Str = append(v.Str, src.Str[i])
	case KindNumeric:
		v.Num = append(v.Num, src.Num[i])
	case KindInterval:
		v.Ivl = append(v.Ivl, src.Ivl[i])
	}
	if v.Valid != nil {
		v.growValid(n, n+1)
	}
}

func gather[E any](dst, src []E, idx []uint16) []E {
	n := len(dst)
	dst = resize(dst, n+len(idx))
	out := dst[n:]
	for i, j := range idx {
		out[i] = src[j]
	}
	return dst
}

// AppendGather appends the rows of src at idx, in that order.
func (v *Vector) AppendGather(src *Vector, idx []uint16) {
	n := v.Len()
	switch v.Type.Kind() {
	case KindBool:
		v.Bool = gather(v.Bool, src.Bool, idx)
	case KindInt:
		v.Int = gather(v.Int, src.Int, idx)
	case KindFloat:
		v.Float = gather(v.Float, src.Float, idx)
	case KindString:
		v.Str = gather(v.Str, src.Str, idx)
	case KindNumeric:
		v.Num = gather(v.Num, src.Num, idx)
	case KindInterval:
		v.Ivl = gather(v.Ivl, src.Ivl, idx)
	}
	if v.Valid != nil {
		v.growValid(n, n+len(idx))
	}
	if src.Valid != nil {
		for i, j := range idx {
			if !src.Valid.Get(int(j)) {
				v.SetNull(n + i)
			}
		}
	}
}

// AppendRange appends rows [from, to) of src.
func (v *Vector) AppendRange(src *Vector, from, to int) {
	n := v.Len()
	switch v.Type.Kind() {
	case KindBool:
		v.Bool = append(v.Bool, src.Bool[from:to]...)
	case KindInt:
		v.Int = append(v.Int, src.Int[from:to]...)
	case KindFloat:
		v.Float = append(v.Float, src.Float[from:to]...)
	case KindString:
		v.Str = append(v.Str, src.Str[from:to]...)
	case KindNumeric:
		v.Num = append(v.Num, src.Num[from:to]...)
	case KindInterval:
		v.Ivl = append(v.Ivl, src.Ivl[from:to]...)
	}
	if v.Valid != nil {
		v.growValid(n, n+to-from)
	}
	if src.Valid != nil {
		for i := from; i < to; i++ {
			if !src.Valid.Get(i) {
				v.SetNull(n + i - from)
			}
		}
	}
}
