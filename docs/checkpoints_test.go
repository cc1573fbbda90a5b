package docs

import (
	"context"
	"os"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// The SQL of the page about checkpoints runs as it stands, from top to bottom in one database. A statement that is to fail says with which SQLSTATE, in a comment at the
// end of its line.
func TestCheckpointExamples(t *testing.T) {
	page, err := os.ReadFile("checkpoints.md")
	require.NoError(t, err)
	blocks := regexp.MustCompile("(?s)```sql\n(.*?)```").FindAllStringSubmatch(string(page), -1)
	require.NotEmpty(t, blocks)
	conn := open(t)
	for _, b := range blocks {
		for _, stmt := range strings.SplitAfter(b[1], ";\n") {
			if stmt = strings.TrimSpace(stmt); stmt == "" {
				continue
			}
			_, err := conn.Exec(context.Background(), stmt)
			if _, want, ok := strings.Cut(stmt, "-- error "); ok {
				require.ErrorContains(t, err, "SQLSTATE "+want, stmt)
				continue
			}
			require.NoError(t, err, stmt)
		}
	}
}
