package limit

import (
	"strconv"

	"github.com/streamdb/streamdb/connector/nexmark"
)

const (
	dayMicros     = 86_400_000_000
	minuteMicros  = 60_000_000
	minutesPerDay = 1440
	ranks         = 3 // of bids by price
	secondRank    = 10_000
	thirdRank     = 1_000_000
)

func rank(price int64) int {
	k := 0
	if price >= secondRank {
		k = 1
	}
	if price >= thirdRank {
		k = 2
	}
	return k
}

// tally counts bids, or who is in them, in all and of each rank.
type tally [1 + ranks]int64

func (t *tally) add(rank int) {
	t[0]++
	t[1+rank]++
}

// first counts an element whose flags say where it has been counted before, and returns its flags now.
func (t *tally) first(flags uint8, rank int) uint8 {
	now := flags | 1 | 2<<rank
	if now != flags {
		t[0] += int64(1 &^ flags)
		t[1+rank] += int64(1 &^ (flags >> (1 + rank)))
	}
	return now
}

// counters are the results of Q15, and of a group of Q16.
type counters struct{ bids, bidders, auctions tally }

func (f *counters) checksum() (sum uint64) {
	for i, t := range [...]*tally{&f.bids, &f.bidders, &f.auctions} {
		for k, n := range t {
			sum += uint64((i*len(t) + k + 1)) * uint64(n)
		}
	}
	return sum
}

// Q15 counts bids, bidders and auctions per day, by price.
func Q15(events int64) Result {
	r := Result{Events: events}
	bidders, auctions := perPerson[uint8](events), perAuction[uint8](events)
	var f counters
	eachWindow(events, dayMicros, nexmark.BidColumns{Auction: ints(), Bidder: ints(), Price: ints(), DateTime: ints()}, func(c *nexmark.BidColumns, i, j int) {
		for ; i < j; i++ {
			k := rank(c.Price[i])
			f.bids.add(k)
			b, a := &bidders[c.Bidder[i]-nexmark.FirstPersonID], &auctions[c.Auction[i]-nexmark.FirstAuctionID]
			*b, *a = f.bidders.first(*b, k), f.auctions.first(*a, k)
		}
	}, func() {
		r.Rows++
		r.Checksum += f.checksum()
		f = counters{}
		clear(bidders)
		clear(auctions)
	})
	return r
}

// channelIndex returns a small number for a channel: those named channel-N are dense.
func channelIndex(name string) int {
	const prefix = "channel-"
	if len(name) <= len(prefix) || name[:len(prefix)] != prefix {
		switch name {
		case "Google":
			return 0
		case "Facebook":
			return 1
		case "Baidu":
			return 2
		}
		return 3
	}
	n := 0
	for i := len(prefix); i < len(name); i++ {
		n = n*10 + int(name[i]-'0')
	}
	return 4 + n
}

func channelName(index int) string {
	if index < 4 {
		return [...]string{"Google", "Facebook", "Baidu", "Apple"}[index]
	}
	return "channel-" + strconv.Itoa(index-4)
}

// flagBits is how many low bits of a flagged set's slots are flags.
const flagBits = 1 + ranks

// flagged holds flags of keys: a table with open addressing and linear probing.
type flagged struct {
	slots []uint64 // key << flagBits | flags; 0: free, because no key is without flags
	n     int
	shift int // 64 - log2(len(slots))
}

// spread is the golden ratio's fraction: multiplied by it the keys' upper bits are well spread.
const spread = 0x9e3779b97f4a7c15

// at returns the slot of a key, with its flags or, when it is new, with the key alone. It is valid until the next call.
func (s *flagged) at(key uint64) *uint64 {
	if 2*s.n >= len(s.slots) {
		s.grow()
	}
	for i := key * spread >> s.shift; ; i = (i + 1) & uint64(len(s.slots)-1) {
		switch p := &s.slots[i]; {
		case *p == 0:
			s.n++
			*p = key << flagBits
			return p
		case *p>>flagBits == key:
			return p
		}
	}
}

func (s *flagged) grow() {
	old := s.slots
	if old == nil {
		s.slots, s.shift = make([]uint64, 1<<10), 64-10
		return
	}
	s.slots, s.shift = make([]uint64, 2*len(old)), s.shift-1
	for _, v := range old {
		if v == 0 {
			continue
		}
		i := v >> flagBits * spread >> s.shift
		for s.slots[i] != 0 {
			i = (i + 1) & uint64(len(s.slots)-1)
		}
		s.slots[i] = v
	}
}

// count counts the key in t unless it has been counted.
func (s *flagged) count(t *tally, key uint64, rank int) {
	p := s.at(key)
	*p |= uint64(t.first(uint8(*p&(1<<flagBits-1)), rank))
}

// idBits is how many bits an auction or a person needs in a key.
const idBits = 40

// Q16 counts bids, bidders and auctions per channel and day, by price.
func Q16(events int64) Result {
	r := Result{Events: events}
	type channel struct {
		counters
		last int64
	}
	var channels []channel
	var bidders, auctions flagged
	eachWindow(events, dayMicros, nexmark.BidColumns{Auction: ints(), Bidder: ints(), Price: ints(), Channel: strs(), DateTime: ints()}, func(c *nexmark.BidColumns, i, j int) {
		for ; i < j; i++ {
			k, ch := rank(c.Price[i]), channelIndex(c.Channel[i])
			channels = grown(channels, ch+1)
			f := &channels[ch]
			f.last = c.DateTime[i]
			f.bids.add(k)
			bidders.count(&f.bidders, uint64(ch)<<idBits|uint64(c.Bidder[i]), k)
			auctions.count(&f.auctions, uint64(ch)<<idBits|uint64(c.Auction[i]), k)
		}
	}, func() {
		for i := range channels {
			if f := &channels[i]; f.bids[0] > 0 {
				r.Rows++
				r.Checksum += f.checksum() + uint64(len(channelName(i))) + uint64(f.last/minuteMicros%minutesPerDay)
			}
		}
		channels, bidders, auctions = channels[:0], flagged{}, flagged{}
	})
	return r
}

// Q17 makes figures of every auction per day.
func Q17(events int64) Result {
	r := Result{Events: events}
	type auction struct {
		bids           [ranks]int64
		low, high, sum int64
	}
	state := perAuction[auction](events)
	eachWindow(events, dayMicros, nexmark.BidColumns{Auction: ints(), Price: ints(), DateTime: ints()}, func(c *nexmark.BidColumns, i, j int) {
		ids := c.Auction[i:j]
		for k, p := range c.Price[i:j] {
			a := &state[ids[k]-nexmark.FirstAuctionID]
			if a.high == 0 { // prices are positive
				a.low = p
			}
			a.low, a.high = min(a.low, p), max(a.high, p)
			a.bids[rank(p)]++
			a.sum += p
		}
	}, func() {
		for i := range state {
			a := &state[i]
			if n := a.bids[0] + a.bids[1] + a.bids[2]; n > 0 {
				r.Rows++
				r.Checksum += uint64(nexmark.FirstAuctionID+int64(i)) + uint64(n+2*a.bids[0]+3*a.bids[1]+4*a.bids[2]+a.low+a.high+a.sum/n+a.sum)
				*a = auction{}
			}
		}
	})
	return r
}
