package op

import (
	"github.com/streamdb/streamdb/internal/pgerr"
	"github.com/streamdb/streamdb/planner/plan"
	"github.com/streamdb/streamdb/sql/expr"
	"github.com/streamdb/streamdb/types"
)

// Leaf emits the rows of a node without inputs, each row once. In a job subtask 0 runs it in its first epoch; that it has run
// is the task loop's to remember across restarts.
type Leaf interface {
	Run(ctx *Context, out Emitter) error
}

// NewLeaf returns the leaf of a values or series node.
func NewLeaf(node *plan.Node) (Leaf, error) {
	switch node.Kind {
	case plan.KindValues:
		return valuesLeaf{node}, nil
	case plan.KindSeries:
		return seriesLeaf{node}, nil
	}
	return nil, pgerr.Newf(pgerr.InternalError, "plan node %d of kind %q is not a leaf", node.ID, node.Kind)
}

type valuesLeaf struct{ node *plan.Node }

func (l valuesLeaf) Run(ctx *Context, out Emitter) error {
	b := newOutBuf(l.node.Schema.Types())
	var values []types.Datum
rows:
	for _, row := range l.node.Values.Rows {
		values = values[:0]
		for _, e := range row {
			d, err := expr.EvalConst(e, ctx.Env, ctx.Lib)
			if err != nil {
				if err := ctx.Errors.Report(l.node, err, nil, 0, 1); err != nil {
					return err
				}
				continue rows
			}
			values = append(values, d)
		}
		for i, d := range values {
			b.c.Cols[i].AppendDatum(d)
		}
		if err := b.push(1, out); err != nil {
			return err
		}
	}
	return b.flush(out)
}

type seriesLeaf struct{ node *plan.Node }

func (l seriesLeaf) Run(ctx *Context, out Emitter) error {
	s := l.node.Series
	call := &expr.Expr{Kind: expr.Call, Func: s.Func, Args: s.Args, Type: l.node.Schema[0].Type, Pos: -1}
	p, err := expr.CompileSet(call, ctx.Lib)
	if err != nil {
		return err
	}
	one := &types.Chunk{N: 1}
	// The set cannot be computed: that is one bad row.
	bad := func(err error) error { return ctx.Errors.Report(l.node, err, nil, 0, 1) }
	if err := p.Prepare(one, ctx.Env, nil); err != nil {
		return bad(err)
	}
	rows, err := p.Start(0)
	if err != nil {
		return bad(err)
	}
	if rows == nil {
		return nil
	}
	results := len(p.Types())
	b := newOutBuf(l.node.Schema.Types())
	total := int64(0)
	for {
		n, err := rows.Next(b.c.Cols[:results], types.MaxChunkRows-b.c.N)
		if err != nil {
			if err := bad(err); err != nil {
				return err
			}
			n = 0
		}
		if n == 0 {
			return b.flush(out)
		}
		for _, v := range b.c.Cols[results:] {
			for k := range n {
				v.Int = append(v.Int, total+int64(k)+1)
			}
		}
		total += int64(n)
		b.c.N += n
		if b.c.N < types.MaxChunkRows {
			continue
		}
		if ctx.Cancelled != nil && ctx.Cancelled() {
			return pgerr.Newf(pgerr.QueryCanceled, "canceling statement due to user request")
		}
		if err := b.flush(out); err != nil {
			return err
		}
	}
}
