package checkpoint

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"math/rand/v2"
	"slices"
	"strings"
	"time"

	"github.com/rs/zerolog"

	"github.com/streamdb/streamdb/storage/object"
)

// simEpoch is when simulated time begins.
var simEpoch = time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)

// worldEvent happens at a time, in the process of a server (nil: outside of all).
type worldEvent struct {
	at  time.Duration
	n   uint64
	srv *simProcess
	do  func()
}

// worldEvents is a heap by time, then by age.
type worldEvents []worldEvent

func (h worldEvents) less(i, j int) bool {
	return h[i].at < h[j].at || h[i].at == h[j].at && h[i].n < h[j].n
}

func (h *worldEvents) push(e worldEvent) {
	*h = append(*h, e)
	s := *h
	for i := len(s) - 1; i > 0; {
		up := (i - 1) / 2
		if !s.less(i, up) {
			break
		}
		s[i], s[up] = s[up], s[i]
		i = up
	}
}

func (h *worldEvents) pop() worldEvent {
	s := *h
	top, last := s[0], len(s)-1
	s[0], s[last] = s[last], worldEvent{}
	s = s[:last]
	for i := 0; ; {
		min, l, r := i, 2*i+1, 2*i+2
		if l < last && s.less(l, min) {
			min = l
		}
		if r < last && s.less(r, min) {
			min = r
		}
		if min == i {
			break
		}
		s[i], s[min] = s[min], s[i]
		i = min
	}
	*h = s
	return top
}

// simCounts tell what happened in a world.
type simCounts struct {
	events, faults, crashes, freezes, takeovers, claims, commits, restores, requests, refused, savepoints, stops, restarts, collected, unaligned, overtaken, inflight, held, anew, expired, declined int
}

func (c *simCounts) add(o simCounts) {
	c.events += o.events
	c.faults += o.faults
	c.crashes += o.crashes
	c.freezes += o.freezes
	c.takeovers += o.takeovers
	c.claims += o.claims
	c.commits += o.commits
	c.restores += o.restores
	c.requests += o.requests
	c.refused += o.refused
	c.savepoints += o.savepoints
	c.stops += o.stops
	c.restarts += o.restarts
	c.collected += o.collected
	c.unaligned += o.unaligned
	c.overtaken += o.overtaken
	c.inflight += o.inflight
	c.held += o.held
	c.anew += o.anew
	c.expired += o.expired
	c.declined += o.declined
}

// simFailure is the panic of a broken promise.
type simFailure struct{ msg string }

// simWorld is everything: servers that compete for a bucket, their jobs, the sources these read and the sinks they write, and one clock. All of it goes on in
// one goroutine: what a server's IO code does is a coroutine that has the word until it calls the store or waits.
type simWorld struct {
	rng    *rand.Rand
	more   *rand.Rand // for what came later, so that the worlds of most seeds stay what they were
	now    time.Duration
	events worldEvents
	next   uint64
	cur    *coroutine
	over   bool

	bucket, outside *simObjects // checkpoints, savepoints
	head            *head
	needed          map[string]bool // objects that HEAD needs
	manifests       map[string]*Manifest

	servers  [2]*simProcess
	tool     *simProcess // a command line tool
	election bool
	ttl      time.Duration
	// faults are in force until calm.
	faults    simFaults
	plot      func(srv *simProcess, op, key string) simFate // of scenarios
	muted     int                                           // notifications that are lost
	calm      bool                                          // nothing goes wrong any more
	faultless bool                                          // nothing ever does
	producing bool                                          // sources have new rows
	wall      time.Duration
	nonces    int

	defs    map[uint64]*simJob
	nextJob uint64
	initial uint64 // jobs up to it are in the catalog that the first server begins with
	sinks   map[uint64]*simSink
	ids     map[uint64]string // checkpoint → the server that began it
	cuts    map[simCutKey]simTotal
	files   map[string]simTotal
	// inflight are the states that have rows in flight, sinces per job the checkpoints of the states that were ever in the newest completed one, anew jobs that had to
	// begin anew.
	inflight map[simCutKey]bool
	sinces   map[uint64][]uint64
	anew     map[uint64]bool
	// forgotten are jobs dropped from the catalog of the server that leads. Until that is durable they may come back, and then what they read had no reason to spare them.
	forgotten map[uint64]bool
	claims    map[uint64]string
	cfg       Config
	// configured is how many checkpoints there were when the settings last changed.
	configured int
	counts     simCounts

	hash  uint64
	lines []string // with verbose
	loud  bool
}

func newSimWorld(seed uint64, loud bool) *simWorld {
	w := &simWorld{
		rng: rand.New(rand.NewPCG(seed, 7)), more: rand.New(rand.NewPCG(seed, 8)), head: &head{}, needed: map[string]bool{}, manifests: map[string]*Manifest{}, producing: true,
		defs: map[uint64]*simJob{}, sinks: map[uint64]*simSink{}, ids: map[uint64]string{}, cuts: map[simCutKey]simTotal{}, files: map[string]simTotal{}, inflight: map[simCutKey]bool{}, sinces: map[uint64][]uint64{}, anew: map[uint64]bool{}, forgotten: map[uint64]bool{},
		claims: map[uint64]string{}, loud: loud, hash: fnv1a(seed, 0),
	}
	w.bucket, w.outside = newSimObjects(w, "bucket"), newSimObjects(w, "savepoints")
	w.tool = w.newServer(9)
	return w
}

func fnv1a(h, v uint64) uint64 { return (h ^ v) * 1099511628211 }

func (w *simWorld) failf(format string, args ...any) {
	panic(simFailure{fmt.Sprintf(format, args...)})
}

// trace notes what happens: the same seed gives the same trace.
func (w *simWorld) trace(what, a, b string, n uint64) {
	w.hash = fnv1a(fnv1a(fnv1a(w.hash, uint64(w.now)), n), uint64(len(what)+len(a)<<8+len(b)<<16))
	if !w.loud {
		return
	}
	w.lines = append(w.lines, fmt.Sprintf("%10.3fs %-14s %s %s %d", w.now.Seconds(), what, a, b, n))
}

func (w *simWorld) chance(thousandths int) bool {
	return thousandths > 0 && w.rng.IntN(1000) < thousandths
}

// ms is a random time.
func (w *simWorld) ms(from, to int) time.Duration {
	return time.Duration(from)*time.Millisecond + time.Duration(w.rng.Int64N(int64(to-from+1)*int64(time.Millisecond)))
}

func (w *simWorld) after(d time.Duration, srv *simProcess, do func()) {
	w.next++
	w.events.push(worldEvent{w.now + max(0, d), w.next, srv, do})
}

// maxWorldEvents bounds a world.
const maxWorldEvents = 400_000

// run lets the world go on until it is over.
func (w *simWorld) run() {
	for !w.over && len(w.events) > 0 {
		e := w.events.pop()
		w.now = max(w.now, e.at)
		if w.counts.events++; w.counts.events > maxWorldEvents {
			w.failf("I7: the world does not come to rest")
		}
		if s := e.srv; s != nil {
			switch {
			case s.dead:
				continue
			case s.frozen:
				s.postponed = append(s.postponed, e.do)
				continue
			}
		}
		e.do()
		if e.srv != nil && !e.srv.dead {
			e.srv.settle()
		}
	}
}

// coroutine is IO code of a server. It runs only while somebody resumes it, until it parks.
type coroutine struct {
	srv  *simProcess
	next func() (struct{}, bool)
	ends func() // ends the iterator
	out  func(struct{}) bool
	// waiting: it waits for something inside of the server, and looks again whenever something has happened there.
	waiting bool
	done    bool
}

// spawn begins a coroutine.
func (w *simWorld) spawn(srv *simProcess, fn func(ctx context.Context)) {
	co := &coroutine{srv: srv}
	co.next, co.ends = iter.Pull(func(yield func(struct{}) bool) {
		co.out = yield
		fn(srv.ctx)
	})
	srv.cos = append(srv.cos, co)
	w.after(0, srv, func() { w.resume(co) })
}

func (w *simWorld) resume(co *coroutine) {
	if co.done {
		return
	}
	before := w.cur
	w.cur = co
	_, more := co.next()
	w.cur = before
	if !more {
		co.done = true
		co.srv.cos = slices.DeleteFunc(co.srv.cos, func(c *coroutine) bool { return c == co })
	}
}

// park gives the word back.
func (w *simWorld) park() { w.cur.out(struct{}{}) }

// simProcess is one process.
type simProcess struct {
	w         *simWorld
	slot      int
	name      string
	dead      bool
	frozen    bool
	postponed []func()
	cos       []*coroutine
	ctx       context.Context
	store     *simStore
	disk      map[string]*simObject

	elector *Elector
	rate    float64 // of its clock for the election
	electAt time.Duration
	won     bool

	c        *Coordinator
	leading  bool // the coordinator's loop runs
	ending   bool // shutting down in good order
	pumping  bool
	tickAt   time.Duration
	sameTick int
	epoch    uint64
	active   bool // something happened since the last checkpoint began
	runs     map[uint64]*jobRun
	parts    map[uint64]*simPart
	jobs     []uint64 // the catalog
	version  uint64
	broken   map[uint64]bool // jobs that are to be started again
	stopping map[uint64]bool // jobs that are to end
	stopped  map[uint64]bool // those that take nothing in any more, also when they start again
	mending  bool
	restored *Manifest
	calls    int // of users, not answered yet
}

func (w *simWorld) newServer(slot int) *simProcess {
	s := &simProcess{
		w: w, slot: slot, name: fmt.Sprintf("s%d.%d", slot, w.next), disk: map[string]*simObject{}, rate: 1,
		runs: map[uint64]*jobRun{}, parts: map[uint64]*simPart{}, broken: map[uint64]bool{}, stopping: map[uint64]bool{}, stopped: map[uint64]bool{},
	}
	h := &host{
		now:    func() time.Time { return simEpoch.Add(w.now + w.wall) },
		jitter: func(n time.Duration) time.Duration { return time.Duration(w.rng.Int64N(int64(n) + 1)) },
		nonce:  w.nonce,
		open: func(context.Context, string) (object.Store, error) {
			return &simStore{o: w.outside, srv: s}, nil
		},
		sleep: func(_ context.Context, d time.Duration) error {
			if s.dead {
				return errDead
			}
			co := w.cur
			w.after(d, s, func() { w.resume(co) })
			w.park()
			if s.dead {
				return errDead
			}
			return nil
		},
		park: func() error {
			if s.dead {
				return errDead
			}
			co := w.cur
			co.waiting = true
			w.park()
			co.waiting = false
			if s.dead {
				return errDead
			}
			return nil
		},
	}
	s.ctx = context.WithValue(context.Background(), hostKey{}, h)
	s.store = &simStore{o: w.bucket, srv: s}
	return s
}

func (w *simWorld) nonce() string {
	w.nonces++
	return fmt.Sprintf("%016x", fnv1a(fnv1a(14695981039346656037, uint64(w.nonces)), 1))
}

// faults are the chances of calls of this server.
func (s *simProcess) faults() simFaults {
	if s.w.calm || s.w.faultless {
		return simFaults{}
	}
	return s.w.faults
}

// start begins a server: one that waits for the lead, or takes over at once.
func (w *simWorld) start(slot int) {
	if old := w.servers[slot]; old != nil && !old.dead || slot > 0 && w.calm && !w.election {
		return
	}
	s := w.newServer(slot)
	w.servers[slot] = s
	w.trace("start", s.name, "", 0)
	if !w.election {
		w.after(0, s, s.lead)
		return
	}
	e, err := NewElector(&simStore{o: w.bucket, srv: s, timeout: w.ttl / renewParts}, s.name, "", w.ttl, zerolog.Nop())
	if err != nil {
		w.failf("elector: %v", err)
	}
	e.core.me.Nonce = w.nonce()
	s.elector = e
	if !w.calm && !w.faultless {
		s.rate = 0.5 + w.rng.Float64()
	}
	w.after(0, s, func() { s.elect(leaderTick{}) })
}

// elect takes a step of the election.
func (s *simProcess) elect(ev leaderEvent) {
	w, e := s.w, s.elector
	clock := func() time.Duration { return time.Duration(float64(w.now) * s.rate) }
	for _, act := range e.core.step(clock(), ev) {
		switch act := act.(type) {
		case doLook:
			w.spawn(s, func(ctx context.Context) {
				ev := e.look(ctx, time.Hour)
				if !s.dead {
					s.elect(ev)
				}
			})
		case doWrite:
			w.spawn(s, func(ctx context.Context) {
				ev := e.write(ctx, time.Hour, act)
				if !s.dead {
					s.elect(ev)
				}
			})
		case hasWon:
			w.trace("won", s.name, "", act.term)
			s.won = true
			w.after(0, s, s.lead)
		case hasLost:
			w.trace("lost", s.name, "", 0)
			w.after(0, s, func() { s.kill(true) })
		case hasResigned:
			w.after(0, s, func() { s.kill(true) })
		}
	}
	if at, ok := e.core.deadline(); ok {
		in := max(0, time.Duration(float64(at-clock())/s.rate)) + time.Microsecond
		if s.electAt <= w.now || w.now+in < s.electAt {
			s.electAt = w.now + in
			w.after(in, s, func() { s.elect(leaderTick{}) })
		}
	}
}

// lead claims the store, restores the jobs and begins to make checkpoints.
func (s *simProcess) lead() {
	w := s.w
	c, err := New(w.cfg, s.store, Env{
		Clock: s, Participants: s.participants, Catalog: s.catalog, Holder: s.name, Log: zerolog.Nop(), Scratch: simScratch,
		FailJob: func(job uint64, _ error) { s.fail(job) },
	})
	if err != nil {
		w.failf("%v", err)
	}
	c.pub.claimID = w.nonce()
	c.now = func() time.Time { return simEpoch.Add(w.now) } // timers know no wall clock
	c.core.random = w.rng.Float64
	s.c = c
	w.counts.takeovers++
	w.spawn(s, func(ctx context.Context) {
		m, err := c.Claim(ctx)
		if err != nil {
			w.trace("claim failed", s.name, err.Error(), 0)
			w.mayFail(s, err)
			w.after(0, s, func() { s.kill(true) })
			return
		}
		w.trace("claimed", s.name, "", c.core.nextID)
		if err := s.restore(ctx, m); err != nil {
			w.trace("restore failed", s.name, err.Error(), 0)
			w.mayFail(s, err)
			w.after(0, s, func() { s.kill(true) })
			return
		}
		s.leading = true
		s.work(func(ctx context.Context) event { return evSwept{err: c.pub.sweep(ctx)} })
		c.dispatch(c.core.start(c.now()), s.work)
	})
}

// mayFail refuses errors that nothing explains.
func (w *simWorld) mayFail(s *simProcess, err error) {
	switch {
	case s.dead, errors.Is(err, errDead), errors.Is(err, ErrFenced), object.IsRetryable(err), errors.Is(err, object.ErrPrecondition):
	case errors.Is(err, object.ErrNotFound) && w.head.Holder != s.name: // another one has moved on
	default:
		w.failf("server %s: %v", s.name, err)
	}
}

// work runs what the coordinator's loop begins.
func (s *simProcess) work(fn func(context.Context) event) {
	s.w.spawn(s, func(ctx context.Context) {
		if ev := fn(ctx); !s.dead {
			s.c.box.post(ev)
		}
	})
}

// settle looks at what an event has left to do in the process.
func (s *simProcess) settle() {
	if s.leading && !s.pumping && len(s.c.box.queue) > 0 {
		s.pumping = true
		s.w.after(s.w.ms(0, 2), s, s.pump)
	}
	for _, co := range slices.Clone(s.cos) {
		if co.waiting && !s.dead {
			s.w.resume(co)
		}
	}
	if s.leading {
		s.tick()
	}
}

// pump is a turn of the coordinator's loop.
func (s *simProcess) pump() {
	s.pumping = false
	if !s.leading {
		return
	}
	for _, ev := range s.c.box.take() {
		s.c.dispatch(s.c.core.step(s.c.now(), ev), s.work)
	}
	s.lost()
}

// lost ends a server that has lost the store.
func (s *simProcess) lost() {
	if s.leading && s.c.core.fatal != nil {
		s.w.trace("fenced", s.name, "", 0)
		if !errors.Is(s.c.core.fatal, ErrFenced) {
			s.w.failf("server %s stops: %v", s.name, s.c.core.fatal)
		}
		s.c.box.close()
		s.c.dispatch(s.c.core.stop(s.c.now(), s.c.core.fatal), nil)
		s.kill(true)
	}
}

// tick has the loop's timer ring when it is due.
func (s *simProcess) tick() {
	at := max(s.w.now, s.c.core.deadline(s.c.now()).Sub(simEpoch))
	if s.tickAt >= s.w.now && s.tickAt <= at {
		return
	}
	if at == s.w.now {
		if s.sameTick++; s.sameTick > 1000 {
			s.w.failf("I7: the coordinator spins: its deadline has passed and a tick does nothing")
		}
	} else {
		s.sameTick = 0
	}
	s.tickAt = at
	s.w.after(at-s.w.now, s, func() {
		if s.leading && s.tickAt == at {
			s.tickAt = -1
			s.c.dispatch(s.c.core.step(s.c.now(), evTick{}), s.work)
			s.lost()
		}
	})
}

// kill ends the process. Nothing it does reaches anything any more.
func (s *simProcess) kill(restart bool) {
	if s.dead {
		return
	}
	w := s.w
	w.trace("ends", s.name, "", 0)
	s.dead, s.leading = true, false
	for n := 0; len(s.cos) > 0; n++ {
		if n > 1000 {
			w.failf("I7: code of %s does not end with its server", s.name)
		}
		for _, co := range slices.Clone(s.cos) {
			if co != w.cur {
				w.resume(co)
			}
		}
	}
	for _, r := range s.runs {
		r.dead = true
	}
	if restart && s.slot < len(w.servers) {
		w.after(w.ms(100, 8000), nil, func() { w.start(s.slot) })
	}
}

func (s *simProcess) freeze(d time.Duration) {
	s.frozen = true
	s.w.counts.freezes++
	s.w.trace("freezes", s.name, "", 0)
	s.w.after(d, nil, s.thaw)
}

func (s *simProcess) thaw() {
	if !s.frozen || s.dead {
		return
	}
	s.w.trace("thaws", s.name, "", 0)
	s.frozen = false
	for _, do := range s.postponed {
		s.w.after(0, s, do)
	}
	s.postponed = nil
}

// leader is a server that makes checkpoints, nil when there is none.
func (w *simWorld) leader() *simProcess {
	for _, s := range w.servers {
		if s != nil && !s.dead && !s.frozen && s.leading && !s.ending {
			return s
		}
	}
	return nil
}

// call runs a user's request; ok says what may come of it.
func (s *simProcess) call(what string, fn func(ctx context.Context) error) {
	w := s.w
	s.calls++
	w.counts.requests++
	w.trace(what, s.name, "", 0)
	w.spawn(s, func(ctx context.Context) {
		err := fn(ctx)
		if s.dead {
			return
		}
		s.calls--
		why := ""
		if err != nil {
			w.counts.refused++
			why = err.Error()
			if !s.ending {
				w.mustWork(what, err)
			}
		}
		w.trace(what+" answered", s.name, why, 0)
	})
}

// mustWork refuses an error in a world in which nothing goes wrong.
func (w *simWorld) mustWork(what string, err error) {
	if why := err.Error(); w.faultless && !errors.Is(err, ErrNotRunning) && !strings.Contains(why, "take part") && !strings.Contains(why, "nothing to make") && !errors.Is(err, errOvertaken) {
		w.failf("I7: without faults %s failed: %v", what, err)
	}
}

// simulate runs the world of a seed. It returns what it counted, its trace, and the promise that was broken ("": none).
func simulate(seed uint64, loud bool) (w *simWorld, broken string) {
	w = newSimWorld(seed, loud)
	defer func() {
		p := recover()
		f, ok := p.(simFailure)
		if p != nil && !ok {
			w.abandon()
			panic(fmt.Sprintf("seed %d: %v", seed, p))
		}
		if ok {
			broken = f.msg
			w.lines = append(w.lines, w.state()...)
		}
		w.abandon()
	}()
	w.populate()
	w.play()
	return w, ""
}

// play lets the world go on to its end.
func (w *simWorld) play() {
	w.run()
	if !w.over {
		w.failf("I7: nothing happens any more")
	}
}

// abandon ends the coroutines of a world that has ended.
func (w *simWorld) abandon() {
	for _, s := range append(w.servers[:], w.tool) {
		if s == nil {
			continue
		}
		s.dead = true
		for _, co := range s.cos {
			if !co.done && co != w.cur {
				func() {
					defer func() { _ = recover() }()
					co.ends()
				}()
			}
		}
	}
}

// state prints what the jobs of the servers wait for.
func (w *simWorld) state() (lines []string) {
	for _, s := range w.servers {
		if s == nil || s.dead {
			continue
		}
		for _, id := range s.jobs {
			r := s.runs[id]
			if r == nil {
				lines = append(lines, fmt.Sprintf("%s: job %d does not run", s.name, id))
				continue
			}
			line := fmt.Sprintf("%s: job %d: mode %v unaligned %v %v; from epoch %d, passed %d, %d closed;", s.name, id, r.job.settings.Mode, r.job.settings.Unaligned, r.job.settings.AlignedTimeout, r.from, r.passed, len(r.closes))
			for _, src := range r.sources {
				line += fmt.Sprintf(" source %d/%d at close %d busy %v;", src.part, src.input, src.closed, src.busy)
			}
			for _, a := range r.aggs {
				line += fmt.Sprintf(" agg %d: busy %v blocked %v queued", a.at, a.busy, a.blocked)
				for _, q := range a.queues {
					line += fmt.Sprintf(" %d", len(q))
				}
			}
			lines = append(lines, line)
		}
	}
	return lines
}
