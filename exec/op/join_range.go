package op

import (
	"cmp"
	"math"
	"unsafe"

	"github.com/streamdb/streamdb/planner/plan"
	"github.com/streamdb/streamdb/types"
)

// joinRange finds the candidates of a join whose condition bounds values of one side by values of the other (plan.Join.Range). Where a key has many
// rows they are kept in an order besides their chain, from the first time that a row of the other side asks for a part of them. It is derived from
// the rows, and not part of the state.
//
// A bound from each end on one column makes a range of the order; on two columns the order is by the one, and the other is how far rows reach.
type joinRange struct {
	o     *joinOp
	sides [2]rangeSide
	never [2][]int            // columns in which NULL matches nothing
	words *joinOrders[uint64] // of types that are kept as words
	texts *joinOrders[string] // of all others
	hits  []uint32            // rows of the order, a batch
	lone  [2]*types.Chunk     // a row that is read back
}

// rangeSide is how rows of a side are ordered, and what those of the other side ask for. Columns are positions within their side.
type rangeSide struct {
	column, reach   int // reach: -1 for none
	low, high, from *rangeBound
}

// rangeBound is a value of the other side.
type rangeBound struct {
	column int
	offset int64
}

// joinOrders are the orders of keys and sides with long chains.
type joinOrders[K cmp.Ordered] struct {
	r      *joinRange
	key    func(v *types.Vector, row int, offset int64) K
	of     map[uint64]*rowOrder[K] // group<<1 | side
	rows   int
	last   *rowOrder[K] // that of lastOf
	lastOf uint64
}

// orderedChain is the number of rows of a key and side from which on they are kept in order.
var orderedChain uint32 = 32 // lower in tests

// orderBytes is what an order takes without its rows.
const orderBytes = 128

func newJoinRange(o *joinOp, r *plan.JoinRange, in [][]types.Type) *joinRange {
	j := &joinRange{o: o, hits: make([]uint32, 0, types.MaxChunkRows)}
	bound := func(b *plan.JoinBound, lower bool) {
		// left >= right + offset, or <=.
		mine := [2]int{b.Left, b.Right}
		for side := range 2 {
			v := &rangeBound{column: mine[1-side], offset: b.Offset}
			if side == 1 {
				v.offset = -b.Offset
			}
			s := &j.sides[side]
			if low := lower == (side == 0); low {
				s.low = v
			} else {
				s.high = v
			}
		}
	}
	of := [2][2]int{{-1, -1}, {-1, -1}} // per side: columns of the low and the high bound
	for i, b := range []*plan.JoinBound{r.Lower, r.Upper} {
		if b == nil {
			continue
		}
		bound(b, i == 0)
		of[0][i], of[1][1-i] = b.Left, b.Right
		j.never[0], j.never[1] = append(j.never[0], b.Left), append(j.never[1], b.Right)
	}
	for i := range j.sides {
		s := &j.sides[i]
		low, high := of[i][0], of[i][1]
		s.column, s.reach = high, -1
		switch {
		case high < 0:
			s.column = low
		case low >= 0 && low != high:
			s.reach, s.from, s.low = low, s.low, nil
		}
		j.lone[i] = types.NewChunk(in[i])
	}
	switch in[0][j.sides[0].column].Kind() {
	case types.KindInt, types.KindFloat, types.KindBool:
		shift := saturate(in[0][j.sides[0].column])
		j.words = &joinOrders[uint64]{r: j, key: func(v *types.Vector, row int, offset int64) uint64 {
			if offset != 0 {
				return uint64(shift(v.Int[row], offset)) ^ 1<<63
			}
			return types.KeyWord(v, row)
		}}
	default:
		var buf []byte
		j.texts = &joinOrders[string]{r: j, key: func(v *types.Vector, row int, _ int64) string {
			buf = types.AppendKey(buf[:0], v, row, false, false)
			return string(buf)
		}}
	}
	j.reset()
	return j
}

// saturate returns the addition that stays within the type, and leaves infinite times what they are.
func saturate(t types.Type) func(x, by int64) int64 {
	return func(x, by int64) int64 {
		switch t.OID {
		case types.OIDDate:
			if types.IsDateInfinite(x) {
				return x
			}
		case types.OIDTimestamp, types.OIDTimestamptz:
			if types.IsTimestampInfinite(x) {
				return x
			}
		}
		return addSaturated(x, by)
	}
}

func addSaturated(x, by int64) int64 {
	y := x + by
	switch {
	case by > 0 && y < x:
		return math.MaxInt64
	case by < 0 && y > x:
		return math.MinInt64
	}
	return y
}

func (j *joinRange) reset() {
	if j.words != nil {
		j.words.reset()
	} else {
		j.texts.reset()
	}
}

// added tells of a new row, that is row r of the chunk in work.
func (j *joinRange) added(g uint32, side int, c *types.Chunk, r int, i uint32) {
	if j.words != nil {
		j.words.added(g, side, c, r, i)
	} else {
		j.texts.added(g, side, c, r, i)
	}
}

// removed tells that a row goes, empty that it is the last one of its chain.
func (j *joinRange) removed(i uint32, row *joinRow, empty bool) error {
	if j.words != nil {
		return j.words.removed(i, row, empty)
	}
	return j.texts.removed(i, row, empty)
}

// forget drops the order of a chain that goes as a whole.
func (j *joinRange) forget(g uint32, side int) {
	if j.words != nil {
		j.words.forget(g, side)
	} else {
		j.texts.forget(g, side)
	}
}

// probe makes candidates of the rows of a long chain of the other side.
func (j *joinRange) probe(g uint32, words []uint64, r int, tag uint32, cols []*types.Vector, out Emitter) error {
	if j.words != nil {
		return j.words.probe(g, words, r, tag, cols, out)
	}
	return j.texts.probe(g, words, r, tag, cols, out)
}

func (j *joinRange) bytes() int64 {
	if j.words != nil {
		return j.words.bytes()
	}
	return j.texts.bytes()
}

// read decodes a row that is kept.
func (j *joinRange) read(row *joinRow) (*types.Chunk, error) {
	c := j.lone[row.flags&rowSide]
	c.Reset()
	_, err := types.DecodeRows(viewString(j.o.st.bytes(row)), 1, c.Cols)
	return c, err
}

func (s *joinOrders[K]) reset() {
	s.of, s.last, s.rows = map[uint64]*rowOrder[K]{}, nil, 0
}

func (s *joinOrders[K]) find(g uint32, side int) *rowOrder[K] {
	k := uint64(g)<<1 | uint64(side)
	if s.last == nil || s.lastOf != k {
		x := s.of[k]
		if x == nil {
			return nil
		}
		s.last, s.lastOf = x, k
	}
	return s.last
}

func (s *joinOrders[K]) entry(side int, c *types.Chunk, r int, i uint32) orderedRow[K] {
	d := &s.r.sides[side]
	e := orderedRow[K]{key: s.key(c.Cols[d.column], r, 0), row: i}
	if d.reach >= 0 {
		e.reach = s.key(c.Cols[d.reach], r, 0)
	}
	return e
}

func (s *joinOrders[K]) added(g uint32, side int, c *types.Chunk, r int, i uint32) {
	if len(s.of) == 0 {
		return
	}
	if x := s.find(g, side); x != nil {
		x.insert(s.entry(side, c, r, i), s.r.sides[side].reach >= 0)
		s.rows++
	}
}

func (s *joinOrders[K]) removed(i uint32, row *joinRow, empty bool) error {
	side := int(row.flags & rowSide)
	if len(s.of) == 0 {
		return nil
	}
	x := s.find(row.group, side)
	if x == nil {
		return nil
	}
	if empty {
		s.forget(row.group, side)
		return nil
	}
	c, err := s.r.read(row)
	if err != nil {
		return err
	}
	n := x.n
	x.remove(s.key(c.Cols[s.r.sides[side].column], 0, 0), i)
	s.rows += x.n - n
	return nil
}

func (s *joinOrders[K]) forget(g uint32, side int) {
	if x := s.find(g, side); x != nil {
		s.rows -= x.n
		s.last = nil
		delete(s.of, uint64(g)<<1|uint64(side))
	}
}

// order returns the order of a chain; it is made when nobody has asked for it before.
func (s *joinOrders[K]) order(g uint32, words []uint64, side int) (*rowOrder[K], error) {
	if x := s.find(g, side); x != nil {
		return x, nil
	}
	st := &s.r.o.st
	rows := make([]orderedRow[K], 0, half(words[joinLength], side))
	for n := half(words[joinHeads], side); n != 0; {
		row := st.row(n - 1)
		c, err := s.r.read(row)
		if err != nil {
			return nil, err
		}
		rows = append(rows, s.entry(side, c, 0, n-1))
		if len(rows)%cancelPollRows == 0 {
			if err := s.r.o.cancelled(); err != nil {
				return nil, err
			}
		}
		n = row.next
	}
	x := &rowOrder[K]{}
	x.fill(rows, s.r.sides[side].reach >= 0)
	s.rows += x.n
	s.of[uint64(g)<<1|uint64(side)] = x
	return x, nil
}

func (s *joinOrders[K]) probe(g uint32, words []uint64, r int, tag uint32, cols []*types.Vector, out Emitter) error {
	o := s.r.o
	other := 1 - o.srcSide
	x, err := s.order(g, words, other)
	if err != nil {
		return err
	}
	var w orderRange[K]
	bound := func(b *rangeBound, k *K, has *bool) {
		if b != nil {
			*k, *has = s.key(o.src.Cols[b.column], r, b.offset), true
		}
	}
	d := &s.r.sides[other]
	bound(d.low, &w.low, &w.hasLow)
	bound(d.high, &w.high, &w.hasHigh)
	bound(d.from, &w.from, &w.hasFrom)
	x.start(&w)
	for more := true; more; {
		s.r.hits, more = x.next(&w, s.r.hits[:0])
		for _, i := range s.r.hits {
			if err := o.propose(i, o.st.row(i), r, tag, cols, out); err != nil {
				return err
			}
		}
	}
	return nil
}

// bytes is the memory held, approximately.
func (s *joinOrders[K]) bytes() int64 {
	var k K
	return int64(len(s.of))*orderBytes + int64(s.rows)*int64(2*unsafe.Sizeof(k)+4)*3/2
}
