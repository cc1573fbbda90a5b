package op

import (
	"slices"

	"github.com/streamdb/streamdb/sql/expr"
	"github.com/streamdb/streamdb/types"
)

// joinColumns are the columns of a join: in its chunks left, then right ones, of which some are put out.
type joinColumns struct {
	width  [2]int
	output []int
}

// openColumns prepares for the inputs and returns the types of all columns; without output all are put out.
func (j *joinColumns) openColumns(ctx *Context, output []int) []types.Type {
	all := slices.Concat(ctx.InputTypes...)
	j.width, j.output = [2]int{len(ctx.InputTypes[0]), len(ctx.InputTypes[1])}, output
	if output == nil {
		j.output = identity(len(all))
	}
	return all
}

// columns returns those of a side.
func (j *joinColumns) columns(c *types.Chunk, side int) []*types.Vector {
	if side == 0 {
		return c.Cols[:j.width[0]]
	}
	return c.Cols[j.width[0]:]
}

// origin returns the side of a column, and its position there.
func (j *joinColumns) origin(column int) (side, position int) {
	if column < j.width[0] {
		return 0, column
	}
	return 1, column - j.width[0]
}

// pad appends the values of row r of a side's chunk, with NULLs for the other side, to a chunk of all columns.
func (j *joinColumns) pad(dst *types.Chunk, side int, c *types.Chunk, r int) {
	for k, v := range j.columns(dst, side) {
		v.Append(c.Cols[k], r)
	}
	for _, v := range j.columns(dst, 1-side) {
		v.AppendNull()
	}
}

// joinPairs collects candidate pairs of a join, of rows of a chunk in work and rows of the other side: of these the columns are appended as they are found, of
// the chunk they are gathered when the pairs are complete.
type joinPairs struct {
	joinColumns
	residual *expr.Program
	src      *types.Chunk // in work
	srcSide  int
	cand     *types.Chunk
	own      []uint16 // per candidate the row of src
	weights  []int64
	view     types.Chunk // complete candidates
	failures rowFailures
	pass     []uint16 // with a condition: candidates that meet it
	shown    types.Chunk
}

// openPairs is openColumns with a condition, nil for none.
func (p *joinPairs) openPairs(ctx *Context, output []int, cond *expr.Expr) ([]types.Type, error) {
	all := p.openColumns(ctx, output)
	p.cand = types.NewChunk(all)
	if cond == nil {
		return all, nil
	}
	var err error
	p.residual, err = expr.Compile(cond, ctx.Lib)
	return all, err
}

// paired adds a candidate of row r of src, whose other columns have been appended, and reports whether there is room for no other.
func (p *joinPairs) paired(r int) (full bool) {
	p.own = append(p.own, uint16(r))
	p.cand.N++
	return p.cand.N >= types.MaxChunkRows
}

// complete sets view to the candidates, whose weights the operator has set.
func (p *joinPairs) complete(b *base) error {
	for k, v := range p.columns(p.cand, p.srcSide) {
		v.AppendGather(p.src.Cols[k], p.own)
	}
	p.view = types.Chunk{Cols: p.cand.Cols, N: p.cand.N}
	for _, w := range p.weights {
		if w != 1 {
			p.view.Weights = p.weights
			break
		}
	}
	return b.cancelled()
}

// test sets pass to the candidates of view that meet the condition, and reports those for which it fails.
func (p *joinPairs) test(b *base) error {
	p.failures.errs.Reset()
	sel, err := p.residual.Filter(&p.view, b.ctx.Env, &p.failures.errs, p.pass)
	if err != nil {
		return err
	}
	p.pass = sel
	_, err = p.failures.divert(b, &p.view)
	return err
}

// emit emits the candidates that meet the condition.
func (p *joinPairs) emit(out Emitter) error {
	p.shown = types.Chunk{N: p.view.N, Weights: p.view.Weights, Cols: pick(p.shown.Cols, &p.view, p.output)}
	if p.residual != nil {
		if len(p.pass) == 0 {
			return nil
		}
		if len(p.pass) < p.view.N {
			p.shown.Sel = p.pass
		}
	}
	return out.Emit(&p.shown)
}

// clear drops the candidates.
func (p *joinPairs) clear() {
	p.cand.Reset()
	p.own, p.weights = p.own[:0], p.weights[:0]
}
