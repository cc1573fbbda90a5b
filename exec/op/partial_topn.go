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
	mark   portMark // of the column OnClose: rows below are late, and pass to be told of

	grp   []uint32
	words []uint64
	sel   []uint16
	out   types.Chunk
	trial trial
}

var _ Operator = (*partialTopNOp)(nil)

const (
	// bestGroups is how many groups are known at most.
	bestGroups = 4096
	bestCount  = rowUser // of a group: how many order words follow
	bestWords  = rowUser + 1
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

func (o *partialTopNOp) Process(_ int, c *types.Chunk, out Emitter) error {
	n, p := c.Rows(), o.node.PartialTopN
	if o.trial.passes() || n == 0 || p.OnClose != nil && !o.mark.passed(c.Cols[*p.OnClose], c.N) {
		return out.Emit(c)
	}
	if cap(o.grp) < n {
		o.grp = make([]uint32, max(n, types.MaxChunkRows))
	}
	grp := o.grp[:n]
	if o.groups.live() > bestGroups {
		o.forget()
	}
	none := func(uint32, int) error { return nil }
	if err := o.groups.lookup(c, p.GroupBy, grp, none); err != nil {
		return err
	}
	o.words = orderWords(o.words, c, p.Order)
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
	o.trial.judge(n, len(o.sel))
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

func (o *partialTopNOp) Watermark(_ int, w Watermark, out Emitter) error {
	if p := o.node.PartialTopN.OnClose; p != nil && *p == w.Column && o.mark.raise(w.Value) && o.groups.live() > 0 {
		o.forget() // groups have closed
	}
	return out.EmitWatermark(w)
}
