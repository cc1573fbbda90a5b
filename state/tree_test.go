package state

import (
	"encoding/binary"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// checkTree fails the test when the tree is not one: its order, its counts, and what searches use of its nodes.
func checkTree(t *testing.T, tr *tree) {
	t.Helper()
	if tr.root == nil {
		require.Zero(t, tr.n)
		return
	}
	count, depth := 0, -1
	var walk func(n *node, d int, low, high string, bounded bool)
	walk = func(n *node, d int, low, high string, bounded bool) {
		require.True(t, n.n > 0 || n.kids != nil, "an empty leaf")
		for i := range n.items[:n.n] {
			k := n.items[i].key()
			require.GreaterOrEqual(t, k, low)
			require.True(t, !bounded || k < high, "%q is not below %q", k, high)
			require.True(t, i == 0 || n.items[i-1].key() < k, "order")
			require.Equal(t, word(k, int(n.skip)), n.words[i])
			require.Zero(t, n.place(k))
			require.True(t, strings.HasPrefix(k, n.items[0].key()[:n.skip]))
		}
		for _, e := range n.items[n.n:] {
			require.Equal(t, entry{}, e, "what is gone is not let go of")
		}
		if n.kids == nil {
			count += int(n.n)
			require.True(t, depth < 0 || depth == d, "leaves of different depths")
			depth = d
			return
		}
		for i, kid := range n.kids {
			if i > int(n.n) {
				require.Nil(t, kid)
				continue
			}
			l, h, b := low, high, bounded
			if i > 0 {
				l = n.items[i-1].key()
			}
			if i < int(n.n) {
				h, b = n.items[i].key(), true
			}
			walk(kid, d+1, l, h, b)
		}
	}
	walk(tr.root, 0, "", "", false)
	require.Equal(t, tr.n, count)
}

// keyShapes are kinds of keys: what they have in common, and how long they are, decides how nodes find them.
var keyShapes = map[string]func(r *rand.Rand) string{
	"numbers": func(r *rand.Rand) string {
		return "\x00\x07\x01" + string(binary.BigEndian.AppendUint64(nil, 1<<63+r.Uint64N(3000)))
	},
	"numbers in groups": func(r *rand.Rand) string {
		return string(binary.BigEndian.AppendUint16(nil, uint16(r.UintN(128)))) + "\x01" + string(binary.BigEndian.AppendUint64(nil, 1<<63+r.Uint64N(40)))
	},
	"zeros":         func(r *rand.Rand) string { return strings.Repeat("\x00", r.IntN(40)) + strings.Repeat("a", r.IntN(3)) },
	"few bytes":     func(r *rand.Rand) string { return randomKey(r, r.IntN(12), 2) },
	"any bytes":     func(r *rand.Rand) string { return randomKey(r, r.IntN(20), 256) },
	"long the same": func(r *rand.Rand) string { return strings.Repeat("x", 17+4*r.IntN(4)) + randomKey(r, r.IntN(9), 3) },
	"very long":     func(r *rand.Rand) string { return strings.Repeat("y", 70_000) + randomKey(r, r.IntN(3), 4) },
}

func randomKey(r *rand.Rand, n, letters int) string {
	b := make([]byte, n)
	for i := range b {
		b[i] = byte(r.IntN(letters))
	}
	return string(b)
}

// A tree, and the copies taken of it on the way, hold what a map holds that was changed in the same way; searching and walking both ways finds it.
func TestTreeAgainstMap(t *testing.T) {
	for name, shape := range keyShapes {
		t.Run(name, func(t *testing.T) {
			r := rand.New(rand.NewPCG(uint64(len(name)), 7))
			type moment struct {
				tree *tree
				want map[string]string
			}
			now := moment{newTree(), map[string]string{}}
			var moments []moment
			steps := 12_000
			if name == "very long" {
				steps = 300
			}
			for i := range steps {
				k, phase := shape(r), i*6/steps%3 // grow, stay, shrink
				switch {
				case r.IntN(10) < []int{2, 5, 8}[phase]:
					now.tree.delete(k)
					delete(now.want, k)
				case r.IntN(2) == 0:
					v := fmt.Sprint(i)
					now.tree.set(entry{kv: k + v, klen: uint32(len(k))})
					now.want[k] = v
				default:
					v := fmt.Sprint(i)
					now.tree.load(entry{kv: k + v, klen: uint32(len(k))})
					now.want[k] = v
				}
				if r.IntN(steps/6) == 0 {
					moments = append(moments, moment{now.tree.copy(), maps.Clone(now.want)})
				}
			}
			for i, m := range append(moments, now) {
				checkTree(t, m.tree)
				require.Equal(t, len(m.want), m.tree.len(), i)
				keys := slices.Sorted(maps.Keys(m.want))
				at := 0
				m.tree.scan(func(e entry) bool {
					require.Equal(t, keys[at], e.key())
					require.Equal(t, m.want[keys[at]], string(e.value()))
					at++
					return true
				})
				require.Len(t, keys, at)
				var c cursor
				for ok, at := c.last(m.tree), len(keys)-1; ok; ok, at = c.prev(), at-1 {
					require.Equal(t, keys[at], c.item().key())
				}
				for range 200 {
					k := shape(r)
					e, found := m.tree.get(k)
					v, want := m.want[k]
					require.Equal(t, want, found)
					require.Equal(t, v, string(e.value()))
					next, _ := slices.BinarySearch(keys, k)
					ok := c.seek(m.tree, k)
					require.Equal(t, next < len(keys), ok)
					before := c
					if ok {
						require.Equal(t, keys[next], c.item().key())
						require.Equal(t, next+1 < len(keys), c.next())
						if next+1 < len(keys) {
							require.Equal(t, keys[next+1], c.item().key())
						}
					}
					if ok {
						c = before
						require.Equal(t, next > 0, c.prev())
						if next > 0 {
							require.Equal(t, keys[next-1], c.item().key())
						}
						c = before
						require.Equal(t, next+1 < len(keys), c.next())
					}
				}
			}
			for _, k := range slices.Sorted(maps.Keys(now.want)) {
				now.tree.delete(k)
			}
			checkTree(t, now.tree)
			require.Nil(t, now.tree.root)
		})
	}
}

// Keys in their order make full nodes, whatever their number.
func TestTreeOfOrderedKeysIsFull(t *testing.T) {
	tr := newTree()
	const n = 100_000
	for i := range n {
		k := "\x00\x00\x01" + string(binary.BigEndian.AppendUint64(nil, 1<<63+uint64(i)))
		tr.set(entry{kv: k, klen: uint32(len(k))})
	}
	checkTree(t, tr)
	leaves := 0
	var walk func(n *node)
	walk = func(n *node) {
		if n.kids == nil {
			leaves++
			return
		}
		for _, kid := range n.kids[:n.n+1] {
			walk(kid)
		}
	}
	walk(tr.root)
	require.LessOrEqual(t, leaves, n/nodeEntries+1)
}

func BenchmarkTree(b *testing.B) {
	const n = 1_000_000
	keys := make([]string, n)
	tr := newTree()
	for i := range keys {
		keys[i] = string(binary.BigEndian.AppendUint16(nil, uint16(uint64(i)*0x9E3779B97F4A7C15>>57))) + "\x01" + string(binary.BigEndian.AppendUint64(nil, 1<<63+uint64(i)))
		tr.set(newEntry(0, []byte(keys[i]), []byte("some value of a row"), 0))
		keys[i] = "\x00\x00" + keys[i]
	}
	r := rand.New(rand.NewPCG(1, 2))
	r.Shuffle(n, func(i, k int) { keys[i], keys[k] = keys[k], keys[i] })
	b.Run("get", func(b *testing.B) {
		for i := range b.N {
			if _, ok := tr.get(keys[i%n]); !ok {
				b.Fatal("not found")
			}
		}
	})
	b.Run("set", func(b *testing.B) { // as an epoch of a view does it: 20 000 changes between two copies
		b.ReportAllocs()
		for i := range b.N {
			if i%20_000 == 0 {
				tr.copy()
			}
			k := keys[i%n]
			tr.set(newEntry(0, []byte(k[2:]), []byte("some value of a row"), 0))
		}
	})
}
