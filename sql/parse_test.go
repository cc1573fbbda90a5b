package sql

import (
	"bufio"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"reflect"
	"strconv"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/stretchr/testify/require"

	"github.com/streamdb/streamdb/internal/pgerr"
	"github.com/streamdb/streamdb/sql/internal/lex"
	"github.com/streamdb/streamdb/sql/pgext"
	"github.com/streamdb/streamdb/sql/sqlprint"
)

var rewrite = flag.Bool("rewrite", false, "rewrite the golden files")

func lines(t testing.TB, name string) []string {
	f, err := os.Open(filepath.Join("testdata", name))
	require.NoError(t, err)
	defer func() { require.NoError(t, f.Close()) }()
	var out []string
	for sc := bufio.NewScanner(f); sc.Scan(); {
		if s := sc.Text(); strings.TrimSpace(s) != "" && !strings.HasPrefix(s, "#") {
			out = append(out, s)
		}
	}
	return out
}

// golden compares got with a file of testdata, or writes the file.
func golden(t *testing.T, name, got string) {
	path := filepath.Join("testdata", name)
	if *rewrite {
		require.NoError(t, os.WriteFile(path, []byte(got), 0o644))
		return
	}
	want, err := os.ReadFile(path)
	require.NoError(t, err)
	require.Equal(t, string(want), got, "run with -rewrite and review the difference")
}

func parseOne(t testing.TB, text string) Statement {
	stmts, err := Parse(text)
	require.NoError(t, err, text)
	require.Len(t, stmts, 1, text)
	return stmts[0]
}

// TestRoundTrip prints each query through the views and parses that again: the views lose nothing, and what they give is in the
// golden file.
func TestRoundTrip(t *testing.T) {
	var b strings.Builder
	for _, s := range lines(t, "roundtrip.sql") {
		q := parseOne(t, s).(*Query)
		printed := sqlprint.Query(pgext.QueryOf(q.Stmt))
		again := parseOne(t, printed).(*Query)
		require.Equal(t, printed, sqlprint.Query(pgext.QueryOf(again.Stmt)), s)
		fmt.Fprintf(&b, "%s\n  %s\n", s, printed)
	}
	golden(t, "roundtrip.golden", b.String())
}

// TestStatements shows the struct of every kind of statement.
func TestStatements(t *testing.T) {
	var b strings.Builder
	seen := map[string]bool{}
	for _, s := range lines(t, "statements.sql") {
		st := parseOne(t, s)
		seen[reflect.TypeOf(st).Elem().Name()] = true
		start, end := st.Span()
		require.Equal(t, s, s[start:end])
		if !strings.Contains(s, "PASSWORD") {
			require.Equal(t, s, st.SourceText())
		}
		fmt.Fprintf(&b, "%s\n  %s\n", s, dump(reflect.ValueOf(st)))
	}
	golden(t, "statements.golden", b.String())
	require.Greater(t, len(seen), 50)
}

// dump prints the fields of a statement that are not zero, queries through the printer.
func dump(v reflect.Value) string {
	switch v.Kind() {
	case reflect.Pointer, reflect.Interface:
		if v.IsNil() {
			return "nil"
		}
		switch x := v.Interface().(type) {
		case *Query:
			s := "{" + printBody(x) + "}"
			if x.EmitOnWindowClose {
				s += " emit"
			}
			return s
		case *TypeName:
			return dumpType(*x)
		}
		return dump(v.Elem())
	case reflect.Struct:
		switch x := v.Interface().(type) {
		case Name:
			return x.String()
		case Ident:
			return QuoteIdent(x.Name)
		case TypeName:
			return dumpType(x)
		}
		var parts []string
		for i := range v.NumField() {
			f := v.Type().Field(i)
			if f.Name == "Base" {
				if n := v.Field(i).Interface().(Base).MaxParam; n > 0 {
					parts = append(parts, fmt.Sprint("MaxParam: ", n))
				}
				continue
			}
			if f.IsExported() && !v.Field(i).IsZero() && !strings.HasSuffix(f.Name, "Pos") {
				parts = append(parts, f.Name+": "+dump(v.Field(i)))
			}
		}
		return v.Type().Name() + "(" + strings.Join(parts, ", ") + ")"
	case reflect.Slice:
		var parts []string
		for i := range v.Len() {
			parts = append(parts, dump(v.Index(i)))
		}
		return "[" + strings.Join(parts, ", ") + "]"
	case reflect.String:
		return strconv.Quote(v.String())
	}
	return fmt.Sprint(v.Interface())
}

// printBody prints the query of a statement; the items of SET as assignments.
func targets(ts []pgext.AssignTarget) string {
	xs := make([]string, len(ts))
	for i, t := range ts {
		if xs[i] = lex.QuoteIdent(t.Column); t.Part != nil {
			xs[i] = sqlprint.Expr(t.Part)
		}
	}
	return "(" + strings.Join(xs, ", ") + ")"
}

func printBody(q *Query) string {
	if !strings.Contains(q.Translated, `"assign`) {
		return sqlprint.Query(pgext.QueryOf(q.Stmt))
	}
	v := pgext.QueryOf(q.Stmt)
	var set []string
	for _, a := range pgext.Assignments(v.Select) {
		set = append(set, targets(a.Columns)+" = "+sqlprint.Expr(a.Value))
	}
	v.Select.Targets = nil
	return "SET " + strings.Join(set, ", ") + " : " + sqlprint.Query(v)
}

func dumpType(x TypeName) string {
	return fmt.Sprintf("%s=%s.%s%v[%d]%s", x.Text, x.Schema, x.Name, x.Mods, x.ArrayDims, x.Interval)
}

// TestErrors compares with what PostgreSQL said of the same text: SQLSTATE, position and message.
func TestErrors(t *testing.T) {
	n := 0
	for _, l := range lines(t, "errors.txt") {
		f := strings.SplitN(l, "\t", 4)
		require.Len(t, f, 4, l)
		_, err := Parse(f[3])
		if err == nil {
			t.Errorf("accepted: %s", f[3])
			continue
		}
		e := pgerr.From(err)
		pos := 0
		if e.Pos >= 0 {
			pos = utf8.RuneCountInString(f[3][:e.Pos]) + 1
		}
		if got := fmt.Sprintf("%s\t%d\t%s", e.Code, pos, e.Message); got != strings.Join(f[:3], "\t") {
			t.Errorf("%s\n  got  %s\n  want %s", f[3], got, strings.Join(f[:3], "\t"))
		}
		n++
	}
	require.Greater(t, n, 100)
}

// TestRefused lists what is refused on purpose, and what TiDB's own grammar would have read as something else.
func TestRefused(t *testing.T) {
	for text, code := range map[string]pgerr.Code{
		"SELECT pg_ext.cast(1, 'int')":       pgerr.InvalidSchemaName,
		"SELECT db.pg_ext.cast(1, 'int')":    pgerr.InvalidSchemaName,
		"SELECT * FROM pg_ext.no_from":       pgerr.InvalidSchemaName,
		"CREATE SCHEMA pg_ext":               pgerr.ReservedName,
		"SELECT 1 LIMIT 1 FOR UPDATE OF a.b": pgerr.SyntaxError,
		"WITH x AS (MERGE INTO t USING u ON a = b WHEN MATCHED THEN DELETE) SELECT 1": pgerr.FeatureNotSupported,
		"DO $$ BEGIN END $$":                     pgerr.FeatureNotSupported,
		"CALL f()":                               pgerr.FeatureNotSupported,
		"SELECT \xff":                            pgerr.CharacterNotInRepertoire,
		"SELECT 'a\x00b'":                        pgerr.CharacterNotInRepertoire,
		"SELECT a DIV b FROM t":                  "", // an alias, as in PostgreSQL
		"SELECT `a`":                             pgerr.SyntaxError,
		"SELECT a := 1":                          pgerr.SyntaxError,
		"SELECT a SQL_CACHE b FROM t":            pgerr.SyntaxError,
		"SELECT 1 INTO OUTFILE 'x'":              pgerr.SyntaxError,
		"SELECT a FROM t GROUP BY a WITH ROLLUP": pgerr.SyntaxError,
		"SELECT * FROM a STRAIGHT_JOIN b":        pgerr.SyntaxError,
	} {
		_, err := Parse(text)
		if code == "" && strings.Contains(text, "DIV") {
			code = pgerr.SyntaxError // `a DIV` is a column with an alias, so `b` is one word too many
		}
		require.Equal(t, code, pgerr.CodeOf(err), text)
		if code == pgerr.FeatureNotSupported {
			require.NotEmpty(t, pgerr.From(err).Hint, text)
		}
	}
}

func TestSeveralStatements(t *testing.T) {
	stmts, err := Parse(" ; SELECT 1;; INSERT INTO t VALUES ($2) ; -- end\n")
	require.NoError(t, err)
	require.Len(t, stmts, 2)
	start, end := stmts[1].Span()
	require.Equal(t, 14, start)
	require.Equal(t, "INSERT INTO t VALUES ($2)", stmts[1].SourceText())
	require.Equal(t, 14+len(stmts[1].SourceText()), end)
	require.Equal(t, 2, stmts[1].Params())
	require.Equal(t, 0, stmts[0].Params())

	stmts, err = Parse(" ;; /* nothing */ ")
	require.NoError(t, err)
	require.Empty(t, stmts)
}

func TestLongIdentifier(t *testing.T) {
	long := strings.Repeat("a", 70)
	q := parseOne(t, "SELECT 1 AS "+long).(*Query)
	require.Equal(t, long[:63], pgext.QueryOf(q.Stmt).Select.Targets[0].Alias)
	require.Len(t, q.Notices, 1)
	require.Equal(t, pgerr.NameTooLong, q.Notices[0].Code)
	require.Equal(t, 12, q.Notices[0].Pos)
}

// TestLarge holds that long inputs are linear and deep ones are refused, not a crash.
func TestLarge(t *testing.T) {
	q := parseOne(t, "SELECT "+strings.Repeat("a = 1 AND ", 10000)+"true").(*Query)
	l, ok := pgext.ExprOf(q.Expr()).(*pgext.Logic)
	require.True(t, ok)
	require.Len(t, l.Args, 10001)
	parseOne(t, "SELECT a IN ("+strings.Repeat("1, ", 20000)+"1)")
	parseOne(t, "VALUES (1)"+strings.Repeat(", (1)", 20000))
	parseOne(t, "SELECT 1"+strings.Repeat(" UNION ALL SELECT 1", 2000))
	_, err := Parse("SELECT " + strings.Repeat("(", 5000) + "1" + strings.Repeat(")", 5000))
	require.Equal(t, pgerr.StatementTooComplex, pgerr.CodeOf(err))
	_, err = Parse("SELECT " + strings.Repeat("- ", 100000) + "1")
	require.Equal(t, pgerr.StatementTooComplex, pgerr.CodeOf(err))
	_, err = Parse(strings.Repeat("(", 100000))
	require.Error(t, err)
}

func TestColumnName(t *testing.T) {
	for text, want := range map[string]string{
		"a.b": "b", "count(*)": "count", "1": "?column?", "1 + 2": "?column?", "x::int": "x", "1::int": "int4", "'x'::varchar(3)": "varchar",
		"CASE WHEN true THEN 1 END": "case", "CASE WHEN true THEN 1 ELSE a END": "a", "ARRAY[1]": "array", "ROW(1)": "row", "coalesce(a, 1)": "coalesce",
		"nullif(a, 1)": "nullif", "(SELECT a FROM t)": "a", "(SELECT max(a) FROM t)": "max", "EXISTS (SELECT 1)": "exists", "NOT true": "?column?",
		"current_date": "current_date", "true": "bool", "date '2020-01-01'": "date", "interval '1' day": "interval", "(a).b": "b", "a[1]": "a",
		"extract(year FROM a)": "extract", "a AT TIME ZONE 'x'": "timezone", "trim(a)": "btrim", "sum(a) OVER ()": "sum", "a COLLATE \"C\"": "a",
		"a IS NULL": "?column?", "- a": "?column?", "greatest(a, b)": "greatest", "ARRAY(SELECT 1)": "array", "1.5::double precision": "float8",
	} {
		q := parseOne(t, "SELECT "+text).(*Query)
		require.Equal(t, want, ColumnName(q.Expr()), text)
	}
}

func TestParseTypeName(t *testing.T) {
	for text, want := range map[string]string{
		"int": "pg_catalog.int4[][0]", "integer[]": "pg_catalog.int4[][1]", "numeric(10,2)": "pg_catalog.numeric[10 2][0]", "numeric(3,-1)": "pg_catalog.numeric[3 -1][0]",
		"char": "pg_catalog.bpchar[1][0]", "\"char\"": ".char[][0]", "character varying(5)": "pg_catalog.varchar[5][0]", "text": ".text[][0]",
		"timestamp(3) with time zone": "pg_catalog.timestamptz[3][0]", "time without time zone": "pg_catalog.time[][0]", "double precision": "pg_catalog.float8[][0]",
		"float(10)": "pg_catalog.float4[][0]", "float": "pg_catalog.float8[][0]", "int[][3]": "pg_catalog.int4[][2]", "int ARRAY[3]": "pg_catalog.int4[][1]",
		"int array": "pg_catalog.int4[][1]", "\"Foo\".\"Bar\"[]": "Foo.Bar[][1]", "pg_catalog.int8": "pg_catalog.int8[][0]", "interval day to second(3)": "pg_catalog.interval[3][0]day to second",
		"bit": "pg_catalog.bit[1][0]", "bit varying": "pg_catalog.varbit[][0]", "Int4": ".int4[][0]", "jsonb": ".jsonb[][0]",
	} {
		ty, err := ParseTypeName(text)
		require.NoError(t, err, text)
		require.Equal(t, want, fmt.Sprintf("%s.%s%v[%d]%s", ty.Schema, ty.Name, ty.Mods, ty.ArrayDims, ty.Interval), text)
		again, err := ParseTypeName(ty.Text)
		require.NoError(t, err, ty.Text)
		require.Equal(t, ty, again)
	}
	_, err := ParseTypeName("int x")
	require.Error(t, err)
}

func TestQuoteIdent(t *testing.T) {
	for in, want := range map[string]string{"a": "a", "A": `"A"`, "select": `"select"`, "abort": "abort", "a b": `"a b"`, `a"b`: `"a""b"`, "1a": `"1a"`, "": `""`, "between": `"between"`} {
		require.Equal(t, want, QuoteIdent(in))
	}
}

// TestConcurrent parses from several goroutines: the pool's parsers are not shared while in use.
func TestConcurrent(t *testing.T) {
	texts := lines(t, "roundtrip.sql")
	for i := range 4 {
		t.Run(strconv.Itoa(i), func(t *testing.T) {
			t.Parallel()
			for _, s := range texts {
				parseOne(t, s)
			}
		})
	}
}
