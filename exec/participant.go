package exec

import (
	"errors"

	"github.com/streamdb/streamdb/checkpoint"
	"github.com/streamdb/streamdb/internal/pgerr"
	"github.com/streamdb/streamdb/state"
	"github.com/streamdb/streamdb/storage/changelog"
)

// ID implements checkpoint.Participant.
func (j *Job) ID() uint64 { return j.Spec.ID }

// Name implements checkpoint.Participant.
func (j *Job) Name() string { return j.Spec.Name }

// Inputs implements checkpoint.Participant.
func (j *Job) Inputs() []uint64 {
	var ids []uint64
	tables := false
	for _, in := range j.inputs {
		switch {
		case in.job != nil:
			ids = append(ids, in.job.Spec.ID)
		case !tables:
			tables = true
			ids = append(ids, TablesID)
		}
	}
	return ids
}

// Settings implements checkpoint.Participant.
func (j *Job) Settings() checkpoint.JobSettings {
	s := j.engine.checkpointSettings()
	if p := j.settings.Load(); p != nil {
		s = *p
	}
	if j.Spec.Sink != nil {
		s.Unaligned = false // what a sink seals is what came before the barrier
		if j.exactlyOnce() {
			s.Mode = checkpoint.ExactlyOnce
		}
	}
	return s
}

// SetSettings changes the settings of the job's checkpoints, nil to those of the engine; the next trigger follows them.
func (j *Job) SetSettings(s *checkpoint.JobSettings) {
	j.settings.Store(s)
	j.refresh()
}

// refresh tells the coordinator to look at the job.
func (j *Job) refresh() {
	if a := j.engine.acker; a != nil && !j.Spec.Temporary {
		a.Refresh()
	}
}

// Backlog implements checkpoint.Backlogger: the job's sources hold rows that were there before and have not been taken in.
func (j *Job) Backlog() bool { return j.behind.Load() && !j.quietSrc.Load() }

// Trigger implements checkpoint.Participant. The driver meets the checkpoint's epoch by itself: the clock told it. If it has passed that
// epoch without cutting it declines.
func (j *Job) Trigger(b checkpoint.Barrier) error {
	j.mu.Lock()
	js, r := j.snapshots[b.Checkpoint], j.run
	running := j.Status() == JobRunning || j.Status() == JobPaused
	if running && js == nil && r != nil {
		j.wanted[b.Checkpoint] = b
	}
	j.mu.Unlock()
	switch {
	case !running || r == nil:
		return checkpoint.ErrNotRunning
	case js == nil && !j.Settings().AfterTasksFinish && r.partlyFinished():
		j.mu.Lock()
		delete(j.wanted, b.Checkpoint)
		j.mu.Unlock()
		return checkpoint.Failed(checkpoint.NotAllRequiredTasksRunning,
			pgerr.Newf(pgerr.ObjectNotInPrerequisiteState, "some sources of %q have ended, and %s is off", j.Spec.Name, checkpoint.SettingAfterTasksFinish))
	case js != nil:
		j.engine.acker.Acknowledge(js)
	default:
		r.poke()
	}
	return nil
}

// nextWanted returns the first checkpoint asked for whose epoch is in (after, through].
func (j *Job) nextWanted(after, through uint64) (b checkpoint.Barrier, ok bool) {
	j.mu.Lock()
	defer j.mu.Unlock()
	for _, w := range j.wanted {
		if w.Epoch > after && w.Epoch <= through && (!ok || w.Epoch < b.Epoch) {
			b, ok = w, true
		}
	}
	return b, ok
}

// declineMissed answers the checkpoints that a run at epoch done will not meet: their epoch went by without a cut, or before they can be
// met come changes (first, 0 = none) that a paused job does not take.
func (j *Job) declineMissed(done, first uint64) {
	j.mu.Lock()
	var ids []uint64
	for id, b := range j.wanted {
		if !j.cutting[id] && (b.Epoch <= done || first != 0 && b.Epoch >= first) {
			ids = append(ids, id)
			delete(j.wanted, id)
		}
	}
	j.mu.Unlock()
	for _, id := range ids {
		j.engine.acker.Decline(j.Spec.ID, id, checkpoint.ErrNotRunning)
	}
}

// cut notes that checkpoint id is being written. Whether it succeeds or the checkpoint goes on without the job: until it is complete the completed one
// does not describe the job.
func (j *Job) cut(id uint64) {
	j.mu.Lock()
	defer j.mu.Unlock()
	j.cutting[id] = true
	j.lastSnap = id
}

// acknowledge delivers a finished snapshot, now or when it is asked for.
func (j *Job) acknowledge(js *checkpoint.JobState) {
	j.mu.Lock()
	j.snapshots[js.Checkpoint] = js
	_, wanted := j.wanted[js.Checkpoint]
	delete(j.wanted, js.Checkpoint)
	delete(j.cutting, js.Checkpoint)
	j.mu.Unlock()
	if wanted {
		j.engine.acker.Acknowledge(js)
	}
}

func (j *Job) decline(id uint64, err error) {
	j.mu.Lock()
	_, wanted := j.wanted[id]
	delete(j.wanted, id)
	delete(j.cutting, id)
	j.mu.Unlock()
	if wanted {
		j.engine.acker.Decline(j.Spec.ID, id, err)
	}
}

// declineAll answers whatever is asked for when a run has ended with err.
func (j *Job) declineAll(err error) {
	j.mu.Lock()
	ids := make([]uint64, 0, len(j.wanted))
	for id := range j.wanted {
		ids = append(ids, id)
	}
	clear(j.wanted)
	clear(j.cutting)
	clear(j.snapshots)
	j.mu.Unlock()
	if err == nil || errors.Is(err, errRestart) || errors.Is(err, errStopped) {
		err = checkpoint.ErrNotRunning
	}
	for _, id := range ids {
		j.engine.acker.Decline(j.Spec.ID, id, err)
	}
}

// NotifyComplete implements checkpoint.Participant.
func (j *Job) NotifyComplete(id uint64) {
	j.mu.Lock()
	js := j.snapshots[id]
	for i := range j.snapshots {
		if i <= id {
			delete(j.snapshots, i)
		}
	}
	var readers []*changelog.Reader
	var store *state.Store
	var sink *sinkRun
	if j.run != nil && js != nil {
		sink = j.run.sink
	}
	durable := uint64(0)
	if js != nil {
		durable = js.Epoch
		if js.Unchanged && j.completed != nil {
			c := *j.completed
			c.Epoch = js.Epoch
			js = &c
		} else if j.run != nil {
			store = j.run.store
		}
		j.completed = js
		if j.run != nil {
			readers = j.run.readers
			durable = min(durable, j.run.consumed.Load()) // unaligned, it may be ahead of what was taken in
		}
	}
	j.mu.Unlock()
	sink.completed(id)
	if store != nil {
		store.Confirm(id)
	}
	for _, r := range readers {
		r.Durable(durable)
	}
}

// NotifyAborted implements checkpoint.Participant.
func (j *Job) NotifyAborted(id uint64) {
	j.mu.Lock()
	delete(j.snapshots, id)
	delete(j.wanted, id)
	r := j.run
	j.mu.Unlock()
	if r != nil && r.store != nil {
		r.sink.aborted(id)
		r.abort(id)
		r.store.Abort(id)
	}
}

// NotifySavepoint implements checkpoint.Participant: to the state a savepoint is a snapshot that nothing builds on.
func (j *Job) NotifySavepoint(id uint64) { j.NotifyAborted(id) }
