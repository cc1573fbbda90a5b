package exec

import (
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/streamdb/streamdb/connector"
)

// TestWatermarkAlignment: a split that is further ahead of the slowest one than the drift rests, whether the same subtask reads both or not, and goes on when the others have come
// closer, are idle, or have ended.
func TestWatermarkAlignment(t *testing.T) {
	const second = 1_000_000
	for _, parallelism := range []int{1, 2} {
		t.Run(fmt.Sprint(parallelism), func(t *testing.T) {
			d := openDB(t, testOptions{chunkRows: 1})
			a, b := apart(2)
			row := func(id, s int) string { return fmt.Sprintf("%d,%d", id, s*second) }
			d.script.add(b, row(1000, 1))
			for _, name := range []string{"src", "quick"} {
				d.source(name, "id int8, ts timestamp", "ts ts")
				o := d.relation(name).Source.Options
				o[connector.OptionIdleTimeout], o[connector.OptionMaxDrift], o[connector.OptionAlignInterval] = "1h", "10s", "1ms"
				if name == "quick" {
					o[connector.OptionIdleTimeout] = "50ms"
				}
			}
			d.view("v", "select id, ts from src", parallelism)
			d.view("q", "select id, ts from quick", parallelism)
			d.until("the slow split has a watermark", func() bool { return len(d.query("select id from v", 0)) == 1 })
			for i := 1; i <= 100; i++ {
				d.script.add(a, row(i, i))
			}
			read := func() int { return len(d.query("select id from v where id < 1000", 0)) }
			rests := func(n int) {
				t.Helper()
				d.until(fmt.Sprintf("%d rows are read", n), func() bool { return read() >= n })
				for range 3 {
					d.checkpoint() // epochs pass, and nothing more is read
				}
				require.Equal(t, n, read())
			}
			rests(12) // up to the first row that is more than 10 s ahead of the other split's second 1
			d.script.add(b, row(1001, 20))
			rests(31)
			d.reopen()
			rests(31)
			d.script.add(b, row(1002, 5), row(1003, 40))
			rests(51)
			d.until("the idle split holds nobody back", func() bool { return len(d.query("select id from q", 0)) == 104 })
			d.script.end()
			d.until("nor one that has ended", func() bool { return read() == 100 })
			require.Empty(t, d.job("v").Errors())
		})
	}
}

// TestAlignmentGroups: sources with the same group wait for each other, others for their own splits.
func TestAlignmentGroups(t *testing.T) {
	d := openDB(t, testOptions{})
	d.script.add("a", "1,1")
	for name, group := range map[string]string{"one": "g", "two": "g", "three": "", "four": ""} {
		d.source(name, "id int8, ts timestamp", "ts ts")
		o := d.relation(name).Source.Options
		if o[connector.OptionMaxDrift] = "1s"; group != "" {
			o[connector.OptionAlignGroup] = group
		}
	}
	d.view("v", "select id from one union all select id from two union all select id from three union all select id from four", 2)
	d.until("all are read", func() bool { return len(d.query("select id from v", 0)) == 4 })
	j := d.job("v")
	j.mu.Lock()
	defer j.mu.Unlock()
	groups := map[*alignGroup][]string{}
	for _, s := range j.run.sources {
		require.Len(t, s.subs, 2)
		require.Same(t, s.subs[0].group, s.subs[1].group, "the subtasks of %s", s.node.Source.Name)
		groups[s.subs[0].group] = append(groups[s.subs[0].group], s.node.Source.Name)
	}
	require.Len(t, groups, 3)
	for _, names := range groups {
		if len(names) == 2 {
			require.ElementsMatch(t, []string{"one", "two"}, names)
		}
	}
}

// TestSubtaskWithoutSplits: a subtask that has no split, or a source that has none, holds no window open and closes none for splits that appear later.
func TestSubtaskWithoutSplits(t *testing.T) {
	d := openDB(t, testOptions{})
	a, b := apart(2)
	d.source("src", "id int8, ts timestamp", "ts ts")
	d.view("w", countPerSecond, 2)
	d.checkpoint()
	require.Empty(t, d.query("select * from w", 0))
	d.script.add(a, "1,1000000", "2,5000000")
	d.until("the window closes without the other subtask", func() bool { return len(d.query("select n from w", 0)) == 1 })
	d.checkpoint()
	d.reopen()
	d.script.add(b, "3,5100000", "4,6000000")
	d.until("the rows are read", func() bool { return d.job("w").SourceRows() == 2 })
	d.script.end()
	d.until("its end", d.job("w").SourcesEnded)
	require.Equal(t, []string{"2000-01-01 00:00:01,1", "2000-01-01 00:00:05,2", "2000-01-01 00:00:06,1"}, d.query("select window_start, n from w", 0))
	require.Empty(t, d.job("w").Errors(), "no row was late")
}
