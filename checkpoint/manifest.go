package checkpoint

import (
	"cmp"
	"slices"
	"time"

	"github.com/streamdb/streamdb/storage/object"
)

// Manifest is a completed checkpoint of the whole database: the newest published state of every job, and the catalog. It is immutable.
type Manifest struct {
	ID      uint64 // highest checkpoint id in it
	Seq     uint64 // of the HEAD that published it
	Epoch   uint64
	Created time.Time
	Object  string // its key
	Size    int64  // of the manifest itself

	CatalogVersion uint64
	Catalog        []byte
	Jobs           map[uint64]*JobState
	// Held are older states, by job and in their order, of jobs that others read which were not part of later checkpoints: what these have
	// missed is how the job's state differs from that.
	Held map[uint64][]*HeldState

	catalogRef *ref
}

// HeldState is a state of a job as of an earlier checkpoint, with the catalog of that time.
type HeldState struct {
	*JobState
	CatalogVersion uint64
	Catalog        []byte

	catalogRef *ref
}

// hold keeps the states that jobs of m have read from, or will have when checkpoints in flight are complete (late, by job that is read), and that are not the newest
// ones any more. cur is the manifest before m.
func (m *Manifest) hold(cur *Manifest, late map[uint64][]uint64) {
	m.Held = map[uint64][]*HeldState{}
	for job, ids := range late {
		for _, id := range ids {
			m.holdFrom(cur, job, id)
		}
	}
	for _, k := range sortedJobs(m) {
		reader := m.Jobs[k]
		for _, in := range reader.Inputs {
			m.holdFrom(cur, in, reader.Checkpoint)
		}
	}
}

// holdFrom keeps the state that a job had at a checkpoint, as far as from has it, when its state in m is a newer one. Of what had rows in flight nothing is held: its readers have taken them
// in already, its state has not.
func (m *Manifest) holdFrom(from *Manifest, job, checkpoint uint64) {
	now := m.Jobs[job]
	if now == nil || now.Since() <= checkpoint {
		return
	}
	h := from.at(job, checkpoint)
	if h == nil || len(h.Inflight) > 0 {
		return
	}
	held := m.Held[job]
	if i, known := slices.BinarySearchFunc(held, h.Since(), func(o *HeldState, since uint64) int { return cmp.Compare(o.Since(), since) }); !known {
		m.Held[job] = slices.Insert(slices.Clip(held), i, h) // others may have the slice
	}
}

// at returns the state that a job had at a checkpoint, nil when m does not have it.
func (m *Manifest) at(job, checkpoint uint64) *HeldState {
	if s := m.Jobs[job]; s != nil && s.Since() <= checkpoint {
		if s.Checkpoint < checkpoint {
			return nil // what became of it until then is not known
		}
		return &HeldState{JobState: s, CatalogVersion: m.CatalogVersion, Catalog: m.Catalog, catalogRef: m.catalogRef}
	}
	return m.HeldAt(job, checkpoint)
}

// HeldAt returns the state held of a job as of a checkpoint that one of its readers has not gone on from, nil when there is none.
func (m *Manifest) HeldAt(job, checkpoint uint64) *HeldState {
	for _, h := range slices.Backward(m.Held[job]) {
		if h.Since() <= checkpoint {
			if h.Checkpoint < checkpoint {
				return nil
			}
			return h
		}
	}
	return nil
}

// stateRefs are the places of a job state's bytes.
type stateRefs struct {
	files                map[string]ref  // by handle name
	memory               map[string]bool // handles whose bytes are kept inline
	positions, operators map[string]ref
	since                uint64       // the checkpoint that last changed the state
	store                object.Store // where they are, when that is not the coordinator's store
}

// Since returns the checkpoint that last changed the state of s: its own, or an earlier one when nothing changed since.
func (s *JobState) Since() uint64 {
	if s.refs == nil {
		return s.Checkpoint
	}
	return s.refs.since
}

// refsOf calls fn for every reference of m.
func (m *Manifest) refsOf(fn func(job uint64, name string, r ref)) {
	if m.catalogRef != nil {
		fn(0, "catalog", *m.catalogRef)
	}
	for id, held := range m.Held {
		for _, h := range held {
			if h.catalogRef != nil {
				fn(id, "held catalog", *h.catalogRef)
			}
			for name, r := range h.refs.files {
				fn(id, "held "+name, r)
			}
		}
	}
	for id, s := range m.Jobs {
		for name, r := range s.refs.files {
			fn(id, name, r)
		}
		for name, r := range s.refs.positions {
			fn(id, "position "+name, r)
		}
		for name, r := range s.refs.operators {
			fn(id, "operator "+name, r)
		}
	}
}

// objects are the keys that m needs, its own included.
func (m *Manifest) objects() map[string]bool {
	keys := map[string]bool{m.Object: true}
	m.refsOf(func(_ uint64, _ string, r ref) {
		if r.Object != "" {
			keys[r.Object] = true
		}
	})
	return keys
}
