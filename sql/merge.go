package sql

import "github.com/streamdb/streamdb/sql/internal/translate"

// Merge is MERGE. Query is `[WITH ..] SELECT marker FROM source LEFT JOIN target ON condition`.
type Merge struct {
	Base
	Table Name
	Alias string
	Query *Query
	Whens []MergeWhen
}

// MergeAction is what a WHEN clause of MERGE does.
type MergeAction uint8

// The actions of MERGE.
const (
	MergeNothing MergeAction = iota
	MergeUpdate
	MergeDelete
	MergeInsert
)

// MergeWhen is one WHEN clause of MERGE.
type MergeWhen struct {
	Matched    bool
	Cond       *Query // nil: always
	Action     MergeAction
	Set        *Query  // of UPDATE; see pgext.Assignments
	Columns    []Ident // of INSERT
	Targets    *Query  // as of Insert
	Overriding string
	Values     *Query // of INSERT: a SELECT list that may hold pgext.Default; nil for DEFAULT VALUES
	Pos        int
}

func (p *parser) merge(w *translate.With) Statement {
	p.Next()
	p.Expect("into")
	t, body := p.MergeBody(w)
	m := &Merge{Table: Name(t.Name), Alias: t.Alias, Query: p.query(body)}
	for p.Is("when") || len(m.Whens) == 0 {
		m.Whens = append(m.Whens, p.mergeWhen())
	}
	return m
}

func (p *parser) mergeWhen() MergeWhen {
	c := MergeWhen{Pos: p.Cur().Pos}
	p.Expect("when")
	c.Matched = !p.Accept("not")
	p.Expect("matched")
	if p.Accept("and") {
		c.Cond = p.expr()
	}
	p.Expect("then")
	switch {
	case p.Accept("do", "nothing"):
	case c.Matched && p.Accept("delete"):
		c.Action = MergeDelete
	case c.Matched && p.Accept("update"):
		p.Expect("set")
		c.Action, c.Set = MergeUpdate, p.query(p.ConflictSet())
	case !c.Matched && p.Accept("insert"):
		c.Action = MergeInsert
		if p.Accept("(") {
			c.Columns, c.Targets = p.insertColumns()
		}
		if p.Accept("overriding") {
			c.Overriding = "user"
			if !p.Accept("user") {
				p.Expect("system")
				c.Overriding = "system"
			}
			p.Expect("value")
		}
		if p.Accept("default", "values") {
			return c
		}
		p.Expect("values", "(")
		c.Values = p.query(p.MergeValues())
		p.Expect(")")
	default:
		p.Syntax()
	}
	return c
}
