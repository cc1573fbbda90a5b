package main

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/streamdb/streamdb/exec"
	"github.com/streamdb/streamdb/server"
	"github.com/streamdb/streamdb/state"
)

type benchBounded struct {
	benchFlags
	Query       string `help:"tumble, hop, session, interval, ttl, several separated by commas, or all." default:"all"`
	Rows        int64  `help:"Rows of the source; 1000 are a second of event time, of 1000 keys." default:"100000000"`
	Step        int64  `help:"Rows between two looks at the state." default:"10000000"`
	Parallelism int    `help:"Subtasks per fragment; 0: the number of cores." default:"0"`
}

// boundedQuery is a query whose state must not grow with the stream.
type boundedQuery struct {
	name, sql string
	ttl       time.Duration
}

// boundedTTL is the state_ttl of the query over keys that are new all the time: its groups are those of so much wall time.
const boundedTTL = time.Second

var boundedQueries = []boundedQuery{
	{name: "tumble", sql: `SELECT k, window_start, count(*), sum(v) FROM tumble(ev, t, INTERVAL '10 seconds') GROUP BY k, window_start, window_end EMIT ON WINDOW CLOSE`},
	{name: "hop", sql: `SELECT k, window_start, count(*), max(v) FROM hop(ev, t, INTERVAL '2 seconds', INTERVAL '10 seconds') GROUP BY k, window_start, window_end EMIT ON WINDOW CLOSE`},
	{name: "session", sql: `SELECT k, window_start, window_end, count(*) FROM session(ev, k, t, INTERVAL '2 seconds') GROUP BY k, window_start, window_end EMIT ON WINDOW CLOSE`},
	{name: "interval", sql: `SELECT a.id, b.id FROM ev a JOIN ev b ON a.k = b.k AND b.t >= a.t AND b.t < a.t + INTERVAL '1 second'`},
	{name: "ttl", sql: `SELECT id / 10, count(*), sum(v) FROM ev GROUP BY id / 10`, ttl: boundedTTL},
}

// boundedResult is a look at the state of a query.
type boundedResult struct {
	Query string `json:"query"`
	figures
	SourceRows int64 `json:"source_rows"` // since the start; the figures are of those since the last look
	StateRows  int64 `json:"state_rows"`
	StateBytes int64 `json:"state_bytes"`
}

// Run is `streamdb bench bounded`.
func (c *benchBounded) Run(a *app) error {
	if c.Rows <= 0 || c.Step <= 0 {
		return usageError{fmt.Errorf("--rows and --step must be positive")}
	}
	names := strings.Split(c.Query, ",")
	for _, n := range names {
		if n != "all" && !slices.ContainsFunc(boundedQueries, func(q boundedQuery) bool { return q.name == n }) {
			return usageError{fmt.Errorf("unknown query %q", n)}
		}
	}
	return c.withServer(a, func(srv *server.Server, _ *dialer, conn *pgx.Conn) error { return c.measure(a, srv, conn, names) })
}

func (c *benchBounded) measure(a *app, srv *server.Server, conn *pgx.Conn, names []string) error {
	source := fmt.Sprintf(`CREATE SOURCE ev (id bigint, k int, v int, t timestamp, WATERMARK FOR t AS t - INTERVAL '1 second') WITH (connector = 'datagen', datagen.rows = '%d',
		datagen.rows.per.second = '0', datagen.split.num = '2', fields.id.kind = 'sequence', fields.k.max = '999', fields.v.max = '1000000', fields.t.kind = 'sequence')`, c.Rows)
	if err := runAll(a.ctx, conn, source); err != nil {
		return err
	}
	m := c.meter()
	for _, q := range boundedQueries {
		if c.Query != "all" && !slices.Contains(names, q.name) {
			continue
		}
		var seen int64
		watch := func(rows int64, kept state.Metrics) error {
			r := boundedResult{Query: q.name, SourceRows: rows, StateRows: kept.LiveEntries, StateBytes: exec.StateBytes(kept)}
			s, err := m.stop(rows - seen)
			if err != nil {
				return err
			}
			seen = rows
			s.extra = []metric{{float64(r.StateRows), "state-rows"}}
			r.figures = figuresOf([]sample{s}, "", nil)
			if err := c.print(a, "bounded/"+q.name, &r, &r.figures, fmt.Sprintf("after %d rows: state %d rows, %d bytes", r.SourceRows, r.StateRows, r.StateBytes)); err != nil {
				return err
			}
			return m.start()
		}
		_, err := srv.RunBench(a.ctx, server.BenchOptions{SQL: q.sql, Parallelism: c.Parallelism, StateTTL: q.ttl, Watch: watch, Every: c.Step, Measuring: func() (func() error, error) { return m.prof.stop, m.start() }})
		if err != nil {
			return fmt.Errorf("%s: %w", q.name, errors.Join(err, m.prof.stop()))
		}
	}
	return nil
}
