package server_test

import (
	"context"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/streamdb/streamdb/internal/failpoint"
	"github.com/streamdb/streamdb/server"
)

// tsv gives rows for COPY: id, n, a text of 100 characters.
func tsv(from, to int) io.Reader {
	var b strings.Builder
	for i := from; i < to; i++ {
		fmt.Fprintf(&b, "%d\t%d\t%0100d\n", i, i%1000, i)
	}
	return strings.NewReader(b.String())
}

func (s *session) copyFrom(q string, r io.Reader) error {
	_, err := s.PgConn().CopyFrom(s.d.ctx, r, q)
	return err
}

// A COPY that takes many times the memory of a transaction's limit is one transaction all the same.
func TestLargeCopy(t *testing.T) {
	if testing.Short() {
		t.Skip("moves much data")
	}
	const rows = 150_000
	d := open(t, func(c *server.Config) { c.Memory = 32 << 20 })
	s := d.connect()
	s.must("CREATE TABLE t (id int PRIMARY KEY, n int, v text)", "CREATE INDEX t_n ON t (n)", "CREATE MATERIALIZED VIEW m AS SELECT n, count(*) AS c FROM t GROUP BY n",
		"INSERT INTO t VALUES (-1, 0, 'x')")
	require.NoError(t, s.copyFrom("COPY t FROM STDIN", tsv(0, rows)))
	check := func() {
		t.Helper()
		s = d.connect()
		require.Equal(t, fmt.Sprint(rows+1), s.row("SELECT count(*) FROM t"))
		require.Equal(t, fmt.Sprint(rows+1), s.row("SELECT sum(c) FROM m"))
		require.Equal(t, fmt.Sprint(rows/1000), s.row("SELECT count(*) FROM t WHERE n = 7"))
	}
	check()
	// A duplicate in the last row undoes all of it.
	err := s.copyFrom("COPY t FROM STDIN", io.MultiReader(tsv(rows, 2*rows), strings.NewReader("-1\t0\tx\n")))
	require.Equal(t, "23505", pgErr(t, err).Code)
	require.Equal(t, "t_pkey", pgErr(t, err).ConstraintName)
	require.Equal(t, "t", pgErr(t, err).TableName)
	check()
	d.crash()
	check()
	s.must("CHECKPOINT")
	found, err := filepath.Glob(filepath.Join(d.cfg.DataDir, "wal", "*.side"))
	require.NoError(t, err)
	require.Empty(t, found)
	d.crash()
	check()
	s.must("CREATE TABLE u AS SELECT * FROM t")
	require.Equal(t, fmt.Sprint(rows+1), s.row("SELECT count(*) FROM u"))
}

// In a block, values of a unique index move from row to row in a transaction that is put in step by step.
func TestLargeBlock(t *testing.T) {
	if testing.Short() {
		t.Skip("moves much data")
	}
	const rows = 120_000
	d := open(t)
	s := d.connect()
	s.must("CREATE TABLE t (id int PRIMARY KEY, n int UNIQUE, v text)", "BEGIN")
	require.NoError(t, s.copyFrom("COPY t (id, n, v) FROM STDIN", strings.NewReader("0\t0\tzero\n")))
	s.must("SAVEPOINT a", fmt.Sprintf("INSERT INTO t SELECT g, g, repeat('x', 100) FROM generate_series(1, %d) g", rows), "ROLLBACK TO a",
		fmt.Sprintf("INSERT INTO t SELECT g, g, repeat('x', 100) FROM generate_series(1, %d) g", rows-1))
	require.Equal(t, "23505", s.code("INSERT INTO t VALUES (-1, 5, 'twice')"))
	s.must("ROLLBACK TO a", fmt.Sprintf("INSERT INTO t SELECT g, g, repeat('x', 100) FROM generate_series(1, %d) g", rows-1), "COMMIT")
	require.Equal(t, fmt.Sprint(rows), s.row("SELECT count(*) FROM t"))
	s.must("BEGIN", fmt.Sprintf("UPDATE t SET n = %d - n", rows-1), "DELETE FROM t WHERE id = 3", "COMMIT")
	require.Equal(t, fmt.Sprint(rows-1), s.row("SELECT count(*) FROM t"))
	require.Equal(t, "2", s.row(fmt.Sprintf("SELECT id FROM t WHERE n = %d", rows-3)))
	require.Equal(t, "23505", s.code("INSERT INTO t VALUES (-1, 5, 'twice')"))
	s.must(fmt.Sprintf("INSERT INTO t VALUES (3, %d, 'free')", rows-4))
	d.crash()
	s = d.connect()
	require.Equal(t, fmt.Sprint(rows), s.row("SELECT count(*) FROM t"))
	require.Equal(t, "23505", s.code("INSERT INTO t VALUES (-1, 5, 'twice')"))
}

// Others write to other tables while rows are put in, take checkpoints and change the schema; those that write to the same table wait.
func TestLargeCopyBesideOthers(t *testing.T) {
	if testing.Short() {
		t.Skip("moves much data")
	}
	const rows = 120_000
	d := open(t)
	s := d.connect()
	s.must("CREATE TABLE t (id int PRIMARY KEY, n int, v text)", "CREATE TABLE u (id int)")
	ctx, cancel := context.WithCancel(d.ctx)
	var work sync.WaitGroup
	for _, q := range []string{"INSERT INTO u VALUES (1)", "INSERT INTO t VALUES (-1, 0, 'x') ON CONFLICT (id) DO UPDATE SET n = t.n + 1", "CHECKPOINT", "CREATE INDEX IF NOT EXISTS t_n ON t (n); DROP INDEX t_n"} {
		o := d.connect()
		work.Go(func() {
			for ctx.Err() == nil {
				o.must(q)
			}
		})
	}
	for i := range 2 {
		require.NoError(t, s.copyFrom("COPY t FROM STDIN", tsv(i*rows, (i+1)*rows)))
		require.Equal(t, fmt.Sprint((i+1)*rows), s.row("SELECT count(*) FROM t WHERE id >= 0"))
	}
	cancel()
	work.Wait()
	s.must("CREATE INDEX t_n ON t (n)")
	require.Equal(t, fmt.Sprint(2*rows/1000), s.row("SELECT count(*) FROM t WHERE n = 7 AND id >= 0"))
	d.crash()
	require.Equal(t, fmt.Sprint(2*rows), d.connect().row("SELECT count(*) FROM t WHERE id >= 0"))
}

// What was put in when the process ends is not there afterwards, nor its file.
func TestCrashInALargeCommit(t *testing.T) {
	for _, point := range []string{"exec/bulk", "wal/sync"} {
		fp, err := failpoint.Parse(point + "=error(broken)")
		require.NoError(t, err)
		d := open(t)
		s := d.connect()
		s.must("CREATE TABLE t (id int PRIMARY KEY, n int, v text)", "INSERT INTO t VALUES (-1, 0, 'x')", "CHECKPOINT")
		d.cfg.Failpoints = fp
		d.crash()
		require.Error(t, d.connect().copyFrom("COPY t FROM STDIN", tsv(0, 120_000)))
		d.cfg.Failpoints = nil
		d.crash()
		require.Equal(t, "-1", d.connect().row("SELECT id FROM t"))
		found, err := filepath.Glob(filepath.Join(d.cfg.DataDir, "wal", "*.side"))
		require.NoError(t, err)
		require.Empty(t, found)
		require.NoError(t, os.WriteFile(filepath.Join(d.cfg.DataDir, "wal", "0000000000000000.side"), []byte("left by a crash"), 0o600))
		d.crash()
		require.NoFileExists(t, filepath.Join(d.cfg.DataDir, "wal", "0000000000000000.side"))
	}
}
