package op

import (
	"encoding/binary"

	"github.com/cespare/xxhash/v2"

	"github.com/streamdb/streamdb/checkpoint"
	"github.com/streamdb/streamdb/planner/plan"
	"github.com/streamdb/streamdb/types"
)

// temporalJoinOp joins left rows with what the right relation holds in their epoch (see plan.TemporalJoin).
//
// Left rows wait for the barrier, when the right side of the epoch is complete. With Point the right row is read from its relation, else the right rows
// are state table 0: join key · encoded row → varint count. What left rows brought that may go is in state table 1: stream key → for each row of that key
// that brought anything its hash (8 bytes), uvarint number of items, and per item a byte (0: a match, 1: the condition failed) · varint count · uvarint
// length · encoded right row.
type temporalJoinOp struct {
	base
	joinPairs
	keys    [2][]int
	never   [2][]int // columns in which NULL matches nothing
	outer   bool
	probe   Probe
	by      *plan.LookupIndex // of probe
	right   table
	brought table
	tie     []int

	forgets bool        // left rows never go
	waiting waitingRows // of left rows that never go
	delta   rowDelta    // of others
	bytes   int64

	leaving bool // the rows of the chunk in work go
	hash    []uint64
	spread  []uint64
	values  []*types.Vector
	ties    []*types.Vector
	key     []byte
	val     []byte
	row     []byte
	sets    []byte

	items   []temporalItem // per candidate
	kept    arena          // encoded right rows of the candidates
	matched []bool
	set     [][]byte // per row of src what it brings
	numbers []uint64
	check   []uint16 // candidates whose condition is tested again
	sel     []uint16
	pads    *outBuf
	marks   groupMarks
}

var _ Operator = (*temporalJoinOp)(nil)

// temporalItem is a candidate's right row.
type temporalItem struct {
	count  int64
	row    []byte
	failed bool // leaving: the condition failed when the left row came
}

func (o *temporalJoinOp) Open(ctx *Context) error {
	o.ctx = ctx
	j := o.node.TemporalJoin
	o.keys, o.outer = [2][]int{j.LeftKeys, j.RightKeys}, j.Type == plan.Left
	all, err := o.openPairs(ctx, j.Output, j.Residual)
	if err != nil {
		return err
	}
	o.pads = newOutBuf(all)
	o.pads.cols = o.output
	for i := range o.keys {
		o.never[i] = strictColumns(o.keys[i], j.NullSafe)
	}
	o.forgets = o.node.Inputs[0].AppendOnly
	o.waiting.open(ctx, 0)
	o.tie = inputKey(o.node, 0, o.width[0])
	if j.Point != nil {
		s := o.node.Inputs[1].Scan
		o.by = s.Lookup
		if o.probe, err = ctx.Probe(s.Relation, s.Columns, o.by); err != nil {
			return err
		}
	} else if o.right, err = openTable(ctx, o.node, 0, orderedMode); err != nil {
		return err
	}
	if !o.forgets {
		o.brought, err = openTable(ctx, o.node, 1, orderedMode)
	}
	return err
}

func (o *temporalJoinOp) Process(port int, c *types.Chunk, out Emitter) error {
	if port == 1 {
		return o.change(c)
	}
	for i := range c.Rows() {
		r := c.Row(i)
		if !o.forgets {
			o.row = types.AppendRow(o.row[:0], c.Cols, r)
			o.delta.add(o.row, c.Weight(r))
			o.waiting.rows++
			o.bytes += int64(len(o.row)) + 64
			continue
		}
		o.waiting.add(c, r)
		o.bytes += int64(16 * o.width[0])
	}
	o.account()
	if o.waiting.enough() {
		return o.join(0, out)
	}
	return nil
}

// change takes changes of the right side.
func (o *temporalJoinOp) change(c *types.Chunk) error {
	o.hash = hashesOf(o.hash, c, o.keys[1])
	o.values = pick(o.values, c, o.keys[1])
	for i := range c.Rows() {
		r := c.Row(i)
		if anyNull(c, o.never[1], r) {
			continue
		}
		o.key = types.AppendKeyRow(o.key[:0], o.values, r)
		o.key = types.AppendRow(o.key, c.Cols, r)
		if err := addCount(&o.right, o.node, keyGroup(o.ctx, o.hash[r]), o.key, c.Weight(r)); err != nil {
			return err
		}
	}
	return nil
}

func (o *temporalJoinOp) Watermark(port int, w Watermark, _ Emitter) error {
	if port == 1 {
		return nil
	}
	for i, p := range o.output {
		if p == w.Column && keyIndex(o.node.WatermarkCols, i) >= 0 {
			o.marks.set(Watermark{Column: i, Value: w.Value})
		}
	}
	return nil
}

func (o *temporalJoinOp) Barrier(b checkpoint.Barrier, out Emitter) error {
	if o.ctx.Filling && b.Filling.Early() {
		return nil // the right side is not complete yet
	}
	if err := o.join(o.waiting.epoch(b), out); err != nil {
		return err
	}
	return o.marks.emit(out)
}

// join joins the rows that wait with the right side of an epoch.
func (o *temporalJoinOp) join(epoch uint64, out Emitter) error {
	if o.waiting.rows == 0 {
		return nil
	}
	if o.probe != nil {
		if err := o.probe.Seek(epoch); err != nil {
			return err
		}
	}
	if !o.forgets {
		// What goes first: a row that replaces another may have its key.
		for _, leaving := range [...]bool{true, false} {
			if err := o.changed(leaving, out); err != nil {
				return err
			}
		}
		o.delta.reset()
	}
	if err := o.waiting.take(func(c *types.Chunk) error { return o.work(c, false, out) }); err != nil {
		return err
	}
	o.bytes = 0
	o.account()
	if err := o.pads.flush(out); err != nil {
		return err
	}
	o.kept = arena{} // strings may be kept, so that its blocks are not used again
	return nil
}

// changed works on the left rows that go, or on those that come.
func (o *temporalJoinOp) changed(leaving bool, out Emitter) error {
	c := o.waiting.chunk()
	for _, k := range o.delta.order {
		w := o.delta.weight[k]
		if w == 0 || w < 0 != leaving {
			continue
		}
		sign := int64(1)
		if leaving {
			sign = -1
		}
		for ; w != 0; w -= sign { // each brings its own
			if _, err := types.DecodeRows(k, 1, c.Cols); err != nil {
				return err
			}
			if c.PushWeight(sign); c.N < types.MaxChunkRows {
				continue
			}
			if err := o.work(c, leaving, out); err != nil {
				return err
			}
			c.Reset()
		}
	}
	err := o.work(c, leaving, out)
	o.waiting.release(c)
	return err
}

// work emits what left rows bring, or take with them.
func (o *temporalJoinOp) work(c *types.Chunk, leaving bool, out Emitter) error {
	if c.N == 0 {
		return nil
	}
	j := o.node.TemporalJoin
	o.src, o.leaving = c, leaving
	o.matched, o.numbers = append(o.matched[:0], make([]bool, c.N)...), append(o.numbers[:0], make([]uint64, c.N)...)
	for len(o.set) < c.N {
		o.set = append(o.set, nil)
	}
	if !o.forgets {
		o.spread = hashesOf(o.spread, c, j.Spread)
		o.ties = pick(o.ties, c, o.tie)
	}
	find := o.keys[0]
	if o.probe != nil {
		find = j.Point
	}
	o.hash = hashesOf(o.hash, c, find)
	o.values = pick(o.values, c, find)
	for r := range c.N {
		o.set[r] = o.set[r][:0]
		var err error
		switch {
		case leaving:
			err = o.leave(r, out)
		case anyNull(c, o.never[0], r):
		case o.probe != nil:
			err = o.lookUp(r, out)
		default:
			err = o.find(r, out)
		}
		if err != nil {
			return err
		}
	}
	if err := o.flushCandidates(out); err != nil {
		return err
	}
	for r := range c.N {
		if o.outer && !o.matched[r] {
			o.pad(o.pads.c, 0, c, r)
			if err := o.pads.push(c.Weight(r), out); err != nil {
				return err
			}
		}
		if !leaving && o.numbers[r] > 0 {
			if err := o.remember(r); err != nil {
				return err
			}
		}
	}
	return o.cancelled()
}

// lookUp makes candidates of the right rows with the key that row r has.
func (o *temporalJoinOp) lookUp(r int, out Emitter) error {
	o.key = appendLookupKey(o.key[:0], o.values, r, o.by)
	right := o.columns(o.cand, 1)
	return o.probe.Each(o.hash[r], o.key, right, func() error {
		var row []byte
		if !o.forgets {
			o.row = types.AppendRow(o.row[:0], right, o.cand.N)
			row = o.kept.get(o.kept.add(o.row), len(o.row))
		}
		return o.candidate(r, temporalItem{count: 1, row: row}, out)
	})
}

// find makes candidates of the right rows in state with the key of row r.
func (o *temporalJoinOp) find(r int, out Emitter) error {
	o.key = types.AppendKeyRow(o.key[:0], o.values, r)
	return o.right.scan(keyGroup(o.ctx, o.hash[r]), o.key, false, func(k, v []byte) (bool, error) {
		n, w := binary.Varint(v)
		if w <= 0 {
			return false, errCorruptState(o.node)
		}
		if n <= 0 {
			return true, nil
		}
		row := k[len(o.key):]
		return true, o.encoded(r, temporalItem{count: n, row: o.kept.get(o.kept.add(row), len(row))}, out)
	})
}

// encoded makes a candidate of a right row that is encoded.
func (o *temporalJoinOp) encoded(r int, it temporalItem, out Emitter) error {
	if _, err := types.DecodeRows(viewString(it.row), 1, o.columns(o.cand, 1)); err != nil {
		return err
	}
	return o.candidate(r, it, out)
}

// leave makes candidates of what row r brought.
func (o *temporalJoinOp) leave(r int, out Emitter) error {
	o.key = types.AppendKeyRow(o.key[:0], o.ties, r)
	kg := keyGroup(o.ctx, o.spread[r])
	v, ok, err := o.brought.get(kg, o.key)
	if err != nil || !ok {
		return err
	}
	o.sets = append(o.sets[:0], v...)
	id := o.rowHash(r)
	// The last of equal rows goes: one is as good as another.
	from, to := -1, 0
	b := byteReader{b: o.sets}
	for len(b.b) > 0 && !b.bad {
		at := len(o.sets) - len(b.b)
		h := b.bytes(8)
		for n := b.uvarint(); n > 0 && !b.bad; n-- {
			b.byte()
			b.varint()
			b.bytes(int(b.uvarint()))
		}
		if !b.bad && binary.BigEndian.Uint64(h) == id {
			from, to = at, len(o.sets)-len(b.b)
		}
	}
	if b.bad {
		return errCorruptState(o.node)
	}
	if from < 0 {
		return nil
	}
	b = byteReader{b: o.sets[from+8 : to]}
	for n := b.uvarint(); n > 0; n-- {
		it := temporalItem{failed: b.byte() == 1, count: b.varint()}
		row := b.bytes(int(b.uvarint()))
		it.row = o.kept.get(o.kept.add(row), len(row))
		if err := o.encoded(r, it, out); err != nil {
			return err
		}
	}
	o.sets = append(o.sets[:from], o.sets[to:]...)
	if len(o.sets) == 0 {
		return o.brought.del(kg, o.key)
	}
	return o.brought.put(kg, o.key, o.sets)
}

// remember stores what row r has brought.
func (o *temporalJoinOp) remember(r int) error {
	o.key = types.AppendKeyRow(o.key[:0], o.ties, r)
	kg := keyGroup(o.ctx, o.spread[r])
	v, _, err := o.brought.get(kg, o.key)
	if err != nil {
		return err
	}
	o.val = append(o.val[:0], v...)
	o.val = binary.BigEndian.AppendUint64(o.val, o.rowHash(r))
	o.val = binary.AppendUvarint(o.val, o.numbers[r])
	o.val = append(o.val, o.set[r]...)
	return o.brought.put(kg, o.key, o.val)
}

func (o *temporalJoinOp) rowHash(r int) uint64 {
	o.row = types.AppendRow(o.row[:0], o.src.Cols, r)
	return xxhash.Sum64(o.row)
}

// candidate adds a pair whose right columns have been appended.
func (o *temporalJoinOp) candidate(r int, it temporalItem, out Emitter) error {
	o.items = append(o.items, it)
	if o.paired(r) {
		return o.flushCandidates(out)
	}
	return nil
}

// flushCandidates completes the candidates, tests the condition and emits those that pass.
func (o *temporalJoinOp) flushCandidates(out Emitter) error {
	if o.cand.N == 0 {
		return nil
	}
	for i, r := range o.own {
		o.weights = append(o.weights, o.items[i].count*o.src.Weight(int(r)))
	}
	if err := o.complete(&o.base); err != nil {
		return err
	}
	if err := o.match(); err != nil {
		return err
	}
	for _, i := range o.pass {
		o.matched[o.own[i]] = true
	}
	if !o.leaving && !o.forgets {
		for _, i := range o.pass {
			o.bring(int(i), 0)
		}
		for _, i := range o.failures.errs.Rows {
			o.bring(int(i), 1)
		}
	}
	err := o.emit(out)
	o.clear()
	o.items = o.items[:0]
	return err
}

// match sets pass to the candidates that are matches, and reports those whose condition fails. Of rows that go it has been tested: only what failed then fails
// once more, so that its report goes too.
func (o *temporalJoinOp) match() error {
	if o.residual != nil && !o.leaving {
		return o.test(&o.base)
	}
	o.pass, o.check = o.pass[:0], o.check[:0]
	o.failures.errs.Reset()
	for i := range o.items {
		if o.items[i].failed {
			o.check = append(o.check, uint16(i))
		} else {
			o.pass = append(o.pass, uint16(i))
		}
	}
	if len(o.check) == 0 {
		return nil
	}
	o.view.Sel = o.check
	matches := o.pass
	o.pass = o.sel
	err := o.test(&o.base)
	o.pass, o.sel = matches, o.pass
	return err
}

// bring notes what a candidate brings to its left row.
func (o *temporalJoinOp) bring(i int, kind byte) {
	r, it := o.own[i], &o.items[i]
	b := binary.AppendVarint(append(o.set[r], kind), it.count)
	b = binary.AppendUvarint(b, uint64(len(it.row)))
	o.set[r] = append(b, it.row...)
	o.numbers[r]++
}

// account tells the budget what the rows that wait take.
func (o *temporalJoinOp) account() {
	o.report(o.bytes)
}

func (o *temporalJoinOp) Close() error {
	if o.probe != nil {
		o.probe.Close()
	}
	return o.base.Close()
}
