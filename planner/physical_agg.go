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

// firstOfIndex gives the input of an aggregation that asks for nothing but the least or greatest value of all rows: the first row of an index in
// that order. It returns nil when there is no such index.
func (ph *physical) firstOfIndex(n *node, need map[int]bool) *phys {
	if ph.b.stream || len(n.group) > 0 || len(n.aggs) != 1 || ph.o.off(ruleMinMax) {
		return nil
	}
	c := n.aggs[0]
	fn, _, _ := strings.Cut(c.fn, "(")
	if fn != "min" && fn != "max" || len(c.args) != 1 || c.filter != 0 || c.typ.OID != ph.md.typ(c.args[0]).OID {
		return nil
	}
	arg := ph.md.ref(c.args[0])
	first := &node{op: opTopN, in: []*node{n.in[0]}, limit: intConst(types.Int8, 1)}
	if !ph.md.cols[arg.Col].notNull {
		first.in[0] = &node{op: opFilter, in: []*node{n.in[0]}, cond: &expr.Expr{Kind: expr.IsNotNull, Type: types.Bool, Args: []*expr.Expr{arg}}}
	}
	// Read backwards, an index has its NULLs first, where they are as a rule.
	first.order = []sortKey{{col: arg.Col, desc: fn == "max", nullsFirst: fn == "max"}}
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

// partialAgg puts a partial aggregation of in below the exchange that n needs, where that is right: rows are only ever added, and sums of sums are
// the sums. It returns the calls that add up the partial results, or nil.
func (ph *physical) partialAgg(n *node, in *phys) (*phys, []aggCall) {
	if !ph.cut || ph.o.off(rulePartialAgg) || !in.app || in.dist == distSingle || in.dist == distHash && slices.Equal(in.cols, n.group) {
		return nil, nil
	}
	for _, g := range n.group {
		t := ph.md.typ(g)
		if t.Kind() != types.KindInt && t.OID != types.OIDText && t.OID != types.OIDVarchar {
			return nil, nil
		}
	}
	res, err := ph.b.reg.ResolveFunction("sum", []types.Type{types.Int8})
	if err != nil {
		return nil, nil
	}
	ids := append([]int(nil), n.group...)
	part := &plan.PartialAgg{GroupBy: in.positions(n.group), OnClose: -1, Calls: []plan.AggCall{}}
	var sums []aggCall
	for _, c := range n.aggs {
		t, fn, ok := ph.partialCall(c)
		if !ok {
			return nil, nil
		}
		if fn == "" {
			fn = res.Func.ID
		}
		id := ph.md.add(ph.md.cols[c.id].name, t)
		ids = append(ids, id)
		call := plan.AggCall{Func: c.fn, Args: in.positions(c.args), Filter: -1, Type: t}
		if c.filter != 0 {
			call.Filter = in.at(c.filter)
		}
		part.Calls = append(part.Calls, call)
		sums = append(sums, aggCall{id: c.id, fn: fn, args: []int{id}, typ: c.typ})
	}
	for _, k := range dedup(in.key) {
		if !slices.Contains(n.group, k) {
			ids = append(ids, k)
			part.Rest = append(part.Rest, in.at(k))
		}
	}
	p := ph.node(plan.KindPartialAgg, ids, in.key, in)
	for i, g := range n.group {
		p.nn[g], p.wm[g] = in.nn[g], in.wm[g]
		if ph.closes(g, in) {
			part.OnClose = i
		}
	}
	for i, c := range n.aggs {
		p.nn[sums[i].args[0]] = isCount(c.fn) || in.nn[c.args[0]] && c.filter == 0
	}
	for _, k := range in.key {
		p.nn[k] = in.nn[k]
	}
	p.n.PartialAgg = part
	p.app = true
	ph.o.fire(rulePartialAgg)
	return ph.seal(p), sums
}

// partialCall returns the type of a call's partial results and the function that adds them up, "" for sum.
func (ph *physical) partialCall(c aggCall) (t types.Type, fn string, ok bool) {
	if c.distinct || len(c.order) > 0 {
		return t, "", false
	}
	name, _, _ := strings.Cut(c.fn, "(")
	if name == "count" {
		return types.Int8, "", true
	}
	if len(c.args) != 1 || ph.md.typ(c.args[0]).Kind() != types.KindInt {
		return t, "", false
	}
	switch name {
	case "sum":
		return types.Int8, "", true
	case "min", "max":
		return ph.md.typ(c.args[0]), c.fn, true
	}
	return t, "", false
}
