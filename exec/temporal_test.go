package exec

import (
	"fmt"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/streamdb/streamdb/types"
)

// testClock is a clock that the test moves.
type testClock struct{ at atomic.Int64 } // µs since 2000-01-01

func (c *testClock) now() time.Time { return types.TimeFromTimestamp(c.at.Load()) }

// TestTemporalFilter: rows enter and leave as the clock moves, without a change of the input, each once, also over a restart; what reads the view follows.
func TestTemporalFilter(t *testing.T) {
	const second = 1_000_000
	for _, parallelism := range []int{1, 3} {
		t.Run(fmt.Sprint(parallelism), func(t *testing.T) {
			clock := &testClock{}
			clock.at.Store(100 * second)
			d := openDB(t, testOptions{now: clock.now})
			set := func(s int64) {
				clock.at.Store(s * second)
				for _, j := range d.engine.Jobs() {
					j.poke()
				}
			}
			d.table("t", "id int8, ts timestamptz")
			row := func(id, s int64) string { return fmt.Sprintf(" +%d,%d", id, s*second) }
			d.exec("t" + row(1, 85) + row(2, 95) + row(3, 110) + " +4,null")
			d.view("recent", "select id from t where ts > now() - interval '10 seconds'", parallelism)
			d.view("due", "select id from t where ts <= now() and id > 0", parallelism)
			d.view("band", "select id, ts from t where now() >= ts + interval '5 seconds' and now() < ts + interval '15 seconds'", parallelism)
			d.view("n", "select count(*) as n from recent", parallelism)
			shows := func(view string, want ...string) {
				t.Helper()
				if want == nil {
					want = []string{}
				}
				d.until(fmt.Sprintf("%s is %v", view, want), func() bool { return fmt.Sprint(d.query("select * from "+view, 0)) == fmt.Sprint(want) })
			}
			shows("n", "2")
			require.Equal(t, []string{"2", "3"}, d.query("select id from recent", 0))
			require.Equal(t, []string{"1", "2"}, d.query("select id from due", 0))
			require.Equal(t, []string{"2"}, d.query("select id from band", 0))
			epoch := d.engine.Epoch()
			set(104)
			require.Equal(t, []string{"2", "3"}, d.query("select id from recent", 0))
			require.LessOrEqual(t, d.engine.Epoch(), epoch+1, "nothing was due, no epoch was made")
			set(105)
			shows("recent", "3")
			shows("n", "1")
			d.checkpoint()
			d.reopen()
			shows("recent", "3")
			set(110)
			shows("due", "1", "2", "3")
			require.Empty(t, d.query("select id from band", 0))
			// Changes of rows that are in, were in, will be in.
			d.exec("t" + row(1, 108) + row(2, 120) + " -3,0")
			shows("recent", "1", "2")
			shows("due", "1")
			set(118)
			shows("recent", "2")
			d.checkpoint()
			d.engine.Recover()
			set(125)
			shows("due", "1", "2")
			shows("n", "1")
			set(1000)
			shows("recent")
			shows("n", "0")
			shows("band")
			for _, v := range []string{"recent", "due", "band"} {
				require.Empty(t, d.job(v).Errors())
			}
		})
	}
}
