package state

import "sync/atomic"

// keyFilter answers for a staged part whether Pebble may have a key: a miss costs a few cache misses instead of a read through all levels. The
// background adds the keys of what it ingests, before the part lets go of them; the part's goroutine asks.
type keyFilter struct {
	segments atomic.Pointer[[]*filterSegment]
	off      atomic.Bool // some keys in Pebble are unknown to the filter, or it grew too large
	bytes    int64       // the background's
}

// filterSegment is a blocked Bloom filter: a key sets one bit in each of the eight words of one cache line.
type filterSegment struct {
	words []uint64
	keys  int
	room  int
}

const (
	filterBitsPerKey = 12
	filterFirstKeys  = 1 << 16
	filterMaxKeys    = 1 << 22 // of one segment
	filterBlockWords = 8
	// filterShare is the part of the budget's limit that one filter may take.
	filterShare = 8
)

// filterSalts are odd numbers that spread one hash over the words of a block.
var filterSalts = [filterBlockWords]uint64{
	0x47b6137b44974d91, 0x8824ad5ba2b7289d, 0x705495c72df1424b, 0x9efc49475c6bfb31, 0x5c6bfb31a2b7289d, 0x2df1424b8824ad5b, 0x44974d91705495c7, 0xc2b2ae3d27d4eb4f,
}

// KeyFilter is a set of hashes for an operator that asks before it reads: it has what was added, and a few others. One goroutine uses it.
type KeyFilter struct{ f keyFilter }

// Has reports whether h may have been added.
func (f *KeyFilter) Has(h uint64) bool { return f.f.has(h) }

// Add adds h.
func (f *KeyFilter) Add(h uint64) { f.f.add(h) }

// Bytes is the memory held.
func (f *KeyFilter) Bytes() int64 { return f.f.bytes }

func (f *keyFilter) has(h uint64) bool {
	segs := f.segments.Load()
	if segs == nil {
		return false
	}
	for _, s := range *segs {
		if s.has(h) {
			return true
		}
	}
	return false
}

func (s *filterSegment) block(h uint64) []uint64 {
	b := (h >> 32) * uint64(len(s.words)/filterBlockWords) >> 32 * filterBlockWords
	return s.words[b : b+filterBlockWords : b+filterBlockWords]
}

func (s *filterSegment) has(h uint64) bool {
	for i := range s.block(h) {
		b := s.block(h)
		if atomic.LoadUint64(&b[i])>>(h*filterSalts[i]>>58)&1 == 0 {
			return false
		}
	}
	return true
}

// add is the background's. It reports how many bytes the filter grew.
func (f *keyFilter) add(h uint64) int64 {
	if f.has(h) {
		return 0
	}
	var segs []*filterSegment
	if p := f.segments.Load(); p != nil {
		segs = *p
	}
	var grown int64
	if n := len(segs); n == 0 || segs[n-1].keys >= segs[n-1].room {
		room := filterFirstKeys
		if n > 0 {
			room = min(segs[n-1].room*4, filterMaxKeys)
		}
		s := &filterSegment{words: make([]uint64, room*filterBitsPerKey/512*filterBlockWords), room: room}
		next := append(segs[:n:n], s)
		f.segments.Store(&next)
		segs = next
		grown = int64(len(s.words)) * 8
		f.bytes += grown
	}
	s := segs[len(segs)-1]
	s.keys++
	b := s.block(h)
	for i := range b {
		atomic.OrUint64(&b[i], 1<<(h*filterSalts[i]>>58))
	}
	return grown
}

// drop gives the memory back: from now on Pebble is asked.
func (f *keyFilter) drop() int64 {
	f.off.Store(true)
	f.segments.Store(nil)
	n := f.bytes
	f.bytes = 0
	return n
}
