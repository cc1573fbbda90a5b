package op

import (
	"math"
	"sort"

	"github.com/streamdb/streamdb/internal/pgerr"
	"github.com/streamdb/streamdb/planner/plan"
	"github.com/streamdb/streamdb/types"
)

// overCall computes one window function over the partition in overOp.part.
type overCall struct {
	spec plan.OverCall
	name string
	agg  *aggOp // for aggregates: one group, whose rows follow the frame
	one  *types.Chunk
	ctx  Context
}

// The SQLSTATEs of window functions.
const (
	codeInvalidNtile    pgerr.Code = "22014"
	codeInvalidNthValue pgerr.Code = "22016"
	codeInvalidFrame    pgerr.Code = "22013"
)

func (o *overOp) newOverCall(i int) (*overCall, error) {
	c := &overCall{spec: o.node.Over.Calls[i], name: funcName(o.node.Over.Calls[i].Func)}
	switch c.name {
	case "row_number", "rank", "dense_rank", "percent_rank", "cume_dist", "ntile", "lag", "lead", "first_value", "last_value", "nth_value":
		return c, nil
	}
	// Rows enter and leave the frame, so the aggregate must be able to retract: its input is not marked as append-only. The position column at
	// the end is the stream key, which keeps lists in the order of the window.
	in := o.part.Cols
	ts := make([]types.Type, len(in))
	for k, v := range in {
		ts[k] = v.Type
	}
	input := &plan.Node{Key: []int{len(in) - 1}}
	node := &plan.Node{
		ID: o.node.ID, Kind: plan.KindAgg, Schema: types.Schema{{Name: c.name, Type: c.spec.Type}}, Inputs: []*plan.Node{input},
		Agg: &plan.Agg{Global: true, OnClose: -1, Calls: []plan.AggCall{{
			Func: c.spec.Func, Args: c.spec.Args, Filter: c.spec.Filter, Type: c.spec.Type,
		}}},
	}
	c.ctx = *o.ctx
	c.ctx.Node, c.ctx.InputTypes, c.ctx.Store, c.ctx.OneShot = node, [][]types.Type{ts}, nil, false
	c.ctx.Budget = nil
	// Whether it is one aggregate that exists at all shows now, not at the first row.
	return c, c.begin()
}

// begin starts an empty frame.
func (c *overCall) begin() error {
	c.agg = &aggOp{base: base{node: c.ctx.Node}}
	return c.agg.Open(&c.ctx)
}

// eval appends the function's value for every row to out. Failures of single rows go to fail, whose error ends the evaluation.
func (c *overCall) eval(o *overOp, out *types.Vector, fail func(i int, err error) error) error {
	n := o.part.N
	switch c.name {
	case "row_number":
		for i := range n {
			pushInt(out, int64(i)+1)
		}
	case "rank":
		for i := range n {
			pushInt(out, int64(o.first[o.peers[i]])+1)
		}
	case "dense_rank":
		for i := range n {
			pushInt(out, int64(o.peers[i])+1)
		}
	case "percent_rank":
		for i := range n {
			x := 0.0
			if n > 1 {
				x = float64(o.first[o.peers[i]]) / float64(n-1)
			}
			pushFloat(out, x)
		}
	case "cume_dist":
		for i := range n {
			pushFloat(out, float64(o.first[o.peers[i]+1])/float64(n))
		}
	case "ntile":
		return c.ntile(o, out, fail)
	case "lag", "lead":
		c.shift(o, out)
	case "first_value", "last_value", "nth_value":
		return c.pickValue(o, out, fail)
	default:
		return c.aggregate(o, out, fail)
	}
	return nil
}

func (c *overCall) ntile(o *overOp, out *types.Vector, fail func(int, error) error) error {
	n := o.part.N
	if n == 0 {
		return nil
	}
	arg := o.part.Cols[c.spec.Args[0]]
	if arg.IsNull(0) {
		for range n {
			out.AppendNull()
		}
		return nil
	}
	k := arg.Int[0]
	if k <= 0 {
		for i := range n {
			out.AppendNull()
			if err := fail(i, pgerr.Newf(codeInvalidNtile, "argument of ntile must be greater than zero")); err != nil {
				return err
			}
		}
		return nil
	}
	size, extra := int64(n)/k, int64(n)%k
	for i := range int64(n) {
		b := int64(0)
		if i < extra*(size+1) {
			b = i / (size + 1)
		} else {
			b = extra + (i-extra*(size+1))/size
		}
		pushInt(out, b+1)
	}
	return nil
}

// shift is lag and lead.
func (c *overCall) shift(o *overOp, out *types.Vector) {
	n := o.part.N
	v := o.part.Cols[c.spec.Args[0]]
	for i := range n {
		d := int64(1)
		if len(c.spec.Args) > 1 {
			a := o.part.Cols[c.spec.Args[1]]
			if a.IsNull(i) {
				out.AppendNull()
				continue
			}
			d = a.Int[i]
		}
		if c.name == "lag" {
			d = -d
		}
		at := c.shifted(v, i, d, n)
		switch {
		case at >= 0:
			out.Append(v, at)
		case len(c.spec.Args) > 2:
			out.Append(o.part.Cols[c.spec.Args[2]], i)
		default:
			out.AppendNull()
		}
	}
}

// shifted returns the row d rows from i, counting only values that are not NULL with IGNORE NULLS; -1 outside the partition.
func (c *overCall) shifted(v *types.Vector, i int, d int64, n int) int {
	if !c.spec.IgnoreNulls || d == 0 {
		if at := int64(i) + d; d > int64(n) || d < -int64(n) || at < 0 || at >= int64(n) {
			return -1
		}
		return i + int(d)
	}
	step := 1
	if d < 0 {
		step, d = -1, -d
	}
	for at := i + step; at >= 0 && at < n; at += step {
		if !v.IsNull(at) {
			if d--; d == 0 {
				return at
			}
		}
	}
	return -1
}

func (c *overCall) pickValue(o *overOp, out *types.Vector, fail func(int, error) error) error {
	v := o.part.Cols[c.spec.Args[0]]
	for i := range o.part.N {
		f, err := c.frame(o, i)
		if err != nil {
			return err
		}
		nth := int64(1)
		if c.name == "nth_value" {
			a := o.part.Cols[c.spec.Args[1]]
			if a.IsNull(i) {
				out.AppendNull()
				continue
			}
			if nth = a.Int[i]; nth <= 0 {
				out.AppendNull()
				if err := fail(i, pgerr.Newf(codeInvalidNthValue, "argument of nth_value must be greater than zero")); err != nil {
					return err
				}
				continue
			}
		}
		at := -1
		if c.name == "last_value" {
			for k := f.end - 1; k >= f.start && at < 0; k-- {
				if f.has(k) && !(c.spec.IgnoreNulls && v.IsNull(k)) {
					at = k
				}
			}
		} else {
			for k := f.start; k < f.end && at < 0; k++ {
				if f.has(k) && !(c.spec.IgnoreNulls && v.IsNull(k)) {
					if nth--; nth == 0 {
						at = k
					}
				}
			}
		}
		if at < 0 {
			out.AppendNull()
		} else {
			out.Append(v, at)
		}
	}
	return nil
}

// frameRows is a row's frame: rows [start, end) without [exFrom, exTo), but with keep when that is not negative.
type frameRows struct {
	start, end   int
	exFrom, exTo int
	keep         int
}

func (f *frameRows) has(i int) bool { return i < f.exFrom || i >= f.exTo || i == f.keep }

func (c *overCall) frame(o *overOp, i int) (frameRows, error) {
	fr := &c.spec.Frame
	n := o.part.N
	f := frameRows{keep: -1}
	var err error
	if f.start, err = c.bound(o, i, fr.Start, true); err != nil {
		return f, err
	}
	if f.end, err = c.bound(o, i, fr.End, false); err != nil {
		return f, err
	}
	f.start, f.end = min(max(f.start, 0), n), min(max(f.end, 0), n)
	f.end = max(f.end, f.start)
	switch fr.Exclude {
	case "current":
		f.exFrom, f.exTo = i, i+1
	case "group", "ties":
		f.exFrom, f.exTo = o.first[o.peers[i]], o.first[o.peers[i]+1]
		if fr.Exclude == "ties" {
			f.keep = i
		}
	}
	return f, nil
}

// bound returns the first row of the frame (start) or the row behind its last one.
func (c *overCall) bound(o *overOp, i int, b plan.Bound, start bool) (int, error) {
	n := o.part.N
	peer := o.peers[i]
	switch b.Kind {
	case plan.UnboundedPreceding:
		return 0, nil
	case plan.UnboundedFollowing:
		return n, nil
	case plan.CurrentRow:
		switch {
		case c.spec.Frame.Mode == plan.FrameRows && start:
			return i, nil
		case c.spec.Frame.Mode == plan.FrameRows:
			return i + 1, nil
		case start:
			return o.first[peer], nil
		}
		return o.first[peer+1], nil
	}
	if b.Offset == nil || b.Offset.Null {
		return 0, pgerr.Newf(codeInvalidFrame, "frame offset must not be null")
	}
	if c.spec.Frame.Mode == plan.FrameRange {
		return c.rangeBound(o, i, b, start)
	}
	d := min(b.Offset.Int, math.MaxInt32)
	if d < 0 {
		return 0, pgerr.Newf(codeInvalidFrame, "frame offset must not be negative")
	}
	if b.Kind == plan.Preceding {
		d = -d
	}
	if c.spec.Frame.Mode == plan.FrameRows {
		if start {
			return i + int(d), nil
		}
		return i + int(d) + 1, nil
	}
	groups := len(o.first) - 1
	p := peer + int(d)
	if !start {
		p++
	}
	return o.first[min(max(p, 0), groups)], nil
}

// rangeBound finds the bound of a RANGE frame with offset: rows whose order column is within that distance. NULLs are peers of NULLs only.
func (c *overCall) rangeBound(o *overOp, i int, b plan.Bound, start bool) (int, error) {
	if len(o.node.Over.Order) != 1 {
		return 0, pgerr.Newf(pgerr.FeatureNotSupported, "RANGE with offset requires exactly one ORDER BY column")
	}
	key := o.node.Over.Order[0]
	v := o.part.Cols[key.Column]
	if v.IsNull(i) {
		if start {
			return o.first[o.peers[i]], nil
		}
		return o.first[o.peers[i]+1], nil
	}
	limit, err := shiftDatum(v.Get(i), *b.Offset, (b.Kind == plan.Preceding) != key.Desc)
	if err != nil {
		return 0, err
	}
	// Rows that are not NULL are contiguous and sorted.
	lo, hi := 0, o.part.N
	for lo < hi && v.IsNull(lo) {
		lo++
	}
	for hi > lo && v.IsNull(hi-1) {
		hi--
	}
	k := sort.Search(hi-lo, func(k int) bool {
		cmp := types.CompareDatum(v.Get(lo+k), limit)
		if key.Desc {
			cmp = -cmp
		}
		if start {
			return cmp >= 0
		}
		return cmp > 0
	})
	return lo + k, nil
}

// shiftDatum returns d - off (back) or d + off for the types RANGE supports.
func shiftDatum(d, off types.Datum, back bool) (types.Datum, error) {
	negative := func() error {
		return pgerr.Newf(codeInvalidFrame, "invalid preceding or following size in window function")
	}
	switch {
	case off.Type.Kind() == types.KindInterval:
		if types.CompareInterval(off.Ivl, types.Interval{}) < 0 {
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
			d.Float -= off.Float
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
	case types.OIDTimestamp, types.OIDTimestamptz, types.OIDDate:
		ts := d.Int
		date := d.Type.OID == types.OIDDate
		if date {
			ts *= microsPerDay
		}
		if back {
			ts, err = types.TimestampSubInterval(ts, iv, nil)
		} else {
			ts, err = types.TimestampAddInterval(ts, iv, nil)
		}
		if date {
			// A date bound between two days excludes the one beyond it.
			day := ts / microsPerDay
			if m := ts % microsPerDay; m < 0 && back || m < 0 {
				day--
			}
			if back && ts%microsPerDay != 0 {
				day++
			}
			ts = day
		}
		d.Int = ts
		return d, err
	case types.OIDTime:
		if back {
			d.Int = max(d.Int-iv.Micros, 0)
		} else {
			d.Int = min(d.Int+iv.Micros, microsPerDay)
		}
		return d, nil
	}
	return d, pgerr.Newf(pgerr.FeatureNotSupported, "RANGE with offset is not supported for column type %s", d.Type)
}

// aggregate follows the frame from row to row: rows that leave are retracted, so that the work is in what changes.
func (c *overCall) aggregate(o *overOp, out *types.Vector, fail func(int, error) error) error {
	if err := c.begin(); err != nil {
		return err
	}
	in := make(map[int]bool)
	sliding := frameRows{keep: -1}
	exclude := c.spec.Frame.Exclude != "" && c.spec.Frame.Exclude != "no_others"
	for i := range o.part.N {
		f, err := c.frame(o, i)
		if err != nil {
			return err
		}
		if exclude {
			err = c.follow(o, in, f)
		} else {
			err = c.slide(o, &sliding, f)
		}
		if err != nil {
			return err
		}
		if kind, err := c.agg.finish(0, c.agg.groups.row(0), []*types.Vector{out}); err != nil {
			if kind != outError {
				return err
			}
			if err := fail(i, err); err != nil {
				return err
			}
		}
		if i%cancelPollRows == cancelPollRows-1 {
			if err := o.cancelled(); err != nil {
				return err
			}
		}
	}
	return nil
}

// slide moves a frame without exclusion.
func (c *overCall) slide(o *overOp, s *frameRows, f frameRows) error {
	if f.start >= s.end || f.end <= s.start {
		if s.start < s.end {
			if err := c.begin(); err != nil {
				return err
			}
		}
		s.start, s.end = f.start, f.start
	}
	for ; s.start < f.start; s.start++ {
		if err := c.feed(o, s.start, -1); err != nil {
			return err
		}
	}
	for s.start > f.start {
		s.start--
		if err := c.feed(o, s.start, 1); err != nil {
			return err
		}
	}
	for ; s.end < f.end; s.end++ {
		if err := c.feed(o, s.end, 1); err != nil {
			return err
		}
	}
	for s.end > f.end {
		s.end--
		if err := c.feed(o, s.end, -1); err != nil {
			return err
		}
	}
	return nil
}

// follow makes the rows of a frame with exclusion those of the aggregate.
func (c *overCall) follow(o *overOp, in map[int]bool, f frameRows) error {
	for k := range in {
		if k < f.start || k >= f.end || !f.has(k) {
			delete(in, k)
			if err := c.feed(o, k, -1); err != nil {
				return err
			}
		}
	}
	for k := f.start; k < f.end; k++ {
		if f.has(k) && !in[k] {
			in[k] = true
			if err := c.feed(o, k, 1); err != nil {
				return err
			}
		}
	}
	return nil
}

// feed adds row k of the partition to the aggregate, or takes it out.
func (c *overCall) feed(o *overOp, k int, w int64) error {
	b := &c.agg.batch
	b.reset(o.part)
	b.groups = append(b.groups, 0)
	b.weights = append(b.weights, w)
	b.wbuf = b.weights
	// Positions in a partition may exceed those of a chunk: the row is handed over as a chunk of its own.
	if c.one == nil {
		c.one = &types.Chunk{Cols: make([]*types.Vector, len(o.part.Cols)), N: 1}
		for j, v := range o.part.Cols {
			c.one.Cols[j] = &types.Vector{Type: v.Type}
		}
	}
	for j, v := range o.part.Cols {
		c.one.Cols[j].Reset()
		c.one.Cols[j].Append(v, k)
	}
	b.c = c.one
	b.rows = append(b.rows, 0)
	return c.agg.calls[0].update(b)
}
