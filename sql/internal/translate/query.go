package translate

import (
	"strconv"
	"strings"

	"github.com/streamdb/streamdb/internal/pgerr"
	"github.com/streamdb/streamdb/sql/internal/lex"
	"github.com/streamdb/streamdb/sql/pgext"
)

// query is a select statement whose outer clauses are still open, because PostgreSQL lets "(SELECT ..) ORDER BY .." add clauses to
// the inner one.
type query struct {
	with          *frag
	body          *frag
	setop         string // the body is a set operation of this kind
	pos           int
	order         []*frag
	limit, offset *frag
	limitPos      int
	locks         []*frag
	ties, paren   bool
	values        bool
}

func (q *query) closed() bool {
	return q.order != nil || q.limit != nil || q.offset != nil || q.locks != nil
}

func (q *query) render() *frag {
	k := make([]*frag, 0, 8)
	if q.with != nil {
		k = append(k, q.with, fSpace)
	}
	k = append(k, q.body)
	order := q.order
	if q.limit != nil || q.offset != nil {
		l := q.limit
		if l == nil {
			l = ext(-1, pgext.MarkNoBound)
		}
		name := pgext.MarkLimit
		if q.ties {
			name = pgext.MarkLimitWithTies
		}
		args := []*frag{l}
		if q.offset != nil {
			args = append(args, q.offset)
		}
		order = append(order[:len(order):len(order)], ext(q.limitPos, name, args...))
	}
	order = append(order[:len(order):len(order)], q.locks...)
	if len(order) > 0 {
		k = append(k, lit(" ORDER BY "))
		k = append(k, list(order)...)
	}
	return seq(0, k...)
}

// startsSelect reports whether the token n after the cursor begins a query without parentheses.
func (p *Parser) startsSelect(n int) bool {
	t := p.Peek(n)
	return t.K == lex.Ident && (t.Val == "select" || t.Val == "values" || t.Val == "with" || t.Val == "table")
}

// parenSelect reports whether the "(" at the cursor opens a query, however nested.
func (p *Parser) parenSelect() bool {
	n := p.Opens()
	return n > 0 && p.startsSelect(n)
}

// queryFrom parses a query, SelectStmt; first is its first operand where that was parsed already.
func (p *Parser) queryFrom(first *query) *query {
	p.Enter()
	defer p.Leave()
	var with *frag
	withPos := p.Cur().Pos
	if first == nil && p.Is("with") {
		with = p.with()
	}
	q := p.setop(0, first)
	if with != nil {
		if q.with != nil {
			lex.Fail(pgerr.SyntaxError, withPos, "multiple WITH clauses not allowed")
		}
		q.with = with
	}
	p.tail(q)
	return q
}

// tail parses ORDER BY, LIMIT, OFFSET and FETCH. A clause that the parenthesised query inside has already is reported at the new
// clause's expression, one repeated at the same level is a plain syntax error: gram.y does the same.
func (p *Parser) tail(q *query) {
	hadLimit, hadOffset := q.limit != nil, q.offset != nil
	var limited, skipped bool
	if p.Commit(1, "order", "by") {
		pos := p.Cur().Pos
		keys := p.sortList(true)
		if q.order != nil {
			lex.Fail(pgerr.SyntaxError, pos, "multiple ORDER BY clauses not allowed")
		}
		q.order = keys
	}
	for {
		t := p.Cur()
		switch {
		case p.Is("limit") || p.Is("fetch"):
			if limited {
				p.Syntax()
			}
			limited = true
			p.I++
			pos := p.Cur().Pos
			var l *frag
			if t.Val == "limit" {
				l = p.limitValue(t.Pos)
			} else {
				l = p.fetchValue(q)
			}
			if hadLimit {
				lex.Fail(pgerr.SyntaxError, pos, "multiple LIMIT clauses not allowed")
			}
			q.limit, q.limitPos = l, t.Pos
		case p.Is("offset"):
			if skipped {
				p.Syntax()
			}
			skipped = true
			p.I++
			pos := p.Cur().Pos
			x := p.expr(0)
			if hadOffset {
				lex.Fail(pgerr.SyntaxError, pos, "multiple OFFSET clauses not allowed")
			}
			q.offset = x
			if q.limit == nil {
				q.limitPos = t.Pos
			}
			if !p.Accept("rows") {
				p.Accept("row")
			}
		case p.Is("for"):
			p.locking(q)
		default:
			return
		}
	}
}

// locking parses FOR {UPDATE | NO KEY UPDATE | SHARE | KEY SHARE} [OF names] [NOWAIT | SKIP LOCKED], or FOR READ ONLY.
func (p *Parser) locking(q *query) {
	t := p.Next()
	strength := pgext.LockUpdate
	switch {
	case p.Accept("read"):
		p.Expect("only")
		return
	case p.Accept("update"):
	case p.Accept("share"):
		strength = pgext.LockShare
	case p.Accept("key"):
		p.Expect("share")
		strength = pgext.LockKeyShare
	default:
		p.Expect("no", "key", "update")
		strength = pgext.LockNoKeyUpdate
	}
	var of []*frag
	if p.Accept("of") {
		for {
			n := p.QualifiedName()
			if n.Schema != "" {
				lex.Fail(pgerr.SyntaxError, n.Pos, "%s must specify unqualified relation names", strength)
			}
			of = append(of, strAt(n.Pos, n.Name))
			if !p.Accept(",") {
				break
			}
		}
	}
	wait := ""
	switch {
	case p.Accept("nowait"):
		wait = "NOWAIT"
	case p.Accept("skip"):
		p.Expect("locked")
		wait = "SKIP LOCKED"
	}
	q.locks = append(q.locks, ext(t.Pos, pgext.MarkLock, append([]*frag{lit(strconv.Itoa(int(strength))), str(wait)}, of...)...))
}

func (p *Parser) limitValue(limit int) *frag {
	t := p.Cur()
	if p.Accept("all") {
		return ext(t.Pos, pgext.MarkNoBound)
	}
	l := p.expr(0)
	if p.Is(",") {
		panic(pgerr.Newf(pgerr.SyntaxError, "LIMIT #,# syntax is not supported").At(limit).WithHint("Use separate LIMIT and OFFSET clauses."))
	}
	return l
}

// fetchValue parses the rest of FETCH {FIRST|NEXT} [n] {ROW|ROWS} {ONLY|WITH TIES}.
func (p *Parser) fetchValue(q *query) *frag {
	if !p.Accept("first") {
		p.Expect("next")
	}
	l := lit("1")
	if !p.Any("row", "rows") {
		if o := p.Cur(); o.Is("-") || o.Is("+") {
			p.I++
			if k := p.Cur().K; k != lex.Int && k != lex.Num {
				p.Syntax()
			}
			l = seq(lvBit, at(o.Pos, o.Val), p.cExpr())
		} else {
			l = p.cExpr()
		}
	}
	if !p.Accept("rows") {
		p.Expect("row")
	}
	if p.Commit(1, "with", "ties") {
		if q.order == nil {
			lex.Fail(pgerr.SyntaxError, -1, "WITH TIES cannot be specified without ORDER BY clause")
		}
		q.ties = true
	} else {
		p.Expect("only")
	}
	return l
}

// setop parses UNION and EXCEPT (lv 0) or INTERSECT (lv 1).
func (p *Parser) setop(lv int, first *query) *query {
	var l *query
	if lv == 0 {
		l = p.setop(1, first)
	} else if first != nil {
		l = first
	} else {
		l = p.selectPrimary()
	}
	for {
		t := p.Cur()
		if lv == 0 && !p.Any("union", "except") || lv == 1 && !p.Is("intersect") {
			return l
		}
		p.I++
		op := strings.ToUpper(t.Val)
		if p.Accept("all") {
			op += " ALL"
		} else {
			p.Accept("distinct")
		}
		var r *query
		if lv == 0 {
			r = p.setop(1, nil)
		} else {
			r = p.selectPrimary()
		}
		lf := l.body
		if l.setop == "" || l.paren || lv == 1 && l.setop[0] != 'I' || l.closed() || l.with != nil {
			lf = paren(l.render())
		}
		l = &query{body: seq(0, lf, fSpace, at(t.Pos, op), fSpace, paren(r.render())), setop: op, pos: t.Pos}
	}
}

// selectPrimary parses one operand of a set operation.
func (p *Parser) selectPrimary() *query {
	t := p.Cur()
	switch {
	case p.Is("("):
		return p.selectParens()
	case p.Is("select"):
		return p.simpleSelect()
	case p.Is("values"):
		return p.values()
	case p.Accept("table"):
		p.Accept("only")
		n := p.relationName()
		p.Accept("*")
		return &query{body: seq(0, at(t.Pos, "SELECT * FROM "), n), pos: t.Pos}
	}
	p.Syntax()
	return nil
}

// selectParens parses "(" query ")".
func (p *Parser) selectParens() *query {
	p.Enter()
	defer p.Leave()
	p.Expect("(")
	var q *query
	if p.Is("(") {
		q = p.queryFrom(p.selectParens())
	} else {
		q = p.queryFrom(nil)
	}
	p.Expect(")")
	q.paren = true
	return q
}

// with parses a WITH clause.
func (p *Parser) with() *frag {
	t := p.Next()
	s := "WITH "
	if p.Accept("recursive") {
		s = "WITH RECURSIVE "
	}
	k := []*frag{at(t.Pos, s)}
	for {
		name := p.ColID()
		p.place(pgext.CTEPlace+"."+name.Val, name.Pos)
		p.relations[pgext.CTEPlace+"."+name.Val] = name.Pos // of a name given twice the second place matters
		k = append(k, ident(name))
		var cols []*frag
		if p.Is("(") {
			cols = p.names()
		}
		at := len(k)
		k = append(k, seq(0)) // the columns, once the clauses behind the query are known
		p.Expect("as")
		if p.Accept("not") {
			p.Expect("materialized")
		} else {
			p.Accept("materialized")
		}
		if p.Peek(1).Is("merge") {
			p.Unsupported("MERGE in WITH", "Use INSERT .. ON CONFLICT DO UPDATE.")
		}
		if c := p.Peek(1); p.Is("(") && (c.Is("insert") || c.Is("update") || c.Is("delete")) && p.Change != nil {
			if cols != nil {
				k[at] = seq(0, fSpace, paren(seq(0, list(cols)...)))
			}
			k = append(k, lit(" AS (SELECT "), p.change(c.Pos), fClose)
			if !p.Accept(",") {
				return seq(0, k...)
			}
			k = append(k, fComma)
			continue
		}
		k = append(k, lit(" AS "), paren(p.selectParens().render()))
		if c := p.cteClauses(); c != "" {
			cols = append(cols, lit(quoteIdent(c)))
		}
		if cols != nil {
			k[at] = seq(0, fSpace, paren(seq(0, list(cols)...)))
		}
		if !p.Accept(",") {
			return seq(0, k...)
		}
		k = append(k, fComma)
	}
}

// change parses "(" statement ")"; the marker holds its number. The statement is a part of its own.
func (p *Parser) change(pos int) *frag {
	p.Expect("(")
	relations, into, temp := p.relations, p.into, p.intoTemp
	p.relations, p.into, p.intoTemp = nil, nil, false
	n := p.Change()
	p.relations, p.into, p.intoTemp = relations, into, temp
	p.Expect(")")
	return ext(pos, pgext.MarkChange, lit(strconv.Itoa(n)))
}

// nameList parses "(" names ")".
func (p *Parser) nameList() *frag { return paren(seq(0, list(p.names())...)) }

// names parses "(" name, .. ")".
func (p *Parser) names() []*frag {
	p.Expect("(")
	var k []*frag
	for {
		k = append(k, ident(p.ColID()))
		if !p.Accept(",") {
			break
		}
	}
	p.Expect(")")
	return k
}

// cteClauses parses SEARCH and CYCLE behind a WITH query, "" for none. What they say travels as one more name of a column.
func (p *Parser) cteClauses() string {
	var c pgext.CTEClauses
	columns := func() (out []string) {
		for {
			if out = append(out, p.ColID().Val); !p.Accept(",") {
				return out
			}
		}
	}
	if t := p.Cur(); p.Accept("search") {
		s := &pgext.Search{Pos: t.Pos, Breadth: p.Accept("breadth")}
		if !s.Breadth {
			p.Expect("depth")
		}
		p.Expect("first", "by")
		s.By = columns()
		p.Expect("set")
		s.Column = p.ColID().Val
		c.Search = s
	}
	if t := p.Cur(); p.Accept("cycle") {
		y := &pgext.Cycle{Pos: t.Pos, By: columns(), Value: "true", Default: "false"}
		p.Expect("set")
		y.Mark = p.ColID().Val
		if p.Accept("to") {
			y.Value = p.constantText()
			p.Expect("default")
			y.Default = p.constantText()
		}
		p.Expect("using")
		y.Path = p.ColID().Val
		c.Cycle = y
	}
	if c.Search == nil && c.Cycle == nil {
		return ""
	}
	return c.Name()
}

// constantText parses a literal and returns its text.
func (p *Parser) constantText() string {
	t := p.Next()
	switch {
	case t.K == lex.Str, t.K == lex.Int, t.K == lex.Num, t.K == lex.Ident && (t.Is("true") || t.Is("false") || t.Is("null")):
	case t.IsName("UCTR") && p.Cur().K == lex.Str:
		p.I++
	default:
		p.I--
		p.Syntax()
	}
	return p.Src[t.Pos:p.Toks[p.I-1].End]
}

// values parses VALUES.
func (p *Parser) values() *query {
	t := p.Next()
	var rows []*frag
	for {
		p.Expect("(")
		var xs []*frag
		for {
			if d := p.Cur(); p.Accept("default") {
				xs = append(xs, at(d.Pos, "DEFAULT"))
			} else {
				xs = append(xs, p.expr(0))
			}
			if !p.Accept(",") {
				break
			}
		}
		p.Expect(")")
		rows = append(rows, seq(0, lit("ROW"), paren(seq(0, list(xs)...))))
		if !p.Accept(",") {
			break
		}
	}
	return &query{body: seq(0, append([]*frag{at(t.Pos, "VALUES ")}, list(rows)...)...), pos: t.Pos, values: true}
}
