package op_test

import (
	"fmt"
	"math/bits"
	"math/rand/v2"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/streamdb/streamdb/checkpoint"
	"github.com/streamdb/streamdb/exec/op"
	"github.com/streamdb/streamdb/planner/plan"
	"github.com/streamdb/streamdb/sql/expr"
	"github.com/streamdb/streamdb/sql/functions"
	"github.com/streamdb/streamdb/state"
	"github.com/streamdb/streamdb/types"
)

type discard struct{ rows int }

func (d *discard) Emit(c *types.Chunk) error { d.rows += c.Rows(); return nil }

func (*discard) EmitWatermark(op.Watermark) error { return nil }

func openBench(b *testing.B, n *plan.Node) op.Operator {
	o, err := op.New(n)
	require.NoError(b, err)
	ctx := &op.Context{
		Node: n, Parallelism: 1, Lib: functions.Builtins(), Env: &expr.Env{Format: types.DefaultFormat()},
		Groups: state.Range{To: state.DefaultMaxParallelism}, Store: state.NewMemory(state.DefaultMaxParallelism),
	}
	for _, in := range n.Inputs {
		ctx.InputTypes = append(ctx.InputTypes, in.Schema.Types())
	}
	require.NoError(b, o.Open(ctx))
	return o
}

// keyedChunks returns chunks of (key, window, value) with uniform keys.
func keyedChunks(n, keys int) []*types.Chunk {
	r := rand.New(rand.NewPCG(1, uint64(keys)))
	var cs []*types.Chunk
	for range n {
		c := &types.Chunk{N: types.MaxChunkRows}
		for _, t := range []types.Type{types.Int8, types.Timestamp, types.Int8} {
			c.Cols = append(c.Cols, types.NewVector(t, types.MaxChunkRows))
		}
		for i := range c.N {
			c.Cols[0].Int[i] = int64(r.IntN(keys)) * 7919
			c.Cols[1].Int[i] = int64(r.IntN(2)) * 10_000_000
			c.Cols[2].Int[i] = int64(r.IntN(1000))
		}
		cs = append(cs, c)
	}
	return cs
}

// BenchmarkAgg is count(*) and sum per (key, window). Limit is the loop one would write by hand for exactly this query over the same kind of table.
func BenchmarkAgg(b *testing.B) {
	for _, keys := range []int{5_000, 500_000} {
		cs := keyedChunks(256, keys)
		in := &plan.Node{Key: []int{0}, AppendOnly: true, Schema: schema("k", types.Int8, "w", types.Timestamp, "v", types.Int8)}
		for _, group := range [][]int{{0}, {0, 1}} {
			b.Run(fmt.Sprintf("keys=%d/columns=%d/operator", keys, len(group)), func(b *testing.B) {
				o := openBench(b, aggNode(in, group, call("count(*)", types.Int8), call("sum(int8)", types.NumericType, 2)))
				out := &discard{}
				for _, c := range cs {
					require.NoError(b, o.Process(0, c, out))
				}
				require.NoError(b, o.Barrier(checkpoint.Barrier{Epoch: 1}, out))
				b.ResetTimer()
				for i := 0; b.Loop(); i++ {
					require.NoError(b, o.Process(0, cs[i%len(cs)], out))
				}
				b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N)/types.MaxChunkRows, "ns/row")
			})
			b.Run(fmt.Sprintf("keys=%d/columns=%d/limit", keys, len(group)), func(b *testing.B) {
				t := newLimitTable()
				for _, c := range cs {
					t.add(c, len(group) == 2)
				}
				b.ResetTimer()
				for i := 0; b.Loop(); i++ {
					t.add(cs[i%len(cs)], len(group) == 2)
				}
				b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N)/types.MaxChunkRows, "ns/row")
			})
		}
	}
}

// BenchmarkPartialAgg is count(*) and sum per key, added up before they are spread: of one hot key, of few, and of so many that rows pass as they are.
func BenchmarkPartialAgg(b *testing.B) {
	for _, of := range []struct {
		name      string
		keys, hot int // rows of ten that have one key
	}{{"hot", 500_000, 9}, {"few", 500, 0}, {"many", 500_000, 0}} {
		b.Run(of.name, func(b *testing.B) {
			cs := keyedChunks(256, of.keys)
			for _, c := range cs {
				for i := range c.N {
					if i%10 < of.hot {
						c.Cols[0].Int[i] = 1
					}
				}
			}
			in := &plan.Node{Key: []int{0}, AppendOnly: true, Schema: schema("k", types.Int8, "w", types.Timestamp, "v", types.Int8)}
			part, _, _ := partialPlan(in, []int{0}, partialSplit{call("count(*)", types.Int8), []plan.AggCall{call("count", types.Int8)}},
				partialSplit{call("sum(int8)", types.NumericType, 2), []plan.AggCall{call("sum", types.Int8, 2)}})
			o, out := openBench(b, part), &discard{}
			b.ResetTimer()
			for i := 0; b.Loop(); i++ {
				require.NoError(b, o.Process(0, cs[i%len(cs)], out))
			}
			b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N)/types.MaxChunkRows, "ns/row")
			b.ReportMetric(float64(out.rows)/float64(b.N)/types.MaxChunkRows, "out/row")
		})
	}
}

type limitRow struct{ k, w, count, sum int64 }

type limitTable struct {
	slots []uint64
	rows  []limitRow
}

func newLimitTable() *limitTable { return &limitTable{slots: make([]uint64, 1<<21)} }

func (t *limitTable) add(c *types.Chunk, two bool) {
	shift := 64 - bits.TrailingZeros(uint(len(t.slots)))
	mask := uint64(len(t.slots) - 1)
	w := int64(0)
	for i, k := range c.Cols[0].Int {
		if two {
			w = c.Cols[1].Int[i]
		}
		hi, lo := bits.Mul64(uint64(k)^0xa0761d6478bd642f, uint64(w)^0xe7037ed1a0b428db)
		h := hi ^ lo
		p := h >> shift
		for {
			s := t.slots[p&mask]
			if s == 0 {
				t.rows = append(t.rows, limitRow{k: k, w: w, count: 1, sum: c.Cols[2].Int[i]})
				t.slots[p&mask] = h<<32 | uint64(len(t.rows))
				break
			}
			if s>>32 == h&0xffffffff {
				if r := &t.rows[uint32(s)-1]; r.k == k && r.w == w {
					r.count++
					r.sum += c.Cols[2].Int[i]
					break
				}
			}
			p++
		}
	}
}

// BenchmarkAggBarrier is the cost of a changed group at the barrier.
func BenchmarkAggBarrier(b *testing.B) {
	cs := keyedChunks(64, 50_000)
	in := &plan.Node{Key: []int{0}, AppendOnly: true, Schema: schema("k", types.Int8, "w", types.Timestamp, "v", types.Int8)}
	for _, ckpt := range []uint64{0, 1} {
		b.Run(fmt.Sprintf("checkpoint=%d", ckpt), func(b *testing.B) {
			o := openBench(b, aggNode(in, []int{0}, call("count(*)", types.Int8), call("sum(int8)", types.NumericType, 2)))
			out := &discard{}
			rows := 0
			b.ResetTimer()
			for i := 0; b.Loop(); i++ {
				b.StopTimer()
				for _, c := range cs {
					require.NoError(b, o.Process(0, c, out))
				}
				out.rows = 0
				b.StartTimer()
				require.NoError(b, o.Barrier(checkpoint.Barrier{Epoch: uint64(i + 1), Checkpoint: ckpt}, out))
				rows += out.rows
			}
			b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(rows), "ns/row-out")
		})
	}
}

// BenchmarkJoin builds one side with new keys, then probes it.
func BenchmarkJoin(b *testing.B) {
	s := schema("id", types.Int8, "k", types.Int8, "v", types.Text)
	const rows = 1 << 20
	var build []*types.Chunk
	for n := range rows / types.MaxChunkRows {
		c := types.NewChunk(s.Types())
		for i := range types.MaxChunkRows {
			id := int64(n*types.MaxChunkRows + i)
			c.Cols[0].Int = append(c.Cols[0].Int, id)
			c.Cols[1].Int = append(c.Cols[1].Int, id*7919)
			c.Cols[2].Str = append(c.Cols[2].Str, "twenty bytes of text")
			c.N++
		}
		build = append(build, c)
	}
	for _, appendOnly := range []bool{true, false} {
		in := &plan.Node{Key: []int{0}, AppendOnly: appendOnly, Schema: s}
		n := joinNode(in, in, plan.Inner, []int{1}, []int{1}, []int{0, 3}, nil)
		b.Run(fmt.Sprintf("build/append=%v", appendOnly), func(b *testing.B) {
			out := &discard{}
			for b.Loop() {
				o := openBench(b, n)
				for _, c := range build {
					require.NoError(b, o.Process(0, c, out))
				}
			}
			b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N)/rows, "ns/row")
		})
	}
	in := &plan.Node{Key: []int{0}, AppendOnly: true, Schema: s}
	b.Run("probe, one match", func(b *testing.B) {
		n := joinNode(in, in, plan.Inner, []int{1}, []int{1}, []int{0, 3}, nil)
		out := &discard{}
		for b.Loop() {
			b.StopTimer()
			o := openBench(b, n)
			for _, c := range build[:64] {
				require.NoError(b, o.Process(0, c, out))
			}
			b.StartTimer()
			for _, c := range build[:64] {
				require.NoError(b, o.Process(1, c, out))
			}
		}
		b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N)/64/types.MaxChunkRows, "ns/row")
	})
}

// BenchmarkAggText groups by a short string.
func BenchmarkAggText(b *testing.B) {
	cs := keyedChunks(64, 10_000)
	for _, c := range cs {
		v := types.NewVector(types.Text, c.N)
		for i, k := range c.Cols[0].Int {
			v.Str[i] = fmt.Sprintf("channel-%d", k)
		}
		c.Cols[0] = v
	}
	in := &plan.Node{Key: []int{0}, AppendOnly: true, Schema: schema("k", types.Text, "w", types.Timestamp, "v", types.Int8)}
	o := openBench(b, aggNode(in, []int{0}, call("count(*)", types.Int8), call("sum(int8)", types.NumericType, 2)))
	for i := 0; b.Loop(); i++ {
		require.NoError(b, o.Process(0, cs[i%len(cs)], &discard{}))
	}
	b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N)/types.MaxChunkRows, "ns/row")
}

// BenchmarkTopN keeps the ten greatest values of each key, of inputs that only grow and of others.
func BenchmarkTopN(b *testing.B) {
	for _, appendOnly := range []bool{true, false} {
		b.Run(fmt.Sprintf("append=%v", appendOnly), func(b *testing.B) {
			cs := keyedChunks(64, 1000)
			in := &plan.Node{Key: []int{3}, AppendOnly: appendOnly, Schema: schema("k", types.Int8, "w", types.Timestamp, "v", types.Int8, "id", types.Int8)}
			n := topNode(in, &plan.TopN{GroupBy: []int{0}, Order: []plan.SortKey{{Column: 2, Desc: true}}, Limit: 10})
			o := openBench(b, n)
			id := int64(0)
			ids := types.NewVector(types.Int8, types.MaxChunkRows)
			out := &discard{}
			i := 0
			for ; b.Loop(); i++ {
				for k := range ids.Int {
					ids.Int[k] = id
					id++
				}
				c := *cs[i%len(cs)]
				c.Cols = append(append([]*types.Vector{}, c.Cols...), ids)
				require.NoError(b, o.Process(0, &c, out))
				if i%50 == 49 {
					require.NoError(b, o.Barrier(checkpoint.Barrier{Epoch: uint64(i)}, out))
				}
			}
			b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N)/types.MaxChunkRows, "ns/row")
		})
	}
}

// BenchmarkSort is a one-shot ORDER BY of a million rows, without and with a limit.
func BenchmarkSort(b *testing.B) {
	cs := keyedChunks(512, 1_000_000)
	for _, limit := range []int64{-1, 100} {
		b.Run(fmt.Sprintf("limit=%d", limit), func(b *testing.B) {
			in := &plan.Node{Key: []int{0, 1, 2}, Schema: schema("k", types.Int8, "w", types.Timestamp, "v", types.Int8)}
			n := topNode(in, &plan.TopN{Order: []plan.SortKey{{Column: 0}, {Column: 2, Desc: true}}, Limit: limit})
			for b.Loop() {
				o, err := op.New(n)
				require.NoError(b, err)
				require.NoError(b, o.Open(&op.Context{Node: n, OneShot: true, InputTypes: [][]types.Type{in.Schema.Types()}}))
				out := &discard{}
				for _, c := range cs {
					require.NoError(b, o.Process(0, c, out))
				}
				require.NoError(b, o.Barrier(checkpoint.Barrier{Epoch: 1}, out))
			}
			b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N)/512/types.MaxChunkRows, "ns/row")
		})
	}
}
