package op

import (
	"encoding/binary"

	"github.com/streamdb/streamdb/checkpoint"
	"github.com/streamdb/streamdb/planner/plan"
	"github.com/streamdb/streamdb/types"
)

var (
	_ Replayer = (*aggOp)(nil)
	_ Replayer = (*joinOp)(nil)
)

// Replay implements Replayer.
func (o *aggOp) Replay(out Emitter) error {
	emit := func(g uint32) error {
		row := o.groups.row(g)
		if row[aggFlags]&flagOut == 0 || int64(row[aggCount]) <= 0 && !o.node.Agg.Global {
			return nil
		}
		for _, v := range o.fresh.Cols {
			v.Reset()
		}
		switch kind, err := o.finish(g, row, o.fresh.Cols); {
		case kind == outError: // its rows are missing, and reported
			return nil
		case err != nil:
			return err
		}
		return o.emitGroup(row, o.fresh.Cols, 0, 1, out)
	}
	complete := o.complete
	var groups []uint32
	_ = o.groups.each(func(g uint32, row []uint64) error {
		if complete || row[aggFlags]&flagStored == 0 {
			groups = append(groups, g)
		}
		return nil
	})
	for i, g := range groups {
		if i%cancelPollRows == cancelPollRows-1 {
			if err := o.cancelled(); err != nil {
				return err
			}
		}
		if err := emit(g); err != nil {
			return err
		}
	}
	if complete {
		return o.out.flush(out)
	}
	one := types.NewChunk(o.keyTypes)
	cols := identity(len(o.keyTypes))
	n := 0
	err := o.state.scanAll(func(_ uint16, k, v []byte) error {
		if n++; n%cancelPollRows == 0 {
			if err := o.cancelled(); err != nil {
				return err
			}
		}
		one.Reset()
		if err := o.decodeKey(k, v, one); err != nil {
			return err
		}
		one.N = 1
		var g [1]uint32
		if err := o.groups.lookup(one, cols, o.groups.hashes(one, cols), g[:], o.added); err != nil {
			return err
		}
		return emit(g[0])
	})
	if err != nil {
		return err
	}
	return o.out.flush(out)
}

// Replay implements Replayer: a second join, which keeps nothing, takes in all rows of the state.
func (o *joinOp) Replay(out Emitter) error {
	if err := o.st.save(); err != nil {
		return err
	}
	ctx := *o.ctx
	ctx.Store, ctx.Errors = nil, silent{}
	again := &joinOp{base: base{node: o.node}}
	err := again.Open(&ctx)
	for side := range 2 {
		if err != nil {
			break
		}
		c := types.NewChunk(o.ctx.InputTypes[side])
		flush := func() error {
			defer c.Reset()
			return again.Process(side, c, out)
		}
		err = o.st.tables[side].scanAll(func(_ uint16, k, v []byte) error {
			n, w := binary.Uvarint(v)
			if w <= 0 || n > uint64(len(k)) {
				return errCorruptState(o.node)
			}
			count, w := binary.Varint(v[w:])
			if w <= 0 {
				return errCorruptState(o.node)
			}
			if _, err := types.DecodeRow(k[n:], c.Cols); err != nil {
				return err
			}
			c.PushWeight(count)
			if c.N < types.MaxChunkRows {
				return nil
			}
			return flush()
		})
		if err == nil {
			err = flush()
		}
	}
	if err == nil {
		err = again.Barrier(checkpoint.Barrier{}, out)
	}
	if cerr := again.Close(); err == nil {
		err = cerr
	}
	return err
}

// silent reports nothing: what failed was reported when it failed first.
type silent struct{}

var _ ErrorReporter = silent{}

// Report implements ErrorReporter.
func (silent) Report(*plan.Node, error, *types.Chunk, int, int64) error { return nil }

// Late implements ErrorReporter.
func (silent) Late(*plan.Node, *types.Chunk, int) error { return nil }
