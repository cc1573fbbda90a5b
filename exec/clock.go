package exec

import (
	"context"
	"errors"
	"sync"
	"sync/atomic"
	"time"

	"github.com/streamdb/streamdb/checkpoint"
	"github.com/streamdb/streamdb/internal/pgerr"
)

// Limits of the clock's loop.
const (
	maxCommitBatch  = 512                    // transactions that share one fsync and one epoch
	commitQueueCap  = 1024                   // transactions waiting
	keptCheckpoints = 64                     // checkpoint epochs remembered for drivers that meet them before they are asked for
	closeTimes      = 4096                   // epochs whose time of closing is remembered, for the lag of jobs
	asyncSyncDelay  = 200 * time.Millisecond // longest time that a transaction which does not wait is not durable
)

// errClosed is returned to whoever asks after the engine was closed.
var errClosed = pgerr.Newf(pgerr.AdminShutdown, "the server is shutting down")

// clock hands out epochs. One goroutine owns it and with it all tables: it resolves and logs transactions, closes epochs, and cuts the
// tables' checkpoints, so none of these needs a lock.
type clock struct {
	engine *Engine
	closed atomic.Uint64 // newest closed epoch; the open one is closed+1
	began  uint64        // newest closed epoch when it started; between the last change of an input before that and this one nothing happened
	calls  chan func()   // run by the owner
	txns   chan *commitReq
	parked []*commitReq // wait for a large transaction that is put into their tables; belongs to the owner
	live   atomic.Int64 // jobs whose sources may produce rows by themselves
	liveCh chan struct{}
	// closedAt holds when the newest epochs were closed, in Unix nanoseconds, by epoch modulo its length.
	closedAt [closeTimes]atomic.Int64

	// unsynced says how far the write-ahead log is not durable yet after transactions that did not wait for it; late is when it will be made
	// so. Both belong to the owner.
	unsynced walMark
	late     <-chan time.Time

	quit    chan struct{} // closed to stop
	stopped chan struct{} // closed when the owner has ended: no transaction is decided after that
	done    sync.WaitGroup

	mu          sync.Mutex
	checkpoints []checkpointEpoch // ascending
	lastBegin   uint64            // closed epoch when the last checkpoint was begun
}

type checkpointEpoch struct {
	epoch, id uint64
	at        time.Time
	cut       checkpoint.Cut
}

func newClock(e *Engine, start uint64) *clock {
	c := &clock{
		engine: e, calls: make(chan func()), txns: make(chan *commitReq, commitQueueCap), liveCh: make(chan struct{}, 1),
		quit: make(chan struct{}), stopped: make(chan struct{}),
	}
	c.closed.Store(start)
	return c
}

func (c *clock) start() {
	c.done.Add(1)
	go func() {
		defer c.done.Done()
		defer close(c.stopped)
		c.run()
	}()
}

func (c *clock) stop() {
	close(c.quit)
	c.done.Wait()
}

func (c *clock) run() {
	ticker := time.NewTicker(c.engine.cfg.EpochInterval)
	defer ticker.Stop()
	ticking := true
	defer c.syncLate()
	for {
		if live := c.live.Load() > 0; live != ticking {
			ticking = live
			if live {
				ticker.Reset(c.engine.cfg.EpochInterval)
			} else {
				ticker.Stop()
			}
		}
		select {
		case <-c.quit:
			return
		case <-c.liveCh:
		case <-c.late:
			c.syncLate()
		case f := <-c.calls:
			f()
		case t := <-c.txns:
			c.commit(t)
		case <-ticker.C:
			if c.live.Load() > 0 {
				c.close(nil)
				c.engine.wakeSources()
			}
		}
	}
}

// setLive counts jobs with sources that may produce rows; the clock ticks by itself only while there are some.
func (c *clock) setLive(delta int64) {
	c.live.Add(delta)
	select {
	case c.liveCh <- struct{}{}:
	default:
	}
}

// call runs f on the clock's goroutine and waits for it.
func (c *clock) call(ctx context.Context, f func()) error {
	done := make(chan struct{})
	select {
	case c.calls <- func() { f(); close(done) }:
	case <-c.quit:
		return errClosed
	case <-ctx.Done():
		return context.Cause(ctx)
	}
	<-done
	return nil
}

// tick closes the open epoch now and returns it.
func (c *clock) tick(ctx context.Context) (epoch uint64, err error) {
	err = c.call(ctx, func() {
		epoch = c.close(nil)
		c.engine.wakeSources()
	})
	return epoch, err
}

// close ends the open epoch: the tables in changed publish and complete their logs, then the epoch becomes visible as closed, then readers
// are woken. In this order nobody can see the epoch closed and miss one of its changes. Runs on the owner.
func (c *clock) close(changed []*Table) uint64 {
	epoch := c.closed.Load() + 1
	for _, t := range changed {
		t.publish(epoch, epoch-1)
		t.rel.Log.Seal(epoch)
	}
	c.closedAt[epoch%closeTimes].Store(time.Now().UnixNano())
	c.closed.Store(epoch)
	for _, t := range changed {
		t.rel.Log.Wake()
	}
	c.engine.progress.notify()
	return epoch
}

// openSince returns when the epoch after the given one was closed: since then a relation at that epoch has been behind. It is zero for a
// relation that is not.
func (c *clock) openSince(epoch uint64) time.Time {
	now := c.closed.Load()
	if epoch >= now {
		return time.Time{}
	}
	next := max(epoch+1, now-min(now, closeTimes-1))
	if at := c.closedAt[next%closeTimes].Load(); at != 0 {
		return time.Unix(0, at)
	}
	return c.engine.started // closed before this process began
}

// beginCheckpoint makes the open epoch the one at whose end checkpoint id cuts, and closes it.
func (c *clock) beginCheckpoint(id uint64, cut checkpoint.Cut) (epoch uint64, err error) {
	// A cut must not hold a part of a transaction.
	c.engine.bulk.Lock()
	defer c.engine.bulk.Unlock()
	var broken error
	err = c.call(context.Background(), func() {
		if broken = c.engine.tables.broken; broken != nil {
			return
		}
		epoch = c.closed.Load() + 1
		c.mu.Lock()
		c.checkpoints = append(c.checkpoints, checkpointEpoch{epoch: epoch, id: id, at: time.Now(), cut: cut})
		if len(c.checkpoints) > keptCheckpoints {
			c.checkpoints = append(c.checkpoints[:0:0], c.checkpoints[1:]...)
		}
		c.lastBegin = epoch
		c.mu.Unlock()
		if cut.Means(TablesID) {
			c.engine.tables.seal(id, epoch, cut)
		}
		c.close(nil)
		c.engine.wakeSources()
	})
	return epoch, errors.Join(err, broken)
}

func (c *clock) quiet() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.closed.Load() == c.lastBegin
}

// checkpointIn returns the first checkpoint epoch in (after, through] of those that mean the job.
func (c *clock) checkpointIn(job, after, through uint64) (checkpointEpoch, bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, cp := range c.checkpoints {
		if cp.epoch > after && cp.epoch <= through && cp.cut.Means(job) {
			return cp, true
		}
	}
	return checkpointEpoch{}, false
}
