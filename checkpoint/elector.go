package checkpoint

import (
	"context"
	"errors"
	"sync"
	"sync/atomic"
	"time"

	"github.com/rs/zerolog"

	"github.com/streamdb/streamdb/internal/pgerr"
	"github.com/streamdb/streamdb/storage/object"
)

// The limits of a lease's TTL.
const (
	DefaultLease = 10 * time.Second
	minLease     = 500 * time.Millisecond
)

// Elector keeps one server in the election of the leader of a store: it waits for the lead, renews it, and tells when it is lost.
type Elector struct {
	store object.Store
	log   zerolog.Logger
	began time.Time
	won   chan struct{}
	valid atomic.Int64 // until when the server may execute, in ns since began

	mu   sync.Mutex
	core *election

	failing bool // Run's: calls of the store fail, which was logged
}

// NewElector makes one; Run starts it. store should be the elector's own, so that nothing else slows it down. holder and addr are for messages.
func NewElector(store object.Store, holder, addr string, ttl time.Duration, log zerolog.Logger) (*Elector, error) {
	if ttl < minLease {
		return nil, pgerr.Newf(pgerr.InvalidParameterValue, "a lease of %v is less than %v", ttl, minLease)
	}
	return &Elector{
		store: store, log: log, began: time.Now(), won: make(chan struct{}),
		core: newElection(Lease{Holder: holder, Addr: addr, Nonce: newNonce()}, ttl),
	}, nil
}

// now is the time of the monotonic clock, which stops for no SIGSTOP and jumps with no wall clock.
func (e *Elector) now() time.Duration { return time.Since(e.began) }

// Won is closed when this server has become the leader.
func (e *Elector) Won() <-chan struct{} { return e.won }

// Valid reports whether the server leads and has renewed that recently enough: what it does now, no other server does.
func (e *Elector) Valid() bool { return e.now() < time.Duration(e.valid.Load()) }

// Leader returns the lease as last seen; its Holder is empty when there was none.
func (e *Elector) Leader() Lease {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.core.seen
}

// ErrAbandon, as the cause of the end of Run's context, lets the lead lapse instead of giving it back: as a crash does.
var ErrAbandon = errors.New("the lead is abandoned")

// Run takes part in the election until ctx ends, then gives the lead back if it has it (nil), or until another server has it (an error matching ErrFenced).
func (e *Elector) Run(ctx context.Context) error {
	timer := time.NewTimer(0)
	defer timer.Stop()
	results := make(chan leaderEvent, 1)
	done := ctx.Done()
	for {
		e.mu.Lock()
		at, ticks := e.core.deadline()
		e.mu.Unlock()
		var tick <-chan time.Time
		if ticks {
			timer.Reset(max(0, at-e.now()))
			tick = timer.C
		}
		var ev leaderEvent
		select {
		case <-done:
			if errors.Is(context.Cause(ctx), ErrAbandon) {
				e.valid.Store(0)
				if !ticks {
					<-results
				}
				return nil
			}
			ev, done = resign{}, nil
		case ev = <-results:
			e.note(ev)
		case <-tick:
			ev = leaderTick{}
		}
		over, err := e.do(ctx, ev, results)
		if over {
			return err
		}
	}
}

func (e *Elector) leads() bool {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.core.role == leading
}

// note logs when calls of the store begin to fail and when they work again.
func (e *Elector) note(ev leaderEvent) {
	var err error
	switch ev := ev.(type) {
	case lookedAt:
		if err = ev.err; err == nil && e.leads() {
			return // it looks after writes that failed
		}
	case wrote:
		if err = ev.err; errors.Is(err, object.ErrPrecondition) {
			return // another server was first
		}
	}
	switch failing := err != nil; {
	case failing && !e.failing:
		e.log.Warn().Err(err).Str("store", e.store.String()).Str("object", leaderKey).Msg("the object that servers compete for cannot be read or written: trying again until it can")
	case !failing && e.failing:
		e.log.Info().Str("store", e.store.String()).Str("object", leaderKey).Msg("the object that servers compete for can be read and written again")
	}
	e.failing = err != nil
}

// do takes a step and carries out what follows.
func (e *Elector) do(ctx context.Context, ev leaderEvent, results chan<- leaderEvent) (over bool, err error) {
	e.mu.Lock()
	acts := e.core.step(e.now(), ev)
	e.valid.Store(int64(e.core.validUntil()))
	timeout := e.core.ttl / renewParts
	e.mu.Unlock()
	for _, act := range acts {
		switch act := act.(type) {
		case doLook:
			go func() { results <- e.look(context.WithoutCancel(ctx), timeout) }()
		case doWrite:
			go func() { results <- e.write(context.WithoutCancel(ctx), timeout, act) }()
		case hasWon:
			e.log.Info().Uint64("term", act.term).Msg("this server is the leader now")
			close(e.won)
		case hasLost:
			return true, leadershipLost(e.store, act.to)
		case hasResigned:
			return true, nil
		}
	}
	return false, nil
}

func (e *Elector) look(ctx context.Context, timeout time.Duration) leaderEvent {
	ctx, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	l, etag, err := readLeader(ctx, e.store)
	return lookedAt{lease: l, etag: etag, err: err}
}

func (e *Elector) write(ctx context.Context, timeout time.Duration, w doWrite) leaderEvent {
	ctx, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	data, err := sealDoc("leader", leaderFormat, w.lease)
	if err != nil {
		return wrote{err: err}
	}
	var info object.Info
	if w.etag == "" {
		info, err = e.store.PutIfAbsent(ctx, leaderKey, data)
	} else {
		info, err = e.store.PutIfMatch(ctx, leaderKey, w.etag, data)
	}
	return wrote{etag: info.ETag, err: err}
}

// readLeader reads the leader object; nil when there is none.
func readLeader(ctx context.Context, store object.Store) (*Lease, string, error) {
	data, info, err := store.Get(ctx, leaderKey)
	if errors.Is(err, object.ErrNotFound) {
		return nil, "", nil
	}
	if err != nil {
		return nil, "", err
	}
	l := &Lease{}
	if err := openDoc("leader", leaderFormat, store.String()+"/"+leaderKey, data, l); err != nil {
		return nil, "", err
	}
	return l, info.ETag, nil
}
