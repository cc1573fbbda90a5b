package checkpoint

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/streamdb/streamdb/internal/checkpointrows"
	"github.com/streamdb/streamdb/state"
	"github.com/streamdb/streamdb/storage/object"
	"github.com/streamdb/streamdb/storage/object/objecttest"
)

// files answers with a state of n files that are uploaded each by itself. The same ones every time, as those of a base are.
func files(dir string, n, size int) func(*scripted, Barrier) error {
	return func(j *scripted, b Barrier) error {
		s := j.next(b.Checkpoint)
		s.Operators = map[string][]byte{"agg": bytes.Repeat([]byte{byte(b.Checkpoint)}, 2*inlineBytes)}
		for i := range n {
			name := fmt.Sprintf("inc%d/%d.sst", j.id, i)
			path := filepath.Join(dir, filepath.FromSlash(name))
			body := bytes.Repeat([]byte{byte(i)}, size)
			if _, err := os.Stat(path); err != nil {
				err := errors.Join(os.MkdirAll(filepath.Dir(path), 0o755), os.WriteFile(path, body, 0o644))
				if err != nil {
					return err
				}
			}
			s.State.Base = append(s.State.Base, state.Handle{Name: name, Path: path, Size: int64(size), CRC: castagnoli(body)})
			s.State.FullSize += int64(size)
		}
		j.c.Acknowledge(s)
		return nil
	}
}

// hangs is a store in memory some of whose calls are not answered, as many as left says.
type hangs struct {
	*objecttest.Faulty
	mu   sync.Mutex
	puts []string // what was to be written
}

func newHangs(left int, fault objecttest.Fault, match func(op, key string) bool) *hangs {
	h := &hangs{}
	h.Faulty = objecttest.NewFaulty(object.NewMemory(""), func(_ int, op, key string) (objecttest.Fault, bool) {
		h.mu.Lock()
		defer h.mu.Unlock()
		if op == "put" {
			h.puts = append(h.puts, key)
		}
		if left == 0 || !match(op, key) {
			return 0, false
		}
		left--
		return fault, true
	})
	return h
}

// written is how often objects whose keys contain part were to be written since the last call.
func (h *hangs) written(part string) int {
	h.mu.Lock()
	defer h.mu.Unlock()
	n := 0
	for _, key := range h.puts {
		if strings.Contains(key, part) {
			n++
		}
	}
	h.puts = nil
	return n
}

// TestTimeoutEndsWhatIsUnderWay: a store that does not answer holds a checkpoint up for its timeout and not longer, wherever it hangs; nothing is half published, what was
// uploaded counts for the next checkpoint, and in the end nothing is left over. The job is not started again for it.
func TestTimeoutEndsWhatIsUnderWay(t *testing.T) {
	checkpointrows.Shows(t, 44, 54)
	const timeout = 5 * time.Second
	for name, c := range map[string]struct {
		fault   objecttest.Fault
		match   func(op, key string) bool
		uploads int // of files by the checkpoint after it, of three
	}{
		"a file":               {objecttest.Hang, func(op, key string) bool { return op == "put" && strings.HasSuffix(key, "/1.sst") }, 1},
		"a file that arrives":  {objecttest.HangAfter, func(op, key string) bool { return op == "put" && strings.HasSuffix(key, "/1.sst") }, 1},
		"a pack":               {objecttest.Hang, func(op, key string) bool { return op == "put" && strings.HasPrefix(key, packPrefix) }, 0},
		"the manifest":         {objecttest.Hang, func(op, key string) bool { return op == "create" && strings.HasPrefix(key, manifestPrefix) }, 0},
		"one that had arrived": {objecttest.HangAfter, func(op, key string) bool { return op == "create" && strings.HasPrefix(key, manifestPrefix) }, 0},
	} {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			bubble(t, func(t *testing.T) {
				store := newHangs(1, c.fault, c.match)
				a := job(1)
				a.set(files(dir, 3, packFileBytes+1))
				cfg := manual()
				cfg.Timeout, cfg.TolerableFailures, cfg.InlineThreshold = timeout, 0, 0
				r := newRig(t, cfg, store, nil, a).run()
				began := time.Now()
				_, err := r.checkpoint()
				require.Equal(t, CheckpointExpired, ReasonOf(err))
				require.Equal(t, timeout, time.Since(began))
				synctest.Wait()
				require.Equal(t, "trigger 1, abort 1", a.events())
				require.Empty(t, durable(t, store))
				require.Empty(t, r.failed, "the store is not the job's fault")
				require.Equal(t, "CHECKPOINT_EXPIRED", r.c.JobStats(1).History[0].Reason.String())

				began = time.Now()
				store.written("")
				_, err = r.checkpoint()
				require.NoError(t, err)
				require.Zero(t, time.Since(began), "its place is free")
				require.Equal(t, c.uploads, store.written(dataPrefix))
				require.Equal(t, "1: 2/2", durable(t, store))
				require.Equal(t, "1/1 FAILED, 2/1 COMPLETED", r.statuses())
				synctest.Wait()
				requireTidy(t, store)
				require.NoError(t, r.end())
			})
		})
	}
}

// TestHEADIsNotGivenUp: once the request that changes HEAD was sent, what becomes of it is waited for, longer than the timeout.
func TestHEADIsNotGivenUp(t *testing.T) {
	checkpointrows.Shows(t, 54, 128)
	for name, fault := range map[string]objecttest.Fault{"arrived": objecttest.FailAfter, "lost": objecttest.FailBefore} {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(t *testing.T) {
				slow := false
				store := newHangs(0, 0, nil)
				store.SetFaults(func(_ int, op, _ string) (objecttest.Fault, bool) { return fault, slow && op == "replace" })
				store.Hook = func(op, _ string) {
					if slow && op == "replace" {
						time.Sleep(time.Minute) // and the answer does not come then
						store.SetFaults(func(int, string, string) (objecttest.Fault, bool) { slow = false; return fault, false })
					}
				}
				a := job(1)
				cfg := manual()
				cfg.Timeout = 5 * time.Second
				r := newRig(t, cfg, store, nil, a).run()
				_, err := r.checkpoint()
				require.NoError(t, err)
				slow = true
				began := time.Now()
				id, err := r.checkpoint()
				require.NoError(t, err)
				require.Equal(t, uint64(2), id)
				require.GreaterOrEqual(t, time.Since(began), time.Minute)
				require.Equal(t, "1: 2/2", durable(t, store))
				require.Equal(t, "1/1 COMPLETED, 2/1 COMPLETED", r.statuses())
				require.NoError(t, r.end())
			})
		})
	}
}

// TestLateOnesAreLeftOut: of what is published together only that fails whose time is over, with what reads from it. The rest is published at once.
func TestLateOnesAreLeftOut(t *testing.T) {
	checkpointrows.Shows(t, 54)
	dir := t.TempDir()
	bubble(t, func(t *testing.T) {
		store := newHangs(-1, objecttest.Hang, func(op, key string) bool { return op == "put" && strings.Contains(key, "/1/inc1/") })
		quick, reader, patient := job(1), job(2, 1), job(3)
		quick.set(files(dir, 1, packFileBytes+1))
		patient.set(files(dir, 2, packFileBytes+1))
		cfg := manual()
		cfg.Timeout = time.Minute
		r := newRig(t, cfg, store, nil, quick, reader, patient)
		s := cfg.JobSettings()
		s.Timeout = 2 * time.Second
		quick.configure(s)
		r.run()
		began := time.Now()
		_, err := r.checkpoint()
		require.Equal(t, CheckpointExpired, ReasonOf(err))
		require.Equal(t, 2*time.Second, time.Since(began))
		synctest.Wait()
		require.Equal(t, "3: 1/1", durable(t, store))
		require.Equal(t, 2, store.written("/3/inc3/"), "each once")
		require.Equal(t, "trigger 1, complete 1", patient.events())
		require.Equal(t, "trigger 1, abort 1", quick.events())
		require.Equal(t, "trigger 1, abort 1", reader.events())
		require.Empty(t, r.failed)
		require.Equal(t, CheckpointDeclinedOnCancellationBarrier, r.c.JobStats(2).History[0].Reason)
		require.NoError(t, r.end())
	})
}

// TestTheCatalogIsGivenUp: a checkpoint in which only the catalog is new ends with the timeout, too.
func TestTheCatalogIsGivenUp(t *testing.T) {
	bubble(t, func(t *testing.T) {
		store := newHangs(1, objecttest.Hang, func(op, key string) bool { return op == "create" && strings.HasPrefix(key, manifestPrefix) })
		cfg := manual()
		cfg.Timeout = 5 * time.Second
		r := newRig(t, cfg, store, nil).run()
		r.setCatalog(3)
		began := time.Now()
		_, err := r.checkpoint()
		require.Equal(t, CheckpointExpired, ReasonOf(err))
		require.Equal(t, 5*time.Second, time.Since(began))
		_, err = r.checkpoint()
		require.NoError(t, err)
		m, err := Load(context.Background(), store)
		require.NoError(t, err)
		require.Equal(t, "catalog 3", string(m.Catalog))
		require.NoError(t, r.end())
	})
}

// TestHungS3: the same over HTTP, with files that go up in parts: what was begun is ended in the bucket, by the abort or by the next checkpoint. A savepoint ends as well.
func TestHungS3(t *testing.T) {
	checkpointrows.Shows(t, 54)
	t.Setenv("AWS_ACCESS_KEY_ID", "test")
	t.Setenv("AWS_SECRET_ACCESS_KEY", "test")
	const timeout = 300 * time.Millisecond
	part := func(r *http.Request) bool {
		return r.Method == http.MethodPut && r.URL.Query().Get("partNumber") == "2"
	}
	for name, hung := range map[string]func(*http.Request) bool{
		"a part": part, "everything of parts": func(r *http.Request) bool { return part(r) || r.Method == http.MethodDelete },
	} {
		t.Run(name, func(t *testing.T) {
			server := objecttest.NewS3Server(t, "bucket")
			store, err := object.Open(context.Background(), server.StoreURL("p"))
			require.NoError(t, err)
			a := job(1)
			dir := t.TempDir()
			a.set(files(dir, 2, 17<<20))
			r := newRig(t, manual(), store, nil, a).run()
			hang := func() {
				server.SetFault(func(r *http.Request) objecttest.S3Fault { return objecttest.S3Fault{Hang: hung(r)} })
			}
			short := r.c.Config()
			short.Timeout = timeout
			expires := func(f func() error) {
				t.Helper()
				hang()
				require.NoError(t, r.c.SetConfig(short))
				began := time.Now()
				require.Equal(t, CheckpointExpired, ReasonOf(f()))
				require.Less(t, time.Since(began), timeout+time.Second+savepointRemoval)
				server.SetFault(nil)
				require.NoError(t, r.c.SetConfig(manual()))
			}
			expires(func() error { _, err := r.checkpoint(); return err })
			require.Empty(t, durable(t, store))
			_, err = r.checkpoint()
			require.NoError(t, err)
			require.Eventually(t, func() bool { return server.Uploads() == 0 }, 10*time.Second, 5*time.Millisecond, "parts cost money")
			require.Equal(t, "1: 2/2", durable(t, store))
			requireTidy(t, store)

			request := SavepointRequest{Spec: SavepointSpec{Target: server.StoreURL("saved")}}
			expires(func() error { _, err := r.c.Savepoint(context.Background(), request); return err })
			for _, key := range server.Keys() {
				require.False(t, strings.HasPrefix(key, "saved/"), key)
			}
			_, err = r.c.Savepoint(context.Background(), request)
			require.NoError(t, err)
			require.NoError(t, r.end())
			server.CloseClientConnections()
		})
	}
}
