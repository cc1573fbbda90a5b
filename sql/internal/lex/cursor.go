package lex

import (
	"strings"

	"github.com/streamdb/streamdb/internal/pgerr"
)

// maxDepth bounds the nesting of queries and expressions; the recursion of later stages follows it.
const maxDepth = 2000

// Cursor walks over the tokens of one message. Its methods raise syntax errors with Fail.
type Cursor struct {
	Src   string
	Toks  []Token
	I     int
	depth int
}

// Cur returns the token at the cursor.
func (p *Cursor) Cur() *Token { return &p.Toks[p.I] }

// Peek returns the token n after the cursor, the last one beyond the end.
func (p *Cursor) Peek(n int) *Token {
	if p.I+n < len(p.Toks) {
		return &p.Toks[p.I+n]
	}
	return &p.Toks[len(p.Toks)-1]
}

// Next consumes a token; at the end of the input it raises a syntax error.
func (p *Cursor) Next() *Token {
	t := &p.Toks[p.I]
	if t.K == EOF || t.K == Bad {
		p.Syntax()
	}
	p.I++
	return t
}

// Is reports whether the cursor stands at v.
func (p *Cursor) Is(v string) bool { return p.Cur().Is(v) }

// IsN reports whether the next tokens are vs.
func (p *Cursor) IsN(vs ...string) bool {
	for n, v := range vs {
		if !p.Peek(n).Is(v) {
			return false
		}
	}
	return true
}

// Any reports whether the cursor stands at one of vs.
func (p *Cursor) Any(vs ...string) bool {
	for _, v := range vs {
		if p.Is(v) {
			return true
		}
	}
	return false
}

// Accept consumes the tokens vs if they are next.
func (p *Cursor) Accept(vs ...string) bool {
	if !p.IsN(vs...) {
		return false
	}
	p.I += len(vs)
	return true
}

// Commit consumes the tokens vs if the first n of them are next; the others must follow then. It puts errors where PostgreSQL's
// look-ahead of one token puts them.
func (p *Cursor) Commit(n int, vs ...string) bool {
	if !p.Accept(vs[:n]...) {
		return false
	}
	p.Expect(vs[n:]...)
	return true
}

// Expect consumes the tokens vs or raises a syntax error at the first that differs.
func (p *Cursor) Expect(vs ...string) {
	for _, v := range vs {
		if !p.Accept(v) {
			p.Syntax()
		}
	}
}

// Syntax raises PostgreSQL's syntax error at the cursor.
func (p *Cursor) Syntax() {
	t := p.Cur()
	switch t.K {
	case Bad:
		panic(t.Err)
	case EOF:
		Fail(pgerr.SyntaxError, t.Pos, "syntax error at end of input")
	}
	Fail(pgerr.SyntaxError, t.Pos, "syntax error at or near \"%s\"", p.Src[t.Pos:t.End])
}

// Unsupported raises 0A000 at the cursor.
func (p *Cursor) Unsupported(what, hint string) {
	panic(pgerr.Newf(pgerr.FeatureNotSupported, "%s is not supported", what).At(p.Cur().Pos).WithHint("%s", hint))
}

// Enter guards the depth of recursion; Leave ends what it began.
func (p *Cursor) Enter() {
	if p.depth++; p.depth > maxDepth {
		p.tooDeep()
	}
}

// Opens counts the parentheses that open at the cursor. More than can be nested are refused at once.
func (p *Cursor) Opens() int {
	n := 0
	for p.Peek(n).Is("(") {
		if n++; n > maxDepth {
			p.tooDeep()
		}
	}
	return n
}

func (p *Cursor) tooDeep() {
	panic(pgerr.Newf(pgerr.StatementTooComplex, "stack depth limit exceeded").At(p.Cur().Pos).
		WithHint("The statement nests deeper than %d levels.", maxDepth))
}

// Leave ends a level begun by Enter.
func (p *Cursor) Leave() { p.depth-- }

// Name consumes a name of the given keyword categories.
func (p *Cursor) Name(cats string) *Token {
	if !p.Cur().IsName(cats) {
		p.Syntax()
	}
	return p.Next()
}

// ColID consumes a ColId of gram.y.
func (p *Cursor) ColID() *Token { return p.Name("UC") }

// ColLabel consumes a ColLabel of gram.y.
func (p *Cursor) ColLabel() *Token { return p.Name("UCTR") }

// Slice returns the source text from byte start to the end of the last token consumed.
func (p *Cursor) Slice(start int) string {
	if p.I == 0 {
		return ""
	}
	return strings.TrimSpace(p.Src[start:max(start, p.Toks[p.I-1].End)])
}
