package sql

import (
	"math"
	"strconv"

	"github.com/streamdb/streamdb/internal/pgerr"
	"github.com/streamdb/streamdb/sql/internal/lex"
	"github.com/streamdb/streamdb/sql/internal/translate"
)

// SequenceOption is one option of a sequence.
type SequenceOption struct {
	Name  string // as, increment, minvalue, maxvalue, start, cache, cycle, owned, restart, sequence name
	No    bool   // NO MINVALUE, NO MAXVALUE, NO CYCLE, OWNED BY NONE
	Given bool   // RESTART with a value
	Value int64
	Type  *TypeName
	Owner Name  // OWNED BY table
	Owned Ident // its column
	Seq   Name  // SEQUENCE NAME
	Pos   int
}

// CreateSequence is CREATE [TEMP] SEQUENCE.
type CreateSequence struct {
	Base
	Name        Name
	IfNotExists bool
	Temporary   bool
	Options     []SequenceOption
}

// AlterSequence is ALTER SEQUENCE with options of the sequence; other forms are an AlterObject.
type AlterSequence struct {
	Base
	Name     Name
	IfExists bool
	Options  []SequenceOption
}

func (p *parser) createSequence(temporary bool) Statement {
	return &CreateSequence{Temporary: temporary, IfNotExists: p.ifNotExists(), Name: p.name(), Options: p.sequenceOptions()}
}

// bigint parses a number with an optional sign that fits into 64 bits.
func (p *parser) bigint() int64 {
	t := p.Cur()
	text := ""
	if p.Accept("-") {
		text = "-"
	} else {
		p.Accept("+")
	}
	n := p.Cur()
	if n.K != lex.Int && n.K != lex.Num {
		p.Syntax()
	}
	p.I++
	text += p.Src[n.Pos:n.End]
	v, err := strconv.ParseInt(text, 10, 64)
	if err != nil {
		if f, ferr := strconv.ParseFloat(text, 64); ferr == nil && f == math.Trunc(f) {
			lex.Fail(pgerr.NumericValueOutOfRange, t.Pos, "value \"%s\" is out of range for type bigint", text)
		}
		lex.Fail(pgerr.InvalidTextRepresentation, t.Pos, "invalid input syntax for type bigint: \"%s\"", text)
	}
	return v
}

func (p *parser) sequenceOptions() []SequenceOption {
	var out []SequenceOption
	for {
		o := SequenceOption{Pos: p.Cur().Pos}
		if !p.sequenceOption(&o) {
			return out
		}
		for _, x := range out {
			if x.Name == o.Name {
				lex.Fail(pgerr.SyntaxError, o.Pos, "conflicting or redundant options")
			}
		}
		out = append(out, o)
	}
}

func (p *parser) sequenceOption(o *SequenceOption) bool {
	switch {
	case p.Accept("as"):
		o.Name, o.Type = "as", p.typeName()
	case p.Accept("increment"):
		p.Accept("by")
		o.Name, o.Value = "increment", p.bigint()
	case p.Accept("minvalue"):
		o.Name, o.Value = "minvalue", p.bigint()
	case p.Accept("maxvalue"):
		o.Name, o.Value = "maxvalue", p.bigint()
	case p.IsN("no", "minvalue"), p.IsN("no", "maxvalue"), p.IsN("no", "cycle"):
		p.I++
		o.Name, o.No = p.Next().Val, true
	case p.Accept("start"):
		p.Accept("with")
		o.Name, o.Value = "start", p.bigint()
	case p.Accept("cache"):
		o.Name, o.Value = "cache", p.bigint()
	case p.Accept("cycle"):
		o.Name = "cycle"
	case p.Accept("restart"):
		o.Name = "restart"
		with := p.Accept("with")
		if t := p.Cur(); with || t.K == lex.Int || t.K == lex.Num || t.Is("-") || t.Is("+") {
			o.Given, o.Value = true, p.bigint()
		}
	case p.Accept("owned", "by"):
		o.Name = "owned"
		p.owner(o)
	case p.Accept("sequence", "name"):
		o.Name, o.Seq = "sequence name", p.name()
	default:
		return false
	}
	return true
}

// owner parses what follows OWNED BY.
func (p *parser) owner(o *SequenceOption) {
	if p.Accept("none") {
		o.No = true
		return
	}
	t := p.Cur()
	parts := []string{p.ColID().Val}
	for p.Accept(".") {
		parts = append(parts, p.ColLabel().Val)
	}
	n := len(parts)
	if n < 2 {
		panic(pgerr.Newf(pgerr.SyntaxError, "invalid OWNED BY option").WithHint("Specify OWNED BY table.column or OWNED BY NONE."))
	}
	o.Owned = Ident{parts[n-1], t.Pos}
	o.Owner = Name{Name: parts[n-2], Pos: t.Pos}
	if n > 2 {
		o.Owner.Schema = parts[n-3]
	}
	if n > 3 {
		o.Owner.Catalog = parts[n-4]
	}
	p.Local(translate.Name(o.Owner))
}

// identityOptions parses an optional "(" options ")" of an identity column.
func (p *parser) identityOptions() []SequenceOption {
	if !p.Accept("(") {
		return nil
	}
	opts := p.sequenceOptions()
	p.Expect(")")
	return opts
}
