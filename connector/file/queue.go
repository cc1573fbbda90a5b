package file

import (
	"cmp"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/cespare/xxhash/v2"

	"github.com/streamdb/streamdb/internal/pgerr"
)

// Limits of the queue.
const (
	// maxPending is how many files, each held open, may wait to be read.
	maxPending = 64
	// maxRead is how many files read before are remembered, so that their rotated names are not taken for files nobody has read.
	maxRead = 64
	// maxScans bounds the looks at a directory whose files are renamed meanwhile.
	maxScans = 4
)

// identity names a file of this machine whatever its path is. It may be used again when the file is removed and nobody has it open.
type identity struct{ dev, ino uint64 }

func identityOf(info os.FileInfo) identity {
	st, ok := info.Sys().(*syscall.Stat_t)
	if !ok {
		return identity{}
	}
	return identity{uint64(st.Dev), st.Ino} //nolint:unconvert // the width of Dev depends on the system
}

// readFile is a file that was read to its end. The hash of the bytes before the end tells it from a later file of the same identity.
type readFile struct {
	identity
	end  int64
	tail uint64
}

// pending is an open file that waits to be read. The queue owns its handle.
type pending struct {
	file    *os.File
	id      identity
	size    int64
	changed time.Time // when the file was last seen to grow
	mtime   time.Time // when it was opened
}

// openPending opens a file to be queued. One found under a rotated name is as quiet as its time of modification says.
func (r *reader) openPending(path string) (pending, error) {
	f, err := os.Open(path)
	if err != nil {
		return pending{}, err
	}
	info, err := f.Stat()
	if err != nil {
		_ = f.Close() // only read from
		return pending{}, err
	}
	p := pending{file: f, id: identityOf(info), size: info.Size(), changed: r.s.now(), mtime: info.ModTime()}
	if path != r.path && p.mtime.Before(p.changed) {
		p.changed = p.mtime
	}
	return p, nil
}

// queues reports whether files that replace one another at the path are read one after the other.
func (r *reader) queues() bool { return r.s.follow && !r.gzip }

// watch looks at the path: a file there that is not known is opened and queued at once, for it may be renamed before its turn. Rotated files that
// came and went between two looks are queued before it.
func (r *reader) watch() {
	if !r.queues() {
		return
	}
	now := r.s.now()
	r.watched = now
	for i := range r.queue {
		p := &r.queue[i]
		if info, err := p.file.Stat(); err == nil && info.Size() != p.size {
			p.size, p.changed = info.Size(), now
		}
	}
	info, err := os.Stat(r.path)
	if err != nil || !info.Mode().IsRegular() {
		return
	}
	if id := identityOf(info); r.known(id) {
		if id == r.newest() {
			r.floor = info.ModTime()
		}
		return
	}
	next, err := r.openPending(r.path)
	if err != nil {
		return // renamed since, or not readable: reading it will report that
	}
	if !r.known(next.id) && r.scan(next.id) && r.push(next) {
		r.full = false
		return
	}
	_ = next.file.Close() // only read from
}

// known reports whether the file is being read or waits.
func (r *reader) known(id identity) bool {
	return r.file != nil && id == r.id || slices.ContainsFunc(r.queue, func(p pending) bool { return p.id == id })
}

// newest returns the identity of the file that came last.
func (r *reader) newest() identity {
	if n := len(r.queue); n > 0 {
		return r.queue[n-1].id
	}
	return r.id
}

// push queues a file, and reports whether there was room. A file without room is looked for again by its time of modification.
func (r *reader) push(p pending) bool {
	if len(r.queue) >= maxPending {
		if !r.full {
			r.full = true
			r.report(pgerr.Newf(pgerr.ProgramLimitExceeded, "more than %d files that were rotated from \"%s\" wait to be read", maxPending, r.path).
				WithHint("Further ones are read if they still are in the directory, under names that begin with the old one, when there is room."))
		}
		return false
	}
	r.s.take(p.id, r.path)
	r.queue = append(r.queue, p)
	r.floor = p.mtime
	return true
}

// report reports what is not about a row.
func (r *reader) report(err error) {
	r.errs.BadRow(r.path, "offset "+strconv.FormatInt(r.offset+int64(r.head), 10), err, nil)
}

// scan queues the rotated files nobody has read that were modified after the newest file was last seen at the path, in the order of their
// modification. It looks again while it finds some, for they may be renamed during a look. It returns false when not all have room.
func (r *reader) scan(at identity) bool {
	if r.floor.IsZero() {
		return true
	}
	floor := r.floor
	for range maxScans {
		var found []pending
		r.siblings(func(path, suffix string) bool {
			if !rotatedSuffix(suffix) || r.s.ownSplit(path) {
				return false
			}
			info, err := os.Stat(path)
			if err != nil || info.ModTime().Before(floor) || identityOf(info) == at || r.known(identityOf(info)) {
				return false
			}
			p, err := r.openPending(path)
			if err != nil {
				return false
			}
			if p.id == at || r.known(p.id) || r.wasRead(&p) || slices.ContainsFunc(found, func(f pending) bool { return f.id == p.id }) {
				_ = p.file.Close() // only read from
				return false
			}
			found = append(found, p)
			return false
		})
		slices.SortStableFunc(found, func(a, b pending) int { return a.mtime.Compare(b.mtime) })
		room := true
		for _, p := range found {
			if room = room && r.push(p); !room {
				_ = p.file.Close() // only read from
			}
		}
		if !room || len(found) == 0 {
			return room
		}
	}
	return true
}

// siblings calls visit with the files in the directory of the path whose names begin with its own, until it returns true.
func (r *reader) siblings(visit func(path, suffix string) bool) {
	dir, base := filepath.Split(r.path)
	entries, err := os.ReadDir(filepath.Clean(dir))
	if err != nil {
		return
	}
	for _, e := range entries {
		suffix, ok := strings.CutPrefix(e.Name(), base)
		if ok && suffix != "" && e.Type().IsRegular() && visit(filepath.Join(dir, e.Name()), suffix) {
			return
		}
	}
}

// rotatedSuffix reports whether it is one that rotation appends, like .1 or -20240131: other files next to a log have names that begin alike.
func rotatedSuffix(s string) bool {
	if len(s) < 2 || !strings.ContainsRune(".-_", rune(s[0])) || s[1] < '0' || s[1] > '9' {
		return false
	}
	return !slices.Contains([]string{gzipSuffix, ".bz2", ".xz", ".zst", ".lz4", ".zip", ".Z", ".tmp"}, filepath.Ext(s))
}

// ownSplit reports whether the source reads the path as a split of its own.
func (s *source) ownSplit(path string) bool {
	ok, err := filepath.Match(s.path, path)
	return ok && err == nil
}

// wasRead reports whether the file is one that was read to its end.
func (r *reader) wasRead(p *pending) bool {
	return slices.ContainsFunc(r.read, func(f readFile) bool {
		if f.identity != p.id {
			return false
		}
		tail := make([]byte, min(tailBytes, f.end))
		_, err := p.file.ReadAt(tail, f.end-int64(len(tail)))
		return err == nil && xxhash.Sum64(tail) == f.tail
	})
}

// remember notes the file that is being read as read to its end. One without rows is not noted: reading it again does no harm.
func (r *reader) remember() {
	end := r.offset + int64(r.head)
	if !r.started || end <= r.body {
		return
	}
	if len(r.read) >= maxRead {
		r.read = slices.Delete(r.read, 0, 1)
	}
	r.read = append(r.read, readFile{identity: r.id, end: end, tail: xxhash.Sum64(r.before())})
}

// pop makes the first file of the queue the one to open next.
func (r *reader) pop() {
	if len(r.queue) > 0 {
		r.next = r.queue[0]
		r.queue = slices.Delete(r.queue, 0, 1)
	}
}

// find opens the file the position was taken from: by its identity where the position has it, otherwise by the bytes before the position. lost says
// why it is none of those that are there. The file is without handle when there is none at the path either.
func (r *reader) find() (p pending, lost, err error) {
	p, err = r.openPending(r.path)
	want := r.restore.current
	if r.gzip || err != nil && !os.IsNotExist(err) || want == (identity{}) && r.restore.offset == 0 {
		return p, nil, err
	}
	if err == nil {
		lost = r.verify(p.file)
		if lost == nil && (p.id == want || want == identity{}) {
			return p, nil, nil
		}
	}
	var same, alike pending
	if err != nil || p.id != want || r.restore.offset > 0 {
		r.siblings(func(path, _ string) bool {
			s, err := r.openPending(path)
			switch {
			case err != nil:
				return false
			case r.verify(s.file) != nil:
			case s.id == want:
				same = s
				return true
			case alike.file == nil && r.restore.offset > 0:
				alike = s
				return false
			}
			_ = s.file.Close() // only read from
			return false
		})
	}
	take := same
	switch {
	case same.file != nil:
	case err == nil && lost == nil && r.restore.offset > 0: // a copy of it
		take = p
	default:
		take = alike
	}
	for _, o := range []pending{p, alike} {
		if o.file != nil && o.file != take.file && (take.file != nil || o.file != p.file) {
			_ = o.file.Close() // only read from
		}
	}
	if take.file != nil {
		return take, nil, nil
	}
	if lost == nil && err == nil {
		lost = pgerr.Newf(pgerr.DataCorrupted, "the file that was opened at \"%s\" before is gone: reading the one that is there", r.path)
	}
	return p, lost, err
}

// requeue queues the files that waited when the position was taken. Those that are gone are reported.
func (r *reader) requeue() {
	ids := r.restore.queue
	r.restore.queue = nil
	if len(ids) == 0 {
		return
	}
	found := map[identity]pending{}
	take := func(path, _ string) bool {
		p, err := r.openPending(path)
		if err != nil {
			return false
		}
		if _, ok := found[p.id]; ok || !slices.Contains(ids, p.id) || r.known(p.id) {
			_ = p.file.Close() // only read from
			return false
		}
		found[p.id] = p
		return false
	}
	for range maxScans { // they may be renamed during a look
		take(r.path, "")
		r.siblings(take)
		if len(found) == len(ids) {
			break
		}
	}
	for _, id := range ids {
		if p, ok := found[id]; ok {
			r.s.take(id, r.path)
			r.queue = append(r.queue, p)
			continue
		}
		if !r.known(id) {
			r.report(pgerr.Newf(pgerr.UndefinedFile, "a file that was rotated from \"%s\" is gone before it was read", r.path))
		}
	}
}

// leave closes the handles of the files that wait.
func (r *reader) leave() {
	for _, p := range append(r.queue, r.next) {
		if p.file != nil {
			r.s.release(p.id)
			_ = p.file.Close() // only read from
		}
	}
	r.queue, r.next = nil, pending{}
}

// ids returns the identities of the files that wait.
func (r *reader) ids() []identity {
	out := slices.Clone(r.restore.queue)
	for _, p := range r.queue {
		out = append(out, p.id)
	}
	return out
}

// floorNanos returns the floor for a position.
func (r *reader) floorNanos() int64 {
	if r.floor.IsZero() {
		return 0
	}
	return cmp.Or(r.floor.UnixNano(), 1)
}
