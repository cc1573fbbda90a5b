package server_test

import (
	"context"
	"fmt"
	"net/http"
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

func TestSavepointRestoresTheDatabase(t *testing.T) {
	checkpointrows.Shows(t, 85, 99, 100, 103)
	for _, form := range []string{"native", "canonical"} {
		for _, to := range []string{"pebble", "memory"} {
			t.Run(form+" to "+to, func(t *testing.T) {
				files := t.TempDir()
				write(t, files, "1.json", `{"k":1,"v":10}`, `{"k":2,"v":20}`)
				d := open(t, func(c *server.Config) {
					if to == "pebble" {
						c.Settings = map[string]string{"state.backend.type": "memory"}
					}
				})
				s := d.connect()
				fill(s, files)
				s.until("SELECT coalesce(sum(s), 0) FROM fm", "30")
				root := t.TempDir()
				path := s.row(fmt.Sprintf("SELECT streamdb.savepoint('file://%s', format => '%s')", root, form))
				require.True(t, strings.HasPrefix(path, "file://"+root+"/savepoint-"), path)
				s.must("INSERT INTO t VALUES (5000, 5)") // after it
				s.must("ALTER SYSTEM SET execution.checkpointing.savepoint-dir = '" + root + "'")
				require.True(t, strings.HasPrefix(s.row("SELECT streamdb.savepoint()"), root+"/savepoint-"))
				require.NoError(t, d.srv.Abort())
				require.NoError(t, os.RemoveAll(d.cfg.DataDir))
				moved := filepath.Join(t.TempDir(), "moved")
				require.NoError(t, os.Rename(strings.TrimPrefix(path, "file://"), moved))

				two := from(t, moved, func(c *server.Config) {
					c.Settings["state.backend.type"], c.Settings["execution.checkpointing.interval"] = to, "0"
				})
				s = two.connect()
				require.Equal(t, "1000|1000|1000", s.row("SELECT (SELECT count(*) FROM t), (SELECT sum(n) FROM m), (SELECT n FROM mm)"))
				require.Equal(t, "143", s.row("SELECT count(*) FROM t WHERE v = 3"))
				s.must("INSERT INTO t VALUES (6000, 6)", "FLUSH")
				write(t, files, "2.json", `{"k":1,"v":1}`)
				s.until("SELECT sum(s) || ' ' || sum(n) FROM fm", "31 3")
				e := s.fails("SELECT streamdb.dispose_savepoint('"+moved+"')", "55006", "")
				require.Contains(t, e.Message, "restored from")
				s.must("CHECKPOINT")
				require.Equal(t, "t", s.row("SELECT streamdb.dispose_savepoint('"+moved+"')"))
				two.crash()
				s = two.connect()
				s.must("INSERT INTO t VALUES (7000, 6)", "FLUSH")
				require.Equal(t, "1002|1002|1002", s.row("SELECT (SELECT count(*) FROM t), (SELECT sum(n) FROM m), (SELECT n FROM mm)"))
				s.until("SELECT sum(s) || ' ' || sum(n) FROM fm", "31 3")
				d.cfg.DataDir = t.TempDir()
				d.start()
			})
		}
	}
}

// The history says where savepoints and checkpoints are, and what was restored from where, as URLs that can be restored from.
func TestPathsOfSnapshots(t *testing.T) {
	d := open(t, manual)
	s := d.connect()
	s.must("CREATE TABLE t (a int)", "INSERT INTO t SELECT generate_series(1, 10)", "CREATE MATERIALIZED VIEW m AS SELECT count(*) AS n FROM t", "CHECKPOINT")
	root := t.TempDir()
	path := s.row("SELECT streamdb.savepoint('file://" + root + "')")
	require.Equal(t, "file://"+s.row("SELECT streamdb.savepoint('"+root+"', relation => 'm')"), s.row("SELECT path FROM streamdb.checkpoints WHERE kind = 'SAVEPOINT' ORDER BY checkpoint_id DESC LIMIT 1"))
	require.Equal(t, []string{path}, s.rows("SELECT DISTINCT path FROM streamdb.checkpoints WHERE checkpoint_id = (SELECT min(checkpoint_id) FROM streamdb.checkpoints WHERE kind = 'SAVEPOINT')"))
	manifest := s.row("SELECT DISTINCT path FROM streamdb.checkpoints WHERE kind = 'CHECKPOINT' AND status = 'COMPLETED'")
	require.Regexp(t, "^file://"+d.cfg.DataDir+"/checkpoints/.*[.]manifest$", manifest)
	latest := func(d *database) (paths []string) {
		t.Helper()
		_, all := d.rest(http.MethodGet, "/jobs/"+d.connect().row("SELECT job_id FROM streamdb.jobs WHERE name = 'm'")+"/checkpoints", "")
		for _, what := range []string{"completed", "savepoint", "restored"} {
			if c, ok := all["latest"].(map[string]any)[what].(map[string]any); ok {
				paths = append(paths, what+" "+fmt.Sprint(c["external_path"]))
			}
		}
		return paths
	}
	require.Equal(t, []string{"completed " + manifest, "savepoint " + s.row("SELECT max(path) FROM streamdb.checkpoints WHERE kind = 'SAVEPOINT' AND checkpoint_id = (SELECT max(checkpoint_id) FROM streamdb.checkpoints)")}, latest(d))
	const restored = "SELECT name, restored_checkpoint_id, restored_at IS NOT NULL FROM streamdb.checkpoint_config ORDER BY name"
	for _, c := range []struct{ path, kind string }{{path, "SAVEPOINT"}, {strings.TrimPrefix(path, "file://"), "SAVEPOINT"}, {manifest, "CHECKPOINT"}} {
		id := s.row("SELECT DISTINCT checkpoint_id FROM streamdb.checkpoints WHERE kind = '" + c.kind + "' AND path = 'file://" + strings.TrimPrefix(c.path, "file://") + "'")
		two := from(t, c.path, manual)
		require.Equal(t, []string{"m|" + id + "|t", "tables|" + id + "|t"}, two.connect().rows(restored))
		require.Equal(t, []string{"restored file://" + strings.TrimPrefix(c.path, "file://")}, latest(two))
		two.crash() // it has nothing of its own yet
		require.Equal(t, []string{"m|" + id + "|t", "tables|" + id + "|t"}, two.connect().rows(restored))
		two.connect().must("INSERT INTO t VALUES (1)", "CHECKPOINT")
		own := two.connect().row("SELECT DISTINCT path FROM streamdb.checkpoints WHERE status = 'COMPLETED'")
		two.crash()
		require.Equal(t, []string{"restored " + own}, latest(two))
	}
}

func TestClaimedSavepointGoes(t *testing.T) {
	checkpointrows.Shows(t, 117)
	d := open(t)
	s := d.connect()
	s.must("CREATE TABLE t (a int)", "INSERT INTO t SELECT generate_series(1, 1000)", "CREATE MATERIALIZED VIEW m AS SELECT count(*) AS n FROM t")
	root := t.TempDir()
	path := s.row("SELECT streamdb.savepoint('" + root + "')")
	one := from(t, path)
	two := from(t, path, func(c *server.Config) { c.Settings[checkpoint.SettingClaimMode] = "claim" })
	one.connect().must("CHECKPOINT")
	_, err := os.Stat(filepath.Join(path, "manifest"))
	require.NoError(t, err, "whoever does not claim it leaves it alone")
	two.connect().must("CHECKPOINT")
	require.Eventually(t, func() bool {
		_, err := os.Stat(filepath.Join(path, "manifest"))
		return os.IsNotExist(err)
	}, testTimeout, 10e6)
	for _, d := range []*database{one, two} {
		d.crash()
		require.Equal(t, "1000|1000", d.connect().row("SELECT (SELECT count(*) FROM t), n FROM m"))
	}
}

func TestSavepointOfOneRelation(t *testing.T) {
	checkpointrows.Shows(t, 99)
	d := open(t, func(c *server.Config) { c.Settings = map[string]string{checkpoint.SettingInterval: "0"} })
	s := d.connect()
	s.must("CREATE TABLE t (a int)", "INSERT INTO t SELECT generate_series(1, 10)", "CREATE MATERIALIZED VIEW m AS SELECT count(*) AS n FROM t",
		`CREATE MATERIALIZED VIEW "M2" AS SELECT n FROM m`, "CREATE MATERIALIZED VIEW other AS SELECT max(a) FROM t", "CREATE VIEW v AS SELECT 1")
	root := t.TempDir()
	path := s.row(`SELECT streamdb.savepoint('` + root + `', relation => 'public."M2"')`)
	o, err := checkpoint.OpenPath(d.ctx, path)
	require.NoError(t, err)
	var names []string
	for _, js := range o.Jobs {
		names = append(names, js.Name)
	}
	require.ElementsMatch(t, []string{"tables", "m", "M2"}, names)
	require.Len(t, o.Named, 1)
	two := from(t, path) // what is not in it is computed again
	require.Equal(t, "10|10|10", two.connect().row(`SELECT n, (SELECT n FROM "M2"), max FROM m, other`))

	s.fails("SELECT streamdb.savepoint()", "22023", "the savepoint needs a target")
	s.fails("SELECT streamdb.savepoint('"+root+"', relation => 'v')", "42809", `"v" has no state`)
	s.fails("SELECT streamdb.savepoint('"+root+"', 'none')", "42P01", `relation "none" does not exist`)
	s.fails("SELECT streamdb.savepoint('"+root+"', format => 'x')", "22023", `unknown format of a savepoint: "x"`)
	o, err = checkpoint.OpenPath(d.ctx, s.row("SELECT streamdb.savepoint('"+root+"', format => 'CANONICAL')"))
	require.NoError(t, err)
	require.Equal(t, checkpoint.FormCanonical, o.Form)
	require.NotEmpty(t, s.row("SELECT streamdb.savepoint('"+root+"', format => 'Native')"))
	s.fails("SELECT streamdb.savepoint('memory://x')", "22023", "")
	s.fails("SELECT streamdb.dispose_savepoint('"+root+"')", "58P01", "")
	s.fails("SELECT streamdb.dispose_savepoint('"+filepath.Join(d.cfg.DataDir, "checkpoints")+"')", "58P01", "")
	for _, own := range []string{"wal", "history/savepoints", "x/../superseded", "jobs"} {
		target := "file://" + d.cfg.DataDir + "/" + own
		s.fails("SELECT streamdb.savepoint('"+target+"')", "22023", "a savepoint cannot be written to "+target+": the server removes what is there")
	}
	s.must("CHECKPOINT")
	s.fails("SELECT streamdb.dispose_savepoint('"+filepath.Join(d.cfg.DataDir, "checkpoints")+"')", "42809", "")
	// Roles.
	s.must("CREATE ROLE ann LOGIN", "GRANT CREATE ON SCHEMA public TO ann", "SET ROLE ann", "CREATE TABLE mine (a int)")
	s.fails("SELECT streamdb.savepoint('"+root+"')", "42501", "must be superuser to make a savepoint of the whole database")
	s.fails("SELECT streamdb.savepoint('"+root+"', 'm')", "42501", "must be owner of materialized view m")
	s.fails("SELECT streamdb.savepoint('"+root+"', 'mine')", "42501", "")
	s.must("RESET ROLE", "GRANT pg_write_server_files TO ann", "SET ROLE ann")
	require.NotEmpty(t, s.row("SELECT streamdb.savepoint('"+root+"', 'mine')"))
	s.must("RESET ROLE")
	require.NoError(t, filepath.WalkDir(filepath.Join(d.cfg.DataDir, "scratch"), func(p string, e os.DirEntry, err error) error {
		if err == nil && !e.IsDir() {
			return fmt.Errorf("%s is left", p)
		}
		return nil
	}))
}

func TestStopWithSavepoint(t *testing.T) {
	checkpointrows.Shows(t, 101)
	d := open(t)
	s := d.connect()
	s.must("CREATE SOURCE g (id bigint) WITH (connector = 'datagen', fields.id.kind = 'sequence', datagen.rows.per.second = '2000')",
		"CREATE MATERIALIZED VIEW c AS SELECT count(*) AS n, max(id) AS last FROM g", "CREATE MATERIALIZED VIEW cc AS SELECT n * 2 AS n2 FROM c")
	s.until("SELECT n > 100 FROM c", "t")
	root := t.TempDir()
	path := s.row("SELECT streamdb.stop_with_savepoint('c', '" + root + "')")
	at := s.row("TABLE c")
	require.Equal(t, "STOPPED", s.row("SELECT state FROM streamdb.jobs WHERE name = 'c'"))
	s.fails("SELECT streamdb.stop_with_savepoint('c', '"+root+"')", "55000", "")
	require.Equal(t, at, s.row("TABLE c"))
	d.crash() // it stays stopped, at the instant of the savepoint
	s = d.connect()
	require.Equal(t, at, s.row("TABLE c"))
	require.Equal(t, "STOPPED", s.row("SELECT state FROM streamdb.jobs WHERE name = 'c'"))
	two := from(t, path)
	require.Equal(t, at, two.connect().row("TABLE c"), "the savepoint has exactly that")
	s.must("RESUME c")
	s.until("SELECT n > "+strings.Split(at, "|")[0]+" FROM c", "t")
	require.Equal(t, "t", s.row("SELECT n = last - (SELECT min(0) FROM c) OR n = last + 1 FROM c"), "nothing is lost, nothing counts twice")
	require.Equal(t, "t", s.row("SELECT n2 = 2 * n FROM c, cc"))
	two.connect().must("RESUME c")
	two.connect().until("SELECT n > "+strings.Split(at, "|")[0]+" FROM c", "t")
}

// A view that has not changed since its last checkpoint ends with its savepoint as any other.
func TestStopOfAnIdleView(t *testing.T) {
	checkpointrows.Shows(t, 101)
	for _, drain := range []string{"false", "true"} {
		d := open(t)
		s := d.connect()
		s.must("CREATE TABLE u (a int)", "INSERT INTO u VALUES (7)", "CREATE MATERIALIZED VIEW mu AS SELECT count(*) AS n FROM u", "FLUSH", "CHECKPOINT")
		path := s.row("SELECT streamdb.stop_with_savepoint('mu', '" + t.TempDir() + "', drain => " + drain + ")")
		require.Equal(t, "STOPPED", s.row("SELECT state FROM streamdb.jobs WHERE name = 'mu'"))
		s.must("INSERT INTO u VALUES (1)", "CHECKPOINT")
		require.Equal(t, "1", s.row("TABLE mu"), "it takes nothing in any more")
		d.crash()
		s = d.connect()
		require.Equal(t, "1|STOPPED", s.row("SELECT n, (SELECT state FROM streamdb.jobs WHERE name = 'mu') FROM mu"))
		require.Equal(t, "1", from(t, path).connect().row("TABLE mu"))
		s.must("RESUME mu", "FLUSH")
		require.Equal(t, "2", s.row("TABLE mu"))
	}
}

func TestStopOfAViewOverBusyTable(t *testing.T) {
	checkpointrows.Shows(t, 101)
	d := open(t)
	s := d.connect()
	s.must("CREATE TABLE t (a int)", "CREATE MATERIALIZED VIEW m AS SELECT count(*) AS n FROM t")
	done := make(chan error, 1)
	ctx, cancel := context.WithCancel(d.ctx)
	other := d.connect()
	go func() {
		for ctx.Err() == nil {
			if _, err := other.PgConn().Exec(d.ctx, "INSERT INTO t VALUES (1)").ReadAll(); err != nil {
				done <- err
				return
			}
		}
		done <- nil
	}()
	s.until("SELECT n > 10 FROM m", "t")
	path := s.row("SELECT streamdb.stop_with_savepoint('m', '" + t.TempDir() + "')")
	at := s.row("TABLE m")
	s.must("CHECKPOINT")
	cancel()
	require.NoError(t, <-done)
	require.Equal(t, at, s.row("TABLE m"))
	two := from(t, path).connect()
	require.Equal(t, at+"|"+at, two.row("SELECT n, (SELECT count(*) FROM t) FROM m"), "what it reads is as of the same instant")
	d.crash()
	s = d.connect()
	require.Equal(t, at, s.row("TABLE m"))
	s.must("RESUME m", "FLUSH")
	require.Equal(t, "t", s.row("SELECT n = (SELECT count(*) FROM t) FROM m"))
}

func TestStopWithDrainClosesWindows(t *testing.T) {
	checkpointrows.Shows(t, 101)
	files := t.TempDir()
	write(t, files, "1.json", `{"k":1,"t":"2024-01-01 00:00:01"}`, `{"k":1,"t":"2024-01-01 00:00:02"}`)
	for _, drain := range []bool{false, true} {
		for _, par := range []int{1, 3} {
			t.Run(fmt.Sprint(drain, par), func(t *testing.T) {
				d := open(t)
				s := d.connect()
				s.must(fmt.Sprint("SET parallelism = ", par), `CREATE SOURCE f (k int, t timestamp, WATERMARK FOR t AS t) WITH (connector = 'file', path = '`+filepath.Join(files, "*.json")+`') FORMAT PLAIN ENCODE JSON`,
					"CREATE MATERIALIZED VIEW w AS SELECT k, window_end, count(*) AS n FROM TUMBLE(f, t, INTERVAL '1 minute') GROUP BY k, window_end EMIT ON WINDOW CLOSE",
					"CREATE MATERIALIZED VIEW seen AS SELECT count(*) AS n FROM f")
				s.until("TABLE seen", "2")
				require.Empty(t, s.rows("TABLE w"))
				path := s.row(fmt.Sprintf("SELECT streamdb.stop_with_savepoint('w', '%s', drain => %v)", t.TempDir(), drain))
				want := []string{}
				if drain {
					want = []string{"1|2024-01-01 00:01:00|2"}
				}
				require.Equal(t, want, s.rows("TABLE w"))
				require.Equal(t, want, from(t, path).connect().rows("TABLE w"))
				d.crash()
				require.Equal(t, want, d.connect().rows("TABLE w"))
			})
		}
	}
}

func TestStopThatFailsLetsTheJobGoOn(t *testing.T) {
	checkpointrows.Shows(t, 62)
	for _, at := range []string{"savepoint/begin", "savepoint/written", "savepoint/stopped", "checkpoint/before-upload"} {
		t.Run(at, func(t *testing.T) {
			points, err := failpoint.Parse(at + "=error(no)*1")
			require.NoError(t, err)
			d := open(t, func(c *server.Config) {
				c.Failpoints, c.Settings = points, map[string]string{checkpoint.SettingInterval: "0"}
			})
			s := d.connect()
			s.must("CREATE TABLE t (a int)", "INSERT INTO t VALUES (1)", "CREATE MATERIALIZED VIEW m AS SELECT count(*) AS n FROM t")
			require.NotEmpty(t, s.code("SELECT streamdb.stop_with_savepoint('m', '"+t.TempDir()+"')"))
			require.Equal(t, "RUNNING", s.row("SELECT state FROM streamdb.jobs WHERE name = 'm'"))
			s.must("INSERT INTO t VALUES (1)", "FLUSH")
			require.Equal(t, "t", s.row("SELECT n = (SELECT count(*) FROM t) FROM m"))
		})
	}
	s := open(t).connect()
	s.must("CREATE TABLE t (a int)", "CREATE MATERIALIZED VIEW m AS SELECT count(*) AS n FROM t")
	s.fails("BEGIN; SELECT streamdb.stop_with_savepoint('m', '/tmp')", "25001", "")
	s.must("ROLLBACK")
}

// A view that is paused behind a table that goes on is no reason to have no savepoint of the database.
func TestSavepointWithAPausedView(t *testing.T) {
	checkpointrows.Shows(t, 99)
	d := open(t)
	s := d.connect()
	s.must("CREATE TABLE t (a int)", "INSERT INTO t VALUES (1)", "CREATE MATERIALIZED VIEW m AS SELECT count(*) AS n FROM t", "CREATE MATERIALIZED VIEW mm AS SELECT n FROM m",
		"CREATE MATERIALIZED VIEW live AS SELECT count(*) AS n FROM t", "PAUSE m", "INSERT INTO t VALUES (2)")
	s.until("TABLE live", "2")
	path := s.row("SELECT streamdb.savepoint('" + t.TempDir() + "')")
	require.NotEmpty(t, s.notices)
	require.Contains(t, s.notices[0].Message, `"m" is not in the savepoint`)
	require.Equal(t, "1", s.row("TABLE m"))
	two := from(t, path).connect()
	require.Equal(t, "2|2", two.row("SELECT n, (SELECT count(*) FROM t) FROM live"))
	two.must("RESUME m", "FLUSH")
	require.Equal(t, "2|2", two.row("SELECT m.n, mm.n FROM m, mm"))
	s.must("RESUME m", "FLUSH")
	require.Equal(t, "2|2", s.row("SELECT m.n, mm.n FROM m, mm"))
}
