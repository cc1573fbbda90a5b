package expr

import (
	"math"
	"math/bits"
	"math/rand/v2"
	"sync"
)

// Random is the generator of a session's random numbers: xoroshiro128** like PostgreSQL's, so that numbers after a seed are the same.
// Safe for concurrent use.
type Random struct {
	mu     sync.Mutex
	s0, s1 uint64
	seeded bool
}

// Seed begins anew from a number from -1 to 1.
func (r *Random) Seed(seed float64) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.start(uint64(int64((1<<52 - 1) * seed)))
}

// start fills the state from a seed with splitmix64.
func (r *Random) start(seed uint64) {
	next := func() uint64 {
		seed += 0x9E3779B97F4A7C15
		v := seed
		v = (v ^ v>>30) * 0xBF58476D1CE4E5B9
		v = (v ^ v>>27) * 0x94D049BB133111EB
		return v ^ v>>31
	}
	r.s0, r.s1, r.seeded = next(), next(), true
	if r.s0 == 0 && r.s1 == 0 { // the one state without a successor
		r.s0, r.s1 = 0x5851F42D4C957F2D, 0x14057B7EF767814F
	}
}

// Float64 is the next number, at least 0 and less than 1. A nil Random has no seed.
func (r *Random) Float64() float64 {
	if r == nil {
		return rand.Float64()
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if !r.seeded {
		r.start(rand.Uint64())
	}
	s0, sx := r.s0, r.s1^r.s0
	v := bits.RotateLeft64(s0*5, 7) * 9
	r.s0 = bits.RotateLeft64(s0, 24) ^ sx ^ sx<<16
	r.s1 = bits.RotateLeft64(sx, 37)
	return math.Ldexp(float64(v>>12), -52)
}
