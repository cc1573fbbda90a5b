package file

import (
	"encoding/binary"

	"github.com/cespare/xxhash/v2"

	"github.com/streamdb/streamdb/internal/pgerr"
)

// Versions of positions. The second one adds what is known of rotated files.
const (
	positionVersion        = 1
	positionVersionRotated = 2
)

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
// and in version 2, which is written for followed files,
//
//	floor uvarint · identity of the file · count uvarint · identities of the files that wait · count uvarint · files read
//
// where the floor is the time of modification, in ns since 1970, of the newest file when it was last seen at the path, an identity is two uvarints,
// device and inode, and a file read is its identity, its end as uvarint and the hash of the bytes before its end.
//
// The generation counts how often the file was truncated or replaced and read from its start again. The offset is of the decompressed
// bytes.
type position struct {
	flags      byte
	generation uint64
	offset     int64
	line       int64
	tail       uint64

	floor   int64 // 0: unknown
	current identity
	queue   []identity
	read    []readFile
}

func (p *position) encode() []byte {
	rotated := p.floor != 0 || p.current != identity{} || len(p.queue) > 0 || len(p.read) > 0
	version := byte(positionVersion)
	if rotated {
		version = positionVersionRotated
	}
	b := []byte{version, p.flags}
	b = binary.AppendUvarint(b, p.generation)
	b = binary.AppendUvarint(b, uint64(p.offset))
	b = binary.AppendUvarint(b, uint64(p.line))
	b = binary.LittleEndian.AppendUint64(b, p.tail)
	if !rotated {
		return b
	}
	b = binary.AppendUvarint(b, uint64(p.floor))
	b = appendIdentity(b, p.current)
	b = binary.AppendUvarint(b, uint64(len(p.queue)))
	for _, id := range p.queue {
		b = appendIdentity(b, id)
	}
	b = binary.AppendUvarint(b, uint64(len(p.read)))
	for _, f := range p.read {
		b = binary.AppendUvarint(appendIdentity(b, f.identity), uint64(f.end))
		b = binary.LittleEndian.AppendUint64(b, f.tail)
	}
	return b
}

func appendIdentity(b []byte, id identity) []byte {
	return binary.AppendUvarint(binary.AppendUvarint(b, id.dev), id.ino)
}

// positionReader takes values off an encoded position. Its values are zero once something is missing.
type positionReader struct {
	rest []byte
	bad  bool
}

func (d *positionReader) uvarint() uint64 {
	v, n := binary.Uvarint(d.rest)
	if n <= 0 {
		d.bad = true
		return 0
	}
	d.rest = d.rest[n:]
	return v
}

func (d *positionReader) length(limit uint64) int64 {
	v := d.uvarint()
	if v > limit {
		d.bad = true
		return 0
	}
	return int64(v)
}

func (d *positionReader) fixed() uint64 {
	if len(d.rest) < 8 {
		d.bad = true
		return 0
	}
	v := binary.LittleEndian.Uint64(d.rest)
	d.rest = d.rest[8:]
	return v
}

func (d *positionReader) identity() identity { return identity{dev: d.uvarint(), ino: d.uvarint()} }

func decodePosition(b []byte) (p position, err error) {
	bad := pgerr.Newf(pgerr.DataCorrupted, "invalid position of a file: %x", b)
	if len(b) < 2 || b[0] != positionVersion && b[0] != positionVersionRotated {
		return p, bad
	}
	d := positionReader{rest: b[2:]}
	const maxOffset = 1 << 62
	p = position{flags: b[1], generation: d.uvarint(), offset: d.length(maxOffset), line: d.length(maxOffset), tail: d.fixed()}
	if b[0] == positionVersionRotated {
		p.floor, p.current = d.length(maxOffset<<1-1), d.identity()
		for range d.length(maxPending) {
			p.queue = append(p.queue, d.identity())
		}
		for range d.length(maxRead) {
			p.read = append(p.read, readFile{identity: d.identity(), end: d.length(maxOffset), tail: d.fixed()})
		}
	}
	if d.bad || len(d.rest) > 0 {
		return position{}, bad
	}
	return p, nil
}

// rowIDBase returns what is added to the offset of a row to make its id: the ids of a file are a range, and the ranges of different files
// and generations do not overlap unless 62-bit hashes are nearer than the files are long.
func rowIDBase(path string, generation uint64) int64 {
	return int64(xxhash.Sum64(binary.LittleEndian.AppendUint64([]byte(path), generation)) >> 2)
}
