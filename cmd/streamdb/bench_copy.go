package main

import (
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
	Rows int64 `help:"Rows of one COPY." default:"1000000"`
}

type copyResult struct {
	Rows          int64   `json:"rows"`
	Bytes         int64   `json:"bytes"`
	Memory        int64   `json:"memory_bytes"`
	PeakRSS       int64   `json:"peak_rss_bytes"`
	Seconds       float64 `json:"seconds"`
	RowsPerSecond float64 `json:"rows_per_second"`
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

// Run is `streamdb bench copy`: one COPY into an empty table with a primary key.
func (c *benchCopy) Run(a *app) error {
	return c.withServer(a, func(_ *server.Server, _ *dialer, conn *pgx.Conn) error {
		if err := runAll(a.ctx, conn, "CREATE TABLE items (id int PRIMARY KEY, price int, name text)"); err != nil {
			return err
		}
		prof := profiler{dir: c.Profile}
		if err := prof.start(); err != nil {
			return err
		}
		resetPeak()
		data := &copyRows{rows: c.Rows}
		began := time.Now()
		tag, err := conn.PgConn().CopyFrom(a.ctx, data, "COPY items FROM STDIN")
		took := time.Since(began).Seconds()
		if err := errors.Join(err, prof.stop()); err != nil {
			return err
		}
		if tag.RowsAffected() != c.Rows {
			return fmt.Errorf("%d rows of %d were copied", tag.RowsAffected(), c.Rows)
		}
		r := copyResult{Rows: c.Rows, Bytes: data.bytes, Memory: int64(c.benchFlags.Memory), PeakRSS: peakRSS(), Seconds: took, RowsPerSecond: float64(c.Rows) / took}
		return c.show(a, r, fmt.Sprintf("%d rows, %d MiB, in %.2f s: %.0f rows/s, peak %d MiB resident under --memory %d MiB",
			r.Rows, r.Bytes>>20, r.Seconds, r.RowsPerSecond, r.PeakRSS>>20, r.Memory>>20))
	})
}
