package planner

import (
	"slices"

	"github.com/pingcap/tidb/pkg/parser/ast"

	"github.com/streamdb/streamdb/internal/pgerr"
	"github.com/streamdb/streamdb/sql"
	"github.com/streamdb/streamdb/sql/expr"
	"github.com/streamdb/streamdb/sql/functions"
	"github.com/streamdb/streamdb/sql/pgext"
	"github.com/streamdb/streamdb/types"
)

// graphColumns are the columns that SEARCH and CYCLE add to a recursive query, in this order: the sequence of the search, the mark of a cycle and
// the path. The non-recursive term begins them, the recursive term carries those of the row it comes from in its last columns and goes on from
// them, and rows that are marked are not followed.
type graphColumns struct {
	search         *pgext.Search
	cycle          *pgext.Cycle
	searchBy       []int // places of the columns
	cycleBy        []int
	value, initial *expr.Expr
}

func (g *graphColumns) extra() int {
	n := 0
	if g.search != nil {
		n++
	}
	if g.cycle != nil {
		n += 2
	}
	return n
}

// graphColumns checks the clauses of c and adds their columns to its non-recursive term.
func (b *binder) graphColumns(c *cte, base *bound) (*graphColumns, error) {
	g := &graphColumns{search: c.clauses.Search, cycle: c.clauses.Cycle}
	if g.extra() == 0 {
		return g, nil
	}
	names := make([]string, len(base.cols))
	for i, o := range base.cols {
		if names[i] = o.name; i < len(c.columns) {
			names[i] = c.columns[i]
		}
	}
	places := func(what string, by []string, pos int) ([]int, error) {
		var out []int
		for _, n := range by {
			i := slices.Index(names, n)
			switch {
			case i < 0:
				return nil, pgerr.Newf(pgerr.SyntaxError, "%s column \"%s\" not in WITH query column list", what, n).At(b.pos(pos))
			case slices.Contains(out, i):
				return nil, pgerr.Newf(pgerr.DuplicateColumn, "%s column \"%s\" specified more than once", what, n).At(b.pos(pos))
			}
			out = append(out, i)
		}
		return out, nil
	}
	same := func(first, second string, pos int) error {
		return pgerr.Newf(pgerr.SyntaxError, "%s column name and %s column name are the same", first, second).At(b.pos(pos))
	}
	var err error
	var ids []int
	var exprs []*expr.Expr
	add := func(name string, e *expr.Expr) error {
		if slices.Contains(names, name) {
			return pgerr.Newf(pgerr.AmbiguousColumn, "column reference \"%s\" is ambiguous", name).At(b.pos(c.pos))
		}
		id := b.md.add(name, e.Type)
		b.keepShape(id, e)
		ids, exprs = append(ids, id), append(exprs, e)
		return nil
	}
	if s := g.search; s != nil {
		if g.searchBy, err = places("search", s.By, s.Pos); err != nil {
			return nil, err
		}
		first := b.rowAt(base, g.searchBy)
		if s.Breadth {
			first.Args = append([]*expr.Expr{intConst(types.Int8, 0)}, first.Args...)
		} else {
			first = &expr.Expr{Kind: expr.Array, Type: types.T(types.ArrayOf(types.OIDRecord)), Args: []*expr.Expr{first}}
		}
		if err = add(s.Column, first); err != nil {
			return nil, err
		}
	}
	if y := g.cycle; y != nil {
		if g.cycleBy, err = places("cycle", y.By, y.Pos); err != nil {
			return nil, err
		}
		switch {
		case y.Mark == y.Path:
			return nil, same("cycle mark", "cycle path", y.Pos)
		case g.search != nil && g.search.Column == y.Mark:
			return nil, same("search sequence", "cycle mark", g.search.Pos)
		case g.search != nil && g.search.Column == y.Path:
			return nil, same("search sequence", "cycle path", g.search.Pos)
		}
		if err = g.marks(b, y); err != nil {
			return nil, err
		}
		if err = add(y.Mark, g.initial); err != nil {
			return nil, err
		}
		path := &expr.Expr{Kind: expr.Array, Type: types.T(types.ArrayOf(types.OIDRecord)), Args: []*expr.Expr{b.rowAt(base, g.cycleBy)}}
		if err = add(y.Path, path); err != nil {
			return nil, err
		}
	}
	base.n = b.md.extend(base.n, ids, exprs)
	for _, id := range ids {
		base.cols = append(base.cols, outCol{b.md.cols[id].name, id})
	}
	return g, nil
}

// marks binds the two values of the mark.
func (g *graphColumns) marks(b *binder, y *pgext.Cycle) error {
	here := func(err error) error { // the texts have positions of their own
		e := *pgerr.From(err)
		e.Pos = b.pos(y.Pos)
		return &e
	}
	pair := make([]*expr.Expr, 2)
	for i, text := range [...]string{y.Value, y.Default} {
		stmts, err := sql.Parse("SELECT " + text)
		if err != nil {
			return here(err)
		}
		x := &exprCtx{b: b, sc: &scope{}, ev: &env{}, clause: "CYCLE"}
		if pair[i], err = x.bind(stmts[0].(*sql.Query).Expr()); err != nil {
			return here(err)
		}
	}
	t, err := b.unify("CYCLE", pair)
	if err != nil {
		return here(err)
	}
	for i := range pair {
		if pair[i], err = b.cast(pair[i], t, functions.Implicit); err == nil {
			pair[i], err = b.known(pair[i])
		}
		if err != nil {
			return here(err)
		}
	}
	g.value, g.initial = pair[0], pair[1]
	return nil
}

// rowAt is the row of some of r's columns.
func (b *binder) rowAt(r *bound, places []int) *expr.Expr {
	row := &expr.Expr{Kind: expr.Row, Type: types.T(types.OIDRecord)}
	for _, i := range places {
		row.Args = append(row.Args, b.md.ref(r.cols[i].id))
	}
	return row
}

// withColumns is the recursive term with the columns of the row that it refers to at its end.
func (g *graphColumns) withColumns(b *binder, c *cte, right *pgext.Query) (*pgext.Query, error) {
	if g.extra() == 0 {
		return right, nil
	}
	if right.Select == nil {
		return nil, pgerr.Newf(pgerr.FeatureNotSupported, "with a SEARCH or CYCLE clause, the right side of the UNION must be a SELECT")
	}
	alias := ""
	var find func(items ...pgext.FromItem)
	find = func(items ...pgext.FromItem) {
		for _, it := range items {
			switch t := it.(type) {
			case *pgext.Relation:
				if t.Schema == "" && t.Name == c.name {
					if alias = t.Alias; alias == "" {
						alias = t.Name
					}
				}
			case *pgext.Join:
				find(t.Left, t.Right)
			}
		}
	}
	find(right.Select.From...)
	if alias == "" {
		return nil, pgerr.Newf(pgerr.FeatureNotSupported,
			"with a SEARCH or CYCLE clause, the recursive reference to WITH query \"%s\" must be at the top level of its right-hand SELECT", c.name)
	}
	q, s := *right, *right.Select
	s.Targets = slices.Clone(s.Targets)
	for _, o := range c.workCols[len(c.workCols)-g.extra():] {
		name := &ast.ColumnName{Table: ast.NewCIStr(alias), Name: ast.NewCIStr(o.name)}
		s.Targets = append(s.Targets, pgext.Target{X: &ast.ColumnNameExpr{Name: name}, Alias: o.name, Pos: right.Pos})
	}
	q.Select = &s
	return &q, nil
}

// advance replaces what the recursive term carries by what follows from it.
func (g *graphColumns) advance(b *binder, step *bound) error {
	at := len(step.cols) - g.extra()
	var ids []int
	var exprs []*expr.Expr
	next := func(e *expr.Expr) {
		old := step.cols[at]
		id := b.md.add(old.name, e.Type)
		b.keepShape(id, e)
		ids, exprs = append(ids, id), append(exprs, e)
		step.cols[at].id = id
		at++
	}
	grown := func(row *expr.Expr) (*expr.Expr, error) {
		return b.call("array_append", []*expr.Expr{b.md.ref(step.cols[at].id), row}, -1)
	}
	if g.search != nil {
		row := b.rowAt(step, g.searchBy)
		if g.search.Breadth {
			old := b.md.ref(step.cols[at].id)
			depth := b.mustOp("+", b.fieldAt(old, b.shapeOf(old), 0, -1), intConst(types.Int8, 1))
			row.Args = append([]*expr.Expr{depth}, row.Args...)
			next(row)
		} else {
			e, err := grown(row)
			if err != nil {
				return err
			}
			next(e)
		}
	}
	if g.cycle != nil {
		old := b.md.ref(step.cols[at].id)
		ne, err := b.operatorOn("<>", []*expr.Expr{old, g.value}, b.pos(g.cycle.Pos))
		if err != nil {
			return err
		}
		step.n = filterNode(step.n, ne)
		row := b.rowAt(step, g.cycleBy)
		found, err := b.call("array_position", []*expr.Expr{b.md.ref(step.cols[at+1].id), row}, -1)
		if err != nil {
			return err
		}
		next(&expr.Expr{Kind: expr.Case, Type: g.value.Type, Args: []*expr.Expr{isNotNull(found), g.value, g.initial}})
		e, err := grown(row)
		if err != nil {
			return err
		}
		next(e)
	}
	step.n = b.md.extend(step.n, ids, exprs)
	return nil
}
