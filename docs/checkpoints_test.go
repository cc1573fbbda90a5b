package docs

import (
	"bytes"
	"context"
	"os"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"go.yaml.in/yaml/v3"

	"github.com/streamdb/streamdb/internal/checkpointrows"
)

// The SQL of the page about checkpoints runs as it stands, from top to bottom in one database. A statement that is to fail says with which SQLSTATE, in a comment at the
// end of its line.
func TestCheckpointExamples(t *testing.T) {
	checkpointrows.Shows(t, 139)
	page, err := os.ReadFile("checkpoints.md")
	require.NoError(t, err)
	blocks := regexp.MustCompile("(?s)```sql\n(.*?)```").FindAllStringSubmatch(string(page), -1)
	require.NotEmpty(t, blocks)
	conn := open(t)
	for _, b := range blocks {
		for _, stmt := range regexp.MustCompile(`(?s).+?;[^\n]*\n`).FindAllString(b[1], -1) {
			stmt = strings.TrimSpace(stmt)
			_, err := conn.Exec(context.Background(), stmt)
			if _, want, ok := strings.Cut(stmt, "-- error "); ok {
				require.ErrorContains(t, err, "SQLSTATE "+want, stmt)
				continue
			}
			require.NoError(t, err, stmt)
		}
	}
}

// The rules for Prometheus are well-formed, and ask for metrics that there are.
func TestAlertRules(t *testing.T) {
	checkpointrows.Shows(t, 136)
	data, err := os.ReadFile("alerts.yml")
	require.NoError(t, err)
	manual, err := os.ReadFile("operations.md")
	require.NoError(t, err)
	var rules struct {
		Groups []struct {
			Name  string
			Rules []struct {
				Alert, Expr, For string
				Annotations      map[string]string
			}
		}
	}
	d := yaml.NewDecoder(bytes.NewReader(data))
	d.KnownFields(true)
	require.NoError(t, d.Decode(&rules))
	require.NotEmpty(t, rules.Groups)
	for _, r := range rules.Groups[0].Rules {
		require.NotEmpty(t, r.Alert)
		require.NotEmpty(t, r.Annotations["summary"], r.Alert)
		require.Equal(t, strings.Count(r.Expr, "("), strings.Count(r.Expr, ")"), r.Expr)
		for _, name := range regexp.MustCompile(`streamdb_[a-z_]+`).FindAllString(r.Expr, -1) {
			require.Contains(t, string(manual), "| `"+name+"` |", r.Alert)
		}
	}
}
