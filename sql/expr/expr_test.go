package expr

import (
	"encoding/json"
	"math"
	"math/rand/v2"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/streamdb/streamdb/types"
)

func TestDivisibility(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 2))
	for range 200 {
		m := 2 + r.Int64N(1<<uint(1+r.IntN(61)))
		if m&(m-1) == 0 {
			continue
		}
		d := newDivisibility(m)
		for _, x := range []int64{0, 1, -1, m, -m, m + 1, math.MaxInt64, math.MinInt64, math.MaxInt64 / m * m, math.MinInt64 / m * m} {
			require.Equal(t, x%m == 0, d.holds(x), "%d %% %d", x, m)
		}
		for range 200 {
			x := int64(r.Uint64())
			require.Equal(t, x%m == 0, d.holds(x), "%d %% %d", x, m)
			require.True(t, d.holds(x/m*m))
		}
	}
}

func TestConstantsSurviveStorage(t *testing.T) {
	for _, d := range []types.Datum{
		types.NullDatum(types.Text),
		{Type: types.Text, Str: ""},
		{Type: types.Text, Str: "a'é\x00\xff"},
		{Type: types.Bytea, Str: "\x00\xff"},
		{Type: types.Float8, Float: math.Copysign(0, -1)},
		{Type: types.Float8, Float: math.Inf(-1)},
		{Type: types.Float8, Float: 0.1},
		{Type: types.NumericType, Num: types.Numeric{Coef: 1500, Scale: 3}},
		{Type: types.NumericType, Num: types.Numeric{Form: types.NaN}},
		{Type: types.IntervalT, Ivl: types.Interval{Months: -14, Days: 3, Micros: -1}},
		{Type: types.Timestamptz, Int: 123456789},
		{Type: types.Timestamp, Int: math.MaxInt64},
		{Type: types.Type{OID: types.OIDBpchar, Mod: 8}, Str: "ab  "},
		{Type: types.JSONB, Str: `{"a": 1.0}`},
		{Type: types.Bool, Bool: true},
		{Type: types.T(types.ArrayOf(types.OIDInt4)), Str: types.EncodeArray(types.NewArray(types.OIDInt4, []types.Datum{{Type: types.Int4, Int: 1}, types.NullDatum(types.Int4)}))},
		{Type: types.T(types.OIDRecord), Str: types.EncodeRecord([]types.Datum{{Type: types.Int4, Int: 1}})},
		{Type: types.Unknown, Str: "x"},
	} {
		e := Literal(d)
		b, err := json.Marshal(e)
		require.NoError(t, err)
		var back Expr
		require.NoError(t, json.Unmarshal(b, &back), string(b))
		require.Equal(t, e.Type, back.Type)
		require.Equal(t, math.Float64bits(d.Float), math.Float64bits(back.Const.Float))
		require.Equal(t, d, *back.Const, string(b))
	}
}

func TestString(t *testing.T) {
	a, s := Col(0, types.Int4), Col(1, types.Text)
	five := Literal(types.Datum{Type: types.Int4, Int: 5})
	sum := &Expr{Kind: Call, Type: types.Int4, Func: "int4pl(int4,int4)", Args: []*Expr{a, five}}
	cmp := &Expr{Kind: Call, Type: types.Bool, Func: "int4ge(int4,int4)", Args: []*Expr{sum, five}}
	lower := &Expr{Kind: Call, Type: types.Text, Func: "lower(text)", Args: []*Expr{s}}
	e := &Expr{Kind: And, Type: types.Bool, Args: []*Expr{cmp, {Kind: IsNotNull, Type: types.Bool, Args: []*Expr{lower}}}}
	require.Equal(t, "(((a + 5) >= 5) AND (lower(name) IS NOT NULL))", String(e, []string{"a", "name"}))
	c := &Expr{Kind: Case, Type: types.Text, Args: []*Expr{cmp, s, Literal(types.Datum{Type: types.Text, Str: "o'k"})}}
	require.Equal(t, "CASE WHEN (($col0 + 5) >= 5) THEN $col1 ELSE 'o''k'::text END", String(c, nil))
}

// BenchmarkStoreLongExpression stores a sum of 2,000 terms, which is as many levels deep: time must grow with its length alone.
func BenchmarkStoreLongExpression(b *testing.B) {
	e := Col(0, types.Int4)
	for range 2000 {
		e = &Expr{Kind: Call, Type: types.Int4, Func: "int4pl(int4,int4)", Args: []*Expr{e, Col(0, types.Int4)}}
	}
	for b.Loop() {
		if _, err := json.Marshal(e); err != nil {
			b.Fatal(err)
		}
	}
}
