package op

import (
	"github.com/streamdb/streamdb/checkpoint"
	"github.com/streamdb/streamdb/types"
)

// closeMark is the watermark of a column that an operator groups by and emits closed groups of. Rows of groups that have closed are late rows. What is late is decided at
// barriers: rows that arrive together are taken, whatever their order.
//
// State: table 2 has the watermark (see markTable).
type closeMark struct {
	b      *base
	on     bool
	column int
	marks  markTable
	mark   int64 // groups below are closed
	marked bool
	next   int64 // the watermark since the last barrier
	due    bool
	sel    []uint16
	rest   types.Chunk
}

// open prepares for closing by an input column; nil: groups do not close.
func (g *closeMark) open(b *base, column *int) error {
	g.b = b
	if column == nil || b.ctx.OneShot {
		return nil
	}
	g.on, g.column = true, *column
	return g.marks.open(b.ctx, b.node, 2, func(m int64) {
		if !g.marked || m > g.mark {
			g.mark = m
		}
		g.marked = true
	})
}

func (g *closeMark) watermark(w Watermark) {
	if !g.on || w.Column != g.column || g.marked && w.Value <= g.mark || g.due && w.Value <= g.next {
		return
	}
	g.next, g.due = w.Value, true
}

// dropLate diverts rows of groups that have closed.
func (g *closeMark) dropLate(c *types.Chunk) (*types.Chunk, error) {
	if !g.on || !g.marked {
		return c, nil
	}
	return divertLate(g.b, c, c.Cols[g.column], g.mark, true, &g.sel, &g.rest)
}

// advance reports whether groups may have closed since the last barrier.
func (g *closeMark) advance() bool {
	if !g.due {
		return false
	}
	g.mark, g.marked, g.due, g.marks.changed = g.next, true, false, true
	return true
}

// save is for barriers of checkpoints.
func (g *closeMark) save() error {
	if !g.on {
		return nil
	}
	return g.marks.save(g.mark)
}

// groupClosing makes an operator that keeps its rows in state hold its groups back until the watermark of a column that it groups by has passed their value. They
// are then emitted once and forgotten.
//
// State besides that of closeMark: table 1 (see dueQueue) has the groups by the value of the column.
type groupClosing struct {
	closeMark
	queue dueQueue
}

// open prepares for closing by an input column; nil: groups do not close.
func (g *groupClosing) open(b *base, column *int) error {
	if err := g.closeMark.open(b, column); err != nil || !g.on {
		return err
	}
	return g.queue.open(b.ctx, b.node, 1)
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
	if g.advance() {
		err := g.queue.take(g.mark-1, func(kg uint16, _ int64, group, _ []byte) error {
			if err := emit(kg, group); err != nil {
				return err
			}
			if err := g.b.cancelled(); err != nil {
				return err
			}
			return rows.table.clear(kg, group)
		})
		if err != nil {
			return err
		}
	}
	if b.Checkpoint == 0 {
		return nil
	}
	return g.save()
}
