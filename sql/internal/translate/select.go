package translate

import (
	"github.com/streamdb/streamdb/sql/internal/lex"
	"github.com/streamdb/streamdb/sql/pgext"
)

// simpleSelect parses one SELECT without ORDER BY and LIMIT.
func (p *Parser) simpleSelect() *query {
	t := p.Next()
	k := []*frag{at(t.Pos, "SELECT ")}
	var items []*frag
	if p.Accept("all") {
	} else if d := p.Cur(); p.Accept("distinct") {
		if p.Accept("on") {
			p.Expect("(")
			items = append(items, ext(d.Pos, pgext.MarkDistinctOn, p.exprList()...))
			p.Expect(")")
		} else {
			k = append(k, lit("DISTINCT "))
		}
	}
	empty := p.Cur()
	if empty.K == lex.EOF || p.Any("from", "where", "group", "having", "window", "union", "intersect", "except", "order", "limit", "offset", "fetch", "for", "into", ")", ";") {
		if len(items) > 0 || len(k) > 1 {
			p.Syntax()
		}
		items = append(items, ext(t.Pos, pgext.MarkNoColumns))
	} else {
		for {
			items = append(items, p.target())
			if !p.Accept(",") {
				break
			}
		}
	}
	k = append(k, list(items)...)
	if p.Accept("into") {
		for p.Any("temp", "temporary", "unlogged", "table", "local") {
			p.intoTemp = p.intoTemp || p.Any("temp", "temporary")
			p.I++
		}
		n := p.QualifiedName()
		p.into = &n
	}
	from := false
	if p.Accept("from") {
		from = true
		k = append(k, lit(" FROM "))
		for {
			k = append(k, p.tableRef())
			if !p.Accept(",") {
				break
			}
			k = append(k, fComma)
		}
	}
	mark := len(k)
	if p.Accept("where") {
		if p.IsN("current", "of") {
			p.Unsupported("WHERE CURRENT OF", "Name the row by its key.")
		}
		k = append(k, lit(" WHERE "), p.expr(0))
	}
	var needFrom bool
	if p.Commit(1, "group", "by") {
		needFrom = true
		k = append(k, lit(" GROUP BY "))
		var g []*frag
		if d := p.Cur(); p.Accept("distinct") {
			g = append(g, ext(d.Pos, pgext.MarkGroupDistinct))
		} else {
			p.Accept("all")
		}
		for {
			g = append(g, p.groupItem())
			if !p.Accept(",") {
				break
			}
		}
		k = append(k, list(g)...)
	}
	if p.Accept("having") {
		needFrom = true
		k = append(k, lit(" HAVING "), p.expr(0))
	}
	if p.Accept("window") {
		needFrom = true
		k = append(k, lit(" WINDOW "))
		for {
			k = append(k, ident(p.ColID()), lit(" AS "))
			p.Expect("as")
			k = append(k, p.windowSpec())
			if !p.Accept(",") {
				break
			}
			k = append(k, fComma)
		}
	}
	if needFrom && !from {
		k = append(k[:mark:mark], append([]*frag{lit(" FROM " + pgext.Schema + "." + pgext.MarkNoFrom)}, k[mark:]...)...)
	}
	return &query{body: seq(0, k...), pos: t.Pos}
}

// groupItem parses one item of GROUP BY.
func (p *Parser) groupItem() *frag {
	t := p.Cur()
	switch {
	case p.IsN("(", ")"):
		p.I += 2
		return ext(t.Pos, pgext.MarkEmptyGroupingSet)
	case p.IsN("rollup", "(") || p.IsN("cube", "("):
		p.I += 2
		xs := p.exprList()
		p.Expect(")")
		return ext(t.Pos, t.Val, xs...)
	case p.Accept("grouping", "sets"):
		p.Expect("(")
		var xs []*frag
		for {
			xs = append(xs, p.groupItem())
			if !p.Accept(",") {
				break
			}
		}
		p.Expect(")")
		return ext(t.Pos, pgext.MarkGroupingSets, xs...)
	}
	start := p.I
	return p.ordinal(start, p.expr(0))
}

// starAlias parses the alias that gram.y lets follow `a.*`; it names nothing.
func (p *Parser) starAlias() {
	if p.Accept("as") {
		p.ColLabel()
	} else if n := p.Cur(); n.K == lex.QIdent || n.K == lex.Ident && n.Bare {
		p.I++
	}
}

// target parses one item of a select list.
func (p *Parser) target() *frag {
	t := p.Cur()
	if p.Accept("*") {
		return at(t.Pos, "*")
	}
	if t.IsName("UC") { // a.b.*
		n := 0
		for p.Peek(n+1).Is(".") && p.Peek(n+2).IsName("UCTR") {
			n += 2
		}
		if p.Peek(n+1).Is(".") && p.Peek(n+2).Is("*") && n <= 2 && !operates(p.Peek(n+3)) {
			var k []*frag
			for j := 0; j <= n; j += 2 {
				k = append(k, ident(p.Peek(j)), lit("."))
			}
			p.I += n + 3
			p.starAlias()
			return seq(0, append(k, lit("*"))...)
		}
	}
	x := p.expr(0)
	if p.Accept("as") {
		return seq(0, x, lit(" AS "), ident(p.ColLabel()))
	}
	if n := p.Cur(); (n.K == lex.QIdent || n.K == lex.Ident && n.Bare) && !p.IsN("emit", "on", "window") {
		p.I++
		return seq(0, x, lit(" AS "), ident(n))
	}
	return x
}

// operates reports whether what stands behind t.* makes it an operand, the row as a value.
func operates(t *lex.Token) bool {
	return t.K == lex.Op || t.Is("is") || t.Is("isnull") || t.Is("notnull") || t.Is("in") || t.Is("not") || t.Is("::")
}

// ordinal turns an integer constant, in parentheses or not, into a column number which keeps its position.
func (p *Parser) ordinal(start int, x *frag) *frag {
	a, b := start, p.I-1
	for a < b && p.Toks[a].Is("(") && p.Toks[b].Is(")") {
		a, b = a+1, b-1
	}
	if a == b && p.Toks[a].K == lex.Int {
		return ext(p.Toks[a].Pos, pgext.MarkOrdinal, lit(p.Toks[a].Val))
	}
	return x
}

// sortList parses the keys of an ORDER BY. Without ordinals a constant is put into parentheses, since TiDB reads a bare one as a column number.
func (p *Parser) sortList(ordinals bool) []*frag {
	var out []*frag
	for {
		start := p.I
		x := p.expr(0)
		if ordinals {
			x = p.ordinal(start, x)
		} else if x.s != "" { // keep TiDB from reading a constant as a column number
			x = paren(x)
		}
		var dir string
		t := p.Cur()
		switch {
		case p.Accept("asc"):
			dir = " ASC"
		case p.Accept("desc"):
			dir = " DESC"
		case p.Accept("using"):
			x = ext(t.Pos, pgext.MarkOrderUsing, x, p.anyOp())
		}
		n := p.Cur()
		switch {
		case p.Accept("nulls", "first"):
			x = ext(n.Pos, pgext.MarkNullsFirst, x)
		case p.Accept("nulls", "last"):
			x = ext(n.Pos, pgext.MarkNullsLast, x)
		}
		out = append(out, seq(0, x, lit(dir)))
		if !p.Accept(",") {
			return out
		}
	}
}
