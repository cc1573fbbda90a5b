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

// exprKey is a sort key that is still an expression.
type exprKey struct {
	e                *expr.Expr
	desc, nullsFirst bool
}

// aggItem is an aggregate call of a query level; its arguments are expressions over the level's input.
type aggItem struct {
	id       int
	fn       string
	args     []*expr.Expr
	distinct bool
	filter   *expr.Expr
	order    []exprKey
	typ      types.Type
	direct   []*expr.Expr // arguments before WITHIN GROUP
}

// aggCollector gathers the aggregates of a query level. applies are subqueries below the aggregation.
type aggCollector struct {
	items   []aggItem
	applies []apply
	// groupings are GROUPING calls, settled when the grouping sets are known.
	groupings []groupingCall
}

type groupingCall struct {
	id   int
	args []*expr.Expr
	pos  int
}

// srfItem is a set-returning call of a select list.
type srfItem struct {
	ids   []int // result columns
	call  *expr.Expr
	depth int // calls inside its arguments come first
	// Of a function in language SQL call has just the arguments: tree yields the rows, its parameters are columns of what it is applied to.
	name   string
	tree   *node
	params []int
	order  []sortKey
}

type srfCollector struct{ items []srfItem }

// call binds a function call of any kind.
func (x *exprCtx) call(e *pgext.Call) (*expr.Expr, error) {
	b, pos := x.b, x.b.pos(e.Pos)
	e = b.schemaCall(e)
	f, given, err := x.routine(e)
	if err != nil {
		return nil, err
	}
	if f != nil {
		return x.inline(f, given, pos)
	}
	if e.Schema != "" && e.Schema != "pg_catalog" {
		if !b.o.Catalog.SchemaExists(e.Schema) {
			return nil, pgerr.Newf(pgerr.InvalidSchemaName, "schema \"%s\" does not exist", e.Schema).At(pos)
		}
		return nil, pgerr.Newf(pgerr.UndefinedFunction, "function %s.%s does not exist", e.Schema, e.Name).
			WithHint("No function matches the given name and argument types. You might need to add explicit type casts.").At(pos)
	}
	if e.Name == procTimeName && len(e.Args) == 0 && !e.Star {
		return x.procTime(pos)
	}
	if _, ok := populates(e); ok {
		return x.populateValue(e)
	}
	kind := x.kindOf(e)
	switch kind {
	case functions.Aggregate:
		return x.aggregate(e)
	case functions.Window:
		if hypothetical(e.Name) && len(e.Args) > 0 {
			return nil, pgerr.Newf(pgerr.WrongObjectType, "WITHIN GROUP is required for ordered-set aggregate %s", e.Name).At(pos)
		}
		return nil, pgerr.Newf(pgerr.WrongObjectType, "window function %s requires an OVER clause", e.Name).At(pos)
	}
	if err := x.plainCall(e, pos); err != nil {
		return nil, err
	}
	args, err := x.callArgs(e)
	if err != nil {
		return nil, err
	}
	if kind == functions.SetOf {
		return x.setReturning(e, args, pos)
	}
	c, err := x.callFunc(e.Name, args, e.Variadic, pos)
	if err != nil && e.Schema == "" && pgerr.CodeOf(err) == pgerr.UndefinedFunction {
		if f := b.attribute(e.Name, args, pos); f != nil {
			return f, nil
		}
	}
	if err != nil && e.Schema != "" {
		// PostgreSQL names the function as it was written.
		if pe := pgerr.From(err); pe.Code == pgerr.UndefinedFunction || pe.Code == pgerr.AmbiguousFunction {
			pe.Message = strings.Replace(pe.Message, "function "+e.Name+"(", "function "+e.Schema+"."+e.Name+"(", 1)
		}
	}
	return c, err
}

// schemaCall gives the functions of information_schema and streamdb the name that they have in the registry.
func (b *binder) schemaCall(e *pgext.Call) *pgext.Call {
	if e.Schema != "information_schema" && e.Schema != "streamdb" || len(b.reg.Lookup(e.Schema+"."+e.Name)) == 0 {
		return e
	}
	c := *e
	c.Schema, c.Name = "", e.Schema+"."+e.Name
	return &c
}

// plainCall refuses the decorations that only aggregates take.
func (x *exprCtx) plainCall(e *pgext.Call, pos int) error {
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
	if len(x.b.reg.Lookup(e.Name)) == 0 {
		args, err := x.callArgs(e)
		if err == nil {
			_, err = x.b.reg.ResolveFunction(e.Name, argTypes(args))
		}
		if err != nil {
			return pgerr.From(err).At(pos)
		}
	}
	return pgerr.Newf(pgerr.WrongObjectType, "%s", strings.ReplaceAll(what, "%s", e.Name)).At(pos)
}

// kindOf tells what kind of function a name is. Only hypothetical-set aggregates share their names with window functions.
func (x *exprCtx) kindOf(e *pgext.Call) functions.FuncKind {
	if len(e.WithinGroup) > 0 {
		for _, f := range x.b.reg.Lookup(e.Name) {
			if f.Kind == functions.Aggregate {
				return f.Kind
			}
		}
	}
	for _, f := range x.b.reg.Lookup(e.Name) {
		if f.Kind != functions.Scalar {
			return f.Kind
		}
	}
	return functions.Scalar
}

func (x *exprCtx) callArgs(e *pgext.Call) ([]*expr.Expr, error) {
	out := make([]*expr.Expr, len(e.Args))
	for i, a := range e.Args {
		c, err := x.bind(a.X)
		if err != nil {
			return nil, err
		}
		out[i] = c
	}
	return x.positional(e, out)
}

// argNames returns the names that arguments of a call are given by, nil when there are none.
func (b *binder) argNames(e *pgext.Call) ([]string, error) {
	var names []string
	for i, a := range e.Args {
		pos := b.pos(a.X.OriginTextPosition())
		switch {
		case a.Name == "" && names != nil:
			return nil, pgerr.Newf(pgerr.SyntaxError, "positional argument cannot follow named argument").At(pos)
		case a.Name == "":
			continue
		case slices.Contains(names, a.Name):
			return nil, pgerr.Newf(pgerr.SyntaxError, "argument name \"%s\" used more than once", a.Name).At(b.pos(a.Pos))
		case names == nil:
			names = make([]string, i, len(e.Args))
		}
		names = append(names, a.Name)
	}
	return names, nil
}

// positional puts named arguments where the function has them, with defaults in between.
func (x *exprCtx) positional(e *pgext.Call, args []*expr.Expr) ([]*expr.Expr, error) {
	b, pos := x.b, x.b.pos(e.Pos)
	names, err := b.argNames(e)
	if names == nil || err != nil {
		return args, err
	}
	order, defaults, err := b.reg.MatchNames(e.Name, argTypes(args), names)
	if err != nil {
		return nil, pgerr.From(err).At(pos)
	}
	out := make([]*expr.Expr, len(order))
	for i, o := range order {
		if o < 0 {
			out[i] = unknownText(defaults[i], pos)
			continue
		}
		out[i] = args[o]
	}
	return out, nil
}

func argTypes(args []*expr.Expr) []types.Type {
	ts := make([]types.Type, len(args))
	for i, a := range args {
		ts[i] = a.Type
	}
	return ts
}

// resolve finds the overload and casts the arguments to its parameter types.
func (b *binder) resolve(name string, args []*expr.Expr, variadic bool, pos int) (*functions.Resolved, []*expr.Expr, error) {
	find := b.reg.ResolveFunction
	if variadic {
		find = b.reg.ResolveVariadic
	}
	res, err := find(name, argTypes(args))
	if err != nil {
		return nil, nil, callError(err, pos)
	}
	if res.Cast {
		return res, args, nil
	}
	out := make([]*expr.Expr, len(args))
	for i, a := range args {
		if out[i], err = b.cast(a, res.Args[i], functions.Implicit); err != nil {
			return nil, nil, err
		}
	}
	return res, out, nil
}

// callError gives the error of a call its position; as in PostgreSQL the one about polymorphic types has none.
func callError(err error, pos int) error {
	if pgerr.CodeOf(err) == pgerr.DatatypeMismatch {
		return err
	}
	return pgerr.From(err).At(pos)
}

func (x *exprCtx) callFunc(name string, args []*expr.Expr, variadic bool, pos int) (*expr.Expr, error) {
	res, args, err := x.b.resolve(name, args, variadic, pos)
	if err != nil {
		return nil, err
	}
	if res.Cast {
		return x.b.cast(args[0], res.Result, functions.Explicit)
	}
	if err = x.b.sliding(name, res.Func, x.clause, pos); err != nil {
		return nil, err
	}
	return x.b.reg.EnumCall(&expr.Expr{Kind: expr.Call, Type: res.Result, Func: res.Func.ID, Args: args, Pos: pos})
}

// mayHaveSet refuses sets where there cannot be any.
func (x *exprCtx) mayHaveSet(pos int) error {
	if x.inAgg {
		return pgerr.Newf(pgerr.FeatureNotSupported, "aggregate function calls cannot contain set-returning function calls").
			WithHint("You might be able to move the set-returning function into a LATERAL FROM item.").At(pos)
	}
	if x.inWin {
		return pgerr.Newf(pgerr.FeatureNotSupported, "window function calls cannot contain set-returning function calls").
			WithHint("You might be able to move the set-returning function into a LATERAL FROM item.").At(pos)
	}
	if x.srfs == nil {
		return pgerr.Newf(pgerr.FeatureNotSupported, "set-returning functions are not allowed in %s", x.place()).At(pos)
	}
	if x.inCase != "" {
		return pgerr.Newf(pgerr.FeatureNotSupported, "set-returning functions are not allowed in %s", x.inCase).
			WithHint("You might be able to move the set-returning function into a LATERAL FROM item.").At(pos)
	}
	return nil
}

// setDepth is how many sets have to run one after the other before these expressions can be computed.
func (x *exprCtx) setDepth(es []*expr.Expr) int {
	used := map[int]bool{}
	for _, e := range es {
		e.Columns(used)
	}
	for i := len(x.applies) - 1; i >= 0; i-- {
		if a := x.applies[i]; a.right != nil && a.usedBy(used) {
			for c := range freeCols(a.right) {
				used[c] = true
			}
		}
	}
	depth := 0
	for _, it := range x.srfs.items {
		if slices.ContainsFunc(it.ids, func(id int) bool { return used[id] }) {
			depth = max(depth, it.depth+1)
		}
	}
	return depth
}

func (x *exprCtx) setReturning(e *pgext.Call, args []*expr.Expr, pos int) (*expr.Expr, error) {
	if err := x.mayHaveSet(pos); err != nil {
		return nil, err
	}
	res, args, err := x.b.resolve(e.Name, args, e.Variadic, pos)
	if err != nil {
		return nil, err
	}
	columns, own := setColumns(res.Func, args)
	if err = x.b.sliding(e.Name, res.Func, x.clause, pos); err != nil {
		return nil, err
	}
	t := res.Result
	if len(columns) == 1 && t.OID == types.OIDRecord {
		t = columns[0].Type
	}
	if len(columns) == 0 && t.OID == types.OIDRecord && x.b.unnested(e.Name, args) == nil {
		return nil, pgerr.Newf(pgerr.FeatureNotSupported, "function returning record called in context that cannot accept type record").At(pos)
	}
	it := srfItem{depth: x.setDepth(args), call: &expr.Expr{Kind: expr.Call, Type: t, Func: res.Func.ID, Args: args, Pos: pos}}
	if own {
		it.call.Cols = types.Schema(columns).Types()
	}
	if len(columns) < 2 {
		id := x.b.md.add(e.Name, t)
		if e.Name == "unnest" {
			x.b.md.cols[id].shape = x.b.shapeOf(args[0])
		}
		it.ids = []int{id}
		x.srfs.items = append(x.srfs.items, it)
		c := x.b.md.ref(id)
		c.Pos = pos
		return c, nil
	}
	row := &expr.Expr{Kind: expr.Row, Type: types.T(types.OIDRecord), Pos: pos}
	for _, c := range columns {
		id := x.b.md.add(c.Name, c.Type)
		it.ids = append(it.ids, id)
		row.Names, row.Args = append(row.Names, c.Name), append(row.Args, x.b.md.ref(id))
	}
	// Beside a longer set the value is NULL, not a row of NULLs.
	mark := x.b.md.add("?row?", types.Bool)
	it.ids = append(it.ids, mark)
	it.call = &expr.Expr{Kind: expr.Call, Type: types.T(types.OIDRecord), Func: expr.MarkedSet, Args: []*expr.Expr{it.call}, Pos: pos}
	x.srfs.items = append(x.srfs.items, it)
	return &expr.Expr{Kind: expr.Case, Type: row.Type, Pos: pos, Args: []*expr.Expr{isNull(x.b.md.ref(mark)), nullConst(row.Type), row}}, nil
}

// aggregate binds an aggregate call (not over a window) and returns the column that will hold its result. An aggregate over columns of
// an outer query alone is that query's: here it is one value per row of it.
func (x *exprCtx) aggregate(e *pgext.Call) (*expr.Expr, error) {
	b, pos := x.b, x.b.pos(e.Pos)
	in := &exprCtx{b: b, sc: x.sc, ev: x.ev, clause: x.clause, inAgg: true}
	it, err := in.aggCall(e)
	if err != nil {
		return nil, err
	}
	var nested bool
	switch x, nested = x.levelOf(it, in.applies); {
	case x == nil:
		return nil, pgerr.Newf(pgerr.GroupingError, "aggregate functions are not allowed in FROM clause of their own query level").At(pos)
	case x.inAgg && x.clause == "FILTER":
		return nil, pgerr.Newf(pgerr.GroupingError, "aggregate functions are not allowed in FILTER").At(pos)
	case x.inAgg || nested:
		return nil, pgerr.Newf(pgerr.GroupingError, "aggregate function calls cannot be nested").At(pos)
	case x.aggs == nil:
		return nil, pgerr.Newf(pgerr.GroupingError, "aggregate functions are not allowed in %s", x.place()).At(pos)
	}
	for _, t := range x.sc.tables {
		if t.work {
			return nil, pgerr.Newf(pgerr.InvalidRecursion, "aggregate functions are not allowed in a recursive query's recursive term").At(pos)
		}
	}
	x.aggs.applies = append(x.aggs.applies, in.applies...)
	if len(in.applies) == 0 && !x.volatileAgg(it) {
		for _, o := range x.aggs.items {
			if sameAgg(o, *it) {
				c := b.md.ref(o.id)
				c.Pos = pos
				return c, nil
			}
		}
	}
	it.id = b.md.add(e.Name, it.typ)
	if it.fn == "array_agg(anynonarray)" || it.fn == "$scalar(anyelement)" {
		b.md.cols[it.id].shape = b.shapeOf(it.args[0])
	}
	x.aggs.items = append(x.aggs.items, *it)
	c := b.md.ref(it.id)
	c.Pos = pos
	return c, nil
}

func (x *exprCtx) volatileAgg(it *aggItem) bool {
	for _, a := range it.args {
		if x.b.volatileExpr(a) {
			return true
		}
	}
	return false
}

func sameAgg(a, c aggItem) bool {
	if a.fn != c.fn || a.distinct != c.distinct || len(a.args) != len(c.args) || len(a.order) != len(c.order) || (a.filter == nil) != (c.filter == nil) || a.typ != c.typ || len(a.direct) != len(c.direct) {
		return false
	}
	for i := range a.direct {
		if !sameExpr(a.direct[i], c.direct[i]) {
			return false
		}
	}
	for i := range a.args {
		if !sameExpr(a.args[i], c.args[i]) {
			return false
		}
	}
	for i := range a.order {
		if a.order[i].desc != c.order[i].desc || a.order[i].nullsFirst != c.order[i].nullsFirst || !sameExpr(a.order[i].e, c.order[i].e) {
			return false
		}
	}
	return a.filter == nil || sameExpr(a.filter, c.filter)
}

// levelOf returns the context that computes an aggregate: the one of the innermost query level with a column of its arguments or filter,
// x without any. It is nil for a level whose FROM clause the aggregate is in. nested tells that the arguments hold an aggregate of that level.
func (x *exprCtx) levelOf(it *aggItem, applies []apply) (level *exprCtx, nested bool) {
	used := map[int]bool{}
	for _, a := range it.args {
		a.Columns(used)
	}
	for _, k := range it.order {
		k.e.Columns(used)
	}
	if it.filter != nil {
		it.filter.Columns(used)
	}
	for _, a := range applies {
		for _, c := range a.right.out() {
			delete(used, c)
		}
		for c := range freeCols(a.right) {
			used[c] = true
		}
		if a.cond != nil {
			a.cond.Columns(used)
		}
	}
	for l := x.sc; l != nil && len(used) > 0; l = l.parent {
		if l.holder != nil && l.holder.aggs != nil {
			for _, o := range l.holder.aggs.items {
				nested = nested || used[o.id]
			}
		}
		if !nested && !l.holds(used) {
			continue
		}
		if l == x.sc {
			return x, nested
		}
		return l.holder, nested
	}
	return x, nested
}

// holds reports whether one of the columns is of this level.
func (s *scope) holds(used map[int]bool) bool {
	for _, t := range s.tables {
		for _, c := range appendCols(t.cols, t.hidden) {
			if used[c.id] {
				return true
			}
		}
	}
	for _, c := range s.visible {
		if used[c.id] {
			return true
		}
	}
	return false
}

func appendCols(a, c []scopeCol) []scopeCol {
	return append(append([]scopeCol(nil), a...), c...)
}

// aggCall binds the parts of an aggregate call.
func (x *exprCtx) aggCall(e *pgext.Call) (*aggItem, error) {
	b, pos := x.b, x.b.pos(e.Pos)
	args, err := x.callArgs(e)
	if err != nil {
		return nil, err
	}
	if !e.Star && len(args) == 0 && len(e.WithinGroup) == 0 {
		if _, err := b.reg.ResolveFunction(e.Name, nil); err == nil {
			return nil, pgerr.Newf(pgerr.WrongObjectType, "%s(*) must be used to call a parameterless aggregate function", e.Name).At(pos)
		}
	}
	direct := len(args)
	orderBy := e.OrderBy
	if err = x.withinGroup(e, args, pos); err != nil {
		return nil, err
	}
	if len(e.WithinGroup) > 0 {
		orderBy = e.WithinGroup
		for _, k := range e.WithinGroup {
			a, err := x.bind(k.X)
			if err != nil {
				return nil, err
			}
			args = append(args, a)
		}
		if hypothetical(e.Name) {
			if err = x.hypotheticalArgs(e, args, direct, pos); err != nil {
				return nil, err
			}
		}
	}
	res, args, err := b.resolve(e.Name, args, e.Variadic, pos)
	if err != nil {
		return nil, err
	}
	it := &aggItem{fn: res.Func.ID, args: args, distinct: e.Distinct, typ: res.Result}
	for i, k := range orderBy {
		key := exprKey{desc: k.Desc, nullsFirst: k.NullsFirst}
		if k.Using == ">" {
			key.desc = true
		}
		if len(e.WithinGroup) > 0 {
			key.e = args[direct+i]
		} else {
			if key.e, err = x.bind(k.X); err == nil {
				key.e, err = b.known(key.e)
			}
			if err != nil {
				return nil, err
			}
		}
		it.order = append(it.order, key)
	}
	if len(e.WithinGroup) > 0 {
		if it.args[direct].Type.OID == types.OIDUnknown {
			return nil, pgerr.Newf(pgerr.DatatypeMismatch, "could not determine polymorphic type because input has type unknown").At(pos)
		}
		if it.direct, it.args = args[:direct:direct], args[direct:]; direct > 0 {
			if err = x.directArgs(it.direct); err != nil {
				return nil, err
			}
		}
	}
	if e.Distinct {
		if len(args) == 0 {
			return nil, pgerr.Newf(pgerr.SyntaxError, "DISTINCT cannot be used with %s(*)", e.Name).At(pos)
		}
		for _, a := range args {
			if !orderable(a.Type) {
				return nil, pgerr.Newf(pgerr.UndefinedFunction, "could not identify an equality operator for type %s", x.b.reg.TypeName(a.Type.OID)).At(a.Pos)
			}
		}
		for _, k := range it.order {
			found := false
			for _, a := range args {
				found = found || sameExpr(a, k.e)
			}
			if !found {
				return nil, pgerr.Newf(pgerr.InvalidColumnReference, "in an aggregate with DISTINCT, ORDER BY expressions must appear in argument list").At(k.e.Pos)
			}
		}
	}
	if e.Filter != nil {
		f := &exprCtx{b: b, sc: x.sc, ev: x.ev, clause: "FILTER", inAgg: x.inAgg, aggs: x.aggs, wins: x.wins}
		if it.filter, err = f.bool(e.Filter); err != nil {
			return nil, err
		}
		x.applies = append(x.applies, f.applies...)
	}
	return it, nil
}

func (x *exprCtx) grouping(e *pgext.Special) (*expr.Expr, error) {
	pos := x.b.pos(e.Pos)
	if x.aggs == nil {
		return nil, pgerr.Newf(pgerr.GroupingError, "grouping operations are not allowed in %s", x.place()).At(pos)
	}
	in := &exprCtx{b: x.b, sc: x.sc, ev: x.ev, clause: x.clause, inAgg: true}
	args, err := in.binds(e.Args)
	if err != nil {
		return nil, err
	}
	g := groupingCall{id: x.b.md.add("grouping", types.Int4), args: args, pos: pos}
	x.aggs.groupings = append(x.aggs.groupings, g)
	c := x.b.md.ref(g.id)
	c.Pos = pos
	return c, nil
}

// subscript binds a[i] and, as one look-up in all dimensions, a[i][j].
func (x *exprCtx) subscript(e *pgext.Subscript) (*expr.Expr, error) {
	b, pos := x.b, x.b.pos(e.Pos)
	base, indexes := e.X, []ast.ExprNode{e.Index}
	for {
		in, ok := pgext.ExprOf(base).(*pgext.Subscript)
		if !ok {
			break
		}
		base, indexes = in.X, append([]ast.ExprNode{in.Index}, indexes...)
	}
	if _, ok := pgext.ExprOf(base).(*pgext.Slice); ok {
		return x.slice(e, pos)
	}
	args, err := x.binds(append([]ast.ExprNode{base}, indexes...))
	if err != nil {
		return nil, err
	}
	if args[0].Type.OID == types.OIDJSONB {
		v := args[0]
		for _, i := range args[1:] {
			if i, err = b.castJSONSubscript(i); err != nil {
				return nil, err
			}
			if v, err = b.operatorOn("->", []*expr.Expr{v, i}, pos); err != nil {
				return nil, err
			}
		}
		return v, nil
	}
	if !args[0].Type.IsArray() && args[0].Type.OID != types.OIDName {
		return nil, pgerr.Newf(pgerr.DatatypeMismatch, "cannot subscript type %s because it does not support subscripting", x.b.reg.TypeName(args[0].Type.OID)).At(leftmost(args[0]))
	}
	for i := range args[1:] {
		if args[i+1], err = b.castSubscript(args[i+1]); err != nil {
			return nil, err
		}
	}
	return b.call(funcSubscript, args, pos)
}

// Functions of the registry behind syntax.
const (
	funcSubscript = "$subscript"
	funcSlice     = "$slices"
)
