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

// Every reason is counted towards the restart of its job, or is not.
func TestCountedFailures(t *testing.T) {
	checkpointrows.Shows(t, 59)
	counted := map[FailureReason]bool{
		IOException: true, BlockingOutputExist: true, CheckpointAsyncException: true, CheckpointExpired: true, CheckpointDeclined: true, TriggerCheckpointFailure: true,
	}
	names := map[string]bool{}
	for r := NoFailure + 1; r < failureReasons; r++ {
		require.NotEmpty(t, r.String())
		require.False(t, names[r.String()])
		names[r.String()] = true
		s := newScript(t, manual(), with(job(1), func(s *JobSettings) { s.TolerableFailures = 0 }))
		s.request(&request{})
		s.step(evDecline{job: 1, id: s.begin(), err: Failed(r, errors.New("broken"))})
		require.Equal(t, counted[r], len(take[actFailJob](s)) == 1, r)
		require.Equal(t, r, s.core.stats.job(1).History[0].Reason)
	}
	require.GreaterOrEqual(t, len(names), 24)

	var f failureCounter
	require.Equal(t, 1, f.failed(5, CheckpointExpired))
	require.Zero(t, f.failed(5, CheckpointDeclined), "each id once")
	require.Equal(t, 2, f.failed(7, IOException))
	require.Zero(t, f.failed(8, CheckpointSubsumed))
	f.succeeded(6)
	require.Equal(t, 1, f.failed(9, CheckpointExpired), "a success begins anew")
	require.Zero(t, f.failed(4, CheckpointExpired), "older ones do not matter any more")
	f.succeeded(3)
	require.Equal(t, 2, f.failed(10, CheckpointExpired), "nor does the success of one")
}

func TestTolerableFailures(t *testing.T) {
	checkpointrows.Shows(t, 60)
	s := newScript(t, manual(), with(job(1), func(s *JobSettings) { s.TolerableFailures = 3 }))
	for i := range 4 {
		s.request(&request{})
		s.step(evDecline{job: 1, id: s.begin(), err: errors.New("disk on fire")})
		failed := take[actFailJob](s)
		require.Len(t, failed, i/3)
		if i == 3 {
			require.ErrorContains(t, failed[0].err, "disk on fire")
		}
	}
}

// Three faults have three names.
func TestReasonsOfFaults(t *testing.T) {
	checkpointrows.Shows(t, 55, 64)
	bubble(t, func(t *testing.T) {
		store := objecttest.NewFaulty(object.NewMemory(""), nil)
		cfg := manual()
		cfg.Timeout = time.Second
		a := job(1)
		r := newRig(t, cfg, store, nil, a).run()
		fails := func(reason FailureReason) {
			t.Helper()
			_, err := r.checkpoint()
			require.Equal(t, reason, ReasonOf(err))
			row := r.c.Stats().Checkpoints[0]
			require.Equal(t, reason, row.Reason)
			require.NotEmpty(t, row.FailureMessage)
		}
		a.set(silent) // its barrier never comes
		fails(CheckpointExpired)
		a.set(func(j *scripted, b Barrier) error {
			j.c.Decline(j.id, b.Checkpoint, &Failure{Reason: CheckpointAsyncException, Err: errors.New("no space left"), Subtasks: []SubtaskStats{{Operator: "agg", Subtask: 3, Bytes: 7, FullBytes: 9}}})
			return nil
		})
		start := time.Now()
		fails(CheckpointAsyncException)
		require.Zero(t, time.Since(start), "at once")
		row := r.c.Stats().Checkpoints[0]
		require.Equal(t, 3, row.Subtasks[0].Subtask)
		require.Equal(t, []int64{7, 9}, []int64{row.CheckpointedSize, row.FullSize})
		a.set(func(j *scripted, b Barrier) error {
			j.c.Decline(j.id, b.Checkpoint, pgerr.Newf(pgerr.IOError, "read error"))
			return nil
		})
		fails(IOException)
		a.set(nil)
		store.SetFaults(func(_ int, op, key string) (objecttest.Fault, bool) { return objecttest.FailBefore, true })
		fails(FinalizeCheckpointFailure)
		store.SetFaults(nil)
		_, err := r.checkpoint()
		require.NoError(t, err)
		require.Equal(t, Counts{Total: 5, Completed: 1, Failed: 4}, r.c.JobStats(1).Counts)
		require.NoError(t, r.end())
	})
}

// The races that concern the coordinator, each by its name.
func TestRaces(t *testing.T) {
	checkpointrows.Shows(t, 44, 47, 49, 53, 58)
	expire := func(s *script) {
		s.now = s.now.Add(s.core.cfg.Timeout)
		s.step(evTick{})
	}
	for name, race := range map[string]func(t *testing.T, s *script, id uint64, r *request){
		"ack after timeout": func(t *testing.T, s *script, id uint64, r *request) {
			expire(s)
			require.Equal(t, map[uint64][]outcome{id: {aborted, aborted}}, s.outcomes())
			got, acts := s.core.ack(s.now, &JobState{Job: 1, Checkpoint: id}, nil)
			require.Equal(t, ackDiscarded, got, "it is known for what it is")
			s.do(acts)
			require.Equal(t, map[uint64][]outcome{id: {aborted}}, s.outcomes(), "its files go")
			require.Empty(t, s.core.pending, "it does not rise again")
			s.request(&request{})
			next := s.begin()
			s.ack(1, next)
			s.ack(2, next)
			s.publish(nil)
			require.Equal(t, next, s.core.members[1].done)
		},
		"duplicate and unknown acks": func(t *testing.T, s *script, id uint64, r *request) {
			for _, want := range []ackResult{ackSuccess, ackDuplicate} {
				got, acts := s.core.ack(s.now, &JobState{Job: 1, Checkpoint: id}, nil)
				require.Equal(t, want, got)
				require.Empty(t, acts)
			}
			got, acts := s.core.ack(s.now, &JobState{Job: 1, Checkpoint: id + 77}, nil)
			require.Equal(t, ackUnknown, got)
			require.Len(t, acts, 1, "its files go")
			got, acts = s.core.ack(s.now, &JobState{Job: 99, Checkpoint: id}, nil)
			require.Equal(t, ackUnknown, got, "a job that takes no part")
			require.Empty(t, acts)
		},
		"ack of an earlier attempt": func(t *testing.T, s *script, id uint64, r *request) {
			s.step(evRestart{&restart{jobs: []uint64{1, 2}, done: make(chan error, 1)}})
			require.Len(t, take[actRestart](s), 1)
			s.outcomes()
			got, acts := s.core.ack(s.now, &JobState{Job: 1, Checkpoint: id}, nil)
			require.Equal(t, ackDiscarded, got)
			require.Len(t, acts, 1)
		},
		"last ack and timeout in the same tick": func(t *testing.T, s *script, id uint64, r *request) {
			s.ack(1, id)
			s.now = s.now.Add(s.core.cfg.Timeout)
			s.ack(2, id)
			s.step(evTick{})
			s.publish(nil)
			require.Equal(t, map[uint64][]outcome{id: {complete, complete}}, s.outcomes())
		},
		"timeout while publishing": func(t *testing.T, s *script, id uint64, r *request) {
			s.ack(1, id)
			s.ack(2, id)
			expire(s)
			require.Empty(t, s.outcomes(), "its outcome is in the store")
			s.publish(nil)
			require.Equal(t, map[uint64][]outcome{id: {complete, complete}}, s.outcomes())
		},
		"decline and last ack": func(t *testing.T, s *script, id uint64, r *request) {
			s.ack(1, id)
			s.ack(2, id)
			s.step(evDecline{job: 1, id: id, err: errors.New("too late")})
			s.publish(nil)
			require.Equal(t, map[uint64][]outcome{id: {complete, complete}}, s.outcomes())
			_, ok := s.answer(r)
			require.True(t, ok)
		},
		"ack and decline of a wrong job": func(t *testing.T, s *script, id uint64, r *request) {
			s.step(evDecline{job: 99, id: id, err: errors.New("who?")})
			s.step(evDecline{job: 1, id: id + 5, err: errors.New("what?")})
			require.Empty(t, s.outcomes())
			require.Len(t, s.core.pending, 1)
		},
		"trigger during a failover": func(t *testing.T, s *script, id uint64, r *request) {
			s.step(evDecline{job: 1, id: id, err: fmt.Errorf("starting: %w", ErrNotRunning)})
			require.Empty(t, take[actFailJob](s))
			require.Equal(t, NotAllRequiredTasksRunning, s.core.stats.job(1).History[0].Reason)
		},
		"notification lost": func(t *testing.T, s *script, id uint64, r *request) {
			s.ack(1, id)
			s.ack(2, id)
			a := take[actPublish](s)[0]
			s.step(evPublished{batch: a.batch, result: &published{manifest: &Manifest{ID: id}, silent: true}})
			require.Empty(t, s.outcomes())
			s.request(&request{})
			next := s.begin()
			s.ack(1, next)
			s.ack(2, next)
			s.publish(nil)
			require.Equal(t, map[uint64][]outcome{next: {complete, complete}}, s.outcomes(), "which stands for all before")
		},
		"stopped": func(t *testing.T, s *script, id uint64, r *request) {
			s.ack(1, id)
			s.do(s.core.stop(s.now, shuttingDown()))
			require.Equal(t, map[uint64][]outcome{id: {aborted, aborted}}, s.outcomes())
			require.Zero(t, s.core.stats.snapshot().InProgress)
			got, ok := s.answer(r)
			require.True(t, ok)
			require.Equal(t, CheckpointCoordinatorShutdown, ReasonOf(got.err))
			require.Empty(t, take[actFailJob](s))
		},
		"dropped": func(t *testing.T, s *script, id uint64, r *request) {
			s.step(evDrop{1})
			require.Zero(t, s.core.stats.snapshot().InProgress)
			require.Empty(t, take[actFailJob](s))
			require.Empty(t, s.core.pending)
		},
		"the clock of the wall is not asked": func(t *testing.T, s *script, id uint64, r *request) {
			s.now = s.now.Add(-24 * time.Hour)
			s.step(evTick{})
			require.Len(t, s.core.pending, 1)
		},
	} {
		t.Run(name, func(t *testing.T) {
			s := newScript(t, manual(), job(1), job(2, 1))
			r := s.request(&request{})
			race(t, s, s.begin(), r)
		})
	}
}

// Ids are remembered for a while after they have ended.
func TestRingOfIds(t *testing.T) {
	var r ring
	for id := uint64(1); id <= 20; id++ {
		r.add(id)
	}
	require.True(t, r.has(20))
	require.True(t, r.has(5))
	require.False(t, r.has(4))
}

// A completed checkpoint does not change with the states it was made of.
func TestCompletedCheckpointsDoNotChange(t *testing.T) {
	checkpointrows.Shows(t, 48)
	bubble(t, func(t *testing.T) {
		a := job(1)
		var handed *JobState
		a.set(func(j *scripted, b Barrier) error {
			handed = j.next(b.Checkpoint)
			j.c.Acknowledge(handed)
			return nil
		})
		store := object.NewMemory("")
		r := newRig(t, manual(), store, nil, a).run()
		_, err := r.checkpoint()
		require.NoError(t, err)
		m := r.c.Latest()
		before := fmt.Sprintf("%+v %+v", m.Jobs[1].State.Deltas, m.Jobs[1])
		handed.Checkpoint, handed.Parallelism, handed.Name = 99, 99, "other"
		handed.State.FullSize, handed.State.Deltas[0].Name = 99, "other"
		require.Equal(t, before, fmt.Sprintf("%+v %+v", m.Jobs[1].State.Deltas, m.Jobs[1]))
		require.Equal(t, "1: 1/1", durable(t, store))
		require.NoError(t, r.end())
	})
}

func TestHistoryAndSummary(t *testing.T) {
	checkpointrows.Shows(t, 132, 133, 134)
	bubble(t, func(t *testing.T) {
		store := objecttest.NewFaulty(object.NewMemory(""), nil)
		cfg := manual()
		cfg.History = 4
		a := job(1)
		delay := time.Duration(0)
		a.set(func(j *scripted, b Barrier) error {
			s := j.next(b.Checkpoint)
			s.State.NewBytes, s.State.FullSize = int64(10*j.version), 1000
			d := delay
			s.Subtasks = []SubtaskStats{
				{Operator: "agg", Subtask: 0, StartDelay: d / 10, Alignment: d / 5, Sync: time.Millisecond, Async: d / 2, ProcessedBytes: 3},
				{Operator: "agg", Subtask: 1, StartDelay: d / 10, Async: d / 3, ProcessedBytes: 4, PersistedBytes: 5, Unaligned: true},
			}
			time.AfterFunc(d, func() { j.c.Acknowledge(s) })
			return nil
		})
		r := newRig(t, cfg, store, nil, a).run()
		for i := range 10 {
			delay = time.Duration(i+1) * 100 * time.Millisecond
			_, err := r.checkpoint()
			require.NoError(t, err)
		}
		s := r.c.JobStats(1)
		require.Equal(t, Counts{Total: 10, Completed: 10}, s.Counts)
		require.Len(t, s.History, 4)
		require.Equal(t, uint64(10), s.History[0].ID)
		require.Equal(t, uint64(10), s.Completed.ID)
		sum := r.c.JobSummary(1)
		require.Equal(t, Distribution{Min: 100, Max: 1000, Avg: 550, P50: 500, P90: 900, P95: 1000, P99: 1000}, sum.EndToEndDuration)
		require.Equal(t, Distribution{Min: 10, Max: 100, Avg: 55, P50: 50, P90: 90, P95: 100, P99: 100}, sum.CheckpointedSize)
		require.Equal(t, int64(200), sum.Alignment.Max)
		require.Equal(t, Distribution{Min: 7, Max: 7, Avg: 7, P50: 7, P90: 7, P95: 7, P99: 7}, sum.ProcessedData)
		for _, row := range s.History {
			slowest, phases := row.Slowest()
			require.Zero(t, slowest.Subtask)
			sum := time.Duration(0)
			for _, p := range phases {
				sum += p.Time
			}
			require.GreaterOrEqual(t, row.Duration, sum)
			require.True(t, row.Unaligned)
		}
		cfg.History = 2
		require.NoError(t, r.c.SetConfig(cfg))
		delay = time.Minute
		go func() { _, _ = r.checkpoint() }()
		synctest.Wait()
		s = r.c.JobStats(1)
		require.Equal(t, []Status{StatusInProgress, StatusCompleted}, []Status{s.History[0].Status, s.History[1].Status})
		require.Equal(t, 1, s.Counts.InProgress)
		// What failed still tells how far it came.
		store.SetFaults(func(_ int, op, key string) (objecttest.Fault, bool) { return objecttest.FailBefore, true })
		time.Sleep(2 * time.Hour)
		synctest.Wait()
		s = r.c.JobStats(1)
		require.Equal(t, StatusFailed, s.Failed.Status)
		require.Equal(t, []int64{110, 1000, 7}, []int64{s.Failed.CheckpointedSize, s.Failed.FullSize, s.Failed.ProcessedBytes})
		store.SetFaults(nil)
		require.NoError(t, r.end())

		two := newRig(t, cfg, store, nil, job(1))
		_, err := two.c.Claim(context.Background())
		require.NoError(t, err)
		require.Equal(t, uint64(10), two.c.JobStats(1).Restored.ID)
	})
}

// A job goes back to its newest completed checkpoint, not to one that is pending.
func TestRestoreFromTheNewestCompletedOne(t *testing.T) {
	checkpointrows.Shows(t, 4, 45)
	bubble(t, func(t *testing.T) {
		store := object.NewMemory("")
		a := job(1)
		r := newRig(t, manual(), store, nil, a).run()
		for range 5 {
			_, err := r.checkpoint()
			require.NoError(t, err)
		}
		a.set(silent)
		go func() { _, _ = r.checkpoint() }()
		synctest.Wait()
		m, err := r.c.Restart(context.Background(), []uint64{1})
		require.NoError(t, err)
		require.Equal(t, uint64(5), m.Jobs[1].Checkpoint)
		require.Equal(t, uint64(5), r.c.JobStats(1).Restored.ID)
		require.Equal(t, 1, r.c.JobStats(1).Counts.Restored)
		require.NoError(t, r.end())
		two := newRig(t, manual(), store, nil, job(1))
		m, err = two.c.Claim(context.Background())
		require.NoError(t, err)
		require.Equal(t, uint64(5), m.Jobs[1].Checkpoint)
		require.Equal(t, uint64(5), two.c.Stats().RestoredID)
		two.run()
		id, err := two.checkpoint()
		require.NoError(t, err)
		require.Greater(t, id, uint64(6), "nor is an id given out again")
		require.NoError(t, two.end())
	})
}

// What is told of a barrier is what its job asks for, and it survives being passed on.
func TestBarriersOfACut(t *testing.T) {
	checkpointrows.Shows(t, 8)
	at := time.Unix(1000, 0)
	s := DefaultJobSettings()
	require.Equal(t, Barrier{Epoch: 7, Checkpoint: 3, Kind: KindCheckpoint, Triggered: at}, Cut{Kind: KindCheckpoint}.Barrier(3, 7, at, s))
	s.Unaligned = true
	require.True(t, Cut{Kind: KindCheckpoint}.Barrier(3, 7, at, s).Unaligned)
	s.AlignedTimeout = time.Second
	b := Cut{Kind: KindCheckpoint, Full: true}.Barrier(3, 7, at, s)
	require.False(t, b.Unaligned)
	require.True(t, b.Full)
	require.Equal(t, time.Second, b.AlignedTimeout)
	spec := &SavepointSpec{Target: "file:///x"}
	b = Cut{Kind: KindSavepoint, Savepoint: spec, Full: true}.Barrier(3, 7, at, s)
	require.Equal(t, Barrier{Epoch: 7, Checkpoint: 3, Kind: KindSavepoint, Triggered: at, Full: true, Savepoint: spec}, b, "always aligned")
}

// Nobody is told before the outcome is durable; then those who took part are, and after them whoever asked.
func TestOrderOfACompletion(t *testing.T) {
	checkpointrows.Shows(t, 51)
	s := newScript(t, manual(), with(job(1), func(s *JobSettings) { s.MaxConcurrent = 2 }))
	s.request(&request{})
	older := s.begin()
	r := s.request(&request{})
	id := s.begin()
	take[actTrigger](s)
	s.ack(1, id)
	publish := take[actPublish](s)
	require.Len(t, publish, 1)
	require.Empty(t, s.acts, "nothing but the publication")
	s.step(evPublished{batch: publish[0].batch, result: &published{manifest: &Manifest{ID: id}}})
	var order []string
	for _, a := range s.acts {
		switch a := a.(type) {
		case actNotify:
			order = append(order, fmt.Sprintf("%d: %d", a.id, a.outcome))
		case actReply:
			if a.request == r {
				order = append(order, "answer")
			}
		}
	}
	require.Equal(t, []string{fmt.Sprintf("%d: %d", id, complete), fmt.Sprintf("%d: %d", older, aborted), "answer"}, order)
}
