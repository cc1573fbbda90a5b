package catalog

import "github.com/streamdb/streamdb/internal/pgerr"

// Bootstrap is the OID of the superuser that every database has.
const Bootstrap = ownerOID

// Role is a user or a group. It is immutable once in a snapshot. The bootstrap superuser is not stored.
type Role struct {
	OID        uint32 `json:"oid"`
	Name       string `json:"name"`
	Super      bool   `json:"super,omitempty"`
	Inherit    bool   `json:"inherit,omitempty"`
	CreateRole bool   `json:"create_role,omitempty"`
	CreateDB   bool   `json:"create_db,omitempty"`
	Login      bool   `json:"login,omitempty"`
	BypassRLS  bool   `json:"bypass_rls,omitempty"`
	Replicate  bool   `json:"replicate,omitempty"`
	ConnLimit  int32  `json:"conn_limit"` // -1 = none
	// Verifier is what the password became: SCRAM-SHA-256$iterations:salt$StoredKey:ServerKey. "" = no password. The password itself is kept nowhere.
	Verifier   string            `json:"verifier,omitempty"`
	ValidUntil *int64            `json:"valid_until,omitempty"` // µs since 2000-01-01 UTC
	Config     map[string]string `json:"config,omitempty"`      // ALTER ROLE .. SET
	MemberOf   []Membership      `json:"member_of,omitempty"`
	Comment    string            `json:"comment,omitempty"`
}

// Membership says that a role is a member of another.
type Membership struct {
	Role    uint32 `json:"role"`
	Grantor uint32 `json:"grantor,omitempty"`
	Admin   bool   `json:"admin,omitempty"` // may grant it on
}

// ACL is what one role was granted on one object by another, as in PostgreSQL's aclitem.
type ACL struct {
	Grantee    uint32 `json:"grantee"` // 0 = PUBLIC
	Grantor    uint32 `json:"grantor"`
	Privileges string `json:"privileges"`        // letters of aclitem: r w a d D x t X U C c T
	Options    string `json:"options,omitempty"` // those of them with grant option
}

// DefaultACL is what ALTER DEFAULT PRIVILEGES gives on objects that Role creates. Class is r (relations), S (sequences), f (functions), T (types), n (schemas).
type DefaultACL struct {
	OID    uint32 `json:"oid"`
	Role   uint32 `json:"role"`
	Schema string `json:"schema,omitempty"` // "" = everywhere
	Class  string `json:"class"`
	ACL    []ACL  `json:"acl"`
}

// Roles lists all roles but the bootstrap superuser by OID.
func (s *Snapshot) Roles() []*Role {
	return sortedByOID(s.roles, func(r *Role) uint32 { return r.OID })
}

// Role returns a role by OID.
func (s *Snapshot) Role(oid uint32) (*Role, bool) {
	r, ok := s.roles[oid]
	return r, ok
}

// LookupRole returns a role by name.
func (s *Snapshot) LookupRole(name string) (*Role, bool) {
	for _, r := range s.roles {
		if r.Name == name {
			return r, true
		}
	}
	return nil, false
}

// DefaultACLs lists what ALTER DEFAULT PRIVILEGES said.
func (s *Snapshot) DefaultACLs() []DefaultACL { return s.defaults }

// PutRole adds a role or puts a changed copy in the place of the old one.
func (t *Tx) PutRole(r *Role) error {
	if old, ok := t.s.LookupRole(r.Name); ok && old.OID != r.OID {
		return pgerr.Newf(pgerr.DuplicateObject, "role %q already exists", r.Name)
	}
	t.s.roles[r.OID] = r
	return nil
}

// RemoveRole drops a role.
func (t *Tx) RemoveRole(oid uint32) { delete(t.s.roles, oid) }

// SetDefaultACLs replaces what ALTER DEFAULT PRIVILEGES said.
func (t *Tx) SetDefaultACLs(d []DefaultACL) { t.s.defaults = d }

// PutNamespace puts a changed schema in the place of the old one.
func (t *Tx) PutNamespace(n Namespace) { t.s.spaces[n.Name] = n }
