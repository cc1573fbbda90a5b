package functions

import (
	"math"
	"math/bits"

	"github.com/streamdb/streamdb/types"
)

// hashFunctions lists the hash functions of PostgreSQL's hash indexes and hash partitions that people use to spread rows: the values are
// the same.
func hashFunctions() []entry {
	word := func(v uint32) [4]byte { return [4]byte{byte(v), byte(v >> 8), byte(v >> 16), byte(v >> 24)} }
	fold := func(v int64) uint32 {
		low, high := uint32(v), uint32(v>>32)
		if v >= 0 {
			return low ^ high
		}
		return low ^ ^high
	}
	float := func(f float64) string {
		if f == 0 {
			return ""
		}
		if math.IsNaN(f) {
			return string(le64(0x7FF8000000000000))
		}
		return string(le64(math.Float64bits(f)))
	}
	var out []entry
	add := func(name, arg, doc string, bytes func(c *call) (string, bool)) {
		out = append(out,
			fn(name+"("+arg+")", doc, each(func(c *call) error {
				s, ok := bytes(c)
				if !ok {
					return c.setInt(0)
				}
				_, lo := hashBytes(s, 0)
				return c.setInt(int64(int32(lo)))
			})),
			fn(name+"extended("+arg+",int8)", "", each(func(c *call) error {
				s, ok := bytes(c)
				if !ok {
					return c.setInt(c.int(1))
				}
				hi, lo := hashBytes(s, uint64(c.int(1)))
				return c.setInt(int64(uint64(hi)<<32 | uint64(lo)))
			})))
	}
	small := func(c *call) (string, bool) { b := word(uint32(c.int(0))); return string(b[:]), true }
	text := func(c *call) (string, bool) { return c.str(0), true }
	add("hashint2", "int2", "hashint2(1::int2)", small)
	add("hashint4", "int4", "hashint4(1)", small)
	add("hashoid", "oid", "", small)
	add("hashint8", "int8", "hashint8(-5000000000)", func(c *call) (string, bool) { b := word(fold(c.int(0))); return string(b[:]), true })
	add("hashtext", "text", "hashtext('streaming database')", text)
	add("hashname", "name", "", text)
	add("hashbpchar", "bpchar", "", func(c *call) (string, bool) { return trimBlanks(c.str(0)), true })
	add("hashfloat8", "float8", "hashfloat8(1.5)", func(c *call) (string, bool) { s := float(c.float(0)); return s, s != "" })
	add("hashfloat4", "float4", "", func(c *call) (string, bool) { s := float(c.float(0)); return s, s != "" })
	for _, t := range [...]types.OID{types.OIDUUID} {
		i, _ := types.InfoOf(t)
		out = append(out, fn(i.Name+"_hash("+i.Name+")", "", each(func(c *call) error {
			_, lo := hashBytes(c.str(0), 0)
			return c.setInt(int64(int32(lo)))
		})))
	}
	return out
}

func le64(v uint64) []byte {
	b := make([]byte, 8)
	for i := range b {
		b[i] = byte(v >> (8 * i))
	}
	return b
}

// hashBytes is Bob Jenkins' lookup3 as PostgreSQL initializes it: the last two words of its state.
func hashBytes(s string, seed uint64) (hi, lo uint32) {
	const golden, initial = 0x9e3779b9, 3923095
	n := uint32(len(s))
	a := golden + n + initial
	b, c := a, a
	if seed != 0 {
		a += uint32(seed >> 32)
		b += uint32(seed)
		a, b, c = hashMix(a, b, c)
	}
	load := func(at int) uint32 {
		v := uint32(0)
		for i := 0; i < 4 && at+i < len(s); i++ {
			v |= uint32(s[at+i]) << (8 * i)
		}
		return v
	}
	at := 0
	for ; len(s)-at >= 12; at += 12 {
		a += load(at)
		b += load(at + 4)
		c += load(at + 8)
		a, b, c = hashMix(a, b, c)
	}
	a += load(at)
	b += load(at + 4)
	c += load(at+8) << 8 // the lowest byte holds the length already
	return hashFinal(a, b, c)
}

func hashMix(a, b, c uint32) (uint32, uint32, uint32) {
	rot := bits.RotateLeft32
	a -= c
	a ^= rot(c, 4)
	c += b
	b -= a
	b ^= rot(a, 6)
	a += c
	c -= b
	c ^= rot(b, 8)
	b += a
	a -= c
	a ^= rot(c, 16)
	c += b
	b -= a
	b ^= rot(a, 19)
	a += c
	c -= b
	c ^= rot(b, 4)
	b += a
	return a, b, c
}

func hashFinal(a, b, c uint32) (hi, lo uint32) {
	rot := bits.RotateLeft32
	c ^= b
	c -= rot(b, 14)
	a ^= c
	a -= rot(c, 11)
	b ^= a
	b -= rot(a, 25)
	c ^= b
	c -= rot(b, 16)
	a ^= c
	a -= rot(c, 4)
	b ^= a
	b -= rot(a, 14)
	c ^= b
	c -= rot(b, 24)
	return b, c
}
