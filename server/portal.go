package server

import (
	"context"
	"time"

	"github.com/streamdb/streamdb/internal/pgerr"
	"github.com/streamdb/streamdb/pgwire"
	"github.com/streamdb/streamdb/sql"
	"github.com/streamdb/streamdb/types"
)

// DescribePortal implements pgwire.Session.
func (ss *session) DescribePortal(_ context.Context, name string) ([]pgwire.FieldDescription, error) {
	p := ss.portals[name]
	if p == nil {
		ss.fail()
		return nil, noPortal(name)
	}
	return fields(p.stmt.columns, p.stmt.origins, p.formats), nil
}

func noPortal(name string) error {
	return pgerr.Newf(pgerr.InvalidCursorName, "portal %q does not exist", name)
}

// ClosePortal implements pgwire.Session.
func (ss *session) ClosePortal(_ context.Context, name string) error {
	ss.closePortal(name)
	return nil
}

func (ss *session) closePortal(name string) {
	if p := ss.portals[name]; p != nil {
		ss.drop(p)
	}
}

// drop closes a portal and forgets it. One of a read by key, which leaves nothing behind, is kept for the next.
func (ss *session) drop(p *portal) {
	p.close()
	delete(ss.portals, p.name)
	if p.stmt.point != nil && p.sql == nil {
		ss.spare = p
	}
}

// newPortal returns an empty portal of a statement.
func (ss *session) newPortal(p *prepared) *portal {
	q := ss.spare
	if q == nil || p.point == nil {
		return &portal{}
	}
	ss.spare = nil
	*q = portal{args: q.args[:0], formats: q.formats[:0]}
	return q
}

func (ss *session) closePortals(which func(*portal) bool) {
	for _, p := range ss.portals {
		if which(p) {
			ss.drop(p)
		}
	}
}

// Execute implements pgwire.Session.
func (ss *session) Execute(ctx context.Context, name string, maxRows int, w pgwire.ResultWriter) error {
	p := ss.portals[name]
	if p == nil {
		ss.fail()
		return noPortal(name)
	}
	if err := ss.executePortal(ctx, p, maxRows, w); err != nil {
		ss.fail()
		return err
	}
	return nil
}

func (ss *session) executePortal(ctx context.Context, p *portal, maxRows int, w pgwire.ResultWriter) error {
	if p.stmt.stmt == nil {
		return w.EmptyQuery()
	}
	if p.done {
		if p.stmt.columns == nil {
			return pgerr.Newf(pgerr.ObjectNotInPrerequisiteState, "portal %q cannot be run", p.name)
		}
		if err := w.RowDescription(fields(p.stmt.columns, p.stmt.origins, p.formats)); err != nil {
			return err
		}
		return w.CommandComplete("SELECT 0")
	}
	if maxRows > 0 && p.stmt.columns != nil || p.cur != nil || p.sub != nil {
		if ss.tx.failed {
			return errAborted()
		}
		ctx, cancel := ss.withTimeout(ctx)
		defer cancel()
		if st, ok := p.stmt.stmt.(*sql.Subscribe); ok {
			return ss.pageChanges(ctx, p, st, maxRows, w)
		}
		return ss.page(ctx, p, maxRows, w)
	}
	p.done = true
	return ss.runPrepared(ctx, p, w)
}

// runPrepared executes a portal to its end.
func (ss *session) runPrepared(ctx context.Context, p *portal, w pgwire.ResultWriter) error {
	ctx, cancel := ss.withTimeout(ctx)
	defer cancel()
	st := p.stmt.stmt
	if ss.tx.failed && !endsTx(st) {
		return errAborted()
	}
	ss.srv.statements.Add(1)
	if err := ss.srv.mayExecute(); err != nil {
		return err
	}
	ss.tx.begin()
	ss.activity.begin(ss, p.stmt.text)
	defer func() { ss.activity.end(ss) }()
	d := &dispatch{ss: ss, ctx: ctx, w: w, args: p.args, pre: p.stmt, portal: p, formats: p.formats}
	if l, ok := w.(pgwire.Lookahead); ok {
		d.last = l.SyncFollows()
	}
	return d.statement(st)
}

// portal is a bound statement or an SQL cursor. With a row limit, and as a cursor, it has a position.
type portal struct {
	name    string
	stmt    *prepared
	args    []types.Datum
	formats []pgwire.Format
	at      time.Time // when it was made; the unnamed one does not know
	depth   int       // savepoints there were
	done    bool
	failed  bool    // a FETCH from it: it gives no more rows
	cur     *cursor // nil until it is fetched in parts
	sub     *subscription
	sql     *declared // of DECLARE, nil for a portal of the protocol
}

func (p *portal) close() {
	if p.cur != nil {
		p.cur.close()
		p.cur = nil
	}
	if p.sub != nil {
		p.sub.close()
		p.sub = nil
	}
}

func errAborted() error {
	return pgerr.Newf(pgerr.InFailedSQLTransaction, "current transaction is aborted, commands ignored until end of transaction block")
}
