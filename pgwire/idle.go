package pgwire

import (
	"encoding/binary"
	"errors"
	"time"

	"github.com/streamdb/streamdb/internal/pgerr"
)

// Notification is a message of NOTIFY to a session that listens.
type Notification struct {
	PID              int32 // of the session that sent it
	Channel, Payload string
}

// Idler is what a Session may implement besides: what happens while its client says nothing. The connection's goroutine calls it between the
// other calls.
type Idler interface {
	// IdleTimeout returns how long the connection may wait for the client's next message, 0 for ever, and the error that ends it then. It is
	// asked for at each ReadyForQuery.
	IdleTimeout() (time.Duration, *pgerr.Error)
	// Notifications takes what is to be sent to the client now; nothing within a transaction. It is asked for before each ReadyForQuery, and
	// when StartupParams.Wake was called while the connection waited for its client.
	Notifications() []Notification
}

// errWoken is what a read returns when somebody woke the connection.
var errWoken = errors.New("read ended: the connection was woken")

// wake makes the connection look after its notifications as soon as it waits for its client. Any goroutine may call it.
func (c *conn) wake() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.rd.wake()
}

// awaitIdle waits for the next message, sends what comes for the client meanwhile, and ends the connection when it waited too long.
func (c *conn) awaitIdle() (byte, []byte, error) {
	stop := c.startIdleTimer()
	defer stop()
	for {
		typ, body, err := c.rd.await(maxMessageBytes, true)
		if !errors.Is(err, errWoken) {
			return typ, body, err
		}
		c.mu.Lock()
		expired := c.expired
		c.mu.Unlock()
		if expired != nil {
			return 0, nil, fatal(expired)
		}
		if err := c.sendNotifications(); err != nil {
			return 0, nil, err
		}
		if err := c.wr.Flush(); err != nil {
			return 0, nil, err
		}
	}
}

// startIdleTimer starts the time that the session gives its client, once per ReadyForQuery. stop ends it; a timer that fires too late hits
// nothing.
func (c *conn) startIdleTimer() (stop func()) {
	d, cause := c.idle, c.idleCause
	c.idle = 0
	if d <= 0 {
		return func() {}
	}
	over := false
	t := time.AfterFunc(d, func() {
		c.mu.Lock()
		defer c.mu.Unlock()
		if !over {
			c.expired = cause
			c.rd.wake()
		}
	})
	return func() {
		t.Stop()
		c.mu.Lock()
		defer c.mu.Unlock()
		over, c.expired = true, nil
	}
}

// sendNotifications appends the messages that wait for the client.
func (c *conn) sendNotifications() error {
	s, ok := c.sess.(Idler)
	if !ok {
		return nil
	}
	for _, n := range s.Notifications() {
		out := append(c.wr.out, 'A', 0, 0, 0, 0)
		start := len(c.wr.out) + 1
		out = binary.BigEndian.AppendUint32(out, uint32(n.PID))
		out = append(append(out, cleanText(n.Channel)...), 0)
		out = append(append(out, cleanText(n.Payload)...), 0)
		binary.BigEndian.PutUint32(out[start:], uint32(len(out)-start))
		c.wr.out = out
		if err := c.wr.sent(); err != nil {
			return err
		}
	}
	return nil
}

// Cancel cancels what the session of a process id is doing; false: there is no such session.
func (s *Server) Cancel(pid int32) bool {
	c := s.session(pid)
	if c != nil {
		c.cancelRunning()
	}
	return c != nil
}

// Terminate ends the session of a process id as soon as its statement has noticed; false: there is no such session.
func (s *Server) Terminate(pid int32) bool {
	c := s.session(pid)
	if c != nil {
		c.terminate()
	}
	return c != nil
}

func (s *Server) session(pid int32) *conn {
	s.mu.Lock()
	defer s.mu.Unlock()
	if c := s.conns[pid]; c != nil && c.counted {
		return c
	}
	return nil
}
