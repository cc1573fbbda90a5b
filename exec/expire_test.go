package exec

import (
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/streamdb/streamdb/internal/checkpointrows"
	"github.com/streamdb/streamdb/state"
)

// stored counts the entries that the newest completed checkpoint has of a view, by table.
func (d *testDB) stored(name string) map[uint32]int64 {
	d.t.Helper()
	js := d.coord.Latest().Jobs[d.job(name).Spec.ID]
	require.NotNil(d.t, js, name)
	s, err := state.Canonical(d.ctx(), state.Options{Dir: d.t.TempDir()}, d.fetch(js))
	require.NoError(d.t, err)
	return s.Entries
}

// TestStateTTL: what nobody changes for the time leaves the views and their state, also what a checkpoint holds; what is changed stays, retractions of what has left are
// no harm, and rows that come later begin anew.
func TestStateTTL(t *testing.T) {
	checkpointrows.Shows(t, 87)
	const second = 1_000_000
	for _, parallelism := range []int{1, 3} {
		for _, backend := range []state.BackendType{state.BackendMemory, state.BackendPebble} {
			t.Run(fmt.Sprint(parallelism, backend), func(t *testing.T) {
				clock := &testClock{}
				clock.at.Store(100 * second)
				d := openDB(t, testOptions{now: clock.now, backend: backend, stateTTL: 10 * time.Second})
				d.table("a", "id int8, k int8, v int8")
				d.table("b", "id int8, k int8")
				d.exec("a +1,1,10 +2,1,20 +3,2,30; b +1,1 +2,2")
				views := map[string]string{
					"plain":    "select id, v from a where v > 0",
					"joined":   "select a.id, b.id as bid from a join b on a.k = b.k",
					"padded":   "select a.id, b.id as bid from a left join b on a.k = b.k and b.id > 1",
					"sums":     "select k, sum(v) as s, count(distinct v) as d from a group by k",
					"top":      "select id, v from a order by v desc limit 2",
					"ranked":   "select id, row_number() over (partition by k order by v) as r from a",
					"keys":     "select distinct k from a",
					"common":   "select k from a intersect select k from b",
					"united":   "select id from a union all select id from b",
					"of_joins": "select bid, count(*) as n from (select a.id, b.id as bid from a join b on a.k = b.k) j group by bid",
					"total":    "select count(*) as n from a",
				}
				for name, q := range views {
					d.view(name, q, parallelism)
				}
				shows := func(view string, want ...string) {
					t.Helper()
					if want == nil {
						want = []string{}
					}
					d.until(fmt.Sprintf("%s is %v", view, want), func() bool {
						return fmt.Sprint(d.query("select "+visible(d.relation(view))+" from "+view, 0)) == fmt.Sprint(want)
					})
				}
				shows("joined", "1,1", "2,1", "3,2")
				shows("sums", "1,30,2", "2,30,1")
				shows("total", "3")
				set := func(s int64) {
					clock.at.Store(s * second)
					for name := range views { // a run that is replaced meanwhile would miss it
						d.until(name+" runs", func() bool { return d.job(name).Status() == JobRunning })
						d.job(name).poke()
					}
				}
				set(105)
				d.exec("a +1,1,11") // a change of row 1 and of group 1
				shows("plain", "1,11", "2,20", "3,30")
				d.checkpoint()
				for name := range views {
					require.NotEmpty(t, d.stored(name), name)
				}
				d.reopen()
				set(110)
				shows("plain", "1,11")
				shows("joined")
				shows("padded", "1,null")
				shows("sums", "1,31,2")
				shows("top", "1,11")
				shows("ranked", "1,1")
				shows("keys", "1")
				shows("common", "1") // a group of rows of both sides
				shows("united", "1")
				shows("of_joins")
				shows("total", "3") // one row that the whole view is
				// What has left is changed and deleted: that is no news but for the new rows.
				d.exec("a -2,0,0 +3,3,33; b +2,3")
				shows("plain", "1,11", "3,33")
				shows("joined", "3,2")
				shows("sums", "1,11,1", "3,33,1")
				shows("top", "1,11", "3,33")
				shows("ranked", "1,1", "3,1")
				shows("common", "1", "3")
				shows("of_joins", "2,1")
				d.checkpoint()
				d.reopen()
				for name := range views {
					d.engine.Rescale(d.job(name), 2)
				}
				shows("sums", "1,11,1", "3,33,1")
				set(130)
				for name := range views {
					if name == "total" {
						continue
					}
					shows(name)
				}
				d.checkpoint()
				left := func(what string) {
					t.Helper()
					for name := range views {
						if name != "total" {
							require.Empty(t, d.stored(name), "%s, %s", name, what)
							require.Zero(t, d.job(name).Metrics().LiveEntries, "%s, %s", name, what)
						}
					}
				}
				left("in the checkpoint")
				clock.at.Store(100 * second) // what has left does not come back with an older clock
				d.reopen()
				for name := range views {
					if name == "total" {
						continue
					}
					require.Empty(t, d.query("select * from "+name, 0), name)
					require.Empty(t, d.job(name).Errors())
				}
				left("restored")
				d.exec("a -1,0,0 -3,0,0; b -1,0 -2,0")
				for name := range views {
					if name == "total" {
						shows(name, "0")
						continue
					}
					shows(name)
				}
			})
		}
	}
}

// TestStateTTLBounded: views over a source without end keep what came within the time, and what they show of it.
func TestStateTTLBounded(t *testing.T) {
	checkpointrows.Shows(t, 87)
	const second = 1_000_000
	clock := &testClock{}
	d := openDB(t, testOptions{now: clock.now, stateTTL: 10 * time.Second})
	d.script.add("a", "0,0")
	d.source("src", "id int8, k int8", "")
	views := map[string]string{
		"plain":  "select id from src",
		"groups": "select k, count(*) as n, count(distinct id) as d from src group by k",
		"ids":    "select distinct id from src",
		"latest": "select k, id from (select *, row_number() over (partition by k order by id desc) as r from src) x where r = 1",
		"joined": "select a.id, b.k from src a join src b on a.id = b.id",
	}
	for name, q := range views {
		d.view(name, q, 2)
	}
	// The newest row is among them: otherwise it comes when the clock shows more.
	reach := func(newest, n int64) {
		want := fmt.Sprintf("%d,%d", n, newest)
		for name := range views {
			column := "id"
			if name == "groups" {
				column = "k"
			}
			d.until(name+" has "+want, func() bool { return d.query("select count(*), max("+column+") from "+name, 0)[0] == want })
		}
	}
	reach(0, 1)
	for i := int64(1); i <= 60; i++ {
		clock.at.Store(i * second)
		d.script.add("a", fmt.Sprintf("%d,%d", i, i))
		reach(i, min(i+1, 10)) // those of the last nine seconds and of this one
		if i%10 == 0 {
			d.checkpoint()
			for name := range views {
				require.LessOrEqual(t, d.job(name).Metrics().LiveEntries, int64(100), name)
				entries := int64(0)
				for _, n := range d.stored(name) {
					entries += n
				}
				require.LessOrEqual(t, entries, int64(100), "%s in the checkpoint", name)
			}
		}
	}
	d.checkpoint()
	d.reopen()
	clock.at.Store(100 * second)
	for name := range views {
		d.until(name+" is empty", func() bool { return len(d.query("select * from "+name, 0)) == 0 })
	}
}
