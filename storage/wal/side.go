package wal

import (
	"bufio"
	"crypto/rand"
	"encoding/binary"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"github.com/streamdb/streamdb/internal/pgerr"
)

const (
	sideSuffix        = ".side"
	sideMagic         = "SDBSIDE\x00"
	sideVersion       = 1
	sideHeaderBytes   = 32
	sideBlockHeader   = 8
	maxSideBlockBytes = 1 << 30
	sideBufferBytes   = 256 << 10
)

// Side is a file beside the log, for what is too large to be a record: it is written and made durable first, and counts from the moment when a
// record of the log names it. Files that no record names are removed by RemoveSides. Not safe for concurrent use.
type Side struct {
	wal   *WAL
	name  string
	file  *os.File // nil once finished
	out   *bufio.Writer
	bytes int64
}

// NewSide begins a file.
func (w *WAL) NewSide() (*Side, error) {
	var id [8]byte
	if _, err := rand.Read(id[:]); err != nil {
		return nil, pgerr.Wrap(pgerr.SystemError, err, "name a file of the write-ahead log")
	}
	s := &Side{wal: w, name: hex.EncodeToString(id[:]) + sideSuffix}
	file, err := os.OpenFile(s.path(), os.O_RDWR|os.O_CREATE|os.O_EXCL, 0o644)
	if err != nil {
		return nil, w.report(err)
	}
	s.file, s.out = file, bufio.NewWriterSize(file, sideBufferBytes)
	header := make([]byte, sideHeaderBytes)
	copy(header, sideMagic)
	binary.BigEndian.PutUint32(header[8:], sideVersion)
	binary.BigEndian.PutUint32(header[28:], castagnoli(header[:28]))
	if err := s.write(header); err != nil {
		return nil, errors.Join(err, s.Remove())
	}
	return s, nil
}

func (s *Side) path() string { return filepath.Join(s.wal.dir, s.name) }

// Name is what a record calls the file.
func (s *Side) Name() string { return s.name }

// Bytes is the size so far.
func (s *Side) Bytes() int64 { return s.bytes }

func (s *Side) write(b []byte) error {
	n, err := s.out.Write(b)
	s.bytes += int64(n)
	if err != nil {
		return s.wal.report(err)
	}
	return nil
}

// Append adds a block.
func (s *Side) Append(block []byte) error {
	if err := s.wal.opts.Failpoints.Hit("wal/side"); err != nil {
		return s.wal.report(err)
	}
	var h [sideBlockHeader]byte
	binary.BigEndian.PutUint32(h[:], uint32(len(block)))
	binary.BigEndian.PutUint32(h[4:], castagnoli(block))
	if err := s.write(h[:]); err != nil {
		return err
	}
	return s.write(block)
}

// Finish makes the file durable; nothing is added after it.
func (s *Side) Finish() error {
	err := s.out.Flush()
	if err == nil {
		err = fdatasync(s.file)
	}
	err = errors.Join(err, s.file.Close())
	s.file = nil
	if err == nil {
		err = syncDir(s.wal.dir)
	}
	if err != nil {
		return s.wal.report(err)
	}
	return nil
}

// Remove gives the file up.
func (s *Side) Remove() error {
	var err error
	if s.file != nil {
		err = s.file.Close()
		s.file = nil
	}
	return errors.Join(err, os.Remove(s.path()))
}

// ReadSide calls f with each block of a finished file of the given size; the block is lent for the call.
func (w *WAL) ReadSide(name string, size int64, f func(block []byte) error) error {
	path := filepath.Join(w.dir, filepath.Base(name))
	file, err := os.Open(path)
	if err != nil {
		return pgerr.Wrap(pgerr.IOError, err, "could not read the write-ahead log")
	}
	defer file.Close() //nolint:errcheck // read only
	info, err := file.Stat()
	if err != nil {
		return pgerr.Wrap(pgerr.IOError, err, "could not read the write-ahead log")
	}
	if info.Size() != size {
		return damaged(path, info.Size(), "the file has %d bytes instead of %d", info.Size(), size)
	}
	in := bufio.NewReaderSize(file, sideBufferBytes)
	header := make([]byte, sideHeaderBytes)
	if _, err := io.ReadFull(in, header); err != nil || string(header[:8]) != sideMagic || binary.BigEndian.Uint32(header[28:]) != castagnoli(header[:28]) {
		return damaged(path, 0, "it does not begin as it should")
	}
	if v := binary.BigEndian.Uint32(header[8:]); v > sideVersion {
		return pgerr.Newf(pgerr.FeatureNotSupported, "%s has format version %d, this binary reads up to %d", path, v, sideVersion).
			WithHint("It was written by a newer version of streamdb: use that version.")
	}
	var block []byte
	for off := int64(sideHeaderBytes); off < size; off += sideBlockHeader + int64(len(block)) {
		var h [sideBlockHeader]byte
		if _, err := io.ReadFull(in, h[:]); err != nil {
			return damaged(path, off, "the block header is cut off")
		}
		n := int64(binary.BigEndian.Uint32(h[:]))
		if n > maxSideBlockBytes || n > size-off-sideBlockHeader {
			return damaged(path, off, "the block's length is wrong")
		}
		if int64(cap(block)) < n {
			block = make([]byte, n)
		}
		block = block[:n]
		if _, err := io.ReadFull(in, block); err != nil {
			return pgerr.Wrap(pgerr.IOError, err, "could not read the write-ahead log")
		}
		if castagnoli(block) != binary.BigEndian.Uint32(h[4:]) {
			return damaged(path, off, "the block's checksum is wrong")
		}
		if err := f(block); err != nil {
			return err
		}
	}
	return nil
}

// RemoveSide removes a file that is not needed any more; it may be gone already.
func (w *WAL) RemoveSide(name string) error {
	if err := os.Remove(filepath.Join(w.dir, filepath.Base(name))); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return pgerr.Wrap(pgerr.IOError, err, "could not shorten the write-ahead log")
	}
	return nil
}

// RemoveSides removes the files that are not among those named: what a crash left of transactions that were not committed.
func (w *WAL) RemoveSides(named map[string]bool) error {
	entries, err := os.ReadDir(w.dir)
	if err != nil {
		return pgerr.Wrap(pgerr.IOError, err, "could not read the write-ahead log")
	}
	for _, e := range entries {
		if !strings.HasSuffix(e.Name(), sideSuffix) || named[e.Name()] {
			continue
		}
		if err := w.RemoveSide(e.Name()); err != nil {
			return fmt.Errorf("%s: %w", e.Name(), err)
		}
	}
	return nil
}
