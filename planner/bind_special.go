package planner

import (
	"strings"

	"github.com/streamdb/streamdb/internal/pgerr"
	"github.com/streamdb/streamdb/sql/expr"
	"github.com/streamdb/streamdb/sql/functions"
	"github.com/streamdb/streamdb/sql/pgext"
	"github.com/streamdb/streamdb/types"
)

func (x *exprCtx) sqlValue(e *pgext.SQLValue) (*expr.Expr, error) {
	b, pos := x.b, x.b.pos(e.Pos)
	name, t := e.Name, types.Type{}
	switch e.Name {
	case "current_timestamp":
		name, t = "now", types.Timestamptz
	case "current_date":
		name, t = "now", types.Date
	case "current_time":
		name, t = "now", types.T(types.OIDTimetz)
	case "localtime":
		name, t = "now", types.Time
	case "localtimestamp":
		name, t = "now", types.Timestamp
	case "user", "current_role":
		name = "current_user"
	case "current_catalog":
		name = "current_database"
	}
	c, err := x.callFunc(name, nil, false, pos)
	if err != nil || t.OID == 0 {
		return c, err
	}
	if e.Precision >= 0 && t.OID != types.OIDDate {
		mod, err := types.TypmodIn(t.OID, []int{e.Precision})
		if err != nil {
			return nil, err
		}
		t.Mod = mod
	}
	return b.cast(c, t, functions.Explicit)
}

// procTime binds PROCTIME(): the processing time of the rows of the source that the query reads.
func (x *exprCtx) procTime(pos int) (*expr.Expr, error) {
	const hint = "Write it in a query over one source: (SELECT *, PROCTIME() AS p FROM source)."
	id := 0
	for _, t := range x.sc.tables {
		switch {
		case t.procTime == 0:
		case id != 0:
			return nil, pgerr.Newf(pgerr.AmbiguousColumn, "PROCTIME() is ambiguous: the query reads several sources").WithHint(hint).At(pos)
		default:
			id = t.procTime
		}
	}
	if id == 0 {
		return nil, pgerr.Newf(pgerr.FeatureNotSupported, "PROCTIME() needs a source in FROM").WithHint(hint).At(pos)
	}
	c := x.b.md.ref(id)
	c.Pos = pos
	return c, nil
}

func (x *exprCtx) castExpr(e *pgext.Cast) (*expr.Expr, error) {
	b := x.b
	t, err := b.parseType(e.Type)
	if err != nil {
		rel, rerr := b.rowType(e.Type, b.pos(e.TypePos))
		if rerr != nil {
			return nil, rerr
		}
		if rel != nil {
			c, err := x.bind(e.X)
			if err != nil {
				return nil, err
			}
			return b.castRow(c, rel, b.pos(e.Pos))
		}
		return nil, pgerr.From(err).At(b.pos(e.TypePos))
	}
	inner := pgext.ExprOf(e.X)
	if a, ok := inner.(*pgext.Array); ok && t.IsArray() {
		return x.array(a, t)
	}
	c, err := x.bindView(inner)
	if err != nil {
		return nil, err
	}
	at := c.Pos
	c, err = b.cast(c, t, functions.Explicit)
	if err != nil {
		pe := pgerr.From(err)
		if pe.Code == pgerr.CannotCoerce {
			pe.Pos = b.pos(e.Pos)
		}
		return nil, pe.At(at)
	}
	return c, nil
}

func (x *exprCtx) collate(e *pgext.Collate) (*expr.Expr, error) {
	switch e.Name {
	case "C", "POSIX", "default", "ucs_basic":
	default:
		return nil, pgerr.Newf(pgerr.UndefinedObject, "collation \"%s\" for encoding \"UTF8\" does not exist", e.Name).
			WithHint("Text is compared byte by byte: use \"C\" or leave COLLATE out.").At(x.b.pos(e.Pos))
	}
	c, err := x.bind(e.X)
	if err != nil {
		return nil, err
	}
	if i, ok := types.InfoOf(c.Type.OID); ok && i.Category != 'S' && c.Type.OID != types.OIDUnknown {
		if !c.Type.IsArray() {
			return nil, pgerr.Newf(pgerr.DatatypeMismatch, "collations are not supported by type %s", x.b.reg.TypeName(c.Type.OID)).At(x.b.pos(e.Pos))
		}
	}
	return c, nil
}

// array binds ARRAY[..]; want is the type it is cast to, zero when none.
func (x *exprCtx) array(e *pgext.Array, want types.Type) (*expr.Expr, error) {
	b, pos := x.b, x.b.pos(e.Pos)
	if len(e.Elems) == 0 {
		if want.OID == 0 {
			return nil, pgerr.Newf(pgerr.IndeterminateDatatype, "cannot determine type of empty array").
				WithHint("Explicitly cast to the desired type, for example ARRAY[]::integer[].").At(pos)
		}
		return &expr.Expr{Kind: expr.Array, Type: want, Pos: pos}, nil
	}
	args := make([]*expr.Expr, len(e.Elems))
	nested := false
	for i, el := range e.Elems {
		v := pgext.ExprOf(el)
		var err error
		if a, ok := v.(*pgext.Array); ok {
			nested = true
			args[i], err = x.array(a, want)
		} else {
			args[i], err = x.bindView(v)
		}
		if err != nil {
			return nil, err
		}
		nested = nested || args[i].Type.IsArray()
	}
	var t types.Type
	var err error
	if want.OID != 0 {
		t = want
		elem, _ := want.Elem()
		if nested {
			elem = want
		}
		for i := range args {
			if args[i], err = b.cast(args[i], elem, functions.Explicit); err != nil {
				return nil, err
			}
		}
	} else {
		et, err := b.unify("ARRAY", args)
		if err != nil {
			return nil, err
		}
		t = et
		if !nested {
			t = types.Type{OID: types.ArrayOf(et.OID), Mod: et.Mod}
			if t.OID == 0 {
				return nil, pgerr.Newf(pgerr.UndefinedObject, "could not find array type for data type %s", b.reg.TypeName(et.OID)).At(pos)
			}
		}
	}
	return &expr.Expr{Kind: expr.Array, Type: t, Args: args, Pos: pos}, nil
}

func (x *exprCtx) caseExpr(e *pgext.Case) (*expr.Expr, error) {
	b, pos := x.b, x.b.pos(e.Pos)
	defer func(was string) { x.inCase = was }(x.inCase)
	x.inCase = "CASE"
	var arg *expr.Expr
	var err error
	if e.Arg != nil {
		if arg, err = x.bind(e.Arg); err != nil {
			return nil, err
		}
		if arg, err = b.known(arg); err != nil {
			return nil, err
		}
	}
	results := []*expr.Expr{nullConst(types.Unknown)}
	if e.Else != nil {
		if results[0], err = x.bind(e.Else); err != nil {
			return nil, err
		}
	}
	var conds []*expr.Expr
	for _, w := range e.Whens {
		c, err := x.bind(w.Cond)
		if err != nil {
			return nil, err
		}
		if arg != nil {
			c, err = b.operatorOn("=", []*expr.Expr{arg, c}, pos)
		} else {
			c, err = b.castArg(c, types.Bool, "argument of CASE/WHEN must be type boolean, not type %s")
		}
		if err != nil {
			return nil, err
		}
		r, err := x.bind(w.Result)
		if err != nil {
			return nil, err
		}
		conds = append(conds, c)
		results = append(results, r)
	}
	t, err := b.unify("CASE", results)
	if err != nil {
		return nil, err
	}
	out := &expr.Expr{Kind: expr.Case, Type: t, Pos: pos}
	for i, c := range conds {
		out.Args = append(out.Args, c, results[i+1])
	}
	if e.Else != nil {
		out.Args = append(out.Args, results[0])
	}
	return out, nil
}

func (x *exprCtx) special(e *pgext.Special) (*expr.Expr, error) {
	b, pos := x.b, x.b.pos(e.Pos)
	if e.Name == "grouping" {
		return x.grouping(e)
	}
	if e.Name == "coalesce" {
		defer func(was string) { x.inCase = was }(x.inCase)
		x.inCase = "COALESCE"
	}
	args, err := x.binds(e.Args)
	if err != nil {
		return nil, err
	}
	if e.Name == "nullif" {
		if len(args) != 2 {
			return nil, pgerr.Newf(pgerr.SyntaxError, "NULLIF takes two arguments").At(pos)
		}
		eq, err := b.operatorOn("=", args, pos)
		if err != nil {
			return nil, err
		}
		// The result has the type that the first argument was compared as.
		a := eq.Args[0]
		if a.Type.OID == args[0].Type.OID {
			a = args[0]
		}
		return &expr.Expr{Kind: expr.Case, Type: a.Type, Pos: pos, Args: []*expr.Expr{eq, nullConst(a.Type), a}}, nil
	}
	t, err := b.unify(strings.ToUpper(e.Name), args)
	if err != nil {
		return nil, err
	}
	if len(args) == 1 {
		return args[0], nil
	}
	kind := map[string]expr.Kind{"coalesce": expr.Coalesce, "greatest": expr.Greatest, "least": expr.Least}[e.Name]
	return &expr.Expr{Kind: kind, Type: t, Args: args, Pos: pos}, nil
}
