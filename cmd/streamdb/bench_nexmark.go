package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"runtime"
	"strings"
	"time"

	"github.com/streamdb/streamdb/bench/limit"
	"github.com/streamdb/streamdb/bench/nexmark"
	"github.com/streamdb/streamdb/server"
)

type benchNexmark struct {
	benchFlags
	Query       string `help:"q0 … q22, tumble, skew, total, uniform, several separated by commas, or all." default:"q0"`
	Events      int64  `help:"Events of all kinds; 46 of 50 are bids." default:"10000000"`
	Parallelism int    `help:"Subtasks per fragment; 0: the number of cores." default:"0"`
	Rounds      int    `help:"Rounds; the median counts." default:"3"`
	Materialize bool   `help:"Keep the result as a materialized view does; without it the result is counted and thrown away."`
	NoLimit     bool   `help:"Leave out the hand-written loop."`
}

// nexmarkResult is the JSON form of a result. Events are those of all kinds, also for queries that read one of them.
type nexmarkResult struct {
	Query               string  `json:"query"`
	Events              int64   `json:"events"`
	SourceRows          int64   `json:"source_rows"`
	OutputRows          int64   `json:"output_rows"`
	Parallelism         int     `json:"parallelism"`
	Materialized        bool    `json:"materialized"`
	Checkpoints         int     `json:"checkpoints"`
	Rounds              int     `json:"rounds"`
	Seconds             float64 `json:"seconds"`
	EventsPerSecond     float64 `json:"events_per_second"`
	EventsPerCPUSecond  float64 `json:"events_per_cpu_second"`
	LimitPerSecond      float64 `json:"limit_events_per_second,omitempty"`
	LimitPerCPUSecond   float64 `json:"limit_events_per_cpu_second,omitempty"`
	Ratio               float64 `json:"ratio,omitempty"`     // of wall time: all cores against the loop's one
	CPURatio            float64 `json:"cpu_ratio,omitempty"` // of processor time
	PeakRSS             int64   `json:"peak_rss_bytes"`
	AllocatedPerEvent   float64 `json:"bytes_allocated_per_event"`
	AllocationsPerEvent float64 `json:"allocations_per_event"`
	StateBytes          int64   `json:"state_bytes"`
}

// Run is `streamdb bench nexmark`.
func (c *benchNexmark) Run(a *app) error {
	names := strings.Split(c.Query, ",")
	if c.Query == "all" {
		names = nexmark.Names()
	}
	if c.Events <= 0 || c.Rounds <= 0 {
		return usageError{errors.New("--events and --rounds must be positive")}
	}
	for _, n := range names {
		r, err := c.measure(a, n)
		if err != nil {
			return fmt.Errorf("%s: %w", n, err)
		}
		if err := c.print(a, r); err != nil {
			return err
		}
	}
	return nil
}

// measure runs the query and the hand-written loop in turn, so that both meet the same machine.
func (c *benchNexmark) measure(a *app, name string) (res *nexmarkResult, err error) {
	query, err := nexmark.Query(name)
	if err != nil {
		return nil, usageError{err}
	}
	srv, done, err := c.open(a)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, done()) }()
	d, err := listen(srv)
	if err != nil {
		return nil, err
	}
	conn, err := d.connect(a.ctx)
	if err != nil {
		return nil, err
	}
	if err := runAll(a.ctx, conn, nexmark.Sources(c.Events, 0)...); err != nil {
		return nil, err
	}
	if err := conn.Close(a.ctx); err != nil {
		return nil, err
	}
	loop, hasLoop := limit.Loops()[name]
	hasLoop = hasLoop && !c.NoLimit
	par := c.Parallelism
	if par == 0 {
		par = runtime.GOMAXPROCS(0)
	}
	r := &nexmarkResult{Query: name, Events: c.Events, Parallelism: par, Materialized: c.Materialize, Rounds: c.Rounds}
	var perSecond, perCPU, limitSecond, limitCPU, seconds []float64
	prof := profiler{dir: c.Profile}
	for range c.Rounds {
		runtime.GC()
		resetPeak()
		var before, after usage
		b, err := srv.RunBench(a.ctx, server.BenchOptions{SQL: query, Parallelism: par, Materialize: c.Materialize, Measuring: func() (func() error, error) {
			if err := prof.start(); err != nil {
				return nil, err
			}
			var err error
			before, err = usageNow()
			return func() (err error) {
				if after, err = usageNow(); err != nil {
					return err
				}
				return prof.stop()
			}, err
		}})
		if err != nil {
			return nil, errors.Join(err, prof.stop())
		}
		r.PeakRSS = max(r.PeakRSS, peakRSS())
		r.SourceRows, r.OutputRows, r.StateBytes, r.Checkpoints = b.SourceRows, b.OutputRows, b.StateBytes, r.Checkpoints+b.Checkpoints
		r.AllocatedPerEvent = float64(after.bytes-before.bytes) / float64(c.Events)
		r.AllocationsPerEvent = float64(after.count-before.count) / float64(c.Events)
		seconds = append(seconds, b.Elapsed.Seconds())
		perSecond = append(perSecond, float64(c.Events)/b.Elapsed.Seconds())
		perCPU = append(perCPU, float64(c.Events)/(after.cpu-before.cpu).Seconds())
		if !hasLoop {
			continue
		}
		runtime.GC()
		if before, err = usageNow(); err != nil {
			return nil, err
		}
		began := time.Now()
		loop.Run(c.Events)
		took := time.Since(began)
		if after, err = usageNow(); err != nil {
			return nil, err
		}
		limitSecond = append(limitSecond, float64(c.Events)/took.Seconds())
		limitCPU = append(limitCPU, float64(c.Events)/(after.cpu-before.cpu).Seconds())
	}
	r.Seconds, r.EventsPerSecond, r.EventsPerCPUSecond = median(seconds), median(perSecond), median(perCPU)
	if hasLoop {
		r.LimitPerSecond, r.LimitPerCPUSecond = median(limitSecond), median(limitCPU)
		r.Ratio, r.CPURatio = r.EventsPerSecond/r.LimitPerSecond, r.EventsPerCPUSecond/r.LimitPerCPUSecond
	}
	return r, nil
}

func (c *benchNexmark) print(a *app, r *nexmarkResult) error {
	if c.JSON {
		return json.NewEncoder(a.stdout).Encode(r)
	}
	line := fmt.Sprintf("%-6s %11.0f events/s %11.0f events/CPU-s %7.1f B/event %6.3f allocations/event  peak %5d MiB  %d checkpoints, %d rows out",
		r.Query, r.EventsPerSecond, r.EventsPerCPUSecond, r.AllocatedPerEvent, r.AllocationsPerEvent, r.PeakRSS>>20, r.Checkpoints, r.OutputRows)
	if r.LimitPerSecond > 0 {
		line += fmt.Sprintf("\n       %11.0f events/s %11.0f events/CPU-s by a hand-written loop: ratio %.2f, of CPU time %.2f", r.LimitPerSecond, r.LimitPerCPUSecond, r.Ratio, r.CPURatio)
	}
	_, err := fmt.Fprintln(a.stdout, line)
	return err
}
