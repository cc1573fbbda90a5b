package server

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strings"

	"github.com/streamdb/streamdb/catalog"
	"github.com/streamdb/streamdb/internal/pgerr"
	"github.com/streamdb/streamdb/planner"
	"github.com/streamdb/streamdb/planner/plan"
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
	l.Base, l.Slots, l.Generation = o.Layout.Base, o.Layout.Slots, o.Rewrites
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
	rows          *newRows // nil: the rows stay as they are
}

// alterTable runs actions of ALTER TABLE that are about columns or constraints: one, or several that change types at once.
func (d *dispatch) alterTable(old *catalog.Object, x *sql.AlterAction, more ...*sql.AlterAction) error {
	if x.Kind == sql.AlterAddColumn && (x.Column.Unique || x.Column.PrimaryKey) {
		return d.addKeyColumn(x, old)
	}
	c := *old
	c.Columns, c.Checks = slices.Clone(old.Columns), slices.Clone(old.Checks)
	a := &alteration{d: d, old: old, o: &c}
	if x.Kind == sql.AlterDropColumn {
		return a.dropColumnNamed(x)
	}
	for _, x := range append([]*sql.AlterAction{x}, more...) {
		if err := a.action(x); err != nil {
			return err
		}
	}
	if x.Kind == sql.AlterColumnType {
		if err := a.expressionsStand(); err != nil {
			return err
		}
	}
	if err := a.store(); err != nil {
		return err
	}
	return d.rebuildIndexes(a.rebuild, a.o)
}

// store makes the changed table the one of the catalog and of the engine.
func (a *alteration) store() error {
	d, srv := a.d, a.d.ss.srv
	if a.rows != nil {
		if err := a.rewrite(); err != nil {
			return err
		}
	} else if asksMore(a.old, a.o) {
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
	if err := d.dropObjects(a.drop); err != nil {
		return err
	}
	if a.rows != nil {
		return a.reindex()
	}
	if a.o.Layout == a.old.Layout {
		return nil
	}
	if r := d.ss.tx.rewritten[a.o.ID]; r != nil {
		was, err := layoutOf(a.old)
		if err != nil {
			return err
		}
		now, err := layoutOf(a.o)
		if err != nil {
			return err
		}
		d.atRollback(func(context.Context) error {
			r.rel.SetLayout(was)
			return nil
		})
		r.rel.SetLayout(now)
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
		if !v.HasQuery() {
			continue
		}
		if err := d.viewMeans(before, snap, v); err != nil {
			return pgerr.Newf(pgerr.DependentObjectsStillExist, "cannot alter %s because other objects depend on it", d.describe(changed)).
				WithDetail("%s would not mean the same any more: %v.", d.describe(v), err).WithHint("Drop the view first, and create it again afterwards.")
		}
	}
	return nil
}

// viewMeans checks that a view's query means in snap what it means in before.
func (d *dispatch) viewMeans(before, snap *catalog.Snapshot, v *catalog.Object) error {
	if err := d.viewStands(snap, v); err != nil {
		return err
	}
	// A new column may be one more to join on.
	was, err := d.planView(before, v)
	if err != nil {
		return err
	}
	is, err := d.planView(snap, v)
	if err != nil {
		return err
	}
	if !slices.EqualFunc(was.Natural, is.Natural, slices.Equal) {
		return errors.New("NATURAL JOIN would join on other columns")
	}
	return nil
}

// planView plans the stored query of a view.
func (d *dispatch) planView(snap *catalog.Snapshot, v *catalog.Object) (*planner.Planned, error) {
	q, opts, err := d.queryOfView(snap, v, v.Query)
	if err != nil {
		return nil, err
	}
	return planner.PlanQuery(q, opts)
}

// queryOfView parses the query of a view, stored or perhaps to be, and gives what it is planned with.
func (d *dispatch) queryOfView(snap *catalog.Snapshot, v *catalog.Object, text string) (*sql.Query, planner.Options, error) {
	opts := d.ss.planOptions(snap, nil)
	opts.SearchPath, opts.Catalog = v.SearchPath, d.ss.srv.planCatalog(snap, v.SearchPath)
	stmts, err := sql.Parse(text)
	if err != nil {
		return nil, opts, err
	}
	q, ok := stmts[0].(*sql.Query)
	if !ok || len(stmts) != 1 {
		return nil, opts, pgerr.Newf(pgerr.InternalError, "the definition of %q is no query", v.Name)
	}
	return q, opts, nil
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
		return a.verify(sql.QuoteIdent(c.Name)+" IS NULL", func() error { return a.containsNull(i) })
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
			return atNowhere(err)
		}
	}
	if def.Generated != nil {
		if err := d.bindGenerated(def, a.o, opts); err != nil {
			return atNowhere(err)
		}
	}
	own, err := a.missing(x, at, serial || def.Identity != "")
	if err != nil {
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
	if own {
		e, err := a.valueOf(at)
		if err != nil {
			return err
		}
		a.set(at, e)
	}
	for _, ck := range def.Checks {
		if err := d.addCheck(a.o, ck, len(a.o.Checks)); err != nil {
			return err
		}
		if err := bindCheck(ck.Check, a.o, opts); err != nil {
			return err
		}
		if own {
			continue // with the rows
		}
		if err := a.checkOnlyNew(ck, at); err != nil {
			return err
		}
	}
	return nil
}

// valueOf is the expression that gives a column its value when nobody else does.
func (a *alteration) valueOf(column int) (*expr.Expr, error) {
	c := &a.o.Columns[column]
	text, what, schema := c.Default, "DEFAULT expression", types.Schema(nil)
	switch {
	case c.Generated != "":
		text, what, schema = c.Generated, "column generation expression", a.o.Stored()
	case c.Sequence != 0:
		text = fmt.Sprintf("nextval('%d'::regclass)", c.Sequence)
	}
	q, err := parseExpression(text)
	if err != nil {
		return nil, err
	}
	return planner.BindDefinition(q, schema, c.Name, c.Type, what, a.options())
}

// slots returns the places of columns in rows, to be changed.
func (a *alteration) slots() *catalog.Layout {
	if a.o.Layout != nil {
		return &catalog.Layout{Base: a.o.Layout.Base, Slots: slices.Clone(a.o.Layout.Slots)}
	}
	l := &catalog.Layout{Base: len(a.old.Columns)}
	for i, c := range a.old.Columns {
		l.Slots = append(l.Slots, types.Slot{Type: c.Type, Column: i})
	}
	return l
}

// addSlot gives a new column its place behind those that rows have.
func (a *alteration) addSlot(column int) {
	l := a.slots()
	l.Slots = append(l.Slots, types.Slot{Type: a.o.Columns[column].Type, Column: column})
	a.o.Layout = l
}

// newSlot gives a column that got another type a new place; its old one is nobody's any more.
func (a *alteration) newSlot(column int) {
	l := a.slots()
	for i := range l.Slots {
		if l.Slots[i].Column == column {
			l.Slots[i].Column = -1
		}
	}
	a.o.Layout = l
	a.addSlot(column)
}

// missing computes the value that rows get which are older than the column; own reports that each row gets one of its own.
func (a *alteration) missing(x *sql.AlterAction, at int, sequence bool) (own bool, err error) {
	c := &a.o.Columns[at]
	empty := func() (bool, error) {
		if err := a.d.fence(a.old); err != nil {
			return false, err
		}
		found, err := a.d.any("SELECT 1 FROM " + qualified(a.old) + " LIMIT 1")
		return !found, err
	}
	if sequence || c.Generated != "" || c.Default != "" && (a.moving(x.Column.Default) || ofEnum(c.Type)) {
		none, err := empty()
		return !none, err
	}
	d := types.NullDatum(c.Type)
	if c.Default != "" {
		e, err := planner.BindDefinition(x.Column.Default, nil, c.Name, c.Type, "DEFAULT expression", a.options())
		if err != nil {
			return false, err
		}
		if d, err = expr.EvalConst(e, a.d.ss.env(nil), a.d.ss.srv.registry); err != nil {
			return false, err
		}
	}
	if !d.Null {
		s := string(d.AppendText(nil, types.DefaultFormat()))
		c.Missing = &s
		return false, nil
	}
	if c.NotNull {
		ok, err := empty()
		if err != nil || ok {
			return false, err
		}
		return false, a.containsNull(at)
	}
	return false, nil
}

// ofEnum reports whether values of a type are labels, which the layout of rows cannot name: they depend on the catalogue.
func ofEnum(t types.Type) bool {
	if e, ok := t.Elem(); ok {
		t = e
	}
	return t.IsEnum()
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
	value := "NULL::" + a.d.typeName(a.o.Columns[at].Type)
	if m := a.o.Columns[at].Missing; m != nil {
		value = sql.QuoteLiteral(*m) + "::" + a.d.typeName(a.o.Columns[at].Type)
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
	return a.d.dropThings([]thing{{kind: thingColumn, o: a.old, at: i}}, x.Cascade)
}

// dropColumn takes a column out of the table, and what belongs to it.
func (a *alteration) dropColumn(i int) {
	if slices.Contains(a.o.Key, i) {
		a.numberRows()
	}
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
		return a.dropPrimaryKey(x)
	}
	if x.Kind == sql.AlterDropConstraint {
		if found, err := a.d.dropConstraintIndex(a.o, x.Name.Name, x.Cascade); found || err != nil {
			return err
		}
	}
	if x.IfExists {
		return a.notice("constraint %q of relation %q does not exist, skipping", x.Name.Name, a.o.Name)
	}
	return pgerr.Newf(pgerr.UndefinedObject, "constraint %q of relation %q does not exist", x.Name.Name, a.o.Name)
}

// dropPrimaryKey drops the primary key that the table was created with.
func (a *alteration) dropPrimaryKey(x *sql.AlterAction) error {
	d := a.d
	readers := readersOf(d.ss.snapshot(), a.o, a.o.Key) // rows that become equal would be one to them
	if len(readers) > 0 && !x.Cascade {
		name := "constraint " + sql.QuoteIdent(a.o.Constraint) + " on " + d.describe(a.o)
		var lines []string
		for _, v := range readers {
			lines = append(lines, d.describe(v)+" depends on "+name)
		}
		return pgerr.Newf(pgerr.DependentObjectsStillExist, "cannot drop %s because other objects depend on it", name).WithDetail("%s", strings.Join(lines, "\n")).
			WithHint("Use DROP ... CASCADE to drop the dependent objects too.")
	}
	var targets []thing
	for _, v := range readers {
		if err := a.notice("drop cascades to %s", d.describe(v)); err != nil {
			return err
		}
		targets = append(targets, thing{o: v})
	}
	if err := d.dropThings(targets, true); err != nil {
		return err
	}
	a.numberRows()
	return nil
}

// numberRows has rows stored by a number in place of the primary key.
func (a *alteration) numberRows() {
	at := len(a.o.Columns)
	a.o.Columns = append(a.o.Columns, catalog.Column{Name: rowIDColumn, Type: types.Int8, Hidden: true})
	a.addSlot(at)
	a.o.Key, a.o.Constraint, a.o.KeyComment, a.o.ConstraintComment = []int{at}, "", "", ""
	n := a.replaces()
	n.rowID, n.keyed = at, true
	n.columns = append(n.columns, at)
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

// columnType changes a type. Where the stored values of the old type are values of the new one the rows stay.
func (a *alteration) columnType(x *sql.AlterAction, i int) error {
	c := &a.o.Columns[i]
	t, err := a.d.columnType(x.Type)
	if err != nil {
		return atNowhere(err)
	}
	switch {
	case a.rows != nil && slices.Contains(a.rows.columns, i):
		return pgerr.Newf(pgerr.FeatureNotSupported, "cannot alter type of column %q twice", c.Name)
	case c.Generated != "" && x.Using != nil:
		return pgerr.Newf(pgerr.InvalidColumnDefinition, "cannot specify USING when altering type of generated column").WithDetail("Column \"%s\" is a generated column.", c.Name)
	case c.Identity != "" && t.OID != types.OIDInt2 && t.OID != types.OIDInt4 && t.OID != types.OIDInt8:
		return pgerr.Newf(pgerr.InvalidParameterValue, "identity column type must be smallint, integer, or bigint")
	}
	value, err := a.converted(x, i, t)
	if err != nil || t == c.Type && x.Using == nil {
		return err
	}
	stays := x.Using == nil && types.Widens(c.Type, t)
	for k := range a.o.Columns {
		if g := &a.o.Columns[k]; k != i && g.Generated != "" && a.names(g.Generated, i) {
			return pgerr.Newf(pgerr.FeatureNotSupported, "cannot alter type of a column used by a generated column").
				WithDetail("Column \"%s\" is used by generated column \"%s\".", c.Name, g.Name)
		}
	}
	if v := a.typeUser(i, !stays); v != nil {
		return pgerr.Newf(pgerr.FeatureNotSupported, "cannot alter type of a column used by a view or rule").
			WithDetail("rule _RETURN on %s depends on column \"%s\"", a.d.describe(v), c.Name)
	}
	if err := a.convertDefault(i, t); err != nil {
		return err
	}
	if c.Identity != "" {
		q, ok := a.d.ss.snapshot().Get(c.Sequence)
		if !ok {
			return pgerr.Newf(pgerr.InternalError, "the sequence of column %q is missing", c.Name)
		}
		if err := a.d.changeSequence(q, []sql.SequenceOption{{Name: "as", Type: x.Type}}, false); err != nil {
			return err
		}
	}
	if !stays {
		a.set(i, value)
		c.Type, c.Missing = t, nil
		a.newSlot(i)
		return nil
	}
	for _, index := range a.d.ss.snapshot().IndexesOf(a.o.ID) {
		if a.indexDepends(index, i) {
			a.rebuild = append(a.rebuild, index)
		}
	}
	c.Type = t
	l := a.slots()
	for k := range l.Slots {
		if l.Slots[k].Column == i {
			l.Slots[k].Type = t
		}
	}
	a.o.Layout = l
	return nil
}

// converted is the expression that makes the values of a column ones of another type.
func (a *alteration) converted(x *sql.AlterAction, i int, t types.Type) (*expr.Expr, error) {
	c := &a.o.Columns[i]
	name := a.d.typeName(types.T(t.OID))
	q := x.Using
	if q == nil {
		if c.Type.OID != t.OID && !a.d.ss.srv.registry.CanCast(c.Type, t, functions.Assignment) {
			e := pgerr.Newf(pgerr.DatatypeMismatch, "column \"%s\" cannot be cast automatically to type %s", c.Name, name)
			if c.Generated != "" {
				return nil, e
			}
			return nil, e.WithHint("You might need to specify \"USING %s::%s\".", sql.QuoteIdent(c.Name), a.d.fullTypeName(t))
		}
		var err error
		if q, err = parseExpression(sql.QuoteIdent(c.Name)); err != nil {
			return nil, err
		}
	}
	e, err := planner.BindDefinition(q, a.old.Stored(), c.Name, t, "transform expression", a.options())
	switch pe := pgerr.From(err); {
	case err == nil:
	case pe.Code == pgerr.InvalidTextRepresentation:
		return nil, atNowhere(err)
	case pe.Code == pgerr.DatatypeMismatch && strings.HasPrefix(pe.Message, "column \""+c.Name+"\" is of type "):
		return nil, pgerr.Newf(pgerr.DatatypeMismatch, "result of USING clause for column \"%s\" cannot be cast automatically to type %s", c.Name, name).
			WithHint("You might need to add an explicit cast.")
	}
	return e, err
}

// typeUser is a view that uses a column: its query names it or, with stored, what it holds was made with it.
func (a *alteration) typeUser(i int, stored bool) *catalog.Object {
	snap := a.d.ss.snapshot()
	probe := *a.o
	probe.Columns = slices.Clone(a.o.Columns)
	pc := &probe.Columns[i]
	pc.Name, pc.Hidden = "", true
	trial := snap.With(&probe)
	for _, v := range snap.Objects() {
		if v.HasQuery() && slices.Contains(v.DependsOn, a.o.ID) && a.d.viewStands(trial, v) != nil {
			return v
		}
	}
	if readers := readersOf(snap, a.o, []int{i}); stored && len(readers) > 0 {
		return readers[0]
	}
	return nil
}

// readersOf lists the materialized views whose jobs read one of a table's columns: it may be part of a key that their queries do not name.
func readersOf(snap *catalog.Snapshot, table *catalog.Object, columns []int) []*catalog.Object {
	return slices.DeleteFunc(snap.Dependents(table.ID), func(v *catalog.Object) bool {
		if v.Kind != catalog.MaterializedView && v.Kind != catalog.Sink {
			return true
		}
		var p plan.Plan
		if json.Unmarshal(v.Plan, &p) != nil {
			return false // nobody knows
		}
		reads := false
		for _, f := range p.Fragments {
			f.Root.Walk(func(n *plan.Node) {
				reads = reads || n.Kind == plan.KindScan && n.Scan.Relation == table.ID &&
					slices.ContainsFunc(n.Scan.Columns, func(c int) bool { return slices.Contains(columns, c) })
			})
		}
		return !reads
	})
}

// stringLiteral is a default that has no type of its own.
var stringLiteral = regexp.MustCompile(`^'([^']|'')*'$`)

// convertDefault has the default of a column that gets type t be one of it.
func (a *alteration) convertDefault(i int, t types.Type) error {
	c := &a.o.Columns[i]
	have, what, text, schema := types.Int8, "default", c.Default, types.Schema(nil)
	if c.Generated != "" {
		what, text, schema = "generation expression", c.Generated, a.old.Stored()
	}
	literal := stringLiteral.MatchString(text)
	switch {
	case c.Sequence != 0:
	case text == "" || strings.EqualFold(text, "null"):
		return nil
	case literal: // a value of the column's type since it was given
		have = c.Type
	default:
		q, err := parseExpression(text)
		if err != nil {
			return err
		}
		e, err := planner.BindScalar(q, schema, a.options())
		if err != nil {
			return err
		}
		have = e.Type
	}
	if have.OID != t.OID && !a.d.ss.srv.registry.CanCast(have, t, functions.Assignment) {
		return pgerr.Newf(pgerr.DatatypeMismatch, "%s for column \"%s\" cannot be cast automatically to type %s", what, c.Name, a.d.typeName(types.T(t.OID)))
	}
	if !literal || c.Generated != "" {
		return nil
	}
	// As it stands it may mean something else to the new type.
	value := func(text string, t types.Type) (string, error) {
		q, err := parseExpression(text)
		if err != nil {
			return "", err
		}
		e, err := planner.BindDefinition(q, nil, c.Name, t, "DEFAULT expression", a.options())
		if err != nil || !immutable(e, a.d.ss.srv.registry) {
			return "", err
		}
		d, err := expr.EvalConst(e, a.d.ss.env(nil), a.d.ss.srv.registry)
		if err != nil || d.Null {
			return "", err
		}
		return string(d.AppendText(nil, types.DefaultFormat())), nil
	}
	text = c.Default + "::" + a.d.fullTypeName(c.Type)
	want, err := value(text, t)
	if err != nil {
		return err
	}
	if is, err := value(c.Default, t); err != nil || is != want || want == "" {
		c.Default = text
	}
	return nil
}

// expressionsStand checks that the constraints and indexes of a table that has other types still mean something.
func (a *alteration) expressionsStand() error {
	for _, ck := range a.o.Checks {
		q, err := parseExpression(ck.Text)
		if err == nil {
			err = bindCheck(q, a.o, a.options())
		}
		if err != nil {
			return atNowhere(err)
		}
	}
	for _, x := range a.d.ss.snapshot().IndexesOf(a.o.ID) {
		spec, err := a.d.ss.srv.indexSpec(a.d.ss.snapshot(), x, a.o)
		if err != nil {
			return atNowhere(err)
		}
		for _, k := range spec.Keys {
			if err := ordered(k.Expr.Type); err != nil {
				return err
			}
		}
	}
	for _, k := range a.o.Key {
		if err := ordered(a.o.Columns[k].Type); err != nil {
			return err
		}
	}
	return nil
}

func errForeignKey(pos int) error {
	return pgerr.Newf(pgerr.FeatureNotSupported, "foreign keys are not supported").At(pos).
		WithHint("Leave the constraint out: rows of both tables are kept apart, and a join shows those without a partner.")
}
