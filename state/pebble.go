package state

import (
	"bytes"
	"context"
	"errors"
	"os"
	"strings"
	"time"

	"github.com/cockroachdb/pebble/v2"
	"github.com/cockroachdb/pebble/v2/bloom"
	"github.com/cockroachdb/pebble/v2/sstable"
	"github.com/cockroachdb/pebble/v2/vfs"

	"github.com/streamdb/streamdb/internal/pgerr"
)

const (
	// memTableBytes is small because nothing is ever written but by ingestion, and Pebble takes it out of the block cache.
	memTableBytes    = 64 << 10
	maxManifestBytes = 1 << 20
	maxCompactions   = 2
	// l0ThrottleSublevels is the read amplification of level 0 at which ingestions wait for compactions, at most l0ThrottleWait.
	l0ThrottleSublevels = 12
	l0ThrottleWait      = 20 * time.Second
	tableFileBytes      = 8 << 20
)

// openDB opens the incarnation's Pebble DB, over the files of base when there are any.
func (s *Store) openDB(base []Handle) error {
	if err := s.makeDir(); err != nil {
		return err
	}
	dir := s.liveDir()
	if err := s.fs.MkdirAll(dir, 0o755); err != nil {
		return pgerr.Wrap(pgerr.IOError, err, "create state folder")
	}
	for _, h := range base {
		if err := s.place(h, s.fs.PathJoin(dir, s.base(h.Name))); err != nil {
			return err
		}
	}
	s.compacted = make(chan struct{}, 1)
	db, err := pebble.Open(dir, s.pebbleOptions())
	if err != nil {
		return ioError(err, "open state")
	}
	s.db = &dbRef{db: db}
	s.db.refs.Store(1)
	fs, incarnation, job := s.fs, s.incarnationDir(), s.opts.Dir
	s.db.onGone = func(error) {
		// The live folder is of no use without its process, nor are the folders around it when nothing else is in them. What
		// cannot be removed stays until the next incarnation's first confirmation.
		_ = fs.RemoveAll(dir)
		_ = fs.Remove(incarnation)
		_ = fs.Remove(job)
	}
	s.publish()
	return nil
}

// isTable reports whether a file of a Pebble DB is a table: immutable for ever. The others (MANIFEST, OPTIONS, markers) are the DB's to write.
func isTable(name string) bool {
	return strings.HasSuffix(name, ".sst") || strings.HasSuffix(name, ".blob")
}

// place puts the bytes of h at path, tables as hard links where possible.
func (s *Store) place(h Handle, path string) error {
	if h.Path != "" {
		put := vfs.LinkOrCopy
		if !isTable(h.Name) {
			put = vfs.Copy
		}
		if err := put(s.fs, h.Path, path); err != nil {
			return pgerr.Wrap(pgerr.IOError, err, "place state file %s", h.Name)
		}
		return nil
	}
	f, err := s.fs.Create(path, vfs.WriteCategoryUnspecified)
	if err != nil {
		return pgerr.Wrap(pgerr.IOError, err, "place state file %s", h.Name)
	}
	_, err = f.Write(bytes.Clone(h.Inline)) // the in-memory file system of race builds scrambles what it was given
	if err = errors.Join(err, f.Close()); err != nil {
		return pgerr.Wrap(pgerr.IOError, err, "place state file %s", h.Name)
	}
	return nil
}

func (s *Store) pebbleOptions() *pebble.Options {
	compacted, background := s.compacted, &s.background
	o := &pebble.Options{
		Cache:                      s.shared.cache,
		FileCache:                  s.shared.fileCache,
		FS:                         s.fs,
		DisableWAL:                 true,
		FormatMajorVersion:         formatMajorVersion,
		MemTableSize:               memTableBytes,
		MaxManifestFileSize:        maxManifestBytes,
		Logger:                     pebbleLogger{s.opts.Logger},
		L0CompactionThreshold:      4,
		CompactionConcurrencyRange: func() (int, int) { return 1, maxCompactions },
		EventListener: &pebble.EventListener{
			BackgroundError: func(err error) {
				e := ioError(err, "compact state")
				background.CompareAndSwap(nil, &e)
			},
			CompactionEnd: func(pebble.CompactionInfo) {
				select {
				case compacted <- struct{}{}:
				default:
				}
			},
		},
	}
	o.Experimental.L0CompactionConcurrency = 4
	for i := range o.Levels {
		l := &o.Levels[i]
		l.BlockSize = sstBlockBytes
		l.FilterPolicy = bloom.FilterPolicy(bloomBitsPerKey)
		l.FilterType = pebble.TableFilter
		l.Compression = func() *sstable.CompressionProfile { return sstable.SnappyCompression }
	}
	for i := range o.TargetFileSizes {
		o.TargetFileSizes[i] = tableFileBytes
	}
	return o
}

// publish gives the parts the present content of Pebble, which has everything that is in deltas.
func (s *Store) publish() {
	fresh, short := newColdSnap(s.db), s.budget.Soft()
	s.mu.Lock()
	old := s.cold
	s.cold = fresh
	all := len(s.chain.pending()) == 0
	for _, p := range s.parts {
		if all {
			p.ingestedSeq = p.writtenSeq
			p.tombs = append(p.tombs, p.held...)
			p.held = nil
			// All parts give way, not only those that come first: what stays makes the next flush come sooner.
			p.evictNow = short
		}
		p.news.Store(true)
	}
	s.mu.Unlock()
	old.release()
}

// ingest brings all deltas that Pebble does not have into it, in one call.
func (s *Store) ingest(ctx context.Context) error {
	if s.db == nil {
		return nil
	}
	un := s.chain.pending()
	if len(un) == 0 {
		return nil
	}
	if err := s.opts.Failpoints.Hit("state.ingest"); err != nil {
		return pgerr.Wrap(pgerr.IOError, err, "ingest state")
	}
	if err := s.waitForCompactions(ctx); err != nil {
		return err
	}
	paths, err := s.filesToIngest(ctx, un)
	if err == nil && len(paths) > 0 {
		if err = s.db.db.Ingest(ctx, paths); err != nil {
			err = ioError(err, "ingest state")
		}
	}
	for _, p := range paths {
		if e := s.fs.Remove(p); e != nil && !errors.Is(e, os.ErrNotExist) && err == nil {
			err = pgerr.Wrap(pgerr.IOError, e, "ingest state")
		}
		delete(s.files, p)
	}
	if err != nil {
		return err
	}
	for i := range un {
		un[i].ingested = true
		s.stats.IngestedBytes += un[i].bytes
	}
	s.stats.Ingests++
	s.fillFilters()
	s.publish()
	return nil
}

// filesToIngest returns files with the content of ds that do not overlap and that Pebble may take.
func (s *Store) filesToIngest(ctx context.Context, ds []delta) ([]string, error) {
	var paths []string
	if len(ds) == 1 {
		for _, h := range ds[0].handles {
			s.fileSeq++
			p := s.fs.PathJoin(s.incarnationDir(), s.fileName("ingest"))
			if err := s.place(h, p); err != nil {
				return paths, err
			}
			paths = append(paths, p)
		}
		return paths, nil
	}
	whole := len(s.chain.base) == 0 && len(ds) == len(s.chain.deltas)
	hs, err := s.mergeFiles(ctx, ds, &sstWriter{store: s, prefix: "ingest", onDisk: true}, whole)
	for _, h := range hs {
		paths = append(paths, h.Path)
	}
	return paths, err
}

// waitForCompactions holds back ingestions while level 0 is deep: ingestion, unlike writes, has no brake of its own in Pebble.
func (s *Store) waitForCompactions(ctx context.Context) error {
	var limit <-chan time.Time
	start := time.Now()
	defer func() { s.stats.Throttled += time.Since(start) }()
	for s.db.db.Metrics().Levels[0].Sublevels > l0ThrottleSublevels {
		if limit == nil {
			t := time.NewTimer(l0ThrottleWait)
			defer t.Stop()
			limit = t.C
		}
		select {
		case <-s.compacted:
		case <-limit:
			return nil
		case <-ctx.Done():
			return ctx.Err()
		}
	}
	return nil
}

// renewBase makes the present content of Pebble the base of the chain. SSTs that an earlier base had keep their names.
func (s *Store) renewBase(ctx context.Context) error {
	if err := s.ingest(ctx); err != nil {
		return err
	}
	if err := s.opts.Failpoints.Hit("state.base.checkpoint"); err != nil {
		return pgerr.Wrap(pgerr.IOError, err, "checkpoint state")
	}
	s.fileSeq++
	name := strings.TrimSuffix(s.fileName("base"), ".sst")
	dir := s.fs.PathJoin(s.incarnationDir(), name)
	if err := s.db.db.Checkpoint(dir); err != nil {
		return errors.Join(ioError(err, "checkpoint state"), s.fs.RemoveAll(dir))
	}
	base, files, err := s.baseHandles(ctx, dir, name)
	if err != nil {
		return errors.Join(err, s.fs.RemoveAll(dir))
	}
	s.chain.base, s.chain.deltas, s.chain.baseBytes = base, nil, 0
	s.chain.version++
	s.baseFiles = files
	for _, h := range base {
		s.chain.baseBytes += h.Size
	}
	s.stats.Bases++
	return nil
}

// baseHandles describes the files of a Pebble checkpoint. Table files are immutable and named once; the small rest is new each time.
func (s *Store) baseHandles(ctx context.Context, dir, name string) (base []Handle, tables map[string]Handle, err error) {
	list, err := s.fs.List(dir)
	if err != nil {
		return nil, nil, pgerr.Wrap(pgerr.IOError, err, "list state base")
	}
	tables = map[string]Handle{}
	for _, n := range list {
		if err := ctx.Err(); err != nil {
			return nil, nil, err
		}
		path := s.fs.PathJoin(dir, n)
		table := isTable(n)
		if h, ok := s.baseFiles[n]; ok && table {
			if err := s.fs.Remove(path); err != nil { // the earlier base's link holds the same bytes
				return nil, nil, pgerr.Wrap(pgerr.IOError, err, "trim state base")
			}
			base, tables[n] = append(base, h), h
			continue
		}
		h := Handle{Name: s.incarnation + "/" + n, Path: path}
		if !table {
			h.Name = s.incarnation + "/" + name + "/" + n
		}
		if h.Size, h.CRC, err = s.checksum(path); err != nil {
			return nil, nil, pgerr.Wrap(pgerr.IOError, err, "read state base")
		}
		if !table && h.Size <= s.policy.InlineMaxBytes {
			if h.Inline, err = s.readAndRemove(path, h.Size); err != nil {
				return nil, nil, err
			}
			h.Path = ""
		} else {
			s.files[path] = struct{}{}
		}
		if table {
			tables[n] = h
		}
		base = append(base, h)
	}
	return base, tables, nil
}

func (s *Store) readAndRemove(path string, size int64) ([]byte, error) {
	f, err := s.fs.Open(path)
	if err != nil {
		return nil, pgerr.Wrap(pgerr.IOError, err, "read state base")
	}
	buf := make([]byte, size)
	if size > 0 {
		_, err = f.ReadAt(buf, 0)
	}
	if err = errors.Join(err, f.Close(), s.fs.Remove(path)); err != nil {
		return nil, pgerr.Wrap(pgerr.IOError, err, "read state base")
	}
	return buf, nil
}
