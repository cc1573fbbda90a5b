package sql

import (
	"github.com/streamdb/streamdb/sql/internal/translate"
)

// changeStatement parses INSERT, UPDATE or DELETE behind the WITH clause w, which may be nil.
func (p *parser) changeStatement(w *translate.With) Statement {
	switch p.Next().Val {
	case "insert":
		return p.insert(w)
	case "update":
		t, body := p.UpdateBody(w)
		u := &Update{Table: Name(t.Name), Alias: t.Alias, Query: p.query(body)}
		u.Returning = p.returning()
		return u
	}
	p.Expect("from")
	t, body := p.DeleteBody(w)
	d := &Delete{Table: Name(t.Name), Alias: t.Alias, Query: p.query(body)}
	d.Returning = p.returning()
	return d
}

func (p *parser) insert(w *translate.With) Statement {
	p.Expect("into")
	s := &Insert{Table: p.name()}
	if p.Accept("as") {
		s.Alias = p.ColID().Val
	}
	if p.Is("(") && !p.ParenSelect() {
		p.Expect("(")
		s.Columns, s.Targets = p.insertColumns()
	}
	if p.Accept("overriding") {
		if p.Accept("user") {
			s.Overriding = "user"
		} else {
			p.Expect("system")
			s.Overriding = "system"
		}
		p.Expect("value")
	}
	if !p.Commit(1, "default", "values") {
		if !p.StartsQuery() {
			p.Syntax()
		}
		s.Query = p.query(p.InsertSource(w))
	} else if w != nil {
		s.With = p.query(p.WithOnly(w))
	}
	if c := p.Cur(); p.Commit(1, "on", "conflict") {
		s.OnConflict = p.onConflict(c.Pos)
	}
	s.Returning = p.returning()
	return s
}

// insertColumns reads a column list behind its "(", and as a query when there are subscripts.
func (p *parser) insertColumns() (names []Ident, targets *Query) {
	toks, parts := p.InsertColumns()
	for _, t := range toks {
		names = append(names, Ident{t.Val, t.Pos})
	}
	if parts != nil {
		targets = p.query(parts)
	}
	return names, targets
}

func (p *parser) onConflict(pos int) *OnConflict {
	c := &OnConflict{Pos: pos}
	if p.Commit(1, "on", "constraint") {
		c.Constraint = p.ColID().Val
	} else if p.Accept("(") {
		c.Target = p.query(p.ConflictTarget())
	}
	p.Expect("do")
	if p.Accept("nothing") {
		c.DoNothing = true
		return c
	}
	p.Expect("update", "set")
	c.Set = p.query(p.ConflictSet())
	return c
}

func (p *parser) returning() *Query {
	if !p.Accept("returning") {
		return nil
	}
	return p.query(p.Returning())
}
