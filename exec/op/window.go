package op

import (
	"math"

	"github.com/streamdb/streamdb/internal/pgerr"
	"github.com/streamdb/streamdb/types"
)

const (
	microsPerDay = 24 * 60 * 60 * 1000 * 1000
	// unixEpochMicros is 1970-01-01, the origin windows are aligned to, in µs since 2000-01-01.
	unixEpochMicros = -946684800 * 1000 * 1000
	// Timestamps of PostgreSQL: 4713 BC to 294276 AD. Values outside are ±infinity and belong to no window.
	minTimestamp = -211813488000000000
	maxTimestamp = 9223371331200000000
)

// windowOp appends window_start and window_end. A hopping window emits the input's vectors once per window that a row belongs to, so that no
// column is copied: only the two new ones differ.
type windowOp struct {
	base
	slide, size, offset int64
	date                bool
	start, end          *types.Vector
	cols                []*types.Vector
	sel                 []uint16
	out                 types.Chunk
	newest              int64 // start of a window that timestamps fell into lately: the next ones mostly do too
}

var _ Operator = (*windowOp)(nil)

func (o *windowOp) Open(ctx *Context) error {
	o.ctx = ctx
	w := o.node.Window
	o.size, o.slide, o.offset = w.Size, w.Slide, w.Offset
	if o.slide == 0 {
		o.slide = o.size
	}
	if o.size <= 0 || o.slide <= 0 || o.size%o.slide != 0 {
		return pgerr.Newf(pgerr.InvalidParameterValue, "window size %d must be a positive multiple of the slide %d", o.size, o.slide)
	}
	n := len(o.node.Schema)
	o.start = &types.Vector{Type: o.node.Schema[n-2].Type}
	o.end = &types.Vector{Type: o.node.Schema[n-1].Type}
	o.date = ctx.InputTypes[0][w.Column].OID == types.OIDDate
	o.cols = make([]*types.Vector, n)
	o.cols[n-2], o.cols[n-1] = o.start, o.end
	o.newest = o.floor(0)
	return nil
}

// floor returns the start of the newest window that holds ts.
func (o *windowOp) floor(ts int64) int64 {
	d := ts - unixEpochMicros - o.offset
	m := d % o.slide
	if m < 0 {
		m += o.slide
	}
	return ts - m
}

func (o *windowOp) Process(_ int, c *types.Chunk, out Emitter) error {
	n := c.Rows()
	if n == 0 {
		return nil
	}
	ts := c.Cols[o.node.Window.Column]
	o.start.Resize(c.N)
	o.end.Resize(c.N)
	copy(o.cols, c.Cols)
	if c.Sel == nil && ts.Valid == nil && !o.date && o.assignDense(ts.Int[:n]) {
		o.out = types.Chunk{Cols: o.cols, N: n, Weights: c.Weights}
		return o.emitAll(nil, out)
	}
	start, end := o.start.Int, o.end.Int
	if cap(o.sel) < n {
		o.sel = make([]uint16, 0, max(n, types.MaxChunkRows))
	}
	sel := o.sel[:0]
	back := o.size - o.slide
	for i := range n {
		r := c.Row(i)
		if ts.IsNull(r) {
			continue
		}
		x := ts.Int[r]
		if o.date && (x > maxTimestamp/microsPerDay || x < minTimestamp/microsPerDay) {
			x = math.MaxInt64
		} else if o.date {
			x *= microsPerDay
		}
		if x < minTimestamp+o.size || x > maxTimestamp-o.size {
			err := pgerr.Newf(pgerr.DatetimeFieldOverflow, "timestamp out of range")
			if err := o.ctx.Errors.Report(o.node, err, c, r, c.Weight(r)); err != nil {
				return err
			}
			continue
		}
		s := o.floor(x) - back
		start[r], end[r] = s, s+o.size
		sel = append(sel, uint16(r))
	}
	o.sel = sel
	if len(sel) == 0 {
		return nil
	}
	o.out = types.Chunk{Cols: o.cols, N: c.N, Weights: c.Weights}
	if len(sel) < c.N {
		o.out.Sel = sel
	}
	return o.emitAll(o.out.Sel, out)
}

// hugeWindow is the size in µs (about 9000 years) from which sums of sizes and timestamps could overflow.
const hugeWindow = 1 << 58

// assignDense finds the oldest window of each timestamp. It gives up when one may be out of range.
func (o *windowOp) assignDense(ts []int64) bool {
	if o.size > hugeWindow {
		return false
	}
	start, end := o.start.Int[:len(ts)], o.end.Int[:len(ts)]
	lo, slide, size, back := o.newest, o.slide, o.size, o.size-o.slide
	for i, x := range ts {
		if uint64(x-lo) >= uint64(slide) {
			if x < minTimestamp+2*size || x > maxTimestamp-2*size {
				return false
			}
			lo = o.floor(x)
		}
		start[i], end[i] = lo-back, lo-back+size
	}
	o.newest = lo
	return true
}

// emitAll emits the rows once per window they belong to; the columns hold the oldest window of each.
func (o *windowOp) emitAll(sel []uint16, out Emitter) error {
	start, end := o.start.Int, o.end.Int
	for s := o.slide; ; s += o.slide {
		if err := out.Emit(&o.out); err != nil {
			return err
		}
		if s >= o.size {
			return nil
		}
		if sel == nil {
			for i := range start {
				start[i] += o.slide
			}
			for i := range end {
				end[i] += o.slide
			}
			continue
		}
		for _, r := range sel {
			start[r] += o.slide
			end[r] += o.slide
		}
	}
}

func (o *windowOp) Watermark(_ int, w Watermark, out Emitter) error {
	if err := out.EmitWatermark(w); err != nil {
		return err
	}
	if w.Column != o.node.Window.Column {
		return nil
	}
	ts := w.Value
	if o.date {
		if ts > maxTimestamp/microsPerDay || ts < minTimestamp/microsPerDay {
			return nil
		}
		ts *= microsPerDay
	}
	s := int64(math.MaxInt64) - o.size
	if ts <= maxTimestamp-o.size {
		if ts < minTimestamp+o.size {
			return nil
		}
		s = o.floor(ts) - (o.size - o.slide)
	}
	n := len(o.node.Schema)
	if err := out.EmitWatermark(Watermark{Column: n - 2, Value: s}); err != nil {
		return err
	}
	return out.EmitWatermark(Watermark{Column: n - 1, Value: s + o.size})
}
