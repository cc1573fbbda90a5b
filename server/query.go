package server

import (
	"context"
	"fmt"
	"slices"
	"strconv"

	"github.com/streamdb/streamdb/catalog"
	"github.com/streamdb/streamdb/connector"
	"github.com/streamdb/streamdb/exec"
	"github.com/streamdb/streamdb/internal/pgerr"
	"github.com/streamdb/streamdb/pgwire"
	"github.com/streamdb/streamdb/planner"
	"github.com/streamdb/streamdb/planner/plan"
	"github.com/streamdb/streamdb/sql"
	"github.com/streamdb/streamdb/sql/expr"
	"github.com/streamdb/streamdb/types"
)

// running is a query ready to run over its pinned versions.
type running struct {
	query *exec.Query
	own   bool // the pins are the query's own, not the transaction's
}

func (r *running) release() {
	if r.own {
		r.query.Pinned.Release()
	}
}

// query runs SELECT, VALUES, TABLE, WITH.
func (d *dispatch) query(st *sql.Query) error {
	if st.Into != nil {
		return d.createTableAs(&sql.CreateTableAs{Base: st.Base, Name: *st.Into, Query: st})
	}
	p := d.pre
	if p == nil || p.query == nil {
		p = &prepared{stmt: st, open: true}
		if err := d.ss.plan(p); err != nil {
			return err
		}
	} else if err := d.ss.fresh(p); err != nil {
		return err
	}
	if err := d.ss.authorize(p); err != nil {
		return err
	}
	if len(st.Changes) > 0 {
		return d.replanned(p, func() error { return d.queryWith(p) }, func() error { return d.query(st) })
	}
	d.ss.explaining.runs(p)
	if p.point != nil && d.ss.explaining == nil && !d.ss.tx.explicit && len(d.ss.tx.writes) == 0 {
		return d.pointRead(st, p)
	}
	r, err := d.ss.queryNow(d.ctx, p, d.args)
	if err != nil {
		return err
	}
	defer r.release()
	if err := d.w.RowDescription(fields(p.columns, p.origins, d.formats)); err != nil {
		return err
	}
	n := int64(0)
	visible := len(p.columns)
	r.query.Emit = func(c *types.Chunk) error {
		out := *c
		out.Cols = out.Cols[:visible]
		n += rowCount(&out)
		if len(p.query.Locks) > 0 && (d.ss.tx.explicit || !d.last) {
			if err := d.ss.lockRows(p, r.query.Pinned, c); err != nil {
				return err
			}
		}
		return d.w.Rows(&out)
	}
	if err := d.ss.srv.engine.Run(d.ctx, r.query); err != nil {
		return err
	}
	return d.complete(fmt.Sprintf("SELECT %d", n))
}

func rowCount(c *types.Chunk) int64 {
	if c.Weights == nil {
		return int64(c.Rows())
	}
	n := int64(0)
	for i := range c.Rows() {
		n += c.Weight(c.Row(i))
	}
	return n
}

// queryNow is queryOf, with a new plan where a change of a table overtook the old one.
func (ss *session) queryNow(ctx context.Context, p *prepared, args []types.Datum) (*running, error) {
	for try := 0; ; try++ {
		r, err := ss.queryOf(ctx, p, args)
		if pgerr.CodeOf(err) != pgerr.SerializationFailure || ss.snapshot() == p.snap || try == maxConflictRetries {
			return r, err
		}
		if err := ss.fresh(p); err != nil {
			return nil, err
		}
	}
}

// queryOf pins what the planned query reads.
func (ss *session) queryOf(ctx context.Context, p *prepared, args []types.Datum) (*running, error) {
	if err := ss.authorize(p); err != nil {
		return nil, err
	}
	if p.query.Plan.Unbounded && ss.srv.endless(ctx, p.query.Plan) {
		return nil, pgerr.Newf(pgerr.FeatureNotSupported, "the query reads a source that never ends").
			WithHint("Create a materialized view over it and query that.")
	}
	reads := p.query.Plan.Inputs
	if len(p.query.Before) > 0 {
		reads = append(slices.Clone(reads), readsOf(p.query.Before)...)
	}
	pins, own, err := ss.pin(ctx, reads, p.indexes(), p.snap)
	if err != nil {
		return nil, err
	}
	r := &running{own: own, query: &exec.Query{
		Plan: p.query.Plan, Env: ss.env(args), Pinned: pins, Virtual: &systemTables{ss: ss}, Overlay: ss.tx.overlay(reads),
		Profile: ss.explaining.counts(),
	}}
	if err := ss.warnAbout(pins, reads); err != nil {
		r.release()
		return nil, err
	}
	if len(p.query.Before) > 0 {
		v := &statementView{pins: pins, overlay: r.query.Overlay, tables: withTables{system: r.query.Virtual, returned: map[string]*types.Chunk{}}}
		for _, w := range p.query.Before {
			if err := ss.runOnce(ctx, w, args, v); err != nil {
				r.release()
				return nil, err
			}
		}
		r.query.Virtual = &v.tables
	}
	return r, nil
}

// pin returns the versions for a query: the transaction block's snapshot, or the newest common epoch that covers the session's own writes. Indexes
// of materialized views are pinned with them where they can be read. It fails with 40001 when the plan, which is of snap, is not for the rows.
func (ss *session) pin(ctx context.Context, ids, indexes []uint64, snap *catalog.Snapshot) (pins *exec.Pinned, own bool, err error) {
	if pins, own, err = ss.pinAny(ctx, ids, indexes); err != nil {
		return nil, false, err
	}
	for _, id := range ids {
		if v := pins.Versions[id]; v != nil {
			if err := ss.planFits(ctx, snap, v); err != nil {
				if own {
					pins.Release()
				}
				return nil, false, err
			}
		}
	}
	return pins, own, nil
}

// planFits checks that a plan made from snap can read the rows of a version: a change of the table may have replaced them all.
func (ss *session) planFits(ctx context.Context, snap *catalog.Snapshot, v *exec.Version) error {
	o, ok := snap.Get(v.Relation.ID)
	if !ok || v.Layout().Generation == o.Rewrites || o.Kind != catalog.Table && o.Kind != catalog.MaterializedView {
		return nil
	}
	if v.Layout().Generation > o.Rewrites && (!ss.tx.explicit || o.Kind == catalog.MaterializedView) {
		// Its transaction makes the new definition known in a moment.
		unlock, err := ss.srv.locks.shared(ctx, ss, lockTag{kind: lockCommit, table: o.ID})
		if err != nil {
			return err
		}
		unlock()
	}
	e := pgerr.Newf(pgerr.SerializationFailure, "could not serialize access due to a concurrent change of %s %q", o.Kind, o.Name)
	e.Schema, e.Table = o.Schema, o.Name
	return e
}

func (ss *session) pinAny(ctx context.Context, ids, indexes []uint64) (pins *exec.Pinned, own bool, err error) {
	e := ss.srv.engine
	ids = slices.DeleteFunc(slices.Clone(ids), func(id uint64) bool { // system relations and sequences have no versions
		o, ok := ss.snapshot().Get(id)
		return !catalog.IsUserID(id) || ok && o.Kind == catalog.Sequence
	})
	if ss.tx.explicit && ss.tx.snapshot == nil {
		ss.tx.snapshot = e.Snapshot()
	}
	for {
		rels, err := e.RelationsWith(ids, indexes, ss.tx.hidden()) // indexes may have been dropped since the query was planned
		if err != nil {
			return nil, false, err
		}
		if own = ss.tx.snapshot == nil; own {
			// A table is seen with all that is committed, so views beside it are waited for.
			pins, err = e.Pin(ctx, rels, max(ss.written, exec.TablesChanged(rels)))
		} else {
			pins, err = ss.tx.snapshot.Pin(ctx, rels)
		}
		if err != nil || !slices.ContainsFunc(rels, (*exec.Relation).Superseded) {
			return pins, own, err
		}
		if own {
			pins.Release()
		}
	}
}

// warnAbout tells the reader of views that miss rows or lag behind, or fails where the view asks for that.
// read are the relations of the statement: a block's snapshot holds others too.
func (ss *session) warnAbout(pins *exec.Pinned, read []uint64) error {
	snap := ss.snapshot()
	name := func(id uint64) string {
		if o, ok := snap.Get(id); ok {
			return o.Name
		}
		return "" // its reader holds what it read before somebody dropped it
	}
	for _, id := range pins.Stale {
		if err := ss.notice("WARNING", pgerr.Warning, "materialized view %q does not advance at present: its rows are those of an earlier moment", name(id)); err != nil {
			return err
		}
	}
	var told []*exec.Job
	for _, id := range read {
		j, ok := ss.srv.engine.Job(id)
		if !ok || pins.Versions[id] == nil {
			continue
		}
		for _, j := range j.Upstream() {
			n := j.ErrorCount()
			if n == 0 || slices.Contains(told, j) {
				continue
			}
			told = append(told, j)
			view := j.Spec.Name
			if r := j.Relation(); r != nil && name(r.ID) != "" {
				view = name(r.ID)
			}
			if j.Raises() {
				if r, ok := j.FirstFailed(); ok {
					return pgerr.Newf(r.Code, "%s", r.Message).WithDetail("Row %s of materialized view %q.", r.Row, view)
				}
			}
			are, their := "rows are", "their"
			if n == 1 {
				are, their = "row is", "its"
			}
			if err := ss.notice("WARNING", pgerr.Warning, "%d %s missing from materialized view %q because %s evaluation failed; see streamdb.errors", n, are, view, their); err != nil {
				return err
			}
		}
	}
	return nil
}

// pointRead is the shape `SELECT columns FROM relation WHERE key = constants`: it needs no operators.
type pointRead struct {
	relation uint64
	key      []*expr.Expr
	columns  []int // stored columns of the result

	// What one execution leaves for the next.
	fields  []pgwire.FieldDescription
	formats []pgwire.Format // of fields
	values  []types.Datum
	layout  *types.RowLayout // of row
	row     *types.Chunk
	out     types.Chunk
}

// maxKeptRow bounds the strings of a row that a point read keeps until the next one.
const maxKeptRow = 16 << 10

// describe returns the columns of the result.
func (r *pointRead) describe(p *prepared, formats []pgwire.Format) []pgwire.FieldDescription {
	if r.fields == nil || !slices.Equal(r.formats, formats) {
		r.fields, r.formats = fields(p.columns, p.origins, formats), slices.Clone(formats)
	}
	return r.fields
}

// read looks the row with the key up in v; nil: there is none.
func (r *pointRead) read(v *exec.Version) (*types.Chunk, error) {
	if l := v.Layout(); r.row == nil || r.layout != l {
		r.layout, r.row = l, types.NewChunk(l.Types)
		r.out = types.Chunk{Cols: make([]*types.Vector, len(r.columns)), N: 1}
		for i, c := range r.columns {
			r.out.Cols[i] = r.row.Cols[c]
		}
	}
	r.row.Reset()
	found, err := v.Lookup(r.values, r.row)
	if err != nil || !found {
		return nil, err
	}
	return &r.out, nil
}

// trim lets go of a large row.
func (r *pointRead) trim() {
	n := 0
	for _, v := range r.row.Cols {
		for _, s := range v.Str {
			n += len(s)
		}
	}
	if n > maxKeptRow {
		r.row = nil
	}
}

func pointReadOf(q *planner.Planned) *pointRead {
	n := q.Plan.Fragments[0].Root.Inputs[0]
	cols := make([]int, len(q.Columns))
	for i := range cols {
		cols[i] = i
	}
	for n.Kind == plan.KindProject {
		for i, c := range cols {
			e := n.Project.Exprs[c]
			if e.Kind != expr.Column {
				return nil
			}
			cols[i] = e.Col
		}
		n = n.Inputs[0]
	}
	if n.Kind != plan.KindScan || n.Scan.Point == nil || n.Scan.Virtual != "" {
		return nil
	}
	for i, c := range cols {
		cols[i] = n.Scan.Columns[c]
	}
	return &pointRead{relation: n.Scan.Relation, key: n.Scan.Point, columns: cols}
}

func (d *dispatch) pointRead(st *sql.Query, p *prepared) error {
	ss := d.ss
	if err := ss.authorize(p); err != nil {
		return err
	}
	rel, ok := ss.srv.engine.Relation(p.point.relation)
	if !ok {
		return pgerr.Newf(pgerr.UndefinedTable, "relation %d does not exist any more", p.point.relation)
	}
	v, pins, err := ss.srv.engine.PinOne(d.ctx, rel, ss.written)
	if rel.Superseded() {
		switch {
		case pins != nil:
			pins.Release()
		case v != nil:
			v.Release()
		}
		return d.pointRead(st, p)
	}
	if err != nil {
		return err
	}
	if pins != nil {
		defer pins.Release()
		if err := ss.warnAbout(pins, []uint64{rel.ID}); err != nil {
			return err
		}
	} else {
		defer v.Release()
	}
	if err := ss.planFits(d.ctx, p.snap, v); err != nil {
		if p.snap == ss.snapshot() {
			return err
		}
		return d.query(st)
	}
	r := p.point
	r.values = r.values[:0]
	var env *expr.Env
	for _, e := range r.key {
		if e.Kind == expr.Param && d.args[e.Col-1].Type == e.Type {
			r.values = append(r.values, d.args[e.Col-1])
			continue
		}
		if env == nil {
			env = ss.env(d.args)
		}
		value, err := expr.EvalConst(e, env, ss.srv.registry)
		if err != nil {
			return err
		}
		r.values = append(r.values, value)
	}
	if err := d.w.RowDescription(r.describe(p, d.formats)); err != nil {
		return err
	}
	row, err := r.read(v)
	if err != nil {
		return err
	}
	if row == nil {
		return d.complete("SELECT 0")
	}
	err = d.w.Rows(row)
	if r.trim(); err != nil {
		return err
	}
	return d.complete("SELECT 1")
}

// planOptions are the planner's options of a statement of this session.
func (ss *session) planOptions(snap snapshotView, params []types.Type) planner.Options {
	iterations, _ := strconv.ParseInt(ss.vars.get("max_recursion_iterations"), 10, 64) // checked when it was set
	bytes, _ := memoryBytes(ss.vars.get("max_recursion_memory"))
	lookups, _ := strconv.ParseInt(ss.vars.get("lookup_join_rows"), 10, 64)
	path := ss.visiblePath(snap, ss.vars.searchPath())
	return planner.Options{
		LookupJoinRows:         lookups + 1,
		MaxRecursionIterations: iterations, MaxRecursionBytes: bytes,
		Catalog: ss.srv.planCatalog(snap, path), Registry: ss.srv.registry, SearchPath: path, Params: params,
		DisabledRules: ss.vars.disabledRules(), Env: ss.env(nil), Database: databaseName, Checkpoint: ss.checkpointRelation,
	}
}

// rows writes a small result made by the server itself.
func (d *dispatch) rows(columns types.Schema, rows [][]types.Datum, tag string) error {
	if err := d.w.RowDescription(fields(columns, nil, d.formats)); err != nil {
		return err
	}
	c := types.NewChunk(columns.Types())
	for _, r := range rows {
		for i, v := range r {
			c.Cols[i].AppendDatum(v)
		}
		c.PushWeight(1)
		if c.N == types.MaxChunkRows {
			if err := d.w.Rows(c); err != nil {
				return err
			}
			c.Reset()
		}
	}
	if c.N > 0 {
		if err := d.w.Rows(c); err != nil {
			return err
		}
	}
	return d.complete(tag)
}

func text(s string) types.Datum { return types.Datum{Type: types.Text, Str: s} }

func int8d(n int64) types.Datum { return types.Datum{Type: types.Int8, Int: n} }

// endless reports whether a one-shot plan reads a source that produces rows for ever. Sources of stored data have an end at any moment; of
// generators only those that were told how many rows to make.
func (s *Server) endless(ctx context.Context, p *plan.Plan) bool {
	endless := false
	for _, f := range p.Fragments {
		f.Root.Walk(func(n *plan.Node) {
			if n.Kind != plan.KindSource || endless {
				return
			}
			c, err := s.cfg.Connectors.Lookup(n.Source.Connector)
			if err != nil || c.NeedsEncode() {
				return // opening it reports what is wrong
			}
			src, err := c.Source(ctx, &connector.SourceConfig{Name: n.Source.Name, Options: n.Source.Options, Columns: n.Source.Declared})
			if err != nil {
				return
			}
			endless = !src.Bounded()
			_ = src.Close() // a generator holds nothing
		})
	}
	return endless
}
