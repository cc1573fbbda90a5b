//go:build e2e

package e2e

import (
	"math/rand/v2"
	"net/http"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/streamdb/streamdb/storage/object/objecttest"
)

// outage is how long the store is away each time; what comes between takes about twice as long.
const outage = 1500 * time.Millisecond

// TestStoreOutages: a store that answers nothing but errors for a third of the time delays checkpoints and nothing else, and a server killed in an outage, or by
// one that begins in the middle of a checkpoint, loses nothing.
func TestStoreOutages(t *testing.T) {
	store := objecttest.NewS3Server(t, bucket)
	rng := rand.New(rand.NewPCG(7, 7))
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
