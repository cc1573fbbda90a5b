package catalog

// usable reports whether the session's role has the privileges of another.
func (d *SystemData) usable(of uint32) bool {
	return d.super() || d.Snap.HasPrivilegesOf(d.Role, of)
}

// super reports whether everything is shown: to superusers, and where nobody in particular asks.
func (d *SystemData) super() bool { return d.Role == 0 || d.Snap.IsSuper(d.Role) }

func (r *relation) securable() Securable {
	if r.sys != nil {
		return r.sys.Securable()
	}
	return r.object.Securable()
}

// may reports whether the session's role has one of the privileges on a relation, or on any of its columns.
func (d *SystemData) may(r *relation, p Privileges) bool {
	if d.super() {
		return true
	}
	x := r.securable()
	if d.usable(r.owner()) || d.Snap.Has(d.Role, x, p) != 0 {
		return true
	}
	for _, a := range r.columns {
		if d.onColumn(x, a, p) {
			return true
		}
	}
	return false
}

func (d *SystemData) onColumn(x Securable, a attribute, p Privileges) bool {
	return a.ACL != nil && d.Snap.Has(d.Role, Securable{Class: ClassColumn, Owner: x.Owner, ACL: a.ACL}, p) != 0
}

// visible reports whether information_schema shows a relation: to its owner and to those who have any privilege on it.
func (d *SystemData) visible(r *relation) bool {
	return d.may(r, AllPrivileges(ClassRelation)|AllPrivileges(ClassSequence))
}

// changeable is visible without those who may only read.
func (d *SystemData) changeable(r *relation) bool {
	return d.may(r, AllPrivileges(ClassRelation)&^PrivSelect)
}

// visibleColumn reports whether information_schema shows a column.
func (d *SystemData) visibleColumn(r *relation, a attribute) bool {
	if d.super() {
		return true
	}
	x, p := r.securable(), AllPrivileges(ClassColumn)
	return d.usable(r.owner()) || d.Snap.Has(d.Role, x, p) != 0 || d.onColumn(x, a, p)
}

// grants calls f for each privilege that somebody was given, as far as it is the session's business: given by its roles or to them, and with
// everybody also what everybody was given.
func (d *SystemData) grants(x Securable, of Privileges, everybody bool, f func(grantor, grantee, privilege string, grantable bool)) {
	for _, a := range x.List() {
		if !d.usable(a.Grantor) && (a.Grantee == 0 || !d.usable(a.Grantee)) && (a.Grantee != 0 || !everybody) {
			continue
		}
		options := ParsePrivileges(a.Options)
		if a.Grantee != 0 && d.Snap.HasPrivilegesOf(a.Grantee, x.Owner) {
			options = of
		}
		for _, name := range (ParsePrivileges(a.Privileges) & of).Names() {
			p, _ := PrivilegeNamed(name)
			f(d.roleName(a.Grantor), d.roleName(a.Grantee), name, options&p != 0)
		}
	}
}

func isTablePrivileges(d *SystemData, w *rowWriter)  { d.tablePrivileges(w, true) }
func isRoleTableGrants(d *SystemData, w *rowWriter)  { d.tablePrivileges(w, false) }
func isColumnPrivileges(d *SystemData, w *rowWriter) { d.columnPrivileges(w, true) }
func isRoleColumnGrants(d *SystemData, w *rowWriter) { d.columnPrivileges(w, false) }

func (d *SystemData) tablePrivileges(w *rowWriter, everybody bool) {
	for _, r := range d.relations() {
		if !inInformationSchema(r) {
			continue
		}
		d.grants(r.securable(), AllPrivileges(ClassRelation), everybody, func(grantor, grantee, privilege string, grantable bool) {
			w.strs("grantor", grantor, "grantee", grantee, "privilege_type", privilege)
			d.table(w, "table", r)
			w.yes("is_grantable", grantable)
			w.yes("with_hierarchy", privilege == "SELECT")
			w.end()
		})
	}
}

func (d *SystemData) columnPrivileges(w *rowWriter, everybody bool) {
	type given struct{ grantor, grantee, privilege string }
	for _, r := range d.relations() {
		if !inInformationSchema(r) {
			continue
		}
		x := r.securable()
		for _, a := range r.columns {
			seen := map[given]bool{}
			put := func(grantor, grantee, privilege string, grantable bool) {
				g := given{grantor, grantee, privilege}
				if seen[g] {
					return
				}
				seen[g] = true
				w.strs("grantor", grantor, "grantee", grantee, "privilege_type", privilege, "column_name", a.Name)
				d.table(w, "table", r)
				w.yes("is_grantable", grantable)
				w.end()
			}
			d.grants(x, AllPrivileges(ClassColumn), everybody, put)
			if a.ACL != nil {
				d.grants(Securable{Class: ClassColumn, Owner: x.Owner, ACL: a.ACL}, AllPrivileges(ClassColumn), everybody, put)
			}
		}
	}
}

func isUsagePrivileges(d *SystemData, w *rowWriter) { d.usagePrivileges(w, true) }
func isRoleUsageGrants(d *SystemData, w *rowWriter) { d.usagePrivileges(w, false) }

func (d *SystemData) usagePrivileges(w *rowWriter, everybody bool) {
	put := func(x Securable, schema, name, kind string) {
		d.grants(x, PrivUsage, everybody, func(grantor, grantee, privilege string, grantable bool) {
			w.strs("grantor", grantor, "grantee", grantee, "object_catalog", d.Database, "object_schema", schema, "object_name", name, "object_type", kind,
				"privilege_type", privilege)
			w.yes("is_grantable", grantable)
			w.end()
		})
	}
	if everybody {
		r := recordings["pg_collation"]()
		if r.err != nil {
			w.failed(r.err)
			return
		}
		for i := range r.rows.N { // they have no privileges: everybody may use them
			w.strs("grantor", OwnerRole, "grantee", "PUBLIC", "object_catalog", d.Database, "object_schema", PgCatalog, "object_name", r.str(i, "collname"),
				"object_type", "COLLATION", "privilege_type", "USAGE")
			w.yes("is_grantable", false)
			w.end()
		}
	}
	put(Securable{Class: ClassWrapper}, "", wrapperName, "FOREIGN DATA WRAPPER")
	for _, s := range d.servers() {
		put(Securable{Class: ClassServer}, "", s.name, "FOREIGN SERVER")
	}
	for _, r := range d.userRelations() {
		if r.kind == 'S' {
			put(r.securable(), r.schema, r.name, "SEQUENCE")
		}
	}
}

func isUDTPrivileges(d *SystemData, w *rowWriter) { d.udtPrivileges(w, true) }
func isRoleUDTGrants(d *SystemData, w *rowWriter) { d.udtPrivileges(w, false) }

// udtPrivileges lists the privileges of composite types, as PostgreSQL does: those of relations' rows.
func (d *SystemData) udtPrivileges(w *rowWriter, everybody bool) {
	for _, r := range d.userRelations() {
		if r.kind == 'S' {
			continue
		}
		d.grants(Securable{Class: ClassType, Owner: r.owner()}, PrivUsage, everybody, func(grantor, grantee, _ string, grantable bool) {
			w.strs("grantor", grantor, "grantee", grantee, "udt_catalog", d.Database, "udt_schema", r.schema, "udt_name", r.name, "privilege_type", "TYPE USAGE")
			w.yes("is_grantable", grantable)
			w.end()
		})
	}
}

func isRoutinePrivileges(d *SystemData, w *rowWriter) { d.routinePrivileges(w, true) }
func isRoleRoutineGrants(d *SystemData, w *rowWriter) { d.routinePrivileges(w, false) }

func (d *SystemData) routinePrivileges(w *rowWriter, everybody bool) {
	put := func(x Securable, schema, name string, oid uint32) {
		d.grants(x, PrivExecute, everybody, func(grantor, grantee, privilege string, grantable bool) {
			specific := specificNameOf(name, oid)
			w.strs("grantor", grantor, "grantee", grantee, "specific_catalog", d.Database, "specific_schema", schema, "specific_name", specific,
				"routine_catalog", d.Database, "routine_schema", schema, "routine_name", name, "privilege_type", privilege)
			w.yes("is_grantable", grantable)
			w.end()
		})
	}
	for _, f := range functionList(d.Registry) {
		put(BuiltinSecurable(f.Name), PgCatalog, f.Name, f.oid)
	}
	for _, f := range d.Snap.Functions() {
		put(f.Securable(), f.Schema, f.Name, f.OID)
	}
}

func isEnabledRoles(d *SystemData, w *rowWriter) {
	for _, r := range d.authRoles() {
		if r.OID == sessionOID || d.usable(r.OID) {
			w.str("role_name", r.Name)
			w.end()
		}
	}
}

func isApplicableRoles(d *SystemData, w *rowWriter) { d.applicableRoles(w, false) }
func isAdministrable(d *SystemData, w *rowWriter)   { d.applicableRoles(w, true) }

// applicableRoles lists the memberships of the roles whose privileges the session has.
func (d *SystemData) applicableRoles(w *rowWriter, admin bool) {
	for _, r := range d.Snap.Roles() {
		if !d.usable(r.OID) {
			continue
		}
		for _, m := range r.MemberOf {
			if admin && !m.Admin {
				continue
			}
			w.strs("grantee", r.Name, "role_name", d.roleName(m.Role))
			w.yes("is_grantable", m.Admin)
			w.end()
		}
	}
	if owner := ownerOf(d.Snap.database.Owner); !admin && d.usable(owner) {
		w.strs("grantee", d.roleName(owner), "role_name", d.roleName(RoleDatabaseOwner))
		w.yes("is_grantable", false)
		w.end()
	}
}
