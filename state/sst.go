package state

import (
	"bytes"
	"context"
	"errors"
	"hash/crc32"
	"io"
	"os"
	"time"

	"github.com/cockroachdb/pebble/v2"
	"github.com/cockroachdb/pebble/v2/bloom"
	"github.com/cockroachdb/pebble/v2/objstorage"
	"github.com/cockroachdb/pebble/v2/sstable"
	"github.com/cockroachdb/pebble/v2/vfs"

	"github.com/streamdb/streamdb/internal/pgerr"
)

const (
	// bloomBitsPerKey gives 1 % false positives.
	bloomBitsPerKey = 10
	sstBlockBytes   = 16 << 10
	// ctxCheckEntries is how many entries are written between two looks at the context.
	ctxCheckEntries = 4096

	// formatMajorVersion of the Pebble DBs, baked into stored files: raising it makes older binaries refuse them.
	formatMajorVersion = pebble.FormatColumnarBlocks
)

// castagnoli is read only.
var castagnoli = crc32.MakeTable(crc32.Castagnoli)

func sstWriterOptions() sstable.WriterOptions {
	return sstable.WriterOptions{
		BlockSize:    sstBlockBytes,
		Comparer:     pebble.DefaultComparer,
		Compression:  sstable.SnappyCompression,
		FilterPolicy: bloom.FilterPolicy(bloomBitsPerKey),
		FilterType:   sstable.TableFilter,
		TableFormat:  formatMajorVersion.MaxTableFormat(),
	}
}

// output collects the bytes of one file: in memory while they are few, on disk from then on. It computes size and checksum on the
// way, before anything can go wrong on a disk.
type output struct {
	fs     vfs.FS
	create func() (path string, f vfs.File, err error) // nil: always in memory
	limit  int                                         // bytes kept in memory
	buf    []byte
	file   vfs.File
	path   string
	size   int64
	crc    uint32
}

var _ objstorage.Writable = (*output)(nil)

func (o *output) Write(p []byte) error {
	o.crc = crc32.Update(o.crc, castagnoli, p)
	o.size += int64(len(p))
	if o.file == nil {
		if o.create == nil || len(o.buf)+len(p) <= o.limit {
			o.buf = append(o.buf, p...)
			return nil
		}
		path, f, err := o.create()
		if err != nil {
			return err
		}
		o.path, o.file = path, f
		if _, err := f.Write(o.buf); err != nil {
			return err
		}
		o.buf = nil
	}
	_, err := o.file.Write(p)
	return err
}

func (o *output) Finish() error {
	if o.file == nil {
		return nil
	}
	err := o.file.Sync()
	return errors.Join(err, o.file.Close())
}

func (o *output) Abort() {
	if o.file != nil {
		// The write failed already and its error is on its way up; what is left here is to leave no file behind.
		_ = o.file.Close()
		_ = o.fs.Remove(o.path)
	}
}

// sstWriter writes keys in ascending order into one or more files of a delta.
type sstWriter struct {
	store   *Store
	prefix  string // of the files' names
	memory  bool   // never write a file
	single  bool   // never split
	onDisk  bool   // never inline
	out     *output
	w       *sstable.Writer
	first   []byte
	last    []byte
	handles []Handle
	entries int64
}

func (w *sstWriter) add(key, val []byte, tombstone bool) error {
	if w.w == nil {
		w.start(key)
	}
	var err error
	if tombstone {
		err = w.w.Delete(key)
	} else {
		err = w.w.Set(key, val)
	}
	if err != nil {
		return ioError(err, "write state")
	}
	w.entries++
	w.last = append(w.last[:0], key...)
	if !w.single && int64(w.w.Raw().EstimatedSize()) > w.store.policy.SSTBytes {
		return w.finish()
	}
	return nil
}

func (w *sstWriter) start(first []byte) {
	w.first = append([]byte(nil), first...)
	w.out = &output{fs: w.store.fs}
	if !w.memory {
		w.out.create = func() (string, vfs.File, error) { return w.store.createFile(w.prefix) }
		if !w.onDisk {
			w.out.limit = int(w.store.policy.InlineMaxBytes)
		}
	}
	w.w = sstable.NewWriter(w.out, sstWriterOptions())
}

// finish ends the present file.
func (w *sstWriter) finish() error {
	if w.w == nil {
		return nil
	}
	err := w.w.Close()
	w.w = nil
	if err != nil {
		return ioError(err, "write state")
	}
	h := Handle{Size: w.out.size, CRC: w.out.crc, First: w.first, Last: append([]byte(nil), w.last...)}
	if w.out.path != "" {
		h.Path = w.out.path
		h.Name = w.store.incarnation + "/" + w.store.base(w.out.path)
	} else {
		h.Inline = w.out.buf
		w.store.fileSeq++
		h.Name = w.store.incarnation + "/" + w.store.fileName(w.prefix)
	}
	w.handles = append(w.handles, h)
	return nil
}

// abort removes what was written.
func (w *sstWriter) abort() {
	if w.w != nil {
		// Closing frees the writer's buffers; its error is the one that led here.
		_ = w.w.Close()
		w.w = nil
		if w.out.path != "" {
			_ = w.store.fs.Remove(w.out.path)
			delete(w.store.files, w.out.path)
		}
	}
	for _, h := range w.handles {
		if h.Path != "" {
			_ = w.store.fs.Remove(h.Path)
			delete(w.store.files, h.Path)
		}
	}
	w.handles = nil
}

// memFile lets an inline file be read as an SST.
type memFile struct{ *bytes.Reader }

func (m memFile) Close() error                { return nil }
func (m memFile) Stat() (vfs.FileInfo, error) { return memInfo{m.Reader.Size()}, nil }

type memInfo struct{ size int64 }

func (memInfo) Name() string           { return "inline" }
func (i memInfo) Size() int64          { return i.size }
func (memInfo) Mode() os.FileMode      { return 0o400 }
func (memInfo) ModTime() time.Time     { return time.Time{} }
func (memInfo) IsDir() bool            { return false }
func (memInfo) Sys() any               { return nil }
func (memInfo) DeviceID() vfs.DeviceID { return vfs.DeviceID{} }

// sstSource walks the entries of one file.
type sstSource struct {
	reader *sstable.Reader
	iter   sstable.Iterator
	age    int // of its delta: higher is newer
	key    []byte
	val    []byte
	tomb   bool
}

func (s *Store) openSource(ctx context.Context, h Handle, age int) (*sstSource, error) {
	var file sstable.ReadableFile
	if h.Path == "" {
		file = memFile{bytes.NewReader(h.Inline)}
	} else {
		f, err := s.fs.Open(h.Path)
		if err != nil {
			return nil, pgerr.Wrap(pgerr.IOError, err, "open state file %s", h.Name)
		}
		file = f
	}
	readable, err := sstable.NewSimpleReadable(file)
	if err != nil {
		return nil, errors.Join(ioError(err, "open state file "+h.Name), file.Close())
	}
	r, err := sstable.NewReader(ctx, readable, sstable.ReaderOptions{Comparer: pebble.DefaultComparer})
	if err != nil {
		// NewReader closes the file when it fails.
		return nil, pgerr.Wrap(pgerr.DataCorrupted, err, "read state file %s", h.Name)
	}
	it, err := r.NewIter(sstable.NoTransforms, nil, nil, sstable.AssertNoBlobHandles)
	if err != nil {
		return nil, errors.Join(ioError(err, "read state file "+h.Name), r.Close())
	}
	return &sstSource{reader: r, iter: it, age: age}, nil
}

// next moves on; first tells that it is the first move.
func (s *sstSource) next(first bool) (bool, error) {
	move := s.iter.Next
	if first {
		move = s.iter.First
	}
	kv := move()
	if kv == nil {
		if err := s.iter.Error(); err != nil {
			return false, ioError(err, "read state")
		}
		return false, nil
	}
	s.key, s.tomb = kv.K.UserKey, kv.Kind() == pebble.InternalKeyKindDelete
	var err error
	if s.val, _, err = kv.Value(nil); err != nil {
		return false, ioError(err, "read state")
	}
	return true, nil
}

func (s *sstSource) close() error { return errors.Join(s.iter.Close(), s.reader.Close()) }

// merger yields the newest version of every key of many files, in order. A heap orders the sources by key, then newest first.
type merger struct {
	heap []*sstSource
	key  []byte
	val  []byte
	tomb bool
	prev []byte
	any  bool
}

func (s *Store) newMerger(ctx context.Context, deltas []delta) (m *merger, err error) {
	m = &merger{}
	for age, d := range deltas {
		for _, h := range d.handles {
			src, err := s.openSource(ctx, h, age)
			if err != nil {
				return nil, errors.Join(err, m.close())
			}
			ok, err := src.next(true)
			if err != nil || !ok {
				if err := errors.Join(err, src.close()); err != nil {
					return nil, errors.Join(err, m.close())
				}
				continue
			}
			m.heap = append(m.heap, src)
		}
	}
	for i := len(m.heap)/2 - 1; i >= 0; i-- {
		m.down(i)
	}
	return m, nil
}

func (m *merger) less(i, j int) bool {
	c := bytes.Compare(m.heap[i].key, m.heap[j].key)
	return c < 0 || c == 0 && m.heap[i].age > m.heap[j].age
}

func (m *merger) down(i int) {
	for {
		c := 2*i + 1
		if c >= len(m.heap) {
			return
		}
		if c+1 < len(m.heap) && m.less(c+1, c) {
			c++
		}
		if !m.less(c, i) {
			return
		}
		m.heap[i], m.heap[c] = m.heap[c], m.heap[i]
		i = c
	}
}

// next moves to the next key; key and val are valid until the move after it.
func (m *merger) next() (bool, error) {
	if m.any { // the top was handed out: step it now, so that its bytes stayed valid
		m.prev = append(m.prev[:0], m.key...)
		m.any = false
		if err := m.step(); err != nil {
			return false, err
		}
	}
	for len(m.heap) > 0 && m.prev != nil && bytes.Equal(m.heap[0].key, m.prev) {
		if err := m.step(); err != nil {
			return false, err
		}
	}
	if len(m.heap) == 0 {
		return false, nil
	}
	top := m.heap[0]
	m.key, m.val, m.tomb, m.any = top.key, top.val, top.tomb, true
	return true, nil
}

func (m *merger) step() error {
	top := m.heap[0]
	ok, err := top.next(false)
	if err != nil {
		return err
	}
	if !ok {
		m.heap[0] = m.heap[len(m.heap)-1]
		m.heap = m.heap[:len(m.heap)-1]
		if err := top.close(); err != nil {
			return ioError(err, "read state")
		}
	}
	m.down(0)
	return nil
}

func (m *merger) close() error {
	var err error
	for _, s := range m.heap {
		err = errors.Join(err, s.close())
	}
	m.heap = nil
	return err
}

// verify checks size and checksum of h's bytes.
func (s *Store) verify(h Handle) error {
	if h.Path == "" {
		if int64(len(h.Inline)) != h.Size || crc32.Checksum(h.Inline, castagnoli) != h.CRC {
			return corrupted(h)
		}
		return nil
	}
	size, crc, err := s.checksum(h.Path)
	if err != nil {
		return pgerr.Wrap(pgerr.IOError, err, "read state file %s", h.Name)
	}
	if size != h.Size || crc != h.CRC {
		return corrupted(h)
	}
	return nil
}

func corrupted(h Handle) error {
	return pgerr.Newf(pgerr.DataCorrupted, "state file %s does not have the size or the checksum that its snapshot recorded", h.Name).
		WithHint("Fetch the file again, or restore from an older checkpoint.")
}

// checksumBufBytes is what is read at a time when checksumming a file.
const checksumBufBytes = 1 << 20

func (s *Store) checksum(path string) (size int64, crc uint32, err error) {
	f, err := s.fs.Open(path)
	if err != nil {
		return 0, 0, err
	}
	buf := make([]byte, checksumBufBytes)
	for {
		n, e := f.Read(buf)
		crc = crc32.Update(crc, castagnoli, buf[:n])
		size += int64(n)
		if e == io.EOF {
			return size, crc, f.Close()
		}
		if e != nil {
			return 0, 0, errors.Join(e, f.Close())
		}
	}
}
