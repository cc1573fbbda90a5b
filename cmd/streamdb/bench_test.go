package main

import (
	"bytes"
	"context"
	"encoding/json"
	"net"
	"os"
	"path/filepath"
	"regexp"
	"runtime"
	"testing"
	"time"

	"github.com/rs/zerolog"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/streamdb/streamdb/bench/limit"
	"github.com/streamdb/streamdb/bench/nexmark"
)

func TestMain(m *testing.M) {
	// The block cache of Pebble frees its memory in a goroutine of its own.
	goleak.VerifyTestMain(m, goleak.IgnoreAnyFunction("github.com/cockroachdb/pebble/v2.(*tableCacheContainer).close"))
}

func testApp(t *testing.T) (*app, *bytes.Buffer) {
	t.Helper()
	var out bytes.Buffer
	return &app{ctx: context.Background(), log: zerolog.Nop(), stdout: &out, cores: processCores()}, &out
}

const benchMemoryForTests = 256 << 20

// Every query plans and runs, and those with a hand-written loop find what it finds.
func TestBenchNexmark(t *testing.T) {
	const events = 50_000
	for _, n := range nexmark.Names() {
		t.Run(n, func(t *testing.T) {
			a, out := testApp(t)
			c := &benchNexmark{
				benchFlags: benchFlags{Memory: benchMemoryForTests, CheckpointInterval: time.Second, JSON: true},
				Query:      n, Events: events, Parallelism: []int{2}, Splits: 4, Rounds: 1, Materialize: true,
			}
			require.NoError(t, c.Run(a))
			var r nexmarkResult
			require.NoError(t, json.Unmarshal(out.Bytes(), &r))
			require.Positive(t, r.EventsPerSecond)
			require.LessOrEqual(t, r.EventsPerSecond, 1.1*float64(runtime.GOMAXPROCS(0))*r.EventsPerCPUSecond, "no more processor time is used than there is")
			if l, ok := limit.Loops()[n]; ok {
				require.Positive(t, r.AgainstPerSecond)
				if n != "q12" { // which windows there are depends on the clock
					require.Equal(t, l.Run(events).Rows, r.OutputRows)
				}
			}
		})
	}
}

// Materialized or thrown away, a run reads all that the sources hold.
func TestBenchDiscard(t *testing.T) {
	a, out := testApp(t)
	c := &benchNexmark{benchFlags: benchFlags{Memory: benchMemoryForTests, JSON: true}, Query: "q1,q3", Events: 100_000, Parallelism: []int{2}, Splits: 4, Rounds: 1, NoLimit: true}
	require.NoError(t, c.Run(a))
	dec := json.NewDecoder(out)
	var r nexmarkResult
	require.NoError(t, dec.Decode(&r))
	require.EqualValues(t, 92_000, r.SourceRows)
	require.EqualValues(t, 92_000, r.OutputRows)
	require.NoError(t, dec.Decode(&r))
	require.EqualValues(t, 8_000, r.SourceRows)
}

func TestBenchUnknownQuery(t *testing.T) {
	a, _ := testApp(t)
	err := (&benchNexmark{benchFlags: benchFlags{Memory: benchMemoryForTests}, Query: "q99", Events: 1, Parallelism: []int{1}, Rounds: 1}).Run(a)
	require.ErrorContains(t, err, "known are q0")
}

// What would measure nothing is refused, and leaves nothing behind.
func TestBenchRefusals(t *testing.T) {
	dir := t.TempDir()
	t.Setenv("TMPDIR", dir)
	for _, args := range [][]string{
		{"nexmark", "--rounds", "0"},
		{"ingest", "--rows", "0"},
		{"backfill", "--groups", "0"},
		{"lookup", "--rounds", "0"},
		{"lookup", "--rows", "0"},
		{"lookup", "--ingest=-1"},
		{"insert", "--connections", "0"},
		{"insert", "--duration", "0s"},
		{"copy", "--views", "3"},
		{"freshness", "--inserts", "0"},
		{"freshness", "--rate=-1"},
		{"bounded", "--step", "0"},
		{"checkpoint", "--state", "1MiB", "--rounds", "0"},
		{"checkpoint", "--state", "1MiB", "--changed", "0"},
		{"checkpoint", "--state", "1MiB", "--loss", "--hot", "2"},
		{"copy", "--rows", "1", "--set", "no_value"},
	} {
		require.Equal(t, exitUsage, run(append([]string{"bench"}, args...)), "%v", args)
		left, err := os.ReadDir(dir)
		require.NoError(t, err)
		require.Empty(t, left, "%v", args)
	}
}

// resultsOf runs a benchmark and returns its results.
func resultsOf[R any](t *testing.T, bench interface{ Run(a *app) error }) (out []R) {
	t.Helper()
	a, text := testApp(t)
	require.NoError(t, bench.Run(a))
	for dec := json.NewDecoder(text); dec.More(); {
		var r R
		require.NoError(t, dec.Decode(&r))
		out = append(out, r)
	}
	return out
}

// Every benchmark tells the same figures, and its own.
func TestBenchOthers(t *testing.T) {
	flags := benchFlags{Memory: benchMemoryForTests, CheckpointInterval: time.Second, JSON: true}
	clients := clientFlags{Connections: 2, Duration: 100 * time.Millisecond, Rounds: 2}
	measured := func(t *testing.T, f figures) {
		t.Helper()
		require.Positive(t, f.EventsPerSecond)
		require.Positive(t, f.EventsPerCPUSecond)
		require.Positive(t, f.AllocatedPerEvent)
		require.Positive(t, f.PeakRSS)
	}
	t.Run("ingest", func(t *testing.T) {
		rs := resultsOf[ingestResult](t, &benchIngest{benchFlags: flags, Format: "csv,json,avro", Query: "tumble,all", Rows: 30_000, Files: 3, Parallelism: 2, Rounds: 2})
		require.Len(t, rs, 6)
		for _, r := range rs {
			measured(t, r.figures)
			require.Positive(t, r.CPURatio)
			require.EqualValues(t, 30_000, r.Events)
			require.Positive(t, r.OutputRows)
		}
	})
	t.Run("nexmark rate and parallelism", func(t *testing.T) {
		rs := resultsOf[nexmarkResult](t, &benchNexmark{benchFlags: flags, Query: "q5", Events: 10_000, Rate: 50_000, Splits: 1, Parallelism: []int{1, 2}, Rounds: 1})
		require.Len(t, rs, 2)
		require.Zero(t, rs[0].Speedup)
		require.Positive(t, rs[1].Speedup)
		require.Less(t, rs[1].EventsPerSecond, 100_000.0)
	})
	t.Run("backfill", func(t *testing.T) {
		rs := resultsOf[backfillResult](t, &benchBackfill{benchFlags: flags, Rows: 10_000, Groups: 10, Rounds: 1})
		measured(t, rs[0].figures)
		require.Positive(t, rs[0].Ratio)
	})
	for _, protocol := range []string{"prepared", "simple", "pipelined"} {
		t.Run("lookup "+protocol, func(t *testing.T) {
			r := resultsOf[lookupResult](t, &benchLookup{benchFlags: flags, clientFlags: clients, Rows: 1000, Protocol: protocol, Ingest: 10_000})[0]
			measured(t, r.figures)
			require.Positive(t, r.P50)
			require.Positive(t, r.Ingested)
		})
	}
	t.Run("insert", func(t *testing.T) {
		r := resultsOf[clientsResult](t, &benchInsert{benchFlags: flags, clientFlags: clients})[0]
		measured(t, r.figures)
		require.Positive(t, r.P99)
	})
	t.Run("copy", func(t *testing.T) {
		r := resultsOf[copyResult](t, &benchCopy{benchFlags: flags, Rows: 10_000, Views: 2, Rounds: 2})[0]
		measured(t, r.figures)
		require.LessOrEqual(t, r.CopySeconds, r.Seconds)
	})
	t.Run("freshness", func(t *testing.T) {
		r := resultsOf[freshnessResult](t, &benchFreshness{benchFlags: flags, Inserts: 20, Rate: 10_000})[0]
		measured(t, r.figures)
		require.Positive(t, r.Brought)
		require.LessOrEqual(t, r.Commit.P50, r.Visible.P50)
	})
	t.Run("memory", func(t *testing.T) {
		rs := resultsOf[memoryResult](t, &benchMemory{benchFlags: flags, Groups: 10_000, JoinRows: 5_000})
		require.Len(t, rs, 2)
		for _, r := range rs {
			measured(t, r.figures)
			require.Positive(t, r.HeapPerEvent)
			require.EqualValues(t, 10_000, r.Events)
		}
	})
	t.Run("checkpoint", func(t *testing.T) {
		r := resultsOf[checkpointResult](t, &benchCheckpoint{benchFlags: flags, stateFlags: stateFlags{State: []byteSize{1 << 20}}, Changed: 100, Rounds: 2})[0]
		measured(t, r.figures)
		require.Positive(t, r.Duration)
		require.Less(t, r.UploadRatio, 2.0)
	})
	t.Run("loss", func(t *testing.T) {
		r := resultsOf[lossResult](t, &benchCheckpoint{benchFlags: flags, stateFlags: stateFlags{State: []byteSize{1 << 20}}, Rounds: 1, Loss: true, Hot: 0.1, Window: 1500 * time.Millisecond})[0]
		measured(t, r.figures)
		require.Positive(t, r.AgainstPerSecond)
		require.Positive(t, r.Checkpoints)
		require.Greater(t, r.State, int64(1<<19))
	})
	t.Run("restore", func(t *testing.T) {
		rs := resultsOf[restoreResult](t, &benchRestore{benchFlags: flags, stateFlags: stateFlags{State: []byteSize{1 << 20}}})
		require.Len(t, rs, 2)
		for _, r := range rs {
			measured(t, r.figures)
			require.Greater(t, r.FullScan, r.Seconds)
		}
	})
	t.Run("backpressure", func(t *testing.T) {
		r := resultsOf[backpressureResult](t, &benchBackpressure{benchFlags: flags, Pressure: time.Second})[0]
		require.True(t, r.Unaligned)
		require.Positive(t, r.Persisted)
	})
}

// The other forms of a result: lines for benchstat, one per round, and text; and the profiles.
func TestBenchForms(t *testing.T) {
	a, out := testApp(t)
	dir := t.TempDir()
	c := &benchNexmark{benchFlags: benchFlags{Memory: benchMemoryForTests, GoBench: true, Profile: dir}, Query: "q2", Events: 20_000, Parallelism: []int{1, 2}, Splits: 4, Rounds: 2}
	require.NoError(t, c.Run(a))
	for _, p := range []string{"1", "2"} {
		require.Len(t, regexp.MustCompile(`(?m)^BenchmarkNexmark/q2/parallelism=`+p+` 20000 \S+ ns/op \S+ cpu-ns/op \S+ B/op \S+ allocs/op \d+ peak-RSS-bytes \S+ cpu-ratio$`).FindAllString(out.String(), -1), 2, out.String())
	}
	for _, name := range []string{"cpu.pprof", "heap.pprof", "allocs.pprof", "mutex.pprof", "trace.out"} {
		info, err := os.Stat(filepath.Join(dir, name))
		require.NoError(t, err)
		require.Positive(t, info.Size(), name)
	}
	out.Reset()
	c.GoBench, c.Profile = false, ""
	require.NoError(t, c.Run(a))
	require.Regexp(t, `times the events/s of parallelism 1`, out.String())
	require.Regexp(t, `by a hand-written loop: ratio \d+\.\d+, of CPU time`, out.String())
}

func TestFigures(t *testing.T) {
	own := []sample{{events: 100, elapsed: time.Second, cpu: 2 * time.Second, bytes: 1000, allocs: 10, peak: 5}, {events: 100, elapsed: 2 * time.Second, cpu: time.Second, peak: 7}, {events: 100, elapsed: 4 * time.Second, cpu: 4 * time.Second, peak: 6}}
	other := []sample{{events: 100, elapsed: time.Second / 2, cpu: time.Second}, {events: 100, elapsed: time.Second / 2, cpu: time.Second}, {events: 100, elapsed: time.Second, cpu: time.Second}}
	f := figuresOf(own, "it", other)
	require.Equal(t, 50.0, f.EventsPerSecond)
	require.Equal(t, 50.0, f.EventsPerCPUSecond)
	require.EqualValues(t, 7, f.PeakRSS)
	require.Equal(t, 0.25, f.Ratio, "of rounds side by side")
	require.Equal(t, 0.5, f.CPURatio)
	require.Zero(t, figuresOf(own, "", nil).Ratio)
	require.Equal(t, figures{}, figuresOf(nil, "", nil))
}

// Latencies of several rounds are medians, too.
func TestMedianLatencies(t *testing.T) {
	require.Equal(t, latencies{2, 5, 9}, medianLatencies([]latencies{{1, 5, 10}, {2, 6, 9}, {3, 4, 8}}))
	require.Equal(t, latencies{0.002, 0.003, 0.003}, latenciesOf([]time.Duration{3 * time.Microsecond, time.Microsecond, 2 * time.Microsecond}))
}

// The state of what closes, or leaves, does not grow with the stream.
func TestBenchBounded(t *testing.T) {
	a, out := testApp(t)
	const rows = 200_000
	c := &benchBounded{benchFlags: benchFlags{Memory: benchMemoryForTests, CheckpointInterval: 50 * time.Millisecond, JSON: true}, Query: "tumble,hop,session,interval", Rows: rows, Step: rows / 20, Parallelism: 2}
	require.NoError(t, c.Run(a))
	last := map[string]boundedResult{}
	for dec := json.NewDecoder(out); dec.More(); {
		var r boundedResult
		require.NoError(t, dec.Decode(&r))
		require.Less(t, r.StateRows, int64(rows/2), "%+v", r)
		last[r.Query] = r
	}
	require.Len(t, last, 4)
	for _, r := range last {
		require.GreaterOrEqual(t, r.SourceRows, int64(rows*9/10))
	}
}

// The demo shows rows, stops, and goes on where it was.
func TestDemoOnce(t *testing.T) {
	dir := t.TempDir()
	show := func() string {
		a, out := testApp(t)
		require.NoError(t, (&demoCmd{DataDir: dir, Listen: "127.0.0.1:0", HTTP: "127.0.0.1:0", Memory: benchMemoryForTests, Rate: 5000, Once: time.Second}).Run(a))
		return out.String()
	}
	first := show()
	require.Contains(t, first, "psql -h 127.0.0.1 -p ")
	require.Contains(t, first, "(10 rows)")
	require.Contains(t, show(), "Hottest channels")
}

// A port that is taken is named, or replaced when nobody asked for it.
func TestDemoPort(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	defer l.Close() //nolint:errcheck // the test is over
	_, _, err = listenOr(l.Addr().String(), "")
	require.ErrorContains(t, err, l.Addr().String()+" is already in use")
	other, moved, err := listenOr("", l.Addr().String())
	require.NoError(t, err)
	require.True(t, moved)
	require.NoError(t, other.Close())
}

func TestSltCommand(t *testing.T) {
	a, out := testApp(t)
	file := t.TempDir() + "/a.slt"
	require.NoError(t, os.WriteFile(file, []byte("statement ok\nCREATE TABLE t (a int PRIMARY KEY)\n\nstatement ok\nINSERT INTO t VALUES (1), (2)\n\nquery I rowsort\nSELECT a FROM t\n----\n1\n2\n"), 0o600))
	require.NoError(t, (&sltCmd{Mode: "batch,view-first", Workers: 1, Files: []string{file}}).Run(a), out)
	require.Contains(t, out.String(), "0 failed")
}
