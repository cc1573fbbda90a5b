package op_test

import (
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/streamdb/streamdb/exec/op"
	"github.com/streamdb/streamdb/exec/op/optest"
	"github.com/streamdb/streamdb/planner/plan"
	"github.com/streamdb/streamdb/sql/expr"
	"github.com/streamdb/streamdb/sql/functions"
	"github.com/streamdb/streamdb/types"
)

func TestWatermarksThroughOperators(t *testing.T) {
	h := optest.NewHost(t, functions.Builtins())
	s := schema("id", types.Int4, "k", types.Int4, "v", types.Int4)
	in := input([]int{0}, s)
	mark := func(column int, value int64) op.Watermark { return op.Watermark{Column: column, Value: value} }
	feed := func(n *plan.Node, marks ...optest.Mark) []op.Watermark {
		out := &capture{}
		o := h.Open(n)
		for _, m := range marks {
			require.NoError(t, o.Watermark(m.Port, mark(m.Column, m.Value), out))
		}
		h.Checkpoint(o, out)
		require.NoError(t, o.Close())
		return out.marks
	}
	union := &plan.Node{ID: 1, Kind: plan.KindUnion, Inputs: []*plan.Node{in, in}, Schema: s}
	require.Empty(t, feed(union, optest.Mark{Column: 1, Value: 5}), "the other input may still send older rows")
	require.Equal(t, []op.Watermark{mark(1, 3), mark(1, 5)}, feed(union, optest.Mark{Column: 1, Value: 5}, optest.Mark{Port: 1, Column: 1, Value: 3},
		optest.Mark{Port: 1, Column: 1, Value: 2}, optest.Mark{Port: 1, Column: 1, Value: 9}))
	idleUnion(t, h.Open(union))

	project := &plan.Node{
		ID: 2, Kind: plan.KindProject, Inputs: []*plan.Node{in}, Schema: s[:2],
		Project: &plan.Project{Exprs: []*expr.Expr{expr.Col(2, types.Int4), expr.Col(0, types.Int4)}},
	}
	require.Equal(t, []op.Watermark{mark(0, 7)}, feed(project, optest.Mark{Column: 2, Value: 7}, optest.Mark{Column: 1, Value: 8}))

	join := joinNode(in, in, plan.Inner, []int{1}, []int{1}, []int{0, 3}, nil)
	join.ID = 3
	require.Equal(t, []op.Watermark{mark(1, 4), mark(4, 4)}, feed(join, optest.Mark{Column: 1, Value: 6}, optest.Mark{Port: 1, Column: 1, Value: 4},
		optest.Mark{Port: 1, Column: 2, Value: 4}))

	agg := aggNode(in, []int{2, 1}, call("count(*)", types.Int8))
	agg.ID = 4
	require.Equal(t, []op.Watermark{mark(1, 8)}, feed(agg, optest.Mark{Column: 1, Value: 6}, optest.Mark{Column: 1, Value: 8}))
}

// TestGroupedOperatorsAgainstOneShot replays random histories; what is left must look as if it had come at once.
func TestGroupedOperatorsAgainstOneShot(t *testing.T) {
	in := input([]int{0}, keyedSchema)
	order := []plan.SortKey{{Column: 2, Desc: true, NullsFirst: true}}
	for _, n := range []*plan.Node{
		topNode(in, &plan.TopN{GroupBy: []int{1}, Order: order, Limit: 2}),
		topNode(in, &plan.TopN{GroupBy: []int{1}, Order: order, Limit: 1, Offset: 1, WithTies: true}),
		topNode(in, &plan.TopN{Order: order, Limit: -1, Offset: 2}),
		overNode(in, []int{1}, order, over("rank()", types.Int8), over("lag(anyelement)", types.Int4, 2), over("sum(int4)", types.Int8, 2),
			over("count(*)", types.Int8), over("first_value(anyelement)", types.Int4, 0)),
	} {
		checkCases(t, 8, func(rt *rapid.T) optest.Spec {
			s := optest.Spec{Node: n, Epochs: history(rt, 1)}
			if n.TopN == nil || n.TopN.GroupBy != nil {
				s.Route = [][]int{{1}}
			}
			return s
		})
	}
}

// TestRunTree runs a self join over duplicate rows under an aggregation, in one go.
func TestRunTree(t *testing.T) {
	s := schema("k", types.Int4, "v", types.Int4, "n", types.Int8)
	leaf := func() *plan.Node {
		return &plan.Node{Kind: plan.KindValues, Schema: s, Key: []int{2}, Values: &plan.Values{Rows: [][]*expr.Expr{
			{int4(1), int4(1), int8(1)}, {int4(1), int4(1), int8(2)}, {int4(1), int4(2), int8(3)}, {int4(2), int4(5), int8(4)},
		}}}
	}
	join := joinNode(leaf(), leaf(), plan.Inner, []int{0}, []int{0}, []int{2, 5}, nil)
	product := fn("int4mul(int4,int4)", types.Int4, expr.Col(1, types.Int4), expr.Col(4, types.Int4))
	project := &plan.Node{
		ID: 2, Kind: plan.KindProject, Inputs: []*plan.Node{join}, Schema: schema("k", types.Int4, "p", types.Int4),
		Project: &plan.Project{Exprs: []*expr.Expr{expr.Col(0, types.Int4), product}},
	}
	agg := aggNode(project, []int{0}, call("count(*)", types.Int8), call("sum(int4)", types.Int8, 1))
	sorted := topNode(agg, &plan.TopN{Order: []plan.SortKey{{Column: 1, Desc: true}}, Limit: -1})
	out := &capture{}
	ctx := &op.Context{OneShot: true, Lib: functions.Builtins(), Env: &expr.Env{Format: types.DefaultFormat()}}
	require.NoError(t, op.RunTree(sorted, ctx, nil, out))
	require.Equal(t, []int64{1, 2}, out.rows.Cols[0].Int)
	require.Equal(t, []int64{9, 1}, out.rows.Cols[1].Int)
	require.Equal(t, []int64{16, 25}, out.rows.Cols[2].Int)
}

func int8(x int64) *expr.Expr { return expr.Literal(types.Datum{Type: types.Int8, Int: x}) }

// idleUnion: a union does not wait for an input that is idle, until it has a row or a watermark.
func idleUnion(t *testing.T, o op.Operator) {
	out := &capture{}
	say := func(port int, v int64) { require.NoError(t, o.Watermark(port, op.Watermark{Column: 1, Value: v}, out)) }
	idle := func(port int) { require.NoError(t, o.(op.Idler).Idle(port, out)) }
	told := func(want ...int64) {
		t.Helper()
		var got []int64
		for _, m := range out.marks {
			got = append(got, m.Value)
		}
		require.Equal(t, want, got)
		out.marks = nil
	}
	say(0, 5)
	told()
	idle(1)
	told(5)
	idle(1)
	say(0, 7)
	told(7)
	say(1, 3)
	say(0, 9)
	told()
	say(1, 8)
	told(8)
	idle(1)
	told(9)
	c := types.NewChunk([]types.Type{types.Int4, types.Int4, types.Int4})
	for _, v := range c.Cols {
		v.Int = append(v.Int, 1)
	}
	c.PushWeight(1)
	require.NoError(t, o.Process(1, c, out))
	say(0, 11)
	told()
	idle(0)
	told()
	require.NoError(t, o.Close())
}
