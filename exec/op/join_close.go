package op

import (
	"github.com/streamdb/streamdb/types"
)

// joinClosing makes a join forget the keys whose window has closed (plan.Join.CloseKey). Rows of a key are kept until the smaller one of
// both sides' watermarks has passed it; what is to be padded then is padded once and for all. Keys are listed by window, so that closing one
// costs what it holds. Such joins keep all open windows in memory whatever the budget says, as aggregations of that kind do.
//
// State: table 2, the watermark (see markTable).
type joinClosing struct {
	o       *joinOp
	on      bool
	key     int
	pads    [2]bool // rows of the side that found no partner are output when their window closes
	marks   [2]portMark
	mark    int64 // keys below it are closed or about to be
	marked  bool
	due     bool
	table   markTable
	windows openWindows // a key that was dropped since has lost keyOpen or belongs to another one
	sel     []uint16
	rest    types.Chunk
}

func (j *joinClosing) init(o *joinOp) {
	j.o = o
	k := o.node.Join.CloseKey
	if k == nil || o.ctx.OneShot {
		return
	}
	j.on, j.key = true, *k
	j.windows.init()
	for side := range o.shows {
		if o.shows[side] == showUnmatched {
			j.pads[side], o.shows[side] = true, showNever
		}
	}
}

func (j *joinClosing) open(ctx *Context) error {
	if !j.on {
		return nil
	}
	return j.table.open(ctx, j.o.node, 2, func(m int64) {
		if !j.marked || m > j.mark {
			j.mark = m
		}
		j.marked, j.due = true, true
	})
}

func (j *joinClosing) save() error {
	if !j.on {
		return nil
	}
	return j.table.save(j.mark)
}

// list notes a new group in its window.
func (j *joinClosing) list(g uint32, window int64) {
	j.windows.list(window, g)
	words := j.o.st.groups.row(g)
	words[joinClose] = uint64(window)
	words[joinFlags] |= keyOpen
}

func (j *joinClosing) watermark(port int, w Watermark) {
	if !j.on || j.o.keys[port][j.key] != w.Column {
		return
	}
	j.marks[port].raise(w.Value)
	if !j.marks[1-port].seen {
		return
	}
	if low := min(j.marks[0].value, j.marks[1].value); !j.marked || low > j.mark {
		j.mark, j.marked, j.due, j.table.changed = low, true, true, true
	}
}

// dropLate diverts rows of windows that have closed.
func (j *joinClosing) dropLate(port int, c *types.Chunk) (*types.Chunk, error) {
	return divertLate(&j.o.base, c, c.Cols[j.o.keys[port][j.key]], j.mark, true, &j.sel, &j.rest)
}

// close pads and drops the keys of the windows that the watermarks have passed since the last barrier.
func (j *joinClosing) close(out Emitter) error {
	if !j.due {
		return nil
	}
	j.due = false
	return j.windows.close(j.mark, func(at int64, groups []uint32) error {
		for i, g := range groups {
			if i%cancelPollRows == cancelPollRows-1 {
				if err := j.o.cancelled(); err != nil {
					return err
				}
			}
			words := j.o.st.groups.row(g)
			if words[joinFlags]&keyOpen == 0 || int64(words[joinClose]) != at {
				continue
			}
			if err := j.closeKey(g, words, out); err != nil {
				return err
			}
		}
		return nil
	})
}

func (j *joinClosing) closeKey(g uint32, words []uint64, out Emitter) error {
	st := &j.o.st
	for side := range 2 {
		if j.o.rng != nil {
			j.o.rng.forget(g, side)
		}
		all := j.pads[side] && j.o.residual == nil && int64(words[joinCount+1-side]) <= 0
		for n := half(words[joinHeads], side); n != 0; {
			r := st.row(n - 1)
			if r.count != 0 && (all || j.pads[side] && j.o.residual != nil && r.match <= 0) {
				if err := j.o.padRow(side, r, r.count, out); err != nil {
					return err
				}
			}
			next := r.next
			if err := st.forget(n-1, r, words); err != nil {
				return err
			}
			n = next
		}
	}
	st.groups.drop(g)
	return nil
}

// trimUnsaved takes rows that are gone out of the list for the next checkpoint, when they are many: most rows may come and go without one.
func (s *joinState) trimUnsaved() {
	if len(s.unsaved) < loadBatch || len(s.unsaved) < 2*s.slab.live() {
		return
	}
	kept := s.unsaved[:0]
	for _, i := range s.unsaved {
		if r := s.row(i); r.flags&rowUnsaved != 0 {
			r.flags &^= rowUnsaved // a number that was reused is listed twice
			kept = append(kept, i)
		}
	}
	for _, i := range kept {
		s.row(i).flags |= rowUnsaved
	}
	s.unsaved = kept
}
