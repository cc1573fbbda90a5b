package slt

import (
	"errors"
	"os"
	"path/filepath"
	"testing"

	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgtype"
	"github.com/stretchr/testify/require"
)

func parseText(t *testing.T, text string) ([]*record, error) {
	t.Helper()
	path := filepath.Join(t.TempDir(), "x.slt")
	require.NoError(t, os.WriteFile(path, []byte(text), 0o600))
	return parseFile(path)
}

// SQL and rows may stand in files of their own, which rewriting leaves alone.
func TestParseFiled(t *testing.T) {
	dir := t.TempDir()
	write := func(name, text string) string {
		path := filepath.Join(dir, name)
		require.NoError(t, os.WriteFile(path, []byte(text), 0o600))
		return path
	}
	write("q.sql", "-- all of it\nSELECT a\nFROM t;\n")
	write("q.rows", "1\n2\n")
	recs, err := parseFile(write("x.slt", "query I rowsort\n\\i q.sql\n----\n\\i q.rows\n\nquery I\n\\i q.sql\n----\n3\n"))
	require.NoError(t, err)
	require.Len(t, recs, 2)
	require.Equal(t, "-- all of it\nSELECT a\nFROM t", recs[0].sql)
	require.Equal(t, []string{"1", "2"}, recs[0].want)
	require.False(t, recs[0].rewritable)
	require.Equal(t, []string{"3"}, recs[1].want)
	require.True(t, recs[1].rewritable)
	recs, err = parseFile(write("y.slt", "statement ok\n\\i none.sql\n"))
	require.NoError(t, err)
	require.Contains(t, recs[0].problem, "y.slt:2")
}

func TestParse(t *testing.T) {
	recs, err := parseText(t, `# comment
statement ok
CREATE TABLE t
  (a int);

skipif mysql # reason one
onlyif streamdb
statement error 22012
SELECT 1/0

connection other
query IT rowsort label
SELECT a, b
FROM t
----
1 x
2 y

for $x in p q
loop $i 1 3
query I
SELECT $i
----
1

endloop
endfor
flush
let $v
SELECT 1

append /tmp/x
a line
another

halt
this is not looked at
`)
	require.NoError(t, err)
	require.Len(t, recs, 10)
	require.Equal(t, "CREATE TABLE t\n  (a int)", recs[0].sql)
	require.Equal(t, []condition{{label: "mysql", reason: "reason one"}, {only: true, label: "streamdb"}}, recs[1].conditions)
	require.Equal(t, "22012", recs[1].errorWant)
	require.Equal(t, "other", recs[2].conn)
	require.Equal(t, "label", recs[2].label)
	require.Equal(t, rowSort, recs[2].sort)
	require.Equal(t, []string{"1 x", "2 y"}, recs[2].want)
	require.True(t, recs[2].rewritable)
	require.Equal(t, map[string]string{"x": "q", "i": "2"}, recs[6].vars)
	require.False(t, recs[6].rewritable)
	require.Equal(t, kindFlush, recs[7].kind)
	require.Equal(t, "v", recs[8].name)
	require.Equal(t, []string{"a line", "another"}, recs[9].want)
}

// refusal is what is wrong with a file, or with the first malformed record of it.
func refusal(t *testing.T, text string) string {
	t.Helper()
	recs, err := parseText(t, text)
	if err != nil {
		return err.Error()
	}
	for _, r := range recs {
		if r.kind == kindMalformed {
			return r.problem
		}
	}
	return ""
}

// The records around a malformed one are as they would be without it.
func TestParseMalformedRecord(t *testing.T) {
	recs, err := parseText(t, "statement ok\nSELECT 1\n\nskipif mysql\nquery T nosuchsort\nSELECT 2\n----\n2\n\nquery I\nSELECT 3\n----\n3\n")
	require.NoError(t, err)
	require.Len(t, recs, 3)
	require.Equal(t, kindMalformed, recs[1].kind)
	require.Equal(t, 5, recs[1].line)
	require.Equal(t, []condition{{label: "mysql"}}, recs[1].conditions)
	require.Equal(t, "SELECT 3", recs[2].sql)
	require.Empty(t, recs[2].conditions)
}

func TestParseRefuses(t *testing.T) {
	for _, text := range []string{
		"sleep 1", "statement maybe\nSELECT 1", "statement ok\n\n", "query X\nSELECT 1\n----\n1", "query I\nSELECT 1\n", "loop $i 1 2\nstatement ok\nSELECT 1\n",
		"include missing.slt", "nonsense", "statement ok\nSELECT 1\n----\n1", "hash-threshold many", "let v\nSELECT 1",
	} {
		require.NotEmpty(t, refusal(t, text), text)
	}
}

func TestParseRefusesSortModes(t *testing.T) {
	for words, message := range map[string]string{
		"query T nosuchsort":        `:1: sort mode "nosuchsort" is none of nosort, rowsort, valuesort`,
		"query T label rowsort":     `:1: sort mode "label" is none of nosort, rowsort, valuesort`,
		"query T rowsort label too": `:1: unexpected "too" after the label`,
	} {
		require.Contains(t, refusal(t, words+"\nSELECT 1\n----\n1\n"), message, words)
	}
}

func TestInclude(t *testing.T) {
	dir := t.TempDir()
	require.NoError(t, os.WriteFile(filepath.Join(dir, "in.slt"), []byte("statement ok\nSELECT 2\n"), 0o600))
	main := filepath.Join(dir, "main.slt")
	require.NoError(t, os.WriteFile(main, []byte("statement ok\nSELECT 1\n\ninclude in.slt\n\nstatement ok\nSELECT 3\n"), 0o600))
	recs, err := parseFile(main)
	require.NoError(t, err)
	require.Len(t, recs, 3)
	require.Equal(t, "SELECT 2", recs[1].sql)
	require.False(t, recs[1].rewritable)
}

func TestCompare(t *testing.T) {
	rows := [][]string{{"2", "b  c"}, {"1", "NULL"}}
	require.Empty(t, compare([]string{"2   b c", "1 NULL"}, rows, noSort, 2))
	require.NotEmpty(t, compare([]string{"1 NULL", "2 b c"}, rows, noSort, 2))
	require.Empty(t, compare([]string{"1 NULL", "2 b c"}, rows, rowSort, 2))
	require.Empty(t, compare([]string{"1", "2", "NULL", "b c"}, rows, valueSort, 2))
	require.Empty(t, compare([]string{"2", "b c", "1", "NULL"}, rows, noSort, 2), "one value per line")
	require.NotEmpty(t, compare(nil, rows, rowSort, 2))
	require.NotEmpty(t, compare([]string{"1 NULL"}, nil, rowSort, 2))
	require.Empty(t, compare(nil, nil, noSort, 2))
	require.Empty(t, compare([]string{digest(rows, rowSort)}, [][]string{rows[1], rows[0]}, rowSort, 2))
	require.NotEmpty(t, compare([]string{digest(rows, rowSort)}, rows[:1], rowSort, 2))
	require.Equal(t, "  - a\n    b\n  + c\n", diff([]string{"a", "b"}, []string{"b", "c"}))
}

func TestCells(t *testing.T) {
	require.Equal(t, "NULL", cell(nil))
	require.Equal(t, "(empty)", cell([]byte{}))
	require.Equal(t, `a\nb`, cell([]byte("a\nb")))
	require.True(t, typeMatches('I', pgtype.Int8OID))
	require.False(t, typeMatches('I', pgtype.NumericOID))
	require.Equal(t, "IRBT", letters([]uint32{pgtype.Int4OID, pgtype.Float8OID, pgtype.BoolOID, pgtype.TextOID}))
}

func TestErrorProblem(t *testing.T) {
	err := &pgconn.PgError{Code: "22012", Message: "division by zero"}
	require.Empty(t, errorProblem("", err))
	require.Empty(t, errorProblem("22012", err))
	require.Empty(t, errorProblem("division .* zero", err))
	require.NotEmpty(t, errorProblem("22003", err))
	require.NotEmpty(t, errorProblem("22012", nil))
	require.NotEmpty(t, errorProblem("", errors.New("connection lost")), "only the server's own errors are what a file means")
}

func TestEligible(t *testing.T) {
	for sql, want := range map[string]bool{
		"SELECT 1": true, "(SELECT 1) UNION SELECT 2": true, "WITH x AS (SELECT 1) SELECT * FROM x": true, "VALUES (1)": true,
		"SELECT now()": false, "SELECT * FROM pg_class": false, "SHOW x": false, "SELECT random()": false, "SELECT $1": false, "SELECT * FROM streamdb.jobs": false,
		"SELECT pg_typeof(1)": true, "WITH x AS (INSERT INTO t VALUES (1) RETURNING *) SELECT * FROM x": false,
	} {
		require.Equal(t, want, eligible(&record{kind: kindQuery, sql: sql}), sql)
	}
	require.True(t, eligible(&record{kind: kindStatement, wantError: true, sql: "SELECT 1/0"}))
	require.False(t, eligible(&record{kind: kindStatement, sql: "SELECT 1"}))
}

func TestReads(t *testing.T) {
	v := &viewSet{defines: map[string]string{"v": "CREATE VIEW v AS SELECT * FROM base", "w": "CREATE VIEW w AS SELECT * FROM v"}}
	require.True(t, v.reads("SELECT * FROM w", []string{"base"}, nil))
	require.False(t, v.reads("SELECT * FROM w", []string{"other"}, nil))
	m := changesRelation.FindStringSubmatch("DROP TABLE IF EXISTS a, s.b CASCADE")
	require.Equal(t, "a, s.b", m[2])
	require.Equal(t, "t", changesRelation.FindStringSubmatch("ALTER TABLE t ADD COLUMN x int")[2])
}

func TestModes(t *testing.T) {
	m, err := ParseModes("batch,parallel")
	require.NoError(t, err)
	require.Len(t, m, 3)
	_, err = ParseModes("sideways")
	require.Error(t, err)
}
