package nexmark

import (
	"context"
	"math"
	"time"

	"github.com/streamdb/streamdb/connector"
	"github.com/streamdb/streamdb/types"
)

// pace is how long a rate-limited reader rests when it has caught up with the clock: rows come in lots of 10 ms.
const pace = 10 * time.Millisecond

// reader reads one split. next is the number of the next event of the split, not the kind: skipping others is part of reading.
type reader struct {
	s        *source
	next     int64
	opened   time.Time
	openedAt int64 // next at that time
	rowID    bool
	bindings []binding
	copies   [][2]int // output columns that repeat another: from, to
	buf      buffers
	scratch  scratch
}

// binding ties an output column to the generator's slot of its field.
type binding struct {
	out  int
	f    field
	ints *[]int64
	strs *[]string
}

func (r *reader) bind(out int, f field) {
	for _, b := range r.bindings {
		if b.f == f {
			r.copies = append(r.copies, [2]int{b.out, out})
			return
		}
	}
	b := binding{out: out, f: f}
	b.ints, b.strs = r.buf.slot(f)
	r.bindings = append(r.bindings, b)
}

// rows returns how many rows of the source's table the events [from, to) make.
func (s *source) rows(from, to int64) int64 {
	switch s.kind {
	case kindPerson:
		return personsBefore(to) - personsBefore(from)
	case kindAuction:
		return auctionsBefore(to) - auctionsBefore(from)
	case kindBid:
		return bidsBefore(to) - bidsBefore(from)
	}
	return to - from
}

// due returns the number of the split's first event that must not be generated yet. The splits share the rate, so that rows come evenly.
func (r *reader) due() int64 {
	if r.s.rate == 0 {
		return math.MaxInt64
	}
	elapsed := r.s.now().Sub(r.opened)
	whole, part := int64(elapsed/time.Second), int64(elapsed%time.Second)
	own := r.s.own(r.openedAt) + (whole*r.s.rate+part*r.s.rate/int64(time.Second))/r.s.splits
	split := r.openedAt / splitBlock % r.s.splits
	return (own/splitBlock*r.s.splits+split)*splitBlock + own%splitBlock
}

// own returns how many events before the given one are of the same split.
func (s *source) own(event int64) int64 {
	return event/splitBlock/s.splits*splitBlock + event%splitBlock
}

// Next implements connector.Reader.
func (r *reader) Next(_ context.Context, c *types.Chunk, limit int) (connector.Status, time.Duration, error) {
	end := int64(math.MaxInt64)
	if r.s.events >= 0 {
		end = r.s.events
	}
	for due := r.due(); ; {
		if r.next >= end {
			return connector.End, 0, nil
		}
		block := r.next / splitBlock
		stop := min((block+1)*splitBlock, end, due)
		if stop <= r.next {
			return connector.Idle, pace, nil
		}
		n := int(min(r.s.rows(r.next, stop), int64(limit)))
		if n > 0 {
			r.next = r.generate(c, n)
		}
		if n < limit || r.s.rows(r.next, stop) == 0 {
			r.next = stop
		}
		if r.next == (block+1)*splitBlock {
			r.next += (r.s.splits - 1) * splitBlock
		}
		switch {
		case n == 0:
			continue
		case r.next >= end:
			return connector.End, 0, nil
		case r.next >= due:
			return connector.Idle, pace, nil
		}
		return connector.More, 0, nil
	}
}

// generate appends the next n rows to c and returns the number of the event after them.
func (r *reader) generate(c *types.Chunk, n int) int64 {
	base := c.N
	for _, v := range c.Cols {
		v.Resize(base + n)
	}
	var ids []int64
	if r.rowID {
		ids = c.Cols[len(c.Cols)-1].Int[base:]
	}
	next := r.next
	if r.s.kind == kindEvent {
		next = r.events(c, base, n, ids)
	} else {
		for _, b := range r.bindings {
			if v := c.Cols[b.out]; b.ints != nil {
				*b.ints = v.Int[base:]
			} else {
				*b.strs = v.Str[base:]
			}
		}
		switch r.s.kind {
		case kindPerson:
			r.buf.person.EventID = ids
			next = r.s.gen.Persons(next, n, &r.buf.person)
		case kindAuction:
			r.buf.auction.EventID = ids
			next = r.s.gen.Auctions(next, n, &r.buf.auction)
		case kindBid:
			r.buf.bid.ID = ids
			next = r.s.gen.Bids(next, n, &r.buf.bid)
		}
	}
	for _, cp := range r.copies {
		copyColumn(c.Cols[cp[1]], c.Cols[cp[0]], base)
	}
	c.N += n
	return next
}

func copyColumn(dst, src *types.Vector, base int) {
	copy(dst.Int[min(base, len(dst.Int)):], src.Int[min(base, len(src.Int)):])
	copy(dst.Str[min(base, len(dst.Str)):], src.Str[min(base, len(src.Str)):])
	if src.Valid == nil {
		return
	}
	for i := base; i < src.Len(); i++ {
		if src.IsNull(i) {
			dst.SetNull(i)
		}
	}
}

// Position implements connector.Reader.
func (r *reader) Position() []byte { return encodePosition(r.next) }

// Lag implements connector.Reader: events of the split, exact at the ends of blocks when the source ends.
func (r *reader) Lag() int64 {
	end := r.s.events
	if end < 0 {
		if r.s.rate == 0 {
			return -1
		}
		return max(r.s.own(r.due())-r.s.own(r.next), 0)
	}
	return max(end-r.next, 0) / r.s.splits
}

// Close implements connector.Reader.
func (r *reader) Close() error { return nil }
