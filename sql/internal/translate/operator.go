package translate

import (
	"strings"

	"github.com/streamdb/streamdb/internal/pgerr"
	"github.com/streamdb/streamdb/sql/internal/lex"
	"github.com/streamdb/streamdb/sql/pgext"
)

// The levels of operators, from gram.y, loosest first.
const (
	pOr = iota + 1
	pAnd
	pNot
	pIs
	pCmp
	pIn
	pOp
	pAdd
	pMul
	pPow
	pAt
	pCollate
	pUnary
	pCast
)

// expr parses an expression whose operators bind at least as tightly as min.
func (p *Parser) expr(min int) *frag { return p.exprX(min, false) }

// bExpr parses b_expr, the expressions without boolean operators.
func (p *Parser) bExpr() *frag { return p.exprX(0, true) }

// exprList parses expressions separated by commas.
func (p *Parser) exprList() []*frag {
	var out []*frag
	for {
		out = append(out, p.expr(0))
		if !p.Accept(",") {
			return out
		}
	}
}

// exprX parses a_expr, or b_expr when b is set.
func (p *Parser) exprX(min int, b bool) *frag {
	p.Enter()
	defer p.Leave()
	return p.infixLoop(p.prefix(b), min, b)
}

// prefix parses a prefix operator with its operand, or a primary expression.
func (p *Parser) prefix(b bool) *frag {
	t := p.Cur()
	switch {
	case !b && p.Accept("not"):
		return seq(lvNot, at(t.Pos, "NOT "), atLeast(p.exprX(pNot, b), lvAtom))
	case t.K == lex.Op && (t.Val == "-" || t.Val == "+"):
		p.I++
		return seq(lvBit, at(t.Pos, t.Val), atLeast(p.exprX(pUnary, b), lvAtom))
	case t.K == lex.Op && !isCmp(t.Val) && t.Val != "*" && t.Val != "/" && t.Val != "%" && t.Val != "^", p.IsN("operator", "("):
		op := p.anyOp()
		return ext(t.Pos, pgext.MarkOp, op, p.exprX(pOp+1, b))
	}
	return p.cExpr()
}

// isCmp reports whether s is one of the comparisons that do not associate.
func isCmp(s string) bool {
	switch s {
	case "<", ">", "=", "<=", ">=", "<>":
		return true
	}
	return false
}

// anyOp parses an operator symbol or OPERATOR(schema.symbol).
func (p *Parser) anyOp() *frag {
	if p.Accept("operator", "(") {
		name := ""
		for p.Cur().IsName("UC") {
			name += p.Next().Val + "."
			p.Expect(".")
		}
		if p.Cur().K != lex.Op {
			p.Syntax()
		}
		name += p.Next().Val
		p.Expect(")")
		return str("operator:" + name)
	}
	if p.Cur().K != lex.Op {
		p.Syntax()
	}
	return str(p.Next().Val)
}

// infixLevel gives the level of the infix or postfix operator at the cursor, 0 if there is none.
func (p *Parser) infixLevel(b bool) int {
	t := p.Cur()
	switch t.K {
	case lex.Op:
		switch t.Val {
		case "<", ">", "=", "<=", ">=", "<>":
			return pCmp
		case "+", "-":
			return pAdd
		case "*", "/", "%":
			return pMul
		case "^":
			return pPow
		}
		return pOp
	case lex.Punct:
		if t.Val == "::" {
			return pCast
		}
		return 0
	case lex.Ident:
		switch t.Val {
		case "operator":
			if p.Peek(1).Is("(") {
				return pOp
			}
		case "is":
			if !b || p.Peek(1).Is("distinct") || p.Peek(1).Is("not") && p.Peek(2).Is("distinct") {
				return pIs
			}
		case "collate":
			return pCollate
		case "at":
			if !b && p.IsN("at", "time") {
				return pAt
			}
		}
		if b {
			return 0
		}
		switch t.Val {
		case "or":
			return pOr
		case "and":
			return pAnd
		case "isnull", "notnull":
			return pIs
		case "between", "in", "like", "ilike":
			return pIn
		case "similar":
			return pIn
		case "overlaps":
			return pIn
		case "not":
			if n := p.Peek(1); n.Is("between") || n.Is("in") || n.Is("like") || n.Is("ilike") || n.Is("similar") {
				return pIn
			}
		}
	}
	return 0
}

// infixLoop parses the operators behind l that bind at least as tightly as min.
func (p *Parser) infixLoop(l *frag, min int, b bool) *frag {
	for {
		lv := p.infixLevel(b)
		if lv == 0 || lv < min {
			return l
		}
		var operand bool // ended with an operand of this level (nonassoc check)
		l, operand = p.infixOne(l, lv, b)
		if operand && (lv == pIs || lv == pCmp || lv == pIn) && p.infixLevel(b) == lv {
			p.Syntax()
		}
	}
}

// infixOne parses one operator of level lv; operand reports whether it ended with an operand.
func (p *Parser) infixOne(l *frag, lv int, b bool) (out *frag, operand bool) {
	t := p.Cur()
	switch lv {
	case pOr, pAnd:
		p.I++
		lvl := lvOr
		if lv == pAnd {
			lvl = lvAnd
		}
		return infix(t.Pos, strings.ToUpper(t.Val), l, p.exprX(lv+1, b), lvl), true
	case pIs:
		return p.isTest(l, b)
	case pCmp, pOp, pAdd, pMul, pPow:
		if f := p.quantified(t, l); f != nil {
			return f, false
		}
		native := t.K == lex.Op && (lv == pCmp || lv == pAdd || lv == pMul)
		if native {
			p.I++
			lvl := lvBit
			if lv == pCmp {
				lvl = lvCmp
			}
			return infix(t.Pos, t.Val, l, p.exprX(lv+1, b), lvl), true
		}
		op := p.anyOp()
		return ext(t.Pos, pgext.MarkOp, op, l, p.exprX(lv+1, b)), true
	case pAt:
		p.Expect("at", "time", "zone")
		return catalogCall(t.Pos, "timezone", p.exprX(pAt+1, b), l), true
	case pCollate:
		p.I++
		return ext(t.Pos, pgext.MarkCollate, l, p.anyName()), false
	case pCast:
		p.I++
		return ext(t.Pos, pgext.MarkCast, l, p.typeText()), false
	}
	return p.inTest(l, b)
}

// anyName parses a possibly qualified name as quoted text.
func (p *Parser) anyName() *frag {
	s := quoteIdent(p.ColID().Val)
	for p.Accept(".") {
		s += "." + quoteIdent(p.ColLabel().Val)
	}
	return str(s)
}

// isTest parses IS and its kin; operand reports whether it ended with an operand.
func (p *Parser) isTest(l *frag, b bool) (out *frag, operand bool) {
	t := p.Next()
	switch t.Val {
	case "isnull":
		return seq(lvCmp, atLeast(l, lvAtom), at(t.Pos, " IS NULL")), false
	case "notnull":
		return seq(lvCmp, atLeast(l, lvAtom), at(t.Pos, " IS NOT NULL")), false
	}
	not := p.Accept("not")
	w := p.Cur()
	switch {
	case p.Any("null", "true", "false"):
		p.I++
		s := " IS "
		if not {
			s = " IS NOT "
		}
		return seq(lvCmp, atLeast(l, lvAtom), at(t.Pos, s+strings.ToUpper(w.Val))), false
	case p.Accept("unknown"):
		return ext(t.Pos, either(not, pgext.MarkIsNotUnknown, pgext.MarkIsUnknown), l), false
	case p.Commit(1, "distinct", "from"):
		return ext(t.Pos, either(not, pgext.MarkIsNotDistinct, pgext.MarkIsDistinct), l, p.exprX(pIs+1, b)), true
	case p.Is("document"):
		p.Unsupported("IS DOCUMENT", "XML is not available; use jsonb.")
	case p.Is("normalized") || p.Any("nfc", "nfd", "nfkc", "nfkd") && p.Peek(1).Is("normalized"):
		args := []*frag{l}
		if w.Val != "normalized" {
			args = append(args, str(strings.ToUpper(p.Next().Val)))
		}
		p.Expect("normalized")
		f := catalogCall(t.Pos, "is_normalized", args...)
		if not {
			f = seq(lvNot, at(t.Pos, "NOT "), f)
		}
		return f, false
	}
	p.Syntax()
	return nil, false
}

func either(cond bool, yes, no string) string {
	if cond {
		return yes
	}
	return no
}

// quantified parses op ANY|ALL|SOME (..) behind l; nil with the cursor unmoved when it is something else.
func (p *Parser) quantified(t *lex.Token, l *frag) *frag {
	save := p.I
	var op *frag
	switch {
	case t.K == lex.Op || t.Is("operator"):
		op = p.anyOp()
	default: // [NOT] LIKE | ILIKE
		s := ""
		if p.Accept("not") {
			s = "not "
		}
		op = str(s + p.Next().Val)
	}
	if !(p.Any("any", "some", "all") && p.Peek(1).Is("(")) {
		p.I = save
		return nil
	}
	kind := p.Next().Val
	if kind == "some" {
		kind = "any"
	}
	q, xs := p.parenExpr()
	if q == nil {
		if len(xs) != 1 {
			p.Syntax()
		}
		return ext(t.Pos, kind, op, l, xs[0])
	}
	if t.K == lex.Op && isCmp(t.Val) {
		return seq(lvCmp, atLeast(l, lvAtom), fSpace, at(t.Pos, t.Val), lit(" "+strings.ToUpper(kind)+" "), paren(q.render()))
	}
	return ext(t.Pos, kind+"_subquery", op, l, paren(q.render()))
}

// inTest parses the operators of IN's level: IN, BETWEEN, LIKE, SIMILAR, OVERLAPS.
func (p *Parser) inTest(l *frag, b bool) (out *frag, operand bool) {
	t := p.Cur()
	if w := p.Peek(boolInt(t.Val == "not")); w.Val == "like" || w.Val == "ilike" {
		if f := p.quantified(t, l); f != nil {
			return f, false
		}
	}
	not := p.Accept("not")
	word := either(not, "NOT ", "")
	w := p.Next()
	switch w.Val {
	case "overlaps":
		return p.overlaps(t, l, p.exprX(pIn+1, b)), true
	case "in":
		if !p.Is("(") {
			p.Syntax()
		}
		q, xs := p.parenExpr()
		r := commaSeparated(xs)
		if q != nil {
			r = q.render()
		}
		return seq(lvCmp, atLeast(l, lvAtom), at(t.Pos, " "+word+"IN "), paren(r)), false
	case "between":
		sym := p.Accept("symmetric")
		if !sym {
			p.Accept("asymmetric")
		}
		lo := p.exprX(pIn+1, true)
		p.Expect("and")
		hi := p.exprX(pIn+1, b)
		if sym {
			return ext(t.Pos, either(not, pgext.MarkNotBetweenSymmetric, pgext.MarkBetweenSymmetric), l, lo, hi), true
		}
		return seq(lvCmp, atLeast(l, lvAtom), at(t.Pos, " "+word+"BETWEEN "), atLeast(lo, lvAtom), lit(" AND "), atLeast(hi, lvAtom)), true
	case "similar":
		p.Expect("to")
		args := []*frag{p.exprX(pIn+1, b)}
		if p.Accept("escape") {
			args = append(args, p.exprX(pIn+1, b))
		}
		return ext(t.Pos, pgext.MarkOp, str(either(not, "!~", "~")), l, catalogCall(w.Pos, "similar_to_escape", args...)), true
	}
	// like, ilike
	pat := p.exprX(pIn+1, b)
	if e := p.Cur(); p.Accept("escape") {
		pat = catalogCall(e.Pos, "like_escape", pat, p.exprX(pIn+1, b))
	}
	return seq(lvCmp, atLeast(l, lvAtom), at(t.Pos, " "+word+strings.ToUpper(w.Val)+" "), atLeast(pat, lvAtom)), true
}

func boolInt(b bool) int {
	if b {
		return 1
	}
	return 0
}

// overlaps makes the function call of (a, b) OVERLAPS (c, d).
func (p *Parser) overlaps(t *lex.Token, l, r *frag) *frag {
	for i, f := range []*frag{l, r} {
		if len(f.row) != 2 {
			if f.row == nil {
				lex.Fail(pgerr.SyntaxError, t.Pos, "syntax error at or near \"%s\"", p.Src[t.Pos:t.End])
			}
			lex.Fail(pgerr.SyntaxError, f.first(), "wrong number of parameters on %s side of OVERLAPS expression", [2]string{"left", "right"}[i])
		}
	}
	return catalogCall(t.Pos, "overlaps", l.row[0], l.row[1], r.row[0], r.row[1])
}
