package docs

import (
	"bytes"
	"encoding/json"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/streamdb/streamdb/internal/checkpointrows"
)

const (
	rowsPage     = "checkpoint-rows.md"
	rowsHeader   = "| row | | shown by | result |\n|---|---|---|---|\n"
	rowsTestName = "internal/checkpointrows" // its own package calls Shows to test it
)

// TestCheckpointRows compares the page of what the checkpoint system promises with the tests that say which of it they show. With -rewrite it writes the page
// from the reports in the file that STREAMDB_CHECKPOINT_ROWS names: make checkpoint-rows.
func TestCheckpointRows(t *testing.T) {
	shown := shownRows(t)
	data, err := os.ReadFile(rowsPage)
	require.NoError(t, err)
	before, table, ok := strings.Cut(string(data), rowsHeader)
	require.True(t, ok)
	if *rewrite {
		if path := os.Getenv(checkpointrows.File); path != "" {
			page := before + rowsHeader + rowsTable(shown, readReports(t, path))
			require.NoError(t, os.WriteFile(rowsPage, []byte(page), 0o600))
		}
		return
	}
	lines := strings.Split(strings.TrimSuffix(table, "\n"), "\n")
	require.Len(t, lines, len(checkpointrows.Rows))
	for i, line := range lines {
		cells := strings.Split(line, " | ")
		require.Len(t, cells, 4, line)
		require.Equal(t, fmt.Sprintf("| R%d", i+1), cells[0])
		require.Equal(t, checkpointrows.Rows[i].Title, cells[1])
		require.NotContains(t, cells[3], "failed", line)
		if checkpointrows.Rows[i].Left == "" {
			require.Equal(t, shownBy(shown[i+1]), cells[2], "run make checkpoint-rows")
			continue
		}
		require.Empty(t, shown[i+1], "row %d is left out and shown", i+1)
		require.Equal(t, checkpointrows.Rows[i].Left, cells[2])
	}
}

// testID is a test function and the folder of its package.
type testID struct{ dir, name string }

// shownRows finds the calls of checkpointrows.Shows in the tests of the tree.
func shownRows(t *testing.T) map[int][]testID {
	shown := map[int][]testID{}
	err := filepath.WalkDir("..", func(path string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		if d.IsDir() && strings.HasPrefix(d.Name(), ".") && d.Name() != ".." {
			return fs.SkipDir
		}
		if !strings.HasSuffix(path, "_test.go") || d.Name() == "checkpointrows_test.go" {
			return nil
		}
		src, err := os.ReadFile(path)
		if err != nil || !bytes.Contains(src, []byte("checkpointrows.Shows")) {
			return err
		}
		dir, err := filepath.Rel("..", filepath.Dir(path))
		if err != nil || dir == rowsTestName {
			return err
		}
		file, err := parser.ParseFile(token.NewFileSet(), path, src, parser.SkipObjectResolution)
		if err != nil {
			return err
		}
		for _, decl := range file.Decls {
			f, ok := decl.(*ast.FuncDecl)
			if !ok {
				continue
			}
			for _, n := range rowsOf(t, f) {
				if id := (testID{filepath.ToSlash(dir), f.Name.Name}); !slices.Contains(shown[n], id) {
					shown[n] = append(shown[n], id)
				}
			}
		}
		return nil
	})
	require.NoError(t, err)
	for _, ids := range shown {
		slices.SortFunc(ids, func(a, b testID) int { return strings.Compare(a.dir+" "+a.name, b.dir+" "+b.name) })
	}
	return shown
}

// rowsOf lists the constant arguments of the calls of Shows in a test function.
func rowsOf(t *testing.T, f *ast.FuncDecl) (rows []int) {
	ast.Inspect(f, func(n ast.Node) bool {
		call, ok := n.(*ast.CallExpr)
		if !ok {
			return true
		}
		sel, ok := call.Fun.(*ast.SelectorExpr)
		if !ok || sel.Sel.Name != "Shows" {
			return true
		}
		if pkg, ok := sel.X.(*ast.Ident); !ok || pkg.Name != "checkpointrows" {
			return true
		}
		require.True(t, strings.HasPrefix(f.Name.Name, "Test"), "%s calls Shows and is not a test", f.Name.Name)
		for _, arg := range call.Args[1:] {
			lit, ok := arg.(*ast.BasicLit)
			require.True(t, ok, "%s: rows are given as constants", f.Name.Name)
			row, err := strconv.Atoi(lit.Value)
			require.NoError(t, err)
			rows = append(rows, row)
		}
		return true
	})
	return rows
}

// readReports gives for each row and test function how it ended, the worst of its subtests.
func readReports(t *testing.T, path string) map[string]string {
	data, err := os.ReadFile(path)
	require.NoError(t, err)
	worse := map[string]int{"passed": 0, "skipped": 1, "failed": 2}
	results := map[string]string{}
	for _, line := range strings.Split(strings.TrimSpace(string(data)), "\n") {
		var r checkpointrows.Report
		require.NoError(t, json.Unmarshal([]byte(line), &r))
		name, _, _ := strings.Cut(r.Test, "/")
		key := fmt.Sprint(r.Row, " ", name)
		if was, ok := results[key]; !ok || worse[r.Result] > worse[was] {
			results[key] = r.Result
		}
	}
	return results
}

func shownBy(ids []testID) string {
	if len(ids) == 0 {
		return "no test yet"
	}
	var out []string
	for _, id := range ids {
		out = append(out, fmt.Sprintf("`%s` %s", id.dir, id.name))
	}
	return strings.Join(out, ", ")
}

func rowsTable(shown map[int][]testID, results map[string]string) string {
	var b strings.Builder
	for i, row := range checkpointrows.Rows {
		how, result := row.Left, "left out"
		if row.Left == "" {
			how = shownBy(shown[i+1])
			ends := map[string]bool{}
			for _, id := range shown[i+1] {
				end := results[fmt.Sprint(i+1, " ", id.name)]
				if end == "" {
					end = "not run"
				}
				ends[end] = true
			}
			if result = strings.Join(slices.Sorted(maps.Keys(ends)), ", "); result == "" {
				result = "open"
			}
		}
		fmt.Fprintf(&b, "| R%d | %s | %s | %s |\n", i+1, row.Title, how, result)
	}
	return b.String()
}
