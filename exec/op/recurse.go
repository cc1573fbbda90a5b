package op

import (
	"errors"

	"github.com/streamdb/streamdb/checkpoint"
	"github.com/streamdb/streamdb/internal/pgerr"
	"github.com/streamdb/streamdb/planner/plan"
	"github.com/streamdb/streamdb/types"
)

// ErrEnough is returned by an operator that needs no more rows of its input. It ends the feeding of that input, as a success.
var ErrEnough = errors.New("no more rows needed")

// recursion evaluates a recursive query inside a recomputed sub-plan, as SQL defines it: the rows of the base term are the first working
// table; the step term over the working table gives the next one, until that is empty. All working tables together are the result.
//
// The operators of the step live through all iterations: what they keep of the inputs is built once. A linear step is fed each working table
// and answers with what follows from it; any other one is fed the change of the working table and answers with the change of its result.
type recursion struct {
	node  *plan.Node
	spec  *plan.Recurse
	ctx   *Context
	out   Emitter
	width int // columns of the query; in a working table a row number follows

	last, work, next rowBag
	seen             map[string]struct{} // UNION: keys of all rows so far
	result           map[string]int64    // of a step that is not linear: its rows with their counts
	order            []string            // and their order

	key   []byte
	rows  int64 // number of the last row
	keeps bool  // rows stay in memory beyond their iteration
	bytes int64
	view  types.Chunk
	minus []int64
}

// recursionRowOverhead is what a row costs in memory beyond its encoded values, in bytes.
const recursionRowOverhead = 48

// runRecursion evaluates the recursive query n and emits its rows as they are found. Inputs emits the rows of a leaf of kind input.
func runRecursion(n *plan.Node, ctx *Context, inputs func(*plan.Node, Emitter) error, out Emitter) error {
	r := &recursion{node: n, spec: n.Recurse, ctx: ctx, out: out, width: n.Recurse.Width}
	r.keeps = !r.spec.Linear || !r.spec.All || n.Recurse.Keep
	r.spec.Step.Walk(func(x *plan.Node) { r.keeps = r.keeps || x.Kind == plan.KindJoin })
	if !r.spec.All {
		r.seen = map[string]struct{}{}
	}
	if !r.spec.Linear {
		r.result = map[string]int64{}
	}
	ts := append(n.Schema.Types()[:r.width:r.width], types.Int8)
	r.last.types, r.work.types, r.next.types = ts, ts, ts
	base := *ctx
	base.OneShot, base.Store = true, nil
	base.Self = ctx.Profile.Node(n)
	if err := RunTree(r.spec.Base, &base, inputs, bagSink{r}); err != nil {
		return err
	}
	if err := r.emit(); err != nil || r.next.n == 0 {
		return err
	}
	return r.iterate(inputs)
}

func errEndless(s *plan.Recurse) error {
	return pgerr.Newf(pgerr.ProgramLimitExceeded, "recursive query \"%s\" did not end after %d iterations", s.Name, s.MaxIterations).
		WithHint("Limit the depth in its WHERE clause, use UNION instead of UNION ALL to stop at rows that are known, or raise max_recursion_iterations.")
}

func errTooLarge(s *plan.Recurse) error {
	return pgerr.Newf(pgerr.ProgramLimitExceeded, "recursive query \"%s\" needs more than %d bytes of memory", s.Name, s.MaxBytes).
		WithHint("Limit the depth in its WHERE clause, use UNION instead of UNION ALL to stop at rows that are known, or raise max_recursion_memory.")
}

func (r *recursion) iterate(inputs func(*plan.Node, Emitter) error) error {
	ctx := *r.ctx
	ctx.OneShot, ctx.Store = false, nil
	t := &liveTree{ctx: &ctx}
	defer t.close()
	if err := t.build(r.spec.Step, ctx.Profile.Node(r.node), stepSink{r}); err != nil {
		return err
	}
	for n := int64(1); r.next.n > 0; n++ {
		if n > r.spec.MaxIterations {
			return errEndless(r.spec)
		}
		if r.ctx.Cancelled != nil && r.ctx.Cancelled() {
			return pgerr.Newf(pgerr.QueryCanceled, "canceling statement due to user request")
		}
		r.last, r.work, r.next = r.work, r.next, r.last
		r.next.reset()
		for _, l := range t.leaves {
			if n > 1 && l.node.Kind != plan.KindWork {
				continue // what does not change was fed in the first iteration
			}
			err := ctx.Profile.Run(ctx.Profile.Node(l.node), func() error { return r.feedLeaf(l, &ctx, inputs) })
			if err != nil {
				return err
			}
		}
		if err := t.barrier(uint64(n)); err != nil {
			return err
		}
		if !r.spec.Linear {
			if err := r.collect(); err != nil {
				return err
			}
		}
		if err := r.emit(); err != nil {
			return err
		}
	}
	return nil
}

func (r *recursion) feedLeaf(l liveLeaf, ctx *Context, inputs func(*plan.Node, Emitter) error) error {
	switch l.node.Kind {
	case plan.KindWork:
		return r.feed(l.out)
	case plan.KindInput:
		return inputs(l.node, l.out)
	}
	leaf, err := NewLeaf(l.node)
	if err != nil {
		return err
	}
	return leaf.Run(ctx, l.out)
}

// feed gives the working table to a reference of the query to itself.
func (r *recursion) feed(out Emitter) error {
	if !r.spec.Linear {
		for _, c := range r.last.chunks {
			for len(r.minus) < c.N {
				r.minus = append(r.minus, -1)
			}
			r.view = types.Chunk{Cols: c.Cols, N: c.N, Weights: r.minus[:c.N]}
			if err := out.Emit(&r.view); err != nil {
				return err
			}
		}
	}
	for _, c := range r.work.chunks {
		if err := out.Emit(c); err != nil {
			return err
		}
	}
	return nil
}

// emit passes the new working table on as part of the result.
func (r *recursion) emit() error {
	for _, c := range r.next.chunks {
		r.view = types.Chunk{Cols: c.Cols, N: c.N}
		if !r.spec.All {
			r.view.Cols = c.Cols[:r.width]
		}
		if err := r.out.Emit(&r.view); err != nil {
			return err
		}
	}
	return nil
}

// add puts a row into the next working table.
func (r *recursion) add(cols []*types.Vector, i int) error {
	r.key = r.key[:0]
	if r.seen != nil {
		for _, v := range cols {
			r.key = types.AppendKey(r.key, v, i, false, false)
		}
		if _, ok := r.seen[viewString(r.key)]; ok {
			return nil
		}
		r.seen[string(r.key)] = struct{}{}
	} else {
		r.key = types.AppendRow(r.key, cols, i)
	}
	r.bytes += int64(len(r.key)) + recursionRowOverhead
	held := r.bytes
	if !r.keeps {
		r.next.bytes += int64(len(r.key)) + recursionRowOverhead
		held = r.next.bytes
	}
	if held > r.spec.MaxBytes {
		return errTooLarge(r.spec)
	}
	r.rows++
	r.next.add(cols, i, r.rows)
	if r.rows%cancelPollRows == 0 && r.ctx.Cancelled != nil && r.ctx.Cancelled() {
		return pgerr.Newf(pgerr.QueryCanceled, "canceling statement due to user request")
	}
	return nil
}

// collect makes the next working table of the step's result.
func (r *recursion) collect() error {
	one := types.NewChunk(r.next.types[:r.width])
	kept := r.order[:0]
	for _, k := range r.order {
		n := r.result[k]
		if n == 0 {
			delete(r.result, k)
			continue
		}
		kept = append(kept, k)
		one.Reset()
		if _, err := types.DecodeRows(k, 1, one.Cols); err != nil {
			return err
		}
		for range n {
			if err := r.add(one.Cols, 0); err != nil {
				return err
			}
		}
	}
	r.order = kept
	return nil
}

// bagSink takes rows that are new.
type bagSink struct{ r *recursion }

func (s bagSink) Emit(c *types.Chunk) error {
	for i := range c.Rows() {
		row := c.Row(i)
		w := c.Weight(row)
		if w < 0 {
			return pgerr.Newf(pgerr.InternalError, "retraction in a recursive query")
		}
		for range w {
			if err := s.r.add(c.Cols[:s.r.width], row); err != nil {
				return err
			}
		}
	}
	return nil
}

func (bagSink) EmitWatermark(Watermark) error { return nil }

// stepSink takes the step's output.
type stepSink struct{ r *recursion }

func (s stepSink) Emit(c *types.Chunk) error {
	r := s.r
	if r.spec.Linear {
		return bagSink(s).Emit(c)
	}
	for i := range c.Rows() {
		row := c.Row(i)
		r.key = types.AppendRow(r.key[:0], c.Cols[:r.width], row)
		w, ok := r.result[viewString(r.key)]
		k := string(r.key)
		r.result[k] = w + c.Weight(row)
		if !ok {
			r.order = append(r.order, k)
		}
	}
	return nil
}

func (stepSink) EmitWatermark(Watermark) error { return nil }

// rowBag holds the rows of a working table in chunks that are used again.
type rowBag struct {
	types  []types.Type
	chunks []*types.Chunk
	spare  []*types.Chunk
	n      int
	bytes  int64
}

func (b *rowBag) reset() {
	for _, c := range b.chunks {
		c.Reset()
	}
	b.spare, b.chunks = append(b.spare, b.chunks...), b.chunks[:0]
	b.n, b.bytes = 0, 0
}

func (b *rowBag) add(cols []*types.Vector, i int, number int64) {
	var c *types.Chunk
	switch last := len(b.chunks) - 1; {
	case last >= 0 && b.chunks[last].N < types.MaxChunkRows:
		c = b.chunks[last]
	case len(b.spare) > 0:
		c = b.spare[len(b.spare)-1]
		b.spare = b.spare[:len(b.spare)-1]
		b.chunks = append(b.chunks, c)
	default:
		c = types.NewChunk(b.types)
		b.chunks = append(b.chunks, c)
	}
	for k, v := range cols {
		c.Cols[k].Append(v, i)
	}
	at := c.Cols[len(cols)]
	at.Int = append(at.Int, number)
	c.N++
	b.n++
}

// liveTree is a tree of operators that lives through several epochs.
type liveTree struct {
	ctx    *Context
	ops    []liveOp // inputs first
	leaves []liveLeaf
}

type liveOp struct {
	op   Operator
	out  Emitter
	self *NodeProfile
}

type liveLeaf struct {
	node *plan.Node
	out  Emitter
}

// build makes the operators of n; above works on its output.
func (t *liveTree) build(n *plan.Node, above *NodeProfile, out Emitter) error {
	profile := t.ctx.Profile
	self := profile.Node(n)
	out = profile.emitter(self, above, out)
	if len(n.Inputs) == 0 {
		t.leaves = append(t.leaves, liveLeaf{n, out})
		return nil
	}
	o, err := New(n)
	if err != nil {
		return err
	}
	ctx := *t.ctx
	ctx.Node, ctx.Self = n, self
	ctx.InputTypes = make([][]types.Type, len(n.Inputs))
	for i, in := range n.Inputs {
		ctx.InputTypes[i] = in.Schema.Types()
		if err := t.build(in, self, &portEmitter{o: o, port: i, out: out}); err != nil {
			return err
		}
	}
	t.ops = append(t.ops, liveOp{o, out, self})
	return o.Open(&ctx)
}

func (t *liveTree) barrier(epoch uint64) error {
	for _, o := range t.ops {
		err := t.ctx.Profile.Run(o.self, func() error { return o.op.Barrier(checkpoint.Barrier{Epoch: epoch}, o.out) })
		if err != nil {
			return err
		}
	}
	return nil
}

func (t *liveTree) close() {
	for _, o := range t.ops {
		_ = o.op.Close() // their state is in memory and dies with them
	}
}
