package state

import (
	"encoding/binary"
	"unsafe"
)

const (
	groupBytes = 2 // key group, big endian, in front of every key in an overlay
	tableBytes = 4
	diskPrefix = groupBytes + tableBytes // key group and table id, in front of every key in an SST

	// entryOverhead is what an entry costs on the heap beyond its key and value: its slot in a node that is three quarters full,
	// the node's share, and rounding to the allocator's size classes.
	entryOverhead = 64
)

// entry is a version of one key in an overlay. Its bytes never change once it is in a tree, so frozen trees and views may share it.
type entry struct {
	kv   string // key group, key, value
	klen uint32 // length of key group and key
	meta uint32 // seq<<2 | fresh | tombstone
}

const (
	metaTombstone uint32 = 1 << iota
	// metaFresh marks an entry that no earlier seal holds in any form: deleting it leaves nothing to say to a snapshot.
	metaFresh
	metaShift = 2
)

func (e entry) key() string     { return e.kv[:e.klen] }
func (e entry) seq() uint32     { return e.meta >> metaShift }
func (e entry) tombstone() bool { return e.meta&metaTombstone != 0 }
func (e entry) fresh() bool     { return e.meta&metaFresh != 0 }
func (e entry) value() []byte   { return bytesOf(e.kv[e.klen:]) }
func (e entry) group() uint16   { return uint16(e.kv[0])<<8 | uint16(e.kv[1]) }
func (e entry) size() int64     { return int64(len(e.kv)) + entryOverhead }

// newEntry copies key and val into one allocation.
func newEntry(kg uint16, key, val []byte, meta uint32) entry {
	b := make([]byte, groupBytes+len(key)+len(val))
	binary.BigEndian.PutUint16(b, kg)
	copy(b[groupBytes:], key)
	copy(b[groupBytes+len(key):], val)
	return entry{kv: stringOf(b), klen: uint32(groupBytes + len(key)), meta: meta}
}

// bytesOf views the bytes of a string that nobody may modify.
func bytesOf(s string) []byte {
	if len(s) == 0 {
		return []byte{}
	}
	return unsafe.Slice(unsafe.StringData(s), len(s))
}

// stringOf views bytes that are not modified any more, or for a look-up that keeps no reference.
func stringOf(b []byte) string { return unsafe.String(unsafe.SliceData(b), len(b)) }

// probe makes an entry that is a key only.
func probe(k string) entry { return entry{kv: k, klen: uint32(len(k))} }

func appendGroupKey(dst []byte, kg uint16, key []byte) []byte {
	dst = binary.BigEndian.AppendUint16(dst, kg)
	return append(dst, key...)
}

func appendDiskKey(dst []byte, kg uint16, table uint32, key []byte) []byte {
	dst = binary.BigEndian.AppendUint16(dst, kg)
	dst = binary.BigEndian.AppendUint32(dst, table)
	return append(dst, key...)
}
