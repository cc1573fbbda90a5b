package op

import (
	"github.com/streamdb/streamdb/sql/expr"
	"github.com/streamdb/streamdb/types"
)

// unnestOp expands each row by the results of set-returning calls, side by side; shorter results are padded with NULL.
type unnestOp struct {
	base
	calls []*expr.SetProgram
	first []int // per call its first output column
	buf   *outBuf
	errs  rowFailures
	iters []expr.SetRows
	got   []int
}

var _ Operator = (*unnestOp)(nil)

func (o *unnestOp) Open(ctx *Context) error {
	o.ctx = ctx
	at := len(ctx.InputTypes[0])
	for _, e := range o.node.Unnest.Calls {
		p, err := expr.CompileSet(e, ctx.Lib)
		if err != nil {
			return err
		}
		o.calls = append(o.calls, p)
		o.first = append(o.first, at)
		at += len(p.Types())
	}
	o.iters = make([]expr.SetRows, len(o.calls))
	o.got = make([]int, len(o.calls))
	o.buf = newOutBuf(o.node.Schema.Types())
	return nil
}

func (o *unnestOp) Process(_ int, c *types.Chunk, out Emitter) error {
	o.errs.errs.Reset()
	for _, p := range o.calls {
		if err := p.Prepare(c, o.ctx.Env, &o.errs.errs); err != nil {
			return err
		}
	}
	rows := c
	if len(o.errs.errs.Rows) > 0 {
		sel, err := o.errs.divert(&o.base, c)
		if err != nil {
			return err
		}
		rows = &types.Chunk{Cols: c.Cols, N: c.N, Sel: sel, Weights: c.Weights}
	}
	for i := range rows.Rows() {
		r := rows.Row(i)
		if err := o.expand(c, r, out); err != nil {
			return err
		}
	}
	return o.buf.flush(out)
}

// expand emits the rows of physical row r. When a call fails half-way, the part of its rows that is still in the buffer is taken back and the
// row is diverted.
func (o *unnestOp) expand(c *types.Chunk, r int, out Emitter) error {
	from := o.buf.c.N
	fail := func(cause error) error {
		for _, v := range o.buf.c.Cols {
			v.Resize(from)
		}
		o.buf.c.N = from
		if o.buf.c.Weights != nil {
			o.buf.c.Weights = o.buf.c.Weights[:from]
		}
		return o.ctx.Errors.Report(o.node, cause, c, r, c.Weight(r))
	}
	for j, p := range o.calls {
		it, err := p.Start(r)
		if err != nil {
			return fail(err)
		}
		o.iters[j] = it
	}
	w := c.Weight(r)
	ordinal := int64(0)
	for {
		room := types.MaxChunkRows - o.buf.c.N
		n := 0
		for j := range o.calls {
			got, err := o.pull(j, room)
			if err != nil {
				return fail(err)
			}
			o.got[j] = got
			n = max(n, got)
		}
		if n == 0 {
			break
		}
		for j := range o.calls {
			o.pad(j, n-o.got[j])
		}
		for k := range n {
			o.appendRow(c, r, ordinal+int64(k)+1)
			o.buf.c.PushWeight(w)
		}
		ordinal += int64(n)
		if o.buf.c.N < types.MaxChunkRows {
			continue
		}
		if err := o.cancelled(); err != nil {
			return err
		}
		if err := o.buf.flush(out); err != nil {
			return err
		}
		from = 0
	}
	if ordinal > 0 || !o.node.Unnest.Left {
		return nil
	}
	for j := range o.calls {
		o.pad(j, 1)
	}
	o.appendRow(c, r, 0)
	o.buf.c.Cols[len(o.buf.c.Cols)-1].SetNull(o.buf.c.N)
	return o.buf.push(w, out)
}

// pull appends up to room result rows of call j.
func (o *unnestOp) pull(j, room int) (int, error) {
	if o.iters[j] == nil {
		return 0, nil
	}
	cols := o.buf.c.Cols[o.first[j] : o.first[j]+len(o.calls[j].Types())]
	got := 0
	for got < room {
		n, err := o.iters[j].Next(cols, room-got)
		if err != nil {
			return 0, err
		}
		if n == 0 {
			o.iters[j] = nil
			break
		}
		got += n
	}
	return got, nil
}

func (o *unnestOp) pad(j, n int) {
	for _, v := range o.buf.c.Cols[o.first[j] : o.first[j]+len(o.calls[j].Types())] {
		for range n {
			v.AppendNull()
		}
	}
}

func (o *unnestOp) appendRow(c *types.Chunk, r int, ordinal int64) {
	for i, v := range c.Cols {
		o.buf.c.Cols[i].Append(v, r)
	}
	last := o.buf.c.Cols[len(o.buf.c.Cols)-1]
	n := len(last.Int)
	last.Resize(n + 1)
	last.Int[n] = ordinal
}

func (o *unnestOp) Watermark(_ int, w Watermark, out Emitter) error { return out.EmitWatermark(w) }
