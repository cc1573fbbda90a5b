//go:build e2e

package e2e

import (
	"context"
	"fmt"
	"io/fs"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgconn"
	"github.com/stretchr/testify/require"
)

// TestFileCountsAreExact: kills at random moments between reading a file and the checkpoint; counts and sums are exact each time, with checkpoints of all kinds.
func TestFileCountsAreExact(t *testing.T) {
	const kills, longest = 20, 400 * time.Millisecond
	rng := rand.New(rand.NewPCG(42, 42))
	o := serveOptions{dataDir: filepath.Join(t.TempDir(), "data"), settings: []string{"execution.checkpointing.interval=100ms", "execution.checkpointing.min-pause=0s"}}
	clicks := &clickFile{path: filepath.Join(t.TempDir(), "clicks.json"), rng: rng}
	require.NoError(t, os.WriteFile(clicks.path, nil, 0o600))
	p := serve(t, o)
	c := p.client(t)
	c.exec(fmt.Sprintf(`CREATE SOURCE clicks (n bigint, account bigint, page varchar) WITH (connector = 'file', path = '%s') FORMAT PLAIN ENCODE JSON`, clicks.path))
	of := map[string]string{"plain": "", "unaligned": `WITH ("execution.checkpointing.unaligned.enabled" = true)`, "once": `WITH ("execution.checkpointing.mode" = 'AT_LEAST_ONCE')`, "whole": `WITH ("execution.checkpointing.incremental" = false)`}
	for name, settings := range of {
		c.exec(`CREATE MATERIALIZED VIEW ` + name + ` ` + settings + ` AS SELECT count(*) AS rows, sum(n) AS total, count(DISTINCT n) AS numbers, max(n) AS last FROM clicks`)
	}
	for n := range kills {
		go func() { pause(time.Duration(rng.Int64N(int64(longest)))); p.kill() }()
		clicks.run(t, p, nil) // until the server is gone
		<-p.done
		p = serve(t, o)
		c = p.client(t)
		for name := range of {
			c.wait(`SELECT rows FROM `+name, fmt.Sprint(clicks.written))
			require.Equal(t, fmt.Sprint(clicks.written*(clicks.written+1)/2), c.value(`SELECT total FROM `+name), "kill %d: %s", n, name)
			require.Equal(t, "t", c.value(`SELECT rows = numbers AND rows = last FROM `+name), "kill %d: %s", n, name)
		}
	}
	t.Logf("%d kills, %d lines", kills, clicks.written)
}

// TestRestartsWithoutData: servers that are killed, or stopped, again and again while nothing comes show the same, and the checkpoint folder does not grow.
func TestRestartsWithoutData(t *testing.T) {
	const restarts = 5
	for _, end := range []string{"killed", "stopped"} {
		t.Run(end, func(t *testing.T) {
			dir := t.TempDir()
			folder := filepath.Join(dir, "bucket")
			o := serveOptions{dataDir: filepath.Join(dir, "data"), checkpointDir: "file://" + folder, settings: []string{"execution.checkpointing.interval=100ms", "execution.checkpointing.min-pause=0s"}}
			p := serve(t, o)
			c := p.client(t)
			w := &pointWork{t: t, file: filepath.Join(dir, "lines.csv")}
			w.create(c)
			w.change(c)
			w.check(c, "at first")
			c.exec(`CHECKPOINT`)
			relations := []string{"t", "totals", "above", "lines", "pairs", "spare"}
			want := map[string]string{}
			for _, r := range relations {
				want[r] = lines(c.exec(`TABLE ` + r))
			}
			objects, size := 0, int64(0)
			for n := range restarts {
				if end == "killed" {
					p.kill()
				} else {
					p.stop(t)
				}
				p = serve(t, o)
				c = p.client(t)
				for _, r := range relations {
					require.Equal(t, want[r], lines(c.exec(`TABLE `+r)), "restart %d: %s", n, r)
				}
				c.exec(`CHECKPOINT`)
				nothingToRemove(t, o)
				count, bytes := folderSize(t, folder)
				if n < 2 { // the checkpoints that are kept become those of servers with nothing to do
					objects, size = max(objects, count), max(size, bytes)
				}
				require.LessOrEqual(t, count, objects, "restart %d: objects", n)
				require.LessOrEqual(t, bytes, size+size/20, "restart %d: bytes", n)
			}
			w.change(c)
			w.check(c, "and goes on")
		})
	}
}

// TestNamesUsedAgain: after DROP, CREATE under the same name, and RENAME, a kill at once or after a checkpoint leaves the new definition with its own state, and
// views over it too.
func TestNamesUsedAgain(t *testing.T) {
	for _, checkpoints := range []bool{false, true} {
		t.Run(fmt.Sprintf("checkpoints %t", checkpoints), func(t *testing.T) {
			o := serveOptions{dataDir: filepath.Join(t.TempDir(), "data"), settings: []string{"execution.checkpointing.interval=0s"}}
			p := serve(t, o)
			c := p.client(t)
			ids := map[string]bool{}
			newID := func(r string) {
				t.Helper()
				id := c.value(`SELECT '` + r + `'::regclass::oid`)
				require.False(t, ids[id], "an id is used again")
				ids[id] = true
			}
			again := func(want map[string]string) {
				t.Helper()
				if checkpoints {
					c.exec(`CHECKPOINT`)
				}
				c.exec(`INSERT INTO t SELECT max(id) + 1, 10 FROM t`)
				c.exec(`DELETE FROM t WHERE id = (SELECT max(id) FROM t)`)
				c.exec(`FLUSH`)
				for r, rows := range want {
					require.Equal(t, rows, lines(c.exec(`TABLE `+r)), "%s before the kill", r)
				}
				p.kill()
				p = serve(t, o)
				c = p.client(t)
				c.exec(`FLUSH`)
				for r, rows := range want {
					require.Equal(t, rows, lines(c.exec(`TABLE `+r)), r)
				}
			}
			c.exec(`CREATE TABLE t (id int PRIMARY KEY, v int); INSERT INTO t SELECT g, g FROM generate_series(1, 100) g`)
			c.exec(`CREATE MATERIALIZED VIEW m AS SELECT count(*) AS n FROM t; CREATE MATERIALIZED VIEW d AS SELECT n + 1 AS n FROM m`)
			newID("m")
			again(map[string]string{"m": "100", "d": "101"})
			_, err := c.try(`DROP MATERIALIZED VIEW m`)
			state, _ := code(err)
			require.Equal(t, "2BP01", state)
			c.exec(`DROP MATERIALIZED VIEW m CASCADE`)
			c.exec(`CREATE MATERIALIZED VIEW m AS SELECT sum(v) AS n FROM t; CREATE MATERIALIZED VIEW d AS SELECT n * 2 AS n FROM m`)
			newID("m")
			again(map[string]string{"m": "5050", "d": "10100"})
			c.exec(`CREATE MATERIALIZED VIEW n AS SELECT max(v) AS n FROM t`)
			c.exec(`ALTER MATERIALIZED VIEW m RENAME TO swap; ALTER MATERIALIZED VIEW n RENAME TO m; ALTER MATERIALIZED VIEW swap RENAME TO n`)
			again(map[string]string{"n": "5050", "m": "100", "d": "10100"})
			c.exec(`BEGIN; DROP MATERIALIZED VIEW m; CREATE MATERIALIZED VIEW m AS SELECT min(v) AS n FROM t; COMMIT`)
			newID("m")
			again(map[string]string{"n": "5050", "m": "1", "d": "10100"})
			c.exec(`CREATE TABLE u (id int PRIMARY KEY, v int); INSERT INTO u VALUES (1, 1); DROP TABLE u; CREATE TABLE u (v text, id bigint PRIMARY KEY); INSERT INTO u VALUES ('x', 2)`)
			newID("u")
			again(map[string]string{"u": "x|2", "n": "5050", "m": "1", "d": "10100"})
		})
	}
}

// TestViewFilledWhileWriting: four writers insert and delete while a view is filled, and the server is killed in the fill.
func TestViewFilledWhileWriting(t *testing.T) {
	const rows, concurrent, after = 100_000, 4, 500 * time.Millisecond
	for _, settings := range []string{`background = true`, `background = true, parallelism = 2, "execution.checkpointing.unaligned.enabled" = true`} {
		for _, life := range []time.Duration{20 * time.Millisecond, 150 * time.Millisecond, 600 * time.Millisecond} {
			t.Run(fmt.Sprintf("%s %s", settings, life), func(t *testing.T) {
				o := serveOptions{dataDir: filepath.Join(t.TempDir(), "data"), settings: []string{"execution.checkpointing.interval=100ms", "execution.checkpointing.min-pause=0s"}}
				p := serve(t, o)
				c := p.client(t)
				c.exec(`CREATE TABLE t (id bigint PRIMARY KEY, g int, v bigint)`)
				c.exec(fmt.Sprintf(`INSERT INTO t SELECT i, i %% 1000, i FROM generate_series(1, %d) i`, rows))
				const of = `SELECT a.g, count(*) AS n, sum(a.v) AS total, count(DISTINCT a.v) AS kinds FROM t a JOIN t b ON a.id = b.v GROUP BY a.g`
				var acknowledged [concurrent]int
				write := func(p *process, stop <-chan struct{}) *sync.WaitGroup {
					var wg sync.WaitGroup
					for w := range concurrent {
						wg.Go(func() {
							repeat(p, stop, func(conn *pgconn.PgConn) bool {
								k := acknowledged[w]
								id := rows + 1 + k*concurrent + w
								_, err := query(context.Background(), conn, fmt.Sprintf(`INSERT INTO t VALUES (%d, %d, %d) ON CONFLICT (id) DO NOTHING; DELETE FROM t WHERE id = %d`, id, k%1000, id, k*concurrent+w+1))
								if err == nil {
									acknowledged[w]++
								} else if state, _ := code(err); state == serializationFailure {
									return true
								}
								return err == nil
							})
						})
					}
					return &wg
				}
				stop := make(chan struct{})
				wg := write(p, stop)
				c.exec(`CREATE MATERIALIZED VIEW m WITH (` + settings + `) AS ` + of)
				pause(life)
				p.kill()
				close(stop)
				wg.Wait()
				p = serve(t, o)
				stop = make(chan struct{})
				wg = write(p, stop)
				c = p.client(t)
				pause(after)
				close(stop)
				wg.Wait()
				c.exec(`WAIT m; FLUSH`)
				require.Equal(t, lines(c.exec(of)), lines(c.exec(`TABLE m`)))
				for w, n := range acknowledged {
					first, last := w+1, rows+(n-1)*concurrent+w+1
					require.Equal(t, "0|1", lines(c.exec(fmt.Sprintf(`SELECT count(*) FILTER (WHERE id = %d), count(*) FILTER (WHERE id = %d) FROM t`, first, last))), "writer %d, %d", w, n)
				}
			})
		}
	}
}

// nothingToRemove waits until the checkpoint folder holds what its checkpoints need and nothing else.
func nothingToRemove(t *testing.T, o serveOptions) {
	t.Helper()
	out := ""
	require.True(t, eventually(stopTimeout, func() bool {
		_, out = command(t, o.env, "checkpoint", "gc", "--dry-run", o.checkpointDir)
		return strings.Contains(out, "would remove 0 objects")
	}), out)
}

func folderSize(t *testing.T, folder string) (files int, bytes int64) {
	t.Helper()
	require.NoError(t, filepath.WalkDir(folder, func(_ string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return ignoreGone(err)
		}
		info, err := d.Info()
		if err != nil {
			return ignoreGone(err)
		}
		files++
		bytes += info.Size()
		return nil
	}))
	return files, bytes
}
