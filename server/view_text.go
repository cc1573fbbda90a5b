package server

import (
	"maps"
	"slices"
	"strings"

	"github.com/streamdb/streamdb/catalog"
	"github.com/streamdb/streamdb/planner"
	"github.com/streamdb/streamdb/sql"
)

// keepText gives a view that is being made its stored query: what the user wrote with every `*` written out, and with its columns' names as
// aliases. So columns that are added later do not widen the view, and its text alone makes it again.
func (d *dispatch) keepText(snap *catalog.Snapshot, o *catalog.Object, q *sql.Query, stars map[int][]planner.StarColumn) {
	text := d.sameMeaning(snap, o, o.Query, starsIn(q.SourceText(), q.Start, stars))
	o.Query = d.namedText(snap, o, text)
}

// namedText is a view's query with the view's own names of its columns.
func (d *dispatch) namedText(snap *catalog.Snapshot, v *catalog.Object, text string) string {
	stmts, err := sql.Parse(text)
	if err != nil || len(stmts) != 1 {
		return text
	}
	q, ok := stmts[0].(*sql.Query)
	if !ok {
		return text
	}
	named, ok := q.Named(visibleNames(v))
	if !ok {
		return text
	}
	return d.sameMeaning(snap, v, text, strings.TrimSpace(named))
}

// sameMeaning is next where that means the same as text, else text.
func (d *dispatch) sameMeaning(snap *catalog.Snapshot, v *catalog.Object, text, next string) string {
	if next = strings.TrimSpace(next); next == text {
		return text
	}
	was, err := d.meaning(snap, v, text)
	if err != nil {
		return text
	}
	if is, err := d.meaning(snap, v, next); err != nil || is != was {
		return text
	}
	return next
}

// starsIn writes every `*` of a query's text out; start is where the text begins in its message.
func starsIn(text string, start int, stars map[int][]planner.StarColumn) string {
	for _, pos := range slices.Backward(slices.Sorted(maps.Keys(stars))) {
		at := pos - start
		end, ok := sql.StarEnd(text, at)
		if !ok {
			continue
		}
		var cols []string
		for _, c := range stars[pos] {
			name := sql.QuoteIdent(c.Name)
			if c.Table != "" {
				name = sql.QuoteIdent(c.Table) + "." + name
			}
			if c.Schema != "" {
				name = sql.QuoteIdent(c.Schema) + "." + name
			}
			cols = append(cols, name)
		}
		if len(cols) > 0 {
			text = text[:at] + strings.Join(cols, ", ") + text[end:]
		}
	}
	return text
}

func visibleNames(o *catalog.Object) []string {
	var names []string
	for _, c := range o.Columns {
		if !c.Hidden {
			names = append(names, c.Name)
		}
	}
	return names
}
