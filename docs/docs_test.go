// Package docs checks that the manual says what is.
package docs

import (
	"context"
	"flag"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/stretchr/testify/require"

	"github.com/streamdb/streamdb"
	"github.com/streamdb/streamdb/checkpoint"
)

func open(t *testing.T) *pgx.Conn {
	t.Helper()
	ctx := context.Background()
	db, err := streamdb.Open(ctx, streamdb.Options{MemoryOnly: true, Memory: 128 << 20})
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, db.Abort()) })
	cfg, err := pgx.ParseConfig("postgres://streamdb@streamdb/streamdb?sslmode=disable")
	require.NoError(t, err)
	dial := db.DialFunc()
	cfg.DialFunc = func(ctx context.Context, network, addr string) (net.Conn, error) { return dial(ctx, network, addr) }
	cfg.LookupFunc = func(context.Context, string) ([]string, error) { return []string{"127.0.0.1"}, nil }
	conn, err := pgx.ConnectConfig(ctx, cfg)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, conn.Close(context.Background())) })
	return conn
}

var rewrite = flag.Bool("rewrite", false, "write the table of settings into operations.md")

// The settings in the manual are those of the server.
func TestSettings(t *testing.T) {
	const file, header = "operations.md", "| name | default | scope | |\n|---|---|---|---|\n"
	manual, err := os.ReadFile(file)
	require.NoError(t, err)
	rows, err := open(t).Query(context.Background(), "SELECT name, setting, scope, description FROM streamdb.settings")
	require.NoError(t, err)
	table := ""
	for rows.Next() {
		var name, value, scope, doc string
		require.NoError(t, rows.Scan(&name, &value, &scope, &doc))
		if name == "session_authorization" || name == checkpoint.SettingDirectory { // what this server has
			value = ""
		}
		if value != "" {
			value = "`" + value + "`"
		}
		table += fmt.Sprintf("| `%s` | %s | %s | %s |\n", name, value, scope, doc)
	}
	require.NoError(t, rows.Err())
	before, rest, ok := strings.Cut(string(manual), header)
	require.True(t, ok)
	have, after, ok := strings.Cut(rest, "\n\n")
	require.True(t, ok)
	if *rewrite {
		require.NoError(t, os.WriteFile(file, []byte(before+header+table+"\n"+after), 0o600))
		return
	}
	require.Equal(t, strings.Split(strings.TrimSpace(table), "\n"), strings.Split(have, "\n"), "run go test ./docs -rewrite")
}

// The metrics in the manual are those of the server.
func TestMetrics(t *testing.T) {
	manual, err := os.ReadFile("operations.md")
	require.NoError(t, err)
	source, err := os.ReadFile("../server/http.go")
	require.NoError(t, err)
	found := regexp.MustCompile(`(gauge|counter)\("([a-z_]+)", "([^"]+)"`).FindAllStringSubmatch(string(source), -1)
	require.NotEmpty(t, found)
	for _, m := range found {
		require.Contains(t, string(manual), fmt.Sprintf("| `streamdb_%s` | %s | %s |\n", m[2], m[1], m[3]))
	}
}

// Relations of the schema streamdb that the manual lists are there.
func TestSystemRelations(t *testing.T) {
	manual, err := os.ReadFile("sql.md")
	require.NoError(t, err)
	conn := open(t)
	found := regexp.MustCompile("`(streamdb\\.[a-z_]+)`").FindAllStringSubmatch(string(manual), -1)
	require.NotEmpty(t, found)
	for _, m := range found {
		_, err := conn.Exec(context.Background(), "SELECT * FROM "+m[1])
		require.NoError(t, err, m[1])
	}
}

// What the manual calls not supported is refused: each of these statements fails with a code that says so.
func TestNotThere(t *testing.T) {
	conn := open(t)
	ctx := context.Background()
	_, err := conn.Exec(ctx, "CREATE TABLE t (a int PRIMARY KEY, b text)")
	require.NoError(t, err)
	for _, s := range []string{
		"CREATE SINK s INTO t FROM t WITH (connector = 'file')", "CREATE TABLE u (a int REFERENCES t)", "CREATE EXTENSION hstore", "CREATE DOMAIN d AS int",
		"CREATE MATERIALIZED VIEW v AS SELECT now() FROM t",
	} {
		_, err := conn.Exec(ctx, s)
		require.ErrorContains(t, err, "SQLSTATE 0A000", s)
	}
}

// Files and folders that are named in the tour exist, and so do links of the manual.
func TestPaths(t *testing.T) {
	tour, err := os.ReadFile(filepath.Join("..", "ARCHITECTURE.md"))
	require.NoError(t, err)
	found := regexp.MustCompile("`([a-z][a-z_0-9]*(?:/[a-z_A-Z0-9.]+)*/?|[a-z_]+\\.go)`").FindAllStringSubmatch(string(tour), -1)
	checked := 0
	for _, m := range found {
		p := m[1]
		if !strings.Contains(p, "/") && !strings.HasSuffix(p, ".go") {
			continue
		}
		_, err := os.Stat(filepath.Join("..", filepath.FromSlash(p)))
		require.NoError(t, err, "ARCHITECTURE.md names %s", p)
		checked++
	}
	require.Greater(t, checked, 40)
	link := regexp.MustCompile(`\]\(([^)#:]+)\)`)
	for _, f := range []string{"../README.md", "../ARCHITECTURE.md", "sql.md", "operations.md", "differences.md"} {
		text, err := os.ReadFile(f)
		require.NoError(t, err)
		for _, m := range link.FindAllStringSubmatch(string(text), -1) {
			_, err := os.Stat(filepath.Join(filepath.Dir(f), filepath.FromSlash(m[1])))
			require.NoError(t, err, "%s links %s", f, m[1])
		}
	}
}

// The SQL of the README gives what is printed there.
func TestReadme(t *testing.T) {
	text, err := os.ReadFile(filepath.Join("..", "README.md"))
	require.NoError(t, err)
	conn := open(t)
	blocks := regexp.MustCompile("(?s)```sql\n(.*?)```(?:\n\n```\n(.*?)```)?").FindAllStringSubmatch(string(text), -1)
	require.Len(t, blocks, 3)
	for _, b := range blocks {
		var last *pgconn.Result
		for _, s := range strings.Split(strings.TrimSpace(b[1]), ";\n") { // one statement at a time, as psql sends them
			results, err := conn.PgConn().Exec(context.Background(), s).ReadAll()
			require.NoError(t, err, s)
			last = results[0]
		}
		if b[2] == "" {
			continue
		}
		var want, got []string
		for _, l := range strings.Split(b[2], "\n")[2:] {
			if c := strings.Split(l, "|"); len(c) == 3 {
				want = append(want, strings.TrimSpace(c[0])+"|"+strings.TrimSpace(c[1])+"|"+strings.TrimSpace(c[2]))
			}
		}
		for _, r := range last.Rows {
			got = append(got, string(r[0])+"|"+string(r[1])+"|"+string(r[2]))
		}
		require.Equal(t, want, got)
	}
}
