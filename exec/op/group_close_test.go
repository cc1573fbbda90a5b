package op_test

import (
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/streamdb/streamdb/exec/op"
	"github.com/streamdb/streamdb/exec/op/optest"
	"github.com/streamdb/streamdb/planner/plan"
	"github.com/streamdb/streamdb/sql/functions"
	"github.com/streamdb/streamdb/types"
)

// closingNodes are the operators that hold groups of id, end, v back until the watermark has passed their end.
func closingNodes() map[string]*plan.Node {
	in := input([]int{0}, schema("id", types.Int8, "end", types.Int8, "v", types.Int8))
	in.AppendOnly = true
	column := 1
	ranked := overNode(in, []int{1}, []plan.SortKey{{Column: 2}}, over("row_number()", types.Int8))
	ranked.Over.OnClose = &column
	top := &plan.Node{
		ID: 14, Kind: plan.KindTopN, Inputs: []*plan.Node{in}, Key: in.Key, Schema: in.Schema,
		TopN: &plan.TopN{GroupBy: []int{1}, Order: []plan.SortKey{{Column: 2, Desc: true}}, Limit: 2, OnClose: &column},
	}
	sorted := &plan.Node{ID: 15, Kind: plan.KindTopN, Inputs: []*plan.Node{in}, Key: in.Key, Schema: in.Schema, TopN: &plan.TopN{GroupBy: []int{1}, Limit: -1, OnClose: &column}}
	return map[string]*plan.Node{"over": ranked, "top-n": top, "sort": sorted}
}

func TestGroupsEmittedOnClose(t *testing.T) {
	mark := func(v int64) []optest.Mark { return []optest.Mark{{Column: 1, Value: v}} }
	for name, want := range map[string][3]string{
		"over":  {"+ 1 10 5 2\n+ 2 10 3 1\n+ 9 10 7 3", "+ 3 20 1 1\n+ 6 20 0 1", "+ 4 30 1 1"},
		"top-n": {"+ 1 10 5\n+ 9 10 7", "+ 3 20 1\n+ 6 20 0", "+ 4 30 1"},
		"sort":  {"+ 1 10 5\n+ 2 10 3\n+ 9 10 7", "+ 3 20 1\n+ 6 20 0", "+ 4 30 1"},
	} {
		t.Run(name, func(t *testing.T) {
			second := want[1]
			if name == "over" {
				second = "+ 3 20 1 2\n+ 6 20 0 1"
			}
			runCase(t, optest.Spec{
				Node: closingNodes()[name], Route: [][]int{{1}}, NoOracle: true,
				Epochs: []optest.Epoch{
					{In: []string{"+ 1 10 5\n+ 2 10 3\n+ 3 20 1"}, Marks: mark(10), Want: "{}"},
					{In: []string{"+ 9 10 7"}, Marks: mark(11), Want: want[0]},
					{In: []string{"+ 5 10 9\n+ 4 30 1\n+ 6 20 0"}, Want: want[0], Late: 1},
					{Marks: mark(21), Want: want[0] + "\n" + second},
					{In: []string{"+ 7 20 1"}, Marks: mark(100), Want: want[0] + "\n" + second + "\n" + want[2], Late: 2},
				},
			})
		})
	}
}

// TestClosedGroupsLeaveNoState: state holds open groups only, however many have been.
func TestClosedGroupsLeaveNoState(t *testing.T) {
	for name, node := range closingNodes() {
		t.Run(name, func(t *testing.T) {
			h := optest.NewHost(t, functions.Builtins())
			o := h.Open(node)
			out := &capture{}
			for i := range int64(100) {
				text := ""
				for k := range 4 {
					text += fmt.Sprintf("+ %d %d %d\n", 4*i+int64(k), 10*(i+1), k)
				}
				c, err := types.ParseChunk(node.Inputs[0].Schema.Types(), text)
				require.NoError(t, err)
				require.NoError(t, o.Process(0, c, out))
				require.NoError(t, o.Watermark(0, op.Watermark{Column: 1, Value: 10*i + 1}, out))
				h.Checkpoint(o, out)
				require.LessOrEqual(t, h.Entries(node, 0), int64(8), "rows after %d groups", i)
				require.LessOrEqual(t, h.Entries(node, 1), int64(2), "open groups after %d", i)
			}
			require.Equal(t, map[string]int{"over": 4, "sort": 4, "top-n": 2}[name]*99, out.rows.N)
		})
	}
}
