package translate

import (
	"strings"

	"github.com/streamdb/streamdb/internal/pgerr"
	"github.com/streamdb/streamdb/sql/internal/lex"
	"github.com/streamdb/streamdb/sql/pgext"
)

// windowSpec parses "(" window specification ")".
func (p *Parser) windowSpec() *frag {
	p.Expect("(")
	var k []*frag
	if t := p.Cur(); t.IsName("UC") && !p.Any("partition", "range", "rows", "groups") {
		k = append(k, ident(p.Next()), fSpace)
	}
	var part []*frag
	partPos := len(k)
	if p.Commit(1, "partition", "by") {
		for _, x := range p.exprList() {
			if x.s != "" {
				x = paren(x)
			}
			part = append(part, x)
		}
	}
	if p.Commit(1, "order", "by") {
		k = append(k, lit("ORDER BY "))
		k = append(k, list(p.sortList(false))...)
		k = append(k, fSpace)
	}
	if t := p.Cur(); p.Any("rows", "range", "groups") {
		p.I++
		k = append(k, at(t.Pos, strings.ToUpper(t.Val)+" "), p.frameExtent())
		if t := p.Cur(); p.Accept("exclude") {
			var what string
			switch {
			case p.Commit(1, "current", "row"):
				what = "current row"
			case p.Accept("group"):
				what = "group"
			case p.Accept("ties"):
				what = "ties"
			default:
				p.Expect("no", "others")
			}
			if what != "" {
				part = append(part, ext(t.Pos, pgext.MarkExclude, str(what)))
			}
		}
	}
	p.Expect(")")
	if part != nil {
		pf := append([]*frag{lit("PARTITION BY ")}, list(part)...)
		pf = append(pf, fSpace)
		k = append(k[:partPos:partPos], append(pf, k[partPos:]...)...)
	}
	return paren(seq(0, k...))
}

// bound is a frame bound; kinds are in the order of the bounds.
type bound struct {
	kind pgext.BoundKind
	text *frag
	pos  int
}

// frameExtent parses one bound or BETWEEN two, with gram.y's checks of their order.
func (p *Parser) frameExtent() *frag {
	between := p.Accept("between")
	a := p.frameBound()
	if a.kind == pgext.UnboundedFollowing {
		lex.Fail(pgerr.WindowingError, a.pos, "frame start cannot be UNBOUNDED FOLLOWING")
	}
	if !between {
		if a.kind == pgext.BoundFollowing {
			lex.Fail(pgerr.WindowingError, a.pos, "frame starting from following row cannot end with current row")
		}
		return a.text
	}
	p.Expect("and")
	b := p.frameBound()
	switch {
	case b.kind == pgext.UnboundedPreceding:
		lex.Fail(pgerr.WindowingError, b.pos, "frame end cannot be UNBOUNDED PRECEDING")
	case a.kind == pgext.CurrentRow && b.kind == pgext.BoundPreceding:
		lex.Fail(pgerr.WindowingError, b.pos, "frame starting from current row cannot have preceding rows")
	case a.kind == pgext.BoundFollowing && (b.kind == pgext.BoundPreceding || b.kind == pgext.CurrentRow):
		lex.Fail(pgerr.WindowingError, b.pos, "frame starting from following row cannot have preceding rows")
	}
	return seq(0, lit("BETWEEN "), a.text, lit(" AND "), b.text)
}

// frameBound parses one bound of a frame.
func (p *Parser) frameBound() bound {
	pos := p.Cur().Pos
	switch {
	case p.Accept("unbounded", "preceding"):
		return bound{pgext.UnboundedPreceding, lit("UNBOUNDED PRECEDING"), pos}
	case p.Accept("unbounded", "following"):
		return bound{pgext.UnboundedFollowing, lit("UNBOUNDED FOLLOWING"), pos}
	case p.Accept("current", "row"):
		return bound{pgext.CurrentRow, lit("CURRENT ROW"), pos}
	}
	x := atLeast(p.expr(0), lvAtom)
	if p.Accept("preceding") {
		return bound{pgext.BoundPreceding, seq(0, lit("INTERVAL "), x, lit(" DAY PRECEDING")), pos}
	}
	p.Expect("following")
	return bound{pgext.BoundFollowing, seq(0, lit("INTERVAL "), x, lit(" DAY FOLLOWING")), pos}
}
