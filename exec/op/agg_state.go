package op

import (
	"encoding/binary"
	"errors"
	"slices"

	"github.com/streamdb/streamdb/types"
)

// save puts the groups that changed since the last checkpoint.
func (o *aggOp) save() error {
	for _, g := range o.unsaved {
		row := o.groups.row(g)
		if row[aggFlags]&flagUnsaved == 0 {
			continue // dropped, and maybe another group by now that is listed itself
		}
		fresh := row[aggFlags]&flagStored == 0
		row[aggFlags] = row[aggFlags]&^flagUnsaved | flagStored
		o.key = o.groups.appendKey(o.key[:0], row)
		o.val = o.encodeGroup(o.val[:0], g, row)
		if err := o.state.append(keyGroup(o.ctx, row[rowHash]), o.key, o.val, fresh); err != nil {
			return err
		}
	}
	for _, s := range o.distinct {
		if err := s.save(); err != nil {
			return err
		}
	}
	return o.marks.save(o.mark)
}

const (
	// relieveChunks is how many chunks pass between two looks at the budget.
	relieveChunks = 8
	// relievePercent of the budget is where an aggregation waits for what is being written: groups that come in meanwhile can be evicted only
	// at the barrier behind it.
	relievePercent = 130
	// relieveMinBytes is what eviction must bring: a small table does not make barriers for others that hold the memory.
	relieveMinBytes = 1 << 20
	// dirtyBytes is a rough size of what the first touch of a group in an epoch keeps, per call.
	dirtyBytes = 32
)

// bytes is what the groups and the values of DISTINCT take.
func (o *aggOp) bytes() int64 {
	n := o.groups.bytes()
	for _, s := range o.distinct {
		n += s.bytes()
	}
	return n
}

// account tells the budget what the groups take.
func (o *aggOp) account() {
	o.report(o.bytes() + int64(len(o.vars))*varBytes*int64(len(o.calls)) + int64(len(o.dirty)*(len(o.calls)+1))*dirtyBytes)
}

// relieve keeps the groups near the budget between two checkpoints: it asks for a barrier to evict at, and waits when it would have to
// outgrow the budget until that one comes.
func (o *aggOp) relieve() {
	o.chunks++
	if o.chunks%relieveChunks != 0 || o.state.part == nil || o.node.Agg.OnClose >= 0 || o.node.Agg.Global {
		return
	}
	o.account()
	o.base.relieve(o.bytes())
}

// relieve asks for a barrier to evict bytes at when the budget is used up, and waits when they would have to outgrow it until that one comes.
func (b *base) relieve(bytes int64) {
	if !b.ctx.Budget.Over() || bytes < relieveMinBytes {
		return
	}
	if b.ctx.Budget.OverBy(relievePercent) {
		b.ctx.Store.WaitForFlush()
	}
	b.ctx.Store.RequestFlush()
}

// evict keeps only the groups used since the last checkpoint; all are in state.
func (o *aggOp) evict() {
	old, oldVars := o.groups, o.vars
	o.groups = newGroupTable(o.keyTypes, old.tail-rowUser)
	o.vars = nil
	keep := append(slices.Clone(o.unsaved), o.loaded...)
	slices.Sort(keep)
	keep = slices.Compact(keep)
	if len(keep) > old.live()/2 {
		keep = keep[:0] // everything is in use: what is needed comes back
	}
	if o.node.Agg.Global {
		keep = keep[:0]
		_ = old.each(func(g uint32, _ []uint64) error { keep = append(keep, g); return nil })
	}
	for _, g := range keep {
		src := old.row(g)
		if src[aggFlags]&flagStored == 0 {
			continue // dropped
		}
		var n uint32
		if old.fixed {
			n = o.groups.insert(src[rowHash])
			copy(o.groups.row(n), src)
		} else {
			k := slices.Clone(old.keyBytes(src))
			n = o.groups.insertBytes(src[rowHash], k, func(b []byte) []byte { return append(b, old.valueBytes(src)...) })
			copy(o.groups.row(n)[rowUser:], src[rowUser:])
		}
		if o.hasVar {
			o.growVars(n)
			o.vars[n] = oldVars[g]
		}
	}
	for _, s := range o.distinct {
		s.reset() // values are by numbers of groups
		s.complete = false
	}
	o.complete = false
}

func (o *aggOp) encodeGroup(dst []byte, g uint32, row []uint64) []byte {
	dst = append(dst, aggStateVersion)
	if !o.groups.fixed {
		v := o.groups.valueBytes(row)
		dst = binary.AppendUvarint(dst, uint64(len(v)))
		dst = append(dst, v...)
	}
	dst = binary.AppendVarint(dst, int64(row[aggCount]))
	for _, w := range row[aggWords:o.groups.tail] {
		dst = binary.AppendVarint(dst, int64(w))
	}
	vars := o.callVars(g)
	for j, call := range o.calls {
		if !call.variable() {
			continue
		}
		cv := vars[j].encode(nil)
		dst = binary.AppendUvarint(dst, uint64(len(cv)))
		dst = append(dst, cv...)
	}
	return dst
}

// decodeGroup fills a group's row from its state entry.
func (o *aggOp) decodeGroup(g uint32, row []uint64, b []byte) error {
	r := byteReader{b: b}
	if r.byte() != aggStateVersion {
		return errCorruptState(o.node)
	}
	if !o.groups.fixed {
		values := r.bytes(int(r.uvarint()))
		if r.bad {
			return errCorruptState(o.node)
		}
		key := slices.Clone(o.groups.keyBytes(row))
		n := len(key)
		o.groups.arena.drop(n + int(row[rowKey1]>>32))
		row[rowKey0] = o.groups.arena.add(append(key, values...))
		row[rowKey1] = uint64(n) | uint64(len(values))<<32
	}
	row[aggCount] = uint64(r.varint())
	for i := range row[aggWords:o.groups.tail] {
		row[aggWords+i] = uint64(r.varint())
	}
	vars := o.callVars(g)
	for j, call := range o.calls {
		if !call.variable() {
			continue
		}
		cv := r.bytes(int(r.uvarint()))
		if r.bad {
			break
		}
		if len(cv) > 0 && !vars[j].decode(cv) {
			return errCorruptState(o.node)
		}
	}
	if r.bad || len(r.b) > 0 {
		return errCorruptState(o.node)
	}
	row[aggFlags] |= flagStored
	if o.node.Agg.OnClose < 0 {
		row[aggFlags] |= flagOut
	}
	return nil
}

// restore reads all groups, until the budget is used up.
func (o *aggOp) restore() error {
	if o.node.Agg.OnClose >= 0 {
		// Watermarks reach all subtasks alike, so key groups differ only by what a subtask had yet to see.
		err := o.marks.open(o.ctx, o.node, 2, func(m int64) {
			if !o.marked || m > o.mark {
				o.mark = m
			}
			o.marked, o.markDue = true, true
		})
		if err != nil {
			return err
		}
	}
	one := types.NewChunk(o.keyTypes)
	n := 0
	err := o.state.scanAll(func(_ uint16, k, v []byte) error {
		n++
		if n%4096 == 0 && o.node.Agg.OnClose < 0 {
			o.report(o.groups.bytes())
			if o.ctx.Budget.Over() {
				return errBudgetUsed
			}
		}
		for _, c := range one.Cols {
			c.Reset()
		}
		if err := o.decodeKey(k, v, one); err != nil {
			return err
		}
		one.N = 1
		var g [1]uint32
		if o.node.Agg.OnClose >= 0 {
			o.endCol = one.Cols[o.node.Agg.OnClose]
		}
		o.complete = true // the entry is at hand: added must not look for it
		err := o.groups.lookup(one, identity(len(o.keyTypes)), g[:], o.added)
		if err != nil {
			return err
		}
		return o.decodeGroup(g[0], o.groups.row(g[0]), v)
	})
	if errors.Is(err, errBudgetUsed) {
		o.complete, err = false, nil
	}
	if err == nil && len(o.distinct) > 0 {
		err = o.restoreDistinct()
	}
	return err
}

func identity(n int) []int {
	s := make([]int, n)
	for i := range s {
		s[i] = i
	}
	return s
}

// decodeKey reads the key columns of a state entry: integer keys from the key itself, others from the value.
func (o *aggOp) decodeKey(k, v []byte, one *types.Chunk) error {
	if !o.groups.fixed {
		r := byteReader{b: v}
		r.byte()
		values := r.bytes(int(r.uvarint()))
		if r.bad {
			return errCorruptState(o.node)
		}
		_, err := types.DecodeRow(values, one.Cols)
		return err
	}
	if !takeInts(k, one.Cols) {
		return errCorruptState(o.node)
	}
	return nil
}

// takeInts appends the integers of a key to cols, one to each.
func takeInts(key []byte, cols []*types.Vector) bool {
	const bytes = 9 // of an integer that is not NULL
	for _, v := range cols {
		switch {
		case len(key) >= bytes && key[0] == 1:
			pushInt(v, int64(binary.BigEndian.Uint64(key[1:])^1<<63))
			key = key[bytes:]
		case len(key) >= 1 && key[0] != 1:
			v.AppendNull()
			key = key[1:]
		default:
			return false
		}
	}
	return len(key) == 0
}
