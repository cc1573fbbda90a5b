package exec

import (
	"bytes"
	"context"
	"fmt"
	"maps"
	"math"
	"runtime/debug"
	"sync"
	"sync/atomic"
	"time"

	"github.com/streamdb/streamdb/checkpoint"
	"github.com/streamdb/streamdb/connector"
	"github.com/streamdb/streamdb/exec/op"
	"github.com/streamdb/streamdb/internal/invariants"
	"github.com/streamdb/streamdb/internal/pgerr"
	"github.com/streamdb/streamdb/planner/plan"
	"github.com/streamdb/streamdb/state"
	"github.com/streamdb/streamdb/storage/changelog"
)

// barrierStride makes all jobs stop at common epochs while they catch up: without it two views that always jump over each other's
// epochs would never have published one that a query over both can use.
const barrierStride = 8

// run is one attempt of a job: its state store, subtasks and driver, from a start to a failure or stop.
type run struct {
	job    *Job
	engine *Engine

	store    *state.Store
	from     *checkpoint.JobState // nil: from scratch
	adopted  *adopted             // kept operators begin from this
	backfill bool
	readers  []*changelog.Reader // per input
	pins     *Pinned             // during the backfill
	done     uint64              // newest epoch processed; owned by the driver
	// resume is the first epoch that the run may close: of those before it its inputs do not tell apart all changes.
	resume uint64
	// announced is the newest epoch that readers were told is closed; owned by the driver.
	announced uint64
	// taken is set while rows were taken in since the last checkpoint barrier: operators put what they changed only there, so the state may
	// look clean when the rows left the view as it was. Owned by the driver.
	taken bool

	download time.Duration // of the files of its state, before it was opened

	contracts map[uint32]*op.Contract // by operator, in builds with invariants

	// now is the engine's clock when the run was built, the same for all operators, in µs since 2000-01-01 UTC.
	now   int64
	timed []op.Timed
	// dueEpoch is the epoch that was made for timed operators; owned by the driver.
	dueEpoch uint64

	subtasks []*subtask
	leaves   []*subtask // those that take control messages
	sources  []*sourceNode
	sink     *sinkRun // of a job that writes to a connector

	finished     chan struct{} // execute has returned and the state is closed
	replaced     chan struct{} // the job has another run now
	replacedOnce sync.Once
	storeClosed  atomic.Bool

	stop     chan struct{}
	stopOnce sync.Once
	ctx      context.Context //nolint:containedctx // ends with the run
	cancel   context.CancelCauseFunc
	err      error
	wake     chan struct{}
	wg       sync.WaitGroup
	written  chan struct{} // closed when the newest snapshot has been made, nil: there was none; owned by the driver
	seq      uint64        // of the barrier in flight; owned by the driver

	mu      sync.Mutex
	reports int
	arrived chan struct{} // all subtasks have passed the barrier in flight
	cutting *cut
	writes  map[uint64]*cut // those being written, by checkpoint

	yields    bool               // barriers may overtake rows
	overtaken checkpoint.Barrier // the newest unaligned checkpoint; owned by the driver, as what follows
	ahead     *cut               // that of overtaken
	settling  bool               // what was in flight at the checkpoint that the run goes on from has not been taken in yet; written before the subtasks run

	more      atomic.Bool   // a scan has rows left for another round of the backfill
	consumed  atomic.Uint64 // done, for others than the driver
	again     atomic.Bool   // rows of the replaced view are put out again: sources wait
	leavesRan bool          // constant leaves emit once, in the first round; written between barriers
	scanned   atomic.Int64  // rows read during the backfill
	toScan    atomic.Int64
	errors    errorLog
}

func newRun(j *Job) *run {
	r := &run{
		job: j, engine: j.engine, stop: make(chan struct{}), wake: make(chan struct{}, 1), finished: make(chan struct{}),
		replaced: make(chan struct{}), backfill: true, contracts: map[uint32]*op.Contract{}, writes: map[uint64]*cut{},
	}
	r.ctx, r.cancel = context.WithCancelCause(context.Background())
	return r
}

func (r *run) isReplaced() bool {
	select {
	case <-r.replaced:
		return true
	default:
		return false
	}
}

func (r *run) closeStore() error {
	if r.store == nil || !r.storeClosed.CompareAndSwap(false, true) {
		return nil
	}
	return r.store.Close()
}

func (r *run) poke() {
	select {
	case r.wake <- struct{}{}:
	default:
	}
}

// fail ends the run; the first error counts.
func (r *run) fail(err error) {
	r.stopOnce.Do(func() {
		r.err = err
		close(r.stop)
		r.cancel(errStopped)
		for _, t := range r.subtasks {
			t.box.close()
		}
	})
}

func (r *run) stopped() bool {
	select {
	case <-r.stop:
		return true
	default:
		return false
	}
}

// execute runs the subtasks and the driver until one fails or the run is stopped. All goroutines have ended when it returns, and the
// operators and sources are closed.
func (r *run) execute() error {
	defer r.cleanup()
	if r.stopped() {
		return r.err
	}
	r.job.quietSrc.Store(false)
	r.job.freeze(false)
	for _, t := range r.subtasks {
		for _, n := range t.nodes {
			if o, ok := n.op.(op.Timed); ok {
				r.timed = append(r.timed, o)
			}
		}
	}
	if r.job.hasSources {
		r.job.behind.Store(!r.caught())
		r.engine.clock.setLive(1)
		defer func() {
			if !r.job.quietSrc.Load() {
				r.engine.clock.setLive(-1)
			}
		}()
	}
	if !r.backfill && r.job.rel != nil && !r.settling {
		// Restored: readers see the checkpoint's content at once, and nothing that came after it. The parts are still nobody's.
		r.job.rel.publish(r.done, r.done, r.restoredViews())
		r.job.caughtUpOnce()
	}
	switch {
	case r.backfill && len(r.job.inputs) > 0:
		r.job.status.Store(int32(JobBackfilling))
	case !r.settling:
		r.running()
	}
	r.engine.progress.notify()
	for _, t := range r.subtasks {
		r.goRun("subtask "+t.name, t.loop)
	}
	if r.sink != nil {
		r.goRun("sink", r.sink.loop)
	}
	for _, s := range r.sources {
		r.goRun("splits of "+s.node.Source.Name, func() error { return s.discover(r) })
	}
	r.goRun("driver", r.drive)
	r.wg.Wait()
	r.fail(errStopped)
	return r.err
}

// cleanup closes what build has opened; all goroutines of the run have ended.
func (r *run) cleanup() {
	if r.pins != nil {
		r.pins.Release()
	}
	for _, t := range r.subtasks {
		t.close()
	}
	for _, s := range r.sources {
		s.close()
	}
	if err := r.sink.close(); err != nil {
		r.engine.cfg.Logger.Warn().Err(err).Str("job", r.job.Spec.Name).Msg("close sink")
	}
}

func (r *run) running() {
	j := r.job
	j.mu.Lock()
	defer j.mu.Unlock()
	if j.paused {
		j.status.Store(int32(JobPaused))
	} else {
		j.status.Store(int32(JobRunning))
	}
}

func (r *run) goRun(name string, f func() error) {
	r.wg.Add(1)
	go func() {
		defer r.wg.Done()
		defer func() {
			if p := recover(); p != nil {
				invariants.Pass(p)
				r.fail(pgerr.Newf(pgerr.InternalError, "%s: panic: %v", name, p).WithDetail("%s", debug.Stack()))
			}
		}()
		if err := f(); err != nil && err != error(errStopped) {
			r.fail(fmt.Errorf("%s: %w", name, err))
		}
	}()
}

// drive injects one barrier after the other and publishes what each one closed.
func (r *run) drive() error {
	if r.backfill {
		if err := r.first(); err != nil {
			return err
		}
	} else if err := r.engine.cfg.Failpoints.Hit("exec/after-restore"); err != nil {
		return err
	}
	if r.settling {
		if err := r.firstAgain(); err != nil {
			return err
		}
	}
	for {
		b, firstChange, ok, err := r.next()
		if err != nil {
			return err
		}
		if ok {
			if err := r.advance(b, firstChange); err != nil {
				return err
			}
			continue
		}
		r.announce()
		if err := r.awaitDue(); err != nil {
			return err
		}
	}
}

// awaitDue waits for a wake-up, or until a timed operator has something to do: an epoch is then made for that.
func (r *run) awaitDue() (err error) {
	at := int64(math.MaxInt64)
	if r.dueEpoch <= r.done && !r.job.isPaused() && !r.live() {
		for _, o := range r.timed {
			at = min(at, o.NextDue())
		}
	}
	var timer <-chan time.Time
	if at != math.MaxInt64 {
		left := at - r.engine.now()
		if left <= 0 {
			// Epochs that were closed for the view already have what readers saw: what changes now belongs to one that comes after them.
			r.job.freeze(true)
			r.dueEpoch, err = r.engine.clock.tick(r.ctx)
			return err
		}
		t := time.NewTimer(time.Duration(min(left, maxDueWait)) * time.Microsecond)
		defer t.Stop()
		timer = t.C
	}
	select {
	case <-r.wake:
	case <-timer:
	case <-r.stop:
		return errStopped
	}
	return nil
}

// maxDueWait bounds a wait for the clock, in µs: who sets the system's clock is noticed after that.
const maxDueWait = 60 * 1000 * 1000

// announce passes a wake-up on when the job has closed epochs without doing anything: its readers may wait for just that.
func (r *run) announce() {
	if r.job.rel == nil {
		return
	}
	if c := r.job.closed(); c > r.announced {
		r.announced = c
		r.job.rel.Log.Wake()
		r.engine.progress.notify()
	}
}

// first reads what the inputs hold: one barrier at an epoch that all of them have. Changes after it come from the logs. A writer that began
// an epoch before it saw this reader may not have logged it, so the epoch must be one that was still open when all readers were attached.
func (r *run) first() error {
	var since uint64
	var err error
	if len(r.job.inputs) > 0 {
		if since, err = r.engine.clock.tick(r.ctx); err != nil {
			return err
		}
	}
	r.job.pinning.Store(true)
	pins, err := r.engine.pinAdvancing(r.ctx, r.job.inputs, since)
	r.job.pinning.Store(false)
	if err != nil {
		return err
	}
	r.pins = pins
	r.toScan.Store(r.rowsToFill())
	if err := r.catchUp(pins.Epoch); err != nil {
		return err
	}
	for filling := r.job.filling(); ; {
		r.more.Store(false)
		b := checkpoint.Barrier{Epoch: pins.Epoch, Triggered: time.Now(), Filling: filling}
		if len(r.timed) > 0 {
			b.Now = r.engine.now()
		}
		if r.store.NeedsFlush() {
			b.Checkpoint = flushOnly
		}
		if err := r.pass(b); err != nil {
			return err
		}
		r.leavesRan = filling != checkpoint.FillLeading
		if r.more.Load() {
			continue
		}
		if filling == checkpoint.NotFilling || filling == checkpoint.FillComplete {
			break
		}
		filling++
	}
	r.backfill = false
	if r.job.rel != nil && r.job.rel.Log.HasReaders() {
		// Who was attached before the epoch was chosen may read it and go on with the next: rows of that must not come before the subtasks know that the backfill is over.
		b := checkpoint.Barrier{Epoch: pins.Epoch, Triggered: time.Now()}
		if len(r.timed) > 0 {
			b.Now = r.engine.now()
		}
		if err := r.pass(b); err != nil {
			return err
		}
	}
	r.publish(checkpoint.Barrier{Epoch: pins.Epoch}, pins.Epoch)
	r.pins.Release()
	r.pins = nil
	r.running()
	if len(r.sources) == 0 {
		r.job.caughtUpOnce()
		if r.sink != nil {
			r.job.finishSinks() // what was there when it was created need not wait for the interval either
		}
	}
	r.engine.progress.notify()
	return nil
}

// firstAgain closes the epoch of the checkpoint that the run goes on from once more: it holds what was in flight, too.
func (r *run) firstAgain() error {
	if err := r.pass(checkpoint.Barrier{Epoch: r.done, Triggered: time.Now()}); err != nil {
		return err
	}
	r.settling = false
	if rel := r.job.rel; rel != nil {
		var views []*state.View
		for _, t := range r.subtasks {
			if t.sink != nil {
				views = append(views, t.sink.takeView())
			}
		}
		rel.publish(r.done, r.done, views)
		r.job.caughtUpOnce()
	}
	r.taken = true
	r.running()
	r.engine.progress.notify()
	return nil
}

// rowsToFill is how many rows the scans that are to be filled read of the pinned versions: each all of its relation, in shares of the subtasks.
func (r *run) rowsToFill() int64 {
	n := int64(0)
	for _, t := range r.subtasks {
		for _, s := range t.scans {
			if scan := s.node.plan.Scan; s.share == 0 && !s.kept && !scan.Probed && !scan.ChangesOnly {
				n += r.pins.Versions[s.rel.ID].Rows
			}
		}
	}
	return n
}

func (j *Job) caughtUpOnce() {
	j.mu.Lock()
	defer j.mu.Unlock()
	select {
	case <-j.caughtUp:
	default:
		close(j.caughtUp)
	}
}

func (r *run) restoredViews() []*state.View {
	var views []*state.View
	for _, t := range r.subtasks {
		if t.sink != nil {
			views = append(views, t.sink.part.View())
		}
	}
	return views
}

// next decides the next barrier. firstChange is the first epoch whose rows it closes.
func (r *run) next() (b checkpoint.Barrier, firstChange uint64, ok bool, err error) {
	if err := r.checkReaders(); err != nil {
		return b, 0, false, err
	}
	limit := r.job.closedByInputs()
	if r.job.isPaused() {
		b, ok = r.nextPaused(limit)
		return b, b.Epoch, ok, nil
	}
	r.job.declineMissed(r.done, 0)
	if limit <= r.done || limit < r.resume {
		return b, 0, false, nil
	}
	cp, hasCP := r.nextCheckpoint(limit)
	if o := r.overtaken; o.Epoch > r.done && (!hasCP || cp.Epoch > o.Epoch) {
		cp, hasCP = o, true // its epoch has to be closed, whatever became of it
	}
	first, has := r.firstChange(limit)
	if r.live() {
		// Epochs that were skipped at the start hold nothing: no barrier stops in them.
		first, has = min(first, max(r.done+1, r.engine.clock.began)), true
	}
	if r.dueEpoch > r.done && r.dueEpoch <= limit {
		first, has = min(first, r.dueEpoch), true
	}
	switch {
	case !has && !hasCP:
		return b, 0, false, nil
	case !has:
		return cp, cp.Epoch, true, nil
	}
	b = checkpoint.Barrier{Epoch: min(limit, (first+barrierStride-1)/barrierStride*barrierStride), Triggered: time.Now()}
	if h, ok := r.engine.heldIn(first, b.Epoch); ok {
		b.Epoch = h // a transaction block will read the view at that epoch
	}
	if b.Epoch = r.job.untilTemporal(first, b.Epoch); r.job.exact.Load() > 0 {
		b.Epoch = min(b.Epoch, first)
	}
	b.Epoch = max(b.Epoch, r.resume)
	if hasCP && cp.Epoch <= b.Epoch {
		b = cp
	}
	if len(r.timed) > 0 && b.Epoch >= first {
		b.Now = r.engine.now()
	}
	return b, min(first, b.Epoch), true, nil
}

// checkReaders fails when a log has given up on the job.
func (r *run) checkReaders() error {
	for _, rd := range r.readers {
		if rd.Detached() {
			return pgerr.Newf(pgerr.ConfigurationLimitExceeded, "the view fell behind the change log it reads: it is filled again from the current content").
				WithHint("Raise --memory if this happens often: a change log holds an eighth of it.")
		}
	}
	return nil
}

// live reports whether the job's sources may have rows.
func (r *run) live() bool { return r.job.hasSources && !r.job.quietSrc.Load() }

// firstChange returns the first epoch in (done, limit] in which an input changed; limit and false when there is none.
func (r *run) firstChange(limit uint64) (first uint64, has bool) {
	first = limit
	for _, in := range r.job.inputs {
		if f, ok := in.Log.FirstAfter(r.done, limit); ok {
			first, has = min(first, f), true
		}
	}
	return first, has
}

// nextCheckpoint returns the barrier of the first checkpoint in (done, limit], asked for or still to be.
func (r *run) nextCheckpoint(limit uint64) (checkpoint.Barrier, bool) {
	if r.job.Spec.Temporary {
		return checkpoint.Barrier{}, false
	}
	b, ok := r.job.nextWanted(r.done, limit)
	if cp, known := r.engine.clock.checkpointIn(r.job.Spec.ID, r.done, limit); known && (!ok || cp.epoch < b.Epoch) {
		b, ok = cp.cut.Barrier(cp.id, cp.epoch, cp.at, r.job.Settings()), true
	}
	return b, ok
}

// nextPaused takes a paused job through the checkpoints that it can meet without taking input, and declines the others: its state belongs to
// an epoch before them.
func (r *run) nextPaused(limit uint64) (b checkpoint.Barrier, ok bool) {
	first, has := r.firstChange(limit)
	if !has {
		first = 0
	}
	r.job.declineMissed(r.done, first)
	return r.job.nextWanted(r.done, limit)
}

// advance takes the job through one barrier and publishes the epoch.
func (r *run) advance(b checkpoint.Barrier, firstChange uint64) error {
	if b.Checkpoint != 0 && b.Now == 0 && !b.Full && !b.Drains(r.job.Spec.ID) && b.Checkpoint != r.overtaken.Checkpoint && r.unchanged(b) {
		if b.Stops(r.job.Spec.ID) {
			r.job.Pause()
		}
		r.passed(b.Epoch)
		r.job.acknowledge(r.job.unchangedState(b))
		return nil
	}
	r.taken = r.taken || r.live() || r.inputsChanged(b.Epoch) || r.dueEpoch > r.done && r.dueEpoch <= b.Epoch
	ended, caught := r.sourcesEnded(), r.caught()
	if b.Checkpoint == 0 && r.store.NeedsFlush() && !r.writing() && (r.ahead == nil || r.ahead.begun) {
		b.Checkpoint = flushOnly
	}
	if b.Stops(r.job.Spec.ID) {
		r.job.Pause() // before the barrier: sources read nothing behind it
	}
	if err := r.pass(b); err != nil {
		return err
	}
	r.publish(b, firstChange)
	if r.done >= r.dueEpoch {
		r.job.freeze(false)
	}
	if caught {
		r.job.behind.Store(false)
		r.job.caughtUpOnce() // all that the sources held is in what was published
	}
	switch b.Checkpoint {
	case 0, flushOnly:
	case r.overtaken.Checkpoint:
		r.write(r.ahead)
	default:
		r.write(r.cutting)
	}
	if ended && r.job.quietSrc.CompareAndSwap(false, true) {
		// All rows of the sources were before this barrier: from now on the job advances with its inputs alone.
		r.engine.clock.setLive(-1)
		r.engine.progress.notify()
		r.job.finishSinks()
	}
	return nil
}

// flushOnly is the checkpoint id of barriers that move state to disk without a checkpoint, when memory runs short.
const flushOnly = math.MaxUint64

// pass sends a barrier through the job and waits until every subtask has passed it.
func (r *run) pass(b checkpoint.Barrier) error {
	arrived := make(chan struct{})
	r.mu.Lock()
	r.reports, r.arrived = 0, arrived
	r.mu.Unlock()
	r.seq++
	b.Unaligned = false // whether rows are overtaken is decided here
	m := message{kind: msgBarrier, barrier: b, seq: r.seq}
	if b.Checkpoint != 0 {
		if b.Checkpoint != r.overtaken.Checkpoint {
			r.cutOf(b)
		}
		m.loose = b.Checkpoint != flushOnly && r.job.Settings().Mode == checkpoint.AtLeastOnce
	}
	again := r.hurried(b)
	for _, t := range r.leaves {
		if !t.box.send(0, m) {
			return errStopped
		}
	}
	if err := r.awaitPassed(b, arrived, again); err != nil {
		return err
	}
	for _, c := range r.contracts {
		c.Check()
	}
	r.sink.passed(b)
	if b.Checkpoint == flushOnly {
		return r.flush()
	}
	return nil
}

// farFuture is when a timer fires that was not set.
const farFuture = 24 * time.Hour

// awaitPassed waits until all subtasks have passed a barrier. A checkpoint may overtake it meanwhile.
func (r *run) awaitPassed(b checkpoint.Barrier, arrived <-chan struct{}, again time.Duration) error {
	late := time.NewTimer(farFuture)
	defer late.Stop()
	for {
		if again > 0 {
			late.Reset(again)
		}
		var cut <-chan struct{}
		if r.ahead != nil && !r.ahead.begun {
			cut = r.ahead.done
		}
		select {
		case <-arrived:
			return nil
		case <-r.stop:
			return errStopped
		case <-cut:
			r.write(r.ahead)
		case <-r.wake:
		case <-late.C:
		}
		again = r.hurried(b)
	}
}

// contract returns what watches the output of an operator's subtasks.
func (r *run) contract(n *plan.Node) *op.Contract {
	c := r.contracts[n.ID]
	if c == nil {
		of := op.OfResumedJob
		if r.backfill && r.adopted.whole(n.ID) && !r.changesOnly(n) {
			of = op.OfJob
		}
		if c = op.NewContract(n, of); c != nil {
			r.contracts[n.ID] = c
		}
	}
	return c
}

// changesOnly reports whether the rows that were there when the job was filled are missing from the output of an operator: a lookup join above it
// reads them where they are.
func (r *run) changesOnly(n *plan.Node) bool {
	switch n.Kind {
	case plan.KindScan:
		return n.Scan.ChangesOnly
	case plan.KindExchange:
		return r.changesOnly(r.job.Spec.Plan.Sender(n.Exchange))
	}
	return len(n.Inputs) == 1 && r.changesOnly(n.Inputs[0])
}

// publish makes what a barrier closed visible to readers and to the jobs that read from this one.
func (r *run) publish(b checkpoint.Barrier, firstChange uint64) {
	if rel := r.job.rel; rel != nil {
		if b.Epoch > r.done || !rel.hasVersion() {
			views := make([]*state.View, 0, 1)
			for _, t := range r.subtasks {
				if t.sink != nil {
					views = append(views, t.sink.takeView())
				}
			}
			rel.publish(b.Epoch, max(firstChange, 1)-1, views)
		}
		rel.Log.Seal(b.Epoch)
		r.job.published.Store(b.Epoch)
		r.announced = b.Epoch
		rel.Log.Wake()
	} else {
		r.job.published.Store(b.Epoch)
	}
	r.passed(b.Epoch)
	r.engine.progress.notify()
}

// passed notes that the job has taken in everything up to epoch.
func (r *run) passed(epoch uint64) {
	r.done = epoch
	r.consumed.Store(epoch)
	for _, rd := range r.readers {
		if r.job.Spec.Temporary { // it never goes back
			rd.Durable(epoch)
		} else {
			rd.Consumed(epoch)
		}
	}
}

// sourcesEnded reports that all splits of all sources have ended.
func (r *run) sourcesEnded() bool {
	if !r.job.hasSources || r.job.quietSrc.Load() {
		return false
	}
	for _, s := range r.sources {
		if !s.finished() {
			return false
		}
	}
	return true
}

// unchanged reports that the last completed checkpoint still describes the job, so that nothing needs to be written.
func (r *run) unchanged(b checkpoint.Barrier) bool {
	if rel := r.job.rel; rel != nil {
		if h := rel.history.Load(); h != nil && h.standing() == historyBack { // it still has to take back what comes after the last checkpoint
			return false
		}
	}
	return !r.live() && !r.taken && !r.inputsChanged(b.Epoch) && r.stateUnchanged()
}

// inputsChanged reports whether an input has changes in (done, epoch].
func (r *run) inputsChanged(epoch uint64) bool {
	_, has := r.firstChange(epoch)
	return has
}

// unchangedState is what a job acknowledges that has nothing to write.
func (j *Job) unchangedState(b checkpoint.Barrier) *checkpoint.JobState {
	return &checkpoint.JobState{Job: j.Spec.ID, Name: j.Spec.Name, Checkpoint: b.Checkpoint, Epoch: b.Epoch, Unchanged: true, Parallelism: j.Parallelism()}
}

// stateUnchanged reports that the stored state and the rows of the errors relation equal those of the last completed checkpoint.
func (r *run) stateUnchanged() bool {
	r.job.mu.Lock()
	defer r.job.mu.Unlock()
	c := r.job.completed
	return c != nil && !c.Foreign() && len(c.Inflight) == 0 && r.job.lastSnap == c.Checkpoint && !r.store.Dirty() && !r.errors.dirty()
}

// samePositions reports that the sources stand where they stood at the last completed checkpoint.
func (r *run) samePositions(pos map[string][]byte) bool {
	r.job.mu.Lock()
	defer r.job.mu.Unlock()
	return r.job.completed != nil && maps.EqualFunc(pos, r.job.completed.Positions, bytes.Equal)
}

// passedBy is called by each subtask when it has passed a barrier.
func (r *run) passedBy() {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.reports++; r.reports == len(r.subtasks) {
		close(r.arrived)
	}
}

// operatorErrors is the key of the job's rows of the errors relation in JobState.Operators.
const operatorErrors = "errors"

// flush moves the overlay to disk.
func (r *run) flush() error {
	sealed := make([]*state.Sealed, len(r.cutting.parts))
	for i, p := range r.cutting.parts {
		sealed[i] = p.sealed
	}
	if r.written != nil {
		<-r.written
	}
	if err := r.store.Flush(r.ctx, sealed); err != nil {
		return fmt.Errorf("flush state: %w", err)
	}
	return nil
}

// Progress reports a backfill: rows read and rows to read.
func (j *Job) Progress() (read, total int64) {
	j.mu.Lock()
	r := j.run
	j.mu.Unlock()
	if r == nil {
		return 0, 0
	}
	return r.scanned.Load(), r.toScan.Load()
}

// Metrics of a job's state.
func (j *Job) Metrics() state.Metrics {
	j.mu.Lock()
	r := j.run
	j.mu.Unlock()
	if r == nil || r.store == nil {
		return state.Metrics{}
	}
	return r.store.Metrics()
}

// sourceNode is one source of the plan: its connector, and where every split stands.
type sourceNode struct {
	node   *plan.Node
	source connector.Source
	subs   []*sourceLeaf // per subtask
	taken  map[string]bool
	mu     sync.Mutex
	final  bool // no further splits will come
	stored bool // holds rows that can be caught up with, unlike a generator that never ends
	status map[string]SplitStats
}
