package server

import (
	"strings"
	"time"

	"github.com/streamdb/streamdb/catalog"
	"github.com/streamdb/streamdb/exec"
	"github.com/streamdb/streamdb/exec/op"
	"github.com/streamdb/streamdb/internal/pgerr"
	"github.com/streamdb/streamdb/pgwire"
	"github.com/streamdb/streamdb/planner"
	"github.com/streamdb/streamdb/planner/plan"
	"github.com/streamdb/streamdb/sql"
	"github.com/streamdb/streamdb/types"
)

// explaining is an EXPLAIN ANALYZE while its statement runs. Its methods do nothing when there is none.
type explaining struct {
	profile op.Profile
	ran     *prepared // the statement as it was planned when it ran
}

func (e *explaining) counts() *op.Profile {
	if e == nil {
		return nil
	}
	return &e.profile
}

func (e *explaining) runs(p *prepared) {
	if e != nil {
		e.ran = p
	}
}

// again begins another attempt of the statement.
func (e *explaining) again() {
	if e != nil {
		e.profile.Reset()
	}
}

// explainedQuery is the statement whose plan EXPLAIN shows: of a cursor and of a table made by a query it is the query.
func explainedQuery(st sql.Statement) sql.Statement {
	switch t := st.(type) {
	case *sql.Declare:
		return t.Query
	case *sql.CreateTableAs:
		return t.Query
	}
	return st
}

// explain prints the plan of a statement, or of a materialized view's job; with ANALYZE it runs the statement.
func (d *dispatch) explain(st *sql.Explain) error {
	if st.Checkpoint != nil {
		return d.explainCheckpoint(st.Checkpoint)
	}
	if err := explainOptions(st); err != nil {
		return err
	}
	e := &planner.Explained{Verbose: st.Verbose, Timing: st.Timing}
	var p *prepared
	estimate := func() {
		if st.Costs {
			snap := d.ss.snapshot()
			e.Estimate(d.ss.srv.registry, d.ss.srv.planCatalog(snap, nil).byID)
		}
	}
	began := time.Now()
	if st.View != nil {
		var err error
		if e.Plan, e.Running, err = d.runningView(st); err != nil {
			return err
		}
		if e.Plan, err = planner.Renamed(e.Plan, d.ss.nameNow); err != nil {
			return err
		}
		estimate()
		return d.explanation(e, st.Format)
	}
	if t, ok := st.Target.(*sql.CreateMaterializedView); ok {
		if st.Analyze {
			return pgerr.Newf(pgerr.FeatureNotSupported, "EXPLAIN ANALYZE of CREATE MATERIALIZED VIEW is not supported").
				WithHint("Create the view; EXPLAIN ANALYZE MATERIALIZED VIEW name shows what it does.")
		}
		o := d.ss.planOptions(d.ss.snapshot(), nil)
		settings, _, _, err := d.viewOptions(t.Options)
		if err != nil {
			return err
		}
		if err := jobOptions(&o, t, settings); err != nil {
			return err
		}
		q, err := planner.PlanStream(t.Query, o)
		if err != nil {
			return err
		}
		if err := d.ss.mayAccess(q.Access); err != nil {
			return err
		}
		e.Plan = q.Plan
	} else if t, ok := st.Target.(*sql.CreateSink); ok {
		if st.Analyze {
			return pgerr.Newf(pgerr.FeatureNotSupported, "EXPLAIN ANALYZE of CREATE SINK is not supported").WithHint("Create the sink; EXPLAIN ANALYZE SINK name shows what it does.")
		}
		var err error
		if e.Plan, err = d.explainSink(t); err != nil {
			return err
		}
	} else {
		var err error
		if p, err = d.explained(st); err != nil {
			return err
		}
		if err := d.ss.authorize(p); err != nil {
			return err
		}
	}
	planning := time.Since(began)
	if st.Analyze {
		began = time.Now()
		x, err := d.analyze(st, p)
		if err != nil {
			return err
		}
		execution := time.Since(began)
		if x.ran != nil {
			p = x.ran
		}
		e.Actual = x.actual(p)
		if st.Summary {
			e.Execution = &execution
		}
	}
	if st.Summary {
		e.Planning = &planning
	}
	if p != nil {
		describe(e, p)
	}
	estimate()
	for _, o := range st.Options {
		if o.Name == "settings" && optionOn(o) {
			e.Settings = d.ss.vars.planSettings()
		}
	}
	return d.explanation(e, st.Format)
}

// explainOptions refuses options that need ANALYZE.
func explainOptions(st *sql.Explain) error {
	for _, o := range st.Options {
		if o.Name == "duration" && (!st.Analyze || st.View == nil) {
			return pgerr.Newf(pgerr.InvalidParameterValue, "EXPLAIN option DURATION is for EXPLAIN (ANALYZE) MATERIALIZED VIEW").At(o.Pos)
		}
		if (o.Name == "timing" || o.Name == "wal") && optionOn(o) && !st.Analyze {
			return pgerr.Newf(pgerr.InvalidParameterValue, "EXPLAIN option %s requires ANALYZE", strings.ToUpper(o.Name))
		}
	}
	return nil
}

func optionOn(o sql.Option) bool {
	switch strings.ToLower(o.Value) {
	case "false", "off", "0":
		return false
	}
	return true
}

// explained plans the statement that is explained.
func (d *dispatch) explained(st *sql.Explain) (*prepared, error) {
	ss := d.ss
	switch t := explainedQuery(st.Target).(type) {
	case *sql.Execute:
		p := ss.prepared[t.Name]
		if p == nil {
			return nil, noStatement(t.Name)
		}
		if err := ss.fresh(p); err != nil {
			return nil, err
		}
		if p.query == nil && p.change == nil {
			return nil, unsupported(st)
		}
		return p, nil
	case *sql.Query, *sql.Insert, *sql.Update, *sql.Delete, *sql.Merge:
		p := &prepared{stmt: t, open: true}
		for _, a := range d.args {
			p.declared = append(p.declared, a.Type)
		}
		return p, ss.plan(p)
	}
	return nil, unsupported(st)
}

// analyze runs the statement and throws its rows away.
func (d *dispatch) analyze(st *sql.Explain, p *prepared) (*explaining, error) {
	ss := d.ss
	x := &explaining{}
	x.profile.Timing = st.Timing
	ss.explaining = x
	defer func() { ss.explaining = nil }()
	run := &dispatch{ss: ss, ctx: d.ctx, w: &sink{Notifier: ss.notifier}, args: d.args, last: d.last, portal: d.portal}
	target := st.Target
	switch t := target.(type) {
	case *sql.Execute, *sql.CreateTableAs:
	case *sql.Declare:
		target, run.pre = t.Query, p
	default:
		run.pre = p
	}
	return x, run.statement(target)
}

// actual tells what the operators of a statement did. The root of a change has the rows that it returns.
func (x *explaining) actual(p *prepared) func(*plan.Node) (planner.Actual, bool) {
	silent := map[*plan.Node]bool{}
	root := func(c *planner.PlannedChange) {
		if c != nil && c.Returning == nil {
			silent[c.Plan.Fragments[0].Root] = true
		}
	}
	root(p.change)
	for _, w := range partsOf(p) {
		root(w.Change)
	}
	return func(n *plan.Node) (planner.Actual, bool) {
		c, total := x.profile.Of(n)
		if c == nil {
			return planner.Actual{}, false
		}
		a := planner.Actual{Rows: c.Rows, Batches: c.Batches, Loops: c.Loops, First: c.First, Total: total}
		if silent[n] {
			a.Rows, a.First = 0, total
		}
		return a, true
	}
}

func partsOf(p *prepared) []planner.PlannedWith {
	if p.change != nil {
		return p.change.Before
	}
	return p.query.Before
}

// describe sets what is shown of a planned statement.
func describe(e *planner.Explained, p *prepared) {
	if p.change != nil {
		e.Plan, e.Change, e.Target = p.change.Plan, changeName(p.stmt), p.change.Target.Name
		e.Conflict = planner.ExplainConflict(p.change)
	} else {
		e.Plan = p.query.Plan
	}
	for _, w := range partsOf(p) {
		part := planner.ExplainedPart{Name: w.Name}
		if w.Change != nil {
			part.Plan, part.Change, part.Target = w.Change.Plan, changeName(w.Statement), w.Change.Target.Name
			part.Conflict = planner.ExplainConflict(w.Change)
		} else {
			part.Plan = w.Query.Plan
		}
		e.Parts = append(e.Parts, part)
	}
}

func changeName(st sql.Statement) string {
	switch st.(type) {
	case *sql.Insert:
		return "Insert"
	case *sql.Update:
		return "Update"
	case *sql.Merge:
		return "Merge"
	}
	return "Delete"
}

// explanation sends what EXPLAIN shows.
func (d *dispatch) explanation(e *planner.Explained, format string) error {
	column := types.Column{Name: "QUERY PLAN", Type: types.Text}
	var lines []string
	switch format {
	case "json":
		column.Type = types.JSON
		lines = []string{e.JSON()}
	case "dot":
		lines = e.Dot()
	case "yaml":
		lines = []string{e.YAML()}
	case "xml":
		lines = []string{e.XML()}
	default:
		lines = e.Text()
	}
	rows := make([][]types.Datum, len(lines))
	for i, l := range lines {
		rows[i] = []types.Datum{{Type: column.Type, Str: l}}
	}
	return d.rows(types.Schema{column}, rows, "EXPLAIN")
}

// planSettings are the settings that plans depend on, where the session has changed them.
func (v *sessionVars) planSettings() [][2]string {
	out := [][2]string{}
	for _, name := range []string{"max_recursion_iterations", "max_recursion_memory", "search_path", "streamdb.disabled_rules"} {
		st, err := v.srv.table.find(name)
		if err != nil {
			continue
		}
		if value := v.get(name); value != st.value {
			out = append(out, [2]string{name, value})
		}
	}
	return out
}

// sink is the ResultWriter of a statement whose rows nobody wants.
type sink struct{ pgwire.Notifier }

// RowDescription implements pgwire.ResultWriter.
func (*sink) RowDescription([]pgwire.FieldDescription) error { return nil }

// Rows implements pgwire.ResultWriter.
func (*sink) Rows(*types.Chunk) error { return nil }

// CommandComplete implements pgwire.ResultWriter.
func (*sink) CommandComplete(string) error { return nil }

// EmptyQuery implements pgwire.ResultWriter.
func (*sink) EmptyQuery() error { return nil }

// Suspended implements pgwire.ResultWriter.
func (*sink) Suspended() error { return nil }

// Flush implements pgwire.ResultWriter.
func (*sink) Flush() error { return nil }

// CopyIn implements pgwire.ResultWriter.
func (*sink) CopyIn(pgwire.Format, int) (pgwire.CopyReader, error) {
	return nil, pgerr.Newf(pgerr.FeatureNotSupported, "COPY cannot be explained")
}

// CopyOut implements pgwire.ResultWriter.
func (*sink) CopyOut(pgwire.Format, int) error { return nil }

// CopyData implements pgwire.ResultWriter.
func (*sink) CopyData([]byte) error { return nil }

// CopyDone implements pgwire.ResultWriter.
func (*sink) CopyDone() error { return nil }

// nameNow is the name that a plan made now would have for a relation or index, "" when there is none with the id.
func (ss *session) nameNow(id uint64) string {
	o, ok := ss.snapshot().Get(id)
	switch {
	case !ok:
		return ""
	case o.Schema == "public" || o.Kind == catalog.Source:
		return o.Name
	}
	return o.Schema + "." + o.Name
}

// maxExplainDuration bounds how long EXPLAIN ANALYZE looks at a view.
const maxExplainDuration = time.Hour

// runningView is the plan of a materialized view's job and, with ANALYZE, what its operators do: since its start, or in the time that DURATION says
// from now on.
func (d *dispatch) runningView(st *sql.Explain) (*plan.Plan, *planner.RunningJob, error) {
	ss := d.ss
	o, ok := ss.resolve(*st.View)
	if !ok {
		return nil, nil, undefinedRelation(*st.View)
	}
	kind, may := catalog.MaterializedView, func() error { return ss.mayRelation(o, catalog.PrivSelect, nil) }
	if st.Sink { // nobody may read one
		kind, may = catalog.Sink, func() error { return ss.mustOwn(o, false) }
	}
	if o.Kind != kind {
		return nil, nil, pgerr.Newf(pgerr.WrongObjectType, "%q is not a %s", o.Name, kind).At(st.View.Pos)
	}
	if err := may(); err != nil {
		return nil, nil, err
	}
	j, ok := ss.srv.engine.Job(o.ID)
	if !ok {
		return nil, nil, pgerr.Newf(pgerr.ObjectNotInPrerequisiteState, "%s %q is not running", kind, o.Name)
	}
	if !st.Analyze {
		return j.Spec.Plan, nil, nil
	}
	type place struct {
		operator uint32
		subtask  int
	}
	before := map[place]exec.OperatorStats{}
	r := &planner.RunningJob{Operators: map[uint32][]planner.Running{}}
	if st.Duration != "" {
		for _, s := range j.SubtaskStats() {
			before[place{s.ID, s.Subtask}] = s
		}
		wait, err := parseDuration(st.Duration)
		if err != nil || wait <= 0 || wait > maxExplainDuration {
			e := pgerr.Newf(pgerr.InvalidParameterValue, "invalid value for EXPLAIN option \"duration\": %q", st.Duration)
			return nil, nil, e.WithHint("An interval of up to an hour, as in DURATION '5s'.")
		}
		began := time.Now()
		if err := (&actions{ss: ss, ctx: d.ctx}).Sleep(wait); err != nil {
			return nil, nil, err
		}
		r.Interval = time.Since(began)
	}
	for _, s := range j.SubtaskStats() {
		n := planner.Running{
			Subtask: s.Subtask, RowsIn: s.RowsIn, RowsOut: s.RowsOut, StateRows: s.StateRows, StateBytes: s.StateBytes, Busy: s.Busy, Backpressure: s.Backpressure,
		}
		if was, ok := before[place{s.ID, s.Subtask}]; ok && was.Lifetime < s.Lifetime { // else the job was started again
			n.RowsIn, n.RowsOut = n.RowsIn-was.RowsIn, n.RowsOut-was.RowsOut
			n.Busy = max(0, min(1, float64(s.BusyTime-was.BusyTime)/float64(s.Lifetime-was.Lifetime)))
		}
		r.Operators[s.ID] = append(r.Operators[s.ID], n)
	}
	return j.Spec.Plan, r, nil
}
