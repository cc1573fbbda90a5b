package op

import (
	"math"

	"github.com/streamdb/streamdb/internal/pgerr"
	"github.com/streamdb/streamdb/planner/plan"
	"github.com/streamdb/streamdb/sql/expr"
	"github.com/streamdb/streamdb/types"
)

// overCall computes one window function over the rows of overOp.span.
type overCall struct {
	spec  plan.OverCall
	frame plan.Frame
	name  string
	out   *types.Vector // results of the computed rows

	agg *aggOp // of aggregates whose frames are followed: one group
	ctx Context
	one types.Chunk
	use []int // columns the aggregate reads

	// acc makes running values: of the rows from the partition's first to one. Total calls need that of the last row only.
	acc      accumulator
	slot     int // number among the calls with running values
	total    bool
	hole     bool   // rows around the own one are excluded from a frame that has a running value
	distant  bool   // lag and lead with a distance that is not constant: the running value is the largest one
	saved    []byte // running values of the computed rows
	savedEnd []int
}

// The SQLSTATEs of window functions.
const (
	codeInvalidNtile    pgerr.Code = "22014"
	codeInvalidNthValue pgerr.Code = "22016"
	codeInvalidFrame    pgerr.Code = "22013"
)

func (o *overOp) newOverCall(i int) (*overCall, error) {
	spec := o.node.Over.Calls[i]
	c := &overCall{spec: spec, frame: spec.Frame, name: funcName(spec.Func)}
	for i, b := range []*plan.Bound{&c.frame.Start, &c.frame.End} {
		if b.Expr == nil {
			continue
		}
		d, err := expr.EvalConst(b.Expr, o.ctx.Env, o.ctx.Lib)
		if err == nil {
			err = plan.CheckOffset(d, c.frame.Mode, [...]string{"starting", "ending"}[i])
		}
		if err != nil {
			return nil, err
		}
		b.Offset = &d
	}
	if len(o.node.Over.Order) == 0 && c.frame.Mode != plan.FrameRows { // all rows are peers
		if c.frame.Start.Kind == plan.CurrentRow {
			c.frame.Start.Kind = plan.UnboundedPreceding
		}
		if c.frame.End.Kind == plan.CurrentRow {
			c.frame.End.Kind = plan.UnboundedFollowing
		}
	}
	if err := c.place(o); err != nil {
		return nil, err
	}
	return c, nil
}

// place finds out how far the function reads, and prepares it.
func (c *overCall) place(o *overOp) error {
	start, end := c.frame.Start.Kind, c.frame.End.Kind
	fromFirst, toLast := start == plan.UnboundedPreceding, end == plan.UnboundedFollowing
	near := !fromFirst && !toLast
	plain := !c.excludes()
	switch c.name {
	case "row_number", "rank", "dense_rank":
		o.ranked, o.running, o.mixed = true, true, true
		return nil
	case "percent_rank", "cume_dist", "ntile":
		o.ranked, o.running, o.totals, o.mixed, o.counted = true, true, true, true, true
		if c.name == "cume_dist" {
			o.ahead.groups = max(o.ahead.groups, 0)
		}
		if c.name == "ntile" && c.spec.Number == nil { // the argument of the first row counts
			c.acc, c.total = &valueAcc{arg: c.spec.Args[0]}, true
			c.takeSlot(o)
		}
		return nil
	case "lag", "lead":
		c.placeShift(o)
		return nil
	case "first_value":
		switch {
		case near || plain && !c.spec.IgnoreNulls && (start == plan.Preceding || start == plan.CurrentRow):
			c.reach(o)
			return nil
		case fromFirst && (plain || !toLast):
			c.acc = &valueAcc{arg: c.spec.Args[0], ignoreNulls: c.spec.IgnoreNulls}
		}
	case "last_value":
		switch {
		case near, plain && !c.spec.IgnoreNulls && (end == plan.Following || end == plan.CurrentRow):
			c.reach(o)
			return nil
		case fromFirst && (plain || !toLast), plain && toLast && !c.spec.IgnoreNulls && start != plan.Following:
			c.acc = &valueAcc{arg: c.spec.Args[0], ignoreNulls: c.spec.IgnoreNulls, last: true}
			fromFirst = true
		}
	case "nth_value":
		if near {
			c.reach(o)
			return nil
		}
		if n := c.spec.Number; n != nil && *n > 0 {
			if !fromFirst && c.reachNth(o, *n) {
				return nil
			}
			if fromFirst && (plain || !toLast) {
				c.acc = &nthAcc{valueAcc: valueAcc{arg: c.spec.Args[0], ignoreNulls: c.spec.IgnoreNulls}, n: *n}
			}
		}
	default:
		if err := c.prepare(o, false); err != nil {
			return err
		}
		switch {
		case near:
			c.reach(o)
			return nil
		case fromFirst && toLast && !plain:
			if !c.agg.keepsValues() {
				c.acc = &aggAcc{c: c} // rows can be taken out of it
			}
		case fromFirst:
			// Nothing leaves such a frame.
			running := &overCall{spec: c.spec, name: c.name}
			if err := running.prepare(o, true); err != nil {
				return err
			}
			if !running.agg.keepsValues() {
				c.acc = &aggAcc{c: running}
			}
		}
	}
	if c.acc == nil || !fromFirst {
		c.acc = nil
		c.reachEnds(o)
		return nil
	}
	if c.hole = !plain; c.hole && c.frame.Exclude != "current" {
		o.back.groups, o.ahead.groups = max(o.back.groups, 1), max(o.ahead.groups, 0)
	}
	if toLast {
		c.total, o.totals = true, true
	} else {
		o.trailing = o.trailing || end == plan.Preceding || c.hole
		o.gapped = o.gapped || end == plan.Preceding && c.frame.Mode == plan.FrameRange
		o.mixed = true
		c.reach(o)
	}
	c.takeSlot(o)
	return nil
}

func (c *overCall) excludes() bool { return c.frame.Exclude != "" && c.frame.Exclude != "no_others" }

// takeSlot gives the call a place among the running values.
func (c *overCall) takeSlot(o *overOp) {
	o.running = true
	c.slot = o.slots
	o.slots++
}

// reachEnds notes that the function reads to an end of the partition row by row.
func (c *overCall) reachEnds(o *overOp) {
	fromFirst, toLast := c.frame.Start.Kind == plan.UnboundedPreceding, c.frame.End.Kind == plan.UnboundedFollowing
	o.whole = o.whole || fromFirst && toLast
	if fromFirst {
		o.back.rows = math.MaxInt64
	}
	if toLast {
		o.ahead.rows = math.MaxInt64
	}
	c.reach(o)
}

// reachNth notes how far nth_value reads in a frame that ends with the partition, and reports whether that is known.
func (c *overCall) reachNth(o *overOp, n int64) bool {
	if c.frame.Exclude == "group" || c.frame.Exclude == "ties" {
		return false
	}
	if b := c.frame.Start; b.Kind == plan.Following {
		if c.frame.Mode != plan.FrameRows || c.spec.IgnoreNulls || b.Offset == nil || b.Offset.Int < 0 {
			return false
		}
		n += min(b.Offset.Int, math.MaxInt32)
	}
	if n++; n > math.MaxInt32 { // one row more where the own one is excluded
		return false
	}
	if c.spec.IgnoreNulls {
		o.ahead.values = append(o.ahead.values, valueReach{c.spec.Args[0], n})
	} else {
		o.ahead.rows = max(o.ahead.rows, n)
	}
	c.reach(o)
	return true
}

// placeShift is place of lag and lead.
func (c *overCall) placeShift(o *overOp) {
	n := int64(1)
	if len(c.spec.Args) > 1 {
		if c.spec.Number == nil {
			c.acc = &distanceAcc{arg: c.spec.Args[1], lag: c.name == "lag"}
			c.distant, o.distant, o.totals = true, true, true
			c.takeSlot(o)
			return
		}
		n = *c.spec.Number
	}
	if c.name == "lag" {
		n = -n
	}
	if n < 0 {
		if n = -n; n < 0 {
			n = math.MaxInt64
		}
		c.shiftReach(&o.back, n)
		return
	}
	c.shiftReach(&o.ahead, n)
}

// shiftReach notes that lag or lead reads n rows in a direction.
func (c *overCall) shiftReach(r *overReach, n int64) {
	if c.spec.IgnoreNulls && n > 0 {
		r.values = append(r.values, valueReach{c.spec.Args[0], n})
		return
	}
	r.rows = max(r.rows, n)
}

// reach notes what the bounds of the frame reach.
func (c *overCall) reach(o *overOp) {
	for i, b := range []plan.Bound{c.frame.Start, c.frame.End} {
		r := &o.back
		if b.Kind == plan.Following || b.Kind == plan.CurrentRow && i == 1 {
			r = &o.ahead
		}
		if b.Kind == plan.UnboundedPreceding || b.Kind == plan.UnboundedFollowing || c.frame.Mode == plan.FrameRows && b.Kind == plan.CurrentRow {
			continue
		}
		n := int64(0)
		if b.Kind != plan.CurrentRow && b.Offset != nil && c.frame.Mode != plan.FrameRange {
			n = b.Offset.Int
		}
		if c.frame.Mode == plan.FrameRows {
			r.rows = max(r.rows, n)
			continue
		}
		r.groups = max(r.groups, n)
		if b.Kind == plan.CurrentRow {
			continue
		}
		// An offset of 0 is all of the peers, and so is any of NULL.
		o.back.groups, o.ahead.groups = max(o.back.groups, 0), max(o.ahead.groups, 0)
		if c.frame.Mode == plan.FrameRange {
			r.ranges = append(r.ranges, rangeReach{c, b})
		}
	}
}

// prepare makes the aggregate of the frame's rows. Those of a running one are never taken out; where rows come in the opposite order sums of floats are
// exact nevertheless. The position column at the end is the stream key, which keeps lists in the order of the window.
func (c *overCall) prepare(o *overOp, running bool) error {
	in := o.span.part.Cols
	ts := make([]types.Type, len(in))
	for k, v := range in {
		ts[k] = v.Type
	}
	exact := o.node.Over.Backward && len(c.spec.Args) > 0 && ts[c.spec.Args[0]].Kind() == types.KindFloat && c.name != "min" && c.name != "max"
	input := &plan.Node{Key: []int{len(in) - 1}, AppendOnly: running && !exact}
	node := &plan.Node{
		ID: o.node.ID, Kind: plan.KindAgg, Schema: types.Schema{{Name: c.name, Type: c.spec.Type}}, Inputs: []*plan.Node{input},
		Agg: &plan.Agg{Global: true, OnClose: -1, Calls: []plan.AggCall{{
			Func: c.spec.Func, Args: c.spec.Args, Filter: c.spec.Filter, Type: c.spec.Type,
		}}},
	}
	c.ctx = *o.ctx
	c.ctx.Node, c.ctx.InputTypes, c.ctx.Store, c.ctx.OneShot = node, [][]types.Type{ts}, nil, false
	c.ctx.Budget = nil
	c.use = append([]int{len(in) - 1}, c.spec.Args...)
	if c.spec.Filter >= 0 {
		c.use = append(c.use, c.spec.Filter)
	}
	c.one = types.Chunk{Cols: make([]*types.Vector, len(in)), N: 1}
	for j, v := range in {
		c.one.Cols[j] = &types.Vector{Type: v.Type}
	}
	c.agg = &aggOp{base: base{node: node}}
	return c.agg.Open(&c.ctx)
}

// begin starts an empty frame.
func (c *overCall) begin() { c.agg.clearOnly() }

// feed adds row k of the span to the aggregate, or takes it out.
func (c *overCall) feed(o *overOp, k int, w int64) error {
	b := &c.agg.batch
	if k < math.MaxUint16 {
		b.reset(o.span.part)
		b.add(0, k, w)
		return c.agg.calls[0].update(b)
	}
	// The row is handed over as a chunk of its own: positions in a span may exceed those of a chunk.
	for _, j := range c.use {
		c.one.Cols[j].Reset()
		c.one.Cols[j].Append(o.span.part.Cols[j], k)
	}
	b.reset(&c.one)
	b.add(0, 0, w)
	return c.agg.calls[0].update(b)
}

// final appends the aggregate's value to out. An error of the state is fatal.
func (c *overCall) final(out *types.Vector) (failed, fatal error) {
	kind, err := c.agg.finish(0, c.agg.groups.row(0), []*types.Vector{out})
	if err != nil && kind != outError {
		return nil, err
	}
	return err, nil
}

// fail notes that the function fails for row i.
func (o *overOp) fail(i int, err error) {
	if f := &o.span.failed[i-o.span.a]; *f == nil {
		*f = err
	}
}

// eval computes the function for the rows [a, b) of the span. Acc is the running value up to the row before.
func (c *overCall) eval(o *overOp, acc []byte) error {
	s := &o.span
	if c.acc != nil {
		return c.evalRunning(o, acc)
	}
	if s.valuesOnly {
		return nil
	}
	switch c.name {
	case "row_number":
		for i := s.a; i < s.b; i++ {
			pushInt(c.out, s.number[i])
		}
	case "rank":
		for i := s.a; i < s.b; i++ {
			pushInt(c.out, s.rank[i])
		}
	case "dense_rank":
		for i := s.a; i < s.b; i++ {
			pushInt(c.out, s.groups[i])
		}
	case "percent_rank", "cume_dist", "ntile":
		return c.evalShare(o)
	case "lag", "lead":
		c.shift(o)
	case "first_value", "last_value", "nth_value":
		c.pickValue(o)
	default:
		return c.aggregate(o)
	}
	return nil
}

// evalRunning computes the values of frames that begin with the partition from running values.
func (c *overCall) evalRunning(o *overOp, acc []byte) error {
	s := &o.span
	if c.total || c.hole || c.distant {
		if err := c.accumulate(o, acc); err != nil || s.valuesOnly {
			return err
		}
		switch {
		case c.distant:
			c.shift(o)
			return nil
		case c.total:
			return c.evalTotal(o)
		}
		return c.evalHole(o)
	}
	end := func(i int) int {
		e, err := c.bound(o, i, c.frame.End, false)
		if err != nil {
			o.fail(i, err)
			return i + 1
		}
		return min(max(e, 0), len(s.rows))
	}
	i := s.a
	for ; i < s.b; i++ {
		e := end(i)
		if e > s.a {
			break
		}
		if err := c.loadAt(o, e-1); err != nil {
			return err
		}
		if err := c.finish(o, i); err != nil {
			return err
		}
	}
	if err := c.acc.load(acc); err != nil {
		return err
	}
	for j := s.a; j < len(s.rows) && (j < s.b || i < s.b); j++ {
		if err := c.acc.feed(o, j); err != nil {
			return err
		}
		if j < s.b && !o.ctx.OneShot {
			c.save()
		}
		for ; i < s.b && end(i)-1 <= j; i++ {
			if err := c.finish(o, i); err != nil {
				return err
			}
		}
	}
	return nil
}

// accumulate makes the running values of the computed rows. Afterwards the accumulator has that of the last one.
func (c *overCall) accumulate(o *overOp, acc []byte) error {
	if err := c.acc.load(acc); err != nil {
		return err
	}
	for j := o.span.a; j < o.span.b; j++ {
		if err := c.acc.feed(o, j); err != nil {
			return err
		}
		if c.hole && !c.total || !o.ctx.OneShot {
			c.save()
		}
	}
	return nil
}

func (c *overCall) save() {
	c.saved = c.acc.save(c.saved)
	c.savedEnd = append(c.savedEnd, len(c.saved))
}

// loadAt makes the accumulator's value that up to row k.
func (c *overCall) loadAt(o *overOp, k int) error {
	if k >= o.span.a {
		return c.acc.load(c.savedAt(k - o.span.a))
	}
	_, accs, err := o.before(k)
	if err != nil {
		return err
	}
	var b []byte
	if len(accs) > c.slot {
		b = accs[c.slot]
	}
	return c.acc.load(b)
}

// finish appends the accumulator's value as the result of row i.
func (c *overCall) finish(o *overOp, i int) error {
	if o.span.valuesOnly {
		return nil
	}
	failed, fatal := c.acc.final(c.out)
	if failed != nil {
		o.fail(i, failed)
	}
	return fatal
}

// evalHole computes frames from which rows are excluded: the running value up to the first of these, and what comes behind them.
func (c *overCall) evalHole(o *overOp) error {
	s := &o.span
	for i := s.a; i < s.b; i++ {
		f, err := c.frameOf(o, i)
		if err != nil {
			o.fail(i, err)
			c.out.AppendNull()
			continue
		}
		k := min(f.end, f.exFrom)
		if err := c.loadAt(o, k-1); err != nil {
			return err
		}
		for ; k < f.end; k++ {
			if !f.has(k) {
				continue
			}
			if err := c.acc.feed(o, k); err != nil {
				return err
			}
		}
		if err := c.finish(o, i); err != nil {
			return err
		}
	}
	return nil
}

// evalTotal computes functions of the whole partition, maybe without the rows around the own one.
func (c *overCall) evalTotal(o *overOp) error {
	s := &o.span
	if !s.complete {
		_, accs, err := o.values(o.total)
		if err != nil {
			return err
		}
		if err := c.acc.load(accs[c.slot]); err != nil {
			return err
		}
	}
	switch {
	case c.name == "ntile":
		return c.evalShare(o)
	case c.hole:
		return c.evalRest(o)
	}
	failed, fatal := c.acc.final(c.out)
	if fatal != nil {
		return fatal
	}
	for i := s.a; i < s.b; i++ {
		if failed != nil {
			o.fail(i, failed)
		}
		if i > s.a {
			c.out.Append(c.out, 0)
		}
	}
	return nil
}

// evalRest computes an aggregate of all rows of the partition but those that are excluded, which are taken out of it.
func (c *overCall) evalRest(o *overOp) error {
	s := &o.span
	take := func(from, to int, w int64) error {
		for k := from; k < to; k++ {
			if err := c.feed(o, k, w); err != nil {
				return err
			}
		}
		return nil
	}
	from, to := 0, 0 // the rows that are out
	for i := s.a; i < s.b; i++ {
		f, err := c.frameOf(o, i)
		if err != nil {
			return err
		}
		if f.exFrom != from || f.exTo != to {
			if err := take(from, to, 1); err != nil {
				return err
			}
			if from, to = f.exFrom, f.exTo; from < to {
				if err := take(from, to, -1); err != nil {
					return err
				}
			}
		}
		if f.keep >= 0 {
			if err := c.feed(o, i, 1); err != nil {
				return err
			}
		}
		if err := c.finish(o, i); err != nil {
			return err
		}
		if f.keep >= 0 {
			if err := c.feed(o, i, -1); err != nil {
				return err
			}
		}
	}
	return nil
}

// savedAt returns the running value of computed row k.
func (c *overCall) savedAt(k int) []byte {
	from := 0
	if k > 0 {
		from = c.savedEnd[k-1]
	}
	return c.saved[from:c.savedEnd[k]]
}

// evalShare computes the functions that depend on the number of rows of the partition.
func (c *overCall) evalShare(o *overOp) error {
	s := &o.span
	n := int64(0)
	if s.complete {
		n = s.number[len(s.rows)-1]
	} else {
		at, _, err := o.values(o.total)
		if err != nil {
			return err
		}
		n = at.number
	}
	if c.name == "ntile" {
		return c.ntile(o, n)
	}
	for i := s.a; i < s.b; i++ {
		x := 0.0
		switch {
		case c.name == "cume_dist":
			x = float64(s.number[s.first[s.peers[i]+1]-1]) / float64(n)
		case n > 1:
			x = float64(s.rank[i]-1) / float64(n-1)
		}
		pushFloat(c.out, x)
	}
	return nil
}

func (c *overCall) ntile(o *overOp, n int64) error {
	s := &o.span
	null, k := false, int64(1)
	if c.acc == nil {
		k = *c.spec.Number
	} else {
		arg := &types.Vector{Type: s.part.Cols[c.spec.Args[0]].Type}
		if _, err := c.acc.final(arg); err != nil {
			return err
		}
		if null = arg.IsNull(0); !null {
			k = arg.Int[0]
		}
	}
	size, extra := int64(0), int64(0)
	if k > 0 {
		size, extra = n/k, n%k
	}
	for i := s.a; i < s.b; i++ {
		at := s.number[i] - 1
		switch {
		case null:
			c.out.AppendNull()
		case k <= 0:
			c.out.AppendNull()
			o.fail(i, pgerr.Newf(codeInvalidNtile, "argument of ntile must be greater than zero"))
		case at < extra*(size+1):
			pushInt(c.out, at/(size+1)+1)
		default:
			pushInt(c.out, extra+(at-extra*(size+1))/size+1)
		}
	}
	return nil
}

// shift is lag and lead.
func (c *overCall) shift(o *overOp) {
	s := &o.span
	v := s.part.Cols[c.spec.Args[0]]
	for i := s.a; i < s.b; i++ {
		d := int64(1)
		if len(c.spec.Args) > 1 {
			a := s.part.Cols[c.spec.Args[1]]
			if a.IsNull(i) {
				c.out.AppendNull()
				continue
			}
			d = a.Int[i]
		}
		if c.name == "lag" {
			d = -d
		}
		at := c.shifted(v, i, d, len(s.rows))
		switch {
		case at >= 0:
			c.out.Append(v, at)
		case len(c.spec.Args) > 2:
			c.out.Append(s.part.Cols[c.spec.Args[2]], i)
		default:
			c.out.AppendNull()
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

func (c *overCall) pickValue(o *overOp) {
	s := &o.span
	v := s.part.Cols[c.spec.Args[0]]
	for i := s.a; i < s.b; i++ {
		at := -1
		nth := int64(1)
		if c.name == "nth_value" {
			if a := s.part.Cols[c.spec.Args[1]]; a.IsNull(i) {
				nth = 0
			} else if nth = a.Int[i]; nth <= 0 {
				o.fail(i, pgerr.Newf(codeInvalidNthValue, "argument of nth_value must be greater than zero"))
				nth = 0
			}
		}
		f, err := c.frameOf(o, i)
		switch {
		case err != nil:
			o.fail(i, err)
		case nth == 0:
		case c.name == "last_value":
			for k := f.end - 1; k >= f.start && at < 0; k-- {
				if f.has(k) && !(c.spec.IgnoreNulls && v.IsNull(k)) {
					at = k
				}
			}
		default:
			for k := f.start; k < f.end && at < 0; k++ {
				if f.has(k) && !(c.spec.IgnoreNulls && v.IsNull(k)) {
					if nth--; nth == 0 {
						at = k
					}
				}
			}
		}
		if at < 0 {
			c.out.AppendNull()
		} else {
			c.out.Append(v, at)
		}
	}
}

// aggregate follows the frame from row to row: rows that leave are retracted, so that the work is in what changes.
func (c *overCall) aggregate(o *overOp) error {
	s := &o.span
	c.begin()
	in := make(map[int]bool)
	sliding := frameRows{keep: -1}
	exclude := c.excludes()
	for i := s.a; i < s.b; i++ {
		f, err := c.frameOf(o, i)
		if err != nil {
			o.fail(i, err)
			c.out.AppendNull()
			continue
		}
		if exclude {
			err = c.follow(o, in, f)
		} else {
			err = c.slide(o, &sliding, f)
		}
		if err != nil {
			return err
		}
		failed, fatal := c.final(c.out)
		if fatal != nil {
			return fatal
		}
		if failed != nil {
			o.fail(i, failed)
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
			c.begin()
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
