package op

import (
	"bytes"
	"cmp"
	"errors"
	"math"
	"slices"

	"github.com/streamdb/streamdb/checkpoint"
	"github.com/streamdb/streamdb/types"
)

// overOp computes window functions. State table 0 holds the input rows by partition and order (see sortedRows), with each what is shown of it and the
// running values of functions whose frames begin with the partition (see overKept). At the barrier the rows that a change can reach are computed anew,
// in spans of neighbouring rows; what differs from what is shown is emitted. With OnClose a partition is computed once (see groupClosing).
type overOp struct {
	base
	rows    sortedRows
	parts   map[string]*overPart
	touched []*overPart
	dirty   []byte // keys that changed in the epoch
	calls   []*overCall
	out     *outBuf
	marks   groupMarks
	closing groupClosing
	settled groupClosing // with Forget: rows behind the watermark are, as of the last barrier; see over_forget.go

	back, ahead overReach
	whole       bool // a function reads the partition as a whole
	running     bool // a function needs a running value
	slots       int  // functions that have one of their own
	ranked      bool // the place of rows is one
	totals      bool // a function needs a running value of the last row
	counted     bool // it is the number of rows
	distant     bool // it is the largest distance of lag or lead
	mixed       bool // of those rows too that are not the last one
	trailing    bool // a running value of a row before is read
	gapped      bool // of the last one that is far enough away
	silent      bool // nothing is emitted: the state of an older version is completed

	near [2]overReach // back and ahead but for distances that rows say

	work overWork

	span     overSpan
	in       int          // input columns
	view     *types.Chunk // the input columns of span.part
	scratch  *types.Chunk
	anchored overTracker
	margin   overTracker
	total    []byte // running values of the partition's last row
	val, now []byte
}

var _ Operator = (*overOp)(nil)

// overWork counts rows, for tests.
type overWork struct{ loaded, computed int }

// overPart is a partition that the epoch touched.
type overPart struct {
	kg      uint16
	prefix  []byte
	changed []keyRange // in overOp.dirty
	all     bool       // so many keys changed that they are not listed
}

type keyRange struct{ from, to int }

// Limits of the work on window functions; tests lower them.
var (
	// maxDirtyBytes is how many bytes of changed keys an epoch lists; of partitions that change more all rows are looked at.
	maxDirtyBytes = 8 << 20
	// overSliceRows is how many rows are computed at a time, unless their frames are longer.
	overSliceRows = 4096
	// overFollowRows is how many rows are taken first when running values go on changing.
	overFollowRows = 16
	// Partitions that have no more rows are computed at once when a function needs all of them, so that they are read once.
	overSmallRows = 64
	overFillRows  = 65536 // when all rows changed
)

func (o *overOp) Open(ctx *Context) error {
	o.ctx = ctx
	o.rows.group, o.rows.order, o.rows.tieDesc = o.node.Over.PartitionBy, o.node.Over.Order, o.node.Over.Backward
	o.parts = map[string]*overPart{}
	o.out = newOutBuf(o.node.Schema.Types())
	in := ctx.InputTypes[0]
	o.in = len(in)
	o.span.part = types.NewChunk(append(slices.Clone(in), types.Int8))
	o.view = &types.Chunk{Cols: o.span.part.Cols[:o.in]}
	o.scratch = types.NewChunk(in)
	o.back.groups, o.ahead.groups = -1, -1
	for i := range o.node.Over.Calls {
		c, err := o.newOverCall(i)
		if err != nil {
			return err
		}
		o.calls = append(o.calls, c)
	}
	o.mixed = o.mixed && o.totals
	if o.running {
		o.back.rows = max(o.back.rows, 1) // a running value goes on from the row before
	}
	o.near = [2]overReach{o.back, o.ahead}
	o.anchored.o, o.margin.o = o, o
	if err := o.rows.open(ctx, o.node, 0); err != nil || o.rows.table.mem != nil {
		return err
	}
	if err := o.closing.open(&o.base, o.node.Over.OnClose); err != nil || o.closing.on {
		return err
	}
	if err := o.settled.open(&o.base, o.node.Over.Forget); err != nil {
		return err
	}
	return o.complete()
}

// complete gives rows of a state that an older version wrote what is kept with them. Where only running values are missing the first barrier does so.
func (o *overOp) complete() error {
	var old []*overPart
	known := errors.New("rows have what is kept with them")
	bare := false
	var row sortedRow
	err := o.rows.table.scanAll(func(kg uint16, k, v []byte) error {
		if err := o.rows.read(&row, k, v); err != nil {
			return err
		}
		if len(old) == 0 {
			kept, err := o.readKept(row.kept)
			if err != nil {
				return err
			}
			if bare = len(row.kept) == 0; !bare {
				if _, vs, err := o.values(kept.values); err != nil || len(vs) == o.slots {
					return cmp.Or(err, known)
				}
			}
		}
		if n := len(old); n == 0 || old[n-1].kg != kg || !bytes.HasPrefix(k, old[n-1].prefix) || len(old[n-1].prefix) != row.ends[0] {
			old = append(old, &overPart{kg: kg, prefix: slices.Clone(k[:row.ends[0]]), all: true})
		}
		return nil
	})
	if err != nil {
		if errors.Is(err, known) {
			err = nil
		}
		return err
	}
	if !bare {
		for _, p := range old {
			o.parts[string(p.prefix)] = p
		}
		o.touched = old
		return nil
	}
	o.silent = true
	for _, p := range old {
		if err := o.change(p, nil); err != nil {
			return err
		}
	}
	o.silent = false
	return nil
}

func (o *overOp) Process(_ int, c *types.Chunk, _ Emitter) error {
	c, err := o.closing.dropLate(c)
	if err == nil {
		c, err = o.settled.dropLate(c)
	}
	if err != nil {
		return err
	}
	o.rows.begin(c)
	for i := range c.Rows() {
		r := c.Row(i)
		kg, n := o.rows.locate(c, r)
		p := o.parts[viewString(o.rows.key[:n])]
		if p == nil {
			p = &overPart{kg: kg, prefix: slices.Clone(o.rows.key[:n]), all: o.ctx.OneShot || o.whole}
			if o.closing.on {
				p.all = true
				if err := o.closing.list(kg, p.prefix, c, r); err != nil {
					return err
				}
			}
			o.parts[string(p.prefix)] = p
			o.touched = append(o.touched, p)
		}
		if !p.all && len(o.dirty) >= maxDirtyBytes {
			p.all, p.changed = true, nil
		}
		if !p.all {
			at := len(o.dirty)
			o.dirty = append(o.dirty, o.rows.key...)
			p.changed = append(p.changed, keyRange{at, len(o.dirty)})
		}
		if err := o.rows.add(kg, c.Weight(r)); err != nil {
			return err
		}
	}
	return nil
}

func (o *overOp) Barrier(b checkpoint.Barrier, out Emitter) error {
	if o.closing.on {
		o.touched = o.touched[:0]
	}
	err := o.closing.barrier(b, &o.rows, func(kg uint16, group []byte) error {
		return o.change(&overPart{kg: kg, prefix: group, all: true}, out)
	})
	if err != nil {
		return err
	}
	for _, p := range o.touched {
		if err := o.change(p, out); err != nil {
			return err
		}
		if err := o.forget(p); err != nil {
			return err
		}
		if err := o.cancelled(); err != nil {
			return err
		}
	}
	if err := o.settled.barrier(b, &o.rows, nil); err != nil {
		return err
	}
	o.touched, o.dirty = o.touched[:0], o.dirty[:0]
	clear(o.parts)
	if err := o.out.flush(out); err != nil {
		return err
	}
	return o.marks.emit(out)
}

func (o *overOp) Watermark(_ int, w Watermark, _ Emitter) error {
	o.closing.watermark(w)
	o.settled.watermark(w)
	if slices.Contains(o.node.Over.PartitionBy, w.Column) || slices.Contains(o.node.WatermarkCols, w.Column) {
		o.marks.set(w)
	}
	return nil
}

// change brings a partition up to date.
func (o *overOp) change(p *overPart, out Emitter) error {
	slices.SortFunc(p.changed, func(a, b keyRange) int { return bytes.Compare(o.dirty[a.from:a.to], o.dirty[b.from:b.to]) })
	if o.ctx.OneShot || o.whole {
		p.all = true
		_, err := o.fromStart(p, math.MaxInt, out)
		return err
	}
	if !o.totals {
		return o.walk(p, nil, out)
	}
	small := overSmallRows
	if p.all {
		small = overFillRows
	}
	if done, err := o.fromStart(p, small, out); done || err != nil {
		return err
	}
	// The running values come first: those of the last row are read by all rows.
	before, err := o.lastKept(p, false)
	if err != nil {
		return err
	}
	o.span.valuesOnly = true
	moved := &keySpans{}
	err = o.walk(p, moved, out)
	o.span.valuesOnly = false
	if err != nil {
		return err
	}
	if o.total, err = o.lastKept(p, true); err != nil {
		return err
	}
	p.all = p.all || !o.sameTotals(before, o.total)
	if !o.mixed {
		moved = nil
	}
	if o.distant {
		defer func() { o.back, o.ahead = o.near[0], o.near[1] }()
		if err := o.reachDistances(before, o.total); err != nil {
			return err
		}
	}
	return o.walkMoved(p, moved, out)
}

// reachDistances makes rows read as far as the largest distances of lag and lead say, before and after a change.
func (o *overOp) reachDistances(totals ...[]byte) error {
	for i := range o.near {
		r := [...]*overReach{&o.back, &o.ahead}[i]
		r.values = slices.Clone(r.values)
	}
	for _, b := range totals {
		_, accs, err := o.values(b)
		if err != nil {
			return err
		}
		for _, c := range o.calls {
			if !c.distant || len(accs) <= c.slot {
				continue
			}
			d := c.acc.(*distanceAcc)
			if err := d.load(accs[c.slot]); err != nil {
				return err
			}
			c.shiftReach(&o.back, d.back)
			c.shiftReach(&o.ahead, d.ahead)
		}
	}
	return nil
}

// fromStart computes the rows of a partition that has no more than limit of them at once, and reports whether it did.
func (o *overOp) fromStart(p *overPart, limit int, out Emitter) (bool, error) {
	s := &o.span
	s.reset()
	s.atStart = true
	w := &overWalk{o: o, p: p, limit: limit, all: true}
	if err := w.load(nil); err != nil {
		return false, err
	}
	if !s.atEnd || s.b < len(s.rows) {
		return false, nil
	}
	s.complete = true
	defer func() { s.complete = false }()
	_, err := o.compute(p, out)
	return true, err
}

// walk computes the rows around the changes of a partition. It lists where running values changed in moved.
func (o *overOp) walk(p *overPart, moved *keySpans, out Emitter) error {
	return o.walkOver(&overWalk{o: o, p: p, all: p.all, moved: moved}, out)
}

// walkMoved computes the rows around the changes and where running values changed.
func (o *overOp) walkMoved(p *overPart, moved *keySpans, out Emitter) error {
	return o.walkOver(&overWalk{o: o, p: p, all: p.all, stale: moved}, out)
}

func (o *overOp) walkOver(w *overWalk, out Emitter) error {
	var first sortedRow
	for {
		start, ok, err := w.next(&first)
		if err != nil || !ok {
			return err
		}
		if err := w.run(start, out); err != nil {
			return err
		}
		if w.all {
			return nil
		}
	}
}

// lastKept returns the running values of the last row that has some, maybe of those that are there only.
func (o *overOp) lastKept(p *overPart, there bool) ([]byte, error) {
	var last []byte
	err := o.rows.scanEntries(p.kg, p.prefix, nil, true, func(r *sortedRow) (bool, error) {
		if len(r.kept) == 0 || there && r.count <= 0 {
			return true, nil
		}
		k, err := o.readKept(r.kept)
		last = slices.Clone(k.values)
		return false, err
	})
	return last, err
}

// keySpans are ranges of keys, both ends included, ascending.
type keySpans struct {
	lo, hi [][]byte
	at     int
}

func (s *keySpans) add(lo, hi []byte) {
	if n := len(s.hi); n > 0 && bytes.Compare(lo, s.hi[n-1]) <= 0 {
		s.hi[n-1] = slices.Clone(hi)
		return
	}
	s.lo, s.hi = append(s.lo, slices.Clone(lo)), append(s.hi, slices.Clone(hi))
}

// has reports whether a key is in one of the ranges; keys are asked for in ascending order.
func (s *keySpans) has(key []byte) bool {
	for s.at < len(s.hi) && bytes.Compare(s.hi[s.at], key) < 0 {
		s.at++
	}
	return s.at < len(s.lo) && bytes.Compare(s.lo[s.at], key) <= 0
}

// overWalk goes over the changes of a partition in order.
type overWalk struct {
	o     *overOp
	p     *overPart
	at    int  // of p.changed
	all   bool // every row is taken as changed
	stale *keySpans
	moved *keySpans
	limit int // rows to compute at a time
	force int // rows to compute although no change reaches them
	more  bool
}

func (w *overWalk) key(i int) []byte {
	k := w.p.changed[i]
	return w.o.dirty[k.from:k.to]
}

// next sets r to the next changed row.
func (w *overWalk) next(r *sortedRow) (start *sortedRow, ok bool, err error) {
	if w.all {
		return nil, true, nil
	}
	for ; w.at < len(w.p.changed); w.at++ {
		key := w.key(w.at)
		v, ok, err := w.o.rows.table.get(w.p.kg, key)
		if err != nil {
			return nil, false, err
		}
		if ok {
			return r, true, w.o.rows.read(r, key, slices.Clone(v))
		}
	}
	return nil, false, nil
}

// changed reports whether a row is one of those that changed; rows are asked for in order.
func (w *overWalk) changed(r *sortedRow) bool {
	if w.all || w.stale != nil && w.stale.has(r.key) {
		return true
	}
	for w.at < len(w.p.changed) && bytes.Compare(w.key(w.at), r.key) < 0 {
		w.at++
	}
	return w.at < len(w.p.changed) && bytes.Equal(w.key(w.at), r.key)
}

// run computes the rows around a changed one (nil: all), and on to where no change reaches.
func (w *overWalk) run(start *sortedRow, out Emitter) error {
	o, s := w.o, &w.o.span
	w.force, w.limit = 0, overSliceRows
	o.anchored.off = true
	follow := overFollowRows
	from, again := start, false
	if from == nil && o.settled.marked {
		var err error
		if from, err = o.lastSettled(w.p); err != nil {
			return err
		}
		again = from != nil
	}
	for ; ; again = true {
		s.reset()
		if from == nil {
			s.atStart = true
		} else if err := o.loadBack(w.p, from, !again); err != nil {
			return err
		}
		if w.limit = max(overSliceRows, 2*s.a); o.ahead.rows == math.MaxInt64 {
			w.limit = math.MaxInt // all rows behind are read anyway
		}
		var key []byte
		if from != nil {
			key = from.key
		}
		s.skip = again
		if err := w.load(key); err != nil {
			return err
		}
		last, err := o.compute(w.p, out)
		if err != nil {
			return err
		}
		if w.moved != nil && last >= s.a {
			w.moved.add(s.key(s.a), s.key(last))
		}
		if s.b > s.a {
			w.pass(s.key(s.b - 1))
		}
		for i := range s.gone {
			w.pass(s.keyOf(&s.gone[i]))
		}
		if s.b == len(s.rows) && s.atEnd || s.b == s.a && !w.more {
			return nil
		}
		w.force = 0
		switch {
		case o.running && s.b > s.a && last == s.b-1:
			w.force, follow = follow, min(2*follow, overSliceRows)
			if o.trailing {
				if err := o.reanchor(last); err != nil {
					return err
				}
			}
		case o.trailing && last >= s.a:
			if err := o.reanchor(last); err != nil {
				return err
			}
		case !w.more:
			return nil
		}
		if err := o.cancelled(); err != nil {
			return err
		}
		if s.b == s.a {
			return nil
		}
		r := s.sorted(s.b - 1)
		from = &sortedRow{key: slices.Clone(r.key), count: 1, ends: r.ends}
	}
}

// pass leaves the changes up to a key behind.
func (w *overWalk) pass(key []byte) {
	for w.at < len(w.p.changed) && bytes.Compare(w.key(w.at), key) <= 0 {
		w.at++
	}
}

// reanchor lets rows behind row i be reached from it, as its running values changed.
func (o *overOp) reanchor(i int) error {
	s := &o.span
	if err := o.anchored.start(s.sorted(i), &o.back, false); err != nil {
		return err
	}
	for i++; i < s.b; i++ {
		if _, err := o.anchored.step(s.sorted(i)); err != nil {
			return err
		}
	}
	return nil
}
