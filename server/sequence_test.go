package server_test

import (
	"os"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/streamdb/streamdb/server"
)

func TestSequencesNeverRepeatAValue(t *testing.T) {
	d := open(t)
	s := d.connect()
	s.must("CREATE SEQUENCE q", "CREATE TABLE t (id serial PRIMARY KEY, v int)", "CREATE SEQUENCE untouched START 7")
	require.Equal(t, "1", s.row("SELECT nextval('q')"))
	require.Equal(t, "public.t_id_seq|NULL", s.row("SELECT pg_get_serial_sequence('t', 'id'), pg_get_serial_sequence('t', 'v')"))
	// Not transactional.
	s.must("BEGIN")
	require.Equal(t, "2", s.row("SELECT nextval('q')"))
	s.must("ROLLBACK")
	require.Equal(t, "3", s.row("SELECT nextval('q')"))
	s.must("INSERT INTO t (v) SELECT g FROM generate_series(1, 1000) g")
	require.Equal(t, "1|1000", s.row("SELECT min(id), max(id) FROM t"))
	for range 3 {
		most := s.row("SELECT max(id) FROM t")
		d.crash()
		s = d.connect()
		require.Equal(t, "t", s.row("SELECT nextval('q') > 3"))
		s.must("INSERT INTO t (v) VALUES (0)")
		require.Equal(t, "t", s.row("SELECT max(id) > "+most+" FROM t"))
		s.must("CHECKPOINT")
	}
	require.Equal(t, "7", s.row("SELECT nextval('untouched')"))
	// A clean stop skips nothing.
	last := s.row("SELECT setval('q', 500)")
	require.Equal(t, "501", s.row("SELECT nextval('q')"), last)
	require.NoError(t, d.srv.Close(d.ctx))
	d.start()
	s = d.connect()
	require.Equal(t, "502", s.row("SELECT nextval('q')"))
	s.must("BEGIN", "ALTER SEQUENCE q RESTART", "CREATE SEQUENCE lost", "ROLLBACK")
	require.Equal(t, "503", s.row("SELECT nextval('q')"))
	require.Equal(t, "42P01", s.code("SELECT nextval('lost')"))
	s.must("DROP SEQUENCE q", "CREATE SEQUENCE q")
	require.Equal(t, "1", s.row("SELECT nextval('q')"))
}

func TestSequencesAreInTheBucket(t *testing.T) {
	bucket := t.TempDir()
	d := open(t, func(c *server.Config) { c.CheckpointDir = "file://" + bucket })
	s := d.connect()
	s.must("CREATE TABLE t (id int GENERATED ALWAYS AS IDENTITY PRIMARY KEY, v int)", "INSERT INTO t (v) SELECT g FROM generate_series(1, 100) g", "CHECKPOINT")
	require.NoError(t, d.srv.Abort())
	require.NoError(t, os.RemoveAll(d.cfg.DataDir))
	d.cfg.DataDir = t.TempDir()
	d.start()
	s = d.connect()
	s.must("INSERT INTO t (v) VALUES (0)")
	require.Equal(t, "t", s.row("SELECT max(id) > 100 FROM t"))
}
