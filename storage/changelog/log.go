// Package changelog keeps the ordered record of a relation's changes, cut by epoch. Jobs are joined by change logs, never by
// channels: a reader is a replayable source whose position is an epoch. Entries stay until every reader's completed checkpoint is past
// them, or until the log exceeds its limit: then first those go that readers have consumed (a reader that fails is then filled again
// instead of going back), and after that readers that are too slow are detached.
//
// The log is held in memory. What makes it durable is where it comes from: a table's log is rebuilt from the write-ahead log, a
// view's by running the view again from its checkpoint.
package changelog

import (
	"sort"
	"sync"
	"sync/atomic"

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
	resets  int64    // how often Reset was called
	resetTo uint64   // with what, last
	givenUp []func() // how to wake readers that were detached and do not know it yet
}

// New returns an empty log whose epochs up to closed are complete and gone.
func New(closed uint64, limitBytes int64) *Log {
	return &Log{limit: limitBytes, closed: closed, base: closed, readers: map[*Reader]struct{}{}}
}

// Reader is one consumer's place in the log.
type Reader struct {
	log *Log
	// wake is called, without locks held by the log, when there may be something to read.
	wake func()
	// durable: what the reader's completed checkpoint covers; entries up to the minimum over all readers may go. consumed: what it has
	// read. durable ≤ consumed.
	durable, consumed uint64
	follows           bool
	detached          atomic.Bool
	undone            atomic.Bool
}

// Attach registers a reader that has everything up to epoch from. It fails (ok = false) when entries after from are gone already: the
// reader must then be refilled from a version.
func (l *Log) Attach(from uint64, wake func()) (r *Reader, ok bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if from < l.base {
		return nil, false
	}
	return l.attach(from, wake), true
}

// Join registers a reader that is about to be filled from a version. Which version suits depends on the writer: all changes after it must
// have been appended by somebody who had seen this reader (HasReaders).
func (l *Log) Join(wake func()) *Reader {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.attach(l.closed, wake)
}

// Follow is Join for a reader that cannot take back what it has read: where the relation starts again from an epoch before that, the reader is
// detached, and Undone.
func (l *Log) Follow(wake func()) *Reader {
	l.mu.Lock()
	defer l.mu.Unlock()
	r := l.attach(l.closed, wake)
	r.follows = true
	return r
}

func (l *Log) attach(from uint64, wake func()) *Reader {
	r := &Reader{log: l, wake: wake, durable: from, consumed: from}
	l.readers[r] = struct{}{}
	return r
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
	r.advance(e)
}

// DurableAsOf is Durable for a reader that knows of so many resets: after another one what it read does not count.
func (r *Reader) DurableAsOf(resets int64, e uint64) {
	r.log.mu.Lock()
	defer r.log.mu.Unlock()
	if r.log.resets == resets {
		r.advance(e)
	}
}

func (r *Reader) advance(e uint64) {
	r.consumed = max(r.consumed, e)
	if e > r.durable {
		r.durable = e
		r.log.trim()
	}
}

// Consumed tells that the reader has read all epochs up to e; it asks for them again only if it fails.
func (r *Reader) Consumed(e uint64) {
	r.log.mu.Lock()
	defer r.log.mu.Unlock()
	if e > r.consumed {
		r.consumed = e
		if r.log.bytes > r.log.limit {
			r.log.trim()
		}
	}
}

// Detached reports whether the log gave up on this reader because it lagged beyond the limit.
func (r *Reader) Detached() bool {
	return r.detached.Load()
}

// Undone reports whether the reader was detached because what it has read is made again, perhaps otherwise.
func (r *Reader) Undone() bool {
	return r.undone.Load()
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
	b := c.Bytes()
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

// Skip tells that an epoch that is not closed yet has changes that the log does not get, because they are more than it holds: whoever reads it is
// detached, as by changes beyond the limit.
func (l *Log) Skip(epoch uint64) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for r := range l.readers {
		l.giveUp(r)
	}
	l.drop(l.closed)
	l.base = max(l.base, epoch)
}

// Seal completes every epoch up to e without telling the readers. It precedes the moment at which e becomes visible as closed, so that
// nobody who sees e closed can miss a change; Wake follows it.
func (l *Log) Seal(e uint64) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if e <= l.closed {
		return
	}
	l.closed = e
	n := 0
	for n < len(l.open) && l.open[n].Epoch <= e {
		n++
	}
	l.entries = append(l.entries, l.open[:n]...)
	rest := copy(l.open, l.open[n:])
	clear(l.open[rest:])
	l.open = l.open[:rest]
	l.trim()
}

// Wake tells the readers that the relation has closed another epoch. They are told even when it brought no changes: what they read from
// other relations may have waited for it.
func (l *Log) Wake() {
	l.mu.Lock()
	wake := l.givenUp
	l.givenUp = nil
	if len(l.readers) == 0 && wake == nil {
		l.mu.Unlock()
		return
	}
	for r := range l.readers {
		wake = append(wake, r.wake)
	}
	l.mu.Unlock()
	for _, w := range wake {
		w()
	}
}

// giveUp detaches a reader; the next Wake tells it. Callers hold mu.
func (l *Log) giveUp(r *Reader) {
	r.detached.Store(true)
	delete(l.readers, r)
	l.givenUp = append(l.givenUp, r.wake)
}

// trim drops entries that no reader needs. If the rest exceeds the limit, what all have consumed goes next, and then the readers that hold
// the remainder are detached. Callers hold mu.
func (l *Log) trim() {
	low, read := l.closed, l.closed
	for r := range l.readers {
		low, read = min(low, r.durable), min(read, r.consumed)
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
	if cut > read {
		for r := range l.readers {
			if r.consumed < cut {
				l.giveUp(r)
			}
		}
		if len(l.readers) == 0 {
			cut = l.closed
		}
	}
	l.drop(cut)
}

func (l *Log) drop(through uint64) {
	n := l.after(through)
	if n > 0 {
		for i := range n {
			l.bytes -= l.entries[i].Bytes
		}
		clear(l.entries[:n])
		l.entries = append(l.entries[:0:0], l.entries[n:]...)
	}
	l.base = max(l.base, min(through, l.closed))
}

// after returns the index of the first entry after epoch e.
func (l *Log) after(e uint64) int {
	return sort.Search(len(l.entries), func(i int) bool { return l.entries[i].Epoch > e })
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
	i := l.after(e)
	if i == len(l.entries) || l.entries[i].Epoch > through {
		return 0, false
	}
	return l.entries[i].Epoch, true
}

// Recall gives a log that was just restored, and that nobody reads yet, entries of the past, in ascending epochs up to its own: it holds all changes after
// epoch from then.
func (l *Log) Recall(from uint64, entries []Entry) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for i := range entries {
		e := &entries[i]
		for _, c := range e.Chunks {
			e.Rows += int64(c.Rows())
			e.Bytes += c.Bytes()
		}
		if e.Rows > 0 {
			l.entries = append(l.entries, *e)
			l.bytes += e.Bytes
		}
	}
	l.base = from
}

// Limit is how many bytes the log holds for slow readers.
func (l *Log) Limit() int64 { return l.limit }

// Range returns the entries of epochs (after, through]. ok is false when some of them are gone.
func (l *Log) Range(after, through uint64) (es []Entry, ok bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if after < l.base {
		return nil, false
	}
	from, to := l.after(after), l.after(through)
	if from < to {
		es = append(es, l.entries[from:to]...)
	}
	return es, true
}

// Reset forgets all entries after e, for a relation that starts again from epoch e and makes them anew.
func (l *Log) Reset(e uint64) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.resets, l.resetTo = l.resets+1, e
	l.undo()
	for r := range l.readers { // they read on from there
		r.durable, r.consumed = min(r.durable, e), min(r.consumed, e)
	}
	l.clearOpen()
	n := l.after(e)
	for i := n; i < len(l.entries); i++ {
		l.bytes -= l.entries[i].Bytes
	}
	clear(l.entries[n:])
	l.entries = l.entries[:n]
	l.closed = e
	l.base = min(l.base, e)
}

// Forget drops the entries up to e, which are not all there: a reader that does not have them cannot go on.
func (l *Log) Forget(e uint64) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for r := range l.readers {
		if r.consumed < e {
			l.giveUp(r)
		}
	}
	l.drop(e)
}

// Resets returns how often Reset was called, and the epoch of the last call: what readers have of later epochs is made again.
func (l *Log) Resets() (n int64, to uint64) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.resets, l.resetTo
}

// Break ends the continuity of the log: the relation is computed anew and its content at epoch e does not follow from what readers have
// seen. All readers are detached; none can go on from e or before, however much it has.
func (l *Log) Break(e uint64) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.undo()
	l.clearOpen()
	for r := range l.readers {
		l.giveUp(r)
	}
	l.entries, l.bytes = nil, 0
	l.closed, l.base = e, e+1
}

// undo detaches the readers that cannot go back. Callers hold mu.
func (l *Log) undo() {
	for r := range l.readers {
		if r.follows {
			r.undone.Store(true)
			l.giveUp(r)
		}
	}
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
