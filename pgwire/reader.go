package pgwire

import (
	"encoding/binary"
	"errors"
	"io"
	"net"
	"os"
	"sync"
	"time"

	"github.com/streamdb/streamdb/internal/pgerr"
)

const (
	// maxMessageBytes caps a message of a client, its length word included.
	maxMessageBytes = 64 << 20
	// maxAuthMessageBytes caps messages of clients that are not known yet (PostgreSQL's PG_MAX_AUTH_TOKEN_LENGTH).
	maxAuthMessageBytes = 65535
	// readBufferBytes is the size of a connection's input buffer; it grows to hold a larger message.
	readBufferBytes = 8 << 10
	// maxIdleBufferBytes caps the input and output buffers that a connection keeps when it has nothing to do.
	maxIdleBufferBytes = 256 << 10
	// maxReadAheadBytes caps what is read while a statement runs. A client that sent more is not watched any longer.
	maxReadAheadBytes = 64 << 10
	// watchDelay is how long a connection works before its socket is watched. Short statements thus pay for a timer only.
	watchDelay = 20 * time.Millisecond

	messageHeaderBytes = 5 // type and length
)

// reader gives a connection's input message by message. It belongs to the connection's goroutine; only interrupt and the
// watcher come from elsewhere.
//
// While the connection works on a statement nobody reads the socket, so nobody would see the client vanish. Therefore each
// fill arms a timer; when it fires, the watcher reads ahead into its own buffer, where pipelined messages wait, and calls
// gone at the first error. The next fill stops the watcher and takes over what it read.
type reader struct {
	nc   net.Conn
	gone func(error)

	buf  []byte
	r, w int // buf[r:w] is unread
	err  error

	timer *time.Timer

	mu          sync.Mutex // guards the rest
	armed       bool
	watching    chan struct{} // closed when the watcher has returned; nil: there is none
	waiting     bool          // in a read that interrupt and wake may end
	woken       bool
	interrupted bool
	aborted     bool

	// Owned by the watcher until watching is closed, by the connection's goroutine otherwise.
	ahead    []byte
	aheadErr error
}

func newReader(nc net.Conn, gone func(error)) *reader {
	return &reader{nc: nc, gone: gone, buf: make([]byte, readBufferBytes)}
}

// Next implements pgproto3.ChunkReader for a message that await has brought in: it never reads from the connection. The bytes
// are valid until the next await.
func (r *reader) Next(n int) ([]byte, error) {
	if r.w-r.r < n {
		return nil, io.ErrUnexpectedEOF
	}
	b := r.buf[r.r : r.r+n : r.r+n]
	r.r += n
	return b, nil
}

// await brings in the whole next message and returns its type and its body, without consuming it. The limit is checked
// before memory is taken for it, and memory is taken as the bytes arrive.
func (r *reader) await(limit int, interruptible bool) (byte, []byte, error) {
	if err := r.need(messageHeaderBytes, interruptible); err != nil {
		return 0, nil, err
	}
	typ := r.buf[r.r]
	size := int64(binary.BigEndian.Uint32(r.buf[r.r+1:]))
	if !knownMessage(typ) {
		return 0, nil, fatal(protocolViolation("invalid frontend message type %d", typ))
	}
	if size < messageHeaderBytes-1 {
		return 0, nil, fatal(protocolViolation("invalid message length %d", size))
	}
	if size > int64(limit) {
		return 0, nil, fatal(pgerr.Newf(pgerr.ProgramLimitExceeded, "message of %d bytes exceeds the limit of %d bytes", size, limit).
			WithHint("Send the data in several statements, or use COPY."))
	}
	if err := r.need(1+int(size), interruptible); err != nil {
		return 0, nil, err
	}
	return typ, r.buf[r.r+messageHeaderBytes : r.r+1+int(size)], nil
}

// discard consumes the message that await returned last.
func (r *reader) discard(body []byte) { r.r += messageHeaderBytes + len(body) }

// buffered returns the number of unread bytes at hand.
func (r *reader) buffered() int { return r.w - r.r }

// need brings n unread bytes into the buffer.
func (r *reader) need(n int, interruptible bool) error {
	for r.w-r.r < n {
		if err := r.fill(n, interruptible); err != nil {
			return err
		}
	}
	return nil
}

func (r *reader) fill(n int, interruptible bool) error {
	r.stopWatch()
	if r.w-r.r >= n {
		r.arm()
		return nil
	}
	if r.err != nil {
		return r.err
	}
	r.makeRoom(n)
	if err := r.beginRead(interruptible); err != nil {
		return err
	}
	m, err := r.nc.Read(r.buf[r.w:])
	r.w += m
	interrupted, woken := r.endRead()
	if errors.Is(err, os.ErrDeadlineExceeded) {
		switch {
		case interrupted:
			return errInterrupted
		case woken:
			r.slept()
			return errWoken
		}
	}
	if err != nil {
		if errors.Is(err, io.EOF) && r.w > r.r {
			err = io.ErrUnexpectedEOF
		}
		r.err = err
		if r.w-r.r < n {
			return err
		}
	}
	r.arm()
	return nil
}

// makeRoom makes space behind the unread bytes, towards n of them in all. The buffer at most doubles, so a length that is
// only claimed costs nothing.
func (r *reader) makeRoom(n int) {
	if r.r == r.w {
		r.r, r.w = 0, 0
		if len(r.buf) > maxIdleBufferBytes {
			r.buf = make([]byte, readBufferBytes)
		}
	}
	if len(r.buf)-r.r >= n && r.w < len(r.buf) {
		return
	}
	unread := r.buf[r.r:r.w]
	if len(unread) == len(r.buf) {
		r.buf = make([]byte, min(2*len(r.buf), max(n, readBufferBytes)))
	}
	copy(r.buf, unread)
	r.r, r.w = 0, len(unread)
}

// beginRead is called before a read, endRead after it; interruptible reads end when interrupt or wake is called, all when abort is.
func (r *reader) beginRead(interruptible bool) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.aborted || interruptible && r.interrupted {
		return errInterrupted
	}
	if interruptible && r.woken {
		r.woken = false
		return errWoken
	}
	r.waiting = interruptible
	return nil
}

func (r *reader) endRead() (interrupted, woken bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	waited := r.waiting
	r.waiting = false
	woken = waited && r.woken
	if (waited && r.interrupted || woken) && !r.aborted {
		// Data may have come first; what follows (COPY data) must not meet the deadline.
		_ = r.nc.SetReadDeadline(time.Time{})
	}
	return r.aborted || waited && r.interrupted, woken
}

// slept takes back a wake that was answered. One that came together with data is answered at the next wait.
func (r *reader) slept() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.woken = false
}

// wake makes the read that waits for a new message, or the next one that does, return errWoken.
func (r *reader) wake() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.woken = true
	if r.waiting && !r.aborted {
		// A failure means that the connection is closed, which ends the read as well.
		_ = r.nc.SetReadDeadline(longAgo())
	}
}

// interrupt makes reads that wait for a new message, now and from now on, fail with errInterrupted. What was received already
// is still handed out.
func (r *reader) interrupt() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.interrupted = true
	if r.waiting {
		// A failure means that the connection is closed, which ends the read as well.
		_ = r.nc.SetReadDeadline(longAgo())
	}
}

// abort does the same to all reads, those of COPY data too.
func (r *reader) abort() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.interrupted, r.aborted = true, true
	_ = r.nc.SetReadDeadline(longAgo())
}

func longAgo() time.Time { return time.Unix(1, 0) }

// arm starts the delay after which the connection is watched.
func (r *reader) arm() {
	if r.gone == nil {
		return
	}
	r.mu.Lock()
	r.armed = true
	r.mu.Unlock()
	if r.timer == nil {
		r.timer = time.AfterFunc(watchDelay, r.watch)
	} else {
		r.timer.Reset(watchDelay)
	}
}

// watch reads ahead until stopWatch, an error, or the limit.
func (r *reader) watch() {
	r.mu.Lock()
	if !r.armed {
		r.mu.Unlock()
		return
	}
	r.armed = false
	done := make(chan struct{})
	r.watching = done
	r.mu.Unlock()
	defer close(done)
	if r.ahead == nil {
		r.ahead = make([]byte, 0, readBufferBytes)
	}
	for len(r.ahead) < maxReadAheadBytes {
		if len(r.ahead) == cap(r.ahead) {
			r.ahead = append(r.ahead, 0)[:len(r.ahead)]
		}
		n, err := r.nc.Read(r.ahead[len(r.ahead):min(cap(r.ahead), maxReadAheadBytes)])
		r.ahead = r.ahead[:len(r.ahead)+n]
		if errors.Is(err, os.ErrDeadlineExceeded) {
			return
		}
		if err != nil {
			r.aheadErr = err
			r.gone(err)
			return
		}
	}
}

// stopWatch ends the watching and appends what was read meanwhile. It writes behind r.w only: lent bytes stay as they are.
func (r *reader) stopWatch() {
	if r.timer == nil {
		return
	}
	r.timer.Stop()
	r.mu.Lock()
	r.armed = false
	done := r.watching
	r.watching = nil
	r.mu.Unlock()
	if done == nil {
		return
	}
	// Failures mean that the connection is closed, which ends the watcher's read as well.
	_ = r.nc.SetReadDeadline(longAgo())
	<-done
	r.resetDeadline()
	if len(r.ahead) > 0 {
		if len(r.buf)-r.w < len(r.ahead) {
			b := make([]byte, max(readBufferBytes, r.w-r.r+len(r.ahead)))
			r.w = copy(b, r.buf[r.r:r.w])
			r.r, r.buf = 0, b
		}
		r.w += copy(r.buf[r.w:], r.ahead)
	}
	r.ahead = nil
	if r.aheadErr != nil {
		r.err = r.aheadErr
	}
}

func (r *reader) resetDeadline() {
	r.mu.Lock()
	defer r.mu.Unlock()
	if !r.aborted {
		_ = r.nc.SetReadDeadline(time.Time{})
	}
}

// knownMessage reports whether a client may send messages of this type once it has started up.
func knownMessage(typ byte) bool {
	switch typ {
	case 'Q', 'P', 'B', 'D', 'E', 'C', 'S', 'H', 'X', 'F', 'd', 'c', 'f', 'p':
		return true
	}
	return false
}
