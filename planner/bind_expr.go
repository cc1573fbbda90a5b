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

// exprCtx binds the expressions of one clause.
type exprCtx struct {
	b      *binder
	sc     *scope
	ev     *env
	clause string // names the clause in errors
	// aggs, wins and srfs collect what the clause may contain; nil where it may not.
	aggs *aggCollector
	wins *winCollector
	srfs *srfCollector
	// applies are the subqueries to join below the operator that evaluates the expressions.
	applies []apply
	// base is the tree the applies will sit on, nil when not built yet: it only helps to prove that columns hold no NULL.
	base    *node
	inAgg   bool
	inWin   bool
	inCase  int
	callPos int
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
		return nil, pgerr.Newf(pgerr.DatatypeMismatch, "%s", strings.Replace(msg, "%s", types.T(c.Type.OID).String(), 1)).At(leftmost(c))
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
	switch e := v.(type) {
	case *pgext.Const:
		return b.constant(e)
	case *pgext.TypedLiteral:
		t, err := parseType(e.Type)
		if err != nil {
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
		for i := range args {
			if args[i], err = b.known(args[i]); err != nil {
				return nil, err
			}
		}
		return &expr.Expr{Kind: expr.Row, Type: types.T(types.OIDRecord), Args: args, Pos: b.pos(e.Pos)}, nil
	case *pgext.Subscript:
		return x.subscript(e)
	case *pgext.Slice:
		return x.slice(e)
	case *pgext.Field:
		return x.field(e)
	case *pgext.FieldStar:
		return nil, pgerr.Newf(pgerr.FeatureNotSupported, "expansion of composite values is not supported here").WithHint("Name the fields one by one.").At(b.pos(e.Pos))
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

func (b *binder) param(e *pgext.Param) (*expr.Expr, error) {
	if b.stream || b.inView > 0 {
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
		if want.OID == types.OIDAny || want.OID == types.OIDAnyElement {
			want = types.Text
		}
		if have := b.params[e.Col-1]; have.OID == 0 || have.OID == types.OIDUnknown {
			b.params[e.Col-1] = want
		} else if have.OID != want.OID {
			return nil, pgerr.Newf(pgerr.AmbiguousParameter, "inconsistent types deduced for parameter $%d", e.Col).
				WithDetail("%s versus %s", have, want).At(e.Pos)
		}
		e = &expr.Expr{Kind: expr.Param, Type: want, Col: e.Col, Pos: e.Pos}
	}
	return b.reg.Cast(e, t, ctx)
}

// finishParams fails for parameters whose type nothing determined.
func (b *binder) finishParams() ([]types.Type, error) {
	for i, t := range b.params {
		if t.OID == 0 || t.OID == types.OIDUnknown {
			return nil, pgerr.Newf(pgerr.IndeterminateDatatype, "could not determine data type of parameter $%d", i+1)
		}
	}
	return b.params, nil
}

func (x *exprCtx) columnRef(e *pgext.Column) (*expr.Expr, error) {
	b := x.b
	pos := b.pos(e.Pos)
	id, err := b.column(x.sc, e.Names, pos)
	if err != nil {
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

// tableRow is the row of a FROM item; a function's single column stands for itself, as in PostgreSQL.
func (x *exprCtx) tableRow(t *rangeTable, pos int) (*expr.Expr, error) {
	r := &expr.Expr{Kind: expr.Row, Type: types.T(types.OIDRecord), Pos: pos}
	for _, c := range t.cols {
		r.Args = append(r.Args, x.b.md.ref(c.id))
	}
	return r, nil
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

func (x *exprCtx) castExpr(e *pgext.Cast) (*expr.Expr, error) {
	b := x.b
	t, err := parseType(e.Type)
	if err != nil {
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
			return nil, pgerr.Newf(pgerr.DatatypeMismatch, "collations are not supported by type %s", types.T(c.Type.OID)).At(x.b.pos(e.Pos))
		}
	}
	return c, nil
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

// operatorOn resolves an operator over bound operands.
func (b *binder) operatorOn(name string, args []*expr.Expr, pos int) (*expr.Expr, error) {
	var l, r types.Type
	if len(args) == 2 {
		l, r = args[0].Type, args[1].Type
	} else {
		r = args[0].Type
	}
	if l.OID == types.OIDRecord && r.OID == types.OIDRecord && comparison(name) && args[0].Kind == expr.Row && args[1].Kind == expr.Row && len(args[0].Args) == len(args[1].Args) {
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

// fail aborts binding with an internal inconsistency; entries recover it.
func (b *binder) fail(err error) { panic(pgerr.From(err)) }

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
	if c.Kind == expr.Row {
		parts := make([]*expr.Expr, len(c.Args))
		for i, a := range c.Args {
			parts[i] = one(a)
		}
		return and(parts...), nil
	}
	return one(c), nil
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
		args, err := x.binds(append([]ast.ExprNode{e.X}, e.List...))
		if err != nil {
			return nil, err
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
			t = types.T(types.ArrayOf(et.OID))
			if t.OID == 0 {
				return nil, pgerr.Newf(pgerr.UndefinedObject, "could not find array type for data type %s", et).At(pos)
			}
		}
	}
	return &expr.Expr{Kind: expr.Array, Type: t, Args: args, Pos: pos}, nil
}

func (x *exprCtx) field(e *pgext.Field) (*expr.Expr, error) {
	if c, ok := pgext.ExprOf(e.X).(*pgext.Column); ok {
		return x.columnRef(&pgext.Column{Names: append(append([]string(nil), c.Names...), e.Name), Pos: c.Pos})
	}
	return nil, pgerr.Newf(pgerr.FeatureNotSupported, "fields of composite values are not supported").WithHint("Call the function in FROM and name its columns.").At(x.b.pos(e.Pos))
}

func (x *exprCtx) caseExpr(e *pgext.Case) (*expr.Expr, error) {
	b, pos := x.b, x.b.pos(e.Pos)
	x.inCase++
	defer func() { x.inCase-- }()
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
			c, err = b.operatorOn("=", []*expr.Expr{arg, c}, c.Pos)
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
		x.inCase++
		defer func() { x.inCase-- }()
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
		a := args[0]
		if a.Type.OID == types.OIDUnknown {
			a = eq.Args[0]
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
