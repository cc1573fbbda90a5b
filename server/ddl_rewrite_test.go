package server_test

import (
	"fmt"
	"strings"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/streamdb/streamdb/internal/failpoint"
)

// A table whose rows are replaced is, after a crash at any point, the old one or the new one, with its indexes and with the views over it.
func TestRewriteAndCrash(t *testing.T) {
	const ddl = "ALTER TABLE t ALTER v TYPE int USING v::int * 10, ADD s serial, ADD g int GENERATED ALWAYS AS (k * 2) STORED"
	for _, point := range []string{"", "schema/pending", "schema/logged"} {
		for _, checkpoint := range []string{"", "before", "after"} {
			name := fmt.Sprintf("%s, checkpoint %s", point, checkpoint)
			d := open(t)
			s := d.connect()
			s.must("CREATE TABLE t (k int PRIMARY KEY, v text UNIQUE, n int)", "CREATE INDEX ON t (n)", "INSERT INTO t SELECT i, i::text, i % 10 FROM generate_series(1, 1000) AS i",
				"CREATE MATERIALIZED VIEW m AS SELECT n, count(*) AS c, sum(k) AS s FROM t GROUP BY n")
			if checkpoint == "before" {
				s.must("CHECKPOINT")
			}
			s.must("UPDATE t SET n = 11 WHERE k <= 100", "DELETE FROM t WHERE k > 990")
			if point != "" {
				points, err := failpoint.Parse(point + "=error(crash)")
				require.NoError(t, err)
				d.cfg.Failpoints = points
				d.crash()
				s = d.connect()
				s.must("INSERT INTO t VALUES (2000, '2000', 1)", "DELETE FROM t WHERE k = 2000")
				require.NotEmpty(t, s.code(ddl), name)
			} else {
				s.must("BEGIN", "UPDATE t SET n = 12 WHERE k = 500", ddl, "INSERT INTO t (k, v, n) VALUES (3000, 7, 13)", "COMMIT", "UPDATE t SET n = 14 WHERE k = 501")
			}
			if checkpoint == "after" {
				s.must("CHECKPOINT")
			}
			d.cfg.Failpoints = nil
			d.crash()
			s = d.connect()
			changed := point != "schema/pending"
			if changed {
				require.Equal(t, "990|990", s.row("SELECT count(DISTINCT s), count(*) FROM t WHERE k <= 1000 AND v = k * 10 AND g = k * 2"), name)
				require.Equal(t, "42", s.row("SELECT k FROM t WHERE v = 420"), name)
				require.Equal(t, "23505", s.code("INSERT INTO t (k, v) VALUES (5000, 420)"), name)
			} else {
				require.Equal(t, "990", s.row("SELECT count(*) FROM t WHERE v = k::text"), name)
				require.Equal(t, "42", s.row("SELECT k FROM t WHERE v = '42'"), name)
				require.Equal(t, "23505", s.code("INSERT INTO t (k, v) VALUES (5000, '42')"), name)
			}
			require.Equal(t, "23505", s.code("INSERT INTO t (k) VALUES (42)"), name)
			s.must("FLUSH")
			require.Equal(t, s.rows("SELECT n, count(*) AS c, sum(k) AS s FROM t GROUP BY n ORDER BY n"), s.rows("SELECT * FROM m ORDER BY n"), name)
			require.Equal(t, "100", s.row("SELECT count(*) FROM t WHERE n = 11"), name)
			// And once more, from what is there now.
			s.must("INSERT INTO t (k, n) VALUES (6000, 11)", "CHECKPOINT", "UPDATE t SET n = 11 WHERE k = 200")
			d.crash()
			s = d.connect()
			s.must("FLUSH")
			require.Equal(t, "102", s.row("SELECT count(*) FROM t WHERE n = 11"), name)
			require.Equal(t, s.rows("SELECT n, count(*) AS c, sum(k) AS s FROM t GROUP BY n ORDER BY n"), s.rows("SELECT * FROM m ORDER BY n"), name)
		}
	}
}

func TestPrimaryKeyDroppedAndCrash(t *testing.T) {
	for _, checkpoint := range []string{"", "before", "after"} {
		d := open(t)
		s := d.connect()
		s.must("CREATE TABLE t (k bigint PRIMARY KEY, n int)", "CREATE INDEX ON t (n)", "INSERT INTO t SELECT i, i % 10 FROM generate_series(1, 100) AS i")
		if checkpoint == "before" {
			s.must("CHECKPOINT")
		}
		s.must("UPDATE t SET n = 11 WHERE k <= 5", "ALTER TABLE t DROP CONSTRAINT t_pkey", "CREATE MATERIALIZED VIEW m AS SELECT n, count(*) AS c FROM t GROUP BY n", "INSERT INTO t VALUES (1, 11)")
		if checkpoint == "after" {
			s.must("CHECKPOINT")
		}
		for range 2 {
			d.crash()
			s = d.connect()
			s.must("FLUSH")
			require.Equal(t, []string{"1|11", "1|11", "2|11", "3|11", "4|11", "5|11"}, s.rows("SELECT * FROM t WHERE n = 11 ORDER BY k"))
			require.Equal(t, "6", s.row("SELECT c FROM m WHERE n = 11"))
			s.must("INSERT INTO t VALUES (200, 12)", "DELETE FROM t WHERE k = 200")
			require.Equal(t, "101", s.row("SELECT count(*) FROM t"))
		}
		s.must("DELETE FROM t WHERE k = 1", "ALTER TABLE t ADD PRIMARY KEY (k)", "ALTER TABLE t DROP COLUMN k")
		require.Equal(t, "99", s.row("SELECT count(*) FROM t"))
	}
}

// Others read and write while the type of a column goes back and forth: outside of blocks nobody sees a failure, nor a row of the other form.
func TestRewriteUnderLoad(t *testing.T) {
	d := open(t)
	a := d.connect()
	a.must("CREATE TABLE t (k int PRIMARY KEY, v int, n int)", "CREATE INDEX ON t (v)", "INSERT INTO t SELECT i, i, 0 FROM generate_series(1, 300) AS i",
		"CREATE MATERIALIZED VIEW m AS SELECT count(*) AS c, sum(n) AS s FROM t")
	stop := make(chan struct{})
	var wg sync.WaitGroup
	loop := func(f func(i int)) {
		wg.Go(func() {
			for i := 0; ; i++ {
				select {
				case <-stop:
					return
				default:
					f(i)
				}
			}
		})
	}
	reader, point, writer, with, block := d.connect(), d.connect(), d.connect(), d.connect(), d.connect()
	loop(func(int) {
		if got := reader.row("SELECT count(*) FROM t WHERE v::text = k::text AND v IS NOT NULL"); got != "300" {
			t.Errorf("rows of another form: %s", got)
		}
	})
	loop(func(i int) {
		if got := point.row(fmt.Sprintf("SELECT v FROM t WHERE k = %d", i%300+1)); got != fmt.Sprint(i%300+1) {
			t.Errorf("row %d: %s", i%300+1, got)
		}
	})
	writes := 0
	loop(func(i int) {
		writer.must(fmt.Sprintf("UPDATE t SET n = n + 1 WHERE k = %d", i%300+1))
		writes++
	})
	withs := 0
	loop(func(i int) {
		with.must(fmt.Sprintf("WITH x AS (UPDATE t SET n = n + 1 WHERE k = %d RETURNING k) SELECT * FROM x", i%300+1))
		withs++
	})
	loop(func(i int) {
		block.must("BEGIN")
		code := block.code(fmt.Sprintf("SELECT count(*) FROM t; UPDATE t SET v = v WHERE k = %d", i%300+1))
		if code == "" {
			code = block.code("COMMIT")
		}
		if code != "" && code != "40001" {
			t.Errorf("block: %s", code)
		}
		block.must("ROLLBACK")
	})
	for range 15 {
		a.must("ALTER TABLE t ALTER v TYPE text", "BEGIN", "ALTER TABLE t ALTER v TYPE int USING v::int", "ALTER TABLE t ADD COLUMN x serial", "COMMIT", "ALTER TABLE t DROP COLUMN x")
	}
	close(stop)
	wg.Wait()
	a.must("FLUSH")
	require.Equal(t, fmt.Sprintf("300|%d", writes+withs), a.row("SELECT * FROM m"))
	require.Equal(t, fmt.Sprintf("300|%d", writes+withs), a.row("SELECT count(*), sum(n) FROM t"))
	require.Equal(t, "7", a.row("SELECT k FROM t WHERE v = 7"))
}

// A block that began before sees the rows as they were, or is told that it cannot.
func TestBlocksOlderThanARewrite(t *testing.T) {
	d := open(t)
	a, b := d.connect(), d.connect()
	a.must("CREATE TABLE t (k int PRIMARY KEY, v int)", "CREATE TABLE u (k int)", "INSERT INTO t VALUES (1, 1)")
	b.must("BEGIN", "TABLE u", "DECLARE c CURSOR FOR SELECT * FROM t", "UPDATE t SET v = 2 WHERE k = 1")
	done := make(chan string)
	go func() { done <- a.code("ALTER TABLE t ALTER v TYPE text USING 'x' || v") }()
	require.Empty(t, <-done) // nobody waits for who has not committed
	require.Equal(t, "1|1", b.row("FETCH c"))
	b.fails("TABLE t", "40001", "could not serialize access due to a concurrent change of table \"t\"")
	b.must("ROLLBACK", "BEGIN", "TABLE u")
	a.must("INSERT INTO t VALUES (2, 'y')")
	require.Equal(t, "1|x1", b.row("TABLE t"))
	b.must("UPDATE t SET v = 'z' WHERE k = 1")
	a.must("ALTER TABLE t ADD c int DEFAULT random() * 0")
	require.Equal(t, "40001", b.code("COMMIT"))
	b.must("ROLLBACK")
	require.Equal(t, []string{"1|x1|0", "2|y|0"}, a.rows("SELECT * FROM t ORDER BY k"))
}

func TestRewriteOfATableTooLarge(t *testing.T) {
	d := open(t)
	s := d.connect()
	s.must("CREATE TABLE t (k int PRIMARY KEY, v text)", "ALTER SYSTEM SET max_transaction_memory = 1")
	for i := range 8 {
		s.must(fmt.Sprintf("INSERT INTO t SELECT i, '%s' FROM generate_series(%d, %d) AS i", strings.Repeat("x", 200), i*1000+1, i*1000+1000))
	}
	e := s.fails("ALTER TABLE t ADD r float8 DEFAULT random()", "54000", "table \"t\" is too large to replace all its rows: they exceed the limit of 1MB for a transaction")
	require.Contains(t, e.Hint, "max_transaction_memory")
	require.Equal(t, "8000", s.row("SELECT count(*) FROM t"))
	s.must("ALTER SYSTEM SET max_transaction_memory = 20", "ALTER TABLE t ADD r float8 DEFAULT random()")
	require.Equal(t, "8000", s.row("SELECT count(r) FROM t"))
}
