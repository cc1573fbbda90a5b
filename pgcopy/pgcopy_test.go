package pgcopy

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/streamdb/streamdb/internal/pgerr"
	"github.com/streamdb/streamdb/types"
)

// pieces is a source that cuts its text into pieces of n bytes.
type pieces struct {
	text string
	n    int
}

// Next implements Source.
func (p *pieces) Next() ([]byte, error) {
	if p.text == "" {
		return nil, io.EOF
	}
	n := min(p.n, len(p.text))
	b := []byte(p.text[:n])
	p.text = p.text[n:]
	return b, nil
}

func testColumns() types.Schema {
	return types.Schema{{Name: "a", Type: types.Int4}, {Name: "b", Type: types.Text}, {Name: "c", Type: types.T(types.OIDNumeric)}}
}

// decode reads all of a text as rows of testColumns.
func decode(text string, piece int, opts Options) (*types.Chunk, error) {
	d := NewDecoder(context.Background(), &pieces{text: text, n: piece}, "t", opts, testColumns(), types.DefaultFormat())
	all := types.NewChunk(testColumns().Types())
	for {
		c := types.NewChunk(testColumns().Types())
		err := d.Read(c)
		if errors.Is(err, io.EOF) {
			return all, d.Drain()
		}
		if err != nil {
			return nil, err
		}
		all.AppendChunk(c)
	}
}

func encode(c *types.Chunk, opts Options) string {
	e := NewEncoder(opts, testColumns(), types.DefaultFormat())
	b := e.AppendHeader(nil)
	for r := range c.N {
		b = e.AppendRow(b, c, r)
	}
	return string(e.AppendTrailer(b))
}

func allOptions() []Options {
	csv := Defaults(CSV)
	csv.Header, csv.Quote, csv.Escape = HeaderMatch, '\'', '\\'
	tab := Defaults(Text)
	tab.Delimiter, tab.Null, tab.Header = '|', "", HeaderOn
	return []Options{Defaults(Text), Defaults(CSV), Defaults(Binary), csv, tab}
}

func TestRoundTrip(t *testing.T) {
	c := types.NewChunk(testColumns().Types())
	for i, s := range []string{"", "x", `\N`, `\.`, "a\tb\r\n\v\b\f\\", `"q" 'q' \"`, ",|,", "NULL", "ü€😀", "\x01\x7f", "'", `\`, strings.Repeat("long ", 40_000)} {
		c.Cols[0].AppendDatum(types.Datum{Type: types.Int4, Int: int64(i) - 3})
		c.Cols[1].AppendDatum(types.Datum{Type: types.Text, Str: s})
		c.Cols[2].AppendNull()
		c.N++
	}
	for i, o := range allOptions() {
		text := encode(c, o)
		for _, n := range []int{1, 7, 100_000} {
			got, err := decode(text, n, o)
			require.NoError(t, err, "%d: %d", i, n)
			if o.Null == "" && o.Format == Text {
				require.True(t, got.Cols[1].IsNull(0), "the empty text is null there")
				continue
			}
			require.Equal(t, text, encode(got, o), "%d: %d", i, n)
			require.Equal(t, c.N, got.N)
		}
	}
}

// TestPieces holds that where messages are cut does not matter.
func TestPieces(t *testing.T) {
	for _, text := range []string{"1\ta\\\nb\t2\r\n", "1\ta\t2\r\n2\tb\t3\r\n\\.\r\nrest", "1\ta\t2\r2\tb\t3\r", "1\ta\t2\n\\.", "1\ta\\.\t2\n", "1\tx\t2\n2\ty\r3\n"} {
		want, wantErr := decode(text, len(text), Defaults(Text))
		for n := 1; n < len(text); n++ {
			got, err := decode(text, n, Defaults(Text))
			require.Equal(t, fmt.Sprint(wantErr), fmt.Sprint(err), "%q %d", text, n)
			if err == nil {
				require.Equal(t, encode(want, Defaults(Text)), encode(got, Defaults(Text)))
			}
		}
	}
}

// FuzzDecoder feeds any bytes in any pieces: errors have codes, and what is read is written and read again as the same.
func FuzzDecoder(f *testing.F) {
	f.Add("1\ta\t2.5\n\\N\tx\\ty\t\\N\n\\.\n", uint8(3), uint8(0))
	f.Add("1,\"a\"\"b\nc\",2\r\n,,\r\n", uint8(1), uint8(1))
	f.Add(signature+"\x00\x00\x00\x00\x00\x00\x00\x00\x00\x03\x00\x00\x00\x04\x00\x00\x00\x07\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff", uint8(5), uint8(2))
	f.Add("a,b,c\n1,'it\\'s',2\n", uint8(9), uint8(3))
	f.Add("x\n1|a\\|b|\n", uint8(2), uint8(4))
	f.Fuzz(func(t *testing.T, text string, piece, which uint8) {
		all := allOptions()
		o := all[int(which)%len(all)]
		c, err := decode(text, int(piece)+1, o)
		if err != nil {
			require.NotEqual(t, pgerr.InternalError, pgerr.CodeOf(err), "%v", err)
			return
		}
		again, err := decode(encode(c, o), 1<<16, o)
		require.NoError(t, err)
		require.Equal(t, encode(c, Defaults(Binary)), encode(again, Defaults(Binary)))
	})
}

func BenchmarkDecodeText(b *testing.B) {
	text := strings.Repeat("12345\tsome text of a row\t67.89\n", 10_000)
	b.SetBytes(int64(len(text)))
	for range b.N {
		c, err := decode(text, 8<<10, Defaults(Text))
		if err != nil || c.N != 10_000 {
			b.Fatal(err)
		}
	}
}
