// Command follow keeps a copy of a view in memory and prints it whenever it has changed. It goes on where it was when the connection breaks or the
// server restarts.
//
//	CREATE TABLE sales (item text, amount int);
//	CREATE MATERIALIZED VIEW totals WITH (retention = '1 hour') AS SELECT item, sum(amount) AS total FROM sales GROUP BY item;
//
//	go run ./examples/follow
package main

import (
	"context"
	"errors"
	"fmt"
	"log"
	"os"
	"os/signal"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	cfg, err := pgx.ParseConfig("postgres://streamdb@127.0.0.1:5433/streamdb?sslmode=disable")
	if err != nil {
		log.Fatal(err)
	}
	c := &replica{Totals: map[string]int64{}}
	if err := c.follow(ctx, cfg, func() { log.Print(c.Epoch, c.Totals) }); err != nil && ctx.Err() == nil {
		log.Fatal(err)
	}
}

// replica is the copy and the epoch that it is of. Whoever stores it stores both in one step, and can go on with it at any time.
type replica struct {
	Epoch  int64
	Totals map[string]int64
}

// change is a row that came (diff 1) or went (diff -1).
type change struct {
	diff  int64
	item  string
	total int64
}

// retryAfter is the pause before the next attempt when there is no server.
const retryAfter = time.Second

// follow keeps c up to date until ctx ends or the server says that it cannot be. changed is called after each epoch that brought something.
func (c *replica) follow(ctx context.Context, cfg *pgx.ConnConfig, changed func()) error {
	for ctx.Err() == nil {
		err := c.session(ctx, cfg, changed)
		var pe *pgconn.PgError
		if errors.As(err, &pe) && pe.Code == "55000" { // the changes since are not kept any more: begin anew, with the rows there are
			c.Epoch, c.Totals = 0, map[string]int64{}
			continue
		}
		if errors.As(err, &pe) && pe.Code[:2] != "57" { // 57…: the server is stopping, or starting
			return err
		}
		select {
		case <-time.After(retryAfter):
		case <-ctx.Done():
		}
	}
	return ctx.Err()
}

// session follows over one connection.
func (c *replica) session(ctx context.Context, cfg *pgx.ConnConfig, changed func()) error {
	conn, err := pgx.ConnectConfig(ctx, cfg)
	if err != nil {
		return err
	}
	defer conn.Close(context.WithoutCancel(ctx)) //nolint:errcheck // it may be broken
	subscribe := "DECLARE totals_changes CURSOR WITH HOLD FOR SUBSCRIBE totals WITH (PROGRESS)"
	if c.Epoch > 0 {
		subscribe += fmt.Sprintf(" AS OF %d", c.Epoch)
	}
	if _, err := conn.Exec(ctx, subscribe); err != nil {
		return err
	}
	var pending []change // of epochs that are not complete
	for {
		rows, err := conn.Query(ctx, "FETCH 1000 FROM totals_changes WITH (timeout = '10s')", pgx.QueryExecModeExec)
		if err != nil {
			return err
		}
		for rows.Next() {
			var epoch int64
			var progressed bool
			var diff, total *int64 // NULL in a row that tells of progress
			var item *string
			if err := rows.Scan(&epoch, &progressed, &diff, &item, &total); err != nil {
				return err
			}
			if !progressed {
				pending = append(pending, change{diff: *diff, item: *item, total: *total})
				continue
			}
			c.take(epoch, pending)
			if len(pending) > 0 {
				changed()
			}
			pending = pending[:0]
		}
		if err := rows.Err(); err != nil {
			return err
		}
	}
}

// take takes over what changed up to an epoch. Rows that went are taken out first: those that came may have their keys.
func (c *replica) take(epoch int64, changes []change) {
	for _, ch := range changes {
		if ch.diff < 0 {
			delete(c.Totals, ch.item)
		}
	}
	for _, ch := range changes {
		if ch.diff > 0 {
			c.Totals[ch.item] = ch.total
		}
	}
	c.Epoch = epoch
}
