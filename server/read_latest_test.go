package server_test

import (
	"testing"

	"github.com/stretchr/testify/require"
)

// A statement over a table and a view that lags behind sees all that is committed to the table, and the view at the same moment: also in a session
// that has written nothing.
func TestTablesBesideViewsAreNotOld(t *testing.T) {
	d := open(t)
	w, r := d.connect(), d.connect()
	w.must("CREATE TABLE t (id int8 PRIMARY KEY, k int)", "CREATE TABLE seen (n int8, m int8)",
		"CREATE MATERIALIZED VIEW slow AS SELECT a.id, b.k, row_number() OVER (PARTITION BY b.k ORDER BY a.id) AS n FROM t a JOIN t b ON a.id = b.id")
	const both = "SELECT (SELECT count(*) FROM t), (SELECT count(*) FROM slow)"
	for i, want := range []string{"60000|60000", "120000|120000", "180000|180000"} {
		w.must("INSERT INTO t SELECT g, g % 50 FROM generate_series(1 + 60000 * " + string(rune('0'+i)) + ", 60000 * " + string(rune('1'+i)) + ") g")
		require.Equal(t, []string{want}, r.rows(both))
		r.must("INSERT INTO seen " + both)
	}
	require.Equal(t, []string{"60000|60000", "120000|120000", "180000|180000"}, r.rows("SELECT * FROM seen ORDER BY n"))
}
