// Package nexmark generates the events of the Nexmark benchmark: persons, auctions and bids of an online auction, 1 : 3 : 46.
// Every value is a function of the seed and of the event's number alone, so that any split, any replay and any set of columns
// yields the same rows. The distributions are those of the reference generator; the values are not, because its
// sequential random numbers and character loops cost six times as much.
package nexmark

import (
	"math/bits"
	"unsafe"

	"github.com/streamdb/streamdb/types"
)

// Proportions and id spaces of the benchmark.
const (
	eventsPerEpoch   = 50 // one person, then three auctions, then the bids
	personsPerEpoch  = 1
	auctionsPerEpoch = 3
	bidsPerEpoch     = eventsPerEpoch - personsPerEpoch - auctionsPerEpoch
	firstAuction     = personsPerEpoch                    // event number inside an epoch
	firstBid         = personsPerEpoch + auctionsPerEpoch // event number inside an epoch

	firstAuctionID  = 1000
	firstPersonID   = 1000
	firstCategoryID = 10
	categories      = 5

	inFlightAuctions = 100
	activePeople     = 1000
	auctionIDLead    = 10
	personIDLead     = 10
	hotRatio         = 100 // each hundredth auction or person is a hot one

	averageBidBytes     = 100
	averageAuctionBytes = 500
	averagePersonBytes  = 200
)

const golden = 0x9e3779b97f4a7c15

// mix64 is the finalizer of SplitMix64: a bijection that makes consecutive inputs look random.
func mix64(z uint64) uint64 {
	z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9
	z = (z ^ (z >> 27)) * 0x94d049bb133111eb
	return z ^ (z >> 31)
}

// below maps the upper half of h to [0, n).
func below(h uint64, n int64) int64 { return int64((h >> 32) * uint64(n) >> 32) }

// Generator makes events by number. It is immutable and may be used by several goroutines.
type Generator struct {
	seedA, seedB uint64
	start        int64 // event time of event 0
	num, den     int64 // microseconds per event as a fraction
	dict         *dictionary
}

// NewGenerator returns a generator whose event n happens floor(n * num / den) microseconds after start.
func NewGenerator(seed uint64, start, num, den int64) *Generator {
	return &Generator{
		seedA: mix64(seed), seedB: mix64(seed + golden), start: start, num: num, den: den, dict: sharedDictionary(),
	}
}

// elapsed returns the microseconds of event time before event id, and the remainder of the division.
func (g *Generator) elapsed(id int64) (us, rem int64) {
	hi, lo := bits.Mul64(uint64(id), uint64(g.num))
	q, r := bits.Div64(hi%uint64(g.den), lo, uint64(g.den))
	return int64(q), int64(r)
}

// Timestamp returns the event time of event id.
func (g *Generator) Timestamp(id int64) int64 {
	us, _ := g.elapsed(id)
	return g.start + us
}

// timestamps fills ts with the event times of consecutive events from id.
func (g *Generator) timestamps(ts []int64, id int64) {
	us, rem := g.elapsed(id)
	us += g.start
	step, frac := g.num/g.den, g.num%g.den
	if frac == 0 {
		for i := range ts {
			ts[i] = us
			us += step
		}
		return
	}
	for i := range ts {
		ts[i] = us
		us += step
		if rem += frac; rem >= g.den {
			rem -= g.den
			us++
		}
	}
}

func (g *Generator) hashA(id int64) uint64 { return mix64(uint64(id)*golden + g.seedA) }

// attribute returns the k-th independent random number of an event whose hashA is h.
func attribute(h, k uint64) uint64 { return mix64(h + (k+1)*golden) }

// Counts of events of a kind with a number below id.
func bidsBefore(id int64) int64 {
	return id/eventsPerEpoch*bidsPerEpoch + max(id%eventsPerEpoch-firstBid, 0)
}

func auctionsBefore(id int64) int64 {
	return id/eventsPerEpoch*auctionsPerEpoch + min(max(id%eventsPerEpoch-firstAuction, 0), auctionsPerEpoch)
}

func personsBefore(id int64) int64 {
	return id/eventsPerEpoch*personsPerEpoch + min(id%eventsPerEpoch, personsPerEpoch)
}

// person picks a person known at the given epoch: hot is the hot one's id, else one of the last activePeople or of those soon to come.
func somePerson(epoch int64, h uint64) int64 {
	known := epoch + 1
	active := min(known, activePeople)
	return known - active + below(h, active+personIDLead) + firstPersonID
}

// wordBytes is how far fillLetters may write beyond the asked length.
const wordBytes = 8

// arena hands out memory for the strings of one call. It is never reused: the strings live as long as somebody holds them.
type arena struct{ buf []byte }

// take returns n bytes that may be overrun by wordBytes.
func (a *arena) take(n int) []byte {
	if cap(a.buf)-len(a.buf) < n+wordBytes {
		a.buf = make([]byte, 0, max(n+wordBytes, arenaBlock))
	}
	l := len(a.buf)
	a.buf = a.buf[:l+n]
	return a.buf[l : l+n : l+n]
}

// arenaBlock is the size in bytes of the memory an arena asks for at once.
const arenaBlock = 32 << 10

func view(b []byte) string { return unsafe.String(unsafe.SliceData(b), len(b)) }

// fillLetters writes random lower-case letters over b, whose memory must go on for wordBytes behind it.
func fillLetters(b []byte, seed uint64) {
	p := unsafe.Pointer(unsafe.SliceData(b))
	for i := 0; i < len(b); i += wordBytes {
		seed += golden
		z := (seed ^ seed>>30) * 0xbf58476d1ce4e5b9
		z ^= z >> 29
		// Eight bytes x become x*26>>8, in two lots of four with room between them.
		lo := ((z & 0x00ff00ff00ff00ff) * 26 >> 8) & 0x00ff00ff00ff00ff
		hi := ((z >> 8 & 0x00ff00ff00ff00ff) * 26) & 0xff00ff00ff00ff00
		*(*uint64)(unsafe.Add(p, i)) = (lo | hi) + 0x6161616161616161
	}
}

// Default returns the generator of a source without options, at its full speed.
func Default() *Generator {
	start, err := types.ParseTimestamp(nil, defaultStart)
	if err != nil {
		start = 0 // a test holds that the constant is a timestamp
	}
	return NewGenerator(0, start, defaultGapNanos, nanosPerMicro)
}

// BidsBefore returns the number of bids among the first events.
func BidsBefore(events int64) int64 { return bidsBefore(events) }

// AuctionsBefore returns the number of auctions among the first events.
func AuctionsBefore(events int64) int64 { return auctionsBefore(events) }

// PersonsBefore returns the number of persons among the first events.
func PersonsBefore(events int64) int64 { return personsBefore(events) }

// The ids of the first auction and the first person; the others follow without gaps. Bids and auctions name auctions and persons that come by
// at most that many later.
const (
	FirstAuctionID, FirstPersonID = firstAuctionID, firstPersonID
	AuctionIDLead, PersonIDLead   = auctionIDLead, personIDLead
)
