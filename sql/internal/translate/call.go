package translate

import (
	"strings"

	"github.com/streamdb/streamdb/internal/pgerr"
	"github.com/streamdb/streamdb/sql/internal/lex"
	"github.com/streamdb/streamdb/sql/pgext"
)

var funcKeyword = map[string]bool{
	"coalesce": true, "greatest": true, "least": true, "nullif": true, "extract": true, "overlay": true, "position": true,
	"substring": true, "trim": true, "treat": true, "normalize": true, "cast": true, "grouping": true,
	"current_date": true, "current_time": true, "current_timestamp": true, "localtime": true, "localtimestamp": true,
	"current_role": true, "current_user": true, "session_user": true, "user": true, "current_catalog": true, "current_schema": true,
}

// The texts that begin the decorations which WITHIN GROUP excludes.
const (
	orderByCall  = pgext.Schema + `."` + pgext.MarkOrderBy + `"(`
	distinctCall = pgext.Schema + `."` + pgext.MarkDistinct + `"(`
	variadicCall = pgext.Schema + `."` + pgext.MarkVariadic + `"(`
)

// funcExpr parses a function call, with WITHIN GROUP, FILTER and OVER when deco is set.
func (p *Parser) funcExpr(deco bool) *frag {
	t, save := p.Cur(), p.I
	if t.K == lex.Ident && funcKeyword[t.Val] && (t.Cat == 'C' || t.Cat == 'R' || t.Val == "current_schema" && !p.Peek(1).Is("(")) {
		return p.specialFunc()
	}
	k := []*frag{ident(p.Name("UCTR"))}
	n := 1
	schema := t
	for p.Accept(".") {
		schema = &p.Toks[p.I-2]
		k = append(k, lit("."), ident(p.ColLabel()))
		n++
	}
	if n == 1 && t.K == lex.Ident && (t.Cat == 'C' || t.Cat == 'R') {
		p.I--
		p.Syntax()
	}
	if n > 2 {
		k = k[len(k)-3:]
	}
	if n > 1 && schema.Val == pgext.Schema {
		lex.Fail(pgerr.InvalidSchemaName, t.Pos, "schema \"%s\" does not exist", pgext.Schema)
	}
	p.Expect("(")
	var args []*frag
	if s := p.Cur(); p.Accept("*") {
		args = []*frag{ext(s.Pos, pgext.MarkStar)}
	} else if !p.Is(")") {
		args = p.callArgs()
	}
	p.Expect(")")
	if deco && p.Cur().K == lex.Str { // type(mod) 'literal'
		p.I = save
		if f := p.typedLiteral(); f != nil {
			return f
		}
		p.Syntax()
	}
	var over *frag
	if deco {
		args, over = p.callDecorations(args)
	}
	call := seq(lvAtom, append(k, fOpen, commaSeparated(args), fClose)...)
	if over != nil {
		return seq(lvAtom, at(t.Pos, "MAX("), call, lit(") OVER "), over)
	}
	return call
}

// namedArg reports whether a named argument begins at the cursor.
func (p *Parser) namedArg() bool {
	return p.Cur().IsName("UT") && (p.Peek(1).Is("=>") || p.Peek(1).Is(":="))
}

// callArgs parses the arguments of a call up to its ")", DISTINCT and ORDER BY included.
func (p *Parser) callArgs() []*frag {
	var args []*frag
	if d := p.Cur(); p.Accept("distinct") {
		args = append(args, ext(d.Pos, pgext.MarkDistinct))
	} else {
		p.Accept("all")
	}
	for {
		a := p.Cur()
		variadic := p.Accept("variadic")
		var x *frag
		if n := p.Cur(); p.namedArg() {
			p.I += 2
			x = ext(n.Pos, pgext.MarkNamed, str(n.Val), p.expr(0))
		} else {
			x = p.expr(0)
		}
		if variadic {
			x = ext(a.Pos, pgext.MarkVariadic, x)
		}
		args = append(args, x)
		if variadic || !p.Accept(",") {
			break
		}
	}
	if o := p.Cur(); p.Commit(1, "order", "by") {
		args = append(args, p.orderMark(o.Pos, pgext.MarkOrderBy))
	}
	return args
}

// callDecorations parses WITHIN GROUP, FILTER, IGNORE NULLS and OVER.
func (p *Parser) callDecorations(args []*frag) (out []*frag, over *frag) {
	if w := p.Cur(); p.Commit(1, "within", "group", "(") {
		for _, a := range args {
			if len(a.kids) == 0 {
				continue
			}
			switch head := a.kids[0].s; {
			case strings.HasPrefix(head, orderByCall):
				lex.Fail(pgerr.SyntaxError, w.Pos, "cannot use multiple ORDER BY clauses with WITHIN GROUP")
			case strings.HasPrefix(head, distinctCall):
				lex.Fail(pgerr.SyntaxError, w.Pos, "cannot use DISTINCT with WITHIN GROUP")
			case strings.HasPrefix(head, variadicCall):
				lex.Fail(pgerr.SyntaxError, w.Pos, "cannot use VARIADIC with WITHIN GROUP")
			}
		}
		p.Expect("order", "by")
		args = append(args, p.orderMark(w.Pos, pgext.MarkWithinGroup))
		p.Expect(")")
	}
	if f := p.Cur(); p.IsN("filter", "(") {
		p.I += 2
		p.Expect("where")
		args = append(args, ext(f.Pos, pgext.MarkFilter, p.expr(0)))
		p.Expect(")")
	}
	if t := p.Cur(); p.IsN("ignore", "nulls", "over") {
		p.I += 2
		args = append(args, ext(t.Pos, pgext.MarkIgnoreNulls))
	} else if p.IsN("respect", "nulls", "over") {
		p.I += 2 // the default
	}
	if p.Accept("over") {
		if p.Is("(") {
			return args, p.windowSpec()
		}
		return args, ident(p.ColID())
	}
	return args, nil
}

// orderMark parses the ORDER BY keys of a call; each becomes asc(x), desc(x) or asc_default(x) around nulls_first or nulls_last.
func (p *Parser) orderMark(pos int, name string) *frag {
	var xs []*frag
	for {
		x := p.expr(0)
		t := p.Cur()
		dir := pgext.MarkAscDefault
		switch {
		case p.Accept("asc"):
			dir = pgext.MarkAsc
		case p.Accept("desc"):
			dir = pgext.MarkDesc
		case p.Accept("using"):
			x = ext(t.Pos, pgext.MarkOrderUsing, x, p.anyOp())
		}
		n := p.Cur()
		switch {
		case p.Accept("nulls", "first"):
			x = ext(n.Pos, pgext.MarkNullsFirst, x)
		case p.Accept("nulls", "last"):
			x = ext(n.Pos, pgext.MarkNullsLast, x)
		}
		xs = append(xs, ext(t.Pos, dir, x))
		if !p.Accept(",") {
			return ext(pos, name, xs...)
		}
	}
}
