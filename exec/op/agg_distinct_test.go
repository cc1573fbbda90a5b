package op_test

import (
	"encoding/binary"
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/streamdb/streamdb/exec/op"
	"github.com/streamdb/streamdb/exec/op/optest"
	"github.com/streamdb/streamdb/planner/plan"
	"github.com/streamdb/streamdb/sql/functions"
	"github.com/streamdb/streamdb/types"
)

var distinctInput = schema("id", types.Int4, "k", types.Int4, "v", types.Int8, "t", types.Text, "pass", types.Bool, "w", types.Timestamp)

func distinctNode(appendOnly bool, group []int, calls ...plan.AggCall) *plan.Node {
	in := input([]int{0}, distinctInput)
	in.AppendOnly = appendOnly
	n := &plan.Node{ID: 21, Kind: plan.KindAgg, Inputs: []*plan.Node{in}, Agg: &plan.Agg{GroupBy: group, Calls: calls, OnClose: -1, Global: len(group) == 0}}
	for i, g := range group {
		n.Schema, n.Key = append(n.Schema, in.Schema[g]), append(n.Key, i)
	}
	for i, c := range calls {
		n.Schema = append(n.Schema, types.Column{Name: fmt.Sprint("c", i), Type: c.Type})
	}
	return n
}

func distinctOf(c plan.AggCall, filter int) plan.AggCall {
	c.Distinct, c.Filter = true, filter
	return c
}

// TestDistinct: calls with DISTINCT over integers, text and both, with and without filters, that share what they have seen.
func TestDistinct(t *testing.T) {
	checkCases(t, 25, func(rt *rapid.T) optest.Spec {
		var calls []plan.AggCall
		for range rapid.IntRange(1, 5).Draw(rt, "calls") {
			c := rapid.SampledFrom([]plan.AggCall{
				call("count(any)", types.Int8, 2), call("sum(int8)", types.NumericType, 2), call("count(any)", types.Int8, 3), call("count(any)", types.Int8, 1),
				call("avg(int8)", types.NumericType, 2),
			}).Draw(rt, "call")
			calls = append(calls, distinctOf(c, rapid.SampledFrom([]int{-1, 4}).Draw(rt, "filter")))
		}
		n := distinctNode(rapid.Bool().Draw(rt, "append only"), rapid.SampledFrom([][]int{{1}, {3}, {1, 3}}).Draw(rt, "group"), calls...)
		epochs := drawEpochs(rt, n.Inputs[0], 12, func(id int, pick func(name string, from ...string) string) string {
			return fmt.Sprintf("%d %s %s %s %s NULL", id, pick("k", "1", "2", "NULL"), pick("v", "1", "2", "-3", "NULL"), pick("t", "a", "b", "NULL"), pick("pass", "t", "f", "NULL"))
		})
		return optest.Spec{Node: n, Lib: functions.Builtins(), Route: [][]int{n.Agg.GroupBy}, Epochs: epochs}
	})
}

// TestDistinctForgetsWindows: what was seen in a window goes with it, from memory and from state.
func TestDistinctForgetsWindows(t *testing.T) {
	n := distinctNode(true, []int{5}, distinctOf(call("count(any)", types.Int8, 2), -1), distinctOf(call("count(any)", types.Int8, 3), -1))
	n.Agg.OnClose = 0
	h := optest.NewHost(t, functions.Builtins())
	o := h.Open(n)
	out := &changeSink{}
	send := func(at int64, values ...int64) {
		c := types.NewChunk(distinctInput.Types())
		for i, v := range values {
			row := []types.Datum{{Type: types.Int4, Int: int64(i)}, {Type: types.Int4}, {Type: types.Int8, Int: v}, {Type: types.Text, Str: fmt.Sprint(v % 2)}, {Type: types.Bool}, {Type: types.Timestamp, Int: at}}
			for k, d := range row {
				c.Cols[k].AppendDatum(d)
			}
			c.PushWeight(1)
		}
		require.NoError(t, o.Process(0, c, out))
	}
	send(100, 1, 2, 2, 3)
	send(200, 3, 5)
	h.Checkpoint(o, out)
	require.Equal(t, int64(3+2+2+1), h.Entries(n, 4))
	require.NoError(t, o.Close())
	o = h.Restore(n)
	send(100, 3, 4)
	require.NoError(t, o.Watermark(0, op.Watermark{Column: 5, Value: 150}, out))
	h.Checkpoint(o, out)
	require.Equal(t, int64(2+1), h.Entries(n, 4))
	send(200, 5, 7)
	require.NoError(t, o.Watermark(0, op.Watermark{Column: 5, Value: 250}, out))
	h.Checkpoint(o, out)
	require.Zero(t, h.Entries(n, 4))
	require.Equal(t, []string{"+ 100 4 2", "+ 200 3 1"}, out.rows)
	require.NoError(t, o.Close())
}

// TestDistinctTakesOver: versions before kept what each call has seen by itself, in another table.
func TestDistinctTakesOver(t *testing.T) {
	for _, appendOnly := range []bool{true, false} {
		n := distinctNode(appendOnly, []int{1}, distinctOf(call("count(any)", types.Int8, 2), -1), distinctOf(call("sum(int8)", types.NumericType, 2), -1),
			distinctOf(call("count(any)", types.Int8, 3), 4))
		h := optest.NewHost(t, functions.Builtins())
		k := types.NewChunk([]types.Type{types.Int4})
		k.Cols[0].Int, k.N = []int64{1}, 1
		hash := make([]uint64, 1)
		types.HashRows(k, []int{0}, hash)
		kg := types.KeyGroup(hash[0], 16)
		key := types.AppendKeyRow(nil, k.Cols, 0)
		group := []byte{1}
		for _, w := range []int64{3, 2, 12, 0, 2, 1} { // rows; count; sum: low, high, count; count
			group = binary.AppendVarint(group, w)
		}
		h.Put(n, 0, kg, key, group)
		for _, e := range []struct {
			call  byte
			value types.Datum
			count int64
		}{
			{0, types.Datum{Type: types.Int8, Int: 5}, 2},
			{0, types.Datum{Type: types.Int8, Int: 7}, 1},
			{1, types.Datum{Type: types.Int8, Int: 5}, 2},
			{1, types.Datum{Type: types.Int8, Int: 7}, 1},
			{2, types.Datum{Type: types.Text, Str: "a"}, 1},
		} {
			h.Put(n, 1, kg, types.AppendKeyDatum(append(append([]byte(nil), key...), e.call), e.value, false, false), binary.AppendVarint(nil, e.count))
		}
		o := h.Open(n)
		out := &changeSink{}
		send := func(w, v int64, text string) {
			c := types.NewChunk(distinctInput.Types())
			row := []types.Datum{{Type: types.Int4}, {Type: types.Int4, Int: 1}, {Type: types.Int8, Int: v}, {Type: types.Text, Str: text}, {Type: types.Bool, Bool: true}, {Type: types.Timestamp}}
			for k, d := range row {
				c.Cols[k].AppendDatum(d)
			}
			c.PushWeight(w)
			require.NoError(t, o.Process(0, c, out))
		}
		send(1, 5, "a")
		send(1, 9, "b")
		h.Checkpoint(o, out)
		require.Equal(t, []string{"- 1 2 12 1", "+ 1 3 21 2"}, out.rows)
		require.Zero(t, h.Entries(n, 1))
		require.Equal(t, int64(3+2), h.Entries(n, 4))
		require.NoError(t, o.Close())
		if appendOnly {
			continue
		}
		o, out.rows = h.Restore(n), nil
		send(-1, 7, "b")
		send(-1, 5, "a")
		h.Checkpoint(o, out)
		require.Equal(t, []string{"- 1 3 21 2", "+ 1 2 14 1"}, out.rows)
		require.NoError(t, o.Close())
	}
}

// changeSink lists rows with the signs of their weights.
type changeSink struct{ rows []string }

func (s *changeSink) Emit(c *types.Chunk) error {
	for i := range c.Rows() {
		r := c.Row(i)
		text := "+"
		if c.Weight(r) < 0 {
			text = "-"
		}
		for _, v := range c.Cols {
			if v.Type.OID == types.OIDTimestamp {
				text += fmt.Sprintf(" %d", v.Int[r])
			} else {
				text += " " + string(types.AppendText(nil, types.DefaultFormat(), v, r))
			}
		}
		s.rows = append(s.rows, text)
	}
	return nil
}

func (s *changeSink) EmitWatermark(op.Watermark) error { return nil }
