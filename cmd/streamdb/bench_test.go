package main

import (
	"bytes"
	"context"
	"encoding/json"
	"net"
	"os"
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
	return &app{ctx: context.Background(), log: zerolog.Nop(), stdout: &out}, &out
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
				Query:      n, Events: events, Parallelism: 2, Rounds: 1, Materialize: true,
			}
			require.NoError(t, c.Run(a))
			var r nexmarkResult
			require.NoError(t, json.Unmarshal(out.Bytes(), &r))
			require.Positive(t, r.EventsPerSecond)
			require.LessOrEqual(t, r.EventsPerSecond, 1.1*float64(runtime.GOMAXPROCS(0))*r.EventsPerCPUSecond, "no more processor time is used than there is")
			if l, ok := limit.Loops()[n]; ok {
				require.Positive(t, r.LimitPerSecond)
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
	c := &benchNexmark{benchFlags: benchFlags{Memory: benchMemoryForTests, JSON: true}, Query: "q1,q3", Events: 100_000, Parallelism: 2, Rounds: 1, NoLimit: true}
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
	err := (&benchNexmark{benchFlags: benchFlags{Memory: benchMemoryForTests}, Query: "q99", Events: 1, Rounds: 1}).Run(a)
	require.ErrorContains(t, err, "known are q0")
}

func TestBenchOthers(t *testing.T) {
	flags := benchFlags{Memory: benchMemoryForTests, CheckpointInterval: time.Second, JSON: true}
	a, out := testApp(t)
	require.NoError(t, (&benchLookup{benchFlags: flags, Rows: 1000, Connections: 2, Duration: 200 * time.Millisecond}).Run(a))
	require.NoError(t, (&benchFreshness{benchFlags: flags, Inserts: 20}).Run(a))
	require.NoError(t, (&benchMemory{benchFlags: flags, Groups: 10_000}).Run(a))
	dec := json.NewDecoder(out)
	var l lookupResult
	require.NoError(t, dec.Decode(&l))
	require.Positive(t, l.Lookups)
	var f freshnessResult
	require.NoError(t, dec.Decode(&f))
	require.Positive(t, f.P50)
	var m memoryResult
	require.NoError(t, dec.Decode(&m))
	require.Positive(t, m.GroupsPerSecond)
	require.NoError(t, (&benchCopy{benchFlags: flags, Rows: 10_000}).Run(a))
	var c copyResult
	require.NoError(t, json.NewDecoder(out).Decode(&c))
	require.Positive(t, c.RowsPerSecond)
	require.NoError(t, (&benchCheckpoint{benchFlags: flags, State: []byteSize{1 << 20}, Changed: 100, Rounds: 2, Restore: true}).Run(a))
	var cp checkpointResult
	require.NoError(t, json.NewDecoder(out).Decode(&cp))
	require.Positive(t, cp.Duration)
	require.Less(t, cp.UploadRatio, 2.0)
	require.Positive(t, cp.Restore.Store)
	require.NoError(t, (&benchCheckpoint{benchFlags: flags, State: []byteSize{1 << 20}, Rounds: 1, Loss: true, Hot: 0.1, Window: 1500 * time.Millisecond}).Run(a))
	var loss lossResult
	require.NoError(t, json.NewDecoder(out).Decode(&loss))
	require.Positive(t, loss.With)
	require.Positive(t, loss.Without)
	require.Positive(t, loss.Checkpoints)
	require.Greater(t, loss.State, int64(1<<19))
	require.NoError(t, (&benchBackpressure{benchFlags: flags, Pressure: time.Second}).Run(a))
	var bp backpressureResult
	require.NoError(t, json.NewDecoder(out).Decode(&bp))
	require.True(t, bp.Unaligned)
	require.Positive(t, bp.Persisted)
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
