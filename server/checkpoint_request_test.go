package server_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/streamdb/streamdb/internal/failpoint"
	"github.com/streamdb/streamdb/server"
)

// A checkpoint that takes too long is given up, and whoever asked for it is told so with an SQLSTATE, the name of what was late and what to do.
func TestCheckpointThatExpires(t *testing.T) {
	points := failpoint.New()
	d := open(t, func(c *server.Config) {
		c.Settings = map[string]string{"execution.checkpointing.interval": "0", "execution.checkpointing.tolerable-failed-checkpoints": "1000"}
		c.Failpoints = points
	})
	s := d.connect()
	s.must("CREATE TABLE t (k int)", "CREATE MATERIALIZED VIEW m AS SELECT count(*) AS n FROM t")
	dir := "file://" + t.TempDir()
	for _, statement := range []string{"CHECKPOINT", "CHECKPOINT m", "SELECT streamdb.checkpoint('m')", "SELECT streamdb.savepoint('" + dir + "')", "SELECT streamdb.savepoint('" + dir + "', relation => 'm')"} {
		for _, where := range []string{"exec/snapshot", "checkpoint/before-upload"} {
			if where != "exec/snapshot" && statement[0] == 'S' {
				continue
			}
			s.must("INSERT INTO t VALUES (1)", "CHECKPOINT", "ALTER SYSTEM SET execution.checkpointing.timeout = '100ms'", "INSERT INTO t VALUES (2)")
			require.NoError(t, points.Change(where+"=delay(600ms)"))
			e := s.fails(statement, "57014", "")
			require.Regexp(t, `^(checkpoint|savepoint) \d+ .*expired before completing`, e.Message, "%s, %s", statement, where)
			require.Contains(t, e.Hint, "execution.checkpointing.timeout")
			require.NoError(t, points.Change(where+"=off"))
			s.must("ALTER SYSTEM RESET execution.checkpointing.timeout")
		}
	}
}

// The checkpoint of a relation that cannot take part fails, and names it; one of everything goes on without it.
func TestCheckpointOfWhatDoesNotRun(t *testing.T) {
	points := failpoint.New()
	d := open(t, func(c *server.Config) {
		c.Settings, c.Failpoints = map[string]string{"execution.checkpointing.interval": "0"}, points
	})
	s := d.connect()
	s.must("CREATE TABLE t (k int)", "CREATE MATERIALIZED VIEW m AS SELECT k FROM t", "CREATE MATERIALIZED VIEW above AS SELECT count(*) AS n FROM m", "CHECKPOINT m")
	refused := func() {
		t.Helper()
		for _, name := range []string{"m", "above"} {
			for _, statement := range []string{"CHECKPOINT " + name, "SELECT streamdb.checkpoint('" + name + "')", "SELECT streamdb.savepoint('file://" + t.TempDir() + "', relation => '" + name + "')"} {
				e := s.fails(statement, "55000", "")
				require.Contains(t, e.Message, `" cannot take part in a checkpoint: `, statement)
				require.NotRegexp(t, `job \d`, e.Message, statement)
				require.Contains(t, e.Hint, "RUNNING")
			}
		}
		s.must("CHECKPOINT", "CHECKPOINT t")
	}
	s.must("PAUSE m", "INSERT INTO t VALUES (1)")
	refused()
	s.must("RESUME m")
	s.until("SELECT k FROM m", "1")
	require.NoError(t, points.Change("exec/after-restore=error(not yet)"))
	require.NoError(t, points.Change("exec/take=error(no)*1"))
	s.must("INSERT INTO t VALUES (2)")
	s.until("SELECT state <> 'RUNNING' FROM streamdb.jobs WHERE name = 'm'", "t")
	refused()
	require.NoError(t, points.Change("exec/after-restore=off"))
	s.until("SELECT state FROM streamdb.jobs WHERE name = 'm'", "RUNNING")
	s.must("CHECKPOINT m", "CHECKPOINT above")
}
