// Package wal is a segmented, append-only log of records with checksums: what a commit must have on disk before it is acknowledged.
//
//	Append, Append, … ─▶ batch in memory ─▶ Sync: one write, one fdatasync ─▶ frame in the newest segment
//
// A frame is what one Sync writes, so it is there whole or not at all: frame k+1 is written only when frame k is durable, which is why an
// invalid frame with nothing valid after it is the torn end of the last write and is cut off, while one followed by valid frames is
// damage. The bytes are described in docs/formats/wal.md.
package wal

import (
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"

	"github.com/rs/zerolog"

	"github.com/streamdb/streamdb/internal/failpoint"
	"github.com/streamdb/streamdb/internal/pgerr"
)

const (
	// DefaultSegmentBytes is the size at which a new segment is begun.
	DefaultSegmentBytes = 64 << 20
	// MaxRecordBytes bounds a record; a length above it is taken for damage.
	MaxRecordBytes = 1 << 30
	// retainedBatchBytes is how large a batch buffer is kept for the next batch.
	retainedBatchBytes = 4 << 20

	formatVersion      = 2
	segmentMagic       = "SDBWAL\x00\x00"
	segmentHeaderBytes = 32
	frameMagic         = 0x57414c46 // "WALF"
	frameHeaderBytes   = 28
	recordHeaderBytes  = 8
	segmentSuffix      = ".wal"
)

// Options of Open.
type Options struct {
	SegmentBytes int64 // 0: DefaultSegmentBytes
	Log          zerolog.Logger
	Failpoints   *failpoint.Set // "wal/append" before the write, "wal/sync" before the fdatasync
}

// WAL is an open log. Append and Sync belong to one goroutine; the other methods may be called from any.
type WAL struct {
	dir  string
	opts Options

	// batch is the frame under construction, its header's room first; next and count belong to it. Owned by the appending goroutine.
	batch []byte
	count uint32

	mu       sync.Mutex
	next     uint64    // number of the next record to be made durable
	segments []segment // oldest first; the last one is written to
	file     *os.File  // of the last segment
	rotate   bool      // the last segment must not be written to any more
	broken   error     // set when the log cannot be brought back to its last synced length
	closed   bool
}

// segment is a file of the log. size counts durable bytes.
type segment struct {
	path  string
	first uint64
	size  int64
}

func castagnoli(b []byte) uint32 { return crc32.Checksum(b, crc32.MakeTable(crc32.Castagnoli)) }

// Append adds a copy of rec to the batch that the next Sync writes, and returns its number; numbers begin at 1 and have no gaps.
func (w *WAL) Append(rec []byte) (lsn uint64) {
	if len(w.batch) == 0 {
		w.batch = append(w.batch, make([]byte, frameHeaderBytes)...)
	}
	w.batch = binary.BigEndian.AppendUint32(w.batch, uint32(len(rec)))
	w.batch = binary.BigEndian.AppendUint32(w.batch, castagnoli(rec))
	w.batch = append(w.batch, rec...)
	w.count++
	return w.Next() + uint64(w.count) - 1
}

// Next is the number of the first record that is not durable yet.
func (w *WAL) Next() uint64 {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.next
}

// Sync makes everything appended since the last Sync durable. When it fails nothing of that is in the log, its numbers are given out
// again, and the log stays usable; a full disk is reported as 53100.
func (w *WAL) Sync() error {
	if w.count == 0 {
		return nil
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	err := w.writeBatch()
	if err == nil {
		w.next += uint64(w.count)
	}
	w.count = 0
	if w.batch = w.batch[:0]; cap(w.batch) > retainedBatchBytes {
		w.batch = nil
	}
	return err
}

func (w *WAL) writeBatch() error {
	switch {
	case w.closed:
		return pgerr.Newf(pgerr.IOError, "write-ahead log %s is closed", w.dir)
	case w.broken != nil:
		return pgerr.Wrap(pgerr.IOError, w.broken, "write-ahead log %s cannot be written since an earlier error", w.dir)
	}
	if w.rotate || w.last().size >= w.opts.SegmentBytes {
		if err := w.addSegment(w.next); err != nil {
			return w.report(err)
		}
	}
	header := w.batch[:frameHeaderBytes]
	binary.BigEndian.PutUint32(header, frameMagic)
	binary.BigEndian.PutUint64(header[4:], uint64(len(w.batch)-frameHeaderBytes))
	binary.BigEndian.PutUint64(header[12:], w.next)
	binary.BigEndian.PutUint32(header[20:], w.count)
	binary.BigEndian.PutUint32(header[24:], castagnoli(header[:24]))
	seg := w.last()
	err := w.opts.Failpoints.Hit("wal/append")
	if err == nil {
		_, err = w.file.WriteAt(w.batch, seg.size)
	}
	if err == nil {
		err = w.opts.Failpoints.Hit("wal/sync")
	}
	if err == nil {
		err = fdatasync(w.file)
	}
	if err == nil {
		seg.size += int64(len(w.batch))
		return nil
	}
	return w.rollBack(err)
}

// rollBack cuts the segment to what is durable. What a failed fsync left in the page cache cannot be trusted, so writing goes on in a new
// segment.
func (w *WAL) rollBack(cause error) error {
	w.rotate = true
	seg := w.last()
	err := w.file.Truncate(seg.size)
	if err == nil {
		err = fdatasync(w.file)
	}
	if err != nil {
		w.broken = fmt.Errorf("cut %s to %d bytes: %w", seg.path, seg.size, err)
		return w.report(errors.Join(cause, w.broken))
	}
	return w.report(cause)
}

// report codes an error for the user.
func (w *WAL) report(err error) error {
	if errors.Is(err, syscall.ENOSPC) || errors.Is(err, syscall.EDQUOT) {
		return pgerr.Wrap(pgerr.DiskFull, err, "could not write to the write-ahead log").
			WithHint("Free space on the file system of %s; nothing was committed.", w.dir)
	}
	var coded *pgerr.Error
	var point *failpoint.Error
	switch {
	case errors.As(err, &coded):
		return err
	case errors.As(err, &point) && (strings.Contains(point.Message, "no space") || strings.Contains(point.Message, "disk full")):
		return pgerr.Wrap(pgerr.DiskFull, err, "could not write to the write-ahead log")
	}
	return pgerr.Wrap(pgerr.IOError, err, "could not write to the write-ahead log")
}

func (w *WAL) last() *segment { return &w.segments[len(w.segments)-1] }

func segmentPath(dir string, first uint64) string {
	return filepath.Join(dir, fmt.Sprintf("%020d%s", first, segmentSuffix))
}

// addSegment begins the segment whose first record is first. An empty one of that number, left by a failure, is replaced.
func (w *WAL) addSegment(first uint64) error {
	path := segmentPath(w.dir, first)
	header := make([]byte, segmentHeaderBytes)
	copy(header, segmentMagic)
	binary.BigEndian.PutUint32(header[8:], formatVersion)
	binary.BigEndian.PutUint64(header[12:], first)
	binary.BigEndian.PutUint32(header[28:], castagnoli(header[:28]))
	file, err := os.OpenFile(path, os.O_CREATE|os.O_RDWR|os.O_TRUNC, 0o644)
	if err != nil {
		return err
	}
	_, err = file.Write(header)
	if err == nil {
		err = file.Sync()
	}
	if err == nil {
		err = syncDir(w.dir)
	}
	if err != nil {
		if n := len(w.segments); n > 0 && w.segments[n-1].path == path {
			w.broken = fmt.Errorf("begin %s: %w", path, err)
			return errors.Join(err, file.Close())
		}
		return errors.Join(err, file.Close(), os.Remove(path))
	}
	if w.file != nil {
		err = w.file.Close() // everything in it is durable
	}
	w.file, w.rotate = file, false
	if n := len(w.segments); n > 0 && w.segments[n-1].first == first {
		w.segments = w.segments[:n-1]
	}
	w.segments = append(w.segments, segment{path: path, first: first, size: segmentHeaderBytes})
	return err
}

func syncDir(dir string) error {
	d, err := os.Open(dir)
	if err != nil {
		return err
	}
	return errors.Join(d.Sync(), d.Close())
}

// TruncateBefore removes the segments that hold only records before lsn. The newest segment stays.
func (w *WAL) TruncateBefore(lsn uint64) error {
	w.mu.Lock()
	defer w.mu.Unlock()
	n := 0
	for n+1 < len(w.segments) && w.segments[n+1].first <= lsn {
		n++
	}
	if n == 0 {
		return nil
	}
	// Oldest first, so that a crash leaves no gap.
	for i := range n {
		if err := os.Remove(w.segments[i].path); err != nil && !errors.Is(err, fs.ErrNotExist) {
			w.segments = slices.Delete(w.segments, 0, i)
			return pgerr.Wrap(pgerr.IOError, err, "could not shorten the write-ahead log")
		}
	}
	w.segments = slices.Delete(w.segments, 0, n)
	if err := syncDir(w.dir); err != nil {
		return pgerr.Wrap(pgerr.IOError, err, "could not shorten the write-ahead log")
	}
	return nil
}

// First is the number of the oldest record that is still in the log; Next() when there is none.
func (w *WAL) First() uint64 {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.segments[0].first
}

// Size is the number of bytes on disk.
func (w *WAL) Size() int64 {
	w.mu.Lock()
	defer w.mu.Unlock()
	size := int64(0)
	for _, s := range w.segments {
		size += s.size
	}
	return size
}

// Close releases the files. Appended records that were not synced are lost.
func (w *WAL) Close() error {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.closed {
		return nil
	}
	w.closed = true
	return w.file.Close()
}

// listSegments finds the segment files of dir in order.
func listSegments(dir string) ([]segment, error) {
	entries, err := os.ReadDir(dir)
	if err != nil {
		return nil, err
	}
	var segs []segment
	for _, e := range entries {
		digits, ok := strings.CutSuffix(e.Name(), segmentSuffix)
		if !ok {
			continue
		}
		first, err := strconv.ParseUint(digits, 10, 64)
		if err != nil {
			return nil, pgerr.Newf(pgerr.DataCorrupted, "unexpected file %s in the write-ahead log", filepath.Join(dir, e.Name()))
		}
		info, err := e.Info()
		if err != nil {
			return nil, err
		}
		segs = append(segs, segment{path: filepath.Join(dir, e.Name()), first: first, size: info.Size()})
	}
	slices.SortFunc(segs, func(a, b segment) int {
		if a.first < b.first {
			return -1
		}
		return 1
	})
	return segs, nil
}
