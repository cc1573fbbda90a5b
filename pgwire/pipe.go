package pgwire

import (
	"io"
	"net"
	"os"
	"sync"
	"time"
)

// pipeCapBytes caps what one direction of a Pipe holds; a writer waits when it is full.
const pipeCapBytes = 256 << 10

// Pipe returns the two ends of a connection inside of this process. Unlike net.Pipe it is buffered in both directions: a message
// costs its receiver one wake-up, and a client that sends many before it reads does not block the server.
func Pipe() (client, server net.Conn) {
	a, b := newPipeHalf(), newPipeHalf()
	return &pipeConn{in: a, out: b}, &pipeConn{in: b, out: a}
}

// pipeConn is one end of a Pipe.
type pipeConn struct {
	in, out *pipeHalf
}

func (c *pipeConn) Read(p []byte) (int, error)  { return c.in.read(p) }
func (c *pipeConn) Write(p []byte) (int, error) { return c.out.write(p) }

// Close closes both directions: the other end reads what is buffered, then io.EOF.
func (c *pipeConn) Close() error {
	c.in.close(true)
	c.out.close(false)
	return nil
}

func (c *pipeConn) LocalAddr() net.Addr  { return pipeAddr{} }
func (c *pipeConn) RemoteAddr() net.Addr { return pipeAddr{} }

func (c *pipeConn) SetDeadline(t time.Time) error {
	if err := c.SetReadDeadline(t); err != nil {
		return err
	}
	return c.SetWriteDeadline(t)
}

func (c *pipeConn) SetReadDeadline(t time.Time) error { return c.in.setDeadline(&c.in.readDeadline, t) }

func (c *pipeConn) SetWriteDeadline(t time.Time) error {
	return c.out.setDeadline(&c.out.writeDeadline, t)
}

// pipeAddr is the address of both ends.
type pipeAddr struct{}

func (pipeAddr) Network() string { return "pipe" }
func (pipeAddr) String() string  { return "pipe" }

// pipeHalf is one direction of a Pipe.
type pipeHalf struct {
	mu      sync.Mutex // guards everything below
	changed sync.Cond  // broadcast at each change that a waiting read or write may depend on

	buf                         []byte // buf[r:] is unread
	r                           int
	readClosed, writeClosed     bool
	readDeadline, writeDeadline pipeDeadline
}

// pipeDeadline wakes its half when it has passed.
type pipeDeadline struct {
	passed bool
	timer  *time.Timer
}

func newPipeHalf() *pipeHalf {
	h := &pipeHalf{}
	h.changed.L = &h.mu
	return h
}

func (h *pipeHalf) read(p []byte) (int, error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	for {
		switch {
		case h.readClosed:
			return 0, net.ErrClosed
		case h.readDeadline.passed:
			return 0, os.ErrDeadlineExceeded
		case len(p) == 0:
			return 0, nil
		case h.r < len(h.buf):
			n := copy(p, h.buf[h.r:])
			h.r += n
			if h.r == len(h.buf) {
				h.buf, h.r = h.buf[:0], 0
			}
			h.changed.Broadcast()
			return n, nil
		case h.writeClosed:
			return 0, io.EOF
		}
		h.changed.Wait()
	}
}

func (h *pipeHalf) write(p []byte) (int, error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	written := 0
	for {
		switch {
		case h.writeClosed:
			return written, net.ErrClosed
		case h.readClosed:
			return written, io.ErrClosedPipe
		case h.writeDeadline.passed:
			return written, os.ErrDeadlineExceeded
		}
		if free := pipeCapBytes - (len(h.buf) - h.r); free > 0 && len(p) > 0 {
			if h.r > 0 && len(h.buf)+min(free, len(p)) > cap(h.buf) {
				h.buf = h.buf[:copy(h.buf, h.buf[h.r:])]
				h.r = 0
			}
			n := min(free, len(p))
			h.buf = append(h.buf, p[:n]...)
			p = p[n:]
			written += n
			h.changed.Broadcast()
		}
		if len(p) == 0 {
			return written, nil
		}
		h.changed.Wait()
	}
}

// close ends the reading or the writing side; what is buffered can still be read after the writing side was closed.
func (h *pipeHalf) close(reading bool) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if reading {
		h.readClosed = true
		h.buf, h.r = nil, 0
		h.readDeadline.stop()
	} else {
		h.writeClosed = true
		h.writeDeadline.stop()
	}
	h.changed.Broadcast()
}

func (d *pipeDeadline) stop() {
	if d.timer != nil {
		d.timer.Stop()
		d.timer = nil
	}
}

func (h *pipeHalf) setDeadline(d *pipeDeadline, t time.Time) error {
	h.mu.Lock()
	defer h.mu.Unlock()
	if d == &h.readDeadline && h.readClosed || d == &h.writeDeadline && h.writeClosed {
		return net.ErrClosed
	}
	d.stop()
	d.passed = false
	if t.IsZero() {
		return nil
	}
	wait := time.Until(t)
	if wait <= 0 {
		d.passed = true
		h.changed.Broadcast()
		return nil
	}
	var timer *time.Timer
	timer = time.AfterFunc(wait, func() {
		h.mu.Lock()
		defer h.mu.Unlock()
		if d.timer == timer {
			d.passed = true
			h.changed.Broadcast()
		}
	})
	d.timer = timer
	return nil
}
