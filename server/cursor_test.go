package server_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5/pgproto3"
	"github.com/stretchr/testify/require"
)

// TestCursorMoves goes through all directions of FETCH and MOVE; the expected rows are PostgreSQL's.
func TestCursorMoves(t *testing.T) {
	s := open(t).connect()
	s.must("CREATE TABLE t (a int)", "INSERT INTO t SELECT generate_series(1, 10)", "BEGIN", "DECLARE c SCROLL CURSOR FOR SELECT a FROM t ORDER BY a")
	for _, c := range [][2]string{
		{"FETCH c", "1"},
		{"FETCH 2 FROM c", "2 3"},
		{"FETCH BACKWARD 2 FROM c", "2 1"},
		{"FETCH 0 c", "1"},
		{"FETCH PRIOR c", ""},
		{"FETCH PRIOR c", ""},
		{"FETCH LAST c", "10"},
		{"FETCH NEXT c", ""},
		{"FETCH PRIOR c", "10"},
		{"FETCH FIRST c", "1"},
		{"FETCH ABSOLUTE 5 c", "5"},
		{"FETCH ABSOLUTE -2 c", "9"},
		{"FETCH ABSOLUTE 0 c", ""},
		{"FETCH ABSOLUTE 100 c", ""},
		{"FETCH RELATIVE -1 c", "10"},
		{"FETCH RELATIVE -3 c", "7"},
		{"FETCH RELATIVE 0 c", "7"},
		{"FETCH RELATIVE 2 c", "9"},
		{"MOVE 2 c", "MOVE 1"},
		{"MOVE BACKWARD ALL c", "MOVE 10"},
		{"MOVE ALL c", "MOVE 10"},
		{"FETCH BACKWARD ALL c", "10 9 8 7 6 5 4 3 2 1"},
		{"FETCH FORWARD ALL c", "1 2 3 4 5 6 7 8 9 10"},
		{"FETCH ALL c", ""},
		{"FETCH ABSOLUTE -100 c", ""},
		{"FETCH 3 IN c", "1 2 3"},
		{"FETCH -2 c", "2 1"},
		{"MOVE ABSOLUTE 4 c", "MOVE 1"},
		{"FETCH c", "5"},
		{"MOVE RELATIVE -2 c", "MOVE 1"},
		{"FETCH c", "4"},
		{"MOVE 0 c", "MOVE 1"},
		{"FETCH FORWARD -1 c", "3"},
		{"MOVE LAST c", "MOVE 1"},
		{"MOVE NEXT c", "MOVE 0"},
	} {
		if strings.HasPrefix(c[0], "MOVE") {
			res, err := s.PgConn().Exec(s.d.ctx, c[0]).ReadAll()
			require.NoError(t, err, c[0])
			require.Equal(t, c[1], res[0].CommandTag.String(), c[0])
			continue
		}
		require.Equal(t, c[1], strings.Join(s.rows(c[0]), " "), c[0])
	}
	require.Equal(t, "c|f|f|t", s.row("SELECT name, is_holdable, is_binary, is_scrollable FROM pg_cursors"))
	require.Equal(t, "42P03", s.code("DECLARE c CURSOR FOR SELECT 1"))
	s.must("ROLLBACK")
	require.Empty(t, s.rows("SELECT * FROM pg_cursors"))
}

func TestCursorRules(t *testing.T) {
	s := open(t).connect()
	s.must("CREATE TABLE t (a int)", "INSERT INTO t SELECT generate_series(1, 10)")
	s.fails("DECLARE c CURSOR FOR SELECT 1", "25P01", "DECLARE CURSOR can only be used in transaction blocks")
	s.fails("FETCH nope", "34000", `cursor "nope" does not exist`)
	s.fails("CLOSE nope", "34000", `cursor "nope" does not exist`)
	s.must("BEGIN", "DECLARE n NO SCROLL CURSOR FOR SELECT a FROM t ORDER BY a")
	require.Equal(t, []string{"1", "2", "3"}, s.rows("FETCH 3 n"))
	require.Equal(t, []string{"5"}, s.rows("FETCH ABSOLUTE 5 n"))
	for _, q := range []string{"FETCH 0 n", "FETCH PRIOR n", "FETCH LAST n", "FETCH ABSOLUTE 1 n", "FETCH BACKWARD ALL n"} {
		s.must("CLOSE n", "DECLARE n NO SCROLL CURSOR FOR SELECT a FROM t ORDER BY a", "MOVE 5 n", "SAVEPOINT s")
		e := s.fails(q, "55000", "cursor can only scan forward")
		require.Equal(t, "Declare it with SCROLL option to enable backward scan.", e.Hint)
		s.must("ROLLBACK TO s")
		s.fails("FETCH n", "55000", `portal "n" cannot be run`)
		s.must("ROLLBACK TO s")
	}
	s.must("SAVEPOINT a", "DECLARE x CURSOR FOR SELECT 1", "RELEASE a")
	require.Equal(t, []string{"1"}, s.rows("FETCH x"))
	s.must("SAVEPOINT b", "DECLARE y CURSOR FOR SELECT 1", "ROLLBACK TO b")
	s.fails("FETCH y", "34000", `cursor "y" does not exist`)
	s.must("ROLLBACK", "BEGIN")
	s.fails("DECLARE c SCROLL NO SCROLL CURSOR FOR SELECT 1", "42P11", "cannot specify both SCROLL and NO SCROLL")
	s.must("ROLLBACK")
	require.Equal(t, []string{"1"}, s.rows("DECLARE c CURSOR FOR SELECT 1; FETCH c"), "several statements form a block")

	// What a cursor reads is the moment of its declaration.
	s.must("BEGIN", "DECLARE c CURSOR FOR SELECT count(*) FROM t", "INSERT INTO t VALUES (11)")
	require.Equal(t, []string{"10"}, s.rows("FETCH c"))
	s.must("DECLARE d CURSOR FOR SELECT count(*) FROM t")
	require.Equal(t, []string{"11"}, s.rows("FETCH d"))
	s.must("ROLLBACK")
}

func TestCursorWithHold(t *testing.T) {
	d := open(t)
	s := d.connect()
	s.must("CREATE TABLE t (a int)", "INSERT INTO t SELECT generate_series(1, 10)")
	s.must("BEGIN", "DECLARE h CURSOR WITH HOLD FOR SELECT a FROM t ORDER BY a")
	require.Equal(t, []string{"1", "2"}, s.rows("FETCH 2 h"))
	s.must("INSERT INTO t VALUES (11)", "COMMIT")
	require.Equal(t, []string{"3", "4"}, s.rows("FETCH 2 h"))
	require.Equal(t, []string{"3", "2", "1"}, s.rows("FETCH BACKWARD 3 h"))
	require.Len(t, s.rows("FETCH ALL h"), 9)
	s.must("CLOSE h", "DECLARE h NO SCROLL CURSOR WITH HOLD FOR SELECT a FROM t ORDER BY a")
	require.Equal(t, []string{"1"}, s.rows("FETCH h"))
	s.must("DELETE FROM t")
	require.Equal(t, []string{"2", "3"}, s.rows("FETCH 2 h"))
	s.must("BEGIN", "ROLLBACK", "CLOSE ALL")
	require.Equal(t, "0", s.row("SELECT count(*) FROM pg_cursors"))
	require.Equal(t, "22012", s.code("BEGIN; DECLARE z CURSOR WITH HOLD FOR SELECT 1 / (a - 1) FROM generate_series(1, 3) AS a; COMMIT"))
	require.Equal(t, "34000", s.code("FETCH z"))

	// More rows than memory is for: they go to a file, up to the limit.
	const many = 300_000
	s.must(fmt.Sprintf("DECLARE big SCROLL CURSOR WITH HOLD FOR SELECT g, repeat('x', 50) FROM generate_series(1, %d) AS g", many))
	require.Equal(t, fmt.Sprint(many), strings.SplitN(s.row("FETCH LAST big"), "|", 2)[0])
	require.Equal(t, "12345", strings.SplitN(s.row("FETCH ABSOLUTE 12345 big"), "|", 2)[0])
	require.Equal(t, "12344", strings.SplitN(s.row("FETCH PRIOR big"), "|", 2)[0])
	s.must("DISCARD ALL", "SET temp_file_limit = 5000")
	s.fails(fmt.Sprintf("DECLARE big CURSOR WITH HOLD FOR SELECT g, repeat('x', 50) FROM generate_series(1, %d) AS g", many), "53400",
		"temporary file size exceeds temp_file_limit (5000kB)")
}

// TestCursorWire is what drivers do with cursors: describe and execute them as portals, and fetch from portals they have bound.
func TestCursorWire(t *testing.T) {
	d := open(t)
	s := d.connect()
	q := func(text string) pgproto3.FrontendMessage { return &pgproto3.Query{String: text} }
	require.Equal(t, []string{"C(BEGIN)", "Z(T)", "C(DECLARE CURSOR)", "Z(T)", "T(f0)", "T(f0)", "D(1)", "D(2)", "C(FETCH 2)", "Z(T)", "D(3)", "PortalSuspended", "Z(T)", "C(CLOSE CURSOR)", "Z(T)"},
		s.raw(5, q("BEGIN"), q("DECLARE cur CURSOR FOR SELECT * FROM generate_series(1, 5)"), &pgproto3.Describe{ObjectType: 'P', Name: "cur"}, q("FETCH FORWARD 2 cur"),
			&pgproto3.Execute{Portal: "cur", MaxRows: 1}, &pgproto3.Sync{}, q("CLOSE cur")))
	require.Equal(t, []string{"ParseComplete", "BindComplete", "C(DECLARE CURSOR)", "ParseComplete", "t[]", "T(f0,f0)", "BindComplete", "D(\x00\x00\x00\x07,x)", "C(FETCH 1)", "Z(T)"},
		s.raw(1, &pgproto3.Parse{Query: "DECLARE p BINARY CURSOR FOR SELECT $1::int, 'x'::text"}, &pgproto3.Bind{Parameters: [][]byte{[]byte("7")}}, &pgproto3.Execute{},
			&pgproto3.Parse{Query: "FETCH 5 FROM p"}, &pgproto3.Describe{ObjectType: 'S'}, &pgproto3.Bind{ResultFormatCodes: []int16{1, 1}}, &pgproto3.Execute{}, &pgproto3.Sync{}))
	require.Equal(t, []string{"T(f1,f1)", "C(FETCH 0)", "Z(T)"}, s.raw(1, q("FETCH p")), "rows of a binary cursor are binary in a simple query, too")
	require.Equal(t, []string{"ParseComplete", "BindComplete", "Z(T)", "T(f0)", "D(1)", "D(2)", "C(FETCH 2)", "Z(T)", "D(3)", "C(SELECT 1)", "Z(T)"},
		s.raw(3, &pgproto3.Parse{Query: "SELECT * FROM generate_series(1, 3)"}, &pgproto3.Bind{DestinationPortal: "bound"}, &pgproto3.Sync{}, q("FETCH 2 bound"),
			&pgproto3.Execute{Portal: "bound"}, &pgproto3.Sync{}))
	require.Equal(t, []string{"E(34000)", "Z(E)"}, s.raw(1, &pgproto3.Describe{ObjectType: 'P', Name: "nope"}, &pgproto3.Sync{}))
	s.must("ROLLBACK", "PREPARE p (int) AS SELECT $1 + 1")
	require.Equal(t, "p|PREPARE p (int) AS SELECT $1 + 1|{integer}|t", s.row("SELECT name, statement, parameter_types, from_sql FROM pg_prepared_statements"))
}

func TestStatActivity(t *testing.T) {
	d := open(t)
	a, b := d.connect(), d.connect()
	a.must("SET application_name = 'first'", "BEGIN", "SELECT 1")
	require.Equal(t, "first|idle in transaction|SELECT 1", b.row(fmt.Sprintf("SELECT application_name, state, query FROM pg_stat_activity WHERE pid = %d", a.PgConn().PID())))
	require.Equal(t, "active", b.row("SELECT state FROM pg_stat_activity WHERE pid = pg_backend_pid()"))
	require.Equal(t, "user|default", b.row("SELECT context, source FROM pg_settings WHERE name = 'statement_timeout'"))
	b.must("SET statement_timeout = '5s'")
	require.Equal(t, "session|0|0", b.row("SELECT source, boot_val, reset_val FROM pg_settings WHERE name = 'statement_timeout'"))
}
