package server_test

import (
	"fmt"
	"os"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/streamdb/streamdb/server"
)

// Rows of all ages must be read right from memory, the log, a checkpoint and a bucket.
func TestRowsOlderThanTheirColumns(t *testing.T) {
	bucket := t.TempDir()
	d := open(t, func(c *server.Config) { c.CheckpointDir = "file://" + bucket })
	s := d.connect()
	s.must("CREATE TABLE t (id int PRIMARY KEY, a text)", "CREATE TABLE k (a text, b int)", "INSERT INTO t VALUES (0, 'old')", "INSERT INTO k VALUES ('old', 1)",
		"CREATE MATERIALIZED VIEW m AS SELECT a, count(*) AS n FROM t GROUP BY a", "CREATE INDEX ON t (a)")
	check := func(n int) {
		t.Helper()
		s.must("FLUSH")
		require.Equal(t, fmt.Sprint(n+1, "|", n+1), s.row("SELECT count(*), (SELECT sum(n) FROM m) FROM t"))
		for i := range n {
			// Every row older than column i has its default.
			require.Equal(t, fmt.Sprint(i+1), s.row(fmt.Sprintf("SELECT count(*) FROM t WHERE c%d = %d AND id <= %d", i, 1000+i, i)), "column %d of %d", i, n)
			require.Equal(t, fmt.Sprint(1000+i), s.row(fmt.Sprintf("SELECT c%d FROM k WHERE a = 'old'", i)))
		}
		require.Equal(t, fmt.Sprint(n), s.row("SELECT max(id) FROM t WHERE a IS NOT NULL"))
		require.Equal(t, "0", s.row("SELECT id FROM t WHERE a = 'old'"))
	}
	for i := range 10 { // past the width of the null bitmap
		s.must(fmt.Sprintf("ALTER TABLE t ADD COLUMN c%d int DEFAULT %d", i, 1000+i), fmt.Sprintf("ALTER TABLE k ADD COLUMN c%d int DEFAULT %d", i, 1000+i),
			fmt.Sprintf("INSERT INTO t (id, a, c%d) VALUES (%d, 'r%d', NULL)", i, i+1, i))
		switch i % 3 {
		case 0:
			d.crash()
			s = d.connect()
		case 1:
			s.must("CHECKPOINT", fmt.Sprintf("UPDATE t SET c0 = c0 WHERE id = %d", i))
			d.crash()
			s = d.connect()
		}
		check(i + 1)
	}
	s.must("ALTER TABLE t DROP COLUMN c3", "ALTER TABLE t ADD COLUMN c3 int DEFAULT 1003", "CHECKPOINT")
	require.Equal(t, "11", s.row("SELECT count(c3) FROM t"))
	require.NoError(t, d.srv.Abort())
	require.NoError(t, os.RemoveAll(d.cfg.DataDir))
	d.cfg.DataDir = t.TempDir()
	d.start()
	s = d.connect()
	require.Equal(t, "1003|11", s.row("SELECT max(c3), count(c3) FROM t"))
	require.Equal(t, "old|1|1009", s.row("SELECT a, b, c9 FROM k"))
	s.must("UPDATE t SET c9 = 5 WHERE id = 0", "DELETE FROM t WHERE id = 1", "FLUSH")
	require.Equal(t, "10", s.row("SELECT sum(n) FROM m"))
}

func TestAlterTableInTransactions(t *testing.T) {
	d := open(t)
	a, b := d.connect(), d.connect()
	a.must("CREATE TABLE t (id int PRIMARY KEY, v int)", "INSERT INTO t VALUES (1, 10)", "BEGIN", "ALTER TABLE t ADD COLUMN x int DEFAULT 3, DROP COLUMN v", "INSERT INTO t VALUES (2, 20)")
	require.Equal(t, []string{"1|3", "2|20"}, a.rows("SELECT * FROM t ORDER BY id"))
	require.Equal(t, "1|10", b.row("TABLE t"))
	b.must("INSERT INTO t VALUES (7, 70)")
	a.must("ROLLBACK")
	require.Equal(t, []string{"1|10", "7|70"}, a.rows("SELECT * FROM t ORDER BY id"))
	// A transaction that began before a change commits its rows: they get the default.
	b.must("BEGIN", "INSERT INTO t VALUES (3, 30)", "UPDATE t SET v = 11 WHERE id = 1")
	a.must("ALTER TABLE t ADD COLUMN x text DEFAULT 'd'")
	b.must("COMMIT")
	require.Equal(t, []string{"1|11|d", "3|30|d", "7|70|d"}, a.rows("SELECT * FROM t ORDER BY id"))
	d.crash()
	require.Equal(t, []string{"1|11|d", "3|30|d", "7|70|d"}, d.connect().rows("SELECT * FROM t ORDER BY id"))
}

func TestRenamesUnderAView(t *testing.T) {
	d := open(t)
	s := d.connect()
	s.must("CREATE TABLE t (id int PRIMARY KEY, a int)", "CREATE VIEW v AS SELECT t.a AS x, count(*) AS n FROM t WHERE a > 0 GROUP BY t.a", "INSERT INTO t VALUES (1, 5)",
		"ALTER TABLE t RENAME COLUMN a TO b", "ALTER TABLE t RENAME TO u")
	require.Equal(t, "5|1", s.row("TABLE v"))
	require.Equal(t, " SELECT u.b AS x, count(*) AS n FROM u WHERE b > 0 GROUP BY u.b;", s.row("SELECT pg_get_viewdef('v'::regclass)"))
	s.must("CREATE SCHEMA other", "ALTER TABLE u SET SCHEMA other", "ALTER SCHEMA other RENAME TO another")
	require.Equal(t, "5|1", s.row("TABLE v"))
	d.crash()
	s = d.connect()
	require.Equal(t, "5|1", s.row("TABLE v"))
	require.Contains(t, s.row("SELECT pg_get_viewdef('v'::regclass)"), "FROM another.u")
}

// The definitions of views follow a table from schema to schema, whether they name the schema or not.
func TestViewsFollowATableThroughSchemas(t *testing.T) {
	d := open(t)
	s := d.connect()
	s.must("CREATE SCHEMA a", "CREATE SCHEMA b", "CREATE TABLE t (id int PRIMARY KEY, k int)", "INSERT INTO t VALUES (1, 2), (3, 4)",
		"CREATE VIEW bare AS SELECT t.k, t.id FROM t WHERE t.k > 2", "CREATE VIEW full_name AS SELECT public.t.k, x.id FROM public.t JOIN public.t AS x ON x.k = public.t.k WHERE x.k > 2",
		"CREATE MATERIALIZED VIEW m AS SELECT count(*) AS n FROM public.t WHERE t.id IN (SELECT id FROM t)")
	for _, schema := range []string{"a", "b", "public", "a"} {
		s.must("ALTER TABLE "+s.row("SELECT n.nspname || '.' || relname FROM pg_class c JOIN pg_namespace n ON n.oid = relnamespace WHERE relname = 't' AND relkind = 'r'")+" SET SCHEMA "+schema, "ALTER TABLE "+schema+".t RENAME TO u", "ALTER TABLE "+schema+".u RENAME TO t")
		for _, v := range []string{"bare", "full_name"} {
			require.Equal(t, "4|3", s.row("TABLE "+v))
			if schema != "public" {
				require.Contains(t, s.row("SELECT pg_get_viewdef('"+v+"'::regclass)"), "FROM "+schema+".t")
			}
		}
		require.Equal(t, "2", s.row("TABLE m"))
	}
	d.crash()
	s = d.connect()
	require.Equal(t, []string{"4|3", "4|3", "2|2"}, append(append(s.rows("TABLE bare"), s.rows("TABLE full_name")...), s.row("SELECT n, n FROM m")))
}

func TestColumnsThatComeWithTheirKeys(t *testing.T) {
	d := open(t)
	s := d.connect()
	s.must("CREATE TABLE t (a int)", "INSERT INTO t VALUES (1), (2)", "CREATE MATERIALIZED VIEW m AS SELECT a FROM t",
		"BEGIN", "ALTER TABLE t ADD COLUMN u int UNIQUE", "UPDATE t SET u = a", "INSERT INTO t VALUES (3, 3)")
	require.Equal(t, "23505", s.code("INSERT INTO t VALUES (4, 3)"))
	s.must("ROLLBACK", "INSERT INTO t VALUES (3)")
	require.Equal(t, "0", s.row("SELECT count(*) FROM pg_class WHERE relname = 't_u_key'"))
	s.fails("ALTER TABLE t ADD COLUMN id int DEFAULT 1 PRIMARY KEY", "23505", `could not create unique index "t_pkey"`)
	s.must("ALTER TABLE t ADD COLUMN u int UNIQUE", "UPDATE t SET u = a * 10")
	d.crash()
	s = d.connect()
	require.Equal(t, "2", s.row("SELECT a FROM t WHERE u = 20"))
	require.Equal(t, "23505", s.code("INSERT INTO t VALUES (9, 20)"))
	require.Equal(t, []string{"1", "2", "3"}, s.rows("SELECT a FROM m ORDER BY a"))
}
