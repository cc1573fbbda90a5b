package checkpoint

import (
	"context"
	"flag"
	"fmt"
	"io"
	"maps"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/streamdb/streamdb/internal/checkpointrows"
	"github.com/streamdb/streamdb/storage/object"
)

var (
	simSeed  = flag.Uint64("sim.seed", 0, "the first seed of TestSimulation; with -sim.seeds=1 -v its trace is printed")
	simSeeds = flag.Int("sim.seeds", 0, "how many seeds TestSimulation runs; 0: as many as fit into its time")
)

// simTime bounds the simulation of a test run without flags.
const simTime = 6 * time.Second

// simInline is how many bytes of small files go into a manifest: few, since most of the time is spent on reading and writing these.
const simInline = 2 << 10

// simScratch is a folder for what savepoints write.
var simScratch = os.TempDir()

// simFailed are seeds that have broken a promise once.
var simFailed = []uint64{13, 41, 71, 179, 10030, 10356, 100887, 100888, 103324, 104638, 104644, 202542, 207517, 203301, 207903, 510112, 201295, 205806, 209348, 1027512, 1065384, 1080055, 1093382, 1063786, 1065522}

// populate makes the jobs of a world, and what is going to happen to them.
func (w *simWorld) populate() {
	rng := w.rng
	w.faultless = rng.IntN(6) == 0
	w.election = rng.IntN(2) == 0
	w.ttl = time.Duration(1+rng.IntN(4)) * time.Second
	w.cfg = DefaultConfig()
	w.cfg.Interval = time.Duration(rng.IntN(5)) * time.Second
	w.cfg.MinPause = time.Duration(rng.IntN(3)) * 500 * time.Millisecond
	w.cfg.Timeout = time.Duration(2+rng.IntN(6)) * time.Second
	w.cfg.GroupWindow = time.Duration(rng.IntN(4)) * 700 * time.Millisecond
	w.cfg.Retained = 1 + rng.IntN(3)
	w.cfg.TolerableFailures = rng.IntN(4)
	w.cfg.MaxConcurrent = 1 + rng.IntN(3)
	w.cfg.InlineThreshold = simInline
	if !w.faultless {
		w.faults = simFaults{refused: rng.IntN(60), lost: rng.IntN(60), late: rng.IntN(800), conflict: rng.IntN(30), slow: rng.IntN(30)}
	} else {
		w.cfg.Timeout = time.Minute
	}
	for range 2 + rng.IntN(4) {
		w.initial++
		w.define(slices.Collect(maps.Keys(w.defs)))
	}
	w.after(0, nil, func() { w.start(0) })
	if w.election {
		w.after(w.ms(0, 3000), nil, func() { w.start(1) })
	}
	actions := 5 + rng.IntN(20)
	end := time.Duration(0)
	for range actions {
		end += w.ms(100, 2500)
		w.after(end, nil, w.act)
	}
	w.after(end+2*time.Second, nil, w.calmDown)
}

// define makes a job, which reads from some of the others.
func (w *simWorld) define(others []uint64) *simJob {
	rng := w.rng
	w.nextJob++
	j := &simJob{id: w.nextJob, aggs: 1 + rng.IntN(3), bytes: []int{0, 0, simInline * 5 / 6, 300 << 10}[rng.IntN(4)]}
	for _, id := range slices.Sorted(slices.Values(others)) {
		if w.defs[id].settings.Mode == ExactlyOnce && rng.IntN(3) == 0 {
			j.inputs = append(j.inputs, id)
		}
	}
	j.parts = rng.IntN(3)
	if len(j.inputs) == 0 {
		j.parts = 1 + rng.IntN(3)
	}
	j.settings = w.cfg.JobSettings()
	if !w.faultless && w.more.IntN(12) == 0 {
		j.settings.Timeout = time.Duration(1+w.more.IntN(20)) * time.Second
	}
	w.settings(j)
	j.sink = j.settings.Mode == ExactlyOnce && !j.settings.Unaligned && j.parts > 0 && rng.IntN(2) == 0
	w.defs[j.id] = j
	if j.sink {
		w.sinks[j.id] = &simSink{job: j.id, prepared: map[uint64][]simRow{}, committed: map[uint64]bool{}, next: make([]int, j.parts)}
	}
	return j
}

// settings gives a job settings of its own.
func (w *simWorld) settings(j *simJob) {
	rng, s := w.rng, &j.settings
	if rng.IntN(3) == 0 {
		s.Interval = time.Duration(rng.IntN(6)) * time.Second
		s.BacklogInterval = s.Interval
	}
	if rng.IntN(3) == 0 {
		s.MaxConcurrent = 1 + rng.IntN(3)
	}
	s.Incremental = rng.IntN(4) != 0
	switch rng.IntN(5) {
	case 0:
		if !w.readBy(slices.Collect(maps.Keys(w.defs)), j.id) && !j.sink {
			s.Mode, s.Unaligned = AtLeastOnce, false
		}
	case 1, 2:
		if s.Mode == ExactlyOnce && !j.sink {
			s.Unaligned, s.MaxConcurrent, s.AlignedTimeout = true, 1, time.Duration(rng.IntN(3))*30*time.Millisecond
		}
	}
}

// readBy reports whether one of the given jobs reads from job.
func (w *simWorld) readBy(jobs []uint64, job uint64) bool {
	return slices.ContainsFunc(jobs, func(id uint64) bool { return slices.Contains(w.defs[id].inputs, job) })
}

// act is something that a user, an operator or fate does.
func (w *simWorld) act() {
	rng := w.rng
	s := w.leader()
	some := func() []uint64 {
		if rng.IntN(2) == 0 || len(s.jobs) == 0 {
			return nil
		}
		return []uint64{s.jobs[rng.IntN(len(s.jobs))]}
	}
	if n := rng.IntN(20); n >= 12 && !w.faultless {
		w.fate(n - 12)
		return
	} else if s != nil {
		switch n % 12 {
		case 0, 1, 2:
			req := TriggerRequest{Jobs: some(), Type: Type(rng.IntN(3)), Class: Class(rng.IntN(2))}
			s.call("checkpoint", func(ctx context.Context) error {
				_, err := s.c.TriggerWith(ctx, req)
				return err
			})
		case 3, 4:
			req := SavepointRequest{Jobs: some(), Spec: SavepointSpec{Target: "sim://savepoints"}}
			s.call("savepoint", func(ctx context.Context) error {
				res, err := s.c.Savepoint(ctx, req)
				if err == nil {
					w.counts.savepoints++
					w.checkSavepoint(res.Path)
				}
				return err
			})
		case 5:
			w.stop(s)
		case 6:
			w.dropJob(s)
		case 7:
			if len(s.jobs) < 8 {
				j := w.define(slices.DeleteFunc(slices.Clone(s.jobs), func(in uint64) bool { return s.stopping[in] || s.runs[in] == nil }))
				s.jobs = append(s.jobs, j.id)
				s.version++
				s.begin(j, nil, nil)
				s.c.Refresh()
				w.trace("creates", s.name, "", j.id)
			}
		case 8:
			cfg := s.c.Config()
			cfg.Interval = time.Duration(rng.IntN(4)) * time.Second
			cfg.Retained = 1 + rng.IntN(3)
			cfg.GroupWindow = time.Duration(rng.IntN(3)) * time.Second
			if err := s.c.SetConfig(cfg); err != nil {
				w.failf("%v", err)
			}
			w.cfg, w.configured = cfg, w.counts.commits
		case 9:
			if id := some(); id != nil && !w.defs[id[0]].sink {
				w.settings(w.defs[id[0]])
				s.c.Refresh()
			}
		case 10:
			if id := some(); id != nil && s.runs[id[0]] != nil {
				r := s.runs[id[0]]
				r.paused = !r.paused
			}
		case 11:
			w.shutdown(s)
		}
	}
}

// fate strikes.
func (w *simWorld) fate(n int) {
	rng := w.rng
	slot := rng.IntN(2)
	s := w.servers[slot]
	alive := s != nil && !s.dead
	switch n {
	case 0, 1:
		if alive {
			w.counts.crashes++
			s.kill(true)
		}
	case 2:
		if alive && !s.frozen {
			s.freeze(w.ms(200, 12000))
		}
	case 3:
		w.start(slot) // without an election: it takes over from one that runs
	case 4:
		w.wall += time.Duration(rng.IntN(7200)-3600) * time.Second
	case 5:
		if l := w.leader(); l != nil && len(l.jobs) > 0 {
			l.fail(l.jobs[rng.IntN(len(l.jobs))])
		}
	case 6:
		w.counts.collected++
		w.spawn(w.tool, func(ctx context.Context) {
			if err := GC(ctx, w.tool.store, false, io.Discard); err != nil {
				w.mayFailTool(err)
			}
		})
	case 7:
		w.spawn(w.tool, func(ctx context.Context) {
			if _, err := Load(ctx, w.tool.store); err != nil {
				w.mayFailTool(err)
			}
		})
	}
}

func (w *simWorld) mayFailTool(err error) {
	if !object.IsRetryable(err) && !strings.Contains(err.Error(), "does not exist") { // HEAD moves while it reads
		w.failf("a tool fails: %v", err)
	}
}

// dropJob drops a job that nobody reads from.
func (w *simWorld) dropJob(s *simProcess) {
	if len(s.jobs) < 2 {
		return
	}
	for _, id := range slices.Backward(s.jobs) {
		if !w.readBy(s.jobs, id) && w.rng.IntN(2) == 0 {
			w.trace("drops", s.name, "", id)
			s.forget(id)
			return
		}
	}
}

// forget takes a job out of the catalog.
func (s *simProcess) forget(id uint64) {
	s.c.Dropping(id)
	if r := s.runs[id]; r != nil {
		s.end(r, ErrNotRunning)
	}
	s.jobs = slices.DeleteFunc(slices.Clone(s.jobs), func(o uint64) bool { return o == id })
	s.version++
	delete(s.broken, id)
	s.c.Drop(id)
	if s.w.head.Holder == s.name {
		s.w.forgotten[id] = true
	}
}

// stop ends a job with a savepoint.
func (w *simWorld) stop(s *simProcess) {
	if len(s.jobs) < 2 {
		return
	}
	id := s.jobs[len(s.jobs)-1]
	if w.readBy(s.jobs, id) || s.runs[id] == nil || s.stopping[id] {
		return
	}
	s.stopping[id] = true
	s.call("stop", func(ctx context.Context) error {
		res, err := s.c.Stop(ctx, id, SavepointSpec{Target: "sim://savepoints"})
		if s.dead || !slices.Contains(s.jobs, id) || w.head.Holder != s.name {
			return nil // dropped meanwhile, or it runs at another server now
		}
		if err != nil {
			s.resume(id)
			return err
		}
		w.counts.stops++
		m := w.checkSavepoint(res.Path)
		if k := w.sinks[id]; k != nil {
			d := simDecode(m.Jobs[id])
			for _, txn := range d.pending {
				k.commit(w, txn) // whether or not the notification was lost
			}
			for part, n := range d.offsets {
				if k.next[part] != n {
					w.failf("I3: job %d stopped at row %d of source %d, %d are in its output", id, n, part, k.next[part])
				}
			}
		}
		s.forget(id)
		return nil
	})
}

// resume lets a job go on that was to end.
func (s *simProcess) resume(id uint64) {
	delete(s.stopping, id)
	delete(s.stopped, id)
	if r := s.runs[id]; r != nil {
		for _, src := range r.sources {
			src.stopped = false
		}
	}
}

// checkSavepoint reads a savepoint and holds it against the reference.
func (w *simWorld) checkSavepoint(path string) *Manifest {
	folder := path[strings.LastIndex(path, "/")+1:]
	read := func(key string) []byte {
		o := w.outside.keys[folder+"/"+key]
		if o == nil {
			w.failf("savepoint %s lacks %s", path, key)
		}
		return o.data
	}
	doc := &savepointDoc{}
	if err := openDoc(savepointKind, savepointFormat, path, read(savepointKey), doc); err != nil {
		w.failf("%v", err)
	}
	m := manifestOf(&doc.manifestDoc, manifestRef{Object: savepointKey})
	bytes := func(r ref) []byte {
		b := r.Inline
		if r.Object != "" {
			b = read(r.Object)
			b = b[min(r.Offset, int64(len(b))):min(r.Offset+r.Size, int64(len(b)))]
		}
		if castagnoli(b) != r.CRC {
			w.failf("savepoint %s is damaged", path)
		}
		return b
	}
	totals := map[uint64]simTotal{}
	for _, id := range sortedJobs(m) {
		s := m.Jobs[id]
		for name, r := range s.refs.positions {
			s.Positions[name] = bytes(r)
		}
		for name, r := range s.refs.operators {
			s.Operators[name] = bytes(r)
		}
		if len(s.Inflight) > 0 {
			w.failf("I4: in savepoint %s job %d has rows in flight", path, id)
		}
		for _, h := range s.State.Deltas {
			totals[id] = totals[id].plus(simTotalOf(bytes(s.refs.files[h.Name])))
		}
	}
	for _, id := range sortedJobs(m) {
		d, want := simDecode(m.Jobs[id]), simTotal{}
		for part, n := range d.offsets {
			want = want.plus(simPrefix(id, part, n))
		}
		for in, t := range d.read {
			want = want.plus(t)
			if t != totals[in] {
				w.failf("I4: in savepoint %s job %d has read %v from job %d, which has %v", path, id, t, in, totals[in])
			}
		}
		if w.defs[id].exact() && want != totals[id] {
			w.failf("I4: in savepoint %s job %d has %v, its positions are %v", path, id, totals[id], want)
		}
	}
	return m
}

// shutdown ends a server in good order.
func (w *simWorld) shutdown(s *simProcess) {
	s.ending = true
	w.trace("shuts down", s.name, "", 0)
	w.spawn(s, func(ctx context.Context) {
		err := s.c.FinalCheckpoint(ctx)
		if s.dead {
			return
		}
		if err != nil { // as with a crash then
			w.mustWork("the last checkpoint", err)
		}
		w.after(0, s, func() {
			if !s.leading {
				return
			}
			s.leading = false
			s.c.box.close()
			for _, ev := range s.c.box.take() {
				s.c.dispatch(s.c.core.step(s.c.now(), ev), nil)
			}
			s.c.dispatch(s.c.core.stop(s.c.now(), shuttingDown()), nil)
			if s.elector != nil {
				s.elect(resign{})
				return
			}
			s.kill(true)
		})
	})
}

// How long a world gets to come to rest once nothing goes wrong any more.
const (
	simCalm = 2 * time.Second  // servers start again, what is under way ends
	simRest = 60 * time.Second // the same without new rows
)

// calmDown ends all trouble, and after a time checks what must hold then.
func (w *simWorld) calmDown() {
	w.calm = true
	w.trace("calm", "", "", 0)
	for slot, s := range w.servers {
		if s != nil && s.frozen {
			s.thaw()
		}
		if s != nil && !w.election && (slot > 0 || w.head.Holder != s.name) {
			s.kill(false) // else both take over from each other for ever
		}
		w.start(slot)
	}
	w.after(simCalm, nil, func() {
		w.producing = false
		for _, s := range w.servers {
			if s != nil && s.elector != nil {
				s.rate = 1
			}
		}
	})
	w.after(simCalm+simRest, nil, w.rest)
}

// rest makes the last checkpoint.
func (w *simWorld) rest() {
	s := w.leader()
	if s == nil {
		w.failf("I7: no server leads")
	}
	for _, id := range s.jobs {
		if s.runs[id] == nil {
			w.failf("I7: job %d does not run", id)
		}
	}
	if s.calls > 0 {
		w.failf("I7: %d requests are not answered", s.calls)
	}
	answered := false
	w.spawn(s, func(ctx context.Context) {
		id, err := s.c.TriggerWith(ctx, TriggerRequest{Class: ClassForced})
		if err != nil {
			w.failf("I7: the last checkpoint fails: %v", err)
		}
		w.trace("last", s.name, "", id)
		answered = true
	})
	w.after(20*time.Second, nil, func() {
		if !answered {
			w.failf("I7: the last checkpoint does not complete")
		}
		w.spawn(s, func(ctx context.Context) {
			if err := s.c.pub.sweep(ctx); err != nil {
				w.failf("I6: sweep: %v", err)
			}
			if err := s.c.pub.collect(ctx); err != nil {
				w.failf("I6: collect: %v", err)
			}
			w.after(time.Second, nil, func() { w.end(s) })
		})
	})
}

// end checks what is left.
func (w *simWorld) end(s *simProcess) {
	w.over = true
	if w.bucket.moving > 0 {
		w.failf("calls are still on their way")
	}
	if n := s.c.core.stats.snapshot().InProgress; n != 0 || len(s.c.core.pending) != 0 || len(s.c.core.requests) != 0 {
		w.failf("I7: %d parts in progress, %d checkpoints, %d requests", n, len(s.c.core.pending), len(s.c.core.requests))
	}
	if s.c.core.cleaning != 0 {
		w.failf("I7: %d removals have not ended", s.c.core.cleaning)
	}
	// A new number holds with the checkpoint after the one that may be under way.
	if n := len(w.head.Retained); n > s.c.Config().Retained && w.counts.commits > w.configured+1 {
		w.failf("%d checkpoints are kept instead of %d", n, s.c.Config().Retained)
	}
	reachable := w.reachable()
	for key := range w.bucket.keys {
		// What an attempt that failed has written goes with the next HEAD.
		if !reachable[key] && s.c.pub.attempted[key] != w.head.Seq+1 {
			w.failf("I6: %s is left", key)
		}
	}
	for key := range w.bucket.uploads {
		w.failf("I6: the upload of %s is left", key)
	}
	for _, id := range s.jobs {
		r := s.runs[id]
		m := s.c.Latest()
		if m.Jobs[id] == nil {
			w.failf("I7: the last checkpoint lacks job %d", id)
		}
		for _, src := range r.sources {
			if src.part < 0 {
				continue
			}
			if d := simDecode(m.Jobs[id]); d.offsets[src.part] != src.offset {
				w.failf("I7: the last checkpoint has job %d at row %d of source %d instead of %d", id, d.offsets[src.part], src.part, src.offset)
			}
			if k := w.sinks[id]; k != nil && k.next[src.part] != src.offset {
				w.failf("I3: the output of job %d has %d rows of source %d instead of %d", id, k.next[src.part], src.part, src.offset)
			}
		}
	}
}

// again tells how to run one seed.
func again(seed uint64) string {
	return fmt.Sprintf("go test ./checkpoint -run 'TestSimulation$' -v -sim.seed=%d -sim.seeds=1", seed)
}

// All promises at once, at random: what completes is a consistent cut, parts take their edges only and end once, ids are never used again, what HEAD needs exists
// and at rest nothing else does, whoever is fenced commits nothing.
func TestSimulation(t *testing.T) {
	checkpointrows.Shows(t, 2, 5, 35, 45, 91, 98, 127, 128, 129)
	simScratch = t.TempDir()
	total := simCounts{}
	check := func(seed uint64, loud bool) {
		w, broken := simulate(seed, loud)
		if broken != "" && !loud {
			w, _ = simulate(seed, true)
		}
		total.add(w.counts)
		if lines := w.lines; broken != "" || loud {
			if n := len(lines) - 150; n > 0 && !loud {
				lines = lines[n:]
			}
			t.Log(strings.Join(lines, "\n"))
		}
		require.Empty(t, broken, "seed %d; run it again with\n%s", seed, again(seed))
	}
	if *simSeeds == 1 {
		check(*simSeed, true)
		return
	}
	for _, seed := range simFailed {
		check(seed, false)
	}
	seed, began, told := *simSeed, time.Now(), time.Now()
	var broken []uint64
	for n := 1; n <= *simSeeds || *simSeeds == 0 && time.Since(began) < simTime; n++ {
		if *simSeeds == 0 {
			check(seed, false)
		} else if w, why := simulate(seed, false); why != "" {
			broken = append(broken, seed)
			fmt.Printf("seed %d: %s\n", seed, why)
		} else {
			total.add(w.counts)
		}
		seed++
		if time.Since(told) > time.Minute {
			told = time.Now()
			fmt.Printf("%d seeds: %+v\n", n, total)
		}
	}
	t.Logf("seeds %d to %d: %+v", *simSeed, seed-1, total)
	require.Empty(t, broken, "run one again with\n%s", again(seed))
	if *simSeeds == 0 {
		require.Positive(t, total.commits)
	}
}

// TestSimulationRepeats: a seed decides everything.
func TestSimulationRepeats(t *testing.T) {
	simScratch = t.TempDir()
	for seed := range uint64(15) {
		a, _ := simulate(seed, true)
		b, _ := simulate(seed, true)
		require.Equal(t, len(a.lines), len(b.lines), "seed %d", seed)
		for i := range a.lines {
			require.Equal(t, a.lines[i], b.lines[i], "seed %d: line %d", seed, i)
		}
		require.Equal(t, a.hash, b.hash, "seed %d", seed)
	}
}
