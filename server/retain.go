package server

import (
	"context"
	"errors"
	"fmt"

	"github.com/streamdb/streamdb/catalog"
	"github.com/streamdb/streamdb/checkpoint"
	"github.com/streamdb/streamdb/internal/pgerr"
)

// nowhereToRetain is the error for RETAIN_ON_CANCELLATION without a folder for savepoints.
func nowhereToRetain() *pgerr.Error {
	return pgerr.Newf(pgerr.InvalidParameterValue, "%s = %s needs a folder for savepoints", checkpoint.SettingExternalRetention, checkpoint.Retentions[checkpoint.RetainOnCancellation]).
		WithHint("Set %s with ALTER SYSTEM first.", checkpoint.SettingSavepointDirectory)
}

// retain leaves a savepoint with what the last completed checkpoint has of each job among objs whose settings say so, and returns their paths by object, for
// forgetRetained. When a transaction does not come about they are removed again.
func (d *dispatch) retain(objs []*catalog.Object) (kept map[uint64]string, err error) {
	srv := d.ss.srv
	kept = map[uint64]string{}
	for _, o := range objs {
		if o.Kind != catalog.MaterializedView && o.Kind != catalog.Sink || o.Temporary {
			continue
		}
		j, ok := srv.engine.JobWithID(o.JobID())
		if !ok || j.Settings().Retention != checkpoint.RetainOnCancellation {
			continue
		}
		dir := srv.settings.get(checkpoint.SettingSavepointDirectory)
		if dir == "" {
			return kept, nowhereToRetain().WithDetail("%q cannot be dropped without one.", o.Name)
		}
		path, err := srv.coord.Retain(d.ctx, o.JobID(), dir)
		if err != nil {
			return kept, fmt.Errorf("keep the last checkpoint of %q: %w", o.Name, err)
		}
		if path == "" {
			if err := d.ss.notice("WARNING", pgerr.Warning, "no completed checkpoint has %q: nothing of it is kept", o.Name); err != nil {
				return kept, err
			}
			continue
		}
		if d.ss.tx.schema == nil {
			kept[o.ID] = path
		}
		d.atRollback(func(ctx context.Context) error { return checkpoint.DisposeSavepoint(ctx, path) })
		if err := d.ss.notice("NOTICE", pgerr.SuccessfulCompletion, "the last checkpoint of %q is kept at %s", o.Name, path); err != nil {
			return kept, err
		}
	}
	return kept, nil
}

// forgetRetained removes the savepoints of what was not dropped after all.
func (d *dispatch) forgetRetained(kept map[uint64]string) error {
	var err error
	for id, path := range kept {
		if _, there := d.ss.snapshot().Get(id); there {
			err = errors.Join(err, checkpoint.DisposeSavepoint(context.WithoutCancel(d.ctx), path))
		}
	}
	return err
}
