package server

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/streamdb/streamdb/catalog"
	"github.com/streamdb/streamdb/exec"
	"github.com/streamdb/streamdb/internal/pgerr"
	"github.com/streamdb/streamdb/pgwire"
	"github.com/streamdb/streamdb/sql"
	"github.com/streamdb/streamdb/sql/expr"
	"github.com/streamdb/streamdb/types"
)

// pgEpoch is 2000-01-01 UTC, where PostgreSQL's timestamps count from.
var pgEpoch = time.Date(2000, 1, 1, 0, 0, 0, 0, time.UTC)

// session is one client's session. pgwire calls it from one goroutine at a time.
type session struct {
	srv      *Server
	ctx      context.Context //nolint:containedctx // the session's own lifetime, given to NewSession
	notifier pgwire.Notifier
	params   pgwire.StartupParams
	vars     *sessionVars
	tx       *txn // never nil: implicit until BEGIN
	written  uint64
	prepared map[string]*prepared
	portals  map[string]*portal
	began    time.Time
	running  string // statement text, for streamdb.sessions
}

// NewSession implements pgwire.Handler.
func (s *Server) NewSession(ctx context.Context, p pgwire.StartupParams, n pgwire.Notifier) (pgwire.Session, error) {
	if p.Database != databaseName {
		return nil, pgerr.Newf(pgerr.InvalidCatalogName, "database %q does not exist", p.Database).WithHint("The only database is called %q.", databaseName)
	}
	ss := &session{
		srv: s, ctx: ctx, notifier: n, params: p, vars: s.newSessionVars(p.User), prepared: map[string]*prepared{}, portals: map[string]*portal{}, began: time.Now(),
	}
	for _, kv := range p.Settings {
		if err := ss.vars.set(kv.Name, []string{kv.Value}, false); err != nil {
			return nil, err
		}
	}
	ss.vars.startup()
	ss.tx = &txn{}
	s.sessions.Store(p.ProcessID, ss)
	return ss, nil
}

// databaseName is the one database of a server.
const databaseName = "streamdb"

// ParameterStatus implements pgwire.Session.
func (ss *session) ParameterStatus() []pgwire.Param { return ss.vars.reported() }

// Format implements pgwire.Session.
func (ss *session) Format() *types.Format { return ss.vars.format() }

// TxStatus implements pgwire.Session.
func (ss *session) TxStatus() byte {
	switch {
	case !ss.tx.explicit:
		return pgwire.TxIdle
	case ss.tx.failed:
		return pgwire.TxFailed
	}
	return pgwire.TxActive
}

// Close implements pgwire.Session.
func (ss *session) Close() {
	ss.closePortals(func(*portal) bool { return true })
	ss.tx.release()
	ss.srv.sessions.Delete(ss.params.ProcessID)
}

// Fail implements pgwire.Session.
func (ss *session) Fail(error) { ss.fail() }

func (ss *session) fail() {
	if ss.tx.explicit {
		ss.tx.failed = true
		return
	}
	ss.rollback()
}

func (ss *session) rollback() {
	ss.closePortals(func(*portal) bool { return true })
	ss.tx.release()
	ss.tx = &txn{}
	ss.vars.endTx(false)
}

// SimpleQuery implements pgwire.Session.
func (ss *session) SimpleQuery(ctx context.Context, text string, w pgwire.ResultWriter) error {
	delete(ss.prepared, "")
	ss.closePortal("")
	stmts, err := sql.Parse(text)
	if err != nil {
		ss.fail()
		return err
	}
	if len(stmts) == 0 {
		return w.EmptyQuery()
	}
	for i, st := range stmts {
		if n := st.Params(); n > 0 {
			ss.fail()
			return pgerr.Newf(pgerr.UndefinedParameter, "there is no parameter $%d", n)
		}
		last := i == len(stmts)-1
		if err := ss.run(ctx, st, nil, w, last); err != nil {
			ss.fail()
			return err
		}
	}
	return nil
}

// run executes one statement. With last an implicit transaction commits before the statement's completion is reported, so that an error of
// the commit is the statement's.
func (ss *session) run(ctx context.Context, st sql.Statement, args []types.Datum, w pgwire.ResultWriter, last bool) error {
	ctx, cancel := ss.withTimeout(ctx)
	defer cancel()
	ss.srv.statements.Add(1)
	ss.running = st.SourceText()
	defer func() { ss.running = "" }()
	if ss.tx.failed && !endsTx(st) {
		return pgerr.Newf(pgerr.InFailedSQLTransaction, "current transaction is aborted, commands ignored until end of transaction block")
	}
	ss.tx.begin()
	d := &dispatch{ss: ss, ctx: ctx, w: w, args: args, last: last}
	return d.statement(st)
}

func (ss *session) withTimeout(ctx context.Context) (context.Context, context.CancelFunc) {
	d := ss.vars.statementTimeout()
	if d <= 0 {
		return ctx, func() {}
	}
	return context.WithTimeoutCause(ctx, d, pgerr.Newf(pgerr.QueryCanceled, "canceling statement due to statement timeout"))
}

func endsTx(st sql.Statement) bool {
	switch st.(type) {
	case *sql.Commit, *sql.Rollback, *sql.RollbackTo:
		return true
	}
	return false
}

// env returns what expressions of the running statement may depend on.
func (ss *session) env(args []types.Datum) *expr.Env {
	return &expr.Env{
		Format: ss.vars.format(), Params: args, TxnTime: ss.tx.at.Sub(pgEpoch).Microseconds(), StmtTime: time.Since(pgEpoch).Microseconds(),
		User: ss.vars.get("role_user"), Database: databaseName, Schemas: ss.vars.searchPath(), Settings: ss.vars.lookup,
		Catalog: ss.srv.catalogInfo(), SessionID: ss.params.ProcessID,
	}
}

func (ss *session) notice(severity string, code pgerr.Code, format string, args ...any) error {
	e := pgerr.Newf(code, format, args...)
	e.Severity = severity
	return ss.notifier.Notice(e)
}

// resolve finds a relation by its name in a statement.
func (ss *session) resolve(n sql.Name) (*catalog.Object, bool) {
	return ss.srv.catalog.Snapshot().Resolve(n.Schema, n.Name, ss.vars.searchPath())
}

// txn is a transaction: implicit (one statement, or one batch) or a block.
type txn struct {
	explicit bool
	failed   bool
	at       time.Time
	started  bool
	pinned   *exec.Pinned // snapshot of a block, taken at its first read
	writes   map[uint64]*tableWrites
	order    []uint64
	saved    []savepoint
	readOnly bool
}

type savepoint struct {
	name   string
	writes map[uint64]*tableWrites
	order  []uint64
}

// tableWrites are the uncommitted changes to one table, by encoded key.
type tableWrites struct {
	rel        *exec.Relation
	constraint string
	changes    map[string]*exec.Change
	order      []string
}

func (t *txn) begin() {
	if !t.started {
		t.started, t.at = true, time.Now()
	}
}

func (t *txn) release() {
	if t.pinned != nil {
		t.pinned.Release()
		t.pinned = nil
	}
	t.writes, t.order = nil, nil
}

// overlay is the transaction's writes as queries see them.
func (t *txn) overlay() map[uint64]map[string][]byte {
	if len(t.writes) == 0 {
		return nil
	}
	out := make(map[uint64]map[string][]byte, len(t.writes))
	for id, w := range t.writes {
		m := make(map[string][]byte, len(w.changes))
		for k, c := range w.changes {
			m[k] = c.New
		}
		out[id] = m
	}
	return out
}

func (t *txn) table(rel *exec.Relation, constraint string) *tableWrites {
	w := t.writes[rel.ID]
	if w == nil {
		if t.writes == nil {
			t.writes = map[uint64]*tableWrites{}
		}
		w = &tableWrites{rel: rel, constraint: constraint, changes: map[string]*exec.Change{}}
		t.writes[rel.ID] = w
		t.order = append(t.order, rel.ID)
	}
	return w
}

// put records that the row with the given key changes from old, as the transaction sees it, to row; nil is absence.
func (w *tableWrites) put(key, old, row []byte) {
	k := string(key)
	c := w.changes[k]
	if c == nil {
		w.changes[k] = &exec.Change{Key: []byte(k), Old: old, New: row}
		w.order = append(w.order, k)
		return
	}
	c.New = row
}

func (w *tableWrites) clone() *tableWrites {
	c := &tableWrites{rel: w.rel, constraint: w.constraint, changes: make(map[string]*exec.Change, len(w.changes)), order: append([]string(nil), w.order...)}
	for k, v := range w.changes {
		d := *v
		c.changes[k] = &d
	}
	return c
}

// commit makes the transaction's writes durable and visible.
func (ss *session) commit(ctx context.Context) error {
	t := ss.tx
	var writes []exec.TableWrite
	for _, id := range t.order {
		w := t.writes[id]
		tw := exec.TableWrite{Table: w.rel, Constraint: w.constraint}
		// Deletions first: a key that moves from one row to another within the transaction is free by then.
		for pass := range 2 {
			for _, k := range w.order {
				c := w.changes[k]
				if (c.New == nil) != (pass == 0) || (c.Old == nil && c.New == nil) || (c.Old != nil && c.New != nil && string(c.Old) == string(c.New)) {
					continue
				}
				tw.Changes = append(tw.Changes, *c)
			}
		}
		if len(tw.Changes) > 0 {
			writes = append(writes, tw)
		}
	}
	var err error
	if len(writes) > 0 {
		var epoch uint64
		if epoch, err = ss.srv.engine.Commit(ctx, writes); err == nil {
			ss.written = max(ss.written, epoch)
			if ss.vars.get("synchronous_commit") == "remote" {
				_, err = ss.srv.coord.Trigger(ctx, nil)
			}
		}
	}
	ss.closePortals(func(p *portal) bool { return true })
	t.release()
	ss.tx = &txn{}
	ss.vars.endTx(err == nil)
	return err
}

// endStatement commits an implicit transaction after its last statement.
func (d *dispatch) endStatement() error {
	if d.ss.tx.explicit || !d.last {
		return nil
	}
	return d.ss.commitKeeping(d.ctx, d.portal)
}

// commitKeeping commits but leaves the portal that is being executed open.
func (ss *session) commitKeeping(ctx context.Context, keep *portal) error {
	portals := ss.portals
	ss.portals = map[string]*portal{}
	err := ss.commit(ctx)
	for name, p := range portals {
		if p == keep {
			ss.portals[name] = p
		} else {
			p.close()
		}
	}
	return err
}

// Sync implements pgwire.Session.
func (ss *session) Sync(ctx context.Context) error {
	if ss.tx.explicit {
		return nil
	}
	if !ss.tx.started {
		ss.closePortals(func(*portal) bool { return true })
		return nil
	}
	return ss.commit(ctx)
}

// dispatch is the execution of one statement.
type dispatch struct {
	ss     *session
	ctx    context.Context //nolint:containedctx // lives as long as the call
	w      pgwire.ResultWriter
	args   []types.Datum
	last   bool
	pre    *prepared // when the statement was prepared: its plan may be used again
	portal *portal
	// formats of a portal's result
	formats []pgwire.Format
}

func (d *dispatch) complete(tag string) error {
	if err := d.endStatement(); err != nil {
		return err
	}
	return d.w.CommandComplete(tag)
}

// statement runs one statement to its completion message.
func (d *dispatch) statement(st sql.Statement) error {
	switch st := st.(type) {
	case *sql.Query:
		return d.query(st)
	case *sql.Insert, *sql.Update, *sql.Delete:
		return d.change(st)
	case *sql.Begin:
		return d.begin(st)
	case *sql.Commit:
		return d.commit(st)
	case *sql.Rollback:
		return d.rollback(st)
	case *sql.Savepoint:
		return d.savepoint(st)
	case *sql.RollbackTo:
		return d.rollbackTo(st)
	case *sql.Release:
		return d.releaseSavepoint(st)
	case *sql.Set:
		return d.set(st)
	case *sql.SetTransaction:
		return d.complete("SET")
	case *sql.SetConstraints:
		return d.complete("SET CONSTRAINTS")
	case *sql.Reset:
		return d.reset(st)
	case *sql.Show:
		return d.show(st)
	case *sql.Discard:
		return d.discard(st)
	case *sql.Explain:
		return d.explain(st)
	case *sql.Prepare:
		return d.prepareSQL(st)
	case *sql.Execute:
		return d.executeSQL(st)
	case *sql.Deallocate:
		return d.deallocate(st)
	case *sql.CreateTable:
		return d.createTable(st)
	case *sql.CreateTableAs:
		return d.createTableAs(st)
	case *sql.CreateSource:
		return d.createSource(st)
	case *sql.CreateMaterializedView:
		return d.createMaterializedView(st)
	case *sql.CreateView:
		return d.createView(st)
	case *sql.CreateSchema:
		return d.createSchema(st)
	case *sql.Drop:
		return d.drop(st)
	case *sql.Truncate:
		return d.truncate(st)
	case *sql.AlterObject:
		return d.alter(st)
	case *sql.CommentOn:
		return d.comment(st)
	case *sql.Checkpoint:
		return d.checkpoint()
	case *sql.Flush:
		return d.flush()
	case *sql.Wait:
		return d.wait(st)
	case *sql.CancelJobs:
		return d.cancelJobs(st)
	case *sql.Pause:
		return d.pause(st.Object, true)
	case *sql.Resume:
		return d.pause(st.Object, false)
	case *sql.Recover:
		d.ss.srv.engine.Recover()
		return d.complete("RECOVER")
	case *sql.Vacuum:
		return d.complete("VACUUM")
	case *sql.Analyze:
		return d.complete("ANALYZE")
	case *sql.Refresh:
		return d.complete("REFRESH MATERIALIZED VIEW")
	case *sql.Lock:
		return d.complete("LOCK TABLE")
	case *sql.CreateIndex, *sql.CreateSink, *sql.Copy, *sql.Declare, *sql.Fetch, *sql.Close, *sql.Listen, *sql.Unlisten, *sql.Notify, *sql.Grant,
		*sql.CreateRole, *sql.AlterRole:
		return unsupported(st)
	}
	return unsupported(st)
}

func unsupported(st sql.Statement) error {
	start, _ := st.Span()
	return pgerr.Newf(pgerr.FeatureNotSupported, "%s is not supported", statementName(st)).At(start).
		WithHint("See the manual's list of statements for what this version offers.")
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
	ss.tx.readOnly = (st.Modes.ReadOnly != nil && *st.Modes.ReadOnly) || ss.vars.get("default_transaction_read_only") == "on"
	return d.w.CommandComplete(tag)
}

func (d *dispatch) commit(st *sql.Commit) error {
	ss := d.ss
	if !ss.tx.explicit {
		if err := ss.notice("WARNING", pgerr.NoActiveSQLTransaction, "there is no transaction in progress"); err != nil {
			return err
		}
		return d.complete("COMMIT")
	}
	tag := "COMMIT"
	if ss.tx.failed {
		tag = "ROLLBACK"
		ss.rollback()
	} else if err := ss.commit(d.ctx); err != nil {
		return err
	}
	if st.Chain {
		ss.tx.begin()
		ss.tx.explicit = true
	}
	return d.w.CommandComplete(tag)
}

func (d *dispatch) rollback(st *sql.Rollback) error {
	ss := d.ss
	if !ss.tx.explicit {
		if err := ss.notice("WARNING", pgerr.NoActiveSQLTransaction, "there is no transaction in progress"); err != nil {
			return err
		}
	}
	ss.rollback()
	if st.Chain {
		ss.tx.begin()
		ss.tx.explicit = true
	}
	return d.w.CommandComplete("ROLLBACK")
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
	sp := savepoint{name: st.Name, writes: map[uint64]*tableWrites{}, order: append([]uint64(nil), t.order...)}
	for id, w := range t.writes {
		sp.writes[id] = w.clone()
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
	t.writes, t.order = map[uint64]*tableWrites{}, append([]uint64(nil), sp.order...)
	for id, w := range sp.writes {
		t.writes[id] = w.clone()
	}
	t.failed = false
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
	return d.w.CommandComplete("RELEASE")
}

func (d *dispatch) checkpoint() error {
	if _, err := d.ss.srv.coord.Trigger(d.ctx, nil); err != nil {
		return err
	}
	return d.complete("CHECKPOINT")
}

func (d *dispatch) flush() error {
	if err := d.endStatement(); err != nil {
		return err
	}
	if err := d.ss.srv.engine.Flush(d.ctx); err != nil {
		return err
	}
	return d.w.CommandComplete("FLUSH")
}

func statementName(st sql.Statement) string {
	name := fmt.Sprintf("%T", st)
	out := make([]byte, 0, len(name)+8)
	for i := len("*sql."); i < len(name); i++ {
		if c := name[i]; c >= 'A' && c <= 'Z' && len(out) > 0 {
			out = append(out, ' ', c)
		} else {
			out = append(out, c&^0x20)
		}
	}
	return string(out)
}

var errNoPortal = errors.New("no such portal")
