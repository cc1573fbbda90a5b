package op

import (
	"bytes"
	"cmp"
	"slices"

	"github.com/streamdb/streamdb/checkpoint"
	"github.com/streamdb/streamdb/planner/plan"
	"github.com/streamdb/streamdb/types"
)

// asofJoinOp gives each left row the nearest right row (see plan.AsofJoin).
//
// Both sides are kept by key and in the direction in which a left row looks for its match: it is the first right row at or, where the comparison is
// strict, behind the left row's position. State tables 0 (left) and 1 (right) are sortedRows; of a position the right rows come in order of their stream key.
//
// An epoch's changes are collected. The left rows whose match a changed right row was, or is now, are those between it and the right row before it: only they
// are read. One-shot queries look the left rows up in the sorted right ones and keep no state.
type asofJoinOp struct {
	base
	joinColumns
	never   [2][]int // columns in which NULL matches nothing
	nulls   keptNulls
	strict  bool
	outer   bool
	sides   [2]sortedRows
	changes [2][]asofChange
	bytes   arena // of the changes
	read    arena // left rows from state that the output refers to
	out     *outBuf
}

var _ Operator = (*asofJoinOp)(nil)

// asofChange is a row with what changed of its count; its bytes are a key of sortedRows.
type asofChange struct {
	kg   uint16
	ends [3]uint32
	n    uint32
	at   uint64
	w    int64
}

// asofGap is a place where right rows changed: the left rows behind lo up to position had one match and have another.
type asofGap struct {
	kg       uint16
	group    []byte
	position []byte
	lo       []byte // position of the right row before, or of the changed one before that; nil: there is none
	old      []byte // encoded right row
	matched  bool
}

// maxAsofChanges is how many changes are collected before they are put into state ahead of the barrier.
const maxAsofChanges = 1 << 16

func (o *asofJoinOp) Open(ctx *Context) error {
	o.ctx = ctx
	j := o.node.AsofJoin
	keys, at := [2][]int{j.LeftKeys, j.RightKeys}, [2]int{j.Left, j.Right}
	o.strict, o.outer = len(j.Op) == 1, j.Type == plan.Left
	o.out = newOutBuf(o.openColumns(ctx, j.Output))
	o.out.cols = o.output
	for i := range o.sides {
		s := &o.sides[i]
		o.never[i] = append(strictColumns(keys[i], j.NullSafe), at[i])
		s.group, s.order = keys[i], []plan.SortKey{{Column: at[i], Desc: j.Op[0] == '>'}}
		if err := s.openPort(ctx, o.node, uint32(i), i); err != nil {
			return err
		}
	}
	o.sides[0].tie = nil // the order of equal left rows does not count
	return o.nulls.open(ctx, o.node, j.KeepNulls)
}

func (o *asofJoinOp) Process(port int, c *types.Chunk, out Emitter) error {
	s := &o.sides[port]
	s.begin(c)
	o.nulls.begin()
	for i := range c.Rows() {
		r := c.Row(i)
		if anyNull(c, o.never[port], r) {
			if port == 0 && o.outer {
				o.pad(o.out.c, 0, c, r)
				if err := o.push(c.Weight(r), out); err != nil {
					return err
				}
				if err := o.nulls.add(0, c, r, s.group); err != nil {
					return err
				}
			}
			continue
		}
		kg, _ := s.locate(c, r)
		x := asofChange{kg: kg, n: uint32(len(s.key)), at: o.bytes.add(s.key), w: c.Weight(r)}
		for k, e := range s.ends {
			x.ends[k] = uint32(e)
		}
		o.changes[port] = append(o.changes[port], x)
	}
	o.account()
	if !o.ctx.OneShot && len(o.changes[0])+len(o.changes[1]) > maxAsofChanges {
		return o.apply(out)
	}
	return o.flush(out)
}

// emit emits a left row with its match. Strings of the output are views into both.
func (o *asofJoinOp) emit(left, right []byte, matched bool, w int64, out Emitter) error {
	if !matched && !o.outer {
		return nil
	}
	if _, err := types.DecodeRows(viewString(left), 1, o.columns(o.out.c, 0)); err != nil {
		return err
	}
	if matched {
		if _, err := types.DecodeRows(viewString(right), 1, o.columns(o.out.c, 1)); err != nil {
			return err
		}
	} else {
		for _, v := range o.columns(o.out.c, 1) {
			v.AppendNull()
		}
	}
	return o.push(w, out)
}

func (o *asofJoinOp) push(w int64, out Emitter) error {
	if err := o.out.push(w, out); err != nil || o.out.c.N > 0 {
		return err
	}
	o.read = arena{} // strings may be kept, so that its blocks are not used again
	return o.cancelled()
}

func (o *asofJoinOp) flush(out Emitter) error {
	err := o.out.flush(out)
	o.read = arena{} // see push
	return err
}

func (o *asofJoinOp) Barrier(_ checkpoint.Barrier, out Emitter) error {
	if o.ctx.OneShot {
		return o.join(out)
	}
	return o.apply(out)
}

func (o *asofJoinOp) key(c *asofChange) []byte { return o.bytes.get(c.at, int(c.n)) }

// position is the part of a change's key up to what is compared.
func (o *asofJoinOp) position(c *asofChange) []byte { return o.bytes.get(c.at, int(c.ends[1])) }

func (o *asofJoinOp) sort(list []asofChange) {
	slices.SortFunc(list, func(a, b asofChange) int {
		if c := cmp.Compare(a.kg, b.kg); c != 0 {
			return c
		}
		return bytes.Compare(o.key(&a), o.key(&b))
	})
}

// consolidate sorts changes and adds up those of the same row.
func (o *asofJoinOp) consolidate(list []asofChange) []asofChange {
	o.sort(list)
	n := 0
	for i := 0; i < len(list); {
		x := list[i]
		for i++; i < len(list) && list[i].kg == x.kg && bytes.Equal(o.key(&list[i]), o.key(&x)); i++ {
			x.w += list[i].w
		}
		if x.w != 0 {
			list[n] = x
			n++
		}
	}
	return list[:n]
}

// first returns where the right rows begin that a left row at position can have.
func (o *asofJoinOp) first(position []byte) []byte {
	if o.strict {
		return types.KeySuccessor(position)
	}
	return position
}

// match looks for the match of the left rows at a position; the row is valid until the state changes.
func (o *asofJoinOp) match(kg uint16, group, position []byte) (row []byte, ok bool, err error) {
	from := o.first(position)
	if !bytes.HasPrefix(from, group) {
		return nil, false, nil // there is nothing behind the position
	}
	err = o.sides[1].scanFrom(kg, group, from, false, func(r *sortedRow) (bool, error) {
		row, ok = append(row, r.row()...), true
		return false, nil
	})
	return row, ok, err
}

// apply puts the changes into state and emits what they change.
func (o *asofJoinOp) apply(out Emitter) error {
	right := o.consolidate(o.changes[1])
	gaps, err := o.gaps(right)
	if err != nil {
		return err
	}
	if err := o.store(1, right); err != nil {
		return err
	}
	for i := range gaps {
		if err := o.rematch(&gaps[i], out); err != nil {
			return err
		}
	}
	left := o.consolidate(o.changes[0])
	var last *asofChange
	var row []byte
	matched := false
	for i := range left {
		x := &left[i]
		if last == nil || last.kg != x.kg || !bytes.Equal(o.position(last), o.position(x)) {
			if row, matched, err = o.match(x.kg, o.key(x)[:x.ends[0]], o.position(x)); err != nil {
				return err
			}
			last = x
		}
		if err := o.emit(o.key(x)[x.ends[2]:], row, matched, x.w, out); err != nil {
			return err
		}
	}
	if err := o.store(0, left); err != nil {
		return err
	}
	o.changes[0], o.changes[1], o.bytes = o.changes[0][:0], o.changes[1][:0], arena{}
	o.account()
	return o.flush(out)
}

// store adds changes to the state of a side.
func (o *asofJoinOp) store(side int, list []asofChange) error {
	s := &o.sides[side]
	for i := range list {
		x := &list[i]
		s.key = append(s.key[:0], o.key(x)...)
		for k, e := range x.ends {
			s.ends[k] = int(e)
		}
		if err := s.add(x.kg, x.w); err != nil {
			return err
		}
	}
	return nil
}

// gaps returns the places where right rows change, in order, with the matches before.
func (o *asofJoinOp) gaps(list []asofChange) ([]asofGap, error) {
	var gaps []asofGap
	for i := range list {
		x := &list[i]
		p := o.position(x)
		var before *asofGap
		if len(gaps) > 0 {
			before = &gaps[len(gaps)-1]
			if before.kg != x.kg {
				before = nil
			} else if bytes.Equal(before.position, p) {
				continue
			}
		}
		g := asofGap{kg: x.kg, position: p, group: p[:x.ends[0]]}
		err := o.sides[1].scanFrom(x.kg, g.group, p, true, func(r *sortedRow) (bool, error) {
			g.lo = bytes.Clone(r.orderKey())
			return false, nil
		})
		if err != nil {
			return nil, err
		}
		if before != nil && bytes.Equal(before.group, g.group) && bytes.Compare(g.lo, before.position) < 0 {
			g.lo = before.position
		}
		err = o.sides[1].scanFrom(x.kg, g.group, p, false, func(r *sortedRow) (bool, error) {
			g.old, g.matched = bytes.Clone(r.row()), true
			return false, nil
		})
		if err != nil {
			return nil, err
		}
		gaps = append(gaps, g)
	}
	return gaps, nil
}

// rematch emits what changes of the left rows of a gap.
func (o *asofJoinOp) rematch(g *asofGap, out Emitter) error {
	var now []byte
	matched := false
	err := o.sides[1].scanFrom(g.kg, g.group, g.position, false, func(r *sortedRow) (bool, error) {
		now, matched = bytes.Clone(r.row()), true
		return false, nil
	})
	if err != nil || matched == g.matched && bytes.Equal(now, g.old) {
		return err
	}
	// Strict: a left row at the position of a right row is matched by one behind it.
	from := g.group
	if g.lo != nil {
		if from = g.lo; !o.strict {
			from = types.KeySuccessor(g.lo)
		}
		if !bytes.HasPrefix(from, g.group) {
			return nil
		}
	}
	return o.sides[0].scanEntries(g.kg, g.group, from, false, func(l *sortedRow) (bool, error) {
		if c := bytes.Compare(l.orderKey(), g.position); c > 0 || c == 0 && o.strict {
			return false, nil
		}
		row := o.read.get(o.read.add(l.row()), len(l.row()))
		if err := o.emit(row, g.old, g.matched, -l.count, out); err != nil {
			return false, err
		}
		return true, o.emit(row, now, matched, l.count, out)
	})
}

// join matches all rows of a one-shot query, left rows in the order in which they came.
func (o *asofJoinOp) join(out Emitter) error {
	right := o.changes[1]
	o.sort(right)
	for i := range o.changes[0] {
		x := &o.changes[0][i]
		from := o.first(o.position(x))
		group := o.key(x)[:x.ends[0]]
		matched := false
		var row []byte
		if bytes.HasPrefix(from, group) {
			k, _ := slices.BinarySearchFunc(right, x.kg, func(r asofChange, kg uint16) int {
				if c := cmp.Compare(r.kg, kg); c != 0 {
					return c
				}
				if bytes.Compare(o.key(&r), from) < 0 {
					return -1
				}
				return 1
			})
			if k < len(right) && right[k].kg == x.kg && bytes.HasPrefix(o.key(&right[k]), group) {
				row, matched = o.key(&right[k])[right[k].ends[2]:], true
			}
		}
		if err := o.emit(o.key(x)[x.ends[2]:], row, matched, x.w, out); err != nil {
			return err
		}
	}
	o.changes, o.bytes = [2][]asofChange{}, arena{}
	o.account()
	return o.flush(out)
}

// asofChangeBytes is the size of an asofChange.
const asofChangeBytes = 40

// account tells the budget what the collected changes take.
func (o *asofJoinOp) account() {
	o.report(o.bytes.bytes() + int64(cap(o.changes[0])+cap(o.changes[1]))*asofChangeBytes)
}
