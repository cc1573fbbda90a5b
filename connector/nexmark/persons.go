package nexmark

// PersonColumns are the columns of persons to fill; nil ones are not generated.
type PersonColumns struct {
	EventID                                            []int64 // number of the event
	ID, DateTime                                       []int64
	Name, EmailAddress, CreditCard, City, State, Extra []string
}

// Random attributes of a person.
const (
	personName = iota
	personEmailSize
	personEmail
	personCard
	personCity
	personState
	personExtraSize
	personExtra
)

const (
	maxMailbox       = 7
	maxDomain        = 5
	cardBytes        = 19
	cardGroups       = 10_000
	personFixedBytes = 8
)

// Persons fills out with the first n persons whose event number is at least from, and returns the number after the last one.
func (g *Generator) Persons(from int64, n int, out *PersonColumns) int64 {
	var mem arena
	cs, ss := cities(), states()
	for i := range n {
		epoch := (from + eventsPerEpoch - personsPerEpoch) / eventsPerEpoch
		id := epoch * eventsPerEpoch
		h := g.hashA(id)
		if out.EventID != nil {
			out.EventID[i] = id
		}
		if out.ID != nil {
			out.ID[i] = epoch + firstPersonID
		}
		if out.DateTime != nil {
			out.DateTime[i] = g.Timestamp(id)
		}
		name := g.dict.names[below(attribute(h, personName), int64(len(g.dict.names)))]
		city := cs[below(attribute(h, personCity), int64(len(cs)))]
		state := ss[below(attribute(h, personState), int64(len(ss)))]
		hs := attribute(h, personEmailSize)
		mailbox, domain := textSize(hs, maxMailbox), textSize(hs<<32, maxDomain)
		email := mailbox + 1 + domain + len(".com")
		if out.Name != nil {
			out.Name[i] = name
		}
		if out.EmailAddress != nil {
			b := mem.take(email)
			fillLetters(b, attribute(h, personEmail))
			b[mailbox] = '@'
			copy(b[mailbox+1+domain:], ".com")
			out.EmailAddress[i] = view(b)
		}
		if out.CreditCard != nil {
			b := mem.take(cardBytes)
			card(b, attribute(h, personCard))
			out.CreditCard[i] = view(b)
		}
		if out.City != nil {
			out.City[i] = city
		}
		if out.State != nil {
			out.State[i] = state
		}
		if out.Extra != nil {
			size := personFixedBytes + len(name) + email + cardBytes + len(city) + len(state)
			b := mem.take(extraSize(attribute(h, personExtraSize), size, averagePersonBytes))
			fillLetters(b, attribute(h, personExtra))
			out.Extra[i] = view(b)
		}
		from = id + 1
	}
	return from
}

// card writes four groups of four digits.
func card(b []byte, h uint64) {
	for g := range 4 {
		v := (h & 0xffff) * cardGroups >> 16
		h >>= 16
		p := b[g*5:]
		p[0], p[1], p[2], p[3] = byte('0'+v/1000), byte('0'+v/100%10), byte('0'+v/10%10), byte('0'+v%10)
		if g < 3 {
			p[4] = ' '
		}
	}
}
