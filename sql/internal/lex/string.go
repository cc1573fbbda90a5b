package lex

import (
	"strings"
	"unicode/utf8"

	"github.com/streamdb/streamdb/internal/pgerr"
)

// qident scans a quoted identifier.
func (l *lexer) qident() string {
	p := l.i
	l.i++
	var b strings.Builder
	for {
		j := strings.IndexByte(l.s[l.i:], '"')
		if j < 0 {
			Fail(pgerr.SyntaxError, p, "unterminated quoted identifier at or near \"%s\"", l.s[p:])
		}
		b.WriteString(l.s[l.i : l.i+j])
		l.i += j + 1
		if l.at(0) != '"' {
			return b.String()
		}
		b.WriteByte('"')
		l.i++
	}
}

// quoted scans '..' with its continuations on later lines; esc says that backslashes escape.
func (l *lexer) quoted(esc bool) string {
	p := l.i
	l.i++
	j := strings.IndexAny(l.s[l.i:], "'\\")
	if j >= 0 && l.s[l.i+j] == '\'' && l.at(j+1) != '\'' { // fast path
		v := l.s[l.i : l.i+j]
		l.i += j + 1
		if !l.continued() {
			return v
		}
		return v + l.quoted(esc)
	}
	var b strings.Builder
	for {
		if l.i >= len(l.s) {
			if esc {
				p-- // the E
			}
			Fail(pgerr.SyntaxError, p, "unterminated quoted string at or near \"%s\"", l.s[p:])
		}
		c := l.s[l.i]
		switch {
		case c == '\'' && l.at(1) == '\'':
			b.WriteByte('\'')
			l.i += 2
		case c == '\'':
			l.i++
			if !l.continued() {
				if esc {
					checkText(b.String())
				}
				return b.String()
			}
			l.i++ // next opening quote
		case c == '\\' && esc:
			l.escape(&b)
		default:
			b.WriteByte(c)
			l.i++
		}
	}
}

// checkText refuses what escapes made of a string where that is no text. As in PostgreSQL the error has no place.
func checkText(s string) {
	if !utf8.ValidString(s) {
		Fail(pgerr.CharacterNotInRepertoire, -1, "invalid byte sequence for encoding \"UTF8\"%s", invalidBytes(s))
	}
	if strings.IndexByte(s, 0) >= 0 {
		Fail(pgerr.CharacterNotInRepertoire, -1, "invalid byte sequence for encoding \"UTF8\": 0x00")
	}
}

// continued looks past white space with a line end for another quote, and leaves i on it.
func (l *lexer) continued() bool {
	save := l.i
	if l.space() && l.at(0) == '\'' && !strings.Contains(l.s[save:l.i], "/*") {
		return true
	}
	l.i = save
	return false
}

// escape decodes one escape of E'..'.
func (l *lexer) escape(b *strings.Builder) {
	p := l.i
	l.i++
	c := l.at(0)
	if l.i >= len(l.s) {
		Fail(pgerr.SyntaxError, p, "unterminated quoted string at or near \"%s\"", l.s[p:])
	}
	l.i++
	hex := func(min, max int) rune {
		v, n := rune(0), 0
		for n < max {
			d := hexDigit(l.at(0))
			if d < 0 {
				break
			}
			v, n = v<<4|rune(d), n+1
			l.i++
		}
		if n < min {
			Fail(pgerr.InvalidEscapeSequence, p, "invalid Unicode escape")
		}
		return v
	}
	switch c {
	case 'b':
		b.WriteByte('\b')
	case 'f':
		b.WriteByte('\f')
	case 'n':
		b.WriteByte('\n')
	case 'r':
		b.WriteByte('\r')
	case 't':
		b.WriteByte('\t')
	case 'v':
		b.WriteByte('\v')
	case 'u', 'U':
		n := 4
		if c == 'U' {
			n = 8
		}
		r := hex(n, n)
		if r >= 0xD800 && r < 0xDC00 && l.at(0) == '\\' && l.at(1) == 'u' {
			l.i += 2
			r = surrogate(r, hex(4, 4), p)
		}
		checkRune(r, p)
		b.WriteRune(r)
	case 'x':
		if hexDigit(l.at(0)) >= 0 {
			b.WriteByte(byte(hex(1, 2)))
		} else {
			b.WriteByte('x')
		}
	case '0', '1', '2', '3', '4', '5', '6', '7':
		v := c - '0'
		for n := 0; n < 2 && l.at(0) >= '0' && l.at(0) <= '7'; n++ {
			v = v<<3 | (l.at(0) - '0')
			l.i++
		}
		b.WriteByte(v)
	default:
		b.WriteByte(c)
	}
}

// uescape scans an optional UESCAPE clause.
func (l *lexer) uescape() byte {
	save := l.i
	l.space()
	if len(l.s)-l.i > 7 && strings.EqualFold(l.s[l.i:l.i+7], "uescape") && !identChar(l.at(7)) {
		l.i += 7
		l.space()
		if l.at(0) == '\'' && l.at(2) == '\'' {
			c := l.at(1)
			if strings.IndexByte("0123456789abcdefABCDEF+'\" \t\n\r\f\v", c) >= 0 {
				Fail(pgerr.SyntaxError, l.i, "invalid Unicode escape character")
			}
			l.i += 3
			return c
		}
		Fail(pgerr.SyntaxError, l.i, "UESCAPE must be followed by a simple string literal")
	}
	l.i = save
	return '\\'
}

// hexDigit returns the value of a hexadecimal digit, -1 for any other byte.
func hexDigit(c byte) int {
	switch {
	case c >= '0' && c <= '9':
		return int(c - '0')
	case c >= 'a' && c <= 'f':
		return int(c-'a') + 10
	case c >= 'A' && c <= 'F':
		return int(c-'A') + 10
	}
	return -1
}

// unescapeU decodes the escapes of U&.. strings and identifiers.
func unescapeU(s string, esc byte, pos int) string {
	var b strings.Builder
	for i := 0; i < len(s); {
		if s[i] != esc {
			b.WriteByte(s[i])
			i++
			continue
		}
		if i+1 < len(s) && s[i+1] == esc {
			b.WriteByte(esc)
			i += 2
			continue
		}
		n, o := 4, 1
		if i+1 < len(s) && s[i+1] == '+' {
			n, o = 6, 2
		}
		start := pos + len("U&'") + i
		read := func(i, n int) rune {
			v := rune(0)
			for j := range n {
				d := -1
				if i+j < len(s) {
					d = hexDigit(s[i+j])
				}
				if d < 0 {
					panic(pgerr.Newf(pgerr.SyntaxError, "invalid Unicode escape").At(start).
						WithHint("Unicode escapes must be \\XXXX or \\+XXXXXX."))
				}
				v = v<<4 | rune(d)
			}
			return v
		}
		r := read(i+o, n)
		i += o + n
		if r >= 0xD800 && r < 0xDC00 && i+1 < len(s) && s[i] == esc {
			n, o = 4, 1
			if s[i+1] == '+' {
				n, o = 6, 2
			}
			r = surrogate(r, read(i+o, n), pos)
			i += o + n
		}
		checkRune(r, pos)
		b.WriteRune(r)
	}
	return b.String()
}

// surrogate joins a pair.
func surrogate(hi, lo rune, pos int) rune {
	if lo < 0xDC00 || lo > 0xDFFF {
		Fail(pgerr.SyntaxError, pos, "invalid Unicode surrogate pair")
	}
	return (hi-0xD800)<<10 + (lo - 0xDC00) + 0x10000
}

// checkRune refuses what is no character.
func checkRune(r rune, pos int) {
	if r >= 0xD800 && r < 0xE000 {
		Fail(pgerr.SyntaxError, pos, "invalid Unicode surrogate pair")
	}
	if r == 0 || r > utf8.MaxRune {
		Fail(pgerr.SyntaxError, pos, "invalid Unicode escape value")
	}
}
