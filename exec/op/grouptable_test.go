package op

import (
	"fmt"
	"math/rand/v2"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/streamdb/streamdb/types"
)

// TestGroupTableGrowsSplitsAndDrops compares the table with a map over more keys than a segment holds.
func TestGroupTableGrowsSplitsAndDrops(t *testing.T) {
	for _, ts := range [][]types.Type{{types.Int8}, {types.Int4, types.Timestamp}, {types.Text}, {types.NumericType, types.Int8, types.Bool}} {
		t.Run(fmt.Sprint(ts), func(t *testing.T) {
			r := rand.New(rand.NewPCG(3, uint64(len(ts))))
			tab := newGroupTable(ts, 1)
			want := map[string]uint64{} // key bytes → value in the user word
			cols := identity(len(ts))
			out := make([]uint32, 1024)
			draw := func(n int) *types.Chunk {
				c := types.NewChunk(ts)
				for range n {
					for j, v := range c.Cols {
						x := int64(r.IntN(200_000))
						if j > 0 {
							x %= 3
						}
						switch {
						case r.IntN(50) == 0:
							v.AppendNull()
						case v.Type.Kind() == types.KindInt:
							pushInt(v, x)
						case v.Type.Kind() == types.KindString:
							pushString(v, fmt.Sprint("key ", x))
						case v.Type.Kind() == types.KindBool:
							pushBool(v, x == 1)
						default:
							pushNumeric(v, types.NumericFromInt64(x))
						}
					}
					c.N++
				}
				return c
			}
			key := func(c *types.Chunk, i int) string { return string(types.AppendKeyRow(nil, c.Cols, i)) }
			stamp := uint64(0)
			for round := range 250 {
				c := draw(len(out))
				err := tab.lookup(c, cols, out, func(g uint32, r int) error {
					_, there := want[key(c, r)]
					require.False(t, there, "known key added again")
					want[key(c, r)] = 0
					return nil
				})
				require.NoError(t, err)
				for i, g := range out {
					require.Equal(t, want[key(c, i)], tab.row(g)[rowUser])
					stamp++
					tab.row(g)[rowUser] = stamp
					want[key(c, i)] = stamp
				}
				if round%3 != 0 {
					continue
				}
				for i, g := range out[:500] {
					if _, there := want[key(c, i)]; there {
						delete(want, key(c, i))
						tab.drop(g)
					}
				}
				tab.compact()
			}
			require.Equal(t, len(want), tab.live())
			n := 0
			require.NoError(t, tab.each(func(_ uint32, row []uint64) error {
				n++
				require.Equal(t, want[string(tab.appendKey(nil, row))], row[rowUser])
				vals := types.NewChunk(ts)
				require.NoError(t, tab.appendValues(row, vals.Cols))
				require.Equal(t, string(tab.appendKey(nil, row)), key(vals, 0))
				return nil
			}))
			require.Equal(t, len(want), n)
			if ts[0] == types.Int8 {
				require.Greater(t, len(tab.dir), 1, "no segment was split")
			}
		})
	}
}
