package planner_test

import (
	"fmt"
	"math/rand/v2"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/streamdb/streamdb/planner"
	"github.com/streamdb/streamdb/sql"
)

// TestInferredPredicates compares random joins of all kinds, with comparisons of their keys anywhere, with what they are without the rule: the same rows.
func TestInferredPredicates(t *testing.T) {
	raw, err := os.ReadFile(resultsFile)
	require.NoError(t, err)
	o := newOptions(t)
	in := &interpreter{t: t, reg: o.Registry, data: loadData(t, o.Catalog.(*fakeCatalog), strings.Split(string(raw), "\n"))}
	rng := rand.New(rand.NewPCG(2, 2))
	cols := map[string][]string{"t": {"id", "v"}, "u": {"id", "tid", "x"}, "keyless": {"a", "a"}}
	joins := []string{"join", "left join", "right join", "full join"}
	fired := map[string]int{}
	for range 600 {
		var names []string
		column := func() string {
			name := names[rng.IntN(len(names))]
			c := cols[strings.TrimRight(name, "0123456789")]
			return name + "." + c[rng.IntN(len(c))]
		}
		compare := func() string {
			op := []string{"=", "=", "<", "<=", ">", ">="}[rng.IntN(6)]
			switch rng.IntN(8) {
			case 0:
				return fmt.Sprintf("%s in (%d, %d)", column(), rng.IntN(9), rng.IntN(9))
			case 1:
				return fmt.Sprintf("%d %s %s", rng.IntN(9), op, column())
			case 2:
				return column() + " is null"
			}
			return fmt.Sprintf("%s %s %d", column(), op, rng.IntN(9))
		}
		table := func(i int) string {
			of := []string{"t", "u", "keyless"}[rng.IntN(3)]
			name := fmt.Sprint(of, i)
			names = append(names, name)
			if rng.IntN(4) == 0 {
				return fmt.Sprintf("(select * from %s where %s < 12) %s", of, cols[of][0], name)
			}
			return of + " " + name
		}
		from := table(0)
		kind := joins[rng.IntN(len(joins))]
		for i := range 1 + rng.IntN(2) {
			left := column()
			item := table(i + 1)
			last := names[len(names)-1] + "." + cols[strings.TrimRight(names[len(names)-1], "0123456789")][rng.IntN(2)]
			from += fmt.Sprintf(" %s %s on %s = %s", joins[rng.IntN(len(joins))], item, left, last)
			if rng.IntN(3) == 0 {
				from += " and " + compare()
			}
		}
		where := []string{compare()}
		if rng.IntN(3) == 0 {
			where = append(where, fmt.Sprintf("%sexists (select from u z where z.tid = %s and z.x < 9)", []string{"", "not "}[rng.IntN(2)], column()))
		}
		list := strings.Join(names, ".*, ") + ".*"
		if rng.IntN(4) == 0 { // the merged column of a join
			from, list = fmt.Sprintf("t a %s (select id, x from u) b using (id)", kind), "*"
			where = []string{fmt.Sprintf("id %s %d", []string{"=", "<", ">"}[rng.IntN(3)], rng.IntN(9))}
		}
		q := "select " + list + " from " + from + " where " + strings.Join(where, " and ")
		for _, f := range []func(*sql.Query, planner.Options) (*planner.Planned, error){planner.PlanQuery, planner.PlanStream} {
			o.DisabledRules = map[string]bool{"infer_predicates": true}
			was, err := f(parseQuery(t, q), o)
			require.NoError(t, err, q)
			o.DisabledRules = nil
			is, err := f(parseQuery(t, q), o)
			require.NoError(t, err, q)
			if !slices.Contains(is.Plan.Rules, "infer_predicates") {
				continue
			}
			for _, j := range joins[1:] {
				if strings.Contains(q, j) {
					fired[j]++
				}
			}
			fired["join"]++
			plans := q + "\n" + strings.Join(planner.Explain(was.Plan, true), "\n") + "\n" + strings.Join(planner.Explain(is.Plan, true), "\n")
			require.Equal(t, in.result(was, false), in.result(is, false), plans)
		}
	}
	for _, j := range joins {
		require.Greater(t, fired[j], 50, j)
	}
}
