package exec

import (
	"fmt"
	"os"
	"slices"
	"strconv"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/streamdb/streamdb/checkpoint"
	"github.com/streamdb/streamdb/internal/checkpointrows"
	"github.com/streamdb/streamdb/planner/plan"
	"github.com/streamdb/streamdb/types"
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
	checkpointrows.Shows(t, 2, 5, 19, 21, 27)
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

// stuck makes a view of a source whose rows are held up by a slow operator, and returns when some are queued.
func stuck(d *testDB, parallelism int) {
	d.source("src", "id int8, k int8", "")
	d.script.add("a", "0,0")
	d.view("v", "select id, k from src", parallelism)
	d.view("w", "select k, count(*) as n, sum(id) as s from v group by k", 1)
	d.setMode("v", unalignedAfter(0))
	d.until("it is read", func() bool { return len(d.query("select k from w", 0)) == 1 })
	require.NoError(d.t, d.fail.Change("exec/take=delay(300ms)"))
	before := d.fail.Hits("exec/take")
	d.script.add("a", numbers(1, 20000, 3)...)
	d.until("rows are queued", func() bool { return d.fail.Hits("exec/take") > before && d.engine.network.Load() > 4*1024*16 })
}

func (d *testDB) cutView(name string) {
	d.t.Helper()
	_, err := d.coord.Trigger(d.ctx(), []uint64{d.job(name).ID()})
	require.NoError(d.t, err)
}

// TestUnalignedRestart: a job that fails before it has closed the epoch of its unaligned checkpoint goes on from that, and so do those that read it, in this process as in
// the next; also when it fails again while it takes in what was in flight.
func TestUnalignedRestart(t *testing.T) {
	checkpointrows.Shows(t, 5, 21)
	d := openDB(t, testOptions{chunkRows: 512})
	stuck(d, 2)
	d.cutView("v")
	require.Positive(t, d.lastOf("v").PersistedBytes)
	require.NoError(t, d.fail.Change("exec/take=error(broken)*1"))
	d.until("it starts again", func() bool { return d.job("v").Restarts() > 0 && d.job("v").Status() == JobRunning })
	require.NoError(t, d.fail.Change("exec/take=off"))
	d.reopen()
	d.reopen()
	d.script.end()
	d.until("its end", d.job("v").SourcesEnded)
	require.Equal(t, sums(20000, 3), d.query("select k, n, s from w", d.rel("v").Closed()))
}

// TestUnalignedGivenUp: an unaligned checkpoint that is given up while subtasks collect what is in flight leaves nothing behind; a file that cannot be written fails the
// checkpoint, but is no failure of the job's, and the next one is complete.
func TestUnalignedGivenUp(t *testing.T) {
	checkpointrows.Shows(t, 15, 24)
	d := openDB(t, testOptions{chunkRows: 512})
	stuck(d, 2)
	require.NoError(t, d.fail.Change("exec/channel-state=error(no space)*1"))
	_, err := d.coord.Trigger(d.ctx(), []uint64{d.job("v").ID()})
	require.ErrorContains(t, err, "no space")
	require.Zero(t, d.job("v").Restarts(), "it is not counted")
	d.cutView("v")
	require.Positive(t, d.lastOf("v").PersistedBytes)
	require.NoError(t, d.fail.Change("exec/take=off"))
	d.reopen()
	d.script.end()
	d.until("its end", d.job("v").SourcesEnded)
	require.Equal(t, sums(20000, 3), d.query("select k, n, s from w", d.rel("v").Closed()))
	d.until("all is given back", func() bool { return d.engine.network.Load() == 0 })
}

// TestStaysAligned: savepoints, and jobs with exchanges that give a row to several subtasks, are cut aligned whatever the settings say, and go on at another parallelism.
func TestStaysAligned(t *testing.T) {
	checkpointrows.Shows(t, 25, 26)
	d := openDB(t, testOptions{chunkRows: 64})
	d.table("t", "id int8, lim int8")
	d.source("src", "id int8, k int8", "")
	d.exec("t +0,100 +1,200")
	d.script.add("a", numbers(0, 300, 3)...)
	d.view("v", "select t.id, count(*) as n from src join t on src.id < t.lim group by t.id", 3)
	broadcast := false
	for _, f := range d.job("v").Spec.Plan.Fragments {
		f.Root.Walk(func(n *plan.Node) {
			broadcast = broadcast || n.Kind == plan.KindExchange && n.Exchange.Dist == plan.DistBroadcast
		})
	}
	require.True(t, broadcast, "the plan has changed: the test needs another query")
	d.setMode("v", unalignedAfter(0))
	require.NoError(t, d.fail.Change("exec/take=delay(5ms)"))
	d.script.add("a", numbers(300, 600, 3)...)
	d.checkpoint()
	for _, s := range d.lastOf("v").Subtasks {
		require.False(t, s.Unaligned)
	}
	require.NoError(t, d.fail.Change("exec/take=off"))
	for _, def := range d.defs {
		if def.rel.Name == "v" {
			def.parallelism = 2
		}
	}
	d.reopen()
	d.script.end()
	d.until("its end", d.job("v").SourcesEnded)
	require.Equal(t, []string{"0,100", "1,200"}, d.query("select id, n from v", 0))

	r := newRun(d.job("v"))
	defer r.cancel(nil)
	r.yields, r.backfill = true, false
	d.setMode("v", unalignedAfter(0))
	require.Zero(t, r.hurried(checkpoint.Barrier{Epoch: 9, Checkpoint: 4, Kind: checkpoint.KindSavepoint}))
	require.Nil(t, r.ahead, "savepoints are aligned")
	r.hurried(checkpoint.Barrier{Epoch: 9, Checkpoint: 5, Kind: checkpoint.KindCheckpoint})
	require.NotNil(t, r.ahead, "checkpoints need not be")
}

// TestInflightFiles: the subtasks with rows in flight share files, as many as the setting says; what is not such a file is refused.
func TestInflightFiles(t *testing.T) {
	checkpointrows.Shows(t, 24, 28)
	d := openDB(t, testOptions{})
	d.table("t", "id int8, v text")
	d.view("v", "select id, v from t", 1)
	r := d.job("v").run
	n := r.subtasks[0].nodes[0]
	c := &cut{barrier: checkpoint.Barrier{Checkpoint: 7}}
	for i := range 10 {
		rows := types.NewChunk(n.plan.Schema.Types())
		for k := range 3 {
			rows.Cols[0].AppendDatum(types.Datum{Type: types.Int8, Int: int64(10*i + k)})
			if k == 1 {
				rows.Cols[1].AppendNull()
			} else {
				rows.Cols[1].AppendDatum(types.Datum{Type: types.Text, Str: fmt.Sprint("row ", k)})
			}
			rows.PushWeight(int64(1 - k))
		}
		c.parts = append(c.parts, &taskCut{task: &subtask{index: i}, inflight: []kept{{n, rows}}})
	}
	files, err := r.inflightFiles(c)
	require.NoError(t, err)
	require.Len(t, files, 2, "of five subtasks each")
	at, total := 0, int64(0)
	for _, f := range files {
		sections, err := decodeInflight(f.Name, f.Inline)
		require.NoError(t, err)
		for _, s := range sections {
			require.Equal(t, n.plan.ID, s.node)
			require.Equal(t, at, s.subtask)
			chunks, err := s.chunks(n.plan.Schema.Types())
			require.NoError(t, err)
			require.Equal(t, c.parts[at].inflight[0].rows.String(), chunks[0].String())
			at++
		}
		for cut := range len(f.Inline) {
			_, err := decodeInflight(f.Name, f.Inline[:cut])
			require.Error(t, err, "cut off")
		}
		broken := slices.Clone(f.Inline)
		broken[len(broken)/2] ^= 4
		_, err = decodeInflight(f.Name, broken)
		require.ErrorContains(t, err, "checksum")
		newer := slices.Clone(f.Inline)
		newer[11] = 9
		_, err = decodeInflight(f.Name, newer)
		require.ErrorContains(t, err, "format version 9")
		total += f.Size
	}
	require.Equal(t, 10, at)
	for _, p := range c.parts {
		total -= p.stats.PersistedBytes
	}
	require.Zero(t, total, "the sizes are those of the files")

	other := &run{job: r.job, engine: r.engine, settling: true, from: &checkpoint.JobState{Checkpoint: 7, Inflight: files}}
	require.ErrorContains(t, other.loadInflight(), fmt.Sprintf("operator %d have nowhere to go", n.plan.ID))
}

// TestWindowsAndUnaligned: a job whose windows close by watermarks has the same windows with unaligned checkpoints and crashes as without: it is cut aligned, and
// watermarks are part of the checkpoint.
func TestWindowsAndUnaligned(t *testing.T) {
	checkpointrows.Shows(t, 30)
	windows := func(crash bool) []string {
		d := openDB(t, testOptions{chunkRows: 4})
		a, b := apart(2)
		d.script.add(a, "1000,-9000000")
		d.script.add(b, "1001,-9000000")
		d.source("src", "id int8, ts timestamp", "ts ts")
		d.view("w", "select window_start, count(*) as n from tumble(src, ts, interval '1 second') group by window_start, window_end emit on window close", 2)
		for i := range 4 {
			d.setMode("w", unalignedAfter(0))
			d.script.add(a, fmt.Sprintf("%d,%d", 10*i, 700000*i), fmt.Sprintf("%d,%d", 10*i+1, 700000*i+300000))
			d.script.add(b, fmt.Sprintf("%d,%d", 10*i+2, 700000*i+100000), fmt.Sprintf("%d,%d", 10*i+3, 700000*i+350000))
			if !crash {
				continue
			}
			d.checkpoint()
			for _, s := range d.lastOf("w").Subtasks {
				require.False(t, s.Unaligned)
			}
			d.reopen()
		}
		d.script.end()
		d.until("its end", d.job("w").SourcesEnded)
		require.Empty(t, d.job("w").Errors(), "no row was late")
		return d.query("select window_start, n from w", 0)
	}
	require.Equal(t, windows(false), windows(true))
}

// TestReadsChannelStateVersion1: rows in flight of format version 1, as they were written first, stay readable.
func TestReadsChannelStateVersion1(t *testing.T) {
	data, err := os.ReadFile("../testdata/compat/channel-state-v1/inflight")
	require.NoError(t, err)
	sections, err := decodeInflight("sample", data)
	require.NoError(t, err)
	require.Len(t, sections, 5)
	chunks, err := sections[4].chunks([]types.Type{types.Int8, types.Text})
	require.NoError(t, err)
	want := types.NewChunk([]types.Type{types.Int8, types.Text})
	for k := range 3 {
		want.Cols[0].AppendDatum(types.Datum{Type: types.Int8, Int: int64(40 + k)})
		if k == 1 {
			want.Cols[1].AppendNull()
		} else {
			want.Cols[1].AppendDatum(types.Datum{Type: types.Text, Str: fmt.Sprint("row ", k)})
		}
		want.PushWeight(int64(1 - k))
	}
	require.Equal(t, want.String(), chunks[0].String())
}

// TestWithoutInflight: rows that were in flight can be left out, on demand: what is lost then are those and no others, and the checkpoint stays as it is.
func TestWithoutInflight(t *testing.T) {
	checkpointrows.Shows(t, 28, 29)
	d := openDB(t, testOptions{chunkRows: 512})
	stuck(d, 2)
	d.cutView("v")
	m := d.coord.Latest().Jobs[d.job("v").ID()]
	d.script.end()
	lost := 0
	for _, h := range m.Inflight {
		sections, err := decodeInflight(h.Name, h.Inline)
		require.NoError(t, err)
		for _, s := range sections {
			lost += s.rows
		}
	}
	require.Positive(t, lost)
	require.NoError(t, d.fail.Change("exec/take=off"))
	d.opts.without = m.Checkpoint
	d.reopen()
	require.Equal(t, m.Inflight, d.coord.Latest().Jobs[d.job("v").ID()].Inflight)
	d.until("its end", d.job("v").SourcesEnded)
	require.Equal(t, []string{strconv.Itoa(20000 - lost)}, d.query("select count(*) as n from v", 0))
	d.until("its reader has the same", func() bool { return d.answer("select sum(n) as n from w", strconv.Itoa(20000-lost)) != nil })
}
