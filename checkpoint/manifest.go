package checkpoint

import (
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

	catalogRef *ref
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
