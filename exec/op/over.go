package op

import (
	"slices"

	"github.com/streamdb/streamdb/checkpoint"
	"github.com/streamdb/streamdb/types"
)

// overOp computes window functions. State table 0 holds the input rows by partition and order (see sortedRows). A partition that
// an epoch touches is computed before its first change and at the barrier; the difference is emitted.
type overOp struct {
	base
	rows    sortedRows
	parts   map[string]*overPart
	touched []*overPart
	calls   []*overCall
	delta   rowDelta
	out     *outBuf
	marks   groupMarks
	key     []byte

	part  *types.Chunk // rows of the partition in work: input columns, position
	peers []int        // per row the number of its peer group
	first []int        // per peer group its first row, then the number of rows
}

var _ Operator = (*overOp)(nil)

// overPart is a partition that the epoch touched, with the rows it showed before.
type overPart struct {
	kg     uint16
	prefix []byte
	old    [][]byte
}

func (o *overOp) Open(ctx *Context) error {
	o.ctx = ctx
	o.rows.group, o.rows.order = o.node.Over.PartitionBy, o.node.Over.Order
	o.parts = map[string]*overPart{}
	o.out = newOutBuf(o.node.Schema.Types())
	in := ctx.InputTypes[0]
	o.part = types.NewChunk(append(slices.Clone(in), types.Int8))
	for i := range o.node.Over.Calls {
		c, err := o.newOverCall(i)
		if err != nil {
			return err
		}
		o.calls = append(o.calls, c)
	}
	return o.rows.open(ctx, o.node, 0)
}

func (o *overOp) Process(_ int, c *types.Chunk, _ Emitter) error {
	o.rows.begin(c)
	for i := range c.Rows() {
		r := c.Row(i)
		kg, n := o.rows.locate(c, r)
		if o.parts[viewString(o.rows.key[:n])] == nil {
			p := &overPart{kg: kg, prefix: slices.Clone(o.rows.key[:n])}
			key := slices.Clone(o.rows.key)
			ends := o.rows.ends
			var err error
			if p.old, err = o.compute(p, -1); err != nil {
				return err
			}
			o.rows.key, o.rows.ends = key, ends
			o.parts[string(p.prefix)] = p
			o.touched = append(o.touched, p)
		}
		if err := o.rows.add(kg, c.Weight(r)); err != nil {
			return err
		}
	}
	return nil
}

func (o *overOp) Barrier(_ checkpoint.Barrier, out Emitter) error {
	for _, p := range o.touched {
		now, err := o.compute(p, 1)
		if err != nil {
			return err
		}
		if err := o.delta.replace(p.old, now, o.out, out); err != nil {
			return err
		}
		if err := o.cancelled(); err != nil {
			return err
		}
	}
	o.touched = o.touched[:0]
	clear(o.parts)
	if err := o.out.flush(out); err != nil {
		return err
	}
	return o.marks.emit(out)
}

func (o *overOp) Watermark(_ int, w Watermark, _ Emitter) error {
	if slices.Contains(o.node.Over.PartitionBy, w.Column) || slices.Contains(o.node.WatermarkCols, w.Column) {
		o.marks.set(w)
	}
	return nil
}

// load reads a partition into o.part, with its peer groups.
func (o *overOp) load(p *overPart) error {
	for _, v := range o.part.Cols {
		v.Reset()
	}
	o.part.N = 0
	o.peers, o.first = o.peers[:0], o.first[:0]
	last := len(o.part.Cols) - 1
	err := o.rows.scan(p.kg, p.prefix, func(r *sortedRow) (bool, error) {
		if o.part.N == 0 || string(r.orderKey()) != string(o.key) {
			o.key = append(o.key[:0], r.orderKey()...)
			o.first = append(o.first, o.part.N)
		}
		for range r.count {
			if _, err := types.DecodeRow(r.row(), o.part.Cols[:last]); err != nil {
				return false, err
			}
			o.part.Cols[last].Int = append(o.part.Cols[last].Int, int64(o.part.N))
			o.peers = append(o.peers, len(o.first)-1)
			o.part.N++
		}
		return true, nil
	})
	o.first = append(o.first, o.part.N)
	return err
}

// compute returns the encoded output rows of a partition. Rows for which a function fails are reported with the given weight.
func (o *overOp) compute(p *overPart, weight int64) ([][]byte, error) {
	if err := o.load(p); err != nil {
		return nil, err
	}
	n := o.part.N
	cols := slices.Clone(o.part.Cols[:len(o.part.Cols)-1])
	failed := map[int]bool{}
	for _, c := range o.calls {
		out := &types.Vector{Type: c.spec.Type}
		errAt := func(i int, err error) error {
			if failed[i] {
				return nil
			}
			failed[i] = true
			return o.ctx.Errors.Report(o.node, err, o.part, i, weight)
		}
		if err := c.eval(o, out, errAt); err != nil {
			return nil, err
		}
		cols = append(cols, out)
	}
	rows := make([][]byte, 0, n)
	for i := range n {
		if !failed[i] {
			rows = append(rows, types.AppendRow(nil, cols, i))
		}
	}
	return rows, nil
}
