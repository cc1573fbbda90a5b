package main

import (
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/streamdb/streamdb/checkpoint"
	"github.com/streamdb/streamdb/server"
)

const (
	// groupBytes is about what a group of the measured view takes in its state: the aggregation's entry and the view's row, each with a text that hardly compresses.
	groupBytes = 230
	// lossInterval is the time between checkpoints whose cost is measured.
	lossInterval = time.Second
	// lossPatience is how much longer than asked for a round with checkpoints may take until one is complete, which is looked for every lossPoll.
	lossPatience, lossPoll = time.Minute, 10 * time.Millisecond
)

// lossResult tells what checkpoints cost a view that is busy: the figures are those of its source rows in the rounds with checkpoints, compared with the rounds without.
type lossResult struct {
	figures
	State       int64   `json:"state_bytes"`
	Groups      int64   `json:"groups"`
	Hot         int64   `json:"hot_groups"`
	Loss        float64 `json:"loss_percent"`     // of throughput
	CPULoss     float64 `json:"cpu_loss_percent"` // of rows per second of processor time, which other programs do not disturb as much
	Checkpoints int     `json:"checkpoints"`      // completed in the rounds with them
	Uploaded    int64   `json:"uploaded_bytes_per_checkpoint"`
}

// lossOf is what a ratio is below 1, in percent.
func lossOf(ratio float64) float64 { return 100 * (1 - ratio) }

// ofBusy selects the completed checkpoints of the measured view.
func ofBusy(c checkpoint.JobCheckpoint) bool {
	return c.JobName == "busy" && c.Status == checkpoint.StatusCompleted
}

// measureLoss fills a view with groups until its state has about size bytes, and then changes a share of them as fast as it goes, in rounds with checkpoints every second
// and without, in turn: the same rows and the same state.
func (c *benchCheckpoint) measureLoss(a *app, size int64) error {
	if c.Hot <= 0 || c.Hot > 1 || c.Window <= 0 {
		return usageError{errors.New("--hot must be above 0 and not above 1, --window positive")}
	}
	r := lossResult{Groups: max(1, size/groupBytes)}
	r.Hot = max(1, int64(float64(r.Groups)*c.Hot))
	if err := c.withServer(a, func(srv *server.Server, _ *dialer, conn *pgx.Conn) error { return c.lossRounds(a, srv, conn, &r) }); err != nil {
		return err
	}
	return c.print(a, fmt.Sprintf("loss/%dMiB", size>>20), &r, &r.figures, fmt.Sprintf("state %d MiB (%d groups, %d of them change): loss %.1f %%, of rows per CPU-second %.1f %%; %d checkpoints of %d KiB",
		r.State>>20, r.Groups, r.Hot, r.Loss, r.CPULoss, r.Checkpoints, r.Uploaded>>10))
}

func (c *benchCheckpoint) lossRounds(a *app, srv *server.Server, conn *pgx.Conn, r *lossResult) error {
	if err := runAll(a.ctx, conn,
		fmt.Sprintf("CREATE SOURCE all_groups (k bigint, v int) WITH (connector = 'datagen', datagen.rows = '%d', datagen.rows.per.second = '0', fields.k.kind = 'sequence')", r.Groups),
		fmt.Sprintf("CREATE SOURCE hot_groups (k bigint, v int) WITH (connector = 'datagen', datagen.rows.per.second = '0', fields.k.max = '%d')", r.Hot-1),
		`CREATE MATERIALIZED VIEW busy AS SELECT k, count(*) AS n, sum(v) AS v, max(pad) AS pad FROM (SELECT k, v, md5(k::text) || md5((k + 1)::text) || md5((k + 2)::text) AS pad FROM all_groups UNION ALL SELECT k, v, '' FROM hot_groups) u GROUP BY k`); err != nil {
		return err
	}
	for filled := false; !filled; {
		if err := conn.QueryRow(a.ctx, "SELECT count(*) >= $1 FROM busy", r.Groups).Scan(&filled); err != nil {
			return err
		}
	}
	if err := runAll(a.ctx, conn, "CHECKPOINT busy", "CHECKPOINT busy"); err != nil {
		return err
	}
	last, err := newestCheckpoint(srv, ofBusy)
	if err != nil {
		return err
	}
	r.State = last.FullSize
	var samples [2][]sample // without and with checkpoints
	m := c.meter()
	for round := range 2 * c.Rounds {
		with := round % 2
		interval := time.Duration(with) * lossInterval
		if err := runAll(a.ctx, conn, fmt.Sprintf("ALTER MATERIALIZED VIEW busy SET (execution.checkpointing.interval = '%v')", interval)); err != nil {
			return err
		}
		if with == 0 { // what checkpoints have left to do is not of this round
			if err := runAll(a.ctx, conn, "CHECKPOINT busy"); err != nil {
				return err
			}
		}
		if last, err = newestCheckpoint(srv, ofBusy); err != nil {
			return err
		}
		taken, err := m.span(func() (int64, error) {
			rows := srv.SourceRows("busy")
			err := c.lossRound(a, srv, with == 1, last.ID)
			return srv.SourceRows("busy") - rows, err
		})
		if err != nil {
			return err
		}
		samples[with] = append(samples[with], taken)
		if with == 1 {
			for _, cp := range busyAfter(srv, last.ID) {
				r.Checkpoints++
				r.Uploaded += cp.UploadedBytes
			}
		}
	}
	if r.Checkpoints > 0 {
		r.Uploaded /= int64(r.Checkpoints)
	}
	r.figures = figuresOf(samples[1], "the same without checkpoints", samples[0])
	r.Loss, r.CPULoss = lossOf(r.Ratio), lossOf(r.CPURatio)
	return nil
}

// lossRound waits for the end of a round; one with checkpoints has at least one after that with the given id, or it would tell nothing.
func (c *benchCheckpoint) lossRound(a *app, srv *server.Server, with bool, after uint64) error {
	end := time.NewTimer(c.Window)
	defer end.Stop()
	for limit := time.Now().Add(c.Window + lossPatience); ; end.Reset(lossPoll) {
		select {
		case <-a.ctx.Done():
			return a.ctx.Err()
		case <-end.C:
		}
		switch {
		case !with || len(busyAfter(srv, after)) > 0:
			return nil
		case time.Now().After(limit):
			return fmt.Errorf("no checkpoint was complete within %v", c.Window+lossPatience)
		}
	}
}

// busyAfter are the completed checkpoints of the measured view after that with the given id.
func busyAfter(srv *server.Server, id uint64) []checkpoint.JobCheckpoint {
	return slices.DeleteFunc(srv.Coordinator().Stats().Checkpoints, func(c checkpoint.JobCheckpoint) bool { return !ofBusy(c) || c.ID <= id })
}
