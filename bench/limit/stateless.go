package limit

import "github.com/streamdb/streamdb/connector/nexmark"

// Q0 passes all columns on. Checksum: price + length of extra.
func Q0(events int64) Result {
	r := Result{Events: events}
	eachChunk(events, colAuction|colBidder|colPrice|colDateTime|colStrings|colExtra, func(c *nexmark.BidColumns, n int) {
		for i, p := range c.Price[:n] {
			r.Checksum += uint64(p) + uint64(len(c.Extra[i]))
		}
		r.Rows += int64(n)
	})
	return r
}

// euroRate is the dollar in thousandths of a euro, as the benchmark has it.
const euroRate = 908

// Q1 converts prices. Checksum: price in thousandths + length of extra.
func Q1(events int64) Result {
	r := Result{Events: events}
	out := make([]int64, chunkRows)
	eachChunk(events, colAuction|colBidder|colPrice|colDateTime|colExtra, func(c *nexmark.BidColumns, n int) {
		for i, p := range c.Price[:n] {
			out[i] = p * euroRate
		}
		for i, p := range out[:n] {
			r.Checksum += uint64(p) + uint64(len(c.Extra[i]))
		}
		r.Rows += int64(n)
	})
	return r
}

// wantedAuctions is the divisor of the auctions that Q2 wants.
const wantedAuctions = 123

// Q2 selects the bids of some auctions. Checksum: auction + price.
func Q2(events int64) Result {
	r := Result{Events: events}
	auction, price := make([]int64, chunkRows), make([]int64, chunkRows)
	eachChunk(events, colAuction|colPrice, func(c *nexmark.BidColumns, n int) {
		k := 0
		for i, a := range c.Auction[:n] {
			if uint64(a)%wantedAuctions == 0 {
				auction[k], price[k] = a, c.Price[i]
				k++
			}
		}
		for i, a := range auction[:k] {
			r.Checksum += uint64(a) + uint64(price[i])
		}
		r.Rows += int64(k)
	})
	return r
}
