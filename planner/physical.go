package planner

import (
	"slices"
	"strings"

	"github.com/streamdb/streamdb/internal/pgerr"
	"github.com/streamdb/streamdb/planner/plan"
	"github.com/streamdb/streamdb/sql/expr"
	"github.com/streamdb/streamdb/types"
)

// physical builds plan nodes from the logical tree. Expressions go from column ids to positions here.
type physical struct {
	b       *binder
	o       *optimizer
	md      *metadata
	cut     bool // exchanges are wanted: the job may run with more than one subtask
	frags   []*plan.Fragment
	inputs  []uint64
	indexes []uint64 // of materialized views that are read instead of them
	endless bool
	// shared are the sources that the job reads more than once.
	shared  map[uint64]bool
	forms   map[string]int // stored form of a fragment → its number
	onClose int            // aggregations that emit on close
	final   bool           // a join emits final rows
	wanted  map[*node]*wantedOrder
	notices []*pgerr.Error
	sub     *subPlan // the recursive term that is being built
}

// distKind tells how rows are spread over subtasks.
type distKind uint8

const (
	distAny    distKind = iota // in any way
	distSingle                 // all in one subtask
	distHash                   // equal values of cols in one subtask
)

// phys is the root of a fragment under construction.
type phys struct {
	n    *plan.Node
	ids  []int
	key  []int
	nn   map[int]bool // columns that never are NULL
	wm   map[int]bool // columns with a watermark
	dist distKind
	cols []int // of distHash
	app  bool  // append only
	ttl  bool  // what nobody changes goes by itself, see Options.StateTTL
	sums bool  // rows are changes that only count together, without a key
	// of is, of sliding windows, what is below them.
	of *phys
}

func (p *phys) at(id int) int {
	for i, c := range p.ids {
		if c == id {
			return i
		}
	}
	return -1
}

func (p *phys) has(id int) bool { return p.at(id) >= 0 }

// spreadAs: the rows of p are spread as those of q, which is known as long as p has the columns by which they are.
func (p *phys) spreadAs(q *phys) {
	if !slices.ContainsFunc(q.cols, func(c int) bool { return !p.has(c) }) {
		p.dist, p.cols = q.dist, q.cols
	}
}

// node makes a plan node whose output columns are ids.
func (ph *physical) node(kind plan.Kind, ids, key []int, ins ...*phys) *phys {
	n := &plan.Node{Kind: kind}
	p := &phys{n: n, ids: ids, key: dedup(key), nn: map[int]bool{}, wm: map[int]bool{}, ttl: len(ins) > 0}
	for _, in := range ins {
		n.Inputs = append(n.Inputs, in.n)
		p.ttl = p.ttl && in.ttl
	}
	for _, id := range ids {
		n.Schema = append(n.Schema, types.Column{Name: ph.md.cols[id].name, Type: ph.md.typ(id)})
	}
	ph.b.labels.columns[n] = slices.Clone(ids)
	return p
}

// seal writes the derived properties into the node; every phys is sealed when its properties are final.
func (ph *physical) seal(p *phys) *phys {
	p.n.Key = make([]int, 0, len(p.key))
	for _, k := range p.key {
		i := p.at(k)
		if i < 0 {
			ph.b.fail(pgerr.Newf(pgerr.InternalError, "key column %d (%s) is missing in %s", k, ph.md.cols[k].name, p.n.Kind))
		}
		p.n.Key = append(p.n.Key, i)
	}
	p.n.WatermarkCols = nil
	for i, id := range p.ids {
		if p.wm[id] {
			p.n.WatermarkCols = append(p.n.WatermarkCols, i)
		}
	}
	p.n.AppendOnly = p.app
	if p.sums {
		p.n.Key = nil
	}
	return p
}

// like makes a node with the output and properties of in.
func (ph *physical) like(kind plan.Kind, in *phys, more ...int) *phys {
	p := ph.node(kind, appendAll(in.ids, more), in.key, in)
	p.nn, p.wm, p.dist, p.cols, p.app = copySet(in.nn), copySet(in.wm), in.dist, in.cols, in.app
	return p
}

func copySet(m map[int]bool) map[int]bool {
	out := make(map[int]bool, len(m))
	for k, v := range m {
		out[k] = v
	}
	return out
}

func (ph *physical) expr(e *expr.Expr, p *phys) *expr.Expr { return ph.exprOver(e, p.ids) }

func (ph *physical) exprOver(e *expr.Expr, ids []int) *expr.Expr {
	at := make(map[int]int, len(ids))
	for i, c := range ids {
		if _, ok := at[c]; !ok {
			at[c] = i
		}
	}
	return mapCols(e, func(c int) int {
		i, ok := at[c]
		if !ok {
			ph.b.fail(pgerr.Newf(pgerr.InternalError, "column %d (%s) is missing", c, ph.md.cols[c].name))
		}
		return i
	})
}

func (p *phys) positions(ids []int) []int {
	out := make([]int, len(ids))
	for i, c := range ids {
		out[i] = p.at(c)
	}
	return out
}

func (p *phys) sortKeys(ks []sortKey) []plan.SortKey {
	out := make([]plan.SortKey, len(ks))
	for i, k := range ks {
		out[i] = plan.SortKey{Column: p.at(k.col), Desc: k.desc, NullsFirst: k.nullsFirst}
	}
	return out
}

// argName is the name of a column that holds an expression of something above it, such as a join key, or a call of a partial aggregation, until label names it by
// the expression's text, of at most maxArgName bytes.
const (
	argName    = "?arg?"
	maxArgName = 100
)

// project makes a projection; key columns that it would lose are passed on.
func (ph *physical) project(in *phys, ids []int, exprs []*expr.Expr) *phys {
	ids, exprs = append([]int(nil), ids...), append([]*expr.Expr(nil), exprs...)
	have := map[int]bool{}
	moved := map[int]int{} // input column → output column
	for i, e := range exprs {
		have[ids[i]] = true
		if e.Kind == expr.Column {
			if _, ok := moved[e.Col]; !ok {
				moved[e.Col] = ids[i]
			}
		}
	}
	key := make([]int, 0, len(in.key))
	for _, k := range in.key {
		if to, ok := moved[k]; ok {
			key = append(key, to)
			continue
		}
		ids, exprs = append(ids, k), append(exprs, ph.md.ref(k))
		moved[k] = k
		key = append(key, k)
	}
	if len(ids) == 0 {
		id := ph.md.add("?column?", types.Int4)
		ids, exprs = append(ids, id), append(exprs, intConst(types.Int4, 0))
	}
	if samePassed(ids, exprs, in.ids) {
		return in
	}
	p := ph.node(plan.KindProject, ids, key, in)
	pr := &plan.Project{}
	for i, e := range exprs {
		pr.Exprs = append(pr.Exprs, ph.expr(e, in))
		switch e.Kind {
		case expr.Column:
			p.nn[ids[i]] = in.nn[e.Col]
			p.wm[ids[i]] = in.wm[e.Col]
		case expr.Const:
			p.nn[ids[i]] = !e.Const.Null
		}
	}
	p.n.Project = pr
	if in.n.Kind == plan.KindProject && onlyColumns(exprs) {
		for i, e := range pr.Exprs {
			pr.Exprs[i] = in.n.Project.Exprs[e.Col]
		}
		p.n.Inputs = in.n.Inputs
	}
	p.app = in.app
	p.dist = in.dist
	if in.dist == distHash {
		p.dist = distAny
		var cols []int
		for _, c := range in.cols {
			if to, ok := moved[c]; ok {
				cols = append(cols, to)
			}
		}
		if len(cols) == len(in.cols) {
			p.dist, p.cols = distHash, cols
		}
	}
	return ph.seal(p)
}

func onlyColumns(es []*expr.Expr) bool {
	for _, e := range es {
		if e.Kind != expr.Column {
			return false
		}
	}
	return true
}

// samePassed reports whether a projection passes on exactly its input's columns, in whatever order.
func samePassed(ids []int, exprs []*expr.Expr, in []int) bool {
	if len(ids) != len(in) || len(dedup(ids)) != len(ids) {
		return false
	}
	have := toSet(in)
	for i, e := range exprs {
		if e.Kind != expr.Column || e.Col != ids[i] || !have[ids[i]] {
			return false
		}
	}
	return true
}

// compute adds columns to p.
func (ph *physical) compute(p *phys, ids []int, exprs []*expr.Expr) *phys {
	if len(ids) == 0 {
		return p
	}
	all := append([]int(nil), p.ids...)
	var es []*expr.Expr
	for _, id := range p.ids {
		es = append(es, ph.md.ref(id))
	}
	return ph.project(p, append(all, ids...), append(es, exprs...))
}

// build makes the plan of n. want are the columns that the consumer needs.
func (ph *physical) build(n *node, want map[int]bool) *phys {
	ph.b.poll()
	if ph.sub != nil && !ph.sub.dependent(n) {
		return ph.sub.input(n, want)
	}
	need := copySet(want)
	n.eachExpr(func(e *expr.Expr) *expr.Expr { e.Columns(need); return e })
	n.eachCol(func(c int) int { need[c] = true; return c })
	switch n.op {
	case opScan, opSource:
		p := ph.scan(n)
		if n.op == opScan && ph.wanted[n] != nil {
			p.n.Scan.Index = ph.indexScan(n, nil)
		}
		return p
	case opValues:
		return ph.values(n)
	case opSeries:
		return ph.series(n)
	case opFilter:
		return ph.filter(n, need)
	case opProject:
		used := map[int]bool{}
		for _, e := range n.exprs {
			e.Columns(used)
		}
		return ph.project(ph.build(n.in[0], used), n.cols, n.exprs)
	case opUnnest:
		return ph.unnest(n, need)
	case opWatermark:
		return ph.watermark(n, need)
	case opWindow:
		return ph.window(n, need)
	case opSession:
		return ph.session(n, need)
	case opAgg:
		return ph.agg(n)
	case opJoin:
		return ph.join(n, want, need)
	case opAsof:
		return ph.asofJoin(n, want, need)
	case opTemporal:
		return ph.temporalJoin(n, want, need)
	case opUnion:
		return ph.union(n)
	case opTopN:
		return ph.topN(n, need)
	case opOver:
		return ph.over(n, need)
	case opRecurse:
		return ph.recurse(n)
	case opWork:
		return ph.working(n)
	}
	ph.b.fail(pgerr.Newf(pgerr.InternalError, "no physical form of operator %d", n.op))
	return nil
}

func (ph *physical) reads(id uint64) {
	if id == 0 {
		return // rows that the statement's WITH clause returned
	}
	for _, x := range ph.inputs {
		if x == id {
			return
		}
	}
	ph.inputs = append(ph.inputs, id)
}

func (ph *physical) unnest(n *node, need map[int]bool) *phys {
	in := ph.build(n.in[0], need)
	p := ph.like(plan.KindUnnest, in, append(append([]int(nil), n.added...), n.ordinal)...)
	p.key = append(append([]int(nil), in.key...), n.ordinal)
	p.nn[n.ordinal] = !n.left
	u := &plan.Unnest{Left: n.left}
	for _, c := range n.calls {
		u.Calls = append(u.Calls, ph.expr(c, in))
	}
	p.n.Unnest = u
	return ph.seal(p)
}

func (ph *physical) watermark(n *node, need map[int]bool) *phys {
	in := ph.build(n.in[0], need)
	p := ph.like(plan.KindWatermark, in)
	p.wm[n.column] = true
	p.n.Watermark = &plan.Watermark{Column: in.at(n.column), Expr: ph.expr(n.wmExpr, in)}
	if late := ph.b.o.AllowedLateness; (ph.b.o.EmitOnClose || ph.b.o.DropLate) && late > 0 {
		if p.n.Watermark.Lateness = late; ph.md.typ(n.column).OID == types.OIDDate {
			p.n.Watermark.Lateness = (late + microsPerDay - 1) / microsPerDay * microsPerDay
		}
	}
	ph.seal(p)
	if n.in[0].op == opSource {
		return ph.forward(p, n.in[0].rel)
	}
	return p
}

func (ph *physical) window(n *node, need map[int]bool) *phys {
	in := ph.build(n.in[0], need)
	p := ph.like(plan.KindWindow, in, n.winStart, n.winEnd)
	p.nn[n.winStart], p.nn[n.winEnd], p.nn[n.column] = true, true, true
	if w := n.win; w.Slide > 0 || w.Step > 0 || w.Calendar != nil && w.Calendar.Count > 1 {
		p.key = append(append([]int(nil), in.key...), n.winStart)
		if w.Step > 0 || w.Calendar != nil && w.Calendar.Cumulate {
			p.key[len(in.key)] = n.winEnd
		}
	}
	if in.wm[n.column] {
		p.wm[n.winStart], p.wm[n.winEnd] = true, true
	}
	win := n.win
	win.Column = in.at(n.column)
	p.n.Window = &win
	if win.Slide > 0 && win.Slide < win.Size && win.Step == 0 && win.Calendar == nil {
		p.of = in
	}
	return ph.seal(p)
}

func (ph *physical) session(n *node, need map[int]bool) *phys {
	in := ph.build(n.in[0], need)
	if len(n.partition) == 0 {
		in = ph.require(in, distSingle, nil, need)
	} else {
		in = ph.require(in, distHash, n.partition, need)
	}
	in = ph.expire(in, nil, n.partition)
	p := ph.like(plan.KindSession, in, n.winStart, n.winEnd)
	p.nn[n.winStart], p.nn[n.winEnd], p.nn[n.column] = true, true, true
	p.n.Session = &plan.Session{Keys: in.positions(n.partition), Column: in.at(n.column), Gap: n.win.Size}
	p.wm, p.app = keepMarks(in.wm, n.partition), !ph.b.stream && in.app
	if ph.b.o.EmitOnClose && in.wm[n.column] && in.app {
		p.n.Session.OnClose = true
		p.wm[n.winEnd], p.app = true, true
		ph.onClose++
	}
	return ph.seal(p)
}

func (ph *physical) agg(n *node) *phys {
	need := map[int]bool{}
	n.eachCol(func(c int) int { need[c] = true; return c })
	in := ph.firstOfIndex(n, need)
	if in == nil {
		in = ph.build(n.in[0], need)
	}
	if len(n.group) == 0 && !n.global {
		// DISTINCT over rows without columns: one group, but none without rows.
		id := ph.md.add("?group?", types.Int4)
		in = ph.compute(in, []int{id}, []*expr.Expr{intConst(types.Int4, 0)})
		n.group = []int{id}
		need[id] = true
	}
	part, calls, rows := ph.partialAgg(n, in)
	if part != nil {
		in, need = part, toSet(part.ids)
	}
	if len(n.group) == 0 {
		in = ph.require(in, distSingle, nil, need)
	} else {
		in = ph.require(in, distHash, n.group, need)
	}
	ttl := int64(0)
	switch {
	case n.global || in.ttl || !ph.expires():
	case in.app:
		ttl = ph.b.o.StateTTL
	default:
		in = ph.expire(in, n.group, n.group)
	}
	p := ph.node(plan.KindAgg, n.out(), n.group, in)
	p.ttl = p.ttl || n.global || ttl > 0
	a := &plan.Agg{GroupBy: in.positions(n.group), Global: n.global, OnClose: -1, TTL: ttl, Rows: rows, Calls: calls}
	for i, g := range n.group {
		p.nn[g] = in.nn[g]
		p.wm[g] = in.wm[g]
		if ph.closes(g, in) {
			a.OnClose = i
		}
	}
	if a.OnClose >= 0 {
		ph.onClose++
		p.app = true
	}
	for _, c := range n.aggs {
		p.nn[c.id] = isCount(c.fn)
	}
	if part == nil {
		a.Calls = ph.calls(n.aggs, in)
	}
	p.n.Agg = a
	p.dist, p.cols = in.dist, in.cols
	return ph.seal(p)
}

func (ph *physical) calls(of []aggCall, in *phys) []plan.AggCall {
	calls := make([]plan.AggCall, 0, len(of))
	for _, c := range of {
		call := plan.AggCall{Func: c.fn, Args: in.positions(c.args), Distinct: c.distinct, Filter: -1, Type: c.typ, Direct: c.direct}
		if c.filter != 0 {
			call.Filter = in.at(c.filter)
		}
		if len(c.order) > 0 {
			call.Order = in.sortKeys(c.order)
		}
		calls = append(calls, call)
	}
	return calls
}

func (ph *physical) topN(n *node, need map[int]bool) *phys {
	want := ph.wantOrder(n)
	in := ph.build(n.in[0], need)
	if ph.b.stream && n.limit == nil && n.offset == nil {
		return in
	}
	in = ph.partialTopN(n, in)
	if len(n.group) == 0 {
		in = ph.require(in, distSingle, nil, need)
	} else {
		in = ph.require(in, distHash, n.group, need)
	}
	in = ph.expire(in, nil, n.group)
	var ranks []int
	for _, c := range n.over {
		ranks = append(ranks, c.id)
	}
	p := ph.like(plan.KindTopN, in, ranks...)
	t := &plan.TopN{Order: in.sortKeys(n.order), Limit: -1, WithTies: n.withTies, Dense: n.dense}
	for _, c := range n.over {
		t.Ranks = append(t.Ranks, rankName(c.fn))
		p.nn[c.id] = true
	}
	if len(n.group) > 0 {
		t.GroupBy = in.positions(n.group)
	}
	one := func(e *expr.Expr, v *int64, late **expr.Expr) {
		if e == nil {
			return
		}
		if e.Kind == expr.Const {
			*v = e.Const.Int
			return
		}
		if ph.b.stream {
			ph.b.fail(pgerr.Newf(pgerr.FeatureNotSupported, "LIMIT and OFFSET of a materialized view must be constants").At(e.Pos))
		}
		*late = e
	}
	one(n.limit, &t.Limit, &t.LimitExpr)
	one(n.offset, &t.Offset, &t.OffsetExpr)
	t.Early = !ph.b.stream && len(n.group) == 0 && len(n.order) == 0 && !t.WithTies && n.limit != nil && firstRows(n.in[0])
	t.Early = t.Early || want != nil && want.given
	if t.Limit == 1 && !t.WithTies && !t.Dense && t.Offset == 0 && t.OffsetExpr == nil {
		p.key = append([]int(nil), n.group...)
	}
	p.wm, p.app = keepMarks(in.wm, n.group), !ph.b.stream && p.app
	if t.OnClose = ph.closing(in, n.group); t.OnClose != nil {
		p.app = true
	}
	p.n.TopN = t
	return ph.seal(p)
}

// maxPartialTopN is how many rows per group a partial Top-N may let through: it compares new values with those of so many others.
const maxPartialTopN = 16

// partialTopN drops rows where they are that a Top-N cannot show, before they are spread by group.
func (ph *physical) partialTopN(n *node, in *phys) *phys {
	if ph.o.off(rulePartialTopN) || !in.app || len(in.key) == 0 || !ph.spreads(in, n.group) || len(n.order) == 0 ||
		n.dense || n.limit == nil || n.limit.Kind != expr.Const || n.limit.Const.Null || n.limit.Const.Int < 1 || ph.expires() {
		return in
	}
	rows := n.limit.Const.Int
	if e := n.offset; e != nil {
		if e.Kind != expr.Const || e.Const.Null || e.Const.Int < 0 || e.Const.Int > maxPartialTopN {
			return in
		}
		rows += e.Const.Int
	}
	if rows > maxPartialTopN {
		return in
	}
	p := ph.like(plan.KindPartialTopN, in)
	p.n.PartialTopN = &plan.PartialTopN{GroupBy: in.positions(n.group), Order: in.sortKeys(n.order), Limit: rows}
	p.n.PartialTopN.OnClose = ph.closingColumn(in, n.group)
	ph.o.fire(rulePartialTopN)
	return ph.seal(p)
}

// spreads reports whether rows have to travel to be together by group.
func (ph *physical) spreads(in *phys, group []int) bool {
	return ph.cut && in.dist != distSingle && (in.dist != distHash || !slices.Equal(in.cols, group))
}

// hold keeps the rows of a view that emits on close, and whose operators all emit at once, back until they are final: until the watermark of the column
// that they are ordered by, or of a column of their windows, has passed their value.
func (ph *physical) hold(in *phys, order []sortKey) *phys {
	if !ph.b.o.EmitOnClose || ph.onClose > 0 {
		return in
	}
	col := -1
	for _, id := range in.ids {
		if in.wm[id] && ph.md.cols[id].window != 0 {
			col = id
		}
	}
	if len(order) > 0 && !order[0].desc && in.has(order[0].col) && in.wm[order[0].col] {
		col = order[0].col
	}
	if col < 0 {
		return in
	}
	in = ph.require(in, distHash, []int{col}, toSet(in.ids))
	p := ph.like(plan.KindTopN, in)
	at := in.at(col)
	p.wm, p.app = keepMarks(in.wm, []int{col}), true
	p.n.TopN = &plan.TopN{GroupBy: []int{at}, Order: []plan.SortKey{}, Limit: -1, OnClose: &at}
	ph.onClose++
	return ph.seal(p)
}

// closing is closingColumn for the operator that emits its groups then.
func (ph *physical) closing(in *phys, group []int) *int {
	at := ph.closingColumn(in, group)
	if at != nil {
		ph.onClose++
	}
	return at
}

// closingColumn returns the position in in of a window's column among those that an operator groups by, when its groups are to be emitted as that closes.
func (ph *physical) closingColumn(in *phys, group []int) *int {
	if !ph.b.o.EmitOnClose {
		return nil
	}
	for _, g := range group {
		if in.wm[g] && in.nn[g] && ph.md.cols[g].window != 0 {
			at := in.at(g)
			return &at
		}
	}
	return nil
}

// keepMarks leaves the watermarks on the columns that a per-group operator groups by.
func keepMarks(wm map[int]bool, group []int) map[int]bool {
	out := map[int]bool{}
	for _, g := range group {
		out[g] = wm[g]
	}
	return out
}

// looksAhead reports whether a function reads rows behind its own and their peers.
func looksAhead(calls []overCall) bool {
	for _, c := range calls {
		switch name, _, _ := strings.Cut(c.fn, "("); name {
		case plan.RankNumber, plan.RankRank, plan.RankDense:
			continue
		case "lag":
			if len(c.args) == 1 || c.number != nil && *c.number >= 0 {
				continue
			}
			return true
		case "lead", "percent_rank", "cume_dist", "ntile":
			return true
		}
		if k := c.frame.End.Kind; k != plan.CurrentRow && k != plan.Preceding {
			return true
		}
	}
	return false
}

func (ph *physical) over(n *node, need map[int]bool) *phys {
	in := ph.build(n.in[0], need)
	if len(n.partition) == 0 {
		in = ph.require(in, distSingle, nil, need)
	} else {
		in = ph.require(in, distHash, n.partition, need)
	}
	k := n.order
	behind := len(k) > 0 && !k[0].desc && (!k[0].nullsFirst || in.nn[k[0].col]) && in.wm[k[0].col] && !looksAhead(n.over) // a row changes those behind it only
	forgets := behind && ph.b.stream && ph.b.o.DropLate && !ph.b.o.EmitOnClose && in.app
	if !forgets {
		in = ph.expire(in, nil, n.partition)
	}
	var made []int
	o := &plan.Over{PartitionBy: in.positions(n.partition), Order: in.sortKeys(n.order), Backward: n.backward}
	for _, c := range n.over {
		made = append(made, c.id)
		call := plan.OverCall{Func: c.fn, Args: in.positions(c.args), Filter: -1, Frame: c.frame, IgnoreNulls: c.ignoreNulls, Type: c.typ, Number: c.number}
		if c.filter != 0 {
			call.Filter = in.at(c.filter)
		}
		o.Calls = append(o.Calls, call)
	}
	p := ph.like(plan.KindOver, in, made...)
	for _, c := range n.over {
		p.nn[c.id] = isCount(c.fn)
	}
	p.wm, p.app = keepMarks(in.wm, n.partition), !ph.b.stream && in.app
	if behind {
		p.wm[k[0].col] = true
	}
	if forgets {
		at := in.at(k[0].col)
		o.Forget = &at
	}
	if o.OnClose = ph.closing(in, n.partition); o.OnClose != nil {
		p.app = true
	}
	p.n.Over = o
	return ph.seal(p)
}
