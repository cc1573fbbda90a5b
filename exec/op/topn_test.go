package op_test

import (
	"fmt"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/streamdb/streamdb/exec/op/optest"
	"github.com/streamdb/streamdb/planner/plan"
	"github.com/streamdb/streamdb/types"
)

func topNode(in *plan.Node, t *plan.TopN) *plan.Node {
	return &plan.Node{ID: 11, Kind: plan.KindTopN, Inputs: []*plan.Node{in}, Schema: in.Schema, Key: in.Key, TopN: t}
}

func TestTopNOffsetAndTies(t *testing.T) {
	in := input([]int{0}, schema("id", types.Int4, "p", types.Int4))
	desc := plan.SortKey{Column: 1, Desc: true, NullsFirst: true}
	epochs := func(want ...string) []optest.Epoch {
		in := []string{"+ 1 10\n+ 2 20\n+ 3 20\n+ 4 5", "- 2 20", "+ 4 30\n- 4 5", "+ 5 NULL"}
		var es []optest.Epoch
		for i, w := range want {
			es = append(es, optest.Epoch{In: []string{in[i]}, Want: w})
		}
		return es
	}
	t.Run("offset", func(t *testing.T) {
		runCase(t, optest.Spec{
			Node:   topNode(in, &plan.TopN{Order: []plan.SortKey{desc, {Column: 0}}, Limit: 2, Offset: 1}),
			Epochs: epochs("+ 3 20\n+ 1 10", "+ 1 10\n+ 4 5", "+ 3 20\n+ 1 10", "+ 4 30\n+ 3 20"),
		})
	})
	t.Run("ties", func(t *testing.T) {
		runCase(t, optest.Spec{
			Node:   topNode(in, &plan.TopN{Order: []plan.SortKey{desc}, Limit: 1, WithTies: true}),
			Epochs: epochs("+ 2 20\n+ 3 20", "+ 3 20", "+ 4 30", "+ 5 NULL"),
		})
	})
}

func TestTopNDistinctOn(t *testing.T) {
	in := input([]int{0}, schema("id", types.Int4, "dev", types.Text, "ts", types.Int4))
	runCase(t, optest.Spec{
		Node: topNode(in, &plan.TopN{GroupBy: []int{1}, Limit: 1, Order: []plan.SortKey{
			{Column: 2, Desc: true, NullsFirst: true},
			{Column: 0, Desc: true, NullsFirst: true},
		}}),
		Route: [][]int{{1}},
		Epochs: []optest.Epoch{
			{In: []string{"+ 1 x 0\n+ 2 x 5\n+ 3 y 1"}, Want: "+ 2 x 5\n+ 3 y 1"},
			{In: []string{"- 2 x 5"}, Want: "+ 1 x 0\n+ 3 y 1"},
			{In: []string{"- 3 y 1"}, Want: "+ 1 x 0"},
		},
	})
}

func TestTopNNullPlacement(t *testing.T) {
	in := input([]int{0}, schema("id", types.Int4, "v", types.Int4))
	for _, c := range []struct {
		key  plan.SortKey
		want string
	}{
		{plan.SortKey{Column: 1}, "+ 3 4"},
		{plan.SortKey{Column: 1, Desc: true, NullsFirst: true}, "+ 2 NULL"},
		{plan.SortKey{Column: 1, NullsFirst: true}, "+ 2 NULL"},
		{plan.SortKey{Column: 1, Desc: true}, "+ 1 7"},
	} {
		runCase(t, optest.Spec{
			Node:   topNode(in, &plan.TopN{Order: []plan.SortKey{c.key}, Limit: 1}),
			Epochs: []optest.Epoch{{In: []string{"+ 1 7\n+ 2 NULL\n+ 3 4"}, Want: c.want}},
		})
	}
}

func TestTopNAppendOnlyForgets(t *testing.T) {
	in := input([]int{0}, schema("id", types.Int4, "k", types.Int4, "v", types.Int4))
	in.AppendOnly = true
	checkCases(t, 30, func(rt *rapid.T) optest.Spec {
		var es []optest.Epoch
		id := 0
		for range 4 {
			text := ""
			for range rapid.IntRange(0, 12).Draw(rt, "rows") {
				text += fmt.Sprintf("+ %d %d %d\n", id, rapid.IntRange(0, 1).Draw(rt, "k"), rapid.IntRange(0, 20).Draw(rt, "v"))
				id++
			}
			es = append(es, optest.Epoch{In: []string{text}})
		}
		n := &plan.TopN{
			GroupBy: []int{1}, Order: []plan.SortKey{{Column: 2}}, Limit: int64(rapid.IntRange(0, 3).Draw(rt, "limit")),
			Offset: int64(rapid.IntRange(0, 2).Draw(rt, "offset")),
		}
		switch rapid.IntRange(0, 2).Draw(rt, "ties") {
		case 1:
			n.WithTies = true
		case 2:
			n.Dense, n.Offset = true, 0
		}
		node := topNode(in, n)
		switch rapid.IntRange(0, 2).Draw(rt, "ranks") {
		case 1:
			n.Ranks = []string{plan.RankNumber, plan.RankRank, plan.RankDense}
			node.Schema = append(slices.Clone(in.Schema), schema("n", types.Int8, "r", types.Int8, "d", types.Int8)...)
		case 2:
			n.Ranks = []string{rapid.SampledFrom([]string{plan.RankNumber, plan.RankRank, plan.RankDense}).Draw(rt, "rank")}
			node.Schema = append(slices.Clone(in.Schema), schema("n", types.Int8)...)
		}
		return optest.Spec{Node: node, Route: [][]int{{1}}, Epochs: es}
	})
}

func TestTopNAgainstSort(t *testing.T) {
	checkCases(t, 25, func(rt *rapid.T) optest.Spec {
		limit, offset := rapid.IntRange(0, 3).Draw(rt, "limit"), rapid.IntRange(0, 2).Draw(rt, "offset")
		ties, dense := rapid.Bool().Draw(rt, "ties"), rapid.IntRange(0, 2).Draw(rt, "dense") == 0
		if dense {
			offset, ties = 0, false
		}
		return optest.Spec{
			Node: topNode(input([]int{0}, keyedSchema), &plan.TopN{
				Order: []plan.SortKey{{Column: 2}}, Limit: int64(limit), Offset: int64(offset),
				WithTies: ties, Dense: dense,
			}),
			Epochs: history(rt, 1),
			Oracle: func(in []*types.Chunk) (*types.Chunk, error) {
				c := in[0]
				order := make([]int, c.N)
				for i := range order {
					order[i] = i
				}
				slices.SortFunc(order, func(a, b int) int {
					if d := c.Cols[2].Int[a] - c.Cols[2].Int[b]; d != 0 {
						return int(d)
					}
					return int(c.Cols[0].Int[a] - c.Cols[0].Int[b])
				})
				out := types.NewChunk(keyedSchema.Types())
				values := 0
				for k, i := range order {
					in := k >= offset && k < offset+limit
					if ties && k >= offset+limit && limit > 0 && c.Cols[2].Int[i] == c.Cols[2].Int[order[offset+limit-1]] {
						in = true
					}
					if k == 0 || c.Cols[2].Int[i] != c.Cols[2].Int[order[k-1]] {
						values++
					}
					if dense {
						in = values <= limit
					}
					if in {
						out.AppendRow(c, i, 1)
					}
				}
				return out, nil
			},
		}
	})
}

// TestTopNKeepsWhatCanBeShown counts what is kept of inputs that only grow.
func TestTopNKeepsWhatCanBeShown(t *testing.T) {
	in := input([]int{0}, schema("id", types.Int4, "v", types.Int4))
	in.AppendOnly = true
	for _, c := range []struct {
		top  plan.TopN
		want int64
	}{
		{plan.TopN{Limit: 3}, 3},
		{plan.TopN{Limit: 2, Offset: 2}, 4},
		{plan.TopN{Limit: 3, WithTies: true}, 20},
		{plan.TopN{Limit: 12, WithTies: true}, 20},
		{plan.TopN{Limit: 3, Dense: true}, 60},
	} {
		c.top.Order = []plan.SortKey{{Column: 1}}
		n := topNode(in, &c.top)
		h := optest.NewHost(t, nil)
		o := h.Open(n)
		for epoch := range 10 { // of every value ten rows
			text := ""
			for v := range 10 {
				text += fmt.Sprintf("+ %d %d\n", epoch*10+v, v/2)
			}
			k, err := types.ParseChunk(in.Schema.Types(), text)
			require.NoError(t, err)
			require.NoError(t, o.Process(0, k, &discard{}))
			h.Barrier(o, &discard{})
		}
		h.Checkpoint(o, &discard{})
		require.NoError(t, o.Close())
		require.Equal(t, c.want, h.Entries(n, 0), "%+v", c.top)
	}
}

// TestTopNKeepsFirst keeps of each group of rows that are only added the one that is shown.
func TestTopNKeepsFirst(t *testing.T) {
	in := input([]int{0}, schema("id", types.Int4, "k", types.Int4, "at", types.Int4))
	in.AppendOnly = true
	for _, desc := range []bool{false, true} {
		node := topNode(in, &plan.TopN{GroupBy: []int{1}, Order: []plan.SortKey{{Column: 2, Desc: desc}}, Limit: 1})
		h := optest.NewHost(t, nil)
		o := h.Open(node)
		c := types.NewChunk(in.Schema.Types())
		for e := range int64(10) {
			c.Reset()
			for i := range int64(100) {
				n := e*100 + i
				for k, x := range []int64{n, n % 7, n} {
					c.Cols[k].Int = append(c.Cols[k].Int, x)
				}
				c.PushWeight(1)
			}
			require.NoError(t, o.Process(0, c, &discard{}))
			h.Checkpoint(o, &discard{})
			require.EqualValues(t, 7, h.Entries(node, 0))
		}
		require.NoError(t, o.Close())
	}
}
