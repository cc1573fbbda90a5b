package server

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strings"

	"github.com/streamdb/streamdb/catalog"
	"github.com/streamdb/streamdb/exec"
	"github.com/streamdb/streamdb/internal/pgerr"
	"github.com/streamdb/streamdb/pgcopy"
	"github.com/streamdb/streamdb/pgwire"
	"github.com/streamdb/streamdb/planner"
	"github.com/streamdb/streamdb/sql"
	"github.com/streamdb/streamdb/sql/expr"
	"github.com/streamdb/streamdb/types"
)

// copyRelation is the name under which COPY FROM plans the client's data. It is found by that statement alone.
const copyRelation = "data of copy"

// copy runs COPY. Both directions are other statements with the client at one end: COPY FROM is an INSERT … SELECT whose source is the client's
// data, COPY TO a query whose rows are written in another form. What tables do with rows, they thus do here too.
func (d *dispatch) copy(st *sql.Copy) error {
	if n := st.Params(); n > 0 {
		return pgerr.Newf(pgerr.UndefinedParameter, "there is no parameter $%d", n)
	}
	if !st.Stdio {
		what := "file"
		if st.Program {
			what = "program"
		}
		return pgerr.Newf(pgerr.FeatureNotSupported, "COPY to or from a %s of the server is not supported", what).
			WithHint(`Anyone can COPY to stdout or from stdin. psql's \copy command reads and writes files of the client.`)
	}
	o, err := copyOptionsOf(st)
	if err != nil {
		return err
	}
	if st.Query != nil {
		return d.copyTo(st.Query, o, "")
	}
	rel, ok := d.ss.srv.planCatalog(d.ss.snapshot(), d.ss.vars.searchPath()).Relation(st.Table.Schema, st.Table.Name)
	if !ok {
		if s := st.Table.Schema; s != "" {
			if _, ok := d.ss.snapshot().Namespace(s); !ok {
				return pgerr.Newf(pgerr.InvalidSchemaName, "schema %q does not exist", s)
			}
		}
		return atNowhere(undefinedRelation(st.Table))
	}
	if x, ok := d.ss.snapshot().Get(rel.ID); ok && x.Kind == catalog.Sequence {
		if st.From {
			return pgerr.Newf(pgerr.WrongObjectType, "cannot copy to sequence %q", rel.Name)
		}
		return pgerr.Newf(pgerr.WrongObjectType, "cannot copy from sequence %q", rel.Name)
	}
	if err := o.known(rel); err != nil {
		return err
	}
	if st.From {
		return d.copyFrom(st, rel, o)
	}
	if rel.Kind == planner.View {
		return pgerr.Newf(pgerr.WrongObjectType, "cannot copy from view %q", rel.Name).WithHint("Try the COPY (SELECT ...) TO variant.")
	}
	cols, err := copyColumns(rel, st.Columns)
	if err != nil {
		return err
	}
	stmts, err := sql.Parse(fmt.Sprintf("SELECT %s FROM %s.%s", copyNames(cols), sql.QuoteIdent(rel.Schema), sql.QuoteIdent(rel.Name)))
	if err != nil {
		return err
	}
	return atNowhere(d.copyTo(stmts[0], o, rel.Name))
}

// copyColumns returns the columns that a COPY of a relation is about: those named, or all but generated ones.
func copyColumns(rel *planner.Relation, names []sql.Ident) (types.Schema, error) {
	cols := types.Schema{}
	if names == nil {
		for _, c := range rel.Columns {
			if !c.Hidden && c.Generated == nil {
				cols = append(cols, types.Column{Name: c.Name, Type: c.Type})
			}
		}
		return cols, nil
	}
	for _, n := range names {
		var col *planner.RelColumn
		for i := range rel.Columns {
			if c := &rel.Columns[i]; c.Name == n.Name && !c.Hidden {
				col = c
			}
		}
		switch {
		case col == nil:
			return nil, pgerr.Newf(pgerr.UndefinedColumn, "column %q of relation %q does not exist", n.Name, rel.Name)
		case col.Generated != nil:
			return nil, pgerr.Newf(pgerr.InvalidColumnReference, "column %q is a generated column", n.Name).WithDetail("Generated columns cannot be used in COPY.")
		case columnIndex(cols, n.Name) >= 0:
			return nil, pgerr.Newf(pgerr.DuplicateColumn, "column %q specified more than once", n.Name)
		}
		cols = append(cols, types.Column{Name: col.Name, Type: col.Type})
	}
	return cols, nil
}

func copyNames(cols types.Schema) string {
	names := make([]string, len(cols))
	for i, c := range cols {
		names[i] = sql.QuoteIdent(c.Name)
	}
	return strings.Join(names, ", ")
}

// copyTo runs a statement and writes its rows as COPY data.
func (d *dispatch) copyTo(st sql.Statement, o *copyOptions, relation string) error {
	switch st := st.(type) {
	case *sql.Query:
	case *sql.CreateTableAs:
		return pgerr.Newf(pgerr.FeatureNotSupported, "COPY (SELECT INTO) is not supported")
	case *sql.Insert:
		if st.Returning == nil {
			return errCopyReturning()
		}
	case *sql.Update:
		if st.Returning == nil {
			return errCopyReturning()
		}
	case *sql.Delete:
		if st.Returning == nil {
			return errCopyReturning()
		}
	}
	out := &copyOut{ResultWriter: d.w, options: o, relation: relation, format: d.ss.Format()}
	inner := *d
	inner.w, inner.pre, inner.formats = out, nil, nil
	return inner.statement(st)
}

func errCopyReturning() error {
	return pgerr.Newf(pgerr.FeatureNotSupported, "COPY query must have a RETURNING clause")
}

// copyOut is the ResultWriter of a statement whose rows become COPY data.
type copyOut struct {
	pgwire.ResultWriter
	options  *copyOptions
	relation string
	format   *types.Format
	enc      *pgcopy.Encoder
	binary   bool
	buf      []byte
	rows     int64
}

// RowDescription implements pgwire.ResultWriter.
func (c *copyOut) RowDescription(fields []pgwire.FieldDescription) error {
	cols := make(types.Schema, len(fields))
	for i, f := range fields {
		cols[i] = types.Column{Name: f.Name, Type: f.Type}
	}
	opts, err := c.options.of(cols, c.relation)
	if err != nil {
		return err
	}
	c.binary = opts.Format == pgcopy.Binary
	format := pgwire.FormatText
	if c.binary {
		format = pgwire.FormatBinary
	}
	if err := c.ResultWriter.CopyOut(format, len(cols)); err != nil {
		return err
	}
	c.enc = pgcopy.NewEncoder(opts, cols, c.format)
	c.buf = c.enc.AppendHeader(c.buf[:0])
	if c.binary { // goes with what comes next: there are clients that look for whole rows, or the end, in each message
		return nil
	}
	return c.send()
}

func (c *copyOut) send() error {
	if len(c.buf) == 0 {
		return nil
	}
	err := c.ResultWriter.CopyData(c.buf)
	c.buf = c.buf[:0]
	return err
}

// Rows implements pgwire.ResultWriter: a message per row, as clients of PostgreSQL are used to.
func (c *copyOut) Rows(ch *types.Chunk) error {
	for i := range ch.Rows() {
		r := ch.Row(i)
		for range ch.Weight(r) {
			c.buf = c.enc.AppendRow(c.buf, ch, r)
			if err := c.send(); err != nil {
				return err
			}
			c.rows++
		}
	}
	return nil
}

// CommandComplete implements pgwire.ResultWriter.
func (c *copyOut) CommandComplete(string) error {
	c.buf = c.enc.AppendTrailer(c.buf)
	if err := c.send(); err != nil {
		return err
	}
	if err := c.ResultWriter.CopyDone(); err != nil {
		return err
	}
	return c.ResultWriter.CommandComplete(fmt.Sprintf("COPY %d", c.rows))
}

// copyFrom inserts the client's rows.
func (d *dispatch) copyFrom(st *sql.Copy, rel *planner.Relation, o *copyOptions) error {
	ss := d.ss
	if kind := map[planner.RelKind]string{planner.View: "view", planner.MaterializedView: "materialized view", planner.Source: "source", planner.Index: "index"}[rel.Kind]; kind != "" {
		return pgerr.Newf(pgerr.WrongObjectType, "cannot copy to %s %q", kind, rel.Name).WithHint("Only tables can be written to.")
	}
	obj, ok := ss.snapshot().Get(rel.ID)
	if !ok || obj.Kind != catalog.Table {
		return pgerr.Newf(pgerr.InsufficientPrivilege, "permission denied: %q is a system catalog", rel.Name)
	}
	cols, err := copyColumns(rel, st.Columns)
	if err != nil {
		return err
	}
	if len(cols) == 0 {
		return pgerr.Newf(pgerr.FeatureNotSupported, "COPY needs at least one column")
	}
	opts, err := o.of(cols, rel.Name)
	if err != nil {
		return err
	}
	p, err := ss.planCopy(st, rel, cols)
	if err != nil {
		return err
	}
	if err := ss.authorize(p); err != nil {
		return err
	}
	format := pgwire.FormatText
	if opts.Format == pgcopy.Binary {
		format = pgwire.FormatBinary
	}
	client, err := d.w.CopyIn(format, len(cols))
	if err != nil {
		return err
	}
	in := &countedInput{CopyReader: client}
	defer func() {
		if in.bytes >= largeInput {
			ss.srv.giveBack()
		}
	}()
	data := &copyData{VirtualTables: &systemTables{ss: ss}, dec: pgcopy.NewDecoder(d.ctx, in, rel.Name, opts, cols, ss.Format()), cols: cols}
	c := &changer{d: d, p: p, obj: obj, virtual: data, place: data.place}
	if err := c.runLocked(true); err != nil {
		return err
	}
	return d.w.CommandComplete(fmt.Sprintf("COPY %d", c.rows))
}

// planCopy plans the INSERT that a COPY FROM is.
func (ss *session) planCopy(st *sql.Copy, rel *planner.Relation, cols types.Schema) (*prepared, error) {
	where := ""
	if st.Where != nil {
		where = " WHERE (" + st.Where.SourceText() + ")"
	}
	text := fmt.Sprintf("INSERT INTO %s.%s (%[3]s) OVERRIDING SYSTEM VALUE SELECT %[3]s FROM %s.%s AS %s%s", sql.QuoteIdent(rel.Schema), sql.QuoteIdent(rel.Name),
		copyNames(cols), catalog.SystemSchema, sql.QuoteIdent(copyRelation), sql.QuoteIdent(rel.Name), where)
	stmts, err := sql.Parse(text)
	if err != nil {
		return nil, atNowhere(err)
	}
	snap := ss.snapshot()
	o := ss.planOptions(snap, nil)
	if st.Where != nil {
		// What is wrong with the condition is said of it, not of the query that it becomes a part of.
		const what = "COPY FROM WHERE conditions"
		if c, err := planner.BindDefinitionExpr(st.Where, cols, what, o); err != nil {
			return nil, err
		} else if c.Type.OID != types.OIDBool && c.Kind != expr.Const {
			return nil, pgerr.Newf(pgerr.DatatypeMismatch, "argument of WHERE must be type boolean, not type %s", c.Type).At(c.Pos)
		}
	}
	data := &planner.Relation{
		ID: firstSystemOID - 1, OID: firstSystemOID - 1, Schema: catalog.SystemSchema, Name: copyRelation, Kind: planner.System, Virtual: copyRelation,
	}
	for _, c := range cols {
		data.Columns = append(data.Columns, planner.RelColumn{Name: c.Name, Type: c.Type})
	}
	o.Catalog = &copyCatalog{Catalog: o.Catalog, data: data}
	change, err := planChange(stmts[0], o)
	if err != nil {
		return nil, atNowhere(err)
	}
	return &prepared{stmt: stmts[0], snap: snap, change: change}, nil
}

// copyCatalog shows the client's data as a relation to the planner.
type copyCatalog struct {
	planner.Catalog
	data *planner.Relation
}

// Relation implements planner.Catalog.
func (c *copyCatalog) Relation(schema, name string) (*planner.Relation, bool) {
	if schema == c.data.Schema && name == c.data.Name {
		return c.data, true
	}
	return c.Catalog.Relation(schema, name)
}

// copyData gives the client's data to a query as the rows of a relation.
type copyData struct {
	exec.VirtualTables
	dec  *pgcopy.Decoder
	cols types.Schema
	rows int // of the chunk being worked on
}

// Rows implements exec.VirtualTables. The data is read once: the relation stands in the query once.
func (c *copyData) Rows(ctx context.Context, name string, columns []int, emit func(*types.Chunk) error) error {
	if name != copyRelation {
		return c.VirtualTables.Rows(ctx, name, columns, emit)
	}
	for {
		// A new chunk each time: what the statement keeps of its rows are views.
		all := types.NewChunk(c.cols.Types())
		err := c.dec.Read(all)
		if errors.Is(err, io.EOF) {
			return c.dec.Drain()
		}
		if err != nil {
			return err
		}
		c.rows = all.N
		part := &types.Chunk{N: all.N, Cols: make([]*types.Vector, len(columns))}
		for i, k := range columns {
			part.Cols[i] = all.Cols[k]
		}
		if err := emit(part); err != nil {
			return err
		}
	}
}

// place adds the line that row r of ch comes from to an error about it.
func (c *copyData) place(err error, ch *types.Chunk, r int) error {
	var e *pgerr.Error
	if !errors.As(err, &e) {
		return err
	}
	if ch.N != c.rows {
		r = -1 // rows were moved on the way
	}
	return e.Within(c.dec.Where(r))
}
