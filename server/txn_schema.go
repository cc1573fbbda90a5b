package server

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"slices"

	"github.com/streamdb/streamdb/catalog"
	"github.com/streamdb/streamdb/exec"
)

// Schema changes inside a transaction are made in a private state of the catalog, which nobody else sees and COMMIT publishes as a whole.
// What they need of the engine is made at once (a table nobody can name does no harm) and undone by ROLLBACK; what they remove is removed
// after COMMIT. From the first schema change to the end of its transaction a session holds the schema lock.

// schemaTx is what a transaction has changed of the schema.
type schemaTx struct {
	private  *catalog.Private
	unlock   func()
	fences   []fence                       // around the tables whose rows it has looked at
	commit   []func(context.Context) error // after the changes are decided
	rollback []func(context.Context) error // newest first
}

// lockSchema begins a schema change of one statement; unlock ends it. Within a transaction the lock is held until that ends.
func (d *dispatch) lockSchema() (unlock func(), err error) {
	ss := d.ss
	if ss.tx.schema != nil {
		return func() {}, nil
	}
	unlock, err = ss.srv.locks.exclusive(d.ctx, ss, lockTag{kind: lockSchema})
	if err != nil {
		return nil, err
	}
	if ss.tx.explicit || !d.last || len(ss.tx.writes) > 0 {
		ss.tx.schema = &schemaTx{private: ss.srv.catalog.Begin(), unlock: unlock}
		return func() {}, nil
	}
	return unlock, nil
}

// snapshot is the catalog as the session sees it.
func (ss *session) snapshot() *catalog.Snapshot {
	if ss.tx != nil && ss.tx.schema != nil {
		return ss.tx.schema.private.Snapshot()
	}
	return ss.srv.catalog.Snapshot()
}

// update changes the catalog: in the transaction's private state where there is one.
func (ss *session) update(change func(*catalog.Tx) error) error {
	creator := storedOwner(ss.role())
	f := func(tx *catalog.Tx) error {
		tx.SetCreator(creator)
		return change(tx)
	}
	if ss.tx != nil && ss.tx.schema != nil {
		return ss.tx.schema.private.Update(f)
	}
	err := ss.srv.catalog.Update(f)
	ss.unacknowledged = ss.unacknowledged || err == nil
	return err
}

// atCommit does f once the schema change is decided: now, or at the end of the transaction.
func (d *dispatch) atCommit(f func(context.Context) error) error {
	if s := d.ss.tx.schema; s != nil {
		s.commit = append(s.commit, f)
		return nil
	}
	return f(context.WithoutCancel(d.ctx))
}

// atRollback does f when the transaction's schema changes do not come about.
func (d *dispatch) atRollback(f func(context.Context) error) {
	if s := d.ss.tx.schema; s != nil {
		s.rollback = append(s.rollback, f)
	}
}

// undo runs the steps after the first n, newest first.
func (s *schemaTx) undo(n int) error {
	var err error
	for i := len(s.rollback) - 1; i >= n; i-- {
		err = errors.Join(err, s.rollback[i](context.Background()))
	}
	s.rollback = s.rollback[:n]
	return err
}

// rollbackSchema undoes what the transaction has changed of the schema, and gives the lock back.
func (ss *session) rollbackSchema() {
	s := ss.tx.schema
	if s == nil {
		return
	}
	ss.tx.schema = nil
	if err := s.undo(0); err != nil {
		ss.srv.log.Error().Err(err).Msg("undo schema changes")
	}
	s.lift(0)
	s.unlock()
}

// fence keeps others from committing changes of a table.
type fence struct {
	table uint64
	lift  func()
}

// fence keeps the rows of a table as they are until the schema change is decided: what is found out about them stays true. A block that reads a
// snapshot sees the table as it is now from here on.
func (d *dispatch) fence(table *catalog.Object) error {
	ss := d.ss
	s := ss.tx.schema
	if slices.ContainsFunc(s.fences, func(f fence) bool { return f.table == table.ID }) {
		return nil
	}
	lift, err := ss.srv.locks.exclusive(d.ctx, ss, lockTag{kind: lockCommit, table: table.ID})
	if err != nil {
		return err
	}
	s.fences = append(s.fences, fence{table: table.ID, lift: lift})
	if ss.tx.snapshot != nil {
		ss.tx.snapshot.Renew(table.ID)
	}
	// The catalog must not survive a crash that the rows do not.
	return ss.srv.engine.SyncAll(d.ctx)
}

// lift ends the fences of all but the first keep tables.
func (s *schemaTx) lift(keep int) {
	for _, f := range s.fences[keep:] {
		f.lift()
	}
	s.fences = s.fences[:keep]
}

// terms are those of the fenced tables.
func (s *schemaTx) terms(snap *catalog.Snapshot) []exec.Terms {
	var out []exec.Terms
	for _, f := range s.fences {
		if o, ok := snap.Get(f.table); ok {
			out = append(out, exec.Terms{Table: f.table, Terms: o.Terms})
		}
	}
	return out
}

// mayCommit waits for the fences around the tables that a transaction changes; done lets the next schema change go on.
func (ss *session) mayCommit(ctx context.Context, writes []exec.TableWrite) (done func(), err error) {
	var ids []uint64
	for i := range writes {
		if len(writes[i].Changes) > 0 || writes[i].Bulk != nil {
			ids = append(ids, writes[i].Table.ID)
		}
	}
	slices.Sort(ids) // like everybody who takes several
	var held []func()
	done = func() {
		for _, unlock := range held {
			unlock()
		}
	}
	for _, id := range ids {
		unlock, err := ss.srv.locks.shared(ctx, ss, lockTag{kind: lockCommit, table: id})
		if err != nil {
			done()
			return nil, err
		}
		held = append(held, unlock)
	}
	return done, nil
}

// commitSchema publishes the transaction's schema changes together with its writes.
func (ss *session) commitSchema(ctx context.Context, writes []exec.TableWrite, commit func([]exec.TableWrite) error) error {
	s, srv := ss.tx.schema, ss.srv
	var durable func([]byte, uint64) error
	if len(writes) > 0 {
		durable = func(data []byte, version uint64) error { return srv.commitWithSchema(data, version, writes, commit) }
	}
	replaced, err := ss.swapIn(ctx, ss.tx.replaced, func() error { return srv.catalog.Commit(s.private, durable) })
	if err != nil {
		ss.rollbackSchema()
		return err
	}
	ss.tx.schema, ss.tx.replaced, ss.unacknowledged = nil, nil, true
	if terms := s.terms(srv.catalog.Snapshot()); terms != nil {
		err = srv.engine.SetTerms(context.WithoutCancel(ctx), terms)
	}
	s.lift(0)
	s.unlock()
	err = errors.Join(err, srv.closeJobs(replaced))
	for _, f := range s.commit {
		err = errors.Join(err, f(context.WithoutCancel(ctx)))
	}
	return err
}

// commitWithSchema makes a new content of the catalog and rows durable as one: the content waits in a file of its own, and counts from the
// moment when the write-ahead log has the rows together with its version.
func (s *Server) commitWithSchema(data []byte, version uint64, writes []exec.TableWrite, commit func([]exec.TableWrite) error) error {
	if s.cfg.MemoryOnly {
		return commit(writes)
	}
	pending := s.pendingCatalog()
	if err := writeCatalog(pending, data); err != nil {
		return err
	}
	if err := s.cfg.Failpoints.Hit("schema/pending"); err != nil {
		return err
	}
	mark, err := s.systemWrite(systemCatalogKey, int64(version), 0)
	if err != nil {
		return errors.Join(err, os.Remove(pending))
	}
	if err := commit(append(writes, mark)); err != nil {
		return errors.Join(err, os.Remove(pending))
	}
	if err := s.cfg.Failpoints.Hit("schema/logged"); err != nil {
		return err
	}
	if err := os.Rename(pending, s.catalogPath()); err != nil {
		// The next start finds the version in the log and does it.
		s.log.Error().Err(err).Msg("store catalog")
	}
	return nil
}

func (s *Server) catalogPath() string { return filepath.Join(s.cfg.DataDir, catalogFile) }

// pendingCatalog is the file that holds a catalog whose transaction is being committed.
func (s *Server) pendingCatalog() string { return s.catalogPath() + ".pending" }

// adoptPending decides about a catalog whose transaction was being committed when the server ended: it counts when version, the newest one
// that the write-ahead log or the tables' state names, reaches it.
func (s *Server) adoptPending(version int64) error {
	data, err := readCatalog(s.pendingCatalog())
	if err != nil || data == nil {
		return err
	}
	persist := func(b []byte) error { return writeCatalog(s.catalogPath(), b) }
	next, err := catalog.New(data, persist)
	if err != nil {
		return err
	}
	if v := next.Snapshot().Version; uint64(version) < v || v <= s.catalog.Snapshot().Version {
		return os.Remove(s.pendingCatalog())
	}
	s.catalog = next
	return os.Rename(s.pendingCatalog(), s.catalogPath())
}
