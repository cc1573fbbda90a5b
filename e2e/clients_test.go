//go:build e2e

package e2e

import (
	"bufio"
	"bytes"
	"context"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// Limits of the client programs.
const (
	clientTimeout = 3 * time.Minute // the slowest compiles a Java program and 40 Go packages before
	watchedTicks  = 3
)

// clientPrograms are programs over real client libraries, under clients/. Each makes a schema, loads, queries and reflects, checks what it
// gets, and leaves nothing behind. They run on PostgreSQL as well: set PGHOST and so on and start them by hand.
var clientPrograms = []struct {
	name string
	dir  string
	argv []string // some are paths in the cache of `make clients`
}{
	{name: "psycopg2", dir: "python", argv: []string{"venv/bin/python", "psycopg2_client.py"}},
	{name: "psycopg3", dir: "python", argv: []string{"venv/bin/python", "psycopg3_client.py"}},
	{name: "asyncpg", dir: "python", argv: []string{"venv/bin/python", "asyncpg_client.py"}},
	{name: "sqlalchemy", dir: "python", argv: []string{"venv/bin/python", "sqlalchemy_client.py"}},
	{name: "django", dir: "python", argv: []string{"venv/bin/python", "django_client.py"}},
	{name: "node-postgres", dir: "node", argv: []string{"node", "pg_client.mjs"}},
	{name: "node-builders", dir: "node", argv: []string{"node", "builders_client.mjs"}},
	{name: "psql-describe", dir: "node", argv: []string{"node", "describe_client.mjs"}},
	{name: "pgjdbc", dir: "java", argv: []string{"java", "-cp", "postgresql.jar", "Jdbc.java"}},
	{name: "go", dir: "go", argv: []string{"go-client"}},
}

// clientCache is where `make clients` puts the libraries; a test without them is skipped, unless STREAMDB_E2E_CLIENTS=require.
func clientCache(t *testing.T) string {
	t.Helper()
	dir, err := filepath.Abs("../.cache/clients")
	require.NoError(t, err)
	if _, err := os.Stat(filepath.Join(dir, "ready")); err != nil {
		if os.Getenv("STREAMDB_E2E_CLIENTS") == "require" {
			t.Fatalf("no client libraries in %s: run make clients", dir)
		}
		t.Skip("no client libraries: run make clients")
	}
	return dir
}

func clientEnv(t *testing.T, p *process) []string {
	t.Helper()
	host, port, err := net.SplitHostPort(p.addr)
	require.NoError(t, err)
	return append(os.Environ(), "PGHOST="+host, "PGPORT="+port, "PGUSER=streamdb", "PGDATABASE=streamdb", "PGSSLMODE=disable")
}

// TestClients runs each program twice: what one leaves behind on the server, or in the server's caches, must not trouble the next.
func TestClients(t *testing.T) {
	cache := clientCache(t)
	p := serve(t, serveOptions{dataDir: t.TempDir()})
	env := clientEnv(t, p)
	for _, c := range clientPrograms {
		t.Run(c.name, func(t *testing.T) {
			argv := append([]string(nil), c.argv...)
			dir := filepath.Join("clients", c.dir)
			if c.dir == "node" { // modules are looked up from the program's own folder
				dir = filepath.Join(cache, "node")
				copyPrograms(t, "clients/node", dir)
			}
			for i, a := range argv {
				if strings.HasPrefix(a, "venv/") || strings.HasSuffix(a, ".jar") || a == "go-client" {
					argv[i] = filepath.Join(cache, a)
				}
			}
			for range 2 {
				ctx, cancel := context.WithTimeout(t.Context(), clientTimeout)
				cmd := exec.CommandContext(ctx, argv[0], argv[1:]...)
				cmd.Dir, cmd.Env = dir, env
				out, err := cmd.CombinedOutput()
				cancel()
				require.NoError(t, err, "%s\n%s", out, p.log)
				require.Regexp(t, `(?m)^\d+ checks$`, string(out))
			}
		})
	}
	require.True(t, p.alive(), "%s", p.log)
}

func copyPrograms(t *testing.T, from, to string) {
	t.Helper()
	files, err := filepath.Glob(filepath.Join(from, "*.mjs"))
	require.NoError(t, err)
	require.NotEmpty(t, files)
	for _, f := range files {
		text, err := os.ReadFile(f)
		require.NoError(t, err)
		require.NoError(t, os.WriteFile(filepath.Join(to, filepath.Base(f)), text, 0o600))
	}
}

// psqlSetup makes what the describe commands show.
const psqlSetup = `CREATE TYPE colour AS ENUM ('red', 'green');
CREATE TABLE t (id serial PRIMARY KEY, a int NOT NULL DEFAULT 7, b text UNIQUE, c colour, CHECK (a > 0));
CREATE INDEX t_a ON t (a);
COMMENT ON TABLE t IS 'a table';
CREATE VIEW v AS SELECT id, a FROM t;
CREATE FUNCTION twice(x int) RETURNS int LANGUAGE sql AS 'SELECT 2 * x';
INSERT INTO t (a, b) VALUES (1, 'x'), (2, 'y');
CREATE MATERIALIZED VIEW mv AS SELECT a, count(*) AS n FROM t GROUP BY a;
`

// TestPsql runs the commands of psql itself.
func TestPsql(t *testing.T) {
	psql, err := exec.LookPath("psql")
	if err != nil {
		if os.Getenv("STREAMDB_E2E_CLIENTS") == "require" {
			t.Fatal("psql is not installed")
		}
		t.Skip("psql is not installed")
	}
	p := serve(t, serveOptions{dataDir: t.TempDir()})
	env := clientEnv(t, p)
	run := func(t *testing.T, input string) string {
		t.Helper()
		ctx, cancel := context.WithTimeout(t.Context(), statementTimeout)
		defer cancel()
		cmd := exec.CommandContext(ctx, psql, "-X", "-v", "ON_ERROR_STOP=1")
		cmd.Env, cmd.Stdin = env, strings.NewReader(input)
		out, err := cmd.CombinedOutput()
		require.NoError(t, err, "%s\n%s", input, out)
		require.NotContains(t, string(out), "ERROR", input)
		return string(out)
	}
	run(t, psqlSetup)
	for _, c := range []struct{ command, want string }{
		{`\d`, `public \| mv +\| materialized view \| streamdb`},
		{`\d t`, `"t_pkey" PRIMARY KEY, btree \(id\)[^$]*"t_a" btree \(a\)[^$]*"t_b_key" UNIQUE CONSTRAINT, btree \(b\)[^$]*"t_a_check" CHECK \(`},
		{`\d mv`, `Materialized view "public.mv"`},
		{`\d v`, `View "public.v"`},
		{`\d+ t`, `nextval\('t_id_seq'::regclass\)`},
		{`\d+ v`, `View definition:`},
		{`\dt+`, `\| t +\| table \| streamdb \| permanent +\| .* \| a table`},
		{`\dm+`, `\| mv +\| materialized view`},
		{`\dv+`, `\| v +\| view`},
		{`\di+`, `\| t_a +\| index`},
		{`\ds+`, `\| t_id_seq +\| sequence`},
		{`\dn+`, `public`},
		{`\l+`, `streamdb`},
		{`\du+`, `streamdb .*Superuser`},
		{`\df+`, `twice +\| integer +\| x integer`},
		{`\dT+`, `colour +\| colour .*\| red`},
		{`\dx`, `List of installed extensions`},
		{`\dp`, `mv`},
		{`\sv v`, `(?i)CREATE OR REPLACE VIEW public.v AS`},
		{`\sf twice`, `(?i)CREATE OR REPLACE FUNCTION public.twice`},
		{`SELECT 1 AS a, 'x'::text AS b, now() AS c \gdesc`, `(?s)a +\| integer.*b +\| text.*c +\| timestamp with time zone`},
		{"\\copy (SELECT a, b FROM t ORDER BY id) TO STDOUT WITH (FORMAT csv, HEADER)", "a,b\n1,x\n2,y\n"},
		{"\\copy t (a, b) FROM STDIN\n3\tz\n\\.\nSELECT 'n=' || count(*) FROM t;", `COPY 1[^$]*n=3`},
		{"BEGIN;\nDECLARE c CURSOR FOR SELECT a FROM t ORDER BY a;\nFETCH 2 FROM c;\nCOMMIT;", `(?s) 1\n +2\n\(2 rows\)`},
		{"PREPARE p (int) AS SELECT $1 + 1 AS sum;\nEXECUTE p(41);", `42`},
		{"\\set FETCH_COUNT 1\nSELECT a FROM t ORDER BY a;", `\(3 rows\)|3\n`},
		{"\\conninfo", `You are connected to database "streamdb"`},
		{"\\encoding", "UTF8"},
		{`\ddp`, `Default access privileges`},
		{"\\timing on\nSELECT 1;", `Time: `},
		{"SELECT 'SELECT ' || g FROM generate_series(7, 8) g \\gexec", `7[^$]*8`},
	} {
		t.Run(strings.Fields(c.command)[0], func(t *testing.T) {
			require.Regexp(t, regexp.MustCompile(c.want), run(t, c.command+"\n"))
		})
	}
	t.Run("watch", func(t *testing.T) {
		ctx, cancel := context.WithTimeout(t.Context(), statementTimeout)
		defer cancel()
		cmd := exec.CommandContext(ctx, psql, "-X", "-A", "-t")
		cmd.Env, cmd.Stdin = env, strings.NewReader("SELECT 'tick ' || count(*) FROM t \\watch 0.05\n")
		out, err := cmd.StdoutPipe()
		require.NoError(t, err)
		var errs bytes.Buffer
		cmd.Stderr = &errs
		require.NoError(t, cmd.Start())
		ticks := 0
		for s := bufio.NewScanner(out); ticks < watchedTicks && s.Scan(); {
			if s.Text() == "tick 3" {
				ticks++
			}
		}
		require.NoError(t, cmd.Process.Kill())
		_ = cmd.Wait() // killed
		require.Equal(t, watchedTicks, ticks, errs.String())
	})
}
