// Package objecttest has what tests of object stores need: a conformance battery, a store with faults, and an S3 server in process.
package objecttest

import (
	"context"
	"errors"
	"sync"

	"github.com/streamdb/streamdb/storage/object"
)

// Fault is what a Faulty store does to a call.
type Fault int

// The faults. Those that concern conditional writes act as FailBefore on other calls.
const (
	FailBefore   Fault = iota // nothing is applied, an error with an open outcome is returned
	FailAfter                 // applied, but an error with an open outcome is returned
	Throttle                  // not applied, retryable
	Conflict                  // 409: not applied, another conditional write was going on
	Precondition              // 412 without reason: as when an earlier attempt of the same call had been applied
	Refuse                    // not applied, permanent
	Hang                      // not applied, not answered until the caller gives up
	HangAfter                 // applied, not answered until the caller gives up
)

// Faulty is a store whose calls fail as told.
type Faulty struct {
	object.Store
	mu    sync.Mutex
	calls int
	at    func(call int, op, key string) (Fault, bool)
	// Hook is called before every call, when set: for slow stores and for what happens in between.
	Hook func(op, key string)
	hit  int
}

// NewFaulty wraps s. at decides, for the n-th call (from 1), whether and how it fails; it may be nil.
func NewFaulty(s object.Store, at func(call int, op, key string) (Fault, bool)) *Faulty {
	return &Faulty{Store: s, at: at}
}

// Nth makes the n-th call fail.
func Nth(n int, f Fault) func(int, string, string) (Fault, bool) {
	return func(call int, _, _ string) (Fault, bool) { return f, call == n }
}

// Calls is the number of calls so far, Hits of those that failed on purpose.
func (f *Faulty) Calls() int {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.calls
}

// Hits is the number of calls that failed on purpose.
func (f *Faulty) Hits() int {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.hit
}

// SetFaults replaces what decides about faults; counting goes on.
func (f *Faulty) SetFaults(at func(call int, op, key string) (Fault, bool)) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.at = at
}

var errInjected = errors.New("injected fault")

func (f *Faulty) do(ctx context.Context, op, key string, write, conditional bool, apply func() error) error {
	f.mu.Lock()
	f.calls++
	fault, fails := Fault(0), false
	if f.at != nil {
		fault, fails = f.at(f.calls, op, key)
	}
	if fails {
		f.hit++
	}
	hook := f.Hook
	f.mu.Unlock()
	if hook != nil {
		hook(op, key)
	}
	if !fails {
		return apply()
	}
	e := &object.Error{Op: op, Key: key, Store: f.String(), Cause: errInjected}
	switch fault {
	case FailAfter:
		if err := apply(); err != nil {
			return err
		}
		e.Kind, e.Retryable, e.Ambiguous = object.ErrUnavailable, true, write
	case Hang, HangAfter:
		if fault == HangAfter {
			if err := apply(); err != nil {
				return err
			}
		}
		<-ctx.Done()
		e.Cause, e.Ambiguous = ctx.Err(), write
	case Throttle:
		e.Kind, e.Retryable = object.ErrUnavailable, true
	case Conflict, Precondition:
		if conditional {
			e.Kind, e.Cause = object.ErrConflict, nil
			if fault == Precondition {
				e.Kind = object.ErrPrecondition
			}
			break
		}
		e.Kind, e.Retryable, e.Ambiguous = object.ErrUnavailable, true, write
	case Refuse:
		e.Kind = object.ErrForbidden
	default:
		e.Kind, e.Retryable, e.Ambiguous = object.ErrUnavailable, true, write
	}
	return e
}

// Get implements object.Store.
func (f *Faulty) Get(ctx context.Context, key string) (data []byte, info object.Info, err error) {
	err = f.do(ctx, "get", key, false, false, func() (err error) {
		data, info, err = f.Store.Get(ctx, key)
		return err
	})
	return data, info, err
}

// GetRange implements object.Store.
func (f *Faulty) GetRange(ctx context.Context, key string, off, n int64) (data []byte, err error) {
	err = f.do(ctx, "get", key, false, false, func() (err error) {
		data, err = f.Store.GetRange(ctx, key, off, n)
		return err
	})
	return data, err
}

// Put implements object.Store.
func (f *Faulty) Put(ctx context.Context, key string, data []byte) (info object.Info, err error) {
	err = f.do(ctx, "put", key, true, false, func() (err error) {
		info, err = f.Store.Put(ctx, key, data)
		return err
	})
	return info, err
}

// PutFile implements object.Store.
func (f *Faulty) PutFile(ctx context.Context, key, path string) (info object.Info, err error) {
	err = f.do(ctx, "put", key, true, false, func() (err error) {
		info, err = f.Store.PutFile(ctx, key, path)
		return err
	})
	return info, err
}

// PutIfAbsent implements object.Store.
func (f *Faulty) PutIfAbsent(ctx context.Context, key string, data []byte) (info object.Info, err error) {
	err = f.do(ctx, "create", key, true, true, func() (err error) {
		info, err = f.Store.PutIfAbsent(ctx, key, data)
		return err
	})
	return info, err
}

// PutIfMatch implements object.Store.
func (f *Faulty) PutIfMatch(ctx context.Context, key, etag string, data []byte) (info object.Info, err error) {
	err = f.do(ctx, "replace", key, true, true, func() (err error) {
		info, err = f.Store.PutIfMatch(ctx, key, etag, data)
		return err
	})
	return info, err
}

// Head implements object.Store.
func (f *Faulty) Head(ctx context.Context, key string) (info object.Info, err error) {
	err = f.do(ctx, "head", key, false, false, func() (err error) {
		info, err = f.Store.Head(ctx, key)
		return err
	})
	return info, err
}

// List implements object.Store.
func (f *Faulty) List(ctx context.Context, prefix string, fn func(object.Info) error) error {
	return f.do(ctx, "list", prefix, false, false, func() error { return f.Store.List(ctx, prefix, fn) })
}

// Delete implements object.Store.
func (f *Faulty) Delete(ctx context.Context, keys ...string) error {
	key := ""
	if len(keys) > 0 {
		key = keys[0]
	}
	return f.do(ctx, "delete", key, true, false, func() error { return f.Store.Delete(ctx, keys...) })
}
