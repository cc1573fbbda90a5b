package format

import (
	"bytes"
	"math/bits"
	"unicode/utf8"
	"unsafe"

	"github.com/streamdb/streamdb/internal/pgerr"
)

// str scans a JSON string whose opening quote is before i. It returns the index of the closing quote, and whether there are escapes, after
// checking these, control characters and the encoding.
func (d *jsonDecoder) str(i, end int) (quote int, escaped bool, err error) {
	if d.simple {
		if n := bytes.IndexByte(d.buf[i:end], '"'); n >= 0 {
			return i + n, false, nil
		}
	}
	const (
		quotes    = '"' * ones
		backslash = '\\' * ones
	)
	p := unsafe.Pointer(unsafe.SliceData(d.buf))
	start := i
	var high uint64
	for i < end {
		x := load(p, i)
		m := equal(x, quotes) | equal(x, backslash) | (x-blanks)&^x&highs
		if m == 0 {
			high |= x
			i += 8
			continue
		}
		k := bits.TrailingZeros64(m) >> 3
		high |= x & (1<<(uint(k)*8) - 1)
		i += k
		if i >= end {
			break
		}
		switch d.buf[i] {
		case '"':
			if high&highs != 0 && !utf8.Valid(d.buf[start:i]) {
				return 0, false, pgerr.Newf(pgerr.CharacterNotInRepertoire, "invalid byte sequence for encoding \"UTF8\"").
					WithDetail("In the string at byte %d of the line.", d.column(start-1))
			}
			return i, escaped, nil
		case '\\':
			escaped = true
			if i, err = d.escape(i, end); err != nil {
				return 0, false, err
			}
		default:
			return 0, false, d.errAt(i, "no control character in a string")
		}
	}
	return 0, false, d.errAt(end, "a closing quote")
}

// escape checks the escape sequence at i and returns the index after it.
func (d *jsonDecoder) escape(i, end int) (int, error) {
	if i+1 >= end {
		return 0, d.errAt(end, "an escape sequence")
	}
	switch d.buf[i+1] {
	case '"', '\\', '/', 'b', 'f', 'n', 'r', 't':
		return i + 2, nil
	case 'u':
		if i+6 > end {
			return 0, d.errAt(end, "four hexadecimal digits")
		}
		for _, c := range d.buf[i+2 : i+6] {
			if (c < '0' || c > '9') && (c|0x20 < 'a' || c|0x20 > 'f') {
				return 0, d.errAt(i, "four hexadecimal digits after \\u")
			}
		}
		return i + 6, nil
	}
	return 0, d.errAt(i+1, "an escape character")
}

// skip checks the value at i and returns the index after it.
func (d *jsonDecoder) skip(i, end, depth int) (int, error) {
	if i >= end {
		return 0, d.errAt(end, "a JSON value")
	}
	switch c := d.buf[i]; c {
	case '"':
		quote, _, err := d.str(i+1, end)
		return quote + 1, err
	case '{', '[':
		if depth >= maxJSONDepth {
			return 0, pgerr.Newf(pgerr.StatementTooComplex, "JSON is nested deeper than %d levels", maxJSONDepth)
		}
		return d.skipNested(i, end, depth, c)
	case 't':
		return d.literal(i, end, "true")
	case 'f':
		return d.literal(i, end, "false")
	case 'n':
		return d.literal(i, end, "null")
	}
	p := unsafe.Pointer(unsafe.SliceData(d.buf))
	n := i + int(digits8(load(p, i)))
	if n == i+wordBytes {
		n += int(digits8(load(p, n)))
	}
	if n > i && n <= end && (d.buf[i] != '0' || n == i+1) && delimits(d.buf, n, end) {
		return n, nil
	}
	return d.skipNumber(i, end)
}

func (d *jsonDecoder) skipNested(i, end, depth int, open byte) (int, error) {
	closing := byte(']')
	if open == '{' {
		closing = '}'
	}
	i = d.space(i+1, end)
	if i < end && d.buf[i] == closing {
		return i + 1, nil
	}
	var err error
	for {
		i = d.space(i, end)
		if open == '{' {
			if i >= end || d.buf[i] != '"' {
				return 0, d.errAt(min(i, end), "a member's name in quotes")
			}
			if i, _, err = d.str(i+1, end); err != nil {
				return 0, err
			}
			if i = d.space(i+1, end); i >= end || d.buf[i] != ':' {
				return 0, d.errAt(min(i, end), "\":\"")
			}
			i = d.space(i+1, end)
		}
		if i, err = d.skip(i, end, depth+1); err != nil {
			return 0, err
		}
		if i = d.space(i, end); i >= end {
			return 0, d.errAt(end, "\",\" or \""+string(closing)+"\"")
		}
		switch d.buf[i] {
		case ',':
			i++
		case closing:
			return i + 1, nil
		default:
			return 0, d.errAt(i, "\",\" or \""+string(closing)+"\"")
		}
	}
}

func (d *jsonDecoder) literal(i, end int, word string) (int, error) {
	n := i + len(word)
	if n > end || view(d.buf[i:n]) != word || !delimits(d.buf, n, end) {
		return 0, d.errAt(i, "a JSON value")
	}
	return n, nil
}

func (d *jsonDecoder) digits(i, end int) int {
	for i < end && d.buf[i]-'0' <= 9 {
		i++
	}
	return i
}

func (d *jsonDecoder) skipNumber(i, end int) (int, error) {
	start := i
	if d.buf[i] == '-' {
		i++
	}
	n := d.digits(i, end)
	if n == i || n > i+1 && d.buf[i] == '0' {
		return 0, d.errAt(start, "a JSON value")
	}
	i = n
	if i < end && d.buf[i] == '.' {
		if n = d.digits(i+1, end); n == i+1 {
			return 0, d.errAt(min(n, end), "a digit")
		}
		i = n
	}
	if i < end && d.buf[i]|0x20 == 'e' {
		i++
		if i < end && (d.buf[i] == '+' || d.buf[i] == '-') {
			i++
		}
		if n = d.digits(i, end); n == i {
			return 0, d.errAt(min(n, end), "a digit")
		}
		i = n
	}
	if !delimits(d.buf, i, end) {
		return 0, d.errAt(i, "the end of a number")
	}
	return i, nil
}
