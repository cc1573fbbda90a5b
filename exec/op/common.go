package op

import (
	"encoding/binary"

	"github.com/streamdb/streamdb/planner/plan"
	"github.com/streamdb/streamdb/sql/expr"
	"github.com/streamdb/streamdb/types"
)

// cancelPollRows is how many rows a long loop handles between two polls of Context.Cancelled.
const cancelPollRows = 4096

// outBuf collects output rows into chunks of at most types.MaxChunkRows and lends each to the emitter when it is full.
type outBuf struct {
	c     *types.Chunk
	cols  []int // those that are emitted; nil: all
	shown types.Chunk
}

func newOutBuf(ts []types.Type) *outBuf { return &outBuf{c: types.NewChunk(ts)} }

// push counts a row of weight w whose values were appended to the columns, and emits the chunk when it is full.
func (b *outBuf) push(w int64, out Emitter) error {
	b.c.PushWeight(w)
	if b.c.N >= types.MaxChunkRows {
		return b.flush(out)
	}
	return nil
}

func (b *outBuf) flush(out Emitter) error {
	if b.c.N == 0 {
		return nil
	}
	shown := b.c
	if b.cols != nil {
		b.shown = types.Chunk{N: b.c.N, Weights: b.c.Weights, Cols: pick(b.shown.Cols, b.c, b.cols)}
		shown = &b.shown
	}
	err := out.Emit(shown)
	b.c.Reset()
	return err
}

// pick returns the vectors of c at positions cols.
func pick(dst []*types.Vector, c *types.Chunk, cols []int) []*types.Vector {
	dst = dst[:0]
	for _, p := range cols {
		dst = append(dst, c.Cols[p])
	}
	return dst
}

// hashesOf returns the hashes of columns of all physical rows of c, in the storage of dst where that suffices.
func hashesOf(dst []uint64, c *types.Chunk, cols []int) []uint64 {
	if cap(dst) < c.N {
		dst = make([]uint64, max(c.N, types.MaxChunkRows))
	}
	types.HashRows(c, cols, dst[:c.N])
	return dst[:c.N]
}

// strictColumns returns the key columns of a join in which NULL matches nothing.
func strictColumns(keys []int, nullSafe []bool) []int {
	var strict []int
	for k, c := range keys {
		if k >= len(nullSafe) || !nullSafe[k] {
			strict = append(strict, c)
		}
	}
	return strict
}

// anyNull reports whether row r of c is NULL in any of the columns.
func anyNull(c *types.Chunk, cols []int, r int) bool {
	for _, p := range cols {
		if c.Cols[p].IsNull(r) {
			return true
		}
	}
	return false
}

// rowFailures diverts rows whose evaluation failed and returns the selection of the others.
type rowFailures struct {
	errs expr.RowErrors
	sel  []uint16
}

// divert reports the failed rows of c. The result is nil when none failed: the chunk's own selection holds.
func (f *rowFailures) divert(b *base, c *types.Chunk) ([]uint16, error) {
	if len(f.errs.Rows) == 0 {
		return nil, nil
	}
	f.errs.Sort()
	for i, r := range f.errs.Rows {
		if err := b.ctx.Errors.Report(b.node, f.errs.Errs[i], c, int(r), c.Weight(int(r))); err != nil {
			return nil, err
		}
	}
	f.sel = f.sel[:0]
	if f.sel == nil {
		f.sel = make([]uint16, 0, types.MaxChunkRows)
	}
	bad := f.errs.Rows
	for i := range c.Rows() {
		r := c.Row(i)
		for len(bad) > 0 && int(bad[0]) < r {
			bad = bad[1:]
		}
		if len(bad) > 0 && int(bad[0]) == r {
			continue
		}
		f.sel = append(f.sel, uint16(r))
	}
	return f.sel, nil
}

// divertLate returns the rows but those whose value in col is below mark, which are reported as late ones where tell is set. Sel and rest are the caller's.
func divertLate(b *base, c *types.Chunk, col *types.Vector, mark int64, tell bool, sel *[]uint16, rest *types.Chunk) (*types.Chunk, error) {
	late := false
	for i := range c.Rows() {
		if r := c.Row(i); col.Int[r] < mark && !col.IsNull(r) {
			late = true
			break
		}
	}
	if !late {
		return c, nil
	}
	if *sel == nil {
		*sel = make([]uint16, 0, types.MaxChunkRows)
	}
	*sel = (*sel)[:0]
	for i := range c.Rows() {
		r := c.Row(i)
		if col.IsNull(r) || col.Int[r] >= mark {
			*sel = append(*sel, uint16(r))
			continue
		}
		if !tell {
			continue
		}
		if err := b.ctx.Errors.Late(b.node, c, r); err != nil {
			return nil, err
		}
	}
	*rest = types.Chunk{Cols: c.Cols, N: c.N, Sel: *sel, Weights: c.Weights}
	return rest, nil
}

// byteReader reads the operators' state encodings; after a failure bad is set and reads return zeros.
type byteReader struct {
	b   []byte
	bad bool
}

func (r *byteReader) byte() byte {
	if len(r.b) == 0 {
		r.bad = true
		return 0
	}
	x := r.b[0]
	r.b = r.b[1:]
	return x
}

func (r *byteReader) uvarint() uint64 {
	x, n := binary.Uvarint(r.b)
	if n <= 0 {
		r.bad, r.b = true, nil
		return 0
	}
	r.b = r.b[n:]
	return x
}

func (r *byteReader) varint() int64 {
	x, n := binary.Varint(r.b)
	if n <= 0 {
		r.bad, r.b = true, nil
		return 0
	}
	r.b = r.b[n:]
	return x
}

func (r *byteReader) bytes(n int) []byte {
	if n < 0 || n > len(r.b) {
		r.bad, r.b = true, nil
		return nil
	}
	x := r.b[:n:n]
	r.b = r.b[n:]
	return x
}

// inputKey returns the stream key of the node's input, all columns when the plan names none.
func inputKey(node *plan.Node, port int, columns int) []int {
	if port < len(node.Inputs) && node.Inputs[port].Key != nil {
		return node.Inputs[port].Key
	}
	return identity(columns)
}

// compileCall prepares the one-argument function id over column 0.
func compileCall(ctx *Context, id string, arg, result types.Type) (*expr.Program, error) {
	e := &expr.Expr{Kind: expr.Call, Func: id, Type: result, Args: []*expr.Expr{expr.Col(0, arg)}, Pos: -1}
	return expr.Compile(e, ctx.Lib)
}
