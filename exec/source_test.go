package exec

import (
	"fmt"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/streamdb/streamdb/connector"
)

// TestSource: splits appear, rows that cannot be decoded are kept aside, a read fails once, the source ends.
func TestSource(t *testing.T) {
	d := openDB(t, testOptions{chunkRows: 2})
	d.script.fails = 1
	d.script.add("a", "1,1", "bad", "2,1")
	d.source("src", "id int8, k int8", "")
	d.view("v", "select k, count(*) as n from src group by k", 2)
	j := d.job("v")
	d.until("the first split is read", func() bool { return len(d.answer("select k, n from v", "1,2")) > 0 })
	d.script.add("b", "3,2", "fail", "4,2")
	d.script.end()
	d.until("all is read and visible", j.SourcesEnded)
	require.Equal(t, []string{"1,2", "2,2"}, d.query("select k, n from v", 0))
	require.EqualValues(t, 2, j.ErrorCount())
	require.Equal(t, 1, j.Restarts())
	d.checkpoint()
	d.checkpoint()
	d.reopen()
	d.until("its end is known again", d.job("v").SourcesEnded)
	require.Equal(t, []string{"1,2", "2,2"}, d.query("select k, n from v", 0))
	require.EqualValues(t, 2, d.job("v").ErrorCount())
}

// answer returns want when the query's present answer is just that row.
func (d *testDB) answer(query, want string) []string {
	got := d.query(query, 0)
	if len(got) == 1 && got[0] == want {
		return got
	}
	return nil
}

// TestSourcePositionsBeforeDiscovery: a checkpoint that is made after a restart, before the splits are listed again, keeps their positions.
func TestSourcePositionsBeforeDiscovery(t *testing.T) {
	d := openDB(t, testOptions{})
	d.script.add("a", "1,1", "2,1", "3,1")
	d.source("src", "id int8, k int8", "")
	d.view("v", "select k, count(*) as n from src group by k", 2)
	d.until("it is read", func() bool { return d.answer("select k, n from v", "1,3") != nil })
	d.checkpoint()
	d.script.mu.Lock()
	d.script.fails = 1
	d.script.mu.Unlock()
	d.reopen()
	d.checkpoint()
	d.reopen()
	d.script.end()
	d.until("its end", d.job("v").SourcesEnded)
	require.Equal(t, []string{"1,3"}, d.query("select k, n from v", 0))
}

// TestEmptySourceEnds: a source without splits that can have none ends, even if listing them failed at first.
func TestEmptySourceEnds(t *testing.T) {
	d := openDB(t, testOptions{})
	d.script.fails = 1
	d.script.end()
	d.source("src", "id int8, k int8", "")
	d.view("v", "select count(*) as n from src", 1)
	d.until("its end", d.job("v").SourcesEnded)
	require.Equal(t, []string{"0"}, d.query("select n from v", 0))
}

// TestWindowsCloseAtTheEnd: the end of the source closes all windows, once, also after a restart; before it only those that are over are out.
func TestWindowsCloseAtTheEnd(t *testing.T) {
	d := openDB(t, testOptions{})
	// Microseconds since 2000-01-01, before it: no watermark yet must not mean that the year 2000 has come. Windows of one second over two splits.
	a, b := apart(2)
	d.script.add(a, "1,-7000000", "2,-6500000", "3,-3500000")
	d.script.add(b, "4,-6900000", "5,-3400000", "6,-2300000")
	d.source("src", "id int8, ts timestamp", "ts ts")
	d.view("w", "select window_start, count(*) as n from tumble(src, ts, interval '1 second') group by window_start, window_end emit on window close", 2)
	d.until("what is over is out", func() bool { return len(d.query("select n from w", 0)) > 0 })
	require.Equal(t, []string{"1999-12-31 23:59:53,3"}, d.query("select window_start, n from w", 0))
	d.checkpoint()
	d.reopen()
	d.script.end()
	d.until("its end", d.job("w").SourcesEnded)
	require.Equal(t, []string{"1999-12-31 23:59:53,3", "1999-12-31 23:59:56,2", "1999-12-31 23:59:57,1"}, d.query("select window_start, n from w", 0))
	require.Empty(t, d.job("w").Errors(), "no row was late")
	d.checkpoint()
	d.reopen()
	d.until("its end", d.job("w").SourcesEnded)
	require.Len(t, d.query("select window_start, n from w", 0), 3)
}

// apart returns the names of two splits that different subtasks of n read.
func apart(n int) (string, string) {
	a, b := "a", "b"
	for splitOwner(a, n) == splitOwner(b, n) {
		b += "b"
	}
	return a, b
}

const countPerSecond = "select window_start, count(*) as n from tumble(src, ts, interval '1 second') group by window_start, window_end emit on window close"

// TestWatermarksOfSplits: in one subtask, too, the split that is behind holds the watermark back, so that the order of reading makes no row late.
func TestWatermarksOfSplits(t *testing.T) {
	d := openDB(t, testOptions{chunkRows: 1})
	d.script.add("a", "1,1000000", "2,5000000", "3,9000000")
	d.script.add("b", "4,1500000", "5,2500000", "6,3500000")
	d.source("src", "id int8, ts timestamp", "ts ts")
	d.view("w", countPerSecond, 1)
	d.until("what is over in both is out", func() bool { return len(d.query("select n from w", 0)) == 2 })
	require.Equal(t, []string{"2000-01-01 00:00:01,2", "2000-01-01 00:00:02,1"}, d.query("select window_start, n from w", 0))
	d.checkpoint()
	d.reopen()
	d.checkpoint()
	require.Len(t, d.query("select n from w", 0), 2)
	d.script.add("b", "7,4000000")
	d.script.end()
	d.until("its end", d.job("w").SourcesEnded)
	require.Equal(t, []string{
		"2000-01-01 00:00:01,2", "2000-01-01 00:00:02,1", "2000-01-01 00:00:03,1", "2000-01-01 00:00:04,1", "2000-01-01 00:00:05,1", "2000-01-01 00:00:09,1",
	}, d.query("select window_start, n from w", 0))
	require.Empty(t, d.job("w").Errors(), "no row was late")
}

// TestIdleSplits: a split without rows holds windows open for as long as the source says. What it has then is late for windows that have closed, and
// counts for the others.
func TestIdleSplits(t *testing.T) {
	for _, parallelism := range []int{1, 2} {
		t.Run(fmt.Sprint(parallelism), func(t *testing.T) {
			d := openDB(t, testOptions{})
			a, b := apart(2)
			d.script.add(a, "1,1000000", "2,5000000")
			d.script.add(b)
			d.source("src", "id int8, ts timestamp", "ts ts")
			d.relation("src").Source.Options[connector.OptionIdleTimeout] = "1h"
			d.source("quick", "id int8, ts timestamp", "ts ts")
			d.relation("quick").Source.Options[connector.OptionIdleTimeout] = "1ms"
			d.view("patient", countPerSecond, parallelism)
			d.view("w", strings.ReplaceAll(countPerSecond, "src", "quick"), parallelism)
			d.until("the silent split is idle", func() bool { return len(d.query("select n from w", 0)) == 1 })
			d.checkpoint()
			require.Empty(t, d.query("select n from patient", 0))
			d.reopen()
			d.script.add(b, "3,1100000", "4,5100000", "5,7000000")
			d.until("the rows are read", func() bool { return len(d.job("w").Errors()) == 1 && len(d.query("select n from patient", 0)) == 1 })
			d.script.end()
			d.until("their end", func() bool { return d.job("w").SourcesEnded() && d.job("patient").SourcesEnded() })
			require.Equal(t, []string{"2000-01-01 00:00:01,1", "2000-01-01 00:00:05,2", "2000-01-01 00:00:07,1"}, d.query("select window_start, n from w", 0))
			require.Equal(t, []string{"2000-01-01 00:00:01,2", "2000-01-01 00:00:05,2", "2000-01-01 00:00:07,1"}, d.query("select window_start, n from patient", 0))
			require.Empty(t, d.job("patient").Errors())
		})
	}
}

// TestSubtasksWithoutSplits: subtasks that no row reaches hold no watermark back, wherever in the plan they are.
func TestSubtasksWithoutSplits(t *testing.T) {
	const (
		both  = "(select * from src union all select * from src)"
		mixed = "(select * from src union all select id, ts from other)"
		count = "select window_start, count(*) as n from %s group by window_start, window_end emit on window close"
	)
	queries := map[string]string{
		"one":     fmt.Sprintf(count, "tumble(src, ts, interval '1 second')"),
		"twice":   fmt.Sprintf(count, "tumble("+both+", ts, interval '1 second')"),
		"mixed":   fmt.Sprintf(count, "tumble("+mixed+", ts, interval '1 second')"),
		"session": "select window_start, count(*) as n from session(" + both + ", ts, interval '1 second') group by window_start, window_end emit on window close",
		"shared": "with w as (select window_start, window_end, id % 2 as k, count(*) as n from tumble(src, ts, interval '1 second') group by window_start, window_end, id % 2)" +
			" select w.window_start, w.n from w join (select window_start, max(n) as n from w group by window_start, window_end) m on m.window_start = w.window_start and m.n = w.n emit on window close",
		"interval": "select a.ts as window_start, b.id as n from src a left join src b on a.id = b.id + 1 and b.ts between a.ts - interval '1 second' and a.ts emit on window close",
	}
	for _, parallelism := range []int{1, 2, 3} {
		t.Run(fmt.Sprint(parallelism), func(t *testing.T) {
			d := openDB(t, testOptions{})
			d.script.add("a", "1,1000000", "2,1900000", "3,4000000", "4,7000000", "5,12000000")
			d.source("src", "id int8, ts timestamp", "ts ts")
			d.source("other", "id int8, ts timestamp", "ts ts")
			for name, q := range queries {
				d.view(name, q, parallelism)
			}
			for name := range queries {
				d.until(name+": what is over is out", func() bool { return len(d.query("select n from "+name, 0)) >= 2 })
				require.Empty(t, d.job(name).Errors(), name)
			}
			d.checkpoint()
			d.reopen()
			d.script.add("a", "6,22000000")
			for name := range queries {
				d.until(name+": what is over now is out", func() bool {
					return len(d.query("select n from "+name+" where window_start > '2000-01-01 00:00:10'", 0)) > 0
				})
				require.Empty(t, d.job(name).Errors(), name)
			}
		})
	}
}

// TestPausedSource: nothing is read while the job is paused, and nothing is lost.
func TestPausedSource(t *testing.T) {
	d := openDB(t, testOptions{})
	d.script.add("a", "1,1")
	d.source("src", "id int8, k int8", "")
	d.view("v", "select k, count(*) as n from src group by k", 1)
	d.until("it is read", func() bool { return d.answer("select k, n from v", "1,1") != nil })
	d.job("v").Pause()
	d.checkpoint()
	d.script.add("a", "2,1", "3,1")
	d.checkpoint()
	d.job("v").Resume()
	d.until("it is read", func() bool { return d.answer("select k, n from v", "1,3") != nil })
	d.checkpoint()
	d.engine.Recover()
	d.script.end()
	d.until("its end", d.job("v").SourcesEnded)
	require.Equal(t, []string{"1,3"}, d.query("select k, n from v", 0))
}
