package server

import (
	"slices"
	"strconv"
	"strings"

	"github.com/streamdb/streamdb/catalog"
	"github.com/streamdb/streamdb/connector"
	"github.com/streamdb/streamdb/internal/pgerr"
	"github.com/streamdb/streamdb/planner"
	"github.com/streamdb/streamdb/sql"
	"github.com/streamdb/streamdb/types"
)

// Privileges are checked when a statement is executed. A prepared statement remembers that it passed, until the catalog or the role changes.

// authorize checks the privileges that the plan of p takes.
func (ss *session) authorize(p *prepared) error {
	if p.passed {
		return nil
	}
	planned := &planner.Planned{}
	switch {
	case p.query != nil:
		planned = p.query
	case p.change != nil:
		planned = &p.change.Planned
	}
	for _, w := range planned.Before {
		part := w.Query
		if part == nil {
			part = &w.Change.Planned
		}
		if err := ss.mayAccess(part.Access); err != nil {
			return err
		}
	}
	if err := ss.mayAccess(planned.Access); err != nil {
		return err
	}
	if err := ss.mayCall(planned.Calls); err != nil {
		return err
	}
	p.passed = true
	return nil
}

// mayCall checks that the session's role may call functions; those of views, too.
func (ss *session) mayCall(calls []uint64) error {
	if len(calls) == 0 || ss.super() {
		return nil
	}
	snap, role := ss.snapshot(), ss.role()
	for _, f := range snap.Functions() {
		if !slices.Contains(calls, uint64(f.OID)) {
			continue
		}
		if err := mayUse(snap, role, f.Schema); err != nil {
			return err
		}
		if snap.Has(role, f.Securable(), catalog.PrivExecute) == 0 {
			return denied("permission denied for function %s", f.Name)
		}
	}
	return nil
}

// mayUseType checks that the session may make something of a type.
func (ss *session) mayUseType(t types.Type) error {
	snap := ss.snapshot()
	if x, ok := snap.TypeSecurable(t.OID); ok && snap.Has(ss.role(), x, catalog.PrivUsage) == 0 {
		name := t.String()
		if e, ok := t.Elem(); ok {
			t = e
		}
		if e, ok := snap.Enum(uint32(t.OID)); ok {
			name = e.Name
		}
		return denied("permission denied for type %s", name)
	}
	return nil
}

// mayAccess checks uses of relations: those of the statement with the session's role, those within a view with the view owner's.
func (ss *session) mayAccess(list []planner.Access) error {
	snap, role := ss.snapshot(), ss.role()
	for i := range list {
		a := &list[i]
		as := role
		if a.View != 0 {
			v, ok := snap.Get(a.View)
			if !ok {
				return pgerr.Newf(pgerr.UndefinedTable, "view %d does not exist any more", a.View)
			}
			as = catalog.OwnerOf(v.Owner)
		}
		if snap.IsSuper(as) {
			continue
		}
		if err := accessAs(snap, as, a); err != nil {
			return err
		}
	}
	return nil
}

func accessAs(snap *catalog.Snapshot, as uint32, a *planner.Access) error {
	if a.Relation.Virtual == copyRelation || a.Relation.Kind == planner.System && a.Relation.OID == 0 {
		return nil // the client's own data, the rows of a WITH query
	}
	if a.Relation.Kind == planner.System {
		r, ok := lookupSystem(a.Relation.Schema, a.Relation.Name)
		if !ok || snap.Has(as, r.Securable(), catalog.PrivSelect) == 0 {
			return denied("permission denied for %s %s", systemKind(r), a.Relation.Name)
		}
		return nil
	}
	o, ok := snap.Get(a.Relation.ID)
	if !ok {
		return pgerr.Newf(pgerr.UndefinedTable, "relation %q does not exist", a.Relation.Name)
	}
	if a.View == 0 {
		if err := mayUse(snap, as, o.Schema); err != nil {
			return err
		}
	}
	for _, need := range []struct {
		wanted  bool
		priv    catalog.Privileges
		columns []int
		whole   bool
	}{{a.Select, catalog.PrivSelect, a.Read, false}, {a.Insert, catalog.PrivInsert, a.Inserted, false}, {a.Update, catalog.PrivUpdate, a.Updated, false}, {a.Delete, catalog.PrivDelete, nil, true}} {
		if need.wanted && !has(snap, as, o, need.priv, need.columns, need.whole) {
			return denied("permission denied for %s %s", kindInMessages(o.Kind), o.Name)
		}
	}
	return nil
}

func systemKind(r *catalog.SystemRelation) string {
	if r != nil && r.Kind == 'v' {
		return "view"
	}
	return "table"
}

// has reports whether a role has a privilege on a relation, or on all the columns of it that matter; without columns any will do.
func has(snap *catalog.Snapshot, role uint32, o *catalog.Object, priv catalog.Privileges, columns []int, whole bool) bool {
	if snap.Has(role, o.Securable(), priv) != 0 {
		return true
	}
	if whole {
		return false
	}
	on := func(i int) bool {
		return o.Columns[i].ACL != nil && snap.Has(role, catalog.Securable{Class: catalog.ClassColumn, Owner: o.Owner, ACL: o.Columns[i].ACL}, priv) != 0
	}
	if len(columns) == 0 {
		return slices.ContainsFunc(o.Columns, func(c catalog.Column) bool { return on(o.Column(c.Name)) })
	}
	return !slices.ContainsFunc(columns, func(i int) bool { return i >= len(o.Columns) || !on(i) })
}

// mayUse checks that a role may look into a schema.
func mayUse(snap *catalog.Snapshot, role uint32, schema string) error {
	n, ok := snap.Namespace(schema)
	if ok && !catalog.IsTemporarySchema(schema) && snap.Has(role, n.Securable(), catalog.PrivUsage) == 0 {
		return denied("permission denied for schema %s", schema)
	}
	return nil
}

// mayRelation checks a privilege of the session on a relation that a statement names; columns nil means the whole of it.
func (ss *session) mayRelation(o *catalog.Object, priv catalog.Privileges, columns []int) error {
	snap, role := ss.snapshot(), ss.role()
	if snap.IsSuper(role) {
		return nil
	}
	if err := mayUse(snap, role, o.Schema); err != nil {
		return err
	}
	if !has(snap, role, o, priv, columns, columns == nil) {
		return denied("permission denied for %s %s", kindInMessages(o.Kind), o.Name)
	}
	return nil
}

// maySequence checks a privilege on a sequence. next: an identity column takes its numbers without being asked.
func (ss *session) maySequence(o *catalog.Object, priv catalog.Privileges, next bool) error {
	snap, role := ss.snapshot(), ss.role()
	if snap.Has(role, o.Securable(), priv) != 0 {
		return nil
	}
	if d := o.Sequence; next && d != nil && d.OwnerTable != 0 {
		if t, ok := snap.Get(d.OwnerTable); ok && d.OwnerColumn < len(t.Columns) && t.Columns[d.OwnerColumn].Identity != "" {
			return nil
		}
	}
	return denied("permission denied for sequence %s", o.Name)
}

// mayCreateIn checks that the session may create something in a schema.
func (ss *session) mayCreateIn(schema string) error {
	snap, role := ss.snapshot(), ss.role()
	n, ok := snap.Namespace(schema)
	if ok && !catalog.IsTemporarySchema(schema) && snap.Has(role, n.Securable(), catalog.PrivCreate) == 0 {
		return denied("permission denied for schema %s", schema)
	}
	return nil
}

// mustOwn checks that the session's role owns a relation, or with orSchema the schema that it is in.
func (ss *session) mustOwn(o *catalog.Object, orSchema bool) error {
	snap, role := ss.snapshot(), ss.role()
	owner := o.Owner
	if o.Index != nil { // an index belongs to its table's owner
		if t, ok := snap.Get(o.Index.Table); ok {
			owner = t.Owner
		}
	}
	if snap.HasPrivilegesOf(role, owner) {
		return nil
	}
	if n, ok := snap.Namespace(o.Schema); ok && orSchema && snap.HasPrivilegesOf(role, n.Securable().Owner) {
		return nil
	}
	return denied("must be owner of %s %s", kindInMessages(o.Kind), o.Name)
}

// visiblePath is the search path without the schemas that the session may not look into.
func (ss *session) visiblePath(snap *catalog.Snapshot, path []string) []string {
	role := ss.role()
	if snap.IsSuper(role) {
		return path
	}
	return slices.DeleteFunc(slices.Clone(path), func(s string) bool { return mayUse(snap, role, s) != nil })
}

// permit checks what a statement that is no query takes. What it names and does not exist is left to the statement's own message.
func (d *dispatch) permit(st sql.Statement) error {
	ss := d.ss
	switch st.(type) { // what runs often takes no look at roles here
	case *sql.Query, *sql.Insert, *sql.Update, *sql.Delete, *sql.Execute, *sql.Begin, *sql.Commit, *sql.Rollback:
		return nil
	}
	snap, role := ss.snapshot(), ss.role()
	if snap.IsSuper(role) {
		return nil
	}
	own := func(n sql.Name, orSchema bool) error {
		if o, ok := ss.resolve(n); ok {
			return ss.mustOwn(o, orSchema)
		}
		return nil
	}
	switch st := st.(type) {
	case *sql.CreateSchema:
		if snap.Has(role, snap.Database().Securable(), catalog.PrivCreate) == 0 {
			return denied("permission denied for database %s", databaseName)
		}
	case *sql.CreateSource:
		if c, ok := option(st.Options, "connector"); ok && strings.EqualFold(c.Value, "file") && !snap.HasPrivilegesOf(role, catalog.RoleReadServerFiles) {
			return denied("must be superuser or have privileges of the pg_read_server_files role to read files of the server")
		}
	case *sql.CreateSink:
		if c, ok := option(st.Options, connector.OptionConnector); ok {
			return ss.mayWriteFiles(c.Value)
		}
	case *sql.CreateIndex:
		return own(st.Table, false)
	case *sql.Drop:
		return d.permitDrop(st, own)
	case *sql.AlterObject:
		return d.permitAlter(st, own)
	case *sql.CommentOn:
		return d.permitComment(st, own)
	case *sql.Truncate:
		for _, n := range st.Tables {
			if o, ok := ss.resolve(n); ok {
				if err := ss.mayRelation(o, catalog.PrivTruncate, nil); err != nil {
					return err
				}
			}
		}
	case *sql.Lock:
		for _, n := range st.Tables {
			if o, ok := ss.resolve(n); ok {
				any := catalog.PrivUpdate | catalog.PrivDelete | catalog.PrivTruncate
				if st.Mode == "access share" {
					any |= catalog.PrivSelect
				}
				if err := ss.mayRelation(o, any, nil); err != nil {
					return err
				}
			}
		}
	case *sql.Refresh:
		return own(st.Name, false)
	case *sql.AlterType:
		if e, ok := ss.findEnum(st.Name); ok && !snap.HasPrivilegesOf(role, e.Owner) {
			return denied("must be owner of type %s", e.Name)
		}
	case *sql.AlterSequence:
		return own(st.Name, false)
	case *sql.Reindex:
		if st.Object != nil {
			return own(*st.Object, false)
		}
		return denied("must be superuser to execute REINDEX without a name")
	case *sql.Checkpoint:
		if !snap.HasPrivilegesOf(role, catalog.RoleCheckpoint) {
			return denied("must be superuser or have privileges of pg_checkpoint to do CHECKPOINT")
		}
	case *sql.Recover:
		return denied("must be superuser to execute RECOVER")
	case *sql.CancelJobs:
		return d.permitJobs(st)
	case *sql.Pause:
		return d.permitPause(st.Object, "PAUSE")
	case *sql.Resume:
		return d.permitPause(st.Object, "RESUME")
	}
	return nil
}

func (d *dispatch) permitDrop(st *sql.Drop, own func(sql.Name, bool) error) error {
	ss := d.ss
	for _, n := range st.Names {
		switch st.Kind {
		case sql.KindRole, sql.KindFunction, sql.KindDatabase, sql.KindExtension:
		case sql.KindType:
			if e, ok := ss.findEnum(n); ok && !ss.snapshot().HasPrivilegesOf(ss.role(), e.Owner) {
				return denied("must be owner of type %s", e.Name)
			}
		case sql.KindSchema:
			if s, ok := ss.snapshot().Namespace(n.Name); ok && !ss.snapshot().HasPrivilegesOf(ss.role(), s.Securable().Owner) {
				return denied("must be owner of schema %s", n.Name)
			}
		default:
			if err := own(n, true); err != nil {
				return err
			}
		}
	}
	return nil
}

func (d *dispatch) permitAlter(st *sql.AlterObject, own func(sql.Name, bool) error) error {
	ss := d.ss
	switch st.Kind {
	case sql.KindSystem:
		for _, a := range st.Actions {
			for _, o := range a.Options {
				return denied("permission denied to set parameter %q", o.Name)
			}
		}
		return denied("must be superuser to execute ALTER SYSTEM command")
	case sql.KindSchema:
		if s, ok := ss.snapshot().Namespace(st.Name.Name); ok && !ss.snapshot().HasPrivilegesOf(ss.role(), s.Securable().Owner) {
			return denied("must be owner of schema %s", st.Name.Name)
		}
		return nil
	case sql.KindDatabase:
		if !ss.snapshot().HasPrivilegesOf(ss.role(), ss.snapshot().Database().Owner) {
			return denied("must be owner of database %s", databaseName)
		}
		return nil
	case sql.KindType:
		if e, ok := ss.findEnum(st.Name); ok && !ss.snapshot().HasPrivilegesOf(ss.role(), e.Owner) {
			return denied("must be owner of type %s", e.Name)
		}
		return nil
	}
	if err := own(st.Name, false); err != nil {
		return err
	}
	if o, ok := ss.resolve(st.Name); ok && o.Sink != nil { // where it writes may be another place than its owner could name when it was made
		for _, a := range st.Actions {
			if _, options := d.sinkOptions(a.Options); len(options) > 0 {
				return ss.mayWriteFiles(o.Sink.Options[connector.OptionConnector])
			}
		}
	}
	return nil
}

// mayWriteFiles checks that the session may have a sink connector write.
func (ss *session) mayWriteFiles(sink string) error {
	if snap := ss.snapshot(); strings.EqualFold(sink, "file") && !snap.HasPrivilegesOf(ss.role(), catalog.RoleWriteServerFiles) {
		return denied("must be superuser or have privileges of the pg_write_server_files role to write files of the server")
	}
	return nil
}

func (d *dispatch) permitComment(st *sql.CommentOn, own func(sql.Name, bool) error) error {
	ss := d.ss
	switch st.Kind {
	case sql.KindRole:
		if !ss.mayManage() {
			return denied("must have CREATEROLE privilege")
		}
		if r, ok := ss.snapshot().LookupRole(st.Name.Name); ok && ss.snapshot().IsSuper(r.OID) {
			return denied("must be superuser")
		}
		return nil
	case sql.KindSchema:
		if s, ok := ss.snapshot().Namespace(st.Name.Name); ok && !ss.snapshot().HasPrivilegesOf(ss.role(), s.Securable().Owner) {
			return denied("must be owner of schema %s", st.Name.Name)
		}
		return nil
	case sql.KindDatabase:
		if !ss.snapshot().HasPrivilegesOf(ss.role(), ss.snapshot().Database().Owner) {
			return denied("must be owner of database %s", databaseName)
		}
		return nil
	case sql.KindType:
		if e, ok := ss.findEnum(st.Name); ok && !ss.snapshot().HasPrivilegesOf(ss.role(), e.Owner) {
			return denied("must be owner of type %s", e.Name)
		}
		return nil
	case sql.KindFunction:
		f, err := d.findFunction(ss.snapshot(), *st.Function)
		if err != nil {
			return nil
		}
		return d.ownsFunction(f)
	case sql.KindColumn, sql.KindConstraint:
		if o, ok := ss.resolve(st.Name); ok && ss.mustOwn(o, false) != nil {
			return denied("must be owner of relation %s", o.Name)
		}
		return nil
	case sql.KindIndex:
		if _, ok := ss.resolve(st.Name); ok {
			break
		}
		if table, ok := ss.primaryIndexNamed(st.Name); ok && ss.mustOwn(table, false) != nil {
			return denied("must be owner of index %s", st.Name.Name)
		}
		return nil
	}
	return own(st.Name, false)
}

// permitJobs lets a job be cancelled by the owner of its view and by those that may cancel backends.
func (d *dispatch) permitJobs(st *sql.CancelJobs) error {
	ss := d.ss
	if ss.snapshot().HasPrivilegesOf(ss.role(), catalog.RoleSignalBackend) {
		return nil
	}
	for _, o := range ss.snapshot().Objects() {
		if o.Plan != nil && slices.Contains(st.IDs, strconv.FormatUint(o.ID, 10)) {
			if err := ss.mustOwn(o, false); err != nil {
				return err
			}
		}
	}
	return nil
}

func (d *dispatch) permitPause(n *sql.Name, verb string) error {
	if n == nil {
		return denied("must be superuser to execute %s ALL", verb)
	}
	if o, ok := d.ss.resolve(*n); ok {
		return d.ss.mustOwn(o, false)
	}
	return nil
}

// maySignal lets a session be stopped by its own role and by those that may signal backends, a superuser's by superusers alone.
func (ss *session) maySignal(pid int32, terminate bool) error {
	snap, role := ss.snapshot(), ss.role()
	v, ok := ss.srv.sessions.Load(pid)
	if !ok || snap.IsSuper(role) {
		return nil
	}
	super, verb := "cancel superuser query", "query is being canceled"
	if terminate {
		super, verb = "terminate superuser process", "process is being terminated"
	}
	other := ss.roleNamed(snap, v.(*session).params.User) //nolint:forcetypeassert // only sessions are stored
	switch {
	case other == nobody || snap.IsSuper(other):
		return denied("must be a superuser to %s", super)
	case snap.HasPrivilegesOf(role, other), snap.HasPrivilegesOf(role, catalog.RoleSignalBackend):
		return nil
	}
	return denied("must be a member of the role whose %s or member of pg_signal_backend", verb)
}
