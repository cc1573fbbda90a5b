package server

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/streamdb/streamdb/catalog"
	"github.com/streamdb/streamdb/internal/pgerr"
	"github.com/streamdb/streamdb/planner"
	"github.com/streamdb/streamdb/sql"
	"github.com/streamdb/streamdb/sql/expr"
	"github.com/streamdb/streamdb/sql/functions"
	"github.com/streamdb/streamdb/types"
)

// layoutOf is how a table's rows are stored.
func layoutOf(o *catalog.Object) (*types.RowLayout, error) {
	l := &types.RowLayout{Types: o.Stored().Types()}
	if o.Layout == nil {
		return l, nil
	}
	l.Base, l.Slots = o.Layout.Base, o.Layout.Slots
	l.Missing = make([]types.Datum, len(o.Columns))
	for i, c := range o.Columns {
		l.Missing[i] = types.NullDatum(c.Type)
		if c.Missing != nil {
			d, err := types.ParseText(types.DefaultFormat(), c.Type, *c.Missing)
			if err != nil {
				return nil, pgerr.Wrap(pgerr.DataCorrupted, err, "value of column %q for older rows", c.Name)
			}
			l.Missing[i] = d
		}
	}
	return l, nil
}

// setLayout tells the engine how the rows of a table are stored from now on.
func (s *Server) setLayout(ctx context.Context, o *catalog.Object) error {
	l, err := layoutOf(o)
	if err != nil {
		return err
	}
	return s.engine.SetLayout(ctx, o.ID, l)
}

// alteration is one action of ALTER TABLE: the table in the making, and what has to be done for it.
type alteration struct {
	d   *dispatch
	old *catalog.Object
	o   *catalog.Object // a copy; nothing in it is shared with old that an action changes
	// drop are objects that go with what was dropped, rebuild the indexes whose expressions are of other types now.
	drop, rebuild []*catalog.Object
}

// alterTable runs an action of ALTER TABLE that is about columns or constraints.
func (d *dispatch) alterTable(x *sql.AlterAction, old *catalog.Object) error {
	if x.Kind == sql.AlterAddColumn && (x.Column.Unique || x.Column.PrimaryKey) {
		return d.addKeyColumn(x, old)
	}
	c := *old
	c.Columns, c.Checks = slices.Clone(old.Columns), slices.Clone(old.Checks)
	a := &alteration{d: d, old: old, o: &c}
	if x.Kind == sql.AlterDropColumn {
		return a.dropColumnNamed(x)
	}
	if err := a.action(x); err != nil {
		return err
	}
	if err := a.store(); err != nil {
		return err
	}
	if err := d.dropObjects(a.drop); err != nil {
		return err
	}
	return d.rebuildIndexes(a.rebuild, a.o)
}

// store makes the changed table the one of the catalog and of the engine.
func (a *alteration) store() error {
	d, srv := a.d, a.d.ss.srv
	if asksMore(a.old, a.o) {
		a.o.Terms++
		if err := d.fence(a.old); err != nil {
			return err
		}
	}
	before := d.ss.snapshot()
	if err := d.ss.update(func(tx *catalog.Tx) error {
		if err := tx.Replace(a.o); err != nil {
			return err
		}
		return d.viewsStand(before, tx.Snapshot(), a.old)
	}); err != nil {
		return err
	}
	if a.o.Layout == a.old.Layout {
		return nil
	}
	// Rows are read by the new layout from now on; other sessions plan with the columns that they know, which stay where they are.
	old := a.old
	d.atRollback(func(ctx context.Context) error { return srv.setLayout(ctx, old) })
	return srv.setLayout(d.ctx, a.o)
}

// viewsStand checks that the views over a relation that is being changed give the same columns as before.
func (d *dispatch) viewsStand(before, snap *catalog.Snapshot, changed *catalog.Object) error {
	for _, v := range snap.Dependents(changed.ID) {
		if v.Kind != catalog.View && v.Kind != catalog.MaterializedView {
			continue
		}
		err := d.viewStands(snap, v)
		if err == nil {
			// A new column may be one more to join on.
			was, werr := d.planView(before, v)
			is, ierr := d.planView(snap, v)
			if werr != nil || ierr != nil || !slices.EqualFunc(was.Natural, is.Natural, slices.Equal) {
				err = errors.New("NATURAL JOIN would join on other columns")
			}
		}
		if err != nil {
			return pgerr.Newf(pgerr.DependentObjectsStillExist, "cannot alter %s because other objects depend on it", d.describe(changed)).
				WithDetail("%s would not mean the same any more: %v.", d.describe(v), err).WithHint("Drop the view first, and create it again afterwards.")
		}
	}
	return nil
}

// planView plans the stored query of a view.
func (d *dispatch) planView(snap *catalog.Snapshot, v *catalog.Object) (*planner.Planned, error) {
	stmts, err := sql.Parse(v.Query)
	if err != nil {
		return nil, err
	}
	q, ok := stmts[0].(*sql.Query)
	if !ok {
		return nil, pgerr.Newf(pgerr.InternalError, "the definition of %q is no query", v.Name)
	}
	opts := d.ss.planOptions(snap, nil)
	opts.SearchPath = v.SearchPath
	opts.Catalog = d.ss.srv.planCatalog(snap, v.SearchPath)
	return planner.PlanQuery(q, opts)
}

func (d *dispatch) viewStands(snap *catalog.Snapshot, v *catalog.Object) error {
	p, err := d.planView(snap, v)
	if err != nil {
		return err
	}
	n := 0
	for _, c := range v.Columns {
		if !c.Hidden {
			n++
		}
	}
	if len(p.Columns) != n {
		return fmt.Errorf("it would have %d columns", len(p.Columns))
	}
	for i, c := range p.Columns {
		if want := v.Columns[i].Type; c.Type != want && c.Type.OID != types.OIDUnknown {
			return fmt.Errorf("the type of its column %s would change from %s to %s", v.Columns[i].Name, want, c.Type)
		}
	}
	return nil
}

// column finds the column that an action names.
func (a *alteration) column(n sql.Ident) (int, error) {
	i := userColumn(a.o, n.Name)
	if i < 0 {
		return 0, pgerr.Newf(pgerr.UndefinedColumn, "column %q of relation %q does not exist", n.Name, a.o.Name)
	}
	return i, nil
}

func (a *alteration) options() planner.Options { return a.d.ss.planOptions(a.d.ss.snapshot(), nil) }

func (a *alteration) notice(format string, args ...any) error {
	return a.d.ss.notice("NOTICE", pgerr.SuccessfulCompletion, format, args...)
}

func (a *alteration) action(x *sql.AlterAction) error {
	switch x.Kind {
	case sql.AlterAddColumn:
		return a.addColumn(x)
	case sql.AlterAddConstraint:
		return a.addConstraint(x)
	case sql.AlterDropConstraint, sql.AlterValidateConstraint:
		return a.constraint(x)
	case sql.AlterOwner, sql.AlterNothing:
		return nil
	}
	i, err := a.column(x.Name)
	if err != nil {
		return err
	}
	c := &a.o.Columns[i]
	switch x.Kind {
	case sql.AlterSetDefault, sql.AlterDropDefault:
		return a.setDefault(x, c)
	case sql.AlterSetNotNull:
		if c.NotNull {
			return nil
		}
		c.NotNull = true
		return a.verify(sql.QuoteIdent(c.Name)+" IS NULL", func() error {
			e := pgerr.Newf(pgerr.NotNullViolation, "column %q of relation %q contains null values", c.Name, a.o.Name)
			e.Schema, e.Table, e.Column = a.o.Schema, a.o.Name, c.Name
			return e
		})
	case sql.AlterDropNotNull:
		switch {
		case slices.Contains(a.o.Key, i) || a.d.inPrimaryKey(a.o, i):
			return pgerr.Newf(pgerr.InvalidTableDefinition, "column %q is in a primary key", c.Name)
		case c.Identity != "":
			return pgerr.Newf(pgerr.SyntaxError, "column %q of relation %q is an identity column", c.Name, a.o.Name)
		}
		c.NotNull = false
		return nil
	case sql.AlterDropExpression:
		if c.Generated == "" {
			if x.IfExists {
				return a.notice("column %q of relation %q is not a stored generated column, skipping", c.Name, a.o.Name)
			}
			return pgerr.Newf(pgerr.ObjectNotInPrerequisiteState, "column %q of relation %q is not a stored generated column", c.Name, a.o.Name)
		}
		c.Generated = ""
		return nil
	case sql.AlterAddIdentity, sql.AlterSetIdentity, sql.AlterDropIdentity:
		return a.identity(x, i)
	case sql.AlterColumnType:
		return a.columnType(x, i)
	}
	return pgerr.Newf(pgerr.FeatureNotSupported, "this form of ALTER TABLE is not supported").At(x.Pos)
}

func (a *alteration) setDefault(x *sql.AlterAction, c *catalog.Column) error {
	if c.Identity != "" {
		e := pgerr.Newf(pgerr.SyntaxError, "column %q of relation %q is an identity column", c.Name, a.o.Name)
		if x.Kind == sql.AlterDropDefault {
			e = e.WithHint("Use ALTER TABLE ... ALTER COLUMN ... DROP IDENTITY instead.")
		}
		return e
	}
	if c.Generated != "" {
		e := pgerr.Newf(pgerr.SyntaxError, "column %q of relation %q is a generated column", c.Name, a.o.Name)
		if x.Kind == sql.AlterDropDefault {
			e = e.WithHint("Use ALTER TABLE ... ALTER COLUMN ... DROP EXPRESSION instead.")
		}
		return e
	}
	c.Default, c.Sequence = "", 0
	if x.Kind == sql.AlterDropDefault {
		return nil
	}
	if err := bindDefault(&sql.ColumnDef{Name: c.Name, Default: x.Default}, c.Type, a.options()); err != nil {
		return err
	}
	c.Default = a.d.defaultText(x.Default)
	return nil
}

// verify fails with what bad returns when the table, as the session sees it before the statement, has a row for which cond is true.
func (a *alteration) verify(cond string, bad func() error) error {
	if err := a.d.fence(a.old); err != nil {
		return err
	}
	found, err := a.d.any("SELECT 1 FROM " + qualified(a.old) + " WHERE " + cond + " LIMIT 1")
	if err != nil || !found {
		return err
	}
	return bad()
}

// any reports whether a query of the server's own has a row.
func (d *dispatch) any(text string) (bool, error) {
	stmts, err := sql.Parse(text)
	if err != nil {
		return false, err
	}
	p := &prepared{stmt: stmts[0]}
	if err := d.ss.plan(p); err != nil {
		return false, err
	}
	r, err := d.ss.queryOf(d.ctx, p, nil)
	if err != nil {
		return false, err
	}
	defer r.release()
	found := false
	r.query.Emit = func(c *types.Chunk) error {
		found = found || rowCount(c) > 0
		return nil
	}
	err = d.ss.srv.engine.Run(d.ctx, r.query)
	return found, err
}

func (a *alteration) addColumn(x *sql.AlterAction) error {
	d, def := a.d, x.Column
	if userColumn(a.o, def.Name) >= 0 {
		if x.IfNotExists {
			return d.ss.notice("NOTICE", pgerr.DuplicateColumn, "column %q of relation %q already exists, skipping", def.Name, a.o.Name)
		}
		return pgerr.Newf(pgerr.DuplicateColumn, "column %q of relation %q already exists", def.Name, a.o.Name)
	}
	_, serial := serialType(def.Type)
	switch {
	case def.Name == rowIDColumn:
		return pgerr.Newf(pgerr.ReservedName, "column name %q is reserved", def.Name).At(def.Pos)
	case def.References != nil:
		return errForeignKey(def.References.Pos)
	case def.Type == nil:
		return pgerr.Newf(pgerr.SyntaxError, "column %q needs a type", def.Name).At(def.Pos)
	case len(a.o.Columns) >= maxColumns:
		return pgerr.Newf(pgerr.TooManyColumns, "tables can have at most %d columns", maxColumns)
	}
	col, err := d.newColumn(def, a.o)
	if err != nil {
		return err
	}
	if def.Default != nil {
		col.Default = d.defaultText(def.Default)
	}
	if def.Generated != nil {
		col.Generated = expressionText(def.Generated)
	}
	at := len(a.o.Columns)
	a.o.Columns = append(a.o.Columns, col)
	opts := a.options()
	if def.Default != nil {
		if err := bindDefault(def, col.Type, opts); err != nil {
			return err
		}
	}
	if def.Generated != nil {
		if err := d.bindGenerated(def, a.o, opts); err != nil {
			return err
		}
	}
	if err := a.missing(x, at, serial || def.Identity != ""); err != nil {
		return err
	}
	a.addSlot(at)
	if serial || def.Identity != "" {
		if err := d.ss.update(func(tx *catalog.Tx) error {
			_, err := d.ownSequence(tx, a.o, at, def.IdentityOptions)
			return err
		}); err != nil {
			return err
		}
	}
	for _, ck := range def.Checks {
		if err := d.addCheck(a.o, ck, len(a.o.Checks)); err != nil {
			return err
		}
		if err := bindCheck(ck.Check, a.o, opts); err != nil {
			return err
		}
		if err := a.checkOnlyNew(ck, at); err != nil {
			return err
		}
	}
	return nil
}

// addSlot gives a new column its place behind those that rows have.
func (a *alteration) addSlot(column int) {
	l := &catalog.Layout{}
	if a.o.Layout != nil {
		l.Base, l.Slots = a.o.Layout.Base, slices.Clone(a.o.Layout.Slots)
	} else {
		l.Base = column
		for i, c := range a.o.Columns[:column] {
			l.Slots = append(l.Slots, types.Slot{Type: c.Type, Column: i})
		}
	}
	l.Slots = append(l.Slots, types.Slot{Type: a.o.Columns[column].Type, Column: column})
	a.o.Layout = l
}

// missing computes the value that rows get which are older than the column.
func (a *alteration) missing(x *sql.AlterAction, at int, sequence bool) error {
	c := &a.o.Columns[at]
	empty := func() (bool, error) {
		if err := a.d.fence(a.old); err != nil {
			return false, err
		}
		found, err := a.d.any("SELECT 1 FROM " + qualified(a.old) + " LIMIT 1")
		return !found, err
	}
	if sequence || c.Generated != "" || c.Default != "" && a.moving(x.Column.Default) {
		ok, err := empty()
		if err != nil || ok {
			return err
		}
		return pgerr.Newf(pgerr.FeatureNotSupported, "column %q cannot be added to a table with rows: each row would get a value of its own", c.Name).At(x.Pos).
			WithHint("Add the column without a default, fill it with UPDATE, then ALTER COLUMN .. SET DEFAULT.")
	}
	d := types.NullDatum(c.Type)
	if c.Default != "" {
		e, err := planner.BindDefinition(x.Column.Default, nil, c.Name, c.Type, "DEFAULT expression", a.options())
		if err != nil {
			return err
		}
		if d, err = expr.EvalConst(e, a.d.ss.env(nil), a.d.ss.srv.registry); err != nil {
			return err
		}
	}
	if !d.Null {
		s := string(d.AppendText(nil, types.DefaultFormat()))
		c.Missing = &s
		return nil
	}
	if c.NotNull {
		ok, err := empty()
		if err != nil || ok {
			return err
		}
		e := pgerr.Newf(pgerr.NotNullViolation, "column %q of relation %q contains null values", c.Name, a.o.Name)
		e.Schema, e.Table, e.Column = a.o.Schema, a.o.Name, c.Name
		return e
	}
	return nil
}

// moving reports whether a default differs from row to row.
func (a *alteration) moving(q *sql.Query) bool {
	e, err := planner.BindScalar(q, nil, a.options())
	if err != nil {
		return false // binding it as a default reports that
	}
	moving := false
	e.Walk(func(x *expr.Expr) bool {
		if x.Kind == expr.Call {
			f, ok := a.d.ss.srv.registry.ByID(x.Func)
			moving = moving || ok && f.Volatility == functions.Volatile
		}
		return !moving
	})
	return moving
}

// checkOnlyNew checks a constraint that came with a new column over the value that all rows have of it.
func (a *alteration) checkOnlyNew(ck sql.TableConstraint, at int) error {
	value := "NULL::" + a.o.Columns[at].Type.String()
	if m := a.o.Columns[at].Missing; m != nil {
		value = sql.QuoteLiteral(*m) + "::" + a.o.Columns[at].Type.String()
	}
	text := fmt.Sprintf("SELECT 1 FROM (SELECT *, %s AS %s FROM %s) AS %s WHERE NOT (%s) LIMIT 1", value, sql.QuoteIdent(a.o.Columns[at].Name), qualified(a.old),
		sql.QuoteIdent(a.o.Name), expressionText(ck.Check))
	if err := a.d.fence(a.old); err != nil {
		return err
	}
	found, err := a.d.any(text)
	if err != nil || !found {
		return err
	}
	return a.violated(a.o.Checks[len(a.o.Checks)-1].Name)
}

func (a *alteration) violated(name string) error {
	e := pgerr.Newf(pgerr.CheckViolation, "check constraint %q of relation %q is violated by some row", name, a.o.Name)
	e.Schema, e.Table, e.Constraint = a.o.Schema, a.o.Name, name
	return e
}

func (a *alteration) dropColumnNamed(x *sql.AlterAction) error {
	i := userColumn(a.o, x.Name.Name)
	if i < 0 {
		if x.IfExists {
			return a.notice("column %q of relation %q does not exist, skipping", x.Name.Name, a.o.Name)
		}
		return pgerr.Newf(pgerr.UndefinedColumn, "column %q of relation %q does not exist", x.Name.Name, a.o.Name)
	}
	if err := a.mayDropColumn(i, x.Pos); err != nil {
		return err
	}
	return a.d.dropThings([]thing{{kind: thingColumn, o: a.old, at: i}}, x.Cascade)
}

func (a *alteration) mayDropColumn(i, pos int) error {
	if slices.Contains(a.o.Key, i) {
		return pgerr.Newf(pgerr.FeatureNotSupported, "column %q cannot be dropped: it is in the primary key, by which rows are stored", a.o.Columns[i].Name).At(pos)
	}
	return nil
}

// dropColumn takes a column out of the table, and what belongs to it.
func (a *alteration) dropColumn(i int) {
	snap := a.d.ss.snapshot()
	for _, q := range snap.OwnedSequences(a.o.ID) {
		if q.Sequence.OwnerColumn == i {
			a.drop = append(a.drop, q)
		}
	}
	for _, index := range snap.IndexesOf(a.o.ID) {
		if a.indexDepends(index, i) {
			a.drop = append(a.drop, index)
		}
	}
	a.o.Checks = slices.DeleteFunc(a.o.Checks, func(c catalog.Check) bool { return a.names(c.Text, i) })
	forget(a.o, i)
}

// indexDepends reports whether an index has anything to do with a column.
func (a *alteration) indexDepends(index *catalog.Object, column int) bool {
	return indexUses(index, column) || a.names(index.Index.Where, column) ||
		slices.ContainsFunc(index.Index.Keys, func(k catalog.IndexKey) bool { return k.Column < 0 && a.names(k.Expr, column) })
}

// indexUses reports whether a column is a key of an index or included in it.
func indexUses(index *catalog.Object, column int) bool {
	return slices.Contains(index.Index.Include, column) || slices.ContainsFunc(index.Index.Keys, func(k catalog.IndexKey) bool { return k.Column == column })
}

// names reports whether an expression over the table's columns refers to column i.
func (a *alteration) names(text string, i int) bool {
	if text == "" {
		return false
	}
	q, err := parseExpression(text)
	if err != nil {
		return false
	}
	e, err := planner.BindScalar(q, a.o.Stored(), a.options())
	if err != nil {
		return false
	}
	used := map[int]bool{}
	e.Columns(used)
	return used[i]
}

func (a *alteration) addConstraint(x *sql.AlterAction) error {
	d, tc := a.d, x.Constraint
	switch tc.Kind {
	case sql.ConstraintForeignKey:
		return errForeignKey(tc.Pos)
	case sql.ConstraintCheck:
	default:
		return d.addConstraintIndex(a.o, tc)
	}
	if err := d.addCheck(a.o, *tc, len(a.o.Checks)); err != nil {
		return err
	}
	if err := bindCheck(tc.Check, a.o, a.options()); err != nil {
		return err
	}
	ck := &a.o.Checks[len(a.o.Checks)-1]
	if ck.NotValid = tc.NotValid; ck.NotValid {
		return nil
	}
	return a.verify("NOT ("+ck.Text+")", func() error { return a.violated(ck.Name) })
}

// constraint drops or validates a CHECK constraint.
func (a *alteration) constraint(x *sql.AlterAction) error {
	i := slices.IndexFunc(a.o.Checks, func(c catalog.Check) bool { return c.Name == x.Name.Name })
	switch {
	case i >= 0 && x.Kind == sql.AlterDropConstraint:
		a.o.Checks = slices.Delete(a.o.Checks, i, i+1)
		return nil
	case i >= 0:
		ck := &a.o.Checks[i]
		ck.NotValid = false
		return a.verify("NOT ("+ck.Text+")", func() error { return a.violated(ck.Name) })
	case x.Kind == sql.AlterDropConstraint && a.o.Constraint == x.Name.Name:
		return pgerr.Newf(pgerr.FeatureNotSupported, "the primary key of a table cannot be dropped: rows are stored by it").At(x.Pos)
	}
	if x.Kind == sql.AlterDropConstraint {
		if found, err := a.d.dropConstraintIndex(a.o, x.Name.Name); found || err != nil {
			return err
		}
	}
	if x.IfExists {
		return a.notice("constraint %q of relation %q does not exist, skipping", x.Name.Name, a.o.Name)
	}
	return pgerr.Newf(pgerr.UndefinedObject, "constraint %q of relation %q does not exist", x.Name.Name, a.o.Name)
}

func (a *alteration) identity(x *sql.AlterAction, i int) error {
	d, c := a.d, &a.o.Columns[i]
	if x.Kind == sql.AlterAddIdentity {
		switch {
		case c.Identity != "":
			return pgerr.Newf(pgerr.ObjectNotInPrerequisiteState, "column %q of relation %q is already an identity column", c.Name, a.o.Name)
		case c.Default != "" || c.Sequence != 0:
			return pgerr.Newf(pgerr.ObjectNotInPrerequisiteState, "column %q of relation %q already has a default value", c.Name, a.o.Name)
		case !c.NotNull:
			return pgerr.Newf(pgerr.ObjectNotInPrerequisiteState, "column %q of relation %q must be declared NOT NULL before identity can be added", c.Name, a.o.Name)
		case c.Type.OID != types.OIDInt2 && c.Type.OID != types.OIDInt4 && c.Type.OID != types.OIDInt8:
			return pgerr.Newf(pgerr.InvalidParameterValue, "identity column type must be smallint, integer, or bigint")
		}
		c.Identity = x.Identity
		return d.ss.update(func(tx *catalog.Tx) error {
			_, err := d.ownSequence(tx, a.o, i, x.Sequence)
			return err
		})
	}
	if c.Identity == "" {
		if x.IfExists {
			return a.notice("column %q of relation %q is not an identity column, skipping", c.Name, a.o.Name)
		}
		return pgerr.Newf(pgerr.ObjectNotInPrerequisiteState, "column %q of relation %q is not an identity column", c.Name, a.o.Name)
	}
	q, ok := d.ss.snapshot().Get(c.Sequence)
	if !ok {
		return pgerr.Newf(pgerr.InternalError, "the sequence of column %q is missing", c.Name)
	}
	if x.Kind == sql.AlterDropIdentity {
		c.Identity, c.Sequence = "", 0
		a.drop = append(a.drop, q)
		return nil
	}
	if x.Identity != "" {
		c.Identity = x.Identity
	}
	if len(x.Sequence) == 0 {
		return nil
	}
	return d.changeSequence(q, x.Sequence, true)
}

// columnType changes a type where the stored values of the old type are values of the new one.
func (a *alteration) columnType(x *sql.AlterAction, i int) error {
	c := &a.o.Columns[i]
	t, err := a.d.columnType(x.Type)
	if err != nil {
		return err
	}
	if t == c.Type && x.Using == nil {
		return nil
	}
	if x.Using != nil || !widens(c.Type, t) {
		return pgerr.Newf(pgerr.FeatureNotSupported, "the type of column %q cannot be changed from %s to %s", c.Name, c.Type, t).At(x.Pos).
			WithHint("Types can be widened: integers to larger ones, varchar to longer ones or to text, numeric(p,s) to numeric. Otherwise add a column, fill it with UPDATE, drop the old one and rename.")
	}
	snap := a.d.ss.snapshot()
	for _, index := range snap.IndexesOf(a.o.ID) {
		if a.indexDepends(index, i) {
			a.rebuild = append(a.rebuild, index)
		}
	}
	for k := range a.o.Columns {
		if g := &a.o.Columns[k]; g.Generated != "" && a.names(g.Generated, i) {
			return pgerr.Newf(pgerr.FeatureNotSupported, "cannot alter type of a column used by a generated column").
				WithDetail("Column \"%s\" is used by generated column \"%s\".", c.Name, g.Name)
		}
	}
	probe := *a.o
	probe.Columns = slices.Clone(a.o.Columns)
	pc := &probe.Columns[i]
	pc.Name, pc.Hidden = "", true
	trial := snap.With(&probe)
	for _, v := range snap.Objects() {
		if (v.Kind == catalog.View || v.Kind == catalog.MaterializedView) && slices.Contains(v.DependsOn, a.o.ID) && a.d.viewStands(trial, v) != nil {
			return pgerr.Newf(pgerr.FeatureNotSupported, "cannot alter type of a column used by a view or rule").
				WithDetail("rule _RETURN on %s depends on column \"%s\"", a.d.describe(v), c.Name)
		}
	}
	c.Type = t
	if a.o.Layout == nil {
		l := &catalog.Layout{Base: len(a.o.Columns)}
		for k, col := range a.o.Columns {
			l.Slots = append(l.Slots, types.Slot{Type: col.Type, Column: k})
		}
		a.o.Layout = l
		return nil
	}
	l := &catalog.Layout{Base: a.o.Layout.Base, Slots: slices.Clone(a.o.Layout.Slots)}
	for k := range l.Slots {
		if l.Slots[k].Column == i {
			l.Slots[k].Type = t
		}
	}
	a.o.Layout = l
	return nil
}

// widens reports whether every stored value of one type is, byte for byte, one of the other.
func widens(from, to types.Type) bool {
	rank := func(t types.Type) int {
		switch t.OID {
		case types.OIDInt2:
			return 1
		case types.OIDInt4:
			return 2
		case types.OIDInt8:
			return 3
		}
		return 0
	}
	text := func(t types.Type) bool { return t.OID == types.OIDText || t.OID == types.OIDVarchar }
	switch {
	case rank(from) > 0 && rank(to) > 0:
		return rank(from) <= rank(to)
	case text(from) && text(to):
		return to.Mod < 0 || from.Mod >= 0 && from.Mod <= to.Mod
	case from.OID == types.OIDNumeric && to.OID == types.OIDNumeric:
		return to.Mod < 0
	}
	return false
}

func errForeignKey(pos int) error {
	return pgerr.Newf(pgerr.FeatureNotSupported, "foreign keys are not supported").At(pos).
		WithHint("Leave the constraint out: rows of both tables are kept apart, and a join shows those without a partner.")
}
