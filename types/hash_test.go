package types

import (
	"fmt"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// TestHashGolden pins row hashes: state on disk is placed by them.
func TestHashGolden(t *testing.T) {
	row := func(typ Type, s string) []Datum {
		d, err := ParseText(nil, typ, s)
		require.NoError(t, err)
		return []Datum{d}
	}
	var b strings.Builder
	for _, c := range []struct {
		t Type
		s string
	}{
		{Int4, "0"},
		{Int8, "1"},
		{Int8, "-1"},
		{Text, ""},
		{Text, "streamdb"},
		{Float8, "-0"},
		{Float8, "NaN"},
		{NumericType, "1.00"},
		{NumericType, "123456789012345678901234567890"},
		{Bool, "t"},
		{IntervalT, "1 mon"},
		{UUID, "a0eebc99-9c0b-4ef8-bb6d-6bb9bd380a11"},
		{JSONB, `{"a":1.0}`},
		{T(1007), "{1,NULL}"},
		{Bpchar, "a "},
		{Timestamptz, "2024-07-04"},
	} {
		h := HashDatums(row(c.t, c.s))
		fmt.Fprintf(&b, "%s %s %016x %d\n", c.t, c.s, h, KeyGroup(h, 128))
	}
	h := HashDatums([]Datum{NullDatum(Int4), {Type: Text, Str: "x"}})
	fmt.Fprintf(&b, "(NULL,x) %016x %d\n", h, KeyGroup(h, 128))
	require.Equal(t, hashGolden, b.String())
}

const hashGolden = `integer 0 113f103ac8420136 8
bigint 1 b0c50ea5710f66e5 7
bigint -1 50bf2d00ee49cab5 22
text  5dff9c4df843c5e2 78
text streamdb 34b2382e611b4cf5 28
double precision -0 113f103ac8420136 8
double precision NaN bdedc7c91afcac84 99
numeric 1.00 b0c50ea5710f66e5 7
numeric 123456789012345678901234567890 11db921f00673b32 73
boolean t b0c50ea5710f66e5 7
interval 1 mon 9269d8a0845fbc41 108
uuid a0eebc99-9c0b-4ef8-bb6d-6bb9bd380a11 d4e5ea31172e9346 117
jsonb {"a":1.0} df1b2a96ba260d62 21
integer[] {1,NULL} f99248c779134608 36
character a  2eccc6be72c6745c 99
timestamp with time zone 2024-07-04 1b7dafa250a26a55 87
(NULL,x) 971f139167cd7fa1 9
`

// TestKeyGroupsAreEven checks the spread of small consecutive keys, the most usual ones.
func TestKeyGroupsAreEven(t *testing.T) {
	const keys, groups = 128 * 1000, 128
	count := make([]int, groups)
	for i := range keys {
		count[KeyGroup(HashDatums([]Datum{{Type: Int8, Int: int64(i)}}), groups)]++
	}
	for g, n := range count {
		require.InDelta(t, keys/groups, n, 0.15*keys/groups, "group %d", g)
	}
}

func benchChunk() *Chunk {
	c := NewChunk([]Type{Int8, Text, Float8, Timestamp})
	for i := range 1024 {
		c.Cols[0].AppendDatum(Datum{Type: Int8, Int: int64(i * 7919)})
		c.Cols[1].AppendDatum(Datum{Type: Text, Str: fmt.Sprintf("user-%d", i)})
		c.Cols[2].AppendDatum(Datum{Type: Float8, Float: float64(i) / 3})
		c.Cols[3].AppendDatum(Datum{Type: Timestamp, Int: int64(i) * 1000003})
		c.PushWeight(1)
	}
	return c
}

func perRow(b *testing.B, f func(c *Chunk)) {
	c := benchChunk()
	b.ReportAllocs()
	for b.Loop() {
		f(c)
	}
	b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N)/1024, "ns/row")
}

func BenchmarkHashInt(b *testing.B) {
	out := make([]uint64, 1024)
	perRow(b, func(c *Chunk) { HashRows(c, []int{0}, out) })
}

func BenchmarkHashString(b *testing.B) {
	out := make([]uint64, 1024)
	perRow(b, func(c *Chunk) { HashRows(c, []int{1}, out) })
}

func BenchmarkKeyRow(b *testing.B) {
	var buf []byte
	perRow(b, func(c *Chunk) {
		for i := range c.N {
			buf = AppendKeyRow(buf[:0], c.Cols[:2], i)
		}
	})
}

func BenchmarkAppendRow(b *testing.B) {
	var buf []byte
	perRow(b, func(c *Chunk) {
		for i := range c.N {
			buf = AppendRow(buf[:0], c.Cols, i)
		}
	})
}

func BenchmarkDecodeRows(b *testing.B) {
	var rows []byte
	c := benchChunk()
	for i := range c.N {
		rows = AppendRow(rows, c.Cols, i)
	}
	s := string(rows)
	d := NewChunk(chunkTypes(c))
	perRow(b, func(*Chunk) {
		d.Reset()
		if _, err := DecodeRows(s, 1024, d.Cols); err != nil {
			b.Fatal(err)
		}
	})
}

func BenchmarkChunkRoundTrip(b *testing.B) {
	var buf []byte
	perRow(b, func(c *Chunk) {
		buf = AppendChunk(buf[:0], c)
		if _, err := DecodeChunk(buf, []Type{Int8, Text, Float8, Timestamp}); err != nil {
			b.Fatal(err)
		}
	})
}

func BenchmarkText(b *testing.B) {
	var buf []byte
	for k, name := range []string{"int8", "text", "float8", "timestamp"} {
		b.Run(name, func(b *testing.B) {
			perRow(b, func(c *Chunk) {
				for i := range c.N {
					buf = AppendText(buf[:0], nil, c.Cols[k], i)
				}
			})
		})
	}
}
