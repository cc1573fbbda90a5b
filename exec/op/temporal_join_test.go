package op_test

import (
	"fmt"
	"strings"
	"testing"

	"pgregory.net/rapid"

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
	runCase(t, optest.Spec{
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
	runCase(t, optest.Spec{
		Node: n, Route: [][]int{{1}, {1}}, NoOracle: true,
		Epochs: []optest.Epoch{
			{In: []string{"", "+ 1 7 x\n+ 2 7 y\n+ 3 NULL z"}, Want: "{}"},
			{In: []string{"+ 1 7\n+ 2 NULL\n+ 3 8", ""}, Marks: []optest.Mark{{Port: 0, Column: 0, Value: 3}}, Want: "+ 1 7 1 7 x\n+ 1 7 2 7 y\n+ 2 NULL 3 NULL z"},
			{In: []string{"", "- 1 7 x\n- 2 7 y\n+ 2 7 yy"}, Want: "+ 1 7 1 7 x\n+ 1 7 2 7 y\n+ 2 NULL 3 NULL z"},
			{In: []string{"+ 4 7", ""}, Marks: []optest.Mark{{Port: 0, Column: 0, Value: 4}}, Want: "+ 1 7 1 7 x\n+ 1 7 2 7 y\n+ 2 NULL 3 NULL z\n+ 4 7 2 7 yy"},
		},
	})
}

// TestTemporalJoinAgainstModel changes one side per epoch: a left row has what the right side held when it came, until it goes.
func TestTemporalJoinAgainstModel(t *testing.T) {
	residual := fn("int4ge(int4,int4)", types.Bool, expr.Col(2, types.Int4), expr.Col(5, types.Int4))
	for _, typ := range []plan.JoinType{plan.Inner, plan.Left} {
		for _, grows := range []bool{false, true} {
			for _, point := range []bool{false, true} {
				t.Run(fmt.Sprint(typ, "/grows=", grows, "/point=", point), func(t *testing.T) {
					checkCases(t, 10, func(rt *rapid.T) optest.Spec {
						l, r := input([]int{0}, keyedSchema), input([]int{0}, keyedSchema)
						l.AppendOnly = grows
						n := temporalJoinNode(l, r, &plan.TemporalJoin{
							Type: typ, LeftKeys: []int{1}, RightKeys: []int{1}, Residual: residual, Spread: []int{1}, Output: []int{0, 1, 2, 5, 3},
						})
						n.Schema = schema("id", types.Int4, "k", types.Int4, "v", types.Int4, "w", types.Int4, "rid", types.Int4)
						n.Key, n.AppendOnly = []int{0, 4}, grows
						s := optest.Spec{Node: n, Lib: functions.Builtins(), Route: [][]int{{1}, {1}}, NoOracle: true}
						match := 1 // the column of the right side that the left key is compared with
						if point {
							n.TemporalJoin.RightKeys, n.TemporalJoin.Point, s.Probed, s.Route = []int{0}, []int{1}, []int{0}, [][]int{{1}, {0}}
							r.Scan = &plan.Scan{Probed: true}
							n.Key, match = []int{0}, 0
						}
						var live [2]map[int][3]string
						live[0], live[1] = map[int][3]string{}, map[int][3]string{}
						brought := map[int]string{}
						number, next := 0, 100
						for range rapid.IntRange(1, 7).Draw(rt, "epochs") {
							side := rapid.IntRange(0, 1).Draw(rt, "side")
							e := optest.Epoch{In: make([]string, 2)}
							for _, id := range rapid.SliceOfNDistinct(rapid.IntRange(0, 6), 0, 6, rapid.ID[int]).Draw(rt, "ids") {
								if side == 0 && grows {
									id, next = next, next+1
								}
								old, has := live[side][id]
								if has {
									e.In[side] += "- " + strings.Join(old[:], " ") + "\n"
									delete(live[side], id)
									if side == 0 {
										delete(brought, id)
									}
									if rapid.Bool().Draw(rt, "delete") {
										continue
									}
								}
								number++
								row := [3]string{fmt.Sprint(id), []string{"0", "1", "2", "NULL"}[rapid.IntRange(0, 3).Draw(rt, "k")], fmt.Sprint(number % 17)}
								if side == 0 { // no row comes twice
									row[2] = fmt.Sprint(number)
								}
								live[side][id] = row
								e.In[side] += "+ " + strings.Join(row[:], " ") + "\n"
								if side == 1 {
									continue
								}
								text := ""
								for _, o := range live[1] {
									var w int
									_, _ = fmt.Sscan(o[2], &w)
									if row[1] != "NULL" && o[match] == row[1] && number >= w {
										text += fmt.Sprintf("+ %s %s %s\n", strings.Join(row[:], " "), o[2], o[0])
									}
								}
								if text == "" && typ == plan.Left {
									text = "+ " + strings.Join(row[:], " ") + " NULL NULL\n"
								}
								brought[id] = text
							}
							for _, text := range brought {
								e.Want += text
							}
							if e.Want == "" {
								e.Want = "{}"
							}
							s.Epochs = append(s.Epochs, e)
						}
						return s
					})
				})
			}
		}
	}
}
