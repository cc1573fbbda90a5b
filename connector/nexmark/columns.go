package nexmark

import (
	"strings"

	"github.com/streamdb/streamdb/types"
)

// Kinds of events, also the values of the column event_type.
const (
	kindPerson = iota
	kindAuction
	kindBid
	kindEvent // all of them in one table
)

// tables returns the values of nexmark.table.type by kind.
func tables() []string { return []string{"Person", "Auction", "Bid", "Event"} }

// columnID is the number of a person or an auction.
const columnID = "id"

func personColumns() types.Schema {
	return types.Schema{
		{Name: columnID, Type: types.Int8},
		{Name: "name", Type: types.Varchar},
		{Name: "email_address", Type: types.Varchar},
		{Name: "credit_card", Type: types.Varchar},
		{Name: "city", Type: types.Varchar},
		{Name: "state", Type: types.Varchar},
		{Name: "date_time", Type: types.Timestamp},
		{Name: "extra", Type: types.Varchar},
	}
}

func auctionColumns() types.Schema {
	return types.Schema{
		{Name: columnID, Type: types.Int8},
		{Name: "item_name", Type: types.Varchar},
		{Name: "description", Type: types.Varchar},
		{Name: "initial_bid", Type: types.Int8},
		{Name: "reserve", Type: types.Int8},
		{Name: "date_time", Type: types.Timestamp},
		{Name: "expires", Type: types.Timestamp},
		{Name: "seller", Type: types.Int8},
		{Name: "category", Type: types.Int8},
		{Name: "extra", Type: types.Varchar},
	}
}

func bidColumns() types.Schema {
	return types.Schema{
		{Name: "auction", Type: types.Int8},
		{Name: "bidder", Type: types.Int8},
		{Name: "price", Type: types.Int8},
		{Name: "channel", Type: types.Varchar},
		{Name: "url", Type: types.Varchar},
		{Name: "date_time", Type: types.Timestamp},
		{Name: "extra", Type: types.Varchar},
	}
}

// Columns of the table of all events that are not taken from one of the three kinds.
const (
	columnEventType = "event_type"
	columnDateTime  = "date_time"
)

// prefixes are put before the columns of each kind in the table of all events.
func prefixes() []string { return []string{"person_", "auction_", "bid_"} }

func schemaOf(kind int) types.Schema {
	switch kind {
	case kindPerson:
		return personColumns()
	case kindAuction:
		return auctionColumns()
	case kindBid:
		return bidColumns()
	}
	s := types.Schema{{Name: columnEventType, Type: types.Int4}, {Name: columnDateTime, Type: types.Timestamp}}
	for k, p := range prefixes() {
		for _, c := range schemaOf(k) {
			if c.Name != columnDateTime {
				s = append(s, types.Column{Name: p + c.Name, Type: c.Type})
			}
		}
	}
	return s
}

// field is a column of one kind; name is without the prefix of the table of all events.
type field struct {
	kind int
	name string
}

// fieldOf resolves a column name of the table of the given kind.
func fieldOf(kind int, name string) field {
	if kind != kindEvent || name == columnEventType || name == columnDateTime {
		return field{kind, name}
	}
	for k, p := range prefixes() {
		if n, ok := strings.CutPrefix(name, p); ok {
			return field{k, n}
		}
	}
	return field{kind, name}
}

// slot returns where the generator wants the column's values: one of the two pointers is nil.
func (b *buffers) slot(f field) (ints *[]int64, strs *[]string) {
	p, a, o := &b.person, &b.auction, &b.bid
	switch f.kind {
	case kindPerson:
		switch f.name {
		case columnID:
			return &p.ID, nil
		case "name":
			return nil, &p.Name
		case "email_address":
			return nil, &p.EmailAddress
		case "credit_card":
			return nil, &p.CreditCard
		case "city":
			return nil, &p.City
		case "state":
			return nil, &p.State
		case "date_time":
			return &p.DateTime, nil
		case "extra":
			return nil, &p.Extra
		}
	case kindAuction:
		switch f.name {
		case columnID:
			return &a.ID, nil
		case "item_name":
			return nil, &a.ItemName
		case "description":
			return nil, &a.Description
		case "initial_bid":
			return &a.InitialBid, nil
		case "reserve":
			return &a.Reserve, nil
		case "date_time":
			return &a.DateTime, nil
		case "expires":
			return &a.Expires, nil
		case "seller":
			return &a.Seller, nil
		case "category":
			return &a.Category, nil
		case "extra":
			return nil, &a.Extra
		}
	case kindBid:
		switch f.name {
		case "auction":
			return &o.Auction, nil
		case "bidder":
			return &o.Bidder, nil
		case "price":
			return &o.Price, nil
		case "channel":
			return nil, &o.Channel
		case "url":
			return nil, &o.URL
		case "date_time":
			return &o.DateTime, nil
		case "extra":
			return nil, &o.Extra
		}
	}
	return nil, nil
}

// buffers are the columns of the three kinds that a reader fills.
type buffers struct {
	person  PersonColumns
	auction AuctionColumns
	bid     BidColumns
}
