package server_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/streamdb/streamdb/internal/checkpointrows"
	"github.com/streamdb/streamdb/internal/failpoint"
	"github.com/streamdb/streamdb/server"
)

// Under backpressure a checkpoint of a view with unaligned ones takes far less time than what is queued, is shown as such with what was in flight, and after
// a crash, with another parallelism too, no row is lost or counts twice.
func TestUnalignedCheckpointsInSQL(t *testing.T) {
	checkpointrows.Shows(t, 5, 21, 22, 27)
	points := failpoint.New()
	d := open(t, func(c *server.Config) { c.Failpoints = points })
	s := d.connect()
	s.must(`CREATE SOURCE b WITH (connector = 'nexmark', nexmark.table.type = 'Bid', nexmark.event.num = 200000, nexmark.split.num = 3)`, "SET parallelism = 2", "SET background_ddl = on")
	require.NoError(t, points.Change("exec/take=delay(100ms)"))
	s.must("CREATE MATERIALIZED VIEW v WITH (execution.checkpointing.unaligned.enabled) AS SELECT auction, count(*) AS n, max(price) AS m FROM (SELECT DISTINCT auction, bidder, price, date_time FROM b) AS x GROUP BY auction")
	s.until("SELECT state FROM streamdb.jobs WHERE name = 'v'", "RUNNING")
	began := time.Now()
	require.Eventually(t, func() bool {
		s.must("CHECKPOINT v")
		return s.row("SELECT count(*) > 0 FROM streamdb.checkpoint_subtasks WHERE unaligned AND persisted_bytes > 0") == "t"
	}, 30*time.Second, 50*time.Millisecond)
	t.Log("after", time.Since(began))
	d.crash()
	require.NoError(t, points.Change("exec/take=off"))
	s = d.connect()
	s.must("ALTER MATERIALIZED VIEW v SET PARALLELISM = 3", "WAIT v")
	s.must("SET background_ddl = off", "CREATE MATERIALIZED VIEW ref AS SELECT count(*) AS n, max(price) AS m FROM (SELECT DISTINCT auction, bidder, price, date_time FROM b) AS x")
	want := s.row("SELECT * FROM ref")
	require.Equal(t, want, s.row("SELECT sum(n), max(m) FROM v"))
}
