package server

import (
	"context"
	"net"
	"time"

	"github.com/streamdb/streamdb/catalog"
	"github.com/streamdb/streamdb/internal/pgerr"
	"github.com/streamdb/streamdb/pgwire"
)

// actions are what the functions of a running statement do to its session. Those of a cursor's query run beside the session, so they may not
// change it.
type actions struct {
	ss     *session
	ctx    context.Context //nolint:containedctx // the statement's, or the cursor's
	beside bool
}

func (a *actions) inSession(what string) error {
	if a.beside {
		return pgerr.Newf(pgerr.FeatureNotSupported, "%s cannot be called in the query of a cursor", what)
	}
	return nil
}

// SetConfig implements expr.SessionActions.
func (a *actions) SetConfig(name, value string, local bool) (string, error) {
	if err := a.inSession("set_config"); err != nil {
		return "", err
	}
	v := a.ss.vars
	v.notify = a.ss.notifier.ParameterStatus
	if err := v.set(name, []string{value}, local); err != nil {
		return "", err
	}
	out, _ := v.lookup(name)
	return out, nil
}

// Sleep implements expr.SessionActions.
func (a *actions) Sleep(d time.Duration) error {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
		return nil
	case <-a.ctx.Done():
		return context.Cause(a.ctx)
	}
}

// Signal implements expr.SessionActions.
func (a *actions) Signal(pid int32, terminate bool) (bool, error) {
	if err := a.ss.maySignal(pid, terminate); err != nil {
		return false, err
	}
	send := a.ss.srv.wire.Cancel
	if terminate {
		send = a.ss.srv.wire.Terminate
	}
	if send(pid) {
		if pid == a.ss.params.ProcessID {
			<-a.ctx.Done() // a statement that ends itself does not go on
			return false, context.Cause(a.ctx)
		}
		return true, nil
	}
	if a.beside {
		return false, nil
	}
	return false, a.ss.notice("WARNING", pgerr.Warning, "PID %d is not a PostgreSQL backend process", pid)
}

// Notify implements expr.SessionActions.
func (a *actions) Notify(channel, payload string) error {
	if err := a.inSession("pg_notify"); err != nil {
		return err
	}
	return a.ss.tx.addNotification(pgwire.Notification{PID: a.ss.params.ProcessID, Channel: channel, Payload: payload})
}

// ClientPort implements expr.SessionActions.
func (a *actions) ClientPort() (int32, bool) {
	t, ok := a.ss.params.RemoteAddr.(*net.TCPAddr)
	if !ok {
		return 0, false
	}
	return int32(t.Port), true
}

// ServerPort implements expr.SessionActions.
func (a *actions) ServerPort() (int32, bool) {
	t, ok := a.ss.params.LocalAddr.(*net.TCPAddr)
	if !ok {
		return 0, false
	}
	return int32(t.Port), true
}

// Reload implements expr.SessionActions.
func (a *actions) Reload() error {
	const name = "pg_reload_conf"
	if a.ss.snapshot().Has(a.ss.role(), catalog.BuiltinSecurable(name), catalog.PrivExecute) == 0 {
		return denied("permission denied for function %s", name)
	}
	_ = a.ss.srv.ReloadConfig() // logged; as with PostgreSQL the client learns no more than that it was asked for
	return nil
}

// Started implements expr.SessionActions.
func (a *actions) Started() int64 { return micros(a.ss.srv.started) }

// Configured implements expr.SessionActions.
func (a *actions) Configured() int64 { return a.ss.srv.configured.Load() }

// IdleTimeout implements pgwire.Idler.
func (ss *session) IdleTimeout() (time.Duration, *pgerr.Error) {
	name, code, what := "idle_session_timeout", pgerr.IdleSessionTimeout, "idle-session"
	if ss.tx.explicit {
		name, code, what = "idle_in_transaction_session_timeout", pgerr.IdleInTransactionSessionTimeout, "idle-in-transaction"
	}
	d := ss.vars.timeout(name)
	if d <= 0 {
		return 0, nil
	}
	return d, pgerr.Newf(code, "terminating connection due to %s timeout", what)
}

// lockCtx is the context of waiting for a lock.
func (ss *session) lockCtx(ctx context.Context) (context.Context, context.CancelFunc) {
	d := ss.vars.timeout("lock_timeout")
	if d <= 0 {
		return ctx, func() {}
	}
	return context.WithTimeoutCause(ctx, d, pgerr.Newf(pgerr.LockNotAvailable, "canceling statement due to lock timeout"))
}

// lockTable waits for the other statements that change rows of a table outside of transaction blocks.
func (ss *session) lockTable(ctx context.Context, id uint64) (unlock func(), err error) {
	return ss.srv.locks.exclusive(ctx, ss, lockTag{kind: lockTable, table: id})
}

// severities are the severities of notices, the least first; a client gets those from client_min_messages on.
var severities = map[string]int{
	"debug5": 0, "debug4": 1, "debug3": 2, "debug2": 3, "debug1": 4, "log": 5, "notice": 6, "warning": 7, "error": 8,
}

// filter is the notifier of a session: it leaves out what client_min_messages does not want.
type filter struct {
	pgwire.Notifier
	vars *sessionVars
}

// Notice implements pgwire.Notifier.
func (f *filter) Notice(e *pgerr.Error) error {
	level := severities["notice"]
	switch e.Severity {
	case "WARNING":
		level = severities["warning"]
	case "INFO":
		level = len(severities) // always sent
	case "LOG":
		level = severities["log"]
	case "DEBUG":
		level = severities["debug1"]
	}
	if level < severities[f.vars.vals["client_min_messages"]] {
		return nil
	}
	return f.Notifier.Notice(e)
}
