package planner_test

import (
	"context"
	"fmt"
	"os"
	"sort"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"

	"github.com/streamdb/streamdb/planner"
	"github.com/streamdb/streamdb/planner/plan"
	"github.com/streamdb/streamdb/sql/expr"
	"github.com/streamdb/streamdb/sql/functions"
	"github.com/streamdb/streamdb/types"
)

const resultsFile = "testdata/results.txt"

// TestResults runs plans over small relations with a naive interpreter, one-shot and as jobs over all relations at once, and compares
// the rows with PostgreSQL's. It checks what the rules must not change: joins, subqueries, set operations, grouping.
func TestResults(t *testing.T) {
	raw, err := os.ReadFile(resultsFile)
	require.NoError(t, err)
	lines := strings.Split(strings.TrimRight(string(raw), "\n"), "\n")
	if *record != "" {
		recordResults(t, lines)
		return
	}
	o := newOptions(t)
	in := &interpreter{t: t, reg: o.Registry, data: loadData(t, o.Catalog.(*fakeCatalog), lines)}
	variants := map[string]map[string]bool{
		"rules": {},
		"plain": {"unnest_filters": true, "push_down_predicates": true, "merge_projects": true, "prune_columns": true, "simplify_outer_joins": true, "extract_join_keys": true, "point_reads": true, "fold_constants": true},
	}
	for i := 0; i+1 < len(lines); i++ {
		q := lines[i]
		if !strings.HasPrefix(lines[i+1], "= ") || strings.HasPrefix(q, "insert ") {
			continue
		}
		want := lines[i+1][2:]
		for name, off := range variants {
			t.Run(name+"/"+q, func(t *testing.T) {
				in.t = t
				o.DisabledRules = off
				p, err := planner.PlanQuery(parseQuery(t, q), o)
				require.NoError(t, err)
				require.Equal(t, want, in.result(p, topOrdered(q)), strings.Join(planner.Explain(p.Plan, true), "\n"))
				s, err := planner.PlanStream(parseQuery(t, q), o)
				require.NoError(t, err)
				sorted := strings.Split(want, " ; ")
				sort.Strings(sorted)
				require.Equal(t, strings.Join(sorted, " ; "), in.result(s, false), strings.Join(planner.Explain(s.Plan, true), "\n"))
				in.uniqueKeys(s)
			})
		}
	}
}

// topOrdered reports whether the statement's own result is ordered, as opposed to that of a part of it.
func topOrdered(q string) bool {
	return strings.LastIndex(q, "order by") > strings.LastIndexByte(q, ')')
}

// subtasks is the parallelism at which jobs are interpreted.
const subtasks = 3

type row []types.Datum

type interpreter struct {
	t     testing.TB
	reg   *functions.Registry
	data  map[uint64][]row
	frags map[int][]row
	// sub is the subtask being run, of par.
	sub, par int
}

func (in *interpreter) result(p *planner.Planned, ordered bool) string {
	var out []string
	for _, r := range in.rows(p) {
		var vs []string
		for _, d := range r[:p.Plan.Visible] {
			if d.Null {
				vs = append(vs, "NULL")
			} else {
				vs = append(vs, string(d.AppendText(nil, types.DefaultFormat())))
			}
		}
		out = append(out, strings.Join(vs, ","))
	}
	if !ordered {
		sort.Strings(out)
	}
	return strings.Join(out, " ; ")
}

func (in *interpreter) rows(p *planner.Planned) []row {
	in.frags = map[int][]row{}
	var rows []row
	for _, f := range p.Plan.Fragments {
		rows = nil
		in.each(f, func() { rows = append(rows, in.run(f.Root)...) })
		in.frags[f.ID] = rows
	}
	return rows
}

// each calls f for every subtask of a fragment.
func (in *interpreter) each(fr *plan.Fragment, f func()) {
	in.par = subtasks
	if fr.Parallelism == 1 {
		in.par = 1
	}
	for in.sub = range in.par {
		f()
	}
}

// mine reports whether a row that goes by h belongs to the running subtask.
func (in *interpreter) mine(h int) bool { return h%in.par == in.sub }

func hash(s string) int {
	h := 0
	for i := range len(s) {
		h = (h*31 + int(s[i])) & 0xFFFFFF
	}
	return h
}

// uniqueKeys checks the invariant of stream keys on every operator.
func (in *interpreter) uniqueKeys(p *planner.Planned) {
	in.rows(p)
	for _, f := range p.Plan.Fragments {
		f.Root.Walk(func(n *plan.Node) {
			if n.Key == nil || n.Kind == plan.KindExchange && n.Exchange.Dist == plan.DistBroadcast {
				return // without a key, or every subtask has the same rows
			}
			seen := map[string]bool{}
			in.each(f, func() {
				for _, r := range in.run(n) {
					k := key(r, n.Key)
					require.False(in.t, seen[k], "operator %d (%s): key %q twice", n.ID, n.Kind, k)
					seen[k] = true
				}
			})
		})
	}
}

func key(r row, cols []int) string {
	var b strings.Builder
	for _, c := range cols {
		if r[c].Null {
			b.WriteString("\x00;")
			continue
		}
		b.WriteString(string(types.AppendKeyDatum(nil, r[c], false, false)))
		b.WriteByte(';')
	}
	return b.String()
}

func (in *interpreter) eval(es []*expr.Expr, rows []row, ts []types.Type) []row {
	out := make([]row, len(rows))
	for i, r := range rows {
		c := types.NewChunk(ts)
		for j := range ts {
			c.Cols[j].AppendDatum(r[j])
		}
		c.N = 1
		for _, e := range es {
			p, err := expr.Compile(e, in.reg)
			require.NoError(in.t, err)
			v, err := p.Eval(c, &expr.Env{}, nil)
			require.NoError(in.t, err)
			d := v.Get(0)
			d.Type = e.Type
			out[i] = append(out[i], d)
		}
	}
	return out
}

func isTrue(d types.Datum) bool { return !d.Null && d.Bool }

func (in *interpreter) run(n *plan.Node) []row {
	var ins [][]row
	var ts []types.Type
	for _, x := range n.Inputs {
		ins = append(ins, in.run(x))
	}
	var rows []row
	if len(ins) > 0 {
		rows, ts = ins[0], n.Inputs[0].Schema.Types()
	}
	var out []row
	switch n.Kind {
	case plan.KindScan:
		for i, r := range in.data[n.Scan.Relation] {
			if !in.mine(i) {
				continue
			}
			if n.Scan.Point != nil {
				k := in.eval(n.Scan.Point, []row{{}}, nil)[0]
				if types.CompareDatum(k[0], r[0]) != 0 {
					continue
				}
			}
			var x row
			for _, c := range n.Scan.Columns {
				x = append(x, r[c])
			}
			out = append(out, x)
		}
	case plan.KindValues:
		for _, r := range n.Values.Rows {
			out = append(out, in.eval(r, []row{{}}, nil)[0])
		}
	case plan.KindSeries:
		call := &expr.Expr{Kind: expr.Call, Type: n.Schema[0].Type, Func: n.Series.Func, Args: n.Series.Args}
		for i, r := range in.set(call, row{}, nil) {
			if n.Series.Ordinality {
				r = append(r, types.Datum{Type: types.Int8, Int: int64(i + 1)})
			}
			out = append(out, append(r, types.Datum{Type: types.Int8, Int: int64(i)}))
		}
	case plan.KindExchange:
		for _, r := range in.frags[n.Exchange.From] {
			if n.Exchange.Dist == plan.DistBroadcast || in.mine(hash(key(r, n.Exchange.Columns))) {
				out = append(out, r)
			}
		}
	case plan.KindFilter:
		for i, d := range in.eval([]*expr.Expr{n.Filter.Cond}, rows, ts) {
			if isTrue(d[0]) {
				out = append(out, rows[i])
			}
		}
	case plan.KindProject:
		return in.eval(n.Project.Exprs, rows, ts)
	case plan.KindUnnest:
		out = in.unnest(n, rows, ts)
	case plan.KindAgg:
		out = in.agg(n, n.Agg, nil, rows)
	case plan.KindPartialTopN:
		out = rows
	case plan.KindPartialAgg:
		p := n.PartialAgg
		if p.Consolidate {
			for _, r := range rows {
				var x row
				for _, c := range p.GroupBy {
					x = append(x, r[c])
				}
				out = append(out, x)
			}
			break
		}
		out = in.agg(n, &plan.Agg{GroupBy: p.GroupBy, Calls: p.Calls}, p.Rest, rows)
	case plan.KindJoin:
		out = in.join(n, ins[0], ins[1])
	case plan.KindDynamicFilter:
		f := n.DynamicFilter
		for _, r := range ins[0] {
			if len(ins[1]) == 0 || r[f.Column].Null || ins[1][0][f.Scalar].Null {
				continue
			}
			c := types.CompareDatum(r[f.Column], ins[1][0][f.Scalar])
			if c == 0 && strings.HasSuffix(f.Op, "=") || c != 0 && (c > 0) == (f.Op[0] == '>') {
				out = append(out, r)
			}
		}
	case plan.KindUnion:
		for _, r := range ins {
			out = append(out, r...)
		}
	case plan.KindTopN:
		out = in.topN(n, rows)
	case plan.KindOver:
		out = in.over(n, rows)
	case plan.KindMaterialize, plan.KindResult:
		return rows
	default:
		in.t.Fatalf("no interpretation of %s", n.Kind)
	}
	return out
}

func (in *interpreter) set(call *expr.Expr, r row, ts []types.Type) []row {
	p, err := expr.CompileSet(call, in.reg)
	require.NoError(in.t, err)
	c := types.NewChunk(ts)
	for j := range ts {
		c.Cols[j].AppendDatum(r[j])
	}
	c.N = 1
	require.NoError(in.t, p.Prepare(c, &expr.Env{}, nil))
	s, err := p.Start(0)
	require.NoError(in.t, err)
	var out []row
	for s != nil {
		cols := types.NewChunk(p.Types()).Cols
		n, err := s.Next(cols, 100)
		require.NoError(in.t, err)
		if n == 0 {
			break
		}
		for i := range n {
			var x row
			for _, v := range cols {
				x = append(x, v.Get(i))
			}
			out = append(out, x)
		}
	}
	return out
}

func (in *interpreter) unnest(n *plan.Node, rows []row, ts []types.Type) []row {
	var out []row
	for _, r := range rows {
		var sets [][]row
		most := 0
		for _, c := range n.Unnest.Calls {
			sets = append(sets, in.set(c, r, ts))
			most = max(most, len(sets[len(sets)-1]))
		}
		pad := most == 0 && n.Unnest.Left
		for i := 0; i < most || pad && i == 0; i++ {
			x := append(row(nil), r...)
			for k, c := range n.Unnest.Calls {
				if i < len(sets[k]) {
					x = append(x, sets[k][i]...)
				} else {
					x = append(x, types.NullDatum(c.Type))
				}
			}
			ord := types.Datum{Type: types.Int8, Int: int64(i + 1), Null: pad}
			out = append(out, append(x, ord))
		}
	}
	return out
}

func (in *interpreter) group(rows []row, cols []int) (keys []string, groups map[string][]row) {
	groups = map[string][]row{}
	for _, r := range rows {
		k := key(r, cols)
		if groups[k] == nil {
			keys = append(keys, k)
		}
		groups[k] = append(groups[k], r)
	}
	return keys, groups
}

func (in *interpreter) agg(n *plan.Node, a *plan.Agg, rest []int, rows []row) []row {
	keys, groups := in.group(rows, a.GroupBy)
	if a.Global && len(keys) == 0 {
		keys = []string{""}
	}
	var out []row
	for _, k := range keys {
		var r row
		for _, c := range a.GroupBy {
			r = append(r, groups[k][0][c])
		}
		for _, c := range a.Calls {
			r = append(r, in.aggCall(c, groups[k], n.Inputs[0].Key))
		}
		for _, c := range rest {
			r = append(r, groups[k][0][c])
		}
		out = append(out, r)
	}
	return out
}

func (in *interpreter) aggCall(c plan.AggCall, rows []row, tie []int) types.Datum {
	seen := map[string]bool{}
	var vals []types.Datum
	count := int64(0)
	sorted := append([]row(nil), rows...)
	in.sort(sorted, c.Order, tie)
	for _, r := range sorted {
		if c.Filter >= 0 && !isTrue(r[c.Filter]) {
			continue
		}
		if len(c.Args) == 0 {
			count++
			continue
		}
		v := r[c.Args[0]]
		if v.Null && !strings.HasPrefix(c.Func, "array_agg") && !strings.HasPrefix(c.Func, "$scalar") && !strings.HasPrefix(c.Func, "$first") {
			continue
		}
		if c.Distinct {
			k := key(r, c.Args[:1])
			if seen[k] {
				continue
			}
			seen[k] = true
		}
		count++
		vals = append(vals, v)
	}
	name, _, _ := strings.Cut(c.Func, "(")
	if c.Count != nil {
		count = 0
		for _, r := range rows {
			count += r[*c.Count].Int
		}
	}
	switch name {
	case "count":
		return types.Datum{Type: types.Int8, Int: count}
	case "$scalar":
		require.LessOrEqual(in.t, len(vals), 1, "more than one row returned by a subquery")
	case "array_agg":
		if len(vals) == 0 {
			return types.NullDatum(c.Type)
		}
		e, _ := c.Type.Elem()
		var es []types.Datum
		for _, v := range vals {
			v.Type = e
			es = append(es, v)
		}
		return types.Datum{Type: c.Type, Str: types.EncodeArray(types.NewArray(e.OID, es))}
	}
	if len(vals) == 0 {
		return types.NullDatum(c.Type)
	}
	acc := vals[0]
	for _, v := range vals[1:] {
		cmp := types.CompareDatum(v, acc)
		switch {
		case name == "sum" && v.Type.Kind() == types.KindInt:
			acc.Int += v.Int
		case name == "min" && cmp < 0 || name == "max" && cmp > 0:
			acc = v
		}
	}
	if name == "sum" && c.Type.OID == types.OIDNumeric {
		return types.Datum{Type: c.Type, Num: types.NumericFromInt64(acc.Int)}
	}
	acc.Type = c.Type
	return acc
}

func (in *interpreter) join(n *plan.Node, l, r []row) []row {
	j := n.Join
	lts, rts := n.Inputs[0].Schema.Types(), n.Inputs[1].Schema.Types()
	all := append(append([]types.Type(nil), lts...), rts...)
	nulls := func(ts []types.Type) row {
		var x row
		for _, t := range ts {
			x = append(x, types.NullDatum(t))
		}
		return x
	}
	var out []row
	rightUsed := make([]bool, len(r))
	for _, a := range l {
		matched := false
		for i, b := range r {
			if !keysMatch(j, a, b) {
				continue
			}
			x := append(append(row(nil), a...), b...)
			if j.Range != nil && !isTrue(in.eval([]*expr.Expr{j.Range.Cond}, []row{x}, all)[0][0]) {
				continue
			}
			if j.Residual != nil && !isTrue(in.eval([]*expr.Expr{j.Residual}, []row{x}, all)[0][0]) {
				continue
			}
			matched, rightUsed[i] = true, true
			if j.Type != plan.Semi && j.Type != plan.Anti {
				out = append(out, x)
			}
		}
		switch {
		case j.Type == plan.Semi && matched, j.Type == plan.Anti && !matched:
			out = append(out, a)
		case !matched && (j.Type == plan.Left || j.Type == plan.Full):
			out = append(out, append(append(row(nil), a...), nulls(rts)...))
		}
	}
	if j.Type == plan.Right || j.Type == plan.Full {
		for i, b := range r {
			if !rightUsed[i] {
				out = append(out, append(nulls(lts), b...))
			}
		}
	}
	if j.Output == nil {
		return out
	}
	for i, x := range out {
		var y row
		for _, c := range j.Output {
			y = append(y, x[c])
		}
		out[i] = y
	}
	return out
}

func keysMatch(j *plan.Join, a, b row) bool {
	for i := range j.LeftKeys {
		x, y := a[j.LeftKeys[i]], b[j.RightKeys[i]]
		safe := i < len(j.NullSafe) && j.NullSafe[i]
		if x.Null || y.Null {
			if !safe || x.Null != y.Null {
				return false
			}
			continue
		}
		if types.CompareDatum(x, y) != 0 {
			return false
		}
	}
	return true
}

func (in *interpreter) compare(a, b row, ks []plan.SortKey) int {
	for _, k := range ks {
		x, y := a[k.Column], b[k.Column]
		if x.Null || y.Null {
			if x.Null == y.Null {
				continue
			}
			if x.Null == k.NullsFirst {
				return -1
			}
			return 1
		}
		if c := types.CompareDatum(x, y); c != 0 {
			if k.Desc {
				return -c
			}
			return c
		}
	}
	return 0
}

func (in *interpreter) sort(rows []row, ks []plan.SortKey, tie []int) {
	sort.SliceStable(rows, func(i, j int) bool {
		if c := in.compare(rows[i], rows[j], ks); c != 0 {
			return c < 0
		}
		return key(rows[i], tie) < key(rows[j], tie)
	})
}

func (in *interpreter) topN(n *plan.Node, rows []row) []row {
	t := n.TopN
	keys, groups := in.group(rows, t.GroupBy)
	var out []row
	for _, k := range keys {
		g := groups[k]
		in.sort(g, t.Order, n.Inputs[0].Key)
		from := min(int(t.Offset), len(g))
		to := len(g)
		if t.Limit >= 0 {
			to = min(from+int(t.Limit), len(g))
			for t.WithTies && to > from && to < len(g) && in.compare(g[to-1], g[to], t.Order) == 0 {
				to++
			}
		}
		out = append(out, g[from:to]...)
	}
	return out
}

// over knows row_number, rank and aggregates over whole partitions or up to the current peer group.
func (in *interpreter) over(n *plan.Node, rows []row) []row {
	o := n.Over
	keys, groups := in.group(rows, o.PartitionBy)
	var out []row
	for _, k := range keys {
		g := groups[k]
		in.sort(g, o.Order, n.Inputs[0].Key)
		for i, r := range g {
			x := append(row(nil), r...)
			first, last := i, i
			for first > 0 && in.compare(g[first-1], r, o.Order) == 0 {
				first--
			}
			for last+1 < len(g) && in.compare(g[last+1], r, o.Order) == 0 {
				last++
			}
			for _, c := range o.Calls {
				switch name, _, _ := strings.Cut(c.Func, "("); name {
				case "row_number":
					x = append(x, types.Datum{Type: types.Int8, Int: int64(i + 1)})
				case "rank":
					x = append(x, types.Datum{Type: types.Int8, Int: int64(first + 1)})
				default:
					x = append(x, in.aggCall(plan.AggCall{Func: c.Func, Args: c.Args, Filter: c.Filter, Type: c.Type}, g[:last+1], nil))
				}
			}
			out = append(out, x)
		}
	}
	return out
}

// loadData reads the insert lines of results.txt.
func loadData(t testing.TB, c *fakeCatalog, lines []string) map[uint64][]row {
	out := map[uint64][]row{}
	for _, l := range lines {
		rest, ok := strings.CutPrefix(l, "insert into ")
		if !ok {
			continue
		}
		name, vals, _ := strings.Cut(rest, " values ")
		rel := c.rels[name]
		for i, tuple := range strings.Split(strings.Trim(vals, "()"), "), (") {
			var r row
			for j, v := range strings.Split(tuple, ", ") {
				v = strings.Trim(v, "'")
				typ := rel.Columns[j].Type
				if v == "null" {
					r = append(r, types.NullDatum(typ))
					continue
				}
				d, err := types.ParseText(types.DefaultFormat(), typ, v)
				require.NoError(t, err)
				r = append(r, d)
			}
			if len(r) < len(rel.Columns) {
				r = append(r, types.Datum{Type: types.Int8, Int: int64(i + 1)})
			}
			out[rel.ID] = append(out[rel.ID], r)
		}
	}
	return out
}

func recordResults(t *testing.T, lines []string) {
	ctx := context.Background()
	conn, err := pgx.Connect(ctx, *record)
	require.NoError(t, err)
	defer conn.Close(ctx)
	_, err = conn.PgConn().Exec(ctx, oracleDDL).ReadAll()
	require.NoError(t, err)
	var out []string
	for _, l := range lines {
		if strings.HasPrefix(l, "= ") {
			continue
		}
		out = append(out, l)
		if l == "" || strings.HasPrefix(l, "#") {
			continue
		}
		res, err := conn.PgConn().Exec(ctx, l).ReadAll()
		require.NoError(t, err, l)
		if strings.HasPrefix(l, "insert ") {
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
		if !topOrdered(l) {
			sort.Strings(rows)
		}
		out = append(out, fmt.Sprintf("= %s", strings.Join(rows, " ; ")))
	}
	require.NoError(t, os.WriteFile(resultsFile, []byte(strings.Join(out, "\n")+"\n"), 0o644))
}
