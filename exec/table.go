package exec

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"os"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/streamdb/streamdb/checkpoint"
	"github.com/streamdb/streamdb/internal/pgerr"
	"github.com/streamdb/streamdb/sql"
	"github.com/streamdb/streamdb/state"
	"github.com/streamdb/streamdb/types"
)

// Change is one row of a transaction: Old nil inserts, New nil deletes. Rows are encoded by types.AppendRow, Key by the table's key columns.
type Change struct {
	Key, Old, New []byte
	// Absent: that there was no row decided what the transaction did, so one that came meanwhile is a conflict and not a duplicate.
	Absent bool
}

// TableWrite is what a transaction does to one table.
type TableWrite struct {
	Table   *Relation
	Changes []Change
	Bulk    *Bulk // more changes than fit into Changes, instead of them; nil when there are not
	// Constraint is the name reported when a key exists already.
	Constraint string
	// Locks are rows that the transaction locked and did not change.
	Locks []RowLock
	// Terms are those of the table that the changes were made under.
	Terms uint64
	// Rewrite: the changes replace all rows, and Table is what Rewritten returned.
	Rewrite *Rewrite
}

// Table is the runtime of a base table. Everything but its relation belongs to the clock's goroutine.
type Table struct {
	rel     *Relation
	part    *state.Part
	indexes []*tableIndex
	locked  lockedRows
	terms   uint64 // that rows must be made under
	bulk    bool   // a large transaction is being put in: its rows are there, in part, and not committed
}

func (t *Table) view() []*state.View { return []*state.View{t.part.View()} }

// tables is the engine of all base tables: one state store, one participant in checkpoints.
type tables struct {
	engine *Engine
	store  *state.Store
	byID   map[uint64]*Table // owned by the clock's goroutine

	mu       sync.Mutex
	done     map[uint64]*checkpoint.JobState // cut, not yet asked for by Trigger
	failed   map[uint64]error                // could not be written, not yet asked for
	wanted   map[uint64]bool                 // triggered, not yet cut
	epochs   map[uint64]uint64               // epoch of each checkpoint in flight
	walMarks []walMark
	// A snapshot without new bytes is unchanged only if the one before it was completed: lastSnap and completed tell.
	lastSnap, completed uint64
	completedEpoch      atomic.Uint64 // of the newest complete checkpoint
	unchanged           map[uint64]bool
	cancels             map[uint64]context.CancelFunc // end the writing of checkpoints in flight
	background          sync.WaitGroup
	broken              error         // a table holds what was not committed: nothing is committed and no checkpoint cut any more; owned by the clock's goroutine
	sides               []side        // files that records of the write-ahead log name, oldest first
	tail                chan struct{} // closed when the newest snapshot or flush has ended; owned by the clock's goroutine
	flushing            atomic.Bool
}

// later runs f in the background, after all that was given before: what is sealed first must be written first, or a checkpoint would
// hold changes of later epochs. Runs on the owner.
func (tb *tables) later(f func()) {
	prev, done := tb.tail, make(chan struct{})
	tb.tail = done
	tb.background.Add(1)
	go func() {
		defer tb.background.Done()
		defer close(done)
		if prev != nil {
			<-prev
		}
		f()
	}()
}

// side is a file beside the write-ahead log that the record of number lsn names.
type side struct {
	lsn  uint64
	name string
}

// walMark says that records up to lsn belong to epochs up to epoch.
type walMark struct{ epoch, lsn uint64 }

type commitReq struct {
	writes []TableWrite
	async  bool // do not wait for the log
	bulk   bool // some of the tables have the changes already
	lsn    uint64
	reply  chan commitReply
}

type commitReply struct {
	epoch uint64
	err   error
}

// CreateTable opens the table's state and publishes what it holds. Key columns must be in the schema.
func (e *Engine) CreateTable(ctx context.Context, id uint64, name string, schema types.Schema, key []int) (*Relation, error) {
	r := e.newRelation(id, name, schema, key, false, e.tablesEpoch())
	var err error
	create := func() {
		var p *state.Part
		p, err = e.tables.store.Part(uint32(id), 0, state.Range{From: 0, To: uint16(e.cfg.MaxPar)}, state.Ordered)
		if err != nil {
			return
		}
		if e.acker != nil {
			clearPart(p) // ids of schema changes that a crash undid are given out again
		}
		t := &Table{rel: r, part: p}
		e.tables.byID[id] = t
		epoch := e.tablesEpoch()
		t.publish(epoch, epoch)
	}
	if e.acker == nil { // before Start nobody else is there
		create()
	} else if cerr := e.clock.call(ctx, create); cerr != nil {
		return nil, cerr
	}
	if err != nil {
		return nil, err
	}
	e.mu.Lock()
	e.rels[id] = r
	e.mu.Unlock()
	return r, nil
}

// tablesEpoch is up to where tables hold all changes: before Start and Replay up to the checkpoint that they were restored from, which may be behind
// those of views that read no table.
func (e *Engine) tablesEpoch() uint64 {
	if e.acker == nil {
		return e.tables.completedEpoch.Load()
	}
	return e.clock.closed.Load()
}

// DropTable forgets the table; its rows go with the next snapshots.
func (e *Engine) DropTable(ctx context.Context, id uint64) error {
	e.bulk.Lock()
	defer e.bulk.Unlock()
	err := e.clock.call(ctx, func() {
		if t := e.tables.byID[id]; t != nil {
			delete(e.tables.byID, id)
			t.clear()
		}
	})
	if r, ok := e.Relation(id); ok {
		e.forget(r)
	}
	return err
}

func (t *Table) clear() {
	clearPart(t.part)
	for _, x := range t.indexes {
		clearPart(x.part)
	}
}

func (e *Engine) forget(r *Relation) {
	e.mu.Lock()
	if e.rels[r.ID] == r {
		delete(e.rels, r.ID)
	}
	e.mu.Unlock()
	close(r.gone)
	if h := r.history.Load(); h != nil {
		h.stop()
		if err := os.RemoveAll(h.dir); err != nil {
			e.cfg.Logger.Warn().Err(err).Str("relation", r.Name).Msg("remove the history of a relation")
		}
	}
	r.releaseVersions()
	e.progress.notify()
}

func (r *Relation) releaseVersions() {
	r.mu.Lock()
	old := r.versions
	r.versions = nil
	r.mu.Unlock()
	for _, v := range old {
		v.Release()
	}
}

// LastRow returns the row with the largest key of a table, for row numbers that continue after a restart.
func (r *Relation) LastRow() (row []byte, ok bool, err error) {
	v := r.Latest()
	if v == nil {
		return nil, false, nil
	}
	defer v.Release()
	it := v.views[0].ScanFrom(0, nil, nil, true)
	defer it.Close()
	if it.Next() {
		return append([]byte(nil), it.Value()...), true, nil
	}
	return nil, false, it.Err()
}

// Commit makes a transaction durable and visible and returns its epoch. It fails with 40001 when a row that the transaction read and
// replaces has changed meanwhile or its rows have to be made under newer terms, and with 23505 when an inserted key exists; then nothing of it happened.
func (e *Engine) Commit(ctx context.Context, writes []TableWrite) (uint64, error) {
	return e.commit(ctx, &commitReq{writes: writes, reply: make(chan commitReply, 1)})
}

// CommitAsync is Commit without waiting for the disk: a crash may lose the newest transactions, never one in the midst of others.
func (e *Engine) CommitAsync(ctx context.Context, writes []TableWrite) (uint64, error) {
	return e.commit(ctx, &commitReq{writes: writes, async: true, reply: make(chan commitReply, 1)})
}

func (e *Engine) commit(ctx context.Context, req *commitReq) (uint64, error) {
	if slices.ContainsFunc(req.writes, func(w TableWrite) bool { return w.Bulk != nil }) {
		return e.commitBulk(ctx, req)
	}
	return e.decide(ctx, req)
}

// decide hands a transaction to the clock.
func (e *Engine) decide(ctx context.Context, req *commitReq) (uint64, error) {
	select {
	case e.clock.txns <- req:
	case <-e.clock.stopped:
		return 0, errClosed
	case <-ctx.Done():
		return 0, context.Cause(ctx)
	}
	// Once queued the outcome is not ours to cancel: wait for it, so that an answer is always the truth.
	select {
	case r := <-req.reply:
		return r.epoch, r.err
	case <-e.clock.stopped:
		select {
		case r := <-req.reply:
			return r.epoch, r.err
		default:
			return 0, errClosed
		}
	}
}

// commit handles one transaction and all that wait behind it: resolve each, log them with one fsync, then publish one epoch. Runs on the owner.
func (c *clock) commit(first *commitReq) {
	batch := []*commitReq{first}
	for len(batch) < maxCommitBatch {
		select {
		case t := <-c.txns:
			batch = append(batch, t)
			continue
		default:
		}
		break
	}
	tb := c.engine.tables
	epoch := c.closed.Load() + 1
	var good []*commitReq
	var undo []undoStep
	rec := make([]byte, 0, 1024)
	var lsn uint64
	for _, t := range batch {
		if !t.bulk && tb.busy(t.writes) {
			c.parked = append(c.parked, t)
			continue
		}
		mark := len(undo)
		err := tb.broken
		if err == nil {
			undo, err = tb.apply(t.writes, undo)
		}
		if err == nil && c.engine.cfg.WAL != nil {
			rec = appendRecord(rec[:0], epoch, t.writes)
			lsn = c.engine.cfg.WAL.Append(rec)
			t.lsn = lsn
		}
		if err != nil {
			tb.rollback(undo[mark:])
			undo = undo[:mark]
			t.reply <- commitReply{err: err}
			continue
		}
		good = append(good, t)
	}
	if len(good) == 0 {
		return
	}
	if c.engine.cfg.WAL != nil {
		c.unsynced = walMark{epoch: epoch, lsn: lsn}
		if slices.ContainsFunc(good, func(t *commitReq) bool { return !t.async }) {
			if err := c.sync(); err != nil {
				tb.rollback(undo)
				for _, t := range good {
					t.reply <- commitReply{err: err}
				}
				return
			}
		} else if c.late == nil {
			c.late = time.After(asyncSyncDelay)
		}
	}
	changed := tb.record(epoch, good)
	c.close(changed)
	for _, t := range good {
		t.reply <- commitReply{epoch: epoch}
	}
	c.engine.wakeSources()
	tb.flush()
}

// sync makes all that was appended durable. When that fails none of it is in the log. Runs on the owner.
func (c *clock) sync() error {
	m := c.unsynced
	c.unsynced, c.late = walMark{}, nil
	if err := c.engine.cfg.WAL.Sync(); err != nil {
		return err
	}
	c.engine.tables.mark(m.epoch, m.lsn)
	return nil
}

// syncAll makes everything durable that was committed. Runs on the owner.
func (c *clock) syncAll() error {
	if c.unsynced.lsn == 0 || c.engine.cfg.WAL == nil {
		return nil
	}
	return c.sync()
}

// syncLate makes transactions durable that did not wait for it. Runs on the owner.
func (c *clock) syncLate() {
	if c.unsynced.lsn == 0 {
		return
	}
	if err := c.sync(); err != nil {
		c.engine.cfg.Logger.Error().Err(err).Msg("transactions committed with synchronous_commit = off are not in the write-ahead log: a crash before the next checkpoint loses them")
	}
}

// flush moves the tables' overlay to disk in the background when memory runs short. Runs on the owner.
func (tb *tables) flush() {
	if !tb.store.NeedsFlush() || !tb.flushing.CompareAndSwap(false, true) {
		return
	}
	sealed := tb.store.Seal(0)
	tb.later(func() {
		defer tb.flushing.Store(false)
		if err := tb.store.Flush(tb.engine.life, []*state.Sealed{sealed}); err != nil && tb.engine.life.Err() == nil {
			tb.engine.cfg.Logger.Error().Err(err).Msg("flush tables")
		}
	})
}

type undoStep struct {
	part *state.Part
	key  []byte
	old  []byte // nil: the key was absent
	do   func() // instead of the above
}

func (tb *tables) rollback(steps []undoStep) {
	for i := len(steps) - 1; i >= 0; i-- {
		s := &steps[i]
		if s.do != nil {
			s.do()
			continue
		}
		if s.old == nil {
			s.part.Delete(0, s.key)
		} else {
			s.part.Put(0, s.key, s.old)
		}
	}
}

func (tb *tables) apply(writes []TableWrite, undo []undoStep) ([]undoStep, error) {
	for i := range writes {
		w := &writes[i]
		t := tb.byID[w.Table.ID]
		if t == nil {
			return undo, pgerr.Newf(pgerr.UndefinedTable, "relation %q does not exist", w.Table.Name)
		}
		if err := t.checkLocks(w.Locks); err != nil {
			return undo, err
		}
		if (len(w.Changes) > 0 || w.Bulk != nil) && w.Terms < t.terms {
			return undo, w.errTerms()
		}
		var err error
		if undo, err = t.apply(w, undo, bothPhases); err != nil {
			return undo, err
		}
	}
	return undo, nil
}

func (w *TableWrite) errTerms() error {
	err := pgerr.Newf(pgerr.SerializationFailure, "could not serialize access due to a concurrent change of table %q", w.Table.Name)
	err.Table = w.Table.Name
	return err
}

// Terms says which terms the rows of a table must be made under.
type Terms struct{ Table, Terms uint64 }

// SetTerms has commits fail from now on whose rows were made under earlier terms.
func (e *Engine) SetTerms(ctx context.Context, terms []Terms) error {
	return e.clock.call(ctx, func() {
		for _, x := range terms {
			if t := e.tables.byID[x.Table]; t != nil {
				t.terms = x.Terms
			}
		}
	})
}

// SyncAll makes everything durable that was committed.
func (e *Engine) SyncAll(ctx context.Context) error {
	var err error
	if cerr := e.clock.call(ctx, func() { err = e.clock.syncAll() }); cerr != nil {
		return cerr
	}
	return err
}

// apply brings the table and its indexes to the changes; p says which steps of the indexes.
func (t *Table) apply(w *TableWrite, undo []undoStep, p phases) ([]undoStep, error) {
	for j := range w.Changes {
		ch := &w.Changes[j]
		cur, ok, err := t.part.Get(0, ch.Key)
		if err != nil {
			return undo, err
		}
		switch {
		case ch.Old == nil && ok && !ch.Absent:
			return undo, w.duplicate(ch.New)
		case ch.Old == nil && ok, ch.Old != nil && (!ok || !t.rel.Layout().Same(cur, ch.Old)):
			return undo, errConcurrentUpdate()
		}
		step := undoStep{part: t.part, key: ch.Key}
		if ok {
			step.old = append([]byte{}, cur...)
		}
		undo = append(undo, step)
		if ch.New == nil {
			t.part.Delete(0, ch.Key)
		} else {
			t.part.Put(0, ch.Key, ch.New)
		}
	}
	if w.Rewrite != nil {
		return t.rewrite(w, undo)
	}
	if len(t.indexes) == 0 {
		return undo, nil
	}
	return t.changeIndexes(w.Changes, undo, true, p)
}

func (w *TableWrite) duplicate(row []byte) error {
	err := pgerr.Newf(pgerr.UniqueViolation, "duplicate key value violates unique constraint %q", w.Constraint)
	err.Table, err.Constraint = w.Table.Name, w.Constraint
	form := w.Table.form.Load()
	layout := form.layout.Load()
	c := types.NewChunk(layout.Types)
	if derr := layout.Decode(row, c.Cols); derr != nil {
		return err
	}
	names, vals := "", ""
	for i, k := range form.key {
		if i > 0 {
			names, vals = names+", ", vals+", "
		}
		names += sql.QuoteIdent(form.schema[k].Name)
		vals += string(types.AppendText(nil, types.DefaultFormat(), c.Cols[k], 0))
	}
	return err.WithDetail("Key (%s)=(%s) already exists.", names, vals)
}

// record appends the batch to the change logs and returns the tables that changed.
func (tb *tables) record(epoch uint64, good []*commitReq) []*Table {
	var changed []*Table
	seen := map[uint64]*types.Chunk{}
	for _, t := range good {
		for i := range t.writes {
			w := &t.writes[i]
			tab := tb.byID[w.Table.ID]
			tab.locked.add(w.Locks, epoch)
			if len(w.Changes) == 0 && w.Bulk == nil && w.Rewrite == nil {
				continue
			}
			c, known := seen[w.Table.ID]
			if !known {
				changed = append(changed, tab)
				c = types.NewChunk(tab.rel.Layout().Types)
			}
			switch {
			case w.Rewrite != nil:
				c = tab.logRewrite(epoch, c, w)
			case !tab.rel.Log.HasReaders():
			case w.Bulk != nil:
				w.Bulk.log(epoch)
			default:
				c = tab.log(epoch, c, w.Changes)
			}
			if w.Bulk != nil {
				tb.keep(t.lsn, w.Bulk.side.Name())
			}
			seen[w.Table.ID] = c
		}
	}
	for _, tab := range changed {
		if c := seen[tab.rel.ID]; c.N > 0 {
			tab.rel.Log.Append(epoch, c)
		}
	}
	return changed
}

// log appends changes to c, which goes to the change log when it is full, and returns the chunk to go on with.
func (t *Table) log(epoch uint64, c *types.Chunk, changes []Change) *types.Chunk {
	return t.chunks(c, changes, (*types.RowLayout).Decode, func(c *types.Chunk) { t.rel.Log.Append(epoch, c) })
}

// chunks appends changes to c, gives it to full when it is, and returns the chunk to go on with.
func (t *Table) chunks(c *types.Chunk, changes []Change, decode decodeFunc, full func(*types.Chunk)) *types.Chunk {
	layout := t.rel.Layout()
	for i := range changes {
		c = t.addRow(c, layout, changes[i].Old, -1, decode, full)
		c = t.addRow(c, layout, changes[i].New, 1, decode, full)
	}
	return c
}

// decodeFunc is Decode or DecodeView of a layout.
type decodeFunc func(l *types.RowLayout, row []byte, cols []*types.Vector) error

// addRow adds a row to a chunk of its layout; a nil row is none.
func (t *Table) addRow(c *types.Chunk, layout *types.RowLayout, row []byte, weight int64, decode decodeFunc, full func(*types.Chunk)) *types.Chunk {
	if row == nil {
		return c
	}
	if c.N == types.MaxChunkRows {
		full(c)
		c = types.NewChunk(layout.Types)
	}
	if err := decode(layout, row, c.Cols); err != nil {
		// The row was encoded by this process a moment ago: a failure is a bug in the codec.
		panic(fmt.Sprintf("table %s: row does not decode: %v", t.rel.Name, err))
	}
	c.PushWeight(weight)
	return c
}

// Write-ahead log record: uvarint epoch, uvarint tables; per table uvarint id, uvarint changes; per change uvarint key length, key, uvarint new
// row length + 1 (0 = delete), row. Since format version 2 a table whose changes are in a file beside the log is 0, uvarint id, uvarint length of
// the file, uvarint length of its name, name.
func appendRecord(b []byte, epoch uint64, writes []TableWrite) []byte {
	b = binary.AppendUvarint(b, epoch)
	b = binary.AppendUvarint(b, uint64(len(writes)))
	for i := range writes {
		w := &writes[i]
		if w.Bulk != nil {
			b = binary.AppendUvarint(append(b, 0), w.Table.ID)
			b = binary.AppendUvarint(b, uint64(w.Bulk.side.Bytes()))
			b = binary.AppendUvarint(b, uint64(len(w.Bulk.side.Name())))
			b = append(b, w.Bulk.side.Name()...)
			continue
		}
		b = binary.AppendUvarint(b, w.Table.ID)
		b = binary.AppendUvarint(b, uint64(len(w.Changes)))
		for j := range w.Changes {
			ch := &w.Changes[j]
			b = binary.AppendUvarint(b, uint64(len(ch.Key)))
			b = append(b, ch.Key...)
			if ch.New == nil {
				b = append(b, 0)
				continue
			}
			b = binary.AppendUvarint(b, uint64(len(ch.New))+1)
			b = append(b, ch.New...)
		}
	}
	return b
}

type recordReader struct {
	b   []byte
	bad bool
}

func (r *recordReader) uvarint() uint64 {
	v, n := binary.Uvarint(r.b)
	if n <= 0 {
		r.bad, r.b = true, nil
		return 0
	}
	r.b = r.b[n:]
	return v
}

func (r *recordReader) bytes(n uint64) []byte {
	if uint64(len(r.b)) < n {
		r.bad, r.b = true, nil
		return nil
	}
	v := r.b[:n:n]
	r.b = r.b[n:]
	return v
}

// side reads a reference to a file beside the log, whose 0 was read.
func (r *recordReader) side() (table uint64, size int64, name string) {
	table, size = r.uvarint(), int64(r.uvarint())
	return table, size, string(r.bytes(r.uvarint()))
}

// Replay applies the write-ahead log after a restart: records of epochs after the tables' checkpoint go into the tables and their change logs. Tables
// that do not exist any more are skipped. Call it after CreateTable and after the readers attached, before Start.
func (e *Engine) Replay() error {
	tb := e.tables
	if e.cfg.WAL == nil {
		return tb.refillIndexes()
	}
	from := tb.completedEpoch.Load()
	last := from
	open := map[uint64]*Table{}
	finish := func() {
		for _, t := range open {
			t.publish(last, last-1)
			t.rel.Log.Seal(last)
		}
		clear(open)
	}
	sides := map[string]bool{}
	err := e.cfg.WAL.Replay(0, func(lsn uint64, rec []byte) error {
		r := recordReader{b: rec}
		epoch := r.uvarint()
		if epoch != last {
			finish()
		}
		last = max(last, epoch)
		for range r.uvarint() {
			id := r.uvarint()
			if id == 0 {
				id, size, name := r.side()
				if r.bad {
					break
				}
				sides[name] = true
				tb.keep(lsn, name)
				t := tb.byID[id]
				if epoch <= from || t == nil {
					continue
				}
				open[id] = t
				if err := t.replaySide(epoch, name, size); err != nil {
					return err
				}
				continue
			}
			t := tb.byID[id]
			var changes []Change
			for n := r.uvarint(); n > 0 && !r.bad; n-- {
				ch := Change{Key: r.bytes(r.uvarint())}
				if l := r.uvarint(); l > 0 {
					ch.New = r.bytes(l - 1)
				}
				if t != nil && epoch > from && !r.bad {
					changes = append(changes, ch)
				}
			}
			if len(changes) > 0 && !r.bad {
				open[id] = t
				if err := t.replay(epoch, changes, t.rel.Log.HasReaders()); err != nil {
					return err
				}
			}
		}
		if r.bad {
			return pgerr.Newf(pgerr.DataCorrupted, "write-ahead log: record %d is malformed", lsn)
		}
		tb.mark(epoch, lsn)
		return nil
	})
	if err == nil {
		err = e.cfg.WAL.RemoveSides(sides)
	}
	if err != nil {
		return err
	}
	finish()
	e.clock.closed.Store(max(last, e.clock.closed.Load()))
	return tb.refillIndexes()
}

// replay applies changes of a logged transaction, whose old rows are what is there.
func (t *Table) replay(epoch uint64, changes []Change, log bool) error {
	for i := range changes {
		ch := &changes[i]
		old, ok, err := t.part.Get(0, ch.Key)
		if err != nil {
			return err
		}
		ch.Old = nil
		if ok {
			ch.Old = append([]byte{}, old...)
		}
		if ch.New == nil {
			t.part.Delete(0, ch.Key)
		} else {
			t.part.Put(0, ch.Key, ch.New)
		}
	}
	if _, err := t.changeIndexes(changes, nil, false, bothPhases); err != nil {
		return err
	}
	if log {
		if c := t.log(epoch, types.NewChunk(t.rel.Layout().Types), changes); c.N > 0 {
			t.rel.Log.Append(epoch, c)
		}
	}
	return nil
}

func (tb *tables) mark(epoch, lsn uint64) {
	tb.mu.Lock()
	defer tb.mu.Unlock()
	if n := len(tb.walMarks); n > 0 && (tb.walMarks[n-1].epoch == epoch || n >= maxWALMarks) {
		tb.walMarks[n-1] = walMark{epoch: epoch, lsn: lsn}
		return
	}
	tb.walMarks = append(tb.walMarks, walMark{epoch: epoch, lsn: lsn})
}

// maxWALMarks bounds what is remembered between two checkpoints; further epochs share the last mark, which only delays truncation.
const maxWALMarks = 1 << 16

// seal cuts the tables for checkpoint id at the end of epoch. Runs on the owner, O(tables).
func (tb *tables) seal(id, epoch uint64, cut checkpoint.Cut) {
	began := time.Now()
	sealed := tb.store.Seal(0)
	sync := time.Since(began)
	tb.mu.Lock()
	if tb.epochs == nil {
		tb.epochs, tb.done, tb.wanted = map[uint64]uint64{}, map[uint64]*checkpoint.JobState{}, map[uint64]bool{}
		tb.unchanged, tb.failed, tb.cancels = map[uint64]bool{}, map[uint64]error{}, map[uint64]context.CancelFunc{}
	}
	ctx, cancel := context.WithCancel(tb.engine.life)
	tb.epochs[id], tb.cancels[id] = epoch, cancel
	tb.mu.Unlock()
	tb.later(func() {
		snap, err := tb.store.Snapshot(ctx, id, []*state.Sealed{sealed})
		if err != nil {
			tb.finish(id, nil, err)
			return
		}
		if cut.Kind == checkpoint.KindSavepoint {
			tb.store.Hold(id)
		}
		tb.mu.Lock()
		unchanged := !cut.Full && snap.NewBytes == 0 && tb.completed != 0 && tb.lastSnap == tb.completed
		tb.lastSnap = id
		tb.unchanged[id] = unchanged
		tb.mu.Unlock()
		if tb.engine.cfg.Failpoints.Hit("tables/written") != nil {
			tb.finish(id, nil, checkpoint.ErrNotRunning)
			return
		}
		if err := tb.engine.keptUpTo(epoch, func(r *Relation) bool { return r.job == nil }); err != nil {
			tb.finish(id, nil, err)
			return
		}
		js := &checkpoint.JobState{Job: TablesID, Name: tb.Name(), Checkpoint: id, Epoch: epoch, State: snap, Parallelism: 1, Unchanged: unchanged}
		js.Subtasks = []checkpoint.SubtaskStats{{Operator: "tables", Sync: sync, Async: time.Since(began) - sync, Acknowledged: time.Now(), Bytes: snap.NewBytes, FullBytes: snap.FullSize}}
		tb.finish(id, js, nil)
	})
}

func (tb *tables) finish(id uint64, js *checkpoint.JobState, err error) {
	tb.mu.Lock()
	if _, known := tb.epochs[id]; !known { // it was given up
		tb.mu.Unlock()
		return
	}
	wanted := tb.wanted[id]
	delete(tb.wanted, id)
	switch {
	case err != nil:
		tb.failed[id] = err
	case !wanted:
		tb.done[id] = js
	}
	tb.mu.Unlock()
	switch {
	case wanted && err != nil:
		tb.engine.acker.Decline(TablesID, id, err)
	case wanted:
		tb.engine.acker.Acknowledge(js)
	}
}

// forget drops what is known of checkpoint id, and ends its writing; tb.mu is held.
func (tb *tables) forget(id uint64) {
	if cancel := tb.cancels[id]; cancel != nil {
		cancel()
	}
	delete(tb.cancels, id)
	delete(tb.unchanged, id)
	delete(tb.epochs, id)
	delete(tb.done, id)
	delete(tb.failed, id)
	delete(tb.wanted, id)
}

// ID implements checkpoint.Participant.
func (tb *tables) ID() uint64 { return TablesID }

// Name implements checkpoint.Participant.
func (tb *tables) Name() string { return "tables" }

// Inputs implements checkpoint.Participant.
func (tb *tables) Inputs() []uint64 { return nil }

// Settings implements checkpoint.Participant: tables take part in whatever is cut for the jobs that read them.
func (tb *tables) Settings() checkpoint.JobSettings { return tb.engine.checkpointSettings() }

var errNotCut = errors.New("the tables were not cut for this checkpoint")

// Trigger implements checkpoint.Participant.
func (tb *tables) Trigger(b checkpoint.Barrier) error {
	tb.mu.Lock()
	if _, ok := tb.epochs[b.Checkpoint]; !ok {
		tb.mu.Unlock()
		return errNotCut
	}
	js, err := tb.done[b.Checkpoint], tb.failed[b.Checkpoint]
	if js == nil && err == nil {
		tb.wanted[b.Checkpoint] = true
	}
	delete(tb.done, b.Checkpoint)
	tb.mu.Unlock()
	if err != nil {
		return err
	}
	if js != nil {
		tb.engine.acker.Acknowledge(js)
	}
	return nil
}

// NotifyComplete implements checkpoint.Participant: the write-ahead log up to the checkpoint's epoch is not needed any more.
func (tb *tables) NotifyComplete(id uint64) {
	tb.store.Confirm(id)
	tb.mu.Lock()
	epoch := tb.epochs[id]
	tb.completed = id
	tb.completedEpoch.Store(epoch)
	if tb.unchanged[id] {
		tb.lastSnap = max(tb.lastSnap, id)
	}
	for i := range tb.epochs {
		if i <= id {
			tb.forget(i)
		}
	}
	n, lsn := 0, uint64(0)
	for n < len(tb.walMarks) && tb.walMarks[n].epoch <= epoch {
		lsn = tb.walMarks[n].lsn
		n++
	}
	tb.walMarks = append(tb.walMarks[:0:0], tb.walMarks[n:]...)
	var gone []side
	for len(tb.sides) > 0 && tb.sides[0].lsn <= lsn {
		gone, tb.sides = append(gone, tb.sides[0]), tb.sides[1:]
	}
	tb.mu.Unlock()
	if n > 0 && tb.engine.cfg.WAL != nil && !tb.engine.cfg.KeepWAL {
		err := tb.engine.cfg.WAL.TruncateBefore(lsn + 1)
		for _, s := range gone {
			err = errors.Join(err, tb.engine.cfg.WAL.RemoveSide(s.name))
		}
		if err != nil {
			tb.engine.cfg.Logger.Error().Err(err).Msg("truncate write-ahead log")
		}
	}
}

// NotifyAborted implements checkpoint.Participant.
func (tb *tables) NotifyAborted(id uint64) {
	tb.store.Abort(id)
	tb.mu.Lock()
	defer tb.mu.Unlock()
	tb.forget(id)
}

// NotifySavepoint implements checkpoint.Participant.
func (tb *tables) NotifySavepoint(id uint64) { tb.NotifyAborted(id) }
