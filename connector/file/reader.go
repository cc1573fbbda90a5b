package file

import (
	"bytes"
	"context"
	"errors"
	"io"
	"io/fs"
	"os"
	"strconv"
	"time"

	"github.com/cespare/xxhash/v2"
	"github.com/klauspost/compress/gzip"

	"github.com/streamdb/streamdb/connector"
	"github.com/streamdb/streamdb/connector/format"
	"github.com/streamdb/streamdb/internal/pgerr"
	"github.com/streamdb/streamdb/types"
)

// Limits and times of a reader.
const (
	// blockBytes is the usual size of a block. Strings keep their block alive, so it is not large.
	blockBytes = 64 << 10
	// minReadBytes is the least room worth a read.
	minReadBytes = blockBytes / 4
	// maxNextBytes bounds the work of one Next.
	maxNextBytes = 1 << 20
	// pollInterval is the wait at the end of a file that may grow.
	pollInterval = 100 * time.Millisecond
	// rotateGrace is how long a file that was renamed must not have grown before the new one at its path is read: programs go on writing
	// to the old file until they are told to open the new one.
	rotateGrace = time.Second
	// maxRawBytes is how much of a bad row is reported.
	maxRawBytes = 8 << 10
)

// reader reads one file. buf[head:] is what was read and not decoded; bytes before len(buf) are never written again once strings of them
// may have been handed out.
type reader struct {
	s      *source
	path   string
	errs   connector.ErrorSink
	format format.Config
	gzip   bool
	views  bool // the rows hold views into buf

	restore    position // to go on from when the file is opened
	generation uint64
	done       bool

	file    *os.File
	unzip   *gzip.Reader
	discard int64 // bytes of the decompressed stream to drop first
	dec     format.Decoder
	started bool // what comes before the rows was read
	idBase  int64

	buf      []byte
	head     int
	offset   int64  // of buf[0]
	tail     []byte // up to tailBytes before buf[0]
	skipping bool   // in a row that is too long
	waiting  bool   // the end of the file was reached
	failed   bool   // decompression has failed

	changed time.Time // when the file was last seen to grow
	size    int64     // what it had grown to by then
	body    int64     // where the rows begin

	id      identity   // of file
	next    pending    // to open next, without handle: the one at the path
	queue   []pending  // files that were at the path after it, oldest first
	read    []readFile // files read before, oldest first
	floor   time.Time  // when the newest of the files was modified, as last seen at the path
	watched time.Time  // when the path was last looked at
	full    bool       // that the queue is full was reported
}

// Next implements connector.Reader.
func (r *reader) Next(_ context.Context, c *types.Chunk, limit int) (connector.Status, time.Duration, error) {
	if r.done || r.restore.flags&flagDone != 0 {
		r.done = true
		return connector.End, 0, nil
	}
	if r.file == nil {
		st, ok, err := r.open()
		if err != nil || !ok {
			return st, pollInterval, err
		}
	}
	if r.s.now().Sub(r.watched) >= pollInterval {
		r.watch()
	}
	if r.waiting {
		r.waiting = false
		if !r.unchanged() {
			return r.restart(pgerr.Newf(pgerr.DataCorrupted, "file \"%s\" was rewritten: reading it again from its start", r.path))
		}
	}
	if !r.started {
		switch ok, err := r.start(); {
		case err != nil:
			return 0, 0, err
		case r.done:
			return connector.End, 0, nil
		case !ok:
			return r.atEnd(c, limit)
		}
	}
	for budget := maxNextBytes; ; {
		r.decode(c, limit, false)
		if c.N >= limit || budget <= 0 {
			return connector.More, 0, nil
		}
		n, err := r.fill()
		if err != nil {
			return 0, 0, err
		}
		if n > 0 {
			budget -= n
			continue
		}
		if c.N > 0 {
			return connector.More, 0, nil // the end is looked at in the next call
		}
		return r.atEnd(c, limit)
	}
}

// atEnd decides what the end of the file means.
func (r *reader) atEnd(c *types.Chunk, limit int) (connector.Status, time.Duration, error) {
	if !r.s.follow || r.gzip {
		if r.decode(c, limit, true); r.head < len(r.buf) {
			return connector.More, 0, nil // more rows than fit the chunk
		}
		r.done = true
		return connector.End, 0, nil
	}
	info, err := r.file.Stat()
	if err != nil {
		return 0, 0, pgerr.Wrap(pgerr.IOError, err, "could not stat file \"%s\"", r.path)
	}
	now := r.s.now()
	end := r.offset + int64(len(r.buf))
	switch {
	case info.Size() < end:
		return r.restart(pgerr.Newf(pgerr.DataCorrupted, "file \"%s\" was truncated from %d bytes or more to %d: reading it again from its start", r.path, end, info.Size()))
	case info.Size() > end:
		return connector.More, 0, nil
	}
	r.waiting = true
	r.watch()
	at, err := os.Stat(r.path)
	switch {
	case err != nil && !errors.Is(err, fs.ErrNotExist):
		return 0, 0, pgerr.Wrap(pgerr.IOError, err, "could not stat file \"%s\"", r.path)
	case err == nil && len(r.queue) == 0 && os.SameFile(at, info):
		if r.started && r.head < len(r.buf) && r.s.flush > 0 && now.Sub(r.changed) >= r.s.flush {
			return r.decodeRest(c, limit)
		}
	case now.Sub(r.changed) < rotateGrace: // The file was renamed or removed. Its writer may not know yet.
	case r.started && r.head < len(r.buf):
		return r.decodeRest(c, limit)
	case len(r.queue) > 0:
		r.remember()
		return r.advance()
	case err == nil && at.Mode().IsRegular(): // the file at the path could not be queued: opening it says why
		if f, err := os.Open(r.path); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return 0, 0, pgerr.Wrap(pgerr.IOError, err, "could not open file \"%s\"", r.path)
		} else if err == nil {
			_ = f.Close() // only read from
		}
	}
	return connector.Idle, pollInterval, nil
}

// decodeRest takes what is left as complete.
func (r *reader) decodeRest(c *types.Chunk, limit int) (connector.Status, time.Duration, error) {
	r.decode(c, limit, true)
	return connector.More, 0, nil
}

// unchanged reports whether the file still has, before its former end, the bytes that were read from there.
func (r *reader) unchanged() bool {
	want := append(append([]byte(nil), r.tail...), r.buf...)
	want = want[max(len(want)-tailBytes, 0):]
	have := make([]byte, len(want))
	n, _ := r.file.ReadAt(have, r.offset+int64(len(r.buf)-len(want)))
	return n < len(have) || bytes.Equal(have, want) // a shorter file is noticed by its size
}

// restart reads the file again from its start.
func (r *reader) restart(why error) (connector.Status, time.Duration, error) {
	notice := *pgerr.From(why)
	notice.Severity = "NOTICE" // no row is bad
	r.report(&notice)
	r.next = pending{file: r.file, id: r.id, changed: r.s.now()}
	r.file = nil
	r.renumber()
	return connector.More, 0, nil
}

// advance goes on with the first file of the queue.
func (r *reader) advance() (connector.Status, time.Duration, error) {
	err := r.closeFile()
	r.pop()
	r.renumber()
	return connector.More, 0, err
}

// renumber begins a generation.
func (r *reader) renumber() {
	r.generation++
	r.restore = position{generation: r.generation}
	r.buf, r.head, r.offset, r.tail, r.skipping, r.waiting, r.started = nil, 0, 0, nil, false, false, false
}

// open opens the file. ok is false when there is none yet, or ever.
func (r *reader) open() (st connector.Status, ok bool, err error) {
	p, lost := r.next, error(nil)
	if p.file == nil {
		p, lost, err = r.find()
	}
	switch {
	case errors.Is(err, fs.ErrNotExist) && r.s.follow:
		return connector.Idle, false, nil
	case errors.Is(err, fs.ErrNotExist):
		r.done = true
		return connector.End, false, nil
	case err != nil:
		return 0, false, pgerr.Wrap(pgerr.IOError, err, "could not open file \"%s\"", r.path)
	}
	if lost != nil && r.queues() && p.id != r.restore.current {
		return r.replace(p, lost)
	}
	fresh := r.next.file == nil && r.restore.current == identity{}
	r.file, r.id, r.next = p.file, p.id, pending{}
	r.changed, r.size = p.changed, p.size
	if fresh || r.floor.IsZero() {
		r.floor = p.mtime
	}
	r.s.take(r.id, r.path)
	r.requeue()
	if lost != nil {
		st, _, err := r.restart(lost)
		return st, false, err
	}
	if r.gzip {
		if r.unzip, err = gzip.NewReader(r.file); err != nil {
			r.refuse(pgerr.Wrap(pgerr.DataCorrupted, err, "could not read file \"%s\"", r.path), nil)
			return connector.End, false, nil
		}
	}
	if r.dec, err = format.New(&r.format); err != nil {
		return 0, false, err
	}
	r.started = false
	r.buf, r.head, r.offset, r.tail = nil, 0, 0, nil
	r.idBase = rowIDBase(r.path, r.generation)
	r.watch()
	return 0, true, nil
}

// replace goes on with the files that came after the one the position was taken from, which is lost.
func (r *reader) replace(at pending, lost error) (connector.Status, bool, error) {
	notice := *pgerr.From(lost)
	notice.Severity = "NOTICE"
	r.report(&notice)
	r.requeue()
	if r.known(at.id) || !r.scan(at.id) || !r.push(at) {
		_ = at.file.Close() // only read from
	}
	st, _, err := r.advance()
	return st, false, err
}

// start reads what comes before the rows and goes to the position to restore. ok is false when it is not all there yet.
func (r *reader) start() (ok bool, err error) {
	for {
		n, err := r.fill()
		if err != nil {
			return false, err
		}
		in := format.Input{Data: r.buf, Final: n == 0 && (!r.s.follow || r.gzip)}
		used, ok, err := r.dec.Start(&in)
		switch {
		case err != nil:
			r.refuse(err, r.buf)
			return false, nil
		case ok:
			r.head, r.started = used, true
			r.body = r.offset + int64(used)
			r.seek()
			return true, nil
		case len(r.buf) > format.MaxRowBytes:
			r.refuse(pgerr.Newf(pgerr.ProgramLimitExceeded, "the header is longer than %d bytes", format.MaxRowBytes), r.buf)
			return false, nil
		case n == 0:
			return false, nil
		}
	}
}

// seek goes to the position to restore.
func (r *reader) seek() {
	p := &r.restore
	if p.offset == 0 || p.offset < int64(r.head) {
		return
	}
	if end := int64(len(r.buf)); p.offset <= end {
		r.head = int(p.offset)
	} else {
		r.discard = p.offset - end
		if !r.gzip {
			r.discard = 0
			r.tail = make([]byte, min(tailBytes, p.offset))
			_, _ = r.file.ReadAt(r.tail, p.offset-int64(len(r.tail))) // verify has read them
		}
		r.buf, r.head, r.offset = nil, 0, p.offset-r.discard
	}
	r.dec.SetLine(p.line)
	r.skipping = p.flags&flagSkipping != 0
}

// verify checks that the file is the one the position was taken from.
func (r *reader) verify(f *os.File) error {
	p := &r.restore
	if p.offset == 0 {
		return nil
	}
	info, err := f.Stat()
	if err != nil {
		return nil //nolint:nilerr // reading will report it
	}
	if info.Size() < p.offset {
		return pgerr.Newf(pgerr.DataCorrupted, "file \"%s\" is shorter than the %d bytes read before: reading it again from its start", r.path, p.offset)
	}
	tail := make([]byte, min(tailBytes, p.offset))
	if _, err := f.ReadAt(tail, p.offset-int64(len(tail))); err == nil && xxhash.Sum64(tail) == p.tail {
		return nil
	}
	return pgerr.Newf(pgerr.DataCorrupted, "file \"%s\" is not the one read before: reading it again from its start", r.path)
}

// refuse reports a file that cannot be read at all. Its split ends.
func (r *reader) refuse(why error, raw []byte) {
	r.errs.BadRow(r.path, "line 1, offset 0", why, raw[:min(len(raw), maxRawBytes)])
	r.done = true
}

// decode decodes what is in the buffer.
func (r *reader) decode(c *types.Chunk, limit int, final bool) {
	if !r.started {
		return
	}
	if r.skipping {
		n := r.dec.Resync(r.buf[r.head:])
		if n < 0 {
			r.head = len(r.buf)
			return
		}
		r.head += n
		r.skipping = false
	}
	if r.head == len(r.buf) || c.N >= limit {
		return
	}
	in := format.Input{
		Data: r.buf[r.head:], Offset: r.offset + int64(r.head), Final: final, IDBase: r.idBase,
		Bad: func(line, offset int64, err error, raw []byte) {
			where := "line " + strconv.FormatInt(line, 10) + ", offset " + strconv.FormatInt(offset, 10)
			r.errs.BadRow(r.path, where, err, raw[:min(len(raw), maxRawBytes)])
		},
	}
	n := r.dec.Decode(&in, c, limit-c.N)
	r.head += n
	if n == 0 && c.N < limit && len(in.Data) > format.MaxRowBytes {
		in.Bad(r.dec.Line(), r.offset+int64(r.head), pgerr.Newf(pgerr.ProgramLimitExceeded, "row is longer than %d bytes", format.MaxRowBytes), r.buf[r.head:])
		r.skipping = true
		r.decode(c, limit, final)
	}
}

// fill reads more bytes behind buf and returns how many, 0 at the end of the file.
func (r *reader) fill() (int, error) {
	if room := cap(r.buf) - format.Pad - len(r.buf); room < minReadBytes {
		r.renew()
	}
	free := r.buf[len(r.buf) : cap(r.buf)-format.Pad]
	n, err := r.readInto(free)
	r.buf = r.buf[:len(r.buf)+n]
	if end := r.offset + int64(len(r.buf)); n > 0 && end > r.size {
		r.size, r.changed = end, r.s.now()
	}
	clear(r.buf[len(r.buf) : len(r.buf)+format.Pad]) // decompression may leave something there
	return n, err
}

func (r *reader) readInto(b []byte) (int, error) {
	if r.unzip == nil {
		n, err := r.file.ReadAt(b, r.offset+int64(len(r.buf)))
		if err != nil && !errors.Is(err, io.EOF) {
			return 0, pgerr.Wrap(pgerr.IOError, err, "could not read file \"%s\"", r.path)
		}
		return n, nil
	}
	for !r.failed {
		n, err := r.unzip.Read(b)
		if d := min(r.discard, int64(n)); d > 0 {
			r.discard -= d
			r.offset += d
			copy(b, b[d:n])
			n -= int(d)
		}
		switch {
		case n > 0, errors.Is(err, io.EOF):
			return n, nil
		case err != nil:
			at := r.offset + int64(len(r.buf))
			r.errs.BadRow(r.path, "offset "+strconv.FormatInt(at, 10), pgerr.Wrap(pgerr.DataCorrupted, err, "could not decompress file \"%s\"", r.path), nil)
			r.failed = true
		}
	}
	return 0, nil
}

// renew moves what is not decoded to a block with room. The old block is left to the strings that view it.
func (r *reader) renew() {
	rest := r.buf[r.head:]
	size := max(blockBytes, min(2*len(rest), format.MaxRowBytes+blockBytes))
	r.tail = r.before()
	next := r.buf[:0]
	if r.views || cap(next) < size+format.Pad {
		next = make([]byte, 0, size+format.Pad)
	}
	r.offset += int64(r.head)
	r.buf = append(next, rest...)
	r.head = 0
}

// before returns a copy of the up to tailBytes before the next row.
func (r *reader) before() []byte {
	if r.head >= tailBytes {
		return append([]byte(nil), r.buf[r.head-tailBytes:r.head]...)
	}
	t := append(append([]byte(nil), r.tail...), r.buf[:r.head]...)
	return t[max(len(t)-tailBytes, 0):]
}

// Position implements connector.Reader.
func (r *reader) Position() []byte {
	var p position
	switch {
	case r.file == nil && r.next.file != nil:
		p = position{generation: r.generation, current: r.next.id}
	case r.file == nil || !r.started || r.discard > 0:
		p = r.restore
		p.generation = r.generation
	default:
		p = position{generation: r.generation, offset: r.offset + int64(r.head), line: r.dec.Line(), tail: xxhash.Sum64(r.before())}
		if r.skipping {
			p.flags |= flagSkipping
		}
	}
	if r.queues() {
		if r.file != nil {
			p.current = r.id
		}
		p.floor, p.queue, p.read = r.floorNanos(), r.ids(), r.read
	}
	if r.done {
		p.flags |= flagDone
	}
	return p.encode()
}

// Lag implements connector.Reader: bytes of the file and of those that wait, unknown for compressed ones.
func (r *reader) Lag() int64 {
	if r.file == nil || r.gzip {
		return -1
	}
	info, err := r.file.Stat()
	if err != nil {
		return -1
	}
	n := max(info.Size()-r.offset-int64(r.head), 0)
	for i := range r.queue {
		n += r.queue[i].size
	}
	return n
}

// Close implements connector.Reader.
func (r *reader) Close() error {
	r.leave()
	return r.closeFile()
}

func (r *reader) closeFile() error {
	if r.file == nil {
		return nil
	}
	f := r.file
	r.file, r.unzip = nil, nil
	r.s.release(r.id)
	return f.Close()
}
