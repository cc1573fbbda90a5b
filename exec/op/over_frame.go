package op

import (
	"cmp"
	"math"
	"sort"

	"github.com/streamdb/streamdb/internal/pgerr"
	"github.com/streamdb/streamdb/planner/plan"
	"github.com/streamdb/streamdb/types"
)

// frameRows is a row's frame: rows [start, end) of the span without [exFrom, exTo), but with keep when that is not negative.
type frameRows struct {
	start, end   int
	exFrom, exTo int
	keep         int
}

func (f *frameRows) has(i int) bool { return i < f.exFrom || i >= f.exTo || i == f.keep }

func (c *overCall) frameOf(o *overOp, i int) (frameRows, error) {
	s := &o.span
	n := len(s.rows)
	f := frameRows{keep: -1}
	var err error
	if f.start, err = c.bound(o, i, c.frame.Start, true); err != nil {
		return f, err
	}
	if f.end, err = c.bound(o, i, c.frame.End, false); err != nil {
		return f, err
	}
	f.start, f.end = min(max(f.start, 0), n), min(max(f.end, 0), n)
	f.end = max(f.end, f.start)
	switch c.frame.Exclude {
	case "current":
		f.exFrom, f.exTo = i, i+1
	case "group", "ties":
		f.exFrom, f.exTo = s.first[s.peers[i]], s.first[s.peers[i]+1]
		if c.frame.Exclude == "ties" {
			f.keep = i
		}
	}
	return f, nil
}

// bound returns the first row of the frame (start) or the row behind its last one.
func (c *overCall) bound(o *overOp, i int, b plan.Bound, start bool) (int, error) {
	s := &o.span
	peer := s.peers[i]
	switch b.Kind {
	case plan.UnboundedPreceding:
		return 0, nil
	case plan.UnboundedFollowing:
		return len(s.rows), nil
	case plan.CurrentRow:
		switch {
		case c.frame.Mode == plan.FrameRows && start:
			return i, nil
		case c.frame.Mode == plan.FrameRows:
			return i + 1, nil
		case start:
			return s.first[peer], nil
		}
		return s.first[peer+1], nil
	}
	if b.Offset == nil || b.Offset.Null {
		return 0, pgerr.Newf(codeInvalidFrame, "frame offset must not be null")
	}
	if c.frame.Mode == plan.FrameRange {
		return c.rangeBound(o, i, b, start)
	}
	d := min(b.Offset.Int, math.MaxInt32)
	if d < 0 {
		return 0, pgerr.Newf(codeInvalidFrame, "frame offset must not be negative")
	}
	if b.Kind == plan.Preceding {
		d = -d
	}
	if c.frame.Mode == plan.FrameRows {
		if start {
			return i + int(d), nil
		}
		return i + int(d) + 1, nil
	}
	p := peer + int(d)
	if !start {
		p++
	}
	return s.first[min(max(p, 0), len(s.first)-1)], nil
}

// rangeBound finds the bound of a RANGE frame with offset: rows whose order column is within that distance. NULLs are peers of NULLs only.
func (c *overCall) rangeBound(o *overOp, i int, b plan.Bound, start bool) (int, error) {
	if len(o.node.Over.Order) != 1 {
		return 0, pgerr.Newf(pgerr.FeatureNotSupported, "RANGE with offset requires exactly one ORDER BY column")
	}
	s := &o.span
	key := o.node.Over.Order[0]
	v := s.part.Cols[key.Column]
	if v.IsNull(i) {
		if start {
			return s.first[s.peers[i]], nil
		}
		return s.first[s.peers[i]+1], nil
	}
	limit, err := c.limit(o, rangeValue(v, i), b)
	if err != nil {
		return 0, err
	}
	// Rows that are not NULL are contiguous and sorted.
	k := sort.Search(s.hi-s.lo, func(k int) bool {
		order := compareRange(rangeValue(v, s.lo+k), limit)
		if key.Desc {
			order = -order
		}
		return order > 0 || start && order == 0
	})
	return s.lo + k, nil
}

// limit returns the value of the order column that a bound of RANGE with offset lies at, for a row with the value d.
func (c *overCall) limit(o *overOp, d types.Datum, b plan.Bound) (types.Datum, error) {
	return shiftDatum(d, *b.Offset, (b.Kind == plan.Preceding) != o.node.Over.Order[0].Desc)
}

// compareRange compares values as rangeValue and limit make them.
func compareRange(a, b types.Datum) int {
	if a.Type.OID == types.OIDTimetz {
		return cmp.Compare(a.Int, b.Int)
	}
	return types.CompareDatum(a, b)
}

// zoneBits holds the zone of a time, in seconds, below its microseconds in UTC.
const zoneBits = 18

// rangeValue is a value of the order column as RANGE compares it: dates are timestamps, times with a zone numbers.
func rangeValue(v *types.Vector, i int) types.Datum {
	d := v.Get(i)
	switch d.Type.OID {
	case types.OIDTimetz:
		us, west := types.SplitTimetz(d.Str)
		d = types.Datum{Type: d.Type, Int: (us+int64(west)*1_000_000)<<zoneBits + int64(west)}
	case types.OIDDate:
		us, err := types.DateToTimestamp(d.Int)
		if err != nil { // before or after all timestamps
			us = types.TimestampInfinity - 1
			if d.Int < 0 {
				us = types.TimestampNegInfinity + 1
			}
		}
		d = types.Datum{Type: types.Timestamp, Int: us}
	}
	return d
}

// shiftDatum returns d - off (back) or d + off for the types RANGE supports. Values beyond those of the type are its first or last one.
func shiftDatum(d, off types.Datum, back bool) (types.Datum, error) {
	negative := func() error {
		return pgerr.Newf(codeInvalidFrame, "invalid preceding or following size in window function")
	}
	switch {
	case off.Type.Kind() == types.KindInterval:
		// Of the time of day only the hours count.
		timeOfDay := d.Type.OID == types.OIDTime || d.Type.OID == types.OIDTimetz
		if timeOfDay && off.Ivl.Micros < 0 || !timeOfDay && types.CompareInterval(off.Ivl, types.Interval{}) < 0 {
			return d, negative()
		}
		return shiftByInterval(d, off.Ivl, back)
	case d.Type.Kind() == types.KindInt && off.Type.Kind() == types.KindInt:
		if off.Int < 0 {
			return d, negative()
		}
		x := d.Int + off.Int
		if back {
			x = d.Int - off.Int
		}
		if back && x > d.Int {
			x = math.MinInt64
		} else if !back && x < d.Int {
			x = math.MaxInt64
		}
		d.Int = x
		return d, nil
	case d.Type.Kind() == types.KindFloat && off.Type.Kind() == types.KindFloat:
		if off.Float < 0 || off.Float != off.Float {
			return d, negative()
		}
		if back {
			off.Float = -off.Float
		}
		if math.IsInf(off.Float, 0) && d.Float == -off.Float {
			d.Float = off.Float // everything is within an infinite distance
		} else {
			d.Float += off.Float
		}
		return d, nil
	case d.Type.Kind() == types.KindNumeric && off.Type.Kind() == types.KindNumeric:
		if off.Num.Sign() < 0 {
			return d, negative()
		}
		var err error
		if back {
			d.Num, err = types.NumSub(d.Num, off.Num)
		} else {
			d.Num, err = types.NumAdd(d.Num, off.Num)
		}
		return d, err
	}
	return d, pgerr.Newf(pgerr.FeatureNotSupported, "RANGE with offset is not supported for column type %s and offset type %s", d.Type, off.Type)
}

func shiftByInterval(d types.Datum, iv types.Interval, back bool) (types.Datum, error) {
	var err error
	switch d.Type.OID {
	case types.OIDInterval:
		if back {
			d.Ivl, err = types.IntervalSub(d.Ivl, iv)
		} else {
			d.Ivl, err = types.IntervalAdd(d.Ivl, iv)
		}
		return d, err
	case types.OIDTimestamp, types.OIDTimestamptz:
		if back {
			d.Int, err = types.TimestampSubInterval(d.Int, iv, nil)
		} else {
			d.Int, err = types.TimestampAddInterval(d.Int, iv, nil)
		}
		return d, err
	case types.OIDTime, types.OIDTimetz:
		us := min(iv.Micros, 3*microsPerDay)
		if d.Type.OID == types.OIDTimetz {
			us <<= zoneBits
		}
		if back {
			us = -us
		}
		d.Int += us
		return d, nil
	}
	return d, pgerr.Newf(pgerr.FeatureNotSupported, "RANGE with offset is not supported for column type %s", d.Type)
}
