package server_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/streamdb/streamdb/internal/checkpointrows"
	"github.com/streamdb/streamdb/internal/failpoint"
	"github.com/streamdb/streamdb/server"
)

// Every job has settings of its own: of its WITH, of the session that made it, and else the server's as they are now.
func TestCheckpointSettingsOfJobs(t *testing.T) {
	checkpointrows.Shows(t, 34)
	d := open(t)
	s := d.connect()
	s.must("CREATE TABLE t (k int)",
		"CREATE MATERIALIZED VIEW plain AS SELECT k FROM t",
		"CREATE MATERIALIZED VIEW own WITH (execution.checkpointing.interval = '3s', execution.checkpointing.mode = 'at_least_once') AS SELECT k FROM t",
		"SET execution.checkpointing.timeout = '7s'",
		"CREATE MATERIALIZED VIEW of_session AS SELECT k FROM t")
	config := func(name string) string {
		t.Helper()
		return s.row("SELECT interval_ms, interval_during_backlog_ms, timeout_ms, mode FROM streamdb.checkpoint_config WHERE name = '" + name + "'")
	}
	check := func(own, timeout string) {
		t.Helper()
		require.Equal(t, "10000|10000|600000|EXACTLY_ONCE", config("plain"))
		require.Equal(t, own+"|"+own+"|600000|AT_LEAST_ONCE", config("own"))
		require.Equal(t, "10000|10000|"+timeout+"|EXACTLY_ONCE", config("of_session"))
	}
	check("3000", "7000")
	require.Equal(t, "4", s.row("SELECT count(*) FROM streamdb.checkpoint_config"), "a row for each job, and one for the tables")
	s.must("ALTER MATERIALIZED VIEW own SET (execution.checkpointing.interval = '2s')", "ALTER MATERIALIZED VIEW of_session RESET (execution.checkpointing.timeout)")
	s.must("BEGIN", "ALTER MATERIALIZED VIEW own SET (execution.checkpointing.interval = '9s')", "ROLLBACK")
	check("2000", "600000")
	d.crash()
	s = d.connect()
	check("2000", "600000")
	s.must("ALTER SYSTEM SET execution.checkpointing.interval = '1min'")
	require.Equal(t, "60000|60000|600000|EXACTLY_ONCE", config("plain"))
	require.Equal(t, "2000|2000|600000|AT_LEAST_ONCE", config("own"))
	require.Equal(t, "1min", s.row("SHOW execution.checkpointing.interval"), "a session without a value of its own has the server's")
	s.must("SET execution.checkpointing.interval = '5s'", "ALTER SYSTEM RESET execution.checkpointing.interval")
	require.Equal(t, "5s", s.row("SHOW execution.checkpointing.interval"))
	s.must("RESET execution.checkpointing.interval")
	require.Equal(t, "10s", s.row("SHOW execution.checkpointing.interval"))
}

// Settings that exclude each other are refused wherever they are made, and the error names both.
func TestContradictingCheckpointSettings(t *testing.T) {
	checkpointrows.Shows(t, 7)
	d := open(t)
	s := d.connect()
	const message = "execution.checkpointing.unaligned.enabled = true cannot be combined with execution.checkpointing.mode = AT_LEAST_ONCE"
	s.must("CREATE TABLE t (k int)", "CREATE MATERIALIZED VIEW m AS SELECT k FROM t")
	s.fails("CREATE MATERIALIZED VIEW x WITH (execution.checkpointing.unaligned.enabled, execution.checkpointing.mode = 'AT_LEAST_ONCE') AS SELECT k FROM t", "22023", message)
	s.must("ALTER MATERIALIZED VIEW m SET (execution.checkpointing.unaligned.enabled = true)")
	s.fails("ALTER MATERIALIZED VIEW m SET (execution.checkpointing.mode = 'AT_LEAST_ONCE')", "22023", message)
	s.must("SET execution.checkpointing.unaligned.enabled = on")
	s.fails("SET execution.checkpointing.mode = 'AT_LEAST_ONCE'", "22023", message)
	s.fails("SET execution.checkpointing.max-concurrent-checkpoints = 2", "22023", "execution.checkpointing.unaligned.enabled = true cannot be combined with execution.checkpointing.max-concurrent-checkpoints = more than 1")
	s.must("ALTER SYSTEM SET execution.checkpointing.unaligned.enabled = on")
	s.fails("ALTER SYSTEM SET execution.checkpointing.mode = 'AT_LEAST_ONCE'", "22023", message)
	require.Equal(t, "EXACTLY_ONCE", d.connect().row("SHOW execution.checkpointing.mode"), "what was refused is not kept")
	require.NotEmpty(t, s.fails("SET execution.checkpointing.mode = 'AT_LEAST_ONCE'", "22023", message).Hint)
}

// Older names are taken and told about; unknown ones are mistakes.
func TestNamesOfCheckpointSettings(t *testing.T) {
	checkpointrows.Shows(t, 138)
	d := open(t)
	s := d.connect()
	var names []string
	for _, r := range s.rows("SHOW ALL LIKE 'execution.checkpointing%'") {
		names = append(names, strings.SplitN(r, "|", 2)[0])
	}
	for _, n := range []string{
		"interval", "interval-during-backlog", "min-pause", "timeout", "tolerable-failed-checkpoints", "max-concurrent-checkpoints", "mode", "unaligned.enabled",
		"aligned-checkpoint-timeout", "incremental", "num-retained", "checkpoints-after-tasks-finish", "unaligned.max-subtasks-per-channel-state-file",
	} {
		require.Contains(t, names, "execution.checkpointing."+n)
	}
	notices := func(q string) []string {
		s.notices = nil
		s.must(q)
		var out []string
		for _, n := range s.notices {
			out = append(out, n.Severity+": "+n.Message)
		}
		return out
	}
	s.must("CREATE TABLE t (k int)")
	for _, c := range []struct{ statement, old, now string }{
		{"SET execution.checkpointing.alignment-timeout = '1s'", "execution.checkpointing.alignment-timeout", "execution.checkpointing.aligned-checkpoint-timeout"},
		{"ALTER SYSTEM SET state.checkpoints.num-retained = 2", "state.checkpoints.num-retained", "execution.checkpointing.num-retained"},
		{"CREATE MATERIALIZED VIEW m WITH (state.backend = 'memory') AS SELECT k FROM t", "state.backend", "state.backend.type"},
		{"ALTER MATERIALIZED VIEW m SET (execution.checkpointing.unaligned = true)", "execution.checkpointing.unaligned", "execution.checkpointing.unaligned.enabled"},
	} {
		require.Equal(t, []string{fmt.Sprintf("NOTICE: parameter %q is now called %q", c.old, c.now)}, notices(c.statement), c.statement)
	}
	require.Equal(t, "1s", s.row("SHOW execution.checkpointing.aligned-checkpoint-timeout"))
	require.Equal(t, "2", s.row("SHOW execution.checkpointing.num-retained"))
	require.Equal(t, "memory", s.row("SELECT backend FROM streamdb.jobs WHERE name = 'm'"))
	require.Empty(t, notices("SET execution.checkpointing.aligned-checkpoint-timeout = '1s'"))
	require.Equal(t, `Perhaps you meant "execution.checkpointing.interval".`, s.fails("SET execution.checkpointing.intervall = 1", "42704", "").Hint)
	for _, statement := range []string{
		"CREATE MATERIALIZED VIEW x WITH (execution.checkpointing.intervall = '1s') AS SELECT k FROM t", "ALTER MATERIALIZED VIEW m SET (execution.checkpointing.intervall = '1s')",
		"ALTER MATERIALIZED VIEW m RESET (execution.checkpointing.intervall)",
	} {
		require.Equal(t, `Perhaps you meant "execution.checkpointing.interval".`, s.fails(statement, "22023", `unrecognized parameter "execution.checkpointing.intervall"`).Hint, statement)
	}
	require.Contains(t, s.fails("CREATE MATERIALIZED VIEW x WITH (zzzzzzzzzzzz = 1) AS SELECT k FROM t", "22023", "").Hint, "A materialized view knows: ")
	require.NotEmpty(t, s.fails("SET state.frontend = 1", "42704", "").Hint)
}

// A change reaches a running job: its next checkpoint follows the new interval, not the one that was planned.
func TestCheckpointSettingsChangeLive(t *testing.T) {
	checkpointrows.Shows(t, 141)
	d := open(t, func(c *server.Config) { c.Settings = map[string]string{"execution.checkpointing.interval": "0"} })
	s := d.connect()
	s.must("CREATE TABLE t (k int)", "CREATE MATERIALIZED VIEW m AS SELECT count(*) AS n FROM t", "INSERT INTO t VALUES (1)")
	done := func() string {
		return s.row("SELECT count(*) FROM streamdb.checkpoints WHERE status = 'COMPLETED'")
	}
	require.Equal(t, "0", done())
	s.must("ALTER MATERIALIZED VIEW m SET (execution.checkpointing.interval = '50ms')")
	require.Eventually(t, func() bool { return done() != "0" }, 20*time.Second, 10*time.Millisecond)
	s.must("ALTER MATERIALIZED VIEW m SET (execution.checkpointing.interval = '0')")
	s.must("CHECKPOINT")
	before := done()
	s.must("INSERT INTO t VALUES (2)", "FLUSH", "FLUSH", "FLUSH")
	require.Equal(t, before, done())
}

// How long a checkpoint may take, how many may fail, and how much one writes change while the view runs, too: the next checkpoint follows.
func TestLimitsOfCheckpointsChangeLive(t *testing.T) {
	checkpointrows.Shows(t, 141)
	points := failpoint.New()
	d := open(t, func(c *server.Config) {
		c.Settings, c.Failpoints = map[string]string{"execution.checkpointing.interval": "0"}, points
	})
	s := d.connect()
	s.must("CREATE TABLE t (k int)", "CREATE MATERIALIZED VIEW m AS SELECT k, count(*) AS n FROM t GROUP BY k", "INSERT INTO t SELECT generate_series(1, 1000)", "CHECKPOINT")
	set := func(setting, value string) {
		s.must("ALTER MATERIALIZED VIEW m SET (execution.checkpointing." + setting + " = '" + value + "')")
	}
	last := func(column string) string {
		return s.row("SELECT " + column + " FROM streamdb.checkpoints c JOIN streamdb.jobs j USING (job_id) WHERE j.name = 'm' ORDER BY checkpoint_id DESC LIMIT 1")
	}
	s.must("INSERT INTO t VALUES (1)", "CHECKPOINT")
	require.Equal(t, "t", last("uploaded_bytes * 2 < full_size"))
	set("incremental", "false")
	s.must("INSERT INTO t VALUES (2)", "CHECKPOINT")
	require.Equal(t, "t", last("uploaded_bytes >= full_size"))
	set("incremental", "true")
	s.must("INSERT INTO t VALUES (3)", "CHECKPOINT")
	require.Equal(t, "t", last("uploaded_bytes * 2 < full_size"))

	set("tolerable-failed-checkpoints", "10")
	set("timeout", "100ms")
	require.NoError(t, points.Change("exec/snapshot=delay(400ms)"))
	for range 2 {
		s.must("INSERT INTO t VALUES (4)")
		require.NotEmpty(t, s.code("CHECKPOINT"))
		require.Equal(t, "CHECKPOINT_EXPIRED", last("failure_reason"))
		require.Equal(t, "", s.row("SELECT coalesce(last_error, '') FROM streamdb.jobs WHERE name = 'm'"), "they are tolerated")
	}
	set("tolerable-failed-checkpoints", "0")
	s.must("INSERT INTO t VALUES (5)")
	require.NotEmpty(t, s.code("CHECKPOINT"))
	require.Eventually(t, func() bool {
		return strings.Contains(s.row("SELECT coalesce(last_error, '') FROM streamdb.jobs WHERE name = 'm'"), "tolerable-failed-checkpoints")
	}, 20*time.Second, 10*time.Millisecond)
	set("timeout", "1min")
	require.Eventually(t, func() bool {
		s.code("CHECKPOINT") // the view is left out while it starts again
		return last("status") == "COMPLETED"
	}, 20*time.Second, 10*time.Millisecond)
	require.Equal(t, "1000|1006", s.row("SELECT count(*), sum(n) FROM m"))
}

// How close checkpoints follow each other, and how many there are at a time, change while the view runs, too.
func TestPaceOfCheckpointsChangesLive(t *testing.T) {
	checkpointrows.Shows(t, 141)
	points := failpoint.New()
	d := open(t, func(c *server.Config) {
		c.Settings = map[string]string{"execution.checkpointing.interval": "0", "execution.checkpointing.min-pause": "0"}
		c.Failpoints = points
	})
	s := d.connect()
	s.must("CREATE TABLE t (k int)", "CREATE MATERIALIZED VIEW m AS SELECT count(*) AS n FROM t")
	set := func(setting, value string) {
		t.Helper()
		s.must("ALTER MATERIALIZED VIEW m SET (execution.checkpointing." + setting + " = '" + value + "')")
	}
	count := func(status string) (n int) {
		t.Helper()
		_, err := fmt.Sscan(s.row("SELECT count(*) FROM streamdb.checkpoints JOIN streamdb.jobs USING (job_id) WHERE name = 'm' AND status = '"+status+"'"), &n)
		require.NoError(t, err)
		return n
	}
	news := func() { s.must("INSERT INTO t VALUES (1)", "FLUSH") } // without news there is no checkpoint
	more := func(n int) (most int) {
		t.Helper()
		want := count("COMPLETED") + n
		require.Eventually(t, func() bool {
			news()
			most = max(most, count("IN_PROGRESS"))
			return count("COMPLETED") >= want
		}, 60*time.Second, time.Millisecond)
		return most
	}
	s.must("ALTER SYSTEM SET web.checkpoints.history = 1000")
	set("interval", "10ms")
	more(5)
	set("min-pause", "1h")
	s.must("CHECKPOINT m")
	before := count("COMPLETED")
	for began := time.Now(); time.Since(began) < 300*time.Millisecond; {
		news()
	}
	require.Equal(t, before, count("COMPLETED"))
	set("min-pause", "0")
	more(5)

	require.NoError(t, points.Change("exec/snapshot=delay(100ms)"))
	more(1)
	require.LessOrEqual(t, more(3), 1)
	set("max-concurrent-checkpoints", "3")
	require.Eventually(t, func() bool { news(); return count("IN_PROGRESS") > 1 }, 60*time.Second, time.Millisecond)
	set("max-concurrent-checkpoints", "1")
	require.Eventually(t, func() bool { return count("IN_PROGRESS") <= 1 }, 60*time.Second, time.Millisecond)
	require.LessOrEqual(t, more(3), 1)
	require.Equal(t, "0", s.row("SELECT restarts FROM streamdb.jobs WHERE name = 'm'"))
}

// Of settings that exclude each other one may be a view's own and the other the server's. Where both are known it is refused; where they meet at a start the view's own holds.
func TestContradictionsWithTheServersSettings(t *testing.T) {
	const unaligned, mode, concurrent = "execution.checkpointing.unaligned.enabled", "execution.checkpointing.mode", "execution.checkpointing.max-concurrent-checkpoints"
	const message = unaligned + " = true cannot be combined with " + mode + " = AT_LEAST_ONCE"
	d := open(t)
	s := d.connect()
	s.must("CREATE TABLE t (k int)", "CREATE MATERIALIZED VIEW plain AS SELECT k FROM t",
		"CREATE MATERIALIZED VIEW over WITH ("+unaligned+" = true) AS SELECT k FROM t",
		"CREATE MATERIALIZED VIEW loose WITH ("+mode+" = 'AT_LEAST_ONCE') AS SELECT k FROM t",
		"CREATE MATERIALIZED VIEW many WITH ("+concurrent+" = 3) AS SELECT k FROM t")
	e := s.fails("ALTER SYSTEM SET "+mode+" = 'AT_LEAST_ONCE'", "22023", message)
	require.Equal(t, `Materialized view "over" has settings of its own.`, e.Detail)
	e = s.fails("ALTER SYSTEM SET "+unaligned+" = on", "22023", message)
	require.Equal(t, `Materialized view "loose" has settings of its own.`, e.Detail)
	s.must("ALTER MATERIALIZED VIEW loose RESET (" + mode + ")")
	s.fails("ALTER SYSTEM SET "+unaligned+" = on", "22023", unaligned+" = true cannot be combined with "+concurrent+" = more than 1")
	s.must("ALTER MATERIALIZED VIEW loose SET (" + mode + " = 'AT_LEAST_ONCE')")
	s.fails("CREATE OR REPLACE MATERIALIZED VIEW loose WITH ("+unaligned+" = true) AS SELECT k FROM t", "22023", message)
	s.fails("CREATE OR REPLACE MATERIALIZED VIEW many WITH ("+unaligned+" = true) AS SELECT k FROM t", "22023", unaligned+" = true cannot be combined with "+concurrent+" = more than 1")
	s.must("CREATE OR REPLACE MATERIALIZED VIEW loose AS SELECT k FROM t")
	require.Equal(t, "EXACTLY_ONCE|off", s.row("SELECT current_setting('"+mode+"'), current_setting('"+unaligned+"')"), "what was refused is not kept")

	config := func() []string {
		return d.connect().rows("SELECT name, mode, unaligned, max_concurrent FROM streamdb.checkpoint_config WHERE name IN ('plain', 'over', 'loose', 'many') ORDER BY name")
	}
	require.NoError(t, d.srv.Abort())
	d.cfg.Settings = map[string]string{mode: "AT_LEAST_ONCE"}
	d.start()
	require.Equal(t, []string{"loose|AT_LEAST_ONCE|f|1", "many|AT_LEAST_ONCE|f|3", "over|EXACTLY_ONCE|t|1", "plain|AT_LEAST_ONCE|f|1"}, config())
	require.NoError(t, d.srv.Abort())
	d.cfg.Settings = map[string]string{unaligned: "on"}
	d.start()
	require.Equal(t, []string{"loose|AT_LEAST_ONCE|f|1", "many|EXACTLY_ONCE|f|3", "over|EXACTLY_ONCE|t|1", "plain|EXACTLY_ONCE|t|1"}, config())
	s = d.connect()
	s.must("ALTER SYSTEM SET execution.checkpointing.timeout = '5min'") // what was so before is no reason
	s.fails("ALTER SYSTEM SET "+mode+" = 'AT_LEAST_ONCE'", "22023", message)
	require.NoError(t, d.srv.Abort())
	d.cfg.Settings = map[string]string{unaligned: "on", mode: "AT_LEAST_ONCE"}
	_, err := server.Open(d.ctx, d.cfg)
	require.ErrorContains(t, err, message)
	d.cfg.Settings = nil
	d.start()
}

// A sink that writes exactly once takes part in checkpoints that are. Whatever else is asked for of it alone is refused; where the server or a view that it reads is at least
// once it is said what that means.
func TestExactlyOnceSinksUnderAtLeastOnceCheckpoints(t *testing.T) {
	const mode = "execution.checkpointing.mode"
	const message = mode + " = AT_LEAST_ONCE cannot be combined with delivery_guarantee = exactly_once"
	d := open(t)
	s := d.connect()
	told := func(q string) []string {
		t.Helper()
		s.notices = nil
		s.must(q)
		var out []string
		for _, n := range s.notices {
			out = append(out, n.Severity+": "+n.Message)
		}
		return out
	}
	sink := func(name, from, more string) string {
		return "CREATE SINK " + name + " FROM " + from + " WITH (connector = 'file', path = '" + t.TempDir() + "'" + more + ") FORMAT UPSERT ENCODE JSON"
	}
	config := func(name string) string {
		return s.row("SELECT mode FROM streamdb.checkpoint_config WHERE name = '" + name + "'")
	}
	s.must("CREATE TABLE t (k int PRIMARY KEY)", "CREATE MATERIALIZED VIEW m AS SELECT k FROM t", "CREATE MATERIALIZED VIEW mm AS SELECT k FROM m")
	e := s.fails(sink("a", "mm", ", "+mode+" = 'AT_LEAST_ONCE'"), "22023", message)
	require.Contains(t, e.Hint, "delivery_guarantee = 'at_least_once'")
	s.must("SET " + mode + " = 'AT_LEAST_ONCE'")
	s.fails(sink("a", "mm", ""), "22023", message)
	require.Empty(t, told(sink("loose", "mm", ", delivery_guarantee = 'at_least_once'")))
	require.Equal(t, "AT_LEAST_ONCE", config("loose"))
	s.must("RESET " + mode)
	require.Empty(t, told(sink("a", "mm", "")))
	s.fails("ALTER SINK a SET ("+mode+" = 'AT_LEAST_ONCE')", "22023", message)
	require.Empty(t, told("ALTER SINK loose SET ("+mode+" = 'EXACTLY_ONCE')"))
	require.Empty(t, told("ALTER SINK loose SET ("+mode+" = 'AT_LEAST_ONCE')"))

	const counts = `after a crash rows of sources may count twice in materialized view "m", and in sink "a" that reads it`
	require.Equal(t, []string{"NOTICE: " + counts}, told("ALTER MATERIALIZED VIEW m SET ("+mode+" = 'AT_LEAST_ONCE')"))
	require.Equal(t, []string{`NOTICE: after a crash rows of sources may count twice in materialized view "m", and in sink "b" that reads it`}, told(sink("b", "mm", "")))
	s.must("DROP SINK b", "ALTER MATERIALIZED VIEW m RESET ("+mode+")")

	require.Equal(t, []string{`NOTICE: sinks that write exactly once keep ` + mode + ` = EXACTLY_ONCE: a`}, told("ALTER SYSTEM SET "+mode+" = 'AT_LEAST_ONCE'"))
	require.Equal(t, "EXACTLY_ONCE|AT_LEAST_ONCE|AT_LEAST_ONCE", config("a")+"|"+config("loose")+"|"+config("m"))
	require.Contains(t, told(sink("c", "t", "")), "NOTICE: sinks that write exactly once keep "+mode+" = EXACTLY_ONCE: c")
	require.Equal(t, "EXACTLY_ONCE", config("c"))
	d.crash()
	s = d.connect()
	require.Equal(t, "EXACTLY_ONCE|AT_LEAST_ONCE|AT_LEAST_ONCE", config("a")+"|"+config("loose")+"|"+config("m"))
}

// Who asks for unaligned checkpoints of a view that cannot have them is told.
func TestUnalignedOfViewsThatStayAligned(t *testing.T) {
	d := open(t)
	s := d.connect()
	const set = `"execution.checkpointing.unaligned.enabled"`
	s.must("CREATE TABLE t (k int PRIMARY KEY, v int)")
	notices := func(sql string) string {
		s.notices = nil
		s.must(sql)
		var all []string
		for _, n := range s.notices {
			all = append(all, n.Message)
		}
		return strings.Join(all, "; ")
	}
	require.Empty(t, notices("CREATE MATERIALIZED VIEW sums WITH ("+set+") AS SELECT v, count(*) FROM t GROUP BY v"))
	require.Contains(t, notices("CREATE MATERIALIZED VIEW top WITH ("+set+") AS SELECT k FROM t ORDER BY v LIMIT 3"), `checkpoints of materialized view "top" stay aligned`)
	require.Contains(t, notices("CREATE OR REPLACE MATERIALIZED VIEW sums AS SELECT v, row_number() OVER (ORDER BY k) AS count FROM t"), `checkpoints of materialized view "sums" stay aligned`)
	require.Empty(t, notices("CREATE MATERIALIZED VIEW ranks AS SELECT k, rank() OVER (ORDER BY v) FROM t"))
	require.Contains(t, notices("ALTER MATERIALIZED VIEW ranks SET ("+set+" = true)"), `checkpoints of materialized view "ranks" stay aligned`)
	require.Empty(t, notices("ALTER MATERIALIZED VIEW ranks RESET ("+set+")"))
}
