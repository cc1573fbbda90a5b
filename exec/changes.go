package exec

import (
	"bytes"
	"encoding/binary"
	"hash/maphash"
	"slices"
)

// Sizes of Changes.
const (
	listedChanges = 8       // up to so many are found by looking at each
	firstArena    = 512     // bytes of the first block of keys and rows; each is twice the one before
	largestArena  = 1 << 20 // up to this, unless a row is larger
)

// Changes are the uncommitted changes of a transaction to one table, by encoded key: keys and rows lie in few blocks of bytes without pointers, and
// a change takes about 40 bytes beside them. Marks make what came after them revocable, at the cost of that. Not safe for concurrent use.
//
// What the methods return are views, valid until a Rollback to before they were put.
type Changes struct {
	entries []changeEntry // in order of the first change of their keys
	slots   []uint64      // open addressing with linear probing: upper half of the hash, index of the entry + 1; nil while they are few
	arena   [][]byte
	undo    []changedAgain
	// kept is how many entries somebody may want back as they are: a later change of them is remembered in undo.
	kept      int
	rollbacks int
	seed      maphash.Seed
	bytes     int64 // of arena
}

type changeEntry struct {
	at  uint64 // of key and old row
	new uint64 // of the new row, changeAbsent added; 0: none
}

// changeAbsent marks a change as Change.Absent.
const changeAbsent = 1 << 63

type changedAgain struct {
	entry uint32
	new   uint64 // before
}

// ChangesMark is a moment of Changes.
type ChangesMark struct{ entries, undo, block, used int }

// Len is how many keys were changed.
func (c *Changes) Len() int { return len(c.entries) }

// Bytes is the memory taken.
func (c *Changes) Bytes() int64 {
	return c.bytes + int64(cap(c.entries))*16 + int64(len(c.slots))*8 + int64(cap(c.undo))*16
}

// add makes room for n bytes and returns where they are.
func (c *Changes) add(n int) (ref uint64, to []byte) {
	last := len(c.arena) - 1
	if last < 0 || cap(c.arena[last])-len(c.arena[last]) < n {
		size := firstArena
		if last >= 0 {
			size = min(2*cap(c.arena[last]), largestArena)
		}
		b := make([]byte, 0, max(size, n+1))
		if last < 0 {
			b = b[:1] // no reference is 0
		}
		c.bytes += int64(cap(b))
		c.arena = append(c.arena, b)
		last++
	}
	b := c.arena[last]
	at := len(b)
	c.arena[last] = b[:at+n]
	return uint64(last)<<32 | uint64(at), c.arena[last][at:at]
}

// bytesAt returns the bytes at a reference, with what follows them.
func (c *Changes) bytesAt(ref uint64) (b, rest []byte) {
	at := c.arena[ref>>32][uint32(ref):]
	n, w := binary.Uvarint(at)
	end := w + int(n)
	return at[w:end:end], at[end:]
}

func (c *Changes) row(ref uint64) []byte {
	if ref &^= changeAbsent; ref == 0 {
		return nil
	}
	b, _ := c.bytesAt(ref)
	return b
}

func (c *Changes) key(i int) []byte {
	k, _ := c.bytesAt(c.entries[i].at)
	return k
}

// At returns the change of number i.
func (c *Changes) At(i int) Change {
	e := &c.entries[i]
	key, rest := c.bytesAt(e.at)
	ch := Change{Key: key, New: c.row(e.new), Absent: e.new&changeAbsent != 0}
	if n, w := binary.Uvarint(rest); n > 0 {
		end := w + int(n) - 1
		ch.Old = rest[w:end:end]
	}
	return ch
}

// Find returns the number of the change with the key, −1 when there is none.
func (c *Changes) Find(key []byte) int {
	if c.slots == nil {
		for i := range c.entries {
			if string(c.key(i)) == string(key) {
				return i
			}
		}
		return -1
	}
	i, _ := c.probe(key, maphash.Bytes(c.seed, key)>>32)
	return i
}

// probe returns the number of the change with the key, or −1 and the slot for it.
func (c *Changes) probe(key []byte, hash uint64) (i, slot int) {
	mask := len(c.slots) - 1
	for slot = int(hash) & mask; ; slot = (slot + 1) & mask {
		s := c.slots[slot]
		if s == 0 {
			return -1, slot
		}
		if i := int(uint32(s)) - 1; s>>32 == hash && string(c.key(i)) == string(key) {
			return i, slot
		}
	}
}

// Put records that the row with the key changes from old, as it was before the transaction, to row; nil is absence. Of a key that was changed
// already old does not matter.
func (c *Changes) Put(key, old, row []byte) int {
	i, slot := -1, 0
	var hash uint64
	if c.slots == nil {
		i = c.Find(key)
	} else {
		hash = maphash.Bytes(c.seed, key) >> 32
		i, slot = c.probe(key, hash)
	}
	if i >= 0 {
		e := &c.entries[i]
		if i < c.kept {
			c.undo = append(c.undo, changedAgain{entry: uint32(i), new: e.new})
		}
		e.new = c.put(row) | e.new&changeAbsent
		return i
	}
	n := uvarintLen(len(key)) + len(key) + 1
	if old != nil {
		n += uvarintLen(len(old)+1) - 1 + len(old)
	}
	at, b := c.add(n)
	b = append(binary.AppendUvarint(b, uint64(len(key))), key...)
	if old == nil {
		_ = append(b, 0)
	} else {
		_ = append(binary.AppendUvarint(b, uint64(len(old))+1), old...)
	}
	i = len(c.entries)
	c.entries = append(c.entries, changeEntry{at: at, new: c.put(row)})
	if c.slots != nil {
		c.slots[slot] = hash<<32 | uint64(i+1)
	}
	c.grow()
	return i
}

// put stores a row.
func (c *Changes) put(row []byte) uint64 {
	if row == nil {
		return 0
	}
	ref, b := c.add(uvarintLen(len(row)) + len(row))
	_ = append(binary.AppendUvarint(b, uint64(len(row))), row...)
	return ref
}

func uvarintLen(n int) int {
	l := 1
	for ; n >= 0x80; n >>= 7 {
		l++
	}
	return l
}

// grow keeps a quarter of the slots free.
func (c *Changes) grow() {
	if len(c.entries) <= listedChanges || len(c.entries) <= len(c.slots)*3/4 {
		return
	}
	old := c.slots
	c.slots = make([]uint64, max(4*listedChanges, 2*len(old)))
	mask := len(c.slots) - 1
	enter := func(hash, i uint64) {
		slot := int(hash) & mask
		for c.slots[slot] != 0 {
			slot = (slot + 1) & mask
		}
		c.slots[slot] = hash<<32 | i
	}
	if old == nil {
		c.seed = maphash.MakeSeed()
		for i := range c.entries {
			enter(maphash.Bytes(c.seed, c.key(i))>>32, uint64(i+1))
		}
		return
	}
	// In their order, which Rollback relies on.
	hashes := make([]uint32, len(c.entries))
	for _, s := range old {
		if s != 0 {
			hashes[uint32(s)-1] = uint32(s >> 32)
		}
	}
	for i, h := range hashes {
		enter(uint64(h), uint64(i+1))
	}
}

// SetAbsent says of a change that the transaction did it because there was no row.
func (c *Changes) SetAbsent(i int) {
	e := &c.entries[i]
	if i < c.kept && e.new&changeAbsent == 0 {
		c.undo = append(c.undo, changedAgain{entry: uint32(i), new: e.new})
	}
	e.new |= changeAbsent
}

// Mark returns the present moment, for Rollback.
func (c *Changes) Mark() ChangesMark {
	c.kept = len(c.entries)
	m := ChangesMark{entries: len(c.entries), undo: len(c.undo), block: len(c.arena) - 1}
	if m.block >= 0 {
		m.used = len(c.arena[m.block])
	}
	return m
}

// Rollback takes back what came after a mark; later marks are void. Each is called, newest change first, with a row that goes and the one that
// comes back in its place.
func (c *Changes) Rollback(m ChangesMark, each func(key, gone, back []byte)) {
	for n := len(c.undo) - 1; n >= m.undo; n-- {
		u := c.undo[n]
		if int(u.entry) >= m.entries {
			continue
		}
		e := &c.entries[u.entry]
		each(c.key(int(u.entry)), c.row(e.new), c.row(u.new))
		e.new = u.new
	}
	for i := len(c.entries) - 1; i >= m.entries; i-- {
		each(c.key(i), c.row(c.entries[i].new), nil)
		if c.slots == nil {
			continue
		}
		_, slot := c.probe(c.key(i), maphash.Bytes(c.seed, c.key(i))>>32)
		c.slots[slot] = 0 // what was entered later is out already, so no search passes here
	}
	c.entries, c.undo, c.kept = c.entries[:m.entries], c.undo[:m.undo], m.entries
	for len(c.arena) > m.block+1 {
		last := len(c.arena) - 1
		c.bytes -= int64(cap(c.arena[last]))
		c.arena[last] = nil
		c.arena = c.arena[:last]
	}
	if m.block >= 0 {
		c.arena[m.block] = c.arena[m.block][:m.used]
	}
	c.rollbacks++
}

// OwnRows are the rows of a transaction at one moment as a query sees them, whatever is changed while it runs.
type OwnRows struct {
	c         *Changes
	n         int // entries that there were
	from      int // in undo: what was changed again since
	seen      int
	rollbacks int
	before    map[uint32]uint64 // rows of entries that were changed again
}

// Own returns the present rows; nil when nothing was changed. They serve the goroutine that changes c.
func (c *Changes) Own() *OwnRows {
	if c == nil || len(c.entries) == 0 {
		return nil
	}
	c.kept = len(c.entries)
	return &OwnRows{c: c, n: len(c.entries), from: len(c.undo), seen: len(c.undo), rollbacks: c.rollbacks}
}

// Apart returns the same rows for another goroutine.
func (o *OwnRows) Apart() *OwnRows {
	if o == nil {
		return nil
	}
	o.catchUp()
	c := *o.c
	c.entries = append([]changeEntry(nil), c.entries[:o.n]...)
	c.slots = append([]uint64(nil), c.slots...)
	c.arena = append([][]byte(nil), c.arena...)
	c.undo, c.kept = nil, 0
	for i, ref := range o.before {
		c.entries[i].new = ref
	}
	for slot, s := range c.slots {
		if int(uint32(s)) > o.n {
			c.slots[slot] = 0
		}
	}
	return &OwnRows{c: &c, n: o.n}
}

// catchUp takes note of what was changed since.
func (o *OwnRows) catchUp() {
	if o.rollbacks != o.c.rollbacks { // of a savepoint after this moment: what undo holds now may be other changes
		o.rollbacks, o.seen = o.c.rollbacks, o.from
	}
	for ; o.seen < len(o.c.undo); o.seen++ {
		u := o.c.undo[o.seen]
		if _, ok := o.before[u.entry]; ok || int(u.entry) >= o.n {
			continue
		}
		if o.before == nil {
			o.before = map[uint32]uint64{}
		}
		o.before[u.entry] = u.new
	}
}

func (o *OwnRows) row(i int) []byte {
	ref := o.c.entries[i].new
	if o.before != nil {
		if b, ok := o.before[uint32(i)]; ok {
			ref = b
		}
	}
	return o.c.row(ref)
}

// Get returns the row with the key, nil when it is deleted; mine is false when the transaction has not changed it.
func (o *OwnRows) Get(key []byte) (row []byte, mine bool) {
	if o == nil {
		return nil, false
	}
	i := o.c.Find(key)
	if i < 0 || i >= o.n {
		return nil, false
	}
	o.catchUp()
	return o.row(i), true
}

// Has reports whether the transaction has changed the row with the key.
func (o *OwnRows) Has(key []byte) bool {
	if o == nil {
		return false
	}
	i := o.c.Find(key)
	return i >= 0 && i < o.n
}

// Each calls f with all rows that are not deleted, until it fails.
func (o *OwnRows) Each(f func(key, row []byte) error) error { return o.each(nil, f) }

// InOrder is Each in the order of keys.
func (o *OwnRows) InOrder(f func(key, row []byte) error) error {
	if o == nil {
		return nil
	}
	order := make([]uint32, o.n)
	for i := range order {
		order[i] = uint32(i)
	}
	slices.SortFunc(order, func(a, b uint32) int { return bytes.Compare(o.c.key(int(a)), o.c.key(int(b))) })
	return o.each(order, f)
}

func (o *OwnRows) each(order []uint32, f func(key, row []byte) error) error {
	if o == nil {
		return nil
	}
	for i := range o.n {
		if order != nil {
			i = int(order[i])
		}
		o.catchUp()
		if row := o.row(i); row != nil {
			if err := f(o.c.key(i), row); err != nil {
				return err
			}
		}
	}
	return nil
}
