package server

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/streamdb/streamdb/catalog"
	"github.com/streamdb/streamdb/checkpoint"
	"github.com/streamdb/streamdb/exec"
	"github.com/streamdb/streamdb/internal/pgerr"
	"github.com/streamdb/streamdb/planner"
	"github.com/streamdb/streamdb/planner/plan"
	"github.com/streamdb/streamdb/sql"
	"github.com/streamdb/streamdb/types"
)

func (d *dispatch) createView(st *sql.CreateView) error {
	unlock, err := d.lockSchema()
	if err != nil {
		return err
	}
	defer unlock()
	schema, err := d.schemaFor(st.Name, st.Temporary)
	if err != nil {
		return err
	}
	old, exists := d.ss.snapshot().Lookup(schema, st.Name.Name)
	if exists && !(st.OrReplace && old.Kind == catalog.View) {
		if st.OrReplace {
			return pgerr.Newf(pgerr.WrongObjectType, "%q is not a view", st.Name.Name)
		}
		if done, err := d.exists(schema, st.Name, st.IfNotExists, "CREATE VIEW"); done || err != nil {
			return err
		}
	}
	if l := st.Query.Locking(); l != "" {
		return pgerr.Newf(pgerr.FeatureNotSupported, "%s is not supported in views", l)
	}
	if st.Query.EmitOnWindowClose {
		return pgerr.Newf(pgerr.FeatureNotSupported, "EMIT ON WINDOW CLOSE is of materialized views only").At(st.Query.Start)
	}
	if len(st.Query.Changes) > 0 {
		return pgerr.Newf(pgerr.FeatureNotSupported, "views must not contain data-modifying statements in WITH")
	}
	if exists {
		if err := d.ss.mustOwn(old, false); err != nil {
			return err
		}
	}
	q, err := planner.PlanQuery(st.Query, d.ss.planOptions(d.ss.snapshot(), nil))
	if err != nil {
		return err
	}
	if len(q.Params) > 0 {
		return pgerr.Newf(pgerr.UndefinedParameter, "there is no parameter $1")
	}
	o := &catalog.Object{
		Kind: catalog.View, Schema: schema, Name: st.Name.Name, Query: queryText(st.Query), SearchPath: d.ss.vars.storedPath(),
		DependsOn: q.Relations, Temporary: catalog.IsTemporarySchema(schema),
	}
	if !exists && !o.Temporary && st.Name.Schema == "" && refersToTemporary(d.ss.snapshot(), q.Relations) != "" {
		if err := d.ss.notice("NOTICE", pgerr.SuccessfulCompletion, "view %q will be a temporary view", o.Name); err != nil {
			return err
		}
		if o.Schema, err = d.schemaFor(st.Name, true); err != nil {
			return err
		}
		o.Temporary = true
	}
	if o.Temporary {
		o.SearchPath = d.ss.vars.searchPath()
	}
	if len(st.Columns) > len(q.Columns) {
		return pgerr.Newf(pgerr.SyntaxError, "CREATE VIEW specifies more column names than columns")
	}
	if err := namedColumns(o, q.Columns, st.Columns); err != nil {
		return err
	}
	if exists && slices.Contains(q.Relations, old.ID) {
		return pgerr.Newf(pgerr.InvalidObjectDefinition, "infinite recursion detected in rules for relation %q", old.Name)
	}
	d.keepText(d.ss.snapshot(), o, st.Query, q.Stars)
	err = d.ss.update(func(tx *catalog.Tx) error {
		if !exists {
			withSchema(tx, o)
			o.ID = tx.NextID()
			return tx.Add(o)
		}
		for i, c := range old.Columns {
			if i >= len(o.Columns) {
				return pgerr.Newf(pgerr.InvalidTableDefinition, "cannot drop columns from view")
			}
			if n := o.Columns[i]; n.Name != c.Name {
				return pgerr.Newf(pgerr.InvalidTableDefinition, "cannot change name of view column %q to %q", c.Name, n.Name).
					WithHint("Use ALTER VIEW ... RENAME COLUMN ... to change name of view column instead.")
			} else if n.Type != c.Type {
				return pgerr.Newf(pgerr.InvalidTableDefinition, "cannot change data type of view column %q from %s to %s", c.Name, c.Type, n.Type)
			}
		}
		o.ID, o.Owner, o.ACL, o.Comment = old.ID, old.Owner, old.ACL, old.Comment
		return tx.Replace(o)
	})
	if err != nil {
		return err
	}
	return d.complete("CREATE VIEW")
}

// queryText is the text of a view's query as the user wrote it.
func queryText(q *sql.Query) string { return strings.TrimSpace(q.SourceText()) }

func namedColumns(o *catalog.Object, columns types.Schema, names []sql.Ident) error {
	if len(names) > len(columns) {
		return pgerr.Newf(pgerr.SyntaxError, "too many column names were specified")
	}
	for i, c := range columns {
		if i < len(names) {
			c.Name = names[i].Name
		}
		if o.Column(c.Name) >= 0 {
			return pgerr.Newf(pgerr.DuplicateColumn, "column %q specified more than once", c.Name)
		}
		if c.Type.OID == types.OIDUnknown {
			c.Type = types.Text
		}
		o.Columns = append(o.Columns, catalog.Column{Name: c.Name, Type: c.Type})
	}
	return nil
}

// viewOptions reads WITH (…) of a materialized view over the session's defaults.
func (d *dispatch) viewOptions(opts []sql.Option) (settings map[string]string, given []string, background bool, err error) {
	if err := once(opts); err != nil {
		return nil, nil, false, err
	}
	v := d.ss.vars
	settings = map[string]string{}
	for _, st := range v.srv.table.list {
		if st.scope == scopeJob && !st.live {
			settings[st.name] = v.get(st.name)
		}
	}
	maps.Copy(settings, v.live())
	for _, name := range formatSettings() {
		if st, err := v.srv.table.find(name); err == nil && v.get(name) != st.value {
			settings[st.name] = v.get(name)
		}
	}
	background = v.get("background_ddl") == "on"
	for _, o := range opts {
		if strings.EqualFold(o.Name, "background") {
			if background, err = boolOption(o); err != nil {
				return nil, nil, false, err
			}
			continue
		}
		st, err := v.srv.table.find(o.Name)
		if err != nil || st.scope != scopeJob {
			if err == nil && st.scope == scopeServer {
				return nil, nil, false, errServerWide(st).At(o.Pos)
			}
			return nil, nil, false, v.srv.table.notOfJobs(o, func(st *setting) bool { return st.scope == scopeJob },
				"A materialized view knows: allowed_lateness, background, execution.checkpointing.…, late_rows, parallelism, on_error, retention, retention_size, state.backend.type, state_ttl.")
		}
		if err := d.ss.tellDeprecated(o.Name); err != nil {
			return nil, nil, false, err
		}
		if settings[st.name], err = st.option(o); err != nil {
			return nil, nil, false, err
		}
		given = withOption(given, st.name, true)
	}
	if err := v.srv.checkCheckpoints(settings); err != nil {
		return nil, nil, false, err
	}
	if background {
		settings[settingBackground] = "on"
	}
	if settings[settingParallelism] == "0" {
		settings[settingParallelism] = strconv.Itoa(d.ss.srv.defaultParallelism())
	}
	return settings, given, background, nil
}

// tell sends what the planner has to say about a view that was made. A client that cannot be reached is found out by what it waits for.
func (d *dispatch) tell(notices []*pgerr.Error) {
	for _, n := range notices {
		if err := d.ss.notifier.Notice(n); err != nil {
			d.ss.srv.log.Debug().Err(err).Msg("notice of a statement")
		}
	}
}

func (d *dispatch) createMaterializedView(st *sql.CreateMaterializedView) error {
	if st.Alter {
		return d.alterViewQuery(st)
	}
	srv := d.ss.srv
	const tag = "CREATE MATERIALIZED VIEW"
	schema, err := d.targetSchema(st.Name)
	if err != nil {
		return err
	}
	recovery, rest, err := d.recoveryOptions(st.Options)
	if err != nil {
		return err
	}
	settings, given, background, err := d.viewOptions(rest)
	if err != nil {
		return err
	}
	if recovery != nil && (background || d.ss.tx.explicit || st.OrReplace) {
		return pgerr.Newf(pgerr.FeatureNotSupported, "a materialized view with %s cannot be created in the background, in a transaction block, or with OR REPLACE", checkpoint.SettingRecoveryPath)
	}
	free, err := d.lockSchema()
	if err != nil {
		return err
	}
	unlock := sync.OnceFunc(free)
	defer unlock()
	if old, exists := d.ss.snapshot().Lookup(schema, st.Name.Name); exists && st.OrReplace {
		if old.Kind != catalog.MaterializedView {
			return pgerr.Newf(pgerr.WrongObjectType, "%q is not a materialized view", st.Name.Name)
		}
		return d.replaceView(st, old, tag, unlock)
	}
	if done, err := d.exists(schema, st.Name, st.IfNotExists, tag); done || err != nil {
		return err
	}
	o := &catalog.Object{
		Kind: catalog.MaterializedView, Schema: schema, Name: st.Name.Name, Query: queryText(st.Query), SearchPath: d.ss.vars.storedPath(),
		EmitOnClose: st.EmitOnWindowClose, Settings: settings, Options: given, Creating: true,
	}
	var notices []*pgerr.Error
	if err := d.ss.update(func(tx *catalog.Tx) error {
		o.ID = tx.NextID()
		opts := d.ss.planOptions(tx.Snapshot(), nil)
		opts.Relation = o.ID
		if err := jobOptions(&opts, st, settings); err != nil {
			return err
		}
		if notices, err = d.planInto(tx.Snapshot(), o, st.Query, st.Columns, opts); err != nil {
			return err
		}
		if recovery != nil {
			if err := recovery.plan(d, tx.Snapshot(), o); err != nil {
				return err
			}
		}
		return tx.Add(o)
	}); err != nil {
		return err
	}
	d.tell(append(notices, srv.staysAligned(o)...))
	if recovery != nil {
		defer recovery.end(d)
	}
	create := func() (*exec.Job, error) {
		if recovery == nil {
			return srv.createJob(o, nil, d.ss.tx.hidden())
		}
		return recovery.create(d, o)
	}
	return d.launch(o, create, unlock, background, tag, func(j *exec.Job) error {
		if err := d.filled(j); err != nil || recovery == nil {
			return err
		}
		return recovery.done(d, j)
	})
}

// launch starts the job of an object that was just entered into the catalog, and waits with fill until it may be told that the object is there, unless that is to happen in
// the background. With an error nothing of it is left.
func (d *dispatch) launch(o *catalog.Object, create func() (*exec.Job, error), unlock func(), background bool, tag string, fill func(*exec.Job) error) error {
	srv := d.ss.srv
	j, err := create()
	if err != nil {
		return errors.Join(err, d.ss.update(func(tx *catalog.Tx) error { tx.Remove(o.ID); return nil }))
	}
	d.atRollback(func(context.Context) error { return srv.closeJob(o.ID) })
	j.Start()
	unlock()
	if background {
		if err := d.atCommit(func(context.Context) error { srv.finishInBackground(j); return nil }); err != nil {
			return err
		}
		return d.complete(tag)
	}
	if err = fill(j); err == nil {
		err = d.ss.update(created(o.ID, o.Name))
	}
	if err != nil {
		return errors.Join(err, d.dropObjects([]*catalog.Object{o}))
	}
	return d.complete(tag)
}

// filled waits until a job has read what its inputs held, and tells how far it is meanwhile.
func (d *dispatch) filled(j *exec.Job) error {
	began := time.Now()
	err := j.WaitCaughtUp(d.ctx, progressEvery, func() error {
		if err := j.HeldUp(); err != nil {
			return err
		}
		read, total := j.Progress()
		msg := fmt.Sprintf("%d of %d rows read", read, total)
		if total > 0 && read > 0 {
			left := time.Duration(float64(time.Since(began)) * float64(total-read) / float64(read)).Round(time.Second)
			msg = fmt.Sprintf("%d of %d rows read (%d %%), about %v left", read, total, read*100/total, max(left, 0))
		}
		if err := d.ss.notice("NOTICE", pgerr.SuccessfulCompletion, "%s", msg); err != nil {
			d.ss.srv.log.Debug().Err(err).Msg("progress notice")
		}
		return nil
	})
	if err != nil {
		return err
	}
	if j.Relation() == nil {
		return nil
	}
	return d.ss.srv.engine.AwaitHistory(d.ctx, j.Relation())
}

// jobOptions sets what the planning of a view's job depends on.
func jobOptions(o *planner.Options, st *sql.CreateMaterializedView, settings map[string]string) error {
	o.EmitOnClose = st.EmitOnWindowClose
	if err := jobSettings(o, settings); err != nil {
		return err
	}
	for _, opt := range st.Options {
		if strings.EqualFold(opt.Name, settingLateness) && o.AllowedLateness > 0 && !st.EmitOnWindowClose && !o.DropLate {
			return pgerr.Newf(pgerr.InvalidParameterValue, "allowed_lateness needs EMIT ON WINDOW CLOSE or late_rows = 'drop'").At(opt.Pos).
				WithHint("Other views take late rows whenever they come.")
		}
	}
	return nil
}

// jobSettings sets what the settings of a view's job say about its plan. Views of older versions do not have all of them.
func jobSettings(o *planner.Options, settings map[string]string) error {
	for name, span := range map[string]*int64{settingLateness: &o.AllowedLateness, settingTTL: &o.StateTTL} {
		d, err := parseDuration(cmp.Or(settings[name], "0"))
		if err != nil {
			return err
		}
		*span = d.Microseconds()
	}
	o.DropLate = settings[settingLateRows] == "drop"
	var err error
	o.Parallelism, err = strconv.Atoi(settings[settingParallelism])
	return err
}

// complete fails if one of the objects is still being filled: it has no rows to read yet.
func complete(objects ...*catalog.Object) error {
	for _, o := range objects {
		if o.Creating {
			return pgerr.Newf(pgerr.ObjectNotInPrerequisiteState, "%s %q is still being created", o.Kind, o.Name).WithHint("WAIT for it first.")
		}
	}
	return nil
}

// objectsOf gives the objects with the ids that the catalog has.
func objectsOf(snap *catalog.Snapshot, ids []uint64) []*catalog.Object {
	var objects []*catalog.Object
	for _, id := range ids {
		if o, ok := snap.Get(id); ok {
			objects = append(objects, o)
		}
	}
	return objects
}

// created makes a view that has been filled one like all others.
func created(id uint64, name string) func(*catalog.Tx) error {
	return func(tx *catalog.Tx) error {
		cur, ok := tx.Snapshot().Get(id)
		if !ok {
			return pgerr.Newf(pgerr.QueryCanceled, "relation %q was dropped while it was being created", name)
		}
		c := *cur
		c.Creating = false
		return tx.Replace(&c)
	}
}

// finishInBackground waits for a view that is being filled while nobody else does.
func (s *Server) finishInBackground(j *exec.Job) {
	s.work.Add(1)
	go func() {
		defer s.work.Done()
		err := j.WaitCaughtUp(s.ctx, progressEvery, func() error { return nil })
		if err == nil {
			err = s.catalog.Update(created(j.PublicID(), j.Spec.Name))
		}
		if err != nil && s.ctx.Err() == nil {
			s.log.Warn().Err(err).Str("view", j.Spec.Name).Msg("creation in the background ended")
		}
	}()
}

// Settings of jobs that are read by name.
const (
	settingParallelism = "parallelism"
	settingOnError     = "on_error"
	settingLateness    = "allowed_lateness"
	settingTTL         = "state_ttl"
	settingLateRows    = "late_rows"
)

// settingBackground marks, among the settings of a view, that nobody waits for its creation.
const settingBackground = "background"

// viewColumns records the stored columns of a materialized view: the user's, then hidden ones that its key needs.
func viewColumns(o *catalog.Object, q *planner.Planned, names []sql.Ident) error {
	if err := namedColumns(o, q.Columns, names); err != nil {
		return err
	}
	for i := q.Plan.Visible; i < len(q.Plan.Schema); i++ {
		o.Columns = append(o.Columns, catalog.Column{Name: fmt.Sprintf("_key_%d", i-q.Plan.Visible), Type: q.Plan.Schema[i].Type, Hidden: true})
	}
	root := q.Plan.Fragments[len(q.Plan.Fragments)-1].Root
	if root.Kind != plan.KindMaterialize {
		return pgerr.Newf(pgerr.InternalError, "plan of a materialized view ends in %q", root.Kind)
	}
	o.Key = root.Materialize.KeyColumns
	o.AppendOnly = root.Inputs[0].AppendOnly
	return nil
}
