// Package connector holds sources and sinks: one folder per connector, decoders and encoders in connector/format. A Registry is built
// explicitly by the server; nothing registers itself.
package connector

import (
	"context"
	"time"

	"github.com/streamdb/streamdb/types"
)

// Option describes one option of a connector or a format: documentation and validation are made from it.
type Option struct {
	Name     string
	Required bool
	Default  string
	Doc      string
	// Check validates a value; nil accepts anything.
	Check func(value string) error
}

// SourceConfig is everything a CREATE SOURCE says, after validation against Options.
type SourceConfig struct {
	Name    string
	Options map[string]string
	Format  string // PLAIN
	Encode  string // JSON, CSV; empty when the connector makes typed rows itself
	// EncodeOptions are the options in parentheses after ENCODE.
	EncodeOptions map[string]string
	// Columns declared, or derived by Connector.Schema when none were.
	Columns types.Schema
}

// Connector makes sources of one kind.
type Connector interface {
	// Name is the value of WITH (connector = …).
	Name() string
	// Options lists all options it knows; others are refused by the registry with a hint at the nearest name.
	Options() []Option
	// NeedsEncode tells whether FORMAT … ENCODE … must be given.
	NeedsEncode() bool
	// Schema derives the columns when none are declared, or checks declared ones.
	Schema(cfg *SourceConfig) (types.Schema, error)
	// Source opens the source. It must not block on the outside world longer than ctx.
	Source(ctx context.Context, cfg *SourceConfig) (Source, error)
}

// Keyed is a Connector whose sources may have a column that is different in all rows.
type Keyed interface {
	Connector
	// Key names it, "" when there is none. The configuration has passed Schema.
	Key(cfg *SourceConfig) string
}

// Sized is a Connector that can know how many rows a source has.
type Sized interface {
	Connector
	// Rows is their number in the end, 0 when that is not known. The configuration has passed Schema.
	Rows(cfg *SourceConfig) int64
}

// Split is an independently readable, replayable part of a source: a generator's share, a file. Position is opaque, versioned by
// the connector, and part of checkpoints; nil = from the beginning.
type Split struct {
	ID       string
	Position []byte
}

// Source is a set of splits. Methods may be called from different goroutines, never at once.
type Source interface {
	// Splits lists the splits that exist now. It is called again periodically while a job runs: new ones are assigned, known ones are
	// recognised by ID. Order does not matter.
	Splits(ctx context.Context) ([]Split, error)
	// Bounded reports whether the splits end, so that reading the source as a whole makes sense.
	Bounded() bool
	// Open starts reading a split at its position. columns are the positions in cfg.Columns wanted, in output order; rowID asks for one more
	// int8 column with a number that is unique in the source and the same at every replay.
	Open(ctx context.Context, split Split, columns []int, rowID bool, errs ErrorSink) (Reader, error)
	Close() error
}

// Status tells what Next found.
type Status uint8

// The outcomes of Reader.Next.
const (
	More Status = iota // rows may follow at once
	Idle               // nothing now: ask again after the returned wait
	End                // the split has ended for good
)

// Reader reads one split. It is used by one goroutine.
type Reader interface {
	// Next appends up to max rows to c (empty, of the wanted column types, owned by the caller) and never blocks longer than a few milliseconds.
	// wait is meaningful with Idle. Rows are appended whole or not at all.
	Next(ctx context.Context, c *types.Chunk, max int) (st Status, wait time.Duration, err error)
	// Position is the position after the last row that Next returned.
	Position() []byte
	// Lag is the number of bytes or rows known to be unread, -1 when unknown.
	Lag() int64
	Close() error
}

// ErrorSink takes rows that could not be decoded, and with severity NOTICE remarks that concern no row: where (split, offset or line), why, and the raw text, cut to a named limit.
type ErrorSink interface {
	BadRow(split string, where string, err error, raw []byte)
}
