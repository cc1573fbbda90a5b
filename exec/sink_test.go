package exec

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/streamdb/streamdb/checkpoint"
	"github.com/streamdb/streamdb/connector"
	"github.com/streamdb/streamdb/internal/checkpointrows"
	"github.com/streamdb/streamdb/internal/failpoint"
	"github.com/streamdb/streamdb/planner"
	"github.com/streamdb/streamdb/state"
	"github.com/streamdb/streamdb/types"
)

// model is a target outside of the database: it outlives crashes, and counts what becomes visible.
type model struct {
	mu       sync.Mutex
	opened   int
	staged   map[string][]string // durable, not visible
	done     map[string]bool
	visible  map[string]int               // rows, with how often
	byKey    map[string]map[string]string // by sink and key
	commits  int                          // calls of Commit that had something to do
	lost     []string
	broken   int // how often it still cannot be opened
	failing  int // calls of Commit that fail still, half way
	flushing int // calls of flush that fail still
}

func newModel() *model {
	return &model{staged: map[string][]string{}, done: map[string]bool{}, visible: map[string]int{}, byKey: map[string]map[string]string{}}
}

func (m *model) rows() map[string]int {
	m.mu.Lock()
	defer m.mu.Unlock()
	return maps.Clone(m.visible)
}

// keyed are the rows of an upsert sink.
func (m *model) keyed(sink string) []string {
	m.mu.Lock()
	defer m.mu.Unlock()
	return slices.Sorted(maps.Values(m.byKey[sink]))
}

func (m *model) Name() string                    { return "model" }
func (m *model) Options() []connector.Option     { return nil }
func (m *model) Encodings() []connector.Encoding { return nil }
func (m *model) Modes() []connector.SinkMode {
	return []connector.SinkMode{connector.AppendOnly, connector.Upsert}
}
func (m *model) Check(context.Context, *connector.SinkConfig) error { return nil }
func (m *model) Sink(cfg *connector.SinkConfig) (connector.Sink, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.broken > 0 {
		m.broken--
		return nil, fmt.Errorf("no such target")
	}
	m.opened++
	return &modelSink{m: m, cfg: cfg, own: fmt.Sprintf("%s-%d-", cfg.ID, m.opened)}, nil
}

type modelSink struct {
	m   *model
	cfg *connector.SinkConfig
	own string
}

func (s *modelSink) Writer(subtask int) (connector.SinkWriter, error) {
	return &modelWriter{s: s, subtask: subtask}, nil
}

func (s *modelSink) Recover(_ context.Context, _ uint64, known *connector.Committables) error {
	s.m.mu.Lock()
	defer s.m.mu.Unlock()
	keep := map[string]bool{}
	if err := known.Each(func(_ uint64, c []byte) error { keep[string(c)] = true; return nil }); err != nil {
		return err
	}
	for n := range s.m.staged {
		if strings.HasPrefix(n, s.cfg.ID) && !keep[n] && !strings.HasPrefix(n, s.own) {
			delete(s.m.staged, n)
		}
	}
	return nil
}

func (s *modelSink) Abandon(ctx context.Context) error {
	return s.Recover(ctx, 0, &connector.Committables{Each: func(func(uint64, []byte) error) error { return nil }})
}

func (s *modelSink) Commit(_ context.Context, _ uint64, list *connector.Committables) error {
	m := s.m
	m.mu.Lock()
	defer m.mu.Unlock()
	i, worked := 0, false
	err := list.Each(func(_ uint64, c []byte) error {
		if i++; i == 2 {
			if m.failing > 0 {
				m.failing--
				return fmt.Errorf("the target went away")
			}
			if err := s.cfg.Failpoints.Hit("sink/half-commit"); err != nil {
				return err
			}
		}
		rows, ok := m.staged[string(c)]
		if !ok {
			if !m.done[string(c)] {
				m.lost = append(m.lost, string(c))
			}
			return nil
		}
		worked = true
		for _, r := range rows {
			key, _, _ := strings.Cut(r[1:], ",")
			if s.cfg.Mode == connector.AppendOnly {
				m.visible[r[1:]]++
				continue
			}
			of := m.byKey[s.cfg.Name]
			if of == nil {
				of = map[string]string{}
				m.byKey[s.cfg.Name] = of
			}
			if delete(of, key); r[0] == '+' {
				of[key] = r[1:]
			}
		}
		delete(m.staged, string(c))
		m.done[string(c)] = true
		return nil
	})
	if worked {
		m.commits++
	}
	return err
}

func (s *modelSink) Close() error { return nil }

type modelWriter struct {
	s       *modelSink
	subtask int
	rows    []string
}

func (w *modelWriter) Write(_ context.Context, c *types.Chunk) ([][]byte, error) {
	for i := range c.Rows() {
		r := c.Row(i)
		var vals []string
		for _, v := range c.Cols {
			vals = append(vals, string(types.AppendText(nil, types.DefaultFormat(), v, r)))
		}
		sign := "+"
		if c.Weight(r) < 0 {
			sign = "-"
		}
		w.rows = append(w.rows, sign+strings.Join(vals, ","))
	}
	return nil, nil
}

// Seal makes two transactions, so that a commit can be half done.
func (w *modelWriter) Seal(name string) (out [][]byte, flush func(context.Context) error, err error) {
	if len(w.rows) == 0 {
		return nil, nil, nil
	}
	staged := map[string][]string{}
	for i, rows := range [][]string{w.rows[:len(w.rows)/2], w.rows[len(w.rows)/2:]} {
		n := fmt.Sprintf("%s%s-%d-%d", w.s.own, name, w.subtask, i)
		staged[n] = rows
		out = append(out, []byte(n))
	}
	w.rows = nil
	return out, func(context.Context) error {
		w.s.m.mu.Lock()
		defer w.s.m.mu.Unlock()
		if w.s.m.flushing > 0 {
			w.s.m.flushing--
			return fmt.Errorf("the target cannot be written")
		}
		maps.Copy(w.s.m.staged, staged)
		return nil
	}, nil
}

func (w *modelWriter) Close() error { return nil }

// sink defines a sink over a query and starts its job. key is a column, "" makes it append-only.
func (d *testDB) sink(name, query, key string, exactly bool, parallelism int) *Job {
	d.t.Helper()
	id := d.id()
	o := d.planOptions(id, parallelism)
	o.Sink = &planner.Sink{Name: name}
	spec := &SinkSpec{Name: name, ID: name + "-", Options: map[string]string{connector.OptionConnector: "model"}, Mode: connector.AppendOnly, ExactlyOnce: exactly}
	if key != "" {
		o.Sink.PrimaryKey, spec.Mode = []string{key}, connector.Upsert
	}
	p, err := planner.PlanStream(d.parse(query), o)
	require.NoError(d.t, err, query)
	def := &definition{
		rel: &planner.Relation{ID: id, Schema: "public", Name: name, Kind: planner.System}, plan: p.Plan, parallelism: parallelism, sink: spec,
	}
	spec.Columns = p.Columns
	j, err := d.engine.CreateJob(d.spec(def), nil)
	require.NoError(d.t, err)
	d.defs = append(d.defs, def)
	j.Start()
	return j
}

// once waits until the target has exactly the rows 0 … n-1, each once.
func (d *testDB) once(n int) {
	d.t.Helper()
	want := map[string]int{}
	for i := range n {
		want[fmt.Sprintf("%d,%d", i, i%7)] = 1
	}
	d.until(fmt.Sprintf("the target has %d rows", n), func() bool { return len(d.model.rows()) >= n })
	require.Equal(d.t, want, d.model.rows())
	require.Empty(d.t, d.model.lost)
}

func (d *testDB) feed(from, to int) {
	for i := from; i < to; i++ {
		d.script.add(fmt.Sprintf("s%d", i%3), fmt.Sprintf("%d,%d", i, i%7))
	}
	d.engine.wakeSources()
}

// checkpointed waits until all rows were read, and makes a checkpoint then.
func (d *testDB) checkpointed() {
	d.t.Helper()
	d.allRead()
	d.checkpoint()
}

func (d *testDB) allRead() {
	d.t.Helper()
	d.until("the rows are read", func() bool { return d.script.unread() == 0 })
}

// faults opens the database anew with failpoints in place, none when empty.
func (d *testDB) faults(spec string) {
	d.t.Helper()
	d.crash()
	d.fail = failpoint.New()
	require.NoError(d.t, d.fail.Change(spec))
	d.open()
}

// TestSinkKilledAtEveryStep: a sink has every row once, wherever the process ends between a row and its commit, and with another parallelism after that.
func TestSinkKilledAtEveryStep(t *testing.T) {
	checkpointrows.Shows(t, 123)
	for _, step := range []string{
		"sink/before-precommit", "sink/after-precommit", "checkpoint/before-upload", "checkpoint/after-upload", "checkpoint/after-manifest", "checkpoint/after-head",
		"checkpoint/before-notify", "sink/before-commit", "sink/half-commit", "sink/after-commit",
	} {
		t.Run(step, func(t *testing.T) {
			d := openDB(t, testOptions{})
			d.source("src", "id int8, v int8", "")
			d.feed(0, 20)
			d.sink("out", "select id, v from src", "", true, 2)
			d.checkpointed()
			d.once(20)
			for i, par := range []int{3, 1, 2} {
				n := 20 + 20*i
				d.faults(step + "=error(the end)")
				d.feed(n, n+20)
				d.allRead()
				go func(coord *checkpoint.Coordinator) { _, _ = coord.Trigger(d.ctx(), nil) }(d.coord)
				d.until("the step is reached", func() bool { return d.fail.Hits(step) > 0 })
				for _, def := range d.defs {
					def.parallelism = par
				}
				d.faults("")
				d.checkpointed()
				d.once(n + 20)
			}
		})
	}
}

// TestLostNotificationsAndAbortedCheckpoints: the next notification that arrives commits all that came before it.
func TestLostNotificationsAndAbortedCheckpoints(t *testing.T) {
	checkpointrows.Shows(t, 53, 125)
	d := openDB(t, testOptions{})
	d.source("src", "id int8, v int8", "")
	j := d.sink("out", "select id, v from src", "", true, 2)
	d.feed(0, 10)
	d.checkpointed()
	d.once(10)
	commits := d.model.commits
	require.NoError(t, d.fail.Change("checkpoint/before-notify=error(lost)*2"))
	for i := range 2 { // durable, and nobody is told
		d.feed(10+10*i, 20+10*i)
		d.checkpointed()
	}
	d.model.mu.Lock()
	d.model.flushing = 1 // the next one fails before it is durable
	d.model.mu.Unlock()
	d.feed(30, 40)
	d.allRead()
	_, err := d.coord.Trigger(d.ctx(), []uint64{j.Spec.ID})
	require.ErrorContains(t, err, "the target cannot be written")
	require.Equal(t, commits, d.model.commits)
	require.Len(t, d.model.rows(), 10)
	d.feed(40, 50)
	d.checkpointed()
	d.once(50)
	require.Equal(t, commits+1, d.model.commits, "one commit of all of it")
	require.Zero(t, j.Restarts())
}

// TestSavepointsCommitNothing: what a savepoint has sealed appears with the next checkpoint.
func TestSavepointsCommitNothing(t *testing.T) {
	checkpointrows.Shows(t, 102)
	d := openDB(t, testOptions{})
	d.source("src", "id int8, v int8", "")
	j := d.sink("out", "select id, v from src", "", true, 1)
	d.feed(0, 10)
	d.checkpointed()
	d.once(10)
	d.feed(10, 20)
	d.allRead()
	commits := d.model.commits
	_, err := d.coord.Savepoint(d.ctx(), checkpoint.SavepointRequest{Jobs: []uint64{j.Spec.ID}, Spec: checkpoint.SavepointSpec{Target: "file://" + t.TempDir()}})
	require.NoError(t, err)
	require.True(t, j.run.sink.idle(), "nothing waits for its commit")
	require.Equal(t, commits, d.model.commits)
	require.Len(t, d.model.rows(), 10)
	d.checkpoint()
	d.once(20)
	// A crash after a savepoint goes back to the checkpoint before it: what the savepoint had sealed is written again, once.
	d.feed(20, 30)
	d.allRead()
	_, err = d.coord.Savepoint(d.ctx(), checkpoint.SavepointRequest{Jobs: []uint64{j.Spec.ID}, Spec: checkpoint.SavepointSpec{Target: "file://" + t.TempDir()}})
	require.NoError(t, err)
	d.reopen()
	d.checkpointed()
	d.once(30)
}

// TestBoundedSinksCommitTheirLastRows: no periodic checkpoint is made here, and none is asked for.
func TestBoundedSinksCommitTheirLastRows(t *testing.T) {
	checkpointrows.Shows(t, 121)
	d := openDB(t, testOptions{})
	d.source("src", "id int8, v int8", "")
	d.view("m", "select id, v from src", 1)
	d.feed(0, 30)
	d.script.end()
	d.sink("out", "select id, v from src", "", true, 2)
	d.once(30)
	t.Run("through a view", func(t *testing.T) {
		d := openDB(t, testOptions{})
		d.source("src", "id int8, v int8", "")
		d.feed(0, 10)
		d.view("m", "select id, v from src", 1)
		d.sink("out", "select id, v from m", "", true, 2)
		d.feed(10, 30)
		d.script.end()
		d.engine.wakeSources()
		d.once(30)
	})
	t.Run("made after the end", func(t *testing.T) {
		d := openDB(t, testOptions{})
		d.source("src", "id int8, v int8", "")
		d.feed(0, 30)
		d.script.end()
		d.view("m", "select id, v from src", 1)
		d.sink("out", "select id, v from m", "", true, 2)
		d.once(30)
	})
}

// TestCommitsAreTriedAgain: a target that is away for a while restarts nothing, and a commit that broke off in the middle is completed.
func TestCommitsAreTriedAgain(t *testing.T) {
	d := openDB(t, testOptions{})
	d.source("src", "id int8, v int8", "")
	j := d.sink("out", "select id, v from src", "", true, 2)
	d.model.failing = 3
	d.feed(0, 20)
	d.checkpointed()
	d.until("the failure is told", func() bool { return j.Err() != nil })
	require.ErrorContains(t, j.Err(), "the target went away")
	d.once(20)
	require.Zero(t, j.Restarts())
	d.until("the trouble is over", func() bool { return j.Err() == nil })
	// Another target, and another start, of the same rows.
	spec := *j.target.Load()
	d.engine.SetSink(j, &spec)
	d.feed(20, 30)
	d.checkpointed()
	d.once(30)
}

// TestUpsertSink: the target holds what the query gives at every completed checkpoint, through changes, crashes, another parallelism, and changes of one key within an epoch.
func TestUpsertSink(t *testing.T) {
	d := openDB(t, testOptions{})
	viewSet(d, 2)
	d.sink("keyed", "select k, s from g", "k", true, 2)
	d.sink("other", "select v as w, count(*) as n from t group by v", "w", true, 2)
	same := func() {
		t.Helper()
		d.same()
		d.checkpoint()
		d.until("all is committed", func() bool { return d.job("keyed").run.sink.idle() && d.job("other").run.sink.idle() })
	}
	for i, par := range []int{2, 3, 1} {
		churn(d, 20*i, 20)
		same()
		require.Equal(t, d.query("select k, s from g", d.engine.Epoch()), d.model.keyed("keyed"))
		require.Equal(t, d.query("select v, count(*) from t group by v", d.engine.Epoch()), d.model.keyed("other"))
		churn(d, 20*i+20, 3) // lost in the crash for the sink, and written again
		for _, def := range d.defs {
			def.parallelism = par
		}
		d.reopen()
	}
	d.same()
	d.checkpoint()
	d.until("all is committed", func() bool {
		return strings.Join(d.query("select k, s from g", d.engine.Epoch()), " ") == strings.Join(d.model.keyed("keyed"), " ")
	})
}

// TestAtLeastOnceSink: rows appear without any checkpoint, and all of them after a crash.
func TestAtLeastOnceSink(t *testing.T) {
	d := openDB(t, testOptions{})
	d.source("src", "id int8, v int8", "")
	d.sink("out", "select id, v from src", "", false, 2)
	d.feed(0, 20)
	d.until("rows appear", func() bool { return len(d.model.rows()) == 20 })
	d.checkpointed()
	d.feed(20, 30)
	d.until("rows appear", func() bool { return len(d.model.rows()) == 30 })
	d.reopen()
	d.feed(30, 40)
	d.until("rows appear", func() bool { return len(d.model.rows()) == 40 })
	require.Empty(t, d.model.lost)
	for i := range 20 {
		require.Equal(t, 1, d.model.rows()[fmt.Sprintf("%d,%d", i, i%7)], "a checkpoint has it")
	}
}

// TestSinkBehindItsInput: a sink whose input has forgotten changes says so, and writes nothing twice.
func TestSinkBehindItsInput(t *testing.T) {
	d := openDB(t, testOptions{changeLog: 2000, noWAL: true})
	d.table("t", "id int8, v int8")
	j := d.sink("out", "select id, v from t", "id", true, 1)
	d.exec("t +1,1")
	d.wait(j.CaughtUp(), "the sink catches up")
	d.checkpoint()
	j.Pause()
	for i := range 300 {
		d.exec(fmt.Sprintf("t +%d,%d", i, i))
	}
	j.Resume()
	d.until("it says so", func() bool { return j.Err() != nil && strings.Contains(j.Err().Error(), "cannot go on") })
	require.Equal(t, []string{"1,1"}, d.model.keyed("out"))
}

// TestSinkThatCannotBeOpened holds up nobody at the start of the database, and goes on when it can be.
func TestSinkThatCannotBeOpened(t *testing.T) {
	d := openDB(t, testOptions{})
	d.source("src", "id int8, v int8", "")
	d.sink("out", "select id, v from src", "", true, 2)
	d.feed(0, 10)
	d.checkpointed()
	d.once(10)
	d.model.broken = 1
	d.feed(10, 20)
	d.reopen()
	d.until("it says why", func() bool { return d.job("out").Err() != nil })
	require.ErrorContains(t, d.job("out").Err(), "no such target")
	d.checkpointed()
	d.once(20)
}

// TestReaderThatCannotBegin: what a job misses of its inputs stays while it cannot begin, after a crash and when it starts again. A sink that has each row once goes on.
func TestReaderThatCannotBegin(t *testing.T) {
	for name, again := range map[string]func(d *testDB){
		"crash":   func(d *testDB) { d.crash(); d.open() },
		"restart": func(d *testDB) { d.job("out").Fail(errors.New("the end")) },
	} {
		t.Run(name, func(t *testing.T) {
			d := openDB(t, testOptions{})
			d.table("t", "id int8, v int8")
			d.view("m", "select id, v from t", 1)
			d.sink("out", "select id, v from m", "id", true, 1)
			d.exec("t +1,1")
			d.wait(d.job("out").CaughtUp(), "the sink catches up")
			d.checkpoint()
			d.exec("t +2,2")
			d.model.mu.Lock()
			d.model.broken = 2
			d.model.mu.Unlock()
			again(d)
			d.until("it says why", func() bool {
				return d.job("out").Err() != nil && strings.Contains(d.job("out").Err().Error(), "no such target")
			})
			d.exec("t +3,3")
			d.until("it goes on", func() bool {
				d.checkpoint()
				return slices.Equal([]string{"1,1", "2,2", "3,3"}, d.model.keyed("out"))
			})
		})
	}
}

// TestSinkOverAViewWhoseStateComesLater: a view that an exactly-once sink reads is not computed again while the store does not answer: the sink could not go on.
func TestSinkOverAViewWhoseStateComesLater(t *testing.T) {
	d := openDB(t, testOptions{backend: state.BackendPebble})
	d.table("t", "id int8, v int8")
	d.view("m", "select id, sum(v) as v from t group by id", 1)
	d.sink("out", "select id, v from m", "id", true, 1)
	const rows = 3000 // more than fit into a manifest
	stmt := "t"
	for i := range rows {
		stmt += fmt.Sprintf(" +%d,1", i*i*7919)
	}
	d.exec(stmt)
	d.wait(d.job("out").CaughtUp(), "the sink catches up")
	d.checkpoint()
	d.exec("t +-2,2")
	d.crash()
	d.away.Store(3)
	d.open()
	d.until("it goes on", func() bool {
		d.checkpoint()
		return len(d.model.keyed("out")) == rows+1
	})
	require.Negative(t, d.away.Load())
	require.NotNil(t, d.job("m").Restored())
}

// TestSinkOverAViewWhoseFolderCannotBeMade: trouble of the local disk passes, too.
func TestSinkOverAViewWhoseFolderCannotBeMade(t *testing.T) {
	d := openDB(t, testOptions{backend: state.BackendPebble})
	d.table("t", "id int8, v int8")
	d.view("m", "select id, sum(v) as v from t group by id", 1)
	d.sink("out", "select id, v from m", "id", true, 1)
	d.exec("t +1,1 +2,1")
	d.wait(d.job("out").CaughtUp(), "the sink catches up")
	d.checkpoint()
	d.exec("t +3,1")
	folder := d.engine.jobDir(d.relation("m").ID)
	d.crash()
	require.NoError(t, os.RemoveAll(folder))
	require.NoError(t, os.MkdirAll(filepath.Dir(folder), 0o700))
	require.NoError(t, os.WriteFile(folder, nil, 0o600))
	d.open()
	d.until("it says why", func() bool { return d.job("m").Err() != nil })
	require.NoError(t, os.Remove(folder))
	d.until("it goes on", func() bool {
		d.checkpoint()
		return slices.Equal([]string{"1,1", "2,1", "3,1"}, d.model.keyed("out"))
	})
	require.NotNil(t, d.job("m").Restored())
}

// TestDroppedSinkLeavesNothingHidden: what was sealed and not committed is cleared away.
func TestDroppedSinkLeavesNothingHidden(t *testing.T) {
	d := openDB(t, testOptions{})
	d.source("src", "id int8, v int8", "")
	j := d.sink("out", "select id, v from src", "", true, 2)
	d.feed(0, 20)
	d.checkpointed()
	d.once(20)
	require.NoError(t, d.fail.Change("checkpoint/before-notify=error(lost)"))
	d.feed(20, 40)
	d.checkpointed()
	require.NotEmpty(t, d.model.staged)
	require.NoError(t, d.engine.DropJob(j.Spec.ID))
	require.Empty(t, d.model.staged)
	require.Len(t, d.model.rows(), 20)
}

// TestCutsOfSinks: several checkpoints may be in flight, complete out of order, be aborted late, or be savepoints; what is committed is the newest complete one.
func TestCutsOfSinks(t *testing.T) {
	for _, c := range []struct {
		script string // cN: cut; sN: cut of a savepoint; +N completed, -N aborted; =N: the cut that is ready, 0 for none
	}{
		{"c1 c2 =0 +1 =1 =0 +2 =2 =0"},
		{"c1 c2 +2 =2 +1 =0"},
		{"c1 c2 -1 =0 +2 =2"},
		{"c1 c2 +1 -2 =1 =0 c3 =0 +3 =3"},
		{"c1 s2 +1 =1 =0 -2 =0 c3 +3 =3"},
		{"s1 -1 =0 c2 +2 =2"},
		{"s1 c2 +2 =2 -1 =0"},
		{"c1 +1 -1 =1"}, // aborted comes too late to count
		{"c1 c3 +2 =1 =0 +4 =3"},
	} {
		s := &sinkRun{exactly: true, wake: make(chan struct{}, 1)}
		for _, step := range strings.Fields(c.script) {
			var n uint64
			_, err := fmt.Sscan(step[1:], &n)
			require.NoError(t, err)
			switch step[0] {
			case 'c', 's':
				s.add(&sinkCut{checkpoint: n, epoch: n * 10, spared: step[0] == 's'})
			case '+':
				s.completed(n)
			case '-':
				s.aborted(n)
			case '=':
				got := uint64(0)
				if r, _ := s.ready(); r != nil {
					got = r.checkpoint
				}
				require.Equal(t, n, got, "%s of %s", step, c.script)
			}
		}
		require.Empty(t, s.cuts, c.script)
	}
}
