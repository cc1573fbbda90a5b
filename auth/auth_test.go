package auth

import (
	"context"
	"crypto/sha256"
	"encoding/base64"
	"errors"
	"net"
	"net/netip"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/rs/zerolog"
	"github.com/stretchr/testify/require"

	"github.com/streamdb/streamdb/internal/pgerr"
	"github.com/streamdb/streamdb/pgwire"
)

// The verifiers of this list were made by PostgreSQL 15.
func TestVerifierOfPostgreSQL(t *testing.T) {
	for _, c := range []struct{ password, verifier string }{
		{"secret", "SCRAM-SHA-256$4096:nuZ+KQFEyDt0myd4iqVwww==$aQUTme2XrJIig6LZojD6k+4dBu/kc5La/t5aw9TmaHs=:HaZv2qWtbTYc8VI6kVbQSX5XCxsfWwx3CsE2PrVWwPY="},
		{"I\u00adX", "SCRAM-SHA-256$4096:TOTmW3UrksGPMV9g9dKYeQ==$xQLM68Txn/dLjaBqVJ9H8HEYAO7VLdLqivzZHogpLOc=:7PmTVIcQrF+CT7JUqjc0p9PtyZJ1v/M0f5CZMuR2xD0="},
		{"ｘｙ", "SCRAM-SHA-256$4096:p2sE/ngH5EjkMGu6pOKZaA==$0eRR78cbpoaZ/go3fjhAoI3417WmzowJN5k4iAsm/G4=:gucWC17mFsT3AWPxHIoUuZpVDumL62RvMgXvYK/pMFI="},
		{"Grüße", "SCRAM-SHA-256$4096:Dk+sO2/ih+pPS3YKVgx+JQ==$5Be3JSQz1CIB5IOdKJ29JJkUb6YTWLdTKqrXcy5KwqI=:hWPwys9DxyP+rQC6f4aZJug/VEf98zT/nH1GuO/UVrI="},
	} {
		v, ok := ParseVerifier(c.verifier)
		require.True(t, ok)
		require.Equal(t, c.verifier, v.String())
		require.True(t, v.Matches(c.password), c.password)
		require.False(t, v.Matches(c.password+"x"))
	}
}

func TestVerifierRefused(t *testing.T) {
	good, err := NewVerifier("x", DefaultIterations)
	require.NoError(t, err)
	s := good.String()
	for _, bad := range []string{"", "SCRAM-SHA-256$", strings.Replace(s, "4096", "0", 1), strings.Replace(s, "4096", "99999999999", 1), s[:len(s)-4], s + "A", "md5" + s} {
		_, ok := ParseVerifier(bad)
		require.False(t, ok, bad)
	}
	require.True(t, IsMD5("md5"+strings.Repeat("0a", 16)))
	require.False(t, IsMD5("md5"+strings.Repeat("0z", 16)))
}

// The example of RFC 7677, section 3.
func TestSCRAMOfRFC(t *testing.T) {
	salt, err := base64.StdEncoding.DecodeString("W22ZaJ0SNY7soEsUEjb6gQ==")
	require.NoError(t, err)
	v, err := derive("pencil", salt, 4096)
	require.NoError(t, err)
	x := &scram{verifier: v}
	challenge, err := x.first("n,,n=user,r=rOprNGfwEbeRWgbNEkqO", "%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0")
	require.NoError(t, err)
	require.Equal(t, "r=rOprNGfwEbeRWgbNEkqO%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0,s=W22ZaJ0SNY7soEsUEjb6gQ==,i=4096", challenge)
	const final = "c=biws,r=rOprNGfwEbeRWgbNEkqO%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0,p=dHzbZapWIk4jUhN+Ute9ytag9zjfMHgsqmmiz7AndVQ="
	answer, ok, err := x.final(final)
	require.NoError(t, err)
	require.True(t, ok)
	require.Equal(t, "v=6rriTRBi23WpRR/wtup+mMhUZUn/dB5nLTJRsjl95G4=", answer)
	x.mock = true
	_, ok, err = x.final(final)
	require.NoError(t, err)
	require.False(t, ok, "a mock exchange never passes")
}

func TestSCRAMRefused(t *testing.T) {
	v, err := NewVerifier("pencil", 1)
	require.NoError(t, err)
	for _, c := range []struct {
		name, first, code string
		plus              bool
		binding           string
	}{
		{"no commas", "n", "08P01", false, ""},
		{"authorization identity", "n,a=joe,n=,r=abc", "0A000", false, ""},
		{"extension", "n,,m=x,n=,r=abc", "0A000", false, ""},
		{"no nonce", "n,,n=", "08P01", false, ""},
		{"empty nonce", "n,,n=,r=", "08P01", false, ""},
		{"nonce with a blank", "n,,n=,r=a b", "08P01", false, ""},
		{"binding without the mechanism", "p=tls-server-end-point,,n=,r=abc", "08P01", false, "h"},
		{"mechanism without the binding", "n,,n=,r=abc", "08P01", true, "h"},
		{"another binding", "p=tls-unique,,n=,r=abc", "08P01", true, "h"},
		{"downgrade", "y,,n=,r=abc", "28000", false, "h"},
		{"flag", "q,,n=,r=abc", "08P01", false, ""},
	} {
		x := &scram{verifier: v, plus: c.plus}
		if c.binding != "" {
			x.binding = []byte(c.binding)
		}
		_, err := x.first(c.first, "server")
		require.Equal(t, c.code, string(pgerr.CodeOf(err)), c.name)
	}
	for _, c := range []struct{ name, final string }{
		{"wrong nonce", "c=biws,r=abc,p=" + base64.StdEncoding.EncodeToString(make([]byte, 32))},
		{"no proof", "c=biws,r=abcserver"},
		{"short proof", "c=biws,r=abcserver,p=AAAA"},
		{"wrong binding", "c=eSws,r=abcserver,p=" + base64.StdEncoding.EncodeToString(make([]byte, 32))},
		{"nothing", ""},
	} {
		x := &scram{verifier: v}
		_, err := x.first("n,,n=,r=abc", "server")
		require.NoError(t, err)
		_, ok, err := x.final(c.final)
		require.Error(t, err, c.name)
		require.False(t, ok)
	}
	x := &scram{verifier: v}
	_, err = x.first("n,,n=,r=abc", "server")
	require.NoError(t, err)
	_, ok, err := x.final("c=biws,r=abcserver,p=" + base64.StdEncoding.EncodeToString(make([]byte, sha256.Size)))
	require.NoError(t, err)
	require.False(t, ok, "a wrong proof")
}

func FuzzSCRAM(f *testing.F) {
	f.Add("n,,n=user,r=abc", "c=biws,r=abcserver,p=AAAA", false)
	f.Add("p=tls-server-end-point,,n=,r=abc", "c=cD10bHM=,r=abcserver,x=1,p=AAAA", true)
	v, err := NewVerifier("secret", 1)
	require.NoError(f, err)
	f.Fuzz(func(t *testing.T, first, final string, plus bool) {
		x := &scram{verifier: v, plus: plus, binding: []byte("hash")}
		if _, err := x.first(first, "server"); err != nil {
			return
		}
		_, ok, _ := x.final(final)
		require.False(t, ok, "nobody guesses a proof")
	})
}

func FuzzHBA(f *testing.F) {
	f.Add("host all all 127.0.0.1/32 trust\nlocal all all peer map=x\n")
	f.Add("hostssl \"a,b\",c +g,\"+h\" 10.0.0.0 255.0.0.0 cert map-role=a=b \\\n clientname=DN # x\n")
	f.Fuzz(func(t *testing.T, text string) {
		rs, err := ParseRules(text, "f")
		if err != nil {
			return
		}
		for i := range rs.List {
			rs.List[i].fits(pgwire.StartupParams{User: "u", Database: "d"}, mustAddr("10.1.2.3"), members{})
		}
	})
}

func mustAddr(s string) netip.Addr { return netip.MustParseAddr(s) }

type members map[string]Role

func (m members) AuthRole(name string) (Role, bool) { r, ok := m[name]; return r, ok }
func (m members) AuthMember(role, of string) bool {
	return role == of || role == "ann" && of == "staff"
}
func (m members) AuthOpen() bool { return m["streamdb"].Verifier == "" }

func TestRules(t *testing.T) {
	rs, err := ParseRules(strings.Join([]string{
		`# comment`,
		`local all all peer`,
		`host streamdb bob 10.0.0.0/8 reject  # not him`,
		`hostssl all "all" 10.0.0.0 255.255.0.0 \`,
		`  cert map-role=robot=all`,
		`hostnossl sameuser, "x y" +staff all password`,
		`host all all ::1/128 trust`,
		`host all carl samehost scram-sha-256`,
	}, "\n"), "hba.conf")
	require.NoError(t, err)
	require.Len(t, rs.List, 6)
	require.Equal(t, []string{"line:2: there are no Unix-domain sockets: rules of type local are ignored"}, rs.Notes())
	find := func(user, database, addr string, ssl bool) int {
		a := &Authenticator{roles: members{}}
		a.rules.Store(rs)
		if r := a.find(pgwire.StartupParams{User: user, Database: database, TLS: ssl}, mustAddr(addr)); r != nil {
			return r.Line
		}
		return 0
	}
	require.Equal(t, 3, find("bob", "streamdb", "10.1.1.1", false))
	require.Equal(t, 0, find("bob", "other", "10.1.1.1", false))
	require.Equal(t, 4, find("all", "other", "10.0.1.1", true))
	require.Equal(t, 0, find("joe", "other", "10.0.1.1", true), "a quoted all is a name")
	require.Equal(t, 6, find("ann", "ann", "192.0.2.1", false))
	require.Equal(t, 6, find("ann", "x y", "192.0.2.1", false))
	require.Equal(t, 0, find("ann", "z", "192.0.2.1", false))
	require.Equal(t, 0, find("ann", "ann", "192.0.2.1", true))
	require.Equal(t, 7, find("joe", "z", "::1", true))
	require.Equal(t, 8, find("carl", "z", "127.0.0.1", true))
}

func TestRulesRefused(t *testing.T) {
	for line, message := range map[string]string{
		`host`:                  `end-of-line before database specification`,
		`host all`:              `end-of-line before role specification`,
		`host all all`:          `end-of-line before IP address specification`,
		`host all all 10.0.0.1`: `end-of-line before netmask specification`,
		`host all all 10.0.0.1 255.0.255.0 trust`:     `invalid IP mask "255.0.255.0"`,
		`host all all 10.0.0.0/99 trust`:              `invalid CIDR mask in address "10.0.0.0/99"`,
		`host all all all`:                            `end-of-line before authentication method`,
		`host all all all md5`:                        `authentication method "md5" is not supported: use scram-sha-256`,
		`host all all all ldap`:                       `authentication method "ldap" is not supported: use scram-sha-256, password, cert, trust or reject`,
		`host all all all nonsense`:                   `invalid authentication method "nonsense"`,
		`host all all all cert`:                       `cert authentication is only supported on hostssl connections`,
		`host all all all trust clientcert=verify-ca`: `clientcert can only be configured for "hostssl" rows`,
		`hostssl all all all trust clientcert=1`:      `invalid value for clientcert: "1"`,
		`hostssl all all all trust x`:                 `authentication option not in name=value format: x`,
		`hostssl all all all trust x=y`:               `unrecognized authentication option name: "x"`,
		`tcp all all all trust`:                       `invalid connection type "tcp"`,
		`host "all all all trust`:                     `unterminated quoted string`,
		`host all @names all trust`:                   `a file of names (@names) is not supported: list the names, or make a role of which they are members`,
		`host all all example.com trust`:              `host names ("example.com") are not supported: give an address`,
	} {
		_, err := ParseRules("\n"+line+"\n", "/etc/hba")
		require.Error(t, err, line)
		require.Equal(t, "/etc/hba:2: "+message, err.Error(), line)
	}
	_, err := ParseRules("# nothing\n", "hba")
	require.ErrorContains(t, err, `configuration file "hba" contains no entries`)
	_, err = LoadRules(filepath.Join(t.TempDir(), "none"))
	require.ErrorIs(t, err, os.ErrNotExist)
}

// dialogue plays a client.
type dialogue struct {
	password   string
	mechanisms []string
	answers    []string
}

func (d *dialogue) CleartextPassword() (string, error) { return d.password, nil }
func (d *dialogue) SASL(m []string) (string, []byte, error) {
	d.mechanisms = m
	return m[0], []byte(d.answers[0]), nil
}
func (d *dialogue) SASLContinue([]byte) ([]byte, error) { return nil, errors.New("gone") }
func (d *dialogue) SASLFinal([]byte) error              { return nil }

func TestAuthenticate(t *testing.T) {
	v, err := NewVerifier("secret", 1)
	require.NoError(t, err)
	past := time.Now().Add(-time.Hour)
	roles := members{"ann": {Verifier: v.String()}, "old": {Verifier: v.String(), ValidUntil: &past}, "none": {}}
	rules, err := ParseRules("host all all 127.0.0.1/32 password\nhost all all 10.0.0.1/32 reject\nhost all all 10.0.0.2/32 trust\nhostssl all all 10.0.0.3/32 cert", "hba")
	require.NoError(t, err)
	a, err := New(roles, rules, zerolog.Nop(), false)
	require.NoError(t, err)
	a.delay = 0
	try := func(user, ip, password string) error {
		return a.Authenticate(context.Background(), pgwire.StartupParams{User: user, Database: "db", RemoteAddr: &net.TCPAddr{IP: net.ParseIP(ip), Port: 1}},
			&dialogue{password: password})
	}
	require.NoError(t, try("ann", "127.0.0.1", "secret"))
	for _, c := range [][4]string{
		{"ann", "127.0.0.1", "Secret", `28P01 password authentication failed for user "ann"`},
		{"ann", "127.0.0.1", "", `28P01 empty password returned by client`},
		{"old", "127.0.0.1", "secret", `28P01 password authentication failed for user "old"`},
		{"none", "127.0.0.1", "secret", `28P01 password authentication failed for user "none"`},
		{"nobody", "127.0.0.1", "secret", `28P01 password authentication failed for user "nobody"`},
		{"ann", "10.0.0.1", "", `28000 pg_hba.conf rejects connection for host "10.0.0.1", user "ann", database "db", no encryption`},
		{"ann", "10.0.0.3", "", `28000 no pg_hba.conf entry for host "10.0.0.3", user "ann", database "db", no encryption`},
	} {
		err := try(c[0], c[1], c[2])
		require.Error(t, err)
		require.Equal(t, c[3], string(pgerr.CodeOf(err))+" "+err.Error())
	}
	require.NoError(t, try("nobody", "10.0.0.2", ""))

	a.SetRules(nil)
	require.NoError(t, try("nobody", "127.0.0.1", ""), "loopback is trusted")
	require.Error(t, a.Authenticate(context.Background(), pgwire.StartupParams{User: "ann", RemoteAddr: &net.TCPAddr{IP: net.ParseIP("192.0.2.1")}},
		&dialogue{answers: []string{"n,,n=,r=abc"}}))
	roles["streamdb"] = Role{Verifier: v.String()}
	require.Error(t, a.Authenticate(context.Background(), pgwire.StartupParams{User: "ann", RemoteAddr: &net.TCPAddr{IP: net.ParseIP("127.0.0.1")}},
		&dialogue{answers: []string{"n,,n=,r=abc"}}), "not once the superuser has a password")
}

func TestMockSaltIsStable(t *testing.T) {
	a, err := New(members{}, nil, zerolog.Nop(), false)
	require.NoError(t, err)
	one, mock := a.verifier("nobody")
	require.True(t, mock)
	two, _ := a.verifier("nobody")
	other, _ := a.verifier("noone")
	require.Equal(t, one.Salt, two.Salt)
	require.NotEqual(t, one.Salt, other.Salt)
	require.Equal(t, strconv.Itoa(one.Iterations), strconv.Itoa(DefaultIterations))
}
