package server_test

import (
	"encoding/json"
	"testing"

	"github.com/stretchr/testify/require"
)

// TestExplainJSON is what a client that checks queries when it is compiled asks for.
func TestExplainJSON(t *testing.T) {
	s := open(t).connect()
	s.must("CREATE TABLE t (a int PRIMARY KEY, b text)", "PREPARE p (int) AS SELECT t.a, u.b FROM t JOIN t AS u ON t.a = u.a WHERE t.a > $1")
	for _, q := range []string{"EXPLAIN (VERBOSE, FORMAT JSON) EXECUTE p(NULL)", "EXPLAIN (FORMAT JSON, VERBOSE) CREATE MATERIALIZED VIEW v AS SELECT b, count(*) FROM t GROUP BY b"} {
		var plans []struct {
			Plan struct {
				Type   string   `json:"Node Type"`
				Output []string `json:"Output"`
				Plans  []struct {
					Type     string `json:"Node Type"`
					Relation string `json:"Parent Relationship"`
				} `json:"Plans"`
			} `json:"Plan"`
		}
		require.NoError(t, json.Unmarshal([]byte(s.row(q)), &plans), s.row(q))
		require.Len(t, plans, 1)
		require.NotEmpty(t, plans[0].Plan.Type)
		require.NotEmpty(t, plans[0].Plan.Plans)
	}
}
