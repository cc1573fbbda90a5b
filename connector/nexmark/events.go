package nexmark

import "github.com/streamdb/streamdb/types"

// scratch holds the dense columns of one kind before they are spread over the rows of the table of all events. The reader owns it;
// strings are copied out as views.
type scratch struct {
	ints [][]int64
	strs [][]string
	rows [kindEvent][]int32 // rows of each kind
}

// events appends n rows of the table of all events.
func (r *reader) events(c *types.Chunk, base, n int, ids []int64) int64 {
	from := r.next
	for k := range r.scratch.rows {
		r.scratch.rows[k] = r.scratch.rows[k][:0]
	}
	for i := range n {
		k := kindAt(from + int64(i))
		r.scratch.rows[k] = append(r.scratch.rows[k], int32(base+i))
	}
	for i := range ids {
		ids[i] = from + int64(i)
	}
	for len(r.scratch.ints) < len(r.bindings) {
		r.scratch.ints, r.scratch.strs = append(r.scratch.ints, nil), append(r.scratch.strs, nil)
	}
	var wanted [kindEvent]bool
	for i, b := range r.bindings {
		v := c.Cols[b.out]
		switch {
		case b.f.name == columnEventType && b.f.kind == kindEvent:
			for k, rows := range r.scratch.rows {
				for _, row := range rows {
					v.Int[row] = int64(k)
				}
			}
		case b.f.kind == kindEvent:
			r.s.gen.timestamps(v.Int[base:], from)
		case b.ints != nil:
			r.scratch.ints[i] = sized(r.scratch.ints[i], len(r.scratch.rows[b.f.kind]))
			*b.ints = r.scratch.ints[i]
			wanted[b.f.kind] = true
		default:
			r.scratch.strs[i] = sized(r.scratch.strs[i], len(r.scratch.rows[b.f.kind]))
			*b.strs = r.scratch.strs[i]
			wanted[b.f.kind] = true
		}
	}
	if m := len(r.scratch.rows[kindPerson]); m > 0 && wanted[kindPerson] {
		r.s.gen.Persons(from, m, &r.buf.person)
	}
	if m := len(r.scratch.rows[kindAuction]); m > 0 && wanted[kindAuction] {
		r.s.gen.Auctions(from, m, &r.buf.auction)
	}
	if m := len(r.scratch.rows[kindBid]); m > 0 && wanted[kindBid] {
		r.s.gen.Bids(from, m, &r.buf.bid)
	}
	for i, b := range r.bindings {
		if b.f.kind == kindEvent {
			continue
		}
		v := c.Cols[b.out]
		rows := r.scratch.rows[b.f.kind]
		valid := types.NewBitmap(base+n, false)
		for j := range base {
			if !v.IsNull(j) {
				valid.Set(j)
			}
		}
		v.Valid = valid
		for j, row := range rows {
			valid.Set(int(row))
			if b.ints != nil {
				v.Int[row] = r.scratch.ints[i][j]
			} else {
				v.Str[row] = r.scratch.strs[i][j]
			}
		}
		clear(r.scratch.strs[i])
	}
	return from + int64(n)
}

func kindAt(id int64) int {
	switch in := id % eventsPerEpoch; {
	case in < firstAuction:
		return kindPerson
	case in < firstBid:
		return kindAuction
	}
	return kindBid
}

func sized[E any](s []E, n int) []E {
	if cap(s) < n {
		return make([]E, n, max(n, types.MaxChunkRows))
	}
	return s[:n]
}
