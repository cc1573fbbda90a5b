package state

import (
	"bytes"
	"slices"
	"sync"

	"github.com/cespare/xxhash/v2"
)

// stage is a buffer of changes of a staged part. Nothing in it holds a pointer per entry: records lie one after the other in blocks.
//
//	written by Put and Delete of the part's goroutine ── freeze ──▶ immutable; sorted once, by whoever asks first
//
// Of equal keys the later record counts; a sorted stage has each key once.
type stage struct {
	from, to uint32 // sequences of the part that it holds
	blocks   [][]byte
	recs     []record16
	size     int64

	// index finds the newest record of a key by hash: slots hash32<<32 | record+1, linear probing. Only the part's goroutine uses it, and it
	// covers the first indexed records.
	index   []uint64
	indexed int

	once  sync.Once
	order []uint32 // records by key, each key once; nil: they are in order
}

// record16 locates group, key and value of one change in the blocks.
type record16 struct {
	at  uint64 // block<<32 | offset
	key uint32 // length of group and key, with stageTombstone
	val uint32
}

const (
	stageTombstone = 1 << 31
	recordBytes    = 16
	// The first blocks of a stage are small: most parts change little between two checkpoints.
	stageBlockMin = 4 << 10
	stageBlockMax = 1 << 20
	stageIndexMin = 64
)

func (s *stage) add(kg uint16, key, val []byte, tombstone bool) {
	n := groupBytes + len(key) + len(val)
	k := len(s.blocks) - 1
	if k < 0 || len(s.blocks[k])+n > cap(s.blocks[k]) {
		size := stageBlockMax
		if k < 8 {
			size = stageBlockMin << (k + 1)
		}
		size = max(size, n)
		s.blocks = append(s.blocks, make([]byte, 0, size))
		s.size += int64(size)
		k++
	}
	b := s.blocks[k]
	r := record16{at: uint64(k)<<32 | uint64(len(b)), key: uint32(groupBytes + len(key)), val: uint32(len(val))}
	if tombstone {
		r.key |= stageTombstone
	}
	b = append(b, byte(kg>>8), byte(kg))
	b = append(b, key...)
	s.blocks[k] = append(b, val...)
	s.recs = append(s.recs, r)
	s.size += recordBytes
}

func (s *stage) addEntry(e entry) {
	k := bytesOf(e.key())
	s.add(e.group(), k[groupBytes:], e.value(), e.tombstone())
}

func (s *stage) key(i uint32) []byte {
	r := &s.recs[i]
	o := int(uint32(r.at))
	return s.blocks[r.at>>32][o : o+int(r.key&^stageTombstone)]
}

// entry views record i.
func (s *stage) entry(i uint32) entry {
	r := &s.recs[i]
	o, k := int(uint32(r.at)), r.key&^stageTombstone
	e := entry{kv: stringOf(s.blocks[r.at>>32][o : o+int(k)+int(r.val)]), klen: k, meta: s.to << metaShift}
	if r.key&stageTombstone != 0 {
		e.meta |= metaTombstone
	}
	return e
}

// bytes is the memory held; the index and the order are counted when they are made.
func (s *stage) bytes() int64 { return s.size + int64(len(s.index))*8 }

// find returns the newest record of a key whose hash is h, for the part's goroutine.
func (s *stage) find(h uint64, key []byte) (entry, bool) {
	if s.indexed < len(s.recs) {
		s.extendIndex()
	}
	if len(s.index) == 0 {
		return entry{}, false
	}
	mask := uint64(len(s.index) - 1)
	for p := h; ; p++ {
		e := s.index[p&mask]
		if e == 0 {
			return entry{}, false
		}
		if e>>32 == h>>32 {
			if i := uint32(e) - 1; bytes.Equal(s.key(i), key) {
				return s.entry(i), true
			}
		}
	}
}

func (s *stage) extendIndex() {
	if len(s.recs)*2 > len(s.index) {
		n := stageIndexMin
		for n < len(s.recs)*2 {
			n *= 2
		}
		s.index, s.indexed = make([]uint64, n), 0
	}
	mask := uint64(len(s.index) - 1)
	for ; s.indexed < len(s.recs); s.indexed++ {
		i := uint32(s.indexed)
		k := s.key(i)
		h := xxhash.Sum64(k)
		for p := h; ; p++ {
			e := s.index[p&mask]
			if e == 0 || e>>32 == h>>32 && bytes.Equal(s.key(uint32(e)-1), k) {
				s.index[p&mask] = h>>32<<32 | uint64(i+1)
				break
			}
		}
	}
}

// sorted makes the stage's order; it is frozen.
func (s *stage) sorted() *stage {
	s.once.Do(s.sort)
	return s
}

// sort orders the records by key and leaves the newest of each. The first eight byte positions at which keys differ at all decide for
// nearly all of them: what lies before, between and behind these is equal or compared only where they tie.
func (s *stage) sort() {
	n := len(s.recs)
	rising := true
	for i := 1; i < n && rising; i++ {
		rising = bytes.Compare(s.key(uint32(i-1)), s.key(uint32(i))) < 0
	}
	if rising {
		return
	}
	pairs := make([]sortPair, n)
	positions := s.varying()
	for i := range pairs {
		k := s.key(uint32(i))
		var w uint64
		for _, p := range positions {
			w = w<<8 | uint64(k[p])
		}
		pairs[i] = sortPair{w, uint32(i)}
	}
	pairs = radixSort(pairs, len(positions))
	// Ties are in the order of their coming: sort them by the whole key, stably.
	for i := 0; i < n; {
		j := i + 1
		for j < n && pairs[j].word == pairs[i].word {
			j++
		}
		if j > i+1 {
			slices.SortStableFunc(pairs[i:j], func(a, b sortPair) int { return bytes.Compare(s.key(a.rec), s.key(b.rec)) })
		}
		i = j
	}
	order := make([]uint32, 0, n)
	for i, p := range pairs {
		if i+1 < n && pairs[i+1].word == p.word && bytes.Equal(s.key(pairs[i+1].rec), s.key(p.rec)) {
			continue
		}
		order = append(order, p.rec)
	}
	s.order = order
}

// maxVarying is the number of byte positions that decide an order by words.
const maxVarying = 8

// varying returns the first byte positions, below the length of the shortest key, at which keys differ.
func (s *stage) varying() []int {
	first := s.key(0)
	n := len(first)
	diff := make([]byte, n)
	for i := 1; i < len(s.recs); i++ {
		k := s.key(uint32(i))
		n = min(n, len(k))
		for p, b := range first[:n] {
			diff[p] |= b ^ k[p]
		}
	}
	var out []int
	for p := 0; p < n && len(out) < maxVarying; p++ {
		if diff[p] != 0 {
			out = append(out, p)
		}
	}
	return out
}

type sortPair struct {
	word uint64
	rec  uint32
}

// radixMin is the length from which on passes over all pairs are cheaper than comparing.
const radixMin = 128

// radixSort sorts pairs stably by the lowest used bytes of their words.
func radixSort(pairs []sortPair, used int) []sortPair {
	if len(pairs) < radixMin {
		slices.SortStableFunc(pairs, func(a, b sortPair) int {
			switch {
			case a.word < b.word:
				return -1
			case a.word > b.word:
				return 1
			}
			return 0
		})
		return pairs
	}
	other := make([]sortPair, len(pairs))
	for b := range used {
		var at [256]int
		shift := uint(b * 8)
		for i := range pairs {
			at[byte(pairs[i].word>>shift)]++
		}
		sum := 0
		for i, n := range at {
			at[i] = sum
			sum += n
		}
		for _, p := range pairs {
			d := byte(p.word >> shift)
			other[at[d]] = p
			at[d]++
		}
		pairs, other = other, pairs
	}
	return pairs
}

// length is the number of keys of a sorted stage.
func (s *stage) length() int {
	if s.order == nil {
		return len(s.recs)
	}
	return len(s.order)
}

// rec returns the record at a position of a sorted stage.
func (s *stage) rec(pos int) uint32 {
	if s.order == nil {
		return uint32(pos)
	}
	return s.order[pos]
}

// seek returns the first position of a sorted stage whose key is not below k.
func (s *stage) seek(k []byte) int {
	lo, hi := 0, s.length()
	for lo < hi {
		m := int(uint(lo+hi) >> 1)
		if bytes.Compare(s.key(s.rec(m)), k) < 0 {
			lo = m + 1
		} else {
			hi = m
		}
	}
	return lo
}

// search returns the entry of a key in a sorted stage, for any goroutine.
func (s *stage) search(k []byte) (entry, bool) {
	if p := s.seek(k); p < s.length() {
		if i := s.rec(p); bytes.Equal(s.key(i), k) {
			return s.entry(i), true
		}
	}
	return entry{}, false
}

// mergeStages makes one stage of several, oldest first. Bottom says that nothing older is left for tombstones to hide.
func mergeStages(ss []*stage, bottom bool) *stage {
	out := &stage{from: ss[0].from, to: ss[len(ss)-1].to}
	for it := newStageIter(ss, nil, false); it.ok; it.next() {
		if !bottom || !it.cur.tombstone() {
			out.addEntry(it.cur)
		}
	}
	out.once.Do(func() {})
	return out
}

// stageIter walks several sorted stages in order; of equal keys the newest stage's entry counts.
type stageIter struct {
	stages []*stage // oldest first
	pos    []int
	desc   bool
	cur    entry
	ok     bool
}

// newStageIter starts at the first key not below from (nil: the first of all), or with desc at the last one below it (nil: the last of all).
func newStageIter(ss []*stage, from []byte, desc bool) *stageIter {
	it := &stageIter{stages: ss, pos: make([]int, len(ss)), desc: desc}
	for i, s := range ss {
		s.sorted()
		switch {
		case from != nil:
			it.pos[i] = s.seek(from)
		case desc:
			it.pos[i] = s.length()
		}
		if desc {
			it.pos[i]--
		}
	}
	it.settle()
	return it
}

func (it *stageIter) valid(i int) bool { return it.pos[i] >= 0 && it.pos[i] < it.stages[i].length() }

// settle finds the entry that comes first.
func (it *stageIter) settle() {
	if len(it.stages) == 1 {
		if it.ok = it.valid(0); it.ok {
			it.cur = it.stages[0].entry(it.stages[0].rec(it.pos[0]))
		}
		return
	}
	best := -1
	var key []byte
	for i := len(it.stages) - 1; i >= 0; i-- {
		if !it.valid(i) {
			continue
		}
		k := it.stages[i].key(it.stages[i].rec(it.pos[i]))
		if best < 0 {
			best, key = i, k
		} else if c := bytes.Compare(k, key); !it.desc && c < 0 || it.desc && c > 0 {
			best, key = i, k
		}
	}
	it.ok = best >= 0
	if it.ok {
		it.cur = it.stages[best].entry(it.stages[best].rec(it.pos[best]))
	}
}

func (it *stageIter) next() {
	if len(it.stages) == 1 {
		it.step(0)
	} else {
		key := bytesOf(it.cur.key())
		for i, s := range it.stages {
			if it.valid(i) && bytes.Equal(s.key(s.rec(it.pos[i])), key) {
				it.step(i)
			}
		}
	}
	it.settle()
}

func (it *stageIter) step(i int) {
	if it.desc {
		it.pos[i]--
	} else {
		it.pos[i]++
	}
}
