package translate

import (
	"strings"

	"github.com/streamdb/streamdb/sql/internal/lex"
	"github.com/streamdb/streamdb/sql/pgext"
)

// extractKeyword lists the keywords that name a field of EXTRACT; other names of fields are no keywords.
var extractKeyword = map[string]bool{"year": true, "month": true, "day": true, "hour": true, "minute": true, "second": true}

// specialFunc parses the functions with a syntax of their own (func_expr_common_subexpr). What gram.y turns into calls of pg_catalog's
// functions becomes such calls here.
func (p *Parser) specialFunc() *frag {
	t := p.Next()
	switch t.Val {
	case "current_date", "current_role", "current_user", "session_user", "user", "current_catalog", "current_schema":
		return ext(t.Pos, pgext.MarkSQLValue, str(t.Val))
	case "current_time", "current_timestamp", "localtime", "localtimestamp":
		if p.Accept("(") {
			if p.Cur().K != lex.Int {
				p.Syntax()
			}
			n := p.Next()
			p.Expect(")")
			return ext(t.Pos, pgext.MarkSQLValue, str(t.Val), at(n.Pos, n.Val))
		}
		return ext(t.Pos, pgext.MarkSQLValue, str(t.Val))
	case "overlay", "substring":
		return p.sliceFunc(t)
	}
	p.Expect("(")
	var f *frag
	switch t.Val {
	case "cast":
		x := p.expr(0)
		p.Expect("as")
		f = ext(t.Pos, pgext.MarkCast, x, p.typeText())
	case "treat":
		p.I--
		p.I--
		p.Unsupported("TREAT", "Use CAST.")
	case "extract":
		field := p.Cur()
		if field.K != lex.Str && field.K != lex.QIdent && (field.K != lex.Ident || field.Cat != 0 && !extractKeyword[field.Val]) {
			p.Syntax()
		}
		p.I++
		p.Expect("from")
		f = catalogCall(t.Pos, "extract", strAt(field.Pos, field.Val), p.expr(0))
	case "position":
		a := p.exprX(pIn+1, true)
		p.Expect("in")
		f = catalogCall(t.Pos, "position", p.bExpr(), a)
	case "trim":
		f = p.trim(t)
	case "normalize":
		args := []*frag{p.expr(0)}
		if p.Accept(",") {
			if !p.Any("nfc", "nfd", "nfkc", "nfkd") {
				p.Syntax()
			}
			args = append(args, str(strings.ToUpper(p.Next().Val)))
		}
		f = catalogCall(t.Pos, "normalize", args...)
	case "nullif":
		a := p.expr(0)
		p.Expect(",")
		f = ext(t.Pos, pgext.MarkNullIf, a, p.expr(0))
	default: // coalesce, greatest, least, grouping
		f = ext(t.Pos, t.Val, p.exprList()...)
	}
	p.Expect(")")
	return f
}

// trim parses the rest of TRIM.
func (p *Parser) trim(t *lex.Token) *frag {
	name := "btrim"
	switch {
	case p.Accept("both"):
	case p.Accept("leading"):
		name = "ltrim"
	case p.Accept("trailing"):
		name = "rtrim"
	}
	if p.Accept("from") {
		return catalogCall(t.Pos, name, p.exprList()...)
	}
	x := p.expr(0)
	if p.Accept("from") {
		return catalogCall(t.Pos, name, append(p.exprList(), x)...)
	}
	xs := []*frag{x}
	for p.Accept(",") {
		xs = append(xs, p.expr(0))
	}
	return catalogCall(t.Pos, name, xs...)
}

// sliceFunc parses OVERLAY and SUBSTRING: with their words as calls of pg_catalog's functions, else as plain calls of those names.
func (p *Parser) sliceFunc(t *lex.Token) *frag {
	p.Expect("(")
	plain := func(args []*frag) *frag {
		p.Expect(")")
		return seq(lvAtom, at(t.Pos, quoteIdent(t.Val)), fOpen, commaSeparated(args), fClose)
	}
	if p.Is(")") {
		return plain(nil)
	}
	if p.namedArg() || p.Is("variadic") {
		return plain(p.callArgs())
	}
	// SIMILAR after the first operand is SUBSTRING's own word here, not the operator.
	x := p.expr(pIn + 1)
	if !(t.Val == "substring" && p.Is("similar")) {
		x = p.infixLoop(x, 0, false)
	}
	args := []*frag{x}
	switch {
	case t.Val == "overlay" && p.Accept("placing"):
		args = append(args, p.expr(0))
		p.Expect("from")
		args = append(args, p.expr(0))
		if p.Accept("for") {
			args = append(args, p.expr(0))
		}
	case t.Val == "substring" && p.Accept("from"):
		args = append(args, p.expr(0))
		if p.Accept("for") {
			args = append(args, p.expr(0))
		}
	case t.Val == "substring" && p.Accept("for"):
		n := p.expr(0)
		if p.Accept("from") {
			args = append(args, p.expr(0), n)
		} else {
			args = append(args, lit("1"), ext(n.first(), pgext.MarkCast, n, str("int4")))
		}
	case t.Val == "substring" && p.Accept("similar"):
		args = append(args, p.expr(0))
		p.Expect("escape")
		args = append(args, p.expr(0))
	default:
		if p.Accept(",") {
			args = append(args, p.callArgs()...)
		}
		return plain(args)
	}
	p.Expect(")")
	return catalogCall(t.Pos, t.Val, args...)
}
