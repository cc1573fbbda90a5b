package server_test

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// What PostgreSQL 15 says.
func TestDependenciesOfEveryKind(t *testing.T) {
	d := open(t)
	s := d.connect()
	s.must("CREATE SEQUENCE s", "CREATE TABLE t (id int PRIMARY KEY, n int DEFAULT nextval('s'), m serial)", "CREATE TABLE g (id int GENERATED ALWAYS AS IDENTITY)",
		"CREATE TABLE other (a int DEFAULT nextval('t_m_seq'))")
	detail := func(q, message string, lines ...string) {
		t.Helper()
		pe := s.fails(q, "2BP01", message)
		require.Equal(t, strings.Join(lines, "\n"), pe.Detail, q)
	}
	notice := func(q, message string, lines ...string) {
		t.Helper()
		s.notices = nil
		s.must(q)
		require.Len(t, s.notices, 1, q)
		require.Equal(t, message, s.notices[0].Message)
		require.Equal(t, strings.Join(lines, "\n"), s.notices[0].Detail)
	}
	detail("DROP SEQUENCE s", "cannot drop sequence s because other objects depend on it", "default value for column n of table t depends on sequence s")
	detail("DROP SEQUENCE g_id_seq CASCADE", "cannot drop sequence g_id_seq because column id of table g requires it")
	detail("DROP TABLE t", "cannot drop table t because other objects depend on it", "default value for column a of table other depends on sequence t_m_seq")
	s.must("ALTER SEQUENCE s RENAME TO s2", "CREATE SCHEMA z", "ALTER SEQUENCE s2 SET SCHEMA z", "INSERT INTO t (id) VALUES (1)")
	require.Equal(t, "1|1|1", s.row("TABLE t"))
	require.Equal(t, "nextval('z.s2'::regclass)", s.row("SELECT column_default FROM information_schema.columns WHERE table_name = 't' AND column_name = 'n'"))
	notice("DROP SEQUENCE z.s2 CASCADE", "drop cascades to default value for column n of table t")
	notice("DROP TABLE t CASCADE", "drop cascades to default value for column a of table other")
	s.must("INSERT INTO other DEFAULT VALUES")
	require.Equal(t, "NULL", s.row("SELECT coalesce(a::text, 'NULL') FROM other"))

	s.must("CREATE TYPE mood AS ENUM ('a', 'b')", "CREATE TABLE e (a mood, b int, l mood[])", "INSERT INTO e VALUES ('a', 1, '{b}')", "CREATE VIEW ev AS SELECT a FROM e", "CREATE VIEW ok AS SELECT b FROM e",
		"CREATE FUNCTION f(int) RETURNS int LANGUAGE sql IMMUTABLE AS 'SELECT $1 + 1'", "CREATE VIEW fv AS SELECT f(b) FROM e",
		"CREATE TABLE fd (a int DEFAULT f(1), b int CHECK (f(b) > 0), c int GENERATED ALWAYS AS (f(1)) STORED)", "CREATE INDEX fdi ON fd (f(b))", "INSERT INTO fd (b) VALUES (4)")
	detail("DROP TYPE mood", "cannot drop type mood because other objects depend on it",
		"column l of table e depends on type mood[]", "column a of table e depends on type mood", "view ev depends on column a of table e")
	detail("DROP FUNCTION f(int)", "cannot drop function f(integer) because other objects depend on it", "view fv depends on function f(integer)",
		"default value for column a of table fd depends on function f(integer)", "column c of table fd depends on function f(integer)",
		"constraint fd_b_check on table fd depends on function f(integer)", "index fdi depends on function f(integer)")
	s.must("BEGIN")
	notice("DROP FUNCTION f(int) CASCADE", "drop cascades to 5 other objects", "drop cascades to view fv", "drop cascades to default value for column a of table fd",
		"drop cascades to column c of table fd", "drop cascades to constraint fd_b_check on table fd", "drop cascades to index fdi")
	s.must("INSERT INTO fd VALUES (7, -5)")
	require.Equal(t, []string{"2|4", "7|-5"}, s.rows("SELECT * FROM fd ORDER BY a"))
	s.must("ROLLBACK")
	require.Equal(t, []string{"2|4|2"}, s.rows("SELECT * FROM fd"))
	notice("DROP TYPE mood CASCADE", "drop cascades to 3 other objects", "drop cascades to column l of table e", "drop cascades to column a of table e", "drop cascades to view ev")
	require.Equal(t, "1", s.row("TABLE e"))
	s.must("CHECKPOINT", "INSERT INTO e VALUES (2)")
	d.crash()
	s = d.connect()
	require.Equal(t, []string{"1", "2"}, s.rows("TABLE ok"))
	require.Equal(t, []string{"2|4|2"}, s.rows("SELECT * FROM fd"))

	s.must("CREATE SCHEMA sch", "CREATE TABLE sch.t (a serial)", "CREATE TYPE sch.ty AS ENUM ('x')", "CREATE FUNCTION sch.f() RETURNS int LANGUAGE sql AS 'SELECT 1'",
		"CREATE VIEW sch.v AS SELECT * FROM sch.t", "CREATE VIEW pv AS SELECT * FROM sch.v", "CREATE SEQUENCE sch.s", "CREATE SCHEMA sch2", "CREATE TABLE sch2.x (a int)")
	detail("DROP SCHEMA sch", "cannot drop schema sch because other objects depend on it", "table sch.t depends on schema sch", "type sch.ty depends on schema sch",
		"function sch.f() depends on schema sch", "view sch.v depends on schema sch", "view pv depends on view sch.v", "sequence sch.s depends on schema sch")
	detail("DROP SCHEMA sch2, sch", "cannot drop desired object(s) because other objects depend on them", "table sch.t depends on schema sch", "type sch.ty depends on schema sch",
		"function sch.f() depends on schema sch", "view sch.v depends on schema sch", "view pv depends on view sch.v", "sequence sch.s depends on schema sch", "table sch2.x depends on schema sch2")
	notice("DROP SCHEMA sch, sch2 CASCADE", "drop cascades to 7 other objects", "drop cascades to table sch2.x", "drop cascades to table sch.t", "drop cascades to type sch.ty",
		"drop cascades to function sch.f()", "drop cascades to view sch.v", "drop cascades to view pv", "drop cascades to sequence sch.s")
	notice("DROP TABLE IF EXISTS sch.t", `schema "sch" does not exist, skipping`)
	s.fails("DROP TABLE sch.t", "3F000", `schema "sch" does not exist`)
	s.must("CREATE VIEW z1 AS SELECT 1 AS x", "CREATE VIEW z2 AS TABLE z1", "CREATE VIEW z3 AS TABLE z2", "CREATE VIEW z4 AS SELECT z1.x FROM z1, z3")
	detail("DROP VIEW z1", "cannot drop view z1 because other objects depend on it", "view z2 depends on view z1", "view z3 depends on view z2", "view z4 depends on view z1")
	s.must("DROP VIEW z1 CASCADE")
}
