package op_test

import (
	"testing"

	"github.com/streamdb/streamdb/exec/op/optest"
	"github.com/streamdb/streamdb/planner/plan"
	"github.com/streamdb/streamdb/sql/expr"
	"github.com/streamdb/streamdb/types"
)

func within(c plan.AggCall, desc bool, direct ...types.Datum) plan.AggCall {
	for _, d := range direct {
		c.Direct = append(c.Direct, expr.Literal(d))
	}
	for _, a := range c.Args {
		c.Order = append(c.Order, plan.SortKey{Column: a, Desc: desc, NullsFirst: desc})
	}
	return c
}

// Ordered sets follow retractions, down to the empty group and back.
func TestAggOrderedSets(t *testing.T) {
	in := input([]int{0}, schema("id", types.Int4, "k", types.Text, "v", types.Float8))
	half := types.Datum{Type: types.Float8, Float: 0.5}
	runCase(t, optest.Spec{
		Node: aggNode(in, []int{1},
			within(call("percentile_cont(float8,float8)", types.Float8, 2), false, half),
			within(call("percentile_disc(float8,anyelement)", types.Float8, 2), true, half),
			within(call("mode(anyelement)", types.Float8, 2), false),
			within(call("rank(any)", types.Int8, 2), false, types.Datum{Type: types.Float8, Float: 5}),
			within(call("cume_dist(any)", types.Float8, 2), false, types.Datum{Type: types.Float8, Float: 5}),
			call("approx_count_distinct(any)", types.Int8, 2)),
		Route: [][]int{{1}},
		Epochs: []optest.Epoch{
			{In: []string{"+ 1 a 1\n+ 2 a 4\n+ 3 a 4\n+ 4 a NULL"}, Want: "+ a 4 4 4 4 0.8 2"},
			{In: []string{"+ 5 a 10\n- 3 a 4"}, Want: "+ a 4 4 1 3 0.6 3"},
			{In: []string{"- 1 a 1\n- 2 a 4"}, Want: "+ a 10 10 10 1 0.3333333333333333 1"},
			{In: []string{"- 5 a 10"}, Want: "+ a NULL NULL NULL 1 0.5 0"},
			{In: []string{"- 4 a NULL"}, Want: "{}"},
			{In: []string{"+ 6 a 2\n+ 7 a 3\n+ 7 a 3\n- 7 a 3"}, Want: "+ a 2.5 3 2 3 1 2"},
		},
	})
}
