package exec

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/streamdb/streamdb/checkpoint"
	"github.com/streamdb/streamdb/internal/pgerr"
	"github.com/streamdb/streamdb/planner/plan"
	"github.com/streamdb/streamdb/state"
	"github.com/streamdb/streamdb/storage/changelog"
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
)

// String is the status as streamdb.jobs shows it.
func (s JobStatus) String() string {
	return [...]string{"CREATED", "BACKFILLING", "RUNNING", "PAUSED", "RESTARTING", "STOPPED"}[s]
}

// Restart back-off: doubles from the first to the last, and starts over after a job ran well for restartForget.
const (
	restartFirst  = 200 * time.Millisecond
	restartLast   = 30 * time.Second
	restartForget = time.Minute
)

// JobSpec is what a job is made of; it is stored in the catalog.
type JobSpec struct {
	ID          uint64
	Name        string
	Plan        *plan.Plan
	Parallelism int
	Backend     state.BackendType
	Raise       bool // on_error = raise: readers get the first error instead of a warning
}

// Job is the running graph of one relation. It owns its goroutines, its state store, and its part of checkpoints.
type Job struct {
	Spec JobSpec

	engine     *Engine
	rel        *Relation // nil when the plan's root discards its rows
	inputs     []*Relation
	hasSources bool

	status     atomic.Int32
	published  atomic.Uint64 // newest epoch that readers may see
	sourceRows atomic.Int64  // rows read from sources since the start of the process
	discarded  atomic.Int64  // rows that reached a discarding root
	quietSrc   atomic.Bool   // all sources have ended: the job advances with its logs alone

	mu        sync.Mutex
	run       *run
	lastErr   error
	started   time.Time
	restarts  int
	completed *checkpoint.JobState            // last one that is durable
	snapshots map[uint64]*checkpoint.JobState // cut, outcome unknown
	wanted    map[uint64]bool                 // asked for by Trigger and not answered
	lastSnap  uint64                          // checkpoint of the newest snapshot
	paused    bool
	stopped   bool
	caughtUp  chan struct{} // closed after the first barrier that follows the backfill
	pauseCh   chan struct{}
	done      sync.WaitGroup
}

// CreateJob registers a job and its relation and starts it: from a checkpoint when from is given and its inputs still have what
// follows, otherwise from what its inputs hold now.
func (e *Engine) CreateJob(spec JobSpec, from *checkpoint.JobState) (*Job, error) {
	inputs, err := e.Relations(spec.Plan.Inputs)
	if err != nil {
		return nil, err
	}
	j := &Job{
		Spec: spec, engine: e, inputs: inputs, started: time.Now(), completed: from,
		snapshots: map[uint64]*checkpoint.JobState{}, wanted: map[uint64]bool{}, caughtUp: make(chan struct{}),
	}
	for _, f := range spec.Plan.Fragments {
		f.Root.Walk(func(n *plan.Node) { j.hasSources = j.hasSources || n.Kind == plan.KindSource })
	}
	root := spec.Plan.Fragments[len(spec.Plan.Fragments)-1].Root
	if m := root.Materialize; m != nil {
		epoch := e.clock.closed.Load()
		if from != nil {
			epoch = from.Epoch
		}
		j.rel = e.newRelation(m.Relation, spec.Name, root.Schema, m.KeyColumns, true, epoch)
		j.rel.job = j
	}
	if err := j.prepare(); err != nil {
		return nil, err
	}
	e.mu.Lock()
	e.jobs[spec.ID] = j
	if j.rel != nil {
		e.rels[j.rel.ID] = j.rel
	}
	e.mu.Unlock()
	return j, nil
}

// Start runs the prepared job. Split from CreateJob so that at a restart all readers attach before the logs are replayed.
func (j *Job) Start() {
	j.done.Add(1)
	go func() {
		defer j.done.Done()
		j.supervise()
	}()
}

// Relation returns the job's relation, nil for benchmark jobs.
func (j *Job) Relation() *Relation { return j.rel }

// Status returns where the job is.
func (j *Job) Status() JobStatus { return JobStatus(j.status.Load()) }

// Err returns the last failure.
func (j *Job) Err() error {
	j.mu.Lock()
	defer j.mu.Unlock()
	return j.lastErr
}

// CaughtUp is closed when the job has read what its inputs held at its creation.
func (j *Job) CaughtUp() <-chan struct{} { return j.caughtUp }

func (j *Job) advancing() bool {
	switch j.Status() {
	case JobRunning, JobBackfilling, JobCreated:
		return true
	case JobRestarting:
		return j.rel == nil || j.restartCount() <= patientRestarts
	}
	return false
}

// patientRestarts is after how many failures in a row readers stop waiting for a job and take its last version.
const patientRestarts = 2

func (j *Job) restartCount() int {
	j.mu.Lock()
	defer j.mu.Unlock()
	return j.restarts
}

func (j *Job) terminal() bool { return j.Status() == JobStopped }

// prepare chooses where the next run starts and attaches it to its inputs' logs, so that nothing after that point is dropped.
func (j *Job) prepare() error {
	r := newRun(j)
	j.mu.Lock()
	from := j.completed
	j.mu.Unlock()
	if from != nil && r.attach(from.Epoch) {
		r.from, r.backfill = from, false
	} else {
		for !r.attachNow() {
		}
	}
	store, err := r.open()
	if err != nil && r.from != nil {
		j.engine.cfg.Logger.Error().Err(err).Str("job", j.Spec.Name).Msg("checkpointed state cannot be opened: the view is computed again from its inputs")
		r.from, r.backfill = nil, true
		store, err = state.Open(context.Background(), j.engine.storeOptions(j.Spec.ID, j.Spec.Backend), nil)
	}
	if err != nil {
		r.detach()
		return fmt.Errorf("open state of %s: %w", j.Spec.Name, err)
	}
	r.store = store
	if j.rel != nil {
		if r.from != nil {
			j.rel.Log.Reset(r.from.Epoch)
			j.published.Store(r.from.Epoch)
		} else {
			j.rel.Log.Break(j.engine.clock.closed.Load())
		}
	}
	if r.from == nil {
		j.mu.Lock()
		j.completed, j.lastSnap = nil, 0
		j.mu.Unlock()
	} else {
		r.done = r.from.Epoch
		j.lastSnap = r.from.Checkpoint
		if err := r.errors.load(r.from.Operators[operatorErrors]); err != nil {
			r.detach()
			return firstError(fmt.Errorf("restore errors of %s: %w", j.Spec.Name, err), store.Close())
		}
	}
	if err := r.build(); err != nil {
		r.detach()
		return firstError(err, store.Close())
	}
	j.mu.Lock()
	j.run = r
	j.mu.Unlock()
	return nil
}

// open opens the state, getting files that are not on local disk any more from the checkpoint store.
func (r *run) open() (*state.Store, error) {
	e, j := r.engine, r.job
	opts := e.storeOptions(j.Spec.ID, j.Spec.Backend)
	store, err := state.Open(context.Background(), opts, r.snapshot())
	if err == nil || r.from == nil || e.cfg.Fetch == nil {
		return store, err
	}
	snap, ferr := e.cfg.Fetch(context.Background(), r.from)
	if ferr != nil {
		return nil, errors.Join(err, ferr)
	}
	r.from.State = snap
	return state.Open(context.Background(), opts, snap)
}

func firstError(errs ...error) error {
	for _, e := range errs {
		if e != nil {
			return e
		}
	}
	return nil
}

func (r *run) snapshot() *state.Snapshot {
	if r.from == nil {
		return nil
	}
	return r.from.State
}

func (r *run) attach(epoch uint64) bool {
	for _, in := range r.job.inputs {
		rd, ok := in.Log.Attach(epoch, r.poke)
		if !ok {
			r.detach()
			return false
		}
		r.readers = append(r.readers, rd)
	}
	return true
}

func (r *run) attachNow() bool {
	for _, in := range r.job.inputs {
		rd, ok := in.Log.Attach(in.Log.Closed(), r.poke)
		if !ok {
			r.detach()
			return false
		}
		r.readers = append(r.readers, rd)
	}
	return true
}

func (r *run) detach() {
	for _, rd := range r.readers {
		rd.Detach()
	}
	r.readers = nil
}

// supervise runs the job, one run after the other, until it is stopped.
func (j *Job) supervise() {
	backoff := restartFirst
	for {
		j.mu.Lock()
		r := j.run
		stopped := j.stopped
		j.mu.Unlock()
		if stopped {
			j.status.Store(int32(JobStopped))
			return
		}
		began := time.Now()
		err := r.execute()
		j.mu.Lock()
		stopped = j.stopped
		if stopped {
			j.status.Store(int32(JobStopped))
		} else {
			j.status.Store(int32(JobRestarting)) // from here on Trigger answers ErrNotRunning
		}
		j.mu.Unlock()
		j.declineAll(err)
		r.detach()
		j.engine.progress.notify()
		if stopped {
			close(r.finished)
			return
		}
		if cerr := r.closeStore(); cerr != nil {
			j.engine.cfg.Logger.Warn().Err(cerr).Str("job", j.Spec.Name).Msg("close state")
		}
		close(r.finished)
		if !errors.Is(err, errRestart) {
			if time.Since(began) > restartForget {
				backoff = restartFirst
			}
			j.mu.Lock()
			j.lastErr = err
			j.restarts++
			j.mu.Unlock()
			j.engine.cfg.Logger.Error().Err(err).Str("job", j.Spec.Name).Dur("retry_in", backoff).Msg("job failed: it starts again from its last checkpoint")
			if !r.sleep(backoff) {
				continue
			}
			backoff = min(2*backoff, restartLast)
			j.engine.restart([]*Job{j}, r)
		}
		select {
		case <-r.replaced:
		case <-j.stopping():
		}
	}
}

// restart starts the given jobs again together with all that read from them: those have consumed changes that will be made again. first, when
// set, is the run whose failure is the reason; nothing is done when it was replaced meanwhile.
func (e *Engine) restart(jobs []*Job, first *run) {
	e.restarting.Lock()
	defer e.restarting.Unlock()
	if first != nil && first.isReplaced() {
		return
	}
	group := e.withReaders(jobs)
	ids := make([]uint64, len(group))
	runs := make([]*run, len(group))
	for i, k := range group {
		k.mu.Lock()
		ids[i], runs[i] = k.Spec.ID, k.run
		k.mu.Unlock()
		runs[i].fail(errRestart)
	}
	for i, k := range group {
		select {
		case <-runs[i].finished:
		case <-k.stopping():
		}
	}
	m, err := e.acker.Restart(context.Background(), ids)
	for i, k := range group {
		if k.isStopped() {
			continue
		}
		if err == nil {
			k.mu.Lock()
			k.completed = nil
			if m != nil {
				k.completed = m.Jobs[k.Spec.ID]
			}
			k.mu.Unlock()
		}
		if perr := firstError(err, k.prepare()); perr != nil {
			// The next run reports the failure and tries again after a pause.
			k.mu.Lock()
			k.run = newRun(k)
			k.run.fail(perr)
			k.mu.Unlock()
		}
		runs[i].replacedOnce.Do(func() { close(runs[i].replaced) })
	}
}

// withReaders returns jobs and everything that reads from them, directly or not; what is read comes before its readers.
func (e *Engine) withReaders(jobs []*Job) []*Job {
	in := map[*Job]bool{}
	for _, j := range jobs {
		in[j] = true
	}
	all := e.Jobs()
	slices.SortFunc(all, func(a, b *Job) int { return cmp.Compare(a.Spec.ID, b.Spec.ID) }) // readers are younger than what they read
	var out []*Job
	for _, k := range all {
		for _, r := range k.inputs {
			if r.job != nil && in[r.job] {
				in[k] = true
			}
		}
		if in[k] && !k.isStopped() {
			out = append(out, k)
		}
	}
	return out
}

func (j *Job) isStopped() bool {
	j.mu.Lock()
	defer j.mu.Unlock()
	return j.stopped
}

// sleep waits for d or until the job is stopped, which returns false.
func (r *run) sleep(d time.Duration) bool {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
		return true
	case <-r.job.stopping():
		return false
	}
}

func (j *Job) stopping() <-chan struct{} {
	j.mu.Lock()
	defer j.mu.Unlock()
	if j.pauseCh == nil {
		j.pauseCh = make(chan struct{})
		if j.stopped {
			close(j.pauseCh)
		}
	}
	return j.pauseCh
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
	if j.pauseCh != nil {
		close(j.pauseCh)
	}
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

// DropJob stops a job, removes its relation and deletes its local state.
func (e *Engine) DropJob(id uint64) error {
	j, ok := e.Job(id)
	if !ok {
		return nil
	}
	j.Stop()
	e.mu.Lock()
	delete(e.jobs, id)
	e.mu.Unlock()
	if j.rel != nil {
		e.forget(j.rel.ID)
	}
	j.mu.Lock()
	r := j.run
	j.run = nil
	j.mu.Unlock()
	if r == nil || r.store == nil {
		return nil
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
	j.mu.Unlock()
	if p {
		j.status.CompareAndSwap(int32(JobRunning), int32(JobPaused))
	} else {
		j.status.CompareAndSwap(int32(JobPaused), int32(JobRunning))
	}
	if r != nil {
		r.poke()
		for _, t := range r.leaves {
			t.box.poke()
		}
	}
	j.engine.progress.notify()
}

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
	d := j.published.Load()
	if (j.hasSources && !j.quietSrc.Load()) || (j.Status() != JobRunning && j.Status() != JobPaused) {
		return d
	}
	c := j.engine.clock.closed.Load()
	for _, in := range j.inputs {
		c = min(c, in.Closed())
	}
	for _, in := range j.inputs {
		if f, ok := in.Log.FirstAfter(d, c); ok {
			c = f - 1
		}
	}
	return max(c, d)
}

// Lag returns how far the job is behind the clock, in epochs.
func (j *Job) Lag() uint64 {
	at, now := j.closed(), j.engine.clock.closed.Load()
	if j.rel == nil || now < at {
		return 0
	}
	return now - at
}

// ID implements checkpoint.Participant.
func (j *Job) ID() uint64 { return j.Spec.ID }

// Name implements checkpoint.Participant.
func (j *Job) Name() string { return j.Spec.Name }

// Inputs implements checkpoint.Participant.
func (j *Job) Inputs() []uint64 {
	var ids []uint64
	tables := false
	for _, in := range j.inputs {
		switch {
		case in.job != nil:
			ids = append(ids, in.job.Spec.ID)
		case !tables:
			tables = true
			ids = append(ids, TablesID)
		}
	}
	return ids
}

// Trigger implements checkpoint.Participant. The driver meets the checkpoint's epoch by itself: the clock told it.
func (j *Job) Trigger(b checkpoint.Barrier) error {
	switch j.Status() {
	case JobRunning, JobPaused:
	default:
		return checkpoint.ErrNotRunning
	}
	j.mu.Lock()
	js := j.snapshots[b.Checkpoint]
	if js == nil {
		j.wanted[b.Checkpoint] = true
	}
	r := j.run
	j.mu.Unlock()
	if js != nil {
		j.engine.acker.Acknowledge(js)
		return nil
	}
	if r == nil {
		return checkpoint.ErrNotRunning
	}
	r.poke()
	return nil
}

// acknowledge delivers a finished snapshot, now or when it is asked for.
func (j *Job) acknowledge(js *checkpoint.JobState) {
	j.mu.Lock()
	j.snapshots[js.Checkpoint] = js
	wanted := j.wanted[js.Checkpoint]
	delete(j.wanted, js.Checkpoint)
	j.mu.Unlock()
	if wanted {
		j.engine.acker.Acknowledge(js)
	}
}

func (j *Job) decline(id uint64, err error) {
	j.mu.Lock()
	wanted := j.wanted[id]
	delete(j.wanted, id)
	j.mu.Unlock()
	if wanted {
		j.engine.acker.Decline(j.Spec.ID, id, err)
	}
}

func (j *Job) declineAll(err error) {
	j.mu.Lock()
	ids := make([]uint64, 0, len(j.wanted))
	for id := range j.wanted {
		ids = append(ids, id)
	}
	clear(j.wanted)
	clear(j.snapshots)
	j.mu.Unlock()
	for _, id := range ids {
		if err == nil || errors.Is(err, errRestart) || errors.Is(err, errStopped) {
			err = checkpoint.ErrNotRunning
		}
		j.engine.acker.Decline(j.Spec.ID, id, err)
	}
}

// NotifyComplete implements checkpoint.Participant.
func (j *Job) NotifyComplete(id uint64) {
	j.mu.Lock()
	js := j.snapshots[id]
	for i := range j.snapshots {
		if i <= id {
			delete(j.snapshots, i)
		}
	}
	var readers []*changelog.Reader
	var store *state.Store
	if js != nil {
		if js.Unchanged && j.completed != nil {
			c := *j.completed
			c.Epoch = js.Epoch
			js = &c
		} else if j.run != nil {
			store = j.run.store
		}
		j.completed = js
		if j.run != nil {
			readers = j.run.readers
		}
	}
	j.mu.Unlock()
	if store != nil {
		store.Confirm(id)
	}
	for _, r := range readers {
		r.Durable(js.Epoch)
	}
}

// NotifyAborted implements checkpoint.Participant.
func (j *Job) NotifyAborted(id uint64) {
	j.mu.Lock()
	delete(j.snapshots, id)
	delete(j.wanted, id)
	var store *state.Store
	if j.run != nil {
		store = j.run.store
	}
	j.mu.Unlock()
	if store != nil {
		store.Abort(id)
	}
}

// Cancelled is what waiting for a job that was dropped or stopped gives.
func (j *Job) errStoppedWhileWaiting() error {
	if err := j.Err(); err != nil {
		return err
	}
	return pgerr.Newf(pgerr.QueryCanceled, "job %q was cancelled", j.Spec.Name)
}

// WaitCaughtUp blocks until the job has read what its inputs held, fails, or ctx ends. failed is called with each failure; returning true
// gives up.
func (j *Job) WaitCaughtUp(ctx context.Context, every time.Duration, progress func()) error {
	t := time.NewTicker(every)
	defer t.Stop()
	for {
		select {
		case <-j.caughtUp:
			return nil
		case <-j.stopping():
			return j.errStoppedWhileWaiting()
		case <-ctx.Done():
			return context.Cause(ctx)
		case <-t.C:
			if j.Status() == JobRestarting {
				if err := j.Err(); err != nil {
					return err
				}
			}
			progress()
		}
	}
}
