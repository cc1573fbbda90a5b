package types

import (
	"encoding/binary"
	"math"
	"slices"
)

// Chunk form, for logs: the selected rows by column.
//
//	uvarint rows · uvarint columns · weights: 0 (all +1), or 1 and one varint (all equal), or 2 and an integer block · columns
//	column: 0 (no NULLs), or 1 and a null bitmap of (rows+7)/8 bytes (bit set = NULL) · values of all rows, zero at NULLs
//	bool          bitmap
//	ints          integer block
//	floats        8 (float4: 4) bytes each, little-endian
//	strings       integer block of the lengths, then the bytes
//	numeric, interval   as in rows
//	integer block: varint minimum · byte width (0, 1, 2, 4, 8) · per row value - minimum in that many bytes, little-endian

// maxEncodedChunkRows bounds the rows of an encoded chunk: the selection of a chunk indexes them with 16 bits.
const maxEncodedChunkRows = 1 << 16

func appendIntBlock(b []byte, vals []int64) []byte {
	lo, hi := vals[0], vals[0]
	for _, x := range vals {
		lo, hi = min(lo, x), max(hi, x)
	}
	b = binary.AppendVarint(b, lo)
	span := uint64(hi) - uint64(lo)
	switch {
	case span == 0:
		return append(b, 0)
	case span <= math.MaxUint8:
		b = append(b, 1)
		for _, x := range vals {
			b = append(b, byte(x-lo))
		}
	case span <= math.MaxUint16:
		b = append(b, 2)
		for _, x := range vals {
			b = binary.LittleEndian.AppendUint16(b, uint16(x-lo))
		}
	case span <= math.MaxUint32:
		b = append(b, 4)
		for _, x := range vals {
			b = binary.LittleEndian.AppendUint32(b, uint32(x-lo))
		}
	default:
		b = append(b, 8)
		for _, x := range vals {
			b = binary.LittleEndian.AppendUint64(b, uint64(x-lo))
		}
	}
	return b
}

func (r *decoder) intBlock(out []int64) {
	lo := r.varint()
	width := r.byte()
	if width > 8 || width&(width-1) != 0 {
		r.fail()
		return
	}
	raw := r.bytes(uint64(width) * uint64(len(out)))
	if r.bad {
		return
	}
	switch width {
	case 0:
		for i := range out {
			out[i] = lo
		}
	case 1:
		for i := range out {
			out[i] = lo + int64(raw[i])
		}
	case 2:
		for i := range out {
			out[i] = lo + int64(uint16(raw[2*i])|uint16(raw[2*i+1])<<8)
		}
	case 4:
		for i := range out {
			out[i] = lo + int64(le32(raw[4*i:]))
		}
	case 8:
		for i := range out {
			out[i] = lo + int64(le64(raw[8*i:]))
		}
	}
}

// AppendChunk appends the form of c's selected rows, weights included. It ends where it ends: the container must carry the length.
func AppendChunk(dst []byte, c *Chunk) []byte {
	n := c.Rows()
	dst = binary.AppendUvarint(dst, uint64(n))
	dst = binary.AppendUvarint(dst, uint64(len(c.Cols)))
	if n == 0 {
		return dst
	}
	ints := make([]int64, n)
	dst = appendWeights(dst, c, ints)
	for _, v := range c.Cols {
		dst = appendColumn(dst, v, c, ints)
	}
	return dst
}

func appendWeights(dst []byte, c *Chunk, ints []int64) []byte {
	if c.Weights == nil {
		return append(dst, 0)
	}
	for i := range ints {
		ints[i] = c.Weights[c.Row(i)]
	}
	first := ints[0]
	if slices.ContainsFunc(ints, func(w int64) bool { return w != first }) {
		return appendIntBlock(append(dst, 2), ints)
	}
	if first == 1 {
		return append(dst, 0)
	}
	return binary.AppendVarint(append(dst, 1), first)
}

func appendColumn(dst []byte, v *Vector, c *Chunk, ints []int64) []byte {
	n := len(ints)
	at := len(dst)
	dst = append(dst, 0)
	if v.Valid != nil {
		for i := range n {
			if v.IsNull(c.Row(i)) {
				dst[at] = 1
				break
			}
		}
	}
	hasNull := dst[at] == 1
	if hasNull {
		at = len(dst)
		dst = append(dst, make([]byte, (n+7)/8)...)
		for i := range n {
			if v.IsNull(c.Row(i)) {
				dst[at+i>>3] |= 1 << (i & 7)
			}
		}
	}
	null := func(i int) bool { return hasNull && dst[at+i>>3]>>(i&7)&1 != 0 }
	switch v.Type.Kind() {
	case KindBool:
		bits := len(dst)
		dst = append(dst, make([]byte, (n+7)/8)...)
		for i := range n {
			if v.Bool[c.Row(i)] && !null(i) {
				dst[bits+i>>3] |= 1 << (i & 7)
			}
		}
	case KindInt:
		for i := range n {
			ints[i] = v.Int[c.Row(i)]
			if null(i) {
				ints[i] = 0
			}
		}
		dst = appendIntBlock(dst, ints)
	case KindFloat:
		for i := range n {
			f := v.Float[c.Row(i)]
			if null(i) {
				f = 0
			}
			if v.Type.OID == OIDFloat4 {
				dst = binary.LittleEndian.AppendUint32(dst, math.Float32bits(float32(f)))
			} else {
				dst = binary.LittleEndian.AppendUint64(dst, math.Float64bits(f))
			}
		}
	case KindString:
		for i := range n {
			ints[i] = int64(len(v.Str[c.Row(i)]))
			if null(i) {
				ints[i] = 0
			}
		}
		dst = appendIntBlock(dst, ints)
		for i := range n {
			if ints[i] != 0 {
				dst = append(dst, v.Str[c.Row(i)]...)
			}
		}
	default:
		for i := range n {
			if !null(i) {
				dst = appendVectorValue(dst, v, c.Row(i))
			}
		}
	}
	return dst
}

// DecodeChunk reads what AppendChunk wrote of columns of types ts; all of b belongs to it. Strings share one new allocation.
func DecodeChunk(b []byte, ts []Type) (*Chunk, error) {
	r := decoder{s: string(b)}
	n, cols := r.uvarint(), r.uvarint()
	if r.bad || n > maxEncodedChunkRows || cols != uint64(len(ts)) {
		return nil, errCorrupt("chunk")
	}
	c := NewChunk(ts)
	c.N = int(n)
	if n > 0 {
		r.weights(c)
		lens := make([]int64, n)
		for _, v := range c.Cols {
			if r.bad {
				break
			}
			r.column(v, lens)
		}
	}
	if r.bad || len(r.s) > 0 {
		return nil, errCorrupt("chunk")
	}
	return c, nil
}

func (r *decoder) weights(c *Chunk) {
	switch r.byte() {
	case 0:
	case 1:
		w := r.varint()
		c.Weights = make([]int64, c.N)
		for i := range c.Weights {
			c.Weights[i] = w
		}
	case 2:
		c.Weights = make([]int64, c.N)
		r.intBlock(c.Weights)
	default:
		r.fail()
	}
}

func (r *decoder) column(v *Vector, lens []int64) {
	n := len(lens)
	nulls := ""
	switch r.byte() {
	case 0:
	case 1:
		nulls = r.bytes(uint64(n+7) / 8)
	default:
		r.fail()
	}
	if r.bad {
		return
	}
	v.Resize(n)
	if nulls != "" {
		v.Valid = NewBitmap(n, true)
		for i := range n {
			if nulls[i>>3]>>(i&7)&1 != 0 {
				v.Valid.Clear(i)
			}
		}
	}
	switch v.Type.Kind() {
	case KindBool:
		bits := r.bytes(uint64(n+7) / 8)
		if r.bad {
			return
		}
		for i := range v.Bool {
			v.Bool[i] = bits[i>>3]>>(i&7)&1 != 0
		}
	case KindInt:
		r.intBlock(v.Int)
	case KindFloat:
		for i := range v.Float {
			if v.Type.OID == OIDFloat4 {
				v.Float[i] = float64(math.Float32frombits(r.fixed32()))
			} else {
				v.Float[i] = math.Float64frombits(r.fixed64())
			}
		}
	case KindString:
		r.intBlock(lens)
		for i := range v.Str {
			if lens[i] < 0 {
				r.fail()
				return
			}
			v.Str[i] = r.bytes(uint64(lens[i]))
		}
	case KindNumeric:
		for i := range v.Num {
			if !v.IsNull(i) {
				v.Num[i] = r.numeric()
			}
		}
	case KindInterval:
		for i := range v.Ivl {
			if !v.IsNull(i) {
				v.Ivl[i] = r.interval()
			}
		}
	default:
		r.fail()
	}
}
