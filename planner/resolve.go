package planner

import (
	"strconv"

	"github.com/streamdb/streamdb/internal/pgerr"
	"github.com/streamdb/streamdb/sql"
	"github.com/streamdb/streamdb/sql/expr"
	"github.com/streamdb/streamdb/sql/functions"
	"github.com/streamdb/streamdb/types"
)

func itoa(n int) string { return strconv.Itoa(n) }

// parseType reads a type as casts and column definitions write it.
func parseType(text string) (types.Type, error) {
	n, err := sql.ParseTypeName(text)
	if err != nil {
		return types.Type{}, err
	}
	return ResolveType(n)
}

// ResolveType finds the type that a name in SQL stands for; 42704 when there is none.
func ResolveType(n sql.TypeName) (types.Type, error) {
	missing := func() (types.Type, error) {
		return types.Type{}, pgerr.Newf(pgerr.UndefinedObject, "type \"%s\" does not exist", n.Text)
	}
	if n.Schema != "" && n.Schema != "pg_catalog" {
		return missing()
	}
	name := n.Name
	if n.Schema == "pg_catalog" {
		name = "pg_catalog." + name
	}
	oid, ok := types.TypeByName(name)
	if !ok {
		return missing()
	}
	if n.SetOf {
		return types.Type{}, pgerr.Newf(pgerr.DatatypeMismatch, "a set of %s is not allowed here", types.T(oid))
	}
	t := types.T(oid)
	var err error
	switch {
	case oid == types.OIDInterval && (n.Interval != "" || len(n.Mods) > 0):
		p := -1
		if len(n.Mods) > 0 {
			p = n.Mods[0]
		}
		t.Mod, err = types.IntervalTypmod(n.Interval, p)
	case oid == types.OIDBpchar && len(n.Mods) == 0 && n.Text == "bpchar":
		// bpchar itself has no length; char is char(1).
	default:
		t.Mod, err = types.TypmodIn(oid, n.Mods)
	}
	if err != nil {
		return types.Type{}, err
	}
	if n.ArrayDims > 0 {
		a := types.ArrayOf(oid)
		if a == 0 {
			return missing()
		}
		t.OID = a
	}
	return t, nil
}

func (b *binder) countFunc() string {
	r, err := b.reg.ResolveFunction("count", nil)
	if err != nil {
		b.fail(err)
	}
	return r.Func.ID
}

// volatileExpr reports whether e may give another result each time it is evaluated.
func (b *binder) volatileExpr(e *expr.Expr) bool {
	found := false
	e.Walk(func(x *expr.Expr) bool {
		if x.Kind == expr.Call {
			if f, ok := b.reg.ByID(x.Func); ok && f.Volatility == functions.Volatile {
				found = true
			}
		}
		return !found
	})
	return found
}

// fold evaluates what is constant. An expression that fails stays: it fails when (and if) a row reaches it.
func (b *binder) fold(e *expr.Expr) *expr.Expr {
	return e.Rewrite(func(x *expr.Expr) *expr.Expr {
		switch x.Kind {
		case expr.Column, expr.Const, expr.Param, expr.Row, expr.Array:
			return x
		case expr.And, expr.Or:
			return foldLogic(x)
		case expr.Call:
			f, ok := b.reg.ByID(x.Func)
			if ok && (f.Volatility != functions.Immutable || f.Kind != functions.Scalar) {
				return x
			}
			if !ok {
				impl, found := b.reg.Function(x.Func)
				if !found || impl.Volatile || impl.Stable {
					return x
				}
			}
		}
		for _, a := range x.Args {
			if a.Kind != expr.Const {
				return x
			}
		}
		d, err := expr.EvalConst(x, b.o.Env, b.reg)
		if err != nil {
			return x
		}
		d.Type = x.Type
		c := expr.Literal(d)
		c.Pos = x.Pos
		return c
	})
}

// foldLogic drops the neutral arguments of AND and OR, and all of them when one decides.
func foldLogic(x *expr.Expr) *expr.Expr {
	decides := x.Kind == expr.Or
	var rest []*expr.Expr
	for _, a := range x.Args {
		if a.Kind == expr.Const && !a.Const.Null {
			if a.Const.Bool == decides {
				return a
			}
			continue
		}
		rest = append(rest, a)
	}
	switch len(rest) {
	case len(x.Args):
		return x
	case 0:
		return boolConst(!decides)
	case 1:
		return rest[0]
	}
	c := *x
	c.Args = rest
	return &c
}

// sliding returns the error for functions whose result changes with time, which no view can keep up to date.
func (b *binder) sliding(name string, f *functions.Func, pos int) error {
	if !b.stream {
		return nil
	}
	moving := f.Volatility == functions.Volatile
	switch name {
	case "now", "transaction_timestamp", "statement_timestamp":
		moving = true
	}
	if !moving {
		return nil
	}
	return pgerr.Newf(pgerr.FeatureNotSupported, "function %s() cannot be used in a materialized view: its result changes without a change of its input", name).
		WithHint("Use a column of the input, for example the time at which a row was written.").At(pos)
}
