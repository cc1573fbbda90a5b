package sql

import (
	"strings"
	"testing"

	"github.com/pingcap/tidb/pkg/parser/ast"
	"github.com/stretchr/testify/require"

	"github.com/streamdb/streamdb/sql/pgext"
)

// mark splits the place marked with ^ out of a text.
func mark(s string) (text string, pos int) {
	pos = strings.IndexByte(s, '^')
	return s[:pos] + s[pos+1:], pos
}

// TestExprPositions checks the place of the first select item: the token that PostgreSQL's messages point at.
func TestExprPositions(t *testing.T) {
	for _, s := range []string{
		"SELECT ^a", "SELECT ^t.a FROM t", "SELECT ^1", "SELECT ^'x'", "SELECT ^1.5", "SELECT ^$1", "SELECT a ^+ b", "SELECT a + b ^+ c", "SELECT (a + b) ^* c", "SELECT a ^+ (b + c)",
		"SELECT a ^|| b", "SELECT a ^= b", "SELECT a ^<> (SELECT 1)", "SELECT a ^~ b", "SELECT ^- a", "SELECT ^@ a", "SELECT a^::int", "SELECT ^CAST(a AS int)", "SELECT a ^LIKE b", "SELECT a ^NOT LIKE (b || c)",
		"SELECT a ^IN (1, 2)", "SELECT a ^NOT IN ((1), 2)", "SELECT a ^IN (SELECT 1)", "SELECT a ^BETWEEN 1 AND 2", "SELECT a ^BETWEEN (b) AND 2", "SELECT a ^= ANY (b)", "SELECT a ^= ANY (SELECT 1)",
		"SELECT a ^IS DISTINCT FROM b", "SELECT ^f(a)", "SELECT ^s.f(a)", "SELECT ^count(*)", "SELECT ^sum(a) OVER ()", "SELECT ^coalesce(a, b)", "SELECT ^extract(year FROM a)", "SELECT a ^AT TIME ZONE b",
		"SELECT ^ARRAY[1]", "SELECT ^ROW(1)", "SELECT ^(a, b)", "SELECT ^CASE WHEN a THEN b END", "SELECT ^date '2020-01-01'", "SELECT a ^COLLATE \"C\"", "SELECT ^current_date", "SELECT a OR b ^OR c",
		"  SELECT /* c */ 'ü' ^|| b", "SELECT a ^AND (b OR c)", "SELECT a ^SIMILAR TO b", "SELECT ^EXISTS (SELECT 1)", "SELECT ^NOT a",
	} {
		text, pos := mark(s)
		for _, prefix := range []string{"", "SELECT 'é';"} {
			stmts, err := Parse(prefix + text)
			require.NoError(t, err, text)
			q := stmts[len(stmts)-1].(*Query)
			require.Equal(t, pos+len(prefix), exprPos(pgext.QueryOf(q.Stmt).Select.Targets[0].X), text)
		}
	}
}

func exprPos(e ast.ExprNode) int {
	switch v := pgext.ExprOf(e).(type) {
	case *pgext.Const:
		return v.Pos
	case *pgext.TypedLiteral:
		return v.Pos
	case *pgext.Param:
		return v.Pos
	case *pgext.SQLValue:
		return v.Pos
	case *pgext.Column:
		return v.Pos
	case *pgext.Cast:
		return v.Pos
	case *pgext.Op:
		return v.Pos
	case *pgext.Logic:
		return v.Pos
	case *pgext.Not:
		return v.Pos
	case *pgext.IsDistinct:
		return v.Pos
	case *pgext.Between:
		return v.Pos
	case *pgext.In:
		return v.Pos
	case *pgext.AnyAll:
		return v.Pos
	case *pgext.Exists:
		return v.Pos
	case *pgext.Array:
		return v.Pos
	case *pgext.Row:
		return v.Pos
	case *pgext.Collate:
		return v.Pos
	case *pgext.Case:
		return v.Pos
	case *pgext.Special:
		return v.Pos
	case *pgext.Call:
		return v.Pos
	case *pgext.WindowCall:
		return v.Pos
	}
	return -2
}

func TestOtherPositions(t *testing.T) {
	text := "SELECT 1; SELECT a::nope(3), nope '1', x.* FROM s.r AS z JOIN q USING (k) WHERE b ORDER BY 2, c LIMIT d"
	stmts, err := Parse(text)
	require.NoError(t, err)
	q := stmts[1].(*Query)
	v := pgext.QueryOf(q.Stmt)
	at := func(s string) int { return strings.Index(text, s) }
	cast := pgext.ExprOf(v.Select.Targets[0].X).(*pgext.Cast)
	require.Equal(t, at("nope(3)"), cast.TypePos)
	lit := pgext.ExprOf(v.Select.Targets[1].X).(*pgext.TypedLiteral)
	require.Equal(t, at("nope '"), lit.Pos)
	require.Equal(t, at("'1'"), lit.TextPos)
	require.Equal(t, at("x.*"), v.Select.Targets[2].Pos)
	j := v.Select.From[0].(*pgext.Join)
	require.Equal(t, at("s.r"), j.Left.(*pgext.Relation).Pos)
	require.Equal(t, at("q USING"), j.Right.(*pgext.Relation).Pos)
	require.Equal(t, at("b ORDER"), q.Pos(v.Select.Where))
	require.Equal(t, at("2, c"), v.OrderBy[0].Pos)
	require.Equal(t, 2, v.OrderBy[0].Ordinal)
	require.Equal(t, at("c LIMIT"), v.OrderBy[1].Pos)
	require.Equal(t, at("LIMIT"), v.Limit.Pos)
	require.Equal(t, at("d"), strings.Index(text, "d"))
	require.Equal(t, map[string]int{"s.r": at("s.r"), "q": at("q USING")}, q.Relations)
	require.Equal(t, text[10:], q.Text)
}

func TestChangePositions(t *testing.T) {
	text := "UPDATE t SET a = b, (c, d) = (SELECT 1, 2) WHERE e RETURNING f"
	u := parseOne(t, text).(*Update)
	as := pgext.Assignments(pgext.QueryOf(u.Query.Stmt).Select)
	require.Equal(t, []pgext.AssignTarget{{Column: "a", Pos: 13}}, as[0].Columns)
	require.Equal(t, strings.Index(text, "a ="), as[0].Pos)
	require.Equal(t, []pgext.AssignTarget{{Column: "c", Pos: 21}, {Column: "d", Pos: 24}}, as[1].Columns)
	require.True(t, as[1].Row)
	require.Equal(t, strings.Index(text, "f"), u.Returning.Pos(u.Returning.Expr()))
	require.Equal(t, strings.Index(text, "t SET"), u.Table.Pos)
}
