package state_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/streamdb/streamdb/internal/checkpointrows"
	"github.com/streamdb/streamdb/state"
)

// A snapshot writes what changed, and sealing takes no longer for what is there.
func TestSnapshotCostsWhatChanged(t *testing.T) {
	checkpointrows.Shows(t, 81, 82)
	j := open(t, state.Options{Dir: t.TempDir()}, nil)
	const entries = 200_000
	j.fill(0, entries, "a value of some length, as rows have")
	full := j.checkpoint()
	require.Equal(t, full.FullSize, full.NewBytes)
	sealing := time.Hour
	for i := range 5 {
		j.fill(i*entries/100, (i+1)*entries/100, "b")
		began := time.Now()
		sealed := j.s.Seal(0)
		sealing = min(sealing, time.Since(began))
		j.id++
		sn, err := j.s.Snapshot(t.Context(), j.id, []*state.Sealed{sealed})
		require.NoError(t, err)
		require.Less(t, sn.NewBytes*20, sn.FullSize, "1 %% of the entries changed")
		require.GreaterOrEqual(t, sn.FullSize, full.FullSize)
		j.s.Confirm(j.id)
	}
	require.Less(t, sealing, 10*time.Millisecond, "2000 changed entries of 200000 are a pointer swap")
}

func TestMemoryBackendWritesAll(t *testing.T) {
	checkpointrows.Shows(t, 79)
	j := open(t, state.Options{Dir: t.TempDir(), Backend: state.BackendMemory}, nil)
	j.fill(0, 10_000, "x")
	first := j.checkpoint()
	require.Equal(t, first.FullSize, first.NewBytes)
	j.fill(0, 10, "y")
	sealed := j.s.Seal(0)
	j.fill(0, 10_000, "z") // after the barrier, while the snapshot is written
	j.id++
	second, err := j.s.Snapshot(t.Context(), j.id, []*state.Sealed{sealed})
	require.NoError(t, err)
	require.Equal(t, second.FullSize, second.NewBytes, "it is no increment")
	k := open(t, state.Options{Dir: t.TempDir(), Backend: state.BackendMemory}, second)
	k.check(0, 10, "y")
	k.check(10, 10_000, "x")
	j.check(0, 10_000, "z")
}
