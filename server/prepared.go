package server

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/streamdb/streamdb/catalog"
	"github.com/streamdb/streamdb/internal/pgerr"
	"github.com/streamdb/streamdb/pgwire"
	"github.com/streamdb/streamdb/planner"
	"github.com/streamdb/streamdb/sql"
	"github.com/streamdb/streamdb/sql/expr"
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
	at       time.Time
	fromSQL  bool         // by PREPARE
	uses     int64        // how often it was executed
	declared []types.Type // given parameter types; all of them once there was a plan: clients were told them
	params   []types.Type
	columns  types.Schema // nil: returns no rows
	open     bool         // nobody was told the columns: another plan may have others
	origins  []planner.Origin

	query  *planner.Planned       // of a query
	change *planner.PlannedChange // of INSERT, UPDATE, DELETE
	snap   *catalog.Snapshot      // catalog planned with
	role   uint32                 // that the session acted as
	passed bool                   // its privileges were found sufficient
	path   []string
	point  *pointRead // fast path of a read by key
}

// Prepare implements pgwire.Session.
func (ss *session) Prepare(ctx context.Context, name, text string, oids []uint32) error {
	_, cancel := ss.withTimeout(ctx)
	defer cancel()
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
	p := &prepared{name: name, text: text, at: time.Now()}
	for _, o := range oids {
		t := types.Type{}
		if o != 0 {
			if !ss.knownType(types.OID(o)) {
				return nil, pgerr.Newf(pgerr.InternalError, "cache lookup failed for type %d", o)
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
		if err := ss.remarks(p.stmt); err != nil {
			return nil, err
		}
	default:
		return nil, pgerr.Newf(pgerr.SyntaxError, "cannot insert multiple commands into a prepared statement")
	}
	if ss.tx.failed && !endsTx(p.stmt) {
		return nil, errAborted()
	}
	ss.tx.begin()
	return p, ss.plan(p)
}

// plan makes or renews the plan of p.
func (ss *session) plan(p *prepared) error {
	snap := ss.snapshot()
	path := ss.vars.searchPath()
	o := ss.planOptions(snap, p.declared)
	p.query, p.change, p.point = nil, nil, nil
	var columns types.Schema
	var origins []planner.Origin
	var params []types.Type
	switch st := p.stmt.(type) {
	case *sql.Query:
		q, err := planner.PlanQuery(st, o)
		if err != nil {
			return err
		}
		p.query, columns, origins, params = q, q.Columns, q.Origins, q.Params
		if columns == nil {
			columns = types.Schema{}
		}
		p.point = pointReadOf(q)
	case *sql.Insert, *sql.Update, *sql.Delete, *sql.Merge:
		c, err := planChange(st, o)
		if err != nil {
			return err
		}
		p.change, columns, origins, params = c, c.ReturningColumns, c.ReturningOrigins, c.Params
		if c.Returning == nil {
			columns = nil
		}
	case *sql.Explain:
		columns = types.Schema{{Name: "QUERY PLAN", Type: types.Text}}
		if st.Format == "json" {
			columns[0].Type = types.JSON
		}
		target := &prepared{stmt: explainedQuery(st.Target), declared: p.declared}
		switch target.stmt.(type) {
		case *sql.Query, *sql.Insert, *sql.Update, *sql.Delete, *sql.Merge:
			if err := ss.plan(target); err != nil {
				return err
			}
			params = target.params
		}
	case *sql.Show:
		columns = ss.showColumns(st)
	case *sql.Subscribe:
		t, err := ss.subscribed(st)
		if err != nil {
			return err
		}
		columns = t.columns
	case *sql.Declare:
		if st.Subscribe != nil {
			break
		}
		q, err := planner.PlanQuery(st.Query, o)
		if err != nil {
			return err
		}
		params = q.Params
	case *sql.Fetch:
		if t := ss.portals[st.Name]; t != nil && !st.Move {
			columns, origins = t.stmt.columns, t.stmt.origins
		}
	case *sql.Execute:
		if t := ss.prepared[st.Name]; t != nil {
			columns, origins = t.columns, t.origins
		}
	}
	if len(params) > maxParams {
		return pgerr.Newf(pgerr.TooManyArguments, "a statement may have %d parameters", maxParams)
	}
	if p.snap != nil && !p.open && !slices.EqualFunc(columns, p.columns, func(a, b types.Column) bool { return a.Type == b.Type && a.Name == b.Name }) {
		return pgerr.Newf(pgerr.FeatureNotSupported, "cached plan must not change result type")
	}
	if len(params) >= len(p.declared) {
		p.declared = params
	}
	p.columns, p.origins, p.params, p.snap, p.path, p.role, p.passed = columns, origins, params, snap, path, ss.role(), false
	return nil
}

// fresh makes sure that the plan of p is one of the current catalog.
func (ss *session) fresh(p *prepared) error {
	if p.stmt == nil || (p.snap == ss.snapshot() && p.role == ss.role() && slices.Equal(p.path, ss.vars.searchPath())) {
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
	return oids, fields(p.columns, p.origins, nil), nil
}

func noStatement(name string) error {
	if name == "" {
		return pgerr.Newf(pgerr.InvalidSQLStatementName, "unnamed prepared statement does not exist")
	}
	return pgerr.Newf(pgerr.InvalidSQLStatementName, "prepared statement %q does not exist", name)
}

// fields describes result columns; nil stays nil.
func fields(columns types.Schema, origins []planner.Origin, formats []pgwire.Format) []pgwire.FieldDescription {
	if columns == nil {
		return nil
	}
	out := make([]pgwire.FieldDescription, len(columns))
	for i, c := range columns {
		out[i] = pgwire.FieldDescription{Name: c.Name, Type: c.Type, Format: formatOf(formats, i)}
		if i < len(origins) {
			out[i].TableOID, out[i].Attr = origins[i].Relation, origins[i].Attr
		}
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
func (ss *session) Bind(ctx context.Context, name, stmt string, paramFormats []pgwire.Format, values [][]byte, resultFormats []pgwire.Format) error {
	_, cancel := ss.withTimeout(ctx)
	defer cancel()
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
		return errAborted()
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
	if len(ss.portals) >= maxPortals {
		return pgerr.Newf(pgerr.ConfigurationLimitExceeded, "a session may hold %d portals", maxPortals).WithHint("Close those that are not needed any more.")
	}
	if name != "" && ss.portals[name] != nil {
		return pgerr.Newf(pgerr.DuplicateCursor, "cursor %q already exists", name)
	}
	p.uses++
	ss.closePortal(name)
	q := ss.newPortal(p)
	args := slices.Grow(q.args, len(values))[:len(values)]
	var f *types.Format
	for i, v := range values {
		t := p.params[i]
		if v == nil {
			args[i] = types.NullDatum(t)
			continue
		}
		if f == nil && (formatOf(paramFormats, i) != pgwire.FormatBinary || t.OID != types.OIDInt8 && t.OID != types.OIDInt4) {
			f = ss.Format()
		}
		var d types.Datum
		var err error
		if formatOf(paramFormats, i) == pgwire.FormatBinary {
			d, err = types.ParseBinaryIn(f, t, v)
		} else {
			if err := pgerr.CheckText(v); err != nil {
				return inParameter(err, name, i+1, v, pgwire.FormatBinary) // it cannot be shown
			}
			d, err = types.ParseText(f, t, string(v))
		}
		if err != nil {
			return inParameter(err, name, i+1, v, formatOf(paramFormats, i))
		}
		args[i] = d
	}
	*q = portal{name: name, stmt: p, args: args, depth: len(ss.tx.saved), formats: append(q.formats, resultFormats...)}
	if name != "" {
		q.at = time.Now()
	}
	ss.portals[name] = q
	return nil
}

// inParameter gives the error of a parameter's value its place. As PostgreSQL with its default settings it does not show the value.
func inParameter(err error, portal string, n int, value []byte, f pgwire.Format) error {
	e := pgerr.From(err)
	if types.IsIncorrectBinary(err) {
		e.Message += fmt.Sprintf(" in bind parameter %d", n)
	}
	where := fmt.Sprintf("unnamed portal parameter $%d", n)
	if portal != "" {
		where = fmt.Sprintf("portal \"%s\" parameter $%d", portal, n)
	}
	switch {
	case f == pgwire.FormatBinary:
	case len(value) == 0:
		where += " = ''"
	default:
		where += " = '...'"
	}
	return e.Within(where)
}

// CloseStatement implements pgwire.Session.
func (ss *session) CloseStatement(_ context.Context, name string) error {
	if p := ss.prepared[name]; p != nil {
		ss.closePortals(func(q *portal) bool { return q.stmt == p })
		delete(ss.prepared, name)
	}
	return nil
}

// bindArgument binds an argument of EXECUTE and casts it to the parameter's type.
func bindArgument(ss *session, q *sql.Query, n int, t types.Type) (*expr.Expr, error) {
	e, err := planner.BindDefinition(q, nil, fmt.Sprint("$", n), t, "EXECUTE parameter", ss.planOptions(ss.snapshot(), nil))
	if pgerr.CodeOf(err) == pgerr.DatatypeMismatch {
		return nil, pgerr.Newf(pgerr.DatatypeMismatch, "parameter $%d cannot be coerced to the expected type %s", n, t).
			WithHint("You will need to rewrite or cast the expression.")
	}
	return e, err
}
