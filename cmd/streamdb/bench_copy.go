package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strconv"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/streamdb/streamdb/server"
)

type benchCopy struct {
	benchFlags
	Rows     int64  `help:"Rows of one COPY." default:"1000000"`
	Views    int    `help:"Materialized views on the table, sums per group of rows: 0, 1 or 2." default:"0"`
	Rounds   int    `help:"Rounds; the median counts." default:"1"`
	Postgres string `help:"A PostgreSQL server that gets the same into a table with a primary key, in turn. Its schema streamdb_bench is dropped." placeholder:"URL"`
}

type copyResult struct {
	Views int `json:"views"`
	figures
	Bytes  int64 `json:"bytes"`
	Memory int64 `json:"memory_bytes"`
	// CopySeconds is the time until COPY has returned; the figures are of the time until all views show all rows.
	CopySeconds float64 `json:"copy_seconds"`
}

// copyBlock is about how much of the data is made at a time, in bytes.
const copyBlock = 64 << 10

// copyRows is the data of a COPY: a key, a number, a text.
type copyRows struct {
	next, rows, bytes int64
	buf               []byte
	unread            []byte
}

// Read implements io.Reader.
func (c *copyRows) Read(p []byte) (int, error) {
	if len(c.unread) == 0 {
		c.buf = c.buf[:0]
		for ; c.next < c.rows && len(c.buf) < copyBlock; c.next++ {
			c.buf = append(strconv.AppendInt(c.buf, c.next, 10), '\t')
			c.buf = append(strconv.AppendInt(c.buf, c.next*7919%1_000_003, 10), "\tname of row "...)
			c.buf = append(strconv.AppendInt(c.buf, c.next, 10), '\n')
		}
		c.unread = c.buf
	}
	if len(c.unread) == 0 {
		return 0, io.EOF
	}
	n := copy(p, c.unread)
	c.unread = c.unread[n:]
	c.bytes += int64(n)
	return n, nil
}

const itemsTable = "CREATE TABLE items (id int PRIMARY KEY, price int, name text)"

// copyInto copies so many rows into items.
func copyInto(ctx context.Context, conn *pgx.Conn, rows int64) (bytes int64, err error) {
	data := &copyRows{rows: rows}
	tag, err := conn.PgConn().CopyFrom(ctx, data, "COPY items FROM STDIN")
	if err == nil && tag.RowsAffected() != rows {
		err = fmt.Errorf("%d rows of %d were copied", tag.RowsAffected(), rows)
	}
	return data.bytes, err
}

// copyViews are what may look at the table: sums per price, and per thousand rows.
var copyViews = []string{"price % 1000", "id / 1000"}

// Run is `streamdb bench copy`: a COPY into an empty table with a primary key.
func (c *benchCopy) Run(a *app) error {
	if c.Views < 0 || c.Views > len(copyViews) || c.Rounds <= 0 || c.Rows <= 0 {
		return usageError{fmt.Errorf("--views must be 0 to %d, --rows and --rounds positive", len(copyViews))}
	}
	return c.withServer(a, func(_ *server.Server, _ *dialer, conn *pgx.Conn) (err error) {
		pg, err := openRival(a.ctx, c.Postgres)
		if err != nil {
			return err
		}
		defer func() { err = errors.Join(err, pg.close(a.ctx)) }()
		r := copyResult{Views: c.Views, Memory: int64(c.Memory)}
		var own, others []sample
		var copied []float64
		m, name := c.meter(), ""
		for range c.Rounds {
			if pg != nil {
				name = pg.name
				s, err := c.rival(a.ctx, pg)
				if err != nil {
					return fmt.Errorf("%s: %w", pg.name, err)
				}
				others = append(others, s)
			}
			create := []string{itemsTable}
			drop := []string{"DROP TABLE items"}
			for i, by := range copyViews[:c.Views] {
				create = append(create, fmt.Sprintf("CREATE MATERIALIZED VIEW view%d AS SELECT %s AS k, count(*) AS n, sum(price) AS price FROM items GROUP BY 1", i, by))
				drop = append([]string{fmt.Sprintf("DROP MATERIALIZED VIEW view%d", i)}, drop...)
			}
			if err := runAll(a.ctx, conn, create...); err != nil {
				return err
			}
			s, err := m.span(func() (int64, error) {
				began := time.Now()
				var err error
				if r.Bytes, err = copyInto(a.ctx, conn, c.Rows); err != nil {
					return 0, err
				}
				copied = append(copied, time.Since(began).Seconds())
				return c.Rows, c.seen(a.ctx, conn)
			})
			if err != nil {
				return err
			}
			own = append(own, s)
			if err := runAll(a.ctx, conn, drop...); err != nil {
				return err
			}
		}
		r.CopySeconds, r.figures = median(copied), figuresOf(own, name, others)
		return c.print(a, fmt.Sprintf("copy/views=%d", c.Views), &r, &r.figures, fmt.Sprintf("%d MiB; COPY returned after %.2f s of %.2f; --memory %d MiB", r.Bytes>>20, r.CopySeconds, r.Seconds, r.Memory>>20))
	})
}

// seen waits until all views have all rows.
func (c *benchCopy) seen(ctx context.Context, conn *pgx.Conn) error {
	limit := time.Now().Add(benchTimeout)
	for i := range c.Views {
		for n := int64(0); n < c.Rows; {
			if err := conn.QueryRow(ctx, fmt.Sprintf("SELECT coalesce(sum(n), 0)::bigint FROM view%d", i)).Scan(&n); err != nil {
				return err
			}
			if time.Now().After(limit) {
				return fmt.Errorf("view%d has %d rows of %d after %v", i, n, c.Rows, benchTimeout)
			}
		}
	}
	return nil
}

// rival measures the same COPY there.
func (c *benchCopy) rival(ctx context.Context, pg *rival) (sample, error) {
	if err := runAll(ctx, pg.conn, itemsTable, "CHECKPOINT"); err != nil {
		return sample{}, err
	}
	s, err := pg.span(&meter{}, []*pgx.Conn{pg.conn}, func() (int64, error) {
		_, err := copyInto(ctx, pg.conn, c.Rows)
		return c.Rows, err
	})
	return s, errors.Join(err, runAll(ctx, pg.conn, "DROP TABLE items"))
}
