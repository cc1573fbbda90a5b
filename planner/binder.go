package planner

import (
	"errors"

	"github.com/pingcap/tidb/pkg/parser/ast"

	"github.com/streamdb/streamdb/internal/pgerr"
	"github.com/streamdb/streamdb/planner/plan"
	"github.com/streamdb/streamdb/sql"
	"github.com/streamdb/streamdb/sql/expr"
	"github.com/streamdb/streamdb/sql/functions"
	"github.com/streamdb/streamdb/sql/pgext"
	"github.com/streamdb/streamdb/types"
)

// maxTargets bounds the columns of a query, as in PostgreSQL.
const maxTargets = 1664

// maxBindDepth bounds the nesting of queries, views and CTEs.
const maxBindDepth = 2000

// maxBoundQueries bounds the queries, subqueries and operands of set operations of a statement once views and WITH queries are put in for
// each of their references: that can double with each of them.
const maxBoundQueries = 10_000

// binder resolves names and types and builds the logical tree. One per statement.
type binder struct {
	o      Options
	reg    *functions.Registry
	md     *metadata
	stream bool
	deps   []uint64
	// params holds the types found so far, zero for unknown.
	params []types.Type
	// anyParams are the parameters that stand where any type may.
	anyParams []*expr.Expr
	// inView counts the views being bound: positions in their texts mean nothing in the user's statement.
	inView int
	depth  int
	bound  int // queries so far, see maxBoundQueries
	path   []string
	// scanned are the columns made by scans; marked names the FROM items whose rows need a mark (see absentRow).
	scanned map[int]bool
	marked  map[string]bool
	// frames are the calls of functions that are being inlined, innermost last.
	frames []*frame
	direct int // how many frames deep b.deps is kept; 0 = at any depth, see noFrames
	works  int // recursive queries so far
	// changes are the statements of the WITH clause that change data, before their plans. Root is the surroundings of such a statement
	// itself, inner tells that it is one.
	changes []sql.Statement
	before  []PlannedWith
	// trial is above 0 while a WITH query is bound only to see what is in it.
	trial int
	root  *env
	inner bool
	// declared are all WITH queries of the statement.
	declared []*cte
	// stars are the `*` and `t.*` of select lists in the statement's own text.
	stars map[int][]StarColumn
	// natural are the columns that each NATURAL JOIN joins on.
	natural [][]string
	labels  labels
}

func newBinder(o Options, stream bool) *binder {
	reg := o.Registry
	if reg != nil && o.Catalog != nil {
		reg = reg.WithTypes(o.Catalog)
	}
	return &binder{
		o: o, reg: reg, md: newMetadata(), stream: stream, path: o.SearchPath, labels: labels{columns: map[*plan.Node][]int{}, scans: map[*plan.Node]*tableLabel{}},
		params: append([]types.Type(nil), o.Params...), scanned: map[int]bool{}, marked: map[string]bool{},
	}
}

// cte is a common table expression; it is bound anew at each reference.
type cte struct {
	name     string
	columns  []string
	query    ast.Node
	env      *env // what its body sees
	active   bool
	used     bool
	volatile bool // referenced, with volatile functions and columns of outer queries
	pos      int
	change   *PlannedChange // of a statement that changes data
	rel      *Relation      // the rows of what is evaluated once
	// recursive: it refers to itself. While its recursive term is bound, work is its number there and workCols are the columns.
	recursive bool
	work      int
	workCols  []outCol
	// clauses add the last extra columns of workCols, which the recursive term's * does not show.
	clauses pgext.CTEClauses
	extra   int
}

// env is the surroundings of a query: outer columns and the CTEs in reach.
type env struct {
	outer *scope
	ctes  []*cte // innermost last
}

func (e *env) with(outer *scope) *env { return &env{outer: outer, ctes: e.ctes} }

func (e *env) lookup(name string) *cte {
	for i := len(e.ctes) - 1; i >= 0; i-- {
		if e.ctes[i].name == name {
			return e.ctes[i]
		}
	}
	return nil
}

// bound is a bound query.
type bound struct {
	n     *node
	cols  []outCol
	order []sortKey // of the ORDER BY, also where no node sorts
	locks []lockedKey
}

func (b *binder) pos(p int) int {
	if b.inView > 0 {
		return -1
	}
	return p
}

// query binds q. With keepUnknown untyped literals in the output stay untyped, for the caller to settle.
func (b *binder) query(q *pgext.Query, ev *env, keepUnknown bool) (*bound, error) {
	for {
		r, err := b.queryOnce(q, ev, keepUnknown)
		var absent *absentRow
		if !errors.As(err, &absent) {
			return r, err
		}
		if b.marked[absent.table] {
			return nil, pgerr.Newf(pgerr.FeatureNotSupported, "the whole row of \"%s\" cannot be used here", absent.table).WithHint("Name its columns.")
		}
		if b.depth > 0 {
			return nil, err
		}
		b.marked[absent.table] = true
	}
}

func (b *binder) queryOnce(q *pgext.Query, ev *env, keepUnknown bool) (*bound, error) {
	if b.depth++; b.depth > maxBindDepth {
		return nil, pgerr.Newf(pgerr.StatementTooComplex, "queries are nested more than %d deep", maxBindDepth)
	}
	defer func() { b.depth-- }()
	if b.bound++; b.bound > maxBoundQueries {
		return nil, pgerr.Newf(pgerr.StatementTooComplex, "the statement expands to more than %d queries", maxBoundQueries).
			WithHint("Keep the rows of a view or WITH query that is referenced many times in a table or materialized view.")
	}
	if err := b.o.Env.Interrupted(); err != nil {
		return nil, err
	}
	if err := b.lockForm(q); err != nil {
		return nil, err
	}
	ev, err := b.with(q.With, ev)
	if err != nil {
		return nil, err
	}
	var r *bound
	switch {
	case q.Select != nil:
		r, err = b.selectQuery(q, ev, keepUnknown)
	case q.Values != nil:
		r, err = b.values(q.Values, ev, keepUnknown)
	default:
		r, err = b.setOp(q.SetOp, ev, keepUnknown)
	}
	if err != nil {
		return nil, err
	}
	if len(r.cols) > maxTargets {
		return nil, pgerr.Newf(pgerr.TooManyColumns, "target lists can have at most %d entries", maxTargets)
	}
	if q.Select == nil {
		if err = b.orderOutput(q, r, ev); err != nil {
			return nil, err
		}
	}
	return r, nil
}

func (b *binder) with(w *pgext.With, ev *env) (*env, error) {
	if w == nil {
		return ev, nil
	}
	ev = &env{outer: ev.outer, ctes: append([]*cte(nil), ev.ctes...)}
	for i, c := range w.CTEs {
		for _, d := range w.CTEs[:i] {
			if d.Name == c.Name {
				return nil, pgerr.Newf(pgerr.DuplicateAlias, "WITH query name \"%s\" specified more than once", c.Name).At(b.pos(c.Pos))
			}
		}
		n := &cte{name: c.Name, columns: c.Columns, query: c.Query, pos: c.Pos, clauses: c.CTEClauses}
		if n.env = ev; !w.Recursive {
			n.env = &env{outer: ev.outer, ctes: append([]*cte(nil), ev.ctes...)}
		}
		if j, ok := pgext.Change(c.Query); ok {
			if w.Recursive && refersTo(b.changes[j], c.Name) {
				return nil, pgerr.Newf(pgerr.InvalidRecursion, "recursive query \"%s\" must not contain data-modifying statements", c.Name).At(b.pos(c.Pos))
			}
			if err := b.changing(n, j, ev); err != nil {
				return nil, err
			}
		} else if b.inView == 0 {
			b.declared = append(b.declared, n)
		}
		ev.ctes = append(ev.ctes, n)
	}
	if w.Recursive {
		if err := b.checkRecursion(ev.ctes[len(ev.ctes)-len(w.CTEs):]); err != nil {
			return nil, err
		}
	}
	for _, c := range ev.ctes[len(ev.ctes)-len(w.CTEs):] {
		if !c.recursive && (c.clauses.Search != nil || c.clauses.Cycle != nil) {
			return nil, pgerr.Newf(pgerr.SyntaxError, "WITH query is not recursive").At(b.pos(c.pos))
		}
	}
	return ev, nil
}

// settle gives untyped output columns the type text.
func (b *binder) settle(r *bound) error {
	for i := range r.cols {
		if b.md.typ(r.cols[i].id).OID == types.OIDUnknown {
			if err := b.coerceOutput(r, i, types.Text, functions.Implicit); err != nil {
				return err
			}
		}
	}
	return nil
}

// coerceOutput casts output column i of r. An untyped literal is converted where it stands.
func (b *binder) coerceOutput(r *bound, i int, t types.Type, ctx functions.CastContext) error {
	id := r.cols[i].id
	if b.md.typ(id) == t {
		return nil
	}
	if b.md.typ(id).OID == types.OIDUnknown {
		done, err := b.retypeMade(r.n, id, t, ctx)
		if err != nil || done {
			return err
		}
	}
	e, err := b.cast(b.md.ref(id), t, ctx)
	if err != nil {
		return err
	}
	nid := b.md.add(b.md.cols[id].name, t)
	b.md.cols[nid].notNull = b.md.cols[id].notNull
	if p := r.n; p.op == opProject && p.onTop(id) {
		// The top project is this query's own: replace the column in place, so that output stays one project.
		for j, c := range p.cols {
			if c == id {
				sub := substitute(e, map[int]*expr.Expr{id: p.exprs[j]})
				if !b.volatileExpr(p.exprs[j]) {
					p.cols = append(p.cols, nid)
					p.exprs = append(p.exprs, sub)
					r.cols[i].id = nid
					return nil
				}
			}
		}
	}
	r.n = b.md.extend(r.n, []int{nid}, []*expr.Expr{e})
	r.cols[i].id = nid
	return nil
}

func (n *node) onTop(id int) bool {
	for _, c := range n.cols {
		if c == id {
			return true
		}
	}
	return false
}

// retypeMade converts the untyped constants that make column id, wherever below n they are.
func (b *binder) retypeMade(n *node, id int, t types.Type, ctx functions.CastContext) (bool, error) {
	switch n.op {
	case opProject:
		for i, c := range n.cols {
			if c != id {
				continue
			}
			if e := n.exprs[i]; e.Kind != expr.Column || e.Col != id {
				if e.Kind == expr.Column {
					return false, nil
				}
				x, err := b.cast(e, t, ctx)
				if err != nil {
					return false, err
				}
				n.exprs[i] = x
				b.md.cols[id].typ = t
				return true, nil
			}
		}
		return b.retypeMade(n.in[0], id, t, ctx)
	case opValues:
		for i, c := range n.cols {
			if c != id {
				continue
			}
			for _, r := range n.rows {
				x, err := b.cast(r[i], t, ctx)
				if err != nil {
					return false, err
				}
				r[i] = x
			}
			b.md.cols[id].typ = t
			return true, nil
		}
	case opFilter, opTopN, opUnnest, opOver, opWatermark, opWindow, opSession:
		return b.retypeMade(n.in[0], id, t, ctx)
	}
	return false, nil
}

func dedup(ids []int) []int {
	seen := map[int]bool{}
	var out []int
	for _, id := range ids {
		if !seen[id] {
			seen[id] = true
			out = append(out, id)
		}
	}
	return out
}

func colIDs(cs []outCol) []int {
	out := make([]int, len(cs))
	for i, c := range cs {
		out[i] = c.id
	}
	return out
}

func (b *binder) sortKey(k pgext.SortKey, id int) (sortKey, error) {
	s := sortKey{col: id, desc: k.Desc, nullsFirst: k.NullsFirst}
	switch k.Using {
	case "", "<":
	case ">":
		s.desc = true
	default:
		return s, pgerr.Newf(pgerr.WrongObjectType, "operator %s is not a valid ordering operator", k.Using).
			WithHint("Ordering operators must be \"<\" or \">\" members of btree operator families.").At(b.pos(k.Pos))
	}
	if t := b.md.typ(id); !orderable(t) {
		return s, pgerr.Newf(pgerr.UndefinedFunction, "could not identify an ordering operator for type %s", b.reg.TypeName(t.OID)).
			WithHint("Use an explicit ordering operator or modify the query.").At(b.pos(k.Pos))
	}
	return s, nil
}

func orderable(t types.Type) bool {
	switch t.OID {
	case types.OIDJSON, types.OIDXid, types.OIDAclItem:
		return false
	}
	if e, ok := t.Elem(); ok {
		return orderable(e)
	}
	return true
}

// attach puts pending subqueries on top of n.
func (b *binder) attach(n *node, as []apply) *node {
	for _, a := range as {
		if a.computed {
			n = b.md.extend(n, a.right.cols, a.right.exprs)
			continue
		}
		n = &node{op: opApply, in: []*node{n, a.right}, jtype: a.jtype, cond: a.cond}
	}
	return n
}

// apply is a subquery of an expression, to be joined to the rows over which the expression is evaluated.
type apply struct {
	right *node
	jtype plan.JoinType
	cond  *expr.Expr
	// computed: right is one row of expressions over these rows, evaluated for each of them.
	computed bool
}

// usedBy reports whether a reads its result from here, directly or through other subqueries' conditions.
func (a apply) usedBy(used map[int]bool) bool {
	if a.jtype == plan.Semi || a.jtype == plan.Anti {
		return true
	}
	for _, c := range a.right.out() {
		if used[c] {
			return true
		}
	}
	return false
}
