package sql

import (
	"slices"
	"strconv"
	"strings"

	"github.com/streamdb/streamdb/internal/pgerr"
	"github.com/streamdb/streamdb/sql/internal/lex"
)

// CreateFunction is CREATE [OR REPLACE] FUNCTION in language SQL.
type CreateFunction struct {
	Base
	Replace    bool
	Name       Name
	Args       []FunctionParam
	Returns    *TypeName // nil with Columns, and where OUT parameters tell it
	SetOf      bool
	Columns    []FunctionParam // RETURNS TABLE
	Language   Ident           // "" when not given
	Body       string          // a query; "" when there is none
	Quoted     bool            // the body is a string constant, which may hold several statements
	BodyPos    int
	Volatility string // "i", "s", "" = volatile
	Strict     bool
	Leakproof  bool
	Parallel   string  // "s", "r", "" = unsafe
	Cost, Rows float64 // 0 when not given
	Style      string  // "return", "atomic", "" = a string constant
}

// FunctionParam is a parameter, or a column of RETURNS TABLE.
type FunctionParam struct {
	Name    string
	Type    *TypeName
	Default *Query
	Mode    string // ParamOut ..; "" = IN
	Pos     int
}

// Modes of parameters, spelled as in pg_proc.
const (
	ParamOut      = "o"
	ParamInOut    = "b"
	ParamVariadic = "v"
)

// DropFunction is DROP FUNCTION.
type DropFunction struct {
	Base
	IfExists  bool
	Functions []FunctionSignature
	Cascade   bool
}

// FunctionSignature names a function; Args is nil when only the name is given.
type FunctionSignature struct {
	Name Name
	Args []*TypeName
	Any  bool // no argument list
}

// createFunction parses what follows CREATE [OR REPLACE] FUNCTION.
func (p *parser) createFunction(start int, replace bool) Statement {
	f := &CreateFunction{Replace: replace, Name: p.name()}
	p.Expect("(")
	if !p.Is(")") {
		f.Args = p.functionParams(start)
	}
	p.Expect(")")
	if p.Accept("returns") {
		if p.Accept("table") {
			p.Expect("(")
			f.SetOf = true
			for {
				c := FunctionParam{Pos: p.Cur().Pos}
				c.Name = p.ident().Name
				c.Type = p.typeName()
				f.Columns = append(f.Columns, c)
				if !p.Accept(",") {
					break
				}
			}
			p.Expect(")")
		} else {
			f.Returns = p.typeName()
			f.SetOf = f.Returns.SetOf
			f.Returns.SetOf = false
			f.Returns.Text = strings.TrimPrefix(f.Returns.Text, "setof ")
		}
	}
	for p.functionOption(f, start) {
	}
	return f
}

func (p *parser) functionParams(start int) []FunctionParam {
	var out []FunctionParam
	for {
		a := FunctionParam{Pos: p.Cur().Pos}
		a.Mode = p.paramMode()
		first := p.I
		// A name comes before the type, unless the type is all there is.
		a.Type = p.typeName()
		if !p.Is(",") && !p.Is(")") && !p.Is("=") && !p.Is("default") {
			p.I = first
			a.Name = p.ident().Name
			if a.Mode == "" {
				a.Mode = p.paramMode()
			}
			a.Type = p.typeName()
		}
		if p.Accept("default") || p.Accept("=") {
			a.Default = p.expr()
		}
		out = append(out, a)
		if !p.Accept(",") {
			return out
		}
	}
}

// paramMode parses the mode of a parameter.
func (p *parser) paramMode() string {
	switch {
	case p.Accept("in", "out"), p.Accept("inout"):
		return ParamInOut
	case p.Accept("in"):
	case p.Accept("out"):
		return ParamOut
	case p.Accept("variadic"):
		return ParamVariadic
	}
	return ""
}

// functionOption parses one clause behind the signature; false at the end.
func (p *parser) functionOption(f *CreateFunction, start int) bool {
	t := p.Cur()
	switch {
	case p.Accept("language"):
		if p.Cur().K == lex.Str {
			s := p.stringConst()
			f.Language = Ident{s.Val, s.Pos}
		} else {
			f.Language = p.ident()
		}
	case p.Accept("immutable"):
		f.Volatility = "i"
	case p.Accept("stable"):
		f.Volatility = "s"
	case p.Accept("volatile"):
		f.Volatility = ""
	case p.Accept("strict"), p.Accept("returns", "null", "on", "null", "input"):
		f.Strict = true
	case p.Accept("called", "on", "null", "input"):
		f.Strict = false
	case p.Accept("leakproof"):
		f.Leakproof = true
	case p.Accept("not", "leakproof"):
		f.Leakproof = false
	case p.Accept("security", "invoker"), p.Accept("external", "security", "invoker"):
	case p.Accept("parallel"):
		switch word := p.ident(); word.Name {
		case "safe", "restricted":
			f.Parallel = word.Name[:1]
		case "unsafe":
			f.Parallel = ""
		default:
			panic(pgerr.Newf(pgerr.SyntaxError, "parameter \"parallel\" must be SAFE, RESTRICTED, or UNSAFE"))
		}
	case p.Accept("cost"):
		f.Cost = p.planNumber("COST")
	case p.Accept("rows"):
		f.Rows = p.planNumber("ROWS")
	case p.Accept("as"):
		s := p.stringConst()
		f.Body, f.Quoted, f.BodyPos = s.Val, true, s.Pos
		if p.Is(",") {
			p.unsupported(start, "functions in object files", "Use LANGUAGE sql.")
		}
	case p.Accept("return"):
		e := p.expr()
		f.Style = "return"
		f.Body, f.BodyPos = "SELECT "+strings.TrimSpace(e.SourceText()), t.Pos
	case p.Accept("begin", "atomic"):
		f.BodyPos, f.Style = t.Pos, "atomic"
		for !p.Accept("end") {
			if p.Accept(";") {
				continue
			}
			if f.Body != "" {
				p.unsupported(start, "several statements in a function", "Write one query.")
			}
			from := p.Cur().Pos
			p.fullQuery()
			f.Body = p.Src[from:p.Toks[p.I-1].End]
			p.Expect(";")
		}
	case p.Any("window", "support", "set", "transform", "security", "external"):
		p.unsupported(start, strings.ToUpper(t.Val)+" of functions", "Leave it out.")
	default:
		return false
	}
	return true
}

// planNumber parses the number of COST and ROWS, which must be positive.
func (p *parser) planNumber(what string) float64 {
	t := p.Next()
	n, err := strconv.ParseFloat(t.Val, 32)
	if t.Val == "-" && err != nil {
		p.Next()
	} else if err != nil {
		p.I--
		p.Syntax()
	}
	if n <= 0 {
		panic(pgerr.Newf(pgerr.InvalidParameterValue, "%s must be positive", what))
	}
	return n
}

// functionSignature parses a function's name with its parameters, if they are given.
func (p *parser) functionSignature() FunctionSignature {
	s := FunctionSignature{Name: p.name(), Any: true}
	if !p.Accept("(") {
		return s
	}
	s.Any = false
	for !p.Is(")") {
		mode := p.paramMode()
		first := p.I
		t := p.typeName()
		if !p.Is(",") && !p.Is(")") {
			p.I = first
			p.ident()
			if mode == "" {
				mode = p.paramMode()
			}
			t = p.typeName()
		}
		if mode != ParamOut {
			s.Args = append(s.Args, t)
		}
		if !p.Accept(",") {
			break
		}
	}
	p.Expect(")")
	return s
}

// dropFunction parses what follows DROP FUNCTION.
func (p *parser) dropFunction() Statement {
	d := &DropFunction{IfExists: p.ifExists()}
	for {
		d.Functions = append(d.Functions, p.functionSignature())
		if !p.Accept(",") {
			break
		}
	}
	d.Cascade = p.cascade()
	return d
}

// AlterFunction is ALTER FUNCTION: a new name, schema or owner, or options.
type AlterFunction struct {
	Base
	Function FunctionSignature
	Rename   Ident
	Schema   Ident
	Owner    Ident
	Options  *CreateFunction // what its options became, those of Given
	Given    []string        // volatility, strict, leakproof, parallel, cost, rows, security
}

// optionOf names the option that a word of CREATE FUNCTION begins, "" for what ALTER FUNCTION does not take.
func optionOf(word string) string {
	switch word {
	case "immutable", "stable", "volatile":
		return "volatility"
	case "strict", "returns", "called":
		return "strict"
	case "leakproof", "not":
		return "leakproof"
	case "security", "external":
		return "security"
	case "parallel", "cost", "rows":
		return word
	}
	return ""
}

// alterFunction parses what follows ALTER FUNCTION.
func (p *parser) alterFunction(start int) Statement {
	a := &AlterFunction{Function: p.functionSignature()}
	switch {
	case p.Accept("rename"):
		p.Expect("to")
		a.Rename = p.ident()
		return a
	case p.Accept("owner"):
		p.Expect("to")
		a.Owner = p.roleSpec().Ident
		return a
	case p.Accept("set", "schema"):
		a.Schema = p.ident()
		return a
	case p.Is("depends"), p.Is("no"), p.Is("set"), p.Is("reset"):
		p.unsupported(start, strings.ToUpper(p.Cur().Val)+" of functions", "Leave it out.")
	}
	a.Options = &CreateFunction{}
	for {
		t := p.Cur()
		option := optionOf(t.Val)
		if t.K != lex.Ident || option == "" {
			break
		}
		if slices.Contains(a.Given, option) {
			panic(pgerr.Newf(pgerr.SyntaxError, "conflicting or redundant options").At(t.Pos))
		}
		if !p.functionOption(a.Options, start) {
			break
		}
		a.Given = append(a.Given, option)
	}
	if a.Given == nil {
		p.Syntax()
	}
	p.Accept("restrict")
	return a
}

// ParseBody parses the body of a function: one query.
func ParseBody(text string) (*Query, error) {
	stmts, err := Parse(text)
	if err != nil {
		return nil, err
	}
	if len(stmts) == 0 {
		return nil, nil
	}
	q, ok := stmts[len(stmts)-1].(*Query)
	switch {
	case len(stmts) > 1:
		return nil, pgerr.Newf(pgerr.FeatureNotSupported, "several statements in a function are not supported").WithHint("Write one query.")
	case !ok || len(q.Changes) > 0 || q.Into != nil:
		return nil, pgerr.Newf(pgerr.FeatureNotSupported, "functions that change data are not supported").WithHint("The body of a function must be a query.")
	}
	return q, nil
}
