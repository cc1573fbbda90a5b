package functions_test

import (
	"strings"

	"github.com/pingcap/tidb/pkg/parser/ast"

	"github.com/streamdb/streamdb/internal/pgerr"
	"github.com/streamdb/streamdb/sql"
	"github.com/streamdb/streamdb/sql/expr"
	"github.com/streamdb/streamdb/sql/functions"
	"github.com/streamdb/streamdb/sql/pgext"
	"github.com/streamdb/streamdb/types"
)

// testBinder binds expressions without columns, as far as the examples need it.
type testBinder struct{ reg *functions.Registry }

// parseExprs returns the select list of `SELECT list`.
func parseExprs(list string) (out []ast.ExprNode, err error) {
	stmts, err := sql.Parse("SELECT " + list)
	if err != nil {
		return nil, err
	}
	defer pgext.Recover(&err)
	q := pgext.QueryOf(stmts[0].(*sql.Query).Stmt)
	for _, f := range q.Select.Targets {
		out = append(out, f.X)
	}
	return out, nil
}

func (b testBinder) parse(text string) (*expr.Expr, error) {
	es, err := parseExprs(text)
	if err != nil {
		return nil, err
	}
	return b.bind(es[0])
}

func (b testBinder) list(es []ast.ExprNode) ([]*expr.Expr, []types.Type, error) {
	var out []*expr.Expr
	var ts []types.Type
	for _, e := range es {
		x, err := b.bind(e)
		if err != nil {
			return nil, nil, err
		}
		out, ts = append(out, x), append(ts, x.Type)
	}
	return out, ts, nil
}

func (b testBinder) call(res *functions.Resolved, args []*expr.Expr) (*expr.Expr, error) {
	if res.Cast {
		return b.reg.Cast(args[0], res.Result, functions.Explicit)
	}
	for i := range args {
		var err error
		if args[i], err = b.reg.Cast(args[i], res.Args[i], functions.Implicit); err != nil {
			return nil, err
		}
	}
	return &expr.Expr{Kind: expr.Call, Type: res.Result, Func: res.Func.ID, Args: args, Pos: -1}, nil
}

func (b testBinder) function(name string, args []*expr.Expr) (*expr.Expr, error) {
	ts := make([]types.Type, len(args))
	for i, a := range args {
		ts[i] = a.Type
	}
	res, err := b.reg.ResolveFunction(name, ts)
	if err != nil {
		return nil, err
	}
	return b.call(res, args)
}

func (b testBinder) common(what string, args []*expr.Expr) ([]*expr.Expr, types.Type, error) {
	ts := make([]types.Type, len(args))
	for i, a := range args {
		ts[i] = a.Type
	}
	t, err := b.reg.CommonType(what, ts)
	if err != nil {
		return nil, t, err
	}
	for i := range args {
		if args[i], err = b.reg.Cast(args[i], t, functions.Implicit); err != nil {
			return nil, t, err
		}
	}
	return args, t, nil
}

func typeOf(text string) (types.Type, error) {
	n, err := sql.ParseTypeName(text)
	if err != nil {
		return types.Type{}, err
	}
	name := n.Name
	if name == "char" {
		name = `"char"`
	}
	oid, ok := types.TypeByName(name)
	if !ok {
		return types.Type{}, pgerr.Newf(pgerr.UndefinedObject, "type %q does not exist", n.Name)
	}
	mod := int32(-1)
	if len(n.Mods) > 0 {
		if mod, err = types.TypmodIn(oid, n.Mods); err != nil {
			return types.Type{}, err
		}
	}
	if n.ArrayDims > 0 {
		oid = types.ArrayOf(oid)
	}
	return types.Type{OID: oid, Mod: mod}, nil
}

func unknown(s string) *expr.Expr {
	return &expr.Expr{Kind: expr.Const, Type: types.Unknown, Const: &types.Datum{Type: types.Unknown, Str: s}, Pos: -1}
}

func (b testBinder) bind(n ast.ExprNode) (*expr.Expr, error) {
	switch e := pgext.ExprOf(n).(type) {
	case *pgext.Const:
		switch e.Kind {
		case pgext.ConstNull:
			return expr.Literal(types.NullDatum(types.Unknown)), nil
		case pgext.ConstBool:
			return expr.Literal(types.Datum{Type: types.Bool, Bool: e.Bool}), nil
		case pgext.ConstInt:
			t := types.Int8
			if e.Int == int64(int32(e.Int)) {
				t = types.Int4
			}
			return expr.Literal(types.Datum{Type: t, Int: e.Int}), nil
		case pgext.ConstString:
			return unknown(e.Text), nil
		case pgext.ConstNumeric:
			num, err := types.ParseNumeric(e.Text)
			return expr.Literal(types.Datum{Type: types.NumericType, Num: num}), err
		}
	case *pgext.TypedLiteral:
		t, err := typeOf(e.Type)
		if err != nil {
			return nil, err
		}
		return b.reg.Cast(unknown(e.Text), t, functions.Explicit)
	case *pgext.Cast:
		x, err := b.bind(e.X)
		if err != nil {
			return nil, err
		}
		t, err := typeOf(e.Type)
		if err != nil {
			return nil, err
		}
		return b.reg.Cast(x, t, functions.Explicit)
	case *pgext.Op:
		args, ts, err := b.list(e.Args)
		if err != nil {
			return nil, err
		}
		if e.Name == "-" && len(args) == 1 && args[0].Kind == expr.Const && args[0].Type == types.Int8 && args[0].Const.Int == 1<<31 {
			return expr.Literal(types.Datum{Type: types.Int4, Int: -1 << 31}), nil
		}
		if len(ts) == 1 {
			ts = append([]types.Type{{}}, ts...)
		}
		res, err := b.reg.ResolveOperator(e.Name, ts[0], ts[1])
		if err != nil {
			return nil, err
		}
		return b.call(res, args)
	case *pgext.Call:
		var args []*expr.Expr
		for _, a := range e.Args {
			x, err := b.bind(a.X)
			if err != nil {
				return nil, err
			}
			args = append(args, x)
		}
		return b.function(e.Name, args)
	case *pgext.Array:
		args, _, err := b.list(e.Elems)
		if err != nil {
			return nil, err
		}
		args, t, err := b.common("ARRAY", args)
		if err != nil {
			return nil, err
		}
		if !t.IsArray() {
			t = types.T(types.ArrayOf(t.OID))
		}
		return &expr.Expr{Kind: expr.Array, Type: t, Args: args, Pos: -1}, nil
	case *pgext.Row:
		args, _, err := b.list(e.Elems)
		return &expr.Expr{Kind: expr.Row, Type: types.T(types.OIDRecord), Args: args, Pos: -1}, err
	case *pgext.Case:
		return b.caseOf(e)
	case *pgext.Logic:
		args, _, err := b.list(e.Args)
		if err != nil {
			return nil, err
		}
		for i := range args {
			if args[i], err = b.reg.Cast(args[i], types.Bool, functions.Implicit); err != nil {
				return nil, err
			}
		}
		kind := expr.And
		if e.Or {
			kind = expr.Or
		}
		return &expr.Expr{Kind: kind, Type: types.Bool, Args: args, Pos: -1}, err
	case *pgext.Not:
		x, err := b.bind(e.X)
		if err != nil {
			return nil, err
		}
		x, err = b.reg.Cast(x, types.Bool, functions.Implicit)
		return &expr.Expr{Kind: expr.Not, Type: types.Bool, Args: []*expr.Expr{x}, Pos: -1}, err
	case *pgext.Special:
		args, _, err := b.list(e.Args)
		if err != nil {
			return nil, err
		}
		if e.Name == "nullif" {
			return b.nullif(args)
		}
		args, t, err := b.common(strings.ToUpper(e.Name), args)
		return &expr.Expr{Kind: expr.Kind(e.Name), Type: t, Args: args, Pos: -1}, err
	case *pgext.In:
		args, _, err := b.list(append([]ast.ExprNode{e.X}, e.List...))
		if err != nil {
			return nil, err
		}
		args, _, err = b.common("IN", args)
		return &expr.Expr{Kind: expr.InList, Type: types.Bool, Args: args, Pos: -1}, err
	case *pgext.SQLValue:
		return b.function(e.Name, nil)
	}
	return nil, pgerr.Newf(pgerr.FeatureNotSupported, "test binder: %T", pgext.ExprOf(n))
}

func (b testBinder) nullif(args []*expr.Expr) (*expr.Expr, error) {
	res, err := b.reg.ResolveOperator("=", args[0].Type, args[1].Type)
	if err != nil {
		return nil, err
	}
	eq, err := b.call(res, append([]*expr.Expr(nil), args...))
	t := args[0].Type
	null := expr.Literal(types.NullDatum(t))
	return &expr.Expr{Kind: expr.Case, Type: t, Args: []*expr.Expr{eq, null, args[0]}, Pos: -1}, err
}

func (b testBinder) caseOf(e *pgext.Case) (*expr.Expr, error) {
	var results []*expr.Expr
	var conds []*expr.Expr
	for _, w := range e.Whens {
		c, err := b.bind(w.Cond)
		if err != nil {
			return nil, err
		}
		r, err := b.bind(w.Result)
		if err != nil {
			return nil, err
		}
		conds, results = append(conds, c), append(results, r)
	}
	if e.Else != nil {
		r, err := b.bind(e.Else)
		if err != nil {
			return nil, err
		}
		results = append(results, r)
	}
	results, t, err := b.common("CASE", results)
	if err != nil {
		return nil, err
	}
	out := &expr.Expr{Kind: expr.Case, Type: t, Pos: -1}
	for i := range conds {
		out.Args = append(out.Args, conds[i], results[i])
	}
	if len(results) > len(conds) {
		out.Args = append(out.Args, results[len(conds)])
	}
	return out, nil
}
