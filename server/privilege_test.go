package server_test

import (
	"testing"

	"github.com/stretchr/testify/require"
)

// text runs a query of one text.
func (s *session) text(query string) string {
	s.d.t.Helper()
	var out *string
	require.NoError(s.d.t, s.QueryRow(s.d.ctx, query).Scan(&out), query)
	if out == nil {
		return "NULL"
	}
	return *out
}

// TestPrivilegeFunctions asks the catalog who may do what; the answers and messages are PostgreSQL 15's.
func TestPrivilegeFunctions(t *testing.T) {
	d := open(t)
	admin := d.connect()
	admin.must("create role joe login", "create role ann login", "create role grp", "grant grp to joe", "grant joe to ann with admin option",
		"create table t (k int primary key, a int, b text)", "create schema sx", "create table sx.u (a int)", "create sequence q",
		"create type e as enum ('a')", "create function f(a int) returns int language sql as 'select $1'",
		"grant select, insert on t to joe with grant option", "grant update (a) on t to grp", "grant usage on sequence q to public", "grant usage on schema sx to grp",
		"revoke usage on type e from public", "revoke execute on function f(int) from public", "grant execute on function f(int) to ann",
	)
	for _, c := range [...]struct{ call, joe, ann, grp, public, owner string }{
		{"has_table_privilege(u, 't', 'select')", "t", "t", "f", "f", "t"},
		{"has_table_privilege(u, 't', 'select with grant option')", "t", "t", "f", "f", "t"},
		{"has_table_privilege(u, 't', 'delete')", "f", "f", "f", "f", "t"},
		{"has_table_privilege(u, 't', 'update , INSERT')", "t", "t", "f", "f", "t"},
		{"has_table_privilege(u, 't', 'rule')", "f", "f", "f", "f", "f"},
		{"has_column_privilege(u, 't', 'a', 'update')", "t", "t", "t", "f", "t"},
		{"has_column_privilege(u, 't', 1::int2, 'update')", "f", "f", "f", "f", "t"},
		{"has_column_privilege(u, 't', 9::int2, 'update')", "NULL", "NULL", "NULL", "NULL", "NULL"},
		{"has_any_column_privilege(u, 't', 'update')", "t", "t", "t", "f", "t"},
		{"has_sequence_privilege(u, 'q', 'usage')", "t", "t", "t", "t", "t"},
		{"has_sequence_privilege(u, 'q', 'update')", "f", "f", "f", "f", "t"},
		{"has_schema_privilege(u, 'sx', 'usage')", "t", "t", "t", "f", "t"},
		{"has_schema_privilege(u, 'public', 'create')", "f", "f", "f", "f", "t"},
		{"has_database_privilege(u, 'streamdb', 'temp')", "t", "t", "t", "t", "t"},
		{"has_database_privilege(u, 'streamdb', 'create')", "f", "f", "f", "f", "t"},
		{"has_function_privilege(u, 'f(int)', 'execute')", "f", "t", "f", "f", "t"},
		{"has_function_privilege(u, 'lower(text)', 'execute')", "t", "t", "t", "t", "t"},
		{"has_type_privilege(u, 'e[]', 'usage')", "f", "f", "f", "f", "t"},
		{"has_type_privilege(u, 'int4', 'usage')", "t", "t", "t", "t", "t"},
		{"has_language_privilege(u, 'sql', 'usage')", "t", "t", "t", "t", "t"},
		{"has_tablespace_privilege(u, 'pg_default', 'create')", "f", "f", "f", "f", "t"},
		{"has_table_privilege(u, 'pg_authid', 'select')", "f", "f", "f", "f", "t"},
		{"has_table_privilege(u, 'pg_class', 'select')", "t", "t", "t", "t", "t"},
		{"has_table_privilege(u, 1::oid, 'select')", "NULL", "NULL", "NULL", "NULL", "NULL"},
		{"pg_has_role(u, 'grp'::name, 'usage')", "t", "t", "t", "", "t"},
		{"pg_has_role(u, 'joe'::name, 'member with admin option')", "f", "t", "f", "", "t"},
		{"pg_has_role(u, 'streamdb'::name, 'member')", "f", "f", "f", "", "t"},
	} {
		for u, want := range map[string]string{"joe": c.joe, "ann": c.ann, "grp": c.grp, "public": c.public, "streamdb": c.owner} {
			if want == "" {
				continue
			}
			got := admin.text("select (case " + c.call + " when true then 't' when false then 'f' end)::text from (select '" + u + "'::name u) x")
			require.Equal(t, want, got, "%s of %s", c.call, u)
		}
	}
	joe := d.as("joe")
	require.Equal(t, "true false", joe.text("select has_table_privilege('t', 'select')::text || ' ' || pg_has_role('ann', 'usage')::text"))
	for _, c := range [...]struct{ call, code, message string }{
		{"has_table_privilege('nobody', 't', 'select')", "42704", `role "nobody" does not exist`},
		{"has_table_privilege('nosuch', 'select')", "42P01", `relation "nosuch" does not exist`},
		{"has_table_privilege('ny.nosuch', 'select')", "3F000", `schema "ny" does not exist`},
		{"has_table_privilege('t', 'usage')", "22023", `unrecognized privilege type: "usage"`},
		{"has_table_privilege('t', 'select,')", "22023", `unrecognized privilege type: ""`},
		{"has_sequence_privilege('t', 'usage')", "42809", `"t" is not a sequence`},
		{"has_column_privilege('t', 'zz', 'select')", "42703", `column "zz" of relation "t" does not exist`},
		{"has_schema_privilege('nosuch', 'usage')", "3F000", `schema "nosuch" does not exist`},
		{"has_database_privilege('nosuch', 'connect')", "3D000", `database "nosuch" does not exist`},
		{"has_function_privilege('f(text)', 'execute')", "42883", `function "f(text)" does not exist`},
		{"has_type_privilege('nosuch', 'usage')", "42704", `type "nosuch" does not exist`},
		{"has_language_privilege('nosuch', 'usage')", "42704", `language "nosuch" does not exist`},
		{"has_server_privilege('nosuch', 'usage')", "42704", `server "nosuch" does not exist`},
		{"has_foreign_data_wrapper_privilege('nosuch', 'usage')", "42704", `foreign-data wrapper "nosuch" does not exist`},
		{"has_tablespace_privilege('nosuch', 'create')", "42704", `tablespace "nosuch" does not exist`},
		{"pg_has_role('public', 'joe', 'usage')", "42704", `role "public" does not exist`},
		{"pg_has_role('joe', 'select')", "22023", `unrecognized privilege type: "select"`},
		{"'joe'::aclitem", "22P02", `unrecognized key word: "joe"`},
		{"'nobody=r/joe'::aclitem", "42704", `role "nobody" does not exist`},
		{"'joe=r/'::aclitem", "22P02", `a name must follow the "/" sign`},
		{"'joe=r/joe x'::aclitem", "22P02", "extra garbage at the end of the ACL specification"},
		{"makeaclitem(0, 0, 'foo', false)", "22023", `unrecognized privilege type: "foo"`},
		{"acldefault('z', 10)", "XX000", "unrecognized objtype abbreviation: z"},
	} {
		admin.fails("select "+c.call, c.code, c.message)
	}
	for query, want := range map[string]string{
		"select ('=r/joe'::aclitem)::text || ' ' || ('\"joe\"=r*w/ann'::aclitem)::text": "=r/joe joe=r*w/ann",
		"select makeaclitem('joe'::regrole, 10, 'SELECT', true)::text":                  "joe=r*/streamdb",
		"select acldefault('d', 'joe'::regrole)::text":                                  "{=Tc/joe,joe=CTc/joe}",
		"select (array['joe=rw*/ann'::aclitem] @> 'joe=w/ann'::aclitem)::text":          "true",
		"select relacl::text from pg_class where relname = 't'":                         "{streamdb=arwdDxt/streamdb,joe=a*r*/streamdb}",
		"select string_agg(grantee::regrole::text || privilege_type || is_grantable::text, ' ' order by privilege_type) from (select (aclexplode(relacl)).* from pg_class where relname = 't') x where grantee = 'joe'::regrole": "joeINSERTtrue joeSELECTtrue",
		"select proacl::text from pg_proc where proname = 'f'":                                                                      "{streamdb=X/streamdb,ann=X/streamdb}",
		"select typacl::text from pg_type where typname = 'e'":                                                                      "{streamdb=U/streamdb}",
		"select string_agg(role_name, ' ' order by role_name) from information_schema.enabled_roles where role_name not like 'pg%'": "ann grp joe streamdb",
	} {
		require.Equal(t, want, admin.text(query), query)
	}
	for query, want := range map[string]string{
		"select string_agg(role_name, ' ' order by role_name) from information_schema.enabled_roles":                                      "grp joe",
		"select string_agg(grantee || ' ' || role_name || ' ' || is_grantable, ',') from information_schema.applicable_roles":             "joe grp NO",
		"select string_agg(privilege_type || ' ' || is_grantable, ',' order by privilege_type) from information_schema.role_table_grants": "INSERT YES,SELECT YES",
		"select string_agg(grantee || ' ' || column_name, ',') from information_schema.column_privileges where privilege_type = 'UPDATE'": "grp a",
		"select string_agg(table_name, ',') from information_schema.tables where table_schema in ('public', 'sx')":                        "t",
		"select string_agg(schema_name, ',' order by schema_name) from information_schema.schemata where schema_name in ('public', 'sx')": "public,sx",
		"select string_agg(grantee || ' ' || object_name, ',') from information_schema.usage_privileges where object_type = 'SEQUENCE'":   "PUBLIC q",
		"select count(*)::text from information_schema.routine_privileges where routine_name = 'f'":                                       "0",
	} {
		require.Equal(t, want, joe.text(query), query)
	}
}
