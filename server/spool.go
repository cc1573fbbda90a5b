package server

import (
	"errors"
	"os"
	"sort"

	"github.com/streamdb/streamdb/internal/pgerr"
	"github.com/streamdb/streamdb/types"
)

// spoolMemoryBytes is how much a spool keeps in memory before it goes to a file.
const spoolMemoryBytes = 4 << 20

// spool keeps the rows of a cursor that moves backward or outlives its transaction: in memory at first, then in a temporary file without a
// name, which the system removes with the process. Rows count from 1.
type spool struct {
	types   []types.Type
	limit   int64 // bytes, < 0: none
	parts   []spoolPart
	memory  []byte // all parts while there is no file
	file    *os.File
	bytes   int64
	scratch []byte
}

// spoolPart is one encoded chunk.
type spoolPart struct {
	first int64 // its first row
	at    int64
	size  int
}

// add appends a chunk whose first row has the given number.
func (s *spool) add(first int64, c *types.Chunk) error {
	s.scratch = types.AppendChunk(s.scratch[:0], c)
	n := int64(len(s.scratch))
	if s.file == nil && s.bytes+n > spoolMemoryBytes {
		if err := s.toFile(); err != nil {
			return err
		}
	}
	if s.file == nil {
		s.memory = append(s.memory, s.scratch...)
	} else {
		if s.limit >= 0 && s.bytes+n > s.limit {
			return pgerr.Newf(pgerr.ConfigurationLimitExceeded, "temporary file size exceeds temp_file_limit (%dkB)", s.limit>>10).
				WithHint("Fetch the rows within the transaction, without SCROLL and WITH HOLD, or raise temp_file_limit.")
		}
		if _, err := s.file.WriteAt(s.scratch, s.bytes); err != nil {
			return pgerr.Wrap(pgerr.IOError, err, "write the rows of a cursor")
		}
	}
	s.parts = append(s.parts, spoolPart{first: first, at: s.bytes, size: len(s.scratch)})
	s.bytes += n
	return nil
}

func (s *spool) toFile() error {
	f, err := os.CreateTemp("", "streamdb-cursor-*")
	if err != nil {
		return pgerr.Wrap(pgerr.IOError, err, "create a file for the rows of a cursor")
	}
	if err := os.Remove(f.Name()); err != nil {
		return pgerr.Wrap(pgerr.IOError, errors.Join(err, f.Close()), "create a file for the rows of a cursor")
	}
	if _, err := f.WriteAt(s.memory, 0); err != nil {
		return pgerr.Wrap(pgerr.IOError, errors.Join(err, f.Close()), "write the rows of a cursor")
	}
	s.file, s.memory = f, nil
	return nil
}

// read returns the chunk that holds a row, and the number of the chunk's first row.
func (s *spool) read(row int64) (*types.Chunk, int64, error) {
	i := sort.Search(len(s.parts), func(i int) bool { return s.parts[i].first > row }) - 1
	p := s.parts[i]
	var b []byte
	if s.file == nil {
		b = s.memory[p.at : p.at+int64(p.size)]
	} else {
		b = make([]byte, p.size)
		if _, err := s.file.ReadAt(b, p.at); err != nil {
			return nil, 0, pgerr.Wrap(pgerr.IOError, err, "read the rows of a cursor")
		}
	}
	c, err := types.DecodeChunk(b, s.types)
	return c, p.first, err
}

func (s *spool) close() {
	if s.file != nil {
		_ = s.file.Close() // its content is not needed any more
	}
	s.parts, s.memory, s.file = nil, nil, nil
}
