package main

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/jackc/pgx/v5"
)

// callFunc is one call of a client, which counts as that many events.
type callFunc func(ctx context.Context, conn *pgx.Conn, client int, rng *rand.Rand) (events int64, err error)

// clientFlags are common to benchmarks of clients.
type clientFlags struct {
	Connections int           `help:"Connections at the same time, each of which waits for its answer." default:"8"`
	Duration    time.Duration `help:"How long a round takes." default:"5s"`
	Rounds      int           `help:"Rounds; the median counts." default:"3"`
	Postgres    string        `help:"A PostgreSQL server that has the same rows and gets the same from the same clients, in turn. Its schema streamdb_bench is dropped." placeholder:"URL"`
}

// clientsResult is what clients have met.
type clientsResult struct {
	Connections int `json:"connections"`
	figures
	latencies
	Postgres *latencies `json:"postgres,omitempty"`
}

func (r *clientsResult) String() string {
	if r.Postgres == nil {
		return r.latencies.String()
	}
	return r.latencies.String() + ", by PostgreSQL " + r.Postgres.String()
}

// check refuses what measures nothing.
func (c *clientFlags) check() error {
	if c.Connections <= 0 || c.Duration <= 0 || c.Rounds <= 0 {
		return usageError{errors.New("--connections, --duration and --rounds must be positive")}
	}
	return nil
}

// compare measures clients in rounds, those of the rival, when there is one, in turn with our own. around does what has to be done before and after a round.
func (c *clientFlags) compare(ctx context.Context, m *meter, d *dialer, own callFunc, pg *rival, other callFunc, around func(rival bool, round func() error) error) (r clientsResult, err error) {
	var samples, others []sample
	var lats, otherLats []latencies
	name := ""
	for range c.Rounds {
		if pg != nil {
			name = pg.name
			if err := around(true, func() error {
				s, lat, err := c.run(ctx, &meter{}, pg.connect, other, pg)
				others, otherLats = append(others, s), append(otherLats, lat)
				return err
			}); err != nil {
				return r, fmt.Errorf("%s: %w", pg.name, err)
			}
		}
		if err := around(false, func() error {
			s, lat, err := c.run(ctx, m, d.connect, own, nil)
			s.extra = lat.metrics("")
			samples, lats = append(samples, s), append(lats, lat)
			return err
		}); err != nil {
			return r, err
		}
	}
	r.Connections, r.figures, r.latencies = c.Connections, figuresOf(samples, name, others), medianLatencies(lats)
	if pg != nil {
		l := medianLatencies(otherLats)
		r.Postgres = &l
	}
	return r, nil
}

// run measures one round. pg is who serves the connections; nil: this process.
func (c *clientFlags) run(ctx context.Context, m *meter, connect func(ctx context.Context) (*pgx.Conn, error), call callFunc, pg *rival) (s sample, lat latencies, err error) {
	conns := make([]*pgx.Conn, c.Connections)
	for i := range conns {
		if conns[i], err = connect(ctx); err != nil {
			return s, lat, err
		}
		defer conns[i].Close(context.WithoutCancel(ctx))                                       //nolint:errcheck // nothing is lost with it
		if _, err := call(ctx, conns[i], i, rand.New(rand.NewPCG(uint64(i), 0))); err != nil { // it prepares the statement
			return s, lat, err
		}
	}
	times, events, errs := make([][]time.Duration, len(conns)), make([]int64, len(conns)), make([]error, len(conns))
	s, err = pg.span(m, conns, func() (total int64, err error) {
		end := time.Now().Add(c.Duration)
		var wg sync.WaitGroup
		for i, conn := range conns {
			wg.Go(func() {
				rng := rand.New(rand.NewPCG(uint64(i), 1))
				for began := time.Now(); began.Before(end); {
					n, err := call(ctx, conn, i, rng)
					if err != nil {
						errs[i] = err
						return
					}
					now := time.Now()
					times[i], events[i] = append(times[i], now.Sub(began)), events[i]+n
					began = now
				}
			})
		}
		wg.Wait()
		for _, n := range events {
			total += n
		}
		return total, errors.Join(errs...)
	})
	return s, latenciesOf(slices.Concat(times...)), err
}

// rival is a PostgreSQL server that does the same for comparison, in a schema of its own.
type rival struct {
	url  string
	name string
	conn *pgx.Conn
}

// rivalSchema is made for a benchmark and dropped after it.
const rivalSchema = "streamdb_bench"

// openRival prepares a server for comparison; nil without a URL.
func openRival(ctx context.Context, url string) (_ *rival, err error) {
	if url == "" {
		return nil, nil //nolint:nilnil // nothing is compared
	}
	p := &rival{url: url}
	if p.conn, err = p.connect(ctx); err != nil {
		return nil, err
	}
	var version, fsync string
	if err := p.conn.QueryRow(ctx, "SELECT current_setting('server_version'), current_setting('fsync')").Scan(&version, &fsync); err != nil {
		return nil, errors.Join(err, p.conn.Close(ctx))
	}
	p.name = fmt.Sprintf("PostgreSQL %s (fsync %s)", version, fsync)
	return p, runAll(ctx, p.conn, "DROP SCHEMA IF EXISTS "+rivalSchema+" CASCADE", "CREATE SCHEMA "+rivalSchema)
}

func (p *rival) connect(ctx context.Context) (*pgx.Conn, error) {
	cfg, err := pgx.ParseConfig(p.url)
	if err != nil {
		return nil, usageError{err}
	}
	cfg.RuntimeParams["search_path"] = rivalSchema
	return pgx.ConnectConfig(ctx, cfg)
}

// close drops what was made.
func (p *rival) close(ctx context.Context) error {
	if p == nil {
		return nil
	}
	ctx = context.WithoutCancel(ctx)
	return errors.Join(runAll(ctx, p.conn, "DROP SCHEMA IF EXISTS "+rivalSchema+" CASCADE"), p.conn.Close(ctx))
}

// span measures run, the processor time of the processes that serve the connections included. Without a rival there are none.
func (p *rival) span(m *meter, conns []*pgx.Conn, run func() (events int64, err error)) (sample, error) {
	if p == nil {
		return m.span(run)
	}
	before := p.used(conns)
	s, err := m.span(run)
	if now := p.used(conns); now > 0 {
		s.cpu += now - before
	} else {
		s.cpu = 0 // only a part of it is known
	}
	return s, err
}

// kernelTick is the unit of processor times in /proc, which Linux fixes for programs.
const kernelTick = 10 * time.Millisecond

// used is the processor time of the processes that serve the connections, 0 when they are on another machine.
func (p *rival) used(conns []*pgx.Conn) (sum time.Duration) {
	for _, c := range conns {
		b, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", c.PgConn().PID()))
		if err != nil {
			return 0
		}
		// pid (name) state … : the 14th and 15th fields are the time in the program and in the kernel.
		name, rest, ok := strings.Cut(string(b), ") ")
		if fields := strings.Fields(rest); ok && strings.Contains(name, "(postgres") && len(fields) > 12 {
			for _, f := range fields[11:13] {
				n, err := strconv.ParseInt(f, 10, 64)
				if err != nil {
					return 0
				}
				sum += time.Duration(n) * kernelTick
			}
			continue
		}
		return 0
	}
	return sum
}
