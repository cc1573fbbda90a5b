// Package limit holds hand-written loops, one for each query that the benchmark knows, as fast as one goroutine can do it: the yardstick for
// what the general engine costs. They read the same generator as the nexmark source without options, with the columns the query needs and no
// others, and know what the engine cannot: that ids are dense and that event time never goes back.
//
// The results are those of the query over the first events, windows that are still open included. Only final rows are made, no changes of them.
package limit

import (
	"sort"

	"github.com/streamdb/streamdb/connector/nexmark"
)

// Result is what a loop has seen and made.
type Result struct {
	Events int64 // of all three kinds
	Rows   int64 // of the query's result
	// Checksum is the sum over the result's rows of Loop.Checksum.
	Checksum uint64
}

// Loop is a hand-written query of bench/nexmark.
type Loop struct {
	Name     string
	Checksum string // a row's part of Result.Checksum, in SQL over the query's columns
	Run      func(events int64) Result
}

// figures is the part of the checksums of Q15 and Q16 that their aggregates have in common.
const figures = "total_bids + 2 * rank1_bids + 3 * rank2_bids + 4 * rank3_bids + 5 * total_bidders + 6 * rank1_bidders + 7 * rank2_bidders + 8 * rank3_bidders + " +
	"9 * total_auctions + 10 * rank1_auctions + 11 * rank2_auctions + 12 * rank3_auctions"

// Loops returns all loops by the name of their query.
func Loops() map[string]Loop {
	m := map[string]Loop{}
	for _, l := range []Loop{
		{"q0", "price + length(extra)", Q0},
		{"q1", "(price * 1000)::bigint + length(extra)", Q1},
		{"q2", "auction + price", Q2},
		{"q3", "id + length(name) + length(city)", Q3},
		{"q4", "category + trunc(avg)::bigint", Q4},
		{"q5", "auction * num", Q5},
		{"q7", "auction + bidder + price", Q7},
		{"q8", "id + length(name) + extract(epoch FROM window_start)::bigint", Q8},
		{"q9", "id + length(item_name) + category + bidder + price + trunc(extract(epoch FROM bid_time))::bigint", Q9},
		{"q12", "bidder * bid_count", Q12},
		{"q14", "(price * 1000)::bigint + length(bid_time_type) + length(extra) + c_counts", Q14},
		{"q15", figures, Q15},
		{"q16", figures + " + length(channel) + left(minute, 2)::bigint * 60 + right(minute, 2)::bigint", Q16},
		{"q17", "auction + total_bids + 2 * rank1_bids + 3 * rank2_bids + 4 * rank3_bids + min_price + max_price + trunc(avg_price)::bigint + sum_price::bigint", Q17},
		{"q18", "auction + bidder + price + length(channel) + length(url)", Q18},
		{"q19", "auction + price * rank", Q19},
		{"q20", "auction + bidder + price + length(channel) + length(url) + length(item_name) + initial_bid + reserve + seller", Q20},
		{"q21", "auction + bidder + price + length(channel) + coalesce(length(channel_id), 0)", Q21},
		{"q22", "price + length(dir1) + 2 * length(dir2) + 3 * length(dir3)", Q22},
		{"tumble", "auction * bids + total::bigint", Tumble},
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

// chunkRows is the most rows generated at once: their columns stay in the first- and second-level cache.
const chunkRows = 2048

func ints() []int64 { return make([]int64, chunkRows) }

func strs() []string { return make([]string, chunkRows) }

// eachChunk generates the bids among the first events, those columns of them that are not nil, and gives them to f, whose n rows are valid
// during the call.
func eachChunk(events int64, cols nexmark.BidColumns, f func(c *nexmark.BidColumns, n int)) {
	bids(cols).until(events, f)
}

// reader generates the rows of one kind in their order.
type reader[C any] struct {
	fill   func(from int64, n int, out *C) (next int64)
	before func(events int64) int64
	next   int64 // number of the event to go on at
	rows   int64 // generated
	cols   C
}

func persons(cols nexmark.PersonColumns) *reader[nexmark.PersonColumns] {
	return &reader[nexmark.PersonColumns]{fill: nexmark.Default().Persons, before: nexmark.PersonsBefore, cols: cols}
}

func auctions(cols nexmark.AuctionColumns) *reader[nexmark.AuctionColumns] {
	return &reader[nexmark.AuctionColumns]{fill: nexmark.Default().Auctions, before: nexmark.AuctionsBefore, cols: cols}
}

func bids(cols nexmark.BidColumns) *reader[nexmark.BidColumns] {
	return &reader[nexmark.BidColumns]{fill: nexmark.Default().Bids, before: nexmark.BidsBefore, cols: cols}
}

// until gives f the rows of events before the given one that it has not had yet, at most chunkRows at once.
func (r *reader[C]) until(event int64, f func(c *C, n int)) {
	for end := r.before(event); r.rows < end; {
		n := int(min(end-r.rows, chunkRows))
		r.next = r.fill(r.next, n, &r.cols)
		r.rows += int64(n)
		f(&r.cols, n)
	}
}

const (
	// blockEvents is how many events queries over several kinds take in turn.
	blockEvents = 2000
	// aheadEvents is by how much what is looked up is read before what looks it up: ids lead by fewer events.
	aheadEvents = 600
)

// eachBlock takes the events in blocks that end before the event end; who is looked up is to be read up to ahead.
func eachBlock(events int64, f func(ahead, end int64)) {
	for end := int64(0); end < events; {
		end = min(end+blockEvents, events)
		f(min(end+aheadEvents, events), end)
	}
}

// perAuction returns an element for each auction that the first events have or name, by id from FirstAuctionID on.
func perAuction[E any](events int64) []E {
	return make([]E, nexmark.AuctionsBefore(events)+nexmark.AuctionIDLead+idsAtOnce)
}

// perPerson returns an element for each person that the first events have or name, by id from FirstPersonID on.
func perPerson[E any](events int64) []E {
	return make([]E, nexmark.PersonsBefore(events)+nexmark.PersonIDLead+idsAtOnce)
}

// idsAtOnce is more than the auctions or persons of 50 events: those that the last of them name may miss some.
const idsAtOnce = 4
