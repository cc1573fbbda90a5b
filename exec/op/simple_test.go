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

func fn(id string, t types.Type, args ...*expr.Expr) *expr.Expr {
	return &expr.Expr{Kind: expr.Call, Func: id, Type: t, Args: args, Pos: -1}
}

func int4(x int64) *expr.Expr { return expr.Literal(types.Datum{Type: types.Int4, Int: x}) }

func TestFilterAndProjectDivertBadRows(t *testing.T) {
	in := input([]int{0}, schema("id", types.Int4, "a", types.Int4, "b", types.Int4))
	div := fn("int4div(int4,int4)", types.Int4, expr.Col(1, types.Int4), expr.Col(2, types.Int4))
	epochs := func(first, second string) []optest.Epoch {
		return []optest.Epoch{
			{In: []string{"+ 1 10 2\n+ 2 1 0\n+ 3 NULL 1"}, Want: first, Errors: "22012"},
			{In: []string{"- 2 1 0"}, Want: second, Errors: "{}"},
		}
	}
	t.Run("project", func(t *testing.T) {
		runCase(t, optest.Spec{
			Node: &plan.Node{
				ID: 1, Kind: plan.KindProject, Inputs: []*plan.Node{in}, Key: []int{0}, Schema: schema("id", types.Int4, "x", types.Int4),
				Project: &plan.Project{Exprs: []*expr.Expr{expr.Col(0, types.Int4), div}},
			},
			Lib: functions.Builtins(), Route: [][]int{{0}},
			Epochs: epochs("+ 1 5\n+ 3 NULL", "+ 1 5\n+ 3 NULL"),
		})
	})
	t.Run("filter", func(t *testing.T) {
		runCase(t, optest.Spec{
			Node: &plan.Node{
				ID: 1, Kind: plan.KindFilter, Inputs: []*plan.Node{in}, Key: []int{0}, Schema: in.Schema,
				Filter: &plan.Filter{Cond: fn("int4gt(int4,int4)", types.Bool, div, int4(4))},
			},
			Lib: functions.Builtins(), Route: [][]int{{0}},
			Epochs: epochs("+ 1 10 2", "+ 1 10 2"),
		})
	})
}

func TestUnionKeepsMultiplicity(t *testing.T) {
	s := schema("x", types.Int4, "y", types.Int4, "branch", types.Int4, "n", types.Int8)
	runCase(t, optest.Spec{
		Node: &plan.Node{ID: 1, Kind: plan.KindUnion, Inputs: []*plan.Node{input([]int{2, 3}, s), input([]int{2, 3}, s)}, Key: []int{2, 3}, Schema: s},
		Epochs: []optest.Epoch{
			{In: []string{"+ 1 NULL 0 1\n+ 1 NULL 0 2\n+ 2 3 0 3\n+ NULL NULL 0 4", "+ 1 NULL 1 1\n+ 2 3 1 2"}},
			{In: []string{"", "- 1 NULL 1 1"}},
			{In: []string{"- 1 NULL 0 2", ""}, Want: "+ 1 NULL 0 1\n+ 2 3 0 3\n+ NULL NULL 0 4\n+ 2 3 1 2"},
		},
	})
}

func windowNode(in *plan.Node, w *plan.Window) *plan.Node {
	return &plan.Node{
		ID: 1, Kind: plan.KindWindow, Inputs: []*plan.Node{in}, Key: []int{0, 2}, Window: w,
		Schema: append(append(types.Schema{}, in.Schema...), schema("window_start", types.Timestamp, "window_end", types.Timestamp)...),
	}
}

func TestWindows(t *testing.T) {
	const minute = 60 * 1000 * 1000
	in := input([]int{0}, schema("id", types.Int4, "ts", types.Timestamp))
	runCase(t, optest.Spec{
		Node:  windowNode(in, &plan.Window{Column: 1, Size: 12 * minute, Slide: 4 * minute}),
		Route: [][]int{{0}},
		Epochs: []optest.Epoch{
			{In: []string{"+ 1 '2024-01-01 08:09:00'\n+ 2 NULL"}, Want: "+ 1 '2024-01-01 08:09:00' '2024-01-01 08:00:00' '2024-01-01 08:12:00'\n" +
				"+ 1 '2024-01-01 08:09:00' '2024-01-01 08:04:00' '2024-01-01 08:16:00'\n" +
				"+ 1 '2024-01-01 08:09:00' '2024-01-01 08:08:00' '2024-01-01 08:20:00'"},
			{In: []string{"- 1 '2024-01-01 08:09:00'\n+ 1 '2024-01-01 08:12:00'"}, Want: "+ 1 '2024-01-01 08:12:00' '2024-01-01 08:04:00' '2024-01-01 08:16:00'\n" +
				"+ 1 '2024-01-01 08:12:00' '2024-01-01 08:08:00' '2024-01-01 08:20:00'\n" +
				"+ 1 '2024-01-01 08:12:00' '2024-01-01 08:12:00' '2024-01-01 08:24:00'"},
		},
	})
	runCase(t, optest.Spec{
		Node: windowNode(in, &plan.Window{Column: 1, Size: 10 * minute}),
		Epochs: []optest.Epoch{{
			In: []string{"+ 1 '1969-12-31 23:59:59.5'\n+ 2 '1969-12-31 23:50:00'\n+ 3 infinity"}, Errors: "22008",
			Want: "+ 1 '1969-12-31 23:59:59.5' '1969-12-31 23:50:00' '1970-01-01 00:00:00'\n" +
				"+ 2 '1969-12-31 23:50:00' '1969-12-31 23:50:00' '1970-01-01 00:00:00'",
		}},
	})
	o, err := op.New(windowNode(in, &plan.Window{Column: 1, Size: 10, Slide: 3}))
	require.NoError(t, err)
	require.ErrorContains(t, o.Open(&op.Context{InputTypes: [][]types.Type{in.Schema.Types()}}), "multiple of the slide")
}

func TestUnnestPadsAndKeepsRows(t *testing.T) {
	series := fn("generate_series(int4,int4)", types.Int4, expr.Col(1, types.Int4), expr.Col(2, types.Int4))
	one := fn("generate_series(int4,int4)", types.Int4, int4(7), int4(8))
	in := input([]int{0}, schema("id", types.Int4, "a", types.Int4, "b", types.Int4))
	node := &plan.Node{
		ID: 1, Kind: plan.KindUnnest, Inputs: []*plan.Node{in}, Key: []int{0, 5},
		Schema: append(append(types.Schema{}, in.Schema...), schema("x", types.Int4, "y", types.Int4, "n", types.Int8)...),
		Unnest: &plan.Unnest{Calls: []*expr.Expr{series, one}},
	}
	runCase(t, optest.Spec{
		Node: node, Lib: functions.Builtins(), Route: [][]int{{0}},
		Epochs: []optest.Epoch{
			{In: []string{"+ 1 1 3\n+ 2 5 5"}, Want: "+ 1 1 3 1 7 1\n+ 1 1 3 2 8 2\n+ 1 1 3 3 NULL 3\n+ 2 5 5 5 7 1\n+ 2 5 5 NULL 8 2"},
			{In: []string{"- 1 1 3\n+ 1 1 5000"}},
			{In: []string{"- 1 1 5000"}, Want: "+ 2 5 5 5 7 1\n+ 2 5 5 NULL 8 2"},
		},
	})
	left := *node
	left.Unnest = &plan.Unnest{Calls: []*expr.Expr{series}, Left: true}
	left.Key = []int{0, 4}
	left.Schema = append(append(types.Schema{}, in.Schema...), schema("x", types.Int4, "n", types.Int8)...)
	runCase(t, optest.Spec{
		Node: &left, Lib: functions.Builtins(),
		Epochs: []optest.Epoch{{In: []string{"+ 1 3 1\n+ 2 5 5"}, Want: "+ 1 3 1 NULL NULL\n+ 2 5 5 5 1"}},
	})
}

// capture keeps what an operator emits.
type capture struct {
	rows  *types.Chunk
	marks []op.Watermark
}

func (c *capture) Emit(ch *types.Chunk) error {
	if c.rows == nil {
		c.rows = ch.Clone()
	} else {
		c.rows.AppendChunk(ch)
	}
	return nil
}

func (c *capture) EmitWatermark(w op.Watermark) error {
	c.marks = append(c.marks, w)
	return nil
}

func TestWatermarkSurvivesRestore(t *testing.T) {
	in := input([]int{0}, schema("id", types.Int4, "ts", types.Timestamp))
	lag := fn("timestamp_mi_interval(timestamp,interval)", types.Timestamp, expr.Col(1, types.Timestamp),
		expr.Literal(types.Datum{Type: types.IntervalT, Ivl: types.Interval{Micros: 5e6}}))
	node := &plan.Node{
		ID: 1, Kind: plan.KindWatermark, Inputs: []*plan.Node{in}, Key: []int{0}, Schema: in.Schema,
		Watermark: &plan.Watermark{Column: 1, Expr: lag},
	}
	h := optest.NewHost(t, functions.Builtins())
	out := &capture{}
	o := h.Open(node)
	c, err := types.ParseChunk(in.Schema.Types(), "+ 1 '2000-01-01 00:00:10'\n+ 2 '2000-01-01 00:00:30'\n+ 3 '2000-01-01 00:00:20'\n- 4 '2000-01-01 00:01:00'")
	require.NoError(t, err)
	require.NoError(t, o.Process(0, c, out))
	h.Checkpoint(o, out)
	require.Equal(t, []op.Watermark{{Column: 1, Value: 25e6}}, out.marks)
	out.marks = nil
	o = h.Restore(node)
	h.Checkpoint(o, out)
	require.Equal(t, []op.Watermark{{Column: 1, Value: 25e6}}, out.marks)
	h.Checkpoint(o, out)
	require.Len(t, out.marks, 1)
	w := windowNode(in, &plan.Window{Column: 1, Size: 20e6, Slide: 10e6})
	wo := h.Open(w)
	out.marks = nil
	require.NoError(t, wo.Watermark(0, op.Watermark{Column: 1, Value: 25e6}, out))
	require.Equal(t, []op.Watermark{{Column: 1, Value: 25e6}, {Column: 2, Value: 10e6}, {Column: 3, Value: 30e6}}, out.marks)
}

func TestLeaves(t *testing.T) {
	out := &capture{}
	ctx := &op.Context{Lib: functions.Builtins(), Env: &expr.Env{Format: types.DefaultFormat()}}
	l, err := op.NewLeaf(&plan.Node{
		Kind: plan.KindValues, Schema: schema("a", types.Int4),
		Values: &plan.Values{Rows: [][]*expr.Expr{{int4(1)}, {expr.Literal(types.NullDatum(types.Int4))}}},
	})
	require.NoError(t, err)
	require.NoError(t, l.Run(ctx, out))
	require.Equal(t, 2, out.rows.N)
	out.rows = nil
	l, err = op.NewLeaf(&plan.Node{
		Kind: plan.KindSeries, Schema: schema("g", types.Int4, "ord", types.Int8, "n", types.Int8),
		Series: &plan.Series{Func: "generate_series(int4,int4)", Args: []*expr.Expr{int4(11), int4(5010)}, Ordinality: true},
	})
	require.NoError(t, err)
	require.NoError(t, l.Run(ctx, out))
	require.Equal(t, 5000, out.rows.N)
	require.EqualValues(t, 5010, out.rows.Cols[0].Int[4999])
	require.EqualValues(t, 5000, out.rows.Cols[2].Int[4999])
}

func TestRecompute(t *testing.T) {
	in := input([]int{0}, schema("id", types.Int4, "k", types.Int4, "v", types.Int4))
	leaf := &plan.Node{ID: 21, Kind: plan.KindInput, Key: []int{0}, Schema: in.Schema}
	sub := aggNode(leaf, nil, call("max(int4)", types.Int4, 2), call("count(*)", types.Int8))
	node := &plan.Node{ID: 20, Kind: plan.KindRecompute, Inputs: []*plan.Node{in}, Key: []int{}, Schema: sub.Schema, Recompute: &plan.Recompute{Sub: sub}}
	runCase(t, optest.Spec{
		Node: node,
		Epochs: []optest.Epoch{
			{Want: "+ NULL 0"},
			{In: []string{"+ 1 1 5\n+ 2 1 9"}, Want: "+ 9 2"},
			{In: []string{"+ 3 1 1\n- 2 1 9"}, Want: "+ 5 2"},
			{In: []string{"+ 1 1 5\n- 1 1 5"}, Want: "+ 5 2"},
		},
	})
	div := fn("int4div(int4,int4)", types.Int4, expr.Col(1, types.Int4), expr.Col(2, types.Int4))
	bad := &plan.Node{
		ID: 22, Kind: plan.KindProject, Inputs: []*plan.Node{leaf}, Key: []int{0}, Schema: schema("id", types.Int4, "x", types.Int4),
		Project: &plan.Project{Exprs: []*expr.Expr{expr.Col(0, types.Int4), div}},
	}
	node = &plan.Node{ID: 20, Kind: plan.KindRecompute, Inputs: []*plan.Node{in}, Key: []int{0}, Schema: bad.Schema, Recompute: &plan.Recompute{Sub: bad}}
	runCase(t, optest.Spec{
		Node: node, Lib: functions.Builtins(), NoOracle: true,
		Epochs: []optest.Epoch{
			{In: []string{"+ 1 6 3"}, Want: "+ 1 2", Errors: "{}"},
			{In: []string{"+ 2 6 0"}, Want: "{}", Errors: "22012"},
			{In: []string{"- 2 6 0"}, Want: "+ 1 2", Errors: "{}"},
		},
	})
}

// TestRecomputeAgainstScan changes what a recomputed subplan reads: the rows of both inputs, also those that find no partner.
func TestRecomputeAgainstScan(t *testing.T) {
	in := input([]int{0}, keyedSchema)
	leaf := func(i int) *plan.Node {
		return &plan.Node{Kind: plan.KindInput, Input: i, Key: []int{0}, Schema: keyedSchema}
	}
	sub := joinNode(leaf(0), leaf(1), plan.Full, []int{1}, []int{1}, []int{0, 3}, nil)
	n := &plan.Node{ID: 20, Kind: plan.KindRecompute, Inputs: []*plan.Node{in, in}, Key: sub.Key, Schema: sub.Schema, Recompute: &plan.Recompute{Sub: sub, Reason: "test"}}
	checkCases(t, 15, func(rt *rapid.T) optest.Spec {
		return optest.Spec{Node: n, Epochs: history(rt, 2), Oracle: naiveJoin(plan.Full, false, false, n.Schema)}
	})
}
