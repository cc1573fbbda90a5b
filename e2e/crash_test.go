//go:build e2e

package e2e

import (
	"fmt"
	"maps"
	"math/rand/v2"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// Kills.
const (
	defaultKills  = 40
	defaultSeed   = 20
	leastLife     = 50 * time.Millisecond
	mostLife      = 1500 * time.Millisecond
	failpointLife = 4 * time.Second // a failpoint that has not been reached until then is a random kill
	randomKill    = "random moment"
)

// crashPoints are the places around the commit of a checkpoint, of the log, of state, of schema changes and of a restart where the process kills itself. Those that
// are passed often kill with a probability, so that the state they find differs.
var crashPoints = []string{
	"checkpoint/before-upload=50%kill",
	"checkpoint/after-upload=50%kill",
	"checkpoint/after-manifest=50%kill",
	"checkpoint/after-head=50%kill",
	"checkpoint/before-notify=50%kill",
	"checkpoint/gc=50%kill",
	"checkpoint/after-claim=kill",
	"exec/after-restore=30%kill",
	"state.restore=30%kill",
	"state.delta.write=20%kill",
	"state.ingest=kill",
	"state.base.checkpoint=kill",
	"wal/append=2%kill",
	"wal/sync=2%kill",
	"tables/written=20%kill",
	"history/reach=2%kill",
	"schema/store=10%kill",
	"schema/stored=10%kill",
	"schema/pending=20%kill",
	"schema/logged=20%kill",
}

// crashSettings make checkpoints frequent, and have relations keep their changes for subscribers.
var crashSettings = []string{"execution.checkpointing.interval=200ms", "execution.checkpointing.min-pause=0s", "retention=1h"}

// TestCrash kills the server again and again while clients write and change the schema, a file grows and events are generated.
func TestCrash(t *testing.T) {
	dir := t.TempDir()
	killLoop(t, serveOptions{dataDir: filepath.Join(dir, "data"), settings: crashSettings}, intEnv(t, "STREAMDB_E2E_KILLS", defaultKills))
}

// killLoop is the load, the kills and the checks after each; the last server is left running.
func killLoop(t *testing.T, o serveOptions, kills int, beside ...load) (*workload, *process) {
	began := time.Now()
	seed := uint64(intEnv(t, "STREAMDB_E2E_SEED", defaultSeed))
	t.Logf("seed %d", seed)
	rng := rand.New(rand.NewPCG(seed, 0))
	w := newWorkload(t, seed)
	p := serve(t, o)
	w.create(p.client(t))
	for _, l := range beside {
		l.create(p.client(t), w)
	}
	w.beside = beside
	stop := make(chan struct{})
	go func() { pause(mostLife); close(stop) }()
	w.run(p, stop)
	w.check(p.client(t)) // without any kill
	where := map[string]int{}
	var restart time.Duration
	for n := range kills {
		life := leastLife + time.Duration(rng.Int64N(int64(mostLife-leastLife)))
		at := randomKill
		if n%2 == 1 {
			// The server that was checked is killed without mercy, too; the next one meets the failpoint.
			p.kill()
			spec := crashPoints[(n/2+int(seed))%len(crashPoints)] // a seed begins elsewhere
			at, _, _ = strings.Cut(spec, "=")
			withFault := o
			withFault.failpoints = spec
			var err error
			p, err = launch(withFault)
			if err != nil {
				require.ErrorIs(t, err, errEnded)
			}
			t.Cleanup(p.kill)
			life = failpointLife
		}
		if p.addr != "" {
			stop := make(chan struct{})
			go func() {
				defer close(stop)
				if p.endsWithin(life) {
					return
				}
				if at != randomKill {
					at += " (not reached)"
				}
				p.kill()
			}()
			w.run(p, stop)
			<-stop
		}
		where[at]++
		require.False(t, t.Failed(), "kill %d", n)
		started := time.Now()
		p = serve(t, o)
		restart += time.Since(started)
		w.check(p.client(t))
	}
	w.finish(p.client(t))
	for _, l := range beside {
		l.finish(p.client(t))
	}
	var report strings.Builder
	for _, at := range slices.Sorted(maps.Keys(where)) {
		fmt.Fprintf(&report, "%4d  %s\n", where[at], at)
	}
	t.Logf("%d kills in %.1f s, %d statements and %d schema changes acknowledged, %d refused with 40001, %d clicks, %d bids; ready again after %d ms on average\n%s", kills, time.Since(began).Seconds(),
		w.acknowledged(), w.schema.acknowledged, w.conflicts(), w.clicks.written, bidEvents/bidCycle*bidsInCycle, (restart / time.Duration(kills)).Milliseconds(), &report)
	return w, p
}
