package object_test

import (
	"bytes"
	"context"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"testing"

	"github.com/johannesboyne/gofakes3"
	"github.com/johannesboyne/gofakes3/backend/s3mem"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/streamdb/streamdb/internal/pgerr"
	"github.com/streamdb/streamdb/storage/object"
	"github.com/streamdb/streamdb/storage/object/objecttest"
)

func TestMain(m *testing.M) {
	goleak.VerifyTestMain(m,
		// Idle connections of the HTTP client, which ends them by itself.
		goleak.IgnoreAnyFunction("net/http.(*persistConn).writeLoop"), goleak.IgnoreAnyFunction("net/http.(*persistConn).readLoop"))
}

func openURL(t *testing.T, url string) object.Store {
	t.Helper()
	s, err := object.Open(context.Background(), url)
	require.NoError(t, err)
	return s
}

// s3Env gives the SDK credentials and keeps it from looking at the machine's.
func s3Env(t *testing.T) {
	t.Helper()
	t.Setenv("AWS_ACCESS_KEY_ID", "test")
	t.Setenv("AWS_SECRET_ACCESS_KEY", "secret")
	t.Setenv("AWS_CONFIG_FILE", filepath.Join(t.TempDir(), "none"))
	t.Setenv("AWS_SHARED_CREDENTIALS_FILE", filepath.Join(t.TempDir(), "none"))
	t.Setenv("AWS_EC2_METADATA_DISABLED", "true")
}

func TestMemory(t *testing.T) {
	objecttest.Run(t, func(t *testing.T) object.Store { return openURL(t, "memory://x") })
}

func TestFile(t *testing.T) {
	objecttest.Run(t, func(t *testing.T) object.Store { return openURL(t, "file://"+filepath.Join(t.TempDir(), "deep", "er")) })
}

func TestS3(t *testing.T) {
	s3Env(t)
	for _, prefix := range []string{"", "some/prefix"} {
		objecttest.Run(t, func(t *testing.T) object.Store {
			server := objecttest.NewS3Server(t, "bucket")
			server.PageSize = 2
			return openURL(t, server.StoreURL(prefix))
		})
	}
}

func TestFaultyWithoutFaults(t *testing.T) {
	objecttest.Run(t, func(*testing.T) object.Store { return objecttest.NewFaulty(object.NewMemory("x"), nil) })
}

func TestFileLinksAndLeavesNoTemporaryFiles(t *testing.T) {
	dir, ctx := t.TempDir(), context.Background()
	s := openURL(t, dir)
	path := filepath.Join(dir, "local.sst")
	require.NoError(t, os.WriteFile(path, []byte("x"), 0o644))
	_, err := s.PutFile(ctx, "data/x", path)
	require.NoError(t, err)
	a, err := os.Stat(path)
	require.NoError(t, err)
	b, err := os.Stat(filepath.Join(dir, "data", "x"))
	require.NoError(t, err)
	require.True(t, os.SameFile(a, b))
	_, err = s.PutIfMatch(ctx, "no", "tag", []byte("y"))
	require.ErrorIs(t, err, object.ErrPrecondition)
	temps, err := os.ReadDir(filepath.Join(dir, ".tmp"))
	require.NoError(t, err)
	require.Empty(t, temps)
}

func TestMultipart(t *testing.T) {
	s3Env(t)
	server := objecttest.NewS3Server(t, "bucket")
	s := openURL(t, server.StoreURL(""))
	ctx := context.Background()
	want := bytes.Repeat([]byte("0123456789abcdef"), (70<<20)/16)
	path := filepath.Join(t.TempDir(), "big")
	require.NoError(t, os.WriteFile(path, want, 0o644))
	info, err := s.PutFile(ctx, "big", path)
	require.NoError(t, err)
	require.Equal(t, int64(len(want)), info.Size)
	got, _, err := s.Get(ctx, "big")
	require.NoError(t, err)
	require.True(t, bytes.Equal(want, got))

	server.SetFault(func(r *http.Request) objecttest.S3Fault {
		if r.URL.Query().Get("partNumber") == "3" {
			return objecttest.S3Forbidden
		}
		return objecttest.S3Fault{}
	})
	_, err = s.PutFile(ctx, "big2", path)
	require.ErrorIs(t, err, object.ErrForbidden)
	require.Zero(t, server.Uploads(), "a failed upload is aborted")
}

func TestS3Faults(t *testing.T) {
	s3Env(t)
	ctx := context.Background()
	server := objecttest.NewS3Server(t, "bucket")
	s := openURL(t, server.StoreURL("p"))
	fault, times := objecttest.S3Fault{}, 0
	server.SetFault(func(*http.Request) objecttest.S3Fault {
		if times--; times < 0 {
			return objecttest.S3Fault{}
		}
		return fault
	})
	// Applied, answered with an error, tried again: the precondition fails on our own success, and the caller must look.
	fault, times = objecttest.S3FailAfter, 1
	_, err := s.PutIfAbsent(ctx, "b", []byte("mine"))
	require.ErrorIs(t, err, object.ErrPrecondition)
	data, _, err := s.Get(ctx, "b")
	require.NoError(t, err)
	require.Equal(t, "mine", string(data))

	fault, times = objecttest.S3Conflict, 100
	_, err = s.PutIfAbsent(ctx, "c", nil)
	require.ErrorIs(t, err, object.ErrConflict)
	require.True(t, object.IsRetryable(err))
	fault, times = objecttest.S3Forbidden, 100
	_, err = s.Put(ctx, "d", nil)
	require.ErrorIs(t, err, object.ErrForbidden)
	require.Equal(t, pgerr.InsufficientPrivilege, pgerr.CodeOf(err))
	require.Contains(t, pgerr.From(err).Hint, "credentials")
}

func TestS3Trouble(t *testing.T) {
	s3Env(t)
	ctx := context.Background()
	server := objecttest.NewS3Server(t, "bucket")
	other := openURL(t, fmt.Sprintf("s3://nosuch?endpoint=%s", server.URL))
	err := object.Probe(ctx, other)
	require.ErrorIs(t, err, object.ErrNoBucket)
	require.Contains(t, pgerr.From(err).Hint, `"nosuch"`)

	server.Close()
	down := openURL(t, server.StoreURL(""))
	_, err = down.Put(ctx, "a", nil)
	require.ErrorIs(t, err, object.ErrUnavailable)
	require.True(t, object.IsAmbiguous(err))
	require.ErrorContains(t, err, "connection refused")
	require.Equal(t, pgerr.UnableToConnect, pgerr.CodeOf(err))
	require.Contains(t, pgerr.From(err).Hint, "can be reached")
}

// A server without conditional writes must not be used: two writers could both believe to have won.
func TestProbeRefusesStoresWithoutConditionalWrites(t *testing.T) {
	s3Env(t)
	server := objecttest.NewS3Server(t, "bucket")
	server.IgnoreConditions = true
	err := object.Probe(context.Background(), openURL(t, server.StoreURL("")))
	require.ErrorContains(t, err, "does not support conditional writes")
}

// Another implementation of the protocol than the one the tests were written with.
func TestS3AgainstGofakes3(t *testing.T) {
	s3Env(t)
	objecttest.Run(t, func(t *testing.T) object.Store {
		backend := s3mem.New()
		require.NoError(t, backend.CreateBucket("bucket"))
		server := httptest.NewServer(gofakes3.New(backend).Server())
		t.Cleanup(server.Close)
		return openURL(t, "s3://bucket/prefix?endpoint="+server.URL)
	})
}

func TestOpenRefusesBadURLs(t *testing.T) {
	for _, url := range []string{"", "ftp://x", "s3://", "s3://b?endpont=x", "s3://b?force_path_style=maybe", "s3://key:secret@b", "file://"} {
		_, err := object.Open(context.Background(), url)
		require.Error(t, err, url)
		require.NotEmpty(t, pgerr.From(err).Hint, url)
	}
}

// A URL of a folder names that folder, wherever the server was started.
func TestFolderOfURL(t *testing.T) {
	t.Chdir(t.TempDir())
	for url, want := range map[string]string{
		"/a/b": "/a/b", "file:///a/b": "/a/b", "file:/a/b": "/a/b", "file://localhost/a/b": "/a/b", "file:///a%20b": "/a b", object.FolderURL("/a b%20?#c"): "/a b%20?#c",
	} {
		got, local, err := object.Folder(url)
		require.NoError(t, err, url)
		require.True(t, local, url)
		require.Equal(t, want, got, url)
		require.NoError(t, object.Check(url), url)
	}
	for url, why := range map[string]string{
		"a/b": "relative", "./a": "relative", "../a": "relative", "file:a": "relative", "file://./a": "relative", "file://../a": "relative",
		"file://host/a": "host", "file://a": "host", "file://": "missing", "file:///a%zz": "escape",
	} {
		_, err := object.Open(t.Context(), url)
		require.ErrorContains(t, err, why, url)
		require.Equal(t, pgerr.InvalidParameterValue, pgerr.CodeOf(err), url)
		require.Equal(t, "Use file:///absolute/folder.", pgerr.From(err).Hint, url)
		require.EqualError(t, object.Check(url), err.Error(), url)
	}
	left, err := os.ReadDir(".")
	require.NoError(t, err)
	require.Empty(t, left)

	here, err := os.Getwd()
	require.NoError(t, err)
	for url, want := range map[string]string{"a/b": filepath.Join(here, "a/b"), ".": here, "/a": "/a", "file:/a b": "file:///a b", "./a:b": filepath.Join(here, "a:b"), "a/b:c": filepath.Join(here, "a/b:c"), "file://a": "file://a", "": "", "s3://b": "s3://b"} {
		got, err := object.FromHere(url)
		require.NoError(t, err, url)
		require.Equal(t, want, got, url)
	}
	for _, url := range []string{"file:a", "s3:/b/c", "s3:b", "memory:", "S3:/b", "hdfs:/x", "a:b"} {
		_, err := object.FromHere(url)
		require.Equal(t, pgerr.InvalidParameterValue, pgerr.CodeOf(err), url)
		require.Contains(t, pgerr.From(err).Hint, "./"+url, url)
	}
}

// A folder that cannot be made or written says so: nothing is taken for an object that is missing.
func TestFolderThatCannotBeWritten(t *testing.T) {
	file := filepath.Join(t.TempDir(), "file")
	require.NoError(t, os.WriteFile(file, nil, 0o600))
	for _, folder := range []string{"/proc/x", "/proc/1/x/y", file, filepath.Join(file, "x")} {
		_, err := object.Open(t.Context(), object.FolderURL(folder))
		require.ErrorContains(t, err, "open file://"+folder+": the folder cannot be made: ", folder)
		require.NotErrorIs(t, err, object.ErrNotFound, folder)
		require.NotContains(t, err.Error(), "object does not exist", folder)
		require.NotEmpty(t, pgerr.From(err).Hint, folder)
	}

	gone := filepath.Join(t.TempDir(), "gone")
	s := openURL(t, object.FolderURL(gone))
	local := filepath.Join(t.TempDir(), "local")
	require.NoError(t, os.WriteFile(local, []byte("x"), 0o600))
	require.NoError(t, os.RemoveAll(gone))
	put, perr := s.Put(t.Context(), "k", nil)
	create, cerr := s.PutIfAbsent(t.Context(), "k", nil)
	replace, rerr := s.PutIfMatch(t.Context(), "k", "etag", nil)
	copied, ferr := s.PutFile(t.Context(), "k", local)
	require.Equal(t, [4]object.Info{}, [4]object.Info{put, create, replace, copied})
	for _, err := range []error{perr, cerr, rerr, ferr} {
		require.Error(t, err)
		require.NotErrorIs(t, err, object.ErrNotFound)
		require.Equal(t, pgerr.IOError, pgerr.CodeOf(err))
		require.NotEmpty(t, pgerr.From(err).Hint)
	}
}
