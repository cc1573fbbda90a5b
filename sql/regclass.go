package sql

import (
	"strconv"
	"strings"

	"github.com/streamdb/streamdb/sql/internal/lex"
)

// RelationConstant is a string constant of type regclass in a text: one that is cast to it, or the argument of a function of sequences.
type RelationConstant struct {
	Text     string
	Pos, End int
	Cast     bool // `::regclass` follows, to End
}

// RelationConstants lists the constants of type regclass in a text.
func RelationConstants(text string) []RelationConstant {
	toks, err := lex.Lex(text)
	if err != nil {
		return nil
	}
	var out []RelationConstant
	for i := range toks {
		t := &toks[i]
		if t.K != lex.Str {
			continue
		}
		c := RelationConstant{Text: t.Val, Pos: t.Pos, End: t.End}
		if i+2 < len(toks) && toks[i+1].Is("::") && toks[i+2].Is("regclass") {
			c.Cast, c.End = true, toks[i+2].End
		}
		argument := i > 1 && toks[i-1].Is("(") && (toks[i-2].Is("nextval") || toks[i-2].Is("currval") || toks[i-2].Is("setval")) &&
			i+1 < len(toks) && (toks[i+1].Is(")") || toks[i+1].Is(","))
		if c.Cast || argument {
			out = append(out, c)
		}
	}
	return out
}

// SetRelationConstants replaces the constants of type regclass in a text for which f has another name.
func SetRelationConstants(text string, f func(string) (string, bool)) string {
	var b strings.Builder
	at := 0
	for _, c := range RelationConstants(text) {
		if name, ok := f(c.Text); ok {
			b.WriteString(text[at:c.Pos])
			b.WriteString(QuoteLiteral(name) + "::regclass")
			at = c.End
		}
	}
	return b.String() + text[at:]
}

// RelationIDs lists the relations that constants of type regclass in a text name by number.
func RelationIDs(text string) []uint64 {
	var out []uint64
	if !strings.Contains(text, "'") {
		return nil
	}
	for _, c := range RelationConstants(text) {
		if id, err := strconv.ParseUint(c.Text, 10, 32); err == nil {
			out = append(out, id)
		}
	}
	return out
}
