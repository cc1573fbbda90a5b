package op

import (
	"bytes"
	"encoding/binary"
	"errors"
	"math"
	"slices"

	"github.com/streamdb/streamdb/checkpoint"
	"github.com/streamdb/streamdb/planner/plan"
	"github.com/streamdb/streamdb/types"
)

// boundedTopNOp is a Top-N of few rows per group over rows that are only added. It keeps the rows that can be shown in memory, those of a group in a list from the last
// to the first, and finds by one comparison that most rows come too late in the order. With OnClose groups are listed by window, as those of aggOp are.
//
// State: table 0 as that of topNOp, written at checkpoints; 2, the watermark of OnClose (see markTable). While the table of groups is complete an absent
// group has no rows; after an eviction, or a restore that stopped at the budget, they are looked up.
type boundedTopNOp struct {
	base
	kept, offset int
	ties         bool
	rows         sortedRows
	groups       *groupTable
	slab         slab[topRow]
	keys         arena
	complete     bool

	epoch   uint32
	touched []uint32 // groups of the epoch
	gone    []uint32 // rows that are shown and not kept any more
	unsaved []uint32 // groups that changed since the last checkpoint
	chunks  int

	marks   groupMarks
	closing closeMark
	windows openWindows

	src   *types.Chunk // in work, for new groups
	grp   []uint32
	words []uint64
	order []uint32 // rows of a group, the first one first
	ranks []int64  // what is to be shown of them
	out   *outBuf
	text  rowText
	one   *types.Chunk
}

var (
	_ Operator = (*boundedTopNOp)(nil)
	_ Replayer = (*boundedTopNOp)(nil)
)

// topRow is a row that is kept; its state key is in the arena.
type topRow struct {
	word  uint64 // see orderWord
	at    uint64
	ends  [3]uint32 // see sortedRows
	n     uint32
	next  uint32 // + 1: the row before it in order
	flags uint32
	shown int64 // the rank that it is shown with, 1 where none is asked for, 0 while it is not shown
}

const (
	topStored     = 1 << 0 // state has the row
	topMaxRows    = 64     // of a group: a new one is compared with those that it comes before
	topGroupFlags = rowUser
	topGroupBound = rowUser + 1 // no row with a greater order word can be shown
	topGroupList  = rowUser + 2 // low half: the last row + 1; high half: number of rows
	topGroupWords = 3
	topUnsaved    = 1 << 32 // flag of a group: in unsaved
)

// boundedTopN reports whether the rows of a Top-N that can be shown are few, and known as they come.
func boundedTopN(n *plan.Node) bool {
	t := n.TopN
	if t.LimitExpr != nil || t.OffsetExpr != nil || t.Early || t.Dense || t.Limit <= 0 || t.Limit > topMaxRows || t.Offset > topMaxRows-t.Limit || len(t.Ranks) > 1 || len(n.Inputs) != 1 {
		return false
	}
	in := n.Inputs[0]
	// Rows that are equal in order are told apart by what topNOp has in its keys, which those with ties lack here.
	return in.AppendOnly && len(in.Key) > 0 && !(t.WithTies && (t.Offset > 0 || slices.Contains(t.Ranks, plan.RankNumber)))
}

func (o *boundedTopNOp) Open(ctx *Context) error {
	o.ctx = ctx
	t := o.node.TopN
	o.kept, o.offset, o.ties = int(t.Limit+t.Offset), int(t.Offset), t.WithTies
	o.rows.group, o.rows.order, o.rows.mode = t.GroupBy, t.Order, stagedMode
	if err := o.rows.open(ctx, o.node, 0); err != nil {
		return err
	}
	o.out = newOutBuf(o.node.Schema.Types())
	o.text.strings = hasStrings(o.rows.types)
	o.one = types.NewChunk(o.rows.types)
	o.epoch = 1
	o.reset()
	if err := o.closing.open(&o.base, t.OnClose); err != nil {
		return err
	}
	if o.closing.on {
		o.windows.init()
		if err := dropTable(ctx, o.node, 1); err != nil { // where such groups were listed once
			return err
		}
	}
	if o.rows.table.part == nil {
		return nil
	}
	return o.restore()
}

func (o *boundedTopNOp) reset() {
	var key []types.Type
	for _, g := range o.rows.group {
		key = append(key, o.rows.types[g])
	}
	o.groups = newGroupTable(key, topGroupWords)
	o.groups.bare = true
	o.slab, o.keys, o.complete = slab[topRow]{}, arena{}, true
}

func (o *boundedTopNOp) row(i uint32) *topRow { return o.slab.at(i) }

func (o *boundedTopNOp) key(r *topRow) []byte { return o.keys.get(r.at, int(r.n)) }

// compared is the part of the key that two rows of a group are compared by.
func (o *boundedTopNOp) compared(key []byte, ends [3]uint32) []byte {
	if o.ties {
		return key[ends[0]:ends[1]]
	}
	return key[ends[0]:ends[2]]
}

// orderWord returns a number that is not greater for rows that come before others, of the first column of the order.
func orderWord(v *types.Vector, r int, k plan.SortKey, buf []byte) uint64 {
	if v.IsNull(r) {
		if k.NullsFirst {
			return 0
		}
		return math.MaxUint64
	}
	var w [8]byte
	copy(w[:], types.AppendKey(buf[:0], v, r, k.Desc, k.NullsFirst)[1:])
	return binary.BigEndian.Uint64(w[:])
}

// orderWords fills dst with the order words of all physical rows of c.
func orderWords(dst []uint64, c *types.Chunk, order []plan.SortKey) []uint64 {
	dst = slices.Grow(dst[:0], c.N)[:c.N]
	if len(order) == 0 {
		clear(dst)
		return dst
	}
	k := order[0]
	v := c.Cols[k.Column]
	if v.Type.Kind() == types.KindInt && v.Valid == nil {
		flip := uint64(1 << 63)
		if k.Desc {
			flip = ^flip
		}
		for i, x := range v.Int[:c.N] {
			dst[i] = uint64(x) ^ flip
		}
		return dst
	}
	var buf [64]byte
	for i := range c.Rows() {
		r := c.Row(i)
		dst[r] = orderWord(v, r, k, buf[:])
	}
	return dst
}

func (o *boundedTopNOp) Process(_ int, c *types.Chunk, _ Emitter) error {
	c, err := o.closing.dropLate(c)
	if err != nil {
		return err
	}
	n := c.Rows()
	if n == 0 {
		return nil
	}
	if cap(o.grp) < n {
		o.grp = make([]uint32, max(n, types.MaxChunkRows))
	}
	grp := o.grp[:n]
	o.rows.look(c)
	o.src = c
	if err := o.groups.lookup(c, o.rows.group, grp, o.added); err != nil {
		return err
	}
	o.words = orderWords(o.words, c, o.rows.order)
	for i, g := range grp {
		r := c.Row(i)
		words := o.groups.row(g)
		if w := o.words[r]; w <= words[topGroupBound] {
			o.rows.encode(c, r)
			if err := o.insert(g, words, w); err != nil {
				return err
			}
		}
	}
	if o.chunks++; o.chunks%relieveChunks == 0 && o.rows.table.part != nil && !o.closing.on {
		o.account()
		o.relieve(o.reported)
	}
	return nil
}

// added prepares a new group, of row r of the rows in work.
func (o *boundedTopNOp) added(g uint32, r int) error {
	words := o.groups.row(g)
	words[topGroupBound] = math.MaxUint64
	if o.closing.on {
		if col := o.src.Cols[o.closing.column]; !col.IsNull(r) {
			o.windows.list(col.Int[r], g)
		}
	}
	if o.complete {
		return nil
	}
	o.rows.key = types.AppendKeyRow(o.rows.key[:0], o.rows.vecs, r)
	err := o.rows.scan(keyGroup(o.ctx, words[rowHash]), o.rows.key, func(r *sortedRow) (bool, error) { return true, o.push(words, r) })
	if err == nil {
		o.settle(words)
	}
	return err
}

// settle notes that what is to be shown of a group is shown.
func (o *boundedTopNOp) settle(words []uint64) {
	o.rank(words)
	for p, i := range o.order {
		o.row(i).shown = o.ranks[p]
	}
}

// insert puts the located row where it belongs among those of its group, if it can be shown.
func (o *boundedTopNOp) insert(g uint32, words []uint64, word uint64) error {
	key := o.rows.key
	var ends [3]uint32
	for i, e := range o.rows.ends {
		ends[i] = uint32(e)
	}
	head, count := uint32(words[topGroupList]), int(words[topGroupList]>>32)
	own := o.compared(key, ends)
	before := func(r *topRow) bool {
		if word != r.word {
			return word < r.word
		}
		return bytes.Compare(own, o.compared(o.key(r), r.ends)) < 0
	}
	prev, next := uint32(0), head
	for next != 0 {
		r := o.row(next - 1)
		if !before(r) {
			break
		}
		prev, next = next, r.next
	}
	if prev == 0 && count >= o.kept {
		last := o.row(head - 1)
		if !o.ties || word != last.word || !bytes.Equal(own, o.compared(o.key(last), last.ends)) {
			return nil
		}
	}
	o.touch(g, words)
	i := o.add(word, key, ends)
	o.row(i).next = next
	if prev != 0 {
		o.row(prev - 1).next = i + 1
	} else {
		head = i + 1
	}
	words[topGroupList] = uint64(count+1)<<32 | uint64(head)
	if prev != 0 {
		if err := o.trim(words); err != nil {
			return err
		}
	}
	o.bound(words)
	return nil
}

// bound notes which rows cannot be shown any more.
func (o *boundedTopNOp) bound(words []uint64) {
	if head := uint32(words[topGroupList]); int(words[topGroupList]>>32) >= o.kept {
		words[topGroupBound] = o.row(head - 1).word
	}
}

// trim drops the rows of a group that cannot be shown any more.
func (o *boundedTopNOp) trim(words []uint64) error {
	for {
		head, count := uint32(words[topGroupList]), int(words[topGroupList]>>32)
		if count <= o.kept {
			return nil
		}
		n := 1
		if o.ties {
			last := o.row(head - 1)
			own := o.compared(o.key(last), last.ends)
			for i := last.next; i != 0; n++ {
				r := o.row(i - 1)
				if r.word != last.word || !bytes.Equal(own, o.compared(o.key(r), r.ends)) {
					break
				}
				i = r.next
			}
		}
		if count-n < o.kept {
			return nil
		}
		for range n {
			i := head - 1
			head = o.row(i).next
			if err := o.release(i, words); err != nil {
				return err
			}
		}
		words[topGroupList] = uint64(count-n)<<32 | uint64(head)
	}
}

func (o *boundedTopNOp) touch(g uint32, words []uint64) {
	if uint32(words[topGroupFlags]) != o.epoch {
		words[topGroupFlags] = words[topGroupFlags]&^uint64(^uint32(0)) | uint64(o.epoch)
		o.touched = append(o.touched, g)
	}
	if words[topGroupFlags]&topUnsaved == 0 && o.rows.table.part != nil {
		words[topGroupFlags] |= topUnsaved
		o.unsaved = append(o.unsaved, g)
	}
}

func (o *boundedTopNOp) add(word uint64, key []byte, ends [3]uint32) uint32 {
	i := o.slab.take()
	*o.row(i) = topRow{word: word, at: o.keys.add(key), ends: ends, n: uint32(len(key))}
	return i
}

// release lets go of a row that is not in its group's list any more.
func (o *boundedTopNOp) release(i uint32, words []uint64) error {
	r := o.row(i)
	if r.flags&topStored != 0 {
		if err := o.rows.table.remove(keyGroup(o.ctx, words[rowHash]), o.key(r)); err != nil {
			return err
		}
	}
	if r.shown != 0 {
		o.gone = append(o.gone, i)
	} else {
		o.bury(i)
	}
	return nil
}

func (o *boundedTopNOp) bury(i uint32) {
	o.keys.drop(int(o.row(i).n))
	o.slab.give(i)
}

// push appends a stored row to those of its group, which it comes behind.
func (o *boundedTopNOp) push(words []uint64, s *sortedRow) error {
	o.one.Reset()
	if _, err := types.DecodeRow(s.row(), o.one.Cols); err != nil {
		return err
	}
	o.one.N = 1
	o.words = orderWords(o.words, o.one, o.rows.order)
	i := o.add(o.words[0], s.key, [3]uint32{uint32(s.ends[0]), uint32(s.ends[1]), uint32(s.ends[2])})
	r := o.row(i)
	r.flags, r.next = topStored, uint32(words[topGroupList])
	words[topGroupList] = words[topGroupList]>>32<<32 + 1<<32 | uint64(i+1)
	o.bound(words)
	return nil
}

// rank lists the rows of a group in order, with what is to be shown of them.
func (o *boundedTopNOp) rank(words []uint64) {
	o.order, o.ranks = o.order[:0], o.ranks[:0]
	for i := uint32(words[topGroupList]); i != 0; {
		o.order = append(o.order, i-1)
		i = o.row(i - 1).next
	}
	slices.Reverse(o.order)
	var k topRanks
	var last *topRow
	for p, i := range o.order {
		shown := int64(1)
		if names := o.node.TopN.Ranks; len(names) > 0 {
			r := o.row(i)
			k.next(last != nil && last.word == r.word && bytes.Equal(o.key(last)[last.ends[0]:last.ends[1]], o.key(r)[r.ends[0]:r.ends[1]]))
			last, shown = r, k.of(names[0])
		}
		if p < o.offset {
			shown = 0
		}
		o.ranks = append(o.ranks, shown)
	}
}

func (o *boundedTopNOp) emit(row []byte, rank, w int64, out Emitter) error {
	n := len(o.rows.types)
	if err := o.text.decode(row, o.out.c.Cols[:n]); err != nil {
		return err
	}
	if n < len(o.out.c.Cols) {
		pushInt(o.out.c.Cols[n], rank)
	}
	return o.out.push(w, out)
}

func (o *boundedTopNOp) emitRow(r *topRow, rank, w int64, out Emitter) error {
	return o.emit(o.key(r)[r.ends[2]:], rank, w, out)
}

func (o *boundedTopNOp) Barrier(b checkpoint.Barrier, out Emitter) error {
	if !o.closing.on {
		if err := o.emitChanges(out); err != nil {
			return err
		}
	} else if o.closing.advance() {
		if err := o.close(out); err != nil {
			return err
		}
	}
	o.touched = o.touched[:0]
	if err := o.out.flush(out); err != nil {
		return err
	}
	if err := o.marks.emit(out); err != nil {
		return err
	}
	if o.epoch++; o.epoch == 0 { // wrapped: no group may look touched
		o.epoch = 1
		_ = o.groups.each(func(_ uint32, words []uint64) error {
			words[topGroupFlags] &^= uint64(^uint32(0))
			return nil
		})
	}
	o.compact()
	if b.Checkpoint != 0 && o.rows.table.part != nil {
		if err := o.save(); err != nil {
			return err
		}
		if err := o.closing.save(); err != nil {
			return err
		}
		if o.ctx.Budget.Over() && !o.closing.on {
			o.reset()
			o.complete = false
		}
	}
	o.account()
	return nil
}

// emitChanges emits how what is shown of the groups of the epoch differs from before.
func (o *boundedTopNOp) emitChanges(out Emitter) error {
	for _, i := range o.gone {
		r := o.row(i)
		if err := o.emitRow(r, r.shown, -1, out); err != nil {
			return err
		}
		o.bury(i)
	}
	o.gone = o.gone[:0]
	for at, g := range o.touched {
		if at%cancelPollRows == cancelPollRows-1 {
			if err := o.cancelled(); err != nil {
				return err
			}
		}
		o.rank(o.groups.row(g))
		for p, i := range o.order {
			if r := o.row(i); r.shown != 0 && r.shown != o.ranks[p] {
				if err := o.emitRow(r, r.shown, -1, out); err != nil {
					return err
				}
			}
		}
		for p, i := range o.order {
			r := o.row(i)
			if rank := o.ranks[p]; rank != 0 && r.shown != rank {
				if err := o.emitRow(r, rank, 1, out); err != nil {
					return err
				}
			}
			r.shown = o.ranks[p]
		}
	}
	return nil
}

// close emits the groups whose window has ended and forgets them.
func (o *boundedTopNOp) close(out Emitter) error {
	return o.windows.close(o.closing.mark, func(_ int64, groups []uint32) error {
		for _, g := range groups {
			words := o.groups.row(g)
			o.rank(words)
			for p, i := range o.order {
				if o.ranks[p] != 0 {
					if err := o.emitRow(o.row(i), o.ranks[p], 1, out); err != nil {
						return err
					}
				}
				if err := o.release(i, words); err != nil {
					return err
				}
			}
			o.groups.drop(g)
			if err := o.cancelled(); err != nil {
				return err
			}
		}
		return nil
	})
}

// save puts the rows that came since the last checkpoint.
func (o *boundedTopNOp) save() error {
	for _, g := range o.unsaved {
		words := o.groups.row(g)
		if words[topGroupFlags]&topUnsaved == 0 {
			continue // dropped
		}
		words[topGroupFlags] &^= topUnsaved
		kg := keyGroup(o.ctx, words[rowHash])
		for i := uint32(words[topGroupList]); i != 0; {
			r := o.row(i - 1)
			if i = r.next; r.flags&topStored != 0 {
				continue
			}
			r.flags |= topStored
			o.rows.val = o.rows.appendValue(o.rows.val[:0], 1, [3]int{int(r.ends[0]), int(r.ends[1]), int(r.ends[2])})
			if err := o.rows.table.append(kg, o.key(r), o.rows.val, true); err != nil {
				return err
			}
		}
	}
	o.unsaved = o.unsaved[:0]
	return nil
}

// restore reads all rows, until the budget is used up.
func (o *boundedTopNOp) restore() error {
	var group []byte
	var words []uint64
	var at [1]uint32
	var s sortedRow
	n := 0
	finish := func() {
		if words != nil && !o.closing.on { // nothing is shown of groups that have not closed
			o.settle(words)
		}
	}
	err := o.rows.table.scanAll(func(_ uint16, k, v []byte) error {
		if err := o.rows.read(&s, k, v); err != nil {
			return err
		}
		if words == nil || !bytes.Equal(group, k[:s.ends[0]]) {
			finish()
			if n++; n%4096 == 0 && !o.closing.on {
				o.account()
				if o.ctx.Budget.Over() {
					return errBudgetUsed
				}
			}
			o.one.Reset()
			if _, err := types.DecodeRow(s.row(), o.one.Cols); err != nil {
				return err
			}
			o.one.N = 1
			o.src = o.one
			if err := o.groups.lookup(o.one, o.rows.group, at[:], o.added); err != nil {
				return err
			}
			group, words = append(group[:0], k[:s.ends[0]]...), o.groups.row(at[0])
		}
		return o.push(words, &s)
	})
	if errors.Is(err, errBudgetUsed) {
		o.complete = false
		err = nil
	}
	finish()
	return err
}

// compact rewrites the arena when more than half of it is garbage.
func (o *boundedTopNOp) compact() {
	o.groups.compact()
	if !o.keys.wasteful() {
		return
	}
	old := o.keys
	o.keys = arena{}
	_ = o.groups.each(func(_ uint32, words []uint64) error {
		for i := uint32(words[topGroupList]); i != 0; {
			r := o.row(i - 1)
			r.at = o.keys.add(old.get(r.at, int(r.n)))
			i = r.next
		}
		return nil
	})
	o.keys.recycle(old)
}

func (o *boundedTopNOp) account() {
	o.report(o.groups.bytes() + o.slab.bytes() + o.keys.bytes())
}

func (o *boundedTopNOp) Watermark(_ int, w Watermark, _ Emitter) error {
	o.closing.watermark(w)
	if slices.Contains(o.node.TopN.GroupBy, w.Column) || slices.Contains(o.node.WatermarkCols, w.Column) {
		o.marks.set(w)
	}
	return nil
}

// Replay implements Replayer.
func (o *boundedTopNOp) Replay(out Emitter) error {
	if err := o.save(); err != nil {
		return err
	}
	var group, last []byte
	var k topRanks
	n := 0
	for kg := o.ctx.Groups.From; kg < o.ctx.Groups.To; kg++ {
		group = group[:0]
		err := o.rows.scan(kg, nil, func(s *sortedRow) (bool, error) {
			if n++; n%cancelPollRows == 0 {
				if err := o.cancelled(); err != nil {
					return false, err
				}
			}
			if g := s.key[:s.ends[0]]; k.number == 0 || !bytes.Equal(group, g) {
				group, last, k = append(group[:0], g...), nil, topRanks{}
			}
			k.next(last != nil && bytes.Equal(last, s.orderKey()))
			last = append(last[:0], s.orderKey()...)
			if k.number <= int64(o.offset) {
				return true, nil
			}
			rank := int64(1)
			if names := o.node.TopN.Ranks; len(names) > 0 {
				rank = k.of(names[0])
			}
			return true, o.emit(s.row(), rank, 1, out)
		})
		if err != nil {
			return err
		}
		k = topRanks{}
	}
	return o.out.flush(out)
}
