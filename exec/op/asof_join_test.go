package op_test

import (
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/streamdb/streamdb/exec/op/optest"
	"github.com/streamdb/streamdb/planner/plan"
	"github.com/streamdb/streamdb/types"
)

func asofNode(l, r *plan.Node, j *plan.AsofJoin) *plan.Node {
	j.KeepNulls = j.Type == plan.Left
	n := &plan.Node{ID: 9, Kind: plan.KindAsofJoin, Inputs: []*plan.Node{l, r}, Key: l.Key, AsofJoin: j}
	n.Schema = append(append(n.Schema, l.Schema...), r.Schema...)
	if j.Output != nil {
		all := n.Schema
		n.Schema = nil
		for _, p := range j.Output {
			n.Schema = append(n.Schema, all[p])
		}
	}
	return n
}

func TestAsofJoinFollowsBothSides(t *testing.T) {
	l := input([]int{0}, schema("id", types.Int4, "k", types.Text, "t", types.Int4))
	r := input([]int{0}, schema("id", types.Int4, "k", types.Text, "t", types.Int4))
	runCase(t, optest.Spec{
		Node: asofNode(l, r, &plan.AsofJoin{
			Type: plan.Left, LeftKeys: []int{1}, RightKeys: []int{1}, Left: 2, Right: 2, Op: ">=", Output: []int{0, 1, 3, 5},
		}),
		Route: [][]int{{1}, {1}},
		Epochs: []optest.Epoch{
			{In: []string{"+ 1 a 10\n+ 2 a 20\n+ 3 b 10\n+ 4 NULL 10\n+ 5 a NULL", ""}, Want: "+ 1 a NULL NULL\n+ 2 a NULL NULL\n+ 3 b NULL NULL\n+ 4 NULL NULL NULL\n+ 5 a NULL NULL"},
			{In: []string{"- 4 NULL 10\n- 5 a NULL", "+ 1 a 10\n+ 2 a 15\n+ 3 NULL 1\n+ 4 b NULL"}, Want: "+ 1 a 1 10\n+ 2 a 2 15\n+ 3 b NULL NULL"},
			{In: []string{"", "- 2 a 15\n+ 2 a 21"}, Want: "+ 1 a 1 10\n+ 2 a 1 10\n+ 3 b NULL NULL"},
			{In: []string{"- 2 a 20\n+ 2 a 21", "+ 9 a 21"}, Want: "+ 1 a 1 10\n+ 2 a 2 21\n+ 3 b NULL NULL"}, // of two equal ones the first by key
			{In: []string{"", "- 2 a 21\n- 1 a 10\n+ 6 a 5"}, Want: "+ 1 a 6 5\n+ 2 a 9 21\n+ 3 b NULL NULL"},
			{In: []string{"- 3 b 10", "- 9 a 21\n- 6 a 5"}, Want: "+ 1 a NULL NULL\n+ 2 a NULL NULL"},
		},
	})
}

// naiveAsof looks at every right row for every left row.
func naiveAsof(typ plan.JoinType, op string, safe bool, schema types.Schema) func(in []*types.Chunk) (*types.Chunk, error) {
	return func(in []*types.Chunk) (*types.Chunk, error) {
		l, r := in[0], in[1]
		out := types.NewChunk(schema.Types())
		for a := range l.N {
			best := -1
			for b := range r.N {
				null, other := l.Cols[1].IsNull(a), r.Cols[1].IsNull(b)
				if l.Cols[2].IsNull(a) || r.Cols[2].IsNull(b) || (null || other) && !(safe && null && other) || !null && !other && l.Cols[1].Int[a] != r.Cols[1].Int[b] {
					continue
				}
				x, y := l.Cols[2].Int[a], r.Cols[2].Int[b]
				if !(op == "<" && x < y || op == "<=" && x <= y || op == ">" && x > y || op == ">=" && x >= y) {
					continue
				}
				if best >= 0 {
					near, d := r.Cols[2].Int[best], y
					if op[0] == '<' {
						near, d = -near, -d
					}
					if d < near || d == near && r.Cols[0].Int[b] > r.Cols[0].Int[best] {
						continue
					}
				}
				best = b
			}
			if best < 0 && typ == plan.Inner {
				continue
			}
			for k, v := range out.Cols {
				switch {
				case k < 3:
					v.Append(l.Cols[k], a)
				case best < 0:
					v.AppendNull()
				default:
					v.Append(r.Cols[k-3], best)
				}
			}
			out.PushWeight(1)
		}
		return out, nil
	}
}

func TestAsofJoinRandomChanges(t *testing.T) {
	checkCases(t, 40, func(rt *rapid.T) optest.Spec {
		s := schema("id", types.Int4, "k", types.Int4, "t", types.Int4)
		l, r := input([]int{0}, s), input([]int{0}, s)
		j := &plan.AsofJoin{
			Type: rapid.SampledFrom([]plan.JoinType{plan.Inner, plan.Left}).Draw(rt, "type"), LeftKeys: []int{1}, RightKeys: []int{1}, Left: 2, Right: 2,
			Op: rapid.SampledFrom([]string{"<", "<=", ">", ">="}).Draw(rt, "op"),
		}
		safe := rapid.Bool().Draw(rt, "null safe")
		if safe {
			j.NullSafe = []bool{true}
		}
		n := asofNode(l, r, j)
		return optest.Spec{Node: n, Route: [][]int{{1}, {1}}, Oracle: naiveAsof(j.Type, j.Op, safe, n.Schema), Epochs: history(rt, 2)}
	})
}

// TestAsofJoinReadsTheGap counts what a changed right row emits.
func TestAsofJoinReadsTheGap(t *testing.T) {
	s := schema("id", types.Int4, "t", types.Int4)
	n := asofNode(input([]int{0}, s), input([]int{0}, s), &plan.AsofJoin{Type: plan.Left, LeftKeys: []int{}, RightKeys: []int{}, Left: 1, Right: 1, Op: ">"})
	h := optest.NewHost(t, nil)
	o := h.Open(n)
	defer func() { require.NoError(t, o.Close()) }()
	feed := func(port int, text string) {
		k, err := types.ParseChunk(s.Types(), text)
		require.NoError(t, err)
		require.NoError(t, o.Process(port, k, &discard{}))
	}
	left, right := "", ""
	for i := range 100 {
		left += fmt.Sprintf("+ %d %d\n", i, i*10+5)
		right += fmt.Sprintf("+ %d %d\n", i, i*10)
	}
	feed(0, left)
	feed(1, right)
	h.Barrier(o, &discard{})
	for _, c := range []struct {
		change string
		want   int
	}{
		{"+ 500 502", 2}, // one left row has another match now
		{"- 500 502", 2},
		{"+ 900 505", 0},            // strict
		{"+ 901 505\n+ 902 510", 0}, // not the first of their place
		{"- 900 505\n- 901 505", 0},
		{"- 50 500\n- 51 510", 4},
	} {
		feed(1, c.change)
		d := &discard{}
		h.Barrier(o, d)
		require.Equal(t, c.want, d.rows, c.change)
	}
}
