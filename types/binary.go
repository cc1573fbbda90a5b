package types

import (
	"encoding/binary"
	"math"
	"math/big"
	"strconv"

	"github.com/streamdb/streamdb/internal/pgerr"
)

const incorrectBinary = "incorrect binary data format"

// errBinary is the error of a value with bytes behind its end.
func errBinary() error { return pgerr.Newf(pgerr.InvalidBinaryRepresentation, incorrectBinary) }

// IsIncorrectBinary reports whether an error of ParseBinaryIn is about bytes behind the value's end; callers name the place.
func IsIncorrectBinary(err error) bool {
	e := pgerr.From(err)
	return e != nil && e.Code == pgerr.InvalidBinaryRepresentation && e.Message == incorrectBinary
}

func errNoData() error {
	return pgerr.Newf(pgerr.ProtocolViolation, "no data left in message")
}

func errShort() error {
	return pgerr.Newf(pgerr.ProtocolViolation, "insufficient data left in message")
}

// binaryLen returns the fixed length of a type's wire form, -1 for none.
func binaryLen(oid OID) int {
	switch oid {
	case OIDBool:
		return 1
	case OIDInt2:
		return 2
	case OIDInt4, OIDOid, OIDXid, OIDRegproc, OIDRegprocedure, OIDRegclass, OIDRegtype, OIDRegnamespace, OIDRegrole, OIDRegoper, OIDRegoperator, OIDRegcollation, OIDDate, OIDFloat4:
		return 4
	case OIDInt8, OIDTime, OIDTimestamp, OIDTimestamptz, OIDFloat8:
		return 8
	case OIDTimetz:
		return 12
	case OIDInterval, OIDUUID:
		return 16
	}
	return -1
}

// ParseBinary reads PostgreSQL's binary wire form of a value of type t and applies t's modifier as an assignment would. b is copied.
func ParseBinary(t Type, b []byte) (Datum, error) { return ParseBinaryIn(nil, t, b) }

// ParseBinaryIn is ParseBinary with the catalogue's names in f, which enum types need.
func ParseBinaryIn(f *Format, t Type, b []byte) (Datum, error) {
	d, err := parseBinary(f, t, b)
	if err != nil || t.Mod < 0 {
		return d, err
	}
	return Coerce(d, t, false)
}

func parseBinary(f *Format, t Type, b []byte) (d Datum, err error) {
	d.Type = t
	if n := binaryLen(t.OID); n >= 0 {
		switch {
		case len(b) == 0 && n == 1:
			return d, errNoData()
		case len(b) < n:
			return d, errShort()
		case len(b) > n: // is reported when the value itself is good
			if d, err = parseBinary(f, t, b[:n]); err == nil {
				err = errBinary()
			}
			return d, err
		}
	}
	switch t.OID {
	case OIDBool:
		d.Bool = b[0] != 0
	case OIDInt2:
		d.Int = int64(int16(binary.BigEndian.Uint16(b)))
	case OIDInt4:
		d.Int = int64(int32(binary.BigEndian.Uint32(b)))
	case OIDOid, OIDXid, OIDRegproc, OIDRegprocedure, OIDRegclass, OIDRegtype, OIDRegnamespace, OIDRegrole, OIDRegoper, OIDRegoperator, OIDRegcollation:
		d.Int = int64(binary.BigEndian.Uint32(b))
	case OIDInt8:
		d.Int = int64(binary.BigEndian.Uint64(b))
	case OIDDate:
		if d.Int = int64(int32(binary.BigEndian.Uint32(b))); !IsDateInfinite(d.Int) && (d.Int < minDate || d.Int >= endDate) {
			err = errDateRange()
		}
	case OIDTime:
		if d.Int = int64(binary.BigEndian.Uint64(b)); d.Int < 0 || d.Int > microsPerDay {
			err = pgerr.Newf(pgerr.DatetimeFieldOverflow, "time out of range")
		}
	case OIDTimestamp, OIDTimestamptz:
		if d.Int = int64(binary.BigEndian.Uint64(b)); !IsTimestampInfinite(d.Int) && !validTimestamp(d.Int) {
			err = errTimestampRange()
		}
	case OIDTimetz:
		d.Str = string(b)
		us, zone := splitTimetz(d.Str)
		switch {
		case us < 0 || us > microsPerDay:
			err = pgerr.Newf(pgerr.DatetimeFieldOverflow, "time out of range")
		case zone < -maxTimezoneSec || zone > maxTimezoneSec:
			err = pgerr.Newf(pgerr.InvalidTimeZoneDisplacementValue, "time zone displacement out of range")
		}
	case OIDFloat4:
		d.Float = float64(math.Float32frombits(binary.BigEndian.Uint32(b)))
	case OIDFloat8:
		d.Float = math.Float64frombits(binary.BigEndian.Uint64(b))
	case OIDNumeric:
		d.Num, err = parseBinaryNumeric(b)
	case OIDInterval:
		d.Ivl = Interval{Micros: int64(binary.BigEndian.Uint64(b)), Days: int32(binary.BigEndian.Uint32(b[8:])), Months: int32(binary.BigEndian.Uint32(b[12:]))}
	case OIDUUID, OIDBytea:
		d.Str = string(b)
	case OIDChar:
		switch len(b) {
		case 0:
			return d, errNoData()
		case 1:
		default:
			return d, errBinary()
		}
		if b[0] != 0 {
			d.Str = string(b)
		}
	case OIDText, OIDVarchar, OIDBpchar, OIDUnknown, OIDCstring, OIDNodeTree, OIDAclItem:
		d.Str = string(b)
		err = pgerr.CheckText(d.Str)
	case OIDName:
		if d.Str = string(b); len(b) > maxNameBytes {
			err = pgerr.Newf(pgerr.NameTooLong, "identifier too long").WithDetail("Identifier must be less than %d characters.", maxNameBytes+1)
		} else {
			err = pgerr.CheckText(d.Str)
		}
	case OIDJSON:
		d.Str = string(b)
		err = CheckJSON(d.Str)
	case OIDJSONB:
		switch {
		case len(b) == 0:
			err = errShort()
		case b[0] != 1:
			err = pgerr.Newf(pgerr.InternalError, "unsupported jsonb version number %d", b[0])
		default:
			d.Str, err = CanonicalJSONB(string(b[1:]))
		}
	case OIDJSONPath:
		switch {
		case len(b) == 0:
			err = errShort()
		case b[0] != 1:
			err = pgerr.Newf(pgerr.InternalError, "unsupported jsonpath version number: %d", b[0])
		default:
			return parseText(nil, t, string(b[1:]))
		}
	case OIDVoid:
	case OIDRecord:
		d.Str, err = parseBinaryRecord(f, b)
	default:
		if e, ok := t.Elem(); ok {
			d.Str, err = parseBinaryArray(f, e, b)
			break
		}
		if t.IsEnum() {
			if err = pgerr.CheckText(string(b)); err == nil {
				d.Str, err = parseEnum(f, t, string(b))
			}
			break
		}
		err = pgerr.Newf(pgerr.FeatureNotSupported, "cannot accept a binary value of type %s", oidName(t.OID))
	}
	return d, err
}

// Sign words of the binary numeric.
const (
	numBinNeg    = 0x4000
	numBinNaN    = 0xC000
	numBinPosInf = 0xD000
	numBinNegInf = 0xF000
)

func parseBinaryNumeric(b []byte) (Numeric, error) {
	if len(b) < 8 {
		return Numeric{}, errShort()
	}
	nd := int(binary.BigEndian.Uint16(b))
	weight := int(int16(binary.BigEndian.Uint16(b[2:])))
	sign := binary.BigEndian.Uint16(b[4:])
	scale := int(binary.BigEndian.Uint16(b[6:]))
	form := Finite
	switch sign {
	case numBinNaN:
		form = NaN
	case numBinPosInf:
		form = PosInf
	case numBinNegInf:
		form = NegInf
	case 0, numBinNeg:
	default:
		return Numeric{}, pgerr.Newf(pgerr.InvalidBinaryRepresentation, "invalid sign in external \"numeric\" value")
	}
	if scale > maxNumericDScale {
		return Numeric{}, pgerr.Newf(pgerr.InvalidBinaryRepresentation, "invalid scale in external \"numeric\" value")
	}
	if len(b) < 8+2*nd {
		return Numeric{}, errShort()
	}
	digits := make([]byte, 0, 4*nd+1)
	for i := range nd {
		d := binary.BigEndian.Uint16(b[8+2*i:])
		if d >= 10000 {
			return Numeric{}, pgerr.Newf(pgerr.InvalidBinaryRepresentation, "invalid digit in external \"numeric\" value")
		}
		digits = append(digits, byte('0'+d/1000), byte('0'+d/100%10), byte('0'+d/10%10), byte('0'+d%10))
	}
	switch {
	case len(b) > 8+2*nd:
		return Numeric{}, errBinary()
	case form != Finite:
		return Numeric{Form: form}, nil
	case nd == 0:
		return Numeric{Scale: int16(scale)}, nil
	}
	c, ok := new(big.Int).SetString(string(digits), 10)
	if !ok {
		return Numeric{}, pgerr.Newf(pgerr.InvalidBinaryRepresentation, "invalid digit in external \"numeric\" value")
	}
	if sign == numBinNeg {
		c.Neg(c)
	}
	// The digits end at 10000^(weight-nd+1); beyond the display scale they are cut.
	have := 4 * (nd - 1 - weight)
	if c.Sign() != 0 && 4*(weight+1) > maxNumericIntDigits+4 {
		return Numeric{}, errNumericOverflow()
	}
	switch {
	case c.Sign() == 0:
	case have < scale:
		c.Mul(c, pow10(scale-have))
	case have > scale:
		c.Quo(c, pow10(have-scale))
	}
	return makeNumeric(c, scale)
}

func appendBinaryNumeric(dst []byte, n *Numeric) []byte {
	// PostgreSQL's infinities carry 0x20 in their scale word.
	special := func(sign uint16, scale byte) []byte {
		return append(dst, 0, 0, 0, 0, byte(sign>>8), byte(sign), 0, scale)
	}
	switch n.Form {
	case NaN:
		return special(numBinNaN, 0)
	case PosInf:
		return special(numBinPosInf, 0x20)
	case NegInf:
		return special(numBinNegInf, 0x20)
	}
	var buf [64]byte
	digits := buf[:0]
	neg := n.Sign() < 0
	switch {
	case n.Sign() == 0:
	case n.Big != nil:
		digits = new(big.Int).Abs(n.Big).Append(digits, 10)
	default:
		digits = strconv.AppendUint(digits, absU64(n.Coef), 10)
	}
	at := len(dst)
	dst = append(dst, 0, 0, 0, 0, 0, 0, byte(n.Scale>>8), byte(n.Scale))
	if neg {
		dst[at+4] = numBinNeg >> 8
	}
	if len(digits) == 0 {
		return dst
	}
	point := len(digits) - int(n.Scale)
	weight := floorDiv(point-1, 4)
	// pos is the index in digits of the first digit of the current base-10000 digit; it may start before them.
	nd, zeros := 0, 0
	for pos := point - 4*(weight+1); pos < len(digits); pos += 4 {
		d := 0
		for k := pos; k < pos+4; k++ {
			d *= 10
			if k >= 0 && k < len(digits) {
				d += int(digits[k] - '0')
			}
		}
		if d == 0 {
			zeros++
		} else {
			zeros = 0
		}
		dst = append(dst, byte(d>>8), byte(d))
		nd++
	}
	// PostgreSQL never sends trailing zero digits.
	nd -= zeros
	dst = dst[:len(dst)-2*zeros]
	binary.BigEndian.PutUint16(dst[at:], uint16(nd))
	binary.BigEndian.PutUint16(dst[at+2:], uint16(int16(weight)))
	return dst
}

// wireFloat64 returns the bits of f, every NaN as C's.
func wireFloat64(f float64) uint64 {
	if f != f {
		return 0x7FF8 << 48
	}
	return math.Float64bits(f)
}

// AppendBinary appends the binary wire form of row i of v, which must not be NULL.
func AppendBinary(dst []byte, v *Vector, i int) []byte {
	switch v.Type.OID {
	case OIDInt4:
		return binary.BigEndian.AppendUint32(dst, uint32(v.Int[i]))
	case OIDInt8, OIDTimestamp, OIDTimestamptz:
		return binary.BigEndian.AppendUint64(dst, uint64(v.Int[i]))
	case OIDText, OIDVarchar:
		return append(dst, v.Str[i]...)
	case OIDFloat8:
		return binary.BigEndian.AppendUint64(dst, wireFloat64(v.Float[i]))
	}
	return v.Get(i).AppendBinary(dst)
}

// AppendBinary appends the binary wire form of d, nothing for a NULL.
func (d Datum) AppendBinary(dst []byte) []byte {
	if d.Null {
		return dst
	}
	switch d.Type.OID {
	case OIDBool:
		if d.Bool {
			return append(dst, 1)
		}
		return append(dst, 0)
	case OIDInt2:
		return binary.BigEndian.AppendUint16(dst, uint16(d.Int))
	case OIDInt4, OIDOid, OIDXid, OIDRegproc, OIDRegprocedure, OIDRegclass, OIDRegtype, OIDRegnamespace, OIDRegrole, OIDRegoper, OIDRegoperator, OIDRegcollation, OIDDate:
		return binary.BigEndian.AppendUint32(dst, uint32(d.Int))
	case OIDInt8, OIDTime, OIDTimestamp, OIDTimestamptz:
		return binary.BigEndian.AppendUint64(dst, uint64(d.Int))
	case OIDFloat4:
		return binary.BigEndian.AppendUint32(dst, math.Float32bits(float32(d.Float)))
	case OIDFloat8:
		return binary.BigEndian.AppendUint64(dst, wireFloat64(d.Float))
	case OIDNumeric:
		return appendBinaryNumeric(dst, &d.Num)
	case OIDInterval:
		dst = binary.BigEndian.AppendUint64(dst, uint64(d.Ivl.Micros))
		dst = binary.BigEndian.AppendUint32(dst, uint32(d.Ivl.Days))
		return binary.BigEndian.AppendUint32(dst, uint32(d.Ivl.Months))
	case OIDChar:
		if d.Str == "" {
			return append(dst, 0)
		}
		return append(dst, d.Str...)
	case OIDJSONB, OIDJSONPath:
		return append(append(dst, 1), d.Str...)
	case OIDRecord:
		return appendBinaryRecord(dst, d.Str)
	}
	if e, ok := d.Type.Elem(); ok {
		return appendBinaryArray(dst, d.Type.OID, e.OID, d.Str)
	}
	if d.Type.IsEnum() {
		return append(dst, EnumLabel(d.Str)...)
	}
	return append(dst, d.Str...)
}

func appendBinaryArray(dst []byte, oid, elem OID, s string) []byte {
	a, err := DecodeArray(s)
	if err != nil {
		a = Array{Elem: elem}
	}
	if len(a.Dims) == 0 && (oid == OIDInt2Vector || oid == OIDOidVector) {
		// These types always have one dimension.
		a.Dims = []Dim{{}}
	}
	flags := uint32(0)
	for i := range a.Elems {
		if a.Elems[i].Null {
			flags = 1
		}
	}
	dst = binary.BigEndian.AppendUint32(dst, uint32(len(a.Dims)))
	dst = binary.BigEndian.AppendUint32(dst, flags)
	dst = binary.BigEndian.AppendUint32(dst, uint32(elem))
	for _, d := range a.Dims {
		dst = binary.BigEndian.AppendUint32(dst, uint32(d.Len))
		dst = binary.BigEndian.AppendUint32(dst, uint32(d.Lower))
	}
	for i := range a.Elems {
		dst = appendBinaryField(dst, &a.Elems[i])
	}
	return dst
}

// appendBinaryField appends the length word, -1 for NULL, and the value.
func appendBinaryField(dst []byte, d *Datum) []byte {
	if d.Null {
		return append(dst, 0xFF, 0xFF, 0xFF, 0xFF)
	}
	at := len(dst)
	dst = d.AppendBinary(append(dst, 0, 0, 0, 0))
	binary.BigEndian.PutUint32(dst[at:], uint32(len(dst)-at-4))
	return dst
}

// binaryField cuts one length-prefixed value off b. place names it for errors.
func binaryField(f *Format, t Type, b []byte, place func() string) (d Datum, rest []byte, err error) {
	if len(b) < 4 {
		return d, nil, errShort()
	}
	n := int32(binary.BigEndian.Uint32(b))
	b = b[4:]
	if n == -1 {
		return NullDatum(t), b, nil
	}
	if n < 0 || int(n) > len(b) {
		return d, nil, pgerr.Newf(pgerr.InvalidBinaryRepresentation, "insufficient data left in message")
	}
	if d, err = ParseBinaryIn(f, t, b[:n]); err != nil && IsIncorrectBinary(err) {
		err = pgerr.Newf(pgerr.InvalidBinaryRepresentation, "improper binary format in %s", place())
	}
	return d, b[n:], err
}

func parseBinaryArray(f *Format, elem Type, b []byte) (string, error) {
	if len(b) < 12 {
		return "", errShort()
	}
	nd := binary.BigEndian.Uint32(b)
	flags := binary.BigEndian.Uint32(b[4:])
	oid := OID(binary.BigEndian.Uint32(b[8:]))
	switch {
	case nd > MaxArrayDims:
		return "", ErrArrayDims(int(nd))
	case flags > 1:
		return "", pgerr.Newf(pgerr.InvalidBinaryRepresentation, "invalid array flags")
	case oid != elem.OID:
		return "", pgerr.Newf(pgerr.DatatypeMismatch, "binary data has array element type %d (%s) instead of expected %d (%s)", oid, T(oid), elem.OID, T(elem.OID))
	case len(b) < 12+8*int(nd):
		return "", errShort()
	}
	a := Array{Elem: elem.OID}
	n := int64(0)
	if nd > 0 {
		n = 1
	}
	for i := range int(nd) {
		d := Dim{Len: int32(binary.BigEndian.Uint32(b[12+8*i:])), Lower: int32(binary.BigEndian.Uint32(b[16+8*i:]))}
		if d.Len < 0 || n > 0 && int64(d.Len) > maxArrayElems/n {
			return "", pgerr.Newf(pgerr.ProgramLimitExceeded, "array size exceeds the maximum allowed (%d)", maxArrayElems)
		}
		n *= int64(d.Len)
		a.Dims = append(a.Dims, d)
	}
	b = b[12+8*nd:]
	if n == 0 {
		a.Dims = nil
	}
	if n*4 > int64(len(b)) {
		return "", errShort()
	}
	a.Elems = make([]Datum, n)
	for i := range a.Elems {
		var err error
		if a.Elems[i], b, err = binaryField(f, elem, b, func() string { return "array element " + strconv.Itoa(i+1) }); err != nil {
			return "", err
		}
		a.Elems[i].Type = T(elem.OID)
	}
	if len(b) > 0 {
		return "", errBinary()
	}
	return EncodeArray(a), nil
}

func appendBinaryRecord(dst []byte, s string) []byte {
	fields, _ := DecodeRecord(s)
	dst = binary.BigEndian.AppendUint32(dst, uint32(len(fields)))
	for i := range fields {
		dst = binary.BigEndian.AppendUint32(dst, uint32(fields[i].Type.OID))
		dst = appendBinaryField(dst, &fields[i])
	}
	return dst
}

func parseBinaryRecord(f *Format, b []byte) (string, error) {
	if len(b) < 4 {
		return "", errShort()
	}
	n := int(binary.BigEndian.Uint32(b))
	b = b[4:]
	if n < 0 || n*8 > len(b) {
		return "", errShort()
	}
	fields := make([]Datum, n)
	for i := range fields {
		if len(b) < 4 {
			return "", errShort()
		}
		t := T(OID(binary.BigEndian.Uint32(b)))
		var err error
		if fields[i], b, err = binaryField(f, t, b[4:], func() string { return "record column " + strconv.Itoa(i+1) }); err != nil {
			return "", err
		}
	}
	if len(b) > 0 {
		return "", errBinary()
	}
	return EncodeRecord(fields), nil
}
