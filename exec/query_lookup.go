package exec

import (
	"bytes"
	"slices"

	"github.com/streamdb/streamdb/checkpoint"
	"github.com/streamdb/streamdb/exec/op"
	"github.com/streamdb/streamdb/planner/plan"
	"github.com/streamdb/streamdb/types"
)

// minLookupRows is how many rows a side of a join has at least that is worth reading by keys.
const minLookupRows = 256

// lookup reads one side of a join by the keys of the other one, which comes first: it is kept while it is small. When it turns out not to be,
// both sides are read as any join reads them.
type lookup struct {
	x     *oneShot
	keys  []int // columns of the first side that give the keys
	index []plan.IndexKey
	limit int // rows and keys

	out     *shotNode // where rows of the first side go to the join
	second  []*shotNode
	late    bool // the first side's rows go to the join after the second side, to keep their order
	kept    []*types.Chunk
	rows    int
	seen    map[string]struct{}
	over    bool // too many: the second side is read whole
	started bool // the second side has been read
	buf     []byte
}

// narrowed says what a scan reads that a join has narrowed.
type narrowed struct {
	keys  [][]byte // sorted
	whole bool     // they are all of the index's key, not the first part
}

// chooseLookup decides which side of a join is read by the keys of the other: the larger one.
func (x *oneShot) chooseLookup(j *plan.Node) *plan.Lookup {
	var best *plan.Lookup
	var rows int64
	for i := range j.Join.Lookups {
		l := &j.Join.Lookups[i]
		n, _ := x.rowsOf(scanBelow(j.Inputs[l.Side]))
		other, sure := x.rowsOf(j.Inputs[1-l.Side])
		if n < minLookupRows || sure && other > int64(lookupLimit(n)) || n <= rows {
			continue
		}
		best, rows = l, n
	}
	return best
}

// lookupLimit is how many keys a table of some rows is asked for one by one.
func lookupLimit(rows int64) int { return min(max(int(rows/lookupShare), fewLookups), maxLookups) }

// scanBelow is the scan at the bottom of a chain of operators.
func scanBelow(n *plan.Node) *plan.Node {
	for len(n.Inputs) == 1 {
		n = n.Inputs[0]
	}
	return n
}

// rowsOf bounds the rows of a plan; sure tells that they are about as many, as nothing drops any. It is 0 where nothing is known.
func (x *oneShot) rowsOf(n *plan.Node) (rows int64, sure bool) {
	switch n.Kind {
	case plan.KindScan:
		switch s := n.Scan; {
		case s.Virtual != "":
			return 0, false
		case s.Point != nil:
			return 1, true
		default:
			v := x.q.Pinned.Versions[s.Relation]
			if v == nil {
				return 0, false
			}
			return v.Rows, s.Index == nil
		}
	case plan.KindValues:
		return int64(len(n.Values.Rows)), true
	case plan.KindProject:
		return x.rowsOf(n.Inputs[0])
	}
	return 0, false
}

// buildLookup makes a join with one side read by the keys of the other.
func (x *oneShot) buildLookup(n *shotNode, l *plan.Lookup) error {
	join, side := n.plan, l.Side
	other := 1 - side
	scan := scanBelow(join.Inputs[side])
	lk := &lookup{x: x, index: scan.Scan.Probe.Keys[:len(l.Keys)], late: side == 1, seen: map[string]struct{}{}}
	rows, _ := x.rowsOf(scan)
	lk.limit = lookupLimit(rows)
	of := [2][]int{join.Join.LeftKeys, join.Join.RightKeys}[other]
	for _, k := range l.Keys {
		lk.keys = append(lk.keys, of[k])
	}
	outer := x.nodes
	defer func() { x.nodes = outer }()
	gate := &shotNode{plan: join, op: lk, parent: n, port: other, counts: n.counts}
	lk.out = gate
	x.nodes = nil
	if err := x.build(join.Inputs[other], gate, 0); err != nil {
		return err
	}
	first := x.nodes
	x.nodes = nil
	if err := x.build(join.Inputs[side], n, side); err != nil {
		return err
	}
	lk.second = x.nodes
	outer = append(outer, &shotNode{plan: join, counts: n.counts, feed: func(*shotNode) error {
		if err := x.drive(first); err != nil {
			return err
		}
		if !lk.over {
			if x.narrowed == nil {
				x.narrowed = map[*plan.Node]*narrowed{}
			}
			x.narrowed[scan] = &narrowed{keys: lk.sorted(), whole: len(lk.index) == len(scan.Scan.Probe.Keys)}
		}
		if err := lk.start(); err != nil {
			return err
		}
		return lk.flush()
	}})
	return nil
}

// Open implements op.Operator.
func (*lookup) Open(*op.Context) error { return nil }

// Watermark implements op.Operator.
func (*lookup) Watermark(_ int, w op.Watermark, out op.Emitter) error { return out.EmitWatermark(w) }

// Barrier implements op.Operator.
func (*lookup) Barrier(checkpoint.Barrier, op.Emitter) error { return nil }

// Close implements op.Operator.
func (*lookup) Close() error { return nil }

// Process implements op.Operator: it takes rows of the first side.
func (l *lookup) Process(_ int, c *types.Chunk, out op.Emitter) error {
	if l.over {
		return out.Emit(c)
	}
	l.rows += c.Rows()
	if l.over = l.late && l.rows > l.limit; !l.over {
		l.note(c)
		l.over = len(l.seen) > l.limit
	}
	switch {
	case !l.late:
		return out.Emit(c)
	case !l.over:
		l.kept = append(l.kept, c.Clone())
		return nil
	}
	if err := l.start(); err != nil {
		return err
	}
	if err := l.flush(); err != nil {
		return err
	}
	return out.Emit(c)
}

// note collects the keys of rows. A key that no row of the second side can have is left out.
func (l *lookup) note(c *types.Chunk) {
rows:
	for i := range c.Rows() {
		r := c.Row(i)
		l.buf = l.buf[:0]
		for k, col := range l.keys {
			d := c.Cols[col].Get(r)
			t := l.index[k].Expr.Type
			if d.Null || t.Kind() == types.KindInt && !fitsInt(d.Int, t.OID) {
				continue rows
			}
			d.Type = types.Type{OID: t.OID}
			l.buf = types.AppendKeyDatum(l.buf, d, l.index[k].Desc, l.index[k].NullsFirst)
		}
		if _, ok := l.seen[string(l.buf)]; !ok {
			l.seen[string(l.buf)] = struct{}{}
		}
	}
}

func fitsInt(v int64, t types.OID) bool {
	switch t {
	case types.OIDInt2:
		return v == int64(int16(v))
	case types.OIDInt4:
		return v == int64(int32(v))
	}
	return true
}

func (l *lookup) sorted() [][]byte {
	keys := make([][]byte, 0, len(l.seen))
	for k := range l.seen {
		keys = append(keys, []byte(k))
	}
	slices.SortFunc(keys, bytes.Compare)
	return keys
}

// start reads the second side.
func (l *lookup) start() error {
	if l.started {
		return nil
	}
	l.started = true
	return l.x.drive(l.second)
}

// flush gives the rows that were kept to the join.
func (l *lookup) flush() error {
	for _, c := range l.kept {
		if err := l.out.Emit(c); err != nil {
			return err
		}
	}
	l.kept = nil
	return nil
}
