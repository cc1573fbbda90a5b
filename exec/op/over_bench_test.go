package op_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/streamdb/streamdb/checkpoint"
	"github.com/streamdb/streamdb/planner/plan"
	"github.com/streamdb/streamdb/types"
)

// BenchmarkOverChange changes one row of a large partition, in the middle or behind the last row, and passes a barrier.
func BenchmarkOverChange(b *testing.B) {
	rows := int64(100_000)
	if testing.Short() {
		rows = 50_000
	}
	in := &plan.Node{Key: []int{0}, Schema: schema("id", types.Int8, "o", types.Int8, "v", types.Int8, "d", types.Int4)}
	order := []plan.SortKey{{Column: 1}}
	back, none := bound(plan.Preceding, 9), plan.Bound{Kind: plan.CurrentRow}
	first, last := plan.Bound{Kind: plan.UnboundedPreceding}, plan.Bound{Kind: plan.UnboundedFollowing}
	nth := func(c plan.OverCall) plan.OverCall {
		n := int64(3)
		c.Number = &n
		return c
	}
	for _, c := range []struct {
		name string
		end  bool // append and take away a last row, instead of changing a value in the middle
		call plan.OverCall
	}{
		{"rows_10_sum", false, framed(over("sum(int8)", types.NumericType, 2), plan.FrameRows, back, none, "")},
		{"range_10_max", false, framed(over("max(int8)", types.Int8, 2), plan.FrameRange, back, none, "")},
		{"lag", false, over("lag(anyelement)", types.Int8, 2)},
		{"row_number", false, over("row_number()", types.Int8)},
		{"row_number_append", true, over("row_number()", types.Int8)},
		{"running_sum_append", true, over("sum(int8)", types.NumericType, 2)},
		{"partition_max", false, framed(over("max(int8)", types.Int8, 2), plan.FrameRows, first, last, "")},
		{"max_to_end", false, framed(over("max(int8)", types.Int8, 2), plan.FrameRows, none, last, "")},
		{"max_backward", false, framed(over("max(int8)", types.Int8, 2), plan.FrameRows, first, none, "")},
		{"max_range_before", false, framed(over("max(int8)", types.Int8, 2), plan.FrameRange, first, back, "")},
		{"max_excluding", false, framed(over("max(int8)", types.Int8, 2), plan.FrameRows, first, none, "current")},
		{"count_of_others", false, framed(over("count(int8)", types.Int8, 2), plan.FrameRows, first, last, "current")},
		{"nth_value", false, nth(framed(over("nth_value(anyelement,int4)", types.Int8, 2, 2), plan.FrameRows, first, last, ""))},
		{"lag_by_column", false, over("lag(anyelement,int4)", types.Int8, 2, 3)},
	} {
		b.Run(c.name, func(b *testing.B) {
			node := overNode(in, nil, order, c.call)
			node.Over.Backward = c.name == "max_backward"
			o := openBench(b, node)
			out := &discard{}
			chunk := types.NewChunk(in.Schema.Types())
			push := func(id, v, w int64) {
				for k, x := range []int64{id, id, v, id % 3} {
					chunk.Cols[k].Int = append(chunk.Cols[k].Int, x)
				}
				chunk.PushWeight(w)
			}
			epoch := uint64(0)
			flush := func(barrier bool) {
				require.NoError(b, o.Process(0, chunk, out))
				chunk.Reset()
				if barrier {
					epoch++
					require.NoError(b, o.Barrier(checkpoint.Barrier{Epoch: epoch}, out))
				}
			}
			for i := range rows {
				v := i % 1000
				if i == 10 {
					v = 5000
				}
				push(i, v, 1)
				if chunk.N == types.MaxChunkRows {
					flush(false)
				}
			}
			flush(true)
			out.rows = 0
			v := rows / 2 % 1000
			b.ResetTimer()
			for i := 0; b.Loop(); i++ {
				switch {
				case !c.end:
					push(rows/2, v, -1)
					v = (v + 1) % 1000
					push(rows/2, v, 1)
				case i%2 == 0:
					push(rows, 1, 1)
				default:
					push(rows, 1, -1)
				}
				flush(true)
			}
			b.ReportMetric(float64(out.rows)/float64(b.N), "rows/change")
		})
	}
}
