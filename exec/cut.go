package exec

import (
	"context"
	"encoding/json"
	"maps"
	"time"

	"github.com/streamdb/streamdb/checkpoint"
	"github.com/streamdb/streamdb/state"
)

// cut is a checkpoint of a run while its subtasks cut their state, each when the barrier passes it, or before that when it is unaligned.
type cut struct {
	barrier   checkpoint.Barrier
	done      chan struct{} // all subtasks have
	parts     []*taskCut
	ctx       context.Context //nolint:containedctx // ends with the run, or when the checkpoint is given up
	cancel    context.CancelFunc
	begun     bool // it is being written, or needs not be; owned by the driver
	unaligned bool
}

// taskCut is one subtask's part of a checkpoint.
type taskCut struct {
	task       *subtask
	checkpoint uint64
	sealed     *state.Sealed
	positions  map[string][]byte // of its sources
	stats      checkpoint.SubtaskStats
	inflight   []kept
	bytes      int64 // of it
}

// cutOf returns the cut for a checkpoint, which takes the place of an older one. Only the driver calls it.
func (r *run) cutOf(b checkpoint.Barrier) *cut {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.cutting == nil || r.cutting.barrier.Checkpoint != b.Checkpoint || b.Checkpoint == flushOnly {
		if old := r.cutting; old != nil && old != r.ahead && r.writes[old.barrier.Checkpoint] != old {
			old.cancel()
		}
		r.cutting = &cut{barrier: b, done: make(chan struct{})}
		r.cutting.ctx, r.cutting.cancel = context.WithCancel(r.ctx)
	}
	return r.cutting
}

// collect is called by each subtask when its part of a checkpoint is complete.
func (r *run) collect(part *taskCut) {
	r.mu.Lock()
	defer r.mu.Unlock()
	c := r.cutting
	if c == nil || c.barrier.Checkpoint != part.checkpoint {
		return
	}
	c.unaligned = c.unaligned || part.stats.Unaligned
	if c.parts = append(c.parts, part); len(c.parts) == len(r.subtasks) {
		close(c.done)
	}
}

// abort gives a checkpoint up: subtasks do not cut their state for it any more, and writing it ends. Its barrier still closes its epoch.
func (r *run) abort(id uint64) {
	r.mu.Lock()
	if c := r.cutting; c != nil && c.barrier.Checkpoint == id {
		c.cancel()
	}
	if c := r.writes[id]; c != nil {
		c.cancel()
	}
	r.mu.Unlock()
	for _, t := range r.subtasks {
		t.box.hurry(message{kind: msgAbort, barrier: checkpoint.Barrier{Checkpoint: id}})
	}
}

// write writes a cut that all subtasks have made, in the background, and acknowledges the checkpoint.
func (r *run) write(c *cut) {
	if c.begun {
		return
	}
	c.begun = true
	defer r.errors.endCut()
	b := c.barrier
	if c.ctx.Err() != nil || len(c.parts) < len(r.subtasks) {
		r.job.decline(b.Checkpoint, r.whyNot())
		for _, p := range c.parts {
			p.release()
		}
		return // the seals are covered by the next snapshot
	}
	positions := map[string][]byte{}
	for _, p := range c.parts {
		maps.Copy(positions, p.positions)
	}
	if !c.unaligned {
		r.taken = false
	}
	if !b.Full && !c.unaligned && r.stateUnchanged() && r.samePositions(positions) {
		// Sources that bring no rows must not make an idle database write: the seals are covered by the next snapshot.
		r.job.acknowledge(r.job.unchangedState(b))
		return
	}
	errs, err := json.Marshal(r.errors.snapshot())
	if err != nil {
		r.fail(err)
		return
	}
	r.job.cut(b.Checkpoint)
	r.sink.cut()
	before, written := r.written, make(chan struct{})
	r.written = written
	r.mu.Lock()
	r.writes[b.Checkpoint] = c
	r.mu.Unlock()
	r.goRun("checkpoint", func() error {
		defer close(written)
		defer func() {
			r.mu.Lock()
			delete(r.writes, b.Checkpoint)
			r.mu.Unlock()
			c.cancel()
		}()
		if before != nil {
			<-before // snapshots are made in the order of their ids
		}
		err := r.snapshot(c, positions, errs)
		for _, p := range c.parts {
			p.release()
		}
		return err
	})
}

// whyNot is what a checkpoint is declined with that is not written: the run ends, or the checkpoint was given up.
func (r *run) whyNot() error {
	if r.stopped() {
		return checkpoint.ErrNotRunning
	}
	return context.Canceled
}

// writing reports whether a snapshot is being made.
func (r *run) writing() bool {
	if r.written == nil {
		return false
	}
	select {
	case <-r.written:
		return false
	default:
		return true
	}
}

// snapshot makes what was sealed a snapshot and acknowledges the checkpoint.
func (r *run) snapshot(c *cut, positions map[string][]byte, errs []byte) error {
	began, b := time.Now(), c.barrier
	inflight, err := r.inflightFiles(c)
	if err != nil {
		r.job.decline(b.Checkpoint, err)
		return nil // what was sealed is covered by the next snapshot
	}
	sealed := make([]*state.Sealed, len(c.parts))
	stats := make([]checkpoint.SubtaskStats, len(c.parts))
	for i, p := range c.parts {
		sealed[i], stats[i] = p.sealed, p.stats
	}
	failed := func(err error) error {
		return &checkpoint.Failure{Reason: checkpoint.CheckpointAsyncException, Err: err, Subtasks: stats}
	}
	if err := r.engine.cfg.Failpoints.Hit("exec/snapshot"); err != nil {
		r.job.decline(b.Checkpoint, failed(err))
		return err
	}
	snap, err := r.store.Snapshot(c.ctx, b.Checkpoint, sealed)
	if err == nil && b.Kind == checkpoint.KindSavepoint {
		r.store.Hold(b.Checkpoint)
	}
	if err != nil && c.ctx.Err() != nil {
		r.job.decline(b.Checkpoint, r.whyNot())
		return nil // it was given up: what was sealed is covered by the next one
	}
	if err != nil {
		r.job.decline(b.Checkpoint, failed(err))
		return err // the job starts again from its last complete checkpoint
	}
	if err := r.precommit(c.ctx); err != nil {
		if c.ctx.Err() == nil {
			r.job.trouble(err)
		}
		r.job.decline(b.Checkpoint, err)
		return nil // what is sealed stays, and is part of the next one
	}
	if err := r.engine.keptUpTo(b.Epoch, func(rel *Relation) bool { return rel == r.job.rel }); err != nil {
		r.job.decline(b.Checkpoint, err)
		return nil // the state is as good as before
	}
	for i := range stats {
		stats[i].Async = time.Since(began)
		stats[i].Acknowledged = time.Now()
	}
	if len(stats) > 0 {
		stats[0].Bytes, stats[0].FullBytes = snap.NewBytes, snap.FullSize
	}
	r.job.acknowledge(&checkpoint.JobState{
		Job: r.job.Spec.ID, Name: r.job.Spec.Name, Checkpoint: b.Checkpoint, Epoch: b.Epoch, State: snap, Positions: positions,
		Operators: map[string][]byte{operatorErrors: errs}, Parallelism: r.job.Parallelism(), Subtasks: stats,
		Inflight: inflight,
	})
	return nil
}
