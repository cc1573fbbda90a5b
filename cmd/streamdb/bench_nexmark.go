package main

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/jackc/pgx/v5"

	"github.com/streamdb/streamdb/bench/limit"
	"github.com/streamdb/streamdb/bench/nexmark"
	"github.com/streamdb/streamdb/server"
)

type benchNexmark struct {
	benchFlags
	Query       string `help:"q0 … q22, tumble, skew, total, uniform, several separated by commas, or all." default:"q0"`
	Events      int64  `help:"Events of all kinds; 46 of 50 are bids." default:"10000000"`
	Parallelism []int  `help:"Subtasks per fragment; 0: the number of cores. Several run in turn and are compared with the first: 1,2." default:"0"`
	Rounds      int    `help:"Rounds; the median counts." default:"3"`
	Rate        int64  `help:"Events per second of wall and event time; 0: as fast as possible, with 10000 a second of event time." default:"0"`
	Splits      int    `help:"Splits of each source: rows are out of order by up to 2000 events per split, none with 1." default:"4"`
	Materialize bool   `help:"Keep the result as a materialized view does; without it the result is counted and thrown away."`
	NoLimit     bool   `help:"Leave out the hand-written loop."`
}

// nexmarkResult is the JSON form of a result. Events are those of all kinds, also for queries that read one of them.
type nexmarkResult struct {
	Query string `json:"query"`
	figures
	SourceRows   int64 `json:"source_rows"`
	OutputRows   int64 `json:"output_rows"`
	Parallelism  int   `json:"parallelism"`
	Materialized bool  `json:"materialized"`
	Checkpoints  int   `json:"checkpoints"`
	StateBytes   int64 `json:"state_bytes"`
	// Speedup is the rate compared to that of the first parallelism, CPUSpeedup the rate per second of processor time.
	Speedup    float64 `json:"speedup,omitempty"`
	CPUSpeedup float64 `json:"cpu_speedup,omitempty"`
}

// loopName is how the yardstick of bench/limit is called.
const loopName = "a hand-written loop"

// Run is `streamdb bench nexmark`.
func (c *benchNexmark) Run(a *app) error {
	names := strings.Split(c.Query, ",")
	if c.Query == "all" {
		names = nexmark.Names()
	}
	if c.Events <= 0 || c.Rounds <= 0 || len(c.Parallelism) == 0 {
		return usageError{errors.New("--events and --rounds must be positive")}
	}
	for _, n := range names {
		results, err := c.measure(a, n)
		if err != nil {
			return fmt.Errorf("%s: %w", n, err)
		}
		for _, r := range results {
			if err := c.show(a, r); err != nil {
				return err
			}
		}
	}
	return nil
}

// query is one measured run of a query over bounded sources of so many events.
func (m *meter) query(ctx context.Context, srv *server.Server, o server.BenchOptions, events int64) (b server.BenchResult, s sample, err error) {
	o.Measuring = func() (func() error, error) {
		return func() (err error) {
			s, err = m.stop(events)
			return err
		}, m.start()
	}
	b, err = srv.RunBench(ctx, o)
	return b, s, errors.Join(err, m.prof.stop())
}

// measure runs the query and the hand-written loop in turn, so that both meet the same machine.
func (c *benchNexmark) measure(a *app, name string) (results []*nexmarkResult, err error) {
	query, err := nexmark.Query(name)
	if err != nil {
		return nil, usageError{err}
	}
	loop, hasLoop := limit.Loops()[name]
	hasLoop = hasLoop && !c.NoLimit && c.Rate == 0
	for _, p := range c.Parallelism {
		if p == 0 {
			p = a.cores
		}
		results = append(results, &nexmarkResult{Query: name, Parallelism: p, Materialized: c.Materialize})
	}
	samples := make([][]sample, len(results))
	var loops []sample
	err = c.withServer(a, func(srv *server.Server, _ *dialer, conn *pgx.Conn) error {
		if err := runAll(a.ctx, conn, nexmark.Sources(c.Events, c.Rate, c.Splits)...); err != nil {
			return err
		}
		m := c.meter()
		for range c.Rounds {
			for i, r := range results {
				b, s, err := m.query(a.ctx, srv, server.BenchOptions{SQL: query, Parallelism: r.Parallelism, Materialize: c.Materialize}, c.Events)
				if err != nil {
					return err
				}
				r.SourceRows, r.OutputRows, r.StateBytes, r.Checkpoints = b.SourceRows, b.OutputRows, b.StateBytes, r.Checkpoints+b.Checkpoints
				samples[i] = append(samples[i], s)
			}
			if hasLoop {
				s, err := (&meter{}).span(func() (int64, error) { return loop.Run(c.Events).Events, nil })
				if err != nil {
					return err
				}
				loops = append(loops, s)
			}
		}
		return nil
	})
	if err != nil {
		return nil, err
	}
	for i, r := range results {
		r.figures = figuresOf(samples[i], loopName, loops)
		if i > 0 {
			wall, cpu := ratiosOf(samples[i], samples[0])
			r.Speedup, r.CPUSpeedup = median(wall), median(cpu)
		}
	}
	return results, nil
}

func (c *benchNexmark) show(a *app, r *nexmarkResult) error {
	name, text := r.Query, fmt.Sprintf("%d checkpoints, %d rows out", r.Checkpoints, r.OutputRows)
	if len(c.Parallelism) > 1 {
		name += fmt.Sprintf("/parallelism=%d", r.Parallelism)
	}
	if r.Speedup > 0 {
		text += fmt.Sprintf("; %.2f times the events/s of parallelism %d, %.2f times the events/CPU-s", r.Speedup, c.Parallelism[0], r.CPUSpeedup)
	}
	if c.GoBench {
		name = "nexmark/" + name
	}
	return c.print(a, name, r, &r.figures, text)
}
