package object_test

import (
	"bytes"
	"context"
	"net/http"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/streamdb/streamdb/storage/object"
	"github.com/streamdb/streamdb/storage/object/objecttest"
)

func TestCopy(t *testing.T) {
	ctx := context.Background()
	t.Setenv("AWS_ACCESS_KEY_ID", "test")
	t.Setenv("AWS_SECRET_ACCESS_KEY", "secret")
	server := objecttest.NewS3Server(t, "bucket")
	reads := 0
	server.SetFault(func(r *http.Request) objecttest.S3Fault {
		if r.Method == http.MethodGet {
			reads++
		}
		return objecttest.S3Fault{}
	})
	open := func(url string) object.Store {
		s, err := object.Open(ctx, url)
		require.NoError(t, err)
		return s
	}
	data := bytes.Repeat([]byte("0123456789"), 1_000_000)
	stores := map[string]object.Store{
		"folder": open("file://" + t.TempDir()), "memory": object.NewMemory("x"), "bucket": object.WithPrefix(open(server.StoreURL("a b")), "c"),
	}
	for _, ignorant := range []bool{false, true} {
		for from, src := range stores {
			_, err := src.Put(ctx, "some/key+1", data)
			require.NoError(t, err)
			for to, dst := range stores {
				t.Run(from+" to "+to, func(t *testing.T) {
					server.IgnoreCopies, reads = ignorant, 0
					dst := object.WithPrefix(dst, "copies")
					info, err := object.Copy(ctx, src, "some/key+1", dst, "there", t.TempDir())
					require.NoError(t, err)
					require.Equal(t, "there", info.Key)
					require.EqualValues(t, len(data), info.Size)
					if from == "bucket" && to == "bucket" && !ignorant {
						require.Zero(t, reads, "the server copies")
					}
					got, _, err := dst.Get(ctx, "there")
					require.NoError(t, err)
					require.True(t, bytes.Equal(data, got))
					_, err = object.Copy(ctx, src, "none", dst, "nothing", t.TempDir())
					require.ErrorIs(t, err, object.ErrNotFound)
				})
			}
		}
	}
}

func TestBelowAndAbove(t *testing.T) {
	for _, c := range []struct{ url, below, parent, last string }{
		{"file:///a/b", "file:///a/b/x", "file:///a", "b"},
		{"/a/b/", "/a/b/x", "/a", "b"},
		{"s3://k/p?endpoint=http://h:1/&region=r", "s3://k/p/x?endpoint=http://h:1/&region=r", "s3://k?endpoint=http://h:1/&region=r", "p"},
		{"s3://k/p/q", "s3://k/p/q/x", "s3://k/p", "q"},
	} {
		require.Equal(t, c.below, object.Below(c.url, "x"))
		parent, last, ok := object.Above(c.url)
		require.True(t, ok)
		require.Equal(t, []string{c.parent, c.last}, []string{parent, last})
	}
	for _, url := range []string{"file:///", "s3://k", "/", ""} {
		_, _, ok := object.Above(url)
		require.False(t, ok, url)
	}
}
