//go:build e2e

package e2e

import (
	"bytes"
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"errors"
	"math/big"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgconn"
	"github.com/stretchr/testify/require"
)

// authority signs certificates for one test; its files are in dir.
type authority struct {
	t    *testing.T
	dir  string
	cert *x509.Certificate
	key  *ecdsa.PrivateKey
}

func newAuthority(t *testing.T) *authority {
	t.Helper()
	a := &authority{t: t, dir: t.TempDir()}
	a.cert, a.key = a.issue("ca")
	return a
}

func (a *authority) file(name string) string { return filepath.Join(a.dir, name) }

// issue makes name.crt and name.key; the first one signs itself, and all others.
func (a *authority) issue(name string) (*x509.Certificate, *ecdsa.PrivateKey) {
	a.t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	require.NoError(a.t, err)
	serial, err := rand.Int(rand.Reader, big.NewInt(1<<62))
	require.NoError(a.t, err)
	c := &x509.Certificate{
		SerialNumber: serial, Subject: pkix.Name{CommonName: name}, NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour),
		IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)}, BasicConstraintsValid: true, IsCA: a.cert == nil, KeyUsage: x509.KeyUsageDigitalSignature,
	}
	parent, signer := a.cert, a.key
	if parent == nil {
		c.KeyUsage |= x509.KeyUsageCertSign
		parent, signer = c, key
	}
	der, err := x509.CreateCertificate(rand.Reader, c, parent, &key.PublicKey, signer)
	require.NoError(a.t, err)
	c, err = x509.ParseCertificate(der)
	require.NoError(a.t, err)
	raw, err := x509.MarshalPKCS8PrivateKey(key)
	require.NoError(a.t, err)
	for file, block := range map[string]*pem.Block{name + ".crt": {Type: "CERTIFICATE", Bytes: der}, name + ".key": {Type: "PRIVATE KEY", Bytes: raw}} {
		require.NoError(a.t, os.WriteFile(a.file(file), pem.EncodeToMemory(block), 0o600))
	}
	return c, key
}

// psqlPath finds psql, or ends the test.
func psqlPath(t *testing.T) string {
	t.Helper()
	psql, err := exec.LookPath("psql")
	if err != nil {
		if os.Getenv("STREAMDB_E2E_CLIENTS") == "require" {
			t.Fatal("psql is not installed")
		}
		t.Skip("psql is not installed")
	}
	return psql
}

// secured is a server that asks who its clients are, and psql.
type secured struct {
	t    *testing.T
	p    *process
	psql string
	hba  string
	ca   *authority
}

// login runs a query with psql, which is given the rest of the connection string.
func (s *secured) login(user, password, options, sql string) (output string, err error) {
	host, port, err := net.SplitHostPort(s.p.addr)
	require.NoError(s.t, err)
	ctx, cancel := context.WithTimeout(s.t.Context(), statementTimeout)
	defer cancel()
	cmd := exec.CommandContext(ctx, s.psql, "-X", "-w", "-A", "-t", "-v", "VERBOSITY=verbose", "-v", "ON_ERROR_STOP=1", "-c", sql,
		"host="+host+" port="+port+" dbname=streamdb user="+user+" "+options)
	home := s.t.TempDir() // a certificate or password of whoever runs the test must not help
	cmd.Env = append(os.Environ(), "HOME="+home, "PGPASSFILE="+filepath.Join(home, "none"), "PGPASSWORD="+password)
	out, err := cmd.CombinedOutput()
	var failed *exec.ExitError
	if err != nil && !errors.As(err, &failed) {
		require.NoError(s.t, err)
	}
	return strings.TrimSpace(string(out)), err
}

func (s *secured) accepts(user, password, options, sql, want string) {
	s.t.Helper()
	out, err := s.login(user, password, options, sql)
	require.NoError(s.t, err, "%s\nserver: %s", out, s.p.log)
	require.Equal(s.t, want, out)
}

func (s *secured) refuses(user, password, options, message string) {
	s.t.Helper()
	out, err := s.login(user, password, options, "SELECT 1")
	require.Error(s.t, err, out)
	require.Contains(s.t, out, message)
}

// sqlstate is that of a refused login, which psql does not print.
func (s *secured) sqlstate(user, password, options string) string {
	s.t.Helper()
	ctx, cancel := context.WithTimeout(s.t.Context(), statementTimeout)
	defer cancel()
	host, port, err := net.SplitHostPort(s.p.addr)
	require.NoError(s.t, err)
	conn, err := pgconn.Connect(ctx, "host="+host+" port="+port+" dbname=streamdb user="+user+" password="+password+" "+options)
	if err == nil {
		require.NoError(s.t, conn.Close(ctx))
	}
	require.Error(s.t, err)
	c, _ := code(err)
	return c
}

func (s *secured) rules(lines ...string) {
	s.t.Helper()
	require.NoError(s.t, os.WriteFile(s.hba, []byte(strings.Join(lines, "\n")+"\n"), 0o600))
}

// reload sends SIGHUP and waits for the server's word on it.
func (s *secured) reload(word string) {
	s.t.Helper()
	before := strings.Count(s.p.log.String(), word)
	require.NoError(s.t, s.p.cmd.Process.Signal(syscall.SIGHUP))
	require.True(s.t, eventually(statementTimeout, func() bool { return strings.Count(s.p.log.String(), word) > before }), "%s", s.p.log)
}

const (
	bossPassword = "boot-Geheimnis-1"
	annPassword  = "ann-Geheimnis-2"
	newPassword  = "new-Geheimnis-3"
)

func newSecured(t *testing.T) *secured {
	t.Helper()
	s := &secured{t: t, psql: psqlPath(t), ca: newAuthority(t), hba: filepath.Join(t.TempDir(), "hba.conf")}
	for _, name := range []string{"server", "robot", "ann"} {
		s.ca.issue(name)
	}
	s.rules("hostssl all streamdb,ann all scram-sha-256", "hostssl all robot,worker all cert map-role=robot=worker map-role=robot=robot", "hostnossl all plain all scram-sha-256")
	s.p = serve(t, serveOptions{
		dataDir: t.TempDir(), env: []string{"STREAMDB_SUPERUSER_PASSWORD=" + bossPassword},
		args: []string{"--hba", s.hba, "--tls-cert", s.ca.file("server.crt"), "--tls-key", s.ca.file("server.key"), "--tls-client-ca", s.ca.file("ca.crt")},
	})
	s.accepts("streamdb", bossPassword, "sslmode=require", "CREATE ROLE ann LOGIN PASSWORD '"+annPassword+"'", "CREATE ROLE")
	s.accepts("streamdb", bossPassword, "sslmode=require", "CREATE ROLE plain LOGIN PASSWORD '"+annPassword+"'", "CREATE ROLE")
	s.accepts("streamdb", bossPassword, "sslmode=require", "CREATE ROLE robot LOGIN", "CREATE ROLE")
	s.accepts("streamdb", bossPassword, "sslmode=require", "CREATE ROLE worker LOGIN", "CREATE ROLE")
	return s
}

// TestSecureLogins logs in with psql in all the ways that the rules ask for.
func TestSecureLogins(t *testing.T) {
	s := newSecured(t)
	root := " sslrootcert=" + s.ca.file("ca.crt")
	certificate := func(name string) string {
		return "sslmode=verify-full sslcert=" + s.ca.file(name+".crt") + " sslkey=" + s.ca.file(name+".key") + root
	}
	const mine = "SELECT current_user, ssl, version FROM pg_stat_ssl WHERE pid = pg_backend_pid()"
	s.accepts("ann", annPassword, "sslmode=require", mine, "ann|t|TLSv1.3")
	s.accepts("ann", annPassword, "sslmode=verify-full"+root, mine, "ann|t|TLSv1.3")
	s.accepts("ann", annPassword, "sslmode=require ssl_max_protocol_version=TLSv1.2", mine, "ann|t|TLSv1.2")
	s.accepts("ann", annPassword, "sslmode=verify-full channel_binding=require"+root, mine, "ann|t|TLSv1.3")
	s.accepts("ann", annPassword, "sslmode=require channel_binding=disable", mine, "ann|t|TLSv1.3")
	s.refuses("ann", annPassword, "sslmode=verify-full sslrootcert="+newAuthority(t).file("ca.crt"), "certificate verify failed")
	s.refuses("ann", annPassword, "sslmode=require ssl_min_protocol_version=TLSv1 ssl_max_protocol_version=TLSv1.1", "SSL error")

	s.refuses("ann", "wrong", "sslmode=require", `FATAL:  password authentication failed for user "ann"`)
	s.refuses("ann", "wrong", "sslmode=require channel_binding=require", `FATAL:  password authentication failed for user "ann"`)
	s.refuses("ann", "", "sslmode=require", "no password supplied")
	require.Equal(t, "28P01", s.sqlstate("ann", "wrong", "sslmode=require"))

	s.refuses("ann", annPassword, "sslmode=disable", `FATAL:  no pg_hba.conf entry for host "127.0.0.1", user "ann", database "streamdb", no encryption`)
	s.refuses("nobody", annPassword, "sslmode=require", `FATAL:  no pg_hba.conf entry for host "127.0.0.1", user "nobody", database "streamdb", SSL encryption`)
	require.Equal(t, "28000", s.sqlstate("ann", annPassword, "sslmode=disable"))
	s.accepts("plain", annPassword, "sslmode=disable", mine, "plain|f|")
	s.accepts("plain", annPassword, "sslmode=prefer", mine, "plain|f|") // psql tries again in the clear
	s.refuses("plain", annPassword, "sslmode=require", `FATAL:  no pg_hba.conf entry for host "127.0.0.1", user "plain", database "streamdb", SSL encryption`)

	s.accepts("robot", "", certificate("robot"), "SELECT client_dn, issuer_dn, client_serial > 0 FROM pg_stat_ssl WHERE pid = pg_backend_pid()", "/CN=robot|/CN=ca|t")
	s.accepts("worker", "", certificate("robot"), "SELECT current_user", "worker")
	s.refuses("robot", "", certificate("ann"), `FATAL:  certificate authentication failed for user "robot"`)
	s.refuses("robot", "", "sslmode=require", "FATAL:  connection requires a valid client certificate")
	require.Equal(t, "28000", s.sqlstate("robot", "", "sslmode=require"))

	s.accepts("ann", annPassword, "sslmode=require", `ALTER ROLE ann PASSWORD '`+newPassword+`'`, "ALTER ROLE")
	s.refuses("ann", annPassword, "sslmode=require", `password authentication failed`)
	s.accepts("ann", newPassword, "sslmode=require", "SELECT 1", "1")
	s.refuses("ann", newPassword, "sslmode=require options='-c nonsense=1'", "unrecognized configuration parameter")
	_, err := s.login("ann", newPassword, "sslmode=require", "ALTER ROLE ann PASSWORD '"+annPassword+"' NONSENSE")
	require.Error(t, err)

	require.True(t, s.p.alive(), "%s", s.p.log)
	require.Contains(t, s.p.log.String(), "login refused")
	for _, password := range []string{bossPassword, annPassword, newPassword} {
		require.NotContains(t, s.p.log.String(), password)
	}
	require.NotContains(t, s.p.log.String(), "SCRAM-SHA-256$")
}

// TestSecureReload changes rules and certificates under a running server.
func TestSecureReload(t *testing.T) {
	s := newSecured(t)
	root := "sslmode=verify-full sslrootcert=" + s.ca.file("ca.crt")

	s.rules("hostssl all streamdb all scram-sha-256", "host all all all nonsense")
	s.reload(`invalid authentication method \"nonsense\"`)
	s.accepts("ann", annPassword, root, "SELECT current_user", "ann")
	s.accepts("streamdb", bossPassword, root, "SELECT line_number, auth_method, error FROM pg_hba_file_rules ORDER BY 1", "1|scram-sha-256|\n2||invalid authentication method \"nonsense\"")

	s.rules("host all ann all reject", "hostssl all all all scram-sha-256")
	s.reload("configuration reloaded")
	s.refuses("ann", annPassword, root, `FATAL:  pg_hba.conf rejects connection for host "127.0.0.1", user "ann", database "streamdb", SSL encryption`)
	s.accepts("streamdb", bossPassword, root, "SELECT 1", "1")

	s.rules("hostssl all all all scram-sha-256")
	s.accepts("streamdb", bossPassword, root, "SELECT pg_reload_conf()", "t")
	s.accepts("ann", annPassword, root, "SELECT 1", "1")

	// The next connection sees a certificate of another authority; a key that does not belong to it changes nothing.
	other := newAuthority(t)
	other.issue("server")
	replace := func(file string) {
		b, err := os.ReadFile(other.file(file))
		require.NoError(t, err)
		require.NoError(t, os.WriteFile(s.ca.file(file), b, 0o600))
	}
	replace("server.key")
	s.reload("could not load server certificate")
	s.accepts("ann", annPassword, root, "SELECT 1", "1")
	replace("server.crt")
	s.reload("configuration reloaded")
	s.refuses("ann", annPassword, root, "certificate verify failed")
	s.accepts("ann", annPassword, "sslmode=verify-full sslrootcert="+other.file("ca.crt"), "SELECT 1", "1")
}

// TestStartupNegotiation speaks the first bytes of the protocol itself.
func TestStartupNegotiation(t *testing.T) {
	s := newSecured(t)
	pool := x509.NewCertPool()
	pool.AddCert(s.ca.cert)
	client := func(protocols ...string) *tls.Config {
		return &tls.Config{RootCAs: pool, ServerName: "127.0.0.1", NextProtos: protocols, MinVersion: tls.VersionTLS12}
	}
	dial := func() net.Conn {
		nc, err := net.DialTimeout("tcp", s.p.addr, statementTimeout)
		require.NoError(t, err)
		t.Cleanup(func() { _ = nc.Close() }) // the server may have closed it
		require.NoError(t, nc.SetDeadline(time.Now().Add(statementTimeout)))
		return nc
	}
	ask := func(nc net.Conn, request ...byte) byte {
		_, err := nc.Write(append([]byte{0, 0, 0, 8, 4, 210, 22}, request...))
		require.NoError(t, err)
		var b [1]byte
		_, err = nc.Read(b[:])
		require.NoError(t, err)
		return b[0]
	}
	startup := []byte("\x00\x03\x00\x00user\x00ann\x00database\x00streamdb\x00\x00")
	startup = append([]byte{0, 0, 0, byte(len(startup) + 4)}, startup...)
	const authenticationSASL = "\x00\x00\x00\x0aSCRAM-SHA-256-PLUS\x00SCRAM-SHA-256\x00\x00"
	login := func(nc net.Conn) {
		_, err := nc.Write(startup)
		require.NoError(t, err)
		b := make([]byte, 5+len(authenticationSASL))
		n, err := nc.Read(b)
		require.NoError(t, err)
		require.Equal(t, byte('R'), b[0], "%q", b[:n])
		require.True(t, bytes.HasPrefix(b[5:n], []byte(authenticationSASL)), "%q", b[:n])
	}

	// No encryption by GSSAPI; TLS is begun on the same socket, and then the client logs in.
	nc := dial()
	require.Equal(t, byte('N'), ask(nc, 48))
	require.Equal(t, byte('S'), ask(nc, 47))
	login(tls.Client(nc, client()))

	// TLS at once, with the name of the protocol.
	direct := tls.Client(dial(), client("postgresql"))
	require.NoError(t, direct.Handshake())
	require.Equal(t, "postgresql", direct.ConnectionState().NegotiatedProtocol)
	login(direct)

	// Without that name, or with another, there is no session: with another not even a handshake.
	for _, names := range [][]string{nil, {"http/1.1"}} {
		refused := tls.Client(dial(), client(names...))
		err := refused.Handshake()
		if err == nil {
			_, err = refused.Read(make([]byte, 1))
		}
		require.Error(t, err)
		require.False(t, errors.Is(err, os.ErrDeadlineExceeded), "%v", err)
	}

	// Versions before 1.2 are refused, by a server that was told so also 1.2.
	old := client("postgresql")
	old.MinVersion, old.MaxVersion = tls.VersionTLS10, tls.VersionTLS11
	require.ErrorContains(t, tls.Client(dial(), old).Handshake(), "protocol version")
	s.p.stop(t)
	s.p = serve(t, serveOptions{
		dataDir: t.TempDir(), env: []string{"STREAMDB_SUPERUSER_PASSWORD=" + bossPassword},
		args: []string{"--hba", s.hba, "--tls-cert", s.ca.file("server.crt"), "--tls-key", s.ca.file("server.key"), "--tls-client-ca", s.ca.file("ca.crt"), "--tls-min-version", "TLSv1.3"},
	})
	old.MinVersion, old.MaxVersion = tls.VersionTLS12, tls.VersionTLS12
	require.ErrorContains(t, tls.Client(dial(), old).Handshake(), "protocol version")
	require.NoError(t, tls.Client(dial(), client("postgresql")).Handshake())
	s.refuses("streamdb", bossPassword, "sslmode=require ssl_max_protocol_version=TLSv1.2", "SSL error")
	s.accepts("streamdb", bossPassword, "sslmode=require", "SELECT version FROM pg_stat_ssl WHERE pid = pg_backend_pid()", "TLSv1.3")
}
