package server_test

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestTemporalJoinErrorsSayWhere(t *testing.T) {
	s := open(t).connect()
	s.must("CREATE TABLE s (k int, t int)", "CREATE TABLE d (k int PRIMARY KEY, t int)", "CREATE VIEW v AS TABLE d")
	for _, c := range []struct{ query, at string }{
		{"SELECT 1 FROM s JOIN d FOR SYSTEM_TIME AS OF now() ON s.k = d.k", "now()"},
		{"SELECT 1 FROM s FULL JOIN d FOR SYSTEM_TIME AS OF PROCTIME() ON s.k = d.k", "PROCTIME()"},
		{"SELECT 1 FROM s JOIN v FOR SYSTEM_TIME AS OF PROCTIME() ON s.k = v.k", "v FOR"},
		{"SELECT 1 FROM s JOIN d FOR SYSTEM_TIME AS OF PROCTIME() ON s.k > d.k", "PROCTIME()"},
		{"SELECT 1 FROM s JOIN d FOR SYSTEM_TIME AS OF PROCTIME() ON s.k = d.k AND d.t > (SELECT 1)", "PROCTIME()"},
		{"SELECT x.n FROM s o LEFT JOIN LATERAL (SELECT d.t + o.t AS n FROM s JOIN d FOR SYSTEM_TIME AS OF PROCTIME() ON s.k = d.k AND d.t > o.t) x ON true", "PROCTIME()"},
		{"WITH RECURSIVE w AS (SELECT k FROM s UNION SELECT d.t FROM w JOIN d FOR SYSTEM_TIME AS OF PROCTIME() ON w.k = d.k) SELECT * FROM w", "PROCTIME()"},
		{"WITH RECURSIVE w AS (SELECT k FROM s UNION ALL SELECT d.t FROM w LEFT JOIN d FOR SYSTEM_TIME AS OF PROCTIME() ON w.k = d.t) SELECT * FROM w", "PROCTIME()"},
	} {
		query := "CREATE MATERIALIZED VIEW m AS " + c.query
		_, err := s.PgConn().Exec(s.d.ctx, query).ReadAll()
		e := pgErr(t, err)
		require.NotEqual(t, "XX000", e.Code, query)
		require.EqualValues(t, strings.Index(query, c.at)+1, e.Position, "%s: %s", query, e.Message)
	}
}
