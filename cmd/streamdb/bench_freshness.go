package main

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/streamdb/streamdb/server"
)

// benchTimeout is how long a row may take to become visible before the benchmark gives up.
const benchTimeout = 30 * time.Second

type benchFreshness struct {
	benchFlags
	Inserts int   `help:"Rows inserted, one after the other." default:"1000"`
	Rate    int64 `help:"Rows per second that a source brings into the same view meanwhile." default:"0"`
}

type freshnessResult struct {
	Inserts int       `json:"inserts"`
	figures           // of inserts and what the source brought together
	Rate    int64     `json:"rate"` // wanted
	Brought float64   `json:"source_rows_per_second"`
	Commit  latencies `json:"commit"`  // from INSERT until its answer
	Visible latencies `json:"visible"` // until the row is in the view
}

const (
	// freshnessKinds are the groups that rows are inserted into, in turn; those of the source are others.
	freshnessKinds = 10
	// freshnessReads is how often the view is read without a pause before the reader pauses for benchPoll between two reads.
	freshnessReads = 5
)

// Run is `streamdb bench freshness`: one session inserts, another one reads the view until it sees the row.
func (c *benchFreshness) Run(a *app) error {
	if c.Inserts <= 0 || c.Rate < 0 {
		return usageError{errors.New("--inserts must be positive, --rate not negative")}
	}
	return c.withServer(a, func(srv *server.Server, d *dialer, conn *pgx.Conn) error {
		from := "events"
		if err := runAll(a.ctx, conn, "CREATE TABLE events (id bigint PRIMARY KEY, kind bigint, amount bigint)"); err != nil {
			return err
		}
		if c.Rate > 0 {
			from = fmt.Sprintf("(SELECT kind, amount FROM events UNION ALL SELECT kind + %d, amount FROM more) all_events", freshnessKinds)
			if err := runAll(a.ctx, conn, fmt.Sprintf("CREATE SOURCE more (kind bigint, amount bigint) WITH (connector = 'datagen', datagen.rows.per.second = '%d', fields.kind.max = '9999')", c.Rate)); err != nil {
				return err
			}
		}
		if err := runAll(a.ctx, conn, "CREATE MATERIALIZED VIEW by_kind AS SELECT kind, count(*) AS n, sum(amount) AS total FROM "+from+" GROUP BY kind"); err != nil {
			return err
		}
		reader, err := d.connect(a.ctx)
		if err != nil {
			return err
		}
		defer reader.Close(a.ctx) //nolint:errcheck // the server goes away with it
		var commits, visible []time.Duration
		before := srv.SourceRows("by_kind")
		s, err := c.meter().span(func() (int64, error) {
			for i := range c.Inserts {
				began := time.Now()
				if _, err := conn.Exec(a.ctx, "INSERT INTO events VALUES ($1, $2, $3)", i, i%freshnessKinds, 5); err != nil {
					return 0, err
				}
				commits = append(commits, time.Since(began))
				if err := untilSeen(a.ctx, reader, i%freshnessKinds, int64(i/freshnessKinds+1)); err != nil {
					return 0, err
				}
				visible = append(visible, time.Since(began))
			}
			return int64(c.Inserts) + srv.SourceRows("by_kind") - before, nil
		})
		if err != nil {
			return err
		}
		r := freshnessResult{Inserts: c.Inserts, Rate: c.Rate, Brought: float64(s.events-int64(c.Inserts)) / s.elapsed.Seconds(), Commit: latenciesOf(commits), Visible: latenciesOf(visible)}
		s.extra = append(r.Commit.metrics("commit-"), r.Visible.metrics("visible-")...)
		r.figures = figuresOf([]sample{s}, "", nil)
		return c.print(a, fmt.Sprintf("freshness/%d", c.Rate), &r, &r.figures, fmt.Sprintf("INSERT until visible in the view: %s; until its answer: %s; %.0f rows/s from the source", r.Visible, r.Commit, r.Brought))
	})
}

// untilSeen reads the count of a kind until it is the wanted one.
func untilSeen(ctx context.Context, reader *pgx.Conn, kind int, want int64) error {
	limit := time.Now().Add(benchTimeout)
	for reads := 0; ; reads++ {
		var n int64
		if err := reader.QueryRow(ctx, "SELECT n FROM by_kind WHERE kind = $1", kind).Scan(&n); err != nil && !errors.Is(err, pgx.ErrNoRows) {
			return err
		}
		if n >= want {
			return nil
		}
		if time.Now().After(limit) {
			return fmt.Errorf("row %d of kind %d is not visible after %v", want, kind, benchTimeout)
		}
		if reads < freshnessReads {
			continue
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-time.After(benchPoll):
		}
	}
}
