package checkpoint

import (
	"errors"

	"github.com/streamdb/streamdb/internal/pgerr"
)

// FailureReason tells why a checkpoint did not complete, in the terms that checkpoint monitoring knows.
type FailureReason uint8

// The reasons.
const (
	NoFailure FailureReason = iota
	PeriodicSchedulerShutdown
	TooManyCheckpointRequests
	MinimumTimeBetweenCheckpoints
	NotAllRequiredTasksRunning
	IOException
	BlockingOutputExist
	ChannelStateSharedStreamException
	CheckpointAsyncException
	CheckpointExpired
	CheckpointSubsumed
	CheckpointDeclined
	CheckpointDeclinedTaskNotReady
	CheckpointDeclinedTaskClosing
	CheckpointDeclinedTaskNotCheckpointing
	CheckpointDeclinedSubsumed
	CheckpointDeclinedOnCancellationBarrier
	CheckpointDeclinedInputEndOfStream
	CheckpointCoordinatorShutdown
	CheckpointCoordinatorSuspend
	JobFailure
	JobFailoverRegion
	TaskFailure
	TaskCheckpointFailure
	FinalizeCheckpointFailure
	TriggerCheckpointFailure
	failureReasons // their number
)

var failures = [failureReasons]struct {
	name    string
	counted bool // towards TolerableFailures
}{
	PeriodicSchedulerShutdown:               {name: "PERIODIC_SCHEDULER_SHUTDOWN"},
	TooManyCheckpointRequests:               {name: "TOO_MANY_CHECKPOINT_REQUESTS"},
	MinimumTimeBetweenCheckpoints:           {name: "MINIMUM_TIME_BETWEEN_CHECKPOINTS"},
	NotAllRequiredTasksRunning:              {name: "NOT_ALL_REQUIRED_TASKS_RUNNING"},
	IOException:                             {name: "IO_EXCEPTION", counted: true},
	BlockingOutputExist:                     {name: "BLOCKING_OUTPUT_EXIST", counted: true},
	ChannelStateSharedStreamException:       {name: "CHANNEL_STATE_SHARED_STREAM_EXCEPTION"},
	CheckpointAsyncException:                {name: "CHECKPOINT_ASYNC_EXCEPTION", counted: true},
	CheckpointExpired:                       {name: "CHECKPOINT_EXPIRED", counted: true},
	CheckpointSubsumed:                      {name: "CHECKPOINT_SUBSUMED"},
	CheckpointDeclined:                      {name: "CHECKPOINT_DECLINED", counted: true},
	CheckpointDeclinedTaskNotReady:          {name: "CHECKPOINT_DECLINED_TASK_NOT_READY"},
	CheckpointDeclinedTaskClosing:           {name: "CHECKPOINT_DECLINED_TASK_CLOSING"},
	CheckpointDeclinedTaskNotCheckpointing:  {name: "CHECKPOINT_DECLINED_TASK_NOT_CHECKPOINTING"},
	CheckpointDeclinedSubsumed:              {name: "CHECKPOINT_DECLINED_SUBSUMED"},
	CheckpointDeclinedOnCancellationBarrier: {name: "CHECKPOINT_DECLINED_ON_CANCELLATION_BARRIER"},
	CheckpointDeclinedInputEndOfStream:      {name: "CHECKPOINT_DECLINED_INPUT_END_OF_STREAM"},
	CheckpointCoordinatorShutdown:           {name: "CHECKPOINT_COORDINATOR_SHUTDOWN"},
	CheckpointCoordinatorSuspend:            {name: "CHECKPOINT_COORDINATOR_SUSPEND"},
	JobFailure:                              {name: "JOB_FAILURE"},
	JobFailoverRegion:                       {name: "JOB_FAILOVER_REGION"},
	TaskFailure:                             {name: "TASK_FAILURE"},
	TaskCheckpointFailure:                   {name: "TASK_CHECKPOINT_FAILURE"},
	// The store is the database's: to start a job again does not mend it, so what it does is not counted against the jobs.
	FinalizeCheckpointFailure: {name: "FINALIZE_CHECKPOINT_FAILURE"},
	TriggerCheckpointFailure:  {name: "TRIGGER_CHECKPOINT_FAILURE", counted: true},
}

// String is the name in streamdb.checkpoints; empty for none.
func (r FailureReason) String() string { return failures[r].name }

// Counted reports whether it counts towards the failures after which a job is started again.
func (r FailureReason) Counted() bool { return failures[r].counted }

// Failure is why a checkpoint did not complete.
type Failure struct {
	Reason   FailureReason
	Err      error
	Subtasks []SubtaskStats // what is known of it all the same
}

// Failed says why err made a checkpoint fail: participants decline with it.
func Failed(r FailureReason, err error) error { return &Failure{Reason: r, Err: err} }

// Error implements error.
func (f *Failure) Error() string { return f.Err.Error() }

// Unwrap implements errors.Unwrap.
func (f *Failure) Unwrap() error { return f.Err }

// ReasonOf returns the reason that err carries. Without one it is what a participant declines with: its state could not be written when the
// error is one of IO, else CHECKPOINT_DECLINED.
func ReasonOf(err error) FailureReason {
	var f *Failure
	switch {
	case err == nil:
		return NoFailure
	case errors.As(err, &f):
		return f.Reason
	case errors.Is(err, ErrNotRunning):
		return NotAllRequiredTasksRunning
	case errors.Is(err, ErrFenced):
		return CheckpointCoordinatorShutdown
	case pgerr.CodeOf(err) == pgerr.IOError, pgerr.CodeOf(err) == pgerr.UnableToConnect:
		return IOException
	}
	return CheckpointDeclined
}

// failureCounter counts the failed checkpoints of a job since its last success, each once.
type failureCounter struct {
	ids     map[uint64]bool
	success uint64 // newest completed one; what happens to older ones does not matter any more
}

// failed takes in that checkpoint id failed and returns how many have, 0 when this one does not count.
func (f *failureCounter) failed(id uint64, r FailureReason) int {
	if !r.Counted() || id <= f.success || f.ids[id] {
		return 0
	}
	if f.ids == nil {
		f.ids = map[uint64]bool{}
	}
	f.ids[id] = true
	return len(f.ids)
}

func (f *failureCounter) succeeded(id uint64) {
	if id > f.success {
		f.success = id
		clear(f.ids)
	}
}
