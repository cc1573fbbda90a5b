package server

import (
	"context"
	"fmt"
	"strings"

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
	return fields(p.stmt.columns, p.formats), nil
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
		p.close()
		delete(ss.portals, name)
	}
}

func (ss *session) closePortals(which func(*portal) bool) {
	for name, p := range ss.portals {
		if which(p) {
			p.close()
			delete(ss.portals, name)
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
		if err := w.RowDescription(fields(p.stmt.columns, p.formats)); err != nil {
			return err
		}
		return w.CommandComplete("SELECT 0")
	}
	if maxRows > 0 && p.stmt.columns != nil || p.rows != nil {
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
		return pgerr.Newf(pgerr.InFailedSQLTransaction, "current transaction is aborted, commands ignored until end of transaction block")
	}
	ss.srv.statements.Add(1)
	ss.tx.begin()
	d := &dispatch{ss: ss, ctx: ctx, w: w, args: p.args, pre: p.stmt, portal: p, formats: p.formats}
	if l, ok := w.(pgwire.Lookahead); ok {
		d.last = l.SyncFollows()
	}
	return d.statement(st)
}

// portal is a bound statement. With a row limit its result comes from a goroutine that runs the query and waits while nobody fetches.
type portal struct {
	name    string
	stmt    *prepared
	args    []types.Datum
	formats []pgwire.Format
	done    bool

	rows   chan *types.Chunk
	result chan error
	cancel context.CancelFunc
	left   *types.Chunk // fetched, not yet sent
	at     int
	tag    string
}

// portalChunks bounds the chunks a paged portal holds ready.
const portalChunks = 2

func (p *portal) close() {
	if p.cancel != nil {
		p.cancel()
		for range p.rows { //nolint:revive // drained so that the query's goroutine ends
		}
		<-p.result
		p.cancel = nil
	}
}

// collector is the ResultWriter of a statement whose rows are paged.
type collector struct {
	pgwire.Notifier
	ctx    context.Context //nolint:containedctx // the portal's
	portal *portal
}

func (c *collector) RowDescription([]pgwire.FieldDescription) error { return nil }

func (c *collector) Rows(ch *types.Chunk) error {
	select {
	case c.portal.rows <- ch.Clone():
		return nil
	case <-c.ctx.Done():
		return context.Cause(c.ctx)
	}
}

func (c *collector) CommandComplete(tag string) error { c.portal.tag = tag; return nil }

func (c *collector) EmptyQuery() error { return nil }

func (c *collector) Suspended() error { return nil }

func (c *collector) Flush() error { return nil }

func (c *collector) CopyIn(pgwire.Format, int) (pgwire.CopyReader, error) {
	return nil, pgerr.Newf(pgerr.FeatureNotSupported, "COPY cannot be fetched in pages")
}

func (c *collector) CopyOut(pgwire.Format, int) error { return nil }

func (c *collector) CopyData([]byte) error { return nil }

func (c *collector) CopyDone() error { return nil }

// page runs the portal's query in the background on first use and sends up to maxRows rows.
func (ss *session) page(ctx context.Context, p *portal, maxRows int, w pgwire.ResultWriter) error {
	if p.rows == nil {
		if _, ok := p.stmt.stmt.(*sql.Query); !ok {
			// Statements with side effects run to their end at the first fetch; their rows are few or wanted anyway.
			if err := ss.buffer(ctx, p); err != nil {
				return err
			}
		} else if err := ss.background(p); err != nil {
			return err
		}
	}
	if err := w.RowDescription(fields(p.stmt.columns, p.formats)); err != nil {
		return err
	}
	n := 0
	for maxRows == 0 || n < maxRows {
		if p.left == nil || p.at >= p.left.N {
			p.left, p.at = nil, 0
			select {
			case c, ok := <-p.rows:
				if !ok {
					if err := <-p.result; err != nil {
						p.cancel()
						p.cancel = nil
						return err
					}
					p.result <- nil
					p.done = true
					if p.tag != "" && !strings.HasPrefix(p.tag, "SELECT ") {
						return w.CommandComplete(p.tag)
					}
					return w.CommandComplete(fmt.Sprintf("SELECT %d", n))
				}
				p.left = c
			case <-ctx.Done():
				return context.Cause(ctx)
			}
		}
		k := p.left.N - p.at
		if maxRows > 0 {
			k = min(k, maxRows-n)
		}
		part := *p.left
		part.Sel = make([]uint16, k)
		for i := range k {
			part.Sel[i] = uint16(p.at + i)
		}
		if err := w.Rows(&part); err != nil {
			return err
		}
		p.at += k
		n += k
	}
	return w.Suspended()
}

func (ss *session) background(p *portal) error {
	ctx, cancel := context.WithCancel(ss.ctx)
	q, err := ss.queryOf(ctx, p.stmt, p.args)
	if err != nil {
		cancel()
		return err
	}
	p.rows, p.result, p.cancel = make(chan *types.Chunk, portalChunks), make(chan error, 1), cancel
	c := &collector{ctx: ctx, portal: p}
	visible := len(p.stmt.columns)
	q.query.Emit = func(ch *types.Chunk) error {
		part := *ch
		part.Cols = part.Cols[:visible]
		return c.Rows(&part)
	}
	go func() {
		err := func() (err error) {
			defer q.release()
			defer func() {
				if r := recover(); r != nil {
					err = pgerr.Newf(pgerr.InternalError, "panic: %v", r)
				}
			}()
			return ss.srv.engine.Run(ctx, q.query)
		}()
		p.result <- err
		close(p.rows)
	}()
	return nil
}

func (ss *session) buffer(ctx context.Context, p *portal) error {
	var all []*types.Chunk
	rows := make(chan *types.Chunk)
	done := make(chan struct{})
	go func() {
		defer close(done)
		for c := range rows {
			all = append(all, c)
		}
	}()
	p.rows = rows
	err := ss.runPrepared(ctx, p, &collector{Notifier: ss.notifier, ctx: ctx, portal: p})
	close(rows)
	<-done
	if err != nil {
		p.rows = nil
		return err
	}
	p.rows, p.result, p.cancel = make(chan *types.Chunk, len(all)), make(chan error, 1), func() {}
	for _, c := range all {
		p.rows <- c
	}
	close(p.rows)
	p.result <- nil
	return nil
}
