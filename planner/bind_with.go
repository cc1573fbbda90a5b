package planner

import (
	"github.com/streamdb/streamdb/internal/pgerr"
	"github.com/streamdb/streamdb/sql"
	"github.com/streamdb/streamdb/sql/expr"
	"github.com/streamdb/streamdb/sql/pgext"
)

// PlannedWith is a statement of a WITH clause that changes data, or a query of one that must not be evaluated once per reference. It runs once,
// before the statement that the clause belongs to and over the same snapshot; its rows (of the RETURNING list) are those of the virtual
// relation Table.
type PlannedWith struct {
	Name      string // in the WITH clause
	Table     string
	Statement sql.Statement
	Change    *PlannedChange
	Query     *Planned // instead of Statement and Change
}

// withTable begins the names of such virtual relations.
const withTable = "with "

// changing plans the statement of a WITH query that changes data. Only the statement's own WITH clause may have such queries.
func (b *binder) changing(c *cte, i int, ev *env) error {
	if b.depth > 1 || b.inView > 0 || ev.outer != nil || b.changes == nil {
		return pgerr.Newf(pgerr.FeatureNotSupported, "WITH clause containing a data-modifying statement must be at the top level").At(b.pos(c.pos))
	}
	st := b.changes[i]
	in := newBinder(b.o, false)
	in.params, in.inner, in.before, in.root = b.params, true, b.before, &env{ctes: append([]*cte(nil), ev.ctes...)}
	p, err := in.change(st)
	if err != nil {
		return err
	}
	b.params, b.before = in.params, in.before
	for _, d := range in.deps {
		b.depend(d)
	}
	if len(c.columns) > len(p.ReturningColumns) && p.Returning != nil {
		return c.tooManyNames(b, len(p.ReturningColumns))
	}
	c.change = p
	c.rel = &Relation{Name: c.name, Kind: System, Virtual: withTable + itoa(len(b.before))}
	for j, col := range p.ReturningColumns {
		r := RelColumn{Name: col.Name, Type: col.Type}
		if j < len(c.columns) {
			r.Name = c.columns[j]
		}
		c.rel.Columns = append(c.rel.Columns, r)
	}
	b.before = append(b.before, PlannedWith{Name: c.name, Table: c.rel.Virtual, Statement: st, Change: p})
	return nil
}

// refersTo reports whether the query of a statement that changes data reads a relation of the given name.
func refersTo(st sql.Statement, name string) bool {
	var q *sql.Query
	switch st := st.(type) {
	case *sql.Insert:
		q = st.Query
	case *sql.Update:
		q = st.Query
	case *sql.Delete:
		q = st.Query
	case *sql.Merge:
		q = st.Query
	}
	found := false
	if q != nil {
		w := &refWalker{visit: func(r *pgext.Relation, _ refContext) { found = found || r.Name == name }}
		w.query(pgext.QueryOf(q.Stmt), refOK)
	}
	return found
}

// change binds and plans an INSERT, UPDATE or DELETE.
func (b *binder) change(st sql.Statement) (*PlannedChange, error) {
	switch st := st.(type) {
	case *sql.Insert:
		return b.insert(st)
	case *sql.Update:
		return b.update(st)
	case *sql.Delete:
		return b.delete(st)
	}
	return nil, pgerr.Newf(pgerr.InternalError, "%T is not a change", st)
}

// returned is the relation of the rows that a statement of a WITH clause returned.
func (b *binder) returned(c *cte, pos int) (*bound, error) {
	if c.change != nil && c.change.Returning == nil {
		return nil, pgerr.Newf(pgerr.FeatureNotSupported, "WITH query \"%s\" does not have a RETURNING clause", c.name).At(pos)
	}
	n := &node{op: opScan, rel: c.rel}
	r := &bound{n: n}
	for i, col := range c.rel.Columns {
		id := b.md.add(col.Name, col.Type)
		n.cols, n.stored = append(n.cols, id), append(n.stored, i)
		r.cols = append(r.cols, outCol{col.Name, id})
		if c.change != nil && i < len(c.change.ReturningOrigins) {
			b.md.cols[id].origin = c.change.ReturningOrigins[i]
		}
	}
	return r, nil
}

// unused binds the WITH queries that nothing refers to: what is wrong with them is an error all the same.
func (b *binder) unused() error {
	for i := 0; i < len(b.declared); i++ {
		c := b.declared[i]
		if c.used || c.change != nil {
			continue
		}
		c.used = true
		b.depth++ // it is not the statement's own query
		b.trial++
		_, err := b.cteQuery(c)
		b.trial--
		b.depth--
		if err != nil {
			return err
		}
	}
	return nil
}

// cteQuery binds the query of a WITH clause. With volatile functions it is evaluated once, before the statement, unless it depends on rows
// around it.
func (b *binder) cteQuery(c *cte) (*bound, error) {
	if b.stream || b.trial > 0 || len(b.frames) > 0 {
		return b.boundCTE(c)
	}
	b.trial++
	r, err := b.boundCTE(c)
	b.trial--
	if err != nil || !b.volatileTree(r.n) {
		return r, err
	}
	if len(freeCols(r.n)) == 0 && !looseWork(r.n) {
		return b.once(c)
	}
	if c.volatile {
		return nil, pgerr.Newf(pgerr.FeatureNotSupported, "WITH query \"%s\" has volatile functions and depends on rows around it, so that it can be used only once", c.name)
	}
	c.volatile = true
	return b.boundCTE(c)
}

// looseWork reports whether n reads the rows of a recursive query that is around it.
func looseWork(n *node) bool {
	inside, found := map[int]bool{}, false
	n.walk(func(x *node) {
		if x.op == opRecurse {
			inside[x.work] = true
		}
	})
	n.walk(func(x *node) { found = found || x.op == opWork && !inside[x.work] })
	return found
}

func (b *binder) boundCTE(c *cte) (*bound, error) {
	c.used, c.active = true, true
	defer func() { c.active = false }()
	if c.recursive {
		return b.recursive(c)
	}
	return b.query(pgext.QueryOf(c.query), c.env, false)
}

func (b *binder) volatileTree(n *node) bool {
	found := false
	n.walk(func(x *node) {
		x.eachExpr(func(e *expr.Expr) *expr.Expr {
			found = found || b.volatileExpr(e)
			return e
		})
	})
	return found
}

// once plans a WITH query with volatile functions for itself: all references see the same rows.
func (b *binder) once(c *cte) (*bound, error) {
	in := newBinder(b.o, false)
	in.params, in.inner, in.before, in.inView, in.path, in.depth = b.params, true, b.before, b.inView, b.path, b.depth
	in.md.access.view = b.md.access.view
	r, err := in.boundCTE(c)
	if err != nil {
		return nil, err
	}
	if err = in.settle(r); err != nil {
		return nil, err
	}
	p, err := in.plan(r)
	if err != nil {
		return nil, err
	}
	b.params, b.before = in.params, in.before
	c.rel = &Relation{Name: c.name, Kind: System, Virtual: withTable + itoa(len(b.before))}
	for _, col := range p.Columns {
		c.rel.Columns = append(c.rel.Columns, RelColumn{Name: col.Name, Type: col.Type})
	}
	b.before = append(b.before, PlannedWith{Name: c.name, Table: c.rel.Virtual, Query: p})
	return b.returned(c, -1)
}

// rootEnv is what the statement's own clauses see.
func (b *binder) rootEnv() *env {
	if b.root != nil {
		return b.root
	}
	return &env{}
}

// computed attaches the subqueries of expressions over n's rows; of those that have any, the values become columns.
func (b *binder) computed(n *node, x *exprCtx, es []*expr.Expr) *node {
	if len(x.applies) == 0 {
		return n
	}
	made := map[int]bool{}
	for _, a := range x.applies {
		for _, c := range a.right.out() {
			made[c] = true
		}
	}
	n = b.attach(n, x.applies)
	var ids []int
	var exprs []*expr.Expr
	for i, e := range es {
		if some, _ := refs(e, made); some {
			id := b.md.add("?returning?", e.Type)
			ids, exprs = append(ids, id), append(exprs, e)
			es[i] = b.md.ref(id)
		}
	}
	return b.md.extend(n, ids, exprs)
}
