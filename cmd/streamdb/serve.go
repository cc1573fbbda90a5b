package main

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"os"
	"runtime/debug"
	"time"

	"go.yaml.in/yaml/v3"

	"github.com/streamdb/streamdb"
	"github.com/streamdb/streamdb/internal/pgerr"
	"github.com/streamdb/streamdb/server"
)

// dbFlags are the flags of everything that opens a database.
type dbFlags struct {
	DataDir       string            `help:"Local directory of the database." default:"./streamdb-data" env:"STREAMDB_DATA_DIR"`
	CheckpointDir string            `help:"Where checkpoints go: file:///dir, s3://bucket/prefix?endpoint=…&region=…&force_path_style=true, memory://. Default: a folder in the data directory." env:"STREAMDB_CHECKPOINT_DIR"`
	Memory        byteSize          `help:"Memory for state and caches." default:"2GiB" env:"STREAMDB_MEMORY"`
	EpochInterval time.Duration     `help:"How often epochs close while sources produce rows." default:"100ms" env:"STREAMDB_EPOCH_INTERVAL"`
	Set           map[string]string `help:"Server settings, such as --set execution.checkpointing.interval=1s." env:"STREAMDB_SET" mapsep:"," `
	Failpoints    string            `help:"Faults for tests: name=action;…" env:"STREAMDB_FAILPOINTS" hidden:""`
}

type serveCmd struct {
	dbFlags
	Listen   string `help:"Address for PostgreSQL clients." default:"127.0.0.1:5433" env:"STREAMDB_LISTEN"`
	HTTP     string `name:"http" help:"Address for health, metrics and REST; empty: none." default:"127.0.0.1:8433" env:"STREAMDB_HTTP"`
	Config   string `help:"YAML file with the same names as the flags; flags win." env:"STREAMDB_CONFIG" type:"path"`
	Insecure bool   `help:"Allow a listen address that is not loopback although connections are neither encrypted nor authenticated." env:"STREAMDB_INSECURE"`
}

// fileConfig is the configuration file.
type fileConfig struct {
	DataDir       *string           `yaml:"data-dir"`
	CheckpointDir *string           `yaml:"checkpoint-dir"`
	Memory        *string           `yaml:"memory"`
	EpochInterval *time.Duration    `yaml:"epoch-interval"`
	Listen        *string           `yaml:"listen"`
	HTTP          *string           `yaml:"http"`
	Insecure      *bool             `yaml:"insecure"`
	Settings      map[string]string `yaml:"settings"`
}

// loadFile fills in what the file says and the command line left at its default.
func (c *serveCmd) loadFile() error {
	if c.Config == "" {
		return nil
	}
	f, err := os.Open(c.Config)
	if err != nil {
		return usageError{err}
	}
	defer f.Close() //nolint:errcheck // read only
	var fc fileConfig
	dec := yaml.NewDecoder(f)
	dec.KnownFields(true)
	if err := dec.Decode(&fc); err != nil {
		return usageError{fmt.Errorf("%s: %w", c.Config, err)}
	}
	str := func(into *string, def string, v *string) {
		if v != nil && *into == def {
			*into = *v
		}
	}
	str(&c.DataDir, server.DefaultDataDir, fc.DataDir)
	str(&c.CheckpointDir, "", fc.CheckpointDir)
	str(&c.Listen, server.DefaultListen, fc.Listen)
	str(&c.HTTP, server.DefaultHTTP, fc.HTTP)
	if fc.Memory != nil && c.Memory == server.DefaultMemory {
		if err := c.Memory.UnmarshalText([]byte(*fc.Memory)); err != nil {
			return usageError{fmt.Errorf("%s: memory: %w", c.Config, err)}
		}
	}
	if fc.EpochInterval != nil && c.EpochInterval == server.DefaultEpochInterval {
		c.EpochInterval = *fc.EpochInterval
	}
	if fc.Insecure != nil && *fc.Insecure {
		c.Insecure = true
	}
	for k, v := range fc.Settings {
		if _, given := c.Set[k]; !given {
			if c.Set == nil {
				c.Set = map[string]string{}
			}
			c.Set[k] = v
		}
	}
	return nil
}

func (f *dbFlags) options(a *app) streamdb.Options {
	return streamdb.Options{
		DataDir: f.DataDir, CheckpointDir: f.CheckpointDir, Memory: int64(f.Memory), EpochInterval: f.EpochInterval, Settings: f.Set, Logger: a.log,
		Failpoints: f.Failpoints,
	}
}

// heapGrowth is the GOGC of servers, in percent. Data paths reuse their memory, and what lives long has few pointers: the collector may wait.
const heapGrowth = 400

// limitHeap tells the garbage collector about --memory, unless GOMEMLIMIT does: it collects harder when the heap comes near it. Until then
// it collects rarely, unless GOGC says otherwise.
func limitHeap(memory int64) {
	if os.Getenv("GOGC") == "" {
		debug.SetGCPercent(heapGrowth)
	}
	if os.Getenv("GOMEMLIMIT") == "" {
		debug.SetMemoryLimit(memory + memory/2)
	}
}

// Run is `streamdb serve`.
func (c *serveCmd) Run(a *app) error {
	began := time.Now()
	if err := c.loadFile(); err != nil {
		return err
	}
	if err := c.checkListen(); err != nil {
		return err
	}
	limitHeap(int64(c.Memory))
	l, err := net.Listen("tcp", c.Listen)
	if err != nil {
		return fmt.Errorf("listen: %w", err)
	}
	var hl net.Listener
	if c.HTTP != "" {
		if hl, err = net.Listen("tcp", c.HTTP); err != nil {
			return errors.Join(fmt.Errorf("listen for HTTP: %w", err), l.Close())
		}
	}
	db, err := streamdb.Open(a.ctx, c.options(a))
	if err != nil {
		return errors.Join(err, l.Close())
	}
	errs := make(chan error, 2)
	go func() { errs <- db.Serve(l) }()
	var web *http.Server
	if hl != nil {
		web = &http.Server{Handler: db.HTTPHandler(), ReadHeaderTimeout: 10 * time.Second}
		go func() {
			if err := web.Serve(hl); !errors.Is(err, http.ErrServerClosed) {
				errs <- err
			}
		}()
	}
	a.log.Info().Str("version", streamdb.Version).Str("listen", l.Addr().String()).Str("http", c.HTTP).Str("data_dir", c.DataDir).
		Dur("start_ms", time.Since(began)).Msg("streamdb is ready")
	var failed error
	select {
	case <-a.ctx.Done():
		a.log.Info().Msg("stopping: last checkpoint, then exit")
	case failed = <-db.Fatal():
	case failed = <-errs:
	}
	ctx, cancel := context.WithTimeout(context.Background(), stopTimeout)
	defer cancel()
	if web != nil {
		failed = errors.Join(failed, web.Shutdown(ctx))
	}
	return errors.Join(failed, db.Close(ctx))
}

// stopTimeout bounds a graceful stop.
const stopTimeout = 60 * time.Second

func (c *serveCmd) checkListen() error {
	host, _, err := net.SplitHostPort(c.Listen)
	if err != nil {
		return usageError{fmt.Errorf("--listen %s: %w", c.Listen, err)}
	}
	ip := net.ParseIP(host)
	if host == "localhost" || (ip != nil && ip.IsLoopback()) || c.Insecure {
		return nil
	}
	return usageError{fmt.Errorf("--listen %s is not a loopback address: connections are neither encrypted nor authenticated; add --insecure to allow it", c.Listen)}
}

// describe prints an error with its hint.
func describe(err error) string {
	var e *pgerr.Error
	if !errors.As(err, &e) {
		return err.Error()
	}
	s := err.Error()
	if e.Detail != "" {
		s += "\n  detail: " + e.Detail
	}
	if e.Hint != "" {
		s += "\n  hint: " + e.Hint
	}
	return s
}
