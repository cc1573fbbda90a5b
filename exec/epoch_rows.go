package exec

import (
	"bytes"
	"hash/maphash"
)

// epochRows is the net effect of an epoch on the keys that it changes: rows of one epoch may arrive in any order.
type epochRows struct {
	rows   []pendingRow // the first is nobody's
	slots  []pendingSlot
	keys   int
	blocks [][]byte // of keys and rows, in use up to the one at block
	block  int
	seed   maphash.Seed
}

// pendingRow is the net effect of an epoch on one key: the rows with their weights.
type pendingRow struct {
	key, row pendingBytes // the key is that of the first row
	hash     uint64       // of the key
	weight   int64
	next     int32 // further rows of the same key, 0 = none
	kg       uint16
	first    bool // of its key
}

// pendingSlot is a place of the hash table of keys, whose size is a power of two.
type pendingSlot struct {
	tag uint32 // of the hash
	row int32  // the first of the key, 0 = none
}

// pendingBytes is the place of bytes in the blocks.
type pendingBytes struct{ block, at, n int32 }

const (
	// pendingBlock is the size of a block in bytes, unless what it holds is longer.
	pendingBlock = 256 << 10
	// minPendingSlots is the least size of the hash table.
	minPendingSlots = 256
	// maxKeptPending rows, maxKeptBlocks blocks are kept from one epoch to the next.
	maxKeptPending = 1 << 16
	maxKeptBlocks  = 16
	tagShift       = 32
)

// keep copies b.
func (e *epochRows) keep(b []byte) pendingBytes {
	for e.block == len(e.blocks) || cap(e.blocks[e.block])-len(e.blocks[e.block]) < len(b) {
		if e.block++; e.block >= len(e.blocks) {
			e.block = len(e.blocks)
			e.blocks = append(e.blocks, make([]byte, 0, max(pendingBlock, len(b))))
		}
	}
	at := len(e.blocks[e.block])
	e.blocks[e.block] = append(e.blocks[e.block], b...)
	return pendingBytes{int32(e.block), int32(at), int32(len(b))}
}

// bytes are valid until reset.
func (e *epochRows) bytes(p pendingBytes) []byte {
	return e.blocks[p.block][p.at : p.at+p.n : p.at+p.n]
}

// add takes a row of the key. Both may be used again.
func (e *epochRows) add(kg uint16, key, row []byte, w int64) {
	if 2*e.keys >= len(e.slots) {
		e.grow()
	}
	hash := maphash.Bytes(e.seed, key)
	mask := uint64(len(e.slots) - 1)
	at := hash & mask
	i := int32(0)
	for ; ; at = (at + 1) & mask {
		s := e.slots[at]
		if s.row == 0 {
			e.rows = append(e.rows, pendingRow{kg: kg, first: true, hash: hash, key: e.keep(key), row: e.keep(row), weight: w})
			e.slots[at] = pendingSlot{tag: uint32(hash >> tagShift), row: int32(len(e.rows) - 1)}
			e.keys++
			return
		}
		if s.tag == uint32(hash>>tagShift) && bytes.Equal(e.bytes(e.rows[s.row].key), key) {
			i = s.row
			break
		}
	}
	free := int32(0)
	for {
		p := &e.rows[i]
		if bytes.Equal(e.bytes(p.row), row) {
			p.weight += w
			return
		}
		if p.weight == 0 && free == 0 {
			free = i
		}
		if p.next == 0 {
			break
		}
		i = p.next
	}
	if free != 0 {
		e.rows[free].row, e.rows[free].weight = e.keep(row), w
		return
	}
	e.rows = append(e.rows, pendingRow{kg: kg, row: e.keep(row), weight: w})
	e.rows[i].next = int32(len(e.rows) - 1)
}

// grow doubles the hash table.
func (e *epochRows) grow() {
	e.slots = make([]pendingSlot, max(minPendingSlots, 2*len(e.slots)))
	mask := uint64(len(e.slots) - 1)
	for i := range e.rows {
		p := &e.rows[i]
		if !p.first {
			continue
		}
		at := p.hash & mask
		for e.slots[at].row != 0 {
			at = (at + 1) & mask
		}
		e.slots[at] = pendingSlot{tag: uint32(p.hash >> tagShift), row: int32(i)}
	}
}

// each calls f with the place of the first row of every key.
func (e *epochRows) each(f func(i int32) error) error {
	for i := 1; i < len(e.rows); i++ {
		if !e.rows[i].first {
			continue
		}
		if err := f(int32(i)); err != nil {
			return err
		}
	}
	return nil
}

// reset forgets all rows; the first call makes the collection usable.
func (e *epochRows) reset() {
	if e.rows == nil || len(e.rows) > maxKeptPending {
		*e = epochRows{rows: make([]pendingRow, 1), seed: maphash.MakeSeed()}
		return
	}
	clear(e.slots)
	e.rows, e.keys, e.block = e.rows[:1], 0, 0
	clear(e.blocks[min(len(e.blocks), maxKeptBlocks):])
	e.blocks = e.blocks[:min(len(e.blocks), maxKeptBlocks)]
	for i, b := range e.blocks {
		if cap(b) > pendingBlock {
			b = make([]byte, 0, pendingBlock)
		}
		e.blocks[i] = b[:0]
	}
}
