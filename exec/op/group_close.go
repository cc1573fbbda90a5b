package op

import (
	"slices"

	"github.com/streamdb/streamdb/checkpoint"
	"github.com/streamdb/streamdb/types"
)

// groupClosing makes an operator that works per group hold its groups back until the watermark of a column that it groups by has passed their value. They
// are then emitted once and forgotten; rows that come later are late rows. What is late is decided at barriers: rows that arrive together are taken,
// whatever their order.
//
// State: table 1 (see dueQueue) has the groups by the value of the column, table 2 the watermark (see markTable).
type groupClosing struct {
	b      *base
	on     bool
	column int
	queue  dueQueue
	marks  markTable
	mark   int64 // groups below are closed
	marked bool
	next   int64 // the watermark since the last barrier
	due    bool
	sel    []uint16
	rest   types.Chunk
}

// open prepares for closing by an input column; nil: groups do not close.
func (g *groupClosing) open(b *base, column *int) error {
	g.b = b
	if column == nil || b.ctx.OneShot {
		return nil
	}
	g.on, g.column = true, *column
	if err := g.queue.open(b.ctx, b.node, 1); err != nil {
		return err
	}
	return g.marks.open(b.ctx, b.node, 2, func(m int64) {
		if !g.marked || m > g.mark {
			g.mark = m
		}
		g.marked = true
	})
}

func (g *groupClosing) watermark(w Watermark) {
	if !g.on || w.Column != g.column || g.marked && w.Value <= g.mark || g.due && w.Value <= g.next {
		return
	}
	g.next, g.due = w.Value, true
}

// dropLate diverts rows of groups that have closed.
func (g *groupClosing) dropLate(c *types.Chunk) (*types.Chunk, error) {
	if !g.on || !g.marked {
		return c, nil
	}
	return divertLate(g.b, c, c.Cols[g.column], g.mark, true, &g.sel, &g.rest)
}

// list notes the group that row r belongs to; group is its part of the state key.
func (g *groupClosing) list(kg uint16, group []byte, c *types.Chunk, r int) error {
	if col := c.Cols[g.column]; !col.IsNull(r) {
		return g.queue.put(kg, col.Int[r], group, nil)
	}
	return nil // never closes
}

// barrier calls emit for the groups that have closed and deletes their rows.
func (g *groupClosing) barrier(b checkpoint.Barrier, rows *sortedRows, emit func(kg uint16, group []byte) error) error {
	if g.due {
		g.mark, g.marked, g.due, g.marks.changed = g.next, true, false, true
		err := g.queue.take(g.mark-1, func(kg uint16, _ int64, group, _ []byte) error {
			if err := emit(kg, group); err != nil {
				return err
			}
			if err := g.b.cancelled(); err != nil {
				return err
			}
			return rows.forget(kg, group)
		})
		if err != nil {
			return err
		}
	}
	if !g.on || b.Checkpoint == 0 {
		return nil
	}
	return g.marks.save(g.mark)
}

// forget deletes the rows of a group.
func (s *sortedRows) forget(kg uint16, group []byte) error {
	var keys [][]byte
	err := s.table.scan(kg, group, false, func(k, _ []byte) (bool, error) {
		keys = append(keys, slices.Clone(k))
		return true, nil
	})
	if err != nil {
		return err
	}
	for _, k := range keys {
		if err := s.table.del(kg, k); err != nil {
			return err
		}
	}
	return nil
}
