package server_test

import (
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/streamdb/streamdb/internal/checkpointrows"
	"github.com/streamdb/streamdb/internal/failpoint"
	"github.com/streamdb/streamdb/server"
)

// EXPLAIN CHECKPOINT names the phase in which the time went.
func TestExplainCheckpoint(t *testing.T) {
	checkpointrows.Shows(t, 63)
	fp, err := failpoint.Parse("exec/snapshot=delay(0s)*1")
	require.NoError(t, err)
	d := open(t, func(c *server.Config) {
		c.Failpoints, c.Settings = fp, map[string]string{"execution.checkpointing.interval": "0"}
	})
	s := d.connect()
	s.must("CREATE TABLE t (k int)", "CREATE MATERIALIZED VIEW m WITH (parallelism = 2) AS SELECT k, count(*) AS n FROM t GROUP BY k")
	s.fails("EXPLAIN CHECKPOINT", "42704", "there is no checkpoint in the history")
	explain := func(faults string) string {
		t.Helper()
		require.NoError(t, fp.Change(faults))
		s.must("INSERT INTO t SELECT generate_series(1, 100)", "FLUSH")
		id := s.row("SELECT streamdb.checkpoint('m')")
		require.NoError(t, fp.Change(strings.SplitN(faults, "=", 2)[0]+"=off"))
		return strings.Join(s.rows("EXPLAIN CHECKPOINT "+id+" FOR m"), "\n")
	}
	require.Contains(t, explain("exec/snapshot=delay(300ms)"), "Slowest phase: async, 3", "a slow disk")
	text := explain("checkpoint/before-upload=delay(300ms)")
	require.Contains(t, text, "Slowest phase: publication, 3", "a slow store")
	require.Contains(t, text, "m: COMPLETED after 3")
	require.Regexp(t, `Slowest subtask: \d+/[01], of 4 \([a-z]+(, [a-z]+)*\)`, text)
	id := s.row("SELECT max(checkpoint_id) FROM streamdb.checkpoints")
	require.Contains(t, strings.Join(s.rows("EXPLAIN CHECKPOINT "+id), "\n"), "tables: COMPLETED")
	newest := s.rows("EXPLAIN CHECKPOINT")
	require.Equal(t, append([]string{"Checkpoint " + id}, s.rows("EXPLAIN CHECKPOINT "+id)...), newest)
	require.Equal(t, append([]string{"Checkpoint " + id}, s.rows("EXPLAIN CHECKPOINT "+id+" FOR m")...), s.rows("EXPLAIN CHECKPOINT FOR m"))
	s.fails("EXPLAIN CHECKPOINT FOR nope", "42P01", "")
	s.fails("EXPLAIN CHECKPOINT -1", "22023", "")
	s.fails("EXPLAIN CHECKPOINT x", "42601", "")
	s.fails("EXPLAIN CHECKPOINT 99999", "42704", "there is no checkpoint 99999 in the history")
	s.fails("EXPLAIN CHECKPOINT "+id+" FOR t", "42809", "")

	require.NoError(t, fp.Change("checkpoint/before-upload=error(no)*1"))
	s.must("INSERT INTO t VALUES (1)")
	require.NotEmpty(t, s.code("CHECKPOINT"))
	require.Equal(t, "FINALIZE_CHECKPOINT_FAILURE|t", s.row("SELECT failure_reason, full_size > 0 FROM streamdb.checkpoints WHERE job_id <> 1 AND status = 'FAILED' ORDER BY checkpoint_id DESC LIMIT 1"))
}

// A full checkpoint writes all there is, though only a row is new.
func TestFullCheckpointOnRequest(t *testing.T) {
	checkpointrows.Shows(t, 39)
	d := open(t, func(c *server.Config) { c.Settings = map[string]string{"execution.checkpointing.interval": "0"} })
	s := d.connect()
	s.must("CREATE TABLE t (k int, v text)", "INSERT INTO t SELECT i, repeat(md5(i::text), 20) FROM generate_series(1, 2000) AS i", "CHECKPOINT", "INSERT INTO t VALUES (0, '')")
	uploaded := func(id string) int {
		n, err := strconv.Atoi(s.row("SELECT uploaded_bytes FROM streamdb.checkpoints WHERE job_id = 1 AND checkpoint_id = " + id))
		require.NoError(t, err)
		return n
	}
	little := uploaded(s.row("SELECT streamdb.checkpoint()"))
	all := uploaded(s.row("SELECT streamdb.checkpoint(type => 'full')"))
	require.Greater(t, all, 20*little)
	require.Equal(t, strconv.Itoa(all), s.row("SELECT full_size FROM streamdb.checkpoints WHERE job_id = 1 ORDER BY checkpoint_id DESC LIMIT 1"))
	s.must("CHECKPOINT WITH (type = full)", "INSERT INTO t VALUES (0, '')", "CHECKPOINT WITH (type = incremental)")
	s.fails("CHECKPOINT WITH (type = half)", "22023", "")
	s.fails("CHECKPOINT WITH (speed = full)", "22023", "unrecognized parameter \"speed\"")
	d.crash()
	require.Equal(t, "2002", d.connect().row("SELECT count(*) FROM t"))
}
