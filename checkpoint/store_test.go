package checkpoint

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/rs/zerolog"
	"github.com/stretchr/testify/require"

	"github.com/streamdb/streamdb/internal/checkpointrows"
	"github.com/streamdb/streamdb/internal/failpoint"
	"github.com/streamdb/streamdb/internal/pgerr"
	"github.com/streamdb/streamdb/state"
	"github.com/streamdb/streamdb/storage/object"
	"github.com/streamdb/streamdb/storage/object/objecttest"
)

func testPublisher(t *testing.T, store object.Store) *publisher {
	t.Helper()
	p := newPublisher(store, "test", zerolog.Nop(), nil)
	_, _, err := p.claim(context.Background())
	require.NoError(t, err)
	return p
}

// pebbleState is a state with a large, a small and an inline part.
func pebbleState(t *testing.T, dir string, id uint64, deltas int) *JobState {
	t.Helper()
	s := &JobState{
		Job: 7, Name: "mv", Checkpoint: id, Epoch: id * 10, Parallelism: 4,
		Positions: map[string][]byte{"src/0": []byte("offset 17"), "src/1": bytes.Repeat([]byte{1}, 5000)},
		Operators: map[string][]byte{"agg": bytes.Repeat([]byte{byte(id)}, 30_000), "none": {}},
		State: &state.Snapshot{
			Format: 1, Backend: state.BackendPebble, MaxParallelism: 128, FullSize: 1000, NewBytes: 100,
			Entries: map[uint32]int64{1: 5, 2: 6},
			Base: []state.Handle{
				fileHandle(t, dir, "i1/000001.sst", bytes.Repeat([]byte("base"), 100_000)),
				fileHandle(t, dir, "i1/MANIFEST-000001", []byte("manifest")),
			},
		},
	}
	for i := range deltas {
		s.State.Deltas = append(s.State.Deltas, fileHandle(t, dir, fmt.Sprintf("i1/d%d.sst", i), fmt.Appendf(nil, "delta %d", i)))
	}
	inline := []byte("tiny")
	s.State.Deltas = append(s.State.Deltas, state.Handle{Name: "i1/inline", Inline: inline, Size: 4, CRC: castagnoli(inline)})
	return s
}

func publishState(t *testing.T, p *publisher, s *JobState) *published {
	t.Helper()
	res, err := p.publish(context.Background(), &batch{
		id: s.Checkpoint, epoch: s.Epoch, changed: []*JobState{s}, retained: 1, catalogVersion: s.Checkpoint, catalog: []byte("catalog"),
	})
	require.NoError(t, err)
	require.NoError(t, p.collect(context.Background()))
	return res
}

func requireRestores(t *testing.T, store object.Store, want *JobState, local ...string) {
	t.Helper()
	m, err := Load(context.Background(), store)
	require.NoError(t, err)
	require.Equal(t, "catalog", string(m.Catalog))
	got := m.Jobs[want.Job]
	require.Equal(t, want.Positions, got.Positions)
	require.Equal(t, want.Operators, got.Operators)
	require.Equal(t, want.Parallelism, got.Parallelism)
	require.Equal(t, want.Epoch, got.Epoch)
	dir := t.TempDir()
	snap, err := Fetch(context.Background(), store, got, dir, local...)
	require.NoError(t, err)
	require.Equal(t, want.State.Entries, snap.Entries)
	require.Equal(t, want.State.Backend, snap.Backend)
	for i, lists := range [][2][]state.Handle{{want.State.Base, snap.Base}, {want.State.Deltas, snap.Deltas}} {
		require.Len(t, lists[1], len(lists[0]), i)
		for j, h := range lists[0] {
			g := lists[1][j]
			require.Equal(t, []any{h.Name, h.Size, h.CRC, h.First, h.Last, h.Inline}, []any{g.Name, g.Size, g.CRC, g.First, g.Last, g.Inline})
			if h.Path != "" {
				require.Equal(t, filepath.Join(dir, h.Name), g.Path)
				a, err := os.ReadFile(h.Path)
				require.NoError(t, err)
				b, err := os.ReadFile(g.Path)
				require.NoError(t, err)
				require.True(t, bytes.Equal(a, b))
			}
		}
	}
}

func TestRoundTrip(t *testing.T) {
	checkpointrows.Shows(t, 69, 70, 71)
	for _, url := range []string{"memory://x", "file://", "s3://"} {
		t.Run(url, func(t *testing.T) {
			switch url {
			case "file://":
				url += t.TempDir()
			case "s3://":
				t.Setenv("AWS_ACCESS_KEY_ID", "test")
				t.Setenv("AWS_SECRET_ACCESS_KEY", "secret")
				url = objecttest.NewS3Server(t, "bucket").StoreURL("db")
			}
			inner, err := object.Open(context.Background(), url)
			require.NoError(t, err)
			store := objecttest.NewFaulty(inner, nil)
			p, dir := testPublisher(t, store), t.TempDir()
			first := publishState(t, p, pebbleState(t, dir, 1, 1))
			requireRestores(t, store, pebbleState(t, dir, 1, 1))
			second := publishState(t, p, pebbleState(t, dir, 2, 3))
			require.Less(t, second.uploaded[7], first.uploaded[7]/5, "only what is new goes up")
			requireRestores(t, store, pebbleState(t, dir, 2, 3))
			requireTidy(t, store)
			third := publishState(t, p, pebbleState(t, dir, 2, 3))
			require.Zero(t, third.uploaded[7])

			calls := store.Calls()
			requireRestores(t, store, pebbleState(t, dir, 2, 3), dir)
			require.LessOrEqual(t, store.Calls()-calls, 8, "local files are used instead of the store's")

			p = testPublisher(t, store)
			publishState(t, p, pebbleState(t, dir, 3, 4))
			requireRestores(t, store, pebbleState(t, dir, 3, 4))
			requireTidy(t, store)
		})
	}
}

func TestATinyCheckpointIsTwoWrites(t *testing.T) {
	checkpointrows.Shows(t, 72)
	bubble(t, func(t *testing.T) {
		store := objecttest.NewFaulty(object.NewMemory(""), nil)
		r := newRig(t, manual(), store, nil, job(1), job(2), job(3)).run()
		synctest.Wait()
		calls := store.Calls()
		_, err := r.checkpoint()
		require.NoError(t, err)
		synctest.Wait()
		require.Equal(t, calls+2, store.Calls(), "manifest and HEAD")
		require.NoError(t, r.end())
	})
}

func TestRetention(t *testing.T) {
	checkpointrows.Shows(t, 92, 93)
	bubble(t, func(t *testing.T) {
		store := object.NewMemory("")
		cfg := manual()
		cfg.Retained = 3
		r := newRig(t, cfg, store, nil, job(1), job(2)).run()
		for range 7 {
			_, err := r.checkpoint()
			require.NoError(t, err)
		}
		require.NoError(t, r.end())
		requireTidy(t, store)
		var out strings.Builder
		require.NoError(t, List(context.Background(), store, &out))
		for _, id := range []string{"7 ", "6 ", "5 "} {
			require.Contains(t, out.String(), "\n"+id)
		}
		require.NotContains(t, out.String(), "\n4 ")
		out.Reset()
		require.NoError(t, Inspect(context.Background(), store, 6, &out))
		require.Contains(t, out.String(), "job2")
		require.Contains(t, out.String(), "position src/0")
		require.Equal(t, pgerr.UndefinedObject, pgerr.CodeOf(Inspect(context.Background(), store, 2, &out)))
	})
}

// A store fault at the N-th call, for every N and every kind of fault: what was reported as complete is there, the next server starts, and
// nothing is left over.
func TestStoreFaultAtEveryCall(t *testing.T) {
	for _, fault := range []objecttest.Fault{
		objecttest.FailBefore, objecttest.FailAfter, objecttest.Throttle, objecttest.Conflict, objecttest.Precondition, objecttest.Refuse,
	} {
		t.Run(fmt.Sprint(fault), func(t *testing.T) {
			n := 0
			for clean := false; !clean; {
				n++
				require.Less(t, n, 200)
				bubble(t, func(t *testing.T) { clean = faultRun(t, n, fault) })
			}
			require.Greater(t, n, 10)
		})
	}
}

// faultRun makes checkpoints with a fault at the n-th call and reports whether there was none.
func faultRun(t *testing.T, n int, fault objecttest.Fault) bool {
	t.Helper()
	inner := object.NewMemory("")
	store := objecttest.NewFaulty(inner, objecttest.Nth(n, fault))
	completed, ids := "", uint64(0)
	for start := 0; start < 2; start++ {
		r := newRig(t, manual(), store, nil, job(1), job(2, 1))
		if start > 0 {
			for _, j := range r.jobs {
				j.version = 100
			}
		}
		if _, err := r.c.Claim(context.Background()); err != nil {
			if start == 0 {
				// A fault in the claim: the server does not start, the next does.
				continue
			}
			_, err = r.c.Claim(context.Background())
			require.NoError(t, err)
		}
		r.run()
		for range 3 {
			id, err := r.checkpoint()
			if err == nil {
				require.Greater(t, id, ids, "ids are never given twice")
				ids = id
				completed = durable(t, inner)
				require.Contains(t, completed, fmt.Sprintf("1: %d/", id))
				require.Contains(t, completed, fmt.Sprintf("2: %d/", id))
				require.Equal(t, id, r.jobs[1].done, "job 1 was told")
			}
			synctest.Wait()
		}
		require.NoError(t, r.end())
		if completed != "" {
			require.Equal(t, completed, durable(t, inner))
		}
	}
	hits := store.Hits()
	last := newRig(t, manual(), inner, nil)
	last.run()
	synctest.Wait()
	require.NoError(t, last.end())
	requireTidy(t, inner)
	return hits == 0
}

// A store that is down for long: the checkpoint in flight ends when the store is back, without being told failed or done meanwhile.
func TestAmbiguousCommitIsResolvedWhenTheStoreIsBack(t *testing.T) {
	checkpointrows.Shows(t, 128)
	bubble(t, func(t *testing.T) {
		store := objecttest.NewFaulty(object.NewMemory(""), nil)
		a := job(1)
		r := newRig(t, manual(), store, nil, a).run()
		synctest.Wait()
		down, applied := time.Now().Add(time.Hour), false
		store.SetFaults(func(_ int, op, key string) (objecttest.Fault, bool) {
			if key != headKey || time.Now().After(down) {
				return 0, false
			}
			if op == "replace" && !applied {
				applied = true
				return objecttest.FailAfter, true
			}
			return objecttest.FailBefore, true
		})
		done := make(chan error, 1)
		go func() {
			_, err := r.checkpoint()
			done <- err
		}()
		time.Sleep(30 * time.Minute)
		synctest.Wait()
		require.Equal(t, "trigger 1", a.events())
		require.NoError(t, <-done)
		require.Equal(t, "complete 1", a.events())
		require.NoError(t, r.end())
	})
}

func TestCrashPoints(t *testing.T) {
	checkpointrows.Shows(t, 98)
	for point, durableAfter := range map[string]bool{
		"checkpoint/before-upload": false, "checkpoint/after-upload": false, "checkpoint/after-manifest": false,
		"checkpoint/after-head": true, "checkpoint/before-notify": true, "checkpoint/gc": true,
	} {
		bubble(t, func(t *testing.T) {
			store := object.NewMemory("")
			a := job(1)
			r := newRig(t, manual(), store, nil, a).run()
			_, err := r.checkpoint()
			require.NoError(t, err)
			require.NoError(t, r.end())

			points, err := failpoint.Parse(point + "=error(crash)")
			require.NoError(t, err)
			r = newRig(t, manual(), store, points, a).run()
			_, err = r.checkpoint()
			require.Equal(t, durableAfter, err == nil, point)
			synctest.Wait()
			require.NoError(t, r.end())
			if durableAfter {
				require.Equal(t, "1: 10001/2", durable(t, store), point)
			} else {
				require.Equal(t, "1: 1/1", durable(t, store), point)
			}
			r = newRig(t, manual(), store, nil, a)
			m, err := r.c.Claim(context.Background())
			require.NoError(t, err)
			require.NotNil(t, m)
			r.run()
			synctest.Wait()
			requireTidy(t, store)
			require.NoError(t, r.end())
		})
	}
}

func TestTakeoverFencesTheOlderServer(t *testing.T) {
	checkpointrows.Shows(t, 129)
	bubble(t, func(t *testing.T) {
		store := object.NewMemory("")
		a := job(1)
		old := newRig(t, manual(), store, nil, a).run()
		_, err := old.checkpoint()
		require.NoError(t, err)

		b := job(1)
		b.version = 50
		next := newRig(t, manual(), store, nil, b)
		m, err := next.c.Claim(context.Background())
		require.NoError(t, err)
		require.Equal(t, uint64(1), m.ID)
		next.run()
		id, err := next.checkpoint()
		require.NoError(t, err)
		require.Greater(t, id, uint64(idBlock))

		_, err = old.checkpoint()
		require.ErrorIs(t, err, ErrFenced)
		require.ErrorIs(t, <-old.ran, ErrFenced)
		require.Contains(t, pgerr.From(err).Hint, "must not share")
		require.Equal(t, fmt.Sprintf("1: %d/51", id), durable(t, store))
		_, err = next.checkpoint()
		require.NoError(t, err)
		require.NoError(t, next.end())
		last := newRig(t, manual(), store, nil).run()
		synctest.Wait()
		require.NoError(t, last.end())
		requireTidy(t, store)
	})
}

func TestManyServersStartAtOnce(t *testing.T) {
	bubble(t, func(t *testing.T) {
		store := object.NewMemory("")
		results := make(chan uint64, 8)
		for range cap(results) {
			go func() {
				_, next, err := newPublisher(store, "x", zerolog.Nop(), nil).claim(context.Background())
				if err != nil {
					next = 0
				}
				results <- next
			}()
		}
		seen := map[uint64]bool{0: true}
		for range cap(results) {
			first := <-results
			require.False(t, seen[first], "every server has its own ids")
			seen[first] = true
		}
	})
}

func TestIDsAreReservedBeforeUse(t *testing.T) {
	checkpointrows.Shows(t, 45)
	store := object.NewMemory("")
	p := testPublisher(t, store)
	require.NoError(t, p.reserve(context.Background(), idBlock))
	seq := p.head.Seq
	require.NoError(t, p.reserve(context.Background(), idBlock+1))
	require.Equal(t, seq+1, p.head.Seq)
	h, _, err := readHead(context.Background(), store)
	require.NoError(t, err)
	require.GreaterOrEqual(t, h.IDsReservedTo, uint64(idBlock+1))
}

func TestCorruption(t *testing.T) {
	ctx := context.Background()
	store := object.NewMemory("")
	p, dir := testPublisher(t, store), t.TempDir()
	publishState(t, p, pebbleState(t, dir, 1, 2))
	for _, key := range keysOf(t, store) {
		data, _, err := store.Get(ctx, key)
		require.NoError(t, err)
		for off := 0; off < len(data); off += 1 + len(data)/97 {
			bad := bytes.Clone(data)
			bad[off] ^= 0x10
			_, err = store.Put(ctx, key, bad)
			require.NoError(t, err)
			m, err := Load(ctx, store)
			if err == nil {
				_, err = Fetch(ctx, store, m.Jobs[7], t.TempDir())
			}
			var out strings.Builder
			problems, verr := Verify(ctx, store, &out)
			if strings.HasPrefix(key, packPrefix) && (off < packHeaderBytes || off >= len(data)-4) {
				continue // the frame of a pack is not needed to read from it
			}
			require.Error(t, err, "%s at %d", key, off)
			code := pgerr.CodeOf(err)
			require.Contains(t, []pgerr.Code{pgerr.DataCorrupted, pgerr.FeatureNotSupported}, code, "%s at %d: %v", key, off, err)
			require.ErrorContains(t, err, key)
			require.True(t, problems > 0 || verr != nil, "verify finds it too")
		}
		_, err = store.Put(ctx, key, data)
		require.NoError(t, err)
		if key != headKey {
			require.NoError(t, store.Delete(ctx, key))
			m, err := Load(ctx, store)
			if err == nil {
				_, err = Fetch(ctx, store, m.Jobs[7], t.TempDir())
			}
			require.ErrorIs(t, err, object.ErrNotFound)
			_, err = store.Put(ctx, key, data)
			require.NoError(t, err)
		}
	}
	requireRestores(t, store, pebbleState(t, dir, 1, 2))

	// Without HEAD nothing may be taken for an empty store, and swept.
	require.NoError(t, store.Delete(ctx, headKey))
	_, _, err := newPublisher(store, "x", zerolog.Nop(), nil).claim(ctx)
	require.Equal(t, pgerr.DataCorrupted, pgerr.CodeOf(err))
}

func TestANewerFormatIsRefused(t *testing.T) {
	ctx := context.Background()
	store := object.NewMemory("")
	data, err := sealDoc("head", headFormat+1, &head{})
	require.NoError(t, err)
	_, err = store.Put(ctx, headKey, data)
	require.NoError(t, err)
	_, err = Load(ctx, store)
	require.Equal(t, pgerr.FeatureNotSupported, pgerr.CodeOf(err))
	_, _, err = newPublisher(store, "x", zerolog.Nop(), nil).claim(ctx)
	require.Equal(t, pgerr.FeatureNotSupported, pgerr.CodeOf(err))
	now, _, err := store.Get(ctx, headKey)
	require.NoError(t, err)
	require.Equal(t, data, now, "and left alone")
}

func TestGCToolKeepsWhatIsNeeded(t *testing.T) {
	ctx := context.Background()
	store := object.NewMemory("")
	p, dir := testPublisher(t, store), t.TempDir()
	publishState(t, p, pebbleState(t, dir, 1, 2))
	dead := []string{"chk/0000000000000001-1-x-1.manifest", "pack/0000000000000001-x-1.pack", "data/0000000000000002-x/7/a"}
	for _, key := range append(dead, "data/0000000000000099-x/7/in-the-making") {
		_, err := store.Put(ctx, key, []byte("x"))
		require.NoError(t, err)
	}
	before := keysOf(t, store)
	var out strings.Builder
	require.NoError(t, GC(ctx, store, true, &out))
	require.Equal(t, before, keysOf(t, store))
	for _, key := range dead {
		require.Contains(t, out.String(), "would remove "+key)
	}
	require.NoError(t, GC(ctx, store, false, &out))
	require.Len(t, keysOf(t, store), len(before)-len(dead))
	require.Contains(t, keysOf(t, store), "data/0000000000000099-x/7/in-the-making")
	requireRestores(t, store, pebbleState(t, dir, 1, 2))
}

func TestAChangedFileUnderAKnownNameIsRefused(t *testing.T) {
	store := object.NewMemory("")
	p, dir := testPublisher(t, store), t.TempDir()
	publishState(t, p, pebbleState(t, dir, 1, 1))
	s := pebbleState(t, dir, 2, 1)
	s.State.Base[0].CRC++
	_, err := p.publish(context.Background(), &batch{id: 2, changed: []*JobState{s}, retained: 1})
	require.ErrorContains(t, err, "i1/000001.sst")
	s = pebbleState(t, dir, 2, 1)
	s.State.Deltas[0].Name, s.State.Deltas[0].CRC = "i1/other", 1
	_, err = p.publish(context.Background(), &batch{id: 2, changed: []*JobState{s}, retained: 1})
	require.Equal(t, pgerr.DataCorrupted, pgerr.CodeOf(err), "damage on the way to the store is found")
}

// Uploads of an attempt that failed are used by the next one.
func TestUploadsSurviveAFailedAttempt(t *testing.T) {
	checkpointrows.Shows(t, 96)
	ctx := context.Background()
	store := objecttest.NewFaulty(object.NewMemory(""), nil)
	p, dir := testPublisher(t, store), t.TempDir()
	files := 0
	refuse := true
	store.SetFaults(func(_ int, op, key string) (objecttest.Fault, bool) {
		if strings.HasPrefix(key, dataPrefix) && op == "put" {
			files++
		}
		return objecttest.Refuse, refuse && strings.HasPrefix(key, manifestPrefix)
	})
	s := pebbleState(t, dir, 1, 1)
	_, err := p.publish(ctx, &batch{id: 1, changed: []*JobState{s}, retained: 1})
	require.ErrorIs(t, err, object.ErrForbidden)
	refuse = false
	s = pebbleState(t, dir, 2, 1)
	publishState(t, p, s)
	require.Equal(t, 1, files)
	requireRestores(t, store, s)
	requireTidy(t, store)
}

// The bytes of format version 1, as they were written first, stay readable.
func TestReadsFormatVersion1(t *testing.T) {
	checkpointrows.Shows(t, 75)
	dir := t.TempDir()
	require.NoError(t, os.CopyFS(dir, os.DirFS("../testdata/compat/checkpoint-v1")))
	store, err := object.Open(context.Background(), dir)
	require.NoError(t, err)
	requireRestores(t, store, pebbleState(t, t.TempDir(), 2, 2))
	p := testPublisher(t, store)
	require.Equal(t, uint64(2), p.latest().ID)
	var out strings.Builder
	problems, err := Verify(context.Background(), store, &out)
	require.NoError(t, errors.Join(err))
	require.Zero(t, problems, out.String())
}

// withInflight is a state with rows in flight.
func withInflight(s *JobState) *JobState {
	for i, data := range [][]byte{[]byte("rows in flight"), bytes.Repeat([]byte("more of them "), 3000)} {
		s.Inflight = append(s.Inflight, state.Handle{Name: fmt.Sprint("inflight/2-", i), Inline: data, Size: int64(len(data)), CRC: castagnoli(data)})
	}
	return s
}

// The bytes of format version 2, which has rows in flight, stay readable; a manifest without them is of version 1, so that older binaries read it.
func TestReadsFormatVersion2(t *testing.T) {
	dir := t.TempDir()
	require.NoError(t, os.CopyFS(dir, os.DirFS("../testdata/compat/checkpoint-v2")))
	store, err := object.Open(context.Background(), dir)
	require.NoError(t, err)
	want := withInflight(pebbleState(t, t.TempDir(), 2, 2))
	requireRestores(t, store, want)
	m, err := Load(context.Background(), store)
	require.NoError(t, err)
	require.Equal(t, want.Inflight, m.Jobs[want.Job].Inflight)
	var out strings.Builder
	problems, err := Verify(context.Background(), store, &out)
	require.NoError(t, err)
	require.Zero(t, problems, out.String())

	p := testPublisher(t, store)
	format := func() string {
		data, _, err := store.Get(context.Background(), p.latest().Object)
		require.NoError(t, err)
		return strings.Fields(string(data[:40]))[2]
	}
	require.Equal(t, "2", format())
	publishState(t, p, pebbleState(t, t.TempDir(), 3, 1))
	require.Equal(t, "1", format())
	requireTidy(t, store)
}

// What a server that died in the middle of an upload in parts has left is ended by the next one's sweep; what is in the making is not.
func TestSweepEndsUnfinishedUploads(t *testing.T) {
	checkpointrows.Shows(t, 98)
	t.Setenv("AWS_ACCESS_KEY_ID", "test")
	t.Setenv("AWS_SECRET_ACCESS_KEY", "secret")
	ctx := context.Background()
	server := objecttest.NewS3Server(t, "bucket")
	store, err := object.Open(ctx, server.StoreURL("db"))
	require.NoError(t, err)
	path := filepath.Join(t.TempDir(), "big")
	require.NoError(t, os.WriteFile(path, make([]byte, 17<<20), 0o644))
	for _, key := range []string{"data/0000000000000001-x/7/a", "data/0000000000000099-x/7/in-the-making"} {
		server.SetFault(func(r *http.Request) objecttest.S3Fault {
			if r.Method == http.MethodDelete || r.Method == http.MethodPost && r.URL.Query().Has("uploadId") {
				return objecttest.S3Forbidden
			}
			return objecttest.S3Fault{}
		})
		_, err := store.PutFile(ctx, key, path)
		require.Error(t, err)
	}
	server.SetFault(nil)
	require.Equal(t, 2, server.Uploads())
	p := testPublisher(t, store)
	require.NoError(t, p.sweep(ctx))
	require.Equal(t, 1, server.Uploads())
}

// slowDeletes is a store whose deletes wait for a signal.
type slowDeletes struct {
	object.Store
	gate chan struct{}
}

func (s *slowDeletes) Delete(ctx context.Context, keys ...string) error {
	select {
	case <-s.gate:
	case <-ctx.Done():
		return ctx.Err()
	}
	return s.Store.Delete(ctx, keys...)
}

// Deletes that take long delay no checkpoint until too many are under way; then they hold the next one back until there is room.
func TestSlowCleaning(t *testing.T) {
	checkpointrows.Shows(t, 93, 95)
	bubble(t, func(t *testing.T) {
		store := &slowDeletes{object.NewMemory(""), make(chan struct{})}
		cfg := every(time.Second)
		cfg.Retained = 3
		r := newRig(t, cfg, store, nil, job(1), job(2)).run()
		time.Sleep(time.Minute)
		require.Len(t, r.jobs[1].times(), 3+maxCleaning+1, "three are kept, and of four more the remains are being removed")
		require.Equal(t, maxCleaning+1, r.c.Files().Garbage)
		close(store.gate)
		time.Sleep(10 * time.Second)
		require.Greater(t, len(r.jobs[1].times()), 3+maxCleaning+1+8)
		cfg.Interval = 0
		require.NoError(t, r.c.SetConfig(cfg))
		time.Sleep(10 * time.Second)
		require.Zero(t, r.c.Files().Garbage)
		requireTidy(t, store.Store)
		h, _, err := readHead(context.Background(), store)
		require.NoError(t, err)
		require.Len(t, h.Retained, 3)
		require.NoError(t, r.end())
	})
}

// Deletes that fail are tried again a few times and then left to the sweep, which comes by itself; checkpoints go on all the while.
func TestFailingDeletes(t *testing.T) {
	checkpointrows.Shows(t, 95, 98)
	bubble(t, func(t *testing.T) {
		store := objecttest.NewFaulty(object.NewMemory(""), nil)
		cfg := manual()
		cfg.SweepInterval = time.Hour
		r := newRig(t, cfg, store, nil, job(1), job(2)).run()
		synctest.Wait()
		deletes := 0
		store.SetFaults(func(_ int, op, _ string) (objecttest.Fault, bool) {
			if op == "delete" {
				deletes++
			}
			return objecttest.Refuse, op == "delete"
		})
		for range 3 {
			_, err := r.checkpoint()
			require.NoError(t, err)
			time.Sleep(time.Minute)
		}
		require.Equal(t, 2*deleteAttempts, deletes)
		require.Zero(t, r.c.Files().Garbage)
		require.Greater(t, len(keysOf(t, store)), 2)
		store.SetFaults(nil)
		time.Sleep(time.Hour)
		synctest.Wait()
		requireTidy(t, store)
		require.NoError(t, r.end())
	})
}

// The keeping of files against a naive oracle: after every step of a random history of checkpoints, failed ones, dropped jobs, retention, pins and new servers, each
// object that a kept or pinned checkpoint needs is there, nothing in the making is deleted, and when all is quiet nothing else is left.
func TestFilesAreKeptAsLongAsNeeded(t *testing.T) {
	checkpointrows.Shows(t, 50, 78, 91, 92, 96, 97, 98)
	ctx := context.Background()
	for seed := range 60 {
		rng := rand.New(rand.NewPCG(uint64(seed), 7))
		inner := object.NewMemory("")
		store := objecttest.NewFaulty(inner, nil)
		p, dir := testPublisher(t, store), t.TempDir()
		id, retained, kept := uint64(0), 1, 1
		files := map[uint64][]state.Handle{} // what a job's state consists of
		pins := map[*Manifest]func(context.Context) error{}
		check := func() {
			t.Helper()
			h, _, err := readHead(ctx, inner)
			require.NoError(t, err)
			require.LessOrEqual(t, len(h.Retained), kept, "seed %d", seed)
			have := map[string]bool{}
			for _, key := range keysOf(t, inner) {
				have[key] = true
			}
			needed := func(m *Manifest) {
				for key := range m.objects() {
					require.True(t, have[key], "seed %d: checkpoint %d needs %s", seed, m.ID, key)
				}
			}
			for _, at := range h.all() {
				m, err := loadManifest(ctx, inner, at)
				require.NoError(t, err)
				needed(m)
			}
			for m := range pins {
				needed(m)
			}
		}
		for range 40 {
			switch rng.IntN(10) {
			case 0: // another server
				p = testPublisher(t, store)
				pins = map[*Manifest]func(context.Context) error{}
				require.NoError(t, p.sweep(ctx))
			case 1:
				if m := p.latest(); m != nil && pins[m] == nil {
					pins[m] = p.pin(m)
				}
			case 2:
				for m, unpin := range pins {
					delete(pins, m)
					require.NoError(t, unpin(ctx))
					break
				}
			case 3:
				retained = 1 + rng.IntN(4)
			case 4:
				require.NoError(t, p.sweep(ctx))
			default:
				id++
				b := &batch{id: id, epoch: id, retained: retained, inline: rng.IntN(2) * 1000, catalogVersion: id, catalog: fmt.Appendf(nil, "catalog %d", id)}
				for job := range uint64(3) {
					if rng.IntN(6) == 0 && files[job] != nil {
						b.drop = append(b.drop, job)
						delete(files, job)
						continue
					}
					if rng.IntN(2) == 0 {
						continue
					}
					// Some files go, a large or a small one comes.
					files[job] = slices.DeleteFunc(slices.Clone(files[job]), func(state.Handle) bool { return rng.IntN(4) == 0 })
					size := []int{300, 5000, packFileBytes + 1}[rng.IntN(3)]
					files[job] = append(files[job], fileHandle(t, dir, fmt.Sprintf("%d/%d.sst", job, id), bytes.Repeat([]byte{byte(id)}, size)))
					b.changed = append(b.changed, &JobState{Job: job, Checkpoint: id, Epoch: id, State: &state.Snapshot{Format: 1, Backend: state.BackendPebble, Deltas: files[job]}})
				}
				if rng.IntN(3) == 0 { // it fails somewhere
					n := rng.IntN(6)
					store.SetFaults(func(_ int, op, _ string) (objecttest.Fault, bool) {
						n--
						return objecttest.Refuse, n < 0 && op != "get"
					})
				}
				_, err := p.publish(ctx, b)
				store.SetFaults(nil)
				if err != nil && len(b.drop) > 0 {
					for _, job := range b.drop {
						files[job] = nil
					}
				}
				if err == nil {
					kept = retained
					require.NoError(t, p.collect(ctx))
				}
			}
			check()
		}
		for m, unpin := range pins {
			delete(pins, m)
			require.NoError(t, unpin(ctx))
		}
		id++
		_, err := p.publish(ctx, &batch{id: id, retained: retained, catalogVersion: id, catalog: []byte("last")})
		require.NoError(t, err)
		kept = retained
		require.NoError(t, p.collect(ctx))
		check()
		require.NoError(t, p.sweep(ctx))
		requireTidy(t, inner)
	}
}

// A write of a manifest or of HEAD that is cut off at any byte gives nothing that can be read: the checkpoint before stays the newest.
func TestHalfWrittenDocuments(t *testing.T) {
	checkpointrows.Shows(t, 76)
	ctx := context.Background()
	store := object.NewMemory("")
	p, dir := testPublisher(t, store), t.TempDir()
	first := publishState(t, p, pebbleState(t, dir, 1, 1))
	for _, key := range []string{headKey, first.manifest.Object} {
		whole, _, err := store.Get(ctx, key)
		require.NoError(t, err)
		for n := range whole {
			_, err = store.Put(ctx, key, whole[:n])
			require.NoError(t, err)
			_, err := Load(ctx, store)
			require.Equal(t, pgerr.DataCorrupted, pgerr.CodeOf(err), "%s of %d bytes", key, n)
		}
		_, err = store.Put(ctx, key, whole)
		require.NoError(t, err)
	}
	// A manifest that HEAD does not name does not count, whole or not.
	at, err := p.writeManifest(ctx, p.merge(&batch{id: 2}, p.head.Seq+1, time.Now()))
	require.NoError(t, err)
	require.NotEqual(t, first.manifest.Object, at.Object)
	m, err := Load(ctx, store)
	require.NoError(t, err)
	require.Equal(t, uint64(1), m.ID)
}

// What a checkpoint of small jobs writes: everything in the manifest up to the threshold, else one pack for all of them.
func TestObjectsOfACheckpoint(t *testing.T) {
	checkpointrows.Shows(t, 69, 72, 77)
	bubble(t, func(t *testing.T) {
		store := object.NewMemory("")
		jobs := []*scripted{}
		for id := range uint64(64) {
			jobs = append(jobs, job(id+1))
		}
		r := newRig(t, manual(), store, nil, jobs...).run()
		synctest.Wait()
		folders := func() string {
			var parts []string
			for _, key := range keysOf(t, store) {
				folder, _, _ := strings.Cut(key, "/")
				parts = append(parts, folder)
			}
			return strings.Join(parts, " ")
		}
		_, err := r.checkpoint()
		require.NoError(t, err)
		synctest.Wait()
		require.Equal(t, "HEAD chk", folders(), "a manifest and nothing else")
		cfg := manual()
		cfg.InlineThreshold = 100
		require.NoError(t, r.c.SetConfig(cfg))
		for _, j := range jobs {
			j.set(func(j *scripted, b Barrier) error {
				s := j.next(b.Checkpoint)
				s.Operators = map[string][]byte{"agg": bytes.Repeat([]byte{1}, inlineBytes+1)}
				j.c.Acknowledge(s)
				return nil
			})
		}
		_, err = r.checkpoint()
		require.NoError(t, err)
		synctest.Wait()
		require.Equal(t, "HEAD chk pack", folders(), "64 jobs, one pack")
		require.Equal(t, int64(1), r.c.Files().Packs)
		require.Equal(t, int64(64), r.c.Files().Packed)
		require.NoError(t, r.end())
		require.ErrorContains(t, Config{Interval: time.Second, Timeout: time.Second, Retained: 1, MaxConcurrent: 1, InlineThreshold: 1<<20 + 1}.Validate(), SettingInlineThreshold)
	})
}

// Two databases in one folder, each below its own prefix, do not see each other.
func TestTwoDatabasesInOneFolder(t *testing.T) {
	checkpointrows.Shows(t, 74)
	root, ctx := t.TempDir(), context.Background()
	dirs := [2]string{t.TempDir(), t.TempDir()}
	var ps [2]*publisher
	var stores [2]object.Store
	for i := range ps {
		var err error
		stores[i], err = object.Open(ctx, filepath.Join(root, fmt.Sprintf("db%d", i)))
		require.NoError(t, err)
		ps[i] = testPublisher(t, stores[i])
	}
	for id := uint64(1); id <= 3; id++ {
		for i, p := range ps {
			publishState(t, p, pebbleState(t, dirs[i], id, int(id)+i))
			require.NoError(t, p.sweep(ctx))
		}
	}
	for i := range ps {
		requireRestores(t, stores[i], pebbleState(t, dirs[i], 3, 3+i))
		requireTidy(t, stores[i])
	}
}

// A store in memory refuses states above its limit and names the setting; the job stays up.
func TestMemoryLimit(t *testing.T) {
	checkpointrows.Shows(t, 68)
	bubble(t, func(t *testing.T) {
		cfg := DefaultConfig()
		cfg.Interval, cfg.MemoryLimit = 0, 10
		r := newRig(t, cfg, object.NewMetered(object.NewMemory("")), nil, job(1)).run()
		_, err := r.checkpoint()
		require.Equal(t, pgerr.ConfigurationLimitExceeded, pgerr.CodeOf(err))
		require.Contains(t, pgerr.From(err).Hint, SettingMemoryLimit)
		synctest.Wait()
		require.Equal(t, "trigger 1, abort 1", r.jobs[1].events())
		require.Empty(t, r.failed)
		cfg.MemoryLimit = 1000
		require.NoError(t, r.c.SetConfig(cfg))
		_, err = r.checkpoint()
		require.NoError(t, err)
		require.NoError(t, r.end())
	})
}
