package op_test

import (
	"fmt"
	"math/rand/v2"
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/streamdb/streamdb/exec/op/optest"
	"github.com/streamdb/streamdb/planner/plan"
	"github.com/streamdb/streamdb/sql/functions"
	"github.com/streamdb/streamdb/types"
)

func call(fn string, t types.Type, args ...int) plan.AggCall {
	return plan.AggCall{Func: fn, Type: t, Args: args, Filter: -1}
}

func distinct(c plan.AggCall) plan.AggCall { c.Distinct = true; return c }

func filtered(c plan.AggCall, col int) plan.AggCall { c.Filter = col; return c }

func ordered(c plan.AggCall, keys ...plan.SortKey) plan.AggCall { c.Order = keys; return c }

func aggNode(in *plan.Node, group []int, calls ...plan.AggCall) *plan.Node {
	n := &plan.Node{ID: 7, Kind: plan.KindAgg, Inputs: []*plan.Node{in}, Agg: &plan.Agg{GroupBy: group, Calls: calls, OnClose: -1, Global: group == nil}}
	for i, g := range group {
		n.Schema = append(n.Schema, in.Schema[g])
		n.Key = append(n.Key, i)
	}
	if group == nil {
		n.Key = []int{}
	}
	for i, c := range calls {
		n.Schema = append(n.Schema, types.Column{Name: fmt.Sprint("c", i), Type: c.Type})
	}
	return n
}

func TestAggMinMaxAfterExtremeGoes(t *testing.T) {
	in := input([]int{0}, schema("id", types.Int4, "k", types.Text, "v", types.Int4))
	runCase(t, optest.Spec{
		Node: aggNode(in, []int{1}, call("min(int4)", types.Int4, 2), call("max(int4)", types.Int4, 2), call("count(*)", types.Int8),
			call("max(text)", types.Text, 1)),
		Route: [][]int{{1}},
		Epochs: []optest.Epoch{
			{In: []string{"+ 1 a 5\n+ 2 a 9\n+ 3 a 7"}, Want: "+ a 5 9 3 a"},
			{In: []string{"- 2 a 9"}, Want: "+ a 5 7 2 a"},
			{In: []string{"- 1 a 5\n- 3 a 7"}, Want: "{}"},
			{In: []string{"+ 4 a 1"}, Want: "+ a 1 1 1 a"},
			{In: []string{"+ 4 a 3\n- 4 a 1"}, Want: "+ a 3 3 1 a"},
		},
	})
}

func TestAggDistinctUnderUpdates(t *testing.T) {
	in := input([]int{0}, schema("id", types.Int4, "k", types.Text, "x", types.Int4, "f", types.Bool))
	runCase(t, optest.Spec{
		Node: aggNode(in, []int{1}, call("count(*)", types.Int8), call("count(any)", types.Int8, 2), distinct(call("count(any)", types.Int8, 2)),
			distinct(call("sum(int4)", types.Int8, 2)), filtered(distinct(call("count(any)", types.Int8, 2)), 3)),
		Epochs: []optest.Epoch{
			{In: []string{"+ 1 a 10 f\n+ 2 a 10 t\n+ 3 a NULL t"}, Want: "+ a 3 2 1 10 1"},
			{In: []string{"- 1 a 10 f\n+ 1 a 20 f"}, Want: "+ a 3 2 2 30 1"},
			{In: []string{"- 2 a 10 t"}, Want: "+ a 2 1 1 20 0"},
			{In: []string{"- 3 a NULL t\n+ 3 a 20 t"}, Want: "+ a 2 2 1 20 1"},
			{In: []string{"- 3 a 20 t\n- 1 a 20 f"}, Want: "{}"},
		},
	})
}

func TestAggNullKeys(t *testing.T) {
	in := input([]int{}, schema("k", types.Int4, "v", types.Int4))
	in.Key = []int{0, 1}
	runCase(t, optest.Spec{
		Node:  aggNode(in, []int{0}, call("sum(int4)", types.Int8, 1), call("count(*)", types.Int8)),
		Route: [][]int{{0}},
		Epochs: []optest.Epoch{
			{In: []string{"+ NULL 1\n+ NULL 2\n+ 1 NULL"}, Want: "+ 1 NULL 1\n+ NULL 3 2"},
			{In: []string{"+ NULL 10\n- NULL 1\n- NULL 2\n+ NULL 20"}, Want: "+ 1 NULL 1\n+ NULL 30 2"},
			{In: []string{"- 1 NULL\n+ 1 4"}, Want: "+ 1 4 1\n+ NULL 30 2"},
			{In: []string{"- NULL 10\n- NULL 20"}, Want: "+ 1 4 1"},
		},
	})
}

func TestAggGlobalOverNothing(t *testing.T) {
	in := input([]int{0}, schema("x", types.Int4, "b", types.Bool, "s", types.Text, "sep", types.Text))
	node := aggNode(in, nil, call("count(*)", types.Int8), call("count(any)", types.Int8, 0), call("sum(int4)", types.Int8, 0), call("max(int4)", types.Int4, 0),
		call("avg(int4)", types.NumericType, 0), call("bool_and(bool)", types.Bool, 1), call("string_agg(text,text)", types.Text, 2, 3),
		call("$scalar(anyelement)", types.Int4, 0))
	runCase(t, optest.Spec{
		Node: node,
		Epochs: []optest.Epoch{
			{Want: "+ 0 0 NULL NULL NULL NULL NULL NULL", Errors: "{}"},
			{In: []string{"+ 3 t 3 ,"}, Want: "+ 1 1 3 3 3.0000000000000000 t 3 3"},
			{In: []string{"+ NULL NULL NULL ,"}, Want: "{}", Errors: "21000"},
			{In: []string{"- NULL NULL NULL ,"}, Want: "+ 1 1 3 3 3.0000000000000000 t 3 3", Errors: "{}"},
			{In: []string{"- 3 t 3 ,"}, Want: "+ 0 0 NULL NULL NULL NULL NULL NULL"},
		},
		NoOracle: true,
	})
}

func TestAggSumTypes(t *testing.T) {
	in := input([]int{3}, schema("b", types.Int8, "i", types.Int4, "s", types.Int2, "id", types.Int4, "n", types.NumericType))
	runCase(t, optest.Spec{
		Node: aggNode(in, nil, call("sum(int8)", types.NumericType, 0), call("sum(int4)", types.Int8, 1), call("avg(int4)", types.NumericType, 1),
			call("sum(int2)", types.Int8, 2), call("sum(numeric)", types.NumericType, 4), call("var_samp(int2)", types.NumericType, 2),
			call("stddev(numeric)", types.NumericType, 4), call("bit_or(int4)", types.Int4, 1), call("bit_and(int2)", types.Int2, 2)),
		Epochs: []optest.Epoch{
			{
				In:   []string{"+ 9223372036854775807 2147483647 1 1 1.5\n+ 9223372036854775807 2147483647 2 2 2.25"},
				Want: "+ 18446744073709551614 4294967294 2147483647.00000000 3 3.75 0.50000000000000000000 0.53033008588991064330 2147483647 0",
			},
			{
				In:   []string{"- 9223372036854775807 2147483647 2 2 2.25"},
				Want: "+ 9223372036854775807 2147483647 2147483647.00000000 1 1.5 NULL NULL 2147483647 1",
			},
		},
	})
}

func TestAggFloatsUnderRetraction(t *testing.T) {
	in := input([]int{0}, schema("id", types.Int4, "x", types.Float8))
	runCase(t, optest.Spec{
		Node: aggNode(in, nil, call("sum(float8)", types.Float8, 1), call("max(float8)", types.Float8, 1)),
		Epochs: []optest.Epoch{
			{In: []string{"+ 1 1\n+ 2 NaN\n+ 3 2"}, Want: "+ NaN NaN"},
			{In: []string{"- 2 NaN"}, Want: "+ 3 2"},
			{In: []string{"+ 4 Infinity\n+ 5 -Infinity"}, Want: "+ NaN Infinity"},
			{In: []string{"- 5 -Infinity"}, Want: "+ Infinity Infinity"},
			{In: []string{"- 4 Infinity"}, Want: "+ 3 2"},
			{In: []string{"+ 6 1e16\n- 1 1\n- 3 2\n+ 7 1"}, Want: "+ 1e+16 1e+16"},
			{In: []string{"- 6 1e16"}, Want: "+ 1 1"},
			{In: []string{"+ 8 1e308\n+ 9 1e308"}, Want: "{}", Errors: "22003"},
			{In: []string{"- 9 1e308"}, Want: "+ 1e+308 1e+308", Errors: "{}"},
		},
		NoOracle: true,
	})
}

func TestAggFloatStatistics(t *testing.T) {
	in := input([]int{0}, schema("id", types.Int4, "x", types.Float8, "y", types.Float8))
	runCase(t, optest.Spec{
		Node: aggNode(in, nil, call("var_pop(float8)", types.Float8, 1), call("stddev(float8)", types.Float8, 1), call("avg(float8)", types.Float8, 1),
			call("corr(float8,float8)", types.Float8, 1, 2), call("regr_count(float8,float8)", types.Int8, 1, 2)),
		Epochs: []optest.Epoch{
			{In: []string{"+ 1 1 2\n+ 2 2 4\n+ 3 6 12"}, Want: "+ 4.666666666666667 2.6457513110645907 3 1 3"},
			{In: []string{"- 3 6 12"}, Want: "+ 0.25 0.7071067811865476 1.5 1 2"},
			{In: []string{"- 2 2 4"}, Want: "+ 0 NULL 1 NULL 1"},
		},
		NoOracle: true,
	})
}

func TestAggEqualKeysOfDifferentForm(t *testing.T) {
	for _, c := range []struct {
		t    types.Type
		rows string
		want string
	}{
		{types.Float8, "+ 1 0\n+ 2 -0\n+ 3 NaN\n+ 4 NaN", "+ 0 2 1\n+ NaN 2 1"},
		{types.NumericType, "+ 1 1.0\n+ 2 1.00\n+ 3 1", "+ 1.0 3 1"},
		{types.JSONB, "+ 1 1\n+ 2 1.0", "+ 1 2 1"},
		{types.IntervalT, "+ 1 '1 mon'\n+ 2 '30 days'\n+ 3 '720 hours'", "+ '1 mon' 3 1"},
	} {
		t.Run(c.t.String(), func(t *testing.T) {
			in := input([]int{0}, schema("id", types.Int4, "k", c.t))
			runCase(t, optest.Spec{
				Node:   aggNode(in, []int{1}, call("count(*)", types.Int8), distinct(call("count(any)", types.Int8, 1))),
				Route:  [][]int{{1}},
				Epochs: []optest.Epoch{{In: []string{c.rows}, Want: c.want}},
			})
		})
	}
}

func TestAggLists(t *testing.T) {
	in := input([]int{0}, schema("id", types.Int4, "k", types.Int4, "s", types.Text, "sep", types.Text))
	desc := plan.SortKey{Column: 2, Desc: true, NullsFirst: true}
	textArray := types.T(types.ArrayOf(types.OIDText))
	runCase(t, optest.Spec{
		Node: aggNode(in, []int{1}, ordered(call("string_agg(text,text)", types.Text, 2, 3), desc), call("array_agg(anynonarray)", textArray, 2),
			distinct(call("array_agg(anynonarray)", textArray, 2))),
		Route: [][]int{{1}},
		Epochs: []optest.Epoch{
			{In: []string{"+ 1 1 b ,\n+ 2 1 a ,\n+ 3 1 NULL ,\n+ 4 1 b ,"}, Want: "+ 1 b,b,a {b,a,NULL,b} {a,b,NULL}"},
			{In: []string{"+ 2 1 c ,\n- 2 1 a ,"}, Want: "+ 1 c,b,b {b,c,NULL,b} {b,c,NULL}"},
			{In: []string{"- 1 1 b ,\n- 3 1 NULL ,"}, Want: "+ 1 c,b {c,b} {b,c}"},
		},
	})
}

func TestAggTwoIntKeysWithNulls(t *testing.T) {
	in := input([]int{0}, schema("id", types.Int8, "a", types.Int4, "b", types.Timestamp))
	r := rand.New(rand.NewPCG(1, 2))
	live := map[int64]string{}
	var epochs []optest.Epoch
	next := int64(0)
	for range 6 {
		text := ""
		for range 60 {
			if len(live) > 20 && r.IntN(3) == 0 {
				for id, row := range live {
					text += "- " + row + "\n"
					delete(live, id)
					break
				}
				continue
			}
			a := fmt.Sprint(r.IntN(5))
			if r.IntN(5) == 0 {
				a = "NULL"
			}
			row := fmt.Sprintf("%d %s '2024-01-0%d 00:00:00'", next, a, 1+r.IntN(3))
			live[next] = row
			next++
			text += "+ " + row + "\n"
		}
		epochs = append(epochs, optest.Epoch{In: []string{text}})
	}
	runCase(t, optest.Spec{
		Node: aggNode(in, []int{1, 2}, call("count(*)", types.Int8), call("sum(int8)", types.NumericType, 0), call("min(int8)", types.Int8, 0),
			call("max(timestamp)", types.Timestamp, 2)),
		Route:  [][]int{{1, 2}},
		Epochs: epochs,
	})
}

func TestAggEmitOnWindowClose(t *testing.T) {
	in := input([]int{0}, schema("id", types.Int8, "end", types.Int8))
	in.AppendOnly = true
	node := aggNode(in, []int{1}, call("count(*)", types.Int8), call("max(int8)", types.Int8, 0))
	node.Agg.OnClose = 0
	runCase(t, optest.Spec{
		Node: node,
		Epochs: []optest.Epoch{
			{In: []string{"+ 1 10\n+ 9 10\n+ 16 20"}, Marks: []optest.Mark{{Column: 1, Value: 20}}, Want: "+ 10 2 9"},
			{In: []string{"+ 2 10"}, Want: "+ 10 2 9", Late: 1},
			{In: []string{"+ 25 30"}, Marks: []optest.Mark{{Column: 1, Value: 30}}, Want: "+ 10 2 9\n+ 20 1 16"},
		},
		NoOracle: true,
	})
}

func TestAggJSON(t *testing.T) {
	in := input([]int{0}, schema("id", types.Int4, "k", types.Text, "v", types.Int4))
	runCase(t, optest.Spec{
		Lib: functions.Builtins(),
		Node: aggNode(in, nil, call("json_agg(anyelement)", types.JSON, 2), call("jsonb_agg(anyelement)", types.JSONB, 1),
			call("json_object_agg(any,any)", types.JSON, 1, 2), call("jsonb_object_agg(any,any)", types.JSONB, 1, 2)),
		Epochs: []optest.Epoch{
			{In: []string{"+ 1 b 1\n+ 2 a NULL"}, Want: `+ '[1, null]' '["b", "a"]' '{ "b" : 1, "a" : null }' '{"a": null, "b": 1}'`},
			{In: []string{"- 1 b 1"}, Want: `+ '[null]' '["a"]' '{ "a" : null }' '{"a": null}'`},
			{In: []string{"- 2 a NULL"}, Want: `+ NULL NULL NULL NULL`},
		},
	})
}

// TestAggAgainstOneShot replays random histories for every aggregate; what is left must look as if it had come at once.
func TestAggAgainstOneShot(t *testing.T) {
	s := schema("id", types.Int4, "k", types.Int4, "v", types.Int4)
	arr := types.T(types.ArrayOf(types.OIDInt4))
	calls := []plan.AggCall{
		call("count(*)", types.Int8), call("sum(int4)", types.Int8, 2), call("avg(int4)", types.NumericType, 2), call("min(int4)", types.Int4, 2),
		call("max(int4)", types.Int4, 1), call("bit_xor(int4)", types.Int4, 2), call("bit_and(int4)", types.Int4, 2), call("array_agg(anynonarray)", arr, 1),
		distinct(call("array_agg(anynonarray)", arr, 2)), distinct(call("sum(int4)", types.Int8, 2)), call("var_pop(int4)", types.NumericType, 2),
		call("stddev_samp(int4)", types.NumericType, 2),
	}
	for _, group := range [][]int{nil, {1}, {1, 2}, {2, 1, 0}} {
		checkCases(t, 10, func(rt *rapid.T) optest.Spec {
			spec := optest.Spec{Node: aggNode(input([]int{0}, s), group, calls...), Epochs: history(rt, 1)}
			if group != nil {
				spec.Route = [][]int{group}
			}
			return spec
		})
	}
}

// TestAggWatermarkSurvivesRestore: which rows are late does not depend on restarts.
func TestAggWatermarkSurvivesRestore(t *testing.T) {
	in := input([]int{0}, schema("id", types.Int8, "end", types.Int8))
	node := aggNode(in, []int{1}, call("count(*)", types.Int8), distinct(call("count(any)", types.Int8, 0)))
	node.Agg.OnClose = 0
	runCase(t, optest.Spec{
		Node:  node,
		Route: [][]int{{1}},
		Lossy: true,
		Epochs: []optest.Epoch{
			{In: []string{"+ 1 10\n+ 9 10\n+ 16 20\n+ 40 50"}, Marks: []optest.Mark{{Column: 1, Value: 20}}, Want: "+ 10 2 2"},
			{In: []string{"+ 2 10\n+ 17 20"}, Want: "+ 10 2 2", Late: 1},
			{In: []string{"+ 3 10"}, Marks: []optest.Mark{{Column: 1, Value: 30}}, Want: "+ 10 2 2\n+ 20 2 2", Late: 2},
		},
		NoOracle: true,
	})
}

// TestAggKeepsNothingOfRowsThatAreGone: what aggregates keep of values, those of DISTINCT too, goes with the last row.
func TestAggKeepsNothingOfRowsThatAreGone(t *testing.T) {
	in := input([]int{0}, schema("id", types.Int4, "k", types.Int4, "x", types.Int4))
	node := &plan.Node{
		ID: 33, Kind: plan.KindAgg, Inputs: []*plan.Node{in}, Key: []int{0}, Schema: schema("k", types.Int4, "n", types.Int8, "s", types.Int8, "m", types.Int4),
		Agg: &plan.Agg{GroupBy: []int{1}, OnClose: -1, Calls: []plan.AggCall{
			{Func: `count("any")`, Args: []int{2}, Distinct: true, Filter: -1, Type: types.Int8},
			{Func: "sum(integer)", Args: []int{2}, Distinct: true, Filter: -1, Type: types.Int8},
			{Func: "max(integer)", Args: []int{2}, Filter: -1, Type: types.Int4},
		}},
	}
	h := optest.NewHost(t, functions.Builtins())
	o := h.Open(node)
	out := &capture{}
	for _, rows := range []string{"+ 1 1 10\n+ 2 1 10\n+ 3 1 NULL", "- 1 1 10\n+ 1 1 20", "- 2 1 10", "- 3 1 NULL\n+ 3 1 20", "- 1 1 20\n- 3 1 20"} {
		c, err := types.ParseChunk(in.Schema.Types(), rows)
		require.NoError(t, err)
		require.NoError(t, o.Process(0, c, out))
		h.Checkpoint(o, out)
	}
	for table := range uint32(5) {
		require.Zero(t, h.Entries(node, table), "table %d", table)
	}
}
