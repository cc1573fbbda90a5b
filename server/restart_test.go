package server_test

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/streamdb/streamdb/server"
)

func TestCrashBetweenEverything(t *testing.T) {
	d := open(t)
	check := func(want map[string]string) {
		t.Helper()
		d.crash()
		s := d.connect()
		s.must("FLUSH")
		for q, w := range want {
			require.Equal(t, w, strings.Join(s.rows(q), " "), q)
		}
	}
	d.connect().must("CREATE TABLE t (id int PRIMARY KEY, v int DEFAULT 3 CHECK (v > 0), g int GENERATED ALWAYS AS (v * 2) STORED)")
	check(map[string]string{"TABLE t": ""})
	d.connect().must("INSERT INTO t (id) VALUES (1), (2)", "CREATE TABLE k (a text)", "INSERT INTO k VALUES ('x'), ('x')")
	check(map[string]string{"SELECT * FROM t ORDER BY id": "1|3|6 2|3|6", "TABLE k": "x x"})
	d.connect().must("CREATE MATERIALIZED VIEW m AS SELECT v, count(*) AS n FROM t GROUP BY v")
	check(map[string]string{"TABLE m": "3|2"})
	d.connect().must("CHECKPOINT", "INSERT INTO t VALUES (3, 4)", "INSERT INTO k VALUES ('y')")
	check(map[string]string{"SELECT * FROM m ORDER BY v": "3|2 4|1", "SELECT * FROM k ORDER BY a": "x x y"})
	// What was made after the last checkpoint, over the state of that checkpoint.
	d.connect().must("CREATE VIEW v AS SELECT sum(n) AS s FROM m", "CREATE MATERIALIZED VIEW m2 AS SELECT s + 1 AS s1 FROM v", "CREATE SCHEMA sch", "CREATE TABLE sch.t (a int)",
		"INSERT INTO sch.t VALUES (7)")
	check(map[string]string{"TABLE v": "3", "TABLE m2": "4", "TABLE sch.t": "7"})
	d.connect().must("CHECKPOINT", "DROP MATERIALIZED VIEW m2", "DROP TABLE k")
	check(map[string]string{"TABLE v": "3", "SHOW JOBS": strings.Join(d.connect().rows("SHOW JOBS"), " ")})
	require.Equal(t, "42P01", d.connect().code("TABLE k"))
	d.connect().must("CREATE TABLE k (a int)")
	check(map[string]string{"TABLE k": ""})
	d.connect().must("ALTER TABLE k RENAME TO kk", "INSERT INTO kk VALUES (1)", "DELETE FROM t WHERE id = 1", "UPDATE t SET id = id + 10")
	check(map[string]string{"TABLE kk": "1", "SELECT * FROM t ORDER BY id": "12|3|6 13|4|8", "SELECT * FROM m ORDER BY v": "3|1 4|1"})
	d.connect().must("INSERT INTO kk VALUES (2)")
	d.connect().must("DROP SCHEMA sch CASCADE", "TRUNCATE t")
	check(map[string]string{"SELECT * FROM kk ORDER BY a": "1 2", "TABLE t": "", "TABLE m": "", "TABLE v": "NULL"})
	require.NoError(t, d.srv.Close(d.ctx))
	d.start()
	check(map[string]string{"SELECT * FROM kk ORDER BY a": "1 2", "TABLE t": "", "TABLE m": ""})
}

func TestBucketAloneRestoresTheDatabase(t *testing.T) {
	bucket := t.TempDir()
	d := open(t, func(c *server.Config) { c.CheckpointDir = "file://" + bucket })
	s := d.connect()
	s.must("CREATE TABLE t (id int PRIMARY KEY, v text)", "INSERT INTO t SELECT g, 'v' || g FROM generate_series(1, 1000) g", "CREATE VIEW v AS SELECT count(*) AS n FROM t",
		"CREATE MATERIALIZED VIEW m AS SELECT id % 10 AS k, count(*) AS n FROM t GROUP BY 1",
		`CREATE SOURCE b WITH (connector = 'nexmark', "nexmark.table.type" = 'Bid', "nexmark.event.num" = '1000')`,
		"CREATE MATERIALIZED VIEW bids AS SELECT count(*) AS n FROM b", "CREATE SOURCE endless (id bigint) WITH (connector = 'datagen', fields.id.kind = 'sequence')",
		"CREATE MATERIALIZED VIEW ticks AS SELECT count(*) AS n FROM endless", "CREATE TABLE gone (a int)", "DROP TABLE gone", "FLUSH", "CHECKPOINT")
	ids := s.row("SELECT max(oid::int8) FROM pg_class WHERE relname IN ('t', 'v', 'm', 'b', 'bids')")
	require.NoError(t, d.srv.Abort())
	require.NoError(t, os.RemoveAll(d.cfg.DataDir))
	d.cfg.DataDir = t.TempDir()
	d.start()
	s = d.connect()
	require.Equal(t, "1000", s.row("TABLE v"))
	require.Equal(t, "v500", s.row("SELECT v FROM t WHERE id = 500"))
	require.Equal(t, "10|1000", s.row("SELECT count(*), sum(n) FROM m"))
	require.Equal(t, "920", s.row("TABLE bids"))
	s.must("INSERT INTO t VALUES (1001, 'new')", "FLUSH") // also of a view over a source, in spite of the epochs that the start skips
	require.Equal(t, "1001|t", s.row("SELECT sum(m.n), (SELECT n >= 0 FROM ticks) FROM m"))
	s.must("CREATE TABLE fresh (a int)")
	require.Equal(t, "t", s.row("SELECT oid::int8 > "+ids+" FROM pg_class WHERE relname = 'fresh'"), "ids are not given out again")
	d.crash()
	require.Equal(t, "1001", d.connect().row("TABLE v"))
}

func TestCorruptCatalogIsRefused(t *testing.T) {
	d := open(t)
	d.connect().must("CREATE TABLE t (a int)", "INSERT INTO t VALUES (1)", "CHECKPOINT")
	require.NoError(t, d.srv.Abort())
	path := filepath.Join(d.cfg.DataDir, "catalog")
	good, err := os.ReadFile(path)
	require.NoError(t, err)
	for name, bad := range map[string][]byte{
		"flipped": append(append([]byte(nil), good[:len(good)-1]...), good[len(good)-1]^1), "short": good[:len(good)/2], "empty": {}, "other": []byte("hello, this is not it"),
		"newer": append(append([]byte("SDBCAT\x00\x63"), good[8:16]...), good[16:]...),
	} {
		require.NoError(t, os.WriteFile(path, bad, 0o600))
		_, err := server.Open(d.ctx, d.cfg)
		require.Error(t, err, name)
		require.Contains(t, err.Error(), path, name)
	}
	require.NoError(t, os.Remove(path))
	d.start()
	require.Equal(t, "1", d.connect().row("TABLE t"), "the catalog of the checkpoint stands in")
}

func TestSecondServerOnADirectoryIsRefused(t *testing.T) {
	d := open(t)
	_, err := server.Open(d.ctx, d.cfg)
	require.ErrorContains(t, err, "in use by another server")
	d.connect().must("CREATE TABLE t (a int)", "CHECKPOINT")
	require.NoError(t, d.srv.Close(d.ctx))
	d.start()
}

func TestMemoryOnlyLeavesNothing(t *testing.T) {
	tmp := t.TempDir()
	t.Setenv("TMPDIR", tmp)
	ctx := context.Background()
	for _, end := range []func(*server.Server) error{func(s *server.Server) error { return s.Close(ctx) }, (*server.Server).Abort} {
		d := open(t, func(c *server.Config) { c.MemoryOnly, c.DataDir = true, "" })
		s := d.connect()
		s.must("CREATE TABLE t (a int)", "INSERT INTO t SELECT * FROM generate_series(1, 10000)", "CREATE MATERIALIZED VIEW m AS SELECT count(*) FROM t", "CHECKPOINT")
		require.Equal(t, "10000", s.row("TABLE m"))
		require.NoError(t, end(d.srv))
		left, err := os.ReadDir(tmp)
		require.NoError(t, err)
		require.Empty(t, left)
	}
}

func TestRowNumbersGoOn(t *testing.T) {
	d := open(t)
	d.connect().must("CREATE TABLE t (a int)", "INSERT INTO t SELECT 1 FROM generate_series(1, 100)", "DELETE FROM t")
	d.crash()
	d.connect().must("INSERT INTO t SELECT 2 FROM generate_series(1, 100)", "CHECKPOINT")
	d.crash()
	s := d.connect()
	s.must("INSERT INTO t SELECT 3 FROM generate_series(1, 100)")
	require.Equal(t, "200|500", s.row("SELECT count(*), sum(a) FROM t"))
}

func TestRecoverWhileWritersRun(t *testing.T) {
	d := open(t)
	s := d.connect()
	s.must("CREATE TABLE t (id int PRIMARY KEY, v int)", "CREATE MATERIALIZED VIEW m AS SELECT count(*) AS n, sum(v) AS s FROM t",
		"CREATE MATERIALIZED VIEW m2 AS SELECT n + 1 AS n1 FROM m")
	w := d.connect()
	done := make(chan error, 1)
	const rows = 300
	go func() {
		for i := range rows {
			if _, err := w.PgConn().Exec(d.ctx, fmt.Sprintf("INSERT INTO t VALUES (%d, %d)", i, i)).ReadAll(); err != nil {
				done <- err
				return
			}
		}
		done <- nil
	}()
	for i := 0; ; i++ {
		select {
		case err := <-done:
			require.NoError(t, err)
			s.must("FLUSH")
			require.Equal(t, fmt.Sprintf("%d|%d", rows, rows*(rows-1)/2), s.row("TABLE m"))
			require.Equal(t, fmt.Sprint(rows+1), s.row("TABLE m2"))
			return
		default:
			s.must("CHECKPOINT", "RECOVER")
			s.rows("SELECT * FROM m, m2")
		}
	}
}
