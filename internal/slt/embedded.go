package slt

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"

	"github.com/jackc/pgx/v5/pgconn"
)

// Database is a server in this process.
type Database interface {
	DialFunc() func(ctx context.Context, network, addr string) (net.Conn, error)
	Abort() error
	Close(ctx context.Context) error
}

// Open opens a database in a directory, which is empty the first time. dir is "" when nothing is to be kept.
type Open func(ctx context.Context, dir string, opts ServerOptions) (Database, error)

// embedded is a target in this process.
type embedded struct {
	open Open
	opts ServerOptions
	dir  string
	db   Database
}

// Embedded returns a factory of servers in this process, each in a temporary directory of its own.
func Embedded(open Open) NewServer {
	return func(ctx context.Context, opts ServerOptions) (Target, error) {
		t := &embedded{open: open, opts: opts}
		var err error
		if opts.Durable {
			if t.dir, err = os.MkdirTemp("", "slt-data-"); err != nil {
				return nil, fmt.Errorf("make a data directory: %w", err)
			}
		}
		if t.db, err = open(ctx, t.dir, opts); err != nil {
			return nil, errors.Join(err, t.remove())
		}
		return t, nil
	}
}

func (t *embedded) remove() error {
	if t.dir == "" {
		return nil
	}
	return os.RemoveAll(t.dir)
}

// Connect implements Target.
func (t *embedded) Connect(ctx context.Context) (*pgconn.PgConn, error) {
	cfg, err := pgconn.ParseConfig("postgres://streamdb@localhost/streamdb?sslmode=disable")
	if err != nil {
		return nil, fmt.Errorf("connection settings: %w", err)
	}
	cfg.DialFunc = t.db.DialFunc()
	cfg.LookupFunc = func(_ context.Context, host string) ([]string, error) { return []string{host}, nil }
	return pgconn.ConnectConfig(ctx, cfg)
}

// Restart implements Target.
func (t *embedded) Restart(ctx context.Context) error {
	if !t.opts.Durable {
		return ErrCannotRestart
	}
	if err := t.db.Abort(); err != nil {
		return fmt.Errorf("abort: %w", err)
	}
	db, err := t.open(ctx, t.dir, t.opts)
	if err != nil {
		t.db = nil
		return fmt.Errorf("open again: %w", err)
	}
	t.db = db
	return nil
}

// Close implements Target.
func (t *embedded) Close(ctx context.Context) error {
	var err error
	if t.db != nil {
		if t.dir == "" {
			err = t.db.Close(ctx)
		} else {
			err = t.db.Abort() // what a last checkpoint would write is removed next
		}
	}
	return errors.Join(err, t.remove())
}
