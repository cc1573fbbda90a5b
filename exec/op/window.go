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

// errTimestampRange is what rows get whose windows would begin or end where no timestamp does.
var errTimestampRange = pgerr.Newf(pgerr.DatetimeFieldOverflow, "timestamp out of range")

// windowOp appends window_start and window_end. Where rows belong to several windows the input's vectors are emitted once per window, so that no
// column is copied: only the two new ones differ.
type windowOp struct {
	base
	slide, size, offset int64
	step                int64 // 0: no cumulating windows
	reach               int64 // what a timestamp must be away from the ends of their range
	calendar            *calendar
	units               []int64 // of calendar windows: per row its unit, and the units where the window in work begins and ends
	from, to            []int64
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
	o.size, o.slide, o.offset, o.step = w.Size, w.Slide, w.Offset, w.Step
	if o.slide == 0 {
		o.slide = o.size
	}
	o.reach = max(o.size, w.Reach)
	switch c := w.Calendar; {
	case c != nil && (c.Unit <= 0 || c.Count <= 0):
		return pgerr.Newf(pgerr.InvalidParameterValue, "windows of %d times %d days or months", c.Count, c.Unit)
	case c != nil:
		var err error
		if o.calendar, err = newCalendar(c); err != nil {
			return err
		}
	case o.size <= 0 || o.slide <= 0 || o.size%o.slide != 0:
		return pgerr.Newf(pgerr.InvalidParameterValue, "window size %d must be a positive multiple of the slide %d", o.size, o.slide)
	case o.step < 0 || o.step > 0 && o.size%o.step != 0:
		return pgerr.Newf(pgerr.InvalidParameterValue, "window size %d must be a multiple of the step %d", o.size, o.step)
	}
	n := len(o.node.Schema)
	o.start = &types.Vector{Type: o.node.Schema[n-2].Type}
	o.end = &types.Vector{Type: o.node.Schema[n-1].Type}
	o.date = ctx.InputTypes[0][w.Column].OID == types.OIDDate
	o.cols = make([]*types.Vector, n)
	o.cols[n-2], o.cols[n-1] = o.start, o.end
	if o.calendar == nil {
		o.newest = o.floor(0)
	}
	return nil
}

// floor returns the start of the newest window that holds ts.
func (o *windowOp) floor(ts int64) int64 { return o.floorTo(ts, o.slide) }

// floorTo returns the last multiple of unit, counted from the origin of the windows, that is not after ts.
func (o *windowOp) floorTo(ts, unit int64) int64 {
	// Differences of remainders: that of the times themselves may be out of range.
	m := (ts%unit - (unixEpochMicros+o.offset)%unit) % unit
	if m < 0 {
		m += unit
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
	if c.Sel == nil && ts.Valid == nil && !o.date && o.step == 0 && o.calendar == nil && o.assignDense(ts.Int[:n]) {
		o.out = types.Chunk{Cols: o.cols, N: n, Weights: c.Weights}
		return o.emitAll(nil, out)
	}
	if o.calendar != nil && cap(o.units) < c.N {
		o.units, o.from, o.to = make([]int64, types.MaxChunkRows), make([]int64, types.MaxChunkRows), make([]int64, types.MaxChunkRows)
	}
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
		if !o.assign(r, x, back) {
			if err := o.ctx.Errors.Report(o.node, errTimestampRange, c, r, c.Weight(r)); err != nil {
				return err
			}
			continue
		}
		sel = append(sel, uint16(r))
	}
	o.sel = sel
	if len(sel) == 0 {
		return nil
	}
	o.out = types.Chunk{Cols: o.cols, N: c.N, Weights: c.Weights}
	if o.calendar != nil || o.step > 0 {
		o.out.Sel = sel
		return o.emitGrowing(out)
	}
	if len(sel) < c.N {
		o.out.Sel = sel
	}
	return o.emitAll(o.out.Sel, out)
}

// assign finds the first window of row r; false when it is out of the range of timestamps.
func (o *windowOp) assign(r int, ts, back int64) bool {
	start, end := o.start.Int, o.end.Int
	if o.calendar != nil {
		if ts < minTimestamp || ts > maxTimestamp {
			return false
		}
		unit, err := o.calendar.find(ts)
		if err != nil {
			return false
		}
		o.units[r] = unit
		o.from[r], o.to[r] = o.calendar.first(unit)
		return o.bounds(r)
	}
	if ts < minTimestamp+o.reach || ts > maxTimestamp-o.reach {
		return false
	}
	if o.step > 0 {
		start[r], end[r] = o.floor(ts), o.floorTo(ts, o.step)+o.step
		return true
	}
	s := o.floor(ts) - back
	start[r], end[r] = s, s+o.size
	return true
}

// bounds sets the window of row r that its units tell.
func (o *windowOp) bounds(r int) bool {
	var err, err2 error
	o.start.Int[r], err = o.calendar.begin(o.from[r])
	o.end.Int[r], err2 = o.calendar.begin(o.to[r])
	return err == nil && err2 == nil
}

// emitGrowing emits the selected rows once per window, those that have a further one again.
func (o *windowOp) emitGrowing(out Emitter) error {
	for len(o.out.Sel) > 0 {
		if err := out.Emit(&o.out); err != nil {
			return err
		}
		if err := o.cancelled(); err != nil {
			return err
		}
		sel := o.out.Sel[:0]
		for _, r := range o.out.Sel {
			more := false
			if o.calendar != nil {
				if o.from[r], o.to[r], more = o.calendar.next(o.units[r], o.from[r], o.to[r]); more {
					more = o.bounds(int(r))
				}
			} else if more = o.end.Int[r] < o.start.Int[r]+o.size; more {
				o.end.Int[r] += o.step
			}
			if more {
				sel = append(sel, r)
			}
		}
		o.out.Sel = sel
	}
	return nil
}

// hugeWindow is the size in µs (about 9000 years) from which sums of sizes and timestamps could overflow.
const hugeWindow = 1 << 58

// assignDense finds the oldest window of each timestamp. It gives up when one may be out of range.
func (o *windowOp) assignDense(ts []int64) bool {
	if o.reach > hugeWindow {
		return false
	}
	start, end := o.start.Int[:len(ts)], o.end.Int[:len(ts)]
	lo, slide, size, back := o.newest, o.slide, o.size, o.size-o.slide
	for i, x := range ts {
		if uint64(x-lo) >= uint64(slide) {
			if x < minTimestamp+2*o.reach || x > maxTimestamp-2*o.reach {
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
	start, end, ok := o.lowest(ts)
	if !ok {
		return nil
	}
	n := len(o.node.Schema)
	if err := out.EmitWatermark(Watermark{Column: n - 2, Value: start}); err != nil {
		return err
	}
	return out.EmitWatermark(Watermark{Column: n - 1, Value: end})
}

// lowest returns the least start and end of windows that hold ts or something later.
func (o *windowOp) lowest(ts int64) (start, end int64, ok bool) {
	if o.calendar != nil {
		if ts > maxTimestamp {
			return math.MaxInt64 - 1, math.MaxInt64 - 1, true
		}
		unit, err := o.calendar.find(ts)
		if ts < minTimestamp || err != nil {
			return 0, 0, false
		}
		from, to := o.calendar.first(unit)
		start, err = o.calendar.begin(from)
		if err != nil {
			return 0, 0, false
		}
		end, err = o.calendar.begin(to)
		return start, end, err == nil
	}
	if ts > maxTimestamp-o.size {
		return math.MaxInt64 - o.size, math.MaxInt64, true
	}
	if ts < minTimestamp+o.size {
		return 0, 0, false
	}
	if o.step > 0 {
		return o.floor(ts), o.floorTo(ts, o.step) + o.step, true
	}
	s := o.floor(ts) - (o.size - o.slide)
	return s, s + o.size, true
}
