package op_test

import (
	"testing"

	"github.com/streamdb/streamdb/exec/op/optest"
	"github.com/streamdb/streamdb/planner/plan"
	"github.com/streamdb/streamdb/types"
)

// TestProcTime: rows get the clock of the barrier before them, whatever their chunks, also over restores.
func TestProcTime(t *testing.T) {
	in := input([]int{0}, schema("id", types.Int4))
	in.AppendOnly = true
	s := schema("id", types.Int4, "p", types.Timestamptz)
	runCase(t, optest.Spec{
		Node:  &plan.Node{ID: 31, Kind: plan.KindProcTime, Inputs: []*plan.Node{in}, Key: in.Key, Schema: s},
		Route: [][]int{{0}}, NoOracle: true,
		Epochs: []optest.Epoch{
			{Now: 10_000_000, Want: "{}"},
			{In: []string{"+ 1\n+ 2"}, Now: 20_000_000, Want: "+ 1 '2000-01-01 00:00:10'\n+ 2 '2000-01-01 00:00:10'"},
			{In: []string{"+ 3\n+ 4\n+ 5"}, Want: "+ 1 '2000-01-01 00:00:10'\n+ 2 '2000-01-01 00:00:10'\n+ 3 '2000-01-01 00:00:20'\n+ 4 '2000-01-01 00:00:20'\n+ 5 '2000-01-01 00:00:20'"},
		},
	})
}
