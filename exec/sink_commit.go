package exec

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/streamdb/streamdb/checkpoint"
	"github.com/streamdb/streamdb/connector"
	"github.com/streamdb/streamdb/internal/pgerr"
	"github.com/streamdb/streamdb/state"
)

// Commits are tried again with growing pauses. A job whose commits fail more often in a row starts again from its last checkpoint, which is a commit, too.
const (
	commitAttempts   = 16
	commitPauseFirst = 100 * time.Millisecond
	commitPauseLast  = 30 * time.Second
)

// commitOverdue is after what time a checkpoint that is not known to be complete is followed by another one: its notification may have been lost.
const commitOverdue = 10 * time.Second

// abandonTimeout bounds how long a sink that is dropped tries to clear away what it has not committed.
const abandonTimeout = 10 * time.Second

// SinkSpec is what a job writes to. Dir and Failpoints are filled in.
type SinkSpec = connector.SinkConfig

// sinkRun is the sink of a run: what its subtasks have sealed, and the goroutine that commits it.
//
//	barrier: sealed ─▶ flushed ─▶ acknowledged ─▶ HEAD ─▶ notified, or restored ─▶ committed ─▶ forgotten at the next barrier
//
// A cut knows all committables of the barrier that made it, those of earlier ones that were not committed by then too: only the newest complete cut matters. So
// notifications may be lost, checkpoints aborted, and several be in flight.
type sinkRun struct {
	run     *run
	sink    connector.Sink
	mode    connector.SinkMode
	exactly bool

	committed atomic.Uint64 // epoch

	flushing sync.Mutex // held while flushes run, in their order

	mu       sync.Mutex
	flushes  []func(context.Context) error // due, oldest first
	cuts     []*sinkCut                    // oldest first
	complete uint64                        // newest completed checkpoint that commits
	since    time.Time                     // when the oldest cut was made
	next     *sinkCut                      // of the barrier that the driver is at
	taken    bool                          // a cut is being committed
	wake     chan struct{}
}

type sinkCut struct {
	checkpoint, epoch uint64
	spared            bool // a savepoint commits nothing
	views             []*state.View
}

func (c *sinkCut) close() {
	if c == nil {
		return
	}
	for _, v := range c.views {
		v.Close()
	}
}

// openSink opens the sink of a job that has one.
func (r *run) openSink() error {
	if r.job.Spec.Sink == nil {
		return nil
	}
	spec := r.job.target.Load()
	s, err := r.job.openSink(spec)
	if err != nil {
		return err
	}
	r.sink = &sinkRun{run: r, sink: s, mode: spec.Mode, exactly: spec.ExactlyOnce, wake: make(chan struct{}, 1)}
	return nil
}

func (j *Job) openSink(spec *SinkSpec) (connector.Sink, error) {
	c, err := j.engine.cfg.Connectors.LookupSink(spec.Options[connector.OptionConnector])
	if err != nil {
		return nil, err
	}
	cfg := *spec
	cfg.Dir, cfg.Failpoints, cfg.Writer = j.sinkDir(), j.engine.cfg.Failpoints, j.engine.cfg.Writer
	return c.Sink(&cfg)
}

func (j *Job) sinkDir() string {
	return filepath.Join(j.engine.cfg.Dir, "sinks", fmt.Sprint(j.Spec.ID))
}

// begin takes up what the restored state holds that may not be committed.
func (s *sinkRun) begin() {
	r := s.run
	if r.from == nil {
		return
	}
	cut := &sinkCut{checkpoint: r.from.Checkpoint, epoch: r.done}
	for _, t := range r.subtasks {
		if t.writer != nil && len(t.writer.held) > 0 {
			cut.views = append(cut.views, t.writer.part.View())
		}
	}
	s.complete = cut.checkpoint
	s.add(cut)
}

func (s *sinkRun) add(c *sinkCut) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(s.cuts) == 0 {
		s.since = time.Now()
	}
	if !s.exactly { // it is complete, and has what earlier ones have
		for _, old := range s.cuts {
			old.close()
		}
		s.cuts = s.cuts[:0]
	}
	s.cuts = append(s.cuts, c)
	s.poke()
}

func (s *sinkRun) poke() {
	select {
	case s.wake <- struct{}{}:
	default:
	}
}

// passed takes what the subtasks sealed at a barrier that all have passed.
func (s *sinkRun) passed(b checkpoint.Barrier) {
	if s == nil {
		return
	}
	c := &sinkCut{checkpoint: b.Checkpoint, epoch: b.Epoch, spared: b.Kind == checkpoint.KindSavepoint && (b.Savepoint == nil || !b.Savepoint.Stop)}
	wrote := false
	s.mu.Lock()
	for _, t := range s.run.subtasks {
		if t.writer == nil {
			continue
		}
		if r := t.writer.take(); r != nil {
			c.views = append(c.views, r.view)
			wrote = wrote || r.wrote
			if r.flush != nil {
				s.flushes = append(s.flushes, r.flush)
			}
		}
	}
	s.next.close()
	s.next = nil
	if s.exactly {
		s.next = c
	}
	s.mu.Unlock()
	switch {
	case s.exactly:
	case wrote:
		s.add(c)
	default:
		c.close()
	}
}

// cut makes what the subtasks sealed at the barrier of a checkpoint wait for its completion.
func (s *sinkRun) cut() {
	if s == nil || !s.exactly {
		return
	}
	s.mu.Lock()
	c := s.next
	s.next = nil
	s.mu.Unlock()
	if c != nil {
		s.add(c)
	}
}

// flush makes durable all that was sealed so far.
func (s *sinkRun) flush(ctx context.Context) error {
	if s == nil {
		return nil
	}
	s.flushing.Lock()
	defer s.flushing.Unlock()
	for {
		s.mu.Lock()
		if len(s.flushes) == 0 {
			s.mu.Unlock()
			return nil
		}
		f := s.flushes[0]
		s.mu.Unlock()
		if err := f(ctx); err != nil {
			return err
		}
		s.mu.Lock()
		s.flushes = s.flushes[1:]
		s.mu.Unlock()
	}
}

// precommit makes durable what the sink has sealed.
func (r *run) precommit(ctx context.Context) error {
	if r.sink == nil {
		return nil
	}
	fp := r.engine.cfg.Failpoints
	if err := fp.Hit("sink/before-precommit"); err != nil {
		return err
	}
	if err := r.sink.flush(ctx); err != nil {
		return err
	}
	return fp.Hit("sink/after-precommit")
}

// completed tells that checkpoint id is durable, and by that all earlier ones.
func (s *sinkRun) completed(id uint64) {
	if s == nil {
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	for i, c := range s.cuts {
		if c.checkpoint == id && c.spared {
			c.close()
			s.cuts = append(s.cuts[:i:i], s.cuts[i+1:]...)
			return
		}
	}
	s.complete = max(s.complete, id)
	s.poke()
}

// aborted tells that checkpoint id will not be complete: what was sealed for it is part of the next one.
func (s *sinkRun) aborted(id uint64) {
	if s == nil || !s.exactly {
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	for i, c := range s.cuts {
		if c.checkpoint == id && (c.spared || id > s.complete) {
			c.close()
			s.cuts = append(s.cuts[:i:i], s.cuts[i+1:]...)
			return
		}
	}
}

// ready takes the newest complete cut, with all before it out of the list. overdue: there is none, and has not been for long.
func (s *sinkRun) ready() (c *sinkCut, overdue bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	n := 0
	for i, x := range s.cuts {
		if !s.exactly || x.checkpoint <= s.complete && !x.spared {
			n = i + 1
		}
	}
	if n == 0 {
		if overdue = len(s.cuts) > 0 && time.Since(s.since) >= commitOverdue; overdue {
			s.since = time.Now()
		}
		return nil, overdue
	}
	for _, old := range s.cuts[:n-1] {
		old.close()
	}
	c = s.cuts[n-1]
	s.cuts = append([]*sinkCut(nil), s.cuts[n:]...)
	s.since, s.taken = time.Now(), true
	return c, false
}

// pending is the epoch up to which rows are in the target, when there are some that are not.
func (s *sinkRun) pending() (epoch uint64, ok bool) {
	if s == nil {
		return 0, false
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.committed.Load(), s.taken || len(s.cuts) > 0
}

// loop commits what is complete, until the run ends. It owns what it takes from the list.
func (s *sinkRun) loop() error {
	r := s.run
	since := uint64(0)
	if r.from != nil {
		since = r.from.Epoch
	}
	first, _ := s.ready()
	err := s.patiently("recover", func() error { return s.sink.Recover(r.ctx, since, s.list(first, 0)) })
	if err != nil {
		first.close()
	}
	for c := first; err == nil; {
		if c != nil {
			err = s.commit(c)
			c = nil
			continue
		}
		var overdue bool
		if c, overdue = s.ready(); c != nil {
			continue
		}
		if overdue {
			r.engine.acker.Request(r.job.Spec.ID)
		}
		t := time.NewTimer(commitOverdue)
		select {
		case <-s.wake:
		case <-t.C:
		case <-r.stop:
			err = errStopped
		}
		t.Stop()
	}
	return err
}

// commit commits a cut and closes it.
func (s *sinkRun) commit(c *sinkCut) error {
	defer c.close()
	fp := s.run.engine.cfg.Failpoints
	list := s.list(c, s.committed.Load())
	if list.Len > 0 {
		if err := s.patiently("commit", func() error {
			if err := s.flush(s.run.ctx); err != nil {
				return err
			}
			if err := fp.Hit("sink/before-commit"); err != nil {
				return err
			}
			if err := s.sink.Commit(s.run.ctx, c.epoch, list); err != nil {
				return err
			}
			return fp.Hit("sink/after-commit")
		}); err != nil {
			return err
		}
	}
	s.mu.Lock()
	s.committed.Store(c.epoch)
	s.taken = false
	s.mu.Unlock()
	s.run.engine.progress.notify()
	return nil
}

// patiently tries f until it succeeds, fails too often, or the run ends.
func (s *sinkRun) patiently(what string, f func() error) error {
	pause := commitPauseFirst
	for n := 1; ; n++ {
		err := f()
		if err == nil {
			s.run.job.untroubled()
			return nil
		}
		if s.run.stopped() {
			return errStopped
		}
		if errors.Is(err, connector.ErrSinkTaken) {
			s.run.job.taken.Store(&err)
			return err
		}
		err = fmt.Errorf("%s of sink: %w", what, err)
		if n == commitAttempts {
			return err
		}
		s.run.job.trouble(err)
		s.run.engine.cfg.Logger.Warn().Err(err).Str("job", s.run.job.Spec.Name).Dur("retry_in", pause).Msg("sink is not reached: it is tried again")
		t := time.NewTimer(pause)
		select {
		case <-t.C:
		case <-s.run.stop:
			t.Stop()
			return errStopped
		}
		pause = min(2*pause, commitPauseLast)
	}
}

// list is what a cut has after an epoch.
func (s *sinkRun) list(c *sinkCut, after uint64) *connector.Committables {
	type place struct {
		committable
		view *state.View
	}
	var places []place
	var broken error
	if c != nil {
		for _, v := range c.views {
			found, err := committables(v)
			if err != nil {
				broken = err
			}
			for _, f := range found {
				if f.epoch > after {
					places = append(places, place{f, v})
				}
			}
		}
		slices.SortFunc(places, func(a, b place) int { return compareCommittables(a.committable, b.committable) })
	}
	var key []byte
	n, last := len(places), uint64(0)
	if n > 0 {
		last = places[n-1].epoch
	}
	if broken != nil {
		n = 1
	}
	return &connector.Committables{Len: n, Last: last, Each: func(fn func(uint64, []byte) error) error {
		if broken != nil {
			return broken
		}
		for _, p := range places {
			key = committableKey(key[:0], p.epoch, p.number)
			b, ok, err := p.view.Get(p.kg, key)
			if err == nil && !ok {
				err = pgerr.Newf(pgerr.InternalError, "a committable of epoch %d is gone", p.epoch)
			}
			if err == nil {
				err = fn(p.epoch, b)
			}
			if err != nil {
				return err
			}
		}
		return nil
	}}
}

// close gives up what waits; the run's goroutines have ended.
func (s *sinkRun) close() error {
	if s == nil {
		return nil
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.next.close()
	for _, c := range s.cuts {
		c.close()
	}
	s.next, s.cuts = nil, nil
	return s.sink.Close()
}

// AwaitCommits waits until all that a complete checkpoint of the job has is in the target of its sink.
func (j *Job) AwaitCommits(ctx context.Context) error {
	for {
		changed := j.engine.progress.wait()
		j.mu.Lock()
		r := j.run
		j.mu.Unlock()
		if r == nil || r.sink.idle() || j.Status() == JobFailed {
			return nil
		}
		select {
		case <-changed:
		case <-j.stopCh:
			return nil
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
}

// AwaitCommits waits until all that complete checkpoints have is in the targets of all sinks, or ctx ends: it is committed at the next start then.
func (e *Engine) AwaitCommits(ctx context.Context) {
	for _, j := range e.Jobs() {
		if j.AwaitCommits(ctx) != nil {
			return
		}
	}
}

// idle reports that nothing waits for its commit that may be committed.
func (s *sinkRun) idle() bool {
	if s == nil {
		return true
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	return !s.taken && !slices.ContainsFunc(s.cuts, func(c *sinkCut) bool { return !s.exactly || c.checkpoint <= s.complete && !c.spared })
}

// trouble notes an error that does not end the run.
func (j *Job) trouble(err error) {
	j.mu.Lock()
	defer j.mu.Unlock()
	j.troubled, j.troubleAt = err, time.Now()
}

// untroubled notes that what trouble noted is over.
func (j *Job) untroubled() {
	j.mu.Lock()
	defer j.mu.Unlock()
	j.troubled = nil
}

// SetSink makes the job write to another target, or with other options, and starts it again from its last checkpoint.
func (e *Engine) SetSink(j *Job, s *SinkSpec) {
	j.target.Store(s)
	if j.taken.Swap(nil) != nil { // a new matter, unless the next run finds the same
		j.mu.Lock()
		j.lastErr, j.failedAt = nil, time.Time{}
		j.mu.Unlock()
	}
	e.restart([]*Job{j}, nil)
}

// abandon clears away what a sink that is no more has not committed.
func (j *Job) abandon() {
	if j.Spec.Sink == nil {
		return
	}
	s, err := j.openSink(j.target.Load())
	if err == nil {
		ctx, cancel := context.WithTimeout(context.Background(), abandonTimeout)
		defer cancel()
		err = errors.Join(s.Abandon(ctx), s.Close(), os.RemoveAll(j.sinkDir()))
	}
	if err != nil {
		j.engine.cfg.Logger.Warn().Err(err).Str("job", j.Spec.Name).Msg("clear away what a dropped sink has not committed")
	}
}

// finishSinks asks for a checkpoint of the sinks that read from the job, which takes nothing in any more, or of itself: the last rows need not wait for the interval.
func (j *Job) finishSinks() {
	for _, k := range j.engine.withReaders([]*Job{j}) {
		if k.Spec.Sink != nil {
			j.engine.acker.Request(k.Spec.ID)
		}
	}
}
