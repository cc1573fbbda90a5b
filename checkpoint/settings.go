package checkpoint

import (
	"time"

	"github.com/streamdb/streamdb/internal/pgerr"
)

// The names of the settings of one job's checkpoints. Those of the interval, the pause, the timeout and the failures are in config.go: they are
// settings of the server, too, which hold for jobs that have none of their own.
const (
	SettingMode               = "execution.checkpointing.mode"
	SettingUnaligned          = "execution.checkpointing.unaligned.enabled"
	SettingAlignedTimeout     = "execution.checkpointing.aligned-checkpoint-timeout"
	SettingSubtasksPerFile    = "execution.checkpointing.unaligned.max-subtasks-per-channel-state-file"
	SettingIncremental        = "execution.checkpointing.incremental"
	SettingBacklogInterval    = "execution.checkpointing.interval-during-backlog"
	SettingAfterTasksFinish   = "execution.checkpointing.checkpoints-after-tasks-finish"
	SettingExternalRetention  = "execution.checkpointing.externalized-checkpoint-retention"
	SettingRecoveryPath       = "execution.state-recovery.path"
	SettingClaimMode          = "execution.state-recovery.claim-mode"
	SettingIgnoreUnclaimed    = "execution.state-recovery.ignore-unclaimed-state"
	SettingWithoutChannel     = "execution.state-recovery.without-channel-state.checkpoint-id"
	SettingSavepointDirectory = "execution.checkpointing.savepoint-dir"
	SettingDirectory          = "execution.checkpointing.dir"
)

// Mode tells what a crash may do to a job's result.
type Mode uint8

// The modes.
const (
	// ExactlyOnce: channels wait for each other at a barrier, or what is in flight is part of the checkpoint.
	ExactlyOnce Mode = iota
	// AtLeastOnce: no channel waits; after a crash rows of sources may count twice in operators with several channels.
	AtLeastOnce
)

// String is the setting's value.
func (m Mode) String() string {
	if m == AtLeastOnce {
		return "AT_LEAST_ONCE"
	}
	return "EXACTLY_ONCE"
}

// Retention tells what becomes of a job's checkpoints when it is dropped. Those of one that has failed or has read all there is stay until then.
type Retention uint8

// The policies. There is one manifest for the database, which a dropped job leaves: the first two differ in name only.
const (
	// NoExternalized: its files go with the next checkpoint.
	NoExternalized Retention = iota
	// DeleteOnCancellation: the same.
	DeleteOnCancellation
	// RetainOnCancellation: what the last completed one has of it is copied as a savepoint, which is the user's (Coordinator.Retain).
	RetainOnCancellation
)

// Retentions are the setting's values, by policy.
var Retentions = [...]string{NoExternalized: "NO_EXTERNALIZED_CHECKPOINTS", DeleteOnCancellation: "DELETE_ON_CANCELLATION", RetainOnCancellation: "RETAIN_ON_CANCELLATION"}

// JobSettings are those of one job's checkpoints. They may change while the job runs: the next trigger follows them.
type JobSettings struct {
	Mode              Mode
	Interval          time.Duration // between periodic ones; 0: none
	BacklogInterval   time.Duration // the same while a source works off what piled up; 0: none then
	MinPause          time.Duration // between the end of a completed one and the next periodic trigger
	Timeout           time.Duration
	MaxConcurrent     int // in flight at a time
	TolerableFailures int // counted ones in a row before the job is restarted
	// Unaligned barriers overtake rows, which become part of the checkpoint, at once or when AlignedTimeout has passed since the trigger.
	Unaligned      bool
	AlignedTimeout time.Duration
	// SubtasksPerFile is how many subtasks put what they have in flight into one file, at most.
	SubtasksPerFile int
	// Incremental checkpoints hold what changed; without it each one is self-contained.
	Incremental bool
	// AfterTasksFinish: checkpoints go on when some subtasks have read all there is.
	AfterTasksFinish bool
	Retention        Retention
}

// DefaultJobSettings is what applies unless set.
func DefaultJobSettings() JobSettings {
	c := DefaultConfig()
	return JobSettings{
		Interval: c.Interval, BacklogInterval: c.Interval, MinPause: c.MinPause, Timeout: c.Timeout, MaxConcurrent: c.MaxConcurrent,
		TolerableFailures: c.TolerableFailures, SubtasksPerFile: 5, Incremental: true, AfterTasksFinish: true,
	}
}

// Validate refuses settings that contradict each other, naming both.
func (s JobSettings) Validate() error {
	both := func(a, av, b, bv string) *pgerr.Error {
		return pgerr.Newf(pgerr.InvalidParameterValue, "%s = %s cannot be combined with %s = %s", a, av, b, bv)
	}
	for name, d := range map[string]time.Duration{SettingInterval: s.Interval, SettingBacklogInterval: s.BacklogInterval, SettingTimeout: s.Timeout} {
		if d < minInterval && (d != 0 || name == SettingTimeout) {
			return pgerr.Newf(pgerr.InvalidParameterValue, "invalid value for parameter %q: %v is less than %v", name, d, minInterval)
		}
	}
	switch {
	case s.Unaligned && s.Mode == AtLeastOnce:
		return both(SettingUnaligned, "true", SettingMode, s.Mode.String()).WithHint("Unaligned checkpoints are exactly-once: set %s to EXACTLY_ONCE, or turn %s off.", SettingMode, SettingUnaligned)
	case s.Unaligned && s.MaxConcurrent > 1:
		return both(SettingUnaligned, "true", SettingMaxConcurrent, "more than 1").WithHint("Set %s to 1.", SettingMaxConcurrent)
	}
	return nil
}
