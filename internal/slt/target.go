package slt

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync/atomic"

	"github.com/jackc/pgx/v5/pgconn"
)

// Target is the server that a file runs against. One file in one mode has one Target of its own.
type Target interface {
	// Connect opens a session.
	Connect(ctx context.Context) (*pgconn.PgConn, error)
	// Restart stops the server hard, without a last checkpoint, and opens it again over the same data. Sessions are lost.
	// It returns ErrCannotRestart where the server is not the caller's own.
	Restart(ctx context.Context) error
	// Close stops the server and removes what it stored.
	Close(ctx context.Context) error
}

// ErrCannotRestart is returned by Restart of a server that belongs to somebody else.
var ErrCannotRestart = errors.New("the server cannot be restarted from here")

// ServerOptions is what a mode asks of its server.
type ServerOptions struct {
	Durable   bool // data in a directory, so that Restart finds it again
	ChunkRows int  // rows per chunk; 0: the default
}

// NewServer opens a fresh, empty server.
type NewServer func(ctx context.Context, opts ServerOptions) (Target, error)

// urlTarget is a server somewhere else. Each file gets a database of its own, or a schema where databases cannot be created.
type urlTarget struct {
	base     *pgconn.Config
	database string
	schema   string
}

// newURL returns a factory of targets at a connection URL.
func newURL(url string, run string) (NewServer, error) {
	cfg, err := pgconn.ParseConfig(url)
	if err != nil {
		return nil, fmt.Errorf("parse --url: %w", err)
	}
	var n atomic.Int64
	return func(ctx context.Context, _ ServerOptions) (Target, error) {
		t := &urlTarget{base: cfg}
		name := fmt.Sprintf("slt_%s_%d", run, n.Add(1))
		c, err := pgconn.ConnectConfig(ctx, cfg.Copy())
		if err != nil {
			return nil, fmt.Errorf("connect: %w", err)
		}
		defer c.Close(ctx)
		// The order of texts is by bytes in files, as it is in streamdb.
		create := "CREATE DATABASE " + name + " TEMPLATE template0 ENCODING 'UTF8' LC_COLLATE 'C' LC_CTYPE 'C'"
		if _, err := c.Exec(ctx, create).ReadAll(); err == nil {
			t.database = name
			return t, nil
		}
		if _, err := c.Exec(ctx, "CREATE SCHEMA "+name).ReadAll(); err != nil {
			return nil, fmt.Errorf("create schema: %w", err)
		}
		t.schema = name
		return t, nil
	}, nil
}

// Connect implements Target.
func (t *urlTarget) Connect(ctx context.Context) (*pgconn.PgConn, error) {
	cfg := t.base.Copy()
	if t.database != "" {
		cfg.Database = t.database
	}
	if t.schema != "" {
		cfg.RuntimeParams["search_path"] = t.schema
	}
	return pgconn.ConnectConfig(ctx, cfg)
}

// Restart implements Target.
func (t *urlTarget) Restart(context.Context) error { return ErrCannotRestart }

// Close implements Target.
func (t *urlTarget) Close(ctx context.Context) error {
	c, err := pgconn.ConnectConfig(ctx, t.base.Copy())
	if err != nil {
		return fmt.Errorf("connect: %w", err)
	}
	defer c.Close(ctx)
	drop := "DROP DATABASE " + t.database + " WITH (FORCE)"
	if t.schema != "" {
		drop = "DROP SCHEMA " + t.schema + " CASCADE"
	}
	_, err = c.Exec(ctx, drop).ReadAll()
	return err
}

// session is one connection of a file.
type session struct {
	pg     *pgconn.PgConn
	replay []string // SET and PREPARE statements, run again after a restart
}

func (s *session) idle() bool { return s.pg.TxStatus() == 'I' }

// exec runs SQL by the simple protocol, in which values come in text form, and returns the last result.
func (s *session) exec(ctx context.Context, sql string) (*result, error) {
	all := s.pg.Exec(ctx, sql)
	out := &result{}
	for all.NextResult() {
		rows := all.ResultReader()
		*out = result{}
		for _, f := range rows.FieldDescriptions() {
			out.types = append(out.types, f.DataTypeOID)
		}
		for rows.NextRow() {
			row := make([]string, len(out.types))
			for i, v := range rows.Values() {
				row[i] = cell(v)
			}
			out.rows = append(out.rows, row)
		}
		out.tag, _ = rows.Close() // the error comes from all.Close too
	}
	if err := all.Close(); err != nil {
		return nil, err
	}
	return out, nil
}

// sqlstate is the code of a server's error, "" for others.
func sqlstate(err error) string {
	var e *pgconn.PgError
	if errors.As(err, &e) {
		return e.Code
	}
	return ""
}

func describe(err error) string {
	var e *pgconn.PgError
	if !errors.As(err, &e) {
		return err.Error()
	}
	s := e.Code + " " + e.Message
	if e.Detail != "" {
		s += " (" + strings.ReplaceAll(e.Detail, "\n", "; ") + ")"
	}
	return s
}
