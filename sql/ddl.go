package sql

import (
	"strings"

	"github.com/streamdb/streamdb/internal/pgerr"
	"github.com/streamdb/streamdb/sql/internal/lex"
	"github.com/streamdb/streamdb/sql/internal/translate"
)

func (p *parser) create() Statement {
	first := p.Next()
	replace := p.Commit(1, "or", "replace")
	temporary, unlogged := false, false
	switch {
	case p.Any("temp", "temporary", "local", "global"):
		if !p.Accept("local") {
			p.Accept("global")
		}
		if !p.Accept("temp") {
			p.Expect("temporary")
		}
		temporary = true
	case p.Accept("unlogged"):
		unlogged = true
	}
	onlyPlain := func() {
		if replace || temporary || unlogged {
			p.Syntax()
		}
	}
	t := p.Cur()
	switch {
	case p.Is("table"):
		if replace {
			p.Syntax()
		}
		p.I++
		return p.createTable(temporary, unlogged)
	case p.Is("view"):
		if unlogged {
			p.Syntax()
		}
		p.I++
		return p.createView(replace, temporary, false)
	case p.IsN("recursive", "view"):
		if unlogged {
			p.Syntax()
		}
		p.I += 2
		return p.createView(replace, temporary, true)
	case p.Is("materialized"):
		if temporary || unlogged {
			p.Syntax()
		}
		p.Expect("materialized", "view")
		return p.createMaterializedView(replace)
	case p.Is("source"):
		onlyPlain()
		p.I++
		s := &CreateSource{}
		p.tableDef(&s.TableDef)
		if !s.parens && s.Options == nil {
			p.Syntax()
		}
		return s
	case p.Is("sink"):
		onlyPlain()
		p.I++
		return p.createSink()
	case p.Is("index"), p.Is("unique"):
		onlyPlain()
		unique := p.Accept("unique")
		p.Expect("index")
		return p.createIndex(unique)
	case p.Is("sequence"):
		if replace || unlogged {
			p.Syntax()
		}
		p.I++
		return p.createSequence(temporary)
	case p.Is("schema"):
		onlyPlain()
		p.I++
		return p.createSchema()
	case p.Is("type"):
		onlyPlain()
		p.I++
		return p.createType(first.Pos)
	case p.Is("function"):
		if temporary || unlogged {
			p.Syntax()
		}
		p.I++
		return p.createFunction(first.Pos, replace)
	case p.Any("role", "user", "group") && !p.IsN("user", "mapping"):
		onlyPlain()
		return p.createRole()
	}
	if hint, ok := createHints[t.Val]; ok && t.K == lex.Ident {
		return p.unsupported(first.Pos, "CREATE "+strings.ToUpper(t.Val), hint)
	}
	p.Syntax()
	return nil
}

// createHints lists PostgreSQL's other objects, with what to do instead.
var createHints = map[string]string{
	"procedure":   "There is no procedural language.",
	"aggregate":   "Use the built-in aggregates.",
	"trigger":     "Use a materialized view, or change the tables in one transaction.",
	"event":       "Use a materialized view, or change the tables in one transaction.",
	"rule":        "Use a view.",
	"domain":      "Use a CHECK constraint.",
	"extension":   "Extensions cannot be loaded.",
	"language":    "There is no procedural language.",
	"database":    "One server holds one database.",
	"foreign":     "Use CREATE SOURCE.",
	"server":      "Use CREATE SOURCE.",
	"user":        "Use CREATE SOURCE.",
	"publication": "Use CREATE SINK.",
	"policy":      "Use a view and GRANT.",
	"cast":        "Use the built-in casts.",
	"operator":    "Use the built-in operators.",
	"collation":   "Collations C and default are available.",
	"statistics":  "Statistics are kept without being asked.",
	"tablespace":  "Storage is chosen with --data-dir and --checkpoint-dir.",
	"constraint":  "Use a materialized view, or change the tables in one transaction.",
	"access":      "Tables have one access method.",
	"text":        "Text search configurations are not available.",
	"transform":   "There is no procedural language.",
	"conversion":  "The encoding is always UTF8.",

	"subscription": "Use CREATE SOURCE with connector = 'postgres-cdc' or a sink.",
}

func (p *parser) createTable(temporary, unlogged bool) Statement {
	c := &CreateTable{Temporary: temporary, Unlogged: unlogged}
	p.tableDef(&c.TableDef)
	if !p.Accept("as") {
		p.checkShape(&c.TableDef)
		return c
	}
	if p.Is("execute") {
		p.Unsupported("CREATE TABLE .. AS EXECUTE", "Write the query itself.")
	}
	a := &CreateTableAs{Name: c.Name, IfNotExists: c.IfNotExists, Temporary: temporary, Unlogged: unlogged, Options: c.Options, OnCommit: c.OnCommit}
	for i := range c.Columns {
		col := &c.Columns[i]
		if col.Type != nil || col.Generated != nil || col.NotNull || col.PrimaryKey {
			lex.Fail(pgerr.SyntaxError, p.Peek(-1).Pos, "syntax error at or near \"%s\"", p.Src[p.Peek(-1).Pos:p.Peek(-1).End])
		}
		a.Columns = append(a.Columns, Ident{col.Name, col.Pos})
	}
	a.Query = p.fullQuery()
	a.WithNoData = p.withNoData()
	return a
}

// checkShape refuses a table without a column list or a connector to take it from, and columns without a type. Where all columns
// are bare names the list could belong to CREATE TABLE .. AS, so that the error is at the missing AS.
func (p *parser) checkShape(d *TableDef) {
	if !d.parens && d.Options == nil {
		p.Syntax()
	}
	bare := len(d.Constraints)+len(d.Watermarks) == 0
	for i := range d.Columns {
		next := &p.Toks[d.Columns[i].next]
		bare = bare && (next.Is(",") || next.Is(")"))
	}
	for i := range d.Columns {
		if c := &d.Columns[i]; c.Type == nil && c.Generated == nil {
			if !bare {
				p.I = c.next
			}
			p.Syntax()
		}
	}
}

// withNoData parses an optional WITH [NO] DATA.
func (p *parser) withNoData() bool {
	if p.Accept("with", "no", "data") {
		return true
	}
	p.Accept("with", "data")
	return false
}

func (p *parser) createView(replace, temporary, recursive bool) Statement {
	v := &CreateView{OrReplace: replace, Temporary: temporary, Recursive: recursive, IfNotExists: p.ifNotExists(), Name: p.name()}
	if recursive {
		v.Columns = p.identList()
	} else {
		v.Columns = p.optIdentList()
	}
	v.Options = p.options()
	p.Expect("as")
	from := p.Cur().Pos
	v.Query = p.fullQuery()
	if recursive {
		v.Query = p.recursiveView(v, from)
	}
	if p.Is("with") {
		pos := p.Next().Pos
		if !p.Accept("local") {
			p.Accept("cascaded")
		}
		p.Expect("check", "option")
		return p.unsupported(pos, "WITH CHECK OPTION", "Views cannot be written to.")
	}
	return v
}

// recursiveView is the query of CREATE RECURSIVE VIEW, whose own query has just been parsed: WITH RECURSIVE name (columns) AS (query) SELECT columns
// FROM name. That is shorter before the query than the statement, so that with blanks in front positions stay what they are.
func (p *parser) recursiveView(v *CreateView, from int) *Query {
	cols := make([]string, len(v.Columns))
	for i, c := range v.Columns {
		cols[i] = QuoteIdent(c.Name)
	}
	name, list := QuoteIdent(v.Name.Name), strings.Join(cols, ", ")
	head := "WITH RECURSIVE " + name + " (" + list + ") AS ("
	text := head + p.Src[from:p.Toks[p.I-1].End] + ") SELECT " + list + " FROM " + name
	stmts, err := Parse(strings.Repeat(" ", max(from-len(head), 0)) + text)
	if err != nil {
		panic(pgerr.From(err))
	}
	return stmts[0].(*Query)
}

func (p *parser) createMaterializedView(replace bool) Statement {
	v := &CreateMaterializedView{OrReplace: replace, IfNotExists: !replace && p.ifNotExists(), Name: p.name()}
	v.Columns = p.optIdentList()
	if p.Accept("using") {
		p.ColID()
	}
	v.Options = p.options()
	if p.Accept("tablespace") {
		p.ColID()
	}
	p.Expect("as")
	v.Query = p.fullQuery()
	v.EmitOnWindowClose = v.Query.EmitOnWindowClose
	v.Options = append(v.Options, p.options()...)
	v.WithNoData = p.withNoData()
	return v
}

func (p *parser) createSink() Statement {
	s := &CreateSink{IfNotExists: p.ifNotExists(), Name: p.name()}
	if p.Accept("into") {
		n := p.name()
		s.Into = &n
	}
	if p.Accept("from") {
		n := p.name()
		s.From = &n
	} else {
		p.Expect("as")
		s.Query = p.fullQuery()
		s.EmitOnWindowClose = s.Query.EmitOnWindowClose
	}
	s.Options = p.options()
	s.Format = p.format()
	return s
}

func (p *parser) createIndex(unique bool) Statement {
	x := &CreateIndex{Unique: unique, Concurrently: p.Accept("concurrently"), IfNotExists: p.ifNotExists()}
	if !p.Is("on") {
		x.Name = p.ident()
	} else if x.IfNotExists {
		p.Syntax()
	}
	p.Expect("on")
	p.Accept("only")
	x.Table = p.name()
	if p.Accept("using") {
		x.Method = p.ColID().Val
	}
	p.Expect("(")
	for {
		x.Keys = append(x.Keys, p.indexKey())
		if !p.Accept(",") {
			break
		}
	}
	p.Expect(")")
	if p.Accept("include") {
		x.Include = p.identList()
	}
	if p.Accept("distributed", "by") {
		x.DistributeBy = p.identList()
	}
	x.NullsNotDistinct = p.nullsNotDistinct()
	x.Options = p.options()
	if p.Accept("tablespace") {
		p.ColID()
	}
	if p.Accept("where") {
		x.Where = p.expr()
	}
	return x
}

func (p *parser) indexKey() IndexKey {
	t := p.Cur()
	k := IndexKey{Pos: t.Pos}
	switch next := p.Peek(1); {
	case p.Is("("):
		k.Expr = p.parenExpr()
	case t.IsName("UC") && !next.Is("(") && !next.Is("."):
		p.I++
		k.Column = t.Val
	case !t.IsName("UCTR"):
		p.Syntax()
	default:
		k.Expr = p.query(p.CExpr())
	}
	if p.Accept("collate") {
		k.Collation = p.name().Name
	}
	if p.Cur().IsName("UT") && !p.Any("asc", "desc", "nulls") {
		k.OpClass = p.name().Name
	}
	if p.Accept("desc") {
		k.Desc, k.NullsFirst = true, true
	} else {
		p.Accept("asc")
	}
	if p.Accept("nulls") {
		k.NullsFirst = p.Accept("first")
		if !k.NullsFirst {
			p.Expect("last")
		}
	}
	return k
}

func (p *parser) createSchema() Statement {
	s := &CreateSchema{IfNotExists: p.ifNotExists()}
	if !p.Is("authorization") {
		s.Name = p.ident()
	}
	if p.Accept("authorization") {
		r := p.roleSpec()
		s.Authorization = &r
		if s.Name.Name == "" {
			s.Name = r.Ident
		}
	}
	if strings.HasPrefix(s.Name.Name, "pg_") {
		panic(pgerr.Newf(pgerr.ReservedName, "unacceptable schema name \"%s\"", s.Name.Name).
			WithDetail("The prefix \"pg_\" is reserved for system schemas."))
	}
	if p.Any("create", "grant") {
		p.Unsupported("CREATE SCHEMA with elements", "Create them in statements of their own.")
	}
	return s
}

// objectKind parses the kind of an object in DROP, ALTER, COMMENT and GRANT; "" with the cursor unmoved when there is none.
func (p *parser) objectKind() ObjectKind {
	switch {
	case p.Commit(1, "materialized", "view"):
		return KindMaterializedView
	case p.Any("table", "view", "source", "sink", "index", "schema", "database", "role", "function", "sequence", "type", "extension"):
		return ObjectKind(p.Next().Val)
	case !p.IsN("user", "mapping") && (p.Accept("user") || p.Accept("group")):
		return KindRole
	}
	return ""
}

func (p *parser) drop() Statement {
	first := p.Next()
	t := p.Cur()
	if p.IsN("owned", "by") {
		return p.dropOwned()
	}
	d := &Drop{Kind: p.objectKind()}
	switch d.Kind {
	case "":
		if _, ok := createHints[t.Val]; ok && t.K == lex.Ident {
			return p.unsupported(first.Pos, "DROP "+strings.ToUpper(t.Val), "There are no such objects.")
		}
		p.Syntax()
	case KindFunction:
		return p.dropFunction()
	case KindExtension, KindDatabase:
		return p.unsupported(first.Pos, "DROP "+strings.ToUpper(string(d.Kind)), "There are no such objects to drop.")
	case KindIndex:
		d.Concurrently = p.Accept("concurrently")
	}
	d.IfExists = p.ifExists()
	if d.Kind == KindRole {
		d.Names = p.roleNames()
		return d
	}
	d.Names = p.names()
	d.Cascade = p.cascade()
	return d
}

func (p *parser) truncate() Statement {
	p.Next()
	p.Accept("table")
	t := &Truncate{}
	for {
		p.Accept("only")
		t.Tables = append(t.Tables, p.name())
		p.Accept("*")
		if !p.Accept(",") {
			break
		}
	}
	if p.Accept("restart", "identity") {
		t.RestartIdentity = true
	} else {
		p.Accept("continue", "identity")
	}
	t.Cascade = p.cascade()
	return t
}

func (p *parser) comment() Statement {
	first := p.Next()
	p.Expect("on")
	c := &CommentOn{}
	if p.Accept("column") {
		c.Kind = KindColumn
		parts := []string{}
		pos := p.Cur().Pos
		parts = append(parts, p.ColID().Val)
		for p.Accept(".") {
			parts = append(parts, p.ColLabel().Val)
		}
		n := len(parts)
		if n < 2 {
			lex.Fail(pgerr.SyntaxError, pos, "column name must be qualified")
		}
		c.Column = parts[n-1]
		c.Name = Name{Name: parts[n-2], Pos: pos}
		if n > 2 {
			c.Name.Schema = parts[n-3]
		}
		if n > 3 {
			c.Name.Catalog = parts[n-4]
		}
		p.Local(translate.Name(c.Name))
	} else if p.Accept("constraint") {
		c.Kind, c.Column = KindConstraint, p.ident().Name
		p.Expect("on")
		c.Name = p.name()
	} else {
		t := p.Cur()
		c.Kind = p.objectKind()
		switch c.Kind {
		case "", KindExtension:
			return p.unsupported(first.Pos, "COMMENT ON "+strings.ToUpper(t.Val), "Comments are kept for relations, columns, constraints, types, functions, schemas, roles and the database.")
		case KindFunction:
			s := p.functionSignature()
			c.Function, c.Name = &s, s.Name
		default:
			c.Name = p.name()
		}
	}
	p.Expect("is")
	if !p.Accept("null") {
		s := p.stringConst().Val
		c.Comment = &s
	}
	return c
}

func (p *parser) refresh() Statement {
	p.Next()
	p.Expect("materialized", "view")
	return &Refresh{Concurrently: p.Accept("concurrently"), Name: p.name(), WithNoData: p.withNoData()}
}

// reindex parses REINDEX [(options)] INDEX | TABLE | SCHEMA | DATABASE | SYSTEM [CONCURRENTLY] name.
func (p *parser) reindex() Statement {
	p.Next()
	if p.Is("(") {
		p.optionList()
	}
	r := &Reindex{}
	switch {
	case p.Any("index", "table", "schema", "database", "system"):
		r.Kind = ObjectKind(p.Next().Val)
	default:
		p.Syntax()
	}
	p.Accept("concurrently")
	if r.Kind == KindIndex || r.Kind == KindTable {
		n := p.name()
		r.Object = &n
	} else if p.Cur().IsName("UC") {
		p.ColID()
	}
	return r
}
