package auth

import (
	"context"
	"crypto/rand"
	"crypto/x509"
	"net"
	"net/netip"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"time"

	"github.com/rs/zerolog"

	"github.com/streamdb/streamdb/internal/pgerr"
	"github.com/streamdb/streamdb/pgwire"
)

const (
	secretBytes = 32
	// failureDelay is how long a refused password waits for its answer: guessing must cost more than a login.
	failureDelay = 100 * time.Millisecond
)

func itoa(n int) string { return strconv.Itoa(n) }

// Role is what logging in needs to know of a role.
type Role struct {
	Verifier   string
	ValidUntil *time.Time
}

// Roles finds roles; the catalogue of the server.
type Roles interface {
	AuthRole(name string) (Role, bool)
	// AuthMember reports whether a role is, directly or not, a member of another, or that role itself.
	AuthMember(role, of string) bool
	// AuthOpen reports whether the built-in rules let loopback in without a password.
	AuthOpen() bool
}

// Authenticator implements pgwire.Authenticator.
type Authenticator struct {
	roles  Roles
	log    zerolog.Logger
	secret []byte
	rules  atomic.Pointer[Rules]
	delay  time.Duration
	// insecure: the built-in rules treat every address as loopback.
	insecure bool
}

// New returns an authenticator. rules nil means the built-in ones: loopback is trusted until the superuser has a password, everybody else
// needs one.
func New(roles Roles, rules *Rules, log zerolog.Logger, insecure bool) (*Authenticator, error) {
	a := &Authenticator{roles: roles, log: log, secret: make([]byte, secretBytes), delay: failureDelay, insecure: insecure}
	if _, err := rand.Read(a.secret); err != nil {
		return nil, pgerr.Wrap(pgerr.InternalError, err, "could not generate random secret")
	}
	a.rules.Store(rules)
	return a, nil
}

// Rules returns those in force; for the built-in ones what they amount to now.
func (a *Authenticator) Rules() *Rules {
	if r := a.rules.Load(); r != nil {
		return r
	}
	return builtin(a.roles.AuthOpen(), a.insecure)
}

// BuiltIn reports whether no file of rules was given.
func (a *Authenticator) BuiltIn() bool { return a.rules.Load() == nil }

// SetRules puts other rules in force, for connections that begin after that.
func (a *Authenticator) SetRules(r *Rules) { a.rules.Store(r) }

func builtin(open, insecure bool) *Rules {
	loopback, others := methodSCRAM, methodSCRAM
	if open {
		loopback = methodTrust
		if insecure {
			others = methodTrust
		}
	}
	host := func(line int, address, method string) Rule {
		r := Rule{Line: line, Type: "host", Databases: []string{"all"}, Users: []string{"all"}, Address: address, Method: method}
		if p, err := netip.ParsePrefix(address); err == nil {
			r.prefix, r.Address, r.Netmask = p, p.Addr().String(), maskText(p)
		}
		return r
	}
	return &Rules{List: []Rule{host(1, "127.0.0.0/8", loopback), host(2, "::1/128", loopback), host(3, "all", others)}}
}

// Loopback reports whether an address is this machine's own, or none at all because the client is in the same process.
func Loopback(addr net.Addr) bool {
	t, ok := addr.(*net.TCPAddr)
	return !ok || t.IP.IsLoopback()
}

// Authenticate implements pgwire.Authenticator. Clients within the process are trusted: they have the server's memory anyway.
func (a *Authenticator) Authenticate(ctx context.Context, p pgwire.StartupParams, x pgwire.AuthExchange) error {
	t, ok := p.RemoteAddr.(*net.TCPAddr)
	if !ok {
		return nil
	}
	addr := t.AddrPort().Addr().Unmap()
	encryption := "no encryption"
	if p.TLS {
		encryption = "SSL encryption"
	}
	r := a.find(p, addr)
	if r == nil {
		return a.refuse(p, pgerr.Newf(pgerr.InvalidAuthorization, "no pg_hba.conf entry for host %q, user %q, database %q, %s", addr, p.User, p.Database, encryption))
	}
	if r.Method == methodReject {
		return a.refuse(p, pgerr.Newf(pgerr.InvalidAuthorization, "pg_hba.conf rejects connection for host %q, user %q, database %q, %s", addr, p.User, p.Database, encryption))
	}
	if err := a.certificate(p, r); err != nil {
		return a.refuse(p, err)
	}
	var passed bool
	var err error
	switch r.Method {
	case methodTrust, methodCert:
		return nil
	case methodPassword:
		passed, err = a.password(p, x)
	default:
		passed, err = a.scram(p, x)
	}
	switch {
	case err != nil:
		return a.refuse(p, err)
	case passed:
		return nil
	}
	select {
	case <-time.After(a.delay):
	case <-ctx.Done():
	}
	return a.refuse(p, pgerr.Newf(pgerr.InvalidPassword, "password authentication failed for user %q", p.User))
}

// refuse logs why a client was turned away. Errors that pgwire itself made (the client is gone) pass as they are.
func (a *Authenticator) refuse(p pgwire.StartupParams, err error) error {
	a.log.Warn().Str("user", p.User).Str("database", p.Database).Stringer("client", p.RemoteAddr).Err(err).Msg("login refused")
	return err
}

// find returns the first rule that fits, nil when none does.
func (a *Authenticator) find(p pgwire.StartupParams, addr netip.Addr) *Rule {
	list := a.Rules().List
	for i := range list {
		if r := &list[i]; r.Err == "" && r.fits(p, addr, a.roles) {
			return r
		}
	}
	return nil
}

func (r *Rule) fits(p pgwire.StartupParams, addr netip.Addr, roles Roles) bool {
	switch r.Type {
	case "local", "hostgssenc":
		return false
	case "hostssl":
		if !p.TLS {
			return false
		}
	case "hostnossl":
		if p.TLS {
			return false
		}
	}
	switch r.Address {
	case "all":
	case "samehost":
		if !ownAddress(addr, false) {
			return false
		}
	case "samenet":
		if !ownAddress(addr, true) {
			return false
		}
	default:
		if !r.prefix.Contains(addr) {
			return false
		}
	}
	database := slices.ContainsFunc(r.Databases, func(d string) bool {
		special := !r.quoted["d:"+d]
		switch {
		case special && d == "all":
			return true
		case special && d == "sameuser":
			return p.Database == p.User
		case special && (d == "samerole" || d == "samegroup"):
			return roles.AuthMember(p.User, p.Database)
		case special && d == "replication":
			return false
		}
		return d == p.Database
	})
	return database && slices.ContainsFunc(r.Users, func(u string) bool {
		special := !r.quoted["u:"+u]
		switch {
		case special && u == "all":
			return true
		case special && strings.HasPrefix(u, "+"):
			return roles.AuthMember(p.User, u[1:])
		}
		return u == p.User
	})
}

// ownAddress reports whether addr is one of this machine's, or in one of its networks.
func ownAddress(addr netip.Addr, network bool) bool {
	list, err := net.InterfaceAddrs()
	if err != nil {
		return false
	}
	for _, a := range list {
		p, err := netip.ParsePrefix(a.String())
		if err != nil {
			continue
		}
		if p.Addr().Unmap() == addr || network && p.Contains(addr) {
			return true
		}
	}
	return false
}

// certificate checks what a rule demands of the client's certificate. Its signature was verified when the connection was made.
func (a *Authenticator) certificate(p pgwire.StartupParams, r *Rule) error {
	want := r.option("clientcert")
	if r.Method == methodCert {
		want = "verify-full"
	}
	if want == "" {
		return nil
	}
	if len(p.ClientCerts) == 0 {
		return pgerr.Newf(pgerr.InvalidAuthorization, "connection requires a valid client certificate")
	}
	if want == "verify-ca" {
		return nil
	}
	for _, name := range certificateNames(p.ClientCerts[0], r.option("clientname") == "DN") {
		if a.named(name, p.User, r) {
			return nil
		}
	}
	return pgerr.Newf(pgerr.InvalidAuthorization, "certificate authentication failed for user %q", p.User)
}

func (a *Authenticator) named(name, user string, r *Rule) bool {
	if name == "" {
		return false
	}
	mapped := false
	for _, o := range r.Options {
		if from, to, _ := strings.Cut(o.Value, "="); o.Name == "map-role" && from == name {
			mapped = true
			if to == user {
				return true
			}
		}
	}
	return !mapped && name == user
}

// certificateNames lists the names a certificate gives its holder: the common name, then e-mail addresses and DNS names of the alternative ones.
func certificateNames(c *x509.Certificate, dn bool) []string {
	if dn {
		return []string{c.Subject.String()}
	}
	return slices.Concat([]string{c.Subject.CommonName}, c.EmailAddresses, c.DNSNames)
}

// verifier returns that of a role; mock when there is none that could pass.
func (a *Authenticator) verifier(user string) (v Verifier, mock bool) {
	role, ok := a.roles.AuthRole(user)
	if ok {
		v, ok = ParseVerifier(role.Verifier)
	}
	if !ok {
		return mockVerifier(a.secret, user), true
	}
	return v, role.ValidUntil != nil && role.ValidUntil.Before(time.Now())
}

func (a *Authenticator) password(p pgwire.StartupParams, x pgwire.AuthExchange) (bool, error) {
	password, err := x.CleartextPassword()
	if err != nil {
		return false, err
	}
	if password == "" {
		return false, pgerr.Newf(pgerr.InvalidPassword, "empty password returned by client")
	}
	v, mock := a.verifier(p.User)
	return v.Matches(password) && !mock, nil // the hash is computed for unknown users, too
}

func (a *Authenticator) scram(p pgwire.StartupParams, x pgwire.AuthExchange) (bool, error) {
	s := &scram{}
	s.verifier, s.mock = a.verifier(p.User)
	mechanisms := []string{scramMethod}
	if p.ServerCert != nil {
		if s.binding = endPointHash(p.ServerCert); s.binding != nil {
			mechanisms = []string{scramPlus, scramMethod}
		}
	}
	mechanism, initial, err := x.SASL(mechanisms)
	if err != nil {
		return false, err
	}
	if !slices.Contains(mechanisms, mechanism) {
		return false, pgerr.Newf(pgerr.ProtocolViolation, "client selected an invalid SASL authentication mechanism")
	}
	s.plus = mechanism == scramPlus
	if initial == nil {
		if initial, err = x.SASLContinue(nil); err != nil {
			return false, err
		}
	}
	nonce, err := newNonce()
	if err != nil {
		return false, err
	}
	challenge, err := s.first(string(initial), nonce)
	if err != nil {
		return false, err
	}
	proof, err := x.SASLContinue([]byte(challenge))
	if err != nil {
		return false, err
	}
	answer, ok, err := s.final(string(proof))
	if err != nil || !ok {
		return false, err
	}
	return true, x.SASLFinal([]byte(answer))
}
