package state

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"

	"github.com/streamdb/streamdb/internal/pgerr"
)

// loadFactor estimates heap bytes from the compressed bytes of a snapshot.
const loadFactor = 3

// restore makes from the content of the store. No file of from is opened in place but for reading: all are linked into this
// incarnation's folder, so that the caller may remove its own.
func (s *Store) restore(ctx context.Context, from *Snapshot) error {
	if from.Format > SnapshotFormat {
		return pgerr.Newf(pgerr.FeatureNotSupported, "state snapshot has format %d, this version reads up to %d", from.Format, SnapshotFormat).
			WithHint("Restore it with the version that wrote it, or a newer one.")
	}
	if from.MaxParallelism != s.opts.MaxParallelism {
		return pgerr.Newf(pgerr.InvalidParameterValue, "state snapshot was written with max parallelism %d, not %d", from.MaxParallelism, s.opts.MaxParallelism).
			WithHint("Max parallelism is baked into stored keys and cannot change.")
	}
	if err := s.opts.Failpoints.Hit("state.restore"); err != nil {
		return pgerr.Wrap(pgerr.IOError, err, "restore state")
	}
	if from.Backend == BackendCanonical {
		imported, err := s.importCanonical(ctx, from)
		if err != nil {
			return err
		}
		from = imported
	}
	base, err := s.adopt(ctx, from.Base)
	if err != nil {
		return err
	}
	deltas, err := s.adopt(ctx, from.Deltas)
	if err != nil {
		return err
	}
	s.chain.base = base
	for _, h := range base {
		s.chain.baseBytes += h.Size
	}
	for len(deltas) > 0 {
		n := ascending(deltas)
		s.chain.append(makeDelta(deltas[:n:n], false))
		deltas = deltas[n:]
	}
	s.remember(0, from)
	s.records[0].confirmed = true
	s.records[0].paths = nil // of the caller
	if err := s.fill(ctx, from); err != nil {
		return err
	}
	if s.heapOnly { // its next snapshot is a whole one
		s.chain = chain{}
		s.collectFiles()
	}
	return nil
}

// ascending returns how many files from the first on do not overlap and rise: such as one delta was written in.
func ascending(hs []Handle) int {
	n := 1
	for n < len(hs) && bytes.Compare(hs[n-1].Last, hs[n].First) < 0 {
		n++
	}
	return n
}

// adopt verifies files, unless that has just been done, and links them into the incarnation's folder.
func (s *Store) adopt(ctx context.Context, hs []Handle) ([]Handle, error) {
	out := make([]Handle, 0, len(hs))
	for i, h := range hs {
		if err := ctx.Err(); err != nil {
			return nil, err
		}
		if !h.Checked {
			if err := s.verify(h); err != nil {
				return nil, err
			}
		}
		h.Checked, hs[i].Checked = false, false
		if h.Path != "" && s.opts.Dir != "" {
			if err := s.makeDir(); err != nil {
				return nil, err
			}
			s.fileSeq++
			path := s.fs.PathJoin(s.incarnationDir(), fmt.Sprintf("from-%06d-%s", s.fileSeq, s.base(h.Name)))
			if err := s.place(h, path); err != nil {
				return nil, err
			}
			s.files[path] = struct{}{}
			h.Path = path
		}
		out = append(out, h)
	}
	return out, nil
}

// fill brings the chain into memory when it is small, else into Pebble.
func (s *Store) fill(ctx context.Context, from *Snapshot) error {
	small := s.heapOnly || s.fits(from)
	if len(s.chain.base) > 0 {
		if s.heapOnly && s.shared == nil {
			s.shared, s.ownShared = OpenShared(ownSharedBytes), true
		}
		s.baseFiles = map[string]Handle{}
		for _, h := range s.chain.base {
			if n := s.base(h.Name); len(n) > 4 && (n[len(n)-4:] == ".sst" || n[len(n)-4:] == "blob") {
				s.baseFiles[n] = h
			}
		}
		if err := s.openDB(s.chain.base); err != nil {
			return err
		}
	}
	switch {
	case small && s.db == nil:
		return s.loadDeltas(ctx)
	case small:
		if err := s.ingest(ctx); err != nil {
			return err
		}
		if err := s.loadPebble(ctx); err != nil {
			return err
		}
		if s.heapOnly {
			s.cold.release()
			s.db.release()
			s.cold, s.db = nil, nil
		}
		return nil
	}
	if s.db == nil {
		if err := s.openDB(nil); err != nil {
			return err
		}
	}
	s.restored = from.Entries
	if s.restored == nil {
		return pgerr.Newf(pgerr.DataCorrupted, "state snapshot does not list its tables")
	}
	return s.ingest(ctx)
}

// fits estimates whether the whole state may live in the overlay.
func (s *Store) fits(from *Snapshot) bool {
	limit := s.budget.Limit()
	if limit == 0 {
		return true
	}
	need := from.FullSize * loadFactor
	for _, n := range from.Entries {
		need += n * entryOverhead
	}
	return need < limit*softPercent/100-s.budget.Used() && need < s.budget.fairShare()
}

func (s *Store) loadDeltas(ctx context.Context) error {
	m, err := s.newMerger(ctx, s.chain.deltas)
	if err != nil {
		return err
	}
	for n := 0; ; n++ {
		if n%ctxCheckEntries == 0 && ctx.Err() != nil {
			return errors.Join(ctx.Err(), m.close())
		}
		ok, err := m.next()
		if err != nil {
			return errors.Join(err, m.close())
		}
		if !ok {
			break
		}
		if !m.tomb {
			if err := s.load(m.key, m.val); err != nil {
				return errors.Join(err, m.close())
			}
		}
	}
	s.countLoaded()
	return m.close()
}

func (s *Store) loadPebble(ctx context.Context) error {
	it, err := s.cold.newIter(false)
	if err != nil {
		return err
	}
	n := 0
	for ok := it.First(); ok && err == nil; ok = it.Next() {
		if n++; n%ctxCheckEntries == 0 && ctx.Err() != nil {
			err = ctx.Err()
			break
		}
		var val []byte
		if val, err = it.ValueAndErr(); err == nil {
			err = s.load(it.Key(), val)
		}
	}
	if err = errors.Join(err, it.Error(), it.Close()); err != nil {
		return pgerr.Wrap(pgerr.DataCorrupted, err, "read restored state")
	}
	s.countLoaded()
	return nil
}

// load appends an entry, which come in the order of keys on disk: within a table that is the order of its overlay.
func (s *Store) load(key, val []byte) error {
	if len(key) < diskPrefix {
		return pgerr.Newf(pgerr.DataCorrupted, "state key of %d bytes is too short", len(key))
	}
	table := binary.BigEndian.Uint32(key[groupBytes:])
	t := s.loaded[table]
	if t == nil {
		if s.loaded == nil {
			s.loaded = map[uint32]*tree{}
		}
		t = newTree()
		s.loaded[table] = t
	}
	e := newEntry(binary.BigEndian.Uint16(key), key[diskPrefix:], val, 1<<metaShift)
	t.load(e)
	s.overlayBytes.Add(e.size())
	return nil
}

func (s *Store) countLoaded() { s.budget.Add(s.overlayBytes.Load()) }
