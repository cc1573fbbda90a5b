package main

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"time"

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
	Query      string  `json:"query"`
	SourceRows int64   `json:"source_rows"`
	Seconds    float64 `json:"seconds"`
	StateRows  int64   `json:"state_rows"`
	StateBytes int64   `json:"state_bytes"`
}

// Run is `streamdb bench bounded`.
func (c *benchBounded) Run(a *app) (err error) {
	if c.Rows <= 0 || c.Step <= 0 {
		return usageError{fmt.Errorf("--rows and --step must be positive")}
	}
	names := strings.Split(c.Query, ",")
	for _, n := range names {
		if n != "all" && !slices.ContainsFunc(boundedQueries, func(q boundedQuery) bool { return q.name == n }) {
			return usageError{fmt.Errorf("unknown query %q", n)}
		}
	}
	srv, done, err := c.open(a)
	if err != nil {
		return err
	}
	defer func() {
		if derr := done(); err == nil {
			err = derr
		}
	}()
	d, err := listen(srv)
	if err != nil {
		return err
	}
	conn, err := d.connect(a.ctx)
	if err != nil {
		return err
	}
	source := fmt.Sprintf(`CREATE SOURCE ev (id bigint, k int, v int, t timestamp, WATERMARK FOR t AS t - INTERVAL '1 second') WITH (connector = 'datagen', datagen.rows = '%d',
		datagen.rows.per.second = '0', datagen.split.num = '2', fields.id.kind = 'sequence', fields.k.max = '999', fields.v.max = '1000000', fields.t.kind = 'sequence')`, c.Rows)
	if err := runAll(a.ctx, conn, source); err != nil {
		return err
	}
	if err := conn.Close(a.ctx); err != nil {
		return err
	}
	for _, q := range boundedQueries {
		if c.Query != "all" && !slices.Contains(names, q.name) {
			continue
		}
		began := time.Now()
		var werr error
		watch := func(rows int64, m state.Metrics) {
			r := boundedResult{Query: q.name, SourceRows: rows, Seconds: time.Since(began).Seconds(), StateRows: m.LiveEntries, StateBytes: exec.StateBytes(m)}
			if err := c.print(a, r); werr == nil {
				werr = err
			}
		}
		if _, err := srv.RunBench(a.ctx, server.BenchOptions{SQL: q.sql, Parallelism: c.Parallelism, StateTTL: q.ttl, Watch: watch, Every: c.Step}); err != nil {
			return fmt.Errorf("%s: %w", q.name, err)
		}
		if werr != nil {
			return werr
		}
	}
	return nil
}

func (c *benchBounded) print(a *app, r boundedResult) error {
	if c.JSON {
		return json.NewEncoder(a.stdout).Encode(r)
	}
	_, err := fmt.Fprintf(a.stdout, "%-8s %11d rows read in %6.1f s: state %9d rows, %11d bytes\n", r.Query, r.SourceRows, r.Seconds, r.StateRows, r.StateBytes)
	return err
}
