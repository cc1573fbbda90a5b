package server

import (
	"context"
	"fmt"
	"slices"

	"github.com/streamdb/streamdb/internal/pgerr"
	"github.com/streamdb/streamdb/pgwire"
	"github.com/streamdb/streamdb/planner"
	"github.com/streamdb/streamdb/sql"
	"github.com/streamdb/streamdb/sql/expr"
	"github.com/streamdb/streamdb/sql/functions"
	"github.com/streamdb/streamdb/types"
)

// Limits of a session.
const (
	maxPrepared = 10_000 // prepared statements
	maxParams   = 65_535 // parameters of a statement, the protocol's own limit
)

// prepared is a prepared statement with its plan, which is made again when the catalog or the search path changed.
type prepared struct {
	name     string
	text     string
	stmt     sql.Statement // nil: empty
	declared []types.Type  // given parameter types
	params   []types.Type
	columns  types.Schema // nil: returns no rows

	query   *planner.Planned       // of a query
	change  *planner.PlannedChange // of INSERT, UPDATE, DELETE
	version uint64                 // catalog version planned with
	path    []string
	point   *pointRead // fast path of a read by key
	dead    bool
}

// Prepare implements pgwire.Session.
func (ss *session) Prepare(_ context.Context, name, text string, oids []uint32) error {
	p, err := ss.parsePrepared(name, text, oids)
	if err != nil {
		ss.fail()
		return err
	}
	if name == "" {
		delete(ss.prepared, "")
	} else if _, ok := ss.prepared[name]; ok {
		ss.fail()
		return pgerr.Newf(pgerr.DuplicatePreparedStatement, "prepared statement %q already exists", name)
	}
	if len(ss.prepared) >= maxPrepared {
		ss.fail()
		return pgerr.Newf(pgerr.ConfigurationLimitExceeded, "a session may hold %d prepared statements", maxPrepared).WithHint("DEALLOCATE those that are not needed any more.")
	}
	ss.prepared[name] = p
	return nil
}

func (ss *session) parsePrepared(name, text string, oids []uint32) (*prepared, error) {
	stmts, err := sql.Parse(text)
	if err != nil {
		return nil, err
	}
	p := &prepared{name: name, text: text}
	for _, o := range oids {
		t := types.Type{}
		if o != 0 {
			if _, ok := types.InfoOf(types.OID(o)); !ok {
				return nil, pgerr.Newf(pgerr.UndefinedObject, "type with OID %d does not exist", o)
			}
			t = types.T(types.OID(o))
		}
		p.declared = append(p.declared, t)
	}
	switch len(stmts) {
	case 0:
		return p, nil
	case 1:
		p.stmt = stmts[0]
	default:
		return nil, pgerr.Newf(pgerr.SyntaxError, "cannot insert multiple commands into a prepared statement")
	}
	if ss.tx.failed && !endsTx(p.stmt) {
		return nil, pgerr.Newf(pgerr.InFailedSQLTransaction, "current transaction is aborted, commands ignored until end of transaction block")
	}
	ss.tx.begin()
	return p, ss.plan(p)
}

// plan makes or renews the plan of p.
func (ss *session) plan(p *prepared) error {
	snap := ss.srv.catalog.Snapshot()
	path := ss.vars.searchPath()
	o := ss.planOptions(snap, p.declared)
	p.query, p.change, p.point = nil, nil, nil
	var columns types.Schema
	var params []types.Type
	switch st := p.stmt.(type) {
	case *sql.Query:
		q, err := planner.PlanQuery(st, o)
		if err != nil {
			return err
		}
		p.query, columns, params = q, q.Columns, q.Params
		if columns == nil {
			columns = types.Schema{}
		}
		p.point = pointReadOf(q)
	case *sql.Insert, *sql.Update, *sql.Delete:
		c, err := planChange(st, o)
		if err != nil {
			return err
		}
		p.change, columns, params = c, c.ReturningColumns, c.Params
		if c.Returning == nil {
			columns = nil
		}
	case *sql.Explain:
		columns = types.Schema{{Name: "QUERY PLAN", Type: types.Text}}
		if st.Format == "json" {
			columns[0].Type = types.JSON
		}
	case *sql.Show:
		columns = showColumns(st)
	case *sql.Execute:
		if t := ss.prepared[st.Name]; t != nil {
			columns = t.columns
		}
	}
	if len(params) > maxParams {
		return pgerr.Newf(pgerr.TooManyArguments, "a statement may have %d parameters", maxParams)
	}
	if p.version != 0 && !slices.EqualFunc(columns, p.columns, func(a, b types.Column) bool { return a.Type == b.Type && a.Name == b.Name }) {
		return pgerr.Newf(pgerr.FeatureNotSupported, "cached plan must not change result type")
	}
	p.columns, p.params, p.version, p.path = columns, params, snap.Version+1, path
	return nil
}

// fresh makes sure that the plan of p is one of the current catalog.
func (ss *session) fresh(p *prepared) error {
	if p.stmt == nil || (p.version == ss.srv.catalog.Snapshot().Version+1 && slices.Equal(p.path, ss.vars.searchPath())) {
		return nil
	}
	return ss.plan(p)
}

// DescribeStatement implements pgwire.Session.
func (ss *session) DescribeStatement(_ context.Context, name string) ([]types.OID, []pgwire.FieldDescription, error) {
	p := ss.prepared[name]
	if p == nil {
		ss.fail()
		return nil, nil, noStatement(name)
	}
	oids := make([]types.OID, len(p.params))
	for i, t := range p.params {
		oids[i] = t.OID
	}
	return oids, fields(p.columns, nil), nil
}

func noStatement(name string) error {
	if name == "" {
		return pgerr.Newf(pgerr.InvalidSQLStatementName, "unnamed prepared statement does not exist")
	}
	return pgerr.Newf(pgerr.InvalidSQLStatementName, "prepared statement %q does not exist", name)
}

// fields describes result columns; nil stays nil.
func fields(columns types.Schema, formats []pgwire.Format) []pgwire.FieldDescription {
	if columns == nil {
		return nil
	}
	out := make([]pgwire.FieldDescription, len(columns))
	for i, c := range columns {
		out[i] = pgwire.FieldDescription{Name: c.Name, Type: c.Type, Format: formatOf(formats, i)}
	}
	return out
}

func formatOf(formats []pgwire.Format, i int) pgwire.Format {
	switch len(formats) {
	case 0:
		return pgwire.FormatText
	case 1:
		return formats[0]
	}
	return formats[i]
}

// Bind implements pgwire.Session.
func (ss *session) Bind(_ context.Context, name, stmt string, paramFormats []pgwire.Format, values [][]byte, resultFormats []pgwire.Format) error {
	err := ss.bind(name, stmt, paramFormats, values, resultFormats)
	if err != nil {
		ss.fail()
	}
	return err
}

func (ss *session) bind(name, stmt string, paramFormats []pgwire.Format, values [][]byte, resultFormats []pgwire.Format) error {
	p := ss.prepared[stmt]
	if p == nil {
		return noStatement(stmt)
	}
	if ss.tx.failed && p.stmt != nil && !endsTx(p.stmt) {
		return pgerr.Newf(pgerr.InFailedSQLTransaction, "current transaction is aborted, commands ignored until end of transaction block")
	}
	ss.tx.begin()
	if err := ss.fresh(p); err != nil {
		return err
	}
	if len(values) != len(p.params) {
		return pgerr.Newf(pgerr.ProtocolViolation, "bind message supplies %d parameters, but prepared statement %q requires %d", len(values), stmt, len(p.params))
	}
	if n := len(paramFormats); n > 1 && n != len(values) {
		return pgerr.Newf(pgerr.ProtocolViolation, "bind message has %d parameter formats but %d parameters", n, len(values))
	}
	if n := len(resultFormats); n > 1 && n != len(p.columns) {
		return pgerr.Newf(pgerr.ProtocolViolation, "bind message has %d result formats but query has %d columns", n, len(p.columns))
	}
	if name != "" && ss.portals[name] != nil {
		return pgerr.Newf(pgerr.DuplicateCursor, "cursor %q already exists", name)
	}
	args := make([]types.Datum, len(values))
	f := ss.vars.format()
	for i, v := range values {
		t := p.params[i]
		if v == nil {
			args[i] = types.NullDatum(t)
			continue
		}
		var d types.Datum
		var err error
		if formatOf(paramFormats, i) == pgwire.FormatBinary {
			d, err = types.ParseBinary(t, v)
		} else {
			d, err = types.ParseText(f, t, string(v))
		}
		if err != nil {
			return err
		}
		args[i] = d
	}
	ss.closePortal(name)
	ss.portals[name] = &portal{name: name, stmt: p, args: args, formats: slices.Clone(resultFormats)}
	return nil
}

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

// CloseStatement implements pgwire.Session.
func (ss *session) CloseStatement(_ context.Context, name string) error {
	if p := ss.prepared[name]; p != nil {
		ss.closePortals(func(q *portal) bool { return q.stmt == p })
		delete(ss.prepared, name)
	}
	return nil
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
	sent   int64
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
func (c *collector) EmptyQuery() error                { return nil }
func (c *collector) Suspended() error                 { return nil }
func (c *collector) Flush() error                     { return nil }
func (c *collector) CopyIn(pgwire.Format, int) (pgwire.CopyReader, error) {
	return nil, pgerr.Newf(pgerr.FeatureNotSupported, "COPY cannot be fetched in pages")
}
func (c *collector) CopyOut(pgwire.Format, int) error { return nil }
func (c *collector) CopyData([]byte) error            { return nil }
func (c *collector) CopyDone() error                  { return nil }

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
	q.query.Emit = c.Rows
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

// bindArgument binds an argument of EXECUTE and casts it to the parameter's type.
func bindArgument(ss *session, q *sql.Query, t types.Type) (*expr.Expr, error) {
	e, err := planner.BindScalar(q, nil, ss.planOptions(ss.srv.catalog.Snapshot(), nil))
	if err != nil {
		return nil, err
	}
	return ss.srv.registry.Cast(e, t, functions.Assignment)
}
