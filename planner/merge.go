package planner

import (
	"github.com/streamdb/streamdb/internal/pgerr"
	"github.com/streamdb/streamdb/sql"
	"github.com/streamdb/streamdb/sql/expr"
	"github.com/streamdb/streamdb/sql/pgext"
	"github.com/streamdb/streamdb/types"
)

// PlanMerge plans the rows of a MERGE.
func PlanMerge(s *sql.Merge, o Options) (p *PlannedChange, err error) {
	defer pgext.Recover(&err)
	return newBinder(o, false).merge(s)
}

// merge joins the source with the target. Each row gets the number of the WHEN clause that takes it, and the row that this clause makes.
func (b *binder) merge(s *sql.Merge) (*PlannedChange, error) {
	b.changes = s.Query.Changes
	rel, err := b.target(s.Table, "merge into")
	if err != nil {
		return nil, err
	}
	q := pgext.QueryOf(s.Query.Stmt)
	ev, err := b.with(q.With, b.rootEnv())
	if err != nil {
		return nil, err
	}
	n, sc, err := b.from(q.Select.From, ev)
	if err != nil {
		return nil, err
	}
	t := sc.tables[len(sc.tables)-1]
	if t.rel != rel {
		return nil, pgerr.Newf(pgerr.FeatureNotSupported, "a WITH query hides table \"%s\"", rel.Name).WithHint("Rename the WITH query.")
	}
	ids := rowIDs(t, rel)
	source := &scope{tables: sc.tables[:len(sc.tables)-1], parent: sc.parent}
	for _, st := range source.tables {
		source.visible = append(source.visible, st.cols...)
	}
	both := &exprCtx{b: b, sc: sc, ev: ev, clause: "MERGE WHEN", base: n}
	only := &exprCtx{b: b, sc: source, ev: ev, clause: "MERGE WHEN", base: n}
	p := &PlannedChange{Target: rel}
	m := &mergeRows{b: b, rel: rel, matched: isNotNull(b.md.ref(ids[rel.Key[0]])), action: b.md.add("?action?", types.Int4)}
	reached := map[bool]bool{true: true, false: true}
	for i := range s.Whens {
		w := &s.Whens[i]
		if rel.AppendOnly && w.Action != sql.MergeInsert && w.Action != sql.MergeNothing {
			return nil, errAppendOnly(map[sql.MergeAction]string{sql.MergeUpdate: "update", sql.MergeDelete: "delete from"}[w.Action], rel)
		}
		if !reached[w.Matched] {
			return nil, pgerr.Newf(pgerr.SyntaxError, "unreachable WHEN clause specified after unconditional WHEN clause")
		}
		x := only
		if w.Matched {
			x = both
		}
		cond := m.matched
		if !w.Matched {
			cond = not(cond)
		}
		if w.Cond == nil {
			reached[w.Matched] = false
		} else {
			x.clause = "MERGE WHEN"
			c, err := x.bool(w.Cond.Expr())
			if err != nil {
				return nil, err
			}
			cond = and(cond, c)
		}
		row, err := m.row(w, x, ids)
		if err != nil {
			return nil, err
		}
		m.add(i+1, cond, row)
		p.Merge = append(p.Merge, w.Action)
	}
	n = b.attach(b.attach(n, both.applies), only.applies)
	n = b.md.extend(n, []int{m.action}, []*expr.Expr{m.choice()})
	n = filterNode(n, b.mustOp(">", b.md.ref(m.action), intConst(types.Int4, 0)))
	fresh := make([]int, len(rel.Columns))
	out := &bound{cols: []outCol{{"?action?", m.action}}}
	for i, c := range rel.Columns {
		fresh[i] = b.md.add(c.Name, c.Type)
		out.cols = append(out.cols, outCol{c.Name, ids[i]})
	}
	for i, c := range rel.Columns {
		out.cols = append(out.cols, outCol{c.Name, fresh[i]})
	}
	out.n = b.md.extend(n, fresh, m.columns())
	return p, b.finishChange(p, out)
}

// rowIDs lists a table's columns in stored order.
func rowIDs(t *rangeTable, rel *Relation) []int {
	var ids []int
	visible, hidden := t.cols, t.hidden
	for _, c := range rel.Columns {
		if c.Hidden {
			ids, hidden = append(ids, hidden[0].id), hidden[1:]
		} else {
			ids, visible = append(ids, visible[0].id), visible[1:]
		}
	}
	return ids
}

// mergeRows collects what the WHEN clauses of a MERGE make.
type mergeRows struct {
	b       *binder
	rel     *Relation
	matched *expr.Expr
	action  int
	conds   []*expr.Expr   // of the actions, which are numbered from 1
	rows    [][]*expr.Expr // nil where an action makes no row
}

func (m *mergeRows) add(_ int, cond *expr.Expr, row []*expr.Expr) {
	m.conds, m.rows = append(m.conds, cond), append(m.rows, row)
}

// choice is the number of the first action whose condition holds, 0 when there is none.
func (m *mergeRows) choice() *expr.Expr {
	c := &expr.Expr{Kind: expr.Case, Type: types.Int4, Pos: -1}
	for i, cond := range m.conds {
		c.Args = append(c.Args, cond, intConst(types.Int4, int64(i+1)))
	}
	c.Args = append(c.Args, intConst(types.Int4, 0))
	return c
}

// columns are the new row's: each action's where it is the one.
func (m *mergeRows) columns() []*expr.Expr {
	out := make([]*expr.Expr, len(m.rel.Columns))
	for col := range out {
		t := m.rel.Columns[col].Type
		c := &expr.Expr{Kind: expr.Case, Type: t, Pos: -1}
		for i, row := range m.rows {
			if row != nil {
				c.Args = append(c.Args, m.b.mustOp("=", m.b.md.ref(m.action), intConst(types.Int4, int64(i+1))), row[col])
			}
		}
		if c.Args == nil {
			out[col] = nullConst(t)
			continue
		}
		c.Args = append(c.Args, nullConst(t))
		out[col] = c
	}
	return out
}

// row binds the row that a WHEN clause makes, nil when it makes none.
func (m *mergeRows) row(w *sql.MergeWhen, x *exprCtx, ids []int) ([]*expr.Expr, error) {
	b, rel := m.b, m.rel
	switch w.Action {
	case sql.MergeUpdate:
		x.clause = "UPDATE"
		return b.assignments(x, rel, pgext.Assignments(pgext.QueryOf(w.Set.Stmt).Select), ids)
	case sql.MergeInsert:
		b.md.access.changed().Insert = true
	case sql.MergeDelete:
		b.md.access.changed().Delete = true
		return nil, nil
	default:
		return nil, nil
	}
	x.clause = "VALUES"
	row := make([]*expr.Expr, len(rel.Columns))
	if w.Values != nil {
		cols, err := insertColumns(rel, w.Columns, w.Targets)
		if err != nil {
			return nil, err
		}
		b.md.access.changed().Inserted = append(b.md.access.changed().Inserted, cols...)
		parts, err := b.insertParts(w.Targets, rel, cols, x.ev)
		if err != nil {
			return nil, err
		}
		values := pgext.QueryOf(w.Values.Stmt).Select.Targets
		switch {
		case len(values) > len(cols):
			return nil, pgerr.Newf(pgerr.SyntaxError, "INSERT has more expressions than target columns").At(values[len(cols)].Pos)
		case len(values) < len(cols) && len(w.Columns) > 0:
			return nil, pgerr.Newf(pgerr.SyntaxError, "INSERT has more target columns than expressions").At(w.Columns[len(values)].Pos)
		}
		for i, v := range values {
			e, err := b.given(x, v.X, &rel.Columns[cols[i]], parts[i], w.Overriding, false)
			if err == nil && parts[i] != nil {
				e, err = b.replacePart(row[cols[i]], parts[i], e)
			}
			if err != nil {
				return nil, err
			}
			row[cols[i]] = e
		}
	}
	for i := range row {
		c := &rel.Columns[i]
		if row[i] != nil {
			continue
		}
		if c.Generated != nil || c.Hidden && c.Default == nil {
			row[i] = nullConst(c.Type)
			continue
		}
		var err error
		if row[i], err = b.defaultOf(c); err != nil {
			return nil, err
		}
	}
	return row, b.generate(rel, row)
}
