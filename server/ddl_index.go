package server

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"sync"

	"github.com/streamdb/streamdb/catalog"
	"github.com/streamdb/streamdb/exec"
	"github.com/streamdb/streamdb/internal/pgerr"
	"github.com/streamdb/streamdb/planner"
	"github.com/streamdb/streamdb/sql"
	"github.com/streamdb/streamdb/sql/expr"
	"github.com/streamdb/streamdb/sql/functions"
	"github.com/streamdb/streamdb/types"
)

// Limits of indexes.
const (
	maxIndexKeys = 32 // columns of an index, as in PostgreSQL
	maxNameBytes = 63 // of an identifier
)

// indexOptions are the planner's options for expressions of indexes: they know no session.
func (s *Server) indexOptions(snap snapshotView, path []string) planner.Options {
	return planner.Options{Catalog: s.planCatalog(snap, path), Registry: s.registry, SearchPath: path, Database: databaseName}
}

// indexSpec is what the engine needs to know of an index.
func (s *Server) indexSpec(snap snapshotView, x, table *catalog.Object) (*exec.IndexSpec, error) {
	o := s.indexOptions(snap, x.SearchPath)
	c := s.planCatalog(snap, x.SearchPath)
	ri := planner.RelIndex{Where: c.expression(x.Index.Where)}
	spec := &exec.IndexSpec{ID: x.ID, Name: x.Name, Table: table.ID, Unique: x.Index.Unique, NullsNotDistinct: x.Index.NullsNotDistinct}
	for _, k := range x.Index.Keys {
		ri.Keys = append(ri.Keys, planner.RelIndexKey{Column: k.Column, Expr: c.expression(k.Expr)})
		label := catalog.IndexKeyText(k, table)
		spec.Keys = append(spec.Keys, exec.IndexKey{Label: label, Desc: k.Desc, NullsFirst: k.NullsFirst})
	}
	keys, where, err := planner.BindIndex(&ri, table.Stored(), o)
	if err != nil {
		return nil, err
	}
	for i, e := range keys {
		spec.Keys[i].Expr = e
	}
	spec.Where = where
	return spec, nil
}

// openIndex makes an index of a table known at a restart.
func (s *Server) openIndex(x *catalog.Object) error {
	snap := s.catalog.Snapshot()
	table, ok := snap.Get(x.Index.Table)
	if !ok || x.Plan != nil {
		return nil
	}
	spec, err := s.indexSpec(snap, x, table)
	if err != nil {
		return err
	}
	return s.engine.OpenIndex(spec, x.Index.Built)
}

// accessMethod checks USING of an index.
func accessMethod(st *sql.CreateIndex) (string, error) {
	switch st.Method {
	case "", "btree":
		return "", nil
	case "hash":
		switch {
		case st.Unique:
			return "", pgerr.Newf(pgerr.FeatureNotSupported, "access method \"hash\" does not support unique indexes")
		case len(st.Keys) > 1:
			return "", pgerr.Newf(pgerr.FeatureNotSupported, "access method \"hash\" does not support multicolumn indexes")
		case len(st.Include) > 0:
			return "", pgerr.Newf(pgerr.FeatureNotSupported, "access method \"hash\" does not support included columns")
		}
		return "hash", nil
	}
	return "", pgerr.Newf(pgerr.UndefinedObject, "access method %q does not exist", st.Method).WithHint("Indexes are of the methods btree and hash.")
}

// indexTable finds the relation that an index is made on.
func (d *dispatch) indexTable(n sql.Name) (*catalog.Object, error) {
	o, ok := d.ss.resolve(n)
	if !ok {
		return nil, unchangeable(n)
	}
	switch o.Kind {
	case catalog.Table, catalog.MaterializedView:
		return o, nil
	}
	return nil, pgerr.Newf(pgerr.WrongObjectType, "cannot create index on relation %q", o.Name).
		WithDetail("This operation is not supported for %s.", kindPlural(o.Kind))
}

func (d *dispatch) createIndex(st *sql.CreateIndex) error {
	if err := storageParameters(catalog.Index, st.Options); err != nil {
		return err
	}
	free, err := d.lockSchema()
	if err != nil {
		return err
	}
	unlock := sync.OnceFunc(free)
	defer unlock()
	table, err := d.indexTable(st.Table)
	if err != nil {
		return err
	}
	if st.Name.Name != "" {
		if done, err := d.exists(table.Schema, sql.Name{Name: st.Name.Name}, st.IfNotExists, "CREATE INDEX"); done || err != nil {
			return err
		}
	}
	if len(st.DistributeBy) > 0 {
		return pgerr.Newf(pgerr.FeatureNotSupported, "DISTRIBUTED BY of an index is not supported").At(st.DistributeBy[0].Pos)
	}
	x := &catalog.Object{
		Kind: catalog.Index, Schema: table.Schema, Name: st.Name.Name, SearchPath: d.ss.vars.storedPath(), Temporary: table.Temporary,
		Index: &catalog.IndexDef{Table: table.ID, Unique: st.Unique, NullsNotDistinct: st.NullsNotDistinct},
	}
	if x.Index.Method, err = accessMethod(st); err != nil {
		return err
	}
	names, err := d.indexKeys(st, x.Index, table)
	if err != nil {
		return err
	}
	if x.Name == "" {
		x.Name = freeName(d.ss.snapshot(), table.Schema, table.Name, names, "idx", nil)
	}
	if table.Kind == catalog.MaterializedView {
		return d.addViewIndex(x, table, unlock)
	}
	if err := d.addIndex(x, table); err != nil {
		return err
	}
	return d.complete("CREATE INDEX")
}

// indexKeys checks the keys of an index, its included columns and its predicate. It returns their names, from which that of the index is made.
func (d *dispatch) indexKeys(st *sql.CreateIndex, def *catalog.IndexDef, table *catalog.Object) ([]string, error) {
	if len(st.Keys)+len(st.Include) > maxIndexKeys {
		return nil, pgerr.Newf(pgerr.TooManyColumns, "cannot use more than %d columns in an index", maxIndexKeys)
	}
	var names []string
	opts := d.ss.planOptions(d.ss.snapshot(), nil)
	for i := range st.Keys {
		k := &st.Keys[i]
		key := catalog.IndexKey{Column: -1, Desc: k.Desc, NullsFirst: k.NullsFirst}
		var t types.Type
		if k.Expr == nil {
			if key.Column = userColumn(table, k.Column); key.Column < 0 {
				return nil, pgerr.Newf(pgerr.UndefinedColumn, "column %q does not exist", k.Column)
			}
			t = table.Columns[key.Column].Type
			names = append(names, k.Column)
		} else {
			e, err := planner.BindDefinitionExpr(k.Expr, table.Stored(), "index expressions", opts)
			if err != nil {
				return nil, err
			}
			if !immutable(e, opts.Registry) {
				return nil, pgerr.Newf(pgerr.InvalidObjectDefinition, "functions in index expression must be marked IMMUTABLE")
			}
			t, key.Type, key.Expr = e.Type, e.Type, expressionText(k.Expr)
			names = append(names, expressionName(k.Expr))
		}
		if err := ordered(t); err != nil {
			return nil, err
		}
		if k.OpClass != "" {
			if !strings.HasSuffix(k.OpClass, "_ops") || strings.HasPrefix(k.OpClass, "jsonb_") && k.OpClass != "jsonb_ops" || strings.Contains(k.OpClass, "trgm") {
				return nil, pgerr.Newf(pgerr.UndefinedObject, "operator class %q does not exist for access method \"btree\"", k.OpClass)
			}
			if strings.HasSuffix(k.OpClass, "_pattern_ops") {
				key.OpClass = k.OpClass
			}
		}
		def.Keys = append(def.Keys, key)
	}
	for _, n := range st.Include {
		c := userColumn(table, n.Name)
		if c < 0 {
			return nil, pgerr.Newf(pgerr.UndefinedColumn, "column %q does not exist", n.Name)
		}
		def.Include, names = append(def.Include, c), append(names, n.Name)
	}
	if st.Where != nil {
		e, err := planner.BindDefinitionExpr(st.Where, table.Stored(), "index predicates", opts)
		if err != nil {
			return nil, err
		}
		if e.Type.OID != types.OIDBool {
			return nil, pgerr.Newf(pgerr.DatatypeMismatch, "argument of WHERE must be type boolean, not type %s", e.Type).At(e.Pos)
		}
		if !immutable(e, opts.Registry) {
			return nil, pgerr.Newf(pgerr.InvalidObjectDefinition, "functions in index predicate must be marked IMMUTABLE")
		}
		def.Where = expressionText(st.Where)
	}
	return names, nil
}

// expressionName is what an expression gives to the name of an index over it.
func expressionName(q *sql.Query) string {
	name := sql.ColumnName(q.Expr())
	if name == "?column?" {
		name = "expr"
	}
	return name
}

// ordered refuses keys of types without an order.
func ordered(t types.Type) error {
	switch t.OID {
	case types.OIDJSON, types.OIDVoid, types.OIDAny:
		return pgerr.Newf(pgerr.UndefinedObject, "data type %s has no default operator class for access method \"btree\"", t).
			WithHint("You must specify an operator class for the index or define a default operator class for the data type.")
	}
	return nil
}

func immutable(e *expr.Expr, reg *functions.Registry) bool {
	ok := true
	e.Walk(func(x *expr.Expr) bool {
		if x.Kind == expr.Call {
			if f, found := reg.ByID(x.Func); found && f.Volatility != functions.Immutable {
				ok = false
			}
		}
		return ok
	})
	return ok
}

func userColumn(o *catalog.Object, name string) int {
	if i := o.Column(name); i >= 0 && !o.Columns[i].Hidden && !o.Columns[i].Dropped {
		return i
	}
	return -1
}

// freeName makes a name for an index as PostgreSQL does: the table's, those of the columns and the suffix, shortened, with a number where it is
// taken. taken may name more that is not in the catalog yet.
func freeName(snap snapshotView, schema, table string, columns []string, suffix string, taken func(string) bool) string {
	addition := ""
	for _, c := range columns {
		if addition != "" {
			addition += "_"
		}
		if addition += c; len(addition) >= maxNameBytes {
			break
		}
	}
	for n := 0; ; n++ {
		label := suffix
		if n > 0 {
			label += strconv.Itoa(n)
		}
		if name := objectName(table, addition, label); !snap.RelationNamed(schema, name) && (taken == nil || !taken(name)) {
			return name
		}
	}
}

// objectName joins name parts with underscores, shortening the longer of the first two until all fits into an identifier.
func objectName(first, second, label string) string {
	over := len(label) + 1
	if second != "" {
		over++
	}
	a, b := len(first), min(len(second), maxNameBytes)
	for a+b > maxNameBytes-over {
		if a > b {
			a--
		} else {
			b--
		}
	}
	name := clip(first, a)
	if second != "" {
		name += "_" + clip(second, b)
	}
	return name + "_" + label
}

// clip shortens s to at most n bytes without cutting a character.
func clip(s string, n int) string {
	for n < len(s) && n > 0 && s[n]&0xC0 == 0x80 {
		n--
	}
	return s[:min(n, len(s))]
}

// addIndex stores an index and fills it. Until it is full it is marked so, and does not outlive a crash.
func (d *dispatch) addIndex(x, table *catalog.Object) error {
	srv := d.ss.srv
	x.Creating = true
	if err := d.ss.update(func(tx *catalog.Tx) error {
		if tx.Snapshot().RelationNamed(x.Schema, x.Name) {
			return pgerr.Newf(pgerr.DuplicateTable, "relation %q already exists", x.Name)
		}
		x.ID = tx.NextID()
		return tx.Add(x)
	}); err != nil {
		return err
	}
	remove := func(err error) error {
		return errors.Join(err, d.ss.update(func(tx *catalog.Tx) error { tx.Remove(x.ID); return nil }))
	}
	spec, err := srv.indexSpec(d.ss.snapshot(), x, table)
	if err != nil {
		return remove(err)
	}
	built := uint64(neverBuilt) // of a table whose rows are all new the commit fills it
	if d.ss.tx.rewritten[table.ID] == nil {
		if built, err = srv.engine.CreateIndex(d.ctx, spec); err != nil {
			return remove(located(err, table))
		}
	}
	drop := func(ctx context.Context) error { return srv.engine.DropIndex(ctx, table.ID, x.ID) }
	if err := d.uncommitted(x, table, spec); err != nil {
		return remove(errors.Join(err, drop(context.WithoutCancel(d.ctx))))
	}
	c, def := *x, *x.Index
	def.Built = built
	c.Index, c.Creating = &def, false
	if err := d.ss.update(func(tx *catalog.Tx) error { return tx.Replace(&c) }); err != nil {
		return errors.Join(err, drop(context.WithoutCancel(d.ctx)))
	}
	d.atRollback(drop)
	return nil
}

// rebuildIndexes replaces indexes of a table, whose columns have other types now, by new ones.
func (d *dispatch) rebuildIndexes(old []*catalog.Object, table *catalog.Object) error {
	if err := d.dropObjects(old); err != nil {
		return err
	}
	for _, was := range old {
		c, def := *was, *was.Index
		def.Keys, def.Built = slices.Clone(def.Keys), 0
		c.Index = &def
		spec, err := d.ss.srv.indexSpec(d.ss.snapshot(), &c, table)
		if err != nil {
			return err
		}
		for i := range def.Keys {
			if def.Keys[i].Column < 0 {
				def.Keys[i].Type = spec.Keys[i].Expr.Type
			}
		}
		if err := d.addIndex(&c, table); err != nil {
			return err
		}
	}
	return nil
}

// uncommitted checks the transaction's own rows, which a new index gets with the commit, for equal keys.
func (d *dispatch) uncommitted(x, table *catalog.Object, spec *exec.IndexSpec) error {
	w := d.ss.tx.writes[table.ID]
	if w == nil || !spec.Unique {
		return nil
	}
	v := w.rel.Latest()
	if v != nil {
		defer v.Release()
	}
	if err := w.keep(d.ss, table); err != nil {
		return err
	}
	for _, u := range w.unique {
		if u.enc.Spec.ID != x.ID {
			continue
		}
		for i := range w.changes.Len() {
			ch := w.changes.At(i)
			if ch.New == nil {
				continue
			}
			_, taken, err := u.taken(w, v, ch.Key, ch.New)
			if err != nil {
				return err
			}
			if taken {
				return located(u.enc.Duplicate(ch.New, true), table)
			}
		}
	}
	return nil
}

// located adds the table to the error of a constraint.
func located(err error, table *catalog.Object) error {
	var e *pgerr.Error
	if errors.As(err, &e) && e.Constraint != "" {
		e.Schema, e.Table = table.Schema, table.Name
	}
	return err
}

// uniqueIndexes makes the indexes of the UNIQUE constraints of a definition; they are stored with the table.
func (d *dispatch) uniqueIndexes(def *sql.TableDef, o *catalog.Object) ([]*catalog.Object, error) {
	var all []sql.TableConstraint
	for i := range def.Columns {
		if def.Columns[i].Unique {
			all = append(all, def.Columns[i].UniqueAs)
		}
	}
	for _, tc := range def.Constraints {
		if tc.Kind == sql.ConstraintUnique {
			all = append(all, tc)
		}
	}
	var out []*catalog.Object
	for _, tc := range all {
		x, err := d.constraintIndex(tc, o, func(name string) bool {
			return name == o.Name || name == o.Constraint || slices.ContainsFunc(out, func(y *catalog.Object) bool { return y.Name == name })
		})
		if err != nil {
			return nil, err
		}
		// The same constraint twice is one.
		if !slices.ContainsFunc(out, func(y *catalog.Object) bool { return tc.Name == "" && slices.Equal(y.Index.Keys, x.Index.Keys) }) {
			out = append(out, x)
		}
	}
	return out, nil
}

// constraintIndex makes the index of a UNIQUE or PRIMARY KEY constraint of table o.
func (d *dispatch) constraintIndex(tc sql.TableConstraint, o *catalog.Object, taken func(string) bool) (*catalog.Object, error) {
	primary := tc.Kind == sql.ConstraintPrimaryKey
	what := "unique"
	if primary {
		what = "primary key"
	}
	x := &catalog.Object{
		Kind: catalog.Index, Schema: o.Schema, Name: tc.Name, SearchPath: d.ss.vars.storedPath(), Temporary: o.Temporary,
		Index: &catalog.IndexDef{Table: o.ID, Unique: true, Constraint: true, Primary: primary, NullsNotDistinct: tc.NullsNotDistinct},
	}
	var names []string
	for _, n := range tc.Columns {
		c := userColumn(o, n.Name)
		if c < 0 {
			return nil, pgerr.Newf(pgerr.UndefinedColumn, "column %q named in key does not exist", n.Name).At(tc.Pos)
		}
		if slices.ContainsFunc(x.Index.Keys, func(k catalog.IndexKey) bool { return k.Column == c }) {
			return nil, pgerr.Newf(pgerr.DuplicateColumn, "column %q appears twice in %s constraint", n.Name, what).At(tc.Pos)
		}
		if err := ordered(o.Columns[c].Type); err != nil {
			return nil, err
		}
		x.Index.Keys, names = append(x.Index.Keys, catalog.IndexKey{Column: c}), append(names, n.Name)
	}
	for _, n := range tc.Include {
		c := userColumn(o, n.Name)
		if c < 0 {
			return nil, pgerr.Newf(pgerr.UndefinedColumn, "column %q named in key does not exist", n.Name).At(tc.Pos)
		}
		x.Index.Include, names = append(x.Index.Include, c), append(names, n.Name)
	}
	if x.Name == "" {
		suffix := "key"
		if primary {
			names, suffix = nil, "pkey"
		}
		x.Name = freeName(d.ss.snapshot(), o.Schema, o.Name, names, suffix, taken)
	} else if taken != nil && taken(x.Name) || d.ss.snapshot().RelationNamed(o.Schema, x.Name) {
		return nil, pgerr.Newf(pgerr.DuplicateTable, "relation %q already exists", x.Name)
	}
	return x, nil
}

// addConstraintIndex is ALTER TABLE … ADD UNIQUE and ADD PRIMARY KEY. The caller holds the schema lock.
func (d *dispatch) addConstraintIndex(o *catalog.Object, tc *sql.TableConstraint) error {
	snap := d.ss.snapshot()
	primary := tc.Kind == sql.ConstraintPrimaryKey
	if primary {
		if _, ok := snap.PrimaryIndex(o.ID); ok || o.Constraint != "" {
			return pgerr.Newf(pgerr.InvalidTableDefinition, "multiple primary keys for table %q are not allowed", o.Name)
		}
	}
	if tc.Name != "" && hasConstraint(snap, o, tc.Name) {
		return pgerr.Newf(pgerr.DuplicateObject, "constraint %q for relation %q already exists", tc.Name, o.Name)
	}
	if tc.UsingIndex != nil {
		return d.promoteIndex(o, tc)
	}
	x, err := d.constraintIndex(*tc, o, nil)
	if err != nil {
		return err
	}
	if primary {
		if err := d.notNull(o, x.Index.Keys); err != nil {
			return err
		}
	}
	return d.addIndex(x, o)
}

// notNull makes the columns of a new primary key of o, which the caller stores, NOT NULL, after a look at the rows.
func (d *dispatch) notNull(o *catalog.Object, keys []catalog.IndexKey) error {
	for _, k := range keys {
		col := &o.Columns[k.Column]
		if col.NotNull {
			continue
		}
		if err := d.fence(o); err != nil {
			return err
		}
		has, err := d.any("SELECT 1 FROM " + qualified(o) + " WHERE " + sql.QuoteIdent(col.Name) + " IS NULL LIMIT 1")
		if err != nil {
			return err
		}
		if has {
			err := pgerr.Newf(pgerr.NotNullViolation, "column %q of relation %q contains null values", col.Name, o.Name)
			err.Schema, err.Table, err.Column = o.Schema, o.Name, col.Name
			return err
		}
		col.NotNull = true
	}
	return nil
}

// inPrimaryKey reports whether a column is in a primary key that was added to its table.
func (d *dispatch) inPrimaryKey(o *catalog.Object, column int) bool {
	x, ok := d.ss.snapshot().PrimaryIndex(o.ID)
	return ok && slices.ContainsFunc(x.Index.Keys, func(k catalog.IndexKey) bool { return k.Column == column })
}

func hasConstraint(snap snapshotView, o *catalog.Object, name string) bool {
	return o.Constraint == name || slices.ContainsFunc(o.Checks, func(c catalog.Check) bool { return c.Name == name }) ||
		slices.ContainsFunc(snap.IndexesOf(o.ID), func(x *catalog.Object) bool { return x.Index.Constraint && x.Name == name })
}

// promoteIndex is ADD CONSTRAINT … USING INDEX.
func (d *dispatch) promoteIndex(o *catalog.Object, tc *sql.TableConstraint) error {
	srv := d.ss.srv
	snap := d.ss.snapshot()
	x, ok := snap.Lookup(o.Schema, tc.UsingIndex.Name)
	if !ok || x.Kind != catalog.Index {
		return pgerr.Newf(pgerr.UndefinedObject, "index %q does not exist", tc.UsingIndex.Name).At(tc.UsingIndex.Pos)
	}
	primary := tc.Kind == sql.ConstraintPrimaryKey
	switch {
	case x.Index.Table != o.ID:
		return pgerr.Newf(pgerr.ObjectNotInPrerequisiteState, "index %q does not belong to table %q", x.Name, o.Name).At(tc.UsingIndex.Pos)
	case x.Index.Constraint:
		return pgerr.Newf(pgerr.ObjectNotInPrerequisiteState, "index %q is already associated with a constraint", x.Name).At(tc.UsingIndex.Pos)
	case !x.Index.Unique:
		return pgerr.Newf(pgerr.WrongObjectType, "%q is not a unique index", x.Name).
			WithDetail("Cannot create a primary key or unique constraint using such an index.").At(tc.UsingIndex.Pos)
	case x.Index.Where != "":
		return pgerr.Newf(pgerr.WrongObjectType, "%q is a partial index", x.Name).
			WithDetail("Cannot create a primary key or unique constraint using such an index.").At(tc.UsingIndex.Pos)
	}
	for i, k := range x.Index.Keys {
		if k.Column < 0 {
			return pgerr.Newf(pgerr.WrongObjectType, "index %q contains expressions", x.Name).
				WithDetail("Cannot create a primary key or unique constraint using such an index.").At(tc.UsingIndex.Pos)
		}
		if k.Desc || k.NullsFirst || k.OpClass != "" {
			return pgerr.Newf(pgerr.WrongObjectType, "index %q column number %d does not have default sorting behavior", x.Name, i+1).
				WithDetail("Cannot create a primary key or unique constraint using such an index.").At(tc.UsingIndex.Pos)
		}
	}
	if primary {
		if err := d.notNull(o, x.Index.Keys); err != nil {
			return err
		}
	}
	c, def := *x, *x.Index
	def.Constraint, def.Primary = true, primary
	c.Index = &def
	if tc.Name != "" && tc.Name != x.Name {
		if err := d.ss.notice("NOTICE", pgerr.SuccessfulCompletion, "ALTER TABLE / ADD CONSTRAINT USING INDEX will rename index %q to %q", x.Name, tc.Name); err != nil {
			return err
		}
		c.Name = tc.Name
	}
	if err := d.ss.update(func(tx *catalog.Tx) error { return tx.Replace(&c) }); err != nil {
		return err
	}
	d.atRollback(func(ctx context.Context) error { return srv.engine.RenameIndex(ctx, o.ID, x.ID, x.Name) })
	return srv.engine.RenameIndex(context.WithoutCancel(d.ctx), o.ID, x.ID, c.Name)
}

// dropConstraintIndex drops the UNIQUE constraint or later primary key called name, with cascade also the views that look up by it; found is false when
// there is none. The caller holds the schema lock.
func (d *dispatch) dropConstraintIndex(o *catalog.Object, name string, cascade bool) (found bool, err error) {
	for _, x := range d.ss.snapshot().IndexesOf(o.ID) {
		if x.Index.Constraint && x.Name == name {
			return true, d.dropThings([]thing{{o: x}}, cascade)
		}
	}
	return false, nil
}

// mayDropIndex refuses to drop the index of a constraint by itself.
func (d *dispatch) mayDropIndex(x *catalog.Object) error {
	if !x.Index.Constraint {
		return nil
	}
	table, _ := d.ss.snapshot().Get(x.Index.Table)
	return requiredBy(x.Name, x.Name, table)
}

func requiredBy(index, constraint string, table *catalog.Object) error {
	return pgerr.Newf(pgerr.DependentObjectsStillExist, "cannot drop index %s because constraint %s on table %s requires it",
		sql.QuoteIdent(index), sql.QuoteIdent(constraint), sql.QuoteIdent(table.Name)).
		WithHint("You can drop constraint %s on table %s instead.", sql.QuoteIdent(constraint), sql.QuoteIdent(table.Name))
}

// primaryIndexNamed finds the table whose primary key's index has the name.
func (ss *session) primaryIndexNamed(n sql.Name) (*catalog.Object, bool) {
	path := ss.vars.searchPath()
	if n.Schema != "" {
		path = []string{n.Schema}
	}
	for _, o := range ss.snapshot().Objects() {
		if o.Kind == catalog.Table && o.Constraint == n.Name && o.Constraint != "" && slices.Contains(path, o.Schema) {
			return o, true
		}
	}
	return nil, false
}

// reindex checks what REINDEX names: indexes are always in step with their tables.
func (d *dispatch) reindex(st *sql.Reindex) error {
	if st.Object != nil {
		o, ok := d.ss.resolve(*st.Object)
		switch {
		case !ok && st.Kind == sql.KindIndex:
			if _, ok := d.ss.primaryIndexNamed(*st.Object); !ok {
				return atNowhere(undefinedRelation(*st.Object))
			}
		case !ok:
			return atNowhere(undefinedRelation(*st.Object))
		case st.Kind == sql.KindIndex && o.Kind != catalog.Index:
			return pgerr.Newf(pgerr.WrongObjectType, "%q is not an index", o.Name)
		case st.Kind == sql.KindTable && o.Kind != catalog.Table && o.Kind != catalog.MaterializedView:
			return pgerr.Newf(pgerr.WrongObjectType, "%q is not a table or materialized view", o.Name)
		}
	}
	return d.complete("REINDEX")
}

// createIndexes opens the indexes of a new table.
func (s *Server) createIndexes(ctx context.Context, snap snapshotView, o *catalog.Object, indexes []*catalog.Object) error {
	for _, x := range indexes {
		spec, err := s.indexSpec(snap, x, o)
		if err != nil {
			return err
		}
		if _, err := s.engine.CreateIndex(ctx, spec); err != nil {
			return fmt.Errorf("index %s: %w", x.Name, err)
		}
	}
	return nil
}
