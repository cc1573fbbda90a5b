package state_test

import (
	"context"
	"encoding/binary"
	"fmt"
	"math/rand/v2"
	"os"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/streamdb/streamdb/state"
)

const benchGroups = 128

var fullRange = state.Range{From: 0, To: benchGroups}

// key8 is a key of 8 random-looking bytes, and its key group.
func key8(buf []byte, i uint64) ([]byte, uint16) {
	h := i * 0x9e3779b97f4a7c15
	h ^= h >> 29
	h *= 0xbf58476d1ce4e5b9
	h ^= h >> 32
	return binary.BigEndian.AppendUint64(buf[:0], h), uint16(h>>8) % benchGroups
}

func memoryPart(tb testing.TB, n int) (*state.Store, *state.Part) {
	s := state.NewMemory(benchGroups)
	p, err := s.Part(1, 0, fullRange, state.Ordered)
	require.NoError(tb, err)
	fillPart(p, 0, n)
	return s, p
}

func fillPart(p *state.Part, from, n int) {
	var buf [8]byte
	val := make([]byte, 40)
	for i := from; i < from+n; i++ {
		k, kg := key8(buf[:], uint64(i))
		p.Put(kg, k, val)
	}
}

func BenchmarkNewMemory(b *testing.B) {
	b.ReportAllocs()
	for b.Loop() {
		s := state.NewMemory(benchGroups)
		if _, err := s.Part(1, 0, fullRange, state.Ordered); err != nil {
			b.Fatal(err)
		}
	}
}

func BenchmarkPut(b *testing.B) {
	for _, n := range []int{10_000, 1_000_000} {
		b.Run(fmt.Sprint("insert/", n), func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				memoryPart(b, n)
			}
			b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N)/float64(n), "ns/entry")
		})
		b.Run(fmt.Sprint("update/", n), func(b *testing.B) {
			_, p := memoryPart(b, n)
			var buf, val [8]byte
			i := uint64(0)
			b.ReportAllocs()
			b.ResetTimer()
			for b.Loop() {
				i++
				k, kg := key8(buf[:], i%uint64(n))
				binary.BigEndian.PutUint64(val[:], i)
				p.Put(kg, k, val[:])
			}
		})
	}
}

func BenchmarkGet(b *testing.B) {
	for _, n := range []int{10_000, 1_000_000} {
		_, p := memoryPart(b, n)
		for name, off := range map[string]uint64{"hit": 0, "miss": 1 << 40} {
			b.Run(fmt.Sprint(name, "/", n), func(b *testing.B) {
				var buf [8]byte
				i := uint64(0)
				b.ReportAllocs()
				for b.Loop() {
					i++
					k, kg := key8(buf[:], i%uint64(n)+off)
					if _, ok, _ := p.Get(kg, k); ok != (off == 0) {
						b.Fatal("wrong answer")
					}
				}
			})
		}
	}
}

func BenchmarkScan(b *testing.B) {
	_, p := memoryPart(b, 1_000_000)
	b.Run("prefix of 1", func(b *testing.B) {
		var buf [8]byte
		i := uint64(0)
		b.ReportAllocs()
		for b.Loop() {
			i++
			k, kg := key8(buf[:], i%1_000_000)
			it := p.Scan(kg, k)
			if !it.Next() {
				b.Fatal("nothing found")
			}
			it.Close()
		}
	})
	b.Run("all", func(b *testing.B) {
		for b.Loop() {
			it := p.ScanAll()
			for it.Next() {
			}
			it.Close()
		}
		b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N)/1e6, "ns/entry")
	})
}

func BenchmarkView(b *testing.B) {
	_, p := memoryPart(b, 1_000_000)
	b.Run("take and close", func(b *testing.B) {
		b.ReportAllocs()
		for b.Loop() {
			p.View().Close()
		}
	})
	b.Run("update after each 1000", func(b *testing.B) {
		var buf, val [8]byte
		i := uint64(0)
		for b.Loop() {
			i++
			if i%1000 == 0 {
				p.View().Close()
			}
			k, kg := key8(buf[:], i%1_000_000)
			binary.BigEndian.PutUint64(val[:], i)
			p.Put(kg, k, val[:])
		}
	})
}

func BenchmarkSealSnapshot(b *testing.B) {
	for _, dirty := range []int{100, 10_000, 200_000} {
		b.Run(fmt.Sprint(dirty), func(b *testing.B) {
			s, err := state.Open(context.Background(), state.Options{Dir: b.TempDir(), MaxParallelism: benchGroups}, nil)
			require.NoError(b, err)
			p, err := s.Part(1, 0, fullRange, state.Ordered)
			require.NoError(b, err)
			fillPart(p, 0, 200_000)
			var seal, snap time.Duration
			var val [40]byte
			var buf [8]byte
			id := uint64(0)
			for b.Loop() {
				id++
				for range dirty {
					k, kg := key8(buf[:], rand.Uint64N(200_000))
					binary.BigEndian.PutUint64(val[:], rand.Uint64())
					p.Put(kg, k, val[:])
				}
				t := time.Now()
				sealed := []*state.Sealed{s.Seal(0)}
				seal += time.Since(t)
				t = time.Now()
				_, err := s.Snapshot(context.Background(), id, sealed)
				require.NoError(b, err)
				snap += time.Since(t)
				s.Confirm(id)
			}
			b.ReportMetric(float64(seal.Nanoseconds())/float64(b.N), "ns/seal")
			b.ReportMetric(float64(snap.Nanoseconds())/float64(b.N)/float64(dirty), "ns/entry")
			require.NoError(b, s.Destroy())
		})
	}
}

// BenchmarkGrow puts distinct random keys in two tables, as an aggregation does: a read that finds nothing, then a put. It asks for
// flushes when the store wants them, takes a checkpoint for every 500,000 keys, and reports the peak of resident memory.
// STATE_GROW_KEYS and STATE_GROW_MIB set the size.
func BenchmarkGrow(b *testing.B) {
	keys, mib := envInt("STATE_GROW_KEYS", 1_000_000), envInt("STATE_GROW_MIB", 128)
	for b.Loop() {
		grow(b, keys, int64(mib)<<20)
	}
	b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N)/float64(keys), "ns/key")
	b.ReportMetric(float64(peakRSS(b))/(1<<20), "MiB-peak-rss")
}

func grow(b *testing.B, keys int, memory int64) {
	ctx := context.Background()
	shared := state.OpenShared(memory)
	defer shared.Close()
	s, err := state.Open(ctx, state.Options{Dir: b.TempDir(), MaxParallelism: benchGroups, Shared: shared}, nil)
	require.NoError(b, err)
	var parts []*state.Part
	for table := range uint32(2) {
		p, err := s.Part(table, 0, fullRange, state.Ordered)
		require.NoError(b, err)
		parts = append(parts, p)
	}
	var (
		buf      [8]byte
		val      [40]byte
		work     = make(chan func() error)
		done     = make(chan error, 1)
		id       uint64
		uploaded int64
	)
	go func() {
		var err error
		for f := range work {
			if err == nil {
				err = f()
			}
		}
		done <- err
	}()
	for i := range keys {
		k, kg := key8(buf[:], uint64(i))
		for t, p := range parts {
			if _, ok, err := p.Get(kg, k); err != nil || ok {
				b.Fatalf("key %d of table %d: found %v, %v", i, t, ok, err)
			}
			binary.BigEndian.PutUint64(val[8:], uint64(i))
			p.Put(kg, k, val[:])
		}
		if i%500_000 == 499_999 {
			sealed := []*state.Sealed{s.Seal(0)}
			id++
			n := id
			work <- func() error {
				sn, err := s.Snapshot(ctx, n, sealed)
				if err == nil {
					uploaded += sn.NewBytes
					s.Confirm(n)
				}
				return err
			}
		} else if i%1000 == 0 && s.NeedsFlush() {
			sealed := []*state.Sealed{s.Seal(0)}
			work <- func() error { return s.Flush(ctx, sealed) }
		}
	}
	close(work)
	require.NoError(b, <-done)
	for i := range 1000 {
		k, kg := key8(buf[:], uint64(i*(keys/1000)))
		v, ok, err := parts[i%2].Get(kg, k)
		require.NoError(b, err)
		require.True(b, ok)
		require.EqualValues(b, i*(keys/1000), binary.BigEndian.Uint64(v[8:]))
	}
	m := s.Metrics()
	b.Logf("%+v uploaded %d", m, uploaded)
	b.ReportMetric(float64(m.OverlayBytes)/(1<<20), "MiB-overlay")
	b.ReportMetric(float64(uploaded)/(1<<20), "MiB-uploaded")
	b.ReportMetric(float64(m.CompactedBytes)/(1<<20), "MiB-compacted")
	require.NoError(b, s.Destroy())
}

func envInt(name string, def int) int {
	if n, err := strconv.Atoi(os.Getenv(name)); err == nil {
		return n
	}
	return def
}

func peakRSS(tb testing.TB) int64 {
	text, err := os.ReadFile("/proc/self/status")
	if err != nil {
		return 0
	}
	for line := range strings.Lines(string(text)) {
		if f := strings.Fields(line); len(f) > 1 && f[0] == "VmHWM:" {
			kb, err := strconv.ParseInt(f[1], 10, 64)
			require.NoError(tb, err)
			return kb << 10
		}
	}
	return 0
}

// BenchmarkCold reads a part whose entries were all evicted, with a warm block cache.
func BenchmarkCold(b *testing.B) {
	const n = 500_000
	ctx := context.Background()
	shared := state.OpenShared(512 << 20)
	b.Cleanup(shared.Close)
	s, err := state.Open(ctx, state.Options{
		Dir: b.TempDir(), MaxParallelism: benchGroups, Shared: shared, Budget: state.NewBudget(1),
	}, nil)
	require.NoError(b, err)
	p, err := s.Part(1, 0, fullRange, state.Ordered)
	require.NoError(b, err)
	fillPart(p, 0, n)
	require.NoError(b, s.Flush(ctx, []*state.Sealed{s.Seal(0)}))
	s.Seal(0)
	v := p.View()
	var buf [8]byte
	for name, off := range map[string]uint64{"hit": 0, "miss": 1 << 40} {
		b.Run("get "+name, func(b *testing.B) {
			i := uint64(0)
			for b.Loop() {
				i++
				k, kg := key8(buf[:], i*7919%n+off)
				if _, ok, err := p.Get(kg, k); err != nil || ok != (off == 0) {
					b.Fatal("wrong answer", err)
				}
			}
		})
		b.Run("view get "+name, func(b *testing.B) {
			i := uint64(0)
			for b.Loop() {
				i++
				k, kg := key8(buf[:], i*7919%n+off)
				if _, ok, err := v.Get(kg, k); err != nil || ok != (off == 0) {
					b.Fatal("wrong answer", err)
				}
			}
		})
		b.Run("scan prefix "+name, func(b *testing.B) {
			i := uint64(0)
			for b.Loop() {
				i++
				k, kg := key8(buf[:], i*7919%n+off)
				it := p.Scan(kg, k)
				if it.Next() != (off == 0) {
					b.Fatal("wrong answer", it.Err())
				}
				it.Close()
			}
		})
	}
	b.Run("scan all", func(b *testing.B) {
		for b.Loop() {
			it := p.ScanAll()
			for it.Next() {
			}
			it.Close()
		}
		b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N)/n, "ns/entry")
	})
	v.Close()
	require.NoError(b, s.Destroy())
}
