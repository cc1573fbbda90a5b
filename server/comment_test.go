package server_test

import (
	"testing"

	"github.com/stretchr/testify/require"
)

// commented are the kinds of objects with comments: what COMMENT ON names, and a query for the comment.
var commented = []struct{ object, query string }{
	{"TABLE t", "SELECT obj_description('t'::regclass, 'pg_class')"},
	{"COLUMN t.a", "SELECT col_description('t'::regclass, 2)"},
	{"COLUMN v.a", "SELECT col_description('v'::regclass, 1)"},
	{"VIEW v", "SELECT obj_description('v'::regclass, 'pg_class')"},
	{"MATERIALIZED VIEW m", "SELECT obj_description('m'::regclass, 'pg_class')"},
	{"SEQUENCE q", "SELECT obj_description('q'::regclass, 'pg_class')"},
	{"INDEX i", "SELECT obj_description('i'::regclass, 'pg_class')"},
	{"INDEX t_pkey", "SELECT obj_description('t_pkey'::regclass, 'pg_class')"},
	{"CONSTRAINT c ON t", "SELECT obj_description(oid, 'pg_constraint') FROM pg_constraint WHERE conname = 'c'"},
	{"CONSTRAINT u ON t", "SELECT obj_description(oid, 'pg_constraint') FROM pg_constraint WHERE conname = 'u'"},
	{"CONSTRAINT t_pkey ON t", "SELECT obj_description(oid, 'pg_constraint') FROM pg_constraint WHERE conname = 't_pkey'"},
	{"TYPE e", "SELECT obj_description('e'::regtype, 'pg_type')"},
	{"FUNCTION f(int)", "SELECT obj_description('f'::regproc, 'pg_proc')"},
	{"SCHEMA s", "SELECT obj_description('s'::regnamespace, 'pg_namespace')"},
	{"SCHEMA public", "SELECT obj_description('public'::regnamespace, 'pg_namespace')"},
	{"ROLE r", "SELECT shobj_description(oid, 'pg_authid') FROM pg_roles WHERE rolname = 'r'"},
	{"DATABASE streamdb", "SELECT shobj_description(oid, 'pg_database') FROM pg_database WHERE datname = 'streamdb'"},
}

func TestComments(t *testing.T) {
	d := open(t)
	s := d.connect()
	s.must("CREATE TABLE t (id int PRIMARY KEY, a text, CONSTRAINT c CHECK (id > 0), CONSTRAINT u UNIQUE (a))", "CREATE VIEW v AS SELECT a FROM t",
		"CREATE MATERIALIZED VIEW m AS SELECT a FROM t", "CREATE SEQUENCE q", "CREATE INDEX i ON t (a)", "CREATE TYPE e AS ENUM ('x')",
		"CREATE FUNCTION f(int) RETURNS int LANGUAGE sql AS 'SELECT $1'", "CREATE SCHEMA s", "CREATE ROLE r")
	before := map[string]string{}
	for _, c := range commented {
		before[c.object] = s.row(c.query)
		s.must("BEGIN", "COMMENT ON "+c.object+" IS 'undone'")
		require.Equal(t, "undone", s.row(c.query), c.object)
		s.must("ROLLBACK")
		require.Equal(t, before[c.object], s.row(c.query), c.object)
		s.must("COMMENT ON " + c.object + " IS 'it is " + c.object + "'")
	}
	for range 2 {
		for _, c := range commented {
			require.Equal(t, "it is "+c.object, s.row(c.query), c.object)
		}
		d.crash()
		s = d.connect()
	}
	for _, c := range commented {
		s.must("COMMENT ON " + c.object + " IS NULL")
	}
	d.crash()
	s = d.connect()
	require.Equal(t, "0", s.row("SELECT count(*) FROM pg_description WHERE description LIKE 'it is%'"))
	require.Equal(t, "0", s.row("SELECT count(*) FROM pg_shdescription WHERE description LIKE 'it is%'"))
	for _, c := range []struct{ q, code, message string }{
		{"COMMENT ON VIEW t IS 'x'", "42809", `"t" is not a view`},
		{"COMMENT ON INDEX t IS 'x'", "42809", `"t" is not an index`},
		{"COMMENT ON SEQUENCE m IS 'x'", "42809", `"m" is not a sequence`},
		{"COMMENT ON CONSTRAINT nope ON t IS 'x'", "42704", `constraint "nope" for table "t" does not exist`},
		{"COMMENT ON COLUMN q.last_value IS 'x'", "42809", `cannot set comment on relation "q"`},
		{"COMMENT ON FUNCTION nope(int) IS 'x'", "42883", "function nope(integer) does not exist"},
		{"COMMENT ON SCHEMA nope IS 'x'", "3F000", `schema "nope" does not exist`},
		{"COMMENT ON ROLE nope IS 'x'", "42704", `role "nope" does not exist`},
		{"COMMENT ON TYPE nope IS 'x'", "42704", `type "nope" does not exist`},
		{"COMMENT ON TABLE nope IS 'x'", "42P01", `relation "nope" does not exist`},
	} {
		s.fails(c.q, c.code, c.message)
	}
}

func TestForeignKeysAreRefusedAlike(t *testing.T) {
	s := open(t).connect()
	s.must("CREATE TABLE p (id int PRIMARY KEY)", "CREATE TABLE t (a int)")
	for _, q := range []string{
		"CREATE TABLE c (a int REFERENCES p)", "CREATE TABLE c (a int, FOREIGN KEY (a) REFERENCES p (id))",
		"ALTER TABLE t ADD COLUMN b int REFERENCES p", "ALTER TABLE t ADD CONSTRAINT k FOREIGN KEY (a) REFERENCES p",
	} {
		e := s.fails(q, "0A000", "foreign keys are not supported")
		require.NotZero(t, e.Position, q)
		require.Contains(t, e.Hint, "Leave the constraint out", q)
	}
}
