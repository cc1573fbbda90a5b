package checkpoint

import (
	"context"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/streamdb/streamdb/internal/checkpointrows"
	"github.com/streamdb/streamdb/storage/object"
)

// A job that ends with a savepoint ends with a checkpoint, which commits what it has prepared outside; the savepoint is a copy of that.
func TestStopIsACheckpoint(t *testing.T) {
	checkpointrows.Shows(t, 25, 101)
	bubble(t, func(t *testing.T) {
		a, b := job(1), job(2, 1)
		store, root := object.NewMemory(""), t.TempDir()
		r := newRig(t, manual(), store, nil, a, b).run()
		_, err := r.c.Trigger(context.Background(), nil)
		require.NoError(t, err)
		a.events()
		b.events()
		stops := map[uint64]bool{}
		b.set(func(j *scripted, bar Barrier) error {
			require.Equal(t, KindCheckpoint, bar.Kind)
			require.False(t, bar.Unaligned)
			stops[1], stops[2] = bar.Stops(1), bar.Stops(2)
			return changed(j, bar)
		})
		res, err := r.c.Stop(context.Background(), 2, SavepointSpec{Target: root})
		require.NoError(t, err)
		require.Equal(t, map[uint64]bool{1: false, 2: true}, stops, "what it reads from goes on")
		require.Equal(t, "trigger 2, complete 2", b.events())
		require.EqualValues(t, 2, res.ID)
		o, err := OpenPath(context.Background(), res.Path)
		require.NoError(t, err)
		require.Len(t, o.Jobs, 2)
		require.Equal(t, []uint64{2}, o.Named)
		require.Equal(t, r.c.Latest().Jobs[2].Positions, o.Jobs[2].Positions)
		// One that fails leaves no pins.
		b.set(nil)
		_, err = r.c.Stop(context.Background(), 2, SavepointSpec{Target: "memory://x"})
		require.Error(t, err)
		_, err = r.c.Trigger(context.Background(), nil)
		require.NoError(t, err)
		require.Empty(t, r.c.stops)
		require.NoError(t, r.end())
		requireTidy(t, store)
	})
}

// TestPinnedCheckpointStays: what a savepoint is copied from is not removed meanwhile, and is after that.
func TestPinnedCheckpointStays(t *testing.T) {
	checkpointrows.Shows(t, 78)
	ctx := context.Background()
	store := object.NewMemory("")
	p, dir := testPublisher(t, store), t.TempDir()
	m := publishState(t, p, pebbleState(t, dir, 1, 1)).manifest
	unpin := p.pin(m)
	other := pebbleState(t, dir, 2, 0)
	other.State.Base = nil
	publishState(t, p, other)
	_, err := store.Head(ctx, m.Jobs[7].refs.files["i1/000001.sst"].Object)
	require.NoError(t, err)
	require.NoError(t, resolve(ctx, store, m))
	require.NoError(t, unpin(ctx))
	require.NoError(t, p.collect(ctx))
	requireTidy(t, store)
}
