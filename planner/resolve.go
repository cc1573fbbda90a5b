package planner

import (
	"strconv"
	"strings"

	"github.com/streamdb/streamdb/internal/pgerr"
	"github.com/streamdb/streamdb/sql"
	"github.com/streamdb/streamdb/sql/expr"
	"github.com/streamdb/streamdb/sql/functions"
	"github.com/streamdb/streamdb/types"
)

func itoa(n int) string { return strconv.Itoa(n) }

// parseType reads a type as casts and column definitions write it. An enum type becomes a dependency of the statement.
func (b *binder) parseType(text string) (types.Type, error) {
	n, err := sql.ParseTypeName(text)
	if err != nil {
		return types.Type{}, err
	}
	t, err := ResolveType(n, b.o.Catalog)
	if err != nil {
		return types.Type{}, err
	}
	b.dependOnType(t)
	return t, nil
}

func (b *binder) dependOnType(t types.Type) {
	if e, ok := t.Elem(); ok {
		t = e
	}
	if t.IsEnum() {
		b.depend(uint64(t.OID))
	}
}

// unsupportedTypes are PostgreSQL's types that streamdb does not have, with what to use instead.
var unsupportedTypes = map[string]string{
	"money": "Use numeric(19,2).", "inet": "Use text.", "cidr": "Use text.", "macaddr": "Use text.", "macaddr8": "Use text.",
	"xml": "Use text, or jsonb.", "bit": "Use boolean, integer with the bit operators, or bytea.", "varbit": "Use bytea, or text of 0 and 1.",
	"point": "Use two columns of type double precision.", "line": "Use columns of type double precision.", "lseg": "Use columns of type double precision.",
	"box": "Use columns of type double precision.", "path": "Use double precision[].", "polygon": "Use double precision[].",
	"circle": "Use columns of type double precision.", "tsvector": "Use text.", "tsquery": "Use text.",
	"int4range": "Use two columns, for the lower and the upper bound.", "int8range": "Use two columns, for the lower and the upper bound.",
	"numrange": "Use two columns, for the lower and the upper bound.", "daterange": "Use two columns, for the lower and the upper bound.",
	"tsrange": "Use two columns, for the lower and the upper bound.", "tstzrange": "Use two columns, for the lower and the upper bound.",
	"int4multirange": "Use an array of bounds.", "int8multirange": "Use an array of bounds.", "nummultirange": "Use an array of bounds.",
	"datemultirange": "Use an array of bounds.", "tsmultirange": "Use an array of bounds.", "tstzmultirange": "Use an array of bounds.",
	"pg_lsn": "Use bigint.", "txid_snapshot": "Use bigint.", "pg_snapshot": "Use bigint.", "xid8": "Use bigint.", "cid": "Use bigint.", "tid": "Use bigint.",
	"refcursor": "Use text.", "regconfig": "Text search is not available.", "regdictionary": "Text search is not available.",
}

// ResolveType finds the type that a name in SQL stands for; 42704 when there is none, 0A000 for types of PostgreSQL that streamdb does not have.
func ResolveType(n sql.TypeName, c Catalog) (types.Type, error) {
	missing := func() (types.Type, error) {
		return types.Type{}, pgerr.Newf(pgerr.UndefinedObject, "type \"%s\" does not exist", strings.TrimRight(strings.TrimSpace(n.Text), "[]"))
	}
	var oid types.OID
	ok := false
	if n.Schema == "" || n.Schema == "pg_catalog" {
		name := n.Name
		if n.Schema == "pg_catalog" {
			name = "pg_catalog." + name
		}
		if name == "char" { // quoted: the keyword is pg_catalog.bpchar
			name = `"char"`
		}
		oid, ok = types.TypeByName(name)
	}
	if !ok && c != nil && n.Schema != "pg_catalog" {
		if n.Schema != "" && !c.SchemaExists(n.Schema) {
			return types.Type{}, pgerr.Newf(pgerr.InvalidSchemaName, "schema \"%s\" does not exist", n.Schema)
		}
		oid, ok = c.Type(n.Schema, n.Name)
	}
	if !ok {
		if hint, known := unsupportedTypes[n.Name]; known && (n.Schema == "" || n.Schema == "pg_catalog") {
			return types.Type{}, pgerr.Newf(pgerr.FeatureNotSupported, "type %s is not supported", n.Name).WithHint("%s", hint)
		}
		return missing()
	}
	if n.SetOf {
		return types.Type{}, pgerr.Newf(pgerr.DatatypeMismatch, "a set of %s is not allowed here", types.T(oid))
	}
	t := types.T(oid)
	var err error
	switch {
	case t.IsUserType() && len(n.Mods) > 0:
		err = pgerr.Newf(pgerr.SyntaxError, "type modifier is not allowed for type \"%s\"", n.Name)
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

// sliding returns the error for functions whose result changes with time, which no view can keep up to date. now() may stand in conditions: what becomes
// of it is seen when the plan is built (see temporal).
func (b *binder) sliding(name string, f *functions.Func, clause string, pos int) error {
	if !b.stream {
		return nil
	}
	moving := f.Volatility == functions.Volatile
	if isNow(name) {
		moving = clause != "WHERE" && clause != "HAVING" && clause != "AND"
	}
	if !moving {
		return nil
	}
	return errSliding(name, pos)
}

func isNow(name string) bool {
	return name == "now" || name == "transaction_timestamp" || name == "statement_timestamp"
}

func errSliding(name string, pos int) error {
	e := pgerr.Newf(pgerr.FeatureNotSupported, "function %s() cannot be used in a materialized view: its result changes without a change of its input", name)
	if isNow(name) {
		return e.WithHint("It may be compared with an expression of the row in WHERE: .. > now() - interval '1 hour'; the interval is a constant without months.").At(pos)
	}
	return e.WithHint("Use a column of the input, for example the time at which a row was written.").At(pos)
}
