package main

import (
	"context"
	"encoding/base64"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strconv"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/streamdb/streamdb/checkpoint"
	"github.com/streamdb/streamdb/exec"
	"github.com/streamdb/streamdb/server"
	"github.com/streamdb/streamdb/storage/object"
)

// stateFlags describe the state that checkpoints are of: a table of rows of about rowPayload bytes.
type stateFlags struct {
	State []byteSize `help:"Sizes of the state to measure with, one after the other." default:"1MiB,256MiB"`
	To    string     `help:"Checkpoint directory URL. Default: a folder in the data directory." placeholder:"URL"`
}

type benchCheckpoint struct {
	benchFlags
	stateFlags
	Changed int64         `help:"Rows changed before each checkpoint." default:"1000"`
	Rounds  int           `help:"Checkpoints measured; of times the median counts." default:"5"`
	Loss    bool          `help:"Measure instead what checkpoints every second cost a busy view with a state of that size: rounds with them and without, in turn."`
	Hot     float64       `help:"With --loss: the share of the groups that change." default:"0.01"`
	Window  time.Duration `help:"With --loss: how long a round takes, with checkpoints until one is complete." default:"5s"`
}

// rowPayload is the length of the text in a row of the measured table: hardly compressible, so that a row is about as long on disk.
const rowPayload = 1000

type checkpointResult struct {
	figures          // of the statement CHECKPOINT and the rows changed before it
	State    int64   `json:"state_bytes"`
	Rows     int64   `json:"rows"`
	Changed  int64   `json:"changed_bytes"`
	Duration float64 `json:"duration_ms"`
	Sync     float64 `json:"sync_ms"`
	Uploaded int64   `json:"uploaded_bytes"`
	// UploadRatio is uploaded to changed bytes.
	UploadRatio float64 `json:"upload_ratio"`
}

// Run is `streamdb bench checkpoint`: for each size of the state the same rows are changed before each checkpoint.
func (c *benchCheckpoint) Run(a *app) error {
	if c.Rounds <= 0 || c.Changed <= 0 && !c.Loss {
		return usageError{errors.New("--changed and --rounds must be positive")}
	}
	c.CheckpointInterval = 0
	for _, size := range c.State {
		if c.Loss {
			if err := c.measureLoss(a, int64(size)); err != nil {
				return err
			}
			continue
		}
		if err := c.inDirs(c.benchFlags, func(f *benchFlags) error {
			return f.withServer(a, func(srv *server.Server, _ *dialer, conn *pgx.Conn) error { return c.measure(a, srv, conn, int64(size)) })
		}); err != nil {
			return err
		}
	}
	return nil
}

// inDirs calls run with a data directory and a checkpoint directory that are there until it returns.
func (c *stateFlags) inDirs(f benchFlags, run func(f *benchFlags) error) (err error) {
	if f.DataDir == "" {
		if f.DataDir, err = os.MkdirTemp("", "streamdb-bench-"); err != nil {
			return err
		}
		defer func() { err = errors.Join(err, os.RemoveAll(f.DataDir)) }()
	}
	if f.CheckpointDir = c.To; f.CheckpointDir == "" {
		f.CheckpointDir = object.FolderURL(filepath.Join(f.DataDir, "checkpoints"))
	}
	return run(&f)
}

// stateRows is how many rows a state of that size has.
func stateRows(size int64) int64 { return max(1, size/rowPayload) }

// fillState makes the table and a checkpoint of it.
func fillState(ctx context.Context, conn *pgx.Conn, rows int64) error {
	if err := runAll(ctx, conn, "CREATE TABLE state (id bigint PRIMARY KEY, payload text)"); err != nil {
		return err
	}
	if _, err := conn.PgConn().CopyFrom(ctx, &payloadRows{rows: rows, rng: rand.NewChaCha8([32]byte{})}, "COPY state FROM STDIN"); err != nil {
		return err
	}
	// The second one settles what the first has begun in the background.
	return runAll(ctx, conn, "CHECKPOINT", "UPDATE state SET payload = payload WHERE id = 0", "CHECKPOINT")
}

// newestOfTables is the newest checkpoint of the tables.
func newestOfTables(srv *server.Server) (checkpoint.JobCheckpoint, error) {
	return newestCheckpoint(srv, func(c checkpoint.JobCheckpoint) bool { return c.Job == exec.TablesID })
}

// measure fills the table and measures checkpoints of the same changes.
func (c *benchCheckpoint) measure(a *app, srv *server.Server, conn *pgx.Conn, size int64) error {
	r := checkpointResult{Rows: stateRows(size)}
	if err := fillState(a.ctx, conn, r.Rows); err != nil {
		return err
	}
	changed := min(c.Changed, r.Rows)
	r.Changed = changed * (rowPayload + 8)
	step := r.Rows / changed
	var durations, syncs []float64
	var samples []sample
	m := c.meter()
	for round := range c.Rounds {
		// Rows all over the table, other ones each time, with new text.
		update := fmt.Sprintf("UPDATE state SET payload = right(payload, -8) || lpad(to_hex(%d + id), 8, 'g') WHERE id %% %d = %d", round*7919, step, int64(round)%step)
		if err := runAll(a.ctx, conn, update); err != nil {
			return err
		}
		s, err := m.span(func() (int64, error) { return changed, runAll(a.ctx, conn, "CHECKPOINT") })
		if err != nil {
			return err
		}
		last, err := newestOfTables(srv)
		if err != nil {
			return err
		}
		r.State, r.Uploaded = last.FullSize, r.Uploaded+last.UploadedBytes
		durations, syncs = append(durations, millis(last.Duration)), append(syncs, millis(last.Sync))
		s.extra = []metric{{float64(last.Duration), "checkpoint-ns"}, {float64(last.Sync), "sync-ns"}, {float64(last.UploadedBytes), "uploaded-bytes"}}
		samples = append(samples, s)
	}
	r.figures, r.Duration, r.Sync = figuresOf(samples, "", nil), median(durations), median(syncs)
	r.Uploaded /= int64(c.Rounds)
	r.UploadRatio = float64(r.Uploaded) / float64(r.Changed)
	return c.print(a, fmt.Sprintf("checkpoint/%dMiB", size>>20), &r, &r.figures, fmt.Sprintf("state %d MiB (%d rows), %d KiB changed: checkpoint %.0f ms, of which synchronous %.3f ms, %d KiB uploaded (%.2f of what changed)",
		r.State>>20, r.Rows, r.Changed>>10, r.Duration, r.Sync, r.Uploaded>>10, r.UploadRatio))
}

type benchRestore struct {
	benchFlags
	stateFlags
}

type restoreResult struct {
	From    string `json:"from"` // local, store
	figures        // from the start of the server until the first row is read; events are the rows that are there
	State   int64  `json:"state_bytes"`
	// FullScan is the time from the start until all rows have been counted, in seconds.
	FullScan float64 `json:"full_scan_seconds"`
}

// Run is `streamdb bench restore`: the server is killed, and started again from local disk, and once more with the data directory gone, from the checkpoint directory.
func (c *benchRestore) Run(a *app) error {
	c.CheckpointInterval = 0
	for _, size := range c.State {
		if err := c.inDirs(c.benchFlags, func(f *benchFlags) error { return c.measure(a, f, int64(size)) }); err != nil {
			return err
		}
	}
	return nil
}

func (c *benchRestore) measure(a *app, f *benchFlags, size int64) error {
	rows, state := stateRows(size), int64(0)
	if err := f.withServer(a, func(srv *server.Server, _ *dialer, conn *pgx.Conn) error {
		if err := fillState(a.ctx, conn, rows); err != nil {
			return err
		}
		last, err := newestOfTables(srv)
		state = last.FullSize
		return err
	}); err != nil {
		return err
	}
	for _, from := range []string{"local", "store"} {
		if from == "store" {
			if err := errors.Join(os.RemoveAll(filepath.Join(f.DataDir, "jobs")), os.RemoveAll(filepath.Join(f.DataDir, "wal")), os.RemoveAll(filepath.Join(f.DataDir, "catalog"))); err != nil {
				return err
			}
			f.Profile = "" // it is of the start from local disk
		}
		r := restoreResult{From: from, State: state}
		s, err := c.restart(a, f, rows, &r.FullScan)
		if err != nil {
			return err
		}
		r.figures = figuresOf([]sample{s}, "", nil)
		if err := c.print(a, fmt.Sprintf("restore/%s/%dMiB", from, size>>20), &r, &r.figures, fmt.Sprintf("state %d MiB (%d rows): first row after a crash in %.2f s (%.0f MB/s), all rows counted in %.2f s",
			r.State>>20, rows, r.Seconds, float64(r.State)/r.Seconds/1e6, r.FullScan)); err != nil {
			return err
		}
	}
	return nil
}

// restart measures the time until a row is read, and then until all have been.
func (c *benchRestore) restart(a *app, f *benchFlags, rows int64, all *float64) (s sample, err error) {
	m := f.meter()
	if err := m.start(); err != nil {
		return s, err
	}
	err = f.withServer(a, func(_ *server.Server, _ *dialer, conn *pgx.Conn) error {
		var n int64
		if err := conn.QueryRow(a.ctx, "SELECT length(payload) FROM state WHERE id = $1", rows/2).Scan(&n); err != nil {
			return err
		}
		var err error
		if s, err = m.stop(rows); err != nil {
			return err
		}
		if err := conn.QueryRow(a.ctx, "SELECT count(*) FROM state").Scan(&n); err != nil {
			return err
		}
		if *all = time.Since(m.began).Seconds(); n != rows {
			return fmt.Errorf("%d rows of %d are there after the restart", n, rows)
		}
		return nil
	})
	return s, errors.Join(err, m.prof.stop())
}

// payloadRows is the text of rows with random payloads.
type payloadRows struct {
	rows, next int64
	rng        *rand.ChaCha8
	raw        [rowPayload * 3 / 4]byte
	buf        []byte
	unread     []byte
}

// Read implements io.Reader.
func (p *payloadRows) Read(b []byte) (int, error) {
	if len(p.unread) == 0 {
		if p.next == p.rows {
			return 0, io.EOF
		}
		p.buf = p.buf[:0]
		for ; p.next < p.rows && len(p.buf) < copyBlock; p.next++ {
			_, _ = p.rng.Read(p.raw[:]) // never fails
			p.buf = append(strconv.AppendInt(p.buf, p.next, 10), '\t')
			p.buf = append(base64.RawURLEncoding.AppendEncode(p.buf, p.raw[:]), '\n')
		}
		p.unread = p.buf
	}
	n := copy(b, p.unread)
	p.unread = p.unread[n:]
	return n, nil
}
