package exec

import (
	"sync/atomic"

	"github.com/streamdb/streamdb/checkpoint"
	"github.com/streamdb/streamdb/exec/op"
	"github.com/streamdb/streamdb/planner/plan"
	"github.com/streamdb/streamdb/state"
	"github.com/streamdb/streamdb/types"
)

// materializeTable is the state table of a job's result; operators' tables count up from 0.
const materializeTable uint32 = 0xFFFFFF00

// materializeOp is the root of a job with a result. Rows of one epoch may arrive in any order, so they are consolidated per key and applied
// at the barrier; what really changed goes to the change log and, as a view of the part, into the epoch's version.
//
// State: table materializeTable, Ordered, key = memcomparable key of KeyColumns, value = all columns by types.AppendRow. An index (plan.Materialize
// with an Order) has all of it in key group 0.
type materializeOp struct {
	run    *run
	part   *state.Part
	keys   []int
	order  []plan.KeyOrder // of keys, where the relation is stored in their order
	types  []types.Type
	direct bool // append-only input: every key is new, rows go straight to the part
	hash   []uint64

	rows    epochRows
	arena   []byte
	key     []byte
	log     *types.Chunk
	logs    []*types.Chunk // full chunks of the running epoch
	view    *state.View    // of the last barrier, until the driver takes it
	logging bool
	filling bool // the run's backfill as of the last barrier: the driver ends it while source rows of the next epoch arrive
	// settling: what was in flight at the checkpoint that the run goes on from is taken in, which readers of the log have.
	settling bool
}

var _ op.Operator = (*materializeOp)(nil)

// Open implements op.Operator.
func (m *materializeOp) Open(ctx *op.Context) error {
	m.keys, m.order = ctx.Node.Materialize.KeyColumns, ctx.Node.Materialize.Order
	m.types = ctx.Node.Schema.Types()
	m.direct = ctx.Node.Inputs[0].AppendOnly
	m.rows.reset()
	m.settling = m.run.settling
	m.log = types.NewChunk(m.types)
	var err error
	m.part, err = ctx.Store.Part(materializeTable, ctx.Subtask, ctx.Groups, state.Ordered)
	return err
}

// Process implements op.Operator.
func (m *materializeOp) Process(_ int, c *types.Chunk, _ op.Emitter) error {
	if cap(m.hash) < c.N {
		m.hash = make([]uint64, max(c.N, types.MaxChunkRows))
	}
	h := m.hash[:c.N]
	if m.order == nil {
		types.HashRows(c, m.keys, h)
	}
	maxPar := m.run.engine.cfg.MaxPar
	for i := range c.Rows() {
		r := c.Row(i)
		w := c.Weight(r)
		if w == 0 {
			continue
		}
		kg := uint16(0)
		if m.order == nil {
			kg = types.KeyGroup(h[r], maxPar)
		}
		m.key = m.key[:0]
		for i, k := range m.keys {
			o := plan.KeyOrder{}
			if m.order != nil {
				o = m.order[i]
			}
			m.key = types.AppendKey(m.key, c.Cols[k], r, o.Desc, o.NullsFirst)
		}
		at := len(m.arena)
		m.arena = types.AppendRow(m.arena, c.Cols, r)
		if m.direct {
			m.part.Put(kg, m.key, m.arena[at:])
			m.arena = m.arena[:at]
			continue
		}
		m.rows.add(kg, m.key, m.arena[at:], w)
		m.arena = m.arena[:at]
	}
	if m.direct && m.wantsLog() {
		if m.log.N+c.Rows() > types.MaxChunkRows {
			m.nextLog()
		}
		m.log.AppendChunk(c)
	}
	return nil
}

// wantsLog: readers that attach later start from a version, so changes nobody waits for are not kept.
func (m *materializeOp) wantsLog() bool {
	return !m.filling && !m.settling && m.run.job.rel.Log.HasReaders()
}

// Watermark implements op.Operator.
func (m *materializeOp) Watermark(int, op.Watermark, op.Emitter) error { return nil }

// Barrier implements op.Operator.
func (m *materializeOp) Barrier(b checkpoint.Barrier, _ op.Emitter) error {
	if b.Unaligned {
		return nil // the rows of the epoch are in flight
	}
	m.filling = m.run.backfill
	m.logging = m.wantsLog()
	if err := m.rows.each(m.apply); err != nil {
		return err
	}
	m.rows.reset()
	m.nextLog()
	for _, c := range m.logs {
		m.run.job.rel.Log.Append(b.Epoch, c)
	}
	m.logs = nil
	if m.view != nil {
		m.view.Close()
	}
	m.view, m.settling = m.part.View(), false
	return nil
}

// apply brings the state of the key that starts at row i of the pending list up to date.
func (m *materializeOp) apply(i int32) error {
	rows := m.rows.rows
	first := &rows[i]
	put, retract := int32(0), false
	for k := i; k != 0; k = rows[k].next {
		p := &rows[k]
		switch {
		case p.weight > 0:
			put = k
		case p.weight < 0:
			retract = true
		}
		if m.logging && p.weight != 0 {
			if err := m.logRow(m.rows.bytes(p.row), p.weight); err != nil {
				return err
			}
		}
	}
	switch {
	case put != 0:
		m.part.Put(first.kg, m.rows.bytes(first.key), m.rows.bytes(rows[put].row))
	case retract:
		m.part.Delete(first.kg, m.rows.bytes(first.key))
	}
	return nil
}

func (m *materializeOp) logRow(row []byte, w int64) error {
	if m.log.N == types.MaxChunkRows {
		m.nextLog()
	}
	if _, err := types.DecodeRow(row, m.log.Cols); err != nil {
		return err
	}
	m.log.PushWeight(w)
	return nil
}

// nextLog puts the log chunk aside and begins a new one: the change log takes chunks over.
func (m *materializeOp) nextLog() {
	if m.log.N == 0 {
		return
	}
	m.logs = append(m.logs, m.log)
	m.log = types.NewChunk(m.types)
}

// takeView hands the version of the last barrier to the driver.
func (m *materializeOp) takeView() *state.View {
	v := m.view
	m.view = nil
	return v
}

// Close implements op.Operator.
func (m *materializeOp) Close() error {
	if m.view != nil {
		m.view.Close()
		m.view = nil
	}
	return nil
}

// discardOp is the root of benchmark jobs: it counts rows.
type discardOp struct{ rows *atomic.Int64 }

var _ op.Operator = (*discardOp)(nil)

// Open implements op.Operator.
func (d *discardOp) Open(*op.Context) error { return nil }

// Process implements op.Operator.
func (d *discardOp) Process(_ int, c *types.Chunk, _ op.Emitter) error {
	d.rows.Add(int64(c.Rows()))
	return nil
}

// Watermark implements op.Operator.
func (d *discardOp) Watermark(int, op.Watermark, op.Emitter) error { return nil }

// Barrier implements op.Operator.
func (d *discardOp) Barrier(checkpoint.Barrier, op.Emitter) error { return nil }

// Close implements op.Operator.
func (d *discardOp) Close() error { return nil }
