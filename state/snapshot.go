package state

import (
	"context"
	"slices"

	"github.com/streamdb/streamdb/internal/pgerr"
)

// SnapshotFormat is the version of snapshot descriptions and of the files they name. A newer one is refused.
//
// Format 1: deltas are SSTs of Pebble's table format 5 (columnar blocks, Snappy, sequence number 0) with keys
// [key group u16 BE][table id u32 BE][key], point sets and point deletes only; a base is the file set of a Pebble DB of major
// format version 19, SSTs named "<incarnation>/<file>", the rest "<incarnation>/base-<n>/<file>"; the last element of a name is
// the name of the file in the DB's folder. Sizes and checksums (CRC-32C) cover whole files.
const SnapshotFormat = 1

// run is what one part contributes to a delta, in order of keys.
type run struct {
	part   *Part
	table  uint32
	seq    uint32
	sets   int // dirty sets covered
	list   []entry
	pos    int
	tree   *tree  // instead of list
	at     cursor // in tree
	begun  bool
	above  uint32     // with tree: only entries newer than this
	stages *stageIter // instead of list
	sealed sealedPart
	cur    entry
	ok     bool
	purged []string // tombstones written
}

func (r *run) next() {
	if r.stages != nil {
		if r.ok { // stands on an entry that was taken
			r.stages.next()
		}
		if r.ok = r.stages.ok; r.ok {
			r.cur = r.stages.cur
		}
		return
	}
	if r.tree == nil {
		r.ok = r.pos < len(r.list)
		if r.ok {
			r.cur = r.list[r.pos]
			r.pos++
		}
		return
	}
	for r.ok = r.advance(); r.ok; r.ok = r.advance() {
		if r.cur = r.at.item(); r.cur.seq() > r.above {
			return
		}
	}
}

func (r *run) advance() bool {
	if r.begun {
		return r.at.next()
	}
	r.begun = true
	return r.at.first(r.tree)
}

// runOf prepares what sp has to write: everything on the memory backend, else what the dirty sets up to its seal name. It returns
// nil when that is nothing.
func (s *Store) runOf(sp sealedPart) *run {
	p := sp.part
	s.mu.Lock()
	var sets []dirtySet
	for _, d := range p.pending {
		if d.seq <= sp.seq {
			sets = append(sets, d)
		}
	}
	written := p.writtenSeq
	s.mu.Unlock()
	r := &run{part: p, table: p.table, seq: sp.seq, sets: len(sets), sealed: sp}
	if s.heapOnly {
		r.tree = sp.frozen
		return r
	}
	if len(sets) == 0 {
		return nil
	}
	if p.staged != nil {
		r.stages = newStageIter(s.stagesOf(sp, written), nil, false)
		return r
	}
	var keys []string
	for _, d := range sets {
		if d.scan {
			r.tree, r.above = sp.frozen, written
			return r
		}
		keys = append(keys, d.keys...)
	}
	slices.Sort(keys)
	keys = slices.Compact(keys)
	r.list = make([]entry, 0, len(keys))
	for _, k := range keys {
		// A key that is gone was new and deleted within one sequence.
		if e, ok := sp.frozen.get(k); ok && e.seq() > written {
			r.list = append(r.list, e)
		}
	}
	return r
}

// runs prepares the newest seal of every part, ordered by table.
func (s *Store) runs(sealed []*Sealed) ([]run, map[*Part]int64) {
	newest := map[*Part]sealedPart{}
	live := map[*Part]int64{}
	for _, sl := range sealed {
		if sl == nil {
			continue
		}
		for _, sp := range sl.parts {
			if old, ok := newest[sp.part]; !ok || sp.seq >= old.seq {
				newest[sp.part] = sp
				live[sp.part] = sp.live
			}
		}
	}
	var out []run
	for _, sp := range newest {
		if r := s.runOf(sp); r != nil {
			r.next()
			out = append(out, *r)
		}
	}
	sortedParts(out)
	return out, live
}

// writeRuns writes all runs in the order of keys on disk: key group, table, key.
func (s *Store) writeRuns(ctx context.Context, runs []run, w *sstWriter) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	var key []byte
	n := 0
	for kg := 0; kg < max(1, s.opts.MaxParallelism); kg++ {
		for i := range runs {
			r := &runs[i]
			for r.ok && int(r.cur.group()) == kg {
				if n++; n%ctxCheckEntries == 0 && ctx.Err() != nil {
					return ctx.Err()
				}
				key = appendDiskKey(key[:0], uint16(kg), r.table, bytesOf(r.cur.kv[groupBytes:r.cur.klen]))
				if r.cur.tombstone() && r.stages == nil {
					r.purged = append(r.purged, r.cur.key())
				}
				if err := w.add(key, r.cur.value(), r.cur.tombstone()); err != nil {
					return err
				}
				r.next()
			}
		}
	}
	return w.finish()
}

// writeDelta writes what sealed brings as one delta of the chain.
func (s *Store) writeDelta(ctx context.Context, sealed []*Sealed) (map[*Part]int64, error) {
	runs, live := s.runs(sealed)
	if len(runs) == 0 {
		return live, nil
	}
	if err := s.opts.Failpoints.Hit("state.delta.write"); err != nil {
		return nil, pgerr.Wrap(pgerr.IOError, err, "write state")
	}
	w := &sstWriter{store: s, prefix: "delta"}
	if err := s.writeRuns(ctx, runs, w); err != nil {
		w.abort()
		return nil, err
	}
	if len(w.handles) > 0 {
		s.chain.append(makeDelta(w.handles, false))
		s.unpublished.Store(true)
		s.stats.DeltasWritten++
		s.stats.EntriesWritten += w.entries
	}
	s.settleRuns(runs)
	if s.db == nil {
		for i := range runs {
			if runs[i].stages != nil {
				s.condense(runs[i].sealed)
			}
		}
	}
	return live, nil
}

// settleRuns takes what was written out of the parts' dirty sets, and lets tombstones go unless Pebble has to see them first.
func (s *Store) settleRuns(runs []run) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for i := range runs {
		r := &runs[i]
		p := r.part
		p.pending = slices.Delete(p.pending, 0, min(r.sets, len(p.pending)))
		if r.stages != nil {
			p.staged.toFilter = append(p.staged.toFilter, s.stagesOf(r.sealed, p.writtenSeq)...)
		}
		p.writtenSeq = max(p.writtenSeq, r.seq)
		if len(r.purged) == 0 {
			continue
		}
		if s.db != nil {
			p.held = append(p.held, purge{seq: r.seq, keys: r.purged})
		} else {
			p.tombs = append(p.tombs, purge{seq: r.seq, keys: r.purged})
			p.news.Store(true)
		}
	}
}

// begin marks that the background is at work; the returned func ends it.
func (s *Store) begin() func() {
	done := make(chan struct{})
	s.flushing.Store(&done)
	s.flushWanted.Store(false)
	return func() {
		s.flushing.Store(nil)
		close(done)
	}
}

func (s *Store) usable() error {
	s.mu.Lock()
	closed := s.closed
	s.mu.Unlock()
	if closed {
		return errClosed()
	}
	return s.backgroundError()
}

// Snapshot makes what sealed froze part of the chain and describes it all as snapshot id. Ids rise. Sealed has the newest seal of
// every subtask. When nothing changed since the last snapshot the same description comes back with NewBytes 0; its files must not
// be written again.
func (s *Store) Snapshot(ctx context.Context, id uint64, sealed []*Sealed) (*Snapshot, error) {
	s.snapMu.Lock()
	defer s.unlockSnap()
	if err := s.usable(); err != nil {
		return nil, err
	}
	defer s.begin()()
	if s.heapOnly {
		return s.snapshotWhole(ctx, id, sealed)
	}
	live, err := s.writeDelta(ctx, sealed)
	if err != nil {
		return nil, err
	}
	if s.last != nil && s.chain.version == s.lastVersion {
		return s.repeat(id), nil
	}
	if err := s.arrange(ctx); err != nil {
		return nil, err
	}
	return s.describe(id, live), nil
}

// snapshotWhole is Snapshot of the memory backend: one file with everything.
func (s *Store) snapshotWhole(ctx context.Context, id uint64, sealed []*Sealed) (*Snapshot, error) {
	runs, live := s.runs(sealed)
	changed := s.last == nil
	for i := range runs {
		changed = changed || runs[i].sets > 0
	}
	if !changed {
		return s.repeat(id), nil
	}
	if err := s.opts.Failpoints.Hit("state.delta.write"); err != nil {
		return nil, pgerr.Wrap(pgerr.IOError, err, "write state")
	}
	s.mu.Lock()
	for table, t := range s.loaded {
		r := run{table: table, tree: t.copy()}
		r.next()
		runs = append(runs, r)
	}
	s.mu.Unlock()
	sortedParts(runs)
	w := &sstWriter{store: s, prefix: "full", memory: s.opts.Dir == "", single: true}
	if err := s.writeRuns(ctx, runs, w); err != nil {
		w.abort()
		return nil, err
	}
	s.chain.deltas = nil
	if len(w.handles) > 0 {
		s.chain.deltas = []delta{makeDelta(w.handles, false)}
	}
	s.chain.version++
	s.stats.DeltasWritten++
	s.stats.EntriesWritten += w.entries
	settled := runs[:0]
	for _, r := range runs {
		if r.part != nil {
			settled = append(settled, r)
		}
	}
	s.settleRuns(settled)
	return s.describe(id, live), nil
}

// describe makes the description of the chain and remembers it.
func (s *Store) describe(id uint64, live map[*Part]int64) *Snapshot {
	sn := &Snapshot{
		Format: SnapshotFormat, Backend: s.opts.Backend, MaxParallelism: s.opts.MaxParallelism,
		Base: slices.Clone(s.chain.base), Entries: s.entriesByTable(live),
	}
	for _, d := range s.chain.deltas {
		sn.Deltas = append(sn.Deltas, d.handles...)
	}
	known := map[string]struct{}{}
	for _, r := range s.records {
		for n := range r.names {
			known[n] = struct{}{}
		}
	}
	for _, hs := range [][]Handle{sn.Base, sn.Deltas} {
		for _, h := range hs {
			sn.FullSize += h.Size
			if _, ok := known[h.Name]; !ok {
				sn.NewBytes += h.Size
			}
		}
	}
	s.last, s.lastVersion = sn, s.chain.version
	s.unpublished.Store(false)
	s.remember(id, sn)
	return cloneSnapshot(sn)
}

// repeat returns the last description for another id.
func (s *Store) repeat(id uint64) *Snapshot {
	s.remember(id, s.last)
	sn := cloneSnapshot(s.last)
	sn.NewBytes = 0
	return sn
}

func cloneSnapshot(sn *Snapshot) *Snapshot {
	c := *sn
	return &c
}

func (s *Store) remember(id uint64, sn *Snapshot) {
	r := record{id: id, names: map[string]struct{}{}}
	for _, hs := range [][]Handle{sn.Base, sn.Deltas} {
		for _, h := range hs {
			r.names[h.Name] = struct{}{}
			if h.Path != "" {
				r.paths = append(r.paths, h.Path)
			}
		}
	}
	s.records = append(s.records, r)
}

// Flush moves what sealed froze into Pebble without publishing it, and lets the parts evict what is clean. The next snapshot
// includes it.
func (s *Store) Flush(ctx context.Context, sealed []*Sealed) error {
	s.snapMu.Lock()
	defer s.unlockSnap()
	if err := s.usable(); err != nil {
		return err
	}
	if s.heapOnly {
		return nil
	}
	defer s.begin()()
	if _, err := s.writeDelta(ctx, sealed); err != nil {
		return err
	}
	if s.db == nil && len(s.chain.deltas) > 0 {
		if err := s.openDB(nil); err != nil {
			return err
		}
	}
	return s.ingest(ctx)
}
