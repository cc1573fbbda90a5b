package checkpoint

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/streamdb/streamdb/internal/checkpointrows"
	"github.com/streamdb/streamdb/storage/object"
)

// script drives the pure core by hand; what it wants done is kept by kind.
type script struct {
	t    *testing.T
	core *core
	now  time.Time
	jobs []Participant
	acts []action
}

func newScript(t *testing.T, cfg Config, jobs ...*scripted) *script {
	s := &script{t: t, core: newCore(cfg, newHistory(10), func() float64 { return 0.5 }), now: time.Unix(1_000_000, 0)}
	for _, j := range jobs {
		if j.settings == nil {
			j.configure(cfg.JobSettings())
		}
		s.jobs = append(s.jobs, j)
	}
	s.do(s.core.start(s.now))
	return s
}

func (s *script) step(ev event) { s.do(s.core.step(s.now, ev)) }

func (s *script) do(acts []action) {
	for len(acts) > 0 {
		a := acts[0]
		acts = acts[1:]
		switch t := a.(type) {
		case actPlan:
			acts = append(acts, s.core.step(s.now, evPlan{s.jobs})...)
			continue
		case actTrigger:
			acts = append(acts, s.core.step(s.now, evTriggered{job: t.participant.ID(), id: t.barrier.Checkpoint})...)
		}
		s.acts = append(s.acts, a)
	}
}

// take returns the actions of one kind since the last call, and forgets them.
func take[A action](s *script) []A {
	var out []A
	rest := s.acts[:0:0]
	for _, a := range s.acts {
		if x, ok := a.(A); ok {
			out = append(out, x)
		} else {
			rest = append(rest, a)
		}
	}
	s.acts = rest
	return out
}

// begin answers what the core wants to begin, and returns its id.
func (s *script) begin() uint64 { return s.beginWith(0) }

// beginWith does with a version of the catalog, 0: none.
func (s *script) beginWith(catalogVersion uint64) uint64 {
	begins := take[actBegin](s)
	require.Len(s.t, begins, 1)
	ev := evBegun{id: begins[0].id, epoch: 10 * begins[0].id, catalogVersion: catalogVersion}
	if catalogVersion > 0 {
		ev.catalog = fmt.Appendf(nil, "catalog %d", catalogVersion)
	}
	s.step(ev)
	return begins[0].id
}

func (s *script) ack(job, id uint64) { s.step(evAck{&JobState{Job: job, Checkpoint: id}}) }

func (s *script) request(r *request) *request {
	r.done = make(chan reply, 1)
	s.step(evRequest{r})
	return r
}

// answer is what r was told.
func (s *script) answer(r *request) (reply, bool) {
	for _, a := range s.acts {
		if x, ok := a.(actReply); ok && x.request == r {
			return x.reply, true
		}
	}
	return reply{}, false
}

func (s *script) publish(err error) {
	for _, a := range take[actPublish](s) {
		s.step(evPublished{batch: a.batch, result: &published{manifest: &Manifest{ID: a.batch.id}}, err: err})
		if err == nil {
			s.step(evCollected{})
		}
	}
}

// published completes what is being published and returns the states in it: jobs and checkpoints.
func (s *script) published() (got [][2]uint64) {
	a := take[actPublish](s)
	require.Len(s.t, a, 1)
	for _, st := range a[0].batch.changed {
		got = append(got, [2]uint64{st.Job, st.Checkpoint})
	}
	s.step(evPublished{batch: a[0].batch, result: &published{manifest: &Manifest{ID: a[0].batch.id}}})
	s.step(evCollected{})
	return got
}

func (s *script) outcomes() map[uint64][]outcome {
	out := map[uint64][]outcome{}
	for _, a := range take[actNotify](s) {
		out[a.id] = append(out[a.id], a.outcome)
	}
	return out
}

// A savepoint goes before what waits, beside what is in flight, and is not ended by what completes later.
func TestSavepointBesideCheckpoints(t *testing.T) {
	checkpointrows.Shows(t, 104)
	s := newScript(t, manual(), job(1), job(2, 1))
	s.request(&request{})
	one := s.begin()
	waits := s.request(&request{})
	sp := s.request(&request{savepoint: &SavepointSpec{Target: "memory://sp"}, TriggerRequest: TriggerRequest{Jobs: []uint64{2}}})
	two := s.begin()
	require.Equal(t, one+1, two)
	b := take[actTrigger](s)
	require.Len(t, b, 4)
	require.Equal(t, KindSavepoint, b[3].barrier.Kind)
	require.Equal(t, "memory://sp", b[3].barrier.Savepoint.Target)

	s.ack(1, one)
	s.ack(2, one)
	s.publish(nil)
	require.Equal(t, map[uint64][]outcome{one: {complete, complete}}, s.outcomes())
	three := s.begin()
	s.ack(1, three)
	s.ack(2, three)
	s.publish(nil)
	_, done := s.answer(waits)
	require.True(t, done, "not held back by the savepoint")
	require.Equal(t, map[uint64][]outcome{three: {complete, complete}}, s.outcomes())

	s.ack(1, two)
	s.ack(2, two)
	w := take[actSavepoint](s)
	require.Len(t, w, 1)
	require.Len(t, w[0].states, 2)
	_, done = s.answer(sp)
	require.False(t, done)
	s.step(evSavepoint{id: two, path: "memory://sp/manifest"})
	got, done := s.answer(sp)
	require.True(t, done)
	require.Equal(t, reply{id: two, epoch: 10 * two, path: "memory://sp/manifest"}, got)
	require.Equal(t, map[uint64][]outcome{two: {savepoint, savepoint}}, s.outcomes(), "nothing is committed outside, nothing builds on it")
	require.Empty(t, take[actPublish](s), "it is no part of what jobs restart from")
	require.Empty(t, s.core.pending)
}

// A failed savepoint is the asker's business: the job goes on, and nothing is counted against it.
func TestFailedSavepointsDoNotCount(t *testing.T) {
	checkpointrows.Shows(t, 62)
	cfg := manual()
	cfg.TolerableFailures, cfg.Timeout = 0, time.Minute
	s := newScript(t, cfg, job(1), job(2, 1))
	for _, fail := range []func(id uint64){
		func(id uint64) { s.step(evDecline{job: 1, id: id, err: errors.New("disk on fire")}) },
		func(id uint64) { s.now = s.now.Add(time.Minute); s.step(evTick{}) },
		func(id uint64) {
			s.ack(1, id)
			s.ack(2, id)
			s.step(evSavepoint{id: id, err: errors.New("no space")})
		},
	} {
		r := s.request(&request{savepoint: &SavepointSpec{}})
		fail(s.begin())
		got, done := s.answer(r)
		require.True(t, done)
		require.Error(t, got.err)
		require.Empty(t, s.core.pending)
		require.Empty(t, take[actFailJob](s))
	}
	for _, told := range s.outcomes() {
		require.NotContains(t, told, complete)
	}
	r := s.request(&request{savepoint: &SavepointSpec{}, TriggerRequest: TriggerRequest{Jobs: []uint64{99}}})
	got, _ := s.answer(r)
	require.ErrorIs(t, got.err, ErrNotRunning)
}

// A request that is covered waits for the rest of its checkpoint only: no later one is made for it, and none that begins meanwhile becomes its own. A job that ends is copied from the one it ended with.
func TestACoveredRequestKeepsItsCheckpoint(t *testing.T) {
	for name, late := range map[string]bool{"covered first": false, "covered while the next one begins": true} {
		t.Run(name, func(t *testing.T) {
			cfg := manual()
			cfg.GroupWindow = 0
			s := newScript(t, cfg, job(1), job(2), job(3))
			of := func(job uint64) *request { return &request{TriggerRequest: TriggerRequest{Jobs: []uint64{job}}} }
			s.request(of(1))
			other, ends := s.request(of(2)), of(3)
			ends.stop = &SavepointSpec{}
			s.request(ends)
			one := s.begin()
			two := s.begin() // for both, while the first one is in flight
			ended := func() {
				s.ack(3, two)
				require.Equal(t, [][2]uint64{{3, two}}, s.published())
			}
			if !late {
				ended()
			}
			next := s.request(of(1))
			s.ack(1, one)
			require.Equal(t, [][2]uint64{{1, one}}, s.published())
			begins := take[actBegin](s)
			require.Len(t, begins, 1)
			if late {
				ended()
			}
			three := begins[0].id
			s.step(evBegun{id: three, epoch: 10 * three})
			s.ack(2, two)
			s.publish(nil)
			for _, r := range []*request{other, ends} {
				got, done := s.answer(r)
				require.True(t, done)
				require.Equal(t, reply{id: two}, got)
			}
			s.ack(1, three)
			s.publish(nil)
			got, done := s.answer(next)
			require.True(t, done)
			require.Equal(t, reply{id: three}, got)
			require.Empty(t, take[actBegin](s))
		})
	}
}

func TestSavepointThroughTheCoordinator(t *testing.T) {
	bubble(t, func(t *testing.T) {
		a := job(1)
		r := newRig(t, manual(), object.NewMemory(""), nil, a).run()
		_, err := r.c.Savepoint(context.Background(), SavepointRequest{Jobs: []uint64{1}, Spec: SavepointSpec{Target: "memory://x"}})
		require.Error(t, err)
		require.Equal(t, "trigger 1, abort 1", a.events())
		require.NoError(t, r.end())
	})
}
