package server

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/streamdb/streamdb/catalog"
	"github.com/streamdb/streamdb/connector"
	"github.com/streamdb/streamdb/exec"
	"github.com/streamdb/streamdb/internal/pgerr"
	"github.com/streamdb/streamdb/planner"
	"github.com/streamdb/streamdb/planner/plan"
	"github.com/streamdb/streamdb/sql"
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
	snap := d.ss.srv.catalog.Snapshot()
	if n.Schema != "" {
		if _, ok := snap.Namespace(n.Schema); !ok {
			return "", pgerr.Newf(pgerr.InvalidSchemaName, "schema %q does not exist", n.Schema).At(n.Pos)
		}
		return n.Schema, nil
	}
	for _, p := range d.ss.vars.searchPath() {
		if _, ok := snap.Namespace(p); ok {
			return p, nil
		}
	}
	return "", pgerr.Newf(pgerr.InvalidSchemaName, "no schema has been selected to create in").At(n.Pos)
}

// exists handles IF NOT EXISTS; done means that the statement has been answered.
func (d *dispatch) exists(schema string, n sql.Name, ifNotExists bool, tag string) (done bool, err error) {
	if _, ok := d.ss.srv.catalog.Snapshot().Lookup(schema, n.Name); !ok {
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
func columnType(tn *sql.TypeName) (types.Type, error) {
	undefined := func() error {
		return pgerr.Newf(pgerr.UndefinedObject, "type %q does not exist", tn.Text).At(tn.Pos)
	}
	if tn.Schema != "" && tn.Schema != "pg_catalog" {
		return types.Type{}, undefined()
	}
	oid, ok := types.TypeByName(tn.Name)
	if !ok {
		return types.Type{}, undefined()
	}
	t := types.T(oid)
	if len(tn.Mods) > 0 {
		mod, err := types.TypmodIn(oid, tn.Mods)
		if err != nil {
			return types.Type{}, atPos(err, tn.Pos)
		}
		t.Mod = mod
	}
	if tn.ArrayDims > 0 {
		a := types.ArrayOf(oid)
		if a == 0 {
			return types.Type{}, pgerr.Newf(pgerr.UndefinedObject, "could not find array type for data type %s", t).At(tn.Pos)
		}
		t = types.Type{OID: a, Mod: t.Mod}
	}
	switch t.OID {
	case types.OIDUnknown, types.OIDRecord, types.OIDVoid, types.OIDAny:
		return types.Type{}, pgerr.Newf(pgerr.InvalidTableDefinition, "column has pseudo-type %s", t).At(tn.Pos)
	}
	return t, nil
}

func atPos(err error, pos int) error {
	var e *pgerr.Error
	if errors.As(err, &e) {
		return e.At(pos)
	}
	return err
}

// columnsOf builds the columns and constraints of a definition.
func (d *dispatch) columnsOf(def *sql.TableDef, o *catalog.Object) error {
	if len(def.Columns) > maxColumns {
		return pgerr.Newf(pgerr.TooManyColumns, "tables can have at most %d columns", maxColumns)
	}
	key := []sql.Ident(nil)
	constraint := ""
	setKey := func(cols []sql.Ident, name string, pos int) error {
		if key != nil {
			return pgerr.Newf(pgerr.InvalidTableDefinition, "multiple primary keys for table %q are not allowed", o.Name).At(pos)
		}
		key, constraint = cols, name
		return nil
	}
	for i := range def.Columns {
		c := &def.Columns[i]
		if o.Column(c.Name) >= 0 {
			return pgerr.Newf(pgerr.DuplicateColumn, "column %q specified more than once", c.Name).At(c.Pos)
		}
		if c.Name == rowIDColumn {
			return pgerr.Newf(pgerr.ReservedName, "column name %q is reserved", c.Name).At(c.Pos)
		}
		switch {
		case c.Identity != "":
			return pgerr.Newf(pgerr.FeatureNotSupported, "identity columns are not supported").At(c.Pos)
		case c.References != nil:
			return pgerr.Newf(pgerr.FeatureNotSupported, "foreign keys are not supported").At(c.References.Pos)
		case c.Unique:
			return pgerr.Newf(pgerr.FeatureNotSupported, "UNIQUE constraints are not supported").At(c.Pos).WithHint("Use PRIMARY KEY.")
		case c.Generated != nil && o.Kind == catalog.Source:
			return pgerr.Newf(pgerr.FeatureNotSupported, "generated columns of sources are not supported").At(c.Pos).WithHint("Compute the column in a view.")
		case c.Type == nil:
			return pgerr.Newf(pgerr.SyntaxError, "column %q needs a type", c.Name).At(c.Pos)
		}
		t, err := columnType(c.Type)
		if err != nil {
			return err
		}
		col := catalog.Column{Name: c.Name, Type: t, NotNull: c.NotNull || c.PrimaryKey}
		if c.Default != nil {
			col.Default = expressionText(c.Default)
		}
		if c.Generated != nil {
			col.Generated = expressionText(c.Generated)
		}
		o.Columns = append(o.Columns, col)
		if c.PrimaryKey {
			if err := setKey([]sql.Ident{{Name: c.Name, Pos: c.Pos}}, "", c.Pos); err != nil {
				return err
			}
		}
		for _, ck := range c.Checks {
			d.addCheck(o, ck, c.Name)
		}
	}
	for _, tc := range def.Constraints {
		switch tc.Kind {
		case sql.ConstraintPrimaryKey:
			if err := setKey(tc.Columns, tc.Name, tc.Pos); err != nil {
				return err
			}
		case sql.ConstraintCheck:
			d.addCheck(o, tc, "")
		case sql.ConstraintUnique:
			return pgerr.Newf(pgerr.FeatureNotSupported, "UNIQUE constraints are not supported").At(tc.Pos).WithHint("Use PRIMARY KEY.")
		case sql.ConstraintForeignKey:
			return pgerr.Newf(pgerr.FeatureNotSupported, "foreign keys are not supported").At(tc.Pos)
		}
	}
	for _, k := range key {
		i := o.Column(k.Name)
		if i < 0 {
			return pgerr.Newf(pgerr.UndefinedColumn, "column %q named in key does not exist", k.Name).At(k.Pos)
		}
		if slices.Contains(o.Key, i) {
			return pgerr.Newf(pgerr.DuplicateColumn, "column %q appears twice in primary key constraint", k.Name).At(k.Pos)
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
	return d.bindColumns(o)
}

func (d *dispatch) addCheck(o *catalog.Object, tc sql.TableConstraint, column string) {
	name := tc.Name
	if name == "" {
		base := o.Name + "_check"
		if column != "" {
			base = o.Name + "_" + column + "_check"
		}
		name = base
		for n := 1; slices.ContainsFunc(o.Checks, func(c catalog.Check) bool { return c.Name == name }); n++ {
			name = base + strconv.Itoa(n)
		}
	}
	o.Checks = append(o.Checks, catalog.Check{Name: name, Text: expressionText(tc.Check)})
}

// bindColumns checks the expressions of a definition: defaults, generated columns, CHECK.
func (d *dispatch) bindColumns(o *catalog.Object) error {
	opts := d.ss.planOptions(d.ss.srv.catalog.Snapshot(), nil)
	bind := func(text string, schema types.Schema) (types.Type, error) {
		q, err := parseExpression(text)
		if err != nil {
			return types.Type{}, err
		}
		e, err := planner.BindScalar(q, schema, opts)
		if err != nil {
			var pe *pgerr.Error
			if errors.As(err, &pe) {
				pe.Pos = -1 // the position counts in the stored expression, not in the statement
			}
			return types.Type{}, err
		}
		return e.Type, nil
	}
	for _, c := range o.Columns {
		if c.Default != "" {
			if _, err := bind(c.Default, nil); err != nil {
				return err
			}
		}
		if c.Generated != "" {
			if _, err := bind(c.Generated, o.Stored()); err != nil {
				return err
			}
		}
	}
	for _, c := range o.Checks {
		t, err := bind(c.Text, o.Stored())
		if err != nil {
			return err
		}
		if t.OID != types.OIDBool && t.OID != types.OIDUnknown {
			return pgerr.Newf(pgerr.DatatypeMismatch, "argument of CHECK must be type boolean, not type %s", t)
		}
	}
	return nil
}

// expressionText returns the text of an expression as the user wrote it.
func expressionText(q *sql.Query) string { return strings.TrimSpace(q.SourceText()) }

func (d *dispatch) createTable(st *sql.CreateTable) error {
	srv := d.ss.srv
	srv.ddl.Lock()
	defer srv.ddl.Unlock()
	schema, err := d.targetSchema(st.Name)
	if err != nil {
		return err
	}
	if done, err := d.exists(schema, st.Name, st.IfNotExists, "CREATE TABLE"); done || err != nil {
		return err
	}
	if st.Temporary {
		return pgerr.Newf(pgerr.FeatureNotSupported, "temporary tables are not supported").At(st.Start)
	}
	if _, ok := option(st.Options, "connector"); ok || st.Format != nil {
		return pgerr.Newf(pgerr.FeatureNotSupported, "tables with a connector are not supported").At(st.Start).
			WithHint("CREATE SOURCE and a materialized view over it give the same rows.")
	}
	if len(st.Options) > 0 {
		o := st.Options[0]
		return pgerr.Newf(pgerr.InvalidParameterValue, "unrecognized parameter %q", o.Name).At(o.Pos)
	}
	if len(st.Watermarks) > 0 {
		return pgerr.Newf(pgerr.FeatureNotSupported, "watermarks on tables are not supported").At(st.Watermarks[0].Pos).WithHint("Define the watermark on a source.")
	}
	o := &catalog.Object{Kind: catalog.Table, Schema: schema, Name: st.Name.Name, Definition: st.SourceText(), AppendOnly: st.AppendOnly}
	if err := d.columnsOf(&st.TableDef, o); err != nil {
		return err
	}
	return d.addTable(o, "CREATE TABLE")
}

// addTable gives the table its hidden key where it has none, stores and opens it.
func (d *dispatch) addTable(o *catalog.Object, tag string) error {
	if err := d.storeTable(o); err != nil {
		return err
	}
	return d.complete(tag)
}

func (d *dispatch) storeTable(o *catalog.Object) error {
	srv := d.ss.srv
	if len(o.Key) == 0 {
		o.Columns = append(o.Columns, catalog.Column{Name: rowIDColumn, Type: types.Int8, Hidden: true})
		o.Key = []int{len(o.Columns) - 1}
	}
	if err := srv.catalog.Update(func(tx *catalog.Tx) error {
		o.ID = tx.NextID()
		return tx.Add(o)
	}); err != nil {
		return err
	}
	if err := srv.openTable(d.ctx, o); err != nil {
		return errors.Join(err, srv.catalog.Update(func(tx *catalog.Tx) error { tx.Remove(o.ID); return nil }))
	}
	return nil
}

func (d *dispatch) createTableAs(st *sql.CreateTableAs) error {
	srv := d.ss.srv
	schema, err := d.targetSchema(st.Name)
	if err != nil {
		return err
	}
	if done, err := d.exists(schema, st.Name, st.IfNotExists, "CREATE TABLE AS"); done || err != nil {
		return err
	}
	q, err := planner.PlanQuery(st.Query, d.ss.planOptions(srv.catalog.Snapshot(), nil))
	if err != nil {
		return err
	}
	o := &catalog.Object{Kind: catalog.Table, Schema: schema, Name: st.Name.Name, Definition: st.SourceText()}
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
	srv.ddl.Lock()
	err = d.storeTable(o)
	srv.ddl.Unlock()
	if err != nil {
		return err
	}
	if st.WithNoData {
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
	return d.complete(fmt.Sprintf("SELECT %d", n))
}

// fill inserts a query's rows into a new table.
func (d *dispatch) fill(o *catalog.Object, p *prepared) (int64, error) {
	srv := d.ss.srv
	rels, err := srv.engine.Relations([]uint64{o.ID})
	if err != nil {
		return 0, err
	}
	r, err := d.ss.queryOf(d.ctx, p, d.args)
	if err != nil {
		return 0, err
	}
	defer r.release()
	w := d.ss.tx.table(rels[0], o.Constraint)
	n := int64(0)
	state := srv.tableState(o.ID)
	r.query.Emit = func(c *types.Chunk) error {
		for i := range c.Rows() {
			for range c.Weight(c.Row(i)) {
				id := types.NewVector(types.Int8, 1)
				id.Int[0] = state.nextRow.Add(1)
				one := types.NewChunk(rels[0].Types)
				for k := range len(o.Columns) - 1 {
					one.Cols[k].Append(c.Cols[k], c.Row(i))
				}
				one.Cols[len(o.Columns)-1] = id
				w.put(types.AppendKey(nil, id, 0, false, false), nil, types.AppendRow(nil, one.Cols, 0))
				n++
			}
		}
		return nil
	}
	return n, srv.engine.Run(d.ctx, r.query)
}

func option(opts []sql.Option, name string) (sql.Option, bool) {
	for _, o := range opts {
		if strings.EqualFold(o.Name, name) {
			return o, true
		}
	}
	return sql.Option{}, false
}

func (d *dispatch) createSource(st *sql.CreateSource) error {
	srv := d.ss.srv
	srv.ddl.Lock()
	defer srv.ddl.Unlock()
	schema, err := d.targetSchema(st.Name)
	if err != nil {
		return err
	}
	if done, err := d.exists(schema, st.Name, st.IfNotExists, "CREATE SOURCE"); done || err != nil {
		return err
	}
	o := &catalog.Object{Kind: catalog.Source, Schema: schema, Name: st.Name.Name, Definition: st.SourceText(), AppendOnly: true}
	if err := d.columnsOf(&st.TableDef, o); err != nil {
		return err
	}
	if o.Constraint != "" {
		return pgerr.Newf(pgerr.FeatureNotSupported, "a source cannot have a primary key").At(st.Start).WithHint("Rows of a source are only added; use DISTINCT or a grouped view over it.")
	}
	def := &catalog.SourceDef{Options: map[string]string{}, EncodeOptions: map[string]string{}}
	for _, op := range st.Options {
		if strings.EqualFold(op.Name, connector.OptionConnector) {
			op.Name, def.Connector = connector.OptionConnector, op.Value
		}
		if _, dup := def.Options[op.Name]; dup {
			return pgerr.Newf(pgerr.SyntaxError, "option %q given more than once", op.Name).At(op.Pos)
		}
		def.Options[op.Name] = op.Value
	}
	if st.Format != nil {
		def.Format, def.Encode = st.Format.Format, st.Format.Encode
		for _, op := range st.Format.Options {
			def.EncodeOptions[op.Name] = op.Value
		}
	}
	if err := d.checkSource(o, def); err != nil {
		return err
	}
	switch len(st.Watermarks) {
	case 0:
	case 1:
		wm := st.Watermarks[0]
		i := o.Column(wm.Column)
		if i < 0 {
			return pgerr.Newf(pgerr.UndefinedColumn, "column %q of WATERMARK does not exist", wm.Column).At(wm.Pos)
		}
		switch o.Columns[i].Type.OID {
		case types.OIDTimestamp, types.OIDTimestamptz:
		default:
			return pgerr.Newf(pgerr.DatatypeMismatch, "a watermark needs a timestamp column, %q is of type %s", wm.Column, o.Columns[i].Type).At(wm.Pos)
		}
		def.WatermarkColumn, def.WatermarkExpr = wm.Column, expressionText(wm.Expr)
		q, err := parseExpression(def.WatermarkExpr)
		if err != nil {
			return err
		}
		e, err := planner.BindScalar(q, o.Stored(), d.ss.planOptions(srv.catalog.Snapshot(), nil))
		if err != nil {
			return atPos(err, wm.Pos)
		}
		if e.Type.OID != o.Columns[i].Type.OID {
			return pgerr.Newf(pgerr.DatatypeMismatch, "watermark expression is of type %s, column %q of type %s", e.Type, wm.Column, o.Columns[i].Type).At(wm.Pos)
		}
	default:
		return pgerr.Newf(pgerr.FeatureNotSupported, "a source can have one watermark").At(st.Watermarks[1].Pos)
	}
	o.Source = def
	if err := srv.catalog.Update(func(tx *catalog.Tx) error {
		o.ID = tx.NextID()
		return tx.Add(o)
	}); err != nil {
		return err
	}
	return d.complete("CREATE SOURCE")
}

// checkSource validates the options and lets the connector derive or check the columns.
func (d *dispatch) checkSource(o *catalog.Object, def *catalog.SourceDef) error {
	reg := d.ss.srv.cfg.Connectors
	c, err := reg.Lookup(def.Connector)
	if err != nil {
		return err
	}
	cfg := &connector.SourceConfig{
		Name: o.Name, Options: def.Options, Format: def.Format, Encode: def.Encode, EncodeOptions: def.EncodeOptions, Columns: o.Stored(),
	}
	if err := reg.Validate(cfg); err != nil {
		return err
	}
	schema, err := c.Schema(cfg)
	if err != nil {
		return err
	}
	if len(o.Columns) == 0 {
		for _, col := range schema {
			o.Columns = append(o.Columns, catalog.Column{Name: col.Name, Type: col.Type})
		}
	}
	if len(o.Columns) == 0 {
		return pgerr.Newf(pgerr.InvalidObjectDefinition, "source %q needs a column list", o.Name)
	}
	cfg.Columns = o.Stored()
	src, err := c.Source(d.ctx, cfg)
	if err != nil {
		return err
	}
	return src.Close()
}

func (d *dispatch) createView(st *sql.CreateView) error {
	srv := d.ss.srv
	srv.ddl.Lock()
	defer srv.ddl.Unlock()
	schema, err := d.targetSchema(st.Name)
	if err != nil {
		return err
	}
	old, exists := srv.catalog.Snapshot().Lookup(schema, st.Name.Name)
	if exists && !(st.OrReplace && old.Kind == catalog.View) {
		if st.OrReplace {
			return pgerr.Newf(pgerr.WrongObjectType, "%q is not a view", st.Name.Name)
		}
		if done, err := d.exists(schema, st.Name, st.IfNotExists, "CREATE VIEW"); done || err != nil {
			return err
		}
	}
	q, err := planner.PlanQuery(st.Query, d.ss.planOptions(srv.catalog.Snapshot(), nil))
	if err != nil {
		return err
	}
	if len(q.Params) > 0 {
		return pgerr.Newf(pgerr.UndefinedParameter, "there is no parameter $1")
	}
	o := &catalog.Object{
		Kind: catalog.View, Schema: schema, Name: st.Name.Name, Query: queryText(st.Query), SearchPath: d.ss.vars.searchPath(),
		Definition: st.SourceText(), DependsOn: q.Relations,
	}
	if err := namedColumns(o, q.Columns, st.Columns); err != nil {
		return err
	}
	err = srv.catalog.Update(func(tx *catalog.Tx) error {
		if !exists {
			o.ID = tx.NextID()
			return tx.Add(o)
		}
		for i, c := range old.Columns {
			if i >= len(o.Columns) {
				return pgerr.Newf(pgerr.InvalidTableDefinition, "cannot drop columns from view")
			}
			if n := o.Columns[i]; n.Name != c.Name {
				return pgerr.Newf(pgerr.InvalidTableDefinition, "cannot change name of view column %q to %q", c.Name, n.Name)
			} else if n.Type != c.Type {
				return pgerr.Newf(pgerr.InvalidTableDefinition, "cannot change data type of view column %q from %s to %s", c.Name, c.Type, n.Type)
			}
		}
		o.ID = old.ID
		return tx.Replace(o)
	})
	if err != nil {
		return err
	}
	return d.complete("CREATE VIEW")
}

// queryText is the text of a view's query as the user wrote it.
func queryText(q *sql.Query) string { return strings.TrimSpace(q.SourceText()) }

func namedColumns(o *catalog.Object, columns types.Schema, names []sql.Ident) error {
	if len(names) > len(columns) {
		return pgerr.Newf(pgerr.SyntaxError, "too many column names were specified").At(names[len(columns)].Pos)
	}
	for i, c := range columns {
		if i < len(names) {
			c.Name = names[i].Name
		}
		if o.Column(c.Name) >= 0 {
			return pgerr.Newf(pgerr.DuplicateColumn, "column %q specified more than once", c.Name)
		}
		if c.Type.OID == types.OIDUnknown {
			c.Type = types.Text
		}
		o.Columns = append(o.Columns, catalog.Column{Name: c.Name, Type: c.Type})
	}
	return nil
}

// viewOptions reads WITH (…) of a materialized view over the session's defaults.
func (d *dispatch) viewOptions(opts []sql.Option) (settings map[string]string, background bool, err error) {
	v := d.ss.vars
	settings = map[string]string{}
	for _, st := range v.srv.table.list {
		if st.scope == scopeJob {
			settings[st.name] = v.get(st.name)
		}
	}
	background = v.get("background_ddl") == "on"
	for _, o := range opts {
		if strings.EqualFold(o.Name, "background") {
			b, err := boolean(o.Value)
			if err != nil {
				return nil, false, pgerr.Newf(pgerr.InvalidParameterValue, "invalid value for option \"background\": %q", o.Value).At(o.ValuePos)
			}
			background = b == "on"
			continue
		}
		st, err := v.srv.table.find(o.Name)
		if err != nil || st.scope != scopeJob {
			return nil, false, pgerr.Newf(pgerr.InvalidParameterValue, "unrecognized parameter %q", o.Name).At(o.Pos).
				WithHint("A materialized view knows: background, parallelism, on_error, state.backend.type.")
		}
		if settings[st.name], err = st.normalise(o.Value); err != nil {
			return nil, false, atPos(err, o.ValuePos)
		}
	}
	if settings["parallelism"] == "0" {
		settings["parallelism"] = strconv.Itoa(defaultParallelism())
	}
	return settings, background, nil
}

func (d *dispatch) createMaterializedView(st *sql.CreateMaterializedView) error {
	srv := d.ss.srv
	const tag = "CREATE MATERIALIZED VIEW"
	if st.OrReplace {
		return pgerr.Newf(pgerr.FeatureNotSupported, "CREATE OR REPLACE MATERIALIZED VIEW is not supported").At(st.Start).WithHint("DROP the view and CREATE it anew.")
	}
	schema, err := d.targetSchema(st.Name)
	if err != nil {
		return err
	}
	settings, background, err := d.viewOptions(st.Options)
	if err != nil {
		return err
	}
	srv.ddl.Lock()
	locked := true
	unlock := func() {
		if locked {
			locked = false
			srv.ddl.Unlock()
		}
	}
	defer unlock()
	if done, err := d.exists(schema, st.Name, st.IfNotExists, tag); done || err != nil {
		return err
	}
	o := &catalog.Object{
		Kind: catalog.MaterializedView, Schema: schema, Name: st.Name.Name, Query: queryText(st.Query), SearchPath: d.ss.vars.searchPath(),
		Definition: st.SourceText(), Settings: settings, Creating: true,
	}
	if err := srv.catalog.Update(func(tx *catalog.Tx) error {
		o.ID = tx.NextID()
		opts := d.ss.planOptions(tx.Snapshot(), nil)
		opts.EmitOnClose, opts.Relation = st.EmitOnWindowClose, o.ID
		opts.Parallelism, err = strconv.Atoi(settings["parallelism"])
		if err != nil {
			return err
		}
		q, err := planner.PlanStream(st.Query, opts)
		if err != nil {
			return err
		}
		if len(q.Params) > 0 {
			return pgerr.Newf(pgerr.UndefinedParameter, "there is no parameter $1")
		}
		if err := viewColumns(o, q, st.Columns); err != nil {
			return err
		}
		for _, id := range q.Relations {
			if dep, ok := tx.Snapshot().Get(id); ok && dep.Creating {
				return pgerr.Newf(pgerr.ObjectNotInPrerequisiteState, "materialized view %q is still being created", dep.Name).WithHint("WAIT for it first.")
			}
		}
		o.DependsOn = q.Relations
		if o.Plan, err = json.Marshal(q.Plan); err != nil {
			return fmt.Errorf("encode plan: %w", err)
		}
		return tx.Add(o)
	}); err != nil {
		return err
	}
	j, err := srv.createJob(o, nil)
	if err != nil {
		return errors.Join(err, srv.catalog.Update(func(tx *catalog.Tx) error { tx.Remove(o.ID); return nil }))
	}
	j.Start()
	unlock()
	finish := func() error {
		return srv.catalog.Update(func(tx *catalog.Tx) error {
			cur, ok := tx.Snapshot().Get(o.ID)
			if !ok {
				return pgerr.Newf(pgerr.QueryCanceled, "materialized view %q was dropped while it was being created", o.Name)
			}
			c := *cur
			c.Creating = false
			return tx.Replace(&c)
		})
	}
	if background {
		srv.work.Add(1)
		go func() {
			defer srv.work.Done()
			if err := j.WaitCaughtUp(context.Background(), progressEvery, func() {}); err == nil {
				if err := finish(); err != nil {
					srv.log.Warn().Err(err).Str("view", o.Name).Msg("background creation")
				}
			}
		}()
		return d.complete(tag)
	}
	began := time.Now()
	err = j.WaitCaughtUp(d.ctx, progressEvery, func() {
		read, total := j.Progress()
		msg := fmt.Sprintf("%d of %d rows read", read, total)
		if total > 0 && read > 0 {
			left := time.Duration(float64(time.Since(began)) * float64(total-read) / float64(read)).Round(time.Second)
			msg = fmt.Sprintf("%d of %d rows read (%d %%), about %v left", read, total, read*100/total, max(left, 0))
		}
		if nerr := d.ss.notice("NOTICE", pgerr.SuccessfulCompletion, "%s", msg); nerr != nil {
			srv.log.Debug().Err(nerr).Msg("progress notice")
		}
	})
	if err == nil {
		err = finish()
	}
	if err != nil {
		return errors.Join(err, d.dropObjects([]*catalog.Object{o}))
	}
	return d.complete(tag)
}

// viewColumns records the stored columns of a materialized view: the user's, then hidden ones that its key needs.
func viewColumns(o *catalog.Object, q *planner.Planned, names []sql.Ident) error {
	if err := namedColumns(o, q.Columns, names); err != nil {
		return err
	}
	for i := q.Plan.Visible; i < len(q.Plan.Schema); i++ {
		o.Columns = append(o.Columns, catalog.Column{Name: fmt.Sprintf("_key_%d", i-q.Plan.Visible), Type: q.Plan.Schema[i].Type, Hidden: true})
	}
	root := q.Plan.Fragments[len(q.Plan.Fragments)-1].Root
	if root.Kind != plan.KindMaterialize {
		return pgerr.Newf(pgerr.InternalError, "plan of a materialized view ends in %q", root.Kind)
	}
	o.Key = root.Materialize.KeyColumns
	o.AppendOnly = root.Inputs[0].AppendOnly
	return nil
}

func (d *dispatch) createSchema(st *sql.CreateSchema) error {
	err := d.ss.srv.catalog.Update(func(tx *catalog.Tx) error { return tx.AddNamespace(st.Name.Name) })
	if st.IfNotExists && pgerr.CodeOf(err) == pgerr.DuplicateSchema {
		if err := d.ss.notice("NOTICE", pgerr.DuplicateSchema, "schema %q already exists, skipping", st.Name.Name); err != nil {
			return err
		}
		err = nil
	}
	if err != nil {
		return err
	}
	return d.complete("CREATE SCHEMA")
}

var dropTags = map[sql.ObjectKind]string{
	sql.KindTable: "DROP TABLE", sql.KindView: "DROP VIEW", sql.KindMaterializedView: "DROP MATERIALIZED VIEW", sql.KindSource: "DROP SOURCE", sql.KindSchema: "DROP SCHEMA",
}

var dropKinds = map[sql.ObjectKind]catalog.Kind{
	sql.KindTable: catalog.Table, sql.KindView: catalog.View, sql.KindMaterializedView: catalog.MaterializedView, sql.KindSource: catalog.Source,
}

func (d *dispatch) drop(st *sql.Drop) error {
	srv := d.ss.srv
	tag, ok := dropTags[st.Kind]
	if !ok {
		return pgerr.Newf(pgerr.FeatureNotSupported, "DROP %s is not supported", strings.ToUpper(string(st.Kind))).At(st.Start)
	}
	srv.ddl.Lock()
	defer srv.ddl.Unlock()
	snap := srv.catalog.Snapshot()
	var targets []*catalog.Object
	var spaces []string
	for _, n := range st.Names {
		if st.Kind == sql.KindSchema {
			if _, ok := snap.Namespace(n.Name); !ok {
				if !st.IfExists {
					return pgerr.Newf(pgerr.InvalidSchemaName, "schema %q does not exist", n.Name).At(n.Pos)
				}
				if err := d.ss.notice("NOTICE", pgerr.SuccessfulCompletion, "schema %q does not exist, skipping", n.Name); err != nil {
					return err
				}
				continue
			}
			spaces = append(spaces, n.Name)
			for _, o := range snap.Objects() {
				if o.Schema == n.Name {
					targets = append(targets, o)
				}
			}
			continue
		}
		o, ok := d.ss.resolve(n)
		if !ok {
			if !st.IfExists {
				return pgerr.Newf(pgerr.UndefinedTable, "%s %q does not exist", st.Kind, n.Key())
			}
			if err := d.ss.notice("NOTICE", pgerr.SuccessfulCompletion, "%s %q does not exist, skipping", st.Kind, n.Key()); err != nil {
				return err
			}
			continue
		}
		if o.Kind != dropKinds[st.Kind] {
			return pgerr.Newf(pgerr.WrongObjectType, "%q is not a %s", n.Name, st.Kind).WithHint("Use DROP %s to remove a %s.", strings.ToUpper(string(o.Kind)), o.Kind)
		}
		targets = append(targets, o)
	}
	all, err := d.withDependents(snap, targets, spaces, st.Cascade)
	if err != nil {
		return err
	}
	if err := d.dropObjects(all); err != nil {
		return err
	}
	if len(spaces) > 0 {
		if err := srv.catalog.Update(func(tx *catalog.Tx) error {
			for _, s := range spaces {
				tx.RemoveNamespace(s)
			}
			return nil
		}); err != nil {
			return err
		}
	}
	return d.complete(tag)
}

// withDependents adds what depends on targets, dependents first, or reports it as PostgreSQL words it.
func (d *dispatch) withDependents(snap *catalog.Snapshot, targets []*catalog.Object, spaces []string, cascade bool) ([]*catalog.Object, error) {
	var all, extra []*catalog.Object
	var detail []string
	has := func(list []*catalog.Object, o *catalog.Object) bool {
		return slices.ContainsFunc(list, func(x *catalog.Object) bool { return x.ID == o.ID })
	}
	for _, t := range targets {
		for _, dep := range snap.Dependents(t.ID) {
			if !has(targets, dep) && !has(extra, dep) {
				extra = append(extra, dep)
				detail = append(detail, fmt.Sprintf("%s %s depends on %s %s", dep.Kind, sql.QuoteIdent(dep.Name), t.Kind, sql.QuoteIdent(t.Name)))
			}
		}
	}
	if len(spaces) > 0 {
		for _, t := range targets {
			extra = append(extra, t)
			detail = append(detail, fmt.Sprintf("%s %s depends on schema %s", t.Kind, sql.QuoteIdent(t.Name), t.Schema))
		}
	}
	if len(extra) > 0 && !cascade {
		what := ""
		if len(spaces) > 0 {
			what = "schema " + spaces[0]
		} else {
			what = fmt.Sprintf("%s %s", targets[0].Kind, sql.QuoteIdent(targets[0].Name))
		}
		return nil, pgerr.Newf(pgerr.DependentObjectsStillExist, "cannot drop %s because other objects depend on it", what).
			WithDetail("%s", strings.Join(detail, "\n")).WithHint("Use DROP ... CASCADE to drop the dependent objects too.")
	}
	switch len(extra) {
	case 0:
	case 1:
		if err := d.ss.notice("NOTICE", pgerr.SuccessfulCompletion, "drop cascades to %s %s", extra[0].Kind, sql.QuoteIdent(extra[0].Name)); err != nil {
			return nil, err
		}
	default:
		e := pgerr.Newf(pgerr.SuccessfulCompletion, "drop cascades to %d other objects", len(extra))
		e.Severity = "NOTICE"
		var lines []string
		for _, o := range extra {
			lines = append(lines, fmt.Sprintf("drop cascades to %s %s", o.Kind, sql.QuoteIdent(o.Name)))
		}
		if err := d.ss.notifier.Notice(e.WithDetail("%s", strings.Join(lines, "\n"))); err != nil {
			return nil, err
		}
	}
	all = append(all, targets...)
	for _, o := range extra {
		if !has(all, o) {
			all = append(all, o)
		}
	}
	// Younger objects depend on older ones, never the other way round.
	slices.SortFunc(all, func(a, b *catalog.Object) int { return int(int64(b.ID) - int64(a.ID)) })
	return all, nil
}

// dropObjects removes objects from the catalog, then stops what they ran. Dependents come first.
func (d *dispatch) dropObjects(objs []*catalog.Object) error {
	srv := d.ss.srv
	if len(objs) == 0 {
		return nil
	}
	if err := srv.catalog.Update(func(tx *catalog.Tx) error {
		for _, o := range objs {
			tx.Remove(o.ID)
		}
		return nil
	}); err != nil {
		return err
	}
	var err error
	for _, o := range objs {
		switch o.Kind {
		case catalog.MaterializedView:
			err = errors.Join(err, srv.engine.DropJob(o.ID))
			srv.coord.Drop(o.ID)
		case catalog.Table:
			// The session may be cancelled; the drop is decided.
			err = errors.Join(err, srv.engine.DropTable(context.WithoutCancel(d.ctx), o.ID))
			srv.tables.Delete(o.ID)
		}
	}
	return err
}

// waitFor returns the jobs that a statement names, all of them without a name.
func (d *dispatch) jobsNamed(n *sql.Name) ([]*exec.Job, error) {
	if n == nil {
		return d.ss.srv.engine.Jobs(), nil
	}
	o, ok := d.ss.resolve(*n)
	if !ok {
		return nil, undefinedRelation(*n)
	}
	j, ok := d.ss.srv.engine.Job(o.ID)
	if !ok {
		return nil, pgerr.Newf(pgerr.WrongObjectType, "%q is not a materialized view", n.Name).At(n.Pos)
	}
	return []*exec.Job{j}, nil
}
