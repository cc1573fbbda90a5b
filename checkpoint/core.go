package checkpoint

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/streamdb/streamdb/internal/pgerr"
)

// core is the coordinator's state and logic without goroutines, clocks and IO: step takes an event and returns what is to be done.
// It is owned by one goroutine.
//
// A checkpoint id is triggered for every participant that is free; one that is still busy with an earlier id is left out, and so is what
// reads from it, so that a slow job delays only itself and its readers. Published states of one id may thus come in several batches.
//
//	part: waiting → called → triggered → acked → publishing → done
//	         └─────────┴──────────┴──────────┴─────────┴──────→ failed
//
// Invariants: a participant is in at most one pending checkpoint that it has not finished; a part is published only when every
// participant it reads from has a part with the same id that is done or in the same batch (the causal rule); only one batch is being
// published at a time.
type core struct {
	cfg   Config
	stats *history

	nextID    uint64
	beginning bool // an actBegin is out
	pending   []*pendingCheckpoint
	known     map[uint64]Participant
	busy      map[uint64]uint64 // participant → the pending id it has not finished
	requests  []*request
	restarts  []*restart
	last      bool // no more periodic triggers

	publishing *batch
	// settled: the latest checkpoint left nothing behind, so the next is needed only if something happens.
	settled        bool
	nextPeriodic   time.Time
	lastSuccess    time.Time
	catalogVersion uint64            // in the newest manifest
	haveManifest   bool              // there is one
	entries        map[uint64]bool   // participants with a state in the newest manifest
	dropped        map[uint64]uint64 // job → first id whose checkpoint does not have it any more
	failures       map[uint64]int    // counted failures since the last success
	fatal          error
}

type partState uint8

const (
	partWaiting    partState = iota // its inputs have not been triggered yet
	partCalled                      // Participant.Trigger is being called
	partTriggered                   // its answer is due
	partAcked                       // its state is here, not published
	partPublishing                  // in the batch being published
	partDone                        // durable, or equal to what is durable
	partFailed                      // will not be published
)

type part struct {
	p      Participant
	inputs []uint64
	state  partState
	ack    *JobState
	err    error
}

func (p *part) open() bool { return p.state <= partTriggered }

type pendingCheckpoint struct {
	id, epoch      uint64
	triggered      time.Time
	firstAck       time.Time // of those not yet published
	parts          map[uint64]*part
	order          []uint64 // participants in triggering order: inputs first
	catalogVersion uint64
	catalog        []byte
	catalogDone    bool
	cut            Cut
	savepoint      *request // who asked for it, when it is one
	forced         bool     // somebody asked for it: unchanged jobs are shown too
	partial        bool     // somebody was left out
}

// batch is a set of job states to be published together, with what belongs to the same instant.
type batch struct {
	id             uint64 // highest checkpoint id in it
	epoch          uint64
	changed        []*JobState
	unchanged      []*JobState // entries whose ids advance
	drop           []uint64
	catalogVersion uint64
	catalog        []byte // nil: as before
	retained       int
	parts          map[*pendingCheckpoint][]uint64
}

// request is a CHECKPOINT statement: done when every job it means is covered by a checkpoint triggered after it was made; or a savepoint, which has an id
// of its own.
type request struct {
	jobs      []uint64 // nil: all
	savepoint *SavepointSpec
	stop      *SavepointSpec // of a checkpoint with which the jobs end
	begun     bool
	retry     bool            // some job that was busy is free now
	blockers  map[uint64]bool // who was busy when the last checkpoint for it began
	remaining map[uint64]bool // not covered yet
	from      uint64          // ids from here on count
	id        uint64
	done      chan reply // capacity 1
}

// restart is a job runtime that waits to know what its jobs restart from.
type restart struct {
	jobs []uint64
	done chan error // capacity 1
}

type reply struct {
	id, epoch uint64
	path      string // of a savepoint
	err       error
}

type event interface{ isEvent() }

type (
	evTick    struct{}
	evRequest struct{ r *request }
	evCancel  struct{ r *request }
	evLast    struct{}
	evBegun   struct {
		id, epoch      uint64
		cut            Cut
		savepoint      *request
		participants   []Participant
		catalogVersion uint64
		catalog        []byte
		quiet          bool
		err            error
	}
	evTriggered struct {
		job, id uint64
		err     error
	}
	evAck     struct{ s *JobState }
	evDecline struct {
		job, id uint64
		err     error
	}
	evPublished struct {
		batch  *batch
		result *published
		err    error
	}
	evSavepoint struct {
		id   uint64
		path string
		err  error
	}
	evRestart   struct{ r *restart }
	evDrop      struct{ job uint64 }
	evConfig    struct{ cfg Config }
	evSwept     struct{ err error }
	evCollected struct{ err error }
)

func (evTick) isEvent()      {}
func (evRequest) isEvent()   {}
func (evCancel) isEvent()    {}
func (evLast) isEvent()      {}
func (evBegun) isEvent()     {}
func (evTriggered) isEvent() {}
func (evAck) isEvent()       {}
func (evDecline) isEvent()   {}
func (evPublished) isEvent() {}
func (evSavepoint) isEvent() {}
func (evRestart) isEvent()   {}
func (evDrop) isEvent()      {}
func (evConfig) isEvent()    {}
func (evSwept) isEvent()     {}
func (evCollected) isEvent() {}

type action interface{ isAction() }

type (
	actBegin struct {
		id         uint64
		mayBeQuiet bool
		savepoint  *request // nil: a checkpoint
		stop       *SavepointSpec
	}
	actTrigger struct {
		participant Participant
		barrier     Barrier
	}
	actPublish struct{ batch *batch }
	// actSavepoint writes a savepoint; evSavepoint follows.
	actSavepoint struct {
		id, epoch      uint64
		spec           *SavepointSpec
		states         []*JobState
		catalogVersion uint64
		catalog        []byte
	}
	actNotify struct {
		participant Participant
		id          uint64
		outcome     outcome
	}
	actReply struct {
		request *request
		reply   reply
	}
	actRestart struct {
		restart *restart
		err     error
	}
	actFailJob struct {
		job uint64
		err error
	}
	actLog struct {
		id       uint64
		job, msg string
		err      error
	}
)

func (actBegin) isAction()     {}
func (actTrigger) isAction()   {}
func (actPublish) isAction()   {}
func (actSavepoint) isAction() {}
func (actNotify) isAction()    {}
func (actReply) isAction()     {}
func (actRestart) isAction()   {}
func (actFailJob) isAction()   {}
func (actLog) isAction()       {}

// outcome is what a participant is told of its state.
type outcome uint8

const (
	aborted   outcome = iota
	complete          // durable
	savepoint         // written as a savepoint, which is not what anybody restarts from
)

func newCore(cfg Config, stats *history) *core {
	return &core{
		cfg: cfg, stats: stats, nextID: 1,
		known: map[uint64]Participant{}, busy: map[uint64]uint64{}, entries: map[uint64]bool{}, dropped: map[uint64]uint64{}, failures: map[uint64]int{},
	}
}

// restore takes over what is durable; next is the first id that was never given out.
func (c *core) restore(m *Manifest, next uint64) {
	c.nextID = next
	if m == nil {
		return
	}
	c.haveManifest = true
	c.catalogVersion = m.CatalogVersion
	for job := range m.Jobs {
		c.entries[job] = true
	}
	c.stats.restored(m)
}

// start plans the first periodic checkpoint: at a random time between the minimum pause and the interval.
func (c *core) start(now time.Time, random float64) []action {
	c.planPeriodic(now.Add(c.cfg.MinPause + time.Duration(random*float64(max(0, c.cfg.Interval-c.cfg.MinPause)))))
	return c.advance(now, nil)
}

func (c *core) planPeriodic(at time.Time) {
	c.nextPeriodic = at
	if earliest := c.lastSuccess.Add(c.cfg.MinPause); !c.lastSuccess.IsZero() && at.Before(earliest) {
		c.nextPeriodic = earliest
	}
}

// farFuture stands for no deadline.
const farFuture = 24 * time.Hour

// deadline is when the next evTick is due.
func (c *core) deadline(now time.Time) time.Time {
	d := now.Add(farFuture)
	earlier := func(t time.Time) {
		if t.Before(d) {
			d = t
		}
	}
	if c.periodic() && !c.beginning {
		earlier(c.nextPeriodic)
	}
	for _, p := range c.pending {
		if p.anyOpen() {
			earlier(p.triggered.Add(c.cfg.Timeout))
			if p.savepoint == nil && c.publishing == nil && !p.firstAck.IsZero() && len(c.ready(p)) > 0 {
				earlier(p.firstAck.Add(c.cfg.GroupWindow))
			}
		}
	}
	return d
}

func (c *core) periodic() bool { return c.cfg.Interval > 0 && !c.last }

func (p *pendingCheckpoint) anyOpen() bool {
	for _, part := range p.parts {
		if part.open() {
			return true
		}
	}
	return false
}

// step is the whole logic: what ev changes, and what is to be done about it.
func (c *core) step(now time.Time, ev event) []action {
	var acts []action
	switch e := ev.(type) {
	case evTick:
		acts = c.expire(now, acts)
	case evRequest:
		e.r.from = c.nextID
		c.requests = append(c.requests, e.r)
		if len(c.requests) > maxRequests {
			acts = c.finish(e.r, reply{err: pgerr.Newf(pgerr.ConfigurationLimitExceeded, "more than %d checkpoint requests are waiting", maxRequests)}, acts)
		}
	case evCancel:
		c.requests = slices.DeleteFunc(c.requests, func(r *request) bool { return r == e.r })
	case evLast:
		c.last = true
	case evBegun:
		acts = c.begun(now, e, acts)
	case evTriggered:
		acts = c.triggered(now, e, acts)
	case evAck:
		acts = c.ack(now, e.s, acts)
	case evDecline:
		acts = c.decline(now, e, acts)
	case evPublished:
		acts = c.published(now, e, acts)
	case evSavepoint:
		acts = c.savepointWritten(now, e, acts)
	case evRestart:
		c.restarts = append(c.restarts, e.r)
		for _, job := range e.r.jobs {
			acts = c.failOpen(now, job, fmt.Errorf("%w: it is restarting", ErrNotRunning), acts)
		}
	case evDrop:
		c.drop(e.job)
		c.stats.forget(e.job)
		acts = c.failOpen(now, e.job, fmt.Errorf("%w: it was dropped", ErrNotRunning), acts)
	case evConfig:
		if e.cfg.Interval != c.cfg.Interval || e.cfg.MinPause != c.cfg.MinPause {
			c.cfg = e.cfg
			c.planPeriodic(now.Add(c.cfg.Interval))
		}
		c.cfg = e.cfg
	case evCollected:
		if e.err != nil {
			acts = append(acts, actLog{msg: "removing old checkpoints failed, will be tried again", err: e.err})
		}
	case evSwept:
		if e.err != nil {
			acts = append(acts, actLog{msg: "removing unreferenced objects of earlier runs failed", err: e.err})
		}
	}
	return c.advance(now, acts)
}

// maxRequests bounds the CHECKPOINT statements that wait.
const maxRequests = 1000

// advance begins, publishes and forgets what can be now.
func (c *core) advance(now time.Time, acts []action) []action {
	if c.fatal != nil {
		return acts
	}
	acts = c.settle(now, acts)
	acts = c.answerRestarts(acts)
	acts = c.writeSavepoints(acts)
	acts = c.publish(now, acts)
	if c.beginning {
		return acts
	}
	if i := slices.IndexFunc(c.requests, func(r *request) bool { return r.savepoint != nil && !r.begun }); i >= 0 {
		c.beginning = true
		return append(acts, actBegin{id: c.nextID, savepoint: c.requests[i]})
	}
	begins := func(r *request) bool { return r.savepoint == nil && (!r.begun || r.retry) }
	wanted := slices.ContainsFunc(c.requests, begins)
	due := c.periodic() && !now.Before(c.nextPeriodic)
	if wanted || due {
		c.beginning = true
		begin := actBegin{id: c.nextID, mayBeQuiet: !wanted && c.settled && len(c.pending) == 0 && len(c.dropped) == 0}
		if i := slices.IndexFunc(c.requests, func(r *request) bool { return r.stop != nil && begins(r) }); i >= 0 {
			begin.stop = c.requests[i].stop
		}
		acts = append(acts, begin)
	}
	return acts
}

// begun triggers the participants that can take part in the checkpoint that has begun.
func (c *core) begun(now time.Time, e evBegun, acts []action) []action {
	c.beginning = false
	if e.savepoint != nil {
		return c.begunSavepoint(now, e, acts)
	}
	c.planPeriodic(now.Add(c.cfg.Interval))
	if e.quiet {
		return acts
	}
	c.nextID = e.id + 1
	if e.err != nil {
		if errors.Is(e.err, ErrFenced) {
			c.fatal = e.err
		}
		for _, r := range slices.Clone(c.requests) {
			if r.from <= e.id && r.savepoint == nil {
				acts = c.finish(r, reply{err: e.err}, acts)
			}
		}
		return append(acts, actLog{id: e.id, msg: "checkpoint could not begin", err: e.err})
	}
	c.settled = false
	p := &pendingCheckpoint{
		id: e.id, epoch: e.epoch, cut: e.cut, triggered: now, parts: map[uint64]*part{},
		catalogVersion: e.catalogVersion, catalog: e.catalog,
	}
	if c.haveManifest && e.catalogVersion == c.catalogVersion || e.catalog == nil {
		p.catalogDone = true
	}
	all := map[uint64]Participant{}
	for _, q := range e.participants {
		all[q.ID()] = q
		c.known[q.ID()] = q
	}
	left := c.leftOut(all, c.wantedJobs(e, all))
	for id, q := range all {
		if left[id] == nil {
			p.parts[id] = &part{p: q, inputs: q.Inputs()}
		}
	}
	p.partial = len(p.parts) < len(all)
	p.order = triggerOrder(p.parts)
	for _, r := range slices.Clone(c.requests) {
		if r.from <= e.id && r.savepoint == nil {
			p.forced = true
			acts = c.beginRequest(r, p, all, left, acts)
		}
	}
	c.pending = append(c.pending, p)
	for id := range p.parts {
		c.busy[id] = p.id
		c.stats.begin(p, p.parts[id])
	}
	return c.triggerReady(p, acts)
}

// closure is the given jobs and all they read from.
func closure(all map[uint64]Participant, jobs []uint64) map[uint64]bool {
	want := map[uint64]bool{}
	var add func(id uint64)
	add = func(id uint64) {
		if want[id] || all[id] == nil {
			return
		}
		want[id] = true
		for _, in := range all[id].Inputs() {
			add(in)
		}
	}
	for _, id := range jobs {
		add(id)
	}
	return want
}

// wantedJobs tells which jobs the checkpoint is for: nil for all, or the closure of what requests name when nothing else is due.
func (c *core) wantedJobs(e evBegun, all map[uint64]Participant) map[uint64]bool {
	var jobs []uint64
	n := 0
	for _, r := range c.requests {
		if r.from > e.id || r.savepoint != nil {
			continue
		}
		if r.jobs == nil {
			return nil
		}
		n++
		jobs = append(jobs, r.jobs...)
	}
	if n == 0 {
		return nil
	}
	return closure(all, jobs)
}

// leftOut tells which participants cannot take part, and why: busy ones, not wanted ones, and those that read from such.
func (c *core) leftOut(all map[uint64]Participant, want map[uint64]bool) map[uint64]error {
	left := map[uint64]error{}
	for id, q := range all {
		switch {
		case want != nil && !want[id]:
			left[id] = errNotWanted
		case c.busy[id] != 0:
			left[id] = errBusy
		default:
			for _, in := range q.Inputs() {
				if all[in] == nil {
					left[id] = fmt.Errorf("reads from relation %d, which takes no part in checkpoints", in)
				}
			}
		}
	}
	for changed := true; changed; {
		changed = false
		for id, q := range all {
			for _, in := range q.Inputs() {
				if left[id] == nil && left[in] != nil {
					left[id] = left[in]
					changed = true
				}
			}
		}
	}
	return left
}

var (
	errNotWanted = errors.New("not asked for")
	errBusy      = errors.New("busy with an earlier checkpoint")
)

// beginRequest notes which jobs a request waits for now that checkpoint p has begun.
func (c *core) beginRequest(r *request, p *pendingCheckpoint, all map[uint64]Participant, left map[uint64]error, acts []action) []action {
	r.retry = false
	if !r.begun {
		r.begun = true
		r.remaining = map[uint64]bool{}
		for _, id := range r.jobs {
			r.remaining[id] = true
		}
		if r.jobs == nil {
			for id := range all {
				r.remaining[id] = true
			}
		}
	}
	r.id = p.id
	r.blockers = map[uint64]bool{}
	for id := range c.busy {
		r.blockers[id] = true
	}
	for id := range r.remaining {
		why := left[id]
		if all[id] == nil {
			why = ErrNotRunning
		}
		if why != nil && !errors.Is(why, errBusy) {
			if r.jobs != nil {
				return c.finish(r, reply{err: notPossible(id, why)}, acts)
			}
			delete(r.remaining, id)
		}
	}
	return acts
}

func notPossible(job uint64, why error) error {
	return pgerr.Wrap(pgerr.ObjectNotInPrerequisiteState, why, "job %d cannot take part in a checkpoint", job)
}

// triggerOrder sorts participants so that each comes after what it reads from.
func triggerOrder(parts map[uint64]*part) []uint64 {
	depth := map[uint64]int{}
	var visit func(id uint64, limit int) int
	visit = func(id uint64, limit int) int {
		if d, ok := depth[id]; ok || limit == 0 {
			return d
		}
		d := 0
		for _, in := range parts[id].inputs {
			if parts[in] != nil {
				d = max(d, visit(in, limit-1)+1)
			}
		}
		depth[id] = d
		return d
	}
	order := make([]uint64, 0, len(parts))
	for id := range parts {
		visit(id, len(parts))
		order = append(order, id)
	}
	slices.SortFunc(order, func(a, b uint64) int { return cmp.Or(cmp.Compare(depth[a], depth[b]), cmp.Compare(a, b)) })
	return order
}

// triggerReady triggers the waiting parts whose inputs all have been.
func (c *core) triggerReady(p *pendingCheckpoint, acts []action) []action {
	for _, id := range p.order {
		part := p.parts[id]
		if part.state != partWaiting {
			continue
		}
		ready := true
		for _, in := range part.inputs {
			ready = ready && p.parts[in] != nil && p.parts[in].state > partCalled
		}
		if ready {
			part.state = partCalled
			acts = append(acts, actTrigger{part.p, p.cut.Barrier(p.id, p.epoch, p.triggered, part.p.Settings())})
		}
	}
	return acts
}

func (c *core) triggered(now time.Time, e evTriggered, acts []action) []action {
	p := c.find(e.id)
	if p == nil {
		return acts
	}
	if e.err != nil {
		return c.fail(now, p, e.job, e.err, acts)
	}
	if part := p.parts[e.job]; part.state == partCalled {
		part.state = partTriggered
	}
	return c.triggerReady(p, acts)
}

func (c *core) find(id uint64) *pendingCheckpoint {
	for _, p := range c.pending {
		if p.id == id {
			return p
		}
	}
	return nil
}
