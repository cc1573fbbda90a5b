package state_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/streamdb/streamdb/internal/checkpointrows"
	"github.com/streamdb/streamdb/internal/failpoint"
	"github.com/streamdb/streamdb/state"
)

// countdown is a context that ends when it has been looked at so many times.
type countdown struct {
	context.Context
	left int
}

func (c *countdown) Err() error {
	if c.left--; c.left < 0 {
		return context.Canceled
	}
	return nil
}

// A snapshot that is given up, wherever it is, takes nothing from what is there: the next one has everything, and in the end no file is left that is not needed.
func TestSnapshotGivenUp(t *testing.T) {
	checkpointrows.Shows(t, 54)
	for name, o := range map[string]state.Options{
		"heap": {Policy: eager}, "pebble": {Policy: eager, Budget: state.NewBudget(60_000)}, "memory": {Policy: eager, Backend: state.BackendMemory},
	} {
		t.Run(name, func(t *testing.T) {
			rng := rand.New(rand.NewPCG(3, 1))
			o.Dir = t.TempDir()
			j := open(t, o, nil)
			want := map[int]string{}
			canceled, done := 0, 0
			for round := range 200 {
				from, n := rng.IntN(4000), rng.IntN(400)
				tag := fmt.Sprint("r", round)
				j.fill(from, from+n, tag)
				for i := from; i < from+n; i++ {
					want[i] = tag
				}
				if rng.IntN(3) == 0 {
					for i := from; i < from+n/2; i++ {
						j.part.Delete(uint16(i%groups), fmt.Appendf(nil, "%06d", i))
						delete(want, i)
					}
				}
				ctx := context.Context(t.Context())
				if rng.IntN(3) > 0 {
					ctx = &countdown{ctx, rng.IntN(5)}
				}
				j.id++
				sn, err := j.s.Snapshot(ctx, j.id, j.seal())
				if err != nil {
					require.ErrorIs(t, err, context.Canceled)
					j.s.Abort(j.id)
					canceled++
					continue
				}
				done++
				j.s.Confirm(j.id)
				j.last = sn
				if rng.IntN(20) > 0 {
					continue
				}
				k := open(t, state.Options{Dir: t.TempDir(), Backend: o.Backend}, sn)
				for i, tag := range want {
					k.check(i, i+1, tag)
				}
				require.EqualValues(t, len(want), k.part.Len())
			}
			require.Greater(t, canceled, 15)
			require.Greater(t, done, 30)
			j.checkpoint()
			j.checkpoint()
			needed := map[string]bool{}
			for _, h := range append(append([]state.Handle(nil), j.last.Base...), j.last.Deltas...) {
				needed[h.Path] = true
			}
			require.NoError(t, filepath.Walk(o.Dir, func(path string, info os.FileInfo, err error) error {
				if err == nil && !info.IsDir() && filepath.Ext(path) == ".sst" && filepath.Base(filepath.Dir(path)) != "live" {
					require.True(t, needed[path], path)
				}
				return err
			}))
		})
	}
}

// Writing a large snapshot ends at once when it is given up.
func TestSnapshotEndsAtOnce(t *testing.T) {
	checkpointrows.Shows(t, 54)
	fail := failpoint.New()
	j := open(t, state.Options{Dir: t.TempDir(), Failpoints: fail}, nil)
	j.fill(0, 1_000_000, "x")
	sealed := j.seal()
	ctx, cancel := context.WithCancel(t.Context())
	over := make(chan time.Time, 1)
	j.id++
	go func() {
		_, err := j.s.Snapshot(ctx, j.id, sealed)
		require.ErrorIs(t, err, context.Canceled)
		over <- time.Now()
	}()
	require.Eventually(t, func() bool { return fail.Hits("state.delta.write") == 1 }, 10*time.Second, time.Millisecond)
	began := time.Now()
	cancel()
	require.Less(t, (<-over).Sub(began), time.Second)
	require.EqualValues(t, 1_000_000, j.checkpoint().Entries[7])
}

// What tells that a checkpoint is complete or given up does not wait for a snapshot that is being written, and is heeded after it.
func TestOutcomesDoNotWait(t *testing.T) {
	fail, err := failpoint.Parse("state.delta.write=delay(300ms)")
	require.NoError(t, err)
	j := open(t, state.Options{Dir: t.TempDir(), Failpoints: fail, Policy: eager}, nil)
	var files []string
	for range 3 {
		j.fill(0, 1000, fmt.Sprint("a", j.id))
		j.id++
		sn, err := j.s.Snapshot(t.Context(), j.id, j.seal())
		require.NoError(t, err)
		for _, h := range sn.Deltas {
			files = append(files, h.Path)
		}
	}
	j.fill(0, 1000, "b")
	sealed := j.seal()
	over := make(chan struct{})
	go func() {
		defer close(over)
		_, err := j.s.Snapshot(t.Context(), 4, sealed)
		require.NoError(t, err)
	}()
	require.Eventually(t, func() bool { return fail.Hits("state.delta.write") == 4 }, 10*time.Second, time.Millisecond)
	began := time.Now()
	j.s.Abort(1)
	j.s.Confirm(2)
	j.s.Confirm(3)
	require.Less(t, time.Since(began), 100*time.Millisecond)
	require.FileExists(t, files[0])
	<-over
	require.NoFileExists(t, files[0])
}
