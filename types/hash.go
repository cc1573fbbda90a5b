package types

import (
	"math/big"
	"math/bits"

	"github.com/cespare/xxhash/v2"
)

// Row hashes decide in which key group a key's state lives, so they are part of the state format and never change.
//
//	h = seed; per column h = fold((h ^ v) * hashMul), fold = high half ^ low half of the 128-bit product
//	v of a NULL is hashNull; of ints the value ^ hashInt, of strings their xxh64, of everything else see hashDatum

const (
	hashSeed = 0x9E3779B97F4A7C15
	hashMul  = 0xA0761D6478BD642F
	hashInt  = 0xE7037ED1A0B428DB
	hashNull = 0x8EBC6AF09C88C6E3
)

func foldMul(a, b uint64) uint64 {
	hi, lo := bits.Mul64(a, b)
	return hi ^ lo
}

func mixHash(h, v uint64) uint64 { return foldMul(h^v, hashMul) }

// HashRows writes the hash of the columns at positions cols of each physical row of c to out, which holds at least c.N values.
// Rows that are not selected get some value. Rows that SQL calls equal (GROUP BY, DISTINCT) have equal hashes.
func HashRows(c *Chunk, cols []int, out []uint64) {
	out = out[:c.N]
	for i := range out {
		out[i] = hashSeed
	}
	for _, p := range cols {
		hashColumn(c, c.Cols[p], out)
	}
}

func hashColumn(c *Chunk, v *Vector, out []uint64) {
	switch v.Type.Kind() {
	case KindInt:
		if v.Valid == nil {
			for i, x := range v.Int[:len(out)] {
				out[i] = mixHash(out[i], uint64(x)^hashInt)
			}
			return
		}
		for i, x := range v.Int[:len(out)] {
			w := uint64(x) ^ hashInt
			if !v.Valid.Get(i) {
				w = hashNull
			}
			out[i] = mixHash(out[i], w)
		}
		return
	case KindString:
		if plainStringHash(v.Type.OID) {
			for i, s := range v.Str[:len(out)] {
				if v.IsNull(i) {
					out[i] = mixHash(out[i], hashNull)
					continue
				}
				out[i] = mixHash(out[i], xxhash.Sum64String(s))
			}
			return
		}
	case KindBool:
		for i, b := range v.Bool[:len(out)] {
			w := uint64(hashInt)
			if b {
				w ^= 1
			}
			if v.IsNull(i) {
				w = hashNull
			}
			out[i] = mixHash(out[i], w)
		}
		return
	case KindFloat:
		for i, f := range v.Float[:len(out)] {
			w := wireFloat64(f+0) ^ hashInt
			if v.IsNull(i) {
				w = hashNull
			}
			out[i] = mixHash(out[i], w)
		}
		return
	}
	var buf []byte
	for i := range c.Rows() {
		r := c.Row(i)
		d := v.Get(r)
		var w uint64
		w, buf = hashDatum(&d, buf)
		out[r] = mixHash(out[r], w)
	}
}

// plainStringHash reports whether values of the type are equal exactly when their bytes are.
func plainStringHash(oid OID) bool {
	switch oid {
	case OIDText, OIDVarchar, OIDBytea, OIDName, OIDUUID, OIDChar:
		return true
	}
	return T(oid).IsEnum()
}

// hashDatum returns the v of one value. buf is scratch space, returned for reuse.
func hashDatum(d *Datum, buf []byte) (uint64, []byte) {
	if d.Null {
		return hashNull, buf
	}
	switch d.Type.Kind() {
	case KindBool:
		if d.Bool {
			return 1 ^ hashInt, buf
		}
		return hashInt, buf
	case KindInt:
		return uint64(d.Int) ^ hashInt, buf
	case KindFloat:
		return wireFloat64(d.Float+0) ^ hashInt, buf
	case KindNumeric:
		return hashNumeric(&d.Num), buf
	case KindInterval:
		hi, lo := d.Ivl.span()
		return lo ^ hashInt ^ uint64(hi)*hashMul, buf
	case KindString:
		if plainStringHash(d.Type.OID) {
			return xxhash.Sum64String(d.Str), buf
		}
		if d.Type.OID == OIDBpchar {
			return xxhash.Sum64String(trimBlanks(d.Str)), buf
		}
		buf = appendStringKey(buf[:0], d.Type.OID, d.Str)
		return xxhash.Sum64(buf), buf
	}
	return hashNull, buf
}

// hashNumeric hashes coefficient and scale without trailing zeros, so that 1.0 and 1.00 agree.
func hashNumeric(n *Numeric) uint64 {
	if n.Form != Finite {
		return foldMul(uint64(n.Form)+hashNull, hashMul)
	}
	scale := int64(n.Scale)
	c := n.Coef
	if n.Big != nil {
		x := new(big.Int).Set(n.Big)
		var q, r big.Int
		for {
			q.QuoRem(x, bigTen, &r)
			if r.Sign() != 0 {
				break
			}
			x.Set(&q)
			scale--
		}
		if !x.IsInt64() {
			return xxhash.Sum64(x.Append(nil, 10)) ^ uint64(scale)*hashMul
		}
		c = x.Int64()
	}
	if c == 0 {
		return hashInt
	}
	for c%10 == 0 {
		c /= 10
		scale--
	}
	return uint64(c) ^ hashInt ^ uint64(scale)*hashMul
}

// HashDatums returns the hash HashRows gives a row of these values.
func HashDatums(row []Datum) uint64 {
	h := uint64(hashSeed)
	for i := range row {
		w, _ := hashDatum(&row[i], nil)
		h = mixHash(h, w)
	}
	return h
}

// KeyGroup returns the key group of a row hash, below maxParallelism. It reads bits 16 to 47, so that the top bits stay
// evenly spread within a group: hash tables take their positions from them.
func KeyGroup(hash uint64, maxParallelism int) uint16 {
	return uint16(uint64(uint32(hash>>16)) * uint64(maxParallelism) >> 32)
}
