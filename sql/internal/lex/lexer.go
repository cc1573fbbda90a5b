package lex

import (
	"strconv"
	"strings"
	"unicode/utf8"

	"github.com/streamdb/streamdb/internal/pgerr"
)

// lexer scans one message; i is the offset of the next byte.
type lexer struct {
	s string
	i int
}

func identStart(c byte) bool {
	return c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z' || c == '_' || c >= 0x80
}
func identChar(c byte) bool { return identStart(c) || c >= '0' && c <= '9' || c == '$' }
func isDigit(c byte) bool   { return c >= '0' && c <= '9' }
func isSpace(c byte) bool   { return c == ' ' || c >= '\t' && c <= '\r' && c != '\v' || c == '\v' }

const opChars = "+-*/<>=~!@#%^&|`?"

// at returns the byte k after the next one, 0 beyond the end.
func (l *lexer) at(k int) byte {
	if l.i+k < len(l.s) {
		return l.s[l.i+k]
	}
	return 0
}

// space skips white space and comments; it reports whether it crossed the end of a line.
func (l *lexer) space() (nl bool) {
	for l.i < len(l.s) {
		c := l.s[l.i]
		switch {
		case isSpace(c):
			if c == '\n' || c == '\r' {
				nl = true
			}
			l.i++
		case c == '-' && l.at(1) == '-':
			for l.i < len(l.s) && l.s[l.i] != '\n' && l.s[l.i] != '\r' {
				l.i++
			}
		case c == '/' && l.at(1) == '*':
			start, depth := l.i, 1
			l.i += 2
			for depth > 0 {
				switch {
				case l.i >= len(l.s):
					Fail(pgerr.SyntaxError, start, "unterminated /* comment at or near \"%s\"", l.s[start:])
				case l.s[l.i] == '/' && l.at(1) == '*':
					depth++
					l.i += 2
				case l.s[l.i] == '*' && l.at(1) == '/':
					depth--
					l.i += 2
				default:
					l.i++
				}
			}
		default:
			return nl
		}
	}
	return nl
}

// next scans one token.
func (l *lexer) next() Token {
	l.space()
	p := l.i
	if p >= len(l.s) {
		return Token{K: EOF, Pos: p, End: p}
	}
	tok := func(k Kind, v string) Token { return Token{K: k, Val: v, Pos: p, End: l.i} }
	c := l.s[p]
	switch {
	case c == '\'':
		return tok2(l, Str, l.quoted(false), p)
	case (c == 'e' || c == 'E') && l.at(1) == '\'':
		l.i++
		return tok2(l, Str, l.quoted(true), p)
	case (c == 'n' || c == 'N') && l.at(1) == '\'': // N'..' is nchar '..'
		l.i++
		return Token{K: Ident, Val: "nchar", Cat: Category("nchar"), Pos: p, End: l.i}
	case (c == 'b' || c == 'B' || c == 'x' || c == 'X') && l.at(1) == '\'':
		l.i++
		return tok2(l, Bit, strings.ToLower(string(c))+l.quoted(false), p)
	case (c == 'u' || c == 'U') && l.at(1) == '&' && (l.at(2) == '\'' || l.at(2) == '"'):
		l.i += 2
		q := l.s[l.i]
		var v string
		if q == '\'' {
			v = l.quoted(false)
		} else {
			v = l.qident()
		}
		v = unescapeU(v, l.uescape(), p)
		if q == '\'' {
			return tok2(l, Str, v, p)
		}
		return tok2(l, QIdent, v, p)
	case c == '"':
		v := l.qident()
		if v == "" {
			Fail(pgerr.SyntaxError, p, "zero-length delimited identifier at or near \"%s\"", l.s[p:l.i])
		}
		return tok(QIdent, v)
	case identStart(c):
		lower := true
		for l.i < len(l.s) && identChar(l.s[l.i]) {
			if b := l.s[l.i]; b >= 'A' && b <= 'Z' {
				lower = false
			}
			l.i++
		}
		v := l.s[p:l.i]
		if !lower {
			v = asciiLower(v)
		}
		t := tok(Ident, v)
		if k, ok := keywords[v]; ok {
			t.Cat, t.Bare = k.cat, k.bare
		} else {
			t.Bare = true
		}
		return t
	case isDigit(c) || c == '.' && isDigit(l.at(1)):
		return l.number()
	case c == '$':
		if isDigit(l.at(1)) {
			l.i++
			for isDigit(l.at(0)) {
				l.i++
			}
			if identStart(l.at(0)) {
				Fail(pgerr.SyntaxError, p, "trailing junk after parameter at or near %q", l.s[p:l.i+1])
			}
			if _, err := strconv.ParseInt(l.s[p+1:l.i], 10, 32); err != nil {
				Fail(pgerr.SyntaxError, p, "parameter number too large at or near \"%s\"", l.s[p:l.i])
			}
			return tok(Param, l.s[p+1:l.i])
		}
		j := p + 1
		if j < len(l.s) && identStart(l.s[j]) {
			for j < len(l.s) && (identStart(l.s[j]) || isDigit(l.s[j])) {
				j++
			}
		}
		if j < len(l.s) && l.s[j] == '$' {
			tag := l.s[p : j+1]
			end := strings.Index(l.s[j+1:], tag)
			if end < 0 {
				Fail(pgerr.SyntaxError, p, "unterminated dollar-quoted string at or near \"%s\"", l.s[p:])
			}
			l.i = j + 1 + end + len(tag)
			return tok(Str, l.s[j+1:j+1+end])
		}
		Fail(pgerr.SyntaxError, p, "syntax error at or near \"$\"")
	case c == ':':
		if n := l.at(1); n == ':' || n == '=' {
			l.i += 2
		} else {
			l.i++
		}
		return tok(Punct, l.s[p:l.i])
	case c == '.':
		l.i++
		if l.at(0) == '.' {
			l.i++
		}
		return tok(Punct, l.s[p:l.i])
	case strings.IndexByte("()[],;", c) >= 0:
		l.i++
		return tok(Punct, l.s[p:l.i])
	case strings.IndexByte(opChars, c) >= 0:
		j := p
		special := false
		for j < len(l.s) && strings.IndexByte(opChars, l.s[j]) >= 0 {
			if j+1 < len(l.s) && (l.s[j] == '-' && l.s[j+1] == '-' || l.s[j] == '/' && l.s[j+1] == '*') {
				break
			}
			if strings.IndexByte("~!@#%^&|`?", l.s[j]) >= 0 {
				special = true
			}
			j++
		}
		for !special && j > p+1 && (l.s[j-1] == '+' || l.s[j-1] == '-') {
			j--
		}
		l.i = j
		v := l.s[p:j]
		switch v {
		case "!=":
			v = "<>"
		case "=>":
			return tok(Punct, v)
		}
		return tok(Op, v)
	}
	r, _ := utf8.DecodeRuneInString(l.s[p:])
	Fail(pgerr.SyntaxError, p, "syntax error at or near \"%c\"", r)
	panic("unreachable")
}

// tok2 makes a token from p to the cursor.
func tok2(l *lexer, k Kind, v string, p int) Token { return Token{K: k, Val: v, Pos: p, End: l.i} }

// asciiLower folds A-Z alone, as PostgreSQL does in UTF8 databases for ASCII.
func asciiLower(s string) string {
	b := []byte(s)
	for i, c := range b {
		if c >= 'A' && c <= 'Z' {
			b[i] = c + 32
		}
	}
	return string(b)
}
