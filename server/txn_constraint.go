package server

import (
	"slices"

	"github.com/streamdb/streamdb/catalog"
	"github.com/streamdb/streamdb/internal/pgerr"
)

// constraintsHold fails when a table that the block has written to asks more of its rows by now than when the first of them was made:
// whoever added the constraint has not seen them.
func (ss *session) constraintsHold() error {
	if !ss.tx.explicit {
		return nil
	}
	snap := ss.srv.catalog.Snapshot()
	for _, id := range ss.tx.order {
		w := ss.tx.writes[id]
		now, ok := snap.Get(id)
		if ok && w.made != nil && w.changes.Len() > 0 && asksMore(w.made, now) {
			e := pgerr.Newf(pgerr.SerializationFailure, "could not serialize access due to a concurrent change of table %q", now.Name)
			e.Schema, e.Table = now.Schema, now.Name
			return e
		}
	}
	return nil
}

// asksMore reports whether rows made for a table as it was can violate what is asked of them now.
func asksMore(was, now *catalog.Object) bool {
	if was == now {
		return false
	}
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
