package catalog

import (
	"maps"
	"slices"

	"github.com/streamdb/streamdb/internal/pgerr"
)

// Bootstrap is the OID of the superuser that every database has.
const Bootstrap = ownerOID

// Role is a user or a group. It is immutable once in a snapshot. The bootstrap superuser is stored only once something about it was changed,
// the predefined roles only once they were made members of others.
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
	// DatabaseConfig is what ALTER ROLE .. IN DATABASE .. SET said.
	DatabaseConfig map[string]string `json:"database_config,omitempty"`
	MemberOf       []Membership      `json:"member_of,omitempty"`
	Comment        string            `json:"comment,omitempty"`
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

// Predefined roles. A grant of one gives what its name says; nobody logs in as one.
const (
	RoleDatabaseOwner    uint32 = 6171
	RoleReadAllData      uint32 = 6181
	RoleWriteAllData     uint32 = 6182
	RoleMonitor          uint32 = 3373
	RoleReadAllSettings  uint32 = 3374
	RoleReadAllStats     uint32 = 3375
	RoleStatScanTables   uint32 = 3377
	RoleReadServerFiles  uint32 = 4569
	RoleWriteServerFiles uint32 = 4570
	RoleExecuteProgram   uint32 = 4571
	RoleSignalBackend    uint32 = 4200
	RoleCheckpoint       uint32 = 4544
)

// predefined returns the roles that every database has, as they are when nothing was changed.
func predefined() map[uint32]*Role {
	m := map[uint32]*Role{
		Bootstrap: {
			OID: Bootstrap, Name: OwnerRole, Super: true, Inherit: true, CreateRole: true, CreateDB: true, Login: true, BypassRLS: true, Replicate: true,
			ConnLimit: -1,
		},
	}
	for oid, name := range map[uint32]string{
		RoleDatabaseOwner: "pg_database_owner", RoleReadAllData: "pg_read_all_data", RoleWriteAllData: "pg_write_all_data", RoleMonitor: "pg_monitor",
		RoleReadAllSettings: "pg_read_all_settings", RoleReadAllStats: "pg_read_all_stats", RoleStatScanTables: "pg_stat_scan_tables",
		RoleReadServerFiles: "pg_read_server_files", RoleWriteServerFiles: "pg_write_server_files", RoleExecuteProgram: "pg_execute_server_program",
		RoleSignalBackend: "pg_signal_backend", RoleCheckpoint: "pg_checkpoint",
	} {
		m[oid] = &Role{OID: oid, Name: name, Inherit: true, ConnLimit: -1}
	}
	for _, oid := range []uint32{RoleReadAllSettings, RoleReadAllStats, RoleStatScanTables} {
		m[RoleMonitor].MemberOf = append(m[RoleMonitor].MemberOf, Membership{Role: oid, Grantor: Bootstrap})
	}
	return m
}

// IsPredefined reports whether a role belongs to the system.
func IsPredefined(oid uint32) bool { return oid < uint32(firstUserID) }

// Roles lists all roles by OID.
func (s *Snapshot) Roles() []*Role {
	return sortedByOID(s.roles, func(r *Role) uint32 { return r.OID })
}

// storedRoles lists the roles that differ from what every database has.
func (s *Snapshot) storedRoles() []*Role {
	return slices.DeleteFunc(s.Roles(), func(r *Role) bool { return IsPredefined(r.OID) && !s.changed[r.OID] })
}

// Role returns a role by OID; 0 is the bootstrap superuser, as in what is owned by nobody else.
func (s *Snapshot) Role(oid uint32) (*Role, bool) {
	if oid == 0 {
		oid = Bootstrap
	}
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

// HasUserRoles reports whether anybody created a role.
func (s *Snapshot) HasUserRoles() bool {
	for oid := range s.roles {
		if !IsPredefined(oid) {
			return true
		}
	}
	return false
}

// reach collects what a role is a member of, directly or not, and itself; with inherit only through roles that inherit.
func (s *Snapshot) reach(role uint32, inherit bool) map[uint32]bool {
	seen := map[uint32]bool{role: true}
	for queue := []uint32{role}; len(queue) > 0; queue = queue[1:] {
		r := s.roles[queue[0]]
		if r == nil || inherit && !r.Inherit {
			continue
		}
		for _, m := range r.MemberOf {
			if !seen[m.Role] {
				seen[m.Role] = true
				queue = append(queue, m.Role)
			}
		}
	}
	if seen[ownerOf(s.database.Owner)] {
		seen[RoleDatabaseOwner] = true
	}
	return seen
}

// IsSuper reports whether a role may do everything.
func (s *Snapshot) IsSuper(role uint32) bool {
	r, ok := s.Role(role)
	return ok && r.Super
}

// IsMember reports whether a role may become another by SET ROLE.
func (s *Snapshot) IsMember(role, of uint32) bool {
	return role == of || s.IsSuper(role) || s.reach(role, false)[of]
}

// IsMemberStrictly is IsMember without a superuser's being a member of everything.
func (s *Snapshot) IsMemberStrictly(role, of uint32) bool {
	return role == of || s.reach(role, false)[of]
}

// HasPrivilegesOf reports whether a role has what another has without becoming it.
func (s *Snapshot) HasPrivilegesOf(role, of uint32) bool {
	of = ownerOf(of)
	return role == of || s.IsSuper(role) || s.reach(role, true)[of]
}

// IsAdminOf reports whether a role may grant membership in another.
func (s *Snapshot) IsAdminOf(role, of uint32) bool {
	if s.IsSuper(role) {
		return true
	}
	for r := range s.reach(role, false) {
		if x := s.roles[r]; x != nil {
			if slices.ContainsFunc(x.MemberOf, func(m Membership) bool { return m.Role == of && m.Admin }) {
				return true
			}
		}
	}
	return false
}

// ownerOf returns the OID of an owner, who is the bootstrap superuser where none is recorded.
func ownerOf(owner uint32) uint32 {
	if owner == 0 {
		return Bootstrap
	}
	return owner
}

// OwnerOf returns the OID of an owner, who is the bootstrap superuser where none is recorded.
func OwnerOf(owner uint32) uint32 { return ownerOf(owner) }

// DefaultACLs lists what ALTER DEFAULT PRIVILEGES said.
func (s *Snapshot) DefaultACLs() []DefaultACL { return s.defaults }

// PutRole adds a role or puts a changed copy in the place of the old one.
func (t *Tx) PutRole(r *Role) error {
	if old, ok := t.s.LookupRole(r.Name); ok && old.OID != r.OID {
		return pgerr.Newf(pgerr.DuplicateObject, "role %q already exists", r.Name)
	}
	t.s.roles[r.OID] = r
	if IsPredefined(r.OID) {
		t.s.changed = maps.Clone(t.s.changed)
		if t.s.changed == nil {
			t.s.changed = map[uint32]bool{}
		}
		t.s.changed[r.OID] = true
	}
	return nil
}

// RemoveRole drops a role and its memberships.
func (t *Tx) RemoveRole(oid uint32) {
	delete(t.s.roles, oid)
	for _, r := range t.s.Roles() {
		if slices.ContainsFunc(r.MemberOf, func(m Membership) bool { return m.Role == oid }) {
			c := *r
			c.MemberOf = slices.DeleteFunc(slices.Clone(r.MemberOf), func(m Membership) bool { return m.Role == oid })
			t.s.roles[c.OID] = &c
		}
	}
}

// SetDefaultACLs replaces what ALTER DEFAULT PRIVILEGES said.
func (t *Tx) SetDefaultACLs(d []DefaultACL) { t.s.defaults = d }

// PutNamespace puts a changed schema in the place of the old one.
func (t *Tx) PutNamespace(n Namespace) { t.s.spaces[n.Name] = n }

// Database is the one database of a server.
type Database struct {
	Owner     uint32 `json:"owner,omitempty"`
	ACL       []ACL  `json:"acl,omitempty"`
	ConnLimit *int32 `json:"conn_limit,omitempty"` // nil = none
	Comment   string `json:"comment,omitempty"`
	// Config is what ALTER DATABASE .. SET said, RoleConfig what ALTER ROLE ALL SET did, which counts in every database.
	Config     map[string]string `json:"config,omitempty"`
	RoleConfig map[string]string `json:"role_config,omitempty"`
}

// Database returns the properties of the database.
func (s *Snapshot) Database() Database { return s.database }

// PutDatabase changes the properties of the database.
func (t *Tx) PutDatabase(d Database) { t.s.database = d }
