package op_test

import (
	"fmt"
	"math"
	"math/big"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/streamdb/streamdb/checkpoint"
	"github.com/streamdb/streamdb/exec/op"
	"github.com/streamdb/streamdb/exec/op/optest"
	"github.com/streamdb/streamdb/planner/plan"
	"github.com/streamdb/streamdb/sql/expr"
	"github.com/streamdb/streamdb/sql/functions"
	"github.com/streamdb/streamdb/state"
	"github.com/streamdb/streamdb/types"
)

// partialSink adds up partial results per group, as the aggregation behind the exchange does.
type partialSink struct {
	keys, rows int
	groups     map[string]*partialGroup
	marks      []op.Watermark
}

type partialGroup struct {
	n, count       int64
	sum            *big.Int
	low, high      int64
	summed, ranged bool
}

func (s *partialSink) Emit(c *types.Chunk) error {
	for i := range c.Rows() {
		r := c.Row(i)
		s.rows++
		k := ""
		for _, v := range c.Cols[:s.keys] {
			k += v.Get(r).String() + "|"
		}
		g := s.groups[k]
		if g == nil {
			g = &partialGroup{sum: new(big.Int)}
			s.groups[k] = g
		}
		w, v := c.Weight(r), c.Cols[s.keys:]
		g.n += w * v[0].Int[r]
		g.count += w * v[1].Int[r]
		if !v[2].IsNull(r) {
			g.sum.Add(g.sum, new(big.Int).Mul(big.NewInt(v[2].Int[r]), big.NewInt(w)))
			g.summed = true
		}
		if !v[3].IsNull(r) {
			if !g.ranged || v[3].Int[r] < g.low {
				g.low = v[3].Int[r]
			}
			if !g.ranged || v[4].Int[r] > g.high {
				g.high = v[4].Int[r]
			}
			g.ranged = true
		}
	}
	return nil
}

func (s *partialSink) EmitWatermark(w op.Watermark) error {
	s.marks = append(s.marks, w)
	return nil
}

func partialNode(s types.Schema, group ...int) *plan.Node {
	in := input([]int{0}, s)
	v := len(s) - 1
	calls := []plan.AggCall{
		call("count(*)", types.Int8), call("count(any)", types.Int8, v), call("sum(int8)", types.Int8, v), call("min(int8)", types.Int8, v),
		call("max(int8)", types.Int8, v),
	}
	n := &plan.Node{ID: 1, Kind: plan.KindPartialAgg, Inputs: []*plan.Node{in}, PartialAgg: &plan.PartialAgg{GroupBy: group, Calls: calls, Rest: []int{0}, OnClose: -1}}
	for _, g := range group {
		n.Schema = append(n.Schema, s[g])
	}
	for i, c := range calls {
		n.Schema = append(n.Schema, types.Column{Name: fmt.Sprint("c", i), Type: c.Type})
	}
	n.Schema = append(n.Schema, s[0])
	n.Key = []int{len(n.Schema) - 1}
	return n
}

func TestPartialAggregationLosesNothing(t *testing.T) {
	s := schema("id", types.Int8, "a", types.Int8, "b", types.Timestamp, "c", types.Text, "v", types.Int8)
	for seed := range uint64(60) {
		rnd := rand.New(rand.NewPCG(seed, 7))
		group := [][]int{{1}, {1, 2}, {2}, {3}, {1, 3}, {2, 1, 3}}[rnd.IntN(6)]
		spread := []int64{1, 5, 300, 1 << 40}[rnd.IntN(4)]
		n := partialNode(s, group...)
		o := optest.NewHost(t, functions.Builtins()).Open(n)
		got := &partialSink{keys: len(group), groups: map[string]*partialGroup{}}
		want := &partialSink{keys: len(group), groups: map[string]*partialGroup{}}
		for id := range 30 {
			c := types.NewChunk(s.Types())
			nulls, huge, weighted := rnd.IntN(3) == 0, rnd.IntN(10) == 0, rnd.IntN(6) == 0
			for range 1 + rnd.IntN(types.MaxChunkRows) {
				c.Cols[0].AppendDatum(types.Datum{Type: types.Int8, Int: int64(id)})
				c.Cols[1].AppendDatum(types.Datum{Type: types.Int8, Int: rnd.Int64N(spread)})
				c.Cols[2].AppendDatum(types.Datum{Type: types.Timestamp, Int: rnd.Int64N(3) * 10_000_000})
				c.Cols[3].AppendDatum(types.Datum{Type: types.Text, Str: fmt.Sprint(rnd.IntN(4))})
				v := types.Datum{Type: types.Int8, Int: rnd.Int64N(2000) - 1000, Null: nulls && rnd.IntN(3) == 0}
				if huge {
					v.Int = math.MaxInt64 - rnd.Int64N(3)
				}
				c.Cols[4].AppendDatum(v)
				if w := int64(1); weighted {
					c.PushWeight(w + rnd.Int64N(3))
				} else {
					c.PushWeight(w)
				}
			}
			if rnd.IntN(3) == 0 {
				c.Sel = []uint16{}
				for r := range c.N {
					if rnd.IntN(2) == 0 {
						c.Sel = append(c.Sel, uint16(r))
					}
				}
			}
			require.NoError(t, o.Process(0, c, got))
			// The reference takes each row by itself.
			one := &types.Chunk{N: c.N, Sel: c.Sel, Weights: c.Weights}
			for _, g := range group {
				one.Cols = append(one.Cols, c.Cols[g])
			}
			ones, counts := &types.Vector{Type: types.Int8}, &types.Vector{Type: types.Int8}
			for r := range c.N {
				ones.Int = append(ones.Int, 1)
				counts.Int = append(counts.Int, 1)
				if c.Cols[4].IsNull(r) {
					counts.Int[r] = 0
				}
			}
			one.Cols = append(one.Cols, ones, counts, c.Cols[4], c.Cols[4], c.Cols[4])
			require.NoError(t, want.Emit(one))
		}
		require.NoError(t, o.Barrier(checkpoint.Barrier{Epoch: 1}, got))
		require.Equal(t, want.groups, got.groups, "seed %d", seed)
		if spread == 1 && len(group) == 1 && group[0] == 1 {
			require.Less(t, got.rows, want.rows)
		}
	}
}

func TestPartialAggregationLeavesLateRowsAlone(t *testing.T) {
	s := schema("id", types.Int8, "end", types.Timestamp, "v", types.Int8)
	n := partialNode(s, 1)
	n.PartialAgg.OnClose = 0
	o := optest.NewHost(t, functions.Builtins()).Open(n)
	send := func() int {
		c := types.NewChunk(s.Types())
		for id := range int64(4) {
			for i, x := range []int64{id, 100, 1} {
				c.Cols[i].AppendDatum(types.Datum{Type: s[i].Type, Int: x})
			}
			c.PushWeight(1)
		}
		out := &partialSink{keys: 1, groups: map[string]*partialGroup{}}
		require.NoError(t, o.Process(0, c, out))
		require.NoError(t, o.Barrier(checkpoint.Barrier{}, out))
		require.Equal(t, int64(4), out.groups[c.Cols[1].Get(0).String()+"|"].n)
		return out.rows
	}
	require.Equal(t, 1, send())
	out := &partialSink{}
	require.NoError(t, o.Watermark(0, op.Watermark{Column: 1, Value: 101}, out))
	require.Equal(t, []op.Watermark{{Column: 0, Value: 101}}, out.marks)
	require.Equal(t, 4, send())
}

// partialSums adds up the rows of a partial aggregation by its two group columns: count(*), count(v), sum(v), min(v) and max(v).
func partialSums(c *types.Chunk) (*types.Chunk, error) {
	type group struct{ n, count, sum, low, high int64 }
	groups, keys := map[string]*group{}, map[string]int{}
	for i := range c.N {
		k := string(types.AppendRow(nil, c.Cols[:2], i))
		g := groups[k]
		if g == nil {
			g = &group{low: math.MaxInt64, high: math.MinInt64}
			groups[k], keys[k] = g, i
		}
		w := c.Weight(i)
		g.n, g.count = g.n+w*c.Cols[2].Int[i], g.count+w*c.Cols[3].Int[i]
		if v := c.Cols[4]; !v.IsNull(i) {
			g.sum, g.low, g.high = g.sum+w*v.Int[i], min(g.low, c.Cols[5].Int[i]), max(g.high, c.Cols[6].Int[i])
		}
	}
	out := types.NewChunk(partialSchema.Types())
	for k, g := range groups {
		out.Cols[0].Append(c.Cols[0], keys[k])
		out.Cols[1].Append(c.Cols[1], keys[k])
		for j, x := range []int64{g.n, g.count, g.sum, g.low, g.high} {
			out.Cols[2+j].AppendDatum(types.Datum{Type: types.Int8, Int: x, Null: j > 1 && g.count == 0})
		}
		out.PushWeight(1)
	}
	return out, nil
}

var partialSchema = schema("k", types.Int4, "end", types.Int8, "n", types.Int8, "count", types.Int8, "sum", types.Int8, "low", types.Int8, "high", types.Int8)

// TestPartialAggregationInParts: whatever chunks rows come in, their sums add up to the same.
func TestPartialAggregationInParts(t *testing.T) {
	for _, filter := range []bool{false, true} {
		partialInParts(t, filter)
	}
}

func partialInParts(t *testing.T, filter bool) {
	s := schema("id", types.Int8, "k", types.Int4, "end", types.Int8, "pass", types.Bool, "v", types.Int4)
	n := partialNode(s, 1, 2)
	n.PartialAgg.OnClose, n.Inputs[0].AppendOnly = 1, true
	for i := range n.PartialAgg.Calls {
		if filter {
			n.PartialAgg.Calls[i].Filter = 3
		}
	}
	checkCases(t, 20, func(rt *rapid.T) optest.Spec {
		var epochs []optest.Epoch
		id, mark := 0, int64(0)
		for range rapid.IntRange(1, 4).Draw(rt, "epochs") {
			text := ""
			for range rapid.IntRange(0, 12).Draw(rt, "rows") {
				id++
				orNull := func(max int, name string) string {
					return []string{"NULL", "0", "1", "2", "3"}[rapid.IntRange(0, max).Draw(rt, name)]
				}
				pass := []string{"t", "f", "NULL"}[rapid.IntRange(0, 2).Draw(rt, "pass")]
				text += fmt.Sprintf("+ %d %s %d %s %s\n", id, orNull(2, "k"), rapid.IntRange(0, 3).Draw(rt, "end"), pass, orNull(4, "v"))
			}
			mark += int64(rapid.IntRange(0, 1).Draw(rt, "advance"))
			epochs = append(epochs, optest.Epoch{In: []string{text}, Marks: []optest.Mark{{Column: 2, Value: mark}}})
		}
		return optest.Spec{
			Node: n, Lib: functions.Builtins(), Route: [][]int{{0}}, Epochs: epochs, Lossy: true, Reduce: partialSums, Reduced: partialSchema,
			Oracle: func(in []*types.Chunk) (*types.Chunk, error) {
				c, ones, counts, v := in[0], types.NewVector(types.Int8, 0), types.NewVector(types.Int8, 0), types.NewVector(types.Int4, 0)
				for i := range c.N {
					out := filter && (c.Cols[3].IsNull(i) || !c.Cols[3].Bool[i])
					ones.Int, counts.Int = append(ones.Int, 1), append(counts.Int, 1)
					if out {
						ones.Int[i] = 0
					}
					if out || c.Cols[4].IsNull(i) {
						counts.Int[i] = 0
						v.AppendNull()
					} else {
						v.Append(c.Cols[4], i)
					}
				}
				return partialSums(&types.Chunk{Cols: []*types.Vector{c.Cols[1], c.Cols[2], ones, counts, v, v, v}, N: c.N, Weights: c.Weights})
			},
		}
	})
}

// partialPlan is a partial aggregation of in and the aggregation of its rows, which together are one of the same groups.
func partialPlan(in *plan.Node, group []int, calls ...partialSplit) (part, final, one *plan.Node) {
	p := &plan.PartialAgg{GroupBy: group, OnClose: -1}
	part = &plan.Node{ID: 1, Kind: plan.KindPartialAgg, Inputs: []*plan.Node{in}, PartialAgg: p, AppendOnly: in.AppendOnly}
	for _, g := range group {
		part.Schema = append(part.Schema, in.Schema[g])
	}
	add := func(c plan.AggCall) *int {
		p.Calls = append(p.Calls, c)
		part.Schema = append(part.Schema, types.Column{Name: c.Func, Type: c.Type})
		at := len(part.Schema) - 1
		return &at
	}
	var rows *int
	if !in.AppendOnly {
		at := 0
		rows, p.Rows = add(call("count", types.Int8)), &at
	}
	var sums, whole []plan.AggCall
	for _, c := range calls {
		sum := plan.AggCall{Func: c.whole.Func, Type: c.whole.Type, Filter: -1}
		for i, x := range c.parts {
			x.Filter = c.whole.Filter
			switch at := add(x); {
			case x.Func == "count":
				sum.Count = at
			case i == 0:
				sum.Args = []int{*at}
			default:
				sum.Squares = at
			}
		}
		sums, whole = append(sums, sum), append(whole, c.whole)
	}
	var cols []int
	if group != nil {
		cols = []int{}
	}
	for i := range group {
		cols = append(cols, i)
	}
	final, one = aggNode(part, cols, sums...), aggNode(in, group, whole...)
	final.Agg.Rows = rows
	return part, final, one
}

type partialSplit struct {
	whole plan.AggCall
	parts []plan.AggCall
}

// aggregate runs a plan of one operator as a query does.
func aggregate(n *plan.Node, c *types.Chunk) (*types.Chunk, error) {
	o, err := op.New(n)
	if err != nil {
		return nil, err
	}
	ctx := &op.Context{
		Node: n, Parallelism: 1, Lib: functions.Builtins(), Env: &expr.Env{Format: types.DefaultFormat()}, OneShot: true,
		Groups: state.Range{To: state.DefaultMaxParallelism}, Store: state.NewMemory(state.DefaultMaxParallelism), InputTypes: [][]types.Type{n.Inputs[0].Schema.Types()},
	}
	if err := o.Open(ctx); err != nil {
		return nil, err
	}
	out := &gathered{types.NewChunk(n.Schema.Types())}
	if err := o.Process(0, c, out); err != nil {
		return nil, err
	}
	if err := o.Barrier(checkpoint.Barrier{Epoch: 1}, out); err != nil {
		return nil, err
	}
	return out.c, o.Close()
}

type gathered struct{ c *types.Chunk }

func (g *gathered) Emit(c *types.Chunk) error { g.c.AppendChunk(c); return nil }

func (*gathered) EmitWatermark(op.Watermark) error { return nil }

var partialInput = schema("id", types.Int8, "k", types.Int4, "t", types.Text, "n", types.NumericType, "v", types.Int4, "b", types.Bool, "pass", types.Bool)

// partialCalls are calls that can be added up, and of what; those with retractions first.
func partialCalls(retract bool) []partialSplit {
	sum := func(fn string, t types.Type, arg int, parts ...plan.AggCall) partialSplit {
		return partialSplit{call(fn, t, arg), append(parts, call("count", types.Int8, arg))}
	}
	number, of := types.NumericType, func(t types.Type, arg int) plan.AggCall { return call("sum", t, arg) }
	calls := []partialSplit{
		{call("count(*)", types.Int8), []plan.AggCall{call("count", types.Int8)}},
		sum("count(any)", types.Int8, 2),
		sum("sum(int4)", types.Int8, 4, of(types.Int8, 4)),
		sum("avg(int4)", number, 4, of(types.Int8, 4)),
		sum("var_samp(int4)", number, 4, of(types.Int8, 4), call(plan.SumOfSquares, number, 4)),
		sum("sum(numeric)", number, 3, of(number, 3)),
		sum("avg(numeric)", number, 3, of(number, 3)),
		sum("stddev_pop(numeric)", number, 3, of(number, 3), call(plan.SumOfSquares, number, 3)),
		sum("bool_and(bool)", types.Bool, 5, call(plan.CountTrue, types.Int8, 5)),
		sum("every(bool)", types.Bool, 5, call(plan.CountTrue, types.Int8, 5)),
		sum("bool_or(bool)", types.Bool, 5, call(plan.CountTrue, types.Int8, 5)),
	}
	if !retract {
		for _, c := range []plan.AggCall{
			call("min(int4)", types.Int4, 4), call("max(text)", types.Text, 2), call("min(numeric)", number, 3), call("max(int4)", types.Int4, 4),
			call("bool_and(bool)", types.Bool, 5), call("bool_or(bool)", types.Bool, 5), call("sum(int4)", types.Int8, 4),
		} {
			part := c
			part.Func, _, _ = strings.Cut(c.Func, "(")
			if part.Func == "sum" {
				part.Type = types.Int8
			}
			calls = append(calls, partialSplit{c, []plan.AggCall{part}})
		}
	}
	return calls
}

// TestPartialAggregationOfChanges: an aggregation of what is added up in parts has the rows of one over all.
func TestPartialAggregationOfChanges(t *testing.T) {
	checkCases(t, 15, func(rt *rapid.T) optest.Spec {
		in := input([]int{0}, partialInput)
		in.AppendOnly = rapid.Bool().Draw(rt, "append only")
		var calls []partialSplit
		for _, c := range partialCalls(!in.AppendOnly) {
			if rapid.Bool().Draw(rt, "call") {
				if rapid.IntRange(0, 3).Draw(rt, "filtered") == 0 {
					c.whole.Filter = 6
				}
				calls = append(calls, c)
			}
		}
		group := [][]int{{1}, {1, 2}, {2}, {3}, {5}, nil}[rapid.IntRange(0, 5).Draw(rt, "group")]
		part, final, one := partialPlan(in, group, calls...)
		epochs := drawEpochs(rt, in, 12, func(id int, pick func(name string, from ...string) string) string {
			return fmt.Sprintf("%d %s %s %s %s %s %s", id, pick("k", "1", "2", "NULL"), pick("t", "a", "b", "NULL"), pick("n", "1.5", "2.5", "0.25", "NaN", "Infinity", "NULL", "1"),
				pick("v", "NULL", "0", "1", "-7", "2147483647"), pick("b", "t", "f", "NULL"), pick("pass", "t", "f", "NULL"))
		})
		return optest.Spec{
			Node: part, Lib: functions.Builtins(), Route: [][]int{{0}}, Epochs: epochs, Reduced: final.Schema,
			Reduce: func(out *types.Chunk) (*types.Chunk, error) { return aggregate(final, out) },
			Oracle: func(in []*types.Chunk) (*types.Chunk, error) { return aggregate(one, in[0]) },
		}
	})
}

// TestAggregationOfSums: the rows of a partial aggregation, whatever order they come in, are changes of the groups.
func TestAggregationOfSums(t *testing.T) {
	in := input([]int{0}, partialInput)
	_, final, _ := partialPlan(in, []int{1}, partialCalls(true)[:5]...)
	// k, rows; count(*); count(t); sum(v), count(v); sum(v), count(v); sum(v), sum of squares, count(v)
	runCase(t, optest.Spec{
		Node: final, Route: [][]int{{0}},
		Epochs: []optest.Epoch{
			{In: []string{"+ 1 3 3 2 6 2 6 2 6 20 2\n+ 2 1 1 0 NULL 0 NULL 0 NULL NULL 0"}, Want: "+ 1 3 2 6 3.0000000000000000 2.0000000000000000\n+ 2 1 0 NULL NULL NULL"},
			{In: []string{"+ 1 -2 -2 -1 -4 -1 -4 -1 -4 -16 -1\n+ 2 0 0 1 5 1 5 1 5 25 1"}, Want: "+ 1 1 1 2 2.0000000000000000 NULL\n+ 2 1 1 5 5.0000000000000000 NULL"},
			{In: []string{"- 1 1 1 1 2 1 2 1 2 4 1\n+ 2 2 2 0 0 0 0 0 0 0 0"}, Want: "+ 2 3 1 5 5.0000000000000000 NULL"},
			{In: []string{"+ 2 -3 -3 -1 -5 -1 -5 -1 -5 -25 -1\n+ 3 1 1 0 1 1 1 1 1 1 1\n+ 3 -1 -1 0 -1 -1 -1 -1 -1 -1 -1"}, Want: "{}"},
		},
	})
}

// TestPartialAggregationStepsAside: where groups are hardly fewer than rows they pass as they are, until it is worth while again; what is held is bounded.
func TestPartialAggregationStepsAside(t *testing.T) {
	s := schema("id", types.Int8, "k", types.Int8, "v", types.Int8)
	o := optest.NewHost(t, functions.Builtins()).Open(partialNode(s, 1))
	next := int64(0)
	chunk := func(key func(i int64) int64) *types.Chunk {
		c := types.NewChunk(s.Types())
		for i := range int64(types.MaxChunkRows) {
			next++
			for col, x := range []int64{next, key(next), i} {
				c.Cols[col].Int = append(c.Cols[col].Int, x)
			}
		}
		c.N = types.MaxChunkRows
		return c
	}
	in, out := 0, &discard{}
	send := func(key func(i int64) int64) (held int) {
		c := chunk(key)
		require.NoError(t, o.Process(0, c, out))
		in += c.N
		return in - out.rows
	}
	unique := func(i int64) int64 { return i }
	for range 15 {
		require.LessOrEqual(t, send(unique), types.MaxChunkRows)
	}
	for range 500 {
		require.Zero(t, send(unique), "rows pass as they are")
	}
	hot := func(i int64) int64 { // two rows of five have one key
		if i%5 < 2 {
			return 0
		}
		return i
	}
	for range 40 {
		send(hot)
	}
	before, sent := out.rows, in
	for range 100 {
		send(hot)
	}
	require.NoError(t, o.Barrier(checkpoint.Barrier{Epoch: 1}, out))
	require.Less(t, float64(out.rows-before), 0.65*float64(in-sent))
	before, sent = out.rows, in
	for range 64 {
		send(func(int64) int64 { return 1 })
	}
	require.Equal(t, 1, out.rows-before, "one group of many chunks")
	require.Equal(t, 64*types.MaxChunkRows, in-sent)
}

// TestConsolidation: an aggregation whose calls need values has the same rows whether rows with the same values came one by one or as one.
func TestConsolidation(t *testing.T) {
	calls := []plan.AggCall{
		distinct(call("count(any)", types.Int8, 4)), distinct(call("sum(numeric)", types.NumericType, 3)), call("min(int4)", types.Int4, 4), call("max(numeric)", types.NumericType, 3),
		call("count(*)", types.Int8), call("avg(numeric)", types.NumericType, 3), call("bool_or(bool)", types.Bool, 5), call("bit_xor(int4)", types.Int4, 4),
		distinct(call("approx_count_distinct(any)", types.Int8, 2)), distinct(ordered(call("string_agg(text,text)", types.Text, 2, 2), plan.SortKey{Column: 2})),
	}
	checkCases(t, 10, func(rt *rapid.T) optest.Spec {
		in := input([]int{0}, partialInput)
		in.AppendOnly = rapid.IntRange(0, 3).Draw(rt, "append only") == 0
		group := [][]int{{1}, {1, 2}, {3}, nil}[rapid.IntRange(0, 3).Draw(rt, "group")]
		part := &plan.Node{ID: 1, Kind: plan.KindPartialAgg, Inputs: []*plan.Node{in}, AppendOnly: in.AppendOnly, PartialAgg: &plan.PartialAgg{OnClose: -1, Consolidate: true, GroupBy: []int{1, 2, 3, 4, 5}}}
		part.Schema = partialInput[1:6]
		var whole, rest []plan.AggCall
		for _, c := range calls {
			if rapid.Bool().Draw(rt, "call") {
				whole = append(whole, c)
				c.Args = slices.Clone(c.Args)
				for i := range c.Args {
					c.Args[i]--
				}
				if len(c.Order) > 0 {
					c.Order = []plan.SortKey{{Column: 1}}
				}
				rest = append(rest, c)
			}
		}
		var cols []int
		for _, g := range group {
			cols = append(cols, g-1)
		}
		one, final := aggNode(in, group, whole...), aggNode(part, cols, rest...)
		epochs := drawEpochs(rt, in, 14, func(id int, pick func(name string, from ...string) string) string {
			return fmt.Sprintf("%d %s %s %s %s %s t", id, pick("k", "1", "2", "NULL"), pick("t", "a", "b", "NULL"), pick("n", "1.5", "2.50", "3", "NULL"),
				pick("v", "NULL", "0", "1"), pick("b", "t", "f", "NULL"))
		})
		changes := func(n *plan.Node, c *types.Chunk) (*types.Chunk, error) { // as jobs do: rows may go
			m := *n
			m.Inputs = []*plan.Node{{Schema: n.Inputs[0].Schema, Key: []int{}}}
			return aggregate(&m, c)
		}
		return optest.Spec{
			Node: part, Lib: functions.Builtins(), Route: [][]int{{0}}, Epochs: epochs, Reduced: final.Schema,
			Reduce: func(out *types.Chunk) (*types.Chunk, error) { return changes(final, out) },
			Oracle: func(in []*types.Chunk) (*types.Chunk, error) { return changes(one, in[0]) },
		}
	})
}

// drawEpochs draws epochs of at most so many changes: rows that come, as row makes them, and of inputs that do not only grow rows that go.
func drawEpochs(rt *rapid.T, in *plan.Node, most int, row func(id int, pick func(name string, from ...string) string) string) []optest.Epoch {
	pick := func(name string, from ...string) string { return from[rapid.IntRange(0, len(from)-1).Draw(rt, name)] }
	var epochs []optest.Epoch
	live, id := []string{}, 0
	for range rapid.IntRange(1, 4).Draw(rt, "epochs") {
		text := ""
		for range rapid.IntRange(0, most).Draw(rt, "rows") {
			if n := len(live); n > 0 && !in.AppendOnly && rapid.IntRange(0, 2).Draw(rt, "delete") == 0 {
				i := rapid.IntRange(0, n-1).Draw(rt, "which")
				text += "- " + live[i] + "\n"
				live = append(live[:i], live[i+1:]...)
				continue
			}
			id++
			r := row(id, pick)
			live = append(live, r)
			text += "+ " + r + "\n"
		}
		epochs = append(epochs, optest.Epoch{In: []string{text}})
	}
	return epochs
}
