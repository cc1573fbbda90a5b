package functions

import (
	"strings"
	"unicode/utf8"

	"github.com/streamdb/streamdb/internal/pgerr"
	"github.com/streamdb/streamdb/sql/expr"
	"github.com/streamdb/streamdb/types"
)

// patternFunctions lists LIKE and its relatives; the operators ~~ and so on call the same functions.
func patternFunctions() []entry {
	var out []entry
	add := func(id, ex string, not, fold bool) { out = append(out, fn(id, ex, likeKernel(not, fold))) }
	add("textlike(text,text)", `'abc' LIKE 'a_c'`, false, false)
	add("textnlike(text,text)", `'abc' NOT LIKE 'a%'`, true, false)
	add("texticlike(text,text)", `'ABC' ILIKE '%b%'`, false, true)
	add("texticnlike(text,text)", `'ABC' NOT ILIKE '%b%'`, true, true)
	add("bytealike(bytea,bytea)", "", false, false)
	add("byteanlike(bytea,bytea)", "", true, false)
	for _, t := range [...]string{"name", "bpchar"} {
		add(t+"like("+t+",text)", "", false, false)
		add(t+"nlike("+t+",text)", "", true, false)
		add(t+"iclike("+t+",text)", "", false, true)
		add(t+"icnlike("+t+",text)", "", true, true)
	}
	add("like(text,text)", "", false, false)
	add("notlike(text,text)", "", true, false)
	add("like(name,text)", "", false, false)
	add("notlike(name,text)", "", true, false)
	return append(out, fn("like_escape(text,text)", `'a%b' LIKE 'a#%b' ESCAPE '#'`, map2e(strSlot, strSlot, strSlot, likeEscape)))
}

// likePattern is a compiled LIKE pattern: literal runs and single-character wildcards between the % signs.
type likePattern struct {
	text  string
	parts []likePart // between two of them anything may stand
	open  bool       // the pattern ends in its escape character
}

// likePart is a run without %: bytes, with any[i] set where byte i stands for any one character.
type likePart struct {
	lit string
	any []bool // nil: no wildcard
}

func compileLike(p string) *likePattern {
	c := &likePattern{text: p}
	var lit []byte
	var wild []bool
	hasWild := false
	flush := func() {
		part := likePart{lit: string(lit)}
		if hasWild {
			part.any = append([]bool(nil), wild...)
		}
		c.parts = append(c.parts, part)
		lit, wild, hasWild = lit[:0], wild[:0], false
	}
	for i := 0; i < len(p); i++ {
		switch p[i] {
		case '\\':
			i++
			if i >= len(p) {
				c.open = true
				continue
			}
			lit, wild = append(lit, p[i]), append(wild, false)
		case '%':
			flush()
		case '_':
			lit, wild = append(lit, 0), append(wild, true)
			hasWild = true
		default:
			lit, wild = append(lit, p[i]), append(wild, false)
		}
	}
	flush()
	return c
}

// prefix returns the length of s that the part matches at its start, -1 for none.
func (p *likePart) prefix(s string) int {
	if p.any == nil {
		if strings.HasPrefix(s, p.lit) {
			return len(p.lit)
		}
		return -1
	}
	at := 0
	for i := range len(p.lit) {
		if at >= len(s) {
			return -1
		}
		if p.any[i] {
			_, w := utf8.DecodeRuneInString(s[at:])
			at += w
			continue
		}
		if s[at] != p.lit[i] {
			return -1
		}
		at++
	}
	return at
}

// find returns where the part first matches in s and the end of the match.
func (p *likePart) find(s string) (from, to int) {
	if p.any == nil {
		i := strings.Index(s, p.lit)
		if i < 0 {
			return -1, -1
		}
		return i, i + len(p.lit)
	}
	for i := 0; i <= len(s); {
		if n := p.prefix(s[i:]); n >= 0 {
			return i, i + n
		}
		if i == len(s) {
			break
		}
		_, w := utf8.DecodeRuneInString(s[i:])
		i += w
	}
	return -1, -1
}

func (c *likePattern) match(s string) bool {
	n := c.parts[0].prefix(s)
	if n < 0 {
		return false
	}
	if len(c.parts) == 1 {
		return n == len(s)
	}
	s = s[n:]
	last := len(c.parts) - 1
	for i := 1; i < last; i++ {
		_, to := c.parts[i].find(s)
		if to < 0 {
			return false
		}
		s = s[to:]
	}
	tail := &c.parts[last]
	if tail.any == nil {
		return strings.HasSuffix(s, tail.lit)
	}
	for i := 0; i <= len(s); {
		if n := tail.prefix(s[i:]); n == len(s)-i {
			return true
		}
		if i == len(s) {
			break
		}
		_, w := utf8.DecodeRuneInString(s[i:])
		i += w
	}
	return false
}

func likeKernel(not, fold bool) expr.Kernel {
	return func(f *expr.Frame, args []expr.Arg, out *types.Vector) {
		a, b := args[0], args[1]
		c, _ := f.State.(*likePattern)
		for i := range f.Len() {
			r := f.Row(i)
			s, p := a.Str[a.At(r)], b.Str[b.At(r)]
			if fold {
				s, p = strings.ToLower(s), strings.ToLower(p)
			}
			if c == nil || c.text != p {
				c = compileLike(p)
				f.State = c
			}
			if !c.open {
				out.Bool[r] = c.match(s) != not
				continue
			}
			// The escape character at the end is an error only where the match gets that far with text left.
			out.Bool[r] = not
			if !c.match(s) {
				c.parts = append(c.parts, likePart{})
				if c.match(s) {
					f.Fail(out, r, pgerr.Newf(pgerr.InvalidEscapeSequence, "LIKE pattern must not end with escape character"))
				}
				c.parts = c.parts[:len(c.parts)-1]
			}
		}
	}
}

// likeEscape rewrites a pattern with another escape character to one with a backslash.
func likeEscape(p, esc string) (string, error) {
	if utf8.RuneCountInString(esc) > 1 {
		return "", pgerr.Newf(pgerr.InvalidEscapeSequence, "invalid escape string").WithHint("Escape string must be empty or one character.")
	}
	var b strings.Builder
	for i := 0; i < len(p); {
		_, w := utf8.DecodeRuneInString(p[i:])
		ch := p[i : i+w]
		i += w
		switch {
		case esc != "" && ch == esc:
			b.WriteByte('\\')
			if i < len(p) {
				_, w = utf8.DecodeRuneInString(p[i:])
				b.WriteString(p[i : i+w])
				i += w
			}
		case ch == `\`:
			b.WriteString(`\\`)
		default:
			b.WriteString(ch)
		}
	}
	return b.String(), nil
}
