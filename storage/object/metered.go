package object

import (
	"context"
	"sync/atomic"
)

// Counts is what was done with a store since it was opened.
type Counts struct {
	Reads, Writes, Lists, Deletes int64 // calls
	Deleted                       int64 // objects of those
	BytesRead, BytesWritten       int64
	Failed                        int64 // calls that failed in the end, not counting objects that do not exist and conditions that do not hold
	Retries, Throttled            int64 // attempts repeated; answers that asked to slow down
	AbortedUploads                int64 // multipart uploads that somebody had left
}

// counts is Counts while it grows.
type counts struct {
	reads, writes, lists, deletes, deleted, bytesRead, bytesWritten, failed, retries, throttled, aborted atomic.Int64
}

// counter is a store that counts into what it is given.
type counter interface{ countInto(c *counts) }

// Metered counts the calls of a store.
type Metered struct {
	Store
	n counts
}

var _ Store = (*Metered)(nil)

// NewMetered wraps s.
func NewMetered(s Store) *Metered {
	m := &Metered{Store: s}
	if c, ok := s.(counter); ok {
		c.countInto(&m.n)
	}
	return m
}

// Counts returns what was done so far.
func (m *Metered) Counts() Counts {
	n := &m.n
	return Counts{
		Reads: n.reads.Load(), Writes: n.writes.Load(), Lists: n.lists.Load(), Deletes: n.deletes.Load(), Deleted: n.deleted.Load(),
		BytesRead: n.bytesRead.Load(), BytesWritten: n.bytesWritten.Load(), Failed: n.failed.Load(), Retries: n.retries.Load(),
		Throttled: n.throttled.Load(), AbortedUploads: n.aborted.Load(),
	}
}

func (m *Metered) read(bytes int, err error) {
	m.n.reads.Add(1)
	m.n.bytesRead.Add(int64(bytes))
	m.outcome(err)
}

func (m *Metered) wrote(info Info, err error) {
	m.n.writes.Add(1)
	if err == nil {
		m.n.bytesWritten.Add(info.Size)
	}
	m.outcome(err)
}

func (m *Metered) outcome(err error) {
	if err != nil && !isOutcome(err) {
		m.n.failed.Add(1)
	}
}

// Get implements Store.
func (m *Metered) Get(ctx context.Context, key string) ([]byte, Info, error) {
	data, info, err := m.Store.Get(ctx, key)
	m.read(len(data), err)
	return data, info, err
}

// GetRange implements Store.
func (m *Metered) GetRange(ctx context.Context, key string, off, n int64) ([]byte, error) {
	data, err := m.Store.GetRange(ctx, key, off, n)
	m.read(len(data), err)
	return data, err
}

// Put implements Store.
func (m *Metered) Put(ctx context.Context, key string, data []byte) (Info, error) {
	info, err := m.Store.Put(ctx, key, data)
	m.wrote(info, err)
	return info, err
}

// PutFile implements Store.
func (m *Metered) PutFile(ctx context.Context, key, path string) (Info, error) {
	info, err := m.Store.PutFile(ctx, key, path)
	m.wrote(info, err)
	return info, err
}

// PutIfAbsent implements Store.
func (m *Metered) PutIfAbsent(ctx context.Context, key string, data []byte) (Info, error) {
	info, err := m.Store.PutIfAbsent(ctx, key, data)
	m.wrote(info, err)
	return info, err
}

// PutIfMatch implements Store.
func (m *Metered) PutIfMatch(ctx context.Context, key, etag string, data []byte) (Info, error) {
	info, err := m.Store.PutIfMatch(ctx, key, etag, data)
	m.wrote(info, err)
	return info, err
}

// Head implements Store.
func (m *Metered) Head(ctx context.Context, key string) (Info, error) {
	info, err := m.Store.Head(ctx, key)
	m.read(0, err)
	return info, err
}

// List implements Store.
func (m *Metered) List(ctx context.Context, prefix string, fn func(Info) error) error {
	m.n.lists.Add(1)
	err := m.Store.List(ctx, prefix, fn)
	m.outcome(err)
	return err
}

// Delete implements Store.
func (m *Metered) Delete(ctx context.Context, keys ...string) error {
	m.n.deletes.Add(1)
	err := m.Store.Delete(ctx, keys...)
	if err == nil {
		m.n.deleted.Add(int64(len(keys)))
	}
	m.outcome(err)
	return err
}

// AbortUploads implements Store.
func (m *Metered) AbortUploads(ctx context.Context, prefix string, dead func(key string) bool) (int, error) {
	n, err := m.Store.AbortUploads(ctx, prefix, dead)
	m.n.aborted.Add(int64(n))
	m.outcome(err)
	return n, err
}
