package checkpoint

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/rs/zerolog"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/streamdb/streamdb/internal/failpoint"
	"github.com/streamdb/streamdb/state"
	"github.com/streamdb/streamdb/storage/object"
)

func TestMain(m *testing.M) {
	goleak.VerifyTestMain(m,
		// Idle connections of the HTTP client, which ends them by itself.
		goleak.IgnoreAnyFunction("net/http.(*persistConn).writeLoop"), goleak.IgnoreAnyFunction("net/http.(*persistConn).readLoop"))
}

// scripted is a participant that answers as the test says.
type scripted struct {
	id     uint64
	inputs []uint64
	c      *Coordinator

	mu       sync.Mutex
	answer   func(j *scripted, b Barrier) error // nil: acknowledges a changed state at once
	log      []string
	triggers []time.Time
	version  int // grows with every changed state
	done     uint64
	settings *JobSettings
	backlog  atomic.Bool
}

func (j *scripted) ID() uint64       { return j.id }
func (j *scripted) Name() string     { return fmt.Sprintf("job%d", j.id) }
func (j *scripted) Inputs() []uint64 { return j.inputs }

// Settings are the coordinator's unless the test gave it some.
func (j *scripted) Settings() JobSettings {
	j.mu.Lock()
	defer j.mu.Unlock()
	switch {
	case j.settings != nil:
		return *j.settings
	case j.c != nil:
		return j.c.Config().JobSettings()
	}
	return DefaultJobSettings()
}

func (j *scripted) configure(s JobSettings) {
	j.mu.Lock()
	defer j.mu.Unlock()
	j.settings = &s
}

// Backlog implements Backlogger.
func (j *scripted) Backlog() bool { return j.backlog.Load() }

func (j *scripted) note(format string, args ...any) {
	j.mu.Lock()
	defer j.mu.Unlock()
	j.log = append(j.log, fmt.Sprintf(format, args...))
}

func (j *scripted) Trigger(b Barrier) error {
	j.mu.Lock()
	j.log = append(j.log, fmt.Sprintf("trigger %d", b.Checkpoint))
	j.triggers = append(j.triggers, time.Now())
	answer := j.answer
	j.mu.Unlock()
	if answer == nil {
		answer = changed
	}
	return answer(j, b)
}

func (j *scripted) NotifyComplete(id uint64) {
	j.note("complete %d", id)
	j.mu.Lock()
	defer j.mu.Unlock()
	j.done = id
}
func (j *scripted) NotifyAborted(id uint64)   { j.note("abort %d", id) }
func (j *scripted) NotifySavepoint(id uint64) { j.note("savepoint %d", id) }

// times is when it was triggered.
func (j *scripted) times() []time.Time {
	j.mu.Lock()
	defer j.mu.Unlock()
	return slices.Clone(j.triggers)
}

func (j *scripted) set(answer func(j *scripted, b Barrier) error) {
	j.mu.Lock()
	defer j.mu.Unlock()
	j.answer = answer
}

func (j *scripted) events() string {
	j.mu.Lock()
	defer j.mu.Unlock()
	s := strings.Join(j.log, ", ")
	j.log = nil
	return s
}

// next makes a state whose one delta tells job and version.
func (j *scripted) next(id uint64) *JobState {
	j.mu.Lock()
	defer j.mu.Unlock()
	j.version++
	body := fmt.Appendf(nil, "state of job %d, version %d", j.id, j.version)
	return &JobState{
		Job: j.id, Checkpoint: id, Parallelism: 2,
		State: &state.Snapshot{
			Format: 1, Backend: state.BackendMemory, MaxParallelism: 128, FullSize: int64(len(body)), NewBytes: int64(len(body)),
			Deltas: []state.Handle{{Name: fmt.Sprintf("inc/%06d.sst", j.version), Inline: body, Size: int64(len(body)), CRC: castagnoli(body)}},
		},
		Positions: map[string][]byte{"src/0": fmt.Appendf(nil, "%d", j.version)},
		Subtasks:  []SubtaskStats{{Operator: "agg", Sync: 3 * time.Millisecond}},
	}
}

// The usual answers.
func changed(j *scripted, b Barrier) error {
	j.c.Acknowledge(j.next(b.Checkpoint))
	return nil
}

func unchanged(j *scripted, b Barrier) error {
	j.c.Acknowledge(&JobState{Job: j.id, Checkpoint: b.Checkpoint, Unchanged: true})
	return nil
}

func silent(*scripted, Barrier) error { return nil }

func declines(j *scripted, b Barrier) error {
	j.c.Decline(j.id, b.Checkpoint, errors.New("disk on fire"))
	return nil
}

func notRunning(*scripted, Barrier) error { return ErrNotRunning }

// after answers with a changed state after d.
func after(d time.Duration) func(*scripted, Barrier) error {
	return func(j *scripted, b Barrier) error {
		s := j.next(b.Checkpoint)
		time.AfterFunc(d, func() { j.c.Acknowledge(s) })
		return nil
	}
}

// rig is a coordinator with scripted participants and a fake epoch clock.
type rig struct {
	t     *testing.T
	store object.Store
	c     *Coordinator
	jobs  map[uint64]*scripted
	ran   chan error
	stop  context.CancelFunc

	mu             sync.Mutex
	epoch          uint64
	quiet          bool
	catalogVersion uint64
	failed         []string
	points         *failpoint.Set
}

func (r *rig) BeginCheckpoint(uint64, Cut) (uint64, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.quiet {
		r.epoch++ // no other was closed since the last one
	} else {
		r.epoch += 10
	}
	return r.epoch, nil
}

func (r *rig) Quiet() bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.quiet
}

func (r *rig) setCatalog(v uint64) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.catalogVersion = v
}

func manual() Config {
	cfg := DefaultConfig()
	cfg.Interval, cfg.TolerableFailures = 0, 1000
	return cfg
}

func every(d time.Duration) Config {
	cfg := manual()
	cfg.Interval = d
	return cfg
}

func job(id uint64, inputs ...uint64) *scripted { return &scripted{id: id, inputs: inputs} }

// newRig starts a coordinator over store; to be used in a synctest bubble.
func newRig(t *testing.T, cfg Config, store object.Store, points *failpoint.Set, jobs ...*scripted) *rig {
	t.Helper()
	r := &rig{t: t, store: store, jobs: map[uint64]*scripted{}, ran: make(chan error, 1), points: points}
	c, err := New(cfg, store, Env{
		Clock: r, Holder: "test", Log: zerolog.Nop(), Failpoints: points,
		Participants: func() []Participant {
			var ps []Participant
			r.mu.Lock()
			defer r.mu.Unlock()
			for _, j := range r.jobs {
				ps = append(ps, j)
			}
			return ps
		},
		Catalog: func() (uint64, []byte) {
			r.mu.Lock()
			defer r.mu.Unlock()
			return r.catalogVersion, fmt.Appendf(nil, "catalog %d", r.catalogVersion)
		},
		FailJob: func(id uint64, err error) {
			r.mu.Lock()
			defer r.mu.Unlock()
			r.failed = append(r.failed, fmt.Sprintf("%d: %v", id, err))
		},
	})
	require.NoError(t, err)
	r.c = c
	for _, j := range jobs {
		j.c = c
		r.jobs[j.id] = j
	}
	return r
}

func (r *rig) run() *rig {
	ctx, cancel := context.WithCancel(context.Background())
	r.stop = cancel
	r.t.Cleanup(cancel)
	go func() { r.ran <- r.c.Run(ctx) }()
	return r
}

// end stops the coordinator and returns what Run returned.
func (r *rig) end() error {
	r.stop()
	return <-r.ran
}

func (r *rig) checkpoint(jobs ...uint64) (uint64, error) {
	if len(jobs) == 0 {
		return r.c.Trigger(context.Background(), nil)
	}
	return r.c.Trigger(context.Background(), jobs)
}

// durable tells what the store restores: job: checkpoint/position, and that all of it is intact.
func durable(t *testing.T, store object.Store) string {
	t.Helper()
	m, err := Load(context.Background(), store)
	require.NoError(t, err)
	if m == nil {
		return ""
	}
	var parts []string
	for _, id := range sortedJobs(m) {
		s := m.Jobs[id]
		snap, err := Fetch(context.Background(), store, s, t.TempDir())
		require.NoError(t, err)
		parts = append(parts, fmt.Sprintf("%d: %d/%s", id, s.Checkpoint, s.Positions["src/0"]))
		if h := snap.Deltas[0]; h.Path == "" {
			require.Equal(t, fmt.Sprintf("state of job %d, version %s", id, s.Positions["src/0"]), string(h.Inline))
		}
	}
	return strings.Join(parts, ", ")
}

// keysOf lists the store.
func keysOf(t *testing.T, store object.Store) []string {
	t.Helper()
	var keys []string
	require.NoError(t, store.List(context.Background(), "", func(info object.Info) error {
		keys = append(keys, info.Key)
		return nil
	}))
	return keys
}

// requireTidy checks that the store holds exactly what HEAD needs, intact.
func requireTidy(t *testing.T, store object.Store) {
	t.Helper()
	ctx := context.Background()
	var out strings.Builder
	problems, err := Verify(ctx, store, &out)
	require.NoError(t, err)
	require.Zero(t, problems, out.String())
	h, _, err := readHead(ctx, store)
	require.NoError(t, err)
	want := []string{headKey}
	for _, at := range h.all() {
		m, err := loadManifest(ctx, store, at)
		require.NoError(t, err)
		for key := range m.objects() {
			if !slices.Contains(want, key) {
				want = append(want, key)
			}
		}
	}
	require.ElementsMatch(t, want, keysOf(t, store))
}

// statuses is the history, oldest first.
func (r *rig) statuses() string {
	var parts []string
	for _, row := range slices.Backward(r.c.Stats().Checkpoints) {
		parts = append(parts, fmt.Sprintf("%d/%d %s", row.ID, row.Job, row.Status))
	}
	return strings.Join(parts, ", ")
}

func bubble(t *testing.T, fn func(t *testing.T)) {
	t.Helper()
	synctest.Test(t, fn)
}

// fileHandle writes a local state file.
func fileHandle(t *testing.T, dir, name string, body []byte) state.Handle {
	t.Helper()
	path := filepath.Join(dir, filepath.FromSlash(name))
	require.NoError(t, os.MkdirAll(filepath.Dir(path), 0o755))
	require.NoError(t, os.WriteFile(path, body, 0o644))
	return state.Handle{Name: name, Path: path, Size: int64(len(body)), CRC: castagnoli(body), First: []byte("a"), Last: []byte("z")}
}
