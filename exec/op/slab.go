package op

import "unsafe"

// slab has elements by number. They never move, and numbers of those that were given back are used again.
type slab[T any] struct {
	parts [][]T
	used  int // numbers ever given, free ones included
	free  []uint32
}

const slabElemBits = 9 // elements of a part: small operators stay small

func (s *slab[T]) at(i uint32) *T { return &s.parts[i>>slabElemBits][i&(1<<slabElemBits-1)] }

// take returns the number of an element to be set.
func (s *slab[T]) take() uint32 {
	if k := len(s.free); k > 0 {
		i := s.free[k-1]
		s.free = s.free[:k-1]
		return i
	}
	if s.used>>slabElemBits == len(s.parts) {
		s.parts = append(s.parts, make([]T, 1<<slabElemBits))
	}
	s.used++
	return uint32(s.used - 1)
}

// give zeroes an element and makes its number free.
func (s *slab[T]) give(i uint32) {
	var none T
	*s.at(i) = none
	s.free = append(s.free, i)
}

func (s *slab[T]) live() int { return s.used - len(s.free) }

// bytes returns the memory held by elements.
func (s *slab[T]) bytes() int64 {
	var one T
	return int64(len(s.parts)) << slabElemBits * int64(unsafe.Sizeof(one))
}
