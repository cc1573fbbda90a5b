// Package changelog keeps the ordered record of a relation's changes, cut by epoch. Jobs are joined by change logs, never by
// channels: a reader is a replayable source whose position is an epoch. Entries stay until every reader's completed checkpoint is past them.
//
// The log is held in memory. What makes it durable is where it comes from: a table's log is rebuilt from the write-ahead log, a
// view's by running the view again from its checkpoint.
package changelog

import (
	"sync"

	"github.com/streamdb/streamdb/types"
)

// Entry is all that changed in one epoch. Chunks are immutable and shared by all readers.
type Entry struct {
	Epoch  uint64
	Chunks []*types.Chunk
	Rows   int64
	Bytes  int64
}

// Log is the change log of one relation. Safe for concurrent use.
type Log struct {
	limit int64 // bytes held before the slowest readers are detached

	mu      sync.Mutex
	entries []Entry // ascending epochs, none empty, all closed
	open    []Entry // epochs that are not closed yet, ascending
	closed  uint64  // every epoch up to here is complete
	base    uint64  // entries up to here are gone
	bytes   int64
	readers map[*Reader]struct{}
}

// New returns an empty log whose epochs up to closed are complete and gone.
func New(closed uint64, limitBytes int64) *Log {
	return &Log{limit: limitBytes, closed: closed, base: closed, readers: map[*Reader]struct{}{}}
}

// Reader is one consumer's place in the log.
type Reader struct {
	log *Log
	// wake is called, without locks held by the log, after an epoch with changes was closed.
	wake func()
	// durable: what the reader's completed checkpoint covers; entries up to the minimum over all readers may go.
	durable  uint64
	detached bool
}

// Attach registers a reader that has everything up to epoch from. It fails (ok = false) when entries after from are gone already: the
// reader must then be refilled from a version.
func (l *Log) Attach(from uint64, wake func()) (r *Reader, ok bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if from < l.base {
		return nil, false
	}
	r = &Reader{log: l, wake: wake, durable: from}
	l.readers[r] = struct{}{}
	return r, true
}

// Detach removes the reader.
func (r *Reader) Detach() {
	r.log.mu.Lock()
	defer r.log.mu.Unlock()
	delete(r.log.readers, r)
	r.log.trim()
}

// Durable tells that the reader never asks again for epochs up to e.
func (r *Reader) Durable(e uint64) {
	r.log.mu.Lock()
	defer r.log.mu.Unlock()
	if e > r.durable {
		r.durable = e
		r.log.trim()
	}
}

// Detached reports whether the log gave up on this reader because it lagged beyond the limit.
func (r *Reader) Detached() bool {
	r.log.mu.Lock()
	defer r.log.mu.Unlock()
	return r.detached
}

// HasReaders reports whether anyone wants the changes: without readers nothing needs to be kept.
func (l *Log) HasReaders() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return len(l.readers) > 0
}

// Append adds changes to an epoch that is not closed yet. The log takes over the chunk, which must never change again.
func (l *Log) Append(epoch uint64, c *types.Chunk) {
	if c.Rows() == 0 {
		return
	}
	b := chunkBytes(c)
	l.mu.Lock()
	defer l.mu.Unlock()
	i := len(l.open)
	for i > 0 && l.open[i-1].Epoch > epoch {
		i--
	}
	if i == 0 || l.open[i-1].Epoch != epoch {
		l.open = append(l.open, Entry{})
		copy(l.open[i+1:], l.open[i:])
		l.open[i] = Entry{Epoch: epoch}
		i++
	}
	e := &l.open[i-1]
	e.Chunks = append(e.Chunks, c)
	e.Rows += int64(c.Rows())
	e.Bytes += b
	l.bytes += b
}

// Close completes every epoch up to e and wakes the readers if one of them has changes.
func (l *Log) Close(e uint64) {
	l.mu.Lock()
	if e <= l.closed {
		l.mu.Unlock()
		return
	}
	l.closed = e
	n := 0
	for n < len(l.open) && l.open[n].Epoch <= e {
		n++
	}
	changed := n > 0
	l.entries = append(l.entries, l.open[:n]...)
	l.open = append(l.open[:0], l.open[n:]...)
	l.trim()
	var wake []func()
	if changed {
		for r := range l.readers {
			wake = append(wake, r.wake)
		}
	}
	l.mu.Unlock()
	for _, w := range wake {
		w()
	}
}

// trim drops entries that no reader needs, and detaches readers when the rest exceeds the limit. Callers hold mu.
func (l *Log) trim() {
	low := l.closed
	for r := range l.readers {
		low = min(low, r.durable)
	}
	l.drop(low)
	if l.bytes <= l.limit || len(l.entries) == 0 {
		return
	}
	n, left := 0, l.bytes
	for n < len(l.entries) && left > l.limit {
		left -= l.entries[n].Bytes
		n++
	}
	cut := l.entries[n-1].Epoch
	for r := range l.readers {
		if r.durable < cut {
			r.detached = true
			delete(l.readers, r)
		}
	}
	l.drop(cut)
}

func (l *Log) drop(through uint64) {
	n := 0
	for n < len(l.entries) && l.entries[n].Epoch <= through {
		l.bytes -= l.entries[n].Bytes
		n++
	}
	if n > 0 {
		clear(l.entries[:n])
		l.entries = append(l.entries[:0:0], l.entries[n:]...)
	}
	l.base = max(l.base, min(through, l.closed))
}

// Closed returns the newest closed epoch.
func (l *Log) Closed() uint64 {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.closed
}

// FirstAfter returns the first epoch after e, up to through, that has changes.
func (l *Log) FirstAfter(e, through uint64) (uint64, bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, en := range l.entries {
		if en.Epoch > e {
			return en.Epoch, en.Epoch <= through
		}
	}
	return 0, false
}

// Range returns the entries of epochs (after, through]. ok is false when some of them are gone.
func (l *Log) Range(after, through uint64) (es []Entry, ok bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if after < l.base {
		return nil, false
	}
	for _, en := range l.entries {
		if en.Epoch > after && en.Epoch <= through {
			es = append(es, en)
		}
	}
	return es, true
}

// Reset forgets all entries after e, for a relation that starts again from epoch e and makes them anew.
func (l *Log) Reset(e uint64) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.clearOpen()
	n := len(l.entries)
	for n > 0 && l.entries[n-1].Epoch > e {
		n--
		l.bytes -= l.entries[n].Bytes
	}
	l.entries = l.entries[:n]
	l.closed = e
	l.base = min(l.base, e)
}

// Break ends the continuity of the log: the relation is computed anew and its content at epoch e does not follow from what readers have
// seen. All readers are detached; who comes later can start at e or after.
func (l *Log) Break(e uint64) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.clearOpen()
	for r := range l.readers {
		r.detached = true
		delete(l.readers, r)
	}
	l.entries, l.bytes = nil, 0
	l.closed, l.base = e, e
}

func (l *Log) clearOpen() {
	for _, e := range l.open {
		l.bytes -= e.Bytes
	}
	l.open = nil
}

// Bytes returns the memory held, approximately.
func (l *Log) Bytes() int64 {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.bytes
}

func chunkBytes(c *types.Chunk) int64 {
	b := int64(8 * len(c.Weights))
	for _, v := range c.Cols {
		b += int64(len(v.Bool) + 8*len(v.Int) + 8*len(v.Float) + 16*len(v.Str) + 24*len(v.Num) + 16*len(v.Ivl))
		for _, s := range v.Str {
			b += int64(len(s))
		}
	}
	return b
}
