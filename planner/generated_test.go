package planner_test

import (
	"context"
	"flag"
	"fmt"
	"math/rand/v2"
	"os"
	"sort"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"

	"github.com/streamdb/streamdb/planner"
)

// querySource generates queries over t, u and keyless whose answer does not depend on the order of rows.
type querySource struct {
	r     *rand.Rand
	depth int
	n     int
}

// relation returns a FROM item under a fresh alias and its integer columns.
func (g *querySource) relation() (text string, cols []string) {
	g.n++
	a := fmt.Sprintf("a%d", g.n)
	switch g.r.IntN(5) {
	case 0, 1:
		return "t " + a, []string{a + ".id", a + ".v"}
	case 2, 3:
		return "u " + a, []string{a + ".tid", a + ".x"}
	}
	return "keyless " + a, []string{a + ".a"}
}

func (g *querySource) pick(cols []string) string { return cols[g.r.IntN(len(cols))] }

// cond returns a condition over cols; outer are columns of surrounding queries.
func (g *querySource) cond(cols, outer []string) string {
	ops := []string{"=", "<>", "<", ">="}
	all := append(append([]string(nil), cols...), outer...)
	switch k := g.r.IntN(12); {
	case k < 4:
		return g.pick(cols) + " " + ops[g.r.IntN(4)] + " " + g.pick(all)
	case k == 4:
		return fmt.Sprintf("%s > %d", g.pick(cols), g.r.IntN(20))
	case k == 5:
		return g.pick(cols) + " is not distinct from " + g.pick(all)
	case k == 6:
		return "(" + g.cond(cols, outer) + " or " + g.cond(cols, outer) + ")"
	case k == 7 && g.depth < 3:
		return []string{"", "not "}[g.r.IntN(2)] + "exists (" + g.query(all, false) + ")"
	case k == 8 && g.depth < 3:
		return g.pick(all) + []string{" in (", " not in ("}[g.r.IntN(2)] + g.query(all, true) + ")"
	case k == 9 && g.depth < 3:
		return g.pick(all) + " " + ops[g.r.IntN(4)] + []string{" any (", " all ("}[g.r.IntN(2)] + g.query(all, true) + ")"
	case k == 10 && g.depth < 3:
		return g.pick(all) + " " + ops[g.r.IntN(4)] + " " + g.scalar(all)
	}
	return g.pick(cols) + " is not null"
}

func (g *querySource) from(outer []string) (string, []string) {
	text, cols := g.relation()
	for g.r.IntN(3) == 0 && g.depth < 3 {
		join := []string{" join ", " left join ", " full join ", " right join "}[g.r.IntN(4)]
		if g.r.IntN(5) == 0 {
			g.n++
			a := fmt.Sprintf("l%d", g.n)
			g.depth++
			sub := g.scalarQuery(append(append([]string(nil), cols...), outer...))
			g.depth--
			text += []string{" cross join lateral (", " left join lateral ("}[0] + sub + ") " + a + "(z)"
			cols = append(cols, a+".z")
			continue
		}
		r, rc := g.relation()
		on := g.pick(cols) + " = " + g.pick(rc)
		if join != " full join " && g.r.IntN(2) == 0 {
			on += " and " + g.pick(rc) + " <> " + g.pick(cols)
		}
		text += join + r + " on " + on
		cols = append(cols, rc...)
	}
	return text, cols
}

// scalarQuery yields exactly one row.
func (g *querySource) scalarQuery(outer []string) string {
	from, cols := g.from(outer)
	agg := []string{"count(*)", "sum(%s)", "max(%s)", "count(%s)", "min(%s) + 1", "coalesce(sum(%s), 7)", "count(distinct %s)"}[g.r.IntN(7)]
	if strings.Contains(agg, "%") {
		agg = fmt.Sprintf(agg, g.pick(cols))
	}
	s := "select " + agg + " from " + from
	for g.r.IntN(3) > 0 {
		s += []string{" where ", " and "}[min(strings.Count(s, " where ")-strings.Count(from, " where "), 1)] + g.cond(cols, outer)
		if g.r.IntN(2) == 0 {
			break
		}
	}
	return s
}

func (g *querySource) scalar(outer []string) string {
	g.depth++
	defer func() { g.depth-- }()
	return "(" + g.scalarQuery(outer) + ")"
}

// query yields rows; single asks for one column.
func (g *querySource) query(outer []string, single bool) string {
	g.depth++
	defer func() { g.depth-- }()
	from, cols := g.from(outer)
	where := ""
	if g.r.IntN(4) > 0 {
		where = " where " + g.cond(cols, outer)
		if g.r.IntN(2) == 0 {
			where += " and " + g.cond(cols, outer)
		}
	}
	c := g.pick(cols)
	switch k := g.r.IntN(9); {
	case k == 0:
		return "select distinct " + c + " from " + from + where
	case k == 1 && single:
		return "select " + c + " from " + from + where + " group by " + c + " having count(*) > 1"
	case k == 1:
		return "select " + c + ", count(*), max(" + g.pick(cols) + ") from " + from + where + " group by " + c
	case k == 2 && g.depth < 3:
		op := []string{" union ", " union all ", " except ", " intersect ", " except all ", " intersect all "}[g.r.IntN(6)]
		return "(select " + c + " from " + from + where + ")" + op + "(" + g.query(outer, true) + ")"
	case k == 3 && single:
		return "select " + c + " from " + from + where + " order by " + c + " limit 1"
	case single:
		return "select " + c + " from " + from + where
	case k == 4 && g.depth < 3:
		return "select " + c + ", " + g.scalar(append(append([]string(nil), cols...), outer...)) + " from " + from + where
	case k == 5 && g.depth < 3:
		return "select " + c + ", " + g.cond(cols, outer) + " from " + from + where
	case k == 6:
		return "select " + c + ", rank() over (partition by " + g.pick(cols) + " order by " + c + ") from " + from + where
	}
	return "select " + strings.Join(cols, ", ") + " from " + from + where
}

var fuzz = flag.Int("fuzz-plans", 0, "generated queries to compare with the server given by -record")

// TestGenerated plans generated queries and compares their answers with a PostgreSQL server: -record URL -fuzz-plans N.
func TestGenerated(t *testing.T) {
	if *record == "" || *fuzz == 0 {
		t.Skip("needs a PostgreSQL server: -record URL -fuzz-plans N")
	}
	ctx := context.Background()
	conn, err := pgx.Connect(ctx, *record)
	require.NoError(t, err)
	defer conn.Close(ctx)
	_, err = conn.PgConn().Exec(ctx, oracleDDL).ReadAll()
	require.NoError(t, err)
	raw, err := os.ReadFile(resultsFile)
	require.NoError(t, err)
	lines := strings.Split(string(raw), "\n")
	for _, l := range lines {
		if strings.HasPrefix(l, "insert ") {
			_, err = conn.PgConn().Exec(ctx, l).ReadAll()
			require.NoError(t, err)
		}
	}
	o := newOptions(t)
	in := &interpreter{t: t, reg: o.Registry, data: loadData(t, o.Catalog.(*fakeCatalog), lines)}
	for seed := range *fuzz {
		g := &querySource{r: rand.New(rand.NewPCG(uint64(seed), 7))}
		q := g.query(nil, false)
		res, err := conn.PgConn().Exec(ctx, q).ReadAll()
		if err != nil {
			// Full joins on conditions PostgreSQL cannot hash, and the like.
			continue
		}
		var rows []string
		for _, r := range res[0].Rows {
			var vs []string
			for _, v := range r {
				if v == nil {
					vs = append(vs, "NULL")
				} else {
					vs = append(vs, string(v))
				}
			}
			rows = append(rows, strings.Join(vs, ","))
		}
		sort.Strings(rows)
		t.Run(fmt.Sprint(seed), func(t *testing.T) {
			in.t = t
			for _, plan := range []func() (*planner.Planned, error){
				func() (*planner.Planned, error) { return planner.PlanQuery(parseQuery(t, q), o) },
				func() (*planner.Planned, error) { return planner.PlanStream(parseQuery(t, q), o) },
			} {
				p, err := plan()
				require.NoError(t, err, q)
				require.Equal(t, strings.Join(rows, " ; "), in.result(p, false), q+"\n"+strings.Join(planner.Explain(p.Plan, true), "\n"))
				if len(p.Plan.Key) > 0 {
					in.uniqueKeys(p)
				}
			}
		})
	}
}
