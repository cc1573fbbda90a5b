package server

import (
	"slices"
	"strings"

	"github.com/streamdb/streamdb/catalog"
	"github.com/streamdb/streamdb/internal/pgerr"
	"github.com/streamdb/streamdb/sql"
)

// alterOwner is ALTER .. OWNER TO.
func (d *dispatch) alterOwner(kind sql.ObjectKind, x securable, schema string, to sql.Ident) error {
	ss := d.ss
	owner, err := ss.findRole(specOf(to))
	if err != nil {
		return err
	}
	if err := d.mayOwn(x, schema, owner); err != nil {
		return err
	}
	return d.changeRoles("ALTER "+strings.ToUpper(string(kind)), func(tx *catalog.Tx) error { return giveTo(tx, x, owner) })
}

// specOf tells keywords that stand for a role from names: the parser gives those in upper case.
func specOf(n sql.Ident) sql.RoleSpec {
	switch n.Name {
	case "CURRENT_USER", "CURRENT_ROLE", "SESSION_USER":
		return sql.RoleSpec{Ident: n, Special: strings.ToLower(n.Name)}
	}
	return sql.RoleSpec{Ident: n}
}

// mayOwn checks that the session may give something to a role: it owns it, could become the role, and the role could have made it there.
func (d *dispatch) mayOwn(x securable, schema string, owner uint32) error {
	ss := d.ss
	snap, role := ss.snapshot(), ss.role()
	if snap.IsSuper(role) {
		return nil
	}
	if !snap.HasPrivilegesOf(role, x.Owner) {
		return denied("must be owner of %s %s", x.kind, x.name)
	}
	if !snap.IsMember(role, owner) {
		return denied("must be member of role %q", roleName(snap, owner))
	}
	if x.kind == "schema" || x.kind == "database" {
		if snap.Has(role, snap.Database().Securable(), catalog.PrivCreate) == 0 {
			return denied("permission denied for database %s", databaseName)
		}
		return nil
	}
	if n, ok := snap.Namespace(schema); ok && snap.Has(owner, n.Securable(), catalog.PrivCreate) == 0 {
		return denied("permission denied for schema %s", schema)
	}
	return nil
}

// giveTo makes a role the owner; what the old one had by being the owner the new one has.
func giveTo(tx *catalog.Tx, x securable, owner uint32) error {
	old := catalog.OwnerOf(x.Owner)
	acl := slices.Clone(x.ACL)
	var merged []catalog.ACL
	for _, a := range acl {
		if a.Grantee == old {
			a.Grantee = owner
		}
		if a.Grantor == old {
			a.Grantor = owner
		}
		merged = catalog.AddACL(merged, catalog.Grant{Grantee: a.Grantee, Grantor: a.Grantor, Privileges: catalog.ParsePrivileges(a.Privileges)})
		if a.Options != "" {
			merged = catalog.AddACL(merged, catalog.Grant{Grantee: a.Grantee, Grantor: a.Grantor, Privileges: catalog.ParsePrivileges(a.Options), Option: true})
		}
	}
	return x.put(tx, owner, merged)
}

// changesOwner runs an ALTER that is nothing but a change of the owner; done is false for any other.
func (d *dispatch) changesOwner(st *sql.AlterObject) (done bool, err error) {
	if len(st.Actions) != 1 || st.Actions[0].Kind != sql.AlterOwner {
		return false, nil
	}
	ss := d.ss
	to := st.Actions[0].NewName
	switch st.Kind {
	case sql.KindSchema:
		n, ok := ss.snapshot().Namespace(st.Name.Name)
		if !ok {
			return true, pgerr.Newf(pgerr.InvalidSchemaName, "schema %q does not exist", st.Name.Name)
		}
		return true, d.alterOwner(st.Kind, schemaSecurable(n), "", to)
	case sql.KindDatabase:
		if st.Name.Name != databaseName {
			return true, pgerr.Newf(pgerr.InvalidCatalogName, "database %q does not exist", st.Name.Name)
		}
		return true, d.alterOwner(st.Kind, databaseSecurable(ss.snapshot().Database()), "", to)
	case sql.KindType:
		e, ok := ss.findEnum(st.Name)
		if !ok {
			return true, pgerr.Newf(pgerr.UndefinedObject, "type %q does not exist", st.Name.Key())
		}
		return true, d.alterOwner(st.Kind, typeSecurable(e), e.Schema, to)
	}
	o, ok := ss.resolve(st.Name)
	if !ok || o.Kind == catalog.Index {
		return false, nil
	}
	return true, d.alterOwner(st.Kind, ss.relationSecurable(o), o.Schema, to)
}

// owned lists what roles own.
func (ss *session) owned(roles []uint32) []securable {
	snap := ss.snapshot()
	mine := func(owner uint32) bool { return slices.Contains(roles, catalog.OwnerOf(owner)) }
	var out []securable
	for _, n := range snap.Namespaces() {
		if mine(n.Owner) && (catalog.IsUserID(uint64(n.OID)) || n.Owner != 0) {
			out = append(out, schemaSecurable(n))
		}
	}
	for _, o := range snap.Objects() {
		if mine(o.Owner) {
			out = append(out, ss.relationSecurable(o))
		}
	}
	for _, e := range snap.Enums() {
		if mine(e.Owner) {
			out = append(out, typeSecurable(e))
		}
	}
	for _, f := range snap.Functions() {
		if mine(f.Owner) {
			out = append(out, functionSecurable(f))
		}
	}
	return out
}

func (d *dispatch) rolesOwned(specs []sql.RoleSpec, verb string) ([]uint32, error) {
	ss := d.ss
	var out []uint32
	for _, s := range specs {
		oid, err := ss.findRole(s)
		if err != nil {
			return nil, err
		}
		if !ss.snapshot().HasPrivilegesOf(ss.role(), oid) {
			return nil, denied("permission denied to %s objects", verb)
		}
		if oid == catalog.Bootstrap {
			return nil, pgerr.Newf(pgerr.DependentObjectsStillExist, "cannot %s objects owned by role %s because they are required by the database system", verb, catalog.OwnerRole)
		}
		out = append(out, oid)
	}
	return out, nil
}

func (d *dispatch) reassignOwned(st *sql.ReassignOwned) error {
	roles, err := d.rolesOwned(st.Roles, "reassign")
	if err != nil {
		return err
	}
	to, err := d.ss.findRole(st.To)
	if err != nil {
		return err
	}
	if !d.ss.snapshot().HasPrivilegesOf(d.ss.role(), to) {
		return denied("permission denied to reassign objects")
	}
	return d.changeRoles("REASSIGN OWNED", func(tx *catalog.Tx) error {
		for _, x := range d.ss.owned(roles) {
			if err := giveTo(tx, x, to); err != nil {
				return err
			}
		}
		if db := tx.Snapshot().Database(); slices.Contains(roles, catalog.OwnerOf(db.Owner)) {
			return giveTo(tx, databaseSecurable(db), to)
		}
		return nil
	})
}

// dropOwned drops what roles own and takes from them what they were granted.
func (d *dispatch) dropOwned(st *sql.DropOwned) error {
	ss := d.ss
	roles, err := d.rolesOwned(st.Roles, "drop")
	if err != nil {
		return err
	}
	unlock, err := d.lockSchema()
	if err != nil {
		return err
	}
	defer unlock()
	snap := ss.snapshot()
	var targets []*catalog.Object
	var spaces []string
	var functions, enums []uint32
	for _, x := range ss.owned(roles) {
		switch {
		case x.object != nil && x.object.Kind != catalog.Index:
			targets = append(targets, x.object)
		case x.kind == "schema":
			spaces = append(spaces, x.name)
		}
	}
	for _, n := range spaces {
		for _, o := range snap.Objects() {
			if o.Schema == n && !slices.Contains(targets, o) {
				if !st.Cascade {
					return pgerr.Newf(pgerr.DependentObjectsStillExist, "cannot drop desired object(s) because other objects depend on them").
						WithDetail("%s depends on schema %s", d.describe(o), n).WithHint("Use DROP ... CASCADE to drop the dependent objects too.")
				}
				targets = append(targets, o)
			}
		}
	}
	for _, f := range snap.Functions() {
		if slices.Contains(roles, catalog.OwnerOf(f.Owner)) {
			functions = append(functions, f.OID)
		}
	}
	for _, e := range snap.Enums() {
		if slices.Contains(roles, catalog.OwnerOf(e.Owner)) {
			enums = append(enums, e.OID)
		}
	}
	if len(targets) > 0 {
		things := make([]thing, len(targets))
		for i, o := range targets {
			things[i] = thing{o: o}
		}
		if err := d.dropThings(things, st.Cascade); err != nil {
			return err
		}
	}
	if err := ss.update(func(tx *catalog.Tx) error {
		for _, s := range spaces {
			tx.RemoveNamespace(s)
		}
		for _, f := range functions {
			tx.RemoveFunction(f)
		}
		for _, e := range enums {
			tx.RemoveEnum(e)
		}
		return d.revokeEverything(tx, roles)
	}); err != nil {
		return err
	}
	return d.complete("DROP OWNED")
}

// revokeEverything takes from roles whatever was granted to them.
func (d *dispatch) revokeEverything(tx *catalog.Tx, roles []uint32) error {
	without := func(owner uint32, list []catalog.ACL) ([]catalog.ACL, bool) {
		if !slices.ContainsFunc(list, func(a catalog.ACL) bool {
			return slices.Contains(roles, a.Grantee) || slices.Contains(roles, a.Grantor)
		}) {
			return list, false
		}
		out := slices.DeleteFunc(slices.Clone(list), func(a catalog.ACL) bool {
			return (slices.Contains(roles, a.Grantee) || slices.Contains(roles, a.Grantor)) && !slices.Contains(roles, catalog.OwnerOf(owner))
		})
		return out, true
	}
	snap := tx.Snapshot()
	if db := snap.Database(); db.ACL != nil {
		db.ACL, _ = without(db.Owner, db.ACL)
		tx.PutDatabase(db)
	}
	for _, n := range snap.Namespaces() {
		if acl, ok := without(n.Owner, n.ACL); ok {
			n.ACL = acl
			tx.PutNamespace(n)
		}
	}
	for _, o := range snap.Objects() {
		c := *o
		any := false
		c.ACL, any = without(o.Owner, o.ACL)
		c.Columns = slices.Clone(o.Columns)
		for i := range c.Columns {
			acl, ok := without(o.Owner, c.Columns[i].ACL)
			if any = any || ok; ok && len(acl) == 0 {
				acl = nil
			}
			c.Columns[i].ACL = acl
		}
		if any {
			if err := tx.Replace(&c); err != nil {
				return err
			}
		}
	}
	for _, e := range snap.Enums() {
		if acl, ok := without(e.Owner, e.ACL); ok {
			c := *e
			c.ACL = acl
			if err := tx.PutEnum(&c); err != nil {
				return err
			}
		}
	}
	for _, f := range snap.Functions() {
		if acl, ok := without(f.Owner, f.ACL); ok {
			c := *f
			c.ACL = acl
			tx.PutFunction(&c)
		}
	}
	var defaults []catalog.DefaultACL
	for _, x := range snap.DefaultACLs() {
		if slices.Contains(roles, catalog.OwnerOf(x.Role)) {
			continue
		}
		x.ACL, _ = without(x.Role, x.ACL)
		defaults = append(defaults, x)
	}
	tx.SetDefaultACLs(defaults)
	return nil
}
