package sql

import "github.com/streamdb/streamdb/sql/internal/lex"

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
