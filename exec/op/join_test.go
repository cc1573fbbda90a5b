package op_test

import (
	"fmt"
	"strings"
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

func joinNode(l, r *plan.Node, typ plan.JoinType, lk, rk, key []int, residual *expr.Expr) *plan.Node {
	n := &plan.Node{
		ID: 9, Kind: plan.KindJoin, Inputs: []*plan.Node{l, r}, Key: key,
		Join: &plan.Join{Type: typ, LeftKeys: lk, RightKeys: rk, Residual: residual, KeepNulls: true},
	}
	n.Schema = append(n.Schema, l.Schema...)
	if typ != plan.Semi && typ != plan.Anti {
		n.Schema = append(n.Schema, r.Schema...)
	}
	return n
}

func TestJoinFullInsertDeleteInsert(t *testing.T) {
	l := input([]int{0}, schema("id", types.Int4, "k", types.Int4))
	r := input([]int{0}, schema("id", types.Int4, "k", types.Int4))
	runCase(t, optest.Spec{
		Node:  joinNode(l, r, plan.Full, []int{1}, []int{1}, []int{0, 2}, nil),
		Route: [][]int{{1}, {1}},
		Epochs: []optest.Epoch{
			{In: []string{"", "+ 1 8"}, Want: "+ NULL NULL 1 8"},
			{In: []string{"", "- 1 8"}, Want: "{}"},
			{In: []string{"+ 1 8", ""}, Want: "+ 1 8 NULL NULL"},
			{In: []string{"+ 2 NULL", "+ 5 NULL"}, Want: "+ 1 8 NULL NULL\n+ 2 NULL NULL NULL\n+ NULL NULL 5 NULL"},
		},
	})
}

func TestJoinLeftRightSideUpdatedAndDeleted(t *testing.T) {
	l := input([]int{0}, schema("id", types.Int4, "k", types.Int4))
	r := input([]int{0}, schema("id", types.Int4, "k", types.Int8, "b", types.Text))
	for _, residual := range []*expr.Expr{nil, expr.Literal(types.Datum{Type: types.Bool, Bool: true})} {
		runCase(t, optest.Spec{
			Node:  joinNode(l, r, plan.Left, []int{1}, []int{1}, []int{0, 2}, residual),
			Route: [][]int{{1}, {1}},
			Lib:   functions.Builtins(),
			Epochs: []optest.Epoch{
				{In: []string{"+ 1 7\n+ 2 NULL", ""}, Want: "+ 1 7 NULL NULL NULL\n+ 2 NULL NULL NULL NULL"},
				{In: []string{"", "+ 10 7 b1"}, Want: "+ 1 7 10 7 b1\n+ 2 NULL NULL NULL NULL"},
				{In: []string{"", "+ 10 7 b2\n- 10 7 b1"}, Want: "+ 1 7 10 7 b2\n+ 2 NULL NULL NULL NULL"},
				{In: []string{"", "- 10 7 b2"}, Want: "+ 1 7 NULL NULL NULL\n+ 2 NULL NULL NULL NULL"},
				{In: []string{"", "+ 11 7 c\n+ 12 7 d"}, Want: "+ 1 7 11 7 c\n+ 1 7 12 7 d\n+ 2 NULL NULL NULL NULL"},
				{In: []string{"", "- 11 7 c"}, Want: "+ 1 7 12 7 d\n+ 2 NULL NULL NULL NULL"},
				{In: []string{"", "- 12 7 d\n+ 12 8 d"}, Want: "+ 1 7 NULL NULL NULL\n+ 2 NULL NULL NULL NULL"},
			},
		})
	}
}

func TestJoinSelfOverDuplicates(t *testing.T) {
	// Rows without a key of their own carry a hidden number.
	d := schema("k", types.Int4, "v", types.Int4, "n", types.Int8)
	runCase(t, optest.Spec{
		Node: joinNode(input([]int{2}, d), input([]int{2}, d), plan.Inner, []int{0}, []int{0}, []int{2, 5}, nil),
		Epochs: []optest.Epoch{
			{In: []string{"+ 1 1 1\n+ 1 1 2\n+ 1 2 3", "+ 1 1 1\n+ 1 1 2\n+ 1 2 3"}},
			{In: []string{"- 1 1 2", "- 1 1 2"}, Want: "+ 1 1 1 1 1 1\n+ 1 1 1 1 2 3\n+ 1 2 3 1 1 1\n+ 1 2 3 1 2 3"},
			{In: []string{"+ 1 3 4", "+ 1 3 4"}},
		},
	})
}

var joinTypes = []plan.JoinType{plan.Inner, plan.Left, plan.Right, plan.Full, plan.Semi, plan.Anti}

// pairs joins row by row: match tells which rows of the left and right input do.
func pairs(typ plan.JoinType, schema types.Schema, match func(l, r *types.Chunk, i, j int) bool) func(in []*types.Chunk) (*types.Chunk, error) {
	return func(in []*types.Chunk) (*types.Chunk, error) {
		l, r := in[0], in[1]
		out := types.NewChunk(schema.Types())
		add := func(i, j int) {
			for k, v := range out.Cols {
				switch {
				case k < len(l.Cols) && i >= 0:
					v.Append(l.Cols[k], i)
				case k >= len(l.Cols) && j >= 0:
					v.Append(r.Cols[k-len(l.Cols)], j)
				default:
					v.AppendNull()
				}
			}
			out.PushWeight(1)
		}
		matched := make([]bool, r.N)
		for i := range l.N {
			hit := false
			for j := range r.N {
				if !match(l, r, i, j) {
					continue
				}
				hit, matched[j] = true, true
				if typ != plan.Semi && typ != plan.Anti {
					add(i, j)
				}
			}
			if hit && typ == plan.Semi || !hit && (typ == plan.Left || typ == plan.Full || typ == plan.Anti) {
				add(i, -1)
			}
		}
		for j := range r.N {
			if !matched[j] && (typ == plan.Right || typ == plan.Full) {
				add(-1, j)
			}
		}
		return out, nil
	}
}

// naiveJoin is pairs of rows (id, key, value) with equal keys, with residual where the left value is less too.
func naiveJoin(typ plan.JoinType, residual, cross bool, schema types.Schema) func(in []*types.Chunk) (*types.Chunk, error) {
	return pairs(typ, schema, func(l, r *types.Chunk, i, j int) bool {
		same := cross || !l.Cols[1].IsNull(i) && !r.Cols[1].IsNull(j) && l.Cols[1].Int[i] == r.Cols[1].Int[j]
		return same && (!residual || l.Cols[2].Int[i] < r.Cols[2].Int[j])
	})
}

// history draws epochs of inserts, deletes and updates of rows (id, key or NULL, value) for the given number of ports.
func history(t *rapid.T, ports int) []optest.Epoch {
	live := make([]map[int]string, ports)
	for i := range live {
		live[i] = map[int]string{}
	}
	var epochs []optest.Epoch
	for range rapid.IntRange(1, 4).Draw(t, "epochs") {
		e := optest.Epoch{In: make([]string, ports)}
		for p := range ports {
			for range rapid.IntRange(0, 8).Draw(t, "changes") {
				id := rapid.IntRange(0, 6).Draw(t, "id")
				old, has := live[p][id]
				k := fmt.Sprint(rapid.IntRange(0, 2).Draw(t, "key"))
				if k == "2" && rapid.Bool().Draw(t, "null") {
					k = "NULL"
				}
				row := fmt.Sprintf("%d %s %d", id, k, rapid.IntRange(0, 3).Draw(t, "value"))
				switch {
				case !has:
					live[p][id] = row
					e.In[p] += "+ " + row + "\n"
				case rapid.Bool().Draw(t, "delete"):
					delete(live[p], id)
					e.In[p] += "- " + old + "\n"
				default:
					live[p][id] = row
					if rapid.Bool().Draw(t, "late retraction") {
						e.In[p] += "+ " + row + "\n- " + old + "\n"
					} else {
						e.In[p] += "- " + old + "\n+ " + row + "\n"
					}
				}
			}
		}
		epochs = append(epochs, e)
	}
	return epochs
}

var keyedSchema = schema("id", types.Int4, "k", types.Int4, "v", types.Int4)

func TestJoinAgainstNestedLoop(t *testing.T) {
	lib := functions.Builtins()
	less := &expr.Expr{Kind: expr.Call, Func: "int4lt(int4,int4)", Type: types.Bool, Args: []*expr.Expr{expr.Col(2, types.Int4), expr.Col(5, types.Int4)}}
	for _, typ := range joinTypes {
		for _, mode := range []string{"keys", "residual", "cross", "spread", "product"} {
			t.Run(fmt.Sprint(typ, "/", mode), func(t *testing.T) {
				l, r := input([]int{0}, keyedSchema), input([]int{0}, keyedSchema)
				keys, route := []int{1}, [][]int{{1}, {1}}
				var residual *expr.Expr
				if mode != "keys" && mode != "product" {
					residual = less
				}
				cross := mode == "cross" || mode == "spread" || mode == "product"
				if cross {
					keys, route = nil, nil
				}
				key := []int{0, 3}
				if typ == plan.Semi || typ == plan.Anti {
					key = []int{0}
				}
				node := joinNode(l, r, typ, keys, keys, key, residual)
				if cross && mode != "cross" && typ != plan.Full {
					route = spread(node)
				}
				checkCases(t, 10, func(rt *rapid.T) optest.Spec {
					return optest.Spec{
						Node: node, Lib: lib, Route: route, Epochs: history(rt, 2),
						Oracle: naiveJoin(typ, residual != nil, cross, node.Schema),
					}
				})
			})
		}
	}
}

// TestJoinLongChains gives one key so many rows that retractions go through the hash index.
func TestJoinLongChains(t *testing.T) {
	s := schema("id", types.Int4, "k", types.Int4, "v", types.Text)
	rows := func(sign string, from, to int) string {
		text := ""
		for i := from; i < to; i++ {
			text += fmt.Sprintf("%s %d 1 'some text that is long enough %d'\n", sign, i, i)
		}
		return text
	}
	runCase(t, optest.Spec{
		Node:  joinNode(input([]int{0}, s), input([]int{0}, s), plan.Left, []int{1}, []int{1}, []int{0, 3}, nil),
		Route: [][]int{{1}, {1}},
		Epochs: []optest.Epoch{
			{In: []string{rows("+", 0, 100), rows("+", 0, 3)}},
			{In: []string{rows("-", 10, 90), ""}},
			{In: []string{rows("+", 40, 60) + rows("-", 45, 50), rows("-", 0, 3)}},
			{In: []string{rows("+", 10, 40), rows("+", 7, 8)}},
			{In: []string{rows("-", 0, 45) + rows("-", 50, 60) + rows("-", 90, 100), ""}, Want: "{}"},
		},
	})
}

func TestJoinEqualKeysOfDifferentForm(t *testing.T) {
	s := schema("id", types.Int4, "k", types.Float8)
	runCase(t, optest.Spec{
		Node:   joinNode(input([]int{0}, s), input([]int{0}, s), plan.Inner, []int{1}, []int{1}, []int{0, 2}, nil),
		Route:  [][]int{{1}, {1}},
		Epochs: []optest.Epoch{{In: []string{"+ 1 0\n+ 2 NaN", "+ 3 -0\n+ 4 NaN"}, Want: "+ 1 0 3 -0\n+ 2 NaN 4 NaN"}},
	})
}

func TestJoinNullSafe(t *testing.T) {
	s := schema("id", types.Int4, "k", types.Int4)
	n := joinNode(input([]int{0}, s), input([]int{0}, s), plan.Full, []int{1}, []int{1}, []int{0, 2}, nil)
	n.Join.NullSafe = []bool{true}
	n.Join.Output = []int{0, 2}
	n.Schema = schema("l", types.Int4, "r", types.Int4)
	n.Key = []int{0, 1}
	runCase(t, optest.Spec{
		Node:   n,
		Route:  [][]int{{1}, {1}},
		Epochs: []optest.Epoch{{In: []string{"+ 1 NULL\n+ 2 5", "+ 3 NULL\n+ 4 6"}, Want: "+ 1 3\n+ 2 NULL\n+ NULL 4"}},
	})
}

// Strings that a join has put out are views of its rows: they stay what they were when the rows are gone and their memory is used again.
func TestJoinStringsOutliveRows(t *testing.T) {
	s := schema("id", types.Int4, "k", types.Int4, "v", types.Text)
	h := optest.NewHost(t, functions.Builtins())
	o, out := h.Open(joinNode(input([]int{0}, s), input([]int{0}, s), plan.Inner, []int{1}, []int{1}, []int{0, 3}, nil)), &capture{}
	const rows = 1000
	long := func(letter string) string { return strings.Repeat(letter, 4<<10) }
	change := func(port int, weight int64, value string) {
		c := types.NewChunk(s.Types())
		for i := range rows {
			for k := range 2 {
				c.Cols[k].Int = append(c.Cols[k].Int, int64(i))
			}
			c.Cols[2].Str = append(c.Cols[2].Str, value)
			c.Weights = append(c.Weights, weight)
		}
		c.N = rows
		require.NoError(t, o.Process(port, c, out))
	}
	change(0, 1, long("a"))
	change(1, 1, "b")
	shown := out.rows.Clone()
	change(0, -1, long("a"))
	h.Barrier(o, out)
	change(0, 1, long("c"))
	for i := range rows {
		require.Equal(t, long("a"), shown.Cols[2].Str[i])
	}
	require.NoError(t, o.Close())
}

// onceJoin is an inner join on the second column of inputs that only grow; left or both sides have at most one row for each value of it.
func onceJoin(both bool, residual *expr.Expr) *plan.Node {
	l, r := input([]int{1}, keyedSchema), input([]int{0}, keyedSchema)
	l.AppendOnly, r.AppendOnly = true, true
	n := joinNode(l, r, plan.Inner, []int{1}, []int{1}, []int{3}, residual)
	if n.Join.Once = []int{1}; both {
		r.Key = []int{1}
		n.Join.Once = []int{0, 1}
	}
	return n
}

// TestJoinOnceAgainstNestedLoop joins rows that come before and after the only partner that they can have.
func TestJoinOnceAgainstNestedLoop(t *testing.T) {
	less := &expr.Expr{Kind: expr.Call, Func: "int4lt(int4,int4)", Type: types.Bool, Args: []*expr.Expr{expr.Col(2, types.Int4), expr.Col(5, types.Int4)}}
	for i := range 12 {
		both, wanted, residual := i&1 != 0, i>>2-1, []*expr.Expr{nil, less}[i>>1&1] // wanted: the side whose rows are tested, -1 for none
		if wanted == 1 && !both {
			continue // it is the side with one row per key
		}
		t.Run(fmt.Sprintf("both=%t,wanted=%d,residual=%t", both, wanted, residual != nil), func(t *testing.T) {
			node := onceJoin(both, residual)
			if wanted >= 0 {
				node.Join.Wanted = &plan.JoinWanted{Side: wanted, Cond: &expr.Expr{Kind: expr.Call, Func: "int4lt(int4,int4)", Type: types.Bool, Args: []*expr.Expr{int4(1), expr.Col(2, types.Int4)}}}
			}
			checkCases(t, 20, func(rt *rapid.T) optest.Spec {
				var epochs []optest.Epoch
				id, used := 0, [2]map[int]bool{{}, {}}
				for range rapid.IntRange(1, 5).Draw(rt, "epochs") {
					e := optest.Epoch{In: make([]string, 2)}
					for p := range 2 {
						for range rapid.IntRange(0, 8).Draw(rt, "rows") {
							k := rapid.IntRange(0, 6).Draw(rt, "key")
							if used[p][k] && (p == 0 || both) {
								continue
							}
							used[p][k] = true
							e.In[p] += fmt.Sprintf("+ %d %d %d\n", id, k, rapid.IntRange(0, 3).Draw(rt, "value"))
							id++
						}
					}
					epochs = append(epochs, e)
				}
				return optest.Spec{
					Node: node, Lib: functions.Builtins(), Route: [][]int{{1}, {1}}, Epochs: epochs,
					Oracle: pairs(plan.Inner, node.Schema, func(l, r *types.Chunk, i, j int) bool {
						a, b := l.Cols[2].Int[i], r.Cols[2].Int[j]
						return l.Cols[1].Int[i] == r.Cols[1].Int[j] && (residual == nil || a < b) && (wanted < 0 || []int64{a, b}[wanted] > 1)
					}),
				}
			})
		})
	}
}

// TestJoinOnceForgets counts what is kept of rows that have met the only partner they can have.
func TestJoinOnceForgets(t *testing.T) {
	for _, both := range []bool{false, true} {
		node := onceJoin(both, nil)
		h := optest.NewHost(t, nil)
		o := h.Open(node)
		id := 0
		add := func(port int, keys ...int) {
			text := ""
			for _, k := range keys {
				text += fmt.Sprintf("+ %d %d 0\n", id, k)
				id++
			}
			c, err := types.ParseChunk(keyedSchema.Types(), text)
			require.NoError(t, err)
			require.NoError(t, o.Process(port, c, &discard{}))
		}
		kept := func(left, right int64) {
			t.Helper()
			h.Checkpoint(o, &discard{})
			require.Equal(t, []int64{left, right}, []int64{h.Entries(node, 0), h.Entries(node, 1)})
			require.EqualValues(t, left+right, op.JoinRows(o))
		}
		left := func(one, other int64) int64 { // of one side alone or both
			if both {
				return other
			}
			return one
		}
		add(1, 1, 2, 3) // wait
		kept(0, 3)
		add(0, 1, 2, 4)
		kept(left(3, 1), 1)
		if !both {
			add(1, 1, 1, 2)
		}
		add(1, 4, 5)
		kept(left(3, 0), 2)
		add(0, 3, 5)
		kept(left(5, 0), 0)
		require.NoError(t, o.Close())
	}
}
