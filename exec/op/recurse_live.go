package op

import (
	"github.com/streamdb/streamdb/internal/pgerr"
	"github.com/streamdb/streamdb/planner/plan"
	"github.com/streamdb/streamdb/types"
)

// liveRecursion keeps the result of a recursive query with a linear step up to date. The operators of base and step live on with all rows of the result
// and of the inputs, so that a change costs what follows from it and not the result. It is in memory only: made anew from the inputs after a restart.
//
// UNION ALL: a row has a number of derivations, which is how often it is in the result; differences of it go through the step until none is left.
//
// UNION: a row stays while it has a derivation that does not depend on itself. Rows are numbered as they come in. Derivations from rows with smaller
// numbers, and those of the base, are such ones: following them back ends. When the last one is gone the row is taken out, with what follows from it, although
// derivations from rows with greater numbers may be left. When all that had to go is gone, rows which have derivations from those that stayed come in again,
// with new numbers.
type liveRecursion struct {
	node *plan.Node
	spec *plan.Recurse
	ctx  Context

	trees   [2]*liveTree // base, step
	works   []Emitter
	rows    map[string]*liveRow
	touched []*liveRow // in this epoch
	next    []*liveRow // whose state is to be looked at
	byKey   bool       // UNION
	number  int64
	epoch   uint64
	bytes   int64 // of all rows
	told    int64 // of these, what the budget knows
	held    int64 // UNION ALL: bytes of all rows, as often as they are there
	large   bool  // they are more than a recursion may take, or than iterations are allowed
	fed     int64 // rows of inputs and working tables that were fed, for tests

	key []byte
	out *outBuf
}

// liveRow is a row that has derivations or had some before the epoch.
type liveRow struct {
	row    string // encoded
	number int64  // of its time in the result, with UNION ALL of the row
	base   int64  // derivations by the base
	low    int64  // by rows with smaller numbers; of rows that are not in the result all; with UNION ALL all
	high   int64  // by the others

	in, was bool  // part of the result, before the epoch
	count   int64 // UNION ALL: how often, as far as the step knows
	before  int64 // and before the epoch

	touched, listed bool
}

func newLiveRecursion(n *plan.Node, ctx *Context) (*liveRecursion, error) {
	l := &liveRecursion{node: n, spec: n.Recurse, ctx: *ctx, rows: map[string]*liveRow{}, byKey: !n.Recurse.All}
	l.ctx.OneShot, l.ctx.Store, l.ctx.Errors = false, nil, raiseErrors{}
	l.out = newOutBuf(append(n.Schema.Types()[:l.spec.Width:l.spec.Width], types.Int8))
	for i, root := range []*plan.Node{l.spec.Base, l.spec.Step} {
		l.trees[i] = &liveTree{ctx: &l.ctx}
		if err := l.trees[i].build(retractable(root), nil, liveSink{l, i == 1}); err != nil {
			l.close()
			return nil, err
		}
	}
	for _, leaf := range l.trees[1].leaves {
		if leaf.node.Kind == plan.KindWork {
			l.works = append(l.works, leaf.out)
		}
	}
	return l, nil
}

// retractable returns a copy of a plan whose leaves may take rows back.
func retractable(n *plan.Node) *plan.Node {
	c := *n
	c.AppendOnly = false
	c.Inputs = make([]*plan.Node, len(n.Inputs))
	for i, in := range n.Inputs {
		c.Inputs[i] = retractable(in)
	}
	return &c
}

func (l *liveRecursion) close() {
	for _, t := range l.trees {
		if t != nil {
			t.close()
		}
	}
	l.ctx.Budget.Add(-l.told)
}

// start feeds leaves that are no inputs.
func (l *liveRecursion) start() error {
	for _, t := range l.trees {
		for _, leaf := range t.leaves {
			if leaf.node.Kind == plan.KindWork || leaf.node.Kind == plan.KindInput {
				continue
			}
			x, err := NewLeaf(leaf.node)
			if err == nil {
				err = x.Run(&l.ctx, leaf.out)
			}
			if err != nil {
				return err
			}
		}
	}
	return nil
}

// input feeds changes of an input.
func (l *liveRecursion) input(port int, c *types.Chunk) error {
	for _, t := range l.trees {
		for _, leaf := range t.leaves {
			if leaf.node.Kind == plan.KindInput && leaf.node.Input == port {
				l.fed += int64(c.Rows())
				if err := leaf.out.Emit(c); err != nil {
					return err
				}
			}
		}
	}
	return nil
}

// settle brings the result up to date with the inputs, and calls changed for the rows that are there more or less often than before.
func (l *liveRecursion) settle(changed func(row string, before, now int64) error) error {
	if err := l.barrier(); err != nil {
		return err
	}
	var err error
	if l.byKey {
		err = l.settleSet()
	} else {
		err = l.settleBag()
	}
	if err != nil {
		return err
	}
	if int64(len(l.rows)) > l.spec.MaxIterations {
		return l.tooMany()
	}
	for _, x := range l.touched {
		x.touched = false
		before, now := x.before, x.count
		if l.byKey {
			before, now = 0, 0
			if x.was {
				before = 1
			}
			if x.in {
				now = 1
			}
		}
		if before != now {
			if err := changed(x.row, before, now); err != nil {
				return err
			}
		}
		if now == 0 {
			if err := l.forget(x); err != nil {
				return err
			}
		}
	}
	l.touched = l.touched[:0]
	l.ctx.Budget.Add(l.bytes - l.told)
	l.told = l.bytes
	return nil
}

func (l *liveRecursion) forget(x *liveRow) error {
	cols := l.out.c.Cols[:l.spec.Width]
	if _, err := types.DecodeRows(x.row, 1, cols); err != nil {
		return err
	}
	l.key = l.keyOf(l.key[:0], cols, 0)
	delete(l.rows, string(l.key))
	l.bytes -= l.size(x, len(l.key))
	for _, v := range cols {
		v.Reset()
	}
	return nil
}

// liveRowOverhead is what a row costs in memory beyond its key and its encoded values, in bytes.
const liveRowOverhead = 160

func (l *liveRecursion) size(x *liveRow, key int) int64 {
	return int64(len(x.row)+key) + liveRowOverhead
}

// keyOf appends what equal rows have in common: with UNION ALL rows are told apart by their bytes.
func (l *liveRecursion) keyOf(dst []byte, cols []*types.Vector, i int) []byte {
	if !l.byKey {
		return types.AppendRow(dst, cols, i)
	}
	return types.AppendKeyRow(dst, cols, i)
}

// settleBag sends differences through the step until none is left.
func (l *liveRecursion) settleBag() error {
	for n := int64(1); ; n++ {
		work := l.take()
		for _, x := range work {
			if d := x.base + x.low - x.count; d != 0 {
				if err := l.count(x, d); err != nil {
					return err
				}
				if err := l.feed(x, d); err != nil {
					return err
				}
			}
		}
		if done, err := l.round(n); done || err != nil {
			return err
		}
	}
}

// count has a row d times more often. The rows of a bag are counted each, as an evaluation does: where rows follow from each other in several ways their numbers
// grow with a power of the depth.
func (l *liveRecursion) count(x *liveRow, d int64) error {
	size := int64(len(x.row)) + recursionRowOverhead
	if d > (l.spec.MaxBytes-l.held)/size {
		l.large = true
		return errTooLarge(l.spec)
	}
	x.count += d
	l.held += d * size
	return nil
}

// settleSet takes out rows whose last derivation that counts is gone, then lets in those that have one.
func (l *liveRecursion) settleSet() error {
	var seen []*liveRow
	for {
		work := l.take()
		seen = append(seen, work...)
		for _, x := range work {
			if !x.in || x.base+x.low > 0 {
				continue
			}
			x.in, x.low, x.high = false, x.low+x.high, 0
			if err := l.feed(x, -1); err != nil {
				return err
			}
		}
		// What is taken out ends with the rows that are there.
		if done, err := l.round(0); err != nil {
			return err
		} else if done {
			break
		}
	}
	for n := int64(1); ; n++ {
		for _, x := range seen {
			if x.in || x.base+x.low <= 0 {
				continue
			}
			l.number++
			x.in, x.number = true, l.number
			if err := l.feed(x, 1); err != nil {
				return err
			}
		}
		if done, err := l.round(n); done || err != nil {
			return err
		}
		seen = l.take()
	}
}

// take returns the rows that changed since it was called last.
func (l *liveRecursion) take() []*liveRow {
	work := l.next
	l.next = nil
	for _, x := range work {
		x.listed = false
	}
	return work
}

// feed puts a row into the working table, or takes it out.
func (l *liveRecursion) feed(x *liveRow, w int64) error {
	cols := l.out.c.Cols
	if _, err := types.DecodeRows(x.row, 1, cols[:l.spec.Width]); err != nil {
		return err
	}
	pushInt(cols[l.spec.Width], x.number)
	if l.fed++; l.fed%cancelPollRows == 0 && l.ctx.Cancelled != nil && l.ctx.Cancelled() {
		return pgerr.Newf(pgerr.QueryCanceled, "canceling statement due to user request")
	}
	return l.out.push(w, workSink{l})
}

// round brings what was fed through the step, and reports whether nothing was.
func (l *liveRecursion) round(n int64) (bool, error) {
	if l.out.c.N == 0 && len(l.next) == 0 {
		return true, nil
	}
	if n > l.spec.MaxIterations {
		return false, l.tooMany()
	}
	if err := l.out.flush(workSink{l}); err != nil {
		return false, err
	}
	return false, l.barrier()
}

// tooMany is the error of an iteration without end. No row follows from itself in one that ends, so of those with fewer rows than iterations are allowed it
// is known; the iterations of others are for an evaluation to count.
func (l *liveRecursion) tooMany() error {
	l.large = int64(len(l.rows)) > l.spec.MaxIterations
	return errEndless(l.spec)
}

func (l *liveRecursion) barrier() error {
	for _, t := range l.trees {
		l.epoch++
		if err := t.barrier(l.epoch); err != nil {
			return err
		}
	}
	return nil
}

// workSink emits chunks of the working table to where the step refers to the query.
type workSink struct{ l *liveRecursion }

func (s workSink) Emit(c *types.Chunk) error {
	for _, out := range s.l.works {
		if err := out.Emit(c); err != nil {
			return err
		}
	}
	return nil
}

func (workSink) EmitWatermark(Watermark) error { return nil }

// liveSink takes derivations.
type liveSink struct {
	l    *liveRecursion
	step bool
}

func (s liveSink) Emit(c *types.Chunk) error {
	l := s.l
	cols := c.Cols[:l.spec.Width]
	for i := range c.Rows() {
		r := c.Row(i)
		l.key = l.keyOf(l.key[:0], cols, r)
		x := l.rows[viewString(l.key)]
		if x == nil {
			x = &liveRow{row: string(types.AppendRow(nil, cols, r))}
			if !l.byKey {
				l.number++
				x.number = l.number
			}
			l.rows[string(l.key)] = x
			if l.bytes += l.size(x, len(l.key)); l.bytes > l.spec.MaxBytes {
				l.large = true
				return errTooLarge(l.spec)
			}
		}
		if !x.touched {
			x.touched, x.was, x.before = true, x.in, x.count
			l.touched = append(l.touched, x)
		}
		if !x.listed {
			x.listed = true
			l.next = append(l.next, x)
		}
		w := c.Weight(r)
		switch {
		case !s.step:
			x.base += w
		case x.in && c.Cols[*l.spec.Source].Int[r] >= x.number:
			x.high += w
		default:
			x.low += w
		}
	}
	return nil
}

func (liveSink) EmitWatermark(Watermark) error { return nil }

// catchUp evaluates the recursion of a sub-plan over the kept inputs and goes on from there in the epochs that follow.
func (o *recomputeOp) catchUp(into *rowDelta) error {
	l, err := newLiveRecursion(o.node.Recompute.Sub, o.ctx)
	if err != nil {
		return err
	}
	o.live = l
	if err := l.start(); err != nil {
		return err
	}
	for port, in := range o.node.Inputs {
		leaf := &plan.Node{Kind: plan.KindInput, Schema: in.Schema, Input: port}
		if err := o.emitInput(leaf, inputSink{l, port}); err != nil {
			return err
		}
	}
	return l.settle(func(row string, before, now int64) error {
		into.add([]byte(row), now-before)
		return nil
	})
}

// inputSink feeds an input.
type inputSink struct {
	l    *liveRecursion
	port int
}

func (s inputSink) Emit(c *types.Chunk) error { return s.l.input(s.port, c) }

func (inputSink) EmitWatermark(Watermark) error { return nil }

// advance adds what the changes of the epoch change to o.delta.
func (o *recomputeOp) advance() error {
	for port, c := range o.pending {
		for _, p := range c {
			if err := o.live.input(port, p); err != nil {
				return err
			}
		}
	}
	full := types.NewChunk(o.node.Schema.Types())
	last := len(full.Cols) - 1
	return o.live.settle(func(row string, before, now int64) error {
		if !o.node.Recompute.Numbered {
			o.delta.add([]byte(row), now-before)
			return nil
		}
		w := int64(1)
		if now < before {
			before, now, w = now, before, -1
		}
		full.Reset()
		if _, err := types.DecodeRows(row, 1, full.Cols[:last]); err != nil {
			return err
		}
		for i := before; i < now; i++ {
			full.Cols[last].Int = append(full.Cols[last].Int[:0], i+1)
			o.key = types.AppendRow(o.key[:0], full.Cols, 0)
			o.delta.add(o.key, w)
		}
		return nil
	})
}

// maxLiveRows is how many changed rows of inputs an epoch keeps for a recursion that is kept up to date; with more it is evaluated again.
const maxLiveRows = 1 << 16

// remember keeps a chunk of changes for advance.
func (o *recomputeOp) remember(port int, c *types.Chunk) {
	if o.live == nil {
		return
	}
	if o.pendingRows += c.Rows(); o.pendingRows > maxLiveRows {
		o.letGo()
		return
	}
	if o.pending == nil {
		o.pending = map[int][]*types.Chunk{}
	}
	list := o.pending[port]
	if n := len(list); n > 0 && list[n-1].N+c.Rows() <= types.MaxChunkRows {
		list[n-1].AppendChunk(c)
		return
	}
	k := types.NewChunk(o.node.Inputs[port].Schema.Types())
	k.AppendChunk(c)
	o.pending[port] = append(list, k)
}

// letGo gives up what is kept of a recursion: the next change evaluates it again.
func (o *recomputeOp) letGo() {
	if o.live != nil {
		o.live.close()
		o.live = nil
	}
	o.pending, o.pendingRows = nil, 0
}

func (o *recomputeOp) Close() error {
	o.letGo()
	return nil
}

// spare gives the memory of a recursion back when memory is short.
func (o *recomputeOp) spare() {
	if o.ctx.Budget.Over() {
		o.letGo()
	}
}
