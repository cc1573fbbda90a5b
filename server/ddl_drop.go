package server

import (
	"context"
	"errors"
	"slices"
	"strings"

	"github.com/streamdb/streamdb/catalog"
	"github.com/streamdb/streamdb/exec"
	"github.com/streamdb/streamdb/internal/pgerr"
	"github.com/streamdb/streamdb/sql"
)

func (d *dispatch) createSchema(st *sql.CreateSchema) error {
	unlock, err := d.lockSchema()
	if err != nil {
		return err
	}
	defer unlock()
	name, owner := st.Name.Name, d.ss.role()
	if st.Authorization != nil {
		if owner, err = d.ss.findRole(*st.Authorization); err != nil {
			return err
		}
		if !d.ss.snapshot().IsMember(d.ss.role(), owner) {
			return denied("must be member of role %q", roleName(d.ss.snapshot(), owner))
		}
		if st.Authorization.Special != "" && name == st.Authorization.Name {
			name = roleName(d.ss.snapshot(), owner)
		}
	}
	err = d.ss.update(func(tx *catalog.Tx) error {
		tx.SetCreator(storedOwner(owner))
		return tx.AddNamespace(name)
	})
	if st.IfNotExists && pgerr.CodeOf(err) == pgerr.DuplicateSchema {
		if err := d.ss.notice("NOTICE", pgerr.DuplicateSchema, "schema %q already exists, skipping", name); err != nil {
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
	sql.KindIndex: "DROP INDEX", sql.KindSequence: "DROP SEQUENCE", sql.KindSink: "DROP SINK",
}

var dropKinds = map[sql.ObjectKind]catalog.Kind{
	sql.KindTable: catalog.Table, sql.KindView: catalog.View, sql.KindMaterializedView: catalog.MaterializedView, sql.KindSource: catalog.Source,
	sql.KindIndex: catalog.Index, sql.KindSequence: catalog.Sequence, sql.KindSink: catalog.Sink,
}

func (d *dispatch) drop(st *sql.Drop) error {
	if st.Kind == sql.KindType {
		return d.dropType(st)
	}
	tag, ok := dropTags[st.Kind]
	if !ok {
		return pgerr.Newf(pgerr.FeatureNotSupported, "DROP %s is not supported", strings.ToUpper(string(st.Kind))).At(st.Start)
	}
	if err := d.beginSchema(); err != nil {
		return err
	}
	snap := d.ss.snapshot()
	var targets []thing
	for _, n := range st.Names {
		if st.Kind == sql.KindSchema {
			space, ok := snap.Namespace(n.Name)
			if ok && !catalog.IsUserID(uint64(space.OID)) {
				return pgerr.Newf(pgerr.DependentObjectsStillExist, "cannot drop schema %s because it is required by the database system", n.Name)
			}
			if !ok {
				if !st.IfExists {
					return pgerr.Newf(pgerr.InvalidSchemaName, "schema %q does not exist", n.Name)
				}
				if err := d.ss.notice("NOTICE", pgerr.SuccessfulCompletion, "schema %q does not exist, skipping", n.Name); err != nil {
					return err
				}
				continue
			}
			targets = append(targets, thing{kind: thingSchema, schema: space})
			continue
		}
		if _, ok := d.ss.resolve(n); !ok && st.Kind != sql.KindIndex {
			if err := notMine(n); err != nil {
				return err
			}
		}
		if _, ok := snap.Namespace(n.Schema); !ok && n.Schema != "" && (n.Schema != catalog.TemporaryAlias || d.ss.vars.temporary == "") {
			if !st.IfExists {
				return pgerr.Newf(pgerr.InvalidSchemaName, "schema %q does not exist", n.Schema)
			}
			if err := d.ss.notice("NOTICE", pgerr.SuccessfulCompletion, "schema %q does not exist, skipping", n.Schema); err != nil {
				return err
			}
			continue
		}
		o, ok := d.ss.resolve(n)
		if table, primary := d.ss.primaryIndexNamed(n); !ok && primary && st.Kind == sql.KindIndex {
			return requiredBy(n.Name, n.Name, table)
		}
		if !ok {
			if !st.IfExists {
				code := pgerr.UndefinedTable
				if st.Kind == sql.KindIndex {
					code = pgerr.UndefinedObject
				}
				return pgerr.Newf(code, "%s %q does not exist", st.Kind, n.Name)
			}
			if err := d.ss.notice("NOTICE", pgerr.SuccessfulCompletion, "%s %q does not exist, skipping", st.Kind, n.Name); err != nil {
				return err
			}
			continue
		}
		if o.Kind != dropKinds[st.Kind] {
			return pgerr.Newf(pgerr.WrongObjectType, "%q is not %s %s", n.Name, article(string(st.Kind)), st.Kind).WithHint("Use DROP %s to remove %s %s.", strings.ToUpper(string(o.Kind)), article(string(o.Kind)), o.Kind)
		}
		if o.Kind == catalog.Index {
			if err := d.mayDropIndex(o); err != nil {
				return err
			}
		}
		targets = append(targets, thing{o: o})
	}
	if err := d.dropThings(targets, st.Cascade); err != nil {
		return err
	}
	return d.complete(tag)
}

// dropObjects removes objects from the catalog, then stops what they ran. Dependents come first.
func (d *dispatch) dropObjects(objs []*catalog.Object) error {
	srv := d.ss.srv
	if len(objs) == 0 {
		return nil
	}
	for _, o := range objs {
		if o.Kind == catalog.Table {
			for _, q := range d.ss.snapshot().OwnedSequences(o.ID) {
				if !slices.ContainsFunc(objs, func(x *catalog.Object) bool { return x.ID == q.ID }) {
					objs = append(objs, q)
				}
			}
		}
	}
	if err := d.indexesAreFree(objs); err != nil {
		return err
	}
	if err := d.ss.update(func(tx *catalog.Tx) error {
		for _, o := range objs {
			tx.Remove(o.ID)
			for _, f := range tx.Snapshot().Functions() {
				if f.RowOf == o.ID || slices.Contains(f.DependsOn, o.ID) {
					tx.RemoveFunction(f.OID)
				}
			}
		}
		return nil
	}); err != nil {
		return err
	}
	return d.atCommit(func(ctx context.Context) error {
		var err error
		for _, o := range objs {
			switch o.Kind {
			case catalog.MaterializedView, catalog.Sink:
				err = errors.Join(err, srv.closeJob(o.JobID()))
			case catalog.Index:
				if o.Plan != nil {
					err = errors.Join(err, srv.closeJob(o.JobID()))
				} else {
					err = errors.Join(err, srv.engine.DropIndex(ctx, o.Index.Table, o.ID))
				}
			case catalog.Table:
				err = errors.Join(err, srv.closeTable(ctx, o.ID))
			case catalog.Sequence:
				err = errors.Join(err, srv.dropSequence(ctx, o.ID))
			}
		}
		return err
	})
}

// closeJob ends a job whose view is no more, or has another one.
func (s *Server) closeJob(id uint64) error {
	s.coord.Dropping(id)
	err := s.engine.DropJob(id)
	s.coord.Drop(id)
	return err
}

// closeTable ends the runtime of a table that is no more.
func (s *Server) closeTable(ctx context.Context, id uint64) error {
	err := s.engine.DropTable(ctx, id)
	s.tables.Delete(id)
	return err
}

// waitFor returns the jobs that a statement names, all of them without a name.
func (d *dispatch) jobsNamed(n *sql.Name) ([]*exec.Job, error) {
	if n == nil {
		return slices.DeleteFunc(d.ss.srv.engine.Jobs(), (*exec.Job).Hidden), nil
	}
	o, ok := d.ss.resolve(*n)
	if !ok {
		return nil, undefinedRelation(*n)
	}
	j, ok := d.ss.srv.engine.Job(o.ID)
	if !ok {
		return nil, pgerr.Newf(pgerr.WrongObjectType, "%q is not a materialized view or a sink", n.Name).At(n.Pos).WithHint("streamdb.jobs lists what runs.")
	}
	return []*exec.Job{j}, nil
}

// describe names an object in messages: with its schema where the search path does not find it.
func (d *dispatch) describe(o *catalog.Object) string {
	name := sql.QuoteIdent(o.Name)
	if found, ok := d.ss.resolve(sql.Name{Name: o.Name}); !ok || found.ID != o.ID {
		name = qualified(o)
	}
	return string(o.Kind) + " " + name
}

func article(noun string) string {
	if strings.ContainsRune("aeiou", rune(noun[0])) {
		return "an"
	}
	return "a"
}
