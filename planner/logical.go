package planner

import (
	"bytes"
	"slices"
	"strings"

	"github.com/streamdb/streamdb/planner/plan"
	"github.com/streamdb/streamdb/sql/expr"
	"github.com/streamdb/streamdb/types"
)

// op is the kind of a logical node.
type op uint8

const (
	opScan op = iota
	opSource
	opValues
	opSeries
	opFilter
	opProject
	opUnnest
	opWatermark
	opWindow
	opSession
	opAgg
	opJoin
	opApply
	opTemporal // join of a job with what the right side, a relation, holds in the epoch of the left row
	opAsof     // join that gives each left row the nearest right row; exprs are what is compared (see plan.AsofJoin), name is the operator
	opUnion
	opTopN
	opOver
	opRecurse // in: the non-recursive term, the recursive term
	opWork    // inside a recursive term: the rows of the last iteration
)

// node is a logical operator. Which fields are set follows from op. Trees are mutated by the rules, so a subtree belongs to one parent;
// copyTree makes another one with fresh column ids.
type node struct {
	op op
	in []*node
	// cols are the output columns of scan, source, values, series, project and union. For the others out computes them.
	cols []int

	rel    *Relation
	label  *tableLabel // of a scan or source
	stored []int       // scan, source: stored column per element of cols; of sources also storedRowID and storedProcTime

	rows [][]*expr.Expr // values

	// calls are the set-returning calls of unnest and (one) of series; added are the columns they produce. ordinal is the ordinal
	// column of unnest and the ordinality column of series (0 when it has none).
	calls   []*expr.Expr
	added   []int
	ordinal int
	left    bool

	cond  *expr.Expr   // filter, join, apply; nil = true; asof: equalities
	exprs []*expr.Expr // project, parallel to cols

	jtype  plan.JoinType // join, apply, asof
	placed *placedJoin   // join: where reorder_joins has put it
	pos    int           // temporal: where it is in the statement, for errors

	group  []int // agg, topn
	global bool  // agg: exactly one row
	aggs   []aggCall

	order         []sortKey // topn, over
	limit, offset *expr.Expr
	withTies      bool
	dense         bool // topn: the limit counts rows with equal keys once

	partition []int      // over, session
	over      []overCall // topn: ranks
	backward  bool       // over: see plan.Over

	branches [][]int // union, recurse: per input, its column for each element of cols

	work int    // recurse, work: number of the recursive query
	name string // recurse, work: its name
	all  bool   // recurse: UNION ALL

	column           int // watermark, window, session
	wmExpr           *expr.Expr
	win              plan.Window // window, session (Size is the gap); the column is the one above
	winStart, winEnd int         // window, session
}

// Columns of a source that its connector does not declare.
const (
	storedRowID    = -1
	storedProcTime = -2
)

type sortKey struct {
	col              int
	desc, nullsFirst bool
}

type aggCall struct {
	id       int
	fn       string
	args     []int
	distinct bool
	filter   int // 0 = none
	order    []sortKey
	typ      types.Type
	direct   []*expr.Expr // WITHIN GROUP: constants
}

type overCall struct {
	id          int
	fn          string
	args        []int
	filter      int
	frame       plan.Frame
	ignoreNulls bool
	typ         types.Type
	number      *int64 // see plan.OverCall
}

// colMeta describes a column id.
type colMeta struct {
	name string
	typ  types.Type
	// notNull: no NULL where the column is made; outer joins above may still pad it.
	notNull bool
	// window is the window_end column that belongs to a window_start or window_end column, 0 for all others.
	window int
	// shape describes the fields of a composite value, or of the elements of an array of such; nil when they are not known.
	shape *shape
	// origin is where a result's column comes from.
	origin Origin
	// table is what EXPLAIN calls the relation that the column is of, nil when it is of none.
	table *tableLabel
}

// metadata holds the columns of a statement; ids start at 1.
type metadata struct {
	cols   []colMeta
	access accesses
}

func newMetadata() *metadata { return &metadata{cols: make([]colMeta, 1)} }

func (m *metadata) add(name string, t types.Type) int {
	m.cols = append(m.cols, colMeta{name: name, typ: t})
	return len(m.cols) - 1
}

// copy makes a column like another one.
func (m *metadata) copy(id int) int {
	n := m.add(m.cols[id].name, m.cols[id].typ)
	m.cols[n].table = m.cols[id].table
	return n
}

func (m *metadata) typ(id int) types.Type { return m.cols[id].typ }

func (m *metadata) ref(id int) *expr.Expr {
	if m.access.origins != nil {
		m.access.read(id)
	}
	return expr.Col(id, m.cols[id].typ)
}

// out returns the output columns of n in order. The caller does not change them.
func (n *node) out() []int {
	switch n.op {
	case opScan, opSource, opValues, opSeries, opProject, opUnion, opRecurse, opWork:
		return n.cols
	case opFilter, opWatermark:
		return n.in[0].out()
	}
	return n.appendOut(nil)
}

// appendOut appends the output columns of n: once each, however deep the tree.
func (n *node) appendOut(out []int) []int {
	switch n.op {
	case opScan, opSource, opValues, opSeries, opProject, opUnion, opRecurse, opWork:
		return append(out, n.cols...)
	case opFilter, opWatermark:
		return n.in[0].appendOut(out)
	case opUnnest:
		return append(append(n.in[0].appendOut(out), n.added...), n.ordinal)
	case opWindow, opSession:
		return append(n.in[0].appendOut(out), n.winStart, n.winEnd)
	case opAgg:
		out = append(out, n.group...)
		for _, c := range n.aggs {
			out = append(out, c.id)
		}
	case opOver, opTopN:
		out = n.in[0].appendOut(out)
		for _, c := range n.over {
			out = append(out, c.id)
		}
	case opJoin, opApply, opAsof, opTemporal:
		out = n.in[0].appendOut(out)
		if n.jtype != plan.Semi && n.jtype != plan.Anti {
			out = n.in[1].appendOut(out)
		}
	}
	return out
}

func appendAll(lists ...[]int) []int {
	total := 0
	for _, l := range lists {
		total += len(l)
	}
	out := make([]int, 0, total)
	for _, l := range lists {
		out = append(out, l...)
	}
	return out
}

// walk visits n and everything below, inputs first.
func (n *node) walk(f func(*node)) {
	for _, in := range n.in {
		in.walk(f)
	}
	f(n)
}

// eachExpr visits the expressions of n itself; f may replace them.
func (n *node) eachExpr(f func(*expr.Expr) *expr.Expr) {
	opt := func(p **expr.Expr) {
		if *p != nil {
			*p = f(*p)
		}
	}
	for _, r := range n.rows {
		for i := range r {
			r[i] = f(r[i])
		}
	}
	for i := range n.calls {
		n.calls[i] = f(n.calls[i])
	}
	opt(&n.cond)
	for i := range n.exprs {
		n.exprs[i] = f(n.exprs[i])
	}
	opt(&n.limit)
	opt(&n.offset)
	opt(&n.wmExpr)
}

// eachCol visits the column ids that n uses directly (not inside expressions, not those it makes); f may replace them.
func (n *node) eachCol(f func(int) int) {
	list := func(ids []int) {
		for i := range ids {
			ids[i] = f(ids[i])
		}
	}
	keys := func(ks []sortKey) {
		for i := range ks {
			ks[i].col = f(ks[i].col)
		}
	}
	list(n.group)
	keys(n.order)
	list(n.partition)
	for i := range n.aggs {
		a := &n.aggs[i]
		list(a.args)
		keys(a.order)
		if a.filter != 0 {
			a.filter = f(a.filter)
		}
	}
	for i := range n.over {
		c := &n.over[i]
		list(c.args)
		if c.filter != 0 {
			c.filter = f(c.filter)
		}
	}
	for _, b := range n.branches {
		list(b)
	}
	if n.column != 0 {
		n.column = f(n.column)
	}
}

// eachMade visits the column ids that n makes; f may replace them.
func (n *node) eachMade(f func(int) int) {
	made := func(ids []int) {
		for i := range ids {
			ids[i] = f(ids[i])
		}
	}
	switch n.op {
	case opScan, opSource, opValues, opUnion, opSeries, opRecurse, opWork:
		made(n.cols)
		if n.op == opSeries && n.ordinal != 0 {
			n.ordinal = f(n.ordinal)
		}
		if n.op == opSeries {
			made(n.added)
		}
	case opProject:
		for i, e := range n.exprs {
			if e.Kind != expr.Column || e.Col != n.cols[i] {
				n.cols[i] = f(n.cols[i])
			}
		}
	case opUnnest:
		made(n.added)
		n.ordinal = f(n.ordinal)
	case opWindow, opSession:
		n.winStart, n.winEnd = f(n.winStart), f(n.winEnd)
	case opAgg:
		for i := range n.aggs {
			n.aggs[i].id = f(n.aggs[i].id)
		}
	case opOver, opTopN:
		for i := range n.over {
			n.over[i].id = f(n.over[i].id)
		}
	}
}

// freeCols returns the columns that n's tree uses but does not make.
func freeCols(n *node) map[int]bool {
	used, made := map[int]bool{}, map[int]bool{}
	n.walk(func(x *node) {
		x.eachExpr(func(e *expr.Expr) *expr.Expr { e.Columns(used); return e })
		x.eachCol(func(c int) int { used[c] = true; return c })
		x.eachMade(func(c int) int { made[c] = true; return c })
	})
	for c := range used {
		if made[c] {
			delete(used, c)
		}
	}
	return used
}

func toSet(ids []int) map[int]bool {
	s := make(map[int]bool, len(ids))
	for _, c := range ids {
		s[c] = true
	}
	return s
}

func cloneNode(n *node) *node {
	c := *n
	c.in = append([]*node(nil), n.in...)
	c.cols = append([]int(nil), n.cols...)
	c.stored = append([]int(nil), n.stored...)
	c.rows = nil
	for _, r := range n.rows {
		c.rows = append(c.rows, append([]*expr.Expr(nil), r...))
	}
	c.calls = append([]*expr.Expr(nil), n.calls...)
	c.added = append([]int(nil), n.added...)
	c.exprs = append([]*expr.Expr(nil), n.exprs...)
	c.group = append([]int(nil), n.group...)
	c.aggs = append([]aggCall(nil), n.aggs...)
	for i := range c.aggs {
		c.aggs[i].args = append([]int(nil), c.aggs[i].args...)
		c.aggs[i].order = append([]sortKey(nil), c.aggs[i].order...)
	}
	c.order = append([]sortKey(nil), n.order...)
	c.partition = append([]int(nil), n.partition...)
	c.over = append([]overCall(nil), n.over...)
	for i := range c.over {
		c.over[i].args = append([]int(nil), c.over[i].args...)
	}
	c.branches = nil
	for _, b := range n.branches {
		c.branches = append(c.branches, append([]int(nil), b...))
	}
	return &c
}

// copyTree copies n with fresh ids for everything it makes; m maps old ids to new ones.
func (md *metadata) copyTree(n *node, m map[int]int) *node {
	c := cloneNode(n)
	for i, in := range c.in {
		c.in[i] = md.copyTree(in, m)
	}
	use := func(id int) int {
		if x, ok := m[id]; ok {
			return x
		}
		return id
	}
	// A project that passes a column on keeps doing so after renaming, so uses go first.
	passed := make([]bool, len(c.cols))
	if c.op == opProject {
		for i, e := range c.exprs {
			passed[i] = e.Kind == expr.Column && e.Col == c.cols[i]
		}
	}
	c.eachExpr(func(e *expr.Expr) *expr.Expr { return mapCols(e, use) })
	c.eachCol(use)
	fresh := func(id int) int {
		if x, ok := m[id]; ok {
			return x
		}
		meta := md.cols[id]
		md.cols = append(md.cols, meta)
		m[id] = len(md.cols) - 1
		return m[id]
	}
	if c.op == opProject {
		for i := range c.cols {
			if passed[i] {
				c.cols[i] = use(c.cols[i])
			} else {
				c.cols[i] = fresh(c.cols[i])
			}
		}
	} else {
		c.eachMade(fresh)
	}
	if c.op == opWindow || c.op == opSession {
		md.cols[c.winStart].window, md.cols[c.winEnd].window = c.winEnd, c.winEnd
	}
	return c
}

// mapCols returns e with f applied to every column id.
func mapCols(e *expr.Expr, f func(int) int) *expr.Expr {
	return e.Rewrite(func(x *expr.Expr) *expr.Expr {
		if x.Kind != expr.Column {
			return x
		}
		id := f(x.Col)
		if id == x.Col {
			return x
		}
		c := *x
		c.Col = id
		return &c
	})
}

// substitute returns e with columns replaced by the expressions of m.
func substitute(e *expr.Expr, m map[int]*expr.Expr) *expr.Expr {
	return e.Rewrite(func(x *expr.Expr) *expr.Expr {
		if x.Kind == expr.Column {
			if r, ok := m[x.Col]; ok {
				return r
			}
		}
		return x
	})
}

// project wraps n so that exactly ids come out, each a column of n.
func (md *metadata) narrow(n *node, ids []int) *node {
	p := &node{op: opProject, in: []*node{n}, cols: append([]int(nil), ids...)}
	for _, id := range ids {
		p.exprs = append(p.exprs, expr.Col(id, md.typ(id)))
	}
	return p
}

// extend adds computed columns to n: all of n's columns stay. It returns n itself when there is nothing to add.
func (md *metadata) extend(n *node, ids []int, exprs []*expr.Expr) *node {
	if len(ids) == 0 {
		return n
	}
	p := md.narrow(n, n.out())
	p.cols = append(p.cols, ids...)
	p.exprs = append(p.exprs, exprs...)
	return p
}

func filterNode(n *node, cond *expr.Expr) *node {
	if cond == nil || isTrue(cond) {
		return n
	}
	return &node{op: opFilter, in: []*node{n}, cond: cond}
}

func isTrue(e *expr.Expr) bool {
	return e.Kind == expr.Const && !e.Const.Null && e.Type.OID == types.OIDBool && e.Const.Bool
}

// conjuncts splits an AND, nil into nothing.
func conjuncts(e *expr.Expr) []*expr.Expr {
	if e == nil || isTrue(e) {
		return nil
	}
	if e.Kind != expr.And {
		return []*expr.Expr{e}
	}
	var out []*expr.Expr
	for _, a := range e.Args {
		out = append(out, conjuncts(a)...)
	}
	return out
}

// and joins conditions, nil for none.
func and(es ...*expr.Expr) *expr.Expr {
	var out []*expr.Expr
	for _, e := range es {
		out = append(out, conjuncts(e)...)
	}
	switch len(out) {
	case 0:
		return nil
	case 1:
		return out[0]
	}
	return &expr.Expr{Kind: expr.And, Type: types.Bool, Args: out, Pos: out[0].Pos}
}

// cheapFirst orders the parts of a condition by what evaluating them costs, as PostgreSQL does: of equal ones the first stays first. So a cheap
// test keeps rows from an expression that would fail on them, wherever it is written.
func cheapFirst(cond *expr.Expr) *expr.Expr {
	cs := conjuncts(cond)
	if len(cs) < 2 {
		return cond
	}
	cs = slices.Clone(cs)
	slices.SortStableFunc(cs, func(a, c *expr.Expr) int { return evalCost(a) - evalCost(c) })
	return and(cs...)
}

// evalCost counts the calls that evaluating e for a row takes, in halves.
func evalCost(e *expr.Expr) int {
	cost := 0
	e.Walk(func(x *expr.Expr) bool {
		switch x.Kind {
		case expr.Call:
			cost += 2
			if len(x.Args) == 1 && strings.HasPrefix(x.Func, "$") && textual(x.Type.OID) != textual(x.Args[0].Type.OID) {
				cost += 2 // out of the one type and into the other
			}
		case expr.Distinct, expr.Greatest, expr.Least:
			cost += 2
		case expr.InList:
			cost += len(x.Args) - 1
		case expr.AnyArray, expr.AllArray:
			cost += 10
		}
		return true
	})
	return cost
}

func boolConst(v bool) *expr.Expr {
	return expr.Literal(types.Datum{Type: types.Bool, Bool: v})
}

func intConst(t types.Type, v int64) *expr.Expr { return expr.Literal(types.Datum{Type: t, Int: v}) }

func nullConst(t types.Type) *expr.Expr { return expr.Literal(types.NullDatum(t)) }

func isNull(e *expr.Expr) *expr.Expr {
	return &expr.Expr{Kind: expr.IsNull, Type: types.Bool, Args: []*expr.Expr{e}, Pos: e.Pos}
}

func isNotNull(e *expr.Expr) *expr.Expr {
	return &expr.Expr{Kind: expr.IsNotNull, Type: types.Bool, Args: []*expr.Expr{e}, Pos: e.Pos}
}

func not(e *expr.Expr) *expr.Expr {
	return &expr.Expr{Kind: expr.Not, Type: types.Bool, Args: []*expr.Expr{e}, Pos: e.Pos}
}

func or(es ...*expr.Expr) *expr.Expr {
	return &expr.Expr{Kind: expr.Or, Type: types.Bool, Args: es, Pos: es[0].Pos}
}

// isTruth is e IS TRUE: never NULL.
func isTruth(e *expr.Expr) *expr.Expr { return coalesce(e, boolConst(false)) }

func coalesce(es ...*expr.Expr) *expr.Expr {
	return &expr.Expr{Kind: expr.Coalesce, Type: es[0].Type, Args: es, Pos: es[0].Pos}
}

// sameExpr reports whether two bound expressions are the same but for positions.
func sameExpr(a, b *expr.Expr) bool {
	if a.Kind != b.Kind || a.Type != b.Type || a.Col != b.Col || a.Func != b.Func || len(a.Args) != len(b.Args) || !slices.Equal(a.Names, b.Names) {
		return false
	}
	if a.Kind == expr.Const {
		if a.Const.Null || b.Const.Null {
			return a.Const.Null == b.Const.Null
		}
		// Equal is not the same: 1.0 and 1.00, '1 day' and '24 hours' compare equal and mean different things.
		if !bytes.Equal(types.AppendDatumRow(nil, []types.Datum{*a.Const}), types.AppendDatumRow(nil, []types.Datum{*b.Const})) {
			return false
		}
	}
	for i := range a.Args {
		if !sameExpr(a.Args[i], b.Args[i]) {
			return false
		}
	}
	return true
}

// dual is a relation of one row. It has a column, so that no operator ever sees rows without columns.
func (md *metadata) dual() *node {
	return &node{op: opValues, cols: []int{md.add("?dual?", types.Int4)}, rows: [][]*expr.Expr{{intConst(types.Int4, 0)}}}
}
