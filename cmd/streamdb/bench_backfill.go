package main

import (
	"errors"
	"fmt"

	"github.com/jackc/pgx/v5"

	"github.com/streamdb/streamdb/server"
)

type benchBackfill struct {
	benchFlags
	Rows   int64 `help:"Rows of the table." default:"10000000"`
	Groups int64 `help:"Groups that the view has." default:"10000"`
	Rounds int   `help:"Rounds; the median counts." default:"3"`
}

type backfillResult struct {
	figures
	Groups int64 `json:"groups"`
}

// Run is `streamdb bench backfill`: a view that is made over a table that has its rows, and in turn the query alone.
func (c *benchBackfill) Run(a *app) error {
	if c.Rows <= 0 || c.Groups <= 0 || c.Rounds <= 0 {
		return usageError{errors.New("--rows, --groups and --rounds must be positive")}
	}
	return c.withServer(a, func(_ *server.Server, _ *dialer, conn *pgx.Conn) error {
		if err := runAll(a.ctx, conn, itemsTable); err != nil {
			return err
		}
		if _, err := copyInto(a.ctx, conn, c.Rows); err != nil {
			return err
		}
		if err := runAll(a.ctx, conn, "CHECKPOINT"); err != nil {
			return err
		}
		query := fmt.Sprintf("SELECT id %% %d AS k, count(*) AS n, sum(price) AS price FROM items GROUP BY 1", c.Groups)
		var views, queries []sample
		m := c.meter()
		rows := func(sql string) (n int64, err error) {
			if err = conn.QueryRow(a.ctx, "SELECT coalesce(sum(n), 0)::bigint FROM "+sql).Scan(&n); err == nil && n != c.Rows {
				err = fmt.Errorf("%d rows of %d were grouped", n, c.Rows)
			}
			return n, err
		}
		for range c.Rounds {
			s, err := (&meter{}).span(func() (int64, error) { return rows("(" + query + ") alone") })
			if err != nil {
				return err
			}
			queries = append(queries, s)
			if s, err = m.span(func() (int64, error) {
				if err := runAll(a.ctx, conn, "CREATE MATERIALIZED VIEW sums AS "+query); err != nil {
					return 0, err
				}
				return rows("sums")
			}); err != nil {
				return err
			}
			views = append(views, s)
			if err := runAll(a.ctx, conn, "DROP MATERIALIZED VIEW sums"); err != nil {
				return err
			}
		}
		r := backfillResult{Groups: c.Groups, figures: figuresOf(views, "the query alone", queries)}
		return c.print(a, "backfill", &r, &r.figures, fmt.Sprintf("%d rows into %d groups in %.2f s", r.Events, r.Groups, r.Seconds))
	})
}
