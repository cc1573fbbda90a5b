package server_test

import (
	"testing"

	"github.com/stretchr/testify/require"
)

// TestRecursionBagGrows lets the rows of a UNION ALL follow from each other in two ways: few different rows, and more in all than memory may hold.
func TestRecursionBagGrows(t *testing.T) {
	s := open(t).connect()
	s.must("SET max_recursion_memory = '1MB'", "CREATE TABLE a (id int)", "INSERT INTO a VALUES (1), (1)",
		"CREATE MATERIALIZED VIEW m AS WITH RECURSIVE w (id, n) AS (SELECT id, 0 FROM a UNION ALL SELECT a.id, n + 1 FROM w JOIN a ON a.id = w.id WHERE n < 70) SELECT n, count(*) FROM w GROUP BY n")
	const ask = "SELECT count(*), sum(count) FROM m"
	failing := "SELECT count(*), min(sqlstate) FROM streamdb.errors"
	check := func(query, want string) {
		t.Helper()
		s.must("FLUSH")
		require.Equal(t, []string{want}, s.rows(query))
	}
	check(failing, "1|54000")
	s.must("TRUNCATE a", "INSERT INTO a VALUES (1)")
	check(ask, "71|71")
	check(failing, "0|NULL")
	s.must("INSERT INTO a VALUES (1)")
	check(failing, "1|54000")
	s.must("TRUNCATE a", "INSERT INTO a VALUES (1)")
	check(ask, "71|71")
}
