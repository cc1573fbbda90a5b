package translate

import (
	"github.com/streamdb/streamdb/internal/pgerr"
	"github.com/streamdb/streamdb/sql/internal/lex"
	"github.com/streamdb/streamdb/sql/pgext"
)

// With is a parsed WITH clause in front of a statement that changes data.
type With struct {
	f     *frag
	start int
}

// With parses a WITH clause; the statement's body takes it.
func (p *Parser) With() *With {
	start := p.I
	return &With{p.with(), start}
}

// open returns the first token and the leading fragments of a body with the clause w, which may be nil.
func (w *With) open(p *Parser) (int, []*frag) {
	if w == nil {
		return p.I, nil
	}
	return w.start, []*frag{w.f, fSpace}
}

// Target is the relation that a statement changes.
type Target struct {
	Name  Name
	Alias string
}

// InsertSource parses the query of an INSERT.
func (p *Parser) InsertSource(w *With) *Part {
	start, k := w.open(p)
	q := p.queryFrom(nil)
	if w != nil && q.with != nil {
		lex.Fail(pgerr.SyntaxError, p.Toks[w.start].Pos, "multiple WITH clauses not allowed")
	}
	return p.part(start, seq(0, append(k, q.render())...))
}

// WithOnly is a query that has the clause w and no columns.
func (p *Parser) WithOnly(w *With) *Part {
	return p.part(w.start, seq(0, w.f, fSpace, lit("SELECT 1")))
}

// ConflictTarget parses the list of ON CONFLICT behind its "(", with its WHERE.
func (p *Parser) ConflictTarget() *Part {
	start := p.I
	var xs []*frag
	for {
		var x *frag
		if p.Is("(") {
			p.I++
			x = paren(p.expr(0))
			p.Expect(")")
		} else {
			x = p.cExpr()
		}
		if c := p.Cur(); p.Accept("collate") {
			x = ext(c.Pos, pgext.MarkCollate, x, p.anyName())
		}
		if p.Cur().IsName("UT") && !p.Any("asc", "desc", "nulls") {
			p.anyName() // operator class
		}
		if !p.Accept("asc") {
			p.Accept("desc")
		}
		if p.Accept("nulls") && !p.Accept("first") {
			p.Expect("last")
		}
		xs = append(xs, x)
		if !p.Accept(",") {
			break
		}
	}
	p.Expect(")")
	return p.part(start, seq(0, append([]*frag{lit("SELECT "), commaSeparated(xs)}, p.where()...)...))
}

// ConflictSet parses the SET list of DO UPDATE behind the word SET, with its WHERE.
func (p *Parser) ConflictSet() *Part {
	start := p.I
	return p.part(start, seq(0, append([]*frag{lit("SELECT "), p.setList()}, p.where()...)...))
}

// UpdateBody parses UPDATE's relation, SET, FROM and WHERE behind the word UPDATE.
func (p *Parser) UpdateBody(w *With) (Target, *Part) {
	start, k := w.open(p)
	t, rel := p.target2("set")
	p.Expect("set")
	set := p.setList()
	k = append(k, lit("SELECT "), set, lit(" FROM "), rel)
	if p.Accept("from") {
		k = p.fromItems(k)
	}
	return t, p.part(start, seq(0, append(k, p.where()...)...))
}

// DeleteBody parses DELETE's relation, USING and WHERE behind the words DELETE FROM.
func (p *Parser) DeleteBody(w *With) (Target, *Part) {
	start, k := w.open(p)
	t, rel := p.target2("using")
	k = append(k, lit("SELECT "), ext(-1, pgext.MarkDeleteRow), lit(" FROM "), rel)
	if p.Accept("using") {
		k = p.fromItems(k)
	}
	return t, p.part(start, seq(0, append(k, p.where()...)...))
}

// Returning parses a RETURNING list behind its word as SELECT list.
func (p *Parser) Returning() *Part {
	start := p.I
	var xs []*frag
	for {
		xs = append(xs, p.target())
		if !p.Accept(",") {
			break
		}
	}
	return p.part(start, seq(0, lit("SELECT "), commaSeparated(xs)))
}

// target2 parses relation_expr_opt_alias; stop is the word that cannot be an alias there.
func (p *Parser) target2(stop string) (Target, *frag) {
	only := p.Accept("only")
	if only && p.Accept("(") {
		defer p.Expect(")")
	}
	i := p.I
	rel := p.relationName()
	end := p.I
	p.I = i
	t := Target{Name: p.QualifiedName()}
	p.I = end
	p.Accept("*")
	if p.Accept("as") || p.Cur().IsName("UC") && !p.Is(stop) {
		a := p.ColID()
		t.Alias = a.Val
		rel = seq(0, rel, lit(" AS "), ident(a))
	}
	return t, rel
}

func (p *Parser) fromItems(k []*frag) []*frag {
	for {
		k = append(k, fComma, p.tableRef())
		if !p.Accept(",") {
			return k
		}
	}
}

// setTarget parses a column of SET, or the part of one that subscripts and field names behind it tell.
func (p *Parser) setTarget() *frag {
	c := p.ColID()
	return p.indirection(strAt(c.Pos, c.Val))
}

// InsertColumns parses the column list of INSERT behind its "(". The part lists the same columns with what is behind their names;
// it is nil when no column has anything.
func (p *Parser) InsertColumns() ([]*lex.Token, *Part) {
	start := p.I
	var names []*lex.Token
	var xs []*frag
	parts := false
	for {
		names = append(names, p.Cur())
		c := p.ColID()
		parts = parts || p.Any("[", ".")
		xs = append(xs, p.indirection(strAt(c.Pos, c.Val)))
		if !p.Accept(",") {
			break
		}
	}
	p.Expect(")")
	if !parts {
		return names, nil
	}
	return names, p.part(start, seq(0, lit("SELECT "), commaSeparated(xs)))
}

func (p *Parser) setList() *frag {
	var xs []*frag
	for {
		t := p.Cur()
		if p.Accept("(") {
			var cols []*frag
			for {
				cols = append(cols, p.setTarget())
				if !p.Accept(",") {
					break
				}
			}
			p.Expect(")", "=")
			xs = append(xs, ext(t.Pos, pgext.MarkAssignRow, append([]*frag{p.value()}, cols...)...))
		} else {
			c := p.setTarget()
			p.Expect("=")
			xs = append(xs, ext(t.Pos, pgext.MarkAssign, c, p.value()))
		}
		if !p.Accept(",") {
			return commaSeparated(xs)
		}
	}
}

// value parses an expression or DEFAULT; a row may hold DEFAULT too.
func (p *Parser) value() *frag {
	if t := p.Cur(); p.Accept("default") {
		return ext(t.Pos, pgext.MarkDefault)
	}
	p.allowDefault = true
	defer func() { p.allowDefault = false }()
	return p.expr(0)
}

func (p *Parser) where() []*frag {
	if !p.Accept("where") {
		return nil
	}
	if p.IsN("current", "of") {
		p.Unsupported("WHERE CURRENT OF", "Name the row by its key.")
	}
	return []*frag{lit(" WHERE "), p.expr(0)}
}
