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

// columnPart is the part of a column that an assignment changes: an element or a slice of an array, or a member of a jsonb value.
type columnPart struct {
	fn   string       // of the registry: (column, value, args..) gives the column's new value
	args []*expr.Expr // the bound subscripts
	want types.Type   // of the value
	pos  int
}

// indirection is one [i], [lo:hi] or .field behind a column.
type indirection struct {
	lo, hi       ast.ExprNode
	slice, field bool
	name         string
}

func indirections(n ast.ExprNode) []indirection {
	var out []indirection
	for {
		switch e := pgext.ExprOf(n).(type) {
		case *pgext.Subscript:
			out = append(out, indirection{hi: e.Index})
			n = e.X
		case *pgext.Slice:
			out = append(out, indirection{lo: e.Lo, hi: e.Hi, slice: true})
			n = e.X
		case *pgext.Field:
			out = append(out, indirection{field: true, name: e.Name})
			n = e.X
		default:
			slices.Reverse(out)
			return out
		}
	}
}

// columnPart binds the subscripts of t, which is a part of column c.
func (x *exprCtx) columnPart(t pgext.AssignTarget, c *RelColumn) (*columnPart, error) {
	b := x.b
	in := indirections(t.Part)
	typ, pos := c.Type, b.pos(t.Pos)
	for i, d := range in {
		if !d.field {
			continue
		}
		for range min(i, 1) {
			typ, _ = typ.Elem()
		}
		return nil, pgerr.Newf(pgerr.DatatypeMismatch, "cannot assign to field \"%s\" of column \"%s\" because its type %s is not a composite type",
			d.name, c.Name, b.reg.TypeName(typ.OID)).At(pos)
	}
	switch {
	case typ.OID == types.OIDJSONB:
		return x.jsonPart(in, pos)
	case typ.IsArray():
		return x.arrayPart(in, typ, pos)
	}
	e := pgerr.Newf(pgerr.DatatypeMismatch, "cannot subscript type %s because it does not support subscripting", b.reg.TypeName(typ.OID))
	if x.clause != "INSERT" {
		e = e.At(pos)
	}
	return nil, e
}

func (x *exprCtx) arrayPart(in []indirection, typ types.Type, pos int) (*columnPart, error) {
	b := x.b
	if len(in) > types.MaxArrayDims {
		return nil, types.ErrArrayDims(len(in))
	}
	bound := func(n ast.ExprNode) (*expr.Expr, error) {
		if n == nil {
			return nullConst(types.Int4), nil
		}
		e, err := x.bind(n)
		if err != nil {
			return nil, err
		}
		return b.castSubscript(e)
	}
	elem, _ := typ.Elem()
	p := &columnPart{fn: "$set_element", want: elem, pos: pos}
	if slices.ContainsFunc(in, func(d indirection) bool { return d.slice }) {
		p.fn, p.want = "$set_slice", typ
	}
	for _, d := range in {
		hi, err := bound(d.hi)
		if err != nil {
			return nil, err
		}
		if p.fn == "$set_element" {
			p.args = append(p.args, hi)
			continue
		}
		given := int64(0)
		if d.lo != nil || !d.slice {
			given |= functions.SliceLower
		}
		if d.hi != nil {
			given |= functions.SliceUpper
		}
		lo := intConst(types.Int4, 1)
		if d.slice {
			if lo, err = bound(d.lo); err != nil {
				return nil, err
			}
		}
		p.args = append(p.args, intConst(types.Int4, given), lo, hi)
	}
	return p, nil
}

func (x *exprCtx) jsonPart(in []indirection, pos int) (*columnPart, error) {
	p := &columnPart{fn: "$set_member", want: types.JSONB, pos: pos}
	number := false
	for i, d := range in {
		if d.slice {
			return nil, x.b.errJSONSlice(d.lo, d.hi)
		}
		e, err := x.bind(d.hi)
		if err != nil {
			return nil, err
		}
		if e, err = x.b.castJSONSubscript(e); err != nil {
			return nil, err
		}
		number = number || i == 0 && e.Type.OID == types.OIDInt4
		if e, err = x.b.cast(e, types.Text, functions.Assignment); err != nil {
			return nil, err
		}
		p.args = append(p.args, e)
	}
	p.args = append([]*expr.Expr{boolConst(number)}, p.args...)
	return p, nil
}

func (b *binder) errJSONSlice(lo, hi ast.ExprNode) error {
	e := pgerr.Newf(pgerr.DatatypeMismatch, "jsonb subscript does not support slices")
	for _, n := range []ast.ExprNode{hi, lo} {
		if n != nil {
			return e.At(b.pos(firstPos(n)))
		}
	}
	return e
}

// castJSONSubscript makes a subscript of a jsonb value int4 or text.
func (b *binder) castJSONSubscript(e *expr.Expr) (*expr.Expr, error) {
	if e.Type.OID == types.OIDUnknown {
		return b.cast(e, types.Text, functions.Implicit)
	}
	number, text := b.reg.CanCast(e.Type, types.Int4, functions.Implicit), b.reg.CanCast(e.Type, types.Text, functions.Implicit)
	switch {
	case number && !text:
		return b.cast(e, types.Int4, functions.Implicit)
	case text && !number:
		return b.cast(e, types.Text, functions.Implicit)
	}
	return nil, pgerr.Newf(pgerr.DatatypeMismatch, "subscript type %s is not supported", b.reg.TypeName(e.Type.OID)).
		WithHint("jsonb subscript must be coercible to either integer or text.").At(leftmost(e))
}

// assignPart casts a value to the type of column c, or of its part p when that is not nil.
func (b *binder) assignPart(e *expr.Expr, c *RelColumn, p *columnPart) (*expr.Expr, error) {
	if p == nil {
		return b.assign(e, c)
	}
	if e.Type.OID != types.OIDUnknown && e.Type.OID != p.want.OID && !b.reg.CanCast(e.Type, p.want, functions.Assignment) {
		return nil, pgerr.Newf(pgerr.DatatypeMismatch, "subscripted assignment to \"%s\" requires type %s but expression is of type %s", c.Name,
			b.reg.TypeName(p.want.OID), b.reg.TypeName(e.Type.OID)).WithHint("You will need to rewrite or cast the expression.").At(p.pos)
	}
	return b.cast(e, p.want, functions.Assignment)
}

// replacePart returns a column's new value: its value so far, nil for none, with part p replaced by v.
func (b *binder) replacePart(column *expr.Expr, p *columnPart, v *expr.Expr) (*expr.Expr, error) {
	if column == nil {
		t := p.want
		if p.fn == "$set_element" {
			t = types.T(types.ArrayOf(t.OID))
		}
		column = nullConst(t)
	}
	typ := column.Type
	e, err := b.call(p.fn, append([]*expr.Expr{column, v}, p.args...), p.pos)
	if err != nil {
		return nil, err
	}
	e.Type = typ
	return e, nil
}
