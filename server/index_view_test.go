package server_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/streamdb/streamdb/server"
)

// TestIndexesOfViewsEqualTheirViews changes tables at random, in and out of transactions and across crashes, and asks a view over them the same
// questions with and without its indexes.
func TestIndexesOfViewsEqualTheirViews(t *testing.T) {
	for _, parallelism := range []int{1, 4} {
		t.Run(fmt.Sprint("parallelism ", parallelism), func(t *testing.T) { viewIndexes(t, parallelism) })
	}
}

func viewIndexes(t *testing.T, parallelism int) {
	bucket := t.TempDir()
	d := open(t, func(c *server.Config) { c.CheckpointDir = "file://" + bucket })
	rnd := rand.New(rand.NewPCG(5, uint64(parallelism)))
	s := d.connect()
	s.must(fmt.Sprint("SET parallelism = ", parallelism), "CREATE TABLE t (id int PRIMARY KEY, a int, b text, d numeric(8, 2))",
		"CREATE MATERIALIZED VIEW v AS SELECT id, a, b, d, a * 2 AS c FROM t WHERE a IS DISTINCT FROM 9",
		"CREATE MATERIALIZED VIEW g AS SELECT b, count(*) AS n, sum(a) AS s FROM t GROUP BY b",
		"INSERT INTO t SELECT g, g % 10, 'k' || g % 7, g FROM generate_series(1, 50) g",
		"CREATE INDEX ON v (a)", "CREATE INDEX ON v (b, a DESC)", "CREATE INDEX ON v (a DESC NULLS LAST, id)", "CREATE INDEX ON v (lower(b)) WHERE a > 5",
		"CREATE INDEX ON v ((a + id))", "CREATE INDEX ON v (d NULLS FIRST) INCLUDE (b)", "CREATE UNIQUE INDEX ON v (id)", "CREATE INDEX ON g (n DESC)", "CREATE UNIQUE INDEX ON g (b)")
	conds := []string{
		"a = 3", "a IN (1, 4, 7)", "a = ANY('{2,5,5}'::int[])", "a BETWEEN 3 AND 6", "a > 7", "a >= 7 AND a < 9", "b = 'k3' AND a = 4", "b = 'k3' AND a > 4", "b LIKE 'k1%'",
		"lower(b) = 'k2' AND a > 5", "a + id = 12", "a + id > 100 AND a + id <= 120", "id BETWEEN 20 AND 40", "d = 2.5", "d < 1.0", "a IS NULL", "a = NULL::int", "a = 3 AND id > 50", "true",
	}
	orders := []string{"a, id", "a DESC, id DESC", "a DESC NULLS LAST, id", "b, a DESC, id", "id", "id DESC", "a + id, id", "d NULLS FIRST, id", "d DESC NULLS LAST, id DESC", "lower(b), id"}
	both := func(s *session, q string) {
		t.Helper()
		s.must("BEGIN") // one moment for both
		got := s.rows(q)
		s.must("SET LOCAL streamdb.disabled_rules = 'index_scans, point_reads'")
		want := s.rows(q)
		s.must("COMMIT")
		require.Equal(t, want, got, q)
	}
	check := func(s *session) {
		t.Helper()
		for range 8 {
			q := "SELECT id, a, b, c, d FROM v WHERE " + conds[rnd.IntN(len(conds))]
			if rnd.IntN(2) == 0 {
				q += " AND " + conds[rnd.IntN(len(conds))]
			}
			q += " ORDER BY " + orders[rnd.IntN(len(orders))]
			if rnd.IntN(2) == 0 {
				q += fmt.Sprintf(" LIMIT %d OFFSET %d", rnd.IntN(9), rnd.IntN(4))
			}
			both(s, q)
			got := s.rows(q) // outside of a block: what the session wrote is there
			s.must("SET streamdb.disabled_rules = 'index_scans, point_reads'")
			want := s.rows(strings.ReplaceAll(q, "FROM v WHERE ", "FROM (SELECT id, a, b, d, a * 2 AS c FROM t WHERE a IS DISTINCT FROM 9) v WHERE "))
			s.must("RESET streamdb.disabled_rules")
			require.Equal(t, want, got, q)
		}
		both(s, "SELECT b, n, s FROM g WHERE n > 2 ORDER BY n DESC, b LIMIT 3")
		both(s, "SELECT v.id, g.n FROM v JOIN g USING (b) WHERE v.a = 3 AND g.n > 1 ORDER BY 1")
	}
	null := func(v string) string {
		if rnd.IntN(8) == 0 {
			return "NULL"
		}
		return v
	}
	change := func(s *session) {
		row := fmt.Sprintf("(%d, %s, %s, %s)", rnd.IntN(120), null(fmt.Sprint(rnd.IntN(10))), null(fmt.Sprintf("'k%d'", rnd.IntN(12))), null(fmt.Sprintf("%d.%d", rnd.IntN(10), rnd.IntN(10))))
		switch rnd.IntN(6) {
		case 0, 1, 2:
			s.must("INSERT INTO t VALUES " + row + " ON CONFLICT (id) DO UPDATE SET a = excluded.a, b = excluded.b, d = excluded.d")
		case 3, 4:
			s.must(fmt.Sprintf("UPDATE t SET a = (a + 1) %% 11, b = upper(b) WHERE id %% 5 = %d", rnd.IntN(5)))
		default:
			s.must(fmt.Sprintf("DELETE FROM t WHERE id %% 17 = %d", rnd.IntN(17)))
		}
	}
	for round := range 6 {
		for range 20 {
			change(s)
		}
		check(s)
		s.must("BEGIN")
		for range 4 {
			change(s)
		}
		s.must([]string{"COMMIT", "ROLLBACK"}[round%2])
		check(s)
		if round%2 == 1 {
			s.must("CHECKPOINT")
		}
		switch round {
		case 2:
			d.crash()
			s = d.connect()
		case 3:
			s.must("RECOVER")
		case 4:
			s.must("CHECKPOINT")
			require.NoError(t, d.srv.Abort())
			d.cfg.DataDir = t.TempDir()
			d.start()
			s = d.connect()
		}
	}
	require.Contains(t, strings.Join(s.rows("EXPLAIN SELECT * FROM v WHERE a = 3"), "\n"), "Index Scan using v_a_idx on v")
	require.Contains(t, strings.Join(s.rows("EXPLAIN SELECT * FROM g ORDER BY n DESC LIMIT 2"), "\n"), "Index Scan using g_n_idx on g")
	require.Equal(t, "0", s.row("SELECT count(*) FROM streamdb.errors"))
}

func TestIndexOfAViewIsFilledWhileTheViewChanges(t *testing.T) {
	d := open(t)
	s := d.connect()
	s.must("CREATE TABLE t (id int PRIMARY KEY, a int)", "INSERT INTO t SELECT g, g % 100 FROM generate_series(1, 20000) g", "CREATE MATERIALIZED VIEW v AS SELECT * FROM t", "CHECKPOINT")
	stop, done := make(chan struct{}), make(chan error, 1)
	w := d.connect()
	go func() {
		for i := 0; ; i++ {
			select {
			case <-stop:
				done <- nil
				return
			default:
			}
			if _, err := w.Exec(d.ctx, fmt.Sprintf("UPDATE t SET a = a + 1 WHERE id %% 1000 = %d", i%1000)); err != nil {
				done <- err
				return
			}
		}
	}()
	for i := range 3 {
		s.must(fmt.Sprintf("CREATE INDEX x%d ON v (a, id DESC)", i))
	}
	close(stop)
	require.NoError(t, <-done)
	s.must("FLUSH")
	for i := range 120 {
		q := fmt.Sprintf("SELECT count(*), sum(id) FROM %%s WHERE a = %d", i)
		require.Equal(t, s.row(fmt.Sprintf(q, "t")), s.row(fmt.Sprintf(q, "v")))
	}
	require.Contains(t, strings.Join(s.rows("EXPLAIN SELECT count(*) FROM v WHERE a = 3"), "\n"), "Index Scan using x")
	s.must("ALTER MATERIALIZED VIEW v RENAME TO r", "ALTER INDEX x2 RENAME TO y", "ALTER MATERIALIZED VIEW r RENAME COLUMN a TO n")
	require.Equal(t, []string{"r|materialized view", "x0|index", "x1|index", "y|index"}, s.rows("SELECT name, kind FROM streamdb.jobs ORDER BY 1"))
	s.must("DROP INDEX x0, x1")
	require.Contains(t, strings.Join(s.rows("EXPLAIN SELECT count(*) FROM r WHERE n = 3"), "\n"), "Index Scan using y on r")
	require.Equal(t, "CREATE INDEX y ON public.r USING btree (n, id DESC)", s.row("SELECT indexdef FROM pg_indexes WHERE indexname = 'y'"))
	s.must("DROP MATERIALIZED VIEW r")
	require.Equal(t, "0", s.row("SELECT count(*) FROM streamdb.jobs"))
	require.Equal(t, "0", s.row("SELECT count(*) FROM pg_class WHERE relname LIKE 'x_'"))
	d.crash()
	require.Equal(t, "0", d.connect().row("SELECT count(*) FROM streamdb.jobs"))
}

// TestUnfinishedIndexOfAViewDoesNotOutliveACrash opens a copy of the data directory as it is while an index of a view is filled.
func TestUnfinishedIndexOfAViewDoesNotOutliveACrash(t *testing.T) {
	d := open(t)
	s := d.connect()
	s.must("CREATE TABLE t (id int PRIMARY KEY, a int)", "INSERT INTO t SELECT g, g FROM generate_series(1, 5000) g", "CREATE MATERIALIZED VIEW v AS SELECT * FROM t", "CHECKPOINT", "PAUSE v")
	ctx, cancel := context.WithCancel(d.ctx)
	done := make(chan error, 1)
	maker := d.connect()
	s.must("INSERT INTO t VALUES (6000, 6000)") // the paused view does not get to this epoch, nor does its index
	go func() {
		_, err := maker.Exec(ctx, "CREATE INDEX x ON v (a)")
		done <- err
	}()
	require.Eventually(t, func() bool {
		return s.row("SELECT count(*) FROM pg_index WHERE indrelid = 'v'::regclass AND NOT indisvalid") == "1"
	}, 10*time.Second, 5*time.Millisecond)
	copied := filepath.Join(t.TempDir(), "copy")
	require.NoError(t, os.CopyFS(copied, os.DirFS(d.cfg.DataDir)))
	cancel()
	require.Error(t, <-done)
	require.Eventually(t, func() bool {
		return s.row("SELECT count(*) FROM pg_class WHERE relname = 'x'") == "0" && s.row("SELECT count(*) FROM streamdb.jobs") == "1"
	}, 10*time.Second, 5*time.Millisecond, "a cancelled creation leaves nothing")
	require.NoError(t, d.srv.Abort())
	d.cfg.DataDir = copied
	d.start()
	s = d.connect()
	require.Equal(t, "0", s.row("SELECT count(*) FROM pg_class WHERE relname = 'x'"))
	require.Equal(t, "1", s.row("SELECT count(*) FROM streamdb.jobs"))
	s.must("RESUME v", "CREATE INDEX x ON v (a)")
	require.Equal(t, "6000", s.row("SELECT id FROM v WHERE a = 6000"))
}

// TestIndexThatLagsIsNotRead: where an index of a view cannot be read its view is.
func TestIndexThatLagsIsNotRead(t *testing.T) {
	d := open(t)
	s := d.connect()
	s.must("CREATE TABLE t (id int PRIMARY KEY, a int)", "INSERT INTO t SELECT g, g FROM generate_series(1, 100) g", "CREATE MATERIALIZED VIEW v AS SELECT * FROM t",
		"CREATE INDEX x ON v (a)", "CREATE INDEX y ON v ((100 / a)) WHERE id < 1000")
	q, y := "SELECT id FROM v WHERE a IN (7, -1, 0) ORDER BY id", "SELECT 100 / a FROM v WHERE id < 1000 ORDER BY 100 / a LIMIT 1"
	require.Equal(t, "1", s.row(y))
	s.must("PAUSE x", "INSERT INTO t VALUES (200, -1)")
	require.Equal(t, []string{"7", "200"}, s.rows(q))
	require.Equal(t, []string{"1"}, s.rows("SELECT id FROM v ORDER BY a OFFSET 1 LIMIT 1"))
	s.must("RESUME x", "PAUSE v", "INSERT INTO t VALUES (201, -1)")
	require.Equal(t, []string{"7", "200"}, s.rows(q), "a view that does not go on is not waited for, nor is its index")
	s.must("RESUME v")
	require.Equal(t, []string{"7", "200", "201"}, s.rows(q))
	// A row whose key cannot be computed is not in the index, but in the view.
	s.must("INSERT INTO t VALUES (300, 0)")
	require.Equal(t, []string{"7", "200", "201", "300"}, s.rows(q))
	s.must("FLUSH")
	require.Equal(t, "y|22012", s.row("SELECT job, sqlstate FROM streamdb.errors"))
	s.fails("CREATE INDEX ON v ((1 / a))", "22012", "division by zero")
	require.Equal(t, "0", s.row("SELECT count(*) FROM pg_class WHERE relname = 'v_expr_idx'"))
	require.Equal(t, []string{"300"}, s.rows("SELECT id FROM v WHERE id < 1000 AND a = 0"))
	s.must("DELETE FROM t WHERE id = 300", "FLUSH")
	require.Equal(t, "0", s.row("SELECT count(*) FROM streamdb.errors"))
	require.Equal(t, "-100", s.row(y))
	s.must("BEGIN")
	require.Equal(t, "7|200|201", strings.Join(s.rows(q), "|"))
	d.connect().must("INSERT INTO t VALUES (202, -1)", "FLUSH", "CREATE INDEX z ON v (a)", "DROP INDEX x")
	require.Equal(t, "7|200|201", strings.Join(s.rows(q), "|"))
	s.must("COMMIT")
	require.Equal(t, "7|200|201|202", strings.Join(s.rows(q), "|"))
}

func TestSizesOfIndexes(t *testing.T) {
	d := open(t)
	s := d.connect()
	s.must("CREATE TABLE t (id int PRIMARY KEY, a text, b text)", "INSERT INTO t SELECT g, repeat('x', 100) || g, 'y' FROM generate_series(1, 1000) g", "CREATE INDEX t_a ON t (a)", "CREATE INDEX t_b ON t (b) WHERE id < 100",
		"CREATE MATERIALIZED VIEW v AS SELECT id, a FROM t", "CREATE INDEX v_a ON v (a)", "CREATE MATERIALIZED VIEW w AS SELECT id FROM t", "CHECKPOINT")
	require.Equal(t, "t|t|t|t", s.row("SELECT pg_relation_size('t_a') > 100000, pg_relation_size('t_b') BETWEEN 1000 AND 5000, pg_relation_size('t_pkey') = 0, pg_relation_size('v_a') > 1000"))
	require.Equal(t, "t|t|t", s.row("SELECT pg_indexes_size('t') = pg_relation_size('t_a') + pg_relation_size('t_b'), pg_total_relation_size('t') = pg_table_size('t') + pg_indexes_size('t'), pg_relation_size('t') = pg_table_size('t')"))
	require.Equal(t, "t|t|t", s.row("SELECT pg_indexes_size('v') = pg_total_relation_size('v_a'), pg_indexes_size('w') = 0, pg_indexes_size('t_a') = 0"))
	require.Equal(t, "t", s.row("SELECT pg_database_size(current_database()) >= pg_total_relation_size('t') + pg_total_relation_size('v')"))
	require.Equal(t, "t", s.row("SELECT relpages > 10 FROM pg_class WHERE relname = 't_a'"))
	d.crash()
	require.Equal(t, "t", d.connect().row("SELECT pg_relation_size('t_a') > 100000"))
}
