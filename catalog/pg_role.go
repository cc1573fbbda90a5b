package catalog

// authRoles lists all roles, and the connected user when no role has that name: a guest, who is the superuser.
func (d *SystemData) authRoles() []*Role {
	out := d.Snap.Roles()
	if _, ok := d.Snap.LookupRole(d.User); !ok && d.User != "" {
		guest := *d.Snap.roles[Bootstrap]
		guest.OID, guest.Name, guest.Verifier = sessionOID, d.User, ""
		out = append(out, &guest)
	}
	return out
}

// hiddenPassword is what PostgreSQL's views show instead of a password.
const hiddenPassword = "********"

func roleRow(w *rowWriter, r *Role, password string) {
	w.oid("oid", r.OID)
	w.str("rolname", r.Name)
	w.bool("rolsuper", r.Super)
	w.bool("rolinherit", r.Inherit)
	w.bool("rolcreaterole", r.CreateRole)
	w.bool("rolcreatedb", r.CreateDB)
	w.bool("rolcanlogin", r.Login)
	w.bool("rolreplication", r.Replicate)
	w.bool("rolbypassrls", r.BypassRLS)
	w.int("rolconnlimit", int64(r.ConnLimit))
	w.text("rolpassword", password)
	if r.ValidUntil != nil {
		w.int("rolvaliduntil", *r.ValidUntil)
	}
}

// configList lists settings as pg_roles does, nil when there are none.
func configList(config map[string]string) []string {
	var out []string
	for _, k := range sortedKeys(config) {
		out = append(out, k+"="+config[k])
	}
	return out
}

// pgDBRoleSetting lists the settings of roles and of the database.
func pgDBRoleSetting(d *SystemData, w *rowWriter) {
	row := func(database, role uint32, config map[string]string) {
		if len(config) > 0 {
			w.oid("setdatabase", database)
			w.oid("setrole", role)
			w.texts("setconfig", configList(config))
			w.end()
		}
	}
	db := d.Snap.Database()
	row(0, 0, db.RoleConfig)
	row(databaseOID, 0, db.Config)
	for _, r := range d.Snap.Roles() {
		row(0, r.OID, r.Config)
		row(databaseOID, r.OID, r.DatabaseConfig)
	}
}

func pgAuthid(d *SystemData, w *rowWriter) {
	for _, r := range d.authRoles() {
		roleRow(w, r, r.Verifier)
		w.end()
	}
}

func pgRoles(d *SystemData, w *rowWriter) {
	for _, r := range d.authRoles() {
		roleRow(w, r, hiddenPassword)
		w.texts("rolconfig", configList(r.Config))
		w.end()
	}
}

func (d *SystemData) userRow(w *rowWriter, r *Role, password string) {
	w.str("usename", r.Name)
	w.oid("usesysid", r.OID)
	w.bool("usecreatedb", r.CreateDB)
	w.bool("usesuper", r.Super)
	w.bool("userepl", r.Replicate)
	w.bool("usebypassrls", r.BypassRLS)
	w.text("passwd", password)
	if r.ValidUntil != nil {
		w.int("valuntil", *r.ValidUntil)
	}
	w.texts("useconfig", configList(r.Config))
	w.end()
}

func pgUser(d *SystemData, w *rowWriter) {
	for _, r := range d.authRoles() {
		if r.Login {
			d.userRow(w, r, hiddenPassword)
		}
	}
}

func pgShadow(d *SystemData, w *rowWriter) {
	for _, r := range d.authRoles() {
		if r.Login {
			d.userRow(w, r, r.Verifier)
		}
	}
}

func pgGroup(d *SystemData, w *rowWriter) {
	all := d.Snap.Roles()
	for _, g := range all {
		if g.Login {
			continue
		}
		var members []int64
		for _, r := range all {
			for _, m := range r.MemberOf {
				if m.Role == g.OID {
					members = append(members, int64(r.OID))
				}
			}
		}
		w.str("groname", g.Name)
		w.oid("grosysid", g.OID)
		w.array("grolist", members)
		w.end()
	}
}

func pgAuthMembers(d *SystemData, w *rowWriter) {
	for _, r := range d.Snap.Roles() {
		for _, m := range r.MemberOf {
			w.oid("roleid", m.Role)
			w.oid("member", r.OID)
			w.oid("grantor", ownerOf(m.Grantor))
			w.bool("admin_option", m.Admin)
			w.end()
		}
	}
}

func pgDefaultACL(d *SystemData, w *rowWriter) {
	for _, x := range d.Snap.DefaultACLs() {
		w.oid("oid", x.OID)
		w.oid("defaclrole", ownerOf(x.Role))
		if x.Schema != "" {
			w.oid("defaclnamespace", d.namespaceOID(x.Schema))
		}
		w.str("defaclobjtype", x.Class)
		d.acl(w, "defaclacl", x.ACL)
		w.end()
	}
}

// acl sets a column of privileges, NULL where the owner's default is in force.
func (d *SystemData) acl(w *rowWriter, column string, list []ACL) {
	var out []string
	for _, a := range list {
		if a.Privileges != "" {
			out = append(out, d.Snap.ACLText(a))
		}
	}
	w.texts(column, out)
}

// ownerName is the name of an owner.
func (d *SystemData) ownerName(r *relation) string { return d.roleName(r.owner()) }

// roleName is the name of a role, everybody's is PUBLIC.
func (d *SystemData) roleName(oid uint32) string {
	if r, ok := d.Snap.roles[oid]; ok {
		return r.Name
	}
	if oid == 0 {
		return "PUBLIC"
	}
	return "unknown (OID=" + number(oid) + ")"
}

// owner is the OID of a relation's owner.
func (r *relation) owner() uint32 {
	if r.object != nil {
		return ownerOf(r.object.Owner)
	}
	return ownerOID
}
