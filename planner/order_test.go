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
	"github.com/streamdb/streamdb/planner/plan"
)

// chainQuery makes a query over a random chain of joins that selects all columns.
func chainQuery(rng *rand.Rand) string {
	cols := map[string][]string{"t": {"id", "v"}, "u": {"id", "tid", "x"}, "keyless": {"a", "_row_id"}}
	tables := []string{"t", "u", "keyless"}
	var names, list, where []string
	from := ""
	any := func(upTo int) string {
		name := names[rng.IntN(upTo)]
		c := cols[strings.TrimRight(name, "0123456789")]
		return name + "." + c[rng.IntN(len(c))]
	}
	for i := range 3 + rng.IntN(3) {
		table := tables[rng.IntN(3)]
		name := fmt.Sprint(table, i)
		names = append(names, name)
		for _, c := range cols[table] {
			list = append(list, name+"."+c)
		}
		item := table + " " + name
		if rng.IntN(6) == 0 {
			item = fmt.Sprintf("(select %s from %s where %s < 15) %s", strings.Join(cols[table], ", "), table, cols[table][0], name)
		}
		if i == 0 {
			from = item
			continue
		}
		last := name + "." + cols[table][rng.IntN(len(cols[table]))]
		cond := last + " = " + any(i)
		switch rng.IntN(8) {
		case 0:
			cond += " and " + any(i+1) + " = " + last
		case 1:
			cond = last + " < " + any(i)
		case 2:
			cond += " and " + last + " + " + any(i) + " > 3"
		}
		switch rng.IntN(6) {
		case 0:
			from += " left join " + item + " on " + cond
		case 1, 2:
			from += " cross join " + item
			if rng.IntN(5) > 0 {
				where = append(where, cond)
			}
		default:
			from += " join " + item + " on " + cond
		}
	}
	if rng.IntN(2) == 0 {
		where = append(where, any(len(names))+" = "+fmt.Sprint(rng.IntN(20)))
	}
	q := "select " + strings.Join(list, ", ") + " from " + from
	if len(where) > 0 {
		q += " where " + strings.Join(where, " and ")
	}
	return q
}

// TestReorderJoins compares random chains of joins, over relations of random sizes as far as the planner knows, with what they are without the rule: the same rows,
// and the same stream key, which breaks ties.
func TestReorderJoins(t *testing.T) {
	raw, err := os.ReadFile(resultsFile)
	require.NoError(t, err)
	o := newOptions(t)
	c := o.Catalog.(*fakeCatalog)
	in := &interpreter{t: t, reg: o.Registry, data: loadData(t, c, strings.Split(string(raw), "\n"))}
	rng := rand.New(rand.NewPCG(1, 1))
	fired := 0
	for range 300 {
		for _, name := range []string{"t", "u", "keyless"} {
			c.rels[name].Rows = []int64{0, 1, 50, 3000, 1_000_000}[rng.IntN(5)]
		}
		q := chainQuery(rng)
		for i, f := range []func(string) (*planner.Planned, error){
			func(q string) (*planner.Planned, error) { return planner.PlanQuery(parseQuery(t, q), o) },
			func(q string) (*planner.Planned, error) { return planner.PlanStream(parseQuery(t, q), o) },
		} {
			o.DisabledRules = map[string]bool{"reorder_joins": true}
			was, err := f(q)
			require.NoError(t, err, q)
			o.DisabledRules = nil
			is, err := f(q)
			require.NoError(t, err, q)
			if !slices.Contains(is.Plan.Rules, "reorder_joins") {
				continue
			}
			fired++
			plans := q + "\n" + strings.Join(planner.Explain(was.Plan, true), "\n") + "\n" + strings.Join(planner.Explain(is.Plan, true), "\n")
			require.Equal(t, in.result(was, false), in.result(is, false), plans)
			require.Equal(t, was.Plan.Key, is.Plan.Key, plans)
			require.Equal(t, was.Columns, is.Columns)
			if i == 1 { // nobody reads the key of a query
				in.uniqueKeys(is)
			}
		}
	}
	require.Greater(t, fired, 100)
}

// joinShape writes the joins of a plan with parentheses.
func joinShape(n *plan.Node) string {
	if n.Kind == plan.KindJoin {
		return "(" + joinShape(n.Inputs[0]) + " " + joinShape(n.Inputs[1]) + ")"
	}
	if n.Kind == plan.KindScan {
		return n.Scan.Name
	}
	return joinShape(n.Inputs[0])
}

func TestReorderJoinsBySize(t *testing.T) {
	c := &fakeCatalog{rels: map[string]*planner.Relation{}}
	for _, line := range []string{
		"table facts(id int8 pk, a int8, b int8)", "table small(id int8 pk, name text)", "table large(id int8 pk, small int8, k text)", "table other(id int8 pk, k text)", "table none(id int8 pk, large int8)",
	} {
		c.define(t, line)
	}
	for name, rows := range map[string]int64{"facts": 1_000_000, "small": 20, "large": 50_000, "other": 30} {
		c.rels[name].Rows = rows
	}
	o := newOptions(t)
	o.Catalog = c
	for _, x := range []struct{ query, want, off string }{
		// no cross product where conditions connect
		{"select * from facts f, small s, large l where l.id = f.b and s.id = l.small", "(facts (small large))", "((facts small) large)"},
		// a filter makes a relation small
		{"select * from facts f join large l on f.a = l.id join small s on l.small = s.id where s.name = 'x'", "(facts (large small))", "((facts large) small)"},
		// so does a value of the key
		{"select * from facts f join large l on f.a = l.id join small s on f.b = s.id where s.id = 3", "((facts small) large)", "((facts large) small)"},
		// outer joins stay where they are
		{"select * from facts f left join large l on f.a = l.id join small s on f.b = s.id where s.id = 3", "((facts large) small)", "((facts large) small)"},
		{"select * from (facts f join large l on f.a = l.id join small s on l.small = s.id) left join other o on o.id = f.id where s.name = 'x'", "((facts (large small)) other)", "(((facts large) small) other)"},
		// a condition on three relations connects no two of them
		{"select * from facts f, small s, large l where f.a + s.id = l.id", "((facts small) large)", "((facts small) large)"},
		// nothing to gain
		{"select * from facts f join small s on f.a = s.id join other o on f.b = o.id", "((facts small) other)", "((facts small) other)"},
		// relations without rows tell nothing
		{"select * from none n join none m on n.large = m.id join small s on m.large = s.id", "((none none) small)", "((none none) small)"},
	} {
		for _, off := range []bool{false, true} {
			o.DisabledRules, x.want = map[string]bool{"reorder_joins": off, "infer_predicates": true}, map[bool]string{false: x.want, true: x.off}[off]
			p, err := planner.PlanQuery(parseQuery(t, x.query), o)
			require.NoError(t, err)
			require.Equal(t, x.want, joinShape(p.Plan.Fragments[0].Root), x.query)
			require.Equal(t, x.want != x.off, slices.Contains(p.Plan.Rules, "reorder_joins"))
		}
	}
}

// TestReorderJoinsLeavesStreams: joins of streams forget rows by their watermarks, which go through some joins only.
func TestReorderJoinsLeavesStreams(t *testing.T) {
	o := newOptions(t)
	o.Catalog.(*fakeCatalog).rels["t"].Rows = 10
	for query, fires := range map[string]bool{
		"select a.price from bid a join bid b on a.auction = b.auction and b.date_time between a.date_time and a.date_time + interval '1 minute' join t on t.id = b.bidder where t.v = 1": false,
		"select a.price from bid a join u on a.auction = u.id join t on t.id = u.tid where t.v = 1":                                                                                       true,
	} {
		p, err := planner.PlanStream(parseQuery(t, query), o)
		require.NoError(t, err)
		require.Equal(t, fires, slices.Contains(p.Plan.Rules, "reorder_joins"), query)
	}
}
