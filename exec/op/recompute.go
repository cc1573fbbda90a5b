package op

import (
	"encoding/binary"

	"github.com/streamdb/streamdb/checkpoint"
	"github.com/streamdb/streamdb/internal/pgerr"
	"github.com/streamdb/streamdb/planner/plan"
	"github.com/streamdb/streamdb/types"
)

// recomputeOp evaluates a sub-plan again in every epoch that changed an input, and emits the difference to what it showed.
//
// State tables (ordered), all in one key group: 0, input number (1 byte) · encoded row → varint count; 1, encoded output row → varint count;
// 2, "e" → SQLSTATE and message of the error that stands in place of the output.
//
// With Numbered the sub-plan's last column only tells equal rows apart; it is given anew, so that the rows of a result are the same
// whatever order they were found in. One-shot queries pass the result on as it comes.
type recomputeOp struct {
	base
	kg      uint16
	inputs  table
	output  table
	failure table
	dirty   bool
	delta   rowDelta
	out     *outBuf
	key     []byte

	live        *liveRecursion // see there; nil: the sub-plan is evaluated again
	pending     map[int][]*types.Chunk
	pendingRows int
	large       bool // it is too large for that
}

var _ Operator = (*recomputeOp)(nil)

func (o *recomputeOp) Open(ctx *Context) error {
	o.ctx = ctx
	o.kg = keyGroup(ctx, types.HashDatums(nil))
	o.out = newOutBuf(o.node.Schema.Types())
	// The first barrier evaluates always: a sub-plan may have rows without input.
	o.dirty = true
	for i, t := range []*table{&o.inputs, &o.output, &o.failure} {
		var err error
		if *t, err = openTable(ctx, o.node, uint32(i), orderedMode); err != nil {
			return err
		}
	}
	return nil
}

func (o *recomputeOp) Process(port int, c *types.Chunk, _ Emitter) error {
	for i := range c.Rows() {
		r := c.Row(i)
		o.key = append(o.key[:0], byte(port))
		o.key = types.AppendRow(o.key, c.Cols, r)
		if err := addCount(&o.inputs, o.node, o.kg, o.key, c.Weight(r)); err != nil {
			return err
		}
		o.dirty = true
	}
	o.remember(port, c)
	return nil
}

// addCount adds w to the count at key; entries of count 0 vanish.
func addCount(t *table, node *plan.Node, kg uint16, key []byte, w int64) error {
	v, ok, err := t.get(kg, key)
	if err != nil {
		return err
	}
	if ok {
		n, k := binary.Varint(v)
		if k <= 0 {
			return errCorruptState(node)
		}
		w += n
	}
	if w == 0 {
		return t.del(kg, key)
	}
	return t.put(kg, key, binary.AppendVarint(nil, w))
}

func (o *recomputeOp) Barrier(_ checkpoint.Barrier, out Emitter) error {
	defer o.spare()
	if !o.dirty {
		return nil
	}
	o.dirty = false
	if o.ctx.OneShot {
		return o.run(out)
	}
	var now rowDelta
	var failed error
	switch {
	case o.live != nil:
		failed = o.advance()
		if o.pending, o.pendingRows = nil, 0; failed == nil {
			return o.show(out)
		}
		o.delta = rowDelta{}
	case !o.large && o.node.Recompute.Sub.Kind == plan.KindRecurse && o.node.Recompute.Sub.Recurse.Live:
		failed = o.catchUp(&now)
	default:
		failed = o.evaluate(&now)
	}
	if o.large = o.large || o.live != nil && o.live.large; o.large && o.live != nil {
		o.letGo()
		now = rowDelta{}
		failed = o.evaluate(&now)
	}
	if failed != nil {
		o.letGo()
		if pgerr.CodeOf(failed) == pgerr.QueryCanceled {
			return failed
		}
		now = rowDelta{}
	}
	if err := o.reportFailure(failed); err != nil {
		return err
	}
	err := o.output.scan(o.kg, nil, false, func(k, v []byte) (bool, error) {
		n, w := binary.Varint(v)
		if w <= 0 {
			return false, errCorruptState(o.node)
		}
		o.delta.add(k, -n)
		return true, nil
	})
	if err != nil {
		return err
	}
	full := types.NewChunk(o.node.Schema.Types())
	last := len(full.Cols) - 1
	given := map[string]int64{} // numbers, by key: rows that are equal may look different
	for _, k := range now.order {
		w := now.weight[k]
		if !o.node.Recompute.Numbered {
			o.delta.add([]byte(k), w)
			continue
		}
		full.Reset()
		if _, err := types.DecodeRows(k, 1, full.Cols[:last]); err != nil {
			return err
		}
		o.key = types.AppendKeyRow(o.key[:0], full.Cols[:last], 0)
		first := given[string(o.key)] + 1
		given[string(o.key)] += w
		full.Cols[last].Int = append(full.Cols[last].Int, 0)
		for i := range w {
			full.Cols[last].Int[0] = first + i
			o.key = types.AppendRow(o.key[:0], full.Cols, 0)
			o.delta.add(o.key, 1)
		}
	}
	return o.show(out)
}

// show emits the changes of the output and keeps it.
func (o *recomputeOp) show(out Emitter) error {
	for _, k := range o.delta.order {
		if w := o.delta.weight[k]; w != 0 {
			if err := addCount(&o.output, o.node, o.kg, []byte(k), w); err != nil {
				return err
			}
		}
	}
	if err := o.delta.emit(o.out, out); err != nil {
		return err
	}
	return o.out.flush(out)
}

// reportFailure reports that the sub-plan fails, or no longer does, or in another way.
func (o *recomputeOp) reportFailure(failed error) error {
	v, had, err := o.failure.get(o.kg, []byte("e"))
	if err != nil {
		return err
	}
	text := ""
	if failed != nil {
		text = string(pgerr.CodeOf(failed)) + failed.Error()
	}
	if !had && failed == nil || had && string(v) == text {
		return nil
	}
	none := types.NewChunk(nil)
	none.N = 1
	if had && len(v) >= 5 {
		was := pgerr.Newf(pgerr.Code(v[:5]), "%s", v[5:])
		if err := o.failure.del(o.kg, []byte("e")); err != nil {
			return err
		}
		if err := o.ctx.Errors.Report(o.node, was, none, 0, -1); err != nil {
			return err
		}
	}
	if failed == nil {
		return nil
	}
	if err := o.failure.put(o.kg, []byte("e"), []byte(text)); err != nil {
		return err
	}
	return o.ctx.Errors.Report(o.node, failed, none, 0, 1)
}

// evaluate runs the sub-plan over the kept inputs.
func (o *recomputeOp) evaluate(into *rowDelta) error {
	sink := &deltaSink{into: into, width: len(o.node.Schema)}
	if o.node.Recompute.Numbered {
		sink.width--
	}
	return o.run(sink)
}

func (o *recomputeOp) run(out Emitter) error {
	ctx := *o.ctx
	ctx.OneShot, ctx.Store = true, nil
	ctx.Errors = raiseErrors{}
	return RunTree(o.node.Recompute.Sub, &ctx, func(leaf *plan.Node, out Emitter) error {
		if leaf.Kind == plan.KindRecurse {
			return runRecursion(leaf, &ctx, o.emitInput, out)
		}
		return o.emitInput(leaf, out)
	}, out)
}

// emitInput emits the kept rows of an input.
func (o *recomputeOp) emitInput(leaf *plan.Node, out Emitter) error {
	if leaf.Kind != plan.KindInput {
		return pgerr.Newf(pgerr.InternalError, "plan node of kind %q in a recomputed sub-plan", leaf.Kind)
	}
	buf := newOutBuf(leaf.Schema.Types())
	err := o.inputs.scan(o.kg, []byte{byte(leaf.Input)}, false, func(k, v []byte) (bool, error) {
		n, w := binary.Varint(v)
		if w <= 0 {
			return false, errCorruptState(o.node)
		}
		if n <= 0 {
			return true, nil
		}
		if _, err := types.DecodeRow(k[1:], buf.c.Cols); err != nil {
			return false, err
		}
		return true, buf.push(n, out)
	})
	if err != nil {
		return err
	}
	return buf.flush(out)
}

type deltaSink struct {
	into  *rowDelta
	width int
	key   []byte
}

func (s *deltaSink) Emit(c *types.Chunk) error {
	for i := range c.Rows() {
		r := c.Row(i)
		s.key = types.AppendRow(s.key[:0], c.Cols[:s.width], r)
		s.into.add(s.key, c.Weight(r))
	}
	return nil
}

func (*deltaSink) EmitWatermark(Watermark) error { return nil }

// raiseErrors ends a one-shot evaluation at the first error.
type raiseErrors struct{}

func (raiseErrors) Report(_ *plan.Node, err error, _ *types.Chunk, _ int, _ int64) error { return err }

func (raiseErrors) Late(*plan.Node, *types.Chunk, int) error { return nil }
