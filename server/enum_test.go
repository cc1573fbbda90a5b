package server_test

import (
	"strings"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"
)

// TestEnumsThroughADriver reads and writes enum values in both formats, as drivers that load types from the catalogue do.
func TestEnumsThroughADriver(t *testing.T) {
	s := open(t).connect()
	s.must("CREATE TYPE mood AS ENUM ('sad', 'ok', 'happy')")
	s.must("CREATE TABLE p (id int PRIMARY KEY, m mood, ms mood[])")
	for _, name := range []string{"mood", "mood[]"} {
		typ, err := s.LoadType(s.d.ctx, name)
		require.NoError(t, err)
		s.TypeMap().RegisterType(typ)
	}
	_, err := s.Exec(s.d.ctx, "INSERT INTO p VALUES ($1, $2, $3)", 1, "happy", []string{"sad", "ok"})
	require.NoError(t, err)
	_, err = s.Exec(s.d.ctx, "INSERT INTO p VALUES ($1, $2, $3)", 2, "angry", nil)
	require.Equal(t, "22P02", string(codeOf(t, err)))
	var m string
	var ms []string
	require.NoError(t, s.QueryRow(s.d.ctx, "SELECT m, ms FROM p WHERE m = $1", "happy").Scan(&m, &ms))
	require.Equal(t, "happy", m)
	require.Equal(t, []string{"sad", "ok"}, ms)
	require.NoError(t, s.QueryRow(s.d.ctx, "SELECT m, ms FROM p WHERE m = $1", pgx.QueryExecModeSimpleProtocol, "happy").Scan(&m, &ms))
	require.NoError(t, s.QueryRow(s.d.ctx, "SELECT $1::mood", "ok").Scan(&m))
	require.Equal(t, "ok", m)
}

func TestEnumDefinitions(t *testing.T) {
	s := open(t).connect()
	s.must("CREATE TYPE mood AS ENUM ('sad', 'happy')")
	s.must("ALTER TYPE mood ADD VALUE 'ok' AFTER 'sad'")
	s.must("ALTER TYPE mood ADD VALUE IF NOT EXISTS 'ok'")
	s.must("ALTER TYPE mood ADD VALUE 'awful' BEFORE 'sad'")
	s.must("ALTER TYPE mood RENAME VALUE 'awful' TO 'bad'")
	require.Equal(t, []string{"bad|0", "sad|1", "ok|1.5", "happy|2"}, s.rows("SELECT enumlabel, enumsortorder FROM pg_enum WHERE enumtypid = 'mood'::regtype ORDER BY 2"))
	s.fails("ALTER TYPE mood ADD VALUE 'x' BEFORE 'nowhere'", "22023", "")
	s.fails("ALTER TYPE mood ADD VALUE 'ok'", "42710", "")
	s.fails("CREATE TYPE mood AS ENUM ()", "42710", "")
	s.fails("CREATE TYPE twice AS ENUM ('a', 'a')", "23505", "")
	s.fails("ALTER TYPE nowhere ADD VALUE 'x'", "42704", "")
	s.fails("ALTER TYPE int4 ADD VALUE 'x'", "42809", "")
	s.must("CREATE SCHEMA s")
	s.must("ALTER TYPE mood SET SCHEMA s")
	s.must("ALTER TYPE s.mood RENAME TO feeling")
	s.must("COMMENT ON TYPE s.feeling IS 'how it is'")
	require.Equal(t, "s.feeling|s.feeling[]|how it is", s.row("SELECT format_type('s.feeling'::regtype, -1), 's.feeling[]'::regtype, obj_description('s.feeling'::regtype, 'pg_type')"))
	s.must("CREATE TABLE t (a s.feeling DEFAULT 'ok', b s.feeling[])")
	s.must("CREATE VIEW v AS SELECT a FROM t")
	s.must("INSERT INTO t (b) VALUES ('{happy}')")
	require.Equal(t, "ok|{happy}", s.row("SELECT * FROM t"))
	s.fails("ALTER TYPE s.feeling RENAME VALUE 'ok' TO 'fine'", "0A000", "")
	s.fails("DROP TYPE s.feeling", "2BP01", "")
	for _, q := range []string{"DROP TYPE s.feeling CASCADE", "DROP SCHEMA s CASCADE"} {
		s.must("BEGIN", q)
		require.Equal(t, "0", s.row("SELECT count(*) FROM information_schema.columns WHERE table_name = 't'"))
		require.Equal(t, "1", s.row("SELECT count(*) FROM t"))
		s.must("ROLLBACK")
		require.Equal(t, "ok|{happy}", s.row("SELECT * FROM t"))
	}
	s.fails("DROP SCHEMA s", "2BP01", "")
	s.fails("CREATE TABLE s.feeling (a int)", "42710", "")
	s.must("DROP VIEW v")
	s.must("DROP TABLE t")
	s.must("CREATE VIEW w AS SELECT 'ok'::s.feeling AS a")
	s.must("DROP TYPE s.feeling CASCADE")
	s.fails("SELECT * FROM w", "42P01", "")
	s.must("CREATE TYPE s.other AS ENUM ('x')")
	s.must("DROP SCHEMA s CASCADE")
	require.Empty(t, s.rows("SELECT * FROM pg_enum"))
	s.fails("CREATE SOURCE src (a gone) WITH (connector = 'file', path = 'x') FORMAT PLAIN ENCODE JSON", "42704", `type "gone" does not exist`)
	s.must("BEGIN", "CREATE TYPE mood AS ENUM ('a')", "CREATE TABLE t (m mood)", "INSERT INTO t VALUES ('a')")
	require.Equal(t, "a", s.row("SELECT * FROM t"))
	s.must("ROLLBACK")
	s.fails("SELECT 'a'::mood", "42704", `type "mood" does not exist`)
}

// EXPLAIN and SHOW COLUMNS show types of the user's own by name, or leave the type out.
func TestEnumsAreShown(t *testing.T) {
	s := open(t).connect()
	s.must("CREATE TYPE mood AS ENUM ('sad', 'happy')", "CREATE TABLE p (m mood, ms mood[], n varchar(3))")
	require.Equal(t, []string{"m|mood|f|", "ms|mood[]|f|", "n|character varying(3)|f|", "_row_id|bigint|t|"}, s.rows("SHOW COLUMNS FROM p"))
	require.Contains(t, strings.Join(s.rows("EXPLAIN SELECT * FROM p WHERE m = 'sad' AND 'happy' >= m"), "\n"), "Condition: ((m = 'sad') AND ('happy' >= m))")
}
