package translate

import (
	"github.com/streamdb/streamdb/sql/internal/lex"
)

// typeText parses a type as a string constant with its place.
func (p *Parser) typeText() *frag {
	pos := p.Cur().Pos
	return strAt(pos, p.typeName())
}

// TypeName parses a type and returns its canonical text: keywords as written in lower case, names quoted where needed.
func (p *Parser) TypeName() string { return p.typeName() }

// typeName parses Typename.
func (p *Parser) typeName() string {
	s := ""
	if p.Accept("setof") {
		s = "setof "
	}
	s += p.simpleType()
	if p.Accept("array") {
		s += "[]"
		if p.Accept("[") {
			if p.Cur().K != lex.Int {
				p.Syntax()
			}
			s = s[:len(s)-1] + p.Next().Val + "]"
			p.Expect("]")
		}
		return s
	}
	for p.Accept("[") {
		s += "["
		if p.Cur().K == lex.Int {
			s += p.Next().Val
		}
		p.Expect("]")
		s += "]"
	}
	return s
}

// typeMods parses an optional "(" modifiers ")".
func (p *Parser) typeMods() string {
	if !p.Accept("(") {
		return ""
	}
	s := "("
	for {
		t := p.Next()
		switch {
		case t.K == lex.Int, t.K == lex.Num, t.K == lex.Ident && t.IsName("UC"):
			s += t.Val
		case t.K == lex.QIdent:
			s += quoteIdent(t.Val)
		case t.K == lex.Str:
			s += quoteString(t.Val)
		case t.Is("-") && p.Cur().K == lex.Int:
			s += "-" + p.Next().Val
		default:
			p.I--
			p.Syntax()
		}
		if !p.Accept(",") {
			break
		}
		s += ","
	}
	p.Expect(")")
	return s + ")"
}

// simpleType parses SimpleTypename.
func (p *Parser) simpleType() string {
	t := p.Cur()
	if t.K == lex.Ident && t.Cat != 0 {
		switch t.Val {
		case "int", "integer", "smallint", "bigint", "real", "boolean":
			p.I++
			return t.Val
		case "float", "decimal", "dec", "numeric":
			p.I++
			return t.Val + p.typeMods()
		case "double":
			if p.Peek(1).Is("precision") {
				p.I += 2
				return "double precision"
			}
		case "bit", "character", "char", "nchar", "varchar", "national":
			p.I++
			s := t.Val
			if s == "national" {
				if !p.Any("character", "char") {
					p.Syntax()
				}
				s += " " + p.Next().Val
			}
			if s != "varchar" && p.Accept("varying") {
				s += " varying"
			}
			return s + p.typeMods()
		case "time", "timestamp":
			p.I++
			s := t.Val + p.typeMods()
			if p.Commit(2, "with", "time", "zone") {
				return s + " with time zone"
			}
			if p.Commit(2, "without", "time", "zone") {
				return s + " without time zone"
			}
			return s
		case "interval":
			p.I++
			if p.Is("(") {
				return "interval" + p.typeMods()
			}
			return "interval" + p.intervalFields()
		}
	}
	if !t.IsName("UT") {
		p.Syntax()
	}
	if t.K == lex.Ident && t.Val == "json" && !p.Peek(1).Is(".") { // keyword type of SQL/JSON
		p.I++
		return "json"
	}
	s := lex.QuoteIdent(p.Next().Val)
	for p.Accept(".") {
		s += "." + lex.QuoteIdent(p.ColLabel().Val)
	}
	return s + p.typeMods()
}

// intervalFields parses the optional fields of an interval type.
func (p *Parser) intervalFields() string {
	if !p.Any("year", "month", "day", "hour", "minute", "second") {
		return ""
	}
	sec := func(s string) string {
		if s == "second" {
			return s + p.typeMods()
		}
		return s
	}
	a := p.Next().Val
	s := " " + sec(a)
	if a != "second" && p.Is("to") && (p.Peek(1).Is("month") || p.Peek(1).Is("hour") || p.Peek(1).Is("minute") || p.Peek(1).Is("second")) {
		p.I++
		s += " to " + sec(p.Next().Val)
	}
	return s
}
