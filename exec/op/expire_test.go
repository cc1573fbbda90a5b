package op_test

import (
	"fmt"
	"math"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/streamdb/streamdb/checkpoint"
	"github.com/streamdb/streamdb/exec/op"
	"github.com/streamdb/streamdb/exec/op/optest"
	"github.com/streamdb/streamdb/planner/plan"
	"github.com/streamdb/streamdb/sql/functions"
	"github.com/streamdb/streamdb/types"
)

const testTTL = 10

func expireNode(groups bool) *plan.Node {
	in := input([]int{0}, schema("id", types.Int4, "k", types.Int4, "v", types.Int4))
	e := &plan.Expire{TTL: testTTL, Spread: []int{0}}
	if groups {
		e.Groups, e.GroupBy, e.Spread = true, []int{1}, []int{1}
	}
	return &plan.Node{ID: 31, Kind: plan.KindExpire, Inputs: []*plan.Node{in}, Key: in.Key, Schema: in.Schema, Expire: e}
}

// TestExpireAgainstModel changes rows at random while a clock moves: those on their own are shown until their time is over, those of a group until that of the group is.
func TestExpireAgainstModel(t *testing.T) {
	for _, groups := range []bool{false, true} {
		checkCases(t, 25, func(rt *rapid.T) optest.Spec {
			spec := optest.Spec{Node: expireNode(groups), Route: [][]int{{0}}, NoOracle: true, Lib: functions.Builtins()}
			if groups {
				spec.Route = [][]int{{1}}
			}
			type row struct {
				text  string
				group int
				at    int64
				gone  bool
			}
			live := map[int]*row{}
			changed := map[int]int64{} // groups
			now := int64(0)
			for range rapid.IntRange(1, 7).Draw(rt, "epochs") {
				var rows []string
				for _, id := range rapid.SliceOfNDistinct(rapid.IntRange(0, 8), 0, 8, rapid.ID[int]).Draw(rt, "changes") {
					if old := live[id]; old != nil {
						rows = append(rows, "- "+old.text)
						if !old.gone {
							changed[old.group] = now
						}
						delete(live, id)
						if rapid.Bool().Draw(rt, "deleted") {
							continue
						}
					}
					r := &row{group: rapid.IntRange(0, 2).Draw(rt, "group"), at: now}
					group := fmt.Sprint(r.group)
					if r.group == 2 {
						group = "NULL"
					}
					r.text = fmt.Sprintf("%d %s %d", id, group, rapid.IntRange(0, 100000).Draw(rt, "value"))
					live[id], changed[r.group] = r, now
					rows = append(rows, "+ "+r.text)
				}
				spec.Epochs = append(spec.Epochs, optest.Epoch{In: []string{strings.Join(rows, "\n")}})
				now += rapid.Int64Range(0, 8).Draw(rt, "passes")
				want := []string{}
				for _, r := range live {
					at := r.at
					if groups {
						at = changed[r.group]
					}
					if r.gone = r.gone || at+testTTL <= now; !r.gone {
						want = append(want, "+ "+r.text)
					}
				}
				text := strings.Join(want, "\n")
				if text == "" {
					text = "{}"
				}
				spec.Epochs = append(spec.Epochs, optest.Epoch{In: []string{""}, Now: now, Want: text})
			}
			return spec
		})
	}
}

// TestExpireOrder: within an epoch a retraction may come before its insertion; what was dropped is not owed in the next one.
func TestExpireOrder(t *testing.T) {
	for _, groups := range []bool{false, true} {
		node := expireNode(groups)
		h := optest.NewHost(t, functions.Builtins())
		o := h.Open(node)
		out := &capture{}
		process := func(rows string) {
			c, err := types.ParseChunk(node.Schema.Types(), rows)
			require.NoError(t, err)
			require.NoError(t, o.Process(0, c, out))
		}
		epoch := uint64(100)
		barrier := func(now int64) {
			epoch++
			require.NoError(t, o.Barrier(checkpoint.Barrier{Epoch: epoch, Now: now}, out))
		}
		process("- 1 1 1\n- 1 1 1")
		process("+ 1 1 1\n+ 1 1 1\n+ 1 1 1")
		barrier(5)
		require.Equal(t, []string{"+1 1 1 1"}, out.take())
		barrier(testTTL)
		require.Equal(t, []string{"-1 1 1 1"}, out.take())
		process("- 1 1 1")
		barrier(testTTL)
		process("+ 1 1 1")
		barrier(testTTL)
		require.Equal(t, []string{"+1 1 1 1"}, out.take(), "a row that comes later begins anew")
		h.Checkpoint(o, out)
		barrier(2 * testTTL)
		require.Equal(t, []string{"-1 1 1 1"}, out.take())
		h.Checkpoint(o, out)
		for table := range uint32(3) {
			require.Zero(t, h.Entries(node, table), "table %d", table)
		}
	}
}

// TestExpireBounded: rows that are only added leave no state when their time is over, and the operator tells when it is needed next.
func TestExpireBounded(t *testing.T) {
	node := expireNode(false)
	node.Inputs[0].AppendOnly = true
	h := optest.NewHost(t, functions.Builtins())
	o := h.Open(node)
	timed, ok := o.(op.Timed)
	require.True(t, ok)
	require.EqualValues(t, math.MaxInt64, timed.NextDue())
	out := &capture{}
	for i := range int64(200) {
		c, err := types.ParseChunk(node.Schema.Types(), fmt.Sprintf("+ %d 0 0", i))
		require.NoError(t, err)
		require.NoError(t, o.Process(0, c, out))
		require.NoError(t, o.Barrier(checkpoint.Barrier{Epoch: uint64(i + 1), Now: i + 1}, out))
		require.Equal(t, max(testTTL, i+2), timed.NextDue())
		h.Checkpoint(o, out)
		require.LessOrEqual(t, h.Entries(node, 0), int64(testTTL))
		require.LessOrEqual(t, h.Entries(node, 1), int64(testTTL))
	}
	o = h.Restore(node)
	require.NoError(t, o.Barrier(checkpoint.Barrier{Epoch: 1000, Now: 1000}, out))
	sum := 0
	for _, r := range out.take() {
		if r[0] == '+' {
			sum++
		} else {
			sum--
		}
	}
	require.Zero(t, sum, "every row was taken back")
}

// TestAggExpires: a group that was not changed for the time goes with its row and with what its aggregates keep, and begins anew.
func TestAggExpires(t *testing.T) {
	for _, key := range []types.Type{types.Int4, types.Text} {
		in := input([]int{0}, schema("id", types.Int4, "k", key, "v", types.Int4))
		in.AppendOnly = true
		node := &plan.Node{
			ID: 32, Kind: plan.KindAgg, Inputs: []*plan.Node{in}, Key: []int{0}, Schema: schema("k", key, "n", types.Int8, "d", types.Int8, "m", types.Int4),
			Agg: &plan.Agg{GroupBy: []int{1}, OnClose: -1, TTL: testTTL, Calls: []plan.AggCall{
				{Func: "count(*)", Filter: -1, Type: types.Int8},
				{Func: `count("any")`, Args: []int{2}, Distinct: true, Filter: -1, Type: types.Int8},
				{Func: "max(integer)", Args: []int{2}, Filter: -1, Type: types.Int4},
			}},
		}
		runCase(t, optest.Spec{
			Node: node, Route: [][]int{{1}}, NoOracle: true, Lib: functions.Builtins(),
			Epochs: []optest.Epoch{
				{In: []string{"+ 1 1 5\n+ 2 1 5\n+ 3 2 7"}, Want: "+ 1 2 1 5\n+ 2 1 1 7"},
				{In: []string{""}, Now: 4},
				{In: []string{"+ 4 1 3"}, Want: "+ 1 3 2 5\n+ 2 1 1 7"},
				{In: []string{""}, Now: 9, Want: "+ 1 3 2 5\n+ 2 1 1 7"},
				{In: []string{""}, Now: 10, Want: "+ 1 3 2 5"},
				{In: []string{"+ 5 2 1"}, Want: "+ 1 3 2 5\n+ 2 1 1 1"},
				{In: []string{""}, Now: 14, Want: "+ 2 1 1 1"},
				{In: []string{"+ 6 1 1"}, Want: "+ 1 1 1 1\n+ 2 1 1 1"},
				{In: []string{""}, Now: 100, Want: "{}"},
			},
		})
		h := optest.NewHost(t, functions.Builtins())
		o := h.Open(node)
		out := &capture{}
		for i := range int64(50) {
			c, err := types.ParseChunk(in.Schema.Types(), fmt.Sprintf("+ %d %d %d", i, i, i))
			require.NoError(t, err)
			require.NoError(t, o.Process(0, c, out))
			require.NoError(t, o.Barrier(checkpoint.Barrier{Epoch: uint64(i + 1), Now: i + 1}, out))
			h.Checkpoint(o, out)
			for _, table := range []uint32{0, 1, 3} {
				require.LessOrEqual(t, h.Entries(node, table), int64(testTTL), "table %d", table)
			}
		}
		o = h.Restore(node)
		require.NoError(t, o.Barrier(checkpoint.Barrier{Epoch: 1000, Now: 1000}, out))
		h.Checkpoint(o, out)
		for table := range uint32(4) {
			require.Zero(t, h.Entries(node, table), "table %d", table)
		}
	}
}

// take returns the rows of integers since the last call, added up: "+1 values", "-1 values".
func (c *capture) take() []string {
	sums := map[string]int64{}
	for i := range c.rows.Rows() {
		r := c.rows.Row(i)
		var b []string
		for _, v := range c.rows.Cols {
			b = append(b, fmt.Sprint(v.Int[r]))
		}
		sums[strings.Join(b, " ")] += c.rows.Weight(r)
	}
	c.rows.Reset()
	out := []string{}
	for text, n := range sums {
		if n != 0 {
			out = append(out, fmt.Sprintf("%+d %s", n, text))
		}
	}
	slices.Sort(out)
	return out
}
