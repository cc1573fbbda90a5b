package format

import (
	"bytes"
	"encoding/csv"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"strings"
	"syscall"
	"testing"
	"unicode/utf8"

	"github.com/stretchr/testify/require"

	"github.com/streamdb/streamdb/types"
)

// padded returns a copy of s with room for a decoder to look behind its end.
func padded(s string) []byte {
	b := make([]byte, len(s), len(s)+Pad)
	copy(b, s)
	return b
}

func all(s types.Schema) []int {
	out := make([]int, len(s))
	for i := range out {
		out[i] = i
	}
	return out
}

type result struct {
	rows []string
	bad  []string // offset: error
	line int64
}

// decode decodes text given in pieces of the given size (0: at once), limit rows at a time.
func decode(t testing.TB, cfg *Config, text string, piece, limit int) result {
	t.Helper()
	d, err := New(cfg)
	require.NoError(t, err)
	ts := make([]types.Type, 0, len(cfg.Columns))
	for _, c := range cfg.Columns {
		ts = append(ts, cfg.Schema[c].Type)
	}
	if cfg.RowID {
		ts = append(ts, types.Int8)
	}
	var res result
	at, have, started := 0, 0, false
	if piece == 0 {
		piece = max(len(text), 1)
	}
	for steps := 0; ; steps++ {
		require.Less(t, steps, 100*len(text)+1000, "no progress")
		final := have >= len(text)
		in := &Input{
			Data: padded(text[at:have]), Offset: int64(at), Final: final,
			Bad: func(_, offset int64, err error, _ []byte) {
				res.bad = append(res.bad, fmt.Sprintf("%d: %v", offset, err))
			},
		}
		n := 0
		if !started {
			used, ok, err := d.Start(in)
			if err != nil {
				res.bad = append(res.bad, err.Error())
				return res
			}
			n, started = used, ok
		} else {
			c := types.NewChunk(ts)
			n = d.Decode(in, c, limit)
			for i := range c.N {
				var vals []string
				for _, v := range c.Cols {
					s := "NULL"
					if !v.IsNull(i) {
						s = string(types.AppendText(nil, nil, v, i))
					}
					vals = append(vals, s)
				}
				res.rows = append(res.rows, strings.Join(vals, "|"))
			}
		}
		at += n
		switch {
		case n > 0 || started && at < have && final:
		case have < len(text):
			have = min(have+piece, len(text))
		case started && at == len(text):
			res.line = d.Line()
			return res
		}
	}
}

func everyType(t testing.TB) types.Schema {
	t.Helper()
	mod := func(oid types.OID, mods ...int) types.Type {
		m, err := types.TypmodIn(oid, mods)
		require.NoError(t, err)
		return types.Type{OID: oid, Mod: m}
	}
	s := types.Schema{}
	for _, x := range []types.Type{
		types.Bool, types.Int2, types.Int4, types.Int8, types.Float4, types.Float8, types.NumericType, mod(types.OIDNumeric, 6, 2), types.Text,
		mod(types.OIDVarchar, 5), types.Bytea, types.Date, types.Time, types.Timestamp, types.Timestamptz, types.IntervalT, types.UUID,
		types.JSONB, types.JSON, types.T(types.ArrayOf(types.OIDInt4)), types.T(types.ArrayOf(types.OIDText)),
	} {
		s = append(s, types.Column{Name: fmt.Sprintf("c%d", len(s)), Type: x})
	}
	return s
}

// Every text that PostgreSQL reads as a type is read the same from CSV and from a JSON string.
func TestEveryTypeFromText(t *testing.T) {
	schema := everyType(t)
	for _, c := range []struct {
		oid   types.OID
		texts []string
	}{
		{types.OIDBool, []string{"t", "yes", "FALSE", "0", "x"}},
		{types.OIDInt2, []string{"0", "-0", "32767", "-32768", "32768", " 7 ", "+5", "007", "1.0", "1e2", "x", "-"}},
		{types.OIDInt4, []string{"12345678", "123456789", "-2147483648", "2147483648"}},
		{types.OIDInt8, []string{"9007199254740993", "999999999999999999", "9223372036854775807", "-9223372036854775808", "9223372036854775808", "1234567812345678", "12345678123456781234567812345678"}},
		{types.OIDFloat4, []string{"1.1", "3.4028235e38", "1e39", "NaN", "16777217"}},
		{types.OIDFloat8, []string{"0.1", "-0", "-0.0", "123456789.012345", "1234567890.1234567", "1e400", "1e-400", "inf", "1.", ".5", "1.5e3", "00.5"}},
		{types.OIDNumeric, []string{"0.10", "-1.50", "12345678901234567890.123", "1e3", "NaN", "-0", "1.", "9999.999", "99999"}},
		{types.OIDText, []string{"a", "é漢😀"}},
		{types.OIDVarchar, []string{"abcde", "abcdef", "abcde  "}},
		{types.OIDBytea, []string{"\\x00ff", "abc", "\\x0"}},
		{types.OIDDate, []string{"2024-02-29", "2023-02-29", "Jan 1 2000", "infinity", "epoch", "2001/01/01"}},
		{types.OIDTime, []string{"06:55", "23:59:60", "24:00:00", "25:00"}},
		{types.OIDTimestamp, []string{
			"2024-02-29 23:59:59", "2024-02-29T23:59:59.5", "2024-02-29 23:59:59.123456", "2024-02-29 23:59:59.1234567", "2024-02-29T00:00:00Z", "2016-12-31 23:59:60",
			"2024-01-01 24:00:00", "2024-13-01 00:00:00", "2024-01-01 12:60:00", "2024-01-01 1:2:3", "0001-01-01 00:00:00 BC", "2024-01-01", "infinity",
			"2024-01-01 12:00:00.", "2024-01-01 12-00-00", "2024-01-01 12:00:00+05:45", "20240101 120000",
		}},
		{types.OIDTimestamptz, []string{"2024-02-29 23:59:59", "2024-02-29T23:59:59.5Z", "2024-02-29 23:59:59+05:45", "2024-02-29 23:59:59 Europe/Berlin", "2024-02-29 23:59:60Z"}},
		{types.OIDInterval, []string{"1 day 2 hours", "P1M", "x"}},
		{types.OIDUUID, []string{"a0eebc99-9c0b-4ef8-bb6d-6bb9bd380a11", "{A0EEBC99-9c0b-4ef8-bb6d-6bb9bd380a11}", "a0"}},
		{types.ArrayOf(types.OIDInt4), []string{"{1,NULL,3}", "{}", "{1,x}", "{{1,2},{3,4}}"}},
	} {
		for i, col := range schema {
			if col.Type.OID != c.oid {
				continue
			}
			for _, text := range c.texts {
				want := "bad"
				if d, err := types.ParseText(nil, col.Type, text); err == nil {
					want = string(d.AppendText(nil, nil))
				}
				cfg := &Config{Schema: types.Schema{col}, Columns: []int{0}, Encode: "JSON"}
				quoted, err := json.Marshal(text)
				require.NoError(t, err)
				check := func(res result) {
					t.Helper()
					got := "bad"
					if len(res.rows) == 1 {
						got = res.rows[0]
					}
					require.Equal(t, want, got, "%s of %s: %v", text, col.Type, res.bad)
				}
				check(decode(t, cfg, fmt.Sprintf("{\"c%d\":%s}", i, quoted), 0, 10))
				cfg.Encode, cfg.Options = "CSV", map[string]string{"header": "false"}
				check(decode(t, cfg, "\""+strings.ReplaceAll(text, "\"", "\"\"")+"\"\n", 0, 10))
				if !strings.ContainsAny(text, "\",") {
					check(decode(t, cfg, text, 0, 10))
				}
			}
		}
	}
}

func TestJSONValues(t *testing.T) {
	schema := everyType(t)
	for _, c := range []struct {
		oid        types.OID
		json, want string // want "" is a bad row
	}{
		{types.OIDBool, "true", "t"},
		{types.OIDBool, "false", "f"},
		{types.OIDBool, "1", "t"},
		{types.OIDBool, "2", ""},
		{types.OIDInt8, "9007199254740993", "9007199254740993"},
		{types.OIDInt8, "-9223372036854775808", "-9223372036854775808"},
		{types.OIDInt8, "9223372036854775808", ""},
		{types.OIDInt8, "1.0", "1"},
		{types.OIDInt8, "15e-1", ""},
		{types.OIDInt8, "true", ""},
		{types.OIDFloat8, "1e400", ""},
		{types.OIDFloat8, "-0.0", "-0"},
		{types.OIDFloat8, "9007199254740993", "9.007199254740992e+15"},
		{types.OIDFloat8, "0.30000000000000004", "0.30000000000000004"},
		{types.OIDNumeric, "1.50", "1.50"},
		{types.OIDNumeric, "12345678901234567890.10", "12345678901234567890.10"},
		{types.OIDTimestamp, "1700000000000", ""},
		{types.OIDText, "1.50", "1.50"},
		{types.OIDText, "{\"b\": 1, \"a\": [ ]}", "{\"b\": 1, \"a\": [ ]}"},
		{types.OIDJSONB, "{\"b\":1,\"a\":[],\"b\":2}", "{\"a\": [], \"b\": 2}"},
		{types.OIDJSONB, "\"x\\u00e9\"", "\"xé\""},
		{types.OIDJSONB, "null", "NULL"},
		{types.OIDJSON, "{\"b\":  1}", "{\"b\":  1}"},
		{types.ArrayOf(types.OIDInt4), "[1,null,\"3\"]", "{1,NULL,3}"},
		{types.ArrayOf(types.OIDInt4), "[]", "{}"},
		{types.ArrayOf(types.OIDInt4), "[[1]]", ""},
		{types.ArrayOf(types.OIDInt4), "[true]", ""},
		{types.ArrayOf(types.OIDText), "[\"a b\",1,true,{\"x\":1}]", "{\"a b\",1,true,\"{\\\"x\\\": 1}\"}"},
	} {
		i := 0
		for schema[i].Type.OID != c.oid {
			i++
		}
		res := decode(t, &Config{Schema: schema, Columns: []int{i}, Encode: "JSON"}, fmt.Sprintf("{\"c%d\": %s }", i, c.json), 0, 10)
		if c.want == "" {
			require.Empty(t, res.rows, "%s as %s", c.json, schema[i].Type)
			require.Len(t, res.bad, 1)
			continue
		}
		require.Equal(t, []string{c.want}, res.rows, "%s as %s: %v", c.json, schema[i].Type, res.bad)
	}
}

// Whatever the order of keys, the lengths of strings and the escapes, the decoder agrees with encoding/json.
func TestJSONAgainstLibrary(t *testing.T) {
	rng := rand.New(rand.NewPCG(3, 4))
	alphabet := []rune("abc \"\\\n\tüß漢字😀xyz/0123456789")
	schema := types.Schema{{Name: "auction", Type: types.Int8}, {Name: "channel", Type: types.Text}, {Name: "a very long name of a column", Type: types.Text}}
	var text strings.Builder
	var want []string
	for range 5000 {
		str := func() string {
			s := make([]rune, rng.IntN(60))
			n := len(alphabet)
			if rng.IntN(2) == 0 {
				n = 3
			}
			for i := range s {
				s[i] = alphabet[rng.IntN(n)]
			}
			return string(s)
		}
		v := int64(rng.Uint64()) >> rng.IntN(63)
		a, b := str(), str()
		members := []string{fmt.Sprintf("%q:%d", "auction", v)}
		for k, s := range map[string]string{"channel": a, "a very long name of a column": b, "extra": str()} {
			q, err := json.Marshal(s)
			require.NoError(t, err)
			members = append(members, fmt.Sprintf("%q:%s", k, q))
		}
		if rng.IntN(4) == 0 {
			rng.Shuffle(len(members), func(i, j int) { members[i], members[j] = members[j], members[i] })
		}
		sep := []string{",", ", ", " ,"}[rng.IntN(3)]
		text.WriteString("{" + strings.Join(members, sep) + "}\n")
		want = append(want, fmt.Sprintf("%d|%s|%s", v, a, b))
	}
	res := decode(t, &Config{Schema: schema, Columns: all(schema), Encode: "JSON"}, text.String(), 0, 1000)
	require.Empty(t, res.bad)
	require.Equal(t, want, res.rows)
}

func TestCSVAgainstLibrary(t *testing.T) {
	rng := rand.New(rand.NewPCG(5, 6))
	alphabet := []rune("abc,\"\nüß漢 ;0123")
	schema := types.Schema{{Name: "a", Type: types.Text}, {Name: "b", Type: types.Text}, {Name: "c", Type: types.Text}}
	for _, crlf := range []bool{false, true} {
		var buf bytes.Buffer
		w := csv.NewWriter(&buf)
		w.UseCRLF = crlf
		require.NoError(t, w.Write([]string{"a", "b", "c"}))
		var want []string
		for range 3000 {
			rec := make([]string, 3)
			for i := range rec {
				s := make([]rune, 1+rng.IntN(20))
				for j := range s {
					s[j] = alphabet[rng.IntN(len(alphabet))]
				}
				rec[i] = string(s)
			}
			require.NoError(t, w.Write(rec))
			line := strings.Join(rec, "|")
			if crlf {
				line = strings.ReplaceAll(line, "\n", "\r\n")
			}
			want = append(want, line)
		}
		w.Flush()
		res := decode(t, &Config{Schema: schema, Columns: all(schema), Encode: "CSV"}, buf.String(), 0, 1000)
		require.Empty(t, res.bad)
		require.Equal(t, want, res.rows)
		require.EqualValues(t, strings.Count(buf.String(), "\n")+1, res.line)
	}
}

// A row without quotes, whose numbers and times are read before the end of their field is known, is the same as one with a quote somewhere, which is read field by field.
func TestCSVPlainAsQuoted(t *testing.T) {
	schema := types.Schema{{Name: "i", Type: types.Int4}, {Name: "ts", Type: types.Timestamp}, {Name: "t", Type: types.Text}, {Name: "n", Type: types.NumericType}, {Name: "last", Type: types.Text}}
	values := []string{
		"", "0", "7", "-7", "07", "123456789", "3000000000", "12345678901234567890", "1x", " 1", "1 ", "null", "NULL", "T", "Z", "a\rb", "é", "\xff",
		"2024-01-31 01:02:03", "2024-01-31T01:02:03Z", "2024-01-31 01:02:03.5", "2024-01-31 01:02:03.123456", "2024-01-31 01:02:03.1234567", "2024-01-31 01:02:03.", "2024-01-31 25:02:03",
		"2024-01-31 01:02:03Z0", "2024-01-31", "2024-01-31 01:02:03+02", "1.5", "-0.25",
	}
	rng := rand.New(rand.NewPCG(1, 2))
	for _, delim := range []string{",", "\t", "5", "-", "T", "Z", ".", ":", " "} {
		for _, null := range []string{"", "0", "7", "null"} {
			for _, columns := range [][]int{{0, 1, 2, 3}, {1}, {0}, {3, 2}, {4, 0}, {}} {
				var plain, quoted strings.Builder
				for range 200 {
					var fields []string
					for range len(schema) - 1 + rng.IntN(10)/9 - rng.IntN(10)/9 {
						fields = append(fields, values[rng.IntN(len(values))])
					}
					row, end := strings.Join(fields, delim), "\n"
					if rng.IntN(5) == 0 {
						end = "\r\n"
					}
					plain.WriteString(row + delim + "x" + end)
					quoted.WriteString(row + delim + "\"x\"" + end)
				}
				cfg := &Config{Schema: schema, Columns: columns, Encode: "CSV", Options: map[string]string{"header": "false", "delimiter": delim, "null": null}}
				of := func(text string) result {
					r := decode(t, cfg, text, 0, 1000)
					for i, b := range r.bad {
						_, r.bad[i], _ = strings.Cut(b, ": ")
					}
					return r
				}
				a := of(plain.String())
				require.Equal(t, of(quoted.String()), a, "delimiter %q, null %q, columns %v", delim, null, columns)
				require.Len(t, append(a.rows, a.bad...), 200)
				require.Equal(t, a.rows, decode(t, cfg, plain.String(), 7, 3).rows)
			}
		}
	}
}

func fuzzSchema() types.Schema {
	return types.Schema{
		{Name: "i", Type: types.Int4},
		{Name: "t", Type: types.Text},
		{Name: "f", Type: types.Float8},
		{Name: "n", Type: types.NumericType},
		{Name: "ts", Type: types.Timestamp},
		{Name: "j", Type: types.JSONB},
	}
}

// FuzzJSON: a line is a row exactly when encoding/json takes it for an object, and pieces give what the whole gives.
func FuzzJSON(f *testing.F) {
	for _, s := range []string{
		`{"i":1,"t":"a\n","f":1.5,"n":-0.10,"ts":"2024-01-01 00:00:00","j":{"a":[1,2]}}`, `{"i":1}` + "\r\n" + `{"I":2, "t" : "é"}`, "{}", "[]", `{"t":"\ud800"}`,
		`{"x":[{"y":"\u12zz"}]}`, `{"i":01}`, `{"i":1,"i":2}`, "\xef\xbb\xbf{}", `{"i":1e5}`, `{"i":null,"t":tru}`, `{"t":"` + "\xff" + `"}`, `{"a":1,}`, `{"f":1.}`,
	} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, text string) {
		none := decode(t, &Config{Schema: fuzzSchema(), Encode: "JSON"}, text, 0, 7)
		valid := 0
		for _, l := range strings.Split(strings.TrimPrefix(text, string(utf8BOM)), "\n") {
			l = strings.Trim(l, " \t\r")
			if json.Valid([]byte(l)) && l[0] == '{' && utf8.ValidString(l) {
				valid++
			}
		}
		require.Equal(t, valid, len(none.rows), "%v", none.bad)
		cfg := &Config{Schema: fuzzSchema(), Columns: []int{0, 1, 2, 3, 4, 5}, RowID: true, Encode: "JSON"}
		whole := decode(t, cfg, text, 0, 1000)
		require.Equal(t, whole, decode(t, cfg, text, 3, 2))
		require.LessOrEqual(t, len(whole.rows), valid)
	})
}

// TestNamesThatDifferInCase reads columns whose names differ in case only: each has what is of exactly its name.
func TestNamesThatDifferInCase(t *testing.T) {
	schema := types.Schema{{Name: "Id", Type: types.Int4}, {Name: "id", Type: types.Int4}, {Name: "v", Type: types.Int4}}
	for _, c := range []struct {
		names [2]string
		want  []string // per column: nothing for NULL
	}{{[2]string{"id", "V"}, []string{"NULL", "1", "2"}}, {[2]string{"Id", "v"}, []string{"1", "NULL", "2"}}, {[2]string{"ID", "v"}, []string{"NULL", "NULL", "2"}}} {
		for encode, text := range map[string]string{
			"CSV":  c.names[0] + "," + c.names[1] + "\n1,2\n",
			"JSON": fmt.Sprintf("{%q:1,%q:2}\n", c.names[0], c.names[1]),
			"AVRO": avroHeader(fmt.Sprintf(`{"type":"record","name":"r","fields":[{"name":%q,"type":"int"},{"name":%q,"type":"int"}]}`, c.names[0], c.names[1]), "null") + avroBlock(1, "\x02\x04"),
		} {
			whole := decode(t, &Config{Schema: schema, Columns: all(schema), Encode: encode}, text, 0, 10)
			require.Empty(t, whole.bad)
			require.Equal(t, []string{strings.Join(c.want, "|")}, whole.rows, "%s %v", encode, c.names)
			for i := range schema {
				require.Equal(t, []string{c.want[i]}, decode(t, &Config{Schema: schema, Columns: []int{i}, Encode: encode}, text, 0, 10).rows, "%s %v: %s", encode, c.names, schema[i].Name)
			}
		}
	}
}

// FuzzCSV: pieces give what the whole gives.
func FuzzCSV(f *testing.F) {
	for _, s := range []string{
		"i,t,f,n,ts,j\n1,a,1.5,2,2024-01-01 00:00:00,{}\n", "i,t\r\n1,\"a\r\n\"\"b\"\r\n", "t\n\"\"\n\n", "i,t\n1,\"x\n2,y\n", "i\n1\r", "\xef\xbb\xbfi,t\n1,a\"b\"c\n", "i,t\n1,\xff\n2,\x00\n",
		"t\n\"a\"\"", "t\n\r\n\r", "t\n\"a\"\rb\n",
	} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, text string) {
		for _, header := range []string{"true", "false"} {
			cfg := &Config{Schema: fuzzSchema()[:2], Columns: []int{0, 1}, RowID: true, Encode: "CSV", Options: map[string]string{"header": header}}
			whole := decode(t, cfg, text, 0, 1000)
			require.Equal(t, whole, decode(t, cfg, text, 1, 1), "header %s", header)
			require.Equal(t, whole, decode(t, cfg, text, 5, 3), "header %s", header)
		}
	})
}

// bidSchema is the schema of the benchmarks.
func bidSchema() types.Schema {
	return types.Schema{
		{Name: "auction", Type: types.Int8},
		{Name: "bidder", Type: types.Int8},
		{Name: "price", Type: types.Int8},
		{Name: "channel", Type: types.Text},
		{Name: "url", Type: types.Text},
		{Name: "date_time", Type: types.Timestamp},
		{Name: "extra", Type: types.Text},
	}
}

func benchmark(b *testing.B, encode string, columns []int) {
	var text strings.Builder
	rng := rand.New(rand.NewPCG(1, 1))
	for i := range 2000 {
		url := fmt.Sprintf("https://www.nexmark.com/abc/defg/hij/item.htm?query=1&channel_id=%d", rng.Uint32())
		extra := strings.Repeat("abcdefghij", 7)[:54+rng.IntN(16)]
		vals := []any{1000 + rng.IntN(100000), 1000 + rng.IntN(10000), 100 + rng.IntN(100000000), rng.IntN(10000), url, i / 60 % 60, i % 60, rng.IntN(1000), extra}
		if encode == "JSON" {
			fmt.Fprintf(&text, "{\"auction\":%d,\"bidder\":%d,\"price\":%d,\"channel\":\"channel-%d\",\"url\":\"%s\",\"date_time\":\"2023-11-14 22:%02d:%02d.%03d\",\"extra\":\"%s\"}\n", vals...)
		} else {
			fmt.Fprintf(&text, "%d,%d,%d,channel-%d,%s,2023-11-14 22:%02d:%02d.%03d,%s\n", vals...)
		}
	}
	benchmarkText(b, encode, columns, text.String())
}

// benchmarkText reads columns of a text that has the rows of one chunk.
func benchmarkText(b *testing.B, encode string, columns []int, text string) {
	schema := bidSchema()
	cfg := &Config{Schema: schema, Columns: columns, Encode: encode}
	if encode == "CSV" {
		cfg.Options = map[string]string{"header": "false"}
	}
	d, err := New(cfg)
	require.NoError(b, err)
	in := &Input{Data: padded(text), Final: true, Bad: func(_, _ int64, err error, _ []byte) { b.Fatal(err) }}
	used, _, err := d.Start(in)
	require.NoError(b, err)
	in.Data = padded(text[used:])
	var ts []types.Type
	for _, c := range columns {
		ts = append(ts, schema[c].Type)
	}
	c := types.NewChunk(ts)
	b.SetBytes(int64(len(in.Data)))
	rows := 0
	before := cpu()
	for b.Loop() {
		c.Reset()
		d.Decode(in, c, types.MaxChunkRows)
		rows += c.N
	}
	b.ReportMetric(float64(cpu()-before)/float64(rows), "cpu-ns/row")
}

// cpu returns the processor time of the process in nanoseconds: wall time says little on a busy machine.
func cpu() int64 {
	var u syscall.Rusage
	if syscall.Getrusage(syscall.RUSAGE_SELF, &u) != nil {
		return 0
	}
	return u.Utime.Nano() + u.Stime.Nano()
}

func BenchmarkJSONAll(b *testing.B) { benchmark(b, "JSON", []int{0, 1, 2, 3, 4, 5, 6}) }
func BenchmarkJSONTwo(b *testing.B) { benchmark(b, "JSON", []int{1, 5}) }
func BenchmarkCSVAll(b *testing.B)  { benchmark(b, "CSV", []int{0, 1, 2, 3, 4, 5, 6}) }
func BenchmarkCSVTwo(b *testing.B)  { benchmark(b, "CSV", []int{1, 5}) }
