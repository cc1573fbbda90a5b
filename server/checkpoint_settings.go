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
	"github.com/streamdb/streamdb/exec"
	"github.com/streamdb/streamdb/internal/pgerr"
	"github.com/streamdb/streamdb/sql"
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

// checkpointsOf returns the settings of the checkpoints of a job with values of its own. Where these and the server's exclude each other, which can come about at a start only,
// told says so and the job's own hold.
func (s *serverSettings) checkpointsOf(own map[string]string) (js checkpoint.JobSettings, told error) {
	js = jobCheckpoints(over(own, s.get))
	if told = js.Validate(); told == nil || !js.Unaligned {
		return js, told
	}
	if _, overtakes := own[checkpoint.SettingUnaligned]; overtakes {
		js.Mode, js.MaxConcurrent = checkpoint.ExactlyOnce, 1
	} else {
		js.Unaligned = false
	}
	return js, told
}

// jobWith returns an error when next excludes what a job has of its own, unless the present values do, too.
func (s *Server) jobWith(next *serverSettings, now *serverSettings) error {
	for _, o := range s.catalog.Snapshot().Objects() {
		if _, told := next.checkpointsOf(o.Settings); told != nil {
			if _, before := now.checkpointsOf(o.Settings); before == nil || before.Error() != told.Error() {
				return pgerr.From(told).WithDetail("%s %q has settings of its own.", capital(string(o.Kind)), o.Name)
			}
		}
	}
	return nil
}

// logContradictions tells where values that the server was started with exclude those of jobs.
func (s *Server) logContradictions() {
	snap := s.catalog.Snapshot()
	for _, o := range snap.Objects() {
		if _, told := s.settings.checkpointsOf(o.Settings); told != nil {
			s.log.Warn().Err(told).Str(strings.ReplaceAll(string(o.Kind), " ", "_"), o.Name).Msg("settings of the job and of the server exclude each other: those of the job hold")
		}
	}
	if kept := s.keepExactlyOnce(snap); kept != nil {
		s.log.Warn().Strs("sinks", kept).Msg("sinks that write exactly once keep " + checkpoint.SettingMode + " = EXACTLY_ONCE")
	}
}

// keepExactlyOnce are the sinks whose checkpoints are exactly-once although those of the server are not.
func (s *Server) keepExactlyOnce(snap *catalog.Snapshot) (names []string) {
	for _, o := range snap.Objects() {
		if o.Sink != nil && o.Sink.ExactlyOnce && s.settings.get(checkpoint.SettingMode) == checkpoint.AtLeastOnce.String() {
			names = append(names, o.Name)
		}
	}
	return names
}

// noteKept is a NOTICE of the sinks that keepExactlyOnce names.
func noteKept(names ...string) *pgerr.Error {
	return note("sinks that write exactly once keep %s = EXACTLY_ONCE: %s", checkpoint.SettingMode, strings.Join(names, ", "))
}

// staysAligned is a NOTICE for a view or sink that asks for unaligned checkpoints which its operators do not let it have.
func (s *Server) staysAligned(o *catalog.Object) []*pgerr.Error {
	if own := jobCheckpoints(over(o.Settings, func(string) string { return "" })); !own.Unaligned {
		return nil
	}
	spec, err := jobSpec(o)
	if err != nil || exec.MayOvertake(spec.Plan, s.registry) {
		return nil // an error is reported when the job is made
	}
	return []*pgerr.Error{note("checkpoints of %s %q stay aligned: its operators cannot be cut in the middle of an epoch", o.Kind, o.Name)}
}

// looseUnder is a NOTICE for each exactly-once sink among those given and each at-least-once view among those that it reads, directly or not.
func (s *Server) looseUnder(snap *catalog.Snapshot, views, sinks []*catalog.Object) (notices []*pgerr.Error) {
	for _, v := range views {
		if v.Kind != catalog.MaterializedView {
			continue
		}
		if js, _ := s.settings.checkpointsOf(v.Settings); js.Mode != checkpoint.AtLeastOnce {
			continue
		}
		for _, k := range sinks {
			if k.Sink == nil || !k.Sink.ExactlyOnce || !slices.ContainsFunc(snap.Dependents(v.ID), func(d *catalog.Object) bool { return d.ID == k.ID }) {
				continue
			}
			notices = append(notices, note("after a crash rows of sources may count twice in materialized view %q, and in sink %q that reads it", v.Name, k.Name))
		}
	}
	return notices
}

// checkSinkMode refuses an exactly-once sink with at-least-once checkpoints of its own.
func checkSinkMode(o *catalog.Object) error {
	if !o.Sink.ExactlyOnce || o.Settings[checkpoint.SettingMode] != checkpoint.AtLeastOnce.String() {
		return nil
	}
	return pgerr.Newf(pgerr.InvalidParameterValue, "%s = AT_LEAST_ONCE cannot be combined with %s = %s", checkpoint.SettingMode, connector.OptionGuarantee, connector.ExactlyOnce).
		WithHint("Set %s = EXACTLY_ONCE for the sink, or create it with %s = '%s'.", checkpoint.SettingMode, connector.OptionGuarantee, connector.AtLeastOnce)
}

// ownCheckpoints returns the settings of the checkpoints of a job, nil when it has none of its own.
func (s *Server) ownCheckpoints(o *catalog.Object) *checkpoint.JobSettings {
	for _, st := range s.settings.table.list {
		if _, own := o.Settings[st.name]; own && st.live {
			js, _ := s.settings.checkpointsOf(o.Settings)
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
	if best := t.nearest(name, func(*setting) bool { return true }); best != "" {
		return err.WithHint("Perhaps you meant %q.", best)
	}
	return err.WithHint("SHOW ALL lists those there are.")
}

// nearest is the name, among those of some settings, that was perhaps meant; "" when none is near.
func (t *settingTable) nearest(name string, among func(*setting) bool) string {
	var names []string
	for i := range t.list {
		if among(&t.list[i]) {
			names = append(names, t.list[i].name)
		}
	}
	return connector.Nearest(name, names)
}

// notOfJobs is the error for an option that no job has; hint says which there are.
func (t *settingTable) notOfJobs(o sql.Option, among func(*setting) bool, hint string, args ...any) error {
	err := pgerr.Newf(pgerr.InvalidParameterValue, "unrecognized parameter %q", o.Name).At(o.Pos)
	if best := t.nearest(o.Name, among); best != "" {
		return err.WithHint("Perhaps you meant %q.", best)
	}
	return err.WithHint(hint, args...)
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
