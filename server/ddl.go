package server

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/streamdb/streamdb/catalog"
	"github.com/streamdb/streamdb/exec"
	"github.com/streamdb/streamdb/internal/pgerr"
	"github.com/streamdb/streamdb/planner"
	"github.com/streamdb/streamdb/sql"
	"github.com/streamdb/streamdb/sql/expr"
	"github.com/streamdb/streamdb/sql/functions"
	"github.com/streamdb/streamdb/types"
)

// rowIDColumn is the hidden key of tables without a primary key.
const rowIDColumn = "_row_id"

// Limits of definitions.
const (
	maxColumns    = 1600            // of a relation, as in PostgreSQL
	progressEvery = 5 * time.Second // between notices of a view that is being filled
)

func (d *dispatch) targetSchema(n sql.Name) (string, error) {
	snap := d.ss.snapshot()
	if n.Schema != "" {
		if _, ok := snap.Namespace(n.Schema); !ok {
			return "", pgerr.Newf(pgerr.InvalidSchemaName, "schema %q does not exist", n.Schema).At(n.Pos)
		}
		return n.Schema, d.ss.mayCreateIn(n.Schema)
	}
	for _, p := range d.ss.vars.searchPath() {
		if _, ok := snap.Namespace(p); ok && !catalog.IsTemporarySchema(p) {
			return p, d.ss.mayCreateIn(p)
		}
	}
	return "", pgerr.Newf(pgerr.InvalidSchemaName, "no schema has been selected to create in").At(n.Pos)
}

// exists handles IF NOT EXISTS; done means that the statement has been answered.
func (d *dispatch) exists(schema string, n sql.Name, ifNotExists bool, tag string) (done bool, err error) {
	if _, ok := d.ss.snapshot().Lookup(schema, n.Name); !ok {
		return false, nil
	}
	if !ifNotExists {
		return false, pgerr.Newf(pgerr.DuplicateTable, "relation %q already exists", n.Name)
	}
	if err := d.ss.notice("NOTICE", pgerr.DuplicateTable, "relation %q already exists, skipping", n.Name); err != nil {
		return false, err
	}
	return true, d.complete(tag)
}

// columnType resolves a type name.
func (d *dispatch) columnType(tn *sql.TypeName) (types.Type, error) {
	t, err := planner.ResolveType(*tn, d.ss.srv.planCatalog(d.ss.snapshot(), d.ss.vars.searchPath()))
	if err != nil {
		return types.Type{}, atPos(err, tn.Pos)
	}
	switch t.OID {
	case types.OIDUnknown, types.OIDRecord, types.OIDVoid, types.OIDAny:
		return types.Type{}, pgerr.Newf(pgerr.InvalidTableDefinition, "column has pseudo-type %s", t).At(tn.Pos)
	}
	return t, d.ss.mayUseType(t)
}

func atPos(err error, pos int) error {
	var e *pgerr.Error
	if errors.As(err, &e) {
		return e.At(pos)
	}
	return err
}

// columnsOf builds the columns and constraints of a definition.
func (d *dispatch) columnsOf(def *sql.TableDef, o *catalog.Object) (*likeCopy, error) {
	if len(def.Columns) > maxColumns {
		return nil, pgerr.Newf(pgerr.TooManyColumns, "tables can have at most %d columns", maxColumns)
	}
	key := []sql.Ident(nil)
	constraint, keyPos := "", -1
	copied := &likeCopy{}
	likes := def.Likes
	copyUpTo := func(at int) error {
		for ; len(likes) > 0 && likes[0].At <= at; likes = likes[1:] {
			if o.Kind != catalog.Table {
				return pgerr.Newf(pgerr.FeatureNotSupported, "LIKE is not supported in sources").At(likes[0].Name.Pos)
			}
			if err := d.like(&likes[0], o, copied); err != nil {
				return err
			}
		}
		return nil
	}
	setKey := func(cols []sql.Ident, name string, pos int) error {
		if key != nil {
			return errSecondKey(o.Name, pos)
		}
		key, constraint, keyPos = cols, name, pos
		return nil
	}
	for i := range def.Columns {
		if err := copyUpTo(i); err != nil {
			return nil, err
		}
		c := &def.Columns[i]
		if o.Column(c.Name) >= 0 {
			return nil, pgerr.Newf(pgerr.DuplicateColumn, "column %q specified more than once", c.Name)
		}
		if c.Name == rowIDColumn {
			return nil, pgerr.Newf(pgerr.ReservedName, "column name %q is reserved", c.Name).At(c.Pos)
		}
		switch {
		case c.Identity != "" && o.Kind == catalog.Source:
			return nil, pgerr.Newf(pgerr.FeatureNotSupported, "identity columns of sources are not supported").At(c.Pos)
		case c.References != nil:
			return nil, errForeignKey(c.References.Pos)
		case c.Unique && o.Kind != catalog.Table:
			return nil, pgerr.Newf(pgerr.FeatureNotSupported, "UNIQUE constraints of sources are not supported").At(c.Pos)
		case c.Generated != nil && o.Kind == catalog.Source:
			col, err := d.procTimeColumn(c, o)
			if err != nil {
				return nil, err
			}
			o.Columns = append(o.Columns, col)
			continue
		case c.Type == nil:
			return nil, pgerr.Newf(pgerr.SyntaxError, "column %q needs a type", c.Name).At(c.Pos)
		}
		col, err := d.newColumn(c, o)
		if err != nil {
			return nil, err
		}
		if c.Default != nil {
			col.Default = d.defaultText(c.Default)
		}
		if c.Generated != nil {
			col.Generated = expressionText(c.Generated)
		}
		o.Columns = append(o.Columns, col)
		if c.PrimaryKey {
			if err := setKey([]sql.Ident{{Name: c.Name, Pos: c.Pos}}, c.KeyName, c.Pos); err != nil {
				return nil, err
			}
		}
	}
	if err := copyUpTo(len(def.Columns)); err != nil {
		return nil, err
	}
	if len(o.Columns) > maxColumns {
		return nil, pgerr.Newf(pgerr.TooManyColumns, "tables can have at most %d columns", maxColumns)
	}
	inherited := len(o.Checks)
	for i := range def.Columns {
		for _, ck := range def.Columns[i].Checks {
			if err := d.addCheck(o, ck, inherited); err != nil {
				return nil, err
			}
		}
	}
	for _, tc := range def.Constraints {
		switch tc.Kind {
		case sql.ConstraintPrimaryKey:
			if err := setKey(tc.Columns, tc.Name, tc.Pos); err != nil {
				return nil, err
			}
		case sql.ConstraintCheck:
			if err := d.addCheck(o, tc, inherited); err != nil {
				return nil, err
			}
		case sql.ConstraintUnique:
			if o.Kind != catalog.Table {
				return nil, pgerr.Newf(pgerr.FeatureNotSupported, "UNIQUE constraints of sources are not supported").At(tc.Pos)
			}
		case sql.ConstraintForeignKey:
			return nil, errForeignKey(tc.Pos)
		}
	}
	if copied.key != nil {
		if err := setKey(copied.key, "", -1); err != nil {
			return nil, err
		}
		o.ConstraintComment, o.KeyComment = copied.keyComment[0], copied.keyComment[1]
	}
	for _, k := range key {
		i := o.Column(k.Name)
		if i < 0 {
			return nil, pgerr.Newf(pgerr.UndefinedColumn, "column %q named in key does not exist", k.Name).At(keyPos)
		}
		if slices.Contains(o.Key, i) {
			return nil, pgerr.Newf(pgerr.DuplicateColumn, "column %q appears twice in primary key constraint", k.Name).At(keyPos)
		}
		o.Columns[i].NotNull = true
		o.Key = append(o.Key, i)
	}
	if key != nil {
		if constraint == "" {
			constraint = o.Name + "_pkey"
		}
		o.Constraint = constraint
	}
	return copied, d.bindColumns(def, o)
}

// newColumn makes a column of a definition, without its expressions.
func (d *dispatch) newColumn(c *sql.ColumnDef, o *catalog.Object) (catalog.Column, error) {
	col := catalog.Column{Name: c.Name, NotNull: c.NotNull || c.PrimaryKey, Identity: c.Identity}
	if t, serial := serialType(c.Type); serial && o.Kind == catalog.Table {
		switch {
		case c.Default != nil:
			return col, pgerr.Newf(pgerr.SyntaxError, "multiple default values specified for column \"%s\" of table \"%s\"", c.Name, o.Name).At(c.Pos)
		case c.Identity != "":
			return col, pgerr.Newf(pgerr.SyntaxError, "both default and identity specified for column \"%s\" of table \"%s\"", c.Name, o.Name).At(c.IdentityPos)
		case c.Null:
			return col, pgerr.Newf(pgerr.SyntaxError, "conflicting NULL/NOT NULL declarations for column \"%s\" of table \"%s\"", c.Name, o.Name).At(c.Pos)
		}
		col.Type, col.NotNull = t, true
		return col, nil
	}
	t, err := d.columnType(c.Type)
	if err != nil {
		return col, err
	}
	if t.IsUserType() && o.Kind == catalog.Source {
		return col, pgerr.Newf(pgerr.FeatureNotSupported, "columns of enum types are not supported in sources").At(c.Type.Pos).
			WithHint("Declare the column as text and cast it in a view.")
	}
	col.Type = t
	if c.Identity == "" {
		return col, nil
	}
	switch {
	case t.OID != types.OIDInt2 && t.OID != types.OIDInt4 && t.OID != types.OIDInt8:
		return col, pgerr.Newf(pgerr.InvalidParameterValue, "identity column type must be smallint, integer, or bigint")
	case c.Default != nil:
		return col, pgerr.Newf(pgerr.SyntaxError, "both default and identity specified for column \"%s\" of table \"%s\"", c.Name, o.Name).At(c.IdentityPos)
	case c.Generated != nil:
		return col, pgerr.Newf(pgerr.SyntaxError, "both identity and generation expression specified for column \"%s\" of table \"%s\"", c.Name, o.Name).At(c.IdentityPos)
	case c.Null:
		return col, pgerr.Newf(pgerr.SyntaxError, "conflicting NULL/NOT NULL declarations for column \"%s\" of table \"%s\"", c.Name, o.Name).At(c.Pos)
	}
	col.NotNull = true
	return col, nil
}

// addCheck names a constraint as PostgreSQL does: after the column where it is about exactly one. The first
// ones came by LIKE.
func (d *dispatch) addCheck(o *catalog.Object, tc sql.TableConstraint, inherited int) error {
	name := tc.Name
	switch i := slices.IndexFunc(o.Checks, func(c catalog.Check) bool { return c.Name == name }); {
	case i >= inherited:
		return pgerr.Newf(pgerr.DuplicateObject, "check constraint %q already exists", name)
	case i >= 0:
		return errSecondConstraint(name, o.Name)
	}
	if name == "" {
		base := o.Name + "_check"
		columns := map[int]bool{}
		if e, err := planner.BindScalar(tc.Check, o.Stored(), d.ss.planOptions(d.ss.snapshot(), nil)); err == nil { // bindCheck reports it
			e.Columns(columns)
		}
		for c := range columns {
			if len(columns) == 1 {
				base = o.Name + "_" + o.Columns[c].Name + "_check"
			}
		}
		name = base
		for n := 1; slices.ContainsFunc(o.Checks, func(c catalog.Check) bool { return c.Name == name }); n++ {
			name = base + strconv.Itoa(n)
		}
	}
	o.Checks = append(o.Checks, catalog.Check{Name: name, Text: expressionText(tc.Check)})
	return nil
}

// bindColumns checks the expressions of a definition: defaults, generated columns, CHECK.
func (d *dispatch) bindColumns(def *sql.TableDef, o *catalog.Object) error {
	opts := d.ss.planOptions(d.ss.snapshot(), nil)
	for i := range def.Columns {
		c := &def.Columns[i]
		switch {
		case c.Default != nil && c.Generated != nil:
			return pgerr.Newf(pgerr.SyntaxError, "both default and generation expression specified for column %q of table %q", c.Name, o.Name).At(c.Pos)
		case c.Default != nil:
			if err := bindDefault(c, o.Columns[o.Column(c.Name)].Type, opts); err != nil {
				return err
			}
		case c.Generated != nil && o.Kind != catalog.Source:
			if err := d.bindGenerated(c, o, opts); err != nil {
				return err
			}
		}
		for _, ck := range c.Checks {
			if err := bindCheck(ck.Check, o, opts); err != nil {
				return err
			}
		}
	}
	for _, tc := range def.Constraints {
		if tc.Kind == sql.ConstraintCheck {
			if err := bindCheck(tc.Check, o, opts); err != nil {
				return err
			}
		}
	}
	return nil
}

func bindDefault(c *sql.ColumnDef, t types.Type, opts planner.Options) error {
	_, err := planner.BindDefinition(c.Default, nil, c.Name, t, "DEFAULT expression", opts)
	if pgerr.CodeOf(err) == pgerr.UndefinedColumn {
		return pgerr.Newf(pgerr.FeatureNotSupported, "cannot use column reference in DEFAULT expression").At(pgerr.From(err).Pos)
	}
	return err
}

func (d *dispatch) bindGenerated(c *sql.ColumnDef, o *catalog.Object, opts planner.Options) error {
	e, err := planner.BindDefinition(c.Generated, o.Stored(), c.Name, o.Columns[o.Column(c.Name)].Type, "column generation expression", opts)
	if err != nil {
		return err
	}
	var bad error
	e.Walk(func(x *expr.Expr) bool {
		switch x.Kind {
		case expr.Column:
			if o.Columns[x.Col].Generated != "" && bad == nil {
				bad = pgerr.Newf(pgerr.InvalidObjectDefinition, "cannot use generated column %q in column generation expression", o.Columns[x.Col].Name).At(x.Pos).
					WithDetail("A generated column cannot reference another generated column.")
			}
		case expr.Call:
			if f, ok := opts.Registry.ByID(x.Func); ok && f.Volatility != functions.Immutable && bad == nil {
				bad = pgerr.Newf(pgerr.InvalidObjectDefinition, "generation expression is not immutable")
			}
		}
		return bad == nil
	})
	return bad
}

func bindCheck(q *sql.Query, o *catalog.Object, opts planner.Options) error {
	_, err := planner.BindDefinition(q, o.Stored(), "", types.Bool, "check constraints", opts)
	if pgerr.CodeOf(err) == pgerr.DatatypeMismatch {
		e, err := planner.BindScalar(q, o.Stored(), opts)
		if err != nil {
			return err
		}
		return pgerr.Newf(pgerr.DatatypeMismatch, "argument of CHECK must be type boolean, not type %s", e.Type).At(e.Pos)
	}
	return err
}

// expressionText returns the text of an expression as the user wrote it.
func expressionText(q *sql.Query) string { return strings.TrimSpace(q.SourceText()) }

// defaultText is the stored text of a default: sequences are named by number, so that it follows when they are renamed.
func (d *dispatch) defaultText(q *sql.Query) string {
	return sql.SetRelationConstants(expressionText(q), func(name string) (string, bool) {
		info := catalog.Info{Snap: d.ss.snapshot()}
		oid, ok := info.RelationOID(name, d.ss.vars.searchPath())
		if !ok || !catalog.IsUserID(uint64(oid)) {
			return "", false
		}
		return strconv.FormatUint(uint64(oid), 10), true
	})
}

func (d *dispatch) createTable(st *sql.CreateTable) error {
	unlock, err := d.lockSchema()
	if err != nil {
		return err
	}
	defer unlock()
	schema, err := d.schemaFor(st.Name, st.Temporary)
	if err != nil {
		return err
	}
	if done, err := d.exists(schema, st.Name, st.IfNotExists, "CREATE TABLE"); done || err != nil {
		return err
	}
	if _, ok := option(st.Options, "connector"); ok || st.Format != nil {
		return pgerr.Newf(pgerr.FeatureNotSupported, "tables with a connector are not supported").At(st.Start).
			WithHint("CREATE SOURCE and a materialized view over it give the same rows.")
	}
	if len(st.Watermarks) > 0 {
		return pgerr.Newf(pgerr.FeatureNotSupported, "watermarks on tables are not supported").At(st.Watermarks[0].Pos).WithHint("Define the watermark on a source.")
	}
	o := &catalog.Object{Kind: catalog.Table, Schema: schema, Name: st.Name.Name}
	o.Temporary = catalog.IsTemporarySchema(schema)
	d.defaultOptions(o)
	clauseOptions(o, &st.TableDef)
	if err := d.tableOptions(o, st.Options, false); err != nil {
		return err
	}
	if err := onCommit(o, st.OnCommit); err != nil {
		return err
	}
	if err := d.optionsFit(o); err != nil {
		return err
	}
	copied, err := d.columnsOf(&st.TableDef, o)
	if err != nil {
		return err
	}
	indexes, err := d.uniqueIndexes(&st.TableDef, o)
	if err != nil {
		return err
	}
	return d.addTable(o, &st.TableDef, copied, "CREATE TABLE", copied.settle(d, o, indexes)...)
}

// addTable gives the table its hidden key where it has none, stores and opens it.
func (d *dispatch) addTable(o *catalog.Object, def *sql.TableDef, copied *likeCopy, tag string, indexes ...*catalog.Object) error {
	if err := d.storeTable(o, def, copied, indexes...); err != nil {
		return err
	}
	if err := d.endsAtOnce(o); err != nil {
		return err
	}
	return d.complete(tag)
}

func (d *dispatch) storeTable(o *catalog.Object, def *sql.TableDef, copied *likeCopy, indexes ...*catalog.Object) error {
	srv := d.ss.srv
	if len(o.Key) == 0 {
		o.Columns = append(o.Columns, catalog.Column{Name: rowIDColumn, Type: types.Int8, Hidden: true})
		o.Key = []int{len(o.Columns) - 1}
	}
	if err := d.ss.update(func(tx *catalog.Tx) error {
		withSchema(tx, o)
		o.ID = tx.NextID()
		if def != nil {
			for i := range def.Columns {
				c := &def.Columns[i]
				if _, serial := serialType(c.Type); serial || c.Identity != "" {
					if _, err := d.ownSequence(tx, o, o.Column(c.Name), c.IdentityOptions); err != nil {
						return err
					}
				}
			}
			for _, i := range slices.Sorted(maps.Keys(copied.identities)) {
				q, err := d.ownSequence(tx, o, i, nil)
				if err != nil {
					return err
				}
				c := *copied.identities[i]
				c.OwnerTable, c.OwnerColumn = q.Sequence.OwnerTable, q.Sequence.OwnerColumn
				q.Sequence = &c
			}
		}
		if err := tx.Add(o); err != nil {
			return err
		}
		for _, x := range indexes {
			x.ID, x.Index.Table = tx.NextID(), o.ID
			if err := tx.Add(x); err != nil {
				return err
			}
		}
		return nil
	}); err != nil {
		return err
	}
	err := srv.openTable(d.ctx, o, 0)
	if err == nil {
		err = srv.createIndexes(d.ctx, d.ss.snapshot(), o, indexes)
	}
	if err != nil {
		return errors.Join(err, d.ss.update(func(tx *catalog.Tx) error {
			for _, x := range append(indexes, o) {
				tx.Remove(x.ID)
			}
			return nil
		}), srv.closeTable(context.WithoutCancel(d.ctx), o.ID))
	}
	d.atRollback(func(ctx context.Context) error { return srv.closeTable(ctx, o.ID) })
	return nil
}

// endsAtOnce drops a table that lasts as long as its transaction where that is this statement.
func (d *dispatch) endsAtOnce(o *catalog.Object) error {
	if o.OnCommit != catalog.OnCommitDrop || d.ss.tx.schema != nil {
		return nil
	}
	d.ss.tx.release()
	return d.dropObjects(append(d.ss.snapshot().IndexesOf(o.ID), o))
}

func (d *dispatch) createTableAs(st *sql.CreateTableAs) error {
	schema, err := d.schemaFor(st.Name, st.Temporary)
	if err != nil {
		return err
	}
	if done, err := d.exists(schema, st.Name, st.IfNotExists, "CREATE TABLE AS"); done || err != nil {
		return err
	}
	q, err := planner.PlanQuery(st.Query, d.ss.planOptions(d.ss.snapshot(), nil))
	if err != nil {
		return err
	}
	o := &catalog.Object{Kind: catalog.Table, Schema: schema, Name: st.Name.Name, Temporary: catalog.IsTemporarySchema(schema)}
	d.defaultOptions(o)
	if err := d.tableOptions(o, st.Options, false); err != nil {
		return err
	}
	if err := onCommit(o, st.OnCommit); err != nil {
		return err
	}
	if err := d.optionsFit(o); err != nil {
		return err
	}
	if len(st.Columns) > len(q.Columns) {
		return pgerr.Newf(pgerr.SyntaxError, "too many column names were specified")
	}
	for i, c := range q.Columns {
		if i < len(st.Columns) {
			c.Name = st.Columns[i].Name
		}
		if o.Column(c.Name) >= 0 {
			return pgerr.Newf(pgerr.DuplicateColumn, "column %q specified more than once", c.Name)
		}
		if c.Type.OID == types.OIDUnknown {
			c.Type = types.Text
		}
		o.Columns = append(o.Columns, catalog.Column{Name: c.Name, Type: c.Type})
	}
	unlock, err := d.lockSchema()
	if err != nil {
		return err
	}
	err = d.storeTable(o, nil, nil)
	unlock()
	if err != nil {
		return err
	}
	if st.WithNoData {
		if err := d.endsAtOnce(o); err != nil {
			return err
		}
		return d.complete("CREATE TABLE AS")
	}
	p := &prepared{stmt: st.Query}
	n, err := int64(0), error(nil)
	if err = d.ss.plan(p); err == nil {
		n, err = d.fill(o, p)
	}
	if err != nil {
		return errors.Join(err, d.dropObjects([]*catalog.Object{o}))
	}
	if err := d.endsAtOnce(o); err != nil {
		return err
	}
	return d.complete(fmt.Sprintf("SELECT %d", n))
}

// fill inserts a query's rows into a new table.
func (d *dispatch) fill(o *catalog.Object, p *prepared) (int64, error) {
	n := int64(0)
	if len(p.query.Before) > 0 {
		err := d.withChanges(p, p.query.Before, nil, slices.Clone(p.query.Plan.Inputs), func(v *statementView) error {
			q := &exec.Query{Plan: p.query.Plan, Env: d.ss.env(d.args), Pinned: v.pins, Virtual: &v.tables, Overlay: v.overlay, Profile: d.ss.explaining.counts()}
			var err error
			n, err = d.fillFrom(o, q)
			return err
		})
		return n, err
	}
	r, err := d.ss.queryOf(d.ctx, p, d.args)
	if err != nil {
		return 0, err
	}
	defer r.release()
	d.ss.explaining.runs(p)
	return d.fillFrom(o, r.query)
}

// fillFrom runs the query.
func (d *dispatch) fillFrom(o *catalog.Object, q *exec.Query) (int64, error) {
	srv := d.ss.srv
	rels, err := srv.engine.Relations([]uint64{o.ID})
	if err != nil {
		return 0, err
	}
	w := d.ss.tx.table(rels[0], o.Constraint)
	n := int64(0)
	state := srv.tableState(o.ID)
	q.Emit = func(c *types.Chunk) error {
		for i := range c.Rows() {
			for range c.Weight(c.Row(i)) {
				id := types.NewVector(types.Int8, 1)
				id.Int[0] = state.nextRow.Add(1)
				one := types.NewChunk(rels[0].Types)
				for k := range len(o.Columns) - 1 {
					one.Cols[k].Append(c.Cols[k], c.Row(i))
				}
				one.Cols[len(o.Columns)-1] = id
				if err := w.put(types.AppendKey(nil, id, 0, false, false), nil, types.AppendRow(nil, one.Cols, 0)); err != nil {
					return err
				}
				n++
			}
		}
		if !d.ss.tx.explicit && d.last {
			if err := w.spill(srv.engine); err != nil {
				return err
			}
		}
		return d.ss.tx.fits(srv.transactionLimit())
	}
	return n, srv.engine.Run(d.ctx, q)
}
