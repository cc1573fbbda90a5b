package server

import (
	"slices"

	"github.com/streamdb/streamdb/catalog"
)

// termsOf are the terms under which the rows that a transaction has made of a table are to be taken: those that they were made under, and after
// its own changes of the table, which looked at its rows too, the table's newest.
func (t *txn) termsOf(w *tableWrites) uint64 {
	if w.made == nil {
		return 0
	}
	terms := w.made.Terms
	if t.schema == nil {
		return terms
	}
	was, ok := t.schema.private.Base().Get(w.made.ID)
	if ok && terms < was.Terms {
		return terms
	}
	if now, ok := t.schema.private.Snapshot().Get(w.made.ID); ok {
		return now.Terms
	}
	return terms
}

// asksMore reports whether rows made for a table as it was can violate what is asked of them now.
func asksMore(was, now *catalog.Object) bool {
	for i := range now.Columns {
		c := &now.Columns[i]
		switch {
		case i >= len(was.Columns):
			if c.NotNull && c.Default == "" || c.Generated != "" {
				return true
			}
		case c.NotNull && !was.Columns[i].NotNull:
			return true
		}
	}
	return slices.ContainsFunc(now.Checks, func(c catalog.Check) bool {
		return !slices.ContainsFunc(was.Checks, func(k catalog.Check) bool { return k.Name == c.Name || k.Text == c.Text })
	})
}
