package server

import (
	"slices"

	"github.com/streamdb/streamdb/catalog"
	"github.com/streamdb/streamdb/internal/pgerr"
	"github.com/streamdb/streamdb/sql"
)

// comment runs COMMENT ON.
func (d *dispatch) comment(st *sql.CommentOn) error {
	unlock, err := d.lockSchema()
	if err != nil {
		return err
	}
	defer unlock()
	text := ""
	if st.Comment != nil {
		text = *st.Comment
	}
	snap, name := d.ss.snapshot(), st.Name.Name
	change := func(f func(tx *catalog.Tx) error) error {
		if err := d.ss.update(f); err != nil {
			return err
		}
		return d.complete("COMMENT")
	}
	switch st.Kind {
	case sql.KindType:
		return d.commentOnType(st)
	case sql.KindSchema:
		n, ok := snap.Namespace(name)
		if !ok {
			return pgerr.Newf(pgerr.InvalidSchemaName, "schema %q does not exist", name)
		}
		if !catalog.IsUserID(uint64(n.OID)) && n.OID != catalog.PublicOID {
			return pgerr.Newf(pgerr.FeatureNotSupported, "comments on system schemas are not supported")
		}
		n.Comment = text
		return change(func(tx *catalog.Tx) error { tx.PutNamespace(n); return nil })
	case sql.KindDatabase:
		if name != databaseName {
			if err := d.ss.notice("WARNING", pgerr.InvalidCatalogName, "database %q does not exist", name); err != nil {
				return err
			}
			return d.complete("COMMENT")
		}
		db := snap.Database()
		db.Comment = text
		return change(func(tx *catalog.Tx) error { tx.PutDatabase(db); return nil })
	case sql.KindRole:
		r, ok := snap.LookupRole(name)
		if !ok {
			return pgerr.Newf(pgerr.UndefinedObject, "role %q does not exist", name)
		}
		c := *r
		c.Comment = text
		return change(func(tx *catalog.Tx) error { return tx.PutRole(&c) })
	case sql.KindFunction:
		f, err := d.findFunction(snap, *st.Function)
		if err != nil {
			if pgerr.CodeOf(err) == pgerr.DependentObjectsStillExist {
				return pgerr.Newf(pgerr.FeatureNotSupported, "comments on built-in functions are not supported")
			}
			return err
		}
		c := *f
		c.Comment = text
		return change(func(tx *catalog.Tx) error { tx.PutFunction(&c); return nil })
	}
	if _, ok := snap.Namespace(st.Name.Schema); !ok && st.Name.Schema != "" {
		return pgerr.Newf(pgerr.InvalidSchemaName, "schema %q does not exist", st.Name.Schema)
	}
	o, ok := d.ss.resolve(st.Name)
	if !ok {
		if table, primary := d.ss.primaryIndexNamed(st.Name); primary && st.Kind == sql.KindIndex {
			c := *table
			c.KeyComment = text
			return change(func(tx *catalog.Tx) error { return tx.Replace(&c) })
		}
		return unchangeable(st.Name)
	}
	if want, ok := dropKinds[st.Kind]; ok && o.Kind != want {
		return pgerr.Newf(pgerr.WrongObjectType, "%q is not %s %s", name, article(string(st.Kind)), st.Kind)
	}
	c := *o
	switch st.Kind {
	case sql.KindColumn:
		if err := commentOnColumn(&c, st.Column, text); err != nil {
			return err
		}
	case sql.KindConstraint:
		changed, err := commentOnConstraint(snap, &c, st.Column, text)
		if err != nil {
			return err
		}
		c = *changed
	default:
		c.Comment = text
	}
	return change(func(tx *catalog.Tx) error { return tx.Replace(&c) })
}

func commentOnColumn(o *catalog.Object, column, text string) error {
	if kind := (map[catalog.Kind]string{catalog.Sequence: "sequences", catalog.Index: "indexes"})[o.Kind]; kind != "" {
		return pgerr.Newf(pgerr.WrongObjectType, "cannot set comment on relation %q", o.Name).WithDetail("This operation is not supported for %s.", kind)
	}
	i := userColumn(o, column)
	if i < 0 {
		return pgerr.Newf(pgerr.UndefinedColumn, "column %q of relation %q does not exist", column, o.Name)
	}
	o.Columns = slices.Clone(o.Columns)
	o.Columns[i].Comment = text
	return nil
}

// commentOnConstraint returns the object that keeps the comment: the table, or the constraint's index.
func commentOnConstraint(snap *catalog.Snapshot, o *catalog.Object, name, text string) (*catalog.Object, error) {
	for _, x := range snap.IndexesOf(o.ID) {
		if x.Index.Constraint && x.Name == name {
			c := *x
			c.ConstraintComment = text
			return &c, nil
		}
	}
	if o.Constraint != "" && o.Constraint == name {
		o.ConstraintComment = text
		return o, nil
	}
	i := slices.IndexFunc(o.Checks, func(c catalog.Check) bool { return c.Name == name })
	if i < 0 {
		return nil, pgerr.Newf(pgerr.UndefinedObject, "constraint %q for table %q does not exist", name, o.Name)
	}
	o.Checks = slices.Clone(o.Checks)
	o.Checks[i].Comment = text
	return o, nil
}
