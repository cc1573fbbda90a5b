package planner_test

import (
	"context"
	"flag"
	"fmt"
	"os"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/stretchr/testify/require"

	"github.com/streamdb/streamdb/internal/pgerr"
	"github.com/streamdb/streamdb/planner"
	"github.com/streamdb/streamdb/sql"
	"github.com/streamdb/streamdb/types"
)

var record = flag.String("record", "", "URL of a PostgreSQL server to record testdata/oracle.txt from")

const oracleFile = "testdata/oracle.txt"

const oracleDDL = `drop schema if exists planner_oracle cascade; create schema planner_oracle; set search_path = planner_oracle;
create table t(id int4 primary key, k text, v int4, d date, n numeric);
create table u(id int8 primary key, tid int4, x int8 not null, s varchar(10));
create table keyless(a int4, b text);
create table arr(id int4 primary key, xs int4[], js jsonb);
create table m(k text primary key, c int8);
create view big as select id, v * 2 as dbl from t where v > 10;
create table ins(id int4 primary key, a int8 default 7, b varchar(3), g int4 generated always as (id*2) stored)`

// TestOracle compares output columns (name, type OID, modifier), parameter types and errors (SQLSTATE, position, message) with what
// PostgreSQL 15 said about the same statements. In oracle.txt every statement is followed by its recorded answer.
func TestOracle(t *testing.T) {
	raw, err := os.ReadFile(oracleFile)
	require.NoError(t, err)
	lines := strings.Split(strings.TrimRight(string(raw), "\n"), "\n")
	var queries []string
	answers := map[string]string{}
	for _, l := range lines {
		switch {
		case l == "" || strings.HasPrefix(l, "#"):
		case strings.HasPrefix(l, "= "):
			answers[queries[len(queries)-1]] = l[2:]
		default:
			queries = append(queries, l)
		}
	}
	if *record != "" {
		recordOracle(t, lines)
		return
	}
	o := newOptions(t)
	for _, q := range queries {
		t.Run(q, func(t *testing.T) {
			require.Equal(t, answers[q], describe(q, o))
		})
	}
}

func describe(text string, o planner.Options) string {
	fail := func(err error) string {
		e := pgerr.From(err)
		return fmt.Sprintf("%s at %d: %s", e.Code, e.Pos+1, e.Message)
	}
	stmts, err := sql.Parse(text)
	if err != nil {
		return fail(err)
	}
	var cols types.Schema
	var params []types.Type
	var c *planner.PlannedChange
	switch s := stmts[0].(type) {
	case *sql.Query:
		p, err := planner.PlanQuery(s, o)
		if err != nil {
			return fail(err)
		}
		cols, params = p.Columns, p.Params
	case *sql.Insert:
		c, err = planner.PlanInsert(s, o)
	case *sql.Update:
		c, err = planner.PlanUpdate(s, o)
	case *sql.Delete:
		c, err = planner.PlanDelete(s, o)
	}
	if err != nil {
		return fail(err)
	}
	if c != nil {
		cols, params = c.ReturningColumns, c.Params
	}
	var out []string
	for _, c := range cols {
		out = append(out, fmt.Sprintf("%s %d %d", c.Name, c.Type.OID, c.Type.Mod))
	}
	s := strings.Join(out, " | ")
	if len(params) > 0 {
		var ps []string
		for _, p := range params {
			ps = append(ps, fmt.Sprint(p.OID))
		}
		s += " params " + strings.Join(ps, " ")
	}
	return s
}

func recordOracle(t *testing.T, lines []string) {
	ctx := context.Background()
	conn, err := pgx.Connect(ctx, *record)
	require.NoError(t, err)
	defer conn.Close(ctx)
	_, err = conn.PgConn().Exec(ctx, oracleDDL).ReadAll()
	require.NoError(t, err)
	var out []string
	for _, l := range lines {
		if strings.HasPrefix(l, "= ") {
			continue
		}
		out = append(out, l)
		if l == "" || strings.HasPrefix(l, "#") {
			continue
		}
		sd, err := conn.PgConn().Prepare(ctx, "", l, nil)
		if err != nil {
			var pe *pgconn.PgError
			require.ErrorAs(t, err, &pe, l)
			out = append(out, fmt.Sprintf("= %s at %d: %s", pe.Code, pe.Position, pe.Message))
			continue
		}
		var cols []string
		for _, f := range sd.Fields {
			cols = append(cols, fmt.Sprintf("%s %d %d", f.Name, f.DataTypeOID, f.TypeModifier))
		}
		s := "= " + strings.Join(cols, " | ")
		if len(sd.ParamOIDs) > 0 {
			s += " params " + strings.Trim(fmt.Sprint(sd.ParamOIDs), "[]")
		}
		out = append(out, s)
	}
	require.NoError(t, os.WriteFile(oracleFile, []byte(strings.Join(out, "\n")+"\n"), 0o644))
}
