package server_test

import (
	"fmt"
	"strings"
	"testing"
)

// WITH queries and views are planned anew at each reference: a chain of them doubles with each link, and must not take memory and time without end.
func TestQueriesThatDouble(t *testing.T) {
	s := open(t).connect()
	var q strings.Builder
	q.WriteString("WITH a0 AS (SELECT 1 x)")
	for i := 1; i < 15; i++ {
		fmt.Fprintf(&q, ", a%d AS (SELECT * FROM a%[2]d UNION ALL SELECT * FROM a%[2]d)", i, i-1)
	}
	s.fails(q.String()+" SELECT count(*) FROM a14", "54001", "the statement expands to more than 10000 queries")
	s.must("CREATE VIEW v0 AS SELECT 1 x")
	for i := 1; i < 9; i++ {
		s.must(fmt.Sprintf("CREATE VIEW v%d AS SELECT * FROM v%[2]d UNION ALL SELECT * FROM v%[2]d", i, i-1))
	}
	s.must("SELECT count(*) FROM v8")
}
