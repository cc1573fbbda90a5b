package server_test

import (
	"bytes"
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"math/big"
	"net"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/rs/zerolog"
	"github.com/stretchr/testify/require"

	"github.com/streamdb/streamdb/server"
)

func TestGuestsUntilRolesExist(t *testing.T) {
	d := open(t)
	addr := d.listen()
	s, err := d.tcp(addr, "anything", "")
	require.NoError(t, err)
	require.Equal(t, "anything|anything|on", s.row("select current_user, session_user, current_setting('is_superuser')"))
	s.must("create table t (a int)", "create role ann login", "create role nologin")
	_, err = d.tcp(addr, "anything", "")
	require.Equal(t, "28000", pgErr(t, err).Code)
	require.Equal(t, `role "anything" does not exist`, pgErr(t, err).Message)
	_, err = d.tcp(addr, "nologin", "")
	require.Equal(t, `role "nologin" is not permitted to log in`, pgErr(t, err).Message)
	ann, err := d.tcp(addr, "ann", "")
	require.NoError(t, err)
	require.Equal(t, "ann|off", ann.row("select current_user, current_setting('is_superuser')"))
}

func TestPasswords(t *testing.T) {
	var log bytes.Buffer
	d := open(t, func(c *server.Config) {
		c.Logger = zerolog.New(zerolog.SyncWriter(&log))
		c.SuperuserPassword = "boot-secret"
	})
	addr := d.listen()
	_, err := d.tcp(addr, "streamdb", "wrong")
	require.Equal(t, "28P01", pgErr(t, err).Code)
	_, err = d.tcp(addr, "nobody", "wrong")
	require.Equal(t, `password authentication failed for user "nobody"`, pgErr(t, err).Message)
	admin, err := d.tcp(addr, "streamdb", "boot-secret")
	require.NoError(t, err)
	admin.must(`create role ann login password 'ann-secret' connection limit 1`)
	require.Equal(t, []string{"create role bob password '********'"},
		append(admin.rows("create role bob password 'ann-secret'"), "create role bob password '********'"))
	require.Regexp(t, `^SCRAM-SHA-256\$4096:`, admin.row("select rolpassword from pg_authid where rolname = 'ann'"))
	require.Equal(t, "0A000", admin.code("alter role bob password 'md5aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa'"))
	// A verifier made by PostgreSQL 15 of the password "secret".
	admin.must("create role pg login password 'SCRAM-SHA-256$4096:nuZ+KQFEyDt0myd4iqVwww==$aQUTme2XrJIig6LZojD6k+4dBu/kc5La/t5aw9TmaHs=:HaZv2qWtbTYc8VI6kVbQSX5XCxsfWwx3CsE2PrVWwPY='")
	_, err = d.tcp(addr, "pg", "secret")
	require.NoError(t, err)
	ann, err := d.tcp(addr, "ann", "ann-secret")
	require.NoError(t, err)
	_, err = d.tcp(addr, "ann", "ann-secret")
	require.Equal(t, "53300", pgErr(t, err).Code)
	require.NoError(t, ann.Close(d.ctx))
	admin.must("alter role ann valid until '2001-01-01'")
	_, err = d.tcp(addr, "ann", "ann-secret")
	require.Equal(t, "28P01", pgErr(t, err).Code)
	for _, r := range admin.rows("select query from pg_stat_activity") {
		require.NotContains(t, r, "ann-secret")
	}
	d.crash()
	addr = d.listen()
	_, err = d.tcp(addr, "pg", "secret")
	require.NoError(t, err, "roles survive")
	require.NotContains(t, log.String(), "secret")
}

func TestRoleSettings(t *testing.T) {
	d := open(t)
	admin := d.connect()
	admin.must("create role ann login", "alter role ann set search_path = 'x', public", "alter role ann set statement_timeout = '7s'", "create role grp", "grant grp to ann")
	require.Equal(t, []string{`0|ann|{"search_path=x, public",statement_timeout=7s}`}, admin.rows("select setdatabase, setrole::regrole::text, setconfig::text from pg_db_role_setting"))
	admin.fails("alter database streamdb rename to x", "0A000", "this form of ALTER DATABASE is not supported")
	admin.fails("alter database x reset all", "3D000", `database "x" does not exist`)
	ann := d.as("ann")
	require.Equal(t, "7s", ann.row("show statement_timeout"))
	ann.must("set role grp")
	require.Equal(t, "grp|ann", ann.row("select current_user, session_user"))
	ann.must("begin", "set local role none")
	require.Equal(t, "ann", ann.row("select current_user"))
	ann.must("rollback")
	require.Equal(t, "grp", ann.row("select current_user"))
	ann.must("reset role")
	require.Equal(t, "ann", ann.row("select current_user"))
	admin.must("set session authorization ann")
	require.Equal(t, "ann|ann|off", admin.row("select current_user, session_user, current_setting('is_superuser')"))
	require.Equal(t, "42501", admin.code("create role x"))
	admin.must("reset session authorization")
	require.Equal(t, "streamdb|on", admin.row("select current_user, current_setting('is_superuser')"))
}

// Settings of roles, of the database and of both are kept, and the closest to the session prevails.
func TestStoredSettings(t *testing.T) {
	d := open(t)
	admin := d.connect()
	admin.must("create role ann login", "create role bob login", "create role dba login", "create role other login createrole")
	value := func(user, setting string) string {
		s := d.as(user)
		defer func() { require.NoError(t, s.Close(d.ctx)) }()
		return s.row("select setting || '|' || source from pg_settings where name = '" + setting + "'")
	}
	for _, step := range []struct{ sql, ann, bob string }{
		{"alter system set work_mem = '10MB'", "10MB|configuration file", "10MB|configuration file"},
		{"alter role all set work_mem = '11MB'", "11MB|global", "11MB|global"},
		{"alter database streamdb set work_mem = '12MB'", "12MB|database", "12MB|database"},
		{"alter role ann set work_mem = '13MB'", "13MB|user", "12MB|database"},
		{"alter role ann in database streamdb set work_mem = '14MB'", "14MB|database user", "12MB|database"},
	} {
		admin.must(step.sql)
		require.Equal(t, []string{step.ann, step.bob}, []string{value("ann", "work_mem"), value("bob", "work_mem")}, step.sql)
	}
	admin.must("alter role all in database streamdb set app.name = 'x y'", "alter database streamdb set search_path to a, b", "alter database streamdb set time zone 'UTC'")
	listed := []string{`0|-|{work_mem=11MB}`, `0|ann|{work_mem=13MB}`, `d|-|{TimeZone=UTC,"app.name=x y","search_path=a, b",work_mem=12MB}`, `d|ann|{work_mem=14MB}`}
	list := `select case when setdatabase = 0 then '0' when setdatabase = (select oid from pg_database where datname = current_database()) then 'd' end,
		setrole::regrole::text, setconfig::text from pg_db_role_setting order by 1, 2`
	require.Equal(t, listed, admin.rows(list))
	require.Equal(t, "{work_mem=13MB}", admin.row("select rolconfig::text from pg_roles where rolname = 'ann'"), "only those for all databases")
	// psql's \drds.
	require.Equal(t, []string{`ann|streamdb|work_mem=14MB`, `ann|NULL|work_mem=13MB`, `NULL|streamdb|TimeZone=UTC app.name=x y search_path=a, b work_mem=12MB`, `NULL|NULL|work_mem=11MB`},
		admin.rows(`SELECT rolname AS "Role", datname AS "Database", pg_catalog.array_to_string(setconfig, ' ') AS "Settings"
			FROM pg_catalog.pg_db_role_setting s LEFT JOIN pg_catalog.pg_database d ON d.oid = setdatabase
			LEFT JOIN pg_catalog.pg_roles r ON r.oid = setrole ORDER BY 1, 2`))
	d.crash()
	admin = d.connect()
	require.Equal(t, listed, admin.rows(list), "settings survive")
	require.Equal(t, "x y", d.as("bob").row("show app.name"))
	ann := d.as("ann")
	require.Equal(t, "14MB", ann.row("show work_mem"))
	ann.must("set work_mem = '1MB'", "reset work_mem")
	require.Equal(t, "14MB", ann.row("show work_mem"), "what a session began with is what RESET goes back to")
	// A transaction block that is rolled back leaves nothing.
	admin.must("begin", "alter database streamdb reset all", "alter role ann in database streamdb reset all", "rollback")
	require.Equal(t, listed, admin.rows(list))

	ann.fails("alter database streamdb set work_mem = '1MB'", "42501", "must be owner of database streamdb")
	ann.fails("alter role all in database streamdb reset all", "42501", "must be owner of database streamdb")
	ann.fails("alter role all set work_mem = '1MB'", "42501", "must be superuser to alter settings globally")
	ann.fails("alter role bob in database streamdb set work_mem = '1MB'", "42501", "permission denied")
	ann.fails("alter role streamdb in database streamdb set work_mem = '1MB'", "42501", "must be superuser to alter superusers")
	d.as("other").must("alter role bob in database streamdb set work_mem = '15MB'", "alter role bob in database streamdb reset work_mem")
	admin.fails("alter database streamdb set no_such = 1", "42704", `unrecognized configuration parameter "no_such"`)
	admin.fails("alter role nobody in database nowhere set work_mem = '1MB'", "42704", `role "nobody" does not exist`)
	admin.fails("alter role all in database nowhere set work_mem = '1MB'", "3D000", `database "nowhere" does not exist`)
	admin.fails("alter database streamdb set server_version = '1'", "55P02", `parameter "server_version" cannot be set for a database`)
	admin.fails("alter database streamdb set tablespace x", "0A000", "ALTER DATABASE SET TABLESPACE is not supported")

	// RESET ALL takes what is for just that role and database.
	ann.must("alter role ann reset all")
	require.Equal(t, "14MB|database user", value("ann", "work_mem"))
	admin.must("alter database streamdb owner to dba")
	d.as("dba").must("alter database streamdb reset search_path", "alter database streamdb set work_mem to default", "alter role all in database streamdb reset all")
	admin.must("alter role all reset all")
	require.Equal(t, []string{`d|ann|{work_mem=14MB}`}, admin.rows(list))
	require.Equal(t, "10MB|configuration file", value("bob", "work_mem"))
	admin.must("drop role ann")
	require.Empty(t, admin.rows(list))
}

func TestViewsAndRevocation(t *testing.T) {
	d := open(t)
	admin := d.connect()
	admin.must("create role ann login", "create role bob login", "create table t (a int)", "insert into t values (1)", "grant select on t to ann",
		"grant create on schema public to ann")
	ann, bob := d.as("ann"), d.as("bob")
	ann.must("create view v as select * from t", "create materialized view m as select * from t", "grant select on v, m to bob")
	require.Equal(t, "1", bob.row("select * from v"))
	require.Equal(t, "1", bob.row("select * from m"))
	_, err := bob.Prepare(d.ctx, "p", "select a from v")
	require.NoError(t, err)
	var n int
	require.NoError(t, bob.QueryRow(d.ctx, "p").Scan(&n))
	admin.must("revoke select on t from ann")
	require.Equal(t, "42501", string(codeOf(t, bob.QueryRow(d.ctx, "p").Scan(&n))), "the view's owner may no longer read")
	bob.fails("select * from v", "42501", "permission denied for table t")
	require.Equal(t, "1", bob.row("select * from m"))
	e := admin.fails("drop role ann", "2BP01", `role "ann" cannot be dropped because some objects depend on it`)
	require.Contains(t, e.Detail, "owner of view v")
	require.Contains(t, e.Detail, "privileges for schema public")
	admin.must("drop owned by ann cascade", "drop role ann")
	admin.must("alter default privileges grant select on tables to bob", "create table d (a int)")
	require.Empty(t, bob.rows("select * from d"))
	d.crash()
	require.Empty(t, d.as("bob").rows("select * from d"))
}

// authority makes certificates of a test.
type authority struct {
	t    *testing.T
	dir  string
	cert *x509.Certificate
	key  *ecdsa.PrivateKey
}

func newAuthority(t *testing.T) *authority {
	a := &authority{t: t, dir: t.TempDir()}
	a.cert, a.key = a.issue("ca", true)
	return a
}

func (a *authority) issue(name string, ca bool) (*x509.Certificate, *ecdsa.PrivateKey) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	require.NoError(a.t, err)
	c := &x509.Certificate{
		SerialNumber: big.NewInt(time.Now().UnixNano()), Subject: pkix.Name{CommonName: name}, NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour),
		IsCA: ca, BasicConstraintsValid: true, IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)},
		KeyUsage: x509.KeyUsageDigitalSignature | x509.KeyUsageCertSign,
	}
	parent, parentKey := a.cert, a.key
	if ca {
		parent, parentKey = c, key
	}
	der, err := x509.CreateCertificate(rand.Reader, c, parent, &key.PublicKey, parentKey)
	require.NoError(a.t, err)
	out, err := x509.ParseCertificate(der)
	require.NoError(a.t, err)
	raw, err := x509.MarshalPKCS8PrivateKey(key)
	require.NoError(a.t, err)
	a.write(name+".crt", "CERTIFICATE", der)
	a.write(name+".key", "PRIVATE KEY", raw)
	return out, key
}

func (a *authority) write(name, kind string, der []byte) {
	require.NoError(a.t, os.WriteFile(a.file(name), pem.EncodeToMemory(&pem.Block{Type: kind, Bytes: der}), 0o600))
}

func (a *authority) file(name string) string { return filepath.Join(a.dir, name) }

func TestTLSAndRules(t *testing.T) {
	ca := newAuthority(t)
	ca.issue("server", false)
	ca.issue("robot", false)
	ca.issue("ann", false)
	hba := filepath.Join(t.TempDir(), "hba")
	rules := func(text string) { require.NoError(t, os.WriteFile(hba, []byte(text), 0o600)) }
	rules("hostssl all streamdb all scram-sha-256\nhostssl all all all cert map-role=robot=worker\n")
	d := open(t, func(c *server.Config) {
		c.TLS.Cert, c.TLS.Key, c.TLS.CA = ca.file("server.crt"), ca.file("server.key"), ca.file("ca.crt")
		c.HBAFile, c.SuperuserPassword = hba, "secret"
	})
	addr := d.listen()
	tls := []string{"sslmode=verify-full", "sslrootcert=" + ca.file("ca.crt")}
	with := func(name string) []string {
		return append([]string{"sslcert=" + ca.file(name+".crt"), "sslkey=" + ca.file(name+".key")}, tls...)
	}
	_, err := d.tcp(addr, "streamdb", "secret")
	require.Contains(t, err.Error(), `no pg_hba.conf entry for host "127.0.0.1", user "streamdb", database "streamdb", no encryption`)
	admin, err := d.tcp(addr, "streamdb", "secret", append([]string{"channel_binding=require"}, tls...)...)
	require.NoError(t, err)
	require.Equal(t, "on", admin.row("show ssl"))
	admin.must("create role ann login", "create role worker login", "create role robot login")
	_, err = d.tcp(addr, "ann", "", tls...)
	require.Contains(t, err.Error(), "connection requires a valid client certificate")
	ann, err := d.tcp(addr, "ann", "", with("ann")...)
	require.NoError(t, err)
	require.Equal(t, "t|TLSv1.3|/CN=ann|/CN=ca", ann.row("select ssl::text::\"char\", version, client_dn, issuer_dn from pg_stat_ssl where client_serial is not null"))
	ann.fails("select * from pg_hba_file_rules", "42501", "permission denied for view pg_hba_file_rules")
	ann.fails("select pg_reload_conf()", "42501", "permission denied for function pg_reload_conf")
	require.Equal(t, []string{"1|hostssl|{all}|{streamdb}|all||scram-sha-256||", "2|hostssl|{all}|{all}|all||cert|{clientcert=verify-full,map-role=robot=worker}|"},
		admin.rows("select concat_ws('|', line_number, type, database::text, user_name::text, address, coalesce(netmask, ''), auth_method, coalesce(options::text, ''), coalesce(error, '')) from pg_hba_file_rules"))
	_, err = d.tcp(addr, "worker", "", with("robot")...)
	require.NoError(t, err)
	for _, user := range []string{"robot", "ann"} {
		_, err = d.tcp(addr, user, "", with("robot")...)
		require.Contains(t, err.Error(), `certificate authentication failed for user "`+user+`"`)
	}

	rules("host all all all nonsense\n")
	require.ErrorContains(t, d.srv.ReloadConfig(), `:1: invalid authentication method "nonsense"`)
	_, err = d.tcp(addr, "ann", "", with("ann")...)
	require.NoError(t, err, "the former rules are in force")
	require.Equal(t, []string{`1: invalid authentication method "nonsense"`}, admin.rows("select line_number || ': ' || error from pg_hba_file_rules where type is null"))
	loaded := admin.text("select pg_conf_load_time()::text")
	rules("host all all all reject\n")
	require.NoError(t, d.srv.ReloadConfig())
	_, err = d.tcp(addr, "ann", "", with("ann")...)
	require.Contains(t, err.Error(), `pg_hba.conf rejects connection for host "127.0.0.1", user "ann", database "streamdb", SSL encryption`)
	require.NoError(t, admin.Ping(d.ctx), "open connections stay")
	require.NotEqual(t, loaded, admin.text("select pg_conf_load_time()::text"))

	// A certificate that changes is served to the next connection.
	rules("hostssl all all all trust\n")
	require.Equal(t, "true", admin.text("select pg_reload_conf()::text"))
	other := newAuthority(t)
	other.issue("server", false)
	for _, f := range []string{"server.crt", "server.key"} {
		b, err := os.ReadFile(other.file(f))
		require.NoError(t, err)
		require.NoError(t, os.WriteFile(ca.file(f), append(b, '\n'), 0o600))
	}
	_, err = d.tcp(addr, "ann", "", "sslmode=verify-full", "sslrootcert="+other.file("ca.crt"))
	require.NoError(t, err)
}

func TestListenNeedsPasswords(t *testing.T) {
	d := open(t)
	far := &net.TCPAddr{IP: net.IPv4(192, 0, 2, 1), Port: 5433}
	require.Error(t, d.srv.CheckListen(far))
	require.NoError(t, d.srv.CheckListen(&net.TCPAddr{IP: net.IPv4(127, 0, 0, 1)}))
	d.connect().must("alter role streamdb password 'x'")
	require.NoError(t, d.srv.CheckListen(far))
	require.NoError(t, d.srv.Close(context.Background()))
	d.cfg.Insecure = true
	d.start()
	require.NoError(t, d.srv.CheckListen(far))
}
