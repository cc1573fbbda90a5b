package op

import (
	"encoding/binary"

	"github.com/streamdb/streamdb/checkpoint"
	"github.com/streamdb/streamdb/planner/plan"
	"github.com/streamdb/streamdb/types"
)

// lookupJoinOp is a join that reads the right rows from their relation (see plan.LookupJoin). With the left rows a before and b after an epoch, it
// emits Δa⋈b(new) + a(old)⋈Δb: changed right rows meet the left rows in state at once, left rows wait for the barrier, when it is known which version of the
// right relation to read, and go into state then. Where it matters whether a left row has matches, they are counted, and what follows from a count that
// became or left 0 is put out at the barrier, before the left rows that waited.
//
// State table 0 (ordered): join key · encoded left row → varint count; of joins that are not inner followed by the varint number of its matches.
type lookupJoinOp struct {
	base
	joinPairs
	keys  [2][]int
	probe Probe
	left  table

	waiting waitingRows

	// Of joins that are not inner.
	counts  bool
	matches []int64        // per row of src
	touched []touchedRow   // left rows in state that rows of the right side met in the epoch
	at      map[string]int // state key → position in touched
	bytes   int64          // of touched, about
	pads    *outBuf        // left rows without a right one

	hash   []uint64
	point  []uint64
	values []*types.Vector
	points []*types.Vector
	key    []byte
	value  []byte

	others []int64 // per candidate the other side's count
	meets  []int   // per candidate of a right row with counts: position in touched
	read   arena   // left rows from state that the output refers to
	marks  mergedMarks
	pend   groupMarks

	epoch  uint64 // of the last barrier, as Probe.Seek has it
	stored bool   // the rows in work are in state
}

var _ Operator = (*lookupJoinOp)(nil)

// touchedRow is an entry of the state whose matches changed in the epoch.
type touchedRow struct {
	kg      uint16
	key     string
	row     int // where the row begins in key
	count   int64
	was, is int64 // matches
}

// touchedBytes is what an entry takes beside its key, about.
const touchedBytes = 128

func (o *lookupJoinOp) Open(ctx *Context) error {
	o.ctx = ctx
	j := o.node.LookupJoin
	o.keys, o.marks.ports = [2][]int{j.LeftKeys, j.RightKeys}, 2
	o.waiting.open(ctx, 0)
	all, err := o.openPairs(ctx, j.Output, j.Residual)
	if err != nil {
		return err
	}
	if j.Output == nil && (j.Type == plan.Semi || j.Type == plan.Anti) {
		o.output = o.output[:o.width[0]]
	}
	if o.counts = j.Type != plan.Inner && j.Type != ""; o.counts {
		o.at = map[string]int{}
		o.pads = newOutBuf(all)
		o.pads.cols = o.output
	}
	if o.probe, err = ctx.Probe(j.Relation, j.Columns, j.Lookup); err != nil {
		return err
	}
	o.left, err = openTable(ctx, o.node, 0, orderedMode)
	return err
}

func (o *lookupJoinOp) Process(port int, c *types.Chunk, out Emitter) error {
	if port == 1 {
		return o.changed(c, out)
	}
	for i := range c.Rows() {
		r := c.Row(i)
		if anyNull(c, o.keys[0], r) && !(o.counts && o.shows(0)) {
			continue // it can have no partner
		}
		o.waiting.add(c, r)
	}
	o.account()
	if o.waiting.enough() {
		return o.join(0, out)
	}
	return nil
}

// changed joins changes of the right side with the left rows in state.
func (o *lookupJoinOp) changed(c *types.Chunk, out Emitter) error {
	o.src, o.srcSide = c, 1
	o.hash = hashesOf(o.hash, c, o.keys[1])
	o.values = pick(o.values, c, o.keys[1])
	for i := range c.Rows() {
		r := c.Row(i)
		if anyNull(c, o.keys[1], r) {
			continue
		}
		o.key = types.AppendKeyRow(o.key[:0], o.values, r)
		kg := keyGroup(o.ctx, o.hash[r])
		err := o.left.scan(kg, o.key, false, func(k, v []byte) (bool, error) {
			b := byteReader{b: v}
			n := b.varint()
			if o.counts {
				o.meets = append(o.meets, o.touch(kg, k, n, b.varint()))
			}
			if b.bad {
				return false, errCorruptState(o.node)
			}
			row := k[len(o.key):]
			row = o.read.get(o.read.add(row), len(row))
			if _, err := types.DecodeRows(viewString(row), 1, o.columns(o.cand, 0)); err != nil {
				return false, err
			}
			return true, o.candidate(r, n, out)
		})
		if err != nil {
			return err
		}
	}
	o.account()
	return o.flush(out)
}

// touch returns the position in touched of a left row whose join key is o.key.
func (o *lookupJoinOp) touch(kg uint16, key []byte, count, matches int64) int {
	if i, ok := o.at[string(key)]; ok {
		return i
	}
	t := touchedRow{kg: kg, key: string(key), row: len(o.key), count: count, was: matches, is: matches}
	o.at[t.key] = len(o.touched)
	o.touched = append(o.touched, t)
	o.bytes += int64(len(key)) + touchedBytes
	return len(o.touched) - 1
}

// settle puts out what follows from the matches that left rows in state have won and lost in the epoch.
func (o *lookupJoinOp) settle(out Emitter) error {
	if len(o.touched) == 0 {
		return nil
	}
	for i := range o.touched {
		t := &o.touched[i]
		if t.was == t.is {
			continue
		}
		o.value = binary.AppendVarint(binary.AppendVarint(o.value[:0], t.count), t.is)
		if err := o.left.put(t.kg, []byte(t.key), o.value); err != nil {
			return err
		}
		w := t.count
		switch before, after := o.shows(t.was), o.shows(t.is); {
		case before == after:
			continue
		case before:
			w = -w
		}
		if _, err := types.DecodeRows(t.key[t.row:], 1, o.columns(o.pads.c, 0)); err != nil {
			return err
		}
		for _, v := range o.columns(o.pads.c, 1) {
			v.AppendNull()
		}
		if err := o.pads.push(w, out); err != nil {
			return err
		}
	}
	o.touched, o.at, o.bytes = nil, map[string]int{}, 0
	return o.cancelled()
}

// shows reports whether a left row is put out by itself, without a right row, when it has so many matches.
func (o *lookupJoinOp) shows(matches int64) bool {
	return (matches > 0) == (o.node.LookupJoin.Type == plan.Semi)
}

// alone puts out left row r, whose matches are counted, by itself if it is to be.
func (o *lookupJoinOp) alone(c *types.Chunk, r int, out Emitter) error {
	if !o.counts || !o.shows(o.matches[r]) {
		return nil
	}
	o.pad(o.pads.c, 0, c, r)
	return o.pads.push(c.Weight(r), out)
}

// join joins the left rows that wait with the right side of an epoch.
func (o *lookupJoinOp) join(epoch uint64, out Emitter) error {
	if o.waiting.rows == 0 {
		return nil
	}
	if err := o.probe.Seek(epoch); err != nil {
		return err
	}
	err := o.waiting.take(func(c *types.Chunk) error { return o.work(c, out) })
	o.account()
	return err
}

// work joins left rows and puts them into state.
func (o *lookupJoinOp) work(c *types.Chunk, out Emitter) error {
	j := o.node.LookupJoin
	o.src, o.srcSide = c, 0
	o.hash, o.point = hashesOf(o.hash, c, o.keys[0]), hashesOf(o.point, c, j.Point)
	o.values, o.points = pick(o.values, c, o.keys[0]), pick(o.points, c, j.Point)
	right, r := o.columns(o.cand, 1), 0
	found := func() error { return o.candidate(r, 1, out) }
	o.matches = append(o.matches[:0], make([]int64, c.N)...)
	for r = range c.N {
		if anyNull(c, o.keys[0], r) {
			continue
		}
		o.key = appendLookupKey(o.key[:0], o.points, r, j.Lookup)
		if err := o.probe.Each(o.point[r], o.key, right, found); err != nil {
			return err
		}
	}
	if err := o.flush(out); err != nil {
		return err
	}
	for r := range c.N {
		if err := o.keep(c, r); err != nil {
			return err
		}
		if err := o.alone(c, r, out); err != nil {
			return err
		}
	}
	return nil
}

// keep puts left row r, whose matches are counted, into state.
func (o *lookupJoinOp) keep(c *types.Chunk, r int) error {
	if o.stored {
		return nil
	}
	kg := keyGroup(o.ctx, o.hash[r])
	o.key = types.AppendKeyRow(o.key[:0], o.values, r)
	o.key = types.AppendRow(o.key, c.Cols, r)
	if !o.counts {
		return addCount(&o.left, o.node, kg, o.key, c.Weight(r))
	}
	v, ok, err := o.left.get(kg, o.key)
	if err != nil {
		return err
	}
	n := c.Weight(r)
	if ok {
		b := byteReader{b: v}
		if n += b.varint(); b.bad {
			return errCorruptState(o.node)
		}
	}
	if n == 0 {
		return o.left.del(kg, o.key)
	}
	o.value = binary.AppendVarint(binary.AppendVarint(o.value[:0], n), o.matches[r])
	return o.left.put(kg, o.key, o.value)
}

// candidate adds a pair; the other side's columns have been appended.
func (o *lookupJoinOp) candidate(r int, count int64, out Emitter) error {
	o.others = append(o.others, count)
	if o.paired(r) {
		return o.flush(out)
	}
	return nil
}

// flush completes the candidates, tests the condition and emits those that pass.
func (o *lookupJoinOp) flush(out Emitter) error {
	if o.cand.N == 0 {
		return nil
	}
	for i, r := range o.own {
		o.weights = append(o.weights, o.src.Weight(int(r))*o.others[i])
	}
	if err := o.complete(&o.base); err != nil {
		return err
	}
	if o.residual != nil {
		if err := o.test(&o.base); err != nil {
			return err
		}
	}
	if o.counts {
		o.count()
	}
	var err error
	if t := o.node.LookupJoin.Type; t != plan.Semi && t != plan.Anti {
		err = o.emit(out)
	}
	o.clear()
	o.others, o.meets = o.others[:0], o.meets[:0]
	o.read = arena{} // strings may be kept, so that its blocks are not used again
	return err
}

// count adds the candidates that are matches to those of their left rows.
func (o *lookupJoinOp) count() {
	add := func(i int) {
		if own := int(o.own[i]); o.srcSide == 0 {
			o.matches[own]++
		} else {
			o.touched[o.meets[i]].is += o.src.Weight(own)
		}
	}
	if o.residual == nil {
		for i := range o.own {
			add(i)
		}
		return
	}
	for _, i := range o.pass {
		add(int(i))
	}
}

func (o *lookupJoinOp) Watermark(port int, w Watermark, _ Emitter) error {
	if o.counts {
		return nil
	}
	for i, p := range o.output {
		side, p := o.origin(p)
		// Rows of the other side bring old rows of this one back into the output: of the keys the smaller watermark holds.
		if k := keyIndex(o.keys[side], p); k >= 0 && o.keys[port][k] == w.Column {
			if v, ok := o.marks.merge(port, i, w.Value); ok {
				o.pend.set(Watermark{Column: i, Value: v})
			}
		}
	}
	return nil
}

func (o *lookupJoinOp) Barrier(b checkpoint.Barrier, out Emitter) error {
	if err := o.settle(out); err != nil {
		return err
	}
	o.epoch = o.waiting.epoch(b)
	if err := o.join(o.epoch, out); err != nil {
		return err
	}
	if o.counts {
		if err := o.pads.flush(out); err != nil {
			return err
		}
	}
	return o.pend.emit(out)
}

// account tells the budget what the rows that wait and those whose matches changed take, about.
func (o *lookupJoinOp) account() {
	o.report(int64(o.waiting.rows)*int64(16*o.width[0]) + o.bytes)
}

func (o *lookupJoinOp) Close() error {
	if o.probe != nil {
		o.probe.Close()
	}
	return o.base.Close()
}
