package op

import (
	"bytes"
	"slices"

	"github.com/streamdb/streamdb/checkpoint"
	"github.com/streamdb/streamdb/internal/pgerr"
	"github.com/streamdb/streamdb/planner/plan"
	"github.com/streamdb/streamdb/types"
)

// sessionOp appends the window_start and window_end of the session that a row belongs to. State table 0 holds the rows by key and time (see sortedRows).
// The changes of an epoch are gathered and applied at the barrier: around each the rows of its session are read, as it was and as it is, and the
// difference is emitted. With OnClose rows are kept until their session closes (see sessionClosing).
type sessionOp struct {
	base
	rows    sortedRows
	gap     int64
	unit    int64 // µs in a unit of the time column
	changes []sessionChange
	region  []sessionRow
	closing sessionClosing
	marks   groupMarks
	out     *outBuf
	key     []byte
}

var _ Operator = (*sessionOp)(nil)

// sessionChange is a change of the epoch: the state key of a row, and its weight.
type sessionChange struct {
	kg     uint16
	key    string
	ends   [3]int
	ts     int64 // µs
	weight int64
}

// sessionRow is a row of the sessions around a change, before and after.
type sessionRow struct {
	sessionChange
	was, is           int64 // counts
	oldStart, oldEnd  int64
	newStart, lastEnd int64
}

func (o *sessionOp) Open(ctx *Context) error {
	o.ctx = ctx
	s := o.node.Session
	o.gap, o.unit = s.Gap, 1
	if ctx.InputTypes[0][s.Column].OID == types.OIDDate {
		o.unit = microsPerDay
	}
	if o.gap <= 0 {
		return pgerr.Newf(pgerr.InvalidParameterValue, "the gap of a session must be greater than zero, not %d", o.gap)
	}
	o.rows.group, o.rows.order = s.Keys, []plan.SortKey{{Column: s.Column}}
	o.out = newOutBuf(o.node.Schema.Types())
	if err := o.rows.open(ctx, o.node, 0); err != nil || !o.closes() {
		return err
	}
	return o.closing.open(o)
}

func (o *sessionOp) closes() bool { return o.node.Session.OnClose && !o.ctx.OneShot }

func (o *sessionOp) Process(_ int, c *types.Chunk, _ Emitter) error {
	o.rows.begin(c)
	ts := c.Cols[o.node.Session.Column]
	for i := range c.Rows() {
		r := c.Row(i)
		if ts.IsNull(r) {
			continue
		}
		x := ts.Int[r]
		if x > (maxTimestamp-o.gap)/o.unit || x < minTimestamp/o.unit {
			err := pgerr.Newf(pgerr.DatetimeFieldOverflow, "timestamp out of range")
			if err := o.ctx.Errors.Report(o.node, err, c, r, c.Weight(r)); err != nil {
				return err
			}
			continue
		}
		x *= o.unit
		kg, _ := o.rows.locate(c, r)
		if o.closes() {
			if err := o.closing.add(kg, x, c, r); err != nil {
				return err
			}
			continue
		}
		o.changes = append(o.changes, sessionChange{kg: kg, key: string(o.rows.key), ends: o.rows.ends, ts: x, weight: c.Weight(r)})
	}
	return o.cancelled()
}

func (o *sessionOp) Barrier(b checkpoint.Barrier, out Emitter) error {
	if o.closes() {
		return o.closing.barrier(b, out)
	}
	o.consolidate()
	for at := 0; at < len(o.changes); {
		n, err := o.read(o.changes[at:])
		if err != nil {
			return err
		}
		at += n
		o.sessions()
		for i := range o.region {
			if err := o.replace(&o.region[i], out); err != nil {
				return err
			}
		}
		if err := o.cancelled(); err != nil {
			return err
		}
	}
	if len(o.changes) > maxKeptChanges {
		o.changes, o.region = nil, nil
	}
	o.changes = o.changes[:0]
	if err := o.out.flush(out); err != nil {
		return err
	}
	return o.marks.emit(out)
}

// maxKeptChanges bounds the buffers kept from one epoch to the next.
const maxKeptChanges = 1 << 16

// consolidate sorts the changes by state key and adds up those of the same row.
func (o *sessionOp) consolidate() {
	slices.SortFunc(o.changes, func(a, b sessionChange) int {
		if a.kg != b.kg {
			return int(a.kg) - int(b.kg)
		}
		return bytes.Compare([]byte(a.key), []byte(b.key))
	})
	n := 0
	for _, c := range o.changes {
		if n > 0 && o.changes[n-1].kg == c.kg && o.changes[n-1].key == c.key {
			o.changes[n-1].weight += c.weight
			continue
		}
		if n > 0 && o.changes[n-1].weight == 0 {
			n--
		}
		o.changes[n] = c
		n++
	}
	if n > 0 && o.changes[n-1].weight == 0 {
		n--
	}
	o.changes = o.changes[:n]
}

// read gathers in o.region the rows of all sessions, old and new, that the first of the changes takes part in, with all other changes of them. It returns
// how many changes those are.
func (o *sessionOp) read(changes []sessionChange) (int, error) {
	first := &changes[0]
	group := []byte(first.key[:first.ends[0]])
	o.key = append(o.key[:0], first.key[:first.ends[1]]...)
	// Back to the first row of the session that the change is in or comes to.
	low := first.ts
	err := o.rows.scanFrom(first.kg, group, slices.Clone(o.key), true, func(r *sortedRow) (bool, error) {
		ts := o.timeOf(r)
		if low-ts >= o.gap {
			return false, nil
		}
		low = ts
		o.key = append(o.key[:0], r.orderKey()...)
		return true, nil
	})
	if err != nil {
		return 0, err
	}
	o.region = o.region[:0]
	taken, last := 0, low
	linked := func(ts int64) bool { return ts-last < o.gap }
	// before takes the changes with keys below the given one, or all of the group.
	before := func(key []byte) {
		for taken < len(changes) {
			c := &changes[taken]
			if c.kg != first.kg || c.key[:c.ends[0]] != viewString(group) || !linked(c.ts) || key != nil && c.key >= viewString(key) {
				return
			}
			o.region = append(o.region, sessionRow{sessionChange: *c, is: c.weight})
			last = c.ts
			taken++
		}
	}
	done := false
	err = o.rows.scanFrom(first.kg, group, slices.Clone(o.key), false, func(r *sortedRow) (bool, error) {
		before(r.key)
		ts := o.timeOf(r)
		if done = !linked(ts); done {
			return false, nil
		}
		row := sessionRow{sessionChange: sessionChange{kg: first.kg, ends: r.ends, ts: ts}, was: r.count, is: r.count}
		if taken < len(changes) && changes[taken].kg == first.kg && changes[taken].key == viewString(r.key) {
			row.key, row.weight = changes[taken].key, changes[taken].weight
			row.is += row.weight
			taken++
		} else {
			row.key = string(r.key)
		}
		last = ts
		o.region = append(o.region, row)
		return true, nil
	})
	if !done {
		before(nil)
	}
	return taken, err
}

// timeOf returns the time of a kept row, which is the only order column.
func (o *sessionOp) timeOf(r *sortedRow) int64 { return dueOf(r.key[r.ends[1]-8:]) * o.unit }

// sessions finds the sessions of the region, as they were and as they are.
func (o *sessionOp) sessions() {
	mark := func(count func(*sessionRow) int64, set func(r *sessionRow, start, end int64)) {
		for i := 0; i < len(o.region); {
			if count(&o.region[i]) <= 0 {
				i++
				continue
			}
			start, last, k := o.region[i].ts, o.region[i].ts, i
			for ; k < len(o.region); k++ {
				if r := &o.region[k]; count(r) > 0 {
					if r.ts-last >= o.gap {
						break
					}
					last = r.ts
				}
			}
			for ; i < k; i++ {
				set(&o.region[i], start, last+o.gap)
			}
		}
	}
	mark(func(r *sessionRow) int64 { return r.was }, func(r *sessionRow, start, end int64) { r.oldStart, r.oldEnd = start, end })
	mark(func(r *sessionRow) int64 { return r.is }, func(r *sessionRow, start, end int64) { r.newStart, r.lastEnd = start, end })
}

// replace brings the state of a row up to date and emits what changed for it.
func (o *sessionOp) replace(r *sessionRow, out Emitter) error {
	if r.weight != 0 {
		if err := o.rows.set(r.kg, []byte(r.key), r.ends, r.is); err != nil {
			return err
		}
	}
	if r.was > 0 && r.is > 0 && r.oldStart == r.newStart && r.oldEnd == r.lastEnd {
		if r.was == r.is {
			return nil
		}
		return o.emit(r.key[r.ends[2]:], r.newStart, r.lastEnd, r.is-r.was, out)
	}
	if r.was > 0 {
		if err := o.emit(r.key[r.ends[2]:], r.oldStart, r.oldEnd, -r.was, out); err != nil {
			return err
		}
	}
	if r.is > 0 {
		return o.emit(r.key[r.ends[2]:], r.newStart, r.lastEnd, r.is, out)
	}
	return nil
}

// emit emits an encoded row with its session.
func (o *sessionOp) emit(row string, start, end, weight int64, out Emitter) error {
	n := len(o.out.c.Cols) - 2
	if _, err := types.DecodeRows(row, 1, o.out.c.Cols[:n]); err != nil {
		return err
	}
	o.out.c.Cols[n].Int = append(o.out.c.Cols[n].Int, start)
	o.out.c.Cols[n+1].Int = append(o.out.c.Cols[n+1].Int, end)
	return o.out.push(weight, out)
}

func (o *sessionOp) Watermark(_ int, w Watermark, _ Emitter) error {
	switch {
	case o.closes():
		o.closing.watermark(w)
	case slices.Contains(o.node.Session.Keys, w.Column):
		o.marks.set(w)
	}
	return nil
}

// sessionClosing keeps the rows of a session until the watermark has passed its end. The input only grows.
//
// State: table 1, key · 0 · start of an open session → end; key · 1 → end of the last session that was emitted, while a row may come that would have been
// part of it. Table 2 (see dueQueue) has the keys of table 1: of an open session at its end, of the other when it is of no more use. Table 3, the
// watermark (see markTable).
type sessionClosing struct {
	o        *sessionOp
	sessions table
	queue    dueQueue
	marks    markTable
	mark     int64 // sessions that ended until then are closed
	marked   bool
	next     int64 // the watermark since the last barrier
	due      bool
	key, val []byte
	from     []byte
	one      types.Vector
}

func (s *sessionClosing) open(o *sessionOp) error {
	s.o, s.one.Type = o, types.Int8
	var err error
	if s.sessions, err = openTable(o.ctx, o.node, 1, orderedMode); err != nil {
		return err
	}
	if err = s.queue.open(o.ctx, o.node, 2); err != nil {
		return err
	}
	return s.marks.open(o.ctx, o.node, 3, func(m int64) {
		if !s.marked || m > s.mark {
			s.mark = m
		}
		s.marked = true
	})
}

func (s *sessionClosing) watermark(w Watermark) {
	if w.Column != s.o.node.Session.Column {
		return
	}
	v := w.Value
	if s.o.unit != 1 {
		if v > maxTimestamp/s.o.unit {
			v = maxTimestamp
		} else if v < minTimestamp/s.o.unit {
			return
		} else {
			v *= s.o.unit
		}
	}
	if s.marked && v <= s.mark || s.due && v <= s.next {
		return
	}
	s.next, s.due = v, true
}

// name returns the key of the row that was located last, followed by tag.
func (s *sessionClosing) name(tag byte) []byte {
	s.key = append(append(s.key[:0], s.o.rows.key[:s.o.rows.ends[0]]...), tag)
	return s.key
}

// add takes the row that was located last.
func (s *sessionClosing) add(kg uint16, ts int64, c *types.Chunk, r int) error {
	if s.marked && ts < s.mark {
		late := ts+s.o.gap <= s.mark
		if !late {
			v, ok, err := s.sessions.get(kg, s.name(1))
			if err != nil {
				return err
			}
			late = ok && len(v) == 8 && ts < dueOf(v)
		}
		if late {
			return s.o.ctx.Errors.Late(s.o.node, c, r)
		}
	}
	if err := s.o.rows.add(kg, c.Weight(r)); err != nil {
		return err
	}
	start, end := ts, ts+s.o.gap
	prefix := s.name(0)
	n := len(prefix)
	s.from = appendDue(append(s.from[:0], prefix...), ts)
	var old [2]struct{ start, end int64 }
	olds := 0
	// The session before, which the row may be in already.
	err := s.sessions.scanFrom(kg, prefix, s.from, true, func(k, v []byte) (bool, error) {
		if len(k) != n+8 || len(v) != 8 {
			return false, errCorruptState(s.o.node)
		}
		if b, e := dueOf(k[n:]), dueOf(v); ts < e {
			old[olds] = struct{ start, end int64 }{b, e}
			olds++
			start, end = b, max(end, e)
		}
		return false, nil
	})
	if err != nil || olds > 0 && end == old[0].end {
		return err
	}
	// The session behind, which the row may connect.
	s.from = appendDue(append(s.from[:0], prefix...), ts+1)
	err = s.sessions.scanFrom(kg, prefix, s.from, false, func(k, v []byte) (bool, error) {
		if len(k) != n+8 || len(v) != 8 {
			return false, errCorruptState(s.o.node)
		}
		if b, e := dueOf(k[n:]), dueOf(v); b < end {
			old[olds] = struct{ start, end int64 }{b, e}
			olds++
			end = e
		}
		return false, nil
	})
	if err != nil {
		return err
	}
	for _, x := range old[:olds] {
		s.key = appendDue(s.key[:n], x.start)
		if err := s.sessions.del(kg, s.key); err != nil {
			return err
		}
		if err := s.queue.del(kg, x.end, s.key); err != nil {
			return err
		}
	}
	s.key = appendDue(s.key[:n], start)
	s.val = appendDue(s.val[:0], end)
	if err := s.sessions.put(kg, s.key, s.val); err != nil {
		return err
	}
	return s.queue.put(kg, end, s.key, nil)
}

func (s *sessionClosing) barrier(b checkpoint.Barrier, out Emitter) error {
	if s.due {
		s.mark, s.marked, s.due, s.marks.changed = s.next, true, false, true
		err := s.queue.take(s.mark, func(kg uint16, due int64, name, val []byte) error { return s.take(kg, due, name, len(val) > 0, out) })
		if err != nil {
			return err
		}
		if err := s.o.out.flush(out); err != nil {
			return err
		}
		// A session that ends at the watermark is closed.
		if err := out.EmitWatermark(Watermark{Column: len(s.o.node.Schema) - 1, Value: s.mark + 1}); err != nil {
			return err
		}
	}
	if b.Checkpoint == 0 {
		return nil
	}
	return s.marks.save(s.mark)
}

// take handles an entry of the queue: name is a key of table 1.
func (s *sessionClosing) take(kg uint16, due int64, name []byte, closed bool, out Emitter) error {
	if closed {
		// Of a later session of the same key the entry stays.
		if v, ok, err := s.sessions.get(kg, name); err != nil || !ok || len(v) != 8 || dueOf(v) != due-s.o.gap {
			return err
		}
		return s.sessions.del(kg, name)
	}
	n := len(name) - 9
	if n < 0 {
		return errCorruptState(s.o.node)
	}
	if err := s.sessions.del(kg, name); err != nil {
		return err
	}
	if err := s.emit(kg, name[:n], dueOf(name[n+1:]), due, out); err != nil {
		return err
	}
	if due+s.o.gap <= s.mark {
		return nil // no row of that session can come any more
	}
	last := append(slices.Clone(name[:n]), 1)
	s.val = appendDue(s.val[:0], due)
	if err := s.sessions.put(kg, last, s.val); err != nil {
		return err
	}
	return s.queue.put(kg, due+s.o.gap, last, []byte{1})
}

// emit emits the rows of a session and forgets them.
func (s *sessionClosing) emit(kg uint16, group []byte, start, end int64, out Emitter) error {
	raw := start / s.o.unit
	s.from = appendDue(append(s.from[:0], s.orderPrefix(group)...), raw)
	var keys [][]byte
	err := s.o.rows.scanFrom(kg, group, s.from, false, func(r *sortedRow) (bool, error) {
		if s.o.timeOf(r) >= end {
			return false, nil
		}
		keys = append(keys, slices.Clone(r.key))
		return true, s.o.emit(string(r.row()), start, end, r.count, out)
	})
	if err != nil {
		return err
	}
	for _, k := range keys {
		if err := s.o.rows.table.del(kg, k); err != nil {
			return err
		}
	}
	return s.o.cancelled()
}

// orderPrefix returns the state key of table 0 up to the time of a row.
func (s *sessionClosing) orderPrefix(group []byte) []byte {
	s.one.Reset()
	s.one.Int = append(s.one.Int, 0)
	k := types.AppendKey(slices.Clone(group), &s.one, 0, false, false)
	return k[:len(k)-8]
}
