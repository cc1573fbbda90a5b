package state

import (
	"context"
	"fmt"
	"math/rand/v2"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"
)

// TestCompare finds exactly what differs in one table between two snapshots of a job, whatever form their files have.
func TestCompare(t *testing.T) {
	for _, backend := range []BackendType{BackendPebble, BackendMemory} {
		for _, tiny := range []bool{false, true} {
			t.Run(fmt.Sprintf("%s,ingest=%v", backend, tiny), func(t *testing.T) {
				rng := rand.New(rand.NewPCG(7, uint64(len(backend))))
				opts := Options{Dir: filepath.Join(t.TempDir(), "job"), Backend: backend, MaxParallelism: 8}
				if tiny { // bases instead of deltas
					opts.Budget = NewBudget(1)
				}
				s, err := Open(context.Background(), opts, nil)
				require.NoError(t, err)
				defer func() { require.NoError(t, s.Close()) }()
				all := Range{From: 0, To: 8}
				var parts []*Part
				for _, table := range []uint32{1, 5, 9} {
					p, err := s.Part(table, 0, all, Ordered)
					require.NoError(t, err)
					parts = append(parts, p)
				}
				model := map[string]string{}
				var snaps []*Snapshot
				var models []map[string]string
				for round := range 6 {
					for range 200 {
						kg, k, v := uint16(rng.IntN(8)), fmt.Sprintf("k%03d", rng.IntN(150)), fmt.Sprint(rng.IntN(5))
						p := rng.IntN(3)
						if rng.IntN(3) == 0 {
							parts[p].Delete(kg, []byte(k))
							v = ""
						} else {
							parts[p].Put(kg, []byte(k), []byte(v))
						}
						if p == 1 {
							model[fmt.Sprint(kg, k)] = v
						}
					}
					snap, err := s.Snapshot(context.Background(), uint64(round+1), []*Sealed{s.Seal(0)})
					require.NoError(t, err)
					kept := *snap
					snaps = append(snaps, &kept)
					m := map[string]string{}
					for k, v := range model {
						if v != "" {
							m[k] = v
						}
					}
					models = append(models, m)
				}
				for i := range snaps {
					for j := i; j < len(snaps); j++ {
						var want, got int
						for k, v := range models[i] {
							if models[j][k] != v {
								want++
							}
						}
						for k := range models[j] {
							if _, ok := models[i][k]; !ok {
								want++
							}
						}
						require.NoError(t, Compare(context.Background(), Options{Dir: t.TempDir(), MaxParallelism: 8}, 5, snaps[i], snaps[j], func(was, is []byte) error {
							require.NotEqual(t, was, is)
							got++
							return nil
						}))
						require.Equal(t, want, got, "%d against %d", i, j)
					}
				}
				n := 0
				require.NoError(t, Compare(context.Background(), Options{Dir: t.TempDir(), MaxParallelism: 8}, 5, nil, snaps[5], func(was, is []byte) error {
					require.Nil(t, was)
					n++
					return nil
				}))
				require.Equal(t, len(models[5]), n)
			})
		}
	}
}
