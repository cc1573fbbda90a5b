package server_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// Who may make, change and drop sinks, and what they may read.
func TestPrivilegesOfSinks(t *testing.T) {
	d := open(t)
	s := d.connect()
	s.must("CREATE ROLE ann", "CREATE ROLE bob", "CREATE TABLE t (k int PRIMARY KEY, v int)", "CREATE MATERIALIZED VIEW m AS SELECT v, count(*) AS n FROM t GROUP BY v", "GRANT CREATE ON SCHEMA public TO ann")
	with := func(path string) string {
		return " WITH (connector = 'file', path = '" + path + "') FORMAT UPSERT ENCODE JSON"
	}
	out := t.TempDir()
	create := "CREATE SINK k FROM m" + with(out)
	as := func(role string) { s.must("RESET ROLE", "SET ROLE "+role) }

	as("ann")
	s.fails(create, "42501", "must be superuser or have privileges of the pg_write_server_files role to write files of the server")
	s.must("RESET ROLE", "GRANT pg_write_server_files TO ann", "GRANT pg_write_server_files TO bob")
	as("ann")
	s.fails(create, "42501", "permission denied for materialized view m")
	s.fails("CREATE SINK k AS SELECT v FROM t"+with(out), "42501", "permission denied for table t")
	s.fails("EXPLAIN "+create, "42501", "permission denied for materialized view m")
	s.must("RESET ROLE", "GRANT SELECT (v) ON t TO ann", "GRANT SELECT ON m TO ann, bob")
	as("ann")
	s.fails("CREATE SINK k FROM t"+with(out), "42501", "permission denied for table t")
	s.must(create, "CREATE SINK kv AS SELECT v FROM t WITH (connector = 'file', path = '"+out+"/kv', force_append_only = 'true') FORMAT PLAIN ENCODE JSON")
	as("bob")
	s.fails("CREATE SINK b FROM m"+with(out+"/b"), "42501", "permission denied for schema public")
	s.fails("DROP SINK k", "42501", "must be owner of sink k")
	s.fails("ALTER SINK k SET (path = '"+out+"/b')", "42501", "must be owner of sink k")
	s.fails("ALTER SINK k RENAME TO kk", "42501", "must be owner of sink k")
	s.fails("ALTER SINK k OWNER TO bob", "42501", "must be owner of sink k")
	s.fails("COMMENT ON SINK k IS 'mine'", "42501", "must be owner of sink k")
	s.fails("PAUSE k", "42501", "must be owner of sink k")
	s.fails("EXPLAIN SINK k", "42501", "must be owner of sink k")

	s.must("RESET ROLE")
	s.fails("GRANT SELECT ON k TO bob", "42809", `"k" is a sink`)
	s.must("GRANT SELECT ON ALL TABLES IN SCHEMA public TO bob")
	// What a role may not do any more it may not do by changing what it has.
	s.must("RESET ROLE", "REVOKE pg_write_server_files FROM ann")
	as("ann")
	s.fails("ALTER SINK k SET (path = '"+out+"/elsewhere')", "42501", "must be superuser or have privileges of the pg_write_server_files role to write files of the server")
	s.fails("ALTER SINK k SET (execution.checkpointing.interval = '1s', path = '"+out+"/elsewhere')", "42501", "")
	require.NoDirExists(t, filepath.Join(out, "elsewhere"))
	s.must("ALTER SINK k SET (execution.checkpointing.interval = '1s')", "COMMENT ON SINK k IS 'mine'", "PAUSE k", "RESUME k", "EXPLAIN SINK k")

	// Owners.
	s.must("RESET ROLE")
	require.Contains(t, s.fails("DROP ROLE ann", "2BP01", `role "ann" cannot be dropped because some objects depend on it`).Detail, "owner of sink k\n")
	s.must("REASSIGN OWNED BY ann TO bob")
	as("bob")
	s.must("ALTER SINK k RENAME TO kk", "DROP SINK kk")
	s.must("RESET ROLE", "ALTER SINK kv OWNER TO ann", "REVOKE ALL ON SCHEMA public FROM ann")
	s.must("DROP OWNED BY ann", "DROP ROLE ann")
	require.Empty(t, s.rows("SHOW SINKS"))
}

// EXPLAIN shows the job that CREATE SINK would make, with what CREATE SINK refuses refused, and does nothing outside.
func TestExplainCreateSink(t *testing.T) {
	s := open(t).connect()
	s.must("CREATE TABLE t (k int PRIMARY KEY, v int)", "CREATE MATERIALIZED VIEW m AS SELECT v, count(*) AS n FROM t GROUP BY v")
	out := filepath.Join(t.TempDir(), "out")
	with := " WITH (connector = 'file', path = '" + out + "') FORMAT UPSERT ENCODE JSON"
	for _, q := range []string{"CREATE SINK k FROM m", "CREATE SINK k AS SELECT v, count(*) AS n FROM t GROUP BY v"} {
		would := s.rows("EXPLAIN " + q + with)
		require.Contains(t, strings.Join(would, "\n"), "Sink k")
		require.Contains(t, s.row("EXPLAIN (FORMAT JSON, VERBOSE) "+q+with), `"Sink k"`)
		require.NoDirExists(t, out, "the target is not touched")
		s.must(q + with)
		require.Equal(t, would, s.rows("EXPLAIN SINK k"), "it is the job that runs")
		require.Contains(t, strings.Join(s.rows("EXPLAIN ANALYZE SINK k"), "\n"), "Sink k")
		s.must("DROP SINK k")
		require.NoError(t, os.RemoveAll(out))
	}
	s.fails("EXPLAIN ANALYZE CREATE SINK k FROM m"+with, "0A000", "EXPLAIN ANALYZE of CREATE SINK is not supported")
	s.fails("EXPLAIN CREATE SINK k FROM nobody"+with, "42P01", `relation "nobody" does not exist`)
	s.fails("EXPLAIN CREATE SINK k FROM m WITH (connector = 'file', path = '"+out+"') FORMAT PLAIN ENCODE JSON", "0A000", "an append-only sink cannot take rows that change")
	s.fails("EXPLAIN CREATE SINK k FROM m WITH (connector = 'nope')", "42704", `connector "nope" does not exist`)
	s.fails("EXPLAIN SINK m", "42809", `"m" is not a sink`)
	s.fails("EXPLAIN MATERIALIZED VIEW nobody", "42P01", "")
}
