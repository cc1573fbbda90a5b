package planner

import (
	"github.com/streamdb/streamdb/internal/pgerr"
	"github.com/streamdb/streamdb/sql/expr"
	"github.com/streamdb/streamdb/sql/pgext"
	"github.com/streamdb/streamdb/types"
)

// groupKey is a grouping expression and the column that holds it above the aggregation.
type groupKey struct {
	e  *expr.Expr
	id int
}

// maxGroupingSets is PostgreSQL's limit on the grouping sets of a query.
const maxGroupingSets = 4096

// aggregate builds the aggregation of the query level, if there is one, and rewrites what is evaluated above it.
func (s *selecting) aggregate() error {
	b, aggs := s.b, s.x.aggs
	if len(aggs.items) == 0 && len(aggs.groupings) == 0 && len(s.s.GroupBy) == 0 && s.s.Having == nil {
		return nil
	}
	g := &exprCtx{b: b, sc: s.sc, ev: s.ev, clause: "GROUP BY", srfs: &srfCollector{}}
	var keys []groupKey
	var moved []apply
	sets := [][]int{{}}
	for _, it := range s.s.GroupBy {
		more, err := s.groupSets(it, g, &keys, &moved)
		if err != nil {
			return err
		}
		var product [][]int
		for _, a := range sets {
			for _, c := range more {
				product = append(product, dedup(append(append([]int(nil), a...), c...)))
			}
		}
		if sets = product; len(sets) > maxGroupingSets {
			return pgerr.Newf(pgerr.StatementTooComplex, "too many grouping sets present (maximum %d)", maxGroupingSets)
		}
	}
	if s.s.GroupDistinct {
		sets = distinctSets(sets)
	}
	for i := range keys {
		if !orderable(keys[i].e.Type) {
			return pgerr.Newf(pgerr.UndefinedFunction, "could not identify an equality operator for type %s", b.reg.TypeName(keys[i].e.Type.OID)).At(keys[i].e.Pos)
		}
	}
	input := toSet(s.n.out())
	below := b.attach(b.attach(b.attach(s.n, moved), g.applies), aggs.applies)
	pre := &preparer{b: b, in: b.expandSets(below, append(g.srfs.items, s.x.srfs.usedBy(keys)...))}
	for i := range keys {
		keys[i].id = pre.col(keys[i].e)
	}
	n := &node{op: opAgg, global: len(sets) == 1 && len(sets[0]) == 0}
	for _, it := range aggs.items {
		c := aggCall{id: it.id, fn: it.fn, args: pre.cols(b.guarded(it.args, it.filter)), distinct: it.distinct, order: pre.keys(it.order), typ: it.typ, direct: it.direct}
		if it.filter != nil {
			c.filter = pre.col(it.filter)
		}
		n.aggs = append(n.aggs, c)
	}
	n.in = []*node{pre.node()}
	for _, k := range keys {
		n.group = append(n.group, k.id)
	}
	n.group = dedup(n.group)
	if b.o.EmitOnClose {
		// A window is closed by its end, so that has to be part of the group.
		for _, c := range n.group {
			if w := b.md.cols[c].window; w != 0 && input[w] {
				n.group = dedup(append(n.group, w))
			}
		}
	}
	above := &regroup{s: s, keys: keys, input: input, agg: n}
	groupings := map[int]*expr.Expr{}
	if len(sets) == 1 && len(sets[0]) == len(keys) {
		s.n = n
		for _, gr := range aggs.groupings {
			groupings[gr.id] = intConst(types.Int4, 0)
			if err := s.checkGrouping(gr, keys); err != nil {
				return err
			}
		}
	} else {
		var err error
		if groupings, err = s.groupingSets(n, keys, sets, above); err != nil {
			return err
		}
	}
	above.groupings = groupings
	if err := above.all(); err != nil {
		return err
	}
	if above.n != nil {
		s.n = above.n
	}
	return nil
}

func distinctSets(sets [][]int) [][]int {
	var out [][]int
next:
	for _, a := range sets {
		for _, c := range out {
			if len(a) == len(c) && len(dedup(append(append([]int(nil), a...), c...))) == len(a) {
				continue next
			}
		}
		out = append(out, a)
	}
	return out
}

// groupSets returns the grouping sets of one GROUP BY item, as lists of positions in keys.
func (s *selecting) groupSets(it pgext.GroupItem, g *exprCtx, keys *[]groupKey, moved *[]apply) ([][]int, error) {
	switch it.Kind {
	case pgext.GroupEmpty:
		return [][]int{{}}, nil
	case pgext.GroupExpr:
		set, err := s.groupExpr(it, g, keys, moved)
		return [][]int{set}, err
	case pgext.GroupSets:
		var out [][]int
		for _, m := range it.Items {
			more, err := s.groupSets(m, g, keys, moved)
			if err != nil {
				return nil, err
			}
			out = append(out, more...)
		}
		return out, nil
	}
	parts := make([][]int, len(it.Items))
	for i, m := range it.Items {
		more, err := s.groupSets(m, g, keys, moved)
		if err != nil {
			return nil, err
		}
		parts[i] = more[0]
	}
	var out [][]int
	if it.Kind == pgext.GroupRollup {
		for n := len(parts); n >= 0; n-- {
			var set []int
			for _, p := range parts[:n] {
				set = append(set, p...)
			}
			out = append(out, dedup(set))
		}
		return out, nil
	}
	if len(parts) > 12 {
		return nil, pgerr.Newf(pgerr.TooManyColumns, "CUBE is limited to 12 elements").At(s.b.pos(it.Pos))
	}
	for mask := 1<<len(parts) - 1; mask >= 0; mask-- {
		var set []int
		for i, p := range parts {
			if mask>>(len(parts)-1-i)&1 != 0 {
				set = append(set, p...)
			}
		}
		out = append(out, dedup(set))
	}
	return out, nil
}

// groupPosition returns the item of the select list that a number stands for.
func (s *selecting) groupPosition(n int64, pos int) (int, error) {
	if n < 1 || n > int64(len(s.items)) {
		return 0, pgerr.Newf(pgerr.InvalidColumnReference, "GROUP BY position %d is not in select list", n).At(s.b.pos(pos))
	}
	return int(n - 1), nil
}

// groupExpr binds a grouping expression: a position, an input column, an output name or an expression, in this order.
func (s *selecting) groupExpr(it pgext.GroupItem, g *exprCtx, keys *[]groupKey, moved *[]apply) ([]int, error) {
	b := s.b
	if row, ok := pgext.ExprOf(it.X).(*pgext.Row); ok && it.Ordinal == 0 && !row.Explicit {
		var set []int
		for _, e := range row.Elems {
			more, err := s.groupExpr(pgext.GroupItem{X: e, Pos: it.Pos}, g, keys, moved)
			if err != nil {
				return nil, err
			}
			set = append(set, more...)
		}
		return set, nil
	}
	item := -1
	var e *expr.Expr
	var err error
	if it.Ordinal != 0 {
		if item, err = s.groupPosition(int64(it.Ordinal), it.Pos); err != nil {
			return nil, err
		}
	} else {
		switch v := pgext.ExprOf(it.X).(type) {
		case *pgext.Column:
			if len(v.Names) == 1 {
				if _, n := s.sc.unqualified(v.Names[0]); n == 0 {
					if item, err = s.outputColumn(v.Names[0], b.pos(v.Pos), "GROUP BY"); err != nil {
						return nil, err
					}
				}
			}
		case *pgext.Const: // in ROLLUP, in CUBE and in a list in parentheses
			if v.Kind != pgext.ConstInt || v.Int != int64(int32(v.Int)) {
				return nil, pgerr.Newf(pgerr.SyntaxError, "non-integer constant in GROUP BY").At(b.pos(v.Pos))
			}
			if item, err = s.groupPosition(v.Int, v.Pos); err != nil {
				return nil, err
			}
		}
	}
	if item >= 0 {
		t := &s.items[item]
		if e, err = b.known(t.e); err != nil {
			return nil, err
		}
		t.e = e
		if err = s.noAggregates(e); err != nil {
			return nil, err
		}
		// Subqueries of the item are evaluated below the aggregation.
		*moved = append(*moved, s.x.applies[t.from:t.to]...)
		for i := t.from; i < t.to; i++ {
			s.x.applies[i].right = nil
		}
		t.to = t.from
	} else {
		if e, err = g.bind(it.X); err == nil {
			e, err = b.known(e)
		}
		if err != nil {
			return nil, err
		}
	}
	for i, k := range *keys {
		if sameExpr(k.e, e) {
			return []int{i}, nil
		}
	}
	*keys = append(*keys, groupKey{e: e})
	return []int{len(*keys) - 1}, nil
}

// noAggregates refuses a select item as grouping expression when it is computed above the aggregation.
func (s *selecting) noAggregates(e *expr.Expr) error {
	used := map[int]bool{}
	e.Columns(used)
	for _, a := range s.x.aggs.items {
		if used[a.id] {
			return pgerr.Newf(pgerr.GroupingError, "aggregate functions are not allowed in GROUP BY").At(e.Pos)
		}
	}
	for _, w := range s.x.wins.items {
		if used[w.id] {
			return pgerr.Newf(pgerr.WindowingError, "window functions are not allowed in GROUP BY").At(e.Pos)
		}
	}
	return nil
}

func (s *selecting) checkGrouping(g groupingCall, keys []groupKey) error {
	for _, a := range g.args {
		found := false
		for _, k := range keys {
			found = found || sameExpr(k.e, a)
		}
		if !found {
			return pgerr.Newf(pgerr.GroupingError, "arguments to GROUPING must be grouping expressions of the associated query level").At(a.Pos)
		}
	}
	return nil
}

// groupingSets computes several grouping sets in one aggregation: every input row is repeated per set, with the columns outside
// the set blanked, and the set's number is part of the group. An empty set has its one row also over no input: a marker row that
// no aggregate sees keeps the group alive.
func (s *selecting) groupingSets(n *node, keys []groupKey, sets [][]int, above *regroup) (map[int]*expr.Expr, error) {
	b := s.b
	in := n.in[0]
	series, err := b.call("generate_series", []*expr.Expr{intConst(types.Int4, 1), intConst(types.Int4, int64(len(sets)))}, -1)
	if err != nil {
		return nil, err
	}
	set, real := b.md.add("?set?", types.Int4), b.md.add("?real?", types.Bool)
	un := &node{op: opUnnest, in: []*node{in}, calls: []*expr.Expr{series}, added: []int{set}, ordinal: b.md.add("?ordinal?", types.Int8)}
	member := func(i int) *expr.Expr {
		var args []*expr.Expr
		for k, st := range sets {
			for _, m := range st {
				if m == i {
					args = append(args, b.mustOp("=", b.md.ref(set), intConst(types.Int4, int64(k+1))))
				}
			}
		}
		switch len(args) {
		case 0:
			return boolConst(false)
		case 1:
			return args[0]
		}
		return or(args...)
	}
	// Everything the aggregates read, the grouping columns blanked under new ids.
	p := b.md.narrow(un, in.out())
	p.cols, p.exprs = append(p.cols, set), append(p.exprs, b.md.ref(set))
	blanked := map[int]int{}
	var group []int
	for i := range keys {
		old := keys[i].id
		id, ok := blanked[old]
		if !ok {
			id = b.md.copy(old)
			b.md.cols[id].shape, b.md.cols[id].origin = b.md.cols[old].shape, b.md.cols[old].origin
			blanked[old] = id
			e := &expr.Expr{Kind: expr.Case, Type: b.md.typ(old), Pos: -1, Args: []*expr.Expr{member(i), b.md.ref(old), nullConst(b.md.typ(old))}}
			p.cols, p.exprs = append(p.cols, id), append(p.exprs, e)
			group = append(group, id)
		}
		keys[i].id = id
	}
	p.cols, p.exprs = append(p.cols, real), append(p.exprs, boolConst(true))
	rows := p
	if markers := s.markerRows(p, sets, set, real); len(markers.rows) > 0 {
		ids := make([]int, len(p.cols))
		m := map[int]int{}
		for i, c := range p.cols {
			ids[i] = b.md.copy(c)
			b.md.cols[ids[i]].shape, b.md.cols[ids[i]].origin = b.md.cols[c].shape, b.md.cols[c].origin
			m[c] = ids[i]
		}
		rows = &node{op: opUnion, in: []*node{p, markers}, cols: ids, branches: [][]int{append([]int(nil), p.cols...), append([]int(nil), markers.cols...)}}
		use := func(c int) int { return m[c] }
		n.eachCol(use)
		for i := range keys {
			keys[i].id = m[keys[i].id]
		}
		for i := range group {
			group[i] = m[group[i]]
		}
		set, real = m[set], m[real]
		var fids []int
		var fexprs []*expr.Expr
		for i := range n.aggs {
			a := &n.aggs[i]
			if a.filter == 0 {
				a.filter = real
				continue
			}
			id := b.md.add("?filter?", types.Bool)
			fids, fexprs = append(fids, id), append(fexprs, and(b.md.ref(real), b.md.ref(a.filter)))
			a.filter = id
		}
		rows = b.md.extend(rows, fids, fexprs)
	}
	n.in = []*node{rows}
	n.group = append(group, set)
	n.global = false
	s.n = n
	out := map[int]*expr.Expr{}
	for _, gr := range s.x.aggs.groupings {
		if err := s.checkGrouping(gr, keys); err != nil {
			return nil, err
		}
		e := &expr.Expr{Kind: expr.Case, Type: types.Int4, Pos: gr.pos}
		for k, st := range sets {
			bits := int64(0)
			for _, a := range gr.args {
				bits <<= 1
				inSet := false
				for _, m := range st {
					inSet = inSet || sameExpr(keys[m].e, a)
				}
				if !inSet {
					bits |= 1
				}
			}
			e.Args = append(e.Args, b.mustOp("=", b.md.ref(set), intConst(types.Int4, int64(k+1))), intConst(types.Int4, bits))
		}
		out[gr.id] = e
	}
	return out, nil
}

// markerRows makes one row per empty grouping set.
func (s *selecting) markerRows(p *node, sets [][]int, set, real int) *node {
	v := &node{op: opValues}
	for _, c := range p.cols {
		v.cols = append(v.cols, s.b.md.copy(c))
	}
	for k, st := range sets {
		if len(st) > 0 {
			continue
		}
		var row []*expr.Expr
		for _, c := range p.cols {
			switch c {
			case set:
				row = append(row, intConst(types.Int4, int64(k+1)))
			case real:
				row = append(row, boolConst(false))
			default:
				row = append(row, nullConst(s.b.md.typ(c)))
			}
		}
		v.rows = append(v.rows, row)
	}
	return v
}

// regroup rewrites the expressions above an aggregation: grouping expressions become their columns, any other column of the input
// is an error.
type regroup struct {
	s         *selecting
	keys      []groupKey
	input     map[int]bool
	agg       *node
	groupings map[int]*expr.Expr
	n         *node
}

func (g *regroup) all() error {
	s := g.s
	var err error
	fix := func(p **expr.Expr) {
		if err == nil && *p != nil {
			*p, err = g.expr(*p, false)
		}
	}
	for i := range s.items {
		fix(&s.items[i].e)
	}
	fix(&s.havingE)
	for i := range s.order {
		fix(&s.order[i].e)
	}
	for i := range s.onKeys {
		fix(&s.onKeys[i])
	}
	for i := range s.x.wins.items {
		w := &s.x.wins.items[i]
		for j := range w.args {
			fix(&w.args[j])
		}
		for j := range w.partition {
			fix(&w.partition[j])
		}
		for j := range w.order {
			fix(&w.order[j].e)
		}
		fix(&w.filter)
	}
	for i := range s.x.srfs.items {
		fix(&s.x.srfs.items[i].call)
	}
	if err != nil {
		return err
	}
	if err = g.subqueries(&s.x.applies); err != nil {
		return err
	}
	if s.having != nil {
		return g.subqueries(&s.having.applies)
	}
	return nil
}

// subqueries rewrites what subqueries above the aggregation read from the level, and drops those that moved below it.
func (g *regroup) subqueries(as *[]apply) error {
	var kept []apply
	var err error
	for _, a := range *as {
		if a.right == nil {
			continue
		}
		fix := func(e *expr.Expr) *expr.Expr {
			if err != nil {
				return e
			}
			var r *expr.Expr
			if r, err = g.expr(e, true); err != nil {
				return e
			}
			return r
		}
		a.right.walk(func(n *node) { n.eachExpr(fix) })
		if a.cond != nil {
			a.cond = fix(a.cond)
		}
		if err != nil {
			return err
		}
		kept = append(kept, a)
	}
	*as = kept
	return nil
}

func (g *regroup) expr(e *expr.Expr, inSub bool) (*expr.Expr, error) {
	b := g.s.b
	if e.Kind == expr.Column {
		if r, ok := g.groupings[e.Col]; ok {
			return r, nil
		}
	}
	for _, k := range g.keys {
		if sameExpr(k.e, e) && (e.Kind != expr.Const) {
			c := b.md.ref(k.id)
			c.Pos = e.Pos
			return c, nil
		}
	}
	if e.Kind == expr.Column && g.input[e.Col] {
		if g.dependent(e.Col) {
			return e, nil
		}
		name := g.columnName(e.Col)
		if inSub {
			return nil, pgerr.Newf(pgerr.GroupingError, "subquery uses ungrouped column \"%s\" from outer query", name).At(e.Pos)
		}
		return nil, pgerr.Newf(pgerr.GroupingError, "column \"%s\" must appear in the GROUP BY clause or be used in an aggregate function", name).At(e.Pos)
	}
	if len(e.Args) == 0 {
		return e, nil
	}
	c := *e
	c.Args = make([]*expr.Expr, len(e.Args))
	for i, a := range e.Args {
		x, err := g.expr(a, inSub)
		if err != nil {
			return nil, err
		}
		c.Args[i] = x
	}
	return &c, nil
}

func (g *regroup) columnName(id int) string {
	for _, t := range g.s.sc.tables {
		for _, c := range appendCols(t.cols, t.hidden) {
			if c.id == id {
				return t.name + "." + c.name
			}
		}
	}
	return g.s.b.md.cols[id].name
}

// dependent reports whether id follows from the grouping columns because they contain its table's primary key; it then joins them.
func (g *regroup) dependent(id int) bool {
	for _, c := range g.agg.group {
		if c == id {
			return true
		}
	}
	if len(g.s.s.GroupBy) == 0 || g.groupings == nil {
		return false
	}
	grouped := map[int]bool{}
	for _, k := range g.keys {
		if k.e.Kind == expr.Column && k.id == k.e.Col {
			grouped[k.id] = true
		}
	}
	for _, t := range g.s.sc.tables {
		if len(t.primary) == 0 {
			continue
		}
		all := true
		for _, k := range t.primary {
			all = all && grouped[k]
		}
		if !all {
			continue
		}
		for _, c := range t.cols {
			if c.id == id {
				g.agg.group = append(g.agg.group, id)
				return true
			}
		}
	}
	return false
}
