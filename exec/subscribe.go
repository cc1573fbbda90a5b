package exec

import (
	"context"
	"io"
	"math"
	"sync"
	"sync/atomic"
	"time"

	"github.com/streamdb/streamdb/internal/pgerr"
	"github.com/streamdb/streamdb/storage/changelog"
	"github.com/streamdb/streamdb/types"
)

// Limits of subscriptions.
const (
	progressEvery   = time.Second // at most so often progress without changes is told
	maxFetchedBytes = 4 << 20     // of changes that a subscription takes from the log at a time; one epoch more at most
	reservedEpochs  = 1 << 16     // are reserved at a time
)

// firstTemporary is where the ids of temporary jobs begin; the catalog's stay below.
const firstTemporary = 1 << 48

// TemporaryID returns an id for a temporary job and its relation.
func (e *Engine) TemporaryID() uint64 { return firstTemporary + e.temporaries.Add(1) }

// SubscribeOptions say what a subscription gives.
type SubscribeOptions struct {
	Columns  []int   // stored columns
	Snapshot bool    // the rows there are first
	Progress bool    // tell of epochs without changes, too
	AsOf     *uint64 // instead of now: go on after this epoch
	UpTo     uint64  // the last epoch; math.MaxUint64: none
	// Waits is called, once, when the relation's job is paused and the beginning has to wait for it.
	Waits func() error
}

// Batch is a part of what a subscription gives, lent until the next one.
type Batch struct {
	Epoch uint64
	Rows  *types.Chunk // nil: none
	// Complete: all changes up to Epoch have been given with this batch.
	Complete bool
}

// Subscription gives the rows of a relation at one epoch and then all changes, epoch by epoch: those of an epoch are consolidated and complete before
// the next begins. Not safe for concurrent use.
type Subscription struct {
	engine *Engine
	rel    *Relation
	job    *Job // that belongs to the subscription; nil when a relation of the catalog is read
	layout *types.RowLayout
	types  []types.Type // of the columns
	o      SubscribeOptions
	feed   feed
	wake   chan struct{}

	version *Version
	rows    *versionScan

	done    uint64            // everything up to this epoch was given
	given   atomic.Uint64     // the same, for others
	queue   []changelog.Entry // changes taken and not given
	out     []*types.Chunk    // of the first of them
	through uint64            // what was taken is complete up to here
	told    time.Time         // of progress, last
}

// feed is where a subscription reads changes.
type feed interface {
	// closed returns the newest epoch that can be read.
	closed() uint64
	// take returns the next entries after one epoch and up to another, not many more than maxFetchedBytes, and up to which epoch they are all.
	take(after, through uint64) (es []changelog.Entry, reached uint64, err error)
	// err is why the feed has ended; nil while it goes on.
	err(after uint64) error
	close()
}

// Subscribe begins a subscription to a relation of the catalog.
func (e *Engine) Subscribe(ctx context.Context, rel *Relation, o SubscribeOptions) (*Subscription, error) {
	s := &Subscription{engine: e, rel: rel, layout: rel.Layout(), o: o, wake: make(chan struct{}, 1)}
	var err error
	if h := rel.history.Load(); h != nil {
		f := h.follow(s)
		s.feed = f
		err = s.beginKept(ctx, f)
	} else {
		s.feed = &liveFeed{rel: rel, reader: rel.Log.Follow(s.poke)}
		err = s.begin(ctx, true)
	}
	if err != nil {
		s.Close()
		return nil, err
	}
	return s, nil
}

// heldUpAfter is how long a subscription waits for rows of what is paused or fails.
const heldUpAfter = 5 * time.Second

// SubscribeJob makes a temporary job and begins a subscription to its result, whose end is the end of the job.
func (e *Engine) SubscribeJob(ctx context.Context, spec JobSpec, o SubscribeOptions) (*Subscription, error) {
	spec.Temporary = true
	j, err := e.CreateJob(spec, nil)
	if err != nil {
		return nil, err
	}
	s := &Subscription{engine: e, rel: j.rel, job: j, layout: j.rel.Layout(), o: o, wake: make(chan struct{}, 1)}
	s.feed = &liveFeed{rel: j.rel, reader: j.rel.Log.Follow(s.poke)}
	j.Start()
	err = j.WaitCaughtUp(ctx, heldUpAfter, j.HeldUp)
	if err == nil {
		err = s.begin(ctx, false)
	}
	if err != nil {
		s.Close()
		return nil, err
	}
	return s, nil
}

func (s *Subscription) poke() {
	select {
	case s.wake <- struct{}{}:
	default:
	}
}

// begin pins the rows that the subscription begins with. open: an epoch may have begun before the feed was there, so it must be a later one.
func (s *Subscription) begin(ctx context.Context, open bool) error {
	s.typed()
	least := uint64(0)
	if open {
		var err error
		if least, err = s.engine.clock.tick(ctx); err != nil {
			return err
		}
	}
	if s.o.AsOf != nil && *s.o.AsOf > least {
		return errFuture(*s.o.AsOf, least)
	}
	p, err := s.pin(ctx, least)
	if err != nil {
		return err
	}
	if s.o.AsOf == nil {
		return s.from(p)
	}
	defer p.Release()
	if first := p.Versions[s.rel.ID].Epoch; first > *s.o.AsOf {
		return errGone(s.rel.Name, *s.o.AsOf, first)
	}
	s.done, s.through = *s.o.AsOf, *s.o.AsOf
	return nil
}

// beginKept is begin where the relation keeps its changes.
func (s *Subscription) beginKept(ctx context.Context, f *historyFeed) error {
	s.typed()
	newest, err := s.engine.clock.tick(ctx)
	if err != nil {
		return err
	}
	if s.o.AsOf != nil && *s.o.AsOf > newest {
		return errFuture(*s.o.AsOf, newest)
	}
	for {
		n, since, err := s.awaitWhole(ctx, f)
		if err != nil {
			return err
		}
		if s.o.AsOf != nil {
			s.done, s.through = *s.o.AsOf, *s.o.AsOf
			_, _, err := f.take(s.done, s.done)
			return err
		}
		p, err := s.pin(ctx, since)
		if err != nil {
			return err
		}
		// What is given can be gone on from after a crash.
		if err := s.Reach(ctx, p.Epoch); err != nil {
			p.Release()
			return err
		}
		if again, _, whole := f.whole(); whole && again == n && f.closed() >= p.Epoch {
			return s.from(p)
		}
		p.Release() // it is of a run of the view that was undone meanwhile
	}
}

// awaitWhole waits until the history follows the relation.
func (s *Subscription) awaitWhole(ctx context.Context, f *historyFeed) (n int64, since uint64, err error) {
	for {
		changed := s.engine.progress.wait()
		n, since, whole := f.whole()
		if whole {
			return n, since, nil
		}
		if f.h.stopped() {
			return 0, 0, f.err(0)
		}
		if err := s.advances(); err != nil {
			return 0, 0, err
		}
		select {
		case <-s.wake:
		case <-changed:
		case <-s.rel.gone:
			return 0, 0, errDropped(s.rel)
		case <-ctx.Done():
			return 0, 0, context.Cause(ctx)
		}
	}
}

// from begins with what was pinned.
func (s *Subscription) from(p *Pinned) error {
	s.version = p.Versions[s.rel.ID]
	s.done = min(p.Epoch, s.o.UpTo) // the content has been the same since its last change
	s.through = s.done
	if first := s.version.Epoch; s.done < first {
		return pgerr.Newf(pgerr.InvalidParameterValue, "UP TO %d is before the first epoch of the subscription, %d", s.done, first)
	}
	if !s.o.Snapshot {
		s.endSnapshot()
		return nil
	}
	s.rows = newVersionScan(s.version, s.o.Columns, 0, 1, s.engine.cfg.ChunkRows)
	return nil
}

func (s *Subscription) typed() {
	for _, c := range s.o.Columns {
		s.types = append(s.types, s.layout.Types[c])
	}
}

func errFuture(epoch, newest uint64) error {
	return pgerr.Newf(pgerr.InvalidParameterValue, "epoch %d has not been reached: the newest is %d", epoch, newest)
}

func errGone(name string, after, first uint64) error {
	return pgerr.Newf(pgerr.ObjectNotInPrerequisiteState, "the changes of %q after epoch %d are not kept any more", name, after).
		WithDetail("The earliest epoch to go on from is %d.", first).
		WithHint("SUBSCRIBE anew with a snapshot. ALTER … SET (retention = '1 hour') keeps changes for that long.")
}

// pin pins the relation at an epoch from least on, waiting for it.
func (s *Subscription) pin(ctx context.Context, least uint64) (*Pinned, error) {
	for {
		changed := s.engine.progress.wait()
		if p := s.engine.tryPin([]*Relation{s.rel}, least, true); p != nil {
			return p, nil
		}
		if err := s.feed.err(0); err != nil {
			return nil, err
		}
		if err := s.advances(); err != nil {
			return nil, err
		}
		select {
		case <-changed:
		case <-s.rel.gone:
			return nil, errDropped(s.rel)
		case <-ctx.Done():
			return nil, context.Cause(ctx)
		}
	}
}

// advances fails when the relation never will, and tells who waits for it when it is paused.
func (s *Subscription) advances() error {
	j := s.rel.job
	if j == nil {
		return nil
	}
	if j.terminal() {
		return pgerr.Newf(pgerr.ObjectNotInPrerequisiteState, "%q does not change any more: its job was stopped", s.rel.Name)
	}
	if waits := s.o.Waits; waits != nil && j.isPaused() {
		s.o.Waits = nil
		return waits()
	}
	return nil
}

func errDropped(r *Relation) error {
	if r.Superseded() {
		return pgerr.Newf(pgerr.ObjectNotInPrerequisiteState, "the query of materialized view %q was replaced", r.Name).WithHint("SUBSCRIBE anew.")
	}
	return pgerr.Newf(pgerr.UndefinedTable, "relation %q was dropped", r.Name)
}

// Close ends the subscription.
func (s *Subscription) Close() {
	s.feed.close()
	s.endSnapshot()
	s.queue, s.out = nil, nil
	if s.job != nil {
		if err := s.engine.DropJob(s.job.Spec.ID); err != nil {
			s.engine.cfg.Logger.Warn().Err(err).Msg("remove the state of a subscription")
		}
		s.job = nil
	}
}

func (s *Subscription) endSnapshot() {
	if s.rows != nil {
		s.rows.close()
		s.rows = nil
	}
	if s.version != nil {
		s.version.Release()
		s.version = nil
	}
}

// Reach waits until everything up to an epoch can be given, as far as the relation advances.
func (s *Subscription) Reach(ctx context.Context, epoch uint64) error {
	for {
		changed := s.engine.progress.wait()
		if s.feed.closed() >= epoch || s.rel.job != nil && (!s.rel.job.advancing() || s.rel.job.isPaused()) {
			return nil
		}
		select {
		case <-changed:
		case <-s.wake:
		case <-s.rel.gone:
			return errDropped(s.rel)
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
}

// Next returns what comes next, io.EOF after the last epoch asked for. It waits for at most the given time, for ever when that is negative, and
// returns nil when nothing came.
func (s *Subscription) Next(ctx context.Context, wait time.Duration) (*Batch, error) {
	var end <-chan time.Time
	if wait > 0 {
		t := time.NewTimer(wait)
		defer t.Stop()
		end = t.C
	}
	for {
		var changed <-chan struct{}
		if wait != 0 && (s.o.UpTo != math.MaxUint64 || s.job != nil) {
			changed = s.engine.progress.wait()
		}
		b, err := s.step()
		if b != nil || err != nil || wait == 0 {
			return b, err
		}
		stop, tell := func() bool { return true }, (<-chan time.Time)(nil)
		if s.o.Progress {
			t := time.NewTimer(max(progressEvery-time.Since(s.told), time.Millisecond))
			stop, tell = t.Stop, t.C
		}
		var failed <-chan struct{}
		if s.job != nil {
			failed = s.job.hopeless
		}
		select {
		case <-s.wake:
		case <-changed:
		case <-tell:
		case <-failed:
		case <-s.rel.gone:
		case <-end:
			return nil, nil
		case <-ctx.Done():
			return nil, context.Cause(ctx)
		}
		stop()
	}
}

// Given returns up to which epoch everything was given, or there was nothing to give, and for how long there has been a newer one. Safe for concurrent use.
func (s *Subscription) Given() (epoch uint64, behind time.Duration) {
	epoch = s.given.Load()
	if s.feed.closed() <= epoch {
		return epoch, 0
	}
	if since := s.engine.clock.openSince(epoch); !since.IsZero() {
		behind = time.Since(since)
	}
	return epoch, behind
}

// step is next with a note of how far it is.
func (s *Subscription) step() (*Batch, error) {
	b, err := s.next()
	if s.rows == nil {
		if s.given.Store(s.done); len(s.queue) == 0 {
			s.given.Store(s.through)
		}
	}
	return b, err
}

// next returns what can be given at once, nil when that is nothing.
func (s *Subscription) next() (*Batch, error) {
	if s.rows != nil {
		c, err := s.rows.next()
		if err != nil {
			return nil, err
		}
		b := &Batch{Epoch: s.done, Rows: c, Complete: c == nil}
		if c == nil {
			s.endSnapshot()
			s.told = time.Now()
		}
		return b, s.engine.reserve(b.Epoch)
	}
	if s.o.Progress && s.told.IsZero() { // from where on changes are given
		s.told = time.Now()
		return &Batch{Epoch: s.done, Complete: true}, s.engine.reserve(s.done)
	}
	for {
		if len(s.queue) > 0 {
			b, err := s.change()
			if b != nil || err != nil {
				return b, err
			}
			continue
		}
		if s.done >= s.o.UpTo {
			return nil, io.EOF
		}
		took, err := s.take()
		if err != nil {
			return nil, err
		}
		if len(s.queue) > 0 {
			continue
		}
		if !took || s.through < s.o.UpTo && (!s.o.Progress || time.Since(s.told) < progressEvery) {
			return nil, nil
		}
		s.done, s.told = s.through, time.Now()
		return &Batch{Epoch: s.done, Complete: true}, s.engine.reserve(s.done)
	}
}

// change returns the next part of the first epoch of the queue.
func (s *Subscription) change() (*Batch, error) {
	e := &s.queue[0]
	if s.out == nil {
		var err error
		if s.out, err = s.consolidate(e); err != nil {
			return nil, err
		}
	}
	b := &Batch{Epoch: e.Epoch}
	if len(s.out) > 0 {
		b.Rows, s.out = s.out[0], s.out[1:]
	}
	if len(s.out) == 0 {
		s.done, s.out = e.Epoch, nil
		s.queue[0] = changelog.Entry{}
		s.queue = s.queue[1:]
		if b.Complete = true; b.Rows == nil && !s.o.Progress { // nothing is left of the changes
			return nil, nil
		}
		s.told = time.Now()
	}
	return b, s.engine.reserve(b.Epoch)
}

// take takes what the feed has; false when there is no newer epoch.
func (s *Subscription) take() (bool, error) {
	if err := s.same(); err != nil {
		return false, err
	}
	if j := s.job; j != nil {
		if j.terminal() {
			return false, j.errStoppedWhileWaiting()
		}
		if j.ErrorCount() > 0 {
			if r, ok := j.FirstFailed(); ok {
				return false, pgerr.Newf(r.Code, "%s", r.Message).WithDetail("Row %s of the subscription's query.", r.Row)
			}
		}
	}
	closed := min(s.feed.closed(), s.o.UpTo)
	if closed <= s.through {
		return s.through > s.done, s.feed.err(s.done)
	}
	es, reached, err := s.feed.take(s.through, closed)
	if err == nil {
		err = s.feed.err(s.done)
	}
	if err == nil {
		err = s.same()
	}
	if err != nil {
		return false, err
	}
	s.queue, s.through = es, reached
	return true, nil
}

// same checks that the relations are there and that their rows are what they were.
func (s *Subscription) same() error {
	if s.job != nil {
		if err := s.job.inputsStand(); err != nil {
			return err
		}
	}
	return s.rel.stands(s.layout)
}

// inputsStand checks that what a temporary job reads is what it was when the job was made: ALTER TABLE keeps what views rely on, not what
// subscriptions do.
func (j *Job) inputsStand() error {
	for i, l := range j.layouts {
		if err := j.inputs[i].stands(l); err != nil {
			return err
		}
	}
	return nil
}

// stands checks that the relation is there and that its rows have the layout.
func (r *Relation) stands(l *types.RowLayout) error {
	select {
	case <-r.gone:
		return errDropped(r)
	default:
	}
	if r.Layout() != l {
		return errRedefined(r)
	}
	return nil
}

func errRedefined(r *Relation) error {
	return pgerr.Newf(pgerr.ObjectNotInPrerequisiteState, "the definition of %q was changed", r.Name).WithHint("SUBSCRIBE anew.")
}

// consolidate returns the net changes of an epoch in the columns of the subscription. Rows that were only added are given as they are.
func (s *Subscription) consolidate(e *changelog.Entry) ([]*types.Chunk, error) {
	picked := make([]*types.Chunk, 0, len(e.Chunks))
	added := true
	for _, c := range e.Chunks {
		p := pick(c, s.o.Columns)
		p.Sel, p.Weights = c.Sel, c.Weights
		picked = append(picked, p)
		for i := range c.Rows() {
			added = added && c.Weight(c.Row(i)) > 0
		}
	}
	if added {
		return picked, nil
	}
	return netChanges(picked, s.types)
}

// netChanges adds up the weights of equal rows; what comes to nothing is left out. Rows keep the order in which they came first.
func netChanges(chunks []*types.Chunk, ts []types.Type) ([]*types.Chunk, error) {
	type net struct {
		at, end int
		weight  int64
	}
	var arena []byte
	var rows []net
	seen := map[string]int{}
	for _, c := range chunks {
		for i := range c.Rows() {
			r := c.Row(i)
			at := len(arena)
			arena = types.AppendRow(arena, c.Cols, r)
			k, ok := seen[string(arena[at:])]
			if ok {
				arena = arena[:at]
			} else {
				k = len(rows)
				rows = append(rows, net{at: at, end: len(arena)})
				seen[string(arena[at:])] = k
			}
			rows[k].weight += c.Weight(r)
		}
	}
	out := []*types.Chunk{}
	var c *types.Chunk
	for _, n := range rows {
		if n.weight == 0 {
			continue
		}
		if c == nil || c.N == types.MaxChunkRows {
			c = types.NewChunk(ts)
			out = append(out, c)
		}
		if _, err := types.DecodeRow(arena[n.at:n.end], c.Cols); err != nil {
			return nil, err
		}
		c.PushWeight(n.weight)
	}
	return out, nil
}

// liveFeed reads the change log of a relation, which is kept in memory for as long as somebody needs it.
type liveFeed struct {
	rel    *Relation
	reader *changelog.Reader
}

func (f *liveFeed) closed() uint64 { return f.rel.Closed() }

func (f *liveFeed) take(after, through uint64) ([]changelog.Entry, uint64, error) {
	es, ok := f.rel.Log.Range(after, through)
	if !ok {
		return nil, 0, firstError(f.err(after), errBehind(f.rel.Name, after))
	}
	bytes := int64(0)
	for i := range es {
		if bytes += es[i].Bytes; bytes > maxFetchedBytes && i+1 < len(es) {
			es, through = es[:i+1], es[i].Epoch
			break
		}
	}
	f.reader.Durable(through)
	return es, through, nil
}

func (f *liveFeed) err(after uint64) error {
	switch {
	case !f.reader.Detached():
		return nil
	case f.reader.Undone():
		return pgerr.Newf(pgerr.ObjectNotInPrerequisiteState, "the job of %q was started again from its last checkpoint: changes after epoch %d are not final", f.rel.Name, after).
			WithHint("SUBSCRIBE anew with a snapshot. A relation with a retention carries subscriptions over restarts.")
	}
	return errBehind(f.rel.Name, after)
}

func errBehind(name string, after uint64) error {
	return pgerr.Newf(pgerr.ConfigurationLimitExceeded, "the subscription fell behind: the change log does not hold what changed in %q after epoch %d any more", name, after).
		WithHint("Read faster, raise --memory, or give the relation a retention and go on with AS OF.")
}

func (f *liveFeed) close() { f.reader.Detach() }

// reservation is up to which epoch numbers may have been told to clients.
type reservation struct {
	through atomic.Uint64
	mu      sync.Mutex
}

// reserve makes sure that no epoch up to the given one is given out again, not by a later process either.
func (e *Engine) reserve(epoch uint64) error {
	r := &e.reserved
	if e.cfg.Reserve == nil || epoch <= r.through.Load() {
		return nil
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if epoch <= r.through.Load() {
		return nil
	}
	if err := e.cfg.Reserve(epoch + reservedEpochs); err != nil {
		return err
	}
	r.through.Store(epoch + reservedEpochs)
	return nil
}

// SkipTo passes over the epochs that a former process may have told to clients. Call it after Replay, before Start.
func (e *Engine) SkipTo(reserved uint64) {
	e.reserved.through.Store(reserved)
	e.clock.began = max(e.clock.closed.Load(), reserved)
	e.clock.closed.Store(e.clock.began)
}
