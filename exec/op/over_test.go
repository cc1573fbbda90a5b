package op_test

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/streamdb/streamdb/exec/op"
	"github.com/streamdb/streamdb/exec/op/optest"
	"github.com/streamdb/streamdb/planner/plan"
	"github.com/streamdb/streamdb/types"
)

var defaultFrame = plan.Frame{Mode: plan.FrameRange, Start: plan.Bound{Kind: plan.UnboundedPreceding}, End: plan.Bound{Kind: plan.CurrentRow}}

func over(fn string, t types.Type, args ...int) plan.OverCall {
	return plan.OverCall{Func: fn, Type: t, Args: args, Filter: -1, Frame: defaultFrame}
}

func framed(c plan.OverCall, mode plan.FrameMode, start, end plan.Bound, exclude string) plan.OverCall {
	c.Frame = plan.Frame{Mode: mode, Start: start, End: end, Exclude: exclude}
	return c
}

func bound(kind plan.BoundKind, n int64) plan.Bound {
	return plan.Bound{Kind: kind, Offset: &types.Datum{Type: types.Int8, Int: n}}
}

func overNode(in *plan.Node, part []int, order []plan.SortKey, calls ...plan.OverCall) *plan.Node {
	n := &plan.Node{ID: 13, Kind: plan.KindOver, Inputs: []*plan.Node{in}, Key: in.Key, Over: &plan.Over{PartitionBy: part, Order: order, Calls: calls}}
	n.Schema = append(n.Schema, in.Schema...)
	for i, c := range calls {
		n.Schema = append(n.Schema, types.Column{Name: fmt.Sprint("w", i), Type: c.Type})
	}
	return n
}

func TestOverLagLead(t *testing.T) {
	in := input([]int{0}, schema("id", types.Int4, "o", types.Int4, "v", types.Int4, "two", types.Int4, "minus", types.Int4, "zero", types.Int4))
	runCase(t, optest.Spec{
		Node: overNode(in, nil, []plan.SortKey{{Column: 1}, {Column: 0}}, over("lag(anyelement)", types.Int4, 2),
			over("lead(anycompatible,int4,anycompatible)", types.Int4, 2, 3, 4), over("lag(anyelement,int4)", types.Int4, 2, 5),
			over("last_value(anyelement)", types.Int4, 2)),
		Epochs: []optest.Epoch{
			{
				In:   []string{"+ 1 10 100 2 -1 0\n+ 2 20 200 2 -1 0\n+ 3 30 300 2 -1 0"},
				Want: "+ 1 10 100 2 -1 0 NULL 300 100 100\n+ 2 20 200 2 -1 0 100 -1 200 200\n+ 3 30 300 2 -1 0 200 -1 300 300",
			},
			{In: []string{"- 2 20 200 2 -1 0"}, Want: "+ 1 10 100 2 -1 0 NULL -1 100 100\n+ 3 30 300 2 -1 0 100 -1 300 300"},
			{In: []string{"+ 3 5 300 2 -1 0\n- 3 30 300 2 -1 0"}, Want: "+ 1 10 100 2 -1 0 300 -1 100 100\n+ 3 5 300 2 -1 0 NULL -1 300 300"},
			{
				In:   []string{"+ 4 7 NULL 2 -1 0"},
				Want: "+ 1 10 100 2 -1 0 NULL -1 100 100\n+ 3 5 300 2 -1 0 NULL 100 300 300\n+ 4 7 NULL 2 -1 0 300 -1 NULL NULL",
			},
		},
	})
}

func TestOverRanks(t *testing.T) {
	in := input([]int{0}, schema("id", types.Int4, "k", types.Int4, "v", types.Int4, "n", types.Int4))
	runCase(t, optest.Spec{
		Node: overNode(in, []int{1}, []plan.SortKey{{Column: 2}}, over("rank()", types.Int8), over("dense_rank()", types.Int8),
			over("percent_rank()", types.Float8), over("cume_dist()", types.Float8), over("ntile(int4)", types.Int4, 3), over("row_number()", types.Int8)),
		Route: [][]int{{1}},
		Epochs: []optest.Epoch{
			{
				In: []string{"+ 1 1 5 2\n+ 2 1 5 2\n+ 3 1 7 2\n+ 4 2 1 2\n+ 5 1 9 2"},
				Want: "+ 1 1 5 2 1 1 0 0.5 1 1\n+ 2 1 5 2 1 1 0 0.5 1 2\n+ 3 1 7 2 3 2 0.6666666666666666 0.75 2 3\n" +
					"+ 5 1 9 2 4 3 1 1 2 4\n+ 4 2 1 2 1 1 0 1 1 1",
			},
			{
				In: []string{"- 1 1 5 2"},
				Want: "+ 2 1 5 2 1 1 0 0.3333333333333333 1 1\n+ 3 1 7 2 2 2 0.5 0.6666666666666666 1 2\n" +
					"+ 5 1 9 2 3 3 1 1 2 3\n+ 4 2 1 2 1 1 0 1 1 1",
			},
		},
	})
}

// TestOverFrames compares sums over frames with sums over the rows that the definition of the frame picks, one by one.
func TestOverFrames(t *testing.T) {
	kinds := []plan.BoundKind{plan.UnboundedPreceding, plan.Preceding, plan.CurrentRow, plan.Following, plan.UnboundedFollowing}
	checkCases(t, 25, func(rt *rapid.T) optest.Spec {
		mode := rapid.SampledFrom([]plan.FrameMode{plan.FrameRows, plan.FrameRange, plan.FrameGroups}).Draw(rt, "mode")
		s := rapid.IntRange(0, 3).Draw(rt, "start")
		e := rapid.IntRange(max(s, 1), 4).Draw(rt, "end")
		exclude := rapid.SampledFrom([]string{"", "current", "group", "ties"}).Draw(rt, "exclude")
		so, eo := int64(rapid.IntRange(0, 2).Draw(rt, "so")), int64(rapid.IntRange(0, 2).Draw(rt, "eo"))
		call := framed(over("sum(int4)", types.Int8, 2), mode, bound(kinds[s], so), bound(kinds[e], eo), exclude)
		low := framed(over("min(int4)", types.Int4, 2), mode, bound(kinds[s], so), bound(kinds[e], eo), exclude)
		node := overNode(input([]int{0}, keyedSchema), nil, []plan.SortKey{{Column: 1}}, call, low)
		return optest.Spec{Node: node, Epochs: history(rt, 1), Oracle: func(in []*types.Chunk) (*types.Chunk, error) {
			return naiveFrames(rt, in[0], node, mode, kinds[s], so, kinds[e], eo, exclude), nil
		}}
	})
}

func naiveFrames(t require.TestingT, c *types.Chunk, node *plan.Node, mode plan.FrameMode, sk plan.BoundKind, so int64, ek plan.BoundKind, eo int64,
	exclude string,
) *types.Chunk {
	// Order: column 1 with NULLs last, ties by id.
	rank := func(i int) (int64, bool) { return c.Cols[1].Int[i], c.Cols[1].IsNull(i) }
	less := func(a, b int) int {
		x, xn := rank(a)
		y, yn := rank(b)
		switch {
		case xn != yn && xn:
			return 1
		case xn != yn:
			return -1
		case !xn && x != y:
			return int(x - y)
		}
		return 0
	}
	pos := make([]int64, c.N)   // row number
	group := make([]int64, c.N) // peer group number
	for i := range c.N {
		groups := map[string]bool{}
		for j := range c.N {
			d := less(j, i)
			if d < 0 || d == 0 && c.Cols[0].Int[j] < c.Cols[0].Int[i] {
				pos[i]++
			}
			if d < 0 {
				x, null := rank(j)
				groups[fmt.Sprint(x*2, null)] = true
				if null {
					groups["null"] = true
				}
			}
		}
		group[i] = int64(len(groups))
	}
	out := types.NewChunk(node.Schema.Types())
	for i := range c.N {
		sum, low, n := int64(0), int64(1<<40), 0
		for j := range c.N {
			// at measures how far j is behind i in the frame's unit.
			at := group[j] - group[i]
			comparable, bothNull := true, false
			switch mode {
			case plan.FrameRows:
				at = pos[j] - pos[i]
			case plan.FrameRange:
				x, xn := rank(i)
				y, yn := rank(j)
				at = y - x
				comparable = !xn && !yn
				if xn && yn {
					at, comparable, bothNull = 0, true, true
				}
			}
			in := func(kind plan.BoundKind, off int64, start bool) bool {
				if bothNull { // NULLs are within any offset of NULLs
					return true
				}
				if !comparable && (kind == plan.Preceding || kind == plan.Following || kind == plan.CurrentRow) {
					// A NULL and a value: NULLs are last.
					if start {
						return less(j, i) > 0
					}
					return less(j, i) < 0
				}
				switch kind {
				case plan.Preceding:
					off = -off
				case plan.CurrentRow:
					off = 0
				case plan.UnboundedPreceding, plan.UnboundedFollowing:
					return true
				}
				if start {
					return at >= off
				}
				return at <= off
			}
			if !in(sk, so, true) || !in(ek, eo, false) {
				continue
			}
			peer := less(i, j) == 0
			if exclude == "current" && i == j || exclude == "group" && peer || exclude == "ties" && peer && i != j {
				continue
			}
			n++
			sum += c.Cols[2].Int[j]
			low = min(low, c.Cols[2].Int[j])
		}
		for k := range 3 {
			out.Cols[k].Append(c.Cols[k], i)
		}
		if n == 0 {
			out.Cols[3].AppendNull()
			out.Cols[4].AppendNull()
		} else {
			out.Cols[3].AppendDatum(types.Datum{Type: types.Int8, Int: sum})
			out.Cols[4].AppendDatum(types.Datum{Type: types.Int4, Int: low})
		}
		out.PushWeight(1)
	}
	return out
}

// changes draws epochs of changes to a few partitions of some dozens of rows (id, k, o, v).
func changes(t *rapid.T) []optest.Epoch {
	live := map[int]string{}
	row := func(id int) string {
		orNull := func(n int, name string) string {
			if x := rapid.IntRange(-1, n).Draw(t, name); x >= 0 {
				return fmt.Sprint(x)
			}
			return "NULL"
		}
		return fmt.Sprintf("%d %d %s %s", id, rapid.IntRange(0, 4).Draw(t, "k")/4, orNull(30, "o"), orNull(9, "v"))
	}
	var epochs []optest.Epoch
	for e := range rapid.IntRange(2, 5).Draw(t, "epochs") {
		n := rapid.IntRange(1, 4).Draw(t, "changes")
		if e == 0 {
			n = rapid.IntRange(10, 60).Draw(t, "rows")
		}
		text := ""
		for range n {
			id := rapid.IntRange(0, 79).Draw(t, "id")
			old, has := live[id]
			if has {
				text += "- " + old + "\n"
				delete(live, id)
			}
			if !has || rapid.IntRange(0, 2).Draw(t, "update") > 0 {
				live[id] = row(id)
				text += "+ " + live[id] + "\n"
			}
		}
		epochs = append(epochs, optest.Epoch{In: []string{text}})
	}
	return epochs
}

// TestOverChanges compares what changes reach with all rows computed anew.
func TestOverChanges(t *testing.T) {
	kinds := []plan.BoundKind{plan.UnboundedPreceding, plan.Preceding, plan.CurrentRow, plan.Following, plan.UnboundedFollowing}
	in := input([]int{0}, schema("id", types.Int4, "k", types.Int4, "o", types.Int4, "v", types.Int4))
	two, three := int64(2), int64(3)
	number := func(c plan.OverCall, n *int64, ignore bool) plan.OverCall {
		c.Number, c.IgnoreNulls = n, ignore
		return c
	}
	in.Schema = append(in.Schema, schema("two", types.Int4, "far", types.Int4)...)
	limits := map[string][5]int{"": {1 << 20, 4096, 16, 256, 65536}, "small": {1 << 20, 3, 1, 2, 4}, "all": {0, 5, 1, 2, 4}}
	for name, l := range limits {
		t.Run(name, func(t *testing.T) {
			defer op.LowerOverLimits(l[0], l[1], l[2], l[3], l[4])()
			checkCases(t, 40, func(rt *rapid.T) optest.Spec {
				frame := func(c plan.OverCall) plan.OverCall {
					s := rapid.IntRange(0, 3).Draw(rt, "start")
					e := rapid.IntRange(max(s, 1), 4).Draw(rt, "end")
					mode := rapid.SampledFrom([]plan.FrameMode{plan.FrameRows, plan.FrameRange, plan.FrameGroups}).Draw(rt, "mode")
					exclude := rapid.SampledFrom([]string{"", "", "", "current", "group", "ties"}).Draw(rt, "exclude")
					c.IgnoreNulls = c.Func != "" && c.Func[0] != 's' && c.Func[0] != 'm' && rapid.Bool().Draw(rt, "ignore nulls")
					return framed(c, mode, bound(kinds[s], int64(rapid.IntRange(0, 3).Draw(rt, "so"))), bound(kinds[e], int64(rapid.IntRange(0, 3).Draw(rt, "eo"))), exclude)
				}
				all := []func() plan.OverCall{
					func() plan.OverCall { return over("row_number()", types.Int8) },
					func() plan.OverCall { return over("rank()", types.Int8) },
					func() plan.OverCall { return over("dense_rank()", types.Int8) },
					func() plan.OverCall { return over("percent_rank()", types.Float8) },
					func() plan.OverCall { return over("cume_dist()", types.Float8) },
					func() plan.OverCall { return number(over("ntile(int4)", types.Int4, 5), &three, false) },
					func() plan.OverCall { return over("ntile(int4)", types.Int4, 3) },
					func() plan.OverCall {
						return number(over("lag(anyelement)", types.Int4, 3), nil, rapid.Bool().Draw(rt, "ignore"))
					},
					func() plan.OverCall {
						return number(over("lead(anyelement,int4)", types.Int4, 3, 4), &two, rapid.Bool().Draw(rt, "ignore"))
					},
					func() plan.OverCall {
						f := rapid.SampledFrom([]string{"lag", "lead"}).Draw(rt, "fn")
						return number(over(f+"(anyelement,int4)", types.Int4, 3, 5), nil, rapid.Bool().Draw(rt, "ignore"))
					},
					func() plan.OverCall { return frame(over("first_value(anyelement)", types.Int4, 3)) },
					func() plan.OverCall { return frame(over("last_value(anyelement)", types.Int4, 3)) },
					func() plan.OverCall { return frame(over("nth_value(anyelement,int4)", types.Int4, 3, 4)) },
					func() plan.OverCall {
						c := frame(over("nth_value(anyelement,int4)", types.Int4, 3, 4))
						return number(c, &two, c.IgnoreNulls)
					},
					func() plan.OverCall {
						return frame(over("array_agg(anynonarray)", types.T(types.ArrayOf(types.OIDInt4)), 3))
					},
					func() plan.OverCall { return frame(over("sum(int4)", types.Int8, 3)) },
					func() plan.OverCall { return frame(over("sum(int4)", types.Int8, 3)) },
					func() plan.OverCall { return frame(over("max(int4)", types.Int4, 3)) },
					func() plan.OverCall { return over("sum(int4)", types.Int8, 3) },
				}
				var calls []plan.OverCall
				for range rapid.IntRange(1, 2).Draw(rt, "calls") {
					calls = append(calls, all[rapid.IntRange(0, len(all)-1).Draw(rt, "call")]())
				}
				var order []plan.SortKey
				if rapid.IntRange(0, 9).Draw(rt, "ordered") > 0 {
					desc := rapid.Bool().Draw(rt, "desc")
					order = []plan.SortKey{{Column: 2, Desc: desc, NullsFirst: rapid.Bool().Draw(rt, "nulls first")}}
				} else {
					for i := range calls {
						if calls[i].Frame.Mode != plan.FrameRows {
							calls[i].Frame = defaultFrame
						}
					}
				}
				es := changes(rt)
				for i := range es {
					lines := ""
					for _, l := range strings.Split(strings.TrimSpace(es[i].In[0]), "\n") {
						// As far away as the row itself says, so that a retraction says the same.
						lines += l + " 2 " + []string{"0", "1", "2", "NULL", "-1", "7", "3"}[len(l)%3+int(l[2]-'0')%4] + "\n"
					}
					es[i].In[0] = lines
				}
				node := overNode(in, []int{1}, order, calls...)
				node.Over.Backward = rapid.Bool().Draw(rt, "backward")
				return optest.Spec{Node: node, Route: [][]int{{1}}, Epochs: es}
			})
		})
	}
}

// TestOverCompletesOlderState goes on from rows without what is kept with them, as versions before wrote them: so does TopN.
func TestOverCompletesOlderState(t *testing.T) {
	in := input([]int{0}, schema("id", types.Int4, "k", types.Int4, "v", types.Int4))
	order := []plan.SortKey{{Column: 2}}
	older := topNode(in, &plan.TopN{GroupBy: []int{1}, Order: order, Limit: 100})
	node := overNode(in, []int{1}, order, over("row_number()", types.Int8), over("sum(int4)", types.Int8, 2), over("percent_rank()", types.Float8))
	older.ID = node.ID
	h := optest.NewHost(t, nil)
	chunk := func(text string) *types.Chunk {
		c, err := types.ParseChunk(in.Schema.Types(), text)
		require.NoError(t, err)
		return c
	}
	o := h.Open(older)
	require.NoError(t, o.Process(0, chunk("+ 1 1 10\n+ 2 1 20\n+ 3 1 30\n+ 4 2 7\n+ 5 3 7"), &discard{}))
	h.Checkpoint(o, &discard{})
	require.NoError(t, o.Close())
	o = h.Restore(node)
	out := &collect{}
	require.NoError(t, o.Process(0, chunk("- 2 1 20\n+ 6 3 8"), out))
	h.Barrier(o, out)
	require.NoError(t, o.Close())
	slices.Sort(out.rows)
	require.Equal(t, []string{
		"+1 3 1 30 2 40 1", "+1 6 3 8 2 15 1", "-1 2 1 20 2 30 0.5", "-1 3 1 30 3 60 1",
	}, out.rows)
}

// TestOverCompletesRunningValues goes on from rows without the running values that a function has now: the first barrier corrects what is shown.
func TestOverCompletesRunningValues(t *testing.T) {
	in := input([]int{0}, schema("id", types.Int4, "k", types.Int4, "v", types.Int4))
	order := []plan.SortKey{{Column: 2}}
	two := int64(2)
	second := framed(over("nth_value(anyelement,int4)", types.Int4, 2, 1), plan.FrameRows, bound(plan.UnboundedPreceding, 0), bound(plan.CurrentRow, 0), "")
	second.Number = &two
	older, node := overNode(in, []int{1}, order, over("lag(anyelement)", types.Int4, 2)), overNode(in, []int{1}, order, second)
	h := optest.NewHost(t, nil)
	o := h.Open(older)
	c, err := types.ParseChunk(in.Schema.Types(), "+ 1 1 10\n+ 2 1 20\n+ 3 1 30\n+ 4 2 7")
	require.NoError(t, err)
	require.NoError(t, o.Process(0, c, &discard{}))
	h.Checkpoint(o, &discard{})
	require.NoError(t, o.Close())
	o = h.Restore(node)
	out := &collect{}
	h.Barrier(o, out)
	slices.Sort(out.rows)
	require.Equal(t, []string{"+1 2 1 20 20", "-1 2 1 20 10"}, out.rows, "the other rows show the same")
	require.NoError(t, o.Close())
}

type collect struct{ rows []string }

func (c *collect) Emit(k *types.Chunk) error {
	for i := range k.Rows() {
		r := k.Row(i)
		text := fmt.Sprintf("%+d", k.Weight(r))
		for _, v := range k.Cols {
			text += " " + string(types.AppendText(nil, types.DefaultFormat(), v, r))
		}
		c.rows = append(c.rows, text)
	}
	return nil
}

func (*collect) EmitWatermark(op.Watermark) error { return nil }

// overHost runs window functions over rows (id, o, v) of one partition, o equal to id.
type overHost struct {
	t    *testing.T
	h    *optest.Host
	node *plan.Node
	op   op.Operator
	last collect
}

func newOverHost(t *testing.T, backward bool, calls ...plan.OverCall) *overHost {
	order := []plan.SortKey{{Column: 1, Desc: backward}}
	in := input([]int{0}, schema("id", types.Int8, "o", types.Int8, "v", types.Int8))
	x := &overHost{t: t, h: optest.NewHost(t, nil), node: overNode(in, nil, order, calls...)}
	x.node.Over.Backward = backward
	x.op = x.h.Open(x.node)
	return x
}

// apply applies changes and returns what they cost.
func (x *overHost) apply(changes [][4]int64) (loaded, computed int) {
	c := types.NewChunk(x.node.Inputs[0].Schema.Types())
	flush := func() {
		if c.N > 0 {
			require.NoError(x.t, x.op.Process(0, c, &x.last))
		}
		c.Reset()
	}
	l, n := op.OverWork(x.op)
	for _, d := range changes {
		for k := range 3 {
			c.Cols[k].Int = append(c.Cols[k].Int, d[k])
		}
		if c.PushWeight(d[3]); c.N == types.MaxChunkRows {
			flush()
		}
	}
	flush()
	x.last.rows = nil
	x.h.Barrier(x.op, &x.last)
	loaded, computed = op.OverWork(x.op)
	return loaded - l, computed - n
}

// TestOverTrailingChain changes running values up to the last row that is in reach of the change, and no further.
func TestOverTrailingChain(t *testing.T) {
	for _, n := range []int64{3, 20, 100} {
		x := newOverHost(t, false, framed(over("max(int8)", types.Int8, 2), plan.FrameRows, bound(plan.UnboundedPreceding, 0), bound(plan.Preceding, n), ""))
		var rows [][4]int64
		for i := range int64(1000) {
			v := int64(5)
			if i > 200+n {
				v = 60
			}
			rows = append(rows, [4]int64{i, i, v, 1})
		}
		x.apply(rows)
		x.apply([][4]int64{{200, 200, 5, -1}, {200, 200, 50, 1}})
		changed := 0
		for _, r := range x.last.rows {
			if strings.HasPrefix(r, "+") {
				changed++
			}
		}
		require.EqualValues(t, n+2, changed, "the row itself and those that have it as the last rows of their frames")
	}
}

// TestOverCost changes a row in the middle of a partition that has many.
func TestOverCost(t *testing.T) {
	const rows = 20000
	first, last, here := bound(plan.UnboundedPreceding, 0), bound(plan.UnboundedFollowing, 0), bound(plan.CurrentRow, 0)
	number := func(c plan.OverCall, n int64) plan.OverCall { c.Number = &n; return c }
	for _, c := range []struct {
		name     string
		call     plan.OverCall
		backward bool
		most     int // rows loaded
	}{
		{"max to the end", framed(over("max(int8)", types.Int8, 2), plan.FrameRows, first, here, ""), true, 100},
		{"first value not null to the end", framed(over("last_value(anyelement)", types.Int8, 2), plan.FrameRange, first, bound(plan.Preceding, 3), ""), true, 100},
		{"max up to a distance", framed(over("max(int8)", types.Int8, 2), plan.FrameRange, first, bound(plan.Preceding, 50), ""), false, 300},
		{"max up to others", framed(over("max(int8)", types.Int8, 2), plan.FrameRows, first, here, "current"), false, 100},
		{"max up to peers", framed(over("max(int8)", types.Int8, 2), plan.FrameGroups, first, bound(plan.Following, 2), "group"), false, 100},
		{"all others", framed(over("count(int8)", types.Int8, 2), plan.FrameRows, first, last, "current"), false, 100},
		{"nth", number(framed(over("nth_value(anyelement,int4)", types.Int8, 2, 0), plan.FrameRows, first, last, ""), 3), false, 100},
		{"nth to the end", number(framed(over("nth_value(anyelement,int4)", types.Int8, 2, 0), plan.FrameRows, here, last, ""), 3), false, 100},
		{"lag by a column", over("lag(anyelement,int4)", types.Int8, 2, 3), false, 100},
	} {
		t.Run(c.name, func(t *testing.T) {
			if c.call.Args[len(c.call.Args)-1] == 3 {
				c.call.Args = []int{2, 2}
			}
			x := newOverHost(t, c.backward, c.call)
			var all [][4]int64
			for i := range int64(rows) {
				v := i % 10
				if i == 3 || i == rows-3 {
					v = 11 // the values of the others do not reach far
				}
				all = append(all, [4]int64{i, i, v, 1})
			}
			x.apply(all)
			loaded, computed := x.apply([][4]int64{{rows / 2, rows / 2, 0, -1}, {rows / 2, rows / 2, 1, 1}})
			t.Logf("%d loaded, %d computed", loaded, computed)
			require.LessOrEqual(t, loaded, c.most)
			require.Positive(t, computed)
		})
	}
}

// TestOverFilters counts and adds up rows that pass a condition only.
func TestOverFilters(t *testing.T) {
	s := append(append(types.Schema{}, keyedSchema...), schema("pass", types.Bool)...)
	sum, count := over("sum(int4)", types.Int8, 2), framed(over("count(*)", types.Int8), plan.FrameRows, bound(plan.Preceding, 1), bound(plan.Following, 1), "")
	sum.Filter, count.Filter = 3, 3
	node := overNode(input([]int{0}, s), []int{1}, []plan.SortKey{{Column: 2}}, sum, count)
	checkCases(t, 15, func(rt *rapid.T) optest.Spec {
		es := history(rt, 1)
		for i := range es {
			lines := ""
			for _, l := range strings.Split(strings.TrimSpace(es[i].In[0]), "\n") {
				if l != "" { // what passes is the row's own matter, so that its retraction says the same
					lines += l + " " + []string{"t", "f", "NULL"}[(len(l)+int(l[2])+int(l[len(l)-1]))%3] + "\n"
				}
			}
			es[i].In[0] = lines
		}
		return optest.Spec{Node: node, Route: [][]int{{1}}, Epochs: es, Oracle: func(in []*types.Chunk) (*types.Chunk, error) {
			c, out := in[0], types.NewChunk(node.Schema.Types())
			for i := range c.N {
				var part []int // the partition in order
				for j := range c.N {
					if types.Compare(c.Cols[1], i, c.Cols[1], j) == 0 && c.Cols[1].IsNull(i) == c.Cols[1].IsNull(j) {
						part = append(part, j)
					}
				}
				slices.SortFunc(part, func(a, b int) int {
					return cmp.Or(cmp.Compare(c.Cols[2].Int[a], c.Cols[2].Int[b]), cmp.Compare(c.Cols[0].Int[a], c.Cols[0].Int[b]))
				})
				at := slices.Index(part, i)
				var total, near int64
				seen := false
				for k, j := range part {
					if c.Cols[3].IsNull(j) || !c.Cols[3].Bool[j] {
						continue
					}
					if c.Cols[2].Int[j] <= c.Cols[2].Int[i] {
						total, seen = total+c.Cols[2].Int[j], true
					}
					if k >= at-1 && k <= at+1 {
						near++
					}
				}
				for k, v := range c.Cols {
					out.Cols[k].Append(v, i)
				}
				out.Cols[4].AppendDatum(types.Datum{Type: types.Int8, Int: total, Null: !seen})
				out.Cols[5].AppendDatum(types.Datum{Type: types.Int8, Int: near})
				out.PushWeight(1)
			}
			return out, nil
		}}
	})
}
