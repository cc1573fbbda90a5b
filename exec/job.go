package exec

import (
	"context"
	"errors"
	"os"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/streamdb/streamdb/checkpoint"
	"github.com/streamdb/streamdb/internal/pgerr"
	"github.com/streamdb/streamdb/planner/plan"
	"github.com/streamdb/streamdb/state"
	"github.com/streamdb/streamdb/storage/changelog"
	"github.com/streamdb/streamdb/types"
)

// JobStatus is where a job is in its life.
type JobStatus int32

// The statuses of a job and what may follow each.
const (
	JobCreated     JobStatus = iota // → Backfilling, Running, Stopped
	JobBackfilling                  // reading what its inputs hold → Running, Restarting, Stopped
	JobRunning                      // → Paused, Restarting, Stopped
	JobPaused                       // → Running, Restarting, Stopped
	JobRestarting                   // waiting to start again from its last checkpoint → Backfilling, Running, Stopped
	JobStopped                      // for good
	JobFailed                       // a sink whose target is another server's, until it is altered → Running, Restarting, Stopped
)

// String is the status as streamdb.jobs shows it.
func (s JobStatus) String() string {
	return [...]string{"CREATED", "BACKFILLING", "RUNNING", "PAUSED", "RESTARTING", "STOPPED", "FAILED"}[s]
}

// JobSpec is what a job is made of; it is stored in the catalog.
type JobSpec struct {
	ID          uint64
	Name        string
	Plan        *plan.Plan
	Parallelism int // of its start, as Raise is: Job.Parallelism and Job.Raises tell what holds now
	Backend     state.BackendType
	Format      *types.Format           // text forms and time zone of expressions; nil: the defaults
	Checkpoints *checkpoint.JobSettings // settings of its checkpoints at its start; nil: those of the engine
	Raise       bool                    // on_error = raise: readers get the first error instead of a warning
	Temporary   bool                    // it belongs to a subscription: it takes part in no checkpoint, and its first failure ends it
	// Adopt, when set, says what the first run takes over from the state of another job.
	Adopt *Adoption
	// Hidden: the relation of the plan's root is not known by its id before Engine.Swap.
	Hidden bool
	// Reads are hidden relations to read in the place of those known by their ids.
	Reads map[uint64]*Relation
	// Sink, when set, is what the root of the plan writes to when the job is made.
	Sink *SinkSpec
	// Generation is that of the relation's rows: it tells those of one definition of a view from those of the next.
	Generation uint64
}

// Job is the running graph of one relation. It owns its goroutines, its state store, and its part of checkpoints.
type Job struct {
	Spec JobSpec

	engine     *Engine
	rel        *Relation // nil when the plan's root discards its rows
	inputs     []*Relation
	layouts    []*types.RowLayout // of the inputs when a temporary job was made, nil for others
	upstream   []*Job             // the job and those of the views that it reads, directly or through others, each once
	hasSources bool
	remembers  bool        // some operators keep what cannot be computed again from the inputs
	temporal   []*Relation // right sides of temporal joins
	lookups    bool        // there are lookup joins
	// exact counts the jobs with temporal joins above: what changes in an epoch must not be seen in a later one, so none is passed over.
	exact atomic.Int32
	// aligned counts who takes the job's state over: unaligned checkpoints would leave rows in flight out of it.
	aligned atomic.Int32

	parallelism atomic.Int32
	raise       atomic.Bool
	target      atomic.Pointer[SinkSpec]               // what a sink writes to now
	taken       atomic.Pointer[error]                  // why a sink writes nothing until it is altered; nil: it does
	settings    atomic.Pointer[checkpoint.JobSettings] // of its checkpoints; nil: the defaults
	behind      atomic.Bool                            // its sources have not been caught up with
	lastRestore atomic.Pointer[Restored]               // nil: the job began from its inputs
	adopted     atomic.Bool                            // what there was to adopt was tried to be

	status     atomic.Int32
	published  atomic.Uint64 // newest epoch that readers may see
	sourceRows atomic.Int64  // rows read from sources since the start of the process
	discarded  atomic.Int64  // rows that reached a discarding root
	// feeds are the job's readers of its inputs' logs.
	feeds    atomic.Pointer[[]*changelog.Reader]
	quietSrc atomic.Bool // all sources have ended: the job advances with its logs alone

	mu        sync.Mutex
	run       *run
	lastErr   error // of the last run that failed
	failedAt  time.Time
	troubled  error     // what a run that goes on is in trouble with; nil: nothing
	troubleAt time.Time // when it last was
	started   time.Time
	restarts  int
	streak    int                             // failures in a row
	completed *checkpoint.JobState            // last one that is durable
	snapshots map[uint64]*checkpoint.JobState // cut, outcome unknown
	cutting   map[uint64]bool                 // being written
	wanted    map[uint64]checkpoint.Barrier   // asked for by Trigger and not answered
	lastSnap  uint64                          // checkpoint of the newest snapshot, written or being written
	paused    bool
	stopped   bool
	stopCh    chan struct{} // closed with stopped

	// closing guards what follows, and makes closed one step; held after no lock but before those of the inputs' jobs.
	closing  sync.Mutex
	frozen   bool
	frozenAt uint64

	caughtUp chan struct{} // closed after the first barrier that follows the backfill
	pinning  atomic.Bool   // what the inputs hold is waited for
	hopeless chan struct{} // closed when the backfill failed on what it reads: it would fail again
	done     sync.WaitGroup
}

// CreateJob registers a job and its relation and starts it: from a checkpoint when from is given and its inputs still have what
// follows, otherwise from what its inputs hold now.
func (e *Engine) CreateJob(spec JobSpec, from *checkpoint.JobState) (*Job, error) {
	e.restarting.Lock() // a job that is being started again takes all its readers with it: none may come in between
	defer e.restarting.Unlock()
	inputs, err := e.RelationsWith(spec.Plan.Inputs, nil, spec.Reads)
	if err != nil {
		return nil, err
	}
	j := &Job{
		Spec: spec, engine: e, inputs: inputs, started: time.Now(), completed: from,
		snapshots: map[uint64]*checkpoint.JobState{}, cutting: map[uint64]bool{}, wanted: map[uint64]checkpoint.Barrier{},
		stopCh: make(chan struct{}), caughtUp: make(chan struct{}), hopeless: make(chan struct{}),
	}
	j.parallelism.Store(int32(max(1, spec.Parallelism))) //nolint:gosec // at most maxSubtasks when it runs
	j.raise.Store(spec.Raise)
	j.target.Store(spec.Sink)
	j.settings.Store(spec.Checkpoints)
	for _, f := range spec.Plan.Fragments {
		f.Root.Walk(func(n *plan.Node) {
			j.hasSources = j.hasSources || n.Kind == plan.KindSource
			j.remembers = j.remembers || n.Remembers()
		})
	}
	if spec.Temporary {
		for _, in := range inputs {
			j.layouts = append(j.layouts, in.Layout())
		}
	}
	j.findUpstream()
	j.findTemporal()
	root := spec.Plan.Fragments[len(spec.Plan.Fragments)-1].Root
	if m := root.Materialize; m != nil {
		epoch := e.clock.closed.Load()
		if from != nil {
			epoch = from.Epoch
		}
		j.rel = e.newRelation(m.Relation, spec.Name, root.Schema, m.KeyColumns, m.Order == nil, epoch)
		j.rel.Layout().Generation = spec.Generation
		j.rel.job = j
		if m.Order != nil {
			j.rel.IndexOf = inputs[0]
		}
	}
	if failed, err := j.prepare(); err != nil {
		if from == nil {
			failed.detach()
			return nil, err
		}
		j.run = failed // the others must not wait for it: it tries again, with a pause that grows
	}
	if len(j.temporal) > 0 {
		j.addExact(1)
	}
	e.mu.Lock()
	e.jobs[spec.ID] = j
	if j.rel != nil && !spec.Hidden {
		e.rels[j.rel.ID] = j.rel
	}
	e.mu.Unlock()
	return j, nil
}

// Swap makes the relations of hidden jobs those that are known by their ids, all in one step, and returns the jobs whose relations were. Those
// go on until they are dropped; versions of their relations stay readable for who holds them. Readers never see an epoch before one that they may have seen.
func (e *Engine) Swap(jobs []*Job) (old []*Job) {
	e.mu.Lock()
	defer e.mu.Unlock()
	for _, j := range jobs {
		if was := e.rels[j.rel.ID]; was != nil && was.job != nil {
			old = append(old, was.job)
			was.superseded.Store(true)
		}
		j.rel.superseded.Store(false)
		j.rel.floor.Store(e.clock.closed.Load())
		e.rels[j.rel.ID] = j.rel
	}
	e.progress.notify()
	return old
}

// Outdated reports that the job reads a relation that another one has taken the place of, or from a job that does: it will not go on.
func (j *Job) Outdated() bool {
	return slices.ContainsFunc(j.upstream, func(k *Job) bool { return slices.ContainsFunc(k.inputs, (*Relation).Superseded) })
}

// Checkpointed reports that the job has a completed checkpoint.
func (j *Job) Checkpointed() bool {
	j.mu.Lock()
	defer j.mu.Unlock()
	return j.completed != nil
}

// Takeable reports that the job has a completed checkpoint whose state holds all that the job has taken in: no rows were in flight.
func (j *Job) Takeable() bool {
	j.mu.Lock()
	defer j.mu.Unlock()
	return j.completed != nil && len(j.completed.Inflight) == 0
}

// StayAligned has the job's checkpoints aligned, whatever its settings, until it is called with false as often as with true.
func (j *Job) StayAligned(on bool) {
	if on {
		j.aligned.Add(1)
	} else {
		j.aligned.Add(-1)
	}
}

// CheckpointedEpoch is the epoch of the job's last completed checkpoint, 0 when there is none.
func (j *Job) CheckpointedEpoch() uint64 {
	j.mu.Lock()
	defer j.mu.Unlock()
	if j.completed == nil {
		return 0
	}
	return j.completed.Epoch
}

// Adopts reports that the present run takes over state of another job.
func (j *Job) Adopts() bool {
	j.mu.Lock()
	defer j.mu.Unlock()
	return j.run != nil && j.run.adopted != nil
}

// Hidden reports that the job's relation is not the one that is known by its id: it is to take that one's place, or has lost its own.
func (j *Job) Hidden() bool {
	if j.rel == nil {
		return false
	}
	r, ok := j.engine.Relation(j.rel.ID)
	return !ok || r != j.rel
}

// PublicID is the id under which users know the job: that of its relation, or its own while that is hidden.
func (j *Job) PublicID() uint64 {
	if j.rel == nil || j.Hidden() {
		return j.Spec.ID
	}
	return j.rel.ID
}

// input returns the relation with the id that the job reads.
func (j *Job) input(id uint64) (*Relation, bool) {
	i := slices.IndexFunc(j.inputs, func(r *Relation) bool { return r.ID == id })
	if i < 0 {
		return nil, false
	}
	return j.inputs[i], true
}

// Start runs the prepared job. Split from CreateJob so that at a restart all readers attach before the logs are replayed.
func (j *Job) Start() {
	j.done.Add(1)
	go func() {
		defer j.done.Done()
		j.supervise()
	}()
	j.refresh()
}

// Relation returns the job's relation, nil for benchmark jobs.
func (j *Job) Relation() *Relation { return j.rel }

// missesRows reports whether rows are missing from the view, or from one that it reads, because their evaluation failed.
func (j *Job) missesRows() bool {
	for _, k := range j.upstream {
		if k.ErrorCount() != 0 {
			return true
		}
	}
	return false
}

// Upstream returns the job and those of the views that it reads, directly or through others, each once. The slice must not be changed.
func (j *Job) Upstream() []*Job { return j.upstream }

func (j *Job) findUpstream() {
	j.upstream = []*Job{j}
	for i := 0; i < len(j.upstream); i++ {
		for _, in := range j.upstream[i].inputs {
			if in.job != nil && !slices.Contains(j.upstream, in.job) {
				j.upstream = append(j.upstream, in.job)
			}
		}
	}
}

// Parallelism is the number of subtasks of the job's fragments that are not made for one.
func (j *Job) Parallelism() int { return int(j.parallelism.Load()) }

// Raises tells whether rows that are missing make reading the job's relation fail.
func (j *Job) Raises() bool { return j.raise.Load() }

// SetRaises sets what Raises returns.
func (j *Job) SetRaises(on bool) { j.raise.Store(on) }

// CanRescale returns why the job cannot have n subtasks: it was planned for one (SQLSTATE 55000).
func (e *Engine) CanRescale(j *Job, n int) error {
	if n == 1 || j.Parallelism() > 1 || slices.ContainsFunc(j.Spec.Plan.Fragments, func(f *plan.Fragment) bool { return f.Parallelism != 1 }) {
		return nil
	}
	return pgerr.Newf(pgerr.ObjectNotInPrerequisiteState, "%q was planned for one subtask", j.Spec.Name).
		WithHint("DROP it and CREATE it anew with the parallelism that it shall have.")
}

// Rescale starts the job again from its last completed checkpoint with n subtasks, 1 to MaxParallelism, and its readers with it. Returns
// when they have begun.
func (e *Engine) Rescale(j *Job, n int) {
	j.parallelism.Store(int32(n)) //nolint:gosec // bounded by MaxParallelism
	e.restart([]*Job{j}, nil)
}

// MaxParallelism is how many subtasks a fragment can have.
func (e *Engine) MaxParallelism() int { return min(subtaskStride-1, e.cfg.MaxPar) }

// Status returns where the job is.
func (j *Job) Status() JobStatus { return JobStatus(j.status.Load()) }

// Err returns what the job is in trouble with, or else its last failure, nil when there was none since the start of the process.
func (j *Job) Err() error {
	j.mu.Lock()
	defer j.mu.Unlock()
	if j.troubled != nil {
		return j.troubled
	}
	return j.lastErr
}

// FailedAt is when what Err returns happened, the zero time when that is nil.
func (j *Job) FailedAt() time.Time {
	j.mu.Lock()
	defer j.mu.Unlock()
	if j.troubled != nil {
		return j.troubleAt
	}
	return j.failedAt
}

// CaughtUp is closed when the job has read what its inputs held at its creation.
func (j *Job) CaughtUp() <-chan struct{} { return j.caughtUp }

// advancing reports whether readers should wait for the job: it goes on, or will shortly.
func (j *Job) advancing() bool {
	switch j.Status() {
	case JobRunning, JobCreated, JobBackfilling, JobRestarting:
		return !slices.ContainsFunc(j.upstream, (*Job).rests)
	}
	return false
}

// rests reports that nothing comes of the job at present, nor of what reads it.
func (j *Job) rests() bool {
	return j.Status() == JobPaused || j.Status() == JobFailed || j.terminal() || j.failing()
}

// failing reports that the job, which is being started again, has failed so often that readers do not wait for it, nor for what reads it.
func (j *Job) failing() bool {
	if j.Status() != JobRestarting {
		return false
	}
	j.mu.Lock()
	defer j.mu.Unlock()
	return j.streak > patientRestarts
}

// patientRestarts is after how many failures in a row readers stop waiting for a job and take its last version.
const patientRestarts = 2

func (j *Job) restartCount() int {
	j.mu.Lock()
	defer j.mu.Unlock()
	return j.restarts
}

func (j *Job) terminal() bool { return j.Status() == JobStopped }

func (j *Job) isStopped() bool {
	j.mu.Lock()
	defer j.mu.Unlock()
	return j.stopped
}

// sleep waits for d, or until the job is stopped or starts again with what it reads, which returns false.
func (r *run) sleep(d time.Duration) bool {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
		return true
	case <-r.job.stopCh:
		return false
	case <-r.replaced:
		return false
	}
}

// errRestart ends a run that another job's failure, or RECOVER, starts again.
var errRestart = errors.New("restart requested")

// Fail ends the current run with err; the job starts again from its last completed checkpoint.
func (j *Job) Fail(err error) {
	j.mu.Lock()
	r := j.run
	j.mu.Unlock()
	if r != nil {
		r.fail(err)
	}
}

// Recover restarts all jobs from their last completed checkpoints and returns when they have begun.
func (e *Engine) Recover() { e.restart(e.Jobs(), nil) }

// Stop ends the job for good and waits for its goroutines. Its state stays on disk.
func (j *Job) Stop() {
	j.mu.Lock()
	if j.stopped {
		j.mu.Unlock()
		j.done.Wait()
		return
	}
	j.stopped = true
	r := j.run
	close(j.stopCh)
	j.mu.Unlock()
	if r != nil {
		r.fail(errStopped)
	}
	j.done.Wait()
	j.status.Store(int32(JobStopped))
}

func (j *Job) closeStore() error {
	j.mu.Lock()
	r := j.run
	j.mu.Unlock()
	if r == nil {
		return nil
	}
	return r.closeStore()
}

// DropJob stops the job with that id of its own, removes its relation and deletes its local state.
func (e *Engine) DropJob(id uint64) error {
	e.mu.Lock()
	j := e.jobs[id]
	e.mu.Unlock()
	if j == nil {
		return nil
	}
	j.Stop()
	e.restarting.Lock() // its readers are not being started again over it
	defer e.restarting.Unlock()
	e.mu.Lock()
	delete(e.jobs, id)
	e.mu.Unlock()
	if len(j.temporal) > 0 {
		j.addExact(-1)
	}
	if j.rel != nil {
		e.forget(j.rel)
	}
	j.abandon()
	j.mu.Lock()
	r := j.run
	j.run = nil
	j.mu.Unlock()
	if r == nil || r.store == nil { // its last start failed
		return os.RemoveAll(e.jobDir(id))
	}
	r.storeClosed.Store(true)
	return r.store.Destroy()
}

// Pause stops taking input; Resume goes on. Checkpoints go on either way.
func (j *Job) Pause() { j.setPaused(true) }

// Resume ends a Pause.
func (j *Job) Resume() { j.setPaused(false) }

func (j *Job) setPaused(p bool) {
	j.mu.Lock()
	j.paused = p
	r := j.run
	if p {
		j.status.CompareAndSwap(int32(JobRunning), int32(JobPaused))
	} else {
		j.status.CompareAndSwap(int32(JobPaused), int32(JobRunning))
	}
	j.mu.Unlock()
	if r != nil {
		r.poke()
		for _, t := range r.leaves {
			t.box.poke()
		}
	}
	j.engine.progress.notify()
}

// Paused reports whether the job takes nothing in until it is resumed.
func (j *Job) Paused() bool { return j.isPaused() }

func (j *Job) isPaused() bool {
	j.mu.Lock()
	defer j.mu.Unlock()
	return j.paused
}

func (j *Job) poke() {
	j.mu.Lock()
	r := j.run
	j.mu.Unlock()
	if r != nil {
		r.poke()
	}
}

// closed is Relation.Closed for a view: what it published, or as far as its inputs went on without changes for it.
func (j *Job) closed() uint64 {
	j.closing.Lock()
	defer j.closing.Unlock()
	if j.frozen {
		return max(j.frozenAt, j.published.Load())
	}
	return j.closedNow()
}

// freeze keeps closed where it is until the job has published an epoch after that, or lets it go on.
func (j *Job) freeze(on bool) {
	j.closing.Lock()
	defer j.closing.Unlock()
	if on && !j.frozen {
		j.frozenAt = j.closedNow()
	}
	j.frozen = on
}

// closedByInputs returns the newest epoch that the job may close.
func (j *Job) closedByInputs() uint64 {
	limit := j.engine.clock.closed.Load()
	for _, in := range j.inputs {
		limit = min(limit, in.Closed())
	}
	return limit
}

func (j *Job) closedNow() uint64 {
	d := j.published.Load()
	if (j.hasSources && !j.quietSrc.Load()) || (j.Status() != JobRunning && j.Status() != JobPaused) {
		return d
	}
	c := j.closedByInputs()
	if feeds := j.feeds.Load(); feeds != nil && slices.ContainsFunc(*feeds, (*changelog.Reader).Detached) {
		return d // what the logs hold is not all that happened
	}
	for _, in := range j.inputs {
		if f, ok := in.Log.FirstAfter(d, c); ok {
			c = f - 1
		}
	}
	return max(c, d)
}

// reached is closed, of sinks the epoch up to which all is in the target.
func (j *Job) reached() uint64 {
	j.mu.Lock()
	var s *sinkRun
	if j.run != nil {
		s = j.run.sink
	}
	j.mu.Unlock()
	if at, ok := s.pending(); ok {
		return at
	}
	return j.closed()
}

// Lag returns how far the job is behind the clock, in epochs.
func (j *Job) Lag() uint64 {
	at, now := j.reached(), j.engine.clock.closed.Load()
	if j.rel == nil && j.Spec.Sink == nil || now < at {
		return 0
	}
	return now - at
}

// Behind returns for how long the job has been behind: the time since the first epoch that it has not closed was closed; 0 when it is not.
func (j *Job) Behind() time.Duration {
	if j.rel == nil && j.Spec.Sink == nil {
		return 0
	}
	since := j.engine.clock.openSince(j.reached())
	if since.IsZero() {
		return 0
	}
	return time.Since(since)
}

// errStoppedWhileWaiting is what waiting for a job that was dropped or stopped gives.
func (j *Job) errStoppedWhileWaiting() error {
	if err := j.Err(); err != nil {
		return err
	}
	return pgerr.Newf(pgerr.QueryCanceled, "job %q was cancelled", j.Spec.Name)
}

// HeldUp returns why what the job is to be filled with is not to be had at present: something that it reads has not what is committed and is paused, stopped or failing
// (SQLSTATE 55000). nil: it goes on.
func (j *Job) HeldUp() error {
	if !j.pinning.Load() {
		return nil
	}
	i := slices.IndexFunc(j.upstream, (*Job).rests)
	if i <= 0 {
		return nil
	}
	by := j.upstream[i]
	if now, ok := j.engine.JobWithID(by.Spec.ID); !ok || now != by {
		return pgerr.Newf(pgerr.ObjectNotInPrerequisiteState, "%q cannot be filled because %q, which it reads, was dropped or got another query", j.Spec.Name, by.Spec.Name)
	}
	if err := by.Err(); err != nil && by.Status() != JobPaused && !by.terminal() {
		return pgerr.Newf(pgerr.ObjectNotInPrerequisiteState, "%q cannot be filled because %q, which it reads, fails: %v", j.Spec.Name, by.Spec.Name, err)
	}
	return pgerr.Newf(pgerr.ObjectNotInPrerequisiteState, "%q cannot be filled because %q, which it reads, is %s", j.Spec.Name, by.Spec.Name, strings.ToLower(by.Status().String())).
		WithHint("RESUME %s first.", by.Spec.Name)
}

// WaitCaughtUp blocks until the job has read what its inputs held, is outdated, fails, or ctx ends. progress is called after each interval of every; its error ends the wait.
func (j *Job) WaitCaughtUp(ctx context.Context, every time.Duration, progress func() error) error {
	t := time.NewTicker(every)
	defer t.Stop()
	for {
		changed := j.engine.progress.wait()
		if j.Outdated() {
			return nil
		}
		select {
		case <-changed:
		case <-j.caughtUp:
			return nil
		case <-j.stopCh:
			return j.errStoppedWhileWaiting()
		case <-j.hopeless:
			return j.Err()
		case <-ctx.Done():
			return context.Cause(ctx)
		case <-t.C:
			if j.Status() == JobRestarting || j.Status() == JobFailed {
				if err := j.Err(); err != nil {
					return err
				}
			}
			if err := progress(); err != nil {
				return err
			}
		}
	}
}
