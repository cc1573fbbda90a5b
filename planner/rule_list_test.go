package planner_test

import (
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/streamdb/streamdb/planner"
)

// The list of rules has every one that the planner knows, and the manual has the list.
func TestRulesAreListed(t *testing.T) {
	manual, err := os.ReadFile("../docs/sql.md")
	require.NoError(t, err)
	listed := map[string]bool{}
	for _, r := range planner.Rules() {
		require.False(t, listed[r.Name], r.Name)
		listed[r.Name] = true
		require.Contains(t, string(manual), fmt.Sprintf("| `%s` | %s |\n", r.Name, r.Does))
	}
	files, err := filepath.Glob("*.go")
	require.NoError(t, err)
	known := regexp.MustCompile(`(?m)^\t\{"([a-z_]+)", (?:true|false), \(\*optimizer\)|^\trule[A-Z]\w+ += "([a-z_]+)"`)
	found := map[string]bool{}
	for _, f := range files {
		src, err := os.ReadFile(f)
		require.NoError(t, err)
		for _, m := range known.FindAllStringSubmatch(string(src), -1) {
			found[m[1]+m[2]] = true
		}
	}
	require.Equal(t, found, listed)
}
