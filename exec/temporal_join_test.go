package exec

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"
)

// temporalView is a view over s(id, k, v) and d(id, k, v) with the condition that it joins on.
type temporalView struct {
	name, query string
	match       func(s, d [3]int) bool
	outer       bool
	parallelism int
}

var temporalViews = []temporalView{
	{"point", "select s.id, s.v, d.id as did, d.v as dv from s join d for system_time as of proctime() on s.k = d.id", func(s, d [3]int) bool { return s[1] == d[0] }, false, 3},
	{"point_left", "select s.id, s.v, d.id as did, d.v as dv from s left join d for system_time as of proctime() on d.id = s.k and d.v > s.v", func(s, d [3]int) bool { return s[1] == d[0] && d[2] > s[2] }, true, 1},
	{"kept", "select s.id, s.v, d.id as did, d.v as dv from s join d for system_time as of proctime() on s.k = d.k", func(s, d [3]int) bool { return s[1] == d[1] }, false, 1},
	{"kept_left", "select s.id, s.v, d.id as did, d.v as dv from s left join d for system_time as of proctime() on s.k = d.k and s.v < d.v", func(s, d [3]int) bool { return s[1] == d[1] && s[2] < d[2] }, true, 2},
	{"indexed", "select s.id, s.v, d.id as did, d.v as dv from s join d for system_time as of proctime() on s.v = d.v and s.k <> d.k", func(s, d [3]int) bool { return s[2] == d[2] && s[1] != d[1] }, false, 2},
	{"indexed_left", "select s.id, s.v, d.id as did, d.v as dv from s left join d for system_time as of proctime() on s.v = d.v and s.k < d.k", func(s, d [3]int) bool { return s[2] == d[2] && s[1] < d[1] }, true, 1},
	// d is a view, whose rows are looked up by its key; what reads a temporal join follows it.
	{"of_view", "select s.id, s.v, d.id as did, d.v as dv from s join dv for system_time as of proctime() as d on s.k = d.id", func(s, d [3]int) bool { return s[1] == d[0] }, false, 2},
	{"over", "select id, v, did, dv from kept", func(s, d [3]int) bool { return s[1] == d[1] }, false, 1},
}

// temporalTest is a database with those views, and what they must show.
type temporalTest struct {
	*testDB
	rng  *rand.Rand
	s, d map[int][3]int
	had  []map[int][][3]int // per view and row of s: the rows of d that it met
}

func newTemporalTest(t *testing.T, o testOptions, seed uint64) *temporalTest {
	m := &temporalTest{testDB: openDB(t, o), rng: rand.New(rand.NewPCG(seed, 1)), s: map[int][3]int{}, d: map[int][3]int{}}
	m.table("s", "id int8, k int8, v int8")
	m.table("d", "id int8, k int8, v int8")
	m.index("dv_index", "d", "v desc, k")
	for range temporalViews {
		m.had = append(m.had, map[int][][3]int{})
	}
	m.change(20)
	m.view("dv", "select id, min(k) as k, min(v) as v from d group by id", 2)
	for i, v := range temporalViews {
		m.view(v.name, v.query, v.parallelism)
		for id := range m.s {
			m.meet(i, id)
		}
	}
	return m
}

// meet joins a row of s with what d holds.
func (m *temporalTest) meet(view, id int) {
	delete(m.had[view], id)
	s, ok := m.s[id]
	if !ok {
		return
	}
	m.had[view][id] = nil
	for _, d := range m.d {
		if temporalViews[view].match(s, d) {
			m.had[view][id] = append(m.had[view][id], d)
		}
	}
}

// change makes n random changes in one transaction.
func (m *temporalTest) change(n int) {
	text := map[string]string{}
	touched := map[string]bool{}
	var met []int
	for range n {
		table, rows := "s", m.s
		if m.rng.IntN(2) == 0 {
			table, rows = "d", m.d
		}
		id := m.rng.IntN(12)
		name := fmt.Sprint(table, id)
		if touched[name] {
			continue
		}
		touched[name] = true
		old, has := rows[id]
		row := [3]int{id, m.rng.IntN(6), m.rng.IntN(4)}
		if has && m.rng.IntN(3) == 0 {
			delete(rows, id)
			text[table] += fmt.Sprintf(" -%d,0,0", id)
		} else {
			rows[id] = row
			text[table] += fmt.Sprintf(" +%d,%d,%d", row[0], row[1], row[2])
		}
		if table == "s" && (!has || rows[id] != old) {
			met = append(met, id)
		}
	}
	all := ""
	for _, table := range []string{"s", "d"} {
		if text[table] != "" {
			if all != "" {
				all += ";"
			}
			all += table + text[table]
		}
	}
	if all == "" {
		return
	}
	m.exec(all)
	for i := range m.had {
		for _, id := range met {
			m.meet(i, id)
		}
	}
}

func (m *temporalTest) check() {
	m.t.Helper()
	m.until("all jobs run", func() bool { // readers do not wait for one that has failed often
		return !slices.ContainsFunc(m.engine.Jobs(), func(j *Job) bool { return j.Status() != JobRunning })
	})
	epoch, err := m.engine.clock.tick(m.ctx())
	require.NoError(m.t, err)
	for i, v := range temporalViews {
		want := []string{}
		for id, s := range m.s {
			for _, d := range m.had[i][id] {
				want = append(want, fmt.Sprintf("%d,%d,%d,%d", id, s[2], d[0], d[2]))
			}
			if v.outer && len(m.had[i][id]) == 0 {
				want = append(want, fmt.Sprintf("%d,%d,null,null", id, s[2]))
			}
		}
		slices.Sort(want)
		require.Equal(m.t, want, m.query("select id, v, did, dv from "+v.name, epoch), v.name)
	}
}

// TestTemporalJoin compares temporal joins with a model over random changes, while jobs lag, fail, start again and are rescaled.
func TestTemporalJoin(t *testing.T) {
	for seed := range uint64(3) {
		t.Run(fmt.Sprint(seed), func(t *testing.T) {
			m := newTemporalTest(t, testOptions{chunkRows: []int{1, 2, 1024}[seed]}, seed)
			m.check()
			m.checkpoint() // a view without one is filled again, with what d is then
			failures := 0
			jobs := func(f func(*Job)) {
				for _, v := range temporalViews {
					f(m.job(v.name))
				}
			}
			for range 20 {
				for range m.rng.IntN(4) {
					m.change(1 + m.rng.IntN(6))
				}
				switch m.rng.IntN(8) {
				case 0:
					m.checkpoint()
				case 1: // lags by many epochs
					jobs((*Job).Pause)
					for range 40 {
						m.change(1 + m.rng.IntN(3))
					}
					jobs((*Job).Resume)
				case 2: // goes back to a checkpoint: the versions since are gone, the change logs are not
					m.checkpoint()
					for range 5 {
						m.change(2)
					}
					m.check()
					if failures++; failures > len(temporalViews) {
						break
					}
					j := m.job(temporalViews[failures-1].name)
					before := j.restartCount()
					j.Fail(errors.New("test"))
					m.until("it starts again", func() bool { return j.restartCount() > before && j.Status() == JobRunning })
				case 3:
					m.checkpoint()
					for range 5 {
						m.change(2)
					}
					m.reopen()
				case 4:
					m.engine.Recover()
				case 5:
					m.checkpoint()
					n := 1 + m.rng.IntN(4)
					m.engine.Rescale(m.job("point"), n)
					m.engine.Rescale(m.job("kept_left"), n)
				}
				m.check()
			}
		})
	}
}

// TestTemporalJoinOfASource: rows that only come are joined once, and neither they nor what they met is kept.
func TestTemporalJoinOfASource(t *testing.T) {
	d := openDB(t, testOptions{})
	d.table("rates", "id int8, rate int8")
	d.source("orders", "id int8, currency int8, ts timestamp", "")
	d.exec("rates +1,10 +2,20")
	d.script.add("a", "1,1,1000", "2,2,2000", "3,3,3000")
	d.view("v", "select o.id, r.rate from orders o left join rates r for system_time as of proctime() on o.currency = r.id", 2)
	shows := func(want ...string) {
		t.Helper()
		d.until("rows come", func() bool { return slices.Equal(d.query("select * from v", 0), want) })
	}
	shows("1,10", "2,20", "3,null")
	d.exec("rates +1,11 -2,0 +3,30")
	d.script.add("a", "4,1,4000", "5,2,5000", "6,3,6000")
	shows("1,10", "2,20", "3,null", "4,11", "5,null", "6,30")
	d.checkpoint()
	d.exec("rates +1,12")
	d.reopen()
	d.script.add("a", "7,1,7000")
	shows("1,10", "2,20", "3,null", "4,11", "5,null", "6,30", "7,12")
	require.True(t, d.relation("v").AppendOnly)
	d.checkpoint()
	require.EqualValues(t, 7, d.job("v").Metrics().LiveEntries, "the rows of the result")
}
