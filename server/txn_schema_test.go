package server_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/streamdb/streamdb/internal/failpoint"
	"github.com/streamdb/streamdb/server"
)

func TestSchemaChangesAreTransactional(t *testing.T) {
	d := open(t)
	a, b := d.connect(), d.connect()
	a.must("CREATE TABLE keep (a int PRIMARY KEY)", "INSERT INTO keep VALUES (1)")
	a.must("BEGIN", "CREATE SCHEMA sch", "CREATE TABLE sch.t (a int PRIMARY KEY, b text)", "INSERT INTO sch.t VALUES (1, 'x')", "INSERT INTO keep VALUES (2)",
		"CREATE VIEW v AS SELECT count(*) AS n FROM sch.t", "ALTER TABLE keep RENAME TO kept")
	require.Equal(t, "1", a.row("TABLE v"))
	require.Equal(t, "42P01", b.code("TABLE sch.t"))
	require.Equal(t, "1", b.row("SELECT count(*) FROM keep"))
	a.must("COMMIT")
	require.Equal(t, "1|x", b.row("TABLE sch.t"))
	require.Equal(t, "2", b.row("SELECT count(*) FROM kept"))

	a.must("BEGIN", "DROP VIEW v", "CREATE TABLE gone (a int)", "INSERT INTO gone VALUES (1)", "DROP TABLE kept", "CREATE TABLE kept (other text)",
		"CREATE MATERIALIZED VIEW mv AS SELECT count(*) AS n FROM sch.t")
	require.Equal(t, "42P01", a.code("TABLE v"))
	a.must("ROLLBACK")
	require.Equal(t, "1", a.row("TABLE v"))
	require.Equal(t, "42P01", a.code("TABLE gone"))
	require.Equal(t, "42P01", a.code("TABLE mv"))
	require.Equal(t, "2", a.row("SELECT count(*) FROM kept"))

	// An error in the block undoes all of it, and a savepoint undoes a part.
	a.must("BEGIN", "CREATE TABLE t1 (a int)")
	require.Equal(t, "42P07", a.code("CREATE TABLE t1 (a int)"))
	a.must("COMMIT")
	require.Equal(t, "42P01", a.code("TABLE t1"))
	a.must("BEGIN", "CREATE TABLE t1 (a int)", "SAVEPOINT s", "CREATE TABLE t2 (a int)", "DROP TABLE t1", "ROLLBACK TO s", "INSERT INTO t1 VALUES (5)", "COMMIT")
	require.Equal(t, "5", b.row("TABLE t1"))
	require.Equal(t, "42P01", b.code("TABLE t2"))
	// Several statements of one message are a transaction.
	require.Equal(t, "22012", a.code("CREATE TABLE t3 (a int); SELECT 1/0"))
	require.Equal(t, "42P01", a.code("TABLE t3"))
	a.must("CREATE TABLE t3 (a int); INSERT INTO t3 VALUES (3)")
	// A session that ends in a block leaves nothing, and the next change does not wait for it.
	a.must("BEGIN", "CREATE TABLE t4 (a int)")
	require.NoError(t, a.Close(d.ctx))
	b.must("CREATE TABLE t4 (b int)", "DROP TABLE t4")
	b.must("BEGIN", "CREATE TABLE lost (a int)", "INSERT INTO lost VALUES (1)")
	d.crash()
	b = d.connect()
	require.Equal(t, "42P01", b.code("TABLE lost"))
	require.Equal(t, "5", b.row("TABLE t1"))
	require.Equal(t, "3", b.row("TABLE t3"))
	require.Equal(t, "1|x", b.row("TABLE sch.t"))
	require.Equal(t, "1", b.row("TABLE v"))
	b.must("BEGIN", "CREATE MATERIALIZED VIEW mv AS SELECT count(*) AS n FROM sch.t", "INSERT INTO sch.t VALUES (2, 'y')", "COMMIT", "FLUSH")
	require.Equal(t, "2", b.row("TABLE mv"))
	d.crash()
	b = d.connect()
	b.must("FLUSH")
	require.Equal(t, "2", b.row("TABLE mv"))
}

func TestSchemaAndRowsCommitAsOne(t *testing.T) {
	for point, want := range map[string]string{"schema/pending": "1|0", "schema/logged": "2|1"} {
		for _, checkpoint := range []bool{false, true} {
			points, err := failpoint.Parse(point + "=error(crash)")
			require.NoError(t, err)
			d := open(t, func(c *server.Config) { c.Failpoints = points })
			s := d.connect()
			s.must("CREATE TABLE log (a int)", "INSERT INTO log VALUES (1)", "BEGIN", "CREATE TABLE made (a int)", "INSERT INTO log VALUES (2)")
			require.NotEmpty(t, s.code("COMMIT"), point)
			if checkpoint {
				s.must("CHECKPOINT")
			}
			d.cfg.Failpoints = nil
			d.crash()
			s = d.connect()
			require.Equal(t, want, s.row("SELECT count(*), (SELECT count(*) FROM pg_class WHERE relname = 'made') FROM log"), point)
		}
	}
}
