package checkpoint

import (
	"errors"
	"flag"
	"maps"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/streamdb/streamdb/internal/checkpointrows"
)

var simEvents = flag.Int("checkpoint.events", 120_000, "events of the simulation of the coordinator")

// sim drives the pure core with random events: any order of answers, failures, restarts, drops and store faults that can happen. It keeps
// its own account of what was cut and what is durable, and checks the promises after every step.
type sim struct {
	t    *testing.T
	rng  *rand.Rand
	core *core
	now  time.Time

	jobs     map[uint64]*scripted
	version  map[uint64]int             // what the job's state is now
	cut      map[uint64]map[uint64]int  // checkpoint id → job → version at the cut
	acked    map[uint64]map[uint64]int  // what was acknowledged for it
	durable  map[uint64]int             // job → version in the manifest
	at       map[uint64]uint64          // job → checkpoint in the manifest
	inFlight map[uint64]map[uint64]bool // job → ids it owes answers for
	seen     map[*part]partState
	saving   []actSavepoint
	savings  map[uint64]bool // ids of savepoints
	begins   []actBegin
	batches  []*batch
	lastID   uint64
	waiting  map[*request]uint64 // request → highest id before it
	answered int
	failed   int
	given    int // batches that were given up
}

func (s *sim) do(acts []action) {
	for len(acts) > 0 {
		next := acts[0]
		acts = acts[1:]
		switch a := next.(type) {
		case actPlan:
			acts = append(acts, s.core.step(s.now, evPlan{s.participants()})...)
		case actBegin:
			require.Empty(s.t, s.begins, "one at a time")
			s.begins = append(s.begins, a)
		case actTrigger:
			id, cp := a.participant.ID(), a.barrier.Checkpoint
			require.False(s.t, s.inFlight[id][cp], "job %d is asked twice", id)
			if a.barrier.Kind == KindSavepoint {
				s.savings[cp] = true
			} else {
				require.LessOrEqual(s.t, s.core.inFlight(id), 3)
			}
			var err error
			if s.rng.IntN(60) == 0 {
				err = ErrNotRunning
			} else {
				if s.inFlight[id] == nil {
					s.inFlight[id] = map[uint64]bool{}
				}
				s.inFlight[id][cp] = true
			}
			acts = append(acts, s.core.step(s.now, evTriggered{job: id, id: cp, err: err})...)
		case actRestart:
			for _, job := range a.restart.jobs {
				require.Zero(s.t, s.core.inFlight(job), "nothing of a restarted job can be published")
			}
		case actPublish:
			require.Empty(s.t, s.batches, "one at a time")
			s.batches = append(s.batches, a.batch)
			if s.rng.IntN(2) == 0 {
				require.NoError(s.t, a.batch.write.commit())
			}
		case actGiveUp:
			a.write.giveUp()
		case actNotify:
			id := a.participant.ID()
			delete(s.inFlight[id], a.id)
			require.Equal(s.t, s.savings[a.id] && a.outcome != aborted, a.outcome == savepoint)
			if a.outcome == complete {
				require.Equal(s.t, s.acked[a.id][id], s.durable[id], "job %d was told that %d is durable", id, a.id)
			}
		case actSavepoint:
			s.saving = append(s.saving, a)
		case actReply:
			from, ok := s.waiting[a.request]
			require.True(s.t, ok, "answered twice")
			delete(s.waiting, a.request)
			s.answered++
			if a.reply.err == nil {
				require.Greater(s.t, a.reply.id, from)
			} else {
				s.failed++
			}
		}
	}
	s.check()
}

// check holds the causal rule, that what is durable of a reader never goes beyond what is durable of its inputs, and that no part of a checkpoint takes
// an edge that there is not.
func (s *sim) check() {
	for _, p := range s.core.pending {
		for id, q := range p.parts {
			was := s.seen[q]
			require.True(s.t, reachable(was, q.state), "part of job %d in %d: %d → %d", id, p.id, was, q.state)
			s.seen[q] = q.state
		}
	}
	for id, j := range s.jobs {
		at, ok := s.at[id]
		if !ok {
			continue
		}
		for _, in := range j.inputs {
			require.GreaterOrEqual(s.t, s.durable[in], s.cut[at][in], "job %d at checkpoint %d has seen more of job %d than is durable", id, at, in)
		}
	}
}

// reachable reports whether edges lead from one state to the other.
func reachable(from, to partState) bool {
	seen := map[partState]bool{}
	var visit func(from partState) bool
	visit = func(from partState) bool {
		if seen[from] {
			return false
		}
		seen[from] = true
		return from == to || slices.ContainsFunc(edges[from], visit)
	}
	return visit(from)
}

func (s *sim) participants() []Participant {
	var ps []Participant
	for id := uint64(1); id < 50; id++ {
		if j := s.jobs[id]; j != nil {
			ps = append(ps, j)
		}
	}
	return ps
}

func (s *sim) step() {
	s.now = s.now.Add(time.Duration(s.rng.IntN(400)) * time.Millisecond)
	switch s.rng.IntN(15) {
	case 10:
		s.restart()
	case 11:
		if len(s.waiting) < 5 {
			r := &request{savepoint: &SavepointSpec{}, done: make(chan reply, 1)}
			s.waiting[r] = s.lastID
			s.do(s.core.step(s.now, evRequest{r}))
		}
	case 12:
		s.save()
	case 13:
		s.jobs[uint64(1+s.rng.IntN(6))].configure(s.settings())
		s.do(s.core.step(s.now, evChanged{}))
	case 14:
		for r := range s.waiting {
			if s.rng.IntN(10) == 0 {
				delete(s.waiting, r)
				s.do(s.core.step(s.now, evCancel{r}))
			}
			break
		}
	case 0:
		for id := uint64(1); id <= 6; id++ {
			if s.rng.IntN(2) == 0 {
				s.version[id]++
			}
		}
	case 1:
		if len(s.waiting) < 5 {
			r := &request{done: make(chan reply, 1)}
			if s.rng.IntN(2) == 0 {
				r.Jobs = []uint64{uint64(1 + s.rng.IntN(6))}
			}
			s.waiting[r] = s.lastID
			s.do(s.core.step(s.now, evRequest{r}))
		}
	case 2, 3:
		s.begin()
	case 4, 5, 6:
		for range 6 {
			s.answer()
		}
	case 7:
		s.publish()
	default:
		s.do(s.core.step(s.now, evTick{}))
	}
}

func (s *sim) settings() JobSettings {
	j := s.core.cfg.JobSettings()
	j.MaxConcurrent, j.TolerableFailures = 1+s.rng.IntN(3), s.rng.IntN(3)
	j.Interval = time.Duration(s.rng.IntN(4)) * time.Second
	j.MinPause = time.Duration(s.rng.IntN(2)) * time.Second
	return j
}

// save ends the writing of a savepoint.
func (s *sim) save() {
	if len(s.saving) == 0 {
		return
	}
	i := s.rng.IntN(len(s.saving))
	a := s.saving[i]
	s.saving = slices.Delete(s.saving, i, i+1)
	for _, st := range a.states {
		require.Equal(s.t, s.acked[a.id][st.Job], s.cut[a.id][st.Job])
	}
	var err error
	if s.rng.IntN(4) == 0 {
		err = errors.New("no space")
	}
	if a.write.commit() != nil && s.rng.IntN(2) == 0 {
		err = errGivenUp
	}
	s.do(s.core.step(s.now, evSavepoint{id: a.id, err: err}))
}

func (s *sim) begin() {
	if len(s.begins) == 0 {
		return
	}
	a := s.begins[0]
	s.begins = nil
	require.Greater(s.t, a.id, s.lastID)
	s.lastID = a.id
	if s.rng.IntN(20) == 0 {
		s.do(s.core.step(s.now, evBegun{id: a.id, err: errors.New("clock")}))
		return
	}
	s.cut[a.id], s.acked[a.id] = map[uint64]int{}, map[uint64]int{}
	for id, v := range s.version {
		s.cut[a.id][id] = v
	}
	s.do(s.core.step(s.now, evBegun{id: a.id, epoch: a.id * 10}))
}

func (s *sim) answer() {
	owed := [][2]uint64{}
	for id := range uint64(7) {
		for _, cp := range slices.Sorted(maps.Keys(s.inFlight[id])) {
			owed = append(owed, [2]uint64{id, cp})
		}
	}
	if len(owed) == 0 {
		return
	}
	o := owed[s.rng.IntN(len(owed))]
	id, cp := o[0], o[1]
	delete(s.inFlight[id], cp)
	if s.rng.IntN(40) == 0 {
		err := errors.New("no")
		if s.rng.IntN(2) == 0 {
			err = ErrNotRunning
		}
		s.do(s.core.step(s.now, evDecline{job: id, id: cp, err: err}))
		return
	}
	v := s.cut[cp][id]
	s.acked[cp][id] = v
	_, has := s.at[id]
	has = has && !s.savings[cp]
	s.do(s.core.step(s.now, evAck{&JobState{Job: id, Checkpoint: cp, Unchanged: has && s.durable[id] == v}}))
	if s.rng.IntN(5) == 0 {
		s.do(s.core.step(s.now, evAck{&JobState{Job: id, Checkpoint: cp}})) // twice
	}
	if s.rng.IntN(20) == 0 {
		s.do(s.core.step(s.now, evAck{&JobState{Job: id, Checkpoint: s.lastID + 1000}}))
	}
}

// restart fails a job: it goes back to what is durable when it is told to, and owes no answers any more.
func (s *sim) restart() {
	id := uint64(1 + s.rng.IntN(6))
	r := &restart{jobs: []uint64{id}, done: make(chan error, 1)}
	s.do(s.core.step(s.now, evRestart{r}))
	delete(s.inFlight, id)
}

func (s *sim) publish() {
	if len(s.batches) == 0 {
		return
	}
	b := s.batches[0]
	s.batches = nil
	if err := b.write.commit(); err != nil {
		s.given++
		s.do(s.core.step(s.now, evPublished{batch: b, err: err}))
		return
	}
	if s.rng.IntN(6) == 0 {
		s.do(s.core.step(s.now, evPublished{batch: b, err: errors.New("store")}))
		return
	}
	for _, st := range b.changed {
		require.Greater(s.t, st.Checkpoint, s.at[st.Job], "checkpoints of a job never go back")
		s.durable[st.Job], s.at[st.Job] = s.acked[st.Checkpoint][st.Job], st.Checkpoint
	}
	for _, st := range b.unchanged {
		if _, ok := s.at[st.Job]; ok && s.at[st.Job] < st.Checkpoint {
			s.at[st.Job] = st.Checkpoint
		}
	}
	s.do(s.core.step(s.now, evPublished{batch: b, result: &published{manifest: &Manifest{ID: b.id}}}))
	s.do(s.core.step(s.now, evCollected{}))
}

// TestSimulation runs the coordinator through random events. -checkpoint.events=1000000 makes a long run.
func TestCoreAtRandom(t *testing.T) {
	checkpointrows.Shows(t, 35, 50)
	const steps = 400
	answered, failed, ids, ended, unsuccessful, given := 0, 0, uint64(0), 0, 0, 0
	for seed := range uint64(*simEvents / steps) { //nolint:gosec // not negative
		rng := rand.New(rand.NewPCG(seed, 1))
		cfg := DefaultConfig()
		cfg.Interval, cfg.Timeout, cfg.TolerableFailures = time.Second, time.Duration(2+rng.IntN(20))*time.Second, 2
		cfg.GroupWindow = time.Duration(rng.IntN(3)) * time.Second
		s := &sim{
			t: t, rng: rng, core: newCore(cfg, newHistory(10), rng.Float64), now: time.Now(),
			jobs: map[uint64]*scripted{}, version: map[uint64]int{}, cut: map[uint64]map[uint64]int{}, acked: map[uint64]map[uint64]int{},
			durable: map[uint64]int{}, at: map[uint64]uint64{}, inFlight: map[uint64]map[uint64]bool{}, seen: map[*part]partState{}, savings: map[uint64]bool{}, waiting: map[*request]uint64{},
		}
		for id := uint64(1); id <= 6; id++ {
			j := job(id)
			for in := uint64(1); in < id; in++ {
				if rng.IntN(3) == 0 {
					j.inputs = append(j.inputs, in)
				}
			}
			j.configure(s.settings())
			s.jobs[id] = j
		}
		s.do(s.core.start(s.now))
		for range steps {
			s.step()
		}
		// Without further faults everything that waits is answered, and everything comes to rest.
		s.core.last = true
		for range 300 {
			s.now = s.now.Add(time.Second)
			s.do(s.core.step(s.now, evTick{}))
			s.begin()
			s.answer()
			s.save()
			s.publish()
		}
		require.Empty(t, s.waiting, "seed %d: requests are left waiting", seed)
		require.Empty(t, s.core.pending, "seed %d", seed)
		require.Zero(t, s.core.stats.snapshot().InProgress, "seed %d", seed)
		for id := range s.jobs {
			n := s.core.stats.job(id).Counts
			require.Equal(t, n.Total, n.Completed+n.Failed, "seed %d: every part ends once", seed)
			ended += n.Completed
			unsuccessful += n.Failed
		}
		answered, failed, ids, given = answered+s.answered, failed+s.failed, ids+s.lastID, given+s.given
	}
	require.Greater(t, given, 100)
	t.Logf("%d checkpoints with %d parts that completed and %d that did not, %d requests, %d of them failed", ids, ended, unsuccessful, answered, failed)
	require.Greater(t, answered-failed, 1000)
}
