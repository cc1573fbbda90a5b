package types

import (
	"bytes"
	"math"
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"
)

// sampleTypes are the types the properties run over.
func sampleTypes() []Type {
	return []Type{
		Bool, Int2, Int4, Int8, Float4, Float8, NumericType, Text, Bpchar, Bytea, Date, Time, T(OIDTimetz), Timestamp, Timestamptz, IntervalT, UUID, JSONB, Oid,
		T(1007), T(1009), T(1231), T(OIDRecord),
	}
}

func genNumeric(t *rapid.T) Numeric {
	switch rapid.IntRange(0, 9).Draw(t, "form") {
	case 0:
		return Numeric{Form: rapid.SampledFrom([]NumericForm{NaN, PosInf, NegInf}).Draw(t, "special")}
	case 1:
		n, err := ParseNumeric(rapid.StringMatching(`-?[0-9]{1,40}(\.[0-9]{0,20})?`).Draw(t, "digits"))
		if err != nil {
			t.Fatal(err)
		}
		return n
	case 2:
		return Numeric{Coef: rapid.Int64().Draw(t, "coef"), Scale: rapid.Int16Range(0, 30).Draw(t, "scale")}
	}
	// A small range with different scales, so that equal values in unlike forms meet.
	scale := rapid.Int16Range(0, 3).Draw(t, "scale")
	return Numeric{Coef: int64(rapid.IntRange(-20, 20).Draw(t, "coef")) * int64Pow10[rapid.Int16Range(0, scale).Draw(t, "shift")], Scale: scale}
}

func genJSON(t *rapid.T, depth int) JSONTree {
	top := 5
	if depth == 0 {
		top = 3
	}
	switch k := JSONKind(rapid.IntRange(0, top).Draw(t, "kind")); k {
	case JSONString:
		return JSONTree{Kind: k, Str: rapid.StringN(0, 3, -1).Filter(func(s string) bool { return !bytes.ContainsRune([]byte(s), 0) }).Draw(t, "str")}
	case JSONNumber:
		n := genNumeric(t)
		if n.Form != Finite {
			n = Numeric{Coef: 7}
		}
		return JSONTree{Kind: k, Num: n}
	case JSONBool:
		return JSONTree{Kind: k, Bool: rapid.Bool().Draw(t, "bool")}
	case JSONArray, JSONObject:
		n := rapid.IntRange(0, 3).Draw(t, "n")
		var keys []string
		var vals []JSONTree
		for range n {
			keys = append(keys, rapid.SampledFrom([]string{"", "a", "b", "aa"}).Draw(t, "key"))
			vals = append(vals, genJSON(t, depth-1))
		}
		if k == JSONArray {
			return JSONTree{Kind: k, Elems: vals}
		}
		return NewJSONObject(keys, vals)
	default:
		return JSONTree{Kind: k}
	}
}

func genInt(t *rapid.T, lo, hi int64) int64 {
	if rapid.Bool().Draw(t, "near") {
		return rapid.Int64Range(max(lo, -3), 3).Draw(t, "small")
	}
	return rapid.Int64Range(lo, hi).Draw(t, "int")
}

func genDatum(t *rapid.T, typ Type) Datum {
	d := Datum{Type: typ}
	if rapid.IntRange(0, 9).Draw(t, "null") == 0 {
		d.Null = true
		return d
	}
	text := func() string {
		s := rapid.SliceOfN(rapid.SampledFrom([]rune("ab \xffé\U0010FFFF,{}\"\\")), 0, 4).Draw(t, "text")
		return string(s)
	}
	switch typ.OID {
	case OIDBool:
		d.Bool = rapid.Bool().Draw(t, "bool")
	case OIDInt2:
		d.Int = genInt(t, math.MinInt16, math.MaxInt16)
	case OIDInt4:
		d.Int = genInt(t, math.MinInt32, math.MaxInt32)
	case OIDInt8:
		d.Int = genInt(t, math.MinInt64, math.MaxInt64)
	case OIDOid:
		d.Int = genInt(t, 0, math.MaxUint32)
	case OIDDate:
		if d.Int = genInt(t, minDate, endDate-1); rapid.IntRange(0, 9).Draw(t, "inf") == 0 {
			d.Int = DateInfinity
		}
	case OIDTime:
		d.Int = rapid.Int64Range(0, microsPerDay).Draw(t, "time")
	case OIDTimetz:
		d.Str = MakeTimetz(rapid.Int64Range(0, microsPerDay).Draw(t, "time"), int32(rapid.IntRange(-3, 3).Draw(t, "zone"))*3600)
	case OIDTimestamp, OIDTimestamptz:
		if d.Int = genInt(t, minTimestamp+microsPerDay, endTimestamp-microsPerDay); rapid.IntRange(0, 9).Draw(t, "inf") == 0 {
			d.Int = TimestampNegInfinity
		}
	case OIDFloat4:
		d.Float = float64(rapid.SampledFrom([]float32{0, float32(math.Copysign(0, -1)), 1, -1.5, float32(math.NaN()), float32(math.Inf(1)), rapid.Float32().Draw(t, "f")}).Draw(t, "float"))
	case OIDFloat8:
		d.Float = rapid.SampledFrom([]float64{0, math.Copysign(0, -1), 1, -1.5, math.NaN(), math.Inf(-1), rapid.Float64().Draw(t, "f")}).Draw(t, "float")
	case OIDNumeric:
		d.Num = genNumeric(t)
	case OIDInterval:
		d.Ivl = Interval{Months: int32(rapid.IntRange(-2, 2).Draw(t, "m")), Days: int32(rapid.IntRange(-31, 31).Draw(t, "d")), Micros: int64(rapid.IntRange(-49, 49).Draw(t, "h")) * microsPerHour}
		if rapid.IntRange(0, 4).Draw(t, "wide") == 0 {
			d.Ivl = Interval{rapid.Int32Range(-math.MaxInt32, math.MaxInt32).Draw(t, "m"), rapid.Int32Range(-math.MaxInt32, math.MaxInt32).Draw(t, "d"), rapid.Int64Range(-math.MaxInt64, math.MaxInt64).Draw(t, "us")}
		}
	case OIDUUID:
		d.Str = string(rapid.SliceOfN(rapid.Byte(), 16, 16).Draw(t, "uuid"))
	case OIDBytea:
		d.Str = string(rapid.SliceOfN(rapid.SampledFrom([]byte{0, 1, 'a', 0xFF}), 0, 4).Draw(t, "bytes"))
	case OIDJSONB:
		j := genJSON(t, 2)
		d.Str = j.String()
	case OIDRecord:
		d.Str = EncodeRecord([]Datum{genDatum(t, Int4), genDatum(t, Text)})
	default:
		if e, ok := typ.Elem(); ok {
			var elems []Datum
			for range rapid.IntRange(0, 3).Draw(t, "n") {
				elems = append(elems, genDatum(t, e))
			}
			d.Str = EncodeArray(NewArray(e.OID, elems))
			break
		}
		d.Str = text()
	}
	return d
}

// identical reports whether two values are the same to the last bit, also where SQL calls unlike values equal.
func identical(a, b Datum) bool {
	return bytes.Equal(AppendDatumRow(nil, []Datum{a}), AppendDatumRow(nil, []Datum{b}))
}

func TestKeyOrderHashAndEquality(t *testing.T) {
	for _, typ := range sampleTypes() {
		t.Run(typ.String(), func(t *testing.T) {
			rapid.Check(t, func(t *rapid.T) {
				a, b := genDatum(t, typ), genDatum(t, typ)
				c := CompareDatum(a, b)
				require.Equal(t, -sign(c), sign(CompareDatum(b, a)))
				ka, kb := AppendKeyDatum(nil, a, false, false), AppendKeyDatum(nil, b, false, false)
				require.Equal(t, sign(c), bytes.Compare(ka, kb), "%v %v", a, b)
				if !a.Null && !b.Null {
					da, db := AppendKeyDatum(nil, a, true, true), AppendKeyDatum(nil, b, true, true)
					require.Equal(t, -sign(c), bytes.Compare(da, db), "descending %v %v", a, b)
					require.False(t, c != 0 && (bytes.HasPrefix(ka, kb) || bytes.HasPrefix(kb, ka)), "not self-delimiting: %v %v", a, b)
					require.Equal(t, -1, bytes.Compare(ka, KeySuccessor(ka)))
				}
				if c == 0 {
					require.Equal(t, HashDatums([]Datum{a}), HashDatums([]Datum{b}), "%v %v", a, b)
				}
				v := NewVector(typ, 0)
				v.AppendDatum(a)
				require.Equal(t, ka, AppendKey(nil, v, 0, false, false))
				if !a.Null && !b.Null {
					v.AppendDatum(b)
					require.Equal(t, sign(c), sign(Compare(v, 0, v, 1)))
				}
			})
		})
	}
}

func sign(c int) int { return min(1, max(-1, c)) }

func TestTextAndBinaryRoundTrip(t *testing.T) {
	f := newYork(t)
	for _, typ := range sampleTypes() {
		if typ.OID == OIDRecord {
			continue
		}
		t.Run(typ.String(), func(t *testing.T) {
			rapid.Check(t, func(t *rapid.T) {
				d := genDatum(t, typ)
				if d.Null {
					return
				}
				for style := IntervalPostgres; style <= IntervalISO8601; style++ {
					if style != IntervalPostgres && typ.OID != OIDInterval {
						break
					}
					g := *f
					g.IntervalStyle = style
					text := string(d.AppendText(nil, &g))
					back, err := ParseText(&g, typ, text)
					require.NoError(t, err, text)
					require.True(t, identical(d, back) || math.IsNaN(d.Float), "%q became %q", text, string(back.AppendText(nil, &g)))
				}
				back, err := ParseBinary(typ, d.AppendBinary(nil))
				require.NoError(t, err)
				require.True(t, identical(d, back) || math.IsNaN(d.Float) || math.IsNaN(back.Float), "binary of %v", d)
			})
		})
	}
}

func genChunk(t *rapid.T) *Chunk {
	ts := rapid.SliceOfN(rapid.SampledFrom(sampleTypes()), 0, 4).Draw(t, "types")
	c := NewChunk(ts)
	for range rapid.IntRange(0, 8).Draw(t, "rows") {
		for i, typ := range ts {
			c.Cols[i].AppendDatum(genDatum(t, typ))
		}
		c.PushWeight(rapid.SampledFrom([]int64{1, 1, -1, 5, math.MinInt64}).Draw(t, "weight"))
	}
	if rapid.Bool().Draw(t, "selected") {
		c.Sel = []uint16{}
		for i := range c.N {
			if rapid.Bool().Draw(t, "keep") {
				c.Sel = append(c.Sel, uint16(i))
			}
		}
	}
	return c
}

func chunkTypes(c *Chunk) []Type {
	var ts []Type
	for _, v := range c.Cols {
		ts = append(ts, v.Type)
	}
	return ts
}

func requireSameRows(t *rapid.T, a, b *Chunk) {
	require.Equal(t, a.Rows(), b.Rows())
	for i := range a.Rows() {
		require.Equal(t, a.Weight(a.Row(i)), b.Weight(b.Row(i)))
		for k := range a.Cols {
			require.True(t, identical(a.Cols[k].Get(a.Row(i)), b.Cols[k].Get(b.Row(i))))
		}
	}
}

func TestChunkAndRowRoundTrip(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		c := genChunk(t)
		ts := chunkTypes(c)
		b := AppendChunk([]byte("x"), c)[1:]
		d, err := DecodeChunk(b, ts)
		require.NoError(t, err)
		requireSameRows(t, c, d)
		if len(ts) == 0 {
			return
		}
		var rows []byte
		for i := range c.Rows() {
			rows = AppendRow(rows, c.Cols, c.Row(i))
		}
		one, all := NewChunk(ts), NewChunk(ts)
		rest := bytes.Clone(rows)
		for i := range c.Rows() {
			row := bytes.Clone(rest)
			left, err := DecodeRow(row, one.Cols)
			require.NoError(t, err)
			rest = rest[len(rest)-len(left):]
			clear(row) // decoded strings must not depend on the input
			one.PushWeight(c.Weight(c.Row(i)))
		}
		require.Empty(t, rest)
		requireSameRows(t, c, one)
		left, err := DecodeRows(string(rows), c.Rows(), all.Cols)
		require.NoError(t, err)
		require.Empty(t, left)
		for i := range c.Rows() {
			all.PushWeight(c.Weight(c.Row(i)))
		}
		requireSameRows(t, c, all)
	})
}

func TestCorruptBytesAreErrors(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		c := genChunk(t)
		ts := chunkTypes(c)
		b := AppendChunk(nil, c)
		for range rapid.IntRange(1, 3).Draw(t, "flips") {
			b[rapid.IntRange(0, len(b)-1).Draw(t, "at")] ^= byte(rapid.IntRange(1, 255).Draw(t, "bits"))
		}
		b = b[:rapid.IntRange(0, len(b)).Draw(t, "cut")]
		if d, err := DecodeChunk(b, ts); err == nil {
			_ = d.String()
		}
		cols := NewChunk(ts).Cols
		if _, err := DecodeRow(b, cols); err != nil {
			for _, v := range cols {
				require.Zero(t, v.Len())
			}
		}
	})
}

func TestHashRowsAgreesWithHashDatums(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		c := genChunk(t)
		cols := make([]int, len(c.Cols))
		for i := range cols {
			cols[i] = i
		}
		out := make([]uint64, c.N)
		HashRows(c, cols, out)
		for i := range c.Rows() {
			r := c.Row(i)
			var row []Datum
			for _, v := range c.Cols {
				row = append(row, v.Get(r))
			}
			require.Equal(t, HashDatums(row), out[r])
			require.Less(t, int(KeyGroup(out[r], 128)), 128)
		}
	})
}

func TestPrettyChunkRoundTrip(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		c := genChunk(t)
		ts := chunkTypes(c)
		for _, typ := range ts {
			if typ.OID == OIDRecord {
				return
			}
		}
		d, err := ParseChunk(ts, c.String())
		require.NoError(t, err, c.String())
		require.Equal(t, c.String(), d.String())
	})
}

func TestNumericArithmeticAgreesWithBig(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		a, b := genNumeric(t), genNumeric(t)
		wide := func(n Numeric) Numeric {
			// The same value outside int64's reach, by a detour over another scale.
			r, err := NumRound(n, int(n.Scale)+40)
			require.NoError(t, err)
			return r
		}
		for name, op := range map[string]func(a, b Numeric) (Numeric, error){"+": NumAdd, "-": NumSub, "*": NumMul, "%": NumMod} {
			x, e1 := op(a, b)
			y, e2 := op(wide(a), wide(b))
			require.Equal(t, e1 == nil, e2 == nil, name)
			if e1 == nil {
				require.Zero(t, CompareNumeric(x, y), "%v %s %v = %v, %v", a, name, b, x, y)
			}
		}
	})
}
