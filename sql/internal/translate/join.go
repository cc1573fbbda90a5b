package translate

import (
	"strings"

	"github.com/streamdb/streamdb/sql/pgext"
)

// joinAhead reports whether a join begins at the cursor.
func (p *Parser) joinAhead() bool {
	return p.Any("join", "inner", "left", "right", "full", "cross", "natural") || p.asofAhead()
}

// asofAhead reports whether ASOF stands before a join: it is no keyword, so a relation's alias of that name needs AS there.
func (p *Parser) asofAhead() bool {
	if !p.Is(pgext.MarkAsofJoin) {
		return false
	}
	next := p.Peek(1)
	for _, w := range [...]string{"join", "inner", "left", "right", "full", "cross", "natural"} {
		if next.Is(w) {
			return true
		}
	}
	return false
}

// joins parses the joins behind l.
func (p *Parser) joins(l *frag) *frag {
	for p.joinAhead() {
		l = p.join(l)
	}
	return l
}

// join parses one join behind its left side.
func (p *Parser) join(l *frag) *frag {
	t := p.Cur()
	asof := p.asofAhead()
	if asof {
		if p.I++; p.Any("right", "full", "cross", "natural") {
			p.Unsupported("ASOF "+strings.ToUpper(p.Cur().Val)+" JOIN", "ASOF JOIN and ASOF LEFT JOIN are. If asof is an alias, write AS before it.")
		}
	}
	natural := p.Accept("natural")
	kind := ""
	switch {
	case p.Accept("cross"):
		p.Expect("join")
		return joined(seq(0, l, fSpace, at(t.Pos, "CROSS JOIN "), p.tablePrimary()))
	case p.Accept("left"):
		kind = "LEFT "
		p.Accept("outer")
	case p.Accept("right"):
		kind = "RIGHT "
		p.Accept("outer")
	case p.Accept("full"):
		kind = "FULL "
		p.Accept("outer")
	case p.Accept("inner"):
	}
	p.Expect("join")
	r := p.tablePrimary()
	if natural {
		if kind == "FULL " {
			return joined(seq(0, l, at(t.Pos, " LEFT JOIN "), r, lit(" ON "), ext(t.Pos, pgext.MarkNaturalFullJoin)))
		}
		return joined(seq(0, l, at(t.Pos, " NATURAL "+kind+"JOIN "), r))
	}
	for p.joinAhead() {
		r = p.join(r)
	}
	var qual *frag
	full := kind == "FULL "
	if full {
		kind = "LEFT "
	}
	q := p.Cur()
	switch {
	case p.Accept("on"):
		x := p.expr(0)
		if full {
			x = ext(t.Pos, pgext.MarkFullJoin, x)
		} else if asof {
			x = ext(t.Pos, pgext.MarkAsofJoin, x)
		}
		qual = seq(0, lit(" ON "), x)
	case asof:
		p.Unsupported("ASOF JOIN without ON", "Write for example ON l.key = r.key AND l.time >= r.time.")
	case p.Accept("using"):
		cols := p.nameList()
		var using *frag
		if p.Is("as") {
			p.I++
			using = ident(p.ColID())
		}
		if full || using != nil {
			name := pgext.MarkJoinUsing
			if full {
				name = pgext.MarkFullJoinUsing
			}
			if using == nil {
				using = lit("NULL")
			}
			args := []*frag{using}
			for _, x := range cols.kids[1].kids {
				if x != fComma {
					args = append(args, x)
				}
			}
			qual = seq(0, lit(" ON "), ext(q.Pos, name, args...))
		} else {
			qual = seq(0, lit(" USING "), cols)
		}
	default:
		p.Syntax()
	}
	return joined(seq(0, l, at(t.Pos, " "+kind+"JOIN "), r, qual))
}

// joined puts a join into parentheses, which tell it from a comma, and marks it.
func joined(f *frag) *frag {
	f = paren(f)
	f.join = true
	return f
}
