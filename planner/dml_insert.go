package planner

import (
	"slices"

	"github.com/streamdb/streamdb/internal/pgerr"
	"github.com/streamdb/streamdb/sql"
	"github.com/streamdb/streamdb/sql/expr"
	"github.com/streamdb/streamdb/sql/functions"
	"github.com/streamdb/streamdb/sql/pgext"
	"github.com/streamdb/streamdb/types"
)

// PlanInsert plans the rows of an INSERT.
func PlanInsert(s *sql.Insert, o Options) (p *PlannedChange, err error) {
	defer pgext.Recover(&err)
	return newBinder(o, false).insert(s)
}

func (b *binder) insert(s *sql.Insert) (*PlannedChange, error) {
	if s.Query != nil {
		b.changes = s.Query.Changes
	} else if s.With != nil {
		b.changes = s.With.Changes
	}
	rel, err := b.target(s.Table, "insert into")
	if err != nil {
		return nil, err
	}
	cols, err := insertColumns(rel, s.Columns, s.Targets)
	if err != nil {
		return nil, err
	}
	b.md.access.changed().Inserted = cols
	n, row, ev, err := b.insertRows(s, rel, cols)
	if err != nil {
		return nil, err
	}
	if n, err = b.generateOnce(rel, n, row); err != nil {
		return nil, err
	}
	p := &PlannedChange{Target: rel}
	pr := &node{op: opProject, in: []*node{n}}
	ids := make([]int, len(row))
	out := &bound{n: pr}
	for i, e := range row {
		ids[i] = b.md.add(rel.Columns[i].Name, rel.Columns[i].Type)
		pr.cols, pr.exprs = append(pr.cols, ids[i]), append(pr.exprs, e)
		out.cols = append(out.cols, outCol{rel.Columns[i].Name, ids[i]})
	}
	name := s.Alias
	if name == "" {
		name = rel.Name
	}
	switch {
	case s.OnConflict == nil:
		if p.OnConflict, err = b.tableConflict(rel); err != nil {
			return nil, err
		}
	case rel.AppendOnly && !s.OnConflict.DoNothing:
		return nil, errAppendOnly("update", rel)
	default:
		if p.OnConflict, err = b.onConflict(s.OnConflict, rel, name); err != nil {
			return nil, err
		}
	}
	if s.Returning != nil {
		sc := rowScope(rel, name, ids)
		b.md.access.row(ids)
		if err = b.returning(p, s.Returning, sc, ids, ev, out); err != nil {
			return nil, err
		}
		if p.Extra > 0 && p.OnConflict != nil && !p.OnConflict.DoNothing {
			return nil, pgerr.Newf(pgerr.FeatureNotSupported, "subqueries in RETURNING are not supported with ON CONFLICT DO UPDATE").At(s.Returning.Start)
		}
	}
	return p, b.finishChange(p, out)
}

// insertColumns returns the stored columns that the source's columns go to.
func insertColumns(rel *Relation, named []sql.Ident, parts *sql.Query) ([]int, error) {
	var cols []int
	var targets []pgext.AssignTarget
	if parts != nil {
		targets = pgext.AssignTargets(pgext.QueryOf(parts.Stmt).Select)
	}
	if len(named) == 0 {
		for i, c := range rel.Columns {
			if !c.Hidden {
				cols = append(cols, i)
			}
		}
		return cols, nil
	}
	const part, whole = 1, 2
	seen := map[int]int{}
	for j, n := range named {
		i := rel.column(n.Name)
		if i < 0 {
			return nil, pgerr.Newf(pgerr.UndefinedColumn, "column \"%s\" of relation \"%s\" does not exist", n.Name, rel.Name).At(n.Pos)
		}
		kind := whole
		if targets != nil && targets[j].Part != nil {
			kind = part
		}
		if seen[i] == whole || seen[i] == part && kind == whole {
			return nil, pgerr.Newf(pgerr.DuplicateColumn, "column \"%s\" specified more than once", n.Name).At(n.Pos)
		}
		seen[i] = kind
		cols = append(cols, i)
	}
	return cols, nil
}

func tooMany(s *sql.Insert, given, cols, extraPos int) error {
	if given > cols {
		return pgerr.Newf(pgerr.SyntaxError, "INSERT has more expressions than target columns").At(extraPos)
	}
	if given < cols && len(s.Columns) > 0 {
		return pgerr.Newf(pgerr.SyntaxError, "INSERT has more target columns than expressions").At(s.Columns[given].Pos)
	}
	return nil
}

// insertRows binds the source. row holds an expression over n's columns for every stored column.
func (b *binder) insertRows(s *sql.Insert, rel *Relation, cols []int) (n *node, row []*expr.Expr, ev *env, err error) {
	row = make([]*expr.Expr, len(rel.Columns))
	fill := func() error {
		for i := range row {
			if row[i] != nil {
				continue
			}
			c := &rel.Columns[i]
			if c.Generated != nil || c.Hidden && c.Default == nil {
				row[i] = nullConst(c.Type)
				continue
			}
			if row[i], err = b.defaultOf(c); err != nil {
				return err
			}
		}
		return nil
	}
	if s.Query == nil {
		ev = b.rootEnv()
		if s.With != nil {
			if ev, err = b.with(pgext.QueryOf(s.With.Stmt).With, ev); err != nil {
				return nil, nil, nil, err
			}
		}
		return b.md.dual(), row, ev, fill()
	}
	q := pgext.QueryOf(s.Query.Stmt)
	if q.Values != nil && len(q.OrderBy) == 0 && q.Limit == nil {
		n, ev, err = b.insertValues(s, q, rel, cols, row)
	} else {
		n, ev, err = b.insertSelect(s, q, rel, cols, row)
	}
	if err != nil {
		return nil, nil, nil, err
	}
	return n, row, ev, fill()
}

// insertParts binds the subscripts of the column list: the part of each column that is given, nil for whole ones.
func (b *binder) insertParts(targets *sql.Query, rel *Relation, cols []int, ev *env) ([]*columnPart, error) {
	out := make([]*columnPart, len(cols))
	if targets == nil {
		return out, nil
	}
	x := &exprCtx{b: b, sc: &scope{}, ev: ev, clause: "INSERT"}
	for j, t := range pgext.AssignTargets(pgext.QueryOf(targets.Stmt).Select) {
		if t.Part == nil {
			continue
		}
		p, err := x.columnPart(t, &rel.Columns[cols[j]])
		if err != nil {
			return nil, err
		}
		if len(x.applies) > 0 {
			return nil, pgerr.Newf(pgerr.FeatureNotSupported, "subqueries in the subscripts of INSERT's columns are not supported").At(t.Pos)
		}
		out[j] = p
	}
	return out, nil
}

// insertValues binds VALUES with every expression against its column, DEFAULT included.
func (b *binder) insertValues(s *sql.Insert, q *pgext.Query, rel *Relation, cols []int, row []*expr.Expr) (*node, *env, error) {
	ev, err := b.with(q.With, b.rootEnv())
	if err != nil {
		return nil, nil, err
	}
	x := &exprCtx{b: b, sc: &scope{}, ev: ev, clause: "VALUES"}
	width := len(q.Values.Rows[0])
	parts, err := b.insertParts(s.Targets, rel, cols, ev)
	if err != nil {
		return nil, nil, err
	}
	rows := make([][]*expr.Expr, len(q.Values.Rows))
	for i, r := range q.Values.Rows {
		if len(r) != width {
			return nil, nil, pgerr.Newf(pgerr.SyntaxError, "VALUES lists must all be the same length").At(r[0].OriginTextPosition())
		}
		extra := -1
		if len(r) > len(cols) {
			extra = r[len(cols)].OriginTextPosition()
		}
		if err := tooMany(s, len(r), len(cols), extra); err != nil {
			return nil, nil, err
		}
		x.given = nil
		for j, v := range r {
			c := &rel.Columns[cols[j]]
			e, err := b.given(x, v, c, parts[j], s.Overriding, false)
			if err != nil {
				return nil, nil, err
			}
			rows[i] = append(rows[i], e)
		}
	}
	ids := make([]int, width)
	for j := range ids {
		c := rel.Columns[cols[j]]
		p := parts[j]
		if p == nil {
			ids[j] = b.md.add(c.Name, c.Type)
			row[cols[j]] = b.md.ref(ids[j])
			continue
		}
		ids[j] = b.md.add(c.Name, p.want)
		if row[cols[j]], err = b.replacePart(row[cols[j]], p, b.md.ref(ids[j])); err != nil {
			return nil, nil, err
		}
	}
	return b.valuesNode(rows, ids, x.applies), ev, nil
}

func (b *binder) insertSelect(s *sql.Insert, q *pgext.Query, rel *Relation, cols []int, row []*expr.Expr) (*node, *env, error) {
	// The clause is the statement's: RETURNING sees its queries too.
	ev, err := b.with(q.With, b.rootEnv())
	if err != nil {
		return nil, nil, err
	}
	body := *q
	body.With = nil
	r, err := b.query(&body, ev, true)
	if err != nil {
		return nil, nil, err
	}
	extra := -1
	if q.Select != nil && len(r.cols) > len(cols) && len(q.Select.Targets) > len(cols) {
		extra = q.Select.Targets[len(cols)].Pos
	}
	if err := tooMany(s, len(r.cols), len(cols), extra); err != nil {
		return nil, nil, err
	}
	parts, err := b.insertParts(s.Targets, rel, cols, ev)
	if err != nil {
		return nil, nil, err
	}
	for j := range r.cols {
		c, p := &rel.Columns[cols[j]], parts[j]
		want := c.Type
		if p != nil {
			want = p.want
		}
		if err := notGiven(c, s.Overriding, false); err != nil {
			return nil, nil, err
		}
		if s.Overriding == "user" && c.Identity != "" {
			continue // the default counts
		}
		t := b.md.typ(r.cols[j].id)
		if t.OID == types.OIDUnknown {
			if err := b.coerceOutput(r, j, want, functions.Assignment); err != nil {
				return nil, nil, err
			}
		}
		e := b.md.ref(r.cols[j].id)
		if q.Select != nil && j < len(q.Select.Targets) && !q.Select.Targets[j].Star {
			e.Pos = b.pos(q.Select.Targets[j].Pos)
		}
		if e, err = b.assignPart(e, c, p); err != nil {
			return nil, nil, err
		}
		if p != nil {
			if e, err = b.replacePart(row[cols[j]], p, e); err != nil {
				return nil, nil, err
			}
		}
		row[cols[j]] = e
	}
	return r.n, ev, nil
}

// tableConflict is what the table itself says of conflicts, nil when it says nothing or has no primary key.
func (b *binder) tableConflict(rel *Relation) (*PlannedConflict, error) {
	out := &PlannedConflict{OfTable: true, Key: rel.Constraint != "", DoNothing: rel.OnConflict == ConflictIgnore}
	if !out.Key {
		for _, x := range rel.Indexes {
			if x.Primary {
				out.Arbiters = append(out.Arbiters, x.ID)
			}
		}
	}
	switch {
	case rel.OnConflict == ConflictError, !out.Key && out.Arbiters == nil:
		return nil, nil
	case out.DoNothing:
		return out, nil
	}
	old, proposed, row := make([]int, len(rel.Columns)), make([]int, len(rel.Columns)), make([]*expr.Expr, len(rel.Columns))
	for i, col := range rel.Columns {
		old[i] = b.md.add(col.Name, col.Type)
	}
	for i, col := range rel.Columns {
		proposed[i] = b.md.add(col.Name, col.Type)
		switch now := b.md.ref(proposed[i]); {
		case col.Hidden:
			row[i] = b.md.ref(old[i])
		case rel.OnConflict == ConflictIfNotNull:
			row[i] = &expr.Expr{Kind: expr.Case, Type: col.Type, Args: []*expr.Expr{isNotNull(now), now, b.md.ref(old[i])}, Pos: -1}
		default:
			row[i] = now
		}
	}
	if err := b.generate(rel, row); err != nil {
		return nil, err
	}
	out.Whole = rel.OnConflict == ConflictOverwrite && !slices.ContainsFunc(rel.Columns, func(c RelColumn) bool { return c.Hidden })
	ph := &physical{b: b, md: b.md}
	for _, e := range row {
		out.Set = append(out.Set, ph.exprOver(b.fold(e), appendAll(old, proposed)))
	}
	return out, nil
}

// errAppendOnly refuses to change rows of a table that only takes new ones.
func errAppendOnly(verb string, rel *Relation) error {
	return pgerr.Newf(pgerr.ObjectNotInPrerequisiteState, "cannot %s append-only table \"%s\"", verb, rel.Name).
		WithHint("ALTER TABLE … RESET (append_only) lets rows change, when no materialized view relies on it.")
}

func (b *binder) onConflict(c *sql.OnConflict, rel *Relation, name string) (*PlannedConflict, error) {
	out := &PlannedConflict{DoNothing: c.DoNothing}
	old, proposed := make([]int, len(rel.Columns)), make([]int, len(rel.Columns))
	for i, col := range rel.Columns {
		old[i] = b.md.add(col.Name, col.Type)
	}
	sc := rowScope(rel, name, old)
	if err := b.arbiters(c, out, rel, sc, old); err != nil {
		return nil, err
	}
	if c.DoNothing {
		return out, nil
	}
	if out.Any {
		return nil, pgerr.Newf(pgerr.SyntaxError, "ON CONFLICT DO UPDATE requires inference specification or constraint name").
			WithHint("For example, ON CONFLICT (column_name).").At(c.Pos)
	}
	for i, col := range rel.Columns {
		proposed[i] = b.md.add(col.Name, col.Type)
	}
	b.md.access.row(old)
	ex := rowScope(rel, "excluded", proposed)
	sc.tables = append(sc.tables, ex.tables...)
	x := &exprCtx{b: b, sc: sc, ev: &env{}, clause: "ON CONFLICT"}
	sel := pgext.QueryOf(c.Set.Stmt).Select
	row, err := b.assignments(x, rel, pgext.Assignments(sel), old)
	if err != nil {
		return nil, err
	}
	var where *expr.Expr
	if sel.Where != nil {
		x.clause = "WHERE"
		if where, err = x.bool(sel.Where); err != nil {
			return nil, err
		}
	}
	if len(x.applies) > 0 {
		return nil, pgerr.Newf(pgerr.FeatureNotSupported, "subqueries in ON CONFLICT DO UPDATE are not supported").At(c.Pos)
	}
	ph := &physical{b: b, md: b.md}
	ids := appendAll(old, proposed)
	for _, e := range row {
		out.Set = append(out.Set, ph.exprOver(b.fold(e), ids))
	}
	if where != nil {
		out.Where = ph.exprOver(b.fold(where), ids)
	}
	return out, nil
}
