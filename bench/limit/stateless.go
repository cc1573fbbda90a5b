package limit

import (
	"strings"

	"github.com/streamdb/streamdb/connector/nexmark"
)

// Q0 passes all columns on.
func Q0(events int64) Result {
	r := Result{Events: events}
	eachChunk(events, nexmark.BidColumns{Auction: ints(), Bidder: ints(), Price: ints(), DateTime: ints(), Channel: strs(), URL: strs(), Extra: strs()}, func(c *nexmark.BidColumns, n int) {
		for i, p := range c.Price[:n] {
			r.Checksum += uint64(p) + uint64(len(c.Extra[i]))
		}
		r.Rows += int64(n)
	})
	return r
}

// euroRate is the dollar in thousandths of a euro, as the benchmark has it.
const euroRate = 908

// Q1 converts prices.
func Q1(events int64) Result {
	r := Result{Events: events}
	out := ints()
	eachChunk(events, nexmark.BidColumns{Auction: ints(), Bidder: ints(), Price: ints(), DateTime: ints(), Extra: strs()}, func(c *nexmark.BidColumns, n int) {
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

// Q2 selects the bids of some auctions.
func Q2(events int64) Result {
	r := Result{Events: events}
	auction, price := ints(), ints()
	eachChunk(events, nexmark.BidColumns{Auction: ints(), Price: ints()}, func(c *nexmark.BidColumns, n int) {
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

// Prices that Q14 wants, in thousandths of a euro, and the hours of its times of day.
const (
	minEuro, maxEuro   = 1_000_000_000, 50_000_000_000
	dayFrom, dayTo     = 8, 18
	nightTo, nightFrom = 6, 20
	hourMicros         = 3_600_000_000
	hoursPerDay        = 24
)

// Q14 converts the prices of some bids, names their time of day and counts a letter.
func Q14(events int64) Result {
	r := Result{Events: events}
	found, euros, letters, times := make([]int, chunkRows), ints(), ints(), strs()
	eachChunk(events, nexmark.BidColumns{Auction: ints(), Bidder: ints(), Price: ints(), DateTime: ints(), Extra: strs()}, func(c *nexmark.BidColumns, n int) {
		k := 0
		for i, p := range c.Price[:n] {
			if e := p * euroRate; e > minEuro && e < maxEuro {
				found[k], euros[k] = i, e
				k++
			}
		}
		for j, i := range found[:k] {
			switch h := c.DateTime[i] / hourMicros % hoursPerDay; {
			case h >= dayFrom && h <= dayTo:
				times[j] = "dayTime"
			case h <= nightTo || h >= nightFrom:
				times[j] = "nightTime"
			default:
				times[j] = "otherTime"
			}
			letters[j] = int64(strings.Count(c.Extra[i], "c"))
		}
		for j, i := range found[:k] {
			r.Checksum += uint64(euros[j]) + uint64(len(times[j])) + uint64(len(c.Extra[i])) + uint64(letters[j])
		}
		r.Rows += int64(k)
	})
	return r
}

// knownChannel returns the id of a channel that Q21 knows by its name, in whatever case, or "".
func knownChannel(name string) string {
	if len(name) > len("facebook") {
		return ""
	}
	for _, c := range [...]struct{ name, id string }{{"apple", "0"}, {"google", "1"}, {"facebook", "2"}, {"baidu", "3"}} {
		if len(name) == len(c.name) && strings.EqualFold(name, c.name) {
			return c.id
		}
	}
	return ""
}

// channelID returns the value of the parameter channel_id in a URL, "" when there is none; some is whether there is something of that name.
func channelID(url string) (id string, some bool) {
	const name = "channel_id="
	for at := 0; ; {
		i := strings.Index(url[at:], name)
		if i < 0 {
			return "", some
		}
		some = true
		if at += i; at == 0 || url[at-1] == '&' {
			id, _, _ = strings.Cut(url[at+len(name):], "&")
			return id, true
		}
		at += len(name)
	}
}

// Q21 finds the channel's id, from its name or from the URL.
func Q21(events int64) Result {
	r := Result{Events: events}
	found, ids := make([]int, chunkRows), strs()
	eachChunk(events, nexmark.BidColumns{Auction: ints(), Bidder: ints(), Price: ints(), Channel: strs(), URL: strs()}, func(c *nexmark.BidColumns, n int) {
		k := 0
		for i, name := range c.Channel[:n] {
			id, some := knownChannel(name), true
			if id == "" {
				id, some = channelID(c.URL[i])
			}
			if some {
				found[k], ids[k] = i, id
				k++
			}
		}
		for j, i := range found[:k] {
			r.Checksum += uint64(c.Auction[i]+c.Bidder[i]+c.Price[i]) + uint64(len(c.Channel[i])+len(ids[j]))
		}
		r.Rows += int64(k)
	})
	return r
}

// urlHead is how many slashes come before the parts of a URL that Q22 wants.
const urlHead = 3

// Q22 takes the URL to pieces.
func Q22(events int64) Result {
	r := Result{Events: events}
	var dirs [3][]string
	for k := range dirs {
		dirs[k] = strs()
	}
	eachChunk(events, nexmark.BidColumns{Auction: ints(), Bidder: ints(), Price: ints(), Channel: strs(), URL: strs()}, func(c *nexmark.BidColumns, n int) {
		for i, url := range c.URL[:n] {
			for range urlHead {
				_, url, _ = strings.Cut(url, "/")
			}
			for k := range dirs {
				dirs[k][i], url, _ = strings.Cut(url, "/")
			}
		}
		for i, p := range c.Price[:n] {
			r.Checksum += uint64(p) + uint64(len(dirs[0][i])+2*len(dirs[1][i])+3*len(dirs[2][i]))
		}
		r.Rows += int64(n)
	})
	return r
}
