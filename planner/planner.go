package planner

import (
	"slices"
	"strings"

	"github.com/streamdb/streamdb/internal/pgerr"
	"github.com/streamdb/streamdb/planner/plan"
	"github.com/streamdb/streamdb/sql"
	"github.com/streamdb/streamdb/sql/expr"
	"github.com/streamdb/streamdb/sql/functions"
	"github.com/streamdb/streamdb/sql/pgext"
	"github.com/streamdb/streamdb/types"
)

// PlanQuery plans a one-shot query.
func PlanQuery(q *sql.Query, o Options) (p *Planned, err error) { return planQuery(q, o, false) }

// PlanStream plans the same query as a job that keeps the result up to date.
func PlanStream(q *sql.Query, o Options) (p *Planned, err error) {
	o.EmitOnClose = o.EmitOnClose || q.EmitOnWindowClose
	return planQuery(q, o, true)
}

func planQuery(q *sql.Query, o Options, stream bool) (p *Planned, err error) {
	defer pgext.Recover(&err)
	if !stream {
		o.EmitOnClose = false
	}
	b := newBinder(o, stream)
	if b.changes = q.Changes; stream && len(q.Changes) > 0 {
		return nil, pgerr.Newf(pgerr.FeatureNotSupported, "materialized views must not use data-modifying statements in WITH")
	}
	r, err := b.query(pgext.QueryOf(q.Stmt), &env{}, false)
	if err != nil {
		return nil, err
	}
	if err = b.settle(r); err != nil {
		return nil, err
	}
	if stream {
		if err = b.catalogFree(r.n); err != nil {
			return nil, err
		}
	}
	return b.planLocks(r)
}

// plan optimizes a bound query and builds its physical plan.
func (b *binder) plan(r *bound) (*Planned, error) {
	if err := b.unused(); err != nil {
		return nil, err
	}
	access := b.md.access.finish()
	params, err := b.finishParams()
	if err != nil {
		return nil, err
	}
	opt := newOptimizer(b)
	want := colIDs(r.cols)
	if b.o.EmitOnClose && len(r.order) > 0 && slices.Contains(r.n.out(), r.order[0].col) {
		want = append(want, r.order[0].col)
	}
	n, err := opt.optimize(r.n, want)
	if err != nil {
		return nil, err
	}
	if b.stream {
		if err := onlyInFilters(n); err != nil {
			return nil, err
		}
	}
	ph := &physical{b: b, o: opt, md: b.md, cut: b.stream && b.o.Parallelism != 1, wanted: map[*node]*wantedOrder{}}
	if ph.cut {
		ph.shareSources(n)
	}
	out := ph.build(n, toSet(want))
	out = ph.hold(out, r.order)
	final := ph.final && out.app
	out = ph.root(out, r.cols)
	if b.o.EmitOnClose && ph.onClose == 0 && !final {
		e := pgerr.Newf(pgerr.FeatureNotSupported, "EMIT ON WINDOW CLOSE needs windows, or an order, by a column with a watermark")
		if v := materializedIn(n); v != nil {
			return nil, e.WithHint("Watermarks do not pass through materialized views, such as %q: read its source, or a view (CREATE VIEW) in its place.", v.Name)
		}
		return nil, e.WithHint("Group or partition by the window columns of TUMBLE, HOP, CUMULATE or SESSION, or write ORDER BY column, and declare WATERMARK FOR column AS .. on the source.")
	}
	pl := &plan.Plan{
		Version: plan.FormatVersion, Schema: out.n.Schema, Visible: len(r.cols), Key: out.n.Key, Inputs: ph.inputs, Indexes: ph.indexes,
		Rules: opt.fired, Unbounded: ph.endless,
	}
	if pl.Inputs == nil {
		pl.Inputs = []uint64{}
	}
	ph.close(out)
	if !ph.cut {
		ph.frags[0].Parallelism = 1
	}
	pl.Fragments = ph.frags
	pl.NextID = number(pl.Fragments)
	b.label(pl)
	res := &Planned{
		Plan: pl, Before: b.before, Params: params, Relations: b.deps, Access: access, Calls: b.md.access.calls, Stars: b.stars, Natural: b.natural, Notices: ph.notices,
		Columns: append(types.Schema(nil), pl.Schema[:len(r.cols)]...),
	}
	for _, c := range r.cols {
		res.Origins = append(res.Origins, b.md.cols[c.id].origin)
	}
	for _, id := range out.ids {
		res.NotNull = append(res.NotNull, out.nn[id])
	}
	return res, nil
}

// root adds the top operator: the user's columns first, then, for jobs, the rest of the stream key.
func (ph *physical) root(p *phys, cols []outCol) *phys {
	ids := make([]int, len(cols))
	exprs := make([]*expr.Expr, len(cols))
	seen := map[int]bool{}
	for i, c := range cols {
		ids[i] = c.id
		if seen[c.id] {
			ids[i] = ph.md.add(c.name, ph.md.typ(c.id))
		}
		seen[c.id] = true
		exprs[i] = ph.md.ref(c.id)
	}
	if !ph.b.stream && len(cols) > 0 {
		// Nobody reads the key of a result.
		p.key = nil
		if !ph.inPlace(p, ids) {
			p = ph.ordered(p, ids, exprs)
		}
	} else if !ph.inPlace(p, ids) {
		p = ph.ordered(p, ids, exprs)
	}
	kind := plan.KindResult
	if ph.b.stream && ph.b.o.Sink != nil {
		return ph.sinkRoot(p, cols)
	}
	if ph.b.stream {
		kind = plan.KindMaterialize
		if len(p.key) == 0 {
			p = ph.require(p, distSingle, nil, nil)
		} else {
			p = ph.require(p, distHash, p.key, nil)
		}
		if ph.b.o.StateTTL > 0 && !p.ttl { // the rows of the view itself
			p = ph.expiring(p, nil, p.key)
		}
	}
	out := ph.like(kind, p)
	ph.seal(out)
	if ph.b.stream {
		out.n.Materialize = &plan.Materialize{Relation: ph.b.o.Relation, KeyColumns: out.n.Key}
	}
	ph.nameColumns(out, cols)
	return out
}

// nameColumns gives the root the names of the result.
func (ph *physical) nameColumns(out *phys, cols []outCol) {
	out.n.Schema = append(types.Schema(nil), out.n.Schema...)
	delete(ph.b.labels.columns, out.n) // they have the names of the result
	used := map[string]bool{}
	for i, c := range cols {
		out.n.Schema[i].Name = c.name
		used[c.name] = true
	}
	for i := len(cols); i < len(out.n.Schema); i++ {
		name := "_key_" + itoa(i-len(cols)+1)
		if out.n.Schema[i].Name == rowIDName && !used[rowIDName] {
			name = rowIDName
		}
		for used[name] {
			name = "_" + name
		}
		used[name] = true
		out.n.Schema[i].Name = name
	}
}

// ordered projects also where only the order of the columns changes.
func (ph *physical) ordered(p *phys, ids []int, exprs []*expr.Expr) *phys {
	if !samePassed(ids, exprs, p.ids) {
		if q := ph.project(p, ids, exprs); q != p {
			return q
		}
	}
	fresh := append([]int(nil), ids...)
	for i, id := range ids {
		fresh[i] = ph.md.copy(id)
	}
	return ph.project(p, fresh, exprs)
}

// inPlace reports whether p's output is the user's columns followed by key columns only.
func (ph *physical) inPlace(p *phys, ids []int) bool {
	if len(p.ids) < len(ids) {
		return false
	}
	for i, c := range ids {
		if p.ids[i] != c {
			return false
		}
	}
	key := toSet(p.key)
	for _, c := range p.ids[len(ids):] {
		if !key[c] {
			return false
		}
	}
	return true
}

// BindScalar binds an expression over a relation's columns: CHECK, DEFAULT, generated columns, watermarks, index expressions. Column
// references in the result are positions in schema. Subqueries, aggregates and parameters are refused.
func BindScalar(q *sql.Query, schema types.Schema, o Options) (e *expr.Expr, err error) {
	return bindScalar(q, schema, o, "this expression", (*binder).known)
}

// BindDefinition binds an expression of a definition as BindScalar does and casts it to t by assignment. what names the expression in
// messages: "DEFAULT expression", "column generation expression".
func BindDefinition(q *sql.Query, schema types.Schema, column string, t types.Type, what string, o Options) (*expr.Expr, error) {
	return bindScalar(q, schema, o, what, func(b *binder, e *expr.Expr) (*expr.Expr, error) {
		if e.Type.OID != types.OIDUnknown && e.Type.OID != t.OID && !b.reg.CanCast(e.Type, t, functions.Assignment) {
			kind, _ := strings.CutPrefix(strings.ToLower(what), "column ")
			return nil, pgerr.Newf(pgerr.DatatypeMismatch, "column \"%s\" is of type %s but %s is of type %s", column, b.reg.TypeName(t.OID), kind, b.reg.TypeName(e.Type.OID)).
				WithHint("You will need to rewrite or cast the expression.")
		}
		return b.cast(e, t, functions.Assignment)
	})
}

func bindScalar(q *sql.Query, schema types.Schema, o Options, what string, finish func(*binder, *expr.Expr) (*expr.Expr, error)) (e *expr.Expr, err error) {
	return newBinder(o, false).scalar(q, schema, what, finish)
}

func (b *binder) scalar(q *sql.Query, schema types.Schema, what string, finish func(*binder, *expr.Expr) (*expr.Expr, error)) (e *expr.Expr, err error) {
	defer pgext.Recover(&err)
	t := &rangeTable{anyName: true}
	ids := make([]int, len(schema))
	for i, c := range schema {
		ids[i] = b.md.add(c.Name, c.Type)
		t.cols = append(t.cols, scopeCol{c.Name, ids[i]})
	}
	x := &exprCtx{b: b, sc: &scope{tables: []*rangeTable{t}, visible: t.cols}, ev: &env{}, clause: what}
	if e, err = x.bind(q.Expr()); err != nil {
		return nil, err
	}
	if len(x.applies) > 0 {
		return nil, pgerr.Newf(pgerr.FeatureNotSupported, "cannot use subquery in %s", strings.TrimSuffix(what, "s")).At(e.Pos)
	}
	if e, err = finish(b, e); err != nil {
		return nil, err
	}
	if _, err = b.finishParams(); err != nil {
		return nil, err
	}
	if len(b.params) > len(b.o.Params) {
		return nil, pgerr.Newf(pgerr.UndefinedParameter, "there is no parameter $%d", len(b.params))
	}
	ph := &physical{b: b, md: b.md}
	return ph.exprOver(b.fold(e), ids), nil
}

// CastScalar casts a bound expression as an assignment to a column of type t does.
func CastScalar(e *expr.Expr, t types.Type, o Options) (*expr.Expr, error) {
	return newBinder(o, false).cast(e, t, functions.Assignment)
}
