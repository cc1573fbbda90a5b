package objecttest

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/streamdb/streamdb/storage/object"
)

// Run is the conformance battery: every store must pass it. open returns an empty store.
func Run(t *testing.T, open func(t *testing.T) object.Store) {
	t.Helper()
	ctx := context.Background()
	t.Run("read and write", func(t *testing.T) {
		s := open(t)
		_, _, err := s.Get(ctx, "a/b")
		require.ErrorIs(t, err, object.ErrNotFound)
		_, err = s.Head(ctx, "a/b")
		require.ErrorIs(t, err, object.ErrNotFound)
		_, err = s.GetRange(ctx, "a/b", 0, 1)
		require.ErrorIs(t, err, object.ErrNotFound)

		first, err := s.Put(ctx, "a/b", []byte("hello world"))
		require.NoError(t, err)
		data, info, err := s.Get(ctx, "a/b")
		require.NoError(t, err)
		require.Equal(t, "hello world", string(data))
		require.Equal(t, int64(11), info.Size)
		require.Equal(t, first.ETag, info.ETag)
		info, err = s.Head(ctx, "a/b")
		require.NoError(t, err)
		require.Equal(t, int64(11), info.Size)
		require.Equal(t, first.ETag, info.ETag)

		second, err := s.Put(ctx, "a/b", []byte("other"))
		require.NoError(t, err)
		require.NotEqual(t, first.ETag, second.ETag)
		_, err = s.Put(ctx, "empty", nil)
		require.NoError(t, err)
		data, _, err = s.Get(ctx, "empty")
		require.NoError(t, err)
		require.Empty(t, data)
	})
	t.Run("ranges", func(t *testing.T) {
		s := open(t)
		_, err := s.Put(ctx, "r", []byte("0123456789"))
		require.NoError(t, err)
		for _, c := range []struct {
			off, n int64
			want   string
		}{{0, 10, "0123456789"}, {3, 4, "3456"}, {8, 5, "89"}, {9, 1, "9"}, {10, 3, ""}, {20, 1, ""}, {4, 0, ""}} {
			got, err := s.GetRange(ctx, "r", c.off, c.n)
			require.NoError(t, err, "%+v", c)
			require.Equal(t, c.want, string(got), "%+v", c)
		}
	})
	t.Run("files", func(t *testing.T) {
		s := open(t)
		path := filepath.Join(t.TempDir(), "000001.sst")
		want := bytes.Repeat([]byte("0123456789abcdef"), 1<<16)
		require.NoError(t, os.WriteFile(path, want, 0o644))
		for range 2 {
			info, err := s.PutFile(ctx, "data/7/000001.sst", path)
			require.NoError(t, err)
			require.Equal(t, int64(len(want)), info.Size)
		}
		require.NoError(t, os.Remove(path))
		got, _, err := s.Get(ctx, "data/7/000001.sst")
		require.NoError(t, err)
		require.True(t, bytes.Equal(want, got))
		_, err = s.PutFile(ctx, "data/7/000002.sst", path)
		require.Error(t, err)
		require.NotErrorIs(t, err, object.ErrNotFound)
	})
	t.Run("conditional writes", func(t *testing.T) {
		s := open(t)
		require.NoError(t, object.Probe(ctx, s))
		first, err := s.PutIfAbsent(ctx, "HEAD", []byte("1"))
		require.NoError(t, err)
		_, err = s.PutIfAbsent(ctx, "HEAD", []byte("2"))
		require.ErrorIs(t, err, object.ErrPrecondition)
		second, err := s.PutIfMatch(ctx, "HEAD", first.ETag, []byte("3"))
		require.NoError(t, err)
		_, err = s.PutIfMatch(ctx, "HEAD", first.ETag, []byte("4"))
		require.ErrorIs(t, err, object.ErrPrecondition)
		_, err = s.PutIfMatch(ctx, "none", first.ETag, []byte("5"))
		require.ErrorIs(t, err, object.ErrPrecondition)
		data, info, err := s.Get(ctx, "HEAD")
		require.NoError(t, err)
		require.Equal(t, "3", string(data))
		require.Equal(t, second.ETag, info.ETag)
	})
	t.Run("one winner", func(t *testing.T) {
		s := open(t)
		base, err := s.PutIfAbsent(ctx, "HEAD", []byte("base"))
		require.NoError(t, err)
		var created, replaced atomic.Int32
		var wg sync.WaitGroup
		for i := range 8 {
			wg.Go(func() {
				if _, err := s.PutIfMatch(ctx, "HEAD", base.ETag, fmt.Appendf(nil, "writer %d", i)); err == nil {
					replaced.Add(1)
				}
				if _, err := s.PutIfAbsent(ctx, "new", fmt.Appendf(nil, "writer %d", i)); err == nil {
					created.Add(1)
				}
			})
		}
		wg.Wait()
		require.Equal(t, int32(1), replaced.Load())
		require.Equal(t, int32(1), created.Load())
	})
	t.Run("list and delete", func(t *testing.T) {
		s := open(t)
		for _, key := range []string{"chk/2", "chk/1", "chk/10", "data/1/x", "chkother"} {
			_, err := s.Put(ctx, key, []byte(key))
			require.NoError(t, err)
		}
		require.Equal(t, []string{"chk/1", "chk/10", "chk/2"}, keys(t, s, "chk/"))
		require.Equal(t, []string{"chk/1", "chk/10"}, keys(t, s, "chk/1"))
		require.Empty(t, keys(t, s, "no/such"))
		require.Len(t, keys(t, s, ""), 5)
		require.NoError(t, s.Delete(ctx, "chk/1", "no/such", "data/1/x"))
		require.NoError(t, s.Delete(ctx))
		require.Equal(t, []string{"chk/10", "chk/2", "chkother"}, keys(t, s, ""))
	})
	t.Run("invalid keys", func(t *testing.T) {
		s := open(t)
		for _, key := range []string{"", "/a", "a//b", "../a", "a/../b", "a/", ".", strings.Repeat("k", object.MaxKeyBytes+1)} {
			_, err := s.Put(ctx, key, nil)
			require.Error(t, err, "%q", key)
		}
	})
	t.Run("cancelled", func(t *testing.T) {
		s := open(t)
		ctx, cancel := context.WithCancel(ctx)
		cancel()
		_, err := s.Put(ctx, "a", nil)
		require.ErrorIs(t, err, context.Canceled)
		_, _, err = s.Get(ctx, "a")
		require.ErrorIs(t, err, context.Canceled)
	})
	t.Run("prefix", func(t *testing.T) {
		s := open(t)
		p := object.WithPrefix(s, "/db/one/")
		_, err := p.Put(ctx, "chk/1", []byte("x"))
		require.NoError(t, err)
		require.Equal(t, []string{"db/one/chk/1"}, keys(t, s, ""))
		require.Equal(t, []string{"chk/1"}, keys(t, p, ""))
		require.NoError(t, object.Probe(ctx, p))
		require.NoError(t, p.Delete(ctx, "chk/1"))
		require.Empty(t, keys(t, s, ""))
	})
}

func keys(t *testing.T, s object.Store, prefix string) []string {
	t.Helper()
	var got []string
	require.NoError(t, s.List(context.Background(), prefix, func(info object.Info) error {
		got = append(got, info.Key)
		return nil
	}))
	return got
}
