package op

import (
	"bytes"
	"encoding/binary"
	"math"
	"slices"

	"github.com/streamdb/streamdb/checkpoint"
	"github.com/streamdb/streamdb/internal/pgerr"
	"github.com/streamdb/streamdb/planner/plan"
	"github.com/streamdb/streamdb/sql/expr"
	"github.com/streamdb/streamdb/types"
)

// topNOp keeps its input sorted per group and shows the rows at positions [offset, offset+limit). Jobs keep the rows in state table 0 (see
// sortedRows) and emit the difference at the barrier, or with OnClose what is there when the group closes (see groupClosing); of inputs that only grow they
// keep no row that can never be shown.
// One-shot queries sort in memory.
type topNOp struct {
	base
	limit, offset int64 // limit math.MaxInt64: none
	rows          sortedRows
	groups        map[string]*topGroup
	touched       []*topGroup
	delta         rowDelta
	out           *outBuf
	marks         groupMarks
	closing       groupClosing

	bounds map[string][]byte // of inputs that only grow: group → key of its last row that can be shown

	sorted sortBuffer
}

var _ Operator = (*topNOp)(nil)

// topGroup is a group that the epoch touched, with what it showed before.
type topGroup struct {
	kg     uint16
	prefix []byte
	old    [][]byte
}

// maxBounds caps the cached bounds of groups.
const maxBounds = 1 << 16

func (o *topNOp) Open(ctx *Context) error {
	o.ctx = ctx
	t := o.node.TopN
	o.limit, o.offset = t.Limit, t.Offset
	if err := o.evalLimits(); err != nil {
		return err
	}
	if o.limit < 0 || o.limit > math.MaxInt64-o.offset {
		o.limit = math.MaxInt64 - o.offset
	}
	o.rows.group, o.rows.order = t.GroupBy, t.Order
	o.groups = map[string]*topGroup{}
	o.bounds = map[string][]byte{}
	o.out = newOutBuf(o.node.Schema.Types())
	o.delta.numbers = len(t.Ranks)
	if err := o.rows.open(ctx, o.node, 0); err != nil {
		return err
	}
	return o.closing.open(&o.base, t.OnClose)
}

func (o *topNOp) evalLimits() error {
	t := o.node.TopN
	one := func(e *expr.Expr, into *int64, none int64, code pgerr.Code, what string) error {
		if e == nil {
			return nil
		}
		d, err := expr.EvalConst(e, o.ctx.Env, o.ctx.Lib)
		if err != nil {
			return err
		}
		if *into = d.Int; d.Null {
			*into = none
		} else if d.Int < 0 {
			return pgerr.Newf(code, "%s must not be negative", what)
		}
		return nil
	}
	if err := one(t.LimitExpr, &o.limit, -1, pgerr.InvalidRowCountInLimit, "LIMIT"); err != nil {
		return err
	}
	return one(t.OffsetExpr, &o.offset, 0, pgerr.InvalidRowCountInOffset, "OFFSET")
}

// kept is the number of rows per group that can be shown.
func (o *topNOp) kept() int64 { return o.offset + o.limit }

// prunes reports whether rows behind the limit can be forgotten.
func (o *topNOp) prunes() bool {
	return o.kept() < math.MaxInt32 && len(o.node.Inputs) == 1 && o.node.Inputs[0].AppendOnly
}

// ties reports whether rows equal in order to the last one that is shown are shown too.
func (o *topNOp) ties() bool { return o.node.TopN.WithTies || o.node.TopN.Dense }

// behind reports whether a key comes after a bound (see bounds).
func (o *topNOp) behind(key, bound []byte) bool {
	return bytes.Compare(key, bound) > 0 && !(o.ties() && bytes.HasPrefix(key, bound))
}

func (o *topNOp) Process(_ int, c *types.Chunk, _ Emitter) error {
	c, err := o.closing.dropLate(c)
	if err != nil {
		return err
	}
	o.rows.begin(c)
	if o.ctx.OneShot {
		return o.sortIn(c)
	}
	prunes := o.prunes()
	for i := range c.Rows() {
		r := c.Row(i)
		kg, n := o.rows.locate(c, r)
		if prunes {
			if b, ok := o.bounds[viewString(o.rows.key[:n])]; ok && o.behind(o.rows.key, b) {
				continue
			}
		}
		if o.groups[viewString(o.rows.key[:n])] == nil {
			g := &topGroup{kg: kg, prefix: slices.Clone(o.rows.key[:n])}
			if o.closing.on {
				err = o.closing.list(kg, g.prefix, c, r)
			} else {
				g.old, err = o.window(g, nil)
			}
			if err != nil {
				return err
			}
			o.groups[string(g.prefix)] = g
			o.touched = append(o.touched, g)
		}
		if err := o.rows.add(kg, c.Weight(r)); err != nil {
			return err
		}
	}
	return nil
}

// topRanks counts the rows of a group.
type topRanks struct{ number, rank, dense int64 }

// next goes on to the next row; equal: it has the order key of the one before.
func (k *topRanks) next(equal bool) {
	if k.number++; !equal {
		k.rank = k.number
		k.dense++
	}
}

func (k *topRanks) of(name string) int64 {
	switch name {
	case plan.RankRank:
		return k.rank
	case plan.RankDense:
		return k.dense
	}
	return k.number
}

// shows says which copies of a row are shown, and whether it or rows behind it may be. At counts what comes before (dense: different order keys),
// equal says that the last row of which some may be shown has the same order key.
func (o *topNOp) shows(at *int64, count int64, equal bool) (from, to int64, more bool) {
	tie := equal && o.ties() && o.limit > 0
	if *at >= o.kept() && !tie {
		return 0, 0, false
	}
	if o.node.TopN.Dense {
		if !tie {
			*at++
		}
		return 0, count, true
	}
	from, to = max(*at, o.offset), *at+count
	*at = to
	if !o.ties() || o.limit == 0 {
		to = min(to, o.kept())
	}
	return from, to, true
}

// window returns the rows of a group that are shown, as often as they are. It tells behind of the keys that come after them, last of all with nil when no
// more rows can be shown; last is the key of the last row that is shown, with ties its order key.
func (o *topNOp) window(g *topGroup, behind func(last, key []byte)) ([][]byte, error) {
	var shown [][]byte
	var last, lastKey []byte
	at := int64(0) // rows taken, dense: different order keys
	var ranks topRanks
	err := o.rows.scan(g.kg, g.prefix, func(r *sortedRow) (bool, error) {
		equal := at > 0 && bytes.Equal(last, r.orderKey())
		from, to, more := o.shows(&at, r.count, equal)
		if !more {
			if behind != nil {
				behind(lastKey, r.key)
			}
			return behind != nil, nil
		}
		for i := int64(0); i < max(1, to-from); i++ {
			ranks.next(equal || i > 0)
			if from+i < to {
				shown = append(shown, o.ranked(slices.Clone(r.row()), &ranks))
			}
		}
		if last = append(last[:0], r.orderKey()...); o.ties() {
			lastKey = append(lastKey[:0], last...)
		} else {
			lastKey = append(lastKey[:0], r.key...)
		}
		return true, nil
	})
	if behind != nil && at >= o.kept() {
		behind(lastKey, nil)
	}
	return shown, err
}

// ranked appends the ranks that are asked for to an encoded row.
func (o *topNOp) ranked(row []byte, k *topRanks) []byte {
	for _, name := range o.node.TopN.Ranks {
		row = binary.AppendVarint(row, k.of(name))
	}
	return row
}

func (o *topNOp) Barrier(b checkpoint.Barrier, out Emitter) error {
	if o.ctx.OneShot {
		return o.sortOut(out)
	}
	for _, g := range o.touched {
		if o.closing.on && !o.prunes() {
			break
		}
		now, err := o.prune(g)
		if err != nil {
			return err
		}
		if !o.closing.on {
			if err := o.delta.replace(g.old, now, o.out, out); err != nil {
				return err
			}
		}
		if err := o.cancelled(); err != nil {
			return err
		}
	}
	err := o.closing.barrier(b, &o.rows, func(kg uint16, group []byte) error {
		delete(o.bounds, string(group))
		now, err := o.window(&topGroup{kg: kg, prefix: group}, nil)
		if err != nil {
			return err
		}
		return o.delta.replace(nil, now, o.out, out)
	})
	if err != nil {
		return err
	}
	o.touched = o.touched[:0]
	clear(o.groups)
	if err := o.out.flush(out); err != nil {
		return err
	}
	return o.marks.emit(out)
}

// prune returns the rows of a group that are shown and forgets those behind them where it may.
func (o *topNOp) prune(g *topGroup) ([][]byte, error) {
	var drop [][]byte
	var behind func(last, key []byte)
	if o.prunes() {
		if len(o.bounds) >= maxBounds {
			clear(o.bounds)
		}
		behind = func(last, key []byte) {
			if key != nil {
				drop = append(drop, slices.Clone(key))
			} else if last != nil {
				o.bounds[string(g.prefix)] = slices.Clone(last)
			}
		}
	}
	now, err := o.window(g, behind)
	if err != nil {
		return nil, err
	}
	for _, k := range drop {
		if err := o.rows.table.del(g.kg, k); err != nil {
			return nil, err
		}
	}
	return now, nil
}

func (o *topNOp) Watermark(_ int, w Watermark, _ Emitter) error {
	o.closing.watermark(w)
	if slices.Contains(o.node.TopN.GroupBy, w.Column) || slices.Contains(o.node.WatermarkCols, w.Column) {
		o.marks.set(w)
	}
	return nil
}

// sortBuffer holds the rows of a one-shot sort: key bytes and encoded row in arenas, entries ordered by key.
type sortBuffer struct {
	bytes   arena
	entries []sortEntry
	bound   []byte // no row with a greater key can be shown
	cutAt   int
	total   int64 // rows taken
}

type sortEntry struct {
	prefix uint64 // first bytes of the key behind what all keys share: most comparisons end here
	at     uint64
	ends   [3]uint32
	n      uint32
	count  int64
}

const sortCutSlack = 8192 // rows beyond the limit that are collected before they are cut off

func (o *topNOp) sortIn(c *types.Chunk) error {
	s := &o.sorted
	for i := range c.Rows() {
		r := c.Row(i)
		w := c.Weight(r)
		if w <= 0 {
			return pgerr.Newf(pgerr.InternalError, "retraction in a one-shot sort")
		}
		o.rows.locate(c, r)
		k := o.rows.key
		if s.bound != nil && bytes.Compare(k, s.bound) > 0 {
			continue
		}
		e := sortEntry{at: s.bytes.add(k), n: uint32(len(k)), count: w}
		for j, x := range o.rows.ends {
			e.ends[j] = uint32(x)
		}
		s.entries = append(s.entries, e)
		if s.total += w; o.node.TopN.Early && s.total >= o.kept() {
			return ErrEnough
		}
	}
	if s.cutAt == 0 && o.kept() < 1<<24 {
		s.cutAt = 2*int(o.kept()) + sortCutSlack
	}
	if s.cutAt > 0 && len(s.entries) >= s.cutAt && !o.ties() && len(o.node.TopN.GroupBy) == 0 {
		s.sort()
		s.cut(int(o.kept()))
	}
	return o.cancelled()
}

func (s *sortBuffer) key(e *sortEntry) []byte { return s.bytes.get(e.at, int(e.n)) }

func (s *sortBuffer) sort() {
	if len(s.entries) == 0 {
		return
	}
	first := s.key(&s.entries[0])
	shared := len(first)
	for i := range s.entries {
		k := s.key(&s.entries[i])
		n := min(shared, len(k))
		for j := range n {
			if k[j] != first[j] {
				n = j
				break
			}
		}
		shared = n
	}
	for i := range s.entries {
		e := &s.entries[i]
		k := s.key(e)[shared:]
		e.prefix = 0
		for j := range 8 {
			e.prefix <<= 8
			if j < len(k) {
				e.prefix |= uint64(k[j])
			}
		}
	}
	slices.SortFunc(s.entries, func(a, b sortEntry) int {
		if a.prefix != b.prefix {
			if a.prefix < b.prefix {
				return -1
			}
			return 1
		}
		return bytes.Compare(s.key(&a), s.key(&b))
	})
}

// cut keeps the first n entries.
func (s *sortBuffer) cut(n int) {
	if n >= len(s.entries) {
		return
	}
	old := s.bytes
	s.bytes = arena{}
	s.entries = s.entries[:n]
	s.bound = []byte{}
	for i := range s.entries {
		e := &s.entries[i]
		e.at = s.bytes.add(old.get(e.at, int(e.n)))
	}
	if n > 0 {
		s.bound = slices.Clone(s.key(&s.entries[n-1]))
	}
}

func (o *topNOp) sortOut(out Emitter) error {
	s := &o.sorted
	s.sort()
	at := int64(0)
	var group, last []byte
	var ranks topRanks
	n := len(o.out.c.Cols) - len(o.node.TopN.Ranks)
	for i := range s.entries {
		e := &s.entries[i]
		k := s.key(e)
		if g := k[:e.ends[0]]; i == 0 || !bytes.Equal(g, group) {
			group, at, last, ranks = g, 0, nil, topRanks{}
		}
		equal := last != nil && bytes.Equal(last, k[:e.ends[1]])
		from, to, more := o.shows(&at, e.count, equal)
		if more {
			last = k[:e.ends[1]]
		}
		for j := int64(0); j < max(1, to-from); j++ {
			if ranks.next(equal || j > 0); from+j >= to {
				break
			}
			if _, err := types.DecodeRows(viewString(k[e.ends[2]:]), 1, o.out.c.Cols[:n]); err != nil {
				return err
			}
			for x, name := range o.node.TopN.Ranks {
				pushInt(o.out.c.Cols[n+x], ranks.of(name))
			}
			if err := o.out.push(1, out); err != nil {
				return err
			}
		}
		if i%cancelPollRows == cancelPollRows-1 {
			if err := o.cancelled(); err != nil {
				return err
			}
		}
	}
	o.sorted = sortBuffer{}
	return o.out.flush(out)
}
