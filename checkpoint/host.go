package checkpoint

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	mrand "math/rand/v2"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/streamdb/streamdb/storage/object"
)

// host is what code that talks to a store needs beside the store: time, names, a way to wait. The simulation puts one of its own into the context, in
// which nothing happens by itself.
type host struct {
	now   func() time.Time
	sleep func(ctx context.Context, d time.Duration) error
	// jitter returns a number in [0, n].
	jitter func(n time.Duration) time.Duration
	nonce  func() string // unique
	open   func(ctx context.Context, url string) (object.Store, error)
	// park, when set, is called again and again instead of blocking the goroutine, and no other goroutines are begun.
	park func() error
}

var realHost = &host{
	now: time.Now,
	sleep: func(ctx context.Context, d time.Duration) error {
		t := time.NewTimer(d)
		defer t.Stop()
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-t.C:
			return nil
		}
	},
	jitter: func(n time.Duration) time.Duration { return mrand.N(n + 1) },
	nonce:  newNonce,
	open:   object.Open,
}

type hostKey struct{}

func hostOf(ctx context.Context) *host {
	if h, ok := ctx.Value(hostKey{}).(*host); ok {
		return h
	}
	return realHost
}

func newNonce() string {
	var b [8]byte
	_, _ = rand.Read(b[:]) // never fails
	return hex.EncodeToString(b[:])
}

// pause waits before attempt n+1, longer each time, with jitter.
func pause(ctx context.Context, n int) error {
	h := hostOf(ctx)
	d := min(maxBackoff, minBackoff<<min(n, 16))
	return h.sleep(ctx, d/2+h.jitter(d/2))
}

// receive waits for a value of a buffered channel.
func receive[T any](ctx context.Context, ch <-chan T) (v T, err error) {
	if park := hostOf(ctx).park; park != nil {
		for len(ch) == 0 {
			if err := park(); err != nil {
				return v, err
			}
		}
	}
	select {
	case v = <-ch:
		return v, nil
	case <-ctx.Done():
		return v, ctx.Err()
	}
}

// calls are calls of a store that run beside each other. The first error ends the context that they get.
type calls struct {
	group  *errgroup.Group
	inline bool
	err    error // with inline
}

// newCalls makes one that runs at most limit at a time.
func newCalls(ctx context.Context, limit int) (*calls, context.Context) {
	if hostOf(ctx).park != nil {
		return &calls{inline: true}, ctx
	}
	group, ctx := errgroup.WithContext(ctx)
	group.SetLimit(limit)
	return &calls{group: group}, ctx
}

// Go runs fn, waiting while there are too many.
func (c *calls) Go(fn func() error) {
	switch {
	case !c.inline:
		c.group.Go(fn)
	case c.err == nil:
		c.err = fn()
	}
}

// Wait returns the first error when all have ended.
func (c *calls) Wait() error {
	if c.inline {
		return c.err
	}
	return c.group.Wait()
}
