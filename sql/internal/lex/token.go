// Package lex splits a message into PostgreSQL's tokens and gives parsers a cursor over them.
//
// Comments, escapes, Unicode escapes, dollar quotes and number forms end here: no later stage sees the user's spelling, so nothing
// that TiDB's own lexer would read differently reaches it.
package lex

import (
	"strings"
	"unicode/utf8"

	"github.com/streamdb/streamdb/internal/pgerr"
)

// Kind is the kind of a token.
type Kind uint8

// The kinds of tokens.
const (
	EOF    Kind = iota
	Ident       // unquoted word, folded to lower case
	QIdent      // quoted identifier: never a keyword
	Str         // decoded string constant
	Bit         // B'..' or X'..'; Val is "b101" or "x1f"
	Int         // integer constant that fits int8, decimal digits
	Num         // any other number, its digits
	Param       // $n; Val is n
	Op          // operator symbol
	Punct       // ( ) [ ] , ; : . :: := .. =>
	Bad         // text that is no token; the last one, with Err
)

// maxIdentBytes is PostgreSQL's NAMEDATALEN - 1.
const maxIdentBytes = 63

// Token is one token. Pos and End are byte offsets in the message.
type Token struct {
	K         Kind
	Val       string
	Cat       byte // keyword category U C T R, 0 when no keyword
	Bare      bool // usable as a column label without AS
	Truncated bool // Val was cut to 63 bytes
	Pos, End  int
	Err       *pgerr.Error // of Bad
}

// Is reports whether the token is the unquoted word, punctuation or operator v.
func (t *Token) Is(v string) bool {
	return t.Val == v && (t.K == Ident || t.K == Punct || t.K == Op)
}

// IsName reports whether the token can be a name; cats lists the keyword categories allowed.
func (t *Token) IsName(cats string) bool {
	return t.K == QIdent || t.K == Ident && (t.Cat == 0 || strings.IndexByte(cats, t.Cat) >= 0)
}

// Fail raises an error at pos; Catch turns it into a returned one. Both stay inside package sql and below.
func Fail(code pgerr.Code, pos int, format string, args ...any) {
	panic(pgerr.Newf(code, format, args...).At(pos))
}

// Catch recovers what Fail raised. Defer it at the entry of a parser.
func Catch(err *error) {
	switch r := recover().(type) {
	case nil:
	case *pgerr.Error:
		*err = r
	default:
		panic(r)
	}
}

// Lex returns the tokens of a message, the last of kind EOF, or Bad where the text cannot be split further: parsers raise that error when
// they come to it, so that a syntax error before it comes first.
func Lex(s string) (toks []Token, err error) {
	defer Catch(&err)
	if !utf8.ValidString(s) {
		Fail(pgerr.CharacterNotInRepertoire, invalidAt(s), "invalid byte sequence for encoding \"UTF8\"%s", invalidBytes(s))
	}
	if i := strings.IndexByte(s, 0); i >= 0 {
		Fail(pgerr.CharacterNotInRepertoire, i, "invalid byte sequence for encoding \"UTF8\": 0x00")
	}
	l := &lexer{s: s}
	toks = make([]Token, 0, len(s)/4+4)
	for {
		t := l.token()
		if (t.K == Ident || t.K == QIdent) && len(t.Val) > maxIdentBytes {
			n := maxIdentBytes
			for !utf8.RuneStart(t.Val[n]) {
				n--
			}
			t.Val, t.Truncated = t.Val[:n], true
		}
		toks = append(toks, t)
		if t.K == EOF || t.K == Bad {
			return toks, nil
		}
	}
}

// token returns the next token, Bad with the error that next raised.
func (l *lexer) token() (t Token) {
	defer func() {
		if r := recover(); r != nil {
			e, ok := r.(*pgerr.Error)
			if !ok {
				panic(r)
			}
			t = Token{K: Bad, Pos: e.Pos, End: len(l.s), Err: e}
		}
	}()
	return l.next()
}

func invalidAt(s string) int {
	for i := 0; i < len(s); {
		r, n := utf8.DecodeRuneInString(s[i:])
		if r == utf8.RuneError && n == 1 {
			return i
		}
		i += n
	}
	return 0
}

// invalidBytes prints the offending sequence as PostgreSQL does: as many bytes as its first one announces.
func invalidBytes(s string) string {
	const hex = "0123456789abcdef"
	i := invalidAt(s)
	n := 1
	switch c := s[i]; {
	case c >= 0xF0 && c < 0xF8:
		n = 4
	case c >= 0xE0 && c < 0xF0:
		n = 3
	case c >= 0xC0 && c < 0xE0:
		n = 2
	}
	var b strings.Builder
	b.WriteByte(':')
	for _, c := range []byte(s[i:min(i+n, len(s))]) {
		b.WriteString(" 0x")
		b.WriteByte(hex[c>>4])
		b.WriteByte(hex[c&15])
	}
	return b.String()
}
