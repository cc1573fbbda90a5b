package exec

import (
	"cmp"
	"context"
	"encoding/binary"
	"fmt"
	"slices"

	"github.com/streamdb/streamdb/checkpoint"
	"github.com/streamdb/streamdb/connector"
	"github.com/streamdb/streamdb/exec/op"
	"github.com/streamdb/streamdb/state"
	"github.com/streamdb/streamdb/types"
)

// sinkTable is the state table of a sink's committables.
const sinkTable uint32 = 0xFFFFFF01

// sinkOp is the root of a job that writes its result to a connector. What a writer has sealed at a barrier is named by committables, which are state of the job until
// they were committed: they are in every checkpoint from that barrier on.
//
// State: table sinkTable, Ordered, in the first key group of the subtask, key = epoch, number (8 bytes each, big endian), value = a committable. The epoch is that
// of the barrier at which the committable became complete, or of one before.
type sinkOp struct {
	run     *run
	part    *state.Part
	kg      uint16
	writer  connector.SinkWriter
	mode    connector.SinkMode
	exactly bool
	keys    []int // nil: rows are written as they come
	visible int

	rows  epochRows
	arena []byte
	key   []byte
	out   *types.Chunk
	lent  types.Chunk // the visible columns of a chunk

	last  uint64        // epoch of the last barrier
	next  uint64        // number of the next committable
	held  []committable // in the state, oldest first
	wrote bool          // since the last seal

	sealed *sealedRows // of the last barrier, until the driver takes it
}

// committable is the place of one in the state.
type committable struct {
	epoch, number uint64
	kg            uint16
}

func compareCommittables(a, b committable) int {
	return cmp.Or(cmp.Compare(a.epoch, b.epoch), cmp.Compare(a.kg, b.kg), cmp.Compare(a.number, b.number))
}

// committables lists what a view of the state has, in the order in which it is to be committed.
func committables(v *state.View) ([]committable, error) {
	it := v.ScanAll()
	defer it.Close()
	var list []committable
	for it.Next() {
		k := it.Key()
		list = append(list, committable{epoch: binary.BigEndian.Uint64(k), number: binary.BigEndian.Uint64(k[8:]), kg: it.Group()})
	}
	slices.SortFunc(list, compareCommittables)
	return list, it.Err()
}

// sealedRows is what a subtask sealed at a barrier.
type sealedRows struct {
	view  *state.View // of all committables
	flush func(context.Context) error
	wrote bool
}

var _ op.Operator = (*sinkOp)(nil)

// Open implements op.Operator.
func (s *sinkOp) Open(ctx *op.Context) error {
	n := ctx.Node.Sink
	s.mode, s.exactly, s.keys, s.visible, s.kg, s.last = s.run.sink.mode, s.run.sink.exactly, n.Key, n.Visible, ctx.Groups.From, s.run.done
	s.rows.reset()
	s.out = types.NewChunk(ctx.Node.Schema.Types()[:s.visible])
	var err error
	if s.part, err = ctx.Store.Part(sinkTable, ctx.Subtask, ctx.Groups, state.Ordered); err != nil {
		return err
	}
	v := s.part.View()
	defer v.Close()
	if s.held, err = committables(v); err != nil {
		return err
	}
	s.writer, err = s.run.sink.sink.Writer(ctx.Subtask % subtaskStride)
	return err
}

// Process implements op.Operator.
func (s *sinkOp) Process(_ int, c *types.Chunk, _ op.Emitter) error {
	if s.keys == nil {
		s.lent = types.Chunk{Cols: c.Cols[:s.visible], N: c.N, Sel: c.Sel, Weights: c.Weights}
		return s.write(&s.lent)
	}
	for i := range c.Rows() {
		r := c.Row(i)
		w := c.Weight(r)
		if w == 0 {
			continue
		}
		s.key = s.key[:0]
		for _, k := range s.keys {
			s.key = types.AppendKey(s.key, c.Cols[k], r, false, false)
		}
		s.arena = types.AppendRow(s.arena[:0], c.Cols[:s.visible], r)
		s.rows.add(0, s.key, s.arena, w)
	}
	return nil
}

func (s *sinkOp) write(c *types.Chunk) error {
	s.wrote = true
	done, err := s.writer.Write(s.run.ctx, c)
	if err != nil {
		return err
	}
	s.keep(done, s.last+1)
	return nil
}

// keep puts committables into the state.
func (s *sinkOp) keep(list [][]byte, epoch uint64) {
	for _, b := range list {
		s.key = committableKey(s.key[:0], epoch, s.next)
		s.part.Put(s.kg, s.key, b)
		s.held = append(s.held, committable{epoch: epoch, number: s.next, kg: s.kg})
		s.next++
	}
}

func committableKey(dst []byte, epoch, number uint64) []byte {
	return binary.BigEndian.AppendUint64(binary.BigEndian.AppendUint64(dst, epoch), number)
}

// Watermark implements op.Operator.
func (*sinkOp) Watermark(int, op.Watermark, op.Emitter) error { return nil }

// Barrier implements op.Operator.
func (s *sinkOp) Barrier(b checkpoint.Barrier, _ op.Emitter) error {
	s.forget()
	if s.keys != nil {
		if err := s.rows.each(s.change); err != nil {
			return err
		}
		s.rows.reset()
		if err := s.flushOut(); err != nil {
			return err
		}
	}
	s.last = b.Epoch
	name := fmt.Sprintf("%020d", b.Checkpoint)
	if !s.exactly {
		if s.run.backfill { // its rounds are of one epoch, which must not be committed in parts
			return nil
		}
		name = fmt.Sprintf("e%020d", b.Epoch)
	} else if b.Checkpoint == 0 || b.Checkpoint == flushOnly {
		return nil
	}
	list, flush, err := s.writer.Seal(name)
	if err != nil {
		return err
	}
	s.keep(list, b.Epoch)
	s.sealed.close()
	s.sealed = &sealedRows{view: s.part.View(), flush: flush, wrote: s.wrote}
	s.wrote = false
	return nil
}

// forget removes what was committed from the state.
func (s *sinkOp) forget() {
	through := s.run.sink.committed.Load()
	n := 0
	for n < len(s.held) && s.held[n].epoch <= through {
		s.key = committableKey(s.key[:0], s.held[n].epoch, s.held[n].number)
		s.part.Delete(s.held[n].kg, s.key)
		n++
	}
	s.held = s.held[n:]
}

// change tells the writer what became of the key whose rows begin at i.
func (s *sinkOp) change(i int32) error {
	put, retract := int32(0), int32(0)
	for k := i; k != 0; k = s.rows.rows[k].next {
		switch p := &s.rows.rows[k]; {
		case p.weight > 0:
			put = k
		case p.weight < 0:
			retract = k
		}
	}
	if s.out.N >= types.MaxChunkRows-1 { // both rows of a change are in one chunk
		if err := s.flushOut(); err != nil {
			return err
		}
	}
	if retract != 0 && (s.mode == connector.Debezium || s.mode == connector.Upsert && put == 0) {
		if err := s.row(retract, -1); err != nil {
			return err
		}
	}
	if put != 0 {
		return s.row(put, 1)
	}
	return nil
}

func (s *sinkOp) row(i int32, w int64) error {
	if _, err := types.DecodeRow(s.rows.bytes(s.rows.rows[i].row), s.out.Cols); err != nil {
		return err
	}
	s.out.PushWeight(w)
	return nil
}

func (s *sinkOp) flushOut() error {
	if s.out.N == 0 {
		return nil
	}
	err := s.write(s.out)
	s.out.Reset()
	return err
}

// take hands what was sealed at the last barrier to the driver, nil: nothing was.
func (s *sinkOp) take() *sealedRows {
	r := s.sealed
	s.sealed = nil
	return r
}

func (r *sealedRows) close() {
	if r != nil {
		r.view.Close()
	}
}

// Close implements op.Operator.
func (s *sinkOp) Close() error {
	s.take().close()
	if s.writer == nil {
		return nil
	}
	return s.writer.Close()
}
