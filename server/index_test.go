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

	"github.com/streamdb/streamdb/internal/failpoint"
	"github.com/streamdb/streamdb/server"
)

func TestUniqueIndexesSurviveCrashes(t *testing.T) {
	bucket := t.TempDir()
	d := open(t, func(c *server.Config) { c.CheckpointDir = "file://" + bucket })
	held := func(rows string) {
		t.Helper()
		s := d.connect()
		require.Equal(t, rows, s.row("SELECT count(*), count(DISTINCT a) FROM t"))
		pe := s.fails("INSERT INTO t VALUES (1000, 3, 'x')", "23505", `duplicate key value violates unique constraint "t_a_key"`)
		require.Equal(t, "Key (a)=(3) already exists.", pe.Detail)
		require.Equal(t, []string{"public", "t", "t_a_key"}, []string{pe.SchemaName, pe.TableName, pe.ConstraintName})
		s.fails("INSERT INTO t VALUES (1000, 1000, 'B3')", "23505", `duplicate key value violates unique constraint "t_lower_idx"`)
	}
	d.connect().must("CREATE TABLE t (id int PRIMARY KEY, a int UNIQUE, b text)", "INSERT INTO t SELECT g, g, 'b' || g FROM generate_series(1, 5) g", "CHECKPOINT",
		// Over the state of the checkpoint there are rows that are equal; the index came after they were not.
		"INSERT INTO t VALUES (6, NULL, 'b1')", "CHECKPOINT", "UPDATE t SET b = 'b6' WHERE id = 6", "CREATE UNIQUE INDEX ON t (lower(b))")
	held("6|5")
	d.crash()
	held("6|5")
	d.connect().must("CHECKPOINT", "UPDATE t SET a = a + 100 WHERE id = 2", "INSERT INTO t VALUES (7, 2, 'b7')")
	d.crash()
	held("7|6")
	d.connect().must("CHECKPOINT")
	d.connect().fails("INSERT INTO t VALUES (1000, 102, 'x')", "23505", "")
	d.crash()
	held("7|6")
	d.connect().must("CHECKPOINT", "DELETE FROM t WHERE id = 7", "CHECKPOINT")
	require.NoError(t, d.srv.Abort())
	d.cfg.DataDir = t.TempDir()
	d.start()
	held("6|5")
	d.connect().must("INSERT INTO t VALUES (7, 2, 'b7')", "DROP INDEX t_lower_idx", "INSERT INTO t VALUES (8, 8, 'b7')")
	d.crash()
	d.connect().must("INSERT INTO t VALUES (9, 9, 'b7')")
	d.connect().fails("CREATE UNIQUE INDEX x ON t (b)", "23505", `could not create unique index "x"`)
	d.connect().must("DELETE FROM t WHERE id > 7", "CREATE UNIQUE INDEX x ON t (b)")
	d.connect().fails("INSERT INTO t VALUES (9, 9, 'b7')", "23505", "")
}

// TestUnfinishedIndexDoesNotOutliveACrash opens a copy of the data directory as it is while an index is filled: what kill -9 would leave.
func TestUnfinishedIndexDoesNotOutliveACrash(t *testing.T) {
	fp, err := failpoint.Parse("exec/fill-index=delay(1s)")
	require.NoError(t, err)
	d := open(t, func(c *server.Config) { c.Failpoints = fp })
	s := d.connect()
	s.must("CREATE TABLE t (id int PRIMARY KEY, a int)", "INSERT INTO t SELECT g, g FROM generate_series(1, 5000) g", "CHECKPOINT")
	ctx, cancel := context.WithCancel(d.ctx)
	done := make(chan error, 1)
	maker := d.connect()
	go func() {
		_, err := maker.Exec(ctx, "CREATE UNIQUE INDEX x ON t (a)")
		done <- err
	}()
	require.Eventually(t, func() bool {
		return s.row("SELECT count(*) FROM pg_index WHERE indrelid = 't'::regclass AND NOT indisvalid") == "1"
	}, 10*time.Second, 5*time.Millisecond)
	// The table goes on while it is filled.
	s.must("INSERT INTO t VALUES (6000, 6000)", "UPDATE t SET a = -1 WHERE id = 1", "UPDATE t SET a = 7777 WHERE id = 7")
	copied := filepath.Join(t.TempDir(), "copy")
	require.NoError(t, os.CopyFS(copied, os.DirFS(d.cfg.DataDir)))
	cancel()
	require.Error(t, <-done)
	require.Eventually(t, func() bool { return s.row("SELECT count(*) FROM pg_class WHERE relname = 'x'") == "0" }, 10*time.Second, 5*time.Millisecond,
		"a cancelled creation leaves nothing")
	require.NoError(t, d.srv.Abort())
	d.cfg.DataDir, d.cfg.Failpoints = copied, nil
	d.start()
	s = d.connect()
	require.Equal(t, "0", s.row("SELECT count(*) FROM pg_class WHERE relname = 'x'"))
	require.Equal(t, "5001", s.row("SELECT count(*) FROM t"))
	s.must("CREATE UNIQUE INDEX x ON t (a)")
	s.fails("INSERT INTO t VALUES (7000, 7777)", "23505", "")
	s.must("INSERT INTO t VALUES (7000, 1)", "INSERT INTO t VALUES (7001, 7)")
	d.crash()
	d.connect().fails("INSERT INTO t VALUES (7002, 7)", "23505", "")
}

// TestIndexScansEqualTableScans changes a table at random, in and out of transactions and across crashes, and asks the same questions with and
// without its indexes.
func TestIndexScansEqualTableScans(t *testing.T) {
	d := open(t)
	rnd := rand.New(rand.NewPCG(7, 11))
	s := d.connect()
	s.must("CREATE TABLE t (id int PRIMARY KEY, a int, b text, c int8 UNIQUE, d numeric(8, 2))", "CREATE INDEX ON t (a)", "CREATE INDEX ON t (b, a DESC)", "CREATE INDEX ON t (a DESC NULLS LAST, id)",
		"CREATE INDEX ON t (lower(b)) WHERE a > 5", "CREATE INDEX ON t ((a + id))", "CREATE INDEX ON t (d NULLS FIRST)")
	conds := []string{
		"a = 3", "a IN (1, 4, 7)", "a = ANY('{2,5,5}'::int[])", "a BETWEEN 3 AND 6", "a > 7", "a >= 7 AND a < 9", "a < 2", "b = 'k3' AND a = 4", "b = 'k3' AND a > 4", "b LIKE 'k1%'", "b LIKE 'k_1'",
		"lower(b) = 'k2' AND a > 5", "a + id = 12", "a + id > 100 AND a + id <= 120", "c = 30", "c > 40 AND c < 60", "id BETWEEN 20 AND 40", "id > 90", "id < 5", "d = 2.5", "d < 1.0", "d > 8", "a IS NULL",
		"a = NULL::int", "b > 'k5' AND b <= 'k7'", "a = 3 AND id > 50", "true",
	}
	orders := []string{"a, id", "a DESC, id DESC", "a DESC NULLS LAST, id", "b, a DESC, id", "id", "id DESC", "a + id, id", "c", "c DESC", "d NULLS FIRST, id", "d DESC NULLS LAST, id DESC", "lower(b), id"}
	check := func(s *session) {
		t.Helper()
		for range 12 {
			q := "SELECT id, a, b, c, d FROM t WHERE " + conds[rnd.IntN(len(conds))]
			if rnd.IntN(2) == 0 {
				q += " AND " + conds[rnd.IntN(len(conds))]
			}
			q += " ORDER BY " + orders[rnd.IntN(len(orders))]
			if rnd.IntN(2) == 0 {
				q += fmt.Sprintf(" LIMIT %d OFFSET %d", rnd.IntN(9), rnd.IntN(4))
			}
			got := s.rows(q)
			s.must("SET streamdb.disabled_rules = 'index_scans, point_reads'")
			want := s.rows(q)
			s.must("RESET streamdb.disabled_rules")
			require.Equal(t, want, got, q)
		}
	}
	null := func(v string) string {
		if rnd.IntN(8) == 0 {
			return "NULL"
		}
		return v
	}
	change := func(s *session) {
		row := fmt.Sprintf("(%d, %s, %s, %s, %s)", rnd.IntN(120), null(fmt.Sprint(rnd.IntN(10))), null(fmt.Sprintf("'k%d'", rnd.IntN(12))), null(fmt.Sprint(rnd.IntN(90))), null(fmt.Sprintf("%d.%d", rnd.IntN(10), rnd.IntN(10))))
		switch rnd.IntN(6) {
		case 0, 1, 2:
			s.must("INSERT INTO t VALUES " + row + " ON CONFLICT DO NOTHING")
		case 3:
			s.must("INSERT INTO t SELECT v.a, v.b::int, v.c, NULL, v.e::numeric FROM (VALUES " + row + ") v(a, b, c, d, e) ON CONFLICT (id) DO UPDATE SET a = excluded.a, b = excluded.b, d = excluded.d")
		case 4:
			s.must(fmt.Sprintf("UPDATE t SET a = a + 1, b = upper(b) WHERE %s", conds[rnd.IntN(len(conds)-1)]))
		default:
			s.must(fmt.Sprintf("DELETE FROM t WHERE id %% 17 = %d", rnd.IntN(17)))
		}
	}
	for round := range 6 {
		for range 40 {
			change(s)
		}
		check(s)
		s.must("BEGIN")
		for range 8 {
			change(s)
		}
		check(s)
		s.must([]string{"COMMIT", "ROLLBACK"}[round%2])
		check(s)
		if round%2 == 1 {
			s.must("CHECKPOINT")
		}
		if round%3 == 2 {
			d.crash()
			s = d.connect()
		}
	}
}

func TestExplainNamesIndexes(t *testing.T) {
	s := open(t).connect()
	s.must("CREATE TABLE t (id int PRIMARY KEY, a int, b text)", "CREATE INDEX t_a ON t (a DESC)", "CREATE INDEX t_l ON t (lower(b)) WHERE a > 5")
	for q, want := range map[string]string{
		"SELECT * FROM t WHERE a = 3":                                 "Index Scan using t_a on t|Index Condition: key 1 = 3",
		"SELECT * FROM t WHERE a IN (3, 4)":                           "Index Scan using t_a on t|Index Condition: key 1 = any of 3, 4",
		"SELECT * FROM t WHERE id > 3 AND id <= 9":                    "Index Scan using t_pkey on t|Index Condition: key 1 > 3 and key 1 <= 9",
		"SELECT * FROM t WHERE lower(b) LIKE 'ab%' AND a > 5":         "Index Scan using t_l on t|Index Condition: key 1 >= 'ab'::text and key 1 < 'ac'::text",
		"SELECT * FROM t ORDER BY id LIMIT 1":                         "Index Scan using t_pkey on t|In order of the index",
		"SELECT * FROM t ORDER BY a LIMIT 1":                          "Index Scan Backward using t_a on t|In order of the index",
		"SELECT * FROM t WHERE a = 1 ORDER BY a, b LIMIT 1":           "Index Scan using t_a on t|Index Condition: key 1 = 1",
		"SELECT * FROM t WHERE lower(b) = 'x'":                        "Scan on t",
		"SELECT * FROM t ORDER BY a NULLS FIRST LIMIT 1":              "Scan on t",
		"UPDATE t SET b = 'x' WHERE a = 3":                            "Index Scan using t_a on t",
		"SELECT * FROM t x JOIN t y USING (a) WHERE a = 3 AND y.id<7": "Index Scan using t_a on t",
	} {
		plan := strings.Join(s.rows("EXPLAIN "+q), "\n")
		for _, w := range strings.Split(want, "|") {
			require.Contains(t, plan, w, q)
		}
		if want == "Scan on t" {
			require.NotContains(t, plan, "Index", q)
		}
	}
}
