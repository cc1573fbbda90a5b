package catalog

import (
	"strings"

	"github.com/streamdb/streamdb/internal/pgerr"
	"github.com/streamdb/streamdb/sql/expr"
	"github.com/streamdb/streamdb/sql/functions"
	"github.com/streamdb/streamdb/types"
)

// asked is whom a function like has_table_privilege asks about.
type asked struct {
	snap   *Snapshot
	role   uint32
	public bool
}

// askedRole finds a role; an OID needs not be that of one.
func (i *Info) askedRole(r expr.Ref, publicToo bool) (asked, error) {
	a := asked{snap: i.Snap, role: r.OID, public: !r.Named && r.OID == 0}
	if r.Named {
		if publicToo && r.Name == "public" {
			a.public = true
			return a, nil
		}
		var ok bool
		if a.role, ok = i.RoleOID(r.Name); !ok {
			return a, pgerr.Newf(pgerr.UndefinedObject, "role %q does not exist", r.Name)
		}
	}
	if a.role == sessionOID { // a guest is the superuser
		a.role = Bootstrap
	}
	return a, nil
}

// has reports whether the role has one of the privileges, or one of the others with grant option.
func (a asked) has(x Securable, plain, grantable Privileges) bool {
	if a.public {
		return a.snap.publicHas(x, plain) != 0
	}
	return a.snap.Has(a.role, x, plain) != 0 || a.snap.MayGrant(a.role, x)&grantable != 0
}

// optionSuffix asks for the right to grant.
const optionSuffix = " WITH GRANT OPTION"

// privilegeList reads what has_table_privilege and its like are asked for; RULE is a privilege of old that nobody has.
func privilegeList(text string, of Class) (plain, grantable Privileges, err error) {
	for _, word := range strings.Split(text, ",") {
		word = strings.TrimSpace(word)
		name, option := strings.CutSuffix(strings.ToUpper(word), optionSuffix)
		if of == ClassRelation && name == "RULE" {
			continue
		}
		p, ok := PrivilegeNamed(name)
		switch {
		case !ok || p&AllPrivileges(of) == 0:
			return 0, 0, pgerr.Newf(pgerr.InvalidParameterValue, "unrecognized privilege type: %q", word)
		case option:
			grantable |= p
		default:
			plain |= p
		}
	}
	return plain, grantable, nil
}

// HasPrivilege implements expr.CatalogInfo.
func (i *Info) HasPrivilege(q *expr.PrivilegeQuery) (has, known bool, err error) {
	a, err := i.askedRole(q.User, true)
	if err != nil {
		return false, false, err
	}
	switch q.Kind {
	case "table", "sequence", "any_column", "column":
		return i.hasOnRelation(a, q)
	}
	x, known, err := i.securable(q)
	if err != nil {
		return false, false, err
	}
	if !known {
		x.Class = askedClasses[q.Kind]
	}
	plain, grantable, err := privilegeList(q.Privileges, x.Class)
	return known && a.has(x, plain, grantable), known, err
}

var askedClasses = map[string]Class{
	"database": ClassDatabase, "schema": ClassSchema, "function": ClassFunction, "type": ClassType, "language": ClassLanguage, "tablespace": ClassSpace,
	"server": ClassServer, "foreign_data_wrapper": ClassWrapper,
}

func (i *Info) hasOnRelation(a asked, q *expr.PrivilegeQuery) (has, known bool, err error) {
	oid := q.Object.OID
	if q.Object.Named {
		var ok bool
		if oid, ok = i.RelationOID(q.Object.Name, q.Path); !ok {
			parts, ok := functions.SplitName(q.Object.Name)
			if !ok {
				return false, false, pgerr.Newf(pgerr.InvalidName, "invalid name syntax")
			}
			if len(parts) > 1 {
				if space := parts[len(parts)-2]; !IsSystemSchema(space) {
					if _, ok := i.Snap.Namespace(space); !ok {
						return false, false, pgerr.Newf(pgerr.InvalidSchemaName, "schema %q does not exist", space)
					}
				}
			}
			return false, false, pgerr.Newf(pgerr.UndefinedTable, "relation %q does not exist", strings.Join(parts, "."))
		}
	}
	r, _, found := i.find(oid)
	x := Securable{Class: ClassRelation}
	if found && r.sys != nil {
		x = r.sys.Securable()
	} else if found {
		x = r.object.Securable()
	}
	var column *attribute
	if q.Kind == "column" && found {
		for k := range r.columns {
			if c := &r.columns[k]; q.Column.Named && c.Name == q.Column.Name || !q.Column.Named && c.num == int64(int32(q.Column.OID)) {
				column = c
			}
		}
		if column == nil && q.Column.Named {
			return false, false, pgerr.Newf(pgerr.UndefinedColumn, "column %q of relation %q does not exist", q.Column.Name, r.name)
		}
	}
	class := ClassRelation
	switch q.Kind {
	case "sequence":
		class = ClassSequence
	case "column", "any_column":
		class = ClassColumn
	}
	plain, grantable, err := privilegeList(q.Privileges, class)
	if err != nil {
		return false, false, err
	}
	if q.Kind == "sequence" && found && x.Class != ClassSequence {
		if !q.Object.Named {
			return false, false, nil
		}
		return false, false, pgerr.Newf(pgerr.WrongObjectType, "%q is not a sequence", r.name)
	}
	if !found || q.Kind == "column" && column == nil {
		return false, false, nil
	}
	has = a.has(x, plain, grantable)
	on := func(c *attribute) bool {
		return c.ACL != nil && a.has(Securable{Class: ClassColumn, Owner: x.Owner, ACL: c.ACL}, plain, grantable)
	}
	switch {
	case has:
	case q.Kind == "column":
		has = on(column)
	case q.Kind == "any_column":
		for k := range r.columns {
			has = has || on(&r.columns[k])
		}
	}
	return has, true, nil
}

// securable finds what is no relation; known is false when there is no object of the OID.
func (i *Info) securable(q *expr.PrivilegeQuery) (x Securable, known bool, err error) {
	name, oid, named := q.Object.Name, q.Object.OID, q.Object.Named
	missing := func(code pgerr.Code, kind string, ok bool) error {
		if named && !ok {
			return pgerr.Newf(code, "%s %q does not exist", kind, name)
		}
		return nil
	}
	switch q.Kind {
	case "database":
		ok := named && name == i.Database || !named && oid == databaseOID
		return i.Snap.Database().Securable(), ok, missing(pgerr.InvalidCatalogName, "database", ok)
	case "schema":
		if !named {
			name, _ = i.NamespaceName(oid)
		}
		n, ok := i.Snap.Namespace(name)
		return n.Securable(), ok, missing(pgerr.InvalidSchemaName, "schema", ok)
	case "language":
		ok := hasRecorded("pg_language", "lanname", q.Object)
		return Securable{Class: ClassLanguage}, ok, missing(pgerr.UndefinedObject, "language", ok)
	case "tablespace":
		ok := hasRecorded("pg_tablespace", "spcname", q.Object)
		return Securable{Class: ClassSpace}, ok, missing(pgerr.UndefinedObject, "tablespace", ok)
	case "foreign_data_wrapper":
		ok := named && name == wrapperName || !named && oid == wrapperOID
		return Securable{Class: ClassWrapper}, ok, missing(pgerr.UndefinedObject, "foreign-data wrapper", ok)
	case "server":
		ok := false
		for _, s := range (&SystemData{Snap: i.Snap}).servers() {
			ok = ok || named && s.name == name || !named && s.oid == oid
		}
		return Securable{Class: ClassServer}, ok, missing(pgerr.UndefinedObject, "server", ok)
	case "type":
		if named {
			if oid, err = i.askedType(name, q.Path); err != nil {
				return x, false, err
			}
		}
		x, known = i.Snap.TypeSecurable(types.OID(oid))
		return x, known, nil
	}
	if named {
		if oid, err = functions.FindProcedure(&expr.Env{Catalog: i, Schemas: q.Path}, name); err != nil {
			return x, false, err
		}
	}
	x, known = i.functionSecurable(oid)
	return x, known, nil
}

// hasRecorded looks for a row of a relation whose content never changes.
func hasRecorded(relation, column string, what expr.Ref) bool {
	r := recordings[relation]()
	if r.err != nil {
		return false
	}
	for k := range r.rows.N {
		if what.Named && r.str(k, column) == what.Name || !what.Named && uint32(r.int(k, "oid")) == what.OID {
			return true
		}
	}
	return false
}

func (i *Info) askedType(name string, path []string) (uint32, error) {
	if oid, ok := types.TypeByName(name); ok {
		return uint32(oid), nil
	}
	return i.TypeOID(name, path)
}

// TypeSecurable returns the owner and the privileges of a type: an array's are its elements'.
func (s *Snapshot) TypeSecurable(oid types.OID) (Securable, bool) {
	if e, ok := types.T(oid).Elem(); ok {
		oid = e.OID
	}
	if e, ok := s.Enum(uint32(oid)); ok {
		return Securable{Class: ClassType, Owner: e.Owner, ACL: e.ACL}, true
	}
	if _, ok := types.InfoOf(oid); ok {
		return Securable{Class: ClassType}, true
	}
	if id, class, _ := splitOID(uint32(oid)); class == classRowType || class == classRowArray {
		if o, ok := s.Get(id); ok {
			return Securable{Class: ClassType, Owner: o.Owner}, true
		}
	}
	return Securable{}, false
}

// Securable returns the owner and the privileges of a function.
func (f *Function) Securable() Securable {
	return Securable{Class: ClassFunction, Owner: f.Owner, ACL: f.ACL}
}

// guardedFunctions are the builtin functions that only superusers call, and roles they name.
var guardedFunctions = map[string]bool{"pg_reload_conf": true, "pg_rotate_logfile": true, "pg_hba_file_rules": true, "pg_ident_file_mappings": true}

// BuiltinSecurable returns the privileges of a builtin function.
func BuiltinSecurable(name string) Securable {
	x := Securable{Class: ClassFunction}
	if guardedFunctions[name] {
		x.ACL = []ACL{{Grantee: Bootstrap, Grantor: Bootstrap, Privileges: PrivExecute.String()}}
	}
	return x
}

func (i *Info) functionSecurable(oid uint32) (Securable, bool) {
	if f, ok := i.Snap.functions[oid]; ok {
		return f.Securable(), true
	}
	for _, f := range functionList(i.Registry) {
		if f.oid == oid {
			return BuiltinSecurable(f.Name), true
		}
	}
	return Securable{}, hasRecorded("pg_proc", "proname", expr.Ref{OID: oid})
}

// HasRole implements expr.CatalogInfo.
func (i *Info) HasRole(user, role expr.Ref, privilege string) (bool, error) {
	u, err := i.askedRole(user, false)
	if err != nil {
		return false, err
	}
	r, err := i.askedRole(role, false)
	if err != nil {
		return false, err
	}
	has := false
	for _, word := range strings.Split(privilege, ",") {
		word = strings.TrimSpace(word)
		switch strings.ToUpper(word) {
		case "USAGE":
			has = has || i.Snap.IsSuper(u.role) || u.role == r.role || i.Snap.reach(u.role, true)[r.role]
		case "MEMBER":
			has = has || i.Snap.IsMember(u.role, r.role)
		case "USAGE WITH GRANT OPTION", "USAGE WITH ADMIN OPTION", "MEMBER WITH GRANT OPTION", "MEMBER WITH ADMIN OPTION":
			has = has || i.Snap.IsAdminOf(u.role, r.role)
		default:
			return false, pgerr.Newf(pgerr.InvalidParameterValue, "unrecognized privilege type: %q", word)
		}
	}
	return has, nil
}
