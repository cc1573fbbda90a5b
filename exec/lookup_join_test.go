package exec

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/streamdb/streamdb/planner/plan"
)

// TestLookupJoin compares views that read what they join by its key with their queries, over random changes of all sides, while jobs lag, fail, start again
// and are rescaled.
func TestLookupJoin(t *testing.T) {
	for seed := range uint64(3) {
		t.Run(fmt.Sprint(seed), func(t *testing.T) {
			rng := rand.New(rand.NewPCG(seed, 2))
			d := openDB(t, testOptions{lookups: true, chunkRows: []int{1, 2, 1024}[seed]})
			tables := []string{"a", "b", "c"}
			for _, name := range tables {
				d.table(name, "id int8, k int8, v int8")
			}
			live := map[string]map[int]bool{"a": {}, "b": {}, "c": {}}
			change := func(n int) {
				texts := map[string]string{}
				seen := map[string]bool{}
				for range n {
					name, id := tables[rng.IntN(3)], rng.IntN(10)
					if key := fmt.Sprint(name, id); seen[key] {
						continue
					} else {
						seen[key] = true
					}
					if live[name][id] && rng.IntN(3) == 0 {
						texts[name] += fmt.Sprintf(" -%d,0,0", id)
						live[name][id] = false
						continue
					}
					k := fmt.Sprint(rng.IntN(10))
					if rng.IntN(8) == 0 {
						k = "null"
					}
					texts[name] += fmt.Sprintf(" +%d,%s,%d", id, k, rng.IntN(4))
					live[name][id] = true
				}
				text := ""
				for _, name := range tables {
					if texts[name] != "" {
						if text != "" {
							text += ";"
						}
						text += name + texts[name]
					}
				}
				if text != "" {
					d.exec(text)
				}
			}
			d.index("bk", "b", "k desc")
			d.index("cvk", "c", "v, k")
			change(15)
			d.view("g", "select k, count(*) as n, min(v) as v from b group by k", 2)
			queries := []string{
				"select a.id, a.v, b.v as bv from a join b on a.k = b.id",
				"select a.id, b.v from b join a on a.k = b.id and a.v < b.v where b.v > 0",
				"select a.id, b.id as bid, c.v from a join b on a.k = b.id join c on b.k = c.id",
				"select a.id, g.n, g.v from a join g on a.k = g.k",
				"select b.k, count(*) as n, sum(a.v + c.v) as s from a join b on a.k = b.id join c on a.v = c.id group by b.k",
				"select a.id, b.id as bid from a join b on a.id = b.id and a.k = b.k",
				"select a.id, b.id as bid, b.v from a join b on a.k = b.k",
				"select a.id, b.id as bid, c.id as cid from a join b on a.v = b.k join c on b.v = c.v and a.id > c.id",
				"select a.id, c.id as cid, c.k from a join c on a.k = c.k and a.v = c.v",
				"select b.v, count(*) as n, sum(a.id) as s from a join b on a.k = b.k group by b.v",
				"select a.id, a.k, b.id as bid, b.v from a left join b on a.k = b.id and b.v > 0",
				"select a.id, b.id as bid, c.id as cid from a left join b on a.k = b.k and a.v < b.v left join c on b.k = c.k and b.v = c.v",
				"select b.id, a.v from a right join b on a.id = b.v",
				"select * from a where exists (select 1 from b where b.k = a.k and b.v >= a.v)",
				"select * from a where not exists (select 1 from b where b.id = a.k)",
				"select a.k, count(g.n) as n, count(*) as m from a left join g on a.k = g.k group by a.k",
				"select x.id, y.k from a x join a y on x.k = y.id and 10 / x.v > y.v",
			}
			var names []string
			for i, q := range queries {
				names = append(names, fmt.Sprint("v", i))
				d.view(names[i], q, 1+(i+int(seed))%3)
				looks := false
				for _, f := range d.job(names[i]).Spec.Plan.Fragments {
					f.Root.Walk(func(n *plan.Node) { looks = looks || n.Kind == plan.KindLookupJoin })
				}
				require.True(t, looks, q)
			}
			last := names[len(names)-1] // its rows fail
			names = names[:len(names)-1]
			check := func() {
				t.Helper()
				d.until("all jobs run", func() bool {
					for _, j := range d.engine.Jobs() {
						if j.Status() != JobRunning {
							return false
						}
					}
					return true
				})
				d.same(names...)
			}
			check()
			failures := 0
			for range 15 {
				for range rng.IntN(4) {
					change(1 + rng.IntN(6))
				}
				switch rng.IntN(7) {
				case 0:
					d.checkpoint()
				case 1:
					for _, n := range names {
						d.job(n).Pause()
					}
					for range 30 {
						change(1 + rng.IntN(3))
					}
					for _, n := range names {
						d.job(n).Resume()
					}
				case 2:
					d.checkpoint()
					for range 5 {
						change(2)
					}
					d.same(names...)
					if failures++; failures > len(names) {
						break
					}
					j := d.job(names[failures-1])
					before := j.restartCount()
					j.Fail(errors.New("test"))
					d.until("it starts again", func() bool { return j.restartCount() > before && j.Status() == JobRunning })
				case 3:
					d.checkpoint()
					for range 5 {
						change(2)
					}
					d.reopen()
				case 4:
					d.engine.Rescale(d.job(names[rng.IntN(len(names))]), 1+rng.IntN(4))
				}
				check()
			}
			// Rows whose condition failed leave with their cause.
			d.exec("a -0,0,0 -1,0,0 -2,0,0 -3,0,0 -4,0,0 -5,0,0 -6,0,0 -7,0,0 -8,0,0 -9,0,0")
			d.same(append(names, last)...)
			require.Zero(t, d.job(last).ErrorCount())
		})
	}
}

// TestProgressEndsAtAllRows: a job has read as many rows when it is filled as it was going to, whether it reads a relation more than once or not at all.
func TestProgressEndsAtAllRows(t *testing.T) {
	for _, parallelism := range []int{1, 4} {
		d := openDB(t, testOptions{})
		d.table("s", "id int, k int, v int")
		d.table("d", "id int, v int")
		text := "s"
		for i := range 100 {
			text += fmt.Sprintf(" +%d,%d,%d", i, i%10, i)
		}
		d.exec(text + "; d +1,1 +2,2 +3,3 +4,4 +5,5")
		read := func(name, query string) int64 {
			done, total := d.view(name, query, parallelism).Progress()
			require.Equal(t, total, done, "%s at %d", query, parallelism)
			return done
		}
		require.EqualValues(t, 100, read("one", "select k, count(*) as n from s group by k"))
		require.EqualValues(t, 200, read("twice", "select a.id, b.v from s a join s b on a.v = b.k where a.v > 3"))
		require.EqualValues(t, 205, read("three", "select a.id, b.v, d.v as dv from s a join s b on a.v = b.k join d on d.id = a.k"))
		require.EqualValues(t, 205, read("members", "select k from s union all select v from s union all select v from d"))
		d.opts.lookups = true
		require.EqualValues(t, 100, read("looked", "select s.id, d.v from s join d on s.k = d.id"))
	}
}
