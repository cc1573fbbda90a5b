// Package state keeps the keyed state of jobs: tables of (key group, key) → value, each split among the job's subtasks, over a
// memory or a Pebble backend, with incremental snapshots.
//
//	subtask ── Part.Put/Get/Scan ──▶ overlay (copy-on-write ordered tree: changes, and what is cached)
//	barrier ── Store.Seal ─────────▶ frozen overlay + list of dirty keys            (pointer swap: the synchronous phase)
//	async   ── Store.Snapshot ─────▶ sorted delta SST ──▶ upload; ingested into Pebble merged and rarely
//	reader  ── View ───────────────▶ immutable version: frozen trees over a Pebble snapshot
//
// Keys on disk: [key group u16 BE][table id u32 BE][memcomparable key]. Checkpoint n = base file set + the deltas since.
package state

import "fmt"

// DefaultMaxParallelism is the number of key groups of a job unless set otherwise. It is baked into stored keys.
const DefaultMaxParallelism = 128

// Range is a half-open range of key groups.
type Range struct{ From, To uint16 }

// Contains reports whether kg is in r.
func (r Range) Contains(kg uint16) bool { return r.From <= kg && kg < r.To }

// SubtaskRange returns the key groups of subtask i of n: every group belongs to exactly one subtask.
func SubtaskRange(maxParallelism, n, i int) Range {
	return Range{From: uint16((i*maxParallelism + n - 1) / n), To: uint16(((i+1)*maxParallelism + n - 1) / n)}
}

// SubtaskOf returns the subtask of n that owns key group kg.
func SubtaskOf(maxParallelism, n int, kg uint16) int { return int(kg) * n / maxParallelism }

// BackendType selects how a job's state is kept.
type BackendType string

// The backends. Memory holds all state on the heap and snapshots it whole, asynchronously, from a copy-on-write version.
// Pebble holds a bounded overlay over a Pebble DB and snapshots incrementally.
const (
	BackendMemory BackendType = "memory"
	BackendPebble BackendType = "pebble"
)

// ParseBackend reads a state.backend.type setting.
func ParseBackend(s string) (BackendType, error) {
	switch s {
	case "memory", "hashmap":
		return BackendMemory, nil
	case "pebble", "rocksdb":
		return BackendPebble, nil
	}
	return "", fmt.Errorf("unknown state backend %q: use memory or pebble", s)
}

// PartMode tells how a part is used, which decides what stays on the heap.
type PartMode uint8

const (
	// Ordered parts hold changes and cached entries in a copy-on-write ordered tree: point access, scans, views.
	Ordered PartMode = iota
	// Staged parts belong to operators that keep their own typed cache (hash aggregation): the operator puts what changed just before
	// a seal, and reads back only what it evicted. On the memory backend a staged part behaves like an ordered one.
	Staged
)

// Handle names bytes of a snapshot: inline, or a local file that is immutable until released.
type Handle struct {
	Name   string // unique for ever within the job: "<incarnation>/<file>"; equal names are equal bytes
	Path   string // local file; empty when Inline is set
	Inline []byte
	Size   int64
	CRC    uint32 // crc32c of the bytes
	// Checked: whoever made the file local has just compared its bytes with Size and CRC. The next restore, and no other, does without that.
	Checked bool
	// First and Last are the smallest and largest keys inside, for restores of a part of the key groups.
	First, Last []byte
}

// Snapshot describes one complete, consistent state of a job. Restoring it needs Base and Deltas only, in order.
type Snapshot struct {
	Format  int // version of this description and of the files
	Backend BackendType
	Base    []Handle // files of a Pebble DB (SSTs, MANIFEST, OPTIONS, markers), or empty
	Deltas  []Handle // SSTs to ingest over Base, oldest first; on the memory backend one full SST
	// MaxParallelism the keys were written with.
	MaxParallelism int
	// FullSize is the total size; NewBytes what earlier snapshots did not hold.
	FullSize, NewBytes int64
	// Entries is the number of live entries, approximately, per table.
	Entries map[uint32]int64
}

// Local reports whether the bytes of all files are inline or have a path: those of a snapshot that was only described have neither.
func (s *Snapshot) Local() bool {
	has := func(h Handle) bool { return h.Path != "" || h.Inline != nil || h.Size == 0 }
	for _, hs := range [][]Handle{s.Base, s.Deltas} {
		for _, h := range hs {
			if !has(h) {
				return false
			}
		}
	}
	return true
}
