package server_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// interruptTime is the longest that a statement may overrun its time in a test, on a loaded machine.
const interruptTime = 10 * time.Second

// Statements end in their time also while one value is computed or the plan is made, however the statement comes.
func TestTimeoutWithinExpressions(t *testing.T) {
	s := open(t).connect()
	s.must("CREATE TABLE t (x int)", "INSERT INTO t SELECT generate_series(1, 2000)", "SET statement_timeout = '30ms'")
	for _, q := range []string{
		"SELECT sum(length(factorial(20000 + x % 1000)::text)) FROM t",
		"SELECT factorial(32000), factorial(32001), factorial(32002), factorial(32003), factorial(32004), factorial(32005), factorial(32006), factorial(32007)",
		"SELECT cardinality(string_to_array(repeat('a,', 500000), ','))",
		"SELECT count(*) FROM string_to_table(repeat('a,', 500000), ',')",
		`SELECT regexp_count(repeat('ab', 2000000), '(a|b)(?=b)')`,
		"SELECT array_remove(string_to_array(repeat('a,', 500000), ','), 'a')",
		"UPDATE t SET x = length(factorial(20000 + x)::text)",
		"SELECT " + parts(1000, " + ", func(int) string { return "(SELECT 1)" }),
		"WITH RECURSIVE r AS (SELECT 1 AS x UNION ALL SELECT x + 1 FROM r) SELECT count(*) FROM r",
		"SELECT max(sqrt(repeat('9', 10000 + x)::numeric)) FROM t",
	} {
		began := time.Now()
		require.Equal(t, "57014", s.code(q), q)
		require.Less(t, time.Since(began), interruptTime, q)
	}
	// The time of one statement is over, not that of the session: what comes after it works, in a block and with a cursor that stays open too.
	s.must("SET statement_timeout = '5s'", "BEGIN", "DECLARE c CURSOR FOR SELECT x FROM t ORDER BY x", "SAVEPOINT p", "SET LOCAL statement_timeout = '20ms'")
	require.Equal(t, "57014", s.code("SELECT pg_sleep(10)"))
	s.must("ROLLBACK TO p")
	require.Equal(t, "1", s.row("FETCH c"))
	require.Equal(t, "2", s.row("FETCH c"))
	s.must("COMMIT")
	require.Equal(t, "2000", s.row("SELECT count(*) FROM t"))
}
