package object_test

import (
	"bytes"
	"context"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/streamdb/streamdb/internal/checkpointrows"
	"github.com/streamdb/streamdb/storage/object"
	"github.com/streamdb/streamdb/storage/object/objecttest"
)

// firstN lets the first n requests that match meet a fault.
func firstN(n int64, f objecttest.S3Fault, match func(*http.Request) bool) (func(*http.Request) objecttest.S3Fault, *atomic.Int64) {
	met := &atomic.Int64{}
	return func(r *http.Request) objecttest.S3Fault {
		if !match(r) || met.Add(1) > n {
			return objecttest.S3Fault{}
		}
		return f
	}, met
}

func any3(*http.Request) bool { return true }

func isPut(r *http.Request) bool { return r.Method == http.MethodPut }

// Every fault that ends is got over by every call, and what was written is there once and whole.
func TestS3GetsOverFaultsThatEnd(t *testing.T) {
	checkpointrows.Shows(t, 70, 128)
	s3Env(t)
	ctx := context.Background()
	for name, f := range map[string]objecttest.S3Fault{
		"before": objecttest.S3FailBefore, "after": objecttest.S3FailAfter, "slow down": objecttest.S3Throttled, "too many": objecttest.S3TooMany,
		"torn": objecttest.S3Torn, "slow": {Delay: 20 * time.Millisecond},
	} {
		t.Run(name, func(t *testing.T) {
			server := objecttest.NewS3Server(t, "bucket")
			s := object.NewMetered(openURL(t, server.StoreURL("p")))
			fail := func() {
				decide, _ := firstN(2, f, any3)
				server.SetFault(decide)
			}
			fail()
			_, err := s.Put(ctx, "a", []byte("0123456789"))
			require.NoError(t, err)
			fail()
			data, _, err := s.Get(ctx, "a")
			require.NoError(t, err)
			require.Equal(t, "0123456789", string(data))
			fail()
			data, err = s.GetRange(ctx, "a", 3, 5)
			require.NoError(t, err)
			require.Equal(t, "34567", string(data))
			fail()
			info, err := s.Head(ctx, "a")
			require.NoError(t, err)
			require.Equal(t, int64(10), info.Size)
			fail()
			n := 0
			require.NoError(t, s.List(ctx, "", func(object.Info) error { n++; return nil }))
			require.Equal(t, 1, n)
			fail()
			require.NoError(t, s.Delete(ctx, "a"))
			require.Empty(t, server.Keys())
			if f.Delay == 0 {
				require.Positive(t, s.Counts().Retries)
			}
			require.Zero(t, s.Counts().Failed)
		})
	}
}

// A fault that does not end is an error after a bounded number of attempts.
func TestS3RetriesEnd(t *testing.T) {
	s3Env(t)
	server := objecttest.NewS3Server(t, "bucket")
	s := object.NewMetered(openURL(t, server.StoreURL("p")))
	decide, met := firstN(1000, objecttest.S3FailBefore, any3)
	server.SetFault(decide)
	_, err := s.Put(context.Background(), "a", []byte("x"))
	require.ErrorIs(t, err, object.ErrUnavailable)
	require.True(t, object.IsAmbiguous(err))
	require.Equal(t, int64(5), met.Load())
	require.Equal(t, int64(4), s.Counts().Retries)
	require.Equal(t, int64(1), s.Counts().Failed)
}

// A store that asks to slow down is asked less often, by all calls, and no call fails for it.
func TestS3ThrottlingSlowsDown(t *testing.T) {
	s3Env(t)
	ctx := context.Background()
	server := objecttest.NewS3Server(t, "bucket")
	s := object.NewMetered(openURL(t, server.StoreURL("p")))
	decide, _ := firstN(5, objecttest.S3Throttled, any3)
	server.SetFault(decide)
	began := time.Now()
	_, err := s.Put(ctx, "a", []byte("x"))
	require.NoError(t, err)
	slow := time.Since(began)
	require.Greater(t, slow, 500*time.Millisecond, "five pauses, each twice as long")
	require.Equal(t, int64(5), s.Counts().Throttled)
	for range 6 { // the pace comes back
		_, err = s.Put(ctx, "a", []byte("x"))
		require.NoError(t, err)
	}
	began = time.Now()
	_, err = s.Put(ctx, "a", []byte("x"))
	require.NoError(t, err)
	require.Less(t, time.Since(began), slow/2)
}

// An upload in parts gets over faults of its parts and of its end, also when the answer of the end is lost.
func TestMultipartUnderFaults(t *testing.T) {
	checkpointrows.Shows(t, 73)
	s3Env(t)
	ctx := context.Background()
	want := bytes.Repeat([]byte("0123456789abcdef"), (33<<20)/16)
	path := filepath.Join(t.TempDir(), "big")
	require.NoError(t, os.WriteFile(path, want, 0o644))
	part := func(n string) func(*http.Request) bool {
		return func(r *http.Request) bool { return r.URL.Query().Get("partNumber") == n }
	}
	end := func(r *http.Request) bool { return r.Method == http.MethodPost && r.URL.Query().Has("uploadId") }
	for name, c := range map[string]struct {
		fault objecttest.S3Fault
		at    func(*http.Request) bool
	}{
		"part before": {objecttest.S3FailBefore, part("2")}, "part throttled": {objecttest.S3Throttled, part("3")},
		"end before": {objecttest.S3FailBefore, end}, "end after": {objecttest.S3FailAfter, end},
	} {
		t.Run(name, func(t *testing.T) {
			server := objecttest.NewS3Server(t, "bucket")
			s := openURL(t, server.StoreURL("p"))
			decide, met := firstN(1, c.fault, c.at)
			largest := &atomic.Int64{}
			server.SetFault(func(r *http.Request) objecttest.S3Fault {
				if isPut(r) {
					largest.Store(max(largest.Load(), r.ContentLength))
				}
				return decide(r)
			})
			info, err := s.PutFile(ctx, "big", path)
			require.NoError(t, err)
			require.Positive(t, met.Load())
			require.Equal(t, int64(len(want)), info.Size)
			require.LessOrEqual(t, largest.Load(), int64(17<<20), "in parts of 16 MiB")
			got, _, err := s.Get(ctx, "big")
			require.NoError(t, err)
			require.True(t, bytes.Equal(want, got))
			require.Zero(t, server.Uploads())
		})
	}
}

// Uploads that a server left when it died are ended, those of others stay.
func TestAbortUploads(t *testing.T) {
	s3Env(t)
	ctx := context.Background()
	server := objecttest.NewS3Server(t, "bucket")
	server.PageSize = 1
	path := filepath.Join(t.TempDir(), "big")
	require.NoError(t, os.WriteFile(path, make([]byte, 17<<20), 0o644))
	s := object.NewMetered(openURL(t, server.StoreURL("p")))
	for _, key := range []string{"data/1/a", "data/1/b", "data/2/c", "else"} {
		server.SetFault(func(r *http.Request) objecttest.S3Fault {
			if r.Method == http.MethodDelete || r.Method == http.MethodPost && r.URL.Query().Has("uploadId") {
				return objecttest.S3Forbidden // it dies before the end and cannot clean up
			}
			return objecttest.S3Fault{}
		})
		_, err := s.PutFile(ctx, key, path)
		require.ErrorIs(t, err, object.ErrForbidden)
	}
	server.SetFault(nil)
	require.Equal(t, 4, server.Uploads())
	n, err := object.WithPrefix(s, "data").AbortUploads(ctx, "", func(key string) bool { return strings.HasPrefix(key, "1/") })
	require.NoError(t, err)
	require.Equal(t, 2, n)
	require.Equal(t, 2, server.Uploads())
	require.Equal(t, int64(2), s.Counts().AbortedUploads)
}

// A server that hangs is given up when the caller's time is over, and the outcome is open.
func TestS3Hangs(t *testing.T) {
	s3Env(t)
	server := objecttest.NewS3Server(t, "bucket")
	s := openURL(t, server.StoreURL("p"))
	decide, _ := firstN(1, objecttest.S3HangAfter, isPut)
	server.SetFault(decide)
	ctx, cancel := context.WithTimeout(context.Background(), 200*time.Millisecond)
	defer cancel()
	_, err := s.PutIfAbsent(ctx, "a", []byte("x"))
	require.ErrorIs(t, err, context.DeadlineExceeded)
	require.True(t, object.IsAmbiguous(err))
	require.Equal(t, []string{"p/a"}, server.Keys(), "it was applied")
}
