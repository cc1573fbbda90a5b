package exec

import (
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// The net effect of an epoch is what a map of maps says, whatever the order of the rows, in one epoch after the other.
func TestEpochRows(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 1))
	var e epochRows
	e.reset()
	buf := make([]byte, 0, 1<<20)
	for epoch := range 40 {
		want := map[string]map[string]int64{}
		keys := 1 + rng.IntN(1<<(epoch%14))
		for range rng.IntN(4*keys + 1) {
			key, row, w := fmt.Sprint("key", rng.IntN(keys)), fmt.Sprint("row", rng.IntN(4)), int64(rng.IntN(5)-2)
			if rng.IntN(1000) == 0 {
				row = strings.Repeat(row, pendingBlock/3)
			}
			if w == 0 {
				continue
			}
			if want[key] == nil {
				want[key] = map[string]int64{}
			}
			if want[key][row] += w; want[key][row] == 0 {
				delete(want[key], row)
			}
			buf = append(append(buf[:0], key...), row...)
			e.add(uint16(len(key)), buf[:len(key)], buf[len(key):], w)
		}
		seen := 0
		require.NoError(t, e.each(func(i int32) error {
			key := string(e.bytes(e.rows[i].key))
			require.EqualValues(t, len(key), e.rows[i].kg)
			have := map[string]int64{}
			for k := i; k != 0; k = e.rows[k].next {
				if p := &e.rows[k]; p.weight != 0 {
					have[string(e.bytes(p.row))] += p.weight
				}
			}
			require.Equal(t, want[key], have)
			seen++
			return nil
		}))
		require.Len(t, want, seen)
		e.reset()
		require.LessOrEqual(t, len(e.blocks), maxKeptBlocks)
	}
}

// Epochs like the one before allocate nothing.
func TestEpochRowsReuse(t *testing.T) {
	var e epochRows
	e.reset()
	key := make([]byte, 8)
	require.Zero(t, testing.AllocsPerRun(10, func() {
		for i := range 1000 {
			key[0], key[1] = byte(i), byte(i>>8)
			e.add(0, key, key, 1)
			e.add(0, key, key[:4], -1)
		}
		e.reset()
	}))
}
