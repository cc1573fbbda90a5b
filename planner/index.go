package planner

import (
	"github.com/streamdb/streamdb/internal/pgerr"
	"github.com/streamdb/streamdb/sql"
	"github.com/streamdb/streamdb/sql/expr"
	"github.com/streamdb/streamdb/sql/pgext"
	"github.com/streamdb/streamdb/types"
)

// overRow binds a stored expression of a relation over its row, held by ids in stored order.
func (b *binder) overRow(q *sql.Query, rel *Relation, ids []int, path []string) (*expr.Expr, error) {
	t := &rangeTable{anyName: true}
	for i, c := range rel.Columns {
		t.cols = append(t.cols, scopeCol{c.Name, ids[i]})
	}
	b.inView++
	saved := b.path
	b.path = path
	defer func() {
		b.inView--
		b.path = saved
	}()
	x := &exprCtx{b: b, sc: &scope{tables: []*rangeTable{t}, visible: t.cols}, ev: &env{}, clause: "index expression"}
	e, err := x.bind(q.Expr())
	if err == nil {
		e, err = b.known(e)
	}
	if err != nil {
		return nil, err
	}
	return b.fold(e), nil
}

// indexKeys are the keys of an index over a row held by ids.
func (b *binder) indexKeys(x *RelIndex, rel *Relation, ids []int) ([]*expr.Expr, error) {
	out := make([]*expr.Expr, len(x.Keys))
	for i, k := range x.Keys {
		if k.Column >= 0 {
			out[i] = b.md.ref(ids[k.Column])
			continue
		}
		var err error
		if out[i], err = b.overRow(k.Expr, rel, ids, x.SearchPath); err != nil {
			return nil, err
		}
	}
	return out, nil
}

// implied reports whether the predicate of a partial index follows from conditions: each of its parts is one of them.
func (b *binder) implied(x *RelIndex, rel *Relation, ids []int, conds []*expr.Expr) (bool, error) {
	if x.Where == nil {
		return true, nil
	}
	where, err := b.overRow(x.Where, rel, ids, x.SearchPath)
	if err != nil {
		return false, err
	}
	for _, c := range conjuncts(where) {
		if !b.follows(c, conds) {
			return false, nil
		}
	}
	return true, nil
}

// follows reports whether one of conds makes c true.
func (b *binder) follows(c *expr.Expr, conds []*expr.Expr) bool {
	for _, d := range conds {
		if sameExpr(c, d) {
			return true
		}
		if c.Kind == expr.IsNotNull && c.Args[0].Kind == expr.Column && b.rejectsNull(d, map[int]bool{c.Args[0].Col: true}) {
			return true
		}
	}
	return false
}

// arbiters finds the unique indexes that ON CONFLICT names.
func (b *binder) arbiters(c *sql.OnConflict, out *PlannedConflict, rel *Relation, sc *scope, ids []int) error {
	switch {
	case c.Constraint != "":
		out.Key = c.Constraint == rel.Constraint
		for i := range rel.Indexes {
			if x := &rel.Indexes[i]; x.Constraint && x.Name == c.Constraint {
				out.Arbiters = append(out.Arbiters, x.ID)
			}
		}
		if !out.Key && out.Arbiters == nil {
			return pgerr.Newf(pgerr.UndefinedObject, "constraint \"%s\" for table \"%s\" does not exist", c.Constraint, rel.Name)
		}
		return nil
	case c.Target == nil:
		out.Any, out.Key = true, rel.Constraint != ""
		for i := range rel.Indexes {
			if rel.Indexes[i].Unique {
				out.Arbiters = append(out.Arbiters, rel.Indexes[i].ID)
			}
		}
		return nil
	}
	sel := pgext.QueryOf(c.Target.Stmt).Select
	x := &exprCtx{b: b, sc: sc, ev: &env{}, clause: "ON CONFLICT"}
	var wanted, conds []*expr.Expr
	for _, t := range sel.Targets {
		e, err := x.bind(t.X)
		if err == nil {
			e, err = b.known(e)
		}
		if err != nil {
			return err
		}
		wanted = append(wanted, b.fold(e))
	}
	if sel.Where != nil {
		cond, err := x.bool(sel.Where)
		if err != nil {
			return err
		}
		conds = conjuncts(b.fold(cond))
	}
	if len(x.applies) > 0 {
		return pgerr.Newf(pgerr.FeatureNotSupported, "cannot use subquery in ON CONFLICT").At(c.Pos)
	}
	if rel.Constraint != "" {
		var key []*expr.Expr
		for _, k := range rel.Key {
			key = append(key, b.md.ref(ids[k]))
		}
		out.Key = sameExprs(wanted, key)
	}
	for i := range rel.Indexes {
		ri := &rel.Indexes[i]
		if !ri.Unique {
			continue
		}
		keys, err := b.indexKeys(ri, rel, ids)
		if err != nil {
			return err
		}
		ok, err := b.implied(ri, rel, ids, conds)
		if err != nil {
			return err
		}
		if ok && sameExprs(wanted, keys) {
			out.Arbiters = append(out.Arbiters, ri.ID)
		}
	}
	if !out.Key && out.Arbiters == nil {
		return pgerr.Newf(pgerr.InvalidColumnReference, "there is no unique or exclusion constraint matching the ON CONFLICT specification")
	}
	return nil
}

// sameExprs compares two sets of expressions.
func sameExprs(a, c []*expr.Expr) bool {
	within := func(a, c []*expr.Expr) bool {
		for _, x := range a {
			found := false
			for _, y := range c {
				found = found || sameExpr(x, y)
			}
			if !found {
				return false
			}
		}
		return true
	}
	return within(a, c) && within(c, a)
}

// BindDefinitionExpr binds an expression of a definition over a relation's columns without a type that it has to have.
func BindDefinitionExpr(q *sql.Query, schema types.Schema, what string, o Options) (*expr.Expr, error) {
	return bindScalar(q, schema, o, what, (*binder).known)
}

// BindIndex binds the expressions of an index over the stored columns of its table: keys, and the predicate where there is one.
func BindIndex(x *RelIndex, schema types.Schema, o Options) (keys []*expr.Expr, where *expr.Expr, err error) {
	for _, k := range x.Keys {
		if k.Column >= 0 {
			keys = append(keys, expr.Col(k.Column, schema[k.Column].Type))
			continue
		}
		e, err := bindScalar(k.Expr, schema, o, "index expressions", (*binder).known)
		if err != nil {
			return nil, nil, err
		}
		keys = append(keys, e)
	}
	if x.Where != nil {
		where, err = bindScalar(x.Where, schema, o, "index predicates", (*binder).known)
	}
	return keys, where, err
}
