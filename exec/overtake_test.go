package exec

import (
	"fmt"
	"strconv"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/streamdb/streamdb/checkpoint"
	"github.com/streamdb/streamdb/internal/checkpointrows"
)

func unalignedAfter(timeout time.Duration) func(*checkpoint.JobSettings) {
	return func(s *checkpoint.JobSettings) { s.Unaligned, s.AlignedTimeout = true, timeout }
}

// TestUnalignedUnderBackpressure: while a slow operator holds up what is queued in front of it, an aligned checkpoint waits for all of that and an unaligned one
// does not; nor does one whose time to be aligned is over. Rows of a table that the job has not read yet are in it, too. After a crash the result is that of a run without one.
func TestUnalignedUnderBackpressure(t *testing.T) {
	checkpointrows.Shows(t, 5, 12, 13, 21, 22, 23)
	for _, timeout := range []time.Duration{0, 200 * time.Millisecond} {
		t.Run(timeout.String(), func(t *testing.T) {
			d := openDB(t, testOptions{chunkRows: 512})
			d.source("src", "id int8, k int8", "")
			d.table("t", "id int8, k int8")
			d.script.add("a", "0,0")
			d.view("v", "select id, k from src union all select id, k from t", 2)
			d.setMode("v", unalignedAfter(timeout))
			d.until("it is read", func() bool { return len(d.query("select k from v", 0)) == 1 })
			if timeout > 0 {
				d.checkpoint()
				for _, s := range d.lastOf("v").Subtasks {
					require.False(t, s.Unaligned, "nothing holds it up")
				}
			}
			require.NoError(t, d.fail.Change("exec/take=delay(300ms)"))
			before := d.fail.Hits("exec/take")
			d.script.add("a", numbers(1, 20000, 3)...)
			d.until("rows are queued", func() bool { return d.fail.Hits("exec/take") > before && d.engine.network.Load() > 4*1024*16 })
			d.exec("t +-1,7 +-2,7")
			began := time.Now()
			d.checkpoint()
			require.Less(t, time.Since(began), 3*time.Second)
			c := d.lastOf("v")
			unaligned := 0
			for _, s := range c.Subtasks {
				if s.Unaligned {
					unaligned++
					require.Zero(t, s.Alignment)
				}
			}
			require.Positive(t, unaligned)
			require.Greater(t, c.PersistedBytes, int64(4*1024*4), "what was queued")
			stored := int64(0)
			for _, h := range d.coord.Latest().Jobs[d.job("v").ID()].Inflight {
				stored += h.Size
			}
			require.Equal(t, stored, c.PersistedBytes)
			require.GreaterOrEqual(t, c.CheckpointedSize, c.PersistedBytes, "it is part of the size")
			require.GreaterOrEqual(t, c.UploadedBytes, c.PersistedBytes)
			require.Less(t, d.job("v").published.Load(), c.Epoch, "the epoch is not closed yet")
			require.NoError(t, d.fail.Change("exec/take=off"))
			d.reopen()
			d.script.end()
			d.until("its end", d.job("v").SourcesEnded)
			require.Equal(t, append(sums(20000, 3), "7,2,-3"), d.query("select k, count(*) as n, sum(id) as s from v group by k", 0))
			require.Zero(t, d.engine.network.Load())
		})
	}
}

// sums is the reference of count and sum per key of ids up to n.
func sums(n, keys int) []string {
	var out []string
	for k := range keys {
		count, sum := 0, 0
		for i := k; i < n; i += keys {
			count++
			sum += i
		}
		out = append(out, fmt.Sprintf("%d,%d,%d", k, count, sum))
	}
	return out
}

// TestUnalignedKills: sources, tables, joins and aggregates over each other, at several parallelisms, with a slow operator, checkpoints at any time, and crashes: the
// result stays exact, and a view that reads the other one stays right, too.
func TestUnalignedKills(t *testing.T) {
	checkpointrows.Shows(t, 2, 5, 21, 27)
	for _, c := range []struct {
		name  string
		query string
		want  string // over the tables that the sources are copies of
	}{
		{"aggregate", "select k, count(*) as n, sum(id) as s from src group by k", "select k, count(*) as n, sum(id) as s from ref group by k"},
		{"aggregate of an aggregate", "select n, count(*) as c from (select k, count(*) as n from src group by k) as g group by n", "select n, count(*) as c from (select k, count(*) as n from ref group by k) as g group by n"},
		{"join with a table", "select t.v, count(*) as n from src join t on src.k = t.id group by t.v", "select t.v, count(*) as n from ref join t on ref.k = t.id group by t.v"},
		{"rows of a join", "select src.id as a, t.v from src left join t on src.k = t.id", "select ref.id as a, t.v from ref left join t on ref.k = t.id"},
		{"union", "select k from src union all select v as k from t", "select k from ref union all select v as k from t"},
	} {
		t.Run(c.name, func(t *testing.T) {
			for _, parallelism := range []int{1, 3} {
				t.Run(strconv.Itoa(parallelism), func(t *testing.T) {
					d := openDB(t, testOptions{chunkRows: 64})
					d.table("t", "id int8, v int8")
					d.table("ref", "id int8, k int8")
					d.source("src", "id int8, k int8", "")
					d.exec("t +0,7 +1,8 +2,7")
					splits := apartAll(parallelism)
					d.view("v", c.query, parallelism)
					d.view("w", "select count(*) as n from v", 1)
					next, unaligned := 0, 0
					for round := range 6 {
						d.setMode("v", unalignedAfter(time.Duration(round%3)*5*time.Millisecond))
						d.setMode("w", unalignedAfter(0))
						require.NoError(t, d.fail.Change("exec/take=delay(2ms)"))
						for _, s := range splits {
							d.script.add(s, numbers(next, next+400, 5)...)
							next += 400
						}
						d.exec(fmt.Sprintf("t +%d,%d +%d,9", 3+round%2, round, round%3))
						d.checkpoint()
						for _, s := range d.lastOf("v").Subtasks {
							if s.Unaligned {
								unaligned++
							}
						}
						if round%2 == 0 {
							d.exec(fmt.Sprintf("t -%d", round%3) + ",0")
						}
						require.NoError(t, d.fail.Change("exec/take=off"))
						if round == 3 && parallelism > 1 {
							for _, def := range d.defs {
								if def.rel.Name == "v" {
									def.parallelism = 5 - round%2 // another parallelism
								}
							}
						}
						d.reopen()
					}
					d.script.end()
					d.until("its end", d.job("v").SourcesEnded)
					for at := 0; at < next; at += 100 {
						var rows string
						for _, r := range numbers(at%400+at/400*400, at%400+at/400*400+100, 5) {
							rows += " +" + r
						}
						d.exec("ref" + rows)
					}
					epoch := d.exec("ref +0,0")
					want := d.query(c.want, epoch)
					d.until("all is there", func() bool { return len(d.query("select * from v", 0)) == len(want) })
					require.Equal(t, want, d.query("select "+visible(d.relation("v"))+" from v", 0))
					require.Equal(t, []string{strconv.Itoa(len(want))}, d.query("select n from w", d.rel("v").Closed()))
					require.Positive(t, unaligned, "some were unaligned")
					require.Zero(t, d.job("w").Restarts()+d.job("v").Restarts())
				})
			}
		})
	}
}
