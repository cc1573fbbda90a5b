package functions_test

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"flag"
	"math"
	"os"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5/pgconn"
	"github.com/stretchr/testify/require"

	"github.com/streamdb/streamdb/internal/pgerr"
	"github.com/streamdb/streamdb/sql/expr"
	"github.com/streamdb/streamdb/sql/functions"
	"github.com/streamdb/streamdb/types"
)

// oracle is the address of a PostgreSQL whose answers are recorded; empty = compare with the recorded ones.
var oracle = flag.String("oracle", "", "URL of a PostgreSQL to record testdata/answers.json from")

const answersFile = "testdata/answers.json"

// answer is what PostgreSQL said about an expression.
type answer struct {
	Expr  string
	Type  uint32 `json:",omitempty"`
	Value *string
	Code  string `json:",omitempty"`
	Error string `json:",omitempty"`
	Hint  string `json:",omitempty"`
}

func cases(t *testing.T) []string {
	f, err := os.Open("testdata/cases.txt")
	require.NoError(t, err)
	defer f.Close()
	var out []string
	seen := map[string]bool{}
	add := func(s string) {
		if s != "" && !seen[s] {
			seen[s] = true
			out = append(out, s)
		}
	}
	for sc := bufio.NewScanner(f); sc.Scan(); {
		add(sc.Text())
	}
	for _, fn := range functions.Builtins().All() {
		add(fn.Example)
	}
	return out
}

func record(t *testing.T) {
	conn, err := pgconn.Connect(context.Background(), *oracle)
	require.NoError(t, err)
	defer conn.Close(context.Background())
	_, err = conn.Exec(context.Background(), "SET timezone='UTC'; SET lc_monetary='C'; SET bytea_output='hex'").ReadAll()
	require.NoError(t, err)
	var out []answer
	for _, e := range cases(t) {
		a := answer{Expr: e}
		res, err := conn.Exec(context.Background(), "SELECT "+e).ReadAll()
		var pe *pgconn.PgError
		switch {
		case errors.As(err, &pe):
			a.Code, a.Error, a.Hint = pe.Code, pe.Message, pe.Hint
		case err != nil:
			require.NoError(t, err)
		default:
			a.Type = res[0].FieldDescriptions[0].DataTypeOID
			if v := res[0].Rows[0][0]; v != nil {
				s := string(v)
				a.Value = &s
			}
		}
		out = append(out, a)
	}
	b, err := json.MarshalIndent(out, "", " ")
	require.NoError(t, err)
	require.NoError(t, os.WriteFile(answersFile, append(b, '\n'), 0o644))
}

// TestAnswers compares every example of the table and every case of cases.txt with PostgreSQL's recorded answer.
func TestAnswers(t *testing.T) {
	if *oracle != "" {
		record(t)
	}
	raw, err := os.ReadFile(answersFile)
	require.NoError(t, err)
	var answers []answer
	require.NoError(t, json.Unmarshal(raw, &answers))
	known := map[string]bool{}
	for _, a := range answers {
		known[a.Expr] = true
	}
	for _, e := range cases(t) {
		if !known[e] {
			t.Errorf("no recorded answer for %s: run with -oracle", e)
		}
	}
	b := testBinder{functions.Builtins()}
	env := &expr.Env{Format: types.DefaultFormat()}
	for _, a := range answers {
		t.Run(a.Expr, func(t *testing.T) {
			e, err := b.parse(a.Expr)
			var d types.Datum
			if err == nil {
				if e.Type.OID == types.OIDUnknown {
					e, err = b.reg.Cast(e, types.Text, functions.Implicit)
					require.NoError(t, err)
				}
				d, err = expr.EvalConst(e, env, b.reg)
			}
			if a.Code != "" {
				require.Error(t, err, "want %s %s", a.Code, a.Error)
				require.Equal(t, a.Code, string(pgerr.CodeOf(err)), "got %v, want %s", err, a.Error)
				if a.Code == "42883" {
					require.Equal(t, a.Error, err.Error())
					require.Equal(t, a.Hint, pgerr.From(err).Hint)
				}
				return
			}
			require.NoError(t, err)
			require.Equal(t, types.T(types.OID(a.Type)).String(), types.T(d.Type.OID).String())
			if a.Value == nil {
				require.True(t, d.Null, "want NULL, got %v", d)
				return
			}
			require.False(t, d.Null, "want %s, got NULL", *a.Value)
			var got string
			if s, ok := regOut(b.reg, env, d); ok {
				got = s
			} else {
				v := types.Vector{Type: d.Type}
				v.AppendDatum(d)
				got = string(types.AppendText(nil, env.Format, &v, 0))
			}
			if d.Type == types.Float8 {
				// Transcendental functions may differ from the C library's in the last digits.
				want, err := types.ParseFloat(*a.Value, types.OIDFloat8)
				require.NoError(t, err)
				if want == d.Float || math.Abs(want-d.Float) <= math.Abs(want)*1e-15 {
					return
				}
			}
			require.Equal(t, *a.Value, got)
		})
	}
}

// regOut prints values of the reg types as names.
func regOut(reg *functions.Registry, env *expr.Env, d types.Datum) (string, bool) {
	if !strings.HasPrefix(d.Type.String(), "reg") {
		return "", false
	}
	e, err := reg.Cast(expr.Literal(d), types.Text, functions.Explicit)
	if err != nil {
		return "", false
	}
	s, err := expr.EvalConst(e, env, reg)
	return s.Str, err == nil
}
