package op

import (
	"encoding/binary"
	"slices"

	"github.com/streamdb/streamdb/planner/plan"
	"github.com/streamdb/streamdb/state"
	"github.com/streamdb/streamdb/types"
)

// sortedRows keeps whole rows by group and order. State key: group columns · order columns · stream key · encoded row → varint count · uvarint ends of
// the group, order and stream key parts · what the operator keeps with the row. The encoded row at the end keeps two versions of a row apart: within an
// epoch an insertion may come before the retraction of what it replaces. An entry with which something is kept stays when its count becomes 0.
type sortedRows struct {
	ctx   *Context
	node  *plan.Node
	table table
	group []int
	// spread are the columns by whose hash rows are spread; nil: those of group.
	spread []int
	order  []plan.SortKey
	tie    []int
	// tieDesc: rows that are equal in order are in descending order of the stream key.
	tieDesc bool
	mode    state.PartMode
	types   []types.Type

	hash     []uint64
	key, val []byte
	ends     [3]int
	found    sortedRow
	vecs     []*types.Vector
	tieVecs  []*types.Vector
}

// sortedRow is an entry during a scan; its bytes are valid until the next one.
type sortedRow struct {
	key   []byte
	count int64
	ends  [3]int
	kept  []byte
}

func (r *sortedRow) row() []byte      { return r.key[r.ends[2]:] }
func (r *sortedRow) orderKey() []byte { return r.key[:r.ends[1]] }

func (s *sortedRows) open(ctx *Context, node *plan.Node, number uint32) error {
	return s.openPort(ctx, node, number, 0)
}

// openPort is open for rows of one of several inputs.
func (s *sortedRows) openPort(ctx *Context, node *plan.Node, number uint32, port int) error {
	s.ctx, s.node, s.types = ctx, node, ctx.InputTypes[port]
	s.tie = inputKey(node, port, len(s.types))
	if s.spread == nil {
		s.spread = s.group
	}
	var err error
	s.table, err = openTable(ctx, node, number, s.mode)
	return err
}

// begin prepares for the rows of c.
func (s *sortedRows) begin(c *types.Chunk) {
	s.hash = hashesOf(s.hash, c, s.spread)
	s.look(c)
}

// look is begin for those who know the key groups of rows.
func (s *sortedRows) look(c *types.Chunk) {
	s.vecs = pick(s.vecs, c, s.group)
	s.tieVecs = pick(s.tieVecs, c, s.tie)
}

// locate builds the key of row r in s.key and returns its key group and the length of the group part.
func (s *sortedRows) locate(c *types.Chunk, r int) (kg uint16, groupEnd int) {
	s.encode(c, r)
	return keyGroup(s.ctx, s.hash[r]), s.ends[0]
}

// encode builds the key of row r in s.key.
func (s *sortedRows) encode(c *types.Chunk, r int) {
	k := types.AppendKeyRow(s.key[:0], s.vecs, r)
	s.ends[0] = len(k)
	for _, o := range s.order {
		k = types.AppendKey(k, c.Cols[o.Column], r, o.Desc, o.NullsFirst)
	}
	s.ends[1] = len(k)
	if s.tieDesc {
		for _, v := range s.tieVecs {
			k = types.AppendKey(k, v, r, true, false)
		}
	} else {
		k = types.AppendKeyRow(k, s.tieVecs, r)
	}
	s.ends[2] = len(k)
	s.key = types.AppendRow(k, c.Cols, r)
}

// add changes the count of the located row.
func (s *sortedRows) add(kg uint16, w int64) error {
	v, ok, err := s.table.get(kg, s.key)
	if err != nil {
		return err
	}
	if !ok {
		return s.set(kg, s.key, s.ends, w)
	}
	if err := s.read(&s.found, s.key, v); err != nil {
		return err
	}
	if w += s.found.count; len(s.found.kept) == 0 {
		return s.set(kg, s.key, s.ends, w)
	}
	s.val = append(s.appendValue(s.val[:0], w, s.ends), s.found.kept...)
	return s.table.put(kg, s.key, s.val)
}

// set sets the count of a row with which nothing is kept.
func (s *sortedRows) set(kg uint16, key []byte, ends [3]int, count int64) error {
	if count == 0 {
		return s.table.del(kg, key)
	}
	s.val = s.appendValue(s.val[:0], count, ends)
	return s.table.put(kg, key, s.val)
}

// appendValue appends an entry's value, but for what is kept with the row.
func (s *sortedRows) appendValue(dst []byte, count int64, ends [3]int) []byte {
	dst = binary.AppendVarint(dst, count)
	for _, e := range ends {
		dst = binary.AppendUvarint(dst, uint64(e))
	}
	return dst
}

// read sets r to an entry; its slices are those given.
func (s *sortedRows) read(r *sortedRow, key, val []byte) error {
	b := byteReader{b: val}
	r.key, r.count = key, b.varint()
	for i := range r.ends {
		r.ends[i] = int(b.uvarint())
	}
	if r.kept = b.b; b.bad || r.ends[2] > len(key) || r.ends[1] > r.ends[2] {
		return errCorruptState(s.node)
	}
	return nil
}

// scan calls f for the rows of a group with positive counts, in order, until it returns false.
func (s *sortedRows) scan(kg uint16, prefix []byte, f func(r *sortedRow) (bool, error)) error {
	return s.scanFrom(kg, prefix, nil, false, f)
}

// scanFrom is scan from a key on, in either direction (see table.scanFrom).
func (s *sortedRows) scanFrom(kg uint16, prefix, from []byte, desc bool, f func(r *sortedRow) (bool, error)) error {
	return s.scanEntries(kg, prefix, from, desc, func(r *sortedRow) (bool, error) {
		if r.count <= 0 {
			return true, nil
		}
		return f(r)
	})
}

// scanEntries is scanFrom over all entries, also those whose count is not positive.
func (s *sortedRows) scanEntries(kg uint16, prefix, from []byte, desc bool, f func(r *sortedRow) (bool, error)) error {
	var row sortedRow
	return s.table.scanFrom(kg, prefix, from, desc, func(k, v []byte) (bool, error) {
		if err := s.read(&row, k, v); err != nil {
			return false, err
		}
		return f(&row)
	})
}

// rowDelta sums weights of encoded rows; rows whose weight is 0 vanish. The last columns of a row may be numbers, as varints behind it.
type rowDelta struct {
	weight  map[string]int64
	order   []string
	numbers int
}

func (d *rowDelta) add(row []byte, w int64) {
	if d.weight == nil {
		d.weight = map[string]int64{}
	}
	if old, ok := d.weight[viewString(row)]; ok {
		d.weight[string(row)] = old + w
		return
	}
	k := string(row)
	d.weight[k] = w
	d.order = append(d.order, k)
}

// replace emits what changes when the rows old give way to now, and empties d.
func (d *rowDelta) replace(old, now [][]byte, buf *outBuf, out Emitter) error {
	for _, r := range old {
		d.add(r, -1)
	}
	for _, r := range now {
		d.add(r, 1)
	}
	return d.emit(buf, out)
}

// emit emits the difference, rows in the order they were added first, and empties d.
func (d *rowDelta) emit(buf *outBuf, out Emitter) error {
	for _, k := range d.order {
		w := d.weight[k]
		if w == 0 {
			continue
		}
		n := len(buf.c.Cols) - d.numbers
		rest, err := types.DecodeRows(k, 1, buf.c.Cols[:n])
		if err != nil {
			return err
		}
		r := byteReader{b: []byte(rest)}
		for _, v := range buf.c.Cols[n:] {
			pushInt(v, r.varint())
		}
		if err := buf.push(w, out); err != nil {
			return err
		}
	}
	d.reset()
	return nil
}

func (d *rowDelta) reset() {
	d.order = d.order[:0]
	clear(d.weight)
}

// groupMarks keeps watermarks on columns until the barrier.
type groupMarks struct{ pend []Watermark }

func (m *groupMarks) set(w Watermark) {
	for i := range m.pend {
		if m.pend[i].Column == w.Column {
			m.pend[i].Value = w.Value
			return
		}
	}
	m.pend = append(m.pend, w)
}

func (m *groupMarks) emit(out Emitter) error {
	for _, w := range m.pend {
		if err := out.EmitWatermark(w); err != nil {
			return err
		}
	}
	m.pend = m.pend[:0]
	return nil
}

// rowText decodes encoded rows. Strings of what it decodes are views into memory of its own, which is never used again.
type rowText struct {
	strings bool
	buf     []byte
}

const rowTextBytes = 64 << 10

// hasStrings reports whether values of some of the types are kept as strings.
func hasStrings(ts []types.Type) bool {
	return slices.ContainsFunc(ts, func(t types.Type) bool { return t.Kind() == types.KindString })
}

// decode appends a row to cols.
func (t *rowText) decode(row []byte, cols []*types.Vector) error {
	if t.strings {
		if cap(t.buf)-len(t.buf) < len(row) {
			t.buf = make([]byte, 0, max(len(row), rowTextBytes))
		}
		n := len(t.buf)
		t.buf = append(t.buf, row...)
		row = t.buf[n:]
	}
	_, err := types.DecodeRows(viewString(row), 1, cols)
	return err
}
