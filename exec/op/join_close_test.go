package op_test

import (
	"fmt"
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

// closingJoin joins rows (id, window, value) by window and forgets the windows that both watermarks have passed.
func closingJoin(typ plan.JoinType, residual *expr.Expr) *plan.Node {
	l, r := input([]int{0}, windowSchema), input([]int{0}, windowSchema)
	l.AppendOnly, r.AppendOnly = true, true
	key := []int{0, 3}
	if typ == plan.Semi || typ == plan.Anti {
		key = []int{0}
	}
	n := joinNode(l, r, typ, []int{1}, []int{1}, key, residual)
	first := 0
	n.Join.CloseKey = &first
	return n
}

var windowSchema = schema("id", types.Int4, "w", types.Int8, "v", types.Int4)

func TestJoinForgetsClosedWindows(t *testing.T) {
	marks := func(l, r int64) []optest.Mark {
		return []optest.Mark{{Port: 0, Column: 1, Value: l}, {Port: 1, Column: 1, Value: r}}
	}
	runCase(t, optest.Spec{
		Node:  closingJoin(plan.Left, nil),
		Route: [][]int{{1}, {1}}, NoOracle: true,
		Epochs: []optest.Epoch{
			{In: []string{"+ 1 10 0\n+ 2 10 0\n+ 3 20 0", "+ 7 20 0"}, Marks: marks(20, 10), Want: "+ 3 20 0 7 20 0"},
			{In: []string{"+ 4 10 0", ""}, Marks: marks(20, 20), Want: "+ 3 20 0 7 20 0\n+ 1 10 0 NULL NULL NULL\n+ 2 10 0 NULL NULL NULL\n+ 4 10 0 NULL NULL NULL"},
			{
				In: []string{"+ 5 10 0\n+ 6 20 0", "+ 8 10 0"}, Late: 2,
				Want: "+ 3 20 0 7 20 0\n+ 1 10 0 NULL NULL NULL\n+ 2 10 0 NULL NULL NULL\n+ 4 10 0 NULL NULL NULL\n+ 6 20 0 7 20 0",
			},
		},
	})
}

// TestClosingJoinsAgainstNestedLoop closes every window after random arrivals: what was emitted in the end is what joining everything gives.
func TestClosingJoinsAgainstNestedLoop(t *testing.T) {
	less := &expr.Expr{Kind: expr.Call, Func: "int4lt(int4,int4)", Type: types.Bool, Args: []*expr.Expr{expr.Col(2, types.Int4), expr.Col(5, types.Int4)}}
	for _, typ := range joinTypes {
		for _, residual := range []*expr.Expr{nil, less} {
			t.Run(fmt.Sprint(typ, "/", residual != nil), func(t *testing.T) {
				node := closingJoin(typ, residual)
				all := naiveJoin(typ, residual != nil, false, node.Schema)
				checkCases(t, 10, func(rt *rapid.T) optest.Spec {
					return optest.Spec{Node: node, Lib: functions.Builtins(), Route: [][]int{{1}, {1}}, Epochs: arrivals(t, rt, all), NoOracle: true}
				})
			})
		}
	}
}

// arrivals draws epochs of insertions into windows that both sides' watermarks leave behind at their own pace; the last epoch closes all.
func arrivals(tt *testing.T, t *rapid.T, all func([]*types.Chunk) (*types.Chunk, error)) []optest.Epoch {
	var epochs []optest.Epoch
	var mark [2]int64
	id := [2]int{}
	for range rapid.IntRange(1, 5).Draw(t, "epochs") {
		e := optest.Epoch{In: make([]string, 2)}
		for p := range 2 {
			for range rapid.IntRange(0, 6).Draw(t, "rows") {
				w := mark[p] + int64(rapid.IntRange(0, 2).Draw(t, "window"))
				e.In[p] += fmt.Sprintf("+ %d %d %d\n", id[p], w, rapid.IntRange(0, 3).Draw(t, "value"))
				id[p]++
			}
		}
		for p := range 2 {
			mark[p] += int64(rapid.IntRange(0, 2).Draw(t, "advance"))
			e.Marks = append(e.Marks, optest.Mark{Port: p, Column: 1, Value: mark[p]})
		}
		epochs = append(epochs, e)
	}
	last := []optest.Mark{{Port: 0, Column: 1, Value: 100}, {Port: 1, Column: 1, Value: 100}}
	return append(epochs, optest.Epoch{In: []string{"", ""}, Marks: last, Want: joinedText(tt, all, windowSchema, epochs)})
}

// TestClosedRowsNeverReachState shows that rows which come and go between two checkpoints are not written.
func TestClosedRowsNeverReachState(t *testing.T) {
	h := optest.NewHost(t, functions.Builtins())
	n := closingJoin(plan.Inner, nil)
	o, out := h.Open(n), &capture{}
	for i := range 100 {
		c, err := types.ParseChunk(windowSchema.Types(), fmt.Sprintf("+ %d %d 0", i, i))
		require.NoError(t, err)
		require.NoError(t, o.Process(0, c, out))
	}
	for port := range 2 {
		require.NoError(t, o.Watermark(port, op.Watermark{Column: 1, Value: 99}, out))
	}
	h.Barrier(o, out)
	h.Checkpoint(o, out)
	require.EqualValues(t, 1, h.Entries(n, 0))
	require.NoError(t, o.Close())
}
