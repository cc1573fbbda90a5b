//go:build e2e

package e2e

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/streamdb/streamdb/internal/checkpointrows"
)

// crashStep is what the server that dies is doing.
type crashStep uint8

const (
	atCheckpoint crashStep = iota // after changes a checkpoint is asked for
	atStart                       // it starts again, on its own disk
	atStartAlone                  // it starts with the checkpoint directory alone
	atSavepoint
	atStop // a view is stopped with a savepoint
	atDrop // a view is dropped, then a checkpoint is asked for
)

// crashPlaces are the places around a checkpoint's life at which a process may die. C6, in the middle of the write of a manifest, is one of the store: what is not
// there whole is not there (checkpoint, TestHalfAManifestIsNone).
var crashPlaces = []struct {
	name, failpoint string
	step            crashStep
}{
	{"C1 an id was reserved", "checkpoint/reserved", atCheckpoint},
	{"C2 the epoch of the checkpoint was closed", "checkpoint/begun", atCheckpoint},
	{"C3 the tables have written their part", "tables/written", atCheckpoint},
	{"C3 a view is about to write its part", "exec/snapshot", atCheckpoint},
	{"C4 one object was uploaded", "checkpoint/uploaded", atCheckpoint},
	{"C5 all objects were uploaded", "checkpoint/after-upload", atCheckpoint},
	{"C7 the manifest was written", "checkpoint/after-manifest", atCheckpoint},
	{"C8 HEAD was written", "checkpoint/after-head", atCheckpoint},
	{"C9 nobody was told", "checkpoint/before-notify", atCheckpoint},
	{"C10 one was told", "checkpoint/notified", atCheckpoint},
	{"C11 nothing was deleted", "checkpoint/gc", atCheckpoint},
	{"C12 some objects were deleted", "checkpoint/deleted", atCheckpoint},
	{"C13 state is fetched", "checkpoint/fetch", atStartAlone},
	{"C14 state is opened", "state.restore", atStart},
	{"C15 a view was restored", "exec/after-restore", atStart},
	{"C16 a savepoint was begun", "savepoint/begin", atSavepoint},
	{"C16 a savepoint was written", "savepoint/written", atSavepoint},
	{"C17 HEAD was claimed", "checkpoint/after-claim", atStart},
	{"C18 what is to be swept was listed", "checkpoint/swept-list", atStart},
	{"C19 a view was stopped with a savepoint", "savepoint/stopped", atStop},
	{"C20 a view was dropped", "schema/stored", atDrop},
}

// TestCrashPoints kills a server with SIGKILL at each place and looks at what the next one makes of it.
func TestCrashPoints(t *testing.T) {
	checkpointrows.Shows(t, 1, 51, 76, 98, 107)
	dir := t.TempDir()
	crashEverywhere(t, serveOptions{dataDir: filepath.Join(dir, "data")}, "file://"+filepath.Join(dir, "bucket"), "file://"+filepath.Join(dir, "savepoints"))
}

// TestCrashPointsOnS3 is TestCrashPoints with a bucket.
func TestCrashPointsOnS3(t *testing.T) {
	checkpointrows.Shows(t, 70)
	g := startGateway(t)
	crashEverywhere(t, serveOptions{dataDir: filepath.Join(t.TempDir(), "data"), env: g.env}, g.url("crashpoints"), g.url("savepoints"))
}

func crashEverywhere(t *testing.T, o serveOptions, bucket, savepoints string) {
	o.checkpointDir = bucket
	o.settings = []string{"execution.checkpointing.interval=0s", "execution.checkpointing.savepoint-dir=" + savepoints}
	file := filepath.Join(t.TempDir(), "lines.csv")
	w := &pointWork{t: t, file: file}
	p := serve(t, o)
	w.create(p.client(t))
	for _, at := range crashPlaces {
		c := p.client(t)
		w.change(c)
		c.exec(`CHECKPOINT`)
		w.change(c) // in the write-ahead log alone, and in a file after the positions of the checkpoint
		faulty := o
		faulty.failpoints = at.failpoint + "=kill"
		switch at.step {
		case atStart, atStartAlone:
			if at.step == atStartAlone {
				c.exec(`CHECKPOINT`)
			}
			p.kill()
			if at.step == atStartAlone {
				require.NoError(t, os.RemoveAll(o.dataDir))
			}
			if q, err := launch(faulty); err == nil {
				require.True(t, q.endsWithin(stopTimeout), "%s: not reached\n%s", at.name, q.log)
			} else {
				require.ErrorIs(t, err, errEnded, at.name)
			}
		default:
			p.kill()
			p = serve(t, o)
			c = p.client(t)
			w.check(c, at.name+": before")
			c.exec(`CHECKPOINT`)
			p.stop(t)
			p = serve(t, faulty)
			c = p.client(t)
			w.change(c)
			var err error
			switch at.step {
			case atCheckpoint:
				for { // what comes after the answer may be left to the checkpoint after it
					w.change(c)
					if _, err = c.try(`CHECKPOINT`); p.endsWithin(time.Second) {
						break
					}
					require.NoError(t, err, at.name)
				}
			case atSavepoint:
				_, err = c.try(`SELECT streamdb.savepoint()`)
			case atStop:
				_, err = c.try(`SELECT streamdb.stop_with_savepoint('totals')`)
			case atDrop:
				_, err = c.try(`DROP MATERIALIZED VIEW spare`)
			}
			if at.step != atCheckpoint {
				require.Error(t, err, at.name)
			}
			require.True(t, p.endsWithin(stopTimeout), "%s: not reached\n%s", at.name, p.log)
		}
		p = serve(t, o)
		c = p.client(t)
		if at.step == atStop {
			require.Equal(t, "STOPPED", c.value(`SELECT state FROM streamdb.jobs WHERE name = 'totals'`), "what was stopped does not run again by itself")
			c.exec(`RESUME totals`)
		}
		if at.step == atDrop {
			_, err := c.try(`TABLE spare`)
			state, _ := code(err)
			require.Equal(t, "42P01", state)
			c.exec(`CREATE MATERIALIZED VIEW spare AS SELECT k % 5 AS g, count(*) AS n FROM t GROUP BY 1`)
		}
		w.check(c, at.name)
		// Once all is at rest there are the objects that the checkpoints need, and no others.
		c.exec(`CHECKPOINT`)
		w.change(c)
		c.exec(`CHECKPOINT`)
		out := ""
		require.True(t, eventually(stopTimeout, func() bool {
			_, out = command(t, o.env, "checkpoint", "gc", "--dry-run", bucket)
			return strings.Contains(out, "would remove 0 objects")
		}), "%s: %s", at.name, out)
		p.stop(t)
		exit, found := command(t, o.env, "checkpoint", "verify", bucket)
		require.Equal(t, 0, exit, "%s: %s", at.name, found)
		p = serve(t, o)
		w.check(p.client(t), at.name+": and again")
	}
}

// pointWork is a small database of which is known what has to be in it.
type pointWork struct {
	t     *testing.T
	file  string
	rows  int // of the table: keys 1 to rows, some of them changed
	lines int // of the file
}

func (w *pointWork) create(c *client) {
	require.NoError(w.t, os.WriteFile(w.file, []byte("k,v\n"), 0o600))
	for _, s := range []string{
		`CREATE TABLE t (k int PRIMARY KEY, v int, payload text)`,
		`CREATE SOURCE f (k int, v int) WITH (connector = 'file', path = '` + w.file + `') FORMAT PLAIN ENCODE CSV (header = 'true')`,
		`CREATE MATERIALIZED VIEW totals AS SELECT v % 10 AS g, count(*) AS n, sum(v) AS s FROM t GROUP BY 1`,
		`CREATE MATERIALIZED VIEW above AS SELECT n % 3 AS m, count(*) AS groups, sum(s) AS s FROM totals GROUP BY 1`,
		`CREATE MATERIALIZED VIEW lines AS SELECT v, count(*) AS n, count(DISTINCT k) AS keys FROM f GROUP BY v`,
		`CREATE MATERIALIZED VIEW pairs AS SELECT t.k, t.v, l.n FROM t JOIN lines l ON l.v = t.v % 7`,
		`CREATE MATERIALIZED VIEW spare AS SELECT k % 5 AS g, count(*) AS n FROM t GROUP BY 1`,
	} {
		c.exec(s)
	}
}

// change adds and changes rows and appends to the file.
func (w *pointWork) change(c *client) {
	from := w.rows + 1
	w.rows += 100
	c.exec(fmt.Sprintf(`INSERT INTO t SELECT g, g * 3, repeat(md5(g::text), 20) FROM generate_series(%d, %d) g`, from, w.rows))
	c.exec(fmt.Sprintf(`UPDATE t SET v = v + 1 WHERE k %% 17 = %d`, w.rows/100%17))
	c.exec(fmt.Sprintf(`DELETE FROM t WHERE k = %d`, from))
	var b strings.Builder
	for range 50 {
		w.lines++
		fmt.Fprintf(&b, "%d,%d\n", w.lines, w.lines%7)
	}
	out, err := os.OpenFile(w.file, os.O_APPEND|os.O_WRONLY, 0)
	require.NoError(w.t, err)
	_, err = out.WriteString(b.String())
	require.NoError(w.t, err)
	require.NoError(w.t, out.Close())
}

// check compares all views with what they are made of.
func (w *pointWork) check(c *client, when string) {
	c.wait(`SELECT coalesce(sum(n), 0) FROM lines`, fmt.Sprint(w.lines))
	require.Equal(w.t, fmt.Sprint(w.lines), c.value(`SELECT coalesce(sum(keys), 0) FROM lines`), when)
	c.exec(`FLUSH`)
	require.Equal(w.t, fmt.Sprint(w.rows-w.rows/100), c.value(`SELECT count(*) FROM t`), when)
	for view, query := range map[string]string{
		"totals": `SELECT v % 10 AS g, count(*) AS n, sum(v) AS s FROM t GROUP BY 1`,
		"above":  `SELECT n % 3 AS m, count(*) AS groups, sum(s) AS s FROM totals GROUP BY 1`,
		"pairs":  `SELECT t.k, t.v, l.n FROM t JOIN lines l ON l.v = t.v % 7`,
		"spare":  `SELECT k % 5 AS g, count(*) AS n FROM t GROUP BY 1`,
	} {
		require.Equal(w.t, lines(c.exec(query)), lines(c.exec(`TABLE `+view)), "%s: %s", when, view)
	}
}
