package op

import (
	"encoding/binary"

	"github.com/streamdb/streamdb/planner/plan"
	"github.com/streamdb/streamdb/types"
)

// keptNulls has the rows that a join pads because NULL in them matches nothing (see plan.Join.KeepNulls). Nothing reads them but a replay.
//
// State table nullsTable (ordered): side (1 byte) · encoded row → varint count.
type keptNulls struct {
	ctx   *Context
	node  *plan.Node
	table table
	on    bool
	hash  []uint64 // of the chunk in work
	known bool
	key   []byte
}

// nullsTable is the number of its table in joins.
const nullsTable = tablesPerNode - 1

func (n *keptNulls) open(ctx *Context, node *plan.Node, on bool) error {
	n.ctx, n.node, n.on = ctx, node, on && !ctx.OneShot && ctx.Store != nil
	if !n.on {
		return nil
	}
	var err error
	n.table, err = openTable(ctx, node, nullsTable, orderedMode)
	return err
}

// begin prepares for the rows of a chunk.
func (n *keptNulls) begin() { n.known = false }

// add takes row r of the chunk, of a side whose rows come to their subtask by the hash of columns.
func (n *keptNulls) add(side int, c *types.Chunk, r int, columns []int) error {
	if !n.on {
		return nil
	}
	if !n.known {
		n.hash, n.known = hashesOf(n.hash, c, columns), true
	}
	n.key = types.AppendRow(append(n.key[:0], byte(side)), c.Cols, r)
	return addCount(&n.table, n.node, keyGroup(n.ctx, n.hash[r]), n.key, c.Weight(r))
}

// each calls f for the encoded rows of a side, which it may keep.
func (n *keptNulls) each(side int, f func(row string, count int64) error) error {
	if !n.on {
		return nil
	}
	for kg := n.ctx.Groups.From; kg < n.ctx.Groups.To; kg++ {
		err := n.table.scan(kg, []byte{byte(side)}, false, func(k, v []byte) (bool, error) {
			count, w := binary.Varint(v)
			if w <= 0 {
				return false, errCorruptState(n.node)
			}
			return true, f(string(k[1:]), count)
		})
		if err != nil {
			return err
		}
	}
	return nil
}
