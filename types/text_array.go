package types

import (
	"strconv"
	"strings"

	"github.com/streamdb/streamdb/internal/pgerr"
)

func errArray(s, detail string, args ...any) error {
	e := pgerr.Newf(pgerr.InvalidTextRepresentation, "malformed array literal: \"%s\"", s)
	if detail != "" {
		e.WithDetail(detail, args...)
	}
	return e
}

type arrayParser struct {
	f    *Format
	elem Type
	text string
	pos  int
	a    Array
	dims []int32 // length per level, -1 while unknown
}

// parseArrayText reads an array literal into the storage form.
func parseArrayText(f *Format, elem Type, s string) (string, error) {
	p := arrayParser{f: f, elem: T(elem.OID), text: s, a: Array{Elem: elem.OID}}
	lowers, lens, err := p.bounds()
	if err != nil {
		return "", err
	}
	p.space()
	if p.pos >= len(s) || s[p.pos] != '{' {
		if lowers != nil {
			return "", errArray(s, "Array contents must start with \"{\".")
		}
		return "", errArray(s, "Array value must start with \"{\" or dimension information.")
	}
	if err := p.list(0); err != nil {
		return "", err
	}
	if p.space(); p.pos < len(s) {
		return "", errArray(s, "Junk after closing right brace.")
	}
	if len(p.a.Elems) > 0 {
		for i, l := range p.dims {
			d := Dim{Len: l, Lower: 1}
			if lowers != nil && i < len(lowers) {
				d.Lower = lowers[i]
			}
			p.a.Dims = append(p.a.Dims, d)
		}
	}
	if lens != nil {
		if len(lens) != len(p.a.Dims) {
			return "", errArray(s, "Specified array dimensions do not match array contents.")
		}
		for i := range lens {
			if lens[i] != p.a.Dims[i].Len {
				return "", errArray(s, "Specified array dimensions do not match array contents.")
			}
		}
	}
	return EncodeArray(p.a), nil
}

func (p *arrayParser) space() {
	for p.pos < len(p.text) && isSpace(p.text[p.pos]) {
		p.pos++
	}
}

func (p *arrayParser) int() (int32, bool) {
	i := p.pos
	if i < len(p.text) && (p.text[i] == '-' || p.text[i] == '+') {
		i++
	}
	for i < len(p.text) && p.text[i] >= '0' && p.text[i] <= '9' {
		i++
	}
	v, err := strconv.ParseInt(p.text[p.pos:i], 10, 32)
	if err != nil {
		return 0, false
	}
	p.pos = i
	return int32(v), true
}

// bounds reads explicit dimensions such as [0:2][3]= before the contents.
func (p *arrayParser) bounds() (lowers, lens []int32, err error) {
	for {
		p.space()
		if p.pos >= len(p.text) || p.text[p.pos] != '[' {
			break
		}
		if len(lens) >= MaxArrayDims {
			return nil, nil, ErrArrayDims(len(lens) + 1)
		}
		p.pos++
		lo, hi := int32(1), int32(0)
		v, ok := p.int()
		if !ok {
			return nil, nil, errArray(p.text, "\"[\" must introduce explicitly-specified array dimensions.")
		}
		hi = v
		if p.pos < len(p.text) && p.text[p.pos] == ':' {
			p.pos++
			lo = v
			if hi, ok = p.int(); !ok {
				return nil, nil, errArray(p.text, "Missing array dimension value.")
			}
		}
		if p.pos >= len(p.text) || p.text[p.pos] != ']' {
			return nil, nil, errArray(p.text, "Missing \"%s\" after array dimensions.", "]")
		}
		p.pos++
		if hi < lo {
			return nil, nil, pgerr.Newf(pgerr.ArraySubscriptError, "upper bound cannot be less than lower bound")
		}
		if int64(hi)-int64(lo) >= maxArrayElems {
			return nil, nil, pgerr.Newf(pgerr.ProgramLimitExceeded, "array size exceeds the maximum allowed (%d)", maxArrayElems)
		}
		lowers, lens = append(lowers, lo), append(lens, hi-lo+1)
	}
	if lens != nil {
		if p.pos >= len(p.text) || p.text[p.pos] != '=' {
			return nil, nil, errArray(p.text, "Missing \"%s\" after array dimensions.", "=")
		}
		p.pos++
	}
	return lowers, lens, nil
}

func (p *arrayParser) end() error { return errArray(p.text, "Unexpected end of input.") }

// list reads a brace list at nesting level; pos is at its opening brace.
func (p *arrayParser) list(level int) error {
	if level >= MaxArrayDims {
		return ErrArrayDims(level + 1)
	}
	p.pos++
	n := int32(0)
	if level >= len(p.dims) {
		if len(p.a.Elems) > 0 {
			return p.ragged()
		}
		p.dims = append(p.dims, -1)
	}
	p.space()
	if p.pos < len(p.text) && p.text[p.pos] == '}' {
		if level > 0 {
			return errArray(p.text, "Unexpected \"%c\" character.", '}')
		}
		p.pos++
		return p.close(level, 0)
	}
	for {
		p.space()
		if p.pos >= len(p.text) {
			return p.end()
		}
		switch p.text[p.pos] {
		case '{':
			if level+1 >= len(p.dims) && (n > 0 || p.dims[level] >= 0) {
				return p.ragged()
			}
			if err := p.list(level + 1); err != nil {
				return err
			}
		case ',', '}':
			return errArray(p.text, "Unexpected \"%c\" character.", p.text[p.pos])
		default:
			if level+1 < len(p.dims) {
				return p.ragged()
			}
			if err := p.element(); err != nil {
				return err
			}
		}
		n++
		p.space()
		if p.pos >= len(p.text) {
			return p.end()
		}
		switch p.text[p.pos] {
		case ',':
			p.pos++
		case '}':
			p.pos++
			return p.close(level, n)
		default:
			return errArray(p.text, "Unexpected array element.")
		}
	}
}

func (p *arrayParser) ragged() error {
	return errArray(p.text, "Multidimensional arrays must have sub-arrays with matching dimensions.")
}

func (p *arrayParser) close(level int, n int32) error {
	if p.dims[level] >= 0 && p.dims[level] != n {
		return p.ragged()
	}
	p.dims[level] = n
	return nil
}

func (p *arrayParser) element() error {
	if p.text[p.pos] == '"' {
		s, err := p.quoted()
		if err != nil {
			return err
		}
		return p.add(s)
	}
	var b []byte
	escaped := false
	keep := 0
loop:
	for ; p.pos < len(p.text); p.pos++ {
		switch c := p.text[p.pos]; c {
		case ',', '}':
			break loop
		case '{':
			return errArray(p.text, "Unexpected \"%c\" character.", c)
		case '"':
			return errArray(p.text, "Unexpected array element.")
		case '\\':
			p.pos++
			if p.pos >= len(p.text) {
				return p.end()
			}
			b = append(b, p.text[p.pos])
			escaped, keep = true, len(b)
		default:
			b = append(b, c)
			if !isSpace(c) {
				keep = len(b)
			}
		}
	}
	if p.pos >= len(p.text) {
		return p.end()
	}
	s := string(b[:keep])
	if !escaped && strings.EqualFold(s, "null") {
		p.a.Elems = append(p.a.Elems, NullDatum(T(p.elem.OID)))
		return nil
	}
	return p.add(s)
}

func (p *arrayParser) quoted() (string, error) {
	var b []byte
	for p.pos++; p.pos < len(p.text); p.pos++ {
		switch c := p.text[p.pos]; c {
		case '"':
			p.pos++
			return string(b), nil
		case '\\':
			p.pos++
			if p.pos < len(p.text) {
				b = append(b, p.text[p.pos])
			}
		default:
			b = append(b, c)
		}
	}
	return "", p.end()
}

func (p *arrayParser) add(s string) error {
	if len(p.a.Elems) >= maxArrayElems {
		return pgerr.Newf(pgerr.ProgramLimitExceeded, "array size exceeds the maximum allowed (%d)", maxArrayElems)
	}
	d, err := ParseText(p.f, p.elem, s)
	if err != nil {
		return err
	}
	d.Type = T(p.elem.OID)
	p.a.Elems = append(p.a.Elems, d)
	return nil
}

func appendArrayText(dst []byte, f *Format, s string) []byte {
	a, err := DecodeArray(s)
	if err != nil || len(a.Elems) == 0 {
		return append(dst, "{}"...)
	}
	for _, d := range a.Dims {
		if d.Lower == 1 {
			continue
		}
		for _, d := range a.Dims {
			dst = append(dst, '[')
			dst = strconv.AppendInt(dst, int64(d.Lower), 10)
			dst = append(dst, ':')
			dst = strconv.AppendInt(dst, int64(d.Lower)+int64(d.Len)-1, 10)
			dst = append(dst, ']')
		}
		dst = append(dst, '=')
		break
	}
	elems := a.Elems
	return appendArrayLevel(dst, f, a.Dims, &elems)
}

func appendArrayLevel(dst []byte, f *Format, dims []Dim, elems *[]Datum) []byte {
	dst = append(dst, '{')
	for i := range dims[0].Len {
		if i > 0 {
			dst = append(dst, ',')
		}
		if len(dims) > 1 {
			dst = appendArrayLevel(dst, f, dims[1:], elems)
			continue
		}
		d := (*elems)[0]
		*elems = (*elems)[1:]
		if d.Null {
			dst = append(dst, "NULL"...)
			continue
		}
		at := len(dst)
		dst = d.AppendText(dst, f)
		if arrayNeedsQuotes(dst[at:]) {
			dst = quoteFrom(dst, at, '\\')
		}
	}
	return append(dst, '}')
}

func arrayNeedsQuotes(b []byte) bool {
	if len(b) == 0 || strings.EqualFold(string(b), "null") {
		return true
	}
	for _, c := range b {
		if c == '"' || c == '\\' || c == '{' || c == '}' || c == ',' || isSpace(c) {
			return true
		}
	}
	return false
}

// quoteFrom quotes dst[at:]; a quote is preceded by esc, a backslash by itself.
func quoteFrom(dst []byte, at int, esc byte) []byte {
	raw := string(dst[at:])
	dst = append(dst[:at], '"')
	for i := 0; i < len(raw); i++ {
		switch raw[i] {
		case '"':
			dst = append(dst, esc)
		case '\\':
			dst = append(dst, '\\')
		}
		dst = append(dst, raw[i])
	}
	return append(dst, '"')
}

func appendRecordText(dst []byte, f *Format, s string) []byte {
	fields, err := DecodeRecord(s)
	if err != nil {
		return append(dst, "()"...)
	}
	dst = append(dst, '(')
	for i, d := range fields {
		if i > 0 {
			dst = append(dst, ',')
		}
		if d.Null {
			continue
		}
		at := len(dst)
		dst = d.AppendText(dst, f)
		if recordNeedsQuotes(dst[at:]) {
			dst = quoteFrom(dst, at, '"')
		}
	}
	return append(dst, ')')
}

func recordNeedsQuotes(b []byte) bool {
	if len(b) == 0 {
		return true
	}
	for _, c := range b {
		if c == '"' || c == '\\' || c == '(' || c == ')' || c == ',' || isSpace(c) {
			return true
		}
	}
	return false
}

// parseVectorType reads int2vector and oidvector: numbers between blanks; subscripts start at 0.
func parseVectorType(f *Format, t Type, s string) (string, error) {
	e, _ := t.Elem()
	a := Array{Elem: e.OID}
	for _, w := range strings.Fields(s) {
		d, err := ParseText(f, T(e.OID), w)
		if err != nil {
			return "", err
		}
		a.Elems = append(a.Elems, d)
	}
	if len(a.Elems) > 0 {
		a.Dims = []Dim{{Len: int32(len(a.Elems)), Lower: 0}}
	}
	return EncodeArray(a), nil
}

func appendVectorTypeText(dst []byte, s string) []byte {
	a, err := DecodeArray(s)
	if err != nil {
		return dst
	}
	for i, d := range a.Elems {
		if i > 0 {
			dst = append(dst, ' ')
		}
		dst = d.AppendText(dst, nil)
	}
	return dst
}
