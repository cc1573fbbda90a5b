package server_test

import (
	"testing"

	"github.com/stretchr/testify/require"
)

// pg_temp is a schema to every statement that names a temporary relation, DROP too.
func TestDropInTemporarySchema(t *testing.T) {
	s := open(t).connect()
	s.fails("DROP TABLE pg_temp.t", "3F000", `schema "pg_temp" does not exist`)
	s.must("CREATE TABLE t (a int)", "CREATE TEMP TABLE t (b int)", "CREATE INDEX i ON pg_temp.t (b)", "CREATE TEMP VIEW v AS SELECT b FROM pg_temp.t",
		"DROP VIEW pg_temp.v", "DROP INDEX pg_temp.i", "DROP TABLE pg_temp.t", "DROP TABLE IF EXISTS pg_temp.t", "INSERT INTO t (a) VALUES (1)")
	require.Equal(t, []string{"1"}, s.rows("SELECT a FROM t"))
	s.fails("DROP TABLE pg_temp.t", "42P01", `table "t" does not exist`)
}
