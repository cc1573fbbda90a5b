package server_test

import (
	"context"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/streamdb/streamdb/checkpoint"
	"github.com/streamdb/streamdb/internal/checkpointrows"
	"github.com/streamdb/streamdb/internal/pgerr"
	"github.com/streamdb/streamdb/server"
	"github.com/streamdb/streamdb/storage/object/objecttest"
)

// fill makes a database of all kinds of relations.
func fill(s *session, files string) {
	s.must("CREATE TABLE t (id int PRIMARY KEY, v int)", "INSERT INTO t SELECT g, g % 7 FROM generate_series(1, 1000) g", "CREATE INDEX t_v ON t (v)",
		"CREATE MATERIALIZED VIEW m AS SELECT v, count(*) AS n, min(id) AS least FROM t GROUP BY v", "CREATE MATERIALIZED VIEW mm AS SELECT sum(n) AS n FROM m",
		"CREATE SEQUENCE seq", "SELECT nextval('seq')",
		`CREATE SOURCE f (k int, v int) WITH (connector = 'file', path = '`+filepath.Join(files, "*.json")+`') FORMAT PLAIN ENCODE JSON`,
		"CREATE MATERIALIZED VIEW fm AS SELECT k, sum(v) AS s, count(*) AS n FROM f GROUP BY k")
}

func write(t *testing.T, dir, name string, rows ...string) {
	t.Helper()
	f, err := os.OpenFile(filepath.Join(dir, name), os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o600)
	require.NoError(t, err)
	for _, r := range rows {
		_, err = fmt.Fprintln(f, r)
		require.NoError(t, err)
	}
	require.NoError(t, f.Close())
}

// until waits for the answer of a query.
func (s *session) until(q, want string) {
	s.d.t.Helper()
	require.Eventually(s.d.t, func() bool { return s.row(q) == want }, testTimeout, 10e6, "%s: %s", q, want)
}

// from starts another server that begins from path.
func from(t *testing.T, path string, change ...func(*server.Config)) *database {
	return open(t, append([]func(*server.Config){func(c *server.Config) { c.Settings = map[string]string{checkpoint.SettingRecoveryPath: path} }}, change...)...)
}

func TestRestoreFromAnotherServersCheckpoint(t *testing.T) {
	checkpointrows.Shows(t, 4, 105, 107, 117)
	files := t.TempDir()
	write(t, files, "1.json", `{"k":1,"v":10}`, `{"k":2,"v":20}`)
	d := open(t)
	s := d.connect()
	fill(s, files)
	s.until("SELECT coalesce(sum(s), 0) FROM fm", "30")
	s.must("CHECKPOINT")
	s.must("INSERT INTO t VALUES (5000, 5)") // not in the checkpoint
	require.NoError(t, d.srv.Abort())
	dir := filepath.Join(d.cfg.DataDir, "checkpoints")

	check := func(d *database, extra int) {
		t.Helper()
		s := d.connect()
		s.must("FLUSH")
		n := fmt.Sprint(1000 + extra)
		require.Equal(t, n+"|"+n+"|"+n, s.row("SELECT (SELECT count(*) FROM t), (SELECT sum(n) FROM m), (SELECT n FROM mm)"))
		require.Equal(t, "143", s.row("SELECT count(*) FROM t WHERE v = 3"))
		require.NotEqual(t, "1", s.row("SELECT nextval('seq')"))
	}
	one, two := from(t, dir), from(t, "file://"+dir)
	check(one, 0)
	check(two, 0)
	// Sources go on behind what the checkpoint has.
	write(t, files, "2.json", `{"k":1,"v":1}`)
	for _, d := range []*database{one, two} {
		d.connect().until("SELECT sum(s) || ' ' || sum(n) FROM fm", "31 3")
	}
	// Before there is a checkpoint of its own a crash begins from the same again, and what was committed since is not lost.
	one.connect().must("INSERT INTO t VALUES (6000, 6)")
	one.crash()
	check(one, 1)
	one.connect().until("SELECT sum(s) || ' ' || sum(n) FROM fm", "31 3")
	one.connect().must("CHECKPOINT")
	two.connect().must("CHECKPOINT")
	require.NoError(t, os.RemoveAll(d.cfg.DataDir))
	one.crash() // own checkpoints win
	two.crash()
	check(one, 1)
	check(two, 0)
	write(t, files, "3.json", `{"k":3,"v":1}`)
	for _, d := range []*database{one, two} {
		d.connect().until("SELECT sum(s) || ' ' || sum(n) FROM fm", "32 4")
	}
	d.cfg.DataDir = t.TempDir()
	d.start()
}

// TestRestoredJobsWithoutAnOwnCheckpoint: a database that was started from a snapshot and has checkpoints of some jobs goes on after a crash: those that it has none of begin from the snapshot again, and
// find what the others have made since. A sink that did not could not go on at all, and a view over a source would be computed from what is left of it.
func TestRestoredJobsWithoutAnOwnCheckpoint(t *testing.T) {
	for _, kind := range []string{"checkpoint", "savepoint"} {
		t.Run(kind, func(t *testing.T) {
			d, out := open(t), t.TempDir()
			s := d.connect()
			s.must("CREATE TABLE t (id int PRIMARY KEY, k int)", "INSERT INTO t SELECT g, g % 25 FROM generate_series(1, 2000) g", "CREATE MATERIALIZED VIEW a AS SELECT k, count(*) AS n FROM t GROUP BY k",
				"CREATE MATERIALIZED VIEW b AS SELECT n, count(*) AS c FROM a GROUP BY n", "CREATE MATERIALIZED VIEW paused AS SELECT sum(n) AS n FROM a",
				"CREATE SINK k FROM a WITH (connector = 'file', path = '"+out+"') FORMAT UPSERT ENCODE JSON", "FLUSH", "CHECKPOINT")
			appears(t, out, 25)
			s.must("PAUSE paused", "INSERT INTO t VALUES (3000, 0)", "FLUSH", "CHECKPOINT")
			appears(t, out, 26)
			path := filepath.Join(d.cfg.DataDir, "checkpoints")
			if kind == "savepoint" {
				path = s.row("SELECT streamdb.savepoint('file://" + t.TempDir() + "')")
			}
			require.NoError(t, d.srv.Abort())

			d = from(t, path, func(c *server.Config) { c.Settings[checkpoint.SettingInterval] = "0" })
			for i := range 3 {
				s = d.connect()
				s.must(fmt.Sprintf("INSERT INTO t VALUES (%d, 0)", 4000+i), "FLUSH", "CHECKPOINT a")
				require.Equal(t, "RUNNING|", s.row("SELECT state, coalesce(last_error, '') FROM streamdb.jobs WHERE name = 'k'"))
				d.crash()
			}
			s = d.connect()
			s.must("FLUSH", "CHECKPOINT")
			require.Equal(t, "RUNNING|", s.row("SELECT state, coalesce(last_error, '') FROM streamdb.jobs WHERE name = 'k'"))
			require.Equal(t, s.rows("SELECT n, count(*) FROM (SELECT k, count(*) AS n FROM t GROUP BY k) x GROUP BY n ORDER BY n"), s.rows("SELECT * FROM b ORDER BY n"))
			appears(t, out, 27) // the group in question once more, with all that came since
			d.crash()
			s = d.connect()
			s.must("RESUME paused", "FLUSH")
			require.Equal(t, "2004", s.row("SELECT n FROM paused"))
			s.must("CHECKPOINT")
			require.NoFileExists(t, filepath.Join(d.cfg.DataDir, "restored-from"))
		})
	}
}

// TestRestoredSinkThatWasBehind is the same for a sink that had missed something at the snapshot already, of a view that has no checkpoint of its own either.
func TestRestoredSinkThatWasBehind(t *testing.T) {
	d, out := open(t), t.TempDir()
	s := d.connect()
	s.must("CREATE TABLE t (id int PRIMARY KEY, k int)", "INSERT INTO t SELECT g, g % 25 FROM generate_series(1, 2000) g", "CREATE MATERIALIZED VIEW a AS SELECT k, count(*) AS n FROM t GROUP BY k",
		"CREATE SINK k FROM a WITH (connector = 'file', path = '"+out+"') FORMAT UPSERT ENCODE JSON", "FLUSH", "CHECKPOINT")
	appears(t, out, 25)
	s.must("PAUSE k", "INSERT INTO t VALUES (3000, 0)", "FLUSH", "CHECKPOINT")
	require.NoError(t, d.srv.Abort())

	d = from(t, filepath.Join(d.cfg.DataDir, "checkpoints"), func(c *server.Config) { c.Settings[checkpoint.SettingInterval] = "0" })
	s = d.connect()
	s.must("INSERT INTO t VALUES (4000, 0)", "CHECKPOINT t")
	d.crash()
	s = d.connect()
	s.must("RESUME k", "FLUSH", "CHECKPOINT")
	require.Equal(t, "RUNNING|", s.row("SELECT state, coalesce(last_error, '') FROM streamdb.jobs WHERE name = 'k'"))
	appears(t, out, 27) // the group as it was at the snapshot, and as it is
}

func TestNothingToRestore(t *testing.T) {
	checkpointrows.Shows(t, 109)
	d := open(t) // an empty store is a fresh start
	require.NoError(t, d.srv.Abort())
	d.start()
	d.connect().must("CREATE TABLE t (a int)")
	for path, code := range map[string]pgerr.Code{
		t.TempDir(): pgerr.UndefinedFile, "file:///nowhere/at/all": pgerr.UndefinedFile, "ftp://x": pgerr.FeatureNotSupported,
	} {
		_, err := server.Open(context.Background(), server.Config{DataDir: t.TempDir(), Settings: map[string]string{checkpoint.SettingRecoveryPath: path}})
		require.Equal(t, code, pgerr.CodeOf(err), "%s: %v", path, err)
		require.ErrorContains(t, err, checkpoint.SettingRecoveryPath)
	}
	_, err := server.Open(context.Background(), server.Config{DataDir: t.TempDir(), Settings: map[string]string{checkpoint.SettingClaimMode: "legacy"}})
	require.Equal(t, pgerr.InvalidParameterValue, pgerr.CodeOf(err), "%v", err)
	d.connect().must("CHECKPOINT")
	dir := filepath.Join(d.cfg.DataDir, "checkpoints")
	other := t.TempDir()
	fresh := open(t, func(c *server.Config) {
		c.DataDir = other
		c.Settings = map[string]string{checkpoint.SettingInterval: "0"}
	})
	fresh.connect().must("CREATE TABLE mine (a int)")
	require.NoError(t, fresh.srv.Abort())
	fresh.cfg.Settings = map[string]string{checkpoint.SettingRecoveryPath: dir}
	_, err = server.Open(context.Background(), fresh.cfg)
	require.Equal(t, pgerr.ObjectNotInPrerequisiteState, pgerr.CodeOf(err), "a database is not written over: %v", err)
	_, err = server.Open(context.Background(), server.Config{
		DataDir: t.TempDir(), Settings: map[string]string{checkpoint.SettingRecoveryPath: dir, checkpoint.SettingClaimMode: "CLAIM"},
	})
	require.Equal(t, pgerr.InvalidParameterValue, pgerr.CodeOf(err), "a server's checkpoints are its own: %v", err)
	fresh.cfg.Settings = nil
	fresh.start()
	require.Empty(t, fresh.connect().rows("TABLE mine"))
}

// bucket is a store that counts what is read of state files.
func bucket(t *testing.T) (server *objecttest.S3Server, reads *atomic.Int64) {
	t.Setenv("AWS_ACCESS_KEY_ID", "test")
	t.Setenv("AWS_SECRET_ACCESS_KEY", "secret")
	server, reads = objecttest.NewS3Server(t, "bucket"), &atomic.Int64{}
	server.SetFault(func(r *http.Request) objecttest.S3Fault {
		if r.Method == http.MethodGet && strings.Contains(r.URL.Path, "/data/") {
			reads.Add(1)
		}
		return objecttest.S3Fault{}
	})
	return server, reads
}

func TestLocalRecovery(t *testing.T) {
	checkpointrows.Shows(t, 119)
	store, reads := bucket(t)
	d := open(t, func(c *server.Config) {
		c.CheckpointDir, c.Memory = store.StoreURL("db"), 64<<20
		c.Settings = map[string]string{checkpoint.SettingInterval: "0"}
	})
	s := d.connect()
	s.must("CREATE TABLE t (id int PRIMARY KEY, v text)", "CREATE MATERIALIZED VIEW m AS SELECT id % 100000 AS k, max(v) AS v, count(*) AS n FROM t GROUP BY 1")
	for i := range 8 {
		s.must(fmt.Sprintf("INSERT INTO t SELECT g, repeat(md5(g::text), 8) FROM generate_series(%d, %d) g", i*40_000+1, (i+1)*40_000), "FLUSH", "CHECKPOINT")
	}
	want := s.row("SELECT count(*), sum(length(v)), min(v), max(v) FROM t") + s.row("SELECT sum(n), count(*), max(v) FROM m")
	check := func() {
		t.Helper()
		s := d.connect()
		require.Equal(t, want, s.row("SELECT count(*), sum(length(v)), min(v), max(v) FROM t")+s.row("SELECT sum(n), count(*), max(v) FROM m"))
	}
	bases := 0
	require.NoError(t, filepath.WalkDir(filepath.Join(d.cfg.DataDir, "jobs"), func(path string, e os.DirEntry, err error) error {
		if err == nil && strings.HasPrefix(e.Name(), "base-") {
			bases++
		}
		return err
	}))
	require.Positive(t, bases, "the state is large enough for a base of its own")
	d.crash()
	check()
	require.Zero(t, reads.Load(), "what is on local disk is not read from the store")
	d.connect().must("CHECKPOINT")
	// A damaged file is noticed, and read from the store.
	require.NoError(t, d.srv.Abort())
	damaged := 0
	require.NoError(t, filepath.WalkDir(filepath.Join(d.cfg.DataDir, "jobs"), func(path string, e os.DirEntry, err error) error {
		if err != nil || e.IsDir() || filepath.Ext(path) != ".sst" || strings.Contains(path, "/live/") {
			return err
		}
		b, err := os.ReadFile(path)
		if err == nil && len(b) > 256<<10 {
			b[len(b)/2] ^= 1
			damaged++
			require.NoError(t, os.Remove(path))
			err = os.WriteFile(path, b, 0o600)
		}
		return err
	}))
	require.Positive(t, damaged)
	d.start()
	check()
	require.Positive(t, reads.Load())
}

func TestRestoresRelation(t *testing.T) {
	checkpointrows.Shows(t, 106, 137)
	d := open(t)
	s := d.connect()
	s.must("CREATE TABLE t (a int)", "INSERT INTO t SELECT generate_series(1, 1000)", "CREATE MATERIALIZED VIEW m AS SELECT a, count(*) AS n FROM t GROUP BY a", "CHECKPOINT",
		"CREATE MATERIALIZED VIEW fresh AS SELECT count(*) AS n FROM m")
	require.Empty(t, s.rows("TABLE streamdb.restores"), "nothing was restored")
	id := s.row("SELECT max(checkpoint_id) FROM streamdb.checkpoints")
	require.NoError(t, d.srv.Abort())
	require.NoError(t, os.RemoveAll(filepath.Join(d.cfg.DataDir, "jobs")))
	d.start()
	s = d.connect()
	require.Equal(t, []string{"m|" + id + "|t|t"}, s.rows(`SELECT name, checkpoint_id, download_ms > 0 AND open_ms > 0 AND rebuild_ms > 0, now() - restored_at < INTERVAL '1 minute'
		FROM streamdb.restores ORDER BY name`))
	for _, part := range []string{"download", "open", "rebuild"} {
		want, err := strconv.ParseFloat(s.row("SELECT "+part+"_ms / 1000 FROM streamdb.restores"), 64)
		require.NoError(t, err)
		got := d.metric("job_restore_" + part + `_seconds{job="m"}`)
		require.InDelta(t, want, got, 1e-6, "%s: %v", part, got)
	}
	require.Positive(t, d.metric("restore_fetches_total"))
	require.Equal(t, "1000", s.row("TABLE fresh"))
}
