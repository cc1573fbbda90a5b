package sql

import (
	"strconv"
	"strings"

	"github.com/streamdb/streamdb/internal/pgerr"
	"github.com/streamdb/streamdb/sql/internal/lex"
	"github.com/streamdb/streamdb/sql/internal/translate"
)

// TypeName is a type as written in SQL, with PostgreSQL's own spellings resolved as gram.y does: int is pg_catalog.int4, char(n)
// pg_catalog.bpchar, timestamp with time zone pg_catalog.timestamptz.
type TypeName struct {
	Schema, Name string
	Mods         []int  // type modifiers as written: numeric(10,2) has 10, 2; char has 1
	ArrayDims    int    // number of [] pairs
	Interval     string // field restriction of interval: "day to second"
	SetOf        bool
	Text         string // canonical text; ParseTypeName reads it back
	Pos          int
}

// systemTypes maps the spellings that are grammar, not names, to catalogue names.
var systemTypes = map[string]string{
	"int": "int4", "integer": "int4", "smallint": "int2", "bigint": "int8", "real": "float4", "boolean": "bool", "float": "float8",
	"double precision": "float8", "decimal": "numeric", "dec": "numeric", "numeric": "numeric",
	"bit": "bit", "bit varying": "varbit", "varchar": "varchar",
	"character": "bpchar", "char": "bpchar", "nchar": "bpchar", "national character": "bpchar", "national char": "bpchar",
	"character varying": "varchar", "char varying": "varchar", "nchar varying": "varchar",
	"national character varying": "varchar", "national char varying": "varchar",
	"time": "time", "timestamp": "timestamp", "interval": "interval",
	"time with time zone": "timetz", "time without time zone": "time",
	"timestamp with time zone": "timestamptz", "timestamp without time zone": "timestamp",
}

// ParseTypeName reads the text of a type: what pgext's Cast, TypedLiteral and ColumnDef hold, or what a user wrote.
func ParseTypeName(text string) (t TypeName, err error) {
	toks, err := lex.Lex(text)
	if err != nil {
		return TypeName{}, err
	}
	defer lex.Catch(&err)
	p := &parser{Parser: translate.New(text, toks)}
	n := p.typeName()
	if p.Cur().K != lex.EOF {
		p.Syntax()
	}
	return *n, nil
}

// typeName parses a type at the cursor.
func (p *parser) typeName() *TypeName {
	start := p.I
	text := p.TypeName()
	t := &TypeName{Text: text, Pos: p.Toks[start].Pos}
	end := p.I
	p.I = start
	p.resolveType(t, end)
	p.I = end
	return t
}

// resolveType fills t from its tokens, those up to end; they are known to be well formed.
func (p *parser) resolveType(t *TypeName, end int) {
	t.SetOf = p.Accept("setof")
	first := p.Cur()
	quoted := first.K == lex.QIdent
	var words []string
	for p.I < end {
		c := p.Cur()
		if p.Accept(".") {
			t.Schema = p.Toks[p.I-2].Val
			t.Name = p.Next().Val
			words = nil
			continue
		}
		if c.K == lex.QIdent || c.K == lex.Ident && !c.Is("array") {
			words = append(words, c.Val)
			p.I++
			continue
		}
		if c.Is("(") {
			p.I++
			for !p.Accept(")") {
				switch c := p.Next(); {
				case c.K == lex.Int:
					n, err := strconv.Atoi(c.Val)
					if err != nil {
						lex.Fail(pgerr.InvalidParameterValue, c.Pos, "type modifier out of range")
					}
					if p.Toks[p.I-2].Is("-") {
						n = -n
					}
					t.Mods = append(t.Mods, n)
				case c.Is("-"), c.Is(","):
				default:
					lex.Fail(pgerr.InvalidParameterValue, c.Pos, "type modifiers must be simple constants or identifiers")
				}
			}
			continue
		}
		if c.Is("[") || c.Is("array") && !(c.Is("array") && p.Peek(1).Is("[")) {
			t.ArrayDims++
		}
		p.I++
	}
	if words == nil {
		return
	}
	spelled := strings.Join(words, " ")
	if !quoted && words[0] == "interval" {
		t.Schema, t.Name, t.Interval = "pg_catalog", "interval", strings.Join(words[1:], " ")
		return
	}
	name, system := systemTypes[spelled]
	if quoted || !system {
		t.Name = words[0]
		return
	}
	t.Schema, t.Name = "pg_catalog", name
	switch {
	case spelled == "float" && len(t.Mods) == 1:
		switch n := t.Mods[0]; {
		case n < 1:
			lex.Fail(pgerr.InvalidParameterValue, first.Pos, "precision for type float must be at least 1 bit")
		case n > 53:
			lex.Fail(pgerr.InvalidParameterValue, first.Pos, "precision for type float must be less than 54 bits")
		case n <= 24:
			t.Name = "float4"
		}
		t.Mods = nil
	case (name == "bpchar" || name == "bit") && t.Mods == nil:
		t.Mods = []int{1}
	}
}

// String prints the canonical text.
func (t TypeName) String() string { return t.Text }
