package server_test

import (
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"
)

// A view goes on with another number of subtasks, with the rows it had, and so do the views over it; a restart keeps the number.
func TestAlterViewOptions(t *testing.T) {
	d := open(t)
	s := d.connect()
	s.must("CREATE TABLE t (k int, v int)", "INSERT INTO t SELECT i % 50, i FROM generate_series(1, 1000) i",
		"CREATE MATERIALIZED VIEW m WITH (parallelism = 2) AS SELECT k, count(*) AS n, sum(v) AS v FROM t GROUP BY k",
		"CREATE MATERIALIZED VIEW over_m AS SELECT n, count(*) AS c FROM m GROUP BY n")
	check := func() {
		t.Helper()
		s.must("FLUSH")
		require.Equal(t, s.rows("SELECT k, count(*), sum(v) FROM t GROUP BY k ORDER BY k"), s.rows("SELECT * FROM m ORDER BY k"))
		require.Equal(t, s.rows("SELECT n, count(*) FROM (SELECT count(*) AS n FROM t GROUP BY k) x GROUP BY n ORDER BY n"), s.rows("SELECT * FROM over_m ORDER BY n"))
	}
	for i, n := range []int{4, 1, 3} {
		if i == 1 {
			s.must("CHECKPOINT", "INSERT INTO t VALUES (7, 7)")
		}
		s.must(fmt.Sprintf("ALTER MATERIALIZED VIEW m SET (parallelism = %d)", n), "INSERT INTO t VALUES (1, 1), (99, 2)", "DELETE FROM t WHERE v % 97 = 3")
		require.Equal(t, []string{fmt.Sprint(n)}, s.rows("SELECT parallelism FROM streamdb.jobs WHERE name = 'm'"))
		check()
	}
	s.must("BEGIN", "ALTER MATERIALIZED VIEW m SET (parallelism = 2)", "ROLLBACK")
	require.Equal(t, []string{"3"}, s.rows("SELECT parallelism FROM streamdb.jobs WHERE name = 'm'"))
	d.crash()
	s = d.connect()
	require.Equal(t, []string{"3"}, s.rows("SELECT parallelism FROM streamdb.jobs WHERE name = 'm'"))
	check()

	s.must("CREATE MATERIALIZED VIEW bad AS SELECT k / (v - 7) AS x FROM t", "SELECT count(*) FROM bad", "ALTER MATERIALIZED VIEW bad SET (on_error = 'raise')")
	s.fails("SELECT count(*) FROM bad", "22012", "division by zero")
	s.must("ALTER MATERIALIZED VIEW bad RESET (on_error)", "SELECT count(*) FROM bad")
	s.must("CREATE MATERIALIZED VIEW one WITH (parallelism = 1) AS SELECT k FROM t GROUP BY k")
	s.fails("ALTER MATERIALIZED VIEW one SET (parallelism = 2)", "55000", `"one" was planned for one subtask`)
	s.fails("ALTER MATERIALIZED VIEW m SET (state.backend.type = 'memory')", "55000", `parameter "state.backend.type" of a materialized view cannot be changed`)
	s.fails("ALTER MATERIALIZED VIEW m SET (speed = 2)", "22023", `unrecognized parameter "speed"`)
	s.fails("ALTER MATERIALIZED VIEW m SET (parallelism = 1000)", "22023", "")
}

// The NOTICE of what a replacement keeps names aggregations behind an exchange, whole and added up in parts.
func TestReplacedViewKeepsSpreadAggregations(t *testing.T) {
	d := open(t)
	a := d.connect()
	a.must("CREATE TABLE t (k int PRIMARY KEY, g int, v int)", "INSERT INTO t SELECT i, i % 3, i FROM generate_series(1, 30) AS i")
	for i, query := range []string{"SELECT sum(v) AS s, count(*) AS n FROM t", "SELECT g AS s, max(v) AS n FROM t GROUP BY g", "SELECT g AS s, count(DISTINCT v) AS n FROM t GROUP BY g"} {
		view := fmt.Sprintf("m%d", i)
		a.must("CREATE MATERIALIZED VIEW "+view+" WITH (parallelism = 2) AS "+query, "FLUSH", "ALTER MATERIALIZED VIEW "+view+" AS SELECT s, n, 1 AS one FROM ("+query+") AS q")
		require.Equal(t, a.row("SELECT count(*), sum(n) FROM ("+query+") AS q"), a.row("SELECT count(*), sum(n) FROM "+view))
	}
}
