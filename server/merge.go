package server

import (
	"github.com/streamdb/streamdb/exec"
	"github.com/streamdb/streamdb/internal/pgerr"
	"github.com/streamdb/streamdb/sql"
	"github.com/streamdb/streamdb/types"
)

// mergeRow applies one row of a MERGE: the number of the clause that takes it, the old row and the new one.
func (c *changer) mergeRow(ch *types.Chunk, r int, current *exec.Version) error {
	n := len(c.obj.Columns)
	action := c.p.change.Merge[ch.Cols[0].Int[r]-1]
	old := &types.Chunk{Cols: ch.Cols[1 : 1+n], N: ch.N}
	next := &types.Chunk{Cols: ch.Cols[1+n : 1+2*n], N: ch.N}
	switch action {
	case sql.MergeInsert:
		return c.insert(next, nil, r, current)
	case sql.MergeNothing:
		c.rows--
		return nil
	}
	key, row := c.encode(old, r)
	if c.seen[string(key)] {
		return pgerr.Newf(pgerr.CardinalityViolation, "MERGE command cannot affect row a second time").
			WithHint("Ensure that not more than one source row matches any one target row.")
	}
	if action == sql.MergeUpdate {
		return c.update(old, next, nil, r)
	}
	c.touch(key)
	return c.w.put(key, row, nil)
}
