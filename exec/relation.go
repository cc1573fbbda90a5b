package exec

import (
	"context"
	"math"
	"slices"
	"sync"
	"sync/atomic"

	"github.com/streamdb/streamdb/internal/pgerr"
	"github.com/streamdb/streamdb/state"
	"github.com/streamdb/streamdb/storage/changelog"
	"github.com/streamdb/streamdb/types"
)

// maxVersions bounds the versions a relation keeps for readers that must see several relations at one epoch. Of older ones only those are
// kept, for barrierStride times as long, at whose epochs jobs that catch up stop.
const maxVersions = 256

// Relation is the runtime of a table or a materialized view: its change log and its versions.
type Relation struct {
	ID      uint64
	Name    string
	Schema  types.Schema // stored columns
	Types   []types.Type
	Key     []int // stored columns forming the key
	Grouped bool  // rows are spread over key groups by the hash of Key; otherwise all in group 0, in key order
	MaxPar  int
	Log     *changelog.Log

	// IndexOf is the materialized view that the relation is an index of.
	IndexOf *Relation

	engine *Engine
	gone   chan struct{} // closed when it is dropped
	job    *Job          // nil for tables
	form   atomic.Pointer[rowForm]
	// superseded: another relation is known by the id now.
	superseded atomic.Bool
	// recalled is the epoch that the relation was restored at, when its log goes back further: who goes on from before that does nothing until then.
	recalled uint64
	// unrecalled is why the log of a relation that was restored does not go back to where its readers are, nil when nothing has failed. Set before any reader is created.
	unrecalled error
	floor      atomic.Uint64 // readers of the relation that was known by the id before may have seen this epoch
	// history keeps changes for subscriptions that go on from the past; nil: none are kept.
	history atomic.Pointer[history]

	mu       sync.Mutex
	versions []*Version // ascending epochs
}

// rowForm is how the rows of a relation are stored, of a table until they are all replaced. The layout changes meanwhile; it reads rows of all ages.
type rowForm struct {
	layout atomic.Pointer[types.RowLayout]
	schema types.Schema
	key    []int
}

// Superseded reports that another relation is known by the id now. Who looked the relation up before, and has pinned it, looks again: its
// job may have ended meanwhile.
func (r *Relation) Superseded() bool { return r.superseded.Load() }

// Layout says how the rows are stored now.
func (r *Relation) Layout() *types.RowLayout {
	return r.form.Load().layout.Load()
}

// Layout says how the rows of the version are stored.
func (v *Version) Layout() *types.RowLayout {
	return v.form.layout.Load()
}

// SetLayout changes how the rows of a table are read and logged from the next epoch on. Rows that are there must be readable with it.
func (e *Engine) SetLayout(ctx context.Context, id uint64, l *types.RowLayout) error {
	set := func() {
		if t := e.tables.byID[id]; t != nil {
			t.rel.form.Load().layout.Store(l)
		}
	}
	if e.acker == nil { // before Start nobody else is there
		set()
		return nil
	}
	e.bulk.Lock()
	defer e.bulk.Unlock()
	return e.clock.call(ctx, set)
}

// Version is the immutable content of a relation at an epoch. It stays readable while it is pinned.
type Version struct {
	Relation *Relation
	Epoch    uint64
	Rows     int64

	form    *rowForm
	through uint64 // the content is the same up to this epoch; for the newest version Relation.Closed decides
	views   []*state.View
	indexes []indexView // of tables
	refs    atomic.Int64
}

func (v *Version) retain() { v.refs.Add(1) }

// atStride reports that v is the content at an epoch where jobs stop that catch up.
func (v *Version) atStride() bool { return v.through/barrierStride*barrierStride >= v.Epoch }

// Release gives a pin back.
func (v *Version) Release() {
	if v.refs.Add(-1) == 0 {
		for _, w := range v.views {
			w.Close()
		}
		for _, x := range v.indexes {
			x.view.Close()
		}
	}
}

// Get returns the row with the given key, encoded as by types.AppendRow; ok is false when there is none.
func (v *Version) Get(kg uint16, key []byte) (row []byte, ok bool, err error) {
	w := v.views[0]
	if len(v.views) > 1 {
		w = v.views[state.SubtaskOf(v.Relation.MaxPar, len(v.views), kg)]
	}
	return w.Get(kg, key)
}

// KeyGroupOf returns the key group that holds the row with these key values.
func (r *Relation) KeyGroupOf(key []types.Datum) uint16 {
	if !r.Grouped {
		return 0
	}
	return types.KeyGroup(types.HashDatums(key), r.MaxPar)
}

// publish makes a new version visible. through is the last epoch at which the previous version was still the content.
func (r *Relation) publish(epoch, through uint64, views []*state.View) {
	r.publishIndexed(epoch, through, views, nil)
}

// publishIndexed is publish with the contents of the relation's indexes.
func (r *Relation) publishIndexed(epoch, through uint64, views []*state.View, indexes []indexView) {
	v := &Version{Relation: r, Epoch: epoch, form: r.form.Load(), views: views, indexes: indexes}
	v.refs.Store(1)
	for _, w := range views {
		v.Rows += w.Len()
	}
	r.mu.Lock()
	crowded := len(r.versions) >= maxVersions
	r.mu.Unlock()
	// Versions that are dropped for their number alone must not be the one that the slowest needs: an old answer would not do.
	low := r.engine.lowEpoch(crowded)
	r.mu.Lock()
	var old []*Version
	// After a restart from a checkpoint epochs come again: what was published then gives way.
	for n := len(r.versions); n > 0 && r.versions[n-1].Epoch >= epoch; n-- {
		old = append(old, r.versions[n-1])
		r.versions = r.versions[:n-1]
	}
	if n := len(r.versions); n > 0 {
		r.versions[n-1].through = min(through, epoch-1)
	}
	r.versions = append(r.versions, v)
	kept := make([]*Version, 0, len(r.versions))
	last := len(r.versions) - 1
	for i, v := range r.versions {
		switch {
		case i == last:
		case v.Epoch <= low && low <= v.through: // where the slowest is
		case v.through < low, last-i >= maxVersions*barrierStride, last-i >= maxVersions && !v.atStride():
			old = append(old, v)
			continue
		}
		kept = append(kept, v)
	}
	r.versions = kept
	r.mu.Unlock()
	for _, v := range old {
		v.Release()
	}
}

// Closed returns the newest epoch whose content of this relation is final and published. A view that has nothing to do closes epochs
// together with its inputs, without running: that is what makes idle views free.
func (r *Relation) Closed() uint64 {
	if r.job == nil {
		return r.engine.clock.closed.Load()
	}
	return r.job.closed()
}

// at returns the version valid at epoch e, or the newest older one whose validity ends before e.
func (r *Relation) at(e uint64) (v *Version, through uint64) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for i := len(r.versions) - 1; i >= 0; i-- {
		if v := r.versions[i]; v.Epoch <= e {
			if i == len(r.versions)-1 {
				return v, math.MaxUint64
			}
			return v, v.through
		}
	}
	return nil, 0
}

// TablesChanged returns the newest epoch in which one of rels was changed that are tables.
func TablesChanged(rels []*Relation) uint64 {
	var epoch uint64
	for _, r := range rels {
		if r.job != nil {
			continue
		}
		r.mu.Lock()
		if n := len(r.versions); n > 0 {
			epoch = max(epoch, r.versions[n-1].Epoch)
		}
		r.mu.Unlock()
	}
	return epoch
}

func (r *Relation) hasVersion() bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return len(r.versions) > 0
}

// Latest pins the newest version, nil when there is none yet.
func (r *Relation) Latest() *Version {
	r.mu.Lock()
	defer r.mu.Unlock()
	if len(r.versions) == 0 {
		return nil
	}
	v := r.versions[len(r.versions)-1]
	v.retain()
	return v
}

// Pinned is a set of versions of one epoch.
type Pinned struct {
	Epoch    uint64
	Versions map[uint64]*Version
	// Stale are the ids of relations that could not take part in the common epoch because they do not advance; their newest version is used.
	Stale []uint64
}

// Release gives all pins back.
func (p *Pinned) Release() {
	for _, v := range p.Versions {
		v.Release()
	}
	p.Versions = nil
}

// Pin pins, for all relations, the newest epoch that all have published and that is not before minEpoch, waiting for it where need be.
// Relations whose job is stopped, paused or failing, or reads one that is, are not waited for; it is an error when one of those that fail has no version at all.
func (e *Engine) Pin(ctx context.Context, rels []*Relation, minEpoch uint64) (*Pinned, error) {
	return e.pin(ctx, rels, minEpoch, false)
}

// pinAdvancing is Pin for a job that goes on from the pinned epoch with the change logs: every relation has to be pinned at that very epoch,
// however long it takes.
func (e *Engine) pinAdvancing(ctx context.Context, rels []*Relation, minEpoch uint64) (*Pinned, error) {
	return e.pin(ctx, rels, minEpoch, true)
}

// unreadable is an error while r has no version, and its job or one that it reads from keeps failing: nothing comes until the cause is gone.
func (r *Relation) unreadable() error {
	if r.job == nil || r.hasVersion() {
		return nil
	}
	i := slices.IndexFunc(r.job.upstream, (*Job).failing)
	if i < 0 {
		return nil
	}
	j := r.job.upstream[i]
	err := pgerr.Newf(pgerr.ObjectNotInPrerequisiteState, "%q holds no rows at present: its job keeps failing", r.Name)
	if j != r.job {
		err = pgerr.Newf(pgerr.ObjectNotInPrerequisiteState, "%q holds no rows at present: the job of %q, which it reads, keeps failing", r.Name, j.Spec.Name)
	}
	if last := j.Err(); last != nil {
		err = err.WithDetail("%s", last)
	}
	return err.WithHint("It is started again until the cause is gone: see streamdb.jobs.")
}

func (e *Engine) pin(ctx context.Context, rels []*Relation, minEpoch uint64, all bool) (*Pinned, error) {
	for {
		changed := e.progress.wait()
		if p := e.tryPin(rels, minEpoch, all); p != nil {
			return p, nil
		}
		if !all {
			for _, r := range rels {
				if err := r.unreadable(); err != nil {
					return nil, err
				}
			}
		}
		select {
		case <-changed:
		case <-ctx.Done():
			return nil, context.Cause(ctx)
		}
	}
}

// Snapshot is the instant that a transaction block sees: all tables as of the newest commit, and views at the same epoch, which those that
// lag reach while the block goes on. Not safe for concurrent use.
type Snapshot struct {
	engine  *Engine
	pins    Pinned
	renewed []*Version // no longer part of it; queries in progress may read them
	held    bool
}

// Snapshot takes the present instant. Nothing is waited for.
func (e *Engine) Snapshot() *Snapshot {
	for {
		if s := e.trySnapshot(); s != nil {
			return s
		}
	}
}

// trySnapshot fails when an epoch was closed meanwhile and a table no longer has the version.
func (e *Engine) trySnapshot() *Snapshot {
	s := &Snapshot{engine: e, pins: Pinned{Versions: map[uint64]*Version{}}}
	s.pins.Epoch = e.hold()
	s.held = true
	e.mu.Lock()
	rels := make([]*Relation, 0, len(e.rels))
	for _, r := range e.rels {
		rels = append(rels, r)
	}
	e.mu.Unlock()
	for _, r := range rels {
		if r.job != nil && (!r.job.advancing() || r.Closed() < s.pins.Epoch) {
			continue
		}
		v := r.pinAt(s.pins.Epoch)
		if v == nil && r.job == nil && r.hasVersion() {
			s.Release()
			return nil
		}
		if v != nil {
			s.pins.Versions[r.ID] = v
		}
	}
	return s
}

// Pin returns the pins of the snapshot with rels among them, waiting for views that have not reached its epoch yet. The pins belong to the
// snapshot. Relations that came to be after it are seen as they are now; views whose query was replaced after it cannot be read (SQLSTATE 40001).
func (s *Snapshot) Pin(ctx context.Context, rels []*Relation) (*Pinned, error) {
	for _, r := range rels {
		if v := s.pins.Versions[r.ID]; v != nil {
			if v.Relation == r || r.job == nil {
				continue
			}
			// Another definition of the view: rows of the old one are of no use to a plan for the new one.
			s.renewed = append(s.renewed, v)
			delete(s.pins.Versions, r.ID)
		}
		if r.IndexOf != nil && !r.usable() {
			continue
		}
		more, err := s.engine.Pin(ctx, []*Relation{r}, s.pins.Epoch)
		if err != nil {
			return nil, err
		}
		if v := r.pinAt(s.pins.Epoch); v != nil {
			more.Release()
			s.pins.Versions[r.ID] = v
			continue
		}
		if r.floor.Load() > s.pins.Epoch {
			more.Release()
			if r.IndexOf != nil {
				continue // its view is read instead
			}
			return nil, pgerr.Newf(pgerr.SerializationFailure, "could not serialize access due to a concurrent change of materialized view %q", r.Name).
				WithDetail("Its query was replaced, and what it holds now cannot be read as of the beginning of the transaction.")
		}
		for id, v := range more.Versions {
			s.pins.Versions[id] = v
		}
		s.pins.Stale = append(s.pins.Stale, more.Stale...)
	}
	return &s.pins, nil
}

// Renew moves one table forward to its newest version.
func (s *Snapshot) Renew(id uint64) {
	r, ok := s.engine.Relation(id)
	if !ok {
		return
	}
	if v := r.Latest(); v != nil {
		s.Replace(v)
	}
}

// Replace puts a version of the transaction's own, whose pin the snapshot takes over, in the place of that of the same relation.
func (s *Snapshot) Replace(v *Version) {
	if old := s.pins.Versions[v.Relation.ID]; old != nil {
		s.renewed = append(s.renewed, old)
	}
	s.pins.Versions[v.Relation.ID] = v
}

// Release gives the snapshot back.
func (s *Snapshot) Release() {
	s.pins.Release()
	for _, v := range s.renewed {
		v.Release()
	}
	s.renewed = nil
	if s.held {
		s.held = false
		s.engine.unhold(s.pins.Epoch)
	}
}

// hold keeps the versions of the newest closed epoch from being dropped, and returns it.
func (e *Engine) hold() uint64 {
	e.holdMu.Lock()
	defer e.holdMu.Unlock()
	epoch := e.clock.closed.Load()
	if e.holds == nil {
		e.holds = map[uint64]int{}
	}
	e.holds[epoch]++
	return epoch
}

func (e *Engine) unhold(epoch uint64) {
	e.holdMu.Lock()
	defer e.holdMu.Unlock()
	if e.holds[epoch]--; e.holds[epoch] == 0 {
		delete(e.holds, epoch)
	}
}

// heldBelow returns the oldest epoch that a transaction block holds, or low when that is older.
func (e *Engine) heldBelow(low uint64) uint64 {
	e.holdMu.Lock()
	defer e.holdMu.Unlock()
	for epoch := range e.holds {
		low = min(low, epoch)
	}
	return low
}

// heldIn returns the oldest epoch in [from, through] that a transaction block holds.
func (e *Engine) heldIn(from, through uint64) (epoch uint64, ok bool) {
	e.holdMu.Lock()
	defer e.holdMu.Unlock()
	for h := range e.holds {
		if from <= h && h <= through && (!ok || h < epoch) {
			epoch, ok = h, true
		}
	}
	return epoch, ok
}

// pinAt pins the version that is the content at epoch, nil when it is not there (any more, or yet).
func (r *Relation) pinAt(epoch uint64) *Version {
	if r.Closed() < epoch {
		return nil
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	for i := len(r.versions) - 1; i >= 0; i-- {
		v := r.versions[i]
		if v.Epoch > epoch {
			continue
		}
		if i == len(r.versions)-1 || v.through >= epoch {
			v.retain()
			return v
		}
		return nil
	}
	return nil
}

// PinOne pins a single relation: without the bookkeeping of a set when the newest version will do, which is what it almost always does.
// Exactly one of v (to be released) and pins is set, except that v is always the version to read.
func (e *Engine) PinOne(ctx context.Context, r *Relation, minEpoch uint64) (v *Version, pins *Pinned, err error) {
	if (r.job == nil || (r.job.Status() == JobRunning && !r.job.missesRows())) && r.Closed() >= max(minEpoch, r.floor.Load()) {
		if v := r.Latest(); v != nil {
			return v, nil, nil
		}
	}
	pins, err = e.Pin(ctx, []*Relation{r}, minEpoch)
	if err != nil {
		return nil, nil, err
	}
	v = pins.Versions[r.ID]
	if v == nil {
		pins.Release()
		return nil, nil, pgerr.Newf(pgerr.ObjectNotInPrerequisiteState, "%q holds no rows: its job was stopped", r.Name)
	}
	return v, pins, nil
}

// waitsFor reports whether r has to be pinned at the common epoch: with all whatever its state, otherwise if its job goes on.
func waitsFor(r *Relation, all bool) bool { return r.job == nil || all || r.job.advancing() }

// tryPin pins rels at one epoch if that is possible now. Those that need not take part are pinned at what they have.
func (e *Engine) tryPin(rels []*Relation, minEpoch uint64, all bool) *Pinned {
	p := &Pinned{Versions: make(map[uint64]*Version, len(rels))}
	if len(rels) == 0 {
		p.Epoch = e.clock.closed.Load()
		return p
	}
	epoch := uint64(math.MaxUint64)
	live := make([]*Relation, 0, len(rels))
	for _, r := range rels {
		if r.IndexOf != nil && !all {
			switch {
			case !r.usable(): // its view is read instead
			case waitsFor(r.IndexOf, false):
				live = append(live, r)
				epoch = min(epoch, r.Closed())
			default:
				p.Versions[r.ID] = r.Latest()
			}
			continue
		}
		if !waitsFor(r, all) {
			if v := r.Latest(); v != nil {
				p.Versions[r.ID] = v
				p.Stale = append(p.Stale, r.ID)
				continue
			}
			if r.job.terminal() {
				continue
			}
		}
		live = append(live, r)
		epoch, minEpoch = min(epoch, r.Closed()), max(minEpoch, r.floor.Load())
	}
	if len(live) == 0 {
		p.Epoch = e.clock.closed.Load()
		return p
	}
	for again := true; again; {
		again = false
		if epoch < minEpoch {
			p.Release()
			return nil
		}
		for _, r := range live {
			v, through := r.at(epoch)
			if v == nil {
				p.Release()
				return nil
			}
			if through < epoch {
				epoch, again = through, true
				break
			}
		}
	}
	p.Epoch = epoch
	for _, r := range live {
		got := r.pinAt(epoch)
		if got == nil { // dropped meanwhile
			p.Release()
			return nil
		}
		p.Versions[r.ID] = got
	}
	return p
}

// notifier wakes all waiters at each change.
type notifier struct {
	mu sync.Mutex
	ch chan struct{}
	// waiting is set while someone holds the current channel, so that notify costs nothing otherwise.
	waiting bool
}

func (n *notifier) wait() <-chan struct{} {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.ch == nil {
		n.ch = make(chan struct{})
	}
	n.waiting = true
	return n.ch
}

func (n *notifier) notify() {
	n.mu.Lock()
	defer n.mu.Unlock()
	if !n.waiting {
		return
	}
	close(n.ch)
	n.ch, n.waiting = nil, false
}

// Rows returns the approximate number of rows of the newest version.
func (r *Relation) Rows() int64 {
	r.mu.Lock()
	defer r.mu.Unlock()
	if len(r.versions) == 0 {
		return 0
	}
	return r.versions[len(r.versions)-1].Rows
}

// sizeSample is how many rows of each part Bytes looks at.
const sizeSample = 64

// Bytes estimates what the keys and rows of the newest version take, from the sizes of the first rows of each part.
func (r *Relation) Bytes() int64 {
	v := r.Latest()
	if v == nil {
		return 0
	}
	defer v.Release()
	total := int64(0)
	for _, view := range v.views {
		total += viewBytes(view)
	}
	return total
}

// IndexBytes is Bytes for an index of a table.
func (r *Relation) IndexBytes(id uint64) int64 {
	v := r.Latest()
	if v == nil {
		return 0
	}
	defer v.Release()
	if w := v.index(id); w != nil {
		return viewBytes(w)
	}
	return 0
}

func viewBytes(view *state.View) int64 {
	it := view.ScanAll()
	defer it.Close()
	rows, bytes := int64(0), int64(0)
	for rows < sizeSample && it.Next() {
		rows++
		bytes += int64(len(it.Key()) + len(it.Value()))
	}
	if rows == 0 {
		return 0
	}
	return bytes * max(view.Len(), rows) / rows
}
