package server

import (
	"context"
	"errors"
	"slices"
	"time"

	"github.com/streamdb/streamdb/catalog"
	"github.com/streamdb/streamdb/exec"
	"github.com/streamdb/streamdb/internal/pgerr"
	"github.com/streamdb/streamdb/pgwire"
	"github.com/streamdb/streamdb/sql"
)

func (ss *session) rollback() {
	ss.closePortals(endOfTx)
	ss.rollbackSchema()
	ss.tx.release()
	ss.srv.locks.endTx(ss, 0)
	ss.tx = &txn{}
	ss.vars.endTx(false)
}

// txn is a transaction: implicit (one statement, or one batch) or a block.
type txn struct {
	explicit  bool
	failed    bool
	at        time.Time
	started   bool
	several   bool           // implicit, of several statements of one message
	snapshot  *exec.Snapshot // of a block, taken at its first read
	writes    map[uint64]*tableWrites
	order     []uint64
	saved     []savepoint
	schema    *schemaTx             // what it has changed of the schema, nil when nothing
	rewritten map[uint64]*rewriting // tables all of whose rows it replaces
	replaced  map[uint64]*exec.Job  // views, and what reads them, that get other jobs at its end
	listens   []listening
	advisory  []takenLock // locks that end with it
	notices   []pgwire.Notification
	notified  map[pgwire.Notification]struct{} // the same as a set
}

type savepoint struct {
	name   string
	tables []writesMark // of those that were written to, in their order
	vars   varsMark

	notices, listens, advisory int // how many there were
	// of the schema changes; catalog is nil when there were none
	catalog                  *catalog.Snapshot
	commit, rollback, fences int
}

// tableWrites are the uncommitted changes to one table, by encoded key.
type tableWrites struct {
	rel        *exec.Relation
	constraint string
	made       *catalog.Object // the table as it was when its first row was made; nil when nothing but locks is known
	changes    exec.Changes
	locks      map[string]exec.RowLock
	relocked   []relock       // what happened to locks, for savepoints
	unique     []*uniqueIndex // kept where duplicates must be found before the commit
	whole      bool           // the changes are all rows of a table that is rewritten: they stay in memory
	bulk       *exec.Bulk     // changes that are in a file already; nobody asks for their rows any more

	lockedBytes int64 // memory that locks take, about
}

// relock is a lock that was added, or took the place of a weaker one.
type relock struct {
	key    string
	before exec.RowLock
	had    bool
}

// writesMark is a moment of tableWrites.
type writesMark struct {
	changes  exec.ChangesMark
	relocked int
	made     *catalog.Object
}

func (t *txn) begin() {
	if !t.started {
		t.started, t.at = true, time.Now()
	}
}

func (t *txn) release() {
	for _, w := range t.writes {
		w.bulk.Discard()
		w.bulk = nil
	}
	if t.snapshot != nil {
		t.snapshot.Release()
		t.snapshot = nil
	}
	t.writes, t.order, t.rewritten, t.replaced = nil, nil, nil, nil
}

// overlay is the transaction's writes to the relations as a statement that begins now sees them.
func (t *txn) overlay(reads []uint64) map[uint64]*exec.OwnRows {
	if len(t.writes) == 0 {
		return nil
	}
	out := map[uint64]*exec.OwnRows{}
	for _, id := range reads {
		if w := t.writes[id]; w != nil && w.changes.Len() > 0 {
			out[id] = w.changes.Own()
		}
	}
	return out
}

// fits reports a transaction whose uncommitted changes take more memory than the limit.
func (t *txn) fits(limit int64) error {
	n := int64(0)
	for _, w := range t.writes {
		n += w.changes.Bytes() + w.lockedBytes
	}
	if n <= limit {
		return nil
	}
	return pgerr.Newf(pgerr.ProgramLimitExceeded, "the changes of the transaction exceed the limit of %s", bytesText(limit)).
		WithHint("Commit in smaller parts, or raise %s with ALTER SYSTEM SET.", settingMaxTransaction)
}

func (t *txn) table(rel *exec.Relation, constraint string) *tableWrites {
	w := t.writes[rel.ID]
	if w == nil {
		if t.writes == nil {
			t.writes = map[uint64]*tableWrites{}
		}
		w = &tableWrites{rel: rel, constraint: constraint}
		t.writes[rel.ID] = w
		t.order = append(t.order, rel.ID)
	}
	return w
}

// put records that the row with the given key changes from old, as the transaction sees it, to row; nil is absence.
func (w *tableWrites) put(key, old, row []byte) error {
	if len(w.unique) > 0 {
		before, _ := w.row(key)
		for _, u := range w.unique {
			if err := u.move(string(key), before, row); err != nil {
				w.unique = nil // made anew by who needs them
				return err
			}
		}
	}
	w.changes.Put(key, old, row)
	return nil
}

// row returns what the transaction has made of the row with the key; mine is false when that is nothing.
func (w *tableWrites) row(key []byte) (row []byte, mine bool) {
	i := w.changes.Find(key)
	if i < 0 {
		return nil, false
	}
	return w.changes.At(i).New, true
}

// bulkBytes is the memory from which on the changes to a table go into a file of their own instead of into a record of the write-ahead log: beside
// them a commit takes about as much memory again, and others wait meanwhile.
const bulkBytes = 16 << 20

// spill moves the changes into a file when they take much memory. What it moves the transaction does not find any more.
func (w *tableWrites) spill(e *exec.Engine) error {
	if w.changes.Bytes() < bulkBytes || w.whole {
		return nil
	}
	if w.bulk == nil {
		b, err := e.NewBulk(w.rel)
		if b == nil || err != nil {
			return err
		}
		w.bulk = b
	}
	if err := w.each(w.bulk.Add); err != nil {
		return err
	}
	w.changes = exec.Changes{}
	return nil
}

// each calls f with what the commit has to do, deletions first: a key that moves from one row to another within the transaction is free by then.
func (w *tableWrites) each(f func(exec.Change) error) error {
	for pass := range 2 {
		for i := range w.changes.Len() {
			c := w.changes.At(i)
			if (c.New == nil) != (pass == 0) || (c.Old == nil && c.New == nil) || (c.Old != nil && c.New != nil && string(c.Old) == string(c.New)) {
				continue
			}
			if err := f(c); err != nil {
				return err
			}
		}
	}
	return nil
}

// commit makes the changes what the engine commits.
func (w *tableWrites) commit(e *exec.Engine, terms uint64) (exec.TableWrite, error) {
	tw := exec.TableWrite{Table: w.rel, Constraint: w.constraint, Terms: terms, Locks: w.lockList()}
	if err := w.spill(e); err != nil {
		return tw, err
	}
	if w.bulk != nil && w.bulk.Rows() > 0 {
		tw.Bulk = w.bulk
		return tw, w.each(w.bulk.Add)
	}
	return tw, w.each(func(c exec.Change) error {
		tw.Changes = append(tw.Changes, c)
		return nil
	})
}

func (w *tableWrites) mark() writesMark {
	return writesMark{changes: w.changes.Mark(), relocked: len(w.relocked), made: w.made}
}

// rollback takes back what came after a mark.
func (w *tableWrites) rollback(m writesMark) {
	for i := len(w.relocked) - 1; i >= m.relocked; i-- {
		r := &w.relocked[i]
		if r.had {
			w.locks[r.key] = r.before
			continue
		}
		w.lockedBytes -= int64(len(r.key)+len(w.locks[r.key].Row)) + lockBytes
		delete(w.locks, r.key)
	}
	w.relocked, w.made = w.relocked[:m.relocked], m.made
	w.changes.Rollback(m.changes, func(key, gone, back []byte) {
		for _, u := range w.unique {
			if err := u.move(string(key), gone, back); err != nil {
				w.unique = nil // made anew by who needs them
				return
			}
		}
	})
}

// commit makes the transaction's writes durable and visible.
func (ss *session) commit(ctx context.Context) error {
	t := ss.tx
	if err := ss.holdCursors(ctx); err != nil {
		ss.rollback()
		return err
	}
	if err := ss.dropOnCommit(); err != nil {
		ss.rollback()
		return err
	}
	var writes []exec.TableWrite
	changed := false
	for _, id := range t.order {
		w := t.writes[id]
		rewrite, err := ss.rewriteOf(id)
		if err != nil {
			ss.rollback()
			return err
		}
		if emptied(ss.snapshot(), id) {
			if rewrite != nil {
				changed = true
				writes = append(writes, exec.TableWrite{Table: w.rel, Rewrite: rewrite})
			}
			continue
		}
		if t.schema != nil {
			if _, ok := t.schema.private.Snapshot().Get(id); !ok {
				continue // dropped after it was written to
			}
		}
		tw, err := w.commit(ss.srv.engine, t.termsOf(w))
		if err != nil {
			ss.rollback()
			return err
		}
		tw.Rewrite = rewrite
		changed = changed || len(tw.Changes) > 0 || tw.Bulk != nil || rewrite != nil
		if len(tw.Changes) > 0 || len(tw.Locks) > 0 || tw.Bulk != nil || rewrite != nil {
			writes = append(writes, tw)
		}
	}
	if !changed {
		writes = nil // what it locked was for others to wait for
	}
	durability := ss.vars.get("synchronous_commit")
	err := error(nil)
	if len(writes) > 0 || t.schema != nil {
		done, lerr := ss.mayCommit(ctx, writes)
		if lerr != nil {
			ss.rollback()
			return lerr
		}
		defer done()
		err = ss.store(ctx, writes, durability == "off")
	}
	if err == nil {
		ss.srv.deliver(ss, t)
	}
	ss.rollbackSchema() // nothing is left of it but the lock
	err = ss.named(err)
	ss.closePortals(func(p *portal) bool { return endOfTx(p) || err != nil && p.sql.tx == t })
	t.release()
	ss.srv.locks.endTx(ss, 0)
	ss.tx = &txn{}
	ss.vars.endTx(err == nil)
	if !ss.unacknowledged {
		return err
	}
	ss.unacknowledged = false
	return errors.Join(err, ss.srv.acknowledge(ctx, durability == "remote"))
}

// store gives the writes of the transaction, and its changes of the schema, to the engine; with async it does not wait for the disk.
func (ss *session) store(ctx context.Context, writes []exec.TableWrite, async bool) error {
	commit := func(writes []exec.TableWrite) error {
		commit := ss.srv.engine.Commit
		if async {
			commit = ss.srv.engine.CommitAsync
		}
		epoch, err := commit(ctx, writes)
		ss.written, ss.unacknowledged = max(ss.written, epoch), ss.unacknowledged || err == nil
		return err
	}
	switch {
	case ss.tx.schema != nil && ss.tx.schema.private.Changed():
		return ss.commitSchema(ctx, writes, commit)
	case len(writes) > 0:
		return commit(writes)
	}
	return nil
}

// commitKeeping commits but leaves the portal that is being executed open.
func (ss *session) commitKeeping(ctx context.Context, keep *portal) error {
	if keep != nil {
		delete(ss.portals, keep.name)
		defer func() { ss.portals[keep.name] = keep }()
	}
	return ss.commit(ctx)
}

func (d *dispatch) begin(st *sql.Begin) error {
	ss := d.ss
	tag := "BEGIN"
	if st.IsStart {
		tag = "START TRANSACTION"
	}
	if ss.tx.explicit {
		if err := ss.notice("WARNING", pgerr.ActiveSQLTransaction, "there is already a transaction in progress"); err != nil {
			return err
		}
		return d.w.CommandComplete(tag)
	}
	ss.tx.explicit = true
	ss.vars.modes(st.Modes, "transaction_")
	return d.w.CommandComplete(tag)
}

func (d *dispatch) commit(st *sql.Commit) error {
	ss := d.ss
	if !ss.tx.explicit {
		if st.Chain {
			return pgerr.Newf(pgerr.NoActiveSQLTransaction, "COMMIT AND CHAIN can only be used in transaction blocks")
		}
		if err := ss.notice("WARNING", pgerr.NoActiveSQLTransaction, "there is no transaction in progress"); err != nil {
			return err
		}
		// Among several statements of one message it ends the transaction that they form.
		if err := ss.commitKeeping(d.ctx, d.portal); err != nil {
			return err
		}
		return d.w.CommandComplete("COMMIT")
	}
	tag, modes := "COMMIT", ss.vars.currentModes()
	if ss.tx.failed {
		tag = "ROLLBACK"
		ss.rollback()
	} else if err := ss.commit(d.ctx); err != nil {
		return err
	}
	if st.Chain {
		ss.chain(modes)
	}
	return d.w.CommandComplete(tag)
}

func (d *dispatch) rollback(st *sql.Rollback) error {
	ss := d.ss
	if !ss.tx.explicit {
		if st.Chain {
			return pgerr.Newf(pgerr.NoActiveSQLTransaction, "ROLLBACK AND CHAIN can only be used in transaction blocks")
		}
		if err := ss.notice("WARNING", pgerr.NoActiveSQLTransaction, "there is no transaction in progress"); err != nil {
			return err
		}
	}
	modes := ss.vars.currentModes()
	ss.rollback()
	if st.Chain {
		ss.chain(modes)
	}
	return d.w.CommandComplete("ROLLBACK")
}

// chain begins a block with the modes of the one before.
func (ss *session) chain(modes sql.TxModes) {
	ss.tx.begin()
	ss.tx.explicit = true
	ss.vars.modes(modes, "transaction_")
}

func (v *sessionVars) currentModes() sql.TxModes {
	readOnly := v.readOnly()
	return sql.TxModes{Isolation: v.get("transaction_isolation"), ReadOnly: &readOnly}
}

func (v *sessionVars) readOnly() bool { return v.vals["transaction_read_only"] == "on" }

// modes sets what m names, with prefix for the running transaction ("transaction_") or those to come ("default_transaction_").
func (v *sessionVars) modes(m sql.TxModes, prefix string) {
	set := func(name, value string) {
		st := v.srv.table.index[prefix+name]
		if prefix == "transaction_" {
			v.assign(st, value)
		} else {
			v.change(st, value, false)
		}
	}
	if m.Isolation != "" {
		set("isolation", m.Isolation)
	}
	if m.ReadOnly != nil {
		set("read_only", map[bool]string{true: "on", false: "off"}[*m.ReadOnly])
	}
}

// setTransaction is SET TRANSACTION and SET SESSION CHARACTERISTICS.
func (d *dispatch) setTransaction(st *sql.SetTransaction) error {
	v := d.ss.vars
	v.notify = d.ss.notifier.ParameterStatus
	if st.Snapshot != "" {
		return pgerr.Newf(pgerr.FeatureNotSupported, "SET TRANSACTION SNAPSHOT is not supported").At(st.Start)
	}
	if st.Session {
		v.modes(st.Modes, "default_transaction_")
		return d.complete("SET")
	}
	if err := d.outsideBlock("SET TRANSACTION"); err != nil {
		return err
	}
	if t := d.ss.tx; t.snapshot != nil || len(t.writes) > 0 || t.schema != nil {
		if st.Modes.Isolation != "" && st.Modes.Isolation != v.get("transaction_isolation") {
			return pgerr.Newf(pgerr.ActiveSQLTransaction, "SET TRANSACTION ISOLATION LEVEL must be called before any query")
		}
		if st.Modes.ReadOnly != nil && !*st.Modes.ReadOnly && v.readOnly() {
			return pgerr.Newf(pgerr.ActiveSQLTransaction, "transaction read-write mode must be set before any query")
		}
	}
	v.modes(st.Modes, "transaction_")
	return d.complete("SET")
}

// outsideBlock warns of a statement that has no effect outside of a transaction block.
func (d *dispatch) outsideBlock(what string) error {
	if d.ss.tx.explicit || !d.last {
		return nil
	}
	return d.ss.notice("WARNING", pgerr.NoActiveSQLTransaction, "%s can only be used in transaction blocks", what)
}

func (d *dispatch) inBlock(what string) error {
	if !d.ss.tx.explicit {
		return pgerr.Newf(pgerr.NoActiveSQLTransaction, "%s can only be used in transaction blocks", what)
	}
	return nil
}

func (d *dispatch) savepoint(st *sql.Savepoint) error {
	if err := d.inBlock("SAVEPOINT"); err != nil {
		return err
	}
	t := d.ss.tx
	sp := savepoint{name: st.Name, vars: d.ss.vars.mark(), notices: len(t.notices), listens: len(t.listens), advisory: len(t.advisory)}
	for _, id := range t.order {
		sp.tables = append(sp.tables, t.writes[id].mark())
	}
	if t.schema != nil {
		sp.catalog, sp.commit, sp.rollback, sp.fences = t.schema.private.Snapshot(), len(t.schema.commit), len(t.schema.rollback), len(t.schema.fences)
	}
	t.saved = append(t.saved, sp)
	return d.w.CommandComplete("SAVEPOINT")
}

func (t *txn) findSavepoint(name string) int {
	for i := len(t.saved) - 1; i >= 0; i-- {
		if t.saved[i].name == name {
			return i
		}
	}
	return -1
}

func (d *dispatch) rollbackTo(st *sql.RollbackTo) error {
	if err := d.inBlock("ROLLBACK TO SAVEPOINT"); err != nil {
		return err
	}
	t := d.ss.tx
	i := t.findSavepoint(st.Name)
	if i < 0 {
		return pgerr.Newf("3B001", "savepoint %q does not exist", st.Name)
	}
	sp := t.saved[i]
	t.saved = t.saved[:i+1]
	for _, id := range t.order[len(sp.tables):] {
		delete(t.writes, id)
	}
	t.order = t.order[:len(sp.tables)]
	for i, m := range sp.tables {
		t.writes[t.order[i]].rollback(m)
	}
	if s := t.schema; s != nil {
		if err := s.undo(sp.rollback); err != nil {
			return err
		}
		s.commit = s.commit[:sp.commit]
		s.lift(sp.fences)
		if sp.catalog == nil {
			sp.catalog = s.private.Base()
		}
		s.private.Reset(sp.catalog)
	}
	t.forgetNotifications(sp.notices, sp.listens)
	d.ss.srv.locks.endTx(d.ss, sp.advisory)
	d.ss.closePortals(func(p *portal) bool { return endOfTx(p) && p.depth > i })
	t.failed = false
	d.ss.vars.rollbackTo(sp.vars)
	return d.w.CommandComplete("ROLLBACK")
}

func (d *dispatch) releaseSavepoint(st *sql.Release) error {
	if err := d.inBlock("RELEASE SAVEPOINT"); err != nil {
		return err
	}
	i := d.ss.tx.findSavepoint(st.Name)
	if i < 0 {
		return pgerr.Newf("3B001", "savepoint %q does not exist", st.Name)
	}
	d.ss.tx.saved = d.ss.tx.saved[:i]
	for _, p := range d.ss.portals {
		p.depth = min(p.depth, i)
	}
	return d.w.CommandComplete("RELEASE")
}

// named adds the schema to an error of a constraint: the engine does not know it.
func (ss *session) named(err error) error {
	if err == nil {
		return nil
	}
	var pe *pgerr.Error
	if !errors.As(err, &pe) || pe.Constraint == "" && pe.Table == "" || pe.Schema != "" {
		return err
	}
	snap := ss.snapshot()
	for id, w := range ss.tx.writes {
		o, ok := snap.Get(id)
		if ok && (pe.Constraint == "" && o.Name == pe.Table || pe.Constraint != "" && w.constraint == pe.Constraint || slices.ContainsFunc(snap.IndexesOf(id), func(x *catalog.Object) bool { return x.Name == pe.Constraint })) {
			pe.Schema, pe.Table = o.Schema, o.Name
		}
	}
	return err
}
