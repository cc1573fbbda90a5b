package planner

import (
	"github.com/streamdb/streamdb/internal/pgerr"
	"github.com/streamdb/streamdb/planner/plan"
	"github.com/streamdb/streamdb/sql/expr"
	"github.com/streamdb/streamdb/sql/functions"
	"github.com/streamdb/streamdb/sql/pgext"
	"github.com/streamdb/streamdb/types"
)

// from binds a FROM list. Without items it is one row.
func (b *binder) from(items []pgext.FromItem, ev *env) (*node, *scope, error) {
	sc := &scope{parent: ev.outer}
	if len(items) == 0 {
		return b.md.dual(), sc, nil
	}
	var n *node
	for _, it := range items {
		r, rs, err := b.fromItem(it, sc, ev)
		if err != nil {
			return nil, nil, err
		}
		if n == nil {
			n = r
		} else {
			n = &node{op: opApply, in: []*node{n, r}, jtype: plan.Inner}
		}
		if err = sc.add(rs); err != nil {
			return nil, nil, err
		}
	}
	return n, sc, nil
}

// fromItem binds one item. lat holds what LATERAL may see: the items to the left.
func (b *binder) fromItem(it pgext.FromItem, lat *scope, ev *env) (*node, *scope, error) {
	switch t := it.(type) {
	case *pgext.Relation:
		return b.relation(t, ev)
	case *pgext.Derived:
		return b.derived(t, lat, ev)
	case *pgext.TableFunction:
		return b.tableFunction(t, lat, ev)
	case *pgext.Join:
		return b.join(t, lat, ev)
	}
	return nil, nil, pgerr.Newf(pgerr.InternalError, "unexpected FROM item %T", it)
}

// tableScope makes the scope of a single item, applying an alias's column list.
func (b *binder) tableScope(t *rangeTable, columns []string, pos int) (*scope, error) {
	if len(columns) > len(t.cols) {
		return nil, pgerr.Newf(pgerr.InvalidColumnReference, "table \"%s\" has %d columns available but %d columns specified", t.name, len(t.cols), len(columns)).At(pos)
	}
	for i, c := range columns {
		t.cols[i].name = c
	}
	b.md.label(t)
	return &scope{tables: []*rangeTable{t}, visible: t.cols}, nil
}

func (b *binder) relation(r *pgext.Relation, ev *env) (*node, *scope, error) {
	pos := b.pos(r.Pos)
	if r.SystemTime != nil {
		return nil, nil, pgerr.Newf(pgerr.FeatureNotSupported, "FOR SYSTEM_TIME AS OF is supported on the right side of JOIN and LEFT JOIN only").
			WithHint("Write s JOIN relation FOR SYSTEM_TIME AS OF PROCTIME() AS d ON s.key = d.key.").At(b.pos(r.SystemTime.OriginTextPosition()))
	}
	if r.Schema == "" {
		if c := ev.lookup(r.Name); c != nil {
			if r.Sample != nil {
				return nil, nil, pgerr.Newf(pgerr.SyntaxError, "TABLESAMPLE clause can only be applied to tables and materialized views").At(pos)
			}
			return b.cteRef(c, r, pos)
		}
	}
	rel, ok := b.lookup(r.Schema, r.Name)
	if !ok {
		return nil, nil, b.noRelation(r.Schema, r.Name, pos)
	}
	n, sc, err := b.scan(rel, r.Alias, r.Columns, pos)
	if err == nil && r.Sample != nil {
		n, err = b.sample(r.Sample, n, sc, pos)
	}
	return n, sc, err
}

// lookup finds a relation along the search path of the query being bound (a view has its own).
func (b *binder) lookup(schema, name string) (*Relation, bool) {
	if schema != "" || len(b.path) == 0 {
		return b.o.Catalog.Relation(schema, name)
	}
	for _, s := range b.path {
		if r, ok := b.o.Catalog.Relation(s, name); ok {
			return r, true
		}
	}
	// pg_catalog and temporary schemas are searched without being listed.
	return b.o.Catalog.Relation("", name)
}

func (b *binder) noRelation(schema, name string, pos int) error {
	if schema != "" {
		if !b.o.Catalog.SchemaExists(schema) {
			return pgerr.Newf(pgerr.UndefinedTable, "relation \"%s.%s\" does not exist", schema, name).At(pos)
		}
		name = schema + "." + name
	}
	return pgerr.Newf(pgerr.UndefinedTable, "relation \"%s\" does not exist", name).At(pos)
}

// materializedIn returns a materialized view that a query reads, nil when there is none.
func materializedIn(n *node) (v *Relation) {
	n.walk(func(m *node) {
		if m.op == opScan && m.rel != nil && m.rel.Kind == MaterializedView {
			v = m.rel
		}
	})
	return v
}

func (b *binder) depend(id uint64) {
	if b.direct != 0 && len(b.frames) > max(b.direct, 0) {
		return
	}
	for _, d := range b.deps {
		if d == id {
			return
		}
	}
	b.deps = append(b.deps, id)
}

// scan reads a relation; views are expanded.
func (b *binder) scan(rel *Relation, alias string, columns []string, pos int) (*node, *scope, error) {
	b.depend(rel.ID)
	if rel.Kind == Index {
		return nil, nil, pgerr.Newf(pgerr.WrongObjectType, "\"%s\" is an index", rel.Name).At(pos)
	}
	t := &rangeTable{schema: rel.Schema, name: rel.Name}
	if alias != "" {
		t.schema, t.name = "", alias
	}
	use := b.md.access.use(rel)
	b.md.access.list[use].Select = true
	if rel.Kind == View {
		r, err := b.view(rel)
		if err != nil {
			return nil, nil, err
		}
		for i, c := range r.cols {
			name := c.name
			if i < len(rel.Columns) {
				name = rel.Columns[i].Name
			}
			b.md.cols[c.id].origin = Origin{rel.OID, int16(i + 1)} // clients see the view, not what it reads
			t.cols = append(t.cols, scopeCol{name, c.id})
			b.md.access.column(use, c.id, i)
		}
		t.rel = rel
		sc, err := b.tableScope(t, columns, pos)
		return r.n, sc, err
	}
	if b.stream && rel.Kind == System {
		return nil, nil, pgerr.Newf(pgerr.FeatureNotSupported, "system relation \"%s\" cannot be used in a materialized view", rel.Name).
			WithHint("It has no change log; query it directly.").At(pos)
	}
	n := &node{op: opScan, rel: rel}
	if rel.Kind == Source {
		n.op = opSource
	}
	for i, c := range rel.Columns {
		id := b.md.add(c.Name, c.Type)
		b.md.cols[id].notNull = c.NotNull || c.Name == rowIDName
		if c.Attr > 0 {
			b.md.cols[id].origin = Origin{rel.OID, c.Attr}
		}
		b.scanned[id] = true
		n.cols = append(n.cols, id)
		n.stored = append(n.stored, i)
		if rel.Kind == Source && c.Generated != nil { // AS PROCTIME() and nothing else
			t.procTime, n.stored[i] = id, storedProcTime
		}
		b.md.access.column(use, id, i)
		if c.Hidden {
			t.hidden = append(t.hidden, scopeCol{c.Name, id})
		} else {
			t.cols = append(t.cols, scopeCol{c.Name, id})
		}
	}
	if rel.Kind == Source {
		id := b.md.add(rowIDName, types.Int8)
		b.md.cols[id].notNull = true
		b.scanned[id] = true
		n.cols = append(n.cols, id)
		n.stored = append(n.stored, storedRowID)
		t.hidden = append(t.hidden, scopeCol{rowIDName, id})
	}
	if rel.Kind == Source && t.procTime == 0 {
		t.procTime = b.md.add(procTimeName, types.Timestamptz)
		b.md.cols[t.procTime].notNull = true
		n.cols, n.stored = append(n.cols, t.procTime), append(n.stored, storedProcTime)
	}
	t.rel = rel
	if rel.Kind == Table {
		for _, k := range rel.Key {
			t.key = append(t.key, n.cols[k])
		}
		for _, k := range rel.primaryKey() {
			t.primary = append(t.primary, n.cols[k])
		}
	}
	out := n
	if rel.Watermark != nil && b.stream {
		// One-shot plans have no use for watermarks.
		w, err := b.watermark(rel, n, t)
		if err != nil {
			return nil, nil, err
		}
		out = w
	}
	sc, err := b.tableScope(t, columns, pos)
	n.label = t.label
	return out, sc, err
}

// watermark puts the relation's watermark above its scan.
func (b *binder) watermark(rel *Relation, n *node, t *rangeTable) (*node, error) {
	b.inView++
	defer func() { b.inView-- }()
	x := &exprCtx{b: b, sc: &scope{tables: []*rangeTable{{anyName: true, cols: t.cols, hidden: t.hidden}}, visible: t.cols}, ev: &env{}, clause: "WATERMARK"}
	e, err := x.bind(rel.Watermark.Expr.Expr())
	if err != nil {
		return nil, err
	}
	col := n.cols[rel.Watermark.Column]
	if e, err = b.cast(e, b.md.typ(col), functions.Implicit); err != nil {
		return nil, err
	}
	return &node{op: opWatermark, in: []*node{n}, column: col, wmExpr: e}, nil
}

// view binds the text of a view in its own surroundings.
func (b *binder) view(rel *Relation) (*bound, error) {
	path := b.path
	outer := b.md.access.view
	b.path, b.md.access.view = rel.SearchPath, rel.ID
	b.inView++
	defer func() { b.path, b.md.access.view = path, outer; b.inView-- }()
	r, err := b.query(pgext.QueryOf(rel.Query.Stmt), &env{}, false)
	if err != nil {
		return nil, err
	}
	// The declared types of the view's columns hold, whatever the relations below became.
	for i := range r.cols {
		if i < len(rel.Columns) && rel.Columns[i].Type.OID != 0 && b.md.typ(r.cols[i].id) != rel.Columns[i].Type {
			if err = b.coerceOutput(r, i, rel.Columns[i].Type, functions.Assignment); err != nil {
				return nil, err
			}
		}
	}
	return r, nil
}

func (b *binder) cteRef(c *cte, r *pgext.Relation, pos int) (*node, *scope, error) {
	var q *bound
	var err error
	switch {
	case c.work != 0:
		q = b.working(c)
	case c.active:
		return nil, nil, pgerr.Newf(pgerr.InternalError, "WITH query \"%s\" refers to itself unnoticed", c.name)
	case c.rel != nil:
		q, err = b.returned(c, pos)
	default:
		q, err = b.cteQuery(c)
	}
	if err != nil {
		return nil, nil, err
	}
	t := &rangeTable{name: r.Name, work: c.work != 0, cte: true}
	if r.Alias != "" {
		t.name = r.Alias
	}
	if len(c.columns) > len(q.cols) {
		return nil, nil, c.tooManyNames(b, len(q.cols))
	}
	n := b.aliased(q, t)
	for i, name := range c.columns {
		t.cols[i].name = name
	}
	if shown := len(t.cols) - c.extra; t.work && c.extra > 0 {
		t.cols, t.hidden = t.cols[:shown:shown], t.cols[shown:]
	}
	sc, err := b.tableScope(t, r.Columns, pos)
	return n, sc, err
}

// aliased fills t with q's columns.
func (b *binder) aliased(q *bound, t *rangeTable) *node {
	for _, c := range q.cols {
		t.cols = append(t.cols, scopeCol(c))
	}
	return q.n
}

func (b *binder) derived(d *pgext.Derived, lat *scope, ev *env) (*node, *scope, error) {
	pos := b.pos(d.Pos)
	if d.Alias == "" {
		what := "subquery in FROM must have an alias"
		hint := "For example, FROM (SELECT ...) [AS] foo."
		if pgext.QueryOf(d.Query).Values != nil {
			what, hint = "VALUES in FROM must have an alias", "For example, FROM (VALUES ...) [AS] foo."
		}
		return nil, nil, pgerr.Newf(pgerr.SyntaxError, "%s", what).WithHint("%s", hint).At(pos)
	}
	outer := ev.outer
	if d.Lateral {
		outer = lat
	} else if len(lat.tables) > 0 {
		// The items to the left exist but cannot be seen: say so instead of calling them missing.
		outer = &scope{parent: ev.outer, blocked: lat.tables}
	}
	q, err := b.query(pgext.QueryOf(d.Query), ev.with(outer), false)
	if err != nil {
		return nil, nil, err
	}
	t := &rangeTable{name: d.Alias}
	n := b.aliased(q, t)
	sc, err := b.tableScope(t, d.Columns, pos)
	return n, sc, err
}

func (b *binder) join(j *pgext.Join, lat *scope, ev *env) (*node, *scope, error) {
	pos := b.pos(j.Pos)
	l, ls, err := b.fromItem(j.Left, lat, ev)
	if err != nil {
		return nil, nil, err
	}
	right := j.Right
	temporal, err := b.temporal(j, ev)
	if err != nil {
		return nil, nil, err
	}
	if temporal != nil {
		right = temporal
	}
	inner := &scope{parent: ev.outer, tables: append(append([]*rangeTable(nil), lat.tables...), ls.tables...), visible: append(append([]scopeCol(nil), lat.visible...), ls.visible...)}
	r, rs, err := b.fromItem(right, inner, ev)
	if err != nil {
		return nil, nil, err
	}
	jt := [...]plan.JoinType{plan.Inner, plan.Left, plan.Right, plan.Full, plan.Inner}[j.Kind]
	if jt == plan.Right || jt == plan.Full {
		free := freeCols(r)
		for _, t := range ls.tables {
			for _, c := range t.cols {
				if free[c.id] {
					return nil, nil, pgerr.Newf(pgerr.InvalidColumnReference, "invalid reference to FROM-clause entry for table \"%s\"", t.name).
						WithDetail("The combining JOIN type must be INNER or LEFT for a LATERAL reference.").At(useOf(r, c.id, pos))
				}
			}
		}
	}
	if jt == plan.Left || jt == plan.Full {
		r = b.markRows(r, rs)
	}
	if jt == plan.Right || jt == plan.Full {
		l = b.markRows(l, ls)
	}
	sc := &scope{parent: ev.outer}
	if err = sc.add(ls); err != nil {
		return nil, nil, err
	}
	if err = sc.add(rs); err != nil {
		return nil, nil, err
	}
	n := &node{op: opApply, in: []*node{l, r}, jtype: jt}
	switch {
	case j.Natural || len(j.Using) > 0:
		if n, err = b.using(j, n, ls, rs, sc, pos); err != nil {
			return nil, nil, err
		}
	case j.On != nil:
		x := &exprCtx{b: b, sc: sc, ev: ev, clause: "JOIN/ON"}
		if j.Asof {
			n, err = x.asof(n, j, pos)
		} else {
			n, err = x.on(n, j.On, pos)
		}
		if err != nil {
			return nil, nil, err
		}
	}
	if temporal != nil {
		if err = b.temporalJoin(n, j.Right.(*pgext.Relation)); err != nil {
			return nil, nil, err
		}
	}
	sc.parent = nil
	for _, t := range rs.tables {
		t.nullable = t.nullable || jt == plan.Left || jt == plan.Full
	}
	for _, t := range ls.tables {
		t.nullable = t.nullable || jt == plan.Right || jt == plan.Full
	}
	if j.Alias != "" {
		t := &rangeTable{name: j.Alias, cols: append([]scopeCol(nil), sc.visible...)}
		aliased, err := b.tableScope(t, j.Columns, pos)
		return n, aliased, err
	}
	return n, sc, nil
}

// using joins on equal names: each pair becomes one visible column, the originals stay reachable by qualified names.
func (b *binder) using(j *pgext.Join, n *node, ls, rs, sc *scope, pos int) (*node, error) {
	names := j.Using
	if j.Natural {
		names = nil
		for _, c := range ls.visible {
			for _, d := range rs.visible {
				if c.name == d.name {
					names = append(names, c.name)
					break
				}
			}
		}
		b.natural = append(b.natural, names)
	}
	var conds []*expr.Expr
	var merged []scopeCol
	var mids []int
	var mexprs []*expr.Expr
	gone := map[int]bool{}
	seen := map[string]bool{}
	for _, name := range names {
		if seen[name] {
			return nil, pgerr.Newf(pgerr.DuplicateColumn, "column name \"%s\" appears more than once in USING clause", name)
		}
		seen[name] = true
		lid, err := usingCol(ls, name, "left")
		if err != nil {
			return nil, err
		}
		rid, err := usingCol(rs, name, "right")
		if err != nil {
			return nil, err
		}
		eq, err := b.operatorOn("=", []*expr.Expr{b.md.ref(lid), b.md.ref(rid)}, pos)
		if err != nil {
			return nil, err
		}
		conds = append(conds, eq)
		gone[lid], gone[rid] = true, true
		pair := []*expr.Expr{b.md.ref(lid), b.md.ref(rid)}
		t, err := b.unify("JOIN/USING", pair)
		if err != nil {
			return nil, err
		}
		var e *expr.Expr
		switch n.jtype {
		case plan.Right:
			e = pair[1]
		case plan.Full:
			e = coalesce(pair...)
		default:
			e = pair[0]
		}
		id := 0
		if e.Kind == expr.Column {
			id = e.Col
		} else {
			id = b.md.add(name, t)
			mids, mexprs = append(mids, id), append(mexprs, e)
		}
		merged = append(merged, scopeCol{name, id})
	}
	n.cond = and(conds...)
	for _, c := range append(append([]scopeCol(nil), ls.visible...), rs.visible...) {
		// A column is hidden by its place among the inputs' visible columns, not only by id: t JOIN t shares none.
		if !gone[c.id] {
			merged = append(merged, c)
		}
	}
	sc.visible = merged
	if j.UsingAlias != "" {
		sc.tables = append(sc.tables, &rangeTable{name: j.UsingAlias, cols: append([]scopeCol(nil), merged[:len(names)]...)})
	}
	if len(mids) > 0 {
		return b.md.extend(n, mids, mexprs), nil
	}
	return n, nil
}

func usingCol(s *scope, name, side string) (int, error) {
	id, n := 0, 0
	for _, c := range s.visible {
		if c.name == name {
			id = c.id
			n++
		}
	}
	if n == 0 {
		return 0, pgerr.Newf(pgerr.UndefinedColumn, "column \"%s\" specified in USING clause does not exist in %s table", name, side)
	}
	if n > 1 {
		return 0, pgerr.Newf(pgerr.AmbiguousColumn, "common column name \"%s\" appears more than once in %s table", name, side)
	}
	return id, nil
}

// useOf returns the position of a reference to a column in the expressions of a tree, pos when they have none.
func useOf(n *node, col, pos int) int {
	found := -1
	n.walk(func(x *node) {
		x.eachExpr(func(e *expr.Expr) *expr.Expr {
			e.Walk(func(u *expr.Expr) bool {
				if u.Kind == expr.Column && u.Col == col && found < 0 {
					found = u.Pos
				}
				return true
			})
			return e
		})
	})
	if found < 0 {
		return pos
	}
	return found
}
