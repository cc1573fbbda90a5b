package exec

import (
	"fmt"
	"maps"
	"math/rand/v2"
	"testing"

	"github.com/stretchr/testify/require"
)

// Changes do what a map does that is copied at every mark, and readers see what it was when they began.
func TestChangesAreAMapWithMarks(t *testing.T) {
	type saved struct {
		mark  ChangesMark
		model map[string]Change
	}
	type reader struct {
		own   *OwnRows
		model map[string]Change
		depth int
	}
	for seed := range uint64(60) {
		rng := rand.New(rand.NewPCG(seed, 1))
		keys := []int{3, 20, 3000}[seed%3]
		c, model := &Changes{}, map[string]Change{}
		mirror := map[string]string{} // what Rollback and Put tell, as a unique index is kept
		var marks []saved
		var readers []reader
		row := func() []byte {
			if rng.IntN(4) == 0 {
				return nil
			}
			b := make([]byte, rng.IntN(300))
			for i := range b {
				b[i] = byte(rng.Uint32())
			}
			return b
		}
		check := func() {
			require.Equal(t, len(model), c.Len())
			for k, want := range model {
				got := c.At(c.Find([]byte(k)))
				require.Equal(t, want.Old == nil, got.Old == nil)
				require.Equal(t, want.New == nil, got.New == nil)
				require.Equal(t, string(want.Old), string(got.Old))
				require.Equal(t, string(want.New), string(got.New))
				require.Equal(t, want.Absent, got.Absent)
				if want.New != nil {
					require.Equal(t, string(want.New), mirror[k])
				}
			}
			require.Equal(t, -1, c.Find([]byte("none")))
			for _, r := range readers {
				for _, own := range []*OwnRows{r.own, r.own.Apart()} {
					n := 0
					require.NoError(t, own.Each(func(key, row []byte) error {
						n++
						require.Equal(t, string(r.model[string(key)].New), string(row))
						return nil
					}))
					for k, want := range r.model {
						got, mine := own.Get([]byte(k))
						require.True(t, mine)
						require.Equal(t, want.New == nil, got == nil)
						if want.New != nil {
							n--
						}
					}
					require.Zero(t, n)
					for k := range model {
						_, known := r.model[k]
						require.Equal(t, known, own.Has([]byte(k)))
					}
				}
			}
		}
		for range 1500 {
			switch p := rng.IntN(100); {
			case p < 3:
				marks = append(marks, saved{mark: c.Mark(), model: maps.Clone(model)})
			case p < 6 && len(marks) > 0: // ROLLBACK TO, any number of levels; the savepoint stays
				i := rng.IntN(len(marks))
				c.Rollback(marks[i].mark, func(key, gone, back []byte) {
					if gone != nil {
						require.Equal(t, mirror[string(key)], string(gone))
					}
					delete(mirror, string(key))
					if back != nil {
						mirror[string(key)] = string(back)
					}
				})
				model = maps.Clone(marks[i].model)
				marks = marks[:i+1]
				kept := readers[:0]
				for _, r := range readers {
					if r.depth <= i {
						kept = append(kept, r)
					}
				}
				readers = kept
				check()
			case p < 8 && len(marks) > 0: // RELEASE
				i := rng.IntN(len(marks))
				marks = marks[:i]
				for j := range readers {
					readers[j].depth = min(readers[j].depth, i)
				}
			case p < 10 && len(model) > 0 && len(readers) < 5:
				readers = append(readers, reader{own: c.Own(), model: maps.Clone(model), depth: len(marks)})
			case p < 11:
				check()
			default:
				k, r := fmt.Sprint(rng.IntN(keys)), row()
				ch, ok := model[k]
				if !ok {
					ch.Old = row()
				}
				ch.New = r
				i := c.Put([]byte(k), ch.Old, r)
				if rng.IntN(5) == 0 {
					c.SetAbsent(i)
					ch.Absent = true
				}
				model[k] = ch
				delete(mirror, k)
				if r != nil {
					mirror[k] = string(r)
				}
			}
		}
		check()
	}
}

// A change takes few bytes beside its key and row, however many there are.
func TestChangesAreCompact(t *testing.T) {
	c := &Changes{}
	key, row := make([]byte, 9), make([]byte, 40)
	const n = 300_000
	for i := range n {
		key[0], key[1], key[2], key[3] = byte(i>>24), byte(i>>16), byte(i>>8), byte(i)
		c.Put(key, nil, row)
	}
	require.Less(t, c.Bytes()/n-int64(len(key)+len(row)), int64(60))
}

func BenchmarkChangesPut(b *testing.B) {
	b.ReportAllocs()
	var key [8]byte
	row := make([]byte, 40)
	c := &Changes{}
	for i := range b.N {
		key[0], key[1], key[2], key[3] = byte(i>>24), byte(i>>16), byte(i>>8), byte(i)
		c.Put(key[:], nil, row)
	}
}

// A mark for every change, as clients set a savepoint before each statement.
func BenchmarkSavepointPerRow(b *testing.B) {
	const rows = 10_000
	row := make([]byte, 40)
	for b.Loop() {
		c := &Changes{}
		for i := range rows {
			c.Mark()
			c.Put([]byte{byte(i >> 16), byte(i >> 8), byte(i)}, nil, row)
		}
	}
}
