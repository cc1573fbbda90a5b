package limit

import "github.com/streamdb/streamdb/connector/nexmark"

// wantedCategory is the category of auctions that Q3 and Q20 want.
const wantedCategory = 10

// Q3 finds who sells in some states.
func Q3(events int64) Result {
	r := Result{Events: events}
	type person struct{ name, city, state string } // no state: not of those wanted
	people := perPerson[person](events)
	ps := persons(nexmark.PersonColumns{ID: ints(), Name: strs(), City: strs(), State: strs()})
	as := auctions(nexmark.AuctionColumns{ID: ints(), Seller: ints(), Category: ints()})
	eachBlock(events, func(ahead, end int64) {
		ps.until(ahead, func(c *nexmark.PersonColumns, n int) {
			for i, state := range c.State[:n] {
				switch state {
				case "or", "id", "ca", "OR", "ID", "CA":
					people[c.ID[i]-nexmark.FirstPersonID] = person{c.Name[i], c.City[i], state}
				}
			}
		})
		as.until(end, func(c *nexmark.AuctionColumns, n int) {
			for i, category := range c.Category[:n] {
				if category != wantedCategory {
					continue
				}
				if p := &people[c.Seller[i]-nexmark.FirstPersonID]; p.state != "" {
					r.Rows++
					r.Checksum += uint64(c.ID[i]) + uint64(len(p.name)) + uint64(len(p.city))
				}
			}
		})
	})
	return r
}

// maxCategories is more than the categories that auctions have.
const maxCategories = 64

// Q4 averages the winning prices per category.
func Q4(events int64) Result {
	r := Result{Events: events}
	type auction struct{ from, to, category, highest int64 }
	state := perAuction[auction](events)
	as := auctions(nexmark.AuctionColumns{ID: ints(), DateTime: ints(), Expires: ints(), Category: ints()})
	bs := bids(nexmark.BidColumns{Auction: ints(), Price: ints(), DateTime: ints()})
	var sum, count [maxCategories]int64
	eachBlock(events, func(ahead, end int64) {
		as.until(ahead, func(c *nexmark.AuctionColumns, n int) {
			for i, id := range c.ID[:n] {
				state[id-nexmark.FirstAuctionID] = auction{from: c.DateTime[i], to: c.Expires[i], category: c.Category[i]}
			}
		})
		bs.until(end, func(c *nexmark.BidColumns, n int) {
			for i, id := range c.Auction[:n] {
				a, ts, price := &state[id-nexmark.FirstAuctionID], c.DateTime[i], c.Price[i]
				if price <= a.highest || ts < a.from || ts > a.to {
					continue
				}
				if a.highest == 0 {
					count[a.category]++
				}
				sum[a.category] += price - a.highest
				a.highest = price
			}
		})
	})
	for category, n := range count {
		if n > 0 {
			r.Rows++
			r.Checksum += uint64(category) + uint64(sum[category]/n)
		}
	}
	return r
}

// Q8 finds persons who opened auctions within the window of 10 s in which they came.
func Q8(events int64) Result {
	r := Result{Events: events}
	type person struct {
		window int64
		name   string
		seen   bool
	}
	people := perPerson[person](events)
	ps := persons(nexmark.PersonColumns{ID: ints(), Name: strs(), DateTime: ints()})
	as := auctions(nexmark.AuctionColumns{Seller: ints(), DateTime: ints()})
	eachBlock(events, func(ahead, end int64) {
		ps.until(ahead, func(c *nexmark.PersonColumns, n int) {
			for i, id := range c.ID[:n] {
				people[id-nexmark.FirstPersonID] = person{window: c.DateTime[i] / windowMicros, name: c.Name[i]}
			}
		})
		as.until(end, func(c *nexmark.AuctionColumns, n int) {
			for i, id := range c.Seller[:n] {
				p := &people[id-nexmark.FirstPersonID]
				if p.seen || p.window != c.DateTime[i]/windowMicros {
					continue
				}
				p.seen = true
				r.Rows++
				r.Checksum += uint64(id) + uint64(len(p.name)) + uint64(unixSeconds(p.window*windowMicros))
			}
		})
	})
	return r
}

// Q9 finds the winning bid of each auction.
func Q9(events int64) Result {
	r := Result{Events: events}
	type auction struct {
		from, to, category  int64
		name                string
		price, bidder, time int64 // of the best bid; price 0: none
	}
	state := perAuction[auction](events)
	as := auctions(nexmark.AuctionColumns{ID: ints(), ItemName: strs(), DateTime: ints(), Expires: ints(), Category: ints()})
	bs := bids(nexmark.BidColumns{Auction: ints(), Bidder: ints(), Price: ints(), DateTime: ints()})
	eachBlock(events, func(ahead, end int64) {
		as.until(ahead, func(c *nexmark.AuctionColumns, n int) {
			for i, id := range c.ID[:n] {
				state[id-nexmark.FirstAuctionID] = auction{from: c.DateTime[i], to: c.Expires[i], category: c.Category[i], name: c.ItemName[i]}
			}
		})
		bs.until(end, func(c *nexmark.BidColumns, n int) {
			for i, id := range c.Auction[:n] {
				a, ts, price := &state[id-nexmark.FirstAuctionID], c.DateTime[i], c.Price[i]
				if price <= a.price || ts < a.from || ts > a.to { // of equal prices the earlier one wins, and time never goes back
					continue
				}
				a.price, a.bidder, a.time = price, c.Bidder[i], ts
			}
		})
	})
	for i := range state {
		if a := &state[i]; a.price > 0 {
			r.Rows++
			r.Checksum += uint64(nexmark.FirstAuctionID+int64(i)) + uint64(len(a.name)) + uint64(a.category+a.bidder+a.price+unixSeconds(a.time))
		}
	}
	return r
}

// Q20 finds the bids on auctions of one category.
func Q20(events int64) Result {
	r := Result{Events: events}
	type auction struct {
		name                                           string
		initialBid, reserve, expires, seller, category int64 // category 0: not wanted
	}
	state := perAuction[auction](events)
	as := auctions(nexmark.AuctionColumns{ID: ints(), ItemName: strs(), InitialBid: ints(), Reserve: ints(), Expires: ints(), Seller: ints(), Category: ints()})
	bs := bids(nexmark.BidColumns{Auction: ints(), Bidder: ints(), Price: ints(), Channel: strs(), URL: strs(), DateTime: ints()})
	found := make([]int, chunkRows)
	out := nexmark.BidColumns{Auction: ints(), Bidder: ints(), Price: ints(), Channel: strs(), URL: strs(), DateTime: ints()}
	outAuction := nexmark.AuctionColumns{ItemName: strs(), InitialBid: ints(), Reserve: ints(), Expires: ints(), Seller: ints(), Category: ints()}
	eachBlock(events, func(ahead, end int64) {
		as.until(ahead, func(c *nexmark.AuctionColumns, n int) {
			for i, id := range c.ID[:n] {
				if c.Category[i] == wantedCategory {
					state[id-nexmark.FirstAuctionID] = auction{
						name: c.ItemName[i], initialBid: c.InitialBid[i], reserve: c.Reserve[i], expires: c.Expires[i], seller: c.Seller[i], category: c.Category[i],
					}
				}
			}
		})
		bs.until(end, func(c *nexmark.BidColumns, n int) {
			k := 0
			for i, id := range c.Auction[:n] {
				a := &state[id-nexmark.FirstAuctionID]
				if a.category == 0 {
					continue
				}
				found[k] = i
				outAuction.ItemName[k], outAuction.InitialBid[k], outAuction.Reserve[k] = a.name, a.initialBid, a.reserve
				outAuction.Expires[k], outAuction.Seller[k], outAuction.Category[k] = a.expires, a.seller, a.category
				k++
			}
			for j, i := range found[:k] {
				out.Auction[j], out.Bidder[j], out.Price[j], out.DateTime[j] = c.Auction[i], c.Bidder[i], c.Price[i], c.DateTime[i]
				out.Channel[j], out.URL[j] = c.Channel[i], c.URL[i]
			}
			for j := range k {
				r.Checksum += uint64(out.Auction[j]+out.Bidder[j]+out.Price[j]) + uint64(len(out.Channel[j])+len(out.URL[j])+len(outAuction.ItemName[j])) +
					uint64(outAuction.InitialBid[j]+outAuction.Reserve[j]+outAuction.Seller[j])
			}
			r.Rows += int64(k)
		})
	})
	return r
}
