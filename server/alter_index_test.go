package server_test

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// TestAlteredTablesKeepTheirIndexes renames, widens, adds and drops around indexes, with a crash after each step.
func TestAlteredTablesKeepTheirIndexes(t *testing.T) {
	d := open(t)
	s := d.connect()
	s.must("CREATE TABLE t (a int, b varchar(5), c int2 UNIQUE)", "INSERT INTO t SELECT g, 'b' || g, g FROM generate_series(1, 50) g", "CREATE INDEX t_sum ON t ((a + c))",
		"CREATE UNIQUE INDEX t_low ON t (lower(b)) WHERE a > 5", "CHECKPOINT")
	uses := func(q, index string) {
		t.Helper()
		require.Contains(t, strings.Join(s.rows("EXPLAIN "+q), "\n"), "using "+index+" on t", q)
	}
	step := func(statements ...string) {
		t.Helper()
		s.must(statements...)
		d.crash()
		s = d.connect()
	}
	step("ALTER INDEX t_c_key RENAME TO c_unique")
	s.fails("INSERT INTO t VALUES (100, 'x', 7)", "23505", `duplicate key value violates unique constraint "c_unique"`)
	s.must("ALTER TABLE t RENAME CONSTRAINT c_unique TO c_only")
	pe := s.fails("INSERT INTO t VALUES (100, 'x', 7)", "23505", `duplicate key value violates unique constraint "c_only"`)
	require.Equal(t, "c_only", pe.ConstraintName)
	s.must("BEGIN", "ALTER INDEX t_low RENAME TO t_lower", "ROLLBACK")
	s.fails("INSERT INTO t VALUES (100, 'B7', 100)", "23505", `duplicate key value violates unique constraint "t_low"`)
	step("ALTER INDEX t_low RENAME TO t_lower")
	s.fails("INSERT INTO t VALUES (100, 'B7', 100)", "23505", `duplicate key value violates unique constraint "t_lower"`)

	// Types are widened under indexes; those are built anew.
	step("ALTER TABLE t ALTER COLUMN c TYPE int8", "INSERT INTO t VALUES (51, 'b51', 5000000000)")
	require.Equal(t, "51", s.row("SELECT a FROM t WHERE c = 5000000000"))
	require.Equal(t, "51", s.row("SELECT a FROM t WHERE a + c = 5000000051"))
	uses("SELECT a FROM t WHERE a + c = 5000000051", "t_sum")
	uses("SELECT a FROM t WHERE c = 5000000000", "c_only")
	s.fails("INSERT INTO t VALUES (100, 'x', 5000000000)", "23505", `duplicate key value violates unique constraint "c_only"`)
	s.must("BEGIN", "INSERT INTO t VALUES (52, 'b52', 52)", "ALTER TABLE t ALTER COLUMN b TYPE text", "INSERT INTO t VALUES (53, 'longer than five', 53)")
	s.fails("INSERT INTO t VALUES (54, 'LONGER than five', 54)", "23505", `duplicate key value violates unique constraint "t_lower"`)
	s.must("ROLLBACK")
	s.fails("INSERT INTO t VALUES (54, 'longer', 54)", "22001", "")
	step("ALTER TABLE t ALTER COLUMN b TYPE text", "INSERT INTO t VALUES (53, 'longer than five', 53)")
	s.fails("INSERT INTO t VALUES (54, 'LONGER than five', 54)", "23505", `duplicate key value violates unique constraint "t_lower"`)
	require.Equal(t, "53", s.row("SELECT a FROM t WHERE lower(b) = 'longer than five' AND a > 5"))

	// A column that comes later may be indexed; rows from before have its default.
	step("ALTER TABLE t ADD COLUMN d int DEFAULT 9", "CREATE INDEX t_d ON t (d, a)", "INSERT INTO t VALUES (60, 'b60', 60, 1)")
	require.Equal(t, "53|1|60", s.row("SELECT count(*), min(a), max(a) FILTER (WHERE d = 1) FROM t WHERE d IN (1, 9) AND d <= 9 AND a < 61"))
	uses("SELECT * FROM t WHERE d = 9", "t_d")

	// A primary key over rows.
	s.must("INSERT INTO t VALUES (NULL, 'null', 61, 1)")
	s.fails("ALTER TABLE t ADD PRIMARY KEY (a)", "23502", `column "a" of relation "t" contains null values`)
	s.must("UPDATE t SET a = 60 WHERE a IS NULL")
	s.fails("ALTER TABLE t ADD PRIMARY KEY (a)", "23505", `could not create unique index "t_pkey"`)
	step("UPDATE t SET a = 61 WHERE b = 'null'", "ALTER TABLE t ADD PRIMARY KEY (a)")
	s.fails("INSERT INTO t VALUES (NULL, 'x', 70, 1)", "23502", `null value in column "a" of relation "t" violates not-null constraint`)
	s.fails("INSERT INTO t VALUES (61, 'x', 70, 1)", "23505", `duplicate key value violates unique constraint "t_pkey"`)
	s.fails("ALTER TABLE t ALTER COLUMN a DROP NOT NULL", "42P16", `column "a" is in a primary key`)
	s.fails("ALTER TABLE t ADD PRIMARY KEY (c)", "42P16", "")
	s.fails("DROP INDEX t_pkey", "2BP01", "")
	step("ALTER INDEX t_pkey RENAME TO t_key")
	s.fails("INSERT INTO t VALUES (61, 'x', 70, 1)", "23505", `duplicate key value violates unique constraint "t_key"`)
	s.must("INSERT INTO t VALUES (61, 'x', 70, 1) ON CONFLICT ON CONSTRAINT t_key DO UPDATE SET d = 77")
	require.Equal(t, "77", s.row("SELECT d FROM t WHERE a = 61"))
	uses("SELECT * FROM t WHERE a = 61", "t_key")

	// Columns and constraints go, and what they had with them.
	step("ALTER TABLE t DROP COLUMN c")
	require.Equal(t, []string{"t_d", "t_key", "t_lower"}, s.rows("SELECT indexname FROM pg_indexes WHERE tablename = 't' ORDER BY 1"))
	step("ALTER TABLE t DROP CONSTRAINT t_key")
	s.must("INSERT INTO t VALUES (61, 'x', 1)", "ALTER TABLE t ALTER COLUMN a DROP NOT NULL")
	step("BEGIN", "ALTER TABLE t DROP COLUMN a", "ROLLBACK")
	require.Equal(t, []string{"t_d", "t_lower"}, s.rows("SELECT indexname FROM pg_indexes WHERE tablename = 't' ORDER BY 1"))
	require.Equal(t, "2", s.row("SELECT count(*) FROM t WHERE a = 61 AND d IN (1, 77)"))
	s.must("CREATE TABLE p (id int PRIMARY KEY)", "INSERT INTO p VALUES (1)", "ALTER INDEX p_pkey RENAME TO p_id")
	s.fails("INSERT INTO p VALUES (1)", "23505", `duplicate key value violates unique constraint "p_id"`)
	step("ALTER TABLE p ADD CONSTRAINT p_u UNIQUE (id)", "ALTER TABLE p DROP CONSTRAINT p_u")
	s.fails("INSERT INTO p VALUES (1)", "23505", `duplicate key value violates unique constraint "p_id"`)
}
