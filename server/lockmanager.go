package server

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/streamdb/streamdb/catalog"
	"github.com/streamdb/streamdb/internal/pgerr"
)

// maxAdvisoryLocks bounds the different advisory locks that all sessions together hold or wait for.
const maxAdvisoryLocks = 100_000

// lockKind is what a lock guards.
type lockKind byte

const (
	lockAdvisory lockKind = iota
	lockSchema            // the schema: held for one statement, in a transaction from its first schema change to its end
	lockTable             // the rows of a table, held by a statement outside of transaction blocks that changes them
	lockCommit            // the committed rows of a table: shared by who commits changes of them, exclusive from when a schema change looks at them to its end
)

// lockTag names a lock that one session may have to wait for until another gives it back.
type lockTag struct {
	kind          lockKind
	two           bool // of an advisory lock: two numbers of 32 bits, which name other locks than one of 64
	class, object uint32
	table         uint64
}

func (k lockTag) sub() int {
	if k.two {
		return 2
	}
	return 1
}

// String describes the lock in the detail of a deadlock.
func (k lockTag) String() string {
	switch k.kind {
	case lockSchema:
		return fmt.Sprintf("object %d of class %d of database 0", catalog.DatabaseOID, catalog.DatabaseClass)
	case lockTable, lockCommit:
		return fmt.Sprintf("relation %d of database %d", catalog.TableOID(k.table), catalog.DatabaseOID)
	}
	return fmt.Sprintf("advisory lock [%d,%d,%d,%d]", catalog.DatabaseOID, k.class, k.object, k.sub())
}

// lockWords are the names of the two modes, exclusive and shared.
var lockWords = [2]string{"ExclusiveLock", "ShareLock"}

// lockTypes are the names of the kinds in pg_locks.
var lockTypes = [...]string{lockAdvisory: "advisory", lockSchema: "object", lockTable: "relation", lockCommit: "relation"}

// lockMode is 0 for an exclusive lock and 1 for a shared one.
func lockMode(shared bool) int {
	if shared {
		return 1
	}
	return 0
}

// lockManager has the locks of all sessions, of every kind: what waits for what is one graph, in which a deadlock is a cycle.
type lockManager struct {
	mu       sync.Mutex // guards the rest, and advisory and awaits of the sessions
	locks    map[lockTag]*sessionLock
	advisory int // how many of them are advisory locks
}

// sessionLock is one that somebody holds or waits for.
type sessionLock struct {
	holders map[*session]*lockHold
	queue   []*lockWait // in the order in which they get it
}

// lockHold counts how often a session holds a lock, by mode: for itself, and in all.
type lockHold struct {
	session, all [2]int
}

// lockWait is a session that waits.
type lockWait struct {
	ss      *session
	key     lockTag
	mode    int
	since   time.Time
	granted chan struct{} // closed when it has the lock
}

// takenLock is a lock of a transaction, to be given back at its end.
type takenLock struct {
	key  lockTag
	mode int
}

// excludes reports whether a holder keeps others from the mode.
func (h *lockHold) excludes(mode int) bool { return h.all[0] > 0 || mode == 0 && h.all[1] > 0 }

// blockers are the sessions that ss has to wait for, once before the waiters from the given place of the queue on.
func (l *sessionLock) blockers(ss *session, mode, place int) []*session {
	var out []*session
	for o, h := range l.holders {
		if o != ss && h.excludes(mode) {
			out = append(out, o)
		}
	}
	for _, w := range l.queue[:place] {
		if w.ss != ss && (w.mode == 0 || mode == 0) {
			out = append(out, w.ss)
		}
	}
	return out
}

// place is where in the queue ss has to wait: at its end, but before those who wait for what ss already holds.
func (l *sessionLock) place(ss *session) int {
	h := l.holders[ss]
	if h == nil {
		return len(l.queue)
	}
	for i, w := range l.queue {
		if h.excludes(w.mode) {
			return i
		}
	}
	return len(l.queue)
}

// exclusive takes the schema lock or one of a table. The holder may wait for a client, so waiting for it can be cancelled.
func (a *lockManager) exclusive(ctx context.Context, ss *session, key lockTag) (unlock func(), err error) {
	return a.hold(ctx, ss, key, lockMode(false))
}

// shared takes a lock of a table together with others.
func (a *lockManager) shared(ctx context.Context, ss *session, key lockTag) (unlock func(), err error) {
	return a.hold(ctx, ss, key, lockMode(true))
}

func (a *lockManager) hold(ctx context.Context, ss *session, key lockTag, mode int) (unlock func(), err error) {
	if _, err := a.acquire(ctx, ss, key, mode, false); err != nil {
		return nil, err
	}
	return func() {
		a.mu.Lock()
		defer a.mu.Unlock()
		a.release(ss, key, mode, 1)
	}, nil
}

// acquire takes a lock, and waits for it up to lock_timeout unless try.
func (a *lockManager) acquire(ctx context.Context, ss *session, key lockTag, mode int, try bool) (bool, error) {
	w, got, err := a.request(ss, key, mode, try)
	if err != nil || w == nil {
		return got, err
	}
	ctx, cancel := ss.lockCtx(ctx)
	defer cancel()
	return true, a.wait(ctx, w)
}

// advise takes an advisory lock for the session, or for the transaction with tx, and waits for it unless try.
func (a *lockManager) advise(ctx context.Context, ss *session, key lockTag, mode int, tx, try bool) (bool, error) {
	got, err := a.acquire(ctx, ss, key, mode, try)
	if err != nil {
		return false, err
	}
	switch {
	case !got:
		return false, nil
	case tx:
		ss.tx.advisory = append(ss.tx.advisory, takenLock{key: key, mode: mode})
	default:
		a.mu.Lock()
		a.locks[key].holders[ss].session[mode]++
		a.mu.Unlock()
	}
	return true, nil
}

// request takes a lock at once, or queues for it unless try.
func (a *lockManager) request(ss *session, key lockTag, mode int, try bool) (w *lockWait, got bool, err error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	l := a.locks[key]
	if l == nil {
		if key.kind == lockAdvisory {
			if a.advisory >= maxAdvisoryLocks {
				return nil, false, pgerr.Newf(pgerr.OutOfMemory, "out of shared memory").WithHint("There are %d advisory locks.", a.advisory)
			}
			a.advisory++
		}
		l = &sessionLock{holders: map[*session]*lockHold{}}
		if a.locks == nil {
			a.locks = map[lockTag]*sessionLock{}
		}
		a.locks[key] = l
	}
	place := l.place(ss)
	if len(l.blockers(ss, mode, place)) == 0 {
		l.grant(ss, key, mode)
		return nil, true, nil
	}
	if try {
		return nil, false, nil
	}
	w = &lockWait{ss: ss, key: key, mode: mode, since: time.Now(), granted: make(chan struct{})}
	l.queue = slices.Insert(l.queue, place, w)
	ss.awaits = w
	if cycle := a.cycle(ss, nil, map[*lockWait]bool{}); cycle != nil {
		a.leave(w)
		return nil, false, deadlock(cycle)
	}
	return w, false, nil
}

// wait blocks until w has its lock.
func (a *lockManager) wait(ctx context.Context, w *lockWait) error {
	select {
	case <-w.granted:
		return nil
	case <-ctx.Done():
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	if w.ss.awaits == nil { // it got the lock at the last moment
		a.release(w.ss, w.key, w.mode, 1)
	} else {
		a.leave(w)
	}
	return context.Cause(ctx)
}

func (l *sessionLock) grant(ss *session, key lockTag, mode int) {
	h := l.holders[ss]
	if h == nil {
		h = &lockHold{}
		l.holders[ss] = h
		if key.kind == lockAdvisory {
			if ss.advisory == nil {
				ss.advisory = map[lockTag]struct{}{}
			}
			ss.advisory[key] = struct{}{}
		}
	}
	h.all[mode]++
}

// leave takes a waiter out of its queue.
func (a *lockManager) leave(w *lockWait) {
	l := a.locks[w.key]
	i := slices.Index(l.queue, w)
	l.queue = slices.Delete(l.queue, i, i+1)
	w.ss.awaits = nil
	a.settle(w.key, l)
}

// release gives a lock back n times.
func (a *lockManager) release(ss *session, key lockTag, mode, n int) {
	l := a.locks[key]
	h := l.holders[ss]
	h.all[mode] -= n
	if h.all == [2]int{} {
		delete(l.holders, ss)
		delete(ss.advisory, key)
	}
	a.settle(key, l)
}

// settle gives a lock to those of its waiters that nobody is in the way of any more.
func (a *lockManager) settle(key lockTag, l *sessionLock) {
	for i := 0; i < len(l.queue); {
		w := l.queue[i]
		if len(l.blockers(w.ss, w.mode, i)) > 0 {
			i++
			continue
		}
		l.queue = slices.Delete(l.queue, i, i+1)
		l.grant(w.ss, key, w.mode)
		w.ss.awaits = nil
		close(w.granted)
	}
	if len(l.holders) == 0 && len(l.queue) == 0 {
		delete(a.locks, key)
		if key.kind == lockAdvisory {
			a.advisory--
		}
	}
}

// cycle finds sessions that wait for each other, beginning with the one that just began to wait: path leads from it to ss.
func (a *lockManager) cycle(ss *session, path []*lockWait, seen map[*lockWait]bool) []*lockWait {
	w := ss.awaits
	switch {
	case w == nil:
		return nil
	case len(path) > 0 && path[0] == w:
		return path
	case seen[w]:
		return nil
	}
	seen[w] = true
	path = append(path, w)
	l := a.locks[w.key]
	for _, b := range l.blockers(ss, w.mode, slices.Index(l.queue, w)) {
		if found := a.cycle(b, path, seen); found != nil {
			return found
		}
	}
	return nil
}

func deadlock(cycle []*lockWait) error {
	var lines []string
	for i, w := range cycle {
		lines = append(lines, fmt.Sprintf("Process %d waits for %s on %v; blocked by process %d.", w.ss.params.ProcessID, lockWords[w.mode], w.key,
			cycle[(i+1)%len(cycle)].ss.params.ProcessID))
	}
	return pgerr.Newf(pgerr.DeadlockDetected, "deadlock detected").WithDetail("%s", strings.Join(lines, "\n"))
}

// unlock gives a lock of the session back once, false when it has none.
func (a *lockManager) unlock(ss *session, key lockTag, mode int) bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	l := a.locks[key]
	if l == nil || l.holders[ss] == nil || l.holders[ss].session[mode] == 0 {
		return false
	}
	l.holders[ss].session[mode]--
	a.release(ss, key, mode, 1)
	return true
}

// unlockAll gives all locks of the session back, but not those of its transaction.
func (a *lockManager) unlockAll(ss *session) {
	a.mu.Lock()
	defer a.mu.Unlock()
	for key := range ss.advisory {
		h := a.locks[key].holders[ss]
		for mode, n := range h.session {
			if n > 0 {
				h.session[mode] = 0
				a.release(ss, key, mode, n)
			}
		}
	}
}

// endTx gives the locks back that the transaction took, from the given one on.
func (a *lockManager) endTx(ss *session, from int) {
	taken := ss.tx.advisory
	if len(taken) <= from {
		return
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	for _, t := range taken[from:] {
		a.release(ss, t.key, t.mode, 1)
	}
	ss.tx.advisory = taken[:from]
}

// infos are the locks as pg_locks lists them.
func (a *lockManager) infos() []catalog.LockInfo {
	a.mu.Lock()
	defer a.mu.Unlock()
	var out []catalog.LockInfo
	for key, l := range a.locks {
		info := catalog.LockInfo{Type: lockTypes[key.kind], Class: key.class, Object: key.object, Sub: key.sub()}
		switch key.kind {
		case lockSchema:
			info.Class, info.Object, info.Sub = catalog.DatabaseClass, catalog.DatabaseOID, 0
		case lockTable, lockCommit:
			info.Relation = catalog.TableOID(key.table)
		case lockAdvisory:
		}
		for ss, h := range l.holders {
			for mode, n := range h.all {
				if n > 0 {
					info.PID, info.Mode, info.Granted = ss.params.ProcessID, lockWords[mode], true
					out = append(out, info)
				}
			}
		}
		for _, w := range l.queue {
			info.PID, info.Mode, info.Granted, info.Since = w.ss.params.ProcessID, lockWords[w.mode], false, micros(w.since)
			out = append(out, info)
		}
	}
	slices.SortFunc(out, func(x, y catalog.LockInfo) int {
		return cmp.Or(cmp.Compare(x.Type, y.Type), cmp.Compare(x.Relation, y.Relation), cmp.Compare(x.Class, y.Class), cmp.Compare(x.Object, y.Object), cmp.Compare(x.Sub, y.Sub), cmp.Compare(x.PID, y.PID), cmp.Compare(x.Mode, y.Mode))
	})
	return out
}
