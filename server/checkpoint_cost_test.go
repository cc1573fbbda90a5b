package server_test

import (
	"fmt"
	"strconv"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/streamdb/streamdb/internal/checkpointrows"
	"github.com/streamdb/streamdb/server"
)

// TestCheckpointsCostWhatChanged: what a checkpoint writes follows what changed since the one before, however large the state is, and however many there are.
func TestCheckpointsCostWhatChanged(t *testing.T) {
	checkpointrows.Shows(t, 83, 89)
	d := open(t, func(c *server.Config) { c.Memory = 64 << 20 })
	s := d.connect()
	s.must("CREATE TABLE t (k int PRIMARY KEY, v text)", "CREATE MATERIALIZED VIEW m AS SELECT k, v, length(v) AS n FROM t")
	newest := func(column string) int64 {
		n, err := strconv.ParseInt(s.row("SELECT sum("+column+") FROM streamdb.checkpoints WHERE checkpoint_id = (SELECT max(checkpoint_id) FROM streamdb.checkpoints)"), 10, 64)
		require.NoError(t, err)
		return n
	}
	var uploads []int64
	rows := 0
	for _, size := range []int{2_000, 40_000} {
		s.must(fmt.Sprintf("INSERT INTO t SELECT g, md5(g::text) || md5((g + 1)::text) || md5((g + 2)::text) || md5((g + 3)::text) FROM generate_series(%d, %d) g", rows+1, size), "FLUSH", "CHECKPOINT")
		rows = size
		full := int64(0)
		for round := range 5 {
			// The same number of rows all over the table each time, with as much new text.
			s.must(fmt.Sprintf("UPDATE t SET v = left(v, -8) || lpad(to_hex(k * 7 + %d), 8, 'g') WHERE k %% (%d / 100) = %d", round, size, round), "FLUSH", "CHECKPOINT")
			uploads = append(uploads, newest("uploaded_bytes"))
			full = newest("full_size")
		}
		require.Greater(t, full, int64(size*130), "the state holds all rows twice, in the table and in the view")
	}
	// Deltas are merged now and then, so that single ones are larger.
	sum := func(us []int64) (n int64) {
		for _, u := range us {
			n += u
		}
		return n
	}
	small, large := sum(uploads[:5]), sum(uploads[5:])
	changed := int64(5 * 2 * 100 * 145) // rows of table and view
	require.Less(t, small, 4*changed, "%v", uploads)
	require.Less(t, large, 3*small/2, "with twenty times the state: %v", uploads)
	d.crash()
	s = d.connect()
	require.Equal(t, s.row("SELECT count(*), sum(hashtext(v)) FROM t"), s.row("SELECT count(*), sum(hashtext(v)) FROM m"))
}

// TestDefaults: without any setting the state is in Pebble and checkpoints are incremental; with a directory that is all one has to say.
func TestDefaults(t *testing.T) {
	checkpointrows.Shows(t, 140)
	dir := t.TempDir()
	d := open(t, func(c *server.Config) { c.CheckpointDir, c.Settings = "file://"+dir, nil })
	s := d.connect()
	for name, want := range map[string]string{
		"state.backend.type": "pebble", "execution.checkpointing.incremental": "on", "execution.checkpointing.mode": "EXACTLY_ONCE", "execution.checkpointing.unaligned.enabled": "off",
		"execution.checkpointing.num-retained": "1", "execution.checkpointing.max-concurrent-checkpoints": "1", "execution.checkpointing.tolerable-failed-checkpoints": "0",
		"execution.checkpointing.checkpoints-after-tasks-finish": "on",
	} {
		require.Equal(t, want, s.row("SELECT setting FROM streamdb.settings WHERE name = '"+name+"'"), name)
	}
	s.must("CREATE TABLE t (k int)", "CREATE MATERIALIZED VIEW m AS SELECT count(*) AS n FROM t", "INSERT INTO t VALUES (1)", "CHECKPOINT")
	m := d.srv.Coordinator().Latest()
	for _, js := range m.Jobs {
		require.EqualValues(t, "pebble", js.State.Backend)
	}
}

// TestCheckpointsAfterSomeSourcesEnded: with a source that has ended beside one that goes on checkpoints go on, unless that is turned off.
func TestCheckpointsAfterSomeSourcesEnded(t *testing.T) {
	checkpointrows.Shows(t, 120)
	d := open(t)
	s := d.connect()
	s.must(`CREATE SOURCE b WITH (connector = 'nexmark', "nexmark.table.type" = 'Bid', "nexmark.event.num" = '1000')`,
		"CREATE SOURCE endless (id bigint) WITH (connector = 'datagen', datagen.rows.per.second = '1000', fields.id.kind = 'sequence')",
		"CREATE MATERIALIZED VIEW m AS SELECT kind, count(*) AS n FROM (SELECT 'bid' AS kind FROM b UNION ALL SELECT 'row' FROM endless) AS u GROUP BY kind")
	for s.row("SELECT coalesce(max(n), 0) FROM m WHERE kind = 'bid'") != "920" {
		s.must("FLUSH")
	}
	s.must("CHECKPOINT m")
	d.crash()
	s = d.connect()
	require.Equal(t, "920", s.row("SELECT n FROM m WHERE kind = 'bid'"))
	s.must("CHECKPOINT m", "ALTER MATERIALIZED VIEW m SET (execution.checkpointing.checkpoints-after-tasks-finish = off)")
	for s.code("CHECKPOINT m") != "55000" { // until the barrier after its end
		s.must("FLUSH")
	}
	require.Equal(t, "NOT_ALL_REQUIRED_TASKS_RUNNING",
		s.row("SELECT failure_reason FROM streamdb.checkpoints JOIN streamdb.jobs USING (job_id) WHERE name = 'm' ORDER BY checkpoint_id DESC LIMIT 1"))
	require.Equal(t, "RUNNING", s.row("SELECT state FROM streamdb.jobs WHERE name = 'm'"), "that is no failure of the job")
	s.must("ALTER MATERIALIZED VIEW m SET (execution.checkpointing.checkpoints-after-tasks-finish = on)", "CHECKPOINT m")
}
