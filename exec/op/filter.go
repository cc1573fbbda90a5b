package op

import (
	"github.com/streamdb/streamdb/sql/expr"
	"github.com/streamdb/streamdb/types"
)

// filterOp narrows the selection of chunks; no row is copied.
type filterOp struct {
	base
	prog *expr.Program
	errs rowFailures
	sel  []uint16
	out  types.Chunk
}

var _ Operator = (*filterOp)(nil)

func (o *filterOp) Open(ctx *Context) error {
	o.ctx = ctx
	var err error
	o.prog, err = expr.Compile(o.node.Filter.Cond, ctx.Lib)
	return err
}

func (o *filterOp) Process(_ int, c *types.Chunk, out Emitter) error {
	o.errs.errs.Reset()
	sel, err := o.prog.Filter(c, o.ctx.Env, &o.errs.errs, o.sel)
	if err != nil {
		return err
	}
	o.sel = sel
	if _, err := o.errs.divert(&o.base, c); err != nil {
		return err
	}
	if len(sel) == 0 {
		return nil
	}
	o.out = types.Chunk{Cols: c.Cols, N: c.N, Sel: sel, Weights: c.Weights}
	return out.Emit(&o.out)
}

func (o *filterOp) Watermark(_ int, w Watermark, out Emitter) error { return out.EmitWatermark(w) }
