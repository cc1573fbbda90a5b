package server

import (
	"context"
	"fmt"
	"strconv"
	"time"

	"github.com/streamdb/streamdb/internal/pgerr"
	"github.com/streamdb/streamdb/pgwire"
	"github.com/streamdb/streamdb/sql"
	"github.com/streamdb/streamdb/types"
)

// maxPortals bounds the portals and cursors of a session.
const maxPortals = 10_000

// declared is what DECLARE said of a portal.
type declared struct {
	text   string
	hold   bool
	binary bool
	scroll bool
	held   bool // all rows are read: it needs its transaction no more
	tx     *txn // it was declared in
}

// declare runs DECLARE … CURSOR.
func (d *dispatch) declare(st *sql.Declare) error {
	ss := d.ss
	if st.Subscribe != nil {
		return d.declareSubscription(st)
	}
	locking := st.Query.Locking()
	readOnly := func(code pgerr.Code, before, verdict, what string) error {
		return pgerr.Newf(code, "DECLARE %s ... %s is not %s", before, locking, verdict).WithDetail("%s cursors must be READ ONLY.", what)
	}
	switch {
	case st.Scroll && st.NoScroll:
		return pgerr.Newf(pgerr.InvalidCursorDefinition, "cannot specify both SCROLL and NO SCROLL")
	case st.Asensitive && st.Insensitive:
		return pgerr.Newf(pgerr.InvalidCursorDefinition, "cannot specify both ASENSITIVE and INSENSITIVE")
	case st.Query.Into != nil:
		return pgerr.Newf(pgerr.SyntaxError, "SELECT ... INTO is not allowed here").At(st.Query.Into.Pos)
	case locking != "" && st.Hold:
		return readOnly(pgerr.FeatureNotSupported, "CURSOR WITH HOLD", "supported", "Holdable")
	case locking != "" && st.Scroll:
		return readOnly(pgerr.FeatureNotSupported, "SCROLL CURSOR", "supported", "Scrollable")
	case locking != "" && st.Insensitive:
		return readOnly(pgerr.InvalidCursorDefinition, "INSENSITIVE CURSOR", "valid", "Insensitive")
	case !st.Hold && !ss.tx.explicit && d.last && !ss.tx.several:
		return pgerr.Newf(pgerr.NoActiveSQLTransaction, "DECLARE CURSOR can only be used in transaction blocks")
	case len(st.Query.Changes) > 0:
		return pgerr.Newf(pgerr.FeatureNotSupported, "DECLARE CURSOR must not contain data-modifying statements in WITH")
	case ss.portals[st.Name] != nil:
		return pgerr.Newf(pgerr.DuplicateCursor, "cursor %q already exists", st.Name)
	case len(ss.portals) >= maxPortals:
		return pgerr.Newf(pgerr.ConfigurationLimitExceeded, "a session may hold %d cursors", maxPortals).WithHint("CLOSE those that are not needed any more.")
	}
	p := &prepared{stmt: st.Query}
	if d.pre != nil {
		p.declared = d.pre.params
	}
	if err := ss.plan(p); err != nil {
		return err
	}
	src, err := ss.background(p, d.args)
	if err != nil {
		return err
	}
	c := newCursor(src)
	noScroll := st.NoScroll || locking != ""
	c.forward, c.few = noScroll, !st.Scroll && !noScroll && !st.Hold
	if !noScroll || st.Hold {
		c.keep = &spool{types: p.columns.Types(), limit: ss.vars.tempFileLimit()}
	}
	q := &portal{name: st.Name, stmt: p, args: d.args, at: time.Now(), depth: len(ss.tx.saved), cur: c, sql: &declared{
		text: st.SourceText(), hold: st.Hold, binary: st.Binary, scroll: !noScroll, tx: ss.tx,
	}}
	if st.Binary {
		q.formats = []pgwire.Format{pgwire.FormatBinary}
	}
	ss.portals[st.Name] = q
	if err := d.complete("DECLARE CURSOR"); err != nil {
		ss.closePortal(st.Name)
		return err
	}
	return nil
}

// fetch runs FETCH and MOVE.
func (d *dispatch) fetch(st *sql.Fetch) error {
	ss := d.ss
	p := ss.portals[st.Name]
	if p == nil {
		return noCursor(st.Name)
	}
	if p.failed {
		return pgerr.Newf(pgerr.ObjectNotInPrerequisiteState, "portal %q cannot be run", p.name)
	}
	if p == d.portal {
		return pgerr.Newf(pgerr.InvalidCursorState, "portal %q is running", p.name)
	}
	if p.sub != nil {
		return d.fetchChanges(st, p)
	}
	if len(st.Options) > 0 {
		return pgerr.Newf(pgerr.FeatureNotSupported, "cursor %q is no subscription: FETCH takes no options", p.name).At(st.Options[0].Pos)
	}
	if err := ss.open(p); err != nil {
		return err
	}
	var emit func(*types.Chunk) error
	if !st.Move {
		formats := d.formats
		if d.portal == nil {
			formats = p.formats
		}
		if err := d.w.RowDescription(fields(p.stmt.columns, p.stmt.origins, formats)); err != nil {
			return err
		}
		emit = d.w.Rows
	}
	count, c := st.Count, p.cur
	var n int64
	var err error
	switch st.Direction {
	case sql.FetchForward, sql.FetchBackward:
		if st.All {
			count = allRows
		}
		if st.Direction == sql.FetchBackward {
			count = -count
		}
		n, err = c.move(d.ctx, count, emit)
	case sql.FetchAbsolute:
		n, err = c.absolute(d.ctx, count, emit)
	case sql.FetchRelative:
		n, err = c.relative(d.ctx, count, emit)
	}
	if err != nil {
		p.failed = true
		return err
	}
	word := "FETCH "
	if st.Move {
		word = "MOVE "
	}
	return d.complete(word + strconv.FormatInt(n, 10))
}

// open gives a portal that was bound, but not executed in pages, its position.
func (ss *session) open(p *portal) error {
	if p.cur != nil {
		return nil
	}
	if p.stmt.query == nil {
		return pgerr.Newf(pgerr.InvalidCursorDefinition, "portal %q is not a query", p.name)
	}
	src, err := ss.background(p.stmt, p.args)
	if err != nil {
		return err
	}
	p.cur = newCursor(src)
	if p.done {
		src.close()
		p.cur.ended = true
	}
	return nil
}

func noCursor(name string) error {
	return pgerr.Newf(pgerr.InvalidCursorName, "cursor %q does not exist", name)
}

// closeCursor runs CLOSE.
func (d *dispatch) closeCursor(st *sql.Close) error {
	ss := d.ss
	if st.All {
		ss.closePortals(func(p *portal) bool { return p != d.portal })
		return d.complete("CLOSE CURSOR ALL")
	}
	if ss.portals[st.Name] == nil {
		return noCursor(st.Name)
	}
	ss.closePortal(st.Name)
	return d.complete("CLOSE CURSOR")
}

// holdCursors reads the rows of cursors WITH HOLD, before their transaction commits.
func (ss *session) holdCursors(ctx context.Context) error {
	for _, p := range ss.portals {
		if p.sql == nil || !p.sql.hold || p.sql.held {
			continue
		}
		if p.sub == nil {
			if err := p.cur.readAll(ctx); err != nil {
				return err
			}
		}
		p.sql.held = true
	}
	return nil
}

// endOfTx says which portals end with a transaction.
func endOfTx(p *portal) bool { return p.sql == nil || !p.sql.held }

// page sends up to maxRows rows of a portal, 0 for all.
func (ss *session) page(ctx context.Context, p *portal, maxRows int, w pgwire.ResultWriter) error {
	if p.cur == nil {
		if q, ok := p.stmt.stmt.(*sql.Query); ok && len(q.Changes) == 0 && len(p.stmt.query.Locks) == 0 {
			if err := ss.open(p); err != nil {
				return err
			}
		} else if err := ss.buffer(ctx, p); err != nil {
			return err
		}
	}
	if err := w.RowDescription(fields(p.stmt.columns, p.stmt.origins, p.formats)); err != nil {
		return err
	}
	want := int64(maxRows)
	if maxRows == 0 {
		want = allRows
	}
	n, err := p.cur.forwardRows(ctx, want, w.Rows)
	if err != nil {
		return err
	}
	if n == want {
		return w.Suspended()
	}
	if tag := p.cur.src.tag; tag != "" && !p.done {
		p.done = true
		return w.CommandComplete(tag)
	}
	p.done = p.sql == nil
	return w.CommandComplete(fmt.Sprintf("SELECT %d", n))
}

// buffer runs a statement that is no query to its end at the first fetch: it has effects, and its rows are few or wanted anyway.
func (ss *session) buffer(ctx context.Context, p *portal) error {
	c := &collector{Notifier: ss.notifier}
	if err := ss.runPrepared(ctx, p, c); err != nil {
		return err
	}
	p.cur = newCursor(c.stream())
	return nil
}
