package op_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/streamdb/streamdb/exec/op"
	"github.com/streamdb/streamdb/exec/op/optest"
	"github.com/streamdb/streamdb/planner/plan"
	"github.com/streamdb/streamdb/sql/functions"
	"github.com/streamdb/streamdb/types"
)

func sessionNode(in *plan.Node, keys []int, col int, gap int64) *plan.Node {
	return &plan.Node{
		ID: 30, Kind: plan.KindSession, Inputs: []*plan.Node{in}, Key: in.Key, Session: &plan.Session{Keys: keys, Column: col, Gap: gap},
		Schema: append(append(types.Schema{}, in.Schema...), schema("window_start", types.Int8, "window_end", types.Int8)...),
	}
}

func TestSessionsMergeAndSplit(t *testing.T) {
	in := input([]int{0}, schema("id", types.Int4, "ts", types.Int8))
	runCase(t, optest.Spec{
		Node: sessionNode(in, nil, 1, 5),
		Epochs: []optest.Epoch{
			{In: []string{"+ 1 0\n+ 2 8\n+ 9 NULL"}, Want: "+ 1 0 0 5\n+ 2 8 8 13"},
			{In: []string{"+ 3 4"}, Want: "+ 1 0 0 13\n+ 3 4 0 13\n+ 2 8 0 13"},
			{In: []string{"- 3 4"}, Want: "+ 1 0 0 5\n+ 2 8 8 13"},
			{In: []string{"- 1 0\n+ 1 5"}, Want: "+ 1 5 5 13\n+ 2 8 5 13"},
			{In: []string{"+ 4 13"}, Want: "+ 1 5 5 13\n+ 2 8 5 13\n+ 4 13 13 18"},
			{In: []string{"- 1 5\n- 2 8\n- 4 13"}, Want: "{}"},
		},
	})
	// Rows that touch are two sessions, whichever came first.
	for _, order := range [][]string{{"+ 1 0", "+ 2 5"}, {"+ 2 5", "+ 1 0"}} {
		runCase(t, optest.Spec{
			Node:   sessionNode(in, nil, 1, 5),
			Epochs: []optest.Epoch{{In: order[:1]}, {In: order[1:], Want: "+ 1 0 0 5\n+ 2 5 5 10"}},
		})
	}
}

func TestSessionsOfDates(t *testing.T) {
	in := input([]int{0}, schema("id", types.Int4, "d", types.Date))
	node := sessionNode(in, nil, 1, 2*86400*1e6)
	node.Schema[2].Type, node.Schema[3].Type = types.Timestamp, types.Timestamp
	runCase(t, optest.Spec{
		Node: node,
		Epochs: []optest.Epoch{
			{
				In: []string{"+ 1 1969-12-31\n+ 2 1970-01-01\n+ 3 1970-01-03\n+ 4 infinity"}, Errors: "22008",
				Want: "+ 1 1969-12-31 '1969-12-31 00:00:00' '1970-01-03 00:00:00'\n+ 2 1970-01-01 '1969-12-31 00:00:00' '1970-01-03 00:00:00'\n" +
					"+ 3 1970-01-03 '1970-01-03 00:00:00' '1970-01-05 00:00:00'",
			},
			{In: []string{"- 4 infinity"}, Errors: "{}"},
		},
	})
}

// TestSessionsAgainstScan compares random histories with sessions found by looking at all rows.
func TestSessionsAgainstScan(t *testing.T) {
	const gap = 3
	in := input([]int{0}, schema("id", types.Int4, "k", types.Int4, "ts", types.Int8))
	node := sessionNode(in, []int{1}, 2, gap)
	oracle := func(ins []*types.Chunk) (*types.Chunk, error) {
		c := ins[0]
		out := types.NewChunk(node.Schema.Types())
		for i := range c.N {
			ts := c.Cols[2]
			if ts.IsNull(i) {
				continue
			}
			lo, hi := ts.Int[i], ts.Int[i]
			for grown := true; grown; {
				grown = false
				for j := range c.N {
					same := c.Cols[1].IsNull(i) == c.Cols[1].IsNull(j) && (c.Cols[1].IsNull(i) || c.Cols[1].Int[i] == c.Cols[1].Int[j])
					if !same || ts.IsNull(j) {
						continue
					}
					if x := ts.Int[j]; x < lo && lo-x < gap {
						lo, grown = x, true
					} else if x > hi && x-hi < gap {
						hi, grown = x, true
					}
				}
			}
			for k := range 3 {
				out.Cols[k].Append(c.Cols[k], i)
			}
			out.Cols[3].Int = append(out.Cols[3].Int, lo)
			out.Cols[4].Int = append(out.Cols[4].Int, hi+gap)
			out.PushWeight(c.Weight(i))
		}
		return out, nil
	}
	checkCases(t, 40, func(rt *rapid.T) optest.Spec {
		live := map[int]string{}
		var epochs []optest.Epoch
		for range rapid.IntRange(1, 6).Draw(rt, "epochs") {
			var rows []string
			for range rapid.IntRange(0, 12).Draw(rt, "rows") {
				id := rapid.IntRange(0, 20).Draw(rt, "id")
				if old, ok := live[id]; ok {
					rows = append(rows, "- "+old)
					delete(live, id)
					if rapid.Bool().Draw(rt, "gone") {
						continue
					}
				}
				k, ts := "NULL", "NULL"
				if rapid.IntRange(0, 9).Draw(rt, "null key") > 0 {
					k = fmt.Sprint(rapid.IntRange(0, 1).Draw(rt, "k"))
				}
				if rapid.IntRange(0, 9).Draw(rt, "null time") > 0 {
					ts = fmt.Sprint(rapid.IntRange(-20, 20).Draw(rt, "ts"))
				}
				live[id] = fmt.Sprintf("%d %s %s", id, k, ts)
				rows = append(rows, "+ "+live[id])
			}
			epochs = append(epochs, optest.Epoch{In: []string{strings.Join(rows, "\n")}})
		}
		return optest.Spec{Node: node, Route: [][]int{{1}}, Epochs: epochs, Oracle: oracle}
	})
}

func closingSession(gap int64) *plan.Node {
	in := input([]int{0}, schema("id", types.Int4, "k", types.Int4, "ts", types.Int8))
	in.AppendOnly = true
	node := sessionNode(in, []int{1}, 2, gap)
	node.Session.OnClose = true
	return node
}

func TestSessionsEmittedOnClose(t *testing.T) {
	mark := func(v int64) []optest.Mark { return []optest.Mark{{Column: 2, Value: v}} }
	runCase(t, optest.Spec{
		Node: closingSession(5), Route: [][]int{{1}}, NoOracle: true,
		Epochs: []optest.Epoch{
			{In: []string{"+ 1 1 0\n+ 2 1 8\n+ 3 2 3"}, Marks: mark(4), Want: "{}"},
			{In: []string{"+ 4 1 4"}, Marks: mark(8), Want: "+ 3 2 3 3 8"},
			// Key 2 has emitted [3, 8): row 5 would have been part of it, row 6 is a session of its own.
			{In: []string{"+ 5 2 7\n+ 6 2 9"}, Want: "+ 3 2 3 3 8", Late: 1},
			{Marks: mark(13), Want: "+ 3 2 3 3 8\n+ 1 1 0 0 13\n+ 4 1 4 0 13\n+ 2 1 8 0 13"},
			{In: []string{"+ 7 3 8"}, Marks: mark(100), Want: "+ 3 2 3 3 8\n+ 1 1 0 0 13\n+ 4 1 4 0 13\n+ 2 1 8 0 13\n+ 6 2 9 9 14", Late: 2},
		},
	})
}

// TestSessionsOnCloseMatchPlainOnes: what closes is what the sessions of all rows are, when no row is late.
func TestSessionsOnCloseMatchPlainOnes(t *testing.T) {
	const gap, slack = 4, 6
	checkCases(t, 20, func(rt *rapid.T) optest.Spec {
		node := closingSession(gap)
		spec := optest.Spec{Node: node, Route: [][]int{{1}}, NoOracle: true}
		type row struct {
			id, k int
			ts    int64
		}
		var all []row
		high := int64(0)
		for e := range 6 {
			var lines []string
			for i := range rapid.IntRange(0, 8).Draw(rt, "rows") {
				r := row{id: e*10 + i, k: rapid.IntRange(0, 1).Draw(rt, "k"), ts: high + rapid.Int64Range(-slack, slack).Draw(rt, "ts")}
				all = append(all, r)
				lines = append(lines, fmt.Sprintf("+ %d %d %d", r.id, r.k, r.ts))
			}
			for _, r := range all {
				high = max(high, r.ts)
			}
			// Rows of the next epoch are not before high-slack.
			m := high - slack
			var want []string
			for k := range 2 {
				var of []row
				for _, r := range all {
					if r.k == k {
						of = append(of, r)
					}
				}
				slices.SortStableFunc(of, func(a, b row) int { return int(a.ts - b.ts) })
				for i := 0; i < len(of); {
					j := i + 1
					for j < len(of) && of[j].ts-of[j-1].ts < gap {
						j++
					}
					if end := of[j-1].ts + gap; end <= m {
						for _, r := range of[i:j] {
							want = append(want, fmt.Sprintf("+ %d %d %d %d %d", r.id, k, r.ts, of[i].ts, end))
						}
					}
					i = j
				}
			}
			text := strings.Join(want, "\n")
			if text == "" {
				text = "{}"
			}
			spec.Epochs = append(spec.Epochs, optest.Epoch{In: []string{strings.Join(lines, "\n")}, Marks: []optest.Mark{{Column: 2, Value: m}}, Want: text})
		}
		return spec
	})
}

// TestClosedSessionsLeaveNoState: state holds open sessions only, however many have been.
func TestClosedSessionsLeaveNoState(t *testing.T) {
	node := closingSession(5)
	h := optest.NewHost(t, functions.Builtins())
	o := h.Open(node)
	out := &capture{}
	for i := range int64(200) {
		c, err := types.ParseChunk(node.Inputs[0].Schema.Types(), fmt.Sprintf("+ %d %d %d\n+ %d %d %d", 2*i, i%7, 10*i, 2*i+1, i%7, 10*i+2))
		require.NoError(t, err)
		require.NoError(t, o.Process(0, c, out))
		require.NoError(t, o.Watermark(0, op.Watermark{Column: 2, Value: 10 * i}, out))
		h.Checkpoint(o, out)
		for table := range uint32(3) {
			require.LessOrEqual(t, h.Entries(node, table), int64(6), "table %d after %d sessions", table, i)
		}
	}
	require.Equal(t, 2*199, out.rows.N)
}
