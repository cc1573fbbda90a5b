package server_test

import (
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/streamdb/streamdb/server"
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

// TestHotKeys: the keys of a join with the most matches are told, of rows that met only.
func TestHotKeys(t *testing.T) {
	s := open(t).connect()
	s.must(
		"CREATE TABLE l (id int PRIMARY KEY, k text, n int)", "CREATE TABLE r (id int PRIMARY KEY, k text, n int)",
		"INSERT INTO r SELECT g, CASE WHEN g <= 600 THEN 'hot' WHEN g <= 900 THEN 'warm' ELSE 'k' || g END, g % 2 FROM generate_series(1, 2000) g",
		"CREATE MATERIALIZED VIEW m WITH (parallelism = 2) AS SELECT l.id, r.id AS r FROM l JOIN r ON l.k = r.k AND l.n = r.n",
	)
	require.Empty(t, s.rows("SELECT * FROM streamdb.hot_keys"))
	s.must("INSERT INTO l SELECT g, CASE WHEN g <= 5 THEN 'hot' WHEN g <= 7 THEN 'cold' ELSE 'k' || g END, 0 FROM generate_series(1, 1500) g", "FLUSH")
	require.Equal(t, []string{"m|hot, 0|5|300|1500"}, s.rows("SELECT job, key, left_rows, right_rows, matches FROM streamdb.hot_keys"))
	require.Equal(t, "1800", s.row("SELECT count(*) FROM m"))
	s.must("CREATE ROLE eve LOGIN", "SET ROLE eve")
	require.Empty(t, s.rows("SELECT * FROM streamdb.hot_keys"), "keys are data")
}

// TestJoinsGiveWay: a join of many keys holds no more than its share of the memory while it is filled, and finds its rows again.
func TestJoinsGiveWay(t *testing.T) {
	d := open(t, func(c *server.Config) { c.Memory = 16 << 20 })
	s := d.connect()
	s.must(
		"CREATE TABLE l (id int PRIMARY KEY, k int, v int)", "CREATE TABLE r (id int PRIMARY KEY, v int)",
		"INSERT INTO l SELECT g, g * 7 % 150000, g % 100 FROM generate_series(1, 150000) g", "INSERT INTO r SELECT g, g % 77 FROM generate_series(0, 149999) g",
		"CREATE MATERIALIZED VIEW m AS SELECT l.id, l.v, r.v AS rv FROM l JOIN r ON l.k = r.id",
		"CREATE MATERIALIZED VIEW o AS SELECT l.id, r.v AS rv FROM l LEFT JOIN r ON l.k = r.id + 75000",
	)
	same := func() {
		t.Helper()
		s.must("FLUSH")
		require.Equal(t, s.row("SELECT count(*), sum(l.v), sum(r.v) FROM l JOIN r ON l.k = r.id"), s.row("SELECT count(*), sum(v), sum(rv) FROM m"))
		require.Equal(t, s.row("SELECT count(*), count(r.v), sum(r.v) FROM l LEFT JOIN r ON l.k = r.id + 75000"), s.row("SELECT count(*), count(rv), sum(rv) FROM o"))
	}
	same()
	s.must("UPDATE r SET v = v + 1 WHERE id % 50 = 0", "DELETE FROM l WHERE id % 60 = 0", "CHECKPOINT", "UPDATE l SET k = k + 1 WHERE id % 70 = 0")
	same()
	d.crash()
	s = d.connect()
	same()
	s.must("DELETE FROM r WHERE id % 40 = 1", "INSERT INTO l SELECT g, g % 1000, 1 FROM generate_series(200001, 201000) g")
	same()
}
