package server

import (
	"errors"
	"maps"
	"net"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/streamdb/streamdb/auth"
	"github.com/streamdb/streamdb/catalog"
	"github.com/streamdb/streamdb/internal/pgerr"
	"github.com/streamdb/streamdb/pgwire"
	"github.com/streamdb/streamdb/sql"
)

// nobody is the OID of a role that does not exist: it has no privileges.
const nobody = ^uint32(0)

// AuthRole implements auth.Roles.
func (s *Server) AuthRole(name string) (auth.Role, bool) {
	r, ok := s.catalog.Snapshot().LookupRole(name)
	if !ok || !r.Login {
		return auth.Role{}, ok
	}
	out := auth.Role{Verifier: r.Verifier}
	if r.ValidUntil != nil {
		t := pgEpoch.Add(time.Duration(*r.ValidUntil) * time.Microsecond)
		if *r.ValidUntil < maxDurationMicros && *r.ValidUntil > -maxDurationMicros {
			out.ValidUntil = &t
		} else if *r.ValidUntil < 0 {
			out.ValidUntil = &pgEpoch
		}
	}
	return out, true
}

// maxDurationMicros is the longest time.Duration; what is valid for longer is valid for ever.
const maxDurationMicros = int64(1<<63-1) / int64(time.Microsecond)

// AuthMember implements auth.Roles.
func (s *Server) AuthMember(role, of string) bool {
	snap := s.catalog.Snapshot()
	a, ok := snap.LookupRole(role)
	b, ok2 := snap.LookupRole(of)
	return ok && ok2 && snap.IsMemberStrictly(a.OID, b.OID)
}

// AuthOpen implements auth.Roles: nobody has taken possession of the superuser yet.
func (s *Server) AuthOpen() bool {
	r, ok := s.catalog.Snapshot().Role(catalog.Bootstrap)
	return ok && r.Verifier == ""
}

// guestAllowed reports whether a name that no role has may log in, as the superuser: on a server of one's own where nobody has made a role.
func (s *Server) guestAllowed(p pgwire.StartupParams) bool {
	if s.catalog.Snapshot().HasUserRoles() {
		return false
	}
	if _, remote := p.RemoteAddr.(*net.TCPAddr); !remote {
		return true
	}
	return s.auth.BuiltIn() && s.AuthOpen()
}

// admit checks that the user of the startup message may have a session, and returns the role; nil for a guest.
func (s *Server) admit(p pgwire.StartupParams) (*catalog.Role, error) {
	snap := s.catalog.Snapshot()
	r, ok := snap.LookupRole(p.User)
	if !ok {
		if s.guestAllowed(p) {
			return nil, nil
		}
		e := pgerr.Newf(pgerr.InvalidAuthorization, "role %q does not exist", p.User)
		if s.auth.BuiltIn() && s.AuthOpen() {
			return nil, e.WithHint("Since roles were created only they can log in, and the superuser %q.", catalog.OwnerRole)
		}
		return nil, e
	}
	if !r.Login {
		return nil, pgerr.Newf(pgerr.InvalidAuthorization, "role %q is not permitted to log in", p.User)
	}
	if p.Database != databaseName {
		return r, nil // NewSession says that it does not exist
	}
	if snap.Has(r.OID, snap.Database().Securable(), catalog.PrivConnect) == 0 {
		return nil, pgerr.Newf(pgerr.InsufficientPrivilege, "permission denied for database %q", p.Database).WithDetail("User does not have CONNECT privilege.")
	}
	if r.ConnLimit >= 0 && !r.Super {
		n := int32(0)
		s.sessions.Range(func(_, v any) bool {
			if v.(*session).params.User == p.User { //nolint:forcetypeassert // only sessions are stored
				n++
			}
			return true
		})
		if n >= r.ConnLimit {
			return nil, pgerr.Newf(pgerr.TooManyConnections, "too many connections for role %q", p.User)
		}
	}
	return r, nil
}

// storedSettings applies what ALTER ROLE and DATABASE .. SET said; r is nil for a guest. A value that is no longer good is reported and left out.
func (ss *session) storedSettings(r *catalog.Role) error {
	db := ss.snapshot().Database()
	apply := func(source string, config map[string]string) error {
		for _, name := range slices.Sorted(maps.Keys(config)) {
			err := ss.vars.set(name, []string{config[name]}, false)
			if err == nil {
				ss.vars.stored[name] = source
			} else if err := ss.notice("WARNING", pgerr.CodeOf(err), "%s", pgerr.From(err).Message); err != nil {
				return err
			}
		}
		return nil
	}
	// Later ones prevail.
	if err := errors.Join(apply("global", db.RoleConfig), apply("database", db.Config)); err != nil || r == nil {
		return err
	}
	return errors.Join(apply("user", r.Config), apply("database user", r.DatabaseConfig))
}

// roleCache remembers which role the session acts as.
type roleCache struct {
	snap *catalog.Snapshot
	user string
	oid  uint32
}

// role is the OID of the role that the session acts as.
func (ss *session) role() uint32 {
	snap, user := ss.snapshot(), ss.vars.currentUser()
	if c := &ss.roleIs; c.snap != snap || c.user != user {
		*c = roleCache{snap: snap, user: user, oid: ss.roleNamed(snap, user)}
	}
	return ss.roleIs.oid
}

// roleNamed finds a role; a guest's name stands for the superuser.
func (ss *session) roleNamed(snap *catalog.Snapshot, name string) uint32 {
	if r, ok := snap.LookupRole(name); ok {
		return r.OID
	}
	if ss.guest && name == ss.params.User {
		return catalog.Bootstrap
	}
	return nobody
}

// super reports whether the session may do everything.
func (ss *session) super() bool { return ss.snapshot().IsSuper(ss.role()) }

// sessionRole is the OID of session_user.
func (ss *session) sessionRole() uint32 {
	return ss.roleNamed(ss.snapshot(), ss.vars.vals["session_authorization"])
}

// mayBecome checks SET ROLE and SET SESSION AUTHORIZATION.
func (ss *session) mayBecome(setting, name string) error {
	snap := ss.snapshot()
	if setting == "role" && name == "none" {
		return nil
	}
	oid := ss.roleNamed(snap, name)
	if oid == nobody {
		return pgerr.Newf(pgerr.InvalidParameterValue, "role %q does not exist", name)
	}
	if setting == "role" {
		if !snap.IsMember(ss.sessionRole(), oid) {
			return pgerr.Newf(pgerr.InsufficientPrivilege, "permission denied to set role %q", name)
		}
		return nil
	}
	login := ss.roleNamed(snap, ss.params.User)
	if oid != login && !snap.IsSuper(login) {
		return pgerr.Newf(pgerr.InsufficientPrivilege, "permission denied to set session authorization %q", name)
	}
	return nil
}

// findRole resolves a role of a statement.
func (ss *session) findRole(r sql.RoleSpec) (uint32, error) {
	switch r.Special {
	case "current_user", "current_role":
		return ss.role(), nil
	case "session_user":
		return ss.sessionRole(), nil
	case "public":
		return 0, pgerr.Newf(pgerr.UndefinedObject, "role \"public\" does not exist")
	}
	oid := ss.roleNamed(ss.snapshot(), r.Name)
	if oid == nobody {
		return 0, pgerr.Newf(pgerr.UndefinedObject, "role %q does not exist", r.Name)
	}
	return oid, nil
}

// roleName is the name of a role in messages and in the catalogue.
func roleName(snap *catalog.Snapshot, oid uint32) string {
	if r, ok := snap.Role(oid); ok {
		return r.Name
	}
	return "unknown"
}

// ReloadConfig reads the file of rules and the certificates again. What cannot be read leaves the former in force.
func (s *Server) ReloadConfig() error {
	var faults []error
	if s.cfg.HBAFile != "" {
		rules, err := auth.LoadRules(s.cfg.HBAFile)
		if err == nil {
			s.useRules(rules)
		} else {
			faults = append(faults, err)
		}
	}
	if s.tls != nil {
		if err := s.tls.Reload(); err != nil {
			faults = append(faults, err)
		}
	}
	for _, err := range faults {
		s.log.Error().Err(err).Msg("configuration was not reloaded: the former stays in force")
	}
	if len(faults) > 0 {
		return faults[0]
	}
	s.configured.Store(micros(time.Now()))
	s.log.Info().Msg("configuration reloaded")
	return nil
}

func (s *Server) useRules(r *auth.Rules) {
	s.auth.SetRules(r)
	for _, note := range r.Notes() {
		s.log.Info().Str("file", r.File).Msg(note)
	}
}

// openSecurity prepares what decides who may connect.
func (s *Server) openSecurity() error {
	var err error
	if s.cfg.TLS.Cert != "" || s.cfg.TLS.Key != "" {
		if s.tls, err = auth.OpenTLS(s.cfg.TLS); err != nil {
			return err
		}
		s.settings.vals["ssl"] = "on"
	}
	s.configured.Store(micros(s.started))
	if s.auth, err = auth.New(s, nil, s.log, s.cfg.Insecure); err != nil {
		return err
	}
	if s.cfg.HBAFile != "" {
		rules, err := auth.LoadRules(s.cfg.HBAFile)
		if err != nil {
			return err
		}
		s.useRules(rules)
	}
	if s.cfg.SuperuserPassword == "" {
		return nil
	}
	r, _ := s.catalog.Snapshot().Role(catalog.Bootstrap)
	if v, ok := auth.ParseVerifier(r.Verifier); ok && v.Matches(s.cfg.SuperuserPassword) {
		return nil
	}
	verifier, err := passwordVerifier(s.cfg.SuperuserPassword, auth.DefaultIterations)
	if err != nil {
		return err
	}
	return s.catalog.Update(func(tx *catalog.Tx) error {
		c := *r
		c.Verifier = verifier
		return tx.PutRole(&c)
	})
}

// ReadPasswordFile reads the first line of a file.
func ReadPasswordFile(name string) (string, error) {
	b, err := os.ReadFile(name)
	if err != nil {
		return "", pgerr.Wrap(pgerr.ConfigFileError, err, "read the superuser's password")
	}
	line, _, _ := strings.Cut(string(b), "\n")
	if line = strings.TrimRight(line, "\r"); line == "" {
		return "", pgerr.Newf(pgerr.ConfigFileError, "password file %q is empty", name)
	}
	return line, nil
}

// CheckListen refuses an address that others can reach while anybody could come in.
func (s *Server) CheckListen(addr net.Addr) error {
	if auth.Loopback(addr) || s.cfg.Insecure || !s.auth.BuiltIn() {
		return nil
	}
	for _, r := range s.catalog.Snapshot().Roles() {
		if r.Login && r.Verifier != "" {
			if s.tls == nil {
				s.log.Warn().Stringer("listen", addr).Msg("connections are not encrypted: passwords are safe, what is read and written is not; give a certificate")
			}
			return nil
		}
	}
	return pgerr.Newf(pgerr.ConfigFileError, "%s is not a loopback address, and no role has a password", addr).
		WithHint("Give the superuser one (--superuser-password-file), or rules (--hba), or --insecure.")
}
