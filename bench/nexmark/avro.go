package nexmark

import (
	"encoding/binary"

	"github.com/streamdb/streamdb/connector/nexmark"
)

// avroMark stands behind the header and every block of a file of Avro.
const avroMark = "streamdb nexmark"

// AvroHeader is what a file of bids in Avro begins with.
func AvroHeader() []byte {
	b := binary.AppendVarint([]byte("Obj\x01"), 2)
	for _, s := range []string{
		"avro.schema", `{"type":"record","name":"bid","fields":[{"name":"auction","type":"long"},{"name":"bidder","type":"long"},{"name":"price","type":"long"},{"name":"channel","type":"string"},` +
			`{"name":"url","type":"string"},{"name":"date_time","type":{"type":"long","logicalType":"timestamp-micros"}},{"name":"extra","type":"string"}]}`,
		"avro.codec", "null",
	} {
		b = appendAvroText(b, s)
	}
	return append(append(b, 0), avroMark...)
}

func appendAvroText(b []byte, s string) []byte {
	return append(binary.AppendVarint(b, int64(len(s))), s...)
}

// epochMicros is 2000-01-01, from which streamdb counts, in microseconds since 1970-01-01.
const epochMicros = 946_684_800_000_000

// avroBlock is how many bids a block has.
const avroBlock = 2000

// AppendAvro appends n bids, in blocks.
func AppendAvro(b []byte, c *nexmark.BidColumns, n int) []byte {
	var rows []byte
	for from := 0; from < n; from += avroBlock {
		rows = rows[:0]
		to := min(from+avroBlock, n)
		for i := from; i < to; i++ {
			for _, v := range []int64{c.Auction[i], c.Bidder[i], c.Price[i]} {
				rows = binary.AppendVarint(rows, v)
			}
			rows = appendAvroText(appendAvroText(rows, c.Channel[i]), c.URL[i])
			rows = appendAvroText(binary.AppendVarint(rows, c.DateTime[i]+epochMicros), c.Extra[i])
		}
		b = binary.AppendVarint(binary.AppendVarint(b, int64(to-from)), int64(len(rows)))
		b = append(append(b, rows...), avroMark...)
	}
	return b
}
