package op

import "github.com/streamdb/streamdb/types"

// unionOp passes the rows of all inputs on. Its watermark on a column is the smallest of the inputs'.
type unionOp struct {
	base
	marks mergedMarks
}

var _ Operator = (*unionOp)(nil)

func (o *unionOp) Open(ctx *Context) error {
	o.ctx = ctx
	o.marks.ports = len(o.node.Inputs)
	return nil
}

func (o *unionOp) Process(_ int, c *types.Chunk, out Emitter) error {
	if c.Rows() == 0 {
		return nil
	}
	return out.Emit(c)
}

func (o *unionOp) Watermark(port int, w Watermark, out Emitter) error {
	if v, ok := o.marks.merge(port, w.Column, w.Value); ok {
		return out.EmitWatermark(Watermark{Column: w.Column, Value: v})
	}
	return nil
}

// mergedMarks merges the watermarks of several ports on one output column: the merged one is the smallest, and rises only.
type mergedMarks struct {
	ports  int
	byPort map[int][]portMark // output column → mark per port
	sent   map[int]int64
}

type portMark struct {
	value int64
	seen  bool
}

// raise takes a mark and reports whether it has risen.
func (m *portMark) raise(v int64) bool {
	if m.seen && m.value >= v {
		return false
	}
	*m = portMark{value: v, seen: true}
	return true
}

// merge takes a port's watermark on a column and returns the merged one when it has risen.
func (m *mergedMarks) merge(port, column int, value int64) (int64, bool) {
	if m.byPort == nil {
		m.byPort, m.sent = map[int][]portMark{}, map[int]int64{}
	}
	ps := m.byPort[column]
	if ps == nil {
		ps = make([]portMark, m.ports)
		m.byPort[column] = ps
	}
	ps[port].raise(value)
	low := ps[0].value
	for _, p := range ps {
		if !p.seen {
			return 0, false
		}
		low = min(low, p.value)
	}
	if last, ok := m.sent[column]; ok && last >= low {
		return 0, false
	}
	m.sent[column] = low
	return low, true
}
