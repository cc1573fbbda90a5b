// Package checkpointrows numbers what the checkpoint system promises, and lets tests say which of it they show. docs/checkpoint-rows.md is made of
// both: make checkpoint-rows runs the tests and writes what they have reported.
package checkpointrows

import (
	"encoding/json"
	"os"
	"testing"
)

// File names the variable of the environment with the file that tests append their reports to; unset: they report nothing.
const File = "STREAMDB_CHECKPOINT_ROWS"

// Report is that one test shows one row, and how it ended.
type Report struct {
	Row    int    `json:"row"`
	Test   string `json:"test"`
	Result string `json:"result"`
}

// Shows declares that the running test shows the rows with the given numbers (1 to len(Rows)): it fails when one of them does not hold. Called at the beginning
// of a test, with constants, so that the page can also be checked without running anything.
func Shows(t testing.TB, rows ...int) {
	t.Helper()
	for _, n := range rows {
		if n < 1 || n > len(Rows) {
			t.Fatalf("there is no row %d", n)
		}
	}
	path := os.Getenv(File)
	if path == "" {
		return
	}
	t.Cleanup(func() {
		result := "passed"
		switch {
		case t.Failed():
			result = "failed"
		case t.Skipped():
			result = "skipped"
		}
		var lines []byte
		for _, n := range rows {
			line, err := json.Marshal(Report{Row: n, Test: t.Name(), Result: result})
			if err != nil {
				t.Errorf("report row %d: %v", n, err)
				return
			}
			lines = append(append(lines, line...), '\n')
		}
		f, err := os.OpenFile(path, os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o644) //nolint:gosec // named by who runs the tests
		if err != nil {
			t.Errorf("report rows: %v", err)
			return
		}
		defer f.Close()
		if _, err := f.Write(lines); err != nil { // one write: packages run beside each other
			t.Errorf("report rows: %v", err)
		}
	})
}
