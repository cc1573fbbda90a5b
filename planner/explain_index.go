package planner

import (
	"strconv"
	"strings"

	"github.com/streamdb/streamdb/planner/plan"
	"github.com/streamdb/streamdb/sql/expr"
)

func indexTitle(s *plan.Scan, on string) string {
	title := "Index Scan"
	if s.Index.Backward {
		title += " Backward"
	}
	return title + " using " + s.Index.Name + " on " + on
}

// indexLines shows what an index scan reads: values of the first keys, then the range of the next.
func indexLines(x *plan.IndexScan) []string {
	var parts []string
	for i, vals := range x.Equal {
		text := exprList(vals, nil)
		if _, array := vals[0].Type.Elem(); len(vals) > 1 || array {
			text = "any of " + text
		}
		parts = append(parts, keyName(i)+" = "+text)
	}
	next := keyName(len(x.Equal))
	bound := func(b *plan.IndexBound, op string) {
		if b == nil {
			return
		}
		if b.Inclusive {
			op += "="
		}
		parts = append(parts, next+" "+op+" "+expr.String(b.Value, nil))
	}
	bound(x.Low, ">")
	bound(x.High, "<")
	var out []string
	if len(parts) > 0 {
		out = append(out, "Index Condition: "+strings.Join(parts, " and "))
	}
	if x.Ordered {
		out = append(out, "In order of the index")
	}
	return out
}

// probeLine shows how else a scan can be read; "" when in no other way.
func probeLine(s *plan.Scan) string {
	if s.Probe == nil {
		return ""
	}
	return "By keys of the join, using " + s.Probe.Name + ", when they are few"
}

// lookupBy shows what rows of a relation are read by for a join.
func lookupBy(s *plan.Scan) string {
	if s.Lookup == nil {
		return "Key"
	}
	return "Index " + s.Lookup.Name
}

func keyName(i int) string { return "key " + strconv.Itoa(i+1) }
