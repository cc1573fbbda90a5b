package planner_test

import (
	"encoding/json"
	"flag"
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/cockroachdb/datadriven"
	"github.com/stretchr/testify/require"

	"github.com/streamdb/streamdb/internal/checkpointrows"
	"github.com/streamdb/streamdb/planner"
)

var updateIDs = flag.Bool("ids.update", false, "write testdata/ids.txt anew")

// The ids of operators, by which states are found, follow from the text of a query: they are the same whenever it is planned, by this version and by later ones. A change
// of testdata/ids.txt is one of what views that are made again can take over.
func TestOperatorIDs(t *testing.T) {
	checkpointrows.Shows(t, 111)
	const golden = "testdata/ids.txt"
	var texts []string
	datadriven.Walk(t, "testdata/explain", func(t *testing.T, path string) {
		datadriven.RunTest(t, path, func(_ *testing.T, d *datadriven.TestData) string {
			if d.Cmd == "stream" {
				texts = append(texts, d.Input)
			}
			return d.Expected
		})
	})
	raw, err := os.ReadFile(resultsFile)
	require.NoError(t, err)
	for line := range strings.SplitSeq(string(raw), "\n") {
		if strings.HasPrefix(line, "select ") || strings.HasPrefix(line, "with ") {
			texts = append(texts, line)
		}
	}
	require.Greater(t, len(texts), 200)
	var out strings.Builder
	seen := map[string]bool{}
	for _, text := range texts {
		text = strings.Join(strings.Fields(text), " ")
		if seen[text] {
			continue
		}
		seen[text] = true
		ids := func() (string, bool) {
			p, err := planner.PlanStream(parseQuery(t, text), newOptions(t))
			if err != nil {
				return "", false // a query that is refused
			}
			data, err := json.Marshal(p.Plan)
			require.NoError(t, err)
			var doc any
			require.NoError(t, json.Unmarshal(data, &doc))
			list := operatorIDs(doc, nil)
			slices.Sort(list)
			for i := 1; i < len(list); i++ {
				require.NotEqual(t, list[i-1][:4], list[i][:4], "two operators with one id: %s", text)
			}
			var b strings.Builder
			for _, s := range list {
				fmt.Fprintf(&b, " %s", strings.TrimLeft(s, " "))
			}
			return b.String(), true
		}
		first, ok := ids()
		if !ok {
			continue
		}
		second, _ := ids()
		require.Equal(t, first, second, text)
		fmt.Fprintf(&out, "%s\n %s\n", text, first)
	}
	if *updateIDs {
		require.NoError(t, os.WriteFile(golden, []byte(out.String()), 0o600))
	}
	want, err := os.ReadFile(golden)
	require.NoError(t, err)
	require.Equal(t, string(want), out.String(), "go test ./planner -run TestOperatorIDs -ids.update")
}

// operatorIDs collects the operators of a plan's stored form, those of plans within it apart from the plan's own.
func operatorIDs(doc any, out []string) []string {
	switch v := doc.(type) {
	case []any:
		for _, e := range v {
			out = operatorIDs(e, out)
		}
	case map[string]any:
		id, numbered := v["id"].(float64)
		kind, operator := v["kind"].(string)
		if numbered && operator {
			out = append(out, fmt.Sprintf("%4d:%s", int(id), kind))
		}
		for k, e := range v {
			if k == "fragments" || k == "root" || k == "inputs" {
				out = operatorIDs(e, out)
			}
		}
	}
	return out
}
