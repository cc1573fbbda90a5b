package server

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/streamdb/streamdb/catalog"
	"github.com/streamdb/streamdb/checkpoint"
	"github.com/streamdb/streamdb/exec"
	"github.com/streamdb/streamdb/internal/pgerr"
	"github.com/streamdb/streamdb/planner"
	"github.com/streamdb/streamdb/planner/plan"
	"github.com/streamdb/streamdb/sql"
)

// A materialized view gets another query while it is read: CREATE OR REPLACE MATERIALIZED VIEW, ALTER MATERIALIZED VIEW … AS. The view, and every
// view and index that reads it, gets a second job with a hidden relation beside the running one. When all have caught up, the relations take the
// places of the old ones in one step together with the catalog's change, and the old jobs end. Until then nothing of the old ones was touched, so
// that any failure leaves them as they are; after a crash the catalog says which jobs count.

// replacement is a new query of a view in the making.
type replacement struct {
	d     *dispatch
	st    *sql.CreateMaterializedView
	view  uint64
	query string // the query that it replaces
	// parts are what gets a new job: the view first, and what is read before its readers.
	parts   []*replacedPart
	notices []*pgerr.Error // of the planner
}

type replacedPart struct {
	now  *catalog.Object
	was  uint64 // the job that it has now
	kept *plan.Kept
	plan *plan.Plan
	anew []*plan.Node // of plan: what it has put out cannot be computed again, and is not kept
	job  *exec.Job
}

// maxReplaceRounds bounds how often a replacement begins again because what reads the view, or the view itself, was changed meanwhile.
const maxReplaceRounds = 10

// replaceView gives a view another query. unlock gives back the schema lock, which is held.
func (d *dispatch) replaceView(st *sql.CreateMaterializedView, old *catalog.Object, tag string, unlock func()) (err error) {
	defer func() { unlock() }()
	if err := d.ss.mustOwn(old, false); err != nil {
		return err
	}
	r := &replacement{d: d, st: st, view: old.ID, query: old.Query}
	done := false
	defer func() {
		if !done { // it may have panicked
			err = errors.Join(err, r.drop(r.parts))
		}
	}()
	for round := 0; ; round++ {
		started, err := r.prepare()
		if err != nil {
			return err
		}
		if !started {
			break
		}
		if round == maxReplaceRounds {
			return pgerr.Newf(pgerr.ObjectInUse, "cannot replace the query of materialized view %q: what reads it is changed all the time", old.Name)
		}
		unlock()
		unlock = func() {}
		if err := r.wait(); err != nil {
			return err
		}
		if unlock, err = d.lockSchema(); err != nil {
			unlock = func() {}
			return err
		}
	}
	if err := r.swap(); err != nil {
		return err
	}
	done = true
	d.tell(append(r.notices, d.ss.srv.staysAligned(r.parts[0].now)...))
	return d.complete(tag)
}

// prepare plans all parts against the catalog as it is, and starts a job for each that has none for its plan. started is false when all have one.
func (r *replacement) prepare() (started bool, err error) {
	planned, err := r.plan()
	if err != nil {
		return false, err
	}
	reads := r.d.ss.tx.hidden()
	var parts []*replacedPart
	for _, p := range planned {
		o := p.now
		i := slices.IndexFunc(r.parts, func(q *replacedPart) bool { return q.now.ID == o.ID })
		// What reads the new job of another part gets a new one, too, and what reads a view that has got another query meanwhile.
		if i >= 0 && !started && !r.parts[i].job.Outdated() && bytes.Equal(r.parts[i].now.Plan, o.Plan) && maps.Equal(r.parts[i].now.Settings, o.Settings) {
			p.job = r.parts[i].job
			o.Job = r.parts[i].now.Job
		} else {
			if err = r.start(p, maps.Clone(reads)); err != nil {
				break
			}
			started = true
		}
		parts = append(parts, p)
		reads[o.ID] = p.job.Relation()
	}
	kept := func(p *replacedPart) bool {
		return slices.ContainsFunc(parts, func(q *replacedPart) bool { return q.job == p.job })
	}
	gone := slices.DeleteFunc(r.parts, kept)
	r.parts = parts
	return started, errors.Join(err, r.drop(gone))
}

// start makes the job of a part.
func (r *replacement) start(p *replacedPart, reads map[uint64]*exec.Relation) error {
	d, srv := r.d, r.d.ss.srv
	// The id is stored as given out before anything has it.
	if err := d.ss.update(func(tx *catalog.Tx) error { p.now.Job = tx.NextID(); return nil }); err != nil {
		return err
	}
	spec, err := jobSpec(p.now)
	if err != nil {
		return err
	}
	spec.Hidden, spec.Reads, spec.Checkpoints = true, reads, srv.ownCheckpoints(p.now)
	if p.kept != nil {
		from, ok := srv.engine.JobWithID(p.was)
		if ok {
			from.StayAligned(true) // until it is gone
			d.atRollback(func(context.Context) error { from.StayAligned(false); return nil })
		}
		switch {
		case ok && srv.checkpointed(d.ctx, from):
			spec.Adopt = &exec.Adoption{From: from, Kept: p.kept}
		case p.kept.Lasting:
			return pgerr.Newf(pgerr.ObjectNotInPrerequisiteState, "the state of %s %q cannot be kept because there is no checkpoint of it", p.now.Kind, p.now.Name)
		}
	}
	if err := r.warn(p); err != nil {
		return err
	}
	if p.job, err = srv.engine.CreateJob(*spec, nil); err != nil {
		return err
	}
	r.parts = append(r.parts, p)
	id := spec.ID
	d.atRollback(func(context.Context) error { return srv.closeJob(id) })
	if p.job.Adopts() {
		err = r.tellKept(p)
	}
	p.job.Start()
	return err
}

// tellKept says which operators of a part go on with their state.
func (r *replacement) tellKept(p *replacedPart) error {
	var ops []string
	for _, f := range p.plan.Fragments {
		f.Root.Walk(func(n *plan.Node) {
			if !p.kept.Roots[n.ID] {
				return
			}
			for n.Kind == plan.KindExchange {
				n = p.plan.Sender(n.Exchange)
			}
			ops = append(ops, fmt.Sprintf("%s (operator %d)", planner.OperatorTitle(p.plan, n), n.ID))
		})
	}
	n := note("operators of %s %q that keep their state, with all below them: %s", p.now.Kind, p.now.Name, strings.Join(ops, ", "))
	if again := p.plan.Again(p.kept); len(again) > 0 {
		n = n.WithDetail("Read again: %s.", strings.Join(again, ", "))
	}
	return r.d.ss.notifier.Notice(n)
}

// warn says, before a part is filled, what will be missing from it or be different because it cannot be computed again.
func (r *replacement) warn(p *replacedPart) error {
	for _, n := range p.anew {
		w := pgerr.Newf(pgerr.Warning, "what %s has put out for %s %q is not kept", planner.OperatorTitle(p.plan, n), p.now.Kind, p.now.Name).
			WithDetail("It is computed anew from what is there now, without what has left since and with what came too late.")
		if n.Kind == plan.KindSource {
			w = pgerr.Newf(pgerr.Warning, "source %q is read again from where its options say that it begins, for %s %q", n.Source.Name, p.now.Kind, p.now.Name).
				WithDetail("Rows that it does not give any more will be missing.")
		}
		w = w.WithHint("Cancel the statement to leave the view as it is. State is kept of what the new query has unchanged, and of the whole of the old query where the new one reads from it: SELECT … FROM (old query) x.")
		w.Severity = "WARNING"
		if err := r.d.ss.notifier.Notice(w); err != nil {
			return err
		}
	}
	return nil
}

// checkpointed reports whether a job has a completed checkpoint whose state can be taken over, making one where it has none: of all jobs, since one of some would leave the
// others behind the tables, and after a crash they would begin from their inputs.
func (s *Server) checkpointed(ctx context.Context, j *exec.Job) bool {
	for n := 0; n < alignedAttempts && !j.Takeable(); n++ {
		if _, err := s.coord.TriggerWith(ctx, checkpoint.TriggerRequest{Class: checkpoint.ClassForced}); err != nil {
			return false // everything is read from the inputs then
		}
	}
	return j.Takeable()
}

// alignedAttempts bounds how many checkpoints are made until one is complete that did not overtake rows: the first may be followed by one that had begun before.
const alignedAttempts = 2

// plan returns the catalog's objects as they will be: the view's and those of what reads it, views and indexes.
func (r *replacement) plan() ([]*replacedPart, error) {
	d := r.d
	snap := d.ss.snapshot()
	cur, ok := snap.Get(r.view)
	if !ok {
		return nil, pgerr.Newf(pgerr.QueryCanceled, "materialized view %q was dropped while its query was being replaced", r.st.Name.Name)
	}
	if cur.Query != r.query {
		return nil, pgerr.Newf(pgerr.SerializationFailure, "could not serialize access due to a concurrent change of materialized view %q", cur.Name)
	}
	if err := complete(cur); err != nil {
		return nil, err
	}
	now, err := r.define(snap, cur)
	if err != nil {
		return nil, err
	}
	dependents := snap.Dependents(r.view)
	slices.Reverse(dependents)
	if slices.Contains(now.DependsOn, r.view) || slices.ContainsFunc(dependents, func(o *catalog.Object) bool { return slices.Contains(now.DependsOn, o.ID) }) {
		return nil, pgerr.Newf(pgerr.InvalidObjectDefinition, "infinite recursion detected in rules for relation %q", cur.Name)
	}
	for _, o := range append([]*catalog.Object{cur}, dependents...) {
		dependents = append(dependents, snap.IndexesOf(o.ID)...)
	}
	if len(dependents) > 0 {
		if err := keepsColumns(cur, now); err != nil {
			return nil, err
		}
	}
	out := []*replacedPart{{now: now, was: cur.JobID()}}
	before, trial := snap, snap.With(now)
	for _, o := range dependents {
		switch {
		case o.Kind == catalog.Sink:
			err = pgerr.Newf(pgerr.FeatureNotSupported, "what it has written cannot be taken back")
		case o.Kind == catalog.View:
			err = d.viewMeans(before, trial, o)
		case o.Plan != nil:
			var c *catalog.Object
			if c, err = d.planAgain(trial, o); err == nil {
				out = append(out, &replacedPart{now: c, was: o.JobID()})
				trial = trial.With(c)
			}
		}
		if pgerr.CodeOf(err) == pgerr.ObjectNotInPrerequisiteState {
			return nil, err
		}
		if err != nil {
			return nil, pgerr.Newf(pgerr.DependentObjectsStillExist, "cannot replace the query of %s because other objects depend on it", d.describe(cur)).
				WithDetail("%s would not be what it is any more: %v.", d.describe(o), err).WithHint("Drop it first, and create it again afterwards.")
		}
	}
	changed := func(id uint64) bool {
		return slices.ContainsFunc(out, func(p *replacedPart) bool { return p.now.ID == id })
	}
	for _, p := range out {
		old, _ := snap.Get(p.now.ID)
		if err := p.keep(old, changed); err != nil {
			return nil, err
		}
	}
	return out, nil
}

// keep finds the operators whose state the new job can take over, and gives them the ids that they have in the old one.
func (p *replacedPart) keep(old *catalog.Object, changed func(uint64) bool) error {
	var was, is plan.Plan
	if err := errors.Join(json.Unmarshal(old.Plan, &was), json.Unmarshal(p.now.Plan, &is)); err != nil {
		return pgerr.Wrap(pgerr.DataCorrupted, err, "stored plan of %q is malformed", old.Name)
	}
	p.kept = is.Keep(&was, changed)
	p.plan, p.anew = &is, is.Anew(&was, p.kept)
	data, err := json.Marshal(&is)
	p.now.Plan = data
	return err
}

// define makes the view's object with the new query.
func (r *replacement) define(snap *catalog.Snapshot, cur *catalog.Object) (*catalog.Object, error) {
	d, st := r.d, r.st
	o := *cur
	o.Query, o.SearchPath, o.Columns, o.Rewrites = queryText(st.Query), d.ss.vars.storedPath(), nil, cur.Rewrites+1
	o.EmitOnClose = st.EmitOnWindowClose
	o.Settings = maps.Clone(cur.Settings)
	delete(o.Settings, settingBackground)
	given, names, background, err := d.viewOptions(st.Options)
	if err != nil {
		return nil, err
	}
	for _, opt := range st.Options {
		if strings.EqualFold(opt.Name, settingBackground) && background {
			return nil, pgerr.Newf(pgerr.FeatureNotSupported, "the query of a materialized view cannot be replaced in the background").At(opt.Pos)
		}
	}
	for _, n := range names {
		o.Settings[n] = given[n]
		o.Options = withOption(o.Options, n, true)
	}
	if len(names) > 0 {
		if err := d.ss.srv.settings.checkCheckpoints(o.Settings); err != nil {
			return nil, err
		}
	}
	opts := d.ss.planOptions(snap, nil)
	opts.Relation = o.ID
	if err := jobOptions(&opts, st, o.Settings); err != nil {
		return nil, err
	}
	if r.notices, err = d.planInto(snap, &o, st.Query, st.Columns, opts); err != nil {
		return nil, err
	}
	for i := range o.Columns {
		if k := cur.Column(o.Columns[i].Name); k >= 0 && !o.Columns[i].Hidden && !cur.Columns[k].Hidden {
			o.Columns[i].Comment, o.Columns[i].ACL = cur.Columns[k].Comment, cur.Columns[k].ACL
		}
	}
	return &o, nil
}

// planInto plans the query of a materialized view and notes in its object what follows from that. It returns what whoever makes the view is to hear.
func (d *dispatch) planInto(snap *catalog.Snapshot, o *catalog.Object, query *sql.Query, names []sql.Ident, opts planner.Options) (notices []*pgerr.Error, err error) {
	q, err := planner.PlanStream(query, opts)
	if err != nil {
		return nil, err
	}
	if err := d.ss.mayAccess(q.Access); err != nil {
		return nil, err
	}
	if len(q.Params) > 0 {
		return nil, pgerr.Newf(pgerr.UndefinedParameter, "there is no parameter $1")
	}
	if err := viewColumns(o, q, names); err != nil {
		return nil, err
	}
	if refersToTemporary(snap, q.Relations) != "" {
		return nil, pgerr.Newf(pgerr.FeatureNotSupported, "materialized views must not use temporary tables or views")
	}
	if err := complete(objectsOf(snap, q.Relations)...); err != nil {
		return nil, err
	}
	o.DependsOn = q.Relations
	d.keepText(snap, o, query, q.Stars)
	if o.Plan, err = json.Marshal(q.Plan); err != nil {
		return nil, fmt.Errorf("encode plan: %w", err)
	}
	return q.Notices, nil
}

// keepsColumns checks that a view with another query still has the columns that others read: more may follow them.
func keepsColumns(old, now *catalog.Object) error {
	hint := "Drop what depends on the view first."
	for i, c := range old.Columns {
		if c.Hidden {
			continue
		}
		if i >= len(now.Columns) || now.Columns[i].Hidden {
			return pgerr.Newf(pgerr.InvalidTableDefinition, "cannot drop columns from view").WithHint("%s", hint)
		}
		if n := now.Columns[i]; n.Name != c.Name {
			return pgerr.Newf(pgerr.InvalidTableDefinition, "cannot change name of view column %q to %q", c.Name, n.Name).
				WithHint("Use ALTER VIEW ... RENAME COLUMN ... to change name of view column instead.")
		} else if n.Type != c.Type {
			return pgerr.Newf(pgerr.InvalidTableDefinition, "cannot change data type of view column %q from %s to %s", c.Name, c.Type, n.Type).WithHint("%s", hint)
		}
	}
	return nil
}

// wait waits until all parts have caught up, or one of them cannot any more.
func (r *replacement) wait() error {
	jobs := make([]*exec.Job, len(r.parts))
	for i, p := range r.parts {
		jobs[i] = p.job
		if err := r.d.filled(p.job); err != nil {
			return err
		}
		if p.now.Kind == catalog.Index {
			if err := failedKey(p.job); err != nil {
				return err
			}
		}
	}
	if err := r.d.ss.srv.engine.WaitClosed(r.d.ctx, jobs); err != nil {
		return err
	}
	// What cannot be computed again must be there after a crash, too.
	if slices.ContainsFunc(r.parts, func(p *replacedPart) bool { return p.job.Adopts() && p.kept.Lasting && !p.job.Checkpointed() }) {
		if _, err := r.d.ss.srv.coord.Trigger(r.d.ctx, nil); err != nil {
			return err
		}
	}
	return nil
}

// swap puts the new jobs in the place of the old ones: now, or with the transaction's other changes of the schema.
func (r *replacement) swap() error {
	d, ss := r.d, r.d.ss
	change := func(tx *catalog.Tx) error {
		for _, p := range r.parts {
			if err := tx.Replace(p.now); err != nil {
				return err
			}
		}
		return nil
	}
	jobs := map[uint64]*exec.Job{}
	for _, p := range r.parts {
		jobs[p.now.ID] = p.job
		if p.now.Paused {
			p.job.Pause()
		}
	}
	if ss.tx.schema == nil {
		old, err := ss.swapIn(d.ctx, jobs, func() error { return ss.update(change) })
		if err != nil {
			return err
		}
		return ss.srv.closeJobs(old)
	}
	if err := ss.update(change); err != nil {
		return err
	}
	before := ss.tx.replaced
	d.atRollback(func(context.Context) error { ss.tx.replaced = before; return nil })
	ss.tx.replaced = maps.Clone(before)
	if ss.tx.replaced == nil {
		ss.tx.replaced = map[uint64]*exec.Job{}
	}
	maps.Copy(ss.tx.replaced, jobs)
	for id, j := range before {
		if jobs[id] == nil {
			continue
		}
		if err := d.atCommit(func(context.Context) error { return ss.srv.closeJob(j.Spec.ID) }); err != nil {
			return err
		}
	}
	return nil
}

// swapIn makes the hidden relations of jobs, by the ids of those, the ones that everybody knows, in one step with the change of the catalog that
// publish makes. It returns the jobs of those that were known before.
func (ss *session) swapIn(ctx context.Context, jobs map[uint64]*exec.Job, publish func() error) (old []*exec.Job, err error) {
	if len(jobs) == 0 {
		return nil, publish()
	}
	// Who reads the new rows with a plan of the old query waits here until the new one is known.
	for _, id := range slices.Sorted(maps.Keys(jobs)) {
		unlock, err := ss.srv.locks.exclusive(ctx, ss, lockTag{kind: lockCommit, table: id})
		if err != nil {
			return nil, err
		}
		defer unlock()
	}
	old = ss.srv.engine.Swap(slices.Collect(maps.Values(jobs)))
	if err := ss.srv.cfg.Failpoints.Hit("view/swapped"); err != nil {
		ss.srv.engine.Swap(old)
		return nil, err
	}
	if err := publish(); err != nil {
		ss.srv.engine.Swap(old)
		return nil, err
	}
	for id := range jobs {
		if o, ok := ss.srv.catalog.Snapshot().Get(id); ok {
			if err := ss.srv.retain(o, 0); err != nil {
				ss.srv.log.Error().Err(err).Str("view", o.Name).Msg("the changes of a view are not kept")
			}
		}
	}
	return old, nil
}

// closeJobs ends jobs, readers before what they read.
func (s *Server) closeJobs(jobs []*exec.Job) error {
	slices.SortFunc(jobs, func(a, b *exec.Job) int { return cmp.Compare(b.Spec.ID, a.Spec.ID) })
	var err error
	for _, j := range jobs {
		err = errors.Join(err, s.closeJob(j.Spec.ID))
	}
	return err
}

// drop ends the jobs of parts that will not be used. Within a transaction its rollback does it.
func (r *replacement) drop(parts []*replacedPart) error {
	var jobs []*exec.Job
	for _, p := range parts {
		if p.job != nil {
			jobs = append(jobs, p.job)
		}
	}
	return r.d.ss.srv.closeJobs(jobs)
}

// hidden are the relations of the views whose queries the transaction has replaced, by their ids.
func (t *txn) hidden() map[uint64]*exec.Relation {
	out := make(map[uint64]*exec.Relation, len(t.replaced))
	for id, j := range t.replaced {
		out[id] = j.Relation()
	}
	return out
}

// planAgain plans a materialized view or an index anew because what it reads has changed.
func (d *dispatch) planAgain(snap *catalog.Snapshot, cur *catalog.Object) (*catalog.Object, error) {
	if err := complete(cur); err != nil {
		return nil, err
	}
	o := *cur
	o.Rewrites++
	if o.Kind == catalog.Index {
		view, ok := snap.Get(o.Index.Table)
		if !ok {
			return nil, undefinedRelation(sql.Name{Name: o.Name})
		}
		return &o, d.planViewIndex(snap, &o, view)
	}
	q, opts, err := d.queryOfView(snap, &o, o.Query)
	if err != nil {
		return nil, err
	}
	opts.Relation = o.ID
	if err := jobSettings(&opts, o.Settings); err != nil {
		return nil, err
	}
	p, err := planner.PlanStream(q, opts)
	if err != nil {
		return nil, err
	}
	var names []sql.Ident
	for _, n := range visibleNames(cur) {
		names = append(names, sql.Ident{Name: n})
	}
	o.Columns = nil
	if err := viewColumns(&o, p, names); err != nil {
		return nil, err
	}
	if err := keepsColumns(cur, &o); err != nil {
		return nil, err
	}
	for i, c := range o.Columns {
		if !c.Hidden {
			o.Columns[i] = cur.Columns[i]
		}
	}
	o.DependsOn = p.Relations
	if o.Plan, err = json.Marshal(p.Plan); err != nil {
		return nil, fmt.Errorf("encode plan: %w", err)
	}
	return &o, nil
}

// alterViewQuery is ALTER MATERIALIZED VIEW … AS.
func (d *dispatch) alterViewQuery(st *sql.CreateMaterializedView) error {
	const tag = "ALTER MATERIALIZED VIEW"
	unlock, err := d.lockSchema()
	if err != nil {
		return err
	}
	old, ok := d.ss.resolve(st.Name)
	switch {
	case !ok && st.IfExists:
		unlock()
		if err := d.ss.notice("NOTICE", pgerr.SuccessfulCompletion, "relation %q does not exist, skipping", st.Name.Key()); err != nil {
			return err
		}
		return d.complete(tag)
	case !ok:
		unlock()
		return atNowhere(undefinedRelation(st.Name))
	case old.Kind != catalog.MaterializedView:
		unlock()
		return pgerr.Newf(pgerr.WrongObjectType, "%q is not a materialized view", old.Name)
	}
	return d.replaceView(st, old, tag, unlock)
}
