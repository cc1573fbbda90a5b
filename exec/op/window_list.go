package op

import (
	"math"
	"slices"
)

// openWindows lists the groups of an operator by the window that they are of, until it closes.
type openWindows struct {
	by     map[int64]*openWindow
	last   *openWindow // the one of lastAt
	lastAt int64
	first  int64       // the smallest of by
	spare  *openWindow // closed, to be used again
}

type openWindow struct{ groups []uint32 }

func (w *openWindows) init() { *w = openWindows{by: map[int64]*openWindow{}, first: math.MaxInt64} }

// list notes a new group of the window at.
func (w *openWindows) list(at int64, g uint32) {
	if w.last == nil || w.lastAt != at {
		x := w.by[at]
		if x == nil {
			if x, w.spare = w.spare, nil; x == nil {
				x = &openWindow{}
			}
			w.by[at] = x
			w.first = min(w.first, at)
		}
		w.last, w.lastAt = x, at
	}
	w.last.groups = append(w.last.groups, g)
}

// due reports whether there are windows below mark.
func (w *openWindows) due(mark int64) bool { return len(w.by) > 0 && w.first < mark }

// close calls f for the windows below mark, in order, and forgets them.
func (w *openWindows) close(mark int64, f func(at int64, groups []uint32) error) error {
	var due []int64
	w.first = math.MaxInt64
	for at := range w.by {
		if at < mark {
			due = append(due, at)
		} else {
			w.first = min(w.first, at)
		}
	}
	slices.Sort(due)
	w.last = nil
	for _, at := range due {
		x := w.by[at]
		delete(w.by, at)
		if err := f(at, x.groups); err != nil {
			return err
		}
		x.groups = x.groups[:0]
		w.spare = x
	}
	return nil
}
