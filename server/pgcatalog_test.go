package server_test

import (
	"bytes"
	"context"
	"errors"
	"flag"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/stretchr/testify/require"

	"github.com/streamdb/streamdb/connector/all"
	"github.com/streamdb/streamdb/server"
	"github.com/streamdb/streamdb/types"
)

var rewritePgcatalog = flag.Bool("rewrite-pgcatalog", false, "record what psql prints")

const pgcatalogTimeout = 2 * time.Minute

// pgcatalogSetup makes one relation of each kind.
var pgcatalogSetup = []string{
	"CREATE TABLE t (id int PRIMARY KEY, a text NOT NULL DEFAULT 'x', b numeric(6,2), CHECK (b > 0))",
	"COMMENT ON TABLE t IS 'a table'",
	"CREATE VIEW v AS SELECT id, a FROM t WHERE id > 1",
	"CREATE MATERIALIZED VIEW m AS SELECT a, count(*) AS n FROM t GROUP BY a",
	`CREATE SOURCE s WITH (connector = 'nexmark', "nexmark.table.type" = 'Bid', "nexmark.event.num" = '100')`,
}

// pgcatalogServer runs a server over a loopback port and returns a connection to it, and the port.
func pgcatalogServer(t *testing.T) (*pgx.Conn, string) {
	ctx, cancel := context.WithTimeout(context.Background(), pgcatalogTimeout)
	t.Cleanup(cancel)
	srv, err := server.Open(ctx, server.Config{MemoryOnly: true, DataDir: t.TempDir(), Memory: 256 << 20, Connectors: all.Builtin()})
	require.NoError(t, err)
	l, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	served := make(chan error, 1)
	go func() { served <- srv.Serve(l) }()
	t.Cleanup(func() {
		require.NoError(t, srv.Close(context.WithoutCancel(ctx)))
		<-served
	})
	_, port, err := net.SplitHostPort(l.Addr().String())
	require.NoError(t, err)
	conn, err := pgx.Connect(ctx, fmt.Sprintf("postgres://streamdb@127.0.0.1:%s/streamdb?sslmode=disable", port))
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, conn.Close(context.WithoutCancel(ctx))) })
	for _, s := range pgcatalogSetup {
		_, err := conn.Exec(ctx, s)
		require.NoError(t, err, s)
	}
	return conn, port
}

// recordedQuery is one query of a script in testdata/pgcatalog.
type recordedQuery struct {
	command string
	columns string // name type; name type
	refused string // SQLSTATE it may end with
	text    string
}

func recordedQueries(t *testing.T, script string) []recordedQuery {
	data, err := os.ReadFile(filepath.Join("testdata", "pgcatalog", script))
	require.NoError(t, err)
	var out []recordedQuery
	for _, block := range strings.Split(string(data), "\n\n-- ")[1:] {
		command, rest, _ := strings.Cut(block, "\n")
		columns, text, _ := strings.Cut(rest, "\n")
		q := recordedQuery{command: command, columns: strings.TrimSpace(strings.TrimPrefix(columns, "-- columns:")), text: text}
		if line, rest, _ := strings.Cut(text, "\n"); strings.HasPrefix(line, "-- refused: ") {
			q.refused, q.text = strings.TrimPrefix(line, "-- refused: "), rest
		}
		out = append(out, q)
	}
	return out
}

// Every query that psql sends to a server of version 14 for its describe commands is answered with PostgreSQL's columns. psql is not needed.
func TestPgcatalogQueriesOfPsql(t *testing.T) {
	conn, _ := pgcatalogServer(t)
	ctx := context.Background()
	var oids []string
	rows, err := conn.Query(ctx, "SELECT relname::text, oid::text FROM pg_class WHERE relnamespace = 'public'::regnamespace")
	require.NoError(t, err)
	for rows.Next() {
		var name, oid string
		require.NoError(t, rows.Scan(&name, &oid))
		oids = append(oids, "{"+name+"}", oid)
	}
	require.NoError(t, rows.Err())
	insert := strings.NewReplacer(oids...)
	queries := recordedQueries(t, "psql14.sql")
	require.Greater(t, len(queries), 90)
	for i, q := range queries {
		t.Run(fmt.Sprintf("%03d %s", i, q.command), func(t *testing.T) {
			columns, err := columnsOf(ctx, conn, insert.Replace(q.text))
			require.NoError(t, err, q.text)
			require.Equal(t, q.columns, columns, q.text)
		})
	}
}

// What drivers and tools ask is answered, too.
func TestPgcatalogQueriesOfClients(t *testing.T) {
	conn, _ := pgcatalogServer(t)
	refused := 0
	for i, q := range recordedQueries(t, "clients.sql") {
		t.Run(fmt.Sprintf("%03d %s", i, q.command), func(t *testing.T) {
			columns, err := columnsOf(context.Background(), conn, q.text)
			var pe *pgconn.PgError
			if q.refused != "" && errors.As(err, &pe) && pe.Code == q.refused {
				refused++
				return
			}
			require.NoError(t, err, q.text)
			if q.columns != "" {
				require.Equal(t, q.columns, columns, q.text)
			}
		})
	}
	t.Logf("%d queries are still refused", refused)
}

// columnsOf runs one query by the simple protocol, as psql does, and describes the columns of its result.
func columnsOf(ctx context.Context, conn *pgx.Conn, query string) (string, error) {
	results := conn.PgConn().Exec(ctx, query)
	columns := ""
	for results.NextResult() {
		r := results.ResultReader()
		columns = describeColumns(r.FieldDescriptions()) // known before the first row: empty results have columns too
		if _, err := r.Close(); err != nil {
			return "", hinted(errors.Join(err, results.Close()))
		}
	}
	return columns, hinted(results.Close())
}

// hinted adds what PostgreSQL clients show below an error.
func hinted(err error) error {
	var pe *pgconn.PgError
	if errors.As(err, &pe) {
		return fmt.Errorf("%w at %d: %s %s", err, pe.Position, pe.Detail, pe.Hint)
	}
	return err
}

func describeColumns(fs []pgconn.FieldDescription) string {
	parts := make([]string, len(fs))
	for i, f := range fs {
		parts[i] = f.Name + " " + types.Type{OID: types.OID(f.DataTypeOID), Mod: f.TypeModifier}.String()
	}
	return strings.Join(parts, "; ")
}

// psqlCommands are run by the psql binary; those marked have an output that depends on the machine and are only run.
var psqlCommands = []struct {
	command string
	varies  bool
}{
	{`\d`, false},
	{`\d t`, false},
	{`\d v`, false},
	{`\d m`, false},
	{`\d s`, false},
	{`\d+ t`, false},
	{`\d+ v`, false},
	{`\d+ m`, true},
	{`\d+ s`, false},
	{`\d t_pkey`, false},
	{`\d pg_namespace`, false},
	{`\dt`, false},
	{`\dt+`, true},
	{`\dm`, false},
	{`\dm+`, true},
	{`\dv`, false},
	{`\dv+`, true},
	{`\di`, false},
	{`\di+`, true},
	{`\dn`, false},
	{`\dn+`, false},
	{`\l`, false},
	{`\l+`, true},
	{`\du`, false},
	{`\du+`, false},
	{`\df abs`, false},
	{`\df`, true},
	{`\df+ abs`, true},
	{`\dT`, false},
	{`\dT+`, false},
	{`\dx`, false},
	{`\dp`, false},
	{`\det`, false},
	{`\dE`, false},
	{`\sv v`, false},
	{`\da sum`, true},
	{`\dC`, true},
	{`\do =`, true},
	{`\db`, false},
	{`\dL`, false},
	{`\dA`, false},
	{`\des`, false},
	{`\dew`, false},
	{`\dv streamdb.*`, true},
	{`\d streamdb.jobs`, true},
	{`\dS`, true},
	{`\dd`, true},
	{`\dO`, false},
	{`\dD`, false},
	{`\dc`, false},
	{`\dX`, false},
	{`\dRp`, false},
	{`\dy`, false},
	{`\ddp`, false},
}

// psqlMajor is the version whose output is recorded.
const psqlMajor = "15"

func TestPgcatalogWithPsql(t *testing.T) {
	psql, err := exec.LookPath("psql")
	if err != nil {
		t.Skipf("psql is not installed: %d commands not run", len(psqlCommands))
	}
	version, err := exec.Command(psql, "--version").Output()
	require.NoError(t, err)
	_, port := pgcatalogServer(t)
	golden := filepath.Join("testdata", "pgcatalog", "psql15.golden")
	var got bytes.Buffer
	for _, c := range psqlCommands {
		cmd := exec.Command(psql, "-X", "-h", "127.0.0.1", "-p", port, "-U", "streamdb", "-c", c.command, "streamdb")
		cmd.Env = append(os.Environ(), "PGOPTIONS=", "PGCLIENTENCODING=UTF8", "LC_ALL=C.UTF-8", "PGCONNECT_TIMEOUT="+strconv.Itoa(int(pgcatalogTimeout.Seconds())))
		out, err := cmd.CombinedOutput()
		require.NoError(t, err, "%s\n%s", c.command, out)
		require.NotContains(t, string(out), "ERROR", c.command)
		if !c.varies {
			fmt.Fprintf(&got, "streamdb=> %s\n%s\n", c.command, out)
		}
	}
	if !strings.Contains(string(version), ") "+psqlMajor+".") {
		t.Logf("%d outputs not compared: psql is not of version %s", len(psqlCommands), psqlMajor)
		return
	}
	if *rewritePgcatalog {
		require.NoError(t, os.WriteFile(golden, got.Bytes(), 0o644))
	}
	want, err := os.ReadFile(golden)
	require.NoError(t, err)
	require.Equal(t, string(want), got.String())
}
