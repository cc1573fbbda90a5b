package exec

import (
	"context"
	"fmt"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/streamdb/streamdb/checkpoint"
	"github.com/streamdb/streamdb/exec/op"
	"github.com/streamdb/streamdb/internal/checkpointrows"
	"github.com/streamdb/streamdb/state"
	"github.com/streamdb/streamdb/types"
)

// numbers returns rows "id,id%keys" for ids from low up to high.
func numbers(low, high, keys int) []string {
	var rows []string
	for i := low; i < high; i++ {
		rows = append(rows, fmt.Sprintf("%d,%d", i, i%keys))
	}
	return rows
}

func (d *testDB) setMode(name string, f func(*checkpoint.JobSettings)) {
	s := d.job(name).Settings()
	f(&s)
	d.job(name).SetSettings(&s)
}

// lastOf returns what is known of the newest checkpoint of a job.
func (d *testDB) lastOf(name string) checkpoint.JobCheckpoint {
	for _, c := range d.coord.Stats().Checkpoints {
		if c.JobName == name {
			return c
		}
	}
	d.t.Fatalf("no checkpoint of %s", name)
	return checkpoint.JobCheckpoint{}
}

// TestBarriersReachAllSubtasks: each subtask of every fragment reports the checkpoint, one whose source is idle too, with its times: those of a subtask with
// one channel tell no alignment.
func TestBarriersReachAllSubtasks(t *testing.T) {
	checkpointrows.Shows(t, 8, 9, 10, 14, 131)
	d := openDB(t, testOptions{})
	d.script.add("a", numbers(0, 100, 4)...)
	d.source("src", "id int8, k int8", "")
	d.view("v", "select k, count(*) as n from src group by k", 3)
	d.until("it is read", func() bool { return len(d.query("select k from v", 0)) == 4 })
	d.checkpoint()
	c := d.lastOf("v")
	require.Equal(t, checkpoint.StatusCompleted, c.Status)
	require.Len(t, c.Subtasks, len(d.job("v").run.subtasks))
	seen := map[string]bool{}
	for _, s := range c.Subtasks {
		require.False(t, seen[fmt.Sprint(s.Operator, s.Subtask)], "twice")
		seen[fmt.Sprint(s.Operator, s.Subtask)] = true
		require.Positive(t, s.StartDelay, "from the trigger")
		require.False(t, s.Unaligned)
		require.Zero(t, s.PersistedBytes)
	}
	for _, run := range d.job("v").run.subtasks {
		if len(run.channels) == 1 {
			for _, s := range c.Subtasks {
				if s.Operator == fmt.Sprint(run.frag.ID) && s.Subtask == run.index {
					require.Less(t, s.Alignment, 10*time.Millisecond, "one channel needs none")
				}
			}
		}
	}
}

// TestAtLeastOnce: no subtask waits at a checkpoint's barrier; nothing is lost in a crash, and where barriers come over one channel nothing counts twice.
func TestAtLeastOnce(t *testing.T) {
	checkpointrows.Shows(t, 6)
	for _, parallelism := range []int{1, 3} {
		t.Run(fmt.Sprint(parallelism), func(t *testing.T) {
			d := openDB(t, testOptions{chunkRows: 16})
			splits := apartAll(parallelism)
			d.source("src", "id int8, k int8", "")
			for i, s := range splits {
				d.script.add(s, numbers(i*1000, i*1000+500, 5)...)
			}
			d.view("v", "select k, count(*) as n from src group by k", parallelism)
			loose := func(s *checkpoint.JobSettings) { s.Mode = checkpoint.AtLeastOnce }
			d.setMode("v", loose)
			for round := range 3 {
				d.checkpoint()
				for _, s := range d.lastOf("v").Subtasks {
					require.Zero(t, s.Alignment)
				}
				for i, s := range splits {
					d.script.add(s, numbers(i*1000+500+100*round, i*1000+600+100*round, 5)...)
				}
				d.checkpoint()
				d.reopen()
				d.setMode("v", loose)
			}
			d.script.end()
			d.until("its end", d.job("v").SourcesEnded)
			got := d.query("select sum(n) as n from v", 0)
			if parallelism == 1 {
				require.Equal(t, []string{"800"}, got)
				return
			}
			var n int
			_, err := fmt.Sscan(got[0], &n)
			require.NoError(t, err)
			require.GreaterOrEqual(t, n, 800*parallelism, "no row is lost")
		})
	}
}

// apartAll returns n splits, each of another subtask of n.
func apartAll(n int) []string {
	out := make([]string, n)
	for i, left := 0, n; left > 0; i++ {
		s := fmt.Sprint("s", i)
		if k := splitOwner(s, n); out[k] == "" {
			out[k] = s
			left--
		}
	}
	return out
}

// TestProcessingGoesOnWhileASnapshotIsWritten: what takes long in the background delays neither rows nor epochs.
func TestProcessingGoesOnWhileASnapshotIsWritten(t *testing.T) {
	checkpointrows.Shows(t, 3, 20)
	d := openDB(t, testOptions{})
	d.source("src", "id int8, k int8", "")
	d.script.add("a", "1,1")
	d.view("v", "select k, count(*) as n from src group by k", 2)
	d.until("it is read", func() bool { return d.answer("select k, n from v", "1,1") != nil })
	require.NoError(t, d.fail.Change("exec/snapshot=delay(1s)*1"))
	began := time.Now()
	done := make(chan error, 1)
	go func() {
		_, err := d.coord.Trigger(context.Background(), nil)
		done <- err
	}()
	d.until("the snapshot has begun", func() bool { return d.fail.Hits("exec/snapshot") > 0 })
	for i := 2; i < 10; i++ {
		d.script.add("a", fmt.Sprint(i, ",1"))
		d.until("the row is visible", func() bool { return d.answer("select k, n from v", fmt.Sprint("1,", i)) != nil })
	}
	require.Less(t, time.Since(began), time.Second, "it is still being written")
	require.NoError(t, <-done)
	require.GreaterOrEqual(t, time.Since(began), time.Second)
	for _, s := range d.lastOf("v").Subtasks {
		require.Less(t, s.Sync, 100*time.Millisecond)
		require.GreaterOrEqual(t, s.Async, time.Second)
	}
}

// TestAbortedCheckpoint: a checkpoint that is given up before its barrier has reached all subtasks is cut by none of those, its epoch is closed all the same,
// and the next one is complete.
func TestAbortedCheckpoint(t *testing.T) {
	checkpointrows.Shows(t, 17)
	d := openDB(t, testOptions{chunkRows: 8})
	d.source("src", "id int8, k int8", "")
	d.script.add("a", "0,0")
	d.view("v", "select k, count(*) as n from src group by k", 2)
	cfg := checkpoint.DefaultConfig()
	cfg.Interval, cfg.GroupWindow, cfg.Timeout, cfg.TolerableFailures = 0, 0, 100*time.Millisecond, 10
	require.NoError(t, d.coord.SetConfig(cfg))
	d.engine.SetSettings(cfg.JobSettings())
	d.until("it is read", func() bool { return len(d.query("select k from v", 0)) == 1 })
	before := d.fail.Hits("exec/take")
	require.NoError(t, d.fail.Change("exec/take=delay(400ms)*2"))
	d.script.add("a", numbers(1, 300, 1)...)
	d.until("a slow subtask", func() bool { return d.fail.Hits("exec/take") > before })
	_, err := d.coord.Trigger(d.ctx(), nil)
	require.Error(t, err)
	require.NoError(t, d.fail.Change("exec/take=off"))
	cfg.Timeout = time.Minute
	require.NoError(t, d.coord.SetConfig(cfg))
	d.engine.SetSettings(cfg.JobSettings())
	d.checkpoint()
	require.EqualValues(t, 1, d.fail.Hits("exec/snapshot"), "nobody wrote the one that was given up")
	d.script.add("a", numbers(300, 400, 1)...)
	d.reopen()
	d.script.end()
	d.until("its end", d.job("v").SourcesEnded)
	require.Equal(t, []string{"0,400"}, d.query("select k, n from v", 0))
}

// TestAbortedWhileItIsWritten: writing the state of a checkpoint ends when the checkpoint is given up, of views and of tables; the job goes on, and the next checkpoint
// has everything.
func TestAbortedWhileItIsWritten(t *testing.T) {
	checkpointrows.Shows(t, 54)
	d := openDB(t, testOptions{})
	d.table("t", "id int8, k int8")
	d.view("v", "select k, count(*) as n from t group by k", 2)
	timeout := func(to time.Duration) {
		cfg := checkpoint.DefaultConfig()
		cfg.Interval, cfg.GroupWindow, cfg.Timeout, cfg.TolerableFailures = 0, 0, to, 10
		require.NoError(t, d.coord.SetConfig(cfg))
		d.engine.SetSettings(cfg.JobSettings())
	}
	timeout(time.Minute)
	epoch := d.exec("t +1,1")
	d.checkpoint()
	points := []string{"exec/snapshot", "state.delta.write"} // the tables come first
	for round, store := range []func() state.Metrics{d.job("v").Metrics, d.engine.tables.store.Metrics} {
		epoch = d.exec(fmt.Sprintf("t +%d,1", round+2))
		d.query("select n from v", epoch)
		timeout(100 * time.Millisecond)
		before := store().DeltasWritten
		require.NoError(t, d.fail.Change(points[round]+"=delay(400ms)"))
		_, err := d.coord.Trigger(d.ctx(), nil)
		require.Equal(t, checkpoint.CheckpointExpired, checkpoint.ReasonOf(err))
		require.Eventually(t, func() bool {
			r := d.job("v").run
			r.mu.Lock()
			defer r.mu.Unlock()
			return len(r.writes) == 0 && d.fail.Hits(points[round]) > 0
		}, 10*time.Second, time.Millisecond)
		d.engine.tables.background.Wait()
		require.Equal(t, before, store().DeltasWritten, round)
		require.NoError(t, d.fail.Change(points[round]+"=off"))
		timeout(time.Minute)
		d.checkpoint()
		require.Equal(t, before+1, store().DeltasWritten)
	}
	require.Zero(t, d.job("v").Restarts())
	d.reopen()
	require.Equal(t, []string{"1,3"}, d.query("select k, n from v", epoch))
}

// TestFinishedSource: a job goes on being checkpointed when one of its sources has ended, also after a restart.
func TestFinishedSource(t *testing.T) {
	checkpointrows.Shows(t, 18, 120)
	d := openDB(t, testOptions{})
	d.table("t", "id int8, k int8")
	d.source("src", "id int8, k int8", "")
	d.script.add("a", numbers(0, 50, 2)...)
	d.view("v", "select k, count(*) as n from (select k from src union all select k from t) as u group by k", 2)
	d.script.end()
	d.until("its source has ended", d.job("v").SourcesEnded)
	for i := range 3 {
		epoch := d.exec(fmt.Sprintf("t +%d,7", i))
		d.checkpoint()
		require.GreaterOrEqual(t, d.covered("v"), epoch)
		require.Equal(t, checkpoint.StatusCompleted, d.lastOf("v").Status)
		d.reopen()
		require.Equal(t, []string{"0,25", "1,25", fmt.Sprint("7,", i+1)}, d.query("select k, n from v", epoch))
	}
}

// TestQueuesAreBounded: what is queued for a channel that waits for others stays within its bounds however long that takes, its sender waits, and all of it
// is given back when the subtask ends.
func TestQueuesAreBounded(t *testing.T) {
	checkpointrows.Shows(t, 12, 13)
	var network atomic.Int64
	b := newInbox(2)
	b.network = &network
	b.block(0)
	chunk := func(rows int) *types.Chunk {
		c := types.NewChunk([]types.Type{types.Int8})
		for i := range rows {
			c.Cols[0].AppendDatum(types.Datum{Type: types.Int8, Int: int64(i)})
			c.PushWeight(1)
		}
		return c
	}
	sent, ended := atomic.Int64{}, make(chan struct{})
	go func() {
		defer close(ended)
		for b.send(0, message{kind: msgChunk, chunk: chunk(1024)}) {
			sent.Add(1)
		}
	}()
	for i := range 1000 { // the other channel goes on all the time
		require.True(t, b.send(1, message{kind: msgWatermark, watermark: op.Watermark{Value: int64(i)}}))
		ch, _, ok, _ := b.take(false)
		require.True(t, ok)
		require.Equal(t, 1, ch)
	}
	require.LessOrEqual(t, sent.Load(), int64(channelCapMessages))
	require.LessOrEqual(t, network.Load(), int64(channelCapMessages*1024*8))
	b.close()
	<-ended
	require.Zero(t, network.Load())
	big := newInbox(1)
	require.True(t, big.send(0, message{kind: msgChunk, chunk: chunk(channelCapBytes / 8)}))
	require.True(t, big.queues[0].full.Load(), "few messages, but many bytes")
}

// TestOperatorsOverdraw: an operator may send some more into a full channel before it has to wait; the subtask takes nothing in until there is room.
func TestOperatorsOverdraw(t *testing.T) {
	checkpointrows.Shows(t, 12)
	b := newInbox(1)
	for range channelCapMessages + channelOverdraft {
		require.True(t, b.sendOver(0, message{kind: msgWatermark}, channelOverdraft))
	}
	require.True(t, b.queues[0].full.Load())
	require.True(t, b.queues[0].over(channelOverdraft), "the next one waits")
	for range channelOverdraft {
		_, _, ok, _ := b.take(false)
		require.True(t, ok)
		require.True(t, b.queues[0].full.Load())
	}
	_, _, ok, _ := b.take(false)
	require.True(t, ok)
	require.False(t, b.queues[0].full.Load())
}

// TestFailureWhileSealing: a subtask that cannot cut its state fails its job, which starts again, exact; it does not only fail the checkpoint.
func TestFailureWhileSealing(t *testing.T) {
	checkpointrows.Shows(t, 61)
	d := openDB(t, testOptions{})
	d.source("src", "id int8, k int8", "")
	d.script.add("a", numbers(0, 100, 2)...)
	d.view("v", "select k, count(*) as n from src group by k", 2)
	d.until("it is read", func() bool { return len(d.query("select k from v", 0)) == 2 })
	require.NoError(t, d.fail.Change("exec/seal=error(broken)*1"))
	_, err := d.coord.Trigger(d.ctx(), []uint64{d.job("v").ID()})
	require.Error(t, err)
	d.until("it runs again", func() bool { return d.job("v").Restarts() == 1 && d.job("v").Status() == JobRunning })
	require.ErrorContains(t, d.job("v").Err(), "broken")
	d.checkpoint()
	d.script.end()
	d.until("its end", d.job("v").SourcesEnded)
	require.Equal(t, []string{"0,50", "1,50"}, d.query("select k, n from v", 0))
}
