package server_test

import (
	"net"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"
)

// dial makes connections of a test come over TCP, where rules apply.
func (d *database) listen() string {
	d.t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(d.t, err)
	go func() { _ = d.srv.Serve(l) }()
	return l.Addr().String()
}

// tcp connects as a user over TCP; the error is for the caller.
func (d *database) tcp(addr, user, password string, change ...string) (*session, error) {
	cfg, err := pgx.ParseConfig("postgres://" + addr + "/streamdb?" + strings.Join(append([]string{"sslmode=disable"}, change...), "&"))
	require.NoError(d.t, err)
	cfg.User, cfg.Password = user, password
	c, err := pgx.ConnectConfig(d.ctx, cfg)
	if err != nil {
		return nil, err
	}
	d.t.Cleanup(func() { _ = c.Close(d.ctx) })
	return &session{Conn: c, d: d}, nil
}

// as connects as a role without a password, inside of the process.
func (d *database) as(user string) *session {
	return d.connect(func(c *pgx.ConnConfig) { c.User = user })
}

// TestPermissions runs each kind of statement as a role without the privilege it takes, and with it.
func TestPermissions(t *testing.T) {
	d := open(t)
	admin := d.connect()
	admin.must(
		"create role joe login", "create role spare", "create role owner login", "create schema s", "grant usage on schema s to owner",
		"create table t (k int primary key, a int, b int)", "insert into t values (1, 10, 100)", "create view v as select a, b from t",
		"create materialized view m as select a, b from t", "create table s.u (k int primary key)",
		"create type e as enum ('x')", "create function f(int) returns int language sql as 'select $1 + 1'", "create sequence q", "create index ti on t (a)",
		"create view w as select f(1) as a", "create function g() returns bigint language sql as 'select count(a) from t'",
		"revoke execute on function f(int) from public", "revoke usage on type e from public", "revoke temporary on database streamdb from public",
		"create function s.h() returns int language sql as 'select 1'", "create view v1 as select a from t", "create view v2 as select a from v1",
	)
	joe := d.as("joe")
	for _, c := range []struct{ statement, message, grant string }{
		{"select a from t", "permission denied for table t", "grant select on t to joe"},
		{"select count(*) from t", "permission denied for table t", "grant select (b) on t to joe"},
		{"select a from t", "permission denied for table t", "grant select (a) on t to joe"},
		{"table t", "permission denied for table t", "grant select (k, a, b) on t to joe"},
		{"select x.a from t x where k = 1", "permission denied for table t", "grant select on t to public"},
		{"select 1 from t join t y using (k)", "permission denied for table t", "grant select (k) on t to joe"},
		{"explain select a from t", "permission denied for table t", "grant select on t to joe"},
		{"insert into t values (2, 1, 1)", "permission denied for table t", "grant insert on t to joe"},
		{"insert into t (k) values (3)", "permission denied for table t", "grant insert (k) on t to joe"},
		{"insert into t (k) values (4) returning a", "permission denied for table t", "grant insert on t to joe; grant select (a) on t to joe"},
		{"insert into t values (4, 0, 0) on conflict (k) do update set a = 7", "permission denied for table t", "grant insert, update (a) on t to joe"},
		{"update t set a = 1", "permission denied for table t", "grant update (a) on t to joe"},
		{"update t set a = 1 where b = 3", "permission denied for table t", "grant update on t to joe; grant select (b) on t to joe"},
		{"update t set a = b", "permission denied for table t", "grant update, select on t to joe"},
		{"delete from t where k = 77", "permission denied for table t", "grant delete on t to joe; grant select (k) on t to joe"},
		{"delete from t", "permission denied for table t", "grant delete on t to joe"},
		{"merge into t using s.u on t.k = u.k when not matched then insert values (u.k, 1, 1)", "permission denied for table t", "grant insert, select on t to joe; grant usage on schema s to joe; grant select on s.u to joe"},
		{"truncate t", "permission denied for table t", "grant truncate on t to joe"},
		{"select a from v", "permission denied for view v", "grant select on v to joe"},
		{"select a from v", "permission denied for view v", "grant select (a) on v to joe"},
		{"select a from m", "permission denied for materialized view m", "grant select on m to joe"},
		{"select * from s.u", "permission denied for schema s", "grant usage on schema s to joe; grant select on s.u to joe"},
		{"create table n (a int)", "permission denied for schema public", "grant create on schema public to joe"},
		{"create view n as select 1 a", "permission denied for schema public", "grant create on schema public to joe"},
		{"create materialized view n as select a from t", "permission denied for schema public", "grant create on schema public to joe; grant select on t to joe"},
		{"create source n (a int) with (connector = 'file', path = '/tmp', format = 'csv') format plain encode csv", "must be superuser or have privileges of the pg_read_server_files role to read files of the server", ""},
		{"create schema n", "permission denied for database streamdb", "grant create on database streamdb to joe"},
		{"drop table s.u", "must be owner of table u", "grant usage on schema s to joe; alter table s.u owner to joe"},
		{"drop view v", "must be owner of view v", "alter view v owner to joe"},
		{"drop materialized view m", "must be owner of materialized view m", "grant owner to joe; alter materialized view m owner to owner"},
		{"drop schema s cascade", "must be owner of schema s", "alter schema s owner to joe"},
		{"alter table t rename to t2", "must be owner of table t", "grant create on schema public to joe; alter table t owner to joe"},
		{"comment on table t is 'x'", "must be owner of table t", "alter table t owner to joe"},
		{"comment on column t.a is 'x'", "must be owner of relation t", "alter table t owner to joe"},
		{"comment on constraint t_pkey on t is 'x'", "must be owner of relation t", "alter table t owner to joe"},
		{"comment on index t_pkey is 'x'", "must be owner of index t_pkey", "alter table t owner to joe"},
		{"comment on index ti is 'x'", "must be owner of index ti", "alter table t owner to joe"},
		{"comment on sequence q is 'x'", "must be owner of sequence q", "alter sequence q owner to joe"},
		{"comment on schema s is 'x'", "must be owner of schema s", "alter schema s owner to joe"},
		{"comment on function f(int) is 'x'", "must be owner of function f", "alter function f(int) owner to joe"},
		{"comment on role spare is 'x'", "must have CREATEROLE privilege", "alter role joe createrole"},
		{"comment on database streamdb is 'x'", "must be owner of database streamdb", "alter database streamdb owner to joe"},
		{"grant select on t to owner", "permission denied for table t", "grant select on t to joe with grant option"},
		{"checkpoint", "must be superuser or have privileges of pg_checkpoint to do CHECKPOINT", "grant pg_checkpoint to joe"},
		{"refresh materialized view m", "must be owner of materialized view m", "alter materialized view m owner to joe"},
		{"pause materialized view m", "must be owner of materialized view m", "alter materialized view m owner to joe"},
		{"alter system set parallelism = 1", `permission denied to set parameter "parallelism"`, "alter role joe superuser"},
		{"select f(1)", "permission denied for function f", "grant execute on function f(int) to joe"},
		{"select a from w", "permission denied for view w", "grant select on w to joe; grant execute on function f(int) to joe"},
		{"select g()", "permission denied for table t", "grant select (a) on t to joe"},
		{"select s.h()", "permission denied for schema s", "grant usage on schema s to joe"},
		{"select a from v2", "permission denied for view v2", "grant select on v2 to joe"},
		{"create or replace function f(int) returns int language sql as 'select 2'", "permission denied for schema public", "alter role joe superuser"},
		{"create function n() returns int language sql as 'select 1'", "permission denied for schema public", "grant create on schema public to joe"},
		{"drop function g()", "must be owner of function g", "alter role joe superuser"},
		{"create temporary table n (a int)", `permission denied to create temporary tables in database "streamdb"`, "grant temporary on database streamdb to joe"},
		{"create table n (a e)", "permission denied for schema public", "grant create on schema public to joe; grant usage on type e to joe"},
		{"drop type e", "must be owner of type e", "alter type e owner to joe"},
		{"alter type e add value 'y'", "must be owner of type e", "alter type e owner to joe"},
		{"comment on type e is 'x'", "must be owner of type e", "alter type e owner to joe"},
		{"create index n on t (b)", "must be owner of table t", "grant create on schema public to joe; alter table t owner to joe"},
		{"drop index ti", "must be owner of index ti", "alter table t owner to joe"},
		{"reindex table t", "must be owner of table t", "alter table t owner to joe"},
		{"select nextval('q')", "permission denied for sequence q", "grant usage on sequence q to joe"},
		{"select setval('q', 3)", "permission denied for sequence q", "grant update on sequence q to joe"},
		{"alter sequence q restart", "must be owner of sequence q", "alter sequence q owner to joe"},
		{"drop sequence q", "must be owner of sequence q", "alter sequence q owner to joe"},
		{"lock table t in exclusive mode", "permission denied for table t", "grant update on t to joe"},
		{"insert into t values (4, 0, 0) on conflict (k) do nothing", "permission denied for table t", "grant insert on t to joe; grant select (k) on t to joe"},
		{"insert into t as x values (4, 0, 0) on conflict (k) do update set a = x.b", "permission denied for table t", "grant insert, update on t to joe; grant select (k, b) on t to joe"},
		{"create role x", "permission denied to create role", "alter role joe createrole"},
		{"alter role owner connection limit 3", "permission denied", "alter role joe createrole"},
		{"drop role spare", "permission denied to drop role", "alter role joe superuser"},
		{"grant owner to joe", `must have admin option on role "owner"`, "alter role joe createrole"},
		{"set role owner", `permission denied to set role "owner"`, "grant owner to joe"},
		{"set session authorization owner", `permission denied to set session authorization "owner"`, ""},
		{"select rolpassword from pg_authid", "permission denied for table pg_authid", "alter role joe superuser"},
		{"alter default privileges for role owner grant select on tables to joe", "permission denied to change default privileges", "grant owner to joe"},
		{"reassign owned by owner to joe", "permission denied to reassign objects", "grant owner to joe"},
		{"drop owned by owner", "permission denied to drop objects", "grant owner to joe"},
	} {
		joe.fails(c.statement, "42501", c.message)
		if c.grant == "" {
			continue
		}
		admin.must(strings.Split(c.grant, "; ")...)
		// Nothing that succeeds here stays.
		if strings.HasPrefix(c.statement, "checkpoint") || strings.HasPrefix(c.statement, "alter system") {
			joe.must(c.statement)
		} else {
			joe.must("begin", c.statement, "rollback")
		}
		admin.must("reassign owned by joe, owner to streamdb", "drop owned by joe, owner", "revoke owner from joe", "revoke pg_checkpoint from joe",
			"alter role joe nosuperuser nocreaterole", "grant usage on schema s to owner",
			"alter role joe nosuperuser", "revoke execute on function f(int) from joe")
		admin.must("revoke all on t, v, m, s.u from public", "revoke all on schema s from joe")
	}
}

// TestRevokedLater takes privileges away from what is open already.
func TestRevokedLater(t *testing.T) {
	d := open(t)
	admin := d.connect()
	admin.must("create role joe login", "create role owner1", "create role owner2", "create table t (k int primary key)", "insert into t values (1), (2)",
		"create view v1 as select k from t", "create view v2 as select k from v1", "alter view v1 owner to owner1", "alter view v2 owner to owner2",
		"grant select on v2 to joe", "grant select on t to joe", "create schema hidden", "create table hidden.t (other int)", "create schema seen",
		"create table seen.x (k int)", "grant usage on schema seen to joe", "grant select on seen.x to joe")
	joe := d.as("joe")

	// With the right to create things one does not yet replace those of others.
	admin.must("grant create on schema public to joe", "create function f() returns int language sql as 'select 1'")
	joe.fails("create or replace function f() returns int language sql as 'select 2'", "42501", "must be owner of function f")
	joe.fails("drop function f()", "42501", "must be owner of function f")

	// Each view reads with its owner's privileges.
	joe.fails("select k from v2", "42501", "permission denied for view v1")
	admin.must("grant select on v1 to owner2")
	joe.fails("select k from v2", "42501", "permission denied for table t")
	admin.must("grant select on t to owner1")
	joe.must("select k from v2")
	joe.fails("select k from v1", "42501", "permission denied for view v1")

	// Schemas that the role may not look into are not searched.
	joe.must("set search_path = hidden, seen, public", "select k from t", "select k from x")
	joe.fails("select other from hidden.t", "42501", "permission denied for schema hidden")

	// A prepared statement is checked again, an open cursor is not.
	joe.must("prepare p as select k from t", "execute p", "begin", "declare c cursor for select k from t", "fetch 1 from c")
	admin.must("revoke select on t from joe")
	joe.must("fetch 1 from c", "commit")
	joe.fails("execute p", "42501", "permission denied for table t")
	admin.must("grant select on t to joe")
	joe.must("execute p")

	// A role that is dropped while it is connected can do nothing more.
	joe.must("listen anything", "unlisten *", "begin", "select k from t")
	admin.must("drop owned by joe", "drop role joe")
	require.Error(t, func() error { _, err := joe.Exec(d.ctx, "select k from t"); return err }())
}

// TestOthersActivity shows sessions and failed rows only to whom they belong.
func TestOthersActivity(t *testing.T) {
	d := open(t)
	admin := d.connect()
	admin.must("create role joe login", "create role boss login", "grant pg_monitor to boss", "create table t (k int primary key, a int)",
		"create materialized view m as select k, 10 / a as q from t", "insert into t values (1, 0)")
	joe, boss := d.as("joe"), d.as("boss")
	hidden := "select count(*)::text from pg_stat_activity where query = '<insufficient privilege>' and state is null and usename is not null"
	require.Equal(t, "2", joe.text(hidden))
	require.Equal(t, "0", boss.text(hidden))
	require.Equal(t, "0", admin.text(hidden))
	require.Equal(t, "0", admin.text("select count(*)::text from m")) // which has taken in the row by now
	failed := "select count(*)::text from streamdb.errors"
	require.Equal(t, "1", admin.text(failed))
	require.Equal(t, "0", joe.text(failed))
	require.Equal(t, "0", boss.text(failed))
	admin.must("alter materialized view m owner to joe")
	require.Equal(t, "1", joe.text(failed))
	require.Equal(t, "1", boss.text("select count(*)::text from streamdb.jobs"))
}
