package op

import (
	"slices"

	"github.com/streamdb/streamdb/planner/plan"
	"github.com/streamdb/streamdb/types"
)

// partialAggOp adds up the rows of each chunk that fall into the same group, so that fewer of them travel to the aggregation proper. It keeps
// nothing from one chunk to the next. Chunks that it cannot add up, or that it would not make smaller, pass with one row per row.
//
// Output: group columns, a column per call, the other columns of the stream key as of the first row of the group: they identify the sum, too.
type partialAggOp struct {
	base
	calls []partialCall
	out   *types.Chunk // of sums
	pass  types.Chunk  // of single rows
	ones  *types.Vector

	mark   int64 // of the window column
	marked bool

	vary   []int // group columns that are not the same in the whole chunk
	hash   []uint64
	grp    []uint16 // group of each selected row
	first  []uint16 // first row of each group
	keys   []uint64 // the one varying column of each group, or the hash of all
	slots  [partialSlots]uint32
	stamp  uint32 // slots of other chunks are free: stamp<<16 | group
	rows   int    // of the trial that runs
	groups int
	chunks int // of the trial
	rest   int // chunks to pass before the next trial
}

var _ Operator = (*partialAggOp)(nil)

const (
	// partialSlots is twice the rows of the largest chunk.
	partialSlots     = 1 << partialSlotBits
	partialSlotBits  = 12
	partialTrial     = 16  // chunks after which the benefit is judged
	partialRest      = 512 // chunks that pass before the next trial
	partialMinFactor = 2   // rows per group that make it worth while
)

// partialCall is one call: its sums per group, and the vector that stands for it in chunks that pass.
type partialCall struct {
	kind   partialKind
	arg    int
	filter int // boolean column, -1: all rows count
	acc    []int64
	seen   []bool // per group, of arguments with NULLs or a filter
	view   *types.Vector
	valid  types.Bitmap // of view, where a filter takes rows away
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
	partialSum
	partialMin
	partialMax
)

func (o *partialAggOp) Open(ctx *Context) error {
	o.ctx = ctx
	p := o.node.PartialAgg
	o.out = types.NewChunk(o.node.Schema.Types())
	o.pass.Cols = make([]*types.Vector, len(o.out.Cols))
	o.ones = &types.Vector{Type: types.Int8, Int: make([]int64, types.MaxChunkRows)}
	for i := range o.ones.Int {
		o.ones.Int[i] = 1
	}
	o.grp = make([]uint16, types.MaxChunkRows)
	o.hash = make([]uint64, types.MaxChunkRows)
	for i, c := range p.Calls {
		call := partialCall{kind: partialKindOf(c), filter: c.Filter, view: &types.Vector{Type: o.node.Schema[len(p.GroupBy)+i].Type}}
		if len(c.Args) > 0 {
			call.arg = c.Args[0]
		}
		o.calls = append(o.calls, call)
	}
	return nil
}

func partialKindOf(c plan.AggCall) partialKind {
	switch funcName(c.Func) {
	case "sum":
		return partialSum
	case "min":
		return partialMin
	case "max":
		return partialMax
	}
	if len(c.Args) == 0 {
		return partialCountAll
	}
	return partialCount
}

func (o *partialAggOp) Process(_ int, c *types.Chunk, out Emitter) error {
	if c.Rows() == 0 {
		return nil
	}
	if o.rest > 0 {
		o.rest--
		return o.passOn(c, out)
	}
	if !o.addable(c) || !o.assign(c) || !o.addUp(c) {
		return o.passOn(c, out)
	}
	o.judge(c.Rows())
	p := o.node.PartialAgg
	o.out.Reset()
	at := 0
	gather := func(cols []int) {
		for _, col := range cols {
			o.out.Cols[at].AppendGather(c.Cols[col], o.first)
			at++
		}
	}
	gather(p.GroupBy)
	for i := range o.calls {
		o.calls[i].results(o.out.Cols[at])
		at++
	}
	gather(p.Rest)
	o.out.N = len(o.first)
	return out.Emit(o.out)
}

// judge ends a trial: when groups are hardly fewer than rows the next chunks pass as they are.
func (o *partialAggOp) judge(rows int) {
	o.rows, o.groups, o.chunks = o.rows+rows, o.groups+len(o.first), o.chunks+1
	if o.chunks < partialTrial {
		return
	}
	if o.groups*partialMinFactor > o.rows {
		o.rest = partialRest
	}
	o.rows, o.groups, o.chunks = 0, 0, 0
}

// passOn emits c with one row per row: the sums of single rows.
func (o *partialAggOp) passOn(c *types.Chunk, out Emitter) error {
	p := o.node.PartialAgg
	cols := o.pass.Cols[:0]
	for _, g := range p.GroupBy {
		cols = append(cols, c.Cols[g])
	}
	for i := range o.calls {
		cols = append(cols, o.single(&o.calls[i], c))
	}
	for _, k := range p.Rest {
		cols = append(cols, c.Cols[k])
	}
	o.pass = types.Chunk{Cols: cols, N: c.N, Sel: c.Sel, Weights: c.Weights}
	return out.Emit(&o.pass)
}

func (o *partialAggOp) single(call *partialCall, c *types.Chunk) *types.Vector {
	v := call.view
	if call.filter >= 0 {
		return call.filtered(c)
	}
	switch call.kind {
	case partialCountAll:
		v.Int = o.ones.Int[:c.N]
	case partialCount:
		arg := c.Cols[call.arg]
		if arg.Valid == nil {
			v.Int = o.ones.Int[:c.N]
			break
		}
		call.acc = slices.Grow(call.acc[:0], c.N)[:c.N]
		for i := range call.acc {
			call.acc[i] = 0
			if arg.Valid.Get(i) {
				call.acc[i] = 1
			}
		}
		v.Int = call.acc
	default:
		arg := c.Cols[call.arg]
		v.Int, v.Valid = arg.Int, arg.Valid
	}
	return v
}

// filtered is single of a call with a filter: rows that do not pass count for nothing.
func (p *partialCall) filtered(c *types.Chunk) *types.Vector {
	v := p.view
	p.acc = slices.Grow(p.acc[:0], c.N)[:c.N]
	clear(p.acc)
	if p.kind == partialCountAll || p.kind == partialCount {
		for i := range c.Rows() {
			if r := c.Row(i); p.passes(c, r) && (p.kind == partialCountAll || !c.Cols[p.arg].IsNull(r)) {
				p.acc[r] = 1
			}
		}
		v.Int = p.acc
		return v
	}
	arg := c.Cols[p.arg]
	p.valid = slices.Grow(p.valid[:0], (c.N+63)/64)[:(c.N+63)/64]
	clear(p.valid)
	for i := range c.Rows() {
		if r := c.Row(i); p.passes(c, r) && !arg.IsNull(r) {
			p.valid.Set(r)
		}
	}
	v.Int, v.Valid = arg.Int, p.valid
	return v
}

// addable reports whether the rows of c can be added up: plain insertions without NULLs in the group, none of them behind the watermark
// (late rows are counted and kept one by one). It lists the group columns that vary.
func (o *partialAggOp) addable(c *types.Chunk) bool {
	if c.Weights != nil || c.N > types.MaxChunkRows {
		return false
	}
	p := o.node.PartialAgg
	o.vary = o.vary[:0]
	for i, g := range p.GroupBy {
		v := c.Cols[g]
		if v.Valid != nil {
			return false
		}
		if v.Type.Kind() != types.KindInt {
			o.vary = append(o.vary, g)
			continue
		}
		low := v.Int[c.Row(0)]
		if !same(v.Int[:c.N], low) {
			o.vary = append(o.vary, g)
			if i == p.OnClose {
				low = slices.Min(v.Int[:c.N])
			}
		}
		if i == p.OnClose && o.marked && low < o.mark {
			return false
		}
	}
	return true
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

// assign finds the group of each row. It fails when two groups have the same hash.
func (o *partialAggOp) assign(c *types.Chunk) bool {
	o.first, o.keys = o.first[:0], o.keys[:0]
	o.stamp++
	if o.stamp == 1<<16 {
		o.slots = [partialSlots]uint32{}
		o.stamp = 1
	}
	if len(o.vary) == 0 {
		clear(o.grp[:c.Rows()])
		o.first = append(o.first, uint16(c.Row(0)))
		return true
	}
	exact := len(o.vary) == 1 && c.Cols[o.vary[0]].Type.Kind() == types.KindInt
	if exact {
		o.probeInts(c, c.Cols[o.vary[0]].Int)
		return true
	}
	types.HashRows(c, o.vary, o.hash[:c.N])
	for i := range c.Rows() {
		r := c.Row(i)
		o.grp[i] = o.find(o.hash[r], o.hash[r]>>(64-partialSlotBits), r)
	}
	return o.verify(c)
}

func (o *partialAggOp) probeInts(c *types.Chunk, keys []int64) {
	const golden = 0x9e3779b97f4a7c15
	for i := range c.Rows() {
		r := c.Row(i)
		k := uint64(keys[r])
		p := k * golden >> (64 - partialSlotBits)
		if s := o.slots[p]; s>>16 == o.stamp && o.keys[s&0xffff] == k {
			o.grp[i] = uint16(s)
			continue
		}
		o.grp[i] = o.find(k, p, r)
	}
}

// find returns the group of key k, looked for from slot p on; row r is the first of a new one.
func (o *partialAggOp) find(k, p uint64, r int) uint16 {
	for ; ; p++ {
		s := &o.slots[p%partialSlots]
		if *s>>16 != o.stamp {
			g := len(o.first)
			*s = o.stamp<<16 | uint32(g)
			o.first = append(o.first, uint16(r))
			o.keys = append(o.keys, k)
			return uint16(g)
		}
		if o.keys[*s&0xffff] == k {
			return uint16(*s)
		}
	}
}

// verify reports whether all rows have the key of their group.
func (o *partialAggOp) verify(c *types.Chunk) bool {
	for _, col := range o.vary {
		v := c.Cols[col]
		for i := range c.Rows() {
			r, f := c.Row(i), int(o.first[o.grp[i]])
			if v.Type.Kind() == types.KindInt {
				if v.Int[r] != v.Int[f] {
					return false
				}
			} else if v.Str[r] != v.Str[f] {
				return false
			}
		}
	}
	return true
}

// addUp computes the calls. It fails when a sum overflows.
func (o *partialAggOp) addUp(c *types.Chunk) bool {
	n := len(o.first)
	grp := o.grp[:c.Rows()]
	for i := range o.calls {
		call := &o.calls[i]
		call.acc = slices.Grow(call.acc[:0], n)[:n]
		call.seen = call.seen[:0]
		clear(call.acc)
		if call.kind == partialCountAll {
			if call.filter >= 0 {
				call.countFiltered(c, grp)
				continue
			}
			acc := call.acc
			for _, g := range grp {
				acc[g]++
			}
			continue
		}
		v := c.Cols[call.arg]
		switch {
		case call.kind == partialCount:
			call.count(c, v, grp)
		case v.Valid != nil || call.filter >= 0:
			if !call.withNulls(c, v, grp) {
				return false
			}
		case call.kind == partialSum:
			if !call.sum(c, v.Int, grp) {
				return false
			}
		default:
			call.extreme(c, v.Int, grp, o.first)
		}
	}
	return true
}

func (p *partialCall) count(c *types.Chunk, v *types.Vector, grp []uint16) {
	for i, g := range grp {
		if r := c.Row(i); !v.IsNull(r) && p.passes(c, r) {
			p.acc[g]++
		}
	}
}

func (p *partialCall) countFiltered(c *types.Chunk, grp []uint16) {
	for i, g := range grp {
		if p.passes(c, c.Row(i)) {
			p.acc[g]++
		}
	}
}

func (p *partialCall) sum(c *types.Chunk, v []int64, grp []uint16) bool {
	acc, over := p.acc, int64(0)
	if c.Sel == nil {
		for i, x := range v[:len(grp)] {
			a := acc[grp[i]]
			s := a + x
			over |= (a ^ s) & (x ^ s)
			acc[grp[i]] = s
		}
		return over >= 0
	}
	for i, r := range c.Sel {
		x, a := v[r], acc[grp[i]]
		s := a + x
		over |= (a ^ s) & (x ^ s)
		acc[grp[i]] = s
	}
	return over >= 0
}

func (p *partialCall) extreme(c *types.Chunk, v []int64, grp, first []uint16) {
	acc := p.acc
	for g, r := range first {
		acc[g] = v[r]
	}
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

// withNulls is sum, min and max where not every row counts.
func (p *partialCall) withNulls(c *types.Chunk, v *types.Vector, grp []uint16) bool {
	p.seen = slices.Grow(p.seen, len(p.acc))[:len(p.acc)]
	clear(p.seen)
	for i, g := range grp {
		r := c.Row(i)
		if v.IsNull(r) || !p.passes(c, r) {
			continue
		}
		x, a := v.Int[r], p.acc[g]
		switch {
		case !p.seen[g]:
			p.acc[g], p.seen[g] = x, true
		case p.kind == partialMax:
			p.acc[g] = max(a, x)
		case p.kind == partialMin:
			p.acc[g] = min(a, x)
		default:
			s := a + x
			if (a^s)&(x^s) < 0 {
				return false
			}
			p.acc[g] = s
		}
	}
	return true
}

// results appends the sums of all groups to dst.
func (p *partialCall) results(dst *types.Vector) {
	dst.Int = append(dst.Int, p.acc...)
	for g, ok := range p.seen {
		if !ok {
			dst.SetNull(g)
		}
	}
}

func (o *partialAggOp) Watermark(_ int, w Watermark, out Emitter) error {
	p := o.node.PartialAgg
	for i, g := range p.GroupBy {
		if g != w.Column {
			continue
		}
		if i == p.OnClose {
			o.mark, o.marked = w.Value, true
		}
		if err := out.EmitWatermark(Watermark{Column: i, Value: w.Value}); err != nil {
			return err
		}
	}
	return nil
}
