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
	Columns      []types.Column // of RETURNS TABLE and of OUT parameters, nil for values without a name
	Body         *sql.Query     // nil only where nothing is returned
	SearchPath   []string
	Strict       bool
	Variadic     bool // the last parameter takes all further arguments as an array
}

// composite reports whether results are rows.
func (f *Function) composite() bool { return f.Returns.OID == types.OIDRecord }

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
	var fit []*routineMatch
	var sigs [][]types.OID
	for _, f := range fs {
		m := f.match(len(args), names, e.Variadic)
		if m == nil {
			continue
		}
		if i := slices.IndexFunc(sigs, func(s []types.OID) bool { return slices.Equal(s, m.sig) }); i >= 0 {
			switch o := fit[i]; {
			case o.f.Schema != f.Schema || m.spread && !o.spread: // hidden
			case o.spread && !m.spread:
				fit[i] = m
			default:
				o.twice = true
			}
			continue
		}
		fit, sigs = append(fit, m), append(sigs, m.sig)
	}
	i, ok := b.reg.ChooseSignature(sigs, ts)
	switch {
	case !ok || i >= 0 && fit[i].twice:
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
	f := fit[i].f
	b.md.access.call(f)
	out := make([]*expr.Expr, len(f.Args))
	for p, a := range fit[i].order {
		if fit[i].spread && p == len(out)-1 {
			if out[p], err = b.spread(args[p:], f.Args[p].Type, pos); err != nil {
				return nil, nil, err
			}
			continue
		}
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

// routineMatch is a way to give a function the arguments of a call.
type routineMatch struct {
	f      *Function
	order  []int       // per parameter the argument for it, -1 for its default
	sig    []types.OID // per argument the type of its parameter
	spread bool        // the last parameter gets all arguments from there on
	twice  bool        // another function takes the same types
}

// match returns how f takes n arguments, nil when it does not. variadic tells that the last one was given as VARIADIC.
func (f *Function) match(n int, names []string, variadic bool) *routineMatch {
	m := &routineMatch{f: f, sig: make([]types.OID, n)}
	last := len(f.Args) - 1
	if f.Variadic && !variadic && (n > last || names != nil) {
		if names != nil {
			return nil
		}
		elem, _ := f.Args[last].Type.Elem()
		for i := range n {
			if m.sig[i] = elem.OID; i < last {
				m.sig[i] = f.Args[i].Type.OID
			}
		}
		for i := range f.Args {
			m.order = append(m.order, i)
		}
		m.spread = true
		return m
	}
	if m.order = f.order(n, names); m.order == nil {
		return nil
	}
	for p, a := range m.order {
		if a >= 0 {
			m.sig[a] = f.Args[p].Type.OID
		}
	}
	return m
}

// spread makes the array of type t of the arguments that a variadic parameter takes.
func (b *binder) spread(args []*expr.Expr, t types.Type, pos int) (*expr.Expr, error) {
	elem, _ := t.Elem()
	out := &expr.Expr{Kind: expr.Array, Type: t, Pos: pos}
	for _, a := range args {
		c, err := b.cast(a, elem, functions.Implicit)
		if err != nil {
			return nil, err
		}
		out.Args = append(out.Args, c)
	}
	return out, nil
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
	if f.Returns.OID == types.OIDVoid {
		return b.nothing(r), fr, nil
	}
	if err = b.returns(f, r); err != nil {
		return nil, nil, err
	}
	return r, fr, nil
}

// nothing reads all of r and yields one NULL.
func (b *binder) nothing(r *bound) *bound {
	agg := &node{op: opAgg, in: []*node{stripOrder(r.n)}, global: true}
	void := &expr.Expr{Kind: expr.Call, Type: types.Void, Func: voidFunc}
	for _, c := range r.cols {
		res, err := b.reg.ResolveFunction("count", []types.Type{b.md.typ(c.id)})
		if err != nil {
			b.fail(err)
		}
		id := b.md.add("?count?", types.Int8)
		agg.aggs = append(agg.aggs, aggCall{id: id, fn: res.Func.ID, args: []int{c.id}, typ: types.Int8})
		void.Args = append(void.Args, b.md.ref(id))
	}
	id := b.md.add("void", types.Void)
	return &bound{n: &node{op: opProject, in: []*node{agg}, cols: []int{id}, exprs: []*expr.Expr{void}}, cols: []outCol{{"void", id}}}
}

// voidFunc makes the result of a function that returns nothing, NULL, of what it computed.
const voidFunc = "$void(any)"

// returns gives the body's columns the types that f declares.
func (b *binder) returns(f *Function, r *bound) error {
	want := []types.Type{f.Returns}
	what := b.reg.TypeName(f.Returns.OID)
	if f.composite() {
		want = types.Schema(f.Columns).Types()
		b.spreadRow(r, len(want))
	}
	mismatch := func(detail string, args ...any) error {
		return pgerr.Newf(pgerr.InvalidFunctionDefinition, "return type mismatch in function declared to return %s", what).WithDetail(detail, args...)
	}
	switch {
	case !f.composite() && len(r.cols) != 1:
		return mismatch("Final statement must return exactly one column.")
	case len(r.cols) > len(want):
		return mismatch("Final statement returns too many columns.")
	case len(r.cols) < len(want):
		return mismatch("Final statement returns too few columns.")
	}
	for i, t := range want {
		have := b.md.typ(r.cols[i].id)
		if have.OID != types.OIDUnknown && have.OID != t.OID && !b.reg.CanCast(have, t, functions.Assignment) {
			if !f.composite() {
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

// spreadRow replaces the only column of r, when it is a row of n fields, by these.
func (b *binder) spreadRow(r *bound, n int) {
	if len(r.cols) != 1 || b.md.typ(r.cols[0].id).OID != types.OIDRecord {
		return
	}
	v := b.md.ref(r.cols[0].id)
	s := b.shapeOf(v)
	if s == nil || len(s.names) != n {
		return
	}
	var ids []int
	var exprs []*expr.Expr
	r.cols = nil
	for i, name := range s.names {
		id := b.md.add(name, s.types[i])
		b.md.cols[id].shape = s.subs[i]
		ids, exprs = append(ids, id), append(exprs, b.fieldAt(v, s, i, -1))
		r.cols = append(r.cols, outCol{name, id})
	}
	r.n = b.md.extend(r.n, ids, exprs)
}

// inline binds a call for a value.
func (x *exprCtx) inline(f *Function, args []*expr.Expr, pos int) (*expr.Expr, error) {
	b := x.b
	if f.Set {
		return x.setRoutine(f, args, pos)
	}
	b.depend(f.ID)
	if f.Body == nil {
		return nullConst(f.Returns), nil
	}
	r, fr, err := b.body(f)
	if err != nil {
		return nil, err
	}
	vals := make([]*expr.Expr, len(r.cols))
	if n := r.n; n.op == opProject && n.in[0].op == opValues && len(n.in[0].rows) == 1 {
		made := map[int]*expr.Expr{}
		for i, c := range n.in[0].cols {
			made[c] = n.in[0].rows[0][i]
		}
		for i, c := range r.cols {
			vals[i] = substitute(n.exprs[slices.Index(n.cols, c.id)], made)
		}
		m, err := x.params(fr, uses(vals), args, pos)
		if err != nil {
			return nil, err
		}
		for i := range vals {
			vals[i] = substitute(vals[i], m)
		}
	} else {
		if !b.atMostOne(n) {
			// The first row is the result.
			r.n = &node{op: opTopN, in: []*node{n}, order: r.order, limit: intConst(types.Int8, 1)}
		}
		m, err := x.params(fr, nil, args, pos)
		if err != nil {
			return nil, err
		}
		if err = b.bindTree(fr, r.n, m, pos); err != nil {
			return nil, err
		}
		ids := colIDs(r.cols)
		if f.composite() { // without a row the result is NULL, not a row of NULLs
			mark := b.md.add("?row?", types.Bool)
			r.n = b.md.extend(r.n, []int{mark}, []*expr.Expr{boolConst(true)})
			ids = append(ids, mark)
		}
		x.applies = append(x.applies, apply{right: b.md.narrow(r.n, dedup(ids)), jtype: plan.Left})
		for i, id := range ids {
			if i < len(vals) {
				vals[i] = b.md.ref(id)
			} else {
				vals = append(vals, isNull(b.md.ref(id)))
			}
		}
	}
	if f.Strict && len(args) > 0 {
		for i, v := range vals {
			if i < len(r.cols) {
				vals[i] = &expr.Expr{Kind: expr.Case, Type: v.Type, Args: []*expr.Expr{anyNull(args), nullConst(v.Type), v}}
			}
		}
	}
	out := vals[0]
	if f.composite() {
		out = f.row(vals[:len(f.Columns)])
		if len(vals) > len(f.Columns) {
			out = &expr.Expr{Kind: expr.Case, Type: f.Returns, Args: []*expr.Expr{vals[len(f.Columns)], nullConst(f.Returns), out}}
		}
	}
	if f.Strict && f.composite() && len(args) > 0 {
		out = &expr.Expr{Kind: expr.Case, Type: f.Returns, Args: []*expr.Expr{anyNull(args), nullConst(f.Returns), out}}
	}
	c := *out
	c.Pos = pos
	return &c, nil
}

// row makes a result of its fields.
func (f *Function) row(vals []*expr.Expr) *expr.Expr {
	r := &expr.Expr{Kind: expr.Row, Type: f.Returns, Args: vals}
	for _, c := range f.Columns {
		r.Names = append(r.Names, c.Name)
	}
	return r
}

// uses counts the columns in expressions.
func uses(es []*expr.Expr) map[int]int {
	n := map[int]int{}
	for _, e := range es {
		e.Walk(func(c *expr.Expr) bool {
			if c.Kind == expr.Column {
				n[c.Col]++
			}
			return true
		})
	}
	return n
}

// setRoutine binds a call of a set-returning function in a select list.
func (x *exprCtx) setRoutine(f *Function, args []*expr.Expr, pos int) (*expr.Expr, error) {
	b := x.b
	if err := x.mayHaveSet(pos); err != nil {
		return nil, err
	}
	b.depend(f.ID)
	it, err := b.routineSet(f, args, pos)
	if err != nil {
		return nil, err
	}
	it.depth = x.setDepth(args)
	x.srfs.items = append(x.srfs.items, *it)
	if !f.composite() {
		c := b.md.ref(it.ids[0])
		c.Pos = pos
		return c, nil
	}
	vals := make([]*expr.Expr, len(f.Columns))
	for i := range vals {
		vals[i] = b.md.ref(it.ids[i])
	}
	row := f.row(vals)
	row.Pos = pos
	return &expr.Expr{Kind: expr.Case, Type: row.Type, Pos: pos, Args: []*expr.Expr{isNull(b.md.ref(it.ids[len(vals)])), nullConst(row.Type), row}}, nil
}

// routineSet makes the set of a call: its columns, and for rows one that is not NULL.
func (b *binder) routineSet(f *Function, args []*expr.Expr, pos int) (*srfItem, error) {
	it := &srfItem{call: &expr.Expr{Kind: expr.Call, Type: f.Returns, Args: args, Pos: pos}, name: f.Name}
	r, fr, err := b.body(f)
	if err != nil {
		return nil, err
	}
	it.params = fr.ids
	p := &node{op: opProject, in: []*node{r.n}}
	add := func(name string, e *expr.Expr) {
		id := b.md.add(name, e.Type)
		b.keepShape(id, e)
		it.ids, p.cols, p.exprs = append(it.ids, id), append(p.cols, id), append(p.exprs, e)
	}
	for i, c := range r.cols {
		name := f.Name
		if f.Columns != nil {
			name = f.Columns[i].Name
		}
		add(name, b.md.ref(c.id))
	}
	if f.composite() {
		add("?row?", boolConst(true))
	}
	for _, k := range r.order {
		if !slices.Contains(p.cols, k.col) {
			p.cols, p.exprs = append(p.cols, k.col), append(p.exprs, b.md.ref(k.col))
		}
	}
	it.order = r.order
	it.tree = p
	if f.Strict && len(args) > 0 {
		given := make([]*expr.Expr, len(it.params))
		for i, id := range it.params {
			given[i] = b.md.ref(id)
		}
		it.tree = filterNode(p, not(anyNull(given)))
	}
	return it, nil
}

// gather turns the set of a function in language SQL into a call that yields its rows, so that it runs beside others: n gets them as an array.
func (b *binder) gather(n *node, it *srfItem) (*node, *expr.Expr) {
	// The call makes the columns of the set, its own rows have others.
	fresh := map[int]int{}
	tree := b.md.copyTree(it.tree, fresh)
	row := &expr.Expr{Kind: expr.Row, Type: types.T(types.OIDRecord)}
	for _, id := range it.ids {
		row.Args = append(row.Args, b.md.ref(fresh[id]))
	}
	order := append([]sortKey(nil), it.order...)
	for i, k := range order {
		if id, ok := fresh[k.col]; ok {
			order[i].col = id
		}
	}
	rid := b.md.add("row", row.Type)
	res, err := b.reg.ResolveFunction("array_agg", []types.Type{row.Type})
	if err != nil {
		b.fail(err)
	}
	all := b.md.add(it.name, res.Result)
	tree = b.md.extend(tree, []int{rid}, []*expr.Expr{row})
	agg := &node{op: opAgg, in: []*node{tree}, global: true, aggs: []aggCall{{id: all, fn: res.Func.ID, args: []int{rid}, order: order, typ: res.Result}}}
	n = &node{op: opApply, in: []*node{b.md.extend(n, it.params, it.call.Args), agg}, jtype: plan.Left}
	call := &expr.Expr{Kind: expr.Call, Type: row.Type, Func: rowsFunc, Args: []*expr.Expr{b.md.ref(all)}, Pos: it.call.Pos}
	for _, id := range it.ids {
		call.Cols = append(call.Cols, b.md.typ(id))
	}
	return n, call
}

// rowsFunc yields the rows of an array of them, field by field.
const rowsFunc = "$rows(_record)"

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

// params returns what stands for each parameter. A volatile argument that is used more than once (uses is nil for a query) becomes a column of
// the rows that the call is evaluated over.
func (x *exprCtx) params(fr *frame, uses map[int]int, args []*expr.Expr, pos int) (map[int]*expr.Expr, error) {
	b := x.b
	m := map[int]*expr.Expr{}
	for i, id := range fr.ids {
		m[id] = args[i]
		if uses != nil && uses[id] < 2 || !b.volatileExpr(args[i]) {
			continue
		}
		if x.inCase != "" {
			return nil, pgerr.Newf(pgerr.FeatureNotSupported, "a volatile argument of function %s is not supported in %s", fr.f.Name, x.inCase).
				WithHint("Compute the argument in a subquery first.").At(pos)
		}
		col := b.md.add(argName, args[i].Type)
		b.keepShape(col, args[i])
		one := &node{op: opProject, in: []*node{b.md.dual()}, cols: []int{col}, exprs: []*expr.Expr{args[i]}}
		x.applies = append(x.applies, apply{right: one, jtype: plan.Inner, computed: true})
		m[id] = b.md.ref(col)
	}
	return m, nil
}

// bindTree puts what stands for the parameters of a call into the tree of its body.
func (b *binder) bindTree(fr *frame, n *node, m map[int]*expr.Expr, pos int) error {
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

// fromRoutineCalls binds a call of a function in language SQL in ROWS FROM.
func (x *exprCtx) fromRoutineCalls(f *Function, args []*expr.Expr, pos int) ([]fromCall, error) {
	b := x.b
	if f.Set {
		b.depend(f.ID)
		it, err := b.routineSet(f, args, pos)
		if err != nil {
			return nil, err
		}
		return []fromCall{{name: f.Name, set: true, item: it, e: it.call, scalar: !f.composite() && f.Columns == nil, columns: f.Columns}}, nil
	}
	v, err := x.inline(f, args, pos)
	if err != nil {
		return nil, err
	}
	if !f.composite() {
		c := fromCall{name: f.Name, e: v}
		if f.Columns != nil {
			c.columns = f.Columns
		}
		return []fromCall{c}, nil
	}
	s := b.shapeOf(v)
	var out []fromCall
	for i := range f.Columns {
		out = append(out, fromCall{name: f.Name, e: b.fieldAt(v, s, i, pos), columns: f.Columns[i : i+1]})
	}
	return out, nil
}

// fromRoutine binds a call in FROM of a function that returns rows.
func (b *binder) fromRoutine(t *pgext.TableFunction, f *Function, args []*expr.Expr, applies []apply, pos int) (*node, *scope, error) {
	if len(t.Funcs[0].Columns) > 0 {
		return nil, nil, b.noColumnList(f, t.Funcs[0])
	}
	b.depend(f.ID)
	r, fr, err := b.body(f)
	if err != nil {
		return nil, nil, err
	}
	x := &exprCtx{b: b, applies: applies}
	m, err := x.params(fr, nil, args, pos)
	if err != nil {
		return nil, nil, err
	}
	if err = b.bindTree(fr, r.n, m, pos); err != nil {
		return nil, nil, err
	}
	applies = x.applies
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
	rt.scalar = !f.composite()
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
		n = &node{op: opApply, in: []*node{b.attach(b.md.dual(), applies), n}, jtype: plan.Inner}
	}
	sc, err := b.tableScope(rt, t.Columns, pos)
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
	if f.Body == nil {
		return nil, nil
	}
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

// noColumnList refuses a column definition list behind a function, all of which tell their columns.
func (b *binder) noColumnList(f *Function, item pgext.FuncItem) error {
	pos := b.pos(item.Columns[0].Pos)
	if f.composite() {
		return pgerr.Newf(pgerr.SyntaxError, "a column definition list is redundant for a function with OUT parameters").At(pos)
	}
	return pgerr.Newf(pgerr.SyntaxError, "a column definition list is only allowed for functions returning \"record\"").At(pos)
}
