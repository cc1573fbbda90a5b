package file

import (
	"bytes"
	"compress/flate"
	"compress/gzip"
	"context"
	"encoding/binary"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/streamdb/streamdb/connector"
	"github.com/streamdb/streamdb/connector/connectortest"
	"github.com/streamdb/streamdb/connector/format"
	"github.com/streamdb/streamdb/internal/pgerr"
	"github.com/streamdb/streamdb/types"
)

func testSchema() types.Schema {
	return types.Schema{{Name: "id", Type: types.Int4}, {Name: "v", Type: types.Text}}
}

type clock struct{ t time.Time }

func (c *clock) now() time.Time { return c.t }

func config(path, encode string, options ...string) *connector.SourceConfig {
	cfg := &connector.SourceConfig{
		Name: "s", Options: map[string]string{"connector": "file", "path": path}, Format: "PLAIN", Encode: encode,
		EncodeOptions: map[string]string{}, Columns: testSchema(),
	}
	for _, o := range options {
		k, v, _ := strings.Cut(o, "=")
		if strings.HasPrefix(k, "file.") {
			cfg.Options[k] = v
		} else {
			cfg.EncodeOptions[k] = v
		}
	}
	return cfg
}

func open(t testing.TB, cn *Connector, cfg *connector.SourceConfig) connector.Source {
	t.Helper()
	require.NoError(t, connector.NewRegistry(cn).WithEncodings(format.Encodings()...).Validate(cfg))
	_, err := cn.Schema(cfg)
	require.NoError(t, err)
	src, err := cn.Source(context.Background(), cfg)
	require.NoError(t, err)
	return src
}

func write(t testing.TB, path, text string) {
	t.Helper()
	require.NoError(t, os.WriteFile(path, []byte(text), 0o600))
}

func appendTo(t testing.TB, path, text string) {
	t.Helper()
	f, err := os.OpenFile(path, os.O_APPEND|os.O_WRONLY, 0)
	require.NoError(t, err)
	_, err = f.WriteString(text)
	require.NoError(t, err)
	require.NoError(t, f.Close())
}

func values(rows []connectortest.Row) string {
	var out []string
	for _, r := range rows {
		out = append(out, strings.Join(r.Values, "|"))
	}
	return strings.Join(out, " ")
}

// bounded reads a file whole.
func bounded(t *testing.T, text, encode string, options ...string) (string, *connectortest.Sink) {
	t.Helper()
	path := filepath.Join(t.TempDir(), "f")
	write(t, path, text)
	src := open(t, New(), config(path, encode, append(options, "file.follow=false")...))
	sink := &connectortest.Sink{}
	return values(connectortest.ReadAll(t, src, testSchema(), 100, sink)), sink
}

func TestConformance(t *testing.T) {
	dir := t.TempDir()
	var j, c strings.Builder
	c.WriteString("v,skip,id\r\n")
	for i := range 3000 {
		text := strings.Repeat("é", i%50) + fmt.Sprint(i)
		fmt.Fprintf(&j, "{\"id\":%d,\"v\":%q,\"other\":[1,{\"a\":null}]}\n", i, text)
		fmt.Fprintf(&c, "\"%s\n\"\"x\"\"\",,%d\r\n", text, i)
		if i%97 == 0 {
			j.WriteString("{\"id\":\n")
			c.WriteString("a\r\n")
		}
	}
	write(t, filepath.Join(dir, "a.json"), j.String())
	write(t, filepath.Join(dir, "b.json"), j.String())
	write(t, filepath.Join(dir, "a.csv"), c.String())
	var z bytes.Buffer
	for _, part := range []string{c.String()[:10000], c.String()[10000:]} { // two members
		w := gzip.NewWriter(&z)
		_, err := w.Write([]byte(part))
		require.NoError(t, err)
		require.NoError(t, w.Close())
	}
	require.NoError(t, os.WriteFile(filepath.Join(dir, "a.csv.gz"), z.Bytes(), 0o600))
	t.Run("json", func(t *testing.T) {
		connectortest.RunSource(t, open(t, New(), config(filepath.Join(dir, "*.json"), "JSON", "file.follow=false")), testSchema())
	})
	for _, f := range []string{"a.csv", "a.csv.gz"} {
		t.Run(f, func(t *testing.T) {
			src := open(t, New(), config(filepath.Join(dir, f), "CSV", "file.follow=false"))
			connectortest.RunSource(t, src, testSchema())
			sink := &connectortest.Sink{}
			rows := connectortest.ReadAll(t, src, testSchema(), 2048, sink)
			require.Len(t, rows, 3000)
			require.Len(t, sink.Rows, 31)
			require.Equal(t, "2999|"+strings.Repeat("é", 49)+"2999\n\"x\"", values(rows[2999:]))
			require.Equal(t, "line 4, offset 25", sink.Rows[0].Where)
			require.Equal(t, "a", sink.Rows[0].Raw)
		})
	}
}

// avroFile is an object container file of rows in blocks of 97, a damaged one among them.
func avroFile(t *testing.T, rows int, codec string) string {
	t.Helper()
	const mark = "0123456789abcdef"
	text := func(b []byte, s string) []byte { return append(binary.AppendVarint(b, int64(len(s))), s...) }
	out := binary.AppendVarint([]byte("Obj\x01"), 2)
	out = text(text(out, "avro.schema"), `{"type":"record","name":"r","fields":[{"name":"v","type":["null","string"]},{"name":"other","type":"double"},{"name":"ID","type":"int"}]}`)
	out = append(append(text(text(out, "avro.codec"), codec), 0), mark...)
	for i := 0; i < rows; {
		n := min(97, rows-i)
		var data []byte
		for range n {
			data = text(binary.AppendVarint(data, 1), strings.Repeat("é", i%50)+fmt.Sprint(i))
			data = binary.AppendVarint(append(data, 1, 2, 3, 4, 5, 6, 7, 8), int64(i))
			i++
		}
		if codec == "deflate" {
			var z bytes.Buffer
			w, err := flate.NewWriter(&z, flate.BestSpeed)
			require.NoError(t, err)
			_, err = w.Write(data)
			require.NoError(t, err)
			require.NoError(t, w.Close())
			data = z.Bytes()
		}
		out = append(binary.AppendVarint(binary.AppendVarint(out, int64(n)), int64(len(data))), data...)
		if out = append(out, mark...); i == 970 {
			out = append(out, "\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff damage "+mark...)
		}
	}
	return string(out)
}

// Files of Avro are read from any position in a block, and on after what is damaged.
func TestAvro(t *testing.T) {
	for _, codec := range []string{"null", "deflate"} {
		t.Run(codec, func(t *testing.T) {
			dir := t.TempDir()
			write(t, filepath.Join(dir, "a.avro"), avroFile(t, 3000, codec))
			write(t, filepath.Join(dir, "b.avro"), avroFile(t, 1000, codec))
			src := open(t, New(), config(filepath.Join(dir, "*.avro"), "avro", "file.follow=false"))
			connectortest.RunSource(t, src, testSchema())
			sink := &connectortest.Sink{}
			rows := connectortest.ReadAll(t, src, testSchema(), 2048, sink)
			require.Len(t, rows, 4000)
			require.Len(t, sink.Rows, 2)
			require.ErrorContains(t, sink.Rows[0].Err, "invalid Avro data")
			require.Contains(t, values(rows), "2999|"+strings.Repeat("é", 49)+"2999")
		})
	}
}

// A block that is not all there yet is waited for; reading goes on where it was, in the middle of one.
func TestFollowAvro(t *testing.T) {
	path := filepath.Join(t.TempDir(), "a.avro")
	text := avroFile(t, 300, "null")
	half := strings.LastIndex(text[:len(text)-16], "0123456789abcdef") + 100
	write(t, path, text[:half])
	f := follow(t, path, "AVRO")
	first := f.rows()
	require.Equal(t, "291 rows", fmt.Sprintf("%d rows", len(strings.Fields(first))))
	f.restart()
	require.Empty(t, f.rows())
	appendTo(t, path, text[half:])
	require.Equal(t, 9, len(strings.Fields(f.rows())))
}

func TestOneBadRecord(t *testing.T) {
	rows, sink := bounded(t, "{\"id\":1,\"v\":\"a\"}\n{\"id\":2,\"v\":\"b\"}\n{\"id\":3,\n{\"id\":\"abc\"}\n{\"id\":5,\"v\":\"\xff\"}\n{\"id\":6,\"v\":\"f\"}", "JSON")
	require.Equal(t, "1|a 2|b 6|f", rows)
	require.Len(t, sink.Rows, 3)
	for i, where := range []string{"line 3, offset 34", "line 4, offset 43", "line 5, offset 56"} {
		require.Equal(t, where, sink.Rows[i].Where)
	}
	require.Equal(t, pgerr.InvalidTextRepresentation, pgerr.CodeOf(sink.Rows[0].Err))
	require.Equal(t, "{\"id\":3,", sink.Rows[0].Raw)
	require.Equal(t, pgerr.InvalidTextRepresentation, pgerr.CodeOf(sink.Rows[1].Err))
	require.Equal(t, pgerr.CharacterNotInRepertoire, pgerr.CodeOf(sink.Rows[2].Err))
}

func TestTraps(t *testing.T) {
	for _, c := range []struct{ name, text, encode, want string }{
		{"bom json", "\xef\xbb\xbf{\"id\":1,\"v\":\"x\"}\n", "JSON", "1|x"},
		{"bom csv", "\xef\xbb\xbfid,v\n1,x\n", "CSV", "1|x"},
		{"bom quoted header", "\xef\xbb\xbf\"id\",\"v\"\n1,x\n", "CSV", "1|x"},
		{"no final newline", "id,v\n1,x\n2,y", "CSV", "1|x 2|y"},
		{"crlf without final newline", "id,v\r\n1,x\r\n2,y\r", "CSV", "1|x 2|y"},
		{"blank lines", "id,v\n\n1,x\n\r\n2,y\n\n", "CSV", "1|x 2|y"},
		{"blank json lines", "\n{\"id\":1}\r\n  \r\n{\"id\":2}\n", "JSON", "1|NULL 2|NULL"},
		{"header with blanks and case", " ID , V \n1,x\n", "CSV", "1|x"},
		{"column not in header", "id,w\n1,x\n", "CSV", "1|NULL"},
		{"key differing in case", "{\"ID\":1,\"V\":\"x\"}\n{\"ID\":2,\"id\":3}\n{\"id\":4,\"ID\":5}\n", "JSON", "1|x 3|NULL 4|NULL"},
		{"duplicate keys", "{\"id\":1,\"id\":2,\"v\":null,\"v\":\"b\"}\n{\"id\":3,\"v\":\"b\",\"v\":null}\n", "JSON", "2|b 3|NULL"},
		{"empty, null, missing", "{\"id\":1,\"v\":\"\"}\n{\"id\":2,\"v\":null}\n{\"id\":3}\n{}\n", "JSON", "1| 2|NULL 3|NULL NULL|NULL"},
		{"csv empty and null", "id,v\n1,\n2,\"\"\n,x\n", "CSV", "1|NULL 2| NULL|x"},
		{"nested into text", "{\"id\":1,\"v\":{\"a\":[1, 2]}}\n{\"id\":2,\"v\":12.50}\n{\"id\":3,\"v\":true}\n", "JSON", "1|{\"a\":[1, 2]} 2|12.50 3|true"},
		{"1.0 and text for int", "{\"id\":1.0}\n{\"id\":\"2\"}\n{\"id\":1e2}\n{\"id\":-0}\n", "JSON", "1|NULL 2|NULL 100|NULL 0|NULL"},
		{"escapes", "{\"id\":1,\"v\":\"a\\n\\\"\\u00e9\\ud83d\\ude00\"}\n", "JSON", "1|a\n\"é😀"},
		{"escaped key", "{\"\\u0069d\":1,\"v\":\"x\"}\n", "JSON", "1|x"},
		{"newline in quotes", "id,v\n1,\"a\nb\"\n2,\"c\r\nd\"\n3,e\n", "CSV", "1|a\nb 2|c\r\nd 3|e"},
		{"doubled quotes", "id,v\n1,\"\"\"a\"\"\"\n2,a\"b,c\"d\n", "CSV", "1|\"a\" 2|ab,cd"},
		{"only a header", "id,v\n", "CSV", ""},
		{"empty", "", "CSV", ""},
		{"empty", "", "JSON", ""},
	} {
		t.Run(c.name, func(t *testing.T) {
			rows, sink := bounded(t, c.text, c.encode)
			require.Equal(t, c.want, rows)
			require.Empty(t, sink.Rows)
		})
	}
}

func TestBadRows(t *testing.T) {
	for _, c := range []struct {
		name, text, encode, want string
		code                     pgerr.Code
	}{
		{"int overflow", "{\"id\":2147483648}\n{\"id\":1}\n", "JSON", "1|NULL", pgerr.NumericValueOutOfRange},
		{"huge int", "{\"id\":99999999999999999999999}\n{\"id\":1}\n", "JSON", "1|NULL", pgerr.NumericValueOutOfRange},
		{"1e400", "{\"id\":1e400}\n{\"id\":1}\n", "JSON", "1|NULL", pgerr.NumericValueOutOfRange},
		{"fraction", "{\"id\":1.5}\n{\"id\":1}\n", "JSON", "1|NULL", pgerr.InvalidTextRepresentation},
		{"NaN", "{\"id\":NaN}\n{\"id\":1}\n", "JSON", "1|NULL", pgerr.InvalidTextRepresentation},
		{"leading zero", "{\"id\":01}\n{\"id\":1}\n", "JSON", "1|NULL", pgerr.InvalidTextRepresentation},
		{"lone surrogate", "{\"id\":1,\"v\":\"\\ud800\"}\n{\"id\":1}\n", "JSON", "1|NULL", pgerr.InvalidTextRepresentation},
		{"NUL", "{\"id\":1,\"v\":\"\\u0000\"}\n{\"id\":1}\n", "JSON", "1|NULL", pgerr.UntranslatableCharacter},
		{"object for int", "{\"id\":{}}\n{\"id\":1}\n", "JSON", "1|NULL", pgerr.DatatypeMismatch},
		{"trailing text", "{\"id\":1} x\n{\"id\":1}\n", "JSON", "1|NULL", pgerr.InvalidTextRepresentation},
		{"trailing comma", "{\"id\":1,}\n{\"id\":1}\n", "JSON", "1|NULL", pgerr.InvalidTextRepresentation},
		{"no object", "[1]\n{\"id\":1}\n", "JSON", "1|NULL", pgerr.InvalidTextRepresentation},
		{"error in a skipped value", "{\"x\":[1,],\"id\":2}\n{\"id\":1}\n", "JSON", "1|NULL", pgerr.InvalidTextRepresentation},
		{"control character", "{\"v\":\"a\tb\"}\n{\"id\":1}\n", "JSON", "1|NULL", pgerr.InvalidTextRepresentation},
		{"too few", "id,v\n2\n1,x\n", "CSV", "1|x", pgerr.BadCopyFileFormat},
		{"too many", "id,v\n2,x,y\n1,x\n", "CSV", "1|x", pgerr.BadCopyFileFormat},
		{"csv overflow", "id,v\n3000000000,x\n1,x\n", "CSV", "1|x", pgerr.NumericValueOutOfRange},
		{"csv no int", "id,v\n1.0,x\n1,x\n", "CSV", "1|x", pgerr.InvalidTextRepresentation},
		{"csv encoding", "id,v\n2,\xc3(\n1,x\n", "CSV", "1|x", pgerr.CharacterNotInRepertoire},
		{"csv NUL", "id,v\n2,\x00\n1,x\n", "CSV", "1|x", pgerr.CharacterNotInRepertoire},
		{"open quote", "id,v\n2,\"x\n1,x\n", "CSV", "1|x", pgerr.BadCopyFileFormat},
		{"other header", "a,b\n2,\"x\n1,x\n", "CSV", "", pgerr.BadCopyFileFormat},
	} {
		t.Run(c.name, func(t *testing.T) {
			rows, sink := bounded(t, c.text, c.encode)
			require.Equal(t, c.want, rows)
			require.Len(t, sink.Rows, 1)
			require.Equal(t, c.code, pgerr.CodeOf(sink.Rows[0].Err), sink.Rows[0].Err)
		})
	}
}

func TestCSVOptions(t *testing.T) {
	rows, sink := bounded(t, "1\t'a''b'\n2\t\\N\n3\t'\\N'\n", "CSV", "header=false", "delimiter=\\t", "quote='", "null=\\N")
	require.Equal(t, "1|a'b 2|NULL 3|\\N", rows)
	require.Empty(t, sink.Rows)
	rows, _ = bounded(t, "1;x\n", "CSV", "without_header=true", "delimiter=;")
	require.Equal(t, "1|x", rows)
}

func TestLongRows(t *testing.T) {
	long := strings.Repeat("x", format.MaxRowBytes-100)
	text := "{\"id\":1,\"v\":\"" + long + "\"}\n{\"id\":2,\"v\":\"" + long + long + "\"}\n{\"id\":3,\"v\":\"c\"}\n"
	path := filepath.Join(t.TempDir(), "f")
	write(t, path, text)
	src := open(t, New(), config(path, "JSON", "file.follow=false"))
	sink := &connectortest.Sink{}
	rows := connectortest.ReadAll(t, src, testSchema(), 100, sink)
	require.Len(t, rows, 2)
	require.Len(t, rows[0].Values[1], len(long))
	require.Equal(t, "3|c", values(rows[1:]))
	require.Len(t, sink.Rows, 1)
	require.Equal(t, pgerr.ProgramLimitExceeded, pgerr.CodeOf(sink.Rows[0].Err))
	require.True(t, strings.HasPrefix(sink.Rows[0].Where, "line 2,"), sink.Rows[0].Where)
	require.Len(t, sink.Rows[0].Raw, maxRawBytes)
}

// follower reads a followed file step by step.
type follower struct {
	t     *testing.T
	clock *clock
	src   connector.Source
	path  string
	rd    connector.Reader
	sink  connectortest.Sink
	ids   map[int64]bool
}

func follow(t *testing.T, path, encode string, options ...string) *follower {
	t.Helper()
	f := &follower{t: t, path: path, clock: &clock{time.Unix(1000, 0)}, ids: map[int64]bool{}}
	f.src = open(t, &Connector{now: f.clock.now}, config(path, encode, options...))
	f.openAt(nil)
	t.Cleanup(func() { require.NoError(t, f.rd.Close()) })
	return f
}

func (f *follower) openAt(pos []byte) {
	f.t.Helper()
	if f.rd != nil {
		require.NoError(f.t, f.rd.Close())
	}
	rd, err := f.src.Open(context.Background(), connector.Split{ID: f.path, Position: pos}, []int{0, 1}, true, &f.sink)
	require.NoError(f.t, err)
	f.rd = rd
}

// restart reopens the reader at its position.
func (f *follower) restart() { f.openAt(slices.Clone(f.rd.Position())) }

// rows returns what there is until the reader is idle.
func (f *follower) rows() string {
	f.t.Helper()
	c := connectortest.NewChunk(testSchema(), []int{0, 1}, true)
	var out []connectortest.Row
	for range 100 {
		c.Reset()
		st, wait, err := f.rd.Next(context.Background(), c, 10)
		require.NoError(f.t, err)
		out = connectortest.AppendRows(out, c, true)
		if st != connector.More {
			require.Equal(f.t, connector.Idle, st)
			require.Equal(f.t, pollInterval, wait)
			break
		}
	}
	for _, r := range out {
		require.False(f.t, f.ids[r.ID], "row id twice")
		f.ids[r.ID] = true
	}
	return values(out)
}

func TestFollow(t *testing.T) {
	for _, restart := range []bool{false, true} {
		t.Run(fmt.Sprintf("restart %v", restart), func(t *testing.T) {
			path := filepath.Join(t.TempDir(), "f.csv")
			f := follow(t, path, "CSV")
			step := func(want string) {
				t.Helper()
				require.Equal(t, want, f.rows())
				if restart {
					f.restart()
				}
			}
			step("") // not there yet
			write(t, path, "")
			step("")
			appendTo(t, path, "id,")
			step("") // half a header
			appendTo(t, path, "v\n")
			step("")
			appendTo(t, path, "1,a\n2,")
			step("1|a")
			appendTo(t, path, "b\r")
			step("")
			appendTo(t, path, "\n3,\"c\n")
			step("2|b")
			appendTo(t, path, "\"\n4,\"d\"")
			step("3|c\n")
			appendTo(t, path, "\"\"\n")
			step("4|d\"")
		})
	}
}

func TestLastLineWithoutNewline(t *testing.T) {
	path := filepath.Join(t.TempDir(), "f")
	write(t, path, "{\"id\":1}\n{\"id\":2}")
	f := follow(t, path, "JSON", "file.idle.flush.ms=5000")
	require.Equal(t, "1|NULL", f.rows())
	f.clock.t = f.clock.t.Add(4 * time.Second)
	require.Empty(t, f.rows())
	appendTo(t, path, " ")
	require.Empty(t, f.rows())
	f.clock.t = f.clock.t.Add(4 * time.Second)
	require.Empty(t, f.rows())
	f.clock.t = f.clock.t.Add(time.Second)
	require.Equal(t, "2|NULL", f.rows())
	f.restart()
	appendTo(t, path, "\n{\"id\":3}\n")
	require.Equal(t, "3|NULL", f.rows())
	require.Empty(t, f.sink.Rows)
}

func TestTruncated(t *testing.T) {
	for _, restart := range []bool{false, true} {
		for _, text := range []string{"id,v\n9,z\n", "id,v\n7,longer than before, much\n"} {
			path := filepath.Join(t.TempDir(), "f")
			write(t, path, "id,v\n1,a\n2,b\n3,c\n")
			f := follow(t, path, "CSV")
			require.Equal(t, "1|a 2|b 3|c", f.rows())
			write(t, path, strings.ReplaceAll(text, ", much", "")) // same inode
			if restart {
				f.restart()
			}
			want := "9|z"
			if strings.Contains(text, "longer") {
				want = "7|longer than before"
			}
			require.Equal(t, want, f.rows(), "restart %v", restart)
			require.Len(t, f.sink.Rows, 1)
			require.Contains(t, f.sink.Rows[0].Err.Error(), "from its start")
			f.restart()
			appendTo(t, path, "10,y\n")
			require.Equal(t, "10|y", f.rows())
		}
	}
}

func TestRotated(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, "f.log")
	write(t, path, "{\"id\":1}\n")
	f := follow(t, filepath.Join(dir, "f.log"), "JSON")
	glob := open(t, New(), config(filepath.Join(dir, "f.log*"), "JSON"))
	ids := func() string {
		sps, err := glob.Splits(context.Background())
		require.NoError(t, err)
		var out []string
		for _, s := range sps {
			out = append(out, filepath.Base(s.ID))
		}
		return strings.Join(out, " ")
	}
	require.Equal(t, "f.log", ids())
	require.Equal(t, "1|NULL", f.rows())
	for i := range 3 {
		old := fmt.Sprintf("%s.%d", path, i)
		require.NoError(t, os.Rename(path, old))
		require.NotContains(t, ids(), filepath.Base(old))
		appendTo(t, old, "{\"id\":2}\n{\"id\":3}") // the writer has not noticed
		require.Equal(t, "2|NULL", f.rows())
		write(t, path, "{\"id\":4}\n")
		require.Empty(t, f.rows())
		f.clock.t = f.clock.t.Add(rotateGrace)
		require.Equal(t, "3|NULL 4|NULL", f.rows())
		require.Equal(t, "f.log", ids())
	}
	write(t, path+".new", "")
	require.Equal(t, "f.log f.log.new", ids())
	require.Empty(t, f.sink.Rows)
}

// A file that is rotated while the server is down is read to its end before the new one.
func TestRotatedWhileDown(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, "f.log")
	write(t, path, "{\"id\":1}\n")
	f := follow(t, path, "JSON")
	require.Equal(t, "1|NULL", f.rows())
	pos := slices.Clone(f.rd.Position())
	appendTo(t, path, "{\"id\":2}\n")
	require.NoError(t, os.Rename(path, path+".1"))
	write(t, path, "{\"id\":3}\n")
	f.openAt(pos)
	require.Equal(t, "2|NULL", f.rows())
	f.restart()
	f.clock.t = f.clock.t.Add(rotateGrace)
	require.Empty(t, f.rows())
	f.clock.t = f.clock.t.Add(rotateGrace)
	require.Equal(t, "3|NULL", f.rows())
	require.Empty(t, f.sink.Rows)
}

func TestCopiedFileGoesOn(t *testing.T) {
	path := filepath.Join(t.TempDir(), "f")
	write(t, path, "{\"id\":1}\n")
	f := follow(t, path, "JSON")
	require.Equal(t, "1|NULL", f.rows())
	pos := slices.Clone(f.rd.Position())
	require.NoError(t, os.Remove(path))
	write(t, path, "{\"id\":1}\n{\"id\":2}\n") // restored from a backup on another machine
	f.openAt(pos)
	require.Equal(t, "2|NULL", f.rows())
	require.Empty(t, f.sink.Rows)
}

func TestBrokenGzip(t *testing.T) {
	var z bytes.Buffer
	w := gzip.NewWriter(&z)
	_, err := w.Write([]byte("{\"id\":1}\n{\"id\":2}\n"))
	require.NoError(t, err)
	require.NoError(t, w.Close())
	dir := t.TempDir()
	require.NoError(t, os.WriteFile(filepath.Join(dir, "a.gz"), z.Bytes()[:z.Len()-5], 0o600))
	write(t, filepath.Join(dir, "b.gz"), "no gzip")
	src := open(t, New(), config(filepath.Join(dir, "*.gz"), "JSON", "file.follow=false"))
	sink := &connectortest.Sink{}
	require.Equal(t, "1|NULL 2|NULL", values(connectortest.ReadAll(t, src, testSchema(), 100, sink)))
	require.Len(t, sink.Rows, 2)
}

func TestRefusals(t *testing.T) {
	dir := t.TempDir()
	reg := connector.NewRegistry(New()).WithEncodings(format.Encodings()...)
	for _, c := range []struct {
		cfg  *connector.SourceConfig
		code pgerr.Code
	}{
		{config(filepath.Join(dir, "none"), "JSON", "file.follow=false"), pgerr.UndefinedFile},
		{config(dir, "JSON"), pgerr.WrongObjectType},
		{config("x", ""), pgerr.InvalidParameterValue},
		{config("x", "PROTOBUF"), pgerr.FeatureNotSupported},
		{config("x", "CSV", "delimiter=ab"), pgerr.InvalidParameterValue},
		{config("x", "CSV", "delimter=,"), pgerr.InvalidParameterValue},
		{config("x", "CSV", "delimiter=,", "quote=,"), pgerr.InvalidParameterValue},
		{config("x", "CSV", "header=true", "without_header=true"), pgerr.InvalidParameterValue},
		{config("x", "JSON", "file.folow=true"), pgerr.InvalidParameterValue},
		{&connector.SourceConfig{Options: map[string]string{"connector": "file"}, Encode: "JSON"}, pgerr.InvalidParameterValue},
	} {
		err := reg.Validate(c.cfg)
		if err == nil {
			_, err = New().Schema(c.cfg)
		}
		require.Equal(t, c.code, pgerr.CodeOf(err), "%v: %v", c.cfg, err)
	}
	src := open(t, New(), config("x", "JSON"))
	for _, pos := range []string{"", "\x02\x00", "\x01", "\x01\x00\x00\x00\x00", "\x01\x00\x80"} {
		_, err := src.Open(context.Background(), connector.Split{ID: "x", Position: []byte(pos)}, nil, false, nil)
		require.Equal(t, pgerr.DataCorrupted, pgerr.CodeOf(err), "%q", pos)
	}
}
