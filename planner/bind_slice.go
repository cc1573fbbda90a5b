package planner

import (
	"slices"

	"github.com/pingcap/tidb/pkg/parser/ast"

	"github.com/streamdb/streamdb/internal/pgerr"
	"github.com/streamdb/streamdb/sql/expr"
	"github.com/streamdb/streamdb/sql/functions"
	"github.com/streamdb/streamdb/sql/pgext"
	"github.com/streamdb/streamdb/types"
)

// slice binds a[lo:hi], a[lo:hi][lo:hi] and so on: v is the last of the subscripts. Where one of them is a slice all are, [n] is [1:n].
func (x *exprCtx) slice(v pgext.Expr, pos int) (*expr.Expr, error) {
	b := x.b
	type dim struct{ lo, hi ast.ExprNode }
	var dims []dim
	var base ast.ExprNode
	single := map[int]bool{}
	for done := false; !done; {
		switch e := v.(type) {
		case *pgext.Slice:
			base, dims = e.X, append(dims, dim{e.Lo, e.Hi})
		case *pgext.Subscript:
			single[len(dims)] = true
			base, dims = e.X, append(dims, dim{nil, e.Index})
		}
		switch v = pgext.ExprOf(base); v.(type) {
		case *pgext.Slice, *pgext.Subscript:
		default:
			done = true
		}
	}
	a, err := x.bind(base)
	if err != nil {
		return nil, err
	}
	if a.Type.OID == types.OIDJSONB {
		return nil, b.errJSONSlice(dims[0].lo, dims[0].hi)
	}
	if !a.Type.IsArray() {
		return nil, pgerr.Newf(pgerr.DatatypeMismatch, "cannot subscript type %s because it does not support subscripting", b.reg.TypeName(a.Type.OID)).At(leftmost(a))
	}
	bound := func(e ast.ExprNode) (*expr.Expr, error) {
		if e == nil {
			return nullConst(types.Int4), nil
		}
		c, err := x.bind(e)
		if err != nil {
			return nil, err
		}
		return b.castSubscript(c)
	}
	args := []*expr.Expr{a}
	for i, d := range slices.Backward(dims) {
		given := int64(0)
		if d.lo != nil || single[i] {
			given |= functions.SliceLower
		}
		if d.hi != nil {
			given |= functions.SliceUpper
		}
		lo, err := bound(d.lo)
		if err != nil {
			return nil, err
		}
		if single[i] {
			lo = intConst(types.Int4, 1)
		}
		hi, err := bound(d.hi)
		if err != nil {
			return nil, err
		}
		args = append(args, intConst(types.Int4, given), lo, hi)
	}
	return b.call(funcSlice, args, pos)
}

// castSubscript casts a subscript as an assignment does: 1.4 is 1.
func (b *binder) castSubscript(c *expr.Expr) (*expr.Expr, error) {
	if !b.reg.CanCast(c.Type, types.Int4, functions.Assignment) {
		return nil, pgerr.Newf(pgerr.DatatypeMismatch, "array subscript must have type integer").At(leftmost(c))
	}
	return b.cast(c, types.Int4, functions.Assignment)
}
