package main

import (
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/streamdb/streamdb/checkpoint"
	"github.com/streamdb/streamdb/internal/failpoint"
	"github.com/streamdb/streamdb/server"
)

type benchBackpressure struct {
	benchFlags
	Pressure time.Duration `help:"About how long what is queued keeps the aggregation busy." default:"30s"`
	Aligned  bool          `help:"Measure an aligned checkpoint, too: it takes about as long as the pressure."`
}

type backpressureResult struct {
	figures           // of the statement CHECKPOINT and the rows that came while it ran
	Pressure  float64 `json:"pressure_seconds"`
	Unaligned bool    `json:"unaligned"`
	Duration  float64 `json:"duration_ms"`
	Start     float64 `json:"start_delay_ms"` // of the slowest subtask
	Persisted int64   `json:"persisted_bytes"`
}

// queuedChunks is about how many chunks are queued before the two subtasks of the aggregation when their senders wait.
const queuedChunks = 100

// Run is `streamdb bench backpressure`: a checkpoint of a view whose aggregation takes far longer for each chunk than its source needs to make one.
func (c *benchBackpressure) Run(a *app) error {
	c.CheckpointInterval = 0
	points, err := failpoint.Parse("bench/none=delay(1ms)")
	if err != nil {
		return err
	}
	c.failpoints = points
	return c.withServer(a, func(srv *server.Server, _ *dialer, conn *pgx.Conn) error {
		if err := runAll(a.ctx, conn,
			`CREATE SOURCE bids WITH (connector = 'nexmark', "nexmark.table.type" = 'Bid')`,
			"CREATE MATERIALIZED VIEW slow WITH (parallelism = 2, execution.checkpointing.unaligned.enabled = true) AS SELECT auction, count(*) AS n, max(price) AS price FROM bids GROUP BY auction"); err != nil {
			return err
		}
		m := c.meter()
		kinds := []bool{true}
		if c.Aligned {
			kinds = append(kinds, false)
		}
		for _, unaligned := range kinds {
			if err := runAll(a.ctx, conn, fmt.Sprintf("ALTER MATERIALIZED VIEW slow SET (execution.checkpointing.unaligned.enabled = %v)", unaligned)); err != nil {
				return err
			}
			hits := points.Hits("exec/take")
			if err := points.Change(fmt.Sprintf("exec/take=delay(%s)", c.Pressure/queuedChunks)); err != nil {
				return err
			}
			for points.Hits("exec/take") < hits+2 { // both subtasks are at it
				select {
				case <-a.ctx.Done():
					return a.ctx.Err()
				case <-time.After(benchPoll):
				}
			}
			select { // and the queues are full
			case <-a.ctx.Done():
				return a.ctx.Err()
			case <-time.After(time.Second):
			}
			s, err := m.span(func() (int64, error) {
				before := srv.SourceRows("slow")
				err := runAll(a.ctx, conn, "CHECKPOINT slow")
				return srv.SourceRows("slow") - before, err
			})
			if err != nil {
				return err
			}
			if err := points.Change("exec/take=off"); err != nil {
				return err
			}
			r, err := c.result(srv)
			if err != nil {
				return err
			}
			r.figures = figuresOf([]sample{s}, "", nil)
			name := "aligned"
			if r.Unaligned {
				name = "unaligned"
			}
			if err := c.print(a, "backpressure/"+name, &r, &r.figures, fmt.Sprintf("under %v of backpressure an %s checkpoint took %.0f ms, %.0f ms of it until the last subtask had its barrier, with %d KiB in flight",
				c.Pressure, name, r.Duration, r.Start, r.Persisted>>10)); err != nil {
				return err
			}
		}
		return nil
	})
}

const benchPoll = time.Millisecond

func (c *benchBackpressure) result(srv *server.Server) (r backpressureResult, err error) {
	last, err := newestCheckpoint(srv, func(c checkpoint.JobCheckpoint) bool { return c.JobName == "slow" })
	if err != nil {
		return r, err
	}
	r = backpressureResult{Pressure: c.Pressure.Seconds(), Unaligned: last.Unaligned, Duration: millis(last.Duration), Persisted: last.PersistedBytes}
	for _, s := range last.Subtasks {
		r.Start = max(r.Start, millis(s.StartDelay+s.Alignment))
	}
	return r, nil
}
