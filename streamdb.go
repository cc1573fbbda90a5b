// Package streamdb embeds the streaming database in a Go program: Open restores or creates a database, DialFunc connects pgx to it without
// a port, Serve opens the PostgreSQL port for others, Close checkpoints and stops.
//
//	db, err := streamdb.Open(ctx, streamdb.Options{DataDir: "data"})
//	cfg, err := pgx.ParseConfig("postgres://streamdb@streamdb/streamdb")
//	cfg.DialFunc = db.DialFunc()
//	conn, err := pgx.ConnectConfig(ctx, cfg)
package streamdb

import (
	"context"
	"net"
	"net/http"
	"time"

	"github.com/rs/zerolog"

	"github.com/streamdb/streamdb/auth"
	"github.com/streamdb/streamdb/connector/all"
	"github.com/streamdb/streamdb/internal/failpoint"
	"github.com/streamdb/streamdb/server"
)

// Version is the version of streamdb.
const Version = "0.1.0"

// Options of an embedded database. The zero value works: a database in ./streamdb-data with 2 GiB of memory.
type Options struct {
	// DataDir is the local directory; MemoryOnly keeps nothing.
	DataDir    string
	MemoryOnly bool
	// CheckpointDir is where checkpoints go: file:///dir, s3://bucket/prefix?…, memory://; "" means a folder in DataDir.
	CheckpointDir string
	// Memory in bytes for all caches and state held in memory.
	Memory int64
	// Cores is how many subtasks new views have per fragment unless told otherwise, at most 8; 0 means GOMAXPROCS. A program that runs little beside
	// a busy database does well with a GOMAXPROCS above the number of cores, which keeps clients from waiting for views, and names that number here.
	Cores int
	// EpochInterval is how often epochs close while sources produce rows; 0 means 100 ms.
	EpochInterval time.Duration
	// Settings are server-wide settings by name, such as execution.checkpointing.interval.
	Settings map[string]string
	// SettingsFrom has, by the names of Settings, the configuration files that gave them.
	SettingsFrom map[string]string
	// HBAFile is a file of rules in the form of pg_hba.conf, for connections through Serve; "" means that loopback is trusted until the
	// superuser has a password, and that everybody else needs one. Insecure trusts everybody instead of loopback.
	HBAFile  string
	Insecure bool
	// TLSCert, TLSKey and TLSClientCA are PEM files: the server's certificate, its key, and the authorities of client certificates.
	TLSCert, TLSKey, TLSClientCA string
	TLSMinVersion                string // TLSv1.2 (the default) or TLSv1.3
	// SuperuserPassword becomes that of the role streamdb; "" leaves it as it is.
	SuperuserPassword string
	// OnStandby is told when Open begins to wait for other servers on the same CheckpointDir (the setting high-availability.type = storage). It
	// must return at once; Open returns when this server has become the leader.
	OnStandby func(*Standby)
	// Logger takes the server's log; the zero Logger is silent.
	Logger zerolog.Logger
	// Failpoints is a fault specification for tests: "name=action;…".
	Failpoints string
}

// DB is a running database.
type DB struct{ srv *server.Server }

// Standby answers for a server that waits for the lead.
type Standby struct{ b *server.Standby }

// Serve refuses clients on l with 57P03 and the address of the leader until ctx ends. It does not close l.
func (s *Standby) Serve(ctx context.Context, l *net.TCPListener) error { return s.b.Serve(ctx, l) }

// HTTPHandler serves /healthz (alive), /readyz (503) and /metrics.
func (s *Standby) HTTPHandler() http.Handler { return s.b.HTTPHandler() }

// Starting serves /healthz (alive) and /readyz (503) while a database is being opened.
func Starting() http.Handler { return server.Starting() }

// Open restores the database, or creates it, and starts its jobs.
func Open(ctx context.Context, o Options) (*DB, error) {
	fp, err := failpoint.Parse(o.Failpoints)
	if err != nil {
		return nil, err
	}
	version, err := auth.ParseTLSVersion(o.TLSMinVersion)
	if err != nil {
		return nil, err
	}
	var onStandby func(*server.Standby)
	if o.OnStandby != nil {
		onStandby = func(b *server.Standby) { o.OnStandby(&Standby{b}) }
	}
	s, err := server.Open(ctx, server.Config{
		OnStandby: onStandby,
		DataDir:   o.DataDir, MemoryOnly: o.MemoryOnly, CheckpointDir: o.CheckpointDir, Memory: o.Memory, Cores: o.Cores, EpochInterval: o.EpochInterval,
		Settings: o.Settings, SettingsFrom: o.SettingsFrom, Logger: o.Logger, Failpoints: fp, Connectors: all.Builtin(),
		HBAFile: o.HBAFile, Insecure: o.Insecure, SuperuserPassword: o.SuperuserPassword,
		TLS: auth.TLSFiles{Cert: o.TLSCert, Key: o.TLSKey, CA: o.TLSClientCA, MinVersion: version},
	})
	if err != nil {
		return nil, err
	}
	return &DB{srv: s}, nil
}

// DialFunc returns a function for pgx's ConnConfig.DialFunc that connects inside the process; network and address are ignored.
func (db *DB) DialFunc() func(ctx context.Context, network, addr string) (net.Conn, error) {
	return db.srv.Dial
}

// Serve accepts PostgreSQL connections on l until l or the database is closed.
func (db *DB) Serve(l net.Listener) error { return db.srv.Serve(l) }

// CheckListen returns an error when addr can be reached by others and anybody could come in.
func (db *DB) CheckListen(addr net.Addr) error { return db.srv.CheckListen(addr) }

// Reload reads the file of rules and the certificates again; connections that are open stay.
func (db *DB) Reload() error { return db.srv.ReloadConfig() }

// HTTPHandler serves /metrics, /healthz, /readyz and the REST interface.
func (db *DB) HTTPHandler() http.Handler { return db.srv.HTTPHandler() }

// Fatal delivers the error after which the database cannot go on.
func (db *DB) Fatal() <-chan error { return db.srv.Fatal() }

// Close ends all sessions, writes a last checkpoint and stops.
func (db *DB) Close(ctx context.Context) error { return db.srv.Close(ctx) }

// Abort stops at once, without a last checkpoint, as a crash would; what was acknowledged is still there after the next Open.
func (db *DB) Abort() error { return db.srv.Abort() }
