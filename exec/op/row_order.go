package op

import (
	"cmp"
	"slices"
)

// rowOrder keeps numbers of rows in order of a key, and of the number where keys are equal. Rows may have a second value, how far they reach: blocks
// whose rows reach nowhere near are passed over as a whole.
type rowOrder[K cmp.Ordered] struct {
	blocks []*orderBlock[K]
	n      int
}

// orderBlock is a run of rows. It is never empty.
type orderBlock[K cmp.Ordered] struct {
	keys  []K
	rows  []uint32
	reach []K // of orders with reach
	most  K   // no row reaches further
}

// orderedRow is a row on its way into an order.
type orderedRow[K cmp.Ordered] struct {
	key, reach K
	row        uint32
}

// orderBlockRows is the length at which a block is split.
var orderBlockRows = 512 // lower in tests

func compareOrdered[K cmp.Ordered](k K, row uint32, k2 K, row2 uint32) int {
	if c := cmp.Compare(k, k2); c != 0 {
		return c
	}
	return cmp.Compare(row, row2)
}

// fill makes the order of rows; it sorts them.
func (s *rowOrder[K]) fill(rows []orderedRow[K], reach bool) {
	slices.SortFunc(rows, func(a, b orderedRow[K]) int { return compareOrdered(a.key, a.row, b.key, b.row) })
	s.blocks, s.n = s.blocks[:0], len(rows)
	for len(rows) > 0 {
		n := min(len(rows), orderBlockRows*3/4)
		b := &orderBlock[K]{}
		for _, r := range rows[:n] {
			b.keys, b.rows = append(b.keys, r.key), append(b.rows, r.row)
			if reach {
				b.reach = append(b.reach, r.reach)
			}
		}
		b.measure()
		s.blocks = append(s.blocks, b)
		rows = rows[n:]
	}
}

func (b *orderBlock[K]) measure() {
	if len(b.reach) > 0 {
		b.most = slices.Max(b.reach)
	}
}

// block returns the last block that begins at or before a place, 0 when there is none.
func (s *rowOrder[K]) block(k K, row uint32) int {
	lo, hi := 0, len(s.blocks)
	for lo < hi {
		m := int(uint(lo+hi) >> 1)
		if b := s.blocks[m]; compareOrdered(b.keys[0], b.rows[0], k, row) <= 0 {
			lo = m + 1
		} else {
			hi = m
		}
	}
	return max(lo-1, 0)
}

// place returns the first position of a block that is not before (k, row).
func (b *orderBlock[K]) place(k K, row uint32) int {
	n := len(b.keys)
	if compareOrdered(b.keys[n-1], b.rows[n-1], k, row) < 0 {
		return n
	}
	lo, hi := 0, n
	for lo < hi {
		m := int(uint(lo+hi) >> 1)
		if compareOrdered(b.keys[m], b.rows[m], k, row) < 0 {
			lo = m + 1
		} else {
			hi = m
		}
	}
	return lo
}

func (s *rowOrder[K]) insert(r orderedRow[K], reach bool) {
	s.n++
	if len(s.blocks) == 0 {
		s.blocks = append(s.blocks, &orderBlock[K]{})
	}
	i := 0
	b := s.blocks[0]
	if len(b.keys) > 0 {
		i = s.block(r.key, r.row)
		b = s.blocks[i]
		if len(b.keys) >= orderBlockRows {
			b = s.split(i, r)
		}
	}
	at := 0
	if len(b.keys) > 0 {
		at = b.place(r.key, r.row)
	}
	b.keys, b.rows = slices.Insert(b.keys, at, r.key), slices.Insert(b.rows, at, r.row)
	if reach {
		b.reach = slices.Insert(b.reach, at, r.reach)
		if len(b.reach) == 1 || r.reach > b.most {
			b.most = r.reach
		}
	}
}

// split makes two blocks of one and returns that into which r goes. Rows that come in order leave full blocks behind.
func (s *rowOrder[K]) split(i int, r orderedRow[K]) *orderBlock[K] {
	b := s.blocks[i]
	at := len(b.keys) / 2
	if i == len(s.blocks)-1 && b.place(r.key, r.row) == len(b.keys) {
		next := &orderBlock[K]{}
		s.blocks = append(s.blocks, next)
		return next
	}
	next := &orderBlock[K]{keys: slices.Clone(b.keys[at:]), rows: slices.Clone(b.rows[at:])}
	b.keys, b.rows = b.keys[:at], b.rows[:at]
	if len(b.reach) > 0 {
		next.reach = slices.Clone(b.reach[at:])
		b.reach = b.reach[:at]
		b.measure()
		next.measure()
	}
	s.blocks = slices.Insert(s.blocks, i+1, next)
	if compareOrdered(next.keys[0], next.rows[0], r.key, r.row) <= 0 {
		return next
	}
	return b
}

// remove takes a row out that is there.
func (s *rowOrder[K]) remove(k K, row uint32) {
	if len(s.blocks) == 0 {
		return
	}
	i := s.block(k, row)
	b := s.blocks[i]
	at := b.place(k, row)
	if at == len(b.keys) || b.rows[at] != row {
		return
	}
	s.n--
	if len(b.keys) == 1 {
		s.blocks = slices.Delete(s.blocks, i, i+1)
		return
	}
	b.keys, b.rows = slices.Delete(b.keys, at, at+1), slices.Delete(b.rows, at, at+1)
	if len(b.reach) > 0 {
		gone := b.reach[at]
		b.reach = slices.Delete(b.reach, at, at+1)
		if gone == b.most {
			b.measure()
		}
	}
}

// orderRange is a part of an order: keys between low and high, of rows that reach from on.
type orderRange[K cmp.Ordered] struct {
	low, high, from          K
	hasLow, hasHigh, hasFrom bool
	block, at                int // where to go on
}

// start goes to the first row of the range. Bounds are inclusive: what is compared behind is exact.
func (s *rowOrder[K]) start(r *orderRange[K]) {
	r.block, r.at = 0, 0
	if r.hasLow && len(s.blocks) > 0 {
		r.block = s.block(r.low, 0)
		r.at = s.blocks[r.block].place(r.low, 0)
	}
}

// next appends the next rows of the range to dst until it is full, and reports whether more may follow. The order must not change between calls.
func (s *rowOrder[K]) next(r *orderRange[K], dst []uint32) ([]uint32, bool) {
	for ; r.block < len(s.blocks); r.block, r.at = r.block+1, 0 {
		b := s.blocks[r.block]
		if r.hasHigh && b.keys[0] > r.high {
			return dst, false
		}
		if r.hasFrom && b.most < r.from {
			continue
		}
		for ; r.at < len(b.keys); r.at++ {
			if r.hasHigh && b.keys[r.at] > r.high {
				return dst, false
			}
			if r.hasFrom && b.reach[r.at] < r.from {
				continue
			}
			if len(dst) == cap(dst) {
				return dst, true
			}
			dst = append(dst, b.rows[r.at])
		}
	}
	return dst, false
}

// takeBelow removes the rows whose keys are less than k, at most as many as dst has room for, and appends them to it.
func (s *rowOrder[K]) takeBelow(k K, dst []uint32) []uint32 {
	for len(s.blocks) > 0 && len(dst) < cap(dst) {
		b := s.blocks[0]
		n := min(b.place(k, 0), cap(dst)-len(dst))
		if n == 0 {
			break
		}
		dst = append(dst, b.rows[:n]...)
		s.n -= n
		if n == len(b.keys) {
			s.blocks = s.blocks[1:]
			continue
		}
		b.keys, b.rows = slices.Delete(b.keys, 0, n), slices.Delete(b.rows, 0, n)
	}
	return dst
}
