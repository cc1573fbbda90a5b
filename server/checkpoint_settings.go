package server

import (
	"maps"
	"math"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/streamdb/streamdb/catalog"
	"github.com/streamdb/streamdb/checkpoint"
	"github.com/streamdb/streamdb/connector"
	"github.com/streamdb/streamdb/internal/pgerr"
)

// checkpoints returns the coordinator's configuration. Values were checked when they were set.
func (s *serverSettings) checkpoints() checkpoint.Config {
	js := jobCheckpoints(s.get)
	c := checkpoint.Config{
		Interval: js.Interval, MinPause: js.MinPause, Timeout: js.Timeout, TolerableFailures: js.TolerableFailures, MaxConcurrent: js.MaxConcurrent,
	}
	c.GroupWindow, _ = parseDuration(s.get(checkpoint.SettingGroupWindow))
	c.SweepInterval, _ = parseDuration(s.get(checkpoint.SettingSweepInterval))
	inline, _ := byteCountOf(s.get(checkpoint.SettingInlineThreshold))
	c.InlineThreshold = int(min(inline, math.MaxInt32))
	if c.MemoryLimit, _ = byteCountOf(s.get(checkpoint.SettingMemoryLimit)); c.MemoryLimit == 0 {
		c.MemoryLimit = max(s.memory/memoryLimitShare, minMemoryLimit)
	}
	c.Retained, c.History = s.number(checkpoint.SettingRetained), s.number(checkpoint.SettingHistory)
	return c
}

// jobCheckpoints makes the settings of a job's checkpoints from values that were checked when they were set.
func jobCheckpoints(get func(name string) string) checkpoint.JobSettings {
	s := checkpoint.DefaultJobSettings()
	dur := func(name string, into *time.Duration) {
		if d, err := parseDuration(get(name)); err == nil {
			*into = d
		}
	}
	num := func(name string, into *int) {
		if n, err := strconv.Atoi(get(name)); err == nil {
			*into = n
		}
	}
	dur(checkpoint.SettingInterval, &s.Interval)
	s.BacklogInterval = s.Interval
	dur(checkpoint.SettingBacklogInterval, &s.BacklogInterval)
	dur(checkpoint.SettingMinPause, &s.MinPause)
	dur(checkpoint.SettingTimeout, &s.Timeout)
	dur(checkpoint.SettingAlignedTimeout, &s.AlignedTimeout)
	num(checkpoint.SettingTolerableFailures, &s.TolerableFailures)
	num(checkpoint.SettingMaxConcurrent, &s.MaxConcurrent)
	num(checkpoint.SettingSubtasksPerFile, &s.SubtasksPerFile)
	s.Unaligned = get(checkpoint.SettingUnaligned) == "on"
	s.Incremental = get(checkpoint.SettingIncremental) == "on"
	s.AfterTasksFinish = get(checkpoint.SettingAfterTasksFinish) == "on"
	if get(checkpoint.SettingMode) == checkpoint.AtLeastOnce.String() {
		s.Mode = checkpoint.AtLeastOnce
	}
	s.Retention = checkpoint.Retention(max(0, slices.Index(checkpoint.Retentions[:], get(checkpoint.SettingExternalRetention))))
	return s
}

// over reads values over those of get.
func over(own map[string]string, get func(name string) string) func(name string) string {
	return func(name string) string {
		if v, ok := own[name]; ok {
			return v
		}
		return get(name)
	}
}

// ownCheckpoints returns the settings of the checkpoints of a job, nil when it has none of its own.
func (s *Server) ownCheckpoints(o *catalog.Object) *checkpoint.JobSettings {
	for _, st := range s.settings.table.list {
		if _, own := o.Settings[st.name]; own && st.live {
			js := jobCheckpoints(over(o.Settings, s.settings.get))
			return &js
		}
	}
	return nil
}

// applyCheckpointSettings takes the server's values to the coordinator and to all jobs.
func (s *Server) applyCheckpointSettings() error {
	defaults := jobCheckpoints(s.settings.get)
	if err := s.coord.SetConfig(s.settings.checkpoints()); err != nil {
		return err
	}
	s.engine.SetSettings(defaults)
	cat := s.catalog.Snapshot()
	for _, j := range s.engine.Jobs() {
		if o, ok := cat.Get(j.PublicID()); ok {
			j.SetSettings(s.ownCheckpoints(o))
		}
	}
	return nil
}

// checkCheckpoints refuses own settings of a job that contradict each other or the server's.
func (s *serverSettings) checkCheckpoints(own map[string]string) error {
	js := jobCheckpoints(over(own, s.get))
	if js.Retention == checkpoint.RetainOnCancellation && s.get(checkpoint.SettingSavepointDirectory) == "" {
		return nowhereToRetain()
	}
	return js.Validate()
}

// unknown is the error for a name that no setting has. In the classes that are the server's own it is a mistake, not a setting of an application.
func (t *settingTable) unknown(name string) error {
	err := pgerr.Newf(pgerr.UndefinedObject, "unrecognized configuration parameter %q", name)
	if class, _, ok := strings.Cut(strings.ToLower(name), "."); !ok || class != "execution" && class != "state" {
		return err
	}
	var names []string
	for _, st := range t.list {
		names = append(names, st.name)
	}
	if best := connector.Nearest(name, names); best != "" {
		return err.WithHint("Perhaps you meant %q.", best)
	}
	return err.WithHint("SHOW ALL lists those there are.")
}

// tellDeprecated gives a NOTICE for names that older programs use.
func (ss *session) tellDeprecated(name string) error {
	now, old := ss.srv.settings.table.deprecated(name)
	if !old {
		return nil
	}
	return ss.notice("NOTICE", pgerr.SuccessfulCompletion, "parameter %q is now called %q", strings.ToLower(name), now)
}

// deprecated reports whether a name is one that older programs use, and how the setting is called now.
func (t *settingTable) deprecated(name string) (now string, old bool) {
	st, err := t.find(name)
	if err != nil {
		return "", false
	}
	return st.name, slices.ContainsFunc(st.deprecated, func(d string) bool { return strings.EqualFold(d, name) })
}

// logDeprecated logs the names in the configuration that older programs use.
func (s *Server) logDeprecated() {
	for _, name := range slices.Sorted(maps.Keys(s.cfg.Settings)) {
		if now, old := s.settings.table.deprecated(name); old {
			s.log.Warn().Str("name", name).Str("now", now).Msg("the configuration uses an older name of a setting")
		}
	}
}
