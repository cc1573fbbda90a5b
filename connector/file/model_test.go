package file

import (
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/streamdb/streamdb/connector"
	"github.com/streamdb/streamdb/connector/connectortest"
	"github.com/streamdb/streamdb/types"
)

// A writer appends pieces of rows, renames its file at the ends of rows, and the reader is closed and reopened at its position in between: every row
// arrives once and in order.
func TestFollowModel(t *testing.T) {
	for seed := range uint64(30) {
		for _, encode := range []string{"JSON", "CSV"} {
			rng := rand.New(rand.NewPCG(seed, 7))
			dir := t.TempDir()
			path := filepath.Join(dir, "f")
			start := func() string {
				if encode == "CSV" {
					return "\xef\xbb\xbfid,v\r\n"
				}
				return ""
			}
			pending := start()
			write(t, path, "")
			f := follow(t, path, encode)
			var want, got []string
			id, renamed := 0, 0
			read := func() {
				if s := f.rows(); s != "" {
					got = append(got, strings.Split(s, " ")...)
				}
			}
			read()
			for range 200 {
				switch op := rng.IntN(20); {
				case op < 6: // a row more to write
					v := strings.Repeat("é", rng.IntN(30))
					if encode == "CSV" {
						pending += fmt.Sprintf("%d,\"%s\"\"\n\"\r\n", id, v)
						want = append(want, fmt.Sprintf("%d|%s\"\n", id, v))
					} else {
						pending += fmt.Sprintf("{\"v\":\"%s\\n\",\"id\":%d}\n", v, id)
						want = append(want, fmt.Sprintf("%d|%s\n", id, v))
					}
					id++
				case op < 13: // a piece
					n := rng.IntN(len(pending) + 1)
					appendTo(t, path, pending[:n])
					pending = pending[n:]
				case op < 17:
					read()
				case op < 19:
					f.restart()
					read() // a file that was renamed before it was opened is not found, unless rows of it were read
				default:
					appendTo(t, path, pending)
					require.NoError(t, os.Rename(path, fmt.Sprintf("%s.%d", path, renamed)))
					renamed++
					write(t, path, "")
					pending = start()
					read()
					f.clock.t = f.clock.t.Add(rotateGrace)
					read()
				}
			}
			appendTo(t, path, pending)
			read()
			require.Equal(t, want, got, "seed %d %s", seed, encode)
			require.Empty(t, f.sink.Rows)
		}
	}
}

func BenchmarkFile(b *testing.B) {
	for _, encode := range []string{"JSON", "CSV"} {
		b.Run(encode, func(b *testing.B) {
			schema := types.Schema{
				{Name: "auction", Type: types.Int8},
				{Name: "price", Type: types.Int8},
				{Name: "date_time", Type: types.Timestamp},
				{Name: "channel", Type: types.Text},
				{Name: "extra", Type: types.Text},
			}
			var text strings.Builder
			if encode == "CSV" {
				text.WriteString("auction,price,date_time,channel,extra\n")
			}
			const rows = 100_000
			for i := range rows {
				layout := "{\"auction\":%d,\"price\":%d,\"date_time\":\"2024-01-01 10:%02d:00.5\",\"channel\":\"channel-%d\",\"extra\":\"%s\"}\n"
				if encode == "CSV" {
					layout = "%d,%d,2024-01-01 10:%02d:00.5,channel-%d,%s\n"
				}
				fmt.Fprintf(&text, layout, 1000+i, i*37, i/1000%60, i%10000, strings.Repeat("x", 60))
			}
			path := filepath.Join(b.TempDir(), "f")
			write(b, path, text.String())
			cfg := config(path, encode, "file.follow=false")
			cfg.Columns = schema
			src := open(b, New(), cfg)
			c := types.NewChunk(schema.Types())
			n := 0
			b.SetBytes(int64(text.Len()))
			for b.Loop() {
				rd, err := src.Open(b.Context(), connector.Split{ID: path}, connectortest.AllColumns(schema), false, &connectortest.Sink{})
				require.NoError(b, err)
				for st := connector.More; st != connector.End; {
					c.Reset()
					if st, _, err = rd.Next(b.Context(), c, types.MaxChunkRows); err != nil {
						b.Fatal(err)
					}
					n += c.N
				}
				require.NoError(b, rd.Close())
			}
			require.Zero(b, n%rows)
			b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(n), "ns/row")
		})
	}
}
