package op

import (
	"github.com/streamdb/streamdb/checkpoint"
	"github.com/streamdb/streamdb/planner/plan"
	"github.com/streamdb/streamdb/sql/expr"
	"github.com/streamdb/streamdb/types"
)

// joinOp joins two inputs. Each delta first changes its own side, then meets the present rows of the other side: together the
// deltas of an epoch produce Δa⋈b + a⋈Δb + Δa⋈Δb, each pair once.
//
// What depends on the absence or presence of matches (the NULL-padded rows of outer joins, the rows of semi and anti joins) is brought up to date
// at the barrier. Matches are counted for keys, where there is a condition beside them for rows. Invariant: of a key (then: of a row) that is shown, every row of the side is emitted, with its
// count; a row's later changes are passed on at once while that is so.
type joinOp struct {
	base
	joinPairs
	keys     [2][]int
	keyTypes []types.Type
	shows    [2]showMode
	pairs    bool    // matching pairs are output
	search   [2]bool // rows may come that are there already
	once     [2]bool // rows have one partner at most
	wanted   *joinWanted
	closing  joinClosing
	expiry   joinExpiry
	rng      *joinRange // nil for none; its condition is a part of residual
	tally    [2]bool    // matches are counted for each row of the side
	perRow   bool       // for any
	never    [2][]int   // columns in which NULL matches nothing
	nulls    keptNulls  // rows with NULL in those that are shown
	st       joinState
	hot      hotKeys

	chunks      uint // since the start
	epoch       uint32
	touched     []uint32 // keys
	touchedRows []uint32 // of sides whose rows count their matches
	dead        []uint32 // rows that have become 0, or are met, removed when no candidate refers to them any more

	spread []uint64 // hashes that say where rows are stored, of joins that are spread

	grp   []uint32
	sel   []uint16
	dense types.Chunk
	buf   []byte

	ownRow   []uint32 // per candidate the kept rows
	otherRow []uint32
	read     *types.Chunk // kept rows of the candidates, each once
	reads    int          // of them
	readAt   []uint16     // per candidate where its row is in read
	batch    uint32       // of candidates
	pads     [2]*outBuf
	marks    mergedMarks
	pend     groupMarks
}

var (
	_ Operator = (*joinOp)(nil)
	_ HotKeyed = (*joinOp)(nil)
)

// showMode tells when rows of a side are output by themselves.
type showMode uint8

const (
	showNever     showMode = iota
	showUnmatched          // outer and anti joins
	showMatched            // semi joins
)

func (o *joinOp) Open(ctx *Context) error {
	o.ctx = ctx
	j := o.node.Join
	o.keys = [2][]int{j.LeftKeys, j.RightKeys}
	for i := range 2 {
		in := o.node.Inputs[i]
		o.search[i] = !ctx.OneShot && !(in.AppendOnly && in.Key != nil)
	}
	for _, side := range j.Once {
		o.once[side] = true
	}
	if j.Wanted != nil {
		prog, err := expr.Compile(j.Wanted.Cond, ctx.Lib)
		if err != nil {
			return err
		}
		o.wanted = &joinWanted{side: j.Wanted.Side, prog: prog}
	}
	for _, k := range j.LeftKeys {
		o.keyTypes = append(o.keyTypes, ctx.InputTypes[0][k])
	}
	o.pairs = true
	switch j.Type {
	case plan.Left:
		o.shows[0] = showUnmatched
	case plan.Right:
		o.shows[1] = showUnmatched
	case plan.Full:
		o.shows = [2]showMode{showUnmatched, showUnmatched}
	case plan.Semi:
		o.shows[0], o.pairs = showMatched, false
	case plan.Anti:
		o.shows[0], o.pairs = showUnmatched, false
	}
	output := j.Output
	if output == nil && !o.pairs {
		output = identity(len(ctx.InputTypes[0]))
	}
	cond := j.Residual
	if j.Range != nil {
		o.rng = newJoinRange(o, j.Range, ctx.InputTypes)
		if cond = j.Range.Cond; j.Residual != nil {
			cond = &expr.Expr{Kind: expr.And, Type: types.Bool, Args: []*expr.Expr{cond, j.Residual}, Pos: -1}
		}
	}
	all, err := o.openPairs(ctx, output, cond)
	if err != nil {
		return err
	}
	for i := range o.pads {
		o.pads[i] = newOutBuf(all)
		o.pads[i].cols = o.output
	}
	o.epoch, o.batch = 1, 1
	o.read = types.NewChunk(all)
	o.marks.ports = 2
	o.closing.init(o)
	o.expiry.init(o)
	for i := range 2 {
		o.tally[i] = cond != nil && (o.shows[i] != showNever || o.closing.pads[i] || o.expiry.pads[i])
		o.perRow = o.perRow || o.tally[i]
		o.never[i] = strictColumns(o.keys[i], j.NullSafe)
		if o.rng != nil {
			o.never[i] = append(o.never[i], o.rng.never[i]...)
		}
	}
	o.st = joinState{o: o, complete: true, lent: hasStrings(all)}
	o.st.reset()
	for i := range 2 {
		if o.st.tables[i], err = openTable(ctx, o.node, uint32(i), stagedMode); err != nil {
			return err
		}
	}
	if err := o.closing.open(ctx); err != nil {
		return err
	}
	if err := o.expiry.open(ctx); err != nil {
		return err
	}
	if err := o.nulls.open(ctx, o.node, j.KeepNulls); err != nil {
		return err
	}
	return o.st.restore()
}

// evictable reports whether rows need not be in memory.
func (o *joinOp) evictable() bool { return !o.closing.on && !o.expiry.on && o.node.Join.Spread == nil }

// wants reports whether rows of a side are to be shown that have matches of the given weight.
func (o *joinOp) wants(side int, matches int64) bool {
	return o.shows[side] != showNever && (matches > 0) == (o.shows[side] == showMatched)
}

func (o *joinOp) added(g uint32, r int) error {
	if o.closing.on {
		o.closing.list(g, o.src.Cols[o.keys[o.srcSide][o.closing.key]].Int[r])
	}
	return o.st.load(g)
}

func (o *joinOp) Process(port int, c *types.Chunk, out Emitter) error {
	if c.Rows() == 0 {
		return nil
	}
	var err error
	if o.closing.marked {
		if c, err = o.closing.dropLate(port, c); err != nil {
			return err
		}
	}
	if c, err = o.expiry.dropLate(port, c); err != nil {
		return err
	}
	if c, err = o.dropNulls(port, c, out); err != nil {
		return err
	}
	n := c.Rows()
	if n > 0 {
		if cap(o.grp) < n {
			o.grp = make([]uint32, max(n, types.MaxChunkRows))
		}
		grp := o.grp[:n]
		o.src, o.srcSide = c, port
		if o.node.Join.Spread != nil {
			o.spread = hashesOf(o.spread, c, o.storedBy(port))
		}
		if err := o.st.groups.lookup(c, o.keys[port], grp, o.added); err != nil {
			return err
		}
		if o.wanted != nil && o.wanted.side == port {
			if err := o.wanted.test(&o.base, c); err != nil {
				return err
			}
		}
		for i, g := range grp {
			if err := o.apply(g, c, c.Row(i), out); err != nil {
				return err
			}
		}
		if err := o.flushCandidates(out); err != nil {
			return err
		}
		if err := o.bury(); err != nil {
			return err
		}
		if o.chunks++; o.chunks%relieveChunks == 0 && o.st.tables[0].part != nil && o.evictable() {
			o.st.account()
			o.relieve(o.reported)
		}
	}
	return o.flushPads(out)
}

// storedBy returns the columns by whose hash the rows of a side are stored.
func (o *joinOp) storedBy(port int) []int {
	switch j := o.node.Join.Spread; {
	case j == nil:
		return o.keys[port]
	case j.Side == port:
		return j.Columns
	}
	return inputKey(o.node, port, o.width[port])
}

// dropNulls takes the rows out that can never match; to join others they need no state.
func (o *joinOp) dropNulls(port int, c *types.Chunk, out Emitter) (*types.Chunk, error) {
	nullable := false
	for _, p := range o.never[port] {
		nullable = nullable || c.Cols[p].Valid != nil
	}
	if !nullable {
		return c, nil
	}
	o.sel = o.sel[:0]
	if o.sel == nil {
		o.sel = make([]uint16, 0, types.MaxChunkRows)
	}
	o.nulls.begin()
	for i := range c.Rows() {
		r := c.Row(i)
		if !anyNull(c, o.never[port], r) {
			o.sel = append(o.sel, uint16(r))
			continue
		}
		if o.shows[port] == showUnmatched || o.closing.pads[port] || o.expiry.pads[port] {
			if err := o.padChunkRow(port, c, r, c.Weight(r), out); err != nil {
				return nil, err
			}
			if err := o.nulls.add(port, c, r, o.storedBy(port)); err != nil {
				return nil, err
			}
		}
	}
	o.dense = types.Chunk{Cols: c.Cols, N: c.N, Sel: o.sel, Weights: c.Weights}
	return &o.dense, nil
}

// apply changes the own side by one row and makes candidates of the rows of the other side with its key.
func (o *joinOp) apply(g uint32, c *types.Chunk, r int, out Emitter) error {
	st, side := &o.st, o.srcSide
	words := st.groups.row(g)
	if uint32(words[joinFlags]) != o.epoch {
		words[joinFlags] = words[joinFlags]&^uint64(^uint32(0)) | uint64(o.epoch)
		o.touched = append(o.touched, g)
	}
	unwanted := o.wanted != nil && o.wanted.side == side && !o.wanted.met.Get(r)
	if o.once[side] && half(words[joinHeads], 1-side) != 0 {
		if !unwanted {
			if err := o.probe(g, words, r, 0, out); err != nil {
				return err
			}
		}
		if o.once[1-side] {
			o.met(words, 1-side)
		}
		return nil
	}
	w := c.Weight(r)
	o.buf = types.AppendRow(o.buf[:0], c.Cols, r)
	var i uint32
	found := false
	// State holds one entry per distinct row, so equal rows must share one, unless none can come twice.
	if o.search[side] || w < 0 || st.negative > 0 {
		i, found = st.find(g, words, side, o.buf)
	}
	if found {
		row := st.row(i)
		st.bump(row, w)
		if row.count == 0 && row.flags&rowDead == 0 {
			row.flags |= rowDead
			o.dead = append(o.dead, i)
		}
	} else {
		i = st.add(g, words, side, o.buf, w)
		if o.node.Join.Spread != nil {
			st.row(i).kg = types.KeyGroup(o.spread[r], o.ctx.Store.MaxParallelism())
		}
		if o.tally[side] {
			row := st.row(i)
			row.flags |= rowNew
			o.touchRow(i, row)
		}
		if o.rng != nil {
			o.rng.added(g, side, c, r, i)
			if o.expiry.on {
				o.expiry.list(side, c.Cols[o.expiry.column[side]].Int[r], i)
			}
		}
	}
	row := st.row(i)
	if unwanted {
		row.flags |= rowUnwanted
	}
	st.changed(i, row)
	words[joinCount+side] += uint64(w)
	if words[joinFlags]&(keyShown<<side) != 0 || row.flags&rowShown != 0 {
		if err := o.padChunkRow(side, c, r, w, out); err != nil {
			return err
		}
	}
	if !unwanted && (o.perRow || o.pairs) {
		tag := i
		if row.flags&rowNew != 0 {
			tag |= newRow
		}
		if err := o.probe(g, words, r, tag, out); err != nil {
			return err
		}
	}
	row.flags &^= rowNew
	if o.once[1-side] {
		o.met(words, 1-side)
	}
	return nil
}

// joinWanted tests the rows of one side (plan.Join.Wanted).
type joinWanted struct {
	side int
	prog *expr.Program
	errs rowFailures
	sel  []uint16
	met  types.Bitmap // of the chunk in work
}

func (w *joinWanted) test(b *base, c *types.Chunk) error {
	w.errs.errs.Reset()
	var err error
	if w.sel, err = w.prog.Filter(c, b.ctx.Env, &w.errs.errs, w.sel); err != nil {
		return err
	}
	w.met = append(w.met[:0], make(types.Bitmap, (c.N+63)/64)...)
	for _, r := range w.sel {
		w.met.Set(int(r))
	}
	_, err = w.errs.divert(b, c)
	return err
}

// met lists the rows of a chain, which have met the only partner they can have, to be removed.
func (o *joinOp) met(words []uint64, side int) {
	for n := half(words[joinHeads], side); n != 0; {
		r := o.st.row(n - 1)
		if r.flags&rowDead == 0 {
			o.dead = append(o.dead, n-1)
		}
		r.flags |= rowDead | rowMet
		n = r.next
	}
}

func (o *joinOp) touchRow(i uint32, r *joinRow) {
	if r.flags&rowTouched == 0 {
		r.flags |= rowTouched
		o.touchedRows = append(o.touchedRows, i)
	}
}

// newRow marks, in ownRow, rows whose own matches are to be counted.
const newRow = 1 << 31

// probe makes candidates of row r of the chunk in work and the rows of the other side; tag is the kept row, where matches are counted.
func (o *joinOp) probe(g uint32, words []uint64, r int, tag uint32, out Emitter) error {
	st, other := &o.st, 1-o.srcSide
	cols := o.columns(o.read, other)
	if half(words[joinLength], other) >= hotChain && len(o.keys[0]) > 0 && !o.ctx.OneShot {
		o.hot.met(o, words, r)
	}
	if o.rng != nil && half(words[joinLength], other) > orderedChain {
		return o.rng.probe(g, words, r, tag, cols, out)
	}
	for n := half(words[joinHeads], other); n != 0; {
		e := st.row(n - 1)
		if err := o.propose(n-1, e, r, tag, cols, out); err != nil {
			return err
		}
		n = e.next
	}
	return nil
}

// propose makes a candidate pair of row r of the chunk in work and a row of the other side.
func (o *joinOp) propose(i uint32, e *joinRow, r int, tag uint32, cols []*types.Vector, out Emitter) error {
	if e.count == 0 && !o.tally[1-o.srcSide] || e.flags&rowUnwanted != 0 {
		return nil
	}
	if e.readIn != o.batch {
		if _, err := types.DecodeRows(viewString(o.st.bytes(e)), 1, cols); err != nil {
			return err
		}
		e.readIn, e.readAt = o.batch, uint16(o.reads)
		o.reads++
	}
	o.readAt = append(o.readAt, e.readAt)
	o.ownRow = append(o.ownRow, tag)
	o.otherRow = append(o.otherRow, i)
	if o.paired(r) {
		return o.flushCandidates(out)
	}
	return nil
}

// flushCandidates completes the candidate pairs, tests the residual condition and emits those that pass.
func (o *joinOp) flushCandidates(out Emitter) error {
	if o.cand.N == 0 {
		return nil
	}
	for i, e := range o.otherRow {
		o.weights = append(o.weights, o.src.Weight(int(o.own[i]))*o.st.row(e).count)
	}
	o.takeRead()
	if err := o.complete(&o.base); err != nil {
		return err
	}
	if o.residual != nil {
		if err := o.test(&o.base); err != nil {
			return err
		}
		if o.perRow {
			for _, i := range o.pass {
				o.countMatch(int(i))
			}
		}
		o.pass = o.visible(o.pass, o.weights)
	}
	var err error
	if o.pairs {
		err = o.emit(out)
	}
	o.clear()
	o.ownRow, o.otherRow, o.readAt = o.ownRow[:0], o.otherRow[:0], o.readAt[:0]
	o.read.Reset()
	o.reads = 0
	if o.batch++; o.batch == 0 {
		o.batch = 1
		for i := range o.st.slab.used {
			o.st.row(uint32(i)).readIn = 0
		}
	}
	return err
}

// takeRead gives the candidates the values of their kept rows.
func (o *joinOp) takeRead() {
	to, from := o.columns(o.cand, 1-o.srcSide), o.columns(o.read, 1-o.srcSide)
	for k, v := range from {
		if o.reads == o.cand.N { // every row is in one candidate
			to[k], from[k] = v, to[k]
		} else {
			to[k].AppendGather(v, o.readAt)
		}
	}
}

// visible removes pairs of weight 0 (with rows that are just going) from the selection.
func (o *joinOp) visible(sel []uint16, weights []int64) []uint16 {
	k := 0
	for _, i := range sel {
		if weights[i] != 0 {
			sel[k] = i
			k++
		}
	}
	return sel[:k]
}

// countMatch counts a pair that passed the condition, on its rows that count their matches.
func (o *joinOp) countMatch(i int) {
	own, other := o.ownRow[i], o.otherRow[i]
	e := o.st.row(other)
	if o.tally[1-o.srcSide] {
		e.match += o.src.Weight(int(o.own[i]))
		o.touchRow(other, e)
		o.st.changed(other, e)
	}
	if own&newRow != 0 {
		o.st.row(own &^ newRow).match += e.count
	}
}

// padChunkRow puts row r of a side's chunk, NULLs for the other, into the output.
func (o *joinOp) padChunkRow(side int, c *types.Chunk, r int, w int64, out Emitter) error {
	p := o.pads[side]
	o.pad(p.c, side, c, r)
	return o.padded(p, w, out)
}

// padRow is padChunkRow for a kept row.
func (o *joinOp) padRow(side int, row *joinRow, w int64, out Emitter) error {
	p := o.pads[side]
	if _, err := types.DecodeRows(viewString(o.st.bytes(row)), 1, o.columns(p.c, side)); err != nil {
		return err
	}
	for _, v := range o.columns(p.c, 1-side) {
		v.AppendNull()
	}
	return o.padded(p, w, out)
}

func (o *joinOp) padded(p *outBuf, w int64, out Emitter) error {
	if err := p.push(w, out); err != nil || p.c.N > 0 {
		return err
	}
	return o.cancelled()
}

func (o *joinOp) flushPads(out Emitter) error {
	for _, p := range o.pads {
		if err := p.flush(out); err != nil {
			return err
		}
	}
	return nil
}

// bury removes rows whose count has come to 0, and those that have met their only partner.
func (o *joinOp) bury() error {
	for _, i := range o.dead {
		r := o.st.row(i)
		r.flags &^= rowDead
		if r.flags&rowMet != 0 {
			o.st.groups.row(r.group)[joinCount+int(r.flags&rowSide)] -= uint64(r.count)
		} else if r.count != 0 {
			continue
		}
		if r.flags&rowTouched != 0 {
			continue // still listed: the barrier removes it
		}
		if err := o.st.remove(i); err != nil {
			return err
		}
	}
	o.dead = o.dead[:0]
	return nil
}

func (o *joinOp) Watermark(port int, w Watermark, _ Emitter) error {
	o.closing.watermark(port, w)
	o.expiry.watermark(port, w)
	for i, p := range o.output {
		side, p := o.origin(p)
		k := keyIndex(o.keys[side], p)
		if k >= 0 {
			// Rows of the other side bring old rows of this one back into the output: the smaller watermark of the key holds.
			if o.keys[port][k] != w.Column {
				continue
			}
			if v, ok := o.marks.merge(port, i, w.Value); ok {
				o.pend.set(Watermark{Column: i, Value: v})
			}
			continue
		}
		if o.expiry.on && p == o.expiry.column[side] {
			continue // kept rows come back into the output
		}
		if side == port && p == w.Column && keyIndex(o.node.WatermarkCols, i) >= 0 {
			o.pend.set(Watermark{Column: i, Value: w.Value})
		}
	}
	return nil
}

func keyIndex(s []int, x int) int {
	for i, v := range s {
		if v == x {
			return i
		}
	}
	return -1
}

func (o *joinOp) Barrier(b checkpoint.Barrier, out Emitter) error {
	if err := o.showChanges(out); err != nil {
		return err
	}
	st := &o.st
	for _, g := range o.touched {
		if words := st.groups.row(g); words[joinHeads] == 0 {
			st.groups.drop(g)
		}
	}
	o.touched = o.touched[:0]
	if err := o.closing.close(out); err != nil {
		return err
	}
	if err := o.expiry.expire(out); err != nil {
		return err
	}
	if err := o.flushPads(out); err != nil {
		return err
	}
	if err := o.pend.emit(out); err != nil {
		return err
	}
	if err := o.expiry.promise(out); err != nil {
		return err
	}
	st.trimUnsaved()
	o.hot.publish()
	o.epoch++
	if o.epoch == 0 {
		o.epoch = 1
		_ = st.groups.each(func(_ uint32, words []uint64) error {
			words[joinFlags] &^= uint64(^uint32(0))
			return nil
		})
	}
	st.compact()
	if b.Checkpoint != 0 && st.tables[0].part != nil {
		if err := st.save(); err != nil {
			return err
		}
		if err := o.closing.save(); err != nil {
			return err
		}
		if err := o.expiry.save(); err != nil {
			return err
		}
		st.account()
		if o.ctx.Budget.Over() && o.evictable() {
			// Everything is in state; keys come back as they are needed.
			if err := st.evict(); err != nil {
				return err
			}
		}
	}
	st.account()
	return nil
}

// showChanges emits the rows of keys, or single rows, that have come to be shown or have ceased to.
func (o *joinOp) showChanges(out Emitter) error {
	st := &o.st
	if o.residual != nil {
		// Of keys nothing is shown.
		for _, i := range o.touchedRows {
			r := st.row(i)
			r.flags &^= rowTouched
			side := int(r.flags & rowSide)
			if want := o.wants(side, r.match); r.count != 0 && want != (r.flags&rowShown != 0) {
				w := r.count
				if !want {
					w = -w
				}
				r.flags ^= rowShown
				if err := o.padRow(side, r, w, out); err != nil {
					return err
				}
			}
			if r.count == 0 {
				if err := st.remove(i); err != nil {
					return err
				}
			}
		}
		o.touchedRows = o.touchedRows[:0]
		return nil
	}
	for _, g := range o.touched {
		words := st.groups.row(g)
		for side := range 2 {
			want := o.wants(side, int64(words[joinCount+1-side]))
			if o.shows[side] == showNever || want == (words[joinFlags]&(keyShown<<side) != 0) {
				continue
			}
			words[joinFlags] ^= keyShown << side
			for n := half(words[joinHeads], side); n != 0; {
				r := st.row(n - 1)
				w := r.count
				if !want {
					w = -w
				}
				if err := o.padRow(side, r, w, out); err != nil {
					return err
				}
				n = r.next
			}
		}
	}
	return nil
}
