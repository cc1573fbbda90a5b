package sql

import (
	"strings"

	"github.com/streamdb/streamdb/internal/pgerr"
	"github.com/streamdb/streamdb/sql/internal/lex"
)

// options parses an optional WITH (name = value, ..).
func (p *parser) options() []Option {
	if !p.Is("with") || !p.Peek(1).Is("(") {
		return nil
	}
	p.I++
	return p.optionList()
}

// optionList parses "(" name [= value], .. ")".
func (p *parser) optionList() []Option {
	p.Expect("(")
	var out []Option
	if p.Accept(")") {
		return nil
	}
	for {
		out = append(out, p.option())
		if !p.Accept(",") {
			break
		}
		if p.Is(")") { // a trailing comma, common in generated definitions
			break
		}
	}
	p.Expect(")")
	return out
}

func (p *parser) option() Option {
	o := p.optionName()
	if p.Accept("=") {
		o.NoValue = false
		o.ValuePos = p.Cur().Pos
		o.Value = p.optionValue()
	}
	return o
}

// optionName parses a name, bare, quoted or a string, with dots in any of these.
func (p *parser) optionName() Option {
	t := p.Cur()
	o := Option{Pos: t.Pos, ValuePos: t.Pos, Value: "true", NoValue: true}
	var b strings.Builder
	for {
		t := p.Cur()
		if t.K != lex.Str && !t.IsName("UCTR") {
			p.Syntax()
		}
		b.WriteString(p.Next().Val)
		if p.Accept(".") {
			b.WriteByte('.')
			continue
		}
		if p.Is("-") && p.Peek(1).IsName("UCTR") { // connector options such as rate-limit
			p.I++
			b.WriteByte('-')
			continue
		}
		o.Name = b.String()
		return o
	}
}

// optionValue parses a literal and returns its text: a string's contents, anything else as written.
func (p *parser) optionValue() string {
	t := p.Cur()
	switch {
	case t.K == lex.Str:
		return p.Next().Val
	case t.K == lex.Int || t.K == lex.Num:
		p.I++
		return p.Src[t.Pos:t.End]
	case t.Is("-") || t.Is("+"):
		p.I++
		n := p.Cur()
		if n.K != lex.Int && n.K != lex.Num {
			p.Syntax()
		}
		p.I++
		return strings.TrimPrefix(t.Val, "+") + p.Src[n.Pos:n.End]
	case t.Is("interval") && p.Peek(1).K == lex.Str:
		p.I++
		return p.Next().Val
	case t.IsName("UCTR"):
		p.I++
		v := t.Val
		for p.Accept(".") {
			v += "." + p.ColLabel().Val
		}
		return v
	}
	p.Syntax()
	return ""
}

// format parses FORMAT f ENCODE e [(..)] [KEY ENCODE k [(..)]].
func (p *parser) format() *Format {
	t := p.Cur()
	if !p.Accept("format") {
		return nil
	}
	f := &Format{Pos: t.Pos, Format: strings.ToUpper(p.word().Val)}
	p.Expect("encode")
	f.Encode = strings.ToUpper(p.word().Val)
	if p.Is("(") {
		f.Options = p.optionList()
	}
	if p.Accept("key", "encode") {
		f.KeyEncode = strings.ToUpper(p.word().Val)
		if p.Is("(") {
			f.KeyOptions = p.optionList()
		}
	}
	return f
}

// tableDef parses what follows CREATE TABLE or CREATE SOURCE, up to a possible AS query.
func (p *parser) tableDef(d *TableDef) {
	d.IfNotExists = p.ifNotExists()
	d.Name = p.name()
	if p.Is("of") || p.Is("partition") {
		p.Unsupported("CREATE TABLE .. "+strings.ToUpper(p.Cur().Val), "List the columns.")
	}
	if p.Accept("(") {
		d.parens = true
		if !p.Accept(")") {
			for {
				p.tableElement(d)
				if !p.Accept(",") {
					break
				}
			}
			p.Expect(")")
		}
	}
	for {
		t := p.Cur()
		switch {
		case p.Accept("append", "only"):
			d.AppendOnly = true
		case p.IsN("on", "conflict"):
			p.I += 2
			d.ConflictMode = p.conflictMode()
		case p.Accept("include"):
			d.Includes = append(d.Includes, p.include(t.Pos))
		case p.IsN("with", "(") && d.Options == nil:
			d.Options = p.options()
		case p.Is("format") && d.Format == nil:
			d.Format = p.format()
		case p.Is("inherits"), p.IsN("partition", "by"):
			p.Unsupported(strings.ToUpper(t.Val), "Tables are distributed by key without partitions.")
		case p.Accept("without", "oids"):
		case p.Accept("on", "commit", "preserve", "rows"):
			d.OnCommit = "preserve rows"
		case p.Accept("on", "commit", "delete", "rows"):
			d.OnCommit = "delete rows"
		case p.Accept("on", "commit", "drop"):
			d.OnCommit = "drop"
		case p.Accept("tablespace"), p.Accept("using"):
			p.ColID()
		default:
			return
		}
	}
}

func (p *parser) conflictMode() string {
	switch {
	case p.Accept("overwrite"):
		return "OVERWRITE"
	case p.Accept("ignore"):
		return "IGNORE"
	case p.Accept("do", "nothing"):
		return "DO NOTHING"
	}
	p.Expect("do", "update")
	if p.Accept("if", "not", "null") {
		return "DO UPDATE IF NOT NULL"
	}
	p.Accept("full")
	return "DO UPDATE FULL"
}

func (p *parser) include(pos int) Include {
	inc := Include{Field: p.ColLabel().Val, Pos: pos}
	if p.Cur().K == lex.Str { // INCLUDE header 'name'
		inc.Field += "." + p.Next().Val
	}
	if p.Accept("as") {
		inc.Alias = p.ColLabel().Val
	}
	return inc
}

func (p *parser) tableElement(d *TableDef) {
	t := p.Cur()
	switch {
	case p.Accept("*"):
		d.AllColumns = true
	case p.Accept("watermark", "for"):
		w := Watermark{Column: p.ColID().Val, Pos: t.Pos}
		p.Expect("as")
		w.Expr = p.expr()
		d.Watermarks = append(d.Watermarks, w)
	case p.Accept("like"):
		d.Likes = append(d.Likes, p.like(len(d.Columns)))
	case p.Any("constraint", "primary", "unique", "check", "foreign", "exclude") && t.Cat != 'U' || p.Is("exclude") && !p.Peek(1).IsName("UT"):
		d.Constraints = append(d.Constraints, p.tableConstraint())
	default:
		d.Columns = append(d.Columns, p.columnDef())
	}
}

// like parses what follows LIKE in a table's definition.
func (p *parser) like(at int) TableLike {
	l := TableLike{Name: p.name(), At: at}
	for {
		including := p.Accept("including")
		if !including && !p.Accept("excluding") {
			return l
		}
		part, ok := map[string]uint16{
			"all": likeAll, "comments": LikeComments, "compression": LikeOther, "constraints": LikeConstraints, "defaults": LikeDefaults, "generated": LikeGenerated,
			"identity": LikeIdentity, "indexes": LikeIndexes, "statistics": LikeOther, "storage": LikeOther,
		}[p.Cur().Val]
		if !ok || p.Cur().K != lex.Ident {
			p.Syntax()
		}
		p.I++
		if l.parts &^= part; including {
			l.parts |= part
		}
	}
}

func (p *parser) tableConstraint() TableConstraint {
	start := p.I
	c := TableConstraint{Pos: p.Cur().Pos}
	if p.Accept("constraint") {
		c.Name = p.ColID().Val
	}
	switch {
	case p.Commit(1, "primary", "key"):
		c.Kind = ConstraintPrimaryKey
		if !p.usingIndex(&c) {
			c.Columns = p.identList()
			c.Include = p.indexParameters()
		}
	case p.Accept("unique"):
		c.Kind = ConstraintUnique
		if !p.usingIndex(&c) {
			c.NullsNotDistinct = p.nullsNotDistinct()
			c.Columns = p.identList()
			c.Include = p.indexParameters()
		}
	case p.Accept("check"):
		c.Kind, c.Check = ConstraintCheck, p.parenExpr()
		p.Accept("no", "inherit")
	case p.Commit(1, "foreign", "key"):
		c.Kind, c.Columns = ConstraintForeignKey, p.identList()
		c.Foreign = p.references()
	case p.Is("exclude"):
		p.Unsupported("EXCLUDE", "Use UNIQUE or CHECK.")
	default:
		p.Syntax()
	}
	p.constraintAttributes()
	for i := start; i < p.I-1; i++ {
		if p.Toks[i].Is("not") && p.Toks[i+1].Is("valid") {
			c.NotValid = true
		}
	}
	return c
}

func (p *parser) indexParameters() (include []Ident) {
	if p.Accept("include") {
		include = p.identList()
	}
	p.options()
	if p.Accept("using", "index", "tablespace") {
		p.ColID()
	}
	return include
}

// usingIndex parses USING INDEX name.
func (p *parser) usingIndex(c *TableConstraint) bool {
	if !p.IsN("using", "index") {
		return false
	}
	p.I += 2
	name := p.ident()
	c.UsingIndex = &name
	return true
}

// nullsNotDistinct parses an optional NULLS [NOT] DISTINCT.
func (p *parser) nullsNotDistinct() bool {
	if p.Accept("nulls", "not", "distinct") {
		return true
	}
	p.Accept("nulls", "distinct")
	return false
}

func (p *parser) constraintAttributes() {
	for {
		switch {
		case p.Accept("not", "deferrable"), p.Accept("initially", "immediate"), p.Accept("not", "valid"):
		case p.Is("deferrable"), p.IsN("initially", "deferred"):
			p.Unsupported("a deferrable constraint", "Constraints are checked at once.")
		default:
			return
		}
	}
}

func (p *parser) references() *ForeignKey {
	f := &ForeignKey{Pos: p.Cur().Pos}
	p.Expect("references")
	f.Table = p.name()
	f.Columns = p.optIdentList()
	for {
		switch {
		case p.Accept("match"):
			if !p.Accept("full") && !p.Accept("partial") {
				p.Expect("simple")
			}
		case p.Accept("on", "delete"):
			f.OnDelete = p.referentialAction()
		case p.Accept("on", "update"):
			f.OnUpdate = p.referentialAction()
		default:
			return f
		}
	}
}

func (p *parser) referentialAction() string {
	switch {
	case p.Accept("no", "action"):
		return "no action"
	case p.Accept("set", "null"):
		return "set null"
	case p.Accept("set", "default"):
		return "set default"
	case p.Accept("cascade"):
		return "cascade"
	}
	p.Expect("restrict")
	return "restrict"
}

// columnDef parses one column; a type may be missing where the column is generated, or its shape comes from elsewhere.
func (p *parser) columnDef() ColumnDef {
	t := p.ColID()
	c := ColumnDef{Name: t.Val, Pos: t.Pos, next: p.I}
	if !p.Any(",", ")", "as", "constraint", "not", "null", "default", "primary", "unique", "check", "references", "collate") && !p.IsN("generated", "always") {
		c.Type = p.typeName()
	}
	if p.Accept("as") {
		c.Generated = p.expr()
	}
	for {
		t := p.Cur()
		name := ""
		if p.Accept("constraint") {
			name = p.ColID().Val
		}
		switch {
		case p.Accept("collate"):
			c.Collation = p.name().Name
		case p.Commit(1, "not", "null"):
			c.NotNull = true
		case p.Accept("null"):
			c.Null = true
		case p.Accept("default"):
			if c.Default != nil {
				lex.Fail(pgerr.SyntaxError, t.Pos, "multiple default values specified for column \"%s\"", c.Name)
			}
			c.Default = p.query(p.BExpr())
		case p.Commit(1, "primary", "key"):
			c.PrimaryKey, c.KeyName = true, name
			p.indexParameters()
		case p.Accept("unique"):
			c.Unique = true
			c.UniqueAs = TableConstraint{Kind: ConstraintUnique, Name: name, Pos: t.Pos, Columns: []Ident{{c.Name, c.Pos}}, NullsNotDistinct: p.nullsNotDistinct()}
			c.UniqueAs.Include = p.indexParameters()
		case p.Accept("check"):
			c.Checks = append(c.Checks, TableConstraint{Kind: ConstraintCheck, Name: name, Check: p.parenExpr(), Pos: t.Pos})
			p.Accept("no", "inherit")
		case p.Is("references"):
			c.References = p.references()
		case p.Accept("generated"):
			p.generated(&c)
		case name != "":
			p.Syntax()
		default:
			p.constraintAttributes()
			if p.Cur() == t {
				return c
			}
		}
	}
}

func (p *parser) generated(c *ColumnDef) {
	when := p.Cur().Pos
	if p.Accept("always") {
		c.Identity = "always"
	} else {
		p.Expect("by", "default")
		c.Identity = "by default"
	}
	p.Expect("as")
	if p.Accept("identity") {
		c.IdentityPos, c.IdentityOptions = when, p.identityOptions()
		return
	}
	if c.Identity != "always" {
		lex.Fail(pgerr.SyntaxError, when, "for a generated column, GENERATED ALWAYS must be specified")
	}
	c.Identity = ""
	c.Generated = p.parenExpr()
	p.Expect("stored")
}
