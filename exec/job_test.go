package exec

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/streamdb/streamdb/exec/op"
	"github.com/streamdb/streamdb/internal/failpoint"
	"github.com/streamdb/streamdb/state"
	"github.com/streamdb/streamdb/types"

	"github.com/streamdb/streamdb/checkpoint"
)

func decodeInt(r *Relation, row []byte, col int) int64 {
	c := types.NewChunk(r.Types)
	if _, err := types.DecodeRow(row, c.Cols); err != nil {
		panic(err)
	}
	return c.Cols[col].Int[0]
}

// trapOp is an operator that the test puts before another one: it waits, or panics, at the next barrier.
type trapOp struct {
	op.Operator
	mu     sync.Mutex
	hold   chan struct{}
	held   chan struct{}
	panics int
}

func (o *trapOp) Barrier(b checkpoint.Barrier, out op.Emitter) error {
	o.mu.Lock()
	hold, held, panics := o.hold, o.held, o.panics
	o.hold, o.held = nil, nil
	if panics > 0 {
		o.panics--
	}
	o.mu.Unlock()
	if panics > 0 {
		panic("trap")
	}
	if hold != nil {
		close(held)
		<-hold
	}
	return o.Operator.Barrier(b, out)
}

// trap puts a trap before the root of the first subtask of the job's present run. The job must be idle: no barrier is under way.
func (j *Job) trap() *trapOp {
	j.mu.Lock()
	defer j.mu.Unlock()
	for _, t := range j.run.subtasks {
		if t.sink != nil {
			tr := &trapOp{Operator: t.root.op}
			t.root.op = tr
			return tr
		}
	}
	return nil
}

func (j *Job) hold(until chan struct{}) (held chan struct{}) {
	held = make(chan struct{})
	tr := j.trap()
	tr.mu.Lock()
	defer tr.mu.Unlock()
	tr.hold, tr.held = until, held
	return held
}

// viewSet defines views over a table t and a view over a view, with exchanges.
func viewSet(d *testDB, parallelism int) {
	d.table("t", "id int8, k int8, v int8")
	d.table("u", "id int8, name int8")
	d.view("g", "select k, count(*) as n, sum(v) as s, max(v) as m from t group by k", parallelism)
	d.view("j", "select t.id, t.v, u.name from t join u on t.k = u.id", parallelism)
	d.view("gg", "select n, count(*) as c, sum(s) as s from g group by n", parallelism)
	d.view("top", "select k, s from g order by s desc, k limit 3", parallelism)
}

// churn runs n transactions over viewSet's tables.
func churn(d *testDB, from, n int) {
	for i := from; i < from+n; i++ {
		switch i % 5 {
		case 0, 1, 2:
			d.exec(fmt.Sprintf("t +%d,%d,%d +%d,%d,%d", i+1, i%7, i*3%11, i/2, (i+3)%7, i%13))
		case 3:
			d.exec(fmt.Sprintf("t -%d,0,0; u +%d,%d", i/3, i%7, i))
		default:
			d.exec(fmt.Sprintf("u +%d,%d", (i*5)%9, i))
		}
	}
}

// TestBackfillWhileWriting: views that are created while transactions commit miss nothing and double nothing, for any parallelism and chunk size.
func TestBackfillWhileWriting(t *testing.T) {
	for _, chunk := range []int{1, types.MaxChunkRows} {
		for par := 1; par <= 3; par++ {
			t.Run(fmt.Sprintf("chunk %d parallelism %d", chunk, par), func(t *testing.T) {
				d := openDB(t, testOptions{chunkRows: chunk})
				d.table("t", "id int8, v int8")
				rel := d.rel("t")
				stop := make(chan struct{})
				var writer sync.WaitGroup
				writer.Go(func() {
					for i := 0; ; i++ {
						select {
						case <-stop:
							return
						default:
						}
						key, row := encode(rel, fmt.Sprintf("%d,%d", i, i%10))
						if _, err := d.engine.Commit(context.Background(), []TableWrite{{Table: rel, Changes: []Change{{Key: key, New: row}}}}); err != nil {
							t.Error(err)
							return
						}
					}
				})
				for i := range 3 {
					d.view(fmt.Sprintf("v%d", i), "select v, count(*) as n from t group by v", par)
					d.view(fmt.Sprintf("w%d", i), fmt.Sprintf("select v, n from v%d where v > 3", i), par)
				}
				close(stop)
				writer.Wait()
				d.same()
			})
		}
	}
}

// TestRestartAtEveryBarrier: a crash after any transaction, with checkpoints in between, leaves all views equal to their queries.
func TestRestartAtEveryBarrier(t *testing.T) {
	for par := 1; par <= 3; par++ {
		t.Run(fmt.Sprintf("parallelism %d", par), func(t *testing.T) {
			d := openDB(t, testOptions{})
			viewSet(d, par)
			for i := range 12 {
				churn(d, i*3, 3)
				if i%3 == 1 {
					d.checkpoint()
				}
				d.reopen()
				if i > 0 {
					require.NotEqual(t, JobBackfilling, d.job("g").Status())
				}
				d.same()
			}
		})
	}
}

// TestFailureRestartsReaders: after a failure the job and its readers go back to the last checkpoint and come forward again; others go on.
func TestFailureRestartsReaders(t *testing.T) {
	d := openDB(t, testOptions{})
	viewSet(d, 2)
	churn(d, 0, 20)
	d.checkpoint()
	churn(d, 20, 10)
	d.same()
	at := d.covered("g")
	require.Positive(t, at)
	runOf := func(name string) *run {
		j := d.job(name)
		j.mu.Lock()
		defer j.mu.Unlock()
		return j.run
	}
	g, gg, other := runOf("g"), runOf("gg"), runOf("j")
	d.job("g").trap().panics = 1
	churn(d, 30, 5)
	d.wait(g.replaced, "g is replaced")
	d.wait(gg.replaced, "its reader is replaced")
	d.same()
	require.Same(t, other, runOf("j"), "what does not read from it goes on")
	require.NotNil(t, runOf("g").from, "it starts from the checkpoint")
	require.EqualValues(t, at, runOf("g").from.Epoch)
	require.NotNil(t, runOf("gg").from)
	require.ErrorContains(t, d.job("g").Err(), "panic")
	require.Equal(t, 1, d.job("g").Restarts())
	d.checkpoint()
	d.reopen()
	d.same()
}

// TestFailuresWhileAReaderWaits: what a job reads fails more than once while the job itself waits for its next attempt.
func TestFailuresWhileAReaderWaits(t *testing.T) {
	d := openDB(t, testOptions{})
	viewSet(d, 1)
	churn(d, 0, 20)
	d.checkpoint()
	fail := func(name string) *run {
		j := d.job(name)
		j.mu.Lock()
		r := j.run
		j.mu.Unlock()
		j.Fail(errors.New("test"))
		return r
	}
	for range 3 {
		d.wait(fail("gg").replaced, "it starts again")
	}
	fail("gg") // waits longer than the next ones together
	for range 2 {
		d.wait(fail("g").replaced, "what it reads starts again")
	}
	churn(d, 20, 5)
	d.same()
}

// TestFailureBeforeFirstCheckpoint: without a checkpoint views are filled again, readers included.
func TestFailureBeforeFirstCheckpoint(t *testing.T) {
	d := openDB(t, testOptions{})
	viewSet(d, 1)
	churn(d, 0, 20)
	d.same()
	for range 3 {
		d.engine.Recover()
		churn(d, 20, 3)
		d.same()
	}
	d.checkpoint()
	d.engine.Recover()
	d.same()
}

// TestFailedCheckpointWrite: a state that cannot be written declines the checkpoint and restarts the job, and the next one is complete. The tables have
// nothing to write meanwhile: when they fail no view is asked any more.
func TestFailedCheckpointWrite(t *testing.T) {
	d := openDB(t, testOptions{})
	viewSet(d, 1)
	d.source("src", "id int8, k int8", "")
	d.view("fromsrc", "select k, count(*) as n from src group by k", 1)
	churn(d, 0, 10)
	d.same("g", "j", "gg", "top")
	d.checkpoint()
	d.crash()
	fp, err := failpoint.Parse("state.delta.write=error(disk full)*1")
	require.NoError(t, err)
	d.fail = fp
	d.open()
	d.script.add("a", "1,1", "2,1", "3,2")
	d.until("the rows are there", func() bool { return d.job("fromsrc").SourceRows() == 3 })
	_, err = d.coord.Trigger(d.ctx(), []uint64{d.job("fromsrc").ID()}) // by name: one of all goes on without it when it has failed before it is asked
	require.Error(t, err)
	d.until("one has restarted and all run", func() bool {
		restarts := 0
		for _, j := range d.engine.Jobs() {
			if j.Status() != JobRunning {
				return false
			}
			restarts += j.Restarts()
		}
		return restarts > 0
	})
	churn(d, 10, 10)
	d.checkpoint()
	d.reopen()
	d.same("g", "j", "gg", "top")
	e, err := d.engine.clock.tick(d.ctx())
	require.NoError(t, err)
	require.Equal(t, []string{"1,2", "2,1"}, d.query("select k, n from fromsrc", e))
}

// TestDivisionErrorStaysOut: a row whose expression fails is kept as an error, survives a restart, and leaves with its cause.
func TestDivisionErrorStaysOut(t *testing.T) {
	d := openDB(t, testOptions{})
	d.table("t", "id int8, v int8")
	d.view("q", "select id, 100 / v as q from t", 1)
	e := d.exec("t +1,10 +2,0 +3,20")
	require.Equal(t, []string{"1,10", "3,5"}, d.query("select id, q from q", e))
	require.EqualValues(t, 1, d.job("q").ErrorCount())
	d.checkpoint()
	d.reopen()
	require.EqualValues(t, 1, d.job("q").ErrorCount())
	require.Len(t, d.job("q").Errors(), 1)
	e = d.exec("t +2,50")
	require.Equal(t, []string{"1,10", "2,2", "3,5"}, d.query("select id, q from q", e))
	require.Zero(t, d.job("q").ErrorCount())
}

// TestPause: a paused view stands still and delays nobody; checkpoints, a crash and a resume lose nothing.
func TestPause(t *testing.T) {
	d := openDB(t, testOptions{})
	viewSet(d, 1)
	churn(d, 0, 10)
	d.same()
	before := d.query("select k, n from g", d.engine.Epoch())
	d.job("g").Pause()
	d.checkpoint() // nothing has happened since: it takes part
	churn(d, 10, 10)
	d.same("j")
	d.checkpoint()
	d.checkpoint()
	require.Equal(t, before, d.query("select k, n from g", d.engine.Epoch()), "stale, and read without waiting")
	late := d.create("late", "select sum(s) as s from g", 1)
	at := d.engine.Epoch()
	d.until("it has begun to wait for the paused one", func() bool { return late.Status() == JobBackfilling && d.engine.Epoch() > at })
	d.checkpoint() // nor does a checkpoint wait for it
	d.job("g").Resume()
	d.wait(d.job("late").CaughtUp(), "the view over the paused one")
	d.same()
	d.job("g").Pause()
	churn(d, 20, 5)
	d.checkpoint()
	d.reopen()
	d.same()
}

// TestCheckpointThatWasMissed: a job asked for a checkpoint whose epoch it passed declines at once instead of letting everybody wait.
func TestCheckpointThatWasMissed(t *testing.T) {
	d := openDB(t, testOptions{})
	viewSet(d, 1)
	churn(d, 0, 5)
	d.same()
	j := d.job("g")
	acks := &fakeAcker{declined: make(chan uint64, 4)}
	require.NoError(t, d.engine.clock.call(context.Background(), func() {}))
	d.engine.acker = acks
	require.NoError(t, j.Trigger(checkpoint.Barrier{Checkpoint: 77, Epoch: j.published.Load(), Kind: checkpoint.KindCheckpoint}))
	require.EqualValues(t, 77, <-acks.declined)
	// One that the clock has forgotten is met all the same.
	hold := make(chan struct{})
	held := j.hold(hold)
	churn(d, 5, 1)
	d.wait(held, "the job is held")
	e, err := d.engine.BeginCheckpoint(78, checkpoint.Cut{Kind: checkpoint.KindCheckpoint})
	require.NoError(t, err)
	for id := range uint64(keptCheckpoints) {
		_, err := d.engine.BeginCheckpoint(100+id, checkpoint.Cut{Kind: checkpoint.KindCheckpoint})
		require.NoError(t, err)
	}
	acks.acked = make(chan *checkpoint.JobState, 4)
	require.NoError(t, j.Trigger(checkpoint.Barrier{Checkpoint: 78, Epoch: e, Kind: checkpoint.KindCheckpoint}))
	close(hold)
	require.EqualValues(t, 78, (<-acks.acked).Checkpoint)
}

// fakeAcker stands in for the coordinator.
type fakeAcker struct {
	declined chan uint64
	acked    chan *checkpoint.JobState
}

func (a *fakeAcker) Acknowledge(js *checkpoint.JobState) {
	if a.acked != nil && js.Checkpoint == 78 {
		a.acked <- js
	}
}
func (a *fakeAcker) Decline(_, id uint64, _ error) { a.declined <- id }
func (a *fakeAcker) Request(uint64)                {}
func (a *fakeAcker) Refresh()                      {}
func (a *fakeAcker) Restart(context.Context, []uint64) (*checkpoint.Manifest, error) {
	return nil, nil
}

// TestDropWhileBackfilling leaves nothing behind.
func TestDropWhileBackfilling(t *testing.T) {
	d := openDB(t, testOptions{chunkRows: 1})
	d.table("t", "id int8, v int8")
	for i := range 20 {
		var rows []string
		for k := range 100 {
			rows = append(rows, fmt.Sprintf("+%d,%d", i*100+k, k))
		}
		d.exec("t " + strings.Join(rows, " "))
	}
	for range 5 {
		d.create("v", "select v, count(*) as n from t group by v", 2)
		id := d.relation("v").ID
		require.NoError(t, d.engine.DropJob(id))
		d.defs = d.defs[:len(d.defs)-1]
		_, ok := d.engine.Relation(id)
		require.False(t, ok)
		require.NoDirExists(t, d.engine.jobDir(id))
		require.False(t, d.rel("t").Log.HasReaders())
	}
	d.view("v", "select v, count(*) as n from t group by v", 2)
	d.same()
}

// TestDropWhileRestarting: dropping a job that waits for its restart, or is being restarted, leaves nothing behind either.
func TestDropWhileRestarting(t *testing.T) {
	d := openDB(t, testOptions{})
	d.table("t", "id int8, v int8")
	d.exec("t +1,1")
	for i := range 6 {
		j := d.view("v", "select v, count(*) as n from t group by v", 1)
		var others sync.WaitGroup
		if i%2 == 0 {
			j.Fail(fmt.Errorf("trap"))
		} else {
			others.Go(d.engine.Recover)
		}
		id := d.relation("v").ID
		require.NoError(t, d.engine.DropJob(id))
		others.Wait()
		d.defs = d.defs[:len(d.defs)-1]
		require.NoDirExists(t, d.engine.jobDir(id))
		require.False(t, d.rel("t").Log.HasReaders())
	}
}

// TestRescale: a checkpoint of one parallelism is restored with another.
func TestRescale(t *testing.T) {
	d := openDB(t, testOptions{})
	viewSet(d, 2)
	d.script.add("a", "1,1", "2,1", "3,2")
	d.script.add("b", "4,1", "5,2")
	d.source("src", "id int8, k int8", "")
	d.view("fromsrc", "select k, count(*) as n from src group by k", 2)
	d.until("the rows are there", func() bool { return d.job("fromsrc").SourceRows() == 5 })
	churn(d, 0, 20)
	for _, par := range []int{3, 1, 2} {
		d.checkpoint()
		for _, def := range d.defs {
			def.parallelism = par
		}
		d.reopen()
		require.NotNil(t, d.job("g").run.from)
		d.same("g", "j", "gg", "top")
		churn(d, 20*par, 10)
		d.same("g", "j", "gg", "top")
	}
	e, err := d.engine.clock.tick(d.ctx())
	require.NoError(t, err)
	require.Equal(t, []string{"1,3", "2,2"}, d.query("select k, n from fromsrc", e))
}

// TestTinyBudget: state that does not fit is moved to disk by barriers of its own, during the backfill and after.
func TestTinyBudget(t *testing.T) {
	d := openDB(t, testOptions{memory: 1})
	d.shared.Overlay.Add(1 << 40) // memory is short from the start
	defer d.shared.Overlay.Add(-(1 << 40))
	viewSet(d, 2)
	churn(d, 0, 60)
	d.same()
	d.view("again", "select k, sum(v) as s from t group by k", 2)
	d.checkpoint()
	churn(d, 60, 40)
	d.same()
	require.Positive(t, d.job("g").Metrics().DeltasWritten)
	d.shared.Overlay.Add(-(1 << 40))
	d.reopen()
	d.shared.Overlay.Add(1 << 40)
	d.same()
}

// TestMemoryBackend: the same life with state in memory.
func TestMemoryBackend(t *testing.T) {
	d := openDB(t, testOptions{backend: state.BackendMemory})
	viewSet(d, 2)
	churn(d, 0, 20)
	d.checkpoint()
	churn(d, 20, 10)
	d.reopen()
	d.same()
	d.engine.Recover()
	d.same()
}

// TestSlowReaderIsFilledAgain: a view that falls behind its input's change log is filled from the content, and ends up right.
func TestSlowReaderIsFilledAgain(t *testing.T) {
	d := openDB(t, testOptions{changeLog: 2000, noWAL: true})
	d.table("t", "id int8, v int8")
	j := d.view("s", "select count(*) as n, sum(v) as s from t", 1)
	fast := d.view("fast", "select max(v) as m from t", 1)
	hold := make(chan struct{})
	held := j.hold(hold)
	d.exec("t +1,1")
	d.wait(held, "the job is held")
	for i := range 300 {
		e := d.exec(fmt.Sprintf("t +%d,%d", i, i))
		d.query("select m from fast", e)
	}
	require.LessOrEqual(t, d.rel("t").Log.Bytes(), int64(4000))
	close(hold)
	d.same()
	require.Equal(t, 1, j.Restarts())
	require.Zero(t, fast.Restarts(), "who keeps up is left alone")
}
