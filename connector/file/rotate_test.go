package file

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// rotate renames the file and those rotated before it.
func rotate(t *testing.T, path string) {
	t.Helper()
	n := 1
	for ; ; n++ {
		if _, err := os.Stat(fmt.Sprintf("%s.%d", path, n)); err != nil {
			break
		}
	}
	for ; n > 1; n-- {
		require.NoError(t, os.Rename(fmt.Sprintf("%s.%d", path, n-1), fmt.Sprintf("%s.%d", path, n)))
	}
	require.NoError(t, os.Rename(path, path+".1"))
}

func row(id int) string { return fmt.Sprintf("{\"id\":%d}\n", id) }

func wantRows(from, to int) string {
	var out []string
	for i := from; i <= to; i++ {
		out = append(out, fmt.Sprintf("%d|NULL", i))
	}
	return strings.Join(out, " ")
}

// Files are renamed faster than the quiet time of the one that is read: by one look each, several between two looks, and with restarts in between.
func TestRotatedFast(t *testing.T) {
	for _, restart := range []bool{false, true} {
		for _, perPoll := range []int{1, 3} {
			t.Run(fmt.Sprintf("restart %v, %d between looks", restart, perPoll), func(t *testing.T) {
				path := filepath.Join(t.TempDir(), "a.json")
				write(t, path, row(1))
				f := follow(t, path, "JSON")
				var got []string
				read := func() {
					got = append(got, strings.Fields(f.rows())...)
				}
				read()
				mtime := time.Unix(2_000_000_000, 0)
				require.NoError(t, os.Chtimes(path, mtime, mtime))
				read()
				id := 1
				for range 12 {
					pos := slices.Clone(f.rd.Position())
					for range perPoll {
						rotate(t, path)
						id++
						write(t, path, row(id))
						mtime = mtime.Add(time.Millisecond)
						require.NoError(t, os.Chtimes(path, mtime, mtime))
					}
					if restart {
						f.openAt(pos)
					}
					f.clock.t = f.clock.t.Add(400 * time.Millisecond)
					read()
				}
				for range id {
					f.clock.t = f.clock.t.Add(rotateGrace)
					read()
				}
				require.Equal(t, wantRows(1, id), strings.Join(got, " "))
				require.Empty(t, f.sink.Rows)
			})
		}
	}
}

// The old file is written on while its successor comes and goes.
func TestRotatedWhileOldGrows(t *testing.T) {
	for _, restart := range []bool{false, true} {
		path := filepath.Join(t.TempDir(), "a.json")
		write(t, path, row(1))
		f := follow(t, path, "JSON")
		require.Equal(t, "1|NULL", f.rows())
		rotate(t, path)
		write(t, path, row(20))
		for i := range 10 {
			appendTo(t, fmt.Sprintf("%s.%d", path, 1+i/5), row(2+i))
			require.Equal(t, wantRows(2+i, 2+i), f.rows())
			if restart {
				f.restart()
			}
			if i == 4 {
				rotate(t, path)
				write(t, path, row(21))
			}
			f.clock.t = f.clock.t.Add(400 * time.Millisecond)
		}
		var got []string
		for range 4 {
			f.clock.t = f.clock.t.Add(rotateGrace)
			got = append(got, strings.Fields(f.rows())...)
			if restart {
				f.restart() // the late file, now with the newest time, is not read again
			}
		}
		rotate(t, path)
		write(t, path, row(22))
		for range 4 {
			got = append(got, strings.Fields(f.rows())...)
			f.clock.t = f.clock.t.Add(rotateGrace)
		}
		require.Equal(t, wantRows(20, 22), strings.Join(got, " "), "restart %v", restart)
		require.Empty(t, f.sink.Rows)
	}
}

// More files than may wait are reported, and read when there is room.
func TestRotatedTooOften(t *testing.T) {
	path := filepath.Join(t.TempDir(), "a.json")
	write(t, path, row(1))
	f := follow(t, path, "JSON")
	got := strings.Fields(f.rows())
	mtime := time.Unix(2_000_000_000, 0)
	require.NoError(t, os.Chtimes(path, mtime, mtime))
	for i := range maxPending + 5 {
		rotate(t, path)
		write(t, path, row(2+i))
		mtime = mtime.Add(time.Millisecond)
		require.NoError(t, os.Chtimes(path, mtime, mtime))
		got = append(got, strings.Fields(f.rows())...)
	}
	require.NotEmpty(t, f.sink.Rows)
	require.Contains(t, f.sink.Rows[0].Err.Error(), "wait to be read")
	for range maxPending {
		f.clock.t = f.clock.t.Add(rotateGrace)
		got = append(got, strings.Fields(f.rows())...)
	}
	require.Equal(t, wantRows(1, maxPending+6), strings.Join(got, " "))
}

// A rotated name that matches the pattern is no split of its own while the reader of the path has the file.
func TestRotatedUnderPattern(t *testing.T) {
	path := filepath.Join(t.TempDir(), "a.json")
	write(t, path, row(1))
	f := follow(t, path, "JSON")
	src := open(t, &Connector{now: f.clock.now}, config(path+"*", "JSON"))
	f.src = src
	f.openAt(nil)
	splits, err := src.Splits(t.Context())
	require.NoError(t, err)
	require.Len(t, splits, 1)
	require.Equal(t, "1|NULL", f.rows())
	rotate(t, path)
	write(t, path, row(2))
	require.Empty(t, f.rows())
	rotate(t, path)
	write(t, path, row(3))
	require.Empty(t, f.rows())
	splits, err = src.Splits(t.Context())
	require.NoError(t, err)
	require.Len(t, splits, 1)
	f.clock.t = f.clock.t.Add(rotateGrace)
	require.Equal(t, wantRows(2, 3), f.rows())
}

// A file that waited and is gone after a restart is reported.
func TestRotatedAndGone(t *testing.T) {
	path := filepath.Join(t.TempDir(), "a.json")
	write(t, path, row(1))
	f := follow(t, path, "JSON")
	require.Equal(t, "1|NULL", f.rows())
	rotate(t, path)
	write(t, path, row(2))
	require.Empty(t, f.rows())
	rotate(t, path)
	write(t, path, row(3))
	require.Empty(t, f.rows())
	pos := slices.Clone(f.rd.Position())
	require.NoError(t, f.rd.Close())
	require.NoError(t, os.Remove(path+".1"))
	f.openAt(pos)
	require.Empty(t, f.rows())
	f.clock.t = f.clock.t.Add(rotateGrace)
	require.Equal(t, "3|NULL", f.rows())
	require.Len(t, f.sink.Rows, 1)
	require.Contains(t, f.sink.Rows[0].Err.Error(), "gone before it was read")
}

func TestRotatedPosition(t *testing.T) {
	p := position{
		flags: flagSkipping, generation: 3, offset: 1 << 40, line: 7, tail: 1 << 63, floor: 1 << 60, current: identity{1, 1 << 63},
		queue: []identity{{2, 3}}, read: []readFile{{identity{4, 5}, 6, 1 << 63}},
	}
	b := p.encode()
	got, err := decodePosition(b)
	require.NoError(t, err)
	require.Equal(t, p, got)
	for n := range b {
		_, err := decodePosition(b[:n])
		require.Error(t, err)
	}
}
