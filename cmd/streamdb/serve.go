package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"net"
	"net/http"
	"os"
	"os/signal"
	"reflect"
	"regexp"
	"runtime/debug"
	"strings"
	"sync/atomic"
	"syscall"
	"time"

	"go.yaml.in/yaml/v3"

	"github.com/streamdb/streamdb"
	"github.com/streamdb/streamdb/connector"
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

	setFrom map[string]string // those of Set that a configuration file gave, and its path
}

type serveCmd struct {
	dbFlags
	Listen   string `help:"Address for PostgreSQL clients." default:"127.0.0.1:5433" env:"STREAMDB_LISTEN"`
	HTTP     string `name:"http" help:"Address for health, metrics and REST; empty: none." default:"127.0.0.1:8433" env:"STREAMDB_HTTP"`
	Config   string `help:"YAML file with the same names as the flags; flags win." env:"STREAMDB_CONFIG" type:"path"`
	Standby  bool   `help:"High availability: servers with the same --checkpoint-dir elect a leader, the others wait for it to fail." env:"STREAMDB_STANDBY"`
	Insecure bool   `help:"Trust clients from everywhere as if they were on this machine, until the superuser has a password." env:"STREAMDB_INSECURE"`
	securityFlags
}

// securityFlags say who may connect.
type securityFlags struct {
	HBA                   string `name:"hba" help:"File of rules in the form of pg_hba.conf. Default: loopback is trusted until the superuser has a password, all others need one." env:"STREAMDB_HBA" type:"path"`
	TLSCert               string `name:"tls-cert" help:"File of the server's certificate (PEM)." env:"STREAMDB_TLS_CERT" type:"path"`
	TLSKey                string `name:"tls-key" help:"File of its key (PEM)." env:"STREAMDB_TLS_KEY" type:"path"`
	TLSClientCA           string `name:"tls-client-ca" help:"File of the authorities of client certificates (PEM)." env:"STREAMDB_TLS_CLIENT_CA" type:"path"`
	TLSMinVersion         string `name:"tls-min-version" help:"Oldest version offered: TLSv1.2 or TLSv1.3." default:"TLSv1.2" env:"STREAMDB_TLS_MIN_VERSION"`
	SuperuserPasswordFile string `help:"File whose first line becomes the password of the role streamdb." env:"STREAMDB_SUPERUSER_PASSWORD_FILE" type:"path"`
}

func (f *securityFlags) apply(o *streamdb.Options) error {
	o.HBAFile, o.TLSCert, o.TLSKey, o.TLSClientCA, o.TLSMinVersion = f.HBA, f.TLSCert, f.TLSKey, f.TLSClientCA, f.TLSMinVersion
	if (f.TLSCert == "") != (f.TLSKey == "") {
		return usageError{errors.New("--tls-cert and --tls-key belong together")}
	}
	if f.SuperuserPasswordFile != "" {
		var err error
		o.SuperuserPassword, err = server.ReadPasswordFile(f.SuperuserPasswordFile)
		return err
	}
	o.SuperuserPassword = os.Getenv(superuserPasswordEnv)
	return nil
}

// superuserPasswordEnv may hold the superuser's first password; there is no flag for it, as command lines are seen by others.
const superuserPasswordEnv = "STREAMDB_SUPERUSER_PASSWORD"

// fileConfig is the configuration file.
type fileConfig struct {
	DataDir       *string           `yaml:"data-dir"`
	CheckpointDir *string           `yaml:"checkpoint-dir"`
	Memory        *string           `yaml:"memory"`
	EpochInterval *time.Duration    `yaml:"epoch-interval"`
	Listen        *string           `yaml:"listen"`
	HTTP          *string           `yaml:"http"`
	Insecure      *bool             `yaml:"insecure"`
	Standby       *bool             `yaml:"standby"`
	HBA           *string           `yaml:"hba"`
	TLSCert       *string           `yaml:"tls-cert"`
	TLSKey        *string           `yaml:"tls-key"`
	TLSClientCA   *string           `yaml:"tls-client-ca"`
	TLSMinVersion *string           `yaml:"tls-min-version"`
	PasswordFile  *string           `yaml:"superuser-password-file"`
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
	if err := dec.Decode(&fc); err != nil && !errors.Is(err, io.EOF) { // an empty file says nothing
		return usageError{configError(c.Config, err)}
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
	str(&c.HBA, "", fc.HBA)
	str(&c.TLSCert, "", fc.TLSCert)
	str(&c.TLSKey, "", fc.TLSKey)
	str(&c.TLSClientCA, "", fc.TLSClientCA)
	str(&c.TLSMinVersion, "TLSv1.2", fc.TLSMinVersion)
	str(&c.SuperuserPasswordFile, "", fc.PasswordFile)
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
	if fc.Standby != nil && *fc.Standby {
		c.Standby = true
	}
	for k, v := range fc.Settings {
		if _, given := c.Set[k]; !given {
			if c.Set == nil {
				c.Set = map[string]string{}
			}
			if c.setFrom == nil {
				c.setFrom = map[string]string{}
			}
			c.Set[k], c.setFrom[k] = v, c.Config
		}
	}
	return nil
}

var (
	unknownKey = regexp.MustCompile("^line ([0-9]+): field (.*) not found in type ")
	wrongValue = regexp.MustCompile("(?s)^line ([0-9]+): cannot unmarshal !!([a-z]+) ?(.*) into (.*)$")
)

// configError tells what is wrong with the configuration file: the first thing, as its writer sees it.
func configError(file string, err error) error {
	var te *yaml.TypeError
	if !errors.As(err, &te) || len(te.Errors) == 0 {
		return fmt.Errorf("%s: %w", file, err)
	}
	first := te.Errors[0]
	if m := unknownKey.FindStringSubmatch(first); m != nil {
		var names []string
		for t, i := reflect.TypeFor[fileConfig](), 0; i < t.NumField(); i++ {
			names = append(names, t.Field(i).Tag.Get("yaml"))
		}
		err := pgerr.Newf(pgerr.InvalidParameterValue, "%s, line %s: there is no %q", file, m[1], m[2])
		if best := connector.Nearest(m[2], names); best != "" {
			return err.WithHint("Perhaps you meant %q.", best)
		}
		return err.WithHint("There are: %s. Server settings are below %q.", strings.Join(names, ", "), "settings")
	}
	if m := wrongValue.FindStringSubmatch(first); m != nil {
		given := map[string]string{"seq": "a list", "map": "a mapping"}[m[2]]
		if given == "" {
			given = strings.Trim(m[3], "`")
		}
		want := map[string]string{"string": "a text", "bool": "true or false", "time.Duration": "a duration such as 100ms"}[m[4]]
		if want == "" {
			want = "names with values"
		}
		return pgerr.Newf(pgerr.InvalidParameterValue, "%s, line %s: expected %s, not %s", file, m[1], want, given)
	}
	return fmt.Errorf("%s: %w", file, err)
}

func (f *dbFlags) options(a *app) streamdb.Options {
	return streamdb.Options{
		DataDir: f.DataDir, CheckpointDir: f.CheckpointDir, Memory: int64(f.Memory), Cores: a.cores, EpochInterval: f.EpochInterval, Settings: f.Set, SettingsFrom: f.setFrom, Logger: a.log,
		Failpoints: f.Failpoints,
	}
}

// heapGrowth is the GOGC of servers, in percent. Data paths reuse their memory, and what lives long has few pointers: the collector may wait.
const heapGrowth = 400

// heapReserve is the part of --memory that the heap may take beyond it before the collector works without pause: what statements and queues hold, and garbage.
const heapReserve = 8

// limitHeap tells the garbage collector about --memory, unless GOMEMLIMIT does: it collects harder when the heap comes near it. Until then
// it collects rarely, unless GOGC says otherwise.
func limitHeap(memory int64) {
	if os.Getenv("GOGC") == "" {
		debug.SetGCPercent(heapGrowth)
	}
	if os.Getenv("GOMEMLIMIT") == "" {
		debug.SetMemoryLimit(memory + memory/heapReserve)
	}
}

// listenOn listens on the address that a flag gives.
func listenOn(address, flag string) (net.Listener, error) {
	l, err := net.Listen("tcp", address)
	if errors.Is(err, syscall.EADDRINUSE) {
		return nil, pgerr.Newf(pgerr.ObjectInUse, "address %s is already in use", address).WithHint("Stop the program that listens there, or give another address with %s.", flag)
	}
	return l, err
}

// Run is `streamdb serve`.
func (c *serveCmd) Run(a *app) error {
	began := time.Now()
	if err := c.loadFile(); err != nil {
		return err
	}
	options := c.options(a)
	options.Insecure = c.Insecure
	if err := c.apply(&options); err != nil {
		return err
	}
	limitHeap(int64(c.Memory))
	l, err := listenOn(c.Listen, "--listen")
	if err != nil {
		return err
	}
	var hl net.Listener
	if c.HTTP != "" {
		if hl, err = listenOn(c.HTTP, "--http"); err != nil {
			return errors.Join(err, l.Close())
		}
	}
	errs := make(chan error, 2)
	web := &webServer{}
	web.handler.Store(handler{streamdb.Starting()})
	if hl != nil {
		web.Server = &http.Server{Handler: web, ReadHeaderTimeout: 10 * time.Second}
		go func() {
			if err := web.Serve(hl); !errors.Is(err, http.ErrServerClosed) {
				errs <- err
			}
		}()
	}
	db, err := c.openDB(a, options, l, web)
	if err != nil {
		if a.ctx.Err() != nil && errors.Is(err, context.Canceled) {
			a.log.Info().Msg("stopped before it was ready")
			err = nil
		}
		return errors.Join(err, l.Close(), web.stop(context.Background()))
	}
	if err := db.CheckListen(l.Addr()); err != nil {
		return usageError{errors.Join(err, l.Close(), db.Close(context.Background()))}
	}
	web.handler.Store(handler{db.HTTPHandler()})
	warnOpenHTTP(a, hl)
	hup := make(chan os.Signal, 1)
	signal.Notify(hup, syscall.SIGHUP)
	defer signal.Stop(hup)
	go func() { errs <- db.Serve(l) }()
	a.log.Info().Str("version", streamdb.Version).Str("listen", l.Addr().String()).Str("http", c.HTTP).Str("data_dir", c.DataDir).
		Dur("start_ms", time.Since(began)).Msg("streamdb is ready")
	var failed error
	for running := true; running; {
		running = false
		select {
		case <-a.ctx.Done():
			a.log.Info().Msg("stopping: last checkpoint, then exit")
		case failed = <-db.Fatal():
		case failed = <-errs:
		case <-hup:
			_ = db.Reload() // the server has logged it; what was in force stays so
			running = true
		}
	}
	ctx, cancel := context.WithTimeout(context.Background(), stopTimeout)
	defer cancel()
	failed = errors.Join(failed, web.stop(ctx))
	return errors.Join(failed, db.Close(ctx))
}

// settingsOfStandby are what --standby stands for.
const (
	settingHA         = "high-availability.type"
	settingAdvertised = "high-availability.advertised-address"
)

// openDB opens the database. While it waits for the lead, clients on l are told so.
func (c *serveCmd) openDB(a *app, o streamdb.Options, l net.Listener, web *webServer) (*streamdb.DB, error) {
	settings := maps.Clone(o.Settings)
	if settings == nil {
		settings = map[string]string{}
	}
	if c.Standby {
		settings[settingHA] = "storage"
	}
	if settings[settingAdvertised] == "" {
		settings[settingAdvertised] = l.Addr().String()
	}
	o.Settings = settings
	tcp, _ := l.(*net.TCPListener) // there is no other kind
	waiting, opened := context.WithCancel(a.ctx)
	defer opened()
	served := make(chan error, 1)
	served <- nil
	o.OnStandby = func(b *streamdb.Standby) {
		web.handler.Store(handler{b.HTTPHandler()})
		<-served
		go func() { served <- b.Serve(waiting, tcp) }()
	}
	db, err := streamdb.Open(a.ctx, o)
	opened()
	if serr := <-served; serr != nil && err == nil {
		err = errors.Join(serr, db.Close(context.Background()))
	}
	return db, err
}

// webServer is the HTTP server, whose handler changes when the database is open.
type webServer struct {
	*http.Server // nil: there is no HTTP port
	handler      atomic.Value
}

// handler makes handlers of several types storable in one atomic.Value.
type handler struct{ http.Handler }

// ServeHTTP implements http.Handler.
func (w *webServer) ServeHTTP(rw http.ResponseWriter, r *http.Request) {
	w.handler.Load().(handler).ServeHTTP(rw, r) //nolint:forcetypeassert // nothing else is stored
}

func (w *webServer) stop(ctx context.Context) error {
	if w.Server == nil {
		return nil
	}
	return w.Shutdown(ctx)
}

// stopTimeout bounds a graceful stop.
const stopTimeout = 60 * time.Second

// warnOpenHTTP says that the HTTP port asks nobody who they are.
func warnOpenHTTP(a *app, l net.Listener) {
	if l == nil {
		return
	}
	if t, ok := l.Addr().(*net.TCPAddr); ok && !t.IP.IsLoopback() {
		a.log.Warn().Str("http", l.Addr().String()).Msg("the HTTP port is open to others: it shows health, metrics and the names of jobs to everybody")
	}
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
