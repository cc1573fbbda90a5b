package wal

import (
	"bytes"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/streamdb/streamdb/internal/failpoint"
	"github.com/streamdb/streamdb/internal/pgerr"
)

func blocks(t *testing.T, w *WAL, name string, size int64) []string {
	t.Helper()
	var out []string
	require.NoError(t, w.ReadSide(name, size, func(b []byte) error {
		out = append(out, string(b))
		return nil
	}))
	return out
}

func TestSideFiles(t *testing.T) {
	dir := t.TempDir()
	w := open(t, dir, Options{})
	s, err := w.NewSide()
	require.NoError(t, err)
	large := string(bytes.Repeat([]byte("x"), 3*sideBufferBytes))
	for _, b := range []string{"one", "", large} {
		require.NoError(t, s.Append([]byte(b)))
	}
	require.NoError(t, s.Finish())
	require.Equal(t, []string{"one", "", large}, blocks(t, w, s.Name(), s.Bytes()))
	given, err := w.NewSide()
	require.NoError(t, err)
	require.NoError(t, given.Append([]byte("up")))
	require.NoError(t, given.Remove())
	left, err := w.NewSide()
	require.NoError(t, err)
	require.NoError(t, left.Append([]byte("in a crash")))
	write(t, w, "a record beside them")
	require.NoError(t, w.RemoveSides(map[string]bool{s.Name(): true}))
	found, err := filepath.Glob(filepath.Join(dir, "*"+sideSuffix))
	require.NoError(t, err)
	require.Equal(t, []string{s.path()}, found)
	require.NoError(t, w.RemoveSide(s.Name()))
	require.NoError(t, w.RemoveSide(s.Name()), "it may be gone")
	require.Equal(t, pgerr.IOError, pgerr.CodeOf(w.ReadSide(s.Name(), s.Bytes(), nil)))
}

// Whatever byte of a file is wrong or missing, reading it is an error.
func TestDamageInASideFile(t *testing.T) {
	dir := t.TempDir()
	w := open(t, dir, Options{})
	s, err := w.NewSide()
	require.NoError(t, err)
	require.NoError(t, s.Append([]byte("one")))
	require.NoError(t, s.Append([]byte("two")))
	require.NoError(t, s.Finish())
	whole, err := os.ReadFile(s.path())
	require.NoError(t, err)
	read := func(data []byte) error {
		require.NoError(t, os.WriteFile(s.path(), data, 0o600))
		return w.ReadSide(s.Name(), s.Bytes(), func([]byte) error { return nil })
	}
	for i := range whole {
		bad := bytes.Clone(whole)
		bad[i] ^= 1
		require.Equal(t, pgerr.DataCorrupted, pgerr.CodeOf(read(bad)), "byte %d", i)
		require.Equal(t, pgerr.DataCorrupted, pgerr.CodeOf(read(whole[:i])), "cut at %d", i)
	}
	require.NoError(t, read(whole))
}

func TestAFullDiskInASideFile(t *testing.T) {
	points, err := failpoint.Parse("wal/side=error(no space left on device)")
	require.NoError(t, err)
	w := open(t, t.TempDir(), Options{Failpoints: points})
	s, err := w.NewSide()
	require.NoError(t, err)
	require.Equal(t, pgerr.DiskFull, pgerr.CodeOf(s.Append([]byte("one"))))
	require.NoError(t, s.Remove())
}

// A binary that does not know of side files refuses a log that may name some: writing goes on in a segment of the present version.
func TestWritingGoesOnInTheNewFormat(t *testing.T) {
	dir := t.TempDir()
	require.NoError(t, os.CopyFS(dir, os.DirFS("../../testdata/compat/wal-v1")))
	w := open(t, dir, Options{})
	write(t, w, "next")
	require.Equal(t, []string{"1:hello", "2:", "3:world", "4:next"}, contents(t, w, 1))
	data, err := os.ReadFile(lastSegment(t, dir))
	require.NoError(t, err)
	require.EqualValues(t, formatVersion, data[11])
	require.Equal(t, segmentPath(dir, 4), lastSegment(t, dir))
}

// The files of format version 2, as they were written first, stay readable.
func TestReadsFormatVersion2(t *testing.T) {
	dir := t.TempDir()
	require.NoError(t, os.CopyFS(dir, os.DirFS("../../testdata/compat/wal-v2")))
	w := open(t, dir, Options{})
	require.Equal(t, []string{"1:hello", "2:", "3:world"}, contents(t, w, 1))
	require.Equal(t, []string{"first", "second"}, blocks(t, w, "0123456789abcdef.side", 32+8+5+8+6))
}
