package server_test

import (
	"testing"

	"github.com/stretchr/testify/require"
)

// TestReadersOfPausedViews: who reads a view over a paused one gets its rows as they are, as from the paused one itself, and nothing waits for it.
func TestReadersOfPausedViews(t *testing.T) {
	d := open(t)
	s := d.connect()
	s.must("CREATE TABLE t (id int PRIMARY KEY)", "CREATE TABLE u (id int PRIMARY KEY)", "CREATE MATERIALIZED VIEW a AS SELECT count(*) AS n FROM t", "CREATE MATERIALIZED VIEW b AS SELECT n + 1 AS n FROM a",
		"CREATE MATERIALIZED VIEW c AS SELECT b.n, u.id FROM b JOIN u ON true", "CREATE MATERIALIZED VIEW alone AS SELECT count(*) AS n FROM t", "CREATE INDEX on_b ON b (n)",
		"INSERT INTO t VALUES (1)", "INSERT INTO u VALUES (1)", "FLUSH", "CHECKPOINT", "SET statement_timeout = '20s'", "PAUSE a", "INSERT INTO t VALUES (2)", "INSERT INTO u VALUES (2)")
	for _, again := range []string{"running", "restarted"} {
		s.must("FLUSH")
		require.Equal(t, "1", s.row("SELECT n FROM a"), again)
		require.Equal(t, "2", s.row("SELECT n FROM b"), again)
		require.Equal(t, "2", s.row("SELECT n FROM b WHERE n = 2"), again)
		require.Equal(t, "1", s.row("SELECT count(*) FROM c"), again)
		require.Equal(t, "2|2", s.row("SELECT b.n, alone.n FROM b, alone"), again)
		s.must("BEGIN", "INSERT INTO t VALUES (3)")
		require.Equal(t, "2", s.row("SELECT n FROM b"), again)
		s.must("ROLLBACK", "CHECKPOINT")
		if again == "running" {
			d.crash()
			s = d.connect()
			s.must("SET statement_timeout = '20s'")
		}
	}
	s.must("RESUME a", "FLUSH")
	require.Equal(t, "3|2", s.row("SELECT max(n), count(*) FROM c"))
}
