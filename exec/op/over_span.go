package op

import (
	"bytes"
	"encoding/binary"
	"slices"

	"github.com/streamdb/streamdb/internal/pgerr"
	"github.com/streamdb/streamdb/planner/plan"
	"github.com/streamdb/streamdb/types"
)

// overSpan holds neighbouring rows of a partition: those in [a, b) are computed, the others are read by them.
type overSpan struct {
	bytes []byte
	rows  []spanRow
	gone  []spanRow // rows that left the partition and are still shown
	part  *types.Chunk
	a, b  int
	// atStart, atEnd: nothing comes before the first, behind the last row.
	atStart, atEnd bool
	complete       bool // all rows of the partition are computed
	skip           bool // the row to begin at is computed already
	valuesOnly     bool // running values are computed, nothing else

	peers                []int // per row the number of its peer group
	first                []int // per peer group its first row, then the number of rows
	lo, hi               int   // rows whose order column is not NULL, for RANGE
	number, rank, groups []int64
	failed               []error // of computed rows
}

// spanRow is an entry's key, and what is kept with the row, in overSpan.bytes.
type spanRow struct {
	key, kept, end int
	ends           [3]int
	count          int64
}

func (s *overSpan) reset() {
	s.bytes, s.rows, s.gone = s.bytes[:0], s.rows[:0], s.gone[:0]
	s.a, s.b = 0, 0
	s.atStart, s.atEnd, s.skip = false, false, false
}

func (s *overSpan) copy(r *sortedRow) spanRow {
	at := len(s.bytes)
	s.bytes = append(append(s.bytes, r.key...), r.kept...)
	return spanRow{key: at, kept: at + len(r.key), end: len(s.bytes), ends: r.ends, count: r.count}
}

func (s *overSpan) keyOf(r *spanRow) []byte  { return s.bytes[r.key:r.kept] }
func (s *overSpan) keptOf(r *spanRow) []byte { return s.bytes[r.kept:r.end] }
func (s *overSpan) key(i int) []byte         { return s.keyOf(&s.rows[i]) }

// sorted returns row i; its slices are valid until rows are added.
func (s *overSpan) sorted(i int) *sortedRow {
	r := &s.rows[i]
	return &sortedRow{key: s.keyOf(r), count: r.count, ends: r.ends, kept: s.keptOf(r)}
}

// overReach says how far functions read from their row in one direction.
type overReach struct {
	rows   int64
	groups int64 // peer groups besides their own; −1: not even that
	ranges []rangeReach
	values []valueReach
}

// rangeReach is a bound of RANGE with offset.
type rangeReach struct {
	c *overCall
	b plan.Bound
}

// valueReach is n rows in which a column is not NULL.
type valueReach struct {
	column int
	n      int64
}

// overTracker walks from a row, the anchor, and tells which rows are in reach.
type overTracker struct {
	o            *overOp
	r            *overReach
	off          bool
	reads        bool // the anchor reads the rows walked over; otherwise they read the anchor
	gap          bool // those that read a running value before the row behind the anchor are in reach too
	rows, groups int64
	order        []byte // order key of the row before
	seen         []int64
	null         bool
	anchor       types.Datum   // order column
	limits       []types.Datum // of the anchor, when it reads
	unlimited    []bool
}

func (o *overOp) decode(r *sortedRow) error {
	for _, v := range o.scratch.Cols {
		v.Reset()
	}
	_, err := types.DecodeRow(r.row(), o.scratch.Cols)
	return err
}

func (t *overTracker) start(r *sortedRow, reach *overReach, reads bool) error {
	t.r, t.reads, t.off, t.rows, t.groups = reach, reads, false, 0, 0
	t.gap = t.o.gapped && !reads && reach == &t.o.back
	t.order = append(t.order[:0], r.orderKey()...)
	t.seen = t.seen[:0]
	for range reach.values {
		t.seen = append(t.seen, 0)
	}
	if len(reach.ranges) == 0 {
		return nil
	}
	if err := t.o.decode(r); err != nil {
		return err
	}
	v := t.o.scratch.Cols[t.o.node.Over.Order[0].Column]
	if t.null = v.IsNull(0); t.null {
		return nil
	}
	t.anchor = rangeValue(v, 0)
	t.limits, t.unlimited = t.limits[:0], t.unlimited[:0]
	if reads {
		for _, x := range reach.ranges {
			d, err := x.c.limit(t.o, t.anchor, x.b)
			t.limits, t.unlimited = append(t.limits, d), append(t.unlimited, err != nil)
		}
	}
	return nil
}

// step goes on to the next row and reports whether it is in reach.
func (t *overTracker) step(r *sortedRow) (bool, error) {
	if t.off {
		return false, nil
	}
	if t.gap {
		err := t.start(r, t.r, false)
		t.gap = false
		return true, err
	}
	if !bytes.Equal(t.order, r.orderKey()) {
		t.groups++
		t.order = append(t.order[:0], r.orderKey()...)
	}
	t.rows++
	in := t.rows <= t.r.rows || t.groups <= t.r.groups
	if len(t.r.ranges) == 0 && len(t.r.values) == 0 {
		return in, nil
	}
	if err := t.o.decode(r); err != nil {
		return false, err
	}
	for k, x := range t.r.values {
		if t.seen[k] < x.n {
			in = true
			if !t.o.scratch.Cols[x.column].IsNull(0) {
				t.seen[k]++
			}
		}
	}
	if len(t.r.ranges) == 0 {
		return in, nil
	}
	key := t.o.node.Over.Order[0]
	v := t.o.scratch.Cols[key.Column]
	if in || t.null || v.IsNull(0) {
		return in, nil
	}
	d := rangeValue(v, 0)
	for k, x := range t.r.ranges {
		var cmp int
		if t.reads {
			if t.unlimited[k] {
				return true, nil
			}
			cmp = compareRange(d, t.limits[k])
		} else {
			limit, err := x.c.limit(t.o, d, x.b)
			if err != nil {
				return true, nil // the row itself says so
			}
			cmp = compareRange(t.anchor, limit)
		}
		if key.Desc {
			cmp = -cmp
		}
		if x.b.Kind == plan.Preceding && cmp >= 0 || x.b.Kind == plan.Following && cmp <= 0 {
			return true, nil
		}
	}
	return false, nil
}

// loadBack takes the rows before from: when it is a changed row those that read it, and then those which the first of all these reads, with
// one more.
func (o *overOp) loadBack(p *overPart, from *sortedRow, changed bool) error {
	s, t := &o.span, &o.margin
	reading := !changed
	var err error
	if changed {
		err = t.start(from, &o.ahead, false)
	} else {
		s.rows = append(s.rows, s.copy(from))
		err = t.start(from, &o.back, true)
	}
	if err != nil {
		return err
	}
	computed := 0
	extra := false
	s.atStart = true
	err = o.rows.scanEntries(p.kg, p.prefix, from.key, true, func(r *sortedRow) (bool, error) {
		if bytes.Equal(r.key, from.key) {
			if !changed {
				s.rows[0] = s.copy(r)
			}
			return true, nil
		}
		if r.count <= 0 {
			return true, nil
		}
		in, err := t.step(r)
		if err == nil && !in && !reading {
			reading = true
			anchor := from
			if computed = len(s.rows); computed > 0 {
				anchor = s.sorted(computed - 1)
			}
			if err = t.start(anchor, &o.back, true); err == nil {
				in, err = t.step(r)
			}
		}
		if err != nil {
			return false, err
		}
		if !in {
			if extra {
				s.atStart = false
				return false, nil
			}
			extra = true
		}
		s.rows = append(s.rows, s.copy(r))
		return true, nil
	})
	if !reading {
		computed = len(s.rows)
	}
	slices.Reverse(s.rows)
	s.a = len(s.rows) - computed
	return err
}

// load takes the rows from a key on (nil: all) that changes reach, and those that the last of them reads.
func (w *overWalk) load(from []byte) error {
	o, s := w.o, &w.o.span
	taking := true
	s.b = len(s.rows)
	s.atEnd, w.more = true, false
	err := o.rows.scanEntries(w.p.kg, w.p.prefix, from, false, func(r *sortedRow) (bool, error) {
		if s.skip && bytes.Equal(r.key, from) {
			return true, nil
		}
		if taking && s.b-s.a >= w.limit && r.count > 0 {
			taking, w.more = false, true
			if err := o.margin.start(s.sorted(s.b-1), &o.ahead, true); err != nil {
				return false, err
			}
		}
		if taking {
			in := w.changed(r)
			var err error
			switch {
			case in && !w.all:
				err = o.anchored.start(r, &o.back, false)
			case in:
			case r.count > 0:
				in, err = o.anchored.step(r)
			}
			if err != nil {
				return false, err
			}
			if r.count <= 0 {
				if r.count == 0 {
					s.gone = append(s.gone, s.copy(r))
				}
				return true, nil
			}
			if in || w.force > 0 {
				w.force--
				s.rows = append(s.rows, s.copy(r))
				s.b++
				return true, nil
			}
			taking = false
			if s.b == s.a {
				s.atEnd = false
				return false, nil
			}
			if err := o.margin.start(s.sorted(s.b-1), &o.ahead, true); err != nil {
				return false, err
			}
		}
		if r.count <= 0 {
			return true, nil
		}
		in, err := o.margin.step(r)
		if err != nil || !in {
			s.atEnd = false
			return false, err
		}
		s.rows = append(s.rows, s.copy(r))
		return true, nil
	})
	if err != nil {
		return err
	}
	return o.decodeSpan()
}

// decodeSpan reads the rows' values and finds peers. In jobs no two rows have the same key, so a count above 1 is that of a row on its way.
func (o *overOp) decodeSpan() error {
	s := &o.span
	for _, v := range s.part.Cols {
		v.Reset()
	}
	s.part.N = 0
	if o.ctx.OneShot {
		s.repeat()
	}
	s.peers, s.first = s.peers[:0], s.first[:0]
	cols := s.part.Cols[:o.in]
	for i := range s.rows {
		r := &s.rows[i]
		key := s.keyOf(r)
		if i == 0 || !bytes.Equal(key[:r.ends[1]], s.key(i - 1)[:s.rows[i-1].ends[1]]) {
			s.first = append(s.first, i)
		}
		if _, err := types.DecodeRow(key[r.ends[2]:], cols); err != nil {
			return err
		}
		s.part.Cols[o.in].Int = append(s.part.Cols[o.in].Int, int64(i))
		s.peers = append(s.peers, len(s.first)-1)
	}
	s.first = append(s.first, len(s.rows))
	s.part.N, o.view.N = len(s.rows), len(s.rows)
	s.lo, s.hi = 0, len(s.rows)
	if len(o.node.Over.Order) == 1 {
		v := s.part.Cols[o.node.Over.Order[0].Column]
		for s.lo < s.hi && v.IsNull(s.lo) {
			s.lo++
		}
		for s.hi > s.lo && v.IsNull(s.hi-1) {
			s.hi--
		}
	}
	return nil
}

// repeat lists rows as often as they are there.
func (s *overSpan) repeat() {
	if !slices.ContainsFunc(s.rows, func(r spanRow) bool { return r.count != 1 }) {
		return
	}
	var all []spanRow
	for _, r := range s.rows {
		n := r.count
		r.count = 1
		for range n {
			all = append(all, r)
		}
	}
	s.rows, s.b = all, len(all)
}

// overKept is what is kept with a row: a byte (keptNothing, keptRow, keptError), then length and bytes of the encoded results or of SQLSTATE and
// message, then the running values up to the row: the rank values (see places), then per function that has one length and bytes.
type overKept struct {
	kind   byte
	shown  []byte
	values []byte
}

const (
	keptNothing byte = iota
	keptRow
	keptError
)

func (o *overOp) readKept(b []byte) (k overKept, err error) {
	if len(b) == 0 {
		return k, nil
	}
	r := byteReader{b: b}
	k.kind = r.byte()
	k.shown = r.bytes(int(r.uvarint()))
	k.values = r.b
	if r.bad || k.kind > keptError {
		return k, errCorruptState(o.node)
	}
	return k, nil
}

func appendKept(dst []byte, k overKept) []byte {
	dst = append(dst, k.kind)
	dst = binary.AppendUvarint(dst, uint64(len(k.shown)))
	return append(append(dst, k.shown...), k.values...)
}

func encodeError(err error) []byte {
	pe := pgerr.From(err)
	return append(append([]byte(pe.Code), 0), pe.Message...)
}

func decodeError(b []byte) error {
	code, message, _ := bytes.Cut(b, []byte{0})
	return pgerr.Newf(pgerr.Code(code), "%s", message)
}

// places are a row's values of row_number, rank and dense_rank.
type places struct{ number, rank, groups int64 }

// values splits running values.
func (o *overOp) values(b []byte) (at places, perCall [][]byte, err error) {
	r := byteReader{b: b}
	if o.ranked && len(b) > 0 {
		at = places{r.varint(), r.varint(), r.varint()}
	}
	for len(r.b) > 0 && !r.bad {
		perCall = append(perCall, r.bytes(int(r.uvarint())))
	}
	if r.bad {
		err = errCorruptState(o.node)
	}
	return at, perCall, err
}

// before returns running values up to row i of the span; those up to row −1 are over no rows.
func (o *overOp) before(i int) (places, [][]byte, error) {
	if i < 0 {
		return places{}, nil, nil
	}
	k, err := o.readKept(o.span.keptOf(&o.span.rows[i]))
	if err != nil {
		return places{}, nil, err
	}
	return o.values(k.values)
}

// sameTotals reports whether the functions that read the last row's running values find the same in a and b.
func (o *overOp) sameTotals(a, b []byte) bool {
	at, as, err := o.values(a)
	bt, bs, berr := o.values(b)
	if err != nil || berr != nil || len(as) != len(bs) || o.counted && at.number != bt.number {
		return false
	}
	for _, c := range o.calls {
		if c.total && c.acc != nil && !bytes.Equal(as[c.slot], bs[c.slot]) {
			return false
		}
	}
	return true
}

// compute computes the rows [a, b) of the span and emits what changes. It returns the last row whose running values changed, −1: none.
func (o *overOp) compute(p *overPart, out Emitter) (int, error) {
	s := &o.span
	if err := o.retract(p, out); err != nil {
		return -1, err
	}
	n := s.b - s.a
	o.work.loaded += len(s.rows)
	if o.work.computed += n; n == 0 {
		return -1, nil
	}
	s.failed = append(s.failed[:0], make([]error, n)...)
	before, accs, err := o.before(s.a - 1)
	if err != nil {
		return -1, err
	}
	o.rank(before)
	cols := slices.Clone(o.view.Cols)
	for _, c := range o.calls {
		c.out = &types.Vector{Type: c.spec.Type}
		c.saved, c.savedEnd = c.saved[:0], c.savedEnd[:0]
		var acc []byte
		if c.acc != nil && len(accs) > c.slot {
			acc = accs[c.slot]
		}
		if err := c.eval(o, acc); err != nil {
			return -1, err
		}
		cols = append(cols, c.out)
	}
	if o.ctx.OneShot {
		return -1, o.show(out)
	}
	last := -1
	results := cols[o.in:]
	for i := s.a; i < s.b; i++ {
		moved, err := o.keep(p, i, results, out)
		if err != nil {
			return -1, err
		}
		if moved {
			last = i
		}
	}
	return last, nil
}

// rank numbers the rows from a on.
func (o *overOp) rank(at places) {
	if !o.ranked {
		return
	}
	s := &o.span
	s.number, s.rank, s.groups = s.number[:0], s.rank[:0], s.groups[:0]
	for i := range s.rows {
		if i < s.a {
			s.number, s.rank, s.groups = append(s.number, 0), append(s.rank, 0), append(s.groups, 0)
			continue
		}
		at.number++
		if i == 0 || s.peers[i] != s.peers[i-1] {
			at.rank = at.number
			at.groups++
		}
		s.number, s.rank, s.groups = append(s.number, at.number), append(s.rank, at.rank), append(s.groups, at.groups)
	}
}

// show emits the rows of a one-shot query.
func (o *overOp) show(out Emitter) error {
	s := &o.span
	for i := s.a; i < s.b; i++ {
		if err := s.failed[i-s.a]; err != nil {
			if err := o.ctx.Errors.Report(o.node, err, o.view, i, 1); err != nil {
				return err
			}
			continue
		}
		for k, v := range o.view.Cols {
			o.out.c.Cols[k].Append(v, i)
		}
		for k, c := range o.calls {
			o.out.c.Cols[o.in+k].Append(c.out, i-s.a)
		}
		if err := o.out.push(1, out); err != nil {
			return err
		}
		if i%cancelPollRows == cancelPollRows-1 {
			if err := o.cancelled(); err != nil {
				return err
			}
		}
	}
	return nil
}

// keep emits what changed of row i, stores it, and reports whether its running values changed.
func (o *overOp) keep(p *overPart, i int, results []*types.Vector, out Emitter) (bool, error) {
	s := &o.span
	r := &s.rows[i]
	old, err := o.readKept(s.keptOf(r))
	if err != nil {
		return false, err
	}
	o.now = o.now[:0]
	if o.ranked {
		o.now = binary.AppendVarint(o.now, s.number[i])
		o.now = binary.AppendVarint(o.now, s.rank[i])
		o.now = binary.AppendVarint(o.now, s.groups[i])
	}
	for _, c := range o.calls {
		if c.acc != nil {
			v := c.savedAt(i - s.a)
			o.now = binary.AppendUvarint(o.now, uint64(len(v)))
			o.now = append(o.now, v...)
		}
	}
	now := overKept{kind: old.kind, shown: old.shown}
	values := len(o.now)
	if !s.valuesOnly {
		if failed := s.failed[i-s.a]; failed != nil {
			now.kind = keptError
			o.now = append(o.now, encodeError(failed)...)
		} else {
			now.kind = keptRow
			o.now = types.AppendRow(o.now, results, i-s.a)
		}
		now.shown = o.now[values:]
	}
	now.values = o.now[:values]
	moved := !bytes.Equal(now.values, old.values)
	same := now.kind == old.kind && bytes.Equal(now.shown, old.shown)
	if same && !moved && r.end > r.kept {
		return false, nil
	}
	if !same {
		row := s.keyOf(r)[r.ends[2]:]
		if err := o.emit(old, row, -1, out); err != nil {
			return false, err
		}
		if err := o.emit(now, row, 1, out); err != nil {
			return false, err
		}
	}
	o.val = appendKept(o.rows.appendValue(o.val[:0], r.count, r.ends), now)
	return moved, o.rows.table.put(p.kg, s.keyOf(r), o.val)
}

// retract takes back what is shown of rows that are gone.
func (o *overOp) retract(p *overPart, out Emitter) error {
	s := &o.span
	for i := range s.gone {
		r := &s.gone[i]
		if s.valuesOnly {
			continue // the second walk meets it again
		}
		k, err := o.readKept(s.keptOf(r))
		if err != nil {
			return err
		}
		if err := o.emit(k, s.keyOf(r)[r.ends[2]:], -1, out); err != nil {
			return err
		}
		if err := o.rows.table.remove(p.kg, s.keyOf(r)); err != nil {
			return err
		}
	}
	return nil
}

// emit emits a row with its results, or reports its error.
func (o *overOp) emit(k overKept, row []byte, w int64, out Emitter) error {
	if o.silent || k.kind == keptNothing {
		return nil
	}
	if k.kind == keptError {
		for _, v := range o.scratch.Cols {
			v.Reset()
		}
		if _, err := types.DecodeRow(row, o.scratch.Cols); err != nil {
			return err
		}
		o.scratch.N = 1
		return o.ctx.Errors.Report(o.node, decodeError(k.shown), o.scratch, 0, w)
	}
	cols := o.out.c.Cols
	if _, err := types.DecodeRow(row, cols[:o.in]); err != nil {
		return err
	}
	if _, err := types.DecodeRow(k.shown, cols[o.in:]); err != nil {
		return err
	}
	return o.out.push(w, out)
}
