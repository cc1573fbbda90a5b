// Package checkpoint makes consistent, durable cuts of all jobs and publishes them with one compare-and-set.
//
//	interval, CHECKPOINT ─▶ Coordinator ─▶ Clock.BeginCheckpoint ─▶ Participant.Trigger(Barrier)      (all of one id, one epoch)
//	                            ▲                                        │ seal, snapshot
//	                            └──────── Acknowledge(JobState) ◀────────┘
//	   all acked, or window over ─▶ upload new files, one pack, one manifest ─▶ compare-and-set of HEAD ─▶ NotifyComplete ─▶ GC
//
// The Coordinator is one event loop around a pure step function (core.go); whatever waits runs in goroutines that post events back.
// HEAD is the only object that is ever overwritten: what it lists exists, what it does not list does not count. Formats are described
// in docs/formats/checkpoint.md.
package checkpoint

import (
	"errors"
	"slices"
	"time"

	"github.com/streamdb/streamdb/state"
)

// Kind tells what a barrier asks for.
type Kind uint8

// The kinds of barriers.
const (
	// KindEpoch closes an epoch and snapshots nothing.
	KindEpoch Kind = iota
	// KindCheckpoint cuts an incremental checkpoint, owned by the coordinator.
	KindCheckpoint
	// KindSavepoint cuts a self-contained one, owned by the user.
	KindSavepoint
)

// String is the kind's name in streamdb.checkpoints.
func (k Kind) String() string {
	switch k {
	case KindCheckpoint:
		return "CHECKPOINT"
	case KindSavepoint:
		return "SAVEPOINT"
	}
	return "EPOCH"
}

// Barrier closes an epoch in-band; with a checkpoint id it also cuts the state of who meets it.
type Barrier struct {
	Epoch      uint64
	Checkpoint uint64 // 0: a plain epoch barrier
	Kind       Kind
	Triggered  time.Time
	Full       bool // do not build on earlier checkpoints
	// Unaligned: the barrier overtakes what is queued. AlignedTimeout, when set, is how long after Triggered an aligned one becomes that.
	Unaligned      bool
	AlignedTimeout time.Duration
	// Savepoint tells the form of a savepoint. A checkpoint has it when jobs end with it: the savepoint is then a copy of the checkpoint.
	Savepoint *SavepointSpec
	// Now, when set, is the time to which a job's clock moves with the barrier, in µs since 2000-01-01 UTC.
	Now int64
	// Filling is set during the backfill of a job with operators that ask for it.
	Filling Filling
}

// SavepointSpec is what was asked for with a savepoint. It must not change.
type SavepointSpec struct {
	Target    string   // URL of the folder that it is written to
	Canonical bool     // a form that every backend reads, else the backend's own files
	Stop      bool     // the jobs named take nothing in after the barrier
	Named     []uint64 // the jobs asked for, without what they read; filled in by the coordinator
	Drain     bool     // with Stop: they behave as if their sources had ended, so that all windows close
}

// Stops reports whether job takes nothing in after the barrier.
func (b *Barrier) Stops(job uint64) bool {
	return b.Savepoint != nil && b.Savepoint.Stop && (b.Savepoint.Named == nil || slices.Contains(b.Savepoint.Named, job))
}

// Drains reports whether with the barrier the sources of job have ended, so that all windows close.
func (b *Barrier) Drains(job uint64) bool { return b.Stops(job) && b.Savepoint.Drain }

// Cut tells what a checkpoint asks for, and of whom.
type Cut struct {
	Kind Kind
	Jobs map[uint64]bool // the participants meant; nil: all. It must not change.
	Full bool
	// Incremental ones build on what is stored also for jobs whose settings say otherwise.
	Incremental bool
	Savepoint   *SavepointSpec
}

// Means reports whether the participant is to cut.
func (c Cut) Means(id uint64) bool { return c.Jobs == nil || c.Jobs[id] }

// Barrier returns the barrier of checkpoint id for a job with the given settings.
func (c Cut) Barrier(id, epoch uint64, triggered time.Time, s JobSettings) Barrier {
	b := Barrier{Epoch: epoch, Checkpoint: id, Kind: c.Kind, Triggered: triggered, Full: c.Full, Savepoint: c.Savepoint}
	if c.Kind == KindCheckpoint && s.Unaligned && c.Savepoint == nil {
		b.Unaligned, b.AlignedTimeout = s.AlignedTimeout == 0, s.AlignedTimeout
	}
	return b
}

// Filling is the part of a job's backfill that a barrier ends.
type Filling uint8

// Early reports whether what others need to be complete has not been read yet.
func (f Filling) Early() bool { return f == FillLeading || f == FillAgain || f == FillKept }

// The parts of a backfill, in their order, each of one round or more but the last, in which nothing is read.
const (
	NotFilling   Filling = iota
	FillLeading          // scans that must be complete before others begin (plan.Scan.Leading)
	FillRest             // all other scans
	FillComplete         // everything has been read
	FillAgain            // before all that: what operators that go on with the state of another job had put out in that one
	FillKept             // then: what they have to take in first, epoch by epoch
)

// ErrNotRunning is what Participant.Trigger returns, or a later Decline carries, when a job cannot take part now: it is restarting or
// backfilling. It is not counted as a failure. Jobs that read from it cannot complete that checkpoint either. A paused job should not
// use it but acknowledge as Unchanged at once, having taken a checkpoint when it was paused: its readers then go on.
var ErrNotRunning = errors.New("job is not running")

// Participant takes part in checkpoints: a job, or the engine of all tables. Methods return at once and may be called from the
// coordinator's loop; they may call Acknowledge and Decline themselves.
type Participant interface {
	ID() uint64
	Name() string
	// Inputs are the ids of the participants whose change logs it reads.
	Inputs() []uint64
	// Settings are those of its checkpoints now.
	Settings() JobSettings
	// Trigger asks for a checkpoint at the end of b.Epoch. The outcome comes by Coordinator.Acknowledge or Decline, exactly one.
	Trigger(b Barrier) error
	// NotifyComplete tells that the participant's state of checkpoint id is durable, and by that all earlier ones. It may be lost in a
	// crash: what depends on it is done again after a restore.
	NotifyComplete(id uint64)
	// NotifyAborted tells that the participant's state of checkpoint id will not be published: local files of it may go. It may
	// come again for an answer that arrives late.
	NotifyAborted(id uint64)
	// NotifySavepoint tells that a savepoint is written that does not end the job: local files of the state of id may go, and that is all. Nothing is
	// durable by it that a job restarts from, so nothing later builds on it, and nothing that was prepared outside is committed or given up.
	NotifySavepoint(id uint64)
}

// JobState is one participant's part of a checkpoint. An acknowledged one belongs to the coordinator and must not change; its local
// files must stay until NotifyComplete or NotifyAborted.
type JobState struct {
	Job               uint64
	Name              string // filled in by the coordinator
	Checkpoint, Epoch uint64
	// Unchanged: state and positions equal those of the participant's last completed checkpoint. State, Positions, Operators are ignored.
	// Never for a savepoint, nor when Barrier.Full is set: these need all of it.
	Unchanged bool
	State     *state.Snapshot // nil when there is none
	// Inputs are the participants it reads from: Participant.Inputs. Filled in by the coordinator.
	Inputs []uint64
	// Positions of source splits and change logs, by "operator/split"; Operators: other operator state, by operator id.
	Positions   map[string][]byte
	Operators   map[string][]byte
	Parallelism int
	Subtasks    []SubtaskStats
	// Inflight holds the files of what an unaligned barrier overtook (docs/formats/channel-state.md).
	Inflight []state.Handle

	refs *stateRefs // where its bytes are; set when it was loaded or published
	full bool       // nothing of it is taken over from earlier checkpoints
}

// SubtaskStats are the times and sizes one subtask reports for one checkpoint.
type SubtaskStats struct {
	Operator       string
	Subtask        int
	StartDelay     time.Duration // from trigger to the first barrier's arrival
	Alignment      time.Duration // first to last barrier
	Sync, Async    time.Duration
	Acknowledged   time.Time
	Bytes          int64 // new with this checkpoint
	FullBytes      int64
	ProcessedBytes int64 // during alignment
	PersistedBytes int64 // in-flight data in the checkpoint (unaligned)
	Unaligned      bool
}

// Clock is the epoch clock as the coordinator needs it. Both are called from a goroutine of the coordinator, never concurrently.
type Clock interface {
	// BeginCheckpoint picks the epoch at whose end every participant cuts for checkpoint id. It precedes the calls of Trigger.
	// Participants that it does not mean do not cut.
	BeginCheckpoint(id uint64, cut Cut) (epoch uint64, err error)
	// Quiet reports that nothing happened since the last BeginCheckpoint: no epoch was closed and no transaction committed. A periodic
	// checkpoint is then not even begun.
	Quiet() bool
}
