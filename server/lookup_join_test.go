package server_test

import (
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// TestLookupJoinsShareARelation: views that join a relation by its key keep none of its rows, and the plan of one that is there does not follow the setting.
func TestLookupJoinsShareARelation(t *testing.T) {
	s := open(t).connect()
	s.must("CREATE TABLE d (k int PRIMARY KEY, name text)", "INSERT INTO d SELECT i, 'n' || i FROM generate_series(1, 1000) i",
		"CREATE TABLE s (id int PRIMARY KEY, k int)", "INSERT INTO s SELECT i, i FROM generate_series(1, 10) i")
	kept := func(view string) int {
		s.must("CHECKPOINT")
		n, err := strconv.Atoi(s.row("SELECT sum(state_rows)::int FROM streamdb.operators o JOIN streamdb.jobs j USING (job_id) WHERE j.name = '" + view + "'"))
		require.NoError(t, err)
		return n
	}
	const query = " AS SELECT s.id, d.name FROM s JOIN d ON s.k = d.k"
	s.must("CREATE MATERIALIZED VIEW copies" + query)
	require.Equal(t, 1000+10+10, kept("copies"))
	s.must("SET lookup_join_rows = 1000", "CREATE MATERIALIZED VIEW one"+query, "CREATE MATERIALIZED VIEW two"+query+" WHERE d.name <> 'n3'")
	require.Equal(t, 10+10, kept("one"), "the rows of s and of the result")
	require.Equal(t, 10+9, kept("two"))
	require.Contains(t, strings.Join(s.rows("EXPLAIN CREATE MATERIALIZED VIEW three"+query), "\n"), "Lookup Join")
	s.must("SET lookup_join_rows = 1001")
	require.NotContains(t, strings.Join(s.rows("EXPLAIN CREATE MATERIALIZED VIEW three"+query), "\n"), "Lookup Join")
	s.must("UPDATE d SET name = 'm' || k WHERE k < 4", "DELETE FROM d WHERE k = 4", "INSERT INTO s VALUES (11, 1000)")
	for _, v := range []string{"copies", "one"} {
		require.Equal(t, "10|m1 m2 m3 n5 n6 n7 n8 n9 n10 n1000", s.row("SELECT count(*), string_agg(name, ' ' ORDER BY id) FROM "+v))
	}
	require.Equal(t, 11+10, kept("one"))
}

// TestLookupJoinByIndex: an index by which a view reads a table stays as long as the view.
func TestLookupJoinByIndex(t *testing.T) {
	s := open(t).connect()
	s.must("CREATE TABLE d (id int PRIMARY KEY, k int, name text)", "CREATE INDEX d_k ON d (k, name)", "CREATE TABLE s (id int PRIMARY KEY, k int)",
		"INSERT INTO d VALUES (1, 1, 'a'), (2, 1, 'b'), (3, 2, 'c')", "INSERT INTO s VALUES (1, 1), (2, 3)", "SET lookup_join_rows = 0")
	const query = "CREATE MATERIALIZED VIEW v AS SELECT s.id, d.name FROM s JOIN d ON s.k = d.k"
	require.Contains(t, strings.Join(s.rows("EXPLAIN "+query), "\n"), "Lookup by Index d_k and Changes of d")
	s.must(query)
	e := s.fails("DROP INDEX d_k", "2BP01", "cannot drop index d_k because other objects depend on it")
	require.Equal(t, "materialized view v depends on index d_k", e.Detail)
	s.must("UPDATE d SET k = 3 WHERE id = 2")
	require.Equal(t, "1a 2b", s.row("SELECT string_agg(id || name, ' ' ORDER BY id) FROM v"))
	// What is renamed is shown by its new name.
	s.must("ALTER INDEX d_k RENAME TO d_key", "ALTER TABLE d RENAME TO dim", "ALTER TABLE s RENAME TO facts")
	lines := strings.Join(s.rows("EXPLAIN MATERIALIZED VIEW v"), "\n")
	require.Contains(t, lines, "Lookup by Index d_key and Changes of dim")
	require.Contains(t, lines, "Keys: facts.k = dim.k")
	require.Contains(t, lines, "Stream Scan on facts")
	// What the view looks up by stays as it is.
	s.fails("ALTER TABLE dim ALTER COLUMN k TYPE bigint", "0A000", "cannot alter type of a column used by a view or rule")
	s.fails("ALTER TABLE dim DROP COLUMN k", "2BP01", "")
	s.must("UPDATE dim SET k = 1 WHERE id = 2", "UPDATE dim SET k = 3 WHERE id = 3", "FLUSH")
	require.Equal(t, "1a 1b 2c", s.row("SELECT string_agg(id || name, ' ' ORDER BY id, name) FROM v"))
	s.must("DROP INDEX d_key CASCADE")
	s.fails("SELECT * FROM v", "42P01", `relation "v" does not exist`)
	s.must("ALTER TABLE dim ADD CONSTRAINT u UNIQUE (k, name)", "CREATE MATERIALIZED VIEW v AS SELECT f.id, d.name FROM facts f JOIN dim d ON f.k = d.k")
	require.Contains(t, strings.Join(s.rows("EXPLAIN MATERIALIZED VIEW v"), "\n"), "Lookup by Index u and Changes of dim d")
	e = s.fails("ALTER TABLE dim DROP CONSTRAINT u", "2BP01", "cannot drop constraint u on table dim because other objects depend on it")
	require.Equal(t, "materialized view v depends on constraint u on table dim", e.Detail)
	require.Equal(t, "Use DROP ... CASCADE to drop the dependent objects too.", e.Hint)
	s.must("ALTER TABLE dim RENAME CONSTRAINT u TO w")
	require.Contains(t, strings.Join(s.rows("EXPLAIN MATERIALIZED VIEW v"), "\n"), "Lookup by Index w and Changes of dim d")
}

// TestLookupJoinCascade: what a view looks up by takes the view with it when it is dropped with CASCADE, whichever statement drops it.
func TestLookupJoinCascade(t *testing.T) {
	for _, x := range []struct{ name, make, drop, on string }{
		{"index", "CREATE INDEX x ON d (k) INCLUDE (extra)", "DROP INDEX x", "index x"},
		{"unique constraint", "ALTER TABLE d ADD CONSTRAINT x UNIQUE (k)", "ALTER TABLE d DROP CONSTRAINT x", "constraint x on table d"},
		{"primary key", "ALTER TABLE d ADD CONSTRAINT x PRIMARY KEY (k)", "ALTER TABLE d DROP CONSTRAINT x", "constraint x on table d"},
		{"included column", "CREATE INDEX x ON d (k) INCLUDE (extra)", "ALTER TABLE d DROP COLUMN extra", "index x"},
		{"later key column", "CREATE INDEX x ON d (k, extra)", "ALTER TABLE d DROP COLUMN extra", "index x"},
		{"type of a key column", "CREATE INDEX x ON d (k, mood)", "DROP TYPE mood", "index x"},
		{"key column", "CREATE INDEX x ON d (k)", "ALTER TABLE d DROP COLUMN k", "column k of table d"},
	} {
		t.Run(x.name, func(t *testing.T) {
			s := open(t).connect()
			s.must("CREATE TYPE mood AS ENUM ('sad', 'ok')", "CREATE TABLE d (k int, name text, extra int, mood mood)", x.make, "CREATE TABLE s (id int PRIMARY KEY, k int)",
				"INSERT INTO d VALUES (1, 'a', 1, 'ok'), (2, 'b', 1, 'sad')", "INSERT INTO s VALUES (1, 1), (2, 3)", "SET lookup_join_rows = 0",
				"CREATE MATERIALIZED VIEW v AS SELECT s.id, d.name FROM s JOIN d ON s.k = d.k")
			require.Contains(t, strings.Join(s.rows("EXPLAIN MATERIALIZED VIEW v"), "\n"), "Lookup by Index x")
			e := s.fails(x.drop, "2BP01", "")
			require.Contains(t, e.Detail, "materialized view v depends on "+x.on)
			s.must(x.drop + " CASCADE")
			s.fails("SELECT * FROM v", "42P01", `relation "v" does not exist`)
			s.must("INSERT INTO s VALUES (3, 2)", "FLUSH")
			require.Equal(t, "2", s.row("SELECT count(*) FROM d"))
		})
	}
}
