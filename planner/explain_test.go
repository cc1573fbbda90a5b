package planner_test

import (
	"encoding/json"
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/cockroachdb/datadriven"
	"github.com/stretchr/testify/require"

	"github.com/streamdb/streamdb/internal/pgerr"
	"github.com/streamdb/streamdb/planner"
	"github.com/streamdb/streamdb/planner/plan"
	"github.com/streamdb/streamdb/sql"
	"github.com/streamdb/streamdb/sql/expr"
)

func explainError(err error) string {
	e := pgerr.From(err)
	s := "ERROR " + string(e.Code) + ": " + e.Message
	if e.Detail != "" {
		s += "\nDETAIL: " + e.Detail
	}
	if e.Hint != "" {
		s += "\nHINT: " + e.Hint
	}
	return s + "\n"
}

// explainChange plans an INSERT, UPDATE or DELETE and prints the plan of its rows, RETURNING and ON CONFLICT.
func explainChange(t *testing.T, text string, o planner.Options) string {
	stmts, err := sql.Parse(text)
	require.NoError(t, err)
	var p *planner.PlannedChange
	switch s := stmts[0].(type) {
	case *sql.Insert:
		p, err = planner.PlanInsert(s, o)
	case *sql.Update:
		p, err = planner.PlanUpdate(s, o)
	case *sql.Delete:
		p, err = planner.PlanDelete(s, o)
	}
	if err != nil {
		return explainError(err)
	}
	out := planner.Explain(p.Plan, false)
	var names []string
	for _, c := range p.Plan.Schema {
		names = append(names, c.Name)
	}
	out = append(out, "Columns: "+strings.Join(names, ", "))
	var row []string
	for _, c := range p.Target.Columns {
		row = append(row, c.Name)
	}
	if p.Returning != nil {
		row := append([]string(nil), row...)
		for i := range p.Extra {
			row = append(row, names[len(names)-p.Extra+i])
		}
		var es []string
		for i, e := range p.Returning {
			es = append(es, expr.String(e, row)+" AS "+p.ReturningColumns[i].Name)
		}
		out = append(out, "Returning: "+strings.Join(es, ", "))
	}
	if c := p.OnConflict; c != nil {
		both := append([]string(nil), row...)
		for _, n := range row {
			both = append(both, "excluded."+n)
		}
		var es []string
		for _, e := range c.Set {
			es = append(es, expr.String(e, both))
		}
		out = append(out, fmt.Sprintf("On Conflict %v: nothing=%v set %s", arbitersOf(p), c.DoNothing, strings.Join(es, ", ")))
		if c.Where != nil {
			out = append(out, "Conflict Condition: "+expr.String(c.Where, both))
		}
	}
	return strings.Join(out, "\n") + "\n"
}

// TestExplain runs testdata/explain: "query" plans once, "stream" plans a job, "change" an INSERT, UPDATE or DELETE. Arguments: verbose, single, lookups, emit, droplate, ttl, off=(rules),
// costs, rows=(sizes of t, u, m, keyless, auction, bid), format.
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
			var sizes []int64
			d.MaybeScanArgs(t, "rows", &sizes)
			for i, name := range []string{"t", "u", "m", "keyless", "auction", "bid"} {
				o.Catalog.(*fakeCatalog).rels[name].Rows = 0
				if i < len(sizes) {
					o.Catalog.(*fakeCatalog).rels[name].Rows = sizes[i]
				}
			}
			if d.HasArg("lookups") {
				o.LookupJoinRows = 1
			}
			if d.HasArg("single") {
				o.Parallelism = 1
			}
			if d.Cmd == "change" {
				return explainChange(t, d.Input, o)
			}
			q := parseQuery(t, d.Input)
			var p *planner.Planned
			var err error
			switch d.Cmd {
			case "query":
				p, err = planner.PlanQuery(q, o)
			case "stream":
				o.EmitOnClose, o.DropLate = d.HasArg("emit"), d.HasArg("droplate")
				if d.HasArg("ttl") {
					o.StateTTL = 24 * 60 * 60 * 1_000_000
				}
				p, err = planner.PlanStream(q, o)
			default:
				t.Fatalf("unknown command %s", d.Cmd)
			}
			if err != nil {
				return explainError(err)
			}
			e := &planner.Explained{Plan: p.Plan, Verbose: d.HasArg("verbose")}
			if d.HasArg("costs") {
				e.Estimate(o.Registry, o.Catalog.(*fakeCatalog).byID)
			}
			format := "text"
			d.MaybeScanArgs(t, "format", &format)
			switch format {
			case "json":
				return e.JSON() + "\n"
			case "yaml":
				return e.YAML() + "\n"
			case "xml":
				return e.XML() + "\n"
			case "dot":
				return strings.Join(e.Dot(), "\n") + "\n"
			}
			return strings.Join(e.Text(), "\n") + "\n"
		})
	})
}

// TestStoredForm checks that the same text gives the same plan every time, and that plans survive being stored.
func TestStoredForm(t *testing.T) {
	o := newOptions(t)
	raw, err := os.ReadFile(resultsFile)
	require.NoError(t, err)
	for _, q := range strings.Split(string(raw), "\n") {
		if !strings.HasPrefix(q, "select ") && !strings.HasPrefix(q, "with ") {
			continue
		}
		for _, f := range []func(*sql.Query, planner.Options) (*planner.Planned, error){planner.PlanQuery, planner.PlanStream} {
			p, err := f(parseQuery(t, q), o)
			require.NoError(t, err, q)
			text, err := json.Marshal(p.Plan)
			require.NoError(t, err)
			for range 3 {
				again, err := f(parseQuery(t, q), o)
				require.NoError(t, err)
				other, err := json.Marshal(again.Plan)
				require.NoError(t, err)
				require.Equal(t, string(text), string(other), q)
			}
			var back plan.Plan
			require.NoError(t, json.Unmarshal(text, &back))
			require.Equal(t, planner.Explain(p.Plan, true), planner.Explain(&back, true), q)
			stored, err := json.Marshal(&back)
			require.NoError(t, err)
			require.Equal(t, string(text), string(stored))
		}
	}
}

func BenchmarkPlan(b *testing.B) {
	o := newOptions(b)
	for name, text := range map[string]string{
		"point":  "select * from t where id = $1",
		"values": "select * from (values (1, 'a')" + strings.Repeat(", (2, 'b')", 10_000) + ") v",
		"in":     "select * from t where id in (1" + strings.Repeat(", 2", 10_000) + ")",
		"or":     "select * from t where id = 1" + strings.Repeat(" or id = 2", 2_000),
		"join":   "select t.k, count(*), sum(u.x) from t join u on t.id = u.tid where u.x > 3 group by t.k order by 2 desc limit 3",
	} {
		q := parseQuery(b, text)
		b.Run(name, func(b *testing.B) {
			for b.Loop() {
				if _, err := planner.PlanQuery(q, o); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}

// arbitersOf names what ON CONFLICT watches.
func arbitersOf(p *planner.PlannedChange) []string {
	var out []string
	if p.OnConflict.Key {
		for _, k := range p.Target.Key {
			out = append(out, p.Target.Columns[k].Name)
		}
	}
	for _, x := range p.Target.Indexes {
		if slices.Contains(p.OnConflict.Arbiters, x.ID) {
			out = append(out, x.Name)
		}
	}
	return out
}
