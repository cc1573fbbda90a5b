package checkpoint

import (
	"cmp"
	"context"
	"fmt"
	"math/rand/v2"
	"os"
	"sync"
	"time"

	"github.com/rs/zerolog"

	"github.com/streamdb/streamdb/internal/failpoint"
	"github.com/streamdb/streamdb/internal/pgerr"
	"github.com/streamdb/streamdb/state"
	"github.com/streamdb/streamdb/storage/object"
)

// Env is what the coordinator works with.
type Env struct {
	Clock Clock
	// Participants lists who takes part now. It must return at once.
	Participants func() []Participant
	// Catalog returns the catalog's version and contents, to be stored with the jobs' states. It is asked right after
	// Clock.BeginCheckpoint. Equal versions are equal bytes.
	Catalog func() (version uint64, data []byte)
	// FailJob restarts a job whose checkpoints failed more often than tolerated; nil: nothing happens. It must return at once.
	FailJob func(job uint64, cause error)
	// Scratch is a folder on local disk for files of savepoints being written; "": that of the system.
	Scratch string
	// Published is told every completed checkpoint, in the goroutine that wrote it, before what it has replaced is removed; nil: nobody.
	Published func(*Manifest)
	// Holder names this server in HEAD and in the error that a server gets which another one has taken over from.
	Holder     string
	Process    string // of the holder: see Process
	Elected    bool   // this server leads others that wait
	Claim      string // names this server's claim of the store; empty: any name
	Log        zerolog.Logger
	Failpoints *failpoint.Set // nil: inactive
}

// Coordinator triggers checkpoints, collects the participants' states and publishes them. New starts nothing; Claim takes the store
// over; Run works until its context ends. All other methods may be called from any goroutine.
type Coordinator struct {
	env   Env
	core  *core
	pub   *publisher
	stats *history
	box   mailbox
	now   func() time.Time

	mu      sync.Mutex
	config  Config
	claimed bool
	stops   []*stop
}

// New makes a coordinator over store.
func New(cfg Config, store object.Store, env Env) (*Coordinator, error) {
	if err := cfg.Validate(); err != nil {
		return nil, err
	}
	c := &Coordinator{env: env, config: cfg, stats: newHistory(cfg.History), now: time.Now}
	c.stats.store = store.String()
	c.box.wake = make(chan struct{}, 1)
	c.pub = newPublisher(store, env.Holder, env.Log, env.Failpoints)
	c.pub.process, c.pub.elected = env.Process, env.Elected
	c.pub.scratch = cmp.Or(env.Scratch, os.TempDir())
	if env.Claim != "" {
		c.pub.claimID = env.Claim
	}
	c.core = newCore(cfg, c.stats, rand.Float64)
	return c, nil
}

// Claim takes the store over: from now on an earlier server's attempts to publish fail, and it stops. It returns the newest completed
// checkpoint of all jobs, nil when there is none. The jobs are restored from it before Run is called.
func (c *Coordinator) Claim(ctx context.Context) (*Manifest, error) {
	m, next, err := c.pub.claim(ctx)
	if err != nil {
		return nil, err
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.claimed = true
	c.core.restore(m, next)
	return m, nil
}

// Continue has ids given out after that of a checkpoint of another store. The jobs without a state in own, the newest checkpoint of this server (nil: none), are
// restored from it. It is called between Claim and Run.
func (c *Coordinator) Continue(from *Opened, own *Manifest) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.stats.foreign(from, own)
	if own == nil {
		c.core.nextID = max(c.core.nextID, from.ID+1)
	}
}

// Descend puts the line of what the jobs are restored from before that of this server. HEAD has it from the first checkpoint on. It is called between Claim and Run.
func (c *Coordinator) Descend(ctx context.Context, line []string) error {
	if err := c.pub.acquire(ctx); err != nil {
		return err
	}
	defer c.pub.release()
	next := *c.pub.head
	next.Line = joinLines(line, next.line())
	c.pub.head = &next
	c.pub.line.Store(&next.Line)
	return nil
}

// Run triggers, collects and publishes until ctx ends (nil) or the store is lost to another server (an error matching ErrFenced).
func (c *Coordinator) Run(ctx context.Context) error {
	c.mu.Lock()
	claimed := c.claimed
	c.mu.Unlock()
	if !claimed {
		if _, err := c.Claim(ctx); err != nil {
			return err
		}
	}
	work, cancel := context.WithCancel(ctx)
	var workers sync.WaitGroup
	defer workers.Wait()
	defer cancel()
	spawn := func(fn func(context.Context) event) {
		workers.Go(func() { c.box.post(fn(work)) })
	}
	workers.Go(func() { c.sweep(work) })

	timer := time.NewTimer(0)
	defer timer.Stop()
	c.dispatch(c.core.start(c.now()), spawn)
	for {
		timer.Reset(max(0, time.Until(c.core.deadline(time.Now()))))
		select {
		case <-ctx.Done():
			c.box.close()
			for _, ev := range c.box.take() {
				c.dispatch(c.core.step(c.now(), ev), nil)
			}
			c.dispatch(c.core.stop(c.now(), shuttingDown()), nil)
			return nil
		case <-c.box.wake:
			for _, ev := range c.box.take() {
				c.dispatch(c.core.step(c.now(), ev), spawn)
			}
		case <-timer.C:
			c.dispatch(c.core.step(c.now(), evTick{}), spawn)
		}
		if err := c.core.fatal; err != nil {
			c.box.close()
			for _, ev := range c.box.take() {
				c.dispatch(c.core.step(c.now(), ev), nil)
			}
			c.dispatch(c.core.stop(c.now(), err), nil)
			return err
		}
	}
}

// dispatch carries out actions, and those that follow from their immediate results. A nil spawn begins nothing new.
func (c *Coordinator) dispatch(actions []action, spawn func(func(context.Context) event)) {
	for len(actions) > 0 {
		next := actions[0]
		actions = actions[1:]
		switch a := next.(type) {
		case actPlan:
			if spawn != nil {
				actions = append(actions, c.core.step(c.now(), evPlan{c.env.Participants()})...)
			}
		case actBegin:
			if spawn != nil {
				spawn(func(ctx context.Context) event { return c.begin(ctx, a) })
			}
		case actTrigger:
			err := a.participant.Trigger(a.barrier)
			actions = append(actions, c.core.step(c.now(), evTriggered{job: a.participant.ID(), id: a.barrier.Checkpoint, err: err})...)
		case actPublish:
			if spawn != nil {
				spawn(func(ctx context.Context) event { return c.publish(ctx, a.batch) })
			}
		case actSavepoint:
			if spawn != nil {
				spawn(func(ctx context.Context) event {
					path, err := c.pub.writeSavepoint(a.write.begin(ctx), a.spec, a.states, a.epoch, a.id, a.catalogVersion, a.catalog)
					return evSavepoint{id: a.id, path: path, err: a.write.end(err)}
				})
			}
		case actGiveUp:
			a.write.giveUp()
		case actNotify:
			switch a.outcome {
			case complete:
				a.participant.NotifyComplete(a.id)
				_ = c.env.Failpoints.Hit("checkpoint/notified") // can only kill: there is no way back
			case savepoint:
				a.participant.NotifySavepoint(a.id)
			default:
				a.participant.NotifyAborted(a.id)
			}
		case actReply:
			a.request.done <- a.reply
		case actRestart:
			a.restart.done <- a.err
		case actFailJob:
			if c.env.FailJob != nil {
				c.env.FailJob(a.job, a.err)
			}
		case actLog:
			line := c.env.Log.Warn()
			if a.id != 0 {
				line = line.Uint64("checkpoint", a.id)
			}
			if a.job != "" {
				line = line.Str("job", a.job)
			}
			line.Err(a.err).Msg(a.msg)
		}
	}
}

// begin asks the clock for the epoch of checkpoint a.id. It runs in a goroutine.
func (c *Coordinator) begin(ctx context.Context, a actBegin) event {
	if a.mayBeQuiet && c.env.Clock.Quiet() {
		return evBegun{id: a.id, quiet: true}
	}
	ev := evBegun{id: a.id}
	if ev.err = cmp.Or(c.pub.reserve(ctx, a.id), c.env.Failpoints.Hit("checkpoint/reserved")); ev.err != nil {
		return ev
	}
	if ev.epoch, ev.err = c.env.Clock.BeginCheckpoint(a.id, a.cut); ev.err != nil {
		ev.err = fmt.Errorf("begin checkpoint %d: %w", a.id, ev.err)
		return ev
	}
	if ev.err = c.env.Failpoints.Hit("checkpoint/begun"); ev.err != nil {
		return ev
	}
	if c.env.Catalog != nil {
		ev.catalogVersion, ev.catalog = c.env.Catalog()
	}
	return ev
}

// publish makes a batch durable, and after that removes what is not needed any more. It runs in a goroutine.
func (c *Coordinator) publish(ctx context.Context, b *batch) event {
	c.mu.Lock()
	b.retained, b.inline = c.config.Retained, c.config.InlineThreshold
	c.mu.Unlock()
	res, err := c.pub.publish(ctx, b)
	if err != nil {
		return evPublished{batch: b, err: err}
	}
	// What is durable stays durable: an error here only loses the notification, as a crash would.
	if c.env.Failpoints.Hit("checkpoint/before-notify") != nil {
		res.silent = true
	}
	c.keepForStops(res.manifest)
	c.box.post(evPublished{batch: b, result: res})
	if c.env.Published != nil {
		c.env.Published(res.manifest)
	}
	return evCollected{err: c.pub.collect(ctx)}
}

// Trigger makes a checkpoint of the given jobs and of all they read from (nil: of all jobs) and returns its id when it is durable.
// Jobs that are not running are left out when all are meant, and are an error when named.
func (c *Coordinator) Trigger(ctx context.Context, jobs []uint64) (uint64, error) {
	return c.TriggerWith(ctx, TriggerRequest{Jobs: jobs})
}

// TriggerWith is Trigger with more to say.
func (c *Coordinator) TriggerWith(ctx context.Context, req TriggerRequest) (uint64, error) {
	r, err := c.request(ctx, &request{TriggerRequest: req, done: make(chan reply, 1)})
	return r.id, err
}

// Refresh tells that participants came, or have other settings: the next trigger follows them.
func (c *Coordinator) Refresh() { c.box.post(evChanged{}) }

// request hands in req and waits for its answer.
func (c *Coordinator) request(ctx context.Context, req *request) (reply, error) {
	if !c.box.post(evRequest{req}) {
		return reply{}, shuttingDown()
	}
	r, err := receive(ctx, req.done)
	if err != nil {
		c.box.post(evCancel{req})
		return reply{}, err
	}
	return r, r.err
}

// Request asks for a checkpoint of a job and of all it reads from; nobody waits for it. It never blocks.
func (c *Coordinator) Request(job uint64) {
	c.box.post(evRequest{&request{TriggerRequest: TriggerRequest{Jobs: []uint64{job}, Class: ClassForced}, done: make(chan reply, 1)}})
}

// FinalCheckpoint makes a last checkpoint of all jobs and stops the periodic ones: for a shutdown in good order.
func (c *Coordinator) FinalCheckpoint(ctx context.Context) error {
	c.box.post(evLast{})
	_, err := c.TriggerWith(ctx, TriggerRequest{Class: ClassForced})
	return err
}

// sweep removes unreferenced objects now and then again in intervals, until ctx ends.
func (c *Coordinator) sweep(ctx context.Context) {
	for {
		c.box.post(evSwept{err: c.pub.sweep(ctx)})
		every := c.Config().SweepInterval
		if every == 0 {
			return
		}
		timer := time.NewTimer(every)
		select {
		case <-ctx.Done():
			timer.Stop()
			return
		case <-timer.C:
		}
	}
}

// Acknowledge hands in a participant's state for the checkpoint and job it names.
func (c *Coordinator) Acknowledge(s *JobState) {
	if err := c.tooLarge(s); err != nil {
		c.box.post(evDecline{job: s.Job, id: s.Checkpoint, err: err})
	}
	c.box.post(evAck{s}) // an answer to a checkpoint that has failed: the participant is told to let its files go
}

// tooLarge refuses a state that a store in memory should not hold. The job goes on, without a checkpoint.
func (c *Coordinator) tooLarge(s *JobState) error {
	limit := c.Config().MemoryLimit
	if limit == 0 || s.State == nil || s.State.FullSize <= limit || !object.InMemory(c.pub.store) {
		return nil
	}
	return Failed(FinalizeCheckpointFailure, pgerr.Newf(pgerr.ConfigurationLimitExceeded, "the state of %d bytes is too large for a checkpoint in memory", s.State.FullSize).
		WithHint("Give another --checkpoint-dir, or increase %s, which is %d bytes.", SettingMemoryLimit, limit))
}

// Decline tells that job cannot take part in checkpoint id, or has failed to. It never blocks.
func (c *Coordinator) Decline(job, id uint64, err error) {
	c.box.post(evDecline{job: job, id: id, err: err})
}

// Dropping tells that the local files of a job's states will go: a publication goes on without what it has not read yet. Drop follows.
func (c *Coordinator) Dropping(job uint64) { c.pub.dropping(job) }

// Drop removes a job's state from checkpoints triggered from now on: it was dropped, or the catalog does not know it.
func (c *Coordinator) Drop(job uint64) { c.box.post(evDrop{job}) }

// SetConfig changes the settings; the next trigger follows them.
func (c *Coordinator) SetConfig(cfg Config) error {
	if err := cfg.Validate(); err != nil {
		return err
	}
	c.mu.Lock()
	c.config = cfg
	c.mu.Unlock()
	c.box.post(evConfig{cfg})
	return nil
}

// Config returns the settings in force.
func (c *Coordinator) Config() Config {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.config
}

// Restart is how a failed job, with all that read from it, finds what to restart from: it gives up what they have in flight, waits for a
// publication that has begun with their states, and returns the newest completed checkpoint, nil when there is none. Restarting from
// anything else would let a state be published that the restarted job has left behind. Before the call the jobs must have begun to answer
// Trigger with ErrNotRunning.
func (c *Coordinator) Restart(ctx context.Context, jobs []uint64) (*Manifest, error) {
	r := &restart{jobs: jobs, done: make(chan error, 1)}
	if !c.box.post(evRestart{r}) {
		return nil, shuttingDown()
	}
	failed, err := receive(ctx, r.done)
	if err != nil {
		return nil, err
	}
	m := c.Latest()
	if failed == nil {
		c.stats.restarted(jobs, m)
	}
	return m, failed
}

// Earlier returns the completed checkpoints that are retained before the newest, the newest of them first. What cannot be read is left out.
func (c *Coordinator) Earlier(ctx context.Context) ([]*Manifest, error) { return c.pub.earlier(ctx) }

// Latest returns the newest completed checkpoint of all jobs, nil when there is none: what a failed job restarts from.
// It must not be changed.
func (c *Coordinator) Latest() *Manifest { return c.pub.latest() }

// Fetch makes the files of a completed state of this coordinator's store local; see the function Fetch.
func (c *Coordinator) Fetch(ctx context.Context, s *JobState, dir string, local ...string) (*state.Snapshot, error) {
	if err := c.env.Failpoints.Hit("checkpoint/fetch"); err != nil {
		return nil, err
	}
	began := time.Now()
	defer func() {
		c.pub.fetches.Add(1)
		c.pub.fetchTime.Add(int64(time.Since(began)))
	}()
	return Fetch(ctx, c.pub.store, s, dir, local...)
}

// Stats returns counts and the history for streamdb.checkpoints.
func (c *Coordinator) Stats() Stats { return c.stats.snapshot() }

// JobStats returns the statistics of one job's checkpoints.
func (c *Coordinator) JobStats(job uint64) JobStats { return c.stats.job(job) }

// JobSummary describes the completed checkpoints of a job.
func (c *Coordinator) JobSummary(job uint64) Summary { return c.stats.summary(job) }

func shuttingDown() error {
	return pgerr.Newf(pgerr.AdminShutdown, "the checkpoint coordinator is shutting down")
}

// mailbox queues events for the loop. It never blocks the sender, since participants answer from within Trigger; its length is bounded by
// the answers that are due, one per participant and checkpoint, and by the sessions that wait for a CHECKPOINT.
type mailbox struct {
	mu     sync.Mutex
	queue  []event
	closed bool
	wake   chan struct{} // capacity 1
}

func (b *mailbox) post(ev event) bool {
	if ev == nil {
		return true
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.closed {
		return false
	}
	b.queue = append(b.queue, ev)
	select {
	case b.wake <- struct{}{}:
	default:
	}
	return true
}

func (b *mailbox) take() []event {
	b.mu.Lock()
	defer b.mu.Unlock()
	q := b.queue
	b.queue = nil
	return q
}

func (b *mailbox) close() {
	b.mu.Lock()
	b.closed = true
	b.mu.Unlock()
}
