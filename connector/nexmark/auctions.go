package nexmark

// AuctionColumns are the columns of auctions to fill; nil ones are not generated.
type AuctionColumns struct {
	EventID                                    []int64 // number of the event
	ID, InitialBid, Reserve, DateTime, Expires []int64
	Seller, Category                           []int64
	ItemName, Description, Extra               []string
}

// Random attributes of an auction.
const (
	auctionSeller = iota
	auctionSellerHot
	auctionCategory
	auctionInitialBid
	auctionReserve
	auctionExpires
	auctionNameSize
	auctionName
	auctionDescriptionSize
	auctionDescription
	auctionExtraSize
	auctionExtra
)

const (
	minTextBytes       = 3
	maxNameBytes       = 20
	maxDescription     = 100
	auctionFixedBytes  = 48
	microsPerMilli     = 1000
	eventsUntilExpired = inFlightAuctions * eventsPerEpoch / auctionsPerEpoch
)

// textSize returns the length of a text of at most limit-1 bytes.
func textSize(h uint64, limit int64) int { return minTextBytes + int(below(h, limit-minTextBytes)) }

// extraSize returns the length of the filler of a row that has size bytes without it and shall have average bytes.
func extraSize(h uint64, size, average int) int {
	if size >= average {
		return 0
	}
	want := average - size
	delta := (want + 2) / 5
	if delta == 0 {
		return want
	}
	return want - delta + int(below(h, int64(2*delta)))
}

// Auctions fills out with the first n auctions whose event number is at least from, and returns the number after the last one.
func (g *Generator) Auctions(from int64, n int, out *AuctionColumns) int64 {
	var mem arena
	for i := range n {
		epoch, in := from/eventsPerEpoch, from%eventsPerEpoch
		switch {
		case in < firstAuction:
			in = firstAuction
		case in >= firstBid:
			epoch, in = epoch+1, firstAuction
		}
		id := epoch*eventsPerEpoch + in
		g.auction(id, i, out, &mem)
		from = id + 1
	}
	return from
}

func (g *Generator) auction(id int64, i int, out *AuctionColumns, mem *arena) {
	epoch := id / eventsPerEpoch
	h := g.hashA(id)
	if out.EventID != nil {
		out.EventID[i] = id
	}
	if out.ID != nil {
		out.ID[i] = epoch*auctionsPerEpoch + id%eventsPerEpoch - firstAuction + firstAuctionID
	}
	if out.Seller != nil {
		s := epoch/hotRatio*hotRatio + firstPersonID
		if attribute(h, auctionSellerHot)&3 == 0 { // three quarters are the hot seller's
			s = somePerson(epoch, attribute(h, auctionSeller))
		}
		out.Seller[i] = s
	}
	if out.Category != nil {
		out.Category[i] = firstCategoryID + below(attribute(h, auctionCategory), categories)
	}
	if out.InitialBid != nil || out.Reserve != nil {
		bid := g.dict.priceOf(attribute(h, auctionInitialBid))
		if out.InitialBid != nil {
			out.InitialBid[i] = bid
		}
		if out.Reserve != nil {
			out.Reserve[i] = bid + g.dict.priceOf(attribute(h, auctionReserve))
		}
	}
	if out.DateTime != nil {
		out.DateTime[i] = g.Timestamp(id)
	}
	if out.Expires != nil {
		// On average an auction ends when as many auctions as are in flight have begun after it.
		ts := g.Timestamp(id)
		horizon := (g.Timestamp(id+eventsUntilExpired) - ts) / microsPerMilli
		out.Expires[i] = ts + (1+below(attribute(h, auctionExpires), max(2*horizon, 1)))*microsPerMilli
	}
	if out.ItemName == nil && out.Description == nil && out.Extra == nil {
		return
	}
	name := textSize(attribute(h, auctionNameSize), maxNameBytes)
	description := textSize(attribute(h, auctionDescriptionSize), maxDescription)
	if out.ItemName != nil {
		b := mem.take(name)
		g.dict.text(b, attribute(h, auctionName))
		out.ItemName[i] = view(b)
	}
	if out.Description != nil {
		b := mem.take(description)
		g.dict.text(b, attribute(h, auctionDescription))
		out.Description[i] = view(b)
	}
	if out.Extra != nil {
		b := mem.take(extraSize(attribute(h, auctionExtraSize), auctionFixedBytes+name+description, averageAuctionBytes))
		fillLetters(b, attribute(h, auctionExtra))
		out.Extra[i] = view(b)
	}
}
