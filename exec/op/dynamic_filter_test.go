package op_test

import (
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/streamdb/streamdb/exec/op/optest"
	"github.com/streamdb/streamdb/planner/plan"
	"github.com/streamdb/streamdb/types"
)

func dynamicNode(op string) *plan.Node {
	rows, one := input([]int{0}, schema("id", types.Int4, "x", types.Int4)), input([]int{}, schema("n", types.Int4, "y", types.Int8))
	return &plan.Node{
		ID: 9, Kind: plan.KindDynamicFilter, Inputs: []*plan.Node{rows, one}, Schema: rows.Schema, Key: rows.Key,
		DynamicFilter: &plan.DynamicFilter{Column: 1, Op: op, Scalar: 1, Spread: []int{0}},
	}
}

func TestDynamicFilter(t *testing.T) {
	runCase(t, optest.Spec{
		Node:  dynamicNode(">"),
		Route: [][]int{{0}, optest.Everywhere},
		Epochs: []optest.Epoch{
			{In: []string{"+ 1 10\n+ 2 20\n+ 3 NULL\n+ 4 20\n+ 5 30", ""}, Want: "{}"},
			{In: []string{"", "+ 1 15"}, Want: "+ 2 20\n+ 4 20\n+ 5 30"},
			{In: []string{"- 2 20\n+ 2 21\n+ 6 5", "- 1 15\n+ 1 20"}, Want: "+ 2 21\n+ 5 30"},
			{In: []string{"- 5 30", "- 1 20\n+ 1 NULL"}, Want: "{}"},
			{In: []string{"+ 7 -3", "- 1 NULL\n+ 1 -5"}, Want: "+ 1 10\n+ 2 21\n+ 4 20\n+ 6 5\n+ 7 -3"},
			{In: []string{"- 7 -3", "- 1 -5"}, Want: "{}"},
		},
	})
}

// TestDynamicFilterChanges changes rows and the value at the same time.
func TestDynamicFilterChanges(t *testing.T) {
	for _, name := range []string{"<", "<=", ">", ">="} {
		t.Run(name, func(t *testing.T) {
			checkCases(t, 20, func(rt *rapid.T) optest.Spec {
				live, value := map[int]string{}, ""
				var epochs []optest.Epoch
				number := func(name string) string {
					if n := rapid.IntRange(-1, 9).Draw(rt, name); n >= 0 {
						return fmt.Sprint(n)
					}
					return "NULL"
				}
				for range rapid.IntRange(1, 6).Draw(rt, "epochs") {
					rows, one := "", ""
					for range rapid.IntRange(0, 6).Draw(rt, "changes") {
						id := rapid.IntRange(0, 9).Draw(rt, "id")
						if old, ok := live[id]; ok {
							rows += "- " + old + "\n"
							delete(live, id)
						}
						if rapid.IntRange(0, 3).Draw(rt, "keep") > 0 {
							live[id] = fmt.Sprint(id, " ", number("x"))
							rows += "+ " + live[id] + "\n"
						}
					}
					if rapid.Bool().Draw(rt, "move") {
						if value != "" {
							one += "- 1 " + value + "\n"
						}
						if value = ""; rapid.IntRange(0, 4).Draw(rt, "there") > 0 {
							value = number("y")
							one += "+ 1 " + value + "\n"
						}
					}
					epochs = append(epochs, optest.Epoch{In: []string{rows, one}})
				}
				node := dynamicNode(name)
				return optest.Spec{Node: node, Route: [][]int{{0}, optest.Everywhere}, Epochs: epochs, Oracle: func(in []*types.Chunk) (*types.Chunk, error) {
					out := types.NewChunk(node.Schema.Types())
					for i := range in[0].N {
						if in[1].N == 0 || in[1].Cols[1].IsNull(0) || in[0].Cols[1].IsNull(i) {
							continue
						}
						x, y := in[0].Cols[1].Int[i], in[1].Cols[1].Int[0]
						if map[string]bool{"<": x < y, "<=": x <= y, ">": x > y, ">=": x >= y}[name] {
							out.AppendRow(in[0], i, 1)
						}
					}
					return out, nil
				}}
			})
		})
	}
}

// TestDynamicFilterCost moves the value by one in a filter of many rows.
func TestDynamicFilterCost(t *testing.T) {
	h := optest.NewHost(t, nil)
	node := dynamicNode(">")
	o := h.Open(node)
	out := &collect{}
	c := types.NewChunk(node.Inputs[0].Schema.Types())
	for i := range int64(20000) {
		c.Cols[0].Int, c.Cols[1].Int = append(c.Cols[0].Int, i), append(c.Cols[1].Int, i)
		if c.PushWeight(1); c.N == types.MaxChunkRows {
			require.NoError(t, o.Process(0, c, out))
			c.Reset()
		}
	}
	one := func(text string) {
		c, err := types.ParseChunk(node.Inputs[1].Schema.Types(), text)
		require.NoError(t, err)
		require.NoError(t, o.Process(1, c, out))
		out.rows = nil
		h.Barrier(o, out)
	}
	one("+ 1 10000")
	require.Greater(t, len(out.rows), 5000)
	one("- 1 10000\n+ 1 10002")
	require.ElementsMatch(t, []string{"-1 10001 10001", "-1 10002 10002"}, out.rows)
	require.NoError(t, o.Close())
}
