package planner

import (
	"github.com/pingcap/tidb/pkg/parser/ast"

	"github.com/streamdb/streamdb/internal/pgerr"
	"github.com/streamdb/streamdb/sql/functions"
	"github.com/streamdb/streamdb/sql/pgext"
	"github.com/streamdb/streamdb/types"
)

// refContext tells where in a recursive query a reference to it stands.
type refContext uint8

const (
	refOK refContext = iota
	refNonRecursive
	refSubquery
	refOuterJoin
	refIntersect
	refExcept
)

// refPlaces are the texts of PostgreSQL's errors for references in the wrong place.
var refPlaces = [...]string{
	refNonRecursive: "its non-recursive term", refSubquery: "a subquery", refOuterJoin: "an outer join", refIntersect: "INTERSECT", refExcept: "EXCEPT",
}

// refWalker visits the references of a query to unqualified relation names.
type refWalker struct {
	shadow []string // names that inner WITH clauses give another meaning
	visit  func(r *pgext.Relation, at refContext)
}

func (w *refWalker) query(q *pgext.Query, at refContext) {
	defer func(n int) { w.shadow = w.shadow[:n] }(len(w.shadow))
	if q.With != nil {
		if q.With.Recursive {
			for _, c := range q.With.CTEs {
				w.shadow = append(w.shadow, c.Name)
			}
		}
		for _, c := range q.With.CTEs {
			w.query(pgext.QueryOf(c.Query), at)
			w.shadow = append(w.shadow, c.Name)
		}
	}
	switch {
	case q.SetOp != nil:
		l, r := at, at
		if at == refOK {
			switch s := q.SetOp; {
			case s.Kind == pgext.Intersect && s.All:
				l, r = refIntersect, refIntersect
			case s.Kind == pgext.Except && s.All:
				l, r = refExcept, refExcept
			case s.Kind == pgext.Except:
				r = refExcept
			}
		}
		w.query(q.SetOp.Left, l)
		w.query(q.SetOp.Right, r)
	case q.Values != nil:
		for _, r := range q.Values.Rows {
			w.exprs(r...)
		}
	default:
		s := q.Select
		for _, it := range s.From {
			w.from(it, at)
		}
		for _, t := range s.Targets {
			w.exprs(t.X)
		}
		w.exprs(s.DistinctOn...)
		w.exprs(s.Where, s.Having)
		for _, g := range s.GroupBy {
			w.group(g)
		}
	}
	for _, k := range q.OrderBy {
		w.exprs(k.X)
	}
	if q.Limit != nil {
		w.exprs(q.Limit.Count, q.Limit.Offset)
	}
}

func (w *refWalker) group(g pgext.GroupItem) {
	w.exprs(g.X)
	for _, it := range g.Items {
		w.group(it)
	}
}

func (w *refWalker) from(it pgext.FromItem, at refContext) {
	switch t := it.(type) {
	case *pgext.Relation:
		if t.Schema != "" {
			return
		}
		for _, s := range w.shadow {
			if s == t.Name {
				return
			}
		}
		w.visit(t, at)
	case *pgext.Derived:
		w.query(pgext.QueryOf(t.Query), at)
	case *pgext.TableFunction:
		for _, f := range t.Funcs {
			w.exprs(f.X)
		}
	case *pgext.Join:
		l, r := at, at
		if at == refOK {
			if t.Kind == pgext.LeftJoin || t.Kind == pgext.FullJoin {
				r = refOuterJoin
			}
			if t.Kind == pgext.RightJoin || t.Kind == pgext.FullJoin {
				l = refOuterJoin
			}
		}
		w.from(t.Left, l)
		w.from(t.Right, r)
		w.exprs(t.On)
	}
}

func (w *refWalker) exprs(es ...ast.ExprNode) {
	for _, e := range es {
		if e != nil {
			e.Accept(subqueryVisitor{w})
		}
	}
}

// subqueryVisitor finds the subqueries of an expression.
type subqueryVisitor struct{ w *refWalker }

// Enter implements ast.Visitor.
func (v subqueryVisitor) Enter(n ast.Node) (ast.Node, bool) {
	if s, ok := n.(*ast.SubqueryExpr); ok {
		v.w.query(pgext.QueryOf(s.Query), refSubquery)
		return n, true
	}
	return n, false
}

// Leave implements ast.Visitor.
func (subqueryVisitor) Leave(n ast.Node) (ast.Node, bool) { return n, true }

// checkRecursion finds which of the queries of a WITH RECURSIVE clause refer to themselves, and whether PostgreSQL allows how they do.
func (b *binder) checkRecursion(ctes []*cte) error {
	uses := make([]map[int]bool, len(ctes))
	for i, c := range ctes {
		uses[i] = map[int]bool{}
		if c.change != nil {
			continue
		}
		w := &refWalker{visit: func(r *pgext.Relation, _ refContext) {
			for j, d := range ctes {
				if d.name == r.Name {
					uses[i][j] = true
				}
			}
		}}
		w.query(pgext.QueryOf(c.query), refOK)
		c.recursive = uses[i][i]
	}
	// Queries that use nothing that is left go first; when none is left to go, some use each other.
	done := make([]bool, len(ctes))
	for range ctes {
		next := -1
		first := -1
		for i := range ctes {
			if done[i] {
				continue
			}
			if first < 0 {
				first = i
			}
			ready := true
			for j := range uses[i] {
				ready = ready && (j == i || done[j])
			}
			if ready {
				next = i
				break
			}
		}
		if next < 0 {
			return pgerr.Newf(pgerr.FeatureNotSupported, "mutual recursion between WITH items is not implemented").At(b.pos(ctes[first].pos))
		}
		done[next] = true
	}
	for _, c := range ctes {
		if c.recursive {
			if err := b.wellFormed(c); err != nil {
				return err
			}
		}
	}
	return nil
}

// wellFormed reports what is wrong with the form of a query that refers to itself.
func (b *binder) wellFormed(c *cte) error {
	q := pgext.QueryOf(c.query)
	if q.SetOp == nil || q.SetOp.Kind != pgext.Union {
		return pgerr.Newf(pgerr.InvalidRecursion, "recursive query \"%s\" does not have the form non-recursive-term UNION [ALL] recursive-term", c.name).At(b.pos(c.pos))
	}
	var err error
	refs := 0
	w := &refWalker{}
	w.visit = func(r *pgext.Relation, at refContext) {
		if r.Name != c.name || err != nil {
			return
		}
		if at != refOK {
			err = pgerr.Newf(pgerr.InvalidRecursion, "recursive reference to query \"%s\" must not appear within %s", c.name, refPlaces[at]).At(b.pos(r.Pos))
			return
		}
		if refs++; refs > 1 {
			err = pgerr.Newf(pgerr.InvalidRecursion, "recursive reference to query \"%s\" must not appear more than once", c.name).At(b.pos(r.Pos))
		}
	}
	if q.With != nil {
		for _, d := range q.With.CTEs {
			w.query(pgext.QueryOf(d.Query), refSubquery)
			w.shadow = append(w.shadow, d.Name)
		}
	}
	w.query(q.SetOp.Left, refNonRecursive)
	w.query(q.SetOp.Right, refOK)
	if err != nil {
		return err
	}
	unsupported := func(what string, pos int) error {
		return pgerr.Newf(pgerr.FeatureNotSupported, "%s in a recursive query is not implemented", what).At(b.pos(pos))
	}
	if len(q.OrderBy) > 0 {
		return unsupported("ORDER BY", q.OrderBy[0].Pos)
	}
	if q.Limit != nil && q.Limit.Offset != nil {
		return unsupported("OFFSET", q.Limit.Offset.OriginTextPosition())
	}
	if q.Limit != nil && q.Limit.Count != nil {
		return unsupported("LIMIT", q.Limit.Count.OriginTextPosition())
	}
	if len(q.Locks) > 0 {
		return unsupported("FOR UPDATE/SHARE", -1)
	}
	return nil
}

// recursive binds a query that refers to itself. Within its recursive term the name stands for the rows of the last iteration.
func (b *binder) recursive(c *cte) (*bound, error) {
	q := pgext.QueryOf(c.query)
	ev, err := b.with(q.With, c.env)
	if err != nil {
		return nil, err
	}
	s := q.SetOp
	base, err := b.query(s.Left, ev, false)
	if err != nil {
		return nil, err
	}
	if err = b.settle(base); err != nil {
		return nil, err
	}
	if len(c.columns) > len(base.cols) {
		return nil, c.tooManyNames(b, len(base.cols))
	}
	g, err := b.graphColumns(c, base)
	if err != nil {
		return nil, err
	}
	b.works++
	c.work, c.extra, c.workCols = b.works, g.extra(), make([]outCol, len(base.cols))
	for i, o := range base.cols {
		c.workCols[i] = outCol{name: o.name, id: o.id}
		if i < len(c.columns) {
			c.workCols[i].name = c.columns[i]
		}
	}
	id := c.work
	right, err := g.withColumns(b, c, s.Right)
	if err != nil {
		return nil, err
	}
	step, err := b.query(right, ev, true)
	c.work, c.workCols, c.extra = 0, nil, 0
	if err != nil {
		return nil, err
	}
	if len(base.cols) != len(step.cols) {
		return nil, pgerr.Newf(pgerr.SyntaxError, "each UNION query must have the same number of columns").At(b.pos(columnPos(s.Right, 0)))
	}
	if err = g.advance(b, step); err != nil {
		return nil, err
	}
	r := &bound{}
	for i := range base.cols {
		t, u := b.md.typ(base.cols[i].id), b.md.typ(step.cols[i].id)
		common, err := b.reg.CommonType("UNION", []types.Type{t, u})
		if err != nil {
			return nil, pgerr.From(err).At(b.pos(columnPos(s.Right, i)))
		}
		if common != t {
			return nil, pgerr.Newf(pgerr.DatatypeMismatch, "recursive query \"%s\" column %d has type %s in non-recursive term but type %s overall", c.name, i+1, t, common).
				WithHint("Cast the output of the non-recursive term to the correct type.").At(b.pos(columnPos(s.Left, i)))
		}
		if !s.All && !orderable(t) {
			return nil, pgerr.Newf(pgerr.UndefinedFunction, "could not identify an equality operator for type %s", t).At(b.pos(columnPos(s.Left, i)))
		}
		if err = b.coerceOutput(step, i, t, functions.Implicit); err != nil {
			return nil, err
		}
		name := base.cols[i].name
		if i < len(c.columns) {
			name = c.columns[i]
		}
		id := b.md.add(name, t)
		b.md.cols[id].shape = b.md.cols[base.cols[i].id].shape
		r.cols = append(r.cols, outCol{name, id})
	}
	r.n = &node{
		op: opRecurse, in: []*node{base.n, step.n}, cols: colIDs(r.cols), branches: [][]int{colIDs(base.cols), colIDs(step.cols)},
		work: id, name: c.name, all: s.All,
	}
	return r, nil
}

func (c *cte) tooManyNames(b *binder, has int) error {
	return pgerr.Newf(pgerr.InvalidColumnReference, "WITH query \"%s\" has %d columns available but %d columns specified", c.name, has, len(c.columns)).At(b.pos(c.pos))
}

// columnPos is where the first SELECT of a query has its column i.
func columnPos(q *pgext.Query, i int) int {
	for q.SetOp != nil {
		q = q.SetOp.Left
	}
	switch {
	case q.Select != nil && i < len(q.Select.Targets) && !q.Select.Targets[i].Star:
		return firstPos(q.Select.Targets[i].X)
	case q.Values != nil && i < len(q.Values.Rows[0]):
		return firstPos(q.Values.Rows[0][i])
	}
	return q.Pos
}

// working is a reference of a recursive query to itself.
func (b *binder) working(c *cte) *bound {
	n := &node{op: opWork, work: c.work, name: c.name}
	r := &bound{n: n}
	for _, o := range c.workCols {
		id := b.md.add(o.name, b.md.typ(o.id))
		b.md.cols[id].shape = b.md.cols[o.id].shape
		n.cols = append(n.cols, id)
		r.cols = append(r.cols, outCol{o.name, id})
	}
	return r
}
