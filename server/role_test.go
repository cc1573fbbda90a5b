package server_test

import (
	"testing"

	"github.com/stretchr/testify/require"
)

// TestGroups executes what is said of groups and of roles' names.
func TestGroups(t *testing.T) {
	d := open(t)
	admin := d.connect()
	members := func(of string) string {
		return admin.text("select string_agg(m.rolname || case when a.admin_option then '*' else '' end, ' ' order by m.rolname) from pg_auth_members a join pg_roles m on m.oid = a.member join pg_roles r on r.oid = a.roleid where r.rolname = '" + of + "'")
	}
	admin.must("create role ann login password 'x'", "create role bob login", "create role eve login", "create group staff user ann", "create group other with role bob admin eve")
	require.Equal(t, "ann", members("staff"))
	require.Equal(t, "bob eve*", members("other"))
	require.Equal(t, "f", admin.text("select rolcanlogin::text::\"char\"::text from pg_roles where rolname = 'staff'"))
	require.Equal(t, "other staff", admin.text("select string_agg(groname, ' ' order by groname) from pg_group where groname !~ '^pg_'"))
	admin.must("alter group staff add user bob, eve", "alter group staff drop user ann")
	require.Equal(t, "bob eve", members("staff"))
	admin.must("alter group staff rename to crew")
	require.Equal(t, "bob eve", members("crew"))
	require.Equal(t, "NULL", members("staff"))
	admin.fails("drop group staff", "42704", `role "staff" does not exist`)
	admin.must("drop group crew", "drop group if exists crew")

	// A name goes, the rest stays: privileges, memberships, ownership, the password.
	admin.must("create table t (a int)", "grant select on t to ann", "grant other to ann", "create table own (a int)", "alter table own owner to ann")
	verifier := admin.text("select rolpassword from pg_authid where rolname = 'ann'")
	admin.fails("alter role ann rename to bob", "42710", `role "bob" already exists`)
	admin.fails("alter role ann rename to pg_ann", "42939", `role name "pg_ann" is reserved`)
	admin.fails("alter role ann rename to public", "42939", `role name "public" is reserved`)
	admin.fails("alter role nobody rename to x", "42704", `role "nobody" does not exist`)
	ann := d.as("ann")
	ann.fails("alter role ann rename to anna", "0A000", "session user cannot be renamed")
	ann.fails("alter role bob rename to bobby", "42501", "permission denied to rename role")
	admin.must("alter role ann rename to anna")
	require.Equal(t, "anna bob eve*", members("other"))
	require.Equal(t, verifier, admin.text("select rolpassword from pg_authid where rolname = 'anna'"))
	require.Equal(t, "anna", admin.text("select tableowner::text from pg_tables where tablename = 'own'"))
	anna := d.as("anna")
	anna.must("select * from t", "insert into own values (1)")
	d.crash()
	d.as("anna").must("select * from t", "select * from own")
	require.Equal(t, "anna", d.connect().text("select tableowner::text from pg_tables where tablename = 'own'"))
}

// TestAdminOption passes memberships on, and takes them back.
func TestAdminOption(t *testing.T) {
	d := open(t)
	admin := d.connect()
	admin.must("create role boss login", "create role ann login", "create role bob login", "create role grp", "grant grp to boss with admin option")
	boss, ann := d.as("boss"), d.as("ann")
	boss.must("grant grp to ann")
	ann.must("set role grp", "reset role")
	ann.fails("grant grp to bob", "42501", `must have admin option on role "grp"`)
	ann.fails("revoke grp from boss", "42501", `must have admin option on role "grp"`)
	boss.must("grant grp to ann with admin option")
	ann.must("grant grp to bob")
	admin.fails("grant grp to grp", "0LP01", `role "grp" is a member of role "grp"`)
	admin.must("grant ann to boss")
	admin.fails("grant boss to ann", "0LP01", `role "boss" is a member of role "ann"`)
	admin.must("revoke admin option for grp from ann")
	ann.must("set role grp", "reset role")
	ann.fails("grant grp to bob", "42501", `must have admin option on role "grp"`)
	boss.must("revoke grp from ann")
	ann.fails("set role grp", "42501", `permission denied to set role "grp"`)
}

// TestRevokeCascade takes away grants that others stand on.
func TestRevokeCascade(t *testing.T) {
	d := open(t)
	admin := d.connect()
	admin.must("create role ann login", "create role bob login", "create role eve login", "create table t (a int, b int)", "grant select, insert on t to ann with grant option")
	ann, bob, eve := d.as("ann"), d.as("bob"), d.as("eve")
	ann.must("grant select on t to bob with grant option")
	bob.must("grant select on t to eve")
	eve.must("select * from t")
	acl := "select relacl::text from pg_class where relname = 't'"
	before := admin.text(acl)
	e := admin.fails("revoke select on t from ann", "2BP01", "dependent privileges exist")
	require.Equal(t, "Use CASCADE to revoke them too.", e.Hint)
	admin.fails("revoke grant option for select on t from ann restrict", "2BP01", "dependent privileges exist")
	require.Equal(t, before, admin.text(acl))
	admin.must("revoke grant option for select on t from ann cascade")
	ann.must("select * from t")
	bob.fails("select * from t", "42501", "permission denied for table t")
	eve.fails("select * from t", "42501", "permission denied for table t")
	require.Equal(t, "{streamdb=arwdDxt/streamdb,ann=a*r/streamdb}", admin.text(acl))

	// A grant that somebody else made, too, stays.
	admin.must("grant select on t to ann with grant option", "grant select on t to eve")
	ann.must("grant select on t to eve")
	admin.must("revoke select on t from ann cascade")
	eve.must("select * from t")
	admin.must("revoke all on t from ann, eve cascade")
	require.Equal(t, "{streamdb=arwdDxt/streamdb}", admin.text(acl))
}
