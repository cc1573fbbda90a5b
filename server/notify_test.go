package server_test

import (
	"context"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgproto3"
	"github.com/stretchr/testify/require"
)

// heard waits for a notification.
func (s *session) heard() string {
	s.d.t.Helper()
	n, err := s.WaitForNotification(s.d.ctx)
	require.NoError(s.d.t, err)
	return n.Channel + ":" + n.Payload
}

func TestNotify(t *testing.T) {
	d := open(t)
	a, b := d.connect(), d.connect()
	a.must("LISTEN news", "LISTEN Other", "LISTEN news")
	b.must("NOTIFY news, 'one'", "NOTIFY nobody, 'x'", "SELECT pg_notify('other', 'two')")
	require.Equal(t, "news:one", a.heard(), "a session that idles hears at once")
	require.Equal(t, "other:two", a.heard())

	// They come with the commit, in order, each once; a rollback takes them back.
	b.must("BEGIN", "NOTIFY news, 'lost'", "ROLLBACK", "BEGIN", "NOTIFY news, '1'", "SAVEPOINT s", "NOTIFY news, 'lost'", "ROLLBACK TO s", "NOTIFY news, '2'", "NOTIFY news, '1'")
	short, cancel := context.WithTimeout(d.ctx, 50*time.Millisecond)
	_, err := a.WaitForNotification(short)
	cancel()
	require.Error(t, err)
	a = d.connect()
	a.must("LISTEN news")
	b.must("COMMIT")
	require.Equal(t, "news:1", a.heard())
	require.Equal(t, "news:2", a.heard())

	// Within a block nothing is sent; then before ReadyForQuery.
	a.must("BEGIN", "SELECT 1")
	b.must("NOTIFY news, 'later'")
	q := func(text string) pgproto3.FrontendMessage { return &pgproto3.Query{String: text} }
	require.Equal(t, []string{"T(f0)", "D(1)", "C(SELECT 1)", "Z(T)", "C(COMMIT)", "NotificationResponse", "Z(I)"}, a.raw(2, q("SELECT 1"), q("COMMIT")))
	require.Equal(t, []string{"C(NOTIFY)", "NotificationResponse", "Z(I)"}, a.raw(1, q("NOTIFY news")), "its own too")

	a.must("BEGIN", "UNLISTEN *", "ROLLBACK")
	require.Equal(t, []string{"C(NOTIFY)", "NotificationResponse", "Z(I)"}, a.raw(1, q("NOTIFY news")))
	a.must("UNLISTEN news")
	require.Equal(t, []string{"C(NOTIFY)", "Z(I)"}, a.raw(1, q("NOTIFY news")))
	a.must("LISTEN news", "DISCARD ALL")
	require.Equal(t, []string{"C(NOTIFY)", "Z(I)"}, a.raw(1, q("NOTIFY news")))
	b.fails("SELECT pg_notify('', 'x')", "22023", "channel name cannot be empty")
	b.fails("SELECT pg_notify('x', repeat('x', 8000))", "22023", "payload string too long")
}

func TestIdleTimeouts(t *testing.T) {
	d := open(t)
	q := func(text string) pgproto3.FrontendMessage { return &pgproto3.Query{String: text} }
	for setting, end := range map[string][]string{"idle_session_timeout": {"E(57P05)"}, "idle_in_transaction_session_timeout": {"C(BEGIN)", "Z(T)", "E(25P03)"}} {
		s := d.connect()
		s.must("SET " + setting + " = '60ms'")
		if len(end) > 1 {
			require.Equal(t, end[:2], s.raw(1, q("BEGIN")))
		}
		m, err := s.PgConn().Frontend().Receive()
		require.NoError(t, err)
		e, ok := m.(*pgproto3.ErrorResponse)
		require.True(t, ok, "%T", m)
		require.Equal(t, end[len(end)-1], "E("+e.Code+")")
		require.Equal(t, "FATAL", e.Severity)
	}
	s := d.connect()
	s.must("SET idle_session_timeout = '200ms'", "SELECT pg_sleep(0.4)")
	require.Equal(t, "1", s.row("SELECT 1"), "a statement is no silence")
}

// TestStatementTimeout holds that the timeout and a cancel hit every kind of statement that may take long.
func TestStatementTimeout(t *testing.T) {
	d := open(t)
	s := d.connect()
	const forever = "SELECT count(*) AS n FROM generate_series(1, 100000000000) AS g"
	s.must("CREATE TABLE t (a int)", "CREATE TABLE big AS SELECT g FROM generate_series(1, 100000) AS g", "PREPARE p AS "+forever, "SET statement_timeout = '60ms'")
	for _, q := range []string{
		forever, "SELECT pg_sleep(100)", "SELECT pg_sleep_for('100s')", "EXECUTE p", "INSERT INTO t " + forever, "CREATE TABLE u AS " + forever,
		"COPY (" + forever + ") TO STDOUT", "DECLARE c CURSOR WITH HOLD FOR " + forever, "BEGIN; DECLARE c CURSOR FOR " + forever + "; FETCH c",
		"SELECT count(*) FROM big AS a, big AS b WHERE a.g + b.g < 0",
	} {
		e := s.fails(q, "57014", "canceling statement due to statement timeout")
		require.Empty(t, e.Hint)
		s.must("ROLLBACK")
		require.Equal(t, "1", s.row("SELECT 1"), q)
	}
	require.Equal(t, "57014", s.code("CREATE MATERIALIZED VIEW slow AS SELECT count(*) AS n FROM big AS a, big AS b WHERE a.g + b.g < 0"))
	s.must("SET statement_timeout = 0")
	require.Empty(t, s.rows("SELECT relname FROM pg_class WHERE relname IN ('slow', 'u')"), "nothing is left of what was cancelled")
}

func TestSignals(t *testing.T) {
	d := open(t)
	a, b := d.connect(), d.connect()
	done := make(chan error, 1)
	go func() {
		_, err := a.PgConn().Exec(d.ctx, "SELECT pg_sleep(100)").ReadAll()
		done <- err
	}()
	active := "SELECT count(*) FROM pg_stat_activity WHERE state = 'active' AND query LIKE 'SELECT pg_sleep%'"
	require.Eventually(t, func() bool { return b.row(active) == "1" }, testTimeout, time.Millisecond)
	pid := a.PgConn().PID()
	require.Equal(t, "true", b.row2("SELECT pg_cancel_backend($1)::text", int32(pid)))
	require.Equal(t, "57014", pgErr(t, <-done).Code)
	require.Equal(t, "1", a.row("SELECT 1"))
	require.Equal(t, "true", b.row2("SELECT pg_terminate_backend($1)::text", int32(pid)))
	m, err := a.PgConn().Frontend().Receive()
	require.NoError(t, err)
	require.Equal(t, "57P01", m.(*pgproto3.ErrorResponse).Code)
	require.Equal(t, "f", b.row("SELECT pg_cancel_backend(2000000000)"))
	require.Equal(t, "57014", b.code("SELECT pg_cancel_backend(pg_backend_pid())"))
	require.Equal(t, "1", b.row("SELECT 1"))
}

// row2 runs a query with parameters and returns its one value as text.
func (s *session) row2(q string, args ...any) string {
	s.d.t.Helper()
	var v string
	require.NoError(s.d.t, s.QueryRow(s.d.ctx, q, args...).Scan(&v))
	return v
}

func TestConfigFunctions(t *testing.T) {
	d := open(t)
	s := d.connect(func(c *pgx.ConnConfig) { c.RuntimeParams["options"] = "-c statement_timeout=5s -c my.start=hello" })
	require.Equal(t, "5s|hello", s.row("SELECT current_setting('statement_timeout'), current_setting('my.start')"))
	require.Equal(t, "x", s.row("SELECT set_config('my.var', 'x', false)"))
	require.Equal(t, "x", s.row("SHOW my.var"))
	s.must("BEGIN")
	require.Equal(t, "y", s.row("SELECT set_config('my.var', 'y', true)"))
	require.Equal(t, "y", s.row("SELECT current_setting('my.var')"))
	s.must("COMMIT")
	require.Equal(t, "x", s.row("SHOW my.var"))
	require.Equal(t, "NULL", s.row("SELECT current_setting('no.such', true)"))
	s.fails("SELECT current_setting('no.such')", "42704", `unrecognized configuration parameter "no.such"`)
	s.fails("SELECT set_config('nope', '1', false)", "42704", `unrecognized configuration parameter "nope"`)
	s.fails("SET my.var = 1, 2", "22023", "SET my.var takes only one argument")
	s.fails(`SET "my.bad name" = 1`, "42602", `invalid configuration parameter name "my.bad name"`)
	for set, want := range map[string]string{
		"-8": "<-08>+08", "5.5": "<+05:30>-05:30", "INTERVAL '+05:30' HOUR TO MINUTE": "<+05:30>-05:30", "'europe/paris'": "Europe/Paris", "LOCAL": "UTC", "'EST5'": "EST5",
	} {
		s.must("SET TIME ZONE " + set)
		require.Equal(t, want, s.row("SHOW TIME ZONE"), set)
	}
	s.must("SET TIME ZONE 5.5")
	require.Equal(t, "2024-01-01 05:30:00+05:30", s.row("SELECT timestamptz '2024-01-01 00:00:00+00'"))
	require.Equal(t, []string{"S(TimeZone=<-08>+08)"}, s.raw(1, &pgproto3.Query{String: "SET TIME ZONE -8"})[1:2])

	s.notices = nil
	s.must("SET client_min_messages = error", "COMMIT")
	require.Empty(t, s.notices)
	s.must("SET client_min_messages = warning", "DROP TABLE IF EXISTS nope", "COMMIT")
	require.Len(t, s.notices, 1)
	s.fails("SET client_min_messages = bogus", "22023", `invalid value for parameter "client_min_messages": "bogus"`)
	s.fails("COMMIT AND CHAIN", "25P01", "COMMIT AND CHAIN can only be used in transaction blocks")
	s.must("CREATE TABLE t (a int)", "BEGIN", "SELECT * FROM t")
	s.fails("SET TRANSACTION ISOLATION LEVEL SERIALIZABLE", "25001", "SET TRANSACTION ISOLATION LEVEL must be called before any query")
	s.must("ROLLBACK")
}
