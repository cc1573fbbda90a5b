package postgres

import (
	"context"
	"slices"
	"time"

	"github.com/jackc/pgx/v5"
)

// A server that was suspended, or whose network is gone, in the middle of a commit holds the lock of its sink for as long as the target keeps its session: who takes over
// would wait for just that. So sessions of sinks that hold it up and do nothing but wait for their client, at blockedSamples looks in a row, are ended. One that was
// merely slow loses a commit, which it makes once more if it still may.
const (
	blockedAfter   = 3 * time.Second // of waiting
	blockedEvery   = time.Second
	blockedSamples = 5
)

// blockers are the sessions of sinks that hold up another one and wait for their client.
const blockers = `SELECT pid FROM pg_stat_activity WHERE pid = ANY (pg_blocking_pids($1)) AND application_name LIKE '` + applicationPrefix + `%'
	AND (state LIKE 'idle in transaction%' OR wait_event = 'ClientRead')`

// unblock runs f, which may wait for a lock in the session of s.conn, and ends those that hold it up for nothing. A target that cannot tell is waited for.
func (s *sink) unblock(ctx context.Context, f func(context.Context) error) error {
	waiting := int32(s.conn.PgConn().PID()) //nolint:gosec // as PostgreSQL counts
	watch, stop := context.WithCancel(ctx)
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		_ = s.endBlockers(watch, waiting) // f waits on then
	}()
	err := f(ctx)
	stop()
	<-ended
	return err
}

func (s *sink) endBlockers(ctx context.Context, waiting int32) error {
	pause := time.NewTimer(blockedAfter)
	defer pause.Stop()
	select {
	case <-pause.C:
	case <-ctx.Done():
		return nil
	}
	conn, err := pgx.ConnectConfig(ctx, s.config.Copy())
	if err != nil {
		return err
	}
	defer conn.Close(context.WithoutCancel(ctx)) //nolint:errcheck // nothing is written
	var stuck []int32
	for n := 1; ; n++ {
		rows, err := conn.Query(ctx, blockers, waiting)
		if err != nil {
			return err
		}
		now, err := pgx.CollectRows(rows, pgx.RowTo[int32])
		if err != nil {
			return err
		}
		if stuck = slices.DeleteFunc(stuck, func(pid int32) bool { return !slices.Contains(now, pid) }); len(stuck) == 0 {
			stuck, n = now, 1
		}
		if n == blockedSamples && len(stuck) > 0 {
			if _, err := conn.Exec(ctx, "SELECT pg_terminate_backend(pid) FROM unnest($1::int[]) pid", stuck); err != nil {
				return err
			}
			stuck, n = nil, 0
		}
		pause.Reset(blockedEvery)
		select {
		case <-pause.C:
		case <-ctx.Done():
			return nil
		}
	}
}
