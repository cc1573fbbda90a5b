package main

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/rs/zerolog"

	"github.com/streamdb/streamdb/checkpoint"
	"github.com/streamdb/streamdb/connector/all"
	"github.com/streamdb/streamdb/internal/failpoint"
	"github.com/streamdb/streamdb/server"
)

type benchCmd struct {
	Nexmark      benchNexmark      `cmd:"" help:"Queries of the Nexmark benchmark, generator in process."`
	Ingest       benchIngest       `cmd:"" help:"Files of CSV, JSON and Avro into a view of all rows, and into sums per window."`
	Backfill     benchBackfill     `cmd:"" help:"CREATE MATERIALIZED VIEW over a table that is full, against the query alone."`
	Lookup       benchLookup       `cmd:"" help:"Point lookups on a view over the PostgreSQL protocol."`
	Insert       benchInsert       `cmd:"" help:"Single rows into a table over the PostgreSQL protocol."`
	Copy         benchCopy         `cmd:"" help:"COPY into a table with views on it."`
	Freshness    benchFreshness    `cmd:"" help:"Time from INSERT until the row is visible in a view."`
	Memory       benchMemory       `cmd:"" help:"Memory per group of an aggregation, and per row of a join."`
	Bounded      benchBounded      `cmd:"" help:"State of windows, sessions and joins in time over a long stream."`
	Checkpoint   benchCheckpoint   `cmd:"" help:"Duration and size of checkpoints, or what they take from a busy view."`
	Restore      benchRestore      `cmd:"" help:"Start after a crash, from local disk and from the checkpoint directory."`
	Backpressure benchBackpressure `cmd:"" help:"A checkpoint of a view that cannot keep up."`
}

// benchFlags are common to all benchmarks.
type benchFlags struct {
	Memory             byteSize      `help:"Memory for state and caches." default:"2GiB"`
	CheckpointInterval time.Duration `help:"Time between checkpoints; 0: none." default:"1s"`
	DataDir            string        `help:"Where to keep data during the run. Default: a temporary directory."`
	JSON               bool          `name:"json" help:"Print one JSON object per result." xor:"form"`
	GoBench            bool          `help:"Print one line of Go's benchmark format per round, for benchstat." xor:"form"`
	Profile            string        `help:"Directory for cpu, heap, allocs and mutex.pprof, and the last seconds as trace.out, of the last measured round." type:"path"`
	CheckpointDir      string        `hidden:""`
	failpoints         *failpoint.Set
	Set                []string `help:"Server settings: name=value." sep:"none"`
}

// open starts a server with checkpoints into files.
func (f *benchFlags) open(a *app) (srv *server.Server, done func() error, err error) {
	settings := map[string]string{"execution.checkpointing.interval": f.CheckpointInterval.String()}
	for _, kv := range f.Set {
		k, v, ok := strings.Cut(kv, "=")
		if !ok {
			return nil, nil, usageError{fmt.Errorf("--set %s: name=value is wanted", kv)}
		}
		settings[k] = v
	}
	dir, remove := f.DataDir, func() error { return nil }
	if dir == "" {
		if dir, err = os.MkdirTemp("", "streamdb-bench-"); err != nil {
			return nil, nil, err
		}
		remove = func() error { return os.RemoveAll(dir) }
	}
	limitHeap(int64(f.Memory))
	srv, err = server.Open(a.ctx, server.Config{
		DataDir: dir, CheckpointDir: f.CheckpointDir, Failpoints: f.failpoints, Memory: int64(f.Memory), Cores: a.cores, Settings: settings, Logger: a.log.Level(max(a.log.GetLevel(), zerolog.WarnLevel)), Connectors: all.Builtin(),
	})
	if err != nil {
		return nil, nil, errors.Join(err, remove())
	}
	return srv, func() error { return errors.Join(srv.Abort(), remove()) }, nil
}

// dialer connects clients of a benchmark: over TCP, as clients do.
type dialer struct {
	listener net.Listener
	served   chan error
}

func listen(srv *server.Server) (*dialer, error) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return nil, err
	}
	d := &dialer{listener: l, served: make(chan error, 1)}
	go func() { d.served <- srv.Serve(l) }()
	return d, nil
}

func (d *dialer) connect(ctx context.Context) (*pgx.Conn, error) {
	return pgx.Connect(ctx, "postgres://streamdb@"+d.listener.Addr().String()+"/streamdb?sslmode=disable")
}

// withServer opens a server with a port and a connection for the benchmark's own statements.
func (f *benchFlags) withServer(a *app, run func(srv *server.Server, d *dialer, conn *pgx.Conn) error) (err error) {
	srv, done, err := f.open(a)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, done()) }()
	d, err := listen(srv)
	if err != nil {
		return err
	}
	conn, err := d.connect(a.ctx)
	if err != nil {
		return err
	}
	defer conn.Close(context.WithoutCancel(a.ctx)) //nolint:errcheck // the server goes away with it
	return run(srv, d, conn)
}

// newestCheckpoint is the newest of the selected ones in the history.
func newestCheckpoint(srv *server.Server, of func(checkpoint.JobCheckpoint) bool) (checkpoint.JobCheckpoint, error) {
	all := srv.Coordinator().Stats().Checkpoints
	if i := slices.IndexFunc(all, of); i >= 0 {
		return all[i], nil
	}
	return checkpoint.JobCheckpoint{}, errors.New("there is no checkpoint of what is measured")
}

// runAll executes statements one after the other.
func runAll(ctx context.Context, c *pgx.Conn, stmts ...string) error {
	for _, s := range stmts {
		if _, err := c.Exec(ctx, s); err != nil {
			return fmt.Errorf("%s: %w", s, err)
		}
	}
	return nil
}
