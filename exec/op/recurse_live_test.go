package op_test

import (
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/streamdb/streamdb/exec/op"
	"github.com/streamdb/streamdb/exec/op/optest"
	"github.com/streamdb/streamdb/planner/plan"
	"github.com/streamdb/streamdb/sql/expr"
	"github.com/streamdb/streamdb/sql/functions"
	"github.com/streamdb/streamdb/types"
)

// reachNode is: WITH RECURSIVE r(n) AS (SELECT n FROM starts UNION [ALL] SELECT b FROM r JOIN edges ON n = a) over starts (id, n) and edges (id, a, b).
func reachNode(all bool) *plan.Node {
	starts, edges := input([]int{0}, schema("id", types.Int4, "n", types.Int4)), input([]int{0}, schema("id", types.Int4, "a", types.Int4, "b", types.Int4))
	leaf := func(i int, in *plan.Node) *plan.Node {
		return &plan.Node{Kind: plan.KindInput, Input: i, Schema: in.Schema, Key: in.Key, AppendOnly: true}
	}
	columns := func(in *plan.Node, key []int, cols ...int) *plan.Node {
		p := &plan.Node{Kind: plan.KindProject, Inputs: []*plan.Node{in}, Key: key, Project: &plan.Project{}}
		for _, c := range cols {
			p.Schema = append(p.Schema, in.Schema[c])
			p.Project.Exprs = append(p.Project.Exprs, expr.Col(c, in.Schema[c].Type))
		}
		return p
	}
	work := &plan.Node{Kind: plan.KindWork, Schema: schema("n", types.Int4, "row", types.Int8), Key: []int{1}, AppendOnly: true}
	join := &plan.Node{
		Kind: plan.KindJoin, Inputs: []*plan.Node{work, leaf(1, edges)}, Key: []int{1, 2}, AppendOnly: true,
		Schema: schema("n", types.Int4, "row", types.Int8, "id", types.Int4, "a", types.Int4, "b", types.Int4),
		Join:   &plan.Join{Type: plan.Inner, LeftKeys: []int{0}, RightKeys: []int{1}},
	}
	source := 1
	sub := &plan.Node{Kind: plan.KindRecurse, Schema: schema("n", types.Int4), Key: []int{0}, Recurse: &plan.Recurse{
		Name: "r", Base: columns(leaf(0, starts), []int{1}, 1, 0), Step: columns(join, []int{1, 2}, 4, 1, 2), Width: 1, All: all, Keep: true, Linear: true,
		Live: true, Source: &source, MaxIterations: 1000, MaxBytes: 1 << 26,
	}}
	if all {
		sub.Schema, sub.Key = schema("n", types.Int4, "row", types.Int8), []int{0, 1}
	}
	return &plan.Node{
		ID: 20, Kind: plan.KindRecompute, Inputs: []*plan.Node{starts, edges}, Key: sub.Key, Schema: sub.Schema,
		Recompute: &plan.Recompute{Sub: sub, Numbered: all},
	}
}

// reached computes the result row by row.
func reached(all bool, in []*types.Chunk) *types.Chunk {
	next := map[int64][]int64{}
	for i := range in[1].N {
		a := in[1].Cols[1].Int[i]
		next[a] = append(next[a], in[1].Cols[2].Int[i])
	}
	count := map[int64]int64{}
	var work []int64
	for i := range in[0].N {
		work = append(work, in[0].Cols[1].Int[i])
	}
	for len(work) > 0 {
		n := work[0]
		work = work[1:]
		if count[n]++; count[n] == 1 || all {
			work = append(work, next[n]...)
		}
	}
	ts := schema("n", types.Int4).Types()
	if all {
		ts = append(ts, types.Int8)
	}
	out := types.NewChunk(ts)
	for n, k := range count {
		for i := range k {
			if i > 0 && !all {
				break
			}
			out.Cols[0].Int = append(out.Cols[0].Int, n)
			if all {
				out.Cols[1].Int = append(out.Cols[1].Int, i+1)
			}
			out.PushWeight(1)
		}
	}
	return out
}

// TestLiveRecursion changes random graphs: with cycles under UNION, without under UNION ALL.
func TestLiveRecursion(t *testing.T) {
	for _, all := range []bool{false, true} {
		t.Run(fmt.Sprintf("all=%v", all), func(t *testing.T) {
			checkCases(t, 40, func(rt *rapid.T) optest.Spec {
				nodes := rapid.IntRange(3, 9).Draw(rt, "nodes")
				live := [2]map[int]string{{}, {}}
				change := func(port, n, ids int) string {
					text := ""
					for range n {
						id := rapid.IntRange(0, ids).Draw(rt, "id")
						old, has := live[port][id]
						if has {
							text += "- " + old + "\n"
							delete(live[port], id)
						}
						if has && rapid.IntRange(0, 1).Draw(rt, "update") == 0 {
							continue
						}
						a, b := rapid.IntRange(0, nodes-1).Draw(rt, "a"), rapid.IntRange(0, nodes-1).Draw(rt, "b")
						if all && port == 1 && a >= b {
							a, b = min(a, b), max(a, b)+1
						}
						live[port][id] = fmt.Sprint(id, " ", a)
						if port == 1 {
							live[port][id] += fmt.Sprint(" ", b)
						}
						text += "+ " + live[port][id] + "\n"
					}
					return text
				}
				var epochs []optest.Epoch
				for e := range rapid.IntRange(2, 8).Draw(rt, "epochs") {
					edges := rapid.IntRange(0, 3).Draw(rt, "edges")
					if e == 0 {
						edges = 2 * nodes
					}
					epochs = append(epochs, optest.Epoch{In: []string{change(0, rapid.IntRange(0, 1).Draw(rt, "starts"), 1), change(1, edges, 2*nodes)}})
				}
				return optest.Spec{Node: reachNode(all), Lib: functions.Builtins(), Epochs: epochs, Oracle: func(in []*types.Chunk) (*types.Chunk, error) {
					return reached(all, in), nil
				}}
			})
		})
	}
}

// TestLiveRecursionEnd closes a cycle under UNION ALL, which has no end, and opens it.
func TestLiveRecursionEnd(t *testing.T) {
	runCase(t, optest.Spec{Node: reachNode(true), NoOracle: true, Epochs: []optest.Epoch{
		{In: []string{"+ 1 1", "+ 1 1 2\n+ 2 2 3\n+ 3 1 3"}, Want: "+ 1 1\n+ 2 1\n+ 3 1\n+ 3 2", Errors: "{}"},
		{In: []string{"", "+ 4 3 1"}, Want: "{}", Errors: "54000"},
		{In: []string{"", "- 4 3 1\n+ 4 3 4"}, Want: "+ 1 1\n+ 2 1\n+ 3 1\n+ 3 2\n+ 4 1\n+ 4 2", Errors: "{}"},
	}})
}

// TestLiveRecursionLimit lets a chain grow beyond the iterations that are allowed, edge by edge.
func TestLiveRecursionLimit(t *testing.T) {
	for _, all := range []bool{false, true} {
		node := reachNode(all)
		node.Recompute.Sub.Recurse.MaxIterations = 5
		want, one := "+ 0", ""
		if all {
			one = " 1"
		}
		want += one
		epochs := []optest.Epoch{{In: []string{"+ 1 0", ""}, Want: want, Errors: "{}"}}
		for i := range 6 {
			e := optest.Epoch{In: []string{"", fmt.Sprint("+ ", i, " ", i, " ", i+1)}, Want: "{}", Errors: "54000"}
			if i < 4 {
				want += fmt.Sprint("\n+ ", i+1, one)
				e.Want, e.Errors = want, "{}"
			}
			epochs = append(epochs, e)
		}
		epochs = append(epochs, optest.Epoch{In: []string{"", "- 4 4 5"}, Want: want, Errors: "{}"})
		runCase(t, optest.Spec{Node: node, NoOracle: true, Epochs: epochs})
	}
}

// TestLiveRecursionCost changes an edge of a large graph.
func TestLiveRecursionCost(t *testing.T) {
	const nodes, edges = 20000, 100000
	h := optest.NewHost(t, functions.Builtins())
	node := reachNode(false)
	node.Recompute.Sub.Recurse.MaxIterations = 1 << 20
	o := h.Open(node)
	out := &collect{}
	push := func(port int, rows ...[]int64) {
		c := types.NewChunk(node.Inputs[port].Schema.Types())
		for _, r := range rows {
			for k := range c.Cols {
				c.Cols[k].Int = append(c.Cols[k].Int, r[k])
			}
			if c.PushWeight(r[len(c.Cols)]); c.N == types.MaxChunkRows {
				require.NoError(t, o.Process(port, c, out))
				c.Reset()
			}
		}
		if c.N > 0 {
			require.NoError(t, o.Process(port, c, out))
		}
	}
	var all [][]int64
	seed := int64(1)
	for i := range int64(edges) {
		seed = (seed*1103515245 + 12345) & 0x7fffffff
		a := i % nodes
		all = append(all, []int64{i, a, seed / 7 % nodes, 1})
	}
	push(0, []int64{1, 0, 1})
	push(1, all...)
	h.Barrier(o, out)
	require.Greater(t, len(out.rows), nodes*9/10)
	fed := op.RecursionFed(o)
	require.Greater(t, fed, int64(edges))
	h.Checkpoint(o, out)
	most := int64(0)
	for _, i := range []int64{7, 500, 9999, 50001, 99999} {
		for _, w := range []int64{-1, 1} {
			e := all[i]
			push(1, []int64{e[0], e[1], e[2], w})
			was := op.RecursionFed(o)
			h.Barrier(o, out)
			most = max(most, op.RecursionFed(o)-was)
		}
	}
	t.Logf("all: %d rows fed; a change: at most %d", fed, most)
	require.Less(t, most, int64(500))
	require.NoError(t, o.Close())
}
