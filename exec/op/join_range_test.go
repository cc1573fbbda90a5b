package op_test

import (
	"fmt"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"github.com/streamdb/streamdb/exec/op"
	"github.com/streamdb/streamdb/exec/op/optest"
	"github.com/streamdb/streamdb/planner/plan"
	"github.com/streamdb/streamdb/sql/expr"
	"github.com/streamdb/streamdb/sql/functions"
	"github.com/streamdb/streamdb/types"
)

// rangeCase is a range condition over rows (id, k, a, b) of both sides, and what it says of values.
type rangeCase struct {
	name  string
	rng   func(t types.Type) *plan.JoinRange
	match func(la, lb, ra, rb int64) bool
	ints  bool // has offsets
}

// comparison calls an operator ("lt", "ge") on left column l and right column r of rows of four columns.
func comparison(t types.Type, name string, l, r int) *expr.Expr {
	fn := map[types.OID]string{types.OIDInt4: "int4%s(int4,int4)", types.OIDText: "text_%s(text,text)", types.OIDNumeric: "numeric_%s(numeric,numeric)"}[t.OID]
	return &expr.Expr{Kind: expr.Call, Func: fmt.Sprintf(fn, name), Type: types.Bool, Args: []*expr.Expr{expr.Col(l, t), expr.Col(4+r, t)}}
}

func conjunction(es ...*expr.Expr) *expr.Expr {
	return &expr.Expr{Kind: expr.And, Type: types.Bool, Args: es}
}

var rangeCases = []rangeCase{
	{name: "less", rng: func(t types.Type) *plan.JoinRange {
		return &plan.JoinRange{Cond: comparison(t, "lt", 2, 2), Upper: &plan.JoinBound{Left: 2, Right: 2}}
	}, match: func(la, _, ra, _ int64) bool { return la < ra }},
	{name: "greater", rng: func(t types.Type) *plan.JoinRange {
		return &plan.JoinRange{Cond: comparison(t, "ge", 3, 2), Lower: &plan.JoinBound{Left: 3, Right: 2}}
	}, match: func(_, lb, ra, _ int64) bool { return lb >= ra }},
	{name: "left in right", rng: func(t types.Type) *plan.JoinRange {
		return &plan.JoinRange{
			Cond: conjunction(comparison(t, "ge", 2, 2), comparison(t, "le", 2, 3)), Lower: &plan.JoinBound{Left: 2, Right: 2}, Upper: &plan.JoinBound{Left: 2, Right: 3},
		}
	}, match: func(la, _, ra, rb int64) bool { return la >= ra && la <= rb }},
	{name: "right in left", rng: func(t types.Type) *plan.JoinRange {
		return &plan.JoinRange{
			Cond: conjunction(comparison(t, "lt", 2, 2), comparison(t, "gt", 3, 2)), Lower: &plan.JoinBound{Left: 3, Right: 2}, Upper: &plan.JoinBound{Left: 2, Right: 2},
		}
	}, match: func(la, lb, ra, _ int64) bool { return ra > la && ra < lb }},
	{name: "overlap", rng: func(t types.Type) *plan.JoinRange {
		return &plan.JoinRange{
			Cond: conjunction(comparison(t, "le", 2, 3), comparison(t, "ge", 3, 2)), Lower: &plan.JoinBound{Left: 3, Right: 2}, Upper: &plan.JoinBound{Left: 2, Right: 3},
		}
	}, match: func(la, lb, ra, rb int64) bool { return la <= rb && lb >= ra }},
	{name: "band", ints: true, rng: func(t types.Type) *plan.JoinRange {
		shift := func(fn string, by int64) *expr.Expr {
			return &expr.Expr{Kind: expr.Call, Func: fn, Type: t, Args: []*expr.Expr{expr.Col(6, t), expr.Literal(types.Datum{Type: t, Int: by})}}
		}
		ge := &expr.Expr{Kind: expr.Call, Func: "int4ge(int4,int4)", Type: types.Bool, Args: []*expr.Expr{expr.Col(2, t), shift("int4mi(int4,int4)", 2)}}
		lt := &expr.Expr{Kind: expr.Call, Func: "int4lt(int4,int4)", Type: types.Bool, Args: []*expr.Expr{expr.Col(2, t), shift("int4pl(int4,int4)", 1)}}
		return &plan.JoinRange{
			Cond: conjunction(ge, lt), Lower: &plan.JoinBound{Left: 2, Right: 2, Offset: -2}, Upper: &plan.JoinBound{Left: 2, Right: 2, Offset: 1},
		}
	}, match: func(la, _, ra, _ int64) bool { return la >= ra-2 && la < ra+1 }},
}

// rangeValue is the number of a value of the test's types, false for NULL.
func rangeValue(v *types.Vector, i int) (int64, bool) {
	if v.IsNull(i) {
		return 0, false
	}
	switch v.Type.Kind() {
	case types.KindString:
		return int64(v.Str[i][0]), true
	case types.KindNumeric:
		var n int64
		_, err := fmt.Sscan(v.Num[i].String(), &n)
		return n, err == nil
	}
	return v.Int[i], true
}

// rangeHistory draws epochs of inserts, deletes and updates of rows (id, k, a, b), each column but the first sometimes NULL.
func rangeHistory(t *rapid.T, of types.Type) []optest.Epoch {
	value := func() string {
		n := rapid.IntRange(0, 9).Draw(t, "value")
		switch {
		case rapid.IntRange(0, 7).Draw(t, "null") == 0:
			return "NULL"
		case of.OID == types.OIDText:
			return string(rune('a' + n))
		}
		return fmt.Sprint(n)
	}
	live := [2]map[int]string{{}, {}}
	var epochs []optest.Epoch
	for range rapid.IntRange(1, 4).Draw(t, "epochs") {
		e := optest.Epoch{In: make([]string, 2)}
		for p := range 2 {
			var text strings.Builder
			for range rapid.IntRange(0, 14).Draw(t, "changes") {
				id := rapid.IntRange(0, 15).Draw(t, "id")
				old, has := live[p][id]
				row := fmt.Sprintf("%d %d %s %s", id, rapid.IntRange(0, 1).Draw(t, "key"), value(), value())
				switch {
				case has && rapid.IntRange(0, 2).Draw(t, "delete") == 0:
					delete(live[p], id)
					text.WriteString("- " + old + "\n")
					continue
				case has && rapid.Bool().Draw(t, "late retraction"):
					text.WriteString("+ " + row + "\n- " + old + "\n")
				case has:
					text.WriteString("- " + old + "\n+ " + row + "\n")
				default:
					text.WriteString("+ " + row + "\n")
				}
				live[p][id] = row
			}
			e.In[p] = text.String()
		}
		epochs = append(epochs, e)
	}
	return epochs
}

// spread makes a join without keys run in several subtasks, and returns how rows get there.
func spread(n *plan.Node) (route [][]int) {
	side, route := 0, [][]int{{0}, optest.Everywhere}
	if n.Join.Type == plan.Right {
		side, route = 1, [][]int{optest.Everywhere, {0}}
	}
	n.Join.Spread = &plan.JoinSpread{Side: side, Columns: []int{0}}
	return route
}

func TestRangeJoinsAgainstNestedLoop(t *testing.T) {
	defer op.LowerOrderLimits(2, 4)()
	lib := functions.Builtins()
	for _, of := range []types.Type{types.Int4, types.Text, types.NumericType} {
		s := schema("id", types.Int4, "k", types.Int4, "a", of, "b", of)
		for _, c := range rangeCases {
			if c.ints && of.OID != types.OIDInt4 {
				continue
			}
			for n, typ := range joinTypes {
				keyed := (n+len(c.name))%2 == 0
				t.Run(fmt.Sprint(of, "/", c.name, "/", typ), func(t *testing.T) {
					for _, more := range []bool{false, true} {
						key := []int{0, 4}
						if typ == plan.Semi || typ == plan.Anti {
							key = []int{0}
						}
						var keys []int
						var route [][]int
						if keyed = !keyed; keyed {
							keys, route = []int{1}, [][]int{{1}, {1}}
						}
						node := joinNode(input([]int{0}, s), input([]int{0}, s), typ, keys, keys, key, nil)
						node.Join.Range = c.rng(of)
						if keys == nil && typ != plan.Full {
							route = spread(node)
						}
						if more {
							node.Join.Residual = &expr.Expr{Kind: expr.Call, Func: "int4ne(int4,int4)", Type: types.Bool, Args: []*expr.Expr{expr.Col(0, types.Int4), expr.Col(4, types.Int4)}}
						}
						match := func(l, r *types.Chunk, i, j int) bool {
							var v [4]int64
							null := [4]bool{}
							for k, x := range []*types.Vector{l.Cols[2], l.Cols[3], r.Cols[2], r.Cols[3]} {
								row, ok := i, false
								if k > 1 {
									row = j
								}
								v[k], ok = rangeValue(x, row)
								null[k] = !ok
							}
							rng := node.Join.Range
							for _, b := range []*plan.JoinBound{rng.Lower, rng.Upper} {
								if b != nil && (null[b.Left-2] || null[b.Right]) {
									return false
								}
							}
							return c.match(v[0], v[1], v[2], v[3]) && (keys == nil || l.Cols[1].Int[i] == r.Cols[1].Int[j]) && (!more || l.Cols[0].Int[i] != r.Cols[0].Int[j])
						}
						checkCases(t, 2, func(rt *rapid.T) optest.Spec {
							return optest.Spec{Node: node, Lib: lib, Route: route, Epochs: rangeHistory(rt, of), Oracle: pairs(typ, node.Schema, match)}
						})
					}
				})
			}
		}
	}
}
