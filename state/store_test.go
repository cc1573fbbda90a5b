package state_test

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/streamdb/streamdb/internal/failpoint"
	"github.com/streamdb/streamdb/internal/pgerr"
	"github.com/streamdb/streamdb/state"
)

const groups = 16

var all = state.Range{From: 0, To: groups}

// eager makes every mechanism act on little data.
var eager = state.Policy{
	InlineMaxBytes: 200, InlineTotalBytes: 2000, SSTBytes: 20_000, MaxDeltas: 4, MinRenewBytes: 50_000, MinMergeBytes: 1000,
	IngestMinBytes: 1000, IngestMaxDeltas: 2,
}

type job struct {
	t    *testing.T
	s    *state.Store
	part *state.Part
	id   uint64
	last *state.Snapshot
}

func open(t *testing.T, o state.Options, from *state.Snapshot) *job {
	o.MaxParallelism = groups
	s, err := state.Open(context.Background(), o, from)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, s.Destroy()) })
	p, err := s.Part(7, 0, all, state.Ordered)
	require.NoError(t, err)
	return &job{t: t, s: s, part: p, last: from}
}

func (j *job) fill(from, to int, tag string) {
	for i := from; i < to; i++ {
		j.part.Put(uint16(i%groups), fmt.Appendf(nil, "%06d", i), fmt.Appendf(nil, "%s-%d-some more bytes", tag, i))
	}
}

func (j *job) check(from, to int, tag string) {
	j.t.Helper()
	for i := from; i < to; i++ {
		v, ok, err := j.part.Get(uint16(i%groups), fmt.Appendf(nil, "%06d", i))
		require.NoError(j.t, err)
		require.True(j.t, ok, "key %d", i)
		require.Equal(j.t, fmt.Sprintf("%s-%d-some more bytes", tag, i), string(v))
	}
}

func (j *job) seal() []*state.Sealed { return []*state.Sealed{j.s.Seal(0)} }

func (j *job) checkpoint() *state.Snapshot {
	j.t.Helper()
	j.id++
	sn, err := j.s.Snapshot(context.Background(), j.id, j.seal())
	require.NoError(j.t, err)
	j.s.Confirm(j.id)
	j.last = sn
	return sn
}

func TestTinyStateWritesNoFile(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "job")
	j := open(t, state.Options{Dir: dir}, nil)
	for range 200 {
		j.fill(0, 10, fmt.Sprint("round", j.id))
		j.checkpoint()
	}
	_, err := os.Stat(dir)
	require.ErrorIs(t, err, os.ErrNotExist)
	require.LessOrEqual(t, len(j.last.Deltas), state.DefaultPolicy().MaxDeltas+1)
	again := open(t, state.Options{Dir: dir}, j.last)
	again.check(0, 10, "round199")
	require.EqualValues(t, 10, again.part.Len())
}

func TestBaseFilesKeepTheirNames(t *testing.T) {
	j := open(t, state.Options{Dir: t.TempDir(), Policy: eager, Budget: state.NewBudget(100_000)}, nil)
	names := map[string]bool{}
	shared := 0
	for round := range 60 {
		j.fill(round*400, round*400+400, "a") // ascending keys leave older files alone
		sn := j.checkpoint()
		var fresh int64
		for _, h := range append(append([]state.Handle(nil), sn.Base...), sn.Deltas...) {
			if !names[h.Name] {
				fresh += h.Size
			} else if len(h.Path) > 4 && filepath.Ext(h.Name) == ".sst" {
				shared++
			}
		}
		require.Equal(t, fresh, sn.NewBytes)
		names = map[string]bool{}
		for _, h := range append(append([]state.Handle(nil), sn.Base...), sn.Deltas...) {
			names[h.Name] = true
		}
	}
	m := j.s.Metrics()
	require.Positive(t, m.Bases)
	require.Positive(t, m.Evictions)
	require.Positive(t, shared)
	j.check(0, 24_000, "a")
	big := open(t, state.Options{Dir: t.TempDir(), Policy: eager, Budget: state.NewBudget(100_000)}, j.last)
	big.check(0, 24_000, "a")
	big.fill(24_000, 24_001, "a")
	sn := big.checkpoint()
	require.Less(t, sn.NewBytes, sn.FullSize/2)
	require.Equal(t, handleNames(j.last.Base), handleNames(sn.Base), "a restored store goes on with the files it came from")
	small := open(t, state.Options{Dir: t.TempDir()}, j.last)
	small.check(0, 24_000, "a")
	require.EqualValues(t, 24_000, small.part.Len())
}

func handleNames(hs []state.Handle) (names []string) {
	for _, h := range hs {
		names = append(names, h.Name)
	}
	return names
}

func TestLocalFilesGo(t *testing.T) {
	dir := t.TempDir()
	j := open(t, state.Options{Dir: dir, Policy: eager, Budget: state.NewBudget(50_000)}, nil)
	for range 80 {
		j.fill(0, 500, fmt.Sprint("round", j.id))
		j.checkpoint()
	}
	require.Less(t, countFiles(t, dir), 150)
	require.NoError(t, j.s.Close())
	again := open(t, state.Options{Dir: dir, Policy: eager, Budget: state.NewBudget(50_000)}, j.last)
	again.check(0, 500, "round79")
	again.fill(0, 500, "new")
	again.id = 100
	again.checkpoint()
	entries, err := os.ReadDir(dir)
	require.NoError(t, err)
	require.Len(t, entries, 1, "the earlier incarnation goes at the first confirmation")
}

func countFiles(t *testing.T, dir string) (n int) {
	require.NoError(t, filepath.WalkDir(dir, func(_ string, d os.DirEntry, err error) error {
		if err == nil && !d.IsDir() {
			n++
		}
		return err
	}))
	return n
}

func TestBackendsRestoreEachOther(t *testing.T) {
	for _, from := range []state.BackendType{state.BackendMemory, state.BackendPebble} {
		for _, to := range []state.BackendType{state.BackendMemory, state.BackendPebble} {
			t.Run(fmt.Sprint(from, " to ", to), func(t *testing.T) {
				j := open(t, state.Options{Dir: t.TempDir(), Backend: from, Policy: eager, Budget: state.NewBudget(100_000)}, nil)
				for i := range 10 {
					j.fill(i*1000, i*1000+1000, "x")
					j.checkpoint()
				}
				k := open(t, state.Options{Dir: t.TempDir(), Backend: to, Policy: eager}, j.last)
				k.check(0, 10_000, "x")
				k.fill(0, 10, "y")
				sn := k.checkpoint()
				l := open(t, state.Options{Dir: t.TempDir(), Backend: from}, sn)
				l.check(0, 10, "y")
				l.check(10, 10_000, "x")
			})
		}
	}
}

// TestTablesWithoutPart restores and snapshots state that no operator asked for yet.
func TestTablesWithoutPart(t *testing.T) {
	for name, o := range map[string]state.Options{
		"memory": {Backend: state.BackendMemory}, "small": {Policy: eager}, "large": {Policy: eager, Budget: state.NewBudget(1000)},
	} {
		t.Run(name, func(t *testing.T) {
			o.Dir = t.TempDir()
			j := open(t, o, nil)
			j.fill(0, 3000, "x")
			sn := j.checkpoint()
			o.Dir, o.MaxParallelism = t.TempDir(), groups
			s, err := state.Open(context.Background(), o, sn)
			require.NoError(t, err)
			t.Cleanup(func() { require.NoError(t, s.Destroy()) })
			other, err := s.Part(9, 0, all, state.Ordered)
			require.NoError(t, err)
			other.Put(1, []byte("k"), []byte("v"))
			next, err := s.Snapshot(context.Background(), 1, []*state.Sealed{s.Seal(0)})
			require.NoError(t, err)
			require.EqualValues(t, 3000, next.Entries[7])
			o.Dir = t.TempDir()
			open(t, o, next).check(0, 3000, "x")
		})
	}
}

func TestRestoreRefuses(t *testing.T) {
	ctx := context.Background()
	j := open(t, state.Options{Dir: t.TempDir(), Policy: eager}, nil)
	j.fill(0, 1000, "x")
	sn := j.checkpoint()
	refuse := func(o state.Options, sn state.Snapshot) error {
		t.Helper()
		o.Dir = t.TempDir()
		if o.MaxParallelism == 0 {
			o.MaxParallelism = groups
		}
		_, err := state.Open(ctx, o, &sn)
		require.Error(t, err)
		return err
	}
	newer := *sn
	newer.Format++
	require.Equal(t, pgerr.FeatureNotSupported, pgerr.CodeOf(refuse(state.Options{}, newer)))
	require.Equal(t, pgerr.InvalidParameterValue, pgerr.CodeOf(refuse(state.Options{MaxParallelism: 32}, *sn)))

	h := sn.Deltas[0]
	require.NotEmpty(t, h.Path)
	text, err := os.ReadFile(h.Path)
	require.NoError(t, err)
	bad := filepath.Join(t.TempDir(), "bad.sst")
	text[len(text)/2] ^= 1
	require.NoError(t, os.WriteFile(bad, text, 0o600))
	broken := *sn
	broken.Deltas = append([]state.Handle(nil), sn.Deltas...)
	broken.Deltas[0].Path = bad
	err = refuse(state.Options{}, broken)
	require.Equal(t, pgerr.DataCorrupted, pgerr.CodeOf(err))
	require.ErrorContains(t, err, h.Name)
	broken.Deltas[0].Path = filepath.Join(t.TempDir(), "absent")
	require.Equal(t, pgerr.IOError, pgerr.CodeOf(refuse(state.Options{}, broken)))
}

// TestFaults fails each step once; what was sealed must be in the next snapshot.
func TestFaults(t *testing.T) {
	for _, name := range []string{"state.delta.write", "state.ingest", "state.base.checkpoint"} {
		t.Run(name, func(t *testing.T) {
			fp, err := failpoint.Parse(name + "=error(disk full)*3")
			require.NoError(t, err)
			j := open(t, state.Options{Dir: t.TempDir(), Policy: eager, Budget: state.NewBudget(20_000), Failpoints: fp}, nil)
			failed := 0
			for i := range 30 {
				j.fill(i*1000, i*1000+1000, "x")
				j.id++
				sn, err := j.s.Snapshot(context.Background(), j.id, j.seal())
				if err != nil {
					require.ErrorContains(t, err, "disk full")
					failed++
					continue
				}
				j.s.Confirm(j.id)
				j.last = sn
			}
			require.Equal(t, 3, failed)
			j.check(0, 30_000, "x")
			open(t, state.Options{Dir: t.TempDir(), Policy: eager, Budget: state.NewBudget(20_000)}, j.last).check(0, 30_000, "x")
		})
	}
}

func TestCancelledSnapshotLosesNothing(t *testing.T) {
	j := open(t, state.Options{Dir: t.TempDir(), Policy: eager}, nil)
	j.fill(0, 20_000, "x")
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	_, err := j.s.Snapshot(ctx, 1, j.seal())
	require.ErrorIs(t, err, context.Canceled)
	j.id = 1
	open(t, state.Options{Dir: t.TempDir()}, j.checkpoint()).check(0, 20_000, "x")
}

func TestFlushFreesMemory(t *testing.T) {
	budget := state.NewBudget(1 << 20)
	j := open(t, state.Options{Dir: t.TempDir(), Budget: budget}, nil)
	for i := 0; !j.s.NeedsFlush(); i++ {
		j.fill(i*100, i*100+100, "x")
		require.Less(t, i, 1000)
	}
	require.NoError(t, j.s.Flush(context.Background(), j.seal()))
	j.s.Seal(0)
	require.Less(t, budget.Used(), int64(10_000))
	require.False(t, j.s.NeedsFlush())
	j.check(0, 100, "x")
	require.NoError(t, j.s.Close())
	require.Zero(t, budget.Used())
}

func TestDirty(t *testing.T) {
	j := open(t, state.Options{Dir: t.TempDir()}, nil)
	require.False(t, j.s.Dirty())
	j.fill(0, 1, "x")
	require.True(t, j.s.Dirty())
	require.NoError(t, j.s.Flush(context.Background(), j.seal()))
	require.True(t, j.s.Dirty(), "flushed is not published")
	j.checkpoint()
	require.False(t, j.s.Dirty())
	j.fill(0, 1, "y")
	_, err := j.s.Snapshot(context.Background(), 2, j.seal())
	require.NoError(t, err)
	require.False(t, j.s.Dirty())
	j.s.Abort(2)
	require.True(t, j.s.Dirty(), "an aborted snapshot published nothing")
	j.id = 2
	open(t, state.Options{Dir: t.TempDir()}, j.checkpoint()).check(0, 1, "y")
	require.False(t, j.s.Dirty())
}

func TestOverlappingPartsAreRefused(t *testing.T) {
	s := state.NewMemory(groups)
	a, err := s.Part(1, 0, state.Range{From: 0, To: 8}, state.Ordered)
	require.NoError(t, err)
	b, err := s.Part(1, 0, state.Range{From: 0, To: 8}, state.Ordered)
	require.NoError(t, err)
	require.Same(t, a, b)
	_, err = s.Part(1, 1, state.Range{From: 7, To: 16}, state.Ordered)
	require.Error(t, err)
	_, err = s.Part(1, 1, state.Range{From: 8, To: 17}, state.Ordered)
	require.Error(t, err)
	require.NoError(t, s.Close())
	_, err = s.Part(2, 0, all, state.Ordered)
	require.Error(t, err)
}

// TestConcurrent runs subtasks, checkpoints and readers side by side: each snapshot and each view must hold complete rounds.
func TestConcurrent(t *testing.T) {
	for name, o := range map[string]state.Options{
		"memory": {Backend: state.BackendMemory}, "pebble": {Policy: eager, Budget: state.NewBudget(30_000)},
	} {
		t.Run(name, func(t *testing.T) { concurrent(t, o) })
	}
}

const (
	workers = 3
	rounds  = 40
	keys    = 60
)

func concurrent(t *testing.T, o state.Options) {
	ctx := context.Background()
	o.Dir, o.MaxParallelism = t.TempDir(), groups
	s, err := state.Open(ctx, o, nil)
	require.NoError(t, err)
	views := make(chan *state.View, 64)
	seals := make([]chan *state.Sealed, workers)
	var wg, readers sync.WaitGroup
	for range 2 {
		readers.Go(func() {
			for v := range views {
				if got := roundOf(t, v.ScanAll()); got == "mixed" {
					t.Error("a view mixes rounds")
				}
				v.Close()
			}
		})
	}
	for w := range workers {
		seals[w] = make(chan *state.Sealed, 1)
		p, err := s.Part(1, w, state.SubtaskRange(groups, workers, w), state.Ordered)
		require.NoError(t, err)
		wg.Go(func() {
			for r := range rounds {
				for k := range keys {
					kg := p.Range().From + uint16(k)%(p.Range().To-p.Range().From)
					key := fmt.Appendf(nil, "%d", k)
					if r%5 == 4 {
						p.Delete(kg, key)
					} else {
						p.Put(kg, key, fmt.Appendf(nil, "%d", r))
					}
				}
				views <- p.View()
				seals[w] <- s.Seal(w)
			}
		})
	}
	var last *state.Snapshot
	for r := range rounds {
		var sealed []*state.Sealed
		for w := range workers {
			sealed = append(sealed, <-seals[w])
		}
		if r%7 == 6 {
			require.NoError(t, s.Flush(ctx, sealed))
			continue
		}
		last, err = s.Snapshot(ctx, uint64(r+1), sealed)
		require.NoError(t, err)
		s.Confirm(uint64(r + 1))
		s.Metrics()
		s.NeedsFlush()
		s.Dirty()
	}
	wg.Wait()
	close(views)
	readers.Wait()
	o.Dir = t.TempDir()
	require.NoError(t, s.Close())
	again, err := state.Open(ctx, o, last)
	require.NoError(t, err)
	p, err := again.Part(1, 0, all, state.Ordered)
	require.NoError(t, err)
	require.Equal(t, "", roundOf(t, p.ScanAll()), "the last round deletes all")
	require.NoError(t, again.Destroy())
}

// roundOf returns the value that all entries have, "mixed" when they differ.
func roundOf(t *testing.T, it *state.Iter) string {
	defer it.Close()
	round, n := "", 0
	for it.Next() {
		if n++; n > 1 && round != string(it.Value()) {
			return "mixed"
		}
		round = string(it.Value())
	}
	if it.Err() != nil {
		t.Error(it.Err())
	}
	if n != 0 && n%keys != 0 {
		return "mixed"
	}
	return round
}
