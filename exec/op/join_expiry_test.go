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

// intervalSchema is of rows (id, key, time).
var intervalSchema = schema("id", types.Int4, "k", types.Int4, "t", types.Int8)

// intervalJoin joins rows whose left time is from 2 before to 1 after the right one.
func intervalJoin(typ plan.JoinType, keyed, onClose bool) *plan.Node {
	l, r := input([]int{0}, intervalSchema), input([]int{0}, intervalSchema)
	l.AppendOnly, r.AppendOnly = true, true
	key, keys := []int{0, 3}, []int{1}
	if typ == plan.Semi || typ == plan.Anti {
		key = []int{0}
	}
	if !keyed {
		keys = nil
	}
	n := joinNode(l, r, typ, keys, keys, key, nil)
	compare := func(fn, shift string, by int64) *expr.Expr {
		y := &expr.Expr{Kind: expr.Call, Func: shift, Type: types.Int8, Args: []*expr.Expr{expr.Col(5, types.Int8), expr.Literal(types.Datum{Type: types.Int8, Int: by})}}
		return &expr.Expr{Kind: expr.Call, Func: fn, Type: types.Bool, Args: []*expr.Expr{expr.Col(2, types.Int8), y}}
	}
	n.Join.Range = &plan.JoinRange{
		Cond:  conjunction(compare("int8ge(int8,int8)", "int8mi(int8,int8)", 2), compare("int8le(int8,int8)", "int8pl(int8,int8)", 1)),
		Lower: &plan.JoinBound{Left: 2, Right: 2, Offset: -2}, Upper: &plan.JoinBound{Left: 2, Right: 2, Offset: 1}, Expire: true, OnClose: onClose,
	}
	for i := range n.Schema {
		padded := i == 2 && (typ == plan.Right || typ == plan.Full) || i == 5 && (typ == plan.Left || typ == plan.Full)
		if i%3 == 2 && !padded {
			n.WatermarkCols = append(n.WatermarkCols, i)
		}
	}
	return n
}

func intervalOracle(typ plan.JoinType, keyed bool, s types.Schema) func([]*types.Chunk) (*types.Chunk, error) {
	return pairs(typ, s, func(l, r *types.Chunk, i, j int) bool {
		if l.Cols[2].IsNull(i) || r.Cols[2].IsNull(j) || keyed && l.Cols[1].Int[i] != r.Cols[1].Int[j] {
			return false
		}
		x, y := l.Cols[2].Int[i], r.Cols[2].Int[j]
		return x >= y-2 && x <= y+1
	})
}

// intervalArrivals draws epochs of rows that are not late, sometimes without a time. Either side's watermark goes on at its own pace.
func intervalArrivals(t *rapid.T) []optest.Epoch {
	var epochs []optest.Epoch
	var mark [2]int64
	var id [2]int
	for range rapid.IntRange(2, 6).Draw(t, "epochs") {
		e := optest.Epoch{In: make([]string, 2)}
		for p := range 2 {
			for range rapid.IntRange(0, 7).Draw(t, "rows") {
				at := fmt.Sprint(mark[p] + int64(rapid.IntRange(0, 4).Draw(t, "time")))
				if rapid.IntRange(0, 9).Draw(t, "null") == 0 {
					at = "NULL"
				}
				e.In[p] += fmt.Sprintf("+ %d %d %s\n", id[p], rapid.IntRange(0, 1).Draw(t, "key"), at)
				id[p]++
			}
		}
		for p := range 2 {
			mark[p] += int64(rapid.IntRange(0, 4).Draw(t, "advance"))
			if rapid.IntRange(0, 3).Draw(t, "marked") > 0 {
				e.Marks = append(e.Marks, optest.Mark{Port: p, Column: 2, Value: mark[p]})
			}
		}
		epochs = append(epochs, e)
	}
	return epochs
}

// TestIntervalJoinsAgainstNestedLoop: as long as nothing is late what an interval join has dropped is never missed; with OnClose that holds at the end.
func TestIntervalJoinsAgainstNestedLoop(t *testing.T) {
	defer op.LowerOrderLimits(2, 4)()
	for _, typ := range joinTypes {
		for _, keyed := range []bool{true, false} {
			for _, onClose := range []bool{false, true} {
				t.Run(fmt.Sprint(typ, "/keyed=", keyed, "/close=", onClose), func(t *testing.T) {
					node := intervalJoin(typ, keyed, onClose)
					oracle := intervalOracle(typ, keyed, node.Schema)
					route := [][]int{{1}, {1}}
					if !keyed {
						if route = nil; typ != plan.Full {
							route = spread(node)
						}
					}
					checkCases(t, 6, func(rt *rapid.T) optest.Spec {
						s := optest.Spec{Node: node, Lib: functions.Builtins(), Route: route, Epochs: intervalArrivals(rt), Oracle: oracle}
						if onClose {
							s.NoOracle = true
							s.Epochs = append(s.Epochs, optest.Epoch{
								In:    []string{"", ""},
								Marks: []optest.Mark{{Port: 0, Column: 2, Value: 1000}, {Port: 1, Column: 2, Value: 1000}}, Want: joinedText(t, oracle, intervalSchema, s.Epochs),
							})
						}
						return s
					})
				})
			}
		}
	}
}

// joinedText is what an oracle makes of the rows of all epochs, as text.
func joinedText(t *testing.T, oracle func([]*types.Chunk) (*types.Chunk, error), s types.Schema, epochs []optest.Epoch) string {
	in := []*types.Chunk{types.NewChunk(s.Types()), types.NewChunk(s.Types())}
	for _, e := range epochs {
		for p, text := range e.In {
			c, err := types.ParseChunk(s.Types(), text)
			require.NoError(t, err)
			in[p].AppendChunk(c)
		}
	}
	joined, err := oracle(in)
	require.NoError(t, err)
	if joined.N == 0 {
		return "{}"
	}
	want := ""
	for i := range joined.N {
		want += "+"
		for _, v := range joined.Cols {
			if v.IsNull(i) {
				want += " NULL"
			} else {
				want += fmt.Sprint(" ", v.Int[i])
			}
		}
		want += "\n"
	}
	return want
}

func TestIntervalJoinLateRows(t *testing.T) {
	marks := func(l, r int64) []optest.Mark {
		return []optest.Mark{{Port: 0, Column: 2, Value: l}, {Port: 1, Column: 2, Value: r}}
	}
	runCase(t, optest.Spec{
		Node: intervalJoin(plan.Left, true, true), Lib: functions.Builtins(), Route: [][]int{{1}, {1}}, NoOracle: true,
		Epochs: []optest.Epoch{
			// Left 10 may find right 9 to 12.
			{In: []string{"+ 1 0 10\n+ 2 0 11", "+ 7 0 8"}, Marks: marks(10, 12), Want: "{}"},
			{In: []string{"+ 3 0 9", "+ 8 0 12\n+ 9 0 11"}, Marks: marks(11, 13), Want: "+ 1 0 10 8 0 12\n+ 2 0 11 8 0 12", Late: 2},
			{In: []string{"+ 4 0 10\n+ 5 1 11", "+ 6 1 12"}, Marks: marks(30, 30), Want: "+ 1 0 10 8 0 12\n+ 2 0 11 8 0 12\n+ 5 1 11 NULL NULL NULL", Late: 4},
		},
	})
}

// promised checks that no row follows a watermark that it is behind.
type promised struct {
	t     *testing.T
	marks map[int]int64
	rows  int
}

func (p *promised) Emit(c *types.Chunk) error {
	for col, mark := range p.marks {
		for i := range c.Rows() {
			if r := c.Row(i); !c.Cols[col].IsNull(r) {
				require.GreaterOrEqual(p.t, c.Cols[col].Int[r], mark)
			}
		}
	}
	p.rows += c.Rows()
	return nil
}

func (p *promised) EmitWatermark(w op.Watermark) error {
	p.marks[w.Column] = w.Value
	return nil
}

// TestIntervalJoinStateIsBounded: what has no partner to come is in neither memory nor state, and the watermarks that are passed on hold.
func TestIntervalJoinStateIsBounded(t *testing.T) {
	for _, keyed := range []bool{true, false} {
		h := optest.NewHost(t, functions.Builtins())
		n := intervalJoin(plan.Inner, keyed, true)
		o, out := h.Open(n), &promised{t: t, marks: map[int]int64{}}
		for i := range 400 {
			for port := range 2 {
				c := types.NewChunk(intervalSchema.Types())
				for k := range 20 {
					c.Cols[0].Int = append(c.Cols[0].Int, int64(i*20+k))
					c.Cols[1].Int = append(c.Cols[1].Int, int64(k%7))
					c.Cols[2].Int = append(c.Cols[2].Int, int64(i))
					c.N++
				}
				require.NoError(t, o.Process(port, c, out))
				require.NoError(t, o.Watermark(port, op.Watermark{Column: 2, Value: int64(i)}, out))
			}
			if i%5 == 4 {
				h.Checkpoint(o, out)
				require.LessOrEqual(t, h.Entries(n, 0), int64(200))
				require.LessOrEqual(t, h.Entries(n, 1), int64(200))
				require.LessOrEqual(t, op.JoinRows(o), 400)
				require.Equal(t, map[int]int64{2: int64(i - 2), 5: int64(i - 1)}, out.marks)
			} else {
				h.Barrier(o, out)
			}
			if i == 200 {
				h.Checkpoint(o, out)
				require.NoError(t, o.Close())
				o = h.Restore(n)
			}
		}
		require.NoError(t, o.Close())
	}
}
