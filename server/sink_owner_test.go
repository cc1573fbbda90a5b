package server_test

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/streamdb/streamdb/checkpoint"
	"github.com/streamdb/streamdb/server"
	"github.com/streamdb/streamdb/storage/object"
	"github.com/streamdb/streamdb/storage/object/objecttest"
)

// sinkWorld is a source of files and a target that several servers know.
type sinkWorld struct {
	t       *testing.T
	files   string
	target  string // of the sink
	written int
}

// sinkWorlds runs f with a folder and with a bucket as the target.
func sinkWorlds(t *testing.T, f func(w *sinkWorld)) {
	t.Run("folder", func(t *testing.T) { f(&sinkWorld{t: t, files: t.TempDir(), target: t.TempDir()}) })
	t.Run("bucket", func(t *testing.T) {
		t.Setenv("AWS_ACCESS_KEY_ID", "test")
		t.Setenv("AWS_SECRET_ACCESS_KEY", "secret")
		f(&sinkWorld{t: t, files: t.TempDir(), target: objecttest.NewS3Server(t, "bucket").StoreURL("out")})
	})
}

// first is the server that makes the sink. Checkpoints are made when they are asked for.
func (w *sinkWorld) first() (*database, *session) {
	d := open(w.t, manual)
	s := d.connect()
	s.must(`CREATE SOURCE f (k int) WITH (connector = 'file', path = '`+filepath.Join(w.files, "*.json")+`') FORMAT PLAIN ENCODE JSON`,
		`CREATE SINK k AS SELECT k FROM f WITH (connector = 'file', path = '`+w.target+`') FORMAT PLAIN ENCODE JSON`, `CREATE MATERIALIZED VIEW seen AS SELECT count(*) AS n FROM f`)
	return d, s
}

func manual(c *server.Config) {
	c.Settings = map[string]string{checkpoint.SettingInterval: "0", checkpoint.SettingRecoveryPath: c.Settings[checkpoint.SettingRecoveryPath]}
	if c.Settings[checkpoint.SettingRecoveryPath] == "" {
		delete(c.Settings, checkpoint.SettingRecoveryPath)
	}
}

// feed has the source give n more rows.
func (w *sinkWorld) feed(n int) {
	rows := make([]string, n)
	for i := range rows {
		rows[i] = fmt.Sprintf(`{"k":%d}`, w.written+i)
	}
	write(w.t, w.files, fmt.Sprintf("%06d.json", w.written), rows...)
	w.written += n
}

// read waits until a server has read all of the source.
func (w *sinkWorld) read(s *session) {
	w.t.Helper()
	s.until("SELECT n FROM seen", fmt.Sprint(w.written))
}

// rows are those in the target.
func (w *sinkWorld) rows() (rows []int) {
	w.t.Helper()
	store, err := object.Open(w.t.Context(), w.target)
	require.NoError(w.t, err)
	require.NoError(w.t, store.List(w.t.Context(), "", func(i object.Info) error {
		if strings.HasPrefix(i.Key, ".") || strings.HasPrefix(i.Key, "_staged/") {
			return nil
		}
		data, _, err := store.Get(w.t.Context(), i.Key)
		for l := range strings.Lines(string(data)) {
			var r struct{ K int }
			require.NoError(w.t, json.Unmarshal([]byte(l), &r))
			rows = append(rows, r.K)
		}
		return err
	}))
	slices.Sort(rows)
	return rows
}

// once waits until all rows are in the target, and checks that each is once.
func (w *sinkWorld) once(s *session) {
	w.t.Helper()
	want := make([]int, w.written)
	for i := range want {
		want[i] = i
	}
	require.Eventually(w.t, func() bool {
		s.must("CHECKPOINT")
		return len(w.rows()) >= w.written
	}, testTimeout, 50e6)
	require.Equal(w.t, want, w.rows())
}

const sinkState = "SELECT state FROM streamdb.jobs WHERE name = 'k'"

func sinkError(s *session) string {
	return s.row("SELECT last_error FROM streamdb.jobs WHERE name = 'k' AND last_error_at > now() - interval '1 minute'")
}

// A database that goes on from a savepoint of one that has stopped, or from its last checkpoint, goes on writing: each row is in the target once.
func TestSinkMovesWithItsDatabase(t *testing.T) {
	sinkWorlds(t, func(w *sinkWorld) {
		d, s := w.first()
		w.feed(100)
		w.once(s)
		w.feed(50) // read, sealed by the savepoint, and not committed
		w.read(s)
		path := s.row("SELECT streamdb.savepoint('file://" + t.TempDir() + "')")
		require.NoError(t, d.srv.Abort())
		next := from(t, path, manual)
		w.once(next.connect())
		for range 3 { // starts of its own, one without a checkpoint since
			next.crash()
			w.feed(10)
			w.once(next.connect())
			next.crash()
		}
		require.NoError(t, next.srv.Abort())
		last := from(t, "file://"+filepath.Join(next.cfg.DataDir, "checkpoints"), manual)
		w.feed(10)
		w.once(last.connect())
		last.crash()
		w.feed(10)
		w.once(last.connect())
		require.Equal(t, "RUNNING|NULL", last.connect().row("SELECT state, last_error FROM streamdb.jobs WHERE name = 'k'"))
		next.cfg.DataDir, d.cfg.DataDir, next.cfg.Settings = t.TempDir(), t.TempDir(), nil
		next.start()
		d.start()
	})
}

// What the old server commits after the savepoint, without having read more, the new one does not write again.
func TestSinkMovesAfterTheLastCommits(t *testing.T) {
	sinkWorlds(t, func(w *sinkWorld) {
		d, s := w.first()
		w.feed(100)
		w.once(s)
		w.feed(50)
		s.until("SELECT max(rows_in) FROM streamdb.operators WHERE job_id = (SELECT job_id FROM streamdb.jobs WHERE name = 'k')", "150")
		path := s.row("SELECT streamdb.savepoint('file://" + t.TempDir() + "')")
		w.once(s) // with the rows that the savepoint has sealed
		require.NoError(t, d.srv.Close(t.Context()))
		next := from(t, path, manual)
		w.feed(10)
		w.once(next.connect())
		require.Equal(t, "RUNNING|NULL", next.connect().row("SELECT state, last_error FROM streamdb.jobs WHERE name = 'k'"))
	})
}

// With checkpoints in memory a start has nothing to go on from: a sink that has written before does not write all of it again.
func TestSinkWithCheckpointsInMemory(t *testing.T) {
	out := t.TempDir()
	d := open(t, func(c *server.Config) { c.CheckpointDir = "memory://" })
	s := d.connect()
	s.must("CREATE TABLE t (k int PRIMARY KEY)")
	s.must("CREATE SINK k FROM t WITH (connector = 'file', path = '" + out + "') FORMAT UPSERT ENCODE JSON")
	require.Len(t, s.notices, 1)
	require.Equal(t, `sink "k" stops at the next start of the server when it has written before: checkpoints are in memory`, s.notices[0].Message)
	d.crash()
	s = d.connect()
	s.must("INSERT INTO t VALUES (1)", "CHECKPOINT")
	require.Eventually(t, func() bool { return len(files(t, out)) == 1 }, testTimeout, 20e6)
	d.crash()
	s = d.connect()
	s.until(sinkState, "FAILED")
	require.Contains(t, sinkError(s), "what is between would be written twice")
	require.Contains(t, s.fails("WAIT k", "55000", "").Message, `sink "k" has stopped`)
	s.must("INSERT INTO t VALUES (2)", "FLUSH", "CHECKPOINT")
	require.Len(t, files(t, out), 1)
}

// files are those in a folder that are not hidden.
func files(t *testing.T, dir string) []string {
	names, err := filepath.Glob(filepath.Join(dir, "[^.]*"))
	require.NoError(t, err)
	return names
}

// The server that a sink was taken from stops it, and says why; nothing is lost, and nothing is there twice.
func TestSinkOfTheOldServerIsFenced(t *testing.T) {
	sinkWorlds(t, func(w *sinkWorld) {
		d, s := w.first()
		w.feed(100)
		w.once(s)
		path := s.row("SELECT streamdb.savepoint('file://" + t.TempDir() + "')")
		next := from(t, path, manual)
		w.once(next.connect())
		w.feed(50)
		w.read(s)
		w.read(next.connect())
		w.once(next.connect())
		s.must("CHECKPOINT")
		s.until(sinkState, "FAILED")
		host, _ := os.Hostname()
		require.Contains(t, sinkError(s), `sink "k" has stopped: its target belongs to `+host+"/")
		require.Contains(t, sinkError(s), "HINT:")
		w.feed(10)
		w.once(next.connect())
		s.must("CHECKPOINT", "RECOVER")
		s.until(sinkState, "FAILED")
		d.crash()
		s = d.connect()
		s.until(sinkState, "FAILED")
		s.must("CHECKPOINT")
		w.once(next.connect())
		next.crash()
		w.feed(10)
		w.once(next.connect())
		s.must("DROP SINK k")
		w.feed(10)
		w.once(next.connect())
	})
}

// A database that goes on from before what its sink has in the target writes nothing, until somebody says so.
func TestSinkThatWouldWriteTwice(t *testing.T) {
	sinkWorlds(t, func(w *sinkWorld) {
		d, s := w.first()
		w.feed(100)
		w.once(s)
		path := s.row("SELECT streamdb.savepoint('file://" + t.TempDir() + "')")
		w.feed(50)
		w.read(s)
		w.once(s)
		next := from(t, path, manual)
		n := next.connect()
		n.until(sinkState, "FAILED")
		require.Contains(t, sinkError(n), "and what is between would be written twice")
		n.must("CHECKPOINT")
		w.once(s) // nothing has changed there
		w.feed(10)
		w.once(s)
		require.Equal(t, "RUNNING|NULL", s.row("SELECT state, last_error FROM streamdb.jobs WHERE name = 'k'"))
		next.crash()
		n = next.connect()
		n.until(sinkState, "FAILED")
		token := regexp.MustCompile(`take_over = '(\w+)'`).FindStringSubmatch(sinkError(n))
		require.NotNil(t, token)
		for _, c := range []struct {
			on    *session
			token string
			is    string
		}{{n, "zzz", "other"}, {n, "", "other"}, {n, "unknown", "other"}, {s, "zzz", "this server, "}} {
			e := c.on.fails("ALTER SINK k SET (take_over = '"+c.token+"')", "22023", "invalid value for option \"take_over\": \""+c.token+"\"")
			host, _ := os.Hostname()
			require.Contains(t, e.Detail, `The target of sink "k" belongs to `+strings.TrimPrefix(c.is, "other")+host+"/")
			require.Equal(t, c.on == n, strings.Contains(e.Hint, token[0]), e.Hint)
		}
		n.until(sinkState, "FAILED")
		n.must("ALTER SINK k SET (file.max.bytes = 30000)")
		n.until(sinkState, "FAILED")
		n.must("ALTER SINK k SET (take_over = '" + token[1] + "')")
		n.until("SELECT state, last_error, last_error_at FROM streamdb.jobs WHERE name = 'k'", "RUNNING|NULL|NULL")
		require.NotContains(t, n.showCreate("SINK k"), "take_over")
		n.must("ALTER SINK k SET (file.max.bytes = 40000)") // the token is used up
		n.until(sinkState, "RUNNING")
		require.Eventually(t, func() bool { n.must("CHECKPOINT"); return len(w.rows()) == w.written+60 }, testTimeout, 50e6, "as was said")
		w.feed(1)
		w.read(s)
		s.must("CHECKPOINT")
		s.until(sinkState, "FAILED")
		require.NoError(t, d.srv.Abort())
		d.start()
		d.connect().until(sinkState, "FAILED")
	})
}
