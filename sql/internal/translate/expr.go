package translate

import (
	"strings"

	"github.com/streamdb/streamdb/internal/pgerr"
	"github.com/streamdb/streamdb/sql/internal/lex"
	"github.com/streamdb/streamdb/sql/pgext"
)

// parenExpr parses "( query )" or "( expr, .. )": one of the results is nil.
func (p *Parser) parenExpr() (*query, []*frag) {
	p.Enter()
	defer p.Leave()
	if !p.parenSelect() {
		p.Expect("(")
		xs := p.exprList()
		p.Expect(")")
		return nil, xs
	}
	p.Expect("(")
	if !p.Is("(") {
		q := p.queryFrom(nil)
		p.Expect(")")
		q.paren = true
		return q, nil
	}
	pos := p.Cur().Pos
	q, xs := p.parenExpr()
	if q != nil && p.Any(")", "union", "intersect", "except", "order", "limit", "offset", "fetch", "for") {
		q = p.queryFrom(q)
		p.Expect(")")
		q.paren = true
		return q, nil
	}
	var l *frag
	if q != nil {
		l = seq(lvAtom, at(pos, "("), q.render(), fClose)
	} else if len(xs) == 1 {
		l = paren(xs[0])
	} else {
		l = paren(seq(0, list(xs)...))
	}
	l = p.infixLoop(p.indirection(l), 0, false)
	xs = []*frag{l}
	for p.Accept(",") {
		xs = append(xs, p.expr(0))
	}
	p.Expect(")")
	return nil, xs
}

// indirection parses .name, .*, [i] and [lo:hi] behind a parenthesised expression, parameter or column.
func (p *Parser) indirection(x *frag) *frag {
	for {
		t := p.Cur()
		switch {
		case p.Accept("."):
			if p.Accept("*") {
				return ext(t.Pos, pgext.MarkFieldStar, x)
			}
			x = ext(t.Pos, pgext.MarkField, x, str(p.ColLabel().Val))
		case p.Accept("["):
			var lo, hi *frag
			if !p.Is(":") {
				lo = p.expr(0)
			}
			if p.Accept(":") {
				if !p.Is("]") {
					hi = p.expr(0)
				}
				null := func(f *frag) *frag {
					if f == nil {
						return ext(-1, pgext.MarkNoBound)
					}
					return f
				}
				x = ext(t.Pos, pgext.MarkSlice, x, null(lo), null(hi))
			} else if lo == nil {
				p.Syntax()
			} else {
				x = ext(t.Pos, pgext.MarkSubscript, x, lo)
			}
			p.Expect("]")
		default:
			return x
		}
	}
}

// cExpr parses a primary expression.
func (p *Parser) cExpr() *frag {
	t := p.Cur()
	switch t.K {
	case lex.Str:
		p.I++
		return at(t.Pos, quoteString(t.Val))
	case lex.Int:
		p.I++
		return at(t.Pos, t.Val)
	case lex.Num:
		p.I++
		return ext(t.Pos, pgext.MarkNumeric, str(t.Val))
	case lex.Bit:
		p.I++
		return ext(t.Pos, pgext.MarkBit, str(t.Val))
	case lex.Param:
		p.I++
		return p.indirection(ext(t.Pos, pgext.MarkParam, lit(t.Val)))
	case lex.Punct:
		if t.Val == "(" {
			q, xs := p.parenExpr()
			if q != nil {
				return p.indirection(seq(lvAtom, at(t.Pos, "("), q.render(), fClose))
			}
			if len(xs) > 1 {
				f := ext(t.Pos, pgext.MarkImplicitRow, xs...)
				f.row = xs
				return f
			}
			return p.indirection(paren(xs[0]))
		}
		p.Syntax()
	case lex.Ident, lex.QIdent:
		if p.allowDefault && p.Accept("default") {
			return ext(t.Pos, pgext.MarkDefault)
		}
		return p.identExpr()
	}
	p.Syntax()
	return nil
}

// identExpr parses what begins with a word: keywords with a syntax of their own, typed literals, calls and columns.
func (p *Parser) identExpr() *frag {
	t := p.Cur()
	if t.K == lex.Ident {
		switch t.Val {
		case "null", "true", "false":
			p.I++
			return at(t.Pos, strings.ToUpper(t.Val))
		case "case":
			return p.caseExpr()
		case "exists":
			if p.Peek(1).Is("(") {
				p.I++
				return seq(lvAtom, at(t.Pos, "EXISTS "), paren(p.selectParens().render()))
			}
		case "array":
			p.I++
			if p.Is("(") {
				return ext(t.Pos, pgext.MarkArraySubquery, paren(p.selectParens().render()))
			}
			return p.arrayLit(t.Pos)
		case "row":
			if p.Peek(1).Is("(") {
				p.I += 2
				var xs []*frag
				if !p.Is(")") {
					xs = p.exprList()
				}
				p.Expect(")")
				f := ext(t.Pos, pgext.MarkRow, xs...)
				if f.row = xs; xs == nil {
					f.row = []*frag{}
				}
				return f
			}
		case "interval":
			if n := p.Peek(1); n.K == lex.Str || n.Is("(") && p.Peek(2).K == lex.Int && p.Peek(3).Is(")") && p.Peek(4).K == lex.Str {
				p.I++
				mod := ""
				if p.Accept("(") {
					mod = "(" + p.Next().Val + ")"
					p.Expect(")")
				}
				s := p.Next()
				ty := "interval" + mod
				if mod == "" {
					ty += p.intervalFields()
				}
				return ext(t.Pos, pgext.MarkLiteral, strAt(t.Pos, ty), strAt(s.Pos, s.Val))
			}
		}
		if funcKeyword[t.Val] && t.Cat != 'U' && (p.Peek(1).Is("(") || t.Cat != 'C') && !(t.Cat == 'T' && !(t.Val == "current_schema")) && !(t.Val == "current_schema" && p.Peek(1).Is("(")) {
			return p.funcExpr(true)
		}
		if t.Is("collation") && p.IsN("collation", "for", "(") {
			p.I += 3
			x := p.expr(0)
			p.Expect(")")
			return catalogCall(t.Pos, "pg_collation_for", x)
		}
		// typed literal with a keyword type: timestamp with time zone '...', double precision '...'
		if t.Cat == 'C' || t.Cat == 'T' || (t.Is("double") && p.Peek(1).Is("precision")) {
			if f := p.typedLiteral(); f != nil {
				return f
			}
		}
		if t.Cat == 'R' {
			p.Syntax()
		}
		if strings.HasPrefix(t.Val, "xml") && t.Cat == 'C' && p.Peek(1).Is("(") {
			p.Unsupported(strings.ToUpper(t.Val), "XML is not available; use jsonb.")
		}
	}
	// dotted name
	n := 0
	for p.Peek(n+1).Is(".") && p.Peek(n+2).IsName("UCTR") {
		n += 2
	}
	if after := p.Peek(n + 1); after.Is("(") && (n > 0 || t.IsName("UT")) {
		return p.funcExpr(true)
	} else if after.K == lex.Str && (n > 0 || t.IsName("UT")) { // func_name 'literal'
		if f := p.typedLiteral(); f != nil {
			return f
		}
		p.I++
		p.Syntax()
	}
	if !t.IsName("UC") {
		if t.K == lex.Ident && t.Cat == 'T' { // only a function could have this name
			p.I++
		}
		p.Syntax()
	}
	star := p.Peek(n+1).Is(".") && p.Peek(n+2).Is("*")
	var names, strs []*frag
	for j := 0; j <= n; j += 2 {
		names = append(names, ident(p.Peek(j)))
		strs = append(strs, str(p.Peek(j).Val))
	}
	p.I += n + 1
	if star {
		p.I += 2
		return ext(t.Pos, pgext.MarkRowStar, strs...)
	}
	var c *frag
	if len(names) <= 3 {
		k := make([]*frag, 0, 5)
		for j, x := range names {
			if j > 0 {
				k = append(k, lit("."))
			}
			k = append(k, x)
		}
		c = seq(lvAtom, k...)
	} else {
		c = ext(t.Pos, pgext.MarkColumn, strs...)
	}
	if p.Is("[") || p.Is(".") {
		return p.indirection(c)
	}
	return c
}

// arrayLit parses "[" elements "]", nested ones included.
func (p *Parser) arrayLit(pos int) *frag {
	p.Enter()
	defer p.Leave()
	p.Expect("[")
	var xs []*frag
	if nested := p.Is("["); !p.Is("]") {
		for {
			if e := p.Cur(); nested {
				xs = append(xs, p.arrayLit(e.Pos))
			} else {
				xs = append(xs, p.expr(0))
			}
			if !p.Accept(",") {
				break
			}
		}
	}
	p.Expect("]")
	return ext(pos, pgext.MarkArray, xs...)
}

// caseExpr parses CASE.
func (p *Parser) caseExpr() *frag {
	t := p.Next()
	k := []*frag{at(t.Pos, "CASE")}
	if !p.Is("when") {
		k = append(k, fSpace, p.expr(0))
	}
	for p.Is("when") {
		w := p.Next()
		k = append(k, at(w.Pos, " WHEN "), p.expr(0))
		p.Expect("then")
		k = append(k, lit(" THEN "), p.expr(0))
	}
	if len(k) < 4 {
		p.Syntax()
	}
	if p.Accept("else") {
		k = append(k, lit(" ELSE "), p.expr(0))
	}
	p.Expect("end")
	return seq(lvAtom, append(k, lit(" END"))...)
}

// typedLiteral parses type 'text'; nil with the cursor unmoved when it is something else.
func (p *Parser) typedLiteral() (f *frag) {
	save := p.I
	t := p.Cur()
	defer func() {
		if r := recover(); r != nil {
			if _, ok := r.(*pgerr.Error); !ok {
				panic(r)
			}
			p.I, f = save, nil
		}
	}()
	ty := p.simpleType()
	if p.Cur().K != lex.Str {
		p.I = save
		return nil
	}
	switch ty { // a constant without a length is not cut to one character, as a column would be
	case "char", "character", "nchar", "national char", "national character":
		ty = "bpchar"
	case "bit":
		ty = `"bit"`
	}
	text := p.Next()
	return ext(t.Pos, pgext.MarkLiteral, strAt(t.Pos, ty), strAt(text.Pos, text.Val))
}
