package server_test

import (
	"testing"

	"github.com/stretchr/testify/require"
)

// A column takes its own default and the sequence that belongs to it along; other defaults that use the sequence hold it back.
func TestDropColumnWithSequence(t *testing.T) {
	d := open(t)
	s := d.connect()
	s.must("CREATE TABLE t (a int, q serial)", "INSERT INTO t (a) VALUES (1)", "ALTER TABLE t DROP COLUMN q",
		"CREATE TABLE i (a int, q int GENERATED ALWAYS AS IDENTITY)", "INSERT INTO i (a) VALUES (1)", "ALTER TABLE i DROP COLUMN q",
		"CREATE TABLE o (a int)", "ALTER TABLE o ADD COLUMN q serial", "CREATE TABLE other (a int DEFAULT nextval('o_q_seq'))")
	pe := s.fails("ALTER TABLE o DROP COLUMN q", "2BP01", "cannot drop column q of table o because other objects depend on it")
	require.Equal(t, "default value for column a of table other depends on sequence o_q_seq", pe.Detail)
	s.notices = nil
	s.must("ALTER TABLE o DROP COLUMN q CASCADE")
	require.Len(t, s.notices, 1)
	require.Equal(t, "drop cascades to default value for column a of table other", s.notices[0].Message)
	require.Equal(t, []string{"1"}, s.rows("TABLE t"))
	require.Equal(t, []string{"1"}, s.rows("TABLE i"))
	require.Empty(t, s.rows("SELECT relname FROM pg_class WHERE relkind = 'S'"))
	d.crash()
	s = d.connect()
	s.must("INSERT INTO t VALUES (2)", "INSERT INTO i VALUES (2)", "INSERT INTO o VALUES (2)")
	require.Equal(t, []string{"1", "2"}, s.rows("TABLE t"))
	require.Equal(t, []string{"1", "2"}, s.rows("TABLE i"))
	require.Equal(t, []string{"2"}, s.rows("TABLE o"))
}
