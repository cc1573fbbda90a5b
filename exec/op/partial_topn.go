package op

import (
	"math"

	"github.com/streamdb/streamdb/types"
)

// partialTopNOp drops rows that a Top-N behind an exchange cannot show, because enough rows that come before them have passed here. It knows of the best values of few
// groups and keeps no rows, so what it has seen needs no checkpoint. Where hardly any row is dropped all pass for a while.
type partialTopNOp struct {
	base
	groups *groupTable
	mark   int64 // of the column OnClose: rows below are late, and pass to be told of
	marked bool

	grp   []uint32
	words []uint64
	sel   []uint16
	out   types.Chunk

	rows, passed, chunks int // of the trial that runs
	rest                 int // chunks to pass before the next trial
}

var _ Operator = (*partialTopNOp)(nil)

const (
	// bestGroups is how many groups are known at most.
	bestGroups = 4096
	bestCount  = rowUser // of a group: how many order words follow
	bestWords  = rowUser + 1
	// Rows of a trial per bestPerPassed rows that pass which make it worth while.
	bestPerRows   = 3
	bestPerPassed = 2
)

func (o *partialTopNOp) Open(ctx *Context) error {
	o.ctx = ctx
	o.forget()
	return nil
}

func (o *partialTopNOp) forget() {
	var key []types.Type
	for _, g := range o.node.PartialTopN.GroupBy {
		key = append(key, o.ctx.InputTypes[0][g])
	}
	o.groups = newGroupTable(key, 1+int(o.node.PartialTopN.Limit))
	o.groups.bare = true
}

// late reports whether rows of c may be late.
func (o *partialTopNOp) late(c *types.Chunk) bool {
	p := o.node.PartialTopN.OnClose
	if p == nil || !o.marked {
		return false
	}
	v := c.Cols[*p]
	for i := range c.Rows() {
		if r := c.Row(i); v.IsNull(r) || v.Int[r] < o.mark {
			return true
		}
	}
	return false
}

func (o *partialTopNOp) Process(_ int, c *types.Chunk, out Emitter) error {
	n := c.Rows()
	if o.rest > 0 {
		o.rest--
		return out.Emit(c)
	}
	if n == 0 || o.late(c) {
		return out.Emit(c)
	}
	if cap(o.grp) < n {
		o.grp = make([]uint32, max(n, types.MaxChunkRows))
	}
	p := o.node.PartialTopN
	grp := o.grp[:n]
	if o.groups.live() > bestGroups {
		o.forget()
	}
	none := func(uint32, int) error { return nil }
	if err := o.groups.lookup(c, p.GroupBy, nil, grp, none); err != nil {
		return err
	}
	o.words = orderWords(o.words, c, p.Order)
	if o.sel == nil {
		o.sel = make([]uint16, 0, types.MaxChunkRows)
	}
	o.sel = o.sel[:0]
	last, bound := noGroup, uint64(0)
	for i, g := range grp {
		r := c.Row(i)
		if g != last {
			last, bound = g, o.bound(g)
		}
		w := o.words[r]
		if w > bound {
			continue
		}
		o.sel = append(o.sel, uint16(r))
		if w < bound || bound == math.MaxUint64 {
			o.note(g, w)
			bound = o.bound(g)
		}
	}
	o.judge(n, len(o.sel))
	if len(o.sel) == 0 {
		return nil
	}
	o.out = types.Chunk{Cols: c.Cols, N: c.N, Sel: o.sel, Weights: c.Weights}
	return out.Emit(&o.out)
}

// bound returns the greatest order word of a group's rows that may still be shown.
func (o *partialTopNOp) bound(g uint32) uint64 {
	row := o.groups.row(g)
	if n := int(row[bestCount]); n == int(o.node.PartialTopN.Limit) {
		return row[bestWords+n-1]
	}
	return math.MaxUint64
}

// note puts an order word among the best of its group.
func (o *partialTopNOp) note(g uint32, w uint64) {
	row := o.groups.row(g)
	n := int(row[bestCount])
	if n < int(o.node.PartialTopN.Limit) {
		n++
		row[bestCount]++
	}
	best := row[bestWords : bestWords+n]
	k := n - 1
	for ; k > 0 && best[k-1] > w; k-- {
		best[k] = best[k-1]
	}
	best[k] = w
}

// judge ends a trial: when hardly any row was dropped the next chunks pass as they are.
func (o *partialTopNOp) judge(rows, passed int) {
	o.rows, o.passed, o.chunks = o.rows+rows, o.passed+passed, o.chunks+1
	if o.chunks < partialTrial {
		return
	}
	if o.rows*bestPerPassed < o.passed*bestPerRows {
		o.rest = partialRest
	}
	o.rows, o.passed, o.chunks = 0, 0, 0
}

func (o *partialTopNOp) Watermark(_ int, w Watermark, out Emitter) error {
	if p := o.node.PartialTopN.OnClose; p != nil && *p == w.Column && (!o.marked || w.Value > o.mark) {
		o.mark, o.marked = w.Value, true
		if o.groups.live() > 0 {
			o.forget() // groups have closed
		}
	}
	return out.EmitWatermark(w)
}
