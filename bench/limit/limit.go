// Package limit holds hand-written loops, one for each query that the benchmark knows, as fast as one goroutine can do it: the yardstick for
// what the general engine costs. They read the same generator as the nexmark source without options, with the columns the query needs and no
// others, and know what the engine cannot: that ids are dense and that event time never goes back.
//
// The results are those of the query over the first events, windows that are still open included.
package limit

import (
	"sort"

	"github.com/streamdb/streamdb/connector/nexmark"
)

// Result is what a loop has seen and made.
type Result struct {
	Events int64 // of all three kinds
	Rows   int64 // of the query's result
	// Checksum is the sum over the result's rows of a mix of their values: see each loop.
	Checksum uint64
}

// Loop is a hand-written query.
type Loop struct {
	Name string
	SQL  string // the query it answers, over a table bid
	Run  func(events int64) Result
}

// Loops returns all loops by the name of their query.
func Loops() map[string]Loop {
	m := map[string]Loop{}
	for _, l := range []Loop{
		{"q0", "SELECT auction, bidder, price, channel, url, date_time, extra FROM bid", Q0},
		{"q1", "SELECT auction, bidder, 0.908 * price AS price, date_time, extra FROM bid", Q1},
		{"q2", "SELECT auction, price FROM bid WHERE auction % 123 = 0", Q2},
		{"q5", "the auctions with the most bids in each window of 10 s, every 2 s", Q5},
		{"q7", "the bids with the highest price in each window of 10 s", Q7},
		{"tumble", "SELECT auction, window_start, count(*), sum(price) FROM TUMBLE(bid, date_time, INTERVAL '10 seconds') GROUP BY 1, 2", Tumble},
	} {
		m[l.Name] = l
	}
	return m
}

// Names lists the queries in alphabetical order.
func Names() []string {
	var out []string
	for n := range Loops() {
		out = append(out, n)
	}
	sort.Strings(out)
	return out
}

// chunkRows is the number of bids generated at once: their columns stay in the first- and second-level cache.
const chunkRows = 2048

// column selects columns of bids.
type column uint8

const (
	colAuction column = 1 << iota
	colBidder
	colPrice
	colDateTime
	colStrings // channel, url
	colExtra
)

// eachChunk generates the bids among the first events and gives them to f, whose n rows are valid during the call.
func eachChunk(events int64, cols column, f func(c *nexmark.BidColumns, n int)) {
	gen := nexmark.Default()
	ints := func(c column) []int64 {
		if cols&c == 0 {
			return nil
		}
		return make([]int64, chunkRows)
	}
	strs := func(c column) []string {
		if cols&c == 0 {
			return nil
		}
		return make([]string, chunkRows)
	}
	c := nexmark.BidColumns{
		Auction: ints(colAuction), Bidder: ints(colBidder), Price: ints(colPrice), DateTime: ints(colDateTime),
		Channel: strs(colStrings), URL: strs(colStrings), Extra: strs(colExtra),
	}
	next := int64(0)
	for left := nexmark.BidsBefore(events); left > 0; {
		n := int(min(left, chunkRows))
		next = gen.Bids(next, n, &c)
		f(&c, n)
		left -= int64(n)
	}
}
