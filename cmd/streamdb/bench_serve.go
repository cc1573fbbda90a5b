package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/streamdb/streamdb/server"
)

// benchTimeout is how long a row may take to become visible before the benchmark gives up.
const benchTimeout = 30 * time.Second

type benchLookup struct {
	benchFlags
	Rows        int           `help:"Rows of the view." default:"1000000"`
	Connections int           `help:"Connections that read at the same time." default:"8"`
	Duration    time.Duration `help:"How long to measure." default:"5s"`
}

type lookupResult struct {
	Rows             int     `json:"rows"`
	Connections      int     `json:"connections"`
	Lookups          int     `json:"lookups"`
	LookupsPerSecond float64 `json:"lookups_per_second"`
	P50              float64 `json:"p50_ms"`
	P99              float64 `json:"p99_ms"`
	PeakRSS          int64   `json:"peak_rss_bytes"`
}

// withServer opens a server with a port and a connection for the benchmark's own statements.
func (f *benchFlags) withServer(a *app, run func(srv *server.Server, d *dialer, conn *pgx.Conn) error) (err error) {
	srv, done, err := f.open(a)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, done()) }()
	d, err := listen(srv)
	if err != nil {
		return err
	}
	conn, err := d.connect(a.ctx)
	if err != nil {
		return err
	}
	defer conn.Close(context.WithoutCancel(a.ctx)) //nolint:errcheck // the server goes away with it
	return run(srv, d, conn)
}

// Run is `streamdb bench lookup`.
func (c *benchLookup) Run(a *app) error {
	return c.withServer(a, func(_ *server.Server, d *dialer, conn *pgx.Conn) error {
		if err := runAll(a.ctx, conn, "CREATE TABLE items (id bigint PRIMARY KEY, price bigint, name text)",
			fmt.Sprintf("INSERT INTO items SELECT i, i * 7, 'item ' || i FROM generate_series(1, %d) i", c.Rows),
			"CREATE MATERIALIZED VIEW totals AS SELECT id, max(price) AS total, max(name) AS name FROM items GROUP BY id", "CHECKPOINT"); err != nil {
			return err
		}
		times := make([][]time.Duration, c.Connections)
		errs := make(chan error, c.Connections)
		ctx, cancel := context.WithTimeout(a.ctx, c.Duration)
		defer cancel()
		prof := profiler{dir: c.Profile}
		if err := prof.start(); err != nil {
			return err
		}
		resetPeak()
		var wg sync.WaitGroup
		for i := range c.Connections {
			wg.Add(1)
			go func() {
				defer wg.Done()
				errs <- c.read(ctx, a.ctx, d, uint64(i), &times[i])
			}()
		}
		wg.Wait()
		close(errs)
		err := prof.stop()
		for e := range errs {
			err = errors.Join(err, e)
		}
		if err != nil {
			return err
		}
		var all []time.Duration
		for _, t := range times {
			all = append(all, t...)
		}
		ms := func(p float64) float64 { return millis(percentile(all, p)) }
		r := lookupResult{
			Rows: c.Rows, Connections: c.Connections, Lookups: len(all), LookupsPerSecond: float64(len(all)) / c.Duration.Seconds(), P50: ms(0.5), P99: ms(0.99),
			PeakRSS: peakRSS(),
		}
		return c.show(a, r, fmt.Sprintf("%.0f lookups/s with %d connections on %d rows: p50 %.3f ms, p99 %.3f ms", r.LookupsPerSecond, r.Connections, r.Rows, r.P50, r.P99))
	})
}

// show prints a result as JSON or as a line.
func (f *benchFlags) show(a *app, r any, line string) error {
	if f.JSON {
		return json.NewEncoder(a.stdout).Encode(r)
	}
	_, err := fmt.Fprintln(a.stdout, line)
	return err
}

// read looks up random keys through one connection until ctx ends.
func (c *benchLookup) read(ctx, outer context.Context, d *dialer, seed uint64, times *[]time.Duration) error {
	conn, err := d.connect(outer)
	if err != nil {
		return err
	}
	defer conn.Close(outer) //nolint:errcheck // the server goes away with it
	rnd := rand.New(rand.NewPCG(seed, 1))
	for ctx.Err() == nil {
		id := 1 + rnd.Int64N(int64(c.Rows))
		var total int64
		began := time.Now()
		if err := conn.QueryRow(outer, "SELECT total FROM totals WHERE id = $1", id).Scan(&total); err != nil {
			return err
		}
		*times = append(*times, time.Since(began))
		if total != 7*id {
			return fmt.Errorf("row %d has total %d instead of %d", id, total, 7*id)
		}
	}
	return outer.Err()
}

type benchFreshness struct {
	benchFlags
	Inserts int `help:"Rows inserted, one after the other." default:"1000"`
}

type freshnessResult struct {
	Inserts   int     `json:"inserts"`
	CommitP50 float64 `json:"commit_p50_ms"`
	CommitP99 float64 `json:"commit_p99_ms"`
	P50       float64 `json:"visible_p50_ms"`
	P99       float64 `json:"visible_p99_ms"`
}

// Run is `streamdb bench freshness`: one session inserts, another one reads the view until it sees the row.
func (c *benchFreshness) Run(a *app) error {
	return c.withServer(a, func(_ *server.Server, d *dialer, conn *pgx.Conn) error {
		if err := runAll(a.ctx, conn, "CREATE TABLE events (id bigint PRIMARY KEY, kind bigint, amount bigint)",
			"CREATE MATERIALIZED VIEW by_kind AS SELECT kind, count(*) AS n, sum(amount) AS total FROM events GROUP BY kind"); err != nil {
			return err
		}
		reader, err := d.connect(a.ctx)
		if err != nil {
			return err
		}
		defer reader.Close(a.ctx) //nolint:errcheck // the server goes away with it
		prof := profiler{dir: c.Profile}
		if err := prof.start(); err != nil {
			return err
		}
		const kinds = 10
		var commits, visible []time.Duration
		for i := range c.Inserts {
			kind := i % kinds
			began := time.Now()
			if _, err := conn.Exec(a.ctx, "INSERT INTO events VALUES ($1, $2, $3)", i, kind, 5); err != nil {
				return err
			}
			commits = append(commits, time.Since(began))
			for want, n := int64(i/kinds+1), int64(0); n < want; {
				err := reader.QueryRow(a.ctx, "SELECT n FROM by_kind WHERE kind = $1", kind).Scan(&n)
				if err != nil && !errors.Is(err, pgx.ErrNoRows) {
					return err
				}
				if time.Since(began) > benchTimeout {
					return fmt.Errorf("row %d is not visible after %v", i, benchTimeout)
				}
			}
			visible = append(visible, time.Since(began))
		}
		if err := prof.stop(); err != nil {
			return err
		}
		ms := func(v []time.Duration, p float64) float64 { return millis(percentile(v, p)) }
		r := freshnessResult{Inserts: c.Inserts, CommitP50: ms(commits, 0.5), CommitP99: ms(commits, 0.99), P50: ms(visible, 0.5), P99: ms(visible, 0.99)}
		return c.show(a, r, fmt.Sprintf("INSERT: p50 %.2f ms, p99 %.2f ms; INSERT until visible in the view: p50 %.2f ms, p99 %.2f ms", r.CommitP50, r.CommitP99, r.P50, r.P99))
	})
}

type benchMemory struct {
	benchFlags
	Groups int64 `help:"Distinct groups." default:"10000000"`
}

type memoryResult struct {
	Groups          int64   `json:"groups"`
	Memory          int64   `json:"memory_bytes"`
	PeakRSS         int64   `json:"peak_rss_bytes"`
	StateBytes      int64   `json:"state_bytes"`
	Seconds         float64 `json:"seconds"`
	GroupsPerSecond float64 `json:"groups_per_second"`
}

// Run is `streamdb bench memory`.
func (c *benchMemory) Run(a *app) error {
	return c.withServer(a, func(srv *server.Server, _ *dialer, conn *pgx.Conn) error {
		if err := runAll(a.ctx, conn, fmt.Sprintf("CREATE SOURCE keys (id bigint) WITH (connector = 'datagen', datagen.rows = '%d', datagen.rows.per.second = '0', "+
			"fields.id.kind = 'sequence', fields.id.start = '1', fields.id.end = '%d')", c.Groups, c.Groups)); err != nil {
			return err
		}
		prof := profiler{dir: c.Profile}
		if err := prof.start(); err != nil {
			return err
		}
		resetPeak()
		b, err := srv.RunBench(a.ctx, server.BenchOptions{SQL: "SELECT id, count(*) AS n, sum(id) AS total FROM keys GROUP BY id"})
		if err := errors.Join(err, prof.stop()); err != nil {
			return err
		}
		r := memoryResult{
			Groups: c.Groups, Memory: int64(c.benchFlags.Memory), PeakRSS: peakRSS(), StateBytes: b.StateBytes, Seconds: b.Elapsed.Seconds(),
			GroupsPerSecond: float64(b.SourceRows) / b.Elapsed.Seconds(),
		}
		return c.show(a, r, fmt.Sprintf("%d groups under --memory %d MiB: peak %d MiB resident, %d MiB of state, %.0f groups/s",
			r.Groups, r.Memory>>20, r.PeakRSS>>20, r.StateBytes>>20, r.GroupsPerSecond))
	})
}
