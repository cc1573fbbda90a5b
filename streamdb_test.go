package streamdb_test

import (
	"context"
	"io"
	"net"
	"net/http/httptest"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/streamdb/streamdb"
)

const apiTimeout = time.Minute

func connect(t *testing.T, db *streamdb.DB) *pgx.Conn {
	t.Helper()
	cfg, err := pgx.ParseConfig("postgres://streamdb@streamdb/streamdb?sslmode=disable")
	require.NoError(t, err)
	cfg.LookupFunc = func(_ context.Context, host string) ([]string, error) { return []string{host}, nil }
	cfg.DialFunc = db.DialFunc()
	ctx, cancel := context.WithTimeout(context.Background(), apiTimeout)
	t.Cleanup(cancel)
	conn, err := pgx.ConnectConfig(ctx, cfg)
	require.NoError(t, err)
	return conn
}

func exec(t *testing.T, c *pgx.Conn, stmts ...string) {
	t.Helper()
	for _, q := range stmts {
		_, err := c.Exec(context.Background(), q)
		require.NoError(t, err, q)
	}
}

func number(t *testing.T, c *pgx.Conn, q string) (n int64) {
	t.Helper()
	require.NoError(t, c.QueryRow(context.Background(), q).Scan(&n), q)
	return n
}

func TestEmbeddedDatabase(t *testing.T) {
	defer goleak.VerifyNone(t)
	ctx := context.Background()
	o := streamdb.Options{DataDir: t.TempDir(), Memory: 256 << 20, Settings: map[string]string{"execution.checkpointing.interval": "1s"}}
	db, err := streamdb.Open(ctx, o)
	require.NoError(t, err)
	c := connect(t, db)
	exec(t, c, "CREATE TABLE t (id int PRIMARY KEY, v int)", "CREATE MATERIALIZED VIEW m AS SELECT sum(v) AS s FROM t", "INSERT INTO t VALUES (1, 10), (2, 20)")
	require.EqualValues(t, 30, number(t, c, "SELECT s FROM m"))
	var interval string
	require.NoError(t, c.QueryRow(ctx, "SHOW execution.checkpointing.interval").Scan(&interval))
	require.Equal(t, "1s", interval)

	_, err = streamdb.Open(ctx, o)
	require.ErrorContains(t, err, "in use")

	require.NoError(t, db.Abort())
	require.NoError(t, db.Abort(), "again is nothing")
	require.NoError(t, db.Close(ctx))
	require.Error(t, c.Ping(ctx))

	db, err = streamdb.Open(ctx, o)
	require.NoError(t, err)
	c = connect(t, db)
	require.EqualValues(t, 30, number(t, c, "SELECT s FROM m"))
	exec(t, c, "INSERT INTO t VALUES (3, 30)")
	require.NoError(t, db.Close(ctx))
	require.NoError(t, db.Close(ctx))
	_, err = db.DialFunc()(ctx, "tcp", "x")
	require.Error(t, err, "a closed database takes no connections")

	db, err = streamdb.Open(ctx, o)
	require.NoError(t, err)
	c = connect(t, db)
	require.EqualValues(t, 60, number(t, c, "SELECT s FROM m"))
	require.NoError(t, db.Close(ctx))
}

func TestServeAndDialShareADatabase(t *testing.T) {
	defer goleak.VerifyNone(t)
	ctx := context.Background()
	db, err := streamdb.Open(ctx, streamdb.Options{MemoryOnly: true, Memory: 256 << 20})
	require.NoError(t, err)
	l, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	served := make(chan error, 1)
	go func() { served <- db.Serve(l) }()
	out, err := pgx.Connect(ctx, "postgres://streamdb@"+l.Addr().String()+"/streamdb?sslmode=disable")
	require.NoError(t, err)
	in := connect(t, db)
	exec(t, out, "CREATE TABLE t (id int)", "INSERT INTO t VALUES (1)")
	require.EqualValues(t, 1, number(t, in, "SELECT count(*) FROM t"))
	for path, want := range map[string]string{"/healthz": "", "/readyz": "", "/metrics": "streamdb_"} {
		w := httptest.NewRecorder()
		db.HTTPHandler().ServeHTTP(w, httptest.NewRequest("GET", path, nil))
		require.Equal(t, 200, w.Code, path)
		body, err := io.ReadAll(w.Body)
		require.NoError(t, err)
		require.Contains(t, string(body), want, path)
	}
	require.NoError(t, db.Close(ctx))
	<-served
	_, err = net.Dial("tcp", l.Addr().String())
	require.Error(t, err, "the port is closed")
	select {
	case err := <-db.Fatal():
		require.NoError(t, err)
	default:
	}
}

func TestOpenRefuses(t *testing.T) {
	defer goleak.VerifyNone(t)
	ctx := context.Background()
	for name, o := range map[string]streamdb.Options{
		"setting":    {Settings: map[string]string{"nope": "1"}},
		"value":      {Settings: map[string]string{"execution.checkpointing.interval": "soon"}},
		"failpoint":  {Failpoints: "%%"},
		"checkpoint": {CheckpointDir: "ftp://x"},
		"directory":  {DataDir: "/dev/null/x"},
	} {
		if o.DataDir == "" {
			o.DataDir = t.TempDir()
		}
		_, err := streamdb.Open(ctx, o)
		require.Error(t, err, name)
	}
	// What failed holds nothing: the same directory opens afterwards.
	dir := t.TempDir()
	_, err := streamdb.Open(ctx, streamdb.Options{DataDir: dir, CheckpointDir: "ftp://x"})
	require.Error(t, err)
	db, err := streamdb.Open(ctx, streamdb.Options{DataDir: dir})
	require.NoError(t, err)
	require.NoError(t, db.Close(ctx))
}

func TestTakenOverByAnotherServer(t *testing.T) {
	defer goleak.VerifyNone(t)
	ctx := context.Background()
	bucket := "file://" + t.TempDir()
	a, err := streamdb.Open(ctx, streamdb.Options{DataDir: t.TempDir(), CheckpointDir: bucket})
	require.NoError(t, err)
	c := connect(t, a)
	exec(t, c, "CREATE TABLE t (id int)", "INSERT INTO t VALUES (1)", "CHECKPOINT")
	b, err := streamdb.Open(ctx, streamdb.Options{DataDir: t.TempDir(), CheckpointDir: bucket})
	require.NoError(t, err)
	d := connect(t, b)
	require.EqualValues(t, 1, number(t, d, "SELECT count(*) FROM t"))
	exec(t, d, "INSERT INTO t VALUES (2)", "CHECKPOINT")
	exec(t, c, "INSERT INTO t VALUES (3)")
	_, err = c.Exec(ctx, "CHECKPOINT")
	require.Error(t, err, "the older server must not publish over the newer one")
	select {
	case err := <-a.Fatal():
		require.Error(t, err)
	case <-time.After(apiTimeout):
		t.Fatal("the older server does not notice")
	}
	require.NoError(t, a.Abort())
	require.EqualValues(t, 2, number(t, d, "SELECT count(*) FROM t"))
	require.NoError(t, b.Close(ctx))
}
