package sql

import (
	"strings"

	"github.com/streamdb/streamdb/sql/internal/lex"
	"github.com/streamdb/streamdb/sql/internal/translate"
)

// NameToken is a name in a text.
type NameToken struct {
	Name      string // folded
	Pos, End  int
	Call      bool // a parenthesis follows
	Type      bool // it stands behind ::
	Qualified bool // a dot stands before it
}

// Names lists the names in a text, keywords that may be names included.
func Names(text string) ([]NameToken, error) {
	toks, err := lex.Lex(text)
	if err != nil {
		return nil, err
	}
	var out []NameToken
	for i := range toks {
		t := &toks[i]
		if !t.IsName("UCTR") {
			continue
		}
		n := NameToken{Name: t.Val, Pos: t.Pos, End: t.End}
		if i+1 < len(toks) {
			n.Call = toks[i+1].Is("(")
		}
		if i > 0 {
			n.Type, n.Qualified = toks[i-1].Is("::"), toks[i-1].Is(".")
		}
		out = append(out, n)
	}
	return out, nil
}

// Use is what an unqualified name in a query stands for.
type Use int

// The uses.
const (
	UseRelation Use = iota
	UseFunction
	UseType
)

// Qualified returns the text of a query with a schema before the unqualified names that schemaOf has one for. A text that cannot be parsed is
// returned as it is.
func Qualified(text string, schemaOf func(use Use, name string) string) string {
	toks, err := lex.Lex(text)
	if err != nil {
		return text
	}
	p := &parser{Parser: translate.New(text, toks)}
	p.Change = p.withChange
	if err := func() (err error) {
		defer lex.Catch(&err)
		p.fullQuery()
		return nil
	}(); err != nil {
		return text
	}
	names, err := Names(text)
	if err != nil {
		return text
	}
	var b strings.Builder
	at := 0
	for _, n := range names {
		use := UseRelation
		switch {
		case n.Qualified:
			continue
		case n.Type:
			use = UseType
		case p.NamesRelation(n.Name, n.Pos):
		case n.Call:
			use = UseFunction
		default:
			continue
		}
		if schema := schemaOf(use, n.Name); schema != "" {
			b.WriteString(text[at:n.Pos] + QuoteIdent(schema) + ".")
			at = n.Pos
		}
	}
	return b.String() + text[at:]
}
