package translate

import (
	"sort"
	"strings"

	"github.com/streamdb/streamdb/sql/pgext"
)

// level is how tightly the produced text binds in TiDB's grammar.
type level uint8

const (
	lvOr level = iota + 1
	lvAnd
	lvNot
	lvCmp  // comparison, IS, LIKE, IN, BETWEEN
	lvBit  // arithmetic
	lvAtom // SimpleExpr
)

// frag is a rope of translated text; pos is the source offset of s, -1 when it has none.
type frag struct {
	s    string
	pos  int
	kids []*frag
	lv   level
	// join marks a joined table, which alone may stand in parentheses in FROM; row holds the elements of a row constructor.
	join bool
	row  []*frag
}

func lit(s string) *frag                { return &frag{s: s, pos: -1, lv: lvAtom} }
func at(pos int, s string) *frag        { return &frag{s: s, pos: pos, lv: lvAtom} }
func seq(lv level, kids ...*frag) *frag { return &frag{pos: -1, kids: kids, lv: lv} }
func str(s string) *frag                { return lit(quoteString(s)) }
func strAt(pos int, s string) *frag     { return at(pos, quoteString(s)) }
func paren(f *frag) *frag               { return seq(lvAtom, fOpen, f, fClose) }
func quoteString(s string) string       { return "'" + strings.ReplaceAll(s, "'", "''") + "'" }
func quoteIdent(s string) string        { return `"` + strings.ReplaceAll(s, `"`, `""`) + `"` }
func commaSeparated(xs []*frag) *frag   { return seq(0, list(xs)...) }

// The punctuation fragments are shared; rendering only reads them.
var (
	fComma = lit(", ")
	fOpen  = lit("(")
	fClose = lit(")")
	fSpace = lit(" ")
)

func list(xs []*frag) []*frag {
	out := make([]*frag, 0, 2*len(xs))
	for i, x := range xs {
		if i > 0 {
			out = append(out, fComma)
		}
		out = append(out, x)
	}
	return out
}

// ext builds the marker call pg_ext."name"(args), reported at source offset pos.
func ext(pos int, name string, args ...*frag) *frag {
	return callText(pos, pgext.Schema, name, args)
}

// catalogCall builds a call of a function of pg_catalog, which is what gram.y makes of special syntax.
func catalogCall(pos int, name string, args ...*frag) *frag {
	return callText(pos, `"pg_catalog"`, name, args)
}

func callText(pos int, schema, name string, args []*frag) *frag {
	k := make([]*frag, 0, 2*len(args)+2)
	k = append(k, at(pos, schema+`."`+name+`"(`))
	k = append(k, list(args)...)
	return seq(lvAtom, append(k, fClose)...)
}

// atLeast wraps f in parentheses unless it binds at least as tightly as lv.
func atLeast(f *frag, lv level) *frag {
	if f.lv >= lv {
		return f
	}
	return paren(f)
}

func infix(pos int, op string, l, r *frag, lv level) *frag {
	ll, rl := lvAtom, lvAtom
	if lv == lvAnd || lv == lvOr {
		ll, rl = lv, lv+1
	}
	return seq(lv, atLeast(l, ll), fSpace, at(pos, op), fSpace, atLeast(r, rl))
}

// SourceMap maps offsets of translated text to offsets of the message, in ascending order of Out.
type SourceMap []struct{ Out, Src int }

// Find returns the source offset of the last mapped token at or before out, -1 before the first.
func (m SourceMap) Find(out int) int {
	i := sort.Search(len(m), func(i int) bool { return m[i].Out > out })
	if i == 0 {
		return -1
	}
	return m[i-1].Src
}

// Exact returns the source offset mapped exactly to out, or -1.
func (m SourceMap) Exact(out int) int {
	i := sort.Search(len(m), func(i int) bool { return m[i].Out >= out })
	if i < len(m) && m[i].Out == out {
		return m[i].Src
	}
	return -1
}

type renderer struct {
	b strings.Builder
	m SourceMap
}

func (r *renderer) add(f *frag) {
	if f.s != "" {
		if f.pos >= 0 {
			r.m = append(r.m, struct{ Out, Src int }{r.b.Len(), f.pos})
		}
		r.b.WriteString(f.s)
	}
	for _, k := range f.kids {
		r.add(k)
	}
}

// first returns the source offset of the first mapped token of f, -1 when it has none.
func (f *frag) first() int {
	if f.s != "" && f.pos >= 0 {
		return f.pos
	}
	for _, k := range f.kids {
		if pos := k.first(); pos >= 0 {
			return pos
		}
	}
	return -1
}
