package exec

import (
	"context"
	"math"
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

	engine *Engine
	job    *Job // nil for tables

	mu       sync.Mutex
	versions []*Version // ascending epochs
}

// Version is the immutable content of a relation at an epoch. It stays readable while it is pinned.
type Version struct {
	Relation *Relation
	Epoch    uint64
	Rows     int64

	through uint64 // the content is the same up to this epoch; for the newest version Relation.Closed decides
	views   []*state.View
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
	v := &Version{Relation: r, Epoch: epoch, views: views}
	v.refs.Store(1)
	for _, w := range views {
		v.Rows += w.Len()
	}
	low := r.engine.lowEpoch()
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
	// Stale names relations that could not take part in the common epoch because they do not advance; their newest version is used.
	Stale []string
}

// Release gives all pins back.
func (p *Pinned) Release() {
	for _, v := range p.Versions {
		v.Release()
	}
	p.Versions = nil
}

// Pin pins, for all relations, the newest epoch that all have published and that is not before minEpoch, waiting for it where need be.
// Relations whose job is stopped, paused or failing are not waited for.
func (e *Engine) Pin(ctx context.Context, rels []*Relation, minEpoch uint64) (*Pinned, error) {
	return e.pin(ctx, rels, minEpoch, pinPatient)
}

// pinAdvancing is Pin for a job that goes on from the pinned epoch with the change logs: every relation has to be pinned at that very epoch,
// however long it takes.
func (e *Engine) pinAdvancing(ctx context.Context, rels []*Relation, minEpoch uint64) (*Pinned, error) {
	return e.pin(ctx, rels, minEpoch, pinAllOf)
}

func (e *Engine) pin(ctx context.Context, rels []*Relation, minEpoch uint64, mode pinMode) (*Pinned, error) {
	for {
		changed := e.progress.wait()
		if p := e.tryPin(rels, minEpoch, mode); p != nil {
			return p, nil
		}
		select {
		case <-changed:
		case <-ctx.Done():
			return nil, context.Cause(ctx)
		}
	}
}

// PinAll pins every relation that has a version, for the snapshot of a transaction block. It does not wait for views that are being filled
// again: the block may have nothing to do with them.
func (e *Engine) PinAll(ctx context.Context, minEpoch uint64) (*Pinned, error) {
	e.mu.Lock()
	rels := make([]*Relation, 0, len(e.rels))
	for _, r := range e.rels {
		if r.hasVersion() {
			rels = append(rels, r)
		}
	}
	e.mu.Unlock()
	return e.pin(ctx, rels, minEpoch, pinHasty)
}

// PinOne pins a single relation: without the bookkeeping of a set when the newest version will do, which is what it almost always does.
// Exactly one of v (to be released) and pins is set, except that v is always the version to read.
func (e *Engine) PinOne(ctx context.Context, r *Relation, minEpoch uint64) (v *Version, pins *Pinned, err error) {
	if (r.job == nil || (r.job.Status() == JobRunning && r.job.ErrorCount() == 0)) && r.Closed() >= minEpoch {
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

// pinMode tells for which relations a pin waits.
type pinMode uint8

const (
	pinPatient pinMode = iota // for those that advance, or are being filled
	pinHasty                  // not for those that are being filled again
	pinAllOf                  // for all, whatever their state
)

// waitsFor reports whether r has to be pinned at the common epoch.
func (m pinMode) waitsFor(r *Relation) bool {
	if r.job == nil || m == pinAllOf {
		return true
	}
	return r.job.advancing() && (m == pinPatient || r.job.Status() != JobBackfilling)
}

// tryPin pins rels at one epoch if that is possible now. Those that need not take part are pinned at what they have.
func (e *Engine) tryPin(rels []*Relation, minEpoch uint64, mode pinMode) *Pinned {
	p := &Pinned{Versions: make(map[uint64]*Version, len(rels))}
	if len(rels) == 0 {
		p.Epoch = e.clock.closed.Load()
		return p
	}
	epoch := uint64(math.MaxUint64)
	live := make([]*Relation, 0, len(rels))
	for _, r := range rels {
		if !mode.waitsFor(r) {
			if v := r.Latest(); v != nil {
				p.Versions[r.ID] = v
				p.Stale = append(p.Stale, r.Name)
				continue
			}
			if r.job.terminal() {
				continue
			}
		}
		live = append(live, r)
		epoch = min(epoch, r.Closed())
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
		r.mu.Lock()
		var got *Version
		for i := len(r.versions) - 1; i >= 0; i-- {
			if v := r.versions[i]; v.Epoch <= epoch {
				if i == len(r.versions)-1 || v.through >= epoch {
					got = v
					v.retain()
				}
				break
			}
		}
		r.mu.Unlock()
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
