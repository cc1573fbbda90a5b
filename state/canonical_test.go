package state_test

import (
	"bytes"
	"context"
	"encoding/binary"
	"fmt"
	"hash/crc32"
	"os"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/streamdb/streamdb/internal/checkpointrows"
	"github.com/streamdb/streamdb/internal/pgerr"
	"github.com/streamdb/streamdb/state"
)

// canonical writes the last snapshot of j in the canonical form.
func canonical(t *testing.T, j *job) *state.Snapshot {
	t.Helper()
	sn, err := state.Canonical(context.Background(), state.Options{Dir: t.TempDir()}, j.last)
	require.NoError(t, err)
	return sn
}

func TestCanonicalSwitchesBackends(t *testing.T) {
	checkpointrows.Shows(t, 85, 100)
	for _, from := range []state.BackendType{state.BackendMemory, state.BackendPebble} {
		for _, to := range []state.BackendType{state.BackendMemory, state.BackendPebble} {
			for _, budget := range []int64{1000, 1 << 30} {
				t.Run(fmt.Sprint(from, " to ", to, " with ", budget), func(t *testing.T) {
					j := open(t, state.Options{Dir: t.TempDir(), Backend: from, Policy: eager, Budget: state.NewBudget(budget)}, nil)
					for i := range 10 {
						j.fill(i*1000, i*1000+1000, "x")
						j.checkpoint()
					}
					sn := canonical(t, j)
					require.Equal(t, state.BackendCanonical, sn.Backend)
					k := open(t, state.Options{Dir: t.TempDir(), Backend: to, Policy: eager, Budget: state.NewBudget(budget)}, sn)
					k.check(0, 10_000, "x")
					k.fill(0, 10, "y")
					next := k.checkpoint()
					require.Equal(t, to, next.Backend, "the next snapshot is the backend's own")
					l := open(t, state.Options{Dir: t.TempDir(), Backend: from}, next)
					l.check(0, 10, "y")
					l.check(10, 10_000, "x")
				})
			}
		}
	}
}

// TestCanonicalFile reads a file with nothing but what docs/formats/savepoint.md says.
func TestCanonicalFile(t *testing.T) {
	j := open(t, state.Options{Dir: t.TempDir()}, nil)
	j.fill(0, 100, "x")
	j.checkpoint()
	j.fill(0, 50, "y")
	j.part.Delete(60%groups, []byte("000060"))
	j.checkpoint()
	sn := canonical(t, j)
	require.Len(t, sn.Deltas, 1)
	b, err := os.ReadFile(sn.Deltas[0].Path)
	require.NoError(t, err)
	require.Equal(t, "SDBSTATE\x00\x00\x00\x01", string(b[:12]))
	table := crc32.MakeTable(crc32.Castagnoli)
	require.Equal(t, crc32.Checksum(b[:len(b)-4], table), binary.BigEndian.Uint32(b[len(b)-4:]))
	count, last := uint64(0), []byte{}
	for b = b[12:]; b[0] != 0; count++ {
		n, w := binary.Uvarint(b)
		key := b[w : w+int(n)]
		b = b[w+int(n):]
		require.Negative(t, bytes.Compare(last, key))
		last = key
		n, w = binary.Uvarint(b)
		b = b[w+int(n):]
	}
	require.Equal(t, count, binary.BigEndian.Uint64(b[1:]))
	require.EqualValues(t, 99, count)
	require.Len(t, b, 1+8+4)
}

func TestCanonicalDamage(t *testing.T) {
	j := open(t, state.Options{Dir: t.TempDir()}, nil)
	j.fill(0, 100, "x")
	j.checkpoint()
	sn := canonical(t, j)
	b, err := os.ReadFile(sn.Deltas[0].Path)
	require.NoError(t, err)
	for name, change := range map[string]func([]byte) []byte{
		"a byte":                         func(b []byte) []byte { b[len(b)/2] ^= 1; return b },
		"cut off":                        func(b []byte) []byte { return b[:len(b)-20] },
		"cut off, with its own checksum": func(b []byte) []byte { return b[:len(b)-20] },
		"not a state":                    func(b []byte) []byte { b[0] = 'X'; return b },
		"newer":                          func(b []byte) []byte { b[11] = 2; return b },
	} {
		t.Run(name, func(t *testing.T) {
			damaged := change(bytes.Clone(b))
			h := sn.Deltas[0]
			h.Path, h.Inline = "", damaged
			if name != "a byte" && name != "cut off" {
				h.Size, h.CRC = int64(len(damaged)), crc32.Checksum(damaged, crc32.MakeTable(crc32.Castagnoli))
			}
			_, err := state.Open(context.Background(), state.Options{Dir: t.TempDir(), MaxParallelism: groups}, &state.Snapshot{
				Format: 1, Backend: state.BackendCanonical, MaxParallelism: groups, Deltas: []state.Handle{h},
			})
			want := pgerr.DataCorrupted
			if name == "newer" {
				want = pgerr.FeatureNotSupported
			}
			require.Equal(t, want, pgerr.CodeOf(err), "%v", err)
			require.ErrorContains(t, err, h.Name)
		})
	}
}
