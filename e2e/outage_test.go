//go:build e2e

package e2e

import (
	"fmt"
	"io/fs"
	"math/rand/v2"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgconn"
	"github.com/stretchr/testify/require"

	"github.com/streamdb/streamdb/storage/object/objecttest"
)

// defaultOutage is for how many milliseconds the store is away each time; what comes between takes about twice as long.
const defaultOutage = 1500

// TestStoreOutages: a store that answers nothing but errors for a third of the time delays checkpoints and nothing else, and a server killed in an outage, or by
// one that begins in the middle of a checkpoint, loses nothing.
func TestStoreOutages(t *testing.T) {
	store := objecttest.NewS3Server(t, bucket)
	rng := rand.New(rand.NewPCG(7, 7))
	outage := time.Duration(intEnv(t, "STREAMDB_E2E_OUTAGE", defaultOutage)) * time.Millisecond
	kinds := []struct {
		name  string
		fault func(*http.Request) objecttest.S3Fault
	}{
		{"500", func(*http.Request) objecttest.S3Fault { return objecttest.S3FailBefore }},
		{"503", func(*http.Request) objecttest.S3Fault { return objecttest.S3Throttled }},
		{"no answer", func(*http.Request) objecttest.S3Fault { return objecttest.S3HangAfter }},
		{"applied but 500", func(*http.Request) objecttest.S3Fault { return objecttest.S3FailAfter }},
		{"torn answers", func(*http.Request) objecttest.S3Fault { return objecttest.S3Torn }},
		{"writes alone", func(r *http.Request) objecttest.S3Fault {
			if r.Method == http.MethodGet || r.Method == http.MethodHead {
				return objecttest.S3Fault{}
			}
			return objecttest.S3FailAfter
		}},
	}
	o := serveOptions{
		dataDir: filepath.Join(t.TempDir(), "data"), checkpointDir: store.StoreURL("p"),
		settings: []string{"execution.checkpointing.interval=200ms", "execution.checkpointing.min-pause=0s", "execution.checkpointing.timeout=5s", "execution.checkpointing.data-inline-threshold=0"},
		env:      []string{"AWS_ACCESS_KEY_ID=e2e", "AWS_SECRET_ACCESS_KEY=e2e", "AWS_EC2_METADATA_DISABLED=true"},
	}
	p := serve(t, o)
	w := &pointWork{t: t, file: filepath.Join(t.TempDir(), "lines.csv")}
	w.create(p.client(t))
	for _, kind := range kinds {
		c := p.client(t)
		w.change(c)
		c.exec(`CHECKPOINT`)
		last := c.number(`SELECT max(checkpoint_id) FROM streamdb.checkpoints WHERE status = 'COMPLETED'`)
		restarts := c.value(`SELECT coalesce(sum(restarts), 0) FROM streamdb.jobs`)
		store.SetFault(kind.fault)
		for began := time.Now(); time.Since(began) < outage; {
			w.change(c)
			w.check(c, kind.name+": during the outage")
		}
		dies := rng.IntN(2) == 0
		if dies {
			p.kill()
		}
		store.SetFault(nil)
		if dies {
			p = serve(t, o)
			c = p.client(t)
		} else {
			require.Equal(t, restarts, c.value(`SELECT coalesce(sum(restarts), 0) FROM streamdb.jobs`), "%s: jobs do not start again because of the store\n%s", kind.name, p.log)
		}
		w.check(c, kind.name+": after the outage")
		require.True(t, eventually(stopTimeout, func() bool {
			return c.number(`SELECT coalesce(max(checkpoint_id), 0) FROM streamdb.checkpoints WHERE status = 'COMPLETED'`) > last
		}), "%s: checkpoints do not go on\n%s", kind.name, p.log)
		p.kill()
		if dies {
			require.NoError(t, os.RemoveAll(o.dataDir)) // what a checkpoint has is enough; what came after it is in the log that is gone
		}
		p = serve(t, o)
		if dies {
			w.rows = int(p.client(t).number(`SELECT coalesce(max(k), 0) FROM t`))
		}
		w.check(p.client(t), kind.name+": and again")
	}
	c := p.client(t)
	c.exec(`CHECKPOINT`)
	p.stop(t)
	exit, out := command(t, o.env, "checkpoint", "verify", o.checkpointDir)
	require.Equal(t, 0, exit, out)
}

// TestStartDuringOutage: a server whose store is away at its start says so and ends, or waits; once the store is back it has everything.
func TestStartDuringOutage(t *testing.T) {
	store := objecttest.NewS3Server(t, bucket)
	o := serveOptions{
		dataDir: filepath.Join(t.TempDir(), "data"), checkpointDir: store.StoreURL("p"), settings: []string{"execution.checkpointing.interval=200ms"},
		env: []string{"AWS_ACCESS_KEY_ID=e2e", "AWS_SECRET_ACCESS_KEY=e2e", "AWS_EC2_METADATA_DISABLED=true"},
	}
	p := serve(t, o)
	w := &pointWork{t: t, file: filepath.Join(t.TempDir(), "lines.csv")}
	w.create(p.client(t))
	w.change(p.client(t))
	store.SetFault(func(*http.Request) objecttest.S3Fault { return objecttest.S3FailBefore })
	p.kill()
	if q, err := launch(o); err != nil {
		require.ErrorIs(t, err, errEnded)
		require.Equal(t, 1, q.cmd.ProcessState.ExitCode())
		require.Contains(t, q.log.String(), store.Server.URL, "the message names the store")
	} else {
		q.kill()
	}
	store.SetFault(nil)
	p = serve(t, o)
	w.check(p.client(t), "after the outage")
}

// TestObjectMissingAtRestart: a new machine starts from a checkpoint folder that lacks one of its objects, each of them in turn. The server ends with an error that
// names the object, or serves all but the views that need it and cannot be computed again; these say so and go on when it is back.
func TestObjectMissingAtRestart(t *testing.T) {
	const rows = 20_000 // their states are objects of their own
	dir := t.TempDir()
	folder, file := filepath.Join(dir, "bucket"), filepath.Join(dir, "lines.csv")
	var csv strings.Builder
	for n := range rows {
		fmt.Fprintf(&csv, "%d,%d\n", n, n%7)
	}
	require.NoError(t, os.WriteFile(file, []byte(csv.String()), 0o600))
	o := serveOptions{dataDir: filepath.Join(dir, "data"), checkpointDir: "file://" + folder, settings: []string{"execution.checkpointing.interval=0"}}
	p := serve(t, o)
	c := p.client(t)
	for _, sql := range []string{
		`CREATE TABLE t (k int PRIMARY KEY, x text)`,
		fmt.Sprintf(`INSERT INTO t SELECT g, md5(g::text) || md5((-g)::text) FROM generate_series(1, %d) g`, rows),
		`CREATE SOURCE f (k int, v int) WITH (connector = 'file', path = '` + file + `') FORMAT PLAIN ENCODE CSV (header = 'false')`,
		`CREATE MATERIALIZED VIEW of_table AS SELECT k, md5((k * 7)::text) AS a FROM t`,
		`CREATE MATERIALIZED VIEW of_file AS SELECT k, md5(k::text) AS a, md5((k + v)::text) AS b FROM f`,
		`CREATE MATERIALIZED VIEW above AS SELECT left(b, 1) AS g, count(*) AS n FROM of_file GROUP BY 1`,
	} {
		c.exec(sql)
	}
	c.wait(`SELECT coalesce(sum(n), 0) FROM above`, fmt.Sprint(rows))
	c.exec(`CHECKPOINT`)
	want := map[string]string{}
	for _, view := range []string{"of_table", "of_file", "above"} {
		want[view] = lines(c.exec(`TABLE ` + view))
	}
	p.kill()
	outcomes := map[string]int{}
	for _, key := range filesBelow(t, folder) {
		require.NoError(t, os.RemoveAll(o.dataDir))
		at, away := filepath.Join(folder, key), filepath.Join(dir, "away")
		require.NoError(t, os.Rename(at, away))
		q, err := launch(o)
		if err != nil {
			require.ErrorIs(t, err, errEnded, key)
			require.Equal(t, 1, q.cmd.ProcessState.ExitCode(), key)
			require.Contains(t, q.log.String(), key, "the error names the object")
			require.NoError(t, os.Rename(away, at))
			outcomes["does not start"]++
			continue
		}
		c, waiting := q.client(t), 0
		require.Equal(t, fmt.Sprint(rows), c.value(`SELECT count(*) FROM t`))
		for view := range want {
			if _, err := c.try(`TABLE ` + view); err != nil {
				waiting++
				refused := (*pgconn.PgError)(nil)
				require.ErrorAs(t, err, &refused, "%s", q.log)
				require.Equal(t, "55000", refused.Code)
				require.Contains(t, refused.Detail, key)
				require.Contains(t, c.value(`SELECT string_agg(last_error, ' ') FROM streamdb.jobs`), key)
			}
		}
		outcomes[fmt.Sprintf("%d views wait", waiting)]++
		require.NoError(t, os.Rename(away, at))
		for view := range want {
			require.True(t, eventually(statementTimeout, func() bool {
				rows, err := c.try(`TABLE ` + view)
				return err == nil && lines(rows) == want[view]
			}), "%s after %s had been missing\n%s", view, key, q.log)
		}
		q.kill()
	}
	t.Log(outcomes)
	require.NotZero(t, outcomes["does not start"])
	require.NotZero(t, outcomes["0 views wait"], "what is over tables is computed again")
	require.NotZero(t, outcomes["1 views wait"], "what is over sources waits; what reads it shows what it had")
}

// filesBelow lists the files of a folder by their paths in it.
func filesBelow(t *testing.T, folder string) (keys []string) {
	t.Helper()
	require.NoError(t, filepath.WalkDir(folder, func(path string, e fs.DirEntry, err error) error {
		if err == nil && e.Type().IsRegular() {
			path, err = filepath.Rel(folder, path)
			keys = append(keys, path)
		}
		return err
	}))
	return keys
}
