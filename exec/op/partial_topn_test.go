package op_test

import (
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/streamdb/streamdb/checkpoint"
	"github.com/streamdb/streamdb/exec/op"
	"github.com/streamdb/streamdb/exec/op/optest"
	"github.com/streamdb/streamdb/planner/plan"
	"github.com/streamdb/streamdb/sql/functions"
	"github.com/streamdb/streamdb/types"
)

func partialTopNode(in *plan.Node, t *plan.TopN) *plan.Node {
	return &plan.Node{
		ID: 12, Kind: plan.KindPartialTopN, Inputs: []*plan.Node{in}, Schema: in.Schema, Key: in.Key, AppendOnly: true,
		PartialTopN: &plan.PartialTopN{GroupBy: t.GroupBy, Order: t.Order, Limit: t.Limit + t.Offset, OnClose: t.OnClose},
	}
}

// TestPartialTopN: a Top-N of the rows that pass has the rows of one over all.
func TestPartialTopN(t *testing.T) {
	checkCases(t, 40, func(rt *rapid.T) optest.Spec {
		in := input([]int{0}, schema("id", types.Int4, "k", types.Int4, "v", types.Int4, "f", types.Float8, "t", types.Text))
		in.AppendOnly = true
		key := plan.SortKey{Column: rapid.IntRange(2, 4).Draw(rt, "column"), Desc: rapid.Bool().Draw(rt, "desc"), NullsFirst: rapid.Bool().Draw(rt, "nulls first")}
		n := &plan.TopN{
			Order: []plan.SortKey{key, {Column: 0}}, Limit: int64(rapid.IntRange(1, 3).Draw(rt, "limit")), Offset: int64(rapid.IntRange(0, 2).Draw(rt, "offset")),
			WithTies: rapid.Bool().Draw(rt, "ties"),
		}
		if rapid.Bool().Draw(rt, "grouped") {
			n.GroupBy = []int{1}
		}
		if n.WithTies {
			n.Order = n.Order[:1]
		}
		var es []optest.Epoch
		id := 0
		for range 4 {
			text := ""
			for range rapid.IntRange(0, 15).Draw(rt, "rows") {
				pick := func(name string, from ...string) string { return rapid.SampledFrom(from).Draw(rt, name) }
				text += fmt.Sprintf("+ %d %s %s %s %s\n", id, pick("k", "1", "2", "NULL"), pick("v", "1", "2", "-3", "7", "2147483647", "NULL"), pick("f", "1.5", "NaN", "-0", "0", "-Infinity", "NULL"),
					pick("t", "a", "abcdefgh", "abcdefghi", "abcdefghj", "b", "NULL"))
				id++
			}
			es = append(es, optest.Epoch{In: []string{text}})
		}
		top := topNode(in, n)
		return optest.Spec{
			Node: partialTopNode(in, n), Route: [][]int{{0}}, Epochs: es, Reduced: in.Schema,
			Reduce: func(out *types.Chunk) (*types.Chunk, error) { return aggregate(top, out) },
			Oracle: func(in []*types.Chunk) (*types.Chunk, error) { return aggregate(top, in[0]) },
		}
	})
}

// TestPartialTopNOfWindows: a window that has closed is forgotten, and late rows pass.
func TestPartialTopNOfWindows(t *testing.T) {
	in := input([]int{0}, schema("id", types.Int8, "w", types.Timestamp, "v", types.Int8))
	at := 1
	n := partialTopNode(in, &plan.TopN{GroupBy: []int{1}, Order: []plan.SortKey{{Column: 2, Desc: true}}, Limit: 1, OnClose: &at})
	require.NoError(t, covered.Add(&optest.Spec{Node: n}, false))
	o := optest.NewHost(t, functions.Builtins()).Open(n)
	send := func(values ...int64) int {
		c := types.NewChunk(in.Schema.Types())
		for i, v := range values {
			for k, x := range []int64{int64(i), 100, v} {
				c.Cols[k].AppendDatum(types.Datum{Type: in.Schema[k].Type, Int: x})
			}
			c.PushWeight(1)
		}
		out := &countSink{}
		require.NoError(t, o.Process(0, c, out))
		require.NoError(t, o.Barrier(checkpoint.Barrier{}, out))
		return out.rows
	}
	require.Equal(t, 3, send(5, 3, 4, 9, 9)) // 5, 9, 9
	require.Equal(t, 1, send(8, 9))
	require.NoError(t, o.Watermark(0, op.Watermark{Column: 1, Value: 100}, &countSink{}))
	require.Equal(t, 1, send(3, 2))
	require.NoError(t, o.Watermark(0, op.Watermark{Column: 1, Value: 101}, &countSink{}))
	require.Equal(t, 3, send(3, 2, 1))
}

// TestPartialTopNStepsAside: where each row comes before those before it, rows pass without being compared, until the next trial.
func TestPartialTopNStepsAside(t *testing.T) {
	in := input([]int{0}, schema("id", types.Int8, "v", types.Int8))
	n := partialTopNode(in, &plan.TopN{Order: []plan.SortKey{{Column: 1, Desc: true}}, Limit: 1})
	o := optest.NewHost(t, functions.Builtins()).Open(n)
	next, out := int64(0), &countSink{}
	send := func(step int64) int {
		c := types.NewChunk(in.Schema.Types())
		for range 100 {
			next += step
			for k := range c.Cols {
				c.Cols[k].AppendDatum(types.Datum{Type: types.Int8, Int: next})
			}
			c.PushWeight(1)
		}
		before := out.rows
		require.NoError(t, o.Process(0, c, out))
		return out.rows - before
	}
	for range 20 {
		require.Equal(t, 100, send(1))
	}
	require.Equal(t, 100, send(-1)) // not compared
	for range 600 {
		send(-1)
	}
	require.Equal(t, 0, send(-1))
}

// countSink counts rows.
type countSink struct{ rows int }

func (s *countSink) Emit(c *types.Chunk) error {
	s.rows += c.Rows()
	return nil
}

func (s *countSink) EmitWatermark(op.Watermark) error { return nil }
