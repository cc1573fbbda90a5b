package translate

import (
	"strings"

	"github.com/streamdb/streamdb/sql/internal/lex"
	"github.com/streamdb/streamdb/sql/pgext"
)

// wrap builds the general FROM item, LATERAL (SELECT marker(args) [FROM inner]) AS alias (cols): the only place where TiDB allows a
// list of column names.
func (p *Parser) wrap(pos int, kind string, args []*frag, inner, alias, cols *frag) *frag {
	k := []*frag{lit("LATERAL (SELECT "), ext(pos, kind, args...)}
	if inner != nil {
		k = append(k, lit(" FROM "), inner)
	}
	if alias == nil {
		alias = lit(`""`)
	}
	k = append(k, lit(") AS "), alias)
	if cols != nil {
		k = append(k, fSpace, cols)
	}
	return seq(0, k...)
}

// alias parses an optional alias with an optional column list. EMIT is no keyword, so EMIT ON WINDOW CLOSE is looked for first.
func (p *Parser) alias() (alias, cols *frag) {
	if p.Accept("as") {
		alias = ident(p.ColID())
	} else if p.Cur().IsName("UC") && !p.IsN("emit", "on", "window") && !p.asofAhead() {
		alias = ident(p.Next())
	} else {
		return nil, nil
	}
	if p.Is("(") {
		cols = p.nameList()
	}
	return alias, cols
}

// tableRef parses one item of a FROM list.
func (p *Parser) tableRef() *frag {
	p.Enter()
	defer p.Leave()
	return p.joins(p.tablePrimary())
}

// tablePrimary parses a FROM item without joins.
func (p *Parser) tablePrimary() *frag {
	t := p.Cur()
	if p.Is("(") {
		if p.parenSelect() {
			q, tab := p.parenTable()
			if q == nil {
				return p.joinAlias(tab)
			}
			return p.derived(t.Pos, q, false)
		}
		p.I++
		j := p.tableRef()
		if !j.join {
			p.Syntax()
		}
		p.Expect(")")
		return p.joinAlias(j)
	}
	lateral := p.Accept("lateral")
	if lateral && p.Is("(") {
		return p.derived(t.Pos, p.selectParens(), true)
	}
	if p.IsN("rows", "from", "(") {
		p.I += 3
		var fs []*frag
		for {
			f := p.funcExpr(false)
			if p.Accept("as") {
				f = ext(-1, pgext.MarkCallColumns, append([]*frag{f}, p.colDefs()...)...)
			}
			fs = append(fs, f)
			if !p.Accept(",") {
				break
			}
		}
		p.Expect(")")
		return p.funcTable(t.Pos, pgext.MarkRowsFrom, fs)
	}
	if p.Any("xmltable", "json_table") {
		p.Unsupported(strings.ToUpper(t.Val), "Use jsonb functions such as jsonb_array_elements.")
	}
	// function or relation
	n := 0
	for p.Peek(n).IsName("UCTR") && p.Peek(n+1).Is(".") {
		n += 2
	}
	if p.Peek(n+1).Is("(") && !p.Is("only") || t.K == lex.Ident && t.Cat == 'R' && funcKeyword[t.Val] {
		return p.funcTable(t.Pos, pgext.MarkTableFunction, []*frag{p.funcExpr(false)})
	}
	if lateral {
		p.Syntax()
	}
	if p.Accept("only") {
		if p.Accept("(") {
			r := p.relationName()
			p.Expect(")")
			return p.relation(t.Pos, r)
		}
	}
	if t.K == lex.Ident && t.Cat == 'T' { // only a function could have this name
		p.I++
		p.Syntax()
	}
	r := p.relationName()
	p.Accept("*")
	return p.relation(t.Pos, r)
}

// relation parses what may follow the name of a relation.
func (p *Parser) relation(pos int, r *frag) *frag {
	alias, cols := p.alias()
	var sys *frag
	if p.IsN("for", "system_time", "as", "of") { // temporal join, as Flink and RisingWave spell it
		t := p.Cur()
		p.I += 4
		sys = ext(t.Pos, pgext.MarkSystemTime, p.expr(0))
		if alias == nil {
			alias, cols = p.alias()
		}
	}
	if p.Is(pgext.MarkTableSample) {
		t := p.Next()
		m := p.Name("UT")
		p.Expect("(")
		args := append([]*frag{str(m.Val)}, p.exprList()...)
		p.Expect(")")
		if p.Accept("repeatable") {
			p.Expect("(")
			args = append(args, ext(t.Pos, pgext.MarkRepeatable, p.expr(0)))
			p.Expect(")")
		}
		if alias != nil {
			r = seq(0, r, lit(" AS "), alias)
		}
		return p.wrap(t.Pos, pgext.MarkTableSample, args, r, alias, cols)
	}
	if cols != nil {
		return p.wrap(pos, pgext.MarkRelation, nil, r, alias, cols)
	}
	if alias != nil {
		r = seq(0, r, lit(" AS "), alias)
	}
	if sys != nil {
		r = seq(0, r, lit(" AS OF TIMESTAMP "), sys)
	}
	return r
}

// derived parses the alias of a sub-select; lateral says that it may refer to items on its left.
func (p *Parser) derived(pos int, q *query, lateral bool) *frag {
	alias, cols := p.alias()
	body := paren(q.render())
	if lateral {
		if alias == nil {
			alias = lit(`""`)
		}
		k := []*frag{at(pos, "LATERAL "), body, lit(" AS "), alias}
		if cols != nil {
			k = append(k, fSpace, cols)
		}
		return seq(0, k...)
	}
	if cols != nil {
		return p.wrap(pos, pgext.MarkDerived, nil, body, alias, cols)
	}
	if alias == nil {
		return body
	}
	return seq(0, body, lit(" AS "), alias)
}

// colDefs parses the column definitions of a function that returns records.
func (p *Parser) colDefs() []*frag {
	p.Expect("(")
	var out []*frag
	for {
		c := p.ColID()
		typePos := p.Cur().Pos
		ty := p.typeName()
		args := []*frag{str(c.Val), strAt(typePos, ty)}
		if p.Accept("collate") {
			args = append(args, p.anyName())
		}
		out = append(out, ext(c.Pos, pgext.MarkColumnDef, args...))
		if !p.Accept(",") {
			break
		}
	}
	p.Expect(")")
	return out
}

// funcTable parses what may follow functions in FROM.
func (p *Parser) funcTable(pos int, kind string, fs []*frag) *frag {
	if p.Accept("with", "ordinality") {
		fs = append(fs, ext(-1, pgext.MarkOrdinality))
	}
	// AS (coldefs) | [AS] alias [(cols) | (coldefs)]
	if p.IsN("as", "(") {
		p.I++
		return p.wrap(pos, kind, append(fs, p.colDefs()...), nil, nil, nil)
	}
	var alias, cols *frag
	if p.Accept("as") {
		alias = ident(p.ColID())
	} else if p.Cur().IsName("UC") && !p.IsN("emit", "on", "window") && !p.asofAhead() {
		alias = ident(p.Next())
	}
	if alias != nil && p.Is("(") {
		if p.Peek(2).Is(",") || p.Peek(2).Is(")") {
			cols = p.nameList()
		} else {
			fs = append(fs, p.colDefs()...)
		}
	}
	return p.wrap(pos, kind, fs, nil, alias, cols)
}

// parenTable parses "( .. )" in FROM which starts like a query: it is one, or a joined table whose first item is one.
func (p *Parser) parenTable() (*query, *frag) {
	p.Enter()
	defer p.Leave()
	t := p.Cur()
	p.Expect("(")
	if !p.Is("(") {
		q := p.queryFrom(nil)
		p.Expect(")")
		q.paren = true
		return q, nil
	}
	q, tab := p.parenTable()
	if q != nil {
		if p.Any(")", "union", "intersect", "except", "order", "limit", "offset", "fetch", "for") {
			q = p.queryFrom(q)
			p.Expect(")")
			q.paren = true
			return q, nil
		}
		tab = p.derived(t.Pos, q, false)
	} else {
		tab = p.joinAlias(tab)
	}
	tab = p.joins(tab)
	if !tab.join {
		p.Syntax()
	}
	p.Expect(")")
	return nil, tab
}

// joinAlias parses the alias of a parenthesised join.
func (p *Parser) joinAlias(j *frag) *frag {
	pos := p.Cur().Pos
	alias, cols := p.alias()
	if alias == nil {
		return j
	}
	return p.wrap(pos, pgext.MarkJoinAlias, nil, j, alias, cols)
}
