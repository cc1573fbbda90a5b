package main

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/streamdb/streamdb/server"
)

type benchLookup struct {
	benchFlags
	clientFlags
	Rows     int    `help:"Rows of the view." default:"1000000"`
	Protocol string `help:"prepared: a statement prepared once; simple: text each time; pipelined: prepared, 64 lookups per round trip." enum:"prepared,simple,pipelined" default:"prepared"`
	Ingest   int64  `help:"Rows per second that go into the view at the same time, while it is not PostgreSQL's turn." default:"0"`
}

type lookupResult struct {
	Rows     int    `json:"rows"`
	Protocol string `json:"protocol"`
	clientsResult
	Ingest   int64   `json:"ingest_rows_per_second"` // wanted
	Ingested float64 `json:"ingested_rows_per_second"`
}

const (
	lookupPipeline = 64 // lookups per round trip
	lookupQuery    = "SELECT total FROM totals WHERE id = $1"
	lookupPrice    = 7 // the price of a row is its id times this
)

// call looks up random rows through one connection.
func (c *benchLookup) call(ctx context.Context, conn *pgx.Conn, _ int, rng *rand.Rand) (int64, error) {
	id := func() int64 { return 1 + rng.Int64N(int64(c.Rows)) }
	check := func(id, total int64) error {
		if total != lookupPrice*id {
			return fmt.Errorf("row %d has total %d instead of %d", id, total, lookupPrice*id)
		}
		return nil
	}
	if c.Protocol == "pipelined" {
		var b pgx.Batch
		for range lookupPipeline {
			id := id()
			b.Queue(lookupQuery, id).QueryRow(func(row pgx.Row) error {
				var total int64
				return errors.Join(row.Scan(&total), check(id, total))
			})
		}
		return lookupPipeline, conn.SendBatch(ctx, &b).Close()
	}
	mode := pgx.QueryExecModeCacheStatement
	if c.Protocol == "simple" {
		mode = pgx.QueryExecModeSimpleProtocol
	}
	n, total := id(), int64(0)
	if err := conn.QueryRow(ctx, lookupQuery, mode, n).Scan(&total); err != nil {
		return 0, err
	}
	return 1, check(n, total)
}

// Run is `streamdb bench lookup`.
func (c *benchLookup) Run(a *app) error {
	if c.Rows <= 0 || c.Ingest < 0 {
		return usageError{errors.New("--rows must be positive, --ingest not negative")}
	}
	if err := c.check(); err != nil {
		return err
	}
	return c.withServer(a, func(srv *server.Server, d *dialer, conn *pgx.Conn) (err error) {
		pg, err := openRival(a.ctx, c.Postgres)
		if err != nil {
			return err
		}
		defer func() { err = errors.Join(err, pg.close(a.ctx)) }()
		rows := fmt.Sprintf("SELECT i AS id, i * %d AS price FROM generate_series(1::bigint, %d) i", lookupPrice, c.Rows)
		if pg != nil {
			if err := runAll(a.ctx, pg.conn, "CREATE TABLE totals AS SELECT id, price AS total, 1::bigint AS n FROM ("+rows+") items", "ALTER TABLE totals ADD PRIMARY KEY (id)", "VACUUM ANALYZE totals"); err != nil {
				return err
			}
		}
		from := "items"
		if err := runAll(a.ctx, conn, "CREATE TABLE items (id bigint PRIMARY KEY, price bigint)", "INSERT INTO items "+rows); err != nil {
			return err
		}
		if c.Ingest > 0 { // what comes changes n only
			from = "(SELECT id, price FROM items UNION ALL SELECT id, zero AS price FROM more) all_items"
			if err := runAll(a.ctx, conn, fmt.Sprintf("CREATE SOURCE more (id bigint, zero bigint) WITH (connector = 'datagen', datagen.rows.per.second = '%d', fields.id.min = '1', fields.id.max = '%d', fields.zero.max = '0')", c.Ingest, c.Rows)); err != nil {
				return err
			}
		}
		if err := runAll(a.ctx, conn, "CREATE MATERIALIZED VIEW totals AS SELECT id, sum(price)::bigint AS total, count(*) AS n FROM "+from+" GROUP BY id", "CHECKPOINT"); err != nil {
			return err
		}
		r := lookupResult{Rows: c.Rows, Protocol: c.Protocol, Ingest: c.Ingest}
		var ingested []float64
		r.clientsResult, err = c.compare(a.ctx, c.meter(), d, c.call, pg, c.call, func(rival bool, round func() error) error {
			if rival {
				return errors.Join(runAll(a.ctx, conn, "PAUSE totals"), round(), runAll(a.ctx, conn, "RESUME totals"))
			}
			before, began := srv.SourceRows("totals"), time.Now()
			err := round()
			ingested = append(ingested, float64(srv.SourceRows("totals")-before)/time.Since(began).Seconds())
			return err
		})
		if err != nil {
			return err
		}
		text := r.clientsResult.String()
		if r.Ingested = median(ingested); c.Ingest > 0 {
			text += fmt.Sprintf("; %.0f rows/s into the view", r.Ingested)
		}
		return c.print(a, fmt.Sprintf("lookup/%s/%d", c.Protocol, c.Connections), &r, &r.figures, text)
	})
}

type benchInsert struct {
	benchFlags
	clientFlags
}

// call inserts rows of a client, one after the other; next are the ids, by client.
func (c *benchInsert) call(next []int64) callFunc {
	for i := range next {
		next[i] = int64(i)
	}
	return func(ctx context.Context, conn *pgx.Conn, client int, rng *rand.Rand) (int64, error) {
		next[client] += int64(len(next))
		_, err := conn.Exec(ctx, "INSERT INTO items VALUES ($1, $2, $3)", next[client], rng.Int64N(1000), "a name of some length")
		return 1, err
	}
}

// Run is `streamdb bench insert`: each row is on disk before the client inserts the next one.
func (c *benchInsert) Run(a *app) error {
	if err := c.check(); err != nil {
		return err
	}
	return c.withServer(a, func(_ *server.Server, d *dialer, conn *pgx.Conn) (err error) {
		pg, err := openRival(a.ctx, c.Postgres)
		if err != nil {
			return err
		}
		defer func() { err = errors.Join(err, pg.close(a.ctx)) }()
		const table = "CREATE TABLE items (id bigint PRIMARY KEY, price bigint, name text)"
		if pg != nil {
			if err := runAll(a.ctx, pg.conn, table); err != nil {
				return err
			}
		}
		if err := runAll(a.ctx, conn, table); err != nil {
			return err
		}
		own, other := make([]int64, c.Connections), make([]int64, c.Connections)
		r, err := c.compare(a.ctx, c.meter(), d, c.call(own), pg, c.call(other), func(_ bool, round func() error) error { return round() })
		if err != nil {
			return err
		}
		return c.print(a, fmt.Sprintf("insert/%d", c.Connections), &r, &r.figures, r.String())
	})
}
