package planner

import (
	"slices"

	"github.com/streamdb/streamdb/internal/pgerr"
	"github.com/streamdb/streamdb/planner/plan"
	"github.com/streamdb/streamdb/sql/expr"
	"github.com/streamdb/streamdb/types"
)

// decorrelate turns every apply into joins, innermost first. In order of preference:
//
//	nothing correlated          an ordinary join
//	set-returning function      unnest over the outer rows
//	rows made of the outer ones projections, conditions and set-returning functions over the outer rows
//	correlated filters          pulled up into the join condition; a scalar aggregate becomes a grouped one
//	anything else               the subquery is evaluated for the distinct outer values (general unnesting)
func (o *optimizer) decorrelate(n *node) *node {
	for i, in := range n.in {
		n.in[i] = o.decorrelate(in)
	}
	if n.op != opApply {
		return n
	}
	o.b.poll()
	l, r := n.in[0], n.in[1]
	outer := correlated(r, toSet(l.out()))
	if len(outer) == 0 {
		n.op = opJoin
		return n
	}
	o.fire("decorrelate")
	if u := o.lateralUnnest(n, l, r); u != nil {
		return u
	}
	if u := o.lateralRow(n, l, r); u != nil {
		return u
	}
	if !o.off(ruleUnnestFilters) {
		set := toSet(l.out())
		if u := o.scalarAggregate(n, l, r, set); u != nil {
			o.fire(ruleUnnestFilters)
			return u
		}
		if !hasGlobalAgg(r, set) {
			c := o.trial(r)
			if in, preds, ok := o.pullUp(c, set); ok {
				o.fire(ruleUnnestFilters)
				return &node{op: opJoin, in: []*node{l, in}, jtype: n.jtype, cond: and(append(preds, conjuncts(n.cond)...)...)}
			}
		}
	}
	return o.overDomain(n, l, r, outer)
}

// correlated returns the columns of set that n uses without making them, in ascending order.
func correlated(n *node, set map[int]bool) []int {
	var out []int
	for c := range freeCols(n) {
		if set[c] {
			out = append(out, c)
		}
	}
	sortInts(out)
	return out
}

func sortInts(a []int) {
	for i := 1; i < len(a); i++ {
		for j := i; j > 0 && a[j] < a[j-1]; j-- {
			a[j], a[j-1] = a[j-1], a[j]
		}
	}
}

// trial copies a tree, keeping its ids: pullUp may give up half way.
func (o *optimizer) trial(n *node) *node {
	c := cloneNode(n)
	for i, in := range c.in {
		c.in[i] = o.trial(in)
	}
	return c
}

// lateralUnnest handles t, f(t.x): the function runs over the outer rows themselves.
func (o *optimizer) lateralUnnest(n, l, r *node) *node {
	if r.op != opUnnest || r.in[0].op != opValues || len(r.in[0].rows) != 1 || n.jtype != plan.Inner && n.jtype != plan.Left {
		return nil
	}
	if n.jtype == plan.Left && n.cond != nil {
		return nil
	}
	u := &node{op: opUnnest, in: []*node{l}, calls: r.calls, added: r.added, ordinal: r.ordinal, left: n.jtype == plan.Left}
	// The dual's column is not used by anybody, but it is part of the output.
	in := o.md.extend(u, r.in[0].cols, r.in[0].rows[0])
	return filterNode(in, n.cond)
}

// lateralRow handles subqueries that read no relation, such as (SELECT t.x + 1 AS y): what they compute is computed over the outer rows.
func (o *optimizer) lateralRow(n, l, r *node) *node {
	if n.jtype != plan.Inner && n.jtype != plan.Left {
		return nil
	}
	out, cond := dedup(r.out()), n.cond
	m := map[int]int{}
	if n.jtype == plan.Left {
		// The columns get other ids below: what they show depends on the conditions.
		r = o.md.copyTree(r, m)
		if cond != nil {
			cond = mapCols(cond, func(id int) int {
				if x, ok := m[id]; ok {
					return x
				}
				return id
			})
		}
	}
	var chain []*node
	at := r
	for at.op == opProject || at.op == opFilter || at.op == opUnnest && n.jtype == plan.Inner {
		chain = append(chain, at)
		at = at.in[0]
	}
	if at.op != opValues || len(at.rows) != 1 {
		return nil
	}
	made := o.md.extend(l, at.cols, at.rows[0])
	var conds []*expr.Expr // of a left join, whose outer rows stay
	for _, c := range slices.Backward(chain) {
		switch c.op {
		case opFilter:
			if n.jtype == plan.Left {
				conds = append(conds, c.cond)
				continue
			}
			made = filterNode(made, c.cond)
		case opUnnest:
			c.in = []*node{made}
			made = c
		case opProject:
			have := toSet(made.out())
			var ids []int
			var exprs []*expr.Expr
			for i, id := range c.cols {
				if !have[id] {
					ids, exprs = append(ids, id), append(exprs, c.exprs[i])
				}
			}
			made = o.md.extend(made, ids, exprs)
		}
	}
	if n.jtype == plan.Inner {
		return filterNode(made, cond)
	}
	p := o.md.narrow(made, l.out())
	cond = and(append(conds, cond)...)
	for _, id := range out {
		e := o.md.ref(m[id])
		if cond != nil {
			e = &expr.Expr{Kind: expr.Case, Type: e.Type, Args: []*expr.Expr{cond, e}, Pos: e.Pos}
		}
		p.cols, p.exprs = append(p.cols, id), append(p.exprs, e)
	}
	return p
}

// eqSides splits a correlated equality into its inner and its outer side.
func (o *optimizer) eqSides(p *expr.Expr, outer map[int]bool) (inner, out *expr.Expr, ok bool) {
	if !o.equality(p) || p.Args[0].Type.OID != p.Args[1].Type.OID {
		return nil, nil, false
	}
	a, c := p.Args[0], p.Args[1]
	aSome, aAll := refs(a, outer)
	cSome, cAll := refs(c, outer)
	switch {
	case aSome && aAll && !cSome:
		return c, a, true
	case cSome && cAll && !aSome:
		return a, c, true
	}
	return nil, nil, false
}

// pullUp takes the predicates that use outer columns out of n. It fails when anything else uses them. The caller owns n's tree.
func (o *optimizer) pullUp(n *node, outer map[int]bool) (*node, []*expr.Expr, bool) {
	if len(correlated(n, outer)) == 0 {
		return n, nil, true
	}
	own := func(es []*expr.Expr) bool {
		for _, e := range es {
			if some, _ := refs(e, outer); some {
				return false
			}
		}
		return true
	}
	split := func(cond *expr.Expr) (keep, pulled []*expr.Expr) {
		for _, c := range conjuncts(cond) {
			if some, _ := refs(c, outer); some {
				pulled = append(pulled, c)
			} else {
				keep = append(keep, c)
			}
		}
		return keep, pulled
	}
	var preds []*expr.Expr
	var ok bool
	switch n.op {
	case opFilter:
		if n.in[0], preds, ok = o.pullUp(n.in[0], outer); !ok {
			return nil, nil, false
		}
		keep, pulled := split(n.cond)
		return filterNode(n.in[0], and(keep...)), append(preds, pulled...), true
	case opProject:
		if !own(n.exprs) {
			return nil, nil, false
		}
		if n.in[0], preds, ok = o.pullUp(n.in[0], outer); !ok {
			return nil, nil, false
		}
		have := toSet(n.cols)
		below := toSet(n.in[0].out())
		for _, p := range preds {
			used := map[int]bool{}
			p.Columns(used)
			for _, c := range sortedKeys(used) {
				if below[c] && !have[c] {
					have[c] = true
					n.cols, n.exprs = append(n.cols, c), append(n.exprs, o.md.ref(c))
				}
			}
		}
		return n, preds, true
	case opJoin:
		if n.jtype == plan.Right || n.jtype == plan.Full {
			return nil, nil, false
		}
		if n.in[0], preds, ok = o.pullUp(n.in[0], outer); !ok {
			return nil, nil, false
		}
		if n.jtype == plan.Inner {
			r, more, ok := o.pullUp(n.in[1], outer)
			if !ok {
				return nil, nil, false
			}
			n.in[1] = r
			keep, pulled := split(n.cond)
			n.cond = and(keep...)
			return n, append(append(preds, more...), pulled...), true
		}
		if len(correlated(n.in[1], outer)) > 0 || n.cond != nil && !own([]*expr.Expr{n.cond}) {
			return nil, nil, false
		}
		return n, preds, true
	case opAgg:
		if n.global {
			return nil, nil, false
		}
		return o.pullThrough(n, outer, &n.group)
	case opTopN:
		if n.limit != nil && !own([]*expr.Expr{n.limit}) || n.offset != nil && !own([]*expr.Expr{n.offset}) {
			return nil, nil, false
		}
		if n.limit == nil && n.offset == nil {
			return o.pullUp(n.in[0], outer)
		}
		return o.pullThrough(n, outer, &n.group)
	case opOver, opSession:
		return o.pullThrough(n, outer, &n.partition)
	case opWindow, opWatermark, opUnnest:
		if !own(n.calls) {
			return nil, nil, false
		}
		n.in[0], preds, ok = o.pullUp(n.in[0], outer)
		return n, preds, ok
	}
	return nil, nil, false
}

func sortedKeys(m map[int]bool) []int {
	out := make([]int, 0, len(m))
	for c := range m {
		out = append(out, c)
	}
	sortInts(out)
	return out
}

// pullThrough pulls predicates through an operator that works per group: equalities become part of the group.
func (o *optimizer) pullThrough(n *node, outer map[int]bool, group *[]int) (*node, []*expr.Expr, bool) {
	in, preds, ok := o.pullUp(n.in[0], outer)
	if !ok {
		return nil, nil, false
	}
	var out []*expr.Expr
	pre := &preparer{b: o.b, in: in}
	for _, p := range preds {
		inner := map[int]bool{}
		p.Columns(inner)
		grouped := toSet(*group)
		all := true
		for c := range inner {
			all = all && (outer[c] || grouped[c])
		}
		if all {
			out = append(out, p)
			continue
		}
		i, x, ok := o.eqSides(p, outer)
		if !ok {
			return nil, nil, false
		}
		id := pre.col(i)
		if !grouped[id] {
			*group = append(*group, id)
		}
		out = append(out, &expr.Expr{Kind: expr.Call, Type: types.Bool, Func: p.Func, Args: []*expr.Expr{o.md.ref(id), x}, Pos: p.Pos})
	}
	n.in[0] = pre.node()
	return n, out, true
}

// hasGlobalAgg reports whether a correlated aggregate without groups is on the way down: it has a row even over no input, so its
// predicates cannot be pulled up.
func hasGlobalAgg(n *node, outer map[int]bool) bool {
	found := false
	n.walk(func(x *node) {
		if x.op == opAgg && x.global && len(correlated(x, outer)) > 0 {
			found = true
		}
	})
	return found
}

// scalarAggregate handles a correlated aggregate without groups under projections and filters: it is grouped by the inner sides of
// the correlated equalities and joined; where no group exists the result is what the aggregates yield over no rows.
func (o *optimizer) scalarAggregate(n, l, r *node, outer map[int]bool) *node {
	if n.jtype != plan.Left && n.jtype != plan.Inner || n.jtype == plan.Left && n.cond != nil {
		return nil
	}
	var chain []*node
	at := r
	for at.op == opProject || at.op == opFilter {
		// Expressions above the aggregate may use outer columns: they are evaluated after the join anyway.
		chain = append(chain, at)
		at = at.in[0]
	}
	if at.op != opAgg || !at.global {
		return nil
	}
	in, preds, ok := o.pullUp(o.trial(at.in[0]), outer)
	if !ok {
		return nil
	}
	pre := &preparer{b: o.b, in: in}
	agg := &node{op: opAgg}
	var conds []*expr.Expr
	for _, p := range preds {
		i, x, ok := o.eqSides(p, outer)
		if !ok {
			return nil
		}
		id := pre.col(i)
		agg.group = dedup(append(agg.group, id))
		conds = append(conds, &expr.Expr{Kind: expr.Call, Type: types.Bool, Func: p.Func, Args: []*expr.Expr{o.md.ref(id), x}, Pos: p.Pos})
	}
	if len(agg.group) == 0 || treeMayFail(in) {
		return nil // groups that no outer row asks for must not fail
	}
	// A grouping column that is also passed to the join needs an id of its own side only; the inner ids are unique already.
	agg.in = []*node{pre.node()}
	m := o.rawAggs(agg, at.aggs)
	join := &node{op: opJoin, in: []*node{l, agg}, jtype: plan.Left, cond: and(conds...)}
	var filters []*expr.Expr
	outs := at.out()
	for i := len(chain) - 1; i >= 0; i-- {
		c := chain[i]
		if c.op == opFilter {
			filters = append(filters, substitute(c.cond, m))
			continue
		}
		next := map[int]*expr.Expr{}
		for k, id := range c.cols {
			next[id] = substitute(c.exprs[k], m)
		}
		m, outs = next, c.cols
	}
	p := o.md.narrow(join, l.out())
	having := and(filters...)
	for _, id := range dedup(outs) {
		e := m[id]
		if having != nil && n.jtype == plan.Left {
			e = &expr.Expr{Kind: expr.Case, Type: e.Type, Args: []*expr.Expr{having, e}, Pos: e.Pos}
		}
		p.cols, p.exprs = append(p.cols, id), append(p.exprs, e)
	}
	if n.jtype == plan.Left {
		return p
	}
	if having != nil {
		p.in[0] = filterNode(join, having)
	}
	return filterNode(p, n.cond)
}

// rawAggs gives agg the calls under new ids and returns the expressions that stand for the old ones after an outer join: counts
// of nothing are 0, everything else NULL. That a group has more than one row is an error of those who ask for its value alone.
func (o *optimizer) rawAggs(agg *node, calls []aggCall) map[int]*expr.Expr {
	m := map[int]*expr.Expr{}
	single, err := o.b.reg.ResolveFunction("$single", []types.Type{types.Int8})
	if err != nil {
		o.b.fail(err)
	}
	rows := -1
	for _, a := range calls {
		old := a.id
		a.id = o.md.add(o.md.cols[old].name, a.typ)
		switch {
		case isCount(a.fn):
			m[old] = coalesce(o.md.ref(a.id), intConst(a.typ, 0))
		case a.fn == scalarAgg:
			if rows < 0 {
				rows = o.md.add("?rows?", types.Int8)
				agg.aggs = append(agg.aggs, aggCall{id: rows, fn: o.b.countFunc(), typ: types.Int8})
			}
			a.fn = firstAgg
			ok := &expr.Expr{Kind: expr.Call, Type: types.Bool, Func: single.Func.ID, Args: []*expr.Expr{o.md.ref(rows)}, Pos: -1}
			m[old] = &expr.Expr{Kind: expr.Case, Type: a.typ, Args: []*expr.Expr{ok, o.md.ref(a.id)}, Pos: -1}
		default:
			m[old] = o.md.ref(a.id)
		}
		agg.aggs = append(agg.aggs, a)
	}
	return m
}

const (
	scalarAgg = "$scalar(anyelement)" // fails where a group has more than one row
	firstAgg  = "$first(anyelement)"
)

// maxCopied caps the nodes that unnesting subqueries copies: each may double what is around it.
const maxCopied = 50_000

// domain is the set of distinct outer values that a subquery depends on.
type domain struct {
	o    *optimizer
	l    *node
	cols []int
	// works are the recursive queries whose working tables carry the domain's values.
	works map[int]bool
}

// depends reports whether n has to be evaluated for each value of the domain.
func (d *domain) depends(n *node, set map[int]bool) bool {
	if len(correlated(n, set)) > 0 {
		return true
	}
	found := false
	n.walk(func(x *node) { found = found || x.op == opWork && d.works[x.work] })
	return found
}

// fresh returns another copy of the domain and its columns.
func (d *domain) fresh() (*node, map[int]int) {
	d.o.b.poll()
	m := map[int]int{}
	c := d.o.md.copyTree(d.l, m)
	if c.walk(func(*node) { d.o.copied++ }); d.o.copied > maxCopied {
		d.o.b.fail(pgerr.Newf(pgerr.StatementTooComplex, "the subqueries of the statement expand to more than %d operators", maxCopied))
	}
	ids := map[int]int{}
	var group []int
	for _, f := range d.cols {
		id := f
		if x, ok := m[f]; ok {
			id = x
		}
		ids[f] = id
		group = append(group, id)
	}
	return &node{op: opAgg, in: []*node{d.o.md.narrow(c, dedup(group))}, group: dedup(group)}, ids
}

func (o *optimizer) overDomain(n, l, r *node, outer []int) *node {
	for _, c := range outer {
		if !orderable(o.md.typ(c)) {
			o.b.fail(pgerr.Newf(pgerr.FeatureNotSupported, "a subquery cannot depend on column \"%s\" of type %s", o.md.cols[c].name, o.md.typ(c)))
		}
	}
	d := &domain{o: o, l: domainSource(l, outer), cols: outer, works: map[int]bool{}}
	in, m := d.push(r)
	cond := append(conjuncts(n.cond), d.match(identity(outer), m)...)
	return &node{op: opJoin, in: []*node{l, in}, jtype: n.jtype, cond: and(cond...)}
}

// domainSource is the lowest node under l that has the same values in the given columns: what subqueries before this one added is not copied
// once more, which would double the tree with each of them.
func domainSource(l *node, cols []int) *node {
	for {
		switch {
		case l.op == opJoin && l.jtype == plan.Left:
		case l.op == opProject:
			for i, c := range l.cols {
				if slices.Contains(cols, c) && (l.exprs[i].Kind != expr.Column || l.exprs[i].Col != c) {
					return l
				}
			}
		default:
			return l
		}
		have := toSet(l.in[0].out())
		for _, c := range cols {
			if !have[c] {
				return l
			}
		}
		l = l.in[0]
	}
}

func identity(ids []int) map[int]int {
	m := map[int]int{}
	for _, c := range ids {
		m[c] = c
	}
	return m
}

// match compares two copies of the domain, NULL equal to NULL.
func (d *domain) match(a, c map[int]int) []*expr.Expr {
	var out []*expr.Expr
	for _, f := range d.cols {
		e, err := d.o.b.distinct(d.o.md.ref(a[f]), d.o.md.ref(c[f]), -1)
		if err != nil {
			d.o.b.fail(err)
		}
		out = append(out, not(e))
	}
	return out
}

func (d *domain) values(m map[int]int) []int {
	var out []int
	for _, f := range d.cols {
		out = append(out, m[f])
	}
	return dedup(out)
}

// push evaluates n for every value of the domain: the result has n's columns and the domain's, under the ids returned.
func (d *domain) push(n *node) (*node, map[int]int) {
	o := d.o
	set := toSet(d.cols)
	if !d.depends(n, set) {
		dn, m := d.fresh()
		return &node{op: opJoin, in: []*node{dn, n}, jtype: plan.Inner}, m
	}
	rename := func(m map[int]int) {
		use := func(c int) int {
			if x, ok := m[c]; ok {
				return x
			}
			return c
		}
		n.eachExpr(func(e *expr.Expr) *expr.Expr { return mapCols(e, use) })
		n.eachCol(use)
	}
	var m map[int]int
	switch n.op {
	case opTemporal:
		o.b.fail(pgerr.Newf(pgerr.FeatureNotSupported, "a correlated subquery cannot use FOR SYSTEM_TIME AS OF PROCTIME()").At(n.pos))
	case opJoin, opAsof:
		return d.pushJoin(n, set, rename)
	case opWork:
		m = map[int]int{}
		for _, f := range d.cols {
			m[f] = o.md.copy(f)
			n.cols = append(n.cols, m[f])
		}
		return n, m
	case opUnion, opRecurse:
		out := map[int]int{}
		vals := make([]int, len(d.cols))
		for i, f := range d.cols {
			vals[i] = o.md.copy(f)
			out[f] = vals[i]
		}
		for k := range n.in {
			// Each iteration of a recursive query passes the value on that it belongs to.
			if n.op == opRecurse {
				d.works[n.work] = k == 1
			}
			in, mk := d.push(n.in[k])
			n.in[k] = in
			for i, c := range n.branches[k] {
				if x, ok := mk[c]; ok {
					n.branches[k][i] = x
				}
			}
			for _, f := range d.cols {
				n.branches[k] = append(n.branches[k], mk[f])
			}
		}
		n.cols = append(n.cols, vals...)
		return n, out
	}
	n.in[0], m = d.push(n.in[0])
	rename(m)
	vals := d.values(m)
	switch n.op {
	case opProject:
		have := toSet(n.cols)
		for _, v := range vals {
			if !have[v] {
				n.cols, n.exprs = append(n.cols, v), append(n.exprs, o.md.ref(v))
			}
		}
	case opAgg:
		if n.global {
			agg := &node{op: opAgg, in: n.in, group: vals}
			raw := o.rawAggs(agg, n.aggs)
			dn, dm := d.fresh()
			join := &node{op: opJoin, in: []*node{dn, agg}, jtype: plan.Left, cond: and(d.match(dm, m)...)}
			p := o.md.narrow(join, d.values(dm))
			for _, a := range n.aggs {
				p.cols, p.exprs = append(p.cols, a.id), append(p.exprs, raw[a.id])
			}
			return p, dm
		}
		n.group = dedup(append(n.group, vals...))
	case opTopN:
		n.group = dedup(append(n.group, vals...))
	case opOver:
		n.partition = dedup(append(n.partition, vals...))
	}
	return n, m
}

func (d *domain) pushJoin(n *node, set map[int]bool, rename func(map[int]int)) (*node, map[int]int) {
	lf, rf := d.depends(n.in[0], set), d.depends(n.in[1], set)
	left, right := lf, rf
	switch n.jtype {
	case plan.Inner:
		left = lf || !rf || n.op == opAsof // the nearest row is one for each value
	case plan.Left, plan.Semi, plan.Anti:
		left = true
	case plan.Right:
		right = true
	case plan.Full:
		left, right = true, true
	}
	var ml, mr map[int]int
	if left {
		n.in[0], ml = d.push(n.in[0])
	}
	if right {
		n.in[1], mr = d.push(n.in[1])
	}
	m := ml
	if !left || n.jtype == plan.Right {
		m = mr
	}
	rename(m)
	if left && right {
		n.cond = and(append(conjuncts(n.cond), d.match(ml, mr)...)...)
	}
	if n.jtype != plan.Full {
		return n, m
	}
	// Either side may be padded: the domain's value is whichever is there.
	p := d.o.md.narrow(n, n.out())
	out := map[int]int{}
	for _, f := range d.cols {
		id := d.o.md.copy(f)
		p.cols, p.exprs = append(p.cols, id), append(p.exprs, coalesce(d.o.md.ref(ml[f]), d.o.md.ref(mr[f])))
		out[f] = id
	}
	return p, out
}
