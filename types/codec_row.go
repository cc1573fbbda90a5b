package types

import (
	"encoding/binary"
	"math"
	"math/big"
	"math/bits"
	"unsafe"
)

// Row form, for state values and logs. It is exact (1.0 stays apart from 1.00, -0 from 0) and not ordered:
//
//	null bitmap, (columns+7)/8 bytes, bit set = NULL · the values that are not NULL, in order
//
//	bool          1 byte
//	int2 … date   zigzag varint
//	time, timestamp, timestamptz, float8   8 bytes little-endian
//	float4        4 bytes little-endian
//	strings       uvarint length, bytes
//	numeric       uvarint scale<<3 | big<<2 | form; when finite: zigzag varint coefficient, or (big) uvarint length<<1 | negative and the big-endian magnitude
//	interval      zigzag varints months, days, microseconds

// decoder reads the encodings of this package. After a failure bad stays set and all reads return zero values.
// The strings it returns are views into s.
type decoder struct {
	s   string
	bad bool
}

func (r *decoder) fail() { r.bad, r.s = true, "" }

func (r *decoder) uvarint() uint64 {
	if len(r.s) > 0 && r.s[0] < 0x80 {
		v := r.s[0]
		r.s = r.s[1:]
		return uint64(v)
	}
	if len(r.s) >= 8 {
		// Up to eight bytes at once: those up to the first one without its top bit, whose sevens of bits then move together.
		x := le64(r.s)
		if stop := ^x & 0x8080808080808080; stop != 0 {
			r.s = r.s[bits.TrailingZeros64(stop)>>3+1:]
			x &= (stop ^ (stop - 1)) & 0x7f7f7f7f7f7f7f7f
			x = x&0x007f007f007f007f | x&0x7f007f007f007f00>>1
			x = x&0x00003fff00003fff | x&0x3fff00003fff0000>>2
			return x&0x000000000fffffff | x&0x0fffffff00000000>>4
		}
	}
	var x uint64
	for i := 0; i < len(r.s) && i < binary.MaxVarintLen64; i++ {
		c := r.s[i]
		if c < 0x80 {
			if i == binary.MaxVarintLen64-1 && c > 1 {
				break
			}
			r.s = r.s[i+1:]
			return x | uint64(c)<<(7*i)
		}
		x |= uint64(c&0x7F) << (7 * i)
	}
	r.fail()
	return 0
}

func (r *decoder) varint() int64 {
	u := r.uvarint()
	return int64(u>>1) ^ -int64(u&1)
}

func (r *decoder) byte() byte {
	if len(r.s) == 0 {
		r.fail()
		return 0
	}
	c := r.s[0]
	r.s = r.s[1:]
	return c
}

func (r *decoder) bytes(n uint64) string {
	if uint64(len(r.s)) < n {
		r.fail()
		return ""
	}
	c := r.s[:n]
	r.s = r.s[n:]
	return c
}

func le64(s string) uint64 {
	_ = s[7]
	return uint64(s[0]) | uint64(s[1])<<8 | uint64(s[2])<<16 | uint64(s[3])<<24 | uint64(s[4])<<32 | uint64(s[5])<<40 | uint64(s[6])<<48 | uint64(s[7])<<56
}

func le32(s string) uint32 {
	_ = s[3]
	return uint32(s[0]) | uint32(s[1])<<8 | uint32(s[2])<<16 | uint32(s[3])<<24
}

func (r *decoder) fixed64() uint64 {
	if len(r.s) < 8 {
		r.fail()
		return 0
	}
	v := le64(r.s)
	r.s = r.s[8:]
	return v
}

func (r *decoder) fixed32() uint32 {
	if len(r.s) < 4 {
		r.fail()
		return 0
	}
	v := le32(r.s)
	r.s = r.s[4:]
	return v
}

// fixedInt reports whether a KindInt type's values are usually large, so that eight bytes beat a varint.
func fixedInt(oid OID) bool { return oid == OIDTimestamp || oid == OIDTimestamptz || oid == OIDTime }

func appendNumericValue(b []byte, n *Numeric) []byte {
	h := uint64(uint16(n.Scale))<<3 | uint64(n.Form)
	if n.Form != Finite {
		return binary.AppendUvarint(b, h)
	}
	if n.Big == nil {
		b = binary.AppendUvarint(b, h)
		return binary.AppendVarint(b, n.Coef)
	}
	b = binary.AppendUvarint(b, h|4)
	l := (n.Big.BitLen() + 7) / 8
	neg := uint64(0)
	if n.Big.Sign() < 0 {
		neg = 1
	}
	b = binary.AppendUvarint(b, uint64(l)<<1|neg)
	at := len(b)
	b = append(b, make([]byte, l)...)
	n.Big.FillBytes(b[at:])
	return b
}

func (r *decoder) numeric() Numeric {
	h := r.uvarint()
	n := Numeric{Scale: int16(h >> 3), Form: NumericForm(h & 3)}
	if h>>3 > math.MaxInt16 {
		r.fail()
		return Numeric{}
	}
	if n.Form != Finite {
		return n
	}
	if h&4 == 0 {
		n.Coef = r.varint()
		return n
	}
	l := r.uvarint()
	x := new(big.Int).SetBytes([]byte(r.bytes(l >> 1)))
	if x.IsInt64() {
		// An encoder never writes such a value as big, so the bytes are not ours.
		r.fail()
		return Numeric{}
	}
	if l&1 != 0 {
		x.Neg(x)
		if x.IsInt64() {
			n.Coef = x.Int64()
			return n
		}
	}
	n.Big = x
	return n
}

func (r *decoder) interval() Interval {
	m, d, us := r.varint(), r.varint(), r.varint()
	if m != int64(int32(m)) || d != int64(int32(d)) {
		r.fail()
	}
	return Interval{Months: int32(m), Days: int32(d), Micros: us}
}

func (r *decoder) bool() bool {
	switch r.byte() {
	case 0:
		return false
	case 1:
		return true
	}
	r.fail()
	return false
}

func appendVectorValue(b []byte, v *Vector, i int) []byte {
	switch v.Type.Kind() {
	case KindBool:
		if v.Bool[i] {
			return append(b, 1)
		}
		return append(b, 0)
	case KindInt:
		if fixedInt(v.Type.OID) {
			return binary.LittleEndian.AppendUint64(b, uint64(v.Int[i]))
		}
		return binary.AppendVarint(b, v.Int[i])
	case KindFloat:
		if v.Type.OID == OIDFloat4 {
			return binary.LittleEndian.AppendUint32(b, math.Float32bits(float32(v.Float[i])))
		}
		return binary.LittleEndian.AppendUint64(b, math.Float64bits(v.Float[i]))
	case KindString:
		s := v.Str[i]
		b = binary.AppendUvarint(b, uint64(len(s)))
		return append(b, s...)
	case KindNumeric:
		return appendNumericValue(b, &v.Num[i])
	case KindInterval:
		return appendIntervalValue(b, v.Ivl[i])
	}
	return b
}

func appendIntervalValue(b []byte, iv Interval) []byte {
	b = binary.AppendVarint(b, int64(iv.Months))
	b = binary.AppendVarint(b, int64(iv.Days))
	return binary.AppendVarint(b, iv.Micros)
}

func appendDatumValue(b []byte, d *Datum) []byte {
	switch d.Type.Kind() {
	case KindBool:
		if d.Bool {
			return append(b, 1)
		}
		return append(b, 0)
	case KindInt:
		if fixedInt(d.Type.OID) {
			return binary.LittleEndian.AppendUint64(b, uint64(d.Int))
		}
		return binary.AppendVarint(b, d.Int)
	case KindFloat:
		if d.Type.OID == OIDFloat4 {
			return binary.LittleEndian.AppendUint32(b, math.Float32bits(float32(d.Float)))
		}
		return binary.LittleEndian.AppendUint64(b, math.Float64bits(d.Float))
	case KindString:
		b = binary.AppendUvarint(b, uint64(len(d.Str)))
		return append(b, d.Str...)
	case KindNumeric:
		return appendNumericValue(b, &d.Num)
	case KindInterval:
		return appendIntervalValue(b, d.Ivl)
	}
	return b
}

// value reads one value that is not NULL.
func (r *decoder) value(t Type) Datum {
	d := Datum{Type: t}
	switch t.Kind() {
	case KindBool:
		d.Bool = r.bool()
	case KindInt:
		if fixedInt(t.OID) {
			d.Int = int64(r.fixed64())
		} else {
			d.Int = r.varint()
		}
	case KindFloat:
		if t.OID == OIDFloat4 {
			d.Float = float64(math.Float32frombits(r.fixed32()))
		} else {
			d.Float = math.Float64frombits(r.fixed64())
		}
	case KindString:
		d.Str = r.bytes(r.uvarint())
	case KindNumeric:
		d.Num = r.numeric()
	case KindInterval:
		d.Ivl = r.interval()
	default:
		r.fail()
	}
	return d
}

// appendTo reads one value that is not NULL into v.
func (r *decoder) appendTo(v *Vector) {
	if v.Valid != nil {
		n := v.Len()
		v.growValid(n, n+1)
	}
	switch v.Type.Kind() {
	case KindBool:
		v.Bool = append(v.Bool, r.bool())
	case KindInt:
		if fixedInt(v.Type.OID) {
			v.Int = append(v.Int, int64(r.fixed64()))
		} else {
			v.Int = append(v.Int, r.varint())
		}
	case KindFloat:
		if v.Type.OID == OIDFloat4 {
			v.Float = append(v.Float, float64(math.Float32frombits(r.fixed32())))
		} else {
			v.Float = append(v.Float, math.Float64frombits(r.fixed64()))
		}
	case KindString:
		v.Str = append(v.Str, r.bytes(r.uvarint()))
	case KindNumeric:
		v.Num = append(v.Num, r.numeric())
	case KindInterval:
		v.Ivl = append(v.Ivl, r.interval())
	default:
		r.fail()
	}
}

// AppendRow appends the row form of physical row i of cols.
func AppendRow(dst []byte, cols []*Vector, i int) []byte {
	at := len(dst)
	for range (len(cols) + 7) / 8 {
		dst = append(dst, 0)
	}
	for c, v := range cols {
		if v.IsNull(i) {
			dst[at+c>>3] |= 1 << (c & 7)
			continue
		}
		dst = appendVectorValue(dst, v, i)
	}
	return dst
}

// AppendDatumRow appends the row form of the given values.
func AppendDatumRow(dst []byte, row []Datum) []byte {
	at := len(dst)
	for range (len(row) + 7) / 8 {
		dst = append(dst, 0)
	}
	for c := range row {
		if row[c].Null {
			dst[at+c>>3] |= 1 << (c & 7)
			continue
		}
		dst = appendDatumValue(dst, &row[c])
	}
	return dst
}

func (r *decoder) row(cols []*Vector) {
	nulls := r.bytes(uint64(len(cols)+7) / 8)
	if r.bad {
		return
	}
	for c, v := range cols {
		if nulls[c>>3]>>(c&7)&1 != 0 {
			v.AppendNull()
			continue
		}
		if r.appendTo(v); r.bad {
			return
		}
	}
}

// truncate takes back rows after the n-th.
func truncate(cols []*Vector, n int) {
	for _, v := range cols {
		if v.Len() > n {
			v.Resize(n)
		}
	}
}

// DecodeRow appends one row to cols, which must be of equal length and of the types that were encoded, and returns the bytes after
// it. The row's strings share one new allocation; b may be reused. On error cols are unchanged.
func DecodeRow(b []byte, cols []*Vector) (rest []byte, err error) {
	if len(cols) == 0 {
		return b, nil
	}
	n := cols[0].Len()
	r := decoder{s: unsafe.String(unsafe.SliceData(b), len(b))}
	if r.row(cols); r.bad {
		truncate(cols, n)
		return nil, errCorrupt("row")
	}
	used := len(b) - len(r.s)
	var own string
	base := uintptr(unsafe.Pointer(unsafe.SliceData(b)))
	for _, v := range cols {
		if v.Type.Kind() != KindString {
			continue
		}
		s := v.Str[n]
		if s == "" {
			// A zero-length view would still keep b alive.
			v.Str[n] = ""
			continue
		}
		if own == "" {
			own = string(b[:used])
		}
		off := int(uintptr(unsafe.Pointer(unsafe.StringData(s))) - base)
		v.Str[n] = own[off : off+len(s)]
	}
	return b[used:], nil
}

// DecodeRows appends n rows that stand one after the other in s to cols and returns what follows them. Strings become views into s,
// so that a batch costs no allocation per row. On error cols are unchanged.
func DecodeRows(s string, n int, cols []*Vector) (rest string, err error) {
	if len(cols) == 0 {
		return s, nil
	}
	old := cols[0].Len()
	r := decoder{s: s}
	for range n {
		if r.row(cols); r.bad {
			truncate(cols, old)
			return "", errCorrupt("row")
		}
	}
	return r.s, nil
}

// DecodeDatumRow reads one row of the given types; strings are copied.
func DecodeDatumRow(b []byte, ts []Type) (row []Datum, rest []byte, err error) {
	r := decoder{s: string(b)}
	nulls := r.bytes(uint64(len(ts)+7) / 8)
	row = make([]Datum, len(ts))
	for c, t := range ts {
		if r.bad {
			break
		}
		if nulls[c>>3]>>(c&7)&1 != 0 {
			row[c] = NullDatum(t)
			continue
		}
		row[c] = r.value(t)
	}
	if r.bad {
		return nil, nil, errCorrupt("row")
	}
	return row, b[len(b)-len(r.s):], nil
}
