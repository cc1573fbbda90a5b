package op

import (
	"math"

	"github.com/streamdb/streamdb/types"
)

// joinExpiry drops the rows of an interval join (plan.JoinRange.Expire) that can find no partner any more: a left row when the right watermark has
// passed the last right time in its range, a right row likewise. Watermarks count from the barrier on that follows them, so what is late is decided
// epoch by epoch. Such joins keep their rows in memory whatever the budget says: the watermarks bound them.
//
// State: tables 2 and 3, the watermark of either side as of the last barrier (see markTable).
type joinExpiry struct {
	o       *joinOp
	on      bool
	column  [2]int      // times
	lead    [2]int64    // a row may find a partner until the other side's watermark has passed its time and this
	pads    [2]bool     // rows that found none are output as they are dropped
	next    [2]portMark // as of now
	mark    [2]portMark // as of the last barrier
	due     bool
	queue   [2]rowOrder[uint64] // rows by time
	taken   []uint32
	tables  [2]markTable
	sent    [2]portMark
	sel     []uint16
	rest    types.Chunk
	removes bool // rows are removed that the queue has given out
}

func (j *joinExpiry) init(o *joinOp) {
	j.o = o
	r := o.node.Join.Range
	if r == nil || !r.Expire || o.ctx.OneShot {
		return
	}
	j.on, j.due = true, true
	j.column = [2]int{r.Lower.Left, r.Lower.Right}
	j.lead = [2]int64{-r.Lower.Offset, r.Upper.Offset}
	j.taken = make([]uint32, 0, loadBatch)
	if !r.OnClose {
		return
	}
	for side := range o.shows {
		if o.shows[side] == showUnmatched {
			j.pads[side], o.shows[side] = true, showNever
		}
	}
}

func (j *joinExpiry) open(ctx *Context) error {
	if !j.on {
		return nil
	}
	for side := range j.tables {
		err := j.tables[side].open(ctx, j.o.node, 2+uint32(side), func(m int64) {
			j.mark[side].raise(m)
			j.next[side].raise(m)
		})
		if err != nil {
			return err
		}
	}
	return nil
}

func (j *joinExpiry) save() error {
	if !j.on {
		return nil
	}
	for side := range j.tables {
		if err := j.tables[side].save(j.mark[side].value); err != nil {
			return err
		}
	}
	return nil
}

func (j *joinExpiry) list(side int, time int64, i uint32) {
	j.queue[side].insert(orderedRow[uint64]{key: timeWord(time), row: i}, false)
}

func timeWord(t int64) uint64 { return uint64(t) ^ 1<<63 }

// removed tells of a row that goes though it may still find a partner.
func (j *joinExpiry) removed(i uint32, row *joinRow) error {
	if !j.on || j.removes {
		return nil
	}
	c, err := j.o.rng.read(row)
	if err != nil {
		return err
	}
	side := int(row.flags & rowSide)
	j.queue[side].remove(timeWord(c.Cols[j.column[side]].Int[0]), i)
	return nil
}

func (j *joinExpiry) watermark(port int, w Watermark) {
	if j.on && w.Column == j.column[port] && j.next[port].raise(w.Value) {
		j.due = true
	}
}

// dropLate diverts rows whose partners may have been dropped. Of rows that all subtasks get, the first one tells.
func (j *joinExpiry) dropLate(port int, c *types.Chunk) (*types.Chunk, error) {
	if !j.on || !j.mark[port].seen {
		return c, nil
	}
	spread := j.o.node.Join.Spread
	tell := spread == nil || port == spread.Side || j.o.ctx.Groups.From == 0
	return divertLate(&j.o.base, c, c.Cols[j.column[port]], j.mark[port].value, tell, &j.sel, &j.rest)
}

// expire drops the rows that the watermarks have left behind since the last barrier.
func (j *joinExpiry) expire(out Emitter) error {
	if !j.due {
		return nil
	}
	j.due = false
	for side := range j.next {
		if j.next[side].seen && j.mark[side].raise(j.next[side].value) {
			j.tables[side].changed = true
		}
	}
	j.removes = true
	defer func() { j.removes = false }()
	for side := range j.queue {
		other := j.mark[1-side]
		if !other.seen {
			continue
		}
		end := timeWord(addSaturated(other.value, -j.lead[side]))
		for {
			j.taken = j.queue[side].takeBelow(end, j.taken[:0])
			if len(j.taken) == 0 {
				break
			}
			if err := j.o.cancelled(); err != nil {
				return err
			}
			for _, i := range j.taken {
				if err := j.drop(side, i, out); err != nil {
					return err
				}
			}
		}
	}
	return nil
}

func (j *joinExpiry) drop(side int, i uint32, out Emitter) error {
	st := &j.o.st
	row := st.row(i)
	if j.pads[side] && row.count != 0 && row.match <= 0 {
		if err := j.o.padRow(side, row, row.count, out); err != nil {
			return err
		}
	}
	g, words := row.group, st.groups.row(row.group)
	words[joinCount+side] -= uint64(row.count)
	if err := st.remove(i); err != nil {
		return err
	}
	if words[joinHeads] == 0 {
		st.groups.drop(g)
	}
	return nil
}

// promise emits watermarks of the times in the output: of a side the smaller one of its own and of what is still kept of it.
func (j *joinExpiry) promise(out Emitter) error {
	if !j.on || !j.mark[0].seen || !j.mark[1].seen {
		return nil
	}
	for i, p := range j.o.output {
		side, p := j.o.origin(p)
		if p != j.column[side] || keyIndex(j.o.keys[side], p) >= 0 || keyIndex(j.o.node.WatermarkCols, i) < 0 {
			continue
		}
		low := min(j.mark[side].value, addSaturated(j.mark[1-side].value, -j.lead[side]))
		if low == math.MinInt64 || !j.sent[side].raise(low) {
			continue
		}
		if err := out.EmitWatermark(Watermark{Column: i, Value: low}); err != nil {
			return err
		}
	}
	return nil
}

// bytes is the memory of the queues.
func (j *joinExpiry) bytes() int64 {
	return int64(j.queue[0].n+j.queue[1].n) * 18
}
