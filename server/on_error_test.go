package server_test

import (
	"testing"

	"github.com/stretchr/testify/require"
)

// TestErrorsReachViewsAbove: rows that a view lacks are missing from what is made of it, too, so its readers are told, and fail where the view asks for that.
func TestErrorsReachViewsAbove(t *testing.T) {
	d := open(t)
	s := d.connect()
	s.must("CREATE TABLE t (id int PRIMARY KEY, v int)", "INSERT INTO t VALUES (1, 1), (2, 0)",
		"CREATE MATERIALIZED VIEW q AS SELECT id, 10 / v AS q FROM t",
		"CREATE MATERIALIZED VIEW middle AS SELECT a.id, a.q FROM q AS a JOIN q AS b USING (id)",
		"CREATE MATERIALIZED VIEW top AS SELECT count(*) AS n FROM middle",
		"CREATE MATERIALIZED VIEW beside AS SELECT count(*) AS n FROM t")
	told := func(query string) []string {
		s.notices = nil
		s.must(query)
		var out []string
		for _, n := range s.notices {
			out = append(out, n.Severity+": "+n.Message)
		}
		return out
	}
	missing := []string{`WARNING: 1 row is missing from materialized view "q" because its evaluation failed; see streamdb.errors`}
	for _, query := range []string{"SELECT * FROM q", "SELECT * FROM middle", "SELECT * FROM top", "SELECT * FROM top, middle, q", "SELECT q FROM middle WHERE id = 1"} {
		require.Equal(t, missing, told(query), query)
	}
	require.Empty(t, told("SELECT * FROM beside"))
	s.must("ALTER MATERIALIZED VIEW q SET (on_error = 'raise')")
	for _, query := range []string{"SELECT * FROM q", "SELECT * FROM middle", "SELECT * FROM top", "SELECT n FROM beside, (SELECT id FROM middle) AS m"} {
		s.fails(query, "22012", "division by zero")
	}
	s.must("SELECT * FROM beside", "UPDATE t SET v = 5 WHERE id = 2")
	require.Empty(t, told("SELECT * FROM top"))
	require.Equal(t, []string{"2"}, s.rows("SELECT n FROM top"))
}
