package op

import (
	"github.com/streamdb/streamdb/sql/expr"
	"github.com/streamdb/streamdb/types"
)

// projectOp computes expressions; plain columns pass through without copying.
type projectOp struct {
	base
	progs []*expr.Program
	cols  []int // per expression the input column it is, -1 when computed
	errs  rowFailures
	out   types.Chunk
	vecs  []*types.Vector
}

var _ Operator = (*projectOp)(nil)

func (o *projectOp) Open(ctx *Context) error {
	o.ctx = ctx
	exprs := o.node.Project.Exprs
	o.progs = make([]*expr.Program, len(exprs))
	o.cols = make([]int, len(exprs))
	o.vecs = make([]*types.Vector, len(exprs))
	for i, e := range exprs {
		o.cols[i] = -1
		if e.Kind == expr.Column {
			o.cols[i] = e.Col
			continue
		}
		p, err := expr.Compile(e, ctx.Lib)
		if err != nil {
			return err
		}
		o.progs[i] = p
	}
	return nil
}

func (o *projectOp) Process(_ int, c *types.Chunk, out Emitter) error {
	if c.Rows() == 0 {
		return nil
	}
	o.errs.errs.Reset()
	for i, p := range o.progs {
		if p == nil {
			o.vecs[i] = c.Cols[o.cols[i]]
			continue
		}
		v, err := p.Eval(c, o.ctx.Env, &o.errs.errs)
		if err != nil {
			return err
		}
		o.vecs[i] = v
	}
	o.out = types.Chunk{Cols: o.vecs, N: c.N, Sel: c.Sel, Weights: c.Weights}
	if len(o.errs.errs.Rows) > 0 {
		sel, err := o.errs.divert(&o.base, c)
		if err != nil {
			return err
		}
		if len(sel) == 0 {
			return nil
		}
		o.out.Sel = sel
	}
	return out.Emit(&o.out)
}

func (o *projectOp) Watermark(_ int, w Watermark, out Emitter) error {
	for i, p := range o.cols {
		if p == w.Column {
			if err := out.EmitWatermark(Watermark{Column: i, Value: w.Value}); err != nil {
				return err
			}
		}
	}
	return nil
}
