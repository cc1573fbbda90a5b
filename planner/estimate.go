package planner

import (
	"cmp"
	"maps"
	"slices"

	"github.com/streamdb/streamdb/planner/plan"
	"github.com/streamdb/streamdb/sql/expr"
	"github.com/streamdb/streamdb/sql/functions"
	"github.com/streamdb/streamdb/types"
)

// What is expected of rows about which nothing is known.
const (
	unknownRows  = 1000      // of an empty table, whose size says nothing, and of functions
	sourceRows   = 1_000_000 // of a source
	rangeShare   = 0.3       // the share of rows that a condition leaves
	equalShare   = 0.1       // and that of an equality
	valuesPerRow = 10        // of set-returning functions in a row, and of the steps of a recursion in a row of its base
)

// relStats is what is expected of the rows of a plan. Columns have the numbers of the plan, logical or physical.
type relStats struct {
	rows float64
	base float64 // before conditions
	keys [][]int // columns that are unique together
	cols map[int]float64
}

func someRows(n float64) *relStats { return &relStats{rows: max(1, n), base: max(1, n)} }

// distinct is how many values an expression has before conditions.
func (s *relStats) distinct(e *expr.Expr) float64 {
	if e.Kind == expr.Column {
		if d, ok := s.cols[e.Col]; ok {
			return d
		}
	}
	return max(1, s.base*equalShare)
}

func (s *relStats) unique(cols []int) bool {
	return slices.ContainsFunc(s.keys, func(key []int) bool {
		return !slices.ContainsFunc(key, func(k int) bool { return !slices.Contains(cols, k) })
	})
}

// filtered is what a condition leaves.
func (s *relStats) filtered(reg *functions.Registry, cond *expr.Expr) *relStats {
	var fixed []int
	for _, c := range conjuncts(cond) {
		share := rangeShare
		if c.Kind == expr.InList || c.Kind == expr.IsNull {
			share = equalShare * float64(max(1, len(c.Args)-1))
		}
		if isOperator(reg, c, "=") {
			share = equalShare
			for i, a := range c.Args {
				if a.Kind == expr.Column && constantArgs(c.Args[1-i]) {
					fixed = append(fixed, a.Col)
					share = 1 / s.distinct(a)
				}
			}
		}
		s.rows *= min(1, share)
	}
	if s.unique(fixed) {
		s.rows = 1
	}
	for _, c := range fixed {
		if s.cols == nil {
			s.cols = map[int]float64{}
		}
		s.cols[c] = 1
	}
	s.rows = max(1, s.rows)
	return s
}

// groups is how many groups rows of equal columns make.
func (s *relStats) groups(cols []int) float64 {
	n := 1.0
	for _, c := range cols {
		n *= s.distinct(&expr.Expr{Kind: expr.Column, Col: c})
	}
	return max(1, min(s.rows, n))
}

// grouped is one row per group. out are the columns of the result that the groups are of.
func (s *relStats) grouped(by, out []int) *relStats {
	if len(by) == 0 {
		return &relStats{rows: 1, base: 1, keys: [][]int{{}}}
	}
	n := s.groups(by)
	g := &relStats{rows: n, base: n, keys: [][]int{out}, cols: map[int]float64{}}
	for i, c := range by {
		if d, ok := s.cols[c]; ok {
			g.cols[out[i]] = d
		}
	}
	return g
}

// first is a number of rows, of all or of each group.
func (s *relStats) first(n float64, group []int) *relStats {
	if len(group) > 0 {
		n *= s.groups(group)
	}
	s.rows = min(s.rows, max(1, n))
	return s
}

// copied is each row n times.
func (s *relStats) copied(n float64) *relStats {
	if s.rows, s.base = s.rows*n, s.base*n; n > 1 {
		s.keys = nil
	}
	return s
}

// renumbered gives columns their numbers in another plan; those for which it gives none are gone.
func (s *relStats) renumbered(of map[int]int) *relStats {
	out := &relStats{rows: s.rows, base: s.base, cols: map[int]float64{}}
	for c, d := range s.cols {
		if to, ok := of[c]; ok {
			out.cols[to] = d
		}
	}
	for _, key := range s.keys {
		moved := make([]int, 0, len(key))
		for _, k := range key {
			if to, ok := of[k]; ok {
				moved = append(moved, to)
			}
		}
		if len(moved) == len(key) {
			out.keys = append(out.keys, moved)
		}
	}
	return out
}

// matchShare is the share of pairs of rows for which all equalities hold.
func matchShare(reg *functions.Registry, l, r *relStats, pairs [][2]*expr.Expr) float64 {
	of := [2]*relStats{l, r}
	var on [2][]int
	share, fixed := 1.0, true
	for _, pair := range pairs {
		distinct := 1.0
		for i, arg := range pair {
			if arg = widened(reg, arg); arg.Kind == expr.Column {
				on[i] = append(on[i], arg.Col)
			}
			distinct = max(distinct, of[i].distinct(arg))
		}
		share /= distinct
		fixed = fixed && distinct == 1
	}
	if fixed { // on each side to one value
		return 1
	}
	values := 0.0 // of the keys of a side that has each of them once
	for i, s := range of {
		if s.unique(on[i]) {
			values = max(values, s.base)
		}
	}
	if values > 0 {
		return 1 / values
	}
	return max(share, 1/max(l.base, r.base))
}

// joined is what a join gives, of which so many conditions are no equalities. The sides have different columns.
func joined(reg *functions.Registry, t plan.JoinType, l, r *relStats, pairs [][2]*expr.Expr, others int) *relStats {
	if t == plan.Semi || t == plan.Anti {
		l.rows = max(1, l.rows/2)
		return l
	}
	n := l.rows * r.rows
	if len(pairs) > 0 {
		n *= matchShare(reg, l, r, pairs)
	}
	for range others {
		n *= rangeShare
	}
	if t == plan.Left || t == plan.Full {
		n = max(n, l.rows)
	}
	if t == plan.Right || t == plan.Full {
		n = max(n, r.rows)
	}
	s := &relStats{rows: max(1, n), base: max(l.base, r.base), cols: map[int]float64{}}
	for _, side := range [...]*relStats{l, r} {
		for c, d := range side.cols {
			s.cols[c] = d
		}
	}
	return s
}

// windowsPerRow is how many windows a row belongs to.
func windowsPerRow(w *plan.Window) float64 {
	switch {
	case w.Calendar != nil && w.Calendar.Cumulate:
		return float64(w.Calendar.Count+1) / 2
	case w.Calendar != nil:
		return float64(w.Calendar.Count)
	case w.Step > 0:
		return float64(w.Size/w.Step+1) / 2
	case w.Slide > 0:
		return float64(w.Size / w.Slide)
	}
	return 1
}

// statsOfRelation knows the rows of a relation, which of its columns are unique and which are truth values. cols are the numbers of its columns stored.
func statsOfRelation(rel *Relation, cols, stored []int) *relStats {
	rows := float64(rel.Rows)
	if rows == 0 {
		if rows = unknownRows; rel.Kind == Source {
			rows = sourceRows
		}
	}
	s := &relStats{rows: rows, base: rows, cols: map[int]float64{}}
	at := map[int]int{}
	for i, c := range stored {
		at[c] = cols[i]
		s.cols[cols[i]] = max(1, rows*equalShare)
		if c >= 0 && c < len(rel.Columns) && rel.Columns[c].Type.OID == types.OIDBool {
			s.cols[cols[i]] = 2
		}
	}
	add := func(key []int) {
		var ids []int
		for _, k := range key {
			id, ok := at[k]
			if !ok {
				return
			}
			ids = append(ids, id)
		}
		if s.keys = append(s.keys, ids); len(ids) == 1 {
			s.cols[ids[0]] = rows
		}
	}
	if len(rel.Key) > 0 {
		add(rel.Key)
	}
	for _, x := range rel.Indexes {
		var key []int
		for _, k := range x.Keys {
			if k.Column < 0 {
				key = nil
				break
			}
			key = append(key, k.Column)
		}
		if x.Unique && x.Where == nil && key != nil {
			add(key)
		}
	}
	return s
}

// statsOf estimates a logical plan.
func (o *optimizer) statsOf(n *node) *relStats {
	reg := o.b.reg
	switch n.op {
	case opScan, opSource:
		return statsOfRelation(n.rel, n.cols, n.stored)
	case opFilter:
		return o.statsOf(n.in[0]).filtered(reg, n.cond)
	case opAgg:
		return o.statsOf(n.in[0]).grouped(n.group, n.group)
	case opTopN:
		s := o.statsOf(n.in[0])
		if n.limit != nil && n.limit.Kind == expr.Const && !n.limit.Const.Null {
			s = s.first(float64(n.limit.Const.Int), n.group)
		}
		return s
	case opJoin:
		var pairs [][2]*expr.Expr
		others := 0
		l, r := toSet(n.in[0].out()), toSet(n.in[1].out())
		for _, c := range conjuncts(n.cond) {
			if x, y, op := o.compares(c, l, r); op == "=" {
				pairs = append(pairs, [2]*expr.Expr{x, y})
			} else {
				others++
			}
		}
		return joined(reg, n.jtype, o.statsOf(n.in[0]), o.statsOf(n.in[1]), pairs, others)
	case opValues:
		return someRows(float64(len(n.rows)))
	case opUnion:
		s := &relStats{}
		for _, in := range n.in {
			x := o.statsOf(in)
			s.rows, s.base = s.rows+x.rows, s.base+x.base
		}
		return s
	case opUnnest:
		return o.statsOf(n.in[0]).copied(valuesPerRow)
	case opWindow:
		return o.statsOf(n.in[0]).copied(windowsPerRow(&n.win))
	}
	if len(n.in) == 0 {
		return someRows(unknownRows)
	}
	s := o.statsOf(n.in[0])
	if n.op == opRecurse {
		s = s.copied(valuesPerRow)
	}
	return s
}

// estimates are what is expected of the operators of plans.
type estimates struct {
	reg      *functions.Registry
	relation func(id uint64) (*Relation, bool)
	plan     *plan.Plan // in work, and the statistics of its fragments
	roots    map[int]*relStats
	inputs   []*relStats // of the recompute operator in work
	work     *relStats   // the base of the recursion in work
	job      bool
	of       map[*plan.Node]estimate
}

// estimate is what is expected of an operator: the rows of its output, and of a job those that it keeps, less than 0 where the sizes of relations do not tell.
type estimate struct{ rows, state float64 }

// Estimate fills in what EXPLAIN (COSTS) shows, from the sizes that relations have now.
func (e *Explained) Estimate(reg *functions.Registry, relation func(id uint64) (*Relation, bool)) {
	x := &estimates{reg: reg, relation: relation, of: map[*plan.Node]estimate{}}
	x.add(e.Plan)
	for _, p := range e.Parts {
		x.add(p.Plan)
	}
	e.estimated = x.of
}

func (x *estimates) add(p *plan.Plan) {
	x.plan, x.roots = p, map[int]*relStats{}
	x.job = p.Fragments[len(p.Fragments)-1].Root.Kind != plan.KindResult
	for _, f := range p.Fragments { // upstream ones come first
		x.roots[f.ID] = x.stats(f.Root)
	}
}

// stats estimates an operator of a physical plan and all below it.
func (x *estimates) stats(n *plan.Node) *relStats {
	var in []*relStats
	var rows []float64
	for _, i := range n.Inputs {
		s := x.stats(i)
		in, rows = append(in, s), append(rows, s.rows)
	}
	s := x.operator(n, in)
	e := estimate{rows: s.rows, state: -1}
	if n.Kind == plan.KindScan {
		e.rows = x.scanned(n, s)
	}
	if x.job {
		e.state = kept(n, rows, s.rows)
	}
	x.of[n] = e
	return s
}

func (x *estimates) operator(n *plan.Node, in []*relStats) *relStats {
	switch n.Kind {
	case plan.KindSource:
		return x.stored(n.Source.Relation, n.Source.Columns, sourceRows)
	case plan.KindScan:
		s := x.stored(n.Scan.Relation, n.Scan.Columns, unknownRows)
		if len(n.Scan.Point) > 0 {
			s.rows = 1
		}
		return s
	case plan.KindValues:
		s := someRows(float64(len(n.Values.Rows)))
		s.rows = float64(len(n.Values.Rows))
		return s
	case plan.KindExchange:
		return copyStats(x.roots[n.Exchange.From])
	case plan.KindInput:
		return copyStats(x.inputs[n.Input])
	case plan.KindWork:
		return copyStats(x.work)
	case plan.KindFilter:
		return in[0].filtered(x.reg, n.Filter.Cond)
	case plan.KindProject:
		at := map[int]int{}
		for i, e := range n.Project.Exprs {
			if e = widened(x.reg, e); e.Kind == expr.Column {
				at[e.Col] = i
			}
		}
		return in[0].renumbered(at)
	case plan.KindUnnest:
		return in[0].copied(valuesPerRow)
	case plan.KindWindow:
		return in[0].copied(windowsPerRow(n.Window))
	case plan.KindTemporal, plan.KindDynamicFilter:
		in[0].rows = max(1, in[0].rows*rangeShare)
		return in[0]
	case plan.KindAgg:
		return in[0].grouped(n.Agg.GroupBy, firstColumns(len(n.Agg.GroupBy)))
	case plan.KindPartialAgg:
		return in[0].grouped(n.PartialAgg.GroupBy, firstColumns(len(n.PartialAgg.GroupBy)))
	case plan.KindPartialTopN:
		return in[0]
	case plan.KindJoin:
		j := n.Join
		for _, look := range j.Lookups {
			x.lookedUp(n.Inputs[look.Side], in[1-look.Side].rows)
		}
		others := len(conjuncts(j.Residual))
		if j.Range != nil {
			others += len(conjuncts(j.Range.Cond))
		}
		return x.joined(n, j.Type, in, j.LeftKeys, j.RightKeys, others, j.Output)
	case plan.KindLookupJoin:
		j := n.LookupJoin
		return x.joined(n, cmp.Or(j.Type, plan.Inner), in, j.LeftKeys, j.RightKeys, len(conjuncts(j.Residual)), j.Output)
	case plan.KindTemporalJoin:
		j := n.TemporalJoin
		return x.joined(n, j.Type, in, j.LeftKeys, j.RightKeys, len(conjuncts(j.Residual)), j.Output)
	case plan.KindAsofJoin: // at most one row of each left one
		rows := in[0].rows
		s := x.joined(n, n.AsofJoin.Type, in, n.AsofJoin.LeftKeys, n.AsofJoin.RightKeys, 0, n.AsofJoin.Output)
		s.rows = min(s.rows, rows)
		return s
	case plan.KindUnion:
		s := &relStats{}
		for _, i := range in {
			s.rows, s.base = s.rows+i.rows, s.base+i.base
		}
		return s
	case plan.KindTopN:
		if t := n.TopN; t.Limit >= 0 && t.LimitExpr == nil {
			return in[0].first(float64(t.Limit), t.GroupBy)
		}
		return in[0]
	case plan.KindRecompute:
		outer := x.inputs
		x.inputs = in
		s := x.stats(n.Recompute.Sub)
		x.inputs = outer
		return s
	case plan.KindRecurse:
		base, outer := x.stats(n.Recurse.Base), x.work
		x.work = copyStats(base)
		x.stats(n.Recurse.Step)
		x.work = outer
		return base.copied(valuesPerRow)
	}
	if len(in) == 0 {
		return someRows(unknownRows)
	}
	return in[0]
}

func copyStats(s *relStats) *relStats {
	c := *s
	c.cols = maps.Clone(s.cols)
	return &c
}

// firstColumns are the numbers of so many columns.
func firstColumns(n int) []int {
	out := make([]int, n)
	for i := range out {
		out[i] = i
	}
	return out
}

func (x *estimates) stored(id uint64, columns []int, unknown float64) *relStats {
	if rel, ok := x.relation(id); ok {
		return statsOfRelation(rel, firstColumns(len(columns)), columns)
	}
	return someRows(unknown)
}

// scanned is how many rows a scan gives. The conditions by which it is narrowed are checked above, too: what is above counts from all rows.
func (x *estimates) scanned(n *plan.Node, s *relStats) float64 {
	if n.Scan.Index == nil {
		return s.rows
	}
	rows := s.rows
	i := n.Scan.Index
	for k, values := range i.Equal {
		rows *= min(1, float64(len(values))/x.keyValues(n, i, k, s))
	}
	if i.Low != nil || i.High != nil {
		rows *= rangeShare
	}
	if i.Unique && len(i.Equal) == len(i.Keys) {
		rows = min(rows, 1)
		for _, values := range i.Equal {
			rows *= float64(len(values))
		}
	}
	return max(1, rows)
}

// keyValues is how many values a key of an index of the relation that a scan reads has.
func (x *estimates) keyValues(n *plan.Node, i *plan.IndexScan, k int, s *relStats) float64 {
	if e := i.Keys[k].Expr; e.Kind == expr.Column {
		if at := slices.Index(n.Scan.Columns, e.Col); at >= 0 {
			return s.distinct(&expr.Expr{Kind: expr.Column, Col: at})
		}
	}
	return max(1, s.base*equalShare)
}

// lookedUp narrows the scan at the bottom of a side of a join to what so many rows of the other side look up.
func (x *estimates) lookedUp(n *plan.Node, rows float64) {
	for len(n.Inputs) == 1 {
		n = n.Inputs[0]
	}
	if n.Kind != plan.KindScan || n.Scan.Probe == nil {
		return
	}
	s := x.stored(n.Scan.Relation, n.Scan.Columns, unknownRows)
	if p := n.Scan.Probe; len(p.Keys) > 1 || !p.Unique {
		rows *= max(1, s.base/x.keyValues(n, p, 0, s))
	}
	x.of[n] = estimate{rows: min(x.of[n].rows, max(1, rows)), state: -1}
}

// joined estimates a join by columns: those of the right side follow those of the left one.
func (x *estimates) joined(n *plan.Node, t plan.JoinType, in []*relStats, lk, rk []int, others int, output []int) *relStats {
	width := len(n.Inputs[0].Schema)
	right := map[int]int{}
	for i := range n.Inputs[1].Schema {
		right[i] = width + i
	}
	var pairs [][2]*expr.Expr
	for i := range lk {
		pairs = append(pairs, [2]*expr.Expr{{Kind: expr.Column, Col: lk[i]}, {Kind: expr.Column, Col: width + rk[i]}})
	}
	s := joined(x.reg, t, in[0], in[1].renumbered(right), pairs, others)
	if output == nil {
		return s
	}
	at := map[int]int{}
	for i, c := range output {
		at[c] = i
	}
	return s.renumbered(at)
}

// kept is how many rows an operator of a job keeps, less than 0 where it keeps none or where watermarks and time decide.
func kept(n *plan.Node, in []float64, out float64) float64 {
	switch n.Kind {
	case plan.KindAgg:
		if n.Agg.OnClose < 0 {
			return out
		}
	case plan.KindJoin:
		if n.Join.CloseKey == nil && (n.Join.Range == nil || !n.Join.Range.Expire) {
			return in[0] + in[1]
		}
	case plan.KindAsofJoin, plan.KindRecompute:
		total := 0.0
		for _, i := range in {
			total += i
		}
		return total
	case plan.KindTemporalJoin:
		if n.TemporalJoin.Point == nil {
			return in[1]
		}
	case plan.KindSession:
		if !n.Session.OnClose {
			return in[0]
		}
	case plan.KindTopN:
		switch t := n.TopN; {
		case t.OnClose != nil:
		case n.Inputs[0].AppendOnly && t.Limit >= 0:
			return out
		default:
			return in[0]
		}
	case plan.KindOver:
		if n.Over.OnClose == nil && n.Over.Forget == nil {
			return in[0]
		}
	case plan.KindLookupJoin, plan.KindDynamicFilter, plan.KindExpire, plan.KindMaterialize, plan.KindSink:
		return in[0]
	}
	return -1
}
