package limit_test

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/streamdb/streamdb/bench/limit"
	"github.com/streamdb/streamdb/bench/nexmark"
	"github.com/streamdb/streamdb/connector"
	"github.com/streamdb/streamdb/connector/format"
	source "github.com/streamdb/streamdb/connector/nexmark"
	"github.com/streamdb/streamdb/types"
)

// The loops over files find what those over the generator find, whatever the number of files.
func TestFiles(t *testing.T) {
	schema, err := source.New().Schema(&connector.SourceConfig{Options: map[string]string{"nexmark.table.type": "Bid"}})
	require.NoError(t, err)
	for _, events := range []int64{3, 50, 123_456} {
		all := types.NewChunk(schema.Types())
		all.N = int(source.BidsBefore(events))
		for _, v := range all.Cols {
			v.Resize(all.N)
		}
		columns := func(v []*types.Vector) *source.BidColumns {
			return &source.BidColumns{Auction: v[0].Int, Bidder: v[1].Int, Price: v[2].Int, Channel: v[3].Str, URL: v[4].Str, DateTime: v[5].Int, Extra: v[6].Str}
		}
		source.Default().Bids(0, all.N, columns(all.Cols))
		for _, encode := range []string{"CSV", "JSON", "AVRO"} {
			for _, files := range []int{1, 3} {
				var paths []string
				for f := range files {
					part := types.NewChunk(schema.Types())
					for i := f; i < all.N; i += files {
						part.AppendRow(all, i, 1)
					}
					text := nexmark.AppendAvro(nexmark.AvroHeader(), columns(part.Cols), part.N)
					if encode != "AVRO" {
						enc, err := format.NewEncoder(&format.EncoderConfig{Encode: encode, Schema: schema, Mode: connector.AppendOnly, Text: types.DefaultFormat()})
						require.NoError(t, err)
						text, _, err = enc.AppendRows(enc.AppendHeader(nil), part)
						require.NoError(t, err)
					}
					paths = append(paths, filepath.Join(t.TempDir(), "bids"))
					require.NoError(t, os.WriteFile(paths[f], text, 0o600))
				}
				for query, loop := range map[string]string{limit.FileAll: "q0", limit.FileTumble: "tumble"} {
					want := limit.Loops()[loop].Run(events)
					want.Events = int64(all.N)
					got, err := limit.Files(encode, query, paths)
					require.NoError(t, err)
					require.Equal(t, want, got, "%s of %s in %d files", query, encode, files)
				}
			}
		}
	}
}
