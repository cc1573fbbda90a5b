package pgwire

import (
	"context"
	"net"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgconn/ctxwatch"
	"github.com/rs/zerolog"
	"github.com/stretchr/testify/require"

	"github.com/streamdb/streamdb/internal/pgerr"
)

// transports names the two ways to a server.
var transports = []string{"tcp", "process"}

// listen starts a server on a free port and returns its address.
func listen(t testing.TB, srv *Server) string {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	served := make(chan error, 1)
	go func() { served <- srv.Serve(l) }()
	t.Cleanup(func() {
		shutdown(t, srv)
		require.NoError(t, <-served)
	})
	return l.Addr().String()
}

// pgxConfig returns a pgx configuration for a server that it starts.
func pgxConfig(t testing.TB, srv *Server, transport, params string) *pgx.ConnConfig {
	url := "postgres://u@" + listen(t, srv) + "/d?sslmode=disable" + params
	cfg, err := pgx.ParseConfig(url)
	require.NoError(t, err)
	if transport == "process" {
		cfg.DialFunc = srv.Dial
	}
	return cfg
}

func connect(t testing.TB, cfg *pgx.ConnConfig) *pgx.Conn {
	ctx, cancel := context.WithTimeout(context.Background(), scriptTimeout)
	defer cancel()
	c, err := pgx.ConnectConfig(ctx, cfg)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, c.Close(context.Background())) })
	return c
}

// forEachTransport runs f with a fresh server and a connection to it.
func forEachTransport(t *testing.T, params string, f func(t *testing.T, h *fakeHandler, c *pgx.Conn)) {
	for _, tr := range transports {
		t.Run(tr, func(t *testing.T) {
			h := newFakeHandler()
			srv := NewServer(Config{Handler: h, Logger: zerolog.Nop()})
			f(t, h, connect(t, pgxConfig(t, srv, tr, params)))
		})
	}
}

func TestPgxStatementCache(t *testing.T) {
	forEachTransport(t, "", func(t *testing.T, _ *fakeHandler, c *pgx.Conn) {
		for i := range 5 {
			var id int64
			var name string
			require.NoError(t, c.QueryRow(t.Context(), "lookup", int64(i)).Scan(&id, &name))
			require.Equal(t, int64(i), id)
			require.Equal(t, "name", name)
		}
		var n int32
		var num, text string
		var missing *int64
		var ts time.Time
		require.NoError(t, c.QueryRow(t.Context(), "types").Scan(&n, &num, &text, &missing, &ts))
		require.Equal(t, int32(42), n)
		require.Equal(t, "1.50", num)
		require.Equal(t, "añb", text)
		require.Nil(t, missing)
		require.True(t, time.Date(2000, 1, 2, 0, 0, 0, 0, time.UTC).Equal(ts))
	})
}

func TestPgxSimpleProtocol(t *testing.T) {
	forEachTransport(t, "&default_query_exec_mode=simple_protocol", func(t *testing.T, _ *fakeHandler, c *pgx.Conn) {
		rows, err := c.Query(t.Context(), "series 100000")
		require.NoError(t, err)
		ns, err := pgx.CollectRows(rows, pgx.RowTo[int32])
		require.NoError(t, err)
		require.Len(t, ns, 100000)
		require.Equal(t, int32(100000), ns[99999])
	})
}

func TestPgxBatchAndErrors(t *testing.T) {
	forEachTransport(t, "", func(t *testing.T, h *fakeHandler, c *pgx.Conn) {
		b := &pgx.Batch{}
		for i := range 500 {
			b.Queue("insert")
			b.Queue("lookup", int64(i))
		}
		require.NoError(t, c.SendBatch(t.Context(), b).Close())
		require.Equal(t, int64(500), h.committed.Load())

		var pe *pgconn.PgError
		_, err := c.Exec(t.Context(), "select nope")
		require.ErrorAs(t, err, &pe)
		require.Equal(t, "42703", pe.Code)
		require.Equal(t, int32(8), pe.Position)
		require.Equal(t, "a hint", pe.Hint)

		b = &pgx.Batch{}
		b.Queue("insert")
		b.Queue("select 1/0")
		b.Queue("insert")
		require.ErrorAs(t, c.SendBatch(t.Context(), b).Close(), &pe)
		require.Equal(t, "22012", pe.Code)
		require.Equal(t, int64(500), h.committed.Load(), "the implicit transaction rolled back")
		require.NoError(t, c.Ping(t.Context()))
	})
}

// TestPgxCancel cancels by a cancel request, then by closing the socket, which pgx does by default.
func TestPgxCancel(t *testing.T) {
	for _, tr := range transports {
		t.Run(tr, func(t *testing.T) {
			h := newFakeHandler()
			cfg := pgxConfig(t, NewServer(Config{Handler: h, Logger: zerolog.Nop()}), tr, "")
			byRequest := cfg.Copy()
			byRequest.BuildContextWatcherHandler = func(c *pgconn.PgConn) ctxwatch.Handler {
				return &pgconn.CancelRequestContextWatcherHandler{Conn: c, DeadlineDelay: scriptTimeout}
			}
			wait := func(c *pgx.Conn) error {
				ctx, cancel := context.WithCancel(t.Context())
				go func() {
					<-h.waiting
					cancel()
				}()
				_, err := c.Exec(ctx, "wait")
				return err
			}
			c := connect(t, byRequest)
			var pe *pgconn.PgError
			require.ErrorAs(t, wait(c), &pe)
			require.Equal(t, "57014", pe.Code)
			require.NoError(t, c.Ping(t.Context()))

			require.ErrorIs(t, wait(connect(t, cfg)), context.Canceled)
			require.Eventually(t, func() bool { return h.open.Load() == 1 }, scriptTimeout, time.Millisecond,
				"the session ends though its statement would wait forever")
		})
	}
}

func TestPgxCopyNoticeSetting(t *testing.T) {
	h := newFakeHandler()
	cfg := pgxConfig(t, NewServer(Config{Handler: h, Logger: zerolog.Nop()}), "tcp", "")
	var notices []string
	cfg.OnNotice = func(_ *pgconn.PgConn, n *pgconn.Notice) { notices = append(notices, n.Severity+" "+n.Message) }
	c := connect(t, cfg)
	_, err := c.Exec(t.Context(), "notice hello")
	require.NoError(t, err)
	require.Equal(t, []string{"NOTICE hello"}, notices)
	_, err = c.Exec(t.Context(), "set TimeZone CET")
	require.NoError(t, err)
	require.Equal(t, "CET", c.PgConn().ParameterStatus("TimeZone"))

	const lines = 200_000
	tag, err := c.PgConn().CopyFrom(t.Context(), strings.NewReader(strings.Repeat("1\tx\n", lines)), "copyin")
	require.NoError(t, err)
	require.Equal(t, int64(lines), tag.RowsAffected())
	require.Equal(t, int64(lines), h.committed.Load())
	tag, err = c.PgConn().CopyFrom(t.Context(), strings.NewReader(strings.Repeat("1\tx\n", lines)), "copyin read")
	require.NoError(t, err)
	require.Equal(t, int64(lines), tag.RowsAffected())
	var out strings.Builder
	_, err = c.PgConn().CopyTo(t.Context(), &out, "copyout")
	require.NoError(t, err)
	require.Equal(t, "1\n2\n", out.String())
}

// TestPgxTooLargeMessage: the client learns why, though it is still sending when the server has seen enough.
func TestPgxTooLargeMessage(t *testing.T) {
	cfg := pgxConfig(t, NewServer(Config{Handler: newFakeHandler()}), "tcp", "&default_query_exec_mode=simple_protocol")
	c := connect(t, cfg)
	_, err := c.Exec(t.Context(), "select 1;"+strings.Repeat(" ", maxMessageBytes))
	var pe *pgconn.PgError
	require.ErrorAs(t, err, &pe)
	require.Equal(t, "54000", pe.Code)
	require.Equal(t, "FATAL", pe.Severity)
}

// TestAuthenticator leads the exchanges that an Authenticator may choose from.
func TestAuthenticator(t *testing.T) {
	cleartext := func(_ context.Context, p StartupParams, x AuthExchange) error {
		pw, err := x.CleartextPassword()
		if err != nil {
			return err
		}
		if pw != "secret" {
			return pgerr.Newf(pgerr.InvalidPassword, "password authentication failed for user \"%s\"", p.User)
		}
		return nil
	}
	h := newFakeHandler()
	cfg := pgxConfig(t, NewServer(Config{Handler: h, Authenticator: authFunc(cleartext)}), "tcp", "")
	cfg.Password = "secret"
	connect(t, cfg)
	cfg.Password = "wrong"
	_, err := pgx.ConnectConfig(t.Context(), cfg)
	var pe *pgconn.PgError
	require.ErrorAs(t, err, &pe)
	require.Equal(t, "28P01", pe.Code)
	require.Equal(t, "FATAL", pe.Severity)

	var mechanism, first string
	sasl := func(_ context.Context, _ StartupParams, x AuthExchange) error {
		m, initial, err := x.SASL([]string{"SCRAM-SHA-256"})
		mechanism, first = m, string(initial)
		if err != nil {
			return err
		}
		// A nonce that does not extend the client's own is refused by the client, which hangs up.
		_, err = x.SASLContinue([]byte("r=x,s=eA==,i=4096"))
		return err
	}
	cfg = pgxConfig(t, NewServer(Config{Handler: h, Authenticator: authFunc(sasl)}), "tcp", "")
	cfg.Password = "secret"
	_, err = pgx.ConnectConfig(t.Context(), cfg)
	require.ErrorContains(t, err, "nonce")
	require.Equal(t, "SCRAM-SHA-256", mechanism)
	require.Contains(t, first, "n,,n=")
}

type authFunc func(ctx context.Context, p StartupParams, x AuthExchange) error

func (f authFunc) Authenticate(ctx context.Context, p StartupParams, x AuthExchange) error {
	return f(ctx, p, x)
}

func BenchmarkPointLookup(b *testing.B) {
	for _, tr := range transports {
		b.Run(tr, func(b *testing.B) {
			h := newFakeHandler()
			cfg := pgxConfig(b, NewServer(Config{Handler: h}), tr, "")
			const clients = 8
			conns := make(chan *pgx.Conn, clients)
			for range clients {
				conns <- connect(b, cfg)
			}
			b.ReportAllocs()
			b.SetParallelism(clients)
			b.ResetTimer()
			b.RunParallel(func(pb *testing.PB) {
				for pb.Next() {
					c := <-conns
					var id int64
					var name string
					if err := c.QueryRow(context.Background(), "lookup", int64(1)).Scan(&id, &name); err != nil {
						b.Error(err)
					}
					conns <- c
				}
			})
		})
	}
}
