package state_test

import (
	"context"
	"testing"

	"github.com/cockroachdb/pebble/v2/vfs"
	"go.uber.org/goleak"

	"github.com/streamdb/streamdb/state"
	"github.com/streamdb/streamdb/state/statetest"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func TestConformance(t *testing.T) {
	shared := state.OpenShared(64 << 20)
	t.Cleanup(shared.Close)
	small := state.Policy{
		InlineMaxBytes: 600, InlineTotalBytes: 3000, SSTBytes: 4000, MaxDeltas: 4, MinRenewBytes: 2000, MinMergeBytes: 1000,
		IngestMinBytes: 3000, IngestMaxDeltas: 2,
	}
	for name, o := range map[string]state.Options{
		"memory":                            {Backend: state.BackendMemory},
		"pebble":                            {Backend: state.BackendPebble, Shared: shared},
		"pebble small files":                {Backend: state.BackendPebble, Shared: shared, Policy: small},
		"pebble on a file system in memory": {Backend: state.BackendPebble, Shared: shared, Policy: small, Budget: state.NewBudget(5000), FS: vfs.NewMem()},
		"pebble over budget":                {Backend: state.BackendPebble, Shared: shared, Policy: small, Budget: state.NewBudget(1)},
		"pebble little memory":              {Backend: state.BackendPebble, Shared: shared, Policy: small, Budget: state.NewBudget(20_000)},
	} {
		t.Run(name, func(t *testing.T) {
			statetest.Run(t, func(ctx context.Context, dir string, from *state.Snapshot) (*state.Store, error) {
				o := o
				o.Dir, o.MaxParallelism = dir, statetest.Groups
				return state.Open(ctx, o, from)
			})
		})
	}
}
