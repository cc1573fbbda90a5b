package checkpoint

import (
	"time"

	"github.com/streamdb/streamdb/internal/pgerr"
)

// The names of the settings.
const (
	SettingInterval          = "execution.checkpointing.interval"
	SettingMinPause          = "execution.checkpointing.min-pause"
	SettingTimeout           = "execution.checkpointing.timeout"
	SettingRetained          = "execution.checkpointing.num-retained"
	SettingTolerableFailures = "execution.checkpointing.tolerable-failed-checkpoints"
	SettingMaxConcurrent     = "execution.checkpointing.max-concurrent-checkpoints"
	SettingHistory           = "web.checkpoints.history"
	SettingGroupWindow       = "execution.checkpointing.group-window"
	SettingInlineThreshold   = "execution.checkpointing.data-inline-threshold"
	SettingSweepInterval     = "execution.checkpointing.sweep-interval"
	SettingMemoryLimit       = "execution.checkpointing.memory-limit"
)

// Config holds the settings; all can change while the coordinator runs (SetConfig).
type Config struct {
	Interval time.Duration // between periodic checkpoints; 0: none
	MinPause time.Duration // between the end of a completed one and the next periodic trigger
	Timeout  time.Duration // until a participant that has not answered is given up
	// GroupWindow is how long acknowledged jobs wait for slower ones, to be published together. After a crash a job that is behind what it reads from cannot
	// go on from there, and begins anew.
	GroupWindow time.Duration
	Retained    int // completed checkpoints kept
	// TolerableFailures is how many checkpoints in a row a job may fail before it is restarted.
	TolerableFailures int
	// InlineThreshold is up to how many bytes the new small things of a checkpoint go into its manifest, instead of an object of their own.
	InlineThreshold int
	// SweepInterval is how often unreferenced objects are looked for, besides at the start; 0: only then.
	SweepInterval time.Duration
	// MemoryLimit is how many bytes the state of one job may have in a checkpoint in memory; 0: any.
	MemoryLimit int64
	// MaxConcurrent checkpoints in flight per job.
	MaxConcurrent int
	// History is how many checkpoints of each job are remembered for streamdb.checkpoints.
	History int
}

// JobSettings are those of jobs that have none of their own.
func (c Config) JobSettings() JobSettings {
	s := DefaultJobSettings()
	s.Interval, s.BacklogInterval, s.MinPause, s.Timeout = c.Interval, c.Interval, c.MinPause, c.Timeout
	s.TolerableFailures, s.MaxConcurrent = c.TolerableFailures, c.MaxConcurrent
	return s
}

// DefaultConfig is what applies unless set.
func DefaultConfig() Config {
	return Config{
		Interval: 10 * time.Second, Timeout: 10 * time.Minute, GroupWindow: 10 * time.Second,
		Retained: 1, TolerableFailures: 0, MaxConcurrent: 1, History: 10,
		InlineThreshold: DefaultInlineThreshold, SweepInterval: 24 * time.Hour,
	}
}

// The limits of InlineThreshold, in bytes.
const (
	DefaultInlineThreshold = 20 << 10
	maxInlineThreshold     = 1 << 20
)

// minSweepInterval bounds how often the whole store is listed.
const minSweepInterval = time.Minute

// minInterval bounds how often checkpoints may be asked for.
const minInterval = 10 * time.Millisecond

// Validate refuses settings that make no sense, naming the setting.
func (c Config) Validate() error {
	bad := func(name, format string, args ...any) error {
		return pgerr.Newf(pgerr.InvalidParameterValue, "invalid value for parameter %q: "+format, append([]any{name}, args...)...)
	}
	switch {
	case c.Interval != 0 && c.Interval < minInterval:
		return bad(SettingInterval, "%v is less than %v", c.Interval, minInterval)
	case c.MinPause < 0:
		return bad(SettingMinPause, "%v is negative", c.MinPause)
	case c.Timeout < minInterval:
		return bad(SettingTimeout, "%v is less than %v", c.Timeout, minInterval)
	case c.GroupWindow < 0:
		return bad(SettingGroupWindow, "%v is negative", c.GroupWindow)
	case c.Retained < 1:
		return bad(SettingRetained, "%d is less than 1", c.Retained)
	case c.TolerableFailures < 0:
		return bad(SettingTolerableFailures, "%d is negative", c.TolerableFailures)
	case c.MaxConcurrent < 1:
		return bad(SettingMaxConcurrent, "%d is less than 1", c.MaxConcurrent)
	case c.History < 0:
		return bad(SettingHistory, "%d is negative", c.History)
	case c.InlineThreshold < 0 || c.InlineThreshold > maxInlineThreshold:
		return bad(SettingInlineThreshold, "%d is not between 0 and %d bytes", c.InlineThreshold, maxInlineThreshold)
	case c.SweepInterval != 0 && c.SweepInterval < minSweepInterval:
		return bad(SettingSweepInterval, "%v is less than %v", c.SweepInterval, minSweepInterval)
	case c.MemoryLimit < 0:
		return bad(SettingMemoryLimit, "%d is negative", c.MemoryLimit)
	}
	return nil
}
