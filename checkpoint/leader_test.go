package checkpoint

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/rs/zerolog"
	"github.com/stretchr/testify/require"

	"github.com/streamdb/streamdb/internal/checkpointrows"
	"github.com/streamdb/streamdb/internal/pgerr"
	"github.com/streamdb/streamdb/storage/object"
	"github.com/streamdb/streamdb/storage/object/objecttest"
)

const testTTL = 10 * time.Second

// drive takes steps and returns the last one's actions as text.
func drive(e *election, now time.Duration, ev leaderEvent) string {
	var parts []string
	for _, a := range e.step(now, ev) {
		switch a := a.(type) {
		case doLook:
			parts = append(parts, "look")
		case doWrite:
			s := fmt.Sprintf("write %d.%d if %q", a.lease.Term, a.lease.RenewSeq, a.etag)
			if a.lease.Released {
				s += " released"
			}
			parts = append(parts, s)
		case hasWon:
			parts = append(parts, fmt.Sprintf("won %d", a.term))
		case hasLost:
			parts = append(parts, "lost")
		case hasResigned:
			parts = append(parts, "resigned")
		}
	}
	return strings.Join(parts, ", ")
}

func TestElection(t *testing.T) {
	checkpointrows.Shows(t, 126)
	const s = time.Second
	me := Lease{Holder: "me", Nonce: "me"}
	other := func(seq uint64) *Lease {
		return &Lease{Term: 4, Holder: "other", Nonce: "other", TTL: testTTL.Milliseconds(), RenewSeq: seq}
	}
	mine := func(term, seq uint64) *Lease { return &Lease{Term: term, Nonce: "me", RenewSeq: seq} }
	ambiguous := &object.Error{Kind: object.ErrUnavailable, Retryable: true, Ambiguous: true}
	type step struct {
		at   time.Duration
		ev   leaderEvent
		want string
	}
	for name, steps := range map[string][]step{
		"no object": {
			{0, leaderTick{}, "look"},
			{0, lookedAt{}, `write 1.1 if ""`},
			{1 * s, wrote{etag: "a"}, "won 1"},
			{2 * s, leaderTick{}, ""},
			{4 * s, leaderTick{}, `write 1.2 if "a"`},
			{4 * s, wrote{etag: "b"}, ""},
			{8 * s, leaderTick{}, `write 1.3 if "b"`},
		},
		"watches for a TTL": {
			{0, leaderTick{}, "look"},
			{1 * s, lookedAt{lease: other(1), etag: "a"}, ""},
			{5 * s, leaderTick{}, "look"},
			{5 * s, lookedAt{lease: other(1), etag: "a"}, ""},
			{10 * s, leaderTick{}, "look"},
			{10 * s, lookedAt{lease: other(1), etag: "a"}, ""},
			{11 * s, leaderTick{}, "look"},
			{11 * s, lookedAt{lease: other(1), etag: "a"}, `write 5.1 if "a"`},
			{11 * s, wrote{etag: "b"}, "won 5"},
		},
		"a renewal begins the TTL anew": {
			{0, leaderTick{}, "look"},
			{0, lookedAt{lease: other(1), etag: "a"}, ""},
			{9 * s, leaderTick{}, "look"},
			{9 * s, lookedAt{lease: other(2), etag: "b"}, ""},
			{12 * s, leaderTick{}, ""},
			{13 * s, leaderTick{}, "look"},
			{13 * s, lookedAt{lease: other(2), etag: "b"}, ""},
			{19 * s, leaderTick{}, "look"},
			{19 * s, lookedAt{lease: other(2), etag: "b"}, `write 5.1 if "b"`},
			{19 * s, wrote{err: object.ErrPrecondition}, "look"},
			{19 * s, lookedAt{lease: &Lease{Term: 5, Nonce: "third"}, etag: "c"}, ""},
		},
		"released": {
			{0, leaderTick{}, "look"}, {0, lookedAt{lease: &Lease{Term: 4, Nonce: "other", Released: true}, etag: "a"}, `write 5.1 if "a"`},
		},
		"acquisition applied, answer lost": {
			{0, leaderTick{}, "look"}, {0, lookedAt{}, `write 1.1 if ""`}, {2 * s, wrote{err: ambiguous}, "look"}, {2 * s, lookedAt{lease: mine(1, 1), etag: "a"}, "won 1"},
		},
		"renewal applied, answer lost": {
			{0, leaderTick{}, "look"},
			{0, lookedAt{}, `write 1.1 if ""`},
			{0, wrote{etag: "a"}, "won 1"},
			{4 * s, leaderTick{}, `write 1.2 if "a"`},
			{5 * s, wrote{err: ambiguous}, "look"},
			{6 * s, lookedAt{lease: mine(1, 2), etag: "b"}, ""},
			{8 * s, leaderTick{}, `write 1.3 if "b"`},
		},
		"renewal not applied": {
			{0, leaderTick{}, "look"},
			{0, lookedAt{}, `write 1.1 if ""`},
			{0, wrote{etag: "a"}, "won 1"},
			{4 * s, leaderTick{}, `write 1.2 if "a"`},
			{5 * s, wrote{err: ambiguous}, "look"},
			{5 * s, lookedAt{lease: mine(1, 1), etag: "a"}, ""},
			{6 * s, leaderTick{}, `write 1.3 if "a"`},
		},
		"taken over": {
			{0, leaderTick{}, "look"},
			{0, lookedAt{}, `write 1.1 if ""`},
			{0, wrote{etag: "a"}, "won 1"},
			{60 * s, leaderTick{}, `write 1.2 if "a"`},
			{60 * s, wrote{err: object.ErrPrecondition}, "look"},
			{60 * s, lookedAt{lease: other(3), etag: "z"}, "lost"},
			{70 * s, leaderTick{}, ""},
		},
		"resigns": {
			{0, leaderTick{}, "look"},
			{0, lookedAt{}, `write 1.1 if ""`},
			{0, wrote{etag: "a"}, "won 1"},
			{1 * s, resign{}, `write 1.2 if "a" released`},
			{1 * s, wrote{etag: "b"}, "resigned"},
		},
		"resigns while it acquires": {
			{0, leaderTick{}, "look"},
			{0, lookedAt{}, `write 1.1 if ""`},
			{0, resign{}, ""},
			{1 * s, wrote{etag: "a"}, `write 1.2 if "a" released`},
			{1 * s, wrote{etag: "b"}, "resigned"},
		},
		"resigns while it waits": {
			{0, leaderTick{}, "look"}, {0, lookedAt{lease: other(1), etag: "a"}, ""}, {1 * s, resign{}, "resigned"},
		},
	} {
		t.Run(name, func(t *testing.T) {
			e := newElection(me, testTTL)
			for i, st := range steps {
				require.Equal(t, st.want, drive(e, st.at, st.ev), "step %d", i)
			}
		})
	}
}

// A leader may execute until a margin before the TTL of its last renewal, counted from when that began.
func TestLeaseEndsBeforeOthersMayTakeIt(t *testing.T) {
	const s = time.Second
	e := newElection(Lease{Nonce: "me"}, testTTL)
	require.Zero(t, e.validUntil())
	drive(e, 0, leaderTick{})
	drive(e, 1*s, lookedAt{})
	require.Zero(t, e.validUntil(), "not before the object is written")
	drive(e, 3*s, wrote{etag: "a"})
	require.Equal(t, 1*s+8*s, e.validUntil())
	drive(e, 5*s, leaderTick{})
	drive(e, 6*s, wrote{err: &object.Error{Ambiguous: true}})
	drive(e, 7*s, lookedAt{err: errors.New("down")})
	require.Equal(t, 9*s, e.validUntil())
	drive(e, 20*s, leaderTick{})
	drive(e, 21*s, wrote{etag: "b"})
	require.Equal(t, 28*s, e.validUntil(), "nobody has taken it: it goes on")
	drive(e, 22*s, resign{})
	require.Zero(t, e.validUntil())
}

// Real electors over a store with faults, in a bubble: one leads, the next takes over in less than two TTLs, and one that gives up in good order is followed at once.
func TestElectors(t *testing.T) {
	checkpointrows.Shows(t, 126, 129)
	bubble(t, func(t *testing.T) {
		store := objecttest.NewFaulty(object.NewMemory(""), nil)
		var logged bytes.Buffer // of a
		log := map[string]zerolog.Logger{"a": zerolog.New(&logged)}
		type server struct {
			*Elector
			stop context.CancelFunc
			ran  chan error
		}
		start := func(name string) *server {
			el, err := NewElector(store, name, "addr of "+name, testTTL, log[name])
			require.NoError(t, err)
			ctx, cancel := context.WithCancel(context.Background())
			s := &server{el, cancel, make(chan error, 1)}
			go func() { s.ran <- el.Run(ctx) }()
			return s
		}
		a := start("a")
		<-a.Won()
		b := start("b")
		time.Sleep(5 * testTTL)
		require.True(t, a.Valid())
		require.False(t, b.Valid())
		require.Equal(t, "addr of a", b.Leader().Addr)
		require.Equal(t, pgerr.CannotConnectNow, pgerr.CodeOf(NotLeader(b.Leader())))

		// a cannot write any more: its lease ends before b may take it.
		store.SetFaults(func(_ int, op, _ string) (objecttest.Fault, bool) { return objecttest.FailBefore, op == "replace" })
		time.Sleep(testTTL - testTTL/marginParts)
		require.False(t, a.Valid())
		store.SetFaults(nil)
		time.Sleep(2 * time.Second)
		require.True(t, a.Valid(), "nobody took it meanwhile")

		a.stop()
		require.NoError(t, <-a.ran)
		require.Equal(t, 1, strings.Count(logged.String(), "trying again"), "failures are logged once: %s", &logged)
		require.Equal(t, 1, strings.Count(logged.String(), "again\""), "and their end: %s", &logged)
		began := time.Now()
		<-b.Won()
		require.Less(t, time.Since(began), testTTL/renewParts+time.Second, "a released lease is taken at once")

		// b hangs in the store for a TTL: c takes over, and b is told.
		c := start("c")
		time.Sleep(testTTL)
		b.core.mu(t, b.Elector, func(e *election) { e.nextAt += 3 * testTTL }) // as if it did not run
		began = time.Now()
		<-c.Won()
		require.Less(t, time.Since(began), 2*testTTL)
		require.False(t, b.Valid())
		require.ErrorIs(t, <-b.ran, ErrFenced)
		c.stop()
		require.NoError(t, <-c.ran)
		b.stop()
		synctest.Wait()
	})
}

// mu changes an election behind its elector's back.
func (e *election) mu(t *testing.T, el *Elector, change func(*election)) {
	t.Helper()
	el.mu.Lock()
	defer el.mu.Unlock()
	change(e)
}

// simServer is a server of the simulation: an election and, while it leads, claims and commits to HEAD, as the publisher does them.
type simServer struct {
	name     string
	inc      int // counts its starts
	e        *election
	rate     float64       // of its clock
	skew     time.Duration // of its clock, which jumps
	paused   time.Duration // until when, of the real clock
	headTag  string        // of HEAD, as it wrote it; "" before the claim
	nextID   uint64
	reserved uint64
	busy     bool // a call for HEAD is out
	claiming bool
	sentHead simHead
	dead     bool // fenced or lost: to be started again
}

type simHead struct {
	owner    string // server and incarnation
	seq      uint64
	reserved uint64
	commit   uint64 // id committed by this write, 0: a claim or a reservation
}

// simulation is two servers on a store whose writes come late, get lost, or are applied without an answer.
type simulation struct {
	t       *testing.T
	rng     *rand.Rand
	now     time.Duration
	queue   []simEvent
	leader  *Lease
	tag     int
	tagOf   string // of the leader object
	head    *simHead
	headTag string
	servers []*simServer
	commits []simHead
	faults  bool
	jumps   bool
}

type simEvent struct {
	at time.Duration
	do func()
}

func (s *simulation) after(d time.Duration, do func()) {
	s.queue = append(s.queue, simEvent{s.now + d, do})
}

func (s *simulation) ms(most int) time.Duration {
	return time.Duration(s.rng.IntN(most)) * time.Millisecond
}

func (v *simServer) clock(now time.Duration) time.Duration {
	return time.Duration(float64(now)*v.rate) + v.skew
}

// deliver hands a result to the incarnation of a server that waits for it, when it runs again.
func (s *simulation) deliver(v *simServer, inc int, d time.Duration, do func()) {
	var try func()
	try = func() {
		switch {
		case v.inc != inc:
		case s.now < v.paused:
			s.after(v.paused-s.now, try)
		default:
			do()
		}
	}
	s.after(d, try)
}

// write carries out a conditional write: perhaps late, perhaps never, perhaps without an answer.
func (s *simulation) write(v *simServer, apply func() (string, error), answer func(tag string, err error)) {
	unknown, inc := &object.Error{Kind: object.ErrUnavailable, Retryable: true, Ambiguous: true}, v.inc
	fault := 0
	if s.faults {
		fault = s.rng.IntN(12)
	}
	switch fault {
	case 1: // never arrives
		s.deliver(v, inc, time.Second+s.ms(2000), func() { answer("", unknown) })
	case 2: // is applied, the answer is lost
		s.after(s.ms(50), func() { _, _ = apply() })
		s.deliver(v, inc, time.Second+s.ms(2000), func() { answer("", unknown) })
	case 3: // is applied long after the client has given up
		s.after(3*time.Second+s.ms(40_000), func() { _, _ = apply() })
		s.deliver(v, inc, time.Second+s.ms(2000), func() { answer("", unknown) })
	case 4:
		s.deliver(v, inc, s.ms(500), func() { answer("", &object.Error{Kind: object.ErrUnavailable, Retryable: true}) })
	default:
		s.after(s.ms(50), func() {
			tag, err := apply()
			s.deliver(v, inc, s.ms(50), func() { answer(tag, err) })
		})
	}
}

func (s *simulation) read(v *simServer, look func() func()) {
	inc := v.inc
	if s.faults && s.rng.IntN(12) == 1 {
		s.deliver(v, inc, s.ms(3000), func() { s.step(v, lookedAt{err: errors.New("down")}) })
		return
	}
	s.after(s.ms(50), func() { s.deliver(v, inc, s.ms(50), look()) })
}

func (s *simulation) start(v *simServer) {
	v.inc++
	v.e = newElection(Lease{Holder: v.name, Nonce: fmt.Sprintf("%s%d", v.name, v.inc)}, testTTL)
	v.headTag, v.busy, v.dead, v.claiming = "", false, false, false
	v.rate = 0.97 + 0.06*s.rng.Float64()
	s.tick(v)
}

func (s *simulation) tick(v *simServer) {
	inc := v.inc
	s.deliver(v, inc, 100*time.Millisecond, func() {
		s.step(v, leaderTick{})
		s.work(v)
		s.tick(v)
	})
}

func (s *simulation) step(v *simServer, ev leaderEvent) {
	for _, a := range v.e.step(v.clock(s.now), ev) {
		switch a := a.(type) {
		case doLook:
			s.read(v, func() func() {
				tag := s.tagOf
				var l *Lease
				if s.leader != nil {
					c := *s.leader
					l = &c
				}
				return func() { s.step(v, lookedAt{lease: l, etag: tag}) }
			})
		case doWrite:
			s.write(v, func() (string, error) {
				if a.etag != s.tagOf {
					return "", object.ErrPrecondition
				}
				s.tag++
				c := a.lease
				s.leader, s.tagOf = &c, fmt.Sprint(s.tag)
				return s.tagOf, nil
			}, func(tag string, err error) { s.step(v, wrote{etag: tag, err: err}) })
		case hasLost:
			v.dead = true
		}
	}
}

func (v *simServer) id() string { return fmt.Sprintf("%s%d", v.name, v.inc) }

// work is what a leader does: claim HEAD, then commit ids. A commit whose outcome is unknown is looked up first.
func (s *simulation) work(v *simServer) {
	if v.e.role != leading || v.busy || v.dead || v.clock(s.now) >= v.e.validUntil() {
		return
	}
	next := simHead{owner: v.id(), seq: 1, reserved: 10}
	if v.headTag == "" {
		if s.head != nil {
			next.seq, next.reserved = s.head.seq+1, s.head.reserved+10
			v.nextID = s.head.reserved
		}
		v.claiming = true
		s.cas(v, s.headTag, next)
		return
	}
	v.nextID++
	next = simHead{owner: v.id(), seq: v.sentHead.seq + 1, reserved: v.reserved, commit: v.nextID}
	if v.nextID > v.reserved {
		v.nextID--
		next.commit, next.reserved = 0, v.reserved+10
	}
	s.cas(v, v.headTag, next)
}

func (s *simulation) cas(v *simServer, tag string, next simHead) {
	v.busy = true
	s.write(v, func() (string, error) {
		if s.headTag != tag {
			return "", object.ErrPrecondition
		}
		s.tag++
		c := next
		s.head, s.headTag = &c, fmt.Sprint(s.tag)
		s.commits = append(s.commits, c)
		return s.headTag, nil
	}, func(newTag string, err error) {
		if err == nil {
			s.wroteHead(v, newTag, next)
			return
		}
		s.resolve(v, tag, next)
	})
}

func (s *simulation) wroteHead(v *simServer, tag string, next simHead) {
	v.busy, v.headTag, v.sentHead, v.reserved = false, tag, next, next.reserved
	v.claiming = false
}

// resolve reads HEAD until the outcome of a write is known.
func (s *simulation) resolve(v *simServer, tag string, next simHead) {
	inc := v.inc
	s.after(s.ms(100), func() {
		now, nowTag := s.head, s.headTag
		s.deliver(v, inc, s.ms(100), func() {
			switch {
			case now != nil && *now == next:
				s.wroteHead(v, nowTag, next)
			case nowTag != tag && !v.claiming:
				v.dead = true // fenced
			case v.claiming:
				v.busy = false // claim what is there now
			default:
				s.cas(v, tag, next) // the same write again: only one of the two can hold
			}
		})
	})
}

func (s *simulation) run(until time.Duration, each func()) {
	for {
		slices.SortStableFunc(s.queue, func(a, b simEvent) int { return int(a.at - b.at) })
		if len(s.queue) == 0 || s.queue[0].at > until {
			s.now = until
			return
		}
		ev := s.queue[0]
		s.queue = s.queue[1:]
		s.now = max(s.now, ev.at)
		ev.do()
		each()
	}
}

// Two servers, a store that does what stores do, pauses, kills, clocks that run wrong and jump: what one has committed no other overwrites, ids are not given twice, a
// fenced server commits nothing, and when the trouble is over one of them leads and commits.
func TestLeadersInSimulation(t *testing.T) {
	checkpointrows.Shows(t, 45, 127, 128, 129)
	seeds := 150
	if os.Getenv("STREAMDB_TEST_FULL") == "1" {
		seeds = 5000
	}
	takeovers := 0
	for seed := range seeds {
		s := &simulation{t: t, rng: rand.New(rand.NewPCG(uint64(seed), 1)), faults: true, jumps: seed%2 == 1}
		for _, name := range []string{"a", "b"} {
			v := &simServer{name: name}
			s.servers = append(s.servers, v)
			s.start(v)
		}
		valid := func() {
			n := 0
			for _, v := range s.servers {
				if s.now >= v.paused && v.clock(s.now) < v.e.validUntil() {
					n++
				}
				if v.dead {
					s.start(v) // as whoever looks after processes does
				}
			}
			// With clocks that jump only HEAD decides; else the lease does, too.
			if !s.jumps {
				require.LessOrEqual(t, n, 1, "seed %d: two leaders at %v", seed, s.now)
			}
		}
		for s.now < 8*time.Minute {
			s.run(s.now+s.ms(20_000), valid)
			v := s.servers[s.rng.IntN(2)]
			switch s.rng.IntN(4) {
			case 0:
				v.paused = s.now + s.ms(60_000)
			case 1:
				s.start(v) // killed
			case 2:
				if s.jumps {
					v.skew += s.ms(30_000)
				}
			}
		}
		s.faults = false
		s.run(s.now+2*time.Minute, valid)
		before := len(s.commits)
		s.run(s.now+10*time.Second, valid)
		require.Greater(t, len(s.commits), before, "seed %d: nobody leads", seed)
		takeovers += s.check(seed)
	}
	t.Logf("%d takeovers in %d runs", takeovers, seeds)
	require.Greater(t, takeovers, seeds)
}

// check looks at all that HEAD has been.
func (s *simulation) check(seed int) (takeovers int) {
	owner, ids, gone := "", map[uint64]bool{}, map[string]bool{}
	for i, c := range s.commits {
		if i > 0 {
			require.Equal(s.t, s.commits[i-1].seq+1, c.seq, "seed %d: seq", seed)
			require.GreaterOrEqual(s.t, c.reserved, s.commits[i-1].reserved, "seed %d: reserved", seed)
		}
		if c.owner != owner {
			require.False(s.t, gone[c.owner], "seed %d: %s commits after %s has taken over", seed, c.owner, owner)
			require.Zero(s.t, c.commit, "seed %d: %s commits before its claim", seed, c.owner)
			gone[owner] = true
			owner = c.owner
			takeovers++
		}
		if c.commit > 0 {
			require.False(s.t, ids[c.commit], "seed %d: id %d twice", seed, c.commit)
			ids[c.commit] = true
		}
	}
	return takeovers
}

// The bytes of format version 1 stay readable, and a newer version is refused.
func TestReadsLeaderVersion1(t *testing.T) {
	ctx := context.Background()
	store := object.NewMemory("")
	data, err := os.ReadFile("../testdata/compat/leader-v1/leader")
	require.NoError(t, err)
	_, err = store.Put(ctx, leaderKey, data)
	require.NoError(t, err)
	l, _, err := readLeader(ctx, store)
	require.NoError(t, err)
	require.Equal(t, Lease{Format: 1, Term: 7, Holder: "host/42", Addr: "10.0.0.1:5433", Nonce: "0123456789abcdef", TTL: 10_000, RenewSeq: 3, Released: true}, *l)
	data, err = sealDoc("leader", leaderFormat+1, l)
	require.NoError(t, err)
	_, err = store.Put(ctx, leaderKey, data)
	require.NoError(t, err)
	_, _, err = readLeader(ctx, store)
	require.Equal(t, pgerr.FeatureNotSupported, pgerr.CodeOf(err))
}
