package exec

import (
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"
)

// TestProcessingTime: rows have the time of the epoch in which they were read, windows over it close as the clock passes their end, also where no row comes, and a
// restart from a checkpoint changes nothing of it.
func TestProcessingTime(t *testing.T) {
	const second = 1_000_000
	for _, parallelism := range []int{1, 3} {
		t.Run(fmt.Sprint(parallelism), func(t *testing.T) {
			clock := &testClock{}
			clock.at.Store(100 * second)
			d := openDB(t, testOptions{now: clock.now, chunkRows: 1})
			a, b := apart(2)
			d.script.add(a, "1,1", "2,1")
			d.script.add(b, "3,2")
			d.source("src", "id int8, k int8", "")
			d.view("rows", "select id, p from (select id, proctime() as p from src) s", parallelism)
			d.view("w", "select window_start, k, count(*) as n from tumble((select *, proctime() as p from src), p, interval '10 seconds') group by window_start, window_end, k emit on window close", parallelism)
			d.until("the rows are read", func() bool { return len(d.query("select id from rows", 0)) == 3 })
			at := func(id int) string { return d.query(fmt.Sprintf("select p from rows where id = %d", id), 0)[0] }
			require.Equal(t, []string{"1", "2", "3"}, d.query("select id from rows where p = '2000-01-01 00:01:40+00'", 0))
			require.Empty(t, d.query("select * from w", 0))
			read := func(view string) { // all that was added is in the state of the view
				n := d.job(view).SourceRows()
				d.until("it is read", func() bool { return d.job(view).SourceRows() > n })
			}
			d.checkpoint()
			clock.at.Store(105 * second)
			d.reopen()
			d.until("splits are read again", func() bool { return d.job("w").Status() == JobRunning })
			d.script.add(a, "4,1")
			read("w")
			d.until("the row is there", func() bool { return len(d.query("select id from rows where id = 4", 0)) == 1 })
			require.Equal(t, "2000-01-01 00:01:45+00", at(4))
			require.Equal(t, "2000-01-01 00:01:40+00", at(1), "what was read before the restart keeps its time")
			require.Empty(t, d.query("select * from w", 0))
			clock.at.Store(110 * second)
			d.until("the window closes without a row", func() bool { return len(d.query("select * from w", 0)) == 2 })
			require.Equal(t, []string{"2000-01-01 00:01:40+00,1,3", "2000-01-01 00:01:40+00,2,1"}, d.query("select window_start, k, n from w", 0))
			// A clock that is set back does not take time back.
			d.checkpoint()
			clock.at.Store(50 * second)
			d.reopen()
			d.script.add(b, "5,2")
			d.script.end()
			d.until("their end", func() bool { return d.job("w").SourcesEnded() && d.job("rows").SourcesEnded() })
			require.Equal(t, "2000-01-01 00:01:50+00", at(5))
			require.Equal(t, []string{"2000-01-01 00:01:40+00,1,3", "2000-01-01 00:01:40+00,2,1", "2000-01-01 00:01:50+00,2,1"}, d.query("select window_start, k, n from w", 0))
			require.Empty(t, d.job("w").Errors(), "no row was late")
		})
	}
}
