package sql

import (
	"strings"

	"github.com/streamdb/streamdb/sql/internal/lex"
	"github.com/streamdb/streamdb/sql/pgext"
)

// StarEnd returns the end of the `*` or `t.*` that begins at pos.
func StarEnd(text string, pos int) (end int, ok bool) {
	toks, err := lex.Lex(text)
	if err != nil {
		return 0, false
	}
	for i := range toks {
		if toks[i].Pos != pos {
			continue
		}
		for ; i < len(toks) && (toks[i].IsName("UCTR") || toks[i].Is(".")); i++ {
		}
		if i < len(toks) && toks[i].Is("*") {
			return toks[i].End, true
		}
		return 0, false
	}
	return 0, false
}

// Named returns the text of the query with aliases in its select list, so that its columns have the given names. ok is false where it is
// no SELECT, or has a `*`.
func (q *Query) Named(names []string) (text string, ok bool) {
	text = q.SourceText()
	v := pgext.QueryOf(q.Stmt)
	for v.SetOp != nil {
		v = v.SetOp.Left
	}
	if v.Select == nil || len(v.Select.Targets) != len(names) {
		return text, false
	}
	items := selectItems(text)
	if len(items) != len(names) {
		return text, false
	}
	var b strings.Builder
	at := 0
	for i, t := range v.Select.Targets {
		if t.Star {
			return text, false
		}
		has := t.Alias
		if has == "" {
			has = ColumnName(t.X)
		}
		if has == names[i] {
			continue
		}
		end := items[i].end
		if t.Alias != "" {
			end = items[i].alias
		}
		b.WriteString(text[at:end])
		b.WriteString(" AS " + lex.QuoteIdent(names[i]))
		at = items[i].end
	}
	return b.String() + text[at:], true
}

// selectItem is a place in a select list: its end, and the end of what is in front of its alias.
type selectItem struct{ end, alias int }

// selectItems finds the items of the select list that names the columns of a query: that of its first SELECT outside of WITH.
func selectItems(text string) []selectItem {
	toks, err := lex.Lex(text)
	if err != nil {
		return nil
	}
	base, i := 0, 0
	for ; i < len(toks) && toks[i].Is("("); i++ {
		base++
	}
	depth := base
	for ; i < len(toks) && !(depth == base && toks[i].Is("select")); i++ {
		depth += nesting(&toks[i])
	}
	i++
	switch {
	case i >= len(toks):
		return nil
	case toks[i].Is("all"):
		i++
	case toks[i].Is("distinct"):
		if i++; i+1 < len(toks) && toks[i].Is("on") && toks[i+1].Is("(") {
			d := 0
			for i++; i < len(toks); i++ {
				if d += nesting(&toks[i]); d == 0 {
					break
				}
			}
			i++
		}
	}
	var out []selectItem
	start := i
	item := func(end int) { // of the tokens [start, end)
		if end <= start {
			return
		}
		it := selectItem{end: toks[end-1].End}
		if last := end - 2; last >= start {
			if toks[last].Is("as") && last > start {
				last--
			}
			it.alias = toks[last].End
		}
		out = append(out, it)
	}
	for depth = 0; i < len(toks); i++ {
		t := &toks[i]
		switch {
		case depth > 0:
		case t.Is(","):
			item(i)
			start = i + 1
			continue
		case t.Is(")") || t.K == lex.EOF || endsSelectList(t) && !(t.Is("from") && i > start && toks[i-1].Is("distinct")):
			item(i)
			return out
		}
		depth += nesting(t)
	}
	item(len(toks))
	return out
}

func nesting(t *lex.Token) int {
	switch {
	case t.Is("("), t.Is("["):
		return 1
	case t.Is(")"), t.Is("]"):
		return -1
	}
	return 0
}

func endsSelectList(t *lex.Token) bool {
	for _, w := range [...]string{"from", "where", "group", "having", "window", "union", "except", "intersect", "order", "limit", "offset", "fetch", "for", "into", ";"} {
		if t.Is(w) {
			return true
		}
	}
	return false
}
