package sql

import (
	"testing"

	"github.com/streamdb/streamdb/internal/pgerr"
	"github.com/streamdb/streamdb/sql/pgext"
	"github.com/streamdb/streamdb/sql/sqlprint"
)

// FuzzParse holds three rules for any text: no panic, every error coded and placed inside the text, and what the translator accepts
// TiDB's parser accepts too and the views can read.
func FuzzParse(f *testing.F) {
	for _, name := range []string{"roundtrip.sql", "statements.sql"} {
		for _, s := range lines(f, name) {
			f.Add(s)
		}
	}
	f.Fuzz(func(t *testing.T, text string) {
		stmts, err := Parse(text)
		if err != nil {
			e := pgerr.From(err)
			if e.Code == pgerr.InternalError {
				t.Fatalf("%q: %v %s", text, e, e.Detail)
			}
			if e.Pos > len(text) {
				t.Fatalf("%q: position %d", text, e.Pos)
			}
			return
		}
		for _, st := range stmts {
			if q, ok := st.(*Query); ok && len(q.Changes) == 0 {
				printed := sqlprint.Query(pgext.QueryOf(q.Stmt))
				// Printing adds parentheses, and with them depth.
				if _, err := Parse(printed); err != nil && pgerr.CodeOf(err) != pgerr.StatementTooComplex {
					t.Fatalf("%q prints as %q: %v", text, printed, err)
				}
			}
		}
	})
}

func BenchmarkParse(b *testing.B) {
	var texts []string
	n := 0
	for _, s := range lines(b, "roundtrip.sql") {
		texts = append(texts, s)
		n += len(s)
	}
	b.SetBytes(int64(n))
	b.ReportAllocs()
	for b.Loop() {
		for _, s := range texts {
			if _, err := Parse(s); err != nil {
				b.Fatal(err)
			}
		}
	}
	b.ReportMetric(float64(len(texts)), "statements/op")
}
