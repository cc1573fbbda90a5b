package limit

import (
	"math"
	"time"

	"github.com/streamdb/streamdb/connector/nexmark"
)

// Windows of the queries, in microseconds.
const (
	microsPerSecond = 1_000_000
	secondsTo2000   = 946_684_800 // from 1970
	windowMicros    = 10_000_000
	slideMicros     = 2_000_000
	panes           = windowMicros / slideMicros
)

// The auctions bid for lie within this distance of that of the first bid of a window on the lower side, and are found by growing on the upper.
const auctionsBack = 256

// span returns the index after the last of ts[i:] that is before end. Event time never goes back.
func span(ts []int64, i int, end int64) int {
	if ts[len(ts)-1] < end {
		return len(ts)
	}
	for ts[i] < end {
		i++
	}
	return i
}

// eachWindow generates the bids among the first events, and gives add those from i to j of a chunk, which are of one window; done is called behind the last ones of each.
func eachWindow(events, size int64, cols nexmark.BidColumns, add func(c *nexmark.BidColumns, i, j int), done func()) {
	end := int64(math.MinInt64)
	eachChunk(events, cols, func(c *nexmark.BidColumns, n int) {
		ts := c.DateTime[:n]
		for i := 0; i < n; {
			if ts[i] >= end {
				if end != math.MinInt64 {
					done()
				}
				end = (ts[i]/size + 1) * size
			}
			j := span(ts, i, end)
			add(c, i, j)
			i = j
		}
	})
	if end != math.MinInt64 {
		done()
	}
}

// unixSeconds returns the whole seconds since 1970 of a timestamp.
func unixSeconds(ts int64) int64 { return ts/microsPerSecond + secondsTo2000 }

// grown returns s with at least n elements, new ones zero.
func grown[E any](s []E, n int) []E {
	if n <= len(s) {
		return s
	}
	if n > cap(s) {
		t := make([]E, n, 2*n)
		copy(t, s)
		return t
	}
	old := len(s)
	s = s[:n]
	clear(s[old:])
	return s
}

// counts are the bids per auction, or bidder, of one pane, a dense array from base on.
type counts struct {
	base int64
	n    []uint32
}

func (p *counts) add(ids []int64) {
	hi := ids[0]
	for _, a := range ids {
		hi = max(hi, a)
	}
	p.n = grown(p.n, int(hi-p.base)+1)
	n, base := p.n, p.base
	for _, a := range ids {
		n[a-base]++
	}
}

// Q5 finds the auctions with the most bids per window.
func Q5(events int64) Result {
	r := Result{Events: events}
	var ring [panes]counts
	var sum []uint32
	pane, end := int64(-1), int64(math.MinInt64)
	emit := func() {
		lo, hi := int64(math.MaxInt64), int64(0)
		for i := range ring {
			if p := &ring[i]; len(p.n) > 0 {
				lo, hi = min(lo, p.base), max(hi, p.base+int64(len(p.n)))
			}
		}
		if hi == 0 {
			return
		}
		sum = grown(sum[:0], int(hi-lo))
		for i := range ring {
			p := &ring[i]
			if len(p.n) == 0 {
				continue
			}
			out := sum[p.base-lo:]
			for j, v := range p.n {
				out[j] += v
			}
		}
		most := uint32(0)
		for _, v := range sum {
			most = max(most, v)
		}
		for j, v := range sum {
			if v == most {
				r.Rows++
				r.Checksum += uint64(lo+int64(j)) * uint64(v)
			}
		}
	}
	eachChunk(events, nexmark.BidColumns{Auction: ints(), DateTime: ints()}, func(c *nexmark.BidColumns, n int) {
		ts := c.DateTime[:n]
		for i := 0; i < n; {
			for ts[i] >= end {
				if pane < 0 {
					pane = ts[i] / slideMicros
				} else {
					emit()
					pane++
				}
				end = (pane + 1) * slideMicros
				p := &ring[pane%panes]
				p.n, p.base = p.n[:0], max(c.Auction[i]-auctionsBack, 0)
			}
			j := span(ts, i, end)
			ring[pane%panes].add(c.Auction[i:j])
			i = j
		}
	})
	if pane >= 0 {
		for range panes { // the windows that the end leaves open
			emit()
			pane++
			ring[pane%panes].n = ring[pane%panes].n[:0]
		}
	}
	return r
}

// Q7 finds the highest bids per window.
func Q7(events int64) Result {
	r := Result{Events: events}
	highest := int64(-1)
	var rows int64
	var sum uint64
	eachWindow(events, windowMicros, nexmark.BidColumns{Auction: ints(), Bidder: ints(), Price: ints(), DateTime: ints()}, func(c *nexmark.BidColumns, i, j int) {
		for k, p := range c.Price[i:j] {
			if p < highest {
				continue
			}
			if p > highest {
				highest, rows, sum = p, 0, 0
			}
			rows++
			sum += uint64(c.Auction[i+k]) + uint64(c.Bidder[i+k]) + uint64(p)
		}
	}, func() {
		r.Rows, r.Checksum = r.Rows+rows, r.Checksum+sum
		highest = -1
	})
	return r
}

// personsBack is the like of auctionsBack for bidders.
const personsBack = 2048

// Q12 counts the bids of each bidder in each window of 10 s of processing time.
func Q12(events int64) Result {
	r := Result{Events: events}
	var window counts
	end := int64(math.MinInt64)
	emit := func() {
		for i, n := range window.n {
			if n > 0 {
				r.Rows++
				r.Checksum += uint64(window.base+int64(i)) * uint64(n)
			}
		}
	}
	eachChunk(events, nexmark.BidColumns{Bidder: ints()}, func(c *nexmark.BidColumns, n int) {
		if now := time.Now().UnixMicro(); now >= end {
			emit()
			window.n, window.base = window.n[:0], max(c.Bidder[0]-personsBack, 0)
			end = (now/windowMicros + 1) * windowMicros
		}
		window.add(c.Bidder[:n])
	})
	emit()
	return r
}

// group is the state of one auction in one window.
type group struct {
	count, sum int64
}

// Tumble counts bids and sums prices per auction and window.
func Tumble(events int64) Result {
	r := Result{Events: events}
	var groups []group
	base := int64(0)
	eachWindow(events, windowMicros, nexmark.BidColumns{Auction: ints(), Price: ints(), DateTime: ints()}, func(c *nexmark.BidColumns, i, j int) {
		auctions, prices := c.Auction[i:j], c.Price[i:j]
		if len(groups) == 0 {
			base = max(auctions[0]-auctionsBack, 0)
		}
		hi := auctions[0]
		for _, a := range auctions {
			hi = max(hi, a)
		}
		groups = grown(groups, int(hi-base)+1)
		for k, a := range auctions {
			g := &groups[a-base]
			g.count++
			g.sum += prices[k]
		}
	}, func() {
		for i := range groups {
			if g := &groups[i]; g.count > 0 {
				r.Rows++
				r.Checksum += uint64(base+int64(i))*uint64(g.count) + uint64(g.sum)
			}
		}
		groups = groups[:0]
	})
	return r
}
