package exec

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/rs/zerolog"
	"github.com/stretchr/testify/require"

	"github.com/streamdb/streamdb/checkpoint"
	"github.com/streamdb/streamdb/connector"
	"github.com/streamdb/streamdb/internal/failpoint"
	"github.com/streamdb/streamdb/planner"
	"github.com/streamdb/streamdb/planner/plan"
	"github.com/streamdb/streamdb/sql"
	"github.com/streamdb/streamdb/sql/expr"
	"github.com/streamdb/streamdb/sql/functions"
	"github.com/streamdb/streamdb/state"
	"github.com/streamdb/streamdb/storage/object"
	"github.com/streamdb/streamdb/storage/wal"
	"github.com/streamdb/streamdb/types"
)

// testDB is an engine with its write-ahead log and a checkpoint coordinator, without server and sessions. Definitions survive reopening.
type testDB struct {
	t       *testing.T
	opts    testOptions
	dir     string
	objects object.Store
	script  *scripted
	model   *model
	fail    *failpoint.Set
	away    atomic.Int64 // how often files cannot be got from the store still

	engine *Engine
	coord  *checkpoint.Coordinator
	shared *state.Shared
	log    *wal.WAL
	cancel context.CancelFunc
	work   sync.WaitGroup

	nextID uint64
	defs   []*definition

	indexes []*indexDefinition
}

type testOptions struct {
	chunkRows int
	memory    int64
	changeLog int64
	noWAL     bool
	backend   state.BackendType
	without   uint64           // a checkpoint to go on from without what was in flight
	now       func() time.Time // nil: the real clock
	lookups   bool             // views read relations that they join by their key
	stateTTL  time.Duration    // of the views, 0: none
}

// definition is a relation as the catalog would keep it.
type definition struct {
	rel         *planner.Relation
	query       string
	plan        *plan.Plan
	parallelism int
	sink        *SinkSpec // of a sink, whose kind is System
}

func openDB(t *testing.T, o testOptions) *testDB {
	t.Helper()
	if o.chunkRows == 0 {
		o.chunkRows = types.MaxChunkRows
	}
	if o.memory == 0 {
		o.memory = 64 << 20
	}
	if o.changeLog == 0 {
		o.changeLog = 16 << 20
	}
	if o.backend == "" {
		o.backend = state.BackendPebble
	}
	d := &testDB{t: t, opts: o, dir: t.TempDir(), objects: object.NewMemory(t.Name()), script: newScripted(), model: newModel(), fail: failpoint.New(), nextID: 10}
	d.open()
	t.Cleanup(d.crash)
	return d
}

type lateClock struct{ d *testDB }

func (c lateClock) BeginCheckpoint(id uint64, cut checkpoint.Cut) (uint64, error) {
	return c.d.engine.BeginCheckpoint(id, cut)
}
func (c lateClock) Quiet() bool { return false }

// open does what the server does at its start.
func (d *testDB) open() {
	t, ctx := d.t, context.Background()
	var err error
	d.shared = state.OpenShared(d.opts.memory)
	cfg := checkpoint.DefaultConfig()
	cfg.Interval, cfg.GroupWindow = 0, 0
	d.coord, err = checkpoint.New(cfg, d.objects, checkpoint.Env{
		Clock: lateClock{d}, Participants: func() []checkpoint.Participant { return d.engine.Participants() }, Log: zerolog.Nop(), Failpoints: d.fail,
	})
	require.NoError(t, err)
	m, err := d.coord.Claim(ctx)
	require.NoError(t, err)
	if !d.opts.noWAL {
		d.log, err = wal.Open(filepath.Join(d.dir, "wal"), wal.Options{Failpoints: d.fail})
		require.NoError(t, err)
	}
	jobs := map[uint64]*checkpoint.JobState{}
	epoch := uint64(0)
	if m != nil {
		for id, js := range m.Jobs {
			c := *js
			if id == TablesID || d.away.Load() == 0 {
				c.State = d.fetch(js)
			}
			jobs[id] = &c
			epoch = max(epoch, js.Epoch)
		}
	}
	d.engine, err = New(Config{
		Dir: d.dir, Shared: d.shared, Lib: functions.Builtins(), Connectors: connector.NewRegistry(d.script).WithSinks(d.model), Logger: zerolog.Nop(), Failpoints: d.fail,
		WAL: d.log, EpochInterval: time.Millisecond, MaxPar: state.DefaultMaxParallelism, ChangeLog: d.opts.changeLog, Backend: d.opts.backend,
		WithoutInflight: d.opts.without, ChunkRows: d.opts.chunkRows, Now: d.opts.now, Fetch: func(_ context.Context, js *checkpoint.JobState) (*state.Snapshot, error) {
			if d.away.Add(-1) >= 0 {
				return nil, &object.Error{Op: "get", Kind: object.ErrUnavailable, Retryable: true}
			}
			return d.fetch(js), nil
		},
	}, epoch, jobs[TablesID])
	require.NoError(t, err)
	d.engine.SetSettings(cfg.JobSettings())
	var starting []*Job
	for _, def := range d.defs {
		switch def.rel.Kind {
		case planner.Table:
			d.openTable(def)
		case planner.MaterializedView, planner.System:
			j, err := d.engine.CreateJob(d.spec(def), jobs[def.rel.ID])
			require.NoError(t, err)
			starting = append(starting, j)
		}
	}
	for _, x := range d.indexes {
		require.NoError(t, d.engine.OpenIndex(x.spec, x.built))
	}
	require.NoError(t, d.engine.Replay())
	d.engine.Start(d.coord)
	for _, j := range starting {
		j.Start()
	}
	runCtx, cancel := context.WithCancel(ctx)
	d.cancel = cancel
	coord := d.coord
	d.work.Go(func() { _ = coord.Run(runCtx) }) // ends with the context
}

func (d *testDB) fetch(js *checkpoint.JobState) *state.Snapshot {
	s, err := d.coord.Fetch(context.Background(), js, filepath.Join(d.dir, "jobs", fmt.Sprint(js.Job)))
	require.NoError(d.t, err)
	return s
}

// crash stops without a last checkpoint.
func (d *testDB) crash() {
	if d.engine == nil {
		return
	}
	d.cancel()
	d.work.Wait()
	require.NoError(d.t, d.engine.Close())
	if d.log != nil {
		require.NoError(d.t, d.log.Close())
	}
	d.shared.Close()
	d.script.forget()
	d.engine = nil
}

func (d *testDB) reopen() {
	d.crash()
	d.open()
}

func (d *testDB) relation(name string) *planner.Relation {
	for _, def := range d.defs {
		if def.rel.Name == name {
			return def.rel
		}
	}
	d.t.Fatalf("no relation %q", name)
	return nil
}

// Relation implements planner.Catalog.
func (d *testDB) Relation(_, name string) (*planner.Relation, bool) {
	for _, def := range d.defs {
		if def.rel.Name == name {
			return def.rel, true
		}
	}
	return nil, false
}

// TypeName implements planner.Catalog.
func (d *testDB) TypeName(types.OID) (string, bool) { return "", false }

// Type implements planner.Catalog.
func (d *testDB) Type(string, string) (types.OID, bool) { return 0, false }

// EnumValues implements planner.Catalog.
func (d *testDB) EnumValues(types.OID) []string { return nil }

// Functions implements planner.Catalog.
func (d *testDB) Functions(string, string) []*planner.Function { return nil }

// SchemaExists implements planner.Catalog.
func (d *testDB) SchemaExists(name string) bool { return name == "public" }

func (d *testDB) id() uint64 {
	d.nextID++
	return d.nextID
}

func columns(t *testing.T, cols string) []planner.RelColumn {
	var out []planner.RelColumn
	for _, c := range strings.Split(cols, ",") {
		f := strings.Fields(c)
		tn, err := sql.ParseTypeName(f[1])
		require.NoError(t, err)
		typ, err := planner.ResolveType(tn, nil)
		require.NoError(t, err)
		out = append(out, planner.RelColumn{Name: f[0], Type: typ})
	}
	return out
}

func stored(r *planner.Relation) types.Schema {
	var s types.Schema
	for _, c := range r.Columns {
		s = append(s, types.Column{Name: c.Name, Type: c.Type})
	}
	return s
}

// table creates a table whose first column is the key.
func (d *testDB) table(name, cols string) {
	def := &definition{rel: &planner.Relation{ID: d.id(), Schema: "public", Name: name, Kind: planner.Table, Columns: columns(d.t, cols), Key: []int{0}}}
	def.rel.Columns[0].NotNull = true
	d.openTable(def)
	d.defs = append(d.defs, def)
}

func (d *testDB) openTable(def *definition) {
	_, err := d.engine.CreateTable(context.Background(), def.rel.ID, def.rel.Name, stored(def.rel), def.rel.Key)
	require.NoError(d.t, err)
}

// index makes an index over the first columns of a list of a table's columns, perhaps DESC.
func (d *testDB) index(name, table, keys string) {
	rel := d.relation(table)
	x := planner.RelIndex{ID: d.id(), Name: name}
	for _, k := range strings.Split(keys, ",") {
		f := strings.Fields(k)
		i := slices.IndexFunc(rel.Columns, func(c planner.RelColumn) bool { return c.Name == f[0] })
		x.Keys = append(x.Keys, planner.RelIndexKey{Column: i, Desc: len(f) > 1, NullsFirst: len(f) > 1})
	}
	var err error
	def := &indexDefinition{spec: indexSpec(rel, &x)}
	def.built, err = d.engine.CreateIndex(d.ctx(), def.spec)
	require.NoError(d.t, err)
	rel.Ordered, rel.Indexes, d.indexes = true, append(rel.Indexes, x), append(d.indexes, def)
}

// indexDefinition is an index as the catalog would keep it.
type indexDefinition struct {
	spec  *IndexSpec
	built uint64
}

func indexSpec(rel *planner.Relation, x *planner.RelIndex) *IndexSpec {
	spec := &IndexSpec{ID: x.ID, Name: x.Name, Table: rel.ID}
	for _, k := range x.Keys {
		spec.Keys = append(spec.Keys, IndexKey{Expr: expr.Col(k.Column, rel.Columns[k.Column].Type), Label: rel.Columns[k.Column].Name, Desc: k.Desc, NullsFirst: k.NullsFirst})
	}
	return spec
}

// source declares a source of the scripted connector. watermark is "" or "column expression".
func (d *testDB) source(name, cols, watermark string) {
	r := &planner.Relation{
		ID: d.id(), Schema: "public", Name: name, Kind: planner.Source, AppendOnly: true, Columns: columns(d.t, cols),
		Source: &plan.Source{Name: name, Connector: "scripted", Options: map[string]string{}},
	}
	if col, text, ok := strings.Cut(watermark, " "); ok {
		i := slices.IndexFunc(r.Columns, func(c planner.RelColumn) bool { return c.Name == col })
		r.Watermark = &planner.RelWatermark{Column: i, Expr: d.parse("select " + text)}
	}
	d.defs = append(d.defs, &definition{rel: r})
}

func (d *testDB) parse(text string) *sql.Query {
	stmts, err := sql.Parse(text)
	require.NoError(d.t, err, text)
	q, ok := stmts[0].(*sql.Query)
	require.True(d.t, ok)
	return q
}

func (d *testDB) planOptions(id uint64, parallelism int) planner.Options {
	o := planner.Options{Catalog: d, Registry: functions.Builtins(), SearchPath: []string{"public"}, Relation: id, Parallelism: parallelism, StateTTL: d.opts.stateTTL.Microseconds()}
	if d.opts.lookups {
		o.LookupJoinRows = 1
	}
	return o
}

// create defines a materialized view and starts its job without waiting.
func (d *testDB) create(name, query string, parallelism int) *Job {
	j := d.define(name, query, parallelism)
	j.Start()
	return j
}

// define defines a materialized view whose job is still to be started.
func (d *testDB) define(name, query string, parallelism int) *Job {
	id := d.id()
	p, err := planner.PlanStream(d.parse(query), d.planOptions(id, parallelism))
	require.NoError(d.t, err, query)
	rel := &planner.Relation{ID: id, Schema: "public", Name: name, Kind: planner.MaterializedView}
	root := p.Plan.Fragments[len(p.Plan.Fragments)-1].Root
	for i, c := range root.Schema {
		col := planner.RelColumn{Name: c.Name, Type: c.Type, Hidden: i >= p.Plan.Visible}
		if i < len(p.Columns) {
			col.Name = p.Columns[i].Name
		}
		rel.Columns = append(rel.Columns, col)
	}
	rel.Key, rel.AppendOnly = root.Materialize.KeyColumns, root.Inputs[0].AppendOnly
	def := &definition{rel: rel, query: query, plan: p.Plan, parallelism: parallelism}
	j, err := d.engine.CreateJob(d.spec(def), nil)
	require.NoError(d.t, err)
	d.defs = append(d.defs, def)
	return j
}

func (d *testDB) spec(def *definition) JobSpec {
	return JobSpec{ID: def.rel.ID, Name: def.rel.Name, Plan: def.plan, Parallelism: def.parallelism, Backend: d.opts.backend, Sink: def.sink}
}

// view creates a materialized view and waits until it has caught up.
func (d *testDB) view(name, query string, parallelism int) *Job {
	j := d.create(name, query, parallelism)
	d.wait(j.CaughtUp(), "view "+name+" catches up")
	return j
}

func (d *testDB) job(name string) *Job {
	j, ok := d.engine.Job(d.relation(name).ID)
	require.True(d.t, ok)
	return j
}

func (d *testDB) rel(name string) *Relation {
	r, ok := d.engine.Relation(d.relation(name).ID)
	require.True(d.t, ok)
	return r
}

func (d *testDB) wait(ch <-chan struct{}, what string) {
	d.t.Helper()
	select {
	case <-ch:
	case <-time.After(testPatience):
		d.t.Fatalf("it takes too long: %s\n%s", what, d.describe())
	}
}

func (d *testDB) describe() string {
	var b strings.Builder
	for _, j := range d.engine.Jobs() {
		fmt.Fprintf(&b, "%s %s, %d restarts, published %d closed %d of %d: %v\n", j.Name(), j.Status(), j.Restarts(), j.published.Load(), j.closed(), d.engine.Epoch(), j.Err())
	}
	return b.String()
}

// until waits for a condition that changes with the engine's progress.
func (d *testDB) until(what string, cond func() bool) {
	d.t.Helper()
	deadline := time.After(testPatience)
	for {
		changed := d.engine.progress.wait()
		if cond() {
			return
		}
		select {
		case <-changed:
		case <-deadline:
			d.t.Fatalf("it takes too long: %s\n%s", what, d.describe())
		}
	}
}

func (d *testDB) ctx() context.Context {
	ctx, cancel := context.WithTimeout(context.Background(), testPatience)
	d.t.Cleanup(cancel)
	return ctx
}

// encode encodes a row of a relation from text, "null" being NULL.
func encode(r *Relation, vals string) (key, row []byte) {
	c := types.NewChunk(r.Types)
	for i, v := range strings.Split(vals, ",") {
		if v == "null" {
			c.Cols[i].AppendNull()
			continue
		}
		dat := types.Datum{Type: r.Types[i]}
		if r.Types[i].OID == types.OIDText {
			dat.Str = v
		} else {
			n, err := strconv.ParseInt(v, 10, 64)
			if err != nil {
				panic(err)
			}
			dat.Int = n
		}
		c.Cols[i].AppendDatum(dat)
	}
	for _, k := range r.Key {
		key = types.AppendKey(key, c.Cols[k], 0, false, false)
	}
	return key, types.AppendRow(nil, c.Cols, 0)
}

// change reads one change: +row upserts, -row deletes by the key in it, !row inserts without looking.
func (d *testDB) change(name, text string) Change {
	r := d.rel(name)
	key, row := encode(r, text[1:])
	ch := Change{Key: key, New: row}
	if text[0] == '!' {
		return ch
	}
	v := r.Latest()
	defer v.Release()
	old, ok, err := v.Get(0, key)
	if err == nil && ok {
		ch.Old = slices.Clone(old)
	}
	if text[0] == '-' {
		ch.New = nil
	}
	return ch
}

// try runs one transaction: "table +1,10 -2,0; other +5,5".
func (d *testDB) try(text string) (uint64, error) {
	var ws []TableWrite
	for _, part := range strings.Split(text, ";") {
		f := strings.Fields(part)
		w := TableWrite{Table: d.rel(f[0]), Constraint: f[0] + "_pkey"}
		for _, c := range f[1:] {
			w.Changes = append(w.Changes, d.change(f[0], c))
		}
		ws = append(ws, w)
	}
	return d.engine.Commit(context.Background(), ws)
}

func (d *testDB) exec(text string) uint64 {
	d.t.Helper()
	e, err := d.try(text)
	require.NoError(d.t, err, text)
	return e
}

// query evaluates a SELECT at an epoch not before min and returns its rows, sorted.
func (d *testDB) query(text string, min uint64) []string {
	d.t.Helper()
	p, err := planner.PlanQuery(d.parse(text), d.planOptions(0, 1))
	require.NoError(d.t, err, text)
	rels, err := d.engine.Relations(p.Plan.Inputs)
	require.NoError(d.t, err)
	pins, err := d.engine.Pin(d.ctx(), rels, min)
	if err != nil {
		d.t.Fatalf("%s at %d: %v\n%s", text, min, err, d.describe())
	}
	defer pins.Release()
	require.GreaterOrEqual(d.t, pins.Epoch, min)
	return d.run(p, pins)
}

func (d *testDB) run(p *planner.Planned, pins *Pinned) []string {
	d.t.Helper()
	out := []string{}
	require.NoError(d.t, d.engine.Run(context.Background(), &Query{Plan: p.Plan, Env: d.engine.jobEnv(), Pinned: pins, Emit: func(c *types.Chunk) error {
		for i := range c.Rows() {
			var b []string
			for k := range p.Plan.Visible {
				if v := c.Cols[k]; v.IsNull(c.Row(i)) {
					b = append(b, "null")
				} else {
					b = append(b, string(types.AppendText(nil, types.DefaultFormat(), v, c.Row(i))))
				}
			}
			out = append(out, strings.Join(b, ","))
		}
		return nil
	}}))
	slices.Sort(out)
	return out
}

// same compares every view with its query, at the present epoch (P2).
func (d *testDB) same(names ...string) {
	d.t.Helper()
	epoch, err := d.engine.clock.tick(d.ctx())
	require.NoError(d.t, err)
	d.engine.wakeSources()
	for _, def := range d.defs {
		if len(names) > 0 && !slices.Contains(names, def.rel.Name) || def.query == "" {
			continue
		}
		require.Equal(d.t, d.query(def.query, epoch), d.query("select "+visible(def.rel)+" from "+def.rel.Name, epoch), "%s: %s", def.rel.Name, def.query)
	}
}

func visible(r *planner.Relation) string {
	var names []string
	for _, c := range r.Columns {
		if !c.Hidden {
			names = append(names, c.Name)
		}
	}
	return strings.Join(names, ", ")
}

// checkpoint makes a checkpoint of everything that runs.
func (d *testDB) checkpoint() {
	d.t.Helper()
	_, err := d.coord.Trigger(d.ctx(), nil)
	if err != nil {
		d.t.Fatalf("checkpoint: %v\n%s", err, d.describe())
	}
}

// covered reports the epoch of the job's last completed checkpoint.
func (d *testDB) covered(name string) uint64 {
	j := d.job(name)
	j.mu.Lock()
	defer j.mu.Unlock()
	if j.completed == nil {
		return 0
	}
	return j.completed.Epoch
}

// scripted is a connector whose splits and rows the test provides.
type scripted struct {
	mu      sync.Mutex
	splits  map[string]*scriptedSplit
	bounded bool
	fails   int // how often Splits still fails
	opened  map[string]int
}

type scriptedSplit struct {
	rows  []string // "bad" cannot be decoded, "fail" fails the read once
	ended bool
	read  int // where its reader is
}

func newScripted() *scripted {
	return &scripted{splits: map[string]*scriptedSplit{}, opened: map[string]int{}}
}

// add appends rows to a split, which appears with that.
func (s *scripted) add(split string, rows ...string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.splits[split] == nil {
		s.splits[split] = &scriptedSplit{}
	}
	s.splits[split].rows = append(s.splits[split].rows, rows...)
}

// unread is how many rows the readers have before them.
func (s *scripted) unread() (n int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, sp := range s.splits {
		n += len(sp.rows) - sp.read
	}
	return n
}

// forget makes all rows unread, until readers are there again.
func (s *scripted) forget() {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, sp := range s.splits {
		sp.read = -1
	}
}

// end ends all splits; no more will come.
func (s *scripted) end() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.bounded = true
	for _, sp := range s.splits {
		sp.ended = true
	}
}

func (s *scripted) Name() string                                           { return "scripted" }
func (s *scripted) Options() []connector.Option                            { return nil }
func (s *scripted) NeedsEncode() bool                                      { return false }
func (s *scripted) Schema(c *connector.SourceConfig) (types.Schema, error) { return c.Columns, nil }
func (s *scripted) Source(_ context.Context, cfg *connector.SourceConfig) (connector.Source, error) {
	return &scriptedSource{s: s, cfg: cfg}, nil
}

type scriptedSource struct {
	s   *scripted
	cfg *connector.SourceConfig
}

func (s *scriptedSource) Splits(context.Context) ([]connector.Split, error) {
	s.s.mu.Lock()
	defer s.s.mu.Unlock()
	if s.s.fails > 0 {
		s.s.fails--
		return nil, errors.New("cannot list splits")
	}
	var out []connector.Split
	for id := range s.s.splits {
		out = append(out, connector.Split{ID: id})
	}
	return out, nil
}

func (s *scriptedSource) Bounded() bool {
	s.s.mu.Lock()
	defer s.s.mu.Unlock()
	return s.s.bounded
}

func (s *scriptedSource) Close() error { return nil }

func (s *scriptedSource) Open(_ context.Context, sp connector.Split, cols []int, rowID bool, errs connector.ErrorSink) (connector.Reader, error) {
	r := &scriptedReader{s: s, split: sp.ID, cols: cols, rowID: rowID, errs: errs}
	if sp.Position != nil {
		r.pos, _ = strconv.Atoi(string(sp.Position))
	}
	s.s.mu.Lock()
	defer s.s.mu.Unlock()
	s.s.splits[sp.ID].read = r.pos
	s.s.opened[sp.ID]++
	return r, nil
}

type scriptedReader struct {
	s     *scriptedSource
	split string
	cols  []int
	rowID bool
	pos   int
	errs  connector.ErrorSink
}

func (r *scriptedReader) Next(_ context.Context, c *types.Chunk, max int) (connector.Status, time.Duration, error) {
	r.s.s.mu.Lock()
	defer r.s.s.mu.Unlock()
	sp := r.s.s.splits[r.split]
	for ; r.pos < len(sp.rows) && c.N < max; r.pos++ {
		text := sp.rows[r.pos]
		switch text {
		case "bad":
			r.errs.BadRow(r.split, strconv.Itoa(r.pos), errors.New("not a row"), []byte(text))
			continue
		case "fail":
			sp.rows[r.pos] = "bad"
			return connector.More, 0, errors.New("read failed")
		}
		vals := strings.Split(text, ",")
		for i, col := range r.cols {
			n, _ := strconv.ParseInt(vals[col], 10, 64)
			c.Cols[i].AppendDatum(types.Datum{Type: c.Cols[i].Type, Int: n})
		}
		if r.rowID {
			id, _ := strconv.ParseInt(vals[0], 10, 64)
			c.Cols[len(r.cols)].AppendDatum(types.Datum{Type: types.Int8, Int: id})
		}
		c.PushWeight(1)
	}
	sp.read = r.pos
	switch {
	case r.pos < len(sp.rows):
		return connector.More, 0, nil
	case sp.ended:
		return connector.End, 0, nil
	}
	return connector.Idle, time.Millisecond, nil
}

func (r *scriptedReader) Position() []byte { return []byte(strconv.Itoa(r.pos)) }
func (r *scriptedReader) Lag() int64       { return 0 }
func (r *scriptedReader) Close() error     { return nil }

// walSize is the size of the newest segment of the write-ahead log.
func walSize(t *testing.T, dir string) int64 {
	names, err := filepath.Glob(filepath.Join(dir, "wal", "*.wal"))
	require.NoError(t, err)
	st, err := os.Stat(names[len(names)-1])
	require.NoError(t, err)
	return st.Size()
}
