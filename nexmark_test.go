package streamdb_test

import (
	"bytes"
	"context"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5/pgconn"
	"github.com/stretchr/testify/require"

	"github.com/streamdb/streamdb/bench/nexmark"
	"github.com/streamdb/streamdb/internal/slt"
)

var (
	nexmarkOracle = flag.String("nexmark.oracle", "", "URL of a database of PostgreSQL in which the Nexmark queries are answered; it gets a schema nexmark")
	nexmarkUpdate = flag.Bool("nexmark.update", false, "write the rows that PostgreSQL returns as the expected ones")
)

// TestNexmarkOracle loads the events that nexmark.slt reads into PostgreSQL and compares the expected rows of each query with what it answers there. Queries whose
// windows PostgreSQL has no words for are written otherwise, in testdata/nexmark/postgresql.
func TestNexmarkOracle(t *testing.T) {
	if *nexmarkOracle == "" {
		t.Skip("no -nexmark.oracle given")
	}
	ctx := t.Context()
	dir := filepath.Join("testdata", "nexmark")
	oracle, err := pgconn.Connect(ctx, *nexmarkOracle)
	require.NoError(t, err)
	defer oracle.Close(context.Background())
	target, err := sltServer()(ctx, slt.ServerOptions{})
	require.NoError(t, err)
	defer func() { require.NoError(t, target.Close(context.Background())) }()
	own, err := target.Connect(ctx)
	require.NoError(t, err)
	defer own.Close(context.Background())

	exec := func(c *pgconn.PgConn, sql string) [][][]byte {
		t.Helper()
		res, err := c.Exec(ctx, sql).ReadAll()
		require.NoError(t, err, sql)
		return res[len(res)-1].Rows
	}
	exec(oracle, "DROP SCHEMA IF EXISTS nexmark CASCADE; CREATE SCHEMA nexmark; SET search_path = nexmark")
	defer exec(oracle, "DROP SCHEMA nexmark CASCADE")
	script, err := os.ReadFile(filepath.Join(dir, "nexmark.slt"))
	require.NoError(t, err)
	for _, record := range strings.Split(string(script), "\n\n") {
		_, sql, ok := strings.Cut(record, "statement ok\n")
		if !ok {
			if strings.HasPrefix(record, "query") {
				break
			}
			continue
		}
		exec(own, sql)
		source, ok := strings.CutPrefix(sql, "CREATE SOURCE ")
		if !ok {
			exec(oracle, sql)
			continue
		}
		name, rest, _ := strings.Cut(source, " ")
		columns, _, ok := strings.Cut(rest, "WATERMARK")
		require.True(t, ok)
		exec(oracle, "CREATE TABLE "+name+" "+strings.TrimRight(columns, ", \n")+")")
		var rows bytes.Buffer
		_, err := own.CopyTo(ctx, &rows, "COPY (SELECT * FROM "+name+") TO STDOUT")
		require.NoError(t, err)
		_, err = oracle.CopyFrom(ctx, &rows, "COPY "+name+" FROM STDIN")
		require.NoError(t, err)
	}
	for _, q := range nexmark.Names() {
		if !strings.HasPrefix(q, "q") {
			continue
		}
		t.Run(q, func(t *testing.T) {
			sql, err := os.ReadFile(filepath.Join(dir, "postgresql", q+".sql"))
			if os.IsNotExist(err) {
				sql, err = os.ReadFile(filepath.Join(dir, q+".sql"))
			}
			require.NoError(t, err)
			var lines []string
			for _, row := range exec(oracle, string(sql)) {
				var cells []string
				for _, v := range row {
					switch {
					case v == nil:
						v = []byte("NULL")
					case len(v) == 0:
						v = []byte("(empty)")
					}
					cells = append(cells, string(v))
				}
				lines = append(lines, strings.Join(strings.Fields(strings.Join(cells, " ")), " "))
			}
			slices.Sort(lines)
			require.NotEmpty(t, lines)
			path := filepath.Join(dir, q+".rows")
			have := strings.Join(lines, "\n") + "\n"
			if *nexmarkUpdate {
				require.NoError(t, os.WriteFile(path, []byte(have), 0o644)) //nolint:gosec // a test file
			}
			want, err := os.ReadFile(path)
			require.NoError(t, err)
			require.Equal(t, string(want), have, fmt.Sprintf("%s is not what PostgreSQL returns", path))
		})
	}
}
