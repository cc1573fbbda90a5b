package format

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"math"
	"math/rand/v2"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/streamdb/streamdb/types"
)

func avroSample(t testing.TB, codec string) string {
	t.Helper()
	b, err := os.ReadFile("testdata/every." + codec + ".avro")
	require.NoError(t, err)
	return string(b)
}

// The samples were written by fastavro, with rows of every type in blocks of one or two.
func TestAvroTypes(t *testing.T) {
	array := types.Type{OID: types.ArrayOf(types.OIDText), Mod: -1}
	schema := types.Schema{
		{Name: "id", Type: types.Int8},
		{Name: "NAME", Type: types.Text},
		{Name: "maybe", Type: types.Varchar},
		{Name: "back", Type: types.Int4},
		{Name: "price", Type: types.Float8},
		{Name: "ratio", Type: types.Float4},
		{Name: "ok", Type: types.Bool},
		{Name: "day", Type: types.Date},
		{Name: "at", Type: types.Timestamp},
		{Name: "at_ms", Type: types.Timestamptz},
		{Name: "tod", Type: types.Time},
		{Name: "amount", Type: types.NumericType},
		{Name: "famount", Type: types.NumericType},
		{Name: "u", Type: types.UUID},
		{Name: "raw", Type: types.Bytea},
		{Name: "kind", Type: types.Text},
		{Name: "tags", Type: array},
		{Name: "props", Type: types.JSONB},
		{Name: "sub", Type: types.JSONB},
		{Name: "multi", Type: types.Text},
		{Name: "tree", Type: types.JSONB},
		{Name: "none", Type: types.Int8},
	}
	want := []string{
		`0|a|m0|NULL|0.5|0.5|t|1999-12-30|2015-07-15 01:02:03.456789|1969-07-15 01:02:03.123+00|23:59:59|1.5000|0.00|00000000-0000-0000-0000-000000000001|\x00ff|red|{}|{}|{"a": 0, "b": "s", "k": "green"}|NULL|NULL|NULL`,
		`-1|zwölf|NULL|-2|-1e+300|0.1|f|1999-12-31|2015-07-15 01:02:03.45679|1969-07-15 01:02:03.123+00|23:59:59.000001|-0.0001|-1.25|00000000-0000-0000-0000-000000000002|\x01ff|green|{t0}|{"p": 1}|{"a": 1, "b": null, "k": "green"}|3|{"v": 1, "next": {"v": 1, "next": null}}|NULL`,
		`1099511627776||m2|-1|0.3333333333333333|-2|t|2000-01-01|2015-07-15 01:02:03.456791|1969-07-15 01:02:03.123+00|23:59:59.000002|12345678901234567890123.4567|-2.50|00000000-0000-0000-0000-000000000003|\x02ff|red|{t0,t1}|{"p": 2}|{"a": 2, "b": "s", "k": "green"}|text|{"v": 1, "next": {"v": 2, "next": null}}|NULL`,
	}
	for _, codec := range []string{"null", "deflate", "snappy", "zstandard"} {
		cfg := &Config{Schema: schema, Columns: all(schema), Encode: "avro"}
		got := decode(t, cfg, avroSample(t, codec), 0, 1000)
		require.Empty(t, got.bad)
		require.Len(t, got.rows, 7)
		require.Equal(t, want, got.rows[:3], codec)
		require.Contains(t, got.rows[4], `|NULL|23:59:59.000004|0.0000|`)
		require.Contains(t, got.rows[5], `|back\slash|`)
		// Whatever the pieces and the limits, and whatever the columns.
		require.Equal(t, got, decode(t, cfg, avroSample(t, codec), 3, 1))
		for i := range schema {
			one := decode(t, &Config{Schema: schema, Columns: []int{i}, RowID: true, Encode: "AVRO"}, avroSample(t, codec), 50, 2)
			ids := map[string]bool{}
			for r, row := range one.rows {
				value, id, _ := strings.Cut(row, "|")
				require.Equal(t, strings.Split(got.rows[r], "|")[i], value)
				ids[id] = true
			}
			require.Len(t, ids, 7, "every row has an id of its own")
		}
	}
	// As other types: what text says, and what it does not.
	other := slices.Clone(schema)
	for i := range other {
		other[i].Type = types.Text
	}
	got := decode(t, &Config{Schema: other, Columns: all(other), Encode: "AVRO"}, avroSample(t, "null"), 0, 1000)
	require.Empty(t, got.bad)
	require.Equal(t, `-1|zwölf|NULL|-2|-1e+300|0.1|false|1999-12-31|2015-07-15 01:02:03.45679Z|1969-07-15 01:02:03.123Z|23:59:59.000001|-0.0001|-1.25|00000000-0000-0000-0000-000000000002|\x01ff|green|["t0"]|{"p":1}|{"a":1,"b":null,"k":"green"}|3|{"v":1,"next":{"v":1,"next":null}}|NULL`, got.rows[1])
	for i := range other {
		other[i].Type = types.Int4
	}
	got = decode(t, &Config{Schema: other, Columns: []int{0}, Encode: "AVRO"}, avroSample(t, "null"), 0, 1000)
	require.Equal(t, []string{"0", "-1", "5", "6", "7"}, got.rows)
	require.Len(t, got.bad, 2)
	require.Contains(t, got.bad[0], "out of range for type integer")
	got = decode(t, &Config{Schema: other, Columns: []int{18}, Encode: "AVRO"}, avroSample(t, "null"), 0, 1000)
	require.Len(t, got.bad, 7)
	require.Contains(t, got.bad[0], "cannot read a JSON object as integer")
}

// Reading goes on in the middle of a block: its offset and the number of its rows that are done are the position.
func TestAvroPosition(t *testing.T) {
	schema := types.Schema{{Name: "id", Type: types.Int8}}
	cfg := &Config{Schema: schema, Columns: []int{0}, Encode: "AVRO"}
	for _, codec := range []string{"null", "deflate"} {
		text := avroSample(t, codec)
		whole := decode(t, cfg, text, 0, 1000)
		offset, line := 0, int64(0)
		var rows []string
		for len(rows) < len(whole.rows) {
			d, err := New(cfg)
			require.NoError(t, err)
			in := &Input{Data: padded(text), Final: true, Bad: func(_, _ int64, err error, _ []byte) { require.NoError(t, err) }}
			used, ok, err := d.Start(in)
			require.NoError(t, err)
			require.True(t, ok)
			offset = max(offset, used)
			d.SetLine(line)
			in.Data, in.Offset = padded(text[offset:]), int64(offset)
			c := types.NewChunk(schema.Types())
			offset += d.Decode(in, c, 1)
			line = d.Line()
			require.Equal(t, 1, c.N)
			rows = append(rows, string(types.AppendText(nil, nil, c.Cols[0], 0)))
		}
		require.Equal(t, whole.rows, rows)
	}
}

// Broken data is reported, and reading goes on behind the next mark; never does it end otherwise.
func TestAvroBroken(t *testing.T) {
	schema := types.Schema{{Name: "id", Type: types.Int8}, {Name: "name", Type: types.Text}, {Name: "sub", Type: types.JSONB}, {Name: "tree", Type: types.Text}}
	cfg := &Config{Schema: schema, Columns: all(schema), Encode: "AVRO"}
	for _, c := range []struct{ text, why string }{
		{"id,name\n1,a\n", "no Avro object container file"},
		{"Obj\x01", "does not end"},
		{avroHeader(`{"type":"long"}`, "null"), "is no record"},
		{avroHeader(`{`, "null"), "invalid Avro schema"},
		{avroHeader(`{"type":"record","name":"r","fields":[{"name":"x","type":"what"}]}`, "null"), "unknown type \"what\""},
		{avroHeader(`{"type":"record","name":"r","fields":[{"name":"x","type":"int"}]}`, "null"), "none of the columns"},
		{avroHeader(`{"type":"record","name":"r","fields":[{"name":"id","type":"int"}]}`, "lzma"), "codec \"lzma\" is not supported"},
		{avroHeader(`{"type":"record","name":"r","fields":[{"name":"id","type":`+strings.Repeat(`{"type":"array","items":`, 100)+`"int"`+strings.Repeat("}", 100)+`}]}`, "null"), "nested deeper"},
	} {
		r := decode(t, cfg, c.text, 0, 10)
		require.Len(t, r.bad, 1, "%q", c.text)
		require.Contains(t, r.bad[0], c.why)
	}
	require.Equal(t, result{}, decode(t, cfg, "", 0, 10))
	rng := rand.New(rand.NewPCG(1, 1))
	for _, codec := range []string{"null", "deflate", "snappy", "zstandard"} {
		text := avroSample(t, codec)
		whole := decode(t, cfg, text, 0, 1000)
		header := bytes.Index([]byte(text), []byte("\x00\x01\x02\x03\x04\x05")) + avroSync
		for range 300 {
			b := []byte(text)
			for range 1 + rng.IntN(3) {
				b[header+rng.IntN(len(b)-header)] = byte(rng.Uint32())
			}
			b = b[:len(b)-rng.IntN(2)*rng.IntN(50)]
			r := decode(t, cfg, string(b), 0, 3)
			require.LessOrEqual(t, len(r.rows), len(whole.rows)+200)
			require.Equal(t, r.rows, decode(t, cfg, string(b), 11, 2).rows)
		}
		// A block in the middle that is lost takes its own rows only.
		second := header + strings.Index(text[header:], text[header-avroSync:header]) + avroSync
		b := []byte(text)
		b[second+1] = 0xff
		r := decode(t, cfg, string(b), 0, 1000)
		require.NotEmpty(t, r.bad)
		require.Equal(t, whole.rows[0], r.rows[0])
		require.Equal(t, whole.rows[len(whole.rows)-1], r.rows[len(r.rows)-1])
	}
}

func avroHeader(schema, codec string) string {
	b := []byte(avroMagic)
	text := func(s string) { b = append(binary.AppendVarint(b, int64(len(s))), s...) }
	b = binary.AppendVarint(b, 2)
	text("avro.schema")
	text(schema)
	text("avro.codec")
	text(codec)
	return string(append(append(b, 0), make([]byte, avroSync)...))
}

// avroBlock is a block of n rows behind such a header.
func avroBlock(n int64, rows string) string {
	b := binary.AppendVarint(binary.AppendVarint(nil, n), int64(len(rows)))
	return string(append(append(b, rows...), make([]byte, avroSync)...))
}

// Numbers and UUIDs have the text in columns of text that they have elsewhere in the database.
func TestAvroText(t *testing.T) {
	schema := types.Schema{{Name: "f", Type: types.Text}, {Name: "d", Type: types.Text}, {Name: "u", Type: types.Text}, {Name: "all", Type: types.Text}}
	text := avroHeader(`{"type":"record","name":"r","fields":[{"name":"f","type":"float"},{"name":"d","type":"double"},{"name":"u","type":{"type":"fixed","name":"id","size":16,"logicalType":"uuid"}},`+
		`{"name":"all","type":{"type":"array","items":["id","double"]}}]}`, "null")
	double := func(b []byte, v float64) []byte { return binary.LittleEndian.AppendUint64(b, math.Float64bits(v)) }
	id := "\x00\x11\x22\x33\x44\x55\x66\x77\x88\x99\xaa\xbb\xcc\xdd\xee\xff"
	var rows []byte
	for _, v := range []float64{1_000_000, 0.5, math.Inf(1), math.Inf(-1), math.NaN()} {
		rows = binary.LittleEndian.AppendUint32(rows, math.Float32bits(float32(v)))
		rows = append(double(rows, v), id...)
		rows = append(append(rows, 4, 0), id...)
		rows = append(double(append(rows, 2), v), 0)
	}
	const uuid = "00112233-4455-6677-8899-aabbccddeeff"
	got := decode(t, &Config{Schema: schema, Columns: all(schema), Encode: "AVRO"}, text+avroBlock(5, string(rows)), 0, 10)
	require.Empty(t, got.bad)
	require.Equal(t, []string{
		`1e+06|1000000|` + uuid + `|["` + uuid + `",1000000]`,
		`0.5|0.5|` + uuid + `|["` + uuid + `",0.5]`,
		`Infinity|Infinity|` + uuid + `|["` + uuid + `","Infinity"]`,
		`-Infinity|-Infinity|` + uuid + `|["` + uuid + `","-Infinity"]`,
		`NaN|NaN|` + uuid + `|["` + uuid + `","NaN"]`,
	}, got.rows)
}

// BenchmarkAvroAll reads bids of seven columns.
func BenchmarkAvroAll(b *testing.B) { benchmarkAvro(b, []int{0, 1, 2, 3, 4, 5, 6}) }
func BenchmarkAvroTwo(b *testing.B) { benchmarkAvro(b, []int{1, 5}) }

func benchmarkAvro(b *testing.B, columns []int) {
	text := avroHeader(`{"type":"record","name":"bid","fields":[{"name":"auction","type":"long"},{"name":"bidder","type":"long"},{"name":"price","type":"long"},{"name":"channel","type":"string"},`+
		`{"name":"url","type":"string"},{"name":"date_time","type":{"type":"long","logicalType":"timestamp-micros"}},{"name":"extra","type":"string"}]}`, "null")
	var rows []byte
	rng := rand.New(rand.NewPCG(1, 1))
	const n = 2000
	for i := range n {
		for _, v := range []int64{1000 + rng.Int64N(100000), 1000 + rng.Int64N(10000), 100 + rng.Int64N(100000000)} {
			rows = binary.AppendVarint(rows, v)
		}
		for _, s := range []string{fmt.Sprintf("channel-%d", rng.IntN(10000)), fmt.Sprintf("https://www.nexmark.com/abc/defg/hij/item.htm?query=1&channel_id=%d", rng.Uint32())} {
			rows = append(binary.AppendVarint(rows, int64(len(s))), s...)
		}
		rows = binary.AppendVarint(rows, 1_700_000_000_000_000+int64(i)*100)
		extra := strings.Repeat("abcdefghij", 7)[:54+rng.IntN(16)]
		rows = append(binary.AppendVarint(rows, int64(len(extra))), extra...)
	}
	benchmarkText(b, "AVRO", columns, text+avroBlock(n, string(rows)))
}

// Numbers of every length, near the end and before more.
func TestAvroLong(t *testing.T) {
	rng := rand.New(rand.NewPCG(3, 3))
	for bits := range 64 {
		for range 20 {
			v := int64(rng.Uint64()>>bits) ^ -int64(rng.IntN(2))
			text := binary.AppendVarint([]byte{0x80}, v)
			for _, after := range [][]byte{nil, {0}, {0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff}} {
				got, next := avroLong(append(slices.Clone(text), after...), 1)
				require.Equal(t, v, got)
				require.Equal(t, len(text), next)
			}
			for cut := 1; cut < len(text); cut++ {
				_, next := avroLong(text[:cut], 1)
				require.Equal(t, -1, next)
			}
		}
	}
}
