package types

import (
	"encoding/hex"
	"math"
	"math/bits"
	"strconv"
	"strings"
	"unicode/utf8"

	"github.com/streamdb/streamdb/internal/pgerr"
)

// maxNameBytes is PostgreSQL's NAMEDATALEN-1.
const maxNameBytes = 63

func errSyntax(typ, s string) error {
	return pgerr.Newf(pgerr.InvalidTextRepresentation, "invalid input syntax for type %s: \"%s\"", typ, s)
}

// ParseText reads the text form of a value of type t, as PostgreSQL's input function does, and applies t's modifier as an assignment
// would. A nil f means DefaultFormat.
func ParseText(f *Format, t Type, s string) (Datum, error) {
	d, err := parseText(f, t, s)
	if err != nil || t.Mod < 0 {
		return d, err
	}
	return Coerce(d, t, false)
}

func parseText(f *Format, t Type, s string) (d Datum, err error) {
	d.Type = t
	switch t.OID {
	case OIDBool:
		d.Bool, err = ParseBool(s)
	case OIDInt2, OIDInt4, OIDInt8:
		d.Int, err = ParseInt(s, t.OID)
	case OIDOid, OIDXid:
		d.Int, err = parseOID(s, oidName(t.OID))
	case OIDFloat4, OIDFloat8:
		d.Float, err = ParseFloat(s, t.OID)
	case OIDNumeric:
		d.Num, err = ParseNumeric(s)
	case OIDText, OIDVarchar, OIDBpchar, OIDUnknown, OIDNodeTree, OIDAclItem, OIDCstring:
		d.Str, err = s, pgerr.CheckText(s)
	case OIDName:
		d.Str, err = truncateName(s), pgerr.CheckText(s)
	case OIDChar:
		d.Str = parseChar(s)
	case OIDBytea:
		d.Str, err = parseBytea(s)
	case OIDUUID:
		d.Str, err = parseUUID(s)
	case OIDJSON:
		d.Str, err = s, CheckJSON(s)
	case OIDJSONB:
		d.Str, err = CanonicalJSONB(s)
	case OIDJSONPath:
		var p *JSONPath
		if p, err = ParseJSONPath(s); err == nil {
			d.Str = p.String()
		}
	case OIDDate:
		d.Int, err = ParseDate(f, s)
	case OIDTime:
		d.Int, err = ParseTime(f, s)
	case OIDTimetz:
		d.Str, err = ParseTimetz(f, s)
	case OIDTimestamp:
		d.Int, err = ParseTimestamp(f, s)
	case OIDTimestamptz:
		d.Int, err = ParseTimestamptz(f, s)
	case OIDInterval:
		d.Ivl, err = ParseInterval(f, s, t.Mod)
	case OIDRegproc, OIDRegprocedure, OIDRegclass, OIDRegtype, OIDRegnamespace, OIDRegrole, OIDRegoper, OIDRegoperator, OIDRegcollation:
		d.Int, err = parseReg(f, s, t.OID)
	case OIDInt2Vector, OIDOidVector:
		d.Str, err = parseVectorType(f, t, s)
	case OIDVoid:
		d.Null = false
	case OIDRecord:
		err = pgerr.Newf(pgerr.FeatureNotSupported, "input of anonymous composite types is not implemented")
	default:
		if e, ok := t.Elem(); ok {
			d.Str, err = parseArrayText(f, e, s)
			break
		}
		if t.IsEnum() {
			d.Str, err = parseEnum(f, t, s)
			break
		}
		name := oidName(t.OID)
		err = pgerr.Newf(pgerr.FeatureNotSupported, "cannot accept a value of type %s", name)
	}
	return d, err
}

func truncateName(s string) string {
	if len(s) <= maxNameBytes {
		return s
	}
	n := maxNameBytes
	for n > 0 && !utf8.RuneStart(s[n]) {
		n--
	}
	return s[:n]
}

// parseChar reads "char": the first byte, or an octal escape.
func parseChar(s string) string {
	if len(s) == 4 && s[0] == '\\' {
		if v, err := strconv.ParseUint(s[1:], 8, 16); err == nil {
			if byte(v) == 0 {
				return ""
			}
			return string([]byte{byte(v)})
		}
	}
	if s == "" {
		return ""
	}
	return s[:1]
}

// ParseBool reads a boolean in every form PostgreSQL takes: unique prefixes of true, false, yes, no, on, off, and 1, 0.
func ParseBool(text string) (bool, error) {
	s := strings.ToLower(trimSpace(text))
	if s != "" {
		switch {
		case strings.HasPrefix("true", s), strings.HasPrefix("yes", s), s == "on", s == "1":
			return true, nil
		case strings.HasPrefix("false", s), strings.HasPrefix("no", s), s == "off", s == "of", s == "0":
			return false, nil
		}
	}
	return false, errSyntax("boolean", text)
}

// ParseInt reads an int2, int4 or int8.
func ParseInt(text string, oid OID) (int64, error) {
	s := text
	for len(s) > 0 && isSpace(s[0]) {
		s = s[1:]
	}
	neg := false
	if s != "" && (s[0] == '-' || s[0] == '+') {
		neg = s[0] == '-'
		s = s[1:]
	}
	var v uint64
	over, i := false, 0
	for ; i < len(s) && s[i] >= '0' && s[i] <= '9'; i++ {
		if v > (math.MaxUint64-9)/10 {
			over = true
			continue
		}
		v = v*10 + uint64(s[i]-'0')
	}
	limit := uint64(math.MaxInt64)
	switch oid {
	case OIDInt2:
		limit = math.MaxInt16
	case OIDInt4:
		limit = math.MaxInt32
	}
	if neg {
		limit++
	}
	if over || v > limit { // whatever follows the digits
		return 0, errOutOfRange(text, T(oid).String())
	}
	digits := i
	for i < len(s) && isSpace(s[i]) {
		i++
	}
	if digits == 0 || i < len(s) {
		return 0, errSyntax(T(oid).String(), text)
	}
	if neg {
		return -int64(v), nil
	}
	return int64(v), nil
}

func errOutOfRange(text, typ string) error {
	return pgerr.Newf(pgerr.NumericValueOutOfRange, "value \"%s\" is out of range for type %s", text, typ)
}

// parseOID reads an oid: C's strtoul, with negative 32-bit values wrapping.
func parseOID(text, typ string) (int64, error) {
	s := trimSpace(text)
	neg := strings.HasPrefix(s, "-")
	u, err := strconv.ParseUint(strings.TrimLeft(s, "+-"), 10, 64)
	if err != nil || strings.HasPrefix(s, "+-") || strings.HasPrefix(s, "--") || strings.HasPrefix(s, "++") || strings.HasPrefix(s, "-+") {
		if ne, ok := err.(*strconv.NumError); ok && ne.Err == strconv.ErrRange {
			return 0, errOutOfRange(text, typ)
		}
		return 0, errSyntax(typ, text)
	}
	if neg {
		u = -u
	}
	if u != uint64(uint32(u)) && int64(u) != int64(int32(u)) {
		return 0, errOutOfRange(text, typ)
	}
	return int64(uint32(u)), nil
}

// parseReg reads a value of a type such as regclass. Without the catalogue only numbers and builtin types are known.
func parseReg(f *Format, s string, oid OID) (int64, error) {
	if f != nil && f.Names != nil {
		v, err := f.Names.ParseReg(oid, s)
		return int64(v), err
	}
	if s == "-" {
		return 0, nil
	}
	if v, err := strconv.ParseUint(s, 10, 32); err == nil {
		return int64(v), nil
	}
	if oid == OIDRegtype {
		t, ok := TypeByName(s)
		if !ok {
			return 0, pgerr.Newf(pgerr.UndefinedObject, "type \"%s\" does not exist", s)
		}
		return int64(t), nil
	}
	return 0, pgerr.Newf(pgerr.FeatureNotSupported, "%s input by name needs the catalog", oidName(oid)).WithHint("Use the numeric object id.")
}

// ParseFloat reads a float4 or float8. A float4 is returned rounded to float32.
func ParseFloat(text string, oid OID) (float64, error) {
	typ, width := "double precision", 64
	if oid == OIDFloat4 {
		typ, width = "real", 32
	}
	s := trimSpace(text)
	body := strings.TrimLeft(s, "+-")
	if len(s)-len(body) > 1 || body == "" {
		return 0, errSyntax(typ, text)
	}
	if c := body[0]; c != '.' && (c < '0' || c > '9') {
		switch strings.ToLower(body) {
		case "nan":
			return math.NaN(), nil
		case "inf", "infinity":
			if s[0] == '-' {
				return math.Inf(-1), nil
			}
			return math.Inf(1), nil
		}
		return 0, errSyntax(typ, text)
	}
	if len(body) > 1 && (body[1] == 'x' || body[1] == 'X') {
		// strtod takes C's hexadecimal floats; an exponent is optional there.
		if !strings.ContainsAny(s, "pP") {
			s += "p0"
		}
	} else if strings.IndexByte(body, '_') >= 0 {
		return 0, errSyntax(typ, text)
	}
	v, err := strconv.ParseFloat(s, width)
	if err != nil {
		if ne, ok := err.(*strconv.NumError); ok && ne.Err == strconv.ErrRange {
			return 0, pgerr.Newf(pgerr.NumericValueOutOfRange, "\"%s\" is out of range for type %s", text, typ)
		}
		return 0, errSyntax(typ, text)
	}
	if v == 0 && hasNonZeroDigit(body) {
		return 0, pgerr.Newf(pgerr.NumericValueOutOfRange, "\"%s\" is out of range for type %s", text, typ)
	}
	return v, nil
}

// hasNonZeroDigit reports whether the mantissa is not zero: a result of zero is then an underflow.
func hasNonZeroDigit(s string) bool {
	for i := 0; i < len(s); i++ {
		switch c := s[i]; {
		case c >= '1' && c <= '9':
			return true
		case c == 'e' || c == 'E' || c == 'p' || c == 'P':
			return false
		}
	}
	return false
}

func parseBytea(s string) (string, error) {
	if strings.HasPrefix(s, `\x`) {
		return parseByteaHex(s[2:])
	}
	if strings.IndexByte(s, '\\') < 0 {
		return s, nil
	}
	b := make([]byte, 0, len(s))
	for i := 0; i < len(s); {
		switch {
		case s[i] != '\\':
			b = append(b, s[i])
			i++
		case i+1 < len(s) && s[i+1] == '\\':
			b = append(b, '\\')
			i += 2
		case i+3 < len(s) && s[i+1] >= '0' && s[i+1] <= '3' && s[i+2] >= '0' && s[i+2] <= '7' && s[i+3] >= '0' && s[i+3] <= '7':
			b = append(b, (s[i+1]-'0')<<6|(s[i+2]-'0')<<3|(s[i+3]-'0'))
			i += 4
		default:
			return "", pgerr.Newf(pgerr.InvalidTextRepresentation, "invalid input syntax for type %s", "bytea")
		}
	}
	return string(b), nil
}

func hexDigit(c byte) (byte, bool) {
	switch {
	case c >= '0' && c <= '9':
		return c - '0', true
	case c >= 'a' && c <= 'f':
		return c - 'a' + 10, true
	case c >= 'A' && c <= 'F':
		return c - 'A' + 10, true
	}
	return 0, false
}

func errHexDigit(s string) error {
	_, w := utf8.DecodeRuneInString(s)
	return pgerr.Newf(pgerr.InvalidParameterValue, "invalid hexadecimal digit: \"%s\"", s[:w])
}

func parseByteaHex(s string) (string, error) {
	b := make([]byte, 0, len(s)/2)
	for i := 0; i < len(s); {
		if c := s[i]; c == ' ' || c == '\n' || c == '\t' || c == '\r' {
			i++
			continue
		}
		hi, ok := hexDigit(s[i])
		if !ok {
			return "", errHexDigit(s[i:])
		}
		if i+1 >= len(s) {
			return "", pgerr.Newf(pgerr.InvalidParameterValue, "invalid hexadecimal data: odd number of digits")
		}
		lo, ok := hexDigit(s[i+1])
		if !ok {
			return "", errHexDigit(s[i+1:])
		}
		b = append(b, hi<<4|lo)
		i += 2
	}
	return string(b), nil
}

// parseUUID takes 32 hexadecimal digits, optionally in braces, with an optional hyphen after each group of four.
func parseUUID(text string) (string, error) {
	s := text
	if strings.HasPrefix(s, "{") {
		if !strings.HasSuffix(s, "}") {
			return "", errSyntax("uuid", text)
		}
		s = s[1 : len(s)-1]
	}
	var b [16]byte
	for i := range b {
		if len(s) < 2 {
			return "", errSyntax("uuid", text)
		}
		hi, ok1 := hexDigit(s[0])
		lo, ok2 := hexDigit(s[1])
		if !ok1 || !ok2 {
			return "", errSyntax("uuid", text)
		}
		b[i] = hi<<4 | lo
		s = s[2:]
		if i%2 == 1 && i < 15 && s != "" && s[0] == '-' {
			s = s[1:]
		}
	}
	if s != "" {
		return "", errSyntax("uuid", text)
	}
	return string(b[:]), nil
}

// AppendText appends the text form of row i of v, which must not be NULL.
func AppendText(dst []byte, f *Format, v *Vector, i int) []byte {
	switch v.Type.OID {
	case OIDInt4, OIDInt8, OIDInt2, OIDOid:
		return strconv.AppendInt(dst, v.Int[i], 10)
	case OIDText, OIDVarchar, OIDBpchar, OIDJSONB, OIDJSON, OIDName:
		return append(dst, v.Str[i]...)
	case OIDFloat8:
		return appendFloat(dst, f, v.Float[i], 64)
	case OIDNumeric:
		return v.Num[i].AppendText(dst)
	case OIDTimestamp:
		return appendTimestampIn(dst, f, v.Int[i])
	case OIDTimestamptz:
		return appendTimestamptzIn(dst, f, v.Int[i])
	}
	return v.Get(i).AppendText(dst, f)
}

// AppendText appends the text form of d, nothing for a NULL. A nil f means DefaultFormat.
func (d Datum) AppendText(dst []byte, f *Format) []byte {
	if d.Null {
		return dst
	}
	switch d.Type.OID {
	case OIDBool:
		if d.Bool {
			return append(dst, 't')
		}
		return append(dst, 'f')
	case OIDInt2, OIDInt4, OIDInt8, OIDOid, OIDXid:
		return strconv.AppendInt(dst, d.Int, 10)
	case OIDFloat4:
		return appendFloat(dst, f, d.Float, 32)
	case OIDFloat8:
		return appendFloat(dst, f, d.Float, 64)
	case OIDNumeric:
		return d.Num.AppendText(dst)
	case OIDChar:
		if len(d.Str) == 1 && d.Str[0] >= 0x80 {
			c := d.Str[0]
			return append(dst, '\\', '0'+c>>6, '0'+c>>3&7, '0'+c&7)
		}
		return append(dst, d.Str...)
	case OIDBytea:
		return appendBytea(dst, f, d.Str)
	case OIDUUID:
		return appendUUID(dst, d.Str)
	case OIDDate:
		return appendDateIn(dst, f, d.Int)
	case OIDTime:
		return AppendTime(dst, d.Int)
	case OIDTimetz:
		us, zone := splitTimetz(d.Str)
		return appendZone(AppendTime(dst, us), -int(zone))
	case OIDTimestamp:
		return appendTimestampIn(dst, f, d.Int)
	case OIDTimestamptz:
		return appendTimestamptzIn(dst, f, d.Int)
	case OIDInterval:
		style := IntervalPostgres
		if f != nil {
			style = f.IntervalStyle
		}
		return AppendInterval(dst, d.Ivl, style)
	case OIDRegproc, OIDRegprocedure, OIDRegclass, OIDRegtype, OIDRegnamespace, OIDRegrole, OIDRegoper, OIDRegoperator, OIDRegcollation:
		switch i, ok := InfoOf(OID(d.Int)); {
		case f != nil && f.Names != nil:
			return append(dst, f.Names.RegText(d.Type.OID, uint32(d.Int))...)
		case d.Int == 0 && (d.Type.OID == OIDRegoper || d.Type.OID == OIDRegoperator):
			return append(dst, '0')
		case d.Int == 0:
			return append(dst, '-')
		case ok && d.Type.OID == OIDRegtype:
			return append(dst, i.SQLName...)
		}
		return strconv.AppendInt(dst, d.Int, 10)
	case OIDInt2Vector, OIDOidVector:
		return appendVectorTypeText(dst, d.Str)
	case OIDRecord:
		return appendRecordText(dst, f, d.Str)
	case OIDVoid:
		return dst
	}
	switch {
	case d.Type.IsArray():
		return appendArrayText(dst, f, d.Str)
	case d.Type.IsEnum():
		return append(dst, EnumLabel(d.Str)...)
	}
	return append(dst, d.Str...)
}

// String returns the text form under DefaultFormat, "NULL" for a NULL.
func (d Datum) String() string {
	if d.Null {
		return "NULL"
	}
	return string(d.AppendText(nil, nil))
}

func appendBytea(dst []byte, f *Format, s string) []byte {
	if f == nil || !f.ByteaEscape {
		dst = append(dst, `\x`...)
		at := len(dst)
		dst = append(dst, make([]byte, 2*len(s))...)
		hex.Encode(dst[at:], []byte(s))
		return dst
	}
	for i := 0; i < len(s); i++ {
		switch c := s[i]; {
		case c == '\\':
			dst = append(dst, `\\`...)
		case c < 0x20 || c > 0x7E:
			dst = append(dst, '\\', '0'+c>>6, '0'+c>>3&7, '0'+c&7)
		default:
			dst = append(dst, c)
		}
	}
	return dst
}

func appendUUID(dst []byte, s string) []byte {
	const digits = "0123456789abcdef"
	for i := 0; i < len(s); i++ {
		if i == 4 || i == 6 || i == 8 || i == 10 {
			dst = append(dst, '-')
		}
		dst = append(dst, digits[s[i]>>4], digits[s[i]&15])
	}
	return dst
}

// AppendFloat appends a float8 (width 64) or float4 (32) as PostgreSQL prints it.
func AppendFloat(dst []byte, f *Format, v float64, width int) []byte {
	return appendFloat(dst, f, v, width)
}

func appendFloat(dst []byte, f *Format, v float64, width int) []byte {
	switch {
	case v != v:
		return append(dst, "NaN"...)
	case math.IsInf(v, 1):
		return append(dst, "Infinity"...)
	case math.IsInf(v, -1):
		return append(dst, "-Infinity"...)
	}
	prec, maxExp := -1, 15
	if width == 32 {
		maxExp = 6
	}
	if f != nil && f.ExtraFloatDigits <= 0 {
		// C's %.*g: that many significant digits, trailing zeros cut.
		prec = max(1, maxExp+f.ExtraFloatDigits)
		maxExp = prec
	}
	if v == 0 {
		if math.Signbit(v) {
			return append(dst, '-', '0')
		}
		return append(dst, '0')
	}
	// Scientific first: its exponent decides the notation.
	at := len(dst)
	p := prec
	if p > 0 {
		p--
	}
	dst = strconv.AppendFloat(dst, v, 'e', p, width)
	if prec < 0 {
		dst = offMidpoint(dst, at, v, width)
	}
	e := strings.LastIndexByte(string(dst[at:]), 'e')
	exp, _ := strconv.Atoi(string(dst[at+e+1:]))
	if exp < -4 || exp >= maxExp {
		if prec < 0 {
			return dst
		}
		return cutZeros(dst, at, at+e)
	}
	if prec < 0 {
		return strconv.AppendFloat(dst[:at], v, 'f', -1, width)
	}
	dst = strconv.AppendFloat(dst[:at], v, 'f', prec-1-exp, width)
	return cutZeros(dst, at, len(dst))
}

// offMidpoint gives dst[at:], the shortest text of v, more digits if it lies exactly between v and a neighbour: read with rounding to even it is v, but
// PostgreSQL counts on no reader to do so.
func offMidpoint(dst []byte, at int, v float64, width int) []byte {
	a := math.Abs(v)
	if a < 1<<24 || width == 64 && a < 1<<53 || a >= 1e40 { // midpoints of others have more digits than tell them apart
		return dst
	}
	for p := 1; isMidpoint(dst[at:], a, width); {
		for ok := false; !ok; p++ {
			dst = strconv.AppendFloat(dst[:at], v, 'e', p, width)
			read, err := strconv.ParseFloat(string(dst[at:]), width)
			ok = err == nil && read == v
		}
	}
	return dst
}

// isMidpoint reports whether text, in scientific notation, has the magnitude of the middle between v, a whole number, and one of its neighbours.
func isMidpoint(text []byte, v float64, width int) bool {
	mantissa := 53
	if width == 32 {
		mantissa = 24
	}
	frac, exp := math.Frexp(v)
	m := uint64(math.Ldexp(frac, mantissa+1))
	shift := exp - mantissa - 1 // v is m * 2^shift, m is even
	if m&2 != 0 {
		return false // text is v after rounding to even
	}
	d, tens := uint64(0), 0
	for i, point := 0, false; i < len(text); i++ {
		switch c := text[i]; c {
		case '-':
		case '.':
			point = true
		case 'e':
			e, _ := strconv.Atoi(string(text[i+1:]))
			tens += e
			i = len(text)
		default:
			d = d*10 + uint64(c-'0')
			if point {
				tens--
			}
		}
	}
	if tens < 0 {
		return false
	}
	// d * 10^tens = odd * 5^tens * 2^twos must be (m ± 1) * 2^shift.
	twos := bits.TrailingZeros64(d) + tens
	odd := d >> bits.TrailingZeros64(d)
	for ; tens > 0; tens-- {
		if odd *= 5; odd > m+1 {
			return false
		}
	}
	if m == 1<<mantissa { // the neighbour below is nearer: half its distance is a quarter unit
		return twos == shift && odd == m+1 || twos == shift-1 && odd == 2*m-1
	}
	return twos == shift && (odd == m-1 || odd == m+1)
}

// cutZeros removes zeros at the end of the fraction in dst[at:end].
func cutZeros(dst []byte, at, end int) []byte {
	point := -1
	for i := at; i < end; i++ {
		if dst[i] == '.' {
			point = i
		}
	}
	if point < 0 {
		return dst
	}
	cut := end
	for dst[cut-1] == '0' {
		cut--
	}
	if cut-1 == point {
		cut--
	}
	return append(dst[:cut], dst[end:]...)
}
