package server

import (
	"context"
	"math"

	"github.com/streamdb/streamdb/internal/pgerr"
	"github.com/streamdb/streamdb/types"
)

// maxKeptBytes is how much of its rows a cursor that was declared without SCROLL and without NO SCROLL keeps to move backward. One with more
// rows behind it moves forward only.
const maxKeptBytes = 1 << 20

// cursor is a position in a result: 0 before the first row, n+1 after the last of n. It serves portals, whose client fetches pages, and SQL
// cursors alike.
type cursor struct {
	src     *stream
	keep    *spool // the rows read, nil: not kept
	few     bool   // rows are kept only while they are few
	forward bool   // moves forward only
	pos     int64
	next    int64 // number of the first row not read from src
	ended   bool  // src has no more rows

	chunk *types.Chunk // a chunk read, from row first on
	first int64
}

// allRows is a number of rows that no result has.
const allRows = math.MaxInt64 >> 1

func newCursor(src *stream) *cursor { return &cursor{src: src, next: 1, forward: true} }

// seek brings in the chunk that holds a row; false: there is no such row.
func (c *cursor) seek(ctx context.Context, row int64) (bool, error) {
	if row < 1 {
		return false, nil
	}
	for !c.holds(row) {
		if row < c.next {
			if c.keep == nil {
				return false, errForwardOnly()
			}
			var err error
			if c.chunk, c.first, err = c.keep.read(row); err != nil {
				return false, err
			}
			continue
		}
		if c.ended {
			return false, nil
		}
		ch, err := c.src.next(ctx)
		if err != nil {
			return false, err
		}
		if ch == nil {
			c.ended = true
			return false, nil
		}
		if c.keep != nil {
			if err := c.keep.add(c.next, ch); err != nil {
				return false, err
			}
			if c.few && c.keep.bytes > maxKeptBytes {
				c.keep.close()
				c.keep, c.forward = nil, true
			}
		}
		c.chunk, c.first = ch, c.next
		c.next += int64(ch.N)
	}
	return true, nil
}

func (c *cursor) holds(row int64) bool {
	return c.chunk != nil && row >= c.first && row < c.first+int64(c.chunk.N)
}

// after is the position after the last row, once that is known.
func (c *cursor) after() int64 { return c.next }

func (c *cursor) onRow() bool { return c.pos > 0 && !(c.ended && c.pos >= c.after()) }

func errForwardOnly() error {
	return pgerr.Newf(pgerr.ObjectNotInPrerequisiteState, "cursor can only scan forward").
		WithHint("Declare it with SCROLL option to enable backward scan.")
}

// forwardRows fetches up to n rows after the position; emit may be nil.
func (c *cursor) forwardRows(ctx context.Context, n int64, emit func(*types.Chunk) error) (int64, error) {
	done := int64(0)
	for done < n {
		ok, err := c.seek(ctx, c.pos+1)
		if err != nil {
			return done, err
		}
		if !ok {
			c.pos = c.after()
			return done, nil
		}
		from := int(c.pos + 1 - c.first)
		k := int(min(n-done, int64(c.chunk.N-from)))
		if emit != nil {
			part := *c.chunk
			part.Sel = make([]uint16, k)
			for i := range k {
				part.Sel[i] = uint16(from + i)
			}
			if err := emit(&part); err != nil {
				return done, err
			}
		}
		c.pos += int64(k)
		done += int64(k)
	}
	return done, nil
}

// backwardRows fetches up to n rows before the position, the last first.
func (c *cursor) backwardRows(ctx context.Context, n int64, emit func(*types.Chunk) error) (int64, error) {
	if n == 0 || c.pos == 0 {
		return 0, nil
	}
	if c.forward {
		return 0, errForwardOnly()
	}
	done := int64(0)
	for done < n {
		ok, err := c.seek(ctx, c.pos-1)
		if err != nil {
			return done, err
		}
		if !ok {
			c.pos = 0
			return done, nil
		}
		from := int(c.pos - 1 - c.first)
		k := int(min(n-done, int64(from+1)))
		if emit != nil {
			idx := make([]uint16, k)
			for i := range k {
				idx[i] = uint16(from - i)
			}
			part := &types.Chunk{N: k, Cols: make([]*types.Vector, len(c.chunk.Cols))}
			for i, v := range c.chunk.Cols {
				part.Cols[i] = &types.Vector{Type: v.Type}
				part.Cols[i].AppendGather(v, idx)
			}
			if err := emit(part); err != nil {
				return done, err
			}
		}
		c.pos -= int64(k)
		done += int64(k)
	}
	return done, nil
}

// move goes forward or backward by n rows.
func (c *cursor) move(ctx context.Context, n int64, emit func(*types.Chunk) error) (int64, error) {
	switch {
	case n > 0:
		return c.forwardRows(ctx, n, emit)
	case n < 0:
		return c.backwardRows(ctx, -n, emit)
	case !c.onRow():
		return 0, nil
	case emit == nil:
		return 1, nil
	case c.forward:
		return 0, errForwardOnly()
	}
	// The present row once more.
	c.pos--
	return c.forwardRows(ctx, 1, emit)
}

// absolute goes to row n, from the end when n is negative, and fetches it.
func (c *cursor) absolute(ctx context.Context, n int64, emit func(*types.Chunk) error) (int64, error) {
	if n < 0 {
		if c.forward {
			return 0, errForwardOnly()
		}
		c.pos = max(c.pos, c.next-1)
		if _, err := c.forwardRows(ctx, allRows, nil); err != nil {
			return 0, err
		}
		n = c.after() + n
		if n < 1 {
			c.pos = 0
			return 0, nil
		}
	}
	if n <= c.pos {
		if c.forward && c.pos > 0 {
			return 0, errForwardOnly()
		}
		c.pos = max(n-1, 0)
	} else if _, err := c.forwardRows(ctx, n-1-c.pos, nil); err != nil {
		return 0, err
	}
	if n == 0 {
		return 0, nil
	}
	return c.forwardRows(ctx, 1, emit)
}

// relative goes n rows on, or back, and fetches the row there.
func (c *cursor) relative(ctx context.Context, n int64, emit func(*types.Chunk) error) (int64, error) {
	switch {
	case n > 0:
		if _, err := c.forwardRows(ctx, n-1, nil); err != nil {
			return 0, err
		}
		return c.forwardRows(ctx, 1, emit)
	case n < 0:
		if _, err := c.backwardRows(ctx, -n-1, nil); err != nil {
			return 0, err
		}
		return c.backwardRows(ctx, 1, emit)
	}
	return c.move(ctx, 0, emit)
}

// readAll reads what is left of the source into the spool, so that the cursor needs its transaction no more.
func (c *cursor) readAll(ctx context.Context) error {
	chunk, first := c.chunk, c.first
	for !c.ended {
		if _, err := c.seek(ctx, c.next); err != nil {
			return err
		}
	}
	c.chunk, c.first = chunk, first
	return nil
}

func (c *cursor) close() {
	c.src.close()
	if c.keep != nil {
		c.keep.close()
	}
}
