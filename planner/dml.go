package planner

import (
	"strings"

	"github.com/pingcap/tidb/pkg/parser/ast"

	"github.com/streamdb/streamdb/internal/pgerr"
	"github.com/streamdb/streamdb/sql"
	"github.com/streamdb/streamdb/sql/expr"
	"github.com/streamdb/streamdb/sql/functions"
	"github.com/streamdb/streamdb/sql/pgext"
	"github.com/streamdb/streamdb/types"
)

// target finds the table of a change. verb is "insert into", "update" or "delete from".
func (b *binder) target(n sql.Name, verb string) (*Relation, error) {
	rel, ok := b.lookup(n.Schema, n.Name)
	if !ok {
		return nil, b.noRelation(n.Schema, n.Name, n.Pos)
	}
	switch rel.Kind {
	case Table:
		b.depend(rel.ID)
		b.md.access.change(rel, verb)
		return rel, nil
	case View:
		return nil, pgerr.Newf(pgerr.ObjectNotInPrerequisiteState, "cannot %s view \"%s\"", verb, rel.Name).
			WithDetail("Views are not automatically updatable.")
	case MaterializedView:
		return nil, pgerr.Newf(pgerr.WrongObjectType, "cannot change materialized view \"%s\"", rel.Name)
	case Source:
		return nil, pgerr.Newf(pgerr.WrongObjectType, "cannot change source \"%s\"", rel.Name).WithHint("Declare it with CREATE TABLE to write to it.")
	case Index:
		return nil, pgerr.Newf(pgerr.WrongObjectType, "cannot open relation \"%s\"", rel.Name).WithDetail("This operation is not supported for indexes.")
	}
	if strings.HasPrefix(rel.Virtual, "sequence.") {
		return nil, pgerr.Newf(pgerr.WrongObjectType, "cannot change sequence \"%s\"", rel.Name)
	}
	return nil, pgerr.Newf(pgerr.InsufficientPrivilege, "permission denied: \"%s\" is a system catalog", rel.Name)
}

func (r *Relation) column(name string) int {
	for i, c := range r.Columns {
		if c.Name == name && !c.Hidden {
			return i
		}
	}
	return -1
}

// assign casts a value to a column's type as assignments do.
func (b *binder) assign(e *expr.Expr, c *RelColumn) (*expr.Expr, error) {
	if e.Type.OID != types.OIDUnknown && e.Type.OID != c.Type.OID && !b.reg.CanCast(e.Type, c.Type, functions.Assignment) {
		return nil, pgerr.Newf(pgerr.DatatypeMismatch, "column \"%s\" is of type %s but expression is of type %s", c.Name, b.reg.TypeName(c.Type.OID), b.reg.TypeName(e.Type.OID)).
			WithHint("You will need to rewrite or cast the expression.").At(leftmost(e))
	}
	return b.cast(e, c.Type, functions.Assignment)
}

// defaultOf is the value of a column that is not given.
func (b *binder) defaultOf(c *RelColumn) (*expr.Expr, error) {
	if c.Default == nil {
		return nullConst(c.Type), nil
	}
	b.inView++
	defer func() { b.inView-- }()
	x := &exprCtx{b: b, sc: &scope{}, ev: &env{}, clause: "DEFAULT"}
	e, err := x.bind(c.Default.Expr())
	if err != nil {
		return nil, err
	}
	return b.assign(e, c)
}

// generate computes the generated columns of a row whose other columns are given; row is in stored order.
func (b *binder) generate(rel *Relation, row []*expr.Expr) error {
	any := false
	for i := range rel.Columns {
		any = any || rel.Columns[i].Generated != nil
	}
	if !any {
		return nil
	}
	t := &rangeTable{anyName: true}
	m := map[int]*expr.Expr{}
	for i, c := range rel.Columns {
		id := b.md.add(c.Name, c.Type)
		t.cols = append(t.cols, scopeCol{c.Name, id})
		m[id] = row[i]
	}
	b.inView++
	defer func() { b.inView-- }()
	for i := range rel.Columns {
		c := &rel.Columns[i]
		if c.Generated == nil {
			continue
		}
		x := &exprCtx{b: b, sc: &scope{tables: []*rangeTable{t}, visible: t.cols}, ev: &env{}, clause: "column generation expressions"}
		e, err := x.bind(c.Generated.Expr())
		if err != nil {
			return err
		}
		if e, err = b.assign(e, c); err != nil {
			return err
		}
		row[i] = substitute(e, m)
	}
	return nil
}

// generateOnce is generate for a new row, in which an expression may give another result each time: generated columns see the one result.
func (b *binder) generateOnce(rel *Relation, n *node, row []*expr.Expr) (*node, error) {
	generated, volatile := false, false
	for i := range rel.Columns {
		generated = generated || rel.Columns[i].Generated != nil
		volatile = volatile || b.volatileExpr(row[i])
	}
	if generated && volatile {
		ids := make([]int, len(row))
		exprs := make([]*expr.Expr, len(row))
		for i, e := range row {
			ids[i], exprs[i] = b.md.add(rel.Columns[i].Name, rel.Columns[i].Type), e
			row[i] = b.md.ref(ids[i])
		}
		n = b.md.extend(n, ids, exprs)
	}
	return n, b.generate(rel, row)
}

// notGiven refuses values for columns that compute themselves.
func notGiven(c *RelColumn, overriding string, update bool) error {
	if c.Generated == nil && (c.Identity != "always" || overriding != "") {
		return nil
	}
	detail := "Column \"%s\" is a generated column."
	if c.Generated == nil {
		detail = "Column \"%s\" is an identity column defined as GENERATED ALWAYS."
	}
	if update {
		return pgerr.Newf(pgerr.GeneratedAlways, "column \"%s\" can only be updated to DEFAULT", c.Name).WithDetail(detail, c.Name)
	}
	e := pgerr.Newf(pgerr.GeneratedAlways, "cannot insert a non-DEFAULT value into column \"%s\"", c.Name).WithDetail(detail, c.Name)
	if c.Generated == nil {
		e = e.WithHint("Use OVERRIDING SYSTEM VALUE to override.")
	}
	return e
}

func (b *binder) finishChange(p *PlannedChange, r *bound) error {
	q, err := b.plan(r)
	if err != nil {
		return err
	}
	p.Planned = *q
	return nil
}

// rowScope lets a relation's row, held by ids in stored order, be named.
func rowScope(rel *Relation, name string, ids []int) *scope {
	t := &rangeTable{name: name, rel: rel}
	for i, c := range rel.Columns {
		if c.Hidden {
			t.hidden = append(t.hidden, scopeCol{c.Name, ids[i]})
		} else {
			t.cols = append(t.cols, scopeCol{c.Name, ids[i]})
		}
	}
	return &scope{tables: []*rangeTable{t}, visible: t.cols}
}

// given binds a value that is assigned to column c, or to the part p of it: an expression or DEFAULT.
func (b *binder) given(x *exprCtx, v ast.ExprNode, c *RelColumn, p *columnPart, overriding string, update bool) (*expr.Expr, error) {
	if _, ok := pgext.ExprOf(v).(*pgext.Default); ok {
		if p != nil {
			return nil, pgerr.Newf(pgerr.FeatureNotSupported, "cannot set an array element to DEFAULT").At(p.pos)
		}
		if c.Generated != nil {
			return nullConst(c.Type), nil
		}
		return b.defaultOf(c)
	}
	if err := notGiven(c, overriding, update); err != nil {
		return nil, err
	}
	if overriding == "user" && c.Identity != "" {
		return b.defaultOf(c)
	}
	e, err := x.bind(v)
	if err != nil {
		return nil, err
	}
	if e.Kind == expr.Param && p == nil {
		// PostgreSQL looks at all values of a row before it gives types to those that are parameters.
		want := types.T(c.Type.OID)
		if have, ok := x.given[e.Col]; ok && have.OID != want.OID {
			return nil, inconsistent(e, have, want)
		} else if !ok && e.Type.OID == types.OIDUnknown {
			if x.given == nil {
				x.given = map[int]types.Type{}
			}
			x.given[e.Col] = want
		}
	}
	return b.assignPart(e, c, p)
}

// assignments returns the new row, in stored order, of a row held by ids.
func (b *binder) assignments(x *exprCtx, rel *Relation, as []pgext.Assignment, ids []int) ([]*expr.Expr, error) {
	row := make([]*expr.Expr, len(rel.Columns))
	for i, id := range ids {
		row[i] = expr.Col(id, b.md.typ(id)) // not read: kept
	}
	whole, parts := map[int]bool{}, map[int]bool{}
	// put assigns to a target what value returns for its type.
	put := func(t pgext.AssignTarget, value func(*RelColumn, *columnPart) (*expr.Expr, error)) error {
		i := rel.column(t.Column)
		if i < 0 {
			return pgerr.Newf(pgerr.UndefinedColumn, "column \"%s\" of relation \"%s\" does not exist", t.Column, rel.Name).At(t.Pos)
		}
		c := &rel.Columns[i]
		if whole[i] || t.Part == nil && parts[i] {
			return pgerr.Newf(pgerr.SyntaxError, "multiple assignments to same column \"%s\"", t.Column)
		}
		b.md.access.updates(i)
		if t.Part == nil {
			whole[i] = true
			e, err := value(c, nil)
			row[i] = e
			return err
		}
		parts[i] = true
		p, err := x.columnPart(t, c)
		if err != nil {
			return err
		}
		e, err := value(c, p)
		if err != nil {
			return err
		}
		row[i], err = b.replacePart(row[i], p, e)
		return err
	}
	set := func(t pgext.AssignTarget, v ast.ExprNode) error {
		return put(t, func(c *RelColumn, p *columnPart) (*expr.Expr, error) { return b.given(x, v, c, p, "", true) })
	}
	for _, a := range as {
		if !a.Row {
			if err := set(a.Columns[0], a.Value); err != nil {
				return nil, err
			}
			continue
		}
		if q, ok := pgext.ExprOf(a.Value).(*pgext.Subquery); ok {
			values, err := x.rowOf(q, len(a.Columns))
			if err != nil {
				return nil, err
			}
			for i, c := range a.Columns {
				if err := put(c, func(col *RelColumn, p *columnPart) (*expr.Expr, error) {
					if err := notGiven(col, "", true); err != nil {
						return nil, err
					}
					return b.assignPart(values[i], col, p)
				}); err != nil {
					return nil, err
				}
			}
			continue
		}
		r, ok := pgext.ExprOf(a.Value).(*pgext.Row)
		if !ok {
			return nil, pgerr.Newf(pgerr.FeatureNotSupported, "source for a multiple-column UPDATE item must be a sub-SELECT or ROW() expression").At(b.pos(firstPos(a.Value)))
		}
		if len(r.Elems) != len(a.Columns) {
			return nil, pgerr.Newf(pgerr.SyntaxError, "number of columns does not match number of values").At(a.Pos)
		}
		for i, c := range a.Columns {
			if err := set(c, r.Elems[i]); err != nil {
				return nil, err
			}
		}
	}
	return row, b.generate(rel, row)
}

// changed binds FROM and WHERE of an UPDATE or DELETE. ids hold the target's row in stored order.
func (b *binder) changed(q *pgext.Query, rel *Relation) (n *node, sc *scope, ids []int, ev *env, err error) {
	if ev, err = b.with(q.With, b.rootEnv()); err != nil {
		return nil, nil, nil, nil, err
	}
	s := q.Select
	first := len(b.md.access.list)
	if n, sc, err = b.from(s.From, ev); err != nil {
		return nil, nil, nil, nil, err
	}
	t := sc.tables[0]
	b.md.access.scanned(first)
	if t.rel != rel {
		return nil, nil, nil, nil, pgerr.Newf(pgerr.FeatureNotSupported, "a WITH query hides table \"%s\"", rel.Name).WithHint("Rename the WITH query.")
	}
	visible, hidden := t.cols, t.hidden
	for _, c := range rel.Columns {
		if c.Hidden {
			ids, hidden = append(ids, hidden[0].id), hidden[1:]
		} else {
			ids, visible = append(ids, visible[0].id), visible[1:]
		}
	}
	if s.Where != nil {
		x := &exprCtx{b: b, sc: sc, ev: ev, clause: "WHERE", base: n}
		cond, err := x.condition(s.Where)
		if err != nil {
			return nil, nil, nil, nil, err
		}
		n = filterNode(b.attach(n, x.applies), cond)
	}
	if len(s.From) > 1 {
		// A row with several partners changes once.
		var key []int
		for _, k := range rel.Key {
			key = append(key, ids[k])
		}
		n = &node{op: opTopN, in: []*node{n}, group: key, limit: intConst(types.Int8, 1)}
	}
	return n, sc, ids, ev, nil
}

// returning binds RETURNING over the row held by ids. Columns of other relations and the values of subqueries become columns of out.
func (b *binder) returning(p *PlannedChange, q *sql.Query, sc *scope, ids []int, ev *env, out *bound) error {
	x := &exprCtx{b: b, sc: sc, ev: ev, clause: "RETURNING"}
	p.Returning = []*expr.Expr{}
	for i, id := range ids {
		if p.Target != nil && i < len(p.Target.Columns) && p.Target.Columns[i].Attr > 0 {
			b.md.cols[id].origin = Origin{p.Target.OID, p.Target.Columns[i].Attr}
		}
	}
	var es []*expr.Expr
	add := func(name string, e *expr.Expr) {
		es = append(es, e)
		p.ReturningColumns = append(p.ReturningColumns, types.Column{Name: name, Type: e.Type})
		origin := Origin{}
		if e.Kind == expr.Column {
			origin = b.md.cols[e.Col].origin
		}
		p.ReturningOrigins = append(p.ReturningOrigins, origin)
	}
	for _, t := range pgext.QueryOf(q.Stmt).Select.Targets {
		if t.Star {
			cols, err := sc.starCols(t.StarOf, b.pos(t.Pos))
			if err != nil {
				return err
			}
			for _, c := range cols {
				add(c.name, b.md.ref(c.id))
			}
			continue
		}
		e, err := x.bind(t.X)
		if err == nil {
			e, err = b.known(e)
		}
		if err != nil {
			return err
		}
		name := t.Alias
		if name == "" {
			name = columnName(t.X)
		}
		add(name, e)
	}
	out.n = b.computed(out.n, x, es)
	row := toSet(ids)
	used := map[int]bool{}
	for _, e := range es {
		e.Columns(used)
	}
	var extra []int
	for _, c := range sortedKeys(used) {
		if !row[c] {
			extra = append(extra, c)
		}
	}
	ph := &physical{b: b, md: b.md}
	all := appendAll(ids, extra)
	for _, e := range es {
		p.Returning = append(p.Returning, ph.exprOver(b.fold(e), all))
	}
	p.Extra = len(extra)
	for _, c := range extra {
		out.cols = append(out.cols, outCol{b.md.cols[c].name, c})
	}
	return nil
}

// PlanUpdate plans the rows of an UPDATE.
func PlanUpdate(s *sql.Update, o Options) (p *PlannedChange, err error) {
	defer pgext.Recover(&err)
	return newBinder(o, false).update(s)
}

func (b *binder) update(s *sql.Update) (*PlannedChange, error) {
	b.changes = s.Query.Changes
	rel, err := b.target(s.Table, "update")
	if err != nil {
		return nil, err
	}
	if rel.AppendOnly {
		return nil, errAppendOnly("update", rel)
	}
	q := pgext.QueryOf(s.Query.Stmt)
	n, sc, ids, ev, err := b.changed(q, rel)
	if err != nil {
		return nil, err
	}
	x := &exprCtx{b: b, sc: sc, ev: ev, clause: "UPDATE", base: n}
	row, err := b.assignments(x, rel, pgext.Assignments(q.Select), ids)
	if err != nil {
		return nil, err
	}
	n = b.attach(n, x.applies)
	p := &PlannedChange{Target: rel}
	out := &bound{}
	fresh := make([]int, len(row))
	var exprs []*expr.Expr
	for i, c := range rel.Columns {
		out.cols = append(out.cols, outCol{c.Name, ids[i]})
		fresh[i] = b.md.add(c.Name, c.Type)
		exprs = append(exprs, row[i])
	}
	for i, c := range rel.Columns {
		out.cols = append(out.cols, outCol{c.Name, fresh[i]})
	}
	out.n = b.md.extend(n, fresh, exprs)
	if s.Returning != nil {
		m := map[int]int{}
		b.md.access.row(fresh)
		for i, id := range ids {
			m[id] = fresh[i]
		}
		if err := b.returning(p, s.Returning, renamed(sc, m), fresh, ev, out); err != nil {
			return nil, err
		}
	}
	return p, b.finishChange(p, out)
}

// renamed is sc with other ids for some columns.
func renamed(sc *scope, m map[int]int) *scope {
	swap := func(cols []scopeCol) []scopeCol {
		out := append([]scopeCol(nil), cols...)
		for i := range out {
			if id, ok := m[out[i].id]; ok {
				out[i].id = id
			}
		}
		return out
	}
	out := &scope{visible: swap(sc.visible)}
	for _, t := range sc.tables {
		c := *t
		c.cols, c.hidden = swap(t.cols), swap(t.hidden)
		out.tables = append(out.tables, &c)
	}
	return out
}

// PlanDelete plans the rows of a DELETE.
func PlanDelete(s *sql.Delete, o Options) (p *PlannedChange, err error) {
	defer pgext.Recover(&err)
	return newBinder(o, false).delete(s)
}

func (b *binder) delete(s *sql.Delete) (*PlannedChange, error) {
	b.changes = s.Query.Changes
	rel, err := b.target(s.Table, "delete from")
	if err != nil {
		return nil, err
	}
	if rel.AppendOnly {
		return nil, errAppendOnly("delete from", rel)
	}
	n, sc, ids, ev, err := b.changed(pgext.QueryOf(s.Query.Stmt), rel)
	if err != nil {
		return nil, err
	}
	p := &PlannedChange{Target: rel}
	out := &bound{n: n}
	for i, c := range rel.Columns {
		out.cols = append(out.cols, outCol{c.Name, ids[i]})
	}
	if s.Returning != nil {
		if err := b.returning(p, s.Returning, sc, ids, ev, out); err != nil {
			return nil, err
		}
	}
	return p, b.finishChange(p, out)
}
