package server_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/streamdb/streamdb/internal/checkpointrows"
	"github.com/streamdb/streamdb/server"
)

// Checkpoints in memory: a job that fails goes on from them; after the end of the process there are none, but tables have their whole log.
func TestCheckpointsInMemory(t *testing.T) {
	checkpointrows.Shows(t, 68)
	d := open(t, func(c *server.Config) {
		c.CheckpointDir = "memory://"
		c.Settings = map[string]string{"execution.checkpointing.interval": "0"}
	})
	c := d.connect()
	c.must("CREATE TABLE t (k int PRIMARY KEY, v int)", "CREATE MATERIALIZED VIEW s AS SELECT count(*) AS n, sum(v) AS v FROM t")
	for range 3 {
		c.must("INSERT INTO t SELECT max, max FROM (SELECT coalesce(max(k), 0) + 1 AS max FROM t) AS m", "CHECKPOINT")
	}
	c.must("RECOVER", "FLUSH")
	require.Equal(t, "3|6", c.row("SELECT * FROM s"))
	c.must("INSERT INTO t VALUES (4, 4)", "DELETE FROM t WHERE k = 1", "CHECKPOINT", "INSERT INTO t VALUES (5, 5)")
	d.crash()
	c = d.connect()
	require.Equal(t, "0", c.row("SELECT count(*) FROM streamdb.checkpoints"))
	c.must("FLUSH")
	require.Equal(t, []string{"2|2", "3|3", "4|4", "5|5"}, c.rows("SELECT * FROM t ORDER BY k"))
	require.Equal(t, "4|14", c.row("SELECT * FROM s"))
	c.must("ALTER SYSTEM SET execution.checkpointing.memory-limit = '100'", "INSERT INTO t SELECT i, i FROM generate_series(10, 1000) AS i")
	e := c.fails("CHECKPOINT", "53400", "")
	require.Contains(t, e.Hint, "execution.checkpointing.memory-limit")
	require.Equal(t, "995", c.row("SELECT count(*) FROM t"))
	require.Equal(t, "0", c.row("SELECT count(*) FROM streamdb.jobs WHERE last_error IS NOT NULL"))
}
