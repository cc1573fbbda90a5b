package translate

import (
	"github.com/streamdb/streamdb/sql/pgext"
)

// MergeBody parses MERGE's target, USING and ON behind the words MERGE INTO: the source, each row with the target's rows that it matches.
func (p *Parser) MergeBody(w *With) (Target, *Part) {
	start, k := w.open(p)
	t, rel := p.target2("using")
	p.Expect("using")
	src := p.tablePrimary()
	p.Expect("on")
	cond := p.expr(0)
	join := joined(seq(0, src, lit(" LEFT JOIN "), rel, lit(" ON "), cond))
	k = append(k, lit("SELECT "), ext(-1, pgext.MarkDeleteRow), lit(" FROM "), join)
	return t, p.part(start, seq(0, k...))
}

// MergeValues parses the values of MERGE's INSERT behind "(", as a SELECT list that may hold DEFAULT.
func (p *Parser) MergeValues() *Part {
	start := p.I
	var xs []*frag
	for {
		xs = append(xs, p.value())
		if !p.Accept(",") {
			break
		}
	}
	return p.part(start, seq(0, lit("SELECT "), commaSeparated(xs)))
}
