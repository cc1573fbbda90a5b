package nexmark

// BidColumns are the columns of bids to fill; nil ones are not generated. All others have the length asked for.
type BidColumns struct {
	ID                               []int64 // number of the event
	Auction, Bidder, Price, DateTime []int64
	Channel, URL, Extra              []string
}

// Length of a bid's extra: what is missing to the average size, a fifth more or less.
const (
	minBidExtra  = 54
	bidExtraSpan = 28
)

// Bids fills out with the first n bids whose event number is at least from, and returns the number after the last one.
func (g *Generator) Bids(from int64, n int, out *BidColumns) int64 {
	var ha, hb [bidsPerEpoch]uint64
	needChannel := out.Channel != nil || out.URL != nil
	needA := out.Auction != nil || out.Bidder != nil || needChannel
	needB := out.Price != nil || needChannel
	var extra arena
	if out.Extra != nil {
		extra.buf = make([]byte, 0, n*(minBidExtra+bidExtraSpan/2)+n/2+minBidExtra+bidExtraSpan+wordBytes)
	}
	for i := 0; i < n; {
		epoch, in := from/eventsPerEpoch, from%eventsPerEpoch
		if in < firstBid {
			from += firstBid - in
			in = firstBid
		}
		m := min(eventsPerEpoch-int(in), n-i)
		if needA {
			x := uint64(from)*golden + g.seedA
			for k := range ha[:m] {
				ha[k] = mix64(x)
				x += golden
			}
		}
		if needB {
			x := uint64(from)*golden + g.seedB
			for k := range hb[:m] {
				hb[k] = mix64(x)
				x += golden
			}
		}
		if out.ID != nil {
			for k := range out.ID[i : i+m] {
				out.ID[i+k] = from + int64(k)
			}
		}
		if out.Auction != nil {
			bidAuctions(out.Auction[i:i+m], ha[:m], epoch)
		}
		if out.Bidder != nil {
			bidBidders(out.Bidder[i:i+m], ha[:m], epoch)
		}
		if out.Price != nil {
			o := out.Price[i : i+m]
			for k, h := range hb[:m] {
				o[k] = g.dict.priceOf(h)
			}
		}
		if out.DateTime != nil {
			g.timestamps(out.DateTime[i:i+m], from)
		}
		if needChannel {
			g.bidChannels(out, i, ha[:m], hb[:m])
		}
		if out.Extra != nil {
			o := out.Extra[i : i+m]
			x := uint64(from)*golden + g.seedB
			for k := range o {
				h := (x ^ x>>32) * 0xbf58476d1ce4e5b9
				x += golden
				b := extra.take(minBidExtra + int(below(h, bidExtraSpan)))
				fillLetters(b, h)
				o[k] = view(b)
			}
		}
		i += m
		from += int64(m)
	}
	return from
}

// bidAuctions: half of the bids go to the hot auction, the others to one of those in flight or soon to come.
func bidAuctions(out []int64, h []uint64, epoch int64) {
	last := epoch*auctionsPerEpoch + auctionsPerEpoch - 1
	hot := last/hotRatio*hotRatio + firstAuctionID
	first := max(last-inFlightAuctions, 0)
	span := last - first + 1 + auctionIDLead
	first += firstAuctionID
	for k, z := range h {
		a := first + below(z, span)
		if z&1 != 0 {
			a = hot
		}
		out[k] = a
	}
}

// bidBidders: three quarters of the bids come from the hot bidder.
func bidBidders(out []int64, h []uint64, epoch int64) {
	hot := epoch/hotRatio*hotRatio + 1 + firstPersonID
	known := epoch + 1
	active := min(known, activePeople)
	span := uint64(active + personIDLead)
	first := known - active + firstPersonID
	for k, z := range h {
		b := first + int64((z&0xffffff00)*span>>32)
		if z&6 != 0 {
			b = hot
		}
		out[k] = b
	}
}

// bidChannels: half of the bids come through a hot channel. Channel and URL go together.
func (g *Generator) bidChannels(out *BidColumns, i int, ha, hb []uint64) {
	var code [bidsPerEpoch]uint16
	codes := code[:len(ha)]
	hb = hb[:len(ha)]
	for k, z := range ha {
		c := hotChannels + (hb[k]&0xffffff)*channels>>24
		if z&8 != 0 {
			c = z >> 4 & (hotChannels - 1)
		}
		codes[k] = uint16(c)
	}
	if out.Channel != nil {
		lookUp(out.Channel[i:], g.dict.channel, codes)
	}
	if out.URL != nil {
		lookUp(out.URL[i:], g.dict.url, codes)
	}
}

func lookUp(out, table []string, codes []uint16) {
	out = out[:len(codes)]
	for k, c := range codes {
		out[k] = table[c]
	}
}
