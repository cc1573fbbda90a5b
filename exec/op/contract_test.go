//go:build invariants || race

package op

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/streamdb/streamdb/internal/invariants"
	"github.com/streamdb/streamdb/planner/plan"
	"github.com/streamdb/streamdb/types"
)

func TestContract(t *testing.T) {
	node := func(change func(*plan.Node)) *plan.Node {
		n := &plan.Node{ID: 7, Kind: plan.KindProject, Schema: types.Schema{{Name: "k", Type: types.Int8}, {Name: "v", Type: types.Text}}, Key: []int{0}}
		if change != nil {
			change(n)
		}
		return n
	}
	closing := func(n *plan.Node) { n.Kind, n.Agg = plan.KindAgg, &plan.Agg{OnClose: 0} }
	appendOnly := func(n *plan.Node) { n.AppendOnly = true }
	broadcast := func(n *plan.Node) {
		n.Kind, n.Exchange = plan.KindExchange, &plan.Exchange{Dist: plan.DistBroadcast}
	}
	type contract struct {
		*ContractEdge
		other *ContractEdge
	}
	rows := func(c *ContractEdge, text string) {
		ch, err := types.ParseChunk([]types.Type{types.Int8, types.Text}, text)
		require.NoError(t, err)
		c.Chunk(ch)
	}
	epoch := func(c contract, n uint64) {
		c.Barrier(n)
		c.other.Barrier(n)
		c.Check()
	}
	for _, test := range []struct {
		name   string
		change func(*plan.Node)
		of     ContractOf
		do     func(c contract)
		want   string // "" = kept
	}{
		{name: "changes, in any order within an epoch, by several subtasks", do: func(c contract) {
			rows(c.ContractEdge, "- 1 a\n+ 1 b")
			rows(c.other, "+ 1 a")
			epoch(c, 1)
			rows(c.other, "- 1 b")
			epoch(c, 2)
		}},
		{name: "retracted and never inserted", do: func(c contract) {
			rows(c.ContractEdge, "+ 1 a\n- 2 b")
			epoch(c, 3)
		}, want: "project 7: epoch 3: row + 2 b: retracted more often than inserted, sum -1"},
		{name: "retracted as something else", do: func(c contract) {
			rows(c.ContractEdge, "+ 1 a")
			epoch(c, 1)
			rows(c.ContractEdge, "- 1 b")
			epoch(c, 2)
		}, want: "project 7: epoch 2: row + 1 b: retracted more often than inserted, sum -1"},
		{name: "retracted an epoch too early by one subtask", do: func(c contract) {
			rows(c.ContractEdge, "- 1 a")
			epoch(c, 1)
			rows(c.other, "+ 1 a")
		}, want: "project 7: epoch 1: row + 1 a: retracted more often than inserted, sum -1"},
		{name: "two rows of a key", do: func(c contract) {
			rows(c.ContractEdge, "+ 1 a")
			rows(c.other, "+ 1 b")
			epoch(c, 1)
		}, want: "project 7: epoch 1: rows with the key of + 1 b: the key [0] does not tell rows apart, sums from 0 to 2"},
		{name: "a query needs no key", of: OfQuery, do: func(c contract) {
			rows(c.ContractEdge, "+2 1 a\n+ 1 b")
			epoch(c, 1)
		}},
		{name: "what a resumed job retracts was there", of: OfResumedJob, do: func(c contract) {
			rows(c.ContractEdge, "- 1 a\n+ 1 b")
			epoch(c, 1)
			rows(c.ContractEdge, "- 1 b")
			epoch(c, 2)
			rows(c.ContractEdge, "+ 1 c")
			epoch(c, 3)
		}},
		{name: "but not twice", of: OfResumedJob, do: func(c contract) {
			rows(c.ContractEdge, "- 1 a")
			epoch(c, 1)
			rows(c.ContractEdge, "- 1 a")
			epoch(c, 2)
		}, want: "project 7: epoch 2: row + 1 a: the key [0] does not tell rows apart, sums from -2 to 0"},
		{name: "each subtask has all broadcast rows", change: broadcast, do: func(c contract) {
			rows(c.ContractEdge, "+ 1 a")
			rows(c.other, "+ 1 a")
			epoch(c, 1)
		}},
		{name: "rows that only grow", change: appendOnly, do: func(c contract) {
			rows(c.ContractEdge, "+ 1 a\n- 1 a")
		}, want: "project 7: weight -1 in rows that only grow: + 1 a"},
		{name: "a column less", do: func(c contract) {
			c.Chunk(types.NewChunk([]types.Type{types.Int8}))
		}, want: "project 7: 1 columns, the plan says 2"},
		{name: "another type", do: func(c contract) {
			c.Chunk(types.NewChunk([]types.Type{types.Int8, types.Float8}))
		}, want: "project 7: column 1 has type double precision, the plan says text"},
		{name: "a short column", do: func(c contract) {
			ch := types.NewChunk([]types.Type{types.Int8, types.Text})
			ch.Cols[0].Resize(2)
			ch.N = 2
			c.Chunk(ch)
		}, want: "project 7: column 1 has 0 rows of 2"},
		{name: "a selection that goes back", do: func(c contract) {
			ch := types.NewChunk([]types.Type{types.Int8, types.Text})
			ch.Cols[0].Resize(2)
			ch.Cols[1].Resize(2)
			ch.N, ch.Sel = 2, []uint16{1, 0}
			c.Chunk(ch)
		}, want: "project 7: selection [1 0] of 2 rows"},
		{name: "epochs go back", do: func(c contract) {
			epoch(c, 2)
			epoch(c, 2) // another round of a backfill
			epoch(c, 1)
		}, want: "project 7: epoch 1 after 2"},
		{name: "a watermark goes back", do: func(c contract) {
			c.Watermark(Watermark{Column: 0, Value: 5})
			c.other.Watermark(Watermark{Column: 0, Value: 4}) // another subtask's
			c.Watermark(Watermark{Column: 1, Value: 1})
			c.Watermark(Watermark{Column: 0, Value: 4})
		}, want: "project 7: watermark of column 0 goes back from 5 to 4"},
		{name: "late rows pass what does not close windows", do: func(c contract) {
			c.Watermark(Watermark{Column: 0, Value: 5})
			rows(c.ContractEdge, "+ 4 a")
			epoch(c, 1)
		}},
		{name: "a row behind the watermark", change: closing, do: func(c contract) {
			rows(c.ContractEdge, "+ 4 a")
			c.Watermark(Watermark{Column: 0, Value: 5})
			rows(c.ContractEdge, "+ 5 a")
			rows(c.ContractEdge, "+ 4 b")
		}, want: "agg 7: a row behind the watermark 5: + 4 b"},
	} {
		t.Run(test.name, func(t *testing.T) {
			all := NewContract(node(test.change), test.of)
			c := contract{all.Edge(), all.Edge()}
			if test.want == "" {
				test.do(c)
				return
			}
			require.PanicsWithValue(t, invariants.Violation(test.want), func() { test.do(c) })
		})
	}
}
