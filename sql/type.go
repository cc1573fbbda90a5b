package sql

import (
	"strings"

	"github.com/streamdb/streamdb/sql/internal/lex"
)

// CreateEnum is CREATE TYPE name AS ENUM (labels).
type CreateEnum struct {
	Base
	Name   Name
	Labels []Label
}

// Label is a string constant of a definition.
type Label struct {
	Text string
	Pos  int
}

// AlterTypeKind is a form of ALTER TYPE.
type AlterTypeKind uint8

// The forms of ALTER TYPE.
const (
	AlterTypeAddValue    AlterTypeKind = iota // Label, IfNotExists, Neighbor and After
	AlterTypeRenameValue                      // Label, NewName
	AlterTypeRename                           // NewName
	AlterTypeSetSchema                        // NewName
	AlterTypeOwner                            // NewName
)

// AlterType is ALTER TYPE.
type AlterType struct {
	Base
	Kind        AlterTypeKind
	Name        Name
	Label       Label
	IfNotExists bool
	Neighbor    *Label // of ADD VALUE .. BEFORE or AFTER
	After       bool
	NewName     Ident
}

// createType parses what follows CREATE TYPE.
func (p *parser) createType(start int) Statement {
	c := &CreateEnum{Name: p.name()}
	if !p.Accept("as") {
		if p.Is("(") {
			return p.unsupported(start, "CREATE TYPE of a base type", "Use the built-in types, an enum type or jsonb.")
		}
		if p.Cur().K != lex.EOF && !p.Is(";") {
			p.Syntax()
		}
		return p.unsupported(start, "CREATE TYPE of a shell type", "Write CREATE TYPE .. AS ENUM (..).")
	}
	switch {
	case p.Is("("):
		return p.unsupported(start, "CREATE TYPE of a composite type", "Use the columns themselves, or jsonb.")
	case p.Is("range"):
		return p.unsupported(start, "CREATE TYPE of a range type", "Use two columns, for the lower and the upper bound.")
	}
	p.Expect("enum", "(")
	if p.Accept(")") {
		return c
	}
	for {
		c.Labels = append(c.Labels, p.label())
		if !p.Accept(",") {
			p.Expect(")")
			return c
		}
	}
}

func (p *parser) label() Label {
	t := p.stringConst()
	return Label{t.Val, t.Pos}
}

// alterType parses what follows ALTER TYPE.
func (p *parser) alterType() Statement {
	a := &AlterType{Name: p.name()}
	t := p.Cur()
	switch {
	case p.Accept("add", "value"):
		a.IfNotExists = p.ifNotExists()
		a.Label = p.label()
		if a.After = p.Accept("after"); a.After || p.Accept("before") {
			n := p.label()
			a.Neighbor = &n
		}
	case p.Accept("rename", "value"):
		a.Kind, a.Label = AlterTypeRenameValue, p.label()
		p.Expect("to")
		n := p.label()
		a.NewName = Ident{n.Text, n.Pos}
	case p.Accept("rename", "to"):
		a.Kind, a.NewName = AlterTypeRename, p.ident()
	case p.Accept("set", "schema"):
		a.Kind, a.NewName = AlterTypeSetSchema, p.ident()
	case p.Accept("owner", "to"):
		a.Kind, a.NewName = AlterTypeOwner, p.ident()
	case p.Any("add", "drop", "alter", "rename"):
		p.Unsupported("ALTER TYPE .. "+strings.ToUpper(t.Val)+" of a composite type", "Only enum types can be made and altered.")
	case p.Is("set"):
		p.Unsupported("ALTER TYPE .. SET", "Only enum types can be made and altered.")
	default:
		p.Syntax()
	}
	return a
}
