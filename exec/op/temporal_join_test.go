package op_test

import (
	"testing"

	"github.com/streamdb/streamdb/exec/op/optest"
	"github.com/streamdb/streamdb/planner/plan"
	"github.com/streamdb/streamdb/sql/expr"
	"github.com/streamdb/streamdb/sql/functions"
	"github.com/streamdb/streamdb/types"
)

func temporalJoinNode(l, r *plan.Node, j *plan.TemporalJoin) *plan.Node {
	n := &plan.Node{ID: 9, Kind: plan.KindTemporalJoin, Inputs: []*plan.Node{l, r}, Key: append(append([]int{}, l.Key...), len(l.Schema)), TemporalJoin: j}
	n.Schema = append(append(n.Schema, l.Schema...), r.Schema...)
	return n
}

// Each epoch changes one side only, so that it may be cut anywhere.
func TestTemporalJoinRemembersWhatRowsBrought(t *testing.T) {
	l := input([]int{0}, schema("id", types.Int4, "k", types.Text, "v", types.Int4))
	r := input([]int{0}, schema("id", types.Int4, "k", types.Text, "w", types.Int4))
	div := fn("int4div(int4,int4)", types.Int4, expr.Col(2, types.Int4), expr.Col(5, types.Int4))
	residual := fn("int4lt(int4,int4)", types.Bool, div, int4(100))
	optest.Run(t, optest.Spec{
		Node:     temporalJoinNode(l, r, &plan.TemporalJoin{Type: plan.Left, LeftKeys: []int{1}, RightKeys: []int{1}, Residual: residual, Spread: []int{1}}),
		Route:    [][]int{{1}, {1}},
		Lib:      functions.Builtins(),
		NoOracle: true,
		Epochs: []optest.Epoch{
			{In: []string{"+ 1 a 7\n+ 2 NULL 1", ""}, Want: "+ 1 a 7 NULL NULL NULL\n+ 2 NULL 1 NULL NULL NULL"},
			{In: []string{"", "+ 10 a 1\n+ 11 a 2\n+ 12 b 0\n+ 13 NULL 3"}, Want: "+ 1 a 7 NULL NULL NULL\n+ 2 NULL 1 NULL NULL NULL"},
			{In: []string{"+ 3 a 7\n+ 4 b 5\n- 2 NULL 1", ""}, Want: "+ 1 a 7 NULL NULL NULL\n+ 3 a 7 10 a 1\n+ 3 a 7 11 a 2\n+ 4 b 5 NULL NULL NULL", Errors: "22012"},
			{In: []string{"", "- 10 a 1\n- 12 b 0\n+ 12 b 1"}, Want: "+ 1 a 7 NULL NULL NULL\n+ 3 a 7 10 a 1\n+ 3 a 7 11 a 2\n+ 4 b 5 NULL NULL NULL", Errors: "22012"},
			{In: []string{"+ 3 a 8\n- 3 a 7\n- 1 a 7\n+ 5 b 4", ""}, Want: "+ 3 a 8 11 a 2\n+ 4 b 5 NULL NULL NULL\n+ 5 b 4 12 b 1", Errors: "22012"},
			{In: []string{"- 4 b 5\n+ 4 b 6", ""}, Want: "+ 3 a 8 11 a 2\n+ 4 b 6 12 b 1\n+ 5 b 4 12 b 1", Errors: "{}"},
			{In: []string{"- 3 a 8\n- 4 b 6\n- 5 b 4", ""}, Want: "{}"},
		},
	})
}

func TestTemporalJoinOfRowsThatOnlyCome(t *testing.T) {
	l := input([]int{0}, schema("id", types.Int4, "k", types.Int4))
	l.AppendOnly = true
	r := input([]int{0}, schema("id", types.Int4, "k", types.Int4, "t", types.Text))
	n := temporalJoinNode(l, r, &plan.TemporalJoin{Type: plan.Inner, LeftKeys: []int{1}, RightKeys: []int{1}, NullSafe: []bool{true}, Spread: []int{1}})
	n.AppendOnly, n.WatermarkCols = true, []int{0}
	optest.Run(t, optest.Spec{
		Node: n, Route: [][]int{{1}, {1}}, NoOracle: true,
		Epochs: []optest.Epoch{
			{In: []string{"", "+ 1 7 x\n+ 2 7 y\n+ 3 NULL z"}, Want: "{}"},
			{In: []string{"+ 1 7\n+ 2 NULL\n+ 3 8", ""}, Marks: []optest.Mark{{Port: 0, Column: 0, Value: 3}}, Want: "+ 1 7 1 7 x\n+ 1 7 2 7 y\n+ 2 NULL 3 NULL z"},
			{In: []string{"", "- 1 7 x\n- 2 7 y\n+ 2 7 yy"}, Want: "+ 1 7 1 7 x\n+ 1 7 2 7 y\n+ 2 NULL 3 NULL z"},
			{In: []string{"+ 4 7", ""}, Marks: []optest.Mark{{Port: 0, Column: 0, Value: 4}}, Want: "+ 1 7 1 7 x\n+ 1 7 2 7 y\n+ 2 NULL 3 NULL z\n+ 4 7 2 7 yy"},
		},
	})
}
