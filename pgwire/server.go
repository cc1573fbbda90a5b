package pgwire

import (
	"context"
	"crypto/rand"
	"crypto/tls"
	"errors"
	"net"
	"sync"
	"time"

	"github.com/rs/zerolog"

	"github.com/streamdb/streamdb/internal/pgerr"
)

const (
	// DefaultMaxConnections is the connection limit when Config names none.
	DefaultMaxConnections = 1000
	// maxPendingConnections caps the sockets beyond the connection limit: clients starting up, and those with a cancel request,
	// which must get through when the server is full.
	maxPendingConnections = 256
	// forcedCloseWait is how long Shutdown waits for statements to notice that they were cancelled, and again for sessions to
	// end after their sockets were closed.
	forcedCloseWait = 5 * time.Second
	// maxAcceptDelay caps the growing pause after an accept that failed for want of resources.
	maxAcceptDelay = time.Second
)

// Config sets up a Server.
type Config struct {
	Handler       Handler
	Authenticator Authenticator // nil: every client is who it says
	TLSConfig     *tls.Config   // nil: requests for TLS are declined
	// CurrentTLS, when set, is asked for TLSConfig at each connection.
	CurrentTLS     func() *tls.Config
	MaxConnections int // sessions at a time; 0: DefaultMaxConnections
	// CurrentMaxConnections, when set, is asked for MaxConnections at each connection.
	CurrentMaxConnections func() int
	// Refuse, when set, is asked at each connection before the client is authenticated: an error ends it as FATAL. With 57P03 clients that know several
	// servers go on to the next one, older ones of libpq only when it comes this early.
	Refuse func() error
	Logger zerolog.Logger // panics and internal errors go here
}

// Server serves clients from listeners and from within the process. NewServer starts nothing.
type Server struct {
	cfg Config

	wg sync.WaitGroup // one per connection

	mu        sync.Mutex // guards the rest
	draining  bool
	stop      chan struct{} // closed when draining begins
	listeners map[net.Listener]struct{}
	conns     map[int32]*conn // by process id
	sessions  int             // conns that are counted
	lastPID   int32
}

// tlsConfig returns the configuration for a new connection, nil when there is none.
func (s *Server) tlsConfig() *tls.Config {
	if s.cfg.CurrentTLS != nil {
		return s.cfg.CurrentTLS()
	}
	return s.cfg.TLSConfig
}

func (s *Server) maxConnections() int {
	if s.cfg.CurrentMaxConnections != nil {
		return s.cfg.CurrentMaxConnections()
	}
	return s.cfg.MaxConnections
}

// NewServer returns a server.
func NewServer(cfg Config) *Server {
	if cfg.MaxConnections == 0 {
		cfg.MaxConnections = DefaultMaxConnections
	}
	return &Server{cfg: cfg, stop: make(chan struct{}), listeners: map[net.Listener]struct{}{}, conns: map[int32]*conn{}}
}

// Serve accepts connections from l until Shutdown, then returns nil, or until l fails. It closes l.
func (s *Server) Serve(l net.Listener) error {
	defer func() { _ = l.Close() }()
	if !s.addListener(l) {
		return nil
	}
	defer s.removeListener(l)
	delay := time.Duration(0)
	for {
		nc, err := l.Accept()
		if err == nil {
			delay = 0
			s.start(nc)
			continue
		}
		if s.isDraining() {
			return nil
		}
		if errors.Is(err, net.ErrClosed) {
			return pgerr.Wrap(pgerr.ConnectionException, err, "cannot accept connections")
		}
		// Accept fails for a client that is gone again, or because file descriptors ran out: neither ends the server.
		delay = min(max(2*delay, time.Millisecond), maxAcceptDelay)
		select {
		case <-time.After(delay):
		case <-s.stop:
			return nil
		}
	}
}

// ServeConn serves one connection and returns when it has ended; it closes nc. Cancelling ctx terminates it.
func (s *Server) ServeConn(ctx context.Context, nc net.Conn) {
	c, ok := s.add(ctx, nc)
	if !ok {
		return
	}
	defer context.AfterFunc(ctx, c.terminate)()
	c.serve()
}

// Dial returns a connection to this server that stays inside of the process. It fits pgx's DialFunc; network and address do
// not matter.
func (s *Server) Dial(_ context.Context, _, _ string) (net.Conn, error) {
	client, server := Pipe()
	if !s.start(server) {
		_ = client.Close()
		return nil, pgerr.Newf(pgerr.CannotConnectNow, "the server takes no more connections")
	}
	return client, nil
}

// start serves nc in a goroutine of its own, which Shutdown waits for.
func (s *Server) start(nc net.Conn) bool {
	c, ok := s.add(context.Background(), nc)
	if ok {
		go c.serve()
	}
	return ok
}

// Shutdown stops accepting, tells connections that wait for their client 57P01, and waits until the others have finished their
// statements and were told so, too. When ctx ends it cancels the statements, then closes the sockets, and returns ctx's error.
func (s *Server) Shutdown(ctx context.Context) error {
	for _, c := range s.drain() {
		c.interrupt()
	}
	done := make(chan struct{})
	go func() {
		s.wg.Wait()
		close(done)
	}()
	select {
	case <-done:
		return nil
	case <-ctx.Done():
	}
	err := ctx.Err()
	for _, force := range []func(*conn){(*conn).terminate, func(c *conn) { _ = c.nc.Close() }} {
		for _, c := range s.drain() {
			force(c)
		}
		select {
		case <-done:
			return err
		case <-time.After(forcedCloseWait):
		}
	}
	return errors.Join(err, pgerr.Newf(pgerr.InternalError, "sessions did not end within %s of being cancelled", 2*forcedCloseWait))
}

// drain refuses new connections from now on and returns those that are left.
func (s *Server) drain() []*conn {
	s.mu.Lock()
	defer s.mu.Unlock()
	if !s.draining {
		s.draining = true
		close(s.stop)
	}
	for l := range s.listeners {
		_ = l.Close()
	}
	cs := make([]*conn, 0, len(s.conns))
	for _, c := range s.conns {
		cs = append(cs, c)
	}
	return cs
}

// Connections returns the number of sessions.
func (s *Server) Connections() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.sessions
}

func (s *Server) isDraining() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.draining
}

func (s *Server) addListener(l net.Listener) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if !s.draining {
		s.listeners[l] = struct{}{}
	}
	return !s.draining
}

func (s *Server) removeListener(l net.Listener) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.listeners, l)
}

// add registers a connection and gives it its process id and secret. A connection too many is closed.
func (s *Server) add(ctx context.Context, nc net.Conn) (*conn, bool) {
	c := newConn(ctx, s, nc)
	_, err := rand.Read(c.secret[:])
	limit := s.maxConnections() + maxPendingConnections
	s.mu.Lock()
	defer s.mu.Unlock()
	if err != nil || s.draining || len(s.conns) >= limit {
		c.cancel(nil)
		_ = nc.Close()
		return nil, false
	}
	for {
		s.lastPID++
		if s.lastPID < 1 {
			s.lastPID = 1
		}
		if _, taken := s.conns[s.lastPID]; !taken {
			break
		}
	}
	c.pid = s.lastPID
	s.conns[c.pid] = c
	s.wg.Add(1)
	return c, true
}

// admit counts a client that has sent its startup message.
func (s *Server) admit(c *conn) error {
	limit := s.maxConnections()
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.sessions >= limit {
		return fatal(pgerr.Newf(pgerr.TooManyConnections, "sorry, too many clients already"))
	}
	s.sessions++
	c.counted = true
	return nil
}

func (s *Server) remove(c *conn) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.conns, c.pid)
	if c.counted {
		s.sessions--
	}
	s.wg.Done()
}

// cancelQuery cancels what the connection of that process id is doing, if the key is its own. The other side learns
// nothing about whether it was.
func (s *Server) cancelQuery(pid int32, key []byte) {
	s.mu.Lock()
	c := s.conns[pid]
	s.mu.Unlock()
	if c != nil {
		c.cancelWith(key)
	}
}
