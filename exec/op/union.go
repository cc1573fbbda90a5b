package op

import (
	"math"
	"slices"

	"github.com/streamdb/streamdb/types"
)

// unionOp passes the rows of all inputs on. Its watermark on a column is the smallest of the inputs' that are not idle.
type unionOp struct {
	base
	marks mergedMarks
}

var (
	_ Operator = (*unionOp)(nil)
	_ Idler    = (*unionOp)(nil)
)

func (o *unionOp) Open(ctx *Context) error {
	o.ctx = ctx
	o.marks.ports = len(o.node.Inputs)
	return nil
}

func (o *unionOp) Process(port int, c *types.Chunk, out Emitter) error {
	if c.Rows() == 0 {
		return nil
	}
	o.marks.wake(port)
	return out.Emit(c)
}

func (o *unionOp) Watermark(port int, w Watermark, out Emitter) error {
	o.marks.wake(port)
	if v, ok := o.marks.merge(port, w.Column, w.Value); ok {
		return out.EmitWatermark(Watermark{Column: w.Column, Value: v})
	}
	return nil
}

// Idle implements Idler.
func (o *unionOp) Idle(port int, out Emitter) error {
	for _, w := range o.marks.idle(port) {
		if err := out.EmitWatermark(w); err != nil {
			return err
		}
	}
	return nil
}

// mergedMarks merges the watermarks of several ports on one output column: the merged one is the smallest, and rises only.
type mergedMarks struct {
	ports   int
	resting []bool             // per port; nil: none
	byPort  map[int][]portMark // output column → mark per port
	sent    map[int]int64
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

// passed reports whether none of the first n values of v is NULL or behind the mark.
func (m *portMark) passed(v *types.Vector, n int) bool {
	return !m.seen || v.Valid == nil && slices.Min(v.Int[:n]) >= m.value
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
	return m.low(column)
}

// low returns the merged watermark of a column when it has risen.
func (m *mergedMarks) low(column int) (int64, bool) {
	low, some := int64(math.MaxInt64), false
	for i, p := range m.byPort[column] {
		if m.resting != nil && m.resting[i] {
			continue
		}
		if !p.seen {
			return 0, false
		}
		low, some = min(low, p.value), true
	}
	if last, ok := m.sent[column]; !some || ok && last >= low {
		return 0, false
	}
	m.sent[column] = low
	return low, true
}

// idle stops waiting for a port and returns what has risen by that.
func (m *mergedMarks) idle(port int) []Watermark {
	if m.resting == nil {
		m.resting = make([]bool, m.ports)
	}
	if m.resting[port] {
		return nil
	}
	m.resting[port] = true
	var out []Watermark
	for column := range m.byPort {
		if v, ok := m.low(column); ok {
			out = append(out, Watermark{Column: column, Value: v})
		}
	}
	return out
}

// wake ends what idle began.
func (m *mergedMarks) wake(port int) {
	if m.resting != nil {
		m.resting[port] = false
	}
}
