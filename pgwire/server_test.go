package pgwire

import (
	"bytes"
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"io"
	"math/big"
	"net"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgproto3/v2"
	"github.com/jackc/pgx/v5"
	"github.com/rs/zerolog"
	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/streamdb/streamdb/internal/pgerr"
	"github.com/streamdb/streamdb/types"
)

// startScript connects a script client and takes it through startup.
func startScript(t testing.TB, srv *Server) *scriptClient {
	nc, err := srv.Dial(t.Context(), "", "")
	require.NoError(t, err)
	c := newScriptClient(t, nc)
	write(t, c, startupBytes(protocolMajor<<16, "user", "u"))
	require.Contains(t, c.readUntil(t, 'Z'), "ReadyForQuery I")
	return c
}

func send(t testing.TB, c *scriptClient, lines ...string) {
	var b []byte
	for _, l := range lines {
		m, err := frontendMessage(l)
		require.NoError(t, err)
		b = append(b, m...)
	}
	write(t, c, b)
}

// A server that refuses says so before anything else: libpq goes on to the next host then.
func TestRefusesBeforeAuthentication(t *testing.T) {
	refusal := pgerr.Newf(pgerr.CannotConnectNow, "not now")
	srv := NewServer(Config{Handler: newFakeHandler(), Refuse: func() error { return refusal }})
	nc, err := srv.Dial(t.Context(), "", "")
	require.NoError(t, err)
	c := newScriptClient(t, nc)
	write(t, c, startupBytes(protocolMajor<<16, "user", "u"))
	require.Equal(t, "ErrorResponse FATAL 57P03 not now\nclosed\n", c.readUntil(t, 0))
	shutdown(t, srv)
}

func TestShutdownTellsIdleAndWaitsForBusy(t *testing.T) {
	h := newFakeHandler()
	srv := NewServer(Config{Handler: h})
	idle, busy := startScript(t, srv), startScript(t, srv)
	send(t, busy, `Query {"String": "wait"}`)
	<-h.waiting
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- srv.Shutdown(ctx) }()
	require.Equal(t, "ErrorResponse FATAL 57P01 terminating connection due to administrator command\nclosed\n", idle.readUntil(t, 0))
	require.Empty(t, done)
	_, err := srv.Dial(t.Context(), "", "")
	require.Error(t, err)
	cancel()
	require.Equal(t, "ErrorResponse FATAL 57P01 terminating connection due to administrator command\nclosed\n", busy.readUntil(t, 0))
	require.ErrorIs(t, <-done, context.Canceled)
	require.Zero(t, h.open.Load())
	require.NoError(t, srv.Shutdown(t.Context()), "again")
}

func TestShutdownEndsCopyAndStartup(t *testing.T) {
	h := newFakeHandler()
	srv := NewServer(Config{Handler: h})
	nc, err := srv.Dial(t.Context(), "", "")
	require.NoError(t, err)
	starting := newScriptClient(t, nc)
	copying := startScript(t, srv)
	send(t, copying, `Query {"String": "copyin"}`)
	copying.readUntil(t, 'G')
	done := make(chan error, 1)
	go func() { done <- srv.Shutdown(t.Context()) }()
	require.Contains(t, starting.readUntil(t, 0), "57P01")
	send(t, copying, `CopyData {"Data": "1\n"}`, `CopyDone`)
	require.Contains(t, copying.readUntil(t, 0), "CommandComplete COPY 1\nReadyForQuery I\nErrorResponse FATAL 57P01")
	require.NoError(t, <-done)
	require.Equal(t, int64(1), h.committed.Load())
}

func TestServeConnEndsWithContext(t *testing.T) {
	srv := NewServer(Config{Handler: newFakeHandler()})
	defer shutdown(t, srv)
	client, server := Pipe()
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan struct{})
	go func() {
		srv.ServeConn(ctx, server)
		close(done)
	}()
	c := newScriptClient(t, client)
	write(t, c, startupBytes(protocolMajor<<16, "user", "u"))
	c.readUntil(t, 'Z')
	cancel()
	require.Contains(t, c.readUntil(t, 0), "57P01")
	<-done
}

func TestTerminateEndsCopy(t *testing.T) {
	srv := NewServer(Config{Handler: newFakeHandler()})
	c := startScript(t, srv)
	send(t, c, `Query {"String": "copyin"}`)
	c.readUntil(t, 'G')
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	require.ErrorIs(t, srv.Shutdown(ctx), context.Canceled)
	require.Equal(t, "ErrorResponse FATAL 57P01 terminating connection due to administrator command\nclosed\n", c.readUntil(t, 0))
}

// TestPipelinedBehindLongStatement: what is read ahead while a statement runs is neither lost nor reordered.
func TestPipelinedBehindLongStatement(t *testing.T) {
	for _, size := range []int{1, readBufferBytes, maxReadAheadBytes, 3 * maxReadAheadBytes} {
		h := newFakeHandler()
		srv := NewServer(Config{Handler: h})
		c := startScript(t, srv)
		send(t, c, `Query {"String": "wait"}`)
		<-h.waiting
		conn := onlyConn(srv)
		require.Eventually(t, func() bool {
			conn.rd.mu.Lock()
			defer conn.rd.mu.Unlock()
			return conn.rd.watching != nil
		}, scriptTimeout, time.Millisecond, "the watcher starts")
		pad := strings.Repeat(" ", size)
		sent := make(chan struct{})
		go func() {
			defer close(sent)
			send(t, c, `Query {"String": "select 1`+pad+`;"}`, `Query {"String": "select 2"}`)
		}()
		srv.cancelQuery(int32(c.pid), c.secret)
		require.Contains(t, c.readUntil(t, 'Z'), "57014")
		require.Contains(t, c.readUntil(t, 'Z'), "DataRow 1\n")
		require.Contains(t, c.readUntil(t, 'Z'), "DataRow 2\n")
		<-sent
		require.NoError(t, c.nc.Close())
		shutdown(t, srv)
	}
}

func onlyConn(srv *Server) *conn {
	srv.mu.Lock()
	defer srv.mu.Unlock()
	for _, c := range srv.conns {
		return c
	}
	return nil
}

func TestClientGoneCancelsStatement(t *testing.T) {
	h := newFakeHandler()
	srv := NewServer(Config{Handler: h})
	c := startScript(t, srv)
	send(t, c, `Query {"String": "insert; wait"}`)
	<-h.waiting
	require.NoError(t, c.nc.Close())
	shutdown(t, srv)
	require.Zero(t, h.open.Load())
	require.Zero(t, h.committed.Load())
}

// A client that has ended its side of the connection, as some do without a Terminate message or right behind it, is not told that it is gone: it may
// take the message for an error of what it has asked for.
func TestClientGoneIsNotTold(t *testing.T) {
	h := newFakeHandler()
	srv := NewServer(Config{Handler: h})
	for _, last := range [][]string{nil, {"Terminate"}} {
		nc, err := net.Dial("tcp", listen(t, srv))
		require.NoError(t, err)
		c := newScriptClient(t, nc)
		write(t, c, startupBytes(protocolMajor<<16, "user", "u"))
		c.readUntil(t, 'Z')
		send(t, c, append([]string{`Query {"String": "wait"}`}, last...)...)
		<-h.waiting
		require.NoError(t, nc.(*net.TCPConn).CloseWrite())
		require.Equal(t, "closed\n", c.readUntil(t, 0))
		require.NoError(t, nc.Close())
	}
	shutdown(t, srv)
}

func TestPanicIsLogged(t *testing.T) {
	var log bytes.Buffer
	srv := NewServer(Config{Handler: newFakeHandler(), Logger: zerolog.New(&log)})
	c := startScript(t, srv)
	send(t, c, `Query {"String": "panic"}`)
	require.Contains(t, c.readUntil(t, 0), "FATAL XX000")
	shutdown(t, srv)
	require.Contains(t, log.String(), "a bug")
	require.Contains(t, log.String(), "fake_test.go")
}

// TestLargeMessage: a message much larger than the buffers arrives whole, and the buffer is given back.
func TestLargeMessage(t *testing.T) {
	srv := NewServer(Config{Handler: newFakeHandler()})
	defer shutdown(t, srv)
	c := startScript(t, srv)
	send(t, c, `Query {"String": "select 1; --`+strings.Repeat("x", 8<<20)+`"}`, `Query {"String": "select 2"}`)
	require.Contains(t, c.readUntil(t, 'Z'), "DataRow 1\n")
	require.Contains(t, c.readUntil(t, 'Z'), "DataRow 2\n")
	buf := onlyConn(srv).rd
	require.Eventually(t, func() bool {
		buf.mu.Lock()
		defer buf.mu.Unlock()
		return buf.waiting && len(buf.buf) == readBufferBytes
	}, scriptTimeout, time.Millisecond)
	require.NoError(t, c.nc.Close())
}

func TestTLS(t *testing.T) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	require.NoError(t, err)
	tmpl := &x509.Certificate{SerialNumber: big.NewInt(1), DNSNames: []string{"localhost"}, NotAfter: time.Now().Add(time.Hour)}
	der, err := x509.CreateCertificate(rand.Reader, tmpl, tmpl, &key.PublicKey, key)
	require.NoError(t, err)
	h := newFakeHandler()
	srv := NewServer(Config{Handler: h, TLSConfig: &tls.Config{Certificates: []tls.Certificate{{Certificate: [][]byte{der}, PrivateKey: key}}}})
	addr := listen(t, srv)
	for _, mode := range []string{"sslmode=require", "sslmode=require&sslnegotiation=direct"} {
		cfg, err := pgx.ParseConfig("postgres://u@" + addr + "/d?" + mode)
		require.NoError(t, err)
		c := connect(t, cfg)
		require.NoError(t, c.Ping(t.Context()))
		require.True(t, h.params[len(h.params)-1].TLS)
		ctx, cancel := context.WithCancel(t.Context())
		go func() {
			<-h.waiting
			cancel()
		}()
		_, err = c.Exec(ctx, "wait")
		require.ErrorIs(t, err, context.Canceled)
		require.Eventually(t, func() bool { return h.open.Load() == 0 }, scriptTimeout, time.Millisecond)
	}
	// Without the protocol's name in ALPN, TLS at once is refused.
	tc, err := tls.Dial("tcp", addr, &tls.Config{InsecureSkipVerify: true}) //nolint:gosec // a self-signed certificate of the test
	if err == nil {
		_, err = tc.Read(make([]byte, 1))
		require.NoError(t, tc.Close())
	}
	require.Error(t, err)
	// Bytes in the clear behind the request are refused.
	nc, err := net.Dial("tcp", addr)
	require.NoError(t, err)
	c := newScriptClient(t, nc)
	write(t, c, append([]byte{0, 0, 0, 8, 4, 210, 22, 47}, startupBytes(protocolMajor<<16, "user", "u")...))
	require.Contains(t, c.readUntil(t, 0), "FATAL 08P01 received unencrypted data after SSL request")
	require.NoError(t, nc.Close())
	// A handshake that does not come on does not delay a shutdown.
	nc, err = net.Dial("tcp", addr)
	require.NoError(t, err)
	c = newScriptClient(t, nc)
	write(t, c, []byte{0, 0, 0, 8, 4, 210, 22, 47})
	_, err = c.br.ReadByte()
	require.NoError(t, err)
	shutdown(t, srv)
	require.NoError(t, nc.Close())
}

func TestCipherNames(t *testing.T) {
	for id, want := range map[uint16]string{
		tls.TLS_AES_256_GCM_SHA384:                      "TLS_AES_256_GCM_SHA384",
		tls.TLS_ECDHE_RSA_WITH_AES_128_GCM_SHA256:       "ECDHE-RSA-AES128-GCM-SHA256",
		tls.TLS_ECDHE_ECDSA_WITH_AES_256_CBC_SHA:        "ECDHE-ECDSA-AES256-SHA",
		tls.TLS_ECDHE_RSA_WITH_CHACHA20_POLY1305_SHA256: "ECDHE-RSA-CHACHA20-POLY1305",
		tls.TLS_RSA_WITH_AES_128_CBC_SHA256:             "AES128-SHA256",
	} {
		require.Equal(t, want, cipherName(id))
	}
}

func TestParseOptions(t *testing.T) {
	for in, want := range map[string][]Param{
		"":                             nil,
		` -c a=b\ c  --d-e=f -cg==\\ `: {{"a", "b c"}, {"d_e", "f"}, {"g", `=\`}},
		"-c a=":                        {{"a", ""}},
	} {
		got, err := parseOptions(in)
		require.NoError(t, err)
		require.Equal(t, want, got)
	}
	for in, want := range map[string]string{
		"-c": "invalid command-line argument for server process: -c", "x=y": "invalid command-line argument for server process: x=y",
		"-c foo": "-c foo requires a value", "--foo": "--foo requires a value", "--=x": "invalid command-line argument for server process: --=x",
	} {
		_, err := parseOptions(in)
		require.EqualError(t, err, want)
	}
}

// TestRowsMatchDecoder: rows written by hand decode with pgproto3 to the same values, across flushes and repetitions.
func TestRowsMatchDecoder(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		var out bytes.Buffer
		w := newWriter(sinkConn{Writer: &out}, nil)
		w.sess = &fakeSession{format: types.DefaultFormat()}
		c := types.NewChunk([]types.Type{types.Text, types.Text})
		var want []string
		for range rapid.IntRange(0, 20).Draw(t, "rows") {
			s := strings.Repeat("y", rapid.SampledFrom([]int{0, 1, 100, flushBytes - 20, flushBytes + 1}).Draw(t, "size"))
			n := rapid.Int64Range(0, 3).Draw(t, "weight")
			c.Cols[0].Str = append(c.Cols[0].Str, s)
			c.Cols[1].AppendNull()
			c.PushWeight(n)
			for range n {
				want = append(want, s)
			}
		}
		w.begin(true)
		require.NoError(t, w.RowDescription([]FieldDescription{col("a", types.Text), col("b", types.Text)}))
		require.NoError(t, w.Rows(c))
		require.NoError(t, w.CommandComplete("SELECT"))
		w.end()
		require.Error(t, w.Rows(c), "after the call")
		require.NoError(t, w.Flush())
		fe := pgproto3.NewFrontend(pgproto3.NewChunkReader(&out), io.Discard)
		var got []string
		for {
			m, err := fe.Receive()
			require.NoError(t, err)
			if _, ok := m.(*pgproto3.CommandComplete); ok {
				break
			}
			if row, ok := m.(*pgproto3.DataRow); ok {
				require.Len(t, row.Values, 2)
				require.Nil(t, row.Values[1])
				got = append(got, string(row.Values[0]))
			}
		}
		require.Equal(t, want, got)
	})
}

// sinkConn is a connection that is only written to.
type sinkConn struct {
	net.Conn
	io.Writer
}

func (c sinkConn) Write(p []byte) (int, error) { return c.Writer.Write(p) }

// FuzzConnection feeds a connection with arbitrary bytes, before or after startup: it must end by itself, without a panic.
func FuzzConnection(f *testing.F) {
	start := startupBytes(protocolMajor<<16, "user", "u")
	f.Add(start, false)
	f.Add([]byte("GET / HTTP/1.1\r\n\r\n"), false)
	f.Add([]byte{0, 0, 0, 8, 4, 210, 22, 47}, false)
	for _, line := range []string{
		`Query {"String": "select 1"}`, `Parse {"Query": "lookup"}`, `Bind {"Parameters": [{"text": "1"}]}`,
		`Describe {"ObjectType": "S"}`, `Execute`, `Sync`, `Query {"String": "copyin"}`, `CopyData {"Data": "x"}`, `CopyDone`, `Flush`,
	} {
		m, err := frontendMessage(line)
		require.NoError(f, err)
		f.Add(m, true)
		f.Add(append(bytes.Clone(start), m...), false)
	}
	f.Fuzz(func(t *testing.T, b []byte, started bool) {
		if bytes.Contains(b, []byte("wait")) || bytes.Contains(b, []byte("panic")) || bytes.Contains(b, []byte("series")) {
			t.Skip()
		}
		if started {
			b = append(bytes.Clone(start), b...)
		}
		var log bytes.Buffer
		srv := NewServer(Config{Handler: newFakeHandler(), Logger: zerolog.New(&log)})
		nc := &memoryConn{in: bytes.NewReader(b)}
		srv.ServeConn(t.Context(), nc)
		if strings.Contains(log.String(), "panic") {
			t.Fatal(log.String())
		}
	})
}

// memoryConn gives a client's bytes and swallows the answers.
type memoryConn struct {
	net.Conn
	in *bytes.Reader
}

func (c *memoryConn) Read(p []byte) (int, error)      { return c.in.Read(p) }
func (c *memoryConn) Write(p []byte) (int, error)     { return len(p), nil }
func (c *memoryConn) Close() error                    { return nil }
func (c *memoryConn) SetReadDeadline(time.Time) error { return nil }
func (c *memoryConn) RemoteAddr() net.Addr            { return pipeAddr{} }

func (c *memoryConn) LocalAddr() net.Addr { return pipeAddr{} }

func TestPipe(t *testing.T) {
	a, b := Pipe()
	require.NoError(t, b.SetReadDeadline(time.Now().Add(time.Millisecond)))
	_, err := b.Read(make([]byte, 1))
	require.ErrorIs(t, err, os.ErrDeadlineExceeded)
	require.NoError(t, b.SetReadDeadline(time.Time{}))

	// More than the buffer holds needs a reader; both directions at once.
	data := bytes.Repeat([]byte("0123456789"), pipeCapBytes/5)
	written := make(chan error, 1)
	go func() {
		_, err := a.Write(data)
		written <- err
		_ = a.Close()
	}()
	got, err := io.ReadAll(b)
	require.NoError(t, err)
	require.NoError(t, <-written)
	require.True(t, bytes.Equal(data, got))
	_, err = b.Write([]byte("x"))
	require.ErrorIs(t, err, io.ErrClosedPipe)
	require.NoError(t, b.Close())
	_, err = b.Read(make([]byte, 1))
	require.ErrorIs(t, err, net.ErrClosed)
	require.ErrorIs(t, b.SetDeadline(time.Now()), net.ErrClosed)

	a, b = Pipe()
	n, err := a.Write(make([]byte, pipeCapBytes))
	require.NoError(t, err)
	require.Equal(t, pipeCapBytes, n)
	require.NoError(t, a.SetWriteDeadline(time.Now().Add(time.Millisecond)))
	n, err = a.Write([]byte("x"))
	require.ErrorIs(t, err, os.ErrDeadlineExceeded)
	require.Zero(t, n)
	require.NoError(t, a.Close())
	require.NoError(t, b.Close())
}
