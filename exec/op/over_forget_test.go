package op_test

import (
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/streamdb/streamdb/exec/op"
	"github.com/streamdb/streamdb/exec/op/optest"
	"github.com/streamdb/streamdb/planner/plan"
	"github.com/streamdb/streamdb/types"
)

// lookBack are calls that read rows before their own only, and how many settled rows of a partition they need.
func lookBack() map[string]struct {
	call plan.OverCall
	kept int64
} {
	two := int64(2)
	here, first := bound(plan.CurrentRow, 0), bound(plan.UnboundedPreceding, 0)
	lag2 := over("lag(anyelement,int4)", types.Int4, 3, 4)
	lag2.Number = &two
	ignore := over("lag(anyelement)", types.Int4, 3)
	ignore.IgnoreNulls = true
	type c = struct {
		call plan.OverCall
		kept int64
	}
	return map[string]c{
		"lag":          {over("lag(anyelement)", types.Int4, 3), 2},
		"lag 2":        {lag2, 3},
		"lag not null": {ignore, 2},
		"row number":   {over("row_number()", types.Int8), 2},
		"dense rank":   {over("dense_rank()", types.Int8), 2},
		"running sum":  {over("sum(int4)", types.Int8, 3), 2},
		"running max":  {framed(over("max(int4)", types.Int4, 3), plan.FrameRows, first, here, ""), 2},
		"5 rows":       {framed(over("sum(int4)", types.Int8, 3), plan.FrameRows, bound(plan.Preceding, 4), here, ""), 5},
		"range":        {framed(over("count(int4)", types.Int8, 3), plan.FrameRange, bound(plan.Preceding, 3), here, ""), 4},
		"groups":       {framed(over("min(int4)", types.Int4, 3), plan.FrameGroups, bound(plan.Preceding, 2), here, ""), 3},
		"others":       {framed(over("sum(int4)", types.Int8, 3), plan.FrameRows, first, here, "current"), 2},
	}
}

func forgetNode(calls ...plan.OverCall) *plan.Node {
	in := input([]int{0}, schema("id", types.Int4, "k", types.Int4, "o", types.Int4, "v", types.Int4, "two", types.Int4))
	in.AppendOnly = true
	node := overNode(in, []int{1}, []plan.SortKey{{Column: 2}}, calls...)
	column := 2
	node.Over.Forget = &column
	return node
}

// TestOverForget compares with all rows computed at once, rows being added in any order behind the watermark.
func TestOverForget(t *testing.T) {
	calls := lookBack()
	for name, l := range map[string][5]int{"": {1 << 20, 4096, 16, 256, 65536}, "all": {0, 5, 1, 2, 4}} {
		t.Run(name, func(t *testing.T) {
			defer op.LowerOverLimits(l[0], l[1], l[2], l[3], l[4])()
			for name, c := range calls {
				t.Run(name, func(t *testing.T) {
					checkCases(t, 6, func(rt *rapid.T) optest.Spec {
						var epochs []optest.Epoch
						id, mark := 0, 0
						for range rapid.IntRange(2, 8).Draw(rt, "epochs") {
							text := ""
							for range rapid.IntRange(0, 8).Draw(rt, "rows") {
								id++
								o, v := "NULL", "NULL"
								if n := rapid.IntRange(0, 7).Draw(rt, "o"); n < 7 {
									o = fmt.Sprint(mark + n)
								}
								if n := rapid.IntRange(0, 5).Draw(rt, "v"); n < 5 {
									v = fmt.Sprint(n)
								}
								text += fmt.Sprintf("+ %d %d %s %s 2\n", id, rapid.IntRange(0, 2).Draw(rt, "k"), o, v)
							}
							e := optest.Epoch{In: []string{text}}
							if rapid.IntRange(0, 3).Draw(rt, "advance") > 0 {
								mark += rapid.IntRange(0, 8).Draw(rt, "by")
								e.Marks = []optest.Mark{{Column: 2, Value: int64(mark)}}
							}
							epochs = append(epochs, e)
						}
						return optest.Spec{Node: forgetNode(c.call), Route: [][]int{{1}}, Epochs: epochs}
					})
				})
			}
		})
	}
}

// TestOverForgetState appends many rows and looks at what is kept.
func TestOverForgetState(t *testing.T) {
	for name, c := range lookBack() {
		t.Run(name, func(t *testing.T) {
			node := forgetNode(c.call)
			h := optest.NewHost(t, nil)
			o := h.Open(node)
			chunk := types.NewChunk(node.Inputs[0].Schema.Types())
			for e := range int64(20) {
				for i := range int64(100) {
					n := e*100 + i
					for k, x := range []int64{n, n % 2, n / 2, n % 7, 2} {
						chunk.Cols[k].Int = append(chunk.Cols[k].Int, x)
					}
					chunk.PushWeight(1)
				}
				require.NoError(t, o.Process(0, chunk, &discard{}))
				chunk.Reset()
				require.NoError(t, o.Watermark(0, op.Watermark{Column: 2, Value: (e+1)*50 - 5}, &discard{}))
				h.Checkpoint(o, &discard{})
			}
			require.LessOrEqual(t, h.Entries(node, 0), 2*(5+c.kept))
			require.NoError(t, o.Close())
			o = h.Restore(node)
			out := &collect{}
			late, err := types.ParseChunk(node.Inputs[0].Schema.Types(), "+ 9000 0 900 1 2")
			require.NoError(t, err)
			require.NoError(t, o.Process(0, late, out))
			h.Barrier(o, out)
			require.Empty(t, out.rows, "a late row")
			require.NoError(t, o.Close())
		})
	}
}
