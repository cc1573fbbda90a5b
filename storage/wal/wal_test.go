package wal

import (
	"bytes"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/streamdb/streamdb/internal/failpoint"
	"github.com/streamdb/streamdb/internal/pgerr"
)

func open(t *testing.T, dir string, opts Options) *WAL {
	t.Helper()
	w, err := Open(dir, opts)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, w.Close()) })
	return w
}

// contents replays everything from record from on.
func contents(t *testing.T, w *WAL, from uint64) []string {
	t.Helper()
	var recs []string
	require.NoError(t, w.Replay(from, func(lsn uint64, rec []byte) error {
		recs = append(recs, fmt.Sprintf("%d:%s", lsn, rec))
		return nil
	}))
	return recs
}

func write(t *testing.T, w *WAL, recs ...string) {
	t.Helper()
	for _, r := range recs {
		w.Append([]byte(r))
	}
	require.NoError(t, w.Sync())
}

func lastSegment(t *testing.T, dir string) string {
	t.Helper()
	segs, err := listSegments(dir)
	require.NoError(t, err)
	return segs[len(segs)-1].path
}

// copyDir copies the log as a crash would leave it.
func copyDir(t *testing.T, from string) string {
	t.Helper()
	to := t.TempDir()
	require.NoError(t, os.CopyFS(to, os.DirFS(from)))
	return to
}

func TestAppendSyncReplayReopen(t *testing.T) {
	dir := t.TempDir()
	w := open(t, dir, Options{})
	require.Equal(t, uint64(1), w.Append([]byte("a")))
	require.Equal(t, uint64(2), w.Append(nil))
	require.Empty(t, contents(t, w, 1), "not synced")
	require.NoError(t, w.Sync())
	require.NoError(t, w.Sync(), "nothing to do")
	write(t, w, "c")
	require.Equal(t, []string{"1:a", "2:", "3:c"}, contents(t, w, 0))
	require.Equal(t, []string{"3:c"}, contents(t, w, 3))
	w.Append([]byte("lost"))
	require.NoError(t, w.Close())

	w = open(t, dir, Options{})
	require.Equal(t, uint64(4), w.Next())
	write(t, w, "d")
	require.Equal(t, []string{"1:a", "2:", "3:c", "4:d"}, contents(t, w, 1))
}

func TestCrashAtEveryByteOfTheLastWrite(t *testing.T) {
	dir := t.TempDir()
	w := open(t, dir, Options{})
	write(t, w, "one", "two")
	before, err := os.Stat(lastSegment(t, dir))
	require.NoError(t, err)
	write(t, w, "three", "four")
	whole, err := os.ReadFile(lastSegment(t, dir))
	require.NoError(t, err)

	for n := before.Size(); n <= int64(len(whole)); n++ {
		for _, rest := range []string{"cut", "zero", "noise"} {
			crashed := copyDir(t, dir)
			data := bytes.Clone(whole[:n])
			if n < int64(len(whole)) {
				tail := make([]byte, int64(len(whole))-n)
				if rest == "noise" {
					for i := range tail {
						tail[i] = whole[n+int64(i)] ^ 0x5a
					}
				}
				if rest != "cut" {
					data = append(data, tail...)
				}
			}
			require.NoError(t, os.WriteFile(lastSegment(t, crashed), data, 0o644))
			r, err := Open(crashed, Options{})
			require.NoError(t, err, "%s at %d", rest, n)
			want := []string{"1:one", "2:two"}
			if n == int64(len(whole)) {
				want = append(want, "3:three", "4:four")
			}
			// The last write may end in zeros that a file system put there in place of equal bytes.
			if rest == "zero" && bytes.Equal(data, whole) {
				want = []string{"1:one", "2:two", "3:three", "4:four"}
			}
			require.Equal(t, want, contents(t, r, 1), "%s at %d", rest, n)
			write(t, r, "next")
			require.Len(t, contents(t, r, 1), len(want)+1)
			require.NoError(t, r.Close())
		}
	}
}

func TestDamageBeforeTheEndIsAnError(t *testing.T) {
	dir := t.TempDir()
	w := open(t, dir, Options{})
	write(t, w, "one", "two")
	damagedAt := int64(segmentHeaderBytes + frameHeaderBytes + recordHeaderBytes)
	write(t, w, "three")
	for _, off := range []int64{damagedAt, segmentHeaderBytes + 1, segmentHeaderBytes + 5} {
		bad := copyDir(t, dir)
		path := lastSegment(t, bad)
		data, err := os.ReadFile(path)
		require.NoError(t, err)
		data[off] ^= 1
		require.NoError(t, os.WriteFile(path, data, 0o644))
		_, err = Open(bad, Options{})
		require.Equal(t, pgerr.DataCorrupted, pgerr.CodeOf(err))
		require.ErrorContains(t, err, path)
		require.ErrorContains(t, err, "offset")
	}
}

func TestDamageInAnOlderSegmentIsFoundByReplay(t *testing.T) {
	dir := t.TempDir()
	w := open(t, dir, Options{SegmentBytes: 64})
	for i := range 5 {
		write(t, w, fmt.Sprintf("record %d of some length", i))
	}
	require.NoError(t, w.Close())
	segs, err := listSegments(dir)
	require.NoError(t, err)
	require.Greater(t, len(segs), 2)
	for _, cut := range []bool{true, false} {
		bad := copyDir(t, dir)
		path := filepath.Join(bad, filepath.Base(segs[1].path))
		data, err := os.ReadFile(path)
		require.NoError(t, err)
		data[len(data)-1] ^= 1
		if cut {
			data = data[:len(data)-1]
		}
		require.NoError(t, os.WriteFile(path, data, 0o644))
		r := open(t, bad, Options{})
		err = r.Replay(1, func(uint64, []byte) error { return nil })
		require.Equal(t, pgerr.DataCorrupted, pgerr.CodeOf(err))
		require.ErrorContains(t, err, path)
	}
}

func TestRotationAndTruncate(t *testing.T) {
	dir := t.TempDir()
	w := open(t, dir, Options{SegmentBytes: 200})
	var want []string
	for i := range 50 {
		rec := fmt.Sprintf("record %02d", i)
		write(t, w, rec)
		want = append(want, fmt.Sprintf("%d:%s", i+1, rec))
	}
	require.Equal(t, want, contents(t, w, 1))
	segs, err := listSegments(dir)
	require.NoError(t, err)
	require.Greater(t, len(segs), 5)

	require.NoError(t, w.TruncateBefore(segs[2].first-1))
	require.Equal(t, segs[1].first, w.First())
	require.NoError(t, w.TruncateBefore(segs[2].first))
	require.Equal(t, segs[2].first, w.First())
	require.Equal(t, want[segs[2].first-1:], contents(t, w, 1))
	require.NoError(t, w.TruncateBefore(1<<40))
	require.Equal(t, segs[len(segs)-1].first, w.First(), "the newest segment stays")
	require.NoError(t, w.Close())

	w = open(t, dir, Options{SegmentBytes: 200})
	require.Equal(t, uint64(51), w.Next(), "numbers go on")
	require.Equal(t, want[segs[len(segs)-1].first-1:], contents(t, w, 1))
}

func TestAFailedSyncLeavesTheLogUsable(t *testing.T) {
	for _, point := range []string{"wal/append", "wal/sync"} {
		dir := t.TempDir()
		points, err := failpoint.Parse(point + "=error(no space left on device)*2")
		require.NoError(t, err)
		clean := open(t, dir, Options{})
		write(t, clean, "one")
		require.NoError(t, clean.Close())

		w := open(t, dir, Options{Failpoints: points})
		for range 2 {
			require.Equal(t, uint64(2), w.Append([]byte("refused")))
			require.Equal(t, pgerr.DiskFull, pgerr.CodeOf(w.Sync()))
			require.Equal(t, []string{"1:one"}, contents(t, w, 1))
		}
		require.Equal(t, uint64(2), w.Append([]byte("two")), "its number is given out again")
		require.NoError(t, w.Sync())
		require.Equal(t, []string{"1:one", "2:two"}, contents(t, w, 1))
		require.NoError(t, w.Close())
		w = open(t, dir, Options{})
		require.Equal(t, []string{"1:one", "2:two"}, contents(t, w, 1), point)
	}
}

// A write that failed may have reached the disk whole, and its rollback not: the next segment overrules it.
func TestARolledBackFrameIsNotReplayed(t *testing.T) {
	dir := t.TempDir()
	w := open(t, dir, Options{})
	write(t, w, "one")
	write(t, w, "failed", "failed too")
	first := lastSegment(t, dir)
	w.mu.Lock()
	w.next, w.rotate = 2, true
	w.mu.Unlock()
	write(t, w, "two")
	require.NotEqual(t, first, lastSegment(t, dir))
	require.NoError(t, w.Close())
	w = open(t, dir, Options{})
	require.Equal(t, []string{"1:one", "2:two"}, contents(t, w, 1))
}

func TestAnUnfinishedSegmentIsRemoved(t *testing.T) {
	for n := range segmentHeaderBytes {
		dir := t.TempDir()
		w := open(t, dir, Options{})
		write(t, w, "one", "two")
		require.NoError(t, w.addSegment(3))
		require.NoError(t, w.Close())
		require.NoError(t, os.Truncate(lastSegment(t, dir), int64(n)))
		w = open(t, dir, Options{})
		require.Equal(t, uint64(3), w.Next())
		require.Equal(t, []string{"1:one", "2:two"}, contents(t, w, 1))
	}
}

func TestANewerFormatIsRefused(t *testing.T) {
	dir := t.TempDir()
	w := open(t, dir, Options{})
	require.NoError(t, w.Close())
	path := lastSegment(t, dir)
	data, err := os.ReadFile(path)
	require.NoError(t, err)
	data[11] = formatVersion + 1
	sum := castagnoli(data[:28])
	data[28], data[29], data[30], data[31] = byte(sum>>24), byte(sum>>16), byte(sum>>8), byte(sum)
	require.NoError(t, os.WriteFile(path, data, 0o644))
	_, err = Open(dir, Options{})
	require.Equal(t, pgerr.FeatureNotSupported, pgerr.CodeOf(err))
}

// Random batches, crashes, truncations and damage to what was not synced: what was synced is there, in order.
func TestRandomCrashes(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 2))
	dir := t.TempDir()
	var want []string
	for round := range 60 {
		w, err := Open(dir, Options{SegmentBytes: 500})
		require.NoError(t, err)
		require.Equal(t, want, contents(t, w, 1), "round %d", round)
		for range rng.IntN(5) {
			for range rng.IntN(4) {
				rec := bytes.Repeat([]byte{byte('a' + rng.IntN(26))}, rng.IntN(100))
				lsn := w.Append(rec)
				want = append(want, fmt.Sprintf("%d:%s", lsn, rec))
			}
			require.NoError(t, w.Sync())
		}
		require.NoError(t, w.Close())
		path := lastSegment(t, dir)
		data, err := os.ReadFile(path)
		require.NoError(t, err)
		torn := make([]byte, rng.IntN(200))
		for i := range torn {
			torn[i] = byte(rng.IntN(256))
		}
		require.NoError(t, os.WriteFile(path, append(data, torn...), 0o644))
	}
}

// The files of format version 1, as they were written first, stay readable.
func TestReadsFormatVersion1(t *testing.T) {
	dir := t.TempDir()
	require.NoError(t, os.CopyFS(dir, os.DirFS("../../testdata/compat/wal-v1")))
	w := open(t, dir, Options{})
	require.Equal(t, []string{"1:hello", "2:", "3:world"}, contents(t, w, 1))
}

func BenchmarkAppendSync(b *testing.B) {
	w, err := Open(b.TempDir(), Options{})
	require.NoError(b, err)
	rec := make([]byte, 200)
	for b.Loop() {
		w.Append(rec)
		require.NoError(b, w.Sync())
	}
	require.NoError(b, w.Close())
}
