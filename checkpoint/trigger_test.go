package checkpoint

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/streamdb/streamdb/internal/checkpointrows"
	"github.com/streamdb/streamdb/internal/pgerr"
	"github.com/streamdb/streamdb/storage/object"
	"github.com/streamdb/streamdb/storage/object/objecttest"
)

// with gives a job settings of its own.
func with(j *scripted, change func(s *JobSettings)) *scripted {
	s := manual().JobSettings()
	change(&s)
	j.configure(s)
	return j
}

func interval1(d time.Duration) func(*JobSettings) { return func(s *JobSettings) { s.Interval = d } }

func gaps(j *scripted) []time.Duration {
	var out []time.Duration
	ts := j.times()
	for i := 1; i < len(ts); i++ {
		out = append(out, ts[i].Sub(ts[i-1]))
	}
	return out
}

func TestEveryIntervalATrigger(t *testing.T) {
	checkpointrows.Shows(t, 36)
	bubble(t, func(t *testing.T) {
		a := with(job(1), interval1(3*time.Second))
		b := with(job(2), func(s *JobSettings) { s.Interval, s.MinPause = time.Second, 5*time.Second })
		off := with(job(3), interval1(0))
		r := newRig(t, manual(), object.NewMemory(""), nil, a, off).run()
		other := newRig(t, manual(), object.NewMemory(""), nil, b).run() // jobs that are due at almost the same time share a checkpoint
		time.Sleep(3 * time.Second)
		synctest.Wait()
		first := len(a.times())
		require.LessOrEqual(t, first, 1)
		time.Sleep(300 * time.Second)
		synctest.Wait()
		require.Equal(t, first+100, len(a.times()))
		require.NotEmpty(t, b.times())
		for _, g := range gaps(b) {
			require.Equal(t, 5*time.Second, g, "the effective interval is at least the pause")
		}
		require.Empty(t, off.times())
		require.NoError(t, r.end())
		require.NoError(t, other.end())
	})
}

func TestFirstTriggersAreSpread(t *testing.T) {
	checkpointrows.Shows(t, 37)
	bubble(t, func(t *testing.T) {
		var jobs []*scripted
		for id := range uint64(50) {
			jobs = append(jobs, with(job(id+1), func(s *JobSettings) { s.Interval, s.MinPause = 100*time.Second, 20*time.Second }))
		}
		start := time.Now()
		r := newRig(t, manual(), object.NewMemory(""), nil, jobs...).run()
		time.Sleep(101 * time.Second)
		synctest.Wait()
		buckets := map[int]bool{}
		for _, j := range jobs {
			require.NotEmpty(t, j.times())
			d := j.times()[0].Sub(start)
			require.GreaterOrEqual(t, d, 19*time.Second, "not before the pause, but for those that join another")
			require.LessOrEqual(t, d, 100*time.Second)
			buckets[int(d/time.Second)] = true
		}
		require.GreaterOrEqual(t, len(buckets), 25)
		require.NoError(t, r.end())
	})
}

// Jobs that follow the server's interval share their ids; one with its own is cut alone, with what it reads.
func TestJobsShareIds(t *testing.T) {
	bubble(t, func(t *testing.T) {
		tables, a, b := job(1), job(2, 1), job(3, 1)
		own := with(job(4, 1), interval1(500*time.Millisecond))
		r := newRig(t, every(5*time.Second), object.NewMemory(""), nil, tables, a, b, own).run()
		time.Sleep(60 * time.Second)
		synctest.Wait()
		require.Equal(t, a.times(), b.times())
		require.InDelta(t, 13, len(a.times()), 1)
		require.InDelta(t, 120, len(own.times()), 2)
		require.GreaterOrEqual(t, len(tables.times()), len(own.times()))
		require.NoError(t, r.end())
		requireTidy(t, r.store)
	})
}

// Jobs that are cut at different times come to rest all the same when nothing happens any more.
func TestQuietWithSeveralIntervals(t *testing.T) {
	bubble(t, func(t *testing.T) {
		jobs := []*scripted{job(1), with(job(2, 1), interval1(700*time.Millisecond)), with(job(3, 1), interval1(1100*time.Millisecond))}
		r := newRig(t, every(5*time.Second), object.NewMemory(""), nil, jobs...).run()
		time.Sleep(20 * time.Second)
		for _, j := range jobs {
			j.set(unchanged)
		}
		r.mu.Lock()
		r.quiet = true
		r.mu.Unlock()
		time.Sleep(20 * time.Second)
		synctest.Wait()
		var before [3]int
		for i, j := range jobs {
			before[i] = len(j.times())
		}
		time.Sleep(time.Hour)
		synctest.Wait()
		for i, j := range jobs {
			require.Len(t, j.times(), before[i])
		}
		require.NoError(t, r.end())
	})
}

func TestAJobThatComesLaterIsScheduled(t *testing.T) {
	bubble(t, func(t *testing.T) {
		r := newRig(t, manual(), object.NewMemory(""), nil, with(job(1), interval1(time.Hour))).run()
		time.Sleep(time.Minute)
		late := with(job(2), interval1(time.Second))
		late.c = r.c
		r.mu.Lock()
		r.jobs[2] = late
		r.mu.Unlock()
		r.c.Refresh()
		time.Sleep(10 * time.Second)
		synctest.Wait()
		require.InDelta(t, 10, len(late.times()), 1)
		// A change of its settings moves its next checkpoint.
		with(late, interval1(100*time.Millisecond))
		r.c.Refresh()
		n := len(late.times())
		time.Sleep(time.Second + time.Millisecond)
		synctest.Wait()
		require.Equal(t, n+10, len(late.times()))
		with(late, interval1(0))
		r.c.Refresh()
		time.Sleep(time.Minute)
		synctest.Wait()
		require.Equal(t, n+10, len(late.times()))
		require.NoError(t, r.end())
	})
}

func TestIntervalDuringBacklog(t *testing.T) {
	checkpointrows.Shows(t, 38)
	bubble(t, func(t *testing.T) {
		a := with(job(1), func(s *JobSettings) { s.Interval, s.BacklogInterval = time.Second, 10*time.Second })
		never := with(job(2), func(s *JobSettings) { s.Interval, s.BacklogInterval = time.Second, 0 })
		r := newRig(t, manual(), object.NewMemory(""), nil, a, never).run()
		time.Sleep(5 * time.Second)
		a.backlog.Store(true)
		never.backlog.Store(true)
		synctest.Wait()
		n, m := len(a.times()), len(never.times())
		time.Sleep(60 * time.Second)
		synctest.Wait()
		require.InDelta(t, 6, len(a.times())-n, 1)
		require.Equal(t, m, len(never.times()))
		a.backlog.Store(false)
		never.backlog.Store(false)
		n, m = len(a.times()), len(never.times())
		time.Sleep(10 * time.Second)
		synctest.Wait()
		require.InDelta(t, 10, len(a.times())-n, 1)
		require.InDelta(t, 10, len(never.times())-m, 1)
		require.NoError(t, r.end())
	})
}

// The pause counts from the end of the last success; requests and savepoints do not keep it, failures do not begin it anew.
func TestMinPause(t *testing.T) {
	checkpointrows.Shows(t, 43)
	bubble(t, func(t *testing.T) {
		a := with(job(1), func(s *JobSettings) {
			s.Interval, s.MinPause, s.TolerableFailures = 2*time.Second, 2*time.Second, 1000
		})
		a.set(after(500 * time.Millisecond))
		r := newRig(t, manual(), object.NewMemory(""), nil, a).run()
		time.Sleep(20 * time.Second)
		synctest.Wait()
		for _, g := range gaps(a) {
			require.Equal(t, 2500*time.Millisecond, g)
		}
		n := len(a.times())
		_, err := r.checkpoint()
		require.NoError(t, err)
		_, err = r.checkpoint()
		require.NoError(t, err)
		require.Greater(t, len(a.times()), n+1, "requests do not wait")
		a.set(func(j *scripted, b Barrier) error {
			time.AfterFunc(1900*time.Millisecond, func() { j.c.Decline(j.id, b.Checkpoint, Failed(CheckpointDeclinedTaskNotReady, errors.New("no"))) })
			return nil
		})
		time.Sleep(3 * time.Second)
		n = len(a.times())
		time.Sleep(20 * time.Second)
		synctest.Wait()
		require.InDelta(t, n+10, len(a.times()), 1, "after a failure the interval alone counts")
		require.NoError(t, r.end())
	})
}

// A job that fails again and again is asked more and more rarely.
func TestFailuresBackOff(t *testing.T) {
	bubble(t, func(t *testing.T) {
		a := with(job(1), func(s *JobSettings) { s.Interval, s.TolerableFailures = time.Second, 1000 })
		a.set(declines)
		r := newRig(t, manual(), object.NewMemory(""), nil, a).run()
		time.Sleep(100 * time.Second)
		synctest.Wait()
		g := gaps(a)
		require.Equal(t, []time.Duration{time.Second, 2 * time.Second, 4 * time.Second, 8 * time.Second, 8 * time.Second}, g[:5])
		a.set(nil)
		time.Sleep(30 * time.Second)
		synctest.Wait()
		g = gaps(a)
		require.Equal(t, time.Second, g[len(g)-1])
		require.NoError(t, r.end())
	})
}

func TestMaxConcurrentCheckpoints(t *testing.T) {
	checkpointrows.Shows(t, 42)
	for _, most := range []int{1, 3} {
		bubble(t, func(t *testing.T) {
			tables := job(1)
			a := with(job(2, 1), func(s *JobSettings) { s.Interval, s.MaxConcurrent, s.Timeout = 100*time.Millisecond, most, time.Hour })
			inFlight, highest := 0, 0
			a.set(func(j *scripted, b Barrier) error {
				j.mu.Lock()
				inFlight++
				highest = max(highest, inFlight)
				j.mu.Unlock()
				s := j.next(b.Checkpoint)
				time.AfterFunc(time.Second, func() {
					j.mu.Lock()
					inFlight--
					j.mu.Unlock()
					j.c.Acknowledge(s)
				})
				return nil
			})
			cfg := manual()
			cfg.GroupWindow = 0
			r := newRig(t, cfg, object.NewMemory(""), nil, tables, a).run()
			for range 5 {
				go func() { _, _ = r.checkpoint() }() // requests wait, too
			}
			time.Sleep(20 * time.Second)
			synctest.Wait()
			require.Equal(t, most, highest)
			require.Greater(t, len(a.times()), 15*most)
			require.NoError(t, r.end())
		})
	}
}

// Newer ones that are completed first end older ones; what comes of these later is let go.
func TestSubsumption(t *testing.T) {
	checkpointrows.Shows(t, 52)
	a := job(1)
	with(a, func(s *JobSettings) { s.MaxConcurrent = 3 })
	s := newScript(t, manual(), a)
	r6 := s.request(&request{})
	six := s.begin()
	sp := s.request(&request{savepoint: &SavepointSpec{}})
	saved := s.begin()
	s.request(&request{})
	eight := s.begin()
	s.ack(1, eight)
	s.publish(nil)
	require.Equal(t, map[uint64][]outcome{eight: {complete}, six: {aborted}}, s.outcomes())
	got, ok := s.answer(r6)
	require.True(t, ok)
	require.NoError(t, got.err, "the newer one covers it")
	s.ack(1, six)
	require.Equal(t, map[uint64][]outcome{six: {aborted}}, s.outcomes())
	require.Empty(t, take[actPublish](s))
	s.ack(1, saved)
	require.Len(t, take[actSavepoint](s), 1, "a savepoint is never subsumed")
	s.step(evSavepoint{id: saved})
	_, ok = s.answer(sp)
	require.True(t, ok)
	require.Equal(t, eight, s.core.members[1].done, "nor does a late one become the latest")
	rows := s.core.stats.job(1).History
	require.Equal(t, []FailureReason{NoFailure, NoFailure, CheckpointSubsumed}, []FailureReason{rows[0].Reason, rows[1].Reason, rows[2].Reason})
	require.Empty(t, take[actFailJob](s), "subsumed ones are not counted")
}

// A part whose input was never stored at that checkpoint is not stored either: after a crash what it has missed could not be found.
func TestReadersOfSubsumedPartsEnd(t *testing.T) {
	a, reader := with(job(1), func(s *JobSettings) { s.MaxConcurrent = 2 }), with(job(2, 1), func(s *JobSettings) { s.MaxConcurrent = 2 })
	cfg := manual()
	cfg.GroupWindow = 0
	s := newScript(t, cfg, a, reader)
	s.request(&request{})
	one := s.begin()
	s.request(&request{TriggerRequest: TriggerRequest{Jobs: []uint64{1}}})
	two := s.begin()
	s.ack(1, two)
	s.publish(nil)
	s.ack(2, one)
	require.Equal(t, map[uint64][]outcome{two: {complete}, one: {aborted, aborted, aborted}}, s.outcomes())
	three := s.begin() // what was asked for is not covered
	s.ack(1, three)
	s.ack(2, three)
	s.publish(nil)
	s.publish(nil)
	require.Equal(t, map[uint64][]outcome{three: {complete, complete}}, s.outcomes())
}

// A newer state of a reader that cannot be published yet, because something it reads has not come, does not stand for the older one: what this goes on from is stored.
func TestStatesThatReadersNeedAreStoredBeforeNewerOnesThatWait(t *testing.T) {
	two := func(s *JobSettings) { s.MaxConcurrent = 2 }
	cfg := manual()
	cfg.GroupWindow = 0
	s := newScript(t, cfg, with(job(1), two), with(job(2), two), with(job(3, 1, 2), two))
	s.request(&request{})
	first := s.begin()
	s.ack(2, first) // is being published while the others come
	s.request(&request{})
	second := s.begin()
	for _, checkpoint := range []uint64{first, second} {
		s.ack(1, checkpoint)
		s.ack(3, checkpoint)
	}
	require.Equal(t, [][2]uint64{{2, first}}, s.published())
	require.Equal(t, [][2]uint64{{1, first}, {3, first}}, s.published())
	require.Equal(t, [][2]uint64{{1, second}}, s.published())
	s.ack(2, second)
	require.Equal(t, [][2]uint64{{2, second}, {3, second}}, s.published())
}

// Nor does one that waits for others of its checkpoint, to be published together with them.
func TestStatesThatReadersNeedAreStoredBeforeNewerOnesThatAreGrouped(t *testing.T) {
	three := func(s *JobSettings) { s.MaxConcurrent = 4 }
	s := newScript(t, manual(), with(job(1), three), with(job(2, 1), three), with(job(3), three))
	begin := func(jobs ...uint64) uint64 {
		s.request(&request{TriggerRequest: TriggerRequest{Jobs: jobs}})
		return s.begin()
	}
	other := begin(3)
	s.ack(3, other) // is being published while the others come
	first, second, third := begin(2), begin(1), begin(2, 3)
	for _, checkpoint := range []uint64{first, third} {
		s.ack(1, checkpoint)
		s.ack(2, checkpoint)
	}
	s.ack(1, second)
	require.Equal(t, [][2]uint64{{3, other}}, s.published())
	require.Equal(t, [][2]uint64{{1, first}, {2, first}}, s.published())
	require.Equal(t, [][2]uint64{{1, second}}, s.published())
	require.Empty(t, take[actPublish](s))
	s.ack(3, third)
	require.ElementsMatch(t, [][2]uint64{{1, third}, {2, third}, {3, third}}, s.published())
}

// What slower readers go on from is stored before what comes after it, and held until they have handed in their states.
func TestStatesThatReadersNeedAreStored(t *testing.T) {
	two := func(s *JobSettings) { s.MaxConcurrent = 2 }
	s := newScript(t, manual(), with(job(1), two), with(job(2, 1), two))
	s.request(&request{})
	first := s.begin()
	s.request(&request{TriggerRequest: TriggerRequest{Jobs: []uint64{1}}})
	second := s.begin()
	s.ack(1, first)
	s.ack(1, second)
	var got []*batch
	publish := func() {
		a := take[actPublish](s)
		require.Len(t, a, 1)
		got = append(got, a[0].batch)
		s.step(evPublished{batch: a[0].batch, result: &published{manifest: &Manifest{ID: a[0].batch.id}}})
	}
	publish()
	publish()
	s.ack(2, first)
	publish()
	require.Equal(t, first, got[0].changed[0].Checkpoint)
	require.Equal(t, second, got[1].changed[0].Checkpoint)
	require.Equal(t, map[uint64][]uint64{1: {first}}, got[1].late)
	require.Equal(t, uint64(2), got[2].changed[0].Job)
	require.Empty(t, got[2].late)
}

func TestQueueOfRequests(t *testing.T) {
	checkpointrows.Shows(t, 40)
	s := newScript(t, manual(), job(1))
	s.request(&request{})
	id := s.begin() // the job is busy from here on
	class := func(c Class) *request { return &request{TriggerRequest: TriggerRequest{Class: c}} }
	var all []*request
	for range 3 {
		for _, r := range []*request{class(ClassManual), class(ClassForced), {savepoint: &SavepointSpec{}}} {
			s.now = s.now.Add(time.Second)
			r.done = make(chan reply, 1)
			all = append(all, r)
			s.core.enqueue(s.now, r, nil)
		}
	}
	ranks := func() (out []string) {
		for _, r := range s.core.requests {
			out = append(out, fmt.Sprintf("%d@%d", r.rank(), r.at.Unix()%100))
		}
		return out
	}
	require.Equal(t, []string{"0@3", "0@6", "0@9", "1@2", "1@5", "1@8", "2@0", "2@1", "2@4", "2@7"}, ranks())
	var acts []action
	for len(s.core.requests) < maxRequests {
		acts = s.core.enqueue(s.now, class(ClassForced), acts)
	}
	require.Empty(t, acts)
	refused := func(r *request) *request {
		acts := s.core.enqueue(s.now.Add(time.Minute), r, nil)
		require.Len(t, acts, 1)
		reply := acts[0].(actReply)
		require.Equal(t, TooManyCheckpointRequests, ReasonOf(reply.reply.err))
		require.Equal(t, pgerr.ConfigurationLimitExceeded, pgerr.CodeOf(reply.reply.err))
		require.Len(t, s.core.requests, maxRequests)
		return reply.request
	}
	require.Equal(t, all[6], refused(class(ClassForced)), "the newest of the lowest class")
	require.Equal(t, all[3], refused(&request{savepoint: &SavepointSpec{}}))
	mine := class(ClassManual)
	require.Equal(t, mine, refused(mine))
	require.NotZero(t, id)
}

// Whatever keeps a checkpoint from beginning says so in its own words.
func TestWhatHoldsATriggerBack(t *testing.T) {
	checkpointrows.Shows(t, 41, 46)
	reason := func(s *script, r *request) FailureReason {
		t.Helper()
		got, ok := s.answer(r)
		require.True(t, ok)
		return ReasonOf(got.err)
	}
	t.Run("not running", func(t *testing.T) {
		s := newScript(t, manual(), job(1), job(2, 1), job(3, 77))
		require.Equal(t, NotAllRequiredTasksRunning, reason(s, s.request(&request{TriggerRequest: TriggerRequest{Jobs: []uint64{99}}})))
		require.Equal(t, NotAllRequiredTasksRunning, reason(s, s.request(&request{TriggerRequest: TriggerRequest{Jobs: []uint64{3}}})), "nor what it reads")
		r := s.request(&request{TriggerRequest: TriggerRequest{Jobs: []uint64{2}}})
		id := s.begin()
		s.step(evDecline{job: 1, id: id, err: ErrNotRunning})
		require.Equal(t, NotAllRequiredTasksRunning, reason(s, r))
		require.Equal(t, NotAllRequiredTasksRunning, s.core.stats.job(1).History[0].Reason)
		require.Empty(t, take[actFailJob](s), "a job that starts is not failed for it")
	})
	t.Run("one at a time", func(t *testing.T) {
		s := newScript(t, manual(), job(1))
		s.request(&request{})
		s.request(&request{})
		id := s.begin()
		require.Empty(t, take[actBegin](s), "pending")
		s.ack(1, id)
		s.publish(nil)
		require.Len(t, take[actBegin](s), 1)
	})
	t.Run("cannot begin", func(t *testing.T) {
		s := newScript(t, manual(), job(1))
		r := s.request(&request{})
		s.step(evBegun{id: take[actBegin](s)[0].id, err: errors.New("store")})
		require.Equal(t, TriggerCheckpointFailure, reason(s, r))
	})
	t.Run("cleaning", func(t *testing.T) {
		checkpointrows.Shows(t, 95)
		s := newScript(t, manual(), job(1))
		for range maxCleaning + 1 { // slow removals do not hold up the next ones, up to a number
			s.request(&request{})
			s.ack(1, s.begin())
			a := take[actPublish](s)[0]
			s.step(evPublished{batch: a.batch, result: &published{manifest: &Manifest{}}})
		}
		s.request(&request{})
		require.Empty(t, take[actBegin](s))
		s.request(&request{savepoint: &SavepointSpec{}})
		require.Len(t, take[actBegin](s), 1, "a savepoint does not wait for that")
		s.step(evBegun{id: s.core.planned.id, epoch: 5000})
		s.step(evCollected{})
		require.Len(t, take[actBegin](s), 1)
	})
	t.Run("shutdown", func(t *testing.T) {
		s := newScript(t, manual(), job(1))
		r := s.request(&request{})
		s.begin()
		s.do(s.core.stop(s.now, shuttingDown()))
		require.Equal(t, CheckpointCoordinatorShutdown, reason(s, r))
		require.Equal(t, CheckpointCoordinatorShutdown, s.core.stats.job(1).History[0].Reason)
	})
	t.Run("last", func(t *testing.T) {
		s := newScript(t, every(time.Second), with(job(1), interval1(time.Second)))
		s.step(evLast{})
		s.now = s.now.Add(time.Minute)
		s.step(evTick{})
		require.Empty(t, take[actBegin](s), "no periodic ones after the last")
	})
}

// FULL writes everything again, INCREMENTAL what changed, also where the settings say otherwise.
func TestTypesOfCheckpoints(t *testing.T) {
	checkpointrows.Shows(t, 39)
	bubble(t, func(t *testing.T) {
		big := make([]byte, packFileBytes+1)
		dir := t.TempDir()
		base := fileHandle(t, dir, "base.sst", big)
		a := job(1)
		a.set(func(j *scripted, b Barrier) error {
			s := j.next(b.Checkpoint)
			s.State.Base = append(s.State.Base, base)
			j.c.Acknowledge(s)
			return nil
		})
		r := newRig(t, manual(), object.NewMemory(""), nil, a).run()
		uploads := func(of Type) bool {
			id, err := r.c.TriggerWith(context.Background(), TriggerRequest{Type: of})
			require.NoError(t, err)
			row := r.c.Stats().Checkpoints[0]
			require.Equal(t, id, row.ID)
			return row.UploadedBytes > int64(len(big))
		}
		require.True(t, uploads(TypeConfigured), "the first")
		require.False(t, uploads(TypeConfigured))
		require.False(t, uploads(TypeIncremental))
		require.True(t, uploads(TypeFull))
		with(a, func(s *JobSettings) { s.Incremental = false })
		require.True(t, uploads(TypeConfigured))
		require.False(t, uploads(TypeIncremental))
		require.NoError(t, r.end())
		requireTidy(t, r.store)
	})
}

func TestRetainedCheckpoints(t *testing.T) {
	checkpointrows.Shows(t, 92, 93)
	bubble(t, func(t *testing.T) {
		store := objecttest.NewFaulty(object.NewMemory(""), nil)
		cfg := manual()
		cfg.Retained = 3
		a := job(1)
		r := newRig(t, cfg, store, nil, a).run()
		retained := func() (ids []uint64) {
			h, _, err := readHead(context.Background(), store)
			require.NoError(t, err)
			for _, m := range h.Retained {
				ids = append(ids, m.ID)
			}
			return ids
		}
		for range 5 {
			_, err := r.checkpoint()
			require.NoError(t, err)
		}
		require.Equal(t, []uint64{3, 4, 5}, retained())
		store.SetFaults(func(_ int, op, key string) (objecttest.Fault, bool) {
			return objecttest.FailBefore, key != headKey && op != "get"
		})
		_, err := r.checkpoint()
		require.Error(t, err)
		require.Equal(t, []uint64{3, 4, 5}, retained(), "one that fails takes none away")
		require.Equal(t, FinalizeCheckpointFailure, r.c.Stats().Checkpoints[0].Reason)
		store.SetFaults(nil)
		_, err = r.checkpoint()
		require.NoError(t, err)
		require.Equal(t, []uint64{4, 5, 7}, retained())
		require.NoError(t, r.end())
		requireTidy(t, store)
	})
}
