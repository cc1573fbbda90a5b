package exec

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"

	"github.com/streamdb/streamdb/internal/pgerr"
	"github.com/streamdb/streamdb/state"
	"github.com/streamdb/streamdb/storage/wal"
	"github.com/streamdb/streamdb/types"
)

// bulkBlockBytes is about how many bytes of changes a block holds. A block is what the clock takes at a time: other transactions wait no longer than
// that takes.
const bulkBlockBytes = 64 << 10

// Bulk holds changes of a transaction to one table that are too many for memory, in a file beside the write-ahead log. Unlike Changes it does not
// know what it holds: a key is added once. The file is what makes them durable, too: the transaction's record names it.
//
//	Add, Add, … ─▶ file ─▶ Commit: fsync ─▶ into the table, a block per turn of the clock ─▶ one record, one epoch
//
// While it is put in, other transactions that write to the table wait, and neither a version nor a checkpoint of it is made; what goes wrong is
// taken out again the same way. A crash before the record is there leaves a file that nobody names.
type Bulk struct {
	engine *Engine
	rel    *Relation
	side   *wal.Side
	block  []byte
	rows   int64
	olds   bool // there are changes with an old row
	table  *Table
	chunks []*types.Chunk // for the change log
	done   bool           // the log has it
}

// NewBulk begins one; nil when tables live in memory only.
func (e *Engine) NewBulk(rel *Relation) (*Bulk, error) {
	if e.cfg.WAL == nil {
		return nil, nil
	}
	side, err := e.cfg.WAL.NewSide()
	if err != nil {
		return nil, err
	}
	return &Bulk{engine: e, rel: rel, side: side}, nil
}

// Rows is how many changes there are.
func (b *Bulk) Rows() int64 { return b.rows }

// A change in a block: flags, uvarint key length, key; uvarint length and bytes of the old row and the new one where the flags say so.
const (
	bulkOld = 1 << iota
	bulkNew
	bulkAbsent
)

// Add writes a change. Deletions come first: a key that moves from one row to another within the transaction is free by then.
func (b *Bulk) Add(ch Change) error {
	flags := byte(0)
	if ch.Old != nil {
		flags |= bulkOld
		b.olds = true
	}
	if ch.New != nil {
		flags |= bulkNew
	}
	if ch.Absent {
		flags |= bulkAbsent
	}
	b.block = append(b.block, flags)
	b.block = appendBytes(b.block, ch.Key)
	if ch.Old != nil {
		b.block = appendBytes(b.block, ch.Old)
	}
	if ch.New != nil {
		b.block = appendBytes(b.block, ch.New)
	}
	b.rows++
	if len(b.block) < bulkBlockBytes {
		return nil
	}
	return b.flush()
}

func appendBytes(b, v []byte) []byte {
	return append(binary.AppendUvarint(b, uint64(len(v))), v...)
}

func (b *Bulk) flush() error {
	if len(b.block) == 0 {
		return nil
	}
	err := b.side.Append(b.block)
	if b.block = b.block[:0]; cap(b.block) > 2*bulkBlockBytes {
		b.block = nil
	}
	return err
}

// Discard gives up what was not committed.
func (b *Bulk) Discard() {
	if b == nil || b.done {
		return
	}
	if err := b.side.Remove(); err != nil {
		b.engine.cfg.Logger.Error().Err(err).Msg("remove the file of a transaction")
	}
}

// bulkChanges reads the changes of a block into dst. They are views into it.
func bulkChanges(dst []Change, block []byte) ([]Change, bool) {
	r := recordReader{b: block}
	for len(r.b) > 0 {
		flags := r.bytes(1)[0]
		ch := Change{Key: r.bytes(r.uvarint()), Absent: flags&bulkAbsent != 0}
		if flags&bulkOld != 0 {
			ch.Old = r.bytes(r.uvarint())
		}
		if flags&bulkNew != 0 {
			ch.New = r.bytes(r.uvarint())
		}
		dst = append(dst, ch)
	}
	return dst, !r.bad
}

// eachBlock calls f with the changes of each block of a file, which may be kept.
func (e *Engine) eachBlock(name string, size int64, f func([]Change) error) error {
	var changes []Change
	return e.cfg.WAL.ReadSide(name, size, func(block []byte) error {
		var ok bool
		if changes, ok = bulkChanges(changes[:0], bytes.Clone(block)); !ok {
			return pgerr.Newf(pgerr.DataCorrupted, "write-ahead log: file %s is malformed", name)
		}
		return f(changes)
	})
}

// commitBulk is commit of a transaction with bulks.
func (e *Engine) commitBulk(ctx context.Context, req *commitReq) (epoch uint64, err error) {
	var bulks []*Bulk
	for i := range req.writes {
		b := req.writes[i].Bulk
		if b == nil {
			continue
		}
		bulks = append(bulks, b)
		if err := b.flush(); err != nil {
			return 0, err
		}
		if err := b.side.Finish(); err != nil {
			return 0, err
		}
	}
	e.bulk.Lock()
	defer e.bulk.Unlock()
	defer func() {
		if rerr := e.clock.call(context.WithoutCancel(ctx), func() { e.clock.release(bulks) }); err == nil && !errors.Is(rerr, errClosed) {
			err = rerr
		}
	}()
	var in []*bulkPut
	for i := range req.writes {
		if w := &req.writes[i]; w.Bulk != nil && err == nil {
			p := &bulkPut{w: w}
			in = append(in, p)
			err = e.putBulk(ctx, p)
		}
	}
	if err == nil {
		req.async, req.bulk = false, true
		epoch, err = e.decide(ctx, req)
	}
	if err == nil {
		for _, b := range bulks {
			b.done = true
		}
		return epoch, nil
	}
	if errors.Is(err, errClosed) {
		return 0, err
	}
	for i := len(in) - 1; i >= 0; i-- {
		if uerr := e.takeOut(context.WithoutCancel(ctx), in[i]); uerr != nil {
			err = errors.Join(err, uerr)
		}
	}
	return 0, err
}

// bulkPut is how far a bulk is in its table.
type bulkPut struct {
	w      *TableWrite
	blocks int // that are in
}

// putBulk puts changes into their table.
func (e *Engine) putBulk(ctx context.Context, p *bulkPut) (err error) {
	b := p.w.Bulk
	if cerr := e.clock.call(ctx, func() {
		if b.table = e.tables.byID[b.rel.ID]; b.table == nil {
			err = pgerr.Newf(pgerr.UndefinedTable, "relation %q does not exist", b.rel.Name)
			return
		}
		b.table.bulk = true
	}); cerr != nil || err != nil {
		return errors.Join(cerr, err)
	}
	var chunk *types.Chunk
	if b.rel.Log.HasReaders() && b.side.Bytes() <= e.cfg.ChangeLog {
		chunk = types.NewChunk(b.rel.Layout().Types)
	}
	first := bothPhases
	if b.olds { // values of unique indexes may move from row to row
		first = dropPhase
	}
	undo := make([]undoStep, 0, 1024)
	if err := e.turns(ctx, b, func(changes []Change) error {
		if err := e.cfg.Failpoints.Hit("exec/bulk"); err != nil {
			return err
		}
		w := TableWrite{Table: p.w.Table, Changes: changes, Constraint: p.w.Constraint}
		var err error
		if undo, err = b.table.apply(&w, undo[:0], first); err != nil {
			e.tables.rollback(undo)
			return err
		}
		p.blocks++
		return nil
	}, func(changes []Change) {
		if chunk != nil {
			chunk = b.table.chunks(chunk, changes, (*types.RowLayout).DecodeView, func(c *types.Chunk) { b.chunks = append(b.chunks, c) })
		}
	}); err != nil {
		return err
	}
	if chunk != nil {
		b.chunks = append(b.chunks, chunk)
	}
	if first == bothPhases {
		return nil
	}
	return e.turns(ctx, b, func(changes []Change) error {
		var err error
		if undo, err = b.table.changeIndexes(changes, undo[:0], true, putPhase); err != nil {
			e.tables.rollback(undo)
		}
		return err
	}, nil)
}

// takeOut takes the first blocks of a bulk out again.
func (e *Engine) takeOut(ctx context.Context, p *bulkPut) error {
	if p.blocks == 0 {
		return nil
	}
	errEnough := errors.New("enough")
	undo := make([]undoStep, 0, 1024)
	left := p.blocks
	err := e.turns(ctx, p.w.Bulk, func(changes []Change) error {
		if left == 0 {
			return errEnough
		}
		left--
		t := p.w.Bulk.table
		for i := range changes {
			ch := &changes[i]
			if ch.Old, ch.New = ch.New, ch.Old; ch.New == nil {
				t.part.Delete(0, ch.Key)
			} else {
				t.part.Put(0, ch.Key, ch.New)
			}
		}
		var err error
		undo, err = t.changeIndexes(changes, undo[:0], false, bothPhases)
		return err
	}, nil)
	if errors.Is(err, errEnough) {
		err = nil
	}
	if err == nil || errors.Is(err, errClosed) {
		return err
	}
	// The table holds rows that nobody committed, and would show them with its next version.
	err = pgerr.Wrap(pgerr.IOError, err, "table %q holds rows of a transaction that failed", p.w.Table.Name).
		WithHint("Restart the server: it goes on from the last checkpoint and the write-ahead log.")
	e.cfg.Logger.Error().Err(err).Msg("nothing is committed any more")
	return errors.Join(err, e.clock.call(ctx, func() { e.tables.broken = err }))
}

// turns calls f on the clock's goroutine with the changes of each block, and then beside, when there is one, on this one. What the tables hold
// in memory meanwhile is moved to disk when it gets too much.
func (e *Engine) turns(ctx context.Context, b *Bulk, f func([]Change) error, beside func([]Change)) error {
	return e.eachBlock(b.side.Name(), b.side.Bytes(), func(changes []Change) error {
		e.tables.store.MakeRoom()
		var err error
		if cerr := e.clock.call(ctx, func() {
			if err = f(changes); err == nil {
				e.tables.flush()
			}
		}); cerr != nil {
			return cerr
		}
		if err == nil && beside != nil {
			beside(changes)
		}
		return err
	})
}

// log gives the changes to the table's change log, or tells it that they are too many.
func (b *Bulk) log(epoch uint64) {
	if b.chunks == nil {
		b.rel.Log.Skip(epoch)
		return
	}
	for _, c := range b.chunks {
		b.rel.Log.Append(epoch, c)
	}
}

// busy reports whether a transaction writes to a table that a large one is being put into.
func (tb *tables) busy(writes []TableWrite) bool {
	for i := range writes {
		if t := tb.byID[writes[i].Table.ID]; t != nil && t.bulk {
			return true
		}
	}
	return false
}

// release lets those go on that wait for the tables. Runs on the owner.
func (c *clock) release(bulks []*Bulk) {
	for _, b := range bulks {
		if b.table != nil {
			b.table.bulk = false
		}
	}
	waiting := c.parked
	c.parked = nil
	for _, t := range waiting {
		c.commit(t)
	}
}

// keep remembers a file that the log names.
func (tb *tables) keep(lsn uint64, name string) {
	tb.mu.Lock()
	defer tb.mu.Unlock()
	tb.sides = append(tb.sides, side{lsn: lsn, name: name})
}

// replaySide applies the changes of a file that the write-ahead log names.
func (t *Table) replaySide(epoch uint64, name string, size int64) error {
	e := t.rel.engine
	log := t.rel.Log.HasReaders()
	if log && size > e.cfg.ChangeLog {
		t.rel.Log.Skip(epoch)
		log = false
	}
	return e.eachBlock(name, size, func(changes []Change) error {
		if err := t.replay(epoch, changes, log); err != nil {
			return err
		}
		if !e.tables.store.NeedsFlush() {
			return nil
		}
		return e.tables.store.Flush(context.Background(), []*state.Sealed{e.tables.store.Seal(0)})
	})
}
