package server

import (
	"context"
	"crypto/rand"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/streamdb/streamdb/catalog"
	"github.com/streamdb/streamdb/checkpoint"
	"github.com/streamdb/streamdb/connector"
	"github.com/streamdb/streamdb/exec"
	"github.com/streamdb/streamdb/internal/pgerr"
	"github.com/streamdb/streamdb/planner"
	"github.com/streamdb/streamdb/planner/plan"
	"github.com/streamdb/streamdb/sql"
	"github.com/streamdb/streamdb/storage/object"
	"github.com/streamdb/streamdb/types"
)

// sinkCheckTimeout bounds how long CREATE SINK and ALTER SINK wait for the target.
const sinkCheckTimeout = 30 * time.Second

func (d *dispatch) createSink(st *sql.CreateSink) error {
	const tag = "CREATE SINK"
	srv := d.ss.srv
	if st.Into != nil {
		return pgerr.Newf(pgerr.FeatureNotSupported, "CREATE SINK … INTO table is not supported").At(st.Into.Pos).WithHint("Create a materialized view in the place of the table.")
	}
	schema, err := d.targetSchema(st.Name)
	if err != nil {
		return err
	}
	o, background, err := d.sinkObject(st)
	if err != nil {
		return err
	}
	o.Schema = schema
	free, err := d.lockSchema()
	if err != nil {
		return err
	}
	unlock := sync.OnceFunc(free)
	defer unlock()
	if done, err := d.exists(schema, st.Name, st.IfNotExists, tag); done || err != nil {
		return err
	}
	query, err := d.sinkQuery(st, o)
	if err != nil {
		return err
	}
	var notices []*pgerr.Error
	if err := d.ss.update(func(tx *catalog.Tx) error {
		o.ID = tx.NextID()
		q, err := d.planSink(tx.Snapshot(), o, query)
		if err != nil {
			return err
		}
		notices = q.Notices
		if err := d.checkSink(sinkSpec(o)); err != nil {
			return err
		}
		return tx.Add(o)
	}); err != nil {
		return err
	}
	d.tell(slices.Concat(notices, srv.staysAligned(o), srv.guaranteeOf(d.ss.snapshot(), o)))
	create := func() (*exec.Job, error) { return srv.createJob(o, nil, d.ss.tx.hidden()) }
	return d.launch(o, create, unlock, background, tag, func(j *exec.Job) error {
		if err := d.filled(j); err != nil {
			return err
		}
		if o.Sink.ChangesOnly && !srv.checkpointed(d.ctx, j) {
			return pgerr.Newf(pgerr.ObjectNotInPrerequisiteState, "sink %q has no checkpoint to go on from: after a crash it would miss changes", o.Name)
		}
		return nil
	})
}

// sinkObject is the sink of a statement before its query is looked at.
func (d *dispatch) sinkObject(st *sql.CreateSink) (o *catalog.Object, background bool, err error) {
	job, options := d.sinkOptions(st.Options)
	settings, given, background, err := d.viewOptions(job)
	if err != nil {
		return nil, false, err
	}
	def := &catalog.SinkDef{ID: newSinkID(), Options: map[string]string{}, EncodeOptions: map[string]string{}}
	for _, op := range options {
		if op.Name == connector.OptionTakeOver {
			return nil, false, pgerr.Newf(pgerr.InvalidParameterValue, "a new sink has nothing to take over").At(op.Pos).WithHint("Say %s to ALTER SINK … SET, of a sink that has stopped.", op.Name)
		}
		if _, dup := def.Options[op.Name]; dup {
			return nil, false, pgerr.Newf(pgerr.SyntaxError, "option %q given more than once", op.Name).At(op.Pos)
		}
		def.Options[op.Name] = op.Value
	}
	if st.Format != nil {
		def.Format, def.Encode = st.Format.Format, st.Format.Encode
		for _, op := range st.Format.Options {
			def.EncodeOptions[op.Name] = op.Value
		}
	}
	return &catalog.Object{
		Kind: catalog.Sink, Name: st.Name.Name, SearchPath: d.ss.vars.storedPath(), EmitOnClose: st.EmitOnWindowClose, Settings: settings, Options: given, Creating: true, Sink: def,
	}, background, nil
}

// sinkQuery is the query of a sink, whose text is put into o.
func (d *dispatch) sinkQuery(st *sql.CreateSink, o *catalog.Object) (query *sql.Query, err error) {
	query = st.Query
	if st.From != nil {
		if query, err = d.sinkSource(*st.From, o.Sink); err != nil {
			return nil, err
		}
	}
	o.Query = queryText(query)
	return query, nil
}

// explainSink plans the job that CREATE SINK would make; the target is not asked.
func (d *dispatch) explainSink(st *sql.CreateSink) (*plan.Plan, error) {
	o, _, err := d.sinkObject(st)
	if err != nil {
		return nil, err
	}
	query, err := d.sinkQuery(st, o)
	if err != nil {
		return nil, err
	}
	q, err := d.planSink(d.ss.snapshot(), o, query)
	if err != nil {
		return nil, err
	}
	return q.Plan, nil
}

// guaranteeOf are NOTICEs of what at-least-once checkpoints of the server, or of what it reads, and checkpoints in memory mean for a new sink.
func (s *Server) guaranteeOf(snap *catalog.Snapshot, o *catalog.Object) (notices []*pgerr.Error) {
	if slices.Contains(s.keepExactlyOnce(snap), o.Name) {
		notices = append(notices, noteKept(o.Name))
	}
	if o.Sink.ExactlyOnce && object.InMemory(s.objects) && !s.cfg.MemoryOnly {
		notices = append(notices, note("sink %q stops at the next start of the server when it has written before: checkpoints are in memory", o.Name))
	}
	return append(notices, s.looseUnder(snap, snap.Objects(), []*catalog.Object{o})...)
}

// sinkOptions parts what is the job's from what is the connector's.
func (d *dispatch) sinkOptions(opts []sql.Option) (job, options []sql.Option) {
	for _, o := range opts {
		if st, err := d.ss.srv.settings.table.find(o.Name); err == nil && st.scope == scopeJob || strings.EqualFold(o.Name, settingBackground) {
			job = append(job, o)
			continue
		}
		if strings.EqualFold(o.Name, connector.OptionConnector) {
			o.Name = connector.OptionConnector
		}
		options = append(options, o)
	}
	return job, options
}

// newSinkID returns what names the transactions of a sink wherever it writes to.
func newSinkID() string {
	var b [16]byte
	_, _ = rand.Read(b[:]) // never fails
	return fmt.Sprintf("%x", b)
}

// sinkSource is the query of a sink over a relation.
func (d *dispatch) sinkSource(n sql.Name, def *catalog.SinkDef) (*sql.Query, error) {
	o, ok := d.ss.resolve(n)
	if !ok {
		return nil, undefinedRelation(n)
	}
	switch o.Kind {
	case catalog.Table, catalog.MaterializedView:
	case catalog.View, catalog.Source:
		if v := (connector.Values{Options: def.Options}); !v.Bool(true, connector.OptionSnapshot) {
			return nil, pgerr.Newf(pgerr.FeatureNotSupported, "option \"%s\" = 'false' needs a table or a materialized view", connector.OptionSnapshot).At(n.Pos)
		}
	default:
		return nil, pgerr.Newf(pgerr.WrongObjectType, "cannot create a sink from %s %q", o.Kind, o.Name).At(n.Pos)
	}
	def.From = o.ID
	stmts, err := sql.Parse("SELECT * FROM " + qualified(o))
	if err != nil {
		return nil, err
	}
	return stmts[0].(*sql.Query), nil //nolint:forcetypeassert // a SELECT
}

// planSink plans the job of a sink.
func (d *dispatch) planSink(snap *catalog.Snapshot, o *catalog.Object, query *sql.Query) (*planner.Planned, error) {
	def := o.Sink
	opts := d.ss.planOptions(snap, nil)
	opts.Relation, opts.EmitOnClose = o.ID, o.EmitOnClose
	if err := jobSettings(&opts, o.Settings); err != nil {
		return nil, err
	}
	opts.Sink = &planner.Sink{Name: o.Name}
	if list, ok := def.Options[connector.OptionPrimaryKey]; ok {
		opts.Sink.PrimaryKey = connector.KeyNames(list)
	}
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
	if err := namedColumns(o, q.Columns, nil); err != nil {
		return nil, err
	}
	if refersToTemporary(snap, q.Relations) != "" {
		return nil, pgerr.Newf(pgerr.FeatureNotSupported, "sinks must not use temporary tables or views")
	}
	if err := complete(objectsOf(snap, q.Relations)...); err != nil {
		return nil, err
	}
	root := q.Plan.Fragments[len(q.Plan.Fragments)-1].Root
	for _, k := range root.Key {
		if k >= q.Plan.Visible {
			def.Key = nil // rows are not told apart by what the target has
			break
		}
		def.Key = append(def.Key, k)
	}
	cfg := sinkSpec(o)
	if err := d.ss.srv.cfg.Connectors.ValidateSink(cfg); err != nil {
		return nil, err
	}
	def.Key, def.Mode, def.ExactlyOnce = cfg.Key, string(cfg.Mode), cfg.ExactlyOnce
	if err := checkSinkMode(o); err != nil {
		return nil, err
	}
	o.AppendOnly = root.Inputs[0].AppendOnly
	v := connector.Values{Options: def.Options}
	def.ChangesOnly = !v.Bool(true, connector.OptionSnapshot)
	if cfg.Mode == connector.AppendOnly && !o.AppendOnly && !v.Bool(false, connector.OptionForceAppendOnly) {
		return nil, pgerr.Newf(pgerr.FeatureNotSupported, "an append-only sink cannot take rows that change").
			WithHint("Use FORMAT UPSERT or DEBEZIUM, or type = 'upsert', or leave out what goes: %s = 'true'.", connector.OptionForceAppendOnly)
	}
	if def.ChangesOnly {
		if def.From == 0 {
			return nil, pgerr.Newf(pgerr.FeatureNotSupported, "option \"%s\" = 'false' is not supported with a query", connector.OptionSnapshot).
				WithHint("Create a materialized view and CREATE SINK … FROM it.")
		}
		for _, f := range q.Plan.Fragments {
			f.Root.Walk(func(n *plan.Node) {
				if n.Kind == plan.KindScan {
					n.Scan.ChangesOnly = true
				}
			})
		}
	}
	o.DependsOn = q.Relations
	d.keepText(snap, o, query, q.Stars)
	if o.Plan, err = json.Marshal(q.Plan); err != nil {
		return nil, fmt.Errorf("encode plan: %w", err)
	}
	return q, nil
}

// checkSink asks the target.
func (d *dispatch) checkSink(cfg *connector.SinkConfig) error {
	c, err := d.ss.srv.cfg.Connectors.LookupSink(cfg.Options[connector.OptionConnector])
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(d.ctx, sinkCheckTimeout)
	defer cancel()
	return c.Check(ctx, cfg)
}

// sinkSpec is what the job of a sink writes to, nil for other objects.
func sinkSpec(o *catalog.Object) *exec.SinkSpec {
	s := o.Sink
	if s == nil {
		return nil
	}
	text := types.DefaultFormat() // of the session only what changes the meaning of values
	text.Location = textFormat(o.Settings).Location
	return &exec.SinkSpec{
		Name: o.Name, ID: s.ID, Options: s.Options, Format: s.Format, Encode: s.Encode, EncodeOptions: s.EncodeOptions, Columns: o.Stored(), Key: s.Key,
		Mode: connector.SinkMode(s.Mode), ExactlyOnce: s.ExactlyOnce, Text: text,
	}
}

// alterSinkOptions changes the options of a sink: ALTER SINK … SET | RESET (…). What it does to rows stays.
func (d *dispatch) alterSinkOptions(x *sql.AlterAction, o *catalog.Object) error {
	srv := d.ss.srv
	j, ok := srv.engine.Job(o.ID)
	if !ok {
		return pgerr.Newf(pgerr.ObjectNotInPrerequisiteState, "sink %q is not running", o.Name)
	}
	job, options := d.sinkOptions(x.Options)
	c, def := *o, *o.Sink
	c.Sink, def.Options = &def, maps.Clone(def.Options)
	n, err := d.changeJob(x, job, &c, j, settingParallelism, settingOnError)
	if err != nil {
		return err
	}
	fixed := []string{
		connector.OptionConnector, connector.OptionType, connector.OptionForceAppendOnly, connector.OptionPrimaryKey, connector.OptionSnapshot, connector.OptionGuarantee,
	}
	for _, opt := range options {
		if slices.Contains(fixed, opt.Name) {
			return pgerr.Newf(pgerr.ObjectNotInPrerequisiteState, "option %q of a sink cannot be changed", opt.Name).At(opt.Pos).WithHint("DROP the sink and CREATE it anew.")
		}
		if delete(def.Options, opt.Name); x.Kind != sql.AlterReset {
			def.Options[opt.Name] = opt.Value
		}
	}
	// The token is of a moment: it is for the run that begins now, and is not kept.
	token, takesOver := def.Options[connector.OptionTakeOver]
	delete(def.Options, connector.OptionTakeOver)
	if err := checkSinkMode(&c); err != nil {
		return atPos(err, x.Pos)
	}
	spec := sinkSpec(&c)
	if takesOver {
		spec.Writer, spec.Options = srv.writer(), maps.Clone(spec.Options)
		spec.Options[connector.OptionTakeOver] = token
	}
	if len(options) > 0 {
		if err := srv.cfg.Connectors.ValidateSink(spec); err != nil {
			return err
		}
		if err := d.checkSink(spec); err != nil {
			return err
		}
	}
	if err := d.ss.update(func(tx *catalog.Tx) error { return tx.Replace(&c) }); err != nil {
		return err
	}
	return d.atCommit(func(context.Context) error {
		j.SetSettings(srv.ownCheckpoints(&c))
		j.SetRaises(c.Settings[settingOnError] == "raise")
		if len(options) > 0 {
			srv.engine.SetSink(j, spec)
		}
		if n != j.Parallelism() {
			srv.engine.Rescale(j, n)
		}
		return nil
	})
}

// writer is as whom the server writes to the targets of sinks.
func (s *Server) writer() connector.Identity {
	return connector.Identity{Line: s.coord.Line(), Holder: checkpoint.Holder()}
}
