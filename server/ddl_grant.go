package server

import (
	"slices"
	"strings"

	"github.com/streamdb/streamdb/catalog"
	"github.com/streamdb/streamdb/internal/pgerr"
	"github.com/streamdb/streamdb/planner"
	"github.com/streamdb/streamdb/sql"
)

// securable is something that GRANT names.
type securable struct {
	catalog.Securable
	kind string // in messages
	name string
	put  func(tx *catalog.Tx, owner uint32, acl []catalog.ACL) error
	// of a relation
	object *catalog.Object
}

func (ss *session) relationSecurable(o *catalog.Object) securable {
	return securable{
		Securable: o.Securable(), kind: kindInMessages(o.Kind), name: o.Name, object: o,
		put: func(tx *catalog.Tx, owner uint32, acl []catalog.ACL) error {
			cur, ok := tx.Snapshot().Get(o.ID)
			if !ok {
				return undefinedRelation(sql.Name{Name: o.Name})
			}
			c := *cur
			c.Owner, c.ACL = storedOwner(owner), acl
			return tx.Replace(&c)
		},
	}
}

// storedOwner is how an owner is recorded: the bootstrap superuser as nobody.
func storedOwner(oid uint32) uint32 {
	if oid == catalog.Bootstrap {
		return 0
	}
	return oid
}

func schemaSecurable(n catalog.Namespace) securable {
	return securable{Securable: n.Securable(), kind: "schema", name: n.Name, put: func(tx *catalog.Tx, owner uint32, acl []catalog.ACL) error {
		cur, ok := tx.Snapshot().Namespace(n.Name)
		if !ok {
			return pgerr.Newf(pgerr.InvalidSchemaName, "schema %q does not exist", n.Name)
		}
		cur.Owner, cur.ACL = storedOwner(owner), acl
		tx.PutNamespace(cur)
		return nil
	}}
}

func databaseSecurable(db catalog.Database) securable {
	return securable{Securable: db.Securable(), kind: "database", name: databaseName, put: func(tx *catalog.Tx, owner uint32, acl []catalog.ACL) error {
		cur := tx.Snapshot().Database()
		cur.Owner, cur.ACL = storedOwner(owner), acl
		tx.PutDatabase(cur)
		return nil
	}}
}

func typeSecurable(e *catalog.Enum) securable {
	return securable{
		Securable: catalog.Securable{Class: catalog.ClassType, Owner: e.Owner, ACL: e.ACL}, kind: "type", name: e.Name,
		put: func(tx *catalog.Tx, owner uint32, acl []catalog.ACL) error {
			c := *e
			c.Owner, c.ACL = storedOwner(owner), acl
			return tx.PutEnum(&c)
		},
	}
}

func functionSecurable(f *catalog.Function) securable {
	return securable{
		Securable: catalog.Securable{Class: catalog.ClassFunction, Owner: f.Owner, ACL: f.ACL}, kind: "function", name: f.Name,
		put: func(tx *catalog.Tx, owner uint32, acl []catalog.ACL) error {
			c := *f
			c.Owner, c.ACL = storedOwner(owner), acl
			tx.PutFunction(&c)
			return nil
		},
	}
}

// kindInMessages is what messages about privileges call a relation.
func kindInMessages(k catalog.Kind) string {
	if k == catalog.Source {
		return "source"
	}
	return string(k)
}

// targets finds what a GRANT names.
func (d *dispatch) grantTargets(st *sql.Grant) ([]securable, error) {
	ss := d.ss
	snap := ss.snapshot()
	if st.AllInSchema {
		return d.allInSchemas(st)
	}
	var out []securable
	for _, f := range st.Functions {
		fn, err := ss.findFunction(f)
		if err != nil {
			return nil, err
		}
		out = append(out, functionSecurable(fn))
	}
	for _, n := range st.Objects {
		switch st.Kind {
		case sql.KindTable, sql.KindSequence:
			if _, ok := lookupSystem(n.Schema, n.Name); ok && n.Schema != "" {
				return nil, pgerr.Newf(pgerr.FeatureNotSupported, "privileges of system relations cannot be changed").At(n.Pos)
			}
			o, ok := ss.resolve(n)
			if !ok {
				return nil, atNowhere(undefinedRelation(n))
			}
			if o.Kind == catalog.Index {
				return nil, pgerr.Newf(pgerr.WrongObjectType, "%q is an index", n.Name)
			}
			if o.Kind == catalog.Sink {
				return nil, pgerr.Newf(pgerr.WrongObjectType, "%q is a sink", n.Name).WithHint("Nobody but its owner can do anything with a sink.")
			}
			if st.Kind == sql.KindSequence && o.Kind != catalog.Sequence {
				return nil, pgerr.Newf(pgerr.WrongObjectType, "%q is not a sequence", n.Name)
			}
			out = append(out, ss.relationSecurable(o))
		case sql.KindSchema:
			ns, ok := snap.Namespace(n.Name)
			if !ok {
				return nil, pgerr.Newf(pgerr.InvalidSchemaName, "schema %q does not exist", n.Name)
			}
			out = append(out, schemaSecurable(ns))
		case sql.KindDatabase:
			if n.Name != databaseName {
				return nil, pgerr.Newf(pgerr.InvalidCatalogName, "database %q does not exist", n.Name)
			}
			out = append(out, databaseSecurable(snap.Database()))
		case sql.KindType:
			e, ok := ss.findEnum(n)
			if !ok {
				return nil, pgerr.Newf(pgerr.UndefinedObject, "type %q does not exist", n.Key())
			}
			out = append(out, typeSecurable(e))
		default:
			return nil, pgerr.Newf(pgerr.FeatureNotSupported, "GRANT ON %s is not supported", strings.ToUpper(string(st.Kind))).At(n.Pos).
				WithHint("There are no such objects of users.")
		}
	}
	return out, nil
}

func (ss *session) findEnum(n sql.Name) (*catalog.Enum, bool) {
	if n.Schema != "" {
		return ss.snapshot().LookupEnum(n.Schema, n.Name)
	}
	for _, p := range ss.vars.searchPath() {
		if e, ok := ss.snapshot().LookupEnum(p, n.Name); ok {
			return e, true
		}
	}
	return nil, false
}

// findFunction finds a function of a user by name, and by its arguments where they are given.
func (ss *session) findFunction(f sql.FunctionName) (*catalog.Function, error) {
	path := ss.vars.searchPath()
	if f.Schema != "" {
		path = []string{f.Schema}
	}
	var found []*catalog.Function
	for _, p := range path {
		for _, fn := range ss.snapshot().FunctionsNamed(p, f.Name.Name) {
			ok := !f.HasArgs || len(fn.Args) == len(f.Args)
			for i := range f.Args {
				if !ok {
					break
				}
				t, err := planner.ResolveType(*f.Args[i], ss.srv.planCatalog(ss.snapshot(), path))
				if err != nil {
					return nil, err
				}
				ok = t.OID == fn.Args[i].Type.OID
			}
			if ok {
				found = append(found, fn)
			}
		}
	}
	switch {
	case len(found) == 1, len(found) > 1 && f.HasArgs:
		return found[0], nil
	case len(found) > 1:
		return nil, pgerr.Newf(pgerr.AmbiguousFunction, "function name %q is not unique", f.Key()).WithHint("Specify the argument list to select the function unambiguously.")
	case f.HasArgs:
		args := make([]string, len(f.Args))
		for i, a := range f.Args {
			args[i] = a.Text
		}
		return nil, pgerr.Newf(pgerr.UndefinedFunction, "function %s(%s) does not exist", f.Key(), strings.Join(args, ", "))
	}
	return nil, pgerr.Newf(pgerr.UndefinedFunction, "could not find a function named %q", f.Key())
}

func (d *dispatch) allInSchemas(st *sql.Grant) ([]securable, error) {
	snap := d.ss.snapshot()
	var out []securable
	for _, n := range st.Objects {
		if _, ok := snap.Namespace(n.Name); !ok {
			return nil, pgerr.Newf(pgerr.InvalidSchemaName, "schema %q does not exist", n.Name)
		}
		if st.Kind == sql.KindFunction {
			for _, f := range snap.Functions() {
				if f.Schema == n.Name {
					out = append(out, functionSecurable(f))
				}
			}
			continue
		}
		for _, o := range snap.Objects() {
			sequence := o.Kind == catalog.Sequence
			if o.Schema == n.Name && o.Kind != catalog.Index && o.Kind != catalog.Sink && sequence == (st.Kind == sql.KindSequence) {
				out = append(out, d.ss.relationSecurable(o))
			}
		}
	}
	return out, nil
}

// classOf is the class of a kind in GRANT.
func classOf(k sql.ObjectKind) catalog.Class {
	switch k {
	case sql.KindSequence:
		return catalog.ClassSequence
	case sql.KindSchema:
		return catalog.ClassSchema
	case sql.KindDatabase:
		return catalog.ClassDatabase
	case sql.KindFunction:
		return catalog.ClassFunction
	case sql.KindType:
		return catalog.ClassType
	}
	return catalog.ClassRelation
}

// wanted reads the privileges of a statement: those for the whole object, and those for single columns.
func wanted(st *sql.Grant, class catalog.Class) (whole catalog.Privileges, columns map[string]catalog.Privileges, err error) {
	columns = map[string]catalog.Privileges{}
	what := map[catalog.Class]string{
		catalog.ClassRelation: "relation", catalog.ClassSequence: "sequence", catalog.ClassSchema: "schema", catalog.ClassDatabase: "database",
		catalog.ClassFunction: "function", catalog.ClassType: "type",
	}[class]
	if class == catalog.ClassRelation && st.Kind == sql.KindTable {
		what = "table"
	}
	for _, p := range st.Privileges {
		of, name := class, what
		if len(p.Columns) > 0 {
			if class != catalog.ClassRelation {
				return 0, nil, pgerr.Newf(pgerr.InvalidGrantOperation, "column privileges are only valid for relations")
			}
			of, name = catalog.ClassColumn, "column"
		}
		var mask catalog.Privileges
		if p.Name == "all" {
			mask = catalog.AllPrivileges(of)
		} else {
			var ok bool
			if mask, ok = catalog.PrivilegeNamed(p.Name); !ok {
				return 0, nil, pgerr.Newf(pgerr.SyntaxError, "unrecognized privilege type %q", p.Name)
			}
			if mask&catalog.AllPrivileges(of) == 0 && !(class == catalog.ClassRelation && mask == catalog.PrivUsage && st.AllInSchema) {
				return 0, nil, pgerr.Newf(pgerr.InvalidGrantOperation, "invalid privilege type %s for %s", strings.ToUpper(p.Name), name)
			}
		}
		if len(p.Columns) == 0 {
			whole |= mask
			continue
		}
		for _, c := range p.Columns {
			columns[c.Name] |= mask
		}
	}
	return whole, columns, nil
}

// grant is GRANT and REVOKE.
func (d *dispatch) grant(st *sql.Grant) error {
	ss := d.ss
	if st.GrantedBy != nil {
		by, err := ss.findRole(*st.GrantedBy)
		if err != nil {
			return err
		}
		if by != ss.role() {
			return pgerr.Newf(pgerr.FeatureNotSupported, "grantor must be current user")
		}
	}
	if st.Kind == "" {
		return d.grantRoles(st)
	}
	grantees, err := d.granteesOf(st)
	if err != nil {
		return err
	}
	tag := "GRANT"
	if st.Revoke {
		tag = "REVOKE"
	}
	unlock, err := d.lockSchema()
	if err != nil {
		return err
	}
	defer unlock()
	targets, err := d.grantTargets(st)
	if err != nil {
		return err
	}
	if err := ss.update(func(tx *catalog.Tx) error {
		for _, t := range targets {
			whole, columns, err := wanted(st, t.classFor(st))
			if err != nil {
				return err
			}
			if err := d.grantOn(tx, st, t, whole, columns, grantees); err != nil {
				return err
			}
		}
		return nil
	}); err != nil {
		return err
	}
	return d.complete(tag)
}

// classFor is the class whose privileges the statement speaks of: GRANT ON TABLE may name a sequence.
func (t securable) classFor(st *sql.Grant) catalog.Class {
	if t.object != nil {
		return t.Class
	}
	return classOf(st.Kind)
}

func (d *dispatch) granteesOf(st *sql.Grant) ([]uint32, error) {
	var out []uint32
	for _, g := range st.Grantees {
		if g.Special == "public" {
			if st.GrantOption {
				return nil, pgerr.Newf(pgerr.InvalidGrantOperation, "grant options can only be granted to roles")
			}
			out = append(out, 0)
			continue
		}
		oid, err := d.ss.findRole(g)
		if err != nil {
			return nil, err
		}
		out = append(out, oid)
	}
	return out, nil
}

func (d *dispatch) grantOn(tx *catalog.Tx, st *sql.Grant, t securable, whole catalog.Privileges, columns map[string]catalog.Privileges, grantees []uint32) error {
	snap := tx.Snapshot()
	role := d.ss.role()
	grantor, may := role, snap.MayGrant(role, t.Securable)
	if snap.HasPrivilegesOf(role, t.Owner) {
		grantor = catalog.OwnerOf(t.Owner)
	}
	if whole != 0 {
		allowed := whole & may
		if err := d.grantCheck(snap, st, t, whole, allowed); err != nil {
			return err
		}
		acl, err := changed(t.List(), st, grantor, allowed, grantees, t.Owner)
		if err != nil {
			return err
		}
		if allowed != 0 {
			if err := t.put(tx, t.Owner, acl); err != nil {
				return err
			}
		}
		if st.Revoke && t.object != nil { // what was granted on single columns goes with it
			for i := range t.object.Columns {
				if c := &t.object.Columns[i]; c.ACL != nil {
					columns[c.Name] |= whole & catalog.AllPrivileges(catalog.ClassColumn)
				}
			}
		}
	}
	return d.grantColumns(tx, st, t, columns, grantees, grantor)
}

func (d *dispatch) grantColumns(tx *catalog.Tx, st *sql.Grant, t securable, columns map[string]catalog.Privileges, grantees []uint32, grantor uint32) error {
	if len(columns) == 0 {
		return nil
	}
	o, ok := tx.Snapshot().Get(t.object.ID)
	if !ok {
		return undefinedRelation(sql.Name{Name: t.name})
	}
	c := *o
	c.Columns = slices.Clone(o.Columns)
	for name, mask := range columns {
		i := c.Column(name)
		if i < 0 || c.Columns[i].Hidden {
			return pgerr.Newf(pgerr.UndefinedColumn, "column %q of relation %q does not exist", name, t.name)
		}
		x := catalog.Securable{Class: catalog.ClassColumn, Owner: t.Owner, ACL: c.Columns[i].ACL}
		allowed := mask & (tx.Snapshot().MayGrant(d.ss.role(), x) | tx.Snapshot().MayGrant(d.ss.role(), t.Securable))
		if err := d.grantCheck(tx.Snapshot(), st, t, mask, allowed); err != nil {
			return err
		}
		acl, err := changed(c.Columns[i].ACL, st, grantor, allowed, grantees, t.Owner)
		if err != nil {
			return err
		}
		acl = slices.DeleteFunc(acl, func(a catalog.ACL) bool { return a.Privileges == "" })
		if len(acl) == 0 {
			acl = nil
		}
		c.Columns[i].ACL = acl
	}
	return tx.Replace(&c)
}

// grantCheck says what becomes of privileges that the session may not grant.
func (d *dispatch) grantCheck(snap *catalog.Snapshot, st *sql.Grant, t securable, want, allowed catalog.Privileges) error {
	if allowed == want {
		return nil
	}
	all := st.Privileges[0].Name == "all" && allowed != 0
	switch {
	case all:
		return nil
	case allowed == 0 && snap.Has(d.ss.role(), t.Securable, catalog.AllPrivileges(t.Class)) == 0:
		return denied("permission denied for %s %s", t.kind, t.name)
	}
	code, verb := pgerr.Code("01007"), "not all privileges were granted"
	switch {
	case st.Revoke && allowed == 0:
		code, verb = "01006", "no privileges could be revoked"
	case st.Revoke:
		code, verb = "01006", "not all privileges could be revoked"
	case allowed == 0:
		verb = "no privileges were granted"
	}
	return d.ss.notice("WARNING", code, "%s for %q", verb, t.name)
}

// changed applies a statement to a list of privileges.
func changed(list []catalog.ACL, st *sql.Grant, grantor uint32, mask catalog.Privileges, grantees []uint32, owner uint32) ([]catalog.ACL, error) {
	for _, g := range grantees {
		c := catalog.Grant{Grantee: g, Grantor: grantor, Privileges: mask, Cascade: st.Cascade}
		if !st.Revoke {
			c.Option = st.GrantOption && g != catalog.OwnerOf(owner)
			list = catalog.AddACL(list, c)
			continue
		}
		c.Option = st.OptionOnly
		var dependent bool
		if list, dependent = catalog.RemoveACL(list, c, owner); dependent {
			return nil, pgerr.Newf(pgerr.DependentObjectsStillExist, "dependent privileges exist").WithHint("Use CASCADE to revoke them too.")
		}
	}
	return list, nil
}

// alterDefaultPrivileges changes what new objects begin with.
func (d *dispatch) alterDefaultPrivileges(st *sql.AlterDefaultPrivileges) error {
	ss := d.ss
	class := classOf(st.Grant.Kind)
	grantees, err := d.granteesOf(&st.Grant)
	if err != nil {
		return err
	}
	mask, _, err := wanted(&st.Grant, class)
	if err != nil {
		return err
	}
	if class == catalog.ClassSchema && len(st.Schemas) > 0 {
		return pgerr.Newf(pgerr.InvalidGrantOperation, "cannot use IN SCHEMA clause when using GRANT/REVOKE ON SCHEMAS")
	}
	roles := []uint32{ss.role()}
	if len(st.Roles) > 0 {
		roles = nil
		for _, r := range st.Roles {
			oid, err := ss.findRole(r)
			if err != nil {
				return err
			}
			if !ss.snapshot().HasPrivilegesOf(ss.role(), oid) {
				return denied("permission denied to change default privileges")
			}
			roles = append(roles, oid)
		}
	}
	schemas := []string{""}
	if len(st.Schemas) > 0 {
		schemas = nil
		for _, s := range st.Schemas {
			if _, ok := ss.snapshot().Namespace(s.Name); !ok {
				return pgerr.Newf(pgerr.InvalidSchemaName, "schema %q does not exist", s.Name)
			}
			schemas = append(schemas, s.Name)
		}
	}
	return d.changeRoles("ALTER DEFAULT PRIVILEGES", func(tx *catalog.Tx) error {
		all := slices.Clone(tx.Snapshot().DefaultACLs())
		for _, role := range roles {
			for _, schema := range schemas {
				letter := catalog.DefaultClass(class)
				i := slices.IndexFunc(all, func(x catalog.DefaultACL) bool {
					return catalog.OwnerOf(x.Role) == role && x.Schema == schema && x.Class == letter
				})
				var base []catalog.ACL
				if schema == "" {
					base = catalog.OwnerDefault(class, role)
				}
				entry := catalog.DefaultACL{Role: role, Schema: schema, Class: letter, ACL: base}
				if i >= 0 {
					entry = all[i]
				}
				list, err := changed(entry.ACL, &st.Grant, role, mask, grantees, role)
				if err != nil {
					return err
				}
				list = slices.DeleteFunc(list, func(a catalog.ACL) bool { return a.Privileges == "" && schema != "" })
				entry.ACL = list
				same := sameACL(list, base)
				switch {
				case same && i >= 0:
					all = slices.Delete(all, i, i+1)
				case same:
				case i >= 0:
					all[i] = entry
				default:
					entry.OID = uint32(tx.NextID())
					all = append(all, entry)
				}
			}
		}
		tx.SetDefaultACLs(all)
		return nil
	})
}

func sameACL(a, b []catalog.ACL) bool {
	if len(a) != len(b) {
		return false
	}
	for _, x := range a {
		if !slices.Contains(b, x) {
			return false
		}
	}
	return true
}
