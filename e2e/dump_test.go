//go:build e2e

package e2e

import (
	"context"
	"fmt"
	"net/url"
	"os"
	"os/exec"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// dumpSetup makes one of each kind of what pg_dump knows and streamdb has.
const dumpSetup = `CREATE TYPE colour AS ENUM ('red', 'green', 'deep "blue"');
CREATE SEQUENCE ticket START 100 INCREMENT 5;
CREATE FUNCTION twice(x int) RETURNS int LANGUAGE sql IMMUTABLE AS 'SELECT 2 * x';
CREATE TABLE t (id serial PRIMARY KEY, a int NOT NULL DEFAULT 7, b text UNIQUE, c colour, gone numeric(6,2), n numeric(6,2) CHECK (n > 0), CHECK (a > 0 OR b IS NULL));
CREATE TABLE u (id int GENERATED ALWAYS AS IDENTITY, x text, y text GENERATED ALWAYS AS (upper(x)) STORED, z colour DEFAULT 'red', l int[], at timestamptz DEFAULT now());
ALTER TABLE u ADD PRIMARY KEY (id);
CREATE INDEX t_a ON t (a DESC, b) WHERE a > 1;
CREATE INDEX t_l ON t (lower(b)) INCLUDE (a);
COMMENT ON TABLE t IS 'a table';
COMMENT ON COLUMN t.a IS 'a column';
COMMENT ON FUNCTION twice IS 'two times';
CREATE SCHEMA app;
COMMENT ON SCHEMA app IS 'the app';
CREATE TABLE app.t (j jsonb, d date, t bytea);
CREATE VIEW v AS WITH app AS (SELECT t.id, t.a FROM t) SELECT app.id, twice(app.a) AS aa, 'red'::colour AS c FROM app JOIN app.t AS other ON true;
CREATE MATERIALIZED VIEW mv AS SELECT a, count(*) AS n FROM t GROUP BY a;
CREATE UNIQUE INDEX mv_a ON mv (a);
CREATE MATERIALIZED VIEW mv2 AS SELECT sum(n) AS s FROM mv WHERE a IN (SELECT id FROM t);
INSERT INTO t (a, b, c, n) VALUES (1, 'x', 'red', 1.5), (2, E'y\t\\', 'deep "blue"', NULL), (3, NULL, NULL, 2);
INSERT INTO u (x, l, at) VALUES ('hello', '{1,NULL,2}', '2024-05-01 12:00+02'), (NULL, NULL, NULL);
INSERT INTO app.t VALUES ('{"a": [1, null]}', '2024-01-01', '\x00ff');
ALTER TABLE t DROP COLUMN gone;
CREATE ROLE reader;
GRANT SELECT ON t, mv TO reader;
GRANT SELECT (x), UPDATE (z) ON u TO reader;
GRANT USAGE ON SCHEMA app TO reader;
`

// dumpQueries ask for what a restored database must hold.
var dumpQueries = []string{
	"SELECT * FROM t ORDER BY id", "SELECT * FROM u ORDER BY id", "SELECT j, d, t FROM app.t", "SELECT * FROM v ORDER BY id", "SELECT * FROM mv ORDER BY a", "SELECT * FROM mv2",
	"SELECT nextval('ticket'), nextval('t_id_seq'), nextval('u_id_seq')",
	"SELECT obj_description('t'::regclass), col_description('t'::regclass, 2), obj_description('app'::regnamespace)",
	"SELECT indexrelid::regclass::text, indisunique, indisprimary FROM pg_index WHERE indrelid IN ('t'::regclass, 'u'::regclass, 'mv'::regclass) ORDER BY 1",
	"SELECT conname, contype FROM pg_constraint WHERE conrelid IN ('t'::regclass, 'u'::regclass) ORDER BY 1",
	"SELECT has_table_privilege('reader', 't', 'SELECT'), has_table_privilege('reader', 'u', 'SELECT'), has_column_privilege('reader', 'u', 'x', 'SELECT'), has_column_privilege('reader', 'u', 'z', 'UPDATE'), has_schema_privilege('reader', 'app', 'USAGE')",
	"SELECT twice(21), enum_range(NULL::colour)",
}

// TestPgDump dumps a database with pg_dump and restores it into an empty one, and into PostgreSQL where STREAMDB_POSTGRES names one.
func TestPgDump(t *testing.T) {
	for _, name := range []string{"pg_dump", "psql"} {
		if _, err := exec.LookPath(name); err != nil {
			if os.Getenv("STREAMDB_E2E_CLIENTS") == "require" {
				t.Fatal(name + " is not installed")
			}
			t.Skip(name + " is not installed")
		}
	}
	run := func(env []string, stdin, name string, argv ...string) string {
		t.Helper()
		ctx, cancel := context.WithTimeout(t.Context(), clientTimeout)
		defer cancel()
		cmd := exec.CommandContext(ctx, name, argv...)
		cmd.Env, cmd.Stdin = env, strings.NewReader(stdin)
		var errs strings.Builder
		cmd.Stderr = &errs
		out, err := cmd.Output()
		require.NoError(t, err, "%s %s\n%s", name, argv, errs.String())
		return string(out)
	}
	psql := func(env []string, input string) string {
		t.Helper()
		return run(env, input, "psql", "-X", "-q", "-A", "-t", "-v", "ON_ERROR_STOP=1")
	}
	// What differs from one dump to the next, and a default that a restored column has from the beginning.
	noise := regexp.MustCompile(`(?m)^\\(un)?restrict .*\n`)
	dump := func(env []string, argv ...string) string {
		t.Helper()
		return noise.ReplaceAllString(run(env, "", "pg_dump", argv...), "")
	}
	answers := func(env []string) string {
		t.Helper()
		return psql(env, "SET TimeZone = 'UTC';\n"+strings.Join(dumpQueries, ";\n")+";\n")
	}
	from := clientEnv(t, serve(t, serveOptions{dataDir: t.TempDir()}))
	psql(from, dumpSetup)
	whole, schema := dump(from), dump(from, "-s")
	require.NotContains(t, whole, "streamdb.")
	require.NotContains(t, schema, "COPY ")
	want := answers(from)

	to := clientEnv(t, serve(t, serveOptions{dataDir: t.TempDir()}))
	psql(to, "CREATE ROLE reader;")
	psql(to, whole)
	again := dump(to, "-s")
	require.Equal(t, want, answers(to))
	third := clientEnv(t, serve(t, serveOptions{dataDir: t.TempDir()}))
	psql(third, "CREATE ROLE reader;")
	psql(third, schema)
	require.Equal(t, again, dump(third, "-s"))

	oracle := os.Getenv("STREAMDB_POSTGRES")
	if oracle == "" {
		t.Log("not restored into PostgreSQL: STREAMDB_POSTGRES names none")
		return
	}
	u, err := url.Parse(oracle)
	require.NoError(t, err)
	admin := append(os.Environ(), "PGHOST="+u.Hostname(), "PGPORT="+u.Port(), "PGUSER="+u.User.Username(), "PGDATABASE="+strings.TrimPrefix(u.Path, "/"))
	name := fmt.Sprintf("streamdb_dump_%d", time.Now().UnixNano())
	psql(admin, "CREATE DATABASE "+name+";\nCREATE ROLE streamdb;\nCREATE ROLE reader;")
	defer func() { psql(admin, "DROP DATABASE "+name+";\nDROP ROLE streamdb;\nDROP ROLE reader;") }()
	pg := append(admin, "PGDATABASE="+name)
	psql(pg, whole)
	require.Equal(t, want, answers(pg))
}
