package pgwire

import (
	"context"
	"crypto/subtle"
	"crypto/tls"
	"encoding/binary"
	"errors"
	"io"
	"net"
	"runtime/debug"
	"sync"
	"time"

	"github.com/jackc/pgproto3/v2"
	"github.com/rs/zerolog"

	"github.com/streamdb/streamdb/internal/invariants"
	"github.com/streamdb/streamdb/internal/pgerr"
)

const (
	// lingerTimeout and maxLingerBytes bound what is read from a client after its message was refused for its length: closing
	// the socket at once would take the error report away from it.
	lingerTimeout  = 2 * time.Second
	maxLingerBytes = 1 << 30
)

// conn is one connection. Its goroutine owns all but what mu guards.
type conn struct {
	srv    *Server
	nc     net.Conn // as accepted
	stream net.Conn // nc, or TLS over it
	log    zerolog.Logger

	ctx    context.Context // ends with the connection; its cause says why
	cancel context.CancelCauseFunc

	pid       int32
	secret    [cancelKeyBytes]byte
	counted   bool // takes part in the connection limit; guarded by srv.mu
	encrypted bool
	minor     uint32 // minor version of the protocol

	tlsAsked   bool
	tlsConfig  *tls.Config
	tlsState   tls.ConnectionState
	serverCert []byte

	rd    *reader
	be    *pgproto3.Backend // decodes what rd has framed
	wr    *writer
	sess  Session
	bound bindMessage // the last Bind

	idle      time.Duration // how long the session lets its client be silent, from the next wait on; 0: for ever
	idleCause *pgerr.Error

	skipping bool // after an error in the extended protocol, until Sync

	mu          sync.Mutex // guards the rest, and assigning rd
	keyBytes    int        // of secret are the cancel key; 0: the client does not have it yet
	interrupted bool
	expired     *pgerr.Error       // the client was silent for too long
	handshake   context.CancelFunc // ends a TLS handshake in progress; nil: there is none
	running     bool               // a call of the session is in progress: a cancel request hits it
	canceled    bool               // stmtCtx was cancelled by a request
	stmtCtx     context.Context
	stmtCancel  context.CancelCauseFunc
}

func newConn(ctx context.Context, srv *Server, nc net.Conn) *conn {
	c := &conn{srv: srv, nc: nc, log: srv.cfg.Logger}
	c.ctx, c.cancel = context.WithCancelCause(ctx)
	c.setStream(nc)
	return c
}

// setStream makes nc the carrier of messages.
func (c *conn) setStream(nc net.Conn) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.stream = nc
	c.rd = newReader(nc, nil)
	c.be = pgproto3.NewBackend(c.rd, io.Discard)
	c.wr = newWriter(nc, c.rd)
	if c.interrupted {
		c.rd.interrupt()
	}
}

// interrupt ends the connection as soon as it waits for the client's next message.
func (c *conn) interrupt() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.interrupted = true
	c.rd.interrupt()
	if c.handshake != nil {
		c.handshake()
	}
}

// beginHandshake returns a context that interrupt cancels.
func (c *conn) beginHandshake() context.Context {
	ctx, cancel := context.WithCancel(c.ctx)
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.interrupted {
		cancel()
	}
	c.handshake = cancel
	return ctx
}

func (c *conn) endHandshake() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.handshake()
	c.handshake = nil
}

// terminate ends the connection as soon as its statement has noticed.
func (c *conn) terminate() {
	c.cancel(causeShutdown())
	c.mu.Lock()
	defer c.mu.Unlock()
	c.interrupted = true
	c.rd.abort()
}

// serve runs the connection from its first byte to its end.
func (c *conn) serve() {
	defer c.close()
	defer c.recoverPanic()
	timer := time.AfterFunc(startupTimeout, func() { _ = c.nc.Close() })
	p, err := c.negotiate()
	if err == nil {
		err = c.open(p)
	}
	timer.Stop()
	if err == nil {
		c.rd.gone = func(err error) { c.cancel(causeClientGone(err)) }
		err = c.loop()
	}
	c.farewell(err)
}

// farewell tells the client why the connection ends, if there is anything to tell and anyone to hear it.
func (c *conn) farewell(err error) {
	var e *pgerr.Error
	switch {
	case errors.Is(err, errInterrupted):
		e = causeShutdown()
	case c.wr.err != nil || !errors.As(err, &e) || e.Code == pgerr.ConnectionFailure:
		return
	}
	e = fatal(e)
	if c.wr.sendError(e, "") == nil && e.Code == pgerr.ProgramLimitExceeded {
		c.linger()
	}
}

func (c *conn) linger() {
	if t, ok := c.stream.(*net.TCPConn); ok && t.CloseWrite() == nil {
		if t.SetReadDeadline(time.Now().Add(lingerTimeout)) == nil {
			// How it ends does not matter: the connection is closed next.
			_, _ = io.CopyN(io.Discard, t, maxLingerBytes)
		}
	}
}

// recoverPanic keeps a bug in one session from ending the others. The session's state is unknown, so it ends.
func (c *conn) recoverPanic() {
	v := recover()
	if v == nil {
		return
	}
	invariants.Pass(v)
	c.log.Error().Int32("pid", c.pid).Interface("panic", v).Bytes("stack", debug.Stack()).Msg("connection ended by a panic")
	if c.wr.err == nil {
		// Failing to tell the client changes nothing.
		_ = c.wr.sendError(fatal(pgerr.Newf(pgerr.InternalError, "internal error: %v", v)), "")
	}
}

func (c *conn) close() {
	c.cancel(nil)
	c.rd.stopWatch()
	defer c.srv.remove(c)
	defer func() { _ = c.stream.Close() }()
	if c.sess != nil {
		defer c.recoverPanic()
		c.sess.Close()
	}
}

// open authenticates the client and makes its session.
func (c *conn) open(p StartupParams) error {
	if f := c.srv.cfg.Refuse; f != nil {
		if err := f(); err != nil {
			return c.openError(err)
		}
	}
	if err := c.srv.admit(c); err != nil {
		return err
	}
	if a := c.srv.cfg.Authenticator; a != nil {
		if err := a.Authenticate(c.ctx, p, c); err != nil {
			return c.openError(err)
		}
	}
	if err := c.wr.send(&pgproto3.AuthenticationOk{}); err != nil {
		return err
	}
	sess, err := c.srv.cfg.Handler.NewSession(c.ctx, p, c.wr)
	if err != nil {
		return c.openError(err)
	}
	c.sess, c.wr.sess = sess, sess
	for _, ps := range sess.ParameterStatus() {
		if err := c.wr.ParameterStatus(ps.Name, ps.Value); err != nil {
			return err
		}
	}
	if err := c.wr.sendParameters(); err != nil {
		return err
	}
	c.sendKey()
	return c.ready()
}

// openError passes errors of the connection on and codes the others.
func (c *conn) openError(err error) error {
	if errors.Is(err, errInterrupted) || c.rd.err != nil || c.wr.err != nil {
		return err
	}
	return report(c.ctx, err)
}

// loop takes messages until the connection ends.
func (c *conn) loop() error {
	for {
		if c.ctx.Err() != nil {
			return context.Cause(c.ctx) // what is buffered has nobody to answer to
		}
		typ, body, err := c.awaitIdle()
		if err != nil {
			return err
		}
		if typ == 'X' {
			return errQuiet
		}
		if err := c.message(typ, body); err != nil {
			return err
		}
	}
}

// message handles one message; an error ends the connection.
func (c *conn) message(typ byte, body []byte) error {
	switch {
	case typ == 'p':
		return fatal(protocolViolation("invalid frontend message type %d", typ))
	case typ == 'd', typ == 'c', typ == 'f', c.skipping && typ != 'S':
		// COPY data that comes after the statement has failed or ended is dropped, as in PostgreSQL.
		c.rd.discard(body)
		return nil
	case typ == 'F':
		c.rd.discard(body)
		return c.fail(typ, pgerr.Newf(pgerr.FeatureNotSupported, "the function call protocol is not supported").
			WithHint("Call functions with SELECT."))
	case typ == 'B':
		ok := c.bound.decode(body)
		c.rd.discard(body)
		if !ok {
			return c.fail(typ, protocolViolation("invalid message format"))
		}
		return c.bind(&c.bound)
	case !wellFormed(typ, body):
		c.rd.discard(body)
		return c.fail(typ, protocolViolation("invalid message format"))
	}
	msg, err := c.be.Receive()
	if err != nil {
		return c.fail(typ, protocolViolation("invalid message format").WithDetail("%s", err))
	}
	switch m := msg.(type) {
	case *pgproto3.Query:
		return c.query(m.String)
	case *pgproto3.Parse:
		return c.parse(m)
	case *pgproto3.Describe:
		return c.describe(m)
	case *pgproto3.Execute:
		return c.execute(m)
	case *pgproto3.Close:
		return c.closeObject(m)
	case *pgproto3.Flush:
		return c.wr.Flush()
	case *pgproto3.Sync:
		return c.sync()
	}
	return c.fail(typ, protocolViolation("invalid frontend message type %d", typ))
}

// begin returns the context for a call of the session and lets cancel requests hit it; end, after the call, takes that back.
func (c *conn) begin() context.Context {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.stmtCtx == nil {
		c.stmtCtx, c.stmtCancel = context.WithCancelCause(c.ctx)
	}
	c.running = true
	return c.stmtCtx
}

func (c *conn) end() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.running = false
	if c.canceled {
		c.canceled, c.stmtCtx = false, nil
	}
}

// endBatch cancels the context that the calls of a batch shared.
func (c *conn) endBatch() {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.stmtCtx != nil {
		c.stmtCancel(nil)
		c.stmtCtx = nil
	}
}

// sendKey tells the client how to cancel its statements.
func (c *conn) sendKey() {
	n := cancelKeyBytes30
	if c.minor >= 2 {
		n = cancelKeyBytes
	}
	c.mu.Lock()
	c.keyBytes = n
	c.mu.Unlock()
	out := append(c.wr.out, 'K')
	out = binary.BigEndian.AppendUint32(out, uint32(8+n))
	out = binary.BigEndian.AppendUint32(out, uint32(c.pid))
	c.wr.out = append(out, c.secret[:n]...)
}

// cancelWith cancels the call in progress when the key is right.
func (c *conn) cancelWith(key []byte) {
	c.mu.Lock()
	right := c.keyBytes > 0 && subtle.ConstantTimeCompare(c.secret[:c.keyBytes], key) == 1
	c.mu.Unlock()
	if right {
		c.cancelRunning()
	}
}

// cancelRunning cancels the call in progress, if there is one.
func (c *conn) cancelRunning() {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.running && !c.canceled {
		c.canceled = true
		c.stmtCancel(causeUserCancel())
	}
}

// ready ends a batch.
func (c *conn) ready() error {
	c.endBatch()
	if err := c.wr.sendParameters(); err != nil {
		return err
	}
	if err := c.sendNotifications(); err != nil {
		return err
	}
	c.wr.out = append(c.wr.out, 'Z', 0, 0, 0, 5, c.sess.TxStatus())
	if s, ok := c.sess.(Idler); ok {
		c.idle, c.idleCause = s.IdleTimeout()
	}
	return c.wr.Flush()
}

// fail reports an error that was found here. One in a message that ends a batch is followed by the session's Sync, so that an
// implicit transaction ends.
func (c *conn) fail(typ byte, err error) error {
	c.sess.Fail(err)
	err = c.reportError('B', pgerr.From(err), "")
	if err == nil && endsBatch(typ) {
		return c.sync()
	}
	return err
}

// endsBatch reports whether ReadyForQuery answers a message of this type, also when it failed.
func endsBatch(typ byte) bool { return typ == 'Q' || typ == 'F' || typ == 'S' }

// failed reports an error of a call of the session.
func (c *conn) failed(ctx context.Context, typ byte, err error, text string) error {
	return c.reportError(typ, report(ctx, err), text)
}

// reportError sends e, then ReadyForQuery after a simple query, else it begins to skip to the next Sync.
func (c *conn) reportError(typ byte, e *pgerr.Error, text string) error {
	if c.wr.err != nil {
		return c.wr.err
	}
	var cause *pgerr.Error
	if c.ctx.Err() != nil && errors.As(context.Cause(c.ctx), &cause) {
		return cause // whatever failed, it did because the connection is ending
	}
	if e.Code == pgerr.InternalError {
		c.log.Error().Int32("pid", c.pid).Err(e).Msg("internal error reported to client")
	}
	if closesConnection(e) {
		return e
	}
	if err := c.wr.sendError(e, text); err != nil {
		return err
	}
	if endsBatch(typ) {
		return c.ready()
	}
	c.skipping = true
	return nil
}

func (c *conn) query(text string) error {
	if err := pgerr.CheckText(text); err != nil {
		return c.fail('Q', err)
	}
	ctx := c.begin()
	c.wr.begin(true)
	err := c.sess.SimpleQuery(ctx, text, c.wr)
	c.wr.end()
	c.end()
	if err != nil {
		return c.failed(ctx, 'Q', err, text)
	}
	return c.ready()
}

func (c *conn) parse(m *pgproto3.Parse) error {
	if err := errors.Join(pgerr.CheckText(m.Name), pgerr.CheckText(m.Query)); err != nil {
		return c.fail('P', err)
	}
	ctx := c.begin()
	err := c.sess.Prepare(ctx, m.Name, m.Query, m.ParameterOIDs)
	c.end()
	if err != nil {
		return c.failed(ctx, 'P', err, m.Query)
	}
	return c.wr.sendEmpty('1')
}

func (c *conn) bind(m *bindMessage) error {
	if err := m.check(); err != nil {
		return c.fail('B', err)
	}
	n := m.paramFormats
	ctx := c.begin()
	err := c.sess.Bind(ctx, m.portal, m.stmt, m.formats[:n:n], m.params, m.formats[n:])
	c.end()
	clear(m.params) // they lie in the input buffer
	if err != nil {
		return c.failed(ctx, 'B', err, "")
	}
	return c.wr.sendEmpty('2')
}

// check checks names and formats.
func (m *bindMessage) check() error {
	if err := errors.Join(pgerr.CheckText(m.portal), pgerr.CheckText(m.stmt)); err != nil {
		return err
	}
	for _, f := range m.formats {
		if f != FormatText && f != FormatBinary {
			return pgerr.Newf(pgerr.InvalidParameterValue, "unsupported format code: %d", f)
		}
	}
	if n := m.paramFormats; n > 1 && n != len(m.params) {
		return protocolViolation("bind message has %d parameter formats but %d parameters", n, len(m.params))
	}
	return nil
}

func (c *conn) describe(m *pgproto3.Describe) error {
	if err := pgerr.CheckText(m.Name); err != nil {
		return c.fail('D', err)
	}
	switch m.ObjectType {
	case 'S':
		return c.describeStatement(m.Name)
	case 'P':
		ctx := c.begin()
		fields, err := c.sess.DescribePortal(ctx, m.Name)
		c.end()
		if err != nil {
			return c.failed(ctx, 'D', err, "")
		}
		return c.describeResult(fields, false)
	}
	return c.fail('D', protocolViolation("invalid DESCRIBE message subtype %d", m.ObjectType))
}

func (c *conn) describeStatement(name string) error {
	ctx := c.begin()
	params, fields, err := c.sess.DescribeStatement(ctx, name)
	c.end()
	if err != nil {
		return c.failed(ctx, 'D', err, "")
	}
	out := append(c.wr.out, 't')
	out = binary.BigEndian.AppendUint32(out, uint32(6+4*len(params)))
	out = binary.BigEndian.AppendUint16(out, uint16(len(params)))
	for _, p := range params {
		out = binary.BigEndian.AppendUint32(out, uint32(p))
	}
	c.wr.out = out
	return c.describeResult(fields, true)
}

func (c *conn) describeResult(fields []FieldDescription, text bool) error {
	if fields == nil {
		return c.wr.sendEmpty('n')
	}
	if err := c.wr.describeRows(fields, text); err != nil {
		return c.fail('D', err)
	}
	return nil
}

func (c *conn) execute(m *pgproto3.Execute) error {
	if err := pgerr.CheckText(m.Portal); err != nil {
		return c.fail('E', err)
	}
	ctx := c.begin()
	c.wr.begin(false)
	err := c.sess.Execute(ctx, m.Portal, max(int(int32(m.MaxRows)), 0), c.wr)
	complete := c.wr.state == resultComplete
	c.wr.end()
	c.end()
	switch {
	case err != nil:
		return c.failed(ctx, 'E', err, "")
	case c.wr.err != nil:
		return c.wr.err
	case !complete:
		return c.fail('E', misuse("Execute without an end of the result"))
	}
	return nil
}

func (c *conn) closeObject(m *pgproto3.Close) error {
	if err := pgerr.CheckText(m.Name); err != nil {
		return c.fail('C', err)
	}
	var err error
	ctx := c.begin()
	switch m.ObjectType {
	case 'S':
		err = c.sess.CloseStatement(ctx, m.Name)
	case 'P':
		err = c.sess.ClosePortal(ctx, m.Name)
	default:
		c.end()
		return c.fail('C', protocolViolation("invalid CLOSE message subtype %d", m.ObjectType))
	}
	c.end()
	if err != nil {
		return c.failed(ctx, 'C', err, "")
	}
	return c.wr.sendEmpty('3')
}

func (c *conn) sync() error {
	c.skipping = false
	ctx := c.begin()
	err := c.sess.Sync(ctx)
	c.end()
	if err != nil {
		return c.failed(ctx, 'S', err, "")
	}
	return c.ready()
}

// lostInput codes an error of the reader for a session that waits for COPY data.
func lostInput(err error) error {
	var e *pgerr.Error
	switch {
	case errors.As(err, &e):
		return e
	case errors.Is(err, errInterrupted):
		return causeShutdown()
	}
	return causeClientGone(err)
}
