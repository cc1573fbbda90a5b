package planner

import (
	"github.com/pingcap/tidb/pkg/parser/ast"

	"github.com/streamdb/streamdb/internal/pgerr"
	"github.com/streamdb/streamdb/planner/plan"
	"github.com/streamdb/streamdb/sql/expr"
	"github.com/streamdb/streamdb/sql/functions"
	"github.com/streamdb/streamdb/sql/pgext"
	"github.com/streamdb/streamdb/types"
)

// shape describes the fields of a composite value. Type record says nothing about them, so the binder remembers where values come from.
type shape struct {
	names []string
	types []types.Type
	subs  []*shape // per field, nil for what is not composite
}

// shapeOf returns the fields of composite expression e (of its elements when e is an array), nil when they are not known.
func (b *binder) shapeOf(e *expr.Expr) *shape {
	switch e.Kind {
	case expr.Row:
		s := &shape{names: e.Names}
		for i, a := range e.Args {
			if e.Names == nil {
				s.names = append(s.names, "f"+itoa(i+1))
			}
			s.types, s.subs = append(s.types, a.Type), append(s.subs, b.shapeOf(a))
		}
		return s
	case expr.Column:
		return b.md.cols[e.Col].shape
	case expr.Case:
		for i, a := range e.Args {
			if i%2 == 0 && i < len(e.Args)-1 {
				continue
			}
			if s := b.shapeOf(a); s != nil {
				return s
			}
		}
	case expr.Coalesce, expr.Greatest, expr.Least, expr.Array:
		for _, a := range e.Args {
			if s := b.shapeOf(a); s != nil {
				return s
			}
		}
	case expr.Call:
		switch e.Func {
		case fieldFunc:
			if s := b.shapeOf(e.Args[0]); s != nil {
				return s.subs[int(e.Args[1].Const.Int)-1]
			}
		case subscriptFunc:
			return b.shapeOf(e.Args[0])
		}
	}
	return nil
}

// keepShape remembers that column id holds the value of e.
func (b *binder) keepShape(id int, e *expr.Expr) {
	if t := e.Type; t.OID == types.OIDRecord || t.IsArray() {
		b.md.cols[id].shape = b.shapeOf(e)
	}
}

// IDs of the functions behind composite values.
const (
	fieldFunc      = "$field(record,int4)"
	rowNullFunc    = "$row_is_null(record)"
	rowNotNullFunc = "$row_is_not_null(record)"
	subscriptFunc  = "$subscript(anyarray,int4)"
)

// rowOf returns the row constructor that e is, also under the test that makes the row of an outer join's other side NULL: the columns are
// NULL there too.
func rowOf(e *expr.Expr) *expr.Expr {
	switch {
	case e.Kind == expr.Row:
		return e
	case e.Kind == expr.Case && len(e.Args) == 3 && e.Args[0].Kind == expr.IsNull && e.Args[1].Kind == expr.Const && e.Args[2].Kind == expr.Row && e.Args[2].Names != nil:
		return e.Args[2]
	}
	return nil
}

// tableRow is the row of a FROM item; a function's single column stands for itself, as in PostgreSQL.
func (x *exprCtx) tableRow(t *rangeTable, pos int) (*expr.Expr, error) {
	b := x.b
	if t.scalar {
		c := b.md.ref(t.cols[0].id)
		c.Pos = pos
		return c, nil
	}
	r := &expr.Expr{Kind: expr.Row, Type: types.T(types.OIDRecord), Pos: pos, Names: make([]string, len(t.cols))}
	for i, c := range t.cols {
		r.Args, r.Names[i] = append(r.Args, b.md.ref(c.id)), c.name
	}
	if !t.nullable {
		return r, nil
	}
	id := t.present
	if t.rel != nil && id == 0 {
		for _, c := range appendCols(t.cols, t.hidden) {
			if b.md.cols[c.id].notNull && b.scanned[c.id] {
				id = c.id
				break
			}
		}
	}
	if id == 0 {
		return nil, &absentRow{t.name}
	}
	return &expr.Expr{Kind: expr.Case, Type: r.Type, Pos: pos, Args: []*expr.Expr{isNull(b.md.ref(id)), nullConst(r.Type), r}}, nil
}

// absentRow reports that the row of a FROM item is used as a value where an outer join may leave it out, and that nothing tells when it does:
// the query is bound again with a column that does.
type absentRow struct{ table string }

func (*absentRow) Error() string { return "the row of an outer join's side needs a mark" }

// markRows adds the marks that absentRow asked for to a side of an outer join whose rows may be missing.
func (b *binder) markRows(n *node, sc *scope) *node {
	for _, t := range sc.tables {
		if !b.marked[t.name] || t.present != 0 || t.scalar {
			continue
		}
		t.present = b.md.add("?present?", types.Bool)
		b.md.cols[t.present].notNull = true
		n = b.md.extend(n, []int{t.present}, []*expr.Expr{boolConst(true)})
	}
	return n
}

func (x *exprCtx) field(e *pgext.Field) (*expr.Expr, error) {
	b, pos := x.b, x.b.pos(e.Pos)
	if c, ok := pgext.ExprOf(e.X).(*pgext.Column); ok && len(c.Names) < 3 && !x.names(c.Names) {
		return x.columnRef(&pgext.Column{Names: append(append([]string(nil), c.Names...), e.Name), Pos: c.Pos})
	}
	v, err := x.bind(e.X)
	if err != nil {
		return nil, err
	}
	return b.fieldOf(v, e.Name, pos)
}

// names reports whether a column reference finds a column, not a FROM item.
func (x *exprCtx) names(names []string) bool {
	_, err := x.b.column(x.sc, names, -1)
	return err == nil
}

func (b *binder) fieldOf(v *expr.Expr, name string, pos int) (*expr.Expr, error) {
	at := v.Pos
	if at < 0 {
		at = pos
	}
	if v.Type.OID != types.OIDRecord {
		return nil, pgerr.Newf(pgerr.WrongObjectType, "column notation .%s applied to type %s, which is not a composite type", name, types.T(v.Type.OID)).At(at)
	}
	s := b.shapeOf(v)
	if s != nil {
		for i, n := range s.names {
			if n == name {
				return b.fieldAt(v, s, i, pos), nil
			}
		}
	}
	return nil, pgerr.Newf(pgerr.UndefinedColumn, "could not identify column \"%s\" in record data type", name).At(at)
}

func (b *binder) fieldAt(v *expr.Expr, s *shape, i, pos int) *expr.Expr {
	if r := rowOf(v); r != nil {
		return r.Args[i]
	}
	return &expr.Expr{Kind: expr.Call, Type: s.types[i], Func: fieldFunc, Args: []*expr.Expr{v, intConst(types.Int4, int64(i+1))}, Pos: pos}
}

// expand binds (x).* to the fields of x.
func (x *exprCtx) expand(e *pgext.FieldStar) ([]targetItem, error) {
	b, pos := x.b, x.b.pos(e.Pos)
	if c, ok := pgext.ExprOf(e.X).(*pgext.Column); ok && !x.names(c.Names) {
		cols, err := x.sc.starCols(c.Names, b.pos(c.Pos))
		if err != nil {
			return nil, err
		}
		out := make([]targetItem, len(cols))
		for i, c := range cols {
			out[i] = targetItem{name: c.name, e: b.md.ref(c.id)}
			out[i].e.Pos = pos
		}
		return out, nil
	}
	v, err := x.bind(e.X)
	if err != nil {
		return nil, err
	}
	if v.Type.OID != types.OIDRecord {
		return nil, pgerr.Newf(pgerr.WrongObjectType, "type %s is not composite", types.T(v.Type.OID)).At(v.Pos)
	}
	s := b.shapeOf(v)
	if s == nil {
		return nil, pgerr.Newf(pgerr.FeatureNotSupported, "record type has not been registered").At(v.Pos)
	}
	out := make([]targetItem, len(s.names))
	for i, n := range s.names {
		out[i] = targetItem{name: n, e: b.fieldAt(v, s, i, pos)}
	}
	return out, nil
}

// nullTest is IS [NOT] NULL: of a composite value it looks at the fields.
func (b *binder) nullTest(c *expr.Expr, not bool) *expr.Expr {
	one := isNull
	if not {
		one = isNotNull
	}
	if r := rowOf(c); r != nil {
		if len(r.Args) == 0 {
			return boolConst(true)
		}
		parts := make([]*expr.Expr, len(r.Args))
		for i, a := range r.Args {
			parts[i] = one(a)
		}
		return and(parts...)
	}
	if c.Type.OID == types.OIDRecord {
		id := rowNullFunc
		if not {
			id = rowNotNullFunc
		}
		return &expr.Expr{Kind: expr.Call, Type: types.Bool, Func: id, Args: []*expr.Expr{c}, Pos: c.Pos}
	}
	return one(c)
}

// attribute is f(row) read as row.f, nil when row has no such field.
func (b *binder) attribute(name string, args []*expr.Expr, pos int) *expr.Expr {
	if len(args) != 1 || args[0].Type.OID != types.OIDRecord {
		return nil
	}
	c, err := b.fieldOf(args[0], name, pos)
	if err != nil {
		return nil
	}
	return c
}

// rowQuery binds (SELECT a, b) where it is compared with a row: the values of its columns.
func (x *exprCtx) rowQuery(q ast.Node, width, pos int) ([]*expr.Expr, error) {
	b := x.b
	r, err := x.sub(q, false)
	if err != nil {
		return nil, err
	}
	if len(r.cols) > width {
		return nil, pgerr.Newf(pgerr.SyntaxError, "subquery has too many columns").At(pos)
	}
	if len(r.cols) < width {
		return nil, pgerr.Newf(pgerr.SyntaxError, "subquery has too few columns").At(pos)
	}
	row := &expr.Expr{Kind: expr.Row, Type: types.T(types.OIDRecord), Pos: pos}
	for _, c := range r.cols {
		row.Args = append(row.Args, b.md.ref(c.id))
	}
	id := b.md.add("row", row.Type)
	b.keepShape(id, row)
	n, id := b.single(b.md.extend(r.n, []int{id}, []*expr.Expr{row}), id)
	x.applies = append(x.applies, apply{right: n, jtype: plan.Left})
	v := b.md.ref(id)
	s := b.shapeOf(v)
	out := make([]*expr.Expr, width)
	for i := range out {
		out[i] = b.fieldAt(v, s, i, pos)
	}
	return out, nil
}

// setColumns returns the result columns of a set-returning call, empty for one value; those of a polymorphic function follow its arguments.
func setColumns(f *functions.Func, args []*expr.Expr) (cols []types.Column, own bool) {
	for _, c := range f.Columns {
		if c.Type.OID == types.OIDAnyElement && len(args) > 0 {
			if t, ok := args[0].Type.Elem(); ok {
				c.Type, own = t, true
			}
		}
		cols = append(cols, c)
	}
	return cols, own
}
