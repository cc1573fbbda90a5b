package planner

import (
	"slices"

	"github.com/streamdb/streamdb/internal/pgerr"
	"github.com/streamdb/streamdb/planner/plan"
	"github.com/streamdb/streamdb/sql/expr"
	"github.com/streamdb/streamdb/sql/functions"
	"github.com/streamdb/streamdb/types"
)

// rule is one rewriting of the logical tree.
type rule struct {
	name string
	// required rules are part of the semantics: they run even when switched off, in their plainest form.
	required bool
	apply    func(o *optimizer, n *node) *node
}

// rules in the order they run. Names are shown by EXPLAIN and can be switched off (Options.DisabledRules).
var rules = [...]rule{
	{"fold_constants", false, (*optimizer).foldConstants},
	{"decorrelate", true, (*optimizer).decorrelate},
	{"merge_projects", false, (*optimizer).mergeProjects},
	{"push_down_predicates", false, (*optimizer).pushPredicates},
	{"empty_inputs", false, (*optimizer).emptyInputs},
	{"merge_projects", false, (*optimizer).mergeProjects},
	{"late_projections", false, (*optimizer).lateProjections},
	{"merge_projects", false, (*optimizer).mergeProjects},
	{"extreme_joins", false, (*optimizer).extremeJoins},
	{"reorder_joins", false, (*optimizer).reorderJoins},
	{"rank_filters", false, (*optimizer).rankFilters},
	{"reverse_frames", false, (*optimizer).reverseFrames},
	{"prune_columns", false, (*optimizer).pruneColumns},
	{"merge_projects", false, (*optimizer).mergeProjects},
}

// Names of refinements inside rules that can be switched off too.
const (
	ruleUnnestFilters  = "unnest_filters"       // decorrelate: pull correlated predicates up instead of joining with the outer values
	ruleOuterJoins     = "simplify_outer_joins" // push_down_predicates: outer joins whose padded rows would not survive
	ruleInfer          = "infer_predicates"     // push_down_predicates: what is known of a join key holds for the column that it is equal to
	rulePushWindows    = "push_into_windows"    // push_down_predicates: conditions on windows bound the time column below
	ruleJoinKeys       = "extract_join_keys"    // physical: equalities of a join condition become hash keys
	ruleRangeJoin      = "range_join"           // physical: comparisons of a join condition find rows in ordered state
	ruleBroadcastJoin  = "broadcast_join"       // physical: joins without keys run in several subtasks
	ruleJoinOnce       = "join_once"            // physical: rows that have met the only partner they can have are not kept
	ruleShareFragments = "share_fragments"      // physical: equal fragments of a job are one
	rulePointReads     = "point_reads"          // physical: reads by primary key
	ruleIndexScans     = "index_scans"          // physical: reads of a part of a table by its key or an index
	ruleIndexJoins     = "index_joins"          // physical: joins that look up rows of one side by the keys of the other
	ruleLookupJoins    = "lookup_joins"         // physical: joins of views that read a large relation by its key instead of keeping its rows
	ruleMinMax         = "min_max_by_index"     // physical: the least or greatest value is the first one of an index
	ruleDynamicFilter  = "dynamic_filter"       // physical: comparisons of rows with one value that changes keep the rows in order
	ruleLiveRecursion  = "live_recursion"       // physical: recursive queries with a linear step are kept up to date from changes
	rulePartialTopN    = "partial_top_n"        // physical: rows that a Top-N cannot show are dropped where they are
	rulePanes          = "window_panes"         // physical: sliding windows are made of sums of the slides that they share
	rulePartialAgg     = "partial_aggregation"  // physical: rows are added up where they are before they are spread by group
)

type optimizer struct {
	b     *binder
	md    *metadata
	fired []string
	// copied counts the nodes that were copied for domains of subqueries.
	copied int
	cur    string // the running rule
	want   map[int]bool
}

func newOptimizer(b *binder) *optimizer {
	return &optimizer{b: b, md: b.md}
}

// equality reports whether e is a call of the = operator of its operands' types.
func (o *optimizer) equality(e *expr.Expr) bool { return o.operator(e, "=") }

// comparison returns which of =, <, <=, > and >= of its operands' types e is, "" when it is none.
func (o *optimizer) comparison(e *expr.Expr) string {
	for _, name := range [...]string{"=", "<", "<=", ">", ">="} {
		if o.operator(e, name) {
			return name
		}
	}
	return ""
}

// turnedComparison is a comparison with its sides exchanged.
var turnedComparison = map[string]string{"=": "=", "<": ">", "<=": ">=", ">": "<", ">=": "<="}

// operator reports whether e is a call of the named comparison of its operands' types.
func (o *optimizer) operator(e *expr.Expr, name string) bool { return isOperator(o.b.reg, e, name) }

func isOperator(reg *functions.Registry, e *expr.Expr, name string) bool {
	if e.Kind != expr.Call || len(e.Args) != 2 || e.Type.OID != types.OIDBool {
		return false
	}
	r, err := reg.ResolveOperator(name, e.Args[0].Type, e.Args[1].Type)
	return err == nil && r.Func.ID == e.Func
}

func (o *optimizer) off(rule string) bool { return o.b.o.DisabledRules[rule] }

func (o *optimizer) fire(name string) {
	for _, f := range o.fired {
		if f == name {
			return
		}
	}
	o.fired = append(o.fired, name)
}

// optimize runs the rules. want are the columns needed at the top.
func (o *optimizer) optimize(n *node, want []int) (*node, error) {
	o.want = toSet(want)
	for _, r := range rules {
		if o.off(r.name) && !r.required {
			continue
		}
		o.cur = r.name
		o.b.poll()
		n = r.apply(o, n)
		if err := o.verify(n, want); err != nil {
			return nil, err
		}
	}
	return n, nil
}

// verify checks that every node finds the columns it uses in its inputs and that no column is made twice.
func (o *optimizer) verify(n *node, want []int) error {
	broken := func(n *node, c int) error {
		return pgerr.Newf(pgerr.InternalError, "rule %s broke the plan: operator %d has no column %d (%s)", o.cur, n.op, c, o.md.cols[c].name)
	}
	made := map[int]bool{}
	var err error
	correlated := false
	n.walk(func(x *node) { correlated = correlated || x.op == opApply })
	if correlated {
		// Until subqueries are unnested they use columns of their surroundings.
		return nil
	}
	n.walk(func(x *node) {
		if err != nil {
			return
		}
		used := map[int]bool{}
		x.eachExpr(func(e *expr.Expr) *expr.Expr { e.Columns(used); return e })
		x.eachCol(func(c int) int { used[c] = true; return c })
		if len(used) > 0 {
			for _, in := range x.in {
				for _, c := range in.out() {
					delete(used, c)
				}
			}
			for c := range used {
				err = broken(x, c)
			}
		}
		x.eachMade(func(c int) int {
			if made[c] && x.op != opSeries && err == nil {
				err = pgerr.Newf(pgerr.InternalError, "rule %s broke the plan: column %d (%s) is made twice", o.cur, c, o.md.cols[c].name)
			}
			made[c] = true
			return c
		})
	})
	if err != nil {
		return err
	}
	have := toSet(n.out())
	for _, c := range want {
		if !have[c] {
			return broken(n, c)
		}
	}
	return nil
}

func (o *optimizer) foldConstants(n *node) *node {
	n.walk(func(x *node) {
		x.eachExpr(func(e *expr.Expr) *expr.Expr {
			f := o.b.fold(e)
			if f != e {
				o.fire("fold_constants")
			}
			return f
		})
	})
	return n
}

// mergeProjects joins adjacent projections where that computes nothing twice, and drops those that change nothing.
func (o *optimizer) mergeProjects(n *node) *node {
	for i, in := range n.in {
		n.in[i] = o.mergeProjects(in)
	}
	if n.op != opProject {
		return n
	}
	for n.in[0].op == opProject && o.mergeable(n, n.in[0]) {
		in := n.in[0]
		m := map[int]*expr.Expr{}
		for i, c := range in.cols {
			m[c] = in.exprs[i]
		}
		for i := range n.exprs {
			n.exprs[i] = substitute(n.exprs[i], m)
		}
		n.in = in.in
		o.fire("merge_projects")
	}
	if in := n.in[0]; in.op == opValues && len(in.rows) == 1 && o.constantRow(n, in) {
		m := map[int]*expr.Expr{}
		for i, c := range in.cols {
			m[c] = in.rows[0][i]
		}
		v := &node{op: opValues, rows: [][]*expr.Expr{nil}}
		for i, c := range n.cols {
			v.cols = append(v.cols, c)
			v.rows[0] = append(v.rows[0], substitute(n.exprs[i], m))
		}
		o.fire("merge_projects")
		return v
	}
	return n
}

// constantRow reports whether a projection over a single constant row may become that row. Columns passed on keep their ids.
func (o *optimizer) constantRow(n, in *node) bool {
	if len(n.cols) == 0 {
		return false
	}
	for i := range in.cols {
		if o.b.volatileExpr(in.rows[0][i]) {
			return false
		}
	}
	return true
}

func (o *optimizer) mergeable(outer, inner *node) bool {
	uses := map[int]int{}
	for _, e := range outer.exprs {
		e.Walk(func(x *expr.Expr) bool {
			if x.Kind == expr.Column {
				uses[x.Col]++
			}
			return true
		})
	}
	for i, c := range inner.cols {
		e := inner.exprs[i]
		if e.Kind == expr.Column || e.Kind == expr.Const {
			continue
		}
		if uses[c] > 1 || uses[c] > 0 && o.b.volatileExpr(e) {
			return false
		}
	}
	return true
}

// pruneColumns drops what nobody needs, down into scans and sources.
func (o *optimizer) pruneColumns(n *node) *node { return o.prune(n, o.want) }

func (o *optimizer) prune(n *node, want map[int]bool) *node {
	need := map[int]bool{}
	keep := func(i int) bool { return want[n.cols[i]] }
	filter := func() {
		var cols []int
		var stored []int
		var exprs []*expr.Expr
		for i, c := range n.cols {
			if !keep(i) {
				continue
			}
			cols = append(cols, c)
			if n.stored != nil {
				stored = append(stored, n.stored[i])
			}
			if n.exprs != nil {
				exprs = append(exprs, n.exprs[i])
			}
		}
		if len(cols) < len(n.cols) {
			o.fire("prune_columns")
		}
		n.cols, n.stored, n.exprs = cols, stored, exprs
	}
	switch n.op {
	case opScan, opSource:
		filter()
		return n
	case opSeries, opWork:
		return n
	case opRecurse:
		for k, in := range n.in {
			n.in[k] = o.prune(in, toSet(n.branches[k]))
		}
		return n
	case opValues:
		for i, r := range n.rows {
			var row []*expr.Expr
			for j := range r {
				if keep(j) || len(n.cols) == 1 {
					row = append(row, r[j])
				}
			}
			if len(row) == 0 {
				row = r[:1]
			}
			n.rows[i] = row
		}
		var cols []int
		for i, c := range n.cols {
			if keep(i) || len(n.cols) == 1 {
				cols = append(cols, c)
			}
		}
		if len(cols) == 0 {
			cols = n.cols[:1]
		}
		n.cols = cols
		return n
	case opProject:
		filter()
	case opUnion:
		var cols []int
		branches := make([][]int, len(n.in))
		for i, c := range n.cols {
			if !keep(i) {
				continue
			}
			cols = append(cols, c)
			for k := range n.branches {
				branches[k] = append(branches[k], n.branches[k][i])
			}
		}
		n.cols, n.branches = cols, branches
		for k, in := range n.in {
			n.in[k] = o.prune(in, toSet(branches[k]))
		}
		return n
	case opAgg:
		var aggs []aggCall
		for _, a := range n.aggs {
			if want[a.id] {
				aggs = append(aggs, a)
			}
		}
		n.aggs = aggs
	case opOver, opTopN:
		var over []overCall
		for _, c := range n.over {
			if want[c.id] {
				over = append(over, c)
			}
		}
		n.over = over
		if len(over) == 0 && n.op == opOver {
			return o.prune(n.in[0], want)
		}
	}
	if n.op != opProject && n.op != opAgg {
		for c := range want {
			need[c] = true
		}
	}
	n.eachExpr(func(e *expr.Expr) *expr.Expr { e.Columns(need); return e })
	n.eachCol(func(c int) int { need[c] = true; return c })
	for i, in := range n.in {
		n.in[i] = o.prune(in, need)
	}
	return n
}

// pushPredicates moves conditions as far down as they can go.
func (o *optimizer) pushPredicates(n *node) *node { return o.push(n, nil) }

func refs(e *expr.Expr, set map[int]bool) (some, all bool) {
	used := map[int]bool{}
	e.Columns(used)
	all = true
	for c := range used {
		if set[c] {
			some = true
		} else {
			all = false
		}
	}
	return some, all
}

// push puts preds onto n's rows, below n where possible.
func (o *optimizer) push(n *node, preds []*expr.Expr) *node {
	here := func(rest []*expr.Expr) *node { return filterNode(n, and(rest...)) }
	// through splits preds into those that only use the given columns and the rest.
	through := func(cols map[int]bool) (down, rest []*expr.Expr) {
		for _, p := range preds {
			if _, all := refs(p, cols); all && !o.b.volatileExpr(p) {
				down = append(down, p)
			} else {
				rest = append(rest, p)
			}
		}
		if len(down) > 0 {
			o.fire("push_down_predicates")
		}
		return down, rest
	}
	switch n.op {
	case opFilter:
		// What a query below has kept out never reaches the conditions above it.
		return o.push(n.in[0], append(conjuncts(n.cond), preds...))
	case opProject:
		m := map[int]*expr.Expr{}
		fixed := map[int]bool{}
		for i, c := range n.cols {
			if !o.b.volatileExpr(n.exprs[i]) {
				m[c] = n.exprs[i]
				fixed[c] = true
			}
		}
		down, rest := through(fixed)
		for i := range down {
			down[i] = o.b.fold(substitute(down[i], m))
		}
		n.in[0] = o.push(n.in[0], down)
		return here(rest)
	case opJoin:
		return o.pushJoin(n, preds)
	case opAsof, opTemporal:
		// Fewer left rows are fewer results; fewer right rows might be other ones.
		l, r := toSet(n.in[0].out()), toSet(n.in[1].out())
		if !o.off(ruleOuterJoins) {
			o.simplifyOuter(n, preds, l, r)
		}
		down, rest := through(l)
		n.in[0], n.in[1] = o.push(n.in[0], down), o.push(n.in[1], nil)
		return here(rest)
	case opAgg:
		if n.global || len(n.group) == 0 {
			n.in[0] = o.push(n.in[0], nil)
			return here(preds)
		}
		down, rest := through(toSet(n.group))
		if n.in[0].op == opUnion && slices.ContainsFunc(down, mayFail) {
			down, rest = nil, preds // what EXCEPT takes away must not fail
		}
		n.in[0] = o.push(n.in[0], down)
		return here(rest)
	case opTopN:
		down, rest := through(toSet(n.group))
		if len(n.group) == 0 {
			down, rest = nil, preds
			if n.limit == nil && n.offset == nil {
				down, rest = preds, nil
			}
		}
		n.in[0] = o.push(n.in[0], down)
		return here(rest)
	case opOver, opSession:
		down, rest := through(toSet(n.partition))
		if len(n.partition) == 0 {
			down, rest = nil, preds
		}
		n.in[0] = o.push(n.in[0], down)
		return here(rest)
	case opWindow, opUnnest:
		down, rest := through(toSet(n.in[0].out()))
		if n.op == opWindow && !o.off(rulePushWindows) {
			for _, p := range rest {
				down = append(down, o.windowBounds(n, p)...)
			}
		}
		n.in[0] = o.push(n.in[0], down)
		return here(rest)
	case opUnion:
		down, rest := through(toSet(n.cols))
		for k := range n.in {
			m := map[int]int{}
			for i, c := range n.cols {
				m[c] = n.branches[k][i]
			}
			var mine []*expr.Expr
			for _, p := range down {
				mine = append(mine, mapCols(p, func(c int) int { return m[c] }))
			}
			n.in[k] = o.push(n.in[k], mine)
		}
		return here(rest)
	case opWatermark:
		// Rows that a condition drops still move the watermark, so it stays above.
		n.in[0] = o.push(n.in[0], nil)
		return here(preds)
	}
	for i := range n.in {
		n.in[i] = o.push(n.in[i], nil)
	}
	return here(preds)
}

func (o *optimizer) pushJoin(n *node, preds []*expr.Expr) *node {
	l, r := toSet(n.in[0].out()), toSet(n.in[1].out())
	if !o.off(ruleOuterJoins) {
		o.simplifyOuter(n, preds, l, r)
	}
	on := conjuncts(n.cond)
	moreLeft, moreRight := o.inferred(n, preds, on, l, r)
	var above, cond, left, right []*expr.Expr
	one := func(p *expr.Expr, leftOK, rightOK bool, rest *[]*expr.Expr) {
		if o.b.volatileExpr(p) {
			*rest = append(*rest, p)
			return
		}
		_, allL := refs(p, l)
		_, allR := refs(p, r)
		switch {
		case allL && leftOK:
			left = append(left, p)
			o.fire("push_down_predicates")
		case allR && rightOK:
			right = append(right, p)
			o.fire("push_down_predicates")
		default:
			*rest = append(*rest, p)
		}
	}
	switch n.jtype {
	case plan.Inner:
		for _, p := range append(on, preds...) {
			one(p, true, true, &cond)
		}
	case plan.Left:
		for _, p := range preds {
			one(p, true, false, &above)
		}
		for _, p := range on {
			one(p, false, true, &cond)
		}
	case plan.Right:
		for _, p := range preds {
			one(p, false, true, &above)
		}
		for _, p := range on {
			one(p, true, false, &cond)
		}
	case plan.Full:
		above, cond = preds, on
	case plan.Semi:
		for _, p := range preds {
			one(p, true, false, &above)
		}
		for _, p := range on {
			one(p, true, true, &cond)
		}
	case plan.Anti:
		for _, p := range preds {
			one(p, true, false, &above)
		}
		for _, p := range on {
			one(p, false, true, &cond)
		}
	}
	if n.jtype == plan.Inner {
		// A volatile condition belongs above the join, where it is evaluated once per row.
		var keep []*expr.Expr
		for _, p := range cond {
			if o.b.volatileExpr(p) {
				above = append(above, p)
			} else {
				keep = append(keep, p)
			}
		}
		cond = keep
	}
	n.cond = and(cond...)
	left, right = append(left, moreLeft...), append(right, moreRight...)
	n.in[0] = o.push(n.in[0], left)
	n.in[1] = o.push(n.in[1], right)
	return filterNode(n, and(above...))
}

// simplifyOuter turns outer joins into narrower ones when a condition above would drop the padded rows.
func (o *optimizer) simplifyOuter(n *node, preds []*expr.Expr, l, r map[int]bool) {
	was := n.jtype
	for _, p := range preds {
		switch n.jtype {
		case plan.Left:
			if o.b.rejectsNull(p, r) {
				n.jtype = plan.Inner
			}
		case plan.Right:
			if o.b.rejectsNull(p, l) {
				n.jtype = plan.Inner
			}
		case plan.Full:
			if o.b.rejectsNull(p, r) {
				n.jtype = plan.Right
				if o.b.rejectsNull(p, l) {
					n.jtype = plan.Inner
				}
			} else if o.b.rejectsNull(p, l) {
				n.jtype = plan.Left
			}
		}
	}
	if n.jtype != was {
		o.fire(ruleOuterJoins)
		if n.jtype != plan.Inner {
			o.simplifyOuter(n, preds, l, r)
		}
	}
}

// rejectsNull reports whether p is never true when all columns of set are NULL.
func (b *binder) rejectsNull(p *expr.Expr, set map[int]bool) bool {
	switch p.Kind {
	case expr.And:
		for _, a := range p.Args {
			if b.rejectsNull(a, set) {
				return true
			}
		}
		return false
	case expr.Or:
		for _, a := range p.Args {
			if !b.rejectsNull(a, set) {
				return false
			}
		}
		return true
	case expr.IsNotNull:
		return b.nullIn(p.Args[0], set)
	case expr.Const:
		return p.Const.Null || p.Type.OID == types.OIDBool && !p.Const.Bool
	}
	return b.nullIn(p, set)
}

// nullIn reports whether e is NULL when all columns of set are.
func (b *binder) nullIn(e *expr.Expr, set map[int]bool) bool {
	switch e.Kind {
	case expr.Column:
		return set[e.Col]
	case expr.Const:
		return e.Const.Null
	case expr.Not, expr.InList, expr.AnyArray, expr.AllArray:
		return b.nullIn(e.Args[0], set)
	case expr.Call:
		impl, ok := b.reg.Function(e.Func)
		if !ok || !impl.Strict {
			return false
		}
		for _, a := range e.Args {
			if b.nullIn(a, set) {
				return true
			}
		}
	}
	return false
}
