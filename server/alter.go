package server

import (
	"context"
	"slices"
	"strings"

	"github.com/streamdb/streamdb/catalog"
	"github.com/streamdb/streamdb/checkpoint"
	"github.com/streamdb/streamdb/internal/pgerr"
	"github.com/streamdb/streamdb/sql"
)

// alterDatabase refuses what cannot be changed about a database, which is anything but its owner and its settings.
func alterDatabase(st *sql.AlterObject) error {
	if st.Name.Name != databaseName {
		return pgerr.Newf(pgerr.InvalidCatalogName, "database %q does not exist", st.Name.Name)
	}
	err := pgerr.Newf(pgerr.FeatureNotSupported, "this form of ALTER DATABASE is not supported")
	if len(st.Actions) == 0 {
		return err
	}
	return err.At(st.Actions[0].Pos)
}

// alterSystem runs ALTER SYSTEM.
func (d *dispatch) alterSystem(st *sql.AlterObject) error {
	if d.ss.tx.explicit {
		return pgerr.Newf(pgerr.ActiveSQLTransaction, "ALTER SYSTEM cannot run inside a transaction block")
	}
	for _, a := range st.Actions {
		if a.Kind == sql.AlterReset && len(a.Options) == 0 {
			if err := d.ss.srv.alterSystem(nil, "", true); err != nil {
				return err
			}
		}
		for _, o := range a.Options {
			s, err := d.ss.srv.settings.table.find(o.Name)
			if err == nil {
				err = d.ss.srv.alterSystem(s, o.Value, a.Kind == sql.AlterReset)
			}
			if err != nil {
				return atPos(err, o.Pos)
			}
			if err := d.ss.tellDeprecated(o.Name); err != nil {
				return err
			}
			if kept := d.ss.srv.keepExactlyOnce(d.ss.snapshot()); s.name == checkpoint.SettingMode && kept != nil {
				d.tell([]*pgerr.Error{noteKept(kept...)})
			}
		}
	}
	return d.complete("ALTER SYSTEM")
}

// alter runs ALTER of everything but roles, types and the options of sequences. Several actions happen all or not at all.
func (d *dispatch) alter(st *sql.AlterObject) error {
	if st.Kind == sql.KindSystem {
		return d.alterSystem(st)
	}
	if st.Kind == sql.KindDatabase { // its owner was changed before
		return alterDatabase(st)
	}
	tag := "ALTER " + strings.ToUpper(string(st.Kind))
	if err := d.beginSchema(); err != nil {
		return err
	}
	if st.Kind == sql.KindSchema {
		if err := d.alterSchema(st); err != nil {
			return err
		}
		return d.complete(tag)
	}
	o, ok := d.ss.resolve(st.Name)
	if table, primary := d.ss.primaryIndexNamed(st.Name); !ok && primary && st.Kind == sql.KindIndex {
		for i := range st.Actions {
			a := st.Actions[i]
			if a.Kind != sql.AlterRename {
				return pgerr.Newf(pgerr.FeatureNotSupported, "this form of ALTER INDEX is not supported").At(a.Pos)
			}
			a.Name = sql.Ident{Name: table.Constraint}
			if err := d.renameConstraint(table, &a); err != nil {
				return err
			}
		}
		return d.complete(tag)
	}
	if !ok {
		if err := notMine(st.Name); err != nil {
			return err
		}
		if !st.IfExists {
			return atNowhere(undefinedRelation(st.Name))
		}
		if err := d.ss.notice("NOTICE", pgerr.SuccessfulCompletion, "relation %q does not exist, skipping", st.Name.Key()); err != nil {
			return err
		}
		return d.complete(tag)
	}
	if want, known := dropKinds[st.Kind]; known && o.Kind != want && st.Kind != sql.KindTable {
		return pgerr.Newf(pgerr.WrongObjectType, "%q is not %s %s", o.Name, article(string(st.Kind)), st.Kind)
	}
	actions := inPasses(st.Actions)
	for len(actions) > 0 {
		cur, ok := d.ss.snapshot().Get(o.ID)
		if !ok {
			return undefinedRelation(st.Name)
		}
		n := 1
		for n < len(actions) && o.Kind == catalog.Table && actions[0].Kind == sql.AlterColumnType && actions[n].Kind == sql.AlterColumnType {
			n++
		}
		var err error
		if n > 1 {
			err = d.alterTable(cur, actions[0], actions[1:n]...)
		} else {
			err = d.alterAction(st, actions[0], cur)
		}
		if err != nil {
			return err
		}
		actions = actions[n:]
	}
	return d.complete(tag)
}

// inPasses puts the actions of one statement in PostgreSQL's order: what goes, types, what comes, and constraints over all of that.
func inPasses(actions []sql.AlterAction) []*sql.AlterAction {
	pass := func(x *sql.AlterAction) int {
		switch x.Kind {
		case sql.AlterDropColumn, sql.AlterDropConstraint, sql.AlterDropNotNull, sql.AlterDropDefault, sql.AlterDropExpression, sql.AlterDropIdentity:
			return 0
		case sql.AlterColumnType:
			return 1
		case sql.AlterAddColumn:
			return 2
		case sql.AlterSetNotNull, sql.AlterSetIdentity:
			return 3
		case sql.AlterAddConstraint:
			if x.Constraint.Kind == sql.ConstraintCheck {
				return 5
			}
			return 4
		case sql.AlterSetDefault, sql.AlterAddIdentity:
			return 6
		}
		return 7
	}
	out := make([]*sql.AlterAction, len(actions))
	for i := range actions {
		out[i] = &actions[i]
	}
	slices.SortStableFunc(out, func(a, b *sql.AlterAction) int { return pass(a) - pass(b) })
	return out
}

// beginSchema locks the schema and makes the statement's changes a transaction: those that it makes before an error are undone.
func (d *dispatch) beginSchema() error {
	ss := d.ss
	if ss.tx.schema != nil {
		return nil
	}
	unlock, err := ss.srv.locks.exclusive(d.ctx, ss, lockTag{kind: lockSchema})
	if err != nil {
		return err
	}
	ss.tx.schema = &schemaTx{private: ss.srv.catalog.Begin(), unlock: unlock}
	return nil
}

func (d *dispatch) alterAction(st *sql.AlterObject, x *sql.AlterAction, o *catalog.Object) error {
	switch x.Kind {
	case sql.AlterRename:
		return d.rename(o, o.Schema, x.NewName.Name)
	case sql.AlterSetSchema:
		return d.setSchema(o, x)
	case sql.AlterRenameColumn:
		return d.renameColumn(o, x)
	case sql.AlterRenameConstraint:
		return d.renameConstraint(o, x)
	case sql.AlterOwner:
		return nil
	}
	if o.Kind == catalog.Table && (x.Kind == sql.AlterSetOptions || x.Kind == sql.AlterReset) {
		return d.alterTableOptions(o, x)
	}
	if o.Kind == catalog.Index {
		switch x.Kind {
		case sql.AlterSetOptions:
			return storageParameters(o.Kind, x.Options)
		case sql.AlterReset:
			return nil
		}
	}
	if o.Kind == catalog.Table {
		return d.alterTable(o, x)
	}
	if o.Kind == catalog.Sink && (x.Kind == sql.AlterSetOptions || x.Kind == sql.AlterReset) {
		return d.alterSinkOptions(x, o)
	}
	if o.Kind == catalog.MaterializedView && (x.Kind == sql.AlterSetOptions || x.Kind == sql.AlterReset) {
		return d.alterViewOptions(x, o)
	}
	if (x.Kind == sql.AlterSetDefault || x.Kind == sql.AlterDropDefault) && o.Kind == catalog.View {
		return pgerr.Newf(pgerr.FeatureNotSupported, "defaults of a view's columns are not supported: views cannot be written to").At(x.Pos)
	}
	return pgerr.Newf(pgerr.WrongObjectType, "ALTER action cannot be performed on relation %q", o.Name).At(x.Pos).
		WithDetail("This operation is not supported for %s.", kindPlural(o.Kind))
}

// kindPlural names relations of a kind as PostgreSQL does.
func kindPlural(k catalog.Kind) string {
	switch k {
	case catalog.Index:
		return "indexes"
	case catalog.Source:
		return "foreign tables"
	}
	return string(k) + "s"
}

// addKeyColumn adds a column, and then its constraints: their indexes are filled from rows that have the column.
func (d *dispatch) addKeyColumn(x *sql.AlterAction, old *catalog.Object) error {
	def := *x.Column
	primary, unique := def.PrimaryKey, def.Unique
	def.PrimaryKey, def.Unique = false, false
	def.NotNull = def.NotNull || primary
	plain := *x
	plain.Column = &def
	exists := userColumn(old, def.Name) >= 0
	if _, has := d.ss.snapshot().PrimaryIndex(old.ID); primary && !exists && (has || old.Constraint != "") {
		return pgerr.Newf(pgerr.InvalidTableDefinition, "multiple primary keys for table %q are not allowed", old.Name).At(def.Pos)
	}
	if err := d.alterTable(old, &plain); err != nil || exists {
		return err
	}
	var keys []sql.TableConstraint
	if primary {
		keys = append(keys, sql.TableConstraint{Kind: sql.ConstraintPrimaryKey, Name: def.KeyName, Pos: def.Pos})
	}
	if unique {
		tc := def.UniqueAs
		tc.Kind = sql.ConstraintUnique
		keys = append(keys, tc)
	}
	for i := range keys {
		keys[i].Columns = []sql.Ident{{Name: def.Name, Pos: def.Pos}}
		cur, ok := d.ss.snapshot().Get(old.ID)
		if !ok {
			return pgerr.Newf(pgerr.InternalError, "table %q is gone", old.Name)
		}
		if err := d.alterTable(cur, &sql.AlterAction{Kind: sql.AlterAddConstraint, Constraint: &keys[i], Pos: x.Pos}); err != nil {
			return err
		}
	}
	return nil
}

// changeNames stores a changed object after the views over it were made to follow, which is the case when they mean the same as before.
func (d *dispatch) changeNames(o *catalog.Object, from, to string) error {
	before := d.ss.snapshot()
	return d.ss.update(func(tx *catalog.Tx) error {
		if err := tx.Replace(o); err != nil {
			return err
		}
		return d.viewsFollow(tx, before, []uint64{o.ID}, from, to, false)
	})
}

func (d *dispatch) rename(o *catalog.Object, schema, name string) error {
	if d.ss.snapshot().RelationNamed(schema, name) {
		return pgerr.Newf(pgerr.DuplicateTable, "relation %q already exists", name)
	}
	c := *o
	c.Name, c.Schema = name, schema
	if err := d.changeNames(&c, o.Name, name); err != nil || o.Kind != catalog.Index || o.Plan != nil {
		return err
	}
	engine := d.ss.srv.engine
	d.atRollback(func(ctx context.Context) error { return engine.RenameIndex(ctx, o.Index.Table, o.ID, o.Name) })
	return engine.RenameIndex(context.WithoutCancel(d.ctx), o.Index.Table, o.ID, name)
}

func (d *dispatch) setSchema(o *catalog.Object, x *sql.AlterAction) error {
	schema := x.NewName.Name
	if _, ok := d.ss.snapshot().Namespace(schema); !ok {
		return pgerr.Newf(pgerr.InvalidSchemaName, "schema %q does not exist", schema)
	}
	if catalog.IsSystemSchema(schema) {
		return pgerr.Newf(pgerr.InsufficientPrivilege, "permission denied for schema %s", schema)
	}
	if schema == o.Schema {
		return nil
	}
	if o.Kind == catalog.Sequence && o.Sequence.OwnerTable != 0 {
		return pgerr.Newf(pgerr.FeatureNotSupported, "cannot move an owned sequence into another schema").
			WithDetail("Sequence \"%s\" is linked to a table.", o.Name)
	}
	if d.ss.snapshot().RelationNamed(schema, o.Name) {
		return pgerr.Newf(pgerr.DuplicateTable, "relation %q already exists in schema %q", o.Name, schema)
	}
	before := d.ss.snapshot()
	return d.ss.update(func(tx *catalog.Tx) error {
		moved := append([]*catalog.Object{o}, before.IndexesOf(o.ID)...)
		moved = append(moved, before.OwnedSequences(o.ID)...)
		for _, m := range moved {
			c := *m
			c.Schema = schema
			if err := tx.Replace(&c); err != nil {
				return err
			}
		}
		return d.viewsFollow(tx, before, []uint64{o.ID}, o.Schema+"\x00"+o.Name, schema+"\x00"+o.Name, false)
	})
}

func (d *dispatch) alterSchema(st *sql.AlterObject) error {
	for i := range st.Actions {
		x := &st.Actions[i]
		switch x.Kind {
		case sql.AlterOwner:
			continue
		case sql.AlterRename:
		default:
			return pgerr.Newf(pgerr.FeatureNotSupported, "this form of ALTER SCHEMA is not supported").At(x.Pos).WithHint("RENAME TO is.")
		}
		old, name := st.Name.Name, x.NewName.Name
		before := d.ss.snapshot()
		n, ok := before.Namespace(old)
		if !ok {
			return pgerr.Newf(pgerr.InvalidSchemaName, "schema %q does not exist", old)
		}
		if !catalog.IsUserID(uint64(n.OID)) {
			return pgerr.Newf(pgerr.FeatureNotSupported, "schema %q cannot be renamed", old)
		}
		if err := d.ss.update(func(tx *catalog.Tx) error {
			if err := tx.RenameNamespace(old, name); err != nil {
				return err
			}
			var ids []uint64
			for _, o := range before.Objects() {
				if o.Schema == old {
					ids = append(ids, o.ID)
				}
			}
			return d.viewsFollow(tx, before, ids, old, name, false)
		}); err != nil {
			return err
		}
	}
	return nil
}

func (d *dispatch) renameColumn(o *catalog.Object, x *sql.AlterAction) error {
	i := userColumn(o, x.Name.Name)
	if i < 0 {
		return pgerr.Newf(pgerr.UndefinedColumn, "column %q does not exist", x.Name.Name)
	}
	if userColumn(o, x.NewName.Name) >= 0 || x.NewName.Name == rowIDColumn {
		return pgerr.Newf(pgerr.DuplicateColumn, "column %q of relation %q already exists", x.NewName.Name, o.Name)
	}
	if o.Kind == catalog.Source || o.Kind == catalog.Sequence || o.Kind == catalog.Index || o.Kind == catalog.Sink {
		return pgerr.Newf(pgerr.WrongObjectType, "cannot rename columns of relation %q", o.Name).WithDetail("This operation is not supported for %s.", kindPlural(o.Kind))
	}
	from, to := x.Name.Name, x.NewName.Name
	c := *o
	c.Columns, c.Checks = slices.Clone(o.Columns), slices.Clone(o.Checks)
	c.Columns[i].Name = to
	a := &alteration{d: d, old: o, o: &c}
	was := &alteration{d: d, old: o, o: o}
	var err error
	follow := func(text string) string {
		if err != nil || !was.names(text, i) {
			return text
		}
		out := renamedIn(text, from, to, false)
		if !a.names(out, i) {
			err = pgerr.Newf(pgerr.FeatureNotSupported, "column %q cannot be renamed: the expression %s names it", from, text).At(x.Pos)
		}
		return out
	}
	for k := range c.Columns {
		c.Columns[k].Generated = follow(c.Columns[k].Generated)
	}
	for k := range c.Checks {
		c.Checks[k].Text = follow(c.Checks[k].Text)
	}
	var indexes []*catalog.Object
	for _, index := range d.ss.snapshot().IndexesOf(o.ID) {
		n, def := *index, *index.Index
		def.Where, def.Keys = follow(def.Where), slices.Clone(def.Keys)
		for k := range def.Keys {
			if def.Keys[k].Column < 0 {
				def.Keys[k].Expr = follow(def.Keys[k].Expr)
			}
		}
		n.Index = &def
		indexes = append(indexes, &n)
	}
	if err != nil {
		return err
	}
	before := d.ss.snapshot()
	if o.Kind == catalog.View || o.Kind == catalog.MaterializedView {
		c.Query = d.namedText(before, &c, c.Query)
	}
	return d.ss.update(func(tx *catalog.Tx) error {
		for _, o := range append(indexes, &c) {
			if err := tx.Replace(o); err != nil {
				return err
			}
		}
		return d.viewsFollow(tx, before, []uint64{o.ID}, from, to, false)
	})
}

func (d *dispatch) renameConstraint(o *catalog.Object, x *sql.AlterAction) error {
	snap, name := d.ss.snapshot(), x.NewName.Name
	for _, index := range snap.IndexesOf(o.ID) {
		if index.Name == x.Name.Name && index.Index.Constraint {
			return d.rename(index, index.Schema, name)
		}
	}
	c := *o
	c.Checks = slices.Clone(o.Checks)
	if slices.ContainsFunc(c.Checks, func(k catalog.Check) bool { return k.Name == name }) || o.Constraint != "" && o.Constraint == name {
		return pgerr.Newf(pgerr.DuplicateObject, "constraint %q for relation %q already exists", name, o.Name)
	}
	switch i := slices.IndexFunc(c.Checks, func(k catalog.Check) bool { return k.Name == x.Name.Name }); {
	case i >= 0:
		c.Checks[i].Name = name
	case o.Constraint != "" && o.Constraint == x.Name.Name:
		if snap.RelationNamed(o.Schema, name) {
			return pgerr.Newf(pgerr.DuplicateTable, "relation %q already exists", name)
		}
		c.Constraint = name
	default:
		return pgerr.Newf(pgerr.UndefinedObject, "constraint %q for table %q does not exist", x.Name.Name, o.Name)
	}
	return d.ss.update(func(tx *catalog.Tx) error { return tx.Replace(&c) })
}
