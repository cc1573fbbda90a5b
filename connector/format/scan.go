package format

import (
	"encoding/binary"
	"math"
	"math/bits"
	"unsafe"

	"github.com/streamdb/streamdb/types"
)

// powersOfTen are those that a fast decimal may have as denominator.
var powersOfTen = [maxFastDigits + 1]int64{
	1, 10, 100, 1000, 10_000, 100_000, 1_000_000, 10_000_000, 100_000_000, 1_000_000_000, 10_000_000_000, 100_000_000_000,
	1_000_000_000_000, 10_000_000_000_000, 100_000_000_000_000, 1_000_000_000_000_000,
}

// maxFastDigits is how many digits a number may have to be exact as a float64.
const maxFastDigits = 15

// digits8 returns how many of the eight bytes of x, from the lowest, are digits.
func digits8(x uint64) uint {
	t := x ^ 0x3030303030303030
	t = ((t + 0x7676767676767676) | t) & highs
	return uint(bits.TrailingZeros64(t)) >> 3
}

// parse8 returns the value of the n (1 … 8) digits in the low bytes of x.
func parse8(x uint64, n uint) uint64 {
	x <<= (8 - n) * 8
	x = (x & 0x0f0f0f0f0f0f0f0f) * 2561 >> 8
	x = (x & 0x00ff00ff00ff00ff) * 6553601 >> 16
	return (x & 0x0000ffff0000ffff) * 42949672960001 >> 32
}

// maxFastIntDigits is how many digits always fit an int64.
const maxFastIntDigits = 18

// integer reads an integer of at most maxFastIntDigits digits at p[i:] and returns the index after it; -1 when there is none or it is
// spelled in another way (leading zeros, more digits).
func integer(p unsafe.Pointer, i int) (int64, int) {
	neg := *(*byte)(unsafe.Add(p, i)) == '-'
	if neg {
		i++
	}
	start := i
	x := load(p, i)
	n := digits8(x)
	if n == 0 || n > 1 && byte(x) == '0' {
		return 0, -1
	}
	v := parse8(x, n)
	i += int(n)
	for n == 8 {
		x = load(p, i)
		if n = digits8(x); n == 0 {
			break
		}
		if i += int(n); i-start > maxFastIntDigits {
			return 0, -1
		}
		v = v*uint64(powersOfTen[n]) + parse8(x, n)
	}
	if neg {
		return -int64(v), i
	}
	return int64(v), i
}

// decimal reads a number of at most maxFastDigits digits without exponent, as coefficient and scale, and returns the index after
// it; -1 when there is none or it is spelled in another way.
func decimal(p unsafe.Pointer, i int) (v int64, scale, next int) {
	neg := *(*byte)(unsafe.Add(p, i)) == '-'
	if neg {
		i++
	}
	start := i
	first := *(*byte)(unsafe.Add(p, i))
	for {
		c := *(*byte)(unsafe.Add(p, i)) - '0'
		if c > 9 {
			break
		}
		if i-start >= maxFastDigits {
			return 0, 0, -1
		}
		v = v*10 + int64(c)
		i++
	}
	whole := i - start
	if whole == 0 || whole > 1 && first == '0' || neg && v == 0 {
		return 0, 0, -1
	}
	if *(*byte)(unsafe.Add(p, i)) == '.' {
		i++
		for {
			c := *(*byte)(unsafe.Add(p, i)) - '0'
			if c > 9 {
				break
			}
			if whole+scale >= maxFastDigits {
				return 0, 0, -1
			}
			v = v*10 + int64(c)
			scale++
			i++
		}
		if scale == 0 {
			return 0, 0, -1
		}
	}
	if c := *(*byte)(unsafe.Add(p, i)) | 0x20; c == 'e' {
		return 0, 0, -1
	}
	if neg {
		v = -v
	}
	return v, scale, i
}

func fits(oid types.OID, v int64) bool {
	switch oid {
	case types.OIDInt2:
		return v >= math.MinInt16 && v <= math.MaxInt16
	case types.OIDInt4:
		return v >= math.MinInt32 && v <= math.MaxInt32
	}
	return true
}

// dateMemo remembers the last date read: in a stream nearly all rows have the date of the row before.
type dateMemo struct {
	text [10]byte
	day  int64 // microseconds
}

const (
	microsPerSecond = 1_000_000
	microsPerMinute = 60 * microsPerSecond
	microsPerHour   = 60 * microsPerMinute
	maxFraction     = 6 // digits of a microsecond
)

// timestamp reads s if it has the form that prefix knows; ok is false for every other one, which the full parser judges.
func (m *dateMemo) timestamp(s string) (ts int64, ok bool) {
	ts, n := m.prefix(s)
	return ts, n == len(s)
}

// prefix reads "yyyy-mm-dd hh:mm:ss[.ffffff][Z]" (blank or T between) at the start of s, and returns how many bytes that are; -1 when it is not there. s must be followed by eight readable bytes.
func (m *dateMemo) prefix(s string) (ts int64, n int) {
	if len(s) < 19 || s[10] != ' ' && s[10] != 'T' {
		return 0, -1
	}
	if s[:10] != view(m.text[:]) {
		day, err := types.ParseTimestamp(nil, s[:10])
		if err != nil || s[4] != '-' || s[7] != '-' {
			return 0, -1
		}
		copy(m.text[:], s)
		m.day = day
	}
	p := unsafe.Pointer(unsafe.StringData(s))
	const colons = 0x0000ff0000ff0000
	x := load(p, 11)
	t := x ^ 0x30303a30303a3030 // hh:mm:ss, digits become their values and colons zero
	if ((t+0x7676007676007676)|t)&highs != 0 || t&colons != 0 {
		return 0, -1
	}
	h := int64(t&0xff)*10 + int64(t>>8&0xff)
	mi := int64(t>>24&0xff)*10 + int64(t>>32&0xff)
	sec := int64(t>>48&0xff)*10 + int64(t>>56)
	if h > 23 || mi > 59 || sec > 59 {
		return 0, -1
	}
	us := int64(0)
	i := 19
	if i < len(s) && s[i] == '.' {
		x := load(p, i+1)
		digits := digits8(x)
		if digits == 0 || digits > maxFraction {
			return 0, -1
		}
		us = int64(parse8(x, digits)) * powersOfTen[maxFraction-digits]
		i += 1 + int(digits)
	}
	if i < len(s) && s[i] == 'Z' {
		i++
	}
	return m.day + h*microsPerHour + mi*microsPerMinute + sec*microsPerSecond + us, i
}

// word returns the up to sixteen bytes of s as two words with masks, for comparison with two loads.
func word(s string) (w, m [2]uint64) {
	var b, k [16]byte
	for i := range min(len(s), len(b)) {
		b[i], k[i] = s[i], 0xff
	}
	for i := range w {
		w[i], m[i] = binary.LittleEndian.Uint64(b[i*8:]), binary.LittleEndian.Uint64(k[i*8:])
	}
	return w, m
}
