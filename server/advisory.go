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
	"github.com/streamdb/streamdb/sql/expr"
)

// maxAdvisoryLocks bounds the different advisory locks that all sessions together hold or wait for.
const maxAdvisoryLocks = 100_000

// advisoryKey names an advisory lock.
type advisoryKey struct {
	class, object uint32
	two           bool // two numbers of 32 bits, which name other locks than one of 64
}

func (k advisoryKey) sub() int {
	if k.two {
		return 2
	}
	return 1
}

// lockWords are the names of the two modes, exclusive and shared.
var lockWords = [2]string{"ExclusiveLock", "ShareLock"}

// advisoryMode is 0 for an exclusive lock and 1 for a shared one.
func advisoryMode(shared bool) int {
	if shared {
		return 1
	}
	return 0
}

// advisoryLocks are the advisory locks of all sessions.
type advisoryLocks struct {
	mu    sync.Mutex // guards the rest, and advisory and awaits of the sessions
	locks map[advisoryKey]*advisoryLock
}

// advisoryLock is one that somebody holds or waits for.
type advisoryLock struct {
	holders map[*session]*advisoryHold
	queue   []*advisoryWait // in the order in which they get it
}

// advisoryHold counts how often a session holds a lock, by mode: for itself, and in all.
type advisoryHold struct {
	session, all [2]int
}

// advisoryWait is a session that waits.
type advisoryWait struct {
	ss      *session
	key     advisoryKey
	mode    int
	since   time.Time
	granted chan struct{} // closed when it has the lock
}

// advisoryTaken is a lock of a transaction, to be given back at its end.
type advisoryTaken struct {
	key  advisoryKey
	mode int
}

// excludes reports whether a holder keeps others from the mode.
func (h *advisoryHold) excludes(mode int) bool { return h.all[0] > 0 || mode == 0 && h.all[1] > 0 }

// blockers are the sessions that ss has to wait for, once before the waiters from the given place of the queue on.
func (l *advisoryLock) blockers(ss *session, mode, place int) []*session {
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
func (l *advisoryLock) place(ss *session) int {
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

// lock takes a lock for the session, or for the transaction with tx, and waits for it unless try.
func (a *advisoryLocks) lock(ctx context.Context, ss *session, key advisoryKey, mode int, tx, try bool) (bool, error) {
	w, got, err := a.request(ss, key, mode, try)
	if err != nil {
		return false, err
	}
	if w != nil {
		if err := a.wait(ctx, w); err != nil {
			return false, err
		}
		got = true
	}
	switch {
	case !got:
		return false, nil
	case tx:
		ss.tx.advisory = append(ss.tx.advisory, advisoryTaken{key: key, mode: mode})
	default:
		a.mu.Lock()
		a.locks[key].holders[ss].session[mode]++
		a.mu.Unlock()
	}
	return true, nil
}

// request takes a lock at once, or queues for it unless try.
func (a *advisoryLocks) request(ss *session, key advisoryKey, mode int, try bool) (w *advisoryWait, got bool, err error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	l := a.locks[key]
	if l == nil {
		if len(a.locks) >= maxAdvisoryLocks {
			return nil, false, pgerr.Newf(pgerr.OutOfMemory, "out of shared memory").WithHint("There are %d advisory locks.", len(a.locks))
		}
		l = &advisoryLock{holders: map[*session]*advisoryHold{}}
		if a.locks == nil {
			a.locks = map[advisoryKey]*advisoryLock{}
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
	w = &advisoryWait{ss: ss, key: key, mode: mode, since: time.Now(), granted: make(chan struct{})}
	l.queue = slices.Insert(l.queue, place, w)
	ss.awaits = w
	if cycle := a.cycle(ss, nil, map[*advisoryWait]bool{}); cycle != nil {
		a.leave(w)
		return nil, false, deadlock(cycle)
	}
	return w, false, nil
}

// wait blocks until w has its lock.
func (a *advisoryLocks) wait(ctx context.Context, w *advisoryWait) error {
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

func (l *advisoryLock) grant(ss *session, key advisoryKey, mode int) {
	h := l.holders[ss]
	if h == nil {
		h = &advisoryHold{}
		l.holders[ss] = h
		if ss.advisory == nil {
			ss.advisory = map[advisoryKey]struct{}{}
		}
		ss.advisory[key] = struct{}{}
	}
	h.all[mode]++
}

// leave takes a waiter out of its queue.
func (a *advisoryLocks) leave(w *advisoryWait) {
	l := a.locks[w.key]
	i := slices.Index(l.queue, w)
	l.queue = slices.Delete(l.queue, i, i+1)
	w.ss.awaits = nil
	a.settle(w.key, l)
}

// release gives a lock back n times.
func (a *advisoryLocks) release(ss *session, key advisoryKey, mode, n int) {
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
func (a *advisoryLocks) settle(key advisoryKey, l *advisoryLock) {
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
	}
}

// cycle finds sessions that wait for each other, beginning with the one that just began to wait: path leads from it to ss.
func (a *advisoryLocks) cycle(ss *session, path []*advisoryWait, seen map[*advisoryWait]bool) []*advisoryWait {
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

func deadlock(cycle []*advisoryWait) error {
	var lines []string
	for i, w := range cycle {
		lines = append(lines, fmt.Sprintf("Process %d waits for %s on advisory lock [%d,%d,%d,%d]; blocked by process %d.", w.ss.params.ProcessID,
			lockWords[w.mode], catalog.DatabaseOID, w.key.class, w.key.object, w.key.sub(), cycle[(i+1)%len(cycle)].ss.params.ProcessID))
	}
	return pgerr.Newf(pgerr.DeadlockDetected, "deadlock detected").WithDetail("%s", strings.Join(lines, "\n"))
}

// unlock gives a lock of the session back once, false when it has none.
func (a *advisoryLocks) unlock(ss *session, key advisoryKey, mode int) bool {
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
func (a *advisoryLocks) unlockAll(ss *session) {
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
func (a *advisoryLocks) endTx(ss *session, from int) {
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

// infos are the advisory locks as pg_locks lists them.
func (a *advisoryLocks) infos() []catalog.LockInfo {
	a.mu.Lock()
	defer a.mu.Unlock()
	var out []catalog.LockInfo
	for key, l := range a.locks {
		info := catalog.LockInfo{Class: key.class, Object: key.object, Sub: key.sub()}
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
		return cmp.Or(cmp.Compare(x.Class, y.Class), cmp.Compare(x.Object, y.Object), cmp.Compare(x.Sub, y.Sub), cmp.Compare(x.PID, y.PID), cmp.Compare(x.Mode, y.Mode))
	})
	return out
}

// AdvisoryLock implements expr.SessionActions.
func (a *actions) AdvisoryLock(l expr.AdvisoryLock, tx, try bool) (bool, error) {
	if err := a.inSession("an advisory lock"); err != nil {
		return false, err
	}
	ctx, cancel := a.ss.lockCtx(a.ctx)
	defer cancel()
	return a.ss.srv.advisory.lock(ctx, a.ss, advisoryKey{class: l.Class, object: l.Object, two: l.Two}, advisoryMode(l.Shared), tx, try)
}

// AdvisoryUnlock implements expr.SessionActions.
func (a *actions) AdvisoryUnlock(l expr.AdvisoryLock) (bool, error) {
	if err := a.inSession("an advisory lock"); err != nil {
		return false, err
	}
	mode := advisoryMode(l.Shared)
	if a.ss.srv.advisory.unlock(a.ss, advisoryKey{class: l.Class, object: l.Object, two: l.Two}, mode) {
		return true, nil
	}
	return false, a.ss.notice("WARNING", pgerr.Warning, "you don't own a lock of type %s", lockWords[mode])
}

// AdvisoryUnlockAll implements expr.SessionActions.
func (a *actions) AdvisoryUnlockAll() error {
	if err := a.inSession("an advisory lock"); err != nil {
		return err
	}
	a.ss.srv.advisory.unlockAll(a.ss)
	return nil
}
