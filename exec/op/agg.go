package op

import (
	"errors"
	"math"
	"slices"

	"github.com/streamdb/streamdb/checkpoint"
	"github.com/streamdb/streamdb/types"
)

// aggOp is the hash aggregation.
//
// State tables: 0 (staged), group key → group row:
//
//	version 1 · uvarint length and values of the key as first seen (byte keys only) · varint count · per call its words as varints, then
//	uvarint length and bytes of its variable part
//
// 1 (ordered), for calls that need the values themselves: group key, call number, entry → count, value (see the calls); 4, for DISTINCT (see distinctSet).
// 2 (ordered), the watermark of OnClose (see markTable).
//
// The group table is the working copy: groups changed since the last checkpoint are put into table 0 before a checkpoint barrier returns. While
// the table is complete an absent group does not exist; after an eviction, or a restore that stopped at the budget, it is looked up.
type aggOp struct {
	base
	groups   *groupTable
	calls    []aggCall
	vars     [][]callVar // per group, when a call has a variable part
	hasVar   bool
	extra    int // words behind those of the calls, of whoever extends the operator
	state    table
	side     table
	sided    bool // calls have entries in it
	distinct []*distinctSet
	values   table // theirs
	marks    markTable
	complete bool

	keyTypes []types.Type
	epoch    uint32
	dirty    []uint32 // groups touched in the epoch, with the output they had before in old
	oldKind  []outKind
	oldErrs  map[int]error
	old      *types.Chunk
	unsaved  []uint32 // groups to be put at the next checkpoint
	loaded   []uint32 // groups read from state since the last checkpoint: recently used
	chunks   int      // since Open, for relieve

	mark    int64
	marked  bool
	markDue bool          // to be forwarded at the barrier
	windows openWindows   // of OnClose: the live groups by the end of their window
	endCol  *types.Vector // the column of window ends of the rows in work
	pend    groupMarks    // of other group columns, to be forwarded at the barrier

	grp   []uint32
	batch aggBatch
	lateN types.Chunk
	sel   []uint16
	out   *outBuf
	fresh *types.Chunk
	key   []byte
	val   []byte
}

var _ Operator = (*aggOp)(nil)

// outKind tells what a group shows: nothing, a row, or an error in place of its row.
type outKind uint8

const (
	outNone outKind = iota
	outRow
	outError
)

// Words of an aggregation's group row behind the key's.
const (
	aggFlags = rowUser     // low half: epoch of the last touch; then flags
	aggCount = rowUser + 1 // sum of weights
	aggWords = rowUser + 2 // first word of the calls
)

const (
	flagOut     = 1 << 32 // has been emitted: state holds an output of it
	flagStored  = 1 << 33 // table 0 has an entry
	flagUnsaved = 1 << 34 // is in unsaved
	flagFailed  = 1 << 35 // what has been emitted is an error
	flagQueued  = 1 << 36 // in the queue of what expires, as all stored groups are
)

const aggStateVersion = 1

func (o *aggOp) Open(ctx *Context) error {
	o.ctx = ctx
	a := o.node.Agg
	in := ctx.InputTypes[0]
	for _, c := range a.GroupBy {
		o.keyTypes = append(o.keyTypes, in[c])
	}
	var err error
	if o.state, err = openTable(ctx, o.node, 0, stagedMode); err != nil {
		return err
	}
	if o.side, err = openTable(ctx, o.node, 1, orderedMode); err != nil {
		return err
	}
	words := aggWords - rowUser
	o.old = &types.Chunk{}
	o.fresh = &types.Chunk{}
	for i, c := range a.Calls {
		call, err := o.newCall(i, c)
		if err != nil {
			return err
		}
		o.calls = append(o.calls, call)
		words += call.place(rowUser + words)
		o.hasVar, o.sided = o.hasVar || call.variable(), o.sided || call.sided()
		o.old.Cols = append(o.old.Cols, &types.Vector{Type: c.Type})
		o.fresh.Cols = append(o.fresh.Cols, &types.Vector{Type: c.Type})
	}
	if len(o.distinct) > 0 {
		if o.values, err = openTable(ctx, o.node, 4, stagedMode); err != nil {
			return err
		}
	}
	for _, s := range o.distinct {
		s.open()
	}
	o.groups = newGroupTable(o.keyTypes, words+o.extra)
	o.out = newOutBuf(o.node.Schema.Types())
	o.oldErrs = map[int]error{}
	o.windows.init()
	o.epoch = 1
	o.complete = true
	if o.state.part != nil {
		if err := o.restore(); err != nil {
			return err
		}
	}
	if a.Global {
		return o.openGlobal()
	}
	return nil
}

// openGlobal makes the one group of an aggregation without group columns exist, so that its row is emitted even without input.
func (o *aggOp) openGlobal() error {
	one := &types.Chunk{N: 1}
	var g [1]uint32
	if err := o.groups.lookup(one, nil, g[:], o.added); err != nil {
		return err
	}
	if o.groups.row(g[0])[aggFlags]&flagOut == 0 {
		return o.touch(g[0], o.groups.row(g[0]))
	}
	return nil
}

// added prepares a new group: it is read from state when that may have it.
func (o *aggOp) added(g uint32, r int) error {
	row := o.groups.row(g)
	if o.endCol != nil && !o.endCol.IsNull(r) {
		o.windows.list(o.endCol.Int[r], g) // until it closes: only that drops groups of such aggregations
	}
	if o.hasVar {
		o.growVars(g)
	}
	if o.complete {
		return nil
	}
	o.key = o.groups.appendKey(o.key[:0], row)
	v, ok, err := o.state.get(keyGroup(o.ctx, row[rowHash]), o.key)
	if err != nil || !ok {
		return err
	}
	o.loaded = append(o.loaded, g)
	return o.decodeGroup(g, row, v)
}

func (o *aggOp) growVars(g uint32) {
	for int(g) >= len(o.vars) {
		o.vars = append(o.vars, nil)
	}
	o.vars[g] = make([]callVar, len(o.calls))
}

func (o *aggOp) callVars(g uint32) []callVar {
	if !o.hasVar {
		return nil
	}
	return o.vars[g]
}

func (o *aggOp) Process(_ int, c *types.Chunk, out Emitter) error {
	if o.node.Agg.OnClose >= 0 && o.marked && c.Rows() > 0 {
		var err error
		if c, err = o.dropLate(c); err != nil {
			return err
		}
	}
	n := c.Rows()
	if n == 0 {
		return nil
	}
	if cap(o.grp) < n {
		o.grp = make([]uint32, max(n, types.MaxChunkRows))
	}
	grp := o.grp[:n]
	if k := o.node.Agg.OnClose; k >= 0 {
		o.endCol = c.Cols[o.node.Agg.GroupBy[k]]
	}
	if err := o.groups.lookup(c, o.node.Agg.GroupBy, grp, o.added); err != nil {
		return err
	}
	b := &o.batch
	b.c, b.groups, b.rows, b.weights = c, grp, c.Sel, nil
	if c.Weights != nil {
		b.weights = b.wbuf[:0]
		for i := range n {
			b.weights = append(b.weights, c.Weights[c.Row(i)])
		}
		b.wbuf = b.weights
	}
	var counts []int64
	if k := o.node.Agg.Rows; k != nil {
		counts = c.Cols[*k].Int
	}
	width, slabs := o.groups.width, o.groups.slabs
	for i, g := range grp {
		at := int(g&(slabRows-1)) * width
		row := slabs[g>>slabBits][at : at+aggWords]
		if uint32(row[aggFlags]) != o.epoch {
			if err := o.touch(g, o.groups.row(g)); err != nil {
				return err
			}
		}
		switch {
		case counts != nil:
			row[aggCount] += uint64(b.weight(i) * counts[b.row(i)])
		case b.weights == nil:
			row[aggCount]++
		default:
			row[aggCount] += uint64(b.weights[i])
		}
	}
	for _, call := range o.calls {
		if err := call.update(b); err != nil {
			return err
		}
	}
	o.relieve()
	return nil
}

// dropLate diverts rows whose window has closed.
func (o *aggOp) dropLate(c *types.Chunk) (*types.Chunk, error) {
	end := c.Cols[o.node.Agg.GroupBy[o.node.Agg.OnClose]]
	if end.Valid == nil && c.Sel == nil && slices.Min(end.Int[:c.N]) >= o.mark {
		return c, nil
	}
	return divertLate(&o.base, c, end, o.mark, true, &o.sel, &o.lateN)
}

// touch lists a group as changed in this epoch and keeps the output that it has now.
func (o *aggOp) touch(g uint32, row []uint64) error {
	flags := row[aggFlags]
	row[aggFlags] = flags&^uint64(^uint32(0)) | uint64(o.epoch)
	if row[aggFlags]&flagUnsaved == 0 && o.state.part != nil {
		row[aggFlags] |= flagUnsaved
		o.unsaved = append(o.unsaved, g)
	}
	if o.node.Agg.OnClose >= 0 {
		return nil
	}
	at := len(o.dirty)
	o.dirty = append(o.dirty, g)
	kind := outNone
	if flags&flagOut != 0 {
		var err error
		if kind, err = o.finish(g, row, o.old.Cols); err != nil {
			if kind != outError {
				return err
			}
			o.oldErrs[at] = err
		}
	} else {
		for _, v := range o.old.Cols {
			v.AppendNull()
		}
	}
	o.oldKind = append(o.oldKind, kind)
	return nil
}

// finish appends the results of a group's calls to cols. An error of an aggregate (outError) leaves NULLs; any other error is one of the state.
func (o *aggOp) finish(g uint32, row []uint64, cols []*types.Vector) (outKind, error) {
	var failed error
	vars := o.callVars(g)
	for j, call := range o.calls {
		n := cols[j].Len()
		var cv *callVar
		if vars != nil {
			cv = &vars[j]
		}
		if err := call.final(row, cv, cols[j]); err != nil {
			var fatal stateError
			if errors.As(err, &fatal) {
				return outNone, fatal.error
			}
			cols[j].Resize(n)
			cols[j].AppendNull()
			if failed == nil {
				failed = err
			}
		}
	}
	if failed != nil {
		return outError, failed
	}
	return outRow, nil
}

// stateError marks errors that are not the aggregate's own.
type stateError struct{ error }

func (o *aggOp) Watermark(_ int, w Watermark, out Emitter) error {
	for i, c := range o.node.Agg.GroupBy {
		if c != w.Column {
			continue
		}
		if i == o.node.Agg.OnClose {
			if o.marked && o.mark >= w.Value {
				return nil
			}
			o.mark, o.marked, o.markDue, o.marks.changed = w.Value, true, true, true
			// Closed at once: the fewer windows are open, the more of the table stays in the processor's caches.
			if o.due() {
				if err := o.closeWindows(out); err != nil {
					return err
				}
			}
			continue
		}
		// Rows of this epoch are emitted at its barrier: the watermark must not overtake them.
		o.pend.set(Watermark{Column: i, Value: w.Value})
	}
	return nil
}

func (o *aggOp) Barrier(b checkpoint.Barrier, out Emitter) error {
	var err error
	if o.node.Agg.OnClose < 0 {
		err = o.emitChanges(out)
	} else if o.ctx.OneShot || o.due() {
		err = o.closeWindows(out)
	}
	if err != nil {
		return err
	}
	if err := o.out.flush(out); err != nil {
		return err
	}
	if err := o.forwardMarks(out); err != nil {
		return err
	}
	o.epoch++
	if o.epoch == 0 { // wrapped: no row may look touched
		o.epoch = 1
		_ = o.groups.each(func(_ uint32, row []uint64) error {
			row[aggFlags] &^= uint64(^uint32(0))
			return nil
		})
	}
	o.groups.compact()
	for _, s := range o.distinct {
		s.values.compact()
	}
	if b.Checkpoint != 0 && o.state.part != nil {
		if err := o.save(); err != nil {
			return err
		}
		if o.ctx.Budget.Over() && o.node.Agg.OnClose < 0 {
			o.evict()
		}
		o.unsaved, o.loaded = o.unsaved[:0], o.loaded[:0]
	}
	o.account()
	return nil
}

// varBytes is a rough size of a call's variable part.
const varBytes = 160

func (o *aggOp) forwardMarks(out Emitter) error {
	if o.markDue {
		o.markDue = false
		o.pend.set(Watermark{Column: o.node.Agg.OnClose, Value: o.mark})
	}
	return o.pend.emit(out)
}

// emitChanges emits −old and +new of the groups that the epoch touched.
func (o *aggOp) emitChanges(out Emitter) error {
	keyCols := len(o.keyTypes)
	for at, g := range o.dirty {
		if at%cancelPollRows == cancelPollRows-1 {
			if err := o.cancelled(); err != nil {
				return err
			}
		}
		row := o.groups.row(g)
		kind := outNone
		var fail error
		for _, v := range o.fresh.Cols {
			v.Reset()
		}
		if int64(row[aggCount]) > 0 || o.node.Agg.Global {
			if kind, fail = o.finish(g, row, o.fresh.Cols); fail != nil && kind != outError {
				return fail
			}
		}
		was := o.oldKind[at]
		if was == outRow && (kind != outRow || !sameRow(o.old.Cols, at, o.fresh.Cols, 0)) {
			if err := o.emitGroup(row, o.old.Cols, at, -1, out); err != nil {
				return err
			}
		} else if was == outRow {
			kind = outNone
		}
		if kind == outRow {
			if err := o.emitGroup(row, o.fresh.Cols, 0, 1, out); err != nil {
				return err
			}
		}
		if was == outError || kind == outError {
			if err := o.reportGroup(row, o.oldErrs[at], fail, was == outError, kind == outError, keyCols); err != nil {
				return err
			}
		}
		exists := int64(row[aggCount]) > 0 || o.node.Agg.Global
		row[aggFlags] &^= flagOut
		if exists {
			row[aggFlags] |= flagOut
		}
		if row[aggCount] == 0 && !o.node.Agg.Global {
			if err := o.dropGroup(g, row); err != nil {
				return err
			}
		}
	}
	o.dirty, o.oldKind = o.dirty[:0], o.oldKind[:0]
	for _, v := range o.old.Cols {
		v.Reset()
	}
	clear(o.oldErrs)
	return nil
}

func sameRow(a []*types.Vector, i int, b []*types.Vector, j int) bool {
	for k, v := range a {
		if !sameValue(v, i, b[k], j) {
			return false
		}
	}
	return true
}

// sameValue reports whether two values are the same also in form: 1.0 and 1.00 are not, nor 0 and -0. What is retracted later must be exactly what was
// emitted.
func sameValue(a *types.Vector, i int, b *types.Vector, j int) bool {
	if a.IsNull(i) || b.IsNull(j) {
		return a.IsNull(i) && b.IsNull(j)
	}
	switch a.Type.Kind() {
	case types.KindInt:
		return a.Int[i] == b.Int[j]
	case types.KindFloat:
		return math.Float64bits(a.Float[i]) == math.Float64bits(b.Float[j])
	case types.KindString:
		return a.Str[i] == b.Str[j]
	case types.KindNumeric:
		return a.Num[i].Scale == b.Num[j].Scale && types.Compare(a, i, b, j) == 0
	case types.KindInterval:
		return a.Ivl[i] == b.Ivl[j]
	}
	return types.Compare(a, i, b, j) == 0
}

func (o *aggOp) emitGroup(row []uint64, cols []*types.Vector, i int, w int64, out Emitter) error {
	k := len(o.keyTypes)
	if err := o.groups.appendValues(row, o.out.c.Cols[:k]); err != nil {
		return err
	}
	for j, v := range cols {
		o.out.c.Cols[k+j].Append(v, i)
	}
	return o.out.push(w, out)
}

// reportGroup reports that an aggregate of a group fails, or no longer does. In one-shot plans the error ends the query.
func (o *aggOp) reportGroup(row []uint64, was, is error, hadErr, hasErr bool, keyCols int) error {
	if hadErr && hasErr && was.Error() == is.Error() {
		return nil
	}
	key := types.NewChunk(o.keyTypes)
	if err := o.groups.appendValues(row, key.Cols); err != nil {
		return err
	}
	key.N = 1
	if hadErr {
		if err := o.ctx.Errors.Report(o.node, was, key, 0, -1); err != nil {
			return err
		}
	}
	if hasErr {
		return o.ctx.Errors.Report(o.node, is, key, 0, 1)
	}
	return nil
}

// dropGroup forgets a group that has no rows left, in memory and in state.
func (o *aggOp) dropGroup(g uint32, row []uint64) error {
	if row[aggFlags]&flagStored != 0 {
		o.key = o.groups.appendKey(o.key[:0], row)
		if err := o.state.remove(keyGroup(o.ctx, row[rowHash]), o.key); err != nil {
			return err
		}
	}
	if row[aggFlags]&flagUnsaved != 0 {
		row[aggFlags] &^= flagUnsaved
	}
	if o.hasVar {
		o.vars[g] = nil
	}
	o.groups.drop(g)
	return nil
}

// due reports whether a live group's window has ended.
func (o *aggOp) due() bool { return o.marked && o.windows.due(o.mark) }

// closeWindows emits the groups whose window the watermark has passed, of one-shot plans all, and drops them with their state.
func (o *aggOp) closeWindows(out Emitter) error {
	if o.ctx.OneShot {
		var closed []uint32
		err := o.groups.each(func(g uint32, _ []uint64) error {
			closed = append(closed, g)
			return nil
		})
		if err != nil {
			return err
		}
		slices.Sort(closed)
		return o.closeGroups(closed, out)
	}
	return o.windows.close(o.mark, func(_ int64, groups []uint32) error { return o.closeGroups(groups, out) })
}

func (o *aggOp) closeGroups(groups []uint32, out Emitter) error {
	for at, g := range groups {
		if at%cancelPollRows == cancelPollRows-1 {
			if err := o.cancelled(); err != nil {
				return err
			}
		}
		row := o.groups.row(g)
		if int64(row[aggCount]) > 0 {
			if err := o.emitClosed(g, row, out); err != nil {
				return err
			}
		}
		if err := o.dropSide(g, row); err != nil {
			return err
		}
		if err := o.dropGroup(g, row); err != nil {
			return err
		}
	}
	return o.out.flush(out)
}

// emitClosed emits the row of a closed group. The results go straight to the output chunk.
func (o *aggOp) emitClosed(g uint32, row []uint64, out Emitter) error {
	k, n := len(o.keyTypes), o.out.c.N
	results := o.out.c.Cols[k:]
	kind, err := o.finish(g, row, results)
	if err != nil {
		for _, v := range results {
			v.Resize(n)
		}
		if kind != outError {
			return err
		}
		return o.reportGroup(row, nil, err, false, true, k)
	}
	if err := o.groups.appendValues(row, o.out.c.Cols[:k]); err != nil {
		return err
	}
	return o.out.push(1, out)
}

// keepsValues reports whether a group is more than its words and variable parts.
func (o *aggOp) keepsValues() bool { return o.sided || len(o.distinct) > 0 }

// dropSide deletes what calls keep of a group's values.
func (o *aggOp) dropSide(g uint32, row []uint64) error {
	for _, s := range o.distinct {
		if err := s.forget(g); err != nil {
			return err
		}
	}
	if !o.sided {
		return nil
	}
	o.key = o.groups.appendKey(o.key[:0], row)
	return o.side.clear(keyGroup(o.ctx, row[rowHash]), o.key)
}
