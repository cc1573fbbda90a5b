package server_test

import (
	"context"
	"net"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/rs/zerolog"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/streamdb/streamdb/connector/all"
	"github.com/streamdb/streamdb/internal/pgerr"
	"github.com/streamdb/streamdb/server"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// testTimeout bounds whatever a test waits for.
const testTimeout = time.Minute

// database is a server of a test, in this process.
type database struct {
	t   testing.TB
	ctx context.Context //nolint:containedctx // the test's
	cfg server.Config
	srv *server.Server
}

// open starts a server over a new directory; it is closed with the test.
func open(t testing.TB, change ...func(*server.Config)) *database {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), testTimeout)
	t.Cleanup(cancel)
	d := &database{t: t, ctx: ctx, cfg: server.Config{
		DataDir: t.TempDir(), Memory: 256 << 20, Connectors: all.Builtin(), Logger: zerolog.New(zerolog.NewTestWriter(t)).Level(zerolog.WarnLevel),
	}}
	for _, f := range change {
		f(&d.cfg)
	}
	d.start()
	t.Cleanup(func() { require.NoError(t, d.srv.Close(context.Background())) })
	return d
}

func (d *database) start() {
	d.t.Helper()
	srv, err := server.Open(d.ctx, d.cfg)
	require.NoError(d.t, err)
	d.srv = srv
}

// crash stops the server as kill -9 would and starts it again.
func (d *database) crash() {
	d.t.Helper()
	require.NoError(d.t, d.srv.Abort())
	d.start()
}

func (d *database) config() *pgx.ConnConfig {
	cfg, err := pgx.ParseConfig("postgres://streamdb@streamdb/streamdb?sslmode=disable")
	require.NoError(d.t, err)
	cfg.LookupFunc = func(_ context.Context, host string) ([]string, error) { return []string{host}, nil }
	cfg.DialFunc = func(ctx context.Context, network, addr string) (net.Conn, error) {
		return d.srv.Dial(ctx, network, addr)
	}
	return cfg
}

// session is a connection of a test.
type session struct {
	*pgx.Conn
	d       *database
	notices []*pgconn.Notice
}

func (d *database) connect(change ...func(*pgx.ConnConfig)) *session {
	d.t.Helper()
	s := &session{d: d}
	cfg := d.config()
	cfg.OnNotice = func(_ *pgconn.PgConn, n *pgconn.Notice) { s.notices = append(s.notices, n) }
	for _, f := range change {
		f(cfg)
	}
	c, err := pgx.ConnectConfig(d.ctx, cfg)
	require.NoError(d.t, err)
	s.Conn = c
	d.t.Cleanup(func() { _ = c.Close(context.Background()) })
	return s
}

// must runs statements, as one simple query each.
func (s *session) must(stmts ...string) {
	s.d.t.Helper()
	for _, q := range stmts {
		_, err := s.PgConn().Exec(s.d.ctx, q).ReadAll()
		require.NoError(s.d.t, err, q)
	}
}

// code runs a simple query and returns its SQLSTATE, "" when it succeeds.
func (s *session) code(q string) string {
	s.d.t.Helper()
	_, err := s.PgConn().Exec(s.d.ctx, q).ReadAll()
	return string(codeOf(s.d.t, err))
}

func codeOf(t testing.TB, err error) pgerr.Code {
	t.Helper()
	if err == nil {
		return ""
	}
	var pe *pgconn.PgError
	require.ErrorAs(t, err, &pe)
	return pgerr.Code(pe.Code)
}

// fails asserts the SQLSTATE and the message of a simple query's error.
func (s *session) fails(q, code, message string) *pgconn.PgError {
	s.d.t.Helper()
	_, err := s.PgConn().Exec(s.d.ctx, q).ReadAll()
	var pe *pgconn.PgError
	require.ErrorAs(s.d.t, err, &pe, q)
	require.Equal(s.d.t, code, pe.Code, "%s: %s", q, pe.Message)
	if message != "" {
		require.Equal(s.d.t, message, pe.Message, q)
	}
	return pe
}

// rows runs a simple query and returns the last result as text: columns joined by "|", NULL for null.
func (s *session) rows(q string) []string {
	s.d.t.Helper()
	res, err := s.PgConn().Exec(s.d.ctx, q).ReadAll()
	require.NoError(s.d.t, err, q)
	out := []string{}
	for _, r := range res[len(res)-1].Rows {
		cols := make([]string, len(r))
		for i, v := range r {
			cols[i] = string(v)
			if v == nil {
				cols[i] = "NULL"
			}
		}
		out = append(out, strings.Join(cols, "|"))
	}
	return out
}

func (s *session) row(q string) string {
	s.d.t.Helper()
	r := s.rows(q)
	require.Len(s.d.t, r, 1, q)
	return r[0]
}

func pgErr(t testing.TB, err error) *pgconn.PgError {
	t.Helper()
	var pe *pgconn.PgError
	require.ErrorAs(t, err, &pe)
	return pe
}
