package main

import (
	"encoding/base64"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/streamdb/streamdb/checkpoint"
	"github.com/streamdb/streamdb/exec"
	"github.com/streamdb/streamdb/server"
	"github.com/streamdb/streamdb/storage/object"
)

type benchCheckpoint struct {
	benchFlags
	State   []byteSize    `help:"Sizes of the state to measure with, one after the other." default:"1MiB,256MiB"`
	Changed int64         `help:"Rows changed before each checkpoint." default:"1000"`
	Rounds  int           `help:"Checkpoints measured; of times the median counts." default:"5"`
	Restore bool          `help:"Kill the server after that and measure the start, from local disk and, with the data directory gone, from the checkpoint directory."`
	Loss    bool          `help:"Measure instead what checkpoints every second cost a busy view with a state of that size: rounds with them and without, in turn."`
	Hot     float64       `help:"With --loss: the share of the groups that change." default:"0.01"`
	Window  time.Duration `help:"With --loss: how long a round takes, with checkpoints until one is complete." default:"5s"`
	To      string        `help:"Checkpoint directory URL. Default: a folder in the data directory." placeholder:"URL"`
}

// rowPayload is the length of the text in a row of the measured table: hardly compressible, so that a row is about as long on disk.
const rowPayload = 1000

type checkpointResult struct {
	State    int64   `json:"state_bytes"`
	Rows     int64   `json:"rows"`
	Changed  int64   `json:"changed_bytes"`
	Duration float64 `json:"duration_ms"`
	Sync     float64 `json:"sync_ms"`
	Uploaded int64   `json:"uploaded_bytes"`
	// UploadRatio is uploaded to changed bytes.
	UploadRatio float64        `json:"upload_ratio"`
	Restore     *restoreResult `json:"restore,omitempty"`
}

// restoreResult are the times from the start of the server to the answer of the first query.
type restoreResult struct {
	Local         float64 `json:"local_seconds"`
	Store         float64 `json:"store_seconds"`
	StoreBytes    int64   `json:"store_bytes"`
	StorePerSec   float64 `json:"store_bytes_per_second"`
	FullScanLocal float64 `json:"local_full_scan_seconds"`
}

// Run is `streamdb bench checkpoint`: for each size of the state the same rows are changed before each checkpoint.
func (c *benchCheckpoint) Run(a *app) error {
	c.CheckpointInterval = 0
	for _, size := range c.State {
		if c.Loss {
			r, err := c.measureLoss(a, int64(size))
			if err != nil {
				return err
			}
			if err := c.show(a, r, fmt.Sprintf("state %d MiB (%d groups, %d of them change): %.0f rows/s without checkpoints, %.0f with one every second: loss %.1f %%, of rows per CPU-second %.1f %%; %d checkpoints of %d KiB",
				r.State>>20, r.Groups, r.Hot, r.Without, r.With, r.Loss, r.CPULoss, r.Checkpoints, r.Uploaded>>10)); err != nil {
				return err
			}
			continue
		}
		r, err := c.measure(a, int64(size))
		if err != nil {
			return err
		}
		line := fmt.Sprintf("state %d MiB (%d rows), %d KiB changed: checkpoint %.0f ms, of which synchronous %.3f ms, %d KiB uploaded (%.2f of what changed)",
			r.State>>20, r.Rows, r.Changed>>10, r.Duration, r.Sync, r.Uploaded>>10, r.UploadRatio)
		if s := r.Restore; s != nil {
			line += fmt.Sprintf("; first row after a crash in %.2f s from local disk, in %.2f s from the checkpoint directory (%.0f MB/s), all rows counted in %.2f s",
				s.Local, s.Store, s.StorePerSec/1e6, s.FullScanLocal)
		}
		if err := c.show(a, r, line); err != nil {
			return err
		}
	}
	return nil
}

func (c *benchCheckpoint) measure(a *app, size int64) (r checkpointResult, err error) {
	f := c.benchFlags
	if f.DataDir == "" {
		if f.DataDir, err = os.MkdirTemp("", "streamdb-bench-"); err != nil {
			return r, err
		}
		defer func() { err = errors.Join(err, os.RemoveAll(f.DataDir)) }()
	}
	f.CheckpointDir = c.To
	if f.CheckpointDir == "" {
		f.CheckpointDir = object.FolderURL(filepath.Join(f.DataDir, "checkpoints"))
	}
	r.Rows = max(1, size/rowPayload)
	err = f.withServer(a, func(srv *server.Server, _ *dialer, conn *pgx.Conn) error { return c.rounds(a, srv, conn, &r) })
	if err != nil || !c.Restore {
		return r, err
	}
	r.Restore = &restoreResult{StoreBytes: r.State}
	if r.Restore.Local, r.Restore.FullScanLocal, err = c.restart(a, &f, r.Rows); err != nil {
		return r, err
	}
	if err := errors.Join(os.RemoveAll(filepath.Join(f.DataDir, "jobs")), os.RemoveAll(filepath.Join(f.DataDir, "wal")), os.RemoveAll(filepath.Join(f.DataDir, "catalog"))); err != nil {
		return r, err
	}
	f.Profile = "" // of the start from local disk
	r.Restore.Store, _, err = c.restart(a, &f, r.Rows)
	r.Restore.StorePerSec = float64(r.State) / r.Restore.Store
	return r, err
}

// rounds fills the table and measures checkpoints of the same changes.
func (c *benchCheckpoint) rounds(a *app, srv *server.Server, conn *pgx.Conn, r *checkpointResult) error {
	if err := runAll(a.ctx, conn, "CREATE TABLE state (id bigint PRIMARY KEY, payload text)"); err != nil {
		return err
	}
	if _, err := conn.PgConn().CopyFrom(a.ctx, &payloadRows{rows: r.Rows, rng: rand.NewChaCha8([32]byte{})}, "COPY state FROM STDIN"); err != nil {
		return err
	}
	// The second one settles what the first has begun in the background.
	if err := runAll(a.ctx, conn, "CHECKPOINT", "UPDATE state SET payload = payload WHERE id = 0", "CHECKPOINT"); err != nil {
		return err
	}
	changed := min(c.Changed, r.Rows)
	r.Changed = changed * (rowPayload + 8)
	step := r.Rows / changed
	var durations, syncs []float64
	var uploads []int64
	for round := range c.Rounds {
		// Rows all over the table, other ones each time, with new text.
		update := fmt.Sprintf("UPDATE state SET payload = right(payload, -8) || lpad(to_hex(%d + id), 8, 'g') WHERE id %% %d = %d", round*7919, step, int64(round)%step)
		if err := runAll(a.ctx, conn, update, "CHECKPOINT"); err != nil {
			return err
		}
		last, err := newestCheckpoint(srv, func(c checkpoint.JobCheckpoint) bool { return c.Job == exec.TablesID })
		if err != nil {
			return err
		}
		r.State = last.FullSize
		durations, syncs, uploads = append(durations, millis(last.Duration)), append(syncs, millis(last.Sync)), append(uploads, last.UploadedBytes)
	}
	slices.Sort(durations)
	slices.Sort(syncs)
	r.Duration, r.Sync = durations[len(durations)/2], syncs[len(syncs)/2]
	for _, u := range uploads {
		r.Uploaded += u
	}
	r.Uploaded /= int64(len(uploads))
	r.UploadRatio = float64(r.Uploaded) / float64(r.Changed)
	return nil
}

// restart measures the time until a row is read, and then until all have been.
func (c *benchCheckpoint) restart(a *app, f *benchFlags, rows int64) (first, all float64, err error) {
	prof := profiler{dir: f.Profile}
	if err := prof.start(); err != nil {
		return 0, 0, err
	}
	began := time.Now()
	err = f.withServer(a, func(_ *server.Server, _ *dialer, conn *pgx.Conn) error {
		var n int64
		if err := conn.QueryRow(a.ctx, "SELECT length(payload) FROM state WHERE id = $1", rows/2).Scan(&n); err != nil {
			return err
		}
		first = time.Since(began).Seconds()
		if err := prof.stop(); err != nil {
			return err
		}
		if err := conn.QueryRow(a.ctx, "SELECT count(*) FROM state").Scan(&n); err != nil {
			return err
		}
		all = time.Since(began).Seconds()
		if n != rows {
			return fmt.Errorf("%d rows of %d are there after the restart", n, rows)
		}
		return nil
	})
	return first, all, err
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
