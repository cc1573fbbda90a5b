package op_test

import (
	"fmt"
	"math"
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
	"github.com/streamdb/streamdb/types"
)

func temporalNode(leaves, after bool) *plan.Node {
	in := input([]int{0}, schema("id", types.Int4, "at", types.Int8))
	return &plan.Node{
		ID: 31, Kind: plan.KindTemporal, Inputs: []*plan.Node{in}, Key: in.Key, Schema: in.Schema,
		Temporal: &plan.Temporal{Bound: expr.Col(1, types.Int8), Leaves: leaves, After: after},
	}
}

// TestTemporalAgainstFilter moves a clock over random histories: what is shown is always what the condition says.
func TestTemporalAgainstFilter(t *testing.T) {
	for _, c := range []struct {
		leaves, after bool
		holds         func(now, at int64) bool
	}{
		{true, false, func(now, at int64) bool { return now < at }},
		{true, true, func(now, at int64) bool { return now <= at }},
		{false, false, func(now, at int64) bool { return now >= at }},
		{false, true, func(now, at int64) bool { return now > at }},
	} {
		checkCases(t, 15, func(rt *rapid.T) optest.Spec {
			spec := optest.Spec{Node: temporalNode(c.leaves, c.after), Route: [][]int{{0}}, NoOracle: true}
			live := map[int]string{}
			times := map[int]int64{}
			now := int64(0)
			for range rapid.IntRange(1, 6).Draw(rt, "epochs") {
				var rows []string
				for range rapid.IntRange(0, 8).Draw(rt, "changes") {
					id := rapid.IntRange(0, 6).Draw(rt, "id")
					if old, ok := live[id]; ok {
						rows = append(rows, "- "+old)
						delete(live, id)
						delete(times, id)
						continue
					}
					at := rapid.Int64Range(-5, 25).Draw(rt, "at")
					live[id], times[id] = fmt.Sprintf("%d %d", id, at), at
					if at == 25 {
						live[id] = fmt.Sprintf("%d NULL", id)
						delete(times, id)
					}
					rows = append(rows, "+ "+live[id])
				}
				now += rapid.Int64Range(0, 8).Draw(rt, "passes")
				want := []string{}
				for id, at := range times {
					if c.holds(now, at) {
						want = append(want, "+ "+live[id])
					}
				}
				text := strings.Join(want, "\n")
				if text == "" {
					text = "{}"
				}
				spec.Epochs = append(spec.Epochs, optest.Epoch{In: []string{strings.Join(rows, "\n")}, Now: now, Want: text})
			}
			return spec
		})
	}
}

// TestTemporalKeepsWhatWillChange: rows whose time is over leave no state, and the operator tells when it is needed next.
func TestTemporalKeepsWhatWillChange(t *testing.T) {
	node := temporalNode(true, false)
	h := optest.NewHost(t, functions.Builtins())
	o := h.Open(node)
	timed, ok := o.(op.Timed)
	require.True(t, ok)
	out := &capture{}
	for i := range int64(100) {
		c, err := types.ParseChunk(node.Schema.Types(), fmt.Sprintf("+ %d %d\n+ %d %d", 2*i, 10*i+15, 2*i+1, 10*i-500))
		require.NoError(t, err)
		require.NoError(t, o.Process(0, c, out))
		require.NoError(t, o.Barrier(checkpoint.Barrier{Epoch: uint64(i + 1), Now: 10*i + 1}, out))
		require.Equal(t, max(15, 10*i+5), timed.NextDue())
		h.Checkpoint(o, out)
		require.LessOrEqual(t, h.Entries(node, 0), int64(2), "rows after %d", i)
		require.LessOrEqual(t, h.Entries(node, 1), int64(2), "moments after %d", i)
	}
	require.NoError(t, o.Barrier(checkpoint.Barrier{Epoch: 101, Now: 10_000}, out))
	require.EqualValues(t, math.MaxInt64, timed.NextDue())
}
