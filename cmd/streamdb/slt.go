package main

import (
	"context"
	"fmt"
	"strconv"

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
		NewServer: sltServer(log, a.cores),
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
const sltMemory = 256 << 20 // bytes

// sltServer opens a server of this process for one test file.
func sltServer(log zerolog.Logger, cores int) slt.NewServer {
	return slt.Embedded(func(ctx context.Context, dir string, o slt.ServerOptions) (slt.Database, error) {
		opts := streamdb.Options{DataDir: dir, MemoryOnly: !o.Durable, Memory: sltMemory, Cores: cores, Settings: map[string]string{}, Logger: log}
		if o.ChunkRows > 0 {
			opts.Settings["chunk_rows"] = strconv.Itoa(o.ChunkRows)
		}
		return streamdb.Open(ctx, opts)
	})
}
