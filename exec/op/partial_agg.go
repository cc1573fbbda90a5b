package op

import (
	"slices"

	"github.com/streamdb/streamdb/checkpoint"
	"github.com/streamdb/streamdb/planner/plan"
	"github.com/streamdb/streamdb/types"
)

// partialAggOp adds up rows that fall into the same group before they travel to the aggregation proper: a key that most rows have is one row then, instead of
// the work of one subtask. The sums that it holds are few, whatever keys there are, and none outlives an epoch. Chunks that it cannot add up pass with one
// row per row, as do all for a while where groups are hardly fewer than rows.
//
// It consolidates rows whose values the aggregation needs, where sums do not do: their count is the weight of the row then.
//
// Output: group columns, a column per call, of old plans the columns Rest as of the first row of the group. A row is a change: the sums of rows that are
// retracted go down.
type partialAggOp struct {
	base
	calls []partialCall
	skips bool // groups in which nothing is left need not be told of

	marks []portMark // of the group columns

	held    *types.Chunk // the groups: their keys, sums, columns of Rest
	holding int          // chunks that they are of
	vary    []bool       // group columns that are not the same in all of held
	cols    []int        // their positions in the input
	hash    []uint64
	grp     []uint16 // group of each selected row
	fresh   []uint16 // first row of each new group
	keys    []uint64 // the one varying column of each group, or the hash of all
	slots   [partialSlots]uint32
	stamp   uint32 // slots of other chunks are free: stamp<<16 | group
	piece   *types.Chunk
	weights []int64 // of piece, when rows are consolidated
	sel     []uint16

	pass types.Chunk // of single rows
	ones []int64

	trial trial
}

var _ Operator = (*partialAggOp)(nil)

const (
	// partialGroups is how many groups are held at most between two chunks; one chunk adds as many as it has rows.
	partialGroups = types.MaxChunkRows
	// partialSlots is twice the groups that there can be.
	partialSlots    = 1 << partialSlotBits
	partialSlotBits = 13
	// partialChunks bounds how long sums are held, and the strings' buffers that they keep alive.
	partialChunks = 64
	partialRun    = 256 // rows of a chunk with one value of a column that varied: the next ones will have one, too
)

// trial finds out whether an operator that is there to leave fewer rows does so. Where it does not, chunks pass for a while as they are.
type trial struct {
	rows, left, chunks int // of the trial that runs
	rest               int // chunks to pass before the next one
}

const (
	trialChunks = 16  // after which the benefit is judged
	trialRest   = 512 // chunks that pass before the next trial
	// Rows per trialPerLeft that are left which make it worth while. For an aggregation one key that a third of the rows have is enough.
	trialPerRows = 3
	trialPerLeft = 2
)

// passes reports whether the next chunk is to pass as it is.
func (t *trial) passes() bool {
	if t.rest == 0 {
		return false
	}
	t.rest--
	return true
}

// judge takes the rows of a chunk and how many were left of them. When hardly fewer were over the whole trial it returns true, and the next chunks pass.
func (t *trial) judge(rows, left int) bool {
	t.rows, t.left, t.chunks = t.rows+rows, t.left+left, t.chunks+1
	if t.chunks < trialChunks {
		return false
	}
	useless := t.rows*trialPerLeft < t.left*trialPerRows
	*t = trial{}
	if useless {
		t.rest = trialRest
	}
	return useless
}

// partialCall is one call: its sums per group, and the vector that stands for it in chunks that pass.
type partialCall struct {
	kind   partialKind
	arg    int
	filter int           // boolean column, -1: all rows count
	out    *types.Vector // of held
	acc    []int64       // of integers; it is out's
	next   []int64       // acc with a chunk that may not fit
	seen   []bool        // groups that have a value; empty while all do
	view   *types.Vector
	valid  types.Bitmap // of view, where a filter takes rows away
	buf    []int64
	nums   []types.Numeric
	scales []int16 // of the values of each group, -1: none yet
}

// passes reports whether a row counts.
func (p *partialCall) passes(c *types.Chunk, r int) bool {
	if p.filter < 0 {
		return true
	}
	v := c.Cols[p.filter]
	return !v.IsNull(r) && v.Bool[r]
}

type partialKind uint8

const (
	partialCountAll partialKind = iota
	partialCount
	partialCountTrue
	partialSum        // of integers
	partialSumNumeric // also of integers' squares
	partialSquares
	partialMin
	partialMax
)

func partialKindOf(c plan.AggCall, arg types.Kind) partialKind {
	switch funcName(c.Func) {
	case "sum":
		if arg == types.KindNumeric {
			return partialSumNumeric
		}
		return partialSum
	case plan.SumOfSquares:
		return partialSquares
	case plan.CountTrue:
		return partialCountTrue
	case "min", "bool_and":
		return partialMin
	case "max", "bool_or":
		return partialMax
	}
	if len(c.Args) == 0 {
		return partialCountAll
	}
	return partialCount
}

// counts reports whether the call's sums are never NULL.
func (p *partialCall) counts() bool { return p.kind <= partialCountTrue }

func (p *partialCall) numeric() bool { return p.kind == partialSumNumeric || p.kind == partialSquares }

func (o *partialAggOp) Open(ctx *Context) error {
	o.ctx = ctx
	p := o.node.PartialAgg
	ts := o.node.Schema.Types()
	o.held, o.piece = types.NewChunk(ts), types.NewChunk(ts)
	o.pass.Cols = make([]*types.Vector, len(ts))
	o.ones = make([]int64, types.MaxChunkRows)
	for i := range o.ones {
		o.ones[i] = 1
	}
	o.grp = make([]uint16, types.MaxChunkRows)
	o.hash = make([]uint64, types.MaxChunkRows)
	o.vary = make([]bool, len(p.GroupBy))
	o.marks = make([]portMark, len(p.GroupBy))
	o.skips = p.Rows != nil || p.Consolidate
	o.stamp = 1
	for i, c := range p.Calls {
		col := len(p.GroupBy) + i
		call := partialCall{filter: c.Filter, out: o.held.Cols[col], view: &types.Vector{Type: ts[col]}}
		kind := types.KindInvalid
		if len(c.Args) > 0 {
			call.arg = c.Args[0]
			kind = ctx.InputTypes[0][call.arg].Kind()
		}
		call.kind = partialKindOf(c, kind)
		o.calls = append(o.calls, call)
	}
	if p.Consolidate {
		o.calls = []partialCall{{kind: partialCountAll, filter: -1, out: &types.Vector{Type: types.Int8}}}
	}
	return nil
}

func (o *partialAggOp) Process(_ int, c *types.Chunk, out Emitter) error {
	if c.Rows() == 0 {
		return nil
	}
	if o.trial.passes() || !o.addable(c) {
		return o.passOn(c, out)
	}
	if o.held.N > 0 && !o.fits(c) {
		if err := o.flush(out); err != nil {
			return err
		}
	}
	o.begin(c)
	before := o.held.N
	fit := o.assign(c)
	if fit {
		var err error
		if fit, err = o.addUp(c, before); err != nil {
			return err
		}
	}
	if !fit {
		o.forget(before)
		if err := o.flush(out); err != nil {
			return err
		}
		o.trial.judge(c.Rows(), c.Rows())
		return o.passOn(c, out)
	}
	o.holding++
	if o.trial.judge(c.Rows(), o.held.N-before) || o.held.N >= partialGroups || o.holding >= partialChunks {
		return o.flush(out)
	}
	return nil
}

// passOn emits c with one row per row: the sums of single rows.
func (o *partialAggOp) passOn(c *types.Chunk, out Emitter) error {
	p := o.node.PartialAgg
	cols := o.pass.Cols[:0]
	for _, g := range p.GroupBy {
		cols = append(cols, c.Cols[g])
	}
	for i := range p.Calls {
		v, err := o.single(&o.calls[i], c)
		if err != nil {
			return err
		}
		cols = append(cols, v)
	}
	for _, k := range p.Rest {
		cols = append(cols, c.Cols[k])
	}
	o.pass = types.Chunk{Cols: cols, N: c.N, Sel: c.Sel, Weights: c.Weights}
	return out.Emit(&o.pass)
}

// single returns the sums of single rows. Rows that do not pass count for nothing.
func (o *partialAggOp) single(p *partialCall, c *types.Chunk) (*types.Vector, error) {
	v := p.view
	if p.counts() {
		v.Int = p.singleCounts(c, o.ones)
		return v, nil
	}
	arg := c.Cols[p.arg]
	valid := arg.Valid
	if p.filter >= 0 {
		n := (c.N + 63) / 64
		p.valid = slices.Grow(p.valid[:0], n)[:n]
		clear(p.valid)
		for i := range c.Rows() {
			if r := c.Row(i); !arg.IsNull(r) && p.passes(c, r) {
				p.valid.Set(r)
			}
		}
		valid = p.valid
	}
	if p.kind != partialSquares {
		t := v.Type
		*v = *arg
		v.Type, v.Valid = t, valid
		return v, nil
	}
	p.nums = slices.Grow(p.nums[:0], c.N)[:c.N]
	clear(p.nums)
	for i := range c.Rows() {
		r := c.Row(i)
		if valid != nil && !valid.Get(r) {
			continue
		}
		var err error
		if p.nums[r], err = squareOf(arg, r); err != nil {
			return nil, err
		}
	}
	v.Num, v.Valid = p.nums, valid
	return v, nil
}

func (p *partialCall) singleCounts(c *types.Chunk, ones []int64) []int64 {
	if p.filter < 0 && p.kind != partialCountTrue && (p.kind == partialCountAll || c.Cols[p.arg].Valid == nil) && c.N <= len(ones) {
		return ones[:c.N]
	}
	p.buf = slices.Grow(p.buf[:0], c.N)[:c.N]
	clear(p.buf)
	for i := range c.Rows() {
		if r := c.Row(i); p.counted(c, r) {
			p.buf[r] = 1
		}
	}
	return p.buf
}

// counted reports whether a row is one of those that the call counts.
func (p *partialCall) counted(c *types.Chunk, r int) bool {
	if !p.passes(c, r) {
		return false
	}
	if p.kind == partialCountAll {
		return true
	}
	v := c.Cols[p.arg]
	return !v.IsNull(r) && (p.kind == partialCount || v.Bool[r])
}

func numberAt(v *types.Vector, r int) types.Numeric {
	if v.Type.Kind() == types.KindInt {
		return types.NumericFromInt64(v.Int[r])
	}
	return v.Num[r]
}

// squareOf returns the square of a number; one that is not finite stands for itself.
func squareOf(v *types.Vector, r int) (types.Numeric, error) {
	x := numberAt(v, r)
	if x.Form != types.Finite {
		return x, nil
	}
	return types.NumMul(x, x)
}

// addable reports whether the rows of c can be added up: none of them is behind the watermark (late rows are counted and kept one by one).
func (o *partialAggOp) addable(c *types.Chunk) bool {
	if c.N > types.MaxChunkRows {
		return false
	}
	p := o.node.PartialAgg
	return p.OnClose < 0 || o.marks[p.OnClose].passed(c.Cols[p.GroupBy[p.OnClose]], c.N)
}

// fits reports whether the groups of c can be told from those held by the columns that vary among these.
func (o *partialAggOp) fits(c *types.Chunk) bool {
	for i, g := range o.node.PartialAgg.GroupBy {
		if v := c.Cols[g]; o.vary[i] && len(o.cols) > 1 && c.N >= partialRun && constant(c, v) {
			o.vary[i] = false // windows follow each other, and a chunk had two
			return false
		}
		if v, x := c.Cols[g], o.held.Cols[i]; !o.vary[i] && (v.Int[c.Row(0)] != x.Int[0] || !constant(c, v)) {
			o.vary[i] = o.holding == 1 // chunks of few rows differ in what each has one value of
			return false
		}
	}
	return true
}

// begin lists the group columns that vary, when nothing is held yet. Those that have varied since the last barrier are taken to do so.
func (o *partialAggOp) begin(c *types.Chunk) {
	if o.held.N > 0 {
		return
	}
	o.cols = o.cols[:0]
	for i, g := range o.node.PartialAgg.GroupBy {
		if v := c.Cols[g]; o.vary[i] || !constant(c, v) {
			o.vary[i] = true
			o.cols = append(o.cols, g)
		}
	}
}

// constant reports whether v is one integer in all rows of c.
func constant(c *types.Chunk, v *types.Vector) bool {
	return v.Type.Kind() == types.KindInt && v.Valid == nil && same(v.Int[:c.N], v.Int[c.Row(0)])
}

// same reports whether all elements of s are x.
func same(s []int64, x int64) bool {
	for len(s) >= 4 {
		if (s[0]^x)|(s[1]^x)|(s[2]^x)|(s[3]^x) != 0 {
			return false
		}
		s = s[4:]
	}
	for _, y := range s {
		if y != x {
			return false
		}
	}
	return true
}

// assign finds the group of each row and adds the keys of new groups to those held. It fails when two groups have the same hash.
func (o *partialAggOp) assign(c *types.Chunk) bool {
	before := o.held.N
	o.fresh = o.fresh[:0]
	ints := len(o.cols) == 1 && c.Cols[o.cols[0]].Type.Kind() == types.KindInt
	switch {
	case len(o.cols) == 0:
		clear(o.grp[:c.Rows()])
		if before == 0 {
			o.fresh = append(o.fresh, uint16(c.Row(0)))
		}
	case ints && c.Cols[o.cols[0]].Valid == nil:
		o.probeInts(c, c.Cols[o.cols[0]].Int, uint16(before))
	default:
		types.HashRows(c, o.cols, o.hash[:c.N])
		if ints { // where they are not NULL, other chunks know them by their values
			v := c.Cols[o.cols[0]]
			for r := range c.N {
				if !v.IsNull(r) {
					o.hash[r] = uint64(v.Int[r])
				}
			}
		}
		for i := range c.Rows() {
			r := c.Row(i)
			o.grp[i] = o.find(o.hash[r], slotOf(o.hash[r]), r, uint16(before))
		}
	}
	p := o.node.PartialAgg
	for i, g := range p.GroupBy {
		o.held.Cols[i].AppendGather(c.Cols[g], o.fresh)
	}
	at := len(p.GroupBy) + len(p.Calls)
	for i, k := range p.Rest {
		o.held.Cols[at+i].AppendGather(c.Cols[k], o.fresh)
	}
	o.held.N += len(o.fresh)
	return ints && c.Cols[o.cols[0]].Valid == nil && o.held.Cols[slices.Index(o.vary, true)].Valid == nil || o.verify(c)
}

func slotOf(k uint64) uint64 {
	const golden = 0x9e3779b97f4a7c15
	return k * golden >> (64 - partialSlotBits)
}

func (o *partialAggOp) probeInts(c *types.Chunk, keys []int64, before uint16) {
	for i := range c.Rows() {
		r := c.Row(i)
		k := uint64(keys[r])
		p := slotOf(k)
		if s := o.slots[p]; s>>16 == o.stamp && o.keys[s&0xffff] == k {
			o.grp[i] = uint16(s)
			continue
		}
		o.grp[i] = o.find(k, p, r, before)
	}
}

// find returns the group of key k, looked for from slot p on; row r is the first of a new one.
func (o *partialAggOp) find(k, p uint64, r int, before uint16) uint16 {
	for ; ; p++ {
		s := &o.slots[p%partialSlots]
		if *s>>16 != o.stamp {
			g := before + uint16(len(o.fresh))
			*s = o.stamp<<16 | uint32(g)
			o.fresh = append(o.fresh, uint16(r))
			o.keys = append(o.keys, k)
			return g
		}
		if o.keys[*s&0xffff] == k {
			return uint16(*s)
		}
	}
}

// verify reports whether all rows have the key of their group. Rows that are consolidated are the same to the form of their values.
func (o *partialAggOp) verify(c *types.Chunk) bool {
	exact := o.node.PartialAgg.Consolidate
	for i, col := range o.node.PartialAgg.GroupBy {
		if !o.vary[i] {
			continue
		}
		v, x := c.Cols[col], o.held.Cols[i]
		plain := v.Type.OID == types.OIDText || v.Type.OID == types.OIDVarchar
		for i := range c.Rows() {
			r, g := c.Row(i), int(o.grp[i])
			switch {
			case exact:
				if !sameValue(v, r, x, g) {
					return false
				}
			case v.IsNull(r) || x.IsNull(g):
				if v.IsNull(r) != x.IsNull(g) {
					return false
				}
			case plain:
				if v.Str[r] != x.Str[g] {
					return false
				}
			case types.Compare(v, r, x, g) != 0:
				return false
			}
		}
	}
	return true
}

// addUp computes the calls; the first groups were there before. It returns false, and has added nothing, when a sum overflows or cannot be told in one row.
func (o *partialAggOp) addUp(c *types.Chunk, before int) (bool, error) {
	grp, n := o.grp[:c.Rows()], o.held.N
	for i := range o.calls {
		p := &o.calls[i]
		if p.kind == partialSum && !p.sum(c, grp, n) || p.kind == partialSumNumeric && o.skips && !p.sameScale(c, grp, n) {
			return false, nil
		}
	}
	for i := range o.calls {
		p := &o.calls[i]
		switch {
		case p.counts():
			p.acc = zeroTo(p.acc, n)
			p.count(c, grp)
		case p.kind == partialSum:
			p.acc, p.next = p.next, p.acc
			p.note(c, grp, before, n)
		case p.numeric():
			p.out.Resize(n)
			clear(p.out.Num[before:])
			p.note(c, grp, before, n)
			if err := p.addNumbers(c, grp); err != nil {
				return false, err
			}
		case p.out.Type.Kind() == types.KindInt && c.Cols[p.arg].Valid == nil && p.filter < 0 && len(p.seen) == 0:
			p.extreme(c, grp, o.fresh)
		default:
			p.extremeOf(c, grp, before, n)
		}
	}
	return true, nil
}

// zeroTo lengthens s by zeros.
func zeroTo(s []int64, n int) []int64 {
	for len(s) < n {
		s = append(s, 0)
	}
	return s
}

func (p *partialCall) count(c *types.Chunk, grp []uint16) {
	acc := p.acc
	if p.kind == partialCountAll && p.filter < 0 && c.Weights == nil {
		for _, g := range grp {
			acc[g]++
		}
		return
	}
	if p.kind == partialCountAll && c.Weights == nil && c.Cols[p.filter].Valid == nil {
		passes := c.Cols[p.filter].Bool
		for i, g := range grp {
			n := int64(0)
			if passes[c.Row(i)] {
				n = 1
			}
			acc[g] += n
		}
		return
	}
	for i, g := range grp {
		if r := c.Row(i); p.counted(c, r) {
			acc[g] += c.Weight(r)
		}
	}
}

// sum computes next. It fails when a sum overflows.
func (p *partialCall) sum(c *types.Chunk, grp []uint16, n int) bool {
	p.next = zeroTo(append(p.next[:0], p.acc...), n)
	acc, over := p.next, int64(0)
	arg := c.Cols[p.arg]
	v := arg.Int
	if c.Sel == nil && c.Weights == nil && arg.Valid == nil && p.filter < 0 {
		for i, x := range v[:len(grp)] {
			a := acc[grp[i]]
			s := a + x
			over |= (a ^ s) & (x ^ s)
			acc[grp[i]] = s
		}
		return over >= 0
	}
	for i, g := range grp {
		r := c.Row(i)
		if arg.IsNull(r) || !p.passes(c, r) {
			continue
		}
		x, a := v[r], acc[g]
		if c.Weights != nil {
			hi, lo := mul128(x, c.Weights[r])
			if x = int64(lo); int64(hi) != x>>63 {
				return false
			}
		}
		s := a + x
		over |= (a ^ s) & (x ^ s)
		acc[g] = s
	}
	return over >= 0
}

// sameScale reports whether the values of each group have one display scale: the aggregation shows the largest that is left, and counts them. It notes those
// of the groups.
func (p *partialCall) sameScale(c *types.Chunk, grp []uint16, n int) bool {
	for len(p.scales) < n {
		p.scales = append(p.scales, -1)
	}
	v := c.Cols[p.arg]
	for i, g := range grp {
		r := c.Row(i)
		if v.IsNull(r) || !p.passes(c, r) {
			continue
		}
		x := &v.Num[r]
		if x.Form != types.Finite || p.scales[g] >= 0 && p.scales[g] != x.Scale {
			return false
		}
		p.scales[g] = x.Scale
	}
	return true
}

func (p *partialCall) addNumbers(c *types.Chunk, grp []uint16) error {
	v, acc := c.Cols[p.arg], p.out.Num
	for i, g := range grp {
		r := c.Row(i)
		if v.IsNull(r) || !p.passes(c, r) {
			continue
		}
		x := numberAt(v, r)
		var err error
		if p.kind == partialSquares {
			if x, err = squareOf(v, r); err != nil {
				return err
			}
		}
		if acc[g], err = addWeighted(acc[g], x, c.Weight(r)); err != nil {
			return err
		}
	}
	return nil
}

// note keeps which groups have a value, once some may not.
func (p *partialCall) note(c *types.Chunk, grp []uint16, before, n int) {
	v := c.Cols[p.arg]
	if v.Valid == nil && p.filter < 0 && len(p.seen) == 0 {
		return
	}
	p.listSeen(before, n)
	for i, g := range grp {
		if r := c.Row(i); !v.IsNull(r) && p.passes(c, r) {
			p.seen[g] = true
		}
	}
}

// listSeen makes seen one of n groups: new ones have no value, those before had one if nothing else was noted.
func (p *partialCall) listSeen(before, n int) {
	had := len(p.seen) == 0
	for len(p.seen) < before {
		p.seen = append(p.seen, had)
	}
	for len(p.seen) < n {
		p.seen = append(p.seen, false)
	}
}

// extreme is min and max of integers where all rows count; rows fresh are the first of new groups.
func (p *partialCall) extreme(c *types.Chunk, grp, fresh []uint16) {
	v := c.Cols[p.arg].Int
	for _, r := range fresh {
		p.acc = append(p.acc, v[r])
	}
	acc := p.acc
	if p.kind == partialMax {
		for i, g := range grp {
			acc[g] = max(acc[g], v[c.Row(i)])
		}
		return
	}
	for i, g := range grp {
		acc[g] = min(acc[g], v[c.Row(i)])
	}
}

// extremeOf is min and max of any type.
func (p *partialCall) extremeOf(c *types.Chunk, grp []uint16, before, n int) {
	v, x := c.Cols[p.arg], p.out
	p.listSeen(before, n)
	if x.Type.Kind() == types.KindInt {
		p.acc = zeroTo(p.acc, n)
		x.Int = p.acc
	} else {
		x.Resize(n)
	}
	for i, g := range grp {
		r := c.Row(i)
		if v.IsNull(r) || !p.passes(c, r) {
			continue
		}
		if p.seen[g] {
			if k := types.Compare(v, r, x, int(g)); k == 0 || (k > 0) != (p.kind == partialMax) {
				continue
			}
		}
		p.seen[g] = true
		x.SetValue(int(g), v, r)
	}
}

// forget drops the groups behind the first n, of which nothing was added up.
func (o *partialAggOp) forget(n int) {
	for _, v := range o.held.Cols {
		v.Resize(min(v.Len(), n))
	}
	o.held.N, o.keys = n, o.keys[:min(len(o.keys), n)]
}

// flush emits what is held.
func (o *partialAggOp) flush(out Emitter) error {
	n := o.held.N
	if n > 0 {
		for i := range o.calls {
			p := &o.calls[i]
			if p.out.Type.Kind() == types.KindInt {
				p.out.Int = p.acc
			}
			for g, ok := range p.seen {
				if !ok {
					p.out.SetNull(g)
				}
			}
		}
		if err := o.emitHeld(out); err != nil {
			return err
		}
	}
	o.held.Reset()
	for i := range o.calls {
		p := &o.calls[i]
		p.acc, p.seen, p.scales = p.acc[:0], p.seen[:0], p.scales[:0]
	}
	o.keys, o.holding = o.keys[:0], 0
	if o.stamp++; o.stamp == 1<<16 {
		o.slots = [partialSlots]uint32{}
		o.stamp = 1
	}
	return nil
}

func (o *partialAggOp) emitHeld(out Emitter) error {
	n := o.held.N
	if !o.skips && n <= types.MaxChunkRows {
		return out.Emit(o.held)
	}
	sel := o.sel[:0]
	for g := range n {
		if !o.skips || !o.nothing(g) {
			sel = append(sel, uint16(g))
		}
	}
	o.sel = sel
	for len(sel) > 0 {
		k := min(len(sel), types.MaxChunkRows)
		o.piece.Reset()
		for i, v := range o.piece.Cols {
			v.AppendGather(o.held.Cols[i], sel[:k])
		}
		o.piece.N = k
		if o.node.PartialAgg.Consolidate {
			o.weights = o.weights[:0]
			for _, g := range sel[:k] {
				o.weights = append(o.weights, o.calls[0].acc[g])
			}
			o.piece.Weights = o.weights
		}
		if err := out.Emit(o.piece); err != nil {
			return err
		}
		sel = sel[k:]
	}
	return nil
}

// nothing reports whether what was added to a group has been taken out again.
func (o *partialAggOp) nothing(g int) bool {
	for i := range o.calls {
		switch p := &o.calls[i]; {
		case p.numeric():
			if p.out.Num[g].Sign() != 0 {
				return false
			}
		case p.acc[g] != 0:
			return false
		}
	}
	return true
}

func (o *partialAggOp) Watermark(_ int, w Watermark, out Emitter) error {
	p := o.node.PartialAgg
	for i, g := range p.GroupBy {
		if g != w.Column {
			continue
		}
		if o.marks[i].raise(w.Value) {
			if err := o.flush(out); err != nil {
				return err
			}
		}
		if err := out.EmitWatermark(Watermark{Column: i, Value: w.Value}); err != nil {
			return err
		}
	}
	return nil
}

func (o *partialAggOp) Barrier(_ checkpoint.Barrier, out Emitter) error {
	clear(o.vary)
	return o.flush(out)
}
