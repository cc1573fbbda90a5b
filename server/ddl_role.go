package server

import (
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"

	"github.com/streamdb/streamdb/auth"
	"github.com/streamdb/streamdb/catalog"
	"github.com/streamdb/streamdb/internal/pgerr"
	"github.com/streamdb/streamdb/sql"
	"github.com/streamdb/streamdb/types"
)

// maxPasswordBytes bounds a password; hashing a longer one would only cost time.
const maxPasswordBytes = 1024

func passwordVerifier(password string, iterations int) (string, error) {
	if _, ok := auth.ParseVerifier(password); ok {
		return password, nil
	}
	if auth.IsMD5(password) {
		return "", pgerr.Newf(pgerr.FeatureNotSupported, "passwords hashed with MD5 are not supported").
			WithHint("Give the password itself, or its SCRAM-SHA-256 verifier.")
	}
	if len(password) > maxPasswordBytes {
		return "", pgerr.Newf(pgerr.InvalidParameterValue, "password is too long: %d bytes are allowed", maxPasswordBytes)
	}
	v, err := auth.NewVerifier(password, iterations)
	return v.String(), err
}

// changeRoles runs a change of roles or privileges.
func (d *dispatch) changeRoles(tag string, f func(tx *catalog.Tx) error) error {
	unlock, err := d.lockSchema()
	if err != nil {
		return err
	}
	defer unlock()
	if err := d.ss.update(f); err != nil {
		return err
	}
	return d.complete(tag)
}

func denied(format string, args ...any) error {
	return pgerr.Newf(pgerr.InsufficientPrivilege, format, args...)
}

// mayManage reports whether the session may create and change roles.
func (ss *session) mayManage() bool {
	r, ok := ss.snapshot().Role(ss.role())
	return ok && (r.Super || r.CreateRole)
}

func reservedRole(n sql.Ident) error {
	if strings.HasPrefix(n.Name, "pg_") {
		return pgerr.Newf(pgerr.ReservedName, "role name %q is reserved", n.Name).WithDetail("Role names starting with \"pg_\" are reserved.")
	}
	return nil
}

func (d *dispatch) createRole(st *sql.CreateRole) error {
	ss := d.ss
	if !ss.mayManage() {
		return denied("permission denied to create role")
	}
	if err := reservedRole(st.Name); err != nil {
		return err
	}
	r := &catalog.Role{Name: st.Name.Name, Inherit: true, Login: st.User, ConnLimit: -1}
	if err := d.roleOptions(r, st.Options); err != nil {
		return err
	}
	if err := d.mayGive(nil, r); err != nil {
		return err
	}
	return d.changeRoles("CREATE ROLE", func(tx *catalog.Tx) error {
		r.OID = uint32(tx.NextID())
		if err := tx.PutRole(r); err != nil {
			return err
		}
		for _, o := range st.Options {
			for _, spec := range o.Roles {
				other, err := ss.findRole(spec)
				if err != nil {
					return err
				}
				switch o.Name {
				case "IN ROLE":
					err = d.grantRole(tx, other, r.OID, false)
				case "ROLE":
					err = d.grantRole(tx, r.OID, other, false)
				case "ADMIN":
					err = d.grantRole(tx, r.OID, other, true)
				}
				if err != nil {
					return err
				}
			}
		}
		return nil
	})
}

// roleOptions applies options to a role.
func (d *dispatch) roleOptions(r *catalog.Role, opts []sql.RoleOption) error {
	for _, o := range opts {
		switch o.Name {
		case "SUPERUSER", "NOSUPERUSER":
			r.Super = o.Name == "SUPERUSER"
		case "CREATEDB", "NOCREATEDB":
			r.CreateDB = o.Name == "CREATEDB"
		case "CREATEROLE", "NOCREATEROLE":
			r.CreateRole = o.Name == "CREATEROLE"
		case "INHERIT", "NOINHERIT":
			r.Inherit = o.Name == "INHERIT"
		case "LOGIN", "NOLOGIN":
			r.Login = o.Name == "LOGIN"
		case "REPLICATION", "NOREPLICATION":
			r.Replicate = o.Name == "REPLICATION"
		case "BYPASSRLS", "NOBYPASSRLS":
			r.BypassRLS = o.Name == "BYPASSRLS"
		case "CONNECTION LIMIT":
			n, err := strconv.ParseInt(o.Value, 10, 32)
			if err != nil {
				return pgerr.Newf(pgerr.SyntaxError, "syntax error at or near %q", o.Value).At(o.Pos)
			}
			if n < -1 {
				return pgerr.Newf(pgerr.InvalidParameterValue, "invalid connection limit: %d", n)
			}
			r.ConnLimit = int32(n)
		case "VALID UNTIL":
			t, err := types.ParseText(d.ss.vars.format(), types.Timestamptz, o.Value)
			if err != nil {
				return err
			}
			r.ValidUntil = &t.Int
		case "PASSWORD":
			if err := d.setPassword(r, o); err != nil {
				return err
			}
		}
	}
	return nil
}

func (d *dispatch) setPassword(r *catalog.Role, o sql.RoleOption) error {
	if o.Value == "" {
		r.Verifier = ""
		if o.Null {
			return nil
		}
		return d.ss.notice("NOTICE", pgerr.SuccessfulCompletion, "empty string is not a valid password, clearing password")
	}
	n, err := strconv.Atoi(d.ss.vars.get("scram_iterations"))
	if err != nil {
		n = auth.DefaultIterations
	}
	r.Verifier, err = passwordVerifier(o.Value, n)
	return err
}

// mayGive checks that the session may make a role what it becomes. old is nil for a new one.
func (d *dispatch) mayGive(old, r *catalog.Role) error {
	if d.ss.super() {
		return nil
	}
	verb := "create"
	if old == nil {
		old = &catalog.Role{}
	} else {
		verb = "alter"
	}
	for _, x := range []struct {
		was, is bool
		name    string
	}{{old.Super, r.Super, "superusers"}, {old.Replicate, r.Replicate, "replication users"}, {old.BypassRLS, r.BypassRLS, "bypassrls users"}} {
		if verb == "create" && x.is {
			return denied("must be superuser to create %s", x.name)
		}
		if x.was != x.is || x.was && x.name != "bypassrls users" {
			return denied("must be superuser to alter %s", map[string]string{
				"superusers": "superuser roles or change superuser attribute", "replication users": "replication roles or change replication attribute",
				"bypassrls users": "roles with bypassrls attribute",
			}[x.name])
		}
	}
	return nil
}

func (d *dispatch) alterRole(st *sql.AlterRole) error {
	ss := d.ss
	oid, err := ss.findRole(st.Role)
	if err != nil {
		return err
	}
	old, _ := ss.snapshot().Role(oid)
	if st.Rename != nil {
		return d.renameRole(st, old)
	}
	if len(st.Options) > 0 && (st.Options[0].Name == "ADD" || st.Options[0].Name == "DROP") {
		return d.alterGroup(st, old)
	}
	if strings.HasPrefix(old.Name, "pg_") {
		return pgerr.Newf(pgerr.ReservedName, "role name %q is reserved", old.Name).WithDetail("Role names starting with \"pg_\" are reserved.")
	}
	c := *old
	if err := d.roleOptions(&c, st.Options); err != nil {
		return err
	}
	if !ss.mayManage() { // everybody may change their own password, and nothing else
		own := old.OID == ss.role() && len(st.Options) == 1 && st.Options[0].Name == "PASSWORD"
		if !own {
			return denied("permission denied")
		}
	} else if err := d.mayGive(old, &c); err != nil {
		return err
	}
	if old.OID == catalog.Bootstrap && (!c.Super || !c.Login) {
		return pgerr.Newf(pgerr.FeatureNotSupported, "permission denied to alter role").WithDetail("The bootstrap user must have the SUPERUSER and the LOGIN attribute.")
	}
	return d.changeRoles("ALTER ROLE", func(tx *catalog.Tx) error {
		if err := tx.PutRole(&c); err != nil {
			return err
		}
		for _, o := range st.Options {
			for _, spec := range o.Roles {
				other, err := ss.findRole(spec)
				if err == nil {
					err = d.grantRole(tx, old.OID, other, false)
				}
				if err != nil {
					return err
				}
			}
		}
		return nil
	})
}

func (d *dispatch) renameRole(st *sql.AlterRole, old *catalog.Role) error {
	ss := d.ss
	switch {
	case old.OID == ss.sessionRole():
		return pgerr.Newf(pgerr.FeatureNotSupported, "session user cannot be renamed")
	case old.OID == ss.role():
		return pgerr.Newf(pgerr.FeatureNotSupported, "current user cannot be renamed")
	case old.OID == catalog.Bootstrap:
		return pgerr.Newf(pgerr.FeatureNotSupported, "the bootstrap superuser cannot be renamed")
	case strings.HasPrefix(old.Name, "pg_"):
		return pgerr.Newf(pgerr.ReservedName, "role name %q is reserved", old.Name).WithDetail("Role names starting with \"pg_\" are reserved.")
	case !ss.mayManage():
		return denied("permission denied to rename role")
	case old.Super && !ss.super():
		return denied("must be superuser to rename superusers")
	}
	if err := reservedRole(*st.Rename); err != nil {
		return err
	}
	return d.changeRoles("ALTER ROLE", func(tx *catalog.Tx) error {
		c := *old
		c.Name = st.Rename.Name
		return tx.PutRole(&c)
	})
}

func (d *dispatch) alterGroup(st *sql.AlterRole, group *catalog.Role) error {
	ss := d.ss
	if !ss.mayManage() && !ss.snapshot().IsAdminOf(ss.role(), group.OID) {
		return denied("must have admin option on role %q", group.Name)
	}
	return d.changeRoles("ALTER ROLE", func(tx *catalog.Tx) error {
		for _, spec := range st.Options[0].Roles {
			other, err := ss.findRole(spec)
			if err != nil {
				return err
			}
			if st.Options[0].Name == "ADD" {
				err = d.grantRole(tx, group.OID, other, false)
			} else {
				err = d.revokeRole(tx, group.OID, other, false)
			}
			if err != nil {
				return err
			}
		}
		return nil
	})
}

// alterSettings is ALTER ROLE and DATABASE .. SET and RESET.
func (d *dispatch) alterSettings(st *sql.AlterSettings) error {
	ss := d.ss
	var role uint32
	if st.Role != nil {
		var err error
		if role, err = ss.findRole(*st.Role); err != nil {
			return err
		}
		switch {
		case ss.snapshot().IsSuper(role) && !ss.super():
			return denied("must be superuser to alter superusers")
		case role != ss.role() && !ss.mayManage():
			return denied("permission denied")
		}
	}
	if st.Database != nil && st.Database.Name != databaseName {
		return pgerr.Newf(pgerr.InvalidCatalogName, "database %q does not exist", st.Database.Name)
	}
	switch {
	case role != 0:
	case st.Database == nil && !ss.super():
		return denied("must be superuser to alter settings globally")
	case !ss.snapshot().HasPrivilegesOf(ss.role(), ss.snapshot().Database().Owner):
		return denied("must be owner of database %s", databaseName)
	}
	return d.changeRoles("ALTER "+strings.ToUpper(string(st.Kind)), func(tx *catalog.Tx) (err error) {
		if role == 0 {
			db := tx.Snapshot().Database()
			config := &db.Config
			if st.Database == nil {
				config = &db.RoleConfig
			}
			if *config, err = ss.configured(*config, st); err == nil {
				tx.PutDatabase(db)
			}
			return err
		}
		old, ok := tx.Snapshot().Role(role)
		if !ok {
			return pgerr.Newf(pgerr.UndefinedObject, "role with OID %d does not exist", role)
		}
		c := *old
		config := &c.Config
		if st.Database != nil {
			config = &c.DatabaseConfig
		}
		if *config, err = ss.configured(*config, st); err != nil {
			return err
		}
		return tx.PutRole(&c)
	})
}

// configured is what settings become by the statement; nil are none.
func (ss *session) configured(config map[string]string, st *sql.AlterSettings) (map[string]string, error) {
	if len(st.Setting.Options) == 0 {
		return nil, nil
	}
	out := maps.Clone(config)
	if out == nil {
		out = map[string]string{}
	}
	for _, o := range st.Setting.Options {
		s, err := ss.srv.settings.table.find(o.Name)
		name, value := strings.ToLower(o.Name), o.Value
		switch {
		case err != nil && !customised(o.Name):
			return nil, err
		case err == nil && (s.scope == scopeReadOnly || s.scope == scopeServer || s.name == "session_authorization"):
			return nil, pgerr.Newf(pgerr.CantChangeRuntimeParam, "parameter %q cannot be set for a %s", s.name, st.Kind)
		case err == nil:
			name = s.name
		}
		if st.Setting.Kind == sql.AlterReset {
			delete(out, name)
			continue
		}
		if st.FromCurrent {
			value = ss.vars.get(name)
		}
		if err == nil {
			if value, err = s.normalise(value); err != nil {
				return nil, err
			}
		}
		out[name] = value
	}
	if len(out) == 0 {
		return nil, nil
	}
	return out, nil
}

// grantRole makes member a member of role.
func (d *dispatch) grantRole(tx *catalog.Tx, role, member uint32, admin bool) error {
	snap := tx.Snapshot()
	if snap.IsMemberStrictly(role, member) {
		return pgerr.Newf(pgerr.InvalidGrantOperation, "role %q is a member of role %q", roleName(snap, role), roleName(snap, member))
	}
	if role == catalog.RoleDatabaseOwner || member == catalog.RoleDatabaseOwner {
		return pgerr.Newf(pgerr.InvalidGrantOperation, "role \"pg_database_owner\" cannot have explicit members")
	}
	m, ok := snap.Role(member)
	if !ok {
		return pgerr.Newf(pgerr.UndefinedObject, "role with OID %d does not exist", member)
	}
	c := *m
	c.MemberOf = slices.Clone(m.MemberOf)
	i := slices.IndexFunc(c.MemberOf, func(x catalog.Membership) bool { return x.Role == role })
	if i >= 0 {
		if c.MemberOf[i].Admin || !admin {
			return d.ss.notice("NOTICE", pgerr.DuplicateObject, "role %q is already a member of role %q", m.Name, roleName(snap, role))
		}
		c.MemberOf[i].Admin = true
	} else {
		c.MemberOf = append(c.MemberOf, catalog.Membership{Role: role, Grantor: d.ss.role(), Admin: admin})
	}
	return tx.PutRole(&c)
}

// revokeRole ends a membership, or with option the right to grant it on.
func (d *dispatch) revokeRole(tx *catalog.Tx, role, member uint32, option bool) error {
	snap := tx.Snapshot()
	m, _ := snap.Role(member)
	c := *m
	c.MemberOf = slices.Clone(m.MemberOf)
	i := slices.IndexFunc(c.MemberOf, func(x catalog.Membership) bool { return x.Role == role })
	switch {
	case i < 0:
		return d.ss.notice("WARNING", pgerr.Warning, "role %q is not a member of role %q", m.Name, roleName(snap, role))
	case option:
		c.MemberOf[i].Admin = false
	default:
		c.MemberOf = slices.Delete(c.MemberOf, i, i+1)
	}
	return tx.PutRole(&c)
}

// grantRoles is GRANT and REVOKE of memberships.
func (d *dispatch) grantRoles(st *sql.Grant) error {
	ss := d.ss
	tag := "GRANT ROLE"
	if st.Revoke {
		tag = "REVOKE ROLE"
	}
	return d.changeRoles(tag, func(tx *catalog.Tx) error {
		for _, p := range st.Privileges {
			if len(p.Columns) > 0 {
				return pgerr.Newf(pgerr.SyntaxError, "column names cannot be included in GRANT/REVOKE ROLE").At(p.Pos)
			}
			role := ss.roleNamed(ss.snapshot(), p.Name)
			if role == nobody {
				return pgerr.Newf(pgerr.UndefinedObject, "role %q does not exist", p.Name)
			}
			r, _ := tx.Snapshot().Role(role)
			switch {
			case r.Super && !ss.super():
				return denied("must be superuser to alter superusers")
			case !r.Super && !ss.mayManage() && !tx.Snapshot().IsAdminOf(ss.role(), role):
				return denied("must have admin option on role %q", r.Name)
			}
			for _, g := range st.Grantees {
				member, err := ss.findRole(g)
				if err != nil {
					return err
				}
				if st.Revoke {
					err = d.revokeRole(tx, role, member, st.OptionOnly)
				} else {
					err = d.grantRole(tx, role, member, st.GrantOption)
				}
				if err != nil {
					return err
				}
			}
		}
		return nil
	})
}

// dropRoles is DROP ROLE, USER, GROUP.
func (d *dispatch) dropRoles(st *sql.Drop) error {
	ss := d.ss
	if !ss.mayManage() {
		return denied("permission denied to drop role")
	}
	var drop []*catalog.Role
	for _, n := range st.Names {
		r, ok := ss.snapshot().LookupRole(n.Name)
		if !ok {
			if !st.IfExists {
				return pgerr.Newf(pgerr.UndefinedObject, "role %q does not exist", n.Name)
			}
			if err := ss.notice("NOTICE", pgerr.SuccessfulCompletion, "role %q does not exist, skipping", n.Name); err != nil {
				return err
			}
			continue
		}
		switch {
		case r.OID == ss.role():
			return pgerr.Newf(pgerr.ObjectInUse, "current user cannot be dropped")
		case r.OID == ss.sessionRole():
			return pgerr.Newf(pgerr.ObjectInUse, "session user cannot be dropped")
		case r.Super && !ss.super():
			return denied("must be superuser to drop superusers")
		case catalog.IsPredefined(r.OID):
			return pgerr.Newf(pgerr.DependentObjectsStillExist, "cannot drop role %s because it is required by the database system", r.Name)
		}
		drop = append(drop, r)
	}
	return d.changeRoles("DROP ROLE", func(tx *catalog.Tx) error {
		for _, r := range drop {
			if deps := roleDependencies(tx.Snapshot(), r.OID); len(deps) > 0 {
				return pgerr.Newf(pgerr.DependentObjectsStillExist, "role %q cannot be dropped because some objects depend on it", r.Name).
					WithDetail("%s", strings.Join(deps, "\n"))
			}
			tx.RemoveRole(r.OID)
		}
		return nil
	})
}

// roleDependencies says what keeps a role from being dropped.
func roleDependencies(snap *catalog.Snapshot, role uint32) []string {
	var out []string
	eachSecurable(snap, func(what string, x catalog.Securable) {
		if x.Class != catalog.ClassColumn && catalog.OwnerOf(x.Owner) == role {
			out = append(out, "owner of "+what)
		}
		if slices.ContainsFunc(x.ACL, func(a catalog.ACL) bool {
			return (a.Grantee == role || a.Grantor == role) && catalog.OwnerOf(x.Owner) != role
		}) {
			out = append(out, "privileges for "+what)
		}
	})
	for _, dflt := range snap.DefaultACLs() {
		kind := map[string]string{"r": "relations", "S": "sequences", "f": "functions", "T": "types", "n": "schemas"}[dflt.Class]
		in := ""
		if dflt.Schema != "" {
			in = " in schema " + dflt.Schema
		}
		if catalog.OwnerOf(dflt.Role) == role {
			out = append(out, fmt.Sprintf("owner of default privileges on new %s belonging to role %s%s", kind, roleName(snap, role), in))
		} else if slices.ContainsFunc(dflt.ACL, func(a catalog.ACL) bool { return a.Grantee == role }) {
			out = append(out, fmt.Sprintf("privileges for default privileges on new %s belonging to role %s%s", kind, roleName(snap, dflt.Role), in))
		}
	}
	return out
}

// eachSecurable calls f with everything that has an owner or privileges, as messages name it.
func eachSecurable(snap *catalog.Snapshot, f func(what string, x catalog.Securable)) {
	f("database "+databaseName, snap.Database().Securable())
	for _, n := range snap.Namespaces() {
		f("schema "+n.Name, n.Securable())
	}
	for _, o := range snap.Objects() {
		if o.Kind == catalog.Index {
			continue // belongs to its table
		}
		name := sql.QuoteIdent(o.Name)
		if o.Schema != catalog.DefaultSchema {
			name = sql.QuoteIdent(o.Schema) + "." + name
		}
		f(string(o.Kind)+" "+name, o.Securable())
		for _, c := range o.Columns {
			if c.ACL != nil {
				f("column "+sql.QuoteIdent(c.Name)+" of "+string(o.Kind)+" "+name, catalog.Securable{Class: catalog.ClassColumn, Owner: o.Owner, ACL: c.ACL})
			}
		}
	}
	for _, e := range snap.Enums() {
		f("type "+e.Name, catalog.Securable{Class: catalog.ClassType, Owner: e.Owner, ACL: e.ACL})
	}
	for _, fn := range snap.Functions() {
		f("function "+functionTitle(fn), catalog.Securable{Class: catalog.ClassFunction, Owner: fn.Owner, ACL: fn.ACL})
	}
}

// functionTitle is a function with its argument types.
func functionTitle(f *catalog.Function) string {
	args := make([]string, len(f.Args))
	for i, a := range f.Args {
		args[i] = a.Type.String()
	}
	return sql.QuoteIdent(f.Name) + "(" + strings.Join(args, ",") + ")"
}
