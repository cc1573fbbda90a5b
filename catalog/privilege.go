package catalog

import (
	"slices"
	"strconv"
	"strings"

	"github.com/streamdb/streamdb/sql/functions"
)

// Privileges is a set of privileges.
type Privileges uint16

// The privileges, in the order in which PostgreSQL prints them.
const (
	PrivInsert Privileges = 1 << iota
	PrivSelect
	PrivUpdate
	PrivDelete
	PrivTruncate
	PrivReferences
	PrivTrigger
	PrivExecute
	PrivUsage
	PrivCreate
	PrivTemporary
	PrivConnect
)

const privLetters = functions.ACLLetters

// privNames are the keywords in the order of the bits.
var privNames = functions.ACLNames

// String prints the letters of aclitem.
func (p Privileges) String() string {
	var b strings.Builder
	for i := range len(privLetters) {
		if p&(1<<i) != 0 {
			b.WriteByte(privLetters[i])
		}
	}
	return b.String()
}

// Names lists the keywords.
func (p Privileges) Names() []string {
	var out []string
	for i, n := range privNames {
		if p&(1<<i) != 0 {
			out = append(out, n)
		}
	}
	return out
}

// ParsePrivileges reads letters of aclitem.
func ParsePrivileges(letters string) Privileges {
	var p Privileges
	for i := range len(letters) {
		if k := strings.IndexByte(privLetters, letters[i]); k >= 0 {
			p |= 1 << k
		}
	}
	return p
}

// PrivilegeNamed returns a privilege by its keyword in any case.
func PrivilegeNamed(name string) (Privileges, bool) {
	name = strings.ToUpper(name)
	if name == "TEMP" {
		name = "TEMPORARY"
	}
	i := slices.Index(privNames[:], name)
	return 1 << max(i, 0), i >= 0
}

// Class is a kind of thing that has privileges, by PostgreSQL's letter.
type Class byte

// The classes.
const (
	ClassRelation Class = 'r'
	ClassColumn   Class = 'c'
	ClassSequence Class = 's' // pg_default_acl says S
	ClassFunction Class = 'f'
	ClassType     Class = 'T'
	ClassSchema   Class = 'n'
	ClassDatabase Class = 'd'
	ClassLanguage Class = 'l'
	ClassSpace    Class = 't'
	ClassWrapper  Class = 'F'
	ClassServer   Class = 'S'
)

// AllPrivileges returns what can be granted on a class.
func AllPrivileges(c Class) Privileges {
	switch c {
	case ClassRelation:
		return PrivInsert | PrivSelect | PrivUpdate | PrivDelete | PrivTruncate | PrivReferences | PrivTrigger
	case ClassColumn:
		return PrivInsert | PrivSelect | PrivUpdate | PrivReferences
	case ClassSequence:
		return PrivSelect | PrivUpdate | PrivUsage
	case ClassFunction:
		return PrivExecute
	case ClassType, ClassLanguage, ClassWrapper, ClassServer:
		return PrivUsage
	case ClassSchema:
		return PrivUsage | PrivCreate
	case ClassDatabase:
		return PrivCreate | PrivTemporary | PrivConnect
	case ClassSpace:
		return PrivCreate
	}
	return 0
}

// publicDefault returns what everybody has on a class unless it was revoked.
func publicDefault(c Class) Privileges {
	switch c {
	case ClassFunction:
		return PrivExecute
	case ClassType, ClassLanguage:
		return PrivUsage
	case ClassDatabase:
		return PrivTemporary | PrivConnect
	}
	return 0
}

// OwnerDefault is the list in force where none is recorded: the owner has everything.
func OwnerDefault(c Class, owner uint32) []ACL {
	owner = ownerOf(owner)
	var out []ACL
	if p := publicDefault(c); p != 0 {
		out = append(out, ACL{Grantee: 0, Grantor: owner, Privileges: p.String()})
	}
	if c == ClassColumn {
		return nil
	}
	return append(out, ACL{Grantee: owner, Grantor: owner, Privileges: AllPrivileges(c).String()})
}

// Securable is something that has an owner and privileges.
type Securable struct {
	Class Class
	Owner uint32
	ACL   []ACL // nil = OwnerDefault
}

// List returns the list in force.
func (x Securable) List() []ACL {
	if x.ACL == nil {
		return OwnerDefault(x.Class, x.Owner)
	}
	return x.ACL
}

// Has returns those of the wanted privileges that a role has, by itself, as a member of others, or as everybody.
func (s *Snapshot) Has(role uint32, x Securable, want Privileges) Privileges {
	if s.IsSuper(role) {
		return want
	}
	if role == 0 {
		return s.publicHas(x, want)
	}
	of := s.reach(role, true)
	var got Privileges
	for _, a := range x.List() {
		if a.Grantee == 0 || of[a.Grantee] {
			got |= ParsePrivileges(a.Privileges)
		}
	}
	switch x.Class {
	case ClassRelation, ClassSequence, ClassColumn:
		if of[RoleReadAllData] {
			got |= PrivSelect
		}
		if of[RoleWriteAllData] {
			got |= PrivInsert | PrivUpdate | PrivDelete
		}
	case ClassSchema:
		if of[RoleReadAllData] || of[RoleWriteAllData] {
			got |= PrivUsage
		}
	}
	return got & want
}

func (s *Snapshot) publicHas(x Securable, want Privileges) Privileges {
	var got Privileges
	for _, a := range x.List() {
		if a.Grantee == 0 {
			got |= ParsePrivileges(a.Privileges)
		}
	}
	return got & want
}

// MayGrant returns which privileges a role may grant on; owners may grant all.
func (s *Snapshot) MayGrant(role uint32, x Securable) Privileges {
	if s.HasPrivilegesOf(role, x.Owner) {
		return AllPrivileges(x.Class)
	}
	of := s.reach(role, true)
	var got Privileges
	for _, a := range x.List() {
		if of[a.Grantee] && a.Grantee != 0 {
			got |= ParsePrivileges(a.Options)
		}
	}
	return got
}

// Securable returns the owner and the privileges of a relation.
func (o *Object) Securable() Securable {
	x := Securable{Class: ClassRelation, Owner: o.Owner, ACL: o.ACL}
	if o.Kind == Sequence {
		x.Class = ClassSequence
	}
	return x
}

// Securable returns the owner and the privileges of a schema. Everybody may look into the system's and into public.
func (n Namespace) Securable() Securable {
	x := Securable{Class: ClassSchema, Owner: n.Owner, ACL: n.ACL}
	if x.ACL == nil && !IsUserID(uint64(n.OID)) {
		owner := ownerOf(n.Owner)
		if n.Name == DefaultSchema && n.Owner == 0 {
			owner = RoleDatabaseOwner
		}
		x.Owner = owner
		x.ACL = []ACL{
			{Grantee: owner, Grantor: owner, Privileges: AllPrivileges(ClassSchema).String()}, {Grantee: 0, Grantor: owner, Privileges: PrivUsage.String()},
		}
	}
	return x
}

// Securable returns the owner and the privileges of the database.
func (d Database) Securable() Securable {
	return Securable{Class: ClassDatabase, Owner: d.Owner, ACL: d.ACL}
}

// guarded are the relations of pg_catalog that only a superuser may read.
var guarded = map[string]bool{
	"pg_authid": true, "pg_shadow": true, "pg_hba_file_rules": true, "pg_file_settings": true, "pg_statistic": true, "pg_user_mapping": true,
	"pg_largeobject": true, "pg_statistic_ext_data": true, "pg_subscription": true, "pg_ident_file_mappings": true, "pg_backend_memory_contexts": true,
	"pg_shmem_allocations": true, "pg_config": true,
}

// Securable returns the privileges of a system relation.
func (r *SystemRelation) Securable() Securable {
	x := Securable{Class: ClassRelation, ACL: OwnerDefault(ClassRelation, 0)}
	if r.Schema != PgCatalog || !guarded[r.Name] {
		x.ACL = append(x.ACL, ACL{Grantee: 0, Grantor: Bootstrap, Privileges: PrivSelect.String()})
	}
	return x
}

// ACLText prints an entry as aclitem does.
func (s *Snapshot) ACLText(a ACL) string {
	name := func(oid uint32) string {
		r, ok := s.roles[oid]
		switch {
		case oid == 0:
			return ""
		case !ok:
			return strconv.FormatUint(uint64(oid), 10)
		}
		return functions.ACLName(r.Name)
	}
	var b strings.Builder
	b.WriteString(name(a.Grantee))
	b.WriteByte('=')
	p, o := ParsePrivileges(a.Privileges), ParsePrivileges(a.Options)
	for i := range len(privLetters) {
		if p&(1<<i) != 0 {
			b.WriteByte(privLetters[i])
			if o&(1<<i) != 0 {
				b.WriteByte('*')
			}
		}
	}
	b.WriteByte('/')
	b.WriteString(name(a.Grantor))
	return b.String()
}

// Grant is a change of a list of privileges.
type Grant struct {
	Grantee, Grantor uint32
	Privileges       Privileges
	Option           bool // with grant option; in a revocation: the option alone
	Cascade          bool // what was granted on goes, too
}

// AddACL returns a list with more in it.
func AddACL(list []ACL, g Grant) []ACL {
	out := slices.Clone(list)
	i := slices.IndexFunc(out, func(a ACL) bool { return a.Grantee == g.Grantee && a.Grantor == g.Grantor })
	if i < 0 {
		out = append(out, ACL{Grantee: g.Grantee, Grantor: g.Grantor})
		i = len(out) - 1
	}
	a := &out[i]
	a.Privileges = (ParsePrivileges(a.Privileges) | g.Privileges).String()
	if g.Option {
		a.Options = (ParsePrivileges(a.Options) | g.Privileges).String()
	}
	return out
}

// RemoveACL returns a list with less in it. dependent is set when others were granted from what would go and Cascade is not given.
func RemoveACL(list []ACL, g Grant, owner uint32) (out []ACL, dependent bool) {
	out = slices.Clone(list)
	var lost Privileges
	for i := range out {
		a := &out[i]
		if a.Grantee != g.Grantee || a.Grantor != g.Grantor {
			continue
		}
		before := ParsePrivileges(a.Options)
		if !g.Option {
			a.Privileges = (ParsePrivileges(a.Privileges) &^ g.Privileges).String()
		}
		a.Options = (before &^ g.Privileges).String()
		lost |= before & g.Privileges
	}
	for _, a := range out {
		if a.Grantee == g.Grantee {
			lost &^= ParsePrivileges(a.Options)
		}
	}
	if lost != 0 && g.Grantee != ownerOf(owner) && g.Grantee != 0 {
		for _, a := range slices.Clone(out) {
			if a.Grantor != g.Grantee || ParsePrivileges(a.Privileges)&lost == 0 {
				continue
			}
			if !g.Cascade {
				return list, true
			}
			out, _ = RemoveACL(out, Grant{Grantee: a.Grantee, Grantor: a.Grantor, Privileges: lost, Cascade: true}, owner)
		}
	}
	out = slices.DeleteFunc(out, func(a ACL) bool { return a.Privileges == "" })
	if len(out) == 0 { // an entry without privileges: nobody has anything, which is not the default
		out = []ACL{{Grantee: ownerOf(owner), Grantor: ownerOf(owner)}}
	}
	return out, false
}

// NewACL returns the list that a new object begins with: nil unless ALTER DEFAULT PRIVILEGES said something else. schema is "" for schemas.
func (s *Snapshot) NewACL(c Class, owner uint32, schema string) []ACL {
	owner = ownerOf(owner)
	letter := DefaultClass(c)
	list, found := OwnerDefault(c, owner), false
	for _, d := range s.defaults {
		if ownerOf(d.Role) == owner && d.Class == letter && d.Schema == "" {
			list, found = slices.Clone(d.ACL), true
		}
	}
	for _, d := range s.defaults {
		if ownerOf(d.Role) == owner && d.Class == letter && d.Schema == schema && schema != "" {
			for _, a := range d.ACL {
				list = AddACL(list, Grant{Grantee: a.Grantee, Grantor: a.Grantor, Privileges: ParsePrivileges(a.Privileges)})
				list = AddACL(list, Grant{Grantee: a.Grantee, Grantor: a.Grantor, Privileges: ParsePrivileges(a.Options), Option: true})
			}
			found = true
		}
	}
	if !found {
		return nil
	}
	return list
}

// DefaultClass is the letter of a class in pg_default_acl.
func DefaultClass(c Class) string {
	if c == ClassSequence {
		return "S"
	}
	return string(c)
}
