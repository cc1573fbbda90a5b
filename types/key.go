package types

import (
	"encoding/binary"
	"math"
	"math/big"
	"strconv"
	"strings"
)

// Key form (memcomparable). Keys of the same column types compare bytewise as SQL compares the values, equal bytes mean SQL equality,
// and each column delimits itself, so that the columns of a row concatenate.
//
//	column: marker 0x00 NULL (nulls first), 0x01 value, 0x02 NULL (nulls last) · value; all its bytes inverted when descending
//
//	bool          1 byte
//	ints          8 bytes big-endian, sign inverted (one width for all, so that int4 and int8 keys agree)
//	floats        8 bytes: IEEE bits, inverted when negative, else sign set; -0 as 0, one NaN above +infinity
//	strings       bytes with 0x00 as 0x00 0xFF, end 0x00 0x01; bpchar without trailing blanks
//	uuid          16 bytes
//	timetz        8 bytes UTC microseconds, 4 bytes zone, both sign inverted
//	numeric       class byte (-inf, negative, 0, positive, +inf, NaN) · 3 bytes decimal exponent · digit pairs + 1 · 0x00; inverted when negative
//	interval      16 bytes: 128-bit microseconds with 30-day months and 24-hour days, sign inverted
//	jsonb         rank byte, then by rank (see appendJSONKey)
//	arrays        elements as ascending columns, 0x00, then dimensions, lengths and lower bounds
//	records       fields as ascending columns, 0x00
const (
	keyNullFirst = 0x00
	keyValue     = 0x01
	keyNullLast  = 0x02
)

// AppendKey appends the key form of row i of v.
func AppendKey(dst []byte, v *Vector, i int, desc, nullsFirst bool) []byte {
	if v.IsNull(i) {
		return appendKeyNull(dst, nullsFirst)
	}
	at := len(dst) + 1
	switch v.Type.Kind() {
	case KindInt:
		dst = append(dst, keyValue)
		dst = binary.BigEndian.AppendUint64(dst, uint64(v.Int[i])^1<<63)
	case KindString:
		dst = append(dst, keyValue)
		dst = appendStringKey(dst, v.Type.OID, v.Str[i])
	default:
		d := v.Get(i)
		return AppendKeyDatum(dst, d, desc, nullsFirst)
	}
	if desc {
		invert(dst[at:])
	}
	return dst
}

// KeyWord returns a number that orders as the key form of value i does. The vector is of kind int, float or bool, the value not NULL.
func KeyWord(v *Vector, i int) uint64 {
	switch v.Type.Kind() {
	case KindFloat:
		return floatKey(v.Float[i])
	case KindBool:
		if v.Bool[i] {
			return 1
		}
		return 0
	}
	return uint64(v.Int[i]) ^ 1<<63
}

func appendKeyNull(dst []byte, nullsFirst bool) []byte {
	if nullsFirst {
		return append(dst, keyNullFirst)
	}
	return append(dst, keyNullLast)
}

func invert(b []byte) {
	for i := range b {
		b[i] = ^b[i]
	}
}

// AppendKeyDatum appends the key form of d.
func AppendKeyDatum(dst []byte, d Datum, desc, nullsFirst bool) []byte {
	if d.Null {
		return appendKeyNull(dst, nullsFirst)
	}
	at := len(dst) + 1
	dst = append(dst, keyValue)
	switch d.Type.Kind() {
	case KindBool:
		if d.Bool {
			dst = append(dst, 1)
		} else {
			dst = append(dst, 0)
		}
	case KindInt:
		dst = binary.BigEndian.AppendUint64(dst, uint64(d.Int)^1<<63)
	case KindFloat:
		dst = binary.BigEndian.AppendUint64(dst, floatKey(d.Float))
	case KindString:
		dst = appendStringKey(dst, d.Type.OID, d.Str)
	case KindNumeric:
		dst = appendNumericKey(dst, &d.Num)
	case KindInterval:
		hi, lo := d.Ivl.span()
		dst = binary.BigEndian.AppendUint64(dst, uint64(hi)^1<<63)
		dst = binary.BigEndian.AppendUint64(dst, lo)
	}
	if desc {
		invert(dst[at:])
	}
	return dst
}

// AppendKeyRow appends the keys of physical row i of cols, ascending with NULLs last.
func AppendKeyRow(dst []byte, cols []*Vector, i int) []byte {
	for _, v := range cols {
		dst = AppendKey(dst, v, i, false, false)
	}
	return dst
}

// KeySuccessor returns the least byte string above all that start with prefix, nil when there is none. It does not modify prefix.
func KeySuccessor(prefix []byte) []byte {
	for i := len(prefix) - 1; i >= 0; i-- {
		if prefix[i] != 0xFF {
			s := append([]byte(nil), prefix[:i+1]...)
			s[i]++
			return s
		}
	}
	return nil
}

func floatKey(f float64) uint64 {
	switch {
	case f != f:
		return math.MaxUint64
	case f == 0:
		return 1 << 63
	}
	b := math.Float64bits(f)
	if b>>63 != 0 {
		return ^b
	}
	return b | 1<<63
}

func trimBlanks(s string) string { return strings.TrimRight(s, " ") }

func appendEscaped(dst []byte, s string) []byte {
	for {
		i := strings.IndexByte(s, 0)
		if i < 0 {
			dst = append(dst, s...)
			return append(dst, 0x00, 0x01)
		}
		dst = append(dst, s[:i]...)
		dst = append(dst, 0x00, 0xFF)
		s = s[i+1:]
	}
}

func appendStringKey(dst []byte, oid OID, s string) []byte {
	switch oid {
	case OIDText, OIDVarchar, OIDBytea, OIDName:
		return appendEscaped(dst, s)
	case OIDBpchar:
		return appendEscaped(dst, trimBlanks(s))
	case OIDUUID:
		if len(s) == 16 {
			return append(dst, s...)
		}
		return appendEscaped(dst, s)
	case OIDTimetz:
		us, zone := splitTimetz(s)
		dst = binary.BigEndian.AppendUint64(dst, uint64(us+int64(zone)*microsPerSecond)^1<<63)
		return binary.BigEndian.AppendUint32(dst, uint32(zone)^1<<31)
	case OIDJSONB:
		return appendJSONBKey(dst, s)
	case OIDRecord:
		fields, err := DecodeRecord(s)
		if err != nil {
			return appendEscaped(append(dst, 0xFF), s)
		}
		for _, f := range fields {
			dst = AppendKeyDatum(dst, f, false, false)
		}
		return append(dst, 0)
	}
	if T(oid).IsArray() {
		return appendArrayKey(dst, s)
	}
	return appendEscaped(dst, s)
}

func appendArrayKey(dst []byte, s string) []byte {
	a, err := DecodeArray(s)
	if err != nil {
		// Only damaged memory or a foreign string gets here; any total order will do.
		return appendEscaped(append(dst, 0xFF), s)
	}
	for _, e := range a.Elems {
		dst = AppendKeyDatum(dst, e, false, false)
	}
	dst = append(dst, 0, byte(len(a.Dims)))
	for _, d := range a.Dims {
		dst = binary.BigEndian.AppendUint32(dst, uint32(d.Len))
	}
	for _, d := range a.Dims {
		dst = binary.BigEndian.AppendUint32(dst, uint32(d.Lower)^1<<31)
	}
	return dst
}

// Classes of numeric keys, in sort order.
const (
	numKeyNegInf   = 0x01
	numKeyNegative = 0x02
	numKeyZero     = 0x03
	numKeyPositive = 0x04
	numKeyPosInf   = 0x05
	numKeyNaN      = 0x06

	numKeyExpBias = 1 << 23
)

func appendNumericKey(dst []byte, n *Numeric) []byte {
	switch n.Form {
	case NaN:
		return append(dst, numKeyNaN)
	case PosInf:
		return append(dst, numKeyPosInf)
	case NegInf:
		return append(dst, numKeyNegInf)
	}
	var buf [48]byte
	digits := buf[:0]
	neg := false
	if n.Big == nil {
		if n.Coef == 0 {
			return append(dst, numKeyZero)
		}
		u := uint64(n.Coef)
		if neg = n.Coef < 0; neg {
			u = -u
		}
		digits = strconv.AppendUint(digits, u, 10)
	} else {
		neg = n.Big.Sign() < 0
		digits = new(big.Int).Abs(n.Big).Append(digits, 10)
	}
	exp := len(digits) - int(n.Scale) + numKeyExpBias
	for digits[len(digits)-1] == '0' {
		digits = digits[:len(digits)-1]
	}
	class := byte(numKeyPositive)
	if neg {
		class = numKeyNegative
	}
	dst = append(dst, class)
	at := len(dst)
	dst = append(dst, byte(exp>>16), byte(exp>>8), byte(exp))
	for i := 0; i < len(digits); i += 2 {
		p := (digits[i] - '0') * 10
		if i+1 < len(digits) {
			p += digits[i+1] - '0'
		}
		dst = append(dst, p+1)
	}
	dst = append(dst, 0)
	if neg {
		invert(dst[at:])
	}
	return dst
}
