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

// Function is a function in language SQL. Calls are inlined: its body is bound in place of the call, so plans do not know of it.
type Function struct {
	ID           uint64
	Schema, Name string
	Args         []FunctionArg
	Returns      types.Type // of one value
	Set          bool
	Columns      []types.Column // of RETURNS TABLE, nil for values
	Body         *sql.Query
	SearchPath   []string
	Strict       bool
}

// FunctionArg is a parameter.
type FunctionArg struct {
	Name    string
	Type    types.Type
	Default *sql.Query // nil when it must be given
}

// frame is the call that is being inlined: what its parameters stand for.
type frame struct {
	f     *Function
	scope *scope
	ids   []int
}

// routines returns the functions of users that a call may mean.
func (b *binder) routines(schema, name string) []*Function {
	if schema != "" || len(b.path) == 0 {
		return b.o.Catalog.Functions(schema, name)
	}
	var out []*Function
	for _, s := range b.path {
		out = append(out, b.o.Catalog.Functions(s, name)...)
	}
	return out
}

// routine resolves a call to a function of a user: nil when a builtin function is meant. The arguments are in the parameters' order and of their types.
func (x *exprCtx) routine(e *pgext.Call) (*Function, []*expr.Expr, error) {
	b, pos := x.b, x.b.pos(e.Pos)
	fs := b.routines(e.Schema, e.Name)
	if len(fs) == 0 {
		return nil, nil, nil
	}
	if err := x.plainRoutine(e, pos); err != nil {
		return nil, nil, err
	}
	names, err := b.argNames(e)
	if err != nil {
		return nil, nil, err
	}
	before := len(x.applies)
	args := make([]*expr.Expr, len(e.Args))
	for i, a := range e.Args {
		if args[i], err = x.bind(a.X); err != nil {
			return nil, nil, err
		}
	}
	ts := argTypes(args)
	if names == nil && e.Schema == "" && b.reg.HasExact(e.Name, ts) {
		x.applies = x.applies[:before]
		return nil, nil, nil
	}
	var fit []*Function
	var sigs [][]types.OID
	var orders [][]int
	for _, f := range fs {
		if order := f.order(len(args), names); order != nil {
			sig := make([]types.OID, len(args))
			for p, a := range order {
				if a >= 0 {
					sig[a] = f.Args[p].Type.OID
				}
			}
			fit, sigs, orders = append(fit, f), append(sigs, sig), append(orders, order)
		}
	}
	i, ok := b.reg.ChooseSignature(sigs, ts)
	switch {
	case !ok:
		return nil, nil, pgerr.Newf(pgerr.AmbiguousFunction, "function %s is not unique", b.reg.Signature(e.Name, ts)).
			WithHint("Could not choose a best candidate function. You might need to add explicit type casts.").At(pos)
	case i < 0 && e.Schema == "" && len(b.reg.Lookup(e.Name)) > 0:
		x.applies = x.applies[:before]
		return nil, nil, nil
	case i < 0:
		name := e.Name
		if e.Schema != "" {
			name = e.Schema + "." + name
		}
		return nil, nil, pgerr.Newf(pgerr.UndefinedFunction, "function %s does not exist", b.reg.Signature(name, ts)).
			WithHint("No function matches the given name and argument types. You might need to add explicit type casts.").At(pos)
	}
	f := fit[i]
	b.md.access.call(f)
	out := make([]*expr.Expr, len(f.Args))
	for p, a := range orders[i] {
		if a >= 0 {
			out[p], err = b.cast(args[a], f.Args[p].Type, functions.Implicit)
		} else {
			d := &exprCtx{b: b, sc: &scope{}, ev: &env{}, clause: "DEFAULT"}
			b.inView++
			if out[p], err = d.bind(f.Args[p].Default.Expr()); err == nil {
				out[p], err = b.cast(out[p], f.Args[p].Type, functions.Assignment)
			}
			b.inView--
		}
		if err != nil {
			return nil, nil, err
		}
	}
	return f, out, nil
}

// plainRoutine refuses the decorations that only aggregates take.
func (x *exprCtx) plainRoutine(e *pgext.Call, pos int) error {
	what := ""
	switch {
	case e.Star:
		what = "%s(*) specified, but %s is not an aggregate function"
	case e.Distinct:
		what = "DISTINCT specified, but %s is not an aggregate function"
	case len(e.WithinGroup) > 0:
		what = "WITHIN GROUP specified, but %s is not an aggregate function"
	case len(e.OrderBy) > 0:
		what = "ORDER BY specified, but %s is not an aggregate function"
	case e.Filter != nil:
		what = "FILTER specified, but %s is not an aggregate function"
	default:
		return nil
	}
	if len(x.b.reg.Lookup(e.Name)) > 0 {
		return nil
	}
	return pgerr.Newf(pgerr.WrongObjectType, "%s", strings.ReplaceAll(what, "%s", e.Name)).At(pos)
}

// order returns per parameter the argument for it, -1 for its default; nil when the call does not fit.
func (f *Function) order(n int, names []string) []int {
	out := make([]int, len(f.Args))
	for i := range out {
		out[i] = -1
	}
	for i := range n {
		at := i
		if names != nil && names[i] != "" {
			at = slices.IndexFunc(f.Args, func(a FunctionArg) bool { return a.Name == names[i] })
		}
		if at < 0 || at >= len(out) || out[at] >= 0 {
			return nil
		}
		out[at] = i
	}
	for i, a := range out {
		if a < 0 && f.Args[i].Default == nil {
			return nil
		}
	}
	return out
}

// enter makes the parameters of f visible to its body.
func (b *binder) enter(f *Function) (*frame, error) {
	for _, in := range b.frames {
		if in.f.ID == f.ID {
			return nil, pgerr.Newf(pgerr.FeatureNotSupported, "recursive function %s is not supported", f.Name).WithHint("Write WITH RECURSIVE in its body.")
		}
	}
	fr := &frame{f: f}
	t := &rangeTable{name: f.Name}
	for _, a := range f.Args {
		id := b.md.add(a.Name, a.Type)
		fr.ids = append(fr.ids, id)
		if a.Name != "" {
			t.cols = append(t.cols, scopeCol{a.Name, id})
		}
	}
	fr.scope = &scope{tables: []*rangeTable{t}, visible: t.cols}
	return fr, nil
}

// body binds the body of f.
func (b *binder) body(f *Function) (*bound, *frame, error) {
	fr, err := b.enter(f)
	if err != nil {
		return nil, nil, err
	}
	path, view := b.path, b.md.access.view
	b.frames, b.path = append(b.frames, fr), f.SearchPath
	b.md.access.view = 0 // a function reads with its caller's privileges, in a view, too
	b.inView++
	defer func() { b.frames, b.path, b.md.access.view = b.frames[:len(b.frames)-1], path, view; b.inView-- }()
	r, err := b.query(pgext.QueryOf(f.Body.Stmt), &env{outer: fr.scope}, true)
	if err != nil {
		return nil, nil, err
	}
	if err = b.returns(f, r); err != nil {
		return nil, nil, err
	}
	return r, fr, nil
}

// returns gives the body's columns the types that f declares.
func (b *binder) returns(f *Function, r *bound) error {
	want := []types.Type{f.Returns}
	what := b.reg.TypeName(f.Returns.OID)
	if f.Columns != nil {
		if want, what = types.Schema(f.Columns).Types(), "record"; len(want) == 1 {
			what = b.reg.TypeName(want[0].OID)
		}
	}
	mismatch := func(detail string, args ...any) error {
		return pgerr.Newf(pgerr.InvalidFunctionDefinition, "return type mismatch in function declared to return %s", what).WithDetail(detail, args...)
	}
	switch {
	case f.Columns == nil && len(r.cols) != 1:
		return mismatch("Final statement must return exactly one column.")
	case len(r.cols) > len(want):
		return mismatch("Final statement returns too many columns.")
	case len(r.cols) < len(want):
		return mismatch("Final statement returns too few columns.")
	}
	for i, t := range want {
		have := b.md.typ(r.cols[i].id)
		if have.OID != types.OIDUnknown && have.OID != t.OID && !b.reg.CanCast(have, t, functions.Assignment) {
			if f.Columns == nil {
				return mismatch("Actual return type is %s.", b.reg.TypeName(have.OID))
			}
			return mismatch("Final statement returns %s instead of %s at column %d.", b.reg.TypeName(have.OID), b.reg.TypeName(t.OID), i+1)
		}
		if err := b.coerceOutput(r, i, t, functions.Assignment); err != nil {
			return err
		}
	}
	return nil
}

// inline binds a call for a value.
func (x *exprCtx) inline(f *Function, args []*expr.Expr, pos int) (*expr.Expr, error) {
	b := x.b
	if f.Set {
		return nil, pgerr.Newf(pgerr.FeatureNotSupported, "set-returning functions in language SQL are not supported in a select list").
			WithHint("Call it in FROM: SELECT .. FROM %s(..).", f.Name).At(pos)
	}
	b.depend(f.ID)
	r, fr, err := b.body(f)
	if err != nil {
		return nil, err
	}
	id := r.cols[0].id
	var out *expr.Expr
	if n := r.n; n.op == opProject && n.in[0].op == opValues && len(n.in[0].rows) == 1 {
		for i, c := range n.cols {
			if c == id {
				out = n.exprs[i]
			}
		}
		made := map[int]*expr.Expr{}
		for i, c := range n.in[0].cols {
			made[c] = n.in[0].rows[0][i]
		}
		if out, err = b.bindParams(fr, substitute(out, made), args, pos); err != nil {
			return nil, err
		}
	} else {
		if n := r.n; !b.atMostOne(n) {
			// The first row is the result.
			r.n = &node{op: opTopN, in: []*node{n}, order: r.order, limit: intConst(types.Int8, 1)}
		}
		if err = b.bindTree(fr, r.n, args, pos); err != nil {
			return nil, err
		}
		x.applies = append(x.applies, apply{right: b.md.narrow(r.n, []int{id}), jtype: plan.Left})
		out = b.md.ref(id)
	}
	if f.Strict && len(args) > 0 {
		out = &expr.Expr{Kind: expr.Case, Type: f.Returns, Args: []*expr.Expr{anyNull(args), nullConst(f.Returns), out}}
	}
	c := *out
	c.Pos = pos
	return &c, nil
}

func anyNull(args []*expr.Expr) *expr.Expr {
	tests := make([]*expr.Expr, len(args))
	for i, a := range args {
		tests[i] = isNull(a)
	}
	if len(tests) == 1 {
		return tests[0]
	}
	return or(tests...)
}

// bindParams puts the arguments of a call in the place of its parameters.
func (b *binder) bindParams(fr *frame, e *expr.Expr, args []*expr.Expr, pos int) (*expr.Expr, error) {
	uses := map[int]int{}
	e.Walk(func(c *expr.Expr) bool {
		if c.Kind == expr.Column {
			uses[c.Col]++
		}
		return true
	})
	m := map[int]*expr.Expr{}
	for i, id := range fr.ids {
		if uses[id] > 1 && b.volatileExpr(args[i]) {
			return nil, pgerr.Newf(pgerr.FeatureNotSupported, "a volatile argument of function %s is not supported: its body uses parameter %d more than once", fr.f.Name, i+1).
				WithHint("Compute the argument in a subquery first.").At(pos)
		}
		m[id] = args[i]
	}
	return substitute(e, m), nil
}

// bindTree is bindParams for all expressions of a tree.
func (b *binder) bindTree(fr *frame, n *node, args []*expr.Expr, pos int) error {
	for i := range args {
		if b.volatileExpr(args[i]) {
			return pgerr.Newf(pgerr.FeatureNotSupported, "a volatile argument of function %s is not supported: its body is a query", fr.f.Name).
				WithHint("Compute the argument in a subquery first.").At(pos)
		}
	}
	m := map[int]*expr.Expr{}
	for i, id := range fr.ids {
		m[id] = args[i]
	}
	n.walk(func(x *node) {
		x.eachExpr(func(e *expr.Expr) *expr.Expr { return substitute(e, m) })
	})
	free := freeCols(n)
	for _, id := range fr.ids {
		if free[id] {
			return pgerr.Newf(pgerr.FeatureNotSupported, "function %s cannot be inlined", fr.f.Name).At(pos)
		}
	}
	return nil
}

// fromRoutine binds a call in FROM of a function that returns rows.
func (b *binder) fromRoutine(t *pgext.TableFunction, f *Function, args []*expr.Expr, applies []apply, pos int) (*node, *scope, error) {
	if len(t.Funcs[0].Columns) > 0 {
		return nil, nil, pgerr.Newf(pgerr.SyntaxError, "a column definition list is only allowed for functions returning \"record\"").At(b.pos(t.Funcs[0].Columns[0].Pos))
	}
	b.depend(f.ID)
	r, fr, err := b.body(f)
	if err != nil {
		return nil, nil, err
	}
	if err = b.bindTree(fr, r.n, args, pos); err != nil {
		return nil, nil, err
	}
	n := r.n
	rt := &rangeTable{name: f.Name}
	if t.Alias != "" {
		rt.name = t.Alias
	}
	for i, c := range r.cols {
		name := rt.name
		if f.Columns != nil {
			name = f.Columns[i].Name
		}
		rt.cols = append(rt.cols, scopeCol{name, c.id})
	}
	rt.scalar = f.Columns == nil
	if t.Ordinality {
		res, err := b.reg.ResolveFunction("row_number", nil)
		if err != nil {
			return nil, nil, err
		}
		id := b.md.add("ordinality", types.Int8)
		whole := plan.Frame{Mode: plan.FrameRange, Start: plan.Bound{Kind: plan.UnboundedPreceding}, End: plan.Bound{Kind: plan.CurrentRow}}
		n = &node{op: opOver, in: []*node{n}, order: append([]sortKey(nil), r.order...), over: []overCall{{id: id, fn: res.Func.ID, frame: whole, typ: types.Int8}}}
		rt.cols, rt.scalar = append(rt.cols, scopeCol{"ordinality", id}), false
	}
	if f.Strict && len(args) > 0 {
		n = filterNode(n, not(anyNull(args)))
	}
	if len(applies) > 0 {
		n = &node{op: opApply, in: []*node{attach(b.md.dual(), applies), n}, jtype: plan.Inner}
	}
	sc, err := tableScope(rt, t.Columns, pos)
	return n, sc, err
}

// CheckFunction binds the body of a function that is being made, and its defaults. It returns the relations, enum types and functions that the
// body itself names.
func CheckFunction(o Options, f *Function) (deps []uint64, err error) {
	defer pgext.Recover(&err)
	b := newBinder(o, false)
	for _, a := range f.Args {
		if a.Default == nil {
			continue
		}
		x := &exprCtx{b: b, sc: &scope{}, ev: &env{}, clause: "DEFAULT expressions"}
		e, err := x.bind(a.Default.Expr())
		if err == nil {
			_, err = b.cast(e, a.Type, functions.Assignment)
		}
		if err != nil {
			return nil, err
		}
		if len(x.applies) > 0 {
			return nil, pgerr.Newf(pgerr.FeatureNotSupported, "cannot use subquery in parameter default value")
		}
	}
	// Positions are those in the body.
	b.inView--
	b.deps, b.direct = nil, 1
	_, _, err = b.body(f)
	return b.deps, err
}

// Calls returns the relations, enum types and functions that an expression over a relation's columns names itself: those that the bodies of
// functions name are not among them.
func Calls(q *sql.Query, schema types.Schema, o Options) (deps []uint64, err error) {
	b := newBinder(o, false)
	b.direct = noFrames
	_, err = b.scalar(q, schema, "this expression", (*binder).known)
	return b.deps, err
}

// noFrames is the depth of what is outside all functions; a depth of 0 in binder.direct stands for every depth.
const noFrames = -1
