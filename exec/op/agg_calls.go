package op

import (
	"math"
	"math/big"
	"math/bits"
	"strings"

	"github.com/streamdb/streamdb/internal/pgerr"
	"github.com/streamdb/streamdb/planner/plan"
	"github.com/streamdb/streamdb/types"
)

// aggCall computes one aggregate for all groups. Update is called once per batch, so that the work per row is a typed loop.
type aggCall interface {
	// place tells the call that its words of each group's row start at position at, and returns how many it takes.
	place(at int) int
	// variable calls own a callVar per group, which is part of the group's state.
	variable() bool
	// sided calls own entries in the side table.
	sided() bool
	update(b *aggBatch) error
	// final appends the result for a group to dst, or nothing when it fails.
	final(row []uint64, cv *callVar, dst *types.Vector) error
}

// aggBatch is the rows of one update: groups[i] takes physical row rows[i] (i itself when rows is nil) with weights[i] (1 when nil).
type aggBatch struct {
	c       *types.Chunk
	groups  []uint32
	rows    []uint16
	weights []int64
	wbuf    []int64
}

func (b *aggBatch) row(i int) int {
	if b.rows == nil {
		return i
	}
	return int(b.rows[i])
}

func (b *aggBatch) weight(i int) int64 {
	if b.weights == nil {
		return 1
	}
	return b.weights[i]
}

// reset empties b for rows of c to be added.
func (b *aggBatch) reset(c *types.Chunk) {
	b.c = c
	b.groups = b.groups[:0]
	b.rows = b.rows[:0]
	if b.rows == nil {
		b.rows = make([]uint16, 0, types.MaxChunkRows)
	}
	b.weights = b.wbuf[:0]
}

func (b *aggBatch) add(g uint32, r int, w int64) {
	b.groups = append(b.groups, g)
	b.rows = append(b.rows, uint16(r))
	b.weights = append(b.weights, w)
	b.wbuf = b.weights
}

// funcName returns the name in a function id like "sum(int4)".
func funcName(id string) string {
	name, _, _ := strings.Cut(id, "(")
	return name
}

func (o *aggOp) newCall(no int, c plan.AggCall) (aggCall, error) {
	in := o.ctx.InputTypes[0]
	name := funcName(c.Func)
	retract := !o.ctx.OneShot && !(len(o.node.Inputs) == 1 && o.node.Inputs[0].AppendOnly)
	cb := callBase{o: o, no: no, result: c.Type}
	if len(c.Args) > 0 {
		cb.arg = c.Args[0]
		cb.argType = in[cb.arg]
	}
	cb.count, cb.squares = c.Count, c.Squares
	distinct := c.Distinct
	kind := cb.argType.Kind()
	var call aggCall
	if isOrderedSet(name, c) {
		var err error
		if call, err = o.newOrderedSet(cb, name, c); err != nil {
			return nil, err
		}
	}
	switch name {
	case "approx_count_distinct":
		call, distinct = &countCall{callBase: cb}, true
	case "count":
		call = &countCall{callBase: cb, star: len(c.Args) == 0 || c.Count != nil}
	case "sum", "avg":
		call = cb.newSum(name, retract)
	case "stddev", "stddev_samp", "stddev_pop", "variance", "var_samp", "var_pop":
		stat := statOf(name)
		if kind == types.KindFloat {
			call = &floatCall{callBase: cb, stat: stat, exact: retract}
		} else {
			call = &numericCall{callBase: cb, stat: stat}
		}
	case "min", "max":
		distinct = false
		call = cb.newExtreme(name == "max", retract)
	case "bool_and", "every", "bool_or":
		distinct = false
		call = &boolCall{callBase: cb, or: name == "bool_or"}
	case "bit_and", "bit_or", "bit_xor":
		distinct = distinct && name == "bit_xor"
		call = &bitCall{callBase: cb, op: name[4:]}
	case "corr", "covar_pop", "covar_samp", "regr_avgx", "regr_avgy", "regr_count", "regr_intercept", "regr_r2", "regr_slope", "regr_sxx",
		"regr_sxy", "regr_syy":
		call = &pairCall{callBase: cb, arg2: c.Args[1], name: name}
	case "string_agg", "array_agg", "json_agg", "jsonb_agg", "json_object_agg", "jsonb_object_agg", "$scalar", "$first":
		l, err := o.newList(cb, name, c)
		if err != nil {
			return nil, err
		}
		call, distinct = l, false
	}
	if call == nil {
		return nil, pgerr.Newf(pgerr.FeatureNotSupported, "aggregate %s is not supported here", c.Func).
			WithHint("Use count, sum, avg, min, max, bool_and, bool_or, bit_and, bit_or, string_agg, array_agg, json_agg or the statistical aggregates.")
	}
	if distinct && len(c.Args) > 0 {
		return o.addDistinct(call, no, c.Args, c.Filter), nil
	}
	if c.Filter >= 0 {
		call = &filterCall{aggCall: call, col: c.Filter}
	}
	return call, nil
}

// callBase is what most calls have; the zero methods fit calls without variable part.
type callBase struct {
	o       *aggOp
	no      int // number of the call
	at      int // first word
	arg     int
	argType types.Type
	result  types.Type
	count   *int // columns of plan.AggCall
	squares *int
}

// values returns how many values a row of the batch stands for, times its weight.
func (cb *callBase) values(b *aggBatch, i, r int) int64 {
	if cb.count == nil {
		return b.weight(i)
	}
	return b.weight(i) * b.c.Cols[*cb.count].Int[r]
}

func (*callBase) variable() bool { return false }
func (*callBase) sided() bool    { return false }

// filterCall is FILTER (WHERE …).
type filterCall struct {
	aggCall
	col int
	sub aggBatch
}

func (f *filterCall) update(b *aggBatch) error {
	v := b.c.Cols[f.col]
	f.sub.reset(b.c)
	for i, g := range b.groups {
		if r := b.row(i); !v.IsNull(r) && v.Bool[r] {
			f.sub.add(g, r, b.weight(i))
		}
	}
	if b.weights == nil {
		f.sub.weights = nil
	}
	return f.aggCall.update(&f.sub)
}

// countCall: one word, the count.
type countCall struct {
	callBase
	star bool
}

func (c *countCall) place(at int) int { c.at = at; return 1 }

func (c *countCall) update(b *aggBatch) error {
	t := c.o.groups
	slabs, width, at := t.slabs, t.width, c.at
	var valid types.Bitmap
	if !c.star {
		valid = b.c.Cols[c.arg].Valid
	}
	if valid == nil && b.weights == nil && c.count == nil {
		for _, g := range b.groups {
			slabs[g>>slabBits][int(g&(slabRows-1))*width+at]++
		}
		return nil
	}
	for i, g := range b.groups {
		r := b.row(i)
		if valid != nil && !valid.Get(r) {
			continue
		}
		slabs[g>>slabBits][int(g&(slabRows-1))*width+at] += uint64(c.values(b, i, r))
	}
	return nil
}

func (c *countCall) final(row []uint64, _ *callVar, dst *types.Vector) error {
	pushInt(dst, int64(row[c.at]))
	return nil
}

func pushInt(dst *types.Vector, x int64) {
	n := len(dst.Int)
	dst.Resize(n + 1)
	dst.Int[n] = x
}

func pushFloat(dst *types.Vector, x float64) {
	n := len(dst.Float)
	dst.Resize(n + 1)
	dst.Float[n] = x
}

func pushBool(dst *types.Vector, x bool) {
	n := len(dst.Bool)
	dst.Resize(n + 1)
	dst.Bool[n] = x
}

func pushNumeric(dst *types.Vector, x types.Numeric) {
	n := len(dst.Num)
	dst.Resize(n + 1)
	dst.Num[n] = x
}

func pushString(dst *types.Vector, s string) {
	n := len(dst.Str)
	dst.Resize(n + 1)
	dst.Str[n] = s
}

// intSum is sum and avg of integers: words low and high half of the 128-bit sum, count.
type intSum struct {
	callBase
	avg bool
}

func (c *intSum) place(at int) int { c.at = at; return 3 }

func (c *intSum) update(b *aggBatch) error {
	t := c.o.groups
	slabs, width, at := t.slabs, t.width, c.at
	v := b.c.Cols[c.arg]
	if v.Valid == nil && b.weights == nil && b.rows == nil && c.count == nil {
		for i, x := range v.Int[:len(b.groups)] {
			g := b.groups[i]
			o := int(g&(slabRows-1))*width + at
			w := slabs[g>>slabBits][o : o+3]
			lo, carry := bits.Add64(w[0], uint64(x), 0)
			w[0] = lo
			w[1] += uint64(x>>63) + carry
			w[2]++
		}
		return nil
	}
	for i, g := range b.groups {
		r := b.row(i)
		if v.IsNull(r) {
			continue
		}
		x, wt := v.Int[r], b.weight(i)
		hi, lo := mul128(x, wt)
		o := int(g&(slabRows-1))*width + at
		w := slabs[g>>slabBits][o : o+3]
		var carry uint64
		w[0], carry = bits.Add64(w[0], lo, 0)
		w[1] += hi + carry
		w[2] += uint64(c.values(b, i, r))
	}
	return nil
}

// mul128 returns the signed 128-bit product.
func mul128(a, b int64) (hi, lo uint64) {
	if b == 1 {
		return uint64(a >> 63), uint64(a)
	}
	hi, lo = bits.Mul64(uint64(a), uint64(b))
	return hi - uint64(a>>63)&uint64(b) - uint64(b>>63)&uint64(a), lo
}

func numericFrom128(hi, lo uint64) (types.Numeric, error) {
	if int64(hi) == int64(lo)>>63 {
		return types.NumericFromInt64(int64(lo)), nil
	}
	z := new(big.Int).Lsh(big.NewInt(int64(hi)), 64)
	z.Add(z, new(big.Int).SetUint64(lo))
	return types.NewNumeric(z, 0)
}

func (c *intSum) final(row []uint64, _ *callVar, dst *types.Vector) error {
	lo, hi, n := row[c.at], row[c.at+1], int64(row[c.at+2])
	if n <= 0 {
		dst.AppendNull()
		return nil
	}
	if !c.avg && c.result.Kind() == types.KindInt {
		if int64(hi) != int64(lo)>>63 {
			return pgerr.Newf(pgerr.NumericValueOutOfRange, "bigint out of range")
		}
		pushInt(dst, int64(lo))
		return nil
	}
	sum, err := numericFrom128(hi, lo)
	if err == nil && c.avg {
		sum, err = types.NumDiv(sum, types.NumericFromInt64(n))
	}
	if err != nil {
		return err
	}
	pushNumeric(dst, sum)
	return nil
}

// intervalSum is sum and avg of intervals: words months, days, microseconds, count.
type intervalSum struct {
	callBase
	avg bool
}

func (c *intervalSum) place(at int) int { c.at = at; return 4 }

func (c *intervalSum) update(b *aggBatch) error {
	v := b.c.Cols[c.arg]
	for i, g := range b.groups {
		r := b.row(i)
		if v.IsNull(r) {
			continue
		}
		w, x := b.weight(i), v.Ivl[r]
		row := c.o.groups.row(g)[c.at : c.at+4]
		row[0] += uint64(int64(x.Months) * w)
		row[1] += uint64(int64(x.Days) * w)
		row[2] += uint64(x.Micros * w)
		row[3] += uint64(w)
	}
	return nil
}

func (c *intervalSum) final(row []uint64, _ *callVar, dst *types.Vector) error {
	m, d, us, n := int64(row[c.at]), int64(row[c.at+1]), int64(row[c.at+2]), int64(row[c.at+3])
	if n <= 0 {
		dst.AppendNull()
		return nil
	}
	if m != int64(int32(m)) || d != int64(int32(d)) {
		return pgerr.Newf(pgerr.DatetimeFieldOverflow, "interval out of range")
	}
	iv := types.Interval{Months: int32(m), Days: int32(d), Micros: us}
	if c.avg {
		var err error
		if iv, err = types.IntervalDiv(iv, float64(n)); err != nil {
			return err
		}
	}
	k := len(dst.Ivl)
	dst.Resize(k + 1)
	dst.Ivl[k] = iv
	return nil
}

// boolCall: words count of true, of false.
type boolCall struct {
	callBase
	or bool
}

func (c *boolCall) place(at int) int { c.at = at; return 2 }

func (c *boolCall) update(b *aggBatch) error {
	v := b.c.Cols[c.arg]
	for i, g := range b.groups {
		r := b.row(i)
		if v.IsNull(r) {
			continue
		}
		k := c.at
		if c.count != nil {
			yes := b.weight(i) * v.Int[r]
			w := c.o.groups.row(g)[k : k+2]
			w[0] += uint64(yes)
			w[1] += uint64(c.values(b, i, r) - yes)
			continue
		}
		if !v.Bool[r] {
			k++
		}
		c.o.groups.row(g)[k] += uint64(b.weight(i))
	}
	return nil
}

func (c *boolCall) final(row []uint64, _ *callVar, dst *types.Vector) error {
	yes, no := int64(row[c.at]), int64(row[c.at+1])
	switch {
	case yes <= 0 && no <= 0:
		dst.AppendNull()
	case c.or:
		pushBool(dst, yes > 0)
	default:
		pushBool(dst, no <= 0)
	}
	return nil
}

// bitCall: a word for the count, then per bit the number of values that have it.
type bitCall struct {
	callBase
	op string
}

func (c *bitCall) place(at int) int { c.at = at; return 65 }

func (c *bitCall) update(b *aggBatch) error {
	v := b.c.Cols[c.arg]
	for i, g := range b.groups {
		r := b.row(i)
		if v.IsNull(r) {
			continue
		}
		w := uint64(b.weight(i))
		row := c.o.groups.row(g)[c.at : c.at+65]
		row[0] += w
		for x := uint64(v.Int[r]); x != 0; x &= x - 1 {
			row[1+bits.TrailingZeros64(x)] += w
		}
	}
	return nil
}

func (c *bitCall) final(row []uint64, _ *callVar, dst *types.Vector) error {
	n := int64(row[c.at])
	if n <= 0 {
		dst.AppendNull()
		return nil
	}
	x := uint64(0)
	for k := range 64 {
		k1 := int64(row[c.at+1+k])
		if c.op == "and" && k1 == n || c.op == "or" && k1 > 0 || c.op == "xor" && k1&1 != 0 {
			x |= 1 << k
		}
	}
	pushInt(dst, int64(x))
	return nil
}

// fixedExtreme is min and max of integers and floats that are never retracted: words value, seen.
type fixedExtreme struct {
	callBase
	max bool
}

func (cb callBase) newExtreme(largest, retract bool) aggCall {
	switch k := cb.argType.Kind(); {
	case retract:
		return &sideExtreme{callBase: cb, max: largest}
	case k == types.KindInt || k == types.KindFloat:
		return &fixedExtreme{callBase: cb, max: largest}
	}
	return &varExtreme{callBase: cb, max: largest}
}

func (c *fixedExtreme) place(at int) int { c.at = at; return 2 }

func (c *fixedExtreme) update(b *aggBatch) error {
	v := b.c.Cols[c.arg]
	t := c.o.groups
	slabs, width := t.slabs, t.width
	isInt := c.argType.Kind() == types.KindInt
	for i, g := range b.groups {
		r := b.row(i)
		if v.IsNull(r) || b.weight(i) <= 0 {
			continue
		}
		o := int(g&(slabRows-1))*width + c.at
		w := slabs[g>>slabBits][o : o+2]
		if isInt {
			x := v.Int[r]
			if w[1] == 0 || c.max && x > int64(w[0]) || !c.max && x < int64(w[0]) {
				w[0], w[1] = uint64(x), 1
			}
			continue
		}
		x := v.Float[r]
		if w[1] == 0 || c.max == floatLess(math.Float64frombits(w[0]), x) && x != math.Float64frombits(w[0]) {
			w[0], w[1] = math.Float64bits(x), 1
		}
	}
	return nil
}

// floatLess orders floats as PostgreSQL: NaN above everything, equal to itself.
func floatLess(a, b float64) bool {
	if a != a {
		return false
	}
	return b != b || a < b
}

func (c *fixedExtreme) final(row []uint64, _ *callVar, dst *types.Vector) error {
	switch {
	case row[c.at+1] == 0:
		dst.AppendNull()
	case c.argType.Kind() == types.KindInt:
		pushInt(dst, int64(row[c.at]))
	default:
		pushFloat(dst, math.Float64frombits(row[c.at]))
	}
	return nil
}

// varExtreme is min and max of other types that are never retracted; the extreme is the group's variable part.
type varExtreme struct {
	callBase
	max bool
}

func (c *varExtreme) place(int) int  { return 0 }
func (c *varExtreme) variable() bool { return true }

func (c *varExtreme) update(b *aggBatch) error {
	v := b.c.Cols[c.arg]
	for i, g := range b.groups {
		r := b.row(i)
		if v.IsNull(r) || b.weight(i) <= 0 {
			continue
		}
		cv := &c.o.vars[g][c.no]
		if cv.best == nil {
			cv.best = &types.Vector{Type: c.argType}
		} else {
			k := types.Compare(v, r, cv.best, 0)
			if k == 0 || (k > 0) != c.max {
				continue
			}
			cv.best.Reset()
		}
		cv.best.Append(v, r)
		if c.argType.Kind() == types.KindString {
			cv.best.Str[0] = strings.Clone(cv.best.Str[0]) // the view would keep a whole buffer alive
		}
	}
	return nil
}

func (c *varExtreme) final(_ []uint64, cv *callVar, dst *types.Vector) error {
	if cv.best == nil {
		dst.AppendNull()
		return nil
	}
	dst.Append(cv.best, 0)
	return nil
}
