package server_test

import (
	"bytes"
	"context"
	"fmt"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgproto3"
	"github.com/stretchr/testify/require"
)

// copyIn runs a COPY … FROM STDIN over data.
func (s *session) copyIn(q, data string) (string, error) {
	tag, err := s.PgConn().CopyFrom(s.d.ctx, strings.NewReader(data), q)
	return tag.String(), err
}

func (s *session) copyOut(q string) string {
	s.d.t.Helper()
	var b bytes.Buffer
	tag, err := s.PgConn().CopyTo(s.d.ctx, &b, q)
	require.NoError(s.d.t, err, q)
	require.Regexp(s.d.t, `^COPY \d+$`, tag.String())
	return b.String()
}

func TestCopyText(t *testing.T) {
	s := open(t).connect()
	s.must("CREATE TABLE t (a int PRIMARY KEY, b text, c numeric(6,2) DEFAULT 7, d varchar(3))")
	tag, err := s.copyIn("COPY t FROM STDIN", "1\tx\t1.5\tabc\n2\t\\N\t\\N\t\\N\n3\ta\\tb\\\\c\\n\\x41\\101\t2\t\n\\.\n")
	require.NoError(t, err)
	require.Equal(t, "COPY 3", tag)
	require.Equal(t, []string{"1|x|1.50|abc", "2|NULL|NULL|NULL", "3|a\tb\\c\nAA|2.00|"}, s.rows("TABLE t ORDER BY a"))
	require.Equal(t, "1\tx\t1.50\tabc\n2\t\\N\t\\N\t\\N\n3\ta\\tb\\\\c\\nAA\t2.00\t\n", s.copyOut("COPY (TABLE t ORDER BY a) TO STDOUT"))
	_, err = s.copyIn("COPY t (b, a) FROM STDIN DELIMITER '|' NULL ''", "|4\r\nx\\|y|5\r\n")
	require.NoError(t, err)
	require.Equal(t, []string{"4|NULL|7.00|NULL", "5|x|y|7.00|NULL"}, s.rows("SELECT * FROM t WHERE a > 3 ORDER BY a"))
	_, err = s.copyIn("COPY t (a) FROM STDIN WHERE a > 7 AND b IS NULL", "7\n8\n")
	require.Equal(t, "42703", string(codeOf(t, err)), "only the columns copied")
	_, err = s.copyIn("COPY t (a) FROM STDIN WHERE a > 7", "7\n8\n9")
	require.NoError(t, err)
	require.Equal(t, []string{"8", "9"}, s.rows("SELECT a FROM t WHERE a > 5 ORDER BY a"))
}

func TestCopyCSV(t *testing.T) {
	s := open(t).connect()
	s.must("CREATE TABLE t (a int PRIMARY KEY, b text)")
	tag, err := s.copyIn("COPY t (b, a) FROM STDIN (FORMAT csv, HEADER match, NULL 'NULL', FORCE_NOT_NULL (b))",
		"b,a\n\"he said \"\"x\"\"\ntwo\",10\nNULL,11\n\"NULL\",12\n")
	require.NoError(t, err)
	require.Equal(t, "COPY 3", tag)
	require.Equal(t, []string{"10|he said \"x\"\ntwo", "11|NULL", "12|NULL"}, s.rows("TABLE t ORDER BY a"))
	require.Equal(t, "a,b\n10,\"he said \"\"x\"\"\ntwo\"\n11,\"NULL\"\n12,\"NULL\"\n", s.copyOut("COPY (TABLE t ORDER BY a) TO STDOUT (FORMAT csv, HEADER, NULL 'NULL')"))
	require.Equal(t, "1,\"2\"\n", s.copyOut("COPY (SELECT 1 AS a, 2 AS b) TO STDOUT WITH CSV FORCE QUOTE b"))
	require.Equal(t, "\"\\.\"\n", s.copyOut(`COPY (SELECT '\.') TO STDOUT CSV`))
	_, err = s.copyIn(`COPY t FROM STDIN CSV QUOTE '''' ESCAPE '\' NULL 'x'`, "60,'a\\'b'\n61,x\n62,'x'\n")
	require.NoError(t, err)
	require.Equal(t, []string{"60|a'b", "61|NULL", "62|x"}, s.rows("SELECT * FROM t WHERE a >= 60 ORDER BY a"))
	_, err = s.copyIn("COPY t FROM STDIN (FORMAT csv, FORCE_NULL (b))", "63,\"\"\n")
	require.NoError(t, err)
	require.Equal(t, "63|NULL", s.row("SELECT * FROM t WHERE a = 63"))
}

// TestCopyErrors holds what PostgreSQL says of bad input; nothing of a failed COPY stays.
func TestCopyErrors(t *testing.T) {
	s := open(t).connect()
	s.must("CREATE TABLE t (a int PRIMARY KEY, b text, c numeric DEFAULT 7, d varchar(3))", "CREATE TABLE g (a int, b int GENERATED ALWAYS AS (a * 2) STORED)",
		"CREATE VIEW v AS SELECT * FROM t", "CREATE MATERIALIZED VIEW mv AS SELECT a FROM t")
	for _, c := range []struct{ q, data, code, message, where string }{
		{"COPY t FROM STDIN", "20\tx\n", "22P04", `missing data for column "c"`, `COPY t, line 1: "20	x"`},
		{"COPY t FROM STDIN", "20\tx\t1\ta\tb\n", "22P04", "extra data after last expected column", `COPY t, line 1: "20	x	1	a	b"`},
		{"COPY t FROM STDIN", "21\tok\t1\ta\nx\tbad\t1\ta\n", "22P02", `invalid input syntax for type integer: "x"`, `COPY t, line 2, column a: "x"`},
		{"COPY t FROM STDIN", "22\tok\t1\tabcd\n", "22001", "value too long for type character varying(3)", `COPY t, line 1, column d: "abcd"`},
		{"COPY t FROM STDIN", "\\N\tok\t1\tabc\n", "23502", `null value in column "a" of relation "t" violates not-null constraint`, `COPY t, line 1: "\N	ok	1	abc"`},
		{"COPY t FROM STDIN", "1\ta\t\\N\t\\N\n1\ta\t\\N\t\\N\n", "23505", `duplicate key value violates unique constraint "t_pkey"`, `COPY t, line 2: "1	a	\N	\N"`},
		{"COPY t (a, b) FROM STDIN", "1\ta\r\n2\tb\n", "22P04", "literal newline found in data", "COPY t, line 2"},
		{"COPY t (a, b) FROM STDIN", "1\ta\\.b\n", "22P04", "end-of-copy marker corrupt", "COPY t, line 1"},
		{"COPY t (a, b) FROM STDIN", "1\t\xc3\x28\n", "22021", `invalid byte sequence for encoding "UTF8": 0xc3 0x28`, "COPY t, line 1"},
		{"COPY t (a, b) FROM STDIN", "1\t\\x00\n", "22021", `invalid byte sequence for encoding "UTF8": 0x00`, `COPY t, line 1: "1	\x00"`},
		{"COPY t (a, b) FROM STDIN CSV", "70,\"abc\n", "22P04", "unterminated CSV quoted field", "COPY t, line 1: \"70,\"abc\n\""},
		{"COPY t (a, b) FROM STDIN (FORMAT csv, HEADER MATCH)", "a,c\n", "22P04", `column name mismatch in header line field 2: got "c", expected "b"`, `COPY t, line 1: "a,c"`},
		{"COPY t (a, b) FROM STDIN BINARY", "nonsense", "22P04", "COPY file signature not recognized", ""},
		{"COPY t (a, nope) FROM STDIN", "", "42703", `column "nope" of relation "t" does not exist`, ""},
		{"COPY t (a, a) FROM STDIN", "", "42701", `column "a" specified more than once`, ""},
		{"COPY nope FROM STDIN", "", "42P01", `relation "nope" does not exist`, ""},
		{"COPY g (b) FROM STDIN", "", "42P10", `column "b" is a generated column`, ""},
		{"COPY v FROM STDIN", "", "42809", `cannot copy to view "v"`, ""},
		{"COPY mv FROM STDIN", "", "42809", `cannot copy to materialized view "mv"`, ""},
		{"COPY v TO STDOUT", "", "42809", `cannot copy from view "v"`, ""},
		{"COPY t FROM STDIN (FORMAT xml)", "", "22023", `COPY format "xml" not recognized`, ""},
		{"COPY t FROM STDIN (DELIMITER 'ab')", "", "0A000", "COPY delimiter must be a single one-byte character", ""},
		{"COPY t FROM STDIN (DELIMITER 'a')", "", "22023", `COPY delimiter cannot be "a"`, ""},
		{"COPY t FROM STDIN (nonsense)", "", "42601", `option "nonsense" not recognized`, ""},
		{"COPY t FROM STDIN (FORMAT csv, FORMAT csv)", "", "42601", "conflicting or redundant options", ""},
		{"COPY t FROM STDIN (QUOTE '''')", "", "0A000", "COPY quote available only in CSV mode", ""},
		{"COPY t TO STDOUT (FORMAT csv, FORCE_NULL (a))", "", "0A000", "COPY force null only available using COPY FROM", ""},
		{"COPY t TO STDOUT (FORMAT csv, FORCE_QUOTE (z))", "", "42703", `column "z" of relation "t" does not exist`, ""},
		{"COPY t FROM STDIN (FORMAT csv, HEADER 3)", "", "42601", `header requires a Boolean value or "match"`, ""},
		{"COPY t TO STDOUT (HEADER match)", "", "0A000", `cannot use "match" with HEADER in COPY TO`, ""},
		{"COPY t FROM STDIN (FORMAT binary, HEADER)", "", "0A000", "cannot specify HEADER in BINARY mode", ""},
		{"COPY t FROM STDIN (ENCODING latin1)", "", "22023", `argument to option "encoding" must be a valid encoding name`, ""},
		{"COPY t FROM '/etc/passwd'", "", "0A000", "COPY to or from a file of the server is not supported", ""},
		{"COPY t TO PROGRAM 'rm'", "", "0A000", "COPY to or from a program of the server is not supported", ""},
		{"COPY (SELECT $1) TO STDOUT", "", "42P02", "there is no parameter $1", ""},
		{"COPY (DELETE FROM t) TO STDOUT", "", "0A000", "COPY query must have a RETURNING clause", ""},
		{"COPY t TO STDOUT WHERE true", "", "42601", "WHERE clause not allowed with COPY TO", ""},
	} {
		_, err := s.copyIn(c.q, c.data)
		e := pgErr(t, err)
		require.Equal(t, c.code, e.Code, "%s: %s", c.q, e.Message)
		require.Equal(t, c.message, e.Message, c.q)
		if c.where != "" && c.code != "23505" {
			require.Equal(t, c.where, e.Where, c.q)
		}
	}
	require.Equal(t, "0", s.row("SELECT count(*) FROM t"))
}

func TestCopyInTransaction(t *testing.T) {
	d := open(t)
	s := d.connect()
	s.must("CREATE TABLE t (a int PRIMARY KEY)", "CREATE MATERIALIZED VIEW mv AS SELECT count(*) AS n FROM t", "BEGIN")
	_, err := s.copyIn("COPY t FROM STDIN", "1\n2\n")
	require.NoError(t, err)
	require.Equal(t, "2", s.row("SELECT count(*) FROM t"))
	_, err = s.copyIn("COPY t FROM STDIN", "3\n1\n")
	require.Equal(t, `COPY t, line 2: "1"`, pgErr(t, err).Where)
	require.Equal(t, "25P02", s.code("SELECT 1"))
	s.must("ROLLBACK")
	require.Equal(t, "0", s.row("SELECT count(*) FROM t"))
	s.must("BEGIN READ ONLY")
	_, err = s.copyIn("COPY t FROM STDIN", "3\n")
	require.Equal(t, "25006", pgErr(t, err).Code)
	s.must("ROLLBACK")

	var b strings.Builder
	for i := range 10_000 {
		fmt.Fprintln(&b, i)
	}
	tag, err := s.copyIn("COPY t FROM STDIN", b.String())
	require.NoError(t, err)
	require.Equal(t, "COPY 10000", tag)
	require.Equal(t, "10000", s.row("SELECT n FROM mv"))
	require.Equal(t, "10000\n", s.copyOut("COPY mv TO STDOUT"), "materialized views can be copied from")
	require.Equal(t, "49995000", s.row("SELECT sum(a) FROM t"))
	d.crash()
	require.Equal(t, "10000", d.connect().row("SELECT n FROM mv"))
}

// TestCopyWire holds that a session stays in step whatever happens in the midst of data.
func TestCopyWire(t *testing.T) {
	d := open(t)
	s := d.connect()
	s.must("CREATE TABLE t (a int PRIMARY KEY)")
	q := func(text string) pgproto3.FrontendMessage { return &pgproto3.Query{String: text} }
	data := func(text string) pgproto3.FrontendMessage { return &pgproto3.CopyData{Data: []byte(text)} }
	require.Equal(t, []string{"CopyInResponse", "E(22P02)", "Z(I)", "T(f0)", "D(1)", "C(SELECT 1)", "Z(I)"},
		s.raw(2, q("COPY t FROM STDIN"), data("1\nx\n"), data("2\n"), &pgproto3.CopyDone{}, q("SELECT 1")))
	require.Equal(t, []string{"CopyInResponse", "E(57014)", "Z(I)"}, s.raw(1, q("COPY t FROM STDIN"), data("1\n"), &pgproto3.CopyFail{Message: "changed my mind"}))
	require.Equal(t, []string{"CopyInResponse", "C(COPY 1)", "T(f0)", "D(1)", "C(SELECT 1)", "Z(I)"},
		s.raw(1, q("COPY t FROM STDIN; SELECT count(*) FROM t"), data("1"), &pgproto3.CopyDone{}))
	require.Equal(t, []string{"ParseComplete", "t[]", "NoData", "BindComplete", "CopyInResponse", "C(COPY 1)", "Z(I)"},
		s.raw(1, &pgproto3.Parse{Query: "COPY t FROM STDIN"}, &pgproto3.Describe{ObjectType: 'S'}, &pgproto3.Bind{}, &pgproto3.Execute{},
			data("2\n"), &pgproto3.Flush{}, &pgproto3.CopyDone{}, &pgproto3.Sync{}))
	require.Equal(t, []string{"CopyOutResponse", "CopyData", "CopyData", "CopyDone", "C(COPY 2)", "Z(I)"}, s.raw(1, q("COPY t TO STDOUT")))
	require.Equal(t, []string{"CopyOutResponse", "E(22012)", "Z(I)"}, s.raw(1, q("COPY (SELECT 1 / (a - 1) FROM t) TO STDOUT")))
	require.Equal(t, "57014", s.code("SET statement_timeout = '50ms'; SELECT count(*) FROM generate_series(1, 100000000000)"))
	s.must("SET statement_timeout = 0")

	n, err := s.CopyFrom(d.ctx, pgx.Identifier{"t"}, []string{"a"}, pgx.CopyFromRows([][]any{{int32(10)}, {int32(11)}}))
	require.NoError(t, err)
	require.EqualValues(t, 2, n)
	bin := s.copyOut("COPY t TO STDOUT BINARY")
	// Each message is a row, the first with the signature before it and the last the end of the data: what some clients rely on.
	require.Equal(t, []string{"CopyOutResponse", "CopyData", "CopyData", "CopyData", "CopyDone", "C(COPY 2)", "Z(I)"},
		s.raw(1, q("COPY (SELECT 1 UNION ALL SELECT 2) TO STDOUT (FORMAT binary)")))
	require.Equal(t, []string{"CopyOutResponse", "CopyData", "CopyDone", "C(COPY 0)", "Z(I)"}, s.raw(1, q("COPY (SELECT 1 WHERE false) TO STDOUT (FORMAT binary)")))
	s.must("CREATE TABLE u (a int)")
	_, err = s.copyIn("COPY u FROM STDIN (FORMAT binary)", bin)
	require.NoError(t, err)
	require.Equal(t, []string{"1", "2", "10", "11"}, s.rows("SELECT a FROM u ORDER BY 1"))
	for cut := range len(bin) - 2 {
		_, err = s.copyIn("COPY u FROM STDIN (FORMAT binary)", bin[:cut])
		if err != nil {
			require.Equal(t, "22P04", pgErr(t, err).Code, cut)
		}
	}
	_, err = s.copyIn("COPY u FROM STDIN (FORMAT binary)", bin+"x")
	require.Equal(t, "received copy data after EOF marker", pgErr(t, err).Message)

	gone := d.connect()
	gone.raw(0, q("COPY t FROM STDIN"), data("77\n"))
	require.NoError(t, gone.PgConn().Conn().Close())
	require.Equal(t, "0", s.row("SELECT count(*) FROM t WHERE a = 77"))
}

// TestCopyLimit holds that a transaction too large is refused, not the server's end.
func TestCopyLimit(t *testing.T) {
	s := open(t).connect()
	s.must("CREATE TABLE t (a int PRIMARY KEY, b text)", "ALTER SYSTEM SET max_transaction_memory = 1")
	var b strings.Builder
	for i := range 20_000 {
		fmt.Fprintf(&b, "%d\t%s\n", i, strings.Repeat("x", 50))
	}
	_, err := s.copyIn("COPY t FROM STDIN", b.String())
	var e *pgconn.PgError
	require.ErrorAs(t, err, &e)
	require.Equal(t, "54000", e.Code)
	require.Equal(t, "the changes of the transaction exceed the limit of 1MB", e.Message)
	require.Contains(t, e.Hint, "max_transaction_memory")
	require.Equal(t, "0", s.row("SELECT count(*) FROM t"))
	s.must("ALTER SYSTEM RESET max_transaction_memory")
	_, err = s.PgConn().CopyFrom(context.Background(), strings.NewReader(b.String()), "COPY t FROM STDIN")
	require.NoError(t, err)
}
