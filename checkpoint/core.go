package checkpoint

import (
	"cmp"
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/streamdb/streamdb/internal/invariants"
	"github.com/streamdb/streamdb/internal/pgerr"
)

// core is the coordinator's state and logic without goroutines, clocks and IO: step takes an event and returns what is to be done.
// It is owned by one goroutine.
//
// Every participant has settings, a time of its next periodic checkpoint and a count of failures of its own. When some are due, or asked for, one
// checkpoint id begins for them and for all that they read from (core_plan.go). A participant that has as many in flight as it may is left out, and so
// is what reads from it, so that a slow job delays only itself and its readers. Published states of one id may thus come in several batches.
//
//	part: waiting → called → triggered → acked ⇄ publishing → done
//	         └─────────┴──────────┴──────────┴─────────┴──────→ failed
//
// A part whose deadline has passed fails. While it is being written the write is given up instead, and its outcome decides: when HEAD was not touched the
// parts that were late fail, and the others are published without them.
//
// Invariants: a part takes these edges only and ends once; a part is published only when every participant it reads from has a part with the same id
// that is done or in the same batch (the causal rule), and until then the manifest holds what those had at that id; only one batch is being published at a
// time; savepoints go beside all that (core_savepoint.go).
type core struct {
	cfg    Config
	stats  *history
	random func() float64 // in [0, 1)

	nextID   uint64
	planning bool  // an actPlan is out
	planned  *plan // an actBegin is out
	changed  bool  // participants or settings may have
	pending  []*pendingCheckpoint
	members  map[uint64]*member
	requests []*request
	restarts []*restart
	last     bool // no more periodic triggers
	recent   ring // ids that have ended

	publishing *batch
	cleaning   int // removals of old checkpoints that are out
	// A participant whose newest completed checkpoint is not older than quietSince has nothing to write unless something has happened since the newest
	// checkpoint, at lastEpoch, began.
	quietSince, lastEpoch uint64
	catalogVersion        uint64            // in the newest manifest
	haveManifest          bool              // there is one
	entries               map[uint64]bool   // participants with a state in the newest manifest
	dropped               map[uint64]uint64 // job → first id whose checkpoint does not have it any more
	fatal                 error
}

// member is what is known of a participant.
type member struct {
	p            Participant
	every, pause time.Duration // what next was planned with
	next         time.Time     // periodic checkpoint; zero: none
	triggered    time.Time     // when it last took part in a checkpoint
	success      time.Time     // when one was last completed
	done         uint64        // the newest completed one
	failures     failureCounter
}

type partState uint8

const (
	partWaiting    partState = iota // its inputs have not been triggered yet
	partCalled                      // Participant.Trigger is being called
	partTriggered                   // its answer is due
	partAcked                       // its state is here, not published
	partPublishing                  // being written
	partDone                        // durable, or equal to what is durable
	partFailed                      // will not be published
)

// edges are the states that may follow each one.
var edges = [...][]partState{
	partWaiting:    {partCalled, partFailed},
	partCalled:     {partTriggered, partAcked, partFailed},
	partTriggered:  {partAcked, partFailed},
	partAcked:      {partPublishing, partDone, partFailed},
	partPublishing: {partAcked, partDone, partFailed},
	partDone:       {},
	partFailed:     {},
}

type part struct {
	p        Participant
	inputs   []uint64
	settings JobSettings
	deadline time.Time
	full     bool // it is not to build on what is stored
	late     bool // its deadline has passed while it was being written
	state    partState
	ack      *JobState
	err      error
}

// to takes an edge. Another one is a bug of the coordinator.
func (p *part) to(s partState) {
	if invariants.Enabled && !slices.Contains(edges[p.state], s) {
		invariants.Failf("checkpoint part of %q: state %d after %d", p.p.Name(), s, p.state)
	}
	p.state = s
}

func (p *part) open() bool { return p.state <= partTriggered }

func (p *part) ended() bool { return p.state >= partDone }

type pendingCheckpoint struct {
	id, epoch      uint64
	triggered      time.Time
	firstAck       time.Time // of those not yet published
	parts          map[uint64]*part
	order          []uint64 // participants in triggering order: inputs first
	catalogVersion uint64
	catalog        []byte
	catalogDone    bool
	deadline       time.Time // of the catalog: that of the last part, which cannot be stored without it
	late           bool      // that has passed while the catalog was being written
	cut            Cut
	savepoint      *request // who asked for it, when it is one
	write          *write   // of a savepoint
	forced         bool     // somebody asked for it: unchanged jobs are shown too
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
	inline         int // bytes of new small things that go into the manifest
	parts          map[*pendingCheckpoint][]uint64
	write          *write
	// late are, by job, the checkpoints in flight in which others still read from it: when they are complete its state as of them is needed.
	late map[uint64][]uint64
}

// checkpoints lists whose states are in b, in the order of their ids.
func (b *batch) checkpoints() []*pendingCheckpoint {
	return slices.SortedFunc(maps.Keys(b.parts), func(a, b *pendingCheckpoint) int { return cmp.Compare(a.id, b.id) })
}

// restart is a job runtime that waits to know what its jobs restart from.
type restart struct {
	jobs []uint64
	done chan error // capacity 1
}

type event interface{ isEvent() }

type (
	evTick    struct{}
	evRequest struct{ r *request }
	evCancel  struct{ r *request }
	evLast    struct{}
	evChanged struct{}
	evPlan    struct{ participants []Participant }
	evBegun   struct {
		id, epoch      uint64
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
func (evChanged) isEvent()   {}
func (evPlan) isEvent()      {}
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
	// actPlan asks who takes part; evPlan follows.
	actPlan struct{}
	// actBegin asks for an epoch; evBegun follows.
	actBegin struct {
		id         uint64
		cut        Cut
		mayBeQuiet bool
	}
	actTrigger struct {
		participant Participant
		barrier     Barrier
	}
	// actPublish makes a batch durable; evPublished follows, and when it succeeded evCollected.
	actPublish struct{ batch *batch }
	// actSavepoint writes a savepoint; evSavepoint follows.
	actSavepoint struct {
		id, epoch      uint64
		spec           *SavepointSpec
		states         []*JobState
		catalogVersion uint64
		catalog        []byte
		write          *write
	}
	// actGiveUp ends a write, unless it is too late for that. Its outcome follows as ever.
	actGiveUp struct{ write *write }
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

func (actPlan) isAction()      {}
func (actBegin) isAction()     {}
func (actTrigger) isAction()   {}
func (actPublish) isAction()   {}
func (actSavepoint) isAction() {}
func (actGiveUp) isAction()    {}
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

func newCore(cfg Config, stats *history, random func() float64) *core {
	return &core{
		cfg: cfg, stats: stats, random: random, nextID: 1, quietSince: 1,
		members: map[uint64]*member{}, entries: map[uint64]bool{}, dropped: map[uint64]uint64{},
	}
}

// restore takes over what is durable; next is the first id that was never given out.
func (c *core) restore(m *Manifest, next uint64) {
	c.nextID, c.quietSince = next, next
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

// start looks at who is there.
func (c *core) start(now time.Time) []action {
	c.changed = true
	return c.advance(now, nil)
}

// farFuture stands for no deadline.
const farFuture = 24 * time.Hour

// deadline is when the next evTick is due.
func (c *core) deadline(now time.Time) time.Time {
	d := now.Add(farFuture)
	earlier := func(t time.Time) {
		if !t.IsZero() && t.Before(d) {
			d = t
		}
	}
	if !c.last && !c.planning && c.planned == nil && !c.held() {
		for _, m := range c.members {
			earlier(m.next)
		}
	}
	for _, p := range c.pending {
		for _, q := range p.parts {
			if !q.ended() && !q.late {
				earlier(q.deadline)
			}
		}
		if !p.catalogDone && !p.late {
			earlier(p.deadline)
		}
		if p.savepoint == nil && c.publishing == nil && !p.firstAck.IsZero() && p.anyOpen() && len(c.ready(p)) > 0 {
			earlier(p.firstAck.Add(c.cfg.GroupWindow))
		}
	}
	return d
}

func (p *pendingCheckpoint) anyOpen() bool {
	for _, part := range p.parts {
		if part.open() {
			return true
		}
	}
	return false
}

// over reports whether all parts have ended.
func (p *pendingCheckpoint) over() bool {
	for _, part := range p.parts {
		if !part.ended() {
			return false
		}
	}
	return true
}

// step is the whole logic: what ev changes, and what is to be done about it.
func (c *core) step(now time.Time, ev event) []action {
	var acts []action
	switch e := ev.(type) {
	case evTick:
		acts = c.expire(now, acts)
	case evRequest:
		acts = c.enqueue(now, e.r, acts)
	case evCancel:
		c.requests = slices.DeleteFunc(c.requests, func(r *request) bool { return r == e.r })
	case evLast:
		c.last = true
	case evChanged:
		c.changed = true
	case evPlan:
		acts = c.plan(now, e.participants, acts)
	case evBegun:
		acts = c.begun(now, e, acts)
	case evTriggered:
		acts = c.triggered(now, e, acts)
	case evAck:
		_, acts = c.ack(now, e.s, acts)
	case evDecline:
		acts = c.decline(now, e, acts)
	case evPublished:
		acts = c.published(now, e, acts)
	case evSavepoint:
		acts = c.savepointWritten(now, e, acts)
	case evRestart:
		c.restarts = append(c.restarts, e.r)
		for _, job := range e.r.jobs {
			acts = c.failOpen(now, job, restarting(), acts)
		}
	case evDrop:
		c.drop(e.job)
		c.stats.forget(e.job)
		acts = c.failOpen(now, e.job, wasDropped(), acts)
	case evConfig:
		c.cfg, c.changed = e.cfg, true
		c.stats.resize(e.cfg.History)
	case evCollected:
		c.cleaning--
		if e.err != nil {
			acts = append(acts, actLog{msg: "removing old checkpoints failed: it is left to the next sweep", err: e.err})
		}
	case evSwept:
		if e.err != nil {
			acts = append(acts, actLog{msg: "removing unreferenced objects of earlier runs failed", err: e.err})
		}
	}
	return c.advance(now, acts)
}

func restarting() error {
	return Failed(JobFailoverRegion, fmt.Errorf("%w: it is restarting", ErrNotRunning))
}

func wasDropped() error {
	return Failed(CheckpointCoordinatorSuspend, fmt.Errorf("%w: it was dropped", ErrNotRunning))
}

// advance begins, publishes and forgets what can be now.
func (c *core) advance(now time.Time, acts []action) []action {
	if c.fatal != nil {
		return acts
	}
	acts = c.settle(acts)
	acts = c.answerRestarts(acts)
	acts = c.writeSavepoints(acts)
	acts = c.publish(now, acts)
	if c.planning || c.planned != nil {
		return acts
	}
	if c.changed || c.asked() || c.anyDue(now) {
		c.planning = true
		acts = append(acts, actPlan{})
	}
	return acts
}

func (c *core) find(id uint64) *pendingCheckpoint {
	for _, p := range c.pending {
		if p.id == id {
			return p
		}
	}
	return nil
}

// inFlight counts the checkpoints that a participant has not ended its part of.
func (c *core) inFlight(job uint64) int {
	n := 0
	for _, p := range c.pending {
		if q := p.parts[job]; q != nil && p.savepoint == nil && !q.ended() {
			n++
		}
	}
	return n
}

// drop removes a job from the checkpoints that begin from now on; those that have begun still hold a catalog that knows it.
func (c *core) drop(job uint64) {
	c.dropped[job] = c.nextID
	delete(c.members, job)
}

// ring remembers the ids that ended last, so that what comes late for them is known for what it is.
type ring struct {
	ids [16]uint64
	at  int
}

func (r *ring) add(id uint64) {
	r.ids[r.at] = id
	r.at = (r.at + 1) % len(r.ids)
}

func (r *ring) has(id uint64) bool { return slices.Contains(r.ids[:], id) }

// stop ends everything with err. What is being published stays undecided: its outcome is in HEAD.
func (c *core) stop(now time.Time, err error) []action {
	if !errors.Is(err, ErrFenced) {
		err = Failed(CheckpointCoordinatorShutdown, err)
	}
	var acts []action
	for _, p := range c.pending {
		for _, id := range p.order {
			if q := p.parts[id]; !q.ended() && (q.state != partPublishing || p.savepoint != nil) {
				if q.state != partWaiting && q.state != partCalled {
					acts = append(acts, actNotify{participant: q.p, id: p.id})
				}
				q.to(partFailed)
				q.err = err
				c.stats.failed(now, p, q)
			}
		}
	}
	for _, r := range slices.Clone(c.requests) {
		acts = c.finish(r, reply{err: err}, acts)
	}
	for _, r := range c.restarts {
		acts = append(acts, actRestart{restart: r, err: err})
	}
	c.restarts = nil
	c.last = true
	if c.fatal == nil {
		c.fatal = pgerr.Newf(pgerr.AdminShutdown, "the checkpoint coordinator has stopped")
	}
	return acts
}
