package op_test

import (
	"fmt"
	"math"
	"math/big"
	"math/rand/v2"
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/streamdb/streamdb/exec/op"
	"github.com/streamdb/streamdb/exec/op/optest"
	"github.com/streamdb/streamdb/planner/plan"
	"github.com/streamdb/streamdb/sql/functions"
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
