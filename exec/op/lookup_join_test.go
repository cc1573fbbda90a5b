package op_test

import (
	"testing"

	"pgregory.net/rapid"

	"github.com/streamdb/streamdb/exec/op/optest"
	"github.com/streamdb/streamdb/planner/plan"
	"github.com/streamdb/streamdb/sql/expr"
	"github.com/streamdb/streamdb/sql/functions"
	"github.com/streamdb/streamdb/types"
)

// TestLookupJoinAgainstNestedLoop changes both sides at once: what was read of the relation must be of the epoch that the left rows are of.
func TestLookupJoinAgainstNestedLoop(t *testing.T) {
	compare := func(id string) *expr.Expr {
		return fn(id, types.Bool, expr.Col(2, types.Int4), expr.Col(5, types.Int4))
	}
	for name, c := range map[string]struct {
		join  plan.LookupJoin
		key   []int // of the relation
		route [][]int
	}{
		"key":        {plan.LookupJoin{LeftKeys: []int{1}, RightKeys: []int{0}, Point: []int{1}}, []int{0}, [][]int{{1}, {0}}},
		"condition":  {plan.LookupJoin{LeftKeys: []int{1}, RightKeys: []int{0}, Point: []int{1}}, []int{0}, [][]int{{1}, {0}}},
		"two keys":   {plan.LookupJoin{LeftKeys: []int{2, 1}, RightKeys: []int{2, 0}, Point: []int{1, 2}}, []int{0, 2}, [][]int{{2, 1}, {2, 0}}},
		"first key":  {plan.LookupJoin{LeftKeys: []int{1}, RightKeys: []int{0}, Point: []int{1, 2}}, []int{0, 2}, [][]int{{1}, {0}}},
		"same order": {plan.LookupJoin{LeftKeys: []int{1, 2}, RightKeys: []int{0, 2}, Point: []int{1, 2}}, []int{0, 2}, [][]int{{1, 2}, {0, 2}}},
		"index": {plan.LookupJoin{
			LeftKeys: []int{1}, RightKeys: []int{1}, Point: []int{1}, Lookup: &plan.LookupIndex{Index: 11, Name: "i", Columns: []int{1}, Order: []plan.KeyOrder{{Desc: true, NullsFirst: true}}},
		}, []int{0}, [][]int{{1}, {1}}},
	} {
		for _, typ := range []plan.JoinType{plan.Inner, plan.Left, plan.Semi, plan.Anti} {
			t.Run(name+" "+string(typ), func(t *testing.T) {
				c := c
				c.join.Type = typ
				l, r := input([]int{0}, keyedSchema), input(c.key, keyedSchema)
				n := &plan.Node{
					ID: 9, Kind: plan.KindLookupJoin, Inputs: []*plan.Node{l, r}, Key: []int{0}, LookupJoin: &c.join,
					Schema: append(append(types.Schema{}, l.Schema...), r.Schema...),
				}
				c.join.Output = []int{0, 1, 2, 3, 4, 5}
				probed, key := c.key, 0
				if c.join.Lookup != nil { // several rows have a key
					probed, key, n.Key = c.join.Lookup.Columns, 1, []int{0, 3}
				}
				c.join.Relation, c.join.Columns = 7, []int{0, 1, 2}
				if typ == plan.Semi || typ == plan.Anti {
					c.join.Output, n.Key, n.Schema = nil, []int{0}, l.Schema
				}
				if name == "condition" {
					c.join.Residual = compare("int4lt(int4,int4)")
				}
				if name == "first key" { // the whole key is read, so the condition on its other column is the key's
					c.join.Residual = compare("int4eq(int4,int4)")
				}
				match := func(l, r *types.Chunk, i, j int) bool {
					if l.Cols[1].IsNull(i) || r.Cols[key].IsNull(j) || l.Cols[1].Int[i] != r.Cols[key].Int[j] {
						return false
					}
					x, y := l.Cols[2].Int[i], r.Cols[2].Int[j]
					return name == "key" || name == "index" || name == "condition" && x < y || name != "condition" && x == y
				}
				checkCases(t, 8, func(rt *rapid.T) optest.Spec {
					return optest.Spec{
						Node: n, Lib: functions.Builtins(), Route: c.route, Probed: probed, Epochs: history(rt, 2), Oracle: pairs(typ, n.Schema, match),
					}
				})
			})
		}
	}
}
