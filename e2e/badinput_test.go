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
)

// unreachableLimit is how long a start may take to give up a store that does not answer.
const unreachableLimit = 60 * time.Second

func TestWrongStatements(t *testing.T) {
	p := serve(t, serveOptions{dataDir: t.TempDir()})
	c := p.client(t)
	for _, test := range []struct{ sql, sqlstate, says string }{
		{`CREATE SOURCE s (a int) WITH (connector = 'nexmrak') FORMAT PLAIN ENCODE JSON`, "", "nexmark"},
		{`CREATE SOURCE s WITH (connector = 'nexmark', nexmark.event.rat = '5')`, "", "nexmark.event.rate"},
		{`CREATE SOURCE s WITH (connector = 'nexmark', nexmark.event.rate = 'fast')`, "", "fast"},
		{`CREATE SOURCE s (a int) WITH (connector = 'file') FORMAT PLAIN ENCODE CSV`, "", "path"},
		{`CREATE SOURCE s (a int) WITH (connector = 'file', path = 'x') FORMAT PLAIN ENCODE CSW`, "", "CSW"},
		{`SELECT * FROM nowhere`, "42P01", "nowhere"},
		{`SELECT 1 +`, "42601", "syntax"},
		{`CREATE MATERIALIZED VIEW v AS SELECT nothing FROM streamdb.jobs`, "", ""},
	} {
		_, err := c.try(test.sql)
		require.Error(t, err, test.sql)
		sqlstate, message := code(err)
		require.NotEmpty(t, sqlstate, "%s: %v", test.sql, err)
		require.NotContains(t, []string{"XX000", ""}, sqlstate, "%s: %v", test.sql, err)
		if test.sqlstate != "" {
			require.Equal(t, test.sqlstate, sqlstate, "%s: %v", test.sql, err)
		}
		require.Contains(t, strings.ToLower(message), strings.ToLower(test.says), test.sql)
		t.Logf("%s: %s", sqlstate, message)
	}
	require.Equal(t, "1", c.value(`SELECT 1`))
}

// TestBadRows: rows that do not decode or cannot be computed are listed, the others arrive, and other views do not notice.
func TestBadRows(t *testing.T) {
	dir := t.TempDir()
	csv := filepath.Join(dir, "rows.csv")
	require.NoError(t, os.WriteFile(csv, []byte("1,one,10\n2,two,twenty\n3,three,30\n4,four\n5,\"five\",50\n"), 0o600))
	p := serve(t, serveOptions{dataDir: filepath.Join(dir, "data"), settings: crashSettings})
	c := p.client(t)
	c.exec(`CREATE SOURCE rows (id int, name varchar, n int) WITH (connector = 'file', path = '` + csv + `') FORMAT PLAIN ENCODE CSV (without_header = 'true')`)
	c.exec(`CREATE MATERIALIZED VIEW v_rows AS SELECT * FROM rows`)
	c.wait(`SELECT count(*) FROM v_rows`, "3")
	require.Equal(t, "1|one|10\n3|three|30\n5|five|50", lines(c.exec(`SELECT * FROM v_rows`)))
	c.wait(`SELECT count(*) FROM streamdb.errors WHERE job = 'v_rows'`, "2")
	for _, r := range c.exec(`SELECT sqlstate, message, "row" FROM streamdb.errors`) {
		t.Log(strings.Join(r, " | "))
	}

	c.exec(`CREATE TABLE numbers (id int PRIMARY KEY, n int)`)
	c.exec(`CREATE MATERIALIZED VIEW v_divided AS SELECT id, 100 / n AS share FROM numbers`)
	c.exec(`CREATE MATERIALIZED VIEW v_sum AS SELECT sum(n) AS total FROM numbers`)
	c.exec(`INSERT INTO numbers VALUES (1, 10), (2, 0), (3, 50)`)
	c.exec(`FLUSH`)
	require.Equal(t, "1|10\n3|2", lines(c.exec(`SELECT * FROM v_divided`)))
	require.Equal(t, "60", c.value(`SELECT total FROM v_sum`))
	require.Equal(t, "22012", c.value(`SELECT sqlstate FROM streamdb.errors WHERE job = 'v_divided'`))
	c.exec(`CHECKPOINT`)
	p.kill()
	p = serve(t, serveOptions{dataDir: filepath.Join(dir, "data"), settings: crashSettings})
	c = p.client(t)
	c.exec(`FLUSH`)
	require.Equal(t, "1|10\n3|2", lines(c.exec(`SELECT * FROM v_divided`)))
	require.Equal(t, "1", c.value(`SELECT count(*) FROM streamdb.errors WHERE job = 'v_divided'`), "errors after a restart")
	c.exec(`UPDATE numbers SET n = 5 WHERE id = 2`)
	c.exec(`FLUSH`)
	require.Equal(t, "1|10\n2|20\n3|2", lines(c.exec(`SELECT * FROM v_divided`)))
	require.Equal(t, "0", c.value(`SELECT coalesce(sum(weight), 0) FROM streamdb.errors WHERE job = 'v_divided'`), "the error leaves with its cause")
}

// TestUnreachableStore: a bucket that cannot be reached is said so, soon, with exit code 1.
func TestUnreachableStore(t *testing.T) {
	env := []string{"AWS_ACCESS_KEY_ID=e2e", "AWS_SECRET_ACCESS_KEY=e2e", "AWS_EC2_METADATA_DISABLED=true"}
	addr := freeAddr(t)
	began := time.Now()
	exit, out := command(t, env, "serve", "--listen", "127.0.0.1:0", "--http", "", "--data-dir", t.TempDir(),
		"--checkpoint-dir", fmt.Sprintf("s3://b/p?endpoint=http://%s&region=us-east-1&force_path_style=true", addr))
	require.Equal(t, 1, exit, out)
	require.Contains(t, out, addr)
	require.Less(t, time.Since(began), unreachableLimit)
	t.Logf("after %d ms: %s", time.Since(began).Milliseconds(), out)

	exit, out = command(t, nil, "serve", "--listen", "127.0.0.1:0", "--data-dir", t.TempDir(), "--checkpoint-dir", "ftp://nowhere")
	require.Equal(t, 1, exit, out)
	require.Contains(t, out, "ftp")
	exit, out = command(t, nil, "serve", "--no-such-flag")
	require.Equal(t, 2, exit, out)
}

// TestGarbageOfARunningServer: what no checkpoint needs is removed by hand only when the server is gone, or when one insists; checkpoints are whole all the same.
func TestGarbageOfARunningServer(t *testing.T) {
	o := serveOptions{dataDir: t.TempDir(), settings: crashSettings}
	p := serve(t, o)
	c := p.client(t)
	c.exec(`CREATE TABLE t (id int PRIMARY KEY); CREATE MATERIALIZED VIEW v AS SELECT count(*) AS n FROM t; INSERT INTO t VALUES (1); CHECKPOINT`)
	dir := filepath.Join(o.dataDir, "checkpoints")
	orphan := filepath.Join(dir, "pack", "0000000000000001-x-1.pack")
	require.NoError(t, os.MkdirAll(filepath.Dir(orphan), 0o755))
	require.NoError(t, os.WriteFile(orphan, []byte("x"), 0o600))

	exit, out := command(t, nil, "checkpoint", "gc", dir)
	require.Equal(t, 1, exit, out)
	require.Contains(t, out, fmt.Sprintf("whose process %d is running", p.cmd.Process.Pid))
	require.Contains(t, out, "--force")
	exit, out = command(t, nil, "checkpoint", "gc", "--dry-run", dir)
	require.Equal(t, 0, exit, out)
	require.FileExists(t, orphan)
	exit, out = command(t, nil, "checkpoint", "gc", "--force", dir)
	require.Equal(t, 0, exit, out)
	require.NoFileExists(t, orphan)
	c.exec(`INSERT INTO t VALUES (2); CHECKPOINT`)
	p.kill()

	require.NoError(t, os.MkdirAll(filepath.Dir(orphan), 0o755))
	require.NoError(t, os.WriteFile(orphan, []byte("x"), 0o600))
	exit, out = command(t, nil, "checkpoint", "gc", dir)
	require.Equal(t, 0, exit, out)
	require.NoFileExists(t, orphan)
	p = serve(t, o)
	require.Equal(t, "2", p.client(t).value(`SELECT n FROM v`))
	p.stop(t)
}

// TestFullDisk: what could not be written was not committed and is said so; what was acknowledged is there, also after a crash.
func TestFullDisk(t *testing.T) {
	for _, point := range []string{"wal/append", "wal/sync"} {
		t.Run(strings.ReplaceAll(point, "/", "-"), func(t *testing.T) {
			o := serveOptions{dataDir: t.TempDir(), settings: crashSettings}
			p := serve(t, o)
			c := p.client(t)
			c.exec(`CREATE TABLE t (id int PRIMARY KEY); CREATE MATERIALIZED VIEW v AS SELECT count(*) AS n FROM t`)
			p.stop(t)
			faulty := o
			faulty.failpoints = point + "=30%error(no space left on device)"
			p = serve(t, faulty)
			c = p.client(t)
			var want []string
			refused := 0
			for i := range 200 {
				_, err := c.try(fmt.Sprintf(`INSERT INTO t VALUES (%d)`, i))
				if err == nil {
					want = append(want, fmt.Sprint(i))
					continue
				}
				refused++
				sqlstate, message := code(err)
				require.Equal(t, "53100", sqlstate, message)
			}
			require.NotZero(t, refused)
			check := func() {
				t.Helper()
				c.exec(`FLUSH`)
				var got []string
				for _, r := range c.exec(`SELECT id FROM t ORDER BY id`) {
					got = append(got, r[0])
				}
				require.Equal(t, want, got)
				require.Equal(t, fmt.Sprint(len(want)), c.value(`SELECT n FROM v`))
			}
			check()
			p.kill()
			p = serve(t, o)
			c = p.client(t)
			check()
			c.exec(`INSERT INTO t VALUES (1000)`)
			want = append(want, "1000")
			check()
			t.Logf("%d inserts acknowledged, %d refused with 53100", len(want), refused)
		})
	}
}

// TestSecondServer: a directory has one server.
func TestSecondServer(t *testing.T) {
	dir := t.TempDir()
	p := serve(t, serveOptions{dataDir: dir})
	exit, out := command(t, nil, "serve", "--listen", "127.0.0.1:0", "--http", "", "--data-dir", dir)
	require.Equal(t, 1, exit, out)
	require.Contains(t, out, "in use")
	require.Contains(t, out, "hint")
	require.Equal(t, "1", p.client(t).value(`SELECT 1`))
}

// TestDamagedCheckpoint flips bytes of what a checkpoint consists of and restores from it, without the local copies.
func TestDamagedCheckpoint(t *testing.T) {
	setup := func(t *testing.T) (o serveOptions, folder string) {
		dir := t.TempDir()
		folder = filepath.Join(dir, "checkpoints")
		o = serveOptions{dataDir: filepath.Join(dir, "data"), checkpointDir: "file://" + folder, settings: []string{"execution.checkpointing.interval=0s"}}
		p := serve(t, o)
		c := p.client(t)
		c.exec(`CREATE TABLE t (id int PRIMARY KEY, name varchar)`)
		c.exec(`CREATE MATERIALIZED VIEW v_large AS SELECT id, name || name AS name, name || id AS more FROM t`)
		c.exec(`CREATE MATERIALIZED VIEW v_small AS SELECT count(*) AS n FROM t`)
		c.exec(`INSERT INTO t SELECT i, md5(i::text) FROM generate_series(1, 20000) AS g(i)`)
		c.exec(`FLUSH`)
		c.exec(`CHECKPOINT`)
		p.kill()
		require.NoError(t, os.RemoveAll(o.dataDir))
		return o, folder
	}
	t.Run("state of one view", func(t *testing.T) {
		o, folder := setup(t)
		_, out := command(t, nil, "checkpoint", "inspect", o.checkpointDir)
		damaged := flipFileOf(t, folder, out, "v_large")
		exit, out := command(t, nil, "checkpoint", "verify", o.checkpointDir)
		require.Equal(t, 1, exit, out)
		require.Contains(t, out, filepath.Base(damaged))
		t.Log(out)
		p := serve(t, o)
		c := p.client(t)
		require.Equal(t, "20000", c.value(`SELECT count(*) FROM t`))
		require.Equal(t, "20000", c.value(`SELECT n FROM v_small`))
		// The view's query and its input are intact, so it is filled again; the log says why.
		c.wait(`SELECT count(*) FROM v_large`, "20000")
		require.Equal(t, lines(c.exec(`SELECT id, name || name, name || id FROM t`)), lines(c.exec(`SELECT * FROM v_large`)))
		t.Logf("state %s\n%s", c.value(`SELECT state FROM streamdb.jobs WHERE name = 'v_large'`), p.log)
		require.Contains(t, p.log.String(), filepath.Base(damaged))
		c.exec(`INSERT INTO t VALUES (-1, 'new')`)
		c.exec(`FLUSH`)
		require.Equal(t, "20001", c.value(`SELECT n FROM v_small`))
		require.Equal(t, "newnew", c.value(`SELECT name FROM v_large WHERE id = -1`))
	})
	t.Run("manifest", func(t *testing.T) {
		o, folder := setup(t)
		manifests, err := filepath.Glob(filepath.Join(folder, "chk", "*.manifest"))
		require.NoError(t, err)
		require.NotEmpty(t, manifests)
		for _, m := range manifests {
			flip(t, m)
		}
		exit, out := command(t, nil, "checkpoint", "verify", o.checkpointDir)
		require.Equal(t, 1, exit, out)
		p, err := launch(o)
		t.Cleanup(p.kill)
		require.ErrorIs(t, err, errEnded, "a database whose only manifest is damaged does not start empty")
		require.Equal(t, 1, p.cmd.ProcessState.ExitCode())
		require.Contains(t, p.log.String(), ".manifest")
		t.Log(p.log)
	})
}

// flip inverts a byte in the middle of a file.
func flip(t *testing.T, path string) {
	t.Helper()
	b, err := os.ReadFile(path)
	require.NoError(t, err)
	require.NotEmpty(t, b)
	b[len(b)/2] ^= 0xff
	require.NoError(t, os.WriteFile(path, b, 0o600)) // #nosec G703 -- a path of the test
}

// flipFileOf damages the first object that checkpoint inspect lists for a job.
func flipFileOf(t *testing.T, folder, inspect, job string) string {
	t.Helper()
	_, section, ok := strings.Cut(inspect, " "+job+"\n")
	require.True(t, ok, inspect)
	section, _, _ = strings.Cut(section, "\njob ")
	_, at, ok := strings.Cut(section, " bytes at ")
	require.True(t, ok, section)
	name, _, _ := strings.Cut(at, "+")
	path := filepath.Join(folder, filepath.FromSlash(name))
	flip(t, path)
	return path
}
