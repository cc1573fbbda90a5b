package server_test

import (
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/streamdb/streamdb/bench/nexmark"
	"github.com/streamdb/streamdb/internal/checkpointrows"
)

var updateOperatorIDs = flag.Bool("operator-ids.update", false, "write testdata/operator_ids.txt anew")

// The operators of the Nexmark queries have the ids of the golden file, by which their states are found: after a restart, which does not plan again, and when the same
// text is planned again.
func TestOperatorIDsOfViews(t *testing.T) {
	checkpointrows.Shows(t, 111)
	d := open(t)
	s := d.connect()
	dir := filepath.Join("..", "testdata", "nexmark")
	script, err := os.ReadFile(filepath.Join(dir, "nexmark.slt"))
	require.NoError(t, err)
	for record := range strings.SplitSeq(string(script), "\n\n") {
		if strings.HasPrefix(record, "query") {
			break // the queries are files of their own
		}
		if _, sql, ok := strings.Cut(record, "statement ok\n"); ok {
			s.must(strings.Replace(sql, "'1900'", "'50'", 1))
		}
	}
	s.must("SET parallelism = 2")
	var names []string
	for _, q := range nexmark.Names() {
		text, err := os.ReadFile(filepath.Join(dir, q+".sql"))
		if os.IsNotExist(err) {
			continue
		}
		require.NoError(t, err)
		s.must("CREATE MATERIALIZED VIEW " + q + " AS " + string(text))
		names = append(names, q)
	}
	require.Greater(t, len(names), 20)
	ids := func(s *session) string {
		var b strings.Builder
		for _, q := range names {
			fmt.Fprintf(&b, "%s: %s\n", q, s.row("SELECT string_agg(o.operator_id || ' ' || o.name, ', ' ORDER BY o.operator_id) FROM streamdb.operators o JOIN streamdb.jobs j USING (job_id) WHERE j.name = '"+q+"'"))
		}
		return b.String()
	}
	const golden = "testdata/operator_ids.txt"
	made := ids(s)
	if *updateOperatorIDs {
		require.NoError(t, os.WriteFile(golden, []byte(made), 0o600))
	}
	want, err := os.ReadFile(golden)
	require.NoError(t, err)
	require.Equal(t, string(want), made, "go test ./server -run TestOperatorIDsOfViews -operator-ids.update")
	s.must("CHECKPOINT")
	d.crash()
	s = d.connect()
	require.Equal(t, made, ids(s), "after a restart")
	for _, q := range names {
		text, err := os.ReadFile(filepath.Join(dir, q+".sql"))
		require.NoError(t, err)
		s.must("DROP MATERIALIZED VIEW "+q, "SET parallelism = 2", "CREATE MATERIALIZED VIEW "+q+" AS "+string(text))
	}
	require.Equal(t, made, ids(s), "planned again")
}
