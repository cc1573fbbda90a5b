package planner_test

import (
	"os"
	"strings"
	"testing"
	"time"

	"github.com/streamdb/streamdb/internal/pgerr"
	"github.com/streamdb/streamdb/planner"
	"github.com/streamdb/streamdb/sql"
)

// Limits that a statement of the fuzzer must keep to.
const (
	fuzzTextLimit = 4 << 10          // bytes of a statement; longer ones add time, not paths
	fuzzPlanLimit = 10 * time.Second // folding constants included
)

// FuzzBind holds two rules for whatever the parser accepts: planning ends, and it ends in a plan or in an error with a code that is placed inside
// the statement.
func FuzzBind(f *testing.F) {
	for _, name := range []string{"testdata/oracle.txt", resultsFile, "../sql/testdata/roundtrip.sql", "../sql/testdata/statements.sql"} {
		raw, err := os.ReadFile(name)
		if err != nil {
			f.Fatal(err)
		}
		for line := range strings.Lines(string(raw)) {
			if line = strings.TrimSpace(line); line != "" && line[0] != '#' && line[0] != '=' {
				f.Add(line)
			}
		}
	}
	base := newOptions(f)
	f.Fuzz(func(t *testing.T, text string) {
		if len(text) > fuzzTextLimit {
			return
		}
		stmts, err := sql.Parse(text)
		if err != nil {
			return
		}
		begin := time.Now()
		for _, st := range stmts {
			var errs []error
			switch st := st.(type) {
			case *sql.Query:
				_, once := planner.PlanQuery(st, base)
				_, job := planner.PlanStream(st, base)
				errs = append(errs, once, job)
			case *sql.Insert:
				_, err := planner.PlanInsert(st, base)
				errs = append(errs, err)
			case *sql.Update:
				_, err := planner.PlanUpdate(st, base)
				errs = append(errs, err)
			case *sql.Delete:
				_, err := planner.PlanDelete(st, base)
				errs = append(errs, err)
			}
			for _, err := range errs {
				if err == nil {
					continue
				}
				if e := pgerr.From(err); e.Code == pgerr.InternalError || e.Pos > len(text) {
					t.Fatalf("%q: %s %v at %d\n%s", text, e.Code, e, e.Pos, e.Detail)
				}
			}
		}
		if d := time.Since(begin); d > fuzzPlanLimit {
			t.Fatalf("%q: planned in %s", text, d)
		}
	})
}
