package server_test

import (
	"strings"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgproto3"
	"github.com/stretchr/testify/require"

	"github.com/streamdb/streamdb/server"
)

// otherValue is a valid value that differs from the default, by setting.
var otherValue = map[string]string{
	"retention": "1h", "retention_size": "2GB", "max_recursion_iterations": "10", "max_recursion_memory": "1GB",
	"application_name": "app", "bytea_output": "escape", "client_encoding": "SQL_ASCII", "client_min_messages": "warning", "default_table_access_method": "columnar", "default_transaction_isolation": "serializable",
	"default_transaction_read_only": "on", "extra_float_digits": "3", "idle_in_transaction_session_timeout": "5s", "IntervalStyle": "iso_8601", "lc_messages": "C.UTF-8",
	"lc_monetary": "C.UTF-8", "lc_numeric": "C.UTF-8", "lc_time": "C.UTF-8", "lock_timeout": "5min", "search_path": "a, \"B c\"", "statement_timeout": "2s",
	"synchronous_commit": "remote", "TimeZone": "Europe/Berlin", "background_ddl": "on", "streamdb.disabled_rules": "fold_constants", "parallelism": "3",
	"on_error": "raise", "allowed_lateness": "7s", "late_rows": "drop", "state_ttl": "3d", "state.backend.type": "memory", "DateStyle": "ISO, MDY", "standard_conforming_strings": "on",
	"execution.checkpointing.interval": "1min", "execution.checkpointing.min-pause": "1s", "execution.checkpointing.timeout": "3min",
	"execution.checkpointing.tolerable-failed-checkpoints": "7", "execution.checkpointing.interval-during-backlog": "3min", "execution.checkpointing.mode": "AT_LEAST_ONCE",
	"execution.checkpointing.aligned-checkpoint-timeout": "1s", "execution.checkpointing.externalized-checkpoint-retention": "DELETE_ON_CANCELLATION",
	"idle_session_timeout": "7ms", "client_connection_check_interval": "7ms", "deadlock_timeout": "7ms", "tcp_user_timeout": "7ms",
	"session_replication_role": "replica", "plan_cache_mode": "force_generic_plan", "xmloption": "document", "xmlbinary": "hex",
	"log_min_messages": "error", "log_statement": "all", "backslash_quote": "on",
	"scram_iterations": "5000",
}

func TestEverySettingIsSettableInItsScope(t *testing.T) {
	d := open(t)
	s := d.connect()
	for _, r := range s.rows("SELECT name, scope, setting FROM streamdb.settings") {
		f := strings.SplitN(r, "|", 3)
		name, scope := f[0], f[1]
		if strings.HasPrefix(name, "transaction_") {
			continue // of one transaction
		}
		if name == "role" || name == "session_authorization" || name == "password_encryption" {
			continue // of the session alone, tested with roles; the last has one value
		}
		quoted := pgx.Identifier(strings.Split(name, ".")).Sanitize()
		before := s.row("SHOW " + quoted)
		other, ok := otherValue[name]
		set := func(q string) string { return q + " = '" + strings.ReplaceAll(other, "'", "''") + "'" }
		switch scope {
		case "fixed":
			require.Equal(t, "55P02", s.code("SET "+quoted+" = '1'"), name)
			require.Equal(t, "55P02", s.code("ALTER SYSTEM SET "+quoted+" = '1'"), name)
		case "server":
			require.Equal(t, "55P02", s.code("SET "+quoted+" = '1'"), name)
			if !ok {
				other = before
			}
			s.must(set("ALTER SYSTEM SET " + quoted))
			require.Equal(t, other, s.row("SHOW "+quoted), name)
			require.Equal(t, other, d.connect().row("SHOW "+quoted), name)
			s.must("ALTER SYSTEM RESET " + quoted)
			require.Equal(t, before, s.row("SHOW "+quoted), name)
		default:
			if !ok {
				other = anotherValue(before)
			}
			s.must(set("SET " + quoted))
			require.Equal(t, other, s.row("SHOW "+quoted), name)
			require.Equal(t, before, d.connect().row("SHOW "+quoted), "%s of another session", name)
			s.must("RESET " + quoted)
			require.Equal(t, before, s.row("SHOW "+quoted), name)
			s.must("BEGIN", set("SET LOCAL "+quoted))
			require.Equal(t, other, s.row("SHOW "+quoted), name)
			s.must("COMMIT")
			require.Equal(t, before, s.row("SHOW "+quoted), name)
			s.must("BEGIN", set("SET "+quoted), "ROLLBACK")
			require.Equal(t, before, s.row("SHOW "+quoted), name)
			if name == "search_path" || name == "default_transaction_read_only" {
				continue
			}
			s.must(set("SET "+quoted), "SET "+quoted+" TO DEFAULT")
			require.Equal(t, before, s.row("SHOW "+quoted), name)
			s.must(set("SET "+quoted), "RESET ALL")
			require.Equal(t, before, s.row("SHOW "+quoted), name)
			s.must(set("ALTER SYSTEM SET " + quoted))
			require.Equal(t, other, d.connect().row("SHOW "+quoted), "%s: new sessions begin with the server's value", name)
			s.must("ALTER SYSTEM RESET " + quoted)
		}
	}
}

func TestAlterSystemIsKept(t *testing.T) {
	d := open(t)
	d.connect().must("ALTER SYSTEM SET execution.checkpointing.interval = '7s'", "ALTER SYSTEM SET TimeZone = 'Asia/Tokyo'", "ALTER SYSTEM SET parallelism = 3", "ALTER SYSTEM RESET parallelism")
	d.crash()
	s := d.connect()
	require.Equal(t, "7s", s.row("SHOW execution.checkpointing.interval"))
	require.Equal(t, "Asia/Tokyo", s.row("SHOW TimeZone"))
	require.Equal(t, "0", s.row("SHOW parallelism"))
	s.must("ALTER SYSTEM RESET execution.checkpointing.interval")
	d.crash()
	require.NotEqual(t, "7s", d.connect().row("SHOW execution.checkpointing.interval"))
}

func TestShowAllAgreesWithPgSettings(t *testing.T) {
	s := open(t).connect()
	s.must("SET TimeZone = 'Asia/Tokyo'", "SET extra_float_digits = 0")
	var all []string
	for _, r := range s.rows("SHOW ALL") {
		f := strings.Split(r, "|")
		all = append(all, f[0]+"|"+f[1])
	}
	require.ElementsMatch(t, all, s.rows("SELECT name, setting FROM pg_settings"))
	require.Contains(t, all, "TimeZone|Asia/Tokyo")
}

func TestSettingsRefuse(t *testing.T) {
	s := open(t).connect()
	for q, code := range map[string]string{
		"SET nope = 1": "42704", "SHOW nope": "42704", "RESET nope": "42704", "SET TimeZone = 'Mars/Base'": "22023", "SET client_encoding = 'latin9x'": "22023",
		"SET extra_float_digits = 99": "22023", "SET statement_timeout = -1": "22023", "SET statement_timeout = 'abc'": "22023", "SET server_version = '1'": "55P02",
		"SET bytea_output = 'x'": "22023", "SET streamdb.nope = 1": "42704", "SET execution.checkpointing.nope = 1": "42704", "SET synchronous_commit = 'maybe'": "22023",
		"ALTER SYSTEM SET nope = 1": "42704", "ALTER SYSTEM SET parallelism = 100000": "22023", "BEGIN; DISCARD ALL": "25001", "SET state.backend.type = 'nope'": "22023",
		"SET streamdb.disabled_rules = 'range_join, range_joins'": "22023", "SET streamdb.disabled_rules = ' range_join,'": "",
	} {
		require.Equal(t, code, s.code(q), q)
		s.must("ROLLBACK")
	}
	s.must("SET my.var = 'x'")
	require.Equal(t, "x", s.row("SHOW my.var"))
	require.Equal(t, "x", s.row("SELECT current_setting('my.var')"))
	s.must("BEGIN", "SET my.var = 'y'", "SET my.other = 'z'", "ROLLBACK")
	require.Equal(t, "x", s.row("SHOW my.var"))
	require.Equal(t, "42704", s.code("SHOW my.other"))
	s.must("RESET my.var")
	require.Equal(t, "", s.row("SHOW my.var"))
	for set, want := range map[string]string{"1500": "1500ms", "60000": "1min", "'2 s'": "2s", "0": "0", "'90s'": "90s", "'1h'": "1h"} {
		s.must("SET statement_timeout = " + set)
		require.Equal(t, want, s.row("SHOW statement_timeout"))
	}
}

func TestParameterStatusFollows(t *testing.T) {
	s := open(t).connect()
	require.Equal(t, []string{"C(SET)", "S(TimeZone=Asia/Tokyo)", "Z(I)"}, s.raw(1, &pgproto3.Query{String: "SET TIME ZONE 'Asia/Tokyo'"}))
	require.Equal(t, []string{"C(BEGIN)", "C(SET)", "C(ROLLBACK)", "Z(I)"}, s.raw(1, &pgproto3.Query{String: "BEGIN; SET TIME ZONE 'UTC'; ROLLBACK"}))
	got := s.raw(2, &pgproto3.Query{String: "BEGIN; SET LOCAL application_name = 'x'"}, &pgproto3.Query{String: "COMMIT"})
	require.Equal(t, []string{"C(BEGIN)", "C(SET)", "S(application_name=x)", "Z(T)", "C(COMMIT)", "S(application_name=)", "Z(I)"}, got)
	require.Equal(t, []string{"C(DISCARD ALL)", "S(TimeZone=UTC)", "Z(I)"}, s.raw(1, &pgproto3.Query{String: "DISCARD ALL"}))
}

func TestStartupSettings(t *testing.T) {
	d := open(t)
	s := d.connect(func(c *pgx.ConnConfig) {
		c.RuntimeParams["application_name"] = "me"
		c.RuntimeParams["TimeZone"] = "Europe/Paris"
		c.RuntimeParams["search_path"] = "a,public"
		c.RuntimeParams["options"] = "-c extra_float_digits=2 --statement_timeout=7s"
	})
	require.Equal(t, "me|Europe/Paris|2|7s", s.row("SELECT current_setting('application_name'), current_setting('timezone'), current_setting('extra_float_digits'), current_setting('statement_timeout')"))
	s.must("SET TimeZone = 'UTC'", "RESET TimeZone")
	require.Equal(t, "Europe/Paris", s.row("SHOW TimeZone"), "RESET goes back to what the connection began with")
	for name, code := range map[string]string{"nope": "42704", "TimeZone": "22023"} {
		cfg := d.config()
		cfg.RuntimeParams[name] = "nope"
		_, err := pgx.ConnectConfig(d.ctx, cfg)
		require.Equal(t, code, string(codeOf(t, err)))
	}
	cfg := d.config()
	cfg.Database = "other"
	_, err := pgx.ConnectConfig(d.ctx, cfg)
	require.Equal(t, "3D000", string(codeOf(t, err)))
}

func TestSearchPath(t *testing.T) {
	s := open(t).connect()
	s.must(`CREATE SCHEMA "A b"`, "CREATE SCHEMA c", `SET search_path = "A b", C, public`, "CREATE TABLE t (a int)", "CREATE TABLE c.u (a int)")
	require.Equal(t, `"A b", c, public`, s.row("SHOW search_path"))
	require.Equal(t, "A b", s.row("SELECT current_schema()"))
	s.must(`INSERT INTO "A b".t VALUES (1)`, "INSERT INTO u VALUES (2)")
	require.Equal(t, "1|2", s.row("SELECT * FROM t, c.u"))
	s.must("SET search_path = nope")
	require.Equal(t, "42P01", s.code("TABLE t"))
	require.Equal(t, "3F000", s.code("CREATE TABLE x (a int)"))
}

func TestSynchronousCommit(t *testing.T) {
	for _, mode := range []string{"local", "remote", "off", "on"} {
		d := open(t)
		s := d.connect()
		s.must("CREATE TABLE t (id int PRIMARY KEY)", "CREATE MATERIALIZED VIEW m AS SELECT count(*) FROM t", "SET synchronous_commit = "+mode)
		for range 20 {
			s.must("INSERT INTO t SELECT count(*) FROM t")
		}
		require.Equal(t, "20", s.row("TABLE m"))
		d.crash()
		require.Equal(t, "20", d.connect().row("TABLE m"), mode)
	}
}

// anotherValue is a value of the same kind, for settings whose kind the value shows.
func anotherValue(v string) string {
	switch {
	case v == "on":
		return "off"
	case v == "off":
		return "on"
	case strings.HasSuffix(v, "B"):
		return "77MB"
	case v == "" || v == "pg_catalog.simple":
		return "other"
	}
	return "7"
}

// pg_settings tells where a value is from: the file of --config, --set, ALTER SYSTEM, the start of the connection, the session.
func TestSourcesOfSettings(t *testing.T) {
	d := open(t, func(c *server.Config) {
		c.Settings = map[string]string{"execution.checkpointing.timeout": "7s", "execution.checkpointing.interval": "10s", "work_mem": "5MB", "state.checkpoints.num-retained": "2"}
		c.SettingsFrom = map[string]string{"work_mem": "/etc/streamdb.yaml", "state.checkpoints.num-retained": "/etc/streamdb.yaml"}
	})
	s := d.connect()
	s.must("CREATE ROLE ann LOGIN", "ALTER SYSTEM SET execution.checkpointing.min-pause = '1s'", "ALTER SYSTEM SET statement_timeout = '1h'", "ALTER SYSTEM SET max_connections = 77")
	source := func(s *session, name string) string {
		t.Helper()
		return s.row("SELECT setting, source, regexp_replace(sourcefile, '.*/', '') FROM pg_settings WHERE name = '" + name + "'")
	}
	s = d.connect()
	for name, want := range map[string]string{
		"execution.checkpointing.timeout":      "7s|command line|NULL",
		"execution.checkpointing.interval":     "10s|command line|NULL", // the default, but given
		"work_mem":                             "5MB|configuration file|streamdb.yaml",
		"execution.checkpointing.num-retained": "2|configuration file|streamdb.yaml",
		"execution.checkpointing.min-pause":    "1s|configuration file|settings",
		"statement_timeout":                    "1h|configuration file|settings",
		"max_connections":                      "77|configuration file|settings",
		"lock_timeout":                         "0|default|NULL",
		"execution.checkpointing.dir":          "file://" + d.cfg.DataDir + "/checkpoints|override|NULL",
	} {
		require.Equal(t, want, source(s, name), name)
	}
	require.Equal(t, "5MB|configuration file|NULL", source(d.as("ann"), "work_mem"), "files are for superusers")
	s.must("SET work_mem = '6MB'", "SET execution.checkpointing.timeout = '8s'", "ALTER SYSTEM SET execution.checkpointing.interval = '9s'")
	require.Equal(t, "6MB|session|NULL", source(s, "work_mem"))
	require.Equal(t, "8s|session|NULL", source(s, "execution.checkpointing.timeout"))
	require.Equal(t, "9s|configuration file|settings", source(s, "execution.checkpointing.interval"), "ALTER SYSTEM prevails")
	s.must("ALTER SYSTEM RESET execution.checkpointing.interval", "RESET work_mem", "ALTER ROLE ann SET work_mem = '4MB'")
	require.Equal(t, "10s|command line|NULL", source(s, "execution.checkpointing.interval"))
	require.Equal(t, "5MB|configuration file|streamdb.yaml", source(s, "work_mem"))
	require.Equal(t, "4MB|user|NULL", source(d.as("ann"), "work_mem"))
}
