package checkpoint

import (
	"context"
	"fmt"
	"io"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/streamdb/streamdb/internal/checkpointrows"
)

// playScenario runs a world with a plot: three jobs, one of which reads another, two of them with sinks, checkpoints every second for a few seconds, and then
// peace, in which the world checks what must hold. Nothing goes wrong in it but what the plot says.
func playScenario(t *testing.T, name string, election bool, prepare func(w *simWorld)) *simWorld {
	t.Helper()
	var w *simWorld
	broken := ""
	func() {
		defer func() {
			switch p := recover().(type) {
			case nil:
			case simFailure:
				broken = p.msg
			default:
				panic(p)
			}
			w.abandon()
		}()
		w = newSimWorld(1, true)
		w.faultless, w.election, w.ttl = true, election, time.Second
		w.cfg = DefaultConfig()
		w.cfg.Interval, w.cfg.GroupWindow, w.cfg.Timeout, w.cfg.MaxConcurrent = time.Second, 300*time.Millisecond, 10*time.Second, 2
		for id, j := range []*simJob{
			{parts: 2, aggs: 2, sink: true, bytes: 17 << 10},
			{parts: 1, aggs: 1, sink: true, inputs: []uint64{1}},
			{parts: 1, aggs: 3, bytes: 300 << 10},
		} {
			j.id, j.settings = uint64(id+1), w.cfg.JobSettings()
			w.defs[j.id] = j
			if j.sink {
				w.sinks[j.id] = &simSink{job: j.id, prepared: map[uint64][]simRow{}, committed: map[uint64]bool{}, next: make([]int, j.parts)}
			}
		}
		s := &w.defs[3].settings
		s.Unaligned, s.MaxConcurrent = true, 1
		w.nextJob, w.initial = 3, 3
		w.after(0, nil, func() { w.start(0) })
		if election {
			w.after(50*time.Millisecond, nil, func() { w.start(1) })
		}
		prepare(w)
		w.after(8*time.Second, nil, w.calmDown)
		w.play()
	}()
	if broken != "" {
		lines := w.lines
		if n := len(lines) - 100; n > 0 {
			lines = lines[n:]
		}
		t.Log(strings.Join(lines, "\n"))
	}
	require.Empty(t, broken, "%s", name)
	return w
}

// nth gives the n-th call that is meant a fate.
func (w *simWorld) nth(n int, fate simFate, meant func(srv *simProcess, op, key string) bool) *bool {
	met := false
	w.plot = func(srv *simProcess, op, key string) simFate {
		if srv.slot > 1 || !meant(srv, op, key) {
			return simRandom
		}
		if n--; n != 0 {
			return simRandom
		}
		met = true
		return fate
	}
	return &met
}

func anyCall(*simProcess, string, string) bool { return true }

func ofHead(_ *simProcess, op, key string) bool {
	return key == headKey && (op == "replace" || op == "create")
}

// maxScenarioCalls bounds the calls that are tried out.
const maxScenarioCalls = 400

// everyCall plays the scenario with each call in turn as the one that meets the fate, until there are no more.
func everyCall(t *testing.T, election bool, fate simFate, meant func(*simProcess, string, string) bool, check func(w *simWorld)) {
	t.Helper()
	step := 1
	if testing.Short() {
		step = 3
	}
	for n := 1; ; n += step {
		require.Less(t, n, maxScenarioCalls)
		var met *bool
		w := playScenario(t, fmt.Sprintf("call %d", n), election, func(w *simWorld) { met = w.nth(n, fate, meant) })
		if !*met {
			require.Greater(t, n, 10, "calls are made")
			return
		}
		check(w)
	}
}

// A server dies at each call of the store, before or after it is carried out, and starts again: sinks have each row once, states are those of their positions, and
// nothing is left over.
func TestServerDiesAtEveryCall(t *testing.T) {
	checkpointrows.Shows(t, 2, 5, 45, 98, 123)
	for _, fate := range []simFate{simDies, simDiesAfter} {
		everyCall(t, false, fate, anyCall, func(w *simWorld) { require.GreaterOrEqual(t, w.counts.claims, 1) })
	}
}

// The same with a standby, which takes over.
func TestStandbyTakesOverAtEveryCall(t *testing.T) {
	checkpointrows.Shows(t, 126, 127)
	for _, fate := range []simFate{simDies, simDiesAfter} {
		everyCall(t, true, fate, func(srv *simProcess, op, key string) bool { return srv.leading && key != leaderKey }, func(w *simWorld) {
			require.GreaterOrEqual(t, w.counts.claims, 2)
		})
	}
}

// A leader is stopped with each of its writes of HEAD on the way, another one takes over, the write arrives, and the leader wakes up: what it has tried does not
// count, it commits nothing more, and ends.
func TestStoppedLeaderIsFenced(t *testing.T) {
	checkpointrows.Shows(t, 129)
	for n := 1; n <= 6; n++ {
		var met *bool
		w := playScenario(t, fmt.Sprintf("write %d", n), true, func(w *simWorld) {
			met = w.nth(n, simFreezes, ofHead)
			w.after(3*time.Second, nil, func() { w.start(1) })
		})
		require.True(t, *met)
		require.Equal(t, 1, w.counts.freezes)
		require.GreaterOrEqual(t, w.counts.claims, 1)
	}
}

// The answer of each write is lost, with the write applied at once or a second later: it is found out what became of it, and no server has to start again.
func TestAnswersOfWritesAreLost(t *testing.T) {
	checkpointrows.Shows(t, 128)
	for _, fate := range []simFate{simLost, simLate} {
		everyCall(t, false, fate, func(_ *simProcess, op, _ string) bool { return op == "put" || op == "create" || op == "replace" }, func(w *simWorld) {
			require.Equal(t, 1, w.counts.claims)
		})
	}
}

// Notifications of completed checkpoints are lost, some or all for a time: the next one stands for all before.
func TestNotificationsAreLost(t *testing.T) {
	checkpointrows.Shows(t, 53, 125)
	for n := 1; n < 12; n++ {
		playScenario(t, fmt.Sprintf("%d notifications", n), false, func(w *simWorld) { w.muted = n })
	}
	// And the server dies before any comes.
	for n := range 5 {
		playScenario(t, fmt.Sprintf("dies after %d s", n+1), false, func(w *simWorld) {
			w.muted = 1000
			w.after(time.Duration(n)*time.Second+1500*time.Millisecond, nil, func() {
				w.muted = 0
				w.counts.crashes++
				w.servers[0].kill(true)
			})
		})
	}
}

// Jobs start again, one by one, again and again while others complete checkpoints and old ones are cleaned away: what they read is there.
func TestRestoreWhileCleaning(t *testing.T) {
	checkpointrows.Shows(t, 4)
	for d := 30; d <= 300; d += 30 {
		w := playScenario(t, fmt.Sprintf("every %d ms", d), false, func(w *simWorld) {
			w.cfg.Interval, w.cfg.GroupWindow = 100*time.Millisecond, 20*time.Millisecond
			for _, j := range w.defs {
				j.settings.Interval = w.cfg.Interval
			}
			for at := time.Second; at < 7*time.Second; at += time.Duration(d) * time.Millisecond {
				job := uint64(1 + w.rng.IntN(3))
				w.after(at, nil, func() {
					if s := w.leader(); s != nil {
						s.fail(job)
						w.spawn(w.tool, func(ctx context.Context) { _ = GC(ctx, w.tool.store, false, io.Discard) })
					}
				})
			}
		})
		require.Greater(t, w.counts.restarts, 10)
		require.Greater(t, w.counts.commits, 10)
	}
}
