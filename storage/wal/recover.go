package wal

import (
	"encoding/binary"
	"errors"
	"fmt"
	"os"

	"github.com/streamdb/streamdb/internal/pgerr"
)

// Open opens the log in dir, creating it when missing. A torn end is cut off and logged; damage before the end is an error (XX001).
func Open(dir string, opts Options) (*WAL, error) {
	if opts.SegmentBytes <= 0 {
		opts.SegmentBytes = DefaultSegmentBytes
	}
	w := &WAL{dir: dir, opts: opts, next: 1}
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return nil, pgerr.Wrap(pgerr.IOError, err, "could not open the write-ahead log")
	}
	segs, err := listSegments(dir)
	if err != nil {
		return nil, pgerr.Wrap(pgerr.CodeOf(err), err, "could not open the write-ahead log")
	}
	w.segments = segs
	if err := w.recover(); err != nil {
		if w.file != nil {
			err = errors.Join(err, w.file.Close())
		}
		return nil, err
	}
	return w, nil
}

// recover checks the last segments, cuts a torn end, and opens the newest segment for writing. Older ones are checked when they are
// replayed.
func (w *WAL) recover() error {
	for len(w.segments) > 0 {
		seg := w.last()
		data, err := os.ReadFile(seg.path)
		if err != nil {
			return pgerr.Wrap(pgerr.IOError, err, "could not read the write-ahead log")
		}
		if err := checkHeader(seg, data); err != nil {
			// The header is synced before the first frame is written, so without frames this is a segment that was never begun.
			if len(data) > segmentHeaderBytes || pgerr.CodeOf(err) != pgerr.DataCorrupted {
				return err
			}
			w.opts.Log.Warn().Str("file", seg.path).Int("bytes", len(data)).Msg("removing a write-ahead log segment that was not finished")
			if err := os.Remove(seg.path); err != nil {
				return pgerr.Wrap(pgerr.IOError, err, "could not open the write-ahead log")
			}
			w.next = seg.first
			w.segments = w.segments[:len(w.segments)-1]
			continue
		}
		end, next, err := scan(seg, data, seg.first, ^uint64(0), true, nil)
		if err != nil {
			return err
		}
		w.next = next
		// What is written from now on may be more than an older binary knows.
		w.rotate = binary.BigEndian.Uint32(data[8:]) < formatVersion
		file, err := os.OpenFile(seg.path, os.O_RDWR, 0)
		if err != nil {
			return pgerr.Wrap(pgerr.IOError, err, "could not open the write-ahead log")
		}
		w.file = file
		if torn := int64(len(data)) - end; torn > 0 {
			w.opts.Log.Warn().Str("file", seg.path).Int64("offset", end).Int64("bytes", torn).Msg("cutting the torn end of the write-ahead log")
			if err := errors.Join(file.Truncate(end), file.Sync()); err != nil {
				return pgerr.Wrap(pgerr.IOError, err, "could not cut the write-ahead log")
			}
		}
		seg.size = end
		return nil
	}
	if err := w.addSegment(w.next); err != nil {
		return w.report(err)
	}
	return nil
}

func damaged(path string, off int64, format string, args ...any) error {
	return pgerr.Newf(pgerr.DataCorrupted, "write-ahead log %s is corrupt at offset %d: %s", path, off, fmt.Sprintf(format, args...)).
		WithHint("Restore the file from a copy, or start from the last checkpoint without the local write-ahead log.")
}

func checkHeader(seg *segment, data []byte) error {
	if len(data) < segmentHeaderBytes || string(data[:8]) != segmentMagic {
		return damaged(seg.path, 0, "it does not begin as a segment does")
	}
	if binary.BigEndian.Uint32(data[28:]) != castagnoli(data[:28]) {
		return damaged(seg.path, 0, "the header's checksum is wrong")
	}
	if v := binary.BigEndian.Uint32(data[8:]); v > formatVersion {
		return pgerr.Newf(pgerr.FeatureNotSupported, "write-ahead log %s has format version %d, this binary reads up to %d", seg.path, v, formatVersion).
			WithHint("It was written by a newer version of streamdb: use that version.")
	}
	if first := binary.BigEndian.Uint64(data[12:]); first != seg.first {
		return damaged(seg.path, 12, "its first record is %d", first)
	}
	return nil
}

// scan walks over the frames of a segment, whose first record must be number expect, and calls fn for records from lsn from on and before
// limit. It returns where the valid frames end, and the number of the record after. In the last segment an invalid end is torn; anywhere
// else it is damage.
func scan(seg *segment, data []byte, from, limit uint64, last bool, fn func(lsn uint64, rec []byte) error) (end int64, next uint64, err error) {
	off, lsn := segmentHeaderBytes, seg.first
	for off < len(data) {
		n, bad, why := checkFrame(data[off:], lsn)
		if n == 0 {
			if !last || nextFrame(data, off+1, lsn+1) >= 0 {
				return 0, 0, damaged(seg.path, int64(off+bad), "%s", why)
			}
			break
		}
		rec := off + frameHeaderBytes
		for range binary.BigEndian.Uint32(data[off+20:]) {
			size := int(binary.BigEndian.Uint32(data[rec:]))
			if fn != nil && lsn >= from && lsn < limit {
				if err := fn(lsn, data[rec+recordHeaderBytes:rec+recordHeaderBytes+size]); err != nil {
					return 0, 0, err
				}
			}
			rec += recordHeaderBytes + size
			lsn++
		}
		off += n
	}
	return int64(off), lsn, nil
}

// checkFrame checks the frame that data begins with, and returns its length. For an invalid one the length is 0, and bad and why tell
// where and what is wrong.
func checkFrame(data []byte, lsn uint64) (n, bad int, why string) {
	if len(data) < frameHeaderBytes {
		return 0, 0, "the frame header is cut off"
	}
	if !frameHeader(data) {
		return 0, 0, "the frame header is invalid"
	}
	if first := binary.BigEndian.Uint64(data[12:]); first != lsn {
		return 0, 12, fmt.Sprintf("the frame begins with record %d instead of %d", first, lsn)
	}
	payload := binary.BigEndian.Uint64(data[4:])
	if payload > uint64(len(data)-frameHeaderBytes) {
		return 0, 4, "the frame is cut off"
	}
	end := frameHeaderBytes + int(payload)
	off := frameHeaderBytes
	for range binary.BigEndian.Uint32(data[20:]) {
		if end-off < recordHeaderBytes {
			return 0, off, "the record header is cut off"
		}
		size := int(binary.BigEndian.Uint32(data[off:]))
		if size > MaxRecordBytes || size > end-off-recordHeaderBytes {
			return 0, off, "the record's length is wrong"
		}
		if castagnoli(data[off+recordHeaderBytes:off+recordHeaderBytes+size]) != binary.BigEndian.Uint32(data[off+4:]) {
			return 0, off, "the record's checksum is wrong"
		}
		off += recordHeaderBytes + size
	}
	if off != end {
		return 0, off, "the frame is longer than its records"
	}
	return end, 0, ""
}

// frameHeader reports whether data begins with a valid frame header.
func frameHeader(data []byte) bool {
	return len(data) >= frameHeaderBytes && binary.BigEndian.Uint32(data) == frameMagic &&
		binary.BigEndian.Uint32(data[24:]) == castagnoli(data[:24])
}

// nextFrame looks for a whole valid frame with records from lsn on at or after off; -1 when there is none. It tells damage, which valid
// frames follow, from a torn end. A frame within a torn frame's payload would have to be a copied log: its numbers then do not fit.
func nextFrame(data []byte, off int, lsn uint64) int {
	for ; off+frameHeaderBytes <= len(data); off++ {
		if data[off] != byte(frameMagic>>24) || !frameHeader(data[off:]) {
			continue
		}
		first := binary.BigEndian.Uint64(data[off+12:])
		if first < lsn {
			continue
		}
		if n, _, _ := checkFrame(data[off:], first); n > 0 {
			return off
		}
	}
	return -1
}

// Replay calls fn for every durable record from number from on, in order. rec is valid during the call. An error of fn ends it.
func (w *WAL) Replay(from uint64, fn func(lsn uint64, rec []byte) error) error {
	w.mu.Lock()
	segs := append([]segment(nil), w.segments...)
	limit := w.next
	w.mu.Unlock()
	if len(segs) == 0 || from >= limit {
		return nil
	}
	if from < segs[0].first {
		from = segs[0].first
	}
	for i := range segs {
		end := limit
		if i+1 < len(segs) {
			end = segs[i+1].first
			if end <= from {
				continue
			}
		}
		if err := replaySegment(&segs[i], from, end, i+1 == len(segs), fn); err != nil {
			return err
		}
	}
	return nil
}

// replaySegment replays one segment, whose records end before end.
func replaySegment(seg *segment, from, end uint64, last bool, fn func(lsn uint64, rec []byte) error) error {
	data, err := os.ReadFile(seg.path)
	if err != nil {
		return pgerr.Wrap(pgerr.IOError, err, "could not read the write-ahead log")
	}
	if int64(len(data)) > seg.size {
		data = data[:seg.size] // the rest was appended meanwhile
	}
	if err := checkHeader(seg, data); err != nil {
		return err
	}
	// A failed write that reached the disk all the same was rolled back: the next segment gives its numbers again.
	off, next, err := scan(seg, data, from, end, !last, fn)
	if err != nil {
		return err
	}
	if next < end || last && off < int64(len(data)) {
		return damaged(seg.path, off, "records %d to %d are missing", next, end-1)
	}
	return nil
}
