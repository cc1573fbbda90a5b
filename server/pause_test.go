package server_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

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

// TestFillFromPausedViews: what cannot be filled because what it reads is paused and behind says so, and goes when that was dropped; in the background it waits.
func TestFillFromPausedViews(t *testing.T) {
	d := open(t)
	s := d.connect()
	s.must("CREATE TABLE t (id int PRIMARY KEY)", "CREATE MATERIALIZED VIEW a AS SELECT count(*) AS n FROM t", "CREATE MATERIALIZED VIEW b AS SELECT n FROM a", "CREATE MATERIALIZED VIEW c AS SELECT 1::bigint AS n FROM t",
		"FLUSH", "PAUSE a", "INSERT INTO t VALUES (1)", "SET statement_timeout = '60s'")
	const paused = `cannot be filled because "a", which it reads, is paused`
	e := s.fails("CREATE MATERIALIZED VIEW x AS SELECT n + 1 AS n FROM b", "55000", `"x" `+paused)
	require.Equal(t, "RESUME a first.", e.Hint)
	s.fails("ALTER MATERIALIZED VIEW c AS SELECT n FROM b", "55000", `"c" `+paused)
	require.Equal(t, "3", s.row("SELECT count(*) FROM streamdb.jobs WHERE kind = 'materialized view'"), "nothing is left")
	s.must("CREATE MATERIALIZED VIEW x WITH (background = true) AS SELECT n + 1 AS n FROM b")
	s.fails("WAIT x", "55000", `"x" `+paused)

	s.must("RESUME a", "WAIT x")
	require.Equal(t, "2", s.row("SELECT n FROM x"))

	s.must("PAUSE a", "INSERT INTO t VALUES (2)")
	ended := make(chan string)
	go func() {
		_, err := d.connect().Exec(t.Context(), "ALTER MATERIALIZED VIEW c AS SELECT n FROM a")
		ended <- fmt.Sprint(err)
	}()
	require.Eventually(t, func() bool {
		return strings.Contains(strings.Join(s.rows("SHOW JOBS"), ""), "REPLACE MATERIALIZED VIEW c")
	}, testTimeout, 10*time.Millisecond)
	s.must("DROP MATERIALIZED VIEW a CASCADE")
	require.Contains(t, <-ended, `"a", which it reads, was dropped or got another query`)
	require.Equal(t, "1|2", s.row("SELECT n, count(*) FROM c GROUP BY n ORDER BY n LIMIT 1"))
}
