package state

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"github.com/cockroachdb/pebble/v2"
	"github.com/cockroachdb/pebble/v2/vfs"

	"github.com/streamdb/streamdb/internal/pgerr"
)

// Local layout of a job's folder:
//
//	<dir>/<incarnation>/live/        the Pebble DB in use; discarded after a crash, never the source of a restore
//	<dir>/<incarnation>/delta-N.sst  deltas, merged or not
//	<dir>/<incarnation>/base-N/      hard links of a Pebble DB's files
//	<dir>/<incarnation>/from-N-…     what the incarnation was restored from, linked
//
// A file other than those of live/ never changes once its handle was given out.

const liveName = "live"

// LocalName returns the last element of the handle's name that a file in a job's folder belongs to.
func LocalName(file string) string {
	if rest, ok := strings.CutPrefix(file, "from-"); ok && len(rest) > fromDigits && rest[fromDigits] == '-' {
		return rest[fromDigits+1:]
	}
	return file
}

// fromDigits is the width of the number in the names of files that an incarnation was restored from.
const fromDigits = 6

func (s *Store) incarnationDir() string  { return s.fs.PathJoin(s.opts.Dir, s.incarnation) }
func (s *Store) liveDir() string         { return s.fs.PathJoin(s.incarnationDir(), liveName) }
func (s *Store) base(path string) string { return filepath.Base(path) }

func (s *Store) fileName(prefix string) string { return fmt.Sprintf("%s-%06d.sst", prefix, s.fileSeq) }

func (s *Store) makeDir() error {
	if s.dirMade {
		return nil
	}
	if s.opts.Dir == "" {
		return pgerr.Newf(pgerr.InternalError, "state store has no folder")
	}
	if err := s.fs.MkdirAll(s.incarnationDir(), 0o755); err != nil {
		return pgerr.Wrap(pgerr.IOError, err, "create state folder")
	}
	s.dirMade = true
	s.files = map[string]struct{}{}
	return nil
}

// createFile creates the next file of the incarnation.
func (s *Store) createFile(prefix string) (string, vfs.File, error) {
	if err := s.makeDir(); err != nil {
		return "", nil, err
	}
	s.fileSeq++
	path := s.fs.PathJoin(s.incarnationDir(), s.fileName(prefix))
	f, err := s.fs.Create(path, vfs.WriteCategoryUnspecified)
	if err != nil {
		return "", nil, pgerr.Wrap(pgerr.IOError, err, "create state file")
	}
	s.files[path] = struct{}{}
	return path, f, nil
}

// findOldDirs lists the folders that earlier incarnations left.
func (s *Store) findOldDirs() error {
	if s.opts.Dir == "" || s.fs == nil {
		return nil
	}
	names, err := s.fs.List(s.opts.Dir)
	if errors.Is(err, os.ErrNotExist) {
		return nil
	}
	if err != nil {
		return pgerr.Wrap(pgerr.IOError, err, "list state folder")
	}
	s.oldDirs = nil
	for _, n := range names {
		s.oldDirs = append(s.oldDirs, s.fs.PathJoin(s.opts.Dir, n))
	}
	return nil
}

// record is a snapshot whose local files are kept.
type record struct {
	id        uint64
	confirmed bool
	held      bool
	names     map[string]struct{}
	paths     []string
}

// keepConfirmed is the number of confirmed snapshots whose local files stay.
const keepConfirmed = 2

// Confirm tells that snapshot id is durable elsewhere: local files that only older snapshots need may go. What cannot be removed
// now is tried again at the next confirmation.
func (s *Store) Confirm(id uint64) { s.tell(func() { s.confirm(id) }) }

// tell runs f while snapMu is held: now, or when who holds it is done. What tells of checkpoints must not wait for the snapshot of another one.
func (s *Store) tell(f func()) {
	s.mu.Lock()
	s.told = append(s.told, f)
	s.mu.Unlock()
	if s.snapMu.TryLock() {
		s.unlockSnap()
	}
}

// unlockSnap gives snapMu back after it has done what waits for it.
func (s *Store) unlockSnap() {
	for {
		s.mu.Lock()
		told := s.told
		s.told = nil
		s.mu.Unlock()
		for _, f := range told {
			f()
		}
		s.snapMu.Unlock()
		// What came meanwhile has not got the lock.
		s.mu.Lock()
		more := len(s.told) > 0
		s.mu.Unlock()
		if !more || !s.snapMu.TryLock() {
			return
		}
	}
}

// confirm is Confirm; snapMu is held.
func (s *Store) confirm(id uint64) {
	var confirmed []uint64
	for i := range s.records {
		if s.records[i].id == id {
			s.records[i].confirmed, s.records[i].held = true, false
		}
		if s.records[i].confirmed {
			confirmed = append(confirmed, s.records[i].id)
		}
	}
	if len(confirmed) >= keepConfirmed {
		oldest := confirmed[len(confirmed)-keepConfirmed]
		kept := s.records[:0]
		for _, r := range s.records {
			if r.id >= oldest || r.held {
				kept = append(kept, r)
			}
		}
		s.records = kept
	}
	var stuck []string
	for _, d := range s.oldDirs {
		if !s.removeIncarnation(d) {
			stuck = append(stuck, d)
		}
	}
	s.oldDirs = stuck
	s.collectFiles()
}

// Hold keeps the local files of snapshot id when later ones are confirmed, until Abort or Confirm of it: it is being copied somewhere else.
// To be called before another snapshot is taken.
func (s *Store) Hold(id uint64) {
	s.snapMu.Lock()
	defer s.unlockSnap()
	for i := range s.records {
		if s.records[i].id == id {
			s.records[i].held = true
		}
	}
}

// removeIncarnation removes the folder of an incarnation unless a Pebble DB is open in it: views of a store that was closed, or
// replaced after a failure, keep theirs open.
func (s *Store) removeIncarnation(dir string) bool {
	live := s.fs.PathJoin(dir, liveName)
	if _, err := s.fs.Stat(live); err == nil {
		lock, err := pebble.LockDirectory(live, s.fs)
		if err != nil {
			return false
		}
		if err := lock.Close(); err != nil {
			return false
		}
	}
	return s.fs.RemoveAll(dir) == nil
}

// Abort tells that snapshot id will never be published. What it wrote stays part of the chain: later snapshots include it.
func (s *Store) Abort(id uint64) { s.tell(func() { s.abort(id) }) }

// abort is Abort; snapMu is held.
func (s *Store) abort(id uint64) {
	kept := s.records[:0]
	for _, r := range s.records {
		if r.id != id || r.confirmed {
			kept = append(kept, r)
		}
	}
	if len(kept) < len(s.records) {
		s.last = nil
		s.unpublished.Store(true)
	}
	s.records = kept
}

// collectFiles removes local files that neither a kept snapshot nor the chain names.
func (s *Store) collectFiles() {
	if len(s.files) == 0 {
		return
	}
	used := map[string]struct{}{}
	for _, r := range s.records {
		for _, p := range r.paths {
			used[p] = struct{}{}
		}
	}
	for _, h := range s.chain.handles() {
		used[h.Path] = struct{}{}
	}
	for p := range s.files {
		if _, ok := used[p]; ok {
			continue
		}
		if err := s.fs.Remove(p); err != nil && !errors.Is(err, os.ErrNotExist) {
			continue // tried again at the next confirmation
		}
		delete(s.files, p)
		s.removeIfEmpty(s.fs.PathDir(p))
	}
}

// removeIfEmpty removes the folder of a base whose last file went.
func (s *Store) removeIfEmpty(dir string) {
	if dir == s.incarnationDir() {
		return
	}
	if names, err := s.fs.List(dir); err == nil && len(names) == 0 {
		// A folder that stays costs nothing and goes with its incarnation.
		_ = s.fs.Remove(dir)
	}
}
