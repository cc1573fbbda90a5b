package planner

import (
	"slices"
	"strings"

	"github.com/streamdb/streamdb/internal/pgerr"
	"github.com/streamdb/streamdb/planner/plan"
	"github.com/streamdb/streamdb/sql"
	"github.com/streamdb/streamdb/sql/expr"
	"github.com/streamdb/streamdb/sql/functions"
	"github.com/streamdb/streamdb/sql/pgext"
	"github.com/streamdb/streamdb/types"
)

// rowType finds the relation whose rows have the type that a text names.
func (b *binder) rowType(text string, pos int) (*Relation, error) {
	n, err := sql.ParseTypeName(text)
	if err != nil {
		return nil, nil
	}
	rel, ok := b.lookup(n.Schema, n.Name)
	if !ok || rel.Kind == Index {
		return nil, nil
	}
	if n.ArrayDims > 0 || len(n.Mods) > 0 {
		return nil, pgerr.Newf(pgerr.FeatureNotSupported, "arrays of type %s are not supported", n.Name).WithHint("Write ARRAY[..] of values that are cast one by one.").At(pos)
	}
	b.depend(rel.ID)
	return rel, nil
}

// castRow gives c the type of rel's rows; pos is where the cast stands. The value is a record with the names and types of the columns.
func (b *binder) castRow(c *expr.Expr, rel *Relation, pos int) (*expr.Expr, error) {
	var cols []RelColumn
	for _, col := range rel.Columns {
		if !col.Hidden {
			cols = append(cols, col)
		}
	}
	row := func(fields []*expr.Expr) (*expr.Expr, error) {
		r := &expr.Expr{Kind: expr.Row, Type: types.T(types.OIDRecord), Pos: c.Pos}
		for i, f := range fields {
			v, err := b.cast(f, cols[i].Type, functions.Explicit)
			if err != nil {
				return nil, pgerr.From(err).At(f.Pos)
			}
			r.Args, r.Names = append(r.Args, v), append(r.Names, cols[i].Name)
		}
		return r, nil
	}
	either := func(null, r *expr.Expr) *expr.Expr {
		return &expr.Expr{Kind: expr.Case, Type: r.Type, Pos: c.Pos, Args: []*expr.Expr{null, nullConst(r.Type), r}}
	}
	switch {
	case c.Kind == expr.Const && c.Const.Null:
		fields := make([]*expr.Expr, len(cols))
		for i, col := range cols {
			fields[i] = nullConst(col.Type)
		}
		r, err := row(fields) // tells the shape
		if err != nil {
			return nil, err
		}
		return either(boolConst(true), r), nil
	case c.Kind == expr.Const && c.Type.OID == types.OIDUnknown:
		texts, detail := splitRecord(c.Const.Str, len(cols))
		if detail != "" {
			return nil, pgerr.Newf(pgerr.InvalidTextRepresentation, "malformed record literal: \"%s\"", c.Const.Str).WithDetail("%s", detail).At(c.Pos)
		}
		fields := make([]*expr.Expr, len(cols))
		for i, t := range texts {
			if fields[i] = nullConst(types.Unknown); t != nil {
				fields[i] = unknownText(*t, c.Pos)
			}
		}
		return row(fields)
	case c.Type.OID == types.OIDUnknown:
		return nil, pgerr.Newf(pgerr.FeatureNotSupported, "parameters of type %s are not supported", rel.Name).WithHint("Write ROW(..) with a parameter for each column.").At(c.Pos)
	}
	s := b.shapeOf(c)
	switch {
	case c.Type.OID != types.OIDRecord || s == nil:
		return nil, pgerr.Newf(pgerr.CannotCoerce, "cannot cast type %s to %s", b.reg.TypeName(c.Type.OID), rel.Name).At(pos)
	case len(s.names) < len(cols):
		return nil, pgerr.Newf(pgerr.CannotCoerce, "cannot cast type record to %s", rel.Name).WithDetail("Input has too few columns.").At(pos)
	case len(s.names) > len(cols):
		return nil, pgerr.Newf(pgerr.CannotCoerce, "cannot cast type record to %s", rel.Name).WithDetail("Input has too many columns.").At(pos)
	}
	fields := make([]*expr.Expr, len(cols))
	for i := range fields {
		fields[i] = b.fieldAt(c, s, i, c.Pos)
	}
	r, err := row(fields)
	if err != nil || c.Kind == expr.Row {
		return r, err
	}
	if rowOf(c) != nil { // of an outer join's side
		return either(c.Args[0], r), nil
	}
	return either(&expr.Expr{Kind: expr.IsNull, Type: types.Bool, Args: []*expr.Expr{c}, Pos: c.Pos}, r), nil
}

// splitRecord takes the text of a row of n columns apart, nil for NULL. It returns what is wrong with it, "" for nothing.
func splitRecord(s string, n int) (fields []*string, wrong string) {
	const space = " \t\n\r\v\f"
	s = strings.TrimLeft(s, space)
	if !strings.HasPrefix(s, "(") {
		return nil, "Missing left parenthesis."
	}
	s = s[1:]
	for i := range n {
		if i > 0 {
			if !strings.HasPrefix(s, ",") {
				return nil, "Too few columns."
			}
			s = s[1:]
		}
		if strings.HasPrefix(s, ",") || strings.HasPrefix(s, ")") {
			fields = append(fields, nil)
			continue
		}
		var f strings.Builder
		for quoted := false; ; {
			switch {
			case s == "" || s == `\`:
				return nil, "Unexpected end of input."
			case !quoted && (s[0] == ',' || s[0] == ')'):
			case s[0] == '\\':
				f.WriteByte(s[1])
				s = s[2:]
				continue
			case s[0] == '"' && quoted && strings.HasPrefix(s, `""`):
				f.WriteByte('"')
				s = s[2:]
				continue
			case s[0] == '"':
				quoted, s = !quoted, s[1:]
				continue
			default:
				f.WriteByte(s[0])
				s = s[1:]
				continue
			}
			break
		}
		text := f.String()
		fields = append(fields, &text)
	}
	switch {
	case s == "":
		return nil, "Unexpected end of input."
	case s[0] != ')':
		return nil, "Too many columns."
	case strings.Trim(s[1:], space) != "":
		return nil, "Junk after right parenthesis."
	}
	return fields, ""
}

// populated are the functions that make rows of a given type of JSON.
var populated = map[string]bool{"json_populate_record": false, "jsonb_populate_record": false, "json_populate_recordset": true, "jsonb_populate_recordset": true}

// IDs of the functions behind those: arguments are the JSON and the fields for members that are not there.
const (
	populateFunc    = "$populate_record(any)"
	populateSetFunc = "$populate_recordset(any)"
)

// populates reports whether a call is one of these functions.
func populates(c *pgext.Call) (set, ok bool) {
	if c.Schema != "" && c.Schema != "pg_catalog" {
		return false, false
	}
	set, ok = populated[c.Name]
	return set, ok
}

// populate binds a call that makes rows of JSON; defs name the columns where the type of the first argument does not.
func (x *exprCtx) populate(e *pgext.Call, defs []types.Column) (call *expr.Expr, columns []types.Column, base *expr.Expr, err error) {
	b, pos := x.b, x.b.pos(e.Pos)
	set, _ := populates(e)
	if err = x.plainCall(e, pos); err != nil {
		return nil, nil, nil, err
	}
	args, err := x.callArgs(e)
	if err != nil {
		return nil, nil, nil, err
	}
	json := types.JSON
	if strings.HasPrefix(e.Name, "jsonb") {
		json = types.JSONB
	}
	if len(args) < 2 || len(args) > 2 && json == types.JSONB || len(args) > 3 {
		return nil, nil, nil, pgerr.Newf(pgerr.UndefinedFunction, "function %s does not exist", b.reg.Signature(e.Name, argTypes(args))).
			WithHint("No function matches the given name and argument types. You might need to add explicit type casts.").At(pos)
	}
	base = args[0]
	s := b.shapeOf(base)
	switch {
	case base.Type.OID == types.OIDUnknown:
		return nil, nil, nil, pgerr.Newf(pgerr.DatatypeMismatch, "could not determine polymorphic type because input has type unknown")
	case base.Type.OID != types.OIDRecord:
		return nil, nil, nil, pgerr.Newf(pgerr.DatatypeMismatch, "first argument of %s must be a row type", e.Name)
	case s == nil && defs == nil:
		return nil, nil, nil, pgerr.Newf(pgerr.InvalidParameterValue, "could not determine row type for result of %s", e.Name).
			WithHint("Provide a non-null record argument, or call the function in the FROM clause using a column definition list.")
	}
	from, err := b.cast(args[1], json, functions.Implicit)
	if err != nil {
		return nil, nil, nil, err
	}
	call = &expr.Expr{Kind: expr.Call, Type: types.T(types.OIDRecord), Func: populateFunc, Args: []*expr.Expr{from}, Pos: pos}
	if set {
		call.Func = populateSetFunc
	}
	columns = defs
	if s != nil {
		columns = nil
		for i, n := range s.names {
			columns = append(columns, types.Column{Name: n, Type: s.types[i]})
		}
	}
	for i, c := range columns {
		field := nullConst(c.Type)
		if s != nil {
			field = b.fieldAt(base, s, i, pos)
		}
		if field, err = b.known(field); err != nil {
			return nil, nil, nil, err
		}
		columns[i].Type = field.Type
		call.Args, call.Names, call.Cols = append(call.Args, field), append(call.Names, c.Name), append(call.Cols, field.Type)
	}
	return call, columns, base, nil
}

// populateValue binds such a call outside of FROM.
func (x *exprCtx) populateValue(e *pgext.Call) (*expr.Expr, error) {
	b, pos := x.b, x.b.pos(e.Pos)
	set, _ := populates(e)
	if set {
		if err := x.mayHaveSet(pos); err != nil {
			return nil, err
		}
	}
	call, columns, base, err := x.populate(e, nil)
	if err != nil {
		return nil, err
	}
	row := &expr.Expr{Kind: expr.Row, Type: types.T(types.OIDRecord), Pos: pos}
	var ids []int
	for _, c := range columns {
		id := b.md.add(c.Name, c.Type)
		ids = append(ids, id)
		row.Names, row.Args = append(row.Names, c.Name), append(row.Args, b.md.ref(id))
	}
	if set {
		mark := b.md.add("?row?", types.Bool)
		it := srfItem{depth: x.setDepth(call.Args), ids: append(slices.Clone(ids), mark)}
		it.call = &expr.Expr{Kind: expr.Call, Type: row.Type, Func: expr.MarkedSet, Args: []*expr.Expr{call}, Pos: pos}
		x.srfs.items = append(x.srfs.items, it)
		return &expr.Expr{Kind: expr.Case, Type: row.Type, Pos: pos, Args: []*expr.Expr{isNull(b.md.ref(mark)), nullConst(row.Type), row}}, nil
	}
	// One row for each row here.
	one := &node{op: opUnnest, in: []*node{b.md.dual()}, calls: []*expr.Expr{call}, added: ids, ordinal: b.md.add("?ordinal?", types.Int8)}
	x.applies = append(x.applies, apply{right: b.md.narrow(one, ids), jtype: plan.Left})
	from := call.Args[0]
	return &expr.Expr{Kind: expr.Case, Type: row.Type, Pos: pos, Args: []*expr.Expr{isNull(from), base, row}}, nil
}
