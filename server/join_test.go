package server_test

import (
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"
)

// TestJoinsWithoutKeysAreSpread: a join by a comparison runs in several subtasks, of a number that changes, over restarts.
func TestJoinsWithoutKeysAreSpread(t *testing.T) {
	d := open(t)
	s := d.connect()
	s.must(
		"CREATE TABLE l (id int PRIMARY KEY, v int)", "CREATE TABLE r (id int PRIMARY KEY, lo int, hi int)",
		"INSERT INTO l SELECT g, g * 37 % 500 FROM generate_series(1, 400) g", "INSERT INTO r SELECT g, g * 13 % 500, g * 13 % 500 + g % 40 FROM generate_series(1, 90) g",
		"SET parallelism = 3",
		"CREATE MATERIALIZED VIEW inside AS SELECT l.id, r.id AS r FROM l LEFT JOIN r ON v BETWEEN lo AND hi",
		"CREATE MATERIALIZED VIEW without AS SELECT r.id FROM r WHERE NOT EXISTS (SELECT FROM l WHERE v % 50 = r.lo % 50 OR v > hi + 400)",
		"CREATE MATERIALIZED VIEW above AS SELECT id FROM l WHERE v > (SELECT avg(hi) FROM r)",
	)
	same := func() {
		t.Helper()
		s.must("FLUSH") // after a restart views stand where their checkpoint stood
		for view, query := range map[string]string{
			"inside":  "SELECT l.id, r.id AS r FROM l LEFT JOIN r ON v BETWEEN lo AND hi",
			"without": "SELECT r.id FROM r WHERE NOT EXISTS (SELECT FROM l WHERE v % 50 = r.lo % 50 OR v > hi + 400)",
			"above":   "SELECT id FROM l WHERE v > (SELECT avg(hi) FROM r)",
		} {
			require.ElementsMatch(t, s.rows(query), s.rows("TABLE "+view), view)
		}
	}
	same()
	for i, n := range []int{2, 4, 1, 3} {
		for _, v := range []string{"inside", "without", "above"} {
			s.must(fmt.Sprintf("ALTER MATERIALIZED VIEW %s SET (parallelism = %d)", v, n))
		}
		s.must(
			fmt.Sprintf("UPDATE r SET lo = lo + 7, hi = hi + 9 WHERE id %% 4 = %d", i), fmt.Sprintf("DELETE FROM l WHERE id %% 11 = %d", i),
			fmt.Sprintf("INSERT INTO l VALUES (%d, 77), (%d, NULL)", 1000+i, 2000+i), fmt.Sprintf("DELETE FROM r WHERE id = %d", i+20),
		)
		same()
		if i%2 == 1 {
			s.must("CHECKPOINT", "DELETE FROM r WHERE id = 50", "UPDATE l SET v = v + 1 WHERE id % 5 = 0")
			d.crash()
			s = d.connect()
			same()
		}
	}
}

// TestJoinsOfAllPairsAreNoted: whoever creates a view with one hears of it.
func TestJoinsOfAllPairsAreNoted(t *testing.T) {
	s := open(t).connect()
	s.must("CREATE TABLE l (id int PRIMARY KEY, v int)", "CREATE TABLE r (id int PRIMARY KEY, v int)")
	for i, c := range []struct {
		query string
		noted bool
	}{
		{"SELECT l.id, r.id AS r FROM l JOIN r ON l.v <> r.v", true},
		{"SELECT l.id, r.id AS r FROM l, r", true},
		{"SELECT id FROM l WHERE EXISTS (SELECT FROM r WHERE r.v = l.v OR r.id = l.id)", true},
		{"SELECT l.id, r.id AS r FROM l JOIN r ON l.v = r.v", false},
		{"SELECT l.id, r.id AS r FROM l JOIN r ON l.v < r.v", false},
		{"SELECT l.id, (SELECT max(v) FROM r) AS m FROM l", false},
		{"SELECT l.id FROM l WHERE v <> (SELECT max(v) FROM r)", false},
		{"SELECT l.id, x FROM l, (VALUES (1), (2)) c (x) WHERE l.v <> x", false},
	} {
		n := len(s.notices)
		s.must(fmt.Sprintf("CREATE MATERIALIZED VIEW m%d AS %s", i, c.query))
		if !c.noted {
			require.Len(t, s.notices, n, c.query)
			continue
		}
		require.Len(t, s.notices, n+1, c.query)
		require.Equal(t, "NOTICE", s.notices[n].Severity)
		require.Contains(t, s.notices[n].Message, "a join has no condition that finds rows")
		require.Contains(t, s.notices[n].Hint, "An equality")
	}
	n := len(s.notices)
	s.rows("SELECT l.id FROM l, r")
	require.Len(t, s.notices, n, "queries are not views")
}
