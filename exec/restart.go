package exec

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/streamdb/streamdb/internal/pgerr"
	"github.com/streamdb/streamdb/state"
	"github.com/streamdb/streamdb/storage/object"
)

// Restart back-off: doubles from the first to the last, and starts over after a job ran well for restartForget.
const (
	restartFirst  = 200 * time.Millisecond
	restartLast   = 30 * time.Second
	restartForget = time.Minute
)

// prepare makes the next run the job's. When that fails, failed stands for it, which reports the error: what its inputs' logs hold for the job stays until another run has
// taken it up.
func (j *Job) prepare() (failed *run, err error) {
	r := newRun(j)
	if err = r.prepare(); err == nil {
		return nil, nil
	}
	j.mu.Lock()
	goesOn := j.completed != nil // with what the run may have given up
	j.mu.Unlock()
	if !goesOn && r.adopted == nil {
		r.detach()
		r.readers = nil
	}
	failed = j.failedRun(err)
	failed.readers = r.readers
	return failed, err
}

// failedRun is a run that could not begin.
func (j *Job) failedRun(err error) *run {
	r := newRun(j)
	r.fail(err)
	return r
}

// prepare chooses where the run starts and attaches it to its inputs' logs, so that nothing after that point is dropped.
func (r *run) prepare() error {
	j := r.job
	j.mu.Lock()
	from := j.completed
	j.mu.Unlock()
	if from != nil && r.attach(from.Epoch, everyInput) {
		copied := *from // the coordinator's own must not change
		r.from, r.backfill, r.done = &copied, false, from.Epoch
		if len(copied.Inflight) > 0 && copied.Checkpoint == j.engine.cfg.WithoutInflight {
			j.engine.cfg.Logger.Warn().Str("job", j.Spec.Name).Uint64("checkpoint", copied.Checkpoint).Msg("the job goes on without the rows that were in flight at its checkpoint: they are lost")
			copied.Inflight = nil
		}
	} else if from != nil && j.exactlyOnce() {
		return errSinkBehind(j)
	} else if !r.adopt() {
		if a := j.Spec.Adopt; a != nil && a.Kept.Lasting {
			return pgerr.Newf(pgerr.ObjectNotInPrerequisiteState, "the state of the job that %s replaces cannot be taken over, and it cannot be computed again", j.Spec.Name)
		}
		r.attach(0, noInput) // nothing can be forgotten
	}
	if err := j.taken.Load(); err != nil { // what the logs hold stays for when that has changed
		return *err
	}
	began := time.Now()
	if err := r.restore(); err != nil {
		return firstError(err, r.discard())
	}
	opened := time.Now()
	if j.rel != nil {
		if r.from != nil {
			j.rel.Log.Reset(r.from.Epoch)
			if len(from.Inflight) > 0 {
				j.rel.Log.Forget(r.from.Epoch) // the epochs before it were not closed when it was cut
			}
			j.published.Store(r.from.Epoch)
		} else {
			j.rel.Log.Break(j.engine.clock.closed.Load())
		}
	}
	if err := r.openSink(); err != nil {
		return firstError(err, r.discard())
	}
	if err := r.build(); err != nil {
		return firstError(err, r.discard())
	}
	if r.sink != nil {
		r.sink.begin()
	}
	if r.from != nil {
		j.lastRestore.Store(&Restored{Checkpoint: r.from.Checkpoint, At: began, Download: r.download, Open: opened.Sub(began) - r.download, Rebuild: time.Since(opened)})
	}
	if !j.adopt(r) {
		return firstError(errStopped, r.discard())
	}
	return nil
}

// Restored is how a job was last restored from a checkpoint: how long it took to get files from the store, to open the state, and to build the operators over
// it.
type Restored struct {
	Checkpoint              uint64
	At                      time.Time
	Download, Open, Rebuild time.Duration
}

// Restored returns how the job was last restored, nil when it began from its inputs.
func (j *Job) Restored() *Restored { return j.lastRestore.Load() }

// awaited reports whether the job had better try again than begin anew when its state cannot be had for now: a sink over it could not go on. At the first attempt it is not
// known yet who reads it.
func (j *Job) awaited() bool {
	j.mu.Lock()
	first := j.run == nil
	j.mu.Unlock()
	return first || slices.ContainsFunc(j.engine.withReaders([]*Job{j}), (*Job).exactlyOnce)
}

// exactlyOnce reports that the job writes to a sink that has each row once.
func (j *Job) exactlyOnce() bool { return j.Spec.Sink != nil && j.target.Load().ExactlyOnce }

// errSinkBehind: a sink that began again from what its inputs hold would write rows twice, and miss those that have gone.
func errSinkBehind(j *Job) error {
	for _, in := range j.inputs {
		if err, answer := in.unrecalled, (*object.Error)(nil); errors.As(err, &answer) && !errors.Is(err, object.ErrNotFound) {
			return pgerr.Wrap(pgerr.CannotConnectNow, err, "sink %q cannot go on before the server is started again: what has changed in %q since its last checkpoint could not be fetched", j.Spec.Name, in.Name).
				WithHint("Nothing is lost: start the server again when its checkpoint directory can be read. Do not create the sink anew.")
		}
	}
	err := pgerr.Newf(pgerr.ObjectNotInPrerequisiteState, "sink %q cannot go on: the changes since its last checkpoint are not kept any more, or what it reads was computed anew", j.Spec.Name).
		WithHint("Empty the target, DROP the sink and CREATE it anew. Raise --memory if it falls behind often: a change log holds an eighth of it.")
	for _, in := range j.inputs {
		if in.unrecalled != nil {
			return err.WithDetail("What has changed in %q cannot be found: %v", in.Name, in.unrecalled)
		}
	}
	return err
}

// adopt makes r the job's run unless the job was stopped meanwhile.
func (j *Job) adopt(r *run) bool {
	j.mu.Lock()
	defer j.mu.Unlock()
	if j.stopped {
		return false
	}
	if r.from == nil {
		j.completed, j.lastSnap = nil, 0
	} else {
		j.lastSnap = r.from.Checkpoint
	}
	j.run = r
	return true
}

// passing reports whether a state may be there when it is tried again: its store does not answer, or the local disk is in trouble. It is not when what is there is damaged,
// or missing in the store.
func passing(err error) bool {
	return object.IsRetryable(err) || !errors.Is(err, object.ErrNotFound) && pgerr.CodeOf(err) != pgerr.DataCorrupted
}

// restore opens the state and what else a checkpoint holds. When it cannot be opened the job begins from its inputs, if they have all that it needs.
func (r *run) restore() error {
	j := r.job
	if r.adopted != nil {
		return nil
	}
	store, err := r.open()
	if err != nil && r.from != nil && !j.exactlyOnce() && !j.remembers && !(passing(err) && j.awaited()) {
		j.engine.cfg.Logger.Error().Err(err).Str("job", j.Spec.Name).Msg("checkpointed state cannot be opened: the view is computed again from its inputs")
		r.from, r.backfill, r.done = nil, true, 0
		store, err = state.Open(context.Background(), j.engine.storeOptions(j.Spec.ID, j.Spec.Backend), nil)
	}
	if err != nil {
		return fmt.Errorf("open state of %s: %w", j.Spec.Name, err)
	}
	r.store = store
	if r.from == nil {
		return nil
	}
	if err := r.errors.load(r.from.Operators[operatorErrors]); err != nil {
		return fmt.Errorf("restore errors of %s: %w", j.Spec.Name, err)
	}
	return nil
}

// discard gives up a run that was never executed. What it has attached to its inputs' logs stays.
func (r *run) discard() error {
	r.fail(errStopped)
	r.cleanup()
	return r.closeStore()
}

// open opens the state, getting files that are not on local disk any more from the checkpoint store.
func (r *run) open() (*state.Store, error) {
	e, j := r.engine, r.job
	opts := e.storeOptions(j.Spec.ID, j.Spec.Backend)
	var err error
	if snap := r.stored(); snap == nil || snap.Local() || e.cfg.Fetch == nil {
		var store *state.Store
		if store, err = state.Open(context.Background(), opts, snap); err == nil || r.from == nil || e.cfg.Fetch == nil {
			return store, err
		}
	}
	began := time.Now()
	snap, ferr := e.cfg.Fetch(context.Background(), r.from)
	r.download = time.Since(began)
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

func (r *run) stored() *state.Snapshot {
	if r.from == nil {
		return nil
	}
	return r.from.State
}

// attach takes up the logs of the inputs that continued says after epoch, false when one of them has forgotten what followed, and those of the others as they
// are now: first finds the epoch from which on these are complete.
func (r *run) attach(epoch uint64, continued func(*Relation) bool) bool {
	for _, in := range r.job.inputs {
		if !continued(in) {
			r.readers = append(r.readers, in.Log.Join(r.poke))
			continue
		}
		rd, ok := in.Log.Attach(epoch, r.poke)
		if !ok {
			r.detach()
			r.readers = nil
			return false
		}
		r.readers = append(r.readers, rd)
		if epoch < in.recalled {
			r.resume = max(r.resume, in.recalled)
		}
	}
	r.feed()
	return true
}

func everyInput(*Relation) bool { return true }
func noInput(*Relation) bool    { return false }

// feed tells the job of the run's readers.
func (r *run) feed() {
	feeds := r.readers
	r.job.feeds.Store(&feeds)
}

func (r *run) detach() {
	for _, rd := range r.readers {
		rd.Detach()
	}
}

// supervise runs the job, one run after the other, until it is stopped.
func (j *Job) supervise() {
	backoff := restartFirst
	for {
		j.mu.Lock()
		r := j.run
		j.mu.Unlock()
		began := time.Now()
		err := r.execute()
		stopped := j.ended(r, err)
		if stopped {
			return
		}
		if j.Spec.Temporary {
			j.giveUp(r, err)
			return
		}
		if !errors.Is(err, errRestart) {
			if time.Since(began) > restartForget {
				backoff = restartFirst
			}
			j.failed(err, time.Since(began) > restartForget)
			log := j.engine.cfg.Logger.Error().Err(err).Str("job", j.Spec.Name)
			if j.taken.Load() != nil {
				j.status.CompareAndSwap(int32(JobRestarting), int32(JobFailed))
				j.engine.progress.notify()
				log.Msg("the target of the sink is another server's: it stops until it is altered")
			} else {
				log.Dur("retry_in", backoff).Msg("job failed: it starts again from its last checkpoint")
				if r.sleep(backoff) {
					backoff = min(2*backoff, restartLast)
					j.engine.restart([]*Job{j}, r)
				}
			}
		}
		select {
		case <-r.replaced:
		case <-j.stopCh:
		}
		// Only now: until the next run was attached the logs had to keep what it reads.
		r.detach()
		if j.isStopped() {
			j.status.Store(int32(JobStopped))
			return
		}
	}
}

// ended takes note of the end of a run and reports whether it was the last.
func (j *Job) ended(r *run, err error) (stopped bool) {
	j.mu.Lock()
	stopped = j.stopped
	if stopped {
		j.status.Store(int32(JobStopped))
	} else {
		j.status.Store(int32(JobRestarting)) // from here on Trigger answers ErrNotRunning
	}
	j.mu.Unlock()
	j.declineAll(err)
	if stopped {
		r.detach()
	} else if cerr := r.closeStore(); cerr != nil {
		j.engine.cfg.Logger.Warn().Err(cerr).Str("job", j.Spec.Name).Msg("close state")
	}
	close(r.finished)
	j.engine.progress.notify()
	return stopped
}

// giveUp ends a job for good after its run has failed.
func (j *Job) giveUp(r *run, err error) {
	r.detach()
	j.mu.Lock()
	defer j.mu.Unlock()
	j.status.Store(int32(JobStopped))
	if errors.Is(err, errRestart) {
		err = pgerr.Newf(pgerr.ObjectNotInPrerequisiteState, "a view that %s reads was started again from its last checkpoint", j.Spec.Name)
	}
	j.lastErr, j.failedAt, j.troubled = err, time.Now(), nil
	close(j.hopeless)
	if !j.stopped {
		j.stopped = true
		close(j.stopCh)
	}
}

func (j *Job) failed(err error, ranWell bool) {
	defer j.engine.progress.notify() // readers may have waited long enough
	j.mu.Lock()
	defer j.mu.Unlock()
	if ranWell {
		j.streak = 0
	}
	j.lastErr, j.failedAt, j.troubled = err, time.Now(), nil
	j.restarts++
	j.streak++
	if j.restarts == 1 && dataError(err) {
		close(j.hopeless)
	}
}

// dataError tells an error of the rows themselves (classes 21 and 22), which a restart does not mend, from trouble that may pass.
func dataError(err error) bool {
	code := string(pgerr.CodeOf(err))
	return strings.HasPrefix(code, "21") || strings.HasPrefix(code, "22")
}

// starting is a mutex that can be waited for only so long: a job's supervisor that waited for it while the job's run was replaced would have nobody execute the
// new run, which whoever holds the mutex may wait for.
type starting chan struct{}

func newStarting() starting { return make(starting, 1) }

// Lock waits for the mutex.
func (s starting) Lock() { s.lock(nil) }

// lock waits for the mutex or until over is closed, which returns false.
func (s starting) lock(over <-chan struct{}) bool {
	select {
	case s <- struct{}{}:
		return true
	case <-over:
		return false
	}
}

// Unlock gives the mutex back.
func (s starting) Unlock() { <-s }

// restart starts the given jobs again together with all that read from them: those have consumed changes that will be made again. first, when
// set, is the run whose failure is the reason; nothing is done when it was replaced meanwhile.
func (e *Engine) restart(jobs []*Job, first *run) {
	var over <-chan struct{}
	if first != nil {
		over = first.replaced
	}
	if !e.restarting.lock(over) {
		return
	}
	defer e.restarting.Unlock()
	if first != nil && first.isReplaced() {
		return
	}
	var group []*Job
	var runs []*run
	var ids []uint64
	for _, k := range e.withReaders(jobs) {
		k.mu.Lock()
		r, stopped := k.run, k.stopped
		k.mu.Unlock()
		if stopped {
			continue
		}
		group, runs = append(group, k), append(runs, r)
		if !k.Spec.Temporary {
			ids = append(ids, k.Spec.ID)
		}
	}
	for i, k := range group {
		runs[i].fail(errRestart)
		select {
		case <-runs[i].finished:
		case <-k.stopCh:
		}
	}
	m, err := e.acker.Restart(e.life, ids)
	for i, k := range group {
		if k.isStopped() || k.Spec.Temporary {
			continue
		}
		var failed *run
		if err != nil {
			failed = k.failedRun(err)
		} else {
			k.mu.Lock()
			was := k.completed
			k.completed = nil
			if m != nil {
				k.completed = m.Jobs[k.Spec.ID]
			}
			if k.completed == nil && was != nil && was.Foreign() {
				k.completed = was
			}
			if now := k.completed; now != nil && was != nil && was.Epoch > now.Epoch {
				k.completed = was // nothing was written since, because nothing changed up to that epoch; the inputs' logs begin there
			}
			k.mu.Unlock()
			failed, _ = k.prepare()
		}
		switch {
		case failed == nil:
		case k.isStopped():
			failed.detach()
		default: // it reports the failure, and the job tries again after a pause
			k.mu.Lock()
			k.run = failed
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
	all := e.allJobs()
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
