package state

import (
	"bufio"
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"hash"
	"hash/crc32"
	"io"

	"github.com/cockroachdb/pebble/v2/vfs"

	"github.com/streamdb/streamdb/internal/pgerr"
)

// BackendCanonical marks a snapshot whose files no backend uses itself but every backend reads: keys and values in order, as
// docs/formats/savepoint.md describes them. Open takes it for a store of any backend.
const BackendCanonical BackendType = "canonical"

const (
	canonicalMagic  = "SDBSTATE"
	canonicalFormat = 1
	// canonicalFileBytes is the size at which a canonical state goes on in a next file.
	canonicalFileBytes = 64 << 20
	// maxEntryBytes bounds a key or a value: more in a file means that it is damaged.
	maxEntryBytes = 1 << 30
)

// Canonical writes the content of a snapshot, whose files have to be local, in the form that depends on no backend, into files of the folder opts.Dir.
func Canonical(ctx context.Context, opts Options, from *Snapshot) (out *Snapshot, err error) {
	opts.Backend, opts.MaxParallelism = BackendPebble, from.MaxParallelism
	s, err := Open(ctx, opts, from)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, s.Close()) }()
	s.snapMu.Lock()
	defer s.snapMu.Unlock()
	out = &Snapshot{Format: SnapshotFormat, Backend: BackendCanonical, MaxParallelism: from.MaxParallelism, Entries: map[uint32]int64{}}
	w := &canonicalWriter{store: s}
	n := 0
	err = s.eachEntry(ctx, func(key, val []byte) error {
		if n++; n%ctxCheckEntries == 0 && ctx.Err() != nil {
			return ctx.Err()
		}
		if len(key) < diskPrefix {
			return pgerr.Newf(pgerr.DataCorrupted, "state key of %d bytes is too short", len(key))
		}
		out.Entries[binary.BigEndian.Uint32(key[groupBytes:])]++
		return w.add(key, val)
	})
	if err = errors.Join(err, w.finish()); err != nil {
		return nil, err
	}
	for _, h := range w.handles {
		out.FullSize += h.Size
	}
	out.Deltas, out.NewBytes = w.handles, out.FullSize
	return out, nil
}

// canonicalWriter writes files of a canonical state.
type canonicalWriter struct {
	store       *Store
	path        string
	file        vfs.File
	buf         *bufio.Writer
	body        hash.Hash32 // of all but the checksum at the end
	size        int64
	count       uint64
	first, last []byte
	handles     []Handle
}

func (w *canonicalWriter) write(b []byte) error {
	_, _ = w.body.Write(b) // a hash never fails
	w.size += int64(len(b))
	if _, err := w.buf.Write(b); err != nil {
		return ioError(err, "write state")
	}
	return nil
}

func (w *canonicalWriter) add(key, val []byte) error {
	if w.file == nil {
		path, f, err := w.store.createFile("canonical")
		if err != nil {
			return err
		}
		w.path, w.file, w.buf, w.body = path, f, bufio.NewWriterSize(f, checksumBufBytes), crc32.New(castagnoli)
		w.size, w.count, w.first = 0, 0, bytes.Clone(key)
		if err := w.write(binary.BigEndian.AppendUint32([]byte(canonicalMagic), canonicalFormat)); err != nil {
			return err
		}
	}
	head := binary.AppendUvarint(nil, uint64(len(key)))
	if err := w.write(binary.AppendUvarint(append(head, key...), uint64(len(val)))); err != nil {
		return err
	}
	if err := w.write(val); err != nil {
		return err
	}
	w.count++
	w.last = append(w.last[:0], key...)
	if w.size >= canonicalFileBytes {
		return w.finish()
	}
	return nil
}

// finish ends the present file: a key of no bytes, the number of entries, the checksum.
func (w *canonicalWriter) finish() error {
	if w.file == nil {
		return nil
	}
	err := w.write(binary.BigEndian.AppendUint64([]byte{0}, w.count))
	var tail []byte
	if err == nil {
		tail = binary.BigEndian.AppendUint32(nil, w.body.Sum32())
		_, err = w.buf.Write(tail)
	}
	if err == nil {
		err = w.buf.Flush()
	}
	if err == nil {
		err = w.file.Sync()
	}
	err = errors.Join(err, w.file.Close())
	w.file = nil
	if err != nil {
		return ioError(err, "write state")
	}
	_, _ = w.body.Write(tail) // a hash never fails
	// The store forgets the file: it stays when the store is closed.
	delete(w.store.files, w.path)
	w.handles = append(w.handles, Handle{
		Name: w.store.incarnation + "/" + w.store.base(w.path), Path: w.path, Size: w.size + int64(len(tail)), CRC: w.body.Sum32(), First: w.first, Last: bytes.Clone(w.last),
	})
	return nil
}

// importCanonical turns a canonical snapshot into one of the store's own backend.
func (s *Store) importCanonical(ctx context.Context, from *Snapshot) (*Snapshot, error) {
	w := &sstWriter{store: s, prefix: "import", memory: s.opts.Dir == "", single: s.opts.Dir == ""}
	out := &Snapshot{Format: SnapshotFormat, Backend: s.opts.Backend, MaxParallelism: from.MaxParallelism, Entries: map[uint32]int64{}}
	n := 0
	var last []byte
	for _, h := range from.Deltas {
		if err := s.verify(h); err != nil {
			return nil, err
		}
		err := s.eachCanonical(h, func(key, val []byte) error {
			if n++; n%ctxCheckEntries == 0 && ctx.Err() != nil {
				return ctx.Err()
			}
			if len(key) < diskPrefix || n > 1 && bytes.Compare(last, key) >= 0 {
				return corruptCanonical(h, "entry %d is not in order", n)
			}
			last = append(last[:0], key...)
			out.Entries[binary.BigEndian.Uint32(key[groupBytes:])]++
			return w.add(key, val, false)
		})
		if err != nil {
			w.abort()
			return nil, err
		}
	}
	if err := w.finish(); err != nil {
		w.abort()
		return nil, err
	}
	for _, h := range w.handles {
		out.FullSize += h.Size
	}
	out.Deltas = w.handles
	return out, nil
}

func corruptCanonical(h Handle, format string, args ...any) error {
	return pgerr.Newf(pgerr.DataCorrupted, "state file %s is corrupt: %s", h.Name, fmt.Sprintf(format, args...))
}

// eachCanonical calls f for the entries of a canonical file, which are valid during the call.
func (s *Store) eachCanonical(h Handle, f func(key, val []byte) error) (err error) {
	var from io.Reader = bytes.NewReader(h.Inline)
	if h.Path != "" {
		file, err := s.fs.Open(h.Path)
		if err != nil {
			return ioError(err, "read state")
		}
		defer file.Close()
		from = file
	}
	r := bufio.NewReaderSize(from, checksumBufBytes)
	head := make([]byte, len(canonicalMagic)+4)
	if _, err := io.ReadFull(r, head); err != nil || string(head[:len(canonicalMagic)]) != canonicalMagic {
		return corruptCanonical(h, "it does not begin as a file of state does")
	}
	if v := binary.BigEndian.Uint32(head[len(canonicalMagic):]); v > canonicalFormat {
		return pgerr.Newf(pgerr.FeatureNotSupported, "state file %s has format %d, this version reads up to %d", h.Name, v, canonicalFormat).
			WithHint("It was written by a newer version of streamdb: use that version.")
	}
	var key, val []byte
	field := func(into []byte) ([]byte, error) {
		n, err := binary.ReadUvarint(r)
		if err != nil || n > maxEntryBytes {
			return nil, corruptCanonical(h, "it ends in the middle of an entry")
		}
		if uint64(cap(into)) < n {
			into = make([]byte, n)
		}
		into = into[:n]
		if _, err := io.ReadFull(r, into); err != nil {
			return nil, corruptCanonical(h, "it ends in the middle of an entry")
		}
		return into, nil
	}
	for count := uint64(0); ; count++ {
		if key, err = field(key); err != nil {
			return err
		}
		if len(key) == 0 {
			tail := make([]byte, 8)
			if _, err := io.ReadFull(r, tail); err != nil || binary.BigEndian.Uint64(tail) != count {
				return corruptCanonical(h, "it does not have the number of entries that its end tells")
			}
			return nil
		}
		if val, err = field(val); err != nil {
			return err
		}
		if err := f(key, val); err != nil {
			return err
		}
	}
}
