package main

import (
	"context"
	"maps"
	"net"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"

	"github.com/streamdb/streamdb"
)

// The copy follows the view, and goes on after the server has been ended and started again.
func TestExample(t *testing.T) {
	ctx, stop := context.WithTimeout(context.Background(), time.Minute)
	defer stop()
	dir := t.TempDir()
	open := func() *streamdb.DB {
		db, err := streamdb.Open(ctx, streamdb.Options{DataDir: dir, Memory: 128 << 20})
		require.NoError(t, err)
		return db
	}
	db := open()
	cfg, err := pgx.ParseConfig("postgres://streamdb@streamdb/streamdb?sslmode=disable")
	require.NoError(t, err)
	cfg.LookupFunc = func(context.Context, string) ([]string, error) { return []string{"127.0.0.1"}, nil }
	cfg.DialFunc = func(ctx context.Context, network, addr string) (net.Conn, error) {
		return db.DialFunc()(ctx, network, addr)
	}
	run := func(stmts ...string) {
		t.Helper()
		conn, err := pgx.ConnectConfig(ctx, cfg)
		require.NoError(t, err)
		for _, s := range stmts {
			_, err := conn.Exec(ctx, s)
			require.NoError(t, err, s)
		}
		require.NoError(t, conn.Close(ctx))
	}
	run("CREATE TABLE sales (item text, amount int)",
		"CREATE MATERIALIZED VIEW totals WITH (retention = '1 hour') AS SELECT item, sum(amount) AS total FROM sales GROUP BY item",
		"INSERT INTO sales VALUES ('tea', 1), ('cake', 2)")
	c := &replica{Totals: map[string]int64{}}
	until := func(want map[string]int64) {
		t.Helper()
		following, enough := context.WithCancel(ctx)
		defer enough()
		if maps.Equal(c.Totals, want) {
			return
		}
		err := c.follow(following, cfg, func() {
			if maps.Equal(c.Totals, want) {
				enough()
			}
		})
		require.ErrorIs(t, err, context.Canceled)
		require.Equal(t, want, c.Totals)
	}
	until(map[string]int64{"tea": 1, "cake": 2})
	run("CHECKPOINT", "INSERT INTO sales VALUES ('tea', 5)", "DELETE FROM sales WHERE item = 'cake'")
	require.NoError(t, db.Abort())
	db = open()
	epoch := c.Epoch
	until(map[string]int64{"tea": 6})
	require.Greater(t, c.Epoch, epoch)
	require.NoError(t, db.Close(ctx))
}
