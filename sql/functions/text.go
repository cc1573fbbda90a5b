package functions

import (
	"crypto/md5"
	"crypto/sha256"
	"crypto/sha512"
	"encoding/base64"
	"encoding/hex"
	"strconv"
	"strings"
	"unicode"
	"unicode/utf16"
	"unicode/utf8"

	"github.com/streamdb/streamdb/internal/pgerr"
	"github.com/streamdb/streamdb/sql/expr"
	"github.com/streamdb/streamdb/types"
)

// maxResultBytes bounds the strings that repeat, lpad and their like may build (PostgreSQL's limit of a field is 1 GB).
const maxResultBytes = 256 << 20

func errTooLarge() error {
	return pgerr.Newf(pgerr.ProgramLimitExceeded, "requested length too large")
}

// textFunctions lists the string functions.
func textFunctions() []entry {
	str1 := func(f func(string) string) expr.Kernel { return map1(strSlot, strSlot, f) }
	str2 := func(f func(a, b string) string) expr.Kernel { return map2(strSlot, strSlot, strSlot, f) }
	strInt := func(f func(string) int64) expr.Kernel { return map1(strSlot, intSlot, f) }
	chars := strInt(func(s string) int64 { return int64(utf8.RuneCountInString(s)) })
	blankChars := strInt(func(s string) int64 { return int64(utf8.RuneCountInString(trimBlanks(s))) })
	octets := strInt(func(s string) int64 { return int64(len(s)) })
	bitLen := strInt(func(s string) int64 { return int64(len(s)) * 8 })
	pos := map2(strSlot, strSlot, intSlot, strpos)
	catBytes := str2(func(a, b string) string { return a + b })
	out := []entry{
		fn("length(text)", "length('año')", chars), fn("length(bpchar)", "length('ab  '::char(4))", blankChars), fn("length(bytea)", "length('\\x0102'::bytea)", octets),
		fn("textlen(text)", "textlen('ab')", chars),
		fn("char_length(text)", "char_length('año')", chars), fn("char_length(bpchar)", "char_length('ab  '::char(4))", blankChars),
		fn("character_length(text)", "character_length('año')", chars), fn("character_length(bpchar)", "", blankChars),
		fn("octet_length(text)", "octet_length('año')", octets), fn("octet_length(bpchar)", "octet_length('ab'::char(4))", octets), fn("octet_length(bytea)", "", octets),
		fn("bit_length(text)", "bit_length('año')", bitLen), fn("bit_length(bytea)", "", bitLen),
		fn("lower(text)", "lower('ÀB')", str1(strings.ToLower)), fn("upper(text)", "upper('àb')", str1(upper)), fn("initcap(text)", "initcap('hi tHERE-bob')", str1(initcap)),
		fn("btrim(text,text)", "btrim('xyxtrimyyx','xyz')", str2(func(a, b string) string { return strings.Trim(a, b) })),
		fn("btrim(text)", "btrim('  a ')", str1(func(s string) string { return strings.Trim(s, " ") })),
		fn("ltrim(text,text)", "ltrim('zzzytest','xyz')", str2(func(a, b string) string { return strings.TrimLeft(a, b) })),
		fn("ltrim(text)", "ltrim('  a ')", str1(func(s string) string { return strings.TrimLeft(s, " ") })),
		fn("rtrim(text,text)", "rtrim('testxxzx','xyz')", str2(func(a, b string) string { return strings.TrimRight(a, b) })),
		fn("rtrim(text)", "rtrim('  a ')", str1(trimBlanks)),
		fn("btrim(bytea,bytea)", "btrim('\\x0102'::bytea,'\\x01'::bytea)", str2(trimBytes(true, true))),
		fn("ltrim(bytea,bytea)", "", str2(trimBytes(true, false))), fn("rtrim(bytea,bytea)", "", str2(trimBytes(false, true))),
		fn("position(text,text)", "position('om' in 'Thomas')", pos), fn("strpos(text,text)", "strpos('high','ig')", pos),
		fn("position(bytea,bytea)", "", map2(strSlot, strSlot, intSlot, func(a, b string) int64 { return int64(strings.Index(a, b) + 1) })),
		fn("left(text,int4)", "left('abcde',-2)", map2(strSlot, intSlot, strSlot, left)), fn("right(text,int4)", "right('abcde',2)", map2(strSlot, intSlot, strSlot, right)),
		fn("lpad(text,int4)", "lpad('hi',5)", map2e(strSlot, intSlot, strSlot, func(s string, n int64) (string, error) { return pad(s, n, " ", true) })),
		fn("lpad(text,int4,text)", "lpad('hi',5,'xy')", map3e(strSlot, intSlot, strSlot, strSlot, func(s string, n int64, p string) (string, error) { return pad(s, n, p, true) })),
		fn("rpad(text,int4)", "rpad('hi',5)", map2e(strSlot, intSlot, strSlot, func(s string, n int64) (string, error) { return pad(s, n, " ", false) })),
		fn("rpad(text,int4,text)", "rpad('hi',5,'xy')", map3e(strSlot, intSlot, strSlot, strSlot, func(s string, n int64, p string) (string, error) { return pad(s, n, p, false) })),
		fn("repeat(text,int4)", "repeat('ab',3)", map2e(strSlot, intSlot, strSlot, repeat)),
		fn("reverse(text)", "reverse('añb')", str1(reverse)),
		fn("replace(text,text,text)", "replace('abcabc','b','xx')", map3e(strSlot, strSlot, strSlot, strSlot, replace)),
		fn("translate(text,text,text)", "translate('12345','143','ax')", map3e(strSlot, strSlot, strSlot, strSlot, translate)),
		fn("split_part(text,text,int4)", "split_part('a,b,c',',',-1)", map3e(strSlot, strSlot, intSlot, strSlot, splitPart)),
		fn("starts_with(text,text)", "starts_with('abc','ab')", map2(strSlot, strSlot, boolSlot, strings.HasPrefix)),
		fn("ascii(text)", "ascii('é')", strInt(func(s string) int64 {
			if s == "" {
				return 0
			}
			r, _ := utf8.DecodeRuneInString(s)
			return int64(r)
		})),
		fn("chr(int4)", "chr(233)", map1e(intSlot, strSlot, chr)),
		fn("md5(text)", "md5('abc')", str1(md5Hex)), fn("md5(bytea)", "", str1(md5Hex)),
		fn("sha256(bytea)", "sha256('abc'::bytea)", str1(func(s string) string { h := sha256.Sum256([]byte(s)); return string(h[:]) })),
		fn("sha224(bytea)", "", str1(func(s string) string { h := sha256.Sum224([]byte(s)); return string(h[:]) })),
		fn("sha384(bytea)", "", str1(func(s string) string { h := sha512.Sum384([]byte(s)); return string(h[:]) })),
		fn("sha512(bytea)", "", str1(func(s string) string { h := sha512.Sum512([]byte(s)); return string(h[:]) })),
		fn("encode(bytea,text)", "encode('\\x0102ff'::bytea,'base64')", map2e(strSlot, strSlot, strSlot, encode)),
		fn("decode(text,text)", "decode('AQL/','base64')", map2e(strSlot, strSlot, strSlot, decode)),
		fn("convert_from(bytea,name)", "convert_from('\\x6162'::bytea,'UTF8')", map2e(strSlot, strSlot, strSlot, convertFrom)),
		fn("convert_to(text,name)", "convert_to('ab','UTF8')", map2e(strSlot, strSlot, strSlot, convertTo)),
		fn("convert(bytea,name,name)", "convert('\\xc3a9'::bytea,'UTF8','LATIN1')", map3e(strSlot, strSlot, strSlot, strSlot, convert)),
		fn("to_hex(int4)", "to_hex(-1)", map1(intSlot, strSlot, func(v int64) string { return strconv.FormatUint(uint64(uint32(v)), 16) })),
		fn("to_hex(int8)", "to_hex(-1::int8)", map1(intSlot, strSlot, func(v int64) string { return strconv.FormatUint(uint64(v), 16) })),
		fn("quote_ident(text)", "quote_ident('Foo bar')", str1(quoteIdent)), fn("quote_literal(text)", "quote_literal(E'O''Re\\\\illy')", str1(quoteLiteral)),
		fn("quote_literal(anyelement)", "quote_literal(42)", each(func(c *call) error { return c.setStr(quoteLiteral(concatText(c, 0))) })),
		fn("quote_nullable(text)", "quote_nullable(NULL::text)", each(quoteNullable)), fn("quote_nullable(anyelement)", "quote_nullable(42)", each(quoteNullable)),
		fn("textcat(text,text)", "'a'||'b'", catBytes), fn("byteacat(bytea,bytea)", "'\\x01'::bytea||'\\x02'::bytea", catBytes),
		fn("textanycat(text,anynonarray)", "'a'||1", each(func(c *call) error { return c.setStr(c.str(0) + concatText(c, 1)) })),
		fn("anytextcat(anynonarray,text)", "1||'a'", each(func(c *call) error { return c.setStr(concatText(c, 0) + c.str(1)) })),
		fn("concat(any)", "concat('a',NULL,1,true)", each(concat)), fn("concat_ws(text,any)", "concat_ws(',','a',NULL,2)", each(concatWS)),
		fn("format(text)", "format('a%%')", each(format)), fn("format(text,any)", "format('%s %I %L %2$s',1,'A b','x''y')", each(format)),
		fn("substr(text,int4)", "substr('abcdef',3)", each(substring)), fn("substr(text,int4,int4)", "substr('abcdef',2,3)", each(substring)),
		fn("substring(text,int4)", "substring('abcdef' from -1)", each(substring)), fn("substring(text,int4,int4)", "substring('abcdef' from 0 for 3)", each(substring)),
		fn("substr(bytea,int4)", "", each(substringBytes)), fn("substr(bytea,int4,int4)", "", each(substringBytes)),
		fn("substring(bytea,int4)", "", each(substringBytes)), fn("substring(bytea,int4,int4)", "substring('\\x010203'::bytea from 2 for 1)", each(substringBytes)),
		fn("overlay(text,text,int4)", "overlay('abcdef' placing 'XX' from 3)", each(overlay)), fn("overlay(text,text,int4,int4)", "overlay('abcdef' placing 'X' from 3 for 2)", each(overlay)),
		fn("unistr(text)", "unistr('\\0441\\+00043B')", map1e(strSlot, strSlot, unistr)),
		fn("get_byte(bytea,int4)", "get_byte('\\x0102'::bytea,1)", map2e(strSlot, intSlot, intSlot, func(s string, i int64) (int64, error) {
			if i < 0 || i >= int64(len(s)) {
				return 0, pgerr.Newf(pgerr.ArraySubscriptError, "index %d out of valid range, 0..%d", i, len(s)-1)
			}
			return int64(s[i]), nil
		})),
	}
	return out
}

// upper maps each character by itself, as the C library's towupper does.
func upper(s string) string { return strings.Map(unicode.ToUpper, s) }

func initcap(s string) string {
	word := false
	return strings.Map(func(r rune) rune {
		alnum := unicode.IsLetter(r) || unicode.IsDigit(r)
		defer func() { word = alnum }()
		if word {
			return unicode.ToLower(r)
		}
		return unicode.ToUpper(r)
	}, s)
}

func trimBytes(l, r bool) func(a, b string) string {
	return func(s, set string) string {
		for l && s != "" && strings.IndexByte(set, s[0]) >= 0 {
			s = s[1:]
		}
		for r && s != "" && strings.IndexByte(set, s[len(s)-1]) >= 0 {
			s = s[:len(s)-1]
		}
		return s
	}
}

func strpos(s, sub string) int64 {
	i := strings.Index(s, sub)
	if i < 0 {
		return 0
	}
	return int64(utf8.RuneCountInString(s[:i])) + 1
}

// charOffset returns the byte offset of character n, len(s) past the end.
func charOffset(s string, n int64) int {
	i := 0
	for ; n > 0 && i < len(s); n-- {
		_, w := utf8.DecodeRuneInString(s[i:])
		i += w
	}
	return i
}

func left(s string, n int64) string {
	if n < 0 {
		n = max(0, int64(utf8.RuneCountInString(s))+n)
	}
	return s[:charOffset(s, n)]
}

func right(s string, n int64) string {
	if n < 0 {
		return s[charOffset(s, -n):]
	}
	return s[charOffset(s, max(0, int64(utf8.RuneCountInString(s))-n)):]
}

func pad(s string, n int64, fill string, front bool) (string, error) {
	n = max(n, 0)
	if n > maxResultBytes/utf8.UTFMax {
		return "", errTooLarge()
	}
	have := int64(utf8.RuneCountInString(s))
	if have >= n {
		return s[:charOffset(s, n)], nil
	}
	if fill == "" {
		return s, nil
	}
	var b strings.Builder
	for need := n - have; need > 0; {
		for _, r := range fill {
			if need == 0 {
				break
			}
			b.WriteRune(r)
			need--
		}
	}
	if front {
		return b.String() + s, nil
	}
	return s + b.String(), nil
}

func repeat(s string, n int64) (string, error) {
	if n <= 0 || s == "" {
		return "", nil
	}
	if n > maxResultBytes/int64(len(s)) {
		return "", errTooLarge()
	}
	return strings.Repeat(s, int(n)), nil
}

func reverse(s string) string {
	b := make([]byte, len(s))
	at := len(s)
	for i := 0; i < len(s); {
		_, w := utf8.DecodeRuneInString(s[i:])
		at -= w
		copy(b[at:], s[i:i+w])
		i += w
	}
	return string(b)
}

func replace(s, from, to string) (string, error) {
	if from == "" {
		return s, nil
	}
	if len(to) > len(from) && strings.Count(s, from) > maxResultBytes/len(to) {
		return "", errTooLarge()
	}
	return strings.ReplaceAll(s, from, to), nil
}

func translate(s, from, to string) (string, error) {
	f, t := []rune(from), []rune(to)
	return strings.Map(func(r rune) rune {
		for i, x := range f {
			if x != r {
				continue
			}
			if i < len(t) {
				return t[i]
			}
			return -1
		}
		return r
	}, s), nil
}

func splitPart(s, sep string, n int64) (string, error) {
	if n == 0 {
		return "", pgerr.Newf(pgerr.InvalidParameterValue, "field position must not be zero")
	}
	if s == "" {
		return "", nil
	}
	if sep == "" {
		if n == 1 || n == -1 {
			return s, nil
		}
		return "", nil
	}
	if n > 0 {
		for ; n > 1; n-- {
			i := strings.Index(s, sep)
			if i < 0 {
				return "", nil
			}
			s = s[i+len(sep):]
		}
		part, _, _ := strings.Cut(s, sep)
		return part, nil
	}
	parts := strings.Split(s, sep)
	if -n > int64(len(parts)) {
		return "", nil
	}
	return parts[int64(len(parts))+n], nil
}

func chr(v int64) (string, error) {
	switch {
	case v < 0:
		return "", pgerr.Newf(pgerr.InvalidParameterValue, "character number must be positive")
	case v == 0:
		return "", pgerr.Newf(pgerr.ProgramLimitExceeded, "null character not permitted")
	case v > unicode.MaxRune:
		return "", pgerr.Newf(pgerr.ProgramLimitExceeded, "requested character too large for encoding: %d", v)
	case v >= 0xD800 && v <= 0xDFFF:
		return "", pgerr.Newf(pgerr.ProgramLimitExceeded, "requested character not valid for encoding: %d", v)
	}
	return string(rune(v)), nil
}

func md5Hex(s string) string {
	h := md5.Sum([]byte(s))
	return hex.EncodeToString(h[:])
}

// base64LineLength is where PostgreSQL breaks base64 text.
const base64LineLength = 76

func encode(s, format string) (string, error) {
	switch strings.ToLower(format) {
	case "hex":
		return hex.EncodeToString([]byte(s)), nil
	case "base64":
		t := base64.StdEncoding.EncodeToString([]byte(s))
		var b strings.Builder
		for len(t) > base64LineLength {
			b.WriteString(t[:base64LineLength] + "\n")
			t = t[base64LineLength:]
		}
		b.WriteString(t)
		return b.String(), nil
	case "escape":
		var b strings.Builder
		for i := range len(s) {
			switch c := s[i]; {
			case c == 0 || c >= 0x80:
				b.WriteString(`\` + string([]byte{'0' + c>>6, '0' + c>>3&7, '0' + c&7}))
			case c == '\\':
				b.WriteString(`\\`)
			default:
				b.WriteByte(c)
			}
		}
		return b.String(), nil
	}
	return "", pgerr.Newf(pgerr.InvalidParameterValue, "unrecognized encoding: %q", format)
}

func decode(s, format string) (string, error) {
	switch strings.ToLower(format) {
	case "hex":
		return decodeHex(s)
	case "base64":
		return decodeBase64(s)
	case "escape":
		var b strings.Builder
		for i := 0; i < len(s); i++ {
			switch {
			case s[i] != '\\':
				b.WriteByte(s[i])
			case i+1 < len(s) && s[i+1] == '\\':
				b.WriteByte('\\')
				i++
			case i+3 < len(s) && s[i+1] >= '0' && s[i+1] <= '3' && octal(s[i+2]) && octal(s[i+3]):
				b.WriteByte((s[i+1]-'0')<<6 | (s[i+2]-'0')<<3 | (s[i+3] - '0'))
				i += 3
			default:
				return "", pgerr.Newf(pgerr.InvalidTextRepresentation, "invalid input syntax for type bytea")
			}
		}
		return b.String(), nil
	}
	return "", pgerr.Newf(pgerr.InvalidParameterValue, "unrecognized encoding: %q", format)
}

func octal(c byte) bool { return c >= '0' && c <= '7' }

func decodeHex(s string) (string, error) {
	var b []byte
	for i := 0; i < len(s); i++ {
		c := s[i]
		if c == ' ' || c == '\n' || c == '\t' || c == '\r' {
			continue
		}
		for j := i; j < min(i+2, len(s)); j++ {
			if !isHex(s[j : j+1]) {
				_, w := utf8.DecodeRuneInString(s[j:])
				return "", pgerr.Newf(pgerr.InvalidParameterValue, "invalid hexadecimal digit: \"%s\"", s[j:j+w])
			}
		}
		if i+1 >= len(s) {
			return "", pgerr.Newf(pgerr.InvalidParameterValue, "invalid hexadecimal data: odd number of digits")
		}
		v, _ := strconv.ParseUint(s[i:i+2], 16, 8) // two hexadecimal digits
		b = append(b, byte(v))
		i++
	}
	return string(b), nil
}

func isUTF8Name(enc string) bool {
	e := strings.ToLower(strings.NewReplacer("-", "", "_", "").Replace(enc))
	return e == "utf8" || e == "unicode" || e == "sqlascii"
}

func convertFrom(s, enc string) (string, error) {
	if cm, ok := singleByte(enc); ok {
		out, err := cm.NewDecoder().String(s)
		if err != nil || strings.IndexByte(out, 0) >= 0 {
			return "", pgerr.Newf(pgerr.CharacterNotInRepertoire, "invalid byte sequence for encoding \"%s\"", strings.ToUpper(enc))
		}
		return out, nil
	}
	if !isUTF8Name(enc) {
		return "", pgerr.Newf(pgerr.InvalidParameterValue, "invalid source encoding name \"%s\"", enc).WithHint("Use UTF8, LATIN1, LATIN2, LATIN5, LATIN9, WIN1250, WIN1251, WIN1252 or KOI8R.")
	}
	return s, pgerr.CheckText(s)
}

func convertTo(s, enc string) (string, error) {
	if cm, ok := singleByte(enc); ok {
		out := make([]byte, 0, len(s))
		for _, r := range s {
			b, ok := cm.EncodeRune(r)
			if !ok {
				return "", pgerr.Newf(pgerr.UntranslatableCharacter, "character with byte sequence %s in encoding \"UTF8\" has no equivalent in encoding \"%s\"", hexBytes(string(r)), strings.ToUpper(enc))
			}
			out = append(out, b)
		}
		return string(out), nil
	}
	if !isUTF8Name(enc) {
		return "", pgerr.Newf(pgerr.InvalidParameterValue, "invalid destination encoding name \"%s\"", enc).WithHint("Use UTF8, LATIN1, LATIN2, LATIN5, LATIN9, WIN1250, WIN1251, WIN1252 or KOI8R.")
	}
	return s, nil
}

// hexBytes writes bytes as messages do: 0xe6 0x97.
func hexBytes(s string) string {
	var b strings.Builder
	for i := range len(s) {
		if i > 0 {
			b.WriteByte(' ')
		}
		b.WriteString("0x" + hex.EncodeToString([]byte{s[i]}))
	}
	return b.String()
}

// convert recodes bytes from one encoding to another.
func convert(s, from, to string) (string, error) {
	text, err := convertFrom(s, from)
	if err != nil {
		return "", err
	}
	return convertTo(text, to)
}

// substring serves substring(s from n [for m]).
func substring(c *call) error {
	s, from := c.str(0), c.int(1)
	to := int64(len(s)) + 1
	if c.has(2) {
		n := c.int(2)
		if n < 0 {
			return pgerr.Newf(pgerr.SubstringError, "negative substring length not allowed")
		}
		to = min(to, from+n)
	}
	from = max(from, 1)
	if to <= from {
		return c.setStr("")
	}
	s = s[charOffset(s, from-1):]
	return c.setStr(s[:charOffset(s, to-from)])
}

func substringBytes(c *call) error {
	s, from := c.str(0), c.int(1)
	to := int64(len(s)) + 1
	if c.has(2) {
		n := c.int(2)
		if n < 0 {
			return pgerr.Newf(pgerr.SubstringError, "negative substring length not allowed")
		}
		to = min(to, from+n)
	}
	from = max(from, 1)
	if to <= from {
		return c.setStr("")
	}
	return c.setStr(s[from-1 : to-1])
}

func overlay(c *call) error {
	s, by, from := c.str(0), c.str(1), c.int(2)
	n := int64(utf8.RuneCountInString(by))
	if c.has(3) {
		n = c.int(3)
	}
	if from <= 0 {
		return pgerr.Newf(pgerr.SubstringError, "negative substring length not allowed")
	}
	return c.setStr(s[:charOffset(s, from-1)] + by + s[charOffset(s, max(0, from-1+n)):])
}

func unistr(s string) (string, error) {
	var b strings.Builder
	for i := 0; i < len(s); i++ {
		if s[i] != '\\' {
			b.WriteByte(s[i])
			continue
		}
		rest := s[i+1:]
		skip, n := 0, 4
		switch {
		case strings.HasPrefix(rest, `\`):
			b.WriteByte('\\')
			i++
			continue
		case strings.HasPrefix(rest, "+"):
			skip, n = 1, 6
		case strings.HasPrefix(rest, "u"):
			skip = 1
		case strings.HasPrefix(rest, "U"):
			skip, n = 1, 8
		}
		if len(rest) < skip+n {
			return "", errUnistr()
		}
		v, err := strconv.ParseUint(rest[skip:skip+n], 16, 32)
		if err != nil || v == 0 || v > unicode.MaxRune {
			return "", errUnistr()
		}
		i += skip + n
		r := rune(v)
		if utf16.IsSurrogate(r) {
			low, w, ok := unistrUnit(s[i+1:])
			if r = utf16.DecodeRune(r, low); !ok || r == utf8.RuneError {
				return "", pgerr.Newf(pgerr.SyntaxError, "invalid Unicode surrogate pair")
			}
			i += w
		}
		b.WriteRune(r)
	}
	return b.String(), nil
}

// unistrUnit reads the escape of the second half of a pair of surrogates.
func unistrUnit(s string) (r rune, width int, ok bool) {
	digits := ""
	switch {
	case strings.HasPrefix(s, `\+`) && len(s) >= 8:
		digits = s[2:8]
	case strings.HasPrefix(s, `\u`) && len(s) >= 6:
		digits = s[2:6]
	case strings.HasPrefix(s, `\U`) && len(s) >= 10:
		digits = s[2:10]
	case strings.HasPrefix(s, `\`) && len(s) >= 5:
		digits = s[1:5]
	}
	v, err := strconv.ParseUint(digits, 16, 32)
	return rune(v), strings.Index(s, digits) + len(digits), err == nil
}

func errUnistr() error {
	return pgerr.Newf(pgerr.SyntaxError, "invalid Unicode escape").WithHint(`Unicode escapes must be \XXXX, \+XXXXXX, \uXXXX, or \UXXXXXXXX.`)
}

func quoteLiteral(s string) string {
	q := "'" + strings.ReplaceAll(s, "'", "''") + "'"
	if strings.Contains(s, `\`) {
		return "E" + strings.ReplaceAll(q, `\`, `\\`)
	}
	return q
}

func quoteNullable(c *call) error {
	if c.null(0) {
		return c.setStr("NULL")
	}
	return c.setStr(quoteLiteral(concatText(c, 0)))
}

// concatText is the text of an argument as the cast to text gives it.
func concatText(c *call, i int) string {
	d := c.datum(i)
	switch {
	case d.Type.OID == types.OIDBpchar:
		return trimBlanks(d.Str)
	case d.Type.OID == types.OIDBool:
		return strconv.FormatBool(d.Bool)
	case isReg(d.Type.OID):
		return regText(c.f.Env, d.Type.OID, uint32(d.Int))
	}
	return textOf(d, c.f.Format())
}

func concat(c *call) error {
	var b strings.Builder
	for i := range c.args {
		if !c.null(i) {
			b.WriteString(outText(c, i))
		}
	}
	return c.setStr(b.String())
}

// outText is the text of an argument as its output function gives it.
func outText(c *call, i int) string {
	d := c.datum(i)
	if isReg(d.Type.OID) {
		return regText(c.f.Env, d.Type.OID, uint32(d.Int))
	}
	return textOf(d, c.f.Format())
}

func concatWS(c *call) error {
	if c.null(0) {
		c.setNull()
		return nil
	}
	var parts []string
	for i := 1; i < len(c.args); i++ {
		if !c.null(i) {
			parts = append(parts, outText(c, i))
		}
	}
	return c.setStr(strings.Join(parts, c.str(0)))
}
