package planner

import (
	"slices"
	"strings"

	"github.com/streamdb/streamdb/planner/plan"
	"github.com/streamdb/streamdb/sql/expr"
	"github.com/streamdb/streamdb/types"
)

// closes reports whether an aggregation that groups by g emits its rows when the window that g ends closes.
func (ph *physical) closes(g int, in *phys) bool {
	return ph.b.o.EmitOnClose && in.wm[g] && ph.md.cols[g].window == g
}

// extreme reports whether a call is the least or the greatest of the values of a column, as it is.
func (md *metadata) extreme(c aggCall) (greatest, ok bool) {
	fn, _, _ := strings.Cut(c.fn, "(")
	return fn == "max", (fn == "min" || fn == "max") && len(c.args) == 1 && c.filter == 0 && c.typ.OID == md.typ(c.args[0]).OID
}

// hasValues is the condition that columns are not NULL, nil where none can be.
func (md *metadata) hasValues(cols []int) *expr.Expr {
	var conds []*expr.Expr
	for _, c := range cols {
		if !md.cols[c].notNull {
			conds = append(conds, isNotNull(md.ref(c)))
		}
	}
	return and(conds...)
}

// firstOfIndex gives the input of an aggregation that asks for nothing but the least or greatest value of all rows: the first row of an index in
// that order. It returns nil when there is no such index.
func (ph *physical) firstOfIndex(n *node, need map[int]bool) *phys {
	if ph.b.stream || len(n.group) > 0 || len(n.aggs) != 1 || ph.o.off(ruleMinMax) {
		return nil
	}
	c := n.aggs[0]
	greatest, ok := ph.md.extreme(c)
	if !ok {
		return nil
	}
	first := &node{op: opTopN, in: []*node{filterNode(n.in[0], ph.md.hasValues(c.args))}, limit: intConst(types.Int8, 1)}
	// Read backwards, an index has its NULLs first, where they are as a rule.
	first.order = []sortKey{{col: c.args[0], desc: greatest, nullsFirst: greatest}}
	want := ph.wantOrder(first)
	if want == nil {
		return nil
	}
	p := ph.topN(first, need)
	if !p.n.TopN.Early {
		return nil
	}
	ph.o.fire(ruleMinMax)
	return p
}

// partialAgg puts a partial aggregation of in below the exchange that n needs, where all calls can be made of sums or need no more than values and how often
// they are there. It returns the calls that go on from there, and the column that counts rows.
func (ph *physical) partialAgg(n *node, in *phys) (*phys, []plan.AggCall, *int) {
	if ph.o.off(rulePartialAgg) || !ph.spreads(in, n.group) || !in.app && !n.global && !in.ttl && ph.expires() {
		return nil, nil, nil
	}
	group := n.group
	from, pane := ph.panes(n, in)
	if from != nil {
		group = append(slices.DeleteFunc(slices.Clone(group), func(g int) bool { return ph.md.cols[g].window != 0 && !from.has(g) }), pane)
	} else {
		from = in
	}
	pt := &partial{ph: ph, in: from, ids: append([]int(nil), group...), plan: &plan.PartialAgg{GroupBy: from.positions(group), OnClose: -1, Calls: []plan.AggCall{}}}
	var rows *int
	if !in.app {
		rows = pt.add(plan.AggCall{Func: "count", Filter: -1, Type: types.Int8})
		at := *rows - len(group)
		pt.plan.Rows = &at
	}
	calls := make([]plan.AggCall, 0, len(n.aggs))
	for _, c := range n.aggs {
		call := plan.AggCall{Func: c.fn, Filter: -1, Type: c.typ}
		if !pt.split(c, &call) {
			p := ph.consolidate(n, in)
			if p == nil {
				return nil, nil, nil
			}
			return p, ph.calls(n.aggs, p), nil
		}
		calls = append(calls, call)
	}
	if from == in {
		return ph.partialNode(n, in, pt.ids, pt.plan), calls, rows
	}
	return ph.slide(n, in, pt, pane), calls, rows
}

// panes gives an aggregation of sliding windows the rows below them, each with the slide that it falls into: a window is made of whole slides, which are added up once for all
// windows that have them. It returns the column that the slide begins with, and nil where rows are needed window by window.
func (ph *physical) panes(n *node, in *phys) (*phys, int) {
	if in.of == nil || ph.o.off(rulePanes) {
		return nil, 0
	}
	w, x := in.n.Window, in.of
	start, end := in.ids[len(in.ids)-2], in.ids[len(in.ids)-1]
	if !slices.Contains(n.group, start) && !slices.Contains(n.group, end) || slices.Contains(n.group, x.ids[w.Column]) {
		return nil, 0
	}
	for _, c := range n.aggs {
		if c.filter == start || c.filter == end || slices.Contains(c.args, start) || slices.Contains(c.args, end) || len(c.order) > 0 || c.distinct || len(c.direct) > 0 {
			return nil, 0
		}
	}
	first, last := ph.md.add("pane_start", ph.md.typ(start)), ph.md.add("pane_end", ph.md.typ(end))
	p := ph.like(plan.KindWindow, x, first, last)
	p.nn[first], p.nn[last] = true, true
	p.wm[first], p.wm[last] = in.wm[start], in.wm[end]
	p.ttl = x.ttl
	p.n.Window = &plan.Window{Column: w.Column, Size: w.Slide, Offset: w.Offset, Reach: w.Size}
	return ph.seal(p), first
}

// slide puts the sums of slides into the windows that in has.
func (ph *physical) slide(n *node, in *phys, pt *partial, pane int) *phys {
	start, end := in.ids[len(in.ids)-2], in.ids[len(in.ids)-1]
	if slices.ContainsFunc(n.group, func(g int) bool { return ph.closes(g, in) }) {
		pt.plan.OnClose = slices.Index(pt.ids, pane)
	}
	sums := ph.sums(pt.ids[:len(pt.plan.GroupBy)], pt.in, pt.ids, pt.plan)
	ph.o.fire(rulePanes)
	p := ph.like(plan.KindWindow, sums, start, end)
	p.sums = true
	p.nn[start], p.nn[end] = true, true
	p.wm[start], p.wm[end] = in.wm[start], in.wm[end]
	w := *in.n.Window
	w.Column = p.at(pane)
	p.n.Window = &w
	return ph.seal(p)
}

func (ph *physical) partialNode(n *node, in *phys, ids []int, part *plan.PartialAgg) *phys {
	for _, g := range n.group {
		if ph.closes(g, in) {
			part.OnClose = slices.Index(ids, g)
		}
	}
	return ph.sums(n.group, in, ids, part)
}

// sums is a partial aggregation by group.
func (ph *physical) sums(group []int, in *phys, ids []int, part *plan.PartialAgg) *phys {
	p := ph.node(plan.KindPartialAgg, ids, nil, in)
	for _, g := range group {
		p.nn[g], p.wm[g] = in.nn[g], in.wm[g]
	}
	p.n.PartialAgg = part
	p.app, p.sums = in.app, true
	ph.o.fire(rulePartialAgg)
	return ph.seal(p)
}

// consolidate makes rows with the same values of all columns that n needs one. It returns nil where these tell the rows apart, and where calls do not only count
// on them: lists need the order of rows, and floats the order that they are added up in.
func (ph *physical) consolidate(n *node, in *phys) *phys {
	ids := append([]int(nil), n.group...)
	for _, c := range n.aggs {
		name, _, _ := strings.Cut(c.fn, "(")
		switch name {
		case "count", "min", "max", "approx_count_distinct", "bool_and", "bool_or", "every", "bit_and", "bit_or", "bit_xor":
		case "sum", "avg", "stddev", "stddev_samp", "stddev_pop", "variance", "var_samp", "var_pop":
			if k := ph.md.typ(c.args[0]).Kind(); k != types.KindInt && k != types.KindNumeric {
				return nil
			}
		case "string_agg", "array_agg", "json_agg", "jsonb_agg":
			if !c.distinct {
				return nil
			}
		default:
			return nil
		}
		ids = append(ids, c.args...)
		for _, k := range c.order {
			ids = append(ids, k.col)
		}
		if c.filter != 0 {
			ids = append(ids, c.filter)
		}
	}
	ids = dedup(ids)
	if !slices.ContainsFunc(in.key, func(k int) bool { return !slices.Contains(ids, k) }) {
		return nil
	}
	return ph.partialNode(n, in, ids, &plan.PartialAgg{GroupBy: in.positions(ids), OnClose: -1, Calls: []plan.AggCall{}, Consolidate: true})
}

// partial is a partial aggregation in the making.
type partial struct {
	ph   *physical
	in   *phys
	ids  []int // output columns
	plan *plan.PartialAgg
}

// add returns the output column of a call, of an equal one if there is one.
func (pt *partial) add(c plan.AggCall) *int {
	at := slices.IndexFunc(pt.plan.Calls, func(x plan.AggCall) bool {
		return x.Func == c.Func && slices.Equal(x.Args, c.Args) && x.Filter == c.Filter
	})
	if at < 0 {
		at = len(pt.plan.Calls)
		pt.plan.Calls = append(pt.plan.Calls, c)
		pt.ids = append(pt.ids, pt.ph.md.add(argName, c.Type))
	}
	at += len(pt.plan.GroupBy)
	return &at
}

// split adds what a call is made of and makes call that which puts it together. It returns false where that is not possible: DISTINCT and ordered calls need
// the values, those of floats add up to the same in one order only, and what is not the least value any more may be it again.
func (pt *partial) split(c aggCall, call *plan.AggCall) bool {
	name, _, _ := strings.Cut(c.fn, "(")
	if len(c.order) > 0 || len(c.args) > 1 || len(c.direct) > 0 {
		return false
	}
	if name == "every" {
		name = "bool_and"
	}
	var arg types.Type
	part := plan.AggCall{Args: pt.in.positions(c.args), Filter: -1}
	if len(c.args) > 0 {
		arg = pt.ph.md.typ(c.args[0])
	}
	if c.filter != 0 {
		part.Filter = pt.in.at(c.filter)
	}
	one := func(fn string, t types.Type) *int {
		part.Func, part.Type = fn, t
		return pt.add(part)
	}
	call.Args = []int{}
	switch name {
	case "min", "max", "bool_and", "bool_or":
		switch {
		case pt.in.app:
			call.Args = []int{*one(name, arg)}
		case name == "bool_and" || name == "bool_or":
			call.Args, call.Count = []int{*one(plan.CountTrue, types.Int8)}, one("count", types.Int8)
		default:
			return false
		}
		return true
	}
	if c.distinct {
		return false
	}
	sum := types.Int8
	if k := arg.Kind(); k == types.KindNumeric {
		sum = types.NumericType
	} else if k != types.KindInt && name != "count" {
		return false
	}
	switch name {
	case "count":
		call.Count = one("count", types.Int8)
	case "sum":
		call.Args = []int{*one("sum", sum)}
		if !pt.in.app {
			call.Count = one("count", types.Int8)
		}
	case "avg":
		call.Args, call.Count = []int{*one("sum", sum)}, one("count", types.Int8)
	case "stddev", "stddev_samp", "stddev_pop", "variance", "var_samp", "var_pop":
		call.Args, call.Squares, call.Count = []int{*one("sum", sum)}, one(plan.SumOfSquares, types.NumericType), one("count", types.Int8)
	default:
		return false
	}
	return true
}
