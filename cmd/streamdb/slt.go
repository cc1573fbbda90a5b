package main

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"strconv"

	"github.com/jackc/pgx/v5/pgconn"
	"github.com/rs/zerolog"

	"github.com/streamdb/streamdb"
	"github.com/streamdb/streamdb/internal/slt"
)

type sltCmd struct {
	URL     string   `help:"Run against this server instead of one in this process: postgres://user@host:port/database."`
	Mode    string   `help:"batch, view-first, data-first, restart, parallel, several separated by commas, or all." default:"batch"`
	Rewrite bool     `help:"Write the rows that come back into the files."`
	Workers int      `help:"Files at a time." default:"1"`
	Files   []string `arg:"" help:"Files, folders, patterns."`
}

// Run is `streamdb slt`.
func (c *sltCmd) Run(a *app) error {
	log := a.log.Level(max(a.log.GetLevel(), zerolog.ErrorLevel))
	sum, err := slt.Main(a.ctx, slt.Options{
		URL: c.URL, Modes: c.Mode, Files: c.Files, Out: a.stdout, Rewrite: c.Rewrite, Workers: c.Workers,
		NewServer: func(ctx context.Context, o slt.ServerOptions) (slt.Target, error) { return newSltTarget(ctx, o, log) },
	})
	if err != nil {
		return err
	}
	if sum.Failed > 0 {
		return fmt.Errorf("%d records failed", sum.Failed)
	}
	return nil
}

// sltMemory is what one server of a test file may use: several run at the same time.
const sltMemory = 256 << 20

// sltTarget is a server of this process for one test file.
type sltTarget struct {
	db   *streamdb.DB
	opts streamdb.Options
}

func newSltTarget(ctx context.Context, o slt.ServerOptions, log zerolog.Logger) (slt.Target, error) {
	t := &sltTarget{opts: streamdb.Options{MemoryOnly: !o.Durable, Memory: sltMemory, Settings: map[string]string{}, Logger: log}}
	if o.ChunkRows > 0 {
		t.opts.Settings["chunk_rows"] = strconv.Itoa(o.ChunkRows)
	}
	var err error
	if o.Durable {
		if t.opts.DataDir, err = os.MkdirTemp("", "streamdb-slt-"); err != nil {
			return nil, err
		}
	}
	if t.db, err = streamdb.Open(ctx, t.opts); err != nil {
		return nil, errors.Join(err, t.remove())
	}
	return t, nil
}

// Connect implements slt.Target.
func (t *sltTarget) Connect(ctx context.Context) (*pgconn.PgConn, error) {
	cfg, err := pgconn.ParseConfig("postgres://streamdb@streamdb/streamdb?sslmode=disable")
	if err != nil {
		return nil, err
	}
	dial := t.db.DialFunc()
	cfg.DialFunc = func(ctx context.Context, network, addr string) (net.Conn, error) { return dial(ctx, network, addr) }
	cfg.LookupFunc = func(context.Context, string) ([]string, error) { return []string{"127.0.0.1"}, nil }
	return pgconn.ConnectConfig(ctx, cfg)
}

// Restart implements slt.Target.
func (t *sltTarget) Restart(ctx context.Context) error {
	if t.opts.MemoryOnly {
		return slt.ErrCannotRestart
	}
	if err := t.db.Abort(); err != nil {
		return err
	}
	var err error
	t.db, err = streamdb.Open(ctx, t.opts)
	return err
}

// Close implements slt.Target.
func (t *sltTarget) Close(context.Context) error {
	var err error
	if t.db != nil {
		err = t.db.Abort()
	}
	return errors.Join(err, t.remove())
}

func (t *sltTarget) remove() error {
	if t.opts.DataDir == "" {
		return nil
	}
	return os.RemoveAll(t.opts.DataDir)
}
