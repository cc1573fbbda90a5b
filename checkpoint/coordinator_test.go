package checkpoint

import (
	"context"
	"errors"
	"os"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/streamdb/streamdb/internal/pgerr"
	"github.com/streamdb/streamdb/state"
	"github.com/streamdb/streamdb/storage/object"
	"github.com/streamdb/streamdb/storage/object/objecttest"
)

func TestManualCheckpointOfAllJobs(t *testing.T) {
	bubble(t, func(t *testing.T) {
		store := object.NewMemory("")
		a, b := job(1), job(2, 1)
		r := newRig(t, manual(), store, nil, a, b).run()
		id, err := r.checkpoint()
		require.NoError(t, err)
		require.Equal(t, uint64(1), id)
		require.Equal(t, "trigger 1, complete 1", a.events())
		require.Equal(t, "trigger 1, complete 1", b.events())
		require.Equal(t, "1: 1/1, 2: 1/1", durable(t, store))
		id, err = r.checkpoint()
		require.NoError(t, err)
		require.Equal(t, uint64(2), id)
		require.Equal(t, "1: 2/2, 2: 2/2", durable(t, store))
		require.Equal(t, "1/2 COMPLETED, 1/1 COMPLETED, 2/2 COMPLETED, 2/1 COMPLETED", r.statuses())
		row := r.c.Stats().Checkpoints[0]
		require.Equal(t, 3*time.Millisecond, row.Sync)
		require.Positive(t, row.UploadedBytes)
		require.NoError(t, r.end())
		requireTidy(t, store)
	})
}

func TestPeriodic(t *testing.T) {
	bubble(t, func(t *testing.T) {
		a := job(1)
		r := newRig(t, every(time.Second), object.NewMemory(""), nil, a).run()
		time.Sleep(10*time.Second + time.Millisecond)
		synctest.Wait()
		require.InDelta(t, 10, len(a.times()), 1)
		for i := 1; i < len(a.times()); i++ {
			require.Equal(t, time.Second, a.times()[i].Sub(a.times()[i-1]))
		}
		cfg := every(100 * time.Millisecond)
		require.NoError(t, r.c.SetConfig(cfg))
		n := len(a.times())
		time.Sleep(time.Second + time.Millisecond)
		synctest.Wait()
		require.Equal(t, n+10, len(a.times()), "settings apply at once")
		require.NoError(t, r.end())
	})
}

func TestMinPauseCountsFromTheLastSuccess(t *testing.T) {
	bubble(t, func(t *testing.T) {
		a := job(1)
		a.set(after(800 * time.Millisecond))
		cfg := every(time.Second)
		cfg.MinPause = 700 * time.Millisecond
		r := newRig(t, cfg, object.NewMemory(""), nil, a).run()
		time.Sleep(20 * time.Second)
		synctest.Wait()
		require.Greater(t, len(a.times()), 5)
		for i := 1; i < len(a.times()); i++ {
			require.Equal(t, 1500*time.Millisecond, a.times()[i].Sub(a.times()[i-1]))
		}
		require.NoError(t, r.end())
	})
}

func TestNoChangeNoWrite(t *testing.T) {
	bubble(t, func(t *testing.T) {
		store := objecttest.NewFaulty(object.NewMemory(""), nil)
		a, b := job(1), job(2, 1)
		r := newRig(t, every(time.Second), store, nil, a, b).run()
		time.Sleep(5 * time.Second)
		a.set(unchanged)
		b.set(unchanged)
		time.Sleep(2 * time.Second)
		synctest.Wait()
		calls, rows := store.Calls(), len(r.c.Stats().Checkpoints)
		time.Sleep(time.Minute)
		synctest.Wait()
		require.Equal(t, calls, store.Calls(), "nothing is read or written")
		require.LessOrEqual(t, len(r.c.Stats().Checkpoints), rows, "and the history does not fill up")

		r.mu.Lock()
		r.quiet = true
		r.mu.Unlock()
		time.Sleep(2 * time.Second)
		synctest.Wait()
		n := len(a.times())
		time.Sleep(time.Minute)
		synctest.Wait()
		require.Equal(t, n, len(a.times()), "a quiet database is not even asked")

		r.setCatalog(7)
		_, err := r.checkpoint()
		require.NoError(t, err)
		m, err := Load(context.Background(), store)
		require.NoError(t, err)
		require.Equal(t, "catalog 7", string(m.Catalog))
		require.NoError(t, r.end())
	})
}

func TestTimeoutAndLateAnswer(t *testing.T) {
	bubble(t, func(t *testing.T) {
		store := object.NewMemory("")
		a := job(1)
		a.set(silent)
		cfg := manual()
		cfg.Timeout = 5 * time.Second
		r := newRig(t, cfg, store, nil, a).run()
		start := time.Now()
		_, err := r.checkpoint()
		require.ErrorContains(t, err, "expired")
		require.Equal(t, 5*time.Second, time.Since(start))
		require.Equal(t, "trigger 1, abort 1", a.events())
		r.c.Acknowledge(a.next(1))
		synctest.Wait()
		require.Equal(t, "abort 1", a.events(), "the late state is let go")
		require.Empty(t, durable(t, store))
		a.set(nil)
		_, err = r.checkpoint()
		require.NoError(t, err)
		require.Equal(t, "1: 2/2", durable(t, store))
		require.Equal(t, "1/1 FAILED, 2/1 COMPLETED", r.statuses())
		require.NoError(t, r.end())
	})
}

func TestDeclineAndTolerableFailures(t *testing.T) {
	bubble(t, func(t *testing.T) {
		a, b, c := job(1), job(2, 1), job(3)
		cfg := manual()
		cfg.TolerableFailures = 2
		store := object.NewMemory("")
		r := newRig(t, cfg, store, nil, a, b, c).run()
		a.set(declines)
		for i := range 3 {
			require.Len(t, r.failed, i/3)
			_, err := r.checkpoint()
			require.ErrorContains(t, err, "disk on fire")
			synctest.Wait()
		}
		require.Len(t, r.failed, 1, "the third in a row is one too many")
		require.Contains(t, r.failed[0], "disk on fire")
		require.Equal(t, "3: 3/3", durable(t, store), "others go on, readers of the failed one do not")
		require.Equal(t, "trigger 1, abort 1, abort 1, trigger 2, abort 2, abort 2, trigger 3, abort 3, abort 3", b.events())
		a.set(nil)
		_, err := r.checkpoint()
		require.NoError(t, err)
		a.set(declines)
		for range 2 {
			_, err = r.checkpoint()
			require.Error(t, err)
		}
		require.Len(t, r.failed, 1, "a success starts the count anew")
		require.NoError(t, r.end())
	})
}

func TestASlowJobDelaysOnlyItsReaders(t *testing.T) {
	bubble(t, func(t *testing.T) {
		store := object.NewMemory("")
		slow, reader, fast := job(1), job(2, 1), job(3)
		slow.set(after(10 * time.Second))
		cfg := every(time.Second)
		cfg.GroupWindow = 200 * time.Millisecond
		r := newRig(t, cfg, store, nil, slow, reader, fast)
		_, err := r.c.Claim(context.Background())
		require.NoError(t, err)
		r.run()
		time.Sleep(5 * time.Second)
		synctest.Wait()
		require.Contains(t, durable(t, store), "3: ")
		require.NotContains(t, durable(t, store), "1: ", "still at it")
		require.NotContains(t, durable(t, store), "2: ", "acknowledged, but its input has not")
		require.Len(t, slow.times(), 1)
		require.Len(t, reader.times(), 1, "left out while its input is busy")
		require.Greater(t, len(fast.times()), 3)
		time.Sleep(6 * time.Second)
		synctest.Wait()
		require.Contains(t, durable(t, store), "1: 1/1, 2: 1/1, 3: ", "both come in one later batch")
		require.NoError(t, r.end())
		requireTidy(t, store)
	})
}

// A crash between the publication of an input and that of its reader would leave the reader behind what the input can still tell.
func TestASlowJobIsPublishedWithItsInputs(t *testing.T) {
	bubble(t, func(t *testing.T) {
		store := object.NewMemory("")
		input, slow := job(1), job(2, 1)
		cfg := DefaultConfig()
		cfg.Interval = 0
		r := newRig(t, cfg, store, nil, input, slow).run()
		_, err := r.checkpoint()
		require.NoError(t, err)
		slow.set(after(5 * time.Second))
		go func() { _, _ = r.checkpoint() }()
		time.Sleep(4 * time.Second)
		synctest.Wait()
		require.Equal(t, "1: 1/1, 2: 1/1", durable(t, store))
		time.Sleep(2 * time.Second)
		synctest.Wait()
		require.Equal(t, "1: 2/2, 2: 2/2", durable(t, store))
		require.NoError(t, r.end())
	})
}

// What a slow job was cut from is in the manifest when its part comes, also when what it reads has been published several times meanwhile, and until its next one does.
func TestWhatASlowJobReadsIsHeld(t *testing.T) {
	bubble(t, func(t *testing.T) {
		store := object.NewMemory("")
		input, slow, reader := job(1), job(2, 1), job(3, 2)
		slow.set(after(4500 * time.Millisecond))
		cfg := every(time.Second)
		cfg.GroupWindow = 200 * time.Millisecond
		r := newRig(t, cfg, store, nil, input, slow, reader).run()
		for range 20 {
			time.Sleep(time.Second)
			synctest.Wait()
			m := r.c.Latest()
			if m == nil {
				continue // the first one comes at a random moment
			}
			for _, j := range m.Jobs {
				for _, in := range j.Inputs {
					if m.Jobs[in].Since() <= j.Checkpoint {
						continue
					}
					h := m.HeldAt(in, j.Checkpoint)
					require.NotNil(t, h, "job %d goes on from checkpoint %d, job %d has moved on to %d", j.Job, j.Checkpoint, in, m.Jobs[in].Since())
					require.LessOrEqual(t, h.Since(), j.Checkpoint)
					require.LessOrEqual(t, j.Checkpoint, h.Checkpoint)
				}
			}
		}
		require.Greater(t, r.c.Latest().Jobs[2].Checkpoint, uint64(8))
		require.Greater(t, r.c.Latest().Jobs[1].Checkpoint, r.c.Latest().Jobs[2].Checkpoint, "the input does not wait")
		require.NoError(t, r.end())
		requireTidy(t, store)
	})
}

// The files of a job that is dropped may be gone when its state is published: the others are published all the same.
func TestFilesOfADroppedJob(t *testing.T) {
	for _, size := range []int{10, packFileBytes + 1} {
		bubble(t, func(t *testing.T) {
			store := object.NewMemory("")
			stays, goes := job(1), job(2)
			goes.set(func(j *scripted, b Barrier) error {
				s := j.next(b.Checkpoint)
				s.State.Deltas = []state.Handle{fileHandle(t, t.TempDir(), "full-1.sst", make([]byte, size))}
				require.NoError(t, os.Remove(s.State.Deltas[0].Path))
				j.c.Acknowledge(s)
				return nil
			})
			r := newRig(t, manual(), store, nil, stays, goes).run()
			_, err := r.checkpoint()
			require.ErrorContains(t, err, "no such file")
			r.c.Dropping(2)
			_, err = r.checkpoint()
			require.NoError(t, err)
			require.Equal(t, "1: 2/2", durable(t, store))
			r.c.Drop(2)
			_, err = r.checkpoint(1)
			require.NoError(t, err)
			require.Equal(t, "1: 3/3", durable(t, store))
			require.NoError(t, r.end())
			requireTidy(t, store)
		})
	}
}

func TestAReaderIsNeverPublishedBeforeItsInput(t *testing.T) {
	bubble(t, func(t *testing.T) {
		store := object.NewMemory("")
		input, middle, reader := job(1), job(2, 1), job(3, 2)
		cfg := manual()
		cfg.GroupWindow = 0
		r := newRig(t, cfg, store, nil, input, middle, reader).run()
		_, err := r.checkpoint()
		require.NoError(t, err)
		input.set(after(3 * time.Second))
		go func() { _, _ = r.checkpoint() }()
		time.Sleep(2 * time.Second)
		synctest.Wait()
		require.Equal(t, "1: 1/1, 2: 1/1, 3: 1/1", durable(t, store))
		r.c.Decline(1, 2, ErrNotRunning)
		synctest.Wait()
		require.Equal(t, "1: 1/1, 2: 1/1, 3: 1/1", durable(t, store))
		require.Equal(t, "trigger 1, complete 1, trigger 2, abort 2", reader.events())
		require.Empty(t, r.failed, "a job that is restarting is not counted")

		// An unchanged input is as good as one that has written.
		input.set(unchanged)
		_, err = r.checkpoint()
		require.NoError(t, err)
		require.Equal(t, "1: 3/1, 2: 3/3, 3: 3/3", durable(t, store))
		require.NoError(t, r.end())
	})
}

func TestRequestsForSingleJobs(t *testing.T) {
	bubble(t, func(t *testing.T) {
		store := object.NewMemory("")
		input, reader, other := job(1), job(2, 1), job(3)
		r := newRig(t, manual(), store, nil, input, reader, other).run()
		_, err := r.checkpoint(2)
		require.NoError(t, err)
		require.Equal(t, "1: 1/1, 2: 1/1", durable(t, store), "with what it reads from, and no more")
		input.set(notRunning)
		_, err = r.checkpoint(2)
		require.Equal(t, pgerr.ObjectNotInPrerequisiteState, pgerr.CodeOf(err))
		_, err = r.checkpoint(99)
		require.Equal(t, pgerr.ObjectNotInPrerequisiteState, pgerr.CodeOf(err))
		_, err = r.checkpoint()
		require.NoError(t, err, "all that run")
		require.Contains(t, durable(t, store), "3: ")

		// One that is busy is waited for.
		input.set(after(5 * time.Second))
		go func() { _, _ = r.checkpoint(1) }()
		synctest.Wait()
		start := time.Now()
		id, err := r.checkpoint()
		require.NoError(t, err)
		require.Equal(t, 10*time.Second, time.Since(start), "the one in flight, and one that began after the request")
		require.Greater(t, r.c.Latest().Jobs[1].Checkpoint, uint64(5))
		require.Equal(t, id, r.c.Latest().Jobs[1].Checkpoint)
		require.NoError(t, r.end())
	})
}

func TestDroppedJobsLeaveTheCheckpoint(t *testing.T) {
	bubble(t, func(t *testing.T) {
		store := object.NewMemory("")
		a, b := job(1), job(2)
		r := newRig(t, manual(), store, nil, a, b).run()
		_, err := r.checkpoint()
		require.NoError(t, err)
		r.mu.Lock()
		delete(r.jobs, 1)
		r.mu.Unlock()
		r.c.Drop(1)
		b.set(unchanged)
		_, err = r.checkpoint()
		require.NoError(t, err)
		require.Equal(t, "2: 2/1", durable(t, store))
		require.NoError(t, r.end())
		requireTidy(t, store)
	})
}

// No completed checkpoint has a catalog with a job whose state it has let go, or without one whose state it has: such a job would begin anew after a crash, or be gone.
// This holds when a publication fails that was to bring the catalog, and when a slow job brings what began before others went on.
func TestStatesAndCatalogGoTogether(t *testing.T) {
	two := func(s *JobSettings) { s.MaxConcurrent = 2 }
	begin := func(t *testing.T) *script {
		cfg := manual()
		cfg.GroupWindow = 0
		s := newScript(t, cfg, with(job(1), two), with(job(2), two), job(3))
		s.request(&request{})
		first := s.beginWith(1)
		for id := range uint64(3) {
			s.ack(id+1, first)
			s.publish(nil)
		}
		require.Equal(t, uint64(1), s.core.catalogVersion)
		return s
	}
	drop := func(s *script) {
		s.jobs = s.jobs[:2]
		s.step(evDrop{3})
	}
	brings := func(s *script, version uint64, err error, drop ...uint64) {
		s.t.Helper()
		a := take[actPublish](s)
		require.Len(s.t, a, 1)
		b := a[0].batch
		require.Equal(s.t, version, b.catalogVersion)
		require.Equal(s.t, version > 0, b.catalog != nil)
		require.Equal(s.t, drop, b.drop)
		s.step(evPublished{batch: b, result: &published{manifest: &Manifest{ID: b.id}}, err: err})
	}
	t.Run("the rest of a checkpoint after a failure", func(t *testing.T) {
		s := begin(t)
		drop(s)
		s.request(&request{})
		id := s.beginWith(2)
		s.ack(1, id)
		brings(s, 2, errors.New("store"), 3)
		s.ack(2, id)
		brings(s, 2, nil, 3)
	})
	t.Run("nothing is left of it", func(t *testing.T) {
		s := begin(t)
		drop(s)
		s.request(&request{})
		id := s.beginWith(2)
		s.step(evDecline{job: 2, id: id, err: errors.New("no")})
		s.ack(1, id)
		brings(s, 2, errors.New("store"), 3)
		require.Empty(t, take[actPublish](s), "it is not tried for ever")
		s.request(&request{})
		id = s.beginWith(2)
		s.ack(1, id)
		brings(s, 2, nil, 3)
		s.ack(2, id)
		brings(s, 0, nil)
	})
	t.Run("a job may take longer than the others", func(t *testing.T) {
		s := begin(t)
		slow := s.jobs[1].(*scripted)
		with(slow, func(j *JobSettings) { j.Timeout = 10 * s.core.cfg.Timeout })
		drop(s)
		s.request(&request{})
		id := s.beginWith(2)
		s.now = s.now.Add(2 * s.core.cfg.Timeout)
		s.step(evTick{})
		s.ack(2, id)
		brings(s, 2, nil, 3)
		s.request(&request{})
		id = s.beginWith(3)
		s.ack(2, id)
		written := take[actPublish](s)
		s.now = s.now.Add(2 * s.core.cfg.Timeout)
		s.step(evTick{})
		require.Len(t, take[actGiveUp](s), 0, "it has time, and the catalog with it")
		s.step(evPublished{batch: written[0].batch, result: &published{manifest: &Manifest{ID: id}}})
		require.Equal(t, uint64(3), s.core.catalogVersion)
	})
	t.Run("an older one comes later", func(t *testing.T) {
		s := begin(t)
		s.request(&request{})
		older := s.beginWith(2)
		drop(s)
		s.request(&request{TriggerRequest: TriggerRequest{Jobs: []uint64{1}}})
		newer := s.beginWith(3)
		s.ack(1, newer)
		brings(s, 3, nil, 3)
		s.ack(2, older)
		brings(s, 0, nil)
	})
}

func TestAJobDroppedInFlightIsGivenUp(t *testing.T) {
	bubble(t, func(t *testing.T) {
		store := object.NewMemory("")
		a, b := job(1), job(2)
		a.set(silent)
		r := newRig(t, manual(), store, nil, a, b).run()
		go func() { time.Sleep(time.Second); r.c.Drop(1) }()
		_, err := r.checkpoint()
		require.NoError(t, err)
		require.Equal(t, "2: 1/1", durable(t, store))
		require.NoError(t, r.end())
	})
}

// A job that fails after it has acknowledged must not have that state published behind its back.
func TestRestartGivesUpWhatIsInFlight(t *testing.T) {
	bubble(t, func(t *testing.T) {
		store := objecttest.NewFaulty(object.NewMemory(""), nil)
		a, reader, slow := job(1), job(2, 1), job(3)
		cfg := manual()
		cfg.GroupWindow = time.Minute
		r := newRig(t, cfg, store, nil, a, reader, slow).run()
		_, err := r.checkpoint()
		require.NoError(t, err)
		slow.set(after(5 * time.Second))
		go func() { _, _ = r.checkpoint() }()
		time.Sleep(time.Second)
		m, err := r.c.Restart(context.Background(), []uint64{1, 2})
		require.NoError(t, err)
		require.Equal(t, uint64(1), m.Jobs[1].Checkpoint)
		time.Sleep(time.Minute)
		require.Equal(t, "1: 1/1, 2: 1/1, 3: 2/2", durable(t, store))

		// While its state is being published, the outcome is waited for.
		slow.set(nil)
		store.SetFaults(func(_ int, op, key string) (objecttest.Fault, bool) { return objecttest.FailBefore, key == headKey })
		go func() { _, _ = r.checkpoint() }()
		time.Sleep(time.Second)
		go func() {
			time.Sleep(time.Hour)
			store.SetFaults(nil)
		}()
		start := time.Now()
		m, err = r.c.Restart(context.Background(), []uint64{1, 2})
		require.NoError(t, err)
		require.GreaterOrEqual(t, time.Since(start), time.Hour)
		require.Equal(t, uint64(3), m.Jobs[1].Checkpoint)
		require.NoError(t, r.end())
	})
}

func TestShutdown(t *testing.T) {
	bubble(t, func(t *testing.T) {
		store := object.NewMemory("")
		a := job(1)
		r := newRig(t, every(time.Second), store, nil, a).run()
		require.NoError(t, r.c.FinalCheckpoint(context.Background()))
		require.Equal(t, "1: 1/1", durable(t, store))
		time.Sleep(time.Minute)
		require.Len(t, a.times(), 1, "no periodic ones after the last")
		a.set(silent)
		result := make(chan error, 1)
		go func() {
			_, err := r.checkpoint()
			result <- err
		}()
		synctest.Wait()
		require.NoError(t, r.end())
		require.Equal(t, pgerr.AdminShutdown, pgerr.CodeOf(<-result))
		_, err := r.checkpoint()
		require.Equal(t, pgerr.AdminShutdown, pgerr.CodeOf(err))
		r.c.Acknowledge(a.next(9))
		require.Contains(t, a.events(), "abort 2")
	})
}

func TestConfigIsChecked(t *testing.T) {
	for _, bad := range []func(*Config){
		func(c *Config) { c.Interval = time.Nanosecond },
		func(c *Config) { c.MinPause = -1 },
		func(c *Config) { c.Timeout = 0 },
		func(c *Config) { c.Retained = 0 },
		func(c *Config) { c.TolerableFailures = -1 },
		func(c *Config) { c.MaxConcurrent = 0 },
		func(c *Config) { c.GroupWindow = -1 },
	} {
		cfg := DefaultConfig()
		bad(&cfg)
		err := cfg.Validate()
		require.Equal(t, pgerr.InvalidParameterValue, pgerr.CodeOf(err))
		require.ErrorContains(t, err, "execution.checkpointing.")
	}
	require.NoError(t, DefaultConfig().Validate())
}
