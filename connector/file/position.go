package file

import (
	"encoding/binary"

	"github.com/cespare/xxhash/v2"

	"github.com/streamdb/streamdb/internal/pgerr"
)

// positionVersion starts every position.
const positionVersion = 1

// tailBytes is how many bytes before a position are hashed into it: a file that does not have them there is another file.
const tailBytes = 64

// Flags of a position.
const (
	flagSkipping = 1 << iota // inside a row that is too long
	flagDone                 // the file was read to its end for good, or refused
)

// position is where reading goes on, encoded as
//
//	version u8 · flags u8 · generation uvarint · offset uvarint · line uvarint · hash of the bytes before offset, u64 little-endian
//
// The generation counts how often the file was truncated or replaced and read from its start again. The offset is of the decompressed
// bytes.
type position struct {
	flags      byte
	generation uint64
	offset     int64
	line       int64
	tail       uint64
}

func (p *position) encode() []byte {
	b := []byte{positionVersion, p.flags}
	b = binary.AppendUvarint(b, p.generation)
	b = binary.AppendUvarint(b, uint64(p.offset))
	b = binary.AppendUvarint(b, uint64(p.line))
	return binary.LittleEndian.AppendUint64(b, p.tail)
}

func decodePosition(b []byte) (p position, err error) {
	bad := pgerr.Newf(pgerr.DataCorrupted, "invalid position of a file: %x", b)
	if len(b) < 2 || b[0] != positionVersion {
		return p, bad
	}
	p.flags = b[1]
	rest := b[2:]
	var v [3]uint64
	for i := range v {
		n := 0
		if v[i], n = binary.Uvarint(rest); n <= 0 {
			return p, bad
		}
		rest = rest[n:]
	}
	if len(rest) != 8 || v[1] > 1<<62 || v[2] > 1<<62 {
		return p, bad
	}
	p.generation, p.offset, p.line = v[0], int64(v[1]), int64(v[2])
	p.tail = binary.LittleEndian.Uint64(rest)
	return p, nil
}

// rowIDBase returns what is added to the offset of a row to make its id: the ids of a file are a range, and the ranges of different files
// and generations do not overlap unless 62-bit hashes are nearer than the files are long.
func rowIDBase(path string, generation uint64) int64 {
	return int64(xxhash.Sum64(binary.LittleEndian.AppendUint64([]byte(path), generation)) >> 2)
}
