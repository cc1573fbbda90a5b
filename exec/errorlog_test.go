package exec

import (
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"testing"

	"github.com/stretchr/testify/require"
)

// A checkpoint has of the errors relation what each subtask had reported before its part of the cut, whatever comes and goes until all have cut: restored from it, subtasks that report the
// rest again end with the same rows.
func TestErrorsAreCutWithTheState(t *testing.T) {
	for seed := range uint64(200) {
		random := rand.New(rand.NewPCG(seed, 0))
		l := &errorLog{}
		tasks := []*taskErrors{{log: l}, {log: l}, {log: l}}
		want := map[string]int64{} // as of the cut
		report := func(k int, before bool) {
			key := errorKey{msg: fmt.Sprint("row ", random.IntN(8))}
			w := int64(1)
			if r := l.rows[key]; r != nil && random.IntN(2) == 0 {
				w = -r.Weight
			}
			tasks[k].add(key, "op", w)
			if want[key.msg] += w; !before {
				want[key.msg] -= w
			}
		}
		for checkpoint := uint64(1); checkpoint < 6; checkpoint++ {
			passed := [3]bool{}
			for _, k := range random.Perm(3) {
				for range random.IntN(6) {
					task := random.IntN(3)
					report(task, !passed[task])
				}
				tasks[k].pass(checkpoint)
				passed[k] = true
			}
			for range random.IntN(6) {
				report(random.IntN(3), false)
			}
			if random.IntN(3) == 0 { // it was given up: what is in the log belongs to the next one
				clear(want)
				for k, r := range l.rows {
					want[k.msg] = r.Weight
				}
				continue
			}
			got := map[string]int64{}
			rows := l.snapshot()
			for _, r := range rows {
				got[r.Message] = r.Weight
			}
			for k, w := range want {
				if w == 0 {
					delete(want, k)
				}
			}
			require.Equal(t, want, got, "seed %d", seed)
			if !l.dirty() {
				require.Equal(t, l.list(), rows)
			}
			data, err := json.Marshal(rows)
			require.NoError(t, err)
			again := &errorLog{}
			require.NoError(t, again.load(data))
			require.Equal(t, rows, again.list())
			require.False(t, again.dirty())
			l.endCut()
			clear(want)
			for k, r := range l.rows {
				want[k.msg] = r.Weight
			}
			require.Empty(t, l.later)
		}
	}
}
