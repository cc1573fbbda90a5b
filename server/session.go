package server

import (
	"context"
	"time"

	"github.com/streamdb/streamdb/catalog"
	"github.com/streamdb/streamdb/internal/pgerr"
	"github.com/streamdb/streamdb/pgwire"
	"github.com/streamdb/streamdb/sql"
	"github.com/streamdb/streamdb/sql/expr"
	"github.com/streamdb/streamdb/sql/functions"
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
	// unacknowledged: something was committed that the client was not told of.
	unacknowledged bool
	prepared       map[string]*prepared
	portals        map[string]*portal
	spare          *portal // a closed one, for the next read by key
	info           *catalog.Info
	infoOf         *catalog.Snapshot
	format         *types.Format // of formatOf, with the names of info
	formatOf       *types.Format
	began          time.Time
	activity       activity
	sequences      sessionSequences
	random         expr.Random
	inbox          inbox
	stmtCtx        context.Context //nolint:containedctx // of the running statement, for the functions that it calls
	guest          bool            // no role has the user's name: it stands for the superuser
	roleIs         roleCache
	explaining     *explaining          // the EXPLAIN ANALYZE whose statement runs, nil: there is none
	advisory       map[lockTag]struct{} // advisory locks that it or its transaction holds; guarded by lockManager.mu
	awaits         *lockWait            // guarded by lockManager.mu
}

// NewSession implements pgwire.Handler.
func (s *Server) NewSession(ctx context.Context, p pgwire.StartupParams, n pgwire.Notifier) (pgwire.Session, error) {
	if p.Database != databaseName {
		return nil, pgerr.Newf(pgerr.InvalidCatalogName, "database %q does not exist", p.Database).WithHint("The only database is called %q.", databaseName)
	}
	role, err := s.admit(p)
	if err != nil {
		return nil, err
	}
	ss := &session{
		guest: role == nil, srv: s, ctx: ctx, stmtCtx: ctx, notifier: n, params: p, vars: s.newSessionVars(p.User), prepared: map[string]*prepared{}, portals: map[string]*portal{}, began: time.Now(),
	}
	ss.vars.mayBecome = ss.mayBecome
	ss.vars.isSuper = ss.super
	ss.tx = &txn{}
	if !ss.super() && s.wire.Connections() > s.settings.number("max_connections")-s.settings.number("superuser_reserved_connections") {
		return nil, pgerr.Newf(pgerr.TooManyConnections, "remaining connection slots are reserved for non-replication superuser connections")
	}
	ss.vars.vals["is_superuser"] = onOff(ss.super())
	if err := ss.storedSettings(role); err != nil {
		return nil, err
	}
	ss.sequences.ss = ss
	for _, kv := range p.Settings {
		if err := ss.vars.set(kv.Name, []string{kv.Value}, false); err != nil {
			return nil, err
		}
		if st, err := s.settings.table.find(kv.Name); err == nil {
			delete(ss.vars.stored, st.name)
		}
	}
	ss.notifier = &filter{Notifier: n, vars: ss.vars}
	ss.vars.beginTx()
	ss.vars.startup()
	ss.activity.end(ss)
	s.sessions.Store(p.ProcessID, ss)
	return ss, nil
}

const databaseName = sql.DatabaseName

// ParameterStatus implements pgwire.Session.
func (ss *session) ParameterStatus() []pgwire.Param { return ss.vars.reported() }

// Format implements pgwire.Session.
func (ss *session) Format() *types.Format {
	base, info := ss.vars.format(), ss.catalogInfo()
	now := base.Now
	if ss.tx != nil && ss.tx.started {
		now = ss.tx.at // 'now' is the transaction's time, as now() is
	}
	same := ss.format != nil && ss.formatOf == base && ss.format.Names.(functions.Names).Catalog == info
	if !same || !ss.format.Now.Equal(now) {
		f := *base
		f.Now = now
		if same {
			f.Names = ss.format.Names
		} else {
			f.Names = functions.Names{Catalog: info, Path: ss.vars.searchPath()}
		}
		ss.format, ss.formatOf = &f, base
	}
	return ss.format
}

// knownType reports whether a client may name the type by its OID.
func (ss *session) knownType(oid types.OID) bool {
	if _, ok := types.InfoOf(oid); ok {
		return true
	}
	t := types.T(oid)
	if e, ok := t.Elem(); ok {
		t = e
	}
	_, ok := ss.snapshot().Enum(uint32(t.OID))
	return ok
}

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
	ss.stmtCtx = context.WithoutCancel(ss.ctx)
	ss.closePortals(func(*portal) bool { return true })
	ss.rollbackSchema()
	ss.tx.release()
	ss.srv.locks.endTx(ss, 0)
	ss.srv.locks.unlockAll(ss)
	ss.tx = &txn{}
	if err := ss.dropTemporary(); err != nil {
		ss.srv.log.Warn().Err(err).Msg("drop temporary tables: the next start does it")
	}
	ss.srv.sessions.Delete(ss.params.ProcessID)
	ss.srv.stopListening(ss)
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

// SimpleQuery implements pgwire.Session.
func (ss *session) SimpleQuery(ctx context.Context, text string, w pgwire.ResultWriter) error {
	ss.stmtCtx = ctx
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
		if err := ss.remarks(st); err != nil {
			return err
		}
		if _, prepare := st.(*sql.Prepare); !prepare && st.Params() > 0 {
			ss.fail()
			return pgerr.Newf(pgerr.UndefinedParameter, "there is no parameter $%d", st.Params())
		}
		last := i == len(stmts)-1
		ss.tx.several = len(stmts) > 1
		if err := ss.run(ctx, st, nil, w, last); err != nil {
			ss.fail()
			return err
		}
	}
	return nil
}

// remarks sends the notices that parsing a statement gave.
func (ss *session) remarks(st sql.Statement) error {
	for _, n := range sql.NoticesOf(st) {
		if err := ss.notifier.Notice(n); err != nil {
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
	if err := ss.srv.mayExecute(); err != nil {
		return err
	}
	ss.activity.begin(ss, st.SourceText())
	defer func() { ss.activity.end(ss) }()
	if ss.tx.failed && !endsTx(st) {
		return errAborted()
	}
	ss.tx.begin()
	d := &dispatch{ss: ss, ctx: ctx, w: w, args: args, last: last}
	return d.statement(st)
}

func (ss *session) withTimeout(ctx context.Context) (context.Context, context.CancelFunc) {
	ss.stmtCtx = ctx
	d := ss.vars.timeout("statement_timeout")
	if d <= 0 {
		return ctx, func() {}
	}
	timed, cancel := context.WithTimeoutCause(ctx, d, pgerr.Newf(pgerr.QueryCanceled, "canceling statement due to statement timeout"))
	ss.stmtCtx = timed
	return timed, func() {
		cancel()
		ss.stmtCtx = ctx
	}
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
		Format: ss.Format(), Params: args, TxnTime: ss.tx.at.Sub(pgEpoch).Microseconds(), StmtTime: time.Since(pgEpoch).Microseconds(),
		User: ss.vars.currentUser(), SessionUser: ss.vars.vals["session_authorization"], Database: databaseName, Schemas: ss.vars.searchPath(), Settings: ss.vars.lookup,
		Catalog: ss.catalogInfo(), SessionID: ss.params.ProcessID, Sequences: &ss.sequences, Session: &actions{ss: ss, ctx: ss.stmtCtx}, Random: &ss.random,
		Interrupt: expr.InterruptedBy(ss.stmtCtx),
	}
}

// catalogInfo answers the catalogue functions of expressions; it is made once per state of the catalog.
func (ss *session) catalogInfo() expr.CatalogInfo {
	if snap := ss.snapshot(); ss.info == nil || ss.infoOf != snap {
		ss.info, ss.infoOf = catalog.NewInfo(ss.systemData()), snap
	}
	return ss.info
}

func (ss *session) notice(severity string, code pgerr.Code, format string, args ...any) error {
	e := pgerr.Newf(code, format, args...)
	e.Severity = severity
	return ss.notifier.Notice(e)
}

// note is a NOTICE to be told.
func note(format string, args ...any) *pgerr.Error {
	e := pgerr.Newf(pgerr.SuccessfulCompletion, format, args...)
	e.Severity = "NOTICE"
	return e
}

// resolve finds a relation by its name in a statement.
func (ss *session) resolve(n sql.Name) (*catalog.Object, bool) {
	if n.Schema == catalog.TemporaryAlias {
		n.Schema = ss.temporarySchema()
	}
	return ss.snapshot().Resolve(n.Schema, n.Name, ss.vars.searchPath())
}

// Sync implements pgwire.Session.
func (ss *session) Sync(ctx context.Context) error {
	ss.stmtCtx = ctx
	if ss.tx.explicit {
		return nil
	}
	if !ss.tx.started {
		ss.closePortals(endOfTx)
		return nil
	}
	return ss.commit(ctx)
}
