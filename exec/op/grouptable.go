package op

import (
	"bytes"
	"math/bits"

	"github.com/cespare/xxhash/v2"

	"github.com/streamdb/streamdb/types"
)

// groupTable maps group keys to dense numbers, each with a row of 64-bit words. Nothing in it holds a pointer per group.
//
//	directory (low hash bits) ──▶ segment: slots top half of the hash<<32 | group+1, position from the top hash bits, linear probing
//	                                  └──▶ row: hash · key words · caller's words       in slabs that never move
//
// Segments double up to segMaxBits, then split by one more low hash bit (extendible hashing): growth never copies more than one
// segment. Keys of up to four integer columns are kept as words (fixed), all others as bytes in an arena: the memcomparable key,
// equal exactly when SQL calls the keys equal, then the encoded row of the values as first seen.
type groupTable struct {
	fixed bool
	bare  bool // byte keys without values: the owner never shows them
	alone bool // byte keys are hashed as they are, by owners that meet keys without their values
	cols  int  // fixed: 1 to maxFixed
	width int  // words per row
	tail  int  // position of the third key word of fixed rows: behind the caller's words
	dir   []*segment
	slabs [][]uint64
	free  []uint32 // dropped groups, to be reused
	n     int      // rows ever used, free ones included
	arena arena

	hash []uint64
	miss []uint16
	kbuf []byte
	vecs []*types.Vector

	first [1]uint16
}

type segment struct {
	slots []uint64
	shift uint // 64 - log2(len(slots))
	depth uint // number of low hash bits all its hashes share
	used  int
}

const (
	segMinBits = 8
	segMaxBits = 16
	slabBits   = 9 // rows per slab: small operators stay small
	slabRows   = 1 << slabBits

	// Words at the start of a row. Fixed: key words and NULL bits. Bytes: arena position, length of key and of values.
	rowHash = 0
	rowKey0 = 1
	rowKey1 = 2
	rowNull = 3
	rowUser = 4

	// maxFixed is how many columns a key of words has at most.
	maxFixed = 4
	// headKeys of them are at the start of a row, the others at its end.
	headKeys = 2
)

// fixedKey reports whether keys of these types can be kept as words.
func fixedKey(ts []types.Type) bool {
	if len(ts) == 0 || len(ts) > maxFixed {
		return false
	}
	for _, t := range ts {
		if t.Kind() != types.KindInt {
			return false
		}
	}
	return true
}

func newGroupTable(key []types.Type, userWords int) *groupTable {
	t := &groupTable{fixed: fixedKey(key), cols: len(key), width: rowUser + userWords, tail: rowUser + userWords}
	if t.fixed {
		t.width += max(0, len(key)-headKeys)
	}
	t.dir = []*segment{newSegment(segMinBits, 0)}
	t.hash = make([]uint64, types.MaxChunkRows)
	t.miss = make([]uint16, types.MaxChunkRows+1)
	return t
}

func newSegment(b, depth uint) *segment {
	return &segment{slots: make([]uint64, 1<<b), shift: 64 - b, depth: depth}
}

// row returns the words of group g.
func (t *groupTable) row(g uint32) []uint64 {
	o := int(g&(slabRows-1)) * t.width
	return t.slabs[g>>slabBits][o : o+t.width : o+t.width]
}

// bytes returns the memory held, approximately.
func (t *groupTable) bytes() int64 {
	n := int64(len(t.slabs)) * slabRows * int64(t.width) * 8
	for i, s := range t.dir {
		if i>>s.depth == 0 {
			n += int64(len(s.slots)) * 8
		}
	}
	return n + t.arena.bytes()
}

// live returns the number of groups.
func (t *groupTable) live() int { return t.n - len(t.free) }

// hashes computes the hashes of all physical rows of c over the columns at positions cols.
func (t *groupTable) hashes(c *types.Chunk, cols []int) []uint64 {
	if cap(t.hash) < c.N {
		t.hash = make([]uint64, c.N)
		t.miss = make([]uint16, c.N+1)
	}
	t.hash = t.hash[:c.N]
	types.HashRows(c, cols, t.hash)
	return t.hash
}

// lookup writes the group of each selected row of c to out (by selection order), adding new groups. It calls added for each new one.
func (t *groupTable) lookup(c *types.Chunk, cols []int, out []uint32, added func(g uint32, r int) error) error {
	t.vecs = pick(t.vecs, c, cols)
	if len(out) > 1 && t.constant(c) {
		t.first[0] = uint16(c.Row(0))
		one := types.Chunk{Cols: c.Cols, N: c.Row(0) + 1, Sel: t.first[:]}
		if err := t.lookup(&one, cols, out[:1], added); err != nil {
			return err
		}
		for i := range out {
			out[i] = out[0]
		}
		return nil
	}
	if t.fixed {
		return t.lookupFixed(c, t.hashes(c, cols), out, added)
	}
	var hash []uint64
	if !t.alone {
		hash = t.hashes(c, cols)
	}
	for i := range out {
		r := c.Row(i)
		t.kbuf = types.AppendKeyRow(t.kbuf[:0], t.vecs, r)
		var h uint64
		if t.alone {
			h = xxhash.Sum64(t.kbuf)
		} else {
			h = hash[r]
		}
		g, ok := t.findBytes(h, t.kbuf)
		if !ok {
			g = t.insertBytes(h, t.kbuf, func(b []byte) []byte {
				if t.bare {
					return b
				}
				return types.AppendRow(b, t.vecs, r)
			})
			if err := added(g, r); err != nil {
				return err
			}
		}
		out[i] = g
	}
	return nil
}

// constant reports whether all rows of c have one key.
func (t *groupTable) constant(c *types.Chunk) bool {
	for _, v := range t.vecs {
		if !constant(c, v) {
			return false
		}
	}
	return true
}

// lookupFixed works in passes over the whole batch, so that the cache misses of different rows overlap: first the home slots, then
// the rows of those whose tag did not fit, last the keys.
func (t *groupTable) lookupFixed(c *types.Chunk, hash []uint64, out []uint32, added func(g uint32, r int) error) error {
	plain := c.Sel == nil
	for _, v := range t.vecs {
		plain = plain && v.Valid == nil
	}
	for len(t.miss) < len(out)+1 {
		t.miss = append(t.miss, 0)
	}
	t.probe(c, hash, out)
	m := 0
	if plain {
		m = t.verifyPlain(out)
	} else {
		var k fixedKeyWords
		for i, g := range out {
			if g != noGroup {
				k.take(t.vecs, c.Row(i))
				if t.sameKey(t.row(g), &k) {
					continue
				}
			}
			t.miss[m] = uint16(i)
			m++
		}
	}
	var k fixedKeyWords
	for _, i := range t.miss[:m] {
		r := c.Row(int(i))
		k.take(t.vecs, r)
		g, ok := t.findFixed(hash[r], &k)
		if !ok {
			g = t.insert(hash[r])
			t.setKey(t.row(g), &k)
			if err := added(g, r); err != nil {
				return err
			}
		}
		out[i] = g
	}
	return nil
}

// probe writes the group in the home slot of each row. The tag alone decides for nearly all rows; rows of another key with an equal tag are found
// when keys are compared.
func (t *groupTable) probe(c *types.Chunk, hash []uint64, out []uint32) {
	if len(t.dir) > 1 {
		mask := uint64(len(t.dir) - 1)
		for i := range out {
			h := hash[c.Row(i)]
			s := t.dir[h&mask]
			out[i] = homeGroup(s.slots[h>>(s.shift&63)], h)
		}
		return
	}
	s := t.dir[0]
	slots, shift := s.slots, s.shift&63
	if c.Sel == nil {
		for i, h := range hash[:len(out)] {
			out[i] = homeGroup(slots[h>>shift], h)
		}
		return
	}
	for i, r := range c.Sel {
		h := hash[r]
		out[i] = homeGroup(slots[h>>shift], h)
	}
}

func homeGroup(slot, h uint64) uint32 {
	g := uint32(slot) - 1
	if slot>>32 != h>>32 {
		g = noGroup
	}
	return g
}

// verifyPlain compares the keys of a batch without selection and NULLs with those of the groups found, and lists the rows that differ in t.miss.
func (t *groupTable) verifyPlain(out []uint32) int {
	w, tail, n, m := t.width, t.tail, len(out), 0
	// Missing key columns are stood for by the first one, compared again: one loop for one and two columns, one for three and four.
	k0 := t.vecs[0].Int[:n]
	k1, word1 := k0, rowKey0
	if t.cols > 1 {
		k1, word1 = t.vecs[1].Int[:n], rowKey1
	}
	if t.cols <= headKeys {
		for i, g := range out {
			if g != noGroup {
				o := int(g&(slabRows-1)) * w
				row := t.slabs[g>>slabBits][o : o+rowUser]
				if (row[rowKey0]^uint64(k0[i]))|(row[word1]^uint64(k1[i]))|row[rowNull] == 0 {
					continue
				}
			}
			t.miss[m] = uint16(i)
			m++
		}
		return m
	}
	k2, k3, word3 := t.vecs[2].Int[:n], k0, rowKey0
	if t.cols > 3 {
		k3, word3 = t.vecs[3].Int[:n], tail+1
	}
	for i, g := range out {
		if g != noGroup {
			o := int(g&(slabRows-1)) * w
			row := t.slabs[g>>slabBits][o : o+w]
			if (row[rowKey0]^uint64(k0[i]))|(row[rowKey1]^uint64(k1[i]))|row[rowNull]|(row[tail]^uint64(k2[i]))|(row[word3]^uint64(k3[i])) == 0 {
				continue
			}
		}
		t.miss[m] = uint16(i)
		m++
	}
	return m
}

const noGroup = ^uint32(0)

// fixedKeyWords is the key of one row; words of NULLs and of columns that the key lacks are 0.
type fixedKeyWords struct {
	w    [maxFixed]uint64
	null uint64
}

func (k *fixedKeyWords) take(vecs []*types.Vector, r int) {
	k.null = 0
	for j, v := range vecs {
		if v.IsNull(r) {
			k.w[j] = 0
			k.null |= 1 << j
		} else {
			k.w[j] = uint64(v.Int[r])
		}
	}
}

// keyWord returns the position of the key's word number j in a row.
func (t *groupTable) keyWord(j int) int {
	if j < headKeys {
		return rowKey0 + j
	}
	return t.tail + j - headKeys
}

func (t *groupTable) sameKey(row []uint64, k *fixedKeyWords) bool {
	if row[rowKey0] != k.w[0] || row[rowKey1] != k.w[1] || row[rowNull] != k.null {
		return false
	}
	for j := headKeys; j < t.cols; j++ {
		if row[t.tail+j-headKeys] != k.w[j] {
			return false
		}
	}
	return true
}

func (t *groupTable) setKey(row []uint64, k *fixedKeyWords) {
	row[rowKey0], row[rowKey1], row[rowNull] = k.w[0], k.w[1], k.null
	for j := headKeys; j < t.cols; j++ {
		row[t.tail+j-headKeys] = k.w[j]
	}
}

func (t *groupTable) segment(h uint64) *segment { return t.dir[h&uint64(len(t.dir)-1)] }

func (t *groupTable) findFixed(h uint64, k *fixedKeyWords) (uint32, bool) {
	s := t.segment(h)
	mask := uint64(len(s.slots) - 1)
	for p := h >> s.shift; ; p++ {
		e := s.slots[p&mask]
		if e == 0 {
			return 0, false
		}
		if e>>32 == h>>32 {
			g := uint32(e) - 1
			if t.sameKey(t.row(g), k) {
				return g, true
			}
		}
	}
}

func (t *groupTable) findBytes(h uint64, key []byte) (uint32, bool) {
	s := t.segment(h)
	mask := uint64(len(s.slots) - 1)
	for p := h >> s.shift; ; p++ {
		e := s.slots[p&mask]
		if e == 0 {
			return 0, false
		}
		if e>>32 == h>>32 {
			g := uint32(e) - 1
			if row := t.row(g); row[rowHash] == h && bytes.Equal(t.keyBytes(row), key) {
				return g, true
			}
		}
	}
}

// keyBytes returns the memcomparable key of a byte-keyed row.
func (t *groupTable) keyBytes(row []uint64) []byte {
	return t.arena.get(row[rowKey0], int(uint32(row[rowKey1])))
}

// valueBytes returns the encoded key values of a byte-keyed row.
func (t *groupTable) valueBytes(row []uint64) []byte {
	k, v := int(uint32(row[rowKey1])), int(row[rowKey1]>>32)
	return t.arena.get(row[rowKey0], k+v)[k:]
}

func (t *groupTable) insertBytes(h uint64, key []byte, values func([]byte) []byte) uint32 {
	g := t.insert(h)
	row := t.row(g)
	n := len(key)
	b := values(key)
	row[rowKey0] = t.arena.add(b)
	row[rowKey1] = uint64(n) | uint64(len(b)-n)<<32
	t.kbuf = b[:n]
	return g
}

// insert adds a group of hash h whose key words the caller sets.
func (t *groupTable) insert(h uint64) uint32 {
	for {
		s := t.segment(h)
		if s.used*2 < len(s.slots) {
			break
		}
		t.grow(h)
	}
	s := t.segment(h)
	var g uint32
	if k := len(t.free); k > 0 {
		g = t.free[k-1]
		t.free = t.free[:k-1]
	} else {
		if t.n>>slabBits == len(t.slabs) {
			t.slabs = append(t.slabs, make([]uint64, slabRows*t.width))
		}
		g = uint32(t.n)
		t.n++
	}
	row := t.row(g)
	clear(row)
	row[rowHash] = h
	s.place(h, g)
	return g
}

func (s *segment) place(h uint64, g uint32) {
	mask := uint64(len(s.slots) - 1)
	p := h >> s.shift
	for s.slots[p&mask] != 0 {
		p++
	}
	s.slots[p&mask] = h>>32<<32 | uint64(g+1)
	s.used++
}

// grow doubles or splits the segment of hash h.
func (t *groupTable) grow(h uint64) {
	s := t.segment(h)
	b := uint(bits.TrailingZeros(uint(len(s.slots))))
	if b < segMaxBits {
		d := newSegment(b+1, s.depth)
		for _, e := range s.slots {
			if e != 0 {
				d.place(e, uint32(e)-1) // the slot has the bits of the hash that tell the place
			}
		}
		*s = *d
		return
	}
	if 1<<s.depth == len(t.dir) {
		t.dir = append(t.dir, t.dir...)
	}
	lo, hi := newSegment(segMaxBits, s.depth+1), newSegment(segMaxBits, s.depth+1)
	bit := uint64(1) << s.depth
	for _, e := range s.slots {
		if e == 0 {
			continue
		}
		g := uint32(e) - 1
		if t.row(g)[rowHash]&bit != 0 {
			hi.place(e, g)
		} else {
			lo.place(e, g)
		}
	}
	for i, d := range t.dir {
		if d != s {
			continue
		}
		if uint64(i)&bit != 0 {
			t.dir[i] = hi
		} else {
			t.dir[i] = lo
		}
	}
}

// drop removes group g: its number is reused.
func (t *groupTable) drop(g uint32) {
	row := t.row(g)
	h := row[rowHash]
	s := t.segment(h)
	mask := uint64(len(s.slots) - 1)
	p := h >> s.shift & mask
	for uint32(s.slots[p]) != g+1 {
		p = (p + 1) & mask
	}
	// Backward shift: entries behind the hole move up unless that would bring them before their home.
	for q := p; ; {
		q = (q + 1) & mask
		e := s.slots[q]
		if e == 0 {
			break
		}
		home := e >> s.shift & mask
		if (q-home)&mask >= (q-p)&mask {
			s.slots[p] = e
			p = q
		}
	}
	s.slots[p] = 0
	s.used--
	if !t.fixed {
		t.arena.drop(int(uint32(row[rowKey1])) + int(row[rowKey1]>>32))
	}
	clear(row)
	t.free = append(t.free, g)
}

// each calls f for all groups.
func (t *groupTable) each(f func(g uint32, row []uint64) error) error {
	for i, s := range t.dir {
		if i>>s.depth != 0 {
			continue // a directory entry repeats its segment: the lowest one stands for it
		}
		for _, e := range s.slots {
			if e != 0 {
				g := uint32(e) - 1
				if err := f(g, t.row(g)); err != nil {
					return err
				}
			}
		}
	}
	return nil
}

// appendKey appends the memcomparable key of a row.
func (t *groupTable) appendKey(dst []byte, row []uint64) []byte {
	if !t.fixed {
		return append(dst, t.keyBytes(row)...)
	}
	for j := range t.cols {
		d := types.Datum{Type: types.Int8, Int: int64(row[t.keyWord(j)]), Null: row[rowNull]>>j&1 != 0}
		dst = types.AppendKeyDatum(dst, d, false, false)
	}
	return dst
}

// appendValues appends the key's values as first seen to cols.
func (t *groupTable) appendValues(row []uint64, cols []*types.Vector) error {
	if !t.fixed {
		_, err := types.DecodeRow(t.valueBytes(row), cols)
		return err
	}
	for j, v := range cols {
		if row[rowNull]>>j&1 != 0 {
			v.AppendNull()
			continue
		}
		x := int64(row[t.keyWord(j)])
		if v.Valid == nil {
			v.Int = append(v.Int, x)
		} else {
			pushInt(v, x)
		}
	}
	return nil
}

// compact rewrites the arena when more than half of it is garbage.
func (t *groupTable) compact() {
	if t.fixed || !t.arena.wasteful() {
		return
	}
	old := t.arena
	t.arena = arena{}
	_ = t.each(func(_ uint32, row []uint64) error {
		n := int(uint32(row[rowKey1])) + int(row[rowKey1]>>32)
		row[rowKey0] = t.arena.add(old.get(row[rowKey0], n))
		return nil
	})
	t.arena.recycle(old)
}

// arena holds byte strings addressed by a position; they never move until the owner rewrites it.
type arena struct {
	blocks [][]byte
	spare  [][]byte // whole blocks to be used again
	used   int64
	dead   int64
}

const (
	arenaBlock     = 256 << 10
	arenaMinBlock  = 1 << 10
	arenaCompactAt = 1 << 20 // bytes of garbage below which rewriting is not worth it
)

func (a *arena) add(b []byte) uint64 {
	k := len(a.blocks) - 1
	if k < 0 || len(a.blocks[k])+len(b) > cap(a.blocks[k]) {
		size := arenaBlock
		if n := len(a.spare); n > 0 && len(b) <= arenaBlock {
			a.blocks, a.spare = append(a.blocks, a.spare[n-1]), a.spare[:n-1]
		} else {
			if k < 6 { // small tables stay small
				size = arenaMinBlock << max(0, k+1)
			}
			a.blocks = append(a.blocks, make([]byte, 0, max(size, len(b))))
		}
		k++
	}
	at := uint64(k)<<32 | uint64(len(a.blocks[k]))
	a.blocks[k] = append(a.blocks[k], b...)
	a.used += int64(len(b))
	return at
}

func (a *arena) get(at uint64, n int) []byte {
	o := int(uint32(at))
	return a.blocks[at>>32][o : o+n : o+n]
}

func (a *arena) drop(n int) { a.dead += int64(n) }

// recycle takes over the blocks of an arena that nobody reads any more, half of them at most: what grew once need not come back.
func (a *arena) recycle(old arena) {
	for _, b := range append(old.blocks, old.spare...) {
		if cap(b) == arenaBlock && len(a.spare) <= len(old.blocks)/2 {
			a.spare = append(a.spare, b[:0])
		}
	}
}

func (a *arena) wasteful() bool { return a.dead > arenaCompactAt && a.dead*2 > a.used }

func (a *arena) bytes() int64 {
	n := int64(0)
	for _, b := range a.blocks {
		n += int64(cap(b))
	}
	return n + int64(len(a.spare))*arenaBlock
}
