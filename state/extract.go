package state

import (
	"context"
	"encoding/binary"
	"errors"

	"github.com/cockroachdb/pebble/v2"

	"github.com/streamdb/streamdb/internal/pgerr"
)

// Extract copies the tables of a snapshot for which as returns true into files below opts.Dir, under the number that it returns: of two tables the later
// one keeps the greater number. The result is for Open with the same folder, in which the
// files are those of an earlier incarnation: they are removed when the state has been published for the first time.
func Extract(ctx context.Context, opts Options, from *Snapshot, as func(table uint32) (uint32, bool)) (out *Snapshot, err error) {
	opts.Backend = BackendPebble
	s, err := Open(ctx, opts, from)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, s.Close()) }()
	s.snapMu.Lock()
	defer s.snapMu.Unlock()
	w := &sstWriter{store: s, prefix: "kept"}
	out = &Snapshot{Format: SnapshotFormat, Backend: BackendPebble, MaxParallelism: from.MaxParallelism, Entries: map[uint32]int64{}}
	n := 0
	var renamed []byte
	err = s.eachEntry(ctx, func(key, val []byte) error {
		if n++; n%ctxCheckEntries == 0 && ctx.Err() != nil {
			return ctx.Err()
		}
		if len(key) < diskPrefix {
			return pgerr.Newf(pgerr.DataCorrupted, "state key of %d bytes is too short", len(key))
		}
		table := binary.BigEndian.Uint32(key[groupBytes:])
		table, ok := as(table)
		if !ok {
			return nil
		}
		out.Entries[table]++
		renamed = append(renamed[:0], key...)
		binary.BigEndian.PutUint32(renamed[groupBytes:], table)
		return w.add(renamed, val, false)
	})
	if err == nil {
		err = w.finish()
	}
	if err != nil {
		w.abort()
		return nil, err
	}
	for _, h := range w.handles {
		out.FullSize += h.Size
	}
	out.Deltas, out.NewBytes = w.handles, out.FullSize
	return out, nil
}

// eachEntry calls f for all entries of a store that was just restored, in order of their keys, which are valid during the call.
func (s *Store) eachEntry(ctx context.Context, f func(key, val []byte) error) error {
	r, err := s.readEntries(ctx)
	if err != nil {
		return err
	}
	for r.ok && err == nil {
		if err = f(r.key, r.val); err == nil {
			err = r.next()
		}
	}
	return errors.Join(err, r.close())
}

// entryReader goes through all entries of a store in order of their keys; key and val are valid until the next one.
type entryReader struct {
	ok       bool
	key, val []byte
	merger   *merger
	it       *pebble.Iterator
	seek     []byte
	store    *Store // of Compare: opened for it
}

func (s *Store) readEntries(ctx context.Context) (r *entryReader, err error) {
	r = &entryReader{}
	if s.db == nil {
		r.merger, err = s.newMerger(ctx, s.chain.deltas)
	} else {
		r.it, err = s.cold.newIter(false)
	}
	if err != nil {
		return nil, err
	}
	if err := r.next(); err != nil {
		return nil, errors.Join(err, r.close())
	}
	return r, nil
}

func (r *entryReader) next() (err error) {
	if r.it == nil {
		for {
			if r.ok, err = r.merger.next(); err != nil || !r.ok || !r.merger.tomb {
				r.key, r.val = r.merger.key, r.merger.val
				return err
			}
		}
	}
	if r.key == nil {
		return r.at(r.it.First())
	}
	return r.at(r.it.Next())
}

// at takes up where the iterator stands.
func (r *entryReader) at(ok bool) (err error) {
	if r.ok = ok; !ok {
		return r.it.Error()
	}
	r.key = r.it.Key()
	r.val, err = r.it.ValueAndErr()
	return err
}

func (r *entryReader) close() error {
	if r.it != nil {
		return r.it.Close()
	}
	return r.merger.close()
}
