package op_test

import (
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/streamdb/streamdb/exec/op/optest"
	"github.com/streamdb/streamdb/planner/plan"
	"github.com/streamdb/streamdb/sql/expr"
	"github.com/streamdb/streamdb/sql/functions"
	"github.com/streamdb/streamdb/types"
)

// eachRow is an oracle that makes rows of each row of each input by itself.
func eachRow(s types.Schema, f func(in *types.Chunk, i int, add func(more ...types.Datum))) func([]*types.Chunk) (*types.Chunk, error) {
	return func(ins []*types.Chunk) (*types.Chunk, error) {
		out := types.NewChunk(s.Types())
		for _, in := range ins {
			for i := range in.N {
				f(in, i, func(more ...types.Datum) {
					for k, v := range in.Cols {
						out.Cols[k].Append(v, i)
					}
					for k, d := range more {
						out.Cols[len(in.Cols)+k].AppendDatum(d)
					}
					out.PushWeight(in.Weight(i))
				})
			}
		}
		return out, nil
	}
}

// timed gives a history a timestamp in place of the value: times around 1970, five minutes apart, NULL where the key is.
func timed(t require.TestingT, epochs []optest.Epoch, ts []types.Type) []optest.Epoch {
	for i, e := range epochs {
		epochs[i] = optest.Epoch{}
		for _, text := range e.In {
			c, err := types.ParseChunk(keyedSchema.Types(), text)
			require.NoError(t, err)
			out := types.NewChunk(ts)
			for r := range c.N {
				out.Cols[0].Append(c.Cols[0], r)
				out.Cols[1].Append(c.Cols[1], r)
				d := types.Datum{Type: types.Timestamp, Null: c.Cols[1].IsNull(r)}
				if !d.Null {
					d.Int = unixEpoch + (c.Cols[2].Int[r]*5+c.Cols[1].Int[r]-7)*60e6
				}
				out.Cols[2].AppendDatum(d)
				out.PushWeight(c.Weight(r))
			}
			epochs[i].Chunks = append(epochs[i].Chunks, out)
		}
	}
	return epochs
}

// unixEpoch is 1970 as a timestamp.
const unixEpoch = -10957 * 86400e6

// TestRowWiseOperators changes the inputs of the operators that look at one row at a time.
func TestRowWiseOperators(t *testing.T) {
	in := input([]int{0}, keyedSchema)
	at := input([]int{0}, schema("id", types.Int4, "k", types.Int4, "ts", types.Timestamp))
	i4 := func(x int64) types.Datum { return types.Datum{Type: types.Int4, Int: x} }
	windows := func(w plan.Window, key ...int) (*plan.Node, func([]*types.Chunk) (*types.Chunk, error)) {
		own := w
		n := windowNode(at, &own)
		n.Key = key
		return n, eachRow(n.Schema, func(c *types.Chunk, i int, add func(...types.Datum)) {
			if c.Cols[2].IsNull(i) {
				return
			}
			x := c.Cols[2].Int[i]
			ts := func(x int64) types.Datum { return types.Datum{Type: types.Timestamp, Int: x} }
			step, first := w.Size, int64(0)
			if w.Slide > 0 {
				step = w.Slide
			}
			// Far enough back to begin before all times.
			for first = unixEpoch + w.Offset - 100*step; first <= x; first += step {
				switch {
				case w.Step > 0:
					for end := first + w.Step; end <= first+w.Size; end += w.Step {
						if x < end && x < first+w.Size {
							add(ts(first), ts(end))
						}
					}
				case x < first+w.Size:
					add(ts(first), ts(first+w.Size))
				}
			}
		})
	}
	cases := map[string]func() optest.Spec{
		"filter": func() optest.Spec {
			return optest.Spec{
				Node: &plan.Node{
					ID: 1, Kind: plan.KindFilter, Inputs: []*plan.Node{in}, Key: in.Key, Schema: in.Schema,
					Filter: &plan.Filter{Cond: fn("int4lt(int4,int4)", types.Bool, expr.Col(1, types.Int4), expr.Col(2, types.Int4))},
				},
				Oracle: eachRow(in.Schema, func(c *types.Chunk, i int, add func(...types.Datum)) {
					if !c.Cols[1].IsNull(i) && c.Cols[1].Int[i] < c.Cols[2].Int[i] {
						add()
					}
				}),
			}
		},
		"project": func() optest.Spec {
			s := append(append(types.Schema{}, in.Schema...), schema("sum", types.Int4)...)
			sum := fn("int4pl(int4,int4)", types.Int4, expr.Col(1, types.Int4), expr.Col(2, types.Int4))
			return optest.Spec{
				Node: &plan.Node{
					ID: 1, Kind: plan.KindProject, Inputs: []*plan.Node{in}, Key: in.Key, Schema: s,
					Project: &plan.Project{Exprs: []*expr.Expr{expr.Col(0, types.Int4), expr.Col(1, types.Int4), expr.Col(2, types.Int4), sum}},
				},
				Oracle: eachRow(s, func(c *types.Chunk, i int, add func(...types.Datum)) {
					if c.Cols[1].IsNull(i) {
						add(types.NullDatum(types.Int4))
						return
					}
					add(i4(c.Cols[1].Int[i] + c.Cols[2].Int[i]))
				}),
			}
		},
		"unnest": func() optest.Spec {
			s := append(append(types.Schema{}, in.Schema...), schema("x", types.Int4, "n", types.Int8)...)
			return optest.Spec{
				Node: &plan.Node{
					ID: 1, Kind: plan.KindUnnest, Inputs: []*plan.Node{in}, Key: []int{0, 4}, Schema: s,
					Unnest: &plan.Unnest{Left: true, Calls: []*expr.Expr{fn("generate_series(int4,int4)", types.Int4, expr.Col(1, types.Int4), expr.Col(2, types.Int4))}},
				},
				Oracle: eachRow(s, func(c *types.Chunk, i int, add func(...types.Datum)) {
					if c.Cols[1].IsNull(i) || c.Cols[1].Int[i] > c.Cols[2].Int[i] {
						add(types.NullDatum(types.Int4), types.NullDatum(types.Int8))
						return
					}
					for x := c.Cols[1].Int[i]; x <= c.Cols[2].Int[i]; x++ {
						add(i4(x), types.Datum{Type: types.Int8, Int: x - c.Cols[1].Int[i] + 1})
					}
				}),
			}
		},
		"union all": func() optest.Spec {
			// Equal rows of the two branches are told apart by nothing here, so that their number is what counts.
			n := &plan.Node{ID: 1, Kind: plan.KindUnion, Inputs: []*plan.Node{in, in}, Schema: in.Schema}
			all := eachRow(n.Schema, func(_ *types.Chunk, _ int, add func(...types.Datum)) { add() })
			return optest.Spec{Node: n, Oracle: all, Route: [][]int{{0}, {0}}}
		},
		"watermark": func() optest.Spec {
			lag := fn("int4mi(int4,int4)", types.Int4, expr.Col(2, types.Int4), int4(1))
			return optest.Spec{
				Node: &plan.Node{
					ID: 1, Kind: plan.KindWatermark, Inputs: []*plan.Node{in}, Key: in.Key, Schema: in.Schema,
					Watermark: &plan.Watermark{Column: 2, Expr: lag, Lateness: 2},
				},
				Oracle: eachRow(in.Schema, func(_ *types.Chunk, _ int, add func(...types.Datum)) { add() }),
			}
		},
		"tumble": func() optest.Spec {
			n, oracle := windows(plan.Window{Column: 2, Size: 10 * 60e6, Offset: 3 * 60e6}, 0)
			return optest.Spec{Node: n, Oracle: oracle}
		},
		"hop": func() optest.Spec {
			n, oracle := windows(plan.Window{Column: 2, Size: 12 * 60e6, Slide: 4 * 60e6, Offset: 60e6}, 0, 3)
			return optest.Spec{Node: n, Oracle: oracle}
		},
		"cumulate": func() optest.Spec {
			n, oracle := windows(plan.Window{Column: 2, Size: 12 * 60e6, Step: 4 * 60e6, Offset: 2 * 60e6}, 0, 4)
			return optest.Spec{Node: n, Oracle: oracle}
		},
		"days": func() optest.Spec {
			n, oracle := windows(plan.Window{Column: 2, Size: 2 * 86400e6, Offset: 86400e6}, 0)
			n.Window.Size, n.Window.Offset = 0, 0
			n.Window.Calendar = &plan.Calendar{Unit: 2, Count: 1, OffsetDays: 1}
			return optest.Spec{Node: n, Oracle: oracle}
		},
	}
	for name, spec := range cases {
		t.Run(name, func(t *testing.T) {
			checkCases(t, 12, func(rt *rapid.T) optest.Spec {
				s := spec()
				s.Lib, s.Epochs = functions.Builtins(), history(rt, len(s.Node.Inputs))
				if s.Route == nil {
					s.Route = [][]int{{0}}
				}
				if s.Node.Kind == plan.KindWindow {
					s.Epochs = timed(rt, s.Epochs, at.Schema.Types())
				}
				return s
			})
		})
	}
}

// TestProcTimeFollowsBarriers adds rows while the clock moves: each has the clock of the barrier before it.
func TestProcTimeFollowsBarriers(t *testing.T) {
	in := input([]int{0}, schema("id", types.Int4, "v", types.Int4))
	in.AppendOnly = true
	n := &plan.Node{ID: 31, Kind: plan.KindProcTime, Inputs: []*plan.Node{in}, Key: in.Key, Schema: schema("id", types.Int4, "v", types.Int4, "p", types.Timestamptz)}
	checkCases(t, 15, func(rt *rapid.T) optest.Spec {
		s := optest.Spec{Node: n, Route: [][]int{{0}}, NoOracle: true}
		want, now, id := "", 0, 0
		for range rapid.IntRange(1, 6).Draw(rt, "epochs") {
			text := ""
			for range rapid.IntRange(0, 5).Draw(rt, "rows") {
				row := fmt.Sprint(id, " ", []string{"NULL", "1"}[rapid.IntRange(0, 1).Draw(rt, "v")])
				text += "+ " + row + "\n"
				want += fmt.Sprintf("+ %s '2000-01-01 00:00:%02d'\n", row, now)
				id++
			}
			now += rapid.IntRange(0, 3).Draw(rt, "passes")
			e := optest.Epoch{In: []string{text}, Now: int64(now) * 1e6, Want: want}
			if want == "" {
				e.Want = "{}"
			}
			s.Epochs = append(s.Epochs, e)
		}
		return s
	})
}
