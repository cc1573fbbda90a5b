package server_test

import (
	"testing"

	"github.com/stretchr/testify/require"
)

// Rows of a block that was open while its table got a constraint were never asked to meet it.
func TestConstraintsOfBlocksThatAreOpen(t *testing.T) {
	d := open(t)
	s, other := d.connect(), d.connect()
	for _, c := range []struct{ ddl, insert string }{
		{"ALTER TABLE t ALTER b SET NOT NULL", "INSERT INTO t VALUES (2, NULL)"},
		{"ALTER TABLE t ADD CHECK (b > 0)", "INSERT INTO t VALUES (2, -1)"},
	} {
		s.must("DROP TABLE IF EXISTS t", "CREATE TABLE t (a int, b int)", "INSERT INTO t VALUES (1, 1)", "BEGIN", c.insert)
		other.must(c.ddl)
		s.fails("COMMIT", "40001", "could not serialize access due to a concurrent change of table \"t\"")
		s.must("ROLLBACK")
		require.Equal(t, []string{"1|1"}, s.rows("TABLE t"), c.ddl)
	}
	s.must("BEGIN", "INSERT INTO t VALUES (2, 2)")
	other.must("ALTER TABLE t ADD COLUMN c int DEFAULT 5", "CREATE INDEX ON t (b)")
	s.must("COMMIT", "BEGIN", "INSERT INTO t VALUES (3, 3)", "ALTER TABLE t ADD CHECK (a > 0)", "INSERT INTO t VALUES (4, 4)", "COMMIT")
	require.Equal(t, []string{"1|1|5", "2|2|5", "3|3|5", "4|4|5"}, s.rows("SELECT * FROM t ORDER BY a"))
}
