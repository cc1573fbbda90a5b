package op

import (
	"encoding/binary"

	"github.com/streamdb/streamdb/checkpoint"
	"github.com/streamdb/streamdb/sql/expr"
	"github.com/streamdb/streamdb/types"
)

// lookupJoinOp is an inner join that reads the right rows from their relation (see plan.LookupJoin). With the left rows a before and b after an epoch, it
// emits Δa⋈b(new) + a(old)⋈Δb: changed right rows meet the left rows in state at once, left rows wait for the barrier, when it is known which version of the
// right relation to read, and go into state then.
//
// State table 0 (ordered): join key · encoded left row → varint count.
type lookupJoinOp struct {
	base
	keys     [2][]int
	probe    Probe
	residual *expr.Program
	width    int // columns of the left side
	output   []int
	left     table

	filling bool
	waiting []*types.Chunk
	free    []*types.Chunk
	rows    int

	src     *types.Chunk // in work
	srcSide int
	hash    []uint64
	point   []uint64
	vecs    []*types.Vector
	points  []*types.Vector
	key     []byte

	cand     *types.Chunk // candidate pairs, left then right columns
	own      []uint16     // per candidate the row of src
	counts   []int64      // and the other side's count
	read     arena        // left rows from state that the output refers to
	failures rowFailures
	pass     []uint16
	view     types.Chunk
	marks    mergedMarks
	pend     []Watermark
	reported int64
}

var _ Operator = (*lookupJoinOp)(nil)

func (o *lookupJoinOp) Open(ctx *Context) error {
	o.ctx = ctx
	j := o.node.LookupJoin
	o.keys, o.width, o.filling = [2][]int{j.LeftKeys, j.RightKeys}, len(ctx.InputTypes[0]), ctx.Filling
	all := append(append([]types.Type{}, ctx.InputTypes[0]...), ctx.InputTypes[1]...)
	if o.output = j.Output; o.output == nil {
		o.output = identity(len(all))
	}
	o.cand = types.NewChunk(all)
	o.marks.ports = 2
	var err error
	if j.Residual != nil {
		if o.residual, err = expr.Compile(j.Residual, ctx.Lib); err != nil {
			return err
		}
	}
	if o.probe, err = ctx.Probe(j.Relation, j.Columns); err != nil {
		return err
	}
	o.left, err = openTable(ctx, o.node, 0, orderedMode)
	return err
}

func (o *lookupJoinOp) Process(port int, c *types.Chunk, out Emitter) error {
	if port == 1 {
		return o.changed(c, out)
	}
	for i := range c.Rows() {
		r := c.Row(i)
		if o.matchless(c, r) {
			continue
		}
		n := len(o.waiting)
		if n == 0 || o.waiting[n-1].N == types.MaxChunkRows {
			if k := len(o.free); k > 0 {
				o.waiting, o.free = append(o.waiting, o.free[k-1]), o.free[:k-1]
			} else {
				o.waiting = append(o.waiting, types.NewChunk(o.ctx.InputTypes[0]))
			}
			n++
		}
		o.waiting[n-1].AppendRow(c, r, c.Weight(r))
		o.rows++
	}
	o.account()
	if o.filling && !o.ctx.Live && o.rows >= maxFillRows {
		return o.join(0, out)
	}
	return nil
}

// matchless reports whether a left row can have no partner because of a NULL.
func (o *lookupJoinOp) matchless(c *types.Chunk, r int) bool {
	for _, p := range o.keys[0] {
		if c.Cols[p].IsNull(r) {
			return true
		}
	}
	return false
}

// changed joins changes of the right side with the left rows in state.
func (o *lookupJoinOp) changed(c *types.Chunk, out Emitter) error {
	o.src, o.srcSide = c, 1
	o.hash = hashesOf(o.hash, c, o.keys[1])
	o.vecs = pick(o.vecs, c, o.keys[1])
	for i := range c.Rows() {
		r := c.Row(i)
		o.key = types.AppendKeyRow(o.key[:0], o.vecs, r)
		err := o.left.scan(keyGroup(o.ctx, o.hash[r]), o.key, false, func(k, v []byte) (bool, error) {
			n, w := binary.Varint(v)
			if w <= 0 {
				return false, errCorruptState(o.node)
			}
			row := k[len(o.key):]
			row = o.read.get(o.read.add(row), len(row))
			if _, err := types.DecodeRows(viewString(row), 1, o.cand.Cols[:o.width]); err != nil {
				return false, err
			}
			return true, o.candidate(r, n, out)
		})
		if err != nil {
			return err
		}
	}
	return o.flush(out)
}

// join joins the left rows that wait with the right side of an epoch.
func (o *lookupJoinOp) join(epoch uint64, out Emitter) error {
	if o.rows == 0 {
		return nil
	}
	if err := o.probe.Seek(epoch); err != nil {
		return err
	}
	j := o.node.LookupJoin
	for _, c := range o.waiting {
		o.src, o.srcSide = c, 0
		o.hash, o.point = hashesOf(o.hash, c, o.keys[0]), hashesOf(o.point, c, j.Point)
		o.vecs, o.points = pick(o.vecs, c, o.keys[0]), pick(o.points, c, j.Point)
		for r := range c.N {
			o.key = types.AppendKeyRow(o.key[:0], o.points, r)
			ok, err := o.probe.Get(o.point[r], o.key, o.cand.Cols[o.width:])
			if err != nil {
				return err
			}
			if ok {
				if err := o.candidate(r, 1, out); err != nil {
					return err
				}
			}
			o.key = types.AppendKeyRow(o.key[:0], o.vecs, r)
			o.key = types.AppendRow(o.key, c.Cols, r)
			if err := addCount(&o.left, o.node, keyGroup(o.ctx, o.hash[r]), o.key, c.Weight(r)); err != nil {
				return err
			}
		}
		if err := o.flush(out); err != nil {
			return err
		}
		if c.Reset(); len(o.free) < maxFillRows/types.MaxChunkRows {
			o.free = append(o.free, c)
		}
	}
	o.waiting, o.rows = o.waiting[:0], 0
	o.account()
	return nil
}

// candidate adds a pair; the other side's columns have been appended.
func (o *lookupJoinOp) candidate(r int, count int64, out Emitter) error {
	o.own, o.counts = append(o.own, uint16(r)), append(o.counts, count)
	if o.cand.N++; o.cand.N < types.MaxChunkRows {
		return nil
	}
	if err := o.cancelled(); err != nil {
		return err
	}
	return o.flush(out)
}

// flush completes the candidates, tests the condition and emits those that pass.
func (o *lookupJoinOp) flush(out Emitter) error {
	n := o.cand.N
	if n == 0 {
		return nil
	}
	mine := o.cand.Cols[:o.width]
	if o.srcSide == 1 {
		mine = o.cand.Cols[o.width:]
	}
	for k, v := range mine {
		v.AppendGather(o.src.Cols[k], o.own)
	}
	weights := o.cand.Weights[:0]
	for i, r := range o.own {
		weights = append(weights, o.src.Weight(int(r))*o.counts[i])
	}
	o.cand.Weights = weights
	o.view = types.Chunk{Cols: o.cand.Cols, N: n, Weights: weights}
	if o.residual != nil {
		o.failures.errs.Reset()
		sel, err := o.residual.Filter(&o.view, o.ctx.Env, &o.failures.errs, o.pass)
		if err != nil {
			return err
		}
		o.pass = sel
		if _, err := o.failures.divert(&o.base, &o.view); err != nil {
			return err
		}
		o.view.Sel = sel
	}
	var err error
	if o.residual == nil || len(o.pass) > 0 {
		o.view.Cols = pick(nil, &o.view, o.output)
		err = out.Emit(&o.view)
	}
	o.cand.Reset()
	o.own, o.counts = o.own[:0], o.counts[:0]
	o.read = arena{} // strings may be kept, so that its blocks are not used again
	return err
}

func (o *lookupJoinOp) Watermark(port int, w Watermark, _ Emitter) error {
	for i, p := range o.output {
		side := 0
		if p >= o.width {
			side, p = 1, p-o.width
		}
		// Rows of the other side bring old rows of this one back into the output: of the keys the smaller watermark holds.
		if k := keyIndex(o.keys[side], p); k >= 0 && o.keys[port][k] == w.Column {
			if v, ok := o.marks.merge(port, i, w.Value); ok {
				o.pend = append(o.pend, Watermark{Column: i, Value: v})
			}
		}
	}
	return nil
}

func (o *lookupJoinOp) Barrier(b checkpoint.Barrier, out Emitter) error {
	epoch := b.Epoch
	if o.filling {
		epoch, o.filling = 0, b.Filling != checkpoint.FillComplete
	}
	if err := o.join(epoch, out); err != nil {
		return err
	}
	for _, w := range o.pend {
		if err := out.EmitWatermark(w); err != nil {
			return err
		}
	}
	o.pend = o.pend[:0]
	return nil
}

// account tells the budget what the rows that wait take, about.
func (o *lookupJoinOp) account() {
	n := int64(o.rows) * int64(16*o.width)
	o.ctx.Budget.Add(n - o.reported)
	o.reported = n
}

func (o *lookupJoinOp) Close() error {
	if o.probe != nil {
		o.probe.Close()
	}
	if o.ctx != nil {
		o.ctx.Budget.Add(-o.reported)
		o.reported = 0
	}
	return nil
}
