package server_test

import (
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// Whoever looks at the rows of a table for a schema change sees all that will be there when it is committed.
func TestRowsStayWhileASchemaChangeLooksAtThem(t *testing.T) {
	d := open(t)
	a, b := d.connect(), d.connect()
	for _, c := range []struct{ ddl, bad, code, undo string }{
		{"ALTER TABLE t ALTER v SET NOT NULL", "(2, NULL)", "23502", "ALTER TABLE t ALTER v DROP NOT NULL"},
		{"ALTER TABLE t ADD CONSTRAINT c CHECK (v > 0)", "(2, -1)", "23514", "ALTER TABLE t DROP CONSTRAINT c"},
		{"ALTER TABLE t ADD CONSTRAINT c CHECK (v > 0) NOT VALID; ALTER TABLE t VALIDATE CONSTRAINT c", "(2, -1)", "23514", "ALTER TABLE t DROP CONSTRAINT c"},
		{"ALTER TABLE t ADD CONSTRAINT c CHECK (v > 0) NOT VALID", "(2, -1)", "23514", "ALTER TABLE t DROP CONSTRAINT c"},
		{"ALTER TABLE t ADD CONSTRAINT c PRIMARY KEY (v)", "(2, NULL)", "23502", "ALTER TABLE t DROP CONSTRAINT c; ALTER TABLE t ALTER v DROP NOT NULL"},
		{"CREATE UNIQUE INDEX i ON t (v); ALTER TABLE t ADD CONSTRAINT c PRIMARY KEY USING INDEX i", "(2, NULL)", "23502", "ALTER TABLE t DROP CONSTRAINT c; ALTER TABLE t ALTER v DROP NOT NULL"},
		{"ALTER TABLE t ADD CONSTRAINT c UNIQUE (v)", "(2, 1)", "23505", "ALTER TABLE t DROP CONSTRAINT c"},
		{"ALTER TABLE t ADD COLUMN w int CONSTRAINT c CHECK (w > v OR v < 7) DEFAULT 5", "(2, 8)", "23514", "ALTER TABLE t DROP COLUMN w"},
	} {
		b.must("DROP TABLE IF EXISTS t", "CREATE TABLE t (k int, v int)", "INSERT INTO t VALUES (1, 1)")
		insert := "INSERT INTO t VALUES " + c.bad
		if c.code != "23505" { // a unique index decides by itself
			a.must("BEGIN", c.ddl)
			b.must("SET lock_timeout = '10ms'")
			b.fails(insert, "55P03", "canceling statement due to lock timeout")
			b.must("RESET lock_timeout")
			b.must("BEGIN", insert)
			a.must("COMMIT")
			b.fails("COMMIT", "40001", "could not serialize access due to a concurrent change of table \"t\"")
			require.Equal(t, "1", b.row("SELECT count(*) FROM t"), c.ddl)
			b.must("ROLLBACK")
			a.must(c.undo)
		}
		// Who waits is told what a constraint has against the row, or goes on when nothing came of it.
		for _, end := range []string{"COMMIT", "ROLLBACK", "ROLLBACK TO s"} {
			a.must("BEGIN", "SAVEPOINT s", c.ddl)
			done := make(chan string)
			go func() { done <- b.code(insert) }()
			if c.code != "23505" {
				a.must(end)
				want := ""
				if end == "COMMIT" {
					want = c.code
				}
				require.Equal(t, want, <-done, "%s %s", c.ddl, end)
			} else {
				require.Equal(t, c.code, <-done)
				a.must(end)
			}
			if end == "ROLLBACK TO s" {
				a.must("COMMIT")
			}
			if end == "COMMIT" {
				a.must(c.undo)
			}
			a.must("DELETE FROM t WHERE k = 2")
		}
		// A block sees the rows that came since its snapshot.
		a.must("BEGIN", "TABLE t")
		b.must(insert)
		if end := map[bool]string{true: "", false: c.code}[c.ddl == "ALTER TABLE t ADD CONSTRAINT c CHECK (v > 0) NOT VALID"]; c.code == "23505" {
			require.Equal(t, "23505", a.code(c.ddl))
		} else {
			require.Equal(t, end, a.code(c.ddl), c.ddl)
		}
		a.must("ROLLBACK")
	}
}

// The statements of one message and those with changes in a WITH clause get along with those that wait.
func TestStatementsBesideASchemaChange(t *testing.T) {
	d := open(t)
	a, b, c := d.connect(), d.connect(), d.connect()
	a.must("CREATE TABLE t (k int PRIMARY KEY, v int)", "CREATE TABLE log (k int)", "INSERT INTO t SELECT i, i FROM generate_series(1, 100) AS i")
	var wg sync.WaitGroup
	for range 20 {
		wg.Go(func() { b.must("UPDATE t SET v = v + 1 WHERE k <= 50") })
		wg.Go(func() {
			c.must("WITH x AS (UPDATE t SET v = v + 1 WHERE k > 50 RETURNING k) INSERT INTO log SELECT k FROM x")
		})
		a.must("ALTER TABLE t ADD CONSTRAINT c CHECK (v > 0); UPDATE t SET v = v + 1", "ALTER TABLE t DROP CONSTRAINT c")
		wg.Wait()
	}
	require.Equal(t, "100|9050", a.row("SELECT count(*), sum(v) FROM t"))
	require.Equal(t, "1000", a.row("SELECT count(*) FROM log"))
}

// A statement that nobody prepared has the columns that its table has when it runs.
func TestColumnsChangeBeforeAStatementRuns(t *testing.T) {
	const waiting = "SELECT count(*) FROM pg_locks WHERE NOT granted"
	for name, c := range map[string]struct{ statement, want string }{
		"insert": {"INSERT INTO t (k, v) VALUES (2, 2) RETURNING *", "2|2.0|7"},
		"update": {"UPDATE t SET k = 3 RETURNING *", "3|1.0|7"},
		"delete": {"DELETE FROM t RETURNING *", "1|1.0|7"},
		"with":   {"WITH x AS (UPDATE t SET k = 3 RETURNING *) SELECT * FROM x", "3|1.0|7"},
		"both":   {"WITH x AS (DELETE FROM t RETURNING v) INSERT INTO t (k, v) SELECT 4, v FROM x RETURNING *", "4|1.0|7"},
	} {
		t.Run(name, func(t *testing.T) {
			d := open(t)
			a, b, watch := d.connect(), d.connect(), d.connect()
			a.must("CREATE TABLE t (k int, v int)", "INSERT INTO t VALUES (1, 1)", "BEGIN", "ALTER TABLE t ALTER v TYPE numeric(5,1), ADD COLUMN w int DEFAULT 7, ADD CHECK (v > 0)")
			var got string
			var wg sync.WaitGroup
			wg.Go(func() { got = b.row(c.statement) })
			require.Eventually(t, func() bool { return watch.row(waiting) != "0" }, 10*time.Second, time.Millisecond)
			a.must("COMMIT")
			wg.Wait()
			require.Equal(t, c.want, got)
		})
	}
}

// So many rows that the commit takes them from a file wait too.
func TestManyRowsBesideASchemaChange(t *testing.T) {
	d := open(t)
	a, b := d.connect(), d.connect()
	a.must("CREATE TABLE t (v int, pad text)", "BEGIN", "ALTER TABLE t ADD CHECK (v > 0)")
	b.must("SET lock_timeout = '10ms'")
	const insert = "INSERT INTO t SELECT -i, repeat('x', 1000) FROM generate_series(1, 20000) AS i"
	b.fails(insert, "55P03", "canceling statement due to lock timeout")
	a.must("COMMIT")
	require.Equal(t, "23514", b.code(insert))
	require.Equal(t, "0", a.row("SELECT count(*) FROM t"))
	// And rows that a block replaces stay in memory, however many.
	b.must("INSERT INTO t SELECT i, repeat('x', 1000) FROM generate_series(1, 20000) AS i")
	b.must("ALTER TABLE t ADD s serial; INSERT INTO t SELECT i, repeat('x', 1000) FROM generate_series(20001, 25000) AS i")
	d.crash()
	require.Equal(t, "25000|25000|25000", d.connect().row("SELECT count(*), count(DISTINCT s), count(DISTINCT v) FROM t"))
}

func TestConstraintsUnderConcurrentWrites(t *testing.T) {
	d := open(t)
	a := d.connect()
	a.must("CREATE TABLE t (k int PRIMARY KEY, v int)")
	stop := make(chan struct{})
	var wg sync.WaitGroup
	for w := range 3 {
		s := d.connect()
		wg.Go(func() {
			for i := w; ; i += 3 {
				select {
				case <-stop:
					return
				default:
				}
				switch code := s.code(fmt.Sprintf("INSERT INTO t VALUES (%d, %s)", i, []string{"1", "NULL", "-1"}[i/3%3])); code {
				case "", "23502", "23514":
				default:
					t.Errorf("insert: %s", code)
				}
				if i/3%3 == 2 {
					s.must("DELETE FROM t WHERE v IS NULL OR v < 0")
				}
			}
		})
	}
	held := 0
	for range 40 {
		for _, c := range []struct{ ddl, bad, undo string }{
			{"ALTER TABLE t ALTER v SET NOT NULL", "v IS NULL", "ALTER TABLE t ALTER v DROP NOT NULL"},
			{"ALTER TABLE t ADD CONSTRAINT c CHECK (v > 0)", "v <= 0", "ALTER TABLE t DROP CONSTRAINT c"},
		} {
			block := held%2 == 0
			if block {
				a.must("BEGIN", "SELECT count(*) FROM t")
			}
			code := a.code(c.ddl)
			if block {
				a.must("COMMIT")
			}
			if code == "" {
				held++
				require.Equal(t, "0", a.row("SELECT count(*) FROM t WHERE "+c.bad), c.ddl)
				a.must(c.undo)
			} else {
				require.Contains(t, []string{"23502", "23514"}, code)
			}
		}
	}
	close(stop)
	wg.Wait()
	t.Log("constraints that held:", held)
}
