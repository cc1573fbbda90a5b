package op

import (
	"fmt"
	"strings"
	"sync"

	"github.com/cespare/xxhash/v2"

	"github.com/streamdb/streamdb/internal/invariants"
	"github.com/streamdb/streamdb/planner/plan"
	"github.com/streamdb/streamdb/types"
)

// maxContractRows is after how many different rows of an edge their multiplicities are no longer watched.
const maxContractRows = 1 << 20

// Contract watches what a node of a plan emits, over all subtasks, in builds with invariants: the columns are those of the plan; epochs go up;
// watermarks do not go back, nor do rows come behind them from operators that emit when windows close; rows that only grow are never retracted; at barriers
// no row has been retracted more often than it was inserted, and no two rows share a stream key. A nil Contract watches nothing.
type Contract struct {
	node   *plan.Node
	keyed  bool
	closes int // column of an operator that emits when windows close, -1: none

	mu    sync.Mutex
	epoch uint64
	// rows and keys hold sums of weights by hash. Of a run that goes on from a checkpoint they begin at an unknown number, so that what they moved
	// through is what counts: a row of a stream key is there once or not at all.
	rows, keys map[uint64]*multiplicity
	touched    []*multiplicity
	resumed    bool
}

// ContractEdge watches one subtask's share: subtasks may be an epoch apart, so what they emit counts when they end it.
type ContractEdge struct {
	*Contract
	marks      map[int]int64
	rows, keys map[uint64]*multiplicity
	buf        []byte
}

type multiplicity struct {
	sum, low, high int64
	key, listed    bool
	row            string // encoded, one of those counted
}

// ContractOf says whose output a contract watches.
type ContractOf int

// Runs that are watched: jobs from their beginning, jobs that go on with state that the contract has not seen, and queries, whose operators need not keep
// their stream keys.
const (
	OfJob ContractOf = iota
	OfResumedJob
	OfQuery
)

// NewContract returns the contract of a node's output, nil in builds without invariants.
func NewContract(n *plan.Node, of ContractOf) *Contract {
	if !invariants.Enabled {
		return nil
	}
	c := &Contract{node: n, resumed: of == OfResumedJob, keyed: of != OfQuery && n.Key != nil, closes: closingColumn(n)}
	if !replicated(n) && n.Key != nil { // changes of sums have no rows that come and go
		c.rows, c.keys = map[uint64]*multiplicity{}, map[uint64]*multiplicity{}
	}
	return c
}

// Edge returns what watches another subtask.
func (c *Contract) Edge() *ContractEdge {
	if c == nil {
		return nil
	}
	return &ContractEdge{Contract: c, marks: map[int]int64{}, rows: map[uint64]*multiplicity{}, keys: map[uint64]*multiplicity{}}
}

// replicated reports whether every subtask emits all rows.
func replicated(n *plan.Node) bool {
	return n.Kind == plan.KindExchange && n.Exchange.Dist == plan.DistBroadcast || len(n.Inputs) == 1 && replicated(n.Inputs[0])
}

// closingColumn returns the output column whose watermark closes the windows that the node emits, -1 for those that emit every epoch.
func closingColumn(n *plan.Node) int {
	switch n.Kind {
	case plan.KindAgg:
		return n.Agg.OnClose // group columns come first
	case plan.KindTopN:
		if n.TopN.OnClose != nil {
			return *n.TopN.OnClose
		}
	case plan.KindOver:
		if n.Over.OnClose != nil {
			return *n.Over.OnClose
		}
	}
	return -1
}

func (c *Contract) failf(format string, args ...any) {
	invariants.Failf("%s %d: %s", c.node.Kind, c.node.ID, fmt.Sprintf(format, args...))
}

// Chunk takes rows that are about to be emitted.
func (c *ContractEdge) Chunk(ch *types.Chunk) {
	if c == nil {
		return
	}
	c.shape(ch)
	mark, marked := c.marks[c.closes]
	for i := range ch.Rows() {
		r := ch.Row(i)
		w := ch.Weight(r)
		if w < 0 && c.node.AppendOnly {
			c.failf("weight %d in rows that only grow: %s", w, contractRow(ch, r))
		}
		if v := c.closes; marked && v >= 0 && !ch.Cols[v].IsNull(r) && ch.Cols[v].Type.Kind() == types.KindInt && ch.Cols[v].Int[r] < mark {
			c.failf("a row behind the watermark %d: %s", mark, contractRow(ch, r))
		}
		if c.Contract.rows != nil && w != 0 {
			c.count(ch, r, w)
		}
	}
}

// shape checks columns, selection and weights.
func (c *Contract) shape(ch *types.Chunk) {
	if len(ch.Cols) != len(c.node.Schema) {
		c.failf("%d columns, the plan says %d", len(ch.Cols), len(c.node.Schema))
	}
	for i, v := range ch.Cols {
		if want := c.node.Schema[i].Type; v.Type.OID != want.OID && !types.Widens(want, v.Type) { // ALTER TABLE may have widened it since the plan was made
			c.failf("column %d has type %s, the plan says %s", i, v.Type, want)
		}
		if v.Len() < ch.N {
			c.failf("column %d has %d rows of %d", i, v.Len(), ch.N)
		}
		if v.Valid != nil && len(v.Valid)*64 < ch.N {
			c.failf("column %d has validity of %d rows of %d", i, len(v.Valid)*64, ch.N)
		}
	}
	if ch.Weights != nil && len(ch.Weights) < ch.N {
		c.failf("%d weights of %d rows", len(ch.Weights), ch.N)
	}
	for i, s := range ch.Sel {
		if int(s) >= ch.N || i > 0 && s <= ch.Sel[i-1] {
			c.failf("selection %v of %d rows", ch.Sel, ch.N)
		}
	}
}

func (c *ContractEdge) count(ch *types.Chunk, r int, w int64) {
	c.buf = types.AppendRow(c.buf[:0], ch.Cols, r)
	h, n := xxhash.Sum64(c.buf), len(c.buf)
	c.add(c.rows, h, w, false, n)
	if !c.keyed {
		return
	}
	for _, k := range c.node.Key {
		c.buf = types.AppendKey(c.buf, ch.Cols[k], r, false, false)
	}
	c.add(c.keys, xxhash.Sum64(c.buf[n:]), w, true, n)
}

func (c *ContractEdge) add(to map[uint64]*multiplicity, h uint64, w int64, key bool, n int) {
	m := to[h]
	if m == nil {
		m = &multiplicity{key: key, row: string(c.buf[:n])}
		to[h] = m
	}
	m.sum += w
}

func contractRow(ch *types.Chunk, r int) string {
	one := *ch
	one.Sel, one.Weights = []uint16{uint16(r)}, nil
	return strings.TrimSpace(one.String())
}

// text decodes a touched row.
func (c *Contract) text(row string) string {
	ch := types.NewChunk(c.node.Schema.Types())
	if _, err := types.DecodeRow([]byte(row), ch.Cols); err != nil {
		return err.Error()
	}
	ch.PushWeight(1)
	return strings.TrimSpace(ch.String())
}

// Watermark takes a watermark that is about to be emitted.
func (c *ContractEdge) Watermark(w Watermark) {
	if c == nil {
		return
	}
	if w.Column < 0 || w.Column >= len(c.node.Schema) {
		c.failf("watermark on column %d of %d", w.Column, len(c.node.Schema))
	}
	if old, ok := c.marks[w.Column]; ok && w.Value < old {
		c.failf("watermark of column %d goes back from %d to %d", w.Column, old, w.Value)
	}
	c.marks[w.Column] = w.Value
}

// Barrier ends an epoch of the subtask.
func (c *ContractEdge) Barrier(epoch uint64) {
	if c == nil {
		return
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if epoch < c.epoch { // the rounds of a backfill have one epoch
		c.failf("epoch %d after %d", epoch, c.epoch)
	}
	c.epoch = epoch
	c.merge(c.Contract.rows, c.rows)
	c.merge(c.Contract.keys, c.keys)
	if len(c.Contract.rows) > maxContractRows {
		c.Contract.rows, c.Contract.keys, c.touched = nil, nil, nil
	}
}

func (c *Contract) merge(to, from map[uint64]*multiplicity) {
	if to != nil {
		for h, d := range from {
			m := to[h]
			if m == nil {
				m = &multiplicity{key: d.key}
				to[h] = m
			}
			m.sum, m.row = m.sum+d.sum, d.row
			if !m.listed {
				m.listed = true
				c.touched = append(c.touched, m)
			}
		}
	}
	clear(from)
}

// Check looks at the sums when all subtasks have ended an epoch and none the next.
func (c *Contract) Check() {
	if c == nil {
		return
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, m := range c.touched {
		m.listed = false
		m.low, m.high = min(m.low, m.sum), max(m.high, m.sum)
		what := "row"
		if m.key {
			what = "rows with the key of"
		}
		switch {
		case m.low < 0 && !c.resumed:
			c.failf("epoch %d: %s %s: retracted more often than inserted, sum %d", c.epoch, what, c.text(m.row), m.low)
		case c.keyed && m.high-m.low > 1:
			c.failf("epoch %d: %s %s: the key %v does not tell rows apart, sums from %d to %d", c.epoch, what, c.text(m.row), c.node.Key, m.low, m.high)
		}
		m.row = ""
	}
	c.touched = c.touched[:0]
	if !c.resumed {
		c.forget(c.rows)
		c.forget(c.keys)
	}
}

// forget drops what is not there any more, when that may be much.
func (c *Contract) forget(of map[uint64]*multiplicity) {
	if len(of) < maxContractRows/2 {
		return
	}
	for h, m := range of {
		if m.sum == 0 {
			delete(of, h)
		}
	}
}

// checked is an Emitter under a contract.
type checked struct {
	check *ContractEdge
	out   Emitter
}

// Emit implements Emitter.
func (e *checked) Emit(c *types.Chunk) error {
	e.check.Chunk(c)
	return e.out.Emit(c)
}

// EmitWatermark implements Emitter.
func (e *checked) EmitWatermark(w Watermark) error {
	e.check.Watermark(w)
	return e.out.EmitWatermark(w)
}
