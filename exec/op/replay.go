package op

import (
	"bytes"
	"encoding/binary"

	"github.com/streamdb/streamdb/checkpoint"
	"github.com/streamdb/streamdb/planner/plan"
	"github.com/streamdb/streamdb/types"
)

var (
	_ Replayer = (*aggOp)(nil)
	_ Replayer = (*joinOp)(nil)
	_ Replayer = (*asofJoinOp)(nil)
	_ Replayer = (*lookupJoinOp)(nil)
	_ Replayer = (*dynamicFilterOp)(nil)
	_ Replayer = (*topNOp)(nil)
	_ Replayer = (*overOp)(nil)
	_ Replayer = (*sessionOp)(nil)
	_ Replayer = (*recomputeOp)(nil)
	_ Replayer = (*expireOp)(nil)
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
		if err := o.groups.lookup(one, cols, g[:], o.added); err != nil {
			return err
		}
		return emit(g[0])
	})
	if err != nil {
		return err
	}
	return o.out.flush(out)
}

// Replay implements Replayer: for each key group a second join, which keeps nothing, takes in the rows of the state.
func (o *joinOp) Replay(out Emitter) error {
	if err := o.st.save(); err != nil {
		return err
	}
	if o.node.Join.Spread != nil {
		// Rows that all subtasks have are stored by one of them; all are in memory.
		if err := o.joinAgain(o.st.eachRow, out); err != nil {
			return err
		}
	} else {
		for kg := o.ctx.Groups.From; kg < o.ctx.Groups.To; kg++ {
			rows := func(side int, f func(row []byte, count int64) error) error { return o.st.eachStored(kg, side, f) }
			if err := o.joinAgain(rows, out); err != nil {
				return err
			}
		}
	}
	for side, p := range o.pads {
		err := o.nulls.each(side, func(row string, count int64) error {
			if _, err := types.DecodeRows(row, 1, o.columns(p.c, side)); err != nil {
				return err
			}
			for _, v := range o.columns(p.c, 1-side) {
				v.AppendNull()
			}
			return o.padded(p, count, out)
		})
		if err != nil {
			return err
		}
	}
	return o.flushPads(out)
}

// joinAgain has a second join take in rows.
func (o *joinOp) joinAgain(rows func(side int, f func(row []byte, count int64) error) error, out Emitter) error {
	node, join := *o.node, *o.node.Join
	join.Spread, join.KeepNulls, node.Join = nil, false, &join
	again := &joinOp{base: base{node: &node}}
	ctx := *o.ctx
	ctx.Node, ctx.Store, ctx.Errors = &node, nil, silent{}
	opened := false
	var err error
	for side := range 2 {
		c := types.NewChunk(o.ctx.InputTypes[side])
		flush := func() error {
			defer c.Reset()
			if !opened {
				opened = true
				if err := again.Open(&ctx); err != nil {
					return err
				}
			}
			return again.Process(side, c, out)
		}
		err = rows(side, func(row []byte, count int64) error {
			if _, err := types.DecodeRow(row, c.Cols); err != nil {
				return err
			}
			if c.PushWeight(count); c.N < types.MaxChunkRows {
				return nil
			}
			return flush()
		})
		if err == nil && c.N > 0 {
			err = flush()
		}
		if err != nil {
			break
		}
	}
	if !opened {
		return err
	}
	if err == nil {
		err = again.Barrier(checkpoint.Barrier{}, out)
	}
	if cerr := again.Close(); err == nil {
		err = cerr
	}
	return err
}

// Replay implements Replayer: each left row looks for its match.
func (o *asofJoinOp) Replay(out Emitter) error {
	for kg := o.ctx.Groups.From; kg < o.ctx.Groups.To; kg++ {
		var last, match []byte
		matched := false
		err := o.sides[0].scanEntries(kg, nil, nil, false, func(l *sortedRow) (bool, error) {
			if last == nil || !bytes.Equal(last, l.orderKey()) {
				var err error
				if match, matched, err = o.match(kg, l.key[:l.ends[0]], l.orderKey()); err != nil {
					return false, err
				}
				last = append(last[:0], l.orderKey()...)
			}
			row := o.read.get(o.read.add(l.row()), len(l.row()))
			return true, o.emit(row, match, matched, l.count, out)
		})
		if err != nil {
			return err
		}
	}
	err := o.nulls.each(0, func(row string, count int64) error { return o.emit([]byte(row), nil, false, count, out) })
	if err != nil {
		return err
	}
	return o.flush(out)
}

// Replay implements Replayer: the left rows are joined with the right side of the last barrier.
func (o *lookupJoinOp) Replay(out Emitter) error {
	if err := o.probe.Seek(o.epoch); err != nil {
		return err
	}
	errors := o.ctx.Errors
	o.stored, o.ctx.Errors = true, silent{}
	defer func() { o.stored, o.ctx.Errors = false, errors }()
	c, one := types.NewChunk(o.ctx.InputTypes[0]), types.NewChunk(o.ctx.InputTypes[0])
	values := pick(nil, one, o.keys[0])
	// Where the row begins is not stored. Join keys delimit themselves: there is one place only at which a row with just that key does.
	starts := func(k []byte, n int) bool {
		one.Reset()
		rest, err := types.DecodeRow(k[n:], one.Cols)
		one.N = 1
		if err != nil || len(rest) > 0 {
			return false
		}
		o.key = types.AppendKeyRow(o.key[:0], values, 0)
		return bytes.Equal(o.key, k[:n])
	}
	n := 0 // as in the row before
	err := o.left.scanAll(func(_ uint16, k, v []byte) error {
		count, w := binary.Varint(v)
		if w <= 0 {
			return errCorruptState(o.node)
		}
		if n > len(k) || !starts(k, n) {
			for n = 0; !starts(k, n); n++ {
				if n == len(k) {
					return errCorruptState(o.node)
				}
			}
		}
		c.AppendRow(one, 0, count)
		if c.N < types.MaxChunkRows {
			return nil
		}
		defer c.Reset()
		return o.work(c, out)
	})
	if err == nil && c.N > 0 {
		err = o.work(c, out)
	}
	if err == nil && o.counts {
		err = o.pads.flush(out)
	}
	return err
}

// Replay implements Replayer: it is as if the value had just come.
func (o *dynamicFilterOp) Replay(out Emitter) error {
	now := o.value
	o.value = nil
	return o.move(now, out)
}

// Replay implements Replayer.
func (o *topNOp) Replay(out Emitter) error {
	for kg := o.ctx.Groups.From; kg < o.ctx.Groups.To; kg++ {
		var groups [][]byte
		err := o.rows.scan(kg, nil, func(r *sortedRow) (bool, error) {
			if n := len(groups); n == 0 || !bytes.Equal(groups[n-1], r.key[:r.ends[0]]) {
				groups = append(groups, bytes.Clone(r.key[:r.ends[0]]))
			}
			return true, nil
		})
		if err != nil {
			return err
		}
		for _, g := range groups {
			now, err := o.window(&topGroup{kg: kg, prefix: g}, nil)
			if err != nil {
				return err
			}
			if err := o.delta.replace(nil, now, o.out, out); err != nil {
				return err
			}
			if err := o.cancelled(); err != nil {
				return err
			}
		}
	}
	return o.out.flush(out)
}

// Replay implements Replayer.
func (o *overOp) Replay(out Emitter) error {
	var row sortedRow
	n := 0
	err := o.rows.table.scanAll(func(_ uint16, k, v []byte) error {
		if err := o.rows.read(&row, k, v); err != nil {
			return err
		}
		kept, err := o.readKept(row.kept)
		if err != nil || kept.kind != keptRow { // the errors of others are reported
			return err
		}
		if n++; n%cancelPollRows == 0 {
			if err := o.cancelled(); err != nil {
				return err
			}
		}
		return o.emit(kept, row.row(), 1, out)
	})
	if err != nil {
		return err
	}
	return o.out.flush(out)
}

// Replay implements Replayer.
func (o *sessionOp) Replay(out Emitter) error {
	o.region = o.region[:0]
	emit := func() error {
		o.sessions()
		for i := range o.region {
			r := &o.region[i]
			if err := o.emit(r.key[r.ends[2]:], r.newStart, r.lastEnd, r.is, out); err != nil {
				return err
			}
		}
		o.region = o.region[:0]
		return o.cancelled()
	}
	for kg := o.ctx.Groups.From; kg < o.ctx.Groups.To; kg++ {
		err := o.rows.scan(kg, nil, func(r *sortedRow) (bool, error) {
			ts := o.timeOf(r)
			if n := len(o.region); n > 0 {
				if last := &o.region[n-1]; last.key[:last.ends[0]] != viewString(r.key[:r.ends[0]]) || ts-last.ts >= o.gap {
					if err := emit(); err != nil {
						return false, err
					}
				}
			}
			o.region = append(o.region, sessionRow{sessionChange: sessionChange{key: string(r.key), ends: r.ends, ts: ts}, is: r.count})
			return true, nil
		})
		if err == nil {
			err = emit()
		}
		if err != nil {
			return err
		}
	}
	return o.out.flush(out)
}

// Replay implements Replayer.
func (o *recomputeOp) Replay(out Emitter) error {
	err := o.output.scan(o.kg, nil, false, func(k, v []byte) (bool, error) {
		n, w := binary.Varint(v)
		if w <= 0 {
			return false, errCorruptState(o.node)
		}
		if _, err := types.DecodeRow(k, o.out.c.Cols); err != nil {
			return false, err
		}
		return true, o.out.push(n, out)
	})
	if err != nil {
		return err
	}
	return o.out.flush(out)
}

// Replay implements Replayer.
func (o *expireOp) Replay(out Emitter) error {
	n := 0
	emit := func(row, v []byte, timed bool) error {
		var d dueCount
		if !d.decode(v, timed) {
			return errCorruptState(o.node)
		}
		if d.n <= 0 {
			return nil
		}
		if _, err := types.DecodeRow(row, o.outBuf.c.Cols); err != nil {
			return err
		}
		if n++; n%cancelPollRows == 0 {
			if err := o.cancelled(); err != nil {
				return err
			}
		}
		return o.outBuf.push(d.n, out)
	}
	var err error
	if !o.node.Expire.Groups {
		err = o.rows.scanAll(func(_ uint16, k, v []byte) error { return emit(k, v, true) })
	} else {
		err = o.units.scanAll(func(kg uint16, group, _ []byte) error {
			return o.rows.scan(kg, group, false, func(k, v []byte) (bool, error) { return true, emit(k[len(group):], v, false) })
		})
	}
	if err != nil {
		return err
	}
	return o.outBuf.flush(out)
}

// silent reports nothing: what failed was reported when it failed first.
type silent struct{}

var _ ErrorReporter = silent{}

// Report implements ErrorReporter.
func (silent) Report(*plan.Node, error, *types.Chunk, int, int64) error { return nil }

// Late implements ErrorReporter.
func (silent) Late(*plan.Node, *types.Chunk, int) error { return nil }
