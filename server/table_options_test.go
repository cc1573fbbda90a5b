package server_test

import (
	"fmt"
	"strings"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestUpsertTablesTakeCopyAndManyWriters(t *testing.T) {
	d := open(t)
	s := d.connect()
	s.must("CREATE TABLE t (id int PRIMARY KEY, v int, w int DEFAULT 0) WITH (on_conflict = 'do_update_if_not_null')",
		"CREATE MATERIALIZED VIEW m AS SELECT count(*) AS n, sum(v) AS v, sum(w) AS w FROM t")
	copyIn := func(data string) string {
		tag, err := s.PgConn().CopyFrom(d.ctx, strings.NewReader(data), "COPY t (id, v) FROM STDIN")
		require.NoError(t, err)
		return tag.String()
	}
	require.Equal(t, "COPY 4", copyIn("1\t1\n2\t2\n1\t\\N\n1\t5\n"))
	require.Equal(t, []string{"1|5|0", "2|2|0"}, s.rows("SELECT * FROM t ORDER BY id"))
	s.must("UPDATE t SET w = 7 WHERE id = 1")
	require.Equal(t, "COPY 2", copyIn("1\t\\N\n3\t3\n"))
	require.Equal(t, []string{"1|5|0", "2|2|0", "3|3|0"}, s.rows("SELECT * FROM t ORDER BY id"))

	var wait sync.WaitGroup
	errs := make(chan error, 8)
	for i := range cap(errs) {
		w := d.connect()
		wait.Add(1)
		go func() {
			defer wait.Done()
			for k := range 40 {
				if _, err := w.Exec(d.ctx, fmt.Sprintf("INSERT INTO t VALUES (%d, %d, NULL), (%d, NULL, %d)", k, i, k, i)); err != nil {
					errs <- err
					return
				}
			}
		}()
	}
	wait.Wait()
	require.Empty(t, errs)
	require.Equal(t, "40", s.row("SELECT count(*) FROM t WHERE v = w"))
	s.must("FLUSH")
	require.Equal(t, s.row("SELECT count(*), sum(v), sum(w) FROM t"), s.row("TABLE m"))

	// Two blocks that write the same row are in conflict, as with any other write.
	a, b := d.connect(), d.connect()
	a.must("BEGIN", "INSERT INTO t VALUES (1, 100)")
	b.must("BEGIN", "INSERT INTO t VALUES (1, 200), (1, 201)", "COMMIT")
	a.fails("COMMIT", "40001", "")
	require.Equal(t, "201", s.row("SELECT v FROM t WHERE id = 1"))

	s.must("CREATE TABLE o (id int PRIMARY KEY, v int) ON CONFLICT OVERWRITE")
	tag, err := s.PgConn().CopyFrom(d.ctx, strings.NewReader(strings.Repeat("1\t1\n2\t2\n1\t3\n", 20000)), "COPY o FROM STDIN")
	require.NoError(t, err)
	require.Equal(t, "COPY 60000", tag.String())
	require.Equal(t, []string{"1|3", "2|2"}, s.rows("SELECT * FROM o ORDER BY id"))
	d.crash()
	s = d.connect()
	require.Equal(t, []string{"1|3", "2|2"}, s.rows("SELECT * FROM o ORDER BY id"))
	s.must("INSERT INTO o VALUES (2, 22)")
	require.Equal(t, []string{"1|3", "2|22"}, s.rows("SELECT * FROM o ORDER BY id"))
}

func TestAppendOnlyIsKept(t *testing.T) {
	d := open(t)
	s, other := d.connect(), d.connect()
	s.must("CREATE TABLE t (id int PRIMARY KEY, v int)", "INSERT INTO t VALUES (1, 1), (2, 2)")
	other.must("BEGIN", "UPDATE t SET v = 9 WHERE id = 1")
	s.must("ALTER TABLE t SET (append_only = true)", "CREATE MATERIALIZED VIEW m AS SELECT max(v) AS v FROM t")
	other.fails("COMMIT", "40001", "")
	require.Contains(t, strings.Join(s.rows("EXPLAIN CREATE MATERIALIZED VIEW x AS SELECT max(v) FROM t"), "\n"), "State: one entry") // not all values
	require.Contains(t, s.fails("ALTER TABLE t SET (on_conflic = 'ignore')", "22023", `unrecognized parameter "on_conflic"`).Hint, "on_conflict")
	e := s.fails("UPDATE t SET v = 1", "55000", `cannot update append-only table "t"`)
	require.Contains(t, e.Hint, "RESET (append_only)")
	e = s.fails("ALTER TABLE t RESET (append_only)", "2BP01", `table "t" must stay append-only because other objects depend on it`)
	require.Contains(t, e.Detail, "materialized view m")
	require.Equal(t, "2BP01", s.code("ALTER TABLE t SET (append_only = false)"))
	s.must("DROP MATERIALIZED VIEW m", "DECLARE c CURSOR WITH HOLD FOR SUBSCRIBE (SELECT max(v) FROM t)", "FETCH ALL FROM c", "ALTER TABLE t RESET (append_only)", "UPDATE t SET v = 0 WHERE id = 2")
	s.fails("FETCH ALL FROM c WITH (timeout = '10s')", "55000", `the definition of "t" was changed`)
	s.must("BEGIN", "DELETE FROM t WHERE id = 2")
	s.fails("ALTER TABLE t SET (append_only)", "55006", "")
	s.must("ROLLBACK")
	d.crash()
	s = d.connect()
	s.must("DELETE FROM t WHERE id = 2", "ALTER TABLE t SET (append_only)")
	d.crash()
	d.connect().fails("DELETE FROM t", "55000", `cannot delete from append-only table "t"`)
}

// A subscription to a query sees no change of a table that its plan is not for: it ends before.
func TestSubscriptionsToQueriesEndWhenATableIsAltered(t *testing.T) {
	d := open(t)
	s := d.connect()
	for _, c := range []struct{ name, query, alter, write string }{
		{"grown", "SELECT max(v) FROM grown", "ALTER TABLE grown RESET (append_only)", "DELETE FROM grown WHERE id = 2"},
		{"joined", "SELECT a.v FROM joined a JOIN joined b USING (id)", "ALTER TABLE joined SET (append_only = false)", "UPDATE joined SET v = 3"},
		{"typed", "SELECT id, v + 1 AS v FROM typed", "ALTER TABLE typed ALTER v TYPE text", "INSERT INTO typed VALUES (3, 'x')"},
		{"keyed", "SELECT id, v FROM keyed WHERE v > 0", "ALTER TABLE keyed DROP CONSTRAINT keyed_pkey", "INSERT INTO keyed VALUES (2, 3)"},
	} {
		for _, block := range []bool{false, true} {
			s.must("CREATE TABLE "+c.name+" (id int PRIMARY KEY, v int) APPEND ONLY", "INSERT INTO "+c.name+" VALUES (1, 1), (2, 2)",
				"DECLARE c CURSOR WITH HOLD FOR SUBSCRIBE ("+c.query+")", "FETCH ALL FROM c")
			if block {
				s.must("BEGIN")
			}
			s.must(c.alter, c.write)
			if block {
				s.must("COMMIT")
			}
			s.fails("FETCH ALL FROM c WITH (timeout = '10s')", "55000", `the definition of "`+c.name+`" was changed`)
			s.must("CLOSE c", "DROP TABLE "+c.name)
		}
	}
}

func TestExplainShowsWhatAnInsertDoesWithConflicts(t *testing.T) {
	d := open(t)
	s := d.connect()
	s.must("CREATE TABLE u (id int PRIMARY KEY, a int UNIQUE)")
	plan := func(q string) []string { return s.rows("EXPLAIN (COSTS off) " + q)[:3] }
	require.Equal(t, []string{"Insert on u", "  Conflict Resolution: NOTHING", "  ->  Values"}, plan("INSERT INTO u VALUES (1, 1) ON CONFLICT DO NOTHING"))
	require.Equal(t, []string{"  Conflict Resolution: UPDATE", "  Conflict Arbiter Indexes: u_a_key", "  Conflict Filter: (u.id < excluded.id)"},
		s.rows("EXPLAIN (COSTS off) INSERT INTO u VALUES (1, 1) ON CONFLICT (a) DO UPDATE SET id = 2 WHERE u.id < excluded.id")[1:4])
	s.must("ALTER TABLE u SET (on_conflict = 'overwrite')")
	require.Equal(t, []string{"Insert on u", "  Conflict Resolution: UPDATE", "  Conflict Arbiter Indexes: u_pkey"}, plan("INSERT INTO u VALUES (1, 1)"))
	require.Contains(t, s.row("EXPLAIN (FORMAT json, COSTS off) INSERT INTO u VALUES (1, 1)"), `"Conflict Arbiter Indexes": ["u_pkey"]`)
}
