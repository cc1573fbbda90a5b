package checkpoint

import (
	"context"

	"github.com/streamdb/streamdb/internal/pgerr"
)

// SavepointRequest asks for a savepoint.
type SavepointRequest struct {
	Jobs []uint64 // and all they read from; nil: all jobs
	Spec SavepointSpec
}

// SavepointResult is a savepoint that is complete.
type SavepointResult struct {
	ID, Epoch uint64
	Path      string // of its manifest
}

// Savepoint makes a savepoint and returns when it is complete. It goes before all checkpoints that wait, is not held back by those in flight,
// and never becomes what jobs restart from by themselves. With Spec.Stop what the jobs have prepared outside is committed with it.
// It is an error when one of the jobs is not running.
func (c *Coordinator) Savepoint(ctx context.Context, req SavepointRequest) (SavepointResult, error) {
	spec := req.Spec
	r, err := c.request(ctx, &request{jobs: req.Jobs, savepoint: &spec, done: make(chan reply, 1)})
	return SavepointResult{ID: r.id, Epoch: r.epoch, Path: r.path}, err
}

// writeSavepoint writes a savepoint of the given states, which hold all of their jobs, where spec says, and returns the path of its manifest.
// Local files of the states stay until it has returned. It runs in a goroutine of the coordinator, several at a time.
func (p *publisher) writeSavepoint(context.Context, *SavepointSpec, []*JobState, uint64, uint64, uint64, []byte) (path string, err error) {
	return "", pgerr.Newf(pgerr.FeatureNotSupported, "savepoints are not supported")
}
