// Package exec runs jobs and queries: the epoch clock, tables, the task loop with its exchanges and alignment, sources, versions, and
// one-shot queries over the same operators.
//
//	commit, tick ─▶ clock (one goroutine) ─▶ table versions + change logs ─▶ jobs' drivers ─▶ barriers ─▶ subtasks ─▶ materialize
//	                                                                              ▲                                    │
//	                                             closed epochs, versions ◀────────┴──────── all root subtasks done ◀───┘
package exec

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"github.com/rs/zerolog"

	"github.com/streamdb/streamdb/checkpoint"
	"github.com/streamdb/streamdb/connector"
	"github.com/streamdb/streamdb/internal/failpoint"
	"github.com/streamdb/streamdb/internal/pgerr"
	"github.com/streamdb/streamdb/sql/expr"
	"github.com/streamdb/streamdb/state"
	"github.com/streamdb/streamdb/storage/changelog"
	"github.com/streamdb/streamdb/storage/wal"
	"github.com/streamdb/streamdb/types"
)

// Config is what an engine is made of. All fields but Failpoints and Now are required.
type Config struct {
	Dir           string // data directory
	Shared        *state.Shared
	Lib           expr.Library
	Connectors    *connector.Registry
	Logger        zerolog.Logger
	Failpoints    *failpoint.Set
	WAL           *wal.WAL // nil: tables live in memory only
	KeepWAL       bool     // the log stays whole: completed checkpoints do not outlive the process
	EpochInterval time.Duration
	MaxPar        int
	ChangeLog     int64 // bytes a change log may hold for slow readers
	Backend       state.BackendType
	// Fetch makes a completed state's files local; nil: they always are.
	Fetch     func(context.Context, *checkpoint.JobState) (*state.Snapshot, error)
	ChunkRows int // rows per chunk that sources and scans make; at most types.MaxChunkRows
	// WithoutInflight is an unaligned checkpoint from which jobs go on without the rows that were in flight; 0: none.
	WithoutInflight uint64
	// Reserve makes durable that epochs up to the given one may have been told to clients; nil: nothing outlives the process.
	Reserve func(through uint64) error
	// Writer is as whom sinks write to their targets.
	Writer connector.Identity
	// Now is the clock of temporal filters; nil: time.Now.
	Now func() time.Time
}

// TablesID is the participant id of the table engine in checkpoints.
const TablesID uint64 = 1

// Acker takes the outcome of checkpoints; the checkpoint coordinator implements it.
type Acker interface {
	Acknowledge(*checkpoint.JobState)
	Decline(job, id uint64, err error)
	// Request asks for a checkpoint of a job and of all it reads from, soon.
	Request(job uint64)
	// Restart gives up what the jobs have in flight and returns the newest completed checkpoint, nil when there is none.
	Restart(ctx context.Context, jobs []uint64) (*checkpoint.Manifest, error)
	// Refresh tells that jobs came or have other settings.
	Refresh()
}

// Engine owns the clock, all relations and all jobs.
type Engine struct {
	cfg      Config
	clock    *clock
	tables   *tables
	progress notifier
	network  atomic.Int64 // bytes queued between subtasks
	acker    Acker

	restarting starting        // one group of jobs at a time starts again; held before any other lock
	life       context.Context //nolint:containedctx // ends with Close
	end        context.CancelFunc

	// bulk is held while a transaction is put into tables step by step: by one at a time, not while a checkpoint is cut nor the tables or their
	// indexes change. Held before mu.
	bulk sync.Mutex

	mu   sync.Mutex
	rels map[uint64]*Relation
	jobs map[uint64]*Job

	holdMu sync.Mutex
	holds  map[uint64]int // epochs that transaction blocks see, with their number

	settings    atomic.Pointer[checkpoint.JobSettings] // of the checkpoints of the tables, and of jobs without their own; nil: the defaults
	temporaries atomic.Uint64                          // temporary jobs made so far
	reserved    reservation

	low     atomic.Uint64 // cached lowEpoch
	lowAt   atomic.Int64  // when it was computed, monotonic ns
	started time.Time
}

// New makes an engine; nothing runs yet. The clock continues after startEpoch, the tables after their part of a checkpoint, nil when there is none.
func New(cfg Config, startEpoch uint64, from *checkpoint.JobState) (*Engine, error) {
	e := &Engine{cfg: cfg, rels: map[uint64]*Relation{}, jobs: map[uint64]*Job{}, started: time.Now(), restarting: newStarting()}
	e.life, e.end = context.WithCancel(context.Background())
	e.clock = newClock(e, startEpoch)
	var snap *state.Snapshot
	if from != nil {
		snap = from.State
	}
	store, err := state.Open(context.Background(), e.storeOptions(TablesID, cfg.Backend), snap)
	if err != nil {
		e.end()
		return nil, fmt.Errorf("open tables: %w", err)
	}
	e.tables = &tables{engine: e, store: store, byID: map[uint64]*Table{}}
	if from != nil {
		e.tables.completedEpoch.Store(from.Epoch)
	}
	return e, nil
}

// now is the time that temporal filters see, in µs since 2000-01-01 UTC.
func (e *Engine) now() int64 {
	if e.cfg.Now != nil {
		return types.TimestampFromTime(e.cfg.Now())
	}
	return types.TimestampFromTime(time.Now())
}

func (e *Engine) storeOptions(job uint64, backend state.BackendType) state.Options {
	return state.Options{
		Dir: e.jobDir(job), Backend: backend, MaxParallelism: e.cfg.MaxPar, Shared: e.cfg.Shared,
		Job: job, Logger: e.cfg.Logger, Failpoints: e.cfg.Failpoints,
	}
}

func (e *Engine) jobDir(job uint64) string {
	return filepath.Join(e.cfg.Dir, "jobs", fmt.Sprint(job))
}

// Start begins to tick. acker receives the outcome of checkpoints.
func (e *Engine) Start(acker Acker) {
	e.acker = acker
	e.clock.start()
}

// Close stops all jobs and the clock and closes the state. Nothing is checkpointed here.
func (e *Engine) Close() error {
	e.end()
	for _, j := range e.allJobs() {
		j.Stop()
	}
	e.clock.stop()
	e.tables.background.Wait()
	e.mu.Lock()
	rels := maps.Clone(e.rels)
	e.mu.Unlock()
	for _, r := range rels { // or the databases below stay open
		if h := r.history.Load(); h != nil {
			h.stop()
		}
		r.releaseVersions()
	}
	err := e.tables.store.Close()
	for _, j := range e.allJobs() {
		if cerr := j.closeStore(); err == nil {
			err = cerr
		}
	}
	return err
}

// Epoch returns the newest closed epoch.
func (e *Engine) Epoch() uint64 { return e.clock.closed.Load() }

// Relation returns the runtime of a relation.
func (e *Engine) Relation(id uint64) (*Relation, bool) {
	e.mu.Lock()
	defer e.mu.Unlock()
	r, ok := e.rels[id]
	return r, ok
}

// Relations returns the runtimes of the ids, as of one moment; an unknown one is an error.
func (e *Engine) Relations(ids []uint64) ([]*Relation, error) { return e.RelationsWith(ids, nil, nil) }

// RelationsWith is Relations with those of others in their place, and with those of more that are known.
func (e *Engine) RelationsWith(ids, more []uint64, others map[uint64]*Relation) ([]*Relation, error) {
	e.mu.Lock()
	defer e.mu.Unlock()
	out, err := e.lookup(ids, others)
	if err != nil {
		return nil, err
	}
	for _, id := range more {
		if r, err := e.lookup([]uint64{id}, others); err == nil {
			out = append(out, r...)
		}
	}
	return out, nil
}

// lookup finds relations. Callers hold mu.
func (e *Engine) lookup(ids []uint64, others map[uint64]*Relation) ([]*Relation, error) {
	out := make([]*Relation, len(ids))
	for i, id := range ids {
		r := others[id]
		if r == nil {
			r = e.rels[id]
		}
		if r == nil {
			return nil, pgerr.Newf(pgerr.UndefinedTable, "relation %d does not exist any more", id)
		}
		out[i] = r
	}
	return out, nil
}

// Job returns the job of the relation with the id, or the job with that id.
func (e *Engine) Job(id uint64) (*Job, bool) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if r := e.rels[id]; r != nil && r.job != nil {
		return r.job, true
	}
	j, ok := e.jobs[id]
	return j, ok
}

// JobWithID returns the job with that id of its own.
func (e *Engine) JobWithID(id uint64) (*Job, bool) {
	e.mu.Lock()
	defer e.mu.Unlock()
	j, ok := e.jobs[id]
	return j, ok
}

// RemoveUnknown removes the local state of jobs that are no more: temporary ones, and those that a crash ended.
func (e *Engine) RemoveUnknown() error {
	dirs, err := os.ReadDir(filepath.Dir(e.jobDir(0)))
	if err != nil && !errors.Is(err, os.ErrNotExist) {
		return pgerr.Wrap(pgerr.IOError, err, "list state of jobs")
	}
	for _, d := range dirs {
		id, err := strconv.ParseUint(d.Name(), 10, 64)
		if _, ok := e.JobWithID(id); ok || err != nil || id == TablesID {
			continue
		}
		if err := os.RemoveAll(e.jobDir(id)); err != nil {
			return pgerr.Wrap(pgerr.IOError, err, "remove state of job %d", id)
		}
	}
	return nil
}

// Jobs returns all jobs, in no order.
func (e *Engine) Jobs() []*Job {
	return slices.DeleteFunc(e.allJobs(), func(j *Job) bool { return j.Spec.Temporary })
}

func (e *Engine) allJobs() []*Job {
	e.mu.Lock()
	defer e.mu.Unlock()
	out := make([]*Job, 0, len(e.jobs))
	for _, j := range e.jobs {
		out = append(out, j)
	}
	return out
}

// Participants lists who takes part in checkpoints: the tables and every job.
func (e *Engine) Participants() []checkpoint.Participant {
	out := []checkpoint.Participant{e.tables}
	for _, j := range e.Jobs() {
		out = append(out, j)
	}
	return out
}

func (e *Engine) newRelation(id uint64, name string, schema types.Schema, key []int, grouped bool, closed uint64) *Relation {
	r := &Relation{
		ID: id, Name: name, Schema: schema, Types: schema.Types(), Key: key, Grouped: grouped, MaxPar: e.cfg.MaxPar,
		Log: changelog.New(closed, e.cfg.ChangeLog), engine: e, gone: make(chan struct{}),
	}
	r.form.Store(newForm(schema, key, &types.RowLayout{Types: r.Types}))
	return r
}

// lowEpochAge is how old the cached answer of lowEpoch may be: versions are kept a little longer than needed instead of being counted at
// every publication.
const lowEpochAge = 20 * time.Millisecond

// lowEpoch returns an epoch that every advancing relation has reached: readers of several relations never need an older one.
func (e *Engine) lowEpoch(fresh bool) uint64 {
	now := int64(time.Since(e.started))
	if at := e.lowAt.Load(); !fresh && at != 0 && now-at < int64(lowEpochAge) {
		return e.low.Load()
	}
	e.mu.Lock()
	rels := make([]*Relation, 0, len(e.rels))
	for _, r := range e.rels {
		rels = append(rels, r)
	}
	e.mu.Unlock()
	low := e.clock.closed.Load()
	for _, r := range rels {
		if r.job == nil || r.job.advancing() {
			low = min(low, r.Closed())
		}
	}
	low = e.heldBelow(low)
	e.low.Store(low)
	e.lowAt.Store(now)
	return low
}

// WaitClosed waits until the relations of jobs have closed what is closed now; those that do not advance, or are outdated, are not waited for.
func (e *Engine) WaitClosed(ctx context.Context, jobs []*Job) error {
	epoch := e.clock.closed.Load()
	for {
		changed := e.progress.wait()
		if !slices.ContainsFunc(jobs, func(j *Job) bool { return j.advancing() && !j.Outdated() && j.rel.Closed() < epoch }) {
			return nil
		}
		select {
		case <-changed:
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
}

// Flush waits until everything committed before is visible in all views.
func (e *Engine) Flush(ctx context.Context) error {
	e.mu.Lock()
	rels := make([]*Relation, 0, len(e.rels))
	for _, r := range e.rels {
		rels = append(rels, r)
	}
	e.mu.Unlock()
	epoch, err := e.clock.tick(ctx)
	if err != nil {
		return err
	}
	for {
		changed := e.progress.wait()
		done := true
		for _, r := range rels {
			if (r.job == nil || r.job.advancing()) && r.Closed() < epoch {
				done = false
			}
		}
		if done {
			return nil
		}
		select {
		case <-changed:
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
}

// wakeSources tells the drivers of jobs with sources that an epoch was closed.
func (e *Engine) wakeSources() {
	for _, j := range e.allJobs() {
		if j.hasSources {
			j.poke()
		}
	}
}

// SetSettings changes the settings of the checkpoints of the tables and of jobs that have none of their own.
func (e *Engine) SetSettings(s checkpoint.JobSettings) { e.settings.Store(&s) }

func (e *Engine) checkpointSettings() checkpoint.JobSettings {
	if s := e.settings.Load(); s != nil {
		return *s
	}
	return checkpoint.DefaultJobSettings()
}

// BeginCheckpoint implements checkpoint.Clock.
func (e *Engine) BeginCheckpoint(id uint64, cut checkpoint.Cut) (uint64, error) {
	e.settleHistories()
	return e.clock.beginCheckpoint(id, cut)
}

// Quiet implements checkpoint.Clock.
func (e *Engine) Quiet() bool { return e.clock.quiet() }
