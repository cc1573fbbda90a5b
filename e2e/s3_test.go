//go:build e2e

package e2e

import (
	"errors"
	"fmt"
	"io/fs"
	"net"
	"net/http"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// Sizes and times of the tests with a bucket.
const (
	s3Kills       = 10
	bucket        = "streamdb"
	stateRows     = 400_000
	stateRowsFull = 2_000_000
	payloadBytes  = 500 // per row, hardly compressible
	insertRows    = 20_000
	changedShare  = 100 // one row of so many is changed
	uploadShare   = 20  // and at most one byte of so many uploaded
	idleTime      = 15 * time.Second
	idleTimeFull  = time.Minute
	settleTime    = 30 * time.Second
)

// gateway is an S3 server over a local folder.
type gateway struct {
	endpoint string
	root     string
	env      []string
}

// startGateway runs versitygw.
func startGateway(t *testing.T) *gateway {
	t.Helper()
	program, err := exec.LookPath("versitygw")
	if errors.Is(err, exec.ErrNotFound) {
		program, err = exec.LookPath(filepath.Join("..", ".cache", "bin", "versitygw"))
	}
	require.NoError(t, err, "make versitygw builds it")
	dir := t.TempDir()
	g := &gateway{root: filepath.Join(dir, "root"), env: []string{"AWS_ACCESS_KEY_ID=e2e", "AWS_SECRET_ACCESS_KEY=secret-of-the-test", "AWS_EC2_METADATA_DISABLED=true"}}
	sidecar := filepath.Join(dir, "sidecar")
	require.NoError(t, os.MkdirAll(filepath.Join(g.root, bucket), 0o700))
	require.NoError(t, os.MkdirAll(sidecar, 0o700))
	addr := freeAddr(t)
	g.endpoint = "http://" + addr
	cmd := exec.Command(program, "--port", addr, "--access", "e2e", "--secret", "secret-of-the-test", "--quiet", "posix", "--sidecar", sidecar, g.root)
	log := &tail{}
	cmd.Stdout, cmd.Stderr = log, log
	require.NoError(t, cmd.Start())
	done := make(chan struct{})
	go func() {
		defer close(done)
		_ = cmd.Wait() // killed at the end
	}()
	t.Cleanup(func() {
		_ = cmd.Process.Kill() // has ended if this fails
		<-done
	})
	require.True(t, eventually(startTimeout, func() bool {
		resp, err := http.Get(g.endpoint)
		if err != nil {
			return false
		}
		return resp.Body.Close() == nil
	}), "versitygw does not answer\n%s", log)
	return g
}

func freeAddr(t *testing.T) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	defer l.Close()
	return l.Addr().String()
}

// url is a checkpoint directory in the bucket.
func (g *gateway) url(prefix string) string {
	return fmt.Sprintf("s3://%s/%s?endpoint=%s&region=us-east-1&force_path_style=true", bucket, prefix, url.QueryEscape(g.endpoint))
}

// object is what the bucket holds under a name.
type storedObject struct {
	size    int64
	changed time.Time
}

// objects lists the bucket from behind.
func (g *gateway) objects(t *testing.T) map[string]storedObject {
	t.Helper()
	out := map[string]storedObject{}
	err := filepath.WalkDir(filepath.Join(g.root, bucket), func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return ignoreGone(err)
		}
		info, err := d.Info()
		if err == nil {
			out[path] = storedObject{size: info.Size(), changed: info.ModTime()}
		}
		return ignoreGone(err)
	})
	require.NoError(t, err)
	return out
}

// ignoreGone: objects are deleted while they are listed.
func ignoreGone(err error) error {
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	return err
}

// written sums the bytes of objects that are new or changed.
func written(before, after map[string]storedObject) (bytes int64, objects int) {
	for name, o := range after {
		if before[name] != o {
			bytes += o.size
			objects++
		}
	}
	return bytes, objects
}

// TestS3Crash kills the server while its checkpoints go to a bucket, and at last restores the database from the bucket alone.
func TestS3Crash(t *testing.T) {
	g := startGateway(t)
	o := serveOptions{dataDir: filepath.Join(t.TempDir(), "data"), checkpointDir: g.url("crash"), settings: crashSettings, env: g.env}
	w, p := killLoop(t, o, s3Kills)
	c := p.client(t)
	w.check(c)
	c.exec(`CHECKPOINT`)
	relations := []string{"accounts", "orders", "journal", "v_clicks", "v_window"}
	for _, v := range views {
		relations = append(relations, v.name)
	}
	want := map[string]string{}
	for _, r := range relations {
		want[r] = lines(c.exec(`SELECT * FROM ` + r))
	}
	p.kill()
	require.NoError(t, os.RemoveAll(o.dataDir))
	began := time.Now()
	p = serve(t, o)
	c = p.client(t)
	for _, r := range relations {
		require.Equal(t, want[r], lines(c.exec(`SELECT * FROM `+r)), "%s restored from the bucket", r)
	}
	t.Logf("restored %d relations from the bucket in %d ms", len(relations), time.Since(began).Milliseconds())
	w.copies = nil // histories were in the data directory: subscribers begin anew
	w.check(c)
	c.exec(`INSERT INTO orders VALUES (-1, 0, 5)`) // goes on like any other
	c.exec(`FLUSH`)
	require.Equal(t, "1", c.value(`SELECT count(*) FROM v_full WHERE order_id = -1`))
	p.stop(t)

	for _, args := range [][]string{{"list"}, {"inspect"}, {"verify"}} {
		exit, out := command(t, g.env, append([]string{"checkpoint", args[0]}, o.checkpointDir)...)
		require.Equal(t, 0, exit, "checkpoint %s: %s", args[0], out)
		require.NotEmpty(t, out)
		t.Logf("streamdb checkpoint %s\n%s", args[0], firstLines(out, 12))
	}
	_, out := command(t, g.env, "checkpoint", "verify", o.checkpointDir)
	require.Contains(t, out, ", 0 problems")
	exit, out := command(t, g.env, "checkpoint", "gc", "--dry-run", o.checkpointDir)
	require.Equal(t, 0, exit, out)
}

func firstLines(s string, n int) string {
	for i, c := range s {
		if c == '\n' {
			if n--; n == 0 {
				return s[:i] + "\n…"
			}
		}
	}
	return s
}

// TestS3Upload: what a checkpoint uploads follows what changed, and an idle database uploads nothing.
func TestS3Upload(t *testing.T) {
	g := startGateway(t)
	rows, idle := stateRows, idleTime
	if os.Getenv("STREAMDB_E2E_FULL") == "1" {
		rows, idle = stateRowsFull, idleTimeFull
	}
	// Checkpoints are made when they are asked for, until the idle time is measured.
	p := serve(t, serveOptions{
		dataDir: filepath.Join(t.TempDir(), "data"), checkpointDir: g.url("upload"), env: g.env, memory: "1GiB",
		settings: []string{"execution.checkpointing.interval=0s"},
	})
	c := p.client(t)
	c.exec(`CREATE TABLE big (id bigint PRIMARY KEY, n bigint, payload varchar)`)
	c.exec(`CREATE MATERIALIZED VIEW v_big AS SELECT id, n, payload FROM big WHERE n >= 0`)
	payload := `substr(`
	for i := range payloadBytes/32 + 1 {
		if i > 0 {
			payload += ` || `
		}
		payload += fmt.Sprintf(`md5((i * 31 + %d)::text)`, i)
	}
	payload += fmt.Sprintf(`, 1, %d)`, payloadBytes)
	for from := 0; from < rows; from += insertRows {
		c.exec(fmt.Sprintf(`INSERT INTO big SELECT i, 0, %s FROM generate_series(%d, %d) AS g(i)`, payload, from, from+insertRows-1))
	}
	c.exec(`FLUSH`)
	began := time.Now()
	empty := g.objects(t)
	c.exec(`CHECKPOINT`)
	full := g.objects(t)
	first, _ := written(empty, full)
	t.Logf("%d rows: %.1f MB in the bucket after the first checkpoint, in %.1f s", rows, float64(first)/1e6, time.Since(began).Seconds())
	require.Greater(t, first, int64(rows)*payloadBytes/4)

	c.exec(fmt.Sprintf(`UPDATE big SET n = n + 1 WHERE id %% %d = 7`, changedShare))
	c.exec(`FLUSH`)
	before, last := g.objects(t), c.number(`SELECT max(checkpoint_id) FROM streamdb.checkpoints`)
	began = time.Now()
	c.exec(`CHECKPOINT`)
	changed, objects := written(before, g.objects(t))
	uploaded := c.number(fmt.Sprintf(`SELECT sum(uploaded_bytes) FROM streamdb.checkpoints WHERE checkpoint_id > %d`, last))
	size := c.number(fmt.Sprintf(`SELECT sum(full_size) FROM streamdb.checkpoints WHERE checkpoint_id > %d`, last))
	t.Logf("1 %% changed: %.2f MB in %d objects (%.2f %% of the first), uploaded_bytes %.2f MB, full_size %.1f MB, in %d ms", float64(changed)/1e6, objects,
		100*float64(changed)/float64(first), float64(uploaded)/1e6, float64(size)/1e6, time.Since(began).Milliseconds())
	require.Less(t, changed, first/uploadShare)
	require.Less(t, uploaded, first/uploadShare)
	require.Positive(t, uploaded)

	c.exec(`ALTER SYSTEM SET execution.checkpointing.interval = '200ms'`)
	stable := g.objects(t)
	require.True(t, eventually(settleTime, func() bool { // a new base may be on its way
		pause(time.Second)
		now := g.objects(t)
		bytes, n := written(stable, now)
		gone := len(stable) + n - len(now)
		stable = now
		return bytes == 0 && n == 0 && gone == 0
	}), "the bucket does not come to rest")
	pause(idle)
	after := g.objects(t)
	bytes, objects := written(stable, after)
	require.Zero(t, objects, "an idle database wrote %d bytes: %v", bytes, changedNames(stable, after))
	require.Len(t, after, len(stable))
	t.Logf("idle for %s: nothing written", idle)
	require.Equal(t, c.value(`SELECT sum(n) FROM big`), c.value(`SELECT sum(n) FROM v_big`))
}

func changedNames(before, after map[string]storedObject) (names []string) {
	for name, o := range after {
		if before[name] != o {
			names = append(names, name)
		}
	}
	slices.Sort(names)
	return names
}
