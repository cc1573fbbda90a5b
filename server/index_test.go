package server_test

import (
	"context"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/streamdb/streamdb/internal/failpoint"
	"github.com/streamdb/streamdb/server"
)

func TestUniqueIndexesSurviveCrashes(t *testing.T) {
	bucket := t.TempDir()
	d := open(t, func(c *server.Config) { c.CheckpointDir = "file://" + bucket })
	held := func(rows string) {
		t.Helper()
		s := d.connect()
		require.Equal(t, rows, s.row("SELECT count(*), count(DISTINCT a) FROM t"))
		pe := s.fails("INSERT INTO t VALUES (1000, 3, 'x')", "23505", `duplicate key value violates unique constraint "t_a_key"`)
		require.Equal(t, "Key (a)=(3) already exists.", pe.Detail)
		require.Equal(t, []string{"public", "t", "t_a_key"}, []string{pe.SchemaName, pe.TableName, pe.ConstraintName})
		s.fails("INSERT INTO t VALUES (1000, 1000, 'B3')", "23505", `duplicate key value violates unique constraint "t_lower_idx"`)
	}
	d.connect().must("CREATE TABLE t (id int PRIMARY KEY, a int UNIQUE, b text)", "INSERT INTO t SELECT g, g, 'b' || g FROM generate_series(1, 5) g", "CHECKPOINT",
		// Over the state of the checkpoint there are rows that are equal; the index came after they were not.
		"INSERT INTO t VALUES (6, NULL, 'b1')", "CHECKPOINT", "UPDATE t SET b = 'b6' WHERE id = 6", "CREATE UNIQUE INDEX ON t (lower(b))")
	held("6|5")
	d.crash()
	held("6|5")
	d.connect().must("CHECKPOINT", "UPDATE t SET a = a + 100 WHERE id = 2", "INSERT INTO t VALUES (7, 2, 'b7')")
	d.crash()
	held("7|6")
	d.connect().must("CHECKPOINT")
	d.connect().fails("INSERT INTO t VALUES (1000, 102, 'x')", "23505", "")
	d.crash()
	held("7|6")
	d.connect().must("CHECKPOINT", "DELETE FROM t WHERE id = 7", "CHECKPOINT")
	require.NoError(t, d.srv.Abort())
	d.cfg.DataDir = t.TempDir()
	d.start()
	held("6|5")
	d.connect().must("INSERT INTO t VALUES (7, 2, 'b7')", "DROP INDEX t_lower_idx", "INSERT INTO t VALUES (8, 8, 'b7')")
	d.crash()
	d.connect().must("INSERT INTO t VALUES (9, 9, 'b7')")
	d.connect().fails("CREATE UNIQUE INDEX x ON t (b)", "23505", `could not create unique index "x"`)
	d.connect().must("DELETE FROM t WHERE id > 7", "CREATE UNIQUE INDEX x ON t (b)")
	d.connect().fails("INSERT INTO t VALUES (9, 9, 'b7')", "23505", "")
}

// TestUnfinishedIndexDoesNotOutliveACrash opens a copy of the data directory as it is while an index is filled: what kill -9 would leave.
func TestUnfinishedIndexDoesNotOutliveACrash(t *testing.T) {
	fp, err := failpoint.Parse("exec/fill-index=delay(1s)")
	require.NoError(t, err)
	d := open(t, func(c *server.Config) { c.Failpoints = fp })
	s := d.connect()
	s.must("CREATE TABLE t (id int PRIMARY KEY, a int)", "INSERT INTO t SELECT g, g FROM generate_series(1, 5000) g", "CHECKPOINT")
	ctx, cancel := context.WithCancel(d.ctx)
	done := make(chan error, 1)
	maker := d.connect()
	go func() {
		_, err := maker.Exec(ctx, "CREATE UNIQUE INDEX x ON t (a)")
		done <- err
	}()
	require.Eventually(t, func() bool {
		return s.row("SELECT count(*) FROM pg_index WHERE indrelid = 't'::regclass AND NOT indisvalid") == "1"
	}, 10*time.Second, 5*time.Millisecond)
	// The table goes on while it is filled.
	s.must("INSERT INTO t VALUES (6000, 6000)", "UPDATE t SET a = -1 WHERE id = 1", "UPDATE t SET a = 7777 WHERE id = 7")
	copied := filepath.Join(t.TempDir(), "copy")
	require.NoError(t, os.CopyFS(copied, os.DirFS(d.cfg.DataDir)))
	cancel()
	require.Error(t, <-done)
	require.Eventually(t, func() bool { return s.row("SELECT count(*) FROM pg_class WHERE relname = 'x'") == "0" }, 10*time.Second, 5*time.Millisecond,
		"a cancelled creation leaves nothing")
	require.NoError(t, d.srv.Abort())
	d.cfg.DataDir, d.cfg.Failpoints = copied, nil
	d.start()
	s = d.connect()
	require.Equal(t, "0", s.row("SELECT count(*) FROM pg_class WHERE relname = 'x'"))
	require.Equal(t, "5001", s.row("SELECT count(*) FROM t"))
	s.must("CREATE UNIQUE INDEX x ON t (a)")
	s.fails("INSERT INTO t VALUES (7000, 7777)", "23505", "")
	s.must("INSERT INTO t VALUES (7000, 1)", "INSERT INTO t VALUES (7001, 7)")
	d.crash()
	d.connect().fails("INSERT INTO t VALUES (7002, 7)", "23505", "")
}
