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

// TestOptionsWithBadValues: options of relations report a bad value as PostgreSQL does, whatever their relation and statement.
func TestOptionsWithBadValues(t *testing.T) {
	s := open(t).connect()
	s.must("CREATE TABLE t (id int PRIMARY KEY)", "CREATE MATERIALIZED VIEW m AS SELECT id FROM t")
	for _, c := range []struct{ option, message, detail string }{
		{"on_conflict = maybe", `invalid value for enum option "on_conflict": maybe`, `Valid values are "overwrite", "ignore", and "do_update_if_not_null".`},
		{"on_conflict", `invalid value for enum option "on_conflict": true`, `Valid values are "overwrite", "ignore", and "do_update_if_not_null".`},
		{"append_only = maybe", `invalid value for boolean option "append_only": maybe`, ""},
		{"vacuum_index_cleanup = maybe", `invalid value for enum option "vacuum_index_cleanup": maybe`, `Valid values are "on", "off", and "auto".`},
		{"retention", `invalid value for parameter "retention": "true"`, ""},
	} {
		for _, stmt := range []string{"CREATE TABLE t2 (id int PRIMARY KEY) WITH (%s)", "ALTER TABLE t SET (%s)"} {
			require.Equal(t, c.detail, s.fails(fmt.Sprintf(stmt, c.option), "22023", c.message).Detail, c.option)
		}
	}
	for _, c := range []struct{ option, message, detail string }{
		{"on_error = 'Maybe'", `invalid value for enum option "on_error": Maybe`, `Valid values are "divert" and "raise".`},
		{"parallelism = 1000", `value 1000 out of bounds for option "parallelism"`, `Valid values are between "0" and "128".`},
		{"late_rows = maybe", `invalid value for enum option "late_rows": maybe`, `Valid values are "keep" and "drop".`},
		{"state.backend.type = maybe", `invalid value for enum option "state.backend.type": maybe`, `Valid values are "pebble" and "memory".`},
		{"background = maybe", `invalid value for boolean option "background": maybe`, ""},
	} {
		stmts := []string{"CREATE MATERIALIZED VIEW n WITH (%s) AS SELECT id FROM t", "CREATE OR REPLACE MATERIALIZED VIEW m WITH (%s) AS SELECT id FROM t"}
		if strings.HasPrefix(c.option, "on_error") || strings.HasPrefix(c.option, "parallelism") {
			stmts = append(stmts, "ALTER MATERIALIZED VIEW m SET (%s)")
		}
		for _, stmt := range stmts {
			require.Equal(t, c.detail, s.fails(fmt.Sprintf(stmt, c.option), "22023", c.message).Detail, c.option)
		}
	}
	for _, c := range []struct{ with, message, detail string }{
		{"connector = 'nexmark', nexmark.table.type = 'Bet'", `invalid value for enum option "nexmark.table.type": Bet`, `Valid values are "Person", "Auction", "Bid", and "Event".`},
		{"connector = 'datagen', fields.a.kind = 'odd'", `invalid value for enum option "fields.a.kind": odd`, `Valid values are "sequence" and "random".`},
	} {
		require.Equal(t, c.detail, s.fails("CREATE SOURCE s (a int) WITH ("+c.with+")", "22023", c.message).Detail, c.with)
	}
	s.fails("SET on_error = maybe", "22023", `invalid value for parameter "on_error": "maybe"`)
}

// TestTagsOfInsertsInConflict: the tag counts rows that came in or were changed, those that a table's own on_conflict changes as those of the clause.
func TestTagsOfInsertsInConflict(t *testing.T) {
	s := open(t).connect()
	for i, c := range []struct {
		option, clause string
		tags           [3]string // the first two bring a key twice each
	}{
		{"", "ON CONFLICT DO NOTHING", [3]string{"INSERT 0 2", "INSERT 0 1", "INSERT 0 0"}},
		{"", "ON CONFLICT (id) DO UPDATE SET v = excluded.v WHERE t.v <> excluded.v", [3]string{"", "", "INSERT 0 0"}},
		{"", "ON CONFLICT (id) DO UPDATE SET v = excluded.v", [3]string{"", "", "INSERT 0 2"}},
		{"ON CONFLICT IGNORE", "", [3]string{"INSERT 0 2", "INSERT 0 1", "INSERT 0 0"}},
		{"ON CONFLICT OVERWRITE", "", [3]string{"INSERT 0 3", "INSERT 0 3", "INSERT 0 2"}},
		{"WITH (on_conflict = do_update_if_not_null)", "", [3]string{"INSERT 0 3", "INSERT 0 3", "INSERT 0 2"}},
	} {
		name := fmt.Sprint("t", i)
		s.must("CREATE TABLE " + name + " (id int PRIMARY KEY, v int) " + c.option)
		for k, rows := range []string{"(1, 1), (2, 2), (1, 3)", "(1, 3), (1, 4), (3, 1)", "(1, 4), (2, 2)"} {
			q := "INSERT INTO " + name + " AS t VALUES " + rows + " " + c.clause
			if c.tags[k] == "" {
				s.fails(q, "21000", "ON CONFLICT DO UPDATE command cannot affect row a second time")
				s.must("INSERT INTO " + name + " AS t VALUES (1, 4), (2, 2) ON CONFLICT DO NOTHING")
				continue
			}
			tag, err := s.Exec(s.d.ctx, q)
			require.NoError(t, err, q)
			require.Equal(t, c.tags[k], tag.String(), "%s, %s", c.option, q)
		}
	}
}
