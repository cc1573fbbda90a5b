package server_test

import (
	"testing"

	"github.com/stretchr/testify/require"
)

// The schema lock, the locks of tables and advisory locks are nodes of one graph.
func TestDeadlockWithSchemaChange(t *testing.T) {
	d := open(t)
	a, b, watcher := d.connect(), d.connect(), d.connect()
	a.must("CREATE TABLE t(x int)", "INSERT INTO t VALUES (1)")
	b.must("SELECT pg_advisory_lock(1)")
	a.must("BEGIN", "CREATE TABLE u(x int)")
	require.Equal(t, "object|0|NULL|1262|16382|0|ExclusiveLock|t", watcher.row("SELECT locktype, database, relation, classid, objid, objsubid, mode, granted FROM pg_locks WHERE locktype <> 'advisory'"))
	waits := later(t, watcher, b, "CREATE TABLE v(x int)")
	_, err := a.Exec(d.ctx, "SELECT pg_advisory_lock(1)")
	e := pgErr(t, err)
	require.Equal(t, "40P01", e.Code)
	require.Regexp(t, `^Process \d+ waits for ExclusiveLock on advisory lock \[16382,0,1,1\]; blocked by process \d+\.
Process \d+ waits for ExclusiveLock on object 16382 of class 1262 of database 0; blocked by process \d+\.$`, e.Detail)
	a.must("ROLLBACK")
	require.NoError(t, <-waits)

	// The other way round: who wants to change the schema closes the cycle. A waits in the schema lock's block for B, B for A.
	a.must("BEGIN", "CREATE TABLE u(x int)")
	waits = later(t, watcher, a, "SELECT pg_advisory_lock(1)")
	require.Equal(t, "40P01", b.code("ALTER TABLE v RENAME TO w"))
	b.must("SELECT pg_advisory_unlock(1)")
	require.NoError(t, <-waits)
	a.must("ROLLBACK", "SELECT pg_advisory_unlock_all()")

	// An UPDATE that waits in the middle for the one who wants to change the same table.
	b.must("SELECT pg_advisory_lock(2)")
	waits = later(t, watcher, a, "UPDATE t SET x = 2 WHERE pg_advisory_lock(2) IS NOT NULL")
	require.Regexp(t, `^relation\|16382\|\d+\|NULL\|NULL\|NULL\|ExclusiveLock\|t$`,
		watcher.row("SELECT locktype, database, relation, classid, objid, objsubid, mode, granted FROM pg_locks WHERE locktype = 'relation'"))
	require.Equal(t, "t", watcher.row("SELECT relation = 't'::regclass FROM pg_locks WHERE locktype = 'relation'"))
	require.Equal(t, "40P01", b.code("DELETE FROM t"))
	b.must("SELECT pg_advisory_unlock(2)")
	require.NoError(t, <-waits)

	// Three in a ring.
	c := d.connect()
	a.must("SELECT pg_advisory_unlock_all()", "SELECT pg_advisory_lock(3)")
	b.must("SELECT pg_advisory_lock(4)")
	c.must("BEGIN", "COMMENT ON TABLE t IS 'c'")
	first := later(t, watcher, a, "SELECT pg_advisory_lock(4)")
	second := later(t, watcher, b, "DROP TABLE t")
	require.Equal(t, "40P01", c.code("SELECT pg_advisory_lock(3)"))
	c.must("ROLLBACK")
	require.NoError(t, <-second)
	b.must("SELECT pg_advisory_unlock_all()")
	require.NoError(t, <-first)
	a.must("SELECT pg_advisory_unlock_all()")
	require.Equal(t, "0", watcher.row("SELECT count(*) FROM pg_locks"))
}

// lock_timeout holds for every kind of lock, and the queue goes on without who gave up.
func TestLockTimeout(t *testing.T) {
	d := open(t)
	a, b := d.connect(), d.connect()
	a.must("CREATE TABLE t(x int)", "INSERT INTO t VALUES (1)", "SELECT pg_advisory_lock(1)", "BEGIN", "CREATE TABLE u(x int)")
	b.must("SET lock_timeout = '10ms'")
	for _, q := range []string{
		"SELECT pg_advisory_lock(1)", "CREATE TABLE v(x int)", "ALTER TABLE t ADD COLUMN y int", "DROP TABLE t", "CREATE INDEX ON t(x)", "COMMENT ON TABLE t IS 'x'",
		"GRANT SELECT ON t TO PUBLIC", "CREATE SEQUENCE s", "CREATE ROLE r", "CREATE MATERIALIZED VIEW m AS SELECT x FROM t", "CREATE VIEW w AS SELECT x FROM t", "CREATE SCHEMA s",
		"CREATE FUNCTION f() RETURNS int LANGUAGE sql AS 'SELECT 1'", "CREATE TABLE v AS SELECT 1 AS x", "CREATE TEMPORARY TABLE v(x int)", "CREATE TYPE e AS ENUM ('a')",
	} {
		require.Equal(t, "55P03", b.code(q), q)
	}
	a.must("COMMIT", "SELECT pg_advisory_unlock(1)")
	b.must("CREATE TABLE v(x int)")
}
