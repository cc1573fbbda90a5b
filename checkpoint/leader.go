package checkpoint

import (
	"errors"
	"fmt"
	"time"

	"github.com/streamdb/streamdb/internal/pgerr"
	"github.com/streamdb/streamdb/storage/object"
)

// leaderKey is the object that servers on one store compete for.
const leaderKey = "leader"

// leaderFormat is the format version of that object that this binary writes, and the newest it reads.
const leaderFormat = 1

// Lease is what the object says: who executes, and by its change from renewal to renewal that it still does.
type Lease struct {
	Format   int    `json:"format"`
	Term     uint64 `json:"term"` // grows with every change of the leader
	Holder   string `json:"holder"`
	Addr     string `json:"addr"`  // where its clients connect
	Nonce    string `json:"nonce"` // of the process
	TTL      int64  `json:"ttl_ms"`
	RenewSeq uint64 `json:"renew_seq"`
	// Released: the leader has stopped in good order; nobody need wait for it.
	Released bool `json:"released,omitempty"`
}

// The times of a lease, as parts of its TTL.
const (
	renewParts  = 3  // renewals, and looks of those who wait
	marginParts = 5  // before its end: a leader that could not renew until then executes nothing
	retryParts  = 20 // between attempts after a failure
)

// election is the competition for the leader object as one server sees it, without clock and IO: step takes an event and returns what is to be done. Times are
// of the server's own monotonic clock, from any beginning. At most one call of the store is out.
//
//	watching ──no object, released, or unchanged for a TTL──▶ acquiring ──written──▶ leading ──another's object──▶ lost
//
// It decides who executes, not what counts: a leader first claims HEAD, after which nothing that an older one still writes holds. So clocks that run wrong cost
// availability and nothing else.
type election struct {
	me  Lease // Holder, Addr, Nonce
	ttl time.Duration

	role   role
	calls  bool // a call is out
	nextAt time.Duration
	etag   string // as last read or written; "" when there is no object
	seen   Lease  // as last read
	since  time.Duration
	sent   Lease         // as last written, perhaps in vain
	sentAt time.Duration // when that began
	// confirmed is when the newest write that is known to hold began: nobody who watches can have seen it earlier.
	confirmed time.Duration
	resigning bool
}

type role uint8

const (
	watching role = iota
	leading
	lost
)

type leaderEvent interface{ isLeaderEvent() }

type (
	// lookedAt is the outcome of a read; a nil lease without error: there is no object.
	lookedAt struct {
		lease *Lease
		etag  string
		err   error
	}
	// wrote is the outcome of a write.
	wrote struct {
		etag string
		err  error
	}
	leaderTick struct{}
	// resign gives the lease back.
	resign struct{}
)

func (lookedAt) isLeaderEvent()   {}
func (wrote) isLeaderEvent()      {}
func (leaderTick) isLeaderEvent() {}
func (resign) isLeaderEvent()     {}

type leaderAction interface{ isLeaderAction() }

type (
	doLook struct{}
	// doWrite replaces the object with etag, or creates it where etag is "".
	doWrite struct {
		lease Lease
		etag  string
	}
	// hasWon: execute from now on.
	hasWon struct{ term uint64 }
	// hasLost: another server is the leader.
	hasLost struct{ to *Lease }
	// hasResigned: the lease is given back, or need not be.
	hasResigned struct{}
)

func (doLook) isLeaderAction()      {}
func (doWrite) isLeaderAction()     {}
func (hasWon) isLeaderAction()      {}
func (hasLost) isLeaderAction()     {}
func (hasResigned) isLeaderAction() {}

func newElection(me Lease, ttl time.Duration) *election {
	me.Format, me.TTL = leaderFormat, ttl.Milliseconds()
	return &election{me: me, ttl: ttl}
}

// validUntil is how long the leader may execute without another renewal.
func (e *election) validUntil() time.Duration {
	if e.role != leading || e.resigning {
		return 0
	}
	return e.confirmed + e.ttl - e.ttl/marginParts
}

// deadline is when the next leaderTick is due; ok is false while a call is out.
func (e *election) deadline() (at time.Duration, ok bool) {
	return e.nextAt, !e.calls && e.role != lost
}

// step is the whole logic.
func (e *election) step(now time.Duration, ev leaderEvent) []leaderAction {
	switch ev := ev.(type) {
	case leaderTick:
		if e.calls || e.role == lost || now < e.nextAt {
			return nil
		}
		if e.role == leading {
			return e.renew(now)
		}
		return e.look()
	case resign:
		e.resigning = true
		switch {
		case e.calls: // its outcome comes first
			return nil
		case e.role == leading:
			return e.renew(now)
		}
		return e.resigned()
	case lookedAt:
		e.calls = false
		if e.role == leading {
			return e.leaderLooked(now, ev)
		}
		return e.looked(now, ev)
	case wrote:
		e.calls = false
		return e.written(now, ev)
	}
	return nil
}

func (e *election) resigned() []leaderAction {
	e.role = lost
	return []leaderAction{hasResigned{}}
}

func (e *election) look() []leaderAction {
	e.calls = true
	return []leaderAction{doLook{}}
}

// write begins a write of the object as last seen.
func (e *election) write(now time.Duration, l Lease) []leaderAction {
	e.calls, e.sent, e.sentAt = true, l, now
	return []leaderAction{doWrite{lease: l, etag: e.etag}}
}

func (e *election) acquire(now time.Duration, term uint64) []leaderAction {
	l := e.me
	l.Term, l.RenewSeq = term, 1
	return e.write(now, l)
}

func (e *election) renew(now time.Duration) []leaderAction {
	l := e.me
	l.Term, l.RenewSeq, l.Released = e.sent.Term, e.sent.RenewSeq+1, e.resigning
	return e.write(now, l)
}

// looked is what a server that waits makes of the object.
func (e *election) looked(now time.Duration, ev lookedAt) []leaderAction {
	if ev.err == nil && ev.lease != nil && ev.lease.Nonce == e.me.Nonce {
		e.etag = ev.etag
		return e.win(now) // a write of its own whose answer was lost
	}
	if e.resigning {
		return e.resigned()
	}
	if ev.err != nil {
		e.nextAt = now + e.ttl/retryParts
		return nil
	}
	if ev.lease == nil {
		e.etag, e.seen = "", Lease{}
		return e.acquire(now, e.sent.Term+1)
	}
	if ev.etag != e.etag {
		e.etag, e.since = ev.etag, now
	}
	e.seen = *ev.lease
	// The longer of both TTLs: servers may be configured differently.
	until := e.since + max(e.ttl, time.Duration(e.seen.TTL)*time.Millisecond)
	if e.seen.Released || now >= until {
		return e.acquire(now, e.seen.Term+1)
	}
	e.nextAt = min(until, now+e.ttl/renewParts)
	return nil
}

func (e *election) win(now time.Duration) []leaderAction {
	e.role, e.seen = leading, e.sent
	if e.resigning {
		return e.renew(now)
	}
	e.confirmed = e.sentAt
	e.nextAt = e.sentAt + e.ttl/renewParts
	return []leaderAction{hasWon{term: e.sent.Term}}
}

// leaderLooked is what the leader makes of the object after a write of unknown outcome.
func (e *election) leaderLooked(now time.Duration, ev lookedAt) []leaderAction {
	switch {
	case ev.err != nil:
		e.nextAt = now + e.ttl/retryParts
		if e.resigning {
			return e.resigned() // others wait for the TTL
		}
		return nil
	case ev.lease == nil || ev.lease.Nonce != e.me.Nonce:
		e.role = lost
		return []leaderAction{hasLost{to: ev.lease}}
	}
	e.etag = ev.etag
	if ev.lease.RenewSeq == e.sent.RenewSeq {
		return e.renewed(now)
	}
	e.nextAt = now + e.ttl/retryParts // not applied; it may be still, and is then found by the next attempt
	if e.resigning {
		return e.renew(now)
	}
	return nil
}

// renewed: the last write holds.
func (e *election) renewed(now time.Duration) []leaderAction {
	e.confirmed = e.sentAt
	e.nextAt = e.sentAt + e.ttl/renewParts
	switch {
	case e.sent.Released:
		return e.resigned()
	case e.resigning:
		return e.renew(now)
	}
	return nil
}

func (e *election) written(now time.Duration, ev wrote) []leaderAction {
	switch {
	case ev.err == nil:
		e.etag = ev.etag
		if e.role == leading {
			return e.renewed(now)
		}
		return e.win(now)
	case errors.Is(ev.err, object.ErrPrecondition) || object.IsAmbiguous(ev.err):
		return e.look()
	case e.resigning:
		return e.resigned()
	}
	e.nextAt = now + e.ttl/retryParts // known not to be applied
	return nil
}

// leadershipLost is the error of a server that another one has taken over from.
func leadershipLost(store object.Store, to *Lease) error {
	if to == nil {
		return pgerr.Wrap(pgerr.CrashShutdown, ErrFenced, "%s has lost its object %s", store, leaderKey)
	}
	return pgerr.Wrap(pgerr.CrashShutdown, ErrFenced, "checkpoint store %s is now led by %s (term %d)", store, to.Holder, to.Term).
		WithHint("This server could not renew its lease in time. Start it again: it waits as a standby.")
}

// NotLeader is the error that clients of a server get which does not execute.
func NotLeader(l Lease) error {
	e := pgerr.Newf(pgerr.CannotConnectNow, "this server is a standby and does not take statements")
	if l.Holder == "" || l.Released {
		return e.WithHint("No server has the lead yet: try again.")
	}
	e.Detail = fmt.Sprintf("The leader is %s.", l.Holder)
	if l.Addr != "" {
		e.Detail = fmt.Sprintf("The leader is %s at %s.", l.Holder, l.Addr)
	}
	return e.WithHint("Connect to the leader, or name all servers in the connection string.")
}
