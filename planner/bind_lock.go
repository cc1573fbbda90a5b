package planner

import (
	"github.com/streamdb/streamdb/internal/pgerr"
	"github.com/streamdb/streamdb/planner/plan"
	"github.com/streamdb/streamdb/sql/pgext"
)

// PlannedLock names rows that a query locks: those of Relation whose key is in the columns of the plan's result. Where one of them is NULL there
// is no row.
type PlannedLock struct {
	Relation uint64
	Strength pgext.LockStrength
	Columns  []int
}

// lockedKey is a FROM item whose rows are locked.
type lockedKey struct {
	rel      uint64
	strength pgext.LockStrength
	key      []int
}

// lockForm refuses row locks of queries whose rows are not rows of a table.
func (b *binder) lockForm(q *pgext.Query) error {
	if len(q.Locks) == 0 {
		return nil
	}
	l := q.Locks[0]
	not := func(what string) error {
		return pgerr.Newf(pgerr.FeatureNotSupported, "%s is not allowed with %s", l.Strength, what)
	}
	switch s := q.Select; {
	case b.stream:
		return pgerr.Newf(pgerr.FeatureNotSupported, "%s is not allowed in a materialized view", l.Strength).At(b.pos(l.Pos))
	case b.inView > 0:
		return pgerr.Newf(pgerr.FeatureNotSupported, "%s is not supported in views", l.Strength)
	case q.SetOp != nil:
		return not("UNION/INTERSECT/EXCEPT")
	case s == nil:
		return pgerr.Newf(pgerr.FeatureNotSupported, "%s cannot be applied to VALUES", l.Strength)
	case s.Distinct || s.DistinctOn != nil:
		return not("DISTINCT clause")
	case len(s.GroupBy) > 0:
		return not("GROUP BY clause")
	case s.Having != nil:
		return not("HAVING clause")
	}
	return nil
}

// lockTargets finds the FROM items that the locking clauses mean. n is what FROM yields.
func (s *selecting) lockTargets(n *node) error {
	b := s.b
	strongest := map[*rangeTable]pgext.LockStrength{}
	var order []*rangeTable
	lock := func(t *rangeTable, l *pgext.Lock, pos int) error {
		if t.rel == nil {
			if t.cte && pos >= 0 {
				return pgerr.Newf(pgerr.FeatureNotSupported, "%s cannot be applied to a WITH query", l.Strength).At(pos)
			}
			return nil
		}
		switch t.rel.Kind {
		case MaterializedView:
			return pgerr.Newf(pgerr.WrongObjectType, "cannot lock rows in materialized view \"%s\"", t.rel.Name)
		case Source:
			return pgerr.Newf(pgerr.WrongObjectType, "cannot lock rows in source \"%s\"", t.rel.Name)
		case Table:
		default:
			return nil
		}
		for _, k := range t.key {
			if padded(n, k) {
				return pgerr.Newf(pgerr.FeatureNotSupported, "%s cannot be applied to the nullable side of an outer join", l.Strength)
			}
		}
		old, ok := strongest[t]
		if !ok {
			order = append(order, t)
		}
		if !ok || l.Strength < old {
			strongest[t] = l.Strength
		}
		return nil
	}
	for i := range s.q.Locks {
		l := &s.q.Locks[i]
		if len(l.Of) == 0 {
			for _, t := range s.sc.tables {
				if err := lock(t, l, -1); err != nil {
					return err
				}
			}
			continue
		}
		for j, name := range l.Of {
			var found *rangeTable
			for _, t := range s.sc.tables {
				if t.name == name {
					found = t
				}
			}
			if found == nil {
				return pgerr.Newf(pgerr.UndefinedTable, "relation \"%s\" in %s clause not found in FROM clause", name, l.Strength).At(b.pos(l.OfPos[j]))
			}
			if err := lock(found, l, b.pos(l.OfPos[j])); err != nil {
				return err
			}
		}
	}
	for _, t := range order {
		s.locked = append(s.locked, lockedKey{rel: t.rel.ID, strength: strongest[t], key: t.key})
	}
	return nil
}

// lockedLevel refuses row locks of a query level that computes its rows.
func (s *selecting) lockedLevel() error {
	if len(s.q.Locks) == 0 {
		return nil
	}
	what := ""
	switch {
	case len(s.x.aggs.items) > 0:
		what = "aggregate functions"
	case len(s.x.wins.items) > 0:
		what = "window functions"
	case len(s.x.srfs.items) > 0:
		what = "set-returning functions in the target list"
	default:
		return nil
	}
	return pgerr.Newf(pgerr.FeatureNotSupported, "%s is not allowed with %s", s.q.Locks[0].Strength, what)
}

// padded reports whether an outer join in n may put NULL for column id.
func padded(n *node, id int) bool {
	if n.op != opJoin && n.op != opApply && n.op != opAsof && n.op != opTemporal {
		for _, in := range n.in {
			if padded(in, id) {
				return true
			}
		}
		return false
	}
	for side, in := range n.in {
		for _, c := range in.out() {
			if c != id {
				continue
			}
			return n.jtype == plan.Full || n.jtype == plan.Left && side == 1 || n.jtype == plan.Right && side == 0 || padded(in, id)
		}
	}
	return false
}

// planLocks plans a query with the keys of the rows that it locks behind its own columns.
func (b *binder) planLocks(r *bound) (*Planned, error) {
	visible := len(r.cols)
	var locks []PlannedLock
	for _, l := range r.locks {
		p := PlannedLock{Relation: l.rel, Strength: l.strength}
		for _, id := range l.key {
			p.Columns = append(p.Columns, len(r.cols))
			r.cols = append(r.cols, outCol{"?lock?", id})
		}
		locks = append(locks, p)
	}
	res, err := b.plan(r)
	if err != nil {
		return nil, err
	}
	res.Plan.Visible, res.Columns, res.Locks = visible, res.Columns[:visible], locks
	return res, nil
}
