package exec

import (
	"fmt"
	"strconv"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/streamdb/streamdb/internal/checkpointrows"
)

// TestSplitsAppearDuringCheckpoints: splits that appear, and are assigned, while a checkpoint is cut are neither lost nor read twice after a crash at each of them,
// whether that checkpoint has them already, has them unread, or does not know them yet.
func TestSplitsAppearDuringCheckpoints(t *testing.T) {
	checkpointrows.Shows(t, 57)
	for _, c := range []struct {
		name        string
		parallelism int
		unaligned   bool
	}{{"one subtask", 1, false}, {"aligned", 3, false}, {"unaligned", 3, true}} {
		t.Run(c.name, func(t *testing.T) {
			d := openDB(t, testOptions{chunkRows: 16})
			next, splits := 0, 0
			appear := func() {
				d.script.add("s"+strconv.Itoa(splits), numbers(next, next+50, 7)...)
				next, splits = next+50, splits+1
			}
			appear()
			d.source("src", "id int8, k int8", "")
			d.view("v", "select id, count(*) as n from src group by id", c.parallelism)
			known, unknown := 0, 0
			for round := range 12 {
				if c.unaligned {
					d.setMode("v", unalignedAfter(0))
				}
				// What appeared just before the crash is assigned while this checkpoint begins, or right before or after.
				require.NoError(t, d.fail.Change(fmt.Sprintf("checkpoint/begun=delay(%dms);exec/seal=delay(2ms);exec/take=delay(1ms)", 2*(round%4))))
				done := make(chan error, 1)
				go func() {
					_, err := d.coord.Trigger(d.ctx(), nil)
					done <- err
				}()
				appear()
				appear()
				d.script.add("s0", numbers(next, next+5, 7)...)
				next += 5
				require.NoError(t, <-done)
				if len(d.coord.Latest().Jobs[d.job("v").Spec.ID].Positions) == splits {
					known++
				} else {
					unknown++
				}
				require.NoError(t, d.fail.Change("checkpoint/begun=off;exec/seal=off;exec/take=off"))
				appear()
				d.reopen()
			}
			d.script.end()
			d.until("its end", d.job("v").SourcesEnded)
			want := []string{fmt.Sprintf("%d,%d,%d", next, 1, 1)}
			require.Equal(t, want, d.query("select count(*), min(n), max(n) from v", 0))
			t.Logf("%d checkpoints had all splits, %d not yet", known, unknown)
			require.Positive(t, unknown)
		})
	}
}
