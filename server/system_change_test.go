package server_test

import (
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"
)

// Nobody changes a relation of the system, whatever the statement.
func TestSystemRelationsStay(t *testing.T) {
	s := open(t).connect()
	const catalogued = `permission denied: "pg_class" is a system catalog`
	for _, q := range []string{
		"ALTER TABLE pg_class ADD COLUMN x int", "ALTER TABLE pg_catalog.pg_class RENAME TO x", "ALTER TABLE IF EXISTS pg_class RENAME COLUMN relname TO x",
		"ALTER TABLE pg_class SET SCHEMA public", "ALTER TABLE pg_class OWNER TO CURRENT_USER", "TRUNCATE pg_class", "CREATE INDEX ON pg_class (relname)",
		"DROP TABLE pg_class", "DROP TABLE IF EXISTS pg_catalog.pg_class", "DROP VIEW pg_class", "COMMENT ON TABLE pg_class IS 'x'", "COMMENT ON COLUMN pg_class.relname IS 'x'",
		"INSERT INTO pg_class DEFAULT VALUES", "UPDATE pg_class SET relname = 'x'", "DELETE FROM pg_class", "COPY pg_class FROM stdin",
		"MERGE INTO pg_class USING (SELECT 1) s ON true WHEN MATCHED THEN DELETE",
	} {
		s.fails(q, "42501", catalogued)
	}
	for q, name := range map[string]string{
		"DROP VIEW information_schema.tables": "tables", "DROP VIEW pg_views": "pg_views", "ALTER VIEW pg_views RENAME TO x": "pg_views", "DROP TABLE streamdb.jobs": "jobs",
		"COMMENT ON VIEW streamdb.jobs IS 'x'": "jobs",
	} {
		s.fails(q, "42501", `permission denied: "`+name+`" is a system catalog`)
	}
	for _, schema := range []string{"pg_catalog", "information_schema"} {
		for _, q := range []string{
			"CREATE TABLE %s.x (a int)", "CREATE VIEW %s.x AS SELECT 1", "CREATE SEQUENCE %s.x", "CREATE TYPE %s.x AS ENUM ('a')", "CREATE MATERIALIZED VIEW %s.x AS SELECT 1",
			"CREATE TABLE %s.x AS SELECT 1 AS a",
		} {
			require.Equal(t, "42501", s.code(fmt.Sprintf(q, schema)), q)
		}
	}
	s.fails("DROP TABLE IF EXISTS nothing, pg_class", "42501", catalogued)
	s.must("DROP TABLE IF EXISTS nothing")
}

// Messages name a view as it is called now.
func TestWarningsAfterRename(t *testing.T) {
	s := open(t).connect()
	s.must("CREATE TABLE t (a int)", "CREATE MATERIALIZED VIEW v AS SELECT 1 / a AS x FROM t", "CREATE MATERIALIZED VIEW r WITH (on_error = 'raise') AS SELECT 1 / a AS x FROM t",
		"INSERT INTO t VALUES (0)", "FLUSH", "ALTER MATERIALIZED VIEW v RENAME TO w", "ALTER MATERIALIZED VIEW r RENAME TO q", "SELECT * FROM w")
	require.Equal(t, `1 row is missing from materialized view "w" because its evaluation failed; see streamdb.errors`, s.notices[len(s.notices)-1].Message)
	_, err := s.Exec(s.d.ctx, "SELECT * FROM q")
	require.Regexp(t, `materialized view "q"\.$`, pgErr(t, err).Detail)
}
