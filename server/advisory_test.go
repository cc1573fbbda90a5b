package server_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// advisoryPoll is how often a test looks whether a session waits by now.
const (
	advisoryPoll = 5 * time.Millisecond
	advisoryWait = 10 * time.Second
)

// later runs a statement beside the test, and returns when the session waits for an advisory lock.
func later(t *testing.T, watcher, s *session, q string) chan error {
	t.Helper()
	before := watcher.row("SELECT count(*) FROM pg_locks WHERE NOT granted")
	done := make(chan error, 1)
	go func() {
		_, err := s.Exec(s.d.ctx, q)
		done <- err
	}()
	require.Eventually(t, func() bool { return watcher.row("SELECT count(*) FROM pg_locks WHERE NOT granted") != before }, advisoryWait, advisoryPoll)
	return done
}

func TestAdvisoryLocks(t *testing.T) {
	d := open(t)
	a, b := d.connect(), d.connect()
	require.Equal(t, "f|f", a.row("SELECT pg_advisory_unlock(5), pg_advisory_unlock_shared(1, 2)"))
	require.Equal(t, "|", a.row("SELECT pg_advisory_lock(4294967298), pg_advisory_lock_shared(7, -1)"))
	require.Equal(t, []string{"16382|1|2|1|ExclusiveLock|t|NULL", "16382|7|4294967295|2|ShareLock|t|NULL"},
		b.rows("SELECT database, classid, objid, objsubid, mode, granted, waitstart FROM pg_locks WHERE locktype = 'advisory' ORDER BY objid"))
	require.Equal(t, "f|f|t|f|t", b.row("SELECT pg_try_advisory_lock(4294967298), pg_try_advisory_lock_shared(4294967298), "+
		"pg_try_advisory_lock_shared(7, -1), pg_try_advisory_lock(7, -1), pg_try_advisory_lock(1, 2)"), "two numbers are another lock than one")
	// Held as often as taken, and each mode for itself.
	require.Equal(t, "t", a.row("SELECT pg_try_advisory_lock(4294967298)"))
	require.Equal(t, "f|t", a.row("SELECT pg_advisory_unlock_shared(4294967298), pg_advisory_unlock(4294967298)"))
	require.Equal(t, "f", b.row("SELECT pg_try_advisory_lock(4294967298)"))
	require.Equal(t, "t", a.row("SELECT pg_advisory_unlock(4294967298)"))
	require.Equal(t, "t", b.row("SELECT pg_try_advisory_lock(4294967298)"))
	a.must("SELECT pg_advisory_unlock_all()")
	b.must("DISCARD ALL")
	require.Equal(t, "0", a.row("SELECT count(*) FROM pg_locks"))
	// What a connection holds ends with it.
	b.must("SELECT pg_advisory_lock(1)")
	require.NoError(t, b.Close(d.ctx))
	require.Eventually(t, func() bool { return a.row("SELECT pg_try_advisory_lock(1)") == "t" }, advisoryWait, advisoryPoll)
}

func TestAdvisoryLocksOfTransactions(t *testing.T) {
	d := open(t)
	a, b := d.connect(), d.connect()
	held := "SELECT string_agg(objid::text, ',' ORDER BY objid) FROM pg_locks"
	a.must("SELECT pg_advisory_xact_lock(1)")
	require.Equal(t, "NULL", a.row(held), "the transaction is the statement")
	a.must("BEGIN", "SELECT pg_advisory_xact_lock(1)", "SAVEPOINT s", "SELECT pg_advisory_xact_lock(2)", "SELECT pg_advisory_lock(3)")
	require.Equal(t, "f", a.row("SELECT pg_advisory_unlock(1)"), "only its end gives it back")
	require.Equal(t, "1,2,3", b.row(held))
	a.must("ROLLBACK TO s")
	require.Equal(t, "1,3", b.row(held))
	a.must("COMMIT")
	require.Equal(t, "3", b.row(held))
	a.must("BEGIN", "SELECT pg_advisory_xact_lock_shared(4)", "ROLLBACK")
	require.Equal(t, "3", b.row(held))
	require.Equal(t, "22012", a.code("SELECT pg_advisory_xact_lock(5), 1 / (g - 1) FROM generate_series(1, 1) g"))
	require.Equal(t, "3", b.row(held))
}

func TestAdvisoryLocksWait(t *testing.T) {
	d := open(t)
	a, b, c, watcher := d.connect(), d.connect(), d.connect(), d.connect()
	a.must("SELECT pg_advisory_lock_shared(1)")
	exclusive := later(t, watcher, b, "SELECT pg_advisory_lock(1)")
	shared := later(t, watcher, c, "SELECT pg_advisory_lock_shared(1)") // not before the one that came earlier
	require.Equal(t, "f", watcher.row("SELECT pg_try_advisory_lock_shared(1)"))
	require.Equal(t, "t", a.row("SELECT pg_try_advisory_lock_shared(1)"), "who has it gets it again")
	a.must("SELECT pg_advisory_unlock_all()")
	require.NoError(t, <-exclusive)
	require.Equal(t, "f|t", watcher.row("SELECT granted, waitstart IS NOT NULL FROM pg_locks WHERE mode = 'ShareLock'"))
	b.must("SELECT pg_advisory_unlock(1)")
	require.NoError(t, <-shared)

	b.must("SET lock_timeout = '20ms'")
	require.Equal(t, "55P03", b.code("SELECT pg_advisory_lock(1)"))
	b.must("SET lock_timeout = 0")
	cancelled := later(t, watcher, b, "SELECT pg_advisory_lock(1)")
	require.NoError(t, b.PgConn().CancelRequest(d.ctx))
	require.Equal(t, "57014", string(codeOf(t, <-cancelled)))
	require.Equal(t, "1", watcher.row("SELECT count(*) FROM pg_locks"))
}

func TestAdvisoryLocksDeadlock(t *testing.T) {
	d := open(t)
	a, b, watcher := d.connect(), d.connect(), d.connect()
	a.must("SELECT pg_advisory_lock(1)")
	b.must("BEGIN", "SELECT pg_advisory_xact_lock(2)")
	waits := later(t, watcher, a, "SELECT pg_advisory_lock(2)")
	_, err := b.Exec(d.ctx, "SELECT pg_advisory_lock_shared(1)")
	e := pgErr(t, err)
	require.Equal(t, "40P01", e.Code)
	require.Equal(t, "deadlock detected", e.Message)
	require.Regexp(t, `^Process \d+ waits for ShareLock on advisory lock \[16382,0,1,1\]; blocked by process \d+\.
Process \d+ waits for ExclusiveLock on advisory lock \[16382,0,2,1\]; blocked by process \d+\.$`, e.Detail)
	b.must("ROLLBACK")
	require.NoError(t, <-waits)
	// Both have it shared and want it for themselves.
	a.must("SELECT pg_advisory_unlock_all()", "SELECT pg_advisory_lock_shared(3)")
	b.must("SELECT pg_advisory_lock_shared(3)")
	waits = later(t, watcher, a, "SELECT pg_advisory_lock(3)")
	require.Equal(t, "40P01", b.code("SELECT pg_advisory_lock(3)"))
	b.must("SELECT pg_advisory_unlock_all()")
	require.NoError(t, <-waits)
}
