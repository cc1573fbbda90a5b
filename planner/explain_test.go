package planner_test

import (
	"strings"
	"testing"

	"github.com/cockroachdb/datadriven"

	"github.com/streamdb/streamdb/internal/pgerr"
	"github.com/streamdb/streamdb/planner"
)

// TestExplain runs testdata/*.dd: "query" plans once, "stream" plans a job. Arguments: verbose, single, emit, off=(rules).
func TestExplain(t *testing.T) {
	base := newOptions(t)
	datadriven.Walk(t, "testdata/explain", func(t *testing.T, path string) {
		datadriven.RunTest(t, path, func(t *testing.T, d *datadriven.TestData) string {
			o := base
			var off []string
			d.MaybeScanArgs(t, "off", &off)
			o.DisabledRules = map[string]bool{}
			for _, r := range off {
				o.DisabledRules[r] = true
			}
			if d.HasArg("single") {
				o.Parallelism = 1
			}
			q := parseQuery(t, d.Input)
			var p *planner.Planned
			var err error
			switch d.Cmd {
			case "query":
				p, err = planner.PlanQuery(q, o)
			case "stream":
				o.EmitOnClose = d.HasArg("emit")
				p, err = planner.PlanStream(q, o)
			default:
				t.Fatalf("unknown command %s", d.Cmd)
			}
			if err != nil {
				e := pgerr.From(err)
				s := "ERROR " + string(e.Code) + ": " + e.Message
				if e.Hint != "" {
					s += "\nHINT: " + e.Hint
				}
				return s + "\n"
			}
			return strings.Join(planner.Explain(p.Plan, d.HasArg("verbose")), "\n") + "\n"
		})
	})
}
