package server

import (
	"context"
	"fmt"
	"slices"

	"github.com/streamdb/streamdb/catalog"
	"github.com/streamdb/streamdb/exec"
	"github.com/streamdb/streamdb/internal/pgerr"
	"github.com/streamdb/streamdb/planner"
	"github.com/streamdb/streamdb/sql"
	"github.com/streamdb/streamdb/types"
)

// statementView is what all parts of one statement see, however many of them change data: the same versions and the same uncommitted rows,
// and the rows that those before them returned.
type statementView struct {
	pins    *exec.Pinned
	overlay map[uint64]*exec.OwnRows
	tables  withTables
}

// withTables are the rows returned by the statements of a WITH clause, beside the system relations.
type withTables struct {
	system   exec.VirtualTables
	returned map[string]*types.Chunk
}

// Rows implements exec.VirtualTables.
func (w *withTables) Rows(ctx context.Context, name string, columns []int, emit func(*types.Chunk) error) error {
	all, ok := w.returned[name]
	if !ok {
		return w.system.Rows(ctx, name, columns, emit)
	}
	ts := make([]types.Type, len(columns))
	for i, c := range columns {
		ts[i] = all.Cols[c].Type
	}
	for from := 0; from < all.N; from += types.MaxChunkRows {
		part := types.NewChunk(ts)
		to := min(from+types.MaxChunkRows, all.N)
		for i, c := range columns {
			part.Cols[i].AppendRange(all.Cols[c], from, to)
		}
		part.N = to - from
		if err := emit(part); err != nil {
			return err
		}
	}
	return nil
}

// withChanges runs a statement whose WITH clause changes data, and commits when it is alone in its transaction. Main runs the statement itself;
// it may be called again when another transaction was faster.
func (d *dispatch) withChanges(p *prepared, before []planner.PlannedWith, targets, reads []uint64, main func(*statementView) error) error {
	ss := d.ss
	alone := !ss.tx.explicit && len(ss.tx.writes) == 0 && d.last
	reads = append(reads, readsOf(before)...)
	for _, w := range before {
		if w.Change != nil {
			targets = append(targets, w.Change.Target.ID)
		}
	}
	slices.Sort(targets)
	targets = slices.Compact(targets)
	for try := 0; ; try++ {
		ss.explaining.again()
		err := d.withChangesOnce(p, before, targets, append(reads, targets...), main)
		if err == nil || !alone || pgerr.CodeOf(err) != pgerr.SerializationFailure || try == maxConflictRetries || p.snap != ss.snapshot() {
			return err
		}
		ss.tx.release()
		ss.tx.begin()
	}
}

// conflicts reports whether a statement failed because another transaction was faster: with its rows, or with what the plan refers to, such as the
// sequence of a default that is gone.
func (ss *session) conflicts(p *prepared, err error) bool {
	code := pgerr.CodeOf(err)
	return code == pgerr.SerializationFailure || code == pgerr.InternalError && p.snap != ss.snapshot()
}

// replanned runs a statement with changes in its WITH clause, and anew where the catalog changed meanwhile and another transaction was faster.
func (d *dispatch) replanned(p *prepared, run, again func() error) error {
	ss := d.ss
	alone := !ss.tx.explicit && len(ss.tx.writes) == 0 && d.last
	err := run()
	if !alone || !ss.conflicts(p, err) || p.snap == ss.snapshot() {
		return err
	}
	ss.tx.release()
	ss.tx.begin()
	return again()
}

func (d *dispatch) withChangesOnce(p *prepared, before []planner.PlannedWith, targets, reads []uint64, main func(*statementView) error) error {
	ss := d.ss
	if ss.ordersChanges() {
		// In ascending order, like everybody who takes several.
		for _, id := range targets {
			unlock, err := ss.lockTable(d.ctx, id)
			if err != nil {
				return err
			}
			defer unlock()
		}
	}
	pins, own, err := ss.pin(d.ctx, reads, p.indexes(), p.snap)
	if err != nil {
		return err
	}
	if own {
		defer pins.Release()
	}
	if err := ss.warnAbout(pins, reads); err != nil {
		return err
	}
	v := &statementView{pins: pins, overlay: ss.tx.overlay(reads), tables: withTables{system: &systemTables{ss: ss}, returned: map[string]*types.Chunk{}}}
	for _, w := range before {
		if w.Query != nil {
			if err := d.ss.runOnce(d.ctx, w, d.args, v); err != nil {
				return err
			}
			continue
		}
		obj, err := changeTarget(p.snap, w.Change)
		if err != nil {
			return err
		}
		c := &changer{d: d, p: &prepared{stmt: w.Statement, change: w.Change, snap: p.snap}, obj: obj, view: v}
		if err := c.run(); err != nil {
			return err
		}
		if c.out != nil {
			v.tables.returned[w.Table] = c.out
		}
	}
	if err := main(v); err != nil {
		return err
	}
	return d.endStatement()
}

// readsOf are the relations that the parts of a WITH clause read.
func readsOf(before []planner.PlannedWith) []uint64 {
	var ids []uint64
	for _, w := range before {
		if w.Query != nil {
			ids = append(ids, w.Query.Plan.Inputs...)
		} else {
			ids = append(ids, w.Change.Plan.Inputs...)
		}
	}
	return ids
}

// indexes are the indexes of materialized views that the statement would read, its WITH clause included.
func (p *prepared) indexes() []uint64 {
	var ids []uint64
	add := func(q *planner.Planned) {
		ids = append(ids, q.Plan.Indexes...)
		for _, w := range q.Before {
			if w.Query != nil {
				ids = append(ids, w.Query.Plan.Indexes...)
			} else {
				ids = append(ids, w.Change.Plan.Indexes...)
			}
		}
	}
	if p.query != nil {
		add(p.query)
	}
	if p.change != nil {
		add(&p.change.Planned)
	}
	return ids
}

// runOnce evaluates a query of a WITH clause and keeps its rows for those that refer to it.
func (ss *session) runOnce(ctx context.Context, w planner.PlannedWith, args []types.Datum, v *statementView) error {
	rows := types.NewChunk(w.Query.Columns.Types())
	visible := len(rows.Cols)
	q := &exec.Query{Plan: w.Query.Plan, Env: ss.env(args), Pinned: v.pins, Virtual: &v.tables, Overlay: v.overlay, Profile: ss.explaining.counts()}
	q.Emit = func(c *types.Chunk) error {
		part := *c
		part.Cols = part.Cols[:visible]
		for i := range part.Rows() {
			r := part.Row(i)
			for range part.Weight(r) {
				rows.AppendRow(&part, r, 1)
			}
		}
		return nil
	}
	if err := ss.srv.engine.Run(ctx, q); err != nil {
		return err
	}
	v.tables.returned[w.Table] = rows
	return nil
}

// changeTarget returns the table that a planned change is of.
func changeTarget(snap *catalog.Snapshot, p *planner.PlannedChange) (*catalog.Object, error) {
	obj, ok := snap.Get(p.Target.ID)
	if !ok || obj.Kind != catalog.Table {
		return nil, pgerr.Newf(pgerr.WrongObjectType, "cannot change %q", p.Target.Name).WithHint("Only tables can be written to.")
	}
	return obj, nil
}

// changeWith runs an INSERT, UPDATE or DELETE whose WITH clause changes data too.
func (d *dispatch) changeWith(p *prepared, obj *catalog.Object, st sql.Statement) error {
	var c *changer
	err := d.withChanges(p, p.change.Before, []uint64{obj.ID}, slices.Clone(p.change.Plan.Inputs), func(v *statementView) error {
		c = &changer{d: d, p: p, obj: obj, view: v}
		return c.run()
	})
	if err != nil {
		return err
	}
	return c.report(st)
}

// queryWith runs a query whose WITH clause changes data. Its rows are sent when everything has been done.
func (d *dispatch) queryWith(p *prepared) error {
	ss := d.ss
	if p.query.Plan.Unbounded && ss.srv.endless(d.ctx, p.query.Plan) {
		return pgerr.Newf(pgerr.FeatureNotSupported, "the query reads a source that never ends").WithHint("Create a materialized view over it and query that.")
	}
	var rows []*types.Chunk
	n := int64(0)
	visible := len(p.columns)
	err := d.withChanges(p, p.query.Before, nil, slices.Clone(p.query.Plan.Inputs), func(v *statementView) error {
		rows, n = nil, 0
		q := &exec.Query{Plan: p.query.Plan, Env: ss.env(d.args), Pinned: v.pins, Virtual: &v.tables, Overlay: v.overlay, Profile: ss.explaining.counts()}
		q.Emit = func(c *types.Chunk) error {
			out := *c
			out.Cols = out.Cols[:visible]
			n += rowCount(&out)
			rows = append(rows, out.Clone())
			return nil
		}
		return ss.srv.engine.Run(d.ctx, q)
	})
	if err != nil {
		return err
	}
	if err := d.w.RowDescription(fields(p.columns, p.origins, d.formats)); err != nil {
		return err
	}
	for _, c := range rows {
		if err := d.w.Rows(c); err != nil {
			return err
		}
	}
	return d.w.CommandComplete(fmt.Sprintf("SELECT %d", n))
}
