package functions_test

import (
	"encoding/json"
	"fmt"
	"math"
	"math/rand/v2"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/streamdb/streamdb/internal/pgerr"
	"github.com/streamdb/streamdb/sql/expr"
	"github.com/streamdb/streamdb/sql/functions"
	"github.com/streamdb/streamdb/types"
)

var columnTypes = []types.Type{types.Int4, types.Int4, types.Int8, types.Float8, types.Text, types.NumericType, types.Timestamp, types.IntervalT, types.Bool, types.Int2}

// randomChunk fills a chunk of the test's columns with small values, so that equal ones, zeros and overflows occur.
func randomChunk(r *rand.Rand, n int) *types.Chunk {
	c := types.NewChunk(columnTypes)
	words := []string{"", "a", "ab", "abc", "ABC", "a%b", "émile", "12", "x y"}
	edge := []int64{0, 1, -1, 2, 7, -7, math.MaxInt32, math.MinInt32, 1000}
	for range n {
		for _, v := range c.Cols {
			if r.IntN(5) == 0 {
				v.AppendNull()
				continue
			}
			d := types.Datum{Type: v.Type}
			e := edge[r.IntN(len(edge))]
			switch v.Type {
			case types.Int4:
				d.Int = e
			case types.Int2:
				d.Int = int64(int16(e))
			case types.Int8:
				d.Int = e * []int64{1, 1, 1 << 31, math.MaxInt32}[r.IntN(4)]
			case types.Float8:
				d.Float = []float64{0, 1.5, -2.5, math.NaN(), math.Inf(1), 1e300}[r.IntN(6)]
			case types.Text:
				d.Str = words[r.IntN(len(words))]
			case types.NumericType:
				d.Num = types.Numeric{Coef: e, Scale: int16(r.IntN(3))}
			case types.Timestamp:
				d.Int = e * 10_000_019
			case types.IntervalT:
				d.Ivl = types.Interval{Months: int32(r.IntN(3)), Days: int32(r.IntN(40)), Micros: e}
			case types.Bool:
				d.Bool = r.IntN(2) == 0
			}
			v.AppendDatum(d)
		}
		c.N++
	}
	if r.IntN(3) > 0 {
		c.Sel = []uint16{}
		keep := 1 + r.IntN(8)
		for i := range n {
			if r.IntN(8) < keep {
				c.Sel = append(c.Sel, uint16(i))
			}
		}
	}
	return c
}

// randomExpr builds a random well-typed expression over the columns.
type generator struct {
	r   *rand.Rand
	reg *functions.Registry
	fns []*functions.Func
}

func (g *generator) leaf(t types.Type) *expr.Expr {
	var cols []int
	for i, c := range columnTypes {
		if c.OID == t.OID {
			cols = append(cols, i)
		}
	}
	if len(cols) > 0 && g.r.IntN(4) > 0 {
		return expr.Col(cols[g.r.IntN(len(cols))], t)
	}
	c := randomChunk(g.r, 3)
	for i, ct := range columnTypes {
		if ct.OID == t.OID {
			return expr.Literal(c.Cols[i].Get(g.r.IntN(3)))
		}
	}
	return nil
}

func (g *generator) make(t types.Type, depth int) *expr.Expr {
	if depth == 0 || g.r.IntN(6) == 0 {
		return g.leaf(t)
	}
	sub := func(t types.Type) *expr.Expr { return g.make(t, depth-1) }
	switch g.r.IntN(8) {
	case 0:
		e := &expr.Expr{Kind: expr.Case, Type: t, Pos: -1, Args: []*expr.Expr{sub(types.Bool), sub(t), sub(types.Bool), sub(t)}}
		if g.r.IntN(2) == 0 {
			e.Args = append(e.Args, sub(t))
		}
		return e
	case 1:
		return &expr.Expr{Kind: []expr.Kind{expr.Coalesce, expr.Greatest, expr.Least}[g.r.IntN(3)], Type: t, Pos: -1, Args: []*expr.Expr{sub(t), sub(t), sub(t)}}
	}
	if t.OID == types.OIDBool {
		switch g.r.IntN(7) {
		case 0:
			return &expr.Expr{Kind: expr.And, Type: t, Pos: -1, Args: []*expr.Expr{sub(t), sub(t), sub(t)}}
		case 1:
			return &expr.Expr{Kind: expr.Or, Type: t, Pos: -1, Args: []*expr.Expr{sub(t), sub(t)}}
		case 2:
			return &expr.Expr{Kind: expr.Not, Type: t, Pos: -1, Args: []*expr.Expr{sub(t)}}
		case 3:
			k := []expr.Kind{expr.IsNull, expr.IsNotNull}[g.r.IntN(2)]
			return &expr.Expr{Kind: k, Type: t, Pos: -1, Args: []*expr.Expr{sub(columnTypes[g.r.IntN(len(columnTypes))])}}
		case 4:
			ct := columnTypes[g.r.IntN(len(columnTypes))]
			args := make([]*expr.Expr, 3+g.r.IntN(12))
			for i := range args {
				args[i] = g.leaf(ct)
			}
			return &expr.Expr{Kind: expr.InList, Type: t, Pos: -1, Args: args}
		case 5:
			ct := columnTypes[g.r.IntN(len(columnTypes))]
			return &expr.Expr{Kind: expr.Distinct, Type: t, Pos: -1, Args: []*expr.Expr{sub(ct), sub(ct)}}
		}
	}
	var cands []*functions.Func
	for _, f := range g.fns {
		if f.Result == t.OID {
			cands = append(cands, f)
		}
	}
	if len(cands) == 0 {
		return g.leaf(t)
	}
	f := cands[g.r.IntN(len(cands))]
	e := &expr.Expr{Kind: expr.Call, Type: types.T(f.Result), Func: f.ID, Pos: -1}
	for _, a := range f.Args {
		e.Args = append(e.Args, sub(types.T(a)))
	}
	return e
}

func newGenerator(r *rand.Rand) *generator {
	g := &generator{r: r, reg: functions.Builtins()}
	known := map[types.OID]bool{}
	for _, t := range columnTypes {
		known[t.OID] = true
	}
next:
	for _, f := range g.reg.All() {
		if f.Kind != functions.Scalar || f.Volatility == functions.Volatile || !known[f.Result] || f.Variadic {
			continue
		}
		for _, slow := range []string{"repeat", "lpad", "rpad", "power", "pow", "numeric_power", "exp", "factorial", "log", "ln"} {
			if f.Name == slow {
				continue next
			}
		}
		for _, a := range f.Args {
			if !known[a] {
				continue next
			}
		}
		g.fns = append(g.fns, f)
	}
	return g
}

// oneRow evaluates e for row r alone.
func oneRow(t *testing.T, reg *functions.Registry, e *expr.Expr, c *types.Chunk, r int) (types.Datum, bool) {
	one := types.NewChunk(columnTypes)
	one.AppendRow(c, r, 1)
	p, err := expr.Compile(e, reg)
	require.NoError(t, err)
	var errs expr.RowErrors
	v, err := p.Eval(one, nil, &errs)
	require.NoError(t, err)
	d := v.Get(0)
	return d, len(errs.Rows) > 0
}

// TestVectorsAgreeWithRows evaluates random expressions over chunks with NULLs and holes, and row by row: values and failed rows must agree,
// twice with the same program, with its clone, after a trip through JSON, and for filters.
func TestVectorsAgreeWithRows(t *testing.T) {
	r := rand.New(rand.NewPCG(7, 11))
	g := newGenerator(r)
	t.Logf("%d functions", len(g.fns))
	rounds := 1500
	if testing.Short() {
		rounds = 200
	}
	for round := range rounds {
		target := columnTypes[r.IntN(len(columnTypes))]
		e := g.make(target, 3)
		text := expr.String(e, nil)
		p, err := expr.Compile(e, g.reg)
		require.NoError(t, err, text)
		stored, err := json.Marshal(e)
		require.NoError(t, err, text)
		var back expr.Expr
		require.NoError(t, json.Unmarshal(stored, &back), text)
		again, err := json.Marshal(&back)
		require.NoError(t, err)
		require.JSONEq(t, string(stored), string(again))
		q, err := expr.Compile(&back, g.reg)
		require.NoError(t, err)
		for i, prog := range []*expr.Program{p, p, p.Clone(), q} {
			c := randomChunk(r, 1+r.IntN(70))
			var errs expr.RowErrors
			v, err := prog.Eval(c, nil, &errs)
			require.NoError(t, err)
			require.GreaterOrEqual(t, v.Len(), c.N)
			failed := map[int]bool{}
			for _, row := range errs.Rows {
				require.False(t, failed[int(row)], "row listed twice: %s", text)
				failed[int(row)] = true
			}
			var want []uint16
			for k := range c.Rows() {
				row := c.Row(k)
				d, bad := oneRow(t, g.reg, e, c, row)
				require.Equal(t, bad, failed[row], "round %d/%d row %d failed? %s", round, i, row, text)
				got := v.Get(row)
				if types.CompareDatum(d, got) != 0 {
					for _, v := range c.Cols {
						t.Logf("%s = %v", v.Type, v.Get(row))
					}
				}
				require.Equal(t, 0, types.CompareDatum(d, got), "round %d/%d row %d of %s: alone %v, in chunk %v", round, i, row, text, d, got)
				delete(failed, row)
				if !d.Null && d.Bool && target == types.Bool {
					want = append(want, uint16(row))
				}
			}
			require.Empty(t, failed, "failures in rows that were not selected: %s", text)
			if target == types.Bool {
				errs.Reset()
				sel, err := prog.Filter(c, nil, &errs, nil)
				require.NoError(t, err)
				if len(errs.Rows) == 0 {
					require.Equal(t, fmt.Sprint(want), fmt.Sprint(sel), text)
				}
			}
		}
	}
}

func TestPartialBranches(t *testing.T) {
	b := testBinder{functions.Builtins()}
	_ = b
	reg := b.reg
	a, d := expr.Col(0, types.Int4), expr.Col(1, types.Int4)
	call := func(id string, t types.Type, args ...*expr.Expr) *expr.Expr {
		return &expr.Expr{Kind: expr.Call, Type: t, Func: id, Args: args, Pos: -1}
	}
	zero := expr.Literal(types.Datum{Type: types.Int4})
	guard := call("int4ne(int4,int4)", types.Bool, d, zero)
	div := call("int4div(int4,int4)", types.Int4, a, d)
	c := types.NewChunk([]types.Type{types.Int4, types.Int4})
	for _, row := range [][2]int64{{10, 2}, {1, 0}, {7, -7}, {5, 0}} {
		c.Cols[0].AppendDatum(types.Datum{Type: types.Int4, Int: row[0]})
		c.Cols[1].AppendDatum(types.Datum{Type: types.Int4, Int: row[1]})
		c.N++
	}
	var errs expr.RowErrors
	p, err := expr.Compile(&expr.Expr{Kind: expr.Case, Type: types.Int4, Args: []*expr.Expr{guard, div}}, reg)
	require.NoError(t, err)
	v, err := p.Eval(c, nil, &errs)
	require.NoError(t, err)
	require.Empty(t, errs.Rows)
	require.Equal(t, int64(5), v.Int[0])
	require.True(t, v.IsNull(1))

	p, err = expr.Compile(div, reg)
	require.NoError(t, err)
	v, err = p.Eval(c, nil, &errs)
	require.NoError(t, err)
	require.Equal(t, []uint16{1, 3}, errs.Rows)
	require.Equal(t, pgerr.DivisionByZero, pgerr.CodeOf(errs.Errs[0]))
	require.True(t, v.IsNull(1) && v.IsNull(3) && !v.IsNull(0))
	_, err = p.Eval(c, nil, nil)
	require.Equal(t, pgerr.DivisionByZero, pgerr.CodeOf(err))
}

// TestTableIsComplete checks that every implementation belongs to a recorded function and that every operator resolves to itself.
func TestTableIsComplete(t *testing.T) {
	reg := functions.Builtins()
	require.Empty(t, reg.Unrecorded(), "implementations without a signature")
	for _, o := range reg.Operators() {
		left := types.Type{}
		if o.Left != 0 {
			left = types.T(o.Left)
		}
		if o.Left == types.OIDRecord || o.Left == types.OIDAnyEnum || o.Right == types.OIDAnyArray || o.Left == types.OIDAnyArray || o.Func.Name == "array_append" || o.Func.Name == "array_prepend" || o.Func.Name == "array_cat" || o.Func.Name == "textanycat" || o.Func.Name == "anytextcat" {
			continue
		}
		res, err := reg.ResolveOperator(o.Symbol, left, types.T(o.Right))
		require.NoError(t, err, "%s %s %s", left, o.Symbol, types.T(o.Right))
		require.Equal(t, o.Func.ID, res.Func.ID)
		require.Equal(t, o.Result, res.Result.OID)
	}
	for _, f := range reg.All() {
		require.NotEmpty(t, f.Name)
		got, ok := reg.ByID(f.ID)
		require.True(t, ok)
		require.Same(t, f, got)
	}
}

func TestAggregateTypes(t *testing.T) {
	reg := functions.Builtins()
	for _, c := range []struct {
		name      string
		arg, want types.Type
		id        string
	}{
		{"sum", types.Int4, types.Int8, "sum(int4)"},
		{"sum", types.Int8, types.NumericType, "sum(int8)"},
		{"sum", types.Float4, types.Float4, "sum(float4)"},
		{"sum", types.NumericType, types.NumericType, "sum(numeric)"},
		{"sum", types.IntervalT, types.IntervalT, "sum(interval)"},
		{"avg", types.Int2, types.NumericType, "avg(int2)"},
		{"avg", types.Float4, types.Float8, "avg(float4)"},
		{"max", types.Varchar, types.Text, "max(text)"},
		{"array_agg", types.Int4, types.T(types.ArrayOf(types.OIDInt4)), "array_agg(anynonarray)"},
		{"count", types.Text, types.Int8, "count(any)"},
		{"$scalar", types.Date, types.Date, "$scalar(anyelement)"},
		{"first_value", types.Date, types.Date, "first_value(anyelement)"},
		{"stddev", types.Int4, types.NumericType, "stddev(int4)"},
	} {
		res, err := reg.ResolveFunction(c.name, []types.Type{c.arg})
		require.NoError(t, err, c.name)
		require.Equal(t, c.id, res.Func.ID)
		require.Equal(t, c.want, res.Result)
	}
	res, err := reg.ResolveFunction("count", nil)
	require.NoError(t, err)
	require.Equal(t, "count(*)", res.Func.ID)
}

// TestSessionLiterals checks that literals take the zone of the session that evaluates them, not one fixed at compilation.
func TestSessionLiterals(t *testing.T) {
	b := testBinder{functions.Builtins()}
	e, err := b.parse("timestamptz '2024-07-01 12:00'")
	require.NoError(t, err)
	ny, ok := types.LookupZone("America/New_York")
	require.True(t, ok)
	d, err := expr.EvalConst(e, &expr.Env{Format: &types.Format{Location: ny}}, b.reg)
	require.NoError(t, err)
	utc, err := expr.EvalConst(e, nil, b.reg)
	require.NoError(t, err)
	require.Equal(t, int64(4*3600*1_000_000), d.Int-utc.Int)
	p, err := expr.Compile(e, b.reg)
	require.NoError(t, err)
	v, err := p.Eval(&types.Chunk{N: 2}, &expr.Env{Format: &types.Format{Location: ny}}, nil)
	require.NoError(t, err)
	require.Equal(t, d.Int, v.Int[1])
	_, err = b.parse("timestamptz 'nonsense'")
	require.Equal(t, pgerr.InvalidDatetimeFormat, pgerr.CodeOf(err))
}

func TestSeries(t *testing.T) {
	b := testBinder{functions.Builtins()}
	for text, want := range map[string]int{
		"generate_series(1,5)": 5, "generate_series(5,1,-2)": 3, "generate_series(1,0)": 0, "generate_series(9223372036854775806,9223372036854775807)": 2,
		"generate_series(1.5,3,0.5)": 4, "generate_series(timestamp '2024-01-31','2024-05-01',interval '1 month')": 4, "unnest(array[1,null,3])": 3,
		"jsonb_each('{\"a\":1,\"b\":null}')": 2, "regexp_split_to_table('a b c',' ')": 3, "generate_series(null,3)": 0,
		"regexp_matches('foobarbequebaz','ba.','g')": 2, "string_to_table('a,b',',')": 2,
	} {
		e, err := b.parse(text)
		require.NoError(t, err, text)
		p, err := expr.CompileSet(e, b.reg)
		require.NoError(t, err, text)
		require.NoError(t, p.Prepare(&types.Chunk{N: 1}, nil, nil))
		rows, err := p.Start(0)
		require.NoError(t, err)
		out := types.NewChunk(p.Types())
		got := 0
		for rows != nil {
			n, err := rows.Next(out.Cols, 2)
			require.NoError(t, err)
			if n == 0 {
				break
			}
			got += n
		}
		require.Equal(t, want, got, text)
		require.Equal(t, want, out.Cols[0].Len(), text)
	}
}
