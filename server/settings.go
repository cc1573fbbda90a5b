package server

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"math"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/rs/zerolog"

	"github.com/streamdb/streamdb/auth"
	"github.com/streamdb/streamdb/checkpoint"
	"github.com/streamdb/streamdb/internal/pgerr"
	"github.com/streamdb/streamdb/pgwire"
	"github.com/streamdb/streamdb/planner"
	"github.com/streamdb/streamdb/sql"
	"github.com/streamdb/streamdb/state"
	"github.com/streamdb/streamdb/types"
)

// ServerVersion is what clients are told: they choose their catalogue queries by it.
const (
	ServerVersion    = "14.20"
	ServerVersionNum = "140020"
	serverVersionNum = 140020
)

// scope tells where a setting lives.
type scope uint8

const (
	scopeSession  scope = iota // SET changes it for the session
	scopeServer                // ALTER SYSTEM SET changes it for all; SET is refused
	scopeJob                   // SET changes the default of jobs created in the session; WITH (…) and ALTER … SET that of one job
	scopeReadOnly              // never
)

// setting describes one run-time parameter.
type setting struct {
	name    string
	value   string // default
	scope   scope
	report  bool // ParameterStatus
	doc     string
	check   func(string) (string, error) // normalises; nil accepts anything
	aliases []string
	// deprecated are names of it that older programs use: they are taken, with a NOTICE.
	deprecated []string
	// live: ALTER SYSTEM SET changes it at once, for the server and for all sessions and jobs that have not set it themselves.
	live bool
}

// settings is the table of all parameters: SHOW ALL, pg_settings and the manual are made from it.
func settings() []setting {
	cp := checkpoint.DefaultConfig()
	return append([]setting{
		{name: "application_name", report: true, doc: "Name of the client's program."},
		{name: "bytea_output", value: "hex", check: oneOf("hex", "escape"), doc: "Text form of bytea."},
		{name: "client_encoding", value: "UTF8", report: true, check: utf8Only, doc: "Encoding of the client; only UTF8."},
		{name: "client_min_messages", value: "notice", check: messageLevel, doc: "Least severity of messages sent to the client."},
		{name: "DateStyle", value: "ISO, MDY", report: true, check: dateStyle, doc: "Text form of dates and timestamps (ISO, SQL, Postgres, German) and the order of day, month and year in input (MDY, DMY, YMD)."},
		{name: "default_table_access_method", value: "heap", doc: "Accepted for compatibility."},
		{name: "default_transaction_isolation", value: "read committed", check: isolation, doc: "Name of the isolation of transaction blocks; it is a snapshot whatever the name."},
		{name: "default_transaction_read_only", value: "off", report: true, check: boolean, doc: "Refuse writes in new transaction blocks."},
		{name: "extra_float_digits", value: "1", check: integer(-15, 3), doc: "Digits of floating-point text; 1 and more: shortest exact."},
		{name: "idle_in_transaction_session_timeout", value: "0", check: duration, doc: "A session that idles longer in a transaction block is ended (25P03); 0: none."},
		{name: "idle_session_timeout", value: "0", check: duration, doc: "A session that idles longer outside of one is ended (57P05); 0: none."},
		{name: "in_hot_standby", value: "off", report: true, scope: scopeReadOnly, doc: "Always off."},
		{name: "integer_datetimes", value: "on", report: true, scope: scopeReadOnly, doc: "Always on."},
		{name: "IntervalStyle", value: "postgres", report: true, check: oneOf("postgres", "postgres_verbose", "sql_standard", "iso_8601"), doc: "Text form of intervals."},
		{name: "is_superuser", value: "on", report: true, scope: scopeReadOnly, doc: "Whether the session may do everything."},
		{name: "lc_collate", value: "C", scope: scopeReadOnly, doc: "Order of text: by bytes."},
		{name: "lc_ctype", value: "C", scope: scopeReadOnly, doc: "Character classes."},
		{name: "lc_messages", value: "C", doc: "Language of messages."},
		{name: "lc_monetary", value: "C", doc: "Accepted for compatibility."},
		{name: "lc_numeric", value: "C", doc: "Accepted for compatibility."},
		{name: "lc_time", value: "C", doc: "Accepted for compatibility."},
		{name: "lock_timeout", value: "0", check: duration, doc: "Longest wait for another session's schema change, or its UPDATE or DELETE of the same table (55P03); 0: none."},
		{name: "lookup_join_rows", value: "100000", check: integer(0, 1<<31-1), doc: "Rows from which a relation that a new materialized view joins by its key is read there instead of kept in the view's state."},
		{name: "max_identifier_length", value: "63", scope: scopeReadOnly, doc: "Bytes of an identifier."},
		{name: "max_index_keys", value: "32", scope: scopeReadOnly, doc: "Columns of a key."},
		{name: "max_recursion_iterations", value: strconv.Itoa(planner.DefaultMaxRecursionIterations), check: integer(1, 1<<31-1), doc: "A recursive query that takes more iterations fails (54000)."},
		{name: "max_recursion_memory", value: strconv.Itoa(planner.DefaultMaxRecursionBytes>>20) + "MB", check: memory, doc: "A recursive query whose rows take more memory fails (54000)."},
		{name: "password_encryption", value: "scram-sha-256", check: oneOf("scram-sha-256"), doc: "How passwords are stored."},
		{name: "role", value: "none", doc: "Role that the session acts as; none: the session's user."},
		{name: "scram_iterations", value: strconv.Itoa(auth.DefaultIterations), check: integer(1, auth.MaxIterations), doc: "Iterations of the hash of new passwords."},
		{name: "search_path", value: `"$user", public`, doc: "Schemas in which unqualified names are looked up."},
		{name: "server_encoding", value: "UTF8", report: true, scope: scopeReadOnly, doc: "Always UTF8."},
		{name: "server_version", value: ServerVersion, report: true, scope: scopeReadOnly, doc: "Version of PostgreSQL whose behaviour is offered."},
		{name: "server_version_num", value: ServerVersionNum, scope: scopeReadOnly, doc: "The same as a number."},
		{name: "session_authorization", report: true, doc: "User of the session."},
		{name: "ssl", value: "off", scope: scopeReadOnly, doc: "Whether connections may be encrypted."},
		{name: "standard_conforming_strings", value: "on", report: true, check: oneOf("on"), doc: "Always on."},
		{name: "statement_timeout", value: "0", check: duration, doc: "Longest time of a statement; 0: none."},
		{name: "synchronous_commit", value: "local", check: syncCommit, doc: "When a commit is acknowledged: local (on disk), remote (in a completed checkpoint), off."},
		{name: "temp_file_limit", value: "-1", check: integer(-1, maxTimeout), doc: "kB that the rows of a cursor with SCROLL or WITH HOLD may take in a temporary file; -1: no limit."},
		{name: "TimeZone", value: "UTC", report: true, check: timeZone, doc: "Time zone of timestamptz text."},
		{name: "transaction_isolation", value: "read committed", check: isolation, doc: "Isolation of the running transaction."},
		{name: "transaction_read_only", value: "off", check: boolean, doc: "Refuse writes in the running transaction."},

		{name: "background_ddl", value: "off", check: boolean, doc: "CREATE MATERIALIZED VIEW returns at once and fills the view in the background."},
		{name: "streamdb.disabled_rules", check: ruleNames, doc: "Planner rules switched off, separated by commas."},
		{name: settingParallelism, value: "0", scope: scopeJob, check: integer(0, state.DefaultMaxParallelism), doc: "Subtasks per fragment of new jobs; 0: the number of cores.", aliases: []string{"streaming_parallelism"}},
		{name: settingOnError, value: "divert", scope: scopeJob, check: oneOf("divert", "raise"), doc: "Rows whose evaluation fails: divert to streamdb.errors, or raise when the view is read."},
		{name: settingTTL, value: "0", scope: scopeJob, check: timeSpan, aliases: []string{"table.exec.state.ttl"}, doc: "After what time without a change a view drops the rows and groups that it keeps, and what it shows of them; 0: never."},
		{name: settingLateness, value: "0", scope: scopeJob, check: timeSpan, doc: "How much later than their watermark tells the windows of a view with EMIT ON WINDOW CLOSE close."},
		{name: settingLateRows, value: "keep", scope: scopeJob, check: oneOf("keep", "drop"), doc: "Rows behind the watermark in views without EMIT ON WINDOW CLOSE: keep them, or drop them where window functions need not keep their state then."},
		{name: settingRetention, value: "0", scope: scopeJob, check: timeSpan, doc: "How long new tables and materialized views keep their changes for SUBSCRIBE … AS OF; 0: not."},
		{name: settingRetentionSize, value: "1GB", scope: scopeJob, check: memory, doc: "How much disk the changes kept of one of them may take; older ones go first."},
		{name: "state.backend.type", value: string(state.BackendPebble), scope: scopeJob, check: backend, doc: "State of new jobs: pebble or memory.", deprecated: []string{"state.backend"}},

		{name: checkpoint.SettingInterval, value: durationText(cp.Interval), scope: scopeJob, live: true, check: duration, doc: "Time between periodic checkpoints of a job; 0: none."},
		{name: checkpoint.SettingBacklogInterval, value: "", scope: scopeJob, live: true, check: durationOrNone, doc: "The same while the sources of a job have not been caught up with; 0: none then; empty: as " + checkpoint.SettingInterval + "."},
		{name: checkpoint.SettingMinPause, value: durationText(cp.MinPause), scope: scopeJob, live: true, check: duration, doc: "Least time between the end of a job's checkpoint and its next."},
		{name: checkpoint.SettingTimeout, value: durationText(cp.Timeout), scope: scopeJob, live: true, check: duration, doc: "A job that takes longer for a checkpoint is left out of it."},
		{name: checkpoint.SettingTolerableFailures, value: strconv.Itoa(cp.TolerableFailures), scope: scopeJob, live: true, check: integer(0, 1000), doc: "Checkpoints a job may fail in a row before it restarts."},
		{name: checkpoint.SettingMaxConcurrent, value: strconv.Itoa(cp.MaxConcurrent), scope: scopeJob, live: true, check: integer(1, 100), doc: "Checkpoints of a job in flight at a time."},
		{name: checkpoint.SettingMode, value: checkpoint.ExactlyOnce.String(), scope: scopeJob, live: true, check: oneOf(checkpoint.ExactlyOnce.String(), checkpoint.AtLeastOnce.String()), doc: "What a crash may do to a job's result: EXACTLY_ONCE or AT_LEAST_ONCE."},
		{name: checkpoint.SettingUnaligned, value: "off", scope: scopeJob, live: true, check: boolean, deprecated: []string{"execution.checkpointing.unaligned"}, doc: "Barriers overtake rows in flight, which become part of the checkpoint."},
		{name: checkpoint.SettingAlignedTimeout, value: "0", scope: scopeJob, live: true, check: duration, deprecated: []string{"execution.checkpointing.alignment-timeout"}, doc: "How long unaligned checkpoints wait for rows in flight before they overtake them."},
		{name: checkpoint.SettingSubtasksPerFile, value: "5", scope: scopeJob, live: true, check: integer(1, 1000), doc: "Subtasks that put what they have in flight into one file, at most."},
		{name: checkpoint.SettingIncremental, value: "on", scope: scopeJob, live: true, check: boolean, deprecated: []string{"state.backend.incremental"}, doc: "Checkpoints hold what changed; off: each one is self-contained."},
		{name: checkpoint.SettingAfterTasksFinish, value: "on", scope: scopeJob, live: true, check: boolean, doc: "Checkpoints go on when some subtasks have read all there is."},
		{name: checkpoint.SettingExternalRetention, value: checkpoint.Retentions[checkpoint.NoExternalized], scope: scopeJob, live: true, check: oneOf(checkpoint.Retentions[:]...), doc: "What DROP does with the checkpoints of a view: they go (NO_EXTERNALIZED_CHECKPOINTS, DELETE_ON_CANCELLATION), or a savepoint in " + checkpoint.SettingSavepointDirectory + " keeps the last one (RETAIN_ON_CANCELLATION)."},
		{name: checkpoint.SettingGroupWindow, value: durationText(cp.GroupWindow), scope: scopeServer, live: true, check: duration, doc: "How long finished jobs wait for slower ones to be published together."},
		{name: checkpoint.SettingRetained, value: strconv.Itoa(cp.Retained), scope: scopeServer, live: true, check: integer(1, 1000), deprecated: []string{"state.checkpoints.num-retained"}, doc: "Completed checkpoints kept."},
		{name: checkpoint.SettingHistory, value: strconv.Itoa(cp.History), scope: scopeServer, live: true, check: integer(0, 10000), doc: "Checkpoints of each job that streamdb.checkpoints shows."},
		{name: checkpoint.SettingInlineThreshold, value: bytesText(int64(cp.InlineThreshold)), scope: scopeServer, live: true, check: byteCount, deprecated: []string{"state.storage.fs.memory-threshold"}, doc: "Up to what size the new small states of a checkpoint go into its manifest, up to 1MB."},
		{name: checkpoint.SettingSweepInterval, value: durationText(cp.SweepInterval), scope: scopeServer, live: true, check: duration, doc: "How often objects of the checkpoint directory that no checkpoint needs are looked for, besides at the start; 0: only then."},
		{name: checkpoint.SettingMemoryLimit, value: "0", scope: scopeServer, live: true, check: byteCount, doc: "How large the state of one job may be in a checkpoint directory in memory; 0: a quarter of --memory, and 5 MB at least."},
		{name: settingHA, value: "none", scope: scopeReadOnly, check: oneOf("none", "storage"), doc: "storage: servers that share the checkpoint directory elect a leader there, the others wait; set it with --standby or in the configuration."},
		{name: settingLease, value: durationText(checkpoint.DefaultLease), scope: scopeReadOnly, check: duration, doc: "After what time without a sign of the leader another server takes over."},
		{name: settingAdvertised, scope: scopeReadOnly, doc: "Address at which clients reach this server, told by those that wait; empty: that of --listen."},
		{name: "max_connections", value: strconv.Itoa(pgwire.DefaultMaxConnections), scope: scopeServer, check: integer(1, 262143), doc: "Sessions at a time."},
		{name: "superuser_reserved_connections", value: "3", scope: scopeServer, check: integer(0, 262143), doc: "Sessions of max_connections that only superusers may open."},
		{name: settingMaxTransaction, value: "0", scope: scopeServer, check: integer(0, maxTransactionMiB), doc: "MiB that the uncommitted changes of a transaction may take; 0: half of --memory."},
		{name: "chunk_rows", value: strconv.Itoa(types.MaxChunkRows), scope: scopeReadOnly, check: integer(1, types.MaxChunkRows), doc: "Rows per chunk; set it in the configuration."},
	}, append(recoverySettings(), compatSettings()...)...)
}

// settingMaxTransaction bounds a transaction. A transaction is one record of the write-ahead log and one step of the clock, so all of it is in
// memory when it commits.
const settingMaxTransaction = "max_transaction_memory"

// maxTransactionMiB is the largest max_transaction_memory, a TiB.
const maxTransactionMiB = 1 << 20

// transactionLimit returns the bytes that the uncommitted changes of a transaction may take.
func (s *Server) transactionLimit() int64 {
	if n, err := strconv.ParseInt(s.settings.get(settingMaxTransaction), 10, 64); err == nil && n > 0 {
		return n << 20
	}
	return s.cfg.Memory / 2
}

func oneOf(values ...string) func(string) (string, error) {
	return func(s string) (string, error) {
		for _, v := range values {
			if strings.EqualFold(s, v) {
				return v, nil
			}
		}
		return "", pgerr.NotOneOf(values)
	}
}

// ruleNames checks a list of planner rules.
func ruleNames(s string) (string, error) {
	for _, r := range slices.Sorted(maps.Keys(disabledRules(s))) {
		if !slices.ContainsFunc(planner.Rules(), func(known planner.Rule) bool { return known.Name == r }) {
			return "", fmt.Errorf("there is no planner rule %q; EXPLAIN (VERBOSE) names those that have fired", r)
		}
	}
	return s, nil
}

var errNotBoolean = errors.New("a Boolean value is required")

func boolean(s string) (string, error) {
	switch strings.ToLower(s) {
	case "on", "true", "yes", "1", "t", "y":
		return "on", nil
	case "off", "false", "no", "0", "f", "n":
		return "off", nil
	}
	return "", errNotBoolean
}

func syncCommit(s string) (string, error) {
	switch strings.ToLower(s) {
	case "on", "true", "1", "remote_write", "remote_apply":
		return "local", nil
	}
	return oneOf("local", "remote", "off")(s)
}

// memory takes a number of kilobytes, or a number with one of PostgreSQL's units.
func memory(s string) (string, error) {
	n, err := memoryBytes(s)
	if err != nil {
		return "", err
	}
	if n < 64<<10 {
		return "", fmt.Errorf("at least 64kB are required")
	}
	return bytesText(n), nil
}

// memoryUnits are PostgreSQL's units, the largest first.
var memoryUnits = [...]struct {
	name  string
	bytes int64
}{{"TB", 1 << 40}, {"GB", 1 << 30}, {"MB", 1 << 20}, {"kB", 1 << 10}, {"B", 1}}

// byteCount takes a number of bytes, or a number with one of PostgreSQL's units.
func byteCount(s string) (string, error) {
	n, err := byteCountOf(s)
	if err != nil {
		return "", err
	}
	return bytesText(n), nil
}

func byteCountOf(s string) (int64, error) {
	s = strings.TrimSpace(s)
	if n, err := strconv.ParseInt(s, 10, 64); err == nil && n >= 0 {
		return n, nil
	}
	return memoryBytes(s)
}

// bytesText prints a number of bytes as settings are written: with the largest unit that leaves no fraction.
func bytesText(n int64) string {
	if n == 0 {
		return "0"
	}
	for _, u := range memoryUnits {
		if n%u.bytes == 0 {
			return strconv.FormatInt(n/u.bytes, 10) + u.name
		}
	}
	return strconv.FormatInt(n, 10)
}

func memoryBytes(s string) (int64, error) {
	s = strings.TrimSpace(s)
	unit := int64(1 << 10)
	for _, u := range memoryUnits {
		if rest, ok := strings.CutSuffix(s, u.name); ok {
			s, unit = strings.TrimSpace(rest), u.bytes
			break
		}
	}
	n, err := strconv.ParseInt(s, 10, 64)
	if err != nil || n < 0 || n > 1<<62/unit {
		return 0, fmt.Errorf("valid units for this parameter are \"B\", \"kB\", \"MB\", \"GB\", and \"TB\"")
	}
	return n * unit, nil
}

// messageLevel is a severity of client_min_messages.
func messageLevel(s string) (string, error) {
	if strings.EqualFold(s, "info") {
		return "notice", nil
	}
	if strings.EqualFold(s, "debug") {
		return "debug2", nil
	}
	return oneOf("debug5", "debug4", "debug3", "debug2", "debug1", "log", "notice", "warning", "error")(s)
}

func integer(low, high int) func(string) (string, error) {
	return func(s string) (string, error) {
		n, err := strconv.Atoi(strings.TrimSpace(s))
		if err != nil {
			return "", fmt.Errorf("an integer between %d and %d is required", low, high)
		}
		if n < low || n > high {
			return "", &rangeError{value: strconv.Itoa(n), low: strconv.Itoa(low), high: strconv.Itoa(high)}
		}
		return strconv.Itoa(n), nil
	}
}

// rangeError is a number outside of a parameter's range.
type rangeError struct{ value, low, high string }

func (e *rangeError) Error() string {
	return fmt.Sprintf("%s is outside the valid range (%s .. %s)", e.value, e.low, e.high)
}

// maxTimeout is the longest of PostgreSQL's timeouts, in milliseconds.
const maxTimeout = 1<<31 - 1

// durationOrNone takes an empty value, too.
func durationOrNone(s string) (string, error) {
	if strings.TrimSpace(s) == "" {
		return "", nil
	}
	return duration(s)
}

func duration(s string) (string, error) {
	if n, err := strconv.ParseInt(strings.TrimSpace(s), 10, 64); err == nil && (n < 0 || n > maxTimeout) {
		return "", &rangeError{value: strconv.FormatInt(n, 10) + " ms", low: "0", high: strconv.Itoa(maxTimeout)}
	}
	d, err := parseDuration(s)
	if err != nil {
		return "", err
	}
	return durationText(d), nil
}

// timeSpan checks a duration that may also be written as an interval without months.
func timeSpan(s string) (string, error) {
	if t, err := duration(s); err == nil {
		return t, nil
	}
	iv, err := types.ParseInterval(types.DefaultFormat(), s, -1)
	if err != nil {
		return "", err
	}
	const most = math.MaxInt64 / int64(time.Microsecond)
	if us := int64(iv.Days)*int64(24*time.Hour/time.Microsecond) + iv.Micros; iv.Months == 0 && us >= 0 && us < most && iv.Days < 100_000 {
		return durationText(time.Duration(us) * time.Microsecond), nil
	}
	return "", errors.New("not a length of time")
}

// durationText prints a duration with the largest unit that leaves no fraction, as PostgreSQL does.
func durationText(d time.Duration) string {
	if d == 0 {
		return "0"
	}
	for _, u := range []struct {
		unit time.Duration
		name string
	}{{24 * time.Hour, "d"}, {time.Hour, "h"}, {time.Minute, "min"}, {time.Second, "s"}, {time.Millisecond, "ms"}, {time.Microsecond, "us"}} {
		if d%u.unit == 0 {
			return strconv.FormatInt(int64(d/u.unit), 10) + u.name
		}
	}
	return d.String()
}

// parseDuration reads PostgreSQL's (plain milliseconds, '5s', '1min', '2h') and Go's forms ('1m30s').
func parseDuration(s string) (time.Duration, error) {
	s = strings.ReplaceAll(strings.TrimSpace(s), " ", "")
	if n, err := strconv.ParseInt(s, 10, 64); err == nil && n >= 0 {
		return time.Duration(n) * time.Millisecond, nil
	}
	for _, u := range []struct{ suffix, unit string }{{"min", "m"}, {"sec", "s"}, {"hours", "h"}, {"hour", "h"}} {
		if t, ok := strings.CutSuffix(s, u.suffix); ok {
			s = t + u.unit
		}
	}
	if t, ok := strings.CutSuffix(s, "d"); ok {
		if n, err := strconv.Atoi(t); err == nil {
			s = strconv.Itoa(24*n) + "h"
		}
	}
	d, err := time.ParseDuration(s)
	if err != nil || d < 0 {
		return 0, fmt.Errorf("a duration such as 500ms, 10s, 5min is required")
	}
	return d, nil
}

func utf8Only(s string) (string, error) {
	switch strings.ToUpper(strings.ReplaceAll(strings.Trim(s, `"'`), "-", "")) {
	case "UTF8", "UNICODE":
		return "UTF8", nil
	case "SQL_ASCII":
		return "SQL_ASCII", nil
	}
	return "", fmt.Errorf("only UTF8 is supported")
}

// detailError is the error of a check that is a DETAIL, or with "" nothing, not a HINT.
type detailError string

func (e detailError) Error() string { return string(e) }

func dateStyle(s string) (string, error) { return completeDateStyle(s, "ISO, MDY") }

// completeDateStyle takes what a date style leaves open from the present one.
func completeDateStyle(s, present string) (string, error) {
	style, order := "", ""
	var bad string
	claim := func(to *string, v string) {
		if *to != "" && *to != v {
			bad = "Conflicting \"datestyle\" specifications."
		}
		*to = v
	}
	for _, p := range strings.Split(s, ",") {
		p = strings.TrimSpace(p)
		switch u := strings.ToUpper(p); {
		case u == "ISO":
			claim(&style, "ISO")
		case u == "SQL":
			claim(&style, "SQL")
		case strings.HasPrefix(u, "POSTGRES"):
			claim(&style, "Postgres")
		case u == "GERMAN":
			claim(&style, "German")
			if order == "" && !strings.Contains(strings.ToUpper(s), "MDY") && !strings.Contains(strings.ToUpper(s), "YMD") {
				order = "DMY"
			}
		case u == "YMD":
			claim(&order, "YMD")
		case u == "DMY", strings.HasPrefix(u, "EURO"):
			claim(&order, "DMY")
		case u == "MDY", u == "US", strings.HasPrefix(u, "NONEURO"):
			claim(&order, "MDY")
		case u == "DEFAULT":
			claim(&style, "ISO")
			claim(&order, "MDY")
		default:
			return "", detailError(fmt.Sprintf("Unrecognized key word: \"%s\".", strings.ToLower(p)))
		}
	}
	if bad != "" {
		return "", detailError(bad)
	}
	oldStyle, oldOrder, _ := strings.Cut(present, ", ")
	return cmp.Or(style, oldStyle) + ", " + cmp.Or(order, oldOrder), nil
}

func isolation(s string) (string, error) {
	return oneOf("read uncommitted", "read committed", "repeatable read", "serializable")(s)
}

func backend(s string) (string, error) {
	b, err := state.ParseBackend(strings.ToLower(s))
	if err != nil {
		return "", pgerr.NotOneOf{string(state.BackendPebble), string(state.BackendMemory)}
	}
	return string(b), nil
}

func timeZone(s string) (string, error) {
	_, name, err := loadZone(s)
	return name, err
}

func loadZone(s string) (*time.Location, string, error) {
	switch strings.ToUpper(s) {
	case "UTC", "Z", "ZULU", "GMT", "LOCAL", "DEFAULT":
		return time.UTC, "UTC", nil
	}
	if h, err := strconv.ParseFloat(s, 64); err == nil {
		return offsetZone(int64(h * secondsPerHour))
	}
	if rest, ok := strings.CutPrefix(strings.ToLower(s), "interval"); ok {
		text, _, _ := strings.Cut(strings.TrimPrefix(rest[strings.IndexByte(rest, '\'')+1:], "'"), "'")
		mod, err := types.IntervalTypmod("hour to minute", -1)
		if err != nil {
			return nil, "", err
		}
		iv, err := types.ParseInterval(nil, text, mod)
		if err != nil {
			return nil, "", err
		}
		if iv.Months != 0 || iv.Days != 0 {
			return nil, "", detailError("")
		}
		return offsetZone(iv.Micros / microsPerSecond)
	}
	if l, err := time.LoadLocation(s); err == nil {
		return l, l.String(), nil
	}
	// Names are matched without regard to case, as PostgreSQL does.
	parts := strings.FieldsFunc(strings.ToLower(s), func(r rune) bool { return r == '/' })
	for i, p := range parts {
		words := strings.Split(p, "_")
		for k, w := range words {
			if w != "" {
				words[k] = strings.ToUpper(w[:1]) + w[1:]
			}
		}
		parts[i] = strings.Join(words, "_")
	}
	if l, err := time.LoadLocation(strings.Join(parts, "/")); err == nil && s != "" {
		return l, l.String(), nil
	}
	if l, ok := types.LookupZone(s); ok {
		return l, s, nil
	}
	return nil, "", detailError("")
}

const (
	secondsPerHour  = 3600
	microsPerSecond = 1_000_000
	maxZoneHours    = 168 // of an offset given as a number
)

// offsetZone is the zone so many seconds east of Greenwich, with its name in POSIX's form.
func offsetZone(east int64) (*time.Location, string, error) {
	if east <= -maxZoneHours*secondsPerHour || east >= maxZoneHours*secondsPerHour {
		return nil, "", detailError("UTC timezone offset is out of range.")
	}
	sign, opposite, abs := byte('+'), byte('-'), east
	if east < 0 {
		sign, opposite, abs = '-', '+', -east
	}
	text := fmt.Sprintf("%02d", abs/secondsPerHour)
	if abs%secondsPerHour != 0 {
		text += fmt.Sprintf(":%02d", abs/60%60)
	}
	name := fmt.Sprintf("<%c%s>%c%s", sign, text, opposite, text)
	return time.FixedZone(name, int(east)), name, nil
}

// settingTable indexes settings by lower-case name and alias.
type settingTable struct {
	list  []setting
	index map[string]*setting
}

func newSettingTable() *settingTable {
	t := &settingTable{list: settings(), index: map[string]*setting{}}
	for i := range t.list {
		s := &t.list[i]
		t.index[strings.ToLower(s.name)] = s
		for _, a := range slices.Concat(s.aliases, s.deprecated) {
			t.index[strings.ToLower(a)] = s
		}
	}
	return t
}

func (t *settingTable) find(name string) (*setting, error) {
	s := t.index[strings.ToLower(name)]
	if s == nil {
		return nil, t.unknown(name)
	}
	return s, nil
}

// errServerWide is for a setting of the whole server that is given for one relation.
func errServerWide(s *setting) *pgerr.Error {
	return pgerr.Newf(pgerr.InvalidParameterValue, "parameter %q holds for the whole server", s.name).WithHint("Use ALTER SYSTEM SET.")
}

func (s *setting) normalise(v string) (string, error) {
	if s.check == nil {
		return v, nil
	}
	n, err := s.check(v)
	var out *rangeError
	if errors.As(err, &out) {
		return "", pgerr.Newf(pgerr.InvalidParameterValue, "%s is outside the valid range for parameter %q (%s .. %s)", out.value, s.name, out.low, out.high)
	}
	var detail detailError
	var own *pgerr.Error
	switch {
	case errors.As(err, &own) && own.Hint != "":
		return "", pgerr.Newf(own.Code, "invalid value for parameter %q: %q", s.name, v).WithDetail("%s.", capital(own.Message)).WithHint("%s", own.Hint)
	case errors.As(err, &detail):
		e := pgerr.Newf(pgerr.InvalidParameterValue, "invalid value for parameter %q: %q", s.name, v)
		if detail != "" {
			e.WithDetail("%s", string(detail))
		}
		return "", e
	case errors.Is(err, errNotBoolean):
		return "", pgerr.Newf(pgerr.InvalidParameterValue, "parameter %q requires a Boolean value", s.name)
	case err != nil:
		return "", pgerr.Newf(pgerr.InvalidParameterValue, "invalid value for parameter %q: %q", s.name, v).WithHint("%s.", capital(err.Error()))
	}
	return n, nil
}

// option is the normalised value that an option of a relation gives the setting; errors are those of PostgreSQL's options, not of its settings.
func (s *setting) option(o sql.Option) (string, error) {
	value := optionText(o)
	n, err := s.check(value)
	var words pgerr.NotOneOf
	var out *rangeError
	switch {
	case err == nil:
		return n, nil
	case errors.As(err, &words):
		return "", words.Option(s.name, value).At(o.ValuePos)
	case errors.As(err, &out):
		return "", pgerr.Newf(pgerr.InvalidParameterValue, "value %s out of bounds for option %q", out.value, s.name).At(o.ValuePos).
			WithDetail("Valid values are between \"%s\" and \"%s\".", out.low, out.high)
	}
	_, err = s.normalise(value)
	return "", atPos(err, o.ValuePos)
}

// boolOption is the value of a Boolean option of a relation.
func boolOption(o sql.Option) (bool, error) {
	value := optionText(o)
	b, err := boolean(value)
	if err != nil {
		return false, pgerr.Newf(pgerr.InvalidParameterValue, "invalid value for boolean option %q: %s", strings.ToLower(o.Name), value).At(o.ValuePos)
	}
	return b == "on", nil
}

// optionText is the value of an option; one without a value is true.
func optionText(o sql.Option) string {
	if o.NoValue {
		return "true"
	}
	return o.Value
}

func capital(s string) string {
	if s == "" {
		return s
	}
	return strings.ToUpper(s[:1]) + s[1:]
}

// serverSettings are the values in force for the whole server.
type serverSettings struct {
	table *settingTable
	mu    sync.RWMutex
	vals  map[string]string
	// What ALTER SYSTEM changed is kept in the file at path, "" when nothing is kept.
	altered map[string]string
	path    string
	initial map[string]string // without those changes
	given   map[string]string // what the server was started with, and the configuration file that said it, "" for none
	memory  int64             // --memory, in bytes
}

const (
	// memoryLimitShare of the memory is what a job's state in a checkpoint in memory may take,
	memoryLimitShare = 4
	// and minMemoryLimit, in bytes, in any case.
	minMemoryLimit = 5 << 20
)

// load reads what ALTER SYSTEM changed in former runs. A value that is no longer good is reported and left out.
func (s *serverSettings) load(path string, log zerolog.Logger) error {
	s.path = path
	body, err := readFile(path, settingsMagic, "settings", "Remove it to go on without the changes made by ALTER SYSTEM.")
	if err != nil || body == nil {
		return err
	}
	var kept map[string]string
	if err := json.Unmarshal(body, &kept); err != nil {
		return pgerr.Wrap(pgerr.DataCorrupted, err, "%s", path)
	}
	for name, value := range kept {
		st, err := s.table.find(name)
		if err != nil {
			return fmt.Errorf("%s: %w", path, err)
		}
		if value, err = st.normalise(value); err != nil { // an earlier version took it
			log.Warn().Err(err).Msg("what ALTER SYSTEM has set is no longer good: it is left out")
			continue
		}
		s.vals[st.name], s.altered[st.name] = value, value
	}
	return nil
}

// alter changes what ALTER SYSTEM has set and keeps it. With live the values must go together for a running server.
func (s *serverSettings) alter(live bool, check func(next, now *serverSettings) error, change func(altered map[string]string)) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	altered, vals := maps.Clone(s.altered), maps.Clone(s.initial)
	change(altered)
	maps.Copy(vals, altered)
	next := &serverSettings{table: s.table, vals: vals, memory: s.memory}
	if live {
		now := &serverSettings{table: s.table, vals: s.vals, memory: s.memory}
		if err := cmp.Or(next.checkCheckpoints(nil), next.checkpoints().Validate(), check(next, now)); err != nil {
			return err
		}
	}
	if s.path != "" {
		body, err := json.Marshal(altered)
		if err != nil {
			return err
		}
		if err := writeFile(s.path, settingsMagic, "settings", body); err != nil {
			return err
		}
	}
	s.altered, s.vals = altered, vals
	return nil
}

func newServerSettings(initial, files map[string]string) (*serverSettings, error) {
	s := &serverSettings{table: newSettingTable(), vals: map[string]string{}, altered: map[string]string{}, given: map[string]string{}}
	for _, st := range s.table.list {
		s.vals[st.name] = st.value
	}
	for k, v := range initial {
		st, err := s.table.find(k)
		if err != nil {
			return nil, err
		}
		if own, given := initial[st.name]; given {
			k, v = st.name, own // before its other names
		}
		s.given[st.name] = files[k]
		if s.vals[st.name], err = st.normalise(v); err != nil {
			return nil, err
		}
	}
	s.initial = maps.Clone(s.vals)
	return s, nil
}

// origin tells where the server's value of a setting is from, in the words of pg_settings, and from which file; "" when nobody has given one.
func (s *serverSettings) origin(name string) (source, file, value string) {
	s.mu.RLock()
	defer s.mu.RUnlock()
	value = s.vals[name]
	file, given := s.given[name]
	_, altered := s.altered[name]
	switch {
	case altered:
		return "configuration file", s.path, value // PostgreSQL, too, keeps it in one
	case file != "":
		return "configuration file", file, value
	case given:
		return "command line", "", value
	}
	return "", "", value
}

// told sets a value that the server was given in another way, before anybody reads it.
func (s *serverSettings) told(name, value string) {
	s.initial[name], s.vals[name] = value, value
}

func (s *serverSettings) get(name string) string {
	s.mu.RLock()
	defer s.mu.RUnlock()
	return s.vals[name]
}

func (s *serverSettings) number(name string) int {
	n, _ := strconv.Atoi(s.get(name)) // checked when it was set
	return n
}

func (s *serverSettings) chunkRows() int {
	n, err := strconv.Atoi(s.get("chunk_rows"))
	if err != nil {
		return types.MaxChunkRows
	}
	return n
}

// alterSystem changes a server-wide value, or takes back all changes when st is nil.
func (s *Server) alterSystem(st *setting, value string, reset bool) error {
	live := st == nil || st.live
	change := func(altered map[string]string) { clear(altered) }
	if st != nil {
		if st.scope == scopeReadOnly || st.identity() {
			return pgerr.Newf(pgerr.CantChangeRuntimeParam, "parameter %q cannot be changed", st.name)
		}
		change = func(altered map[string]string) { delete(altered, st.name) }
		if !reset {
			value, err := st.normalise(value)
			if err != nil {
				return err
			}
			change = func(altered map[string]string) { altered[st.name] = value }
		}
	}
	if err := s.settings.alter(live, s.jobWith, change); err != nil || !live {
		return err
	}
	return s.applyCheckpointSettings()
}
