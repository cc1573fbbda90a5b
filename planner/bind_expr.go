package planner

import (
	"slices"
	"strings"

	"github.com/pingcap/tidb/pkg/parser/ast"

	"github.com/streamdb/streamdb/internal/pgerr"
	"github.com/streamdb/streamdb/sql/expr"
	"github.com/streamdb/streamdb/sql/functions"
	"github.com/streamdb/streamdb/sql/pgext"
	"github.com/streamdb/streamdb/types"
)

// exprCtx binds the expressions of one clause.
type exprCtx struct {
	b      *binder
	sc     *scope
	ev     *env
	clause string             // names the clause in errors
	given  map[int]types.Type // of parameters that are values of the row being bound, by number
	// aggs, wins and srfs collect what the clause may contain; nil where it may not.
	aggs *aggCollector
	wins *winCollector
	srfs *srfCollector
	// applies are the subqueries to join below the operator that evaluates the expressions.
	applies []apply
	// base is the tree the applies will sit on, nil when not built yet: it only helps to prove that columns hold no NULL.
	base  *node
	inAgg bool
	inWin bool
	// inWinSpec: in the definition of a window.
	inWinSpec bool
	inCase    string // CASE or COALESCE around, which must not contain sets
}

// place names the clause in errors about what it must not contain.
func (x *exprCtx) place() string {
	if x.clause == "JOIN/ON" {
		return "JOIN conditions"
	}
	if strings.HasSuffix(x.clause, " expression") {
		return x.clause + "s"
	}
	return x.clause
}

// bool binds a condition.
func (x *exprCtx) bool(e ast.ExprNode) (*expr.Expr, error) {
	c, err := x.bind(e)
	if err != nil {
		return nil, err
	}
	return x.b.castArg(c, types.Bool, "argument of "+x.clause+" must be type boolean, not type %s")
}

// castArg casts implicitly; msg has a %s for the type that does not fit.
func (b *binder) castArg(c *expr.Expr, t types.Type, msg string) (*expr.Expr, error) {
	if c.Type.OID != types.OIDUnknown && c.Type.OID != t.OID && !b.reg.CanCast(c.Type, t, functions.Implicit) {
		return nil, pgerr.Newf(pgerr.DatatypeMismatch, "%s", strings.Replace(msg, "%s", b.reg.TypeName(c.Type.OID), 1)).At(leftmost(c))
	}
	return b.cast(c, t, functions.Implicit)
}

// leftmost is the position that PostgreSQL reports for a whole expression: where its text begins.
func leftmost(e *expr.Expr) int {
	pos := e.Pos
	if e.Kind == expr.Case {
		return pos
	}
	for _, a := range e.Args {
		if p := leftmost(a); p >= 0 && p < pos {
			pos = p
		}
	}
	return pos
}

func (x *exprCtx) binds(es []ast.ExprNode) ([]*expr.Expr, error) {
	out := make([]*expr.Expr, len(es))
	for i, e := range es {
		c, err := x.bind(e)
		if err != nil {
			return nil, err
		}
		out[i] = c
	}
	return out, nil
}

// bind binds one expression. Untyped literals and undetermined parameters have type unknown.
func (x *exprCtx) bind(e ast.ExprNode) (*expr.Expr, error) { return x.bindView(pgext.ExprOf(e)) }

func (x *exprCtx) bindView(v pgext.Expr) (*expr.Expr, error) {
	b := x.b
	if err := b.o.Env.Interrupted(); err != nil {
		return nil, err
	}
	switch e := v.(type) {
	case *pgext.Const:
		return b.constant(e)
	case *pgext.TypedLiteral:
		t, err := b.parseType(e.Type)
		if err != nil {
			rel, rerr := b.rowType(e.Type, b.pos(e.Pos))
			if rerr != nil {
				return nil, rerr
			}
			if rel != nil {
				return b.castRow(unknownText(e.Text, b.pos(e.TextPos)), rel, b.pos(e.Pos))
			}
			return nil, pgerr.From(err).At(b.pos(e.Pos))
		}
		return b.cast(unknownText(e.Text, b.pos(e.TextPos)), t, functions.Explicit)
	case *pgext.Param:
		return b.param(e)
	case *pgext.Default:
		return nil, pgerr.Newf(pgerr.SyntaxError, "DEFAULT is not allowed in this context").At(b.pos(e.Pos))
	case *pgext.SQLValue:
		return x.sqlValue(e)
	case *pgext.Column:
		return x.columnRef(e)
	case *pgext.Star:
		return x.wholeRow(e.Names, b.pos(e.Pos))
	case *pgext.Cast:
		return x.castExpr(e)
	case *pgext.Op:
		return x.operator(e)
	case *pgext.Logic:
		return x.logic(e)
	case *pgext.Not:
		c, err := x.bind(e.X)
		if err != nil {
			return nil, err
		}
		if c, err = b.castArg(c, types.Bool, "argument of NOT must be type boolean, not type %s"); err != nil {
			return nil, err
		}
		return not(c), nil
	case *pgext.IsNull:
		return x.isNull(e)
	case *pgext.IsBool:
		return x.isBool(e)
	case *pgext.IsDistinct:
		return x.isDistinct(e)
	case *pgext.Between:
		return x.between(e)
	case *pgext.In:
		if e.Query != nil {
			return x.quantified(e.X, "=", e.Query, false, e.Not, b.pos(e.Pos))
		}
		return x.inList(e)
	case *pgext.AnyAll:
		if e.Query != nil {
			return x.quantified(e.X, e.Op, e.Query, e.All, false, b.pos(e.Pos))
		}
		return x.anyArray(e)
	case *pgext.Exists:
		return x.exists(e)
	case *pgext.Subquery:
		return x.scalar(e.Query, b.pos(e.Pos))
	case *pgext.ArrayQuery:
		return x.arrayQuery(e)
	case *pgext.Array:
		return x.array(e, types.Type{})
	case *pgext.Row:
		args, err := x.rowElems(e)
		if err != nil {
			return nil, err
		}
		for i, a := range args {
			if a.Kind == expr.Param && a.Type.OID == types.OIDUnknown {
				b.anyParams = append(b.anyParams, a)
			} else if args[i], err = b.known(a); err != nil {
				return nil, err
			}
		}
		return &expr.Expr{Kind: expr.Row, Type: types.T(types.OIDRecord), Args: args, Pos: b.pos(e.Pos)}, nil
	case *pgext.Subscript:
		return x.subscript(e)
	case *pgext.Slice:
		return x.slice(e, b.pos(e.Pos))
	case *pgext.Field:
		return x.field(e)
	case *pgext.FieldStar:
		return nil, pgerr.Newf(pgerr.FeatureNotSupported, "row expansion via \"*\" is not supported here").At(b.pos(e.Pos))
	case *pgext.Collate:
		return x.collate(e)
	case *pgext.Case:
		return x.caseExpr(e)
	case *pgext.Special:
		return x.special(e)
	case *pgext.Call:
		return x.call(e)
	case *pgext.WindowCall:
		return x.window(e)
	}
	return nil, pgerr.Newf(pgerr.InternalError, "unexpected expression %T", v)
}

func unknownText(s string, pos int) *expr.Expr {
	return &expr.Expr{Kind: expr.Const, Type: types.Unknown, Const: &types.Datum{Type: types.Unknown, Str: s}, Pos: pos}
}

// known gives an untyped literal or parameter the type text.
func (b *binder) known(e *expr.Expr) (*expr.Expr, error) {
	if e.Type.OID != types.OIDUnknown {
		return e, nil
	}
	return b.cast(e, types.Text, functions.Implicit)
}

func (b *binder) constant(e *pgext.Const) (*expr.Expr, error) {
	lit := func(d types.Datum) *expr.Expr {
		c := expr.Literal(d)
		c.Pos = b.pos(e.Pos)
		return c
	}
	switch e.Kind {
	case pgext.ConstNull:
		return lit(types.NullDatum(types.Unknown)), nil
	case pgext.ConstBool:
		return lit(types.Datum{Type: types.Bool, Bool: e.Bool}), nil
	case pgext.ConstInt:
		return lit(intDatum(e.Int)), nil
	case pgext.ConstString:
		return unknownText(e.Text, b.pos(e.Pos)), nil
	case pgext.ConstNumeric:
		return numberConst(e.Text, b.pos(e.Pos))
	}
	return nil, pgerr.Newf(pgerr.FeatureNotSupported, "bit strings are not supported").WithHint("Use bytea or integer.").At(b.pos(e.Pos))
}

func intDatum(v int64) types.Datum {
	t := types.Int8
	if v == int64(int32(v)) {
		t = types.Int4
	}
	return types.Datum{Type: t, Int: v}
}

func numberConst(text string, pos int) (*expr.Expr, error) {
	n, err := types.ParseNumeric(text)
	if err != nil {
		return nil, pgerr.From(err).At(pos)
	}
	d := types.Datum{Type: types.NumericType, Num: n}
	if !strings.ContainsAny(text, ".eE") && n.Big == nil && n.Form == types.Finite && n.Scale == 0 {
		d = intDatum(n.Coef)
	}
	return &expr.Expr{Kind: expr.Const, Type: d.Type, Const: &d, Pos: pos}, nil
}

// maxParams is the highest parameter number: a Bind message counts them in 16 bits.
const maxParams = 65535

func (b *binder) param(e *pgext.Param) (*expr.Expr, error) {
	if n := len(b.frames); n > 0 {
		if fr := b.frames[n-1]; e.N >= 1 && e.N <= len(fr.ids) {
			return b.md.ref(fr.ids[e.N-1]), nil
		}
	}
	if e.N > maxParams { // of those before it, at least one is not used, so that nothing tells its type
		return nil, pgerr.Newf(pgerr.IndeterminateDatatype, "could not determine data type of parameter $1")
	}
	if b.stream || b.inView > 0 || e.N < 1 {
		return nil, pgerr.Newf(pgerr.UndefinedParameter, "there is no parameter $%d", e.N).At(b.pos(e.Pos))
	}
	for len(b.params) < e.N {
		b.params = append(b.params, types.Type{})
	}
	t := b.params[e.N-1]
	if t.OID == 0 || t.OID == types.OIDUnknown {
		t = types.Unknown
	}
	return &expr.Expr{Kind: expr.Param, Type: t, Col: e.N, Pos: b.pos(e.Pos)}, nil
}

// cast is Registry.Cast, except that an undetermined parameter takes the type wanted.
func (b *binder) cast(e *expr.Expr, t types.Type, ctx functions.CastContext) (*expr.Expr, error) {
	if e.Kind == expr.Param && e.Type.OID == types.OIDUnknown && t.OID != types.OIDUnknown {
		want := types.T(t.OID)
		switch want.OID {
		case types.OIDAny:
			b.anyParams = append(b.anyParams, e)
			return e, nil
		case types.OIDAnyElement:
			want = types.Text
		}
		b.anyParams = slices.DeleteFunc(b.anyParams, func(p *expr.Expr) bool { return p == e })
		if have := b.params[e.Col-1]; have.OID == 0 || have.OID == types.OIDUnknown {
			b.params[e.Col-1] = want
		} else if have.OID != want.OID {
			return nil, inconsistent(e, have, want)
		}
		e = &expr.Expr{Kind: expr.Param, Type: want, Col: e.Col, Pos: e.Pos}
	}
	return b.reg.Cast(e, t, ctx)
}

func inconsistent(param *expr.Expr, have, want types.Type) error {
	return pgerr.Newf(pgerr.AmbiguousParameter, "inconsistent types deduced for parameter $%d", param.Col).WithDetail("%s versus %s", have, want).At(param.Pos)
}

// finishParams fails for parameters whose type nothing determined.
func (b *binder) finishParams() ([]types.Type, error) {
	for i, t := range b.params {
		if b.inner {
			break // the statement around it may still tell
		}
		if t.OID == 0 || t.OID == types.OIDUnknown {
			return nil, pgerr.Newf(pgerr.IndeterminateDatatype, "could not determine data type of parameter $%d", i+1)
		}
	}
	if len(b.anyParams) > 0 && !b.inner {
		e := b.anyParams[0] // its type is known from elsewhere
		return nil, pgerr.Newf(pgerr.AmbiguousParameter, "could not determine data type of parameter $%d", e.Col).At(e.Pos)
	}
	return b.params, nil
}

func (x *exprCtx) columnRef(e *pgext.Column) (*expr.Expr, error) {
	b := x.b
	pos := b.pos(e.Pos)
	id, err := b.column(x.sc, e.Names, pos)
	if err != nil {
		if t := x.tableOID(e); t != nil {
			c := expr.Literal(types.Datum{Type: types.Oid, Int: int64(t.OID)})
			c.Pos = pos
			return c, nil
		}
		// A bare name of a FROM item is its row.
		if len(e.Names) == 1 && pgerr.CodeOf(err) == pgerr.UndefinedColumn {
			if t := x.sc.find(e.Names[0]); t != nil {
				return x.tableRow(t, pos)
			}
		}
		return nil, err
	}
	c := b.md.ref(id)
	c.Pos = pos
	return c, nil
}

// tableOID returns the relation whose system column tableoid is meant, nil when it is something else.
func (x *exprCtx) tableOID(e *pgext.Column) *Relation {
	n := len(e.Names)
	if e.Names[n-1] != "tableoid" {
		return nil
	}
	var t *rangeTable
	if n > 1 {
		t = x.sc.find(e.Names[n-2])
	} else if len(x.sc.tables) == 1 {
		t = x.sc.tables[0]
	}
	if t == nil || t.rel == nil || t.rel.Kind == View {
		return nil
	}
	return t.rel
}

func (x *exprCtx) wholeRow(names []string, pos int) (*expr.Expr, error) {
	schema := ""
	if len(names) > 1 {
		schema = names[len(names)-2]
	}
	t, err := x.sc.table(schema, names[len(names)-1], pos)
	if err != nil {
		return nil, err
	}
	return x.tableRow(t, pos)
}

func (x *exprCtx) logic(e *pgext.Logic) (*expr.Expr, error) {
	name, kind := "AND", expr.And
	if e.Or {
		name, kind = "OR", expr.Or
	}
	args, err := x.binds(e.Args)
	if err != nil {
		return nil, err
	}
	for i := range args {
		if args[i], err = x.b.castArg(args[i], types.Bool, "argument of "+name+" must be type boolean, not type %s"); err != nil {
			return nil, err
		}
	}
	return &expr.Expr{Kind: kind, Type: types.Bool, Args: args, Pos: x.b.pos(e.Pos)}, nil
}

// fail aborts binding with an internal inconsistency; entries recover it.
func (b *binder) fail(err error) { panic(pgerr.From(err)) }

// poll ends the planning of a statement that was cancelled or ran out of time.
func (b *binder) poll() {
	if err := b.o.Env.Interrupted(); err != nil {
		b.fail(err)
	}
}

// mustOp builds an operator that the planner itself needs.
func (b *binder) mustOp(name string, args ...*expr.Expr) *expr.Expr {
	e, err := b.operatorOn(name, args, -1)
	if err != nil {
		b.fail(err)
	}
	return e
}

func (b *binder) call(name string, args []*expr.Expr, pos int) (*expr.Expr, error) {
	ts := make([]types.Type, len(args))
	for i, a := range args {
		ts[i] = a.Type
	}
	res, err := b.reg.ResolveFunction(name, ts)
	if err != nil {
		return nil, callError(err, pos)
	}
	out := make([]*expr.Expr, len(args))
	for i, a := range args {
		if out[i], err = b.cast(a, res.Args[i], functions.Implicit); err != nil {
			return nil, err
		}
	}
	return &expr.Expr{Kind: expr.Call, Type: res.Result, Func: res.Func.ID, Args: out, Pos: pos}, nil
}

func (b *binder) commonType(what string, es []*expr.Expr) (types.Type, error) {
	ts := make([]types.Type, len(es))
	for i, e := range es {
		ts[i] = e.Type
	}
	t, err := b.reg.CommonType(what, ts)
	if err != nil {
		pos := -1
		for _, e := range es {
			if e.Pos >= 0 && e.Type.OID != types.OIDUnknown && e.Type.OID != es[0].Type.OID {
				pos = e.Pos
				break
			}
		}
		return t, pgerr.From(err).At(pos)
	}
	return t, nil
}

// unify casts all of es to their common type.
func (b *binder) unify(what string, es []*expr.Expr) (types.Type, error) {
	t, err := b.commonType(what, es)
	if err != nil {
		return t, err
	}
	for i := range es {
		if es[i], err = b.cast(es[i], t, functions.Implicit); err != nil {
			return t, err
		}
	}
	return t, nil
}
