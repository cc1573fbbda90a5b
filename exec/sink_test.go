package exec

import (
	"context"
	"fmt"
	"maps"
	"strings"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/streamdb/streamdb/checkpoint"
	"github.com/streamdb/streamdb/connector"
	"github.com/streamdb/streamdb/internal/checkpointrows"
	"github.com/streamdb/streamdb/internal/failpoint"
	"github.com/streamdb/streamdb/planner"
	"github.com/streamdb/streamdb/types"
)

// model is a target outside of the database: it outlives crashes, and counts what becomes visible.
type model struct {
	mu       sync.Mutex
	opened   int
	staged   map[string][]string // durable, not visible
	done     map[string]bool
	visible  map[string]int // rows, with how often
	byKey    map[string]string
	commits  int // calls of Commit that had something to do
	lost     []string
	failing  int // calls of Commit that fail still, half way
	flushing int // calls of flush that fail still
}

func newModel() *model {
	return &model{staged: map[string][]string{}, done: map[string]bool{}, visible: map[string]int{}, byKey: map[string]string{}}
}

func (m *model) rows() map[string]int {
	m.mu.Lock()
	defer m.mu.Unlock()
	return maps.Clone(m.visible)
}

func (m *model) Name() string                    { return "model" }
func (m *model) Options() []connector.Option     { return nil }
func (m *model) Secrets() []string               { return nil }
func (m *model) Encodings() []connector.Encoding { return nil }
func (m *model) Modes() []connector.SinkMode {
	return []connector.SinkMode{connector.AppendOnly, connector.Upsert}
}
func (m *model) Check(context.Context, *connector.SinkConfig) error { return nil }
func (m *model) Sink(cfg *connector.SinkConfig) (connector.Sink, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
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
			} else if delete(m.byKey, key); r[0] == '+' {
				m.byKey[key] = r[1:]
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
