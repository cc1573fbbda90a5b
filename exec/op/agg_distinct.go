package op

import (
	"bytes"
	"encoding/binary"
	"errors"
	"math"
	"slices"

	"github.com/cespare/xxhash/v2"

	"github.com/streamdb/streamdb/types"
)

// distinctSet has the values that the DISTINCT calls over the same arguments have seen, per group, and passes on to each call the rows that bring it a new one, or take
// the last of one away.
//
// State table 4 (staged), written at checkpoints: group key · number of the set (1 byte) · key of the arguments → uvarint length of the group key · per call the count of rows
// as a varint, over rows that are only added 1 for any. Versions that kept them in table 1 had an entry per call (see takeOver).
//
// While the set is complete an absent value has not been seen; after an eviction, or a restore that stopped at the budget, it is looked up.
type distinctSet struct {
	o     *aggOp
	no    byte
	args  []int
	calls []distinctMember
	// grows: rows are only added, one word has a bit per call that has seen the value. Else a word per call counts its rows.
	grows  bool
	linked bool // the values of a group are listed, for groups that are dropped while they have some

	values   *groupTable // by number of the group and arguments
	heads    []uint32    // per group its first value + 1
	complete bool
	unsaved  []uint32
	spent    []uint32 // values whose counts became 0 in the batch

	in    types.Chunk // the batch with the group's number as first column
	group types.Vector
	sel   []uint16
	at    []uint32 // value of each selected row
	pass  []uint32 // per physical row a bit for each call that counts it
	of    []uint32 // per physical row its group
	by    []int64  // and its weight
	cols  []int
	key   []byte
	one   *types.Chunk
}

// distinctMember is a call of a set.
type distinctMember struct {
	call   aggCall
	no     int // number of the call
	filter int // -1: all rows count
	sub    aggBatch
}

// Words of a value.
const (
	valueFlags = rowUser     // low half: a bit per call that has seen it, where rows are only added
	valueLinks = rowUser + 1 // next and previous value of the group + 1, in linked sets
	// maxDistinctCalls share a set.
	maxDistinctCalls = 16

	valueUnsaved = 1 << 32
	valueStored  = 1 << 33
)

// distinctCall stands for a call in the list of the aggregation: the first one of a set updates them all.
type distinctCall struct {
	aggCall
	set *distinctSet // of the first call; nil for the others
}

func (d *distinctCall) update(b *aggBatch) error {
	if d.set == nil {
		return nil
	}
	return d.set.update(b)
}

// addDistinct makes call one of those over the distinct values of args.
func (o *aggOp) addDistinct(call aggCall, no int, args []int, filter int) aggCall {
	m := distinctMember{call: call, no: no, filter: filter}
	for _, s := range o.distinct {
		if slices.Equal(s.args, args) && len(s.calls) < maxDistinctCalls {
			s.calls = append(s.calls, m)
			return &distinctCall{aggCall: call}
		}
	}
	s := &distinctSet{o: o, no: byte(len(o.distinct)), args: args, calls: []distinctMember{m}}
	o.distinct = append(o.distinct, s)
	return &distinctCall{aggCall: call, set: s}
}

func (s *distinctSet) open() {
	o := s.o
	s.grows = o.ctx.OneShot || len(o.node.Inputs) == 1 && o.node.Inputs[0].AppendOnly
	s.linked = o.node.Agg.OnClose >= 0 || o.node.Agg.TTL > 0
	s.group = types.Vector{Type: types.Int8}
	s.in.Cols = []*types.Vector{&s.group}
	s.reset()
}

func (s *distinctSet) reset() {
	key := []types.Type{types.Int8}
	for _, a := range s.args {
		key = append(key, s.o.ctx.InputTypes[0][a])
	}
	s.one, s.cols = types.NewChunk(key), identity(len(key))
	s.values = newGroupTable(key, s.countAt(0)-rowUser+s.counts())
	s.values.bare, s.values.alone = true, true // state has the keys of values only
	s.heads, s.unsaved, s.complete = nil, s.unsaved[:0], true
}

// counts is the number of words that count rows.
func (s *distinctSet) counts() int {
	if s.grows {
		return 0
	}
	return len(s.calls)
}

// countAt returns the word that counts the rows of a call.
func (s *distinctSet) countAt(m int) int {
	if s.linked {
		m++
	}
	return valueLinks + m
}

func (s *distinctSet) update(b *aggBatch) error {
	n := b.c.N
	s.group.Resize(n)
	s.pass, s.of = slices.Grow(s.pass[:0], n)[:n], slices.Grow(s.of[:0], n)[:n]
	if !s.grows {
		s.by = slices.Grow(s.by[:0], n)[:n]
	}
	if s.sel == nil {
		s.sel = make([]uint16, 0, types.MaxChunkRows)
	}
	s.in.Cols = s.in.Cols[:1]
	for _, a := range s.args {
		s.in.Cols = append(s.in.Cols, b.c.Cols[a])
	}
	s.sel = s.sel[:0]
	for i, g := range b.groups {
		r := b.row(i)
		s.pass[r], s.of[r], s.group.Int[r] = 0, g, int64(g)
		if !s.grows {
			s.by[r] = b.weight(i)
		}
	}
	for m := range s.calls {
		s.filter(b, m)
	}
	for i := range b.groups {
		if r := b.row(i); s.pass[r] != 0 {
			s.sel = append(s.sel, uint16(r))
		}
	}
	s.in.N, s.in.Sel = n, s.sel
	s.at = slices.Grow(s.at[:0], len(s.sel))[:len(s.sel)]
	if err := s.values.lookup(&s.in, s.cols, s.at, s.added); err != nil {
		return err
	}
	for m := range s.calls {
		s.calls[m].sub.reset(b.c)
	}
	if s.grows {
		s.note()
	} else {
		s.count()
	}
	for m := range s.calls {
		c := &s.calls[m]
		if s.grows {
			c.sub.weights = nil
		}
		if err := c.call.update(&c.sub); err != nil {
			return err
		}
	}
	return s.dropSpent()
}

// filter marks the rows that a call counts.
func (s *distinctSet) filter(b *aggBatch, m int) {
	bit := uint32(1) << m
	f := s.calls[m].filter
	if f < 0 {
		for i := range b.groups {
			s.pass[b.row(i)] |= bit
		}
		return
	}
	v := b.c.Cols[f]
	for i := range b.groups {
		if r := b.row(i); v.Bool[r] && !v.IsNull(r) {
			s.pass[r] |= bit
		}
	}
}

// note passes on the rows of which a call has not seen the value.
func (s *distinctSet) note() {
	width, slabs := s.values.width, s.values.slabs
	for i, e := range s.at {
		r := s.sel[i]
		flags := &slabs[e>>slabBits][int(e&(slabRows-1))*width+valueFlags]
		fresh := s.pass[r] &^ uint32(*flags)
		if fresh == 0 {
			continue
		}
		*flags |= uint64(fresh)
		s.changed(e, flags)
		for m := range s.calls {
			if fresh>>m&1 != 0 {
				s.calls[m].sub.groups = append(s.calls[m].sub.groups, s.of[r])
				s.calls[m].sub.rows = append(s.calls[m].sub.rows, r)
			}
		}
	}
}

// count counts the rows of each call, and passes on those with which that begins or ends.
func (s *distinctSet) count() {
	at := s.countAt(0)
	for i, e := range s.at {
		r := s.sel[i]
		row, w := s.values.row(e), s.by[r]
		left := false
		for m := range s.calls {
			if s.pass[r]>>m&1 != 0 {
				before := int64(row[at+m])
				after := before + w
				row[at+m] = uint64(after)
				if before <= 0 && after > 0 {
					s.calls[m].sub.add(s.of[r], int(r), 1)
				} else if before > 0 && after <= 0 {
					s.calls[m].sub.add(s.of[r], int(r), -1)
				}
			}
			left = left || row[at+m] != 0
		}
		s.changed(e, &row[valueFlags])
		if !left {
			s.spent = append(s.spent, e)
		}
	}
}

func (s *distinctSet) changed(e uint32, flags *uint64) {
	if *flags&valueUnsaved == 0 && s.o.values.part != nil {
		*flags |= valueUnsaved
		s.unsaved = append(s.unsaved, e)
	}
}

// dropSpent forgets values that no row has any more.
func (s *distinctSet) dropSpent() error {
	for _, e := range s.spent {
		row := s.values.row(e)
		if row[rowHash] == 0 && row[rowKey0] == 0 || slices.ContainsFunc(row[s.countAt(0):s.countAt(len(s.calls))], func(n uint64) bool { return n != 0 }) {
			continue // dropped already, or there again
		}
		if err := s.drop(e, row); err != nil {
			return err
		}
	}
	s.spent = s.spent[:0]
	return nil
}

// drop forgets a value, in memory and in state.
func (s *distinctSet) drop(e uint32, row []uint64) error {
	if row[valueFlags]&valueStored != 0 {
		kg, _ := s.stateKey(row)
		if err := s.o.values.remove(kg, s.key); err != nil {
			return err
		}
	}
	if s.linked {
		next, prev := uint32(row[valueLinks]), uint32(row[valueLinks]>>32)
		if next != 0 {
			n := s.values.row(next - 1)
			n[valueLinks] = n[valueLinks]&math.MaxUint32 | uint64(prev)<<32
		}
		if prev != 0 {
			p := s.values.row(prev - 1)
			p[valueLinks] = p[valueLinks]>>32<<32 | uint64(next)
		} else {
			s.heads[s.groupOf(row)] = next
		}
	}
	s.values.drop(e)
	return nil
}

// groupOf returns the group that a value is of.
func (s *distinctSet) groupOf(row []uint64) uint32 {
	if s.values.fixed {
		return uint32(row[rowKey0])
	}
	return uint32(binary.BigEndian.Uint64(s.values.keyBytes(row)[1:]))
}

// stateKey builds the key of a value in s.key and returns its key group and the length of the group's key.
func (s *distinctSet) stateKey(row []uint64) (kg uint16, group int) {
	g := s.o.groups.row(s.groupOf(row))
	s.key = s.o.groups.appendKey(s.key[:0], g)
	group = len(s.key)
	s.key = append(s.key, s.no)
	const numberBytes = 9 // of the group's number, which comes first in the set's keys
	at := len(s.key)
	s.key = s.values.appendKey(s.key, row)
	s.key = append(s.key[:at], s.key[at+numberBytes:]...)
	return keyGroup(s.o.ctx, g[rowHash]), group
}

// added prepares a new value, of row r of the rows in work: it is read from state when that may have it.
func (s *distinctSet) added(e uint32, _ int) error {
	row := s.values.row(e)
	s.list(e, row)
	if s.complete {
		return nil
	}
	kg, _ := s.stateKey(row)
	v, ok, err := s.o.values.get(kg, s.key)
	if err != nil || !ok {
		return err
	}
	return s.decode(e, v)
}

// list puts a new value among those of its group.
func (s *distinctSet) list(e uint32, row []uint64) {
	if !s.linked {
		return
	}
	g := s.groupOf(row)
	for int(g) >= len(s.heads) {
		s.heads = append(s.heads, 0)
	}
	next := s.heads[g]
	row[valueLinks] = uint64(next)
	if next != 0 {
		n := s.values.row(next - 1)
		n[valueLinks] = n[valueLinks]&math.MaxUint32 | uint64(e+1)<<32
	}
	s.heads[g] = e + 1
}

// see notes how often a call has seen a value.
func (s *distinctSet) see(e uint32, m int, n int64) {
	row := s.values.row(e)
	switch {
	case !s.grows:
		row[s.countAt(m)] = uint64(n)
	case n > 0:
		row[valueFlags] |= 1 << m
	}
}

func (s *distinctSet) decode(e uint32, v []byte) error {
	r := byteReader{b: v}
	r.uvarint()
	for m := range s.calls {
		s.see(e, m, r.varint())
	}
	if r.bad || len(r.b) > 0 {
		return errCorruptState(s.o.node)
	}
	s.values.row(e)[valueFlags] |= valueStored
	return nil
}

// forget drops the values of a group.
func (s *distinctSet) forget(g uint32) error {
	for int(g) < len(s.heads) && s.heads[g] != 0 {
		e := s.heads[g] - 1
		if err := s.drop(e, s.values.row(e)); err != nil {
			return err
		}
	}
	if s.complete {
		return nil
	}
	row := s.o.groups.row(g)
	s.key = append(s.o.groups.appendKey(s.key[:0], row), s.no)
	return s.o.values.clear(keyGroup(s.o.ctx, row[rowHash]), s.key)
}

// save puts the values that changed since the last checkpoint.
func (s *distinctSet) save() error {
	var v []byte
	for _, e := range s.unsaved {
		row := s.values.row(e)
		flags := row[valueFlags]
		if flags&valueUnsaved == 0 {
			continue // dropped
		}
		row[valueFlags] = flags&^valueUnsaved | valueStored
		kg, group := s.stateKey(row)
		v = binary.AppendUvarint(v[:0], uint64(group))
		for m := range s.calls {
			if s.grows {
				v = binary.AppendVarint(v, int64(flags>>m&1))
			} else {
				v = binary.AppendVarint(v, int64(row[s.countAt(m)]))
			}
		}
		if err := s.o.values.append(kg, s.key, v, flags&valueStored == 0); err != nil {
			return err
		}
	}
	s.unsaved = s.unsaved[:0]
	return nil
}

func (s *distinctSet) bytes() int64 { return s.values.bytes() + int64(len(s.heads))*4 }

// restoreDistinct reads the values of all sets, until the budget is used up. The groups have been read.
func (o *aggOp) restoreDistinct() error {
	if err := o.takeOver(); err != nil {
		return err
	}
	if !o.complete {
		for _, s := range o.distinct {
			s.complete = false
		}
		return nil
	}
	var group []byte
	var g [1]uint32
	one := types.NewChunk(o.keyTypes)
	known, n := false, 0
	err := o.values.scanAll(func(kg uint16, k, v []byte) error {
		size, w := binary.Uvarint(v)
		if w <= 0 || size >= uint64(len(k)) || int(k[size]) >= len(o.distinct) {
			return errCorruptState(o.node)
		}
		if !known || !bytes.Equal(group, k[:size]) {
			if n++; n%1024 == 0 && o.node.Agg.OnClose < 0 {
				o.account()
				if o.ctx.Budget.Over() {
					return errBudgetUsed
				}
			}
			group, known = append(group[:0], k[:size]...), true
			entry, ok, err := o.state.get(kg, group)
			if err != nil {
				return err
			}
			if !ok {
				return errCorruptState(o.node)
			}
			one.Reset()
			if err := o.decodeKey(group, entry, one); err != nil {
				return err
			}
			one.N = 1
			if err := o.groups.lookup(one, identity(len(o.keyTypes)), g[:], o.added); err != nil {
				return err
			}
		}
		s := o.distinct[k[size]]
		e, err := s.load(g[0], k[size+1:])
		if err != nil {
			return err
		}
		return s.decode(e, v)
	})
	if errors.Is(err, errBudgetUsed) {
		for _, s := range o.distinct {
			s.complete = false
		}
		return nil
	}
	return err
}

// load returns the value of a group that has a stored key.
func (s *distinctSet) load(g uint32, key []byte) (e uint32, err error) {
	known := true
	if s.values.fixed {
		s.one.Reset()
		s.one.Cols[0].Int = append(s.one.Cols[0].Int, int64(g))
		if !takeInts(key, s.one.Cols[1:]) {
			return 0, errCorruptState(s.o.node)
		}
		s.one.N = 1
		var at [1]uint32
		err := s.values.lookup(s.one, s.cols, at[:], func(uint32, int) error {
			known = false
			return nil
		})
		if err != nil {
			return 0, err
		}
		e = at[0]
	} else {
		s.key = append(types.AppendKeyDatum(s.key[:0], types.Datum{Type: types.Int8, Int: int64(g)}, false, false), key...)
		h := xxhash.Sum64(s.key)
		if e, known = s.values.findBytes(h, s.key); !known {
			e = s.values.insertBytes(h, s.key, func(b []byte) []byte { return b })
		}
	}
	if !known {
		s.list(e, s.values.row(e))
	}
	return e, nil
}

// takeOver takes values from table 1, where there was an entry per call once.
func (o *aggOp) takeOver() error {
	some := func(t *table) (found bool, err error) {
		err = t.scanAll(func(uint16, []byte, []byte) error {
			found = true
			return errBudgetUsed
		})
		if errors.Is(err, errBudgetUsed) {
			err = nil
		}
		return found, err
	}
	if found, err := some(&o.values); found || err != nil {
		return err
	}
	if found, err := some(&o.side); !found || err != nil {
		return err
	}
	one := types.NewChunk(o.keyTypes)
	var g [1]uint32
	type entry struct {
		key   []byte
		count int64
	}
	var entries []entry
	return o.state.scanAll(func(kg uint16, group, v []byte) error {
		one.Reset()
		if err := o.decodeKey(group, v, one); err != nil {
			return err
		}
		one.N = 1
		if err := o.groups.lookup(one, identity(len(o.keyTypes)), g[:], o.added); err != nil {
			return err
		}
		for _, s := range o.distinct {
			for m := range s.calls {
				prefix := append(slices.Clone(group), byte(s.calls[m].no))
				entries = entries[:0]
				err := o.side.scan(kg, prefix, false, func(k, v []byte) (bool, error) {
					n, w := binary.Varint(v)
					if w <= 0 {
						return false, errCorruptState(o.node)
					}
					entries = append(entries, entry{slices.Clone(k), n})
					return true, nil
				})
				if err != nil {
					return err
				}
				for _, e := range entries {
					if err := o.side.del(kg, e.key); err != nil {
						return err
					}
					at, err := s.load(g[0], e.key[len(prefix):])
					if err != nil {
						return err
					}
					s.see(at, m, e.count)
					s.changed(at, &s.values.row(at)[valueFlags])
				}
			}
		}
		return nil
	})
}
