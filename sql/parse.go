package sql

import (
	"strings"

	"github.com/streamdb/streamdb/internal/pgerr"
	"github.com/streamdb/streamdb/sql/internal/lex"
	"github.com/streamdb/streamdb/sql/internal/tidb"
	"github.com/streamdb/streamdb/sql/internal/translate"
)

// Parse parses a message of one or several statements separated by semicolons. Empty statements are skipped, so a message without
// any gives an empty slice. Errors are *pgerr.Error with byte offsets into text. As in PostgreSQL a syntax error anywhere refuses
// the whole message.
func Parse(text string) (stmts []Statement, err error) {
	toks, err := lex.Lex(text)
	if err != nil {
		return nil, err
	}
	defer lex.Catch(&err)
	p := &parser{Parser: translate.New(text, toks)}
	p.Change = p.withChange
	for {
		for p.Accept(";") {
		}
		if p.Cur().K == lex.EOF {
			return stmts, nil
		}
		start := p.I
		p.changes = nil
		st := p.statement()
		if !p.Is(";") && p.Cur().K != lex.EOF {
			p.Syntax()
		}
		p.finish(st, start)
		stmts = append(stmts, st)
	}
}

// parser is the statement grammar; queries and expressions are translate.Parser's.
type parser struct {
	*translate.Parser
	changes []Statement // of the WITH clauses of the statement at work
}

// withChange parses a statement that changes data inside a WITH clause and returns its number.
func (p *parser) withChange() int {
	start := p.I
	outer := p.changes
	p.changes = nil
	st := p.changeStatement(nil)
	p.finish(st, start)
	p.changes = append(outer, st)
	return len(p.changes) - 1
}

// finish fills a statement's Base from its tokens, those from start to the cursor.
func (p *parser) finish(st Statement, start int) {
	b := st.base()
	b.Start, b.End = p.Toks[start].Pos, p.Toks[p.I-1].End
	b.Text = p.sourceText(st, b)
	b.MaxParam = p.MaxParam(start)
	for i := start; i < p.I; i++ {
		if t := &p.Toks[i]; t.Truncated {
			n := pgerr.Newf(pgerr.NameTooLong, "identifier \"%s\" will be truncated to \"%s\"", strings.Trim(p.Src[t.Pos:t.End], `"`), t.Val).At(t.Pos)
			n.Severity = "NOTICE"
			b.Notices = append(b.Notices, n)
		}
	}
}

// query makes the Query of a translated part. TiDB refusing what the translator printed is a fault of ours, never a syntax error.
func (p *parser) query(part *translate.Part) *Query {
	st, err := tidb.Parse(part.Text, part.Map, func(schema, name string) int {
		if schema != "" {
			name = schema + "." + name
		}
		if pos, ok := part.Relations[name]; ok {
			return pos
		}
		return -1
	})
	if err != nil {
		panic(pgerr.Wrap(pgerr.InternalError, err, "parse translated query").WithDetail("%s", part.Text).At(part.Start))
	}
	q := &Query{Stmt: st, Relations: part.Relations, Translated: part.Text, Changes: p.changes}
	q.Start, q.End, q.MaxParam = part.Start, part.End, part.MaxParam
	q.Text = p.Src[part.Start:part.End]
	if part.Into != nil {
		n := Name(*part.Into)
		q.Into = &n
	}
	return q
}

// fullQuery parses a query with a trailing EMIT ON WINDOW CLOSE.
func (p *parser) fullQuery() *Query {
	q := p.query(p.Query())
	q.EmitOnWindowClose = p.emitOnWindowClose()
	return q
}

func (p *parser) emitOnWindowClose() bool {
	if !p.Accept("emit") {
		return false
	}
	p.Expect("on", "window", "close")
	return true
}

func (p *parser) expr() *Query { return p.query(p.Expr()) }

// parenExpr parses "(" e ")".
func (p *parser) parenExpr() *Query {
	p.Expect("(")
	q := p.expr()
	p.Expect(")")
	return q
}

func (p *parser) name() Name { return Name(p.QualifiedName()) }

func (p *parser) names() []Name {
	out := []Name{p.name()}
	for p.Accept(",") {
		out = append(out, p.name())
	}
	return out
}

func (p *parser) ident() Ident {
	t := p.ColID()
	return Ident{t.Val, t.Pos}
}

func (p *parser) idents() []Ident {
	out := []Ident{p.ident()}
	for p.Accept(",") {
		out = append(out, p.ident())
	}
	return out
}

// identList parses "(" names ")".
func (p *parser) identList() []Ident {
	p.Expect("(")
	out := p.idents()
	p.Expect(")")
	return out
}

// optIdentList parses an optional "(" names ")".
func (p *parser) optIdentList() []Ident {
	if !p.Is("(") {
		return nil
	}
	return p.identList()
}

func (p *parser) ifExists() bool    { return p.Accept("if", "exists") }
func (p *parser) ifNotExists() bool { return p.Commit(2, "if", "not", "exists") }

// cascade parses an optional CASCADE or RESTRICT.
func (p *parser) cascade() bool {
	if p.Accept("cascade") {
		return true
	}
	p.Accept("restrict")
	return false
}

func (p *parser) stringConst() *lex.Token {
	if p.Cur().K != lex.Str {
		p.Syntax()
	}
	return p.Next()
}

// word consumes any unquoted word and returns it.
func (p *parser) word() *lex.Token {
	if p.Cur().K != lex.Ident {
		p.Syntax()
	}
	return p.Next()
}

// unsupported refuses a statement at its first word.
func (p *parser) unsupported(at int, what, hint string) Statement {
	panic(pgerr.Newf(pgerr.FeatureNotSupported, "%s is not supported", what).At(at).WithHint("%s", hint))
}

// statement parses one statement up to its semicolon.
func (p *parser) statement() Statement {
	t := p.Cur()
	if p.ParenSelect() {
		return p.selectStatement()
	}
	if t.K != lex.Ident {
		for p.Accept("(") {
		}
		p.Syntax()
	}
	switch t.Val {
	case "select", "values", "table":
		return p.selectStatement()
	case "with":
		return p.withStatement()
	case "insert", "update", "delete":
		return p.changeStatement(nil)
	case "create":
		return p.create()
	case "drop":
		return p.drop()
	case "alter":
		return p.alter()
	case "truncate":
		return p.truncate()
	case "comment":
		return p.comment()
	case "refresh":
		return p.refresh()
	}
	if st := p.sessionStatement(t); st != nil {
		return st
	}
	if st := p.streamStatement(t); st != nil {
		return st
	}
	switch t.Val {
	case "reindex":
		return p.reindex()
	case "merge":
		return p.merge(nil)
	case "do":
		return p.unsupported(t.Pos, "DO", "There is no procedural language; send the statements one by one.")
	case "call":
		return p.unsupported(t.Pos, "CALL", "There are no procedures; call functions with SELECT.")
	case "cluster", "load", "import", "security":
		return p.unsupported(t.Pos, strings.ToUpper(t.Val), "This has no meaning here.")
	}
	p.Syntax()
	return nil
}

func (p *parser) selectStatement() Statement {
	part := p.Query()
	q := p.query(part)
	q.EmitOnWindowClose = p.emitOnWindowClose()
	if q.Into != nil {
		return &CreateTableAs{Name: *q.Into, Query: q, Temporary: part.IntoTemp}
	}
	return q
}

// withStatement parses WITH in front of a query, an INSERT, an UPDATE or a DELETE.
func (p *parser) withStatement() Statement {
	start := p.I
	w := p.With()
	if p.Any("insert", "update", "delete") {
		return p.changeStatement(w)
	}
	if p.Is("merge") {
		return p.merge(w)
	}
	p.I = start
	return p.selectStatement()
}
