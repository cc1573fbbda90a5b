package server_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// longStatement bounds what a test's statement may take: each is well below it when its time grows with its length, far beyond when it grows faster.
const longStatement = 20 * time.Second

// parts joins n pieces.
func parts(n int, sep string, piece func(i int) string) string {
	s := make([]string, n)
	for i := range s {
		s[i] = piece(i)
	}
	return strings.Join(s, sep)
}

// Statements may be long: chains of operators of one kind are not nested.
func TestLongStatements(t *testing.T) {
	s := open(t).connect()
	s.must(fmt.Sprintf("SET statement_timeout = '%d ms'", longStatement.Milliseconds()))
	num := func(i int) string { return fmt.Sprint(i) }
	sel := func(i int) string { return fmt.Sprintf("SELECT %d AS x", i%1000) }
	const from = " FROM generate_series(1, 3) g WHERE "
	for _, c := range []struct{ name, query, want string }{
		{"union all", "SELECT count(*), sum(x) FROM (" + parts(3000, " UNION ALL ", sel) + ") u", "3000|1498500"},
		{"union", "SELECT count(*), sum(x) FROM (" + parts(3000, " UNION ", sel) + ") u", "1000|499500"},
		{"union in turn", "SELECT count(*) FROM (" + parts(300, " UNION ALL SELECT 1 UNION ", sel) + ") u", "300"},
		{"union to the right", "SELECT count(*) FROM (" + strings.Repeat("SELECT 1 UNION ALL (", 500) + "SELECT 1" + strings.Repeat(")", 500) + ") u", "501"},
		{"except", "SELECT count(*) FROM (SELECT -1" + strings.Repeat(" EXCEPT SELECT 2", 300) + ") u", "1"},
		{"in", "SELECT count(*)" + from + "g IN (" + parts(10_000, ", ", num) + ")", "3"},
		{"or", "SELECT count(*)" + from + parts(5000, " OR ", func(i int) string { return fmt.Sprintf("g = %d", i) }), "3"},
		{"and", "SELECT count(*)" + from + parts(5000, " AND ", func(i int) string { return fmt.Sprintf("g <> %d", i+10) }), "3"},
		{"concatenation", "SELECT length(" + parts(5000, " || ", func(int) string { return "'ab'" }) + ")", "10000"},
		{"columns", "SELECT c1599 FROM (SELECT " + parts(1600, ", ", func(i int) string { return fmt.Sprintf("%d AS c%d", i, i) }) + ") w", "1599"},
		{"WITH", "WITH c0 AS (SELECT 1 AS x), " + parts(1000, ", ", func(i int) string { return fmt.Sprintf("c%d AS (SELECT x + 1 AS x FROM c%d)", i+1, i) }) + " SELECT x FROM c1000", "1001"},
		{"subqueries", "SELECT " + parts(300, " + ", func(i int) string { return fmt.Sprintf("(SELECT %d)", i) }), "44850"},
		{"correlated subqueries", "SELECT sum(" + parts(40, " + ", func(i int) string {
			return fmt.Sprintf("(SELECT count(*) FROM generate_series(1, g) h WHERE h <> %d)", i)
		}) + ") FROM generate_series(1, 2) g", "117"},
	} {
		require.Equal(t, c.want, s.row(c.query), c.name)
	}
	s.fails("SELECT "+strings.Repeat("(", 500_000)+"1"+strings.Repeat(")", 500_000), "54001", "stack depth limit exceeded")
	s.fails("SELECT "+strings.Repeat("- ", 100_000)+"1", "54001", "stack depth limit exceeded")
	// A view of it goes on like any other.
	s.must("CREATE TABLE t (x int)", "CREATE MATERIALIZED VIEW v AS "+parts(300, " UNION ALL ", func(i int) string { return fmt.Sprintf("SELECT x + %d AS x FROM t", i) }), "INSERT INTO t VALUES (1)", "FLUSH")
	require.Equal(t, "300|45150", s.row("SELECT count(*), sum(x) FROM v"))
}
