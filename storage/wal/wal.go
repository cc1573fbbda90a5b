// Package wal is a segmented append-only log of records with checksums.
package wal

import (
	"errors"

	"github.com/rs/zerolog"

	"github.com/streamdb/streamdb/internal/failpoint"
)

// DefaultSegmentBytes is the size at which a new segment is begun.
const DefaultSegmentBytes = 64 << 20

// Options of Open.
type Options struct {
	SegmentBytes int64 // 0: DefaultSegmentBytes
	Log          zerolog.Logger
	Failpoints   *failpoint.Set
}

// WAL is an open log. Append and Sync belong to one goroutine; the others may be called from any.
type WAL struct{}

// Open opens the log in dir, creating it when missing.
func Open(dir string, opts Options) (*WAL, error) { return nil, errors.ErrUnsupported }

// Append adds a record to the batch that the next Sync writes, and returns its number; numbers begin at 1 and have no gaps.
func (w *WAL) Append(rec []byte) (lsn uint64) { return 0 }

// Sync makes everything appended durable. When it fails nothing of it is in the log, its numbers are given out again, and the log
// stays usable.
func (w *WAL) Sync() error { return errors.ErrUnsupported }

// Next is the number the next Append returns.
func (w *WAL) Next() uint64 { return 0 }

// Replay calls fn for every durable record from number from on. rec is valid during the call.
func (w *WAL) Replay(from uint64, fn func(lsn uint64, rec []byte) error) error {
	return errors.ErrUnsupported
}

// TruncateBefore removes the segments that hold only records before lsn.
func (w *WAL) TruncateBefore(lsn uint64) error { return errors.ErrUnsupported }

// Close releases the files. Appended records that were not synced are lost.
func (w *WAL) Close() error { return errors.ErrUnsupported }
