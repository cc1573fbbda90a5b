package types

import (
	"encoding/binary"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"unicode/utf8"

	"github.com/streamdb/streamdb/internal/pgerr"
)

// JSONKind tells the kinds of JSON values apart.
type JSONKind uint8

// The kinds of JSON values.
const (
	JSONNull JSONKind = iota
	JSONString
	JSONNumber
	JSONBool
	JSONArray
	JSONObject
)

// String returns the name jsonb_typeof gives the kind.
func (k JSONKind) String() string {
	return [...]string{"null", "string", "number", "boolean", "array", "object"}[k]
}

// JSONTree is a JSON value in memory. Members of an object are in jsonb order: by key length, then bytes; keys are unique.
type JSONTree struct {
	Kind  JSONKind
	Bool  bool
	Str   string // JSONString
	Num   Numeric
	Elems []JSONTree // JSONArray: elements; JSONObject: values, parallel to Keys
	Keys  []string
}

// maxJSONDepth bounds nesting; PostgreSQL's bound is its stack depth limit.
const maxJSONDepth = 6000

// CompareJSONKeys orders object keys as jsonb stores them.
func CompareJSONKeys(a, b string) int {
	if len(a) != len(b) {
		return len(a) - len(b)
	}
	return strings.Compare(a, b)
}

// Get returns the member of an object.
func (j *JSONTree) Get(key string) (*JSONTree, bool) {
	if j.Kind != JSONObject {
		return nil, false
	}
	i, ok := slices.BinarySearchFunc(j.Keys, key, CompareJSONKeys)
	if !ok {
		return nil, false
	}
	return &j.Elems[i], true
}

// NewJSONObject returns an object of the given members; of equal keys the last wins. It takes over both slices.
func NewJSONObject(keys []string, vals []JSONTree) JSONTree {
	sorted := true
	for i := 1; i < len(keys); i++ {
		if CompareJSONKeys(keys[i-1], keys[i]) >= 0 {
			sorted = false
			break
		}
	}
	if sorted {
		return JSONTree{Kind: JSONObject, Keys: keys, Elems: vals}
	}
	idx := make([]int, len(keys))
	for i := range idx {
		idx[i] = i
	}
	slices.SortStableFunc(idx, func(a, b int) int { return CompareJSONKeys(keys[a], keys[b]) })
	o := JSONTree{Kind: JSONObject, Keys: make([]string, 0, len(keys)), Elems: make([]JSONTree, 0, len(keys))}
	for p, i := range idx {
		if p+1 < len(idx) && keys[idx[p+1]] == keys[i] {
			continue
		}
		o.Keys = append(o.Keys, keys[i])
		o.Elems = append(o.Elems, vals[i])
	}
	return o
}

type jsonParser struct {
	s     string
	pos   int
	depth int
	lax   bool // json: keep no tree, check \u0000 and numbers only as far as json does
}

// maxJSONContext is how many bytes before its end the context of an error shows.
const maxJSONContext = 50

// errorf makes an error about the token that ends at end.
func (p *jsonParser) errorf(end int, detail string, args ...any) error {
	return p.within(pgerr.Newf(pgerr.InvalidTextRepresentation, "invalid input syntax for type json").WithDetail(detail, args...), end)
}

// within shows the line up to end as an error's context.
func (p *jsonParser) within(e *pgerr.Error, end int) error {
	line := strings.LastIndexByte(p.s[:end], '\n') + 1
	start := line
	for end-start >= maxJSONContext {
		_, w := utf8.DecodeRuneInString(p.s[start:])
		start += w
	}
	if start-line <= len("...") {
		start = line
	}
	text := p.s[start:end]
	if start > line {
		text = "..." + text
	}
	if end < len(p.s) && p.s[end] != '\n' && p.s[end] != '\r' {
		text += "..."
	}
	return e.Within(fmt.Sprintf("JSON data, line %d: %s", strings.Count(p.s[:line], "\n")+1, text))
}

func (p *jsonParser) space() {
	for p.pos < len(p.s) {
		switch p.s[p.pos] {
		case ' ', '\t', '\n', '\r':
			p.pos++
		default:
			return
		}
	}
}

// token returns the text of the token at pos, for messages.
func (p *jsonParser) token() string {
	i := p.pos
	if i < len(p.s) && !isJSONWord(p.s[i]) {
		_, w := utf8.DecodeRuneInString(p.s[i:])
		return p.s[i : i+w]
	}
	for i < len(p.s) && isJSONWord(p.s[i]) {
		i++
	}
	return p.s[p.pos:i]
}

func isJSONWord(c byte) bool {
	return c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z' || c >= '0' && c <= '9' || c == '_' || c >= 0x80
}

func (p *jsonParser) expected(what string) error {
	if p.pos >= len(p.s) {
		return p.errorf(len(p.s), "The input string ended unexpectedly.")
	}
	// A token that is none comes first.
	at := p.pos
	switch c := p.s[at]; {
	case strings.IndexByte("{}[],:", c) >= 0:
		p.pos++
	default:
		if _, err := p.value(); err != nil {
			return err
		}
	}
	return p.errorf(p.pos, "Expected %s, but found \"%s\".", what, p.s[at:p.pos])
}

// ParseJSON reads JSON text as jsonb does: numbers keep their digits, object keys are sorted, the last of equal keys wins. 22P02 for bad
// syntax, 22P05 for \u0000.
func ParseJSON(s string) (JSONTree, error) {
	p := jsonParser{s: s}
	return p.document()
}

// CheckJSON reports whether s is valid json text, without building it.
func CheckJSON(s string) error {
	p := jsonParser{s: s, lax: true}
	_, err := p.document()
	return err
}

func (p *jsonParser) document() (JSONTree, error) {
	p.pos, p.depth = 0, 0
	if err := pgerr.CheckText(p.s); err != nil {
		return JSONTree{}, err
	}
	v, err := p.value()
	if err != nil {
		return v, err
	}
	if p.space(); p.pos < len(p.s) {
		return v, p.expected("end of input")
	}
	return v, nil
}

func (p *jsonParser) value() (JSONTree, error) {
	p.space()
	if p.pos >= len(p.s) {
		return JSONTree{}, p.errorf(len(p.s), "The input string ended unexpectedly.")
	}
	switch c := p.s[p.pos]; {
	case c == '{':
		return p.object()
	case c == '[':
		return p.array()
	case c == '"':
		s, err := p.str()
		return JSONTree{Kind: JSONString, Str: s}, err
	case c == '-' || c >= '0' && c <= '9':
		return p.number()
	}
	tok := p.token()
	switch tok {
	case "true", "false":
		p.pos += len(tok)
		return JSONTree{Kind: JSONBool, Bool: tok == "true"}, nil
	case "null":
		p.pos += 4
		return JSONTree{Kind: JSONNull}, nil
	}
	switch p.s[p.pos] {
	case '}', ']', ',', ':':
		return JSONTree{}, p.errorf(p.pos+len(tok), "Expected JSON value, but found \"%s\".", tok)
	}
	return JSONTree{}, p.errorf(p.pos+len(tok), "Token \"%s\" is invalid.", tok)
}

func (p *jsonParser) enter() error {
	if p.depth++; p.depth > maxJSONDepth {
		return pgerr.Newf(pgerr.StatementTooComplex, "stack depth limit exceeded")
	}
	return nil
}

func (p *jsonParser) array() (JSONTree, error) {
	v := JSONTree{Kind: JSONArray}
	if err := p.enter(); err != nil {
		return v, err
	}
	p.pos++
	if p.space(); p.pos < len(p.s) && p.s[p.pos] == ']' {
		p.pos++
		p.depth--
		return v, nil
	}
	for {
		e, err := p.value()
		if err != nil {
			return v, err
		}
		if !p.lax {
			v.Elems = append(v.Elems, e)
		}
		p.space()
		if p.pos < len(p.s) {
			switch p.s[p.pos] {
			case ',':
				p.pos++
				continue
			case ']':
				p.pos++
				p.depth--
				return v, nil
			}
		}
		return v, p.expected("\",\" or \"]\"")
	}
}

func (p *jsonParser) object() (JSONTree, error) {
	var keys []string
	var vals []JSONTree
	if err := p.enter(); err != nil {
		return JSONTree{}, err
	}
	p.pos++
	if p.space(); p.pos < len(p.s) && p.s[p.pos] == '}' {
		p.pos++
		p.depth--
		return JSONTree{Kind: JSONObject}, nil
	}
	for {
		if p.space(); p.pos >= len(p.s) || p.s[p.pos] != '"' {
			if len(vals) == 0 {
				return JSONTree{}, p.expected("string or \"}\"")
			}
			return JSONTree{}, p.expected("string")
		}
		k, err := p.str()
		if err != nil {
			return JSONTree{}, err
		}
		if p.space(); p.pos >= len(p.s) || p.s[p.pos] != ':' {
			return JSONTree{}, p.expected("\":\"")
		}
		p.pos++
		v, err := p.value()
		if err != nil {
			return v, err
		}
		keys, vals = append(keys, k), append(vals, v)
		p.space()
		if p.pos < len(p.s) {
			switch p.s[p.pos] {
			case ',':
				p.pos++
				continue
			case '}':
				p.pos++
				p.depth--
				if p.lax {
					return JSONTree{Kind: JSONObject}, nil
				}
				return NewJSONObject(keys, vals), nil
			}
		}
		return JSONTree{}, p.expected("\",\" or \"}\"")
	}
}

func (p *jsonParser) number() (JSONTree, error) {
	start, i := p.pos, p.pos
	digits := func() bool {
		from := i
		for i < len(p.s) && p.s[i] >= '0' && p.s[i] <= '9' {
			i++
		}
		return i > from
	}
	if p.s[i] == '-' {
		i++
	}
	ok := true
	if i < len(p.s) && p.s[i] == '0' {
		i++
	} else {
		ok = digits()
	}
	if ok && i < len(p.s) && p.s[i] == '.' {
		i++
		ok = digits()
	}
	if ok && i < len(p.s) && (p.s[i] == 'e' || p.s[i] == 'E') {
		i++
		if i < len(p.s) && (p.s[i] == '+' || p.s[i] == '-') {
			i++
		}
		ok = digits()
	}
	if !ok || i < len(p.s) && isJSONWord(p.s[i]) {
		for i < len(p.s) && isJSONWord(p.s[i]) {
			i++
		}
		return JSONTree{}, p.errorf(i, "Token \"%s\" is invalid.", p.s[start:i])
	}
	p.pos = i
	v := JSONTree{Kind: JSONNumber}
	if p.lax {
		return v, nil
	}
	var err error
	v.Num, err = ParseNumeric(p.s[start:i])
	return v, err
}

func (p *jsonParser) str() (string, error) {
	p.pos++
	start := p.pos
	for i := start; i < len(p.s); i++ {
		switch c := p.s[i]; {
		case c == '"':
			p.pos = i + 1
			return p.s[start:i], nil
		case c == '\\':
			return p.escaped(start, i)
		case c < 0x20:
			return "", p.errorf(i, "Character with value 0x%02x must be escaped.", c)
		}
	}
	p.pos = start - 1
	return "", p.errorf(len(p.s), "Token \"%s\" is invalid.", p.s[start-1:])
}

func (p *jsonParser) escaped(start, i int) (string, error) {
	b := []byte(p.s[start:i])
	for i < len(p.s) {
		c := p.s[i]
		switch {
		case c == '"':
			p.pos = i + 1
			return string(b), nil
		case c < 0x20:
			return "", p.errorf(i, "Character with value 0x%02x must be escaped.", c)
		case c != '\\':
			b = append(b, c)
			i++
			continue
		}
		if i++; i >= len(p.s) {
			break
		}
		switch c = p.s[i]; c {
		case '"', '\\', '/':
			b = append(b, c)
		case 'b':
			b = append(b, '\b')
		case 'f':
			b = append(b, '\f')
		case 'n':
			b = append(b, '\n')
		case 'r':
			b = append(b, '\r')
		case 't':
			b = append(b, '\t')
		case 'u':
			r, next, err := p.unicode(i + 1)
			if err != nil {
				return "", err
			}
			b = utf8.AppendRune(b, r)
			i = next
			continue
		default:
			_, w := utf8.DecodeRuneInString(p.s[i:])
			return "", p.errorf(i+w, "Escape sequence \"\\%s\" is invalid.", p.s[i:i+w])
		}
		i++
	}
	return "", p.errorf(len(p.s), "Token \"%s\" is invalid.", p.s[start-1:])
}

func (p *jsonParser) hex4(i int) (rune, error) {
	if i+4 <= len(p.s) {
		if u, err := strconv.ParseUint(p.s[i:i+4], 16, 16); err == nil && p.s[i] != '+' && p.s[i] != '-' {
			return rune(u), nil
		}
	}
	for n := 0; n < 4 && i < len(p.s) && strings.IndexByte("0123456789abcdefABCDEF", p.s[i]) >= 0; n++ {
		i++
	}
	_, w := utf8.DecodeRuneInString(p.s[min(i, len(p.s)):])
	return 0, p.errorf(min(i+w, len(p.s)), "\"\\u\" must be followed by four hexadecimal digits.")
}

// unicode reads the digits after \u at i and a second half where the first is a high surrogate.
func (p *jsonParser) unicode(i int) (rune, int, error) {
	r, err := p.hex4(i)
	if err != nil {
		return 0, 0, err
	}
	i += 4
	switch {
	case r == 0:
		if p.lax {
			return 0xFFFD, i, nil
		}
		return 0, 0, p.within(pgerr.Newf(pgerr.UntranslatableCharacter, "unsupported Unicode escape sequence").WithDetail("\\u0000 cannot be converted to text."), i)
	case r >= 0xDC00 && r <= 0xDFFF:
		if p.lax {
			return 0xFFFD, i, nil
		}
		return 0, 0, p.errorf(i, "Unicode low surrogate must follow a high surrogate.")
	case r >= 0xD800 && r <= 0xDBFF:
		if p.lax {
			return 0xFFFD, i, nil
		}
		if !strings.HasPrefix(p.s[i:], "\\u") {
			if strings.HasPrefix(p.s[i:], "\"") {
				i++
			}
			return 0, 0, p.errorf(i, "Unicode low surrogate must follow a high surrogate.")
		}
		lo, err := p.hex4(i + 2)
		if err != nil {
			return 0, 0, err
		}
		switch {
		case lo >= 0xD800 && lo <= 0xDBFF:
			return 0, 0, p.errorf(i, "Unicode high surrogate must not follow a high surrogate.")
		case lo < 0xDC00 || lo > 0xDFFF:
			return 0, 0, p.errorf(i, "Unicode low surrogate must follow a high surrogate.")
		}
		return (r-0xD800)<<10 + (lo - 0xDC00) + 0x10000, i + 6, nil
	}
	return r, i, nil
}

// AppendJSONString appends s as a JSON string literal, escaped as PostgreSQL's escape_json does.
func AppendJSONString(dst []byte, s string) []byte {
	dst = append(dst, '"')
	from := 0
	for i := 0; i < len(s); i++ {
		c := s[i]
		if c >= 0x20 && c != '"' && c != '\\' {
			continue
		}
		dst = append(dst, s[from:i]...)
		from = i + 1
		switch c {
		case '"', '\\':
			dst = append(dst, '\\', c)
		case '\b':
			dst = append(dst, `\b`...)
		case '\f':
			dst = append(dst, `\f`...)
		case '\n':
			dst = append(dst, `\n`...)
		case '\r':
			dst = append(dst, `\r`...)
		case '\t':
			dst = append(dst, `\t`...)
		default:
			const hex = "0123456789abcdef"
			dst = append(dst, '\\', 'u', '0', '0', hex[c>>4], hex[c&15])
		}
	}
	dst = append(dst, s[from:]...)
	return append(dst, '"')
}

// AppendText appends the canonical jsonb text.
func (j *JSONTree) AppendText(dst []byte) []byte {
	switch j.Kind {
	case JSONNull:
		return append(dst, "null"...)
	case JSONBool:
		return strconv.AppendBool(dst, j.Bool)
	case JSONNumber:
		return j.Num.AppendText(dst)
	case JSONString:
		return AppendJSONString(dst, j.Str)
	case JSONArray:
		dst = append(dst, '[')
		for i := range j.Elems {
			if i > 0 {
				dst = append(dst, ", "...)
			}
			dst = j.Elems[i].AppendText(dst)
		}
		return append(dst, ']')
	}
	dst = append(dst, '{')
	for i := range j.Elems {
		if i > 0 {
			dst = append(dst, ", "...)
		}
		dst = AppendJSONString(dst, j.Keys[i])
		dst = append(dst, ": "...)
		dst = j.Elems[i].AppendText(dst)
	}
	return append(dst, '}')
}

// String returns the canonical jsonb text.
func (j *JSONTree) String() string { return string(j.AppendText(nil)) }

// CanonicalJSONB returns the canonical text of JSON input, the stored form of jsonb.
func CanonicalJSONB(s string) (string, error) {
	j, err := ParseJSON(s)
	if err != nil {
		return "", err
	}
	return j.String(), nil
}

// Rank bytes of jsonb keys, in PostgreSQL's order: Object > Array > Boolean > Number > String > Null. An empty array at the top
// sorts below everything, a quirk PostgreSQL keeps for compatibility.
const (
	jsonKeyEmptyArray = 0x01
	jsonKeyNull       = 0x02
	jsonKeyString     = 0x03
	jsonKeyNumber     = 0x04
	jsonKeyBool       = 0x05
	jsonKeyArray      = 0x06
	jsonKeyObject     = 0x07
	jsonKeyInvalid    = 0xFE
)

func appendJSONBKey(dst []byte, s string) []byte {
	j, err := ParseJSON(s)
	if err != nil {
		return appendEscaped(append(dst, jsonKeyInvalid), s)
	}
	if j.Kind == JSONArray && len(j.Elems) == 0 {
		return append(dst, jsonKeyEmptyArray)
	}
	return appendJSONKey(dst, &j)
}

// appendJSONKey: arrays are ordered by length, then elements; objects by size, then key, value, key, value …
func appendJSONKey(dst []byte, j *JSONTree) []byte {
	switch j.Kind {
	case JSONNull:
		return append(dst, jsonKeyNull)
	case JSONString:
		return appendEscaped(append(dst, jsonKeyString), j.Str)
	case JSONNumber:
		return appendNumericKey(append(dst, jsonKeyNumber), &j.Num)
	case JSONBool:
		if j.Bool {
			return append(dst, jsonKeyBool, 1)
		}
		return append(dst, jsonKeyBool, 0)
	case JSONArray:
		dst = binary.BigEndian.AppendUint32(append(dst, jsonKeyArray), uint32(len(j.Elems)))
		for i := range j.Elems {
			dst = appendJSONKey(dst, &j.Elems[i])
		}
		return dst
	}
	dst = binary.BigEndian.AppendUint32(append(dst, jsonKeyObject), uint32(len(j.Elems)))
	for i := range j.Elems {
		dst = appendEscaped(dst, j.Keys[i])
		dst = appendJSONKey(dst, &j.Elems[i])
	}
	return dst
}
