package op

import (
	"encoding/binary"

	"github.com/streamdb/streamdb/checkpoint"
	"github.com/streamdb/streamdb/types"
)

// lookupJoinOp is an inner join that reads the right rows from their relation (see plan.LookupJoin). With the left rows a before and b after an epoch, it
// emits Δa⋈b(new) + a(old)⋈Δb: changed right rows meet the left rows in state at once, left rows wait for the barrier, when it is known which version of the
// right relation to read, and go into state then.
//
// State table 0 (ordered): join key · encoded left row → varint count.
type lookupJoinOp struct {
	base
	joinPairs
	keys  [2][]int
	probe Probe
	left  table

	waiting waitingRows

	hash   []uint64
	point  []uint64
	values []*types.Vector
	points []*types.Vector
	key    []byte

	counts []int64 // per candidate the other side's count
	read   arena   // left rows from state that the output refers to
	marks  mergedMarks
	pend   groupMarks

	epoch  uint64 // of the last barrier, as Probe.Seek has it
	stored bool   // the rows in work are in state
}

var _ Operator = (*lookupJoinOp)(nil)

func (o *lookupJoinOp) Open(ctx *Context) error {
	o.ctx = ctx
	j := o.node.LookupJoin
	o.keys, o.marks.ports = [2][]int{j.LeftKeys, j.RightKeys}, 2
	o.waiting.open(ctx, 0)
	_, err := o.openPairs(ctx, j.Output, j.Residual)
	if err != nil {
		return err
	}
	if o.probe, err = ctx.Probe(j.Relation, j.Columns, j.Lookup); err != nil {
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
		if anyNull(c, o.keys[0], r) {
			continue // it can have no partner
		}
		o.waiting.add(c, r)
	}
	o.account()
	if o.waiting.enough() {
		return o.join(0, out)
	}
	return nil
}

// changed joins changes of the right side with the left rows in state.
func (o *lookupJoinOp) changed(c *types.Chunk, out Emitter) error {
	o.src, o.srcSide = c, 1
	o.hash = hashesOf(o.hash, c, o.keys[1])
	o.values = pick(o.values, c, o.keys[1])
	for i := range c.Rows() {
		r := c.Row(i)
		o.key = types.AppendKeyRow(o.key[:0], o.values, r)
		err := o.left.scan(keyGroup(o.ctx, o.hash[r]), o.key, false, func(k, v []byte) (bool, error) {
			n, w := binary.Varint(v)
			if w <= 0 {
				return false, errCorruptState(o.node)
			}
			row := k[len(o.key):]
			row = o.read.get(o.read.add(row), len(row))
			if _, err := types.DecodeRows(viewString(row), 1, o.columns(o.cand, 0)); err != nil {
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
	if o.waiting.rows == 0 {
		return nil
	}
	if err := o.probe.Seek(epoch); err != nil {
		return err
	}
	err := o.waiting.take(func(c *types.Chunk) error { return o.work(c, out) })
	o.account()
	return err
}

// work joins left rows and puts them into state.
func (o *lookupJoinOp) work(c *types.Chunk, out Emitter) error {
	j := o.node.LookupJoin
	o.src, o.srcSide = c, 0
	o.hash, o.point = hashesOf(o.hash, c, o.keys[0]), hashesOf(o.point, c, j.Point)
	o.values, o.points = pick(o.values, c, o.keys[0]), pick(o.points, c, j.Point)
	right, r := o.columns(o.cand, 1), 0
	found := func() error { return o.candidate(r, 1, out) }
	for r = range c.N {
		o.key = appendLookupKey(o.key[:0], o.points, r, j.Lookup)
		if err := o.probe.Each(o.point[r], o.key, right, found); err != nil {
			return err
		}
		if o.stored {
			continue
		}
		o.key = types.AppendKeyRow(o.key[:0], o.values, r)
		o.key = types.AppendRow(o.key, c.Cols, r)
		if err := addCount(&o.left, o.node, keyGroup(o.ctx, o.hash[r]), o.key, c.Weight(r)); err != nil {
			return err
		}
	}
	return o.flush(out)
}

// candidate adds a pair; the other side's columns have been appended.
func (o *lookupJoinOp) candidate(r int, count int64, out Emitter) error {
	o.counts = append(o.counts, count)
	if o.paired(r) {
		return o.flush(out)
	}
	return nil
}

// flush completes the candidates, tests the condition and emits those that pass.
func (o *lookupJoinOp) flush(out Emitter) error {
	if o.cand.N == 0 {
		return nil
	}
	for i, r := range o.own {
		o.weights = append(o.weights, o.src.Weight(int(r))*o.counts[i])
	}
	if err := o.complete(&o.base); err != nil {
		return err
	}
	if o.residual != nil {
		if err := o.test(&o.base); err != nil {
			return err
		}
	}
	err := o.emit(out)
	o.clear()
	o.counts = o.counts[:0]
	o.read = arena{} // strings may be kept, so that its blocks are not used again
	return err
}

func (o *lookupJoinOp) Watermark(port int, w Watermark, _ Emitter) error {
	for i, p := range o.output {
		side, p := o.origin(p)
		// Rows of the other side bring old rows of this one back into the output: of the keys the smaller watermark holds.
		if k := keyIndex(o.keys[side], p); k >= 0 && o.keys[port][k] == w.Column {
			if v, ok := o.marks.merge(port, i, w.Value); ok {
				o.pend.set(Watermark{Column: i, Value: v})
			}
		}
	}
	return nil
}

func (o *lookupJoinOp) Barrier(b checkpoint.Barrier, out Emitter) error {
	o.epoch = o.waiting.epoch(b)
	if err := o.join(o.epoch, out); err != nil {
		return err
	}
	return o.pend.emit(out)
}

// account tells the budget what the rows that wait take, about.
func (o *lookupJoinOp) account() {
	o.report(int64(o.waiting.rows) * int64(16*o.width[0]))
}

func (o *lookupJoinOp) Close() error {
	if o.probe != nil {
		o.probe.Close()
	}
	return o.base.Close()
}
