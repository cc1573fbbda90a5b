// Package server is the composition root: it wires storage, catalog, engine, checkpoints and protocol into one server, and implements
// sessions: statements, transactions, DDL and DML.
//
//	pgwire ─▶ session ─▶ sql.Parse ─▶ planner ─┬─▶ exec.Run (pinned versions)                 SELECT
//	                                           ├─▶ exec.Commit (write-ahead log, one epoch)   INSERT, UPDATE, DELETE
//	                                           └─▶ catalog.Update + exec.CreateJob            CREATE …
package server

import (
	"cmp"
	"context"
	"crypto/tls"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"github.com/rs/zerolog"

	"github.com/streamdb/streamdb/auth"
	"github.com/streamdb/streamdb/catalog"
	"github.com/streamdb/streamdb/checkpoint"
	"github.com/streamdb/streamdb/connector"
	"github.com/streamdb/streamdb/exec"
	"github.com/streamdb/streamdb/internal/failpoint"
	"github.com/streamdb/streamdb/internal/pgerr"
	"github.com/streamdb/streamdb/pgwire"
	"github.com/streamdb/streamdb/planner/plan"
	"github.com/streamdb/streamdb/sql/functions"
	"github.com/streamdb/streamdb/state"
	"github.com/streamdb/streamdb/storage/object"
	"github.com/streamdb/streamdb/storage/wal"
	"github.com/streamdb/streamdb/types"
)

// Config is everything a server can be told. Zero fields get the defaults of DefaultConfig.
type Config struct {
	DataDir       string `yaml:"data_dir"`
	MemoryOnly    bool   `yaml:"memory_only"` // nothing is written; DataDir is a temporary directory
	Listen        string `yaml:"listen"`
	HTTP          string `yaml:"http"`
	CheckpointDir string `yaml:"checkpoint_dir"`
	Memory        int64  `yaml:"memory"` // bytes
	Cores         int    `yaml:"-"`      // that jobs spread over; 0: GOMAXPROCS
	Insecure      bool   `yaml:"insecure"`

	HBAFile           string        `yaml:"hba"` // rules in the form of pg_hba.conf; "": the built-in ones
	TLS               auth.TLSFiles `yaml:"tls"`
	SuperuserPassword string        `yaml:"-"` // "": as it is

	// OnStandby is told when the server begins to wait for the lead (high-availability.type); it must return at once.
	OnStandby func(*Standby) `yaml:"-"`

	EpochInterval time.Duration     `yaml:"epoch_interval"`
	Settings      map[string]string `yaml:"settings"` // initial values of server-wide settings
	SettingsFrom  map[string]string `yaml:"-"`        // by the names of Settings, the configuration files that gave them; others are those of the command line

	Connectors *connector.Registry `yaml:"-"`
	Logger     zerolog.Logger      `yaml:"-"`
	Failpoints *failpoint.Set      `yaml:"-"`
}

// Defaults of Config.
const (
	DefaultListen        = "127.0.0.1:5433"
	DefaultHTTP          = "127.0.0.1:8433"
	DefaultDataDir       = "./streamdb-data"
	DefaultMemory        = 2 << 30
	DefaultEpochInterval = 100 * time.Millisecond
	// changeLogShare of the memory is what one relation's change log may hold for slow readers.
	changeLogShare = 8
	minChangeLog   = 64 << 20 // bytes; below that a single large transaction would outrun every view
	shutdownGrace  = 10 * time.Second
)

// Server is a running database.
type Server struct {
	cfg      Config
	log      zerolog.Logger
	registry *functions.Registry
	catalog  *catalog.Catalog
	engine   *exec.Engine
	objects  *object.Metered
	coord    *checkpoint.Coordinator
	elector  *checkpoint.Elector // nil: there are no standbys
	abandon  context.CancelCauseFunc
	shared   *state.Shared
	wal      *wal.WAL
	lock     *os.File
	wire     *pgwire.Server
	settings *serverSettings
	auth     *auth.Authenticator
	tls      *auth.TLS // nil: connections are not encrypted

	tables     sync.Map // uint64 → *tableState
	sessions   sync.Map // int32 → *session
	sequences  sync.Map // uint64 → *sequence
	following  sync.Map // *subscription → nothing
	channels   channels
	locks      lockManager
	started    time.Time
	downloads  sync.Map // uint64 → time.Duration: of the files of a job's state, at the start
	startTook  time.Duration
	root       root            // what the database was started from
	moved      bool            // the catalog came from a checkpoint alone: another machine may have told epochs to clients
	stopping   context.Context //nolint:containedctx // ends when sessions are asked to
	stop       context.CancelFunc
	configured atomic.Int64 // when rules and certificates were last read, µs since 2000-01-01 UTC
	ready      atomic.Bool
	statements atomic.Int64
	givingBack atomic.Bool
	operations operations // asked for over HTTP

	ctx      context.Context //nolint:containedctx // ends when the server stops
	cancel   context.CancelFunc
	work     sync.WaitGroup
	election sync.WaitGroup
	fatal    chan error
	closeOne sync.Once
	closeErr error
}

// tableState is what DML needs of a base table besides its relation.
type tableState struct {
	nextRow atomic.Int64
}

// Open restores the database and starts it; no port is opened. Close stops it.
func Open(ctx context.Context, cfg Config) (*Server, error) {
	if cfg.Memory == 0 {
		cfg.Memory = DefaultMemory
	}
	if cfg.EpochInterval == 0 {
		cfg.EpochInterval = DefaultEpochInterval
	}
	if cfg.DataDir == "" {
		cfg.DataDir = DefaultDataDir
	}
	s := &Server{cfg: cfg, log: cfg.Logger, registry: functions.Builtins(), started: time.Now(), fatal: make(chan error, 1)}
	s.ctx, s.cancel = context.WithCancel(context.Background())
	s.stopping, s.stop = context.WithCancel(s.ctx)
	if err := s.open(ctx); err != nil {
		return nil, errors.Join(err, s.release())
	}
	return s, nil
}

func (s *Server) open(ctx context.Context) error {
	var err error
	if s.settings, err = newServerSettings(s.cfg.Settings, s.cfg.SettingsFrom); err != nil {
		return err
	}
	s.logDeprecated()
	s.settings.memory = s.cfg.Memory
	s.cfg.CheckpointDir = cmp.Or(s.cfg.CheckpointDir, s.settings.get(checkpoint.SettingDirectory))
	if s.cfg.MemoryOnly {
		if s.cfg.DataDir, err = os.MkdirTemp("", "streamdb-memory-"); err != nil {
			return err
		}
		if s.cfg.CheckpointDir == "" {
			s.cfg.CheckpointDir = "memory://"
		}
	}
	if s.cfg.DataDir, err = filepath.Abs(s.cfg.DataDir); err != nil {
		return err
	}
	if s.cfg.CheckpointDir == "" {
		s.cfg.CheckpointDir = object.FolderURL(filepath.Join(s.cfg.DataDir, "checkpoints"))
	}
	if s.cfg.CheckpointDir, err = object.FromHere(s.cfg.CheckpointDir); err != nil {
		return err
	}
	s.settings.told(checkpoint.SettingDirectory, s.cfg.CheckpointDir)
	if err := s.checkFolders(ctx); err != nil {
		return err
	}
	if err := os.MkdirAll(s.cfg.DataDir, 0o700); err != nil {
		return pgerr.Wrap(pgerr.IOError, err, "create data directory")
	}
	if err := s.awaitLead(ctx); err != nil {
		return err
	}
	if s.lock, err = s.lockData(ctx); err != nil {
		return err
	}
	locked := time.Now()
	if err := s.clearScratch(); err != nil {
		return err
	}
	if !s.cfg.MemoryOnly {
		if err := s.settings.load(filepath.Join(s.cfg.DataDir, settingsFile), s.log); err != nil {
			return err
		}
	}
	if err := s.settings.checkCheckpoints(nil); err != nil {
		return err
	}
	store, err := object.Open(ctx, s.cfg.CheckpointDir)
	if err != nil {
		return fmt.Errorf("checkpoint directory %s: %w", s.cfg.CheckpointDir, err)
	}
	s.objects = object.NewMetered(store)
	if err := s.checkOwner(ctx, s.objects); err != nil {
		return err
	}
	if err := object.Probe(ctx, s.objects); err != nil {
		return fmt.Errorf("checkpoint directory %s: %w", s.cfg.CheckpointDir, err)
	}
	claim, err := s.beginClaim(ctx)
	if err != nil {
		return err
	}
	s.shared = state.OpenShared(s.cfg.Memory)
	if s.coord, err = checkpoint.New(s.settings.checkpoints(), s.objects, checkpoint.Env{
		Clock: engineClock{s}, Participants: func() []checkpoint.Participant { return s.engine.Participants() },
		Catalog: s.catalogBytes, FailJob: s.failJob, Published: s.checkpointCompleted, Scratch: filepath.Join(s.cfg.DataDir, scratchDir), Holder: checkpoint.Holder(), Process: checkpoint.Process(os.Getpid()), Elected: s.elector != nil,
		Claim: claim.Intended, Log: s.log, Failpoints: s.cfg.Failpoints,
	}); err != nil {
		return err
	}
	m, err := s.coord.Claim(ctx)
	if err != nil {
		return fmt.Errorf("checkpoint directory %s: %w", s.cfg.CheckpointDir, err)
	}
	if err := s.endClaim(ctx, claim); err != nil {
		return err
	}
	from, err := s.openRoot(ctx, m)
	if err != nil {
		return err
	}
	begin, all := m, m
	if from != nil {
		s.coord.Continue(from, m)
		all = from.Under(m)
	}
	if m == nil && from != nil {
		begin = all
		s.log.Info().Str("path", from.Path).Uint64("checkpoint", from.ID).Msg("restoring the database")
	}
	var line []string
	switch {
	case from != nil:
		line = from.Line
	case object.InMemory(s.objects): // there is no HEAD that knows
		line = []string{claim.before}
	}
	if err := s.coord.Descend(ctx, line); err != nil {
		return err
	}
	if err := s.openCatalog(begin); err != nil {
		return err
	}
	if !s.cfg.MemoryOnly {
		if s.wal, err = wal.Open(filepath.Join(s.cfg.DataDir, "wal"), wal.Options{Log: s.log, Failpoints: s.cfg.Failpoints}); err != nil {
			return err
		}
	}
	if err := s.restore(ctx, all); err != nil {
		return err
	}
	if err := s.openSecurity(); err != nil {
		return err
	}
	s.logContradictions()
	s.startTook = time.Since(locked)
	s.run()
	return nil
}

// currentTLS returns the configuration for a new connection, nil when there is none.
func (s *Server) currentTLS() *tls.Config {
	if s.tls == nil {
		return nil
	}
	cfg, err := s.tls.Config()
	if err != nil {
		s.log.Error().Err(err).Msg("the certificate was not reloaded: the former stays in use")
	}
	return cfg
}

// engineClock is the engine as the coordinator's clock; the engine comes into being after the coordinator.
type engineClock struct{ s *Server }

// BeginCheckpoint implements checkpoint.Clock.
func (c engineClock) BeginCheckpoint(id uint64, cut checkpoint.Cut) (uint64, error) {
	return c.s.engine.BeginCheckpoint(id, cut)
}

// Quiet implements checkpoint.Clock.
func (c engineClock) Quiet() bool {
	m := c.s.coord.Latest()
	return m != nil && m.CatalogVersion == c.s.catalog.Snapshot().Version && c.s.engine.Quiet()
}

func (s *Server) catalogBytes() (uint64, []byte) {
	snap := s.catalog.Snapshot()
	data, err := snap.Marshal()
	if err != nil { // the same content was encoded when it was stored
		s.log.Error().Err(err).Msg("encode catalog")
	}
	return snap.Version, data
}

func (s *Server) failJob(job uint64, cause error) {
	if j, ok := s.engine.JobWithID(job); ok {
		j.Fail(fmt.Errorf("checkpoints failed more often than tolerated: %w", cause))
	}
}

// openCatalog takes the newer of the local catalog and that of the checkpoint.
func (s *Server) openCatalog(m *checkpoint.Manifest) error {
	path := filepath.Join(s.cfg.DataDir, catalogFile)
	data, err := readCatalog(path)
	if err != nil {
		return err
	}
	persist := func(b []byte) error {
		if err := s.cfg.Failpoints.Hit("schema/store"); err != nil {
			return err
		}
		if err := writeCatalog(path, b); err != nil {
			return err
		}
		return s.cfg.Failpoints.Hit("schema/stored")
	}
	if s.cfg.MemoryOnly {
		persist = nil
	}
	if s.catalog, err = catalog.New(data, persist); err != nil {
		return err
	}
	s.moved = data == nil && m != nil && !s.cfg.MemoryOnly
	if m != nil && m.CatalogVersion > s.catalog.Snapshot().Version {
		if s.catalog, err = catalog.New(m.Catalog, persist); err != nil {
			return err
		}
		if persist != nil {
			return persist(m.Catalog)
		}
	}
	return nil
}

// restore brings tables and jobs to their states in checkpoint m and applies the write-ahead log over it.
func (s *Server) restore(ctx context.Context, m *checkpoint.Manifest) error {
	var jobs map[uint64]*checkpoint.JobState
	if m != nil {
		jobs = m.Jobs
	}
	epoch := uint64(0)
	for _, js := range jobs {
		epoch = max(epoch, js.Epoch)
	}
	fetch := func(id uint64) (*checkpoint.JobState, error) {
		js := jobs[id]
		if js == nil {
			return nil, nil
		}
		return js, s.fetchState(ctx, js)
	}
	tables, err := fetch(exec.TablesID)
	if err != nil {
		return fmt.Errorf("restore tables: %w", err)
	}
	tableEpoch := uint64(0)
	if tables != nil {
		tableEpoch = tables.Epoch
	}
	backend, err := state.ParseBackend(s.settings.get("state.backend.type"))
	if err != nil {
		return err
	}
	withoutInflight, err := strconv.ParseUint(s.settings.get(checkpoint.SettingWithoutChannel), 10, 64)
	if err != nil {
		return err // checked when it was set
	}
	s.engine, err = exec.New(exec.Config{
		WithoutInflight: withoutInflight,
		Dir:             s.cfg.DataDir, Shared: s.shared, Lib: s.registry, Connectors: s.cfg.Connectors, Logger: s.log, Failpoints: s.cfg.Failpoints,
		WAL: s.wal, KeepWAL: object.InMemory(s.objects), EpochInterval: s.cfg.EpochInterval, MaxPar: state.DefaultMaxParallelism, ChangeLog: max(s.cfg.Memory/changeLogShare, minChangeLog),
		Backend: backend, ChunkRows: s.settings.chunkRows(), Reserve: s.reserveEpochs(),
		Fetch: s.fetchFiles, Writer: s.writer(),
	}, epoch, tables)
	if err != nil {
		return err
	}
	if err := s.openSystemTable(ctx); err != nil {
		return err
	}
	if err := s.dropUnfinished(); err != nil {
		return err
	}
	past, back := s.newRecall(m), &fallback{s: s, on: s.settings.get(settingFallback) == fallbackPrevious, to: map[uint64]*checkpoint.Manifest{}}
	var starting []*exec.Job
	objects := s.catalog.Snapshot().Objects()
	slices.SortStableFunc(objects, func(a, b *catalog.Object) int { return cmp.Compare(a.JobID(), b.JobID()) }) // inputs come before what reads them
	for _, o := range objects {
		switch {
		case o.Kind == catalog.Index && o.Plan == nil:
			if err := s.openIndex(o); err != nil {
				return fmt.Errorf("index %s: %w", o.Name, err)
			}
		case o.Kind == catalog.Table:
			if err := s.openTable(ctx, o, tableEpoch); err != nil {
				return fmt.Errorf("table %s: %w", o.Name, err)
			}
			past.relation(ctx, o, tables)
		case o.Plan != nil:
			js, err := back.state(ctx, o, past.newest(ctx, o, fetch))
			if err != nil {
				// The others must not wait for it. The job tries again, and is computed from its inputs where these have all that it needs.
				s.log.Error().Err(err).Str("view", o.Name).Msg("checkpointed state cannot be restored")
			}
			j, err := s.createJob(o, js, nil)
			if err != nil {
				return fmt.Errorf("%s %s: %w", o.Kind, o.Name, err)
			}
			if o.Paused {
				j.Pause()
			}
			past.relation(ctx, o, js)
			starting = append(starting, j)
		}
	}
	if err := s.engine.Replay(); err != nil {
		return err
	}
	if err := errors.Join(s.skipReserved(), s.engine.ForgetHistories()); err != nil {
		return err
	}
	for _, o := range s.catalog.Snapshot().Objects() {
		if o.Kind == catalog.Table {
			if err := s.initRowNumbers(o); err != nil {
				return err
			}
		}
	}
	s.engine.SetSettings(jobCheckpoints(s.settings.get))
	s.engine.Start(s.coord)
	for id := range jobs {
		if _, ok := s.engine.JobWithID(id); !ok && id != exec.TablesID {
			s.coord.Drop(id) // dropped after that checkpoint
		}
	}
	if err := s.engine.RemoveUnknown(); err != nil {
		return err
	}
	for _, j := range starting {
		j.Start()
		if o, ok := s.catalog.Snapshot().Get(j.PublicID()); ok && o.Creating {
			s.finishInBackground(j)
		}
	}
	return nil
}

// dropUnfinished removes the views and indexes whose creator was still waiting when the server ended: nobody was told that they exist.
func (s *Server) dropUnfinished() error {
	unfinished := func(o *catalog.Object) bool { return o.Creating && o.Settings[settingBackground] != "on" }
	left := slices.ContainsFunc(s.catalog.Snapshot().Objects(), unfinished) ||
		slices.ContainsFunc(s.catalog.Snapshot().Namespaces(), func(n catalog.Namespace) bool { return catalog.IsTemporarySchema(n.Name) })
	if !left {
		return nil
	}
	return s.catalog.Update(func(tx *catalog.Tx) error {
		if err := s.forgetTemporary(tx); err != nil {
			return err
		}
		for _, o := range tx.Snapshot().Objects() {
			if !unfinished(o) {
				continue
			}
			tx.Remove(o.ID)
			if o.Kind == catalog.Index && o.Plan == nil {
				if err := s.engine.ForgetIndex(o.ID); err != nil {
					return err
				}
			}
		}
		return nil
	})
}

func (s *Server) run() {
	s.work.Add(1)
	go func() {
		defer s.work.Done()
		if err := s.coord.Run(s.ctx); err != nil {
			s.log.Error().Err(err).Msg("checkpoints stopped")
			select {
			case s.fatal <- err:
			default:
			}
		}
	}()
	if !object.InMemory(s.objects) {
		s.work.Go(s.watchOwner)
	}
	s.wire = pgwire.NewServer(pgwire.Config{
		Handler: s, Logger: s.log, Authenticator: s.auth, CurrentTLS: s.currentTLS,
		CurrentMaxConnections: func() int { return s.settings.number("max_connections") },
		Refuse:                s.mayExecute,
	})
	s.ready.Store(true)
}

// Serve accepts PostgreSQL connections until the listener or the server is closed.
func (s *Server) Serve(l net.Listener) error { return s.wire.Serve(l) }

// Dial connects to the server without a port; it fits pgx's DialFunc.
func (s *Server) Dial(ctx context.Context, network, addr string) (net.Conn, error) {
	return s.wire.Dial(ctx, network, addr)
}

// Fatal delivers the error after which the server cannot go on, such as another server having taken over its checkpoint directory.
func (s *Server) Fatal() <-chan error { return s.fatal }

// Ready reports whether the server takes statements.
func (s *Server) Ready() bool { return s.ready.Load() }

// Close ends sessions, writes a last checkpoint, and stops everything.
func (s *Server) Close(ctx context.Context) error {
	s.closeOne.Do(func() {
		s.ready.Store(false)
		s.stop()
		grace, cancel := context.WithTimeout(ctx, shutdownGrace)
		defer cancel()
		err := s.wire.Shutdown(grace)
		if err == context.DeadlineExceeded && ctx.Err() == nil { //nolint:errorlint // alone: clients that did not end in time were cut off, as they should be
			err = nil
		}
		if !s.cfg.MemoryOnly {
			if kerr := s.keepSequences(ctx); kerr != nil {
				s.log.Warn().Err(kerr).Msg("sequences skip values at the next start")
			}
			if cerr := s.coord.FinalCheckpoint(ctx); cerr != nil {
				s.log.Warn().Err(cerr).Msg("last checkpoint failed: the next start continues from the one before")
			}
			commits, cancel := context.WithTimeout(ctx, sinkGrace)
			s.engine.AwaitCommits(commits)
			cancel()
		}
		s.closeErr = errors.Join(err, s.release())
	})
	return s.closeErr
}

// sinkGrace is how long a stop waits for targets of sinks to take what the last checkpoint has.
const sinkGrace = 5 * time.Second

// Abort stops without a last checkpoint, as a crash would.
func (s *Server) Abort() error {
	s.closeOne.Do(func() {
		s.ready.Store(false)
		if s.abandon != nil {
			s.abandon(checkpoint.ErrAbandon)
		}
		now, cancel := context.WithCancel(context.Background())
		cancel()
		_ = s.wire.Shutdown(now) // clients are cut off, which is the point
		s.closeErr = s.release()
	})
	return s.closeErr
}

// release frees what open got so far.
func (s *Server) release() error {
	var err error
	s.cancel()
	s.work.Wait()
	s.operations.running.Wait()
	if s.engine != nil {
		err = errors.Join(err, s.engine.Close())
	}
	if s.wal != nil {
		err = errors.Join(err, s.wal.Close())
	}
	if s.shared != nil {
		s.shared.Close()
	}
	if s.lock != nil {
		err = errors.Join(err, s.lock.Close())
	}
	if s.abandon != nil {
		s.abandon(nil) // the lead is given back when nothing executes any more
		s.election.Wait()
	}
	if s.cfg.MemoryOnly && s.cfg.DataDir != "" {
		err = errors.Join(err, os.RemoveAll(s.cfg.DataDir))
	}
	return err
}

// openTable makes the runtime of a table, which was restored to epoch from.
func (s *Server) openTable(ctx context.Context, o *catalog.Object, from uint64) error {
	if _, err := s.engine.CreateTable(ctx, o.ID, o.Name, o.Stored(), o.Key); err != nil {
		return err
	}
	s.tables.Store(o.ID, &tableState{})
	if o.Layout != nil {
		if err := s.setLayout(ctx, o); err != nil {
			return err
		}
	}
	return s.retain(o, from)
}

// initRowNumbers continues the hidden row numbers of a keyless table after the largest one there is.
func (s *Server) initRowNumbers(o *catalog.Object) error {
	if o.Constraint != "" {
		return nil
	}
	rel, _ := s.engine.Relation(o.ID)
	row, ok, err := rel.LastRow()
	if err != nil || !ok {
		return err
	}
	c := types.NewChunk(rel.Layout().Types)
	if err := rel.Layout().Decode(row, c.Cols); err != nil {
		return err
	}
	s.tableState(o.ID).nextRow.Store(c.Cols[o.Key[0]].Int[0])
	return nil
}

func (s *Server) tableState(id uint64) *tableState {
	if t, ok := s.tables.Load(id); ok {
		return t.(*tableState) //nolint:forcetypeassert // only tableStates are stored
	}
	t, _ := s.tables.LoadOrStore(id, &tableState{})
	return t.(*tableState) //nolint:forcetypeassert // only tableStates are stored
}

// createJob prepares the job of a materialized view from its stored plan. reads are hidden relations that it reads.
func (s *Server) createJob(o *catalog.Object, from *checkpoint.JobState, reads map[uint64]*exec.Relation) (*exec.Job, error) {
	spec, err := jobSpec(o)
	if err != nil {
		return nil, err
	}
	spec.Reads = reads
	return s.createJobOf(o, spec, from)
}

func (s *Server) createJobOf(o *catalog.Object, spec *exec.JobSpec, from *checkpoint.JobState) (*exec.Job, error) {
	spec.Checkpoints = s.ownCheckpoints(o)
	j, err := s.engine.CreateJob(*spec, from)
	if err != nil {
		return nil, err
	}
	epoch := uint64(0)
	if from != nil {
		epoch = from.Epoch
	}
	return j, s.retain(o, epoch)
}

func jobSpec(o *catalog.Object) (*exec.JobSpec, error) {
	var p plan.Plan
	if err := json.Unmarshal(o.Plan, &p); err != nil {
		return nil, pgerr.Wrap(pgerr.DataCorrupted, err, "stored plan of %q is malformed", o.Name)
	}
	if p.Version > plan.FormatVersion {
		return nil, pgerr.Newf(pgerr.FeatureNotSupported, "stored plan of %q has version %d, this version of streamdb knows %d", o.Name, p.Version, plan.FormatVersion)
	}
	backend, err := state.ParseBackend(o.Settings["state.backend.type"])
	if err != nil {
		return nil, err
	}
	par := 1
	if _, err := fmt.Sscan(o.Settings[settingParallelism], &par); err != nil || par < 1 {
		par = 1
	}
	return &exec.JobSpec{
		ID: o.JobID(), Name: o.Name, Plan: &p, Parallelism: par, Backend: backend, Raise: o.Settings[settingOnError] == "raise",
		Format: textFormat(o.Settings), Generation: o.Rewrites, Sink: sinkSpec(o),
	}, nil
}

// Engine gives tools of this module access to the engine.
func (s *Server) Engine() *exec.Engine { return s.engine }

// Coordinator gives tools of this module access to checkpoints.
func (s *Server) Coordinator() *checkpoint.Coordinator { return s.coord }

// defaultParallelism is the number of cores, capped: small views gain nothing from more.
func (s *Server) defaultParallelism() int {
	cores := s.cfg.Cores
	if cores == 0 {
		cores = runtime.GOMAXPROCS(0)
	}
	return min(cores, maxDefaultParallelism)
}

const maxDefaultParallelism = 8
