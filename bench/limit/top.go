package limit

import "github.com/streamdb/streamdb/connector/nexmark"

// lastBid is a group of Q18: its last bid.
type lastBid struct {
	key          uint64
	price, time  int64
	channel, url string
}

// index finds groups by key: a table with open addressing and linear probing, of 1 + the group's number.
type index struct {
	slots  []uint32
	groups []lastBid
	shift  int // 64 - log2(len(slots))
}

func (x *index) grow() {
	if x.slots == nil {
		x.slots, x.shift = make([]uint32, 1<<12), 64-12
		return
	}
	x.slots, x.shift = make([]uint32, 2*len(x.slots)), x.shift-1
	for g := range x.groups {
		i := x.groups[g].key * spread >> x.shift
		for x.slots[i] != 0 {
			i = (i + 1) & uint64(len(x.slots)-1)
		}
		x.slots[i] = uint32(g + 1)
	}
}

// find fills out with the groups of the keys, new ones included.
func (x *index) find(keys []uint64, out []uint32) {
	for 2*(len(x.groups)+len(keys)) > len(x.slots) {
		x.grow()
	}
	mask := uint64(len(x.slots) - 1)
	// What the slots say is fetched for all keys before it is looked at for one: the misses overlap.
	for k, key := range keys {
		out[k] = x.slots[key*spread>>x.shift]
	}
	for k, key := range keys {
		g := out[k]
		for i := key * spread >> x.shift; ; g = x.slots[i] {
			if g == 0 {
				if g = x.slots[i]; g == 0 { // not even since the first pass
					x.groups = append(x.groups, lastBid{key: key})
					g = uint32(len(x.groups))
					x.slots[i] = g
					break
				}
			}
			if x.groups[g-1].key == key {
				break
			}
			i = (i + 1) & mask
		}
		out[k] = g - 1
	}
}

// Q18 finds the last bid of every bidder on every auction.
func Q18(events int64) Result {
	r := Result{Events: events}
	var x index
	keys, groups := make([]uint64, chunkRows), make([]uint32, chunkRows)
	eachChunk(events, nexmark.BidColumns{Auction: ints(), Bidder: ints(), Price: ints(), Channel: strs(), URL: strs(), DateTime: ints()}, func(c *nexmark.BidColumns, n int) {
		for i, a := range c.Auction[:n] {
			keys[i] = uint64(c.Bidder[i])<<(64-idBits) ^ uint64(a)
		}
		x.find(keys[:n], groups)
		for i, g := range groups[:n] { // time never goes back: the last bid is the last one seen
			b := &x.groups[g]
			b.price, b.time, b.channel, b.url = c.Price[i], c.DateTime[i], c.Channel[i], c.URL[i]
		}
	})
	for i := range x.groups {
		b := &x.groups[i]
		bidder := b.key >> (64 - idBits)
		r.Checksum += bidder + (b.key & (1<<(64-idBits) - 1)) + uint64(b.price) + uint64(len(b.channel)+len(b.url))
	}
	r.Rows = int64(len(x.groups))
	return r
}

// bestBids is how many bids per auction Q19 wants.
const bestBids = 10

// Q19 finds the highest bids of every auction.
func Q19(events int64) Result {
	r := Result{Events: events}
	type bid struct{ price, bidder, time int64 }
	type auction struct {
		n    int64
		best [bestBids]bid // the highest first
	}
	state := perAuction[auction](events)
	least := perAuction[int64](events) // price of the last of a full list
	eachChunk(events, nexmark.BidColumns{Auction: ints(), Bidder: ints(), Price: ints(), DateTime: ints()}, func(c *nexmark.BidColumns, n int) {
		for i, p := range c.Price[:n] {
			id := c.Auction[i] - nexmark.FirstAuctionID
			if p <= least[id] {
				continue
			}
			a := &state[id]
			k := min(a.n, bestBids-1)
			for ; k > 0 && a.best[k-1].price < p; k-- {
				a.best[k] = a.best[k-1]
			}
			a.best[k] = bid{p, c.Bidder[i], c.DateTime[i]}
			if a.n = min(a.n+1, bestBids); a.n == bestBids {
				least[id] = a.best[bestBids-1].price
			}
		}
	})
	for i := range state {
		a := &state[i]
		for k, b := range a.best[:a.n] {
			r.Checksum += uint64(nexmark.FirstAuctionID+int64(i)) + uint64(b.price)*uint64(k+1)
		}
		r.Rows += a.n
	}
	return r
}
