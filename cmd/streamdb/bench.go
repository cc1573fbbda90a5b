package main

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"runtime"
	"runtime/pprof"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/rs/zerolog"

	"github.com/streamdb/streamdb/checkpoint"
	"github.com/streamdb/streamdb/connector/all"
	"github.com/streamdb/streamdb/internal/failpoint"
	"github.com/streamdb/streamdb/server"
)

type benchCmd struct {
	Nexmark      benchNexmark      `cmd:"" help:"One query of the Nexmark benchmark, generator in process."`
	Lookup       benchLookup       `cmd:"" help:"Point lookups on a view over the PostgreSQL protocol."`
	Freshness    benchFreshness    `cmd:"" help:"Time from INSERT until the row is visible in a view."`
	Bounded      benchBounded      `cmd:"" help:"State of windows, sessions and joins in time over a long stream."`
	Memory       benchMemory       `cmd:"" help:"Memory of an aggregation over many groups."`
	Copy         benchCopy         `cmd:"" help:"One COPY into a table."`
	Checkpoint   benchCheckpoint   `cmd:"" help:"Duration and size of checkpoints, and of restoring them."`
	Backpressure benchBackpressure `cmd:"" help:"A checkpoint of a view that cannot keep up."`
}

// benchFlags are common to all benchmarks.
type benchFlags struct {
	Memory             byteSize      `help:"Memory for state and caches." default:"2GiB"`
	CheckpointInterval time.Duration `help:"Time between checkpoints; 0: none." default:"1s"`
	DataDir            string        `help:"Where to keep data during the run. Default: a temporary directory."`
	JSON               bool          `name:"json" help:"Print one JSON object per result."`
	Profile            string        `help:"Directory for cpu.pprof, heap.pprof and mutex.pprof of the measured rounds." type:"path"`
	CheckpointDir      string        `hidden:""`
	failpoints         *failpoint.Set
	Set                []string `help:"Server settings: name=value." sep:"none"`
}

// open starts a server with checkpoints into files.
func (f *benchFlags) open(a *app) (srv *server.Server, done func() error, err error) {
	dir, remove := f.DataDir, func() error { return nil }
	if dir == "" {
		if dir, err = os.MkdirTemp("", "streamdb-bench-"); err != nil {
			return nil, nil, err
		}
		remove = func() error { return os.RemoveAll(dir) }
	}
	limitHeap(int64(f.Memory))
	settings := map[string]string{"execution.checkpointing.interval": f.CheckpointInterval.String()}
	for _, kv := range f.Set {
		k, v, ok := strings.Cut(kv, "=")
		if !ok {
			return nil, nil, usageError{fmt.Errorf("--set %s: name=value is wanted", kv)}
		}
		settings[k] = v
	}
	srv, err = server.Open(a.ctx, server.Config{
		DataDir: dir, CheckpointDir: f.CheckpointDir, Failpoints: f.failpoints, Memory: int64(f.Memory), Settings: settings, Logger: a.log.Level(max(a.log.GetLevel(), zerolog.WarnLevel)), Connectors: all.Builtin(),
	})
	if err != nil {
		return nil, nil, errors.Join(err, remove())
	}
	return srv, func() error { return errors.Join(srv.Abort(), remove()) }, nil
}

// dialer connects clients of a benchmark: over TCP, as clients do.
type dialer struct {
	listener net.Listener
	served   chan error
}

func listen(srv *server.Server) (*dialer, error) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return nil, err
	}
	d := &dialer{listener: l, served: make(chan error, 1)}
	go func() { d.served <- srv.Serve(l) }()
	return d, nil
}

func (d *dialer) connect(ctx context.Context) (*pgx.Conn, error) {
	return pgx.Connect(ctx, "postgres://streamdb@"+d.listener.Addr().String()+"/streamdb?sslmode=disable")
}

// newestCheckpoint is the newest of the selected ones in the history.
func newestCheckpoint(srv *server.Server, of func(checkpoint.JobCheckpoint) bool) (checkpoint.JobCheckpoint, error) {
	all := srv.Coordinator().Stats().Checkpoints
	if i := slices.IndexFunc(all, of); i >= 0 {
		return all[i], nil
	}
	return checkpoint.JobCheckpoint{}, errors.New("there is no checkpoint of what is measured")
}

// millis is a duration in milliseconds.
func millis(d time.Duration) float64 { return float64(d.Microseconds()) / 1000 }

// run executes statements one after the other.
func runAll(ctx context.Context, c *pgx.Conn, stmts ...string) error {
	for _, s := range stmts {
		if _, err := c.Exec(ctx, s); err != nil {
			return fmt.Errorf("%s: %w", s, err)
		}
	}
	return nil
}

// profiler writes profiles of what runs between start and stop.
type profiler struct {
	dir string
	cpu *os.File
}

// mutexFraction is the share of contended locks that are recorded while profiling: one in so many.
const mutexFraction = 5

func (p *profiler) start() error {
	if p.dir == "" {
		return nil
	}
	if err := os.MkdirAll(p.dir, 0o755); err != nil {
		return err
	}
	runtime.SetMutexProfileFraction(mutexFraction)
	f, err := os.Create(filepath.Join(p.dir, "cpu.pprof"))
	if err != nil {
		return err
	}
	p.cpu = f
	return pprof.StartCPUProfile(f)
}

func (p *profiler) stop() error {
	if p.cpu == nil {
		return nil
	}
	pprof.StopCPUProfile()
	err := p.cpu.Close()
	p.cpu = nil
	for _, name := range []string{"heap", "allocs", "mutex"} {
		f, ferr := os.Create(filepath.Join(p.dir, name+".pprof"))
		if ferr != nil {
			return errors.Join(err, ferr)
		}
		err = errors.Join(err, pprof.Lookup(name).WriteTo(f, 0), f.Close())
	}
	return err
}

// usage is what the process has used so far.
type usage struct {
	cpu   time.Duration
	bytes uint64 // allocated
	count uint64
}

func usageNow() (usage, error) {
	var r syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &r); err != nil {
		return usage{}, fmt.Errorf("getrusage: %w", err)
	}
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return usage{cpu: time.Duration(r.Utime.Nano() + r.Stime.Nano()), bytes: m.TotalAlloc, count: m.Mallocs}, nil
}

// resetPeak makes peakRSS count from now, where the kernel allows that.
func resetPeak() { _ = os.WriteFile("/proc/self/clear_refs", []byte("5"), 0) } // without it the peak of the whole process is reported

// peakRSS is the largest resident size since resetPeak, in bytes.
func peakRSS() int64 {
	b, err := os.ReadFile("/proc/self/status")
	if err == nil {
		for line := range strings.Lines(string(b)) {
			if v, ok := strings.CutPrefix(line, "VmHWM:"); ok {
				if n, err := strconv.ParseInt(strings.TrimSuffix(strings.TrimSpace(v), " kB"), 10, 64); err == nil {
					return n << 10
				}
			}
		}
	}
	var r syscall.Rusage
	if syscall.Getrusage(syscall.RUSAGE_SELF, &r) != nil {
		return 0
	}
	return r.Maxrss << 10
}

// median of a copy of v, 0 without values.
func median[T float64 | int64 | time.Duration](v []T) T { return percentile(v, 0.5) }

func percentile[T float64 | int64 | time.Duration](v []T, p float64) T {
	if len(v) == 0 {
		return 0
	}
	s := slices.Clone(v)
	slices.Sort(s)
	return s[min(len(s)-1, int(p*float64(len(s))))]
}
