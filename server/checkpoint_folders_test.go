package server_test

import (
	"bytes"
	"context"
	"encoding/binary"
	"fmt"
	"hash/crc32"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/rs/zerolog"
	"github.com/stretchr/testify/require"

	"github.com/streamdb/streamdb/checkpoint"
	"github.com/streamdb/streamdb/connector/all"
	"github.com/streamdb/streamdb/server"
)

// notAFolder are URLs that no checkpoint or savepoint can be at, with what is said about them.
var notAFolder = map[string]string{
	"backup": "relative path", "./backup": "relative path", "../backup": "relative path", "file://backup": "names a host", "file://host/backup": "names a host",
	"file://./backup": "relative path", "file://": "folder is missing", "s3://": "bucket is missing", "s3://b?endpont=x": "unknown parameter", "s3://k:s@b": "credentials",
}

// A folder for checkpoints or savepoints is looked at when it is named, wherever it is named, and nothing is written below the working directory.
func TestFoldersOfCheckpointsAreChecked(t *testing.T) {
	t.Chdir(t.TempDir())
	d := open(t)
	s := d.connect()
	s.must("CREATE TABLE t (a int)", "CREATE SOURCE src (a int) WITH (connector = 'file', path = '/nowhere/*') FORMAT PLAIN ENCODE JSON", "CREATE MATERIALIZED VIEW m AS SELECT count(*) AS n FROM t")
	for _, unknown := range []string{"ftp://x", "hdfs://namenode/x"} {
		require.NotEmpty(t, s.fails("ALTER SYSTEM SET execution.checkpointing.savepoint-dir = '"+unknown+"'", "0A000", "").Hint)
		require.NotEmpty(t, s.fails("SELECT streamdb.savepoint('"+unknown+"')", "0A000", "").Hint)
	}
	for url, why := range notAFolder {
		e := s.fails("ALTER SYSTEM SET execution.checkpointing.savepoint-dir = '"+url+"'", "22023", fmt.Sprintf("invalid value for parameter %q: %q", checkpoint.SettingSavepointDirectory, url))
		require.Contains(t, e.Detail, why, url)
		require.NotEmpty(t, e.Hint, url)
		for _, q := range []string{
			"SELECT streamdb.savepoint('%s')", "SELECT streamdb.savepoint('%s', relation => 'm', format => 'canonical')", "SELECT streamdb.stop_with_savepoint('m', '%s')",
			"SELECT streamdb.dispose_savepoint('%s')", "SELECT * FROM streamdb.read_checkpoint('%s', 't')",
			`CREATE MATERIALIZED VIEW v WITH ("execution.state-recovery.path" = '%s') AS SELECT count(*) FROM src`,
		} {
			e := s.fails(fmt.Sprintf(q, url), "22023", "")
			require.Contains(t, e.Message, why, q)
			require.NotEmpty(t, e.Hint, q)
		}
		for _, name := range []string{checkpoint.SettingSavepointDirectory, checkpoint.SettingRecoveryPath, checkpoint.SettingDirectory} {
			_, err := server.Open(d.ctx, server.Config{DataDir: t.TempDir(), Connectors: all.Builtin(), Settings: map[string]string{name: url}})
			require.ErrorContains(t, err, fmt.Sprintf("invalid value for parameter %q: %q", name, url))
		}
		if strings.Contains(url, "://") {
			_, err := server.Open(d.ctx, server.Config{DataDir: t.TempDir(), Connectors: all.Builtin(), CheckpointDir: url})
			require.ErrorContains(t, err, why)
		}
	}
	s.fails("ALTER SYSTEM SET execution.checkpointing.savepoint-dir = 'memory://x'", "22023", "")
	s.must("ALTER SYSTEM SET execution.checkpointing.savepoint-dir = ''")
	e := s.fails("SELECT streamdb.savepoint('file:///proc/x')", "58030", "")
	require.Contains(t, e.Message, "the folder cannot be made")
	require.NotContains(t, e.Message, "object does not exist")
	require.Equal(t, "RUNNING", s.row("SELECT state FROM streamdb.jobs WHERE name = 'm'"))
	left, err := os.ReadDir(".")
	require.NoError(t, err)
	require.Empty(t, left)
}

// The checkpoint directory may be relative to the working directory, as the data directory, and be named by the setting.
func TestCheckpointDirectoryIsASetting(t *testing.T) {
	t.Chdir(t.TempDir())
	here, err := os.Getwd()
	require.NoError(t, err)
	for want, change := range map[string]func(*server.Config){
		filepath.Join(here, "flag"): func(c *server.Config) { c.CheckpointDir = "flag" },
		"file://" + filepath.Join(here, "setting"): func(c *server.Config) {
			c.Settings = map[string]string{checkpoint.SettingDirectory: "file://" + filepath.Join(here, "setting")}
		},
		"file://" + filepath.Join(here, "old"): func(c *server.Config) {
			c.Settings = map[string]string{"state.checkpoints.dir": "file://" + filepath.Join(here, "old")}
		},
		"file://" + filepath.Join(here, "wins"): func(c *server.Config) {
			c.CheckpointDir, c.Settings = "file://"+filepath.Join(here, "wins"), map[string]string{checkpoint.SettingDirectory: "file:///nowhere"}
		},
		"file://" + filepath.Join(here, "data%2520%20dir", "checkpoints"): func(c *server.Config) { c.DataDir = "data%20 dir" },
	} {
		s := open(t, change).connect()
		require.Equal(t, want, s.row("SHOW execution.checkpointing.dir"))
		s.must("CREATE TABLE t (a int)", "INSERT INTO t VALUES (1)", "CHECKPOINT")
		s.fails("ALTER SYSTEM SET execution.checkpointing.dir = '/x'", "55P02", "")
	}
	for _, dir := range []string{"flag", "setting", "old", "wins", "data%20 dir/checkpoints"} {
		require.FileExists(t, filepath.Join(here, dir, "HEAD"))
	}
}

// The configuration may use the names of settings that older programs have, which is logged; in SQL it is a notice. A current name wins over an older one.
func TestOlderNamesInTheConfiguration(t *testing.T) {
	root, old := t.TempDir(), t.TempDir()
	var log strings.Builder
	d := open(t, func(c *server.Config) {
		c.Logger = zerolog.New(zerolog.SyncWriter(&log))
		c.Settings = map[string]string{
			"state.savepoints.dir": root, "state.backend": "hashmap", "state.storage.fs.memory-threshold": "1kB",
			"state.checkpoints.num-retained": "7", "execution.checkpointing.num-retained": "3", "execution.savepoint-restore-mode": "CLAIM",
		}
	})
	s := d.connect()
	require.Equal(t, root+"|memory|1kB|3|CLAIM", s.row(`SELECT string_agg(setting, '|' ORDER BY array_position(ARRAY['execution.checkpointing.savepoint-dir', 'state.backend.type',
		'execution.checkpointing.data-inline-threshold', 'execution.checkpointing.num-retained', 'execution.state-recovery.claim-mode'], name)) FROM streamdb.settings
		WHERE name IN ('execution.checkpointing.savepoint-dir', 'state.backend.type', 'execution.checkpointing.data-inline-threshold', 'execution.checkpointing.num-retained', 'execution.state-recovery.claim-mode')`))
	s.must("ALTER SYSTEM SET state.savepoints.dir = '" + old + "'")
	require.Equal(t, `parameter "state.savepoints.dir" is now called "execution.checkpointing.savepoint-dir"`, s.notices[0].Message)
	s.must("CREATE TABLE t (a int)", "INSERT INTO t VALUES (1), (2)")
	path := s.row("SELECT streamdb.savepoint()")
	require.Equal(t, old, filepath.Dir(path))
	require.NoError(t, d.srv.Close(context.Background()))
	for _, line := range []string{
		`"name":"state.savepoints.dir","now":"execution.checkpointing.savepoint-dir"`, `"name":"state.backend","now":"state.backend.type"`,
		`"name":"state.checkpoints.num-retained","now":"execution.checkpointing.num-retained"`, `"name":"execution.savepoint-restore-mode","now":"execution.state-recovery.claim-mode"`,
	} {
		require.Equal(t, 1, strings.Count(log.String(), line), line)
	}
	require.NotContains(t, log.String(), `"name":"execution.checkpointing.num-retained"`)

	two := open(t, func(c *server.Config) { c.Settings = map[string]string{"execution.savepoint.path": path} })
	require.Equal(t, "2", two.connect().row("SELECT count(*) FROM t"))
}

// Of a savepoint that was removed nothing is left, not even its folder.
func TestDisposedSavepointLeavesNoFolder(t *testing.T) {
	d := open(t)
	s := d.connect()
	s.must("CREATE TABLE t (a int)", "INSERT INTO t SELECT generate_series(1, 100000)", "CREATE MATERIALIZED VIEW m AS SELECT a, count(*) AS n FROM t GROUP BY a")
	root := t.TempDir()
	empty := func() {
		t.Helper()
		left, err := os.ReadDir(root)
		require.NoError(t, err)
		for _, e := range left {
			require.Equal(t, ".tmp", e.Name())
		}
	}
	for _, format := range []string{"native", "canonical"} {
		path := s.row(fmt.Sprintf("SELECT streamdb.savepoint('%s', format => '%s')", root, format))
		require.DirExists(t, path)
		require.Equal(t, "100000", s.row("SELECT count(*) FROM streamdb.read_checkpoint('"+path+"', 'm')"))
		require.NoDirExists(t, filepath.Join(path, ".tmp"), "a savepoint is not written to by who reads it")
		s.must("SELECT streamdb.dispose_savepoint('" + path + "')")
		empty()
	}
	path := s.row("SELECT streamdb.savepoint('" + root + "')")
	two := from(t, path, func(c *server.Config) { c.Settings[checkpoint.SettingClaimMode] = "claim" })
	two.connect().must("CHECKPOINT")
	require.Eventually(t, func() bool { _, err := os.Stat(path); return os.IsNotExist(err) }, testTimeout, 10e6)
	empty()
}

// What ALTER SYSTEM set in an earlier version and this one does not take is left out at the start, with a line in the log.
func TestAlteredSettingThatIsNoLongerGood(t *testing.T) {
	var log lockedLog
	d := open(t, func(c *server.Config) { c.Logger = zerolog.New(&log) })
	s := d.connect()
	s.must("ALTER SYSTEM SET execution.checkpointing.savepoint-dir = '/backup'", "ALTER SYSTEM SET execution.checkpointing.interval = '7s'")
	require.NoError(t, d.srv.Abort())
	path := filepath.Join(d.cfg.DataDir, "settings")
	b, err := os.ReadFile(path)
	require.NoError(t, err)
	head := len("SDBSET") + 10 // magic, version, checksum, length
	body := bytes.Replace(b[head:], []byte("/backup"), []byte("backups"), 1)
	binary.BigEndian.PutUint32(b[len("SDBSET")+2:], crc32.Checksum(body, crc32.MakeTable(crc32.Castagnoli)))
	require.NoError(t, os.WriteFile(path, append(b[:head:head], body...), 0o600))
	d.start()
	s = d.connect()
	require.Equal(t, "7s|", s.row("SHOW execution.checkpointing.interval")+"|"+s.row("SHOW execution.checkpointing.savepoint-dir"))
	require.Contains(t, log.String(), "what ALTER SYSTEM has set is no longer good")
	require.Contains(t, log.String(), checkpoint.SettingSavepointDirectory)
	s.must("ALTER SYSTEM SET execution.checkpointing.interval = '8s'")
	d.crash()
	require.Equal(t, 1, strings.Count(log.String(), "no longer good"))
}

// RESET ALL takes back all that ALTER SYSTEM has set, at once and for good.
func TestAlterSystemResetAll(t *testing.T) {
	d := open(t, func(c *server.Config) { c.Settings = map[string]string{"execution.checkpointing.min-pause": "3s"} })
	s := d.connect()
	s.must("ALTER SYSTEM RESET ALL", "ALTER SYSTEM SET execution.checkpointing.interval = '7s'", "ALTER SYSTEM SET execution.checkpointing.min-pause = '4s'", "ALTER SYSTEM SET TimeZone = 'Asia/Tokyo'",
		"ALTER SYSTEM SET execution.checkpointing.savepoint-dir = '"+t.TempDir()+"'", "ALTER SYSTEM SET execution.checkpointing.externalized-checkpoint-retention = 'RETAIN_ON_CANCELLATION'")
	values := func() string {
		s := d.connect()
		return s.row("SHOW execution.checkpointing.interval") + " " + s.row("SHOW execution.checkpointing.min-pause") + " " + s.row("SHOW TimeZone") + " " + s.row("SHOW execution.checkpointing.externalized-checkpoint-retention")
	}
	require.Equal(t, "7s 4s Asia/Tokyo RETAIN_ON_CANCELLATION", values())
	s.must("BEGIN")
	s.fails("ALTER SYSTEM RESET ALL", "25001", "ALTER SYSTEM cannot run inside a transaction block")
	s.must("ROLLBACK", "CREATE ROLE ann LOGIN", "SET ROLE ann")
	s.fails("ALTER SYSTEM RESET ALL", "42501", "")
	s.must("RESET ROLE", "ALTER SYSTEM RESET ALL")
	require.Equal(t, "10s 3s UTC NO_EXTERNALIZED_CHECKPOINTS", values())
	d.crash()
	require.Equal(t, "10s 3s UTC NO_EXTERNALIZED_CHECKPOINTS", values())
	d.connect().fails("ALTER SYSTEM RESET nope", "42704", "")
}

// What cannot be reached is told with one SQLSTATE, whatever it is.
func TestUnreachableTargets(t *testing.T) {
	t.Setenv("AWS_ACCESS_KEY_ID", "a")
	t.Setenv("AWS_SECRET_ACCESS_KEY", "b")
	t.Setenv("AWS_EC2_METADATA_DISABLED", "true")
	l, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	addr := l.Addr().String()
	require.NoError(t, l.Close()) // nobody listens there
	s := open(t).connect()
	s.must("CREATE TABLE t (a int PRIMARY KEY)", "CREATE MATERIALIZED VIEW m AS SELECT count(*) AS n FROM t")
	bucket := "s3://b/p?endpoint=http://" + addr + "&region=us-east-1"
	for _, q := range []string{
		"SELECT streamdb.savepoint('" + bucket + "')", "SELECT streamdb.dispose_savepoint('" + bucket + "')", "SELECT * FROM streamdb.read_checkpoint('" + bucket + "', 't')",
		"CREATE SINK b FROM t WITH (connector = 'file', path = '" + bucket + "') FORMAT UPSERT ENCODE JSON",
		"CREATE SINK p FROM t WITH (connector = 'postgres', url = 'postgres://u@" + addr + "/d', table = 't')",
	} {
		require.Contains(t, s.fails(q, "08001", "").Message, addr, q)
	}
}

func TestCheckpointOfOneRelation(t *testing.T) {
	s := open(t).connect()
	s.must("CREATE TABLE t (a int PRIMARY KEY)", "CREATE MATERIALIZED VIEW m AS SELECT count(*) AS n FROM t", "CREATE VIEW v AS SELECT 1", "CREATE SEQUENCE q",
		"CREATE SOURCE src (a int) WITH (connector = 'file', path = '/nowhere/*') FORMAT PLAIN ENCODE JSON")
	completed := "SELECT count(*) FROM streamdb.checkpoints WHERE status = 'COMPLETED' AND job_id = 1"
	for i, name := range []string{"t", "public.t", "m"} {
		s.must("INSERT INTO t VALUES ("+fmt.Sprint(i)+")", "CHECKPOINT "+name)
		require.Equal(t, fmt.Sprint(i+1), s.row(completed), name)
	}
	for _, name := range []string{"v", "q", "src"} {
		require.Equal(t, "streamdb.jobs lists what runs.", s.fails("CHECKPOINT "+name, "42809", `"`+name+`" is not a materialized view or a sink`).Hint)
	}
	s.fails("CHECKPOINT nope", "42P01", `relation "nope" does not exist`)

	dir := strings.TrimPrefix(s.row("SHOW execution.checkpointing.dir"), "file://")
	read := "FROM streamdb.read_checkpoint('" + dir + "', 't')"
	s.must("CREATE VIEW stored AS SELECT * " + read)
	require.Equal(t, "3", s.row("SELECT count(*) FROM stored"))
	for _, query := range []string{"SELECT * " + read, "SELECT (SELECT count(*) " + read + ")", "SELECT * FROM stored", "WITH r AS (SELECT * " + read + ") SELECT r.a FROM r JOIN t USING (a)"} {
		e := s.fails("CREATE MATERIALIZED VIEW r AS "+query, "0A000", "streamdb.read_checkpoint cannot be used in a materialized view")
		require.NotEmpty(t, e.Hint, query)
	}
}
