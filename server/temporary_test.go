package server_test

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

func TestTemporaryRelations(t *testing.T) {
	d := open(t)
	s, other := d.connect(), d.connect()
	s.must("CREATE TABLE lasting (a int)", "CREATE TEMP TABLE tt (id int PRIMARY KEY, v text UNIQUE)", "INSERT INTO tt VALUES (1, 'a')", "CREATE INDEX ON tt (v, id)")
	require.Equal(t, "42P01", other.code("TABLE tt"))
	other.must("CREATE TEMP TABLE tt (x int)")
	require.Equal(t, "1|a", s.row("SELECT * FROM pg_temp.tt"))
	s.fails("INSERT INTO tt VALUES (2, 'a')", "23505", "")
	require.Equal(t, "public", s.row("SELECT current_schema()"))
	require.Equal(t, "t", s.row("SELECT relpersistence::text FROM pg_class WHERE oid = 'tt'::regclass"))
	// It hides one of the same name.
	s.must("CREATE TABLE public.tt (p int)")
	require.Equal(t, "1|a", s.row("TABLE tt"))
	s.fails("CREATE TEMP TABLE public.x (a int)", "42P16", "cannot create temporary relation in non-temporary schema")
	s.fails("CREATE TABLE x (a int) ON COMMIT DROP", "42P16", "ON COMMIT can only be used on temporary tables")
	s.must("CREATE TEMP TABLE del (a int) ON COMMIT DELETE ROWS", "INSERT INTO del VALUES (1)")
	require.Empty(t, s.rows("TABLE del"))
	s.must("BEGIN", "INSERT INTO del VALUES (1)", "CREATE TEMP TABLE gone ON COMMIT DROP AS SELECT 7 AS a")
	require.Equal(t, []string{"1", "7"}, s.rows("SELECT * FROM del UNION TABLE gone ORDER BY 1"))
	s.must("COMMIT")
	require.Empty(t, s.rows("TABLE del"))
	require.Equal(t, "42P01", s.code("TABLE gone"))
	s.must("CREATE VIEW over AS SELECT id FROM tt")
	require.Equal(t, `view "over" will be a temporary view`, s.notices[len(s.notices)-1].Message)
	s.fails("CREATE MATERIALIZED VIEW m AS SELECT id FROM tt", "0A000", "materialized views must not use temporary tables or views")
	s.must("BEGIN", "CREATE TEMP TABLE undone (a int)", "ROLLBACK")
	require.Equal(t, "42P01", s.code("TABLE undone"))
	require.NoError(t, s.Conn.Close(context.Background()))
	require.Eventually(t, func() bool {
		return other.row("SELECT count(*) FROM pg_class WHERE relname IN ('del', 'over', 'tt_v_key', 'tt_v_id_idx')") == "0"
	}, 10*time.Second, 5*time.Millisecond)
	other.must("DISCARD TEMP")
	require.Empty(t, other.rows("SELECT * FROM tt"), "the lasting one")
	other.must("CREATE TEMP TABLE left_behind (a int PRIMARY KEY)", "INSERT INTO left_behind VALUES (1)", "CHECKPOINT")
	d.crash()
	s = d.connect()
	require.Equal(t, "0", s.row("SELECT count(*) FROM pg_namespace WHERE nspname LIKE 'pg_temp%'"))
	s.must("CREATE TEMP TABLE left_behind (a int PRIMARY KEY)", "INSERT INTO left_behind VALUES (1)")
}
