package file

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"

	"github.com/streamdb/streamdb/connector"
	"github.com/streamdb/streamdb/internal/pgerr"
	"github.com/streamdb/streamdb/storage/object"
)

// The lease of a sink is a small object beside what is staged, replaced by compare-and-set only: when a sink is opened, and before the files of a commit get their
// names. So who takes over either finds the epoch of that commit, or is found by it. Its form is in docs/formats/sinks.md.

const (
	leaseFormat = 1
	// leaseAttempts bounds compare-and-sets that lose against others.
	leaseAttempts = 10
)

// lease is what was last read or written.
type lease struct {
	was  *connector.Lease // nil: there is none
	etag string
}

type leaseDoc struct {
	Format int `json:"format"`
	connector.Lease
}

func (s *sink) leaseKey() string { return "owner-" + s.cfg.ID }

// readLease reads the lease.
func (s *sink) readLease(ctx context.Context) (object.Store, error) {
	store, err := s.target.leases()
	if err != nil {
		return nil, err
	}
	data, info, err := store.Get(ctx, s.leaseKey())
	if errors.Is(err, object.ErrNotFound) {
		s.lease = lease{}
		return store, nil
	}
	if err != nil {
		return nil, err
	}
	var d leaseDoc
	if err := json.Unmarshal(data, &d); err != nil {
		return nil, pgerr.Wrap(pgerr.DataCorrupted, err, "%s/%s is malformed", store, s.leaseKey()).WithHint("Remove it when no other server writes as this sink.")
	}
	if d.Format > leaseFormat {
		return nil, pgerr.Newf(pgerr.FeatureNotSupported, "%s/%s has format version %d, this binary reads up to %d", store, s.leaseKey(), d.Format, leaseFormat)
	}
	s.lease = lease{was: &d.Lease, etag: info.ETag}
	return store, nil
}

// change replaces the lease by what next makes of it: of what was last read or written, and when that is not there any more of what is.
func (s *sink) change(ctx context.Context, next func(was *connector.Lease) (*connector.Lease, error)) error {
	for attempt := 0; ; attempt++ {
		store, err := s.target.leases()
		if err == nil && s.lease.etag == "" {
			store, err = s.readLease(ctx)
		}
		if err != nil {
			return err
		}
		now, err := next(s.lease.was)
		if err != nil {
			s.lease.etag = ""
			return err
		}
		data, err := json.Marshal(leaseDoc{Format: leaseFormat, Lease: *now})
		if err != nil {
			return err
		}
		var info object.Info
		if s.lease.was == nil {
			info, err = store.PutIfAbsent(ctx, s.leaseKey(), data)
		} else {
			info, err = store.PutIfMatch(ctx, s.leaseKey(), s.lease.etag, data)
		}
		if err == nil {
			s.lease = lease{was: now, etag: info.ETag}
			return nil
		}
		s.lease.etag = "" // it may be there all the same, or another server was faster: what is read tells
		if !errors.Is(err, object.ErrPrecondition) && !errors.Is(err, object.ErrNotFound) && !object.IsRetryable(err) || attempt == leaseAttempts {
			return fmt.Errorf("lease of sink %q: %w", s.cfg.Name, err)
		}
	}
}

func (s *sink) takeOver(ctx context.Context, epoch uint64) error {
	return s.change(ctx, func(was *connector.Lease) (*connector.Lease, error) { return s.cfg.TakeOver(was, epoch) })
}

// reach notes, before any of its files is seen, that a commit has all up to epoch. Sinks that write at least once look only whether they may.
func (s *sink) reach(ctx context.Context, epoch uint64) error {
	if !s.cfg.ExactlyOnce {
		if _, err := s.readLease(ctx); err != nil {
			return err
		}
		return s.cfg.Holds(s.lease.was)
	}
	return s.change(ctx, func(was *connector.Lease) (*connector.Lease, error) {
		if err := s.cfg.Holds(was); err != nil {
			return nil, err
		}
		now := *was
		now.Epoch = max(now.Epoch, epoch)
		return &now, nil
	})
}

func (s *sink) mayForget(ctx context.Context) (bool, error) {
	_, err := s.readLease(ctx)
	return s.lease.was == nil || s.cfg.MayForget(s.lease.was), err
}

// forget removes the lease.
func (s *sink) forget(ctx context.Context) error {
	store, err := s.target.leases()
	if err != nil {
		return err
	}
	return store.Delete(ctx, s.leaseKey())
}
