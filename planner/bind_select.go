package planner

import (
	"slices"
	"strings"

	"github.com/pingcap/tidb/pkg/parser/ast"

	"github.com/streamdb/streamdb/internal/pgerr"
	"github.com/streamdb/streamdb/planner/plan"
	"github.com/streamdb/streamdb/sql"
	"github.com/streamdb/streamdb/sql/expr"
	"github.com/streamdb/streamdb/sql/pgext"
	"github.com/streamdb/streamdb/types"
)

// targetItem is one output column of a SELECT while it is being bound.
type targetItem struct {
	name string
	e    *expr.Expr
	id   int
	// applies [from, to) of the select context belong to this item.
	from, to int
	ast      ast.ExprNode
}

// selecting is the state of binding one SELECT.
type selecting struct {
	b     *binder
	s     *pgext.Select
	q     *pgext.Query
	ev    *env
	sc    *scope
	n     *node
	x     *exprCtx // select list, ORDER BY
	items []targetItem
	order []exprKey
	// orderItem is the index of the select item an order key is, -1 for none.
	orderItem []int
	having    *exprCtx
	havingE   *expr.Expr
	onKeys    []*expr.Expr
	locked    []lockedKey
}

func (b *binder) selectQuery(q *pgext.Query, ev *env, keepUnknown bool) (*bound, error) {
	s := &selecting{b: b, s: q.Select, q: q, ev: ev}
	var err error
	if s.n, s.sc, err = b.from(q.Select.From, ev); err != nil {
		return nil, err
	}
	if err = s.lockTargets(s.n); err != nil {
		return nil, err
	}
	if q.Select.Where != nil {
		x := &exprCtx{b: b, sc: s.sc, ev: ev, clause: "WHERE", base: s.n}
		cond, err := x.condition(q.Select.Where)
		if err != nil {
			return nil, err
		}
		before, after := cond, (*expr.Expr)(nil)
		if len(x.applies) > 0 {
			// Conditions without subqueries say which rows the subqueries are evaluated for.
			before, after = b.splitOver(cond, s.n)
		}
		s.n = filterNode(b.attach(filterNode(s.n, before), x.applies), after)
	}
	wins := &winCollector{named: map[string]pgext.Window{}, index: map[string]int{}}
	for _, w := range q.Select.Windows {
		if _, dup := wins.named[w.Name]; dup {
			return nil, pgerr.Newf(pgerr.WindowingError, "window \"%s\" is already defined", w.Name).At(b.pos(w.Pos))
		}
		wins.index[w.Name] = len(wins.named)
		wins.named[w.Name] = w
	}
	s.x = &exprCtx{b: b, sc: s.sc, ev: ev, clause: "SELECT", aggs: &aggCollector{}, wins: wins, srfs: &srfCollector{}, base: s.n}
	if err = s.targets(keepUnknown && !q.Select.Distinct && q.Select.DistinctOn == nil); err != nil {
		return nil, err
	}
	if err = s.orderBy(); err != nil {
		return nil, err
	}
	if q.Select.Having != nil {
		s.having = &exprCtx{b: b, sc: s.sc, ev: ev, clause: "HAVING", aggs: s.x.aggs}
		if s.havingE, err = s.having.condition(q.Select.Having); err != nil {
			return nil, err
		}
	}
	if err = s.lockedLevel(); err != nil {
		return nil, err
	}
	if err = s.aggregate(); err != nil {
		return nil, err
	}
	if s.having != nil {
		s.n = filterNode(b.attach(s.n, s.having.applies), s.havingE)
	}
	waiting := &pending{b: b, applies: s.x.applies}
	for _, w := range s.x.wins.items {
		waiting.later = append(waiting.later, w.id)
	}
	s.n = waiting.expand(s.n, s.x.srfs.items, s.windows)
	return s.finish()
}

// targets binds the select list.
func (s *selecting) targets(keepUnknown bool) error {
	b := s.b
	for _, t := range s.s.Targets {
		if t.Star {
			cols, err := s.sc.starCols(t.StarOf, b.pos(t.Pos))
			if err != nil {
				return err
			}
			b.star(s.sc, cols, b.pos(t.Pos))
			for _, c := range cols {
				e := b.md.ref(c.id)
				e.Pos = b.pos(t.Pos)
				s.items = append(s.items, targetItem{name: c.name, e: e})
			}
			continue
		}
		it := targetItem{name: t.Alias, from: len(s.x.applies), ast: t.X}
		if v, ok := pgext.ExprOf(t.X).(*pgext.FieldStar); ok {
			more, err := s.x.expand(v)
			if err != nil {
				return err
			}
			s.items = append(s.items, more...)
			continue
		}
		e, err := s.x.bind(t.X)
		if err != nil {
			return err
		}
		if undetermined := e.Kind == expr.Param && e.Type.OID == types.OIDUnknown; !keepUnknown && !undetermined {
			if e, err = b.known(e); err != nil {
				return err
			}
		}
		it.e, it.to = e, len(s.x.applies)
		if it.name == "" {
			it.name = columnName(t.X)
		}
		s.items = append(s.items, it)
	}
	if keepUnknown {
		return nil
	}
	// The other columns may have told the type of a parameter, which then does not fit one that is a column by itself.
	for i := range s.items {
		e, err := b.known(s.items[i].e)
		if err != nil {
			return err
		}
		s.items[i].e = e
	}
	return nil
}

// columnName is the name of an output column without AS. Since PostgreSQL 15 a bare TRUE or FALSE has none.
func columnName(e ast.ExprNode) string {
	if c, ok := pgext.ExprOf(e).(*pgext.Const); ok && c.Kind == pgext.ConstBool {
		return "?column?"
	}
	return sql.ColumnName(e)
}

// outputColumn finds a select item by its output name; -1 when there is none.
func (s *selecting) outputColumn(name string, pos int, clause string) (int, error) {
	found := -1
	for i, it := range s.items {
		if it.name != name {
			continue
		}
		if found >= 0 && !sameExpr(s.items[found].e, it.e) {
			return -1, pgerr.Newf(pgerr.AmbiguousColumn, "%s \"%s\" is ambiguous", clause, name).At(pos)
		}
		if found < 0 {
			found = i
		}
	}
	return found, nil
}

// sortItem resolves one expression of ORDER BY or DISTINCT ON: an output name, a position or an expression over the input.
func (s *selecting) sortItem(e ast.ExprNode, ordinal int, pos int, clause string) (*expr.Expr, int, error) {
	b := s.b
	position := ordinal // as written
	if ordinal == 0 && e != nil {
		if c, ok := pgext.ExprOf(e).(*pgext.Const); ok {
			if n, _ := pgext.Marker(e); n == pgext.MarkOrdinal || c.Kind == pgext.ConstInt {
				ordinal, position = int(c.Int), int(c.Int)
				if ordinal == 0 {
					ordinal = -1
				}
			} else {
				return nil, 0, pgerr.Newf(pgerr.SyntaxError, "non-integer constant in %s", clause).At(b.pos(c.Pos))
			}
		}
	}
	if ordinal != 0 {
		if ordinal < 1 || ordinal > len(s.items) {
			return nil, 0, pgerr.Newf(pgerr.InvalidColumnReference, "%s position %d is not in select list", clause, position).At(pos)
		}
		return s.items[ordinal-1].e, ordinal - 1, nil
	}
	if c, ok := pgext.ExprOf(e).(*pgext.Column); ok && len(c.Names) == 1 {
		i, err := s.outputColumn(c.Names[0], b.pos(c.Pos), clause)
		if err != nil {
			return nil, 0, err
		}
		if i >= 0 {
			return s.items[i].e, i, nil
		}
	}
	x := s.x
	x.clause = clause
	c, err := x.bind(e)
	if err == nil {
		c, err = b.known(c)
	}
	if err != nil {
		return nil, 0, err
	}
	for i, it := range s.items {
		if sameExpr(it.e, c) {
			return it.e, i, nil
		}
	}
	return c, -1, nil
}

func (s *selecting) orderBy() error {
	b := s.b
	for _, k := range s.q.OrderBy {
		e, item, err := s.sortItem(k.X, k.Ordinal, b.pos(k.Pos), "ORDER BY")
		if err != nil {
			return err
		}
		if s.s.Distinct && item < 0 {
			return pgerr.Newf(pgerr.InvalidColumnReference, "for SELECT DISTINCT, ORDER BY expressions must appear in select list").At(e.Pos)
		}
		if item >= 0 && e.Type.OID == types.OIDUnknown {
			if e, err = b.known(e); err != nil {
				return err
			}
			s.items[item].e = e
		}
		probe := b.md.add("?sort?", e.Type)
		sk, err := b.sortKey(k, probe)
		if err != nil {
			return err
		}
		s.order = append(s.order, exprKey{e: e, desc: sk.desc, nullsFirst: sk.nullsFirst})
		s.orderItem = append(s.orderItem, item)
	}
	for _, d := range s.s.DistinctOn {
		at := b.pos(d.OriginTextPosition())
		e, _, err := s.sortItem(d, 0, at, "SELECT DISTINCT ON")
		if err != nil {
			return err
		}
		if e.Pos != at {
			c := *e
			c.Pos = at
			e = &c
		}
		s.onKeys = append(s.onKeys, e)
	}
	return nil
}

// windows stacks the window functions on in, one node per partitioning and order.
func (s *selecting) windows(in *node) *node {
	b := s.b
	for done := make([]bool, len(s.x.wins.items)); ; {
		var first *winItem
		n := &node{op: opOver}
		pre := &preparer{b: b, in: in}
		for i := range s.x.wins.items {
			w := &s.x.wins.items[i]
			if done[i] || first != nil && !sameWindow(first, w) {
				continue
			}
			done[i] = true
			if first == nil {
				first = w
				n.partition = pre.cols(w.partition)
				n.order = pre.keys(w.order)
			}
			c := overCall{id: w.id, fn: w.fn, args: pre.cols(b.guarded(w.args, w.filter)), frame: w.frame, typ: w.typ, number: w.number(b), ignoreNulls: w.ignoreNulls}
			if w.filter != nil {
				c.filter = pre.col(w.filter)
			}
			n.over = append(n.over, c)
		}
		if first == nil {
			return in
		}
		n.in = []*node{pre.node()}
		in = n
	}
}

// number returns the constant that says how far lag and lead look, which value nth_value takes or how many groups ntile makes; nil: it is no constant.
func (w *winItem) number(b *binder) *int64 {
	at := 0
	switch name, _, _ := strings.Cut(w.fn, "("); name {
	case "lag", "lead", "nth_value":
		at = 1
	case "ntile":
	default:
		return nil
	}
	if at >= len(w.args) {
		return nil
	}
	if e := b.fold(w.args[at]); e.Kind == expr.Const && !e.Const.Null {
		return &e.Const.Int
	}
	return nil
}

func sameWindow(a, c *winItem) bool {
	if len(a.partition) != len(c.partition) || len(a.order) != len(c.order) {
		return false
	}
	for i := range a.partition {
		if !sameExpr(a.partition[i], c.partition[i]) {
			return false
		}
	}
	for i := range a.order {
		if a.order[i].desc != c.order[i].desc || a.order[i].nullsFirst != c.order[i].nullsFirst || !sameExpr(a.order[i].e, c.order[i].e) {
			return false
		}
	}
	return true
}

// pending holds the subqueries of a select list that are not attached yet: those of functions may read windows and sets.
type pending struct {
	b       *binder
	applies []apply
	later   []int // columns that are not made yet
}

// attach puts on n the subqueries that need nothing made later.
func (p *pending) attach(n *node) *node {
	missing := toSet(p.later)
	var kept []apply
	for _, a := range p.applies {
		wait := false
		if len(missing) > 0 {
			used := freeCols(a.right)
			if a.cond != nil {
				a.cond.Columns(used)
			}
			for c := range used {
				wait = wait || missing[c]
			}
		}
		if !wait {
			n = p.b.attach(n, []apply{a})
			continue
		}
		kept = append(kept, a)
		for _, c := range a.right.out() {
			missing[c] = true
		}
	}
	p.applies = kept
	return n
}

// expand adds the windows, the sets and the subqueries in between.
func (p *pending) expand(n *node, items []srfItem, windows func(*node) *node) *node {
	deepest := -1
	for _, it := range items {
		p.later = append(p.later, it.ids...)
		deepest = max(deepest, it.depth)
	}
	n = windows(p.attach(n))
	for d := 0; d <= deepest; d++ {
		p.later = nil
		var now []srfItem
		for _, it := range items {
			if it.depth == d {
				now = append(now, it)
			}
			if it.depth >= d {
				p.later = append(p.later, it.ids...)
			}
		}
		n = p.b.runSets(p.attach(n), now)
	}
	p.later = nil
	return p.attach(n)
}

// expandSets adds set-returning calls to n, innermost first; calls of one depth run side by side.
func (b *binder) expandSets(n *node, items []srfItem) *node {
	return (&pending{b: b}).expand(n, items, func(n *node) *node { return n })
}

func (b *binder) runSets(n *node, items []srfItem) *node {
	if len(items) == 0 {
		return n
	}
	if it := items[0]; len(items) == 1 && it.tree != nil {
		return &node{op: opApply, in: []*node{b.md.extend(n, it.params, it.call.Args), it.tree}, jtype: plan.Inner}
	}
	un := &node{op: opUnnest, ordinal: b.md.add("?ordinal?", types.Int8)}
	for i := range items {
		it := &items[i]
		call := it.call
		if it.tree != nil {
			n, call = b.gather(n, it)
		}
		un.calls = append(un.calls, call)
		un.added = append(un.added, it.ids...)
	}
	un.in = []*node{n}
	return un
}

// usedBy takes the calls out of the collector that grouping expressions read, with those inside their arguments: they run below the aggregation.
func (c *srfCollector) usedBy(keys []groupKey) []srfItem {
	used := map[int]bool{}
	for _, k := range keys {
		k.e.Columns(used)
	}
	var taken, left []srfItem
	for i := len(c.items) - 1; i >= 0; i-- {
		it := c.items[i]
		if slices.ContainsFunc(it.ids, func(id int) bool { return used[id] }) {
			it.call.Columns(used)
			taken = append(taken, it)
		} else {
			left = append(left, it)
		}
	}
	slices.Reverse(taken)
	slices.Reverse(left)
	c.items = left
	return taken
}

// finish adds the projection, DISTINCT, ORDER BY and LIMIT.
func (s *selecting) finish() (*bound, error) {
	b := s.b
	r := &bound{}
	p := &node{op: opProject, in: []*node{s.n}}
	own := toSet(s.n.out())
	idOf := func(name string, e *expr.Expr) int {
		for i, x := range p.exprs {
			if sameExpr(x, e) && !b.volatileExpr(e) {
				return p.cols[i]
			}
		}
		id := 0
		if e.Kind == expr.Column && own[e.Col] {
			id = e.Col
		} else {
			// A column of a surrounding query is a value here like any other: outer joins may pad it.
			id = b.md.add(name, e.Type)
			b.keepShape(id, e)
		}
		p.cols, p.exprs = append(p.cols, id), append(p.exprs, e)
		return id
	}
	for i := range s.items {
		it := &s.items[i]
		if it.e.Kind == expr.Const && it.e.Type.OID == types.OIDUnknown {
			// Each untyped constant gets the type that its place asks for.
			it.id = b.md.add(it.name, it.e.Type)
			p.cols, p.exprs = append(p.cols, it.id), append(p.exprs, it.e)
		} else {
			it.id = idOf(it.name, it.e)
		}
		r.cols = append(r.cols, outCol{it.name, it.id})
	}
	visible := len(p.cols)
	var keys []sortKey
	for _, k := range s.order {
		keys = append(keys, sortKey{idOf("?sort?", k.e), k.desc, k.nullsFirst})
	}
	var on []int
	for _, e := range s.onKeys {
		on = append(on, idOf("?distinct?", e))
	}
	for _, l := range s.locked {
		out := lockedKey{rel: l.rel, strength: l.strength}
		for _, k := range l.key {
			out.key = append(out.key, idOf("?lock?", b.md.ref(k)))
		}
		r.locks = append(r.locks, out)
	}
	r.n = p
	switch {
	case s.s.Distinct:
		for _, c := range p.cols[:visible] {
			if t := b.md.typ(c); !orderable(t) {
				return nil, pgerr.Newf(pgerr.UndefinedFunction, "could not identify an equality operator for type %s", b.reg.TypeName(t.OID))
			}
		}
		r.n = &node{op: opAgg, in: []*node{p}, group: append([]int(nil), p.cols[:visible]...)}
	case len(on) > 0:
		rest := keys
		want := toSet(on)
		for i, k := range keys {
			if !want[k.col] {
				if i < len(want) {
					return nil, pgerr.Newf(pgerr.InvalidColumnReference, "SELECT DISTINCT ON expressions must match initial ORDER BY expressions").At(s.onKeys[0].Pos)
				}
				break
			}
			rest = keys[i+1:]
		}
		r.n = &node{op: opTopN, in: []*node{p}, group: dedup(on), order: append([]sortKey(nil), rest...), limit: intConst(types.Int8, 1)}
	}
	if err := b.limit(s.q, r, keys, s.sc, s.ev); err != nil {
		return nil, err
	}
	return r, nil
}

// preparer collects expressions that must be columns of a node's input.
type preparer struct {
	b     *binder
	in    *node
	ids   []int
	exprs []*expr.Expr
}

func (p *preparer) col(e *expr.Expr) int {
	if e.Kind == expr.Column && (p.in == nil || toSet(p.in.out())[e.Col]) {
		return e.Col
	}
	for i, x := range p.exprs {
		if sameExpr(x, e) && !p.b.volatileExpr(e) {
			return p.ids[i]
		}
	}
	id := p.b.md.add(argName, e.Type)
	p.b.keepShape(id, e)
	p.ids, p.exprs = append(p.ids, id), append(p.exprs, e)
	return id
}

func (p *preparer) cols(es []*expr.Expr) []int {
	var out []int
	for _, e := range es {
		out = append(out, p.col(e))
	}
	return out
}

func (p *preparer) keys(ks []exprKey) []sortKey {
	var out []sortKey
	for _, k := range ks {
		out = append(out, sortKey{p.col(k.e), k.desc, k.nullsFirst})
	}
	return out
}

func (p *preparer) node() *node { return p.b.md.extend(p.in, p.ids, p.exprs) }

// splitOver splits a condition into the parts that need nothing but n's columns and the rest.
func (b *binder) splitOver(cond *expr.Expr, n *node) (over, rest *expr.Expr) {
	own := toSet(n.out())
	var in, others []*expr.Expr
	for _, c := range conjuncts(cond) {
		if _, all := refs(c, own); all && !b.volatileExpr(c) {
			in = append(in, c)
		} else {
			others = append(others, c)
		}
	}
	return and(in...), and(others...)
}

// guarded returns the arguments of an aggregate with a FILTER: what may fail is evaluated for the rows that it takes.
func (b *binder) guarded(args []*expr.Expr, filter *expr.Expr) []*expr.Expr {
	if filter == nil {
		return args
	}
	out := slices.Clone(args)
	for i, a := range out {
		if mayFail(a) && !b.volatileExpr(filter) {
			out[i] = &expr.Expr{Kind: expr.Case, Type: a.Type, Args: []*expr.Expr{filter, a}, Pos: a.Pos}
		}
	}
	return out
}
