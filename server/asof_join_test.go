package server_test

import (
	"testing"

	"github.com/stretchr/testify/require"
)

func TestAsofJoinErrorsSayWhere(t *testing.T) {
	s := open(t).connect()
	s.must("CREATE TABLE l (k int, t int)", "CREATE TABLE r (k int, t int)")
	for _, c := range []struct {
		on   string
		pos  int32
		hint string
	}{
		{"ON l.k = r.k", 17, "Write for example ON l.key = r.key AND l.time >= r.time."},
		{"ON l.t > r.t AND l.t < r.k", 50, "Conditions that choose among the matches belong into WHERE."},
		{"ON l.t > r.t AND (l.k = 1 OR r.k = 1)", 55, "Write for example ON l.key = r.key AND l.time >= r.time."},
		{"ON l.t > r.t AND l.k = 1", 50, "Conditions on one side belong into WHERE or into a subquery."},
		{"USING (k)", 29, "Write for example ON l.key = r.key AND l.time >= r.time."},
		{"ON l.t > r.t::text::date", 36, "No operator matches the given name and argument types. You might need to add explicit type casts."},
	} {
		_, err := s.PgConn().Exec(s.d.ctx, "SELECT * FROM l ASOF JOIN r "+c.on).ReadAll()
		e := pgErr(t, err)
		require.Equal(t, c.pos, e.Position, "%s: %s", c.on, e.Message)
		require.Equal(t, c.hint, e.Hint, c.on)
	}
}
