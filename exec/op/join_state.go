package op

import (
	"bytes"
	"encoding/binary"

	"github.com/cespare/xxhash/v2"

	"github.com/streamdb/streamdb/state"
	"github.com/streamdb/streamdb/types"
)

// joinRow is a row that a join keeps. Rows of one key and side form a chain from the key's group, in the order in which they came; their bytes are in
// the arena.
type joinRow struct {
	next, prev uint32 // row number + 1; prev of the first one is the last
	group      uint32
	flags      uint32
	count      int64 // sum of weights; negative only within an epoch
	match      int64 // with a residual condition: weight of the other side's rows that match
	at         uint64
	n          uint32
	kg         uint16 // key group, of joins that are spread (plan.Join.Spread)
	readAt     uint16 // where the row has been read to by the batch of candidates readIn
	readIn     uint32
}

const (
	rowSide     = 1 << 0 // 1: right
	rowTouched  = 1 << 1 // listed in touchedRows
	rowUnsaved  = 1 << 2 // listed in unsaved
	rowStored   = 1 << 3 // the state table has it
	rowShown    = 1 << 4 // its padding (semi join: the row itself) has been emitted
	rowDead     = 1 << 5 // listed in dead
	rowNew      = 1 << 6 // match not yet counted
	rowIndexed  = 1 << 7
	rowMet      = 1 << 8 // has met the only partner it can have; listed in dead
	rowUnwanted = 1 << 9 // partners of it have none
)

// longChain is the number of rows of a key and side above which rows are found by hash, from the first time that one is looked for.
const longChain = 32

// Words of a join's group row behind the key's.
const (
	joinHeads  = rowUser     // first row + 1: left in the low half, right in the high one
	joinCount  = rowUser + 1 // and + 2: sum of weights per side
	joinLength = rowUser + 3 // rows of the chains, as joinHeads
	joinFlags  = rowUser + 4 // low half: epoch of the last touch; then flags
	joinClose  = rowUser + 5 // of joins that forget: the key's value of the closing column
	joinWords  = 6

	keyShown   = 1 << 32 // << side: paddings (semi join: rows) of the side's rows have been emitted
	keyOpen    = 1 << 34 // of joins that forget: listed in its window
	keyIndexed = 1 << 35 // << side: the side's rows are in the index
)

// joinState is the working copy of both sides' rows. State table per side (staged): join key · encoded row → uvarint length of the join key · varint
// count · varint match, of unwanted rows (plan.Join.Wanted) 1.
type joinState struct {
	o        *joinOp
	groups   *groupTable
	slab     slab[joinRow]
	rows     arena
	lent     bool              // strings that have been emitted are views of rows: the garbage collector alone knows when they are gone
	index    map[uint64]uint32 // hash of group and bytes → row, of chains with keyIndexed
	collided bool              // the index lacks rows of equal hashes
	negative int               // rows with a negative count
	tables   [2]table
	complete bool
	stored   [2]state.KeyFilter // hashes of the keys with stored rows, while not all keys are in memory
	unsaved  []uint32
	key, val []byte
}

func (s *joinState) reset() {
	s.groups = newGroupTable(s.o.keyTypes, joinWords)
	s.groups.bare = true
	s.slab, s.rows, s.negative = slab[joinRow]{}, arena{}, 0
	s.index, s.collided = map[uint64]uint32{}, false
	if s.o.rng != nil {
		s.o.rng.reset()
	}
}

func (s *joinState) row(i uint32) *joinRow { return s.slab.at(i) }

func (s *joinState) bytes(r *joinRow) []byte { return s.rows.get(r.at, int(r.n)) }

func half(w uint64, side int) uint32 { return uint32(w >> (32 * side)) }

func setHalf(w *uint64, side int, x uint32) {
	*w = *w&^(uint64(^uint32(0))<<(32*side)) | uint64(x)<<(32*side)
}

// find returns the row of a chain with exactly these bytes.
func (s *joinState) find(g uint32, words []uint64, side int, b []byte) (uint32, bool) {
	if half(words[joinLength], side) > longChain {
		s.indexChain(words, side)
		i, ok := s.index[rowHashOf(g, side, b)]
		if ok {
			if r := s.row(i); r.group == g && int(r.flags&rowSide) == side && bytes.Equal(s.bytes(r), b) {
				return i, true
			}
		}
		if !s.collided {
			return 0, false
		}
	}
	for n := half(words[joinHeads], side); n != 0; {
		r := s.row(n - 1)
		if int(r.n) == len(b) && bytes.Equal(s.bytes(r), b) {
			return n - 1, true
		}
		n = r.next
	}
	return 0, false
}

func rowHashOf(g uint32, side int, b []byte) uint64 {
	return xxhash.Sum64(b) ^ (uint64(g)<<1|uint64(side))*0x9E3779B97F4A7C15
}

// add puts a new row at the end of its chain.
func (s *joinState) add(g uint32, words []uint64, side int, b []byte, count int64) uint32 {
	i := s.slab.take()
	r := s.row(i)
	head := half(words[joinHeads], side)
	*r = joinRow{prev: i + 1, group: g, flags: uint32(side), count: count, at: s.rows.add(b), n: uint32(len(b))}
	if head == 0 {
		head = i + 1
		setHalf(&words[joinHeads], side, head)
	} else {
		first := s.row(head - 1)
		r.prev = first.prev
		s.row(first.prev - 1).next = i + 1
		first.prev = i + 1
	}
	setHalf(&words[joinLength], side, half(words[joinLength], side)+1)
	if count < 0 {
		s.negative++
	}
	if words[joinFlags]&(keyIndexed<<side) != 0 {
		s.enter(i, r)
	}
	return i
}

// indexChain puts the rows of a chain into the index.
func (s *joinState) indexChain(words []uint64, side int) {
	if words[joinFlags]&(keyIndexed<<side) != 0 {
		return
	}
	words[joinFlags] |= keyIndexed << side
	for n := half(words[joinHeads], side); n != 0; {
		r := s.row(n - 1)
		s.enter(n-1, r)
		n = r.next
	}
}

// enter puts a row into the index.
func (s *joinState) enter(i uint32, r *joinRow) {
	h := rowHashOf(r.group, int(r.flags&rowSide), s.bytes(r))
	if other, ok := s.index[h]; ok && other != i {
		s.collided = true
		return
	}
	s.index[h] = i
	r.flags |= rowIndexed
}

// bump changes a row's count.
func (s *joinState) bump(r *joinRow, w int64) {
	if r.count < 0 {
		s.negative--
	}
	r.count += w
	if r.count < 0 {
		s.negative++
	}
}

// remove unlinks a row, in memory and in state.
func (s *joinState) remove(i uint32) error {
	r := s.row(i)
	side := int(r.flags & rowSide)
	words := s.groups.row(r.group)
	if s.o.rng != nil {
		if err := s.o.expiry.removed(i, r); err != nil {
			return err
		}
		if err := s.o.rng.removed(i, r, half(words[joinLength], side) == 1); err != nil {
			return err
		}
	}
	head := half(words[joinHeads], side)
	if head == i+1 {
		head = r.next
		setHalf(&words[joinHeads], side, head)
	} else {
		s.row(r.prev - 1).next = r.next
	}
	switch {
	case r.next != 0:
		s.row(r.next - 1).prev = r.prev
	case head != 0: // it was the last one
		s.row(head - 1).prev = r.prev
	}
	setHalf(&words[joinLength], side, half(words[joinLength], side)-1)
	return s.forget(i, r, words)
}

// forget is remove for a row whose chain goes as a whole, or was taken out of it.
func (s *joinState) forget(i uint32, r *joinRow, words []uint64) error {
	side := int(r.flags & rowSide)
	if r.flags&rowStored != 0 {
		k := s.stateKey(words, r)
		if err := s.tables[side].remove(s.keyGroup(words, r), k); err != nil {
			return err
		}
	}
	if r.flags&rowIndexed != 0 {
		if h := rowHashOf(r.group, side, s.bytes(r)); s.index[h] == i {
			delete(s.index, h)
		}
	}
	if r.count < 0 {
		s.negative--
	}
	s.rows.drop(int(r.n))
	s.slab.give(i)
	return nil
}

func (s *joinState) stateKey(words []uint64, r *joinRow) []byte {
	s.key = s.groups.appendKey(s.key[:0], words)
	s.key = append(s.key, s.bytes(r)...)
	return s.key
}

// changed lists a row for the next checkpoint.
func (s *joinState) changed(i uint32, r *joinRow) {
	if r.flags&rowUnsaved == 0 && s.tables[0].part != nil && s.owned(r) {
		r.flags |= rowUnsaved
		s.unsaved = append(s.unsaved, i)
	}
}

// save puts the rows that changed since the last checkpoint.
func (s *joinState) save() error {
	for _, i := range s.unsaved {
		r := s.row(i)
		if r.flags&rowUnsaved == 0 {
			continue // gone
		}
		fresh := r.flags&rowStored == 0
		r.flags = r.flags&^rowUnsaved | rowStored
		words := s.groups.row(r.group)
		k := s.stateKey(words, r)
		s.val = binary.AppendUvarint(s.val[:0], uint64(len(k)-int(r.n)))
		s.val = binary.AppendVarint(s.val, r.count)
		match := r.match
		if r.flags&rowUnwanted != 0 {
			match = 1
		}
		s.val = binary.AppendVarint(s.val, match)
		if err := s.tables[r.flags&rowSide].append(s.keyGroup(words, r), k, s.val, fresh); err != nil {
			return err
		}
	}
	s.unsaved = s.unsaved[:0]
	return nil
}

// keyGroup returns where a row is stored.
func (s *joinState) keyGroup(words []uint64, r *joinRow) uint16 {
	if s.o.node.Join.Spread != nil {
		return r.kg
	}
	return keyGroup(s.o.ctx, words[rowHash])
}

// owned reports whether this subtask stores a row: rows that all subtasks have are stored by one.
func (s *joinState) owned(r *joinRow) bool {
	return s.o.node.Join.Spread == nil || s.o.ctx.Groups.Contains(r.kg)
}

// evict lets go of all keys; all are in state.
func (s *joinState) evict() error {
	err := s.groups.each(func(_ uint32, words []uint64) error {
		for side := range s.stored {
			if half(words[joinHeads], side) != 0 {
				s.stored[side].Add(words[rowHash])
			}
		}
		return nil
	})
	s.reset()
	s.complete = false
	return err
}

// load reads the rows of a key that is not in memory.
func (s *joinState) load(g uint32) error {
	words := s.groups.row(g)
	if s.complete || !s.stored[0].Has(words[rowHash]) && !s.stored[1].Has(words[rowHash]) {
		return nil
	}
	prefix := s.groups.appendKey(nil, words)
	kg := keyGroup(s.o.ctx, words[rowHash])
	for side := range s.tables {
		if !s.stored[side].Has(words[rowHash]) {
			continue
		}
		err := s.tables[side].scan(kg, prefix, false, func(k, v []byte) (bool, error) {
			_, err := s.restoreRow(g, side, kg, k, v)
			return true, err
		})
		if err != nil {
			return err
		}
	}
	s.settle(words)
	return nil
}

func (s *joinState) restoreRow(g uint32, side int, kg uint16, k, v []byte) (uint32, error) {
	r := byteReader{b: v}
	n, count, match := int(r.uvarint()), r.varint(), r.varint()
	if r.bad || n > len(k) {
		return 0, errCorruptState(s.o.node)
	}
	words := s.groups.row(g)
	i := s.add(g, words, side, k[n:], count)
	row := s.row(i)
	if row.kg = kg; s.owned(row) {
		row.flags |= rowStored
	}
	if w := s.o.wanted; w != nil && w.side == side && match != 0 {
		row.flags |= rowUnwanted
	} else {
		row.match = match
	}
	if s.o.tally[side] && s.o.wants(side, match) {
		row.flags |= rowShown
	}
	words[joinCount+side] += uint64(count)
	return i, nil
}

// settle derives what has been shown of a key whose rows were read from state: at the barrier before the checkpoint all was shown that had to be.
func (s *joinState) settle(words []uint64) {
	for side := range 2 {
		if s.o.residual == nil && s.o.shows[side] != showNever && s.o.wants(side, int64(words[joinCount+1-side])) {
			words[joinFlags] |= keyShown << side
		}
	}
}

// loadBatch is how many rows a restore puts into the table at once.
const loadBatch = 1024

// restore reads all rows, until the budget is used up. A key must be wholly in memory or not at all: then it begins empty, and only knows what keys
// there are.
func (s *joinState) restore() error {
	over := false
	for side := range s.tables {
		batch := types.NewChunk(s.o.ctx.InputTypes[side])
		var ks, vs [][]byte
		var kgs []uint16
		flush := func() error {
			batch.N = len(ks)
			if over {
				for _, h := range s.groups.hashes(batch, s.o.keys[side]) {
					s.stored[side].Add(h)
				}
				batch.Reset()
				ks, vs, kgs = ks[:0], vs[:0], kgs[:0]
				return nil
			}
			grp := make([]uint32, len(ks))
			err := s.groups.lookup(batch, s.o.keys[side], grp, func(g uint32, r int) error {
				if s.o.closing.on {
					s.o.closing.list(g, batch.Cols[s.o.keys[side][s.o.closing.key]].Int[r])
				}
				return nil
			})
			if err != nil {
				return err
			}
			for i, g := range grp {
				row, err := s.restoreRow(g, side, kgs[i], ks[i], vs[i])
				if err != nil {
					return err
				}
				if s.o.expiry.on {
					s.o.expiry.list(side, batch.Cols[s.o.expiry.column[side]].Int[i], row)
				}
			}
			batch.Reset()
			ks, vs, kgs = ks[:0], vs[:0], kgs[:0]
			s.account()
			if over = s.o.ctx.Budget.Over() && s.o.evictable(); over {
				err := s.evict()
				s.account()
				return err
			}
			return nil
		}
		err := s.scanAll(side, func(kg uint16, k, v []byte) error {
			n, w := binary.Uvarint(v)
			if w <= 0 || n > uint64(len(k)) {
				return errCorruptState(s.o.node)
			}
			if _, err := types.DecodeRow(k[n:], batch.Cols); err != nil {
				return err
			}
			ks, vs, kgs = append(ks, bytes.Clone(k)), append(vs, bytes.Clone(v)), append(kgs, kg)
			if len(ks) < loadBatch {
				return nil
			}
			return flush()
		})
		if err == nil && len(ks) > 0 {
			err = flush()
		}
		if err != nil {
			return err
		}
	}
	return s.groups.each(func(_ uint32, words []uint64) error {
		s.settle(words)
		return nil
	})
}

// scanAll reads what is stored of a side. Of the side that all subtasks have it is in the parts of all of them, which are opened one after the other
// before any of them runs.
func (s *joinState) scanAll(side int, f func(kg uint16, key, val []byte) error) error {
	j, ctx := s.o.node.Join.Spread, s.o.ctx
	if j == nil || j.Side == side || s.tables[side].part == nil {
		return s.tables[side].scanAll(f)
	}
	most := ctx.Store.MaxParallelism()
	own := state.SubtaskOf(most, ctx.Parallelism, ctx.Groups.From)
	for i := range ctx.Parallelism {
		p, err := ctx.Store.Part(s.o.node.ID*tablesPerNode+uint32(side), ctx.Subtask-own+i, state.SubtaskRange(most, ctx.Parallelism, i), stagedMode)
		if err != nil {
			return err
		}
		t := table{part: p}
		if err := t.scanAll(f); err != nil {
			return err
		}
	}
	return nil
}

// eachRow calls f for the rows of a side that are in memory.
func (s *joinState) eachRow(side int, f func(row []byte, count int64) error) error {
	for i := range s.slab.used {
		if r := s.row(uint32(i)); r.prev != 0 && int(r.flags&rowSide) == side && r.count != 0 {
			if err := f(s.bytes(r), r.count); err != nil {
				return err
			}
		}
	}
	return nil
}

// eachStored calls f for the rows of a side that the state has in a key group.
func (s *joinState) eachStored(kg uint16, side int, f func(row []byte, count int64) error) error {
	return s.tables[side].scan(kg, nil, false, func(k, v []byte) (bool, error) {
		r := byteReader{b: v}
		n, count := int(r.uvarint()), r.varint()
		if r.bad || n > len(k) {
			return false, errCorruptState(s.o.node)
		}
		return true, f(k[n:], count)
	})
}

// account tells the budget what the rows in memory take.
func (s *joinState) account() {
	n := s.groups.bytes() + s.rows.bytes() + s.slab.bytes() + int64(len(s.index))*32 + s.stored[0].Bytes() + s.stored[1].Bytes()
	if s.o.rng != nil {
		n += s.o.rng.bytes() + s.o.expiry.bytes()
	}
	s.o.report(n)
}

// compact rewrites the row bytes when more than half of them is garbage.
func (s *joinState) compact() {
	s.groups.compact()
	if !s.rows.wasteful() {
		return
	}
	old := s.rows
	s.rows = arena{}
	for i := range s.slab.used {
		if r := s.row(uint32(i)); r.n > 0 {
			r.at = s.rows.add(old.get(r.at, int(r.n)))
		}
	}
	if !s.lent {
		s.rows.recycle(old)
	}
}
