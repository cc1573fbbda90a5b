package server_test

import (
	"context"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/stretchr/testify/require"

	"github.com/streamdb/streamdb/internal/checkpointrows"
	"github.com/streamdb/streamdb/internal/failpoint"
	"github.com/streamdb/streamdb/server"
)

// shared makes a server one of several on the checkpoint directory dir.
func shared(dir, lease string) func(*server.Config) {
	return func(c *server.Config) {
		c.CheckpointDir = dir
		c.Settings = map[string]string{
			"high-availability.type": "storage", "high-availability.leader-election.lease-duration": lease,
			"high-availability.advertised-address": "addr of " + filepath.Base(c.DataDir), "execution.checkpointing.interval": "0",
		}
	}
}

// waiting begins to open a server that has to wait; when it has the lead it is in the channel.
func (d *database) waiting(change ...func(*server.Config)) (*server.Standby, <-chan *database) {
	d.t.Helper()
	next := &database{t: d.t, ctx: d.ctx, cfg: d.cfg}
	next.cfg.DataDir = d.t.TempDir()
	for _, f := range change {
		f(&next.cfg)
	}
	standby, opened := make(chan *server.Standby, 1), make(chan *database, 1)
	next.cfg.OnStandby = func(b *server.Standby) { standby <- b }
	go func() {
		srv, err := server.Open(d.ctx, next.cfg)
		if err != nil {
			d.t.Errorf("open: %v", err)
			close(opened)
			return
		}
		next.srv = srv
		d.t.Cleanup(func() { _ = srv.Close(context.Background()) })
		opened <- next
	}()
	return <-standby, opened
}

// A leader that dies is followed within two leases by a server with a data directory of its own, which has what was checkpointed; in good order, at once. What a server
// had committed beyond the checkpoint that its successor has gone on from does not come back when it leads again: it is set aside.
func TestStandbyTakesOver(t *testing.T) {
	checkpointrows.Shows(t, 45, 126, 127, 137)
	dir, lease := t.TempDir(), time.Second
	a := open(t, shared(dir, "1s"))
	first := a.cfg.DataDir
	c := a.connect()
	c.must("CREATE TABLE t (k int PRIMARY KEY, v text)", "CREATE MATERIALIZED VIEW n AS SELECT count(*) AS n, max(v) AS v FROM t",
		"SET synchronous_commit = remote", "INSERT INTO t VALUES (1, 'remote')", "SET synchronous_commit = local", "INSERT INTO t VALUES (2, 'local to a')")
	require.InDelta(t, 1, a.metric("leader"), 0)

	require.Positive(t, a.metric("checkpoint_inline_files_total")+a.metric("checkpoint_packed_files_total"))
	standby, opened := a.waiting()
	require.Eventually(t, func() bool { return standby.Leader().Addr != "" }, testTimeout, time.Millisecond)
	require.Equal(t, "addr of "+filepath.Base(first), standby.Leader().Addr)
	refused := refusal(t, standby)
	require.Equal(t, "57P03", refused.Code)
	require.Contains(t, refused.Detail, "addr of "+filepath.Base(first))
	for path, want := range map[string]int{
		"/healthz": http.StatusOK, "/readyz": http.StatusServiceUnavailable, "/metrics": http.StatusOK, "/": http.StatusServiceUnavailable,
		"/jobs": http.StatusServiceUnavailable, "/jobs/1/checkpoints": http.StatusServiceUnavailable, "/jobs/1/savepoints/x": http.StatusServiceUnavailable,
	} {
		w := httptest.NewRecorder()
		standby.HTTPHandler().ServeHTTP(w, httptest.NewRequestWithContext(t.Context(), http.MethodGet, path, nil))
		require.Equal(t, want, w.Code, path)
		if !strings.HasPrefix(path, "/jobs") {
			continue
		}
		require.Equal(t, "application/json", w.Header().Get("Content-Type"))
		require.Contains(t, w.Body.String(), `{"errors":["the server is not ready: standby; the leader is `)
		require.Contains(t, w.Body.String(), "addr of "+filepath.Base(first))
	}
	w := httptest.NewRecorder()
	server.Starting().ServeHTTP(w, httptest.NewRequestWithContext(t.Context(), http.MethodPost, "/jobs/1/checkpoints", nil))
	require.Equal(t, http.StatusServiceUnavailable, w.Code)
	require.JSONEq(t, `{"errors":["the server is not ready: starting"]}`, w.Body.String())

	died := time.Now()
	require.NoError(t, a.srv.Abort())
	b := <-opened
	require.NotNil(t, b)
	require.Less(t, time.Since(died), 2*lease+time.Second)
	require.Positive(t, b.metric("restore_fetches_total"))
	require.Positive(t, b.metric("restore_fetch_seconds_total"))
	require.Positive(t, b.metric("start_seconds"))
	require.Positive(t, b.metric("object_store_read_bytes_total"))
	c = b.connect()
	require.Equal(t, "1|remote", c.row("SELECT * FROM n"), "what was committed remotely is there, what was local to a is not")
	c.must("INSERT INTO t VALUES (2, 'b'), (3, 'b')", "CREATE TABLE made_by_b (x int)", "CHECKPOINT")
	c.must("INSERT INTO made_by_b VALUES (1)")
	ids := c.row("SELECT min(checkpoint_id) FROM streamdb.checkpoints WHERE status = 'COMPLETED'")
	require.Len(t, ids, len("10001"), "ids of a are not given out again")

	// a waits with its old directory, and leads again when b stops in good order.
	_, opened = a.waiting(func(c *server.Config) { c.DataDir = first })
	require.NoError(t, b.srv.Close(t.Context()))
	a = <-opened
	require.NotNil(t, a)
	c = a.connect()
	c.must("FLUSH")
	require.Equal(t, "3|remote", c.row("SELECT * FROM n"))
	require.Equal(t, []string{"1|remote", "2|b", "3|b"}, c.rows("SELECT * FROM t ORDER BY k"))
	require.Equal(t, "1", c.row("SELECT count(*) FROM made_by_b"), "the last checkpoint of b has it")
	aside, err := filepath.Glob(filepath.Join(first, "superseded", "*", "wal"))
	require.NoError(t, err)
	require.Len(t, aside, 1)

	// A crash and a start on the same directory lose nothing and set nothing aside.
	c.must("INSERT INTO t VALUES (4, 'local')")
	require.NoError(t, a.srv.Abort())
	again, opened := a.waiting(func(c *server.Config) { c.DataDir = first })
	require.NotNil(t, again)
	a = <-opened
	require.Equal(t, "4", a.connect().row("SELECT count(*) FROM t"))
	aside, err = filepath.Glob(filepath.Join(first, "superseded", "*"))
	require.NoError(t, err)
	require.Len(t, aside, 1)
}

// refusal is what a client of a standby is told. The listener goes on to its next user.
func refusal(t *testing.T, standby *server.Standby) *pgconn.PgError {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	defer l.Close()
	ctx, cancel := context.WithCancel(t.Context())
	served := make(chan error, 1)
	go func() { served <- standby.Serve(ctx, l.(*net.TCPListener)) }()
	_, err = pgx.Connect(t.Context(), "postgres://streamdb@"+l.Addr().String()+"/streamdb?sslmode=disable")
	var pe *pgconn.PgError
	require.ErrorAs(t, err, &pe)
	cancel()
	require.NoError(t, <-served)
	go func() {
		c, err := l.Accept()
		if err == nil {
			err = c.Close()
		}
		served <- err
	}()
	c, err := net.Dial("tcp", l.Addr().String())
	require.NoError(t, err)
	require.NoError(t, <-served)
	require.NoError(t, c.Close())
	return pe
}

// Another server on the same data directory waits for it.
func TestStandbyOnOneDataDirectory(t *testing.T) {
	dir := t.TempDir()
	a := open(t, shared(dir, "1s"))
	c := a.connect()
	c.must("CREATE TABLE t (k int PRIMARY KEY)", "INSERT INTO t VALUES (1)")
	_, opened := a.waiting(func(c *server.Config) { c.DataDir = a.cfg.DataDir })
	require.NoError(t, a.srv.Abort())
	b := <-opened
	require.NotNil(t, b)
	require.Equal(t, "1", b.connect().row("SELECT count(*) FROM t"), "the log is there: nothing is lost")
	_, err := os.Stat(filepath.Join(a.cfg.DataDir, "superseded"))
	require.ErrorIs(t, err, os.ErrNotExist)
}

// A crash at any step of a claim does not make a server take its own data for another's, or the other way round.
func TestClaimsAndCrashes(t *testing.T) {
	checkpointrows.Shows(t, 127)
	dir := t.TempDir()
	a := open(t, func(c *server.Config) {
		c.CheckpointDir = dir
		c.Settings = map[string]string{"execution.checkpointing.interval": "0"}
	})
	a.connect().must("CREATE TABLE t (k int PRIMARY KEY)", "CHECKPOINT", "INSERT INTO t VALUES (1)")
	require.NoError(t, a.srv.Abort())
	points, err := failpoint.Parse("checkpoint/after-claim=error(crash)")
	require.NoError(t, err)
	failed := a.cfg
	failed.Failpoints = points
	for range 3 {
		_, err := server.Open(t.Context(), failed)
		require.Error(t, err)
	}
	a.start()
	require.Equal(t, "1", a.connect().row("SELECT count(*) FROM t"))
	require.NoError(t, a.srv.Abort())

	// Another server, then a crash of the first in its claim: what it had is still another's.
	other := a.cfg
	other.DataDir = t.TempDir()
	b, err := server.Open(t.Context(), other)
	require.NoError(t, err)
	require.NoError(t, b.Abort())
	_, err = server.Open(t.Context(), failed)
	require.Error(t, err)
	a.start()
	require.Equal(t, "0", a.connect().row("SELECT count(*) FROM t"))
}

// With synchronous_commit = remote another machine goes on with whatever was acknowledged: rows, schema changes, and both in one transaction. What no checkpoint has is told of as such,
// and stays.
func TestRemoteCommits(t *testing.T) {
	dir := t.TempDir()
	far := func(c *server.Config) {
		c.CheckpointDir = dir
		c.Settings = map[string]string{"execution.checkpointing.interval": "1h"}
	}
	for _, c := range []struct{ made, read, want string }{
		{"CREATE TABLE alone (k int)", "SELECT count(*) FROM alone", "0"},
		{"CREATE MATERIALIZED VIEW v AS SELECT count(*) AS n FROM old", "SELECT n FROM v", "1"},
		{"INSERT INTO old VALUES (2)", "SELECT count(*) FROM old", "2"},
		{"BEGIN; CREATE TABLE both_of (k int); INSERT INTO both_of VALUES (1); COMMIT", "SELECT count(*) FROM both_of", "1"},
		{"CREATE TABLE a (k int); INSERT INTO a VALUES (1); ALTER TABLE a ADD COLUMN v int DEFAULT 3", "SELECT v FROM a", "3"},
		{"ALTER TABLE old ADD COLUMN more int", "SELECT count(more) FROM old", "0"},
		{"CREATE SEQUENCE s; CREATE VIEW w AS SELECT * FROM old", "SELECT count(*) FROM w", "1"},
		{"ALTER ROLE streamdb SET work_mem = '5MB'", "SELECT count(*) FROM old", "1"},
		{"COMMENT ON TABLE old IS 'x'", "SELECT obj_description('old'::regclass)", "x"},
		{"DROP TABLE gone", "SELECT count(*) FROM pg_class WHERE relname = 'gone'", "0"},
	} {
		t.Run(c.made, func(t *testing.T) {
			dir = t.TempDir()
			d := open(t, far)
			s := d.connect()
			s.must("CREATE TABLE old (k int)", "CREATE TABLE gone (k int)", "INSERT INTO old VALUES (1)", "CHECKPOINT", "SET synchronous_commit = remote", c.made)
			require.NoError(t, d.srv.Abort())
			require.Equal(t, c.want, open(t, far).connect().row(c.read))
		})
	}
	points, err := failpoint.Parse("checkpoint/before-upload=error")
	require.NoError(t, err)
	dir = t.TempDir()
	d := open(t, far, func(c *server.Config) { c.Failpoints = points })
	s := d.connect()
	s.must("SET synchronous_commit = remote")
	for _, made := range []string{"CREATE TABLE t (k int)", "INSERT INTO t VALUES (1)", "BEGIN; CREATE TABLE u (k int); INSERT INTO u VALUES (1); COMMIT"} {
		require.Equal(t, "08007", s.code(made), made)
	}
	require.Equal(t, "1|1", s.row("SELECT t.k, u.k FROM t, u"))
	d.cfg.Failpoints = nil
	d.crash()
	require.Equal(t, "1|1", d.connect().row("SELECT t.k, u.k FROM t, u"))
}
