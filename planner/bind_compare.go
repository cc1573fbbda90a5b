package planner

import (
	"strings"

	"github.com/pingcap/tidb/pkg/parser/ast"

	"github.com/streamdb/streamdb/internal/pgerr"
	"github.com/streamdb/streamdb/sql/expr"
	"github.com/streamdb/streamdb/sql/functions"
	"github.com/streamdb/streamdb/sql/pgext"
	"github.com/streamdb/streamdb/types"
)

// negative folds a sign into a number, so that the least integers have integer type.
func (x *exprCtx) negative(e *pgext.Op) (*expr.Expr, bool, error) {
	if e.Name != "-" || len(e.Args) != 1 {
		return nil, false, nil
	}
	c, ok := pgext.ExprOf(e.Args[0]).(*pgext.Const)
	if !ok {
		return nil, false, nil
	}
	switch c.Kind {
	case pgext.ConstInt:
		d := intDatum(-c.Int)
		return &expr.Expr{Kind: expr.Const, Type: d.Type, Const: &d, Pos: x.b.pos(e.Pos)}, true, nil
	case pgext.ConstNumeric:
		r, err := numberConst("-"+c.Text, x.b.pos(e.Pos))
		return r, true, err
	}
	return nil, false, nil
}

func (x *exprCtx) operator(e *pgext.Op) (*expr.Expr, error) {
	if c, ok, err := x.negative(e); ok || err != nil {
		return c, err
	}
	pos := x.b.pos(e.Pos)
	if e.Schema != "" && e.Schema != "pg_catalog" {
		return nil, pgerr.Newf(pgerr.UndefinedFunction, "operator does not exist: %s.%s", e.Schema, e.Name).At(pos)
	}
	if len(e.Args) == 2 && comparison(e.Name) {
		if l, r, ok, err := x.rowPair(e.Args[0], e.Args[1], pos); ok || err != nil {
			if err != nil {
				return nil, err
			}
			return x.b.rowCompare(e.Name, l, r, pos)
		}
	}
	args, err := x.binds(e.Args)
	if err != nil {
		return nil, err
	}
	return x.b.operatorOn(e.Name, args, pos)
}

func comparison(op string) bool {
	switch op {
	case "=", "<>", "<", "<=", ">", ">=":
		return true
	}
	return false
}

// rowPair binds both sides of a comparison of two row constructors.
func (x *exprCtx) rowPair(a, c ast.ExprNode, pos int) (l, r []*expr.Expr, ok bool, err error) {
	lv, lok := pgext.ExprOf(a).(*pgext.Row)
	rv, rok := pgext.ExprOf(c).(*pgext.Row)
	if q, ok := pgext.ExprOf(c).(*pgext.Subquery); ok && lok {
		if l, err = x.rowElems(lv); err == nil {
			r, err = x.rowQuery(q.Query, len(l), pos)
		}
		return l, r, true, err
	}
	if !lok || !rok {
		return nil, nil, false, nil
	}
	if l, err = x.rowElems(lv); err == nil {
		r, err = x.rowElems(rv)
	}
	if err == nil && len(l) != len(r) {
		err = pgerr.Newf(pgerr.SyntaxError, "unequal number of entries in row expressions").At(pos)
	}
	return l, r, true, err
}

func (x *exprCtx) rowElems(r *pgext.Row) ([]*expr.Expr, error) {
	var out []*expr.Expr
	for _, e := range r.Elems {
		if s, ok := pgext.ExprOf(e).(*pgext.Star); ok {
			cols, err := x.sc.starCols(s.Names, x.b.pos(s.Pos))
			if err != nil {
				return nil, err
			}
			for _, c := range cols {
				out = append(out, x.b.md.ref(c.id))
			}
			continue
		}
		if s, ok := pgext.ExprOf(e).(*pgext.FieldStar); ok {
			fields, err := x.expand(s)
			if err != nil {
				return nil, err
			}
			for _, f := range fields {
				out = append(out, f.e)
			}
			continue
		}
		c, err := x.bind(e)
		if err != nil {
			return nil, err
		}
		out = append(out, c)
	}
	return out, nil
}

// rowCompare compares two rows of equal length as PostgreSQL does.
func (b *binder) rowCompare(op string, l, r []*expr.Expr, pos int) (*expr.Expr, error) {
	if len(l) == 0 {
		return nil, pgerr.Newf(pgerr.FeatureNotSupported, "cannot compare rows of zero length").At(pos)
	}
	switch op {
	case "=", "<>":
		parts := make([]*expr.Expr, len(l))
		for i := range l {
			c, err := b.operatorOn(op, []*expr.Expr{l[i], r[i]}, pos)
			if err != nil {
				return nil, err
			}
			parts[i] = c
		}
		if op == "=" {
			return and(parts...), nil
		}
		if len(parts) == 1 {
			return parts[0], nil
		}
		return or(parts...), nil
	}
	strict := strings.TrimSuffix(op, "=")
	last := len(l) - 1
	out, err := b.operatorOn(op, []*expr.Expr{l[last], r[last]}, pos)
	if err != nil {
		return nil, err
	}
	for i := last - 1; i >= 0; i-- {
		less, err := b.operatorOn(strict, []*expr.Expr{l[i], r[i]}, pos)
		if err != nil {
			return nil, err
		}
		eq, err := b.operatorOn("=", []*expr.Expr{l[i], r[i]}, pos)
		if err != nil {
			return nil, err
		}
		out = or(less, and(eq, out))
	}
	return out, nil
}

// explicitRow reports whether e is ROW(…): such rows are compared field by field, other composite values as a whole.
func explicitRow(e *expr.Expr) bool { return e.Kind == expr.Row && e.Names == nil }

// operatorOn resolves an operator over bound operands.
func (b *binder) operatorOn(name string, args []*expr.Expr, pos int) (*expr.Expr, error) {
	var l, r types.Type
	if len(args) == 2 {
		l, r = args[0].Type, args[1].Type
	} else {
		r = args[0].Type
	}
	if l.OID == types.OIDRecord && r.OID == types.OIDRecord && comparison(name) && explicitRow(args[0]) && explicitRow(args[1]) && len(args[0].Args) == len(args[1].Args) {
		return b.rowCompare(name, args[0].Args, args[1].Args, pos)
	}
	res, err := b.reg.ResolveOperator(name, l, r)
	if err != nil {
		return nil, pgerr.From(err).At(pos)
	}
	out := make([]*expr.Expr, len(args))
	for i, a := range args {
		if out[i], err = b.cast(a, res.Args[i], functions.Implicit); err != nil {
			return nil, err
		}
	}
	return &expr.Expr{Kind: expr.Call, Type: res.Result, Func: res.Func.ID, Args: out, Pos: pos}, nil
}

func (x *exprCtx) isNull(e *pgext.IsNull) (*expr.Expr, error) {
	one := isNull
	if e.Not {
		one = isNotNull
	}
	if r, ok := pgext.ExprOf(e.X).(*pgext.Row); ok {
		args, err := x.rowElems(r)
		if err != nil {
			return nil, err
		}
		parts := make([]*expr.Expr, len(args))
		for i, a := range args {
			if a, err = x.b.known(a); err != nil {
				return nil, err
			}
			parts[i] = one(a)
		}
		if len(parts) == 0 {
			return boolConst(true), nil
		}
		return and(parts...), nil
	}
	c, err := x.bind(e.X)
	if err != nil {
		return nil, err
	}
	if c.Kind != expr.Param {
		// A parameter that is only tested for NULL keeps no type, as in PostgreSQL.
		if c, err = x.b.known(c); err != nil {
			return nil, err
		}
	}
	return x.b.nullTest(c, e.Not), nil
}

func (x *exprCtx) isBool(e *pgext.IsBool) (*expr.Expr, error) {
	c, err := x.bind(e.X)
	if err != nil {
		return nil, err
	}
	what := [...]string{"TRUE", "FALSE", "UNKNOWN"}[e.Value]
	if e.Not {
		what = "NOT " + what
	}
	if c, err = x.b.castArg(c, types.Bool, "argument of IS "+what+" must be type boolean, not type %s"); err != nil {
		return nil, err
	}
	switch e.Value {
	case pgext.True:
		c = isTruth(c)
	case pgext.False:
		c = isTruth(not(c))
	default:
		c = isNull(c)
	}
	if e.Not {
		c = not(c)
	}
	return c, nil
}

func (x *exprCtx) isDistinct(e *pgext.IsDistinct) (*expr.Expr, error) {
	pos := x.b.pos(e.Pos)
	l, r, ok, err := x.rowPair(e.L, e.R, pos)
	if err != nil {
		return nil, err
	}
	if !ok {
		a, err := x.binds([]ast.ExprNode{e.L, e.R})
		if err != nil {
			return nil, err
		}
		l, r = a[:1], a[1:]
	}
	parts := make([]*expr.Expr, len(l))
	for i := range l {
		if parts[i], err = x.b.distinct(l[i], r[i], pos); err != nil {
			return nil, err
		}
	}
	out := parts[0]
	if len(parts) > 1 {
		out = or(parts...)
	}
	if e.Not {
		return not(out), nil
	}
	return out, nil
}

func (b *binder) distinct(l, r *expr.Expr, pos int) (*expr.Expr, error) {
	eq, err := b.operatorOn("=", []*expr.Expr{l, r}, pos)
	if err != nil {
		return nil, err
	}
	if eq.Kind != expr.Call {
		return nil, pgerr.Newf(pgerr.FeatureNotSupported, "IS DISTINCT FROM is not supported for rows").At(pos)
	}
	return &expr.Expr{Kind: expr.Distinct, Type: types.Bool, Func: eq.Func, Args: eq.Args, Pos: pos}, nil
}

func (x *exprCtx) between(e *pgext.Between) (*expr.Expr, error) {
	pos := x.b.pos(e.Pos)
	one := func(lo, hi ast.ExprNode) (*expr.Expr, error) {
		args, err := x.binds([]ast.ExprNode{e.X, lo, hi})
		if err != nil {
			return nil, err
		}
		lower, err := x.b.operatorOn(">=", args[:2], pos)
		if err != nil {
			return nil, err
		}
		upper, err := x.b.operatorOn("<=", []*expr.Expr{args[0], args[2]}, pos)
		if err != nil {
			return nil, err
		}
		return and(lower, upper), nil
	}
	c, err := one(e.Lo, e.Hi)
	if err != nil {
		return nil, err
	}
	if e.Symmetric {
		d, err := one(e.Hi, e.Lo)
		if err != nil {
			return nil, err
		}
		c = or(c, d)
	}
	if e.Not {
		c = not(c)
	}
	return c, nil
}

func (x *exprCtx) inList(e *pgext.In) (*expr.Expr, error) {
	pos := x.b.pos(e.Pos)
	var out *expr.Expr
	if lv, ok := pgext.ExprOf(e.X).(*pgext.Row); ok {
		var parts []*expr.Expr
		for _, it := range e.List {
			rv, ok := pgext.ExprOf(it).(*pgext.Row)
			if !ok {
				return nil, pgerr.Newf(pgerr.FeatureNotSupported, "a row can only be compared with rows in IN").At(pos)
			}
			l, err := x.rowElems(lv)
			if err != nil {
				return nil, err
			}
			r, err := x.rowElems(rv)
			if err != nil {
				return nil, err
			}
			if len(l) != len(r) {
				return nil, pgerr.Newf(pgerr.SyntaxError, "unequal number of entries in row expressions").At(pos)
			}
			c, err := x.b.rowCompare("=", l, r, pos)
			if err != nil {
				return nil, err
			}
			parts = append(parts, c)
		}
		if out = parts[0]; len(parts) > 1 {
			out = or(parts...)
		}
	} else {
		before := 0
		if x.srfs != nil {
			before = len(x.srfs.items)
		}
		args, err := x.binds(append([]ast.ExprNode{e.X}, e.List...))
		if err != nil {
			return nil, err
		}
		if x.srfs != nil && setCompared(args, x.srfs.items[before:]) {
			return nil, pgerr.Newf(pgerr.DatatypeMismatch, "argument of IN must not return a set").At(pos)
		}
		if out, err = x.b.inExprs(args, pos); err != nil {
			return nil, err
		}
	}
	if e.Not {
		out = not(out)
	}
	return out, nil
}

// setCompared reports whether args[0] IN (args[1:]) compares a set with one element. Several elements without columns are one array for
// PostgreSQL, which sets may be compared with.
func setCompared(args []*expr.Expr, items []srfItem) bool {
	if len(items) == 0 {
		return false
	}
	made := map[int]*expr.Expr{}
	for _, it := range items {
		for _, id := range it.ids {
			made[id] = it.call
		}
	}
	var uses func(e *expr.Expr) (set, variable bool)
	uses = func(e *expr.Expr) (set, variable bool) {
		e.Walk(func(c *expr.Expr) bool {
			if c.Kind != expr.Column {
				return true
			}
			call := made[c.Col]
			if call == nil {
				variable = true
				return true
			}
			set = true
			_, v := uses(call)
			variable = variable || v
			return true
		})
		return set, variable
	}
	left, _ := uses(args[0])
	alone, first, single := false, false, 0
	for _, a := range args[1:] {
		set, variable := uses(a)
		if variable {
			alone = alone || set || left
			continue
		}
		single++
		first = set
	}
	return alone || single == 1 && (left || first)
}

// inExprs is args[0] IN (args[1:]).
func (b *binder) inExprs(args []*expr.Expr, pos int) (*expr.Expr, error) {
	ts := make([]types.Type, len(args))
	for i, a := range args {
		ts[i] = types.T(a.Type.OID)
	}
	t, err := b.reg.CommonType("IN", ts)
	if err == nil && len(args) > 2 && args[0].Kind != expr.Row {
		if t.OID == types.OIDVarchar || t.OID == types.OIDName {
			t = types.Text
		}
		if _, opErr := b.reg.ResolveOperator("=", t, t); opErr == nil {
			out := make([]*expr.Expr, len(args))
			for i, a := range args {
				if out[i], err = b.cast(a, types.T(t.OID), functions.Implicit); err != nil {
					return nil, err
				}
			}
			return &expr.Expr{Kind: expr.InList, Type: types.Bool, Args: out, Pos: pos}, nil
		}
	}
	var parts []*expr.Expr
	for _, a := range args[1:] {
		c, err := b.operatorOn("=", []*expr.Expr{args[0], a}, pos)
		if err != nil {
			return nil, err
		}
		parts = append(parts, c)
	}
	if len(parts) == 1 {
		return parts[0], nil
	}
	return or(parts...), nil
}

func (x *exprCtx) anyArray(e *pgext.AnyAll) (*expr.Expr, error) {
	b, pos := x.b, x.b.pos(e.Pos)
	l, err := x.bind(e.X)
	if err != nil {
		return nil, err
	}
	a, err := x.bind(e.Array)
	if err != nil {
		return nil, err
	}
	elem := types.Unknown
	if a.Type.OID != types.OIDUnknown {
		t, ok := a.Type.Elem()
		if !ok {
			return nil, pgerr.Newf(pgerr.WrongObjectType, "op ANY/ALL (array) requires array on right side").At(pos)
		}
		elem = t
	}
	res, err := b.reg.ResolveOperator(e.Op, l.Type, elem)
	if err != nil {
		return nil, pgerr.From(err).At(pos)
	}
	if res.Result.OID != types.OIDBool {
		return nil, pgerr.Newf(pgerr.WrongObjectType, "op ANY/ALL (array) requires operator to yield boolean").At(pos)
	}
	if l, err = b.cast(l, res.Args[0], functions.Implicit); err != nil {
		return nil, err
	}
	if a, err = b.cast(a, types.T(types.ArrayOf(res.Args[1].OID)), functions.Implicit); err != nil {
		return nil, err
	}
	kind := expr.AnyArray
	if e.All {
		kind = expr.AllArray
	}
	return &expr.Expr{Kind: kind, Type: types.Bool, Func: res.Func.ID, Args: []*expr.Expr{l, a}, Pos: pos}, nil
}
