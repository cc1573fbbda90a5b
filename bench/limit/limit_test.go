package limit_test

import (
	"context"
	"fmt"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"

	"github.com/streamdb/streamdb"
	"github.com/streamdb/streamdb/bench/limit"
	"github.com/streamdb/streamdb/bench/nexmark"
)

// The loops give what the queries give, whose rows testdata/nexmark compares with those of PostgreSQL.
func TestLoops(t *testing.T) {
	for name, l := range limit.Loops() {
		require.Equal(t, limit.Result{}, l.Run(0), name)
	}
	for _, events := range []int64{3, 50, 120_001} {
		t.Run(strconv.FormatInt(events, 10), func(t *testing.T) {
			conn := connect(t)
			for _, s := range nexmark.Sources(events, 0, 4) {
				_, err := conn.Exec(t.Context(), s)
				require.NoError(t, err, s)
			}
			for _, name := range limit.Names() {
				l := limit.Loops()[name]
				query, err := nexmark.Query(name)
				require.NoError(t, err)
				query, _, _ = strings.Cut(query, "EMIT ON WINDOW CLOSE") // all windows are asked for
				have, want := l.Run(events), limit.Result{Events: events}
				var sum *int64
				sql := fmt.Sprintf("SELECT count(*), sum(%s)::bigint FROM (%s) q", l.Checksum, query)
				require.NoError(t, conn.QueryRow(t.Context(), sql).Scan(&want.Rows, &sum), sql)
				if sum != nil {
					want.Checksum = uint64(*sum)
				}
				if name == "q12" { // which windows there are depends on the clock
					want.Rows = have.Rows
				}
				require.Equal(t, want, have, name)
			}
		})
	}
}

func connect(t *testing.T) *pgx.Conn {
	t.Helper()
	db, err := streamdb.Open(t.Context(), streamdb.Options{MemoryOnly: true, Memory: 1 << 30})
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, db.Close(context.Background())) })
	cfg, err := pgx.ParseConfig("postgres://streamdb@127.0.0.1/streamdb")
	require.NoError(t, err)
	cfg.DialFunc = db.DialFunc()
	conn, err := pgx.ConnectConfig(t.Context(), cfg)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, conn.Close(context.Background())) })
	return conn
}

func cpu() int64 {
	var u syscall.Rusage
	if syscall.Getrusage(syscall.RUSAGE_SELF, &u) != nil {
		return 0
	}
	return u.Utime.Nano() + u.Stime.Nano()
}

func BenchmarkLoops(b *testing.B) {
	for _, n := range limit.Names() {
		b.Run(n, func(b *testing.B) {
			const events = 2_000_000
			before, total := cpu(), int64(0)
			for b.Loop() {
				total += limit.Loops()[n].Run(events).Events
			}
			b.ReportMetric(float64(cpu()-before)/float64(total), "cpu-ns/event")
		})
	}
}
