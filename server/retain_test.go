package server_test

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/streamdb/streamdb/checkpoint"
	"github.com/streamdb/streamdb/internal/checkpointrows"
	"github.com/streamdb/streamdb/internal/failpoint"
	"github.com/streamdb/streamdb/server"
)

// kept returns the paths that NOTICEs of the last statements have told of.
func (s *session) kept() []string {
	var paths []string
	for _, n := range s.notices {
		if _, path, ok := strings.Cut(n.Message, " is kept at "); ok {
			paths = append(paths, path)
		}
	}
	return paths
}

// What becomes of the checkpoints of a view that runs, has failed, or whose source has ended: they stay as long as it is there, also over a restart of the server, and
// when it is dropped the policy decides.
func TestRetentionOfDroppedViews(t *testing.T) {
	checkpointrows.Shows(t, 94, 97)
	for _, state := range []string{"running", "failed", "finished"} {
		for _, policy := range checkpoint.Retentions {
			t.Run(state+" "+policy, func(t *testing.T) {
				points, root := failpoint.New(), t.TempDir()
				d := open(t, func(c *server.Config) {
					c.Failpoints = points
					c.Settings = map[string]string{checkpoint.SettingInterval: "0", checkpoint.SettingSavepointDirectory: root, checkpoint.SettingRetained: "1"}
				})
				dir := filepath.Join(d.cfg.DataDir, "checkpoints")
				s := d.connect()
				const events = 20000
				from := fmt.Sprintf("generate_series(1, %d)", events)
				s.must("CREATE TABLE t (a text)", "INSERT INTO t SELECT md5(g::text) FROM "+from+" g")
				query := "SELECT a, count(*) AS n FROM t GROUP BY a"
				if state == "finished" {
					s.must(fmt.Sprintf("CREATE SOURCE b WITH (connector = 'nexmark', nexmark.table.type = 'Bid', nexmark.event.num = %d)", events))
					query = "SELECT md5(price || ' ' || date_time || ' ' || bidder) AS a, count(*) AS n FROM b GROUP BY 1"
				}
				s.must("CREATE MATERIALIZED VIEW m WITH ("+checkpoint.SettingExternalRetention+" = '"+policy+"') AS "+query, "FLUSH", "CHECKPOINT")
				rows, id := s.row("SELECT count(*) || ' ' || sum(n) FROM m"), s.row("SELECT job_id FROM streamdb.jobs WHERE name = 'm'")
				require.NotEqual(t, "0 ", rows)
				// in tells whether the checkpoints have the view, and whether objects of it are there.
				in := func() (manifest, objects bool) {
					o, err := checkpoint.OpenPath(d.ctx, dir)
					require.NoError(t, err)
					files, err := filepath.Glob(filepath.Join(dir, "data", "*", id, "*"))
					require.NoError(t, err)
					for _, js := range o.Jobs {
						manifest = manifest || js.Name == "m"
					}
					return manifest, len(files) > 0
				}
				there := func() {
					t.Helper()
					manifest, objects := in()
					require.True(t, manifest && objects)
				}
				there()
				d.crash()
				s = d.connect()
				there()
				if state == "failed" {
					require.NoError(t, points.Change("exec/snapshot=error(no)*1;exec/after-restore=error(no)"))
					s.must("INSERT INTO t VALUES ('x')", "FLUSH")
					_ = s.code("CHECKPOINT")
					s.until("SELECT state FROM streamdb.jobs WHERE name = 'm'", "RESTARTING")
					rows = fmt.Sprintf("%d %[1]d", events+1) // the table's next checkpoint has the row, and what the view has missed is made up for
				}
				_ = s.code("CHECKPOINT")
				there()
				require.Empty(t, s.kept())
				s.must("DROP MATERIALIZED VIEW m", "CHECKPOINT")
				require.Eventually(t, func() bool {
					manifest, objects := in()
					return !manifest && !objects
				}, testTimeout, 10e6, "nothing of it is left in the checkpoints")
				folders, err := filepath.Glob(filepath.Join(root, "savepoint-*"))
				require.NoError(t, err)
				if policy != "RETAIN_ON_CANCELLATION" {
					require.Empty(t, s.kept())
					require.Empty(t, folders)
					return
				}
				require.Len(t, s.kept(), 1)
				require.Len(t, folders, 1)
				o, err := checkpoint.OpenPath(d.ctx, s.kept()[0])
				require.NoError(t, err)
				require.True(t, o.Savepoint)
				require.Equal(t, checkpoint.FormNative, o.Form)
				s.must("DROP TABLE t", "CHECKPOINT") // needs nothing of the database that it comes from
				two := open(t, func(c *server.Config) { c.Settings = map[string]string{checkpoint.SettingRecoveryPath: s.kept()[0]} })
				require.Equal(t, rows, two.connect().row("SELECT count(*) || ' ' || sum(n) FROM m"))
				require.Equal(t, "t", s.row("SELECT streamdb.dispose_savepoint('"+s.kept()[0]+"')"))
			})
		}
	}
}

// The setting needs a folder when it is made and when it is followed, is that of the server unless a view has its own, and what it leaves goes again with a
// transaction that is rolled back.
func TestRetainedCheckpoints(t *testing.T) {
	checkpointrows.Shows(t, 94)
	d := open(t, func(c *server.Config) { c.Settings = map[string]string{checkpoint.SettingInterval: "0"} })
	s := d.connect()
	const set, message = "SET execution.checkpointing.externalized-checkpoint-retention = 'retain_on_cancellation'", "execution.checkpointing.externalized-checkpoint-retention = RETAIN_ON_CANCELLATION needs a folder for savepoints"
	s.must("CREATE TABLE t (a int)", "INSERT INTO t VALUES (1), (2)", "CREATE MATERIALIZED VIEW m AS SELECT count(*) AS n FROM t", "CREATE MATERIALIZED VIEW mm AS SELECT n + 1 AS n FROM m")
	for _, q := range []string{
		set, "ALTER SYSTEM " + set, "ALTER MATERIALIZED VIEW m SET (execution.checkpointing.externalized-checkpoint-retention = 'RETAIN_ON_CANCELLATION')",
		"CREATE MATERIALIZED VIEW x WITH (execution.checkpointing.externalized-checkpoint-retention = 'RETAIN_ON_CANCELLATION') AS SELECT a FROM t",
	} {
		require.Equal(t, "Set execution.checkpointing.savepoint-dir with ALTER SYSTEM first.", s.fails(q, "22023", message).Hint, q)
	}
	s.fails("SET execution.checkpointing.externalized-checkpoint-retention = 'forever'", "22023", "")
	root := t.TempDir()
	folders := func() int {
		list, err := filepath.Glob(filepath.Join(root, "savepoint-*", "manifest"))
		require.NoError(t, err)
		return len(list)
	}
	s.must("ALTER SYSTEM SET execution.checkpointing.savepoint-dir = '"+root+"'", "ALTER SYSTEM "+set, "CREATE MATERIALIZED VIEW early AS SELECT max(a) FROM t",
		"ALTER MATERIALIZED VIEW m SET (execution.checkpointing.externalized-checkpoint-retention = 'DELETE_ON_CANCELLATION')")
	s.must("DROP MATERIALIZED VIEW early")
	require.Equal(t, `no completed checkpoint has "early": nothing of it is kept`, s.notices[len(s.notices)-1].Message)
	s.must("CHECKPOINT", "ALTER SYSTEM RESET execution.checkpointing.savepoint-dir")
	s.fails("DROP MATERIALIZED VIEW mm", "22023", message)
	s.must("ALTER SYSTEM SET execution.checkpointing.savepoint-dir = '" + filepath.Join(root, "file") + "'")
	require.NoError(t, os.WriteFile(filepath.Join(root, "file"), nil, 0o600))
	require.NotEmpty(t, s.code("DROP MATERIALIZED VIEW mm"), "a folder that cannot be written")
	require.Equal(t, "3", s.row("SELECT n FROM mm"), "it is not dropped then")
	require.NoError(t, os.Remove(filepath.Join(root, "file")))
	s.must("ALTER SYSTEM SET execution.checkpointing.savepoint-dir = '" + root + "'")
	s.must("BEGIN", "DROP MATERIALIZED VIEW mm")
	require.Equal(t, 1, folders())
	s.must("ROLLBACK")
	require.Zero(t, folders())
	s.notices = nil
	s.must("DROP TABLE t CASCADE")
	require.Len(t, s.kept(), 1, "of the two views only one keeps its own")
	two := from(t, s.kept()[0])
	require.Equal(t, "2|2|3", two.connect().row("SELECT (SELECT count(*) FROM t), (SELECT n FROM m), (SELECT n FROM mm)"))
}

// A checkpoint with rows in flight is kept with them.
func TestRetainedUnalignedCheckpoint(t *testing.T) {
	checkpointrows.Shows(t, 94)
	points := failpoint.New()
	d := open(t, func(c *server.Config) {
		c.Failpoints = points
		c.Settings = map[string]string{
			checkpoint.SettingInterval: "0", checkpoint.SettingSavepointDirectory: t.TempDir(), checkpoint.SettingExternalRetention: "RETAIN_ON_CANCELLATION",
		}
	})
	s := d.connect()
	s.must("CREATE SOURCE b WITH (connector = 'nexmark', nexmark.table.type = 'Bid', nexmark.event.num = 200000, nexmark.split.num = 3)", "SET parallelism = 2", "SET background_ddl = on")
	require.NoError(t, points.Change("exec/take=delay(100ms)"))
	s.must("CREATE MATERIALIZED VIEW v WITH (execution.checkpointing.unaligned.enabled) AS SELECT auction, count(*) AS n, max(price) AS m FROM (SELECT DISTINCT auction, bidder, price, date_time FROM b) AS x GROUP BY auction")
	s.until("SELECT state FROM streamdb.jobs WHERE name = 'v'", "RUNNING")
	require.Eventually(t, func() bool {
		s.must("CHECKPOINT v")
		o, err := checkpoint.OpenPath(d.ctx, filepath.Join(d.cfg.DataDir, "checkpoints"))
		require.NoError(t, err)
		for _, js := range o.Jobs {
			if len(js.Inflight) > 0 {
				return true
			}
		}
		return false
	}, testTimeout, 50e6)
	s.must("DROP MATERIALIZED VIEW v")
	require.NoError(t, points.Change("exec/take=off"))
	require.Len(t, s.kept(), 1)
	s.must("SET background_ddl = off", "CREATE MATERIALIZED VIEW ref AS SELECT count(*) AS n, max(price) AS m FROM (SELECT DISTINCT auction, bidder, price, date_time FROM b) AS x")
	two := from(t, s.kept()[0]).connect()
	two.until("SELECT sum(n), max(m) FROM v", s.row("SELECT * FROM ref"))
}
